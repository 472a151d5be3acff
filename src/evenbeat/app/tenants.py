"""``app.tenants``: the tenants of a store, their quotas, and the purge of one."""

from __future__ import annotations

import secrets
from typing import Any, TypeAlias

from msgspec.structs import asdict

from evenbeat.app.audit import write_entry
from evenbeat.app.figures import FigureReader
from evenbeat.app.quotas import Quotas
from evenbeat.app.session import AppSession
from evenbeat.app.tenant_purge import Progress, PurgeOptions, TenantPurger, limits_of
from evenbeat.app.tokens import Tokens
from evenbeat.core.awaitable import twin
from evenbeat.core.checks import check_label, check_whole
from evenbeat.core.instants import LAST, Instant, from_ms
from evenbeat.core.records import FINAL_STATES
from evenbeat.core.tenants import MOST_QUOTA, Quota, TenantDetails, TenantPurge, TenantView
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.record_errors import QuotaNotFound, TenantNotFound
from evenbeat.rules import auditing, rollups
from evenbeat.rules.rollups import Tally, new_tally
from evenbeat.rules.tenants import DEFAULT, KEY, QUOTA, quota_record, read_quota
from evenbeat.stores.base import ActiveCounts, ScheduleQuery, TenantCounts, check_limit

# Inside the class, ``list`` is a method.
TenantList: TypeAlias = list[TenantView]

MOST_TENANTS = 1_000
"""The default ``limit`` of ``list``."""
# How often a quota is written while others write it, too.
_TRIES = 20
# How many schedules one query reads to find the next fire.
_PAGE = 100


