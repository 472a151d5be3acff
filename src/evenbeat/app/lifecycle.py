"""``Lifecycle``: starts, serves and stops the node of a scheduler, and calls the scheduler's hooks."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from evenbeat.app.declarations import Declared
from evenbeat.app.hooks import Hooks
from evenbeat.app.session import AppSession, virtual_time
from evenbeat.core.durations import Duration, read_duration
from evenbeat.errors import InvalidValue
from evenbeat.node.node import Node, node_name
from evenbeat.node.settings import NodeOptions, NodeSettings, read_node_settings
from evenbeat.observe.events import Events
from evenbeat.observe.run_logs import current_log
from evenbeat.processes.importing import is_importing
from evenbeat.rules.alert_records import StoredIncident
from evenbeat.stores.base import Store

if TYPE_CHECKING:
    from evenbeat.alerts.service import AlertService

_log = logging.getLogger("evenbeat.app.lifecycle")

_in_hook: ContextVar[Lifecycle | None] = ContextVar("evenbeat_in_hook", default=None)
"""The lifecycle whose node waits for the hook that runs here."""


class Lifecycle:
    """The node of one scheduler, from its start to its stop. ``Scheduler`` documents the methods.

    At most one thread starts or stops the node at a time. Hooks and tasks may call ``stop``, although
    ``stop`` waits for them: another thread then stops the node.
    """

    def __init__(
        self, session: AppSession, declare: Callable[[NodeSettings], Declared], options: NodeOptions
    ) -> None:
        read_node_settings(options)
        self._session = session
        self._declare = declare
        self._options = options
        self._hooks = Hooks(lambda: None if self.node is None else self.node.event_loop)
        self.events = session.events = Events(self._call_hook)
        self.on_start: list[Callable[[], object]] = []
        self.on_stop: list[Callable[[], object]] = []
        self._started: Node | None = None
        self._changing = threading.RLock()
        """Held by ``start`` and ``stop``. Reentrant: the handler of a signal may interrupt them, and stop."""
        self._is_changing = False
        """Whether ``start`` or ``stop`` works on the node."""
        self._is_stopping = False
        self._was_drained = True
        """What the last ``stop`` returned."""
        self._node_kind = Node
        self._alerts: AlertService | None = None
        self.why: Callable[[StoredIncident], str | None] = lambda _: None
        """Returns the sentence that explains an incident of an alert rule."""
        _all.add(self)

    @property
    def node(self) -> Node | None:
        node = self._started
        # Threads do not survive a fork: the child has none, and must not settle what its parent executes.
        return node if node is not None and node.pid == os.getpid() else None

    def count_lock(self, reason: str) -> None:
        """Count a lock that was not to be had, if a node in this process writes what it counts."""
        node = self.node
        if node is not None:
            node.counting.count("lock_failures", "named", reason)

    @property
    def is_running(self) -> bool:
        return self.node is not None and not self._is_stopping

    def settings(self, options: NodeOptions) -> NodeSettings:
        """Return the settings of a node that is started with these options."""
        return read_node_settings({**self._options, **options})

    def start(self, *, ticker: bool, worker: bool, name: str | None, options: NodeOptions) -> None:
        if is_importing():
            return
        # A hook can't wait for a ``stop`` that waits for the hook.
        if not self._changing.acquire(blocking=_in_hook.get() is not self):
            raise _already_changing()
        try:
            if self._is_changing:
                raise _already_changing()
            self._is_changing = True
            try:
                self._start(ticker, worker, name, options)
            finally:
                self._is_changing = False
        finally:
            self._changing.release()
        try:
            for hook in self.on_start:
                self._hooks.call(hook)
        except BaseException:
            self.stop()
            raise

    def _start(self, ticker: bool, worker: bool, name: str | None, options: NodeOptions) -> None:
        if self.node is not None:
            raise InvalidValue(
                "the scheduler has been started already", field="start", value=True, hint="stop() it first"
            )
        settings = self.settings(options)
        store, tasks = self._session.store(), self._session.tasks
        declared = self._declare(settings)
        alerts = self.alert_service(name, settings)
        # Before the node: the first run to fail leaves a signal, too.
        alerts.refresh(store.now())
        node = self._node_kind(
            store,
            tasks,
            self.events,
            settings,
            ticker=ticker,
            worker=worker,
            name=name,
            signals=alerts.signals,
            on_hint=alerts.hint,
            declared=declared.keys,
            code_only=declared.code_only,
        )
        alerts.on_sent = node.counting.count_alert
        node.start()
        self._started = node
        if virtual_time(store) is None:
            alerts.start(node.now)
            self._alerts = alerts

    def alert_service(
        self, name: str | None = None, settings: NodeSettings | None = None, rest: int | None = None
    ) -> AlertService:
        """Return a service that evaluates alert rules in this process, not started."""
        from evenbeat.alerts import service

        used = self.settings({}) if settings is None else settings
        return service.AlertService(
            self._session.unopened(),
            name=name or node_name(),
            link_base=used.public_url,
            allow_private=used.allow_private_webhooks,
            why=self.why,
            events=self.events,
            rest=service.REST if rest is None else rest,
        )

    def stop(self, timeout: Duration | None = None) -> bool:
        drain = None if timeout is None else read_duration(timeout, "timeout")
        if self._is_inside():
            return self._stop_later(timeout)
        is_first = not self._is_stopping
        if not self._changing.acquire(timeout=-1 if drain is None else drain / 1000):
            return False  # another thread starts or stops it, and takes longer
        try:
            # Asked again: a job may begin before ``start`` has returned.
            if self._is_changing or self._is_inside():
                return self._stop_later(timeout)
            node = self.node
            if node is None:
                return is_first or self._was_drained
            self._is_changing, self._is_stopping, self._was_drained = True, True, False
            try:
                self._was_drained = node.stop(drain, self._call_on_stop)
                return self._was_drained
            finally:
                if self._alerts is not None:
                    self._alerts.stop()
                    self._alerts = None
                self._started = None
                self._is_changing = self._is_stopping = False
                self._hooks.stop()
        finally:
            self._changing.release()

    def run(self, ticker: bool, worker: bool, options: NodeOptions) -> bool:
        from evenbeat.processes.signals import check_main_thread, until_signalled

        if is_importing():
            return True
        check_main_thread()
        try:
            until_signalled(
                self.hurry,
                over=lambda: not self.is_running,
                start=lambda: self.start(ticker=ticker, worker=worker, name=None, options=options),
            )
        finally:
            is_drained = self.stop()
            self._session.close()
        return is_drained

    def hurry(self) -> None:
        if self.node is not None:
            self.node.hurry()

    @contextmanager
    def stand_in(self, store: Store, node: type[Node]) -> Iterator[None]:
        if self.node is not None:
            raise InvalidValue(
                "the scheduler is running on its own store",
                field="store",
                value=store,
                hint="stop() it first",
            )
        before, self._node_kind = self._node_kind, node
        try:
            with self._session.replaced(store):
                try:
                    yield
                finally:
                    self.stop()
                    self._hooks.stop()
        finally:
            self._node_kind = before

    def after_fork_in_child(self) -> None:
        """Forget the threads of the parent, and the locks that they hold forever."""
        self._changing = threading.RLock()
        self._is_changing = self._is_stopping = False
        self._hooks.after_fork_in_child()
        self._session.after_fork_in_child()

    def _stop_later(self, timeout: Duration | None) -> bool:
        """Stop in another thread: the caller is part of what that waits for."""
        if not self._is_stopping:
            threading.Thread(target=self.stop, args=(timeout,), name="evenbeat-stop").start()
        return False

    def _is_inside(self) -> bool:
        """Return whether a hook, or a task, of this scheduler's node calls."""
        if self.node is None and not self._is_changing:
            return False
        if _in_hook.get() is self or self._hooks.is_here:
            return True
        log, node = current_log.get(), self.node
        return log is not None and node is not None and node.holds(log.run)

    def _call_hook(self, hook: Callable[..., Any], *arguments: object) -> None:
        token = _in_hook.set(self)
        try:
            self._hooks.call(hook, *arguments)
        finally:
            _in_hook.reset(token)

    def _call_on_stop(self) -> None:
        for hook in self.on_stop:
            try:
                self._call_hook(hook)
            except Exception:
                _log.exception("a hook raised", extra={"component": "scheduler", "hook": "on_stop"})


def _already_changing() -> InvalidValue:
    return InvalidValue(
        "the scheduler is being started or stopped, and this is part of that",
        field="start",
        value=True,
        hint="start it when that has ended",
    )


_all: weakref.WeakSet[Lifecycle] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for lifecycle in list(_all):
        lifecycle.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
