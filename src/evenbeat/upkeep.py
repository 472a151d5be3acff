"""What every node does for all of them, now and then: take over, tidy up, say that it is there."""

from __future__ import annotations

import itertools
import logging
import math
import secrets
from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import uuid4

import msgspec

from evenbeat.clocks import steady_clock
from evenbeat.instants import Instant
from evenbeat.model import Record, encode
from evenbeat.observe.events import Events
from evenbeat.observe.logs import run_fields
from evenbeat.rules import attempts
from evenbeat.settling import settle_in_parts
from evenbeat.stores.base import Store
from evenbeat.tasks import TaskKind

# How often a node asks while nothing is wrong: with the polls of its ticker and its worker (30 s each) that
# is one small query in 5 s.
REAP_EVERY = 15_000
REAP_BATCH = 500
PURGE_EVERY = 60_000
PURGE_BATCH = 500
PRESENT_EVERY = 20_000
PRESENT_FOR = 65_000

# After a duty failed.
_AFTER_FAILURE = 1_000
# A reaper waits for no longer than so many leases, however often the store comes and goes.
_PATIENCE = 10
# Between two looks at leases that end one after the other.
_NOT_SOONER = 500

_log = logging.getLogger("evenbeat.upkeep")


class Duty(Protocol):
    def step(self, now: Instant) -> Instant:
        """Do it; answers when to come again."""


class Rota:
    """Several duties in one loop, each at its time.

    A duty that fails, for whatever reason, is tried again a second later. It keeps no other duty waiting: a
    reaper that came late would take the delay for an outage.
    """

    def __init__(self, duties: Sequence[Duty]) -> None:
        self._duties = duties
        self._due: list[Instant] = [0] * len(duties)
        self._failures = [0] * len(duties)
        """How often each has failed in a row."""

    def step(self, now: Instant) -> Instant | None:
        for index, due in enumerate(self._due):
            # More than it asked for ahead: the clock was set back.
            if due <= now or due > now + 2 * PURGE_EVERY:
                self._due[index] = self._step(index, now)
        return min(self._due, default=None)

    def _step(self, index: int, now: Instant) -> Instant:
        try:
            again = self._duties[index].step(now)
        except Exception as error:
            self._failures[index] += 1
            failures = self._failures[index]
            fields = {"component": "upkeep", "failures": failures}
            # Ever more seldom: a long outage fills no disk with the same line.
            level = logging.ERROR if failures & (failures - 1) == 0 else logging.DEBUG
            name = type(self._duties[index]).__name__.lower()
            _log.log(level, "the %s failed, trying again: %s", name, error, extra=fields)
            return now + _AFTER_FAILURE
        self._failures[index] = 0
        return again


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


class Pruner:
    """History older than ``keep`` is deleted, a little at a time."""

    def __init__(self, store: Store, keep: int) -> None:
        self._store = store
        self._keep = keep

    def step(self, now: Instant) -> Instant:
        gone = self._store.purge(now - self._keep, PURGE_BATCH)
        # A second between two batches of a long backlog: firing goes before tidying. A store may stop before
        # the batch is full where runs have long logs; less than a tenth of it is what a minute leaves behind.
        return now + (1_000 if 10 * gone >= PURGE_BATCH else PURGE_EVERY)


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of itself: the body of its record."""

    name: str
    host: str
    pid: int
    version: str
    started_at: Instant
    seen_at: Instant
    ticker: bool
    worker: bool
    tasks: dict[str, TaskKind]
    """Those that it executes, with how."""
    queues: list[str]
    slots: dict[TaskKind, int]
    """How many runs it executes at once, of each kind."""


class Presence:
    """A record that says that this node is there; it goes by itself when the node does."""

    def __init__(self, store: Store, info: NodeInfo) -> None:
        self._store = store
        self._info = info
        self._version: int | None = None

    def learn(self, task: str, kind: TaskKind) -> None:
        """Say with the next step that the node executes this task, too."""
        self._info = msgspec.structs.replace(self._info, tasks={**self._info.tasks, task: kind})

    def step(self, now: Instant) -> Instant:
        record = Record(
            kind="node",
            key=self._info.name,
            body=encode(msgspec.structs.replace(self._info, seen_at=now)),
            version=secrets.randbits(53),
            expires=now + PRESENT_FOR,
        )
        if not self._store.put_record(record, self._version):
            # A lost reply, or it expired while this node slept: what is there is ours, whatever its version.
            present = self._store.get_record("node", record.tenant, record.key)
            self._store.put_record(record, None if present is None else present.version)
        self._version = record.version
        return now + PRESENT_EVERY

    def leave(self) -> None:
        if self._version is not None:
            self._store.delete_record("node", "default", self._info.name, self._version)
