"""Tenants: which there are, and the deletion of everything that belongs to one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from evenbeat.core.records import Record, Skipped, Statistics
from evenbeat.errors import InvalidValue
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import Planned, plan
from evenbeat.stores.base import Store, TenantCounts, Write
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract.base import MINUTE, Contract, Handles, run, schedule

# Names that sort, or begin, like one another.
_TENANTS = ("acme", "acme-2", "Acme", "acm", "default")


class TenantContract(Contract):
    def test_tenants_are_found_by_their_schedules_and_ended_runs(
        self, store: Store, clock: VirtualClock
    ) -> None:
        assert store.count_tenants() == []
        assert store.count_tenants("acme") == []
        for tenant in ("b", "a"):
            for name in ("one", "two", "three"):
                self.add(store, schedule(name, tenant=tenant))
        paused = self.get(store, "one", "a")
        assert paused is not None
        assert self.put(store, paused, changes.pause(paused, clock.now, "", None, "me")).accepted
        once = self.add(store, schedule("once", "at 2030-01-01T00:00:00Z", tenant="a"))
        over = replace(once, state="finished", wake_at=None, next_tick=None, revision=once.revision + 1)
        assert self.put(store, once, Planned(over)).accepted
        for name, tenant in (("two", "a"), ("one", "b"), ("two", "b"), ("three", "b")):
            row = self.get(store, name, tenant)
            assert row is not None
            assert self.put(store, row, changes.delete(row, clock.now)).accepted
        a = TenantCounts(tenant="a", schedules=3, active=1, paused=1)
        # A tenant with deleted schedules alone is not there.
        assert store.count_tenants() == [a]
        # A queued run does not make a tenant: count_active counts those.
        store.add_runs([run("q", tenant="queued"), run("r", tenant="c", queue="own")])
        assert store.count_tenants() == [a]
        (claimed,) = self.claim(store, queues=("own",))
        assert claimed.tenant == "c"
        assert store.count_tenants() == [a]
        assert store.settle_runs([attempts.succeeded(claimed, None, clock.now, "t")]) == [True]
        assert store.count_tenants() == [a, TenantCounts(tenant="c")]
        assert store.count_tenants("a") == [a]
        assert store.count_tenants("c") == [TenantCounts(tenant="c")]
        for nobody in ("b", "queued", "A", "", "a\x00"):
            assert store.count_tenants(nobody) == []

    def test_many_schedules_of_many_tenants_are_counted(self, store: Store) -> None:
        now = store.now()
        for tenant in _TENANTS:
            rows = [schedule(f"s{at:04}", tenant=tenant) for at in range(301)]
            written = store.put_schedules([Write(changes.create(row, now), None) for row in rows])
            assert all(each.accepted for each in written)
        assert store.count_tenants() == [
            TenantCounts(tenant=tenant, schedules=301, active=301) for tenant in sorted(_TENANTS)
        ]

    def test_the_rows_of_a_tenant_are_deleted_and_no_others(self, store: Store, clock: VirtualClock) -> None:
        self._fill(store, clock)
        before = {tenant: self._rows(store, tenant) for tenant in _TENANTS}
        assert all(len(rows) == 7 for rows in before.values())
        assert store.purge_tenant("acme", ["lock", "progress"], 0) == 0
        assert self._rows(store, "acme") == before["acme"]
        assert store.purge_tenant("acme", ["lock", "progress"], 100) == 6
        assert self._rows(store, "acme") == [("audit", "acme", "kept")]
        assert store.purge_tenant("acme", ["lock", "progress"], 100) == 0
        for tenant in _TENANTS[1:]:
            assert self._rows(store, tenant) == before[tenant]
        # Schedules and runs stay, and fire on.
        assert self.get(store, "s", "acme") is not None
        clock.now += MINUTE
        fired = store.fire_due(clock.now, 100, plan)
        assert {planned.schedule.tenant for planned in fired.planned} == set(_TENANTS)

    def test_the_rows_of_a_tenant_are_deleted_a_few_at_a_time(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self._fill(store, clock)
        others = {tenant: self._rows(store, tenant) for tenant in _TENANTS[1:]}
        left = len(self._rows(store, "acme"))
        for _ in range(6):
            assert store.purge_tenant("acme", ["progress", "lock"], 1) == 1
            left -= 1
            assert len(self._rows(store, "acme")) == left
        assert store.purge_tenant("acme", ["progress", "lock"], 1) == 0
        assert {tenant: self._rows(store, tenant) for tenant in _TENANTS[1:]} == others

    def test_expired_records_of_a_tenant_are_deleted(self, store: Store, clock: VirtualClock) -> None:
        record = Record(kind="lock", tenant="acme", key="k", body="", expires=clock.now + 1)
        assert store.put_record(record)
        clock.now += 10
        assert store.purge_tenant("acme", ["lock"], 10) == 1

    def test_a_purge_of_nobody_deletes_nothing(self, store: Store, clock: VirtualClock) -> None:
        self._fill(store, clock)
        for nobody in ("nobody", "ACME", "acm*", "", "a\x00", "%"):
            assert store.purge_tenant(nobody, ["lock", "audit", "progress"], 100) == 0
        assert store.purge_tenant("acme", [], 100) == 4
        assert all(len(self._rows(store, tenant)) == 7 for tenant in _TENANTS[1:])
        with pytest.raises(InvalidValue, match="limit -1 is negative"):
            store.purge_tenant("acme", ["lock"], -1)

    def test_purges_of_one_tenant_at_once_delete_each_row_once(
        self, store: Store, handles: Handles, clock: VirtualClock
    ) -> None:
        for at in range(60):
            store.put_record(Record(kind="lock", tenant="acme", key=f"k{at:02}", body=""))
            store.put_record(Record(kind="lock", tenant="other", key=f"k{at:02}", body=""))
        gone: list[int] = []

        def purge(handle: Store) -> None:
            while number := handle.purge_tenant("acme", ["lock"], 7):
                gone.append(number)

        self.in_threads(handles, purge, count=4)
        # A purge may leave a row that another one is deleting at that moment.
        while number := store.purge_tenant("acme", ["lock"], 100):
            gone.append(number)
        assert sum(gone) == 60
        assert len(store.find_records("lock", "other")) == 60

    def _fill(self, store: Store, clock: VirtualClock) -> None:
        """Give each tenant 3 rows of the ledger, statistics, 2 records, and a record that stays."""
        for tenant in _TENANTS:
            row = self.add(store, schedule("s", tenant=tenant))
            skipped = tuple(
                Skipped(
                    tenant=tenant,
                    schedule="s",
                    generation=1,
                    first=clock.now + at,
                    last=clock.now + at,
                    count=1,
                    reason="paused",
                    recorded_at=clock.now,
                )
                for at in range(3)
            )
            planned = changes.pause(row, clock.now, "", None, "me")
            assert planned is not None
            assert self.put(store, row, planned._replace(skipped=skipped)).accepted
            paused = self.get(store, "s", tenant)
            assert paused is not None
            assert self.put(store, paused, changes.resume(paused, clock.now)).accepted
            for kind in ("lock", "progress"):
                assert store.put_record(Record(kind=kind, tenant=tenant, key="k", body="x"))
            assert store.put_record(Record(kind="audit", tenant=tenant, key="kept", body="x"))
            store.add_runs([run(f"{tenant}/s/1", tenant=tenant, schedule="s")])
        for claimed in self.claim(store):
            assert store.settle_runs([attempts.succeeded(claimed, None, clock.now, f"t{claimed.id}")])[0]

    def _rows(self, store: Store, tenant: str) -> list[object]:
        rows: list[object] = list(store.find_skipped(tenant, "s"))
        statistics = store.statistics([(tenant, "s")])
        rows += [each for each in statistics if each != Statistics(tenant=tenant, schedule="s")]
        for kind in ("lock", "progress", "audit"):
            found = store.find_records(kind, tenant)
            rows += [(record.kind, record.tenant, record.key) for record in found]
        return rows
