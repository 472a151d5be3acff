"""What a database refuses: how long a refused schedule waits, and that the others do not wait for it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.rates import Rate
from evenbeat.core.records import CatchUp, RunRecord, ScheduleRecord
from evenbeat.errors import RowRefused, StoreUnavailable, TooLarge
from evenbeat.rules.firing import DEFERRED, Planned
from evenbeat.rules.refusals import LONGEST_WAIT, back_off, is_refusal, may_have_note, refusal_text, wait_of
from evenbeat.stores import refusals
from evenbeat.stores.base import Claim, Claimed, Fired, PlanFunction
from evenbeat.stores.refusals import (
    ClaimRefusals,
    ClaimRefused,
    FireRefused,
    Refusals,
    Selection,
    delete_in_parts,
    in_parts,
)

NOW = 1_000_000


def row(name: str, **fields: object) -> ScheduleRecord:
    wanted = {"task": "work", "trigger": "every 1m", "next_tick": NOW, "wake_at": NOW, **fields}
    return ScheduleRecord(name=name, **wanted)  # type: ignore[arg-type]


# The wait of a refused schedule.


@pytest.mark.parametrize(
    ("overdue", "wait"), [(0, 1_000), (1_000, 1_000), (1_001, 1_001), (7_000, 7_000), (10**9, DEFERRED)]
)
def test_a_refused_schedule_waits_as_long_as_its_tick_is_overdue(overdue: int, wait: int) -> None:
    planned = back_off(row("a"), NOW + overdue, "no")
    assert wait_of(NOW, NOW + overdue) == wait
    assert planned == Planned(
        replace(row("a"), wake_at=NOW + overdue + wait), deferred="the database refuses its run: no"
    )


def test_without_a_tick_it_counts_from_its_first_refusal() -> None:
    first = back_off(row("a", next_tick=None), NOW, "no").schedule
    assert (first.next_tick, first.wake_at) == (NOW, NOW + 1_000)
    second = back_off(first, NOW + 4_000, "no").schedule
    assert (second.next_tick, second.wake_at) == (NOW, NOW + 8_000)


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("no", "no"),
        ("", "it gave no reason"),
        ("a\0b", "a?b"),
        ("a\ud800b", "a?b"),
        ("x" * 1_001, "x" * 1_000),
    ],
)
def test_a_note_can_be_written_whatever_the_database_says(reason: str, text: str) -> None:
    assert refusal_text(reason) == "the database refuses its run: " + text
    assert is_refusal(refusal_text(reason))
    assert not is_refusal(reason)


def test_only_a_schedule_that_was_to_wake_up_after_its_tick_may_have_a_note() -> None:
    late = row("a", wake_at=NOW + 1)
    assert may_have_note(late)
    for other in (
        row("a"),
        row("a", wake_at=NOW - 1),
        replace(late, next_tick=None),
        replace(late, wake_at=None),
        # These wake up late for another reason.
        replace(late, spread=5),
        replace(late, last_fire=NOW + 1),
        replace(late, overlap="skip"),
        replace(late, max_concurrent=1),
        replace(late, after="other within 1h"),
        replace(late, catch_up=CatchUp("all", rate=Rate(1, 1_000))),
        replace(late, trigger="on success of other"),
    ):
        assert not may_have_note(other), other


# Firing.


class Database:
    """Fires due rows. It refuses a step with a row of ``refused``, unless the row only waits; and that as
    well if it is ``stubborn``."""

    def __init__(self, *names: str, refused: Sequence[str] = (), stubborn: bool = False) -> None:
        self.rows = {name: row(name) for name in names}
        self.refused = set(refused)
        self.stubborn = stubborn
        self.asked: list[Selection] = []
        self.tried: list[list[str]] = []
        self.error: RowRefused | TooLarge = RowRefused("no")
        self.unreadable: set[str] = set()

    def attempt(self, selection: Selection, plan: PlanFunction) -> Fired:
        self.asked.append(selection)
        due = [each for each in self.rows.values() if (each.wake_at or 0) <= NOW]
        chosen = [each for each in due if each.key not in selection.without][: selection.limit]
        self.tried.append([each.name for each in chosen])
        planned = [plan(each, NOW, ()) for each in chosen if each.name not in self.unreadable]
        bad = {each.schedule.name for each in planned if self.stubborn or not each.deferred}
        if self.refused & (bad | (self.unreadable & {each.name for each in chosen})):
            raise FireRefused(
                chosen, [each.key for each in chosen if each.name in self.unreadable], self.error
            )
        for each in planned:
            self.rows[each.schedule.name] = each.schedule
        left = [each for each in due if each not in chosen and each.key not in selection.without]
        later = [each.wake_at for each in self.rows.values() if (each.wake_at or 0) > NOW]
        wake = NOW if left else min((at for at in later if at is not None), default=None)
        return Fired(tuple(planned), wake)

    def fire(self, memory: Refusals, limit: int = 100, now: Instant = NOW) -> Fired:
        self.asked.clear()
        self.tried.clear()
        return memory.fire(self.attempt, now, limit, _plan)


def _plan(schedule: ScheduleRecord, now: Instant, *_rest: object) -> Planned:
    return Planned(replace(schedule, next_tick=now + 50_000, wake_at=now + 50_000, fire_seq=9))


def fired(result: Fired) -> list[str]:
    return [each.schedule.name for each in result.planned if not each.deferred]


def waiting(result: Fired) -> list[str]:
    return [each.schedule.name for each in result.planned if each.deferred]


def test_without_a_refusal_there_is_one_step() -> None:
    database, memory = Database("a", "b", "c"), Refusals()
    result = database.fire(memory, limit=2)
    assert (fired(result), result.next_wake) == (["a", "b"], NOW)
    assert database.asked == [Selection(2)]
    assert memory.left_out(NOW) == frozenset()
    assert (memory.next_wake(None, NOW), memory.next_wake(5, NOW)) == (None, 5)


@pytest.mark.parametrize("bad", "abcdefgh")
def test_a_refused_schedule_waits_alone_and_the_others_fire(bad: str) -> None:
    database, memory = Database(*"abcdefgh", refused=[bad]), Refusals()
    result = database.fire(memory)
    assert sorted(fired(result)) == sorted(set("abcdefgh") - {bad})
    assert waiting(result) == [bad]
    assert database.rows[bad].wake_at == NOW + 1_000
    assert database.rows[bad].next_tick == NOW
    assert result.next_wake == NOW + 1_000
    assert memory.left_out(NOW) == frozenset()


def test_the_halves_get_smaller_and_then_larger_again() -> None:
    database = Database(*"abcdefgh", refused=["a"])
    database.fire(Refusals(), limit=8)
    assert [len(names) for names in database.tried] == [8, 4, 2, 1, 1, 1, 2, 4]


def test_a_schedule_that_was_refused_is_tried_after_the_others_and_alone() -> None:
    database, memory = Database(*"abcd", refused=["b"]), Refusals()
    database.fire(memory)
    database.rows = {name: row(name) for name in "abcd"}
    database.fire(memory)
    assert database.tried[0] == ["a", "c", "d"]
    assert database.tried[1:] == [["b"], ["b"], []]  # the second time to let it wait
    # As soon as the database takes it, nothing is remembered.
    database.refused.clear()
    database.rows = {name: row(name) for name in "abcd"}
    database.fire(memory)
    database.rows = {name: row(name) for name in "abcd"}
    assert fired(database.fire(memory)) == list("abcd")
    assert database.asked == [Selection(100)]


def test_no_more_are_fired_than_the_limit_allows() -> None:
    database, memory = Database(*"abcdefgh", refused=["b"]), Refusals()
    result = database.fire(memory, limit=3)
    assert fired(result) == ["a", "c"]
    assert waiting(result) == ["b"]
    assert result.next_wake == NOW
    database.rows["b"] = row("b")
    result = database.fire(memory, limit=2)
    assert (fired(result), waiting(result), result.next_wake) == (["d", "e"], [], NOW)
    assert all(selection.limit <= 2 for selection in database.asked)


def test_what_can_not_even_wait_is_left_out_for_a_while() -> None:
    database, memory = Database(*"abc", refused=["b"], stubborn=True), Refusals()
    result = database.fire(memory)
    assert sorted(fired(result)) == ["a", "c"]
    assert waiting(result) == ["b"]
    until = NOW + LONGEST_WAIT
    key = ("default", "b")
    assert result.next_wake == NOW + 50_000 < until
    assert memory.left_out(until - 1) == {key}
    assert memory.left_out(until) == frozenset()
    assert memory.next_wake(None, NOW) == until
    assert memory.next_wake(until + 1, NOW) == until
    assert memory.next_wake(until - 1, NOW) == until - 1
    assert memory.next_wake(None, until) is None
    database.rows = {name: row(name) for name in "abc"}
    database.fire(memory)
    assert "b" not in [name for names in database.tried for name in names]


def test_refusals_are_forgotten_after_some_time() -> None:
    database, memory = Database(*"abc", refused=["b"], stubborn=True), Refusals()
    database.fire(memory)
    database.rows.clear()
    database.fire(memory, now=NOW + refusals._REMEMBERED_FOR - 1)
    assert database.asked[0].without == {("default", "b")}
    database.fire(memory, now=NOW + refusals._REMEMBERED_FOR)
    assert database.asked == [Selection(100)]


def test_a_row_that_can_not_be_read_nor_set_aside_is_reported_as_quarantined() -> None:
    database, memory = Database(*"abc", refused=["b"], stubborn=True), Refusals()
    database.unreadable = {"b"}
    result = database.fire(memory)
    assert (sorted(fired(result)), waiting(result)) == (["a", "c"], [])
    assert result.quarantined == (("default", "b"),)
    assert memory.left_out(NOW) == {("default", "b")}


def test_a_step_that_is_too_large_is_made_smaller() -> None:
    database = Database(*"ab", refused=["b"])
    database.error = TooLarge("17 MB")
    result = database.fire(Refusals())
    assert fired(result) == ["a"]
    assert [each.deferred for each in result.planned][1] == "the database refuses its run: 17 MB"


def test_an_outage_before_anything_was_fired_is_raised() -> None:
    calls = 0

    def attempt(selection: Selection, plan: PlanFunction) -> Fired:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise FireRefused([row("a"), row("b")], (), RowRefused("no"))
        raise StoreUnavailable("gone")

    with pytest.raises(StoreUnavailable):
        Refusals().fire(attempt, NOW, 10, _plan)


def test_a_database_that_refuses_all_gets_a_bounded_number_of_steps() -> None:
    names = [f"s{number:03}" for number in range(100)]
    database, memory = Database(*names, refused=names, stubborn=True), Refusals()
    result = database.fire(memory)
    assert len(database.asked) <= 2 * refusals._STEPS + 1
    assert result.next_wake == NOW


# Other batches.


def test_rows_are_deleted_without_those_that_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    kept = {3, 4}
    gone: list[int] = []

    def delete(rows: Sequence[int]) -> None:
        if kept & set(rows):
            raise RowRefused("no")
        gone.extend(rows)

    with caplog.at_level(logging.WARNING, "evenbeat.store"):
        assert delete_in_parts(delete, range(10), 6) == 6
    assert gone == [0, 1, 2, 5, 6, 7]
    assert [record.getMessage() for record in caplog.records] == [
        f"the database refuses to change a row that it should delete ({row}): the database refused a row: no"
        for row in (3, 4)
    ]
    gone.clear()
    assert delete_in_parts(delete, [3, 4], 6) == 0
    assert delete_in_parts(delete, [], 6) == 0
    assert delete_in_parts(delete, [1, 2], 6) == 2


def test_answers_come_in_the_order_of_the_items_and_a_split_is_told_once() -> None:
    splits: list[Exception] = []

    def write(items: Sequence[int]) -> list[str]:
        if 2 in items or 5 in items:
            raise ValueError(f"not {items}")
        return [f"{item} written" for item in items]

    parts = list(in_parts(write, range(7), lambda item, error: f"{item} refused: {error}", splits.append))
    assert [answer for part in parts for answer in part] == [
        "0 written",
        "1 written",
        "2 refused: not range(2, 3)",
        "3 written",
        "4 written",
        "5 refused: not range(5, 6)",
        "6 written",
    ]
    assert len(splits) == 1
    assert list(in_parts(write, [], lambda _item, _error: "", splits.append)) == [[]]


# Claims.


class Queue:
    """Starts runs, and refuses a claim with one of ``refused``."""

    def __init__(self, count: int, *refused: int) -> None:
        self.left = [f"r{number}" for number in range(count)]
        self.refused = {f"r{number}" for number in refused}
        self.asked: list[Claim] = []
        self.are_chosen = True
        self.next_due: Instant | None = None
        self.answer = Claimed((), NOW)

    def attempt(self, claim: Claim) -> Claimed:
        self.asked.append(claim)
        chosen = [run for run in self.left if run not in claim.without]
        chosen = chosen[: claim.limit] if self.are_chosen else chosen
        if self.refused & set(chosen):
            raise ClaimRefused(chosen, RowRefused("no"), are_chosen=self.are_chosen)
        chosen = chosen[: claim.limit]
        self.left = [run for run in self.left if run not in chosen]
        return Claimed(tuple(RunRecord(id=run, task="work") for run in chosen), self.next_due)

    def claim(self, memory: ClaimRefusals, now: Instant = NOW, limit: int = 10) -> list[str]:
        wanted = Claim(worker="w", token="t", limit=limit, now=now, lease=1_000)
        self.answer = memory.claim(self.attempt, wanted, lambda: now)
        return [run.id for run in self.answer.runs]


def test_a_claim_without_a_refusal_is_one_attempt() -> None:
    queue, memory = Queue(3), ClaimRefusals()
    queue.next_due = 7
    assert queue.claim(memory) == ["r0", "r1", "r2"]
    assert len(queue.asked) == 1
    assert queue.answer.next_due == 7


@pytest.mark.parametrize("are_chosen", [True, False])
def test_a_run_that_is_refused_is_left_out_and_the_others_start(
    are_chosen: bool, caplog: pytest.LogCaptureFixture
) -> None:
    queue, memory = Queue(8, 0), ClaimRefusals()
    queue.are_chosen = are_chosen
    started: list[str] = []
    with caplog.at_level(logging.ERROR, "evenbeat.store"):
        while queue.answer.next_due == NOW:  # there may be more
            started += queue.claim(memory)
    assert sorted(started) == [f"r{number}" for number in range(1, 8)]
    assert queue.answer.next_due == NOW + LONGEST_WAIT
    assert memory.left_out(NOW + LONGEST_WAIT - 1) == {"r0"}
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "refuses to start a run, which is tried again: the database refused a row: no"
    )
    assert (record.__dict__["component"], record.__dict__["job_id"]) == ("store", "r0")
    # It is tried again after a while.
    queue.refused.clear()
    assert queue.claim(memory, NOW + LONGEST_WAIT) == ["r0"]
    assert memory.left_out(NOW + LONGEST_WAIT) == frozenset()


def test_the_next_claim_is_due_when_another_run_is_or_when_the_refused_one_is_tried_again() -> None:
    queue, memory = Queue(1, 0), ClaimRefusals()
    assert queue.claim(memory) == []
    queue.next_due = NOW + 5
    assert queue.claim(memory) == []
    assert queue.answer.next_due == NOW + 5
    queue.next_due = NOW + LONGEST_WAIT + 5
    assert queue.claim(memory) == []
    assert queue.answer.next_due == NOW + LONGEST_WAIT


def test_a_claim_gives_up_after_some_attempts() -> None:
    queue, memory = Queue(200, *range(200)), ClaimRefusals()
    assert queue.claim(memory, limit=200) == []
    assert queue.answer.next_due == NOW
    assert len(queue.asked) == refusals._STEPS + 1