class Tenants:
    """The tenants of a store; the ``a…`` twins are awaited.

    A tenant is there as soon as it has a schedule, a run or a quota.
    """

    def __init__(self, session: AppSession, figures: FigureReader, quotas: Quotas, tokens: Tokens) -> None:
        self._session = session
        self._figures = figures
        self._quotas = quotas
        self._tokens = tokens

    def list(self, limit: int = MOST_TENANTS, *, name: str | None = None) -> TenantList:
        """Return the tenants that have schedules, runs or a quota, by name, with counts.

        Counts all schedules and active runs. ``name`` asks for one tenant, however many there are.
        """
        check_limit(limit)
        store = self._session.store()
        counts = {each.tenant: each for each in store.count_tenants(name)}
        active = self._active(name)
        found = ((record.tenant, read_quota(record)) for record in store.find_records(QUOTA, name))
        quotas = {owner: quota for owner, quota in found if quota is not None}
        tallies = self._figures.of_tenants(name)
        return [
            _view(
                counts.get(tenant) or TenantCounts(tenant=tenant),
                active.get(tenant, []),
                quotas.get(tenant),
                tallies.get(tenant) or new_tally(),
            )
            for tenant in sorted({*counts, *active, *quotas})[:limit]
        ]

    def get(self, name: str) -> TenantDetails:
        """Return a tenant, with its ended runs by state, its next fire, and the limits that name it.

        ``TenantNotFound`` if it has no schedules, no runs and no quota.
        """
        check_label(name, "name")
        views = self.list(name=name)
        if not views:
            raise TenantNotFound(name)
        store = self._session.store()
        runs = store.count_runs(name)
        waiting = [counts.oldest_due for counts in self._active(name).get(name, [])]
        oldest = min((at for at in waiting if at is not None), default=None)
        following = self._next_fire(name)
        return TenantDetails(
            **asdict(views[0]),
            ended={state: runs.get(state, 0) for state in sorted(FINAL_STATES)},
            oldest_due=None if oldest is None else from_ms(oldest),
            next_fire=None if following is None else from_ms(following),
            limits=limits_of(store, name),
        )

    def set_quota(self, name: str, *, schedules: int | None = None, queued_runs: int | None = None) -> Quota:
        """Set the quota of a tenant, or replace it; None means any number.

        ``schedules.add`` and ``declare``, and ``enqueue`` and ``run_now``, are refused beyond it by
        ``QuotaExceeded``. Ticks of schedules are never refused, and what is there stays. The quota holds in
        this process at once, in others within 5 seconds.
        """
        check_label(name, "name")
        if schedules is None and queued_runs is None:
            raise InvalidValue(
                "schedules and queued_runs are both missing",
                field="schedules",
                value=None,
                hint="give schedules=100, queued_runs=10_000 or both; to end a quota, remove it",
            )
        for field, number in (("schedules", schedules), ("queued_runs", queued_runs)):
            if number is not None:
                check_whole(field, number, 0, MOST_QUOTA)
        quota = Quota(schedules=schedules, queued_runs=queued_runs)
        store = self._session.store()
        for _ in range(_TRIES):
            present = store.get_record(QUOTA, name, KEY)
            before = None if present is None else read_quota(present)
            if before == quota:
                break
            self._audit("set", name, before, quota)
            record = quota_record(name, quota, secrets.randbits(53))
            if store.put_record(record, None if present is None else present.version):
                break
        else:
            raise StoreUnavailable("the quota kept changing while it was written; try again")
        self._quotas.forget()
        return quota

    def remove_quota(self, name: str) -> None:
        """Remove the quota of a tenant; ``QuotaNotFound`` if it has none."""
        check_label(name, "name")
        store = self._session.store()
        for _ in range(_TRIES):
            present = store.get_record(QUOTA, name, KEY)
            if present is None:
                raise QuotaNotFound(name)
            self._audit("remove", name, read_quota(present), None)
            if store.delete_record(QUOTA, name, KEY, present.version):
                self._quotas.forget()
                return
        raise StoreUnavailable("the quota kept changing while it was removed; try again")

    def purge(
        self,
        name: str,
        *,
        dry_run: bool = False,
        even_default: bool = False,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> TenantPurge:
        """Delete everything of a tenant: schedules, runs with their logs, the ledger, statistics, locks,
        alert rules and other records, its quota, and tokens for it alone. ``dry_run`` only counts.

        No tick fires again. Queued runs are cancelled; running ones are asked to stop, and deleted by a
        purge after their end. ``remains`` of the result says what is left. Can be repeated after it was
        interrupted, and changes nothing if nothing is left. The tenant ``default`` needs ``even_default``.
        ``limit``: stop after about so many rows. ``progress`` is called with the result so far, again and
        again.
        """
        check_label(name, "name")
        if limit is not None and check_limit(limit) == 0:
            raise InvalidValue("limit 0 deletes nothing", field="limit", value=0, hint="give 1 or more")
        if name == DEFAULT and not even_default:
            raise InvalidValue(
                "name default is the tenant of all calls that name none",
                field="name",
                value=name,
                hint="give even_default=True to delete everything of it all the same",
            )
        purger = TenantPurger(self._session, self._tokens, name, PurgeOptions(limit, progress))
        if dry_run:
            return purger.count()
        try:
            return purger.purge()
        finally:
            self._quotas.forget()

    alist = twin(list)
    aget = twin(get)
    aset_quota = twin(set_quota)
    aremove_quota = twin(remove_quota)
    apurge = twin(purge)

    def _active(self, name: str | None) -> dict[str, Active]:
        store = self._session.store()
        found: dict[str, Active] = {}
        for counts in store.count_active(store.now()):
            if name in (None, counts.tenant):
                found.setdefault(counts.tenant, []).append(counts)
        return found

    def _next_fire(self, tenant: str) -> Instant | None:
        """Return the earliest wake-up of the tenant's active schedules.

        Each query reads some that wake earlier than all those before: of 100,000 schedules, few queries find
        the first.
        """
        store = self._session.store()
        earliest: Instant | None = None
        while True:
            bound = LAST if earliest is None else earliest
            query = ScheduleQuery(tenant=tenant, states=("active",), wakes_before=bound, limit=_PAGE)
            wakes = [row.wake_at for row in store.find_schedules(query).items if row.wake_at is not None]
            if not wakes:
                return earliest
            earliest = min(wakes)

    def _audit(self, action: str, tenant: str, before: Quota | None, after: Quota | None) -> None:
        store = self._session.store()
        change = auditing.Change("tenant", tenant, tenant, action, _said(before), _said(after))
        write_entry(store, change, store.now())


Active: TypeAlias = list[ActiveCounts]


def _said(quota: Quota | None) -> dict[str, Any]:
    return {} if quota is None else asdict(quota)


def _view(counts: TenantCounts, active: Active, quota: Quota | None, tally: Tally) -> TenantView:
    return TenantView(
        name=counts.tenant,
        schedules=counts.schedules,
        active_schedules=counts.active,
        paused_schedules=counts.paused,
        due=sum(each.due for each in active),
        later=sum(each.later for each in active),
        running=sum(each.running for each in active),
        quota=quota,
        started=tally[rollups.STARTED],
        succeeded=tally[rollups.SUCCEEDED],
        failed=tally[rollups.FAILED],
    )
