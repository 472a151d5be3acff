"""The purge of a tenant: deletes everything that belongs to it, in small batches, and can be repeated.

Schedules go first, so that no tick adds a run any more. They become tombstones, as by ``schedules.delete``:
their numbers keep the ticks of a later schedule of the same name apart. Then queued runs are cancelled and
running ones asked to stop, then ended runs, the rest of the rows, and the tokens are deleted. A process that
dies in between leaves a tenant with less, and the next purge continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from uuid import uuid4

from msgspec.structs import replace

from evenbeat.app.audit import write_entry
from evenbeat.app.session import AppSession
from evenbeat.app.tokens import Tokens
from evenbeat.core.instants import LAST
from evenbeat.core.records import FINAL_STATES, RunRecord, RunState, ScheduleRecord
from evenbeat.core.tenants import TenantPurge
from evenbeat.errors import EvenbeatError, StoreUnavailable
from evenbeat.node.flows import End, FlowSettling
from evenbeat.rules import attempts, auditing, changes
from evenbeat.rules.limits import LIMIT, OWNER, read_limits
from evenbeat.rules.retention import held_runs
from evenbeat.rules.tenants import DEFAULT, kinds_of
from evenbeat.stores.base import LARGE_FIELDS, EndedRuns, RunQuery, ScheduleQuery, Store, Write, Written
from evenbeat.stores.refusals import in_parts

BATCH = 500
"""How many rows one call of the store changes or deletes."""

_REMAINS = (
    "audit entries, until 365 days after they were written",
    "the names of its deleted schedules, so that a new schedule of the same name repeats no tick",
    "its share of the figures that nodes write, for 40 days",
    "runs of code-only schedules that ended within the last two hours: nodes delete them later",
)
_REMAINS_OF_DEFAULT = "tokens, limits, alert and retention rules, which the store keeps with this tenant"

Progress = Callable[[TenantPurge], None]


class PurgeOptions(NamedTuple):
    """How a tenant is purged."""

    limit: int | None
    """About how many rows; None: all."""
    progress: Progress | None


class TenantPurger:
    """Purges one tenant, once."""

    def __init__(self, session: AppSession, tokens: Tokens, tenant: str, options: PurgeOptions) -> None:
        self._store = session.store()
        self._tokens = tokens
        self._tenant = tenant
        self._options = options
        self._is_recorded = False
        self._left_schedules = 0
        self._done = TenantPurge(
            tenant=tenant,
            dry_run=False,
            schedules=0,
            cancelled=0,
            stopping=0,
            runs=0,
            records=0,
            tokens=0,
            is_complete=False,
            remains=remains_of(self._store, tenant),
        )

    def count(self) -> TenantPurge:
        """Return what a purge would delete now."""
        runs = self._store.count_runs(self._tenant)
        queued, running = runs.get("queued", 0), runs.get("running", 0)
        schedules = sum(counts.schedules for counts in self._store.count_tenants(self._tenant))
        records = sum(len(self._store.find_records(kind, self._tenant)) for kind in kinds_of(self._tenant))
        tokens = len(self._own_tokens())
        ended = sum(runs.get(state, 0) for state in FINAL_STATES)
        return replace(
            self._done,
            dry_run=True,
            schedules=schedules,
            cancelled=queued,
            stopping=running,
            runs=queued + ended,
            records=records,
            tokens=tokens,
            is_complete=not (schedules or queued or running or ended or records or tokens),
        )

    def purge(self) -> TenantPurge:
        """Delete rows until there are none, or as many as the limit says."""
        for _ in self._steps():
            if self._options.progress is not None:
                self._options.progress(self._done)
            if self._is_over_limit():
                return self._done
        is_complete = not self._done.stopping and not self._left_schedules
        self._done = replace(self._done, is_complete=is_complete)
        return self._done

    def _steps(self) -> Iterator[None]:
        """Delete a batch of rows in each step."""
        yield from self._delete_schedules()
        yield from self._cancel_queued()
        yield from self._stop_running()
        yield from self._delete_ended()
        yield from self._delete_rows()
        for token in self._own_tokens():
            self._record()
            self._tokens.revoke(token)
            self._count(tokens=1)
            yield

    def _delete_schedules(self) -> Iterator[None]:
        while True:
            deleted, self._left_schedules = 0, 0
            for page in self._pages_of_schedules():
                self._record()
                done = self._delete_page(page)
                deleted += done
                self._left_schedules += len(page) - done
                self._count(schedules=done)
                yield
            # A schedule that a node fired meanwhile is read again; one that can't be written stays.
            if not self._left_schedules or not deleted:
                return

    def _delete_page(self, page: Sequence[ScheduleRecord]) -> int:
        """Delete schedules; return how many. The others have changed, or can't be written."""
        now = self._store.now()
        writes: list[Write] = []
        for row in page:
            try:
                writes.append(Write(changes.delete(row, now), row.version))
            except StoreUnavailable:
                raise
            except EvenbeatError:
                continue  # a newer version of Evenbeat wrote it
        parts = in_parts(self._store.put_schedules, writes, lambda *_: Written(False, None)) if writes else ()
        answers = [answer for part in parts for answer in part]
        return sum(
            answer.accepted and not write.planned.unfinished
            for write, answer in zip(writes, answers, strict=True)
        )

    def _pages_of_schedules(self) -> Iterator[Sequence[ScheduleRecord]]:
        query = ScheduleQuery(tenant=self._tenant, limit=BATCH)
        while True:
            page = self._store.find_schedules(query)
            if page.items:
                yield page.items
            if page.cursor is None:
                return
            query = replace(query, cursor=page.cursor)

    def _cancel_queued(self) -> Iterator[None]:
        while True:
            cancelled = 0
            for page in self._pages_of_runs("queued"):
                self._record()
                cancelled += (done := sum(self._settled(page)))
                self._count(cancelled=done)
                yield
            if not cancelled:
                return  # those that a worker claimed meanwhile are running

    def _stop_running(self) -> Iterator[None]:
        for page in self._pages_of_runs("running"):
            self._record()
            self._settled([run for run in page if not run.cancel_requested])
            self._count(stopping=len(page))
            yield

    def _settled(self, page: Sequence[RunRecord]) -> list[bool]:
        now = self._store.now()
        wishes = ((run, attempts.cancel(run, now, uuid4().hex)) for run in page)
        ends = [End(run, wish) for run, wish in wishes if wish is not None]
        answers = FlowSettling(self._store, "app").settle(ends, now).answers if ends else []
        if any(answers):
            self._store.hint()
        return answers

    def _pages_of_runs(self, state: RunState) -> Iterator[Sequence[RunRecord]]:
        query = RunQuery(tenant=self._tenant, states=(state,), without=LARGE_FIELDS, limit=BATCH)
        while True:
            page = self._store.find_runs(query)
            if page.items:
                yield page.items
            if page.cursor is None:
                return
            query = replace(query, cursor=page.cursor)

    def _delete_ended(self) -> Iterator[None]:
        # Nodes may still plan the schedules of the tenant in memory: a run that is deleted would run again.
        ended = EndedRuns(tenant=self._tenant, held=held_runs(self._store.now()))
        while True:
            purged = self._store.purge(LAST, BATCH, ended)
            if purged.deleted:
                self._record()
                self._count(runs=purged.deleted)
                yield
            elif purged.until >= LAST:
                return

    def _delete_rows(self) -> Iterator[None]:
        kinds = kinds_of(self._tenant)
        while deleted := self._store.purge_tenant(self._tenant, kinds, BATCH):
            self._record()
            self._count(records=deleted)
            yield

    def _own_tokens(self) -> list[str]:
        """Return the ids of the tokens for this tenant alone."""
        if self._tenant == DEFAULT:
            return []
        return [token.id for token in self._tokens.list() if token.tenant == self._tenant]

    def _record(self) -> None:
        """Write the entry of the audit, before the first change."""
        if self._is_recorded:
            return
        self._is_recorded = True
        found = self.count()
        before = {
            name: getattr(found, name)
            for name in ("schedules", "cancelled", "stopping", "runs", "records", "tokens")
        }
        change = auditing.Change("tenant", self._tenant, self._tenant, "purge", before, {})
        write_entry(self._store, change, self._store.now())

    def _count(self, **more: int) -> None:
        self._done = replace(
            self._done, **{name: getattr(self._done, name) + number for name, number in more.items()}
        )

    def _is_over_limit(self) -> bool:
        done = self._done
        rows = done.schedules + done.cancelled + done.runs + done.records + done.tokens
        return self._options.limit is not None and rows >= self._options.limit


def remains_of(store: Store, tenant: str) -> tuple[str, ...]:
    """Return what a purge of the tenant leaves."""
    remains = [*_REMAINS]
    if tenant == DEFAULT:
        remains.append(_REMAINS_OF_DEFAULT)
    elif limits := limits_of(store, tenant):
        remains.append(f"limits that name it: {', '.join(limits)}")
    return tuple(remains)


def limits_of(store: Store, tenant: str) -> tuple[str, ...]:
    """Return the names of the limits that name the tenant."""
    limits = read_limits(record.body for record in store.find_records(LIMIT, OWNER))
    return tuple(limit.name for limit in limits if limit.tenant == tenant)
