"""Signals: what alert rules may announce, recorded in the same step in which it happens.

A run that ends, or a tick that is skipped, leaves a record for the watch (``alerts/watch.py``). The record is
written with the end or the fire, so a process that dies loses neither or both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from evenbeat.core.alerts import ConditionKind
from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record, RunRecord, Skipped, Transition
from evenbeat.rules.alert_records import RULE, SIGNAL, SIGNAL_KEPT, Signal, signal_key
from evenbeat.rules.alert_rules import Rule, read_rules
from evenbeat.rules.error_groups import error_line
from evenbeat.rules.firing import Planned
from evenbeat.stores.base import Store

_LONGEST_ERROR = 500
_OTHER_ENDS = ("succeeded", "cancelled")
_MISSED = ("late", "limit")
"""The ledger's reasons of ticks that count as missed."""


def stored_rules(store: Store) -> tuple[Rule, ...]:
    """Read the alert rules of all tenants."""
    return read_rules(store.find_records(RULE))


def end_signal(run: RunRecord, state: str, error: str | None, at: Instant, took: int | None = None) -> Signal:
    """Return the signal of a run that has ended."""
    return Signal(
        kind=state,
        at=at,
        tenant=run.tenant,
        schedule=run.schedule,
        task=run.task,
        run=run.id,
        tick=run.tick,
        error=None if error is None else error_line(error)[:_LONGEST_ERROR],
        took=took,
    )


def end_key(run: RunRecord, attempt: int) -> str:
    """Return the key of the signal of a run that ends, which has this attempt afterwards.

    By its start: the row of a run may say another end than the node that left the signal, whose clock is a
    bit ahead. So a signal that is made from the row has the same key.
    """
    return signal_key(run.created_at if run.started_at is None else run.started_at, run.id, attempt)


class Signals:
    """Says which ends and fires leave a signal, by the rules that this process knows. Without a rule that
    asks for one, it is false, and costs its callers nothing else.

    A rule by tag asks for the failures of its whole tenant: a run does not carry the tags of its schedule.
    """

    def __init__(self, rules: Iterable[Rule] = (), on_written: Callable[[], None] = lambda: None) -> None:
        self._on_written = on_written
        """Called after the store has taken signals."""
        self._is_any_made = False
        self.use(rules)

    def use(self, rules: Iterable[Rule]) -> None:
        """Replace the rules."""
        rules = tuple(rules)
        self._failed = _Filter(rules, "failed", "failing", "runs")
        self._ended = _Filter(rules, "runs")
        self._missed = _Filter(rules, "missed")
        self._is_asked = bool(self._failed) or bool(self._missed)

    def __bool__(self) -> bool:
        return self._is_asked

    def wants(self, run: RunRecord, transition: Transition) -> bool:
        """Return whether a rule asks for the end of a run. False if the run goes on."""
        state = transition.state
        if state == "failed":
            return self._failed.selects(run.tenant, run.schedule)
        return state in _OTHER_ENDS and self._ended.selects(run.tenant, run.schedule)

    def with_end(
        self, run: RunRecord, transition: Transition, now: Instant, took: int | None = None
    ) -> Transition:
        """Return the transition with the signal that the end of its run leaves, if a rule asks for it."""
        if not self.wants(run, transition):
            return transition
        error = transition.error if isinstance(transition.error, str) else None
        signal = end_signal(run, str(transition.state), error, now, took)
        # The end of a flow counts its attempt up.
        record = self._record(signal, end_key(run, run.attempt + transition.renews))
        return replace(transition, records=(*transition.records, record))

    def with_missed(self, planned: Planned) -> Planned:
        """Return the plan with the signals that its skipped ticks leave, if a rule asks for them."""
        schedule = planned.schedule
        missed = [row for row in planned.skipped if row.reason in _MISSED]
        if not missed or not self._missed.selects(schedule.tenant, schedule.name):
            return planned
        made = tuple(self._missed_record(planned, row) for row in missed)
        return planned._replace(records=planned.records + made)

    def _missed_record(self, planned: Planned, row: Skipped) -> Record:
        signal = Signal(
            kind="missed",
            at=row.recorded_at,
            tenant=row.tenant,
            schedule=row.schedule,
            task=planned.schedule.task,
            tick=row.last,
            count=row.count,
            reason=row.reason,
            tags=planned.schedule.tags,
        )
        return self._record(signal, signal_key(signal.at, row.schedule, row.generation, row.last))

    def note_written(self) -> None:
        """Take note that the store has taken the signals that were made."""
        if self._is_any_made:
            self._is_any_made = False
            self._on_written()

    def _record(self, signal: Signal, key: str) -> Record:
        self._is_any_made = True
        return Record(
            kind=SIGNAL, tenant=signal.tenant, key=key, body=encode(signal), expires=signal.at + SIGNAL_KEPT
        )


class _Filter:
    """The subjects of rules with some kinds of conditions."""

    def __init__(self, rules: Iterable[Rule], *kinds: ConditionKind) -> None:
        asking = [rule for rule in rules if rule.of_kind(*kinds)]
        whole = [rule.owner for rule in asking if rule.body.schedule is None]
        self._is_for_all = None in whole
        self._tenants = frozenset(whole)
        self._schedules = frozenset((rule.owner, rule.body.schedule) for rule in asking)

    def __bool__(self) -> bool:
        return bool(self._schedules)

    def selects(self, tenant: str, schedule: str | None) -> bool:
        if self._is_for_all or tenant in self._tenants:
            return True
        if schedule is None:
            return False
        return (tenant, schedule) in self._schedules or (None, schedule) in self._schedules
