"""Flows: graphs of tasks. A flow is registered like a task. Its function describes the graph, once, when it
is registered: it is called with references instead of arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar

from evenbeat.core.flow_graphs import FlowGraph, Input, RunIf
from evenbeat.core.json_text import from_json
from evenbeat.core.options import EXECUTION
from evenbeat.core.records import Kind
from evenbeat.errors import InvalidValue, shown
from evenbeat.tasks.flow_builder import FlowBuilder, Reference, Step, describing
from evenbeat.tasks.task import Task, Tasks

P = ParamSpec("P")
R = TypeVar("R")


# Options of an attempt: a flow has none, its steps do.
_OF_STEPS = frozenset(EXECUTION) - {"timeout", "expires"}


def refuse_options_of_steps(options: Mapping[str, Any]) -> None:
    """Refuse options that a flow can't have."""
    unfit = sorted(_OF_STEPS & set(options))
    if unfit:
        raise InvalidValue(
            f"{unfit[0]} is an option of tasks, and a flow has none",
            field=unfit[0],
            value=options[unfit[0]],
            hint="give it to the tasks of its steps: @app.task(…)",
        )


class Flow(Task[P, R], Generic[P, R]):
    """A graph of tasks, registered by name. It is started like a task: by schedules, and by ``enqueue``."""

    kind: ClassVar[Kind] = "flow"
    builder: FlowBuilder
    _graph: FlowGraph | None
    _returned: Step | None

    def describe(self) -> None:
        """Call the function once, with references for its parameters; errors in the graph are raised here.

        For workers and schedulers.
        """
        if inspect.iscoroutinefunction(self.function) or inspect.isgeneratorfunction(self.function):
            raise InvalidValue(
                f"flow {shown(self.name)} is not a plain def",
                field="function",
                value=self.name,
                hint="its function only describes the steps; the tasks themselves may be async",
            )
        if self.wants_run is not None:
            raise InvalidValue(
                f"flow {shown(self.name)} takes a RunContext, and no code of it runs",
                field="function",
                value=self.wants_run,
                hint="a step may take it: run.flow names the flow",
            )
        self.begin_description()
        parameters = self.signature.parameters.values()
        if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
            raise InvalidValue(
                f"flow {shown(self.name)} takes **arguments",
                field="function",
                value=self.name,
                hint="name its parameters",
            )
        references = {each.name: self.parameter(each.name) for each in parameters}
        token = describing.set(self.builder)
        try:
            result = self.function(**references)
        finally:
            describing.reset(token)
        self._graph = self.builder.graph(self._defaults(), result)

    def begin_description(self) -> None:
        """Prepare for ``add_step``, without any steps. For workers and schedulers."""
        self.builder = FlowBuilder(self.name)
        self._graph = self._returned = None

    @property
    def graph(self) -> FlowGraph:
        """The steps and what they wait for. For workers and schedulers."""
        if self._graph is None:
            self._graph = self.builder.graph(self._defaults(), self._returned)
        return self._graph

    @property
    def nested(self) -> Mapping[str, FlowGraph]:
        """The graphs of the flows that are steps of it, by key. For workers and schedulers."""
        return self.builder.nested

    def parameter(self, name: str) -> Reference:
        """Return the value of a parameter, to be an argument of a step."""
        return Reference(self.builder, Input((), "parameter", name))

    def add_step(
        self,
        name: str,
        task: Task[..., Any],
        *,
        after: Iterable[Step | str] = (),
        payload: Mapping[str, Any] | None = None,
        run_if: RunIf = "all_succeeded",
        map_over: Any = None,
    ) -> Step:
        """Add a step without a function that describes the flow. ``payload`` may contain steps and
        ``flow.parameter(…)``; ``map_over`` makes a run for each element, which the first parameter of the
        task gets."""
        if not isinstance(task, Task):
            raise InvalidValue(f"{shown(task)} is not a task", field="task", value=task, hint="@app.task")
        element = "" if map_over is None else task.first_parameter
        task.check({**(payload or {}), **({element: None} if element else {})})
        self._graph = None
        return self.builder.add(
            task, payload or {}, name=name, after=after, run_if=run_if, over=map_over, element=element
        )

    def set_result(self, step: Step) -> None:
        """Make the result of a step the flow's result."""
        self._graph = None
        self._returned = step

    def check(self, payload: Mapping[str, Any]) -> None:
        """Raise ``InvalidValue`` if the graph is wrong, or the flow can't be started with this payload.

        So a wrong graph of ``add_step`` is refused where the flow is started, not in a worker.
        """
        _ = self.graph
        super().check(payload)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        raise InvalidValue(
            f"flow {shown(self.name)} can't be called",
            field="flow",
            value=self.name,
            hint=f"start it: {self.name}.enqueue(…); within a flow: {self.name}.step(…)",
        )

    def _defaults(self) -> dict[str, Any]:
        given = {
            each.name: each.default
            for each in self.signature.parameters.values()
            if each.default is not inspect.Parameter.empty
        }
        written: dict[str, Any] = from_json(self.write_constants(given, {})) if given else {}
        return written

    def __repr__(self) -> str:
        return f"<Flow {self.name}>"


def all_graphs(flow: Flow[..., Any]) -> tuple[FlowGraph, ...]:
    """Return the graph of a flow and those of the flows within it."""
    graph = flow.graph
    return (graph, *(each for key, each in flow.nested.items() if key != graph.key))


def flows_of(tasks: Tasks) -> list[Flow[..., Any]]:
    """Return the flows among registered tasks, by name."""
    return sorted((task for task in tasks if isinstance(task, Flow)), key=lambda flow: flow.name)
