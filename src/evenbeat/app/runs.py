"""``app.runs``: list, cancel, retry and await runs, and read their logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, get_args

from msgspec.structs import replace

from evenbeat.app import audit
from evenbeat.app.bulk import MOST_AT_ONCE, Answers, Progress, act_on_all
from evenbeat.app.dependencies import run_before
from evenbeat.app.explaining import explain_run, why_it_waits
from evenbeat.app.flows import refuse_step, resume_flow
from evenbeat.app.rows import ScheduleRows
from evenbeat.app.run_changes import cancelled_by_hand, is_stopping, retried_by_hand
from evenbeat.app.run_moves import RunMoves
from evenbeat.app.session import AppSession, apause, clock_of, pause, virtual_time
from evenbeat.app.settling import settle_by_hand
from evenbeat.app.unique_runs import UniqueRuns, retry_token
from evenbeat.core.audits import AuditEntry
from evenbeat.core.awaitable import twin
from evenbeat.core.checks import check_one_of
from evenbeat.core.durations import Duration, read_duration
from evenbeat.core.explanations import Why
from evenbeat.core.instants import Moment, read_period
from evenbeat.core.moves import MoveResult
from evenbeat.core.records import FINAL_STATES, RunRecord, RunState, ScheduleRecord, Transition
from evenbeat.core.results import BulkResult, ChangedItem, LogLine, Run, RunPage, RunWait
from evenbeat.errors import InvalidValue, RunNotFound, RunRefused, ScheduleConflict, ScheduleNotFound, shown
from evenbeat.node.flows import End
from evenbeat.observe import run_progress, views
from evenbeat.observe.run_logs import refusals
from evenbeat.rules import attempts
from evenbeat.rules.attempts import may_have_lost_attempts
from evenbeat.rules.flow_parts import is_begun
from evenbeat.stores.base import LARGE_FIELDS, VALUES, RunQuery, Store, check_limit
from evenbeat.tasks.options import refuse_unknown
from evenbeat.tasks.task import Task

# Inside the class, ``list`` is a method.
Lines: TypeAlias = list[LogLine]
Entries: TypeAlias = list[AuditEntry]
AskedState: TypeAlias = RunState | Literal["retrying"]
STATES: tuple[AskedState, ...] = (*get_args(RunState), "retrying")
"""States to select: ``retrying`` is a queued run that has failed before."""

_PAGE = 500
# The store refuses a retry while the run's schedule changes: so many refusals in a row mean a fault.
_TRIES = 50
# Seconds between two reads of a run that is joined: short at first, since most runs are, then doubled.
_POLL, _LONGEST_POLL = 0.02, 1.0


class RunFilter(TypedDict, total=False):
    """Selects runs."""

    schedule: str | None
    task: Task[..., Any] | str | None
    queue: str | None
    worker: str | None
    since: Moment | None
    until: Moment | None
    tenant: str | None
    all_tenants: bool
    ids: Sequence[str] | None


FILTER = tuple(RunFilter.__annotations__)


class Runs:
    """The runs of a scheduler; ``a…`` twins are awaited."""

    def __init__(self, session: AppSession, rows: ScheduleRows) -> None:
        self._session = session
        self._rows = rows

    def list(
        self,
        *,
        schedule: str | None = None,
        task: Task[..., Any] | str | None = None,
        state: AskedState | None = None,
        queue: str | None = None,
        worker: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        tenant: str | None = None,
        all_tenants: bool = False,
        ids: Sequence[str] | None = None,
        brief: bool = False,
        limit: int = 100,
    ) -> list[Run]:
        """Return runs, the newest first.

        ``since`` and ``until`` select runs that were running at some time in between, or ended there without
        having run; a duration counts back from now. ``state="retrying"`` selects queued runs that have
        failed before; ``queued`` includes them. ``brief`` leaves out payloads, results and errors, which may
        be large: they are None.
        """
        query = self._query(
            schedule=schedule,
            task=task,
            state=state,
            queue=queue,
            worker=worker,
            since=since,
            until=until,
            tenant=tenant,
            all_tenants=all_tenants,
            ids=ids,
        )
        pages = self._pages(_brief(query) if brief else query, limit)
        return [self._session.run_view(run) for page, _ in pages for run in page]

    def page(
        self,
        *,
        state: AskedState | None = None,
        brief: bool = False,
        limit: int = 100,
        cursor: str | None = None,
        **chosen: Unpack[RunFilter],
    ) -> RunPage:
        """Return a page of ``list``: ``cursor`` is that of the page before."""
        query = replace(self._query(state=state, **chosen), limit=check_limit(limit), cursor=cursor)
        found = self._session.store().find_runs(_brief(query) if brief else query)
        return RunPage(items=tuple(map(self._session.run_view, found.items)), cursor=found.cursor)

    def get(self, id: str, *, tenant: str | None = None) -> Run:
        """Return the run with that id; ``RunNotFound`` if the tenant has none."""
        record = self._record(id, tenant)
        run = self._session.run_view(record)
        if may_have_lost_attempts(record):
            # Few runs: the log of the others need not be read.
            run = views.with_refusals(run, refusals(self._session.store().read_log(id)))
        if record.state != "queued":
            key = run_progress.key_of(record)
            found = self._session.store().get_record(run_progress.KIND, record.tenant, key)
            run = replace(run, progress=run_progress.progress_view(record, found))
        if run.predecessor is not None and run.predecessor_schedule is None:
            before = run_before(self._session.store(), record)
            run = replace(run, predecessor_schedule=None if before is None else before.schedule)
        return run

    def count(self, *, tenant: str | None = None, all_tenants: bool = False) -> dict[RunState, int]:
        """Return how many runs there are in each state."""
        return self._session.store().count_runs(None if all_tenants else self._session.tenant_of(tenant))

    def cancel(self, id: str, *, tenant: str | None = None) -> Run:
        """Cancel a run: a queued one is over at once, a running one is asked to stop.

        A run that is over already stays as it is.
        """
        store = self._session.store()
        while True:
            run = self._record(id, tenant)
            transition = cancelled_by_hand(run, store.now())
            if transition is None:
                return self._session.run_view(run)
            if settle_by_hand(self._session, [End(run, transition)], store.now())[0]:
                store.hint()
                return self.get(id, tenant=tenant)

    def retry(self, id: str, *, tenant: str | None = None) -> Run:
        """Retry a failed or cancelled run now, with all its retries.

        A flow goes on: see ``app.flows.resume``. If the run's schedule bounds its active runs, this adds a
        new run with the same payload to the schedule, within its policies, and returns that one.

        ``RunRefused`` if it has expired, or another run with its unique key is active.
        """
        run = self._record(id, tenant)
        refuse_step(run)
        if run.state not in ("failed", "cancelled"):
            raise RunRefused(
                f"run {id} is {run.state}; only failed and cancelled runs can be retried", subject=id
            )
        if is_begun(run):
            resume_flow(self._session, run, None)
            return self.get(id, tenant=tenant)
        store = self._session.store()
        if attempts.is_expired(run, store.now()):
            raise RunRefused(
                f"run {id} has expired, and would not be executed; enqueue it again instead", subject=id
            )
        for _ in range(_TRIES):
            row = None if run.schedule is None else self._session.row(run.tenant, run.schedule)
            transition = retried_by_hand(run, row, store.now())
            if transition is not None and run.unique_key is not None:
                UniqueRuns(store).take_for_retry(run)
                transition = replace(transition, token=retry_token(run))
            if transition is None:
                assert run.schedule is not None
                return self._rows.run_now(run.schedule, run.payload, None, run.tenant, retried=run)
            if store.settle_runs([transition])[0]:
                store.hint()
                return self.get(id, tenant=tenant)
            current = self._record(id, tenant)
            if (current.state, current.attempt) != (run.state, run.attempt):
                break
            # The run is unchanged: its schedule changed, and may bound its runs by now.
        raise RunRefused(f"run {id} changed while it was retried; look at it again", subject=id)

    def retry_all(
        self,
        *,
        state: Literal["failed", "cancelled"] = "failed",
        limit: int = MOST_AT_ONCE,
        dry_run: bool = False,
        progress: Progress | None = None,
        **chosen: Unpack[RunFilter],
    ) -> BulkResult[Run]:
        """``retry`` all runs that match the filter, as in ``list``, the newest first, up to ``limit``.

        A run that can't be retried stays as it is, and the result names it with the reason. Each run is
        retried once, whatever becomes of it meanwhile. Where a schedule bounds its active runs, ``retry``
        adds new ones: the failed ones stay failed, and match again. ``dry_run`` only counts. ``progress`` is
        called with the result so far, again and again.
        """
        check_one_of("state", state, ("failed", "cancelled"))
        return self._each(
            self._query(state=state, **chosen), limit, None if dry_run else self._retry_page, progress
        )

    def cancel_all(
        self,
        *,
        state: Literal["queued", "retrying", "running"] | None = None,
        limit: int = MOST_AT_ONCE,
        dry_run: bool = False,
        progress: Progress | None = None,
        **chosen: Unpack[RunFilter],
    ) -> BulkResult[Run]:
        """``cancel`` all runs that match the filter, as in ``list``, the newest first, up to ``limit``.

        Queued and running ones, unless ``state`` names one of these. ``dry_run`` and ``progress`` are as in
        ``retry_all``.
        """
        if state is not None:
            check_one_of("state", state, ("queued", "retrying", "running"))
        query = self._query(state=state, **chosen)
        if state is None:
            query = replace(query, states=("queued", "running"))
        return self._each(query, limit, None if dry_run else self._cancel_page, progress)

    def move(
        self,
        task: Task[..., Any] | str,
        to: Task[..., Any] | str,
        *,
        queue: str | None = None,
        tenant: str | None = None,
        all_tenants: bool = False,
        limit: int = MOST_AT_ONCE,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> MoveResult:
        """Make the queued runs of a task, the newest first, up to ``limit``, runs of another task.

        For a task that was renamed. Running runs stay as they are. Each run is moved once, and keeps its
        place in the queue, its payload and its attempts. A run that can't be moved stays as it is, and the
        result names it. The result also names schedules that still have the old task. ``dry_run`` only
        counts. ``progress`` is as in ``retry_all``.
        """
        moves = RunMoves(self._session, task, to)
        query = self._query(queue=queue, tenant=tenant, all_tenants=all_tenants)
        return moves.run(query, limit, self._pages, self._whole, dry_run=dry_run, progress=progress)

    def why_waiting(self, id: str, *, tenant: str | None = None) -> RunWait | None:
        """Return why a queued run has not started yet; None if it is not queued."""
        waiting = why_it_waits(self._session.store(), self._record(id, tenant))
        return None if waiting is None else views.wait_view(waiting)

    def why(self, id: str, *, tz: str | None = None, tenant: str | None = None) -> Why:
        """Return why the run is in its state: a sentence, the evidence, and a remedy where one helps.

        ``tz`` is the zone of the times in it; by default that of the schedule's trigger.
        """
        return explain_run(self._session, self._record(id, tenant), tz)

    def logs(self, id: str, *, tenant: str | None = None) -> Lines:
        """Return the lines that the run wrote to its log, attempt by attempt."""
        self._record(id, tenant)  # lines have no tenant of their own
        return [views.log_line(chunk) for chunk in self._session.store().read_log(id)]

    def join(self, id: str, timeout: Duration | None = None, *, tenant: str | None = None) -> Run:
        """Wait until a run is over, at most ``timeout``; return the run as it is then, over or not."""
        store = self._session.store()
        run = self._record(id, tenant)
        for seconds in _pauses(timeout, store):
            if run.state in FINAL_STATES:
                break
            _wait(store, seconds, is_endless=timeout is None)
            run = self._record(id, tenant)
        return self._session.run_view(run)

    async def ajoin(self, id: str, timeout: Duration | None = None, *, tenant: str | None = None) -> Run:
        """``join``, awaited. Polls, and holds no thread while it waits."""
        run = await self.aget(id, tenant=tenant)
        store = self._session.store()  # open by now: opening it here would block the event loop
        for seconds in _pauses(timeout, store):
            if run.state in FINAL_STATES:
                break
            await apause(store, seconds, is_endless=timeout is None)
            run = await self.aget(id, tenant=tenant)
        return run

    def history(self, id: str, limit: int = 100, *, tenant: str | None = None) -> Entries:
        """Return who cancelled, retried or enqueued the run by hand, the newest first: see ``app.audit``."""
        owner = self._session.tenant_of(tenant)
        entries = audit.history(self._session, "run", id, owner, limit)
        if not entries:
            self._record(id, tenant)  # a purged run may still have entries
        return entries

    alist = twin(list)
    apage = twin(page)
    aget = twin(get)
    acount = twin(count)
    acancel = twin(cancel)
    aretry = twin(retry)
    aretry_all = twin(retry_all)
    acancel_all = twin(cancel_all)
    amove = twin(move)
    awhy_waiting = twin(why_waiting)
    awhy = twin(why)
    alogs = twin(logs)
    ahistory = twin(history)

    def _record(self, run_id: str, tenant: str | None) -> RunRecord:
        query = RunQuery(ids=(run_id,), tenant=self._session.tenant_of(tenant))
        found = self._session.store().find_runs(query).items
        if not found:
            raise RunNotFound(run_id)
        return found[0]

    def _query(self, *, state: AskedState | None = None, **chosen: Unpack[RunFilter]) -> RunQuery:
        refuse_unknown(chosen, FILTER, "a filter of runs")
        if state is not None:
            check_one_of("state", state, STATES)
        task, tenant = chosen.get("task"), chosen.get("tenant")
        now = self._session.store().now()
        ids = chosen.get("ids")
        if isinstance(ids, str):
            raise InvalidValue(
                f"ids {shown(ids)} is a text", field="ids", value=ids, hint="give a list of ids of runs"
            )
        start, end = read_period(chosen.get("since"), chosen.get("until"), now)
        return RunQuery(
            ids=None if ids is None else tuple(ids),
            tenant=None if chosen.get("all_tenants") else self._session.tenant_of(tenant),
            schedule=chosen.get("schedule"),
            task=task.name if isinstance(task, Task) else task,
            states=None if state is None else ("queued" if state == "retrying" else state,),
            retrying=state == "retrying",
            queue=chosen.get("queue"),
            worker=chosen.get("worker"),
            since=start,
            until=end,
        )

    def _pages(self, query: RunQuery, limit: int) -> Iterator[tuple[Sequence[RunRecord], bool]]:
        """Yield up to ``limit`` runs, a page at a time, each with whether there are more behind it."""
        query = replace(query, limit=min(check_limit(limit), _PAGE))
        left = limit
        while True:
            page = self._session.store().find_runs(query)
            yield page.items, page.cursor is not None
            left -= len(page.items)
            if page.cursor is None or left <= 0:
                return
            query = replace(query, cursor=page.cursor, limit=min(left, _PAGE))

    def _each(
        self,
        query: RunQuery,
        limit: int,
        act: Callable[[Sequence[RunRecord]], Answers] | None,
        progress: Progress | None,
    ) -> BulkResult[Run]:
        """Call ``act`` with page after page.

        A run that changes meanwhile keeps its place in the order, and new runs sort before the first page:
        no run comes twice.
        """
        return act_on_all(
            self._pages(replace(query, without=VALUES), limit),
            act,
            lambda run: ChangedItem(tenant=run.tenant, id=run.id),
            self._whole,
            progress=progress,
        )

    def _whole(self, runs: Sequence[RunRecord]) -> Sequence[Run]:
        """Return runs with their payloads and results; without those that were purged meanwhile."""
        ids = tuple(run.id for run in runs)
        found = self._session.store().find_runs(RunQuery(ids=ids, limit=len(ids))).items
        return [self._session.run_view(run) for run in found]

    def _retry_page(self, page: Sequence[RunRecord]) -> Answers:
        now = self._session.store().now()
        rows: dict[tuple[str, str], ScheduleRecord | None] = {}
        transitions: list[Transition] = []
        for run in page:
            row = None
            if run.schedule is not None:
                key = (run.tenant, run.schedule)
                row = rows[key] if key in rows else rows.setdefault(key, self._session.row(*key))
            transition = retried_by_hand(run, row, now)
            # The others are retried alone, which tells why if that is refused.
            is_plain = run.unique_key is None and run.flow is None and not attempts.is_expired(run, now)
            if transition is not None and is_plain:
                transitions.append(transition)
        return self._settled(page, transitions, lambda run: self.retry(run.id, tenant=run.tenant))

    def _cancel_page(self, page: Sequence[RunRecord]) -> Answers:
        now = self._session.store().now()
        wishes = (cancelled_by_hand(run, now) for run in page)
        return self._settled(page, [wish for wish in wishes if wish is not None], self._cancel_or_refuse)

    def _cancel_or_refuse(self, found: RunRecord) -> None:
        if is_stopping(found):
            return
        run = self.cancel(found.id, tenant=found.tenant)
        if run.state not in ("cancelled", "running"):
            raise RunRefused(f"run {run.id} is over already: {run.state}", subject=run.id)

    def _settled(
        self,
        page: Sequence[RunRecord],
        transitions: Sequence[Transition],
        alone: Callable[[RunRecord], object],
    ) -> Answers:
        """Apply transitions together; apply those that were refused, or had none, ``alone``."""
        store = self._session.store()
        runs = {run.id: run for run in page}
        ends = [End(runs[transition.run], transition) for transition in transitions]
        accepted = settle_by_hand(self._session, ends, store.now())
        done = {change.run for change, is_done in zip(transitions, accepted, strict=True) if is_done}
        if done:
            store.hint()
        answers: Answers = []
        for run in page:
            why = None
            if run.id not in done:
                try:
                    alone(run)
                except (RunRefused, RunNotFound, ScheduleNotFound, ScheduleConflict) as error:
                    why = str(error)
            answers.append(why)
        return answers


def _brief(query: RunQuery) -> RunQuery:
    return replace(query, without=LARGE_FIELDS)


def _wait(store: Store, seconds: float, *, is_endless: bool) -> None:
    """Wait for a hint; on a store in virtual time, let that time pass."""
    if virtual_time(store) is None:
        store.wait(seconds)
    else:
        pause(store, seconds, is_endless=is_endless)


def _pauses(timeout: Duration | None, store: Store) -> Iterator[float]:
    """Yield how long to wait before each further read, until the timeout has passed."""
    clock = clock_of(store, time.monotonic)
    deadline = None if timeout is None else clock() + read_duration(timeout, "timeout") / 1000
    seconds = _POLL
    while deadline is None or (left := deadline - clock()) > 0:
        yield seconds if deadline is None else min(seconds, left)
        seconds = min(seconds * 2, _LONGEST_POLL)
