"""The worker, step by step: which documents it locks, which locks it renews, and which results it writes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from evenbeat import InvalidValue
from evenbeat.core.instants import from_ms
from evenbeat.documents import HELD, Change, DocumentLockLost, worker
from evenbeat.documents.base import HELD_AT
from evenbeat.documents.renewal import first_lock
from evenbeat.documents.rules import Policy
from evenbeat.documents.worker import LONGEST_SLEEP
from evenbeat.errors import StoreUnavailable
from tests.documents.bench import LOCK, LOST_REPLY, LOST_REQUEST, Bench

HOUR = 3_600_000
SMALL = LOCK // 3  # a lock is renewed then


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make locks exactly as long as ``lock_duration``, so that tests know all instants."""
    monkeypatch.setattr(worker, "first_lock", lambda duration: duration)


# Locking


def test_due_documents_are_handled_up_to_the_free_slots() -> None:
    bench = Bench(concurrency=2)
    for place, key in enumerate("abc"):
        bench.add(key, ago=10 - place)
    bench.step()
    assert bench.keys() == ["a", "b"]
    assert bench.is_processing()
    bench.step()
    assert bench.keys() == []
    bench.end("a")
    bench.step()
    assert bench.keys() == ["c"]
    bench.end("b")
    bench.end("c")
    bench.step()
    assert not bench.is_processing()
    assert [bench.due(key) for key in "abc"] == [None, None, None]


def test_a_worker_without_a_free_slot_does_not_poll() -> None:
    bench = Bench(concurrency=1)
    bench.add("a")
    bench.step()
    bench.store.names()
    bench.step(later=10)
    bench.worker.hint()
    bench.step()
    assert bench.store.names() == []


def test_it_locks_as_many_documents_as_there_are_free_slots() -> None:
    bench = Bench(concurrency=5)
    bench.add("a")
    bench.step()
    bench.worker.hint()
    bench.step()
    assert [what for name, what in bench.store.calls if name == "lock_next"] == [5, 4]


def test_the_end_of_a_handler_wakes_the_worker() -> None:
    bench = Bench()
    bench.add("a")
    bench.step()
    assert bench.wakes == 0
    bench.end("a")
    assert bench.wakes == 1


def test_each_slot_rests_by_itself() -> None:
    bench = Bench(concurrency=2, next_delay=300)
    for number in range(6):
        bench.add(number)
    bench.step()
    assert bench.keys() == [0, 1]
    bench.end(0)
    assert bench.step() == 300
    bench.end(1)
    assert bench.step(later=100) == 200
    assert bench.keys() == []
    bench.step(later=199)
    assert bench.keys() == []
    bench.step(later=1)
    assert bench.keys() == [2]
    bench.step(later=100)
    assert bench.keys() == [3]


def test_a_lost_document_makes_its_slot_rest_too() -> None:
    bench = Bench(concurrency=1, next_delay=300)
    bench.add("a")
    bench.add("b")
    bench.step()
    bench.rows["a"]["sleep_until"] = None
    bench.end("a")
    bench.step()
    assert bench.keys() == ["a"]
    bench.step(later=300)
    assert bench.keys() == ["b"]


def test_a_document_whose_lock_ended_before_the_answer_came_is_not_handled() -> None:
    bench = Bench()
    bench.add("a")
    take = bench.store.lock_next

    def slowly(duration: int, limit: int) -> Any:
        taken = take(duration, limit)
        bench.clock.now += LOCK
        return taken

    bench.store.lock_next = slowly  # type: ignore[method-assign]  # the process was suspended meanwhile
    bench.step()
    assert bench.keys() == []
    assert not bench.is_processing()
    bench.store.lock_next = take  # type: ignore[method-assign]  # and goes on
    bench.step()
    assert bench.keys() == ["a"]


def test_locked_documents_are_handled_if_the_clock_can_not_be_read() -> None:
    bench = Bench()
    bench.add("a")

    def away() -> int:
        raise StoreUnavailable("no clock")

    bench.store.now = away  # type: ignore[method-assign]  # right after the lock
    bench.step()
    assert bench.keys() == ["a"]


# Sleeping


def test_it_sleeps_until_the_next_document_is_due() -> None:
    bench = Bench()
    bench.add("a", ago=-400)
    assert bench.step() == 400
    assert bench.keys() == []
    bench.step(later=400)
    assert bench.keys() == ["a"]


