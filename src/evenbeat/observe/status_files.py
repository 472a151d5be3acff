"""Status files: how processes with a node report to ``evenbeat health`` on the same host.

One small file per process, in a folder that only its user can read, written every few seconds. The command
must answer within milliseconds, also while the store does not answer, so it only reads these files. This
module uses little of the standard library: importing more would take longer than the rest of the command.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Literal, NamedTuple, TypeAlias

EVERY = 5.0
"""Seconds between two writes."""
_FORMAT = 1
# A file is overwritten in place, in whole blocks, so that a full disk can't make it stale.
_BLOCK = 4096
_LARGEST = 1 << 22
_READS = 5

_log = logging.getLogger("evenbeat.status")

Kind: TypeAlias = Literal["node", "supervisor", "processor"]
"""``node``: a process without a supervisor; ``supervisor``; ``processor``: one that processes documents."""


class LoopStatus(NamedTuple):
    """A loop of a node. All times are by ``time.monotonic``, which the processes of a host share.

    The boot clock would count the time of a suspended machine as a delay.
    """

    name: str
    due: float
    """When its next step begins, at the latest; while it steps, when the step began."""
    failing_since: float | None = None
    error: str | None = None


class NodeStatus(NamedTuple):
    name: str
    pid: int
    loops: tuple[LoopStatus, ...] = ()
    broken: str | None = None
    """Why it can't go on in this process."""
    up: bool = True
    last_message: float | None = None
    """When its supervisor last received a heartbeat; None without a supervisor."""
    executing: bool = False
    """Whether a job runs, which may block the interpreter and so the heartbeat."""


class ProcessStatus(NamedTuple):
    """The content of one file."""

    kind: Kind
    name: str
    pid: int
    identity: str
    """Distinguishes this process from another one with the same pid, later or in another container."""
    written: float
    patience: float
    """The process counts as frozen after so many seconds without a write."""
    loops: tuple[LoopStatus, ...]
    """The loops of the supervisor itself."""
    nodes: tuple[NodeStatus, ...]


class Pauses:
    """Detects that this process was paused as a whole: frozen, suspended, or blocked by one of its threads.

    A loop that could not run is not late. ``longest`` is the longest gap between two calls of ``check`` in a
    process that runs.
    """

    def __init__(self, longest: float = 3 * EVERY) -> None:
        self._longest = longest
        self._checked = float("inf")
        self._resumed = float("-inf")

    def check(self, now: float) -> float:
        """Return when the process last resumed; minus infinity if it was never paused."""
        if now - self._checked > self._longest:
            self._resumed = now
        self._checked = now
        return self._resumed


def forgive(loops: tuple[LoopStatus, ...], resumed: float) -> tuple[LoopStatus, ...]:
    """Return the loops with no due time before the process resumed."""
    return tuple(loop._replace(due=max(loop.due, resumed)) for loop in loops)


class StatusWriter:
    """Writes the status of this process every few seconds, in a thread of its own."""

    def __init__(
        self,
        kind: Kind,
        name: str,
        patience: float,
        collect: Callable[[], tuple[tuple[LoopStatus, ...], tuple[NodeStatus, ...]]],
    ) -> None:
        """``collect`` returns the process's own loops and its nodes; it must not block."""
        self._kind = kind
        self._name = name
        self._patience = patience
        self._collect = collect
        self._pauses = Pauses()
        self._path: str | None = None
        self._closing = threading.Event()
        self._awake = threading.Event()
        self._thread = threading.Thread(target=self._work, name="evenbeat-status", daemon=True)

    def start(self) -> None:
        """Write the first status, delete files of processes that are gone, and keep writing."""
        for folder in folders():
            try:
                _make(folder)
                self._path = os.path.join(folder, f"{os.getpid()}-{os.urandom(4).hex()}")
                self.write()
            except OSError:
                self._path = None
                continue
            _sweep(folder)
            break
        else:
            _log.warning(
                "no status file can be written, 'evenbeat health' can't see this node",
                extra={"component": "status", "folders": list(folders())},
            )
        # Without a file, too: the thread notices that the process was paused.
        self._thread.start()

    def stop(self) -> None:
        """Stop writing, and delete the file. Safe to repeat."""
        self._closing.set()
        self._awake.set()
        if self._thread.is_alive():
            self._thread.join(EVERY)
        if self._path is not None:
            with suppress(OSError):
                os.unlink(self._path)
            self._path = None

    def write(self) -> None:
        """Write the status as it is now."""
        status, path = self.status(), self._path
        if path is None:
            return
        content = encode(status)
        # Opened anew each time: a job may have closed every descriptor of this process.
        file = os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            os.write(file, content)
            os.ftruncate(file, len(content))
        finally:
            os.close(file)

    def status(self) -> ProcessStatus:
        """Return the status as it is now."""
        now = time.monotonic()
        resumed = self._pauses.check(now)
        loops, nodes = self._collect()
        return ProcessStatus(
            kind=self._kind,
            name=self._name,
            pid=os.getpid(),
            identity=identity(os.getpid()) or "",
            written=now,
            patience=self._patience,
            loops=forgive(loops, resumed),
            nodes=tuple(node._replace(loops=forgive(node.loops, resumed)) for node in nodes),
        )

    def wake(self) -> None:
        """Write soon, since the status has changed."""
        self._awake.set()

    def _work(self) -> None:
        while True:
            self._awake.wait(EVERY)
            self._awake.clear()
            if self._closing.is_set():
                return
            try:
                self.write()
            except Exception:
                _log.debug("the status can't be written", exc_info=True)


