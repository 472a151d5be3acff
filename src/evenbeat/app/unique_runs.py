"""Takes the keys of unique runs, before these are added or retried: see ``rules.unique_runs``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import uuid4

from msgspec.structs import replace

from evenbeat.core.clocks import steady_clock
from evenbeat.core.ids import is_given_once, made_at_by, making_token, new_run_id
from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, RunRecord, Transition
from evenbeat.errors import RunRefused
from evenbeat.node.flow_resuming import FlowResuming
from evenbeat.node.flow_rows import FlowRows
from evenbeat.node.flows import End, FlowSettling
from evenbeat.rules import attempts, unique_ends, unique_runs
from evenbeat.rules.flow_parts import is_begun
from evenbeat.rules.unique_ends import made_at
from evenbeat.rules.unique_runs import (
    ADD_WINDOW,
    GIVEN_UP_AFTER,
    KIND,
    WRITTEN_WITHIN,
    Holder,
    decide,
    held_by,
    holder_of,
    made_anew,
    record_key,
    taken_by,
)
from evenbeat.stores.base import RunQuery, Store


class Resolved(NamedTuple):
    """A wanted run after its key was looked up."""

    run: RunRecord
    is_present: bool
    """Whether it is in the store, or was there during this call and was purged. If not, it has to be
    added."""


class Resolution(NamedTuple):
    """Wanted runs after their keys were looked up."""

    runs: list[Resolved]
    before: Instant
    """Add the runs with this argument of ``add_runs``. From then on, those that are missing may have been
    added by others, executed and purged: resolve them again (``after_refusal``)."""


class _Named(NamedTuple):
    """The record of a key, and the run that it names."""

    record: Record | None
    found: RunRecord | None
    has_ended: bool
    """Whether a missing run has ended, and was purged."""


class UniqueRuns:
    """Takes keys in one store. Every method may be repeated, and called by many processes at once."""

    def __init__(self, store: Store, clock: Callable[[], float] = steady_clock) -> None:
        self._store = store
        self._clock = clock

    def resolve(self, wanted: Sequence[RunRecord], *, is_again: bool = False) -> Resolution:
        """Return for each wanted run the one that holds its key: it exists, or the caller has to add it.

        Runs without a unique key are returned as they are. Call this right before adding the runs;
        ``is_again`` if these are runs of ``after_refusal``.
        """
        began = self._store.now()
        return Resolution(self._resolve(wanted, is_again), began + ADD_WINDOW)

    def after_refusal(self, wanted: RunRecord, refused: RunRecord) -> RunRecord:
        """Return the run to resolve next for a wanted one, after the store refused to add the resolved one.

        Another process may have added the refused run. So an id that Evenbeat made is replaced. If nobody
        has added that run, the record still names it, and resolving returns it again. A chosen id stays, and
        so does the time of the making: if that run has ended, resolving returns it, since one call makes one
        run of its id.
        """
        if wanted.unique_key is None or wanted.id != refused.id:
            return wanted
        if is_given_once(wanted.id, wanted.created_at):
            now = self._store.now()
            return replace(wanted, id=new_run_id(now), created_at=now)
        return refused

    def take_for_retry(self, run: RunRecord) -> None:
        """Take the key of an ended run that is to be retried; ``RunRefused`` if another run holds it.

        Call this right before the transition of the retry.
        """
        while True:
            began = self._clock()
            self._take(run, Holder(run.id, run.attempt), "of the same key")
            if self._clock() - began <= WRITTEN_WITHIN:
                return

    def take_for_move(self, run: RunRecord, task: str) -> None:
        """Take the key that a queued run has under another task; ``RunRefused`` if another run holds it.

        Call this right before the transition that moves the run, with ``move_token``. If the process dies in
        between, whoever needs the key next moves the run.
        """
        there = replace(run, task=task)
        while True:
            began = self._clock()
            self._take(there, Holder(run.id, moved=run.attempt), f"of task {task} with the same key")
            if self._clock() - began <= WRITTEN_WITHIN:
                return

    def _resolve(self, wanted: Sequence[RunRecord], is_again: bool) -> list[Resolved]:
        keys = {(run.tenant, record_key(run)): run for run in reversed(wanted) if run.unique_key is not None}
        records = {key: self._store.get_record(KIND, *key) for key in keys}
        holders = {key: None if record is None else holder_of(record) for key, record in records.items()}
        ids = {run.id for run in keys.values()} | {holder.run for holder in holders.values() if holder}
        found = self._find(ids)
        made: dict[tuple[str, str], Resolved] = {}
        for key, run in keys.items():
            if run.id in found:  # an id of the caller's own, which is there already
                made[key] = Resolved(found[run.id], is_present=True)
                continue
            made[key] = self._resolve_one(run, self._named(records[key], found), is_again)
        return [
            Resolved(run, is_present=False) if run.unique_key is None else made[run.tenant, record_key(run)]
            for run in wanted
        ]

    def _resolve_one(self, run: RunRecord, named: _Named, is_again: bool) -> Resolved:
        while True:
            now = self._store.now()
            record, found, has_ended = named
            verdict = decide(record, found, now, has_ended=has_ended)
            if verdict == "answer":
                assert found is not None
                return Resolved(found, is_present=True)
            if verdict == "add":
                assert record is not None
                holder = holder_of(record)
                assert holder is not None
                return Resolved(_made_as(run, holder), is_present=False)
            if verdict == "take":
                if (there := self._added_meanwhile(run, record, is_again)) is not None:
                    return Resolved(there, is_present=True)
                run = made_anew(run, record)
                taken = held_by(run, taken_by(run), record, now)
                if self._store.put_record(taken, None if record is None else record.version):
                    return Resolved(run, is_present=False)
            else:
                self._help(verdict, run, record, found)
            named = self._read(run)

    def _added_meanwhile(self, run: RunRecord, record: Record | None, is_again: bool) -> RunRecord | None:
        """Return the run of a chosen id if others have added it, and it has ended, since this call looked for
        it. A record that names a later run of the id while the earlier one exists would mislead its readers.
        """
        if made_at(run) is None:
            return None
        if is_again and self._has_ended(run.tenant, taken_by(run)):
            return self._find({run.id}).get(run.id, run)
        holder = None if record is None else holder_of(record)
        return None if holder is None or holder.run != run.id else self._find({run.id}).get(run.id)

    def _take(self, run: RunRecord, mine: Holder, other: str) -> None:
        """Write the record of the run's key, unless another run holds it."""
        while True:
            record, found, has_ended = self._read(run)
            holder = None if record is None else holder_of(record)
            now = self._store.now()
            verdict = decide(record, found, now, has_ended=has_ended)
            is_mine = holder is not None and holder.run == run.id
            if verdict == "expire" or (verdict == "move" and not is_mine):
                self._help(verdict, run, record, found)
            elif verdict == "take" or is_mine:
                # Also if it names this retry already: whoever deletes old records must find a new version.
                taken = held_by(run, mine, record, now)
                if self._store.put_record(taken, None if record is None else record.version):
                    return
            else:
                assert holder is not None
                raise RunRefused(
                    f"run {run.id} is unique ({run.unique_key}), and run {holder.run} {other} is "
                    "active; wait for its end, or cancel it",
                    subject=run.id,
                )

    def _help(
        self, verdict: unique_runs.Verdict, run: RunRecord, record: Record | None, found: RunRecord | None
    ) -> None:
        """Do what has to be done about the run that a record names, before the record is read again."""
        now = self._store.now()
        if verdict == "renew":
            assert record is not None
            holder = holder_of(record)
            assert holder is not None
            self._store.put_record(held_by(run, holder, record, now), record.version)
            return
        assert found is not None
        if verdict == "expire":
            transition = attempts.expired(found, now, uuid4().hex)
        elif verdict == "move":
            moved = attempts.moved(found, run.task, move_token(found, run.task))
            assert moved is not None
            transition = moved
        elif (retried := self._retried(found, now)) is not None:
            transition = retried
        else:
            # A flow in which nothing can run again: the retry is given up. It has begun, so it does not have
            # attempt 0. A record to add the flow would outlive the mark of its first end.
            assert record is not None
            self._store.put_record(held_by(run, Holder(found.id, 0), record, now), record.version)
            return
        # Whatever ends a run announces it.
        if FlowSettling(self._store, "app").settle([End(found, transition)], now).answers[0]:
            self._store.hint()

    def _retried(self, run: RunRecord, now: Instant) -> Transition | None:
        """Return the transition of a pending retry: a flow that has begun goes on."""
        if not is_begun(run):
            return attempts.retried(run, retry_token(run))
        again = FlowResuming(FlowRows(self._store)).queue(run, None, now)
        return None if again is None else replace(again, token=retry_token(run))

    def _read(self, run: RunRecord) -> _Named:
        """Return the record of a run's key, and the run that it names."""
        record = self._store.get_record(KIND, run.tenant, record_key(run))
        holder = None if record is None else holder_of(record)
        return self._named(record, {} if holder is None else self._find({holder.run}))

    def _named(self, record: Record | None, found: Mapping[str, RunRecord]) -> _Named:
        """Return a record with the run that it names. Only if that is missing, this reads whether it has
        ended: after the run, which can't be purged before it has."""
        holder = None if record is None else holder_of(record)
        if record is None or holder is None:
            return _Named(record, None, has_ended=False)
        if (run := found.get(holder.run)) is not None:
            return _Named(record, run, has_ended=False)
        return _Named(record, None, has_ended=self._has_ended(record.tenant, holder))

    def _has_ended(self, tenant: str, holder: Holder) -> bool:
        """Return whether there is a mark that the run has ended."""
        key = unique_ends.mark_key(holder.run, holder.made)
        return self._store.get_record(unique_ends.KIND, tenant, key) is not None

    def _find(self, ids: set[str]) -> dict[str, RunRecord]:
        if not ids:
            return {}
        chosen = tuple(ids)
        found: dict[str, RunRecord] = {}
        for start in range(0, len(chosen), _MOST_IDS):
            part = chosen[start : start + _MOST_IDS]
            found |= {run.id: run for run in self._store.find_runs(RunQuery(ids=part, limit=len(part))).items}
        return found


def _made_as(run: RunRecord, holder: Holder) -> RunRecord:
    """Return a run with the id that the record of its key names. Its making is that of the record, or of an
    id that is never given twice (see ``is_given_once``): its end leaves the mark that readers look for."""
    created_at = holder.made
    if created_at is None:
        created_at = made_at_by(holder.run)
        # A record that was damaged may name anything.
        if created_at is None or abs(run.created_at - created_at) > GIVEN_UP_AFTER:
            created_at = run.created_at
    return replace(run, id=holder.run, created_at=created_at, claim=making_token(holder.run, created_at))


def retry_token(run: RunRecord) -> str:
    """Return the token of the retry of a unique run, the same for all that apply it: the store recognises
    the repetition."""
    return f"retry.{run.id}.{run.attempt}.{run.claim}"


def move_token(run: RunRecord, task: str) -> str:
    """Return the token of the move of a run to a task, the same for all that apply it."""
    return f"move.{run.id}.{run.attempt}.{run.claim}.{task}"


_MOST_IDS = 1_000
