"""Alerts as users write and see them: rules, channels, maintenance windows, incidents, deliveries.

A *rule* says which conditions of which schedules are announced on which channels. A condition that begins to
hold for a subject opens an *incident*: it is announced once, however many nodes see it, and ends when the
condition no longer holds. Each announcement on one channel is a *delivery*.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal, TypeAlias, get_args

import msgspec

ConditionKind: TypeAlias = Literal[
    "failed", "failing", "late", "missed", "stuck", "queue", "no_node", "node_lost", "store_unsafe", "runs"
]
CONDITION_KINDS: tuple[ConditionKind, ...] = get_args(ConditionKind)
ChannelKind: TypeAlias = Literal["webhook", "apprise", "sentry", "healthchecks"]
CHANNEL_KINDS: tuple[ChannelKind, ...] = get_args(ChannelKind)
SubjectKind: TypeAlias = Literal["schedule", "task", "run", "queue", "node", "store"]
Announcement: TypeAlias = Literal["opened", "escalated", "recovered", "run", "test"]
"""Why something is announced: an incident began, its failures reached the number of a ``failing`` condition,
it ended, a run ended (condition ``runs``), or somebody tests the channel."""
DeliveryState: TypeAlias = Literal["pending", "sent", "failed"]
AnnouncementState: TypeAlias = Literal["sent", "waiting", "given_up"]
"""Of an announcement on all its channels: ``given_up`` if it was given up on one of them, else ``waiting`` if
one has not taken it yet."""

# Conditions about machines that tenants share: only rules of all tenants may have them.
SHARED_CONDITIONS: frozenset[ConditionKind] = frozenset(("queue", "node_lost", "store_unsafe"))

MOST_CONDITIONS = 10
MOST_CHANNELS = 10
"""How many conditions, and how many channels, one rule may name."""
MOST_RULES = 500
"""How many rules, channels, or windows a tenant may have."""
LONGEST_NOTE = 1_000
"""How many characters the note of a window may have."""


class AlertRule(msgspec.Struct, frozen=True, kw_only=True):
    """Which conditions are announced, of which schedules, on which channels."""

    name: str
    tenant: str | None
    """The tenant whose schedules it covers, and who owns it; None: all tenants."""
    on: tuple[str, ...]
    """Conditions, in their canonical text: ``failed``, ``failing:3``, ``late:10m``."""
    to: tuple[str, ...]
    """Names of channels with the same owner."""
    schedule: str | None
    """Only this schedule."""
    tag: str | None
    """Only schedules with this tag. Without ``schedule`` and ``tag``: all, and runs without a schedule."""
    recovery: bool
    """Whether the end of an announced incident is announced, too."""
    muted_until: datetime | None
    """Announces nothing before this time. An incident that is still open then is announced then."""
    managed_by: str
    """``code``, ``config`` or ``api``, as for schedules."""
    revision: int
    """Counts the changes."""


class AlertChannel(msgspec.Struct, frozen=True, kw_only=True):
    """Where announcements go. Secrets are never shown."""

    name: str
    tenant: str | None
    kind: ChannelKind
    address: str
    """The URL without user, password, path and query, any of which may be a secret."""
    managed_by: str
    revision: int


class MaintenanceWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which the alerts of some schedules are muted. It deletes itself when it is over."""

    name: str
    tenant: str | None
    starts_at: datetime
    ends_at: datetime
    schedule: str | None
    tag: str | None
    note: str
    created_by: str


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that holds, or held, for a subject."""

    id: str
    rule: str
    owner: str | None
    """The tenant that owns the rule; None: all tenants."""
    tenant: str | None
    """The tenant of the subject; None if the subject belongs to no tenant."""
    condition: str
    """In its canonical text."""
    subject_kind: SubjectKind
    subject: str
    """The name of the schedule, task, queue or node, or the id of the run."""
    run: str | None
    """The id of the run with which it began, if there is one."""
    tick: datetime | None
    opened_at: datetime
    failures: int
    """How many runs have failed in a row, of ``failed`` and ``failing``."""
    last_success: datetime | None
    error: str | None
    """The last line of the last error."""
    reason: str
    """What happened, in a sentence."""
    announced: tuple[Announcement, ...]
    """What has been announced so far; empty while the incident is muted."""
    muted_by: str | None
    """Why nothing is announced now: ``paused``, ``muted``, or the name of a maintenance window."""
    closed_at: datetime | None
    delivery: AnnouncementState | None = None
    """What became of the newest announcement. None if there is none among the newest 500 deliveries."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One announcement on one channel."""

    id: str
    """The same at each try: a receiver that gets it twice can tell by it."""
    incident: str | None
    rule: str | None
    owner: str | None
    """The tenant that owns the rule and the channel; None: all tenants."""
    tenant: str | None
    """The tenant of the subject; None if the subject belongs to no tenant."""
    channel: str
    announcement: Announcement
    title: str
    state: DeliveryState
    tries: int
    created_at: datetime
    last_try_at: datetime | None
    next_try_at: datetime | None
    """Of a pending one."""
    error: str | None
    """Why the last try failed; without secrets."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What a channel sends. Plain text without markup: each channel escapes it for its own format."""

    id: str
    """The id of the delivery."""
    announcement: Announcement
    title: str
    """One line."""
    lines: tuple[str, ...]
    """What happened, since when, the last success, the sentence of ``why``, the link."""
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    """When the announced thing happened, by the store's clock."""
    link: str | None
    incident: str | None = None
    rule: str | None = None
    condition: str | None = None
    tenant: str | None = None
    subject_kind: SubjectKind | None = None
    subject: str | None = None
    schedule: str | None = None
    task: str | None = None
    run: str | None = None
    tick: datetime | None = None
    failures: int | None = None
    last_success: datetime | None = None
    error: str | None = None
    why: str | None = None
    outcome: Literal["succeeded", "failed", "cancelled"] | None = None
    """Of an announced run: how it ended."""
    duration: timedelta | None = None
    """Of an announced run."""
    trigger: str | None = None
    """The canonical text of the schedule's trigger: monitors that expect check-ins need it."""
