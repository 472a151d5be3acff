"""``app.limits``: limits of how many runs are running at once, and how fast they start, over all machines."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeAlias

import msgspec

from evenbeat.app.audit import audited
from evenbeat.app.definitions import unknown_task
from evenbeat.app.session import AppSession
from evenbeat.core.awaitable import twin
from evenbeat.core.instants import Instant
from evenbeat.core.limits import RunLimit
from evenbeat.core.rates import write_rate
from evenbeat.core.records import Record
from evenbeat.core.results import ChangeWarning
from evenbeat.errors import InvalidValue, StoreUnavailable, shown
from evenbeat.observe.limit_usage import CohortCounts, LimitUsage
from evenbeat.record_errors import LimitNotFound
from evenbeat.rules.auditing import Change
from evenbeat.rules.limit_definitions import MOST_LIMITS, read_limit, read_names
from evenbeat.rules.limits import BUCKET, LIMIT, OWNER, Limit, Limits, limit_record, read_cohort, read_limits
from evenbeat.stores.base import ActiveCounts, RunQuery, Store
from evenbeat.tasks.task import Task

# Inside the class, ``list`` is a method.
LimitList: TypeAlias = list[RunLimit]

# How often a change is tried while others change the same limit.
_TRIES = 20
# So few buckets are read one by one, more of them all at once.
_FEW = 10
# The most running runs that are read for the values of their keys. They started before the limit was set.
_MOST_READ = 1_000


class RunLimits:
    """The limits of a store; the ``a…`` twins are awaited.

    A limit is for all machines and, unless it names a tenant, for all tenants. ``task``, ``queue``,
    ``tenant`` and ``key`` are its identity: there is one limit for each combination.
    """

    def __init__(self, session: AppSession) -> None:
        self._session = session

    def set(
        self,
        *,
        task: Task[..., Any] | str | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        key: str | None = None,
        concurrency: int | None = None,
        rate: str | None = None,
        burst: int | None = None,
    ) -> RunLimit:
        """Set a limit of the runs that have this task, queue and tenant, as far as they are given; replace
        the one that names the same.

        At most ``concurrency`` of them are running at once, and at most ``rate`` of them start: ``"100/m"``,
        ``"10/30s"``. ``burst`` is how many may start at once after a quiet time. With ``key``, a field of the
        payload, the limit holds for each value of it. Runs that are running already go on.
        """
        wanted = read_limit(_names(task, queue, tenant, key), concurrency, rate, burst)
        store = self._session.store()
        for _ in range(_TRIES):
            present = store.get_record(LIMIT, OWNER, wanted.name)
            if present is None and len(store.find_records(LIMIT, OWNER, limit=MOST_LIMITS)) >= MOST_LIMITS:
                raise InvalidValue(
                    f"limit {shown(wanted.name)} would be limit {MOST_LIMITS + 1:,}",
                    field="task",
                    value=wanted.task,
                    hint=f'at most {MOST_LIMITS:,}: remove those that nobody needs, or give key="customer"',
                )
            before = None if present is None else read_limit_record(present)
            # Never the version of a limit that was removed: a late write must not match.
            record = limit_record(wanted, secrets.randbits(53))
            write = partial(store.put_record, record, None if present is None else present.version)
            if wanted == before or self._write(_change("set", wanted.name, before, wanted), write):
                return usage_of(store, stored_limits(store)).view(wanted, self._warnings(wanted))
        raise _kept_changing(wanted)

    def list(
        self,
        *,
        task: Task[..., Any] | str | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        key: str | None = None,
    ) -> LimitList:
        """Return the limits by name, each with what is running and what waits; only those that name this
        task, queue, tenant and key, as far as they are given."""
        wanted = {"task": _task_name(task), "queue": queue, "tenant": tenant, "key": key}
        store = self._session.store()
        usage = read_usage(store)
        if usage is None:
            return []
        return [
            usage.view(limit)
            for limit in usage.limits
            if all(value is None or getattr(limit, field) == value for field, value in wanted.items())
        ]

    def get(
        self,
        *,
        task: Task[..., Any] | str | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        key: str | None = None,
    ) -> RunLimit:
        """Return the limit that names exactly these; ``LimitNotFound`` if there is none."""
        names = _names(task, queue, tenant, key)
        store = self._session.store()
        record = store.get_record(LIMIT, OWNER, names.name)
        found = None if record is None else read_limit_record(record)
        if found is None:
            raise self._not_found(names)
        return usage_of(store, stored_limits(store)).view(found)

    def remove(
        self,
        *,
        task: Task[..., Any] | str | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        key: str | None = None,
    ) -> None:
        """Remove the limit that names exactly these: runs that waited for it may start at once.
        ``LimitNotFound`` if there is none."""
        names = _names(task, queue, tenant, key)
        store = self._session.store()
        for _ in range(_TRIES):
            record = store.get_record(LIMIT, OWNER, names.name)
            if record is None:
                raise self._not_found(names)
            change = _change("remove", names.name, read_limit_record(record) or names, None)
            write = partial(store.delete_record, LIMIT, OWNER, record.key, record.version)
            if self._write(change, write):
                return
        raise _kept_changing(names)

    def _warnings(self, limit: Limit) -> tuple[ChangeWarning, ...]:
        found = None if limit.task is None else unknown_task(self._session, limit.task)
        if found is None:
            return ()
        lack, hint = found
        return (ChangeWarning(problem=f"{lack}: there is nothing to limit until a node has it", hint=hint),)

    def _not_found(self, names: Limit) -> LimitNotFound:
        known = [record.key for record in self._session.store().find_records(LIMIT, OWNER)]
        near = get_close_matches(names.name, known, n=1, cutoff=0.5)
        return LimitNotFound(names.name, f"did you mean {near[0]}?" if near else None)

    def _write(self, change: Change, write: Callable[[], bool]) -> bool:
        """Write the entry of the audit, and then the change. If another change came first, remove the entry.

        Wakes the workers: runs that waited may start now.
        """
        store = self._session.store()
        entries = audited(change, store.now())
        for entry in entries:
            store.put_record(entry)
        if write():
            store.hint()
            return True
        for entry in entries:
            store.delete_record(entry.kind, entry.tenant, entry.key, entry.version)
        return False

    aset = twin(set)
    alist = twin(list)
    aget = twin(get)
    aremove = twin(remove)


# -- reading -----------------------------------------------------------------------------------------------


def read_usage(store: Store) -> LimitUsage | None:
    """Return what is used of each limit now; None if there are no limits. Then nothing else is read."""
    limits = stored_limits(store)
    return usage_of(store, limits) if limits else None


def stored_limits(store: Store) -> Limits:
    """Return the limits of a store, without those that can't be read."""
    return read_limits(record.body for record in store.find_records(LIMIT, OWNER))


