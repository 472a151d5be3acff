"""The stored form of alerts: the kinds, keys and bodies of their records. Pure.

| kind | key | written by | content |
| --- | --- | --- | --- |
| ``alert_rule`` | scope and name | users | ``StoredRule`` |
| ``alert_channel`` | scope and name | users | ``StoredChannel``, with its secrets |
| ``alert_window`` | scope and name | users | ``StoredWindow``; expires when it is over |
| ``alert_signal`` | the oldest first | nodes, with the end or the fire | ``Signal``; expires |
| ``alert_turn`` | ``turn`` | the process that evaluates conditions now | see ``alerts/watch.py`` |
| ``alert_incident`` | a hash of rule, condition and subject | the watch | ``StoredIncident`` |
| ``alert_past`` | the newest first | the watch, when an incident ends | ``StoredIncident``; expires |
| ``alert_pending`` | the delivery's id | the watch; claimed and changed by a sender | ``StoredDelivery`` |
| ``alert_log`` | the delivery's id, the newest first | a sender, at the end | ``StoredDelivery``; expires |

Every record has the tenant of its subject; ``default`` if it belongs to none or to all. The scope in a key
keeps rules of all tenants apart from those of the tenant ``default``.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, TypeAlias, TypeVar

import msgspec

from evenbeat.core.alerts import Announcement, ChannelKind, DeliveryState, Message, SubjectKind
from evenbeat.core.ids import first_key_of
from evenbeat.core.instants import FIRST, LAST, Instant
from evenbeat.core.records import Record

RULE, CHANNEL, WINDOW = "alert_rule", "alert_channel", "alert_window"
SIGNAL, TURN = "alert_signal", "alert_turn"
INCIDENT, PAST = "alert_incident", "alert_past"
PENDING, LOG = "alert_pending", "alert_log"

KEPT = 30 * 86_400_000
"""How long ended incidents and deliveries are kept, in milliseconds."""
SIGNAL_KEPT = 7 * 86_400_000
"""How long a signal waits for a process that evaluates it. Without any rule, nothing does."""
CalendarInstant: TypeAlias = Annotated[Instant, msgspec.Meta(ge=FIRST, le=LAST)]
"""A body with another one was damaged: no date can be made of it."""
ALL, OWN = "all", "own"
DEFAULT_TENANT = "default"


class StoredRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a rule."""

    on: tuple[str, ...]
    to: tuple[str, ...]
    schedule: str | None = None
    tag: str | None = None
    recovery: bool = True
    muted_until: CalendarInstant | None = None
    managed_by: str = "api"
    revision: int = 1
    created_at: CalendarInstant = 0
    updated_at: CalendarInstant = 0


class StoredChannel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a channel. ``url`` and ``secret`` may name a variable: ``env:EVENBEAT_SECRET_…``."""

    kind: ChannelKind
    url: str
    secret: str | None = None
    """Of a webhook: the key of its signature."""
    managed_by: str = "api"
    revision: int = 1
    created_at: CalendarInstant = 0
    updated_at: CalendarInstant = 0

    def __repr__(self) -> str:
        # A traceback, or a log of one, must not have the secrets.
        return f"StoredChannel(kind={self.kind!r}, revision={self.revision})"


class StoredWindow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a maintenance window."""

    starts_at: CalendarInstant
    ends_at: CalendarInstant
    schedule: str | None = None
    tag: str | None = None
    note: str = ""
    created_by: str = ""


class Signal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that a rule may announce, recorded in the same step in which it happened."""

    kind: str
    """``failed``, ``succeeded`` or ``cancelled`` of a run that ended; ``missed`` of ticks."""
    at: CalendarInstant
    tenant: str
    schedule: str | None = None
    task: str = ""
    run: str | None = None
    tick: CalendarInstant | None = None
    """Of ``missed``: the last of the ticks."""
    count: int = 1
    reason: str | None = None
    """Of ``missed``: the ledger's reason."""
    error: str | None = None
    """The last line of the error."""
    tags: str = ""
    """Of ``missed``: the tags of the schedule. Runs do not carry the tags of their schedule."""
    took: Annotated[int, msgspec.Meta(ge=0, le=LAST)] | None = None


