"""Tasks: functions that are registered by name. Nothing else is ever executed."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, Literal, ParamSpec, TypeAlias, TypeVar, get_args

import msgspec

from evenbeat.core.awaitable import twin
from evenbeat.core.checks import NAMES, check_one_of, check_task, is_name
from evenbeat.core.clocks import wall_clock
from evenbeat.core.flow_graphs import FlowGraph, RunIf
from evenbeat.core.json_text import encode, from_json, to_json
from evenbeat.core.records import NORMAL, Execution, Kind, RunRecord
from evenbeat.core.results import Run
from evenbeat.errors import InvalidValue, shown
from evenbeat.tasks import conversion
from evenbeat.tasks.attempt_hooks import AttemptHooks
from evenbeat.tasks.context import RunContext
from evenbeat.tasks.flow_builder import Step, current_builder, refuse_in_description
from evenbeat.tasks.options import NewScheduleOptions
from evenbeat.tasks.retrying import ALWAYS, RetryRule
from evenbeat.triggers import Trigger

P = ParamSpec("P")
R = TypeVar("R")

ExecutorKind: TypeAlias = Literal["thread", "async", "process"]
"""How a task is executed: in a thread, on the event loop, or in a process of its own."""

_DEFAULT_EXECUTION = Execution()


class Call(msgspec.Struct, frozen=True):
    """A task with its payload: ``task.bind(…)`` returns one; ``enqueue`` and schedules accept it."""

    task: str
    payload: dict[str, Any]


class Task(Generic[P, R]):
    """A function that is registered by name. Calling the task calls the function, here and now."""

    kind: ClassVar[Kind] = "task"

    def __init__(
        self,
        function: Callable[..., R],
        name: str,
        *,
        execution: Execution = _DEFAULT_EXECUTION,
        queue: str = "default",
        priority: int = NORMAL,
        executor: ExecutorKind | None = None,
        trigger: Trigger | str | None = None,
        policies: NewScheduleOptions | None = None,
        retry_rule: RetryRule = ALWAYS,
        unique: str | None = None,
        durable: bool | None = None,
        enqueue: Callable[[Call], Run] | None = None,
    ) -> None:
        check_task(name)
        functools.update_wrapper(self, function)
        self.name = name
        self.function = function
        self.execution = execution
        self.queue = queue
        self.priority = priority
        self.trigger = trigger
        """The trigger of its own schedule, which a node declares under the same name when it starts; as text,
        ``@`` and the name of a template."""
        self.policies: NewScheduleOptions = policies or {}
        self.retry_rule = retry_rule
        """Which errors are retried. In memory alone: another process may not have the classes."""
        self.unique = unique
        """``payload`` or a key, which no two active runs of the task share; None if they may."""
        self.durable = durable
        """Whether its schedule has a row in the store; None: as the node's ``schedule_mode`` says."""
        self.hooks = AttemptHooks()
        """The hooks around each attempt: those of the registry, once the task is registered."""
        _refuse_unfit(function, name)
        self.executor: ExecutorKind = _executor_for(function, name, executor)
        """How it is executed."""
        self._enqueue = self._has_no_scheduler if enqueue is None else enqueue
        self._aenqueue = twin(self._enqueue)
        self._signature, self.wants_run = _read_signature(function, name)
        self._conversion = conversion.Signature(name, function, self._signature)
        if self.is_scheduled:
            self._check_scheduled()

    @property
    def signature(self) -> inspect.Signature:
        """The parameters of the function but the one that receives the run. For workers and schedulers."""
        return self._signature

    @property
    def is_scheduled(self) -> bool:
        """Whether a node declares a schedule of its name: it has a trigger, or a template that has one."""
        return self.trigger is not None or self.policies.get("template") is not None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        refuse_in_description(self, "called")
        if self.wants_run is not None:
            given = self._named(*args, **kwargs)
            now = wall_clock()
            run = RunRecord(
                id="direct", task=self.name, payload=to_json(given), attempt=1, scheduled_at=now, run_at=now
            )
            return self.function(**given, **{self.wants_run: RunContext(run)})
        return self.function(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Run:
        """Add one run with these arguments, due at once.

        For a delay, an id or other options of the run: ``app.enqueue(task.bind(…), delay="5m")``.
        """
        refuse_in_description(self, "enqueued")
        return self._enqueue(self.bind(*args, **kwargs))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Run:
        """``enqueue``, awaited."""
        return await self._aenqueue(self.bind(*args, **kwargs))

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """Return the task with these arguments as its payload, checked here rather than when it runs.

        ``InvalidValue`` if the function can't be called with them, or one of them would change on the way.
        """
        try:
            call = Call(self.name, self._named(*args, **kwargs))
        except TypeError as error:
            raise self._refused(error) from None
        self._conversion.write(call.payload)
        return call

    def step(
        self,
        *args: Any,
        step_name: str | None = None,
        after: Iterable[Step | str] = (),
        run_if: RunIf = "all_succeeded",
        **kwargs: Any,
    ) -> Step:
        """Add a step to the flow that is being described; return its result as a reference.

        Arguments may be other steps: this one then waits for them, and gets their results. ``after`` names
        steps to wait for without their results. ``run_if``: ``all_succeeded``, ``any_failed`` or ``always``
        of the steps that it waits for; with the last two and no such step, of all steps described before it.
        A result that does not exist is None. ``step_name`` is the task's name by default.
        """
        builder = current_builder(self, "step")
        self._check_step_words()
        try:
            arguments = self._named(*args, **kwargs)
        except TypeError as error:
            raise self._refused(error) from None
        return builder.add(self, arguments, name=step_name, after=after, run_if=run_if)

    def map(
        self,
        over: Any,
        /,
        *,
        step_name: str | None = None,
        after: Iterable[Step | str] = (),
        run_if: RunIf = "all_succeeded",
        **kwargs: Any,
    ) -> Step:
        """Add a step that makes a run for each element of a list: of a step's result, a parameter, or a list
        that is given here. The first parameter of the task gets the element.

        The result is the list of all results, in the order of the elements.
        """
        builder = current_builder(self, "map")
        self._check_step_words()
        element = self.first_parameter
        self.check({element: None, **kwargs})
        return builder.add(
            self, kwargs, name=step_name, after=after, run_if=run_if, over=over, element=element
        )

    @property
    def first_parameter(self) -> str:
        """The parameter that gets the elements of a map. For workers and schedulers."""
        for parameter in self._signature.parameters.values():
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
                return parameter.name
        raise InvalidValue(
            f"task {shown(self.name)} has no parameter for the elements of a map",
            field="task",
            value=self.name,
            hint="its first parameter gets the element",
        )

    @property
    def graph(self) -> FlowGraph | None:
        """The steps, if this is a flow. For workers and schedulers."""
        return None

    @property
    def nested(self) -> Mapping[str, FlowGraph]:
        """The graphs of flows that are steps, if this is a flow. For workers and schedulers."""
        return {}

    def _check_step_words(self) -> None:
        taken = {"after", "run_if", "step_name"} & set(self._signature.parameters)
        if taken:
            word = min(taken)
            raise InvalidValue(
                f"task {shown(self.name)} has a parameter {word}, which step(…) takes for itself",
                field=word,
                value=self.name,
                hint="rename the parameter, or use flow.add_step(name, task, payload={…})",
            )

    def write_constants(self, known: Mapping[str, Any], unknown: Mapping[str, Any]) -> str:
        """Return the arguments of a step as JSON text: those that are ``known`` are checked by the
        annotations; in the others, values are still missing. For workers and schedulers."""
        text = self._conversion.write(known)
        if not unknown:
            return text
        return encode({**from_json(text), **from_json(to_json(dict(unknown)))})

    def _has_no_scheduler(self, call: Call) -> Run:
        raise InvalidValue(
            f"task {shown(self.name)} has no scheduler",
            field="task",
            value=self.name,
            hint="register its function with @app.task",
        )

    def _named(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """Return all arguments by name, without the run."""
        arguments: dict[str, Any] = {}
        for name, value in self._signature.bind(*args, **kwargs).arguments.items():
            if self._signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                arguments |= value
            else:
                arguments[name] = value
        return arguments

    def check(self, payload: Mapping[str, Any]) -> None:
        """Raise ``InvalidValue`` if the function can't be called with the names of this payload."""
        try:
            self._signature.bind(**payload)
        except TypeError as error:
            raise self._refused(error) from None

    def write(self, payload: Mapping[str, Any]) -> str:
        """Return a payload as JSON text. For workers and schedulers.

        ``InvalidValue`` if the function can't be called with it, or would get other values. 6 us for a text
        and a number, 8 us for a Decimal and a datetime.
        """
        self.check(payload)
        return self._conversion.write(payload)

    def fits(self, payload: str) -> None:
        """Raise ``InvalidValue`` if a stored payload can't be given to the function.

        For workers and schedulers.
        """
        value = from_json(payload)
        self.check({} if value is None else value)
        self._conversion.read(payload)

    def write_result(self, value: object) -> tuple[str, str | None]:
        """Return a result as JSON text, and a sentence about what of it changes, or None. For workers."""
        return self._conversion.write_result(value)

    def read_result(self, text: str) -> Any:
        """Return a stored result, converted by the annotation if that fits. For workers and schedulers."""
        return self._conversion.read_result(text)

    def _check_scheduled(self) -> None:
        """Refuse a task that can't have its own schedule: the name does not fit, or it needs arguments."""
        if not is_name(self.name):
            raise InvalidValue(
                f"task {shown(self.name)} has a schedule, which can't have its name",
                field="name",
                value=self.name,
                hint=f"name it otherwise: @app.task(name=…), with {NAMES}",
            )
        try:
            self._signature.bind()
        except TypeError as error:
            raise InvalidValue(
                f"task {shown(self.name)} has a schedule, which gives it no arguments: {error}",
                field="schedule",
                value=self.name,
                hint=f"give them defaults, or app.schedules.declare(name, trigger, {self.name}.bind(…))",
            ) from None

    def _refused(self, error: TypeError) -> InvalidValue:
        takes = ", ".join(self._signature.parameters) or "no arguments"
        return InvalidValue(
            f"payload of task {shown(self.name)} does not fit: {error}",
            field="payload",
            value=str(error),
            hint=f"it takes {takes}",
        )

    def arguments(self, payload: str, run: RunContext) -> dict[str, Any]:
        """Return the arguments to call the function with; ``Unfit`` if the payload can't be converted."""
        arguments = self._conversion.read(payload)
        if self.wants_run is not None:
            arguments[self.wants_run] = run
        return arguments

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class Tasks:
    """The tasks of a scheduler, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Task[..., Any]] = {}
        self.hooks = AttemptHooks()
        """The hooks around each attempt of these tasks."""

    def add(self, task: Task[..., Any]) -> None:
        """Register a task. A module may be loaded twice; another function of the same name is refused."""
        present = self._by_name.get(task.name)
        if present is not None and not _is_same(present, task):
            raise InvalidValue(
                f"task {shown(task.name)} is registered already, by {_place(present)}",
                field="name",
                value=task.name,
                hint="give one of them another name: @app.task(name=…)",
            )
        task.hooks = self.hooks
        self._by_name[task.name] = task

    def get(self, name: str) -> Task[..., Any] | None:
        return self._by_name.get(name)

    def read_result(self, task: str, text: str) -> Any:
        """Return a stored result, converted if the task is registered here; else plain JSON."""
        found = self._by_name.get(task)
        return from_json(text) if found is None else found.read_result(text)

    def __iter__(self) -> Iterator[Task[..., Any]]:
        return iter(tuple(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)


def _refuse_unfit(function: Callable[..., Any], name: str) -> None:
    """Refuse functions that would do nothing as a task."""
    if name == "<lambda>":
        raise InvalidValue(
            "a lambda has no name to be found by", field="name", value=name, hint="give it one: name=…"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidValue(
            f"task {shown(name)} is a generator: calling it does nothing",
            field="function",
            value=name,
            hint="return a value instead of yielding several",
        )


def _executor_for(function: Callable[..., Any], name: str, wanted: ExecutorKind | None) -> ExecutorKind:
    """Return the executor of a function: the wanted one if it fits, else by the kind of function."""
    is_async = inspect.iscoroutinefunction(function)
    if wanted is None:
        return "async" if is_async else "thread"
    check_one_of("executor", wanted, get_args(ExecutorKind))
    if is_async != (wanted == "async"):
        kind = "an async def" if is_async else "a plain def"
        hint = (
            "make it a plain def, or leave the executor out"
            if is_async
            else "make it an async def, or leave the executor out"
        )
        raise InvalidValue(
            f'task {shown(name)} is {kind}, and executor="{wanted}" can\'t execute it',
            field="executor",
            value=wanted,
            hint=hint,
        )
    return wanted


def _place(task: Task[..., Any]) -> str:
    code = getattr(inspect.unwrap(task.function), "__code__", None)
    where = f"{task.function.__module__}.{task.function.__qualname__}"
    return where if code is None else f"{where} (line {code.co_firstlineno})"


def _is_same(present: Task[..., Any], task: Task[..., Any]) -> bool:
    """Return whether one task is the other, loaded again: the same place in the same file.

    A notebook cell is a new file each time it runs.
    """
    if present.function.__module__ != task.function.__module__:
        return False
    code = getattr(inspect.unwrap(task.function), "__code__", None)
    return _place(present) == _place(task) or (code is not None and code.co_filename.startswith("<"))


def _read_signature(function: Callable[..., Any], name: str) -> tuple[inspect.Signature, str | None]:
    """Return the signature without the parameter that receives the run, and the name of that parameter."""
    signature = conversion.signature_of(function)
    wants_run: str | None = None
    parameters = []
    for parameter in signature.parameters.values():
        if _is_run(parameter.annotation, function):
            wants_run = parameter.name
            continue
        if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
            raise InvalidValue(
                f"parameter {parameter.name} of task {shown(name)} can't be given by name",
                field="function",
                value=parameter.name,
                hint="a payload is an object of named arguments",
            )
        parameters.append(parameter)
    return signature.replace(parameters=parameters), wants_run


# The annotation as text, where the name is imported for type checkers alone.
_RUN = re.compile(r"(Optional\[)?(evenbeat\.)?RunContext(\])?( \| None)?")


def _is_run(annotation: object, function: Callable[..., Any]) -> bool:
    kind = conversion.resolve(annotation, function)
    if isinstance(kind, conversion.Unresolved):
        return _RUN.fullmatch(kind.text) is not None
    return conversion.is_optional(kind, RunContext)
