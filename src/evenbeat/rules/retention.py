"""Retention: which ended runs are deleted, and when. Pure.

A rule is about a tenant and a state, about one of them, or about all ended runs. For the age of a run, the
most specific rule counts: that of its tenant and state, else of its tenant, else of its state, else the one
for all runs, else the setting of the node. ``most`` is not inherited: each rule with a ``most`` bounds the
runs that it names, and a run is deleted as soon as any rule says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from evenbeat.core.durations import write_duration
from evenbeat.core.instants import Instant
from evenbeat.core.records import Record
from evenbeat.core.retention import ENDED_STATES, SHORTEST_KEEP, EndedState
from evenbeat.rules.code_only import CODE, HELD, MEMORY

KIND = "retention"
_EVERY_TENANT = "default"
"""The store keeps rules for all tenants with the default tenant."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A retention rule."""

    tenant: str | None = None
    state: EndedState | None = None
    keep: int | None = None
    """Milliseconds."""
    most: int | None = None


class StoredRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a rule's record. The record's tenant and key say what the rule is about."""

    keep: int | None = None
    most: int | None = None
    updated_at: Instant = 0
    updated_by: str = ""


class Sweep(NamedTuple):
    """Ended runs to delete."""

    before: Instant
    """Runs that ended earlier are deleted."""
    states: tuple[EndedState, ...]
    tenant: str | None = None
    """None: of all tenants except ``spared``."""
    spared: tuple[str, ...] = ()
    """Tenants whose own rules decide."""
    age: int = 0
    """How long such runs are kept, in milliseconds."""


def record_place(tenant: str | None, state: EndedState | None) -> tuple[str, str]:
    """Return the (tenant, key) of a rule's record."""
    return tenant or _EVERY_TENANT, f"{'all' if tenant is None else 'own'}/{state or 'any'}"


def read_rule(record: Record) -> tuple[Rule, StoredRule] | None:
    """Return the rule of a record; None if the record was damaged or a later version wrote it."""
    scope, _, state = record.key.partition("/")
    if scope not in ("all", "own") or state not in ("any", *ENDED_STATES):
        return None
    try:
        stored = msgspec.json.decode(record.body, type=StoredRule)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    if any(number is not None and number <= 0 for number in (stored.keep, stored.most)):
        return None  # edited by hand: such a rule would delete everything
    tenant = None if scope == "all" else record.tenant
    kept: EndedState | None = None if state == "any" else state  # type: ignore[assignment]  # checked above
    return Rule(tenant=tenant, state=kept, keep=stored.keep, most=stored.most), stored


def read_rules(records: Iterable[Record]) -> list[Rule]:
    """Return the rules of records, without those that can't be read."""
    return [found[0] for record in records if (found := read_rule(record)) is not None]


def deciding_rule(rules: Sequence[Rule], tenant: str, state: EndedState) -> Rule | None:
    """Return the rule that says how long runs of a tenant and state are kept; None: the node's setting."""
    ages = {(rule.tenant, rule.state): rule for rule in rules if rule.keep is not None}
    for place in ((tenant, state), (tenant, None), (None, state), (None, None)):
        if place in ages:
            return ages[place]
    return None


def sweeps(rules: Sequence[Rule], default: int, now: Instant) -> list[Sweep]:
    """Return the sweeps that delete runs by their age: each ended run is in exactly one of them."""
    ages = {(rule.tenant, rule.state): rule.keep for rule in rules if rule.keep is not None}
    tenants = sorted({tenant for tenant, _ in ages if tenant is not None})
    grouped: dict[tuple[str | None, int, tuple[str, ...]], list[EndedState]] = defaultdict(list)
    for state in ENDED_STATES:
        spared = []
        for tenant in tenants:
            own = ages.get((tenant, state), ages.get((tenant, None)))
            if own is not None:
                spared.append(tenant)
                grouped[tenant, own, ()].append(state)
        shared = ages.get((None, state), ages.get((None, None), default))
        grouped[None, shared, tuple(spared)].append(state)
    return [
        Sweep(now - age, tuple(states), tenant, spared, age)
        for (tenant, age, spared), states in sorted(grouped.items(), key=lambda item: item[0][0] or "")
    ]


class Held(NamedTuple):
    """Runs that every purge keeps for longer than a rule may say."""

    mark: str
    """How ``fired_by`` of these runs ends."""
    before: Instant
    """Of these runs, a purge deletes only those that ended before this instant."""


def held_runs(now: Instant, default: int = 0) -> tuple[Held, ...]:
    """Return which ended runs no rule may delete yet: those of ticks that were planned in memory.

    Only the id of such a run keeps its tick single. A node that was stopped may still fire a tick of a
    schedule that is in the code only. A row may still fire a tick that a node fired in a fallback, when the
    row can be read again: these runs are kept for ``default`` ms, as if there were no rule.
    """
    return Held(CODE, now - HELD), Held(MEMORY, now - max(HELD, default))


def newest_counted(last: Instant, now: Instant) -> Instant:
    """Return before which instant a rule that bounds the number of runs deletes them; the newest run that is
    too many ended at ``last``. Runs of the last minute stay, as with every rule."""
    return min(last, now - SHORTEST_KEEP)


def counted(rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules that bound the number of runs."""
    return [rule for rule in rules if rule.most is not None]


def states_of(rule: Rule) -> tuple[EndedState, ...]:
    return ENDED_STATES if rule.state is None else (rule.state,)


def words(rule: Rule) -> str:
    """Return a rule as a sentence, and which rules it overrides."""
    runs = "ended runs" if rule.state is None else f"{rule.state} runs"
    whose = f"{runs} of all tenants" if rule.tenant is None else f"{runs} of tenant {rule.tenant}"
    kept = []
    if rule.keep is not None:
        kept.append(f"for {write_duration(rule.keep)} after their end")
    if rule.most is not None:
        one = rule.most == 1
        together = " of all tenants together" if rule.tenant is None else ""
        kept.append(f"at most the {'newest one' if one else f'newest {rule.most:,}'}{together}")
    sentence = f"Keeps {whose} {' and '.join(kept)}."
    if rule.keep is None:
        return f"{sentence} Their age is for other rules, or the node's setting."
    return f"{sentence} {_overridden_by(rule)}"


def _overridden_by(rule: Rule) -> str:
    if rule.tenant is not None and rule.state is not None:
        return "Overrides all other rules for their age."
    if rule.tenant is not None:
        return "A rule for the tenant and a state overrides it for that state."
    if rule.state is not None:
        return "Rules for a tenant override it for the runs of that tenant."
    return "Replaces the node's setting; rules for a tenant or a state override it for their runs."
