"""The account of a schedule: each tick of its trigger left exactly one record, and a lost record is found."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evenbeat import Account, DamagedSchedule, InvalidValue, RunRefused, ScheduleNotFound, at, every
from evenbeat.core.instants import to_ms
from evenbeat.node.pruner import Pruner
from evenbeat.testing import VirtualScheduler, virtual
from evenbeat.testing.virtual_store import VirtualStore
from tests.lengths import examples

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def nothing() -> None: ...


@pytest.fixture
def app(scheduler: VirtualScheduler) -> VirtualScheduler:
    scheduler.task(name="work")(nothing)
    return scheduler


def account(app: VirtualScheduler, *args: Any, **options: Any) -> Account:
    """Return the account of the schedule ``beat``, which adds up."""
    found = app.schedules.account("beat", *args, **options)
    check_sum(found)
    assert found.adds_up, found
    return found


def check_sum(found: Account) -> None:
    parts = found.ran + found.coalesced + sum(found.skipped.values()) + found.moved + found.pending
    assert found.expected == parts + found.missing
    assert sum(found.runs.values()) == found.ran
    assert len(found.missing_ticks) == found.missing
    assert len(found.doubled_ticks) == found.doubled


def test_ticks_that_ran_are_counted_from_the_creation(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.travel("10m")
    found = account(app)
    assert (found.expected, found.ran, found.runs) == (10, 10, {"succeeded": 10})
    assert (found.counted_from_reason, found.trigger) == ("created", "every 1m")
    assert found.counted_from == NOON + timedelta(milliseconds=1)
    assert found.watermark == NOON + 11 * MINUTE
    assert found == asyncio.run(app.schedules.aaccount("beat"))


def test_a_part_of_the_time_is_counted_and_its_end_is_not(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.travel("10m")
    found = account(app, NOON + 2 * MINUTE, NOON + 5 * MINUTE)
    assert (found.expected, found.ran, found.counted_from_reason) == (3, 3, "asked")
    assert account(app, "3m").expected == 4  # 12:07 to 12:10
    assert account(app, "3m", "1m").expected == 2
    assert account(app, NOON - MINUTE).counted_from_reason == "created"
    with pytest.raises(InvalidValue, match="is not after the start"):
        app.schedules.account("beat", "1m", "3m")
    with pytest.raises(InvalidValue, match="is in the future; give an earlier time, or also an end"):
        app.schedules.account("beat", "2026-03-02T12:00Z")


def test_ticks_to_come_are_pending(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.travel("2m")
    found = account(app, until=NOON + 6 * MINUTE)
    assert (found.expected, found.ran, found.pending) == (5, 2, 3)


def test_missed_ticks_add_up_by_each_policy(app: VirtualScheduler) -> None:
    policies: dict[str, dict[str, Any]] = {
        "latest": {},
        "all": {"catch_up": "all", "catch_up_limit": 4},
        "skip": {"catch_up": "skip", "grace": "150s"},
    }
    for name, options in policies.items():
        app.schedules.add(name, every("1m"), "work", **options)
    app.down_for("10m")
    accounts = {name: app.schedules.account(name) for name in policies}
    assert all((found.pending, found.ran) == (10, 0) for found in accounts.values())
    app.run_pending()
    accounts = {name: app.schedules.account(name) for name in policies}
    for found in accounts.values():
        check_sum(found)
        assert found.adds_up
    assert {name: (found.ran, found.coalesced, found.skipped) for name, found in accounts.items()} == {
        "latest": (1, 9, {}),
        "all": (4, 0, {"limit": 6}),
        "skip": (3, 0, {"late": 7}),
    }


def test_the_ticks_of_a_pause_are_pending_until_it_ends(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.travel("3m")
    app.schedules.pause("beat")
    app.travel("4m")
    assert (account(app).ran, account(app).pending) == (3, 4)
    app.schedules.resume("beat")
    app.travel("2m")
    found = account(app)
    assert (found.ran, found.skipped, found.pending) == (5, {"paused": 4}, 0)


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        # Moved later: the ticks that are passed over are recorded.
        ("150s", {"ran": 2, "skipped": {"rescheduled": 2}, "moved": 0}),
        # Moved earlier: the run of that time stands for the tick.
        ("20s", {"ran": 3, "skipped": {}, "moved": 1}),
    ],
)
def test_a_moved_tick_is_accounted_for(app: VirtualScheduler, to: str, expected: dict[str, Any]) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.schedules.reschedule("beat", to)
    app.travel("4m10s")
    found = account(app)
    assert {"ran": found.ran, "skipped": found.skipped, "moved": found.moved} == expected
    assert found.expected == 4


def test_a_moved_tick_is_found_though_it_fired_late(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("10m"), "work", catch_up="all")
    app.travel("10m")
    app.schedules.reschedule("beat", "5m")
    app.down_for("35m")
    app.run_pending()
    found = account(app)
    assert (found.expected, found.ran, found.moved) == (4, 3, 1)


def test_a_moved_tick_that_is_skipped_is_found_in_the_ledger(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("10m"), "work")
    app.schedules.reschedule("beat", "5m")
    app.schedules.pause("beat")
    app.down_for("8m")
    app.schedules.resume("beat")
    app.travel("20m")
    found = account(app)
    assert (found.expected, found.ran, found.moved, found.skipped) == (2, 1, 1, {})


def test_ticks_that_are_passed_over_before_the_start_are_not_missing(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work", start_at=NOON + 60 * MINUTE)
    app.travel("1m")
    app.schedules.reschedule("beat", NOON + 63 * MINUTE)
    app.travel("64m")
    found = account(app)
    assert found.skipped == {"rescheduled": 3}
    assert (found.expected, found.ran) == (6, 3)
    assert app.schedules.why("beat", NOON + 61 * MINUTE).verdict == "rescheduled"


def test_a_tick_that_is_moved_exactly_onto_one_that_ran_is_not_missing(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.travel("2m")
    assert app.now == NOON + 2 * MINUTE
    app.schedules.reschedule("beat", app.now)  # 12:03 runs at 12:02, where a run is already
    app.travel("3m")
    found = account(app)
    assert (found.expected, found.ran, found.moved) == (5, 4, 1)
    assert len(app.runs.list()) == 5
    assert app.schedules.why("beat", NOON + 3 * MINUTE).verdict == "rescheduled"
    # One moved tick stands for one tick: another one without a record is missing.
    store = app.store
    assert isinstance(store, VirtualStore)
    (lost,) = [run for run in app.runs.list() if run.tick == NOON + 4 * MINUTE]
    del store._runs[lost.id]
    assert ticks(app.schedules.account("beat"), "missing") == [4]


def test_a_tick_that_is_moved_exactly_onto_a_skipped_one_is_not_missing(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work", catch_up="skip", grace="0s")
    app.down_for("150s")
    app.travel("30s")
    app.schedules.reschedule("beat", app.now)
    app.travel("3m")
    found = account(app)
    assert (found.expected, found.moved) == (6, 1)


def test_ticks_that_are_moved_back_again_and_again_have_runs_of_many_generations(
    app: VirtualScheduler,
) -> None:
    app.schedules.add("beat", every("1m"), "work")
    for _ in range(5):
        app.travel("2m10s")
        app.schedules.reschedule("beat", "5s")
    app.travel("2m")
    found = account(app)
    assert (found.ran + found.moved, found.moved) == (found.expected, 5)


def test_a_tick_that_was_passed_over_and_is_moved_back_runs(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.schedules.reschedule("beat", "4m30s")
    app.schedules.reschedule("beat", "2m")  # one of the ticks that were passed over
    found = account(app, until=NOON + 6 * MINUTE)
    assert (found.expected, found.skipped, found.pending) == (5, {"rescheduled": 3}, 2)
    app.travel("7m")
    found = account(app)
    assert (found.expected, found.ran, found.skipped) == (7, 4, {"rescheduled": 3})


def test_a_new_trigger_begins_a_new_account(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.travel("3m30s")
    app.schedules.update("beat", trigger=every("30s"))
    app.travel("2m")
    found = account(app)
    assert (found.expected, found.ran, found.counted_from_reason) == (4, 4, "trigger")
    assert found.counted_from == NOON + timedelta(minutes=3, seconds=30, milliseconds=1)
    # Another change of the definition does not.
    app.schedules.update("beat", priority=9)
    app.travel("1m")
    assert account(app).expected == 6


def test_ticks_that_were_passed_over_count_for_the_trigger_of_then_alone(app: VirtualScheduler) -> None:
    app.schedules.add("beat", "*/2 * * * *", "work")
    app.schedules.reschedule("beat", "9m")  # passes over 12:02 to 12:08
    app.travel("1s")
    app.schedules.update("beat", trigger="*/4 * * * *")
    found = account(app, until=NOON + 9 * MINUTE)
    assert (found.expected, found.pending, found.skipped) == (2, 2, {})


@pytest.mark.parametrize("trigger", ["*/5 * * * *", "every 5m", "every 5m start=2026-03-01T00:00:00Z"])
@pytest.mark.parametrize("start", [60, 58, -3])
def test_a_schedule_with_a_start_counts_from_it(app: VirtualScheduler, trigger: str, start: int) -> None:
    app.schedules.add("beat", trigger, "work", start_at=NOON + start * MINUTE)
    app.travel("90m")
    found = account(app)
    assert found.ran == found.expected > 5


def test_the_spread_does_not_change_the_ticks(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work", spread="50s")
    app.travel("5m")
    found = account(app)
    assert (found.expected, found.ran + found.pending) == (5, 5)
    app.schedules.update("beat", spread="0s")
    assert account(app).ran == 5


def test_a_single_instant_is_one_tick(app: VirtualScheduler) -> None:
    app.schedules.add("beat", at("2026-02-01T00:00:00Z"), "work")
    app.run_pending()
    assert (account(app).expected, account(app).ran) == (1, 1)
    app.schedules.delete("beat")
    app.schedules.add("beat", at("2026-03-01T14:00:00Z"), "work")
    app.schedules.reschedule("beat", "10m")
    assert account(app, until="2026-03-02T00:00Z").pending == 1
    app.travel("3h")
    found = account(app)
    assert (found.expected, found.moved, found.ran) == (1, 1, 0)


def test_ticks_that_wait_for_a_run_are_pending_and_then_add_up(app: VirtualScheduler) -> None:
    @app.task(name="flaky", retries=1, backoff="150s")
    def flaky() -> None:
        raise ValueError

    for overlap in ("queue", "queue_all", "skip", "cancel_running"):
        app.schedules.add(overlap, every("1m"), "flaky", overlap=overlap)
    app.schedules.add("few", every("1m"), "flaky", max_concurrent=2)
    app.travel("2m30s")
    waiting = {name: app.schedules.account(name) for name in ("queue", "queue_all", "skip", "few")}
    assert waiting["queue"].pending == waiting["queue_all"].pending == 1
    assert waiting["skip"].skipped == {"overlap": 1}
    app.travel("20m")
    for name in ("queue", "queue_all", "skip", "cancel_running", "few"):
        found = app.schedules.account(name)
        check_sum(found)
        assert found.adds_up, (name, found)
        assert found.ran > 1


def test_the_account_of_a_deleted_schedule_ends_with_it(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.travel("3m")
    app.down_for("2m30s")
    app.schedules.delete("beat")
    app.travel("1h")
    found = account(app)
    assert (found.expected, found.ran, found.skipped) == (5, 3, {"deleted": 2})
    app.schedules.add("beat", every("1m"), "work")
    app.travel("2m")
    assert account(app).expected == 2


def test_purged_history_is_not_missing(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.travel("60m")
    pruner = Pruner(app.store, retention=to_ms(app.now) - to_ms(NOON + 40 * MINUTE))
    pruner.step(app.store.now())
    found = account(app)
    assert (found.counted_from_reason, found.counted_from) == ("purged", NOON + 40 * MINUTE)
    assert found.expected == found.ran == 21
    assert account(app, NOON + 30 * MINUTE).counted_from_reason == "purged"
    assert account(app, NOON + 50 * MINUTE).counted_from_reason == "asked"


def test_history_that_is_purged_while_it_is_read_is_not_missing(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.travel("60m")
    store = app.store
    assert isinstance(store, VirtualStore)
    whole = account(app)
    read = store.find_skipped

    def purge_first(*args: Any, **options: Any) -> Any:
        Pruner(store, retention=600_000).step(store.now())
        return read(*args, **options)

    store.find_skipped = purge_first  # type: ignore[method-assign]
    found = account(app)
    assert (found.counted_from_reason, found.expected, found.ran) == ("purged", 11, 11)
    assert (found.counted_from, found.counted_until) == (NOON + 50 * MINUTE, whole.counted_until)


def test_more_ticks_than_a_page_has_are_found(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1s"), "work", overlap="skip")
    app.travel("21m")
    app.schedules.reschedule("beat", "500ms")
    app.travel("30s")
    found = account(app)
    assert (found.expected, found.ran, found.moved) == (1290, 1289, 1)


def test_too_many_ticks_are_refused_with_a_hint(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1s"), "work")
    app.down_for("2d")
    with pytest.raises(InvalidValue, match=r"172,800 ticks.*shorten the period"):
        app.schedules.account("beat")
    assert account(app, "1h").pending == 3601


def test_an_account_belongs_to_its_tenant(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work", tenant="acme")
    app.travel("2m")
    assert app.schedules.account("beat", tenant="acme").ran == 2
    with pytest.raises(ScheduleNotFound):
        app.schedules.account("beat")


def test_a_damaged_schedule_has_no_account(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    store = app.store
    assert isinstance(store, VirtualStore)
    key = ("default", "beat")
    store._schedules[key] = replace(store._schedules[key], damage="trigger: no")
    with pytest.raises(DamagedSchedule):
        app.schedules.account("beat")


# -- lost records are found


@pytest.fixture
def busy(app: VirtualScheduler) -> VirtualScheduler:
    """A schedule with runs, coalesced ticks and a pause."""
    app.schedules.add("beat", every("1m"), "work")
    app.travel("5m")
    app.down_for("5m")
    app.travel("5m")
    app.schedules.pause("beat")
    app.travel("5m")
    app.schedules.resume("beat")
    app.travel("5m")
    found = account(app)
    assert (found.expected, found.coalesced, found.skipped) == (25, 4, {"paused": 5})
    return app


def broken(app: VirtualScheduler) -> tuple[VirtualStore, Any]:
    store = app.store
    assert isinstance(store, VirtualStore)
    return store, store._skipped["default", "beat"]


def ticks(found: Account, kind: str) -> list[int]:
    return [(tick - NOON) // MINUTE for tick in getattr(found, f"{kind}_ticks")]


@pytest.mark.parametrize("minute", [1, 3, 10, 15, 25])
def test_a_run_that_was_deleted_is_missing(busy: VirtualScheduler, minute: int) -> None:
    store, _ = broken(busy)
    tick = to_ms(NOON + minute * MINUTE)
    del store._runs[f"default/beat/1/{tick}"]
    found = busy.schedules.account("beat")
    check_sum(found)
    assert not found.adds_up
    assert ticks(found, "missing") == [minute]
    # Also if the tick before it is not part of the period.
    assert ticks(busy.schedules.account("beat", NOON + minute * MINUTE), "missing") == [minute]


def test_a_row_of_the_ledger_that_was_deleted_is_missing(busy: VirtualScheduler) -> None:
    _, ledger = broken(busy)
    del ledger[0]
    found = busy.schedules.account("beat")
    check_sum(found)
    assert ticks(found, "missing") == [6, 7, 8, 9]


def test_a_tick_that_was_removed_from_a_row_of_the_ledger_is_missing(busy: VirtualScheduler) -> None:
    _, ledger = broken(busy)
    row = ledger[1]
    ledger[1] = replace(row, count=row.count - 1)
    assert ticks(busy.schedules.account("beat"), "missing") == [20]
    ledger[1] = replace(row, first=row.first + 60_000, count=row.count - 1)
    assert ticks(busy.schedules.account("beat"), "missing") == [16]


def test_a_tick_with_two_records_is_doubled(busy: VirtualScheduler) -> None:
    _, ledger = broken(busy)
    row = ledger[1]
    ledger.append(replace(row, last=row.first, count=1, reason="late"))
    found = busy.schedules.account("beat")
    check_sum(found)
    assert (ticks(found, "doubled"), found.missing) == ([16], 0)
    ledger[-1] = replace(row, first=row.first - 60_000, last=row.first - 60_000, count=1)
    assert ticks(busy.schedules.account("beat"), "doubled") == [15]  # it ran, too


# -- any operations

TRIGGERS = ["every 1m", "every 37s", "*/2 * * * *", "20,50 * * * * *", "every 5m start=2026-03-01T11:58:03Z"]
OPTIONS: dict[str, list[Any]] = {
    "catch_up": ["latest", "all", "skip"],
    "overlap": ["allow", "skip", "queue", "queue_all", "cancel_running"],
    "spread": ["0s", "45s"],
    "max_concurrent": [None, 1, 2],
}
KINDS = [
    "travel",
    "travel",
    "down",
    "pause",
    "pause_until",
    "resume",
    "update",
    "trigger",
    "move",
    "move",
    "run_now",
    "delete",
]
lengths = st.integers(1, 400_000).map(lambda ms: timedelta(milliseconds=ms))


@st.composite
def operations(draw: st.DrawFn) -> tuple[str, Any]:
    kind = draw(st.sampled_from(KINDS))
    if kind == "update":
        name = draw(st.sampled_from(sorted(OPTIONS)))
        return kind, {name: draw(st.sampled_from(OPTIONS[name]))}
    return kind, draw(st.sampled_from(TRIGGERS)) if kind in ("trigger", "delete") else draw(lengths)


def apply(app: VirtualScheduler, kind: str, argument: Any) -> None:
    schedules = app.schedules
    if kind == "travel":
        app.travel(argument)
    elif kind == "down":
        app.down_for(argument)
    elif kind == "pause":
        schedules.pause("beat")
    elif kind == "pause_until":
        schedules.pause("beat", until=argument)
    elif kind == "resume":
        schedules.resume("beat")
    elif kind == "update":
        schedules.update("beat", **argument)
    elif kind == "trigger":
        schedules.update("beat", trigger=argument)
    elif kind == "move":
        # Not to a tick of the trigger: a user may move a tick to the time of one that ran.
        schedules.reschedule("beat", to_odd(app.now + argument))
    elif kind == "run_now":
        with suppress(RunRefused):
            schedules.run_now("beat")
    else:
        schedules.delete("beat")
        check_sum(schedules.account("beat"))
        schedules.add("beat", argument, "work")


def to_odd(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 // 2 * 2000 + 1000)


@settings(max_examples=examples(150), deadline=None)
@given(trigger=st.sampled_from(TRIGGERS), steps=st.lists(operations(), max_size=12), fails=st.integers(1, 4))
def test_the_account_adds_up_after_any_operations(
    trigger: str, steps: list[tuple[str, Any]], fails: int
) -> None:
    with virtual() as app:
        started = 0

        @app.task(name="work", retries=1, backoff="100s")
        def work() -> None:
            nonlocal started
            started += 1
            if started % fails == 0:
                raise ValueError

        app.schedules.add("beat", trigger, work)
        for kind, argument in steps:
            apply(app, kind, argument)
            account(app)
        app.travel("10m")
        whole = account(app)
        middle = whole.counted_from + (whole.counted_until - whole.counted_from) / 2
        middle = middle.replace(microsecond=middle.microsecond // 1000 * 1000)
        if middle > whole.counted_from:
            halves = account(app, until=middle), account(app, middle)
            assert sum(half.expected for half in halves) == whole.expected


@pytest.mark.parametrize("generation", [1, 2, 5])
def test_two_runs_of_a_tick_are_shown_also_of_two_generations(app: VirtualScheduler, generation: int) -> None:
    """Each generation gives the run of a tick another id, so the store keeps both."""
    app.schedules.add("beat", every("1m"), "work")
    app.travel("1m")
    app.schedules.delete("beat")
    app.schedules.add("beat", every("1m"), "work")
    app.travel("3m")
    account(app)  # adds up
    store = app.store
    assert isinstance(store, VirtualStore)
    (run,) = [run for run in store._runs.values() if run.tick == to_ms(NOON + 3 * MINUTE)]
    assert run.generation == 2
    other = replace(run, id=f"default/beat/{generation}/x{run.tick}", generation=generation)
    store.add_runs([replace(other, state="queued", attempt=0, finished_at=None)])
    found = app.schedules.account("beat")
    assert not found.adds_up
    assert ticks(found, "doubled") == [3]
    assert (found.expected, found.ran, found.missing) == (3, 3, 0)
