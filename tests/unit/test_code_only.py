"""Schedules without a row: nodes plan them in memory, and the id of a run keeps its tick single."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import InvalidValue, Scheduler, cron, every
from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import CatchUp, Record, RunRecord, ScheduleRecord
from evenbeat.errors import ScheduleNotFound, StoreUnavailable
from evenbeat.node.code_ticker import CodeTicker
from evenbeat.node.counting import Counting
from evenbeat.node.fallback import Fallback
from evenbeat.node.pruner import Pruner
from evenbeat.node.ticker import Ticker
from evenbeat.observe.events import Event, Events
from evenbeat.rules import attempts, changes
from evenbeat.rules import retention as rules
from evenbeat.rules.attempts import is_expired
from evenbeat.rules.code_only import GRACE, LONGEST_GRACE, MOST_LATE, in_memory, may_delete_row, run_of
from evenbeat.stores.base import Claim, Page, RunQuery, ScheduleQuery, Write
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock, virtual

MINUTE = 60_000
BEAT = ScheduleRecord(name="beat", task="work", trigger="* * * * *")


class Breaking(MemoryStore):
    """Raises where a test says so."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.broken: set[str] = set()
        self.searches = 0

    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        self.searches += 1
        self._check("find_schedules")
        return super().find_schedules(query)

    def add_runs(self, runs: Any, before: Instant | None = None) -> list[bool]:
        self._check("add_runs")
        return super().add_runs(runs, before)

    def _check(self, method: str) -> None:
        if method in self.broken:
            raise StoreUnavailable(f"{method} is broken")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> Breaking:
    made = Breaking(clock)
    made.open()
    return made


def ticker(store: MemoryStore, *wanted: ScheduleRecord, events: Events | None = None) -> CodeTicker:
    heard = Events() if events is None else events
    return CodeTicker(store, heard, Fallback(store, heard), wanted, name="n1")


def runs(store: MemoryStore, **query: Any) -> list[RunRecord]:
    found = store.find_runs(RunQuery(limit=1000, **query)).items
    return sorted(found, key=lambda run: run.tick or 0)


