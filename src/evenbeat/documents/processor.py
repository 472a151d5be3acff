"""The processor: what users hold. It works on the documents of a store until it is stopped."""

from __future__ import annotations

import inspect
import threading
from types import TracebackType
from typing import get_args

from evenbeat.documents.base import Documents
from evenbeat.documents.desk import Pace
from evenbeat.documents.rules import OnFailure, Policy
from evenbeat.documents.shift import Hook, Hooks, OnDocument, OnError, Shift
from evenbeat.durations import Duration, read_duration
from evenbeat.errors import InvalidValue, shown
from evenbeat.modules import is_looking
from evenbeat.signals import check_main_thread, until_signalled

# A lock is renewed at a third of it, by a thread that others may hold up.
_SHORTEST_LOCK = 100
_MOST = 10_000


class Processor:
    """Calls ``on_document`` for each document that is due, and sees to what becomes of it.

    Any number of processors, in any number of processes and on any number of machines, may work on the same
    documents: each document is processed by one at a time.

    :param documents: the store: ``MongoDocuments``, ``PostgresDocuments``, ``SqliteDocuments``,
        ``RedisDocuments`` or ``MemoryDocuments``.
    :param on_document: called with each ``Document``: ``def``, in a thread, or ``async def``.
    :param on_start: called by ``start``, before the first document.
    :param on_stop: called by ``stop``, after the last one.
    :param on_idle: called once whenever there is nothing left to do.
    :param on_error: called with an error, and with the document that it is about or None.
    :param lock_duration: for how long a document is locked; renewed while its handler runs. That long
        it takes until the document of a process that died is taken up by another one.
    :param next_delay: how long a slot rests after each document.
    :param reprocess_delay: how long after it was due a recurring document may be due again.
    :param idle_delay: how long to wait before looking again when nothing is due. 0 sleeps until the next
        document is due or ``hint`` is called, and looks once a second for documents that others have added.
    :param on_failure: what becomes of a document whose handler raised: ``reschedule`` for its next tick, and
        held if it has none; ``retry`` after ``retry_delay``; or ``hold`` for a person to look at.
    :param concurrency: how many documents at once.
    """

    def __init__(
        self,
        documents: Documents,
        on_document: OnDocument,
        *,
        on_start: Hook | None = None,
        on_stop: Hook | None = None,
        on_idle: Hook | None = None,
        on_error: OnError | None = None,
        lock_duration: Duration = "10m",
        next_delay: Duration = 0,
        reprocess_delay: Duration = 0,
        idle_delay: Duration = 0,
        on_failure: OnFailure = "reschedule",
        retry_delay: Duration = "1m",
        concurrency: int = 1,
    ) -> None:
        _check_documents(documents)
        _check_function(on_document, "on_document", "document")
        for hook, name in ((on_start, "on_start"), (on_stop, "on_stop"), (on_idle, "on_idle")):
            if hook is not None:
                _check_function(hook, name)
        if on_error is not None:
            _check_function(on_error, "on_error", "error", "document")
        self.documents = documents
        self._hooks = Hooks(on_document, on_start, on_stop, on_idle, on_error)
        self._pace = Pace(
            concurrency=_concurrency(concurrency),
            lock_duration=_lock_duration(lock_duration),
            next_delay=read_duration(next_delay, "next_delay"),
            idle_delay=read_duration(idle_delay, "idle_delay"),
        )
        self._policy = Policy(
            reprocess_delay=read_duration(reprocess_delay, "reprocess_delay"),
            on_failure=_on_failure(on_failure),
            retry_delay=read_duration(retry_delay, "retry_delay"),
        )
        self._shift: Shift | None = None
        # Hooks may start and stop it, too.
        self._guard = threading.RLock()

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not told to stop since."""
        shift = self._shift
        return shift is not None and not shift.is_ending

    @property
    def is_processing(self) -> bool:
        """Whether a document is in hand."""
        shift = self._shift
        return shift is not None and shift.desk.is_processing

    @property
    def is_idle(self) -> bool:
        """Whether it runs and there is nothing to do."""
        shift = self._shift
        return shift is not None and not shift.is_ending and shift.desk.is_idle

    def start(self) -> None:
        """Begin, in threads of its own. A mistake in what was said about the documents is raised here; a
        database that is away is waited for. Does nothing if it runs already."""
        if is_looking():
            return  # somebody imports the module to see what it has
        ending = self._shift
        if ending is not None and ending.is_ending and not ending.is_here:
            ending.over.wait()
        with self._guard:
            if self._shift is not None:
                return
            # There already when on_start is called.
            self._shift = Shift(self.documents, self._hooks, self._pace, self._policy)
            try:
                self._shift.start()
            except BaseException:
                self._shift = None
                raise

    def stop(self, timeout: Duration | None = None) -> bool:
        """Take nothing more, wait for the documents in hand, and end. With a timeout, wait no longer than
        that: False says that some were still in hand. They stay locked until the lock ends, and are processed
        again after that.

        A hook or a handler that calls it does not wait, which would be for itself: it gets False, and all
        ends when it has returned."""
        patience = None if timeout is None else read_duration(timeout, "timeout") / 1000
        shift = self._shift
        if shift is not None and shift.is_here:
            shift.desk.drain()
            if not shift.is_ending:
                threading.Thread(target=self.stop, args=(timeout,), name="evenbeat-documents-stop").start()
            return False
        with self._guard:
            shift = self._shift
            if shift is None:
                return True
            is_first, shift.is_ending = not shift.is_ending, True
        if not is_first:
            return shift.over.wait(patience) and shift.is_done
        try:
            return shift.stop(patience)
        finally:
            self._shift = None
            shift.over.set()

    def run(self) -> bool:
        """Work until SIGINT or SIGTERM comes, and stop then; or until a hook or a handler calls ``stop``. A
        second signal does not wait for what is in hand. Answers as ``stop`` does."""
        if is_looking():
            return True
        check_main_thread()
        started: list[Shift] = []

        def start() -> None:
            self.start()
            if self._shift is not None:  # else a hook has stopped it already
                started.append(self._shift)

        until_signalled(
            hurry=self._hurry, over=lambda: all(shift.is_ending for shift in started), start=start
        )
        return self.stop() and all(shift.is_done for shift in started)

    def _hurry(self) -> None:
        shift = self._shift
        if shift is not None:
            shift.hurry()

    def hint(self) -> None:
        """Look now: a document was added that is due. Without it, that is noticed within a second; what
        others add to a large Redis by HSET, when ``RedisDocuments`` says so."""
        shift = self._shift
        if shift is not None:
            shift.desk.hint()

    def __enter__(self) -> Processor:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _check_documents(documents: object) -> None:
    if not callable(getattr(documents, "lock_next", None)):
        raise InvalidValue(
            f"documents {shown(documents)} is no store of documents", field="documents", value=documents,
            hint="wrap it: MongoDocuments(…), PostgresDocuments(…), MemoryDocuments(…)",
        )  # fmt: skip


def _check_function(function: object, name: str, *parameters: str) -> None:
    """Refuse what can't be called with so many arguments: each document would fail by it."""
    wanted = f"a def or async def {name}({', '.join(parameters)})"
    if not callable(function):
        raise InvalidValue(
            f"{name} {shown(function)} is not a function", field=name, value=function,
            hint=f"give {wanted}, and do not call it yourself",
        )  # fmt: skip
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return  # of something built in, that does not say
    try:
        signature.bind(*parameters)
    except TypeError as error:
        called = getattr(function, "__name__", shown(function))
        raise InvalidValue(
            f"{name} {called}{signature} can't be called with {len(parameters)} arguments: {error}",
            field=name, value=called, hint=f"give {wanted}",
        ) from None  # fmt: skip


def _concurrency(value: int) -> int:
    if type(value) is int and 1 <= value <= _MOST:
        return value
    raise InvalidValue(
        f"concurrency {shown(value)} is not a number from 1 to {_MOST}", field="concurrency", value=value
    )


def _lock_duration(value: Duration) -> int:
    ms = read_duration(value, "lock_duration")
    if ms < _SHORTEST_LOCK:
        raise InvalidValue(
            f"lock_duration {shown(value)} is too short", field="lock_duration", value=value,
            hint="100ms at least, and better some seconds: a lock is renewed at a third of it",
        )  # fmt: skip
    return ms


def _on_failure(value: OnFailure) -> OnFailure:
    if value in get_args(OnFailure):
        return value
    raise InvalidValue(
        f"on_failure {shown(value)} is not known", field="on_failure", value=value,
        hint=f"there are {', '.join(get_args(OnFailure))}",
    )  # fmt: skip
