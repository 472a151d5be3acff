"""What the row of a run keeps about its flow: of a step, its place; of a flow, the states of its steps. Pure.

Both are the JSON text ``RunRecord.flow``. A flow within a flow has both.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec

from evenbeat.core.checks import LONGEST_RUN_ID
from evenbeat.core.flows import FlowPlace
from evenbeat.core.ids import nonce_of
from evenbeat.core.instants import Instant, from_ms
from evenbeat.core.records import ACTIVE_STATES, RunRecord

StepState: TypeAlias = Literal["waiting", "open", "succeeded", "failed", "cancelled", "not_run", "not_needed"]
"""``open``: its run, or some of its elements, are queued or running. ``not_run``: a step before it failed.
``not_needed``: ``run_if`` does not hold, since no step before it failed."""

WAITING, OPEN, SUCCEEDED, FAILED, CANCELLED, NOT_RUN, NOT_NEEDED = ".", "o", "s", "f", "c", "n", "u"
STEP_STATES: dict[str, StepState] = {
    WAITING: "waiting",
    OPEN: "open",
    SUCCEEDED: "succeeded",
    FAILED: "failed",
    CANCELLED: "cancelled",
    NOT_RUN: "not_run",
    NOT_NEEDED: "not_needed",
}
UNENDED = frozenset((WAITING, OPEN))
UNSUCCESSFUL = frozenset((FAILED, CANCELLED, NOT_RUN))


WHAT_FAILED = -1
"""In place of a step that is run again: all that failed."""


class Member(msgspec.Struct, frozen=True, omit_defaults=True):
    """The place of a run in a flow."""

    flow: str
    """The id of the flow's run."""
    graph: str
    """The key of the flow's graph."""
    step: int
    index: int | None = None
    """Of an element of a map: its position in the list."""
    round: int = 1
    """Counts how often the step was started anew, by ``resume`` or ``retry``."""
    used: bool = False
    """Whether other steps get its result, or the flow returns it."""
    tick: Instant | None = None
    """The tick of the outermost flow; None if no tick started it."""
    nonce: str = ""
    """That of the flow's state: it tells the flow from an earlier one of the same id."""


class Elements(msgspec.Struct, frozen=True, array_like=True):
    """Counts of the elements of a map."""

    total: int
    open: int
    failed: int = 0
    cancelled: int = 0


class FlowState(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a flow is. Each change of it counts the attempt of the flow's run up, and compares it."""

    graph: str
    steps: str
    """A letter for each step, in the order of the graph: see ``STEP_STATES``."""
    maps: Mapping[str, Elements] = {}
    """Of maps that have begun, by the position of the step as text."""
    rounds: Mapping[str, int] = {}
    """Of steps that were started anew."""
    deadline: Instant | None = None
    """When the flow has timed out."""
    stop: Literal["", "cancelled", "timeout"] = ""
    """Why no further step starts."""
    problem: str = ""
    """The first failure, in a sentence."""
    notes: Mapping[str, str] = {}
    """Why steps failed that have no run: a map over something that is not a list."""
    nonce: str = ""
    """Part of the ids of its steps, if a user has chosen the id of the flow: the steps of a later flow with
    that id have other ids, and so does every other run."""
    resume: int | None = None
    """Of a flow that has ended and waits in the queue to continue: the step to run again, or WHAT_FAILED."""

    def round(self, step: int) -> int:
        return self.rounds.get(str(step), 1)

    def letter(self, step: int) -> str:
        """Return the letter of a step; an empty text if there is no such step."""
        return self.steps[step] if 0 <= step < len(self.steps) else ""

    def fits(self, steps: int) -> bool:
        """Return whether it may be the state of a graph with so many steps: it was not edited by hand."""
        return len(self.steps) == steps and STEP_STATES.keys() >= set(self.steps)


class FlowPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the row of a run keeps about its flow."""

    member: Member | None = None
    state: FlowState | None = None


_NONE = FlowPart()
_decoder = msgspec.json.Decoder(FlowPart)
_encoder = msgspec.json.Encoder()


# Cached: the elements of a map are read by several functions, one after the other.
@lru_cache(maxsize=1024)
def _read(text: str) -> FlowPart:
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return _NONE  # edited by hand: an ordinary run


def flow_part(run: RunRecord) -> FlowPart:
    """Return what the row of a run keeps about its flow; nothing for a run without one. 0.05 us then."""
    return _NONE if run.flow is None else _read(run.flow)


def belongs_to(run: RunRecord, flow: RunRecord) -> bool:
    """Return whether a run is one of a flow's steps. The ids alone do not tell: users choose ids, too, and an
    earlier flow may have had the same."""
    member, state = flow_part(run).member, flow_part(flow).state
    if member is None or state is None:
        return False
    return (member.flow, member.nonce) == (flow.id, state.nonce)


def are_of_one_flow(run: RunRecord, other: RunRecord) -> bool:
    """Return whether two runs are steps of the same flow."""
    one, two = flow_part(run).member, flow_part(other).member
    if one is None or two is None:
        return False
    return (one.flow, one.nonce) == (two.flow, two.nonce)


def part_text(member: Member | None = None, state: FlowState | None = None) -> str:
    return _encoder.encode(FlowPart(member, state)).decode()


def is_begun(run: RunRecord) -> bool:
    """Return whether a run is a flow that has begun: no worker holds it while its steps run. One that waits
    in the queue to continue after its end has not."""
    state = None if run.flow is None else _read(run.flow).state
    return state is not None and (state.resume is None or run.state not in ACTIVE_STATES)


def is_step(run: RunRecord) -> bool:
    """Return whether a run is a step of a flow, or an element of a map."""
    return flow_part(run).member is not None


def new_nonce(flow: RunRecord) -> str:
    """Return the nonce of a claimed flow that begins. A flow within a flow needs none: its id is never given
    twice."""
    return "" if is_step(flow) else nonce_of(flow.id, flow.created_at, flow.claim)


def step_run_id(flow: str, step: str, number: int = 1, index: int | None = None, *, nonce: str = "") -> str:
    """Return the id of a step's run: derived, so that adding it again adds nothing. ``number`` counts how
    often the step was started anew."""
    if nonce:
        flow = f"{flow}.{nonce}"
    tail = f"~{step}" + (f"@{number}" if number > 1 else "") + ("" if index is None else f"~{index}")
    if len(flow) + len(tail) > LONGEST_RUN_ID:
        flow = blake2b(flow.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return flow + tail


def step_name(run: RunRecord) -> str | None:
    """Return the name of the step that a run belongs to, which its id contains; None if it is not a step."""
    member = flow_part(run).member
    if member is None:
        return None
    tail = run.id if member.index is None else run.id.removesuffix(f"~{member.index}")
    return tail.rpartition("~")[2].partition("@")[0]


def flow_place(run: RunRecord) -> FlowPlace | None:
    """Return the place of a run in a flow, as users see it; None if it is not a step."""
    member = flow_part(run).member
    if member is None:
        return None
    tick = None if member.tick is None else from_ms(member.tick)
    return FlowPlace(id=member.flow, step=step_name(run) or "", index=member.index, tick=tick)
