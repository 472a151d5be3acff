"""Schedules inherit options from a template; a change of the template changes them.

python examples/templates.py
"""

from __future__ import annotations

from evenbeat import TemplateInUse, every
from evenbeat.testing import virtual


def main() -> None:
    with virtual(now="2026-03-02T12:00:00Z") as scheduler:
        templates = scheduler.templates
        templates.set("nightly", trigger="0 3 * * *", retries=3, queue="batch")

        @scheduler.task(template="nightly")  # code declares this one
        def clean_up() -> str:
            return "clean"

        @scheduler.task
        def report() -> str:
            return "sent"

        schedules = scheduler.schedules
        schedules.add("sales", task=report, template="nightly")
        schedules.add("stock", every("8h"), report, template="nightly", retries=5)
        print({each.name: each.inherited for each in schedules.list(template="nightly")})
        assert len(scheduler.travel("24h")) == 1 + 1 + 3

        dry = templates.set("nightly", trigger="0 4 * * *", retries=2, dry_run=True)
        print([(each.schedule, each.after) for each in dry.sample])
        assert templates.set("nightly", trigger="0 4 * * *", retries=2).changed == 3
        found = {each.name: (each.trigger, each.retries, each.queue) for each in schedules.list()}
        assert found == {
            "clean_up": ("0 4 * * *", 2, "default"),
            "sales": ("0 4 * * *", 2, "default"),
            "stock": ("every 8h", 5, "default"),  # its trigger and its retries are its own
        }

        schedules.update("sales", retries=9)  # now it is its own
        assert "retries" not in schedules.get("sales").inherited
        assert schedules.update("sales", inherit=["retries"]).retries == 2

        users: list[str] = []
        try:
            templates.delete("nightly")
        except TemplateInUse as error:
            users = error.schedules
        assert users == ["clean_up", "sales", "stock"]


if __name__ == "__main__":
    main()
