"""``evenbeat schedules delete``."""

from __future__ import annotations

import sys

import click

from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import complete_schedule, opened, store_options


@click.command("delete")
@click.argument("name", shell_complete=complete_schedule)
@click.option("--yes", "-y", is_flag=True, help="Don't ask. Without a terminal, nothing is asked.")
@store_options
@json_option
def command(name: str, yes: bool, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Delete a schedule; its runs stay."""
    with opened(store, tenant) as app:
        schedule = app.schedules.get(name)
        if not yes and sys.stdin.isatty():
            click.confirm(f"delete {name} ({schedule.trigger}, {schedule.task})?", abort=True, err=True)
        app.schedules.delete(name)

    def people() -> list[str]:
        words = [f"deleted {name}"]
        if schedule.managed_by == "code":
            words.append("the code declares it: the next node that starts with that code creates it again")
        return words

    answer({"deleted": name, "tenant": schedule.tenant}, people, as_json=as_json)
