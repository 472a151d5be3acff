"""Claims while limits exist: one script reads, Python chooses, and a second script claims what was chosen.

Nothing is locked. The second script claims limited runs only if no other claim of limited runs, and no change
of a limit, came between the two; otherwise the claim reads and chooses again. So a worker that stops between
the scripts holds up no other one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record
from evenbeat.rules.limits import (
    BUCKET,
    NO_LIMITS,
    OWNER,
    Candidate,
    Cohort,
    Limits,
    Usage,
    choose,
    next_start,
    read_cohort,
    read_limits,
)
from evenbeat.stores.base import Claim
from evenbeat.stores.batching import BYTES
from evenbeat.stores.redis.records import get_many, record_row
from evenbeat.stores.redis.rows import kind_of_run
from evenbeat.stores.redis.schedules import FAMILIES
from evenbeat.stores.redis.session import Session

# How many runs get a cohort in one script, and how often one claim does that.
_GIVEN, _ROUNDS = 100, 2
# How often one claim tries to take limited runs while others take some, too.
_TRIES = 5
# Then it asks the worker to come back, in ms.
_PAUSE = 5
# Of how many cohorts, at least, a claim reads the first runs; and how many runs of all of them together.
_COHORTS, _FIRST_RUNS = 100, 2_000


_Line: TypeAlias = tuple[str, str]
"""The index of a cohort: the family of formats and the cohort."""


class Batch(NamedTuple):
    """What one step of a claim has taken."""

    rows: list[Any]
    next_due: Instant | None
    is_repetition: bool = False
    is_over: bool = False
    """Whether a further step would find nothing."""
    lease_until: Instant = 0
    now: Instant = 0


class _Known:
    """The limits of a version."""

    def __init__(self, version: str, limits: Limits) -> None:
        self.version = version
        self.limits = limits
        self.parts = lru_cache(10_000)(self._parts)
        """Returns the parts of a cohort; None if its runs do not belong there by these limits."""
        self.is_keyed = any(limit.key is not None for limit in limits)

    def _parts(self, cohort: str) -> Cohort | None:
        try:
            return read_cohort(cohort) if self.limits.fits(cohort) else None
        except ValueError:
            return None  # written by hand


class LimitedClaims:
    """Claims runs while limits exist."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known = _Known("", NO_LIMITS)
        self.are_expected = False
        """Whether the last claim found limits: then the next one begins with them."""

    def take(self, wanted: Claim, room: int, goes_on: bool) -> Batch | None:
        """Claim up to ``room`` runs; None if there are no limits any more."""
        reading = _Reading(self._session, wanted, room, goes_on)
        known = self._known
        rounds, tries = _ROUNDS, 0
        while True:
            kind, *reply = reading.send(known, _GIVEN if rounds > 0 else 0)
            self.are_expected = kind != "none"
            if kind == "none":
                return None
            if kind == "held":
                due = min(wanted.now, self._session.now())
                return Batch(reply[0], due, is_repetition=True, is_over=True)
            if kind == "limits":
                version, is_checked, bodies, mark = reply
                if version != known.version:
                    known = self._known = _Known(version, read_limits(bodies))
                if not is_checked:
                    reading.check_running(known, mark)
                continue
            if kind == "give":
                rounds -= 1
                reading.give_queued(known.limits, reply[0])
                continue
            found = _Found(self._session, wanted, known, reply)
            if found.misfits and rounds > 0:
                reading.misfits = found.misfits
                continue
            tries += 1
            taken = found.claim(reading.room, is_last=tries >= _TRIES)
            if isinstance(taken, int):
                reading.room = taken
            elif taken is not None:
                return taken


