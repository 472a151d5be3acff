"""``evenbeat account``: what became of each tick of a schedule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from evenbeat.cli.failures import ExitCode
from evenbeat.cli.layout import Cell, Column, Fitted, styled
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.states import STYLES
from evenbeat.cli.store_input import complete_schedule, opened, store_options
from evenbeat.core.explanations import Account, CountedFrom
from evenbeat.core.json_form import json_form
from evenbeat.observe.phrases import count
from evenbeat.observe.reasons import skip_reason

if TYPE_CHECKING:
    from rich.console import RenderableType

_LISTED = 10
_FROM: dict[CountedFrom, str] = {
    "asked": "",
    "created": ", when the schedule was created",
    "trigger": ", when it got its present trigger",
    "purged": ": older history is deleted",
}


@click.command("account")
@click.argument("name", shell_complete=complete_schedule)
@click.option(
    "--from",
    "since",
    metavar="TIME",
    help="The beginning, in the trigger's zone: 2026-03-01T09:00, or 2d ago; else all that can be counted.",
)
@click.option("--to", "until", metavar="TIME", help="The end, which does not count; else now.")
@store_options
@json_option
def command(
    name: str, since: str | None, until: str | None, store: str | None, tenant: str | None, as_json: bool
) -> ExitCode | None:
    """Show what became of each tick of a schedule: it ran, was skipped, or is missing.

    Computes the expected ticks from the trigger alone, and compares them with the runs and the ledger. The
    exit code is 1 if a tick is missing or was recorded twice.
    """
    with opened(store, tenant) as app:
        account = app.schedules.account(name, since, until)
        local = LocalTime.at(app.store.now())

    def people() -> Iterable[RenderableType]:
        yield styled((f"{account.schedule}: {account.trigger}", "bold"))
        yield f"from {local.full(account.counted_from)}{_FROM[account.counted_from_reason]}"
        yield f"to   {local.full(account.counted_until)}"
        yield ""
        yield _table(account)
        for word, ticks in (("missing", account.missing_ticks), ("twice", account.doubled_ticks)):
            if ticks:
                shown = ", ".join(map(local.full, ticks[:_LISTED]))
                more = f" and {len(ticks) - _LISTED:,} more" if len(ticks) > _LISTED else ""
                yield ""
                yield styled((f"{word}: {shown}{more}", STYLES["failed"]))

    answer(json_form(account) | {"adds_up": account.adds_up}, people, as_json=as_json)
    return None if account.adds_up else ExitCode.FAILED


def _table(account: Account) -> Fitted:
    rows = list(_rows(account))
    return Fitted(
        [
            Column("ticks", [label for label, _, _ in rows]),
            Column("", [number for _, number, _ in rows], justify="right"),
            Column("", [note for _, _, note in rows], wraps=30),
        ]
    )


def _rows(account: Account) -> Iterator[tuple[Cell, Cell, Cell]]:
    """Yield the lines of the table: those below the first add up to it."""
    yield ("expected", "bold"), (f"{account.expected:,}", "bold"), ""
    states = ", ".join(f"{number:,} {state}" for state, number in account.runs.items())
    yield "ran", f"{account.ran:,}", states
    if account.coalesced:
        them = "it" if account.coalesced == 1 else "them"
        yield "coalesced", f"{account.coalesced:,}", f"the run of a later tick stands for {them}"
    for reason, number in account.skipped.items():
        yield f"skipped: {reason}", f"{number:,}", skip_reason(reason, number)
    if account.moved:
        yield "moved", f"{account.moved:,}", "to an earlier time"
    if account.pending:
        yield "pending", f"{account.pending:,}", "to come, waiting, or paused"
    bad = STYLES["failed"] if account.missing else ""
    yield ("missing", bad), (f"{account.missing:,}", bad), ""
    if account.doubled:
        words = f"{count(account.doubled, 'tick has', 'ticks have')} two records"
        yield ("twice", STYLES["failed"]), (f"{account.doubled:,}", STYLES["failed"]), words
    else:
        yield "twice", "0", ""