def ticks(store: MemoryStore) -> list[int]:
    """Return how many minutes after the first the ticks of all runs are."""
    found = [run.tick for run in runs(store) if run.tick is not None]
    return [(tick - found[0]) // MINUTE for tick in found]


def walk(clock: VirtualClock, step: Callable[[Instant], Instant | None], minutes: int) -> None:
    """Step whenever something is due."""
    end = clock.now + minutes * MINUTE
    due: Instant | None = clock.now
    while due is not None and due <= end:
        clock.now = max(clock.now, due)
        due = step(clock.now)
    clock.now = end


class TestTicks:
    def test_each_tick_becomes_one_run_with_any_number_of_nodes(
        self, store: Breaking, clock: VirtualClock
    ) -> None:
        nodes = [ticker(store, BEAT) for _ in range(3)]

        def step(now: Instant) -> Instant | None:
            return min(due for node in nodes if (due := node.step(now)) is not None)

        walk(clock, step, 5)
        assert ticks(store) == [0, 1, 2, 3, 4]
        run = runs(store)[0]
        assert run.id == f"default/beat/1/{run.tick}"
        assert (run.cause, run.fired_by, run.state) == ("tick", "n1/code", "queued")
        assert store.find_schedules(ScheduleQuery()).items == ()

    def test_a_spread_delays_each_tick_by_the_same_time(self, store: Breaking, clock: VirtualClock) -> None:
        spread = replace(BEAT, spread=50_000)
        walk(clock, ticker(store, spread).step, 3)
        delays = {run.run_at - (run.tick or 0) for run in runs(store)}
        assert len(delays) == 1
        assert 0 < delays.pop() < 50_000

    def test_rows_are_read_once_in_a_period_and_soon_after_a_hint(
        self, store: Breaking, clock: VirtualClock
    ) -> None:
        node = ticker(store, BEAT)
        for _ in range(20):
            node.step(clock.now)
            clock.advance("1s")
        assert store.searches == 1
        node.hint()
        node.step(clock.now)
        assert store.searches == 2
        clock.advance("31s")
        node.step(clock.now)
        assert store.searches == 3

    def test_without_schedules_nothing_is_asked(self, store: Breaking, clock: VirtualClock) -> None:
        assert ticker(store).step(clock.now) is None
        assert store.searches == 0

    def test_events_name_the_run(self, store: Breaking, clock: VirtualClock) -> None:
        heard: list[Event] = []
        events = Events()
        events.listen(heard.append)
        walk(clock, ticker(store, BEAT, events=events).step, 1)
        assert [(event.kind, event.schedule) for event in heard] == [("fired", "beat")]

    def test_a_fired_tick_wakes_the_workers_here_and_elsewhere_and_is_counted(
        self, store: Breaking, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        woken: list[str] = []
        monkeypatch.setattr(store, "hint", lambda: woken.append("elsewhere"))
        counting, events = Counting(), Events()
        counted: list[str] = []
        monkeypatch.setattr(
            counting, "count_fired", lambda plans, _: counted.extend(each.schedule.name for each in plans)
        )
        node = CodeTicker(
            store,
            events,
            Fallback(store, events),
            [BEAT],
            wake_worker=lambda: woken.append("here"),
            counting=counting,
        )
        node.step(clock.now)
        assert woken == []
        walk(clock, node.step, 1)
        assert woken == ["here", "elsewhere"]
        assert counted == ["beat"]

    def test_a_schedule_with_a_row_does_not_keep_the_others_from_firing(
        self, store: Breaking, clock: VirtualClock
    ) -> None:
        other = replace(BEAT, name="zeta")
        made = changes.declare(replace(BEAT, managed_by="code"), store.now(), None)
        assert made is not None
        assert store.put_schedules([Write(made, None)])[0].accepted
        walk(clock, ticker(store, BEAT, other).step, 2)
        assert {run.schedule for run in runs(store)} == {"zeta"}

    def test_rows_that_can_not_be_read_are_not_read_at_each_step(
        self, store: Breaking, clock: VirtualClock
    ) -> None:
        node = ticker(store, BEAT)
        node.step(clock.now)
        store.broken = {"find_schedules"}
        clock.advance("2m")
        before = store.searches
        for _ in range(3):
            node.hint()
            node.step(clock.now)
            clock.advance("1s")
        assert store.searches == before + 1

    def test_a_write_that_failed_is_repeated(self, store: Breaking, clock: VirtualClock) -> None:
        node = ticker(store, BEAT)
        node.step(clock.now)
        store.broken = {"add_runs"}
        clock.advance("1m")
        with pytest.raises(StoreUnavailable):
            node.step(clock.now)
        store.broken = set()
        node.step(clock.now)
        assert len(runs(store)) == 1

    def test_the_schedules_go_on_while_rows_cant_be_read(self, store: Breaking, clock: VirtualClock) -> None:
        node = ticker(store, BEAT)
        node.step(clock.now)
        store.broken = {"find_schedules"}
        walk(clock, node.step, 3)
        assert ticks(store) == [0, 1, 2]

    def test_before_the_rows_were_read_nothing_fires(self, store: Breaking, clock: VirtualClock) -> None:
        store.broken = {"find_schedules"}
        with pytest.raises(StoreUnavailable):
            ticker(store, BEAT).step(clock.now)


class TestLateTicks:
    def test_ticks_within_the_grace_run_after_an_outage(self, store: Breaking, clock: VirtualClock) -> None:
        first = ticker(store, BEAT)
        walk(clock, first.step, 1)
        clock.advance("4m")
        walk(clock, ticker(store, BEAT).step, 0)
        assert ticks(store) == [0, 1, 2, 3, 4]
        assert {run.execution.expires for run in runs(store)} == {None}

    def test_later_ones_are_recorded_as_runs_that_have_expired(
        self, store: Breaking, clock: VirtualClock
    ) -> None:
        walk(clock, ticker(store, BEAT).step, 1)
        clock.advance("20m")
        walk(clock, ticker(store, BEAT).step, 0)
        found = runs(store)
        late = [run for run in found if run.execution.expires == GRACE]
        assert len(found) == 21
        assert [(run.tick or 0) + GRACE < clock.now for run in found[1:]] == [True] * len(late) + [False] * 6

    def test_of_a_long_outage_the_newest_are_recorded(
        self, store: Breaking, clock: VirtualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        walk(clock, ticker(store, BEAT).step, 1)
        clock.advance("10d")
        walk(clock, ticker(store, BEAT).step, 0)
        assert len(runs(store)) == 1 + MOST_LATE + 6
        assert "ticks were missed" in caplog.text

    def test_a_node_that_was_frozen_skips_what_it_missed(self, store: Breaking, clock: VirtualClock) -> None:
        frozen, other = ticker(store, BEAT), ticker(store, BEAT)
        walk(clock, lambda now: min(frozen.step(now) or 0, other.step(now) or 0), 1)
        walk(clock, other.step, 30)
        frozen.step(clock.now)
        assert ticks(store) == list(range(31))
        assert {run.execution.expires for run in runs(store)} == {None}

    def test_a_new_schedule_has_missed_nothing(self, store: Breaking, clock: VirtualClock) -> None:
        ticker(store, BEAT).step(clock.now)
        assert runs(store) == []

    def test_a_new_schedule_beside_one_that_was_missed_has_missed_nothing(
        self, store: Breaking, clock: VirtualClock
    ) -> None:
        walk(clock, ticker(store, BEAT).step, 1)
        clock.advance("3m")
        ticker(store, BEAT, replace(BEAT, name="new")).step(clock.now)
        assert [run.schedule for run in runs(store)] == ["beat"] * 4

    def test_a_shorter_expiry_of_the_schedule_stays(self) -> None:
        short = replace(BEAT, execution=replace(BEAT.execution, expires=1_000))
        assert run_of(short, MINUTE, MINUTE).execution.expires == 1_000

    def test_a_schedule_may_have_a_grace_of_its_own(self) -> None:
        short = replace(BEAT, catch_up=CatchUp("skip", grace=1_000))
        assert run_of(short, MINUTE, MINUTE + 1_000).execution.expires is None
        assert run_of(short, MINUTE, MINUTE + 1_001).execution.expires == 1_000


class TestModes:
    """A rolling change of mode fires nothing twice, in either direction and any order of steps."""

    def declare(self, store: MemoryStore) -> None:
        found = store.find_schedules(
            ScheduleQuery(keys=(BEAT.key,), states=("active", "deleted"), limit=1)
        ).items
        before = found[0] if found else None
        wanted = replace(BEAT, managed_by="code")
        planned = changes.declare(wanted, store.now(), before)
        if planned is not None:
            expect = None if before is None else before.version
            assert store.put_schedules([Write(planned, expect)])[0].accepted

    def delete(self, store: MemoryStore) -> None:
        (row,) = store.find_schedules(ScheduleQuery(keys=(BEAT.key,))).items
        planned = changes.delete(row, store.now())
        assert store.put_schedules([Write(planned, row.version)])[0].accepted

    @pytest.mark.parametrize("changes_at", list(itertools.combinations_with_replacement(range(6), 3)))
    def test_no_tick_fires_twice(
        self, store: Breaking, clock: VirtualClock, changes_at: tuple[int, int, int]
    ) -> None:
        code, rows = ticker(store, BEAT), Ticker(store, Events())
        is_durable = False
        for half_minute in range(14):
            for _ in range(changes_at.count(half_minute // 2) if half_minute % 2 else 0):
                (self.delete if is_durable else self.declare)(store)
                is_durable = not is_durable
            # The old nodes still plan it in memory: they read rows only twice in a minute.
            code.step(clock.now)
            rows.step(clock.now)
            clock.advance("30s")
        fired = [run.tick for run in runs(store)]
        assert len(fired) == len(set(fired)) == 6
        assert fired == list(range(fired[0] or 0, (fired[0] or 0) + 6 * MINUTE, MINUTE))

    def test_a_tick_whose_spread_is_not_over_when_the_row_is_made_fires(
        self, store: Breaking, clock: VirtualClock
    ) -> None:
        spread = replace(BEAT, trigger="0 * * * *", spread=3_000_000)
        code = ticker(store, spread)
        code.step(clock.now)
        clock.advance("61m")
        code.step(clock.now)
        assert runs(store) == []  # its share of the spread is not over
        made = changes.declare(replace(spread, managed_by="code"), store.now(), None)
        assert made is not None
        assert store.put_schedules([Write(made, None)])[0].accepted
        walk(clock, code.step, 55)
        assert len(runs(store)) == 1

    def test_nodes_that_looked_at_different_times_give_a_tick_the_same_id(
        self, store: Breaking, clock: VirtualClock
    ) -> None:
        one, other = ticker(store, BEAT), ticker(store, BEAT)
        clock.advance("45s")
        one.step(clock.now)
        other.step(clock.now)
        self.declare(store)
        clock.advance("3s")
        self.delete(store)
        one.hint()
        clock.advance("6s")
        one.step(clock.now)
        clock.advance("6s")
        one.step(clock.now)
        other.step(clock.now)
        assert len(runs(store)) == 1

    def test_a_run_by_hand_does_not_hide_a_missed_tick(self, store: Breaking, clock: VirtualClock) -> None:
        clock.advance("30s")
        self.declare(store)
        (row,) = store.find_schedules(ScheduleQuery(keys=(BEAT.key,))).items
        planned = changes.run_now(row, "by-hand", store.now())
        assert planned is not None
        assert store.put_schedules([Write(planned, row.version)])[0].accepted
        self.delete(store)
        clock.advance("2m")
        ticker(store, BEAT).step(clock.now)
        assert sorted(run.cause for run in runs(store)) == ["run_now", "tick", "tick"]

    def test_a_live_row_is_fired_instead(self, store: Breaking) -> None:
        assert in_memory(BEAT, replace(BEAT, state="paused")) is None
        assert in_memory(BEAT, replace(BEAT, state="active")) is None
        gone = replace(BEAT, state="deleted", generation=3, updated_at=7, anchor=5)
        code = in_memory(BEAT, gone)
        assert code is not None
        assert (code.row.generation, code.row.anchor, code.since) == (4, 5, 8)

    def test_only_an_untouched_row_of_the_code_is_deleted(self) -> None:
        row = changes.declare(replace(BEAT, managed_by="code"), 0, None)
        assert row is not None
        made = row.schedule
        assert may_delete_row(made, "code")
        assert not may_delete_row(replace(made, state="paused"), "code")
        assert not may_delete_row(replace(made, managed_by="api"), "code")
        assert not may_delete_row(replace(made, queue="slow"), "code")
        assert not may_delete_row(replace(made, damage="?"), "code")
        assert not may_delete_row(replace(made, managed_by="code:billing"), "code")
        assert not may_delete_row(replace(made, managed_by="file"), "code")


class TestApp:
    def test_virtual_time_runs_them(self) -> None:
        app = Scheduler("memory://")
        seen: list[int] = []

        @app.task(schedule=every("10m"), durable=False)
        def work() -> None:
            seen.append(1)

        with virtual(app, now="2026-03-01T12:05:00Z") as scheduler:
            ended = scheduler.travel("1h")
            assert [run.tick.minute for run in ended if run.tick] == [10, 20, 30, 40, 50, 0]
            assert scheduler.schedules.list() == []
            scheduler.down_for("1h")
            states = [run.state for run in scheduler.run_pending()]
            assert states == ["cancelled"] * 5 + ["succeeded"]  # the last one is within the grace
        assert len(seen) == 7

    def test_the_mode_of_the_node_is_for_tasks_that_say_nothing(self) -> None:
        app = Scheduler("memory://", schedule_mode="code")

        @app.task(schedule=every("10m"))
        def memory() -> None: ...

        @app.task(schedule=every("10m"), durable=True)
        def canary() -> None: ...

        with virtual(app) as scheduler:
            scheduler.travel("25m")
            assert [schedule.name for schedule in scheduler.schedules.list()] == ["canary"]
            assert sorted(run.task for run in scheduler.finished) == ["canary"] * 2 + ["memory"] * 2

    def test_a_row_of_an_earlier_version_is_deleted(self, caplog: pytest.LogCaptureFixture) -> None:
        app = Scheduler("memory://")
        app.schedules.declare("work", every("10m"), "work")
        with virtual(app) as scheduler:
            scheduler.schedules.add("edited", every("10m"), "edited")

            @scheduler.task(schedule=every("10m"), durable=False)
            def edited() -> None: ...

            caplog.set_level(logging.WARNING)
            scheduler.travel("25m")
            assert "evenbeat schedules delete edited" in caplog.text
            assert [schedule.name for schedule in scheduler.schedules.list()] == ["edited"]
            assert len(scheduler.finished) == 2

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"overlap": "skip"}, "overlap of schedule work needs a row"),
            ({"catch_up": "all"}, "catch_up of schedule work needs a row"),
            ({"max_concurrent": 2}, "max_concurrent of schedule work needs a row"),
            ({"paused": True}, "paused of schedule work needs a row"),
            ({"grace": -1}, "grace"),
            ({"durable": 1}, "durable 1 is not True or False"),
        ],
    )
    def test_options_that_need_a_row_are_refused(self, options: dict[str, Any], message: str) -> None:
        app = Scheduler("memory://")
        given = {"durable": False, **options}
        with pytest.raises(InvalidValue, match=message):
            app.task(name="work", schedule=cron("0 9 * * *"), **given)(lambda: None)

    def test_they_are_refused_at_the_start_where_the_node_decides(self) -> None:
        app = Scheduler("memory://", schedule_mode="code")
        app.task(name="work", schedule=every("1h"), overlap="skip")(_nothing)
        with pytest.raises(InvalidValue, match="overlap of schedule work needs a row"):
            app.start()

    def test_a_mode_without_a_schedule_is_refused(self) -> None:
        with pytest.raises(InvalidValue, match="durable applies to a schedule"):
            Scheduler("memory://").task(name="work", durable=False)(_nothing)

    def test_a_grace_that_is_longer_than_purges_keep_runs_is_refused(self) -> None:
        app = Scheduler("memory://")
        app.task(name="work", schedule=every("1h"), durable=False, grace="61m")(_nothing)
        with pytest.raises(
            InvalidValue, match="grace 1h1m of schedule work, which is in the code only, is longer"
        ):
            app.start()

    def test_nodes_name_the_schedules_without_a_row(self) -> None:
        app = Scheduler("memory://")
        app.task(name="work", schedule=every("1h"), durable=False)(_nothing)
        app.start()
        try:
            app.task(name="later", schedule=every("1h"), durable=False)(_nothing)
            node = app.node
            assert node is not None
            node._presence.step(app.store.now())
            assert app.nodes()[0].code_only == ("later", "work")
            with pytest.raises(
                ScheduleNotFound, match=r'no row of schedule "later" .*; it is in the code only'
            ):
                app.schedules.get("later")
            stranger = Scheduler(app.store)  # without the code
            for call in (stranger.schedules.pause, stranger.schedules.get, stranger.schedules.delete):
                with pytest.raises(
                    ScheduleNotFound, match=r'no row of schedule "work" .*; it is in the code only'
                ):
                    call("work")
            with pytest.raises(ScheduleNotFound, match=r'^there is no schedule "wrok" of tenant "default"$'):
                stranger.schedules.get("wrok")
            with pytest.raises(ScheduleNotFound, match=r'^there is no schedule "work" of tenant "acme"$'):
                stranger.schedules.get("work", tenant="acme")
        finally:
            app.stop()

    def test_a_misspelt_name_is_answered_with_the_nearest(self, store: Breaking) -> None:
        app = Scheduler(store)
        app.schedules.add("load", every("1h"), "work")
        app.schedules.add("load", every("1h"), "work", tenant="acme")
        schedules = app.schedules
        words = r'^there is no schedule "loda" of tenant "default"; did you mean load\?$'
        for call in (schedules.get, schedules.pause, schedules.run_now, schedules.reset):
            with pytest.raises(ScheduleNotFound, match=words):
                call("loda")
        with pytest.raises(ScheduleNotFound, match=words):
            schedules.backfill("loda", "2h", "0s")
        with pytest.raises(ScheduleNotFound, match="the code of nodes only"):
            schedules.get("loda", tenant="other")

    def test_without_a_live_node_a_schedule_may_be_in_the_code_only(self, store: Breaking) -> None:
        app = Scheduler(store)
        known = "it may be in the code of nodes only, and no node is alive now"
        for call in (app.schedules.get, app.schedules.pause, app.schedules.run_now, app.schedules.resume):
            with pytest.raises(ScheduleNotFound) as refused:
                call("ping")
            assert str(refused.value) == f'there is no row of schedule "ping" of tenant "default"; {known}'
        assert app.schedules.why("ping").sentence == (
            f'there is no row of schedule "ping" of tenant "default", and never was one; {known}'
        )
        app.schedules.add("gone", every("1h"), "work")
        app.schedules.delete("gone")
        with pytest.raises(ScheduleNotFound, match=r'^there is no schedule "gone" of tenant "default"$'):
            app.schedules.get("gone")


def _nothing() -> None: ...


def test_an_interval_keeps_its_phase_when_it_gets_a_row() -> None:
    with virtual(now="2026-03-01T11:59:00Z") as app:
        app.task(name="ping", schedule=every("10m"), durable=False)(lambda: None)
        app.travel("2026-03-01T12:09:50Z")
        made = app.schedules.declare("ping", every("10m"), "ping")
        assert f"{made.next_run:%H:%M:%S}" == "12:10:00"
        app.travel("30m")
        ticks = [f"{run.tick:%H:%M}" for run in app.runs.list(schedule="ping") if run.tick]
        assert ticks == ["12:30", "12:20", "12:10", "12:00"]
        other = app.schedules.declare("other", every("10m"), "ping")
        assert f"{other.next_run:%H:%M:%S}" == "12:49:50"


class Stopping(MemoryStore):
    """Stops the caller of the next ``add_runs`` while others go on."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.meanwhile: Callable[[], None] | None = None

    def add_runs(self, runs: Any, before: Instant | None = None) -> list[bool]:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().add_runs(runs, before)


RULES = (rules.StoredRule(keep=MINUTE), rules.StoredRule(most=1))


@pytest.mark.parametrize("rule", RULES, ids=["keep", "most"])
class TestRetention:
    """No retention rule lets a tick fire twice: only the id of its run keeps it single."""

    def set_up(self, clock: VirtualClock, rule: rules.StoredRule) -> Stopping:
        store = Stopping(clock)
        store.open()
        owner, key = rules.record_place(None, None)
        store.put_record(Record(kind=rules.KIND, tenant=owner, key=key, body=encode(rule)))
        return store

    def go_on(self, store: Stopping, clock: VirtualClock, minutes: int, *nodes: CodeTicker) -> list[str]:
        """Let nodes fire, execute at once and purge; return the ids of the runs that were executed."""
        pruner, executed = Pruner(store, 30 * 86_400_000), []
        for _ in range(minutes):
            for node in nodes:
                node.step(clock.now)
            claim = Claim(worker="w", token=f"c{clock.now}", limit=999, now=clock.now, lease=MINUTE)
            for run in store.claim_runs(claim).runs:
                if is_expired(run, clock.now):
                    ending = attempts.expired(run, clock.now, f"x{run.id}")
                else:
                    executed.append(run.id)
                    ending = attempts.succeeded(run, "null", clock.now, f"s{run.id}")
                assert store.settle_runs([ending]) == [True]
            due = clock.now
            while due < clock.now + MINUTE:
                due = pruner.step(max(due, clock.now))
            clock.advance("1m")
        return executed

    @pytest.mark.parametrize("minutes", [4, 59, 100, 300])
    def test_a_node_that_was_stopped_fires_nothing_twice(
        self, clock: VirtualClock, rule: rules.StoredRule, minutes: int
    ) -> None:
        store = self.set_up(clock, rule)
        late = replace(BEAT, catch_up=CatchUp("skip", grace=LONGEST_GRACE))
        stopped, other = ticker(store, late), ticker(store, BEAT)
        executed = self.go_on(store, clock, 3, stopped, other)
        executed += self.go_on(store, clock, minutes, other)
        executed += self.go_on(store, clock, 3, stopped, other)
        assert len(executed) == len(set(executed)) == minutes + 5

    @pytest.mark.parametrize("minutes", [4, 80, 300])
    def test_a_node_that_is_stopped_before_it_adds_the_run_fires_nothing_twice(
        self, clock: VirtualClock, rule: rules.StoredRule, minutes: int
    ) -> None:
        store = self.set_up(clock, rule)
        stopped, other = ticker(store, BEAT), ticker(store, BEAT)
        executed = self.go_on(store, clock, 3, stopped, other)
        store.meanwhile = lambda: executed.extend(self.go_on(store, clock, minutes, other))
        executed += self.go_on(store, clock, 3, stopped, other)
        assert len(executed) == len(set(executed)) == minutes + 5

    def test_a_tick_that_nobody_else_fired_is_recorded_if_it_comes_too_late(
        self, clock: VirtualClock, rule: rules.StoredRule
    ) -> None:
        store = self.set_up(clock, rule)
        node = ticker(store, BEAT)
        self.go_on(store, clock, 1, node)
        store.meanwhile = lambda: clock.advance("3h")  # type: ignore[assignment]
        node.step(clock.now)
        assert runs(store) == []  # refused
        node.step(clock.now)
        found = runs(store)
        assert is_expired(found[0], clock.now)
        assert [(run.tick or 0) - (found[0].tick or 0) for run in found[-2:]] == [179 * MINUTE, 180 * MINUTE]

    def test_old_runs_are_deleted_in_the_end(self, clock: VirtualClock, rule: rules.StoredRule) -> None:
        store = self.set_up(clock, rule)
        self.go_on(store, clock, 300, ticker(store, BEAT))
        assert 119 <= len(runs(store)) <= 122


def test_a_purge_of_the_tenant_keeps_the_runs_that_keep_ticks_single() -> None:
    app = Scheduler("memory://", tenant="acme")

    @app.task(schedule=every("10m"), durable=False)
    def memory() -> None: ...

    with virtual(app) as scheduler:
        scheduler.travel("3h")
        scheduler.enqueue(memory)
        scheduler.run_pending()
        done = scheduler.tenants.purge("acme")
        left = scheduler.runs.list(limit=100)
        assert done.is_complete
        assert any("code-only" in words for words in done.remains)
        assert {run.schedule for run in left} == {"memory"}
        assert 12 <= len(left) <= 13
        ran = len(scheduler.finished)
        scheduler.run_pending()
        assert len(scheduler.finished) == ran
