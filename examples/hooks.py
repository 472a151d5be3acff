"""Hooks: functions of yours that a node calls when something happens.

python examples/hooks.py
"""

from __future__ import annotations

from evenbeat import Event, Scheduler

app = Scheduler("memory://")
seen: list[str] = []
alerts: list[str] = []


@app.task
def ship(order: int) -> str:
    if order < 0:
        raise LookupError(f"there is no order {order}")
    return "shipped"


@app.on_event
def count(event: Event) -> None:
    seen.append(event.kind)


@app.on_error
async def alert(event: Event) -> None:  # a def or an async def
    alerts.append(f"{event.run.task if event.run else event.kind}: {event.exception!r}")


@app.on_start
def ready() -> None:
    print("a node has started")


@app.on_stop
def bye() -> None:
    print("it has stopped, and its jobs have ended")


def main() -> None:
    with app:
        for order in (1, -1):
            app.runs.join(ship.enqueue(order).id, "30s")
    print(alerts)
    assert alerts == ["ship: LookupError('there is no order -1')"]
    assert seen[0] == "node_started"
    assert seen[-1] == "node_stopped"
    assert {"started", "succeeded", "failed"} <= set(seen)


if __name__ == "__main__":
    main()
