"""Insertion of new runs: of ticks, of transitions, and enqueued ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evenbeat.core.records import RunRecord
from evenbeat.stores.mongo.rows import run_document
from evenbeat.stores.mongo.schema import RUNS
from evenbeat.stores.mongo.session import Duplicate, Session


def insert(session: Session, runs: Iterable[RunRecord], careful: bool) -> None:
    """Insert runs in a transaction. A run whose id exists is not changed.

    Inserting an existing id ends the transaction. That is rare: unless ``careful``, existing ids are not
    read first, and after Duplicate the caller repeats the transaction with ``careful``.
    """
    wanted: dict[str, RunRecord] = {}
    for run in runs:
        wanted.setdefault(run.id, run)
    there = present(session, list(wanted)) if careful and wanted else set()
    new = [run_document(run) for run_id, run in wanted.items() if run_id not in there]
    session.insert("insert runs", RUNS, new)


def present(session: Session, ids: Sequence[str]) -> set[str]:
    """Return those of the ids that exist."""
    found = session.find("find present", RUNS, {"_id": {"$in": list(ids)}}, fields={"_id": 1})
    return {document["_id"] for document in found}


def add(session: Session, runs: Sequence[RunRecord], careful: bool) -> list[bool]:
    """Insert runs as ``insert`` does, and return for each whether it is new."""
    ids = dict.fromkeys(run.id for run in runs)
    return add_absent(session, runs, present(session, list(ids)) if careful else set())


def add_absent(session: Session, runs: Sequence[RunRecord], there: set[str]) -> list[bool]:
    """Insert the runs whose ids are not in ``there``, and return for each whether it is new."""
    answers: list[bool] = []
    new = []
    for run in runs:
        is_new = run.id not in there
        if is_new:
            there.add(run.id)
            new.append(run_document(run))
        answers.append(is_new)
    session.insert("insert runs", RUNS, new)
    return answers


def add_one(session: Session, run: RunRecord, patience: float) -> bool:
    """Insert one run, without a transaction: one document is atomic."""
    try:
        session.write("insert run", {"insert": RUNS, "documents": [run_document(run)]}, patience)
    except Duplicate:
        session.announce("committed")
        return False
    return True
