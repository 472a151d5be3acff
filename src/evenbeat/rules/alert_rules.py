"""Which subjects a rule or a maintenance window covers, and what a rule asks for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

from evenbeat.core.alerts import ConditionKind, SubjectKind
from evenbeat.core.instants import Instant
from evenbeat.core.records import Record
from evenbeat.errors import InvalidValue
from evenbeat.rules.alert_records import (
    ALL,
    OWN,
    StoredRule,
    StoredWindow,
    owner_of,
    read_body,
    read_scoped_key,
)
from evenbeat.rules.conditions import Condition, read_condition

FAILED = "failed"
"""The family of ``failed`` and ``failing``: within a rule, a subject has one incident for both."""


class Subject(NamedTuple):
    """What a condition is about, with what rules and windows compare."""

    kind: SubjectKind
    name: str
    tenant: str | None = None
    """None if it belongs to no tenant: a queue, a node, the store."""
    schedule: str | None = None
    task: str | None = None
    tags: str = ""
    is_paused: bool = False

    def matches(self, owner: str | None, schedule: str | None, tag: str | None) -> bool:
        """Return whether a filter selects the subject. ``owner`` is the tenant of the filter; None: all."""
        return (
            (owner is None or owner == self.tenant)
            and (schedule is None or schedule == self.schedule)
            and (tag is None or tag in self.tags.split())
        )


class Rule(NamedTuple):
    """A rule with its conditions read."""

    owner: str | None
    name: str
    conditions: tuple[Condition, ...]
    body: StoredRule

    @property
    def scope(self) -> str:
        return ALL if self.owner is None else OWN

    @property
    def key(self) -> tuple[str, str, str]:
        """Identifies the rule: the tenant of its record, its scope and its name."""
        return owner_of(self.owner), self.scope, self.name

    def covers(self, subject: Subject) -> bool:
        return subject.matches(self.owner, self.body.schedule, self.body.tag)

    def of_kind(self, *kinds: ConditionKind) -> tuple[Condition, ...]:
        """Return its conditions of these kinds."""
        return tuple(condition for condition in self.conditions if condition.kind in kinds)

    @property
    def failures(self) -> tuple[int, ...]:
        """The numbers of failures in a row at which it announces something; empty if it never does."""
        found = self.of_kind("failed", "failing")
        return tuple(sorted({1 if each.kind == "failed" else each.number for each in found}))

    def condition_of(self, family: str) -> str | None:
        """Return the text of the condition that opens incidents of a family; None if it has none any more."""
        if family != FAILED:
            return family if any(str(condition) == family for condition in self.conditions) else None
        first = min(self.of_kind("failed", "failing"), key=lambda each: each.number, default=None)
        return None if first is None else str(first)


class RuleIndex:
    """Rules by their filters, so that a storm of failures does not compare each one with all rules."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.by_key = {rule.key: rule for rule in rules}
        self._by_filter: dict[tuple[str | None, str | None], list[Rule]] = {}
        for rule in self.by_key.values():
            self._by_filter.setdefault((rule.owner, rule.body.schedule), []).append(rule)

    def covering(self, subject: Subject) -> Iterator[Rule]:
        """Yield the rules that cover a subject."""
        owners, schedules = (None, subject.tenant), (None, subject.schedule)
        for each in dict.fromkeys(product(owners, schedules)):
            yield from (rule for rule in self._by_filter.get(each, ()) if rule.covers(subject))


class Window(NamedTuple):
    """A maintenance window."""

    owner: str | None
    name: str
    body: StoredWindow

    def covers(self, subject: Subject, now: Instant) -> bool:
        is_open = self.body.starts_at <= now < self.body.ends_at
        return is_open and subject.matches(self.owner, self.body.schedule, self.body.tag)


def family_of(condition: str) -> str:
    """Return what the conditions with one incident share: see ``FAILED``."""
    return FAILED if condition.partition(":")[0] in ("failed", "failing") else condition


def read_rules(records: Iterable[Record]) -> tuple[Rule, ...]:
    """Read rules; leave out damaged ones, and conditions that this version does not know."""
    found = []
    for record in records:
        body = read_body(record, StoredRule)
        if body is None:
            continue
        conditions = []
        for text in body.on:
            try:
                conditions.append(read_condition(text))
            except InvalidValue:
                continue
        if conditions:
            found.append(Rule(*read_scoped_key(record), tuple(conditions), body))
    return tuple(found)


def read_windows(records: Iterable[Record]) -> tuple[Window, ...]:
    """Read maintenance windows; leave out damaged ones."""
    bodies = ((record, read_body(record, StoredWindow)) for record in records)
    return tuple(Window(*read_scoped_key(record), body) for record, body in bodies if body is not None)


def muted_by(rule: Rule, subject: Subject, windows: Iterable[Window], now: Instant) -> str | None:
    """Return why the rule announces nothing about a subject now: ``paused``, ``muted``, or the name of a
    maintenance window; None if it announces."""
    if subject.is_paused:
        return "paused"
    if rule.body.muted_until is not None and now < rule.body.muted_until:
        return "muted"
    return next((window.name for window in windows if window.covers(subject, now)), None)
