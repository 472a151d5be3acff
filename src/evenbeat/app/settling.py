"""Ends of runs by hand: each continues its flow, and is announced as if a node had written it."""

from __future__ import annotations

from collections.abc import Sequence

from evenbeat.app.session import AppSession
from evenbeat.core.instants import Instant
from evenbeat.node.counting import Counting
from evenbeat.node.flow_work import FlowReports
from evenbeat.node.flows import End, FlowSettling
from evenbeat.node.signals import Signals


def settle_by_hand(session: AppSession, ends: Sequence[End], now: Instant) -> list[bool]:
    """Apply transitions that a user asked for; return which the store has accepted.

    Flows that end with them are logged, and leave an event in this process.
    """
    if not ends:
        return []
    settled = FlowSettling(session.store(), "app").settle(ends, now)
    if settled.ended:
        FlowReports(session.events, Counting(), Signals(), tasks=session.tasks).report(settled.ended, now)
    return settled.answers
