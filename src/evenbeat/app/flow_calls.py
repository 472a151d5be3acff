"""The calls of a scheduler that register flows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from evenbeat.app.task_calls import AnyTask, TaskCalls
from evenbeat.tasks.flow import Flow, refuse_options_of_steps
from evenbeat.tasks.options import NewScheduleOptions
from evenbeat.triggers import Trigger

P = ParamSpec("P")
R = TypeVar("R")


class FlowDecorator(Protocol):
    """For type checkers: what ``@app.flow(…)`` returns for a function."""

    def __call__(self, function: Callable[P, R], /) -> Flow[P, R]: ...


class FlowCalls(TaskCalls):
    """Registers flows."""

    @overload
    def flow(self, function: Callable[P, R], /) -> Flow[P, R]: ...
    @overload
    def flow(
        self,
        *,
        name: str | None = None,
        schedule: Trigger | str | None = None,
        durable: bool | None = None,
        **options: Unpack[NewScheduleOptions],
    ) -> FlowDecorator: ...

    def flow(  # type: ignore[misc]  # mypy 2.4 takes Unpack in an overload for more than **options
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        schedule: Trigger | str | None = None,
        durable: bool | None = None,
        **options: Any,
    ) -> Any:
        """Register a flow: a graph of tasks, which the function describes with ``task.step(…)`` and
        ``task.map(…)``.

        The function is called once, now, with placeholders for its parameters. It returns a step, whose
        result is then the flow's, or nothing. A flow is started like a task: by its ``schedule``, by
        ``enqueue`` and ``app.schedules``, and as a step of another flow. It is active until its last step has
        ended; so overlap, catch-up, limits and dependencies treat it as one run.

        ``timeout`` is that of the whole flow. ``queue`` and ``priority`` are those of its start; steps have
        the options of their tasks.
        """
        register = self._flow_registration(name, schedule, durable, options, Flow.describe)
        return register if function is None else register(function)

    def new_flow(
        self,
        name: str,
        parameters: Iterable[str] = (),
        *,
        schedule: Trigger | str | None = None,
        durable: bool | None = None,
        **options: Unpack[NewScheduleOptions],
    ) -> Flow[..., Any]:
        """Register a flow without a function: add its steps with ``flow.add_step(name, task, …)``.

        ``parameters`` are None where a start does not give them.
        """
        names = list(parameters)

        def described() -> None:
            """Stands for a function with these parameters."""

        kind = inspect.Parameter.KEYWORD_ONLY
        described.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # inspect reads it
            [inspect.Parameter(each, kind, default=None) for each in names]
        )
        described.__name__ = described.__qualname__ = name
        register = self._flow_registration(name, schedule, durable, options, Flow.begin_description)
        return cast("Flow[..., Any]", register(described))

    def _flow_registration(
        self,
        name: str | None,
        schedule: Trigger | str | None,
        durable: bool | None,
        options: Any,
        prepare: Callable[[Flow[..., Any]], None],
    ) -> Callable[[Callable[..., Any]], AnyTask]:
        refuse_options_of_steps(options)
        return self._registration(
            Flow,
            name=name,
            schedule=schedule,
            durable=durable,
            options=options,
            prepare=cast("Callable[[AnyTask], None]", prepare),
        )
