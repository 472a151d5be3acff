"""``evenbeat doctor``: checks of a store, and of the nodes that work on it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from evenbeat.cli.failures import ExitCode
from evenbeat.cli.layout import styled
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable
from evenbeat.cli.store_input import find_store, settings_here, store_option
from evenbeat.core.clocks import wall_clock
from evenbeat.doctor.diagnosis import diagnose
from evenbeat.doctor.findings import Finding
from evenbeat.doctor.settings import safety_findings
from evenbeat.errors import SchemaTooNew, StoreUnavailable
from evenbeat.observe.phrases import count
from evenbeat.stores.base import Schema, Store

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@click.command("doctor")
@click.argument("url", required=False)
@store_option
@json_option
def command(url: str | None, store: str | None, as_json: bool) -> ExitCode:
    """Check the store, and whether nodes work on it.

    Checks the store at URL, by default that of the settings, for all tenants. The exit code is 1 if a check
    failed; warnings alone are 0.

    'evenbeat repair' mends duplicates and stuck rows; 'evenbeat quarantine' is about rows that can't be read.
    """
    settings = settings_here(store=url or store)
    database, where = find_store(settings, empty=True, is_argument=url is not None)
    # The table below has the warnings that the store logs when it is opened.
    log = logging.getLogger("evenbeat.store")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        findings = list(_store_checks(database, where))
        if all(finding.level != "fail" and finding.facts.get("schema") != 0 for finding in findings):
            findings += diagnose(database, wall_clock())
    finally:
        database.close()
        log.setLevel(before)
    failed = sum(1 for finding in findings if finding.level == "fail")

    def people() -> Iterable[RenderableType]:
        yield _table(findings)
        yield ""
        warned = sum(1 for finding in findings if finding.level == "warn")
        words = [count(failed, "problem")] if failed else []
        words += [count(warned, "warning")] if warned else []
        yield styled(
            (", ".join(words) or "all is well", _STYLES["fail" if failed else "warn" if warned else "ok"])
        )

    answer(
        {
            "ok": not failed,
            "checks": [
                {
                    "check": finding.check,
                    "level": finding.level,
                    "message": finding.message,
                    "hint": finding.hint,
                    "details": list(finding.details),
                    **finding.facts,
                }
                for finding in findings
            ],
        },
        people,
        as_json=as_json,
    )
    return ExitCode.FAILED if failed else ExitCode.OK


def _store_checks(store: Store, where: str) -> Iterator[Finding]:
    """Check whether the store can be reached, and whether its settings are safe; the first failure ends the
    checks.

    A server is checked before the store is opened, since opening refuses a server that is not safe.
    """
    is_file = hasattr(store, "path")
    try:
        schema = store.schema()
        settings = [] if is_file else store.server()
        if schema.found and all(setting.level != "fail" for setting in settings):
            store.open()
            store.count_runs()
            settings = settings or store.server()
    except (StoreUnavailable, SchemaTooNew) as error:
        yield Finding(check="store", level="fail", message=str(error))
        return
    yield Finding(check="store", level="ok", message=where)
    if schema.known:
        yield _schema_finding(schema)
    yield from safety_findings(settings)


def _schema_finding(schema: Schema) -> Finding:
    if not schema.found:
        return Finding(
            check="schema",
            level="ok",
            message="none yet",
            facts={"schema": 0},
            hint="'evenbeat db upgrade' creates it, or the first node",
        )
    upgraded = "" if schema.found == schema.known else f", upgraded from {schema.found} just now"
    message = f"{schema.known}, the newest{upgraded}"
    return Finding(check="schema", level="ok", message=message, facts={"schema": schema.known})


def _table(findings: list[Finding]) -> RenderableType:
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(3):
        table.add_column(overflow="fold")
    for finding in findings:
        level = styled((finding.level, _STYLES[finding.level]))
        table.add_row(level, finding.check, printable(finding.message, keep=""))
        for detail in finding.details:
            table.add_row("", "", styled((printable(detail, keep=""), "dim")))
        if finding.hint is not None:
            table.add_row("", "", styled((finding.hint, "cyan")))
    return table
