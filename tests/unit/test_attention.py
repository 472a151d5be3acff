"""What needs somebody now: which items there are, what is one item, and what is read for it."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from evenbeat import Attention, AttentionItem, Scheduler
from evenbeat.app import attention as reading
from evenbeat.core.alerts import Message
from evenbeat.core.ids import first_key_of
from evenbeat.core.instants import from_ms
from evenbeat.core.json_text import encode
from evenbeat.core.records import Execution, Record, RunRecord
from evenbeat.observe.attention import (
    LONG,
    MOST_ITEMS,
    MOST_OF_A_KIND,
    AttentionFacts,
    Served,
    attention_of,
    is_stuck,
)
from evenbeat.rules import attempts
from evenbeat.rules.alert_records import ALL, LOG, OWN, PENDING, StoredDelivery
from evenbeat.rules.firing import plan
from evenbeat.rules.waiting import Taker
from evenbeat.stores.base import Claim, Page, RunQuery, Setting
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock

MINUTE, HOUR = 60_000, 3_600_000


class Watched(MemoryStore):
    """Remembers searches for runs; its server has settings."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.searches: list[RunQuery] = []
        self.settings: list[Setting] = []
        self.checks = 0

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        self.searches.append(query)
        return super().find_runs(query)

    def server(self) -> list[Setting]:
        self.checks += 1
        return self.settings


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> Watched:
    return Watched(clock)


@pytest.fixture
def app(store: Watched) -> Scheduler:
    app = Scheduler(store)
    app.task(name="work")(lambda: None)
    return app


def add_node(app: Scheduler, name: str = "n", **fields: Any) -> None:
    """Announce a live node."""
    body = {"tasks": ["work"], "queues": ["default"], **fields}
    record = Record(kind="node", key=name, body=json.dumps(body), expires=app.store.now() + 100 * HOUR)
    assert app.store.put_record(record)


def fire(app: Scheduler) -> None:
    app.store.fire_due(app.store.now(), 1000, plan)


def claimed(app: Scheduler, lease: int = 30_000) -> tuple[RunRecord, ...]:
    now = app.store.now()
    wanted = Claim(worker="n", token=uuid4().hex, limit=100, now=now, lease=lease, tasks=None)
    return app.store.claim_runs(wanted).runs


def end(app: Scheduler, error: str | None = None) -> None:
    """Let all due runs begin and end."""
    now = app.store.now()
    for run in claimed(app):
        if error is None:
            done = attempts.succeeded(run, "null", now, run.id)
        else:
            done = attempts.failed(run, error, now, run.id)
        assert app.store.settle_runs([done]) == [True]


def kinds(found: Attention) -> list[tuple[str, str]]:
    return [(item.kind, item.level) for item in found.items]


def only(found: Attention) -> AttentionItem:
    (item,) = found.items
    assert found.more == 0
    return item


def texts(item: AttentionItem) -> list[str]:
    return [fact.text for fact in item.evidence]


def test_nothing_needs_attention(app: Scheduler, clock: VirtualClock) -> None:
    assert app.attention().items == ()
    add_node(app)
    app.schedules.add("a", "every 1h", "work")
    app.schedules.add("p", "every 1h", "unknown", paused=True)
    clock.advance("1h")
    fire(app)
    end(app)
    found = app.attention()
    assert found == Attention(checked_at=from_ms(clock.now), items=(), more=0)
    assert asyncio.run(app.aattention()) == found


# -- nodes ---------------------------------------------------------------------------------------------------


def test_late_schedules_are_one_item_if_no_node_is_alive(app: Scheduler, clock: VirtualClock) -> None:
    for number in range(30):
        app.schedules.add(f"s{number}", "every 1h", "work")
    item = only(app.attention())
    assert (item.kind, item.level, item.count, item.since) == ("no_ticker", "warn", 30, None)
    assert item.sentence == "No node is running: no tick will fire."
    clock.advance("1h30s")
    assert only(app.attention()).level == "warn", "not late before 30 s have passed"
    clock.advance("1ms")
    item = only(app.attention())
    assert (item.kind, item.level, item.count) == ("no_ticker", "fail", 30)
    assert item.sentence == "No node is running: 30 schedules are late."
    assert item.since == datetime(2026, 3, 1, 13, tzinfo=UTC)
    assert item.remedy == "start a node: evenbeat run"


