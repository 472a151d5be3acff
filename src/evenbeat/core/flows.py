"""Flows as users see them: a flow, a run of one, and its steps."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from evenbeat.core.flow_graphs import RunIf
from evenbeat.core.records import Kind, RunState


class FlowPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a run in a flow."""

    id: str
    """The id of the flow's run."""
    step: str
    index: int | None = None
    """Of an element of a map: its position in the list."""
    tick: datetime | None = None
    """The tick that started the flow, or the outermost one of flows within flows; None if a user did."""


class FlowStepInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a flow, as the flow describes it."""

    name: str
    task: str
    kind: Kind
    after: tuple[str, ...]
    """The steps that it waits for."""
    inputs: tuple[str, ...]
    """Those of them whose results it gets."""
    run_if: RunIf
    is_map: bool
    queue: str


class FlowInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A flow that is registered, or the graph that a run of it was started with."""

    name: str
    steps: tuple[FlowStepInfo, ...]
    """Each after those that it waits for."""
    result: str | None
    """The step whose result is the flow's."""
    version: str
    """The same for the same graph."""


class FlowStepRun(msgspec.Struct, frozen=True, kw_only=True):
    """A step in a run of a flow."""

    name: str
    task: str
    state: str
    """``waiting``, ``queued``, ``running``, ``succeeded``, ``failed``, ``cancelled``, ``not_run`` (a step
    before it failed, or the flow was stopped) or ``not_needed`` (no step before it failed, and it runs only
    then)."""
    run: str | None
    """The id of its run; None if it has none, and for maps."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    duration: timedelta | None = None
    error: str | None = None
    reason: str | None = None
    """Why it is in this state, where that needs words."""
    elements: int | None = None
    """Of a map that has begun: how many."""
    elements_open: int = 0
    elements_failed: int = 0
    elements_cancelled: int = 0
    attempt: int = 0
    round: int = 1
    """Counts how often the step was started anew, by ``resume`` or ``retry``."""


class FlowRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a flow, with its steps."""

    id: str
    tenant: str
    flow: str
    schedule: str | None
    state: RunState
    error: str | None
    payload: Any
    result: Any
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    duration: timedelta | None
    cancel_requested: bool
    outer: FlowPlace | None
    """The flow that this one is a step of."""
    graph: FlowInfo | None
    """The one that it was started with; before that, the one that is registered here, or None."""
    steps: tuple[FlowStepRun, ...]
