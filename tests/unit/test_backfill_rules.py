"""The rules of backfills: which ticks they have, in which order, and what each step reserves and counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenbeat.core.records import Execution, Record, RunRecord, ScheduleRecord
from evenbeat.node.duties import PeriodicDuties
from evenbeat.rules import backfills as rules
from evenbeat.rules.backfills import StoredBackfill
from evenbeat.triggers import parse_trigger

HOUR = 3_600_000
NOW = 1_772_366_400_000
ROW = ScheduleRecord(name="s", task="t", trigger="every 1h", anchor=NOW, created_at=NOW, next_tick=NOW + HOUR)


def made(ticks: int = 6, **fields: Any) -> StoredBackfill:
    usual: dict[str, Any] = {
        "schedule": "s",
        "schedule_since": NOW,
        "generation": 1,
        "trigger": "every 1h",
        "anchor": NOW,
        "start": NOW - ticks * HOUR,
        "end": NOW,
        "first": NOW - ticks * HOUR,
        "last": NOW - HOUR,
        "ticks": ticks,
        "total": ticks,
        "created_at": NOW,
    }
    return StoredBackfill(**{**usual, **fields})


@given(
    ticks=st.integers(1, 40),
    skipped=st.sets(st.integers(0, 39)),
    rooms=st.lists(st.integers(0, 7), min_size=60, max_size=60),
    order=st.sampled_from(["oldest", "newest"]),
    most=st.integers(1, 9),
)
def test_all_ticks_but_the_skipped_ones_are_reserved_once_and_in_order(
    ticks: int, skipped: set[int], rooms: list[int], order: Any, most: int
) -> None:
    whole = [NOW - (ticks - place) * HOUR for place in range(ticks)]
    gone = {whole[place] for place in skipped if place < ticks}
    backfill = made(ticks, order=order, max_concurrent=most, skips=rules.write_skips(whole, gone))
    found: list[int] = []
    for room in [*rooms, *[9] * ticks]:
        before = backfill.outstanding
        backfill = rules.reserving(backfill, room)
        assert backfill.outstanding <= max(before, min(most, before + room))
        found += backfill.reserved
        # All of them are written, and end at once.
        body = f"[{','.join(map(str, backfill.reserved))}]"
        batch = Record(kind=rules.BATCH, key=rules.batch_key("b", backfill.batch), body=body)
        backfill = rules.confirmed(backfill, [batch]) if backfill.reserved else backfill
        backfill = rules.counted(backfill, {})
        backfill = rules.finished(backfill, NOW)
    wanted = [tick for tick in whole if tick not in gone]
    assert found == (wanted if order == "oldest" else wanted[::-1])
    assert (backfill.state, backfill.purged, backfill.position) == ("done", len(wanted), ticks)


@pytest.mark.parametrize("room", [0, -1])
def test_without_room_nothing_is_reserved(room: int) -> None:
    assert rules.reserving(made(), room) == made()
    full = made(max_concurrent=1, written=(NOW - HOUR, NOW - 2 * HOUR))
    assert rules.reserving(full, 5) == full


def test_only_the_ticks_of_the_present_batch_are_confirmed() -> None:
    backfill = replace(made(), reserved=(1, 2, 3), batch=4)
    old = Record(kind=rules.BATCH, key="b/3", body="[1]")
    assert rules.confirmed(backfill, [old]) == backfill
    after = rules.confirmed(backfill, [old, Record(kind=rules.BATCH, key="b/4", body="[2,3]")])
    assert (after.reserved, after.written, after.batch) == ((1,), (2, 3), 5)


def test_ends_are_counted_by_state_and_the_last_failures_are_named() -> None:
    states = ["succeeded", "failed", "cancelled", "queued", "running"]
    runs = {
        tick: RunRecord(id=str(tick), task="t", state=state)  # type: ignore[arg-type]
        for tick, state in enumerate(states)
    }
    after = rules.counted(replace(made(), written=(0, 1, 2, 3, 4, 5)), runs)
    assert (after.succeeded, after.failed, after.cancelled, after.purged) == (1, 1, 1, 1)
    assert (after.written, after.failed_ticks) == ((3, 4), (1,))
    many = replace(made(), written=tuple(range(30)))
    failed = {tick: RunRecord(id=str(tick), task="t", state="failed") for tick in range(30)}
    assert rules.counted(many, failed).failed_ticks == tuple(range(10, 30))


@pytest.mark.parametrize(
    ("fields", "active", "room"),
    [
        ({}, 50, 100),
        ({"overlap": "queue"}, 0, 1),
        ({"overlap": "skip"}, 1, 0),
        ({"max_concurrent": 3}, 1, 2),
        ({"max_concurrent": 3}, 5, 0),
        ({"max_concurrent": 3, "overlap": "cancel_running"}, 0, 1),
        ({"payload": "x" * 1_000_000}, 0, 4),
    ],
)
def test_the_policies_of_the_schedule_bound_a_write(fields: dict[str, Any], active: int, room: int) -> None:
    assert rules.policy_room(replace(ROW, **fields), active) == room


def test_a_due_tick_goes_first_only_where_active_runs_count() -> None:
    due = replace(ROW, next_tick=NOW)
    assert rules.obstacle(due, NOW) == ""
    assert "goes first" in rules.obstacle(replace(due, overlap="queue"), NOW)
    assert rules.obstacle(replace(due, overlap="queue", next_tick=NOW + 1), NOW) == ""
    assert rules.obstacle(replace(due, overlap="queue", state="finished"), NOW) == ""
    assert rules.obstacle(replace(due, overlap="queue", next_tick=None), NOW) == ""
    assert "paused" in rules.obstacle(replace(ROW, state="paused"), NOW)
    assert "read" in rules.obstacle(replace(ROW, damage="torn"), NOW)
    assert "read" in rules.obstacle(replace(ROW, format=99), NOW)


def test_a_write_leaves_the_last_fire_and_wakes_a_tick_that_waits() -> None:
    backfill = replace(made(payload='{"a":1}'), reserved=(NOW - 2 * HOUR, NOW - HOUR))
    planned = rules.writing(replace(ROW, last_fire=5), "b", backfill, 2, NOW)
    assert (planned.schedule.last_fire, planned.schedule.fire_seq) == (5, 1)
    assert [(run.tick, run.run_at, run.created_at) for run in planned.runs] == [
        (NOW - 2 * HOUR, NOW - 1, NOW),
        (NOW - HOUR, NOW, NOW),
    ]
    assert {(run.cause, run.payload, run.priority) for run in planned.runs} == {("backfill", '{"a":1}', 2)}
    (batch,) = planned.records
    assert (batch.kind, batch.key) == (rules.BATCH, "b/1")
    waiting = replace(ROW, overlap="queue", next_tick=NOW, wake_at=NOW + 30_000)
    assert rules.touched(waiting, NOW).wake_at == NOW
    assert rules.touched(replace(ROW, wake_at=7), NOW).wake_at == 7


def test_a_run_has_the_options_that_the_schedule_has_now() -> None:
    row = replace(
        ROW,
        tenant="acme",
        task="u",
        kind="python2",
        queue="batch",
        generation=3,
        execution=Execution(retries=7),
    )
    planned = rules.writing(row, "b", replace(made(), reserved=(NOW - HOUR,)), 1, NOW)
    (run,), (batch,) = planned.runs, planned.records
    assert (run.tenant, run.task, run.kind, run.queue) == ("acme", "u", "python2", "batch")
    assert (run.generation, run.execution.retries, run.payload) == (3, 7, row.payload)
    assert batch.tenant == "acme"


@pytest.mark.parametrize("until", ["", " until=2026-03-01T11:00:00Z"])
def test_an_interval_keeps_its_phase_before_the_schedule_existed(until: str) -> None:
    trigger = rules.past_trigger("s", f"every 7m{until}", NOW, NOW - 10 * HOUR)
    bound = parse_trigger("every 7m").bind("s", NOW)
    first = bound.next_ms(NOW)
    assert first is not None
    ticks = list(trigger.between_ms(NOW - 10 * HOUR, NOW - 2 * HOUR))
    assert len(ticks) in (68, 69)
    assert all((first - tick) % 420_000 == 0 for tick in ticks)
    assert ticks[0] < NOW - 10 * HOUR + 420_000


def test_an_interval_keeps_its_phase_after_the_schedule_existed() -> None:
    anchor = NOW + 1_234
    trigger = rules.past_trigger("s", "every 7m", anchor, NOW + HOUR)
    ticks = list(trigger.between_ms(NOW + HOUR, NOW + 3 * HOUR))
    assert len(ticks) == 17
    assert all((tick - anchor) % 420_000 == 0 for tick in ticks)


def test_a_backfill_ends_once() -> None:
    over = rules.finished(made(is_exhausted=True, waits_for="a pause"), NOW)
    assert (over.state, over.ended_at, over.waits_for) == ("done", NOW, "")
    assert rules.cancelled(made(waits_for="a pause")).waits_for == ""
    assert rules.finished(over, NOW + 1) == over
    assert rules.finished(made(), NOW) == made()


def test_another_schedule_of_the_same_name_is_not_the_one_of_the_backfill() -> None:
    assert not rules.is_gone(made(), ROW)
    assert rules.is_gone(made(), None)
    assert rules.is_gone(made(), replace(ROW, state="deleted"))
    assert rules.is_gone(made(), replace(ROW, created_at=NOW + 1))


def test_the_id_depends_on_the_work_and_not_on_how_it_is_done() -> None:
    one = rules.default_id(ROW, made())
    assert rules.default_id(ROW, made(order="newest", max_concurrent=5, priority=9, created_at=1)) == one
    others = (
        made(first=1),
        made(last=1),
        made(payload="{}"),
        made(missing_only=True),
        made(trigger="every 2h"),
        made(generation=2),
        made(calendars="{}"),
    )
    assert len({one, *(rules.default_id(ROW, other) for other in others)}) == 8
    assert rules.default_id(replace(ROW, tenant="acme"), made()) != one
    assert rules.is_same_work(made(), made(order="newest"))
    assert not rules.is_same_work(made(), made(payload="{}"))


def test_a_record_of_another_form_is_not_read() -> None:
    record = rules.backfill_record("default", "b", made(), 3)
    assert rules.read_backfill(record) == made()
    assert record.expires is None
    over = rules.backfill_record("default", "b", replace(made(), ended_at=NOW), 3)
    assert over.expires == NOW + rules.KEPT
    assert rules.read_backfill(replace(record, body="[]")) is None


def test_a_woken_duty_is_stepped_before_it_is_due() -> None:
    class Duty:
        def __init__(self) -> None:
            self.steps: list[int] = []

        def step(self, now: int) -> int:
            self.steps.append(now)
            if now == 3:
                duties.wake(self)  # something happens while it steps
            return now + 1_000

    one, other = Duty(), Duty()
    duties = PeriodicDuties([one, other])
    assert duties.step(1) == 1_001
    assert duties.step(2) == 1_001
    duties.wake(one)
    assert duties.step(3) == 3, "woken while it stepped"
    duties.step(4)
    assert (one.steps, other.steps) == ([1, 3, 4], [1])
