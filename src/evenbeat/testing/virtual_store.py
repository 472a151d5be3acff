"""The store of a scheduler in virtual time: in memory, with records of what a test may want to check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import FINAL_STATES, LogChunk, Record, RunRecord, RunState, Transition
from evenbeat.core.results import Run
from evenbeat.errors import shown
from evenbeat.observe import views
from evenbeat.rules.alert_records import RULE
from evenbeat.rules.backfills import OPEN
from evenbeat.stores.base import Claim, Claimed, Fired, Page, PlanFunction, RunQuery
from evenbeat.stores.memory import MemoryStore
from evenbeat.tasks.task import Tasks
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.transactions import Transactions


class VirtualStore(MemoryStore):
    """The store in memory, which also records what a test may want to check."""

    def __init__(self, clock: VirtualClock, tasks: Tasks) -> None:
        super().__init__(clock)
        self._tasks = tasks
        self.finished: list[Run] = []
        self.woken: Counter[str] = Counter()
        self.started: Counter[str] = Counter()
        self.while_waiting: Callable[[float, bool], object] | None = None
        self.renewals: dict[str, Callable[[Instant], object]] = {}
        self._time = clock
        self.transactions = Transactions()
        self.changes = 0
        """The number of hints so far: every change by a user gives one."""
        self.rule_changes = 0
        """How often an alert rule was written or deleted."""
        self.open_backfills = 0
        """How many backfills are not over."""

    def hint(self) -> None:
        self.changes += 1
        super().hint()

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        self.rule_changes += record.kind == RULE
        is_written = super().put_record(record, expect)
        self.open_backfills += is_written and record.kind == OPEN
        return is_written

    def delete_record(self, kind: str, tenant: str, key: str, version: int) -> bool:
        self.rule_changes += kind == RULE
        is_deleted = super().delete_record(kind, tenant, key, version)
        self.open_backfills -= is_deleted and kind == OPEN
        return is_deleted

    def fired(self) -> list[Run]:
        return [views.run_view(run, self._tasks) for run in self._runs.values() if run.cause == "tick"]

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        fired = super().fire_due(now, limit, plan)
        self.woken.update(
            _schedule(planned.schedule.tenant, planned.schedule.name) for planned in fired.planned
        )
        return fired

    def add_runs_within(
        self, connection: object, runs: Sequence[RunRecord], before: Instant | None = None
    ) -> list[RunRecord]:
        self._admit()
        if before is not None and self.now() >= before:
            return []
        self.transactions.hold(connection, runs)
        return [self._runs.get(run.id, run) for run in runs]

    def _admit(self) -> None:
        """Add the runs whose transactions have committed. Every method that reads runs calls this first."""
        committed = self.transactions.take()
        if committed:
            super().add_runs(committed)
            self.hint()

    def add_runs(self, runs: Sequence[RunRecord], before: Instant | None = None) -> list[bool]:
        self._admit()
        return super().add_runs(runs, before)

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        self._admit()
        return super().find_runs(query)

    def count_runs(self, tenant: str | None = None) -> dict[RunState, int]:
        self._admit()
        return super().count_runs(tenant)

    def claim_runs(self, claim: Claim) -> Claimed:
        self._admit()
        # From every queue: which node serves which queue does not matter to a test.
        queues = tuple(sorted(self._queued.queues))
        claimed = super().claim_runs(replace(claim, queues=queues or claim.queues))
        for run in claimed.runs:
            what = f"task {shown(run.task)}" if run.schedule is None else _schedule(run.tenant, run.schedule)
            self.started[what] += 1
        return claimed

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        answers = super().settle_runs(transitions)
        for transition, accepted in zip(transitions, answers, strict=True):
            if accepted:
                ended = _ended(transition)
                self.finished += [views.run_view(self._runs[run_id], self._tasks) for run_id in ended]
        return answers

    def append_log(self, chunks: Sequence[LogChunk]) -> None:
        super().append_log([replace(chunk, at=self.now()) for chunk in chunks])

    def wait(self, timeout: float) -> bool:
        seen = self.changes
        self.pass_time(timeout, is_endless=True)
        return self.changes != seen

    def pass_time(self, seconds: float, is_endless: bool) -> None:
        if self.while_waiting is not None:
            self.while_waiting(seconds, is_endless)

    def move_to(self, instant: Instant) -> None:
        """Move the time, with all locks that ``with`` blocks hold."""
        for renew in list(self.renewals.values()):
            renew(instant)
        self._time.now = instant


def _ended(transition: Transition) -> Iterator[str]:
    """Yield the runs that a transition ends: the steps of a flow before the flow."""
    for end in transition.ends:
        yield from _ended(end)
    if transition.state in FINAL_STATES:
        yield transition.run


def _schedule(tenant: str, name: str) -> str:
    return f"schedule {shown(name)}" + ("" if tenant == "default" else f" of tenant {shown(tenant)}")
