"""``app.schedules``, call by call: about whom, with what answer, and what happens when others write too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import (
    InvalidValue,
    RunExists,
    RunRefused,
    ScheduleConflict,
    ScheduleNotFound,
    Scheduler,
    cron,
    every,
)
from evenbeat.core.records import ScheduleRecord
from evenbeat.rules.firing import Planned, plan
from evenbeat.stores.base import Claim, Page, ScheduleQuery, Write, Written
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock, VirtualScheduler

HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def app(clock: VirtualClock) -> Scheduler:
    app = Scheduler(MemoryStore(clock))
    app.task(name="work")(lambda value=0: value)
    return app


CALLS: dict[str, Callable[..., Any]] = {
    "get": lambda app, **who: app.schedules.get("beat", **who),
    "next_run": lambda app, **who: app.schedules.next_run("beat", **who),
    "preview": lambda app, **who: app.schedules.preview("beat", **who),
    "pause": lambda app, **who: app.schedules.pause("beat", **who),
    "resume": lambda app, **who: app.schedules.resume("beat", **who),
    "reschedule": lambda app, **who: app.schedules.reschedule("beat", "5m", **who),
    "update": lambda app, **who: app.schedules.update("beat", priority=9, **who),
    "trigger": lambda app, **who: app.schedules.run_now("beat", **who),
    "trigger with a payload": lambda app, **who: app.schedules.run_now("beat", {"value": 1}, **who),
    "skipped": lambda app, **who: app.schedules.skipped("beat", **who),
    "history": lambda app, **who: app.schedules.stats("beat", **who),
    "delete": lambda app, **who: app.schedules.delete("beat", **who),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_is_about_the_tenant_that_is_named(app: Scheduler, call: str) -> None:
    app.schedules.add("beat", every("1h"), "work", tenant="acme")
    with pytest.raises(ScheduleNotFound):
        CALLS[call](app)
    CALLS[call](app, tenant="acme")
    app.schedules.add("beat", every("1h"), "work")
    CALLS[call](app)


@pytest.mark.parametrize("call", CALLS)
def test_what_was_deleted_is_gone_but_for_its_history(app: Scheduler, call: str) -> None:
    app.schedules.add("beat", every("1h"), "work")
    app.schedules.delete("beat")
    if call in ("skipped", "history"):
        CALLS[call](app)
    else:
        with pytest.raises(ScheduleNotFound):
            CALLS[call](app)


def test_what_is_said_of_a_decorated_schedule_that_is_not_declared_yet_says_so(app: Scheduler) -> None:
    app.task(name="digest", schedule="every 1h")(lambda: None)
    with pytest.raises(ScheduleNotFound, match="declared when a node starts"):
        app.schedules.get("digest")
    for name, tenant in (("work", None), ("digest", "acme"), ("nobody", None)):
        with pytest.raises(ScheduleNotFound) as refused:
            app.schedules.get(name, tenant=tenant)
        assert "declared" not in str(refused.value)


def test_the_next_run_of_a_pause_is_known_if_its_end_is(app: Scheduler) -> None:
    app.schedules.add("beat", every("1h"), "work")
    coming = app.schedules.next_run("beat")
    assert coming is not None
    app.schedules.pause("beat", until="90m")
    assert app.schedules.next_run("beat") == coming + HOUR
    app.schedules.pause("beat")
    assert app.schedules.next_run("beat") is None
    assert app.schedules.get("beat").state == "paused"


def test_a_pause_keeps_its_note_and_does_not_end_at_once(app: Scheduler, clock: VirtualClock) -> None:
    app.schedules.add("beat", every("1h"), "work")
    assert app.schedules.pause("beat", "the database moves").pause_note == "the database moves"
    assert app.schedules.pause("beat").pause_note == "the database moves"
    now = datetime.fromtimestamp(clock.now / 1000, UTC)
    for over in (now, now - HOUR):
        with pytest.raises(InvalidValue, match="is in the past"):
            app.schedules.pause("beat", until=over)
    assert app.schedules.pause("beat", until="1s").paused_until == now + timedelta(seconds=1)


def test_a_tick_is_moved_to_now_at_the_earliest(app: Scheduler, clock: VirtualClock) -> None:
    app.schedules.add("beat", every("1h"), "work")
    now = datetime.fromtimestamp(clock.now / 1000, UTC)
    with pytest.raises(InvalidValue, match="is in the past"):
        app.schedules.reschedule("beat", now - timedelta(milliseconds=1))
    assert app.schedules.reschedule("beat", now).next_run == now


def test_five_ticks_are_shown_by_default(app: Scheduler, clock: VirtualClock) -> None:
    now = datetime.fromtimestamp(clock.now / 1000, UTC)
    assert app.schedules.preview("every 1h") == [now + HOUR * number for number in range(1, 6)]
    assert app.schedules.preview(every("1h"), 2) == [now + HOUR, now + HOUR * 2]
    since = now + HOUR * 10
    ticks = app.schedules.preview(cron("0 * * * *"), 2, since=since)
    assert all(tick > since for tick in ticks)
    app.schedules.add("beat", every("1h"), "work")
    assert app.schedules.preview("beat", 1, since=since) == [since + HOUR]
    app.schedules.add("once", "at 2020-01-01T00:00:00Z", "work")
    app.schedules.reschedule("once", now)
    clock.advance("1s")
    app.store.fire_due(clock.now, 10, plan)
    assert app.schedules.preview("once") == []


def test_a_trigger_is_a_run_of_its_own_id_and_payload(app: Scheduler) -> None:
    app.schedules.add("beat", every("1h"), "work", {"value": 1})
    run = app.schedules.run_now("beat")
    assert (run.payload, run.cause, run.schedule, run.tick) == ({"value": 1}, "run_now", "beat", None)
    assert app.schedules.run_now("beat", {"value": 2}).payload == {"value": 2}
    assert app.schedules.run_now("beat", id="mine").id == "mine"
    assert app.schedules.run_now("beat", {"value": 3}, id="mine").payload == {"value": 1}
    with pytest.raises(InvalidValue):
        app.schedules.run_now("beat", {"volume": 3})


def test_the_ledger_is_shown_as_far_as_asked(scheduler: VirtualScheduler) -> None:
    scheduler.task(name="work")(lambda: None)
    scheduler.schedules.add("beat", every("1h"), "work")
    for _ in range(3):
        scheduler.schedules.pause("beat")
        scheduler.travel("+2h")
        scheduler.schedules.resume("beat")
    rows = scheduler.schedules.skipped("beat")
    assert [(row.reason, row.count) for row in rows] == [("paused", 2)] * 3
    assert rows[0].first > rows[1].first > rows[2].first
    assert scheduler.schedules.skipped("beat", 2) == rows[:2]


def test_figures_come_in_the_order_they_are_asked_for(scheduler: VirtualScheduler) -> None:
    scheduler.task(name="work")(lambda: None)
    scheduler.schedules.add("a", every("1h"), "work")
    scheduler.schedules.add("b", every("2h"), "work")
    scheduler.travel("+4h")
    assert [each.run_count for each in scheduler.schedules.stats(["b", "a"])] == [2, 4]
    assert [each.run_count for each in scheduler.schedules.stats(scheduler.schedules.list())] == [4, 2]
    assert scheduler.schedules.stats("a").run_count == 4


@pytest.mark.parametrize("name", ["", "a b", "a\x00", "\ud800", "x" * 201], ids=ascii)
def test_a_name_that_no_schedule_can_have_is_refused_without_asking_the_store(
    clock: VirtualClock, name: str
) -> None:
    class Closed(MemoryStore):
        def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
            raise AssertionError(f"asked for {query.name!r}")

    app = Scheduler(Closed(clock))
    for call in (
        lambda: app.schedules.add(name, every("1h"), "work"),
        lambda: app.schedules.declare(name, every("1h"), "work"),
        lambda: app.schedules.pause(name),
        lambda: app.schedules.run_now(name),
    ):
        with pytest.raises(InvalidValue) as refused:
            call()
        assert refused.value.field == "name"


def test_an_option_that_there_is_not_is_refused(app: Scheduler) -> None:
    app.schedules.add("beat", every("1h"), "work")
    wrong: dict[str, Any] = {"colour": "red"}
    for call in (
        lambda: app.schedules.update("beat", **wrong),
        lambda: app.schedules.add("other", every("1h"), "work", **wrong),
        lambda: app.enqueue("work", **wrong),
    ):
        with pytest.raises(InvalidValue, match="colour"):
            call()


def test_run_now_counts_when_the_schedule_is_made_and_no_more(app: Scheduler) -> None:
    app.schedules.declare("beat", every("1h"), "work", run_now=True)
    assert app.runs.count() == {"queued": 1}
    app.schedules.declare("beat", every("1h"), "work", run_now=True)
    app.schedules.declare("beat", every("2h"), "work", run_now=True)
    assert app.runs.count() == {"queued": 1}
    app.schedules.delete("beat")
    app.schedules.declare("beat", every("2h"), "work", run_now=True)
    assert app.runs.count() == {"queued": 2}


def test_run_now_counts_as_a_fire(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenbeat.app.rows.secrets.randbits", lambda _: 7)
    app.schedules.add("plain", every("1h"), "work")
    app.schedules.add("first", every("1h"), "work", run_now=True)
    found = {row.name: row.fire_seq for row in app.store.find_schedules(ScheduleQuery()).items}
    assert found["first"] == found["plain"] + 1


def test_runs_of_a_deleted_namesake_leave_no_room_for_another(app: Scheduler) -> None:
    app.schedules.add("beat", every("1h"), "work", overlap="skip", run_now=True)
    app.schedules.delete("beat")
    with pytest.raises(RunRefused, match="earlier schedule beat"):
        app.schedules.add("beat", every("1h"), "work", overlap="skip", run_now=True)
    app.schedules.add("beat", every("1h"), "work", overlap="skip")


@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_policy_counts_the_active_runs_of_its_own_schedule_alone(
    app: Scheduler, clock: VirtualClock, state: str
) -> None:
    for name, tenant in (("beat", None), ("other", None), ("beat", "acme")):
        app.schedules.add(name, every("1h"), "work", overlap="skip", tenant=tenant)
    app.enqueue("work", id="by-hand")
    app.schedules.run_now("beat")
    if state == "running":
        app.store.claim_runs(Claim(worker="w", token="t", limit=9, now=clock.now, lease=1_000))
    with pytest.raises(RunRefused, match=r"beat has 1 active run"):
        app.schedules.run_now("beat")
    app.schedules.run_now("other")
    app.schedules.run_now("beat", tenant="acme")


# -- others write, too ---------------------------------------------------------------------------------------


class Contested(MemoryStore):
    """Another one is faster, so many times."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.losses = 0
        self.tries = 0

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        self.tries += 1
        if self.losses:
            self.losses -= 1
            (write,) = writes
            (row,) = self.find_schedules(ScheduleQuery(name=write.planned.schedule.name)).items
            super().put_schedules([Write(Planned(_touched(row)), row.version)])
        return super().put_schedules(writes)