class _Reading:
    """The requests of one claim for what it decides on."""

    def __init__(self, session: Session, wanted: Claim, room: int, goes_on: bool) -> None:
        self._session = session
        self._wanted = wanted
        self.room = room
        self._goes_on = goes_on
        self._given: list[list[object]] = []
        self._checked: str | bool = False
        self.misfits: list[_Line] = []

    def send(self, known: _Known, most: int) -> list[Any]:
        wanted, limits = self._wanted, known.limits
        reply = self._session.run(
            "limited_runs",
            {
                "worker": wanted.worker,
                "token": wanted.token,
                "room": self.room,
                "now": wanted.now,
                **_scope(wanted),
                "turn": wanted.turn,
                "goes_on": self._goes_on,
                "version": known.version,
                "concerned": [limits.any, *map(sorted, (limits.tasks, limits.tenants, limits.queues))],
                "keyed": known.is_keyed,
                "given": self._given,
                "checked": self._checked,
                "most": most,
                "misfits": self.misfits,
                "bytes": BYTES,
            },
        )
        if self._given or self._checked:
            self._session.committed()
        self._given, self._checked, self.misfits = [], False, []
        return reply

    def check_running(self, known: _Known, mark: str) -> None:
        """Give cohorts to the running runs, some of which may have started before a limit was set.

        Until that is done, no run is claimed. A run that starts later has its cohort. ``mark`` changes when a
        run loses its cohort meanwhile, or starts without a claim: then all of them are looked at again.
        """
        names = ("id", "state", "queue", "priority", "tenant", "task", "cohort", "payload", "definition")
        key = f"{self._session.location.base}leases"
        ids: list[str] = self._session.execute("running runs", "ZRANGE", key, 0, -1)
        for start in range(0, len(ids), _GIVEN):
            if self._given:
                self.send(known, 0)
            (rows,) = self._session.run("get_runs", [ids[start : start + _GIVEN], False, False, names])
            for flat in rows:
                get = dict(zip(flat[::2], flat[1::2], strict=True)).get
                cohort = _cohort(
                    known.limits,
                    get("queue", ""),
                    get("priority", ""),
                    get("tenant", ""),
                    get("task", ""),
                    get("payload", "null"),
                    get("definition", ""),
                )
                if get("state") == "running" and cohort != get("cohort"):
                    self._given.append([get("id", ""), "running", cohort or False])
        self._checked = mark

    def give_queued(self, limits: Limits, rows: Iterable[Sequence[str]]) -> None:
        for run_id, family, ready, *columns, definition, payload in rows:
            queue, priority, tenant, task = columns
            cohort = _cohort(limits, queue, priority, tenant, task, payload, definition)
            self._given.append([run_id, "queued", cohort or False, family, ready, ":".join(columns)])