def encode(status: ProcessStatus) -> bytes:
    text = json.dumps([_FORMAT, *status])
    content = f"{zlib.crc32(text.encode()):08x} {text}".encode()
    return content.ljust(-(-len(content) // _BLOCK) * _BLOCK)


def decode(content: bytes) -> ProcessStatus | None:
    """Return None if the file was read during a write, or comes from another version."""
    checksum, _, text = content.rstrip().partition(b" ")
    if checksum != f"{zlib.crc32(text):08x}".encode():
        return None
    number, *fields = json.loads(text)
    if number != _FORMAT:
        return None
    status = ProcessStatus(*fields)
    nodes = (NodeStatus(*node) for node in status.nodes)
    return status._replace(
        loops=_loops(status.loops), nodes=tuple(node._replace(loops=_loops(node.loops)) for node in nodes)
    )


def _loops(rows: tuple[LoopStatus, ...]) -> tuple[LoopStatus, ...]:
    return tuple(LoopStatus(*row) for row in rows)


def read_all() -> Iterator[ProcessStatus]:
    """Yield the statuses of this user's living processes on this host or in this container."""
    for folder in folders():
        if not _is_ours(folder):
            continue
        for entry in sorted(os.listdir(folder)):
            status = _read(os.path.join(folder, entry))
            if status is not None and is_alive(status):
                yield status


def folders() -> tuple[str, ...]:
    """Return the folders for status files, best first. A process uses the first that it can write to.

    There are several, since a service and a login shell of the same user differ in XDG_RUNTIME_DIR, and
    containers with a read-only root still have /dev/shm.
    """
    user = str(os.getuid()) if hasattr(os, "getuid") else "user"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    places = [os.path.join(runtime, "evenbeat")] if runtime else []
    places += [os.path.join(place, f"evenbeat-{user}") for place in ("/dev/shm", tempfile.gettempdir())]  # noqa: S108
    return tuple(place for place in places if os.path.isdir(os.path.dirname(place)))


def can_be_written() -> bool:
    """Return whether this user can write a status file anywhere."""
    return any(
        os.access(folder if os.path.isdir(folder) else os.path.dirname(folder), os.W_OK | os.X_OK)
        for folder in folders()
    )


def is_alive(status: ProcessStatus) -> bool:
    """Return whether the process that wrote it still exists and is visible from here."""
    found = identity(status.pid)
    if found is not None:
        return found == status.identity
    if os.path.isdir("/proc/self"):
        return False
    if os.name != "posix":
        # Windows has no harmless way to ask: a file that was not written lately counts as abandoned.
        return time.monotonic() - status.written < status.patience
    try:
        os.kill(status.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def identity(pid: int) -> str | None:
    """Return the process's namespace and start time; None if the system has no /proc, or it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the program, in parentheses, may contain anything.
            began = file.read().rpartition(b")")[2].split()[19].decode()
        return f"{os.readlink('/proc/self/ns/pid')} {began}"
    except (OSError, IndexError):
        return None


def _make(folder: str) -> None:
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    if not _is_ours(folder):
        raise PermissionError(f"{folder} belongs to somebody else")


def _is_ours(folder: str) -> bool:
    """Return whether the folder belongs to us: anybody may make one of that name in /dev/shm or /tmp."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    if not hasattr(os, "getuid"):
        return stat.S_ISDIR(found.st_mode)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _read(path: str) -> ProcessStatus | None:
    for number in range(_READS):
        if number:
            time.sleep(0.002)
        try:
            with open(path, "rb") as file:
                status = decode(file.read(_LARGEST))
        except (OSError, ValueError, TypeError):
            return None
        if status is not None:
            return status
    return None


def _sweep(folder: str) -> None:
    """Delete the files of processes that were killed."""
    with suppress(OSError):
        for entry in os.listdir(folder):
            path = os.path.join(folder, entry)
            status = _read(path)
            # Skip files of other containers, which may share the folder: their pids mean nothing here.
            mine = (identity(os.getpid()) or "").partition(" ")[0]
            if status is not None and status.identity.partition(" ")[0] == mine and not is_alive(status):
                os.unlink(path)
