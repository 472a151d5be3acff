"""Operators who change everything at once, beside nodes that fire: audited from the store, write by write."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from evenbeat import Scheduler
from evenbeat.core.instants import Instant
from evenbeat.core.records import Overlap, RunRecord, ScheduleRecord, Skipped, Transition, Version
from evenbeat.errors import RunRefused, ScheduleConflict, ScheduleExists, ScheduleNotFound, StoreUnavailable
from evenbeat.rules.firing import Planned
from evenbeat.rules.ticks import trigger_of
from evenbeat.stores.base import Page, ScheduleQuery, Store, Write, Written
from evenbeat.stores.urls import open_url
from evenbeat.tasks.options import ScheduleOptions
from tests.faults.broken import Over
from tests.faults.fleet import Account, all_runs, await_rest, fleet, opened
from tests.faults.scene import Ground, Mutant, Outcome, Scene, assert_no_overlap, caught

T = TypeVar("T")

THREADS = 8
POLICIES: dict[str, tuple[Overlap, int | None]] = {
    "queue-1": ("queue", None),
    "queue-2": ("queue", None),
    "queue-all": ("queue_all", None),
    "skip": ("skip", None),
    "cancel": ("cancel_running", None),
    "two": ("allow", 2),
    "free-1": ("allow", None),
    "free-2": ("allow", None),
}
MOST = {"queue-1": 1, "queue-2": 1, "queue-all": 1, "skip": 1, "cancel": 1, "two": 2}
OVERLAPS: tuple[Overlap, ...] = ("allow", "skip", "queue", "queue_all", "cancel_running")
TRIGGERS = ("every 50ms", "every 70ms", "every 110ms")


class Change(NamedTuple):
    """A write of an operator's that was accepted."""

    base: ScheduleRecord | None
    planned: Planned


