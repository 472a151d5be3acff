"""A schedule that runs after each success of another one, and one whose ticks wait for it.

python examples/dependencies.py
"""

from __future__ import annotations

from evenbeat import RunContext, Scheduler, after, every, on_success_of
from evenbeat.testing import virtual

app = Scheduler("memory://")
loads = iter((True, False, True))


@app.task
def load() -> None:
    if not next(loads):
        raise RuntimeError("the source is away")


@app.task
def report(run: RunContext) -> None:
    print(f"report of {run.tick:%H:%M}, after run {run.predecessor}")


@app.task
def digest(run: RunContext) -> None:
    print(f"digest of {run.tick:%H:%M}")


def main() -> None:
    with virtual(app) as time:
        app.schedules.add("load", every("1h"), load)
        app.schedules.add("report", on_success_of("load"), report)
        app.schedules.add("digest", every("75m"), digest, after=after("load", within="30m", wait="10m"))
        time.travel("3h")  # 13:00 succeeds, 14:00 fails, 15:00 succeeds
        assert len(app.runs.list(schedule="report")) == 2
        ticks = [run.tick for run in app.runs.list(schedule="digest")]
        assert [f"{tick:%H:%M}" for tick in ticks if tick is not None] == ["13:15"]
        (skipped,) = app.schedules.skipped("digest")
        print(f"digest of {skipped.first:%H:%M} was skipped: {skipped.reason}")
        assert skipped.reason == "dependency"


if __name__ == "__main__":
    main()
