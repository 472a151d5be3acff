"""Describes the steps of a flow: references to values that are not known yet, and the graph made of them.

Inside the function of a flow, ``task.step(…)`` and ``task.map(…)`` add steps and return references.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from msgspec.structs import replace

from evenbeat.core.checks import check_one_of
from evenbeat.core.flow_graphs import (
    LONGEST_STEP,
    MOST_ELEMENTS,
    MOST_STEPS,
    STEP_PATTERN,
    FlowGraph,
    FlowStep,
    Input,
    RunIf,
)
from evenbeat.core.json_text import to_json
from evenbeat.errors import InvalidValue, shown

if TYPE_CHECKING:
    from evenbeat.tasks.task import Task

_STEP = re.compile(STEP_PATTERN)


class Reference:
    """A value of a flow that is not known while the flow is described: a parameter, or a step's result."""

    __slots__ = ("owner", "source")

    def __init__(self, owner: FlowBuilder, source: Input) -> None:
        self.owner = owner
        self.source = source

    def _refuse(self, *_: object) -> NoReturn:
        what = "the result of step" if self.source.source == "result" else "parameter"
        raise InvalidValue(
            f"{what} {self.source.name} is not known while flow {self.owner.name} is described",
            field="flow",
            value=self.source.name,
            hint="give it to a step as an argument, and compute with it there; task.map(…) makes a run for "
            "each element of a list",
        )

    __bool__ = __iter__ = __len__ = __getitem__ = __contains__ = __int__ = __float__ = __index__ = _refuse
    __rshift__ = __lshift__ = __or__ = __ror__ = __and__ = __mod__ = __fspath__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __lt__ = __gt__ = __le__ = __ge__ = _refuse
    __str__ = __format__ = __call__ = _refuse
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        # Another reference may be searched for in a list. Compared with a value, it would always differ.
        return self is other if isinstance(other, Reference) else self._refuse()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)  # Python and libraries ask for these
        self._refuse()

    def __repr__(self) -> str:
        return f"<{self.source.source} {self.source.name} of flow {self.owner.name}>"


class Step(Reference):
    """A step of a flow while it is described: stands for its result, and for itself in ``after=[…]``."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name of the step."""
        return self.source.name


