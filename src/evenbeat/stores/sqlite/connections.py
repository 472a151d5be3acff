"""The connections to the file, transactions on them, and forks.

One connection writes, guarded by a lock: SQLite has one writer at a time anyway, and a thread that waits
for a lock wakes up at once, while a connection that gets SQLITE_BUSY sleeps and tries again. Readers use
other connections, from a small pool: with WAL they see the last commit and never wait.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from evenbeat.errors import SchemaTooNew, StoreUnavailable
from evenbeat.processes.descriptors import DescriptorProbe
from evenbeat.stores.sqlite import schema
from evenbeat.stores.sqlite.session import OnCommand, Session, is_busy, unavailable

IDLE_READERS = 4
# The size of the WAL, in pages, at which SQLite moves it into the file. With SQLite's default of 1,000,
# each batch of 2,000 ticks does that, and a commit costs 1.5 times as much.
CHECKPOINT = 4000
# After a checkpoint, SQLite truncates a WAL that grew in a burst to this size.
WAL_SIZE = 64 << 20


_FORKED = (
    "this process was forked during a transaction on this file, so SQLite's locks are not reliable "
    "here; fork between two calls, or start a new process"
)
_CLOSED = (
    "code in this process closed all its files (os.closerange?), and so released SQLite's locks on this one; "
    "start a new process, and close only your own files"
)


class Connections:
    """The writer and the readers of one file in one process. Survives forks; see ``prepare_fork``."""

    def __init__(self, path: str, busy_timeout: float, on_command: OnCommand | None) -> None:
        self.path = path
        self._busy_timeout = busy_timeout
        self._on_command = on_command
        self._opened = False
        self._stranded: str | None = None
        """Why this process must not use the file any more."""
        self._file: tuple[int, int] | None = None
        """The open file: (device, inode)."""
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._writing = threading.Lock()
        self._state = threading.Condition()
        self._forking = False
        self._users: list[int] = []
        self._writer: Session | None = None
        self._in_use: list[Session] = []
        self._readers: list[Session] = []
        self._probe: DescriptorProbe | None = None

    def open(self) -> None:
        """Create or upgrade the file and its tables."""
        folder = os.path.dirname(self.path)
        if not os.path.isdir(folder):
            raise StoreUnavailable(f"{self.path}: the folder {folder} does not exist; make it first")
        self._check_stranded()
        was_open, self._opened = self._opened, True
        try:
            # Under the writer's lock: other threads may open or write at the same time.
            with self._writing_turn(), self._lent(self._take_writer, self._keep_writer, create=True) as held:
                self._use_wal(held)
                self._upgrade(held)
        except BaseException:
            if not was_open:
                self.close()
            raise

    def close(self) -> None:
        """Close every idle connection now, and those in use when they are returned."""
        self._check_descriptors()
        with self._state:
            self._opened = False
            idle = self._idle()
            self._readers, self._writer, self._file = [], None, None
            if self._probe is not None and not self._users:
                self._probe.close()
                self._probe = None
        self._discard(idle)

    def _idle(self) -> list[Session]:
        return [*self._readers, *([self._writer] if self._writer else [])]

    @contextlib.contextmanager
    def write(self) -> Iterator[Session]:
        """Open a transaction that holds the write lock, commit it at the end, and roll it back on any error.

        BEGIN IMMEDIATE takes the lock before the first read. A deferred transaction takes it at the first
        write, and fails there at once if another connection wrote since its first read.
        """
        with self._writing_turn():
            with self._lent(self._take_writer, self._keep_writer) as held:
                try:
                    held.begin(self._busy_timeout)
                    yield held
                    held.run("commit", "COMMIT")
                except BaseException:
                    held.roll_back()
                    raise
            # The connection is back in the pool: if this raises, the store is committed and usable.
            held.announce("committed")

    def read(self) -> contextlib.AbstractContextManager[Session]:
        """Open a connection for single queries."""
        return self._lent(self._take_reader, self._keep_reader)

    @contextlib.contextmanager
    def _writing_turn(self) -> Iterator[None]:
        self._check_process()
        turn = self._writing
        if not turn.acquire(timeout=self._busy_timeout):
            raise StoreUnavailable(f"{self.path}: another thread is writing; try again")
        try:
            yield
        finally:
            turn.release()

    @contextlib.contextmanager
    def _lent(
        self, take: Callable[[], Session | None], keep: Callable[[Session], bool], create: bool = False
    ) -> Iterator[Session]:
        self._check_process()
        me = threading.get_ident()
        pid = self._pid
        with self._state:
            # Threads that use a connection already may go on: the fork waits for them.
            while self._forking and me not in self._users:
                self._state.wait()
            self._users.append(me)
            held = take()
            if held is not None:
                self._in_use.append(held)
        try:
            if held is None:
                held = self._connect(create)
                with self._state:
                    self._in_use.append(held)
            yield held
        finally:
            # In the child of a fork inside this block, the connection belongs to the parent.
            if pid == os.getpid():
                with self._state:
                    self._users.remove(me)
                    if held is not None and held in self._in_use:
                        self._in_use.remove(held)
                    kept = held is not None and not held.broken and self._opened and keep(held)
                    if self._forking:
                        self._state.notify_all()
                if held is not None and not kept:
                    self._check_descriptors()
                    self._discard([held])

    def _discard(self, unused: list[Session]) -> None:
        if self._stranded is None:
            for held in unused:
                held.connection.close()
        else:
            _abandoned.extend(unused)

    def _take_writer(self) -> Session | None:
        held, self._writer = self._writer, None
        return held

    def _keep_writer(self, held: Session) -> bool:
        self._writer = held
        return True

    def _take_reader(self) -> Session | None:
        return self._readers.pop() if self._readers else None

    def _keep_reader(self, held: Session) -> bool:
        if len(self._readers) >= IDLE_READERS:
            return False
        self._readers.append(held)
        return True

    def _check_stranded(self) -> None:
        if self._stranded is not None:
            raise StoreUnavailable(f"{self.path}: {self._stranded}")

    def _check_descriptors(self) -> None:
        """Refuse to go on if the file's descriptors were closed without SQLite: its locks are gone, and its
        writes may go into another file that was opened since. A database lost its tables that way."""
        with self._state:
            if self._probe is None or self._probe.is_intact():
                return
            self._stranded = _CLOSED
            self._discard([*self._in_use, *self._idle()])
            self._readers, self._writer, self._opened = [], None, False

    def _connect(self, create: bool) -> Session:
        self._check_stranded()
        if not self._opened:
            raise StoreUnavailable(f"{self.path}: the store is not open; call open() first")
        # Only open() creates a file: one that was moved away must not be replaced by an empty one.
        uri = f"{Path(self.path).as_uri()}?mode={'rwc' if create else 'rw'}"
        try:
            connection = sqlite3.connect(
                uri,
                uri=True,
                timeout=self._busy_timeout,
                isolation_level=None,  # transactions begin where this module says so
                check_same_thread=False,  # the lock and the pool see to it
                cached_statements=256,
            )
        except sqlite3.Error as error:
            raise unavailable(self.path, error) from error
        held = Session(connection, self.path, self._on_command)
        with self._state:
            if self._probe is None:
                self._probe = DescriptorProbe()
            if self._file is None:
                self._file = self._identify_file()
        try:
            held.run("set up", "PRAGMA synchronous = FULL")
            held.run("set up", "PRAGMA trusted_schema = OFF")
            held.run("set up", f"PRAGMA wal_autocheckpoint = {CHECKPOINT}")
            held.run("set up", f"PRAGMA journal_size_limit = {WAL_SIZE}")
        except BaseException:
            connection.close()
            raise
        return held

    def _use_wal(self, held: Session) -> None:
        """Switch the file to WAL, permanently. SQLite does not wait for the lock, so this method does."""
        deadline = time.monotonic() + self._busy_timeout
        while True:
            try:
                ((mode,),) = held.rows("set up", "PRAGMA journal_mode = WAL")
                break
            except StoreUnavailable as error:
                if not is_busy(error.__cause__) or time.monotonic() >= deadline:
                    raise
            time.sleep(0.01)
        if mode != "wal":
            raise StoreUnavailable(
                f"{self.path}: no write-ahead log here, the journal is {mode}; use a local file system"
            )

    def _upgrade(self, held: Session) -> None:
        if self._version(held) == schema.KNOWN:
            return
        try:
            held.begin(self._busy_timeout)
            # Another process may have upgraded the file meanwhile.
            version = self._version(held)
            if version < schema.KNOWN:
                held.run("create meta", schema.META)
            for number, statements in schema.migrations_from(version):
                for statement in statements:
                    held.run("upgrade schema", statement)
                held.run("set schema version", schema.SET_VERSION, (str(number),))
            held.run("commit", "COMMIT")
        except BaseException:
            held.roll_back()
            raise
        held.announce("committed")

    def _version(self, held: Session) -> int:
        if not held.rows("select schema version", schema.FIND_META):
            return 0
        found = held.rows("select schema version", schema.GET_VERSION)
        try:
            version = int(found[0][0]) if found else 0
        except ValueError:
            raise StoreUnavailable(f"{self.path}: schema version {found[0][0]!r} is not a number") from None
        if version > schema.KNOWN:
            raise SchemaTooNew(version, schema.KNOWN)
        return version

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            self.after_fork_in_child()
        self._check_descriptors()
        self._check_file()

    def _identify_file(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _check_file(self) -> None:
        """Refuse to write to a file that was moved away, replaced or deleted: no process would read it.

        A new file of that name is not opened: the log (``-wal``) beside it belongs to the old file, and
        SQLite would apply it to the new one.
        """
        if self._file is None or (found := self._identify_file()) == self._file:
            return
        if found is None:
            raise StoreUnavailable(
                f"{self.path}: the file was moved away or deleted while it was open; put it back, or start "
                "this process anew to begin with an empty one"
            )
        raise StoreUnavailable(
            f"{self.path}: the file was replaced by another one while it was open; put it back, or stop all "
            f"processes that use it, delete {self.path}-wal and -shm, put the other one in place and start "
            "them again"
        )

    def prepare_fork(self) -> None:
        """Close everything before a fork; parent and child connect again when they need to.

        SQLite keeps its locks per file and process, in memory that a child inherits: a connection that the
        child opens beside an inherited one assumes that it holds these locks. When the parent then closes,
        it is the last connection that it knows of and deletes the WAL that the child writes to. Commits
        were lost that way when the child merely did not use the inherited handle.
        """
        self._check_descriptors()
        with self._state:
            if threading.get_ident() in self._users:
                return  # a fork inside a transaction: calls in the child will fail
            # From here on other threads wait: busy ones would delay the fork for ever.
            self._forking = True
            self._state.wait_for(lambda: not self._users, timeout=self._busy_timeout + 1)
            idle = self._idle()
            self._readers, self._writer = [], None
            self._discard(idle)

    def after_fork_in_parent(self) -> None:
        with self._state:
            self._forking = False
            self._state.notify_all()

    def after_fork_in_child(self) -> None:
        """Start with new locks. Threads that do not exist here may hold the old ones."""
        if self._pid == os.getpid():
            return
        self._state = threading.Condition()
        self._check_descriptors()
        in_use, idle = self._in_use, self._idle()
        if self._probe is not None:
            self._probe.close()
        self._reset()
        # Forks in C code, of which Python does not know, leave idle connections. Closing them releases the
        # memory described above; the parent keeps its locks.
        self._discard(idle)
        if in_use:
            _abandoned.extend(in_use)
            self._opened, self._stranded = False, _FORKED


_all: weakref.WeakSet[Connections] = weakref.WeakSet()
# Connections that were in use at a fork: never closed here, since that would roll back in the file.
_abandoned: list[Session] = []


def _each(call: Callable[[Connections], None]) -> Callable[[], None]:
    def hook() -> None:
        for connections in list(_all):
            call(connections)

    return hook


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_each(Connections.prepare_fork),
        after_in_parent=_each(Connections.after_fork_in_parent),
        after_in_child=_each(Connections.after_fork_in_child),
    )
