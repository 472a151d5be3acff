"""What a process that executes tasks and its worker say to each other."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord


class Key(NamedTuple):
    """Which attempt is spoken of. A message about any but the present one is late, and counts for nothing."""

    run: str
    attempt: int


class Place(msgspec.Struct, frozen=True):
    """Where the function of a task is found: in a module, or in the script that the worker's process runs."""

    function: str
    """Its qualified name."""
    module: str | None = None
    file: str | None = None


class Execute(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Execute an attempt: the next message but those about it is ``Ended``."""

    run: RunRecord
    place: Place
    path: list[str]
    """``sys.path`` of the worker."""
    argv: list[str]
    """``sys.argv`` of the worker: a script may read it when it is imported."""
    level: int
    """Which log records are wanted."""


class Ask(msgspec.Struct, frozen=True, tag=True):
    """The attempt should end, for this reason."""

    of: Key
    reason: str


class Mine(msgspec.Struct, frozen=True, tag=True):
    """The answer to ``IsMine``."""

    question: int
    held: bool | None
    """None if nobody can say."""


class Began(msgspec.Struct, frozen=True, tag=True):
    """The attempt was received: from now on the death of the process is its own."""

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


class IsMine(msgspec.Struct, frozen=True, tag=True):
    """Is the lease still held?"""

    of: Key
    question: int
    """Its number: threads of a function may ask at once."""


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """How the function ended."""

    of: Key
    kind: Literal["returned", "raised", "unfit", "stopped"]
    result: str | None = None
    error: str | None = None


ToChild: TypeAlias = Execute | Ask | Mine
FromChild: TypeAlias = Began | Logged | Line | IsMine | Ended
