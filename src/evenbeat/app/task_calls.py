"""The calls of a scheduler about tasks: register a function, and enqueue runs of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, Unpack, cast, overload

from evenbeat.app.enqueueing import EnqueueOptions
from evenbeat.app.scheduler_parts import SchedulerParts
from evenbeat.core.awaitable import twin
from evenbeat.core.checks import check_flag
from evenbeat.core.durations import Duration
from evenbeat.core.instants import Moment
from evenbeat.core.options import NEW_SCHEDULE, RUN
from evenbeat.core.records import NORMAL, CatchUp, Execution
from evenbeat.core.results import Run
from evenbeat.errors import InvalidValue, shown
from evenbeat.rules.code_only import check_code_only, check_code_trigger
from evenbeat.rules.templates import template_word
from evenbeat.rules.unique_runs import check_unique
from evenbeat.tasks import context
from evenbeat.tasks.options import EnqueuedOptions, NewScheduleOptions, read_schedule_fields, refuse_unknown
from evenbeat.tasks.retrying import ALWAYS, ErrorClasses, RetryRule, read_retry_rule
from evenbeat.tasks.task import Call, ExecutorKind, Task
from evenbeat.triggers import Trigger, check_trigger, parse_trigger

P = ParamSpec("P")
R = TypeVar("R")
AnyTask: TypeAlias = Task[..., Any]


class TaskDecorator(Protocol):
    """For type checkers: what ``@app.task(…)`` returns for a function."""

    @overload
    def __call__(self, function: Callable[Concatenate[context.RunContext, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class TaskCalls(SchedulerParts):
    """Registers tasks, and adds runs of them by hand."""

    @overload
    def task(self, function: Callable[Concatenate[context.RunContext, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        schedule: Trigger | str | None = None,
        executor: ExecutorKind | None = None,
        retry_on: ErrorClasses | None = None,
        give_up_on: ErrorClasses | None = None,
        unique: str | None = None,
        durable: bool | None = None,
        **options: Unpack[NewScheduleOptions],
    ) -> TaskDecorator: ...

    def task(  # type: ignore[misc]  # mypy 2.4 takes Unpack in an overload for more than **options
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        schedule: Trigger | str | None = None,
        executor: ExecutorKind | None = None,
        retry_on: ErrorClasses | None = None,
        give_up_on: ErrorClasses | None = None,
        unique: str | None = None,
        durable: bool | None = None,
        **options: Any,
    ) -> Any:
        """Register a function as a task, by its name or another one.

        With a ``schedule``, or a ``template`` that has a trigger, a node declares a schedule of the same name
        when it starts; ``schedule="@name"`` names a template, too. A ``def`` runs in a thread, an
        ``async def`` on the event loop; ``executor="process"`` gives a ``def`` a process of its own. Options
        are defaults of all its runs (retries, backoff, timeout, queue, priority) and policies of its schedule
        (catch_up, overlap, …).

        ``retry_on`` names the exception classes after which a run is retried: any other error fails it at
        once. ``give_up_on`` names those that fail it at once, and overrides ``retry_on``. Subclasses count.
        Both are kept in memory, never stored. ``unique`` is that of ``enqueue``, for all its runs that are
        enqueued; ticks of its schedule are not unique.

        ``durable=False`` keeps the schedule in the code only: the store has no row of it, and each node plans
        it in memory. It can't be paused or edited, and has no policy that needs a row. It defaults to the
        node's ``schedule_mode``.
        """
        register = self._registration(
            Task,
            name=name,
            schedule=schedule,
            executor=executor,
            retry_rule=read_retry_rule(retry_on, give_up_on),
            unique=unique,
            durable=durable,
            options=options,
        )
        return register if function is None else register(function)

    def _registration(
        self,
        make: Callable[..., AnyTask],
        *,
        name: str | None,
        schedule: Trigger | str | None,
        executor: ExecutorKind | None = None,
        retry_rule: RetryRule = ALWAYS,
        unique: str | None = None,
        durable: bool | None = None,
        options: Mapping[str, Any],
        prepare: Callable[[AnyTask], None] = lambda _: None,
    ) -> Callable[[Callable[..., Any]], AnyTask]:
        """Check the options of a task or a flow, and return what registers its function. ``prepare`` is
        called with the task before it is registered."""
        what = "a task" if make is Task else "a flow"
        if unique is not None:
            check_unique(unique)
        refuse_unknown(options, NEW_SCHEDULE, what)
        policies = {key: value for key, value in options.items() if key not in RUN}
        if policies and schedule is None and options.get("template") is None:
            raise InvalidValue(
                f"{min(policies)} is about a schedule, and there is none",
                field=min(policies),
                value=policies[min(policies)],
                hint="say when it runs: schedule=cron(…) or every(…)",
            )
        word = template_word(schedule)
        if durable is not None:
            _check_durable(durable, is_scheduled=schedule is not None or options.get("template") is not None)
        if durable is False:
            check_code_only(name or "of the task", options if word is None else {**options, "template": word})
            options = {**options, "catch_up": "skip"} if "grace" in options else options
        fields = read_schedule_fields(options, Execution(), CatchUp())
        if schedule is not None:
            check_trigger(schedule, "schedule")
        # Only the store knows whether there is such a template: it is read when the schedule is declared.
        trigger = parse_trigger(schedule) if isinstance(schedule, str) and word is None else schedule
        if durable is False and isinstance(trigger, Trigger):
            check_code_trigger(name or "of the task", trigger)

        def register(function: Callable[..., Any]) -> AnyTask:
            if not callable(function):
                raise InvalidValue(
                    f"task {shown(function)} is not a function",
                    field="function",
                    value=function,
                    hint="write @app.task above one; options have names: @app.task(name=…, schedule=…)",
                )
            task = make(
                function,
                name or function.__name__,
                execution=fields["execution"],
                queue=fields.get("queue", "default"),
                priority=fields.get("priority", NORMAL),
                executor=executor,
                trigger=trigger,
                policies=cast(NewScheduleOptions, options),
                retry_rule=retry_rule,
                unique=unique,
                durable=durable,
                enqueue=self.enqueue,
            )
            prepare(task)
            self._tasks.add(task)
            if self.node is not None:
                # Registered while a node runs: it learns at once what it would have found at its start.
                self.node.add_task(task)
                if task.is_scheduled:
                    code_only = self._declarations.declare_by_mode(task, self.node.settings)
                    self.node.add_schedule((self._session.tenant, task.name), code_only)
            return task

        return register

    def enqueue(
        self,
        task: Task[..., Any] | Call | str,
        payload: Mapping[str, Any] | None = None,
        *,
        delay: Duration | None = None,
        at: Moment | None = None,
        id: str | None = None,
        tenant: str | None = None,
        within: object | None = None,
        unique: str | Literal[False] | None = None,
        **options: Unpack[EnqueuedOptions],
    ) -> Run:
        """Add one run of a task: due at once, after ``delay``, or at ``at``.

        With an ``id`` of your own, enqueueing it again adds nothing and returns the run that is there, with
        its own payload; ``RunExists`` if that run belongs to another task, schedule or tenant.

        ``unique="payload"``, or a key of your own (``unique="order-42"``): while a run of this task and
        tenant with the same payload, or key, is queued or running, this adds nothing and returns that run. It
        defaults to what the task says; False: not unique.

        ``expires`` is a duration after the planned start, or a time: a run that has not started by then is
        cancelled instead of executed.

        ``within`` is a connection or session of yours to the same database (PostgreSQL or SQLite): the run is
        added in its transaction, and workers see it when you commit, or never. psycopg, sqlite3, Django and
        SQLAlchemy are supported; asynchronous ones with ``await app.aenqueue(…)``. In virtual time
        (``evenbeat.testing``) the connection may belong to any database.
        """
        return self._enqueuer.add(
            task, payload, id, EnqueueOptions(delay, at, tenant, within, unique, options)
        )

    def enqueue_many(
        self,
        calls: Iterable[Call | Task[..., Any] | str | tuple[Task[..., Any] | str, Mapping[str, Any] | None]],
        *,
        delay: Duration | None = None,
        at: Moment | None = None,
        ids: Iterable[str] | None = None,
        tenant: str | None = None,
        within: object | None = None,
        unique: str | Literal[False] | None = None,
        **options: Unpack[EnqueuedOptions],
    ) -> list[str]:
        """Add many runs, 1,000 per write; return their ids. Options as in ``enqueue``.

        A call whose unique key an active run has, or an earlier call, returns the id of that run.
        """
        return self._enqueuer.add_many(calls, ids, EnqueueOptions(delay, at, tenant, within, unique, options))

    aenqueue = twin(enqueue)
    aenqueue_many = twin(enqueue_many)


def _check_durable(durable: object, *, is_scheduled: bool) -> None:
    """Refuse a mode that is not one, and one without a schedule."""
    check_flag("durable", durable)
    if not is_scheduled:
        raise InvalidValue(
            "durable applies to a schedule, and the task has none",
            field="durable",
            value=durable,
            hint="say when it runs: schedule=cron(…) or every(…)",
        )
