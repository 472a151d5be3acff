"""Stores and rules of flows that are broken on purpose: the simulator finds each of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from msgspec import UNSET
from msgspec.structs import replace

from evenbeat.core.flow_graphs import FlowGraph
from evenbeat.core.records import RunRecord, Transition
from evenbeat.node.flow_arguments import FlowArguments
from evenbeat.node.flows import FlowSettling
from evenbeat.rules import flows
from evenbeat.stores.decisions import parts
from tests.lengths import LONG
from tests.simulator import MemoryBackend, SimulationFailed, WatchedMemory, simulate
from tests.simulator.simulation import DEFAULT, with_flows

# Each is caught by one of the first 31 seeds, most by the first; this leaves room for changes of the
# simulator.
MOST_SEEDS = 150


class IgnoresTheFlowsAttempt(WatchedMemory):
    """Counts joins without comparing: a node writes the flow as it was before the other node's end."""

    def _settle(self, transition: Transition) -> bool:
        flow = self._runs.get(transition.run)
        if transition.ends and flow is not None:
            transition = replace(transition, attempt=flow.attempt)
        return super()._settle(transition)


class AppliesWhatItCan(WatchedMemory):
    """Changes the flow, though one of the ends was refused."""

    def _settle(self, transition: Transition) -> bool:
        applied = [self._verdict(part) == "apply" and self._applied(part) for part in parts(transition)]
        return applied[-1] or super()._settle(transition)

    def _applied(self, part: Transition) -> bool:
        self._change(part)
        return True


class AddsSuccessorsFirst(WatchedMemory):
    """Adds the runs of the next steps, and then ends the step."""

    def _settle(self, transition: Transition) -> bool:
        if transition.ends and transition.adds:
            for run in transition.adds:
                self._add(run)
            self.step("  settle_runs/added")
        return super()._settle(transition)


class AddsSuccessorsLater(WatchedMemory):
    """Ends the step, and then adds the runs of the next ones: a crash in between loses them."""

    def _settle(self, transition: Transition) -> bool:
        if not transition.ends or not transition.adds:
            return super()._settle(transition)
        is_accepted = super()._settle(replace(transition, adds=()))
        self.step("  settle_runs/settled")
        for run in transition.adds if is_accepted else ():
            self._add(run)
        return is_accepted


class EndsStepsFirst(WatchedMemory):
    """Ends the steps, and then changes their flow: a crash in between leaves it standing still."""

    def _settle(self, transition: Transition) -> bool:
        if not transition.ends:
            return super()._settle(transition)
        ended = [super(EndsStepsFirst, self)._settle(end) for end in transition.ends]
        if not all(ended):
            return False
        self.step("  settle_runs/ended")
        return super()._settle(replace(transition, ends=()))


class ChangesFlowsFirst(WatchedMemory):
    """The other way round: the flow goes on, and the steps may not have ended."""

    def _settle(self, transition: Transition) -> bool:
        if not transition.ends:
            return super()._settle(transition)
        if not super()._settle(replace(transition, ends=())):
            return False
        self.step("  settle_runs/changed")
        ended = [super(ChangesFlowsFirst, self)._settle(end) for end in transition.ends]
        return all(ended)


class CountsRepetitions(WatchedMemory):
    """Changes the flow again if the ends of its steps are repeated."""

    def _settle(self, transition: Transition) -> bool:
        if not transition.ends or all(self._verdict(part) != "repeat" for part in parts(transition)):
            return super()._settle(transition)
        return super()._settle(replace(transition, ends=()))


class ForgetsStarts(WatchedMemory):
    """Adds all but the last of the runs that a change starts."""

    def _settle(self, transition: Transition) -> bool:
        return super()._settle(replace(transition, adds=transition.adds[:3]))


class ForgetsArguments(WatchedMemory):
    """Begins a flow within a flow, and forgets the results among its arguments."""

    def _settle(self, transition: Transition) -> bool:
        return super()._settle(replace(transition, payload=UNSET))


