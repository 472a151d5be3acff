"""``app.flows``: the flows that are registered, and runs of them: shown, resumed, retried, cancelled."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from msgspec.structs import replace

from evenbeat.app.audit import audited
from evenbeat.app.enqueueing import EnqueueOptions, Enqueuer
from evenbeat.app.session import AppSession
from evenbeat.app.unique_runs import UniqueRuns, retry_token
from evenbeat.core.awaitable import twin
from evenbeat.core.durations import Duration
from evenbeat.core.flow_graphs import FlowGraph
from evenbeat.core.flows import FlowInfo, FlowRun
from evenbeat.core.instants import Moment
from evenbeat.core.records import ACTIVE_STATES, RunRecord, Transition
from evenbeat.core.results import Run
from evenbeat.errors import InvalidValue, RunNotFound, RunRefused, shown
from evenbeat.node.flow_resuming import FlowResuming
from evenbeat.node.flow_rows import FlowGraphs, FlowRows
from evenbeat.observe.flow_views import flow_info, flow_run_view
from evenbeat.rules import auditing, flows
from evenbeat.rules.firing import needs_active
from evenbeat.rules.flow_parts import OPEN, Member, belongs_to, flow_part, is_begun, step_name
from evenbeat.stores.base import VALUES, RunQuery
from evenbeat.tasks.flow import Flow, flows_of
from evenbeat.tasks.options import EnqueuedOptions
from evenbeat.tasks.task import Task

if TYPE_CHECKING:
    from evenbeat.app.runs import Runs

# How many elements of a map ``show`` reads.
_SHOWN_ELEMENTS = 1_000
_TRIES = 100
# How many steps an error names.
_NAMED = 20
Infos: TypeAlias = list[FlowInfo]


class Flows:
    """Reads flows, and runs of them; resumes, retries and cancels these."""

    def __init__(self, session: AppSession, enqueuer: Enqueuer, runs: Runs) -> None:
        self._session = session
        self._enqueuer = enqueuer
        self._runs = runs

    def list(self) -> Infos:
        """Return the flows that are registered here, by name."""
        return [flow_info(flow.graph) for flow in flows_of(self._session.tasks)]

    def get(self, name: str) -> FlowInfo:
        """Return a flow that is registered here: its steps, and what they wait for."""
        return flow_info(self._flow(name).graph)

    def run(
        self,
        flow: Flow[..., Any] | str,
        payload: Mapping[str, Any] | None = None,
        *,
        delay: Duration | None = None,
        at: Moment | None = None,
        id: str | None = None,
        tenant: str | None = None,
        **options: Unpack[EnqueuedOptions],
    ) -> Run:
        """Start a flow: due at once, after ``delay``, or at ``at``. The same as ``app.enqueue``.

        A name that is not registered here is refused, unless no task at all is: the code is elsewhere then.
        """
        if isinstance(flow, Task):
            _check_flow(flow)
        elif len(self._session.tasks):
            self._flow(flow)
        return self._enqueuer.add(flow, payload, id, EnqueueOptions(delay, at, tenant, None, None, options))

    def show(self, id: str, *, tenant: str | None = None) -> FlowRun:
        """Return a run of a flow, with the state of each step.

        Of a map, it reads the runs of the first 1,000 elements; the counts are of all of them.
        """
        run = self._as_resumed(self._record(id, tenant))
        graph = self._graph(run)
        found: dict[int, builtins.list[RunRecord]] = {}
        state = flow_part(run).state
        if graph is not None and state is not None:
            ids: dict[str, int] = {}
            for at in range(len(graph.steps)):
                for run_id in flows.step_ids(run.id, graph, state, at)[:_SHOWN_ELEMENTS]:
                    ids[run_id] = at
            for each in self._read(tuple(ids)):
                if not belongs_to(each, run):
                    continue  # somebody had added a run with this id
                found.setdefault(ids[each.id], []).append(each)
            for runs in found.values():
                runs.sort(key=lambda each: (flow_part(each).member or _NO_PLACE).index or 0)
        return flow_run_view(run, graph, found, self._session.tasks)

    def resume(self, id: str, *, tenant: str | None = None) -> FlowRun:
        """Run again what failed, was cancelled, or did not run because of that; keep what succeeded.

        The flow waits in the queue until a worker takes it and its limits admit it. A step that failed gets a
        new run; of a map, the elements that failed are retried. ``RunRefused`` if
        the flow has succeeded or is running, if its schedule allows one run at a time and another is active,
        or if another run with its unique key is active.
        """
        resume_flow(self._session, self._record(id, tenant), None)
        return self.show(id, tenant=tenant)

    def retry(self, id: str, step: str, *, tenant: str | None = None) -> FlowRun:
        """Run a step again, and what came after it, whether it succeeded or not.

        The flow may be running still, as long as nothing that comes after the step is.
        """
        resume_flow(self._session, self._record(id, tenant), step)
        return self.show(id, tenant=tenant)

    def cancel(self, id: str, *, tenant: str | None = None) -> FlowRun:
        """Cancel a flow: its queued steps are over at once, running ones are asked to stop, and no other
        step starts. A flow that is over stays as it is."""
        self._record(id, tenant)
        self._runs.cancel(id, tenant=tenant)
        return self.show(id, tenant=tenant)

    alist = twin(list)
    aget = twin(get)
    arun = twin(run)
    ashow = twin(show)
    aresume = twin(resume)
    aretry = twin(retry)
    acancel = twin(cancel)

    def _flow(self, name: str) -> Flow[..., Any]:
        task = self._session.tasks.get(name)
        if task is None:
            known = ", ".join(flow.name for flow in flows_of(self._session.tasks)) or "none"
            raise InvalidValue(
                f"flow {shown(name)} is not registered", field="flow", value=name, hint=f"there are: {known}"
            )
        return _check_flow(task)

    def _graph(self, run: RunRecord) -> FlowGraph | None:
        """Return the graph that a run was started with; before that, the one that is registered here."""
        state = flow_part(run).state
        if state is not None:
            return FlowGraphs(self._session.store()).of(run)
        known = self._session.tasks.get(run.task)
        return known.graph if isinstance(known, Flow) else None

    def _as_resumed(self, run: RunRecord) -> RunRecord:
        """Return a flow that waits in the queue, with its steps as they will be then."""
        state = flow_part(run).state
        if state is None or is_begun(run):
            return run
        store = self._session.store()
        coming = FlowResuming(FlowRows(store)).go_on(run, store.now())
        return run if coming is None or not isinstance(coming.flow, str) else replace(run, flow=coming.flow)

    def _record(self, run_id: str, tenant: str | None) -> RunRecord:
        query = RunQuery(ids=(run_id,), tenant=self._session.tenant_of(tenant))
        found = self._session.store().find_runs(query).items
        if not found:
            raise RunNotFound(run_id)
        if found[0].kind != "flow" and not is_begun(found[0]):
            member = flow_part(found[0]).member
            place = "" if member is None else f"; it is a step of {member.flow}"
            raise RunRefused(
                f"run {run_id} is not a flow, but a run of task {found[0].task}{place}", subject=run_id
            )
        return found[0]

    def _read(self, ids: tuple[str, ...]) -> builtins.list[RunRecord]:
        found: builtins.list[RunRecord] = []
        for at in range(0, len(ids), _SHOWN_ELEMENTS):
            part = ids[at : at + _SHOWN_ELEMENTS]
            query = RunQuery(ids=part, without=VALUES, limit=len(part))
            found += self._session.store().find_runs(query).items
        return found


def refuse_step(run: RunRecord) -> None:
    """Refuse to retry a step of a flow by itself: its flow would not know."""
    member = flow_part(run).member
    if member is not None:
        raise RunRefused(
            f"run {run.id} is a step of a flow: resume its flow ('evenbeat flows resume {member.flow}', "
            f"app.flows.resume), or retry the step ('evenbeat flows retry {member.flow} {step_name(run)}', "
            "app.flows.retry)",
            subject=run.id,
        )


def resume_flow(session: AppSession, run: RunRecord, step: str | None) -> None:
    """Run again what failed in a flow, or ``step``, and what came after it."""
    store = session.store()
    rows = FlowRows(store)
    for _ in range(_TRIES):
        refuse_step(run)
        state = flow_part(run).state
        if state is None:
            hint = "retry the run" if run.state in ("failed", "cancelled") else "it has not begun"
            raise RunRefused(f"flow {run.id} is {run.state}: {hint}", subject=run.id)
        if step is None and run.state not in ("failed", "cancelled"):
            raise RunRefused(
                f"flow {run.id} is {run.state}; only a failed or cancelled flow can be resumed",
                subject=run.id,
            )
        if run.state == "running" and (run.cancel_requested or state.stop):
            raise RunRefused(
                f"flow {run.id} is being stopped; retry the step when it is over", subject=run.id
            )
        at = None if step is None else _position(rows, run, step)
        if run.state in ACTIVE_STATES and not is_begun(run):
            raise RunRefused(
                f"flow {run.id} waits in the queue to be resumed; retry the step when it has ended",
                subject=run.id,
            )
        now = store.now()
        what = {} if step is None else {"step": step}
        after = "running" if run.state == "running" else "queued"
        change = auditing.run_change("retry", run, {"state": run.state}, {"state": after, **what})
        transition = FlowResuming(rows).queue(run, at, now, extra=audited(change, now))
        if transition is None:
            raise RunRefused(_why_not(run, step, state.steps), subject=run.id)
        transition = _gated(session, run, transition)
        if run.unique_key is not None and run.state not in ACTIVE_STATES:
            UniqueRuns(store).take_for_retry(run)
            transition = replace(transition, token=retry_token(run))
        if store.settle_runs([transition])[0]:
            store.hint()
            return
        (run,) = store.find_runs(RunQuery(ids=(run.id,))).items or (run,)
    raise RunRefused(f"flow {run.id} changed while it was resumed; look at it again", subject=run.id)


def _position(rows: FlowRows, run: RunRecord, step: str) -> int:
    graph = rows.graphs.of(run)
    positions = {} if graph is None else graph.positions
    if step not in positions:
        raise InvalidValue(
            f"flow {run.task} has no step {shown(step)}",
            field="step",
            value=step,
            hint=f"there are: {_listed(positions)}",
        )
    return positions[step]


def _listed(names: Collection[str]) -> str:
    """Return the first names: a flow may have 10,000 steps."""
    first = ", ".join(islice(names, _NAMED))
    return first if len(names) <= _NAMED else f"{first} and {len(names) - _NAMED:,} more"


def _gated(session: AppSession, run: RunRecord, transition: Transition) -> Transition:
    """Return the transition of a flow that goes on after its end with the gate: if its schedule bounds its
    active runs, there must be no other one, and none may start meanwhile."""
    if run.schedule is None or run.state in ACTIVE_STATES:
        return transition
    row = session.row(run.tenant, run.schedule)
    if row is None:
        return replace(transition, gate=(run.tenant, run.schedule, 0, 0))
    is_bounded = row.state != "deleted" and needs_active(row)
    if is_bounded:
        query = RunQuery(tenant=run.tenant, schedule=run.schedule, states=tuple(ACTIVE_STATES), limit=1)
        active = session.store().find_runs(query).items
        if active:
            raise RunRefused(
                f"schedule {run.schedule} bounds its active runs, and run {active[0].id} is active; "
                "resume the flow when it has ended",
                subject=run.id,
            )
    gate = (run.tenant, run.schedule, row.generation, row.revision)
    return replace(transition, gate=gate, gate_fires=row.fire_seq if is_bounded else None)


def _why_not(run: RunRecord, step: str | None, letters: str) -> str:
    if step is None:
        return f"flow {run.id} has no step that failed"
    if OPEN in letters:
        return f"step {step} of flow {run.id} can't be run again now: it, or a step after it, has not ended"
    return f"step {step} of flow {run.id} has not run; resume the flow"


def _check_flow(task: Task[..., Any]) -> Flow[..., Any]:
    if not isinstance(task, Flow):
        raise InvalidValue(
            f"{shown(task.name)} is a task, not a flow",
            field="flow",
            value=task.name,
            hint="app.enqueue(…) adds a run of a task",
        )
    return task


_NO_PLACE = Member("", "", 0)