class FlowBuilder:
    """Collects the steps of a flow while it is described."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._steps: dict[str, FlowStep] = {}
        self._before: dict[str, tuple[str, ...]] = {}
        """The names of each step's predecessors."""
        self.nested: dict[str, FlowGraph] = {}
        """The graphs of the flows that are steps, by key."""

    def add(
        self,
        task: Task[..., Any],
        arguments: Mapping[str, Any],
        *,
        name: str | None,
        after: Iterable[Step | str],
        run_if: RunIf,
        over: Any = None,
        element: str = "",
    ) -> Step:
        """Add a step; ``over`` is the list of a map, whose elements the argument ``element`` gets."""
        name = task.name if name is None else name
        self._check_new(name, task)
        check_one_of("run_if", run_if, get_args(RunIf))
        inputs: list[Input] = []
        payload = {key: self._plain(value, (key,), inputs) for key, value in arguments.items()}
        taken = {each.path[0] for each in inputs}
        text = task.write_constants(
            {key: value for key, value in payload.items() if key not in taken},
            {key: value for key, value in payload.items() if key in taken},
        )
        source, elements = self._elements(over, element, name)
        before = [each.name for each in inputs if each.source == "result"]
        before += [source.name] if source is not None and source.source == "result" else []
        before += [self._name_of(each, name) for each in _listed(after, name)]
        if not before and run_if != "all_succeeded":
            # It comes after everything that was described before it.
            before = list(self._steps)
        graph = task.graph
        if graph is not None:
            self.nested |= {graph.key: graph, **task.nested}
        self._steps[name] = FlowStep(
            name=name,
            task=task.name,
            kind=task.kind,
            payload=text,
            inputs=tuple(inputs),
            run_if=run_if,
            element=element,
            over=source,
            elements=elements,
            queue=task.queue,
            priority=task.priority,
            execution=task.execution,
            graph="" if graph is None else graph.key,
        )
        self._before[name] = tuple(dict.fromkeys(before))
        return Step(self, Input((), "result", name))

    def graph(self, defaults: Mapping[str, Any], result: object) -> FlowGraph:
        """Return the graph, with each step after its predecessors."""
        if not self._steps:
            raise self._wrong("has no steps", hint="call task.step(…) in its function")
        order = self._ordered()
        positions = {name: at for at, name in enumerate(order)}
        steps: list[FlowStep] = []
        for name in order:
            step, before = self._steps[name], self._before[name]
            if not before and step.run_if == "any_failed":
                raise self._wrong(
                    f"has step {name}, which can never run: no step comes before it that could fail",
                    hint="describe it after the others, or name them: after=[…]",
                )
            predecessors = tuple(sorted(positions[each] for each in before))
            steps.append(replace(step, predecessors=predecessors))
        return FlowGraph(
            name=self.name,
            steps=tuple(steps),
            defaults=to_json(dict(defaults), "default"),
            result=self._result(result),
        )

    def _ordered(self) -> list[str]:
        """Return the steps, each after its predecessors; otherwise as they were described."""
        for name, before in self._before.items():
            unknown = [each for each in before if each not in self._steps]
            if unknown:
                raise self._wrong(f"has step {name} after {shown(unknown[0])}, which is not a step of it")
        described = {name: at for at, name in enumerate(self._steps)}
        after: dict[str, list[str]] = {name: [] for name in self._steps}
        open_ = {name: len(before) for name, before in self._before.items()}
        for name, before in self._before.items():
            for each in before:
                after[each].append(name)
        order: list[str] = []
        ready = [name for name in self._steps if not open_[name]]
        # Layer by layer. A chain of 10,000 takes 80 ms; looking for the steps whose predecessors are all in
        # order took 49 s (noisy machine).
        while ready:
            order += ready
            following: list[str] = []
            for name in ready:
                for each in after[name]:
                    open_[each] -= 1
                    if not open_[each]:
                        following.append(each)
            ready = sorted(following, key=described.__getitem__)
        if len(order) < len(self._steps):
            circle = " after ".join(self._circle([name for name, count in open_.items() if count]))
            raise self._wrong(f"has steps that wait for each other: {circle}")
        return order

    def _circle(self, left: list[str]) -> list[str]:
        """Return steps that wait for each other, the first one again at the end."""
        path = [left[0]]
        while True:
            following = next(each for each in self._before[path[-1]] if each in left)
            if following in path:
                return [*path[path.index(following) :], following]
            path.append(following)

    def _result(self, result: object) -> str:
        if result is None:
            return ""
        if not isinstance(result, Step) or result.owner is not self:
            raise self._wrong(
                f"returns {shown(result)}, which is not a step of it", hint="return a step, or nothing"
            )
        if self._steps[result.name].is_map:
            raise self._wrong(
                f"returns the map {result.name}, whose result is one of each element",
                hint="collect them in a step, and return that one",
            )
        return result.name

    def _check_new(self, name: str, task: Task[..., Any]) -> None:
        if _STEP.fullmatch(str(name)) is None:
            raise self._wrong(
                f"has a step named {shown(name)}, which is not 1 to {LONGEST_STEP} letters, digits, _, -, . "
                "or :",
                hint=f"name it: {task.name}.step(…, step_name=…)",
            )
        if name in self._steps:
            raise self._wrong(
                f"has two steps named {name}", hint=f"name one of them: {task.name}.step(…, step_name=…)"
            )
        if task.unique is not None:
            raise self._wrong(
                f"has step {name} of task {task.name}, which is unique: another run could have its key",
                hint="make a task without unique=… for the flow",
            )
        if len(self._steps) >= MOST_STEPS:
            raise self._wrong(f"has more than {MOST_STEPS:,} steps", hint="use task.map(…), or flows in it")

    def _plain(self, value: Any, path: tuple[str | int, ...], inputs: list[Input]) -> Any:
        """Return a value with None instead of references, which are added to ``inputs``."""
        if isinstance(value, Reference):
            self._check_own(value)
            inputs.append(Input(path, value.source.source, value.source.name))
            return None
        if isinstance(value, dict) and any(_has_reference(each) for each in value.values()):
            return {key: self._plain(each, (*path, key), inputs) for key, each in value.items()}
        if isinstance(value, (list, tuple)) and any(_has_reference(each) for each in value):
            return [self._plain(each, (*path, at), inputs) for at, each in enumerate(value)]
        return value

    def _elements(self, over: Any, element: str, name: str) -> tuple[Input | None, str]:
        if not element:
            return None, ""
        if isinstance(over, Reference):
            self._check_own(over)
            return over.source, ""
        if isinstance(over, (str, bytes, Mapping)) or not isinstance(over, Iterable):
            raise self._wrong(
                f"has map {name} over {shown(over)}, which is not a list",
                hint="give a list, a parameter of the flow, or a step",
            )
        values = list(over)
        if len(values) > MOST_ELEMENTS:
            raise self._wrong(f"has map {name} over {len(values):,} elements, {MOST_ELEMENTS:,} are the most")
        if _has_reference(values):
            raise self._wrong(
                f"has map {name} over a list with the results of steps",
                hint="make that list in a step of its own",
            )
        return None, to_json(values, "elements")

    def _name_of(self, step: object, name: str) -> str:
        if isinstance(step, Step):
            self._check_own(step)
            return step.name
        if isinstance(step, str):
            return step
        raise self._wrong(f"has step {name} after {shown(step)}, which is not a step", hint="after=[step, …]")

    def _check_own(self, reference: Reference) -> None:
        if reference.owner is not self:
            raise self._wrong(f"uses {reference!r}", hint="a flow uses its own steps and parameters")

    def _wrong(self, what: str, hint: str | None = None) -> InvalidValue:
        return InvalidValue(f"flow {shown(self.name)} {what}", field="flow", value=self.name, hint=hint)