def test_no_node_at_all_is_one_item_with_its_runs(app: Scheduler, clock: VirtualClock) -> None:
    app.schedules.add("s", "every 1h", "work")
    app.enqueue("work")
    claimed(app)
    app.enqueue("work")
    clock.advance("2h")
    item = only(app.attention())
    assert item.sentence == "No node is running: 1 schedule is late."
    assert texts(item) == [
        "1 schedule is active",
        "the longest overdue tick should have fired",
        "1 due run waits for a worker, the oldest since",
        "1 run has no live worker",
    ]


def test_nodes_that_only_execute_runs_fire_nothing(app: Scheduler, clock: VirtualClock) -> None:
    add_node(app, ticker=False)
    app.schedules.add("s", "every 1h", "work")
    clock.advance("2h")
    item = only(app.attention())
    assert (item.kind, item.sentence) == ("no_ticker", "No live node fires schedules: 1 schedule is late.")


def test_due_runs_wait_if_no_node_executes_runs(app: Scheduler, clock: VirtualClock) -> None:
    app.enqueue("work")
    app.enqueue("work")
    clock.advance("1m")
    assert app.attention().items == (), "not before a minute has passed"
    clock.advance("1ms")
    item = only(app.attention())
    assert (item.kind, item.level, item.count, item.tenant) == ("no_node", "fail", 2, None)
    assert item.sentence == "No live node executes runs: 2 due runs wait."
    add_node(app, worker=False)
    assert only(app.attention()).sentence == item.sentence


def test_a_worker_is_missing_for_coming_ticks(app: Scheduler) -> None:
    add_node(app, worker=False)
    app.schedules.add("s", "every 1h", "work")
    item = only(app.attention())
    assert (item.kind, item.level, item.count) == ("no_node", "warn", 1)
    assert item.sentence == "No live node executes runs: the runs of coming ticks will wait."


def test_a_task_that_no_live_node_has_is_one_item(app: Scheduler, clock: VirtualClock) -> None:
    add_node(app)
    for name in ("a", "b", "c"):
        app.schedules.add(name, "every 1h", "rare")
    app.schedules.add("d", "every 1h", "work", queue="slow")
    coming = {item.task: item for item in app.attention().items}
    assert kinds(app.attention()) == [("no_node", "warn")] * 2
    assert coming["rare"].sentence == "No live node has the task rare, so the runs of 3 schedules will wait."
    assert texts(coming["rare"]) == ["active schedules of the task: a and 2 more"]
    assert coming["work"].sentence == (
        "No live node that has the task takes from queue slow, so the runs of 1 schedule will wait."
    )
    clock.advance("1h")
    fire(app)
    clock.advance("2m")
    due = app.attention().items[0]
    assert (due.kind, due.level, due.task, due.tenant, due.count) == ("no_node", "fail", "rare", "default", 3)
    assert due.sentence == "No live node has the task rare, so 3 due runs wait."
    assert due.since == datetime(2026, 3, 1, 13, tzinfo=UTC)
    assert due.run is not None
    assert app.runs.get(due.run).task == "rare"


def test_runs_wait_in_a_long_queue(app: Scheduler, clock: VirtualClock) -> None:
    add_node(app)
    app.enqueue("rare")
    clock.advance("2m")
    app.enqueue_many([("work", None)] * 600)
    item = only(app.attention())
    assert (item.task, item.sentence) == (
        "rare",
        "No live node has the task rare, so 1 due runs or more wait.",
    )


def saturate(app: Scheduler, clock: VirtualClock, number: int, **fields: Any) -> None:
    """Let one run take the only slot of a node, while others wait."""
    add_node(app, **{"tasks": {"work": "thread"}, "slots": {"thread": 1, "async": 100}, **fields})
    app.enqueue("work")
    assert len(claimed(app, 50 * HOUR)) == 1
    app.enqueue_many([("work", None)] * number)


