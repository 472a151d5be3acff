"""The settings of a node: how many runs it executes at once, its lease, how often it looks for work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, TypedDict, cast

import msgspec

from evenbeat.config import Settings
from evenbeat.core.durations import Duration
from evenbeat.core.options import NODE
from evenbeat.tasks.options import refuse_unknown

ScheduleMode: TypeAlias = Literal["durable", "code"]


class NodeOptions(TypedDict, total=False):
    """The types of a node's options, which ``core.options`` describes; for type checkers."""

    thread_concurrency: int
    async_concurrency: int
    process_concurrency: int
    queues: Iterable[str]
    lease: Duration
    poll_interval: Duration
    drain_timeout: Duration
    retention: Duration
    schedule_mode: ScheduleMode
    timeline_period: Duration
    timeline_lookahead: Duration
    public_url: str | None
    allow_private_webhooks: Iterable[str]


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The same options after they were read; durations in milliseconds."""

    thread_concurrency: int = NODE["thread_concurrency"].default
    async_concurrency: int = NODE["async_concurrency"].default
    process_concurrency: int = NODE["process_concurrency"].default
    queues: tuple[str, ...] = NODE["queues"].default
    lease: int = NODE["lease"].default
    poll_interval: int = NODE["poll_interval"].default
    drain_timeout: int = NODE["drain_timeout"].default
    retention: int = NODE["retention"].default
    schedule_mode: ScheduleMode = NODE["schedule_mode"].default
    timeline_period: int = NODE["timeline_period"].default
    timeline_lookahead: int = NODE["timeline_lookahead"].default
    public_url: str | None = NODE["public_url"].default
    allow_private_webhooks: tuple[str, ...] = NODE["allow_private_webhooks"].default


def read_node_settings(options: Mapping[str, Any]) -> NodeSettings:
    """Return the settings that the options set; ``InvalidValue`` for an option that can't be read."""
    refuse_unknown(options, NODE, "a scheduler")
    return NodeSettings(**{name: NODE[name].read(value) for name, value in options.items()})


def node_options(settings: Settings) -> NodeOptions:
    """Return the node's options that a flag, a variable or a file sets; code may set the others."""
    return cast(NodeOptions, {name: settings[name] for name in NODE if settings.is_set(name)})
