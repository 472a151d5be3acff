"""Entries of the audit as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from evenbeat.cli.layout import Cell, Column, Fitted, styled
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer
from evenbeat.cli.phrases import printable
from evenbeat.core.audits import AuditEntry
from evenbeat.core.instants import from_ms, read_instant
from evenbeat.core.json_form import json_form

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

# The most characters of one value in the table; --json has all of it.
_LONGEST = 60
# The least width of the column of changes.
_CHANGE = 30
_TIMES = ("next_run", "paused_until", "run_at", "wake_at", "expires", "muted_until", "starts_at", "until")

limit_option = click.option(
    "--limit", metavar="N", type=click.IntRange(1), default=20, show_default=True, help="At most this many."
)


def answer_entries(
    found: Sequence[AuditEntry],
    limit: int,
    local: LocalTime,
    *,
    empty: str,
    as_json: bool,
    show_subjects: bool = False,
    show_tenants: bool = False,
) -> None:
    """Print up to ``limit`` entries, as JSON or as a table. ``empty`` says that there are none."""
    entries = found[:limit]

    def people() -> Iterable[RenderableType]:
        if not entries:
            yield empty
            return
        yield _table(entries, local, show_subjects, show_tenants)
        if len(found) > limit:
            yield ""
            yield f"there are more: --limit {limit * 5}"

    answer({"entries": json_form(entries), "more": len(found) > limit}, people, as_json=as_json)


class EntryTable(NamedTuple):
    """A table of entries or, if the line is too short for it, lines with the change of each entry below.

    Names and ids are never folded: people copy them.
    """

    heads: list[Column]
    changes: list[Cell]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        table = Fitted([*self.heads, Column("change", self.changes, wraps=_CHANGE)])
        if table.least_width() <= options.max_width:
            yield table
        else:
            yield from self._stacked(options.max_width)

    def _stacked(self, width: int) -> Iterator[RenderableType]:
        from rich.cells import cell_len, set_cell_size
        from rich.padding import Padding

        columns = [column for column in self.heads if any(column.cells) and not column.drop]
        *first, last = columns
        for row, change in enumerate(self.changes):
            words = [set_cell_size(str(column.cells[row]), column.widest()) for column in first]
            line = "  ".join([*words, str(last.cells[row])])
            if cell_len(line) <= width:
                yield line
            else:
                yield "  ".join(words)
                yield f"  {last.cells[row]}"
            if change:
                yield Padding(styled(change), (0, 0, 0, 2))


def _table(
    entries: Sequence[AuditEntry], local: LocalTime, show_subjects: bool, show_tenants: bool
) -> EntryTable:
    heads = [
        Column("when", [local.near(entry.at) for entry in entries]),
        Column("who", [printable(entry.actor, keep="") for entry in entries]),
        Column("via", [entry.via for entry in entries], drop=1),
        Column("tenant", [entry.tenant if show_tenants else "" for entry in entries]),
        Column("action", [entry.action for entry in entries]),
        Column("subject", [_subject(entry) if show_subjects else "" for entry in entries]),
    ]
    return EntryTable(heads, [", ".join(_changes(entry, local)) for entry in entries])


def _subject(entry: AuditEntry) -> str:
    kind = entry.kind.replace("_", " ")
    return entry.subject if kind == "schedule" else f"{kind} {entry.subject}"


def _changes(entry: AuditEntry, local: LocalTime) -> Iterator[str]:
    """Yield ``retries: 3 → 5``; of a new or a deleted subject, its values."""
    for name, value in entry.after.items():
        if name in entry.before:
            yield f"{name}: {_words(name, entry.before[name], local)} → {_words(name, value, local)}"
        else:
            yield f"{name} {_words(name, value, local)}"
    if not entry.after:
        yield from (f"{name} {_words(name, value, local)}" for name, value in entry.before.items())


def _words(name: str, value: Any, local: LocalTime) -> str:
    if value is None or value == "":
        return "none"
    if name in _TIMES and isinstance(value, str):
        return local.near(from_ms(read_instant(value, name)))
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        value = " ".join(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return printable(text if len(text) <= _LONGEST else text[:_LONGEST] + "…", keep="")