def waiting(app: Scheduler, **chosen: Any) -> list[AttentionItem]:
    return [item for item in app.attention(**chosen).items if item.kind == "waiting"]


def test_runs_wait_for_a_free_slot(app: Scheduler, clock: VirtualClock) -> None:
    saturate(app, clock, 50)
    clock.advance("10m")
    assert waiting(app) == []
    clock.advance("1s")
    (item,) = waiting(app)
    assert (item.level, item.count, item.tenant) == ("warn", 50, "default")
    clock.advance("2h")
    (item,) = waiting(app)
    assert (item.level, item.count) == ("fail", 50)
    assert item.sentence == (
        "50 runs of queue default have waited for up to 2 h 10 min, though live nodes could take them."
    )
    assert texts(item) == ["the oldest waits since", "slots in use on the nodes that could take it: 1 of 1"]
    assert item.since == item.evidence[0].at == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert item.remedy == ("start more nodes, or give them more slots: evenbeat run --thread-concurrency N")
    assert "n" not in (item.tenant, item.run, item.schedule)


def test_runs_that_no_node_could_take_or_that_are_new_are_not_a_backlog(
    app: Scheduler, clock: VirtualClock
) -> None:
    saturate(app, clock, 0)
    app.enqueue("rare")
    app.enqueue("work", queue="slow")
    app.enqueue("work", at="2h")
    now = app.store.now()
    app.store.add_runs([RunRecord(id="caught-up", task="work", run_at=now - HOUR, created_at=now)])
    clock.advance("9m")
    assert waiting(app) == []
    clock.advance("2m")
    (item,) = waiting(app)
    assert item.sentence == (
        "1 run of queue default has waited for up to 11 min, though live nodes could take it."
    )
    assert {each.kind for each in app.attention().items} == {"waiting", "no_node"}


def test_a_long_backlog_is_read_in_part(app: Scheduler, store: Watched, clock: VirtualClock) -> None:
    saturate(app, clock, 600)
    clock.advance("2h")
    app.enqueue_many([("work", None)] * 600)
    clock.advance("20m")
    app.enqueue_many([("work", None)] * 600)
    store.searches.clear()
    (item,) = waiting(app)
    assert (item.level, item.count) == ("fail", 1000)
    assert item.sentence == (
        "1,000 runs or more of queue default have waited for 2 h 20 min or more, "
        "though live nodes could take them."
    )
    assert not app.attention().is_exact
    assert all(query.limit <= 500 for query in store.searches)
    assert len(store.searches) < 20


def test_a_backlog_is_of_the_tenant_that_was_asked_for(app: Scheduler, clock: VirtualClock) -> None:
    saturate(app, clock, 3)
    app.enqueue("work", tenant="acme")
    clock.advance("11m")
    assert [item.count for item in waiting(app, tenant="acme")] == [1]
    assert waiting(app, tenant="other") == []
    (item,) = waiting(app, all_tenants=True)
    assert (item.count, item.tenant) == (4, None)


def test_a_backlog_of_nodes_that_do_not_tell_their_slots(app: Scheduler, clock: VirtualClock) -> None:
    saturate(app, clock, 1, tasks=["work"])
    clock.advance("11m")
    (item,) = waiting(app)
    assert texts(item) == ["the oldest waits since"]
    assert item.remedy == "start more nodes: evenbeat run"


# -- schedules -----------------------------------------------------------------------------------------------


def test_late_schedules_are_items_of_their_own_while_nodes_fire_others(
    app: Scheduler, clock: VirtualClock
) -> None:
    add_node(app)
    for number in range(30):
        app.schedules.add(f"s{number:02}", "every 1h", "work")
    clock.advance("1h5m")
    found = app.attention()
    assert kinds(found) == [("late", "fail")] * MOST_OF_A_KIND
    assert found.more == 10
    first = found.items[0]
    assert (first.schedule, first.task, first.tenant) == ("s00", "work", "default")
    assert first.sentence == "s00 is late by 5 min: its tick has not fired."
    assert first.remedy == "evenbeat why s00"
    assert found.is_exact
    assert first.since == datetime(2026, 3, 1, 13, tzinfo=UTC)


