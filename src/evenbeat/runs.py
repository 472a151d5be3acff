"""``app.runs``: look at runs, cancel them, try them again, wait for them, read their logs."""

from __future__ import annotations

import time
from typing import Any, TypeAlias, get_args
from uuid import uuid4

from msgspec.structs import replace

from evenbeat import views
from evenbeat.access import Access
from evenbeat.durations import Duration, read_duration
from evenbeat.errors import RunNotFound, RunRefused
from evenbeat.model import FINAL_STATES, Run, RunState, check_one_of
from evenbeat.rules import attempts
from evenbeat.schedules import Schedules
from evenbeat.stores.base import RunQuery
from evenbeat.tasks import Task
from evenbeat.twins import twin
from evenbeat.views import LogLine, RunInfo

# Inside the class, ``list`` is a method.
Lines: TypeAlias = list[LogLine]

_PAGE = 500
# A retry is refused when the run's schedule changes meanwhile: so many times in a row mean a fault.
_TRIES = 50
# Between two looks at a run that is waited for: short at first, since most runs are, then doubled.
_LOOK, _LONGEST_LOOK = 0.02, 1.0


class Runs:
    """The runs of a scheduler; ``a…`` twins are awaited."""

    def __init__(self, access: Access, schedules: Schedules) -> None:
        self._access = access
        self._schedules = schedules

    def list(
        self,
        *,
        schedule: str | None = None,
        task: Task[..., Any] | str | None = None,
        state: RunState | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        all_tenants: bool = False,
        limit: int = 100,
    ) -> list[RunInfo]:
        """Runs, the newest first."""
        if state is not None:
            check_one_of("state", state, get_args(RunState))
        query = RunQuery(
            tenant=None if all_tenants else self._access.tenant_of(tenant),
            schedule=schedule,
            task=task.name if isinstance(task, Task) else task,
            states=None if state is None else (state,),
            queue=queue,
            limit=min(limit, _PAGE),
        )
        found: list[RunInfo] = []
        while True:
            page = self._access.store().find_runs(query)
            found += map(self._access.info, page.items)
            if page.cursor is None or len(found) >= limit:
                return found[:limit]
            query = replace(query, cursor=page.cursor)

    def get(self, id: str) -> RunInfo:  # noqa: A002  # what everybody calls it
        """The run with that id; ``RunNotFound`` if there is none."""
        return self._access.info(self._record(id))

    def count(self, *, tenant: str | None = None, all_tenants: bool = False) -> dict[RunState, int]:
        """How many runs there are in each state."""
        return self._access.store().count_runs(None if all_tenants else self._access.tenant_of(tenant))

    def cancel(self, id: str) -> RunInfo:  # noqa: A002
        """Ask a run to stop: a queued one is over at once, a running one is told.

        What is over already stays as it is.
        """
        store = self._access.store()
        while True:
            run = self._record(id)
            transition = attempts.cancel(run, store.now(), uuid4().hex)
            if transition is None or (run.state == "running" and run.cancel_requested):
                return self._access.info(run)
            if store.settle_runs([transition])[0]:
                store.hint()
                return self.get(id)

    def retry(self, id: str) -> RunInfo:  # noqa: A002
        """Try a failed or cancelled run again, now, with all its retries.

        A run of a schedule that bounds its active runs is not woken up behind the schedule's back: the
        schedule is asked for a new run with the same payload, and that one is the answer.
        """
        run = self._record(id)
        if run.state not in ("failed", "cancelled"):
            raise RunRefused(
                f"run {id} is {run.state}; only failed and cancelled runs can be tried again", subject=id
            )
        store = self._access.store()
        for _ in range(_TRIES):
            row = None if run.schedule is None else self._access.row(run.tenant, run.schedule)
            transition = attempts.retried(run, uuid4().hex, row)
            if transition is None:
                return self._schedules.trigger_again(run)
            if store.settle_runs([transition])[0]:
                store.hint()
                return self.get(id)
            current = self._record(id)
            if (current.state, current.attempt) != (run.state, run.attempt):
                break
            # The run is as it was: its schedule changed, and may bound its runs by now.
        raise RunRefused(f"run {id} changed while it was asked to run again; look at it", subject=id)

    def logs(self, id: str) -> Lines:  # noqa: A002
        """What the run wrote to its log, attempt by attempt."""
        chunks = self._access.store().read_log(id)
        if not chunks:
            self._record(id)
        return [views.log_line(chunk) for chunk in chunks]

    def wait_for(self, id: str, timeout: Duration | None = None) -> RunInfo:  # noqa: A002
        """Wait until a run is over, at most ``timeout``; the run as it is then, over or not."""
        store = self._access.store()
        deadline = None if timeout is None else time.monotonic() + read_duration(timeout, "timeout") / 1000
        look = _LOOK
        while True:
            run = self._record(id)
            left = look if deadline is None else min(look, deadline - time.monotonic())
            if run.state in FINAL_STATES or left <= 0:
                return self._access.info(run)
            store.wait(left)
            look = min(look * 2, _LONGEST_LOOK)

    alist = twin(list)  # noqa: A003  # the method, not the type
    aget = twin(get)
    acount = twin(count)
    acancel = twin(cancel)
    aretry = twin(retry)
    alogs = twin(logs)
    await_for = twin(wait_for)

    def _record(self, run_id: str) -> Run:
        found = self._access.store().find_runs(RunQuery(ids=(run_id,))).items
        if not found:
            raise RunNotFound(run_id)
        return found[0]
