"""The history of ``evenbeat demo``: it adds up, has something for each page, and takes few calls to write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import replace

from evenbeat import Scheduler
from evenbeat.core.instants import Instant, read_instant
from evenbeat.core.records import RunRecord, ScheduleRecord, ScheduleState
from evenbeat.demo.history import WEEK, is_empty, make_history, write_history
from evenbeat.demo.past import Contents
from evenbeat.demo.shop import add_tasks
from evenbeat.demo.shop_schedules import CLOCK_CHANGE, LARGE
from evenbeat.errors import ScheduleNotFound
from evenbeat.node.presence import NodeInfo, Presence
from evenbeat.stores.memory import MemoryStore
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock
from tests import lengths

# 23 days after the clocks of Berlin went back, a minute after a tick of many schedules.
END: Instant = read_instant("2026-11-17T02:41:00Z", "end")


class CountedStore(SqliteStore):
    """A store that counts the calls of its methods that write."""

    def __init__(self, path: Path, clock: VirtualClock) -> None:
        super().__init__(path, clock)
        self.calls: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        writes = ("put_schedules", "fire_due", "add_runs", "claim_runs", "settle_runs", "put_record")
        if name in (*writes, "delete_record", "append_log"):
            self.calls[name] += 1
        return super().__getattribute__(name)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountedStore]:
    store = CountedStore(tmp_path_factory.mktemp("demo") / "demo.db", VirtualClock(END))
    store.open()
    assert is_empty(store)
    write_history(store)
    yield store
    store.close()


@pytest.fixture(scope="module")
def app(store: CountedStore) -> Scheduler:
    app = Scheduler(store)
    add_tasks(app)
    return app


def tick_runs(contents: Contents) -> dict[str, RunRecord]:
    return {run.id: run for run in contents.runs if run.cause == "tick"}


def unnumbered(schedule: ScheduleRecord) -> ScheduleRecord:
    """The schedule without its version, part of which is random."""
    return replace(schedule, revision=0, fire_seq=0)


def test_it_is_written_with_a_handful_of_calls_and_only_to_an_empty_store(store: CountedStore) -> None:
    assert store.calls == {"put_schedules": 1, "add_runs": 1, "append_log": 1, "settle_runs": 1}
    assert not is_empty(store)


def test_a_run_without_a_schedule_makes_a_store_not_empty() -> None:
    store = MemoryStore()
    assert is_empty(store)
    store.add_runs([RunRecord(id="one", task="work")])
    assert not is_empty(store)


def test_the_account_of_every_schedule_adds_up(app: Scheduler) -> None:
    schedules = app.schedules.list(all_tenants=True)
    schedules += app.schedules.list(all_tenants=True, state="deleted")
    assert len(schedules) >= 30
    for schedule in schedules:
        account = app.schedules.account(schedule.name, tenant=schedule.tenant)
        assert (account.missing, account.doubled) == (0, 0), schedule.name
        assert account.expected > 0, schedule.name
        told = account.ran + account.coalesced + sum(account.skipped.values())
        assert account.expected == told + account.moved + account.pending, schedule.name


@pytest.mark.parametrize(
    "end",
    lengths.some(
        ["2026-10-24T23:59:59.999Z", "2027-03-29T00:00:00Z", "2027-07-01T11:22:33Z", "2028-02-29T18:05:00Z"],
        "2027-03-29T00:00:00Z",
    ),
)
def test_it_adds_up_whenever_the_demo_is_started(end: str) -> None:
    now = read_instant(end, "end")
    store = MemoryStore(VirtualClock(now))
    write_history(store)
    app = Scheduler(store)
    for schedule in app.schedules.list(all_tenants=True):
        account = app.schedules.account(schedule.name, tenant=schedule.tenant)
        assert (account.missing, account.doubled) == (0, 0), schedule.name


@lengths.LONG
def test_the_same_time_gives_the_same_history() -> None:
    first, second = make_history(END), make_history(END)
    assert [unnumbered(row) for row in first.schedules] == [unnumbered(row) for row in second.schedules]
    assert first.skipped == second.skipped
    assert first.statistics == second.statistics
    assert tick_runs(first) == tick_runs(second)


@lengths.LONG
def test_another_time_gives_the_same_ends_to_the_same_ticks() -> None:
    first, second = tick_runs(make_history(END)), tick_runs(make_history(END + 60_000))
    common = [run for run in first if run in second and "nightly-report" in run]
    assert len(common) == 7
    assert [first[run].result for run in common] == [second[run].result for run in common]


def test_the_statistics_are_those_of_the_runs(app: Scheduler) -> None:
    for name in ("nightly-report", "crm-sync", "newsletter"):
        runs = app.runs.list(schedule=name, limit=5_000)
        states = Counter(run.state for run in runs)
        stats = app.schedules.stats(name)
        # A retry by hand ends its run once more.
        retried = sum(1 for run in runs if run.attempt > 1 and name == "nightly-report")
        assert stats.success_count == states["succeeded"]
        assert stats.failure_count == states["failed"] + retried
        assert stats.last_run == max(run.finished_at for run in runs if run.finished_at is not None)


def test_the_figures_of_each_hour_of_the_week_are_there(app: Scheduler) -> None:
    series = app.statistics(since="7d", by="hour", all_tenants=True)
    quiet = [point.at for point in series.points if point.figures.started == 0]
    # The outage of one hour covers parts of two.
    assert len(series.points) >= 168
    assert len(quiet) <= 1
    finished = [run.finished_at for run in app.runs.list(all_tenants=True, state="succeeded", limit=9_000)]
    in_time = [at for at in finished if at is not None and at >= series.since]
    assert sum(point.figures.succeeded for point in series.points) == len(in_time)
    assert {tenant.name for tenant in app.tenants.list()} >= {"default", "acme"}


def test_a_report_fails_for_days_and_recovers(app: Scheduler) -> None:
    runs = app.runs.list(schedule="nightly-report", limit=10)
    states = [run.state for run in reversed(runs)]
    assert states == ["failed"] * 3 + ["succeeded"] * 4
    assert 'File "/srv/shop/reports/figures.py", line 112' in (runs[-1].error or "")


def test_one_schedule_fails_now(app: Scheduler) -> None:
    states = [run.state for run in app.runs.list(schedule="invoice-export", limit=4)]
    assert states == ["failed", "failed", "failed", "succeeded"]
    assert "invoice-export" in {schedule.name for schedule in app.schedules.list(failing=True)}


def test_a_flaky_one_is_retried(app: Scheduler) -> None:
    runs = app.runs.list(schedule="crm-sync", state="succeeded", limit=2_000)
    assert sum(1 for run in runs if run.attempt > 1) > 100


def test_a_worker_is_lost_and_another_one_succeeds(app: Scheduler) -> None:
    runs = app.runs.list(schedule="invoice-export", state="succeeded", limit=500)
    (lost,) = [run for run in runs if run.attempt > 1]
    assert [attempt.outcome for attempt in lost.attempts] == ["lost", "succeeded"]
    assert lost.attempts[0].worker != lost.attempts[1].worker
    (ended, _) = app.runs.get(lost.id, tenant=lost.tenant).attempts
    assert ended.refused_at is not None
    assert ended.ended_at is not None
    assert ended.refused_at > ended.ended_at


def test_the_night_of_the_clock_change_is_there(app: Scheduler) -> None:
    runs = app.runs.list(schedule=CLOCK_CHANGE, limit=100)
    starts = [run.scheduled_at.isoformat() for run in runs]
    # Half past two comes twice on this night, and is run once.
    assert [start for start in starts if start.startswith("2026-10-25")] == ["2026-10-25T00:30:00+00:00"]
    assert {"2026-10-24T00:30:00+00:00", "2026-10-26T01:30:00+00:00"} <= set(starts)


@lengths.LONG
def test_a_clock_change_that_is_too_long_ago_is_left_out() -> None:
    contents = make_history(read_instant("2027-07-01T11:22:33Z", "end"))
    created = {schedule.name: schedule.created_at for schedule in contents.schedules}
    assert created[CLOCK_CHANGE] == created["crm-sync"]


def test_a_herd_starts_at_midnight(app: Scheduler) -> None:
    herd = [schedule for schedule in app.schedules.list() if schedule.trigger == "0 0 * * *"]
    assert len(herd) == 30
    late = [
        (run.started_at - run.scheduled_at)
        for run in app.runs.list(task="backup.table", state="succeeded", limit=200)
        if run.started_at is not None
    ]
    assert max(late) > timedelta(seconds=10)  # more runs than slots


def test_the_ledger_has_skipped_and_coalesced_ticks(app: Scheduler) -> None:
    assert {row.reason for row in app.schedules.skipped("thumbnails", 500)} == {"overlap", "coalesced"}
    (outage,) = [row for row in app.schedules.skipped("crm-sync") if row.reason == "coalesced"]
    assert outage.count == 5  # of six ticks in the hour of the outage
    assert {row.reason for row in app.schedules.skipped("check_links")} == {"late"}


def test_schedules_are_paused_deleted_and_edited(app: Scheduler) -> None:
    newsletter = app.schedules.get("newsletter")
    assert (newsletter.state, newsletter.paused_by) == ("paused", "carla@shop.example")
    assert "ticket 4711" in newsletter.pause_note
    assert newsletter.paused_until is not None
    assert app.schedules.get("survey", tenant="acme").paused_by == "omar@acme.example"
    assert {"trigger", "description"} <= set(app.schedules.get("purge_sessions").edited)
    with pytest.raises(ScheduleNotFound):
        app.schedules.get("old-import")
    assert [run.state for run in app.runs.list(state="cancelled")] == ["cancelled"]


def test_a_calendar_moves_the_ticks_of_a_schedule(app: Scheduler) -> None:
    closed = app.calendars.get("shop-closed")
    assert closed.schedules == ("stock-list",)
    assert app.schedules.account("stock-list").skipped["calendar"] >= 2
    assert app.schedules.calendars("stock-list").removed


def test_large_integers_keep_every_digit(app: Scheduler, store: CountedStore) -> None:
    (run, *_) = app.runs.list(schedule="charge-accounts", tenant="acme")
    assert run.payload["account"] == LARGE == 2**53 + 1
    assert run.result["account"] == LARGE


def test_no_text_looks_like_html() -> None:
    """The tests in a browser have such texts: a customer of the demo should not meet them."""
    contents = make_history(END)
    for record in (*contents.schedules, *contents.runs, *contents.records, *contents.logs):
        assert b"<" not in msgspec.json.encode(record)


def test_people_are_in_the_audit(app: Scheduler) -> None:
    entries = app.audit.list(all_tenants=True, limit=500)
    assert len({entry.actor for entry in entries}) >= 6
    actions = {entry.action for entry in entries}
    assert {"add", "update", "pause", "resume", "delete", "run_now", "cancel", "retry", "mute"} <= actions
    assert {entry.via for entry in entries} == {"api", "cli", "python"}


def test_alerts_have_rules_incidents_and_deliveries(app: Scheduler) -> None:
    rules = app.alerts.rules.list()
    assert len(rules) == 4
    assert any(rule.muted_until is not None for rule in rules)
    assert "invoice-export" in {incident.subject for incident in app.alerts.incidents()}
    assert app.alerts.incidents(open=False)
    states = {delivery.state for delivery in app.alerts.deliveries(limit=100)}
    assert states == {"sent"}
    assert [channel.address for channel in app.alerts.channels.list()] == ["env:EVENBEAT_SECRET_ON_CALL"]


def test_one_thing_needs_attention_while_a_node_is_alive() -> None:
    store = MemoryStore(VirtualClock(END))
    write_history(store)
    app = Scheduler(store)
    add_tasks(app)
    node = NodeInfo(
        name="node",
        host="h",
        pid=1,
        version="1",
        started_at=END,
        seen_at=END,
        ticker=True,
        worker=True,
        tasks={task.name: "thread" for task in app.tasks},
        queues=["default", "mail", "reports"],
        slots={"thread": 4},
    )
    Presence(store, node).step(END)
    (item,) = app.attention(all_tenants=True).items
    assert (item.kind, item.schedule) == ("failing", "invoice-export")


def test_durations_vary_over_the_day(app: Scheduler) -> None:
    runs = app.runs.list(schedule="crm-sync", state="succeeded", limit=2_000)
    by_hour: dict[int, list[float]] = {}
    for run in runs:
        if run.attempt == 1 and run.started_at is not None and run.finished_at is not None:
            by_hour.setdefault(run.started_at.hour, []).append(
                (run.finished_at - run.started_at).total_seconds()
            )
    means = [sum(lengths) / len(lengths) for lengths in by_hour.values()]
    assert max(means) > 2 * min(means)


def test_every_run_of_the_past_was_in_the_past(app: Scheduler) -> None:
    now = datetime.fromisoformat("2026-11-17T02:41:00+00:00")
    for run in app.runs.list(all_tenants=True, limit=9_000):
        assert run.created_at <= now
        assert run.finished_at is None or run.finished_at <= now
    assert app.runs.count(all_tenants=True).get("running", 0) == 0


def test_every_state_and_queue_is_there_for_a_week(app: Scheduler) -> None:
    queues = {run.queue for run in app.runs.list(all_tenants=True, limit=9_000)}
    assert queues == {"default", "mail", "reports"}
    states = {schedule.state for state in get_args(ScheduleState) for schedule in listed(app, state)}
    assert states == set(get_args(ScheduleState))
    oldest = min(run.created_at for run in app.runs.list(schedule="crm-sync", limit=2_000))
    assert oldest.timestamp() * 1000 < END - WEEK + 3_600_000


def listed(app: Scheduler, state: ScheduleState) -> list[Any]:
    return list(app.schedules.list(all_tenants=True, state=state))
