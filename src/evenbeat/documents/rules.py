"""Pure: how the fields of a document are read, and what becomes of it after it was processed."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Final, Literal, TypeAlias

import msgspec

from evenbeat.core.instants import Instant, read_instant
from evenbeat.documents.base import HELD_AT, Found
from evenbeat.errors import InvalidValue, shown
from evenbeat.triggers import Trigger, parse_trigger

OnFailure: TypeAlias = Literal["reschedule", "retry", "hold"]

REMOVE: Final = "remove"
Disposition: TypeAlias = Instant | Literal["remove"] | None
"""What becomes of a document: due again at an instant, removed, or (None) not a job any more."""

_YES = frozenset({"1", "true", "t", "yes", "y", "on"})
_NO = frozenset({"", "0", "false", "f", "no", "n", "off", "null", "none"})


class DocumentPlan(msgspec.Struct, frozen=True):
    """The four fields of a document, read."""

    sleep_until: Instant
    trigger: Trigger | None = None
    repeat_until: Instant | None = None
    auto_remove: bool = False


class Policy(msgspec.Struct, frozen=True):
    """The options of a processor that decide what becomes of a document. Durations are milliseconds."""

    reprocess_delay: int = 0
    on_failure: OnFailure = "reschedule"
    retry_delay: int = 60_000


def read(found: Found) -> DocumentPlan:
    """Read the fields of a document. ``InvalidValue`` names the field that is invalid, and why."""
    if found.trouble is not None:
        raise InvalidValue(f"the document can't be read: {found.trouble}", field="document", value=None)
    trigger = None
    if found.interval is not None and found.interval != "":
        # `H` spreads documents by their ids, and an interval counts from when the document was due.
        trigger = parse_trigger(_text(found.interval)).bind(str(found.id), found.sleep_until)
    return DocumentPlan(
        sleep_until=found.sleep_until,
        trigger=trigger,
        repeat_until=_instant(found.repeat_until),
        auto_remove=is_yes(found.auto_remove),
    )


def is_yes(value: object) -> bool:
    """Return whether a value means yes: also the texts and numbers of databases without booleans."""
    if not isinstance(value, str):
        return bool(value)
    text = value.strip().lower()
    if text in _YES or text in _NO:
        return text in _YES
    # A document must not be removed by a guess.
    raise InvalidValue(
        f"auto_remove {shown(value)} is neither yes nor no",
        field="auto_remove",
        value=value,
        hint='write "1" or "0", "true" or "false", "yes" or "no"',
    )


def after_success(plan: DocumentPlan, now: Instant, policy: Policy) -> Disposition:
    """Return the next tick; without one, ``REMOVE`` if ``auto_remove`` is set, or None."""
    upcoming = next_start(plan, now, policy.reprocess_delay)
    if upcoming is None and plan.auto_remove:
        return REMOVE
    return upcoming


def after_failure(plan: DocumentPlan, now: Instant, policy: Policy) -> Disposition:
    """Return what the policy decides. A document that failed and has no next tick is held, not done, nor
    removed: it must not pass for one that was processed."""
    if policy.on_failure == "retry":
        # The instant at which it was due may have been the lock of a worker that is late, and that would
        # take it for its own again.
        return max(now + policy.retry_delay, plan.sleep_until + 1)
    upcoming = None if policy.on_failure == "hold" else next_start(plan, now, policy.reprocess_delay)
    return HELD_AT if upcoming is None else upcoming


def next_start(plan: DocumentPlan, now: Instant, reprocess_delay: int) -> Instant | None:
    """Return the next tick after the one that was due, and not before now: missed ticks are merged into one
    run."""
    if plan.trigger is None:
        return None
    upcoming = plan.trigger.next_ms(plan.sleep_until + reprocess_delay)
    if upcoming is not None and upcoming < now:
        upcoming = plan.trigger.next_ms(now - 1)
    if upcoming is None or (plan.repeat_until is not None and upcoming > plan.repeat_until):
        return None
    return upcoming


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, timedelta):  # an interval of PostgreSQL
        return f"every {value // timedelta(milliseconds=1)}ms"
    raise InvalidValue(
        f"interval {shown(value)} is not a text",
        field="interval",
        value=value,
        hint='write it like "0 9 * * mon-fri" or "every 10m"',
    )


def _instant(value: object) -> Instant | None:
    if value is None or value == "":
        return None
    if isinstance(value, datetime):
        # MongoDB and columns without a time zone: UTC.
        return read_instant(value if value.tzinfo is not None else value.replace(tzinfo=UTC), "repeat_until")
    if isinstance(value, date):  # inclusive: until the day has ended
        return _instant(datetime(value.year, value.month, value.day, 23, 59, 59, 999_000, UTC))
    if isinstance(value, str):
        return read_instant(value, "repeat_until", UTC)
    raise InvalidValue(
        f"repeat_until {shown(value)} is not a time",
        field="repeat_until",
        value=value,
        hint="keep it as the database keeps times, or as a text like 2026-03-01T09:00:00Z",
    )