@pytest.mark.parametrize(
    ("number", "more", "is_exact"), [(500, 480, True), (501, 481, False), (700, 481, False)]
)
def test_more_late_schedules_than_are_read(
    app: Scheduler, clock: VirtualClock, number: int, more: int, is_exact: bool
) -> None:
    add_node(app)
    for each in range(number):
        app.schedules.add(f"s{each:03}", "every 1h", "work")
    clock.advance("1h5m")
    found = app.attention()
    assert (len(found.items), found.more, found.is_exact) == (MOST_OF_A_KIND, more, is_exact)


@pytest.mark.parametrize("facts", [{"more_waiting": True}, {"is_partial": True}])
def test_the_number_of_items_is_not_exact_if_not_all_was_read(facts: dict[str, Any]) -> None:
    for has_ticker, is_exact in ((True, False), (False, True)):
        known = AttentionFacts(now=LONG, has_ticker=has_ticker, nodes=(), active=1, more_late=True)
        assert attention_of(known).is_exact is is_exact, "without a ticker, late schedules are one item"
        assert attention_of(known._replace(more_late=False)).is_exact
        assert not attention_of(known._replace(more_late=False, **facts)).is_exact


def test_a_bounded_number_of_failing_schedules_stuck_runs_and_tasks_is_read(
    app: Scheduler, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_PAGE", 3)
    monkeypatch.setattr("evenbeat.node.stuck_work._PAGE", 3)
    add_node(app)

    def is_exact() -> bool:
        return app.attention().is_exact

    for number in range(3):
        app.schedules.add(f"s{number}", "every 30d", "work")
        app.schedules.run_now(f"s{number}")
    end(app, "x")
    assert is_exact()
    app.schedules.add("s3", "every 30d", "work")
    app.schedules.run_now("s3")
    end(app, "x")
    assert not is_exact(), "4 failing schedules"
    app.schedules.delete("s3")
    assert is_exact()
    app.enqueue_many([("work", None)] * 4)
    claimed(app, 50 * HOUR)
    assert is_exact()
    clock.advance("2h")
    assert not is_exact(), "4 long runs"
    end_running(app)
    assert is_exact()
    for number in range(MOST_OF_A_KIND):
        app.schedules.add(f"t{number}", "every 30d", f"task-{number}")
    assert is_exact()
    app.schedules.add("t", "every 30d", "task")
    assert not is_exact(), "21 tasks that no node has"


def end_running(app: Scheduler) -> None:
    now = app.store.now()
    for run in app.store.find_runs(RunQuery(states=("running",))).items:
        assert app.store.settle_runs([attempts.succeeded(run, "null", now, run.id)]) == [True]


def test_a_failing_schedule_says_how_often_and_why(app: Scheduler, clock: VirtualClock) -> None:
    add_node(app)
    app.schedules.add("a", "every 1h", "work")
    for error in (None, "old", None, "ValueError: first\n", "Traceback…\nmore", "ValueError: 3\n  detail"):
        clock.advance("1h")
        fire(app)
        end(app, error)
    item = only(app.attention())
    assert (item.kind, item.level, item.count) == ("failing", "fail", 3)
    assert item.sentence == "a is failing: its last 3 runs failed."
    assert item.since == datetime(2026, 3, 1, 16, tzinfo=UTC)
    assert [(fact.text, fact.at) for fact in item.evidence] == [
        ("ValueError: 3", datetime(2026, 3, 1, 18, tzinfo=UTC)),
        ("it last succeeded", datetime(2026, 3, 1, 15, tzinfo=UTC)),
    ]
    assert item.run is not None
    assert item.remedy == f"evenbeat runs show {item.run}"
    app.schedules.pause("a")
    assert app.attention().items == (), "somebody has stopped it"
    app.schedules.resume("a")
    clock.advance("1h")
    fire(app)
    end(app)
    assert app.attention().items == ()


def test_more_failures_in_a_row_than_are_read(app: Scheduler, clock: VirtualClock) -> None:
    add_node(app)
    app.schedules.add("a", "every 1h", "work")
    for _ in range(12):
        clock.advance("1h")
        fire(app)
        end(app, "x" * 1000)
    item = only(app.attention())
    assert item.sentence == "a is failing: its last 10 runs or more failed."
    assert texts(item) == ["x" * 300, "it has never succeeded"]


def test_of_many_failing_schedules_the_latest_are_shown(app: Scheduler, clock: VirtualClock) -> None:
    add_node(app)
    for number in range(25):
        app.schedules.add(f"s{number:02}", "every 30d", "work")
        clock.advance("1m")
        app.schedules.run_now(f"s{number:02}")
        end(app, "x")
    found = app.attention()
    assert found.more == 5
    assert {item.schedule for item in found.items} == {f"s{number:02}" for number in range(5, 25)}


# -- runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timeout", "lease_left", "took", "usual", "stuck"),
    [
        (None, 1, LONG, None, False),
        (None, 1, LONG + 1, None, True),
        (None, 1, LONG + 1, LONG, False),
        (None, 1, 3 * LONG + 1, LONG, True),
        (10 * MINUTE, 1, 11 * MINUTE, None, False),
        (10 * MINUTE, 1, 11 * MINUTE + 1, None, True),
        (2 * LONG, 1, 2 * LONG, 1, False),
        (None, -10_000, MINUTE, None, False),
        (None, -10_001, MINUTE, None, True),
    ],
)
def test_when_a_run_counts_as_stuck(
    timeout: int | None, lease_left: int, took: int, usual: int | None, stuck: bool
) -> None:
    now = 10 * LONG
    run = RunRecord(
        id="r",
        task="work",
        state="running",
        started_at=now - took,
        lease_until=now + lease_left,
        execution=Execution(timeout=timeout),
    )
    assert is_stuck(run, now, usual) is stuck


