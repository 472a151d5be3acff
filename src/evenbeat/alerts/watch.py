"""The watch: evaluates alert rules, one process at a time, and decides what is announced.

Every process that has a node, and the web process, has a watch. Together they take turns. A turn

1. reads the signals that nodes left, and counts each in the incidents of the rules that cover it,
2. asks the store about conditions that leave no signal, if a rule has any,
3. reviews the open incidents: some have ended, some are no longer muted.

Each change of an incident is a compare-and-set, and deliveries follow from the stored incident. So a process
may die between any two writes, and two processes may work at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from evenbeat.alerts.evaluation import Announcer, Evaluation
from evenbeat.alerts.facts import Facts, TaskSuccesses
from evenbeat.alerts.open_incidents import OpenIncidents, TurnLost
from evenbeat.alerts.polling import Poller
from evenbeat.alerts.turns import Turn, leave_nodes, take_turn
from evenbeat.core.clocks import steady_clock
from evenbeat.core.instants import Instant
from evenbeat.node.signals import stored_rules
from evenbeat.rules.alert_records import INCIDENT
from evenbeat.rules.alert_rules import Rule
from evenbeat.stores.base import Store

TURN_EVERY = 5_000
"""Milliseconds between the turns of all processes together."""
URGENT_AFTER = 1_000
"""A process that has just left a signal waits so long, in ms, after the last turn."""
_LONGEST_TURN = 30.0
"""Seconds after which a turn writes no more incidents: the process was paused, and others went on."""

_log = logging.getLogger("evenbeat.alerts.watch")


class Stepped(NamedTuple):
    """What a step did."""

    took_turn: bool
    again: Instant | None
    """When to call again; None: when there are rules."""


class AlertWatch:
    """Takes turns as long as there are rules: ``use`` says which this process knows. ``step`` is one turn, if
    it is due. A turn reads the rules again, because this process may not know the newest ones."""

    def __init__(
        self,
        store: Store,
        announcer: Announcer,
        *,
        name: str,
        every: int = TURN_EVERY,
        clock: Callable[[], float] = steady_clock,
    ) -> None:
        self._store = store
        self._announcer = announcer
        self._name = name
        self._every = every
        self._clock = clock
        self._rules: tuple[Rule, ...] = ()
        self._is_tidy = False
        """Whether there is nothing to do as long as there are no rules."""
        self._poller = Poller(store)
        self._successes = TaskSuccesses(store)

    def use(self, rules: Iterable[Rule]) -> None:
        """Replace the rules."""
        rules = tuple(rules)
        self._is_tidy = self._is_tidy and rules == self._rules
        self._rules = rules

    def step(self, now: Instant, *, is_urgent: bool = False, is_alone: bool = False) -> Stepped:
        """Take a turn if one is due. ``is_urgent`` says that this process has just left a signal, and
        ``is_alone`` that there are no others to take turns with."""
        if not self._rules and (self._is_tidy or not self._store.find_records(INCIDENT, limit=1)):
            self._is_tidy = True
            return Stepped(False, None)
        gap = 0 if is_alone else min(self._every, URGENT_AFTER) if is_urgent else self._every
        turn = take_turn(self._store, self._name, now, gap)
        if not isinstance(turn, Turn):
            return Stepped(False, turn)
        try:
            self._take(turn, now)
        except TurnLost:
            _log.debug("another process evaluates alert rules", extra={"component": "alerts"})
        return Stepped(True, now + self._every)

    def _read_rules(self) -> tuple[Rule, ...]:
        self.use(stored_rules(self._store))
        return self._rules

    def _take(self, turn: Turn, now: Instant) -> None:
        began = self._clock()

        def check() -> None:
            if self._clock() - began > _LONGEST_TURN:
                raise TurnLost

        incidents = OpenIncidents(self._store, check)
        facts = Facts(self._store, self._successes, now)
        evaluation = Evaluation(
            self._store, self._read_rules, incidents, facts, self._poller, self._announcer, now
        )
        evaluation.take_signals()
        evaluation.look_back()
        evaluation.poll(turn.body)
        evaluation.review()
        self._successes.forget_all_but(incidents)
        if any(rule.of_kind("node_lost") for rule in self._rules):
            leave_nodes(self._store, turn, self._poller.known_nodes(), now)
