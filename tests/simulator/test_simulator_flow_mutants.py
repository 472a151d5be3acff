"""Stores and rules of flows that are broken on purpose: the simulator finds each of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from msgspec import UNSET
from msgspec.structs import replace

from evenbeat.core.flow_graphs import FlowGraph
from evenbeat.core.records import RunRecord, Transition
from evenbeat.node import flow_arguments, flow_rows, worker
from evenbeat.node.flow_arguments import FlowArguments
from evenbeat.node.flow_resuming import FlowResuming
from evenbeat.node.flows import FlowSettling
from evenbeat.rules import flows, limits
from evenbeat.rules.limits import Limit
from evenbeat.stores.decisions import parts
from tests.lengths import LONG
from tests.simulator import MemoryBackend, SimulationFailed, WatchedMemory, limit_oracle, simulate
from tests.simulator.simulation import DEFAULT, with_flows, with_reuse

# Each is caught by one of the first 31 seeds, most by the first; this leaves room for changes of the
# simulator.
MOST_SEEDS = 150


class IgnoresTheFlowsAttempt(WatchedMemory):
    """Counts joins without comparing: a node writes the flow as it was before the other node's end."""

    def _settle(self, transition: Transition) -> bool:
        flow = self._runs.get(transition.run)
        if transition.ends and flow is not None:
            transition = replace(transition, attempt=flow.attempt, claim=flow.claim)
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


@pytest.fixture(autouse=True)
def no_known_limits() -> Iterator[None]:
    """Forget limits: they remember what they count, by rules that a mutant replaces."""
    limits._read_limits.cache_clear()
    yield
    limits._read_limits.cache_clear()


def counts_flows_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let flows under way take slots of limits that their steps need."""
    concerns = Limit.concerns

    def counted(self: Limit, queue: str, tenant: str, task: str, *, is_flow: bool = False) -> bool:
        return concerns(self, queue, tenant, task)

    monkeypatch.setattr(Limit, "concerns", counted)


def believes_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count a flow as what its row says it is, though it has begun as a flow."""
    monkeypatch.setattr(flows, "_corrected_kind", lambda _: UNSET)


def forgets_keys_that_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Execute a step though limits have counted it without the argument that is their key."""
    monkeypatch.setattr(worker, "with_keys", lambda *_: None)


def resumes_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a flow that a user resumes go on at once, though others hold the slots of its limit."""

    def at_once(self: Any, flow: RunRecord, step: int | None, now: int, *, extra: Any = ()) -> Any:
        return self.resume(flow, step, now)

    monkeypatch.setattr(FlowResuming, "queue", at_once)


LIMITS: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    counts_flows_that_wait,
    believes_the_row,
    forgets_keys_that_come_later,
    resumes_without_asking,
)


class IgnoresTheClaim(WatchedMemory):
    """Applies a transition of an earlier run of the same id."""

    def _settle(self, transition: Transition) -> bool:
        return super()._settle(self._of_present(transition))

    def _of_present(self, transition: Transition) -> Transition:
        run = self._runs.get(transition.run)
        ends = tuple(self._of_present(end) for end in transition.ends)
        return replace(transition, ends=ends, claim=None if run is None else run.claim)


def gives_ids_of_steps_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the steps of two flows of one id the same ids: what is remembered of the first is taken for the
    second."""
    monkeypatch.setattr(flows, "new_nonce", lambda _: "")


def remembers_by_id_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a step the arguments that an earlier flow of the same id names."""
    monkeypatch.setattr(flow_arguments, "belongs_to", lambda *_: True)
    monkeypatch.setattr(flow_arguments, "are_of_one_flow", lambda *_: True)
    monkeypatch.setattr(flow_rows, "belongs_to", lambda *_: True)


REUSING_STORES: tuple[type[WatchedMemory], ...] = (IgnoresTheClaim,)
REUSING_RULES: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    gives_ids_of_steps_again,
    remembers_by_id_alone,
)

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
    slow = (ForgetsArguments, IgnoresTheClaim, resumes_the_failed_alone, trusts_its_memory)
    return [pytest.param(each, id=each.__name__, marks=LONG if each in slow else ()) for each in mutants]


def first_caught(
    store: type[WatchedMemory] = WatchedMemory,
    most: int = MOST_SEEDS,
    *,
    limits: bool = False,
    reuse: bool = False,
) -> SimulationFailed | None:
    """Return the first failure."""
    for seed in range(most):
        options = (with_reuse if reuse else with_flows)(DEFAULT, seed)._replace(limits=limits)
        try:
            simulate(seed, partial(MemoryBackend, kind=store), options)
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


@pytest.mark.parametrize("mutant", lengthy(REUSING_STORES))
def test_a_store_that_takes_a_run_for_a_later_one_of_its_id_is_caught(mutant: type[WatchedMemory]) -> None:
    assert first_caught(mutant, reuse=True) is not None


@pytest.mark.parametrize("mutant", lengthy(REUSING_RULES))
def test_rules_that_take_a_flow_for_a_later_one_of_its_id_are_caught(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    assert first_caught(reuse=True) is not None


@pytest.mark.parametrize("mutant", lengthy(RULES))
def test_rules_that_break_flows_are_caught(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    assert first_caught() is not None


@pytest.mark.parametrize("mutant", LIMITS)
def test_limits_that_count_flows_or_steps_wrongly_are_caught(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    assert first_caught(limits=True) is not None


def test_a_standstill_is_caught_without_knowing_which_runs_a_limit_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts_flows_that_wait(monkeypatch)
    monkeypatch.setattr(limit_oracle, "waits", lambda _: False)
    failure = first_caught(limits=True)
    assert failure is not None
    assert "do not come to an end" in failure.what
