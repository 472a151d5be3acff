"""Changes that keep waiting successes from firing: the ledger names them, and no record is left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from evenbeat import Scheduler, every, on_success_of
from evenbeat.core.records import Record
from evenbeat.rules import attempts
from evenbeat.rules.dependencies import PENDING
from evenbeat.rules.firing import plan
from evenbeat.rules.unfollowing import PENDING_A_CHANGE
from evenbeat.stores.base import Claim, ScheduleQuery, Write, Written
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock


class Contested(MemoryStore):
    """Another call may come right before the next write of schedules."""

    overtake: Callable[[], object] | None = None

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        overtake, self.overtake = self.overtake, None
        if overtake is not None:
            overtake()
        return super().put_schedules(writes)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> Contested:
    return Contested(clock)


def app_on(store: MemoryStore, trigger: str = "on success of load") -> Scheduler:
    """Return an app whose code declares load and report."""
    app = Scheduler(store, source="shop")
    app.task(name="work")(lambda: None)
    app.declare("load", every("1h"), "work")
    app.declare("report", trigger, "work")
    return app


@pytest.fixture
def app(store: Contested) -> Scheduler:
    app = app_on(store)
    assert len(app.apply().done) == 2
    return app


def load(app: Scheduler, store: MemoryStore, times: int = 1) -> None:
    """Let load succeed, without a node that fires report."""
    for _ in range(times):
        run = app.schedules.run_now("load")
        claim = Claim(worker="w", token=run.id, limit=1, now=store.now(), lease=60_000)
        (held,) = store.claim_runs(claim).runs
        assert store.settle_runs([attempts.succeeded(held, None, store.now(), run.id)]) == [True]


def skipped(app: Scheduler) -> list[tuple[str, int]]:
    return [(row.reason, row.count) for row in app.schedules.skipped("report")]


def pending(store: MemoryStore) -> int:
    return len(store.find_records(PENDING))


def _template(app: Scheduler) -> None:
    app.templates.set("mornings", trigger="0 3 * * *")
    app.schedules.update("report", template="mornings", inherit=["trigger"])


CHANGES: dict[str, Callable[[Scheduler], object]] = {
    "update": lambda app: app.schedules.update("report", trigger=every("1h")),
    "another": lambda app: app.schedules.update("report", trigger=on_success_of("other")),
    "template": _template,
    "declare": lambda app: app.schedules.declare("report", every("1h"), "work"),
    "apply": lambda app: app_on(app.store, "every 1h").apply(),  # type: ignore[arg-type]
    "update_all": lambda app: app.schedules.update_all({"trigger": "every 1h"}, names=["report"]),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_new_trigger_records_the_successes_that_waited(app: Scheduler, store: Contested, how: str) -> None:
    app.schedules.add("other", every("1h"), "work")
    load(app, store, 2)
    CHANGES[how](app)
    assert (pending(store), skipped(app)) == (0, [("changed", 2)])
    store.fire_due(store.now(), 10, plan)
    assert app.runs.list(schedule="report") == []


def test_a_reset_to_the_code_records_the_successes_that_waited(store: Contested) -> None:
    app = app_on(store, "every 1h")
    app.apply()
    app.schedules.update("report", trigger=on_success_of("load"))
    load(app, store)
    app.schedules.reset("report")
    assert (pending(store), skipped(app)) == (0, [("changed", 1)])


@pytest.mark.parametrize("how", ["delete", "delete_all", "prune"])
def test_a_delete_records_the_successes_that_waited(app: Scheduler, store: Contested, how: str) -> None:
    load(app, store, 2)
    if how == "delete":
        app.schedules.delete("report")
    elif how == "delete_all":
        assert app.schedules.delete_all(names=["report"]).done == 1
    else:
        fewer = Scheduler(store, source="shop")
        fewer.task(name="work")(lambda: None)
        fewer.declare("load", every("1h"), "work")
        assert [entry.action for entry in fewer.apply(prune=True).done] == ["remove"]
    assert pending(store) == 0
    app.schedules.add("report", every("1h"), "work")
    assert skipped(app) == [("deleted", 2)]


def test_successes_of_a_pause_are_recorded_as_paused(app: Scheduler, store: Contested) -> None:
    app.schedules.pause("report")
    load(app, store)
    app.schedules.update("report", trigger=every("1h"))
    assert (pending(store), skipped(app)) == (0, [("paused", 1)])
    assert app.schedules.get("report").state == "paused"


@pytest.mark.parametrize("how", ["update", "apply", "update_all"])
def test_a_success_right_before_the_write_is_recorded_too(app: Scheduler, store: Contested, how: str) -> None:
    load(app, store)
    store.overtake = lambda: load(app, store)
    CHANGES[how](app)
    assert (pending(store), sum(count for _, count in skipped(app))) == (0, 2)


@pytest.mark.parametrize("how", ["update", "apply", "update_all"])
def test_many_waiting_successes_are_recorded_in_parts(app: Scheduler, store: Contested, how: str) -> None:
    body = '{"run":"r","tick":null,"at":1,"generation":1}'
    for at in range(PENDING_A_CHANGE + 5):
        store.put_record(Record(kind=PENDING, tenant="default", key=f"report/{at}", body=body))
    CHANGES[how](app)
    assert pending(store) == 0
    assert sorted(skipped(app)) == [("changed", 5), ("changed", PENDING_A_CHANGE)]
    assert app.schedules.get("report").trigger == "every 1h"
    entries = [entry for entry in app.audit.list(subject="report") if "trigger" in entry.after]
    assert len(entries) == 2  # its creation, and one for the change


def test_many_deletes_record_many_successes_in_parts(app: Scheduler, store: Contested) -> None:
    for at in range(PENDING_A_CHANGE + 5):
        store.put_record(Record(kind=PENDING, tenant="default", key=f"report/{at}", body="{}"))
    assert app.schedules.delete_all(names=["report", "load"]).done == 2
    assert pending(store) == 0
    rows = store.find_skipped("default", "report")
    assert sum(row.count for row in rows) == PENDING_A_CHANGE + 5


def test_a_change_that_keeps_the_trigger_keeps_the_successes(app: Scheduler, store: Contested) -> None:
    load(app, store)
    app.schedules.update("report", description="new")
    app.schedules.pause("report")
    app.schedules.resume("report")
    assert (pending(store), skipped(app)) == (1, [])
    store.fire_due(store.now(), 10, plan)
    assert len(app.runs.list(schedule="report")) == 1


def test_a_damaged_row_that_is_written_anew_leaves_no_success_behind(
    app: Scheduler, store: Contested, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(app, store)
    find = store.find_schedules

    def damaged(query: ScheduleQuery) -> object:
        page = find(query)
        rows = [
            replace(row, trigger="unknown", damage="its trigger can't be read")
            if row.name == "report" and row.trigger.startswith("on")
            else row
            for row in page.items
        ]
        return page._replace(items=tuple(rows))

    monkeypatch.setattr(store, "find_schedules", damaged)
    app.schedules.update("report", trigger=every("1h"))
    assert (pending(store), skipped(app)) == (0, [("changed", 1)])
