"""What a deploy does about one schedule: add, change, remove it, or leave it as it is. Pure."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from evenbeat.core.deploys import FieldChange, PlanAction
from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import FORMAT, ScheduleRecord
from evenbeat.errors import InvalidValue
from evenbeat.rules import changes
from evenbeat.rules.code_only import may_delete_row
from evenbeat.rules.definitions import Edit, definition, edits, options_of
from evenbeat.rules.firing import Active, Planned
from evenbeat.rules.ownership import API, is_by_hand, may_move

_EMPTY = options_of(ScheduleRecord(name="", task="", trigger=""))


class Decision(NamedTuple):
    """What to do about a schedule, and the plan that does it."""

    action: PlanAction
    planned: Planned | None = None
    """None if nothing is to be written."""
    why: str = ""
    edited: dict[str, Edit] = {}  # noqa: RUF012  # never changed
    """The edits by hand: of a drift those that stay, of a change those that it replaces."""


def decide(
    declared: tuple[ScheduleRecord, Instant | None],
    row: ScheduleRecord | None,
    now: Instant,
    active_runs: Callable[[ScheduleRecord], tuple[Active, ...]],
    *,
    adopt: bool = False,
) -> Decision:
    """Return what a deploy does about a declared schedule, given with its first start.

    ``row`` is the stored one, also if it is deleted. ``active_runs`` reads the active runs of a row that may
    have to change.
    """
    wanted, start = declared
    if row is None or row.state == "deleted":
        return Decision("add", changes.declare(wanted, now, row, (), start))
    if row.format > FORMAT:
        return Decision("conflict", why="a newer version of Evenbeat wrote it")
    if not adopt and not may_move(row, wanted.managed_by):
        return Decision("conflict", why=_conflict(row))
    edited = edits_of(row)
    is_same = row.declared == definition(wanted) and row.managed_by == wanted.managed_by
    # A damaged or quarantined row is written again, also if its declaration is the same.
    is_left_alone = is_same and not row.damage and not (row.state == "active" and row.wake_at is None)
    active = () if is_left_alone else active_runs(row)
    planned = changes.declare(wanted, now, row, active)
    if planned is None and row.managed_by != wanted.managed_by:
        # The definition, and what was edited of it, stay.
        planned = changes.change(row, {"managed_by": wanted.managed_by}, now, active)
        return Decision("change", planned)
    if planned is None:
        return Decision("drift" if edited else "unchanged", edited=edited)
    why = f"replaces edits by hand: {', '.join(edited)}" if edited else ""
    return Decision("change", planned, why, edited)


def _conflict(row: ScheduleRecord) -> str:
    if is_by_hand(row):
        return "it was made by hand"
    return f"{row.managed_by.replace(':', ' of ')} declares it"


def remove(row: ScheduleRecord, now: Instant) -> Decision:
    """Return the removal of a schedule that is not declared any more."""
    if row.format > FORMAT:
        return Decision("conflict", why="a newer version of Evenbeat wrote it")
    return Decision("remove", changes.delete(row, now))


def remove_row(row: ScheduleRecord, managed_by: str, now: Instant) -> Decision:
    """Return what happens to the row of a schedule that ``managed_by`` has in the code only. A node that
    starts does the same."""
    if row.format > FORMAT:
        return remove(row, now)
    if may_delete_row(row, managed_by):
        return remove(row, now)._replace(why="it is in the code only")
    return Decision(
        "conflict",
        why="it is in the code only, and its row was made, paused or edited by hand, or is declared "
        "elsewhere: nodes fire the row until you delete it",
    )


def is_orphan(row: ScheduleRecord, owners: frozenset[str], declared: frozenset[tuple[str, str]]) -> bool:
    """Return whether one of these owners declared the schedule once, and none does now.

    A schedule that was made by hand has the owner ``api``, which is never one of them.
    """
    return (
        row.state != "deleted"
        and row.managed_by != API
        and row.managed_by in owners
        and row.key not in declared
    )


def after(decision: Decision, wanted: ScheduleRecord, now: Instant) -> ScheduleRecord | None:
    """Return the schedule after the change, with a long backlog behind it; None if nothing is written."""
    planned = decision.planned
    while planned is not None and planned.unfinished:
        planned = changes.declare(wanted, now, planned.schedule)
    return None if planned is None else planned.schedule


def differences(before: ScheduleRecord | None, then: ScheduleRecord | None) -> tuple[FieldChange, ...]:
    """Return the options that differ between two definitions; None has no options."""
    old = {} if before is None or before.state == "deleted" else _options(before)
    new = {} if then is None or then.state == "deleted" else _options(then)
    if old and new:
        names = [name for name in new if old.get(name) != new[name]]
    else:
        # Of a schedule that is new or removed: what is not the default.
        names = [name for name, value in (old or new).items() if value != _EMPTY.get(name)]
    return tuple(FieldChange(field=name, before=old.get(name), after=new.get(name)) for name in names)


def edit_changes(edited: dict[str, Edit]) -> tuple[FieldChange, ...]:
    """Return edits by hand as differences: the value that is stored, and the declared one."""
    return tuple(
        FieldChange(field=name, before=edit.present, after=edit.declared) for name, edit in edited.items()
    )


def edits_of(row: ScheduleRecord) -> dict[str, Edit]:
    """Return the edits by hand; none if the row or its declaration is damaged."""
    try:
        return {} if row.damage else edits(row)
    except (InvalidValue, msgspec.MsgspecError, UnicodeError):
        return {}


def token_of(action: PlanAction, wanted: ScheduleRecord | None, row: ScheduleRecord | None) -> str:
    """Return a text that only this change of this version of a schedule has.

    Fires between the plan and its application do not matter: the numbers of the definition are compared.
    """
    declared = "" if wanted is None else f"{wanted.managed_by} {definition(wanted)}"
    version = (0, 0) if row is None else (row.generation, row.revision)
    key = (row if wanted is None else wanted).key  # type: ignore[union-attr]  # one of them is given
    return blake2b(encode([action, key, version, declared]).encode(), digest_size=12).hexdigest()


def _options(row: ScheduleRecord) -> dict[str, Any]:
    try:
        return options_of(row)
    except (msgspec.MsgspecError, UnicodeError):  # the payload is damaged
        return options_of(replace(row, payload="null"))
