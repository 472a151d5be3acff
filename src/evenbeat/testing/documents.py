"""What every store of documents promises, as tests: ``class TestMine(DocumentsContract)`` and a ground."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from evenbeat.core.instants import Instant
from evenbeat.documents import rules
from evenbeat.documents.base import HELD_AT, Change, DocumentLock, Documents, Found
from evenbeat.testing.clock import VirtualClock

MINUTE = 60_000
LOCK = 10 * MINUTE


class Row(NamedTuple):
    """A document as it stands in the database."""

    sleep_until: Instant | None
    note: str | None


class Ground(ABC):
    """Documents of a test in a real database, looked at and changed past the store, as their owner would."""

    @abstractmethod
    def handle(self, *, only_active: bool = False) -> Documents:
        """A store on these documents, opened. With ``only_active``, under the condition that ``active`` is
        true."""

    @abstractmethod
    def add(
        self,
        key: str,
        sleep_until: Instant | None,
        *,
        interval: str | None = None,
        repeat_until: Instant | None = None,
        auto_remove: bool = False,
        active: bool = True,
        note: str | None = None,
    ) -> None:
        """Add a document that the store will know by ``key``, or by what ``key_of`` answers to."""

    @abstractmethod
    def row(self, key: str) -> Row | None:
        """The document now; None if it is gone."""

    @abstractmethod
    def move(self, key: str, sleep_until: Instant | None) -> None:
        """Set its ``sleep_until``."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete it."""

    def key_of(self, found: Found) -> str:
        return str(found.id)


