"""The reaper: hands the runs of workers that stopped heartbeating to other nodes."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable
from uuid import uuid4

from evenbeat.core.clocks import steady_clock
from evenbeat.core.instants import Instant
from evenbeat.node.settling import settle_in_parts
from evenbeat.observe.events import Events
from evenbeat.observe.logs import run_fields
from evenbeat.rules import attempts
from evenbeat.stores.base import Store

# With the polls of ticker and worker (30 s each), a node at rest sends one small query in 5 s.
REAP_EVERY = 15_000
REAP_BATCH = 500

# A reaper waits for no longer than so many leases, however often the store comes and goes.
_PATIENCE = 10
# Between two looks at leases that end one after the other.
_NOT_SOONER = 500

_log = logging.getLogger("evenbeat.node.reaper")


class Reaper:
    """Gives the runs of workers that stopped heartbeating to others.

    An outage of the store that is longer than a lease ends the leases of living workers, too. They renew
    them when the store is back, and the reaper lets them go first: after an outage, and at its own start,
    it takes nothing for a third of a lease.
    """

    def __init__(
        self,
        store: Store,
        events: Events,
        lease: int = 30_000,
        *,
        new_token: Callable[[], str] = lambda: uuid4().hex,
        clock: Callable[[], float] = steady_clock,
    ) -> None:
        self._store = store
        self._events = events
        self._new_token = new_token
        self._clock = clock
        # Whoever wants short leases wants their end to be noticed.
        self._every = min(REAP_EVERY, lease // 2)
        self._grace = lease // 3
        # A lease that is renewed at a third (the keeper looks each twelfth) survives any shorter outage.
        # Looks in time are closer together than this. An outage is a longer gap between two answers, whether
        # calls failed in it, waited for a frozen server, or this node was suspended.
        self._gap = lease * 7 / 12 / 1000
        self._heard = float("-inf")
        """When the store last answered a look, by ``clock``."""
        self._take_from = float("-inf")
        self._patience = _PATIENCE * lease / 1000
        self._first_outage = float("-inf")
        """When the first outage ended after which nothing was taken yet."""

    def step(self, now: Instant) -> Instant:
        lost, next_end = self._store.lost_runs(now, REAP_BATCH)
        heard, self._heard = self._heard, self._clock()
        if self._heard - heard > self._gap:
            if self._take_from <= heard:
                self._first_outage = self._heard
            # A store that comes and goes must not keep the runs of dead workers from all others for ever.
            until = self._heard + self._grace / 1000
            self._take_from = min(until, max(self._first_outage + self._patience, self._heard))
        if (left := self._take_from - self._heard) > 0:
            # In two steps at least: another outage may come.
            return now + min(math.ceil(left * 1000), self._grace // 2)
        again = now + self._every
        if next_end is not None:
            # A lease that is renewed in time is looked at in vain, once for all that were taken together.
            again = min(again, max(next_end + 1, now + _NOT_SOONER))
        if not lost:
            return again
        ends = [attempts.crashed(run, now, self._new_token()) for run in lost]
        answers = list(itertools.chain.from_iterable(settle_in_parts(self._store, ends, "reaper")))
        for run, accepted in zip(lost, answers, strict=True):
            if not accepted:
                continue  # its worker sent a heartbeat in between, or another node was faster
            _log.error(
                "a worker was lost, its run is taken over",
                extra={**run_fields(run), "component": "reaper", "worker": run.worker},
            )
            self._events.tell("crashed", now, run=run, error=f"worker {run.worker} was lost")
        self._store.hint()
        return now if len(lost) == REAP_BATCH and any(answers) else again
