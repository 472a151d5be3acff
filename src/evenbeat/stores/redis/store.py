"""The store on Redis and Valkey: calls the module that does the work of each operation."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Sequence

from evenbeat.core.instants import Instant
from evenbeat.core.records import (
    LogChunk,
    Record,
    RunRecord,
    RunState,
    ScheduleRecord,
    Skipped,
    Statistics,
    Transition,
)
from evenbeat.errors import InvalidValue, SchemaTooNew, StoreUnavailable
from evenbeat.stores.base import (
    EVERYTHING,
    ActiveCounts,
    Claim,
    Claimed,
    EndedRuns,
    Fired,
    Lost,
    Page,
    PlanFunction,
    Purged,
    QueueCounts,
    RunQuery,
    ScheduleQuery,
    Schema,
    Setting,
    TenantCounts,
    Write,
    Written,
    check_limit,
)
from evenbeat.stores.redis import history, indexes, ledger, records, runs, schedules, server_checks, tenants
from evenbeat.stores.redis.limited import LimitedClaims
from evenbeat.stores.redis.location import read_location
from evenbeat.stores.redis.session import OnCommand, Session
from evenbeat.stores.redis.waking import ChannelTransport
from evenbeat.stores.waking import Waker

KNOWN = 2
"""The version of the key layout that this version of Evenbeat uses."""

_log = logging.getLogger("evenbeat.store")


class RedisStore:
    """Schedules and runs in Redis or Valkey, for any number of processes on any number of machines.

    ``url`` is ``redis://host:6379/0?prefix=evenbeat``, or ``rediss://`` for TLS; ``valkey://`` and
    ``valkeys://`` mean the same. ``timeout``: how many seconds to wait for a connection or an answer before
    StoreUnavailable. ``clock`` replaces the server's clock, in tests. The store calls ``on_command``
    with the name of each command before it sends the command, and with "committed" after each command that
    writes. If ``on_command`` raises, the caller gets the exception.

    Calls before ``open`` or after ``close`` raise StoreUnavailable.
    """

    def __init__(
        self,
        url: str,
        clock: Callable[[], Instant] | None = None,
        *,
        prefix: str | None = None,
        timeout: float = 5.0,
        on_command: OnCommand | None = None,
    ) -> None:
        self.location = read_location(url, prefix)
        self._session = Session(self.location, timeout, clock, on_command)
        self._firing = schedules.Firing(self._session, secrets.token_hex(4))
        self._limited = LimitedClaims(self._session)
        self._waker = Waker(ChannelTransport(self._session))

    def open(self) -> None:
        was_open, self._session.opened = self._session.opened, True
        try:
            self._check_server()
            (found,) = self._session.run("open", [KNOWN])
            version = self._read_version(found)
            if version > KNOWN:
                raise SchemaTooNew(version, KNOWN)
            if version < KNOWN:
                raise StoreUnavailable(f"{self.location.shown}: {self._cannot_upgrade(version)}")
            self._session.committed()
        except BaseException:
            if not was_open:
                self.close()
            raise
        self._waker.open()

    def _check_server(self) -> None:
        for setting in server_checks.settings(self._session):
            about = f"{setting.name} is {setting.value}: {setting.hint}"
            if setting.level == "fail":
                raise StoreUnavailable(f"{self.location.shown}: {about}")
            if setting.level == "warn":
                fields = {"component": "store", "setting": setting.name, "value": setting.value}
                _log.warning("%s: %s", self.location.shown, about, extra=fields)

    def _read_version(self, found: str) -> int:
        try:
            return int(found)
        except ValueError:
            raise StoreUnavailable(
                f"{self.location.shown}: schema version {found!r} is not a number"
            ) from None

    def open_to_join(self) -> bool:
        self.open()
        return True

    def close(self) -> None:
        self._waker.close()
        self._session.close()

    def schema(self) -> Schema:
        found = self._session.ask("HGET", self.location.meta, "schema")
        if not self._session.opened:
            self._session.close()
        version = 0 if found is None else self._read_version(found)
        script = ""
        if version == 0:
            script = f"HSET {self.location.meta} schema {KNOWN}\n"
        elif version < KNOWN:
            script = f"# {self._cannot_upgrade(version)}\n"
        return Schema(version, KNOWN, script)

    def _cannot_upgrade(self, version: int) -> str:
        """Say what to do about keys of a layout that was never released, which a worker would not find its
        runs in."""
        return (
            f"the keys have layout {version} of an unreleased version, this one uses {KNOWN}; "
            f"give another prefix, or delete the keys {self.location.base}*"
        )

    def server(self) -> list[Setting]:
        found = server_checks.settings(self._session)
        if not self._session.opened:
            self._session.close()
        return found

    def now(self) -> Instant:
        return self._session.now()

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        return schedules.put(self._session, writes)

    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        return schedules.find(self._session, query)

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        check_limit(limit)
        return self._firing.fire(now, limit, plan, threading.get_ident())

    def add_runs(self, wanted: Sequence[RunRecord], before: Instant | None = None) -> list[bool]:
        return runs.add(self._session, wanted, before)

    def add_runs_within(
        self, connection: object, wanted: Sequence[RunRecord], before: Instant | None = None
    ) -> list[RunRecord]:
        raise InvalidValue(
            "Redis cannot join a transaction of another database",
            field="within",
            value=None,
            hint="enqueue after the commit, or use PostgreSQL or SQLite",
        )

    def claim_runs(self, claim: Claim) -> Claimed:
        claimed, frees = runs.claim(self._session, claim, self._limited)
        if frees:
            self.hint()
        return claimed

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        answers, is_hint_due = runs.settle(self._session, transitions)
        if is_hint_due:
            self.hint()
        return answers

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        return history.find(self._session, query)

    def lost_runs(self, ended_by: Instant, limit: int) -> Lost:
        lost, frees = runs.lost(self._session, ended_by, check_limit(limit))
        if frees:
            self.hint()
        return lost

    def count_runs(self, tenant: str | None = None) -> dict[RunState, int]:
        return history.count(self._session, tenant)

    def count_queues(self, now: Instant, since: Instant) -> list[QueueCounts]:
        return history.count_queues(self._session, now, since)

    def count_active(self, now: Instant) -> list[ActiveCounts]:
        return history.count_active(self._session, now)

    def find_skipped(
        self,
        tenant: str,
        schedule: str,
        limit: int = 100,
        *,
        since: Instant | None = None,
        until: Instant | None = None,
    ) -> list[Skipped]:
        return ledger.find(self._session, tenant, schedule, check_limit(limit), since, until)

    def statistics(self, keys: Sequence[tuple[str, str]]) -> list[Statistics]:
        return history.statistics(self._session, keys)

    def purge(self, finished_before: Instant, limit: int, runs: EndedRuns = EVERYTHING) -> Purged:
        return history.purge(self._session, finished_before, check_limit(limit), runs)

    def ended_at(self, position: int, tenant: str | None, states: Sequence[RunState]) -> Instant | None:
        return history.ended_at(self._session, position, tenant, states)

    def check_indexes(self, limit: int, *, mend: bool) -> list[str]:
        return indexes.check(self._session, limit, mend=mend)

    def get_record(self, kind: str, tenant: str, key: str) -> Record | None:
        return records.get(self._session, kind, tenant, key)

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        return records.put(self._session, record, expect)

    def find_records(
        self,
        kind: str,
        tenant: str | None = None,
        *,
        start: str = "",
        end: str | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        if limit is not None:
            check_limit(limit)
        return records.find(self._session, kind, tenant, start, end, limit)

    def delete_record(self, kind: str, tenant: str, key: str, version: int) -> bool:
        return records.delete(self._session, kind, tenant, key, version)

    def count_tenants(self, tenant: str | None = None) -> list[TenantCounts]:
        return tenants.count(self._session, tenant)

    def purge_tenant(self, tenant: str, kinds: Sequence[str], limit: int) -> int:
        return tenants.purge(self._session, tenant, kinds, check_limit(limit))

    def append_log(self, chunks: Sequence[LogChunk]) -> None:
        history.append_log(self._session, chunks)

    def read_log(self, run: str) -> list[LogChunk]:
        return history.read_log(self._session, run)

    def wait(self, timeout: float) -> bool:
        return self._waker.wait(timeout)

    def hint(self) -> None:
        self._waker.hint()
