"""How a node works: how much at once, for how long, how often it looks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, cast

import msgspec

from evenbeat.config import Settings
from evenbeat.core.checks import check_label
from evenbeat.core.durations import Duration, read_duration
from evenbeat.errors import InvalidValue, shown
from evenbeat.tasks.options import refuse_unknown


class NodeOptions(TypedDict, total=False):
    """What a user may say about how a node works."""

    thread_concurrency: int
    """How many ``def`` tasks run at once (10)."""
    async_concurrency: int
    """How many ``async def`` tasks run at once (100). An API that they call gets as many requests at once:
    lower it for one that limits them."""
    process_concurrency: int
    """How many ``executor="process"`` tasks run at once, each in a process (the number of cores)."""
    queues: Iterable[str]
    """The queues to take runs from (default)."""
    lease: Duration
    """How long a run stays with a worker that is not heard of (30s)."""
    poll_interval: Duration
    """How often to look without a hint (30s). A store that can't be told comes back each second by itself."""
    drain_timeout: Duration
    """How long running jobs may take to end when the node stops (30s)."""
    retention: Duration
    """How long finished runs are kept (30d)."""


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The same, read; durations in milliseconds."""

    thread_concurrency: int = 10
    async_concurrency: int = 100
    process_concurrency: int = msgspec.field(default_factory=lambda: os.cpu_count() or 1)
    queues: tuple[str, ...] = ("default",)
    lease: int = 30_000
    poll_interval: int = 30_000
    drain_timeout: int = 30_000
    retention: int = 30 * 86_400_000


_DURATIONS = {"lease": 1_000, "poll_interval": 10, "drain_timeout": 0, "retention": 0}
"""With the shortest that makes sense."""
_COUNTS = ("thread_concurrency", "async_concurrency", "process_concurrency")


def read_node_settings(options: Mapping[str, Any]) -> NodeSettings:
    """The settings that the options say, refused where they make no sense."""
    refuse_unknown(options, NodeSettings.__struct_fields__, "a scheduler")
    said: dict[str, Any] = {}
    for name, value in options.items():
        if name in _DURATIONS:
            said[name] = read_duration(value, name)
            if said[name] < _DURATIONS[name]:
                raise InvalidValue(
                    f"{name} {shown(value)} is shorter than {_DURATIONS[name]} ms", field=name, value=value
                )
        elif name in _COUNTS:
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 10_000:
                raise InvalidValue(
                    f"{name} {shown(value)} is not a whole number of 1 to 10,000", field=name, value=value
                )
            said[name] = value
        else:
            said[name] = (value,) if isinstance(value, str) else tuple(value)
            for queue in said[name]:
                check_label(queue, "queue")
            if not said[name]:
                raise InvalidValue("queues are none", field=name, value=value, hint='write "default"')
    return NodeSettings(**said)


def node_options(settings: Settings) -> NodeOptions:
    """What the settings say about a node: only what somebody said, so that code may say the rest."""
    names = NodeSettings.__struct_fields__
    return cast(NodeOptions, {name: settings[name] for name in names if settings.is_said(name)})