describing: ContextVar[FlowBuilder | None] = ContextVar("evenbeat_flow", default=None)
"""The flow whose function is being called."""


def refuse_in_description(task: Task[..., Any], verb: str) -> None:
    """Refuse to call a task, or to enqueue it, while a flow is described: a step was meant."""
    builder = describing.get()
    if builder is not None:
        raise InvalidValue(
            f"task {shown(task.name)} is {verb} while flow {builder.name} is described",
            field="flow",
            value=task.name,
            hint=f"describe a step: {task.name}.step(…)",
        )


def current_builder(task: Task[..., Any], verb: str) -> FlowBuilder:
    """Return the flow that is being described."""
    builder = describing.get()
    if builder is None:
        raise InvalidValue(
            f"{task.name}.{verb}(…) describes a step of a flow, and no flow is being described",
            field="flow",
            value=task.name,
            hint=f"call it in a function of @app.flow; {task.name}.enqueue(…) adds a run",
        )
    return builder


def _listed(after: object, name: str) -> list[Any]:
    if isinstance(after, (str, Step)):
        return [after]
    if not isinstance(after, Iterable):
        raise InvalidValue(
            f"after of step {name} is {shown(after)}", field="after", value=after, hint="after=[step, …]"
        )
    return list(after)


def _has_reference(value: Any) -> bool:
    if isinstance(value, Reference):
        return True
    if isinstance(value, dict):
        return any(_has_reference(each) for each in value.values())
    return isinstance(value, (list, tuple)) and any(_has_reference(each) for each in value)
