"""A process that dies at any command of a write leaves all of it or nothing, on every store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.contract.adapters import Adapter
from tests.store_calls import CommandLog, Crash, claim, with_due_schedules

from evenbeat.core.records import Record, RunRecord, ScheduleRecord, Transition
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import plan
from evenbeat.stores.base import RunQuery, ScheduleQuery, Store, Write
from evenbeat.testing import VirtualClock

NOTES = tuple(Record(kind="audit", key=key, body="noted") for key in "12")


def fire(store: Store) -> object:
    def picky(row: ScheduleRecord, *rest: Any) -> Any:
        if row.name == "broken":
            raise ValueError("no")
        return plan(row, *rest)._replace(records=NOTES)

    return store.fire_due(store.now(), 10, picky)


def put(store: Store) -> object:
    row = store.find_schedules(ScheduleQuery(name="late")).items[0]
    change = changes.change(row, {"trigger": "every 1h"}, store.now())
    return change and store.put_schedules([Write(change._replace(records=NOTES), row.version)])


def take(store: Store) -> object:
    return claim(store, "again")


def settle(store: Store) -> object:
    held = store.find_runs(RunQuery(states=("running",))).items
    following = (RunRecord(id="next", task="work"),)
    ends = (attempts.succeeded(run, None, store.now(), f"t-{run.id}", adds=following) for run in held)
    return store.settle_runs([replace(end, records=NOTES) for end in ends])


def settle_jointly(store: Store) -> object:
    """End two steps and change their flow. A repetition is the same call, with the runs as claimed."""
    found = store.find_runs(RunQuery()).items
    claimed = {run.schedule: replace(run, state="running", attempt=1, failures=0) for run in found}
    flow, first, second = (claimed[name] for name in ("free", "other", "single"))
    change = Transition(
        run=flow.id,
        attempt=flow.attempt,
        claim=flow.claim,
        expect=("running",),
        token="flow",
        state="running",
        worker=None,
        lease=300_000,
        flow='{"steps":"sf"}',
        renews=True,
        ends=(
            attempts.succeeded(first, "1", store.now(), "first"),
            replace(attempts.failed(second, "boom", store.now(), "second"), records=NOTES[1:]),
        ),
        adds=tuple(RunRecord(id=f"next-{name}", task="work", flow="{}") for name in "ab"),
        records=NOTES[:1],
    )
    answers = store.settle_runs([change])
    assert answers == [True]
    return answers


def add(store: Store) -> object:
    return store.add_runs([RunRecord(id=name, task="work") for name in "xyz"])


@pytest.mark.parametrize("action", [fire, put, take, settle, settle_jointly, add])
def test_a_crash_at_any_command_leaves_all_or_nothing(
    adapter: Adapter, clock: VirtualClock, action: Callable[[Store], object]
) -> None:
    first = adapter.open()
    with_due_schedules(first, clock)
    if action in (settle, settle_jointly):
        claim(first)
    before = adapter.dump()
    adapter.save()
    log = CommandLog(on=False)
    whole = adapter.open(on_command=log)
    log.on = True
    action(whole)
    log.on = False
    after = adapter.dump()
    assert after != before
    assert whole.find_records("audit") == (
        list(NOTES) if action in (fire, put, settle, settle_jointly) else []
    )
    # A hint may follow the commit.
    committed = len(log.seen) - 1 - log.seen[::-1].index("committed")

    for position in range(len(log.seen)):
        adapter.restore()
        crashing = CommandLog(position, on=False)
        store = adapter.open(on_command=crashing)
        crashing.on = True
        with pytest.raises(Crash):
            action(store)
        assert adapter.dump() == (after if position >= committed else before)
        # The store is still usable, and repeating the call has the same result as one call.
        action(store)
        assert adapter.dump() == after
        assert adapter.problems() == {}
        store.close()