def test_a_run_that_takes_much_longer_than_those_before(app: Scheduler, clock: VirtualClock) -> None:
    add_node(app)
    app.schedules.add("a", "every 1d", "work")
    clock.advance("1d")
    fire(app)
    first = claimed(app, 50 * HOUR)
    clock.advance("1h")
    app.store.settle_runs([attempts.succeeded(run, "null", clock.now, "x") for run in first])
    clock.advance("23h")
    fire(app)
    runs = claimed(app, 50 * HOUR)
    clock.advance("3h")
    assert app.attention().items == ()
    clock.advance("1m")
    item = only(app.attention())
    assert (item.kind, item.level, item.run, item.schedule) == ("stuck", "warn", runs[0].id, "a")
    assert item.sentence == (
        "A run of a has been running for 3 h 1 min, and its latest runs took 1 h at most."
    )
    assert item.remedy == f"evenbeat runs cancel {runs[0].id}"
    app.runs.cancel(runs[0].id)
    assert "it was asked to stop" in texts(only(app.attention()))


def test_a_run_goes_on_after_its_timeout(app: Scheduler, clock: VirtualClock) -> None:
    add_node(app)
    app.enqueue("work", timeout="5m", id="a;b")
    claimed(app, 50 * HOUR)
    clock.advance("7m")
    item = only(app.attention())
    assert item.sentence == "A run of work has been running for 7 min, and its timeout is 5 min."
    assert item.remedy == "evenbeat runs cancel 'a;b'"


def test_a_run_without_a_live_worker_that_no_node_takes_over(app: Scheduler, clock: VirtualClock) -> None:
    add_node(app)
    app.enqueue("work", id="r")
    claimed(app, 30_000)
    clock.advance("2m")
    item = only(app.attention())
    assert (item.kind, item.level, item.run) == ("stuck", "fail", "r")
    assert item.sentence == "A run of work has no live worker, and no node took it over."
    assert item.since == from_ms(clock.now - 90_000)


# -- the store -----------------------------------------------------------------------------------------------