def test_it_polls_once_a_second_for_documents_that_others_have_added() -> None:
    bench = Bench()
    assert bench.step() == LONGEST_SLEEP
    bench.add("far", ago=-HOUR)
    assert bench.step(later=LONGEST_SLEEP) == LONGEST_SLEEP
    bench.add("now")
    bench.step(later=LONGEST_SLEEP - 1)
    assert bench.keys() == []
    bench.step(later=1)
    assert bench.keys() == ["now"]


def test_it_sleeps_no_longer_than_until_its_own_document_is_due_again() -> None:
    bench = Bench()
    bench.add("a", interval="every 300ms")
    bench.step()
    bench.end("a")
    assert bench.step(later=50) == 250
    bench.step(later=250)
    assert bench.keys() == ["a", "a"]


def test_it_polls_when_its_own_document_is_due_again_also_if_no_answer_came() -> None:
    bench = Bench()
    bench.add("a", interval="every 300ms")
    bench.step()
    bench.end("a")
    bench.store.faults = [LOST_REPLY]
    with pytest.raises(StoreUnavailable):
        bench.step()
    assert bench.step(later=100) == 200


def test_a_hint_makes_it_poll_at_once() -> None:
    bench = Bench(idle_delay=HOUR)
    bench.step()
    bench.add("a")
    bench.worker.hint()
    assert bench.wakes == 1
    bench.step()
    assert bench.keys() == ["a"]


def test_a_hint_is_not_lost_with_the_request() -> None:
    bench = Bench(idle_delay=HOUR)
    bench.step()
    bench.add("a")
    bench.worker.hint()
    bench.store.faults = [LOST_REQUEST]
    with pytest.raises(StoreUnavailable):
        bench.step()
    bench.step()
    assert bench.keys() == ["a"]


def test_a_hint_during_a_poll_causes_another_poll() -> None:
    bench = Bench(idle_delay=HOUR)
    take = bench.store.lock_next

    def hinted(duration: int, limit: int) -> Any:
        taken = take(duration, limit)
        bench.add("a")
        bench.worker.hint()
        return taken

    bench.store.lock_next = hinted  # type: ignore[method-assign]  # added while it polls
    bench.step()
    bench.store.lock_next = take  # type: ignore[method-assign]  # nothing more
    bench.step()
    assert bench.keys() == ["a"]


def test_a_hint_while_all_slots_are_taken_is_remembered() -> None:
    bench = Bench(concurrency=1, idle_delay=HOUR)
    bench.step()
    bench.add("a")
    bench.worker.hint()
    bench.step()
    bench.add("b")
    bench.worker.hint()
    bench.step()
    bench.end("a")
    bench.step()
    assert bench.keys() == ["a", "b"]


def test_idle_delay_is_how_long_it_waits_when_nothing_is_due() -> None:
    bench = Bench(idle_delay=5000)
    bench.add("soon", ago=-10)
    assert bench.step() == 5000
    bench.step(later=4999)
    assert bench.keys() == []
    bench.step(later=1)
    assert bench.keys() == ["soon"]


def test_idle_delay_is_ignored_while_more_documents_are_due_than_slots_are_free() -> None:
    bench = Bench(concurrency=1, idle_delay=HOUR)
    bench.add("a")
    bench.add("b")
    bench.step()
    bench.end("a")
    bench.step()
    assert bench.keys() == ["a", "b"]


def test_a_clock_that_was_set_back_does_not_prolong_its_sleep() -> None:
    bench = Bench(concurrency=1, next_delay=200)
    bench.step()
    bench.add("a", ago=HOUR)
    bench.step(later=-HOUR)
    assert bench.step(later=LONGEST_SLEEP) is not None
    assert bench.keys() == ["a"]
    bench.end("a")
    bench.add("b", ago=2 * HOUR)
    bench.step()
    assert bench.step(later=-HOUR) == 200
    bench.step(later=200)
    assert bench.keys() == ["b"]


# Idle


def test_on_idle_is_called_once_each_time_it_becomes_idle() -> None:
    bench = Bench(concurrency=2)
    bench.step()
    bench.step(later=LONGEST_SLEEP)
    assert bench.idles == 1
    assert bench.is_idle()
    bench.add("a")
    bench.add("b")
    bench.step(later=LONGEST_SLEEP)
    assert not bench.is_idle()
    bench.end("a")
    bench.step()
    assert bench.idles == 1
    bench.end("b")
    bench.step()
    for _ in range(3):
        bench.step(later=LONGEST_SLEEP)
    assert bench.idles == 2
    assert bench.is_idle()


