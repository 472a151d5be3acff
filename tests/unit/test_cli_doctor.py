"""``evenbeat doctor`` and ``nodes``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import Scheduler
from evenbeat.core.records import Record
from evenbeat.errors import StoreUnavailable
from evenbeat.rules.firing import Planned
from evenbeat.stores.base import RunQuery, ScheduleQuery, Write
from evenbeat.stores.sqlite import SqliteStore
from tests.unit import cli_store
from tests.unit.cli_store import HOUR, MINUTE, Clock, answered, claim, fire, node, printed

app, clock = cli_store.app, cli_store.clock


def levels(code: int, *args: str) -> dict[str, str]:
    return {check["check"]: check["level"] for check in answered("doctor", *args, code=code)["checks"]}


def test_all_is_well_with_a_new_store(app: Scheduler) -> None:
    assert printed("doctor").splitlines() == [
        "ok  store       sqlite:///evenbeat.db",
        "ok  schema      3, the newest",
        "ok  safety      journal_mode wal, synchronous full",
        "ok  clock       the store and this machine agree",
        "ok  nodes       no node is running, and there is nothing to fire",
        "ok  schedules   none of 0 is overdue",
        "ok  queue       no run has waited for over a minute",
        "ok  leases      every running run has a live worker",
        "ok  quarantine  every row could be read",
        "ok  duplicates  no tick twice in 0 runs",
        "",
        "all is well",
    ]


def test_no_node_is_a_warning_until_a_schedule_is_due(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "@hourly", "t")
    assert levels(0)["nodes"] == "warn"
    assert "1 warning" in printed("doctor")

    clock.pass_(3 * HOUR)
    assert levels(1)["schedules"] == "fail"
    text = printed("doctor", code=1)
    assert "1 schedule is due and no node fires" in text
    assert "a for 2 h" in text
    assert text.endswith("1 problem, 1 warning\n")


def test_live_nodes_are_listed_and_asked_for_tasks(app: Scheduler, clock: Clock) -> None:
    node(app, host="box", pid=12, tasks=["t"], queues=["default"])
    for task, queue in (("t", "default"), ("u", "default"), ("t", "mail")):
        app.enqueue(task, queue=queue)
    clock.pass_(5 * MINUTE)

    text = printed("doctor", code=1)
    assert "1 node running" in text
    assert "host-1 on box, pid 12, 1 task" in text
    assert "3 runs wait for a worker" in text
    assert "t: 1 run, for up to 5 min; nodes that have it are busy" in text
    assert "u: 1 run, for up to 5 min; no live node has the task u" in text
    assert "t: 1 run, for up to 5 min; no live node that has the task takes from queue mail" in text


def test_the_times_of_a_node_are_texts_and_a_damaged_one_is_unknown(app: Scheduler, clock: Clock) -> None:
    node(app, started_at=clock.now, seen_at=10**20)
    (found,) = [check for check in answered("doctor")["checks"] if check["check"] == "nodes"]
    assert (found["nodes"][0]["started_at"], found["nodes"][0]["seen_at"]) == ("2026-03-02T08:00:00Z", None)
    assert [shown.seen_at for shown in app.nodes()] == [None]


def test_nodes_with_only_a_ticker_or_only_a_worker_are_named(app: Scheduler, clock: Clock) -> None:
    node(app, host="box", pid=12, tasks=["t"], queues=["default"], ticker=True, worker=False)
    app.enqueue("t")
    app.schedules.add("a", "* * * * *", "t")
    clock.pass_(5 * MINUTE)
    text = printed("doctor", code=1)
    assert "1 node running" in text
    assert "no live node executes runs" in text
    assert "host-1 on box, pid 12, ticker only" in text

    (record,) = app.store.find_records("node")
    body = json.loads(record.body) | {"ticker": False, "worker": True}
    assert app.store.put_record(replace(record, body=json.dumps(body), version=2), record.version)
    assert "host-1 on box, pid 12, 1 task, worker only" in printed("doctor", code=1)


def test_a_node_that_says_nothing_readable_is_a_node(app: Scheduler) -> None:
    app.store.put_record(Record(kind="node", key="a", body="?"))
    app.store.put_record(Record(kind="node", key="b", body="[]"))

    assert "2 nodes running" in printed("doctor")


def test_runs_whose_workers_are_gone_are_found_and_queued_again(app: Scheduler, clock: Clock) -> None:
    app.enqueue("t", id="r")
    claim(app)
    clock.pass_(31_000)
    assert levels(0)["leases"] == "ok"  # nodes need a moment
    clock.pass_(MINUTE)
    assert "r of node-1, for 1 min" in printed("doctor", code=1)

    (finding,) = answered("repair")["findings"]
    assert (finding["kind"], finding["subject"], finding["outcome"]) == ("lost", "r", "found")
    (finding,) = answered("repair", "--yes")["findings"]
    assert finding["outcome"] == "mended"
    assert [(entry.action, entry.via) for entry in app.runs.history("r")] == [("repair", "cli")]
    assert (app.runs.get("r").state, app.runs.get("r").crashes) == ("queued", 1)
    assert printed("repair", "--yes") == "there is nothing to repair\n"


def test_rows_in_quarantine_are_shown_and_those_that_can_be_planned_are_woken(
    app: Scheduler, clock: Clock
) -> None:
    for name in ("a", "b"):
        app.schedules.add(name, "@hourly", "t")
    clock.pass_(HOUR)

    def broken(*_: object) -> Any:
        raise ValueError("the moon \x1b[2J is full")

    app.store.fire_due(clock.now, 10, broken)
    (row,) = app.store.find_schedules(ScheduleQuery(name="a")).items
    senseless = replace(row, trigger="when it rains", revision=row.revision + 1)
    app.store.put_schedules([Write(Planned(senseless), row.version)])

    text = printed("doctor", code=1)
    assert "2 rows could not be read" in text
    assert "a: the moon �[2J is full" in text
    text = printed("repair", "--yes")
    assert "mended: Schedule b is active and has no wake-up" in text
    assert "left: Schedule a is active and has no wake-up" in text
    assert "1 row could not be read" in printed("doctor", code=1)


@pytest.mark.parametrize("state", ["active", "paused"])
@pytest.mark.parametrize(
    "damage",
    [
        {"trigger": "when it rains"},
        {"trigger": "0 0 * * * tz=Mars/Olympus"},
        {"payload": "{"},
        {"declared": "{"},
    ],
    ids=lambda damage: next(iter(damage)),
)
def test_doctor_counts_every_row_that_a_list_shows_as_unreadable(
    app: Scheduler, damage: dict[str, Any], state: Any
) -> None:
    """No node has noted them: they are not due, or paused."""
    app.schedules.add("a", "@hourly", "t")
    app.schedules.add("b", "@hourly", "t")
    (row,) = app.store.find_schedules(ScheduleQuery(name="a")).items
    broken = replace(row, state=state, revision=row.revision + 1, **damage)
    app.store.put_schedules([Write(Planned(broken), row.version)])
    shown = {schedule.name: schedule.damage for schedule in app.schedules.list()}
    assert shown["a"]
    assert not shown["b"]
    text = printed("doctor", code=1)
    assert "every row could be read" not in text
    assert "1 row could not be read" in text


def test_doctor_does_not_say_that_rows_could_be_read_if_none_was(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Any:
        raise StoreUnavailable("permission denied for table schedules")

    monkeypatch.setattr(SqliteStore, "find_schedules", refuse)
    text = printed("doctor", code=1)
    assert "the schedules can't be read: permission denied" in text
    assert "every row could be read" not in text


def test_a_tick_that_was_settled_twice_is_found_and_its_surplus_cancelled(
    app: Scheduler, clock: Clock
) -> None:
    app.schedules.add("a", "* * * * *", "t")
    clock.pass_(3 * MINUTE)
    fire(app)
    (one,) = app.store.find_runs(RunQuery()).items
    assert levels(0)["duplicates"] == "ok"
    missed = replace(one, id="default/a/1/x", tick=(one.tick or 0) - MINUTE)
    app.store.add_runs([replace(one, id="default/a/1/y"), missed])

    text = printed("doctor", code=1)
    assert "2 ticks were settled more than once" in text
    assert "default/a/1/x queued; recorded as skipped: coalesced" in text
    assert "2 runs are still queued: evenbeat repair --yes cancels them" in text
    report = answered("repair", "--yes")
    assert report["mended"] == 2
    text = printed("doctor")
    assert "no tick twice in 3 runs; 2 duplicates were cancelled" in text
    assert "default/a/1/x cancelled; recorded as skipped: coalesced" in text
    assert "report it" not in text
    assert "default/a/1/x" in [finding["subject"] for finding in report["findings"]]
    states = app.runs.count()
    assert (states["queued"], states["cancelled"]) == (1, 2)


def test_a_clock_that_went_back_is_noticed(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "@daily", "t")
    clock.pass_(-2 * HOUR)

    assert "rows from 2 h ahead: its clock went back" in printed("doctor", code=1)


def test_a_file_that_is_not_a_database_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "evenbeat.db").write_text("This is no database, it is a text. " * 100)

    document = answered("doctor", code=1)
    assert [check["check"] for check in document["checks"]] == ["store"]
