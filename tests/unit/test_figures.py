"""``app.statistics``, ``failures``, ``nodes``, ``tenants`` and ``quarantine``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import FigurePoint, Figures, InvalidValue, QuarantineNote, Scheduler
from evenbeat.core.instants import from_ms
from evenbeat.core.records import Record, RunRecord
from evenbeat.node.counting import Counting
from evenbeat.node.presence import NodeInfo, Presence
from evenbeat.node.rollups import Rollups
from evenbeat.rules import attempts
from evenbeat.rules.error_groups import error_line, group_id, normalised
from evenbeat.rules.firing import Planned
from evenbeat.rules.rollups import HOUR, MINUTE, start_of
from evenbeat.stores.base import Claim, Page, RunQuery, ScheduleQuery, Store, Write
from evenbeat.stores.memory import MemoryStore
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock, virtual


@pytest.fixture
def clock() -> VirtualClock:
    clock = VirtualClock()
    clock.now = start_of("hour", clock.now) + 30 * MINUTE
    return clock


class NoScans(MemoryStore):
    """A store that refuses to search for runs, and to count them."""

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        raise AssertionError("a search for runs")

    def count_runs(self, tenant: str | None = None) -> Any:
        raise AssertionError("a count of runs")


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, clock: VirtualClock, tmp_path: Path) -> Iterator[Scheduler]:
    store: Store = MemoryStore(clock)
    if request.param == "sqlite":
        store = SqliteStore(f"{tmp_path}/figures.db", clock=clock)
    app = Scheduler(store)
    yield app
    app.close()


@pytest.fixture
def still(clock: VirtualClock) -> Scheduler:
    """An app whose store has no runs to search for."""
    return Scheduler(NoScans(clock))


class Fed:
    """A node that counts what a test says."""

    def __init__(self, app: Scheduler, name: str = "n1") -> None:
        self.counting = Counting()
        self._duty = Rollups(app.store, self.counting, name)
        self._store = app.store

    def starts(self, count: int = 1, *, late: int = 0, **fields: Any) -> None:
        now = self._store.now()
        run = RunRecord(
            id="r", **{"task": "works", "attempt": 1, "started_at": now, "scheduled_at": now - late, **fields}
        )
        self.counting.count_started([run] * count, now)

    def writes(self) -> None:
        self._duty.step(self._store.now())


def started(points: Sequence[FigurePoint]) -> list[int]:
    return [point.figures.started for point in points]


# -- statistics ----------------------------------------------------------------------------------------------


def test_statistics_are_points_by_the_minute_with_totals(app: Scheduler, clock: VirtualClock) -> None:
    first, second = Fed(app, "n1"), Fed(app, "n2")
    for minute in range(3):
        first.starts(minute + 1, schedule="s")
        second.starts(1, task="other")
        clock.advance("1m")
        first.writes()
        if minute != 1:
            second.writes()
    series = app.statistics("5m")
    assert (series.by, series.since, series.until) == (
        "minute",
        from_ms(clock.now - 5 * MINUTE),
        from_ms(clock.now),
    )
    assert started(series.points) == [0, 0, 2, 3, 4]
    # Its figures of the second minute came with those of the third.
    assert [point.nodes for point in series.points] == [0, 0, 2, 2, 2]
    assert [point.at for point in series.points] == [
        from_ms(clock.now - at * MINUTE) for at in (5, 4, 3, 2, 1)
    ]
    assert series.total.started == 9
    assert series.is_complete
    assert (series.schedules, series.tasks) == ((), ())
    assert app.statistics("5m", task="other").total.started == 3
    assert app.statistics("5m", schedule="s").total.started == 6
    assert app.statistics("5m", schedule="unknown").total.started == 0
    assert app.statistics("5m", "2m").total.started == 2
    assert asyncio.run(app.astatistics("5m")) == series


def test_statistics_read_rollups_and_no_runs(still: Scheduler, clock: VirtualClock) -> None:
    node = Fed(still)
    node.starts()
    clock.advance("1m")
    node.writes()
    assert still.statistics().total.started == 1
    assert still.nodes() == []
    assert still.quarantine.list() == []


def test_hours_are_read_if_minutes_do_not_go_back_that_far(app: Scheduler, clock: VirtualClock) -> None:
    node = Fed(app)
    begin = clock.now
    for _ in range(5):
        node.starts(2)
        clock.advance("1h")
        node.writes()
    assert app.statistics("3h").by == "minute"
    series = app.statistics("6h")
    assert series.by == "hour"
    assert series.since == from_ms(start_of("hour", clock.now - 6 * HOUR))
    # The present hour is in it, too.
    assert series.until == from_ms(start_of("hour", clock.now) + HOUR)
    assert started(series.points) == [0, 2, 2, 2, 2, 2, 0]
    assert app.statistics("1h", by="hour").total.started == 2
    assert app.statistics(from_ms(begin), by="hour").total.started == 10
    assert app.statistics(timedelta(hours=4), timedelta(hours=2), by="hour").total.started == 6


def test_two_tenants_are_apart(app: Scheduler, clock: VirtualClock) -> None:
    node = Fed(app)
    node.starts(2, schedule="s")
    node.starts(3, tenant="acme", schedule="s")
    clock.advance("1m")
    node.writes()
    assert app.statistics().total.started == 2
    assert app.statistics(tenant="acme").total.started == 3
    assert app.statistics(tenant="nobody").total.started == 0
    assert app.statistics(all_tenants=True).total.started == 5
    assert app.statistics(all_tenants=True, schedule="s").total.started == 5
    top = app.statistics(all_tenants=True, top=5)
    assert [(row.tenant, row.name, row.figures.started) for row in top.schedules] == [
        ("acme", "s", 3),
        ("default", "s", 2),
    ]
    assert [(row.tenant, row.name) for row in app.statistics(top=5).tasks] == [("default", "works")]


def test_the_busiest_names_come_first(app: Scheduler, clock: VirtualClock) -> None:
    node = Fed(app)
    for at in range(5):
        node.starts(at + 1, schedule=f"s{at}", task=f"t{at % 2}")
    clock.advance("1m")
    node.writes()
    series = app.statistics(top=2)
    assert [(row.name, row.figures.started) for row in series.schedules] == [("s4", 5), ("s3", 4)]
    assert [(row.name, row.figures.started) for row in series.tasks] == [("t0", 9), ("t1", 6)]


def test_percentiles_come_from_the_histograms(app: Scheduler, clock: VirtualClock) -> None:
    node = Fed(app)
    node.starts(90, late=3)
    node.starts(10, late=1_500)
    clock.advance("1m")
    node.writes()
    lateness = app.statistics().total.lateness
    assert lateness is not None
    assert lateness.count == 100
    assert timedelta(milliseconds=2) < lateness.p50 < timedelta(milliseconds=4)
    assert timedelta(milliseconds=1_024) < lateness.p95 < lateness.p99 < timedelta(milliseconds=2_048)
    assert app.statistics().total.duration is None


def test_figures_are_incomplete_where_the_bounds_left_the_name_out(
    app: Scheduler, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenbeat.rules.rollups.MOST_NAMES", 1)
    monkeypatch.setattr("evenbeat.rules.rollups.MOST_TENANTS", 1)
    node = Fed(app)
    node.starts(1, schedule="kept")
    node.starts(2, schedule="left-out")
    node.starts(4, tenant="acme")
    clock.advance("1m")
    node.writes()
    kept, left_out = app.statistics(schedule="kept"), app.statistics(schedule="left-out")
    assert (kept.total.started, kept.is_complete) == (1, True)
    assert (left_out.total.started, left_out.is_complete) == (0, False)
    assert (app.statistics().total.started, app.statistics().is_complete) == (3, True)
    everyone = app.statistics(all_tenants=True)
    assert (everyone.total.started, everyone.is_complete) == (7, True)
    assert not app.statistics(tenant="acme").is_complete


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ({"since": "41d"}, "since"),
        ({"since": "4h", "by": "minute"}, "since"),
        ({"since": "1h", "until": "2h"}, "since"),
        ({"since": "+1h"}, "since"),
        ({"by": "day"}, "by"),
        ({"schedule": "s", "task": "t"}, "task"),
        ({"top": -1}, "top"),
        ({"top": 201}, "top"),
        ({"tenant": "not a tenant"}, "tenant"),
    ],
)
def test_statistics_refuse_what_they_can_not_answer(still: Scheduler, call: Any, field: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        still.statistics(**call)
    assert refused.value.field == field


def test_a_range_within_the_present_minute_has_one_point(still: Scheduler) -> None:
    assert len(still.statistics("10s").points) == 1


# -- failures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("KeyError: 'NO'", "KeyError: '…'"),
        ('ValueError: "it\'s" is bad', 'ValueError: "…" is bad'),
        ("can't open it, isn't there", "can't open it, isn't there"),
        ("timed out after 5m", "timed out after …"),
        ("TimeoutError: 10.0.0.7:5432 after 2.5 s", "TimeoutError: … after … s"),
        ("S3Error: bucket b-17 of <Client at 0x7f3a>", "S3Error: bucket … of <Client at …>"),
        ("worker box-4711-3f2a9c was lost during attempt 2", "worker … was lost during attempt …"),
        ("no such user 6f9619ff-8b86-d011-b42d-00c04fc964ff", "no such user …"),
        ("app.errors.Http404: /orders/12/items", "app.errors.Http404: /orders/…/items"),
        ("plain words", "plain words"),
    ],
)
def test_values_that_differ_are_replaced(line: str, expected: str) -> None:
    assert normalised(line) == expected


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (None, "no error message"),
        ("  \n", "no error message"),
        ('ValueError: x\n\n  File "a.py", line 1, in f\n    f()', "ValueError: x"),
        (
            "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    f()\nKeyError: 'x'\nmore",
            "KeyError: 'x'",
        ),
        ("Traceback (most recent call last):\nKeyError: 'x'", "KeyError: 'x'"),
        ('Traceback (most recent call last):\n  File "a.py", line 1', '  File "a.py", line 1'.strip()),
    ],
)
def test_the_line_of_an_error_names_it(error: str | None, line: str) -> None:
    assert error_line(error) == line


def test_a_long_line_takes_no_time_and_any_text_has_an_id() -> None:
    assert len(normalised("a" * 10_000_000)) <= 300
    assert group_id("\ud800") != group_id("x")


def fail(app: Scheduler, error: str, **options: Any) -> str:
    """Enqueue a run that fails with this error; return its id."""
    run = app.enqueue(options.pop("task", "works"), **options)
    claim = Claim(worker="w", token=run.id, limit=1, now=app.store.now(), lease=30_000)
    (held,) = app.store.claim_runs(claim).runs
    assert app.store.settle_runs([attempts.failed(held, error, app.store.now(), run.id)]) == [True]
    return run.id


def test_failed_runs_are_grouped_by_their_error(app: Scheduler, clock: VirtualClock) -> None:
    begin = clock.now
    first = fail(app, "KeyError: 'NO'\n\nwhere it was")
    clock.advance("1m")
    other = fail(app, "ConnectionError: refused", task="fetch")
    clock.advance("1m")
    last = fail(app, "KeyError: 'DE'\n\nsomewhere else", task="other")
    fail(app, "KeyError: 'acme'", tenant="acme")
    report = app.failures()
    assert (report.count, report.more) == (3, False)
    assert (report.since, report.until) == (from_ms(clock.now - 24 * HOUR), from_ms(clock.now))
    missing, refused = report.groups
    assert (missing.error, missing.count) == ("KeyError: '…'", 2)
    assert (missing.oldest, missing.newest) == (from_ms(begin), from_ms(clock.now))
    assert (missing.tasks, missing.schedules, missing.tenants) == (("other", "works"), (), ("default",))
    assert missing.runs == (last, first)
    assert missing.runs[0] == last
    assert missing.whole_error == "KeyError: 'DE'\n\nsomewhere else"
    assert (refused.error, refused.runs) == ("ConnectionError: refused", (other,))
    assert [group.id for group in app.failures(task="fetch").groups] == [refused.id]
    assert app.failures("30s").groups[0].runs == (last,)
    assert app.failures(None, schedule="none").groups == ()
    assert app.failures(None, schedule="none").since is None
    assert [group.count for group in app.failures(all_tenants=True).groups] == [3, 1]
    assert asyncio.run(app.afailures()) == report


def test_the_report_says_if_there_are_more_failed_runs(app: Scheduler, clock: VirtualClock) -> None:
    ids = []
    for at in range(5):
        ids.append(fail(app, f"ValueError: {at}"))
        clock.advance("1s")
    report = app.failures(limit=3)
    assert (report.count, report.more) == (3, True)
    assert report.groups[0].runs == tuple(reversed(ids[2:]))
    assert report.since == app.runs.get(ids[2]).created_at
    for limit in (0, 1_001, -1):
        with pytest.raises(InvalidValue, match="limit"):
            app.failures(limit=limit)


def test_one_group_can_be_retried(app: Scheduler, clock: VirtualClock) -> None:
    wanted = [fail(app, f"KeyError: '{name}'") for name in ("a", "b")]
    other = fail(app, "ValueError: no")
    theirs = fail(app, "KeyError: 'c'", tenant="acme")
    group = next(group for group in app.failures().groups if group.error.startswith("KeyError"))
    result = app.runs.retry_all(ids=group.runs)
    assert (result.matched, result.done) == (2, 2)
    assert [app.runs.get(name).state for name in (*wanted, other)] == ["queued", "queued", "failed"]
    # Ids of another tenant match nothing.
    assert app.runs.retry_all(ids=[theirs]).matched == 0
    assert app.runs.retry_all(ids=[]).matched == 0
    assert app.runs.cancel_all(ids=[wanted[0]]).done == 1
    with pytest.raises(InvalidValue, match="ids"):
        app.runs.retry_all(ids="abc")


def test_a_group_of_a_thousand_runs_is_retried(clock: VirtualClock) -> None:
    app = Scheduler(MemoryStore(clock))
    runs = [
        RunRecord(
            id=f"r{at:04}", task="works", state="failed", error=f"ValueError: {at}", finished_at=clock.now
        )
        for at in range(1_200)
    ]
    app.store.add_runs([replace(run, created_at=clock.now + at) for at, run in enumerate(runs)])
    report = app.failures(None)
    (group,) = report.groups
    assert (group.count, report.more) == (1_000, True)
    assert app.runs.retry_all(ids=group.runs).done == 1_000
    assert app.failures(None).count == 200


# -- nodes ---------------------------------------------------------------------------------------------------


def test_live_nodes_are_listed_as_they_describe_themselves(app: Scheduler, clock: VirtualClock) -> None:
    begin = clock.now
    info = NodeInfo(
        name="n1",
        host="h",
        pid=7,
        version="1.2",
        started_at=begin,
        seen_at=begin,
        ticker=False,
        worker=True,
        tasks={"works": "thread"},
        queues=["default", "slow"],
        slots={"thread": 10},
    )
    clock.advance("1m")
    Presence(app.store, info, running=lambda: 3).step(clock.now)
    app.store.put_record(Record(kind="node", key="odd", body="[]"))
    node, odd = app.nodes()
    assert (node.name, node.host, node.pid, node.version) == ("n1", "h", 7, "1.2")
    assert (node.started_at, node.seen_at) == (from_ms(begin), from_ms(clock.now))
    assert (node.ticker, node.worker, node.running) == (False, True, 3)
    assert (node.tasks, node.queues, node.slots) == ({"works": "thread"}, ("default", "slow"), {"thread": 10})
    assert (odd.name, odd.host, odd.seen_at, odd.running, odd.tasks) == ("odd", None, None, None, {})
    assert asyncio.run(app.anodes()) == [node, odd]


# -- quarantine ----------------------------------------------------------------------------------------------


def test_quarantine_names_schedules_and_runs_with_the_reason_and_a_remedy(
    app: Scheduler, clock: VirtualClock
) -> None:
    store = app.store
    for name in ("stuck", "sound", "put-off"):
        app.schedules.add(name, "every 1m", "works")
    row = store.find_schedules(ScheduleQuery(name="stuck")).items[0]
    asleep = Planned(replace(row, wake_at=None, fire_seq=row.fire_seq + 1))
    assert store.put_schedules([Write(asleep, row.version)])[0].accepted
    for kind, name in (("quarantine", "stuck"), ("quarantine", "sound"), ("quarantine", "a-run")):
        store.put_record(Record(kind=kind, key=name, body=f"{name} is bad"))
    store.put_record(Record(kind="deferred", key="put-off", body="no such zone"))
    store.put_record(Record(kind="deferred", key="theirs", body="no such zone", tenant="acme"))
    notes = app.quarantine.list()
    assert [(note.kind, note.name, note.reason) for note in notes] == [
        ("quarantine", "a-run", "a-run is bad"),
        ("deferred", "put-off", "no such zone"),
        # "sound" was repaired in the database itself.
        ("quarantine", "stuck", "stuck is bad"),
    ]
    assert {type(note) for note in notes} == {QuarantineNote}
    assert ["failed" in notes[0].remedy, "tzdata" in notes[1].remedy, "drop" in notes[2].remedy] == [True] * 3
    assert [note.name for note in app.quarantine.list(tenant="acme")] == ["theirs"]
    assert len(app.quarantine.list(all_tenants=True)) == 4
    assert asyncio.run(app.quarantine.alist()) == notes


# -- a real node ---------------------------------------------------------------------------------------------


def test_a_node_writes_its_figures_when_it_stops(app: Scheduler) -> None:
    @app.task
    def works() -> None:
        pass

    run = works.enqueue()
    with app:
        app.runs.join(run.id, "60s")
    total = app.statistics("1h", by="hour").total
    assert isinstance(total, Figures)
    assert (total.started, total.succeeded) == (1, 1)
    assert total.duration is not None


def test_figures_are_counted_in_virtual_time() -> None:
    with virtual(now="2026-03-01T12:00:00Z") as scheduler:

        @scheduler.task
        def works() -> None:
            pass

        scheduler.schedules.add("beat", "every 30s", works)
        scheduler.travel("10m")
        scheduler.travel("20s")
        scheduler.travel("50m")
        total = scheduler.statistics("2h", by="hour").total
        assert total.succeeded == total.fired == len(scheduler.finished)
        series = scheduler.statistics("2h")
        assert series.total.succeeded == len(scheduler.finished) - 1  # the last one is of the present minute
        assert series.points[-1].figures.succeeded == 2
        scheduler.travel("9h")
        assert scheduler.statistics("1d").total.succeeded == len(scheduler.finished)