class _Found:
    """What a claim has read: decides, and has the decision written."""

    def __init__(self, session: Session, wanted: Claim, known: _Known, reply: list[Any]) -> None:
        self._session = session
        self._wanted = wanted
        self._known = known
        self._now, self._due, self._claimed, running, free, cohorts, self._later, self._next_free = reply
        self._running = Counter(dict(zip(running[::2], running[1::2], strict=True)))
        self._free = [Candidate(run_id, tenant, level, run_at) for run_id, tenant, level, run_at, *_ in free]
        self._places: dict[str, tuple[str, str]] = {run_id: (*place,) for run_id, _, _, _, *place in free}
        self._firsts: dict[_Line, Candidate] = {}
        """The first run of each due cohort. It has the cohort as its id."""
        self.misfits: list[_Line] = []
        """Cohorts that the present limits do not give."""
        for family, entries in cohorts:
            self._read(family, zip(entries[::2], entries[1::2], strict=True))

    def _read(self, family: str, cohorts: Iterable[tuple[str, str]]) -> None:
        tasks = self._wanted.tasks
        for cohort, score in cohorts:
            parts = self._known.parts(cohort)
            if parts is None:
                self.misfits.append((family, cohort))
            elif tasks is None or parts.task in tasks:
                self._firsts[family, cohort] = Candidate(
                    cohort, parts.tenant, parts.priority, int(float(score)), cohort
                )

    def claim(self, room: int, is_last: bool) -> Batch | int | None:
        """Choose runs and claim them. Return None if other claims came between; the number of runs to choose
        instead, if they are too large for one reply.

        The last try takes only runs without a cohort.
        """
        usage = Usage(self._known.limits, self._running, self._buckets(), self._now)
        waiting = {} if is_last else self._first_runs(usage, room)
        candidates = list(self._free)
        for (family, cohort), runs in waiting.items():
            left = usage.room(cohort)
            due = [run for run in runs[:room] if run.run_at <= self._due]
            candidates += due if left is None else due[:left]
            self._places.update((run.id, (family, "")) for run in due)
        chosen = choose(candidates, room, self._wanted.turn, usage)
        if not chosen:
            return Batch([], self._next_due(usage, waiting, (), self._next_free, is_last), is_over=True)
        kind, *reply = self._session.run("claim_chosen", self._request(chosen, usage.spent()))
        self._session.committed()
        if kind == "stale":
            return None
        if kind == "fewer":
            number: int = reply[0]
            return number
        rows, lease_until, started, next_free = reply
        is_over = len(chosen) < room
        next_due = self._next_due(usage, waiting, chosen, next_free, is_last) if is_over else self._due
        return Batch(rows, next_due, is_over=is_over, lease_until=lease_until, now=started)

    def _buckets(self) -> dict[str, str]:
        names = self._known.limits.buckets(cohort for _, cohort in self._firsts)
        return get_many(self._session, BUCKET, OWNER, names) if names else {}

    def _first_runs(self, usage: Usage, room: int) -> dict[_Line, list[Candidate]]:
        """Read the first runs of the cohorts of which some may start; of some cohorts, if there are many.

        Reads one run more than a claim takes: then the cohort's next run is known.
        """
        lines = {first.id: line for line, first in self._firsts.items() if usage.room(first.id) != 0}
        firsts = (self._firsts[line] for line in lines.values())
        most = max(_COHORTS, room)
        some = [lines[first.id] for first in choose(firsts, most, self._wanted.turn)]
        if not some:
            return {}
        each = min(room, max(1, _FIRST_RUNS // len(some))) + 1
        (rows,) = self._session.run("first_runs", [some, self._due, each])
        found: dict[_Line, list[Candidate]] = {}
        for line, entries in zip(some, rows, strict=True):
            first = self._firsts[line]
            found[line] = [
                Candidate(run_id, first.tenant, first.priority, int(float(score)), first.cohort)
                for run_id, score in zip(entries[::2], entries[1::2], strict=True)
            ]
        return found

    def _next_due(
        self,
        usage: Usage,
        waiting: Mapping[_Line, list[Candidate]],
        chosen: Sequence[Candidate],
        next_free: Instant | None,
        is_last: bool,
    ) -> Instant | None:
        taken = {run.id for run in chosen}
        firsts: list[tuple[str, Instant]] = []
        for line, first in self._firsts.items():
            left = [first] if line not in waiting else [run for run in waiting[line] if run.id not in taken]
            firsts += [(line[1], run.run_at) for run in left[:1]]
        start = next_start(firsts, usage)
        if is_last and start is not None:
            start = max(start, self._now + _PAUSE)
        # A cohort that is not due counts with its time: then a claim looks at its limits.
        return min((at for at in (next_free, start, self._later) if at is not None), default=None)

    def _request(self, chosen: list[Candidate], buckets: list[Record]) -> dict[str, object]:
        wanted = self._wanted
        return {
            "worker": wanted.worker,
            "token": wanted.token,
            "lease": wanted.lease,
            "version": self._known.version,
            "claimed": self._claimed,
            "chosen": [[run.id, *self._places[run.id], run.cohort or False] for run in chosen],
            "buckets": [record_row(bucket) for bucket in buckets],
            **_scope(wanted),
            "bytes": BYTES,
            "decided": self._now,
        }


def _scope(wanted: Claim) -> dict[str, object]:
    """Return which runs a claim may take."""
    return {
        "queues": list(dict.fromkeys(wanted.queues)),
        "tasks": False if wanted.tasks is None else sorted(wanted.tasks),
        "families": FAMILIES,
    }


def _cohort(
    limits: Limits, queue: str, priority: str, tenant: str, task: str, payload: str, definition: str
) -> str | None:
    # The priority of a damaged run may not be a number: its claim quarantines it.
    number = int(priority) if priority.isascii() and priority.isdigit() else 5
    return limits.cohort_of(queue, number, tenant, task, payload, kind_of_run(definition))
