"""What users may write in an alert rule or a maintenance window. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evenbeat.core.alerts import LONGEST_NOTE, MOST_CHANNELS, MOST_CONDITIONS, SHARED_CONDITIONS
from evenbeat.core.checks import check_name, check_text
from evenbeat.core.instants import Instant, write_instant
from evenbeat.errors import InvalidValue, shown
from evenbeat.rules.alert_records import StoredChannel, StoredRule, StoredWindow
from evenbeat.rules.conditions import read_condition

LONGEST_MUTE = 366 * 86_400_000
"""How long a rule may be muted, or a maintenance window last, in milliseconds."""
HIDDEN = "***"
"""Stands for a secret in the audit."""


def read_rule(
    on: str | Iterable[str],
    to: str | Iterable[str],
    *,
    schedule: str | None = None,
    tag: str | None = None,
    recovery: bool = True,
    for_all_tenants: bool = False,
) -> StoredRule:
    """Return the rule, with its conditions in their canonical text. Does not check whether channels exist."""
    conditions = [read_condition(text) for text in _texts(on, "on", MOST_CONDITIONS, "failed")]
    shared = [str(each) for each in conditions if each.kind in SHARED_CONDITIONS]
    if shared and not for_all_tenants:
        raise InvalidValue(
            f"on {shown(shared[0])} is about machines that all tenants share",
            field="on",
            value=shared[0],
            hint="make it a rule of all tenants: all_tenants=True",
        )
    check_filter(schedule, tag)
    if shared and (schedule is not None or tag is not None):
        field = "schedule" if schedule is not None else "tag"
        raise InvalidValue(
            f"{field} {shown(schedule or tag)} never matches {shown(shared[0])}: it is not about schedules",
            field=field,
            value=schedule or tag,
            hint=f"give {shared[0]} a rule of its own",
        )
    if recovery not in (True, False):
        raise InvalidValue(
            f"recovery {shown(recovery)} is not True or False", field="recovery", value=recovery
        )
    names = _texts(to, "to", MOST_CHANNELS, "ops")
    for name in names:
        check_name(name, "to")
    return StoredRule(
        on=tuple(dict.fromkeys(map(str, conditions))),
        to=tuple(dict.fromkeys(names)),
        schedule=schedule,
        tag=tag,
        recovery=recovery,
    )


def check_filter(schedule: str | None, tag: str | None) -> None:
    """Refuse a filter of a rule or window that is not valid."""
    if schedule is not None:
        check_name(schedule, "schedule")
    if tag is not None:
        check_name(tag, "tag")
    if schedule is not None and tag is not None:
        raise InvalidValue(
            f"tag {shown(tag)} and schedule {shown(schedule)} are both given",
            field="tag",
            value=tag,
            hint="choose one of them, or make two",
        )


def read_window(
    starts_at: Instant,
    ends_at: Instant,
    *,
    schedule: str | None,
    tag: str | None,
    note: str,
    created_by: str,
    now: Instant,
) -> StoredWindow:
    """Return the window; refuse one that is over, or too long."""
    check_filter(schedule, tag)
    check_text("note", note, LONGEST_NOTE)
    if ends_at <= starts_at:
        raise InvalidValue(
            f"until {write_instant(ends_at)} is not after the start {write_instant(starts_at)}",
            field="until",
            value=write_instant(ends_at),
            hint="give a later end",
        )
    check_end(ends_at, now)
    return StoredWindow(
        starts_at=starts_at, ends_at=ends_at, schedule=schedule, tag=tag, note=note, created_by=created_by
    )


def check_end(until: Instant, now: Instant) -> None:
    """Refuse the end of a mute or a window that is past, or too far ahead."""
    if until <= now:
        raise InvalidValue(
            f"until {write_instant(until)} is in the past",
            field="until",
            value=write_instant(until),
            hint='give a time to come, or how long, like "2h"',
        )
    if until > now + LONGEST_MUTE:
        raise InvalidValue(
            f"until {write_instant(until)} is more than 366 days ahead",
            field="until",
            value=write_instant(until),
            hint="delete the rule, or leave out its channel, if nobody needs it",
        )


def rule_facts(rule: StoredRule) -> dict[str, Any]:
    """Return what the audit says about a rule."""
    return {
        "on": list(rule.on),
        "to": list(rule.to),
        "schedule": rule.schedule,
        "tag": rule.tag,
        "recovery": rule.recovery,
        "muted_until": None if rule.muted_until is None else write_instant(rule.muted_until),
        "managed_by": rule.managed_by,
    }


def channel_facts(channel: StoredChannel, address: str) -> dict[str, Any]:
    """Return what the audit says about a channel. ``hidden`` removes the secrets from it."""
    return {
        "kind": channel.kind,
        "address": address,
        "url": channel.url,
        "secret": channel.secret,
        "managed_by": channel.managed_by,
    }


def window_facts(window: StoredWindow) -> dict[str, Any]:
    """Return what the audit says about a window."""
    return {
        "starts_at": write_instant(window.starts_at),
        "until": write_instant(window.ends_at),
        "schedule": window.schedule,
        "tag": window.tag,
        "note": window.note,
    }


def hidden(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts with ``***`` for the URL and the secret of a channel: either may give access."""
    return {
        name: HIDDEN if name in ("url", "secret") and value is not None else value
        for name, value in facts.items()
    }


def _texts(value: object, field: str, most: int, example: str) -> list[str]:
    given: Any = [value] if isinstance(value, str) else value if isinstance(value, Iterable) else [None]
    texts = list(given)
    if not all(isinstance(each, str) for each in texts):
        raise InvalidValue(
            f"{field} {shown(value)} is not a list of texts",
            field=field,
            value=value,
            hint=f'write {field}=["{example}"]',
        )
    if not texts:
        missing = "conditions" if field == "on" else "channels"
        raise InvalidValue(
            f"{field} is empty: a rule without {missing} announces nothing",
            field=field,
            value=value,
            hint=f'write {field}=["{example}"]',
        )
    if len(texts) > most:
        raise InvalidValue(
            f"{field} has {len(texts)} items", field=field, value=value, hint=f"at most {most}"
        )
    return texts
