"""Transitions of runs, with what they add, count and wake. Functions of an open transaction."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pymongo import UpdateOne

from evenbeat.core.instants import Instant
from evenbeat.core.records import Statistics, Transition
from evenbeat.stores.decisions import RunStatus, Settlement, changes, settlement
from evenbeat.stores.mongo import new_runs
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.rows import SHARDS, Key, key_text, set_and_unset, statistics_id
from evenbeat.stores.mongo.schedules import TOUCH
from evenbeat.stores.mongo.schema import RUNS, SCHEDULES, STATISTICS
from evenbeat.stores.mongo.session import SHORT_WAIT, Contended, Session

# So many runs are compared as they are written sooner than they are read.
_FEW = 16
_STATUS = {"state": 1, "attempt": 1, "settled": 1, "lease_until": 1}

# As ``firing.waits``: a schedule that bounds its active runs and may be waiting with its next tick. Others
# are read and not written. A fire that begins to wait for a run writes the run: one of the two sees the
# other.
_WAITS: Document = {
    "state": "active",
    "$or": [{"overlap": {"$ne": "allow"}}, {"max_concurrent": {"$exists": True}}],
    "next_tick": {"$exists": True},
    "$expr": {"$gt": ["$wake_at", "$next_tick"]},
}
_WAKE: list[Document] = [{"$set": {"wake_at": "$next_tick"}}]


class Shard:
    """Which of the documents of each schedule's statistics a store counts in.

    Workers that end runs of one schedule would abort each other's transactions at its statistics. All begin
    with the same document; a store that meets another one there moves on to one of seven more. Five workers
    with three schedules: 280 of 449 transactions were aborted; like this 7 of 192.
    """

    def __init__(self) -> None:
        self.number = 0

    def leave(self) -> None:
        self.number = random.randrange(SHARDS)  # noqa: S311 - to part from others, no secret


def _write_effects(session: Session, done: Settlement, shard: Shard) -> bool:
    """What others write, too. Before the rest of a transaction: who finds that somebody else has just written
    it has done nothing in vain. In one order, whoever settles. Answers whether a schedule was woken."""
    counts = [_count(key, done.counts[key], shard.number) for key in sorted(done.counts)]
    try:
        session.bulk("count", STATISTICS, counts)
    except Contended:
        shard.leave()
        raise
    if done.wakes:
        waiting = {"_id": {"$in": [key_text(key) for key in sorted(done.wakes)]}, **_WAITS}
        return session.update("wake schedules", SCHEDULES, waiting, _WAKE) > 0
    return False


class UnexpectedStatus(Exception):
    """The runs are not as a transition expects them. Stays inside the store."""


def can_be_quick(transitions: Sequence[Transition]) -> bool:
    """Few, each of another run. More are settled sooner if they are read first: see ``settle``."""
    return (
        0 < len(transitions) <= _FEW
        and len({transition.run for transition in transitions}) == len(transitions)
        and not any(transition.adds or transition.gate for transition in transitions)
    )


def is_alone(transitions: Sequence[Transition]) -> bool:
    """It changes one document, which takes no transaction. Of those that can be quick."""
    return len(transitions) == 1 and transitions[0].counts is None and transitions[0].wakes is None


def settle_alone(session: Session, transition: Transition, now: Instant) -> None:
    """UnexpectedStatus, if it is not to be applied, or others hold the run: those may have died."""
    update = {"q": _expected(transition, now), "u": set_and_unset(changes(transition, now))}
    if not session.write_each("update run", {"update": RUNS, "updates": [update]}, SHORT_WAIT):
        raise UnexpectedStatus
    session.announce("committed")


def settle_quickly(
    session: Session, transitions: Sequence[Transition], now: Instant, shard: Shard
) -> tuple[list[bool], bool]:
    """All of them, unread; UnexpectedStatus, if one is not to be applied. Three commands, not four, of
    which the first meets others if any does: five nodes that settle each other's schedules are seldom in
    the way."""
    # As if each run stood as its transition expects: what does not is found by the filter.
    expected = {
        transition.run: RunStatus(transition.expect[0], transition.attempt, None, None)
        for transition in transitions
    }
    done = settlement(transitions, expected, now)
    woken = _write_effects(session, done, shard)
    updates = [
        UpdateOne(_expected(transition, now), set_and_unset(done.updates[transition.run]))
        for transition in transitions
    ]
    if session.bulk("update runs", RUNS, updates) < len(transitions):
        raise UnexpectedStatus
    return [True] * len(transitions), woken


def _expected(transition: Transition, now: Instant) -> Document:
    """As ``decisions.verdict``: a run to which the transition is to be applied."""
    where: Document = {
        "_id": transition.run,
        "attempt": transition.attempt,
        "state": {"$in": list(transition.expect)},
        "settled": {"$ne": transition.token},
    }
    if transition.lease_ended:
        where["lease_until"] = {"$not": {"$gt": now}}
    return where


def settle(
    session: Session, transitions: Sequence[Transition], now: Instant, careful: bool, shard: Shard
) -> tuple[list[bool], bool]:
    """Each transition in turn, seen by the next; then all documents at once. Which are accepted, and whether
    a schedule was woken."""
    revisions = _revisions(session, transitions)
    targets = list(dict.fromkeys(transition.run for transition in transitions))
    statuses = {
        document["_id"]: _status(document)
        for document in session.find("find runs", RUNS, {"_id": {"$in": targets}}, fields=_STATUS)
    }
    done = settlement(transitions, statuses, now, revisions)
    woken = _write_effects(session, done, shard)
    # Runs that are added first: a later transition of the batch may be theirs.
    new_runs.insert(session, done.adds, careful)
    # By _id and nothing else, which the server looks up without planning: to compare state and attempt, too,
    # takes 50 us more for each run. What was read is compared by the transaction.
    session.bulk(
        "update runs",
        RUNS,
        [UpdateOne({"_id": run_id}, set_and_unset(fields)) for run_id, fields in done.updates.items()],
    )
    return done.answers, woken


def _revisions(session: Session, transitions: Sequence[Transition]) -> dict[Key, tuple[int, int]]:
    """(generation, revision) of the schedules that transitions name as their gates. They are written, so that
    a change or a fire of theirs at the same time meets this transaction."""
    gates = {key_text(transition.gate[:2]) for transition in transitions if transition.gate is not None}
    if not gates:
        return {}
    session.bulk("touch schedules", SCHEDULES, [UpdateOne({"_id": key}, TOUCH) for key in sorted(gates)])
    fields = {"tenant": 1, "name": 1, "generation": 1, "revision": 1}
    found = session.find("find revisions", SCHEDULES, {"_id": {"$in": sorted(gates)}}, fields=fields)
    return {
        (document["tenant"], document["name"]): (document["generation"], document["revision"])
        for document in found
        if document.keys() >= fields.keys()
    }


def _status(document: Document) -> RunStatus:
    return RunStatus(
        document.get("state", ""),
        document.get("attempt", -1),
        document.get("settled"),
        document.get("lease_until"),
    )


def _count(key: Key, more: Statistics, shard: int) -> UpdateOne:
    """As ``decisions.added``: counts are summed, and what is not said stays as it was."""
    last = {
        name: value
        for name in ("last_run", "last_success", "last_failure", "last_error")
        if (value := getattr(more, name)) is not None
    }
    return UpdateOne(
        {"_id": statistics_id(key, shard)},
        {
            "$inc": {name: getattr(more, name) for name in ("run_count", "success_count", "failure_count")},
            "$set": {"tenant": key[0], "schedule": key[1], **last},
        },
        upsert=True,
    )