def usage_of(store: Store, limits: Limits) -> LimitUsage:
    """Return what is used of these limits now. Reads active runs alone."""
    now = store.now()
    counts = list(_counts(store, limits, now))
    names = limits.buckets(each.cohort for each in counts)
    names += [each.name for each in limits if each.key is None and each.rate is not None]
    return LimitUsage(limits, counts, _buckets(store, frozenset(names)), now)


def read_limit_record(record: Record) -> Limit | None:
    """Return the limit of a record; None if it can't be read, or says something else than its key."""
    try:
        limit = msgspec.json.decode(record.body, type=Limit)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return limit if limit.name == record.key else None


def _counts(store: Store, limits: Limits, now: Instant) -> Iterator[CohortCounts]:
    for each in store.count_active(now):
        if each.cohort is not None and limits.fits(each.cohort):
            yield CohortCounts(each.cohort, each.running, each.due, each.oldest_due)
            continue
        # A limit was set or removed since, or no claim has found these runs yet: they have other cohorts.
        cohort = limits.cohort_of(each.queue, each.priority, each.tenant, each.task, "null")
        if cohort is None:
            continue
        running = each.running
        if running and read_cohort(cohort).values:
            for own, number in _running(store, limits, each).items():
                running -= number
                yield CohortCounts(own, number, 0, None)
        yield CohortCounts(cohort, max(0, running), each.due, each.oldest_due)


def _running(store: Store, limits: Limits, counts: ActiveCounts) -> Counter[str]:
    """Return how many running runs of a group are in each cohort, by the values of their keys."""
    query = RunQuery(
        tenant=counts.tenant,
        queue=counts.queue,
        task=counts.task,
        states=("running",),
        without=("result", "error"),
        limit=_MOST_READ,
    )
    runs = store.find_runs(query).items
    cohorts = (
        limits.cohort(run) for run in runs if (run.priority, run.cohort) == (counts.priority, counts.cohort)
    )
    return Counter(cohort for cohort in cohorts if cohort is not None)


def _buckets(store: Store, names: frozenset[str]) -> dict[str, str]:
    if len(names) > _FEW:
        records = store.find_records(BUCKET, OWNER)
        return {record.key: record.body for record in records if record.key in names}
    found = (store.get_record(BUCKET, OWNER, name) for name in names)
    return {record.key: record.body for record in found if record is not None}


# -- the words of users ------------------------------------------------------------------------------------


def _task_name(task: Task[..., Any] | str | None) -> str | None:
    return task.name if isinstance(task, Task) else task


def _names(
    task: Task[..., Any] | str | None, queue: str | None, tenant: str | None, key: str | None
) -> Limit:
    return read_names(_task_name(task), queue, tenant, key)


def _change(action: str, name: str, before: Limit | None, after: Limit | None) -> Change:
    """Return what the audit says about a limit that is set or removed."""
    old, new = _facts(before), _facts(after)
    if before is not None and after is not None:
        fields = [field for field in {**old, **new} if old.get(field) != new.get(field)]
        old = {field: old.get(field) for field in fields}
        new = {field: new.get(field) for field in fields}
    limit = after or before
    owner = None if limit is None else limit.tenant
    if owner is None:
        # Kept with the default tenant, whose business it is not.
        (old if after is None else new)["all_tenants"] = True
    return Change("limit", name, owner or OWNER, action, old, new)


def _facts(limit: Limit | None) -> dict[str, Any]:
    if limit is None:
        return {}
    rate = None if limit.rate is None else write_rate(limit.rate)
    facts = {"concurrency": limit.concurrency, "rate": rate, "burst": limit.burst}
    return {field: value for field, value in facts.items() if value is not None}


def _kept_changing(limit: Limit) -> StoreUnavailable:
    return StoreUnavailable(f"limit {shown(limit.name)} kept changing while it was written; try again")
