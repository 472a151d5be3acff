"""Records, locks, logs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from evenbeat.app import locks
from evenbeat.core.instants import from_ms
from evenbeat.core.records import LogChunk, Record, RunRecord
from evenbeat.errors import InvalidValue
from evenbeat.stores.base import Store
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract.base import MINUTE, Contract, Handles


class RecordContract(Contract):
    def test_a_former_holder_cannot_take_a_lock_from_the_present_one(
        self, store: Store, clock: VirtualClock
    ) -> None:
        assert locks.try_acquire(store, "migrate", "30s", "first")
        stale = store.get_record("lock", "default", "migrate")
        assert stale is not None
        clock.advance("30s")
        assert locks.try_acquire(store, "migrate", "30s", "second")
        # The writes of a holder that was frozen between its read and its extend or release.
        assert not store.put_record(replace(stale, version=stale.version + 1), expect=stale.version)
        assert not store.delete_record("lock", "default", "migrate", stale.version)
        assert locks.extend(store, "migrate", "30s", "second")

    def test_locks_whose_names_have_dots_and_colons_do_not_touch_each_other(self, store: Store) -> None:
        names = ["a", "a.b", "a:b", "a:b:c"]
        for tenant in ("default", "acme"):
            for name in names:
                assert locks.try_acquire(store, name, "30s", f"{tenant} {name}", tenant)
        assert locks.release(store, "a:b", "default a:b")
        held = {
            (record.tenant, record.key, msgspec.json.decode(record.body)["token"])
            for record in store.find_records("lock")
        }
        wanted = {(tenant, name) for tenant in ("default", "acme") for name in names} - {("default", "a:b")}
        assert held == {(tenant, name, f"{tenant} {name}") for tenant, name in wanted}

    def test_a_purge_by_a_fast_clock_keeps_records_that_have_not_expired(
        self, store: Store, clock: VirtualClock
    ) -> None:
        assert locks.try_acquire(store, "migrate", "30s", "mine")
        assert store.purge(clock.now + 60 * MINUTE, 100).deleted == 0
        assert locks.extend(store, "migrate", "30s", "mine")

    def test_records_change_by_compare_and_set(self, store: Store) -> None:
        first = Record(kind="calendar", key="holidays", body="[]")
        assert store.get_record("calendar", "default", "holidays") is None
        assert store.put_record(first)
        assert store.put_record(first)  # its reply was lost
        assert not store.put_record(replace(first, body="other"))
        second = replace(first, body='["x"]', version=2)
        assert not store.put_record(second, expect=7)
        assert store.put_record(second, expect=1)
        assert store.put_record(second, expect=1)  # its reply was lost
        assert store.get_record("calendar", "default", "holidays") == second
        assert store.find_records("calendar") == [second]
        assert not store.delete_record("calendar", "default", "holidays", 1)
        assert store.delete_record("calendar", "default", "holidays", 2)
        assert not store.delete_record("calendar", "default", "holidays", 2)
        assert store.find_records("calendar") == []

    def test_an_expired_record_counts_as_none(self, store: Store, clock: VirtualClock) -> None:
        assert store.put_record(Record(kind="node", key="n1", body="{}", expires=clock.now + 1000, version=1))
        clock.advance("999ms")
        assert store.get_record("node", "default", "n1") is not None
        clock.advance("1ms")
        assert store.get_record("node", "default", "n1") is None
        assert store.find_records("node") == []
        assert store.put_record(Record(kind="node", key="n1", body="{}", version=1))

    def test_records_are_kept_apart_by_kind_and_tenant(self, store: Store) -> None:
        for kind, tenant in (("a", "x"), ("a", "y"), ("b", "x")):
            assert store.put_record(Record(kind=kind, tenant=tenant, key="k", body=f"{kind}{tenant}"))
        assert [record.body for record in store.find_records("a")] == ["ax", "ay"]
        assert [record.body for record in store.find_records("a", "y")] == ["ay"]

    def test_records_are_found_by_a_range_of_keys(self, store: Store, clock: VirtualClock) -> None:
        # Compared by code points: capitals before small letters, and the longer text after its beginning.
        keys = [
            "",
            "A",
            "B",
            "a",
            "a/",
            "a/1",
            "a/2",
            "b",
            "\N{LATIN SMALL LETTER E WITH ACUTE}",
            "\U0001f600",
        ]
        for tenant in ("acme", "default"):
            for key in reversed(keys):
                assert store.put_record(Record(kind="k", tenant=tenant, key=key, body=key))
        assert store.put_record(Record(kind="other", key="a/1", body="", expires=None))
        assert store.put_record(Record(kind="k", key="a/0", body="", expires=clock.now + 1000))
        clock.advance("1s")

        def found(tenant: str | None = "default", **bounds: Any) -> list[str]:
            return [record.key for record in store.find_records("k", tenant, **bounds)]

        assert found() == keys
        assert found(start="a") == keys[3:]
        assert found(start="a/", end="a0") == ["a/", "a/1", "a/2"]
        assert found(end="a") == ["", "A", "B"]
        assert found(start="b", end="b") == []
        assert found(start="a/11") == ["a/2", "b", *keys[8:]]
        # After a key, and up to and with it.
        assert found(start="a/1\0") == ["a/2", "b", *keys[8:]]
        assert found(start="a/", end="a/1\0") == ["a/", "a/1"]
        assert found(limit=2) == keys[:2]
        assert found(start="a/", limit=2) == ["a/", "a/1"]
        assert found(limit=0) == []
        assert found(None, start="b", end="c") == ["b", "b"]
        assert found(None, limit=11) == [*keys, keys[0]]
        assert found("none") == []
        with pytest.raises(InvalidValue, match="limit -1 is negative"):
            found(limit=-1)

    def test_a_lock_is_held_by_one_token_until_it_is_released(self, store: Store) -> None:
        assert locks.try_acquire(store, "migrate", "30s", "mine")
        assert locks.try_acquire(store, "migrate", "30s", "mine")  # its reply was lost
        assert not locks.try_acquire(store, "migrate", "30s", "theirs")
        assert locks.try_acquire(store, "migrate", "30s", "theirs", tenant="acme")
        assert not locks.release(store, "migrate", "theirs")
        assert not locks.extend(store, "migrate", "30s", "theirs")
        assert locks.release(store, "migrate", "mine")
        assert not locks.release(store, "migrate", "mine")
        assert locks.try_acquire(store, "migrate", "30s", "theirs")

    def test_a_lock_ends_by_itself_unless_it_is_extended(self, store: Store, clock: VirtualClock) -> None:
        assert locks.try_acquire(store, "migrate", "30s", "mine")
        clock.advance("29s")
        assert locks.extend(store, "migrate", "30s", "mine")
        clock.advance("29s")
        assert not locks.try_acquire(store, "migrate", "30s", "theirs")
        clock.advance("1s")
        assert locks.try_acquire(store, "migrate", "30s", "theirs")
        assert not locks.extend(store, "migrate", "30s", "mine")
        assert not locks.release(store, "migrate", "mine")

    def test_a_lock_contains_its_holder_description_and_start(
        self, store: Store, clock: VirtualClock
    ) -> None:
        assert locks.holder(store, "migrate") is None
        taken = clock.now
        assert locks.try_acquire(store, "migrate", "30s", "mine", description="new prices \N{EURO SIGN}")
        clock.advance("20s")
        assert not locks.try_acquire(store, "migrate", "30s", "theirs", description="old prices")
        assert locks.extend(store, "migrate", "30s", "mine")
        clock.advance("20s")
        held = locks.holder(store, "migrate")
        assert held is not None
        assert (held.holder, held.description) == (locks.this_process(), "new prices \N{EURO SIGN}")
        assert held.created_at == from_ms(taken), "extending it does not change that"
        clock.advance("10s")
        assert locks.holder(store, "migrate") is None

    def test_no_token_matches_a_lock_that_was_edited_by_hand(self, store: Store, clock: VirtualClock) -> None:
        edited = Record(kind="lock", key="migrate", body="mine", version=7, expires=clock.now + 1000)
        assert store.put_record(edited)
        assert not locks.try_acquire(store, "migrate", "30s", "mine")
        assert not locks.extend(store, "migrate", "30s", "mine")
        assert not locks.release(store, "migrate", "mine")
        held = locks.holder(store, "migrate")
        assert held is not None
        assert (held.holder, held.created_at) == ("somebody", None)

    def test_of_ten_that_want_a_lock_one_gets_it(self, handles: Handles, store: Store) -> None:
        winners: list[str] = []

        def work(handle: Store) -> None:
            token = locks.new_token()
            if locks.try_acquire(handle, "migrate", "30s", token):
                winners.append(token)

        self.in_threads(handles, work)
        assert len(winners) == 1

    def test_a_log_is_read_in_order_and_kept_once(self, store: Store, clock: VirtualClock) -> None:
        chunks = [
            LogChunk(run="a", attempt=attempt, seq=seq, text=f"{attempt}.{seq}\n\0é", at=clock.now)
            for attempt, seq in ((2, 0), (1, 1), (1, 0))
        ]
        store.add_runs([RunRecord(id="a", task="work")])
        store.append_log(chunks)
        store.append_log(chunks[:1])
        assert [(chunk.attempt, chunk.seq) for chunk in store.read_log("a")] == [(1, 0), (1, 1), (2, 0)]
        assert store.read_log("a")[0] == chunks[2]
        assert store.read_log("b") == []

    def test_a_log_of_a_run_that_does_not_exist_is_not_kept(self, store: Store, clock: VirtualClock) -> None:
        # No purge would ever delete it.
        store.add_runs([RunRecord(id="a", task="work")])
        lines = [LogChunk(run=name, attempt=1, seq=0, text="x", at=clock.now) for name in ("a", "ghost")]
        store.append_log(lines)
        assert store.read_log("a") == lines[:1]
        assert store.read_log("ghost") == []