class DocumentsContract:
    """``make`` is all that a subclass has to say."""

    __test__: ClassVar[bool] = False  # subclasses are collected, not this

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if "__test__" not in vars(cls):
            cls.__test__ = True

    def make(self, clock: VirtualClock, tmp_path: Path) -> AbstractContextManager[Ground]:
        """A context in which the ground exists. Its stores go by ``clock``."""
        raise AssertionError(f"{type(self).__name__} does not say how to make its ground")

    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    @pytest.fixture
    def ground(self, clock: VirtualClock, tmp_path: Path) -> Iterator[Ground]:
        with self.make(clock, tmp_path) as ground:
            yield ground

    @pytest.fixture
    def documents(self, ground: Ground) -> Documents:
        return ground.handle()

    def take(self, documents: Documents) -> Found:
        (found,) = documents.lock_next(LOCK, 1).found
        return found

    def keys(self, ground: Ground, found: Sequence[Found]) -> list[str]:
        return [ground.key_of(one) for one in found]

    # Taking

    def test_where_nothing_is_there_nothing_is_found(self, documents: Documents) -> None:
        assert documents.lock_next(LOCK, 5) == ([], None)

    def test_it_goes_by_its_clock(self, documents: Documents, clock: VirtualClock) -> None:
        assert documents.now() == clock.now
        clock.advance("1m")
        assert documents.now() == clock.now

    def test_a_due_document_is_locked_and_given_as_it_was(
        self, ground: Ground, documents: Documents, clock: VirtualClock
    ) -> None:
        due = clock.now - 90_001
        ground.add("a", due, note="hello")
        found = self.take(documents)
        assert ground.key_of(found) == "a"
        assert found.sleep_until == due
        assert found.locked_until == clock.now + LOCK
        assert found.data["note"] == "hello"
        assert ground.row("a") == Row(clock.now + LOCK, "hello")

    def test_the_fields_come_as_they_are_said(
        self, ground: Ground, documents: Documents, clock: VirtualClock
    ) -> None:
        until = clock.now + 3 * MINUTE + 7
        ground.add("a", clock.now, interval="*/5 * * * * *", repeat_until=until, auto_remove=True)
        plan = rules.read(self.take(documents))
        assert plan.trigger is not None
        assert plan.trigger.next_ms(clock.now) == clock.now + 5000
        assert plan.repeat_until == until
        assert plan.auto_remove

    def test_fields_that_say_nothing_are_none(
        self, ground: Ground, documents: Documents, clock: VirtualClock
    ) -> None:
        ground.add("a", clock.now)
        assert rules.read(self.take(documents)) == rules.Plan(sleep_until=clock.now)

    def test_none_is_taken_before_it_is_due(
        self, ground: Ground, documents: Documents, clock: VirtualClock
    ) -> None:
        ground.add("a", clock.now + 1)
        assert documents.lock_next(LOCK, 1) == ([], clock.now + 1)
        clock.now += 1
        assert self.keys(ground, documents.lock_next(LOCK, 1).found) == ["a"]

    def test_null_is_not_a_job(self, ground: Ground, documents: Documents) -> None:
        ground.add("a", None)
        assert documents.lock_next(LOCK, 1) == ([], None)

    def test_the_longest_due_is_first(
        self, ground: Ground, documents: Documents, clock: VirtualClock
    ) -> None:
        for key, ago in (("b", 2), ("a", 1), ("d", 4), ("c", 3)):
            ground.add(key, clock.now - ago * MINUTE)
        first = documents.lock_next(LOCK, 3)
        assert sorted(self.keys(ground, first.found)) == ["b", "c", "d"]
        assert first.next_due is None  # as many as wanted: nobody asked
        rest = documents.lock_next(LOCK, 3)
        assert self.keys(ground, rest.found) == ["a"]
        assert rest.next_due == clock.now + LOCK  # a lock may end without a result

    def test_the_next_due_one_is_known(
        self, ground: Ground, documents: Documents, clock: VirtualClock
    ) -> None:
        ground.add("later", clock.now + 2 * MINUTE)
        ground.add("sooner", clock.now + MINUTE + 3)
        ground.add("never", None)
        ground.add("now", clock.now)
        assert documents.lock_next(LOCK, 2).next_due == clock.now + MINUTE + 3

    def test_years_before_1970_and_far_ahead_are_times_as_well(
        self, ground: Ground, documents: Documents
    ) -> None:
        ground.add("old", -86_400_000_123)
        ground.add("held", HELD_AT)
        taken = documents.lock_next(LOCK, 2)
        assert [found.sleep_until for found in taken.found] == [-86_400_000_123]
        assert taken.next_due in (HELD_AT, taken.found[0].locked_until)

    def test_a_locked_one_is_not_taken_before_its_lock_ends(
        self, ground: Ground, documents: Documents, clock: VirtualClock
    ) -> None:
        ground.add("a", clock.now)
        lock = self.take(documents).locked_until
        other = ground.handle()
        clock.now = lock - 1
        assert other.lock_next(LOCK, 1).found == []
        clock.now = lock
        again = self.take(other)
        assert ground.key_of(again) == "a"
        assert again.sleep_until == lock
        assert again.locked_until == lock + LOCK

    def test_what_its_owner_moves_nearer_is_found(
        self, ground: Ground, documents: Documents, clock: VirtualClock
    ) -> None:
        ground.add("a", clock.now + MINUTE)
        assert documents.lock_next(LOCK, 1) == ([], clock.now + MINUTE)
        ground.move("a", clock.now)
        assert self.keys(ground, documents.lock_next(LOCK, 1).found) == ["a"]

    def test_the_condition_decides_who_is_taken(self, ground: Ground, clock: VirtualClock) -> None:
        documents = ground.handle(only_active=True)
        ground.add("no", clock.now - 1, active=False)
        ground.add("no, later", clock.now + 1, active=False)
        ground.add("yes", clock.now)
        ground.add("yes, later", clock.now + MINUTE)
        taken = documents.lock_next(LOCK, 5)
        assert self.keys(ground, taken.found) == ["yes"]
        assert taken.next_due == clock.now + MINUTE
        assert ground.row("no") == Row(clock.now - 1, None)

    def test_many_are_taken_and_written_in_one_call(
        self, ground: Ground, documents: Documents, clock: VirtualClock
    ) -> None:
        for number in range(300):
            ground.add(f"k{number}", clock.now - number)
        found = documents.lock_next(LOCK, 1000).found
        assert sorted(self.keys(ground, found)) == sorted(f"k{number}" for number in range(300))
        locks = [DocumentLock(one.id, (one.locked_until,)) for one in found]
        assert documents.update([Change(lock, None) for lock in locks[:150]]) == [True] * 150
        assert documents.remove(locks[150:]) == [True] * 150
        left = [key for number in range(300) if ground.row(key := f"k{number}") is not None]
        assert sorted(left) == sorted(self.keys(ground, found[:150]))

    def test_of_all_who_ask_at_once_one_gets_it(self, ground: Ground, clock: VirtualClock) -> None:
        count, askers = 200, 6
        for number in range(count):
            ground.add(f"k{number}", clock.now - number)
        handles = [ground.handle() for _ in range(askers)]
        taken: list[list[str]] = [[] for _ in handles]
        failures: list[BaseException] = []

        def ask(place: int) -> None:
            try:
                while found := handles[place].lock_next(LOCK, 7).found:
                    taken[place] += self.keys(ground, found)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=ask, args=(place,)) for place in range(askers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        # Those who met too often may have gone away early; what is left is there for the next one.
        left = self.keys(ground, ground.handle().lock_next(LOCK, count).found)
        assert sorted([*chain.from_iterable(taken), *left]) == sorted(f"k{number}" for number in range(count))

    # Writing

    def test_update_says_when_it_is_due_next(
        self, ground: Ground, documents: Documents, clock: VirtualClock
    ) -> None:
        ground.add("a", clock.now, note="kept")
        found = self.take(documents)
        next_due = clock.now + MINUTE + 1
        assert documents.update([Change(DocumentLock(found.id, (found.locked_until,)), next_due)]) == [True]
        assert ground.row("a") == Row(next_due, "kept")

    def test_update_clears_what_is_done(
        self, ground: Ground, documents: Documents, clock: VirtualClock
    ) -> None:
        ground.add("a", clock.now, note="kept")
        found = self.take(documents)
        assert documents.update([Change(DocumentLock(found.id, (found.locked_until,)), None)]) == [True]
        assert ground.row("a") == Row(None, "kept")
        clock.advance("1h")
        assert documents.lock_next(LOCK, 1) == ([], None)

    def test_update_sets_fields_and_clears_them(
        self, ground: Ground, documents: Documents, clock: VirtualClock
    ) -> None:
        ground.add("set", clock.now - 1, note="before")
        ground.add("cleared", clock.now, note="before")
        ground.add("left", clock.now, note="before")
        locks = {
            ground.key_of(one): DocumentLock(one.id, (one.locked_until,))
            for one in documents.lock_next(LOCK, 3).found
        }
        answers = documents.update(
            [
                Change(locks["set"], clock.now + 1, {"note": 'it\'s "after"; %s ? $1 {}'}),
                Change(locks["left"], clock.now + 2),
                Change(locks["cleared"], None, {"note": None}),
            ]
        )
        assert answers == [True, True, True]
        assert ground.row("set") == Row(clock.now + 1, 'it\'s "after"; %s ? $1 {}')
        assert ground.row("left") == Row(clock.now + 2, "before")
        assert ground.row("cleared") == Row(None, None)

    def test_a_held_document_stays(self, ground: Ground, documents: Documents, clock: VirtualClock) -> None:
        ground.add("a", clock.now)
        found = self.take(documents)
        assert documents.update([Change(DocumentLock(found.id, (found.locked_until,)), HELD_AT)]) == [True]
        assert ground.row("a") == Row(HELD_AT, None)
        assert documents.lock_next(LOCK, 1) == ([], HELD_AT)

    def test_a_renewed_lock_keeps_others_out(
        self, ground: Ground, documents: Documents, clock: VirtualClock
    ) -> None:
        ground.add("a", clock.now)
        found = self.take(documents)
        clock.advance("5m")
        renewed = clock.now + LOCK
        assert documents.update([Change(DocumentLock(found.id, (found.locked_until,)), renewed)]) == [True]
        clock.now = found.locked_until
        assert documents.lock_next(LOCK, 1).found == []
        assert documents.update([Change(DocumentLock(found.id, (found.locked_until,)), None)]) == [False]
        assert documents.update([Change(DocumentLock(found.id, (renewed,)), None)]) == [True]

    def test_any_of_the_ends_that_a_lock_may_have_is_good(
        self, ground: Ground, documents: Documents, clock: VirtualClock
    ) -> None:
        ground.add("a", clock.now)
        ground.add("b", clock.now)
        found = documents.lock_next(LOCK, 2).found
        ends = (found[0].locked_until, found[0].locked_until + 5)
        first = DocumentLock(found[0].id, ends)
        assert documents.update([Change(first, ends[1])]) == [True]
        assert documents.update([Change(first, ends[1] + 5)]) == [True]
        assert documents.update([Change(first, None)]) == [False]
        second = DocumentLock(found[1].id, (found[1].locked_until - 5, found[1].locked_until))
        assert documents.remove([second]) == [True]

    def test_remove_deletes(self, ground: Ground, documents: Documents, clock: VirtualClock) -> None:
        ground.add("a", clock.now)
        ground.add("b", clock.now + 1)
        found = self.take(documents)
        lock = DocumentLock(found.id, (found.locked_until,))
        assert documents.remove([lock]) == [True]
        assert ground.row("a") is None
        assert ground.row("b") is not None
        assert documents.remove([lock]) == [False]

    def test_nothing_is_written_for_nobody(self, documents: Documents) -> None:
        assert documents.update([]) == []
        assert documents.remove([]) == []

    # The fence

    def test_a_lock_that_others_have_taken_over_is_worth_nothing(
        self, ground: Ground, documents: Documents, clock: VirtualClock
    ) -> None:
        ground.add("a", clock.now, note="before")
        stale = self.take(documents)
        clock.now = stale.locked_until
        current = self.take(ground.handle())
        lock = DocumentLock(stale.id, (stale.locked_until,))
        assert documents.update([Change(lock, clock.now + 1, {"note": "late"})]) == [False]
        assert documents.update([Change(lock, None)]) == [False]
        assert documents.remove([lock]) == [False]
        assert ground.row("a") == Row(current.locked_until, "before")

    def test_a_lock_that_has_ended_and_that_nobody_took_is_still_good(
        self, ground: Ground, documents: Documents, clock: VirtualClock
    ) -> None:
        ground.add("a", clock.now)
        found = self.take(documents)
        clock.now = found.locked_until + 1
        assert documents.update([Change(DocumentLock(found.id, (found.locked_until,)), None)]) == [True]
        assert documents.lock_next(LOCK, 1) == ([], None)

    @pytest.mark.parametrize("moved", [None, 5 * MINUTE])
    def test_what_its_owner_says_meanwhile_stays(
        self, ground: Ground, documents: Documents, clock: VirtualClock, moved: int | None
    ) -> None:
        ground.add("a", clock.now)
        found = self.take(documents)
        said = None if moved is None else clock.now + moved
        ground.move("a", said)
        lock = DocumentLock(found.id, (found.locked_until,))
        assert documents.update([Change(lock, clock.now + MINUTE)]) == [False]
        assert documents.remove([lock]) == [False]
        assert ground.row("a") == Row(said, None)

    def test_what_was_deleted_stays_deleted(
        self, ground: Ground, documents: Documents, clock: VirtualClock
    ) -> None:
        ground.add("a", clock.now)
        found = self.take(documents)
        ground.delete("a")
        lock = DocumentLock(found.id, (found.locked_until,))
        assert documents.update([Change(lock, clock.now + MINUTE, {"note": "late"})]) == [False]
        assert ground.row("a") is None
        assert documents.lock_next(LOCK, 1) == ([], None)

    def test_answers_are_in_the_order_of_what_was_asked(
        self, ground: Ground, documents: Documents, clock: VirtualClock
    ) -> None:
        for key in "abcdef":
            ground.add(key, clock.now)
        found = {ground.key_of(one): one for one in documents.lock_next(LOCK, 6).found}
        ground.delete("b")
        ground.move("d", clock.now + MINUTE)
        ground.move("e", clock.now + MINUTE)
        locks = [DocumentLock(found[key].id, (found[key].locked_until,)) for key in "abcd"]
        changes = [
            Change(lock, clock.now + 1, {"note": "x"} if place == 3 else {})
            for place, lock in enumerate(locks)
        ]
        assert documents.update(changes) == [True, False, True, False]
        assert documents.remove(
            [DocumentLock(found[key].id, (found[key].locked_until,)) for key in "ef"]
        ) == [False, True]

    def test_what_no_longer_meets_the_condition_can_still_be_ended(
        self, ground: Ground, clock: VirtualClock
    ) -> None:
        documents = ground.handle(only_active=True)
        ground.add("a", clock.now)
        found = self.take(documents)
        lock = DocumentLock(found.id, (found.locked_until,))
        assert documents.update([Change(lock, clock.now + 1, {"active": None})]) == [True]
        clock.advance("1m")
        assert documents.lock_next(LOCK, 1) == ([], None)
        assert ground.row("a") == Row(clock.now - MINUTE + 1, None)

    # The handle

    def test_it_can_be_opened_again(self, ground: Ground, documents: Documents, clock: VirtualClock) -> None:
        ground.add("a", clock.now)
        documents.open()
        documents.close()
        documents.close()
        documents.open()
        assert self.keys(ground, documents.lock_next(LOCK, 1).found) == ["a"]

    def test_it_has_a_name_and_reserved_fields(self, documents: Documents) -> None:
        assert documents.name
        assert documents.reserved
