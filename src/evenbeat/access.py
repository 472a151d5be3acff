"""What the parts of a scheduler share: the store, opened when it is first needed, and the tasks."""

from __future__ import annotations

import getpass
import os
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, get_args

from evenbeat.errors import InvalidValue, RunRefused, shown
from evenbeat.model import Run, Schedule, ScheduleState, check_name, check_task, to_json
from evenbeat.stores.base import ScheduleQuery, Store
from evenbeat.tasks import Call, Task, Tasks


class Access:
    """The store and the tasks of one scheduler, and whose schedules it speaks of unless told otherwise."""

    def __init__(self, store: Store, tasks: Tasks, tenant: str) -> None:
        check_name(tenant, "tenant")
        self._store = store
        self._opening = threading.Lock()
        self._is_open = False
        self.tasks = tasks
        self.tenant = tenant

    def store(self) -> Store:
        """The store, open. Importing a module that makes a scheduler must not touch any database."""
        if not self._is_open:
            with self._opening:
                if not self._is_open:
                    self._store.open()
                    self._is_open = True
        return self._store

    def unopened(self) -> Store:
        return self._store

    def close(self) -> None:
        with self._opening:
            self._is_open = False
            self._store.close()

    @contextmanager
    def replaced(self, store: Store) -> Iterator[None]:
        """Another store in place of this one until the block ends; this one is left as it is."""
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
        check_name(tenant, "tenant")
        return tenant

    def row(self, tenant: str, name: str) -> Schedule | None:
        """The row of a schedule, also if it was deleted."""
        query = ScheduleQuery(tenant=tenant, name=name, states=get_args(ScheduleState), limit=1)
        return next(iter(self.store().find_schedules(query).items), None)

    def call(
        self, task: Task[..., Any] | Call | str, payload: Mapping[str, Any] | None
    ) -> tuple[str, str, Task[..., Any] | None]:
        """(task name, payload as JSON, the task if it is registered here), checked against its function."""
        if isinstance(task, Call):
            if payload is not None:
                raise InvalidValue(
                    f"task {shown(task.task)} has its payload already", field="payload", value=payload,
                    hint="give it to bind, or give the task and a payload",
                )  # fmt: skip
            payload = task.payload
        if payload is not None and not isinstance(payload, Mapping):
            raise InvalidValue(
                f"payload {shown(payload)} is not an object of named arguments", field="payload",
                value=payload, hint='write it like {"team": "ops"}',
            )  # fmt: skip
        if not isinstance(task, (str, Task, Call)):
            raise InvalidValue(
                f"task {shown(task)} is not registered", field="task", value=task,
                hint="decorate the function with @app.task and give what that returns, or its name",
            )  # fmt: skip
        name = task if isinstance(task, str) else task.task if isinstance(task, Call) else task.name
        check_task(name)
        local = self.tasks.get(name)
        if local is not None:
            local.check(payload or {})
        return name, to_json(None if payload is None else dict(payload)), local


def this_user() -> str:
    """Who acts here, for people who ask later: user@host."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user may have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def refuse_foreign(found: Iterable[Run], tenant: str) -> None:
    """Ids are of all tenants together: a run of another one is no answer to a repeated request."""
    for run in found:
        if run.tenant != tenant:
            raise RunRefused(f"run id {shown(run.id)} is taken by another tenant", subject=run.id)