def test_it_is_not_idle_before_it_has_polled() -> None:
    bench = Bench(concurrency=1)
    bench.add("a")
    bench.add("b")
    bench.step()
    bench.end("a")
    bench.step()
    bench.end("b")
    bench.store.faults = [None, LOST_REQUEST]
    with pytest.raises(StoreUnavailable):
        bench.step()
    assert bench.idles == 0
    bench.step()
    assert bench.idles == 1


def test_it_is_not_idle_while_a_result_is_not_written() -> None:
    bench = Bench()
    bench.add("a")
    bench.step()
    bench.end("a")
    bench.store.is_away = True
    with pytest.raises(StoreUnavailable):
        bench.step()
    assert bench.idles == 0
    assert bench.is_processing()


# Renewing


def test_a_lock_is_renewed_after_a_third_of_its_duration() -> None:
    bench = Bench()
    bench.add("a")
    assert bench.step() == LONGEST_SLEEP
    for _ in range(5):
        before = bench.due("a")
        assert before is not None
        bench.step(later=before - LOCK * 2 // 3 - 1)
        assert bench.due("a") == LOCK * 2 // 3 + 1
        bench.step(later=1)
        # Odd, as no tick of a cron is.
        assert bench.due("a") == (LOCK if bench.clock.now % 2 else LOCK - 1)
    bench.end("a")
    bench.step()
    assert bench.due("a") is None
    assert not bench.reported


def test_the_worker_steps_when_a_renewal_is_due() -> None:
    bench = Bench(concurrency=1)
    bench.add("a")
    assert bench.step() == SMALL


def test_locks_that_are_nearly_due_are_renewed_in_the_same_call() -> None:
    bench = Bench()
    bench.add("a")
    bench.step()
    bench.add("b")
    bench.add("c")
    bench.step(later=1200)
    bench.rows["c"]["sleep_until"] = from_ms(bench.clock.now + LOCK)
    bench.store.calls.clear()
    bench.step(later=SMALL - 1200)
    (changes,) = [what for name, what in bench.store.calls if name == "update"]
    assert [change.lock.id for change in changes] == ["a", "b", "c"]


def test_a_renewal_whose_request_was_lost_is_repeated() -> None:
    bench = Bench(concurrency=1)
    bench.add("a")
    bench.step()
    bench.store.faults = [LOST_REQUEST, LOST_REQUEST]
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            bench.step(later=SMALL)
    bench.step(later=100)
    bench.end("a")
    bench.step()
    assert bench.due("a") is None
    assert not bench.reported


def test_a_renewal_whose_reply_was_lost_is_repeated() -> None:
    bench = Bench(concurrency=1)
    bench.add("a")
    bench.step()
    bench.step(later=SMALL // 3)
    bench.store.faults = [LOST_REPLY, LOST_REPLY, LOST_REQUEST, LOST_REPLY]
    for _ in range(4):
        with pytest.raises(StoreUnavailable):
            bench.step(later=SMALL * 2 // 3)
    bench.step(later=100)
    assert not bench.document("a").is_lost
    bench.end("a")
    bench.step()
    assert bench.due("a") is None
    assert not bench.reported


@pytest.mark.parametrize("fault", [LOST_REQUEST, LOST_REPLY])
def test_a_result_is_written_under_any_lock_that_the_document_may_have(fault: str) -> None:
    bench = Bench()
    bench.add("a", auto_remove=True)
    bench.step()
    bench.store.faults = [fault]
    with pytest.raises(StoreUnavailable):
        bench.step(later=SMALL)
    bench.end("a")
    bench.step()
    assert "a" not in bench.rows
    assert not bench.reported


def test_unanswered_renewals_never_make_many_possible_locks() -> None:
    bench = Bench()
    bench.add("a")
    bench.step()
    bench.store.is_away = True
    for _ in range(200):
        with pytest.raises(StoreUnavailable):
            bench.step(later=SMALL)
    (held,) = bench.begun
    assert len(held.lock_ends) <= 4
    bench.store.is_away = False
    # No other worker has locked it. Its own worker finds it due, locks it again, and goes on with it.
    bench.step()
    assert not held.document.is_lost
    assert bench.due("a") == LOCK
    assert len(held.lock_ends) == 1
    assert bench.begun == [held]


def test_a_lock_that_ended_long_ago_is_renewed_in_steps_where_no_slot_is_free() -> None:
    bench = Bench(concurrency=1)
    bench.add("a")
    bench.step()
    bench.clock.now += 5 * LOCK
    steps = 0
    while bench.step() == 0 or (bench.due("a") or 0) <= 0:
        steps += 1
        assert steps < 10
    assert (bench.due("a") or 0) > LOCK * 2 // 3
    bench.end("a")
    bench.step()
    assert bench.due("a") is None
    assert not bench.reported


def test_a_result_that_waits_until_its_lock_has_ended_is_written_and_the_document_not_processed_again() -> (
    None
):
    """The process was suspended after the handler had ended, and then finds its own document due."""
    bench = Bench()
    bench.add("a", interval="every 1h")
    bench.step()
    take = bench.store.lock_next

    def stalled(duration: int, limit: int) -> Any:
        bench.store.lock_next = take  # type: ignore[method-assign]  # once
        bench.end("a")
        bench.clock.now += LOCK
        return take(duration, limit)

    bench.store.lock_next = stalled  # type: ignore[method-assign]  # while it asks for more
    bench.step(later=LONGEST_SLEEP)
    assert bench.due("a") == LOCK
    bench.step()
    assert bench.keys() == ["a"]
    assert bench.due("a") == HOUR - LOCK - LONGEST_SLEEP
    assert not bench.reported


def test_the_renewal_of_a_lock_that_another_worker_took_over_loses_it() -> None:
    bench = Bench()
    bench.add("a")
    bench.step()
    bench.clock.now += LOCK
    (other,) = bench.store.lock_next(LOCK, 1).found
    bench.step()
    assert bench.document("a").is_lost
    with pytest.raises(DocumentLockLost):
        bench.document("a").raise_if_lost()
    assert [held.id for held in bench.interrupted] == ["a"]
    bench.end("a", DocumentLockLost("a"))
    bench.store.calls.clear()
    bench.step()
    assert "update" not in bench.store.names()
    assert bench.rows["a"]["sleep_until"] == from_ms(other.locked_until)


def test_a_lock_of_another_worker_in_the_same_millisecond_is_not_taken_for_its_own() -> None:
    """Both workers lock it for the same duration from the same instant on."""
    for fault in (None, LOST_REQUEST):
        bench = Bench()
        bench.add("a")
        bench.step()
        bench.clock.now += LOCK
        bench.store.faults = [fault]
        update = bench.store.update

        def between(changes: Sequence[Change], bench: Bench = bench, update: Any = update) -> list[bool]:
            bench.store.update = update  # type: ignore[method-assign]  # once
            try:
                if bench.store.faults[0] is None:
                    bench.store.faults.insert(0, None)
                    bench.store.lock_next(LOCK, 1)
                answers: list[bool] = update(changes)
                return answers
            except StoreUnavailable:
                bench.store.lock_next(LOCK, 1)
                raise

        bench.store.update = between  # type: ignore[method-assign]  # others come in between
        if fault is not None:
            with pytest.raises(StoreUnavailable):
                bench.step()
        bench.step()
        assert bench.document("a").is_lost


@pytest.mark.parametrize("seconds", [1, 10, 60, 600])
def test_a_lock_is_not_taken_for_the_tick_at_which_it_would_end(
    seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is locked at a full second, and for as long as its interval."""
    monkeypatch.setattr(worker, "first_lock", first_lock)
    late = Bench(lock_duration=seconds * 1000)
    other = Bench(beside=late, lock_duration=seconds * 1000)
    late.add("a", interval=f"every {seconds}s", by=None)
    late.step()
    late.rows["a"]["sleep_until"] = from_ms(late.clock.now)  # by its owner
    other.step()
    other.document("a").update(by="other")
    other.end("a")
    other.step()
    assert late.due("a") == seconds * 1000
    late.document("a").update(by="late")
    late.end("a")
    late.step()
    assert late.rows["a"]["by"] == "other"
    assert [type(error) for error, _ in late.reported] == [DocumentLockLost]


def test_a_held_document_that_its_owner_makes_due_is_held_once() -> None:
    """Both would be renewed to the same instant, and each would take it for its own if no answer came."""
    bench = Bench()
    bench.add("a", note=1)
    bench.step()
    bench.add("a", note=2)
    bench.step(later=LONGEST_SLEEP)
    first, second = bench.begun
    assert first.document.is_lost
    assert bench.interrupted == [first]
    assert not second.document.is_lost
    assert second.document["note"] == 2
    bench.worker.handler_ended(first, DocumentLockLost("a"))
    bench.step()
    assert bench.due("a") == LOCK
    bench.worker.handler_ended(second, None)
    bench.step()
    assert bench.due("a") is None
    assert not bench.is_processing()


def test_a_renewal_that_the_database_refuses_does_not_affect_others() -> None:
    bench = Bench()
    for key in "abc":
        bench.add(key)
    bench.step()
    bench.store.faults = [ValueError("all"), None, ValueError("b"), None]
    bench.add("d")
    bench.step(later=SMALL)
    assert bench.due("a") == bench.due("c") == LOCK - 1
    assert bench.due("b") == LOCK - SMALL
    assert [(str(error), about and about.id) for error, about in bench.reported] == [("b", "b")]
    assert bench.keys() == ["a", "b", "c", "d"]
    # The renewal is not tried again, and the result is written while no other worker has locked it.
    bench.step(later=10)
    assert len(bench.reported) == 1
    bench.end("b")
    bench.step()
    assert bench.due("b") is None


# Results


def test_a_result_is_written_once() -> None:
    bench = Bench()
    bench.add("a", interval="every 1h")
    bench.step()
    bench.end("a")
    bench.step()
    bench.step()
    updates = [what for name, what in bench.store.calls if name == "update"]
    assert len(updates) == 1
    assert bench.due("a") == HOUR


def test_results_are_written_in_one_call() -> None:
    bench = Bench()
    for number in range(8):
        bench.add(number, auto_remove=number % 2 == 1)
    bench.step()
    for number in range(8):
        bench.end(number)
    bench.store.names()
    bench.step()
    assert bench.store.names()[:2] == ["update", "remove"]
    assert sorted(bench.rows) == [0, 2, 4, 6]


@pytest.mark.parametrize("fault", [LOST_REQUEST, LOST_REPLY])
def test_a_result_that_got_no_answer_is_sent_again(fault: str) -> None:
    bench = Bench()
    bench.add("a", interval="every 1h")
    bench.add("b", auto_remove=True)
    bench.step()
    bench.end("a")
    bench.end("b")
    bench.store.faults = [fault, fault]
    with pytest.raises(StoreUnavailable):
        bench.step()
    with pytest.raises(StoreUnavailable):
        bench.step()
    bench.step()
    assert bench.due("a") == HOUR
    assert "b" not in bench.rows
    assert not bench.reported
    assert not bench.is_processing()


def test_results_are_decided_again_and_written_after_an_outage() -> None:
    bench = Bench()
    bench.add("a", interval="every 1m")
    bench.step()
    bench.end("a")
    bench.store.is_away = True
    for _ in range(10):
        with pytest.raises(StoreUnavailable):
            bench.step(later=30_000)
    bench.store.is_away = False
    bench.step(later=7)
    assert bench.due("a") == 60_000 - 7
    assert not bench.reported


def test_a_lock_that_is_lost_when_the_result_is_written_is_reported() -> None:
    bench = Bench()
    bench.add("a", interval="every 1h")
    bench.step()
    bench.rows["a"]["sleep_until"] = from_ms(bench.clock.now + 5)
    bench.document("a").update(result=1)
    bench.end("a")
    bench.step()
    ((error, about),) = bench.reported
    assert isinstance(error, DocumentLockLost)
    assert error.document == "a"
    assert about is bench.document("a")
    assert bench.due("a") == 5
    assert "result" not in bench.rows["a"]
    assert not bench.is_processing()


def test_a_result_without_an_answer_whose_lock_was_lost_is_logged_as_doubtful(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.add("a")
    bench.step()
    bench.end("a")
    bench.store.faults = [LOST_REQUEST]
    with pytest.raises(StoreUnavailable):
        bench.step()
    bench.clock.now += LOCK
    bench.store.lock_next(LOCK, 1)
    with caplog.at_level(logging.WARNING, "evenbeat.documents"):
        bench.step()
    assert "may be written or not" in caplog.text
    assert bench.due("a") == LOCK
    assert not bench.is_processing()


def test_a_result_that_the_database_refuses_does_not_affect_others() -> None:
    bench = Bench(Policy(on_failure="retry", retry_delay=777))
    for key in "abcd":
        bench.add(key)
    bench.step()
    bench.document("b").update({"..": "no field is called so", "fine": 1})
    bench.document("c").update(result=3)
    for key in "abcd":
        bench.end(key)
    bench.step()
    assert [bench.due(key) for key in "abcd"] == [None, 777, None, None]
    assert "fine" not in bench.rows["b"]
    assert bench.rows["c"]["result"] == 3
    ((error, about),) = bench.reported
    assert isinstance(error, InvalidValue)
    assert about is bench.document("b")
    assert not bench.is_processing()


def test_a_document_that_can_not_be_removed_stays() -> None:
    bench = Bench()
    bench.add("a", auto_remove=True)
    bench.add("b", auto_remove=True)
    bench.step()
    bench.end("a")
    bench.end("b")
    bench.store.faults = [ValueError("referenced"), ValueError("referenced")]
    bench.step()
    assert bench.rows["a"]["sleep_until"] == HELD
    assert "b" not in bench.rows
    assert [str(error) for error, _ in bench.reported] == ["referenced"]


def test_a_document_whose_every_result_is_refused_is_released() -> None:
    bench = Bench()
    bench.add("a")
    bench.step()
    bench.end("a")
    bench.store.faults = [ValueError(1), ValueError(2), ValueError(3)]
    bench.step()
    assert bench.due("a") == LOCK
    assert not bench.is_processing()
    assert [str(error) for error, _ in bench.reported] == ["2"]  # one document, reported once


def test_an_outage_while_results_are_written_one_by_one_loses_none() -> None:
    bench = Bench()
    for key in "abc":
        bench.add(key, interval="every 1h")
    bench.step()
    for key in "abc":
        bench.end(key)
    bench.store.faults = [ValueError(1), None, LOST_REPLY]
    with pytest.raises(StoreUnavailable):
        bench.step()
    bench.step()
    assert [bench.due(key) for key in "abc"] == [HOUR, HOUR, HOUR]
    assert not bench.reported
    assert not bench.is_processing()


def test_a_failed_document_follows_the_policy() -> None:
    for on_failure, due in (("reschedule", HOUR), ("retry", 5), ("hold", HELD_AT)):
        bench = Bench(Policy(on_failure=on_failure, retry_delay=5))  # type: ignore[arg-type]  # one of three
        bench.add("a", interval="every 1h", auto_remove=True)
        bench.step()
        bench.end("a", RuntimeError("oh"))
        bench.step()
        assert bench.due("a") == (due - bench.clock.now if due == HELD_AT else due)


# Notes of handlers


def test_noted_fields_are_written_with_the_result() -> None:
    bench = Bench()
    bench.add("a", kept=1, gone=2)
    bench.step()
    document = bench.document("a")
    document.update({"gone": None}, result="fine")
    document.update({"deep.inside": 3})
    assert "result" not in bench.rows["a"]
    bench.end("a")
    bench.step()
    assert bench.rows["a"] == {
        "sleep_until": None,
        "kept": 1,
        "gone": None,
        "result": "fine",
        "deep": {"inside": 3},
    }


def test_noted_fields_of_a_handler_that_failed_are_discarded() -> None:
    bench = Bench()
    bench.add("a")
    bench.step()
    bench.document("a").update(result="fine")
    bench.document("a").reschedule("5m")
    bench.end("a", RuntimeError("oh"))
    bench.step()
    assert bench.rows["a"] == {"sleep_until": HELD}


def test_a_handler_can_reschedule_its_document() -> None:
    bench = Bench()
    bench.add("a", interval="every 1h", auto_remove=True)
    bench.add("b", auto_remove=True)
    bench.step()
    bench.document("a").reschedule("5m")
    bench.document("b").reschedule(from_ms(bench.clock.now + 77))
    bench.end("a")
    bench.end("b")
    bench.step()
    assert bench.due("a") == 300_000
    assert bench.due("b") == 77


def test_rescheduling_to_the_old_time_does_not_restore_an_old_lock() -> None:
    bench = Bench()
    bench.add("a", ago=500)
    stale = bench.store.lock_next(100, 1).found[0]  # by a worker that is suspended now
    bench.step(later=100)
    document = bench.document("a")
    document.reschedule(document.sleep_until)
    bench.end("a")
    bench.step()
    assert bench.rows["a"]["sleep_until"] == from_ms(stale.locked_until + 1) or bench.keys() == ["a", "a"]
    assert stale.locked_until not in bench.begun[-1].lock_ends


@pytest.mark.parametrize("name", ["sleep_until", "sleep_until.x"])
def test_reserved_fields_are_refused_at_once(name: str) -> None:
    bench = Bench()
    bench.add("a")
    bench.step()
    with pytest.raises(InvalidValue, match=r"use document\.reschedule") as caught:
        bench.document("a").update({"fine": 1, name: None})
    assert caught.value.field == name
    bench.end("a")
    bench.step()
    assert bench.rows["a"] == {"sleep_until": None}


def test_fields_around_a_reserved_field_are_reserved_as_well() -> None:
    bench = Bench()
    bench.store._sleep_until = "schedule.next"
    bench.add("a", schedule={"next": from_ms(bench.clock.now)})
    bench.step()
    document = bench.document("a")
    for name in ("schedule", "schedule.next"):
        with pytest.raises(InvalidValue):
            document.update({name: {}})
    document.update({"schedule.note": 1, "schedules": 2})


@pytest.mark.parametrize("when", ["tomorrow", "2026-03-01T09:00:00", 5, None])
def test_an_invalid_time_is_refused_at_once(when: Any) -> None:
    bench = Bench()
    bench.add("a")
    bench.step()
    with pytest.raises(InvalidValue):
        bench.document("a").reschedule(when)


def test_a_document_is_read_like_a_mapping() -> None:
    bench = Bench()
    bench.add("a", ago=5, interval="every 1h", repeat_until=from_ms(bench.clock.now), auto_remove=1, total=9)
    bench.step()
    document = bench.document("a")
    assert document["total"] == 9
    assert document.get("missing") is None
    assert set(document) == {"sleep_until", "interval", "repeat_until", "auto_remove", "total"}
    assert len(document) == 5
    assert document.data["sleep_until"] == document.sleep_until == from_ms(bench.clock.now - 5)
    assert document.interval == "every 1h"
    assert document.repeat_until == from_ms(bench.clock.now)
    assert document.auto_remove is True
    assert document.id == "a"
    assert repr(document) == '<Document "a">'


# Invalid documents


def test_an_invalid_document_is_reported_and_held_and_keeps_its_data() -> None:
    bench = Bench()
    bench.add("a", interval="61 * * * *", auto_remove=True, kept=1)
    bench.add("b", repeat_until="tomorrow")
    bench.add("c")
    bench.step()
    assert bench.keys() == ["c"]
    assert [(type(error).__name__, about and about.id) for error, about in bench.reported] == [
        ("InvalidTrigger", "a"),
        ("InvalidValue", "b"),
    ]
    bench.step()
    assert bench.rows["a"] == {"sleep_until": HELD, "interval": "61 * * * *", "auto_remove": True, "kept": 1}
    assert bench.rows["b"]["sleep_until"] == HELD
    for _ in range(3):
        bench.step(later=LOCK)
    assert len(bench.reported) == 2


def test_an_invalid_document_is_held_after_an_outage_and_reported_once() -> None:
    bench = Bench()
    bench.add("a", interval="61 * * * *")
    bench.step()
    bench.store.faults = [LOST_REQUEST]
    with pytest.raises(StoreUnavailable):
        bench.step()
    bench.step()
    assert bench.rows["a"]["sleep_until"] == HELD
    assert len(bench.reported) == 1


def test_a_corrected_document_is_processed() -> None:
    bench = Bench()
    bench.add("a", interval="61 * * * *")
    bench.step()
    bench.step()
    bench.add("a", interval="1 * * * *")
    bench.step(later=LONGEST_SLEEP)
    assert bench.keys() == ["a"]


# Draining


def test_a_draining_worker_takes_no_documents_and_is_empty_once_all_results_are_written() -> None:
    bench = Bench()
    bench.add("a")
    bench.step()
    bench.worker.drain()
    assert bench.wakes == 1
    bench.add("b")
    assert bench.step(later=SMALL) == LOCK - LOCK * 2 // 3 - 1
    assert bench.due("a") == LOCK - 1
    assert not bench.worker.empty.is_set()
    assert bench.is_handling()
    bench.end("a")
    assert not bench.is_handling()
    bench.store.is_away = True
    with pytest.raises(StoreUnavailable):
        bench.step()
    assert not bench.worker.empty.is_set()
    bench.store.is_away = False
    bench.step()
    assert bench.worker.empty.is_set()
    assert bench.keys() == ["a"]
    assert bench.step() is None


def test_a_draining_worker_without_documents_is_empty_without_the_store() -> None:
    bench = Bench()
    bench.worker.check_empty()
    assert not bench.worker.empty.is_set()
    bench.worker.drain()
    bench.worker.check_empty()
    assert bench.worker.empty.is_set()


# Ids of any type


def test_ids_need_no_hash() -> None:
    bench = Bench()
    keys: list[Any] = [{"region": "eu", "number": number} for number in range(3)]
    for number, key in enumerate(keys):
        bench.add(repr(key), interval="H * * * *" if number else None)
    locked = bench.store._locked

    def found(key: Any, until: int) -> Any:
        import msgspec

        number = [repr(each) for each in keys].index(key)
        return msgspec.structs.replace(locked(key, until), id=keys[number])

    bench.store._locked = found  # type: ignore[method-assign]  # as a database with such ids
    bench.step()
    assert bench.keys() == keys
    bench.step(later=SMALL)
    assert bench.due(keys[0]) == LOCK - 1
    for key in keys:
        bench.end(key)
    bench.step()
    assert bench.due(keys[0]) is None
    assert not bench.reported
    assert not bench.worker.held._latest


def test_a_result_that_can_not_be_written_delays_neither_renewals_nor_due_documents() -> None:
    bench = Bench(concurrency=3)
    bench.add("kept")
    bench.add("long")
    bench.step()
    bench.end("kept")
    bench.add("new")
    # The result of one is not written; the other is renewed all the same, and due documents are locked.
    bench.store.faults = [LOST_REQUEST, None, None]
    with pytest.raises(StoreUnavailable):
        bench.step(later=LOCK // 2)
    assert [name for name, _ in bench.store.calls[-3:]] == ["update", "update", "lock_next"]
    assert [held.id for held in bench.begun] == ["kept", "long", "new"]
    bench.step()
    assert bench.due("kept") is None


def test_a_document_whose_id_has_no_text_is_held_and_others_are_processed() -> None:
    bench = Bench()
    bench.add(10**5000, interval="every 1h")
    bench.add("fine")
    bench.step()
    assert [held.id for held in bench.begun] == ["fine"]
    bench.step()
    assert bench.rows[10**5000]["sleep_until"] == HELD


def test_a_result_of_a_document_that_its_owner_has_locked_delays_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(concurrency=2)
    bench.add("held")
    bench.add("fine")
    bench.step()
    bench.end("held")
    bench.end("fine")
    update = bench.store.update
    is_held = True

    def sometimes(changes: Sequence[Change]) -> list[bool | None]:
        return [None if is_held and change.lock.id == "held" else update([change])[0] for change in changes]

    monkeypatch.setattr(bench.store, "update", sometimes)
    bench.add("new")
    bench.step()
    assert bench.due("fine") is None
    assert [held.id for held in bench.begun] == ["held", "fine", "new"]
    calls = len(bench.store.calls)
    bench.step(later=1000)  # not yet again
    assert "update" not in [name for name, _ in bench.store.calls[calls:]]
    is_held = False
    bench.step(later=1000)
    assert bench.due("held") is None
    assert not bench.reported


def test_a_renewal_of_a_document_that_its_owner_has_locked_delays_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(concurrency=2)
    bench.add("held")
    bench.add("long")
    bench.step()
    update = bench.store.update

    def refuse(changes: Sequence[Change]) -> list[bool | None]:
        return [None if change.lock.id == "held" else update([change])[0] for change in changes]

    monkeypatch.setattr(bench.store, "update", refuse)
    held, long = bench.begun
    before = held.lock_ends
    assert long.lock_ends == before
    bench.step(later=SMALL)
    assert held.lock_ends == before
    assert long.lock_ends > before
    monkeypatch.setattr(bench.store, "update", update)
    bench.step(later=2000)
    assert held.lock_ends > before
    assert bench.rows["held"]["sleep_until"] == from_ms(held.lock_ends[0])
    assert not held.document.is_lost
