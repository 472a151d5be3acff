"""Flows in the answer to ``why``: what a running flow waits for, and which flow a step belongs to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from evenbeat.core.explanations import Fact
from evenbeat.core.flow_graphs import FlowGraph
from evenbeat.core.records import RunRecord
from evenbeat.observe.phrases import count
from evenbeat.observe.reasons import wait_reason
from evenbeat.rules.flow_parts import OPEN, WAITING, flow_part, step_name
from evenbeat.rules.waiting import Waiting

# How many steps a sentence names.
NAMED = 3


class OpenStep(NamedTuple):
    """An open step of a flow, and one of its runs that has not ended."""

    name: str
    run: RunRecord | None
    waiting: Waiting | None
    """Why that run waits, if it is queued."""


class FlowFacts(NamedTuple):
    """What the answer about a run says of its flow."""

    words: str = ""
    """The end of the sentence."""
    facts: tuple[Fact, ...] = ()


NO_FLOW = FlowFacts()


def open_words(steps: Sequence[OpenStep]) -> str:
    """Return what a flow waits for, for the end of a sentence."""
    if not steps:
        return ""
    names = [f"step {each.name} ({_state(each)})" for each in steps[:NAMED]]
    more = f" and {count(len(steps) - NAMED, 'other step')}" if len(steps) > NAMED else ""
    return f"; it waits for {', '.join(names)}{more}"


def _state(step: OpenStep) -> str:
    return "its run is gone" if step.run is None else step.run.state


def flow_facts(run: RunRecord, graph: FlowGraph | None, steps: Sequence[OpenStep]) -> list[Fact]:
    """Return what is known of a flow under way: how far it is, and why its queued steps wait."""
    state = flow_part(run).state
    if state is None or graph is None:
        return []
    ended = sum(letter not in (WAITING, OPEN) for letter in state.steps)
    facts = [Fact(text=f"{ended} of {count(len(state.steps), 'step')} have ended")]
    for at, letter in enumerate(state.steps):
        counted = state.maps.get(str(at))
        if letter == OPEN and counted is not None:
            done = counted.total - counted.open
            failed = f", {counted.failed} failed" if counted.failed else ""
            facts.append(
                Fact(
                    text=f"map {graph.steps[at].name}: {done} of {counted.total} elements have ended{failed}"
                )
            )
    for step in steps[:NAMED]:
        if step.run is not None and step.waiting is not None:
            words = _waits(step.run, step.waiting)
            facts.append(Fact(text=f"step {step.name} waits {words}: run {step.run.id}"))
    return facts


def _waits(run: RunRecord, waiting: Waiting) -> str:
    if waiting.reason in ("later", "retry", "unfit"):
        return {"later": "for its time", "retry": "for its next attempt"}.get(
            waiting.reason, "for a node whose code its payload fits"
        )
    if waiting.hold is not None:
        return f"for the limit {waiting.hold.limit.name}"
    return wait_reason(waiting.reason, run.task, run.queue, waiting.nodes)


def member_facts(run: RunRecord) -> list[Fact]:
    """Return which flow a step belongs to."""
    member = flow_part(run).member
    if member is None:
        return []
    element = "" if member.index is None else f", element {member.index}"
    return [Fact(text=f"step {step_name(run)}{element} of flow {member.flow}")]
