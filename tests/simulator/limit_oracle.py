"""The oracle of limits: counts running runs and starts by itself, from their payloads, at each claim."""

from __future__ import annotations

import json
from collections import defaultdict

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord
from evenbeat.rules.flow_parts import is_begun
from evenbeat.rules.limits import Limit, read_cohort
from tests.simulator.backends import View
from tests.simulator.fault_proxy import Call
from tests.simulator.violation import Violation

_Subject = tuple[str, object]
"""The name of a limit, and the value of its key."""


class LimitOracle:
    """Checks after each claim that no limit is exceeded by the runs that it started."""

    def __init__(self) -> None:
        self._started: list[RunRecord] = []
        self._limits: dict[str, Limit] = {}
        self._starts: defaultdict[_Subject, list[Instant]] = defaultdict(list)
        """When runs started, since the limit has been as it is."""
        self.longest_wait = 0
        """How long a run waits for a rate at most."""

    def start(self, run: RunRecord) -> None:
        """Note that a claim has started a run."""
        self._started.append(run)

    @property
    def present(self) -> tuple[Limit, ...]:
        return tuple(self._limits.values())

    def observe(self, view: View, call: Call) -> None:
        """Check the runs that the claim has started."""
        started, self._started = self._started, []
        for run in started:
            for limit in call.limits:
                subject = subject_of(limit, run)
                # A limit that was changed while the claim was made holds for the next one.
                if subject is not None and self._limits.get(limit.name) == limit:
                    self._check(limit, subject, run, view)

    def execute(self, stored: RunRecord, run: RunRecord) -> None:
        """Check that limits have counted a run by the arguments with which it begins now."""
        for name in {} if run.cohort is None else read_cohort(run.cohort).values:
            before, after = (json.loads(text) for text in (stored.payload, run.payload))
            if isinstance(after, dict) and before.get(name) != after.get(name):
                raise Violation(f"a limit counts {before.get(name)} as {name}, not {after.get(name)}", run.id)

    def learn(self, present: tuple[Limit, ...]) -> None:
        """Take note of the limits, and forget the starts under one that was changed."""
        limits = {limit.name: limit for limit in present}
        if limits == self._limits:
            return
        for name in self._limits.keys() | limits.keys():
            if self._limits.get(name) != limits.get(name):
                self._starts = defaultdict(
                    list, {key: starts for key, starts in self._starts.items() if key[0] != name}
                )
        self._limits = limits
        rates = [limit.rate for limit in present if limit.rate is not None]
        self.longest_wait = max((-(-rate.period // rate.count) for rate in rates), default=0)

    def _check(self, limit: Limit, subject: _Subject, run: RunRecord, view: View) -> None:
        running = _running(limit, subject, view)
        if limit.concurrency is not None and running > limit.concurrency:
            raise Violation(f"{running} runs of {subject} are running, {limit.concurrency} may be", run.id)
        starts = self._starts[subject]
        # By the store's clock when it decided: time may have passed until the commit.
        now = run.started_at or 0
        starts.append(now)
        if limit.rate is not None:
            for back in range(1, len(starts) + 1):
                flowed = (now - starts[-back]) * limit.rate.count // limit.rate.period
                if back > limit.size + flowed:
                    raise Violation(f"{back} runs of {subject} started in {now - starts[-back]} ms", run.id)

    def latest_start(self, run: RunRecord, view: View, call: Call, now: Instant) -> Instant | None:
        """Return when a worker must look for a queued run again, at the latest; None if it waits until
        others end.

        Unless the store decides at the moment of its commit, a slot may have become free since: the end of
        that run has woken the workers. So has whoever removed a limit that the claim has found.
        """
        gone = (limit for limit in call.limits if limit not in view.limits)
        if not view.is_atomic and any(subject_of(limit, run) is not None for limit in gone):
            return None
        # "Now" is as good as a time in the past.
        latest = max(run.run_at, now)
        for limit in view.limits:
            subject = subject_of(limit, run)
            if subject is None:
                continue
            most = limit.concurrency
            if most is not None and (not view.is_atomic or _running(limit, subject, view) >= most):
                return None
            if limit.rate is not None:
                latest = max(latest, now + -(-limit.rate.period // limit.rate.count))
        return latest


def _running(limit: Limit, subject: _Subject, view: View) -> int:
    running = (run for run in view.runs.values() if run.state == "running")
    return sum(subject_of(limit, run) == subject for run in running)


def waits(run: RunRecord) -> bool:
    """Return whether a run only waits for others, which count instead: the steps of a flow."""
    return run.kind == "flow" or is_begun(run)


def subject_of(limit: Limit, run: RunRecord) -> _Subject | None:
    """Return what a limit counts a run as; None if it does not concern the run."""
    if limit.task not in (None, run.task) or limit.tenant not in (None, run.tenant):
        return None
    if limit.queue not in (None, run.queue):
        return None
    if limit.task is None and waits(run):
        return None
    if limit.key is None:
        return limit.name, None
    fields = json.loads(run.payload)
    if not isinstance(fields, dict) or limit.key not in fields:
        return None
    return limit.name, json.dumps(fields[limit.key], sort_keys=True)
