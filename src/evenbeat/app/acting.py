"""The actor: the person or program under whose name pauses, audit entries and tokens are recorded."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, NamedTuple, TypeAlias

from evenbeat.core.checks import check_text

Via: TypeAlias = Literal["python", "cli", "api"]
LONGEST_ACTOR = 200


class Actor(NamedTuple):
    """The person or program that a change is recorded under, and the way by which it came."""

    name: str
    via: Via = "python"


_actor: ContextVar[Actor | None] = ContextVar("evenbeat_actor", default=None)


@contextmanager
def acting_as(name: str, via: Via = "python") -> Iterator[Actor]:
    """Record changes inside the block under this actor. Threads that the block starts do not inherit it."""
    check_text("actor", name, LONGEST_ACTOR)
    actor = Actor(name, via)
    token = _actor.set(actor)
    try:
        yield actor
    finally:
        _actor.reset(token)


def current_actor() -> Actor:
    """Return the present actor: that of the innermost ``acting_as``, else the user of this process."""
    return _actor.get() or Actor(this_user())


def this_user() -> str:
    """Return the user of this process: user@host."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError, AttributeError):  # a container's user may have no name
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"
