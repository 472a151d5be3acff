"""What a deploy would change about schedules, and what it changed, as users get it back."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from evenbeat.core.results import ChangeWarning

PlanAction: TypeAlias = Literal[
    "add", "change", "remove", "refused", "conflict", "drift", "orphan", "unchanged"
]
"""``add``, ``change``, ``remove``: what ``apply`` does. ``refused``: the schedule would wait for itself, or
for one that does not exist; ``why`` says which. ``conflict``: the schedule was made by hand, or
another source declares it; only ``adopt`` takes it over. Also a row that nodes keep although its schedule
is in the code only. ``drift``: it was edited by hand and is declared
otherwise; the edit stays until the declaration changes. ``orphan``: it was declared once and is not any more;
only ``prune`` removes it. ``unchanged``: nothing is to do."""
DONE_BY_APPLY: frozenset[PlanAction] = frozenset(("add", "change", "remove"))


class FieldChange(msgspec.Struct, frozen=True, kw_only=True):
    """An option of a schedule that differs."""

    field: str
    before: Any
    """Of the stored schedule; None if it is new."""
    after: Any
    """As it is declared; None if the schedule is removed."""


class PlanEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that is declared, or was, and what a deploy does about it."""

    tenant: str
    name: str
    action: PlanAction
    managed_by: str
    """``code``, ``file`` or ``api``: as the schedule is declared; as it is stored if it is not declared."""
    source: str
    """The label of the app or file that declares it; empty if it has none."""
    changes: tuple[FieldChange, ...] = ()
    """The options that differ. Of a drift: the edit by hand, and the declared value."""
    ticks_before: tuple[datetime, ...] = ()
    """The next five ticks as the schedule is stored."""
    ticks_after: tuple[datetime, ...] = ()
    """The next five ticks after the change."""
    why: str = ""
    """Why it is refused or a conflict, or which edits by hand a change replaces."""
    command: str = ""
    """The command that settles a conflict, a drift or an orphan."""
    token: str = ""
    """Names this change of this version of the schedule: ``apply`` refuses it once either differs."""


class DeployPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a deploy would change."""

    entries: tuple[PlanEntry, ...]
    """All schedules but the unchanged ones, in the order of tenant and name."""
    unchanged: int
    """How many declared schedules are as declared."""
    at: datetime
    """When it was made, by the store's clock."""
    warnings: tuple[ChangeWarning, ...] = ()
    """Tasks of added and changed schedules that neither the app nor a live node has, and schedules that wait
    for removed ones."""

    @property
    def to_do(self) -> tuple[PlanEntry, ...]:
        """The entries that ``apply`` adds, changes and removes."""
        return tuple(entry for entry in self.entries if entry.action in DONE_BY_APPLY)

    def count(self, action: PlanAction) -> int:
        """Return how many entries have the action."""
        return sum(entry.action == action for entry in self.entries)


class RefusedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change that ``apply`` did not make."""

    tenant: str
    name: str
    why: str
    entry: PlanEntry | None
    """What would be to do about the schedule now; None if nothing is."""


class DeployResult(msgspec.Struct, frozen=True, kw_only=True):
    """What ``apply`` did."""

    done: tuple[PlanEntry, ...]
    """The changes that were made."""
    refused: tuple[RefusedChange, ...]
    """The changes that were not made: the schedule has changed since the plan, it would wait for itself or
    for one that does not exist, or its quota is used up."""
    left: tuple[PlanEntry, ...]
    """Conflicts, drifts and orphans, which stay as they are."""
    unchanged: int
    warnings: tuple[ChangeWarning, ...] = ()
    """Schedules that wait for removed ones."""
