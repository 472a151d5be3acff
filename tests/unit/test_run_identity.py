"""Runs that have the same id, one after the other: what is stored and remembered beside them is kept apart.

The mutants at the end keep it by the id alone. Each is caught.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from evenbeat import Scheduler
from evenbeat.core import ids
from evenbeat.core.ids import id_of_key, lasting_key, new_run_id
from evenbeat.core.records import LogChunk, RunRecord
from evenbeat.node.progress import keep_progress, store_progress
from evenbeat.observe import run_logs, run_progress
from evenbeat.observe.run_logs import chunk_of
from evenbeat.observe.run_progress import ReportedProgress
from evenbeat.processes import begun
from evenbeat.processes.begun import Begun, make_file
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim, Store
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract import identity

NOW = 1_772_366_400_000


def made_stores(kind: type[MemoryStore] = MemoryStore) -> tuple[MemoryStore, VirtualClock]:
    clock = VirtualClock()
    store = kind(clock)
    store.open()
    return store, clock


def claimed(store: Store, token: str) -> RunRecord:
    now = store.now()
    store.add_runs([RunRecord(id="x", task="work", run_at=now, created_at=now)])
    claim = Claim(worker="w", token=token, limit=1, now=now, lease=60_000, tasks=None)
    (run,) = store.claim_runs(claim).runs
    return run


def twice(store: Store, clock: VirtualClock) -> tuple[RunRecord, RunRecord]:
    """Return two claimed runs of one id, of which the first was purged."""
    earlier = claimed(store, "c1")
    assert store.settle_runs([attempts.succeeded(earlier, None, store.now(), "end")]) == [True]
    clock.advance("1s")
    assert store.purge(clock.now, 10).deleted == 1
    return earlier, claimed(store, "c2")


def progress_of_both() -> None:
    store, clock = made_stores()
    earlier, later = twice(store, clock)
    old, own = ReportedProgress(earlier), ReportedProgress(later)
    old.report(9, "old", 10)
    keep_progress(store, old, clock.now, 86_400_000)
    assert Scheduler(store).runs.get("x").progress is None
    own.report(1, "own", 10)
    store_progress(store, own, clock.now)
    keep_progress(store, old, clock.now, 86_400_000)
    shown = Scheduler(store).runs.get("x").progress
    assert shown is not None
    assert shown.note == "own"


def attempts_of_both() -> None:
    store, clock = made_stores()
    earlier, later = twice(store, clock)
    with make_file(4) as file:
        memory = Begun(file.fileno())
    memory.add(earlier)
    states = (memory.snapshot().state(earlier), memory.snapshot().state(later))
    memory.close()
    assert states == ("executing", "claimed")


def logs_of_both(kind: type[MemoryStore] = MemoryStore) -> None:
    contract = identity.IdentityContract()
    for is_late_first in (True, False):
        store, clock = made_stores(kind)
        contract.test_a_late_line_of_a_purged_run_is_not_in_the_log_of_a_later_run_of_its_id(
            store, clock, is_late_first
        )


def test_what_is_kept_beside_a_run_is_not_taken_for_that_of_a_later_run_of_its_id() -> None:
    progress_of_both()
    attempts_of_both()
    logs_of_both()


def test_a_repair_deletes_the_progress_of_an_earlier_run_and_no_other() -> None:
    store, clock = made_stores()
    earlier, later = twice(store, clock)
    for run in (earlier, later):
        progress = ReportedProgress(run)
        progress.report(1, "", None)
        store_progress(store, progress, clock.now)
    (finding,) = Scheduler(store).repair().findings
    assert (finding.kind, finding.subject) == ("leftover", lasting_key("x", earlier.created_at))
    assert finding.what == "There is a record of the progress of run x, which is not running."


def test_only_ids_that_may_be_given_again_get_longer_keys() -> None:
    own = new_run_id(NOW)
    for run_id in ("x", "0" * 32, f"{own}~step"):
        assert lasting_key(run_id, NOW) == f"{run_id}/{NOW}"
        assert id_of_key(f"{run_id}/{NOW}") == run_id
        assert chunk_of(RunRecord(id=run_id, task="t", created_at=NOW), 1, "x", 0).run_created_at == NOW
    for run_id in (own, f"default/nightly/1/{NOW}", f"default/nightly/1/after/x~1.{own}"):
        assert lasting_key(run_id, NOW) == id_of_key(run_id) == run_id
        assert chunk_of(RunRecord(id=run_id, task="t", created_at=NOW), 1, "x", 0).run_created_at is None


# -- mutants -----------------------------------------------------------------------------------------------


class KeepsLinesById(MemoryStore):
    """Stores a line if any run has that id."""

    def append_log(self, chunks: Sequence[LogChunk]) -> None:
        super().append_log([replace(chunk, run_created_at=None) for chunk in chunks])


def is_wrong(scene: Callable[[], None]) -> bool:
    try:
        scene()
    except AssertionError:
        return True
    return False


def test_a_log_that_is_kept_by_id_alone_is_caught() -> None:
    assert is_wrong(lambda: logs_of_both(KeepsLinesById))


def test_lines_that_do_not_say_of_which_run_they_are_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_logs, "is_given_once", lambda *_: True)
    assert is_wrong(logs_of_both)


def test_progress_that_is_kept_by_id_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_progress, "lasting_key", lambda run_id, _: run_id)
    assert is_wrong(progress_of_both)


def test_attempts_that_are_remembered_by_id_and_number_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    key = begun._key
    monkeypatch.setattr(begun, "_key", lambda run: key(replace(run, claim=None)))
    assert is_wrong(attempts_of_both)


def test_an_id_that_is_wrongly_said_to_be_given_once_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "is_given_once", lambda *_: True)
    assert is_wrong(progress_of_both)
