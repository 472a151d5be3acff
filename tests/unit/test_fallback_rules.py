"""The rules of the fallback: which ticks memory fires, and what it leaves to the rows."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat.core.ids import new_key
from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import CatchUp, Record, RunRecord, ScheduleRecord, Skipped
from evenbeat.core.retention import SHORTEST_KEEP
from evenbeat.rules.auditing import Change, records_of
from evenbeat.rules.fallback import (
    LATEST,
    Remembered,
    added_before,
    after_runs,
    changed_by_hand,
    covers,
    remember,
    rest_of,
    run_from_memory,
    without_late,
)
from evenbeat.rules.firing import Planned

MINUTE = 60_000
START = 1_772_366_400_000
"""A full minute."""
ROW = ScheduleRecord(
    name="beat", task="work", trigger="* * * * *", next_tick=START, wake_at=START, anchor=START
)


def at(minutes: int) -> Instant:
    return START + minutes * MINUTE


def skipped(first: int, last: int, count: int, **fields: Any) -> Skipped:
    wanted: dict[str, Any] = {"generation": 1, "reason": "missed", "recorded_at": START, **fields}
    return Skipped(tenant="default", schedule="beat", first=at(first), last=at(last), count=count, **wanted)


# What memory fires.


def test_memory_covers_rows_that_depend_on_nothing_else() -> None:
    once = replace(ROW, trigger="at 2026-03-01T12:00:00Z", next_tick=START)
    assert covers(ROW)
    assert covers(once)
    for other in (
        replace(ROW, state="paused"),
        replace(ROW, state="finished"),
        replace(ROW, damage="task: it is empty"),
        replace(ROW, after="load within 1h"),
        replace(ROW, trigger="on success of load"),
        replace(ROW, moved=START),
        replace(once, next_tick=START + 1),
    ):
        assert not covers(other), other


def test_ticks_from_the_beginning_on_are_fired() -> None:
    assert remember(ROW, START) == Remembered(START, ROW)
    assert remember(ROW, START - 5) == Remembered(START, ROW)
    later = remember(ROW, START + 1)
    assert (later.begin, later.row.next_tick, later.row.wake_at) == (at(1), at(1), at(1))
    assert remember(replace(ROW, next_tick=None), START + 3) == Remembered(
        START + 3, replace(ROW, next_tick=None, wake_at=None)
    )
    spread = remember(replace(ROW, spread=MINUTE), START)
    assert spread.row.wake_at is not None
    assert START < spread.row.wake_at <= at(1)


@pytest.mark.parametrize(("grace", "latest"), [(MINUTE, LATEST), (5_000, 5_000)])
def test_ticks_that_are_late_are_left_to_the_row(grace: int, latest: int) -> None:
    known = remember(replace(ROW, catch_up=CatchUp("skip", grace=grace)), START)
    assert without_late(known, START + latest) == known
    assert without_late(known, START + latest + 1).row.next_tick == at(1)
    finished = known._replace(row=replace(known.row, next_tick=None))
    assert without_late(finished, at(9)) == finished


def test_ticks_that_another_node_has_fired_are_passed_over() -> None:
    known = remember(ROW, START)
    run = RunRecord(id="r", task="work", generation=ROW.generation, cause="tick", tick=at(2))
    assert after_runs(known, [run, replace(run, tick=at(1))]).row.next_tick == at(3)
    assert after_runs(known, [replace(run, tick=START)]).row.next_tick == at(1)
    for other in (
        replace(run, tick=START - MINUTE),
        replace(run, tick=None),
        replace(run, generation=ROW.generation + 1),
        replace(run, cause="manual"),
    ):
        assert after_runs(known, [other]) == known
    finished = known._replace(row=replace(known.row, next_tick=None))
    assert after_runs(finished, [run]) == finished


def test_a_run_of_memory_says_so_and_may_not_be_added_late() -> None:
    run = RunRecord(id="r", task="work", scheduled_at=START)
    assert run_from_memory(run, "n").fired_by != run.fired_by
    assert "n" in (run_from_memory(run, "n").fired_by or "")
    assert LATEST < added_before(run) - START < SHORTEST_KEEP
    assert added_before(run) - START == (LATEST + SHORTEST_KEEP) // 2


# The ledger in memory.


def test_ledger_rows_of_ticks_that_follow_each_other_become_one() -> None:
    known = remember(ROW, START)
    known = known.after(Planned(replace(ROW, next_tick=at(1)), skipped=(skipped(0, 0, 1),)))
    known = known.after(Planned(replace(ROW, next_tick=at(3)), skipped=(skipped(1, 2, 2),)))
    assert known.skipped == (skipped(0, 2, 3),)
    assert known.row.next_tick == at(3)
    for other in (skipped(4, 4, 1), skipped(3, 3, 1, reason="overlap"), skipped(3, 3, 1, run="r")):
        assert known.after(Planned(ROW, skipped=(other,))).skipped == (skipped(0, 2, 3), other)
    with_run = Remembered(START, ROW, (skipped(0, 2, 3, run="r"),))
    assert len(with_run.after(Planned(ROW, skipped=(skipped(3, 3, 1),))).skipped) == 2


# Back at the row.


def test_a_row_goes_on_where_memory_has_ended() -> None:
    ended = replace(ROW, next_tick=at(5), wake_at=at(5), last_fire=at(4), fire_seq=0)
    known = Remembered(START, ended, (skipped(0, 1, 2), skipped(3, 3, 1)))
    row = replace(ROW, fire_seq=7)
    assert rest_of(row, known) == (
        replace(row, next_tick=at(5), wake_at=at(5), last_fire=at(4), fire_seq=8),
        (skipped(0, 1, 2), skipped(3, 3, 1)),
    )
    # The row has dealt with the first tick, or with the first ones.
    one = replace(row, next_tick=at(1))
    assert rest_of(one, known)[1] == (skipped(1, 1, 1), skipped(3, 3, 1))
    assert rest_of(replace(row, next_tick=at(2)), known)[1] == (skipped(3, 3, 1),)
    over = known._replace(row=replace(ended, next_tick=None, wake_at=None, state="finished"))
    rest, _ = rest_of(row, over)
    assert (rest.next_tick, rest.state) == (None, "finished")


def test_a_row_that_is_not_what_memory_knew_stays_as_it_is() -> None:
    known = Remembered(START, replace(ROW, next_tick=at(5), wake_at=at(5)), (skipped(0, 4, 5),))
    for row in (
        replace(ROW, next_tick=None),
        replace(ROW, state="paused"),
        replace(ROW, moved=START),
        replace(ROW, trigger="*/2 * * * *"),
        replace(ROW, calendars="{}"),
        replace(ROW, anchor=START + 1),
        replace(ROW, generation=2),
        replace(ROW, next_tick=START - MINUTE),
        replace(ROW, next_tick=at(5)),
        replace(ROW, next_tick=at(6)),
    ):
        assert rest_of(row, known) == (row, ()), row


# Changes by hand.


def entry(when: Instant, kind: str, subject: str, action: str = "pause", tenant: str = "default") -> Record:
    change = Change(kind, subject, tenant, action, {"state": "active"}, {"state": "paused"})
    return records_of(change, "anna", "cli", new_key(when), when)[0]


def test_rows_that_users_have_changed_since_are_named() -> None:
    row = replace(ROW, updated_at=START)
    assert changed_by_hand([row], []) == set()
    assert changed_by_hand([row], [entry(START + 1, "schedule", "beat")]) == {row.key}
    for other in (
        entry(START, "schedule", "beat"),
        entry(START + 1, "schedule", "other"),
        entry(START + 1, "schedule", "beat", "run_now"),
        entry(START + 1, "schedule", "beat", tenant="acme"),
        entry(START + 1, "calendar", "holidays"),
        entry(START + 1, "template", "nightly"),
        Record(kind="audit", tenant="default", key=new_key(START + 1), body="{"),
    ):
        assert changed_by_hand([row], [other]) == set(), other
    both = [entry(START + 1, "schedule", "beat"), entry(START - 1, "schedule", "beat")]
    assert changed_by_hand([row], both) == changed_by_hand([row], both[::-1]) == {row.key}
    with_calendar = replace(row, calendars=encode({"a": 1}))
    assert changed_by_hand([with_calendar], [entry(START + 1, "calendar", "holidays")]) == {row.key}
    assert changed_by_hand([with_calendar], [entry(START + 1, "template", "nightly")]) == set()
    with_template = replace(row, template="nightly")
    assert changed_by_hand([with_template], [entry(START + 1, "template", "nightly")]) == {row.key}
    assert changed_by_hand([with_template], [entry(START + 1, "calendar", "holidays")]) == set()
