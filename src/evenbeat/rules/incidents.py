"""Decisions about incidents: when one begins, counts on, is announced and ends. Pure.

A function gets the stored incident (None: there is none) and what is known now, and returns the incident to
store. What it owes (``StoredIncident.owed``) becomes deliveries. So each announcement follows from a stored
incident, and two processes that decide at once can't announce it under two ids.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from evenbeat.core.alerts import Announcement
from evenbeat.core.instants import Instant
from evenbeat.errors import InvalidValue
from evenbeat.rules.alert_records import (
    Owed,
    Signal,
    StoredIncident,
    delivery_id,
    incident_id,
    owner_of,
    scoped_key,
)
from evenbeat.rules.alert_rules import FAILED, Rule, Subject, family_of
from evenbeat.rules.conditions import read_condition

SIGNALS_KEPT = 200
"""How many keys of signals an incident remembers. One turn of the watch reads no more of one subject."""
_BEGINNINGS: tuple[Announcement, ...] = ("opened", "escalated")


class Taken(NamedTuple):
    """What signals make of an incident."""

    incident: StoredIncident | None
    used: frozenset[str]
    """The keys of the signals that the incident has taken in. The others wait until this incident has ended,
    and begin the next one."""


class Finding(NamedTuple):
    """A condition that holds for a subject now."""

    subject: Subject
    reason: str
    since: Instant
    run: str | None = None
    tick: Instant | None = None


def take_signals(
    incident: StoredIncident | None,
    rule: Rule,
    family: str,
    subject: Subject,
    signals: Sequence[tuple[str, Signal]],
    *,
    ended_at: Instant | None,
    earlier_ends: Collection[Instant] = (),
    muted_by: str | None,
    now: Instant,
) -> Taken:
    """Begin an incident with the first signal, and count the others, in the order of their times.

    ``ended_at`` is when the last thing happened that ends incidents of this family: a success, or for
    ``missed`` a fire. ``earlier_ends`` are successes before it that may lie between two signals. Without
    signals, this reviews an open incident.
    """
    ends = earlier_ends if ended_at is None else (*earlier_ends, ended_at)
    if incident is not None and incident.closed_at is not None:
        return Taken(incident, frozenset(key for key, _ in signals if key in incident.signals))
    used: set[str] = set()
    for key, signal in sorted(signals, key=lambda each: (each[1].at, each[0])):
        if incident is None:
            incident = _begun(rule, family, subject, key, signal)
        elif key not in incident.signals:
            last = incident.changed_at
            if any(last < end < signal.at for end in ends):
                break  # it ended in between: this signal begins the next one
            incident = _counted(incident, key, signal)
        used.add(key)
        incident = _announced(incident, rule, muted_by, signal.at)
    if incident is None:
        return Taken(None, frozenset(used))
    if ended_at is not None and family == FAILED:
        incident = replace(incident, last_success=max(ended_at, incident.last_success or 0))
    if ended_at is not None and ended_at > incident.changed_at:
        return Taken(closed(incident, rule, ended_at), frozenset(used))
    return Taken(_announced(incident, rule, muted_by, now), frozenset(used))


def take_finding(
    incident: StoredIncident | None,
    rule: Rule,
    condition: str,
    finding: Finding | None,
    *,
    muted_by: str | None,
    now: Instant,
) -> StoredIncident | None:
    """Begin an incident if its condition holds now, and end it if the condition no longer does."""
    if incident is None:
        if finding is None:
            return None
        incident = _found(rule, condition, finding, now)
        return _announced(incident, rule, muted_by, now)
    if incident.closed_at is not None:
        return incident
    if finding is None:
        return closed(incident, rule, now)
    return _announced(incident, rule, muted_by, now)


def closed(incident: StoredIncident, rule: Rule | None, at: Instant) -> StoredIncident:
    """End an incident. The end is announced if the beginning was, also while the rule is muted.

    Without a rule nothing is announced: the rule, or the subject, is gone.
    """
    owed: tuple[Owed, ...] = () if rule is None else incident.owed
    if rule is not None and rule.body.recovery and (incident.announced or owed):
        owed = (*owed, Owed("recovered", 0, at))
    return replace(incident, closed_at=at, owed=owed, muted_by=None)


def deliveries_of(incident: StoredIncident, rule: Rule) -> list[tuple[str, Owed, str]]:
    """Return (id, announcement, channel) of each delivery that an incident owes."""
    return [
        (delivery_id(incident.id, f"{owed.announcement}:{owed.level}", channel, owed.at), owed, channel)
        for owed in incident.owed
        for channel in dict.fromkeys(rule.body.to)
    ]


def with_deliveries_written(incident: StoredIncident) -> StoredIncident:
    """Return the incident after the deliveries that it owes were written."""
    levels = _levels(incident)
    announced = _BEGINNINGS[:levels] + _BEGINNINGS[1:] * (levels - len(_BEGINNINGS))
    if any(owed.announcement == "recovered" for owed in incident.owed):
        announced = (*announced, "recovered")
    return replace(incident, announced=announced, owed=())


def has_begun(incident: StoredIncident) -> bool:
    """Return whether its condition holds, or held. While fewer runs have failed than ``failing`` asks for, an
    incident only counts them."""
    try:
        condition = read_condition(incident.condition)
    except InvalidValue:
        return True  # of a later version, or damaged
    return condition.kind != "failing" or incident.failures >= condition.number


def _begun(rule: Rule, family: str, subject: Subject, key: str, signal: Signal) -> StoredIncident:
    condition = rule.condition_of(family) or family
    incident = StoredIncident(
        id=_id(rule, family, subject, key),
        rule=rule.name,
        scope=rule.scope,
        condition=condition,
        subject_kind=subject.kind,
        subject=subject.name,
        opened_at=signal.at,
        changed_at=signal.at,
        reason="",
        tenant=subject.tenant,
        schedule=subject.schedule,
        task=signal.task or subject.task,
        tags=subject.tags,
        run=signal.run,
        tick=signal.tick,
        failures=int(family == FAILED),
        signals=(key,),
        error=signal.error,
    )
    return replace(incident, reason=_reason(incident, signal))


def _counted(incident: StoredIncident, key: str, signal: Signal) -> StoredIncident:
    is_latest = signal.at >= incident.changed_at
    counted = replace(
        incident,
        changed_at=max(incident.changed_at, signal.at),
        failures=incident.failures + int(_is_about_failures(incident)),
        signals=(*incident.signals, key)[-SIGNALS_KEPT:],
        error=signal.error if is_latest else incident.error,
    )
    return replace(counted, reason=_reason(counted, signal))


def _found(rule: Rule, condition: str, finding: Finding, now: Instant) -> StoredIncident:
    subject = finding.subject
    return StoredIncident(
        id=_id(rule, condition, subject, str(now)),
        rule=rule.name,
        scope=rule.scope,
        condition=condition,
        subject_kind=subject.kind,
        subject=subject.name,
        opened_at=finding.since,
        changed_at=finding.since,
        reason=finding.reason,
        tenant=subject.tenant,
        schedule=subject.schedule,
        task=subject.task,
        tags=subject.tags,
        run=finding.run,
        tick=finding.tick,
    )


def _is_about_failures(incident: StoredIncident) -> bool:
    return family_of(incident.condition) == FAILED


def _reason(incident: StoredIncident, signal: Signal) -> str:
    if _is_about_failures(incident):
        failures = incident.failures
        return "a run failed" if failures == 1 else f"{failures:,} runs have failed in a row"
    ticks = "a tick was" if signal.count == 1 else f"{signal.count:,} ticks were"
    if signal.reason == "limit":
        return f"{ticks} skipped: more were missed than the catch-up limit"
    return f"{ticks} skipped: found later than the catch-up policy allows"


def _announced(incident: StoredIncident, rule: Rule, muted_by: str | None, at: Instant) -> StoredIncident:
    """Owe what has not been announced yet, unless the rule is muted.

    If several levels were reached while it was muted, only the highest is announced.
    """
    reached = 1
    condition = incident.condition
    if _is_about_failures(incident):
        reached = sum(1 for number in rule.failures if incident.failures >= number)
        condition = rule.condition_of(FAILED) or condition
    owed = incident.owed
    if muted_by is None and reached > _levels(incident):
        kind: Announcement = "opened" if reached == 1 else "escalated"
        owed = (*owed, Owed(kind, reached, at))
    return replace(incident, condition=condition, owed=owed, muted_by=muted_by)


def _levels(incident: StoredIncident) -> int:
    """Return how many levels were announced, or will be."""
    announced = sum(1 for each in incident.announced if each in _BEGINNINGS)
    return max([announced, *(owed.level for owed in incident.owed)])


def _id(rule: Rule, family: str, subject: Subject, begins_with: str) -> str:
    identity = f"{subject.kind}/{subject.tenant or ''}/{subject.name}"
    key = scoped_key(rule.owner, rule.name)
    return incident_id(key, owner_of(rule.owner), family, identity, begins_with)
