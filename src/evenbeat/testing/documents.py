"""The contract of document stores, as tests: subclass ``DocumentsContract`` and define ``make``."""

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


class StoredDocument(NamedTuple):
    """A document as the database has it."""

    sleep_until: Instant | None
    note: str | None


class DocumentsUnderTest(ABC):
    """The documents of a test in a real database, read and changed without the store, as their owner does."""

    @abstractmethod
    def open_store(self, *, only_active: bool = False) -> Documents:
        """Return an open store of these documents; with ``only_active``, under the condition that ``active``
        is true."""

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
        """Add a document. ``key_of`` returns ``key`` for it."""

    @abstractmethod
    def row(self, key: str) -> StoredDocument | None:
        """Return the document as it is now; None if it is deleted."""

    @abstractmethod
    def move(self, key: str, sleep_until: Instant | None) -> None:
        """Set ``sleep_until`` of a document."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete a document."""

    def key_of(self, found: Found) -> str:
        """Return the key of a document by which it was added."""
        return str(found.id)


class DocumentsContract:
    """The tests. A subclass defines ``make``."""

    __test__: ClassVar[bool] = False  # subclasses are collected, not this

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if "__test__" not in vars(cls):
            cls.__test__ = True

    def make(self, clock: VirtualClock, tmp_path: Path) -> AbstractContextManager[DocumentsUnderTest]:
        """Return a context in which the documents exist. Their stores use ``clock``."""
        raise AssertionError(f"{type(self).__name__} does not define make()")

    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    @pytest.fixture
    def stored(self, clock: VirtualClock, tmp_path: Path) -> Iterator[DocumentsUnderTest]:
        with self.make(clock, tmp_path) as stored:
            yield stored

    @pytest.fixture
    def documents(self, stored: DocumentsUnderTest) -> Documents:
        return stored.open_store()

    def take(self, documents: Documents) -> Found:
        (found,) = documents.lock_next(LOCK, 1).found
        return found

    def keys(self, stored: DocumentsUnderTest, found: Sequence[Found]) -> list[str]:
        return [stored.key_of(one) for one in found]

    # Locking

    def test_an_empty_store_finds_nothing(self, documents: Documents) -> None:
        assert documents.lock_next(LOCK, 5) == ([], None)

    def test_now_is_the_time_of_its_clock(self, documents: Documents, clock: VirtualClock) -> None:
        assert documents.now() == clock.now
        clock.advance("1m")
        assert documents.now() == clock.now

    def test_a_due_document_is_locked_and_returned_as_it_was(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        due = clock.now - 90_001
        stored.add("a", due, note="hello")
        found = self.take(documents)
        assert stored.key_of(found) == "a"
        assert found.sleep_until == due
        assert found.locked_until == clock.now + LOCK
        assert found.data["note"] == "hello"
        assert stored.row("a") == StoredDocument(clock.now + LOCK, "hello")

    def test_the_four_fields_are_returned(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        until = clock.now + 3 * MINUTE + 7
        stored.add("a", clock.now, interval="*/5 * * * * *", repeat_until=until, auto_remove=True)
        plan = rules.read(self.take(documents))
        assert plan.trigger is not None
        assert plan.trigger.next_ms(clock.now) == clock.now + 5000
        assert plan.repeat_until == until
        assert plan.auto_remove

    def test_missing_fields_are_none(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        stored.add("a", clock.now)
        assert rules.read(self.take(documents)) == rules.DocumentPlan(sleep_until=clock.now)

    def test_no_document_is_locked_before_it_is_due(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        stored.add("a", clock.now + 1)
        assert documents.lock_next(LOCK, 1) == ([], clock.now + 1)
        clock.now += 1
        assert self.keys(stored, documents.lock_next(LOCK, 1).found) == ["a"]

    def test_a_document_with_null_is_not_a_job(
        self, stored: DocumentsUnderTest, documents: Documents
    ) -> None:
        stored.add("a", None)
        assert documents.lock_next(LOCK, 1) == ([], None)

    def test_the_longest_due_documents_are_locked_first(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        for key, ago in (("b", 2), ("a", 1), ("d", 4), ("c", 3)):
            stored.add(key, clock.now - ago * MINUTE)
        first = documents.lock_next(LOCK, 3)
        assert sorted(self.keys(stored, first.found)) == ["b", "c", "d"]
        assert first.next_due is None  # as many as wanted
        rest = documents.lock_next(LOCK, 3)
        assert self.keys(stored, rest.found) == ["a"]
        assert rest.next_due == clock.now + LOCK  # the lock that ends first

    def test_next_due_is_when_the_next_document_is_due(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        stored.add("later", clock.now + 2 * MINUTE)
        stored.add("sooner", clock.now + MINUTE + 3)
        stored.add("never", None)
        stored.add("now", clock.now)
        assert documents.lock_next(LOCK, 2).next_due == clock.now + MINUTE + 3

    def test_times_before_1970_and_in_9999_are_read(
        self, stored: DocumentsUnderTest, documents: Documents
    ) -> None:
        stored.add("old", -86_400_000_123)
        stored.add("held", HELD_AT)
        taken = documents.lock_next(LOCK, 2)
        assert [found.sleep_until for found in taken.found] == [-86_400_000_123]
        assert taken.next_due in (HELD_AT, taken.found[0].locked_until)

    def test_a_locked_document_is_not_locked_again_before_its_lock_ends(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        stored.add("a", clock.now)
        lock = self.take(documents).locked_until
        other = stored.open_store()
        clock.now = lock - 1
        assert other.lock_next(LOCK, 1).found == []
        clock.now = lock
        again = self.take(other)
        assert stored.key_of(again) == "a"
        assert again.sleep_until == lock
        assert again.locked_until == lock + LOCK

    def test_a_document_that_its_owner_makes_due_is_found(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        stored.add("a", clock.now + MINUTE)
        assert documents.lock_next(LOCK, 1) == ([], clock.now + MINUTE)
        stored.move("a", clock.now)
        assert self.keys(stored, documents.lock_next(LOCK, 1).found) == ["a"]

    def test_only_documents_that_meet_the_condition_are_locked(
        self, stored: DocumentsUnderTest, clock: VirtualClock
    ) -> None:
        documents = stored.open_store(only_active=True)
        stored.add("no", clock.now - 1, active=False)
        stored.add("no, later", clock.now + 1, active=False)
        stored.add("yes", clock.now)
        stored.add("yes, later", clock.now + MINUTE)
        taken = documents.lock_next(LOCK, 5)
        assert self.keys(stored, taken.found) == ["yes"]
        assert taken.next_due == clock.now + MINUTE
        assert stored.row("no") == StoredDocument(clock.now - 1, None)

    def test_one_call_locks_and_writes_many_documents(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        for number in range(300):
            stored.add(f"k{number}", clock.now - number)
        found = documents.lock_next(LOCK, 1000).found
        assert sorted(self.keys(stored, found)) == sorted(f"k{number}" for number in range(300))
        locks = [DocumentLock(one.id, (one.locked_until,)) for one in found]
        assert documents.update([Change(lock, None) for lock in locks[:150]]) == [True] * 150
        assert documents.remove(locks[150:]) == [True] * 150
        left = [key for number in range(300) if stored.row(key := f"k{number}") is not None]
        assert sorted(left) == sorted(self.keys(stored, found[:150]))

    def test_concurrent_calls_lock_each_document_once(
        self, stored: DocumentsUnderTest, clock: VirtualClock
    ) -> None:
        count, callers = 200, 6
        for number in range(count):
            stored.add(f"k{number}", clock.now - number)
        stores = [stored.open_store() for _ in range(callers)]
        taken: list[list[str]] = [[] for _ in stores]
        failures: list[BaseException] = []

        def lock_all(place: int) -> None:
            try:
                while found := stores[place].lock_next(LOCK, 7).found:
                    taken[place] += self.keys(stored, found)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=lock_all, args=(place,)) for place in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        # Under contention a call may return nothing, and end its loop early: the next call gets the rest.
        left = self.keys(stored, stored.open_store().lock_next(LOCK, count).found)
        assert sorted([*chain.from_iterable(taken), *left]) == sorted(f"k{number}" for number in range(count))

    # Writing

    def test_update_sets_when_it_is_due_next(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        stored.add("a", clock.now, note="kept")
        found = self.take(documents)
        next_due = clock.now + MINUTE + 1
        assert documents.update([Change(DocumentLock(found.id, (found.locked_until,)), next_due)]) == [True]
        assert stored.row("a") == StoredDocument(next_due, "kept")

    def test_update_clears_the_time_of_a_document_that_is_done(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        stored.add("a", clock.now, note="kept")
        found = self.take(documents)
        assert documents.update([Change(DocumentLock(found.id, (found.locked_until,)), None)]) == [True]
        assert stored.row("a") == StoredDocument(None, "kept")
        clock.advance("1h")
        assert documents.lock_next(LOCK, 1) == ([], None)

    def test_update_sets_and_clears_fields(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        stored.add("set", clock.now - 1, note="before")
        stored.add("cleared", clock.now, note="before")
        stored.add("left", clock.now, note="before")
        locks = {
            stored.key_of(one): DocumentLock(one.id, (one.locked_until,))
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
        assert stored.row("set") == StoredDocument(clock.now + 1, 'it\'s "after"; %s ? $1 {}')
        assert stored.row("left") == StoredDocument(clock.now + 2, "before")
        assert stored.row("cleared") == StoredDocument(None, None)

    def test_a_held_document_is_not_due(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        stored.add("a", clock.now)
        found = self.take(documents)
        assert documents.update([Change(DocumentLock(found.id, (found.locked_until,)), HELD_AT)]) == [True]
        assert stored.row("a") == StoredDocument(HELD_AT, None)
        assert documents.lock_next(LOCK, 1) == ([], HELD_AT)

    def test_a_renewed_lock_lasts_until_its_new_end(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        stored.add("a", clock.now)
        found = self.take(documents)
        clock.advance("5m")
        renewed = clock.now + LOCK
        assert documents.update([Change(DocumentLock(found.id, (found.locked_until,)), renewed)]) == [True]
        clock.now = found.locked_until
        assert documents.lock_next(LOCK, 1).found == []
        assert documents.update([Change(DocumentLock(found.id, (found.locked_until,)), None)]) == [False]
        assert documents.update([Change(DocumentLock(found.id, (renewed,)), None)]) == [True]

    def test_a_lock_with_several_ends_matches_any_of_them(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        stored.add("a", clock.now)
        stored.add("b", clock.now)
        found = documents.lock_next(LOCK, 2).found
        ends = (found[0].locked_until, found[0].locked_until + 5)
        first = DocumentLock(found[0].id, ends)
        assert documents.update([Change(first, ends[1])]) == [True]
        assert documents.update([Change(first, ends[1] + 5)]) == [True]
        assert documents.update([Change(first, None)]) == [False]
        second = DocumentLock(found[1].id, (found[1].locked_until - 5, found[1].locked_until))
        assert documents.remove([second]) == [True]

    def test_remove_deletes_the_document(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        stored.add("a", clock.now)
        stored.add("b", clock.now + 1)
        found = self.take(documents)
        lock = DocumentLock(found.id, (found.locked_until,))
        assert documents.remove([lock]) == [True]
        assert stored.row("a") is None
        assert stored.row("b") is not None
        assert documents.remove([lock]) == [False]

    def test_empty_calls_write_nothing(self, documents: Documents) -> None:
        assert documents.update([]) == []
        assert documents.remove([]) == []

    # The fence

    def test_writes_under_a_lock_that_another_store_has_taken_over_are_refused(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        stored.add("a", clock.now, note="before")
        stale = self.take(documents)
        clock.now = stale.locked_until
        current = self.take(stored.open_store())
        lock = DocumentLock(stale.id, (stale.locked_until,))
        assert documents.update([Change(lock, clock.now + 1, {"note": "late"})]) == [False]
        assert documents.update([Change(lock, None)]) == [False]
        assert documents.remove([lock]) == [False]
        assert stored.row("a") == StoredDocument(current.locked_until, "before")

    def test_writes_under_an_expired_lock_that_was_not_taken_over_are_accepted(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        stored.add("a", clock.now)
        found = self.take(documents)
        clock.now = found.locked_until + 1
        assert documents.update([Change(DocumentLock(found.id, (found.locked_until,)), None)]) == [True]
        assert documents.lock_next(LOCK, 1) == ([], None)

    @pytest.mark.parametrize("moved", [None, 5 * MINUTE])
    def test_a_time_that_the_owner_sets_meanwhile_is_not_overwritten(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock, moved: int | None
    ) -> None:
        stored.add("a", clock.now)
        found = self.take(documents)
        time = None if moved is None else clock.now + moved
        stored.move("a", time)
        lock = DocumentLock(found.id, (found.locked_until,))
        assert documents.update([Change(lock, clock.now + MINUTE)]) == [False]
        assert documents.remove([lock]) == [False]
        assert stored.row("a") == StoredDocument(time, None)

    def test_a_deleted_document_stays_deleted(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        stored.add("a", clock.now)
        found = self.take(documents)
        stored.delete("a")
        lock = DocumentLock(found.id, (found.locked_until,))
        assert documents.update([Change(lock, clock.now + MINUTE, {"note": "late"})]) == [False]
        assert stored.row("a") is None
        assert documents.lock_next(LOCK, 1) == ([], None)

    def test_answers_have_the_order_of_the_arguments(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        for key in "abcdef":
            stored.add(key, clock.now)
        found = {stored.key_of(one): one for one in documents.lock_next(LOCK, 6).found}
        stored.delete("b")
        stored.move("d", clock.now + MINUTE)
        stored.move("e", clock.now + MINUTE)
        locks = [DocumentLock(found[key].id, (found[key].locked_until,)) for key in "abcd"]
        changes = [
            Change(lock, clock.now + 1, {"note": "x"} if place == 3 else {})
            for place, lock in enumerate(locks)
        ]
        assert documents.update(changes) == [True, False, True, False]
        assert documents.remove(
            [DocumentLock(found[key].id, (found[key].locked_until,)) for key in "ef"]
        ) == [False, True]

    def test_a_locked_document_that_no_longer_meets_the_condition_is_written(
        self, stored: DocumentsUnderTest, clock: VirtualClock
    ) -> None:
        documents = stored.open_store(only_active=True)
        stored.add("a", clock.now)
        found = self.take(documents)
        lock = DocumentLock(found.id, (found.locked_until,))
        assert documents.update([Change(lock, clock.now + 1, {"active": None})]) == [True]
        clock.advance("1m")
        assert documents.lock_next(LOCK, 1) == ([], None)
        assert stored.row("a") == StoredDocument(clock.now - MINUTE + 1, None)

    # Opening

    def test_a_closed_store_can_be_opened_again(
        self, stored: DocumentsUnderTest, documents: Documents, clock: VirtualClock
    ) -> None:
        stored.add("a", clock.now)
        documents.open()
        documents.close()
        documents.close()
        documents.open()
        assert self.keys(stored, documents.lock_next(LOCK, 1).found) == ["a"]

    def test_it_has_a_name_and_reserved_fields(self, documents: Documents) -> None:
        assert documents.name
        assert documents.reserved