class FaultProxy(Over):
    """The operators' store: it remembers what they changed, and what they changed it from.

    Calls are repeated, as any may be, while the machine is too busy for an answer: an operator's write of
    which nobody knows whether it is there could not be audited.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._changes: dict[tuple[str, Version], Change] = {}
        self._seen: dict[tuple[str, Version], ScheduleRecord] = {}
        self._retries: list[Transition] = []

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        return partial(_repeated, found) if callable(found) else found

    @property
    def unbound(self) -> set[str]:
        """Runs that were retried while their schedule was deleted: no policy keeps them apart."""
        rows = [change.planned.schedule for change in self.changes]
        deleted = {(*row.key, row.generation, row.revision) for row in rows if row.state == "deleted"}
        return {retry.run for retry in self._retries if retry.gate in deleted}

    @property
    def changes(self) -> list[Change]:
        return list(self._changes.values())

    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        page = _repeated(self._store.find_schedules, query)
        for row in page.items:
            self._seen[row.name, row.version] = row
        return page

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        done = _repeated(self._store.put_schedules, writes)
        for write, written in zip(writes, done, strict=True):
            name = write.planned.schedule.name
            if written.accepted:
                base = None if write.expect is None else self._seen[name, write.expect]
                # Two threads that write the same to a row at the same instant count as one that repeats its
                # write. Each has an audit record of its own.
                change = Change(base, write.planned._replace(records=()))
                before = self._changes.setdefault((name, write.planned.schedule.version), change)
                assert before == change, f"a change of {name} was lost: two made one version, {change}"
            elif written.current is not None:
                self._seen[name, written.current.version] = written.current
        return done

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        self._retries += [transition for transition in transitions if transition.gate is not None]
        return _repeated(self._store.settle_runs, transitions)


def _repeated(call: Callable[..., T], *words: Any, **options: Any) -> T:
    deadline = time.monotonic() + 60
    while True:
        try:
            return call(*words, **options)
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def races(ground: Ground, seconds: int) -> Outcome:
    """Eight threads pause, resume, change, trigger, retry, cancel, delete, make and move schedules."""
    return _play(ground, seconds)


def _play(ground: Ground, seconds: int, *options: str) -> Outcome:
    fault_proxy = FaultProxy(open_url(ground.url))
    app = Scheduler(fault_proxy)
    app.store.open()
    for name in POLICIES:
        _add(app, name)
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(3):
            nodes.start("--lease", "30s", *options)
        nodes.await_ready()
        done = _operate(app, seconds)
        for schedule in app.schedules.list():
            app.schedules.pause(schedule.name)
        with opened(ground.url) as store:
            await_rest(store)
        nodes.stop()
    app.close()
    account = audit(ground.url, fault_proxy.changes, nodes.reports())
    unbound = fault_proxy.unbound
    assert_no_overlap([report for report in nodes.reports() if report.get("run") not in unbound], MOST)
    return Outcome(account, done.total())


def _add(app: Scheduler, name: str) -> None:
    overlap, most = POLICIES[name]
    options: ScheduleOptions = {"overlap": overlap, "max_concurrent": most, "retries": 1, "backoff": "50ms"}
    app.schedules.add(name, random.choice(TRIGGERS), "brief", **options)


def _operate(app: Scheduler, seconds: int) -> Counter[str]:
    """Let the operators loose; answers how often each act went through."""
    done: Counter[str] = Counter()
    problems: list[BaseException] = []
    until = time.monotonic() + seconds

    def operate(seed: int) -> None:
        chance = random.Random(seed)
        acts = _acts(app, chance)
        try:
            # On a slow machine a little longer: everything is to be done once.
            while (late := time.monotonic() - until) < 0 or (late < 60 and len(done) < len(acts)):
                act = chance.choice(list(acts))
                try:
                    acts[act](chance.choice(list(POLICIES)))
                except (ScheduleExists, ScheduleNotFound, RunRefused, ScheduleConflict):
                    continue  # others were faster
                done[act] += 1
                time.sleep(chance.uniform(0, 0.02))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=operate, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, f"an operator met {problems[0]!r}"
    assert len(done) == len(_acts(app, random.Random())), f"not everything was done: {done}"
    return done


def _acts(app: Scheduler, chance: random.Random) -> dict[str, Callable[[str], object]]:
    def change(name: str) -> object:
        if chance.random() < 0.5:
            return app.schedules.update(name, trigger=chance.choice(TRIGGERS))
        if name not in MOST:
            return app.schedules.update(name, overlap=chance.choice(OVERLAPS))
        return app.schedules.update(name, description=str(chance.random()))

    def one_of(runs: Sequence[Any]) -> str:
        if not runs:
            raise RunRefused("there is none", subject="")
        return str(chance.choice(runs).id)

    return {
        "pause": app.schedules.pause,
        "pause for a while": lambda name: app.schedules.pause(name, until="100ms"),
        "resume": app.schedules.resume,
        "resume again": app.schedules.resume,
        "update": change,
        "trigger": app.schedules.run_now,
        "reschedule": lambda name: app.schedules.reschedule(name, f"{chance.randint(20, 300)}ms"),
        "cancel": lambda name: app.runs.cancel(one_of(app.runs.list(schedule=name, limit=5))),
        "retry": lambda _: app.runs.retry(
            one_of(app.runs.list(state=chance.choice(("failed", "cancelled")), limit=10))
        ),
        "delete": app.schedules.delete,
        "add": lambda name: _add(app, name),
        "add again": lambda name: _add(app, name),
    }


def overwriting(ground: Ground) -> str | None:
    """Nodes that fire without comparing versions undo what operators changed meanwhile."""
    return caught(lambda: _play(ground, 3, "--broken", "overwriting"))


class Segment(NamedTuple):
    """What nodes alone dealt with: ticks of one schedule between two changes."""

    schedule: ScheduleRecord
    until: Instant

    @property
    def generation(self) -> int:
        return self.schedule.generation

    def ticks(self) -> list[Instant]:
        return list(_ticks(self.schedule, self.until))

    def covers(self, row: Skipped) -> bool:
        start = self.schedule.next_tick
        return self.generation == row.generation and start is not None and start <= row.first < self.until


def audit(url: str, changes: Sequence[Change], reports: Sequence[dict[str, Any]]) -> Account:
    """Every tick of every generation is a run or in the ledger, exactly once; no change is lost."""
    with opened(url) as store:
        runs = list(all_runs(store))
        every = Counter(run.id for run in runs)
        assert set(every.values()) == {1}, f"a run is there twice: {every.most_common(1)}"
        rows = store.find_schedules(
            ScheduleQuery(states=("active", "paused", "finished", "deleted"), limit=1000)
        ).items
        total = sum(_audit_schedule(store, row, runs, changes) for row in rows)
    done = Counter(report["run"] for report in reports if report["what"] == "done accepted")
    assert set(done.values()) <= {1}, "completed twice"
    succeeded = {run.id for run in runs if run.state == "succeeded"}
    assert set(done) == succeeded, "a completion that was accepted is gone, or came from nowhere"
    assert all(run.tick is None or run.created_at >= run.tick for run in runs), "a run was fired early"
    return Account(total, len(runs), len(done))


def _audit_schedule(
    store: Store, row: ScheduleRecord, runs: Sequence[RunRecord], changes: Sequence[Change]
) -> int:
    mine = sorted(
        (change for change in changes if change.planned.schedule.name == row.name),
        key=lambda change: change.planned.schedule.version,
    )
    segments = _segments(row, mine)
    expected = Counter((segment.generation, tick) for segment in segments for tick in segment.ticks())
    ledger = Counter(store.find_skipped("default", row.name, limit=1_000_000))
    found: Counter[tuple[int | None, Instant | None]] = Counter(
        (run.generation, run.tick) for run in runs if run.schedule == row.name and run.cause == "tick"
    )
    for base, planned in mine:
        expected.update((run.generation or 0, run.tick or 0) for run in planned.runs if run.cause == "tick")
        written = Counter(planned.skipped)
        assert written <= ledger, f"the ledger of {row.name} lacks what a change passed over"
        ledger -= written
        if base is not None:
            _check_change(base, planned)
    for skipped in ledger.elements():
        segment = next((segment for segment in segments if segment.covers(skipped)), None)
        assert segment is not None, f"{row.name}: no node should have skipped {skipped}"
        found.update((skipped.generation, tick) for tick in _covered(segment.schedule, skipped))
    doubled = [tick for tick, times in found.items() if times > 1]
    assert not doubled, f"{row.name} doubled a tick: {doubled[0]}"
    assert found == expected, f"{row.name} lost or invented a tick: {_difference(found, expected)}"
    passed = sum(skipped.count for _, planned in mine for skipped in planned.skipped)
    return len(expected) + passed


def _segments(row: ScheduleRecord, changes: Sequence[Change]) -> list[Segment]:
    """What nodes did between the changes, which follow each other: none is lost, none overwritten."""
    segments = []
    for change, following in zip(changes, [*changes[1:], None], strict=True):
        after = change.planned.schedule
        before = row if following is None else following.base
        assert before is not None, f"{row.name} was made twice"
        is_next = (before.generation, before.revision) == (after.generation, after.revision)
        assert is_next, f"a change of {row.name} was lost: {after} became {before}"
        if after.next_tick is not None and before.next_tick is not None:
            segments.append(Segment(after, before.next_tick))
        else:
            assert after.next_tick == before.next_tick
    return segments


def _check_change(base: ScheduleRecord, planned: Planned) -> None:
    """A change deals with all that is overdue, and with nothing twice."""
    after = planned.schedule
    covered = Counter(run.tick for run in planned.runs if run.cause == "tick")
    for skipped in planned.skipped:
        covered.update(_covered(base, skipped))
    kept = (after.generation, after.trigger) == (base.generation, base.trigger)
    until = after.next_tick if kept and after.next_tick is not None else after.updated_at + 1
    assert covered == Counter(_ticks(base, until)), (
        f"a change of {base.name} lost or doubled a tick: {planned}"
    )


def _ticks(schedule: ScheduleRecord, until: Instant) -> Iterator[Instant]:
    """The ticks of a schedule from where it stands; the first may lie off its trigger's own."""
    trigger, tick = trigger_of(schedule), schedule.next_tick
    while tick is not None and tick < until:
        yield tick
        tick = trigger.next_ms(tick)


def _covered(schedule: ScheduleRecord, skipped: Skipped) -> list[Instant]:
    """The ticks in a row of the ledger."""
    trigger = trigger_of(schedule)
    ticks = [skipped.first, *trigger.between_ms(skipped.first + 1, skipped.last + 1)]
    assert len(ticks) == skipped.count, f"{skipped} counts {skipped.count}, not {len(ticks)}"
    return ticks


def _difference(found: Counter[Any], expected: Counter[Any]) -> str:
    missing, extra = list((expected - found).elements()), list((found - expected).elements())
    return f"missing {missing[:3]} of {len(missing)}, extra {extra[:3]} of {len(extra)}"


SCENES = (
    Scene(
        "operators", races, "3 nodes; 8 threads pause, change, run, retry, cancel, delete, make, move", 6, 45
    ),
)
MUTANTS = (Mutant("overwriting", overwriting, "was lost", quick=("sqlite",)),)