class Owed(msgspec.Struct, frozen=True):
    """An announcement that an incident asks for, and whose deliveries may not be written yet."""

    announcement: Announcement
    level: int
    """Of an incident that begins: 1. Each number of a ``failing`` condition that is reached adds one."""
    at: CalendarInstant
    """When the announced thing happened."""


class StoredIncident(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of an incident."""

    id: str
    rule: str
    scope: str
    """``all`` or ``own``: the scope of the rule."""
    condition: str
    subject_kind: SubjectKind
    subject: str
    opened_at: CalendarInstant
    changed_at: CalendarInstant
    """When the last thing happened that belongs to it, such as another failure."""
    reason: str
    tenant: str | None = None
    schedule: str | None = None
    task: str | None = None
    tags: str = ""
    run: str | None = None
    tick: CalendarInstant | None = None
    failures: int = 0
    signals: tuple[str, ...] = ()
    """The keys of the newest signals that it counts, so that a repeated signal counts once."""
    last_success: CalendarInstant | None = None
    error: str | None = None
    why: str | None = None
    announced: tuple[Announcement, ...] = ()
    owed: tuple[Owed, ...] = ()
    """To announce, in this order. The watch writes the deliveries, and then moves these to ``announced``."""
    muted_by: str | None = None
    closed_at: CalendarInstant | None = None


class StoredDelivery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a delivery."""

    message: Message
    channel: str
    scope: str
    created_at: CalendarInstant
    state: DeliveryState = "pending"
    tries: int = 0
    next_at: CalendarInstant = 0
    """Not before this instant."""
    claimed_by: str | None = None
    claimed_until: CalendarInstant = 0
    """A sender that has not finished until then is presumed dead: another one sends it again."""
    last_try_at: CalendarInstant | None = None
    error: str | None = None


_Body = TypeVar("_Body", StoredRule, StoredChannel, StoredWindow, Signal, StoredIncident, StoredDelivery)

# Made at import: see the end of core/records.py.
_decoders = {
    kind: msgspec.json.Decoder(kind)
    for kind in (StoredRule, StoredChannel, StoredWindow, Signal, StoredIncident, StoredDelivery)
}


def read_body(record: Record, kind: type[_Body]) -> _Body | None:
    """Return the body of a record; None if it was damaged."""
    try:
        return _decoders[kind].decode(record.body)  # type: ignore[return-value]  # the decoder of this very kind
    except (msgspec.MsgspecError, UnicodeError):
        return None


def owner_of(tenant: str | None) -> str:
    """Return the tenant of the record of a rule, channel or window; of one for all tenants: ``default``."""
    return DEFAULT_TENANT if tenant is None else tenant


def scoped_key(tenant: str | None, name: str) -> str:
    """Return the key of a rule, channel or window."""
    return f"{ALL if tenant is None else OWN}/{name}"


def read_scoped_key(record: Record) -> tuple[str | None, str]:
    """Return the owner (None: all tenants) and the name of a rule, channel or window."""
    scope, _, name = record.key.partition("/")
    return (None if scope == ALL else record.tenant), name


def incident_id(rule_key: str, owner: str, condition: str, subject: str, begins_with: str) -> str:
    """Return the id of an incident: the same for every process that sees it begin with the same thing."""
    text = "\0".join((owner, rule_key, condition, subject, begins_with))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]


def incident_key(incident: StoredIncident, family: str) -> str:
    """Return the key of an incident while it is open. ``family`` is what conditions with one incident share:
    ``failed`` for both ``failed`` and ``failing``."""
    parts = (incident.scope, incident.rule, family, incident.subject_kind, incident.subject)
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:32]


def past_key(incident: StoredIncident) -> str:
    """Return the key of an incident that has ended: the newest sort first."""
    return f"{first_key_of(incident.opened_at)}{incident.id}"


def signal_key(at: Instant, *identity: object) -> str:
    """Return the key of a signal: the oldest sort first."""
    text = "\0".join(map(str, identity))
    return f"{max(at, 0):012x}{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:16]}"


def delivery_id(subject: str, announcement: str, channel: str, at: Instant) -> str:
    """Return the id of a delivery: the newest sort first. ``subject`` is the incident's id, or the run's."""
    text = "\0".join((subject, announcement, channel))
    return f"{first_key_of(at)}{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:24]}"
