"""Limits while nodes die and freeze, replies are lost and the server restarts: never more runs at once than a
limit allows, by the attempts in the database, and no slot that is never free again."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from evenbeat.core.rates import Rate
from evenbeat.core.records import Execution, RunRecord
from evenbeat.rules.attempts import ended_attempts
from evenbeat.rules.limits import Limit, limit_record
from tests.faults.fleet import Fleet, all_runs, fleet, opened, wait_until
from tests.faults.node import TIMEOUT
from tests.faults.proxy import Proxy
from tests.faults.scene import (
    LEASE_MS,
    SERVERS,
    Ground,
    Mutant,
    Outcome,
    Scene,
    caught,
    completions,
    end,
    next_completion,
)

MOST, MOST_OF_CUSTOMER, CUSTOMERS = 5, 1, 9
LIMITS = (
    Limit(task="charge", concurrency=MOST),
    Limit(task="charge", key="customer", concurrency=MOST_OF_CUSTOMER),
)
# Milliseconds by which a node's idea of the store's clock may be wrong on a busy machine, at most.
_TOLERANCE = 500
RATED = Limit(task="charge", rate=Rate(12, 1000), burst=4)
# Milliseconds: longer spans of starts are not compared with the rate.
_LONGEST_SPAN = 20_000


class Span(NamedTuple):
    """A time in which an attempt of a run surely had its slot, in milliseconds."""

    began: float
    ended: float
    customer: str
    run: str


def kills(ground: Ground, faults: int) -> Outcome:
    """Four nodes, killed and frozen at random past their leases."""
    chance = random.Random(5)
    _prepare(ground, 25 * (faults + 2), LIMITS)
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(4):
            nodes.start()
        nodes.await_ready()
        for at in range(faults):
            next_completion(nodes)
            time.sleep(chance.uniform(0.02, 0.2))
            _strike(nodes, chance, is_frozen=at % 3 == 2)
        return _end(ground, nodes, faults)


def rates(ground: Ground, faults: int) -> Outcome:
    """The same, with a rate instead of a number of runs."""
    chance = random.Random(6)
    _prepare(ground, 12 * (faults + 2), (RATED,))
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(4):
            nodes.start()
        nodes.await_ready()
        for at in range(faults):
            next_completion(nodes)
            time.sleep(chance.uniform(0.02, 0.4))
            _strike(nodes, chance, is_frozen=at % 3 == 2)
        outcome = end(ground, nodes, faults)
    with opened(ground.url) as store:
        _check_rate(_starts(all_runs(store)))
    return outcome


def _strike(nodes: Fleet, chance: random.Random, *, is_frozen: bool) -> None:
    """Kill a node and start another one, or freeze one until its leases have ended."""
    victim = chance.choice(list(nodes.alive))
    if is_frozen:
        nodes.signal(victim, signal.SIGSTOP)
        time.sleep(LEASE_MS / 1000 + 0.3)
        nodes.signal(victim, signal.SIGCONT)
    else:
        nodes.kill(victim)
        nodes.start()


def _starts(runs: Iterable[RunRecord]) -> list[int]:
    starts = [attempt.started_at for run in runs for attempt in ended_attempts(run)]
    return sorted(start for start in starts if start is not None)


def _check_rate(starts: list[int]) -> None:
    """Check every span between two starts: in any time, no more than the burst and the rate start."""
    rate = RATED.rate
    assert rate is not None
    for first, began in enumerate(starts):
        for last in range(first + RATED.size, len(starts)):
            allowed = RATED.size + (starts[last] - began + _TOLERANCE) * rate.count / rate.period
            assert last - first + 1 <= allowed, f"{last - first + 1} starts in {starts[last] - began} ms"
            if starts[last] - began > _LONGEST_SPAN:
                break


def server(ground: Ground, faults: int) -> Outcome:
    """Replies are lost, connections reset, and the server dies in the middle of limited claims."""
    assert ground.server is not None
    _prepare(ground, 40 * (faults + 2), LIMITS)
    proxy, longest = Proxy(ground.server.port), 0.0
    with fleet(ground.url, ground.folder) as nodes:
        for at in range(4):
            nodes.start(url=ground.at(proxy.port) if at % 2 else None)
        nodes.await_ready()
        next_completion(nodes)
        for at in range(faults):
            if at % 3 == 0:
                proxy.become("lose replies")
                time.sleep(TIMEOUT)
                proxy.become("pass")
            elif at % 3 == 1:
                for _ in range(5):
                    proxy.reset()
                    time.sleep(0.1)
            else:
                ground.server.kill()
                time.sleep(0.5)
                ground.server.start()
            longest = max(longest, next_completion(nodes))
        outcome = _end(ground, nodes, faults)
    proxy.close()
    return outcome._replace(recovery=longest)


def unrated(ground: Ground) -> str | None:
    """Nodes that know of no rate."""
    _prepare(ground, 60, ())
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(3):
            nodes.start()
        nodes.await_ready()
        end(ground, nodes, 0)
    with opened(ground.url) as store:
        starts = _starts(all_runs(store))
    return caught(lambda: _check_rate(starts))


def unlimited(ground: Ground) -> str | None:
    """Nodes that know of no limit."""
    _prepare(ground, 60, ())
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(3):
            nodes.start()
        nodes.await_ready()
        wait_until(lambda: completions(nodes) >= 30, "the runs do not end")
        return caught(lambda: _end(ground, nodes, 0))


def _prepare(ground: Ground, count: int, limits: Iterable[Limit]) -> None:
    with opened(ground.url) as store:
        for limit in limits:
            assert store.put_record(limit_record(limit))
        now = store.now()
        store.add_runs(
            [
                RunRecord(
                    id=f"charge-{at:04}",
                    task="charge",
                    payload=f'{{"customer":{at % CUSTOMERS}}}',
                    execution=Execution(max_crashes=1000),
                    run_at=now,
                    created_at=now,
                )
                for at in range(count)
            ]
        )


def _end(ground: Ground, nodes: Fleet, faults: int) -> Outcome:
    """Let the nodes finish all runs, and check every attempt that was ever made."""
    outcome = end(ground, nodes, faults)
    with opened(ground.url) as store:
        spans = _spans(all_runs(store), nodes.reports())
    assert spans
    _check(spans, MOST)
    for customer in sorted({span.customer for span in spans}):
        _check([span for span in spans if span.customer == customer], MOST_OF_CUSTOMER)
    return outcome


def _spans(runs: Iterable[RunRecord], reports: Iterable[dict[str, Any]]) -> list[Span]:
    """Return when the attempts ran, by the reports of the nodes.

    The record of an attempt starts when its claim was sent. A claim may wait for others, and count the runs
    that are left then. An attempt that was lost or handed back has its slot until that is recorded,
    although it may run for longer in a process that was frozen.
    """
    times = {
        (report["what"], report["run"], report["attempt"]): report["at"] * 1000
        for report in reports
        if report["what"] in ("ran", "ended")
    }
    spans = []
    for run in runs:
        for attempt in ended_attempts(run):
            began = times.get(("ran", run.id, attempt.number))
            assert attempt.ended_at is not None
            if attempt.outcome == "succeeded":
                ended = times["ended", run.id, attempt.number]
            else:
                ended = attempt.ended_at - _TOLERANCE
            if began is not None and began < ended:
                spans.append(Span(began, ended, run.payload, run.id))
    return spans


def _check(spans: list[Span], most: int) -> None:
    moments = [(span.began, 1, span.run) for span in spans] + [(span.ended, -1, span.run) for span in spans]
    running = 0
    # Sorted, an end comes before a beginning of the same instant.
    for at, change, run in sorted(moments):
        running += change
        assert running <= most, f"{running} runs at once at {at}, with {run}; {most} are allowed"


SCENES = (
    Scene("limits", kills, "SIGKILL, and SIGSTOP past the lease, of nodes with limited runs", 6, 40),
    Scene("rates", rates, "SIGKILL, and SIGSTOP past the lease, of nodes with a rate of runs", 4, 60),
    Scene("limits-server", server, "lost replies, resets and SIGKILL of the server", 3, 12, SERVERS),
)
MUTANTS = (
    Mutant("unlimited", unlimited, "at once", quick=("sqlite",)),
    Mutant("unrated", unrated, "starts in", quick=("sqlite",)),
)
