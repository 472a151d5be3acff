"""``evenbeat why``: why a schedule or a run did, or did not do, something."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.app.scheduler import Scheduler
from evenbeat.cli.layout import listed, styled
from evenbeat.cli.local_time import whole
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable
from evenbeat.cli.store_input import complete_schedule, opened, store_options
from evenbeat.core.checks import is_name
from evenbeat.core.explanations import Fact, Why
from evenbeat.core.instants import to_ms
from evenbeat.core.json_form import json_form
from evenbeat.errors import RunNotFound
from evenbeat.observe.phrases import date_time, timespec

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("why")
@click.argument("subject", metavar="NAME|RUN", shell_complete=complete_schedule)
@click.option(
    "--at",
    metavar="TIME",
    help="The time to explain, in the trigger's zone: 09:00, 2026-03-01T09:00, or 2h ago; else now.",
)
@store_options
@json_option
def command(subject: str, at: str | None, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Explain why a schedule ran, or did not run, or why a run is in its state.

    Give the name of a schedule, or the id of a run. 09:00 is the latest one in the past, and a minute stands
    for all ticks in it. The answer is one sentence, the evidence, and a remedy where one helps.
    """
    with opened(store, tenant) as app:
        why = _explained(app, subject, at)

    def people() -> Iterable[RenderableType]:
        yield styled((printable(why.sentence), "bold"))
        if why.evidence:
            yield ""
            yield listed((_when(fact), printable(fact.text)) for fact in why.evidence)
        if why.remedy:
            yield ""
            yield listed([("remedy", styled((printable(why.remedy), "green")))])

    answer(json_form(why), people, as_json=as_json)


def _explained(app: Scheduler, subject: str, at: str | None) -> Why:
    """Return the answer about the schedule of this name; if there never was one, about the run."""
    why = app.schedules.why(subject, at) if is_name(subject) else None
    if why is not None and why.verdict != "never_existed":
        return why
    try:
        found = app.runs.why(subject)
    except RunNotFound:
        if why is None:
            raise
        app.schedules.get(subject)  # refuses the name, with what is known of it
        raise
    if at is not None:
        raise click.UsageError("--at goes with the name of a schedule, not with the id of a run")
    return found


def _when(fact: Fact) -> str:
    """Return when a fact happened, in the zone of the sentence."""
    return "" if fact.at is None else date_time(fact.at, timespec([whole(to_ms(fact.at))]))
