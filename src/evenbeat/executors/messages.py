"""The messages between a worker and the process that executes its tasks."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord
from evenbeat.tasks.follow_up import Following


class Key(NamedTuple):
    """The attempt that a message is about: its ``identity``. Receivers ignore late messages about an earlier
    attempt, which may be that of an earlier run of the same id."""

    run: str
    attempt: int
    claim: str | None


class Place(msgspec.Struct, frozen=True):
    """The location of a task's function: a module, or the script that the worker's process runs."""

    function: str
    """Its qualified name."""
    module: str | None = None
    file: str | None = None


class Execute(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Tells the process to execute an attempt. The process answers with ``Ended`` when the function has
    ended."""

    run: RunRecord
    place: Place
    path: list[str]
    """``sys.path`` of the worker."""
    argv: list[str]
    """``sys.argv`` of the worker: a script may read it when it is imported."""
    level: int
    """The lowest level of log records to send."""


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Asks the function to end, for this reason."""

    of: Key
    reason: str


class Mine(msgspec.Struct, frozen=True, tag=True):
    """The answer to ``IsMine``."""

    question: int
    held: bool | None
    """None if it is unknown, because the store does not answer."""


class Began(msgspec.Struct, frozen=True, tag=True):
    """The process has received the attempt. If the process dies from now on, this attempt has crashed it."""

    of: Key


class Logged(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A log record of the function, or of a thread that it has left behind."""

    of: Key | None
    logger: str
    level: int
    text: str
    at: float


class Line(msgspec.Struct, frozen=True, tag=True):
    """A line for the log of the run."""

    of: Key
    text: str
    at: Instant


class Progressed(msgspec.Struct, frozen=True, tag=True):
    """How far the function is."""

    of: Key
    done: float | int
    note: str
    total: float | int | None


class IsMine(msgspec.Struct, frozen=True, tag=True):
    """Asks whether the worker still holds the lease."""

    of: Key
    question: int
    """The number of the question: several threads of a function may ask at once."""


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """How the function ended."""

    of: Key
    kind: Literal["returned", "raised", "again", "unfit", "stopped"]
    result: str | None = None
    error: str | None = None
    delay: int | None = None
    final: str | None = None
    following: tuple[Following, ...] = ()


ToChild: TypeAlias = Execute | Ask | Mine
FromChild: TypeAlias = Began | Logged | Line | Progressed | IsMine | Ended
