"""``follow_up``: what a task returns to have other runs added in the same step in which its own run ends."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from evenbeat.core.checks import LONGEST_RUN_ID
from evenbeat.core.ids import nonce_of
from evenbeat.core.instants import Instant
from evenbeat.core.json_text import to_json
from evenbeat.core.records import RunRecord
from evenbeat.errors import InvalidValue, shown
from evenbeat.tasks.task import Call, Tasks

MOST_FOLLOW_UPS = 10_000


class FollowUp:
    """The runs that follow, and the result of the task itself."""

    __slots__ = ("calls", "result")

    def __init__(self, calls: tuple[Call, ...], result: Any) -> None:
        self.calls = calls
        self.result = result


class Following(NamedTuple):
    """A run that follows, as executors report it."""

    task: str
    payload: str


def follow_up(*calls: Call, result: Any = None) -> FollowUp:
    """Return this from a task to add runs when its own run succeeds: ``return follow_up(send.bind(to=…))``.

    They are added in the same step of the store in which the run ends: all of them, once, or none if the
    attempt fails. They are ordinary runs; a flow does not wait for those that its steps add. ``result`` is
    the result of the task.
    """
    for call in calls:
        if not isinstance(call, Call):
            raise InvalidValue(
                f"{shown(call)} is not a task with its arguments",
                field="calls",
                value=call,
                hint="give task.bind(…)",
            )
    if len(calls) > MOST_FOLLOW_UPS:
        raise InvalidValue(
            f"{len(calls):,} runs are too many to follow one, {MOST_FOLLOW_UPS:,} are the most",
            field="calls",
            value=len(calls),
        )
    return FollowUp(calls, result)


def following(follow: FollowUp) -> tuple[Following, ...]:
    """Return the runs that follow, with their payloads as JSON."""
    return tuple(Following(call.task, to_json(call.payload)) for call in follow.calls)


def follow_up_runs(
    run: RunRecord, following: Sequence[Following], tasks: Tasks, now: Instant
) -> tuple[RunRecord, ...]:
    """Return the runs that follow a run. Their ids come from its own, so a repetition adds nothing. If a user
    has chosen that one, they have a random part: they are never given twice, and no other run has them."""
    nonce = nonce_of(run.id, run.created_at, run.claim)
    base = f"{run.id}.{nonce}" if nonce else run.id
    if len(base) > LONGEST_RUN_ID - 10:
        base = blake2b(base.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    runs: list[RunRecord] = []
    for number, (task, payload) in enumerate(following):
        known = tasks.get(task)
        own: dict[str, Any] = {}
        if known is not None:
            own = {
                "kind": known.kind,
                "queue": known.queue,
                "priority": known.priority,
                "execution": known.execution,
            }
        runs.append(
            RunRecord(
                id=f"{base}+{run.attempt}.{number}",
                tenant=run.tenant,
                task=task,
                payload=payload,
                scheduled_at=now,
                run_at=now,
                created_at=now,
                trace=run.trace,
                **own,
            )
        )
    return tuple(runs)
