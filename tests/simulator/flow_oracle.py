"""Checks of flows: after each commit, the steps that must have runs have them, and no others do.

It computes from the description of a flow and the states of the runs in the store what the state of each step
is. It knows nothing of the rules by which nodes decide that.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias
from unittest.mock import patch
from uuid import UUID

from evenbeat.core.instants import Instant
from evenbeat.core.records import ACTIVE_STATES, FINAL_STATES, RunRecord
from evenbeat.node import flow_resuming
from evenbeat.node import flows as node_flows
from evenbeat.rules import flows as rules_flows
from tests.simulator.flow_plans import DEFAULTS, FlowPlan, Ref, StepPlan, resolved
from tests.simulator.violation import Violation

Runs: TypeAlias = Mapping[str, RunRecord]

_ELEMENT = re.compile(r"^(.*)~(\d+)$")
_MISSING = ("does not exist any more", "was deleted, by retention")
_NONCE = re.compile(r"\.[0-9a-f]{12}$")
_LETTERS = {
    "waiting": ".",
    "open": "o",
    "succeeded": "s",
    "failed": "f",
    "cancelled": "c",
    "not_run": "n",
    "not_needed": "u",
}
_UNENDED = ("waiting", "open")
_UNSUCCESSFUL = ("failed", "cancelled", "not_run")


class Place(NamedTuple):
    """The place of a run in a flow, as its id says."""

    flow: str
    step: str
    round: int
    element: int | None


class Again(NamedTuple):
    """What a user runs again: a step, or everything that failed."""

    flow: str
    step: str | None


class Known:
    """What the oracle knows of one run of a flow."""

    def __init__(self, plan: FlowPlan) -> None:
        self.plan = plan
        self.rounds = {step.name: 1 for step in plan.steps}
        self.states: dict[str, str] = {step.name: "waiting" for step in plan.steps}
        self.ids: dict[tuple[str, int], dict[int | None, str]] = {}
        """The ids of the runs of each step and round."""
        self.is_ended = False


def place_of(run_id: str) -> Place | None:
    """Return the place that an id names; None for a run that is not a step."""
    head, _, tail = run_id.rpartition("~")
    if not head:
        return None
    index = None
    if (found := _ELEMENT.match(run_id)) is not None:
        index = int(found[2])
        head, _, tail = found[1].rpartition("~")
    step, _, number = tail.partition("@")
    # A nonce follows the id of a flow that a user has chosen. A flow within a flow has none of its own.
    flow = head if "~" in head else _NONCE.sub("", head)
    return Place(flow, step, int(number or 1), index)


class FlowOracle:
    """Compares the steps of each flow with what they must be."""

    def __init__(self, plans: Mapping[str, FlowPlan]) -> None:
        self._plans = plans
        self._known: dict[str, Known] = {}
        self.again: dict[str, Again] = {}
        """What users run again, by the name of the user's process."""
        self._touched: dict[str, None] = {}
        self._reset: dict[str, str | None] = {}
        """Flows that go on after their end: the step that is run again, or None for what failed."""
        self._ends: dict[str, str] = {}
        """How each flow has ended last."""
        self.ended = 0
        """How many flows have ended."""

    # What has changed, in one commit.

    def added(self, run: RunRecord) -> None:
        """Note a new run."""
        place = place_of(run.id)
        if run.flow is None and place is None:
            return
        if place is None or run.flow is None:
            raise Violation(f"run {run.id} is half a step: {run.flow}", run.id)
        known = self._known.get(place.flow)
        if known is None:
            raise Violation(f"step {run.id} has no flow that runs", run.id)
        step = next((each for each in known.plan.steps if each.name == place.step), None)
        if step is None or (place.element is None) != (step.over is None) or step.task != run.task:
            raise Violation(f"flow {known.plan.name} has no step for run {run.id}", run.id)
        ids = known.ids.setdefault((place.step, place.round), {})
        if place.element in ids:
            raise Violation(f"step {run.id} was added twice", run.id)
        ids[place.element] = run.id
        self._touched[place.flow] = None

    def gone(self, run: RunRecord) -> None:
        """Note that a run was purged: a later flow may have its id."""
        if self._known.pop(run.id, None) is not None:
            self._ends.pop(run.id, None)

    def changed(self, before: RunRecord, run: RunRecord, node: str) -> None:
        """Note that a run has changed."""
        if (place := place_of(run.id)) is not None:
            self._touched[place.flow] = None
            # No user purges a flow that runs, or its steps.
            if run.error is not None and any(words in run.error for words in _MISSING):
                raise Violation(f"{run.id} missed its flow, or a result: {run.error}", run.id)
        if run.task not in self._plans or _state(run) is None:
            return
        self._touched[run.id] = None
        if run.id not in self._known:
            self._known[run.id] = Known(self._plans[run.task])
            return
        if _waits_to_go_on(run):
            return
        if (step := _resumed_step(before)) is not None and run.state == "running":
            # A worker goes on with a flow that a user has resumed.
            names = {at: name for name, at in self._plans[run.task].positions.items()}
            self._reset[run.id] = names.get(step)
            return
        if _resumed_step(run) is not None:
            self._ends[run.id] = run.state  # it was cancelled while it waited
        again = self.again.get(node)
        if again is not None and again.flow == run.id and before.attempt != run.attempt:
            self._reset[run.id] = again.step
        elif before.state in FINAL_STATES and run.state not in FINAL_STATES:
            raise Violation(f"flow {run.id} goes on after its end without a claim", run.id)

    def check(self, runs: Runs, node: str) -> None:
        """Check the flows that the commit has changed, those inside others first."""
        touched, self._touched = self._touched, {}
        resets, self._reset = self._reset, {}
        # Outer ones first: what is reset there decides about those inside.
        for flow in sorted(resets, key=len):
            self._start_again(flow, resets[flow], runs)
        for flow in sorted(touched, key=len, reverse=True):
            if flow in self._known and not _waits_to_go_on(runs[flow]):
                self._check_flow(flow, self._known[flow], runs)

    def _start_again(self, flow: str, step: str | None, runs: Runs) -> None:
        """Compute which steps must run again."""
        known = self._known[flow]
        states = known.states
        if step is not None:
            roots, continued = {step}, set()
        else:
            failed = {name for name, state in states.items() if state in ("failed", "cancelled")}
            roots = {name for name in failed if not self._is_hopeless(known, name, runs)}
            continued = {
                each.name
                for each in known.plan.steps
                if each.name in roots
                and (each.is_flow or each.over is not None)
                and known.ids.get((each.name, known.rounds[each.name]))
            }
        before, rounds = dict(states), dict(known.rounds)
        self._forget(known, known.plan.after(roots) | (roots - continued))
        if not continued and not self._would_start(flow, known, runs):
            # Nothing in a flow within a flow has failed: all of it runs again.
            states |= before
            known.rounds = rounds
            self._forget(known, set(states))
        known.is_ended = False

    def _is_hopeless(self, known: Known, name: str, runs: Runs) -> bool:
        """Return whether all that failed of a step are flows of which no step could start."""
        failed = [
            run_id
            for run_id in known.ids.get((name, known.rounds[name]), {}).values()
            if self._failed_before(run_id, runs)
        ]
        inner = [(run_id, self._known.get(run_id)) for run_id in failed]
        if not inner:
            return False
        return all(each is not None and not self._could_start(run_id, each, runs) for run_id, each in inner)

    def _failed_before(self, run_id: str, runs: Runs) -> bool:
        known = self._known.get(run_id)
        if known is None:
            return runs[run_id].state != "succeeded"
        return self._ends.get(run_id) != "succeeded"

    def _could_start(self, flow: str, known: Known, runs: Runs) -> bool:
        """Return whether a step would start if all of the flow ran again."""
        before = dict(known.states)
        known.states = dict.fromkeys(before, "waiting")
        could = self._would_start(flow, known, runs)
        known.states = before
        return could

    def _forget(self, known: Known, names: set[str]) -> None:
        """Take steps for waiting, with new runs if they had any, and those that did not run, too."""
        for name, state in known.states.items():
            if name in names or state == "not_run":
                known.states[name] = "waiting"
            if name in names and state in ("succeeded", "failed", "cancelled"):
                known.rounds[name] += 1

    def _would_start(self, flow: str, known: Known, runs: Runs) -> bool:
        """Return whether a step is due, whatever the store has."""
        before = dict(known.states)
        for step in known.plan.steps:
            known.states[step.name] = self._unstarted(flow, known, step, "", runs)
        is_due = "due" in known.states.values()
        known.states |= before
        return is_due

    # What must be.

    def _check_flow(self, flow: str, known: Known, runs: Runs) -> None:
        row = runs[flow]
        state = _state(row)
        if state is None:
            raise Violation(f"flow {flow} has forgotten its steps", flow)
        stop = state.get("stop", "")
        for step in known.plan.steps:
            known.states[step.name] = self._state_of(flow, known, step, stop, runs)
            if known.states[step.name] == "due":
                raise Violation(f"step {step.name} of flow {flow} should have started", flow)
        self._check_rounds(flow, known, runs)
        letters = {name: state["steps"][known.plan.positions[name]] for name in known.states}
        wrong = [name for name, each in known.states.items() if letters[name] != _LETTERS[each]]
        if wrong:
            found = next(key for key, letter in _LETTERS.items() if letter == letters[wrong[0]])
            raise Violation(
                f"flow {flow} says that step {wrong[0]} is {found}: it is {known.states[wrong[0]]}", flow
            )
        is_over = not set(_UNENDED).intersection(known.states.values())
        if is_over != (row.state in FINAL_STATES):
            raise Violation(f"flow {flow} is {row.state}, and its steps are {known.states}", flow)
        if is_over and not known.is_ended:
            self._check_end(row, known, stop, runs)
            known.is_ended = True
            self._ends[flow] = row.state
            self.ended += 1

    def _state_of(self, flow: str, known: Known, step: StepPlan, stop: str, runs: Runs) -> str:
        ids = known.ids.get((step.name, known.rounds[step.name]), {})
        if not ids:
            return self._unstarted(flow, known, step, stop, runs)
        present = known.states[step.name]
        if present == "waiting":
            self._check_start(flow, known, step, stop, runs)
        if present in ("not_run", "not_needed"):
            raise Violation(f"step {step.name} of flow {flow} started, though it was {present}", flow)
        states = [runs[run_id].state for run_id in ids.values()]
        if ACTIVE_STATES.intersection(states):
            return "open"
        return next((each for each in ("failed", "cancelled") if each in states), "succeeded")

    def _unstarted(self, flow: str, known: Known, step: StepPlan, stop: str, runs: Runs) -> str:
        """Return the state of a step that has no runs; ``due`` if it must have some."""
        present = known.states[step.name]
        if present not in _UNENDED:
            return present
        if stop:
            return "not_run"
        before = [known.states[name] for name in step.before]
        if {*_UNENDED, "due"}.intersection(before):
            return "waiting"
        has_failed = bool(set(_UNSUCCESSFUL).intersection(before))
        if step.run_if != "always" and has_failed != (step.run_if == "any_failed"):
            return "not_run" if has_failed else "not_needed"
        elements = None if step.over is None else self._elements(flow, known, step, runs)
        if step.over is None or elements:
            return "due"
        return "succeeded" if elements == [] else "failed"

    def _check_start(self, flow: str, known: Known, step: StepPlan, stop: str, runs: Runs) -> None:
        if stop:
            raise Violation(f"step {step.name} of flow {flow} started after it was {stop}", flow)
        if self._unstarted(flow, known, step, stop, runs) != "due":
            before = {name: known.states[name] for name in step.before}
            raise Violation(f"step {step.name} of flow {flow} started with {before}", flow)
        if step.over is not None:
            elements = self._elements(flow, known, step, runs) or []
            ids = known.ids[step.name, known.rounds[step.name]]
            if ids.keys() != set(range(len(elements))):
                raise Violation(
                    f"step {step.name} of flow {flow} has {len(ids)} runs for {len(elements)} elements", flow
                )

    def _check_rounds(self, flow: str, known: Known, runs: Runs) -> None:
        """Check that no run of an earlier round is active, and none of a later one exists."""
        for (name, number), ids in known.ids.items():
            if number > known.rounds[name]:
                raise Violation(f"step {name} of flow {flow} has round {number} without a reason", flow)
            if number < known.rounds[name]:
                for run_id in ids.values():
                    if runs[run_id].state in ACTIVE_STATES:
                        raise Violation(f"{run_id} is active, and its step was started anew", flow)

    def _check_end(self, row: RunRecord, known: Known, stop: str, runs: Runs) -> None:
        states = known.states.values()
        if stop == "cancelled":
            outcome = "cancelled"
        else:
            outcome = "failed" if stop or {"failed", "cancelled"}.intersection(states) else "succeeded"
        if row.state != outcome:
            raise Violation(f"flow {row.id} is {row.state} instead of {outcome}: {known.states}", row.id)
        if outcome == "succeeded":
            name = known.plan.result
            result = None if name is None else self._result(row.id, known, name, runs)
            if json.loads(row.result or "null") != result:
                raise Violation(f"flow {row.id} returned {row.result} instead of {result}", row.id)

    # Values.

    def _parameter(self, flow: str, name: str, runs: Runs) -> Any:
        place = place_of(flow)
        given = json.loads(runs[flow].payload) if place is None else self._arguments(place, runs)
        return (DEFAULTS | (given or {}))[name]

    def _arguments(self, place: Place, runs: Runs) -> dict[str, Any]:
        """Return what a step must get."""
        known = self._known[place.flow]
        step = next(each for each in known.plan.steps if each.name == place.step)
        given: dict[str, Any] = resolved(
            step.arguments, lambda ref: self._value(place.flow, known, ref, runs)
        )
        if place.element is not None:
            elements = self._elements(place.flow, known, step, runs)
            given[step.element] = None if elements is None else elements[place.element]
        return given

    def _result(self, flow: str, known: Known, name: str, runs: Runs) -> Any:
        """Return the result of a step: None if it has none, a list for a map."""
        step = next(each for each in known.plan.steps if each.name == name)
        ids = known.ids.get((name, known.rounds[name]), {})
        ran = known.states[name] in ("succeeded", "failed", "cancelled")
        values = {index: _result_of(runs[run_id]) for index, run_id in ids.items()}
        if step.over is None:
            return values.get(None)
        return [values[index] for index in sorted(values, key=lambda at: at or 0)] if ran else []

    def _value(self, flow: str, known: Known, ref: Ref, runs: Runs) -> Any:
        if ref.source == "parameter":
            return self._parameter(flow, ref.name, runs)
        return self._result(flow, known, ref.name, runs)

    def _elements(self, flow: str, known: Known, step: StepPlan, runs: Runs) -> list[Any] | None:
        """Return the elements of a map; None if what it maps over is not a list."""
        if isinstance(step.over, tuple) and not isinstance(step.over, Ref):
            return list(step.over)
        assert isinstance(step.over, Ref)
        found = self._value(flow, known, step.over, runs)
        return found if isinstance(found, list) else None

    # Executions.

    def execute(self, run: RunRecord, runs: Runs) -> None:
        """Check the arguments of an attempt that begins."""
        place = place_of(run.id)
        present = runs.get(run.id)
        if place is None or present is None:
            return
        if (present.state, present.attempt, present.claim) != ("running", run.attempt, run.claim):
            return  # its worker has lost it
        expected = self._arguments(place, runs)
        if json.loads(run.payload) != expected:
            raise Violation(f"{run.id} got {run.payload} instead of {json.dumps(expected)}", run.id)

    def next_check(self, run: RunRecord) -> Instant | None:
        """Return when a run goes on by itself at the latest; None for a flow, whose steps do."""
        known = self._known.get(run.id)
        if known is None or "open" not in known.states.values():
            return run.lease_until or run.run_at
        return None


