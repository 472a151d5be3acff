"""A backlog: runs of a queue that have waited for long although live nodes could take them. Pure."""

from __future__ import annotations

from typing import NamedTuple

from evenbeat.core.attention import AttentionItem
from evenbeat.core.explanations import Fact
from evenbeat.core.instants import FIRST, LAST, Instant, from_ms
from evenbeat.observe.phrases import count, span

LONG_WAIT = 600_000
"""A run that live nodes could take has waited for long after so many ms."""
TOO_LONG_WAIT = 3_600_000
"""After so many ms, it is a failure."""
_OPTIONS = {
    "thread": "--thread-concurrency",
    "async": "--async-concurrency",
    "process": "--process-concurrency",
}


class Backlog(NamedTuple):
    """Runs of a queue that have waited for long. Reading them is bounded."""

    queue: str
    tenant: str | None
    """The only tenant that was asked for; None for all."""
    number: int
    more: bool
    """Whether there are others, which may have waited for longer."""
    since: Instant
    """Since when the oldest of them waits."""
    executor: str | None
    """The executor of the oldest one; None if the nodes do not tell it."""
    slots: tuple[int, int] | None
    """How many slots for the oldest one are in use on live nodes, and how many there are; None if the nodes
    do not tell it."""


def backlog_item(backlog: Backlog, now: Instant) -> AttentionItem:
    """Return what needs somebody. Its evidence with a time is about the runs, the other about the nodes."""
    waited = span(now - backlog.since)
    if backlog.more:
        who, how_long, them = f"{backlog.number:,} runs or more", f"{waited} or more", "them"
    else:
        who, how_long = count(backlog.number, "run"), f"up to {waited}"
        them = "it" if backlog.number == 1 else "them"
    have = "has" if them == "it" else "have"
    evidence = [Fact(text="the oldest waits since", at=from_ms(min(max(backlog.since, FIRST), LAST)))]
    if backlog.slots is not None:
        used, total = backlog.slots
        evidence.append(Fact(text=f"slots in use on the nodes that could take it: {used:,} of {total:,}"))
    option = "" if backlog.executor is None else _OPTIONS.get(backlog.executor, "")
    return AttentionItem(
        kind="waiting",
        level="fail" if now - backlog.since > TOO_LONG_WAIT else "warn",
        sentence=f"{who} of queue {backlog.queue} {have} waited for {how_long}, "
        f"though live nodes could take {them}.",
        evidence=tuple(evidence),
        remedy=f"start more nodes, or give them more slots: evenbeat run {option} N"
        if option
        else "start more nodes: evenbeat run",
        tenant=backlog.tenant,
        since=evidence[0].at,
        count=backlog.number,
    )
