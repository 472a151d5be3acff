"""Settles runs: applies transitions, with their new runs, records, statistics and wake-ups. All functions but
``settle_alone`` need an open transaction."""

from __future__ import annotations

import random
from collections.abc import Sequence

from msgspec import UNSET
from pymongo import UpdateOne

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, Statistics, Transition
from evenbeat.stores.decisions import RunStatus, Settlement, all_parts, changes, leaves_cohort, settlement
from evenbeat.stores.dependencies import successes_of
from evenbeat.stores.mongo import dependencies, new_runs, records
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.rows import NO_COHORT, SHARDS, Key, key_text, set_and_unset, statistics_id
from evenbeat.stores.mongo.schedules import TOUCH
from evenbeat.stores.mongo.schema import RUNS, SCHEDULES, STATISTICS
from evenbeat.stores.mongo.session import SHORT_WAIT, Contended, Session

# Up to this many runs, comparing while writing is faster than reading first.
_FEW = 16
# More claimed runs than a worker holds: those that it lost are not forgotten otherwise.
_MOST_HELD = 10_000
_STATUS = {"state": 1, "attempt": 1, "settled": 1, "lease_until": 1, "cohort": 1, "claim": 1}

# Like ``firing.wakes_on_run_end``: matches a schedule that limits its active runs and may be waiting with its
# next tick. No other schedule is written. A fire that starts to wait for a run writes the run, so the two
# transactions conflict.
_WAITS: Document = {
    "state": "active",
    "$or": [{"overlap": {"$ne": "allow"}}, {"max_concurrent": {"$exists": True}}],
    "next_tick": {"$exists": True},
    "$expr": {"$gt": ["$wake_at", "$next_tick"]},
}
_WAKE: list[Document] = [{"$set": {"wake_at": "$next_tick"}}]
# One command wakes the schedules that wait, and finds out whether any has followers: it matches these, too,
# and does not modify them.
_HAS_FOLLOWERS: Document = {"followers": {"$gt": ""}}
_WAKE_WITHOUT_FOLLOWERS: list[Document] = [
    {"$set": {"wake_at": {"$cond": [{"$gt": ["$followers", ""]}, "$wake_at", "$next_tick"]}}}
]


class Shard:
    """The statistics of a schedule are eight documents. This is the number of the one that a store updates.

    If all workers updated the same document, those that end runs of one schedule would abort each other's
    transactions. All start with document 0. After a conflict, a store picks a random one. With five workers
    and three schedules, 280 of 449 transactions were aborted without this, 7 of 192 with it.
    """

    def __init__(self) -> None:
        self.number = 0

    def leave(self) -> None:
        self.number = random.randrange(SHARDS)  # noqa: S311 - a random choice, not a secret


def _write_effects(
    session: Session, transitions: Sequence[Transition], done: Settlement, now: Instant, shard: Shard
) -> bool:
    """Update statistics and wake schedules; return whether a schedule was woken. Adds the records of
    followers to those of the settlement.

    Other transactions write these documents, too. So a transaction writes them first, when a conflict wastes
    no work, and all transactions write them in the same order.
    """
    counts = [_count(key, done.counts[key], shard.number) for key in sorted(done.counts)]
    try:
        session.bulk("count", STATISTICS, counts)
    except Contended:
        shard.leave()
        raise
    if not done.wakes:
        return False
    ids = [key_text(key) for key in sorted(done.wakes)]
    either = {"_id": {"$in": ids}, "$or": [_WAITS, _HAS_FOLLOWERS]}
    matched, woken = session.update_counted("wake schedules", SCHEDULES, either, _WAKE_WITHOUT_FOLLOWERS)
    if matched == woken:
        return woken > 0
    woken += session.update("wake schedules", SCHEDULES, {"_id": {"$in": ids}, **_WAITS}, _WAKE)
    following = dependencies.wake(session, successes_of(transitions, done.updates), now)
    done.records.extend(following.records)
    return woken > 0 or following.wakes_any


class HeldRuns:
    """Remembers which of the runs that the store has claimed have a cohort: a transition that is settled
    without reading the run may free a slot."""

    def __init__(self) -> None:
        self._has_cohort: dict[tuple[str, str | None], bool] = {}
        """By id and claim: the id of a purged run may come again."""

    def add(self, runs: Sequence[RunRecord]) -> None:
        if len(self._has_cohort) > _MOST_HELD:
            self._has_cohort.clear()
        self._has_cohort.update({(run.id, run.claim): run.cohort is not None for run in runs})

    def frees(self, session: Session, transitions: Sequence[Transition]) -> bool:
        """Return whether one of the transitions has freed a slot. Reads runs that the store has not claimed
        itself."""
        ended = [
            (transition.run, transition.claim)
            for transition in transitions
            if "running" in transition.expect
            if transition.state not in (UNSET, "running") or leaves_cohort(transition)
        ]
        known = {each: self._has_cohort.pop(each, None) for each in ended}
        if any(known.values()):
            return True
        unknown = [run_id for (run_id, _), has_cohort in known.items() if has_cohort is None]
        where = {"_id": {"$in": unknown}, "cohort": {"$gt": NO_COHORT}}
        return bool(unknown) and bool(
            session.find("find cohorts", RUNS, where, fields={"_id": 1}, limit=1, quiet=True)
        )


class UnexpectedStatus(Exception):
    """A run does not have the status that a transition expects. Never leaves the store."""


