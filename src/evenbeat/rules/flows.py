"""What becomes of a flow: which steps start, which never run, and when it ends. Pure.

A flow is a run. While its steps run, it is in the state running, without a worker. The end of a step is one
``Transition`` with the change of its flow and the runs of the next steps: the store applies all of it or
nothing. The change compares the attempt of the flow's run and counts it up, so of two nodes that end steps of
one flow at the same moment, one is refused, reads the flow again and decides again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from evenbeat.core.durations import write_duration
from evenbeat.core.flow_graphs import MOST_ELEMENTS, FlowGraph, FlowStep, encode_graph, put
from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode, from_json
from evenbeat.core.records import Kind, Record, RunRecord, RunState, Transition
from evenbeat.errors import shown
from evenbeat.rules import attempts
from evenbeat.rules.flow_parts import (
    CANCELLED,
    FAILED,
    NOT_NEEDED,
    NOT_RUN,
    OPEN,
    SUCCEEDED,
    UNENDED,
    UNSUCCESSFUL,
    WAITING,
    WHAT_FAILED,
    Elements,
    FlowState,
    Member,
    flow_part,
    new_nonce,
    part_text,
    step_run_id,
)

GRAPH, OWNER = "flow_graph", "default"
"""The kind and the tenant of the records that keep graphs."""

# Milliseconds. The lease of a flow that has begun: no worker renews it, each change does. When it ends, a
# node looks whether the flow stands still.
CHECK_EVERY = 300_000
_LONGEST_PROBLEM = 500
_LETTERS: dict[str, str] = {"succeeded": SUCCEEDED, "failed": FAILED, "cancelled": CANCELLED}

Results = Mapping[str, str | None]
"""Results of runs as JSON texts, by id; None: the run has none."""


class StepEnd(NamedTuple):
    """A step's run, or an element's, that ends now."""

    member: Member
    run: str
    state: RunState
    """A final one."""
    result: str | None = None
    error: str | None = None


class Change(NamedTuple):
    """The new state of a flow, the runs to add, and its end."""

    state: FlowState
    starts: tuple[RunRecord, ...] = ()
    outcome: Literal["succeeded", "failed", "cancelled"] | None = None
    """How the flow ends; None: it goes on."""
    result: str | None = None
    missing: tuple[str, ...] = ()
    """Runs whose results are needed to decide: call again with these. Nothing else counts then."""
    is_stale: bool = False
    """Whether none of the ends concerns the flow any more."""


def graph_records(graphs: Iterable[FlowGraph]) -> tuple[Record, ...]:
    """Return the records that keep graphs. They never change, and are as many as there are versions."""
    return tuple(Record(kind=GRAPH, tenant=OWNER, key=each.key, body=encode_graph(each)) for each in graphs)


def begin(flow: RunRecord, graph: FlowGraph, now: Instant) -> Change:
    """Start a flow: its first steps start."""
    timeout = flow.execution.timeout
    deadline = None if timeout is None else now + timeout
    state = FlowState(
        graph=graph.key, steps=WAITING * len(graph.steps), deadline=deadline, nonce=new_nonce(flow)
    )
    return _Progress(flow, graph, state, {}, now).go_on(range(len(graph.steps)))


def advance(
    flow: RunRecord, graph: FlowGraph, ends: Sequence[StepEnd], results: Results, now: Instant
) -> Change:
    """Count the ends of steps, and start what follows. 5.8 us for a step with one successor."""
    state = flow_part(flow).state
    assert state is not None
    known = dict(results)
    for end in ends:
        if end.state == "succeeded":
            known[end.run] = end.result
    progress = _Progress(flow, graph, state, known, now)
    counted = [end for end in ends if progress.count(end)]
    if not counted:
        return Change(state, is_stale=True)
    return progress.go_on(
        at for step in {end.member.step for end in counted} for at in graph.successors[step]
    )


def stop(
    flow: RunRecord, graph: FlowGraph, why: Literal["cancelled", "timeout"], results: Results, now: Instant
) -> Change:
    """Start no further step: those that wait never run. The flow ends when its open steps have ended."""
    state = flow_part(flow).state
    assert state is not None
    state = replace(state, stop=state.stop or why)
    if state.stop == "timeout":
        took = write_duration(flow.execution.timeout or 0)
        state = replace(state, problem=state.problem or f"timed out after {took}")
    return _Progress(flow, graph, state, dict(results), now).go_on(range(len(graph.steps)))


class Reset(NamedTuple):
    """A flow that goes on after its end."""

    change: Change
    again: tuple[int, ...]
    """Steps whose run is continued: flows within the flow, and the elements of maps that failed."""


def resume(
    flow: RunRecord,
    graph: FlowGraph,
    results: Results,
    now: Instant,
    hopeless: Mapping[int, int] = MappingProxyType({}),
) -> Reset:
    """Run again what failed and what came after it; keep what succeeded.

    A step that failed gets a new run. Of a map, the elements that failed are retried; of a flow within the
    flow, what failed there. ``hopeless`` counts, for each step, flows within the flow of which no step can
    start: they stay as they are.
    """
    state = flow_part(flow).state
    assert state is not None
    letters = state.steps
    again: list[int] = []
    roots: list[int] = []
    for at, letter in enumerate(letters):
        if letter not in (FAILED, CANCELLED):
            continue
        counted = state.maps.get(str(at), Elements(1, 0, 1))
        if hopeless.get(at, 0) >= counted.failed + counted.cancelled:
            continue
        is_begun = graph.steps[at].kind == "flow" or str(at) in state.maps
        (again if is_begun and str(at) not in state.notes else roots).append(at)
    return _reset(flow, graph, state, roots, again, results, now, hopeless)


def retry(flow: RunRecord, graph: FlowGraph, step: int, results: Results, now: Instant) -> Reset | None:
    """Run a step again, and what came after it; None if the step, or one after it, has not ended."""
    state = flow_part(flow).state
    assert state is not None
    after = graph.after(step)
    if state.steps[step] in (*UNENDED, NOT_RUN) or any(state.steps[at] == OPEN for at in after):
        return None
    return _reset(flow, graph, state, [step], [], results, now)


def restart(flow: RunRecord, graph: FlowGraph, results: Results, now: Instant) -> Reset:
    """Run all steps again."""
    state = flow_part(flow).state
    assert state is not None
    return _reset(flow, graph, state, range(len(graph.steps)), [], results, now)


def _reset(
    flow: RunRecord,
    graph: FlowGraph,
    state: FlowState,
    roots: Sequence[int],
    again: Sequence[int],
    results: Results,
    now: Instant,
    hopeless: Mapping[int, int] = MappingProxyType({}),
) -> Reset:
    """Start ``roots`` anew, continue the runs of ``again``, and forget what came after both."""
    after = set().union(*(graph.after(at) for at in (*roots, *again)))
    letters = list(state.steps)
    rounds, maps = dict(state.rounds), dict(state.maps)
    notes = dict(state.notes)
    for at, letter in enumerate(letters):
        if at in after or at in roots or letter == NOT_RUN:
            if letter not in (WAITING, NOT_RUN, NOT_NEEDED):
                # Its earlier run stays as it is: the new one has another id.
                rounds[str(at)] = rounds.get(str(at), 1) + 1
            letters[at] = WAITING
            maps.pop(str(at), None)
            notes.pop(str(at), None)
    continued = [at for at in again if at not in after]
    for at in continued:
        letters[at] = OPEN
        if (counted := maps.get(str(at))) is not None:
            left = hopeless.get(at, 0)
            maps[str(at)] = Elements(counted.total, counted.failed + counted.cancelled - left, left)
    timeout = flow.execution.timeout
    fresh = FlowState(
        graph=state.graph,
        steps="".join(letters),
        maps=maps,
        rounds=rounds,
        deadline=None if timeout is None else now + timeout,
        notes=notes,
        nonce=state.nonce,
    )
    change = _Progress(flow, graph, fresh, dict(results), now).go_on(range(len(letters)))
    return Reset(change, tuple(continued))


def recount(
    flow: RunRecord, graph: FlowGraph, found: Mapping[str, RunRecord], results: Results, now: Instant
) -> Change:
    """Count the runs of open steps again, as the store has them: for a flow that stands still.

    A run that does not exist any more has failed. The change is stale if the flow knows of all ends.
    """
    state = flow_part(flow).state
    assert state is not None
    progress = _Progress(flow, graph, state, dict(results), now)
    stale = [at for at, ids in open_runs(flow, graph) if not progress.recount(at, ids, found)]
    following = [after for at in stale for after in graph.successors[at]]
    return progress.go_on(following) if stale else Change(state, is_stale=True)


def unreadable(flow: RunRecord) -> Change:
    """Return the end of a flow whose graph is gone, or whose state does not fit its graph."""
    state = flow_part(flow).state
    assert state is not None
    problem = "its graph is not in the store, or its state was edited by hand: run the flow again"
    return Change(replace(state, problem=problem, resume=None), outcome="failed")


def checked(flow: RunRecord, token: str, now: Instant) -> Transition:
    """Return the transition of a flow that was looked at and found in order: it is looked at again later."""
    state = flow_part(flow).state
    deadline = None if state is None or state.stop else state.deadline
    lease = CHECK_EVERY if deadline is None else min(max(deadline - now, 1), CHECK_EVERY)
    return Transition(
        run=flow.id,
        attempt=flow.attempt,
        claim=flow.claim,
        expect=("running",),
        token=token,
        lease=lease,
        lease_ended=True,
        kind=_corrected_kind(flow),
    )


def _corrected_kind(flow: RunRecord) -> Kind | UnsetType:
    """Return the kind to write: a process without the code has stored the flow as a task. Limits would count
    it as one, and its steps could wait for its own slot."""
    return UNSET if flow.kind == "flow" else "flow"


def going_on(
    flow: RunRecord, change: Change, token: str, ends: tuple[Transition, ...], now: Instant
) -> Transition:
    """Return the transition of a flow that has changed and does not end."""
    deadline = change.state.deadline
    lease = CHECK_EVERY if deadline is None else min(max(deadline - now, 1), CHECK_EVERY)
    return Transition(
        run=flow.id,
        attempt=flow.attempt,
        claim=flow.claim,
        expect=("running",),
        token=token,
        state="running",
        worker=None,
        lease=lease,
        flow=part_text(flow_part(flow).member, change.state),
        kind=_corrected_kind(flow),
        renews=True,
        ends=ends,
        adds=change.starts,
    )


def ending(
    flow: RunRecord, change: Change, token: str, ends: tuple[Transition, ...], now: Instant
) -> Transition:
    """Return the transition of a flow that ends: it counts, wakes and informs like that of any run."""
    assert change.outcome is not None
    error = change.state.problem or None if change.outcome != "succeeded" else None
    final = attempts.final(flow, change.outcome, now, token, result=change.result, error=error)
    text = part_text(flow_part(flow).member, change.state)
    return replace(final, flow=text, kind=_corrected_kind(flow), renews=True, ends=ends)


def continuing(
    flow: RunRecord, change: Change, token: str, ends: tuple[Transition, ...], now: Instant
) -> Transition:
    """Return the transition of a flow that has ended, or is running, and runs some of its steps again."""
    base = going_on(flow, change, token, ends, now)
    return replace(
        base, expect=(flow.state,), finished_at=None, error=None, result=None, cancel_requested=False
    )


def queued_again(flow: RunRecord, step: int | None, token: str) -> Transition:
    """Return the transition of a flow that has ended and is to run ``step`` again, or what failed: it waits
    in the queue like any run, so that limits count it before it continues."""
    member, state = flow_part(flow).member, flow_part(flow).state
    assert state is not None
    waiting = replace(state, resume=WHAT_FAILED if step is None else step)
    return Transition(
        run=flow.id,
        attempt=flow.attempt,
        claim=flow.claim,
        expect=(flow.state,),
        token=token,
        state="queued",
        delay=0,
        failures=0,
        crashes=0,
        worker=None,
        lease=None,
        cancel_requested=False,
        finished_at=None,
        result=None,
        error=None,
        flow=part_text(member, waiting),
        kind=_corrected_kind(flow),
        # A late repetition of this transition must not undo a cancel that follows it.
        renews=True,
    )


def open_runs(flow: RunRecord, graph: FlowGraph) -> list[tuple[int, list[str]]]:
    """Return the ids of the runs of each open step."""
    state = flow_part(flow).state
    assert state is not None
    found: list[tuple[int, list[str]]] = []
    for at, letter in enumerate(state.steps):
        if letter == OPEN:
            found.append((at, step_ids(flow.id, graph, state, at)))
    return found


def step_ids(flow: str, graph: FlowGraph, state: FlowState, at: int) -> list[str]:
    """Return the ids of the runs of a step: one, or one for each element of a map."""
    name, round_ = graph.steps[at].name, state.round(at)
    if not graph.steps[at].is_map:
        return [step_run_id(flow, name, round_, nonce=state.nonce)]
    counted = state.maps.get(str(at))
    total = 0 if counted is None else counted.total
    return [step_run_id(flow, name, round_, index, nonce=state.nonce) for index in range(total)]


def needed_runs(run: RunRecord, graph: FlowGraph, state: FlowState) -> dict[str, list[str]]:
    """Return the ids of the runs whose results a step gets, by the name of the step that they belong to.

    ``state`` is that of its flow. A step that did not run has no result.
    """
    member = flow_part(run).member
    assert member is not None
    inputs = graph.steps[member.step].inputs
    names = {each.name for each in inputs if each.source == "result"}
    return {
        name: step_ids(member.flow, graph, state, at) if state.steps[at] not in (NOT_RUN, NOT_NEEDED) else []
        for name in sorted(names)
        for at in (graph.positions[name],)
    }


def with_results(
    run: RunRecord, graph: FlowGraph, needed: Mapping[str, Sequence[str]], found: Results
) -> str:
    """Return the payload of a step with the results that it gets. ``found`` has those that exist."""
    member = flow_part(run).member
    assert member is not None
    payload = from_json(run.payload)
    for each in graph.steps[member.step].inputs:
        if each.source == "result":
            ids = needed[each.name]
            values = [_value(found.get(run_id)) for run_id in ids]
            is_map = graph.steps[graph.positions[each.name]].is_map
            put(payload, each.path, values if is_map else values[0] if values else None)
    return encode(payload)


def _value(text: str | None) -> Any:
    return None if text is None else from_json(text)


class _Progress:
    """A flow while its change is decided."""

    def __init__(
        self,
        flow: RunRecord,
        graph: FlowGraph,
        state: FlowState,
        results: dict[str, str | None],
        now: Instant,
    ) -> None:
        self._flow = flow
        self._graph = graph
        self._state = state
        self._results = results
        self._now = now
        self._letters = list(state.steps)
        self._maps = dict(state.maps)
        self._notes = dict(state.notes)
        self._problem = state.problem
        self._starts: list[RunRecord] = []
        self._missing: list[str] = []
        self._parameters: dict[str, Any] | None = None

    def count(self, end: StepEnd) -> bool:
        """Count the end of a step; False if it does not concern the flow any more."""
        at, key = end.member.step, str(end.member.step)
        if (
            not self._state.letter(at)
            or self._letters[at] != OPEN
            or end.member.round != self._state.round(at)
            or end.member.nonce != self._state.nonce
        ):
            return False
        letter = _LETTERS[end.state]
        counted = self._maps.get(key)
        if counted is not None:
            counted = Elements(
                counted.total,
                counted.open - 1,
                counted.failed + (letter == FAILED),
                counted.cancelled + (letter == CANCELLED),
            )
            self._maps[key] = counted
            if counted.open <= 0:
                self._letters[at] = (
                    FAILED if counted.failed else CANCELLED if counted.cancelled else SUCCEEDED
                )
        else:
            self._letters[at] = letter
        if letter != SUCCEEDED and not self._problem:
            self._problem = self._sentence(end)
        return True

    def recount(self, at: int, ids: Sequence[str], found: Mapping[str, RunRecord]) -> bool:
        """Count the runs of an open step again; return whether the flow had counted all of them."""
        states: list[RunState] = [found[run_id].state if run_id in found else "failed" for run_id in ids]
        active = sum(state not in _LETTERS for state in states)
        failed, cancelled = states.count("failed"), states.count("cancelled")
        before = self._maps.get(str(at)) or Elements(1, 1)
        if active == before.open:
            return True
        if str(at) in self._maps:
            self._maps[str(at)] = Elements(len(ids), active, failed, cancelled)
        if not active:
            self._letters[at] = FAILED if failed else CANCELLED if cancelled else SUCCEEDED
        if failed or cancelled:
            name = self._graph.steps[at].name
            how = "failed" if failed else "was cancelled"
            self._problem = self._problem or f"step {name} {how}"
        return False

    def go_on(self, candidates: Iterable[int]) -> Change:
        """Start what can start, and end the flow if nothing is left."""
        # Each once, though several of its predecessors may have ended: a join looks at all of them. 100 ends
        # before a join of 1,000 take 0.1 ms, not 2 ms (noisy machine).
        left = dict.fromkeys(candidates)
        while left:
            following: dict[int, None] = {}
            for at in left:
                if self._letters[at] == WAITING:
                    self._consider(at)
                    if self._letters[at] not in UNENDED:
                        following |= dict.fromkeys(self._graph.successors[at])
            left = following
        state = self._changed_state()
        if self._missing:
            return Change(state, missing=tuple(self._missing))
        if not UNENDED.isdisjoint(self._letters):
            return Change(state, tuple(self._starts))
        return self._ended(state)

    def _consider(self, at: int) -> None:
        step = self._graph.steps[at]
        before = [self._letters[each] for each in step.predecessors]
        if self._state.stop:
            self._letters[at] = NOT_RUN
        elif not UNENDED.isdisjoint(before):
            return
        else:
            has_failed = not UNSUCCESSFUL.isdisjoint(before)
            if step.run_if == "always" or has_failed == (step.run_if == "any_failed"):
                self._start(at, step)
            else:
                self._letters[at] = NOT_RUN if has_failed else NOT_NEEDED

    def _start(self, at: int, step: FlowStep) -> None:
        if not step.is_map:
            self._letters[at] = OPEN
            self._starts.append(self._run(at, step, None, None))
            return
        source, problem = self._elements(step)
        if source is None and problem is None:
            return
        if source is None:
            self._letters[at] = FAILED
            self._notes[str(at)] = str(problem)
            self._problem = self._problem or f"step {step.name} failed: {problem}"[:_LONGEST_PROBLEM]
            return
        self._maps[str(at)] = Elements(len(source), len(source))
        self._letters[at] = OPEN if source else SUCCEEDED
        self._starts += [self._run(at, step, index, element) for index, element in enumerate(source)]

    def _elements(self, step: FlowStep) -> tuple[list[Any] | None, str | None]:
        """Return the elements of a map, or why it has none; neither while a result is missing."""
        if step.over is None:
            return from_json(step.elements), None
        if step.over.source == "parameter":
            value = self._parameter(step.over.name)
            of = f"parameter {step.over.name}"
        else:
            at = self._graph.positions[step.over.name]
            ids = step_ids(self._flow.id, self._graph, self._now_state(), at)
            if self._letters[at] in (NOT_RUN, NOT_NEEDED):
                ids = []
            missing = [run_id for run_id in ids if run_id not in self._results]
            if missing:
                self._missing += missing
                return None, None
            try:
                values = [_value(self._results[run_id]) for run_id in ids]
            except ValueError as error:
                return None, f"the result of step {step.over.name} can't be read: {error}"
            is_map = self._graph.steps[at].is_map
            value = values if is_map else values[0] if values else None
            of = f"the result of step {step.over.name}"
        if not isinstance(value, list):
            return None, f"{of} is not a list, but {shown(value)}: a map needs a list"
        if len(value) > MOST_ELEMENTS:
            return None, (
                f"{of} has {len(value):,} elements, a map takes {MOST_ELEMENTS:,} at most: "
                "return chunks of them, or files that contain them"
            )
        return value, None

    def _run(self, at: int, step: FlowStep, index: int | None, element: Any) -> RunRecord:
        round_ = self._state.round(at)
        is_used = step.name in self._graph.uses
        outer = flow_part(self._flow).member
        tick = self._flow.tick if outer is None else outer.tick
        member = Member(self._flow.id, self._state.graph, at, index, round_, is_used, tick, self._state.nonce)
        payload = step.payload
        given = [each for each in step.inputs if each.source == "parameter"]
        # Limits must not take null for the value of an argument that comes later: without the field they do
        # not count the run. One inside another value stays null until then.
        later = [each.path[0] for each in step.inputs if each.source == "result" and len(each.path) == 1]
        if given or later or index is not None:
            arguments = from_json(payload)
            for name in later:
                arguments.pop(name, None)
            for each in given:
                put(arguments, each.path, self._parameter(each.name))
            if index is not None:
                arguments[step.element] = element
            payload = encode(arguments)
        return RunRecord(
            id=step_run_id(self._flow.id, step.name, round_, index, nonce=self._state.nonce),
            tenant=self._flow.tenant,
            task=step.task,
            kind=step.kind,
            payload=payload,
            queue=step.queue,
            priority=step.priority,
            execution=step.execution,
            scheduled_at=self._now,
            run_at=self._now,
            created_at=self._now,
            trace=self._flow.trace,
            flow=part_text(member),
        )

    def _parameter(self, name: str) -> Any:
        if self._parameters is None:
            given = from_json(self._flow.payload) or {}
            self._parameters = from_json(self._graph.defaults) | given
        return self._parameters.get(name)

    def _sentence(self, end: StepEnd) -> str:
        step = self._graph.steps[end.member.step].name
        which = f"step {step}" if end.member.index is None else f"element {end.member.index} of step {step}"
        if end.state == "cancelled":
            return f"{which} was cancelled"
        line = (end.error or "").partition("\n")[0]
        return f"{which} failed: {line}"[:_LONGEST_PROBLEM] if line else f"{which} failed"

    def _old_problem(self) -> str:
        """Return the sentence about a step that failed before another one was run again."""
        for at, step in enumerate(self._graph.steps):
            if (letter := self._letters[at]) in (FAILED, CANCELLED):
                return f"step {step.name} {'failed' if letter == FAILED else 'was cancelled'}"
        return ""

    def _now_state(self) -> FlowState:
        return replace(self._state, maps=self._maps)

    def _changed_state(self) -> FlowState:
        return replace(
            self._state,
            steps="".join(self._letters),
            maps=self._maps,
            notes=self._notes,
            problem=self._problem,
        )

    def _ended(self, state: FlowState) -> Change:
        if state.stop == "cancelled":
            return Change(state, outcome="cancelled")
        if state.stop == "timeout" or not {FAILED, CANCELLED}.isdisjoint(self._letters):
            return Change(replace(state, problem=state.problem or self._old_problem()), outcome="failed")
        name = self._graph.result
        if not name or self._letters[at := self._graph.positions[name]] != SUCCEEDED:
            return Change(state, outcome="succeeded", result="null")
        (run_id,) = step_ids(self._flow.id, self._graph, state, at)
        if run_id not in self._results:
            return Change(state, missing=(run_id,))
        return Change(state, outcome="succeeded", result=self._results[run_id] or "null")
