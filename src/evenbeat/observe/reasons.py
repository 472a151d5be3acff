"""Reasons in words: why ticks did not run, and why a run has not started yet."""

from __future__ import annotations

from evenbeat.core.masking import MASK, is_secret
from evenbeat.core.rates import write_rate
from evenbeat.core.records import Overlap, Reason
from evenbeat.core.results import WaitReason
from evenbeat.rules.dependencies import MOST_SUCCESSES
from evenbeat.rules.limits import Limit
from evenbeat.rules.waiting import Hold, Lack

_SKIPPED: dict[Reason, str] = {
    "coalesced": "missed; a later run stands for {them} (catch-up latest)",
    "late": "found later than the catch-up policy allows (grace, catch_up_max_age)",
    "limit": "more were missed than the catch-up limit",
    "overlap": "the run before was still active (overlap skip)",
    "paused": "the schedule was paused",
    "changed": "still waiting when the schedule was changed",
    "rescheduled": "passed over when the next run was moved",
    "deleted": "due when the schedule was deleted",
    "dependency": "a schedule that it waits for had not succeeded in time (after)",
    "calendar": "removed by a calendar (skip, only)",
    "chain": f"{MOST_SUCCESSES:,} successes in a row had led to {{them}}; "
    "schedules may start each other in a cycle",
}

_WAITING: dict[WaitReason, str] = {
    "later": "until it is due",
    "retry": "for its next attempt",
    "unfit": "for a node whose code its payload fits",
    "no_worker": "for a worker: {lack}",
    "no_task": "for a worker: {lack}",
    "no_queue": "for a worker: {lack}",
    "limited": "for the limit",
    "busy": "for a free slot: {nodes} busy",
    "next": "{name} may take it any moment",
}

_LACKING: dict[Lack, str] = {
    "no_worker": "no live node executes runs",
    "no_task": "no live node has the task {task}",
    "no_queue": "no live node that has the task takes from queue {queue}",
}


def skip_reason(reason: Reason, ticks: int, overlap: Overlap | None = None) -> str:
    """Return why so many ticks of a schedule with this overlap policy did not run."""
    words = _SKIPPED[reason]
    if reason == "coalesced" and overlap == "queue":
        # Mostly no tick was missed: the run before was still active.
        words = "a later run stands for {them} (overlap queue)"
    return words.format(them="it" if ticks == 1 else "them")


def lack_reason(lack: Lack, task: str, queue: str) -> str:
    """Return why no node can take a run of the task from the queue."""
    return _LACKING[lack].format(task=task, queue=queue)


def hold_reason(hold: Hold, opens: str | None) -> str:
    """Return which limit does not admit a run, and why. ``opens`` is when its rate admits the next one."""
    limit, why = hold.limit, f"for the limit {hold.limit.name}"
    value = "" if limit.key is None else f" with {limit.key} {partition_value(limit, hold.partition)}"
    if opens is not None and limit.rate is not None:
        return f"{why}: its rate {write_rate(limit.rate)} admits the next run{value} at {opens}"
    are = "is" if hold.running == 1 else "are"
    return f"{why}: {hold.running:,} of {limit.concurrency or 0:,} runs{value} {are} running"


def partition_value(limit: Limit, partition: str) -> str:
    """Return the value of the limit's key that a partition has, masked if the key may name a secret."""
    return MASK if is_secret(limit.key) else partition.removeprefix(f"{limit.name}=")


def wait_reason(reason: WaitReason, task: str, queue: str, nodes: tuple[str, ...]) -> str:
    """Return what a run of the task waits for in the queue; ``nodes`` are those that could take it."""
    more = f" and {len(nodes) - 1:,} more" if len(nodes) > 1 else ""
    able = "".join(nodes[:1]) + more
    lack = lack_reason(reason, task, queue) if reason in ("no_worker", "no_task", "no_queue") else ""
    return _WAITING[reason].format(lack=lack, name=able, nodes=f"{able} {'are' if more else 'is'}")