def can_be_quick(transitions: Sequence[Transition]) -> bool:
    """Return whether ``settle_quickly`` applies: few transitions, each of a different run, without new runs
    and gates. For more of them ``settle``, which reads the runs first, is faster."""
    return (
        0 < len(transitions) <= _FEW
        and len({transition.run for transition in transitions}) == len(transitions)
        and not any(transition.adds or transition.gate or transition.ends for transition in transitions)
    )


def is_alone(transitions: Sequence[Transition]) -> bool:
    """Return whether there is one transition that changes one document, which needs no transaction."""
    one = transitions[0]
    return len(transitions) == 1 and one.counts is None and one.wakes is None and not one.records


def settle_alone(session: Session, transition: Transition, now: Instant) -> None:
    """Settle one transition. Raises UnexpectedStatus if it does not apply, or if another client, which may
    have died, has locked the run."""
    update = {"q": _expected(transition, now), "u": _update(changes(transition, now))}
    if not session.write_each("update run", {"update": RUNS, "updates": [update]}, SHORT_WAIT):
        raise UnexpectedStatus
    session.announce("committed")


def settle_quickly(
    session: Session, transitions: Sequence[Transition], now: Instant, careful: bool, shard: Shard
) -> tuple[list[bool], bool]:
    """Settle all transitions without reading the runs. Raises UnexpectedStatus if one does not apply.

    Takes three commands instead of four, and the first one finds any conflict. So five nodes that settle runs
    of the same schedules seldom conflict.
    """
    # Assume that each run has the expected status. The update does not match a run that has another one.
    expected = {
        transition.run: RunStatus(
            transition.expect[0], transition.attempt, None, None, claim=transition.claim
        )
        for transition in transitions
    }
    done = settlement(transitions, expected, now)
    woken = _write_effects(session, transitions, done, now, shard)
    updates = [
        UpdateOne(_expected(transition, now), _update(done.updates[transition.run]))
        for transition in transitions
    ]
    if session.bulk("update runs", RUNS, updates) < len(transitions):
        raise UnexpectedStatus
    records.add(session, done.records, now, careful)
    return [True] * len(transitions), woken


def _expected(transition: Transition, now: Instant) -> Document:
    """Return a filter that matches the run if the transition applies to it, like ``decisions.verdict``."""
    where: Document = {
        "_id": transition.run,
        "attempt": transition.attempt,
        "claim": transition.claim,
        "state": {"$in": list(transition.expect)},
        "settled": {"$ne": transition.token},
    }
    if transition.lease_ended:
        where["lease_until"] = {"$not": {"$gt": now}}
    return where


def settle(
    session: Session, transitions: Sequence[Transition], now: Instant, careful: bool, shard: Shard
) -> tuple[list[bool], bool]:
    """Decide the transitions one after the other, each on the result of those before it; then write all
    documents at once.

    Return which are accepted, and whether a schedule was woken or a slot freed.
    """
    flat = all_parts(transitions)
    revisions = _revisions(session, flat)
    targets = list(dict.fromkeys(part.run for part in flat))
    statuses = {
        document["_id"]: _status(document)
        for document in session.find("find runs", RUNS, {"_id": {"$in": targets}}, fields=_STATUS)
    }
    done = settlement(transitions, statuses, now, revisions)
    woken = _write_effects(session, flat, done, now, shard)
    counts = [UpdateOne({"_id": key_text(key)}, dependencies.COUNT_FIRE) for key in done.activated]
    session.bulk("count fires", SCHEDULES, counts)
    # New runs first: a later transition of the batch may change them.
    new_runs.insert(session, done.adds, careful)
    # The filter is the _id alone, which the server finds without planning: comparing state and attempt,
    # too, takes 50 us more for each run. The transaction compares the documents with those that were read.
    session.bulk(
        "update runs",
        RUNS,
        [UpdateOne({"_id": run_id}, _update(fields)) for run_id, fields in done.updates.items()],
    )
    records.add(session, done.records, now, careful)
    return done.answers, woken or done.frees


def _revisions(session: Session, transitions: Sequence[Transition]) -> dict[Key, tuple[int, int, int]]:
    """Read (generation, revision, fire_seq) of the schedules that transitions name as their gates. Write
    to them, too, so that a change or a fire at the same time conflicts with this transaction."""
    gates = {key_text(transition.gate[:2]) for transition in transitions if transition.gate is not None}
    if not gates:
        return {}
    session.bulk("touch schedules", SCHEDULES, [UpdateOne({"_id": key}, TOUCH) for key in sorted(gates)])
    fields = {"tenant": 1, "name": 1, "generation": 1, "revision": 1, "fire_seq": 1}
    found = session.find("find revisions", SCHEDULES, {"_id": {"$in": sorted(gates)}}, fields=fields)
    return {
        (document["tenant"], document["name"]): (
            document["generation"],
            document["revision"],
            document["fire_seq"],
        )
        for document in found
        if document.keys() >= fields.keys()
    }


def _update(fields: dict[str, object]) -> Document:
    """Return the update that sets these fields. A run without a cohort has an empty one."""
    return set_and_unset(fields | {"cohort": NO_COHORT} if "cohort" in fields else fields)


def _status(document: Document) -> RunStatus:
    return RunStatus(
        document.get("state", ""),
        document.get("attempt", -1),
        document.get("settled"),
        document.get("lease_until"),
        document.get("cohort") or None,
        document.get("claim"),
    )


def _count(key: Key, more: Statistics, shard: int) -> UpdateOne:
    """Return an update like ``decisions.added``: counts are summed, and fields that are not given stay
    unchanged."""
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
