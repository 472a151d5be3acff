"""See what a deploy changes about schedules, and change it in one step; then rename a task.

python examples/plan_and_apply.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from evenbeat import DeployPlan, Scheduler

FILE = """
source = "shop"

[schedules.nightly]
trigger = "0 3 * * *"
task = "clean"
payload = { days = 90 }
"""


def deployed(folder: Path, **schedules: str) -> Scheduler:
    """Return the app of one version of the code, which declares these schedules."""
    app = Scheduler(f"sqlite:///{folder / 'evenbeat.db'}", source="shop")

    @app.task
    def clean(days: int = 30) -> str:
        return f"older than {days} days"

    for name, trigger in schedules.items():
        app.declare(name, trigger, clean)
    return app


def show(title: str, plan: DeployPlan) -> None:
    print(title)
    for entry in plan.entries:
        changes = ", ".join(f"{each.field} {each.before} -> {each.after}" for each in entry.changes)
        print(f"  {entry.action:8} {entry.name:8} {entry.why or changes}")
    print(f"  {plan.unchanged} unchanged")


def main(folder: Path) -> None:
    file = folder / "schedules.toml"
    file.write_text(FILE)

    first = deployed(folder, hourly="@hourly", old="@daily")
    assert len(first.apply(file=file).done) == 3
    first.schedules.add("mine", "@weekly", "clean")  # made by hand
    first.close()

    second = deployed(folder, hourly="every 30m", mine="@weekly")
    second.schedules.update("nightly", retries=5)  # edited by hand
    plan = second.plan(file=file, prune=True)
    show("the second version:", plan)
    assert {entry.name: entry.action for entry in plan.entries} == {
        "hourly": "change",
        "mine": "conflict",
        "nightly": "drift",
        "old": "remove",
    }

    # Somebody changes a schedule after the plan: that one is refused, and the others are written.
    second.schedules.update("hourly", queue="slow")
    result = second.apply(plan, file=file, prune=True)
    assert [entry.name for entry in result.done] == ["old"]
    assert [refused.name for refused in result.refused] == ["hourly"]
    assert [entry.name for entry in second.apply(file=file, prune=True).done] == ["hourly"]
    assert {each.name for each in second.schedules.list()} == {"hourly", "mine", "nightly"}

    # The code renames a task: its queued runs move along.
    second.enqueue("clear", {"days": 7})
    moved = second.runs.move("clear", "clean")
    print(f"moved {moved.done} run")
    assert (moved.done, moved.warnings) == (1, ())
    second.close()


if __name__ == "__main__":
    with TemporaryDirectory() as place:
        main(Path(place))