STORES: tuple[type[WatchedMemory], ...] = (
    IgnoresTheFlowsAttempt,
    AppliesWhatItCan,
    AddsSuccessorsFirst,
    AddsSuccessorsLater,
    EndsStepsFirst,
    ChangesFlowsFirst,
    ForgetsStarts,
    ForgetsArguments,
)


def expands_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each element a new id whenever its map is expanded."""
    numbers = itertools.count(100)
    run_of = flows._Progress._run

    def renamed(self: Any, at: int, step: Any, index: int | None, element: Any) -> RunRecord:
        made = run_of(self, at, step, index, element)
        return made if index is None else replace(made, id=made.id.rpartition("~")[0] + f"~{next(numbers)}")

    monkeypatch.setattr(flows._Progress, "_run", renamed)


def expands_the_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the elements of a map that has none."""
    start = flows._Progress._start

    def opened(self: Any, at: int, step: Any) -> None:
        start(self, at, step)
        if step.is_map and self._letters[at] == "s":
            self._letters[at] = "o"

    monkeypatch.setattr(flows._Progress, "_start", opened)


def resumes_the_failed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resume a flow, and forget what came after the steps that failed."""
    monkeypatch.setattr(FlowGraph, "after", lambda *_: set())


def stops_in_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop a flow, and let the steps start that wait."""
    consider = flows._Progress._consider

    def heedless(self: Any, at: int) -> None:
        state, self._state = self._state, replace(self._state, stop="")
        consider(self, at)
        self._state = state

    monkeypatch.setattr(flows._Progress, "_consider", heedless)


def starts_by_one_predecessor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a join when the first of its predecessors has ended."""
    consider = flows._Progress._consider

    def hasty(self: Any, at: int) -> None:
        graph, steps = self._graph, list(self._graph.steps)
        ended = tuple(each for each in steps[at].predecessors if self._letters[each] not in ".o")
        if ended:
            steps[at] = replace(steps[at], predecessors=ended)
            self._graph = replace(graph, steps=tuple(steps))
        consider(self, at)
        self._graph = graph

    monkeypatch.setattr(flows._Progress, "_consider", hasty)


def fails_without_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a step that is not needed for one that failed."""
    monkeypatch.setattr(flows, "UNSUCCESSFUL", frozenset("fcnu"))


def trusts_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give steps the arguments that a remembered flow names, whatever has happened since."""
    ended_before = FlowArguments._ended_before

    def remembered(self: Any, runs: Any) -> dict[str, RunRecord]:
        found = ended_before(self, runs)
        known = self._rows._flows
        return found | {key: known[key] for key in found if key in known}

    monkeypatch.setattr(FlowArguments, "_ended_before", remembered)


RULES: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    expands_anew,
    expands_the_empty,
    resumes_the_failed_alone,
    stops_in_name_alone,
    starts_by_one_predecessor,
    fails_without_reason,
    trusts_its_memory,
)


def lengthy(mutants: Sequence[Callable[..., Any]]) -> list[ParameterSet]:
    """Return mutants as parameters. Those that take more than a seed or two are long."""
    slow = (ForgetsArguments, resumes_the_failed_alone, trusts_its_memory)
    return [pytest.param(each, id=each.__name__, marks=LONG if each in slow else ()) for each in mutants]


def first_caught(
    store: type[WatchedMemory] = WatchedMemory, most: int = MOST_SEEDS
) -> SimulationFailed | None:
    """Return the first failure."""
    for seed in range(most):
        try:
            simulate(seed, partial(MemoryBackend, kind=store), with_flows(DEFAULT, seed))
        except SimulationFailed as failure:
            return failure
    return None


@pytest.mark.parametrize("mutant", lengthy(STORES))
def test_a_store_that_breaks_flows_is_caught(mutant: type[WatchedMemory]) -> None:
    assert first_caught(mutant) is not None


@LONG
def test_nodes_that_repeat_an_end_blindly_are_caught_on_a_store_that_counts_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FlowSettling, "_doubt", lambda *_: None)
    assert first_caught(CountsRepetitions) is not None


@pytest.mark.parametrize("mutant", lengthy(RULES))
def test_rules_that_break_flows_are_caught(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    assert first_caught() is not None
