"""What the simulator found, each reduced to the smallest case."""

from __future__ import annotations

from evenbeat.core.instants import write_instant
from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import Planned, plan
from evenbeat.stores.base import Claim, RunQuery, ScheduleQuery, Write
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing.clock import START, VirtualClock

SECOND = 1_000


def made(trigger: str, **fields: object) -> ScheduleRecord:
    return changes.create(ScheduleRecord(name="job", task="task", trigger=trigger, **fields), START).schedule  # type: ignore[arg-type]


def test_a_run_that_was_written_twice_while_it_waited_is_claimed_once() -> None:
    store = MemoryStore(VirtualClock())
    run = RunRecord(id="a", task="task", schedule="job", run_at=START, created_at=START)
    store.add_runs([run])
    # A cancel request of a tick that waits for it is written to the run, which stays queued.
    store.put_schedules([Write(Planned(made("every 10s"), cancels=("a",)), None)])
    claim = Claim(worker="w", token="t", limit=10, now=START, lease=SECOND)
    assert [claimed.id for claimed in store.claim_runs(claim).runs] == ["a"]


def test_a_row_that_was_written_twice_fires_once() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    row = made("every 10s")
    store.put_schedules([Write(Planned(row), None)])
    changed = changes.change(row, {"payload": "1"}, START)
    assert changed is not None
    store.put_schedules([Write(changed, row.version)])
    clock.advance("25s")
    assert len(store.fire_due(clock(), 10, plan).planned) == 1
    assert [skipped.count for skipped in store.find_skipped("default", "job")] == [1]


def test_moving_to_a_tick_that_the_same_step_deals_with_makes_a_new_generation() -> None:
    row = made(f"at {write_instant(START + 10 * SECOND)}")
    planned = changes.reschedule(row, START + 10 * SECOND, START + 20 * SECOND)
    assert [run.generation for run in planned.runs] == [1]
    assert planned.schedule.generation == 2


def test_moving_forward_between_two_ticks_keeps_the_generation() -> None:
    planned = changes.reschedule(made("every 10s"), START + 15 * SECOND, START)
    assert planned.schedule.generation == 1


def test_a_new_trigger_that_moves_the_watermark_back_makes_a_new_generation() -> None:
    moved = changes.reschedule(made("every 10s"), START + 35 * SECOND, START)
    assert [skipped.count for skipped in moved.skipped] == [3]
    retriggered = changes.change(moved.schedule, {"trigger": "every 5s"}, START)
    assert retriggered is not None
    # Ticks at 10, 20 and 30 s are recorded as passed over in generation 1, and come in generation 2.
    assert retriggered.schedule.next_tick == START + 5 * SECOND
    assert retriggered.schedule.generation == 2


def test_a_one_shot_in_the_past_given_to_a_schedule_that_has_run_makes_a_new_generation() -> None:
    fired = plan(made("every 10s"), START + 10 * SECOND).schedule
    past = changes.change(fired, {"trigger": f"at {write_instant(START + 10 * SECOND)}"}, START + 11 * SECOND)
    assert past is not None
    assert (past.schedule.next_tick, past.schedule.generation) == (START + 10 * SECOND, 2)


def test_a_new_trigger_for_a_paused_schedule_records_the_ticks_of_the_pause() -> None:
    paused = changes.pause(made("every 10s"), START).schedule
    retriggered = changes.change(paused, {"trigger": "every 7s"}, START + 35 * SECOND)
    assert retriggered is not None
    assert [(skipped.count, skipped.reason) for skipped in retriggered.skipped] == [(3, "paused")]
    assert retriggered.schedule.state == "paused"


def test_moving_a_paused_schedule_past_its_last_tick_leaves_it_paused() -> None:
    paused = changes.pause(made(f"at {write_instant(START + 10 * SECOND)}"), START).schedule
    moved = changes.reschedule(paused, START + 20 * SECOND, START).schedule
    assert (moved.state, moved.next_tick, moved.wake_at) == ("paused", START + 20 * SECOND, None)


def test_a_retry_by_a_user_respects_the_overlap_policy() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    store.put_schedules([Write(Planned(made("every 10s", overlap="skip")), None)])
    clock.advance("10s")
    store.fire_due(clock(), 1, plan)
    (first,) = store.claim_runs(Claim(worker="w", token="t", limit=1, now=clock(), lease=SECOND)).runs
    store.settle_runs([attempts.failed(first, "no luck", clock(), "failed")])
    clock.advance("10s")
    store.fire_due(clock(), 1, plan)
    (over,) = store.find_runs(RunQuery(states=("failed",))).items
    (row,) = store.find_schedules(ScheduleQuery()).items
    assert attempts.retried(over, "again", row) is None
    assert len(store.find_runs(RunQuery(states=("queued", "running"))).items) == 1
