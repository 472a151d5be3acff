"""The reaper: ends attempts of workers that stopped heartbeating, so that other workers take the runs."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable
from uuid import uuid4

from evenbeat.core.clocks import steady_clock
from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, Transition
from evenbeat.node.counting import Counting
from evenbeat.node.flow_checks import check_flow
from evenbeat.node.flow_work import FlowReports
from evenbeat.node.flows import End, FlowSettling, concerns_flow
from evenbeat.node.settling import settle_in_parts
from evenbeat.node.signals import Signals
from evenbeat.observe.events import Events
from evenbeat.observe.logs import run_fields
from evenbeat.rules import attempts
from evenbeat.rules.flow_parts import is_begun
from evenbeat.stores.base import Store

# Milliseconds. Together with the polls of ticker and worker (30 s each), an idle node sends one small query
# in 5 s.
REAP_EVERY = 15_000
REAP_BATCH = 500

# A reaper waits for at most this many leases, however often the store becomes unavailable meanwhile.
_MOST_LEASES = 10
# How many runs whose ends can't be written a step passes over.
_MOST_REFUSED = 10_000
# The shortest pause, in ms, between two steps for leases that end one after the other.
_SHORTEST_PAUSE = 500

_log = logging.getLogger("evenbeat.node.reaper")


class Reaper:
    """Ends attempts of workers that stopped heartbeating, so that other workers take the runs.

    In an outage of the store that is longer than a lease, the leases of living workers expire, too. When the
    store is back, the reaper lets them renew their leases first: after an outage, and after its own start, it
    takes no run for a third of a lease.
    """

    def __init__(
        self,
        store: Store,
        events: Events,
        lease: int = 30_000,
        *,
        new_token: Callable[[], str] = lambda: uuid4().hex,
        clock: Callable[[], float] = steady_clock,
        counting: Counting | None = None,
        signals: Signals | None = None,
    ) -> None:
        self._signals = Signals() if signals is None else signals
        self._counting = counting or Counting()
        self._store = store
        self._events = events
        self._flows = FlowSettling(store, "reaper", signals=self._signals, new_token=new_token)
        self._reports = FlowReports(events, self._counting, self._signals)
        self._new_token = new_token
        self._clock = clock
        # Short leases should be noticed soon after they expire.
        self._every = min(REAP_EVERY, lease // 2)
        self._grace = lease // 3
        # A lease is renewed at a third (checked each twelfth), so it survives an outage that is shorter than
        # this. Steps on time are closer together. An outage is a longer gap between two answers of the store,
        # whether calls failed in it, waited for a frozen server, or this machine was suspended.
        self._longest_gap = lease * 7 / 12 / 1000
        self._answered_at = float("-inf")
        """When the store last answered, by ``clock``."""
        self._take_from = float("-inf")
        """From when on the reaper takes runs, by ``clock``."""
        self._longest_wait = _MOST_LEASES * lease / 1000
        self._refused = 0
        """How many of the runs that the last step found could not be ended."""
        self._first_outage = float("-inf")
        """When the first of the outages ended since which the reaper has taken no run."""

    def step(self, now: Instant) -> Instant:
        limit = REAP_BATCH + self._refused
        found, next_end = self._store.lost_runs(now, limit)
        before, self._answered_at = self._answered_at, self._clock()
        if self._answered_at - before > self._longest_gap:
            if self._take_from <= before:
                self._first_outage = self._answered_at
            # Bounded: repeated outages must not block the runs of dead workers forever.
            until = self._answered_at + self._grace / 1000
            self._take_from = min(until, max(self._first_outage + self._longest_wait, self._answered_at))
        if (left := self._take_from - self._answered_at) > 0:
            # At least two steps, so that another outage in between is noticed.
            return now + min(math.ceil(left * 1000), self._grace // 2)
        again = now + self._every
        if next_end is not None:
            # If the worker renews in time, that step finds nothing: one step for all runs claimed together.
            again = min(again, max(next_end + 1, now + _SHORTEST_PAUSE))
        if not found:
            return again
        # No worker holds a flow that has begun: its lease says when to look at it.
        begun = [run for run in found if is_begun(run)]
        refused = self._check_flows(begun, now)
        lost = [run for run in found if not is_begun(run)]
        taken = self._take(lost, now) if lost else []
        # Runs whose ends can't be written stay the first ones: the next step looks behind them.
        is_full = len(found) == limit
        self._refused = min(refused + taken.count(False), _MOST_REFUSED) if is_full else 0
        return now if is_full and (any(taken) or len(begun) > refused) else again

    def _take(self, lost: list[RunRecord], now: Instant) -> list[bool]:
        """End the attempts of lost workers; return for each whether it was ended."""
        ends = [attempts.crashed(run, now, self._new_token()) for run in lost]
        if self._signals:
            ends = [self._signals.with_end(run, end, now) for run, end in zip(lost, ends, strict=True)]
        answers = self._settle(lost, ends, now)
        crashed = [(run, end) for run, end, accepted in zip(lost, ends, answers, strict=True) if accepted]
        self._counting.count_taken_over(crashed, now)
        self._signals.note_written()
        for run, accepted in zip(lost, answers, strict=True):
            if not accepted:
                continue  # its worker sent a heartbeat in between, or another node was faster
            _log.error(
                "the worker of a run was lost",
                extra={**run_fields(run), "component": "reaper", "worker": run.worker},
            )
            self._events.publish("crashed", now, run=run, error=f"worker {run.worker} was lost")
        self._store.hint()
        return answers

    def _settle(self, lost: list[RunRecord], ends: list[Transition], now: Instant) -> list[bool]:
        of_flows = any(concerns_flow(run, end) for run, end in zip(lost, ends, strict=True))
        if not of_flows:
            return list(itertools.chain.from_iterable(settle_in_parts(self._store, ends, "reaper")))
        settled = self._flows.settle([End(run, end) for run, end in zip(lost, ends, strict=True)], now)
        self._reports.report(settled.ended, now)
        return settled.answers

    def _check_flows(self, flows: list[RunRecord], now: Instant) -> int:
        """Look at flows that have begun; return how many of them the database refuses to write."""
        refused = 0
        for flow in flows:
            ended = check_flow(self._store, self._flows, flow, self._new_token, now)
            refused += ended is None
            self._reports.report(ended or [], now)
            if ended:
                self._store.hint()
        return refused
