"""The session of a scheduler: its store, opened when first needed, its tasks and its tenant."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, cast, get_args

from evenbeat.core.awaitable import twin
from evenbeat.core.checks import check_label, check_task
from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord, ScheduleState
from evenbeat.core.results import Run
from evenbeat.errors import InvalidValue, RunExists, shown
from evenbeat.observe.events import Events
from evenbeat.observe.views import run_view
from evenbeat.stores.base import ScheduleQuery, Store
from evenbeat.tasks.conversion import write_untyped
from evenbeat.tasks.task import Call, Task, Tasks


class AppSession:
    """The store and the tasks of one scheduler, and the tenant of calls that name none."""

    def __init__(self, store: Store, tasks: Tasks, tenant: str) -> None:
        check_label(tenant, "tenant")
        self._store = store
        self._opening = threading.Lock()
        self._is_open = False
        self.tasks = tasks
        self.tenant = tenant
        self.events = Events()
        """Those of the scheduler's life cycle, once it has one."""
        self.forked: list[Callable[[], None]] = []
        """Called in a child process after a fork."""

    def store(self) -> Store:
        """Return the store, open. Importing a module that makes a scheduler must not touch any database."""
        if not self._is_open:
            with self._opening:
                if not self._is_open:
                    self._store.open()
                    self._is_open = True
        return self._store

    def store_to_join(self) -> Store:
        """Return the store for runs within the caller's transaction: open, unless that may wait for it."""
        if not self._is_open:
            with self._opening:
                if not self._is_open:
                    self._is_open = self._store.open_to_join()
        return self._store

    def after_fork_in_child(self) -> None:
        """Replace the locks, which a thread of the parent may have held."""
        self._opening = threading.Lock()
        for replace_lock in self.forked:
            replace_lock()

    def open_store(self) -> Store | None:
        """Return the store if it is open."""
        return self._store if self._is_open else None

    def unopened(self) -> Store:
        return self._store

    def close(self) -> None:
        with self._opening:
            self._is_open = False
            self._store.close()

    @contextmanager
    def replaced(self, store: Store) -> Iterator[None]:
        """Use another store until the block ends; this one stays as it is."""
        with self._opening:
            before = self._store, self._is_open
            self._store, self._is_open = store, False
        try:
            yield
        finally:
            self.close()
            with self._opening:
                self._store, self._is_open = before

    def tenant_of(self, tenant: str | None) -> str:
        if tenant is None:
            return self.tenant
        check_label(tenant, "tenant")
        return tenant

    def run_view(self, run: RunRecord) -> Run:
        """Return a run as users see it."""
        return run_view(run, self.tasks)

    def row(self, tenant: str, name: str) -> ScheduleRecord | None:
        """Return the row of a schedule, also if it is deleted."""
        if not isinstance(name, str):
            raise InvalidValue(
                f"name {shown(name)} is not a text", field="name", value=name, hint="give a schedule's name"
            )
        query = ScheduleQuery(tenant=tenant, name=name, states=get_args(ScheduleState), limit=1)
        return next(iter(self.store().find_schedules(query).items), None)

    def call(
        self, task: Task[..., Any] | Call | str, payload: Mapping[str, Any] | None
    ) -> tuple[str, str, Task[..., Any] | None]:
        """Return (task name, payload as JSON, the task if it is registered here); the payload is checked."""
        if isinstance(task, Call):
            if payload is not None:
                raise InvalidValue(
                    f"task {shown(task.task)} has its payload already",
                    field="payload",
                    value=payload,
                    hint="give it to bind, or give the task and a payload",
                )
            payload = task.payload
        if payload is not None and not isinstance(payload, Mapping):
            raise InvalidValue(
                f"payload {shown(payload)} is not an object of named arguments",
                field="payload",
                value=payload,
                hint='write it like {"team": "ops"}',
            )
        if not isinstance(task, (str, Task, Call)):
            raise InvalidValue(
                f"task {shown(task)} is not registered",
                field="task",
                value=task,
                hint="decorate the function with @app.task and give what that returns, or its name",
            )
        name = task if isinstance(task, str) else task.task if isinstance(task, Call) else task.name
        check_task(name)
        local = self.tasks.get(name)
        given = payload or {}
        text = write_untyped(name, given) if local is None else local.write(given)
        return name, "null" if payload is None else text, local


class VirtualTime(Protocol):
    """What a store in virtual time has beside the methods of ``Store``."""

    renewals: dict[str, Callable[[Instant], object]]
    """Renew the locks that ``with`` blocks hold, by their tokens. Each is called before the time moves, with
    the time that it moves to."""

    def pass_time(self, seconds: float, is_endless: bool) -> None:
        """Let time pass for a caller that waits.

        Raise an error if the wait ``is_endless``, that is, has no end of its own, and nothing more happens
        that could end it.
        """


def virtual_time(store: Store) -> VirtualTime | None:
    """Return the virtual time of a store; None if it is in real time."""
    return cast(VirtualTime, store) if hasattr(store, "pass_time") else None


def pause(store: Store, seconds: float, *, is_endless: bool) -> None:
    """Wait; on a store in virtual time, let that time pass. ``is_endless`` as in ``VirtualTime``."""
    virtual = virtual_time(store)
    if virtual is None:
        time.sleep(seconds)
    else:
        virtual.pass_time(seconds, is_endless)


async def apause(store: Store, seconds: float, *, is_endless: bool) -> None:
    """``pause``, awaited. Holds no thread while it waits."""
    import asyncio

    virtual = virtual_time(store)
    if virtual is None:
        await asyncio.sleep(seconds)
    else:
        await twin(virtual.pass_time)(seconds, is_endless)


def clock_of(store: Store, real: Callable[[], float]) -> Callable[[], float]:
    """Return the clock, in seconds, that measures waits: the real one, or that of a store in virtual time."""
    return real if virtual_time(store) is None else (lambda: store.now() / 1000)


def refuse_other(
    found: RunRecord, *, tenant: str, task: str | None = None, schedule: str | None = None
) -> None:
    """Raise ``RunExists`` if the run that has the wanted id belongs to another tenant, task or schedule.

    A run of the same task is accepted, whatever its payload: the first call counts.
    """
    if found.tenant != tenant:
        raise RunExists(found.id, "another tenant")
    if task is not None and found.task != task:
        raise RunExists(found.id, f"task {shown(found.task)}")
    if found.schedule != schedule:
        by_hand = found.schedule is None
        whose = f"task {shown(found.task)}" if by_hand else f"schedule {shown(found.schedule)}"
        raise RunExists(found.id, whose)
