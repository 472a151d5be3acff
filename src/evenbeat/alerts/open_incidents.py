"""The open incidents of the store during one turn: read once, changed by compare-and-set, announced."""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeAlias

from evenbeat.core.alerts import Message
from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record
from evenbeat.rules.alert_records import (
    INCIDENT,
    KEPT,
    PAST,
    PENDING,
    StoredDelivery,
    StoredIncident,
    incident_key,
    owner_of,
    past_key,
    read_body,
)
from evenbeat.rules.alert_rules import Rule, Subject, family_of
from evenbeat.rules.incidents import deliveries_of, has_begun, with_deliveries_written
from evenbeat.stores.base import Store

MOST_OPEN = 500
"""How many incidents of one rule may be open. A fault that concerns thousands of schedules must not send
thousands of messages."""

_log = logging.getLogger("evenbeat.alerts.watch")

Key: TypeAlias = tuple[str, str]
"""(tenant, key) of the record of an incident."""
RuleKey: TypeAlias = tuple[str, str, str]


class TurnLost(Exception):
    """Another process changes the same incidents: it has the turn."""


class OpenIncidents:
    """The stored incidents. ``put`` and ``announce`` raise ``TurnLost`` if another process was faster."""

    def __init__(self, store: Store, check: Callable[[], None]) -> None:
        self._store = store
        self._check = check
        """Raises ``TurnLost`` if this turn has taken too long."""
        self._stored: dict[Key, tuple[Record, StoredIncident]] = {}
        for record in store.find_records(INCIDENT):
            incident = read_body(record, StoredIncident)
            # One with the key of another subject was edited by hand, or copied.
            if incident is None or _key_of(incident) != (record.tenant, record.key):
                store.delete_record(INCIDENT, record.tenant, record.key, record.version)
            else:
                self._stored[record.tenant, record.key] = record, incident
        self._open = Counter(rule_key(incident) for _, incident in self._stored.values())
        self._full: set[RuleKey] = set()
        """Rules that have reached ``MOST_OPEN`` in this turn."""

    def __iter__(self) -> Iterator[StoredIncident]:
        return iter([incident for _, incident in self._stored.values()])

    def get(self, rule: Rule, family: str, subject: Subject) -> StoredIncident | None:
        """Return the incident of a rule about a subject."""
        like = StoredIncident(
            id="",
            rule=rule.name,
            scope=rule.scope,
            condition="",
            subject_kind=subject.kind,
            subject=subject.name,
            opened_at=0,
            changed_at=0,
            reason="",
        )
        found = self._stored.get((owner_of(subject.tenant), incident_key(like, family)))
        return None if found is None else found[1]

    def put(self, incident: StoredIncident) -> bool:
        """Write an incident; return False if it is not to be opened."""
        key = _key_of(incident)
        record, before = self._stored.get(key, (None, None))
        if incident == before:
            return True
        self._check()
        if before is None and not self._may_open(incident):
            return False
        self._write(key, incident, None if record is None else record.version)
        return True

    def _may_open(self, incident: StoredIncident) -> bool:
        rule = rule_key(incident)
        if self._open[rule] >= MOST_OPEN:
            if rule not in self._full:
                fields = {"component": "alerts", "rule": incident.rule, "incidents": MOST_OPEN}
                _log.error("a rule has too many open incidents; further ones are not announced", extra=fields)
            self._full.add(rule)
            return False
        # A paused process may see the beginning of an incident that has ended meanwhile.
        if self._is_over(incident):
            return False
        self._open[rule] += 1
        return True

    def _write(self, key: Key, incident: StoredIncident, expect: int | None) -> None:
        # Never the same version twice: the next incident of this key must not match a late write.
        version = secrets.randbits(53)
        record = Record(kind=INCIDENT, tenant=key[0], key=key[1], body=encode(incident), version=version)
        if not self._store.put_record(record, expect):
            raise TurnLost
        self._stored[key] = record, incident

    def announce(
        self, incident: StoredIncident, rule: Rule | None, message: Callable[..., Message], now: Instant
    ) -> None:
        """Write the deliveries that a stored incident owes, then take note of them. Remove it if it ended.

        A process that dies in between leaves an incident that still owes them. The next turn writes them
        again, under the same ids.
        """
        if not incident.owed and incident.closed_at is None:
            return
        tenant, key = _key_of(incident)
        if incident.closed_at is not None and self._is_over(incident):
            # Everything is written, but for this.
            self._remove(tenant, key)
            return
        for delivery, owed, channel in () if rule is None else deliveries_of(incident, rule):
            body = StoredDelivery(
                message=message(incident, owed.announcement, delivery),
                channel=channel,
                scope=incident.scope,
                created_at=now,
            )
            self._store.put_record(Record(kind=PENDING, tenant=tenant, key=delivery, body=encode(body)))
        after = with_deliveries_written(incident)
        if after.closed_at is None:
            self._write((tenant, key), after, self._stored[tenant, key][0].version)
            return
        if has_begun(after):
            past = Record(
                kind=PAST, tenant=tenant, key=past_key(after), body=encode(after), expires=now + KEPT
            )
            self._store.put_record(past)
        self._remove(tenant, key)

    def _is_over(self, incident: StoredIncident) -> bool:
        """Return whether there is a record of the end of this very incident."""
        return self._store.get_record(PAST, owner_of(incident.tenant), past_key(incident)) is not None

    def _remove(self, tenant: str, key: str) -> None:
        record, _ = self._stored.pop((tenant, key))
        self._store.delete_record(INCIDENT, tenant, key, record.version)


def rule_key(incident: StoredIncident) -> RuleKey:
    """Return ``Rule.key`` of the rule of an incident."""
    owner = None if incident.scope == "all" else incident.tenant
    return owner_of(owner), incident.scope, incident.rule


def _key_of(incident: StoredIncident) -> Key:
    return owner_of(incident.tenant), incident_key(incident, family_of(incident.condition))
