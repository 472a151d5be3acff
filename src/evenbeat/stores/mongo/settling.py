"""Transitions of runs, with what they add, count and wake. Functions of an open transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pymongo import UpdateOne

from evenbeat.instants import Instant
from evenbeat.model import Run, Statistics, Transition
from evenbeat.stores.decisions import Standing, added, changes, verdict
from evenbeat.stores.mongo import new_runs
from evenbeat.stores.mongo.clients import Document
from evenbeat.stores.mongo.commands import Commands
from evenbeat.stores.mongo.rows import Key, key_text, set_and_unset
from evenbeat.stores.mongo.schema import RUNS, SCHEDULES, STATISTICS

_STANDING = {"state": 1, "attempt": 1, "settled": 1, "lease_until": 1}


class Effects:
    """What transitions do besides changing their runs."""

    def __init__(self) -> None:
        self.adds: list[Run] = []
        self.counts: dict[Key, Statistics] = {}
        self.wakes: dict[Key, None] = {}

    def of(self, transition: Transition) -> None:
        self.adds += transition.adds
        if (more := transition.counts) is not None:
            key = (more.tenant, more.schedule)
            before = self.counts.get(key)
            self.counts[key] = more if before is None else added(before, more)
        if transition.wakes is not None:
            self.wakes[transition.wakes] = None

    def write(self, commands: Commands, now: Instant, careful: bool) -> None:
        new_runs.insert(commands, self.adds, careful)
        # In one order, whoever settles: and last, since others write the same documents.
        counts = [_count(key, self.counts[key]) for key in sorted(self.counts)]
        commands.bulk("count", STATISTICS, counts)
        wakes = [UpdateOne({"_id": key_text(key)}, _wake(now)) for key in sorted(self.wakes)]
        commands.bulk("wake schedules", SCHEDULES, wakes)


def settle(commands: Commands, transitions: Sequence[Transition], now: Instant, careful: bool) -> list[bool]:
    """Each transition in turn, seen by the next; then all documents at once."""
    targets = list(dict.fromkeys(transition.run for transition in transitions))
    standing = {
        document["_id"]: _standing(document)
        for document in commands.find("find runs", RUNS, {"_id": {"$in": targets}}, fields=_STANDING)
    }
    updates: dict[str, dict[str, object]] = {}
    effects = Effects()
    answers: list[bool] = []
    for transition in transitions:
        if transition.run not in standing:
            answers.append(False)
            continue
        run_now = standing[transition.run]
        decision = verdict(run_now, transition, now)
        answers.append(decision != "refuse")
        if decision != "apply":
            continue
        # Two transitions of one run become one update, in which the later one has the last word.
        fields = updates.get(transition.run, {}) | changes(transition, now)
        standing[transition.run] = _after(run_now, fields)
        updates[transition.run] = fields
        for run in transition.adds:
            standing.setdefault(run.id, Standing(run.state, run.attempt, run.settled, run.lease_until))
        effects.of(transition)
    # Runs that are added first: a later transition of the batch may be theirs.
    new_runs.insert(commands, effects.adds, careful)
    effects.adds = []
    # By _id and nothing else, which the server looks up without planning: to compare state and attempt, too,
    # takes 50 us more for each run. What was read is compared by the transaction.
    commands.bulk(
        "update runs",
        RUNS,
        [UpdateOne({"_id": run_id}, set_and_unset(fields)) for run_id, fields in updates.items()],
    )
    effects.write(commands, now, careful)
    return answers


def _standing(document: Document) -> Standing:
    return Standing(
        document.get("state", ""), document.get("attempt", -1), document.get("settled"),
        document.get("lease_until"),
    )  # fmt: skip


def _after(run: Standing, fields: dict[str, Any]) -> Standing:
    return Standing(
        fields.get("state", run.state),
        fields.get("attempt", run.attempt),
        fields.get("settled", run.settled),
        fields.get("lease_until", run.lease_until),
    )


def _count(key: Key, more: Statistics) -> UpdateOne:
    """As ``decisions.added``: counts are summed, and what is not said stays as it was."""
    last = {
        name: value
        for name in ("last_run", "last_success", "last_failure", "last_error")
        if (value := getattr(more, name))
    }
    return UpdateOne(
        {"_id": key_text(key)},
        {
            "$inc": {name: getattr(more, name) for name in ("run_count", "success_count", "failure_count")},
            "$set": {"tenant": key[0], "schedule": key[1], **last},
        },
        upsert=True,
    )


def _wake(now: Instant) -> list[Document]:
    """Only a schedule that waits with a tick that is due wakes up: the others do by themselves.

    The document is written in any case: a fire that has read the run as active must fail, or the tick that it
    leaves waiting would wait for a run that is over.
    """
    waits = {
        "$and": [
            {"$gt": ["$wake_at", now]},
            {"$ne": [{"$type": "$next_tick"}, "missing"]},
            {"$lte": ["$next_tick", now]},
        ]
    }
    return [
        {
            "$set": {
                "touched": {"$add": [{"$ifNull": ["$touched", 0]}, 1]},
                "wake_at": {"$cond": [waits, now, {"$ifNull": ["$wake_at", "$$REMOVE"]}]},
            }
        }
    ]