def _touched(schedule: ScheduleRecord) -> ScheduleRecord:
    return replace(schedule, description=f"{schedule.description}+", revision=schedule.revision + 1)


def test_a_write_that_loses_is_made_again_upon_what_won(clock: VirtualClock) -> None:
    store = Contested(clock)
    app = Scheduler(store)
    app.schedules.add("beat", every("1h"), "work")
    store.losses, store.tries = 3, 0
    changed = app.schedules.update("beat", queue="slow")
    assert (changed.queue, changed.description) == ("slow", "+++")
    assert store.tries == 4


def test_a_write_that_never_wins_is_an_error_in_the_end(clock: VirtualClock) -> None:
    store = Contested(clock)
    app = Scheduler(store)
    app.schedules.add("beat", every("1h"), "work")
    store.losses = 10_000
    with pytest.raises(ScheduleConflict, match="beat"):
        app.schedules.update("beat", priority=9)


class Overtaken(MemoryStore):
    """Lets another call write right before the next write of a schedule."""

    overtake: Callable[[], object] | None = None

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        overtake, self.overtake = self.overtake, None
        if overtake is not None:
            overtake()
        return super().put_schedules(writes)


def test_an_id_that_another_schedule_takes_meanwhile_is_refused(clock: VirtualClock) -> None:
    store = Overtaken(clock)
    app = Scheduler(store)
    for name in ("beat", "other"):
        app.schedules.add(name, every("1h"), "work")
    store.overtake = lambda: app.schedules.run_now("other", id="mine")
    with pytest.raises(RunExists, match="other"):
        app.schedules.run_now("beat", id="mine")
    # A call that repeats the same one gets the run that is there.
    store.overtake = lambda: app.schedules.run_now("beat", {"value": 1}, id="again")
    assert app.schedules.run_now("beat", {"value": 2}, id="again").payload == {"value": 1}
