"""``evenbeat tenants purge``."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from evenbeat.cli.failures import ExitCode, Failed
from evenbeat.cli.output import answer, json_option, show_before_asking
from evenbeat.cli.progress import changing_line
from evenbeat.cli.store_input import opened, store_option
from evenbeat.core.json_form import json_form
from evenbeat.core.tenants import TenantPurge
from evenbeat.observe.phrases import count


@click.command("purge")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.option("--even-default", is_flag=True, help="Purge the tenant default, too.")
@click.option("--limit", metavar="N", type=click.IntRange(1), help="Stop after about so many rows.")
@store_option
@json_option
def command(
    name: str, yes: bool, even_default: bool, limit: int | None, store: str | None, as_json: bool
) -> ExitCode | None:
    """Delete everything of a tenant.

    Deletes its schedules, runs, history, locks, alert rules, quota and tokens; no tick fires again. Queued
    runs are cancelled. Running ones are asked to stop: purge again when they have ended. Counts and asks
    first; add --yes in a script. The exit code is 1 if something is left.
    """
    with opened(store, None) as app:
        if not yes:
            found = app.tenants.purge(name, dry_run=True, even_default=even_default)
            if not found.is_complete:
                _ask(found, as_json=as_json)
        with changing_line() as show:
            progress = None if show is None else lambda done: show(", ".join(_parts(done)))
            done = app.tenants.purge(name, even_default=even_default, limit=limit, progress=progress)
    answer(json_form(done), lambda: _report(done), as_json=as_json)
    return None if done.is_complete else ExitCode.FAILED


def _ask(found: TenantPurge, *, as_json: bool) -> None:
    """Show on stderr what the tenant has; go on only after a yes."""
    words = ", ".join(_parts(found))
    if as_json or not sys.stdin.isatty():
        raise Failed(f"nothing was done: {found.tenant} has {words}", "add --yes to delete them")
    show_before_asking([f"{found.tenant} has {words}", *_remains(found), ""])
    click.confirm(f"delete everything of {found.tenant}?", abort=True, err=True)


def _report(done: TenantPurge) -> Iterator[str]:
    parts = _parts(done)
    if not parts:
        yield f"there is nothing of {done.tenant} to delete"
        return
    yield f"deleted of {done.tenant}: {', '.join(parts)}"
    yield from _remains(done)
    if done.stopping:
        yield f"{count(done.stopping, 'run')} asked to stop: purge again when ended"
    elif not done.is_complete:
        yield "there is more: run it again"


def _parts(purge: TenantPurge) -> list[str]:
    numbers = (
        (purge.schedules, "schedule"),
        (purge.runs, "run"),
        (purge.stopping, "running run"),
        (purge.records, "other record"),
        (purge.tokens, "token"),
    )
    return [count(number, noun) for number, noun in numbers if number]


def _remains(purge: TenantPurge) -> Iterator[str]:
    yield "remains:"
    for remaining in purge.remains:
        yield f"  {remaining}"