def _state(run: RunRecord) -> dict[str, Any] | None:
    """Return the state of a flow that has begun."""
    found: dict[str, Any] | None = json.loads(run.flow or "{}").get("state")
    return found


def _resumed_step(run: RunRecord) -> int | None:
    """Return what a user wants to run again in a flow that has ended; -1 for what failed."""
    found: int | None = (_state(run) or {}).get("resume")
    return found


def _waits_to_go_on(run: RunRecord) -> bool:
    """Return whether a flow that a user has resumed waits for a worker."""
    return run.state in ACTIVE_STATES and _resumed_step(run) is not None


def _result_of(run: RunRecord) -> Any:
    return json.loads(run.result or "null") if run.state == "succeeded" else None


class _Alarm(logging.Handler):
    """Fails the simulation if a node finds a flow that stands still."""

    def emit(self, record: logging.LogRecord) -> None:
        if "stood still" in record.getMessage():
            raise Violation(
                "a flow stood still, and the safety net found it", getattr(record, "job_id", None)
            )


@contextmanager
def watched_flows(check_every: int) -> Iterator[None]:
    """Watch the safety net, which looks at flows after ``check_every`` ms without a change. Tokens of flows
    are numbers: a seed replays to the letter."""
    numbers = itertools.count()
    log = logging.getLogger("evenbeat.node.flow_checks")
    level, alarm = log.level, _Alarm()
    log.addHandler(alarm)
    log.setLevel(logging.ERROR)
    try:
        with (
            patch.object(node_flows, "uuid4", lambda: UUID(int=next(numbers))),
            patch.object(flow_resuming, "uuid4", lambda: UUID(int=next(numbers))),
            patch.object(rules_flows, "CHECK_EVERY", check_every),
        ):
            yield
    finally:
        log.removeHandler(alarm)
        log.setLevel(level)
