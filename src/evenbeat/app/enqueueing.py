"""Enqueueing: build runs by hand and add them, one or many, also within a user's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

from evenbeat.app.acting import current_actor
from evenbeat.app.audit import write_entry
from evenbeat.app.quotas import Quotas
from evenbeat.app.session import AppSession, refuse_other
from evenbeat.app.unique_runs import Resolution, UniqueRuns
from evenbeat.core.checks import check_run
from evenbeat.core.durations import Duration, read_duration
from evenbeat.core.ids import making_token, new_run_id
from evenbeat.core.instants import Instant, Moment, read_moment, to_ms
from evenbeat.core.options import RUN
from evenbeat.core.records import Execution, RunRecord
from evenbeat.core.results import Run
from evenbeat.errors import InvalidValue, RowRefused, StoreUnavailable
from evenbeat.observe.tracing import traceparent
from evenbeat.record_errors import QuotaExceeded
from evenbeat.rules import auditing
from evenbeat.rules.unique_runs import unique_key
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, Store
from evenbeat.stores.refusals import in_parts
from evenbeat.tasks.flow import refuse_options_of_steps
from evenbeat.tasks.options import EnqueuedOptions, read_run_fields, refuse_unknown
from evenbeat.tasks.task import Call, Task

AnyTask: TypeAlias = Task[..., Any] | Call | str

# Larger batches gain nothing, and hold the lock longer.
_BATCH = 1_000
# How often a call resolves unique runs that the store refuses to add because that took too long: each time
# half as many at once, so that the last times are for one.
_MOST_TRIES = 15


class EnqueueOptions(NamedTuple):
    """What ``enqueue`` and ``enqueue_many`` have in common."""

    delay: Duration | None
    at: Moment | None
    tenant: str | None
    within: object | None
    unique: str | Literal[False] | None
    """None: what the task says. False: not unique."""
    run: EnqueuedOptions

    def due(self, now: Instant) -> Instant:
        """Return when the runs are due."""
        if self.delay is not None and self.at is not None:
            raise InvalidValue(
                "delay and at are both given", field="at", value=self.at, hint="give one of them"
            )
        if self.delay is not None:
            return now + read_duration(self.delay, "delay")
        return now if self.at is None else read_moment(self.at, "at", now)


class _Adding(NamedTuple):
    """How to add a batch."""

    within: object | None
    admits: bool | None
    """Whether the quota admits runs with chosen ids, or others; None if it has admitted them already."""
    tries: int = _MOST_TRIES
    audited: frozenset[str] = frozenset()
    """The ids of runs that the audit has."""


class Enqueuer:
    """Adds runs to the store of a scheduler."""

    def __init__(self, session: AppSession, quotas: Quotas) -> None:
        self._session = session
        self._quotas = quotas

    def add(
        self, task: AnyTask, payload: Mapping[str, Any] | None, run_id: str | None, options: EnqueueOptions
    ) -> Run:
        """Add one run; return the one that is there if its id, or its unique key, is taken."""
        store = self._store(options.within)
        now = store.now()
        run = self._run(task, payload, run_id, options, now, options.due(now))
        [added] = self._add_batch([run], _Adding(options.within, admits=run_id is not None))
        return self._session.run_view(added)

    def add_many(
        self,
        calls: Iterable[AnyTask | tuple[Task[..., Any] | str, Mapping[str, Any] | None]],
        ids: Iterable[str] | None,
        options: EnqueueOptions,
    ) -> list[str]:
        """Add many runs, a batch per write; return their ids, or those of active runs of the same keys."""
        now = self._store(options.within).now()
        due = options.due(now)
        chosen = None if ids is None else iter(ids)
        made: list[str] = []
        batch: list[RunRecord] = []
        adding = _Adding(options.within, admits=None)
        # Beyond a quota, nothing is added: all runs are made before the first is written.
        is_bounded = self._quotas.bounds_runs(self._session.tenant_of(options.tenant))
        for entry in calls:
            task, payload = entry if isinstance(entry, tuple) else (entry, None)
            run_id = None if chosen is None else next(chosen, "")
            if run_id == "":
                given = len(made) + len(batch)
                raise InvalidValue("there are fewer ids than calls", field="ids", value=given)
            batch.append(self._run(task, payload, run_id, options, now, due))
            if len(batch) >= _BATCH and not is_bounded:
                made += [run.id for run in self._add_batch(batch, adding)]
                batch = []
        if chosen is not None and next(chosen, None) is not None:
            raise InvalidValue(
                "there are more ids than calls",
                field="ids",
                value=len(made) + len(batch),
                hint=f"{len(made):,} of {len(made) + len(batch):,} runs were added",
            )
        if batch and is_bounded:
            self._admit(batch, are_given=ids is not None)
        for start in range(0, len(batch), _BATCH):
            made += [run.id for run in self._add_batch(batch[start : start + _BATCH], adding)]
        return made

    def _admit(self, wanted: list[RunRecord], *, are_given: bool) -> None:
        """Refuse runs beyond the quota of their tenant. Runs with given ids may be there already: enqueueing
        them again adds nothing."""
        tenant = wanted[0].tenant
        try:
            self._quotas.admit_runs(tenant, len(wanted))
        except QuotaExceeded:
            present = self._ids_there(wanted) if are_given else frozenset()
            new = sum(run.id not in present for run in wanted)
            if new == len(wanted):
                raise
            self._quotas.admit_runs(tenant, new)

    def _ids_there(self, wanted: list[RunRecord]) -> frozenset[str]:
        """Return the ids of those runs that are there already."""
        found: list[RunRecord] = []
        for start in range(0, len(wanted), _BATCH):
            ids = tuple(run.id for run in wanted[start : start + _BATCH])
            query = RunQuery(ids=ids, without=LARGE_FIELDS, limit=len(ids))
            found += self._session.store().find_runs(query).items
        return frozenset(run.id for run in found)

    def _add_batch(self, wanted: list[RunRecord], how: _Adding) -> list[RunRecord]:
        """Add runs, except for those whose unique key an active run has; return for each the stored one."""
        if all(run.unique_key is None for run in wanted):
            stored = self._add_resolved(wanted, how, None)
            return [stored.get(run.id, run) for run in wanted]
        runs, before = self._resolve(wanted, how)
        for run, resolved in zip(wanted, runs, strict=True):
            if resolved.is_present:
                refuse_other(resolved.run, tenant=run.tenant, task=run.task)
        # Two calls of one batch may have the same key.
        batch = list({each.run.id: each.run for each in runs if not each.is_present}.values())
        stored = {each.run.id: each.run for each in runs if each.is_present}
        if batch:
            stored |= self._add_resolved(batch, how, before)
        pairs = [(run, each.run) for run, each in zip(wanted, runs, strict=True)]
        # The first call of a key decides, as in resolving.
        late = {added.id: (run, added) for run, added in reversed(pairs) if added.id not in stored}
        if late:
            audited = how.audited | {run.id for run in batch}
            again = how._replace(admits=None, tries=how.tries - 1, audited=audited)
            stored |= self._add_again(late, again)
        return [stored[each.run.id] for each in runs]

    def _add_again(
        self, late: Mapping[str, tuple[RunRecord, RunRecord]], how: _Adding
    ) -> dict[str, RunRecord]:
        """Add the wanted runs of pairs whose second run, the resolved one, the store refused; return the
        stored runs by the same ids. In halves: looking up fewer keys takes less time. But within a
        transaction at once: SQLite can't write records after the transaction has written runs."""
        if not how.tries:
            raise StoreUnavailable(
                f"the store refused {len(late):,} unique runs {_MOST_TRIES} times, because too much time had "
                "passed by its clock since their keys were looked up; look at the server's clock and load"
            )
        unique = UniqueRuns(self._session.store())
        wanted = [unique.after_refusal(*pair) for pair in late.values()]
        middle = (len(wanted) + 1) // 2 if how.within is None else len(wanted)
        halves = (wanted[:middle], wanted[middle:])
        stored = [run for half in halves if half for run in self._add_batch(half, how)]
        return dict(zip(late, stored, strict=True))

    def _resolve(self, batch: list[RunRecord], how: _Adding) -> Resolution:
        """Find or take the keys of unique runs.

        Their records are written at once, also for runs within the caller's transaction: if that is rolled
        back, the next call adds its run with the id of the record.
        """
        try:
            return UniqueRuns(self._session.store()).resolve(batch, is_again=how.tries < _MOST_TRIES)
        except StoreUnavailable as error:
            if how.within is None:
                raise
            raise StoreUnavailable(
                f"a unique run needs a write outside of your transaction, which failed: {error}; SQLite has "
                "one writer at a time: enqueue unique runs before your transaction writes, or after its end, "
                "and several at once with enqueue_many"
            ) from error

    def _add_resolved(
        self, batch: list[RunRecord], how: _Adding, before: Instant | None
    ) -> dict[str, RunRecord]:
        """Add runs, and return those that are stored, by id: the given ones, or those that were there. From
        ``before`` on, nothing is added."""
        if how.admits is not None:
            self._admit(batch, are_given=how.admits)
        if how.within is not None:
            return self._add_within(how.within, batch, before)
        store = self._session.store()
        self._audit([run for run in batch if run.id not in how.audited])
        refused: list[tuple[RunRecord, Exception]] = []

        def refuse(run: RunRecord, error: Exception) -> bool:
            refused.append((run, error))
            return True

        add = store.add_runs if before is None else partial(store.add_runs, before=before)
        answers = [answer for part in in_parts(add, batch, refuse) for answer in part]
        # Also if they were there: the hint of a call whose reply was lost may be lost, too.
        store.hint()
        stored = {run.id: run for run, is_new in zip(batch, answers, strict=True) if is_new}
        old = [run for run, is_new in zip(batch, answers, strict=True) if not is_new]
        if old:
            stored |= self._present(old)
        if refused:
            run, error = refused[0]
            if len(batch) == 1:
                raise error
            reason = error.reason if isinstance(error, RowRefused) else str(error)
            missing = len(refused) if before is None else len(refused) + len(batch) - len(stored)
            number = f"{missing:,} of {len(batch):,} runs were not added, the others were"
            raise RowRefused(reason, f"{number}; the database refused run {run.id}") from error
        return stored

    def _audit(self, wanted: list[RunRecord]) -> None:
        """Record runs that a person enqueues by the command line or the API; code is not recorded.

        The entry is written right before its run, since adding runs takes no records. Runs within the
        caller's transaction have no entry: it would wait for that transaction.
        """
        if current_actor().via == "python" or not wanted:
            return
        store = self._session.store()
        ids = tuple(run.id for run in wanted)
        # Enqueueing a run again changes nothing.
        query = RunQuery(ids=ids, without=LARGE_FIELDS, limit=len(ids))
        present = {run.id for run in store.find_runs(query).items}
        for run in wanted:
            if run.id not in present:
                write_entry(store, auditing.enqueued(run), run.created_at)

    def _store(self, within: object | None) -> Store:
        return self._session.store() if within is None else self._session.store_to_join()

    def _add_within(
        self, within: object, wanted: list[RunRecord], before: Instant | None
    ) -> dict[str, RunRecord]:
        """Add runs in the caller's transaction, and return them."""
        store = self._session.store_to_join()
        add = store.add_runs_within if before is None else partial(store.add_runs_within, before=before)
        return self._same(wanted, add(within, wanted))

    def _present(self, wanted: list[RunRecord]) -> dict[str, RunRecord]:
        """Return runs that were there already."""
        ids = tuple(run.id for run in wanted)
        return self._same(wanted, self._session.store().find_runs(RunQuery(ids=ids, limit=len(ids))).items)

    def _same(self, wanted: list[RunRecord], found: Iterable[RunRecord]) -> dict[str, RunRecord]:
        """Return the found runs by id; each must have the same tenant and task as the wanted one."""
        known = {run.id: run for run in found}
        for run in wanted:
            if run.id in known:
                refuse_other(known[run.id], tenant=run.tenant, task=run.task)
        return known

    def _run(
        self,
        task: AnyTask,
        payload: Mapping[str, Any] | None,
        run_id: str | None,
        options: EnqueueOptions,
        now: Instant,
        due: Instant,
    ) -> RunRecord:
        refuse_unknown(options.run, RUN, "a run")
        name, text, local = self._session.call(task, payload)
        fields: dict[str, Any] = {}
        if local is not None and local.kind == "flow":
            refuse_options_of_steps(options.run)
        if local is not None:
            fields = {"kind": local.kind, "queue": local.queue, "priority": local.priority}
        base = Execution() if local is None else local.execution
        given = _with_expiry(options.run, due)
        fields |= read_run_fields(given, base) if given else {"execution": base}
        unique = (None if local is None else local.unique) if options.unique is None else options.unique
        run_id = new_run_id(now) if run_id is None else run_id
        return check_run(
            RunRecord(
                id=run_id,
                tenant=self._session.tenant_of(options.tenant),
                task=name,
                payload=text,
                scheduled_at=due,
                run_at=due,
                created_at=now,
                claim=making_token(run_id, now) if type(run_id) is str else None,
                trace=traceparent(),
                unique_key=unique_key(unique, text) if unique is not None and unique is not False else None,
                **fields,
            )
        )


def _with_expiry(options: EnqueuedOptions, due: Instant) -> Mapping[str, Any]:
    """Return the options with ``expires`` as a duration after the planned start, also if it is a time."""
    expires = options.get("expires")
    if not isinstance(expires, datetime):
        return options
    left = to_ms(expires, "expires") - due
    if left < 1:
        raise InvalidValue(
            f"expires {expires} is not after the planned start of the run",
            field="expires",
            value=expires,
            hint="give a later time, or a duration after the planned start",
        )
    return {**options, "expires": timedelta(milliseconds=left)}
