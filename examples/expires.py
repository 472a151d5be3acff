"""A run that is worthless later is cancelled instead of executed.

python examples/expires.py
"""

from __future__ import annotations

from datetime import timedelta

from evenbeat import Retry, Scheduler
from evenbeat.testing import virtual

app = Scheduler("memory://")
sent: list[str] = []


@app.task(expires="10m")
def remind(meeting: str) -> None:
    sent.append(meeting)


@app.task(expires="1h")
def poll() -> None:
    raise Retry(after="25m", reason="nothing there yet")


def main() -> None:
    # No node runs yet, and a millisecond later nobody wants it any more.
    late = app.enqueue(remind.bind("standup"), expires="1ms")
    in_time = app.enqueue(remind.bind("review"))
    assert in_time.expires_at == in_time.scheduled_at + timedelta(minutes=10)
    with app:
        assert app.runs.join(in_time.id, "30s").state == "succeeded"
        ended = app.runs.join(late.id, "30s")
    print(ended.error)
    assert ended.state == "cancelled"
    assert sent == ["review"]

    # Only expires bounds a task that asks to run again and again.
    with virtual(app) as world:
        run = app.enqueue(poll)
        world.travel("2h")
        ended = app.runs.get(run.id)
        assert [attempt.outcome for attempt in ended.attempts] == [*["handed back"] * 3, "cancelled"]
        assert ended.error is not None
        assert ended.error.startswith("expired: ")
        assert ended.failures == 0


if __name__ == "__main__":
    main()