def test_quarantined_schedules_and_runs(app: Scheduler, store: Watched) -> None:
    add_node(app)
    app.schedules.add("a", "every 1h", "work")
    app.schedules.add("sound", "every 1h", "work")
    key = ("default", "a")
    store._schedules[key] = replace(store._schedules[key], wake_at=None)
    for kind, name in (
        ("quarantine", "a"),
        ("quarantine", "r/1"),
        ("deferred", "sound"),
        ("quarantine", "sound"),
    ):
        assert store.put_record(Record(kind=kind, key=name, body=f"{name} is bad"))
    found = {(item.schedule, item.run): item for item in app.attention().items}
    assert {key: (item.level, item.sentence, texts(item)) for key, item in found.items()} == {
        ("a", None): ("fail", "Schedule a is quarantined: nodes can't read it.", ["a is bad"]),
        (None, "r/1"): ("fail", "Run r/1 is quarantined: nodes can't read it.", ["r/1 is bad"]),
        ("sound", None): (
            "warn",
            "Schedule sound is deferred: a node could not plan it, and tries again.",
            ["sound is bad"],
        ),
    }


def test_an_unsafe_server_is_checked_every_five_minutes(
    app: Scheduler, store: Watched, clock: VirtualClock
) -> None:
    store.settings = [
        Setting(name="fsync", value="off", level="fail", hint="a power cut loses commits: on"),
        Setting(name="version", value="17"),
    ]
    item = only(app.attention())
    assert (item.kind, item.level, item.tenant) == ("store_unsafe", "fail", None)
    assert item.sentence == "The store is not safe: fsync is off."
    assert texts(item) == ["a power cut loses commits: on"]
    clock.advance("4m59s")
    store.settings = []
    assert app.attention().items == (item,)
    assert store.checks == 1
    clock.advance("1s")
    assert app.attention().items == ()


# -- alerts that did not arrive -----------------------------------------------------------------------------


def put_delivery(app: Scheduler, number: int, created_at: int, **fields: Any) -> None:
    """Write a delivery to those that wait, or to the log."""
    key = f"{first_key_of(created_at)}{number:024x}"
    tenant = fields.pop("tenant", "default")
    message = Message(
        id=key,
        announcement="opened",
        title="Failed",
        lines=(),
        at=from_ms(created_at),
        link=None,
        tenant=tenant,
    )
    given = {"channel": "ops", "scope": OWN, "state": "pending", "tries": 3, "error": "HTTP 500", **fields}
    body = StoredDelivery(message=message, created_at=created_at, **given)
    kind = PENDING if body.state == "pending" else LOG
    assert app.store.put_record(Record(kind=kind, tenant=tenant, key=key, body=encode(body)))


def test_alerts_that_could_not_be_delivered(app: Scheduler) -> None:
    now = app.store.now()
    put_delivery(app, 1, now - 10 * MINUTE, last_try_at=now - MINUTE)
    put_delivery(app, 2, now - 26 * HOUR, state="failed", last_try_at=now - 2 * HOUR, error="refused")
    put_delivery(app, 3, now - 20 * MINUTE, state="failed", channel="mail", error="no such user")
    item = only(app.attention())
    assert (item.kind, item.level, item.tenant, item.count) == ("undelivered", "warn", "default", 3)
    assert item.sentence == "3 alerts could not be delivered on 2 channels: mail, ops."
    assert [(fact.text, fact.at) for fact in item.evidence] == [
        ("channel mail, 1 given up; no such user", from_ms(now - 20 * MINUTE)),
        ("channel ops, 1 given up and 1 retried; HTTP 500", from_ms(now - MINUTE)),
    ]
    assert item.since == from_ms(now - 26 * HOUR)
    assert item.remedy == "evenbeat alerts log"


def test_alerts_that_arrive_or_may_still_arrive_need_nobody(app: Scheduler) -> None:
    now = app.store.now()
    put_delivery(app, 1, now - 10 * MINUTE + 1)
    put_delivery(app, 2, now - HOUR, error=None, tries=0)
    put_delivery(app, 3, now - HOUR, state="sent", error=None)
    put_delivery(app, 4, now - 30 * HOUR, state="failed", last_try_at=now - 24 * HOUR - 1)
    # A sender has written the log, and not yet deleted the pending record.
    put_delivery(app, 5, now - HOUR)
    put_delivery(app, 5, now - HOUR, state="sent", error=None)
    assert app.attention().items == ()
    assert app.attention(all_tenants=True).items == ()


