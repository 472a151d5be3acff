"""Random flows: the graphs that nodes run, and a description of each that the oracle reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from evenbeat.core.flow_graphs import RunIf
from evenbeat.core.records import Execution, RunRecord
from evenbeat.tasks.flow import Flow
from evenbeat.tasks.flow_builder import Step
from evenbeat.tasks.task import Task, Tasks

OUTER = ("flow-0", "flow-1", "flow-2")
"""The flows that users start."""
INNER = ("inner-0", "inner-1")
"""The flows that are steps of others."""
LISTING = "listing"
"""The task that returns a list."""
STEP_TASKS = {
    "value": Execution(max_crashes=5),
    "flaky": Execution(max_crashes=5, retries=2, backoff=500),
    "brief": Execution(max_crashes=5, retries=1, timeout=2_000),
    "unsafe": Execution(on_crash="fail"),
    LISTING: Execution(max_crashes=5, retries=1),
}
DEFAULTS: dict[str, Any] = {"word": "default", "items": ["p", "q"]}
"""The parameters of every flow."""


class Ref(NamedTuple):
    """A value that is known when the flow runs."""

    source: Literal["parameter", "result"]
    name: str


Over: TypeAlias = "Ref | tuple[str, ...] | None"


class StepPlan(NamedTuple):
    """A step as the oracle knows it."""

    name: str
    task: str
    before: tuple[str, ...]
    """All steps that it waits for."""
    run_if: RunIf
    arguments: dict[str, Any]
    """May contain ``Ref``."""
    over: Over = None
    """Of a map: its elements."""

    @property
    def is_flow(self) -> bool:
        return self.task in INNER

    @property
    def element(self) -> str:
        """The argument that gets the element of a map."""
        return "word" if self.is_flow else "x"


class FlowPlan(NamedTuple):
    """A flow as the oracle knows it."""

    name: str
    steps: tuple[StepPlan, ...]
    result: str | None
    positions: dict[str, int]
    """Where the product keeps the state of each step."""

    def after(self, names: set[str]) -> set[str]:
        """Return the steps that come after some of these."""
        found: set[str] = set()
        for step in self.steps:
            if (names | found).intersection(step.before):
                found.add(step.name)
        return found


class Catalogue(NamedTuple):
    """The flows of a seed."""

    tasks: tuple[Task[..., Any], ...] = ()
    plans: Mapping[str, FlowPlan] = MappingProxyType({})

    def registry(self) -> Tasks:
        """Return the tasks and flows, as one node registers them."""
        found = Tasks()
        for task in self.tasks:
            found.add(task)
        return found


def random_catalogue(random: Random) -> Catalogue:
    """Choose the flows of a seed."""
    tasks: dict[str, Task[..., Any]] = {
        name: Task(_function, name, execution=execution) for name, execution in STEP_TASKS.items()
    }
    plans: dict[str, FlowPlan] = {}
    for name in (*INNER, *OUTER):
        known = [] if name == INNER[0] else [each for each in INNER if each in plans]
        timeout = random.choice((None, None, 4_000, 20_000))
        flow: Flow[..., Any] = Flow(_described, name, execution=Execution(max_crashes=5, timeout=timeout))
        flow.begin_description()
        plans[name] = _describe(random, flow, tasks, known)
        tasks[name] = flow
    return Catalogue((*tasks.values(),), plans)


def random_arguments(random: Random, token: str) -> dict[str, Any]:
    """Choose the payload of a flow that a user or a schedule starts."""
    given: dict[str, Any] = {}
    if random.random() < 0.6:
        given["word"] = token
    if random.random() < 0.6:
        given["items"] = [f"{token}.{number}" for number in range(random.randint(0, 3))]
    return given


def random_result(random: Random, run: RunRecord) -> str:
    """Return what an attempt of a step returns: no two attempts return the same."""
    value = f"{run.id}#{run.attempt}"
    if run.task == LISTING and random.random() < 0.9:
        return json.dumps([f"{value}.{number}" for number in range(random.choice((0, 1, 2, 2, 3)))])
    return json.dumps(value)


def _function(x: Any = None, y: Any = None, z: Any = None) -> Any:
    """Stands for the functions of all tasks: the simulated executor does not call it."""


def _described(word: Any = DEFAULTS["word"], items: Any = DEFAULTS["items"]) -> None:
    """Stands for the functions of all flows: their steps are added without it."""


def _describe(
    random: Random, flow: Flow[..., Any], tasks: dict[str, Task[..., Any]], inner: list[str]
) -> FlowPlan:
    steps: list[StepPlan] = []
    made: dict[str, Step] = {}
    shape = random.choice(("any", "any", "chain", "wide"))
    for number in range(random.randint(1, 3) if flow.name in INNER else random.randint(2, 6)):
        plan = _step(random, f"s{number}", steps, inner, shape)
        steps.append(plan)
        made[plan.name] = flow.add_step(
            plan.name,
            tasks[plan.task],
            after=[made[each] for each in plan.before],
            payload={key: _referring(value, flow, made) for key, value in plan.arguments.items()},
            run_if=plan.run_if,
            map_over=_referring(plan.over, flow, made),
        )
    single = [step.name for step in steps if step.over is None]
    result = random.choice(single) if single and random.random() < 0.7 else None
    if result is not None:
        flow.set_result(made[result])
    return FlowPlan(flow.name, tuple(steps), result, flow.graph.positions)


def _step(random: Random, name: str, steps: list[StepPlan], inner: list[str], shape: str) -> StepPlan:
    names = [step.name for step in steps]
    count = {"chain": 1, "wide": random.choice((0, 1, 5))}.get(shape, random.randint(0, 3))
    before = names[-1:] if shape == "chain" else random.sample(names, min(count, len(names)))
    task = random.choice(("value", "flaky", "brief", "unsafe", LISTING, LISTING))
    if inner and random.random() < 0.25:
        task = random.choice(inner)
    run_if: RunIf = "all_succeeded"
    if before and random.random() < 0.3:
        run_if = random.choice(("any_failed", "always"))
    over: Over = None
    if random.random() < 0.35:
        over = _elements(random, before, steps)
        if isinstance(over, Ref) and over.source == "result" and over.name not in before:
            before.append(over.name)
    arguments: dict[str, Any] = {}
    # The first argument gets the element of a map.
    for key in ("items",) if task in INNER else ("y", "z"):
        chance = random.random()
        lists = [step.name for step in steps if step.name in before and _is_list(step)]
        if key == "items":
            arguments[key] = Ref("result", lists[0]) if lists else ["c", "d"]
        elif chance < 0.5 and before:
            arguments[key] = Ref("result", random.choice(before))
        elif chance < 0.65 and before:
            arguments[key] = {"of": [Ref("result", random.choice(before)), Ref("parameter", "word"), 1]}
        elif chance < 0.8:
            arguments[key] = Ref("parameter", random.choice(("word", "items")))
        else:
            arguments[key] = f"constant {name}"
    return StepPlan(name, task, tuple(before), run_if, arguments, over)


def _elements(random: Random, before: list[str], steps: list[StepPlan]) -> Over:
    lists = [step.name for step in steps if _is_list(step)]
    chance = random.random()
    if lists and chance < 0.6:
        return Ref("result", random.choice(lists))
    if before and chance < 0.65:
        return Ref("result", random.choice(before))  # mostly not a list: the map fails
    if chance < 0.85:
        return Ref("parameter", "items")
    return tuple(f"e{number}" for number in range(random.randint(0, 3)))


def _is_list(step: StepPlan) -> bool:
    return step.task == LISTING or step.over is not None


def _referring(value: Any, flow: Flow[..., Any], made: dict[str, Step]) -> Any:
    """Return the value with the product's references."""
    match value:
        case Ref("parameter", name):
            return flow.parameter(name)
        case Ref(_, name):
            return made[name]
        case dict():
            return {key: _referring(each, flow, made) for key, each in value.items()}
        case list():
            return [_referring(each, flow, made) for each in value]
        case _:
            return value


def resolved(value: Any, known: Callable[[Ref], Any]) -> Any:
    """Return the value with ``known(ref)`` for each reference."""
    match value:
        case Ref():
            return known(value)
        case dict():
            return {key: resolved(each, known) for key, each in value.items()}
        case list():
            return [resolved(each, known) for each in value]
        case _:
            return value
