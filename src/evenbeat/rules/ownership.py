"""Which source a schedule is managed by: code, a file or the API, and the label of the app or file. Pure.

``ScheduleRecord.managed_by`` is ``api``, ``code`` or ``file``; the last two with a label after a colon if the
app or the file has one: ``code:billing``.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from evenbeat.core.records import ScheduleRecord

SourceKind: TypeAlias = Literal["code", "file"]
API = "api"


def owner(kind: SourceKind, source: str) -> str:
    """Return the text for ``managed_by``."""
    return owner_text(kind, source)


def owner_text(kind: str, source: str) -> str:
    """Return the text for ``managed_by`` from its two parts, as they are stored."""
    return f"{kind}:{source}" if source else kind


def kind_of(managed_by: str) -> str:
    """Return ``code``, ``file`` or ``api``."""
    return managed_by.partition(":")[0]


def declared_in(managed_by: str) -> SourceKind:
    """Return where the declaration of a declared schedule is."""
    return "file" if kind_of(managed_by) == "file" else "code"


def source_of(managed_by: str) -> str:
    """Return the label of the app or file; empty if it has none."""
    return managed_by.partition(":")[2]


def is_by_hand(row: ScheduleRecord) -> bool:
    """Return whether nothing ever declared the schedule."""
    return not row.declared and kind_of(row.managed_by) == API


def may_move(row: ScheduleRecord, wanted: str) -> bool:
    """Return whether a declaration by ``wanted`` takes the schedule over from the source that manages it.

    It does if the schedule was declared before, and not by a source with another label.
    """
    source = source_of(row.managed_by)
    return not is_by_hand(row) and (not source or source == source_of(wanted))
