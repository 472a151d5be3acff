"""Quarantined rows as users get them back, and what was done about one."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

QuarantinedKind: TypeAlias = Literal["schedule", "run"]


class QuarantinedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule or a run that nodes can't process: why, what can be read of it, and what to do."""

    kind: Literal["quarantine", "deferred"]
    """``quarantine``: it sleeps, or failed, until somebody acts. ``deferred``: nodes try again themselves."""
    subject: QuarantinedKind
    tenant: str
    name: str
    """The name of the schedule, or the id of the run."""
    reason: str
    """Why a node set it aside."""
    problem: str | None
    """What is still wrong with it; None if ``retry`` would work now."""
    fields: dict[str, Any]
    """The fields that can be read, as they are stored. Empty for a run that can't be read."""
    unreadable: tuple[str, ...]
    """The fields of a schedule that can't be read, as far as they are known."""
    on_retry: str
    """What ``retry`` does now."""
    on_drop: str
    """What ``drop`` does now."""


class QuarantineChange(msgspec.Struct, frozen=True, kw_only=True):
    """What ``retry`` or ``drop`` did."""

    action: Literal["retry", "drop"]
    subject: QuarantinedKind
    tenant: str
    name: str
    words: str
    """What happened, as a sentence."""