def test_undelivered_alerts_are_those_of_the_channels_of_a_tenant(app: Scheduler) -> None:
    now = app.store.now()
    put_delivery(app, 1, now - HOUR, tenant="acme")
    # On a channel of all tenants, about schedules of this tenant.
    put_delivery(app, 2, now - HOUR, tenant="acme", scope=ALL, channel="pager")
    item = only(app.attention(tenant="acme"))
    assert (item.tenant, item.count, texts(item)) == ("acme", 1, ["channel ops, 1 retried; HTTP 500"])
    assert item.remedy == "evenbeat alerts log --tenant acme"
    assert app.attention().items == ()
    shared, own = app.attention(all_tenants=True).items
    assert (shared.tenant, texts(shared)) == (None, ["channel pager, 1 retried; HTTP 500"])
    assert shared.remedy == "evenbeat alerts log --all-tenants"
    assert own == item


def test_the_reading_of_deliveries_is_bounded(app: Scheduler) -> None:
    now = app.store.now()
    for number in range(520):
        put_delivery(app, number, now - HOUR - number)
    found = only(app.attention())
    assert found.count == 500


# -- all of it -----------------------------------------------------------------------------------------------


def test_one_tenant_hears_nothing_of_others(app: Scheduler, clock: VirtualClock) -> None:
    add_node(app)
    for tenant in ("default", "acme"):
        app.schedules.add("s", "every 1h", "work", tenant=tenant)
        app.schedules.add("f", "every 1h", "rare", tenant=tenant)
        app.store.put_record(Record(kind="deferred", tenant=tenant, key="q", body="x"))
        app.enqueue("work", tenant=tenant)
    claimed(app)
    for tenant in ("default", "acme"):
        app.enqueue("rare", tenant=tenant)
    clock.advance("2h")
    both = app.attention(all_tenants=True)
    assert {item.tenant for item in both.items} == {"default", "acme"}
    one = app.attention(tenant="acme")
    assert len(one.items) * 2 == len(both.items)
    assert {item.tenant for item in one.items} == {"acme"}
    assert {item.kind for item in one.items} == {"late", "no_node", "stuck", "quarantined"}
    assert app.attention(tenant="other").items == ()


def test_the_worst_is_first_and_the_number_of_items_is_bounded() -> None:
    nodes = (Taker("n", True, frozenset({"work"}), ("default",)),)
    unserved = [Served("default", f"t{number:02}", "default", 1, "s") for number in range(30)]
    running = [
        RunRecord(id=f"r{number:02}", task="work", state="running", started_at=0, lease_until=number)
        for number in range(30)
    ]
    unsafe = [Setting(name=f"s{number}", value="x", level="warn") for number in range(30)]
    facts = AttentionFacts(
        now=LONG, has_ticker=True, nodes=nodes, active=1, unserved=unserved, running=running, settings=unsafe
    )
    found = attention_of(facts)
    assert len(found.items) == MOST_ITEMS == 50
    assert found.more == 90 - 50
    assert (
        kinds(found)
        == [("stuck", "fail")] * 20 + [("no_node", "warn")] * 20 + [("store_unsafe", "warn")] * 10
    )
    assert [item.run for item in found.items[:2]] == ["r00", "r01"], "the longest first"


def test_no_search_reads_the_history(app: Scheduler, store: Watched, clock: VirtualClock) -> None:
    add_node(app)
    for name in ("a", "b"):
        app.schedules.add(name, "every 1h", "work")
        app.schedules.run_now(name)
    end(app, "x")
    app.enqueue("work")
    claimed(app, 50 * HOUR)
    app.enqueue("rare")
    clock.advance("2h")
    store.searches.clear()
    assert {item.kind for item in app.attention().items} == {"late", "failing", "stuck", "no_node"}
    assert store.searches
    for query in store.searches:
        is_bounded = query.states == ("running",) or query.is_about_queued_runs_of_a_queue
        is_of_one = query.tenant is not None and query.schedule is not None and query.limit <= 10
        assert is_bounded or is_of_one, query
        assert query.limit <= 500
        assert query.without
