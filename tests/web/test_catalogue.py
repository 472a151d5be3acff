"""The catalogue finds what the store has, sorted and filtered, and stays up to date."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat.core.records import ScheduleRecord
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.rules.firing import Planned
from evenbeat.rules.schedule_filters import Entry, entry_of
from evenbeat.stores.base import ScheduleQuery, Write
from evenbeat.stores.pages import write_position
from evenbeat.stores.sqlite.store import SqliteStore
from evenbeat.testing import VirtualClock
from evenbeat.web.catalogue import MOST_LATE, Catalogue, ScheduleChange, late_keys
from evenbeat.web.entries import EMPTY, POSITIONS, Snapshot
from evenbeat.web.search import CatalogueQuery, search
from tests.web.activity import Activity


@pytest.fixture
def activity() -> Activity:
    return Activity()


@pytest.fixture
def catalogue() -> Catalogue:
    return Catalogue()


def names(catalogue: Catalogue, **query: Any) -> list[str]:
    """Return the names on all pages of a search."""
    found: list[str] = []
    cursor = None
    while True:
        page = catalogue.search(CatalogueQuery(cursor=cursor, **query))
        found += [name for _, name in page.keys]
        cursor = page.cursor
        if cursor is None:
            assert page.matched == len(found)
            return found


def loaded(activity: Activity) -> Catalogue:
    catalogue = Catalogue()
    catalogue.refresh(activity.store)
    return catalogue


def test_a_search_before_the_first_refresh_says_that_the_schedules_are_being_read(
    catalogue: Catalogue,
) -> None:
    assert not catalogue.is_loaded
    with pytest.raises(StoreUnavailable, match="still being read"):
        catalogue.search(CatalogueQuery())


def test_the_first_refresh_reads_all_pages_of_the_store(activity: Activity) -> None:
    activity.put_many([record(f"s{number:04}") for number in range(1_201)])
    catalogue = loaded(activity)
    assert len(catalogue) == 1_201
    assert catalogue.take_changes() == []
    assert len([query for query in activity.store.queries if isinstance(query, ScheduleQuery)]) == 3
    catalogue.load(activity.store)
    assert len([query for query in activity.store.queries if isinstance(query, ScheduleQuery)]) == 3
    by_request = Catalogue()
    by_request.load(activity.store)
    assert len(by_request) == 1_201


def test_filters_find_the_schedules_that_match_all_of_them(activity: Activity) -> None:
    activity.put("backup", task="pg.dump", tags="db nightly", description="Saves the Orders table")
    activity.put("report", task="mail.send", queue="slow", managed_by="code")
    activity.put("cleanup", task="pg.vacuum", tags="db", state="paused")
    activity.put("report", "acme", task="mail.send")
    catalogue = loaded(activity)
    assert names(catalogue, text="BACK") == ["backup"]
    assert names(catalogue, text="orders TAB") == ["backup"]
    assert names(catalogue, text="pg.") == ["backup", "cleanup"]
    assert names(catalogue, text="nightly") == ["backup"]
    assert names(catalogue, text="missing") == []
    assert names(catalogue, text="") == ["backup", "cleanup", "report", "report"]
    assert names(catalogue, state="paused") == ["cleanup"]
    assert names(catalogue, task="mail.send", tenant="acme") == ["report"]
    assert names(catalogue, tag="db") == ["backup", "cleanup"]
    assert names(catalogue, tag="d") == []
    assert names(catalogue, tag="db", text="vacuum", state="paused") == ["cleanup"]
    assert names(catalogue, queue="slow") == ["report"]
    assert names(catalogue, managed_by="code") == ["report"]
    assert names(catalogue, tenant="default") == ["backup", "cleanup", "report"]
    assert names(catalogue, tenant="other") == []


def test_a_text_does_not_match_across_two_fields(activity: Activity) -> None:
    activity.put("ab", task="cd")
    assert names(loaded(activity), text="bc") == []


def test_each_sort_has_a_whole_order_over_pages(activity: Activity) -> None:
    for number, (name, task) in enumerate([("b", "x"), ("a", "y"), ("c", "x"), ("d", "x")]):
        activity.put(name, task=task, updated_at=1_000 - number % 3)
    activity.put("a", "acme", task="x", updated_at=999)
    catalogue = loaded(activity)
    for limit in (1, 2, 5):
        assert names(catalogue, sort="name", limit=limit) == ["a", "a", "b", "c", "d"]
        assert names(catalogue, sort="-name", limit=limit) == ["d", "c", "b", "a", "a"]
        assert names(catalogue, sort="task", limit=limit) == ["a", "b", "c", "d", "a"]
        assert names(catalogue, sort="updated_at", limit=limit) == ["c", "a", "a", "b", "d"]
        assert names(catalogue, sort="-updated_at", limit=limit) == ["d", "b", "a", "a", "c"]


def test_schedules_of_the_same_name_are_sorted_by_tenant(activity: Activity) -> None:
    activity.put("a", "z")
    activity.put("a", "acme")
    page = loaded(activity).search(CatalogueQuery())
    assert page.keys == (("acme", "a"), ("z", "a"))


def test_a_page_counts_up_to_1000_matches_and_says_that_there_are_more(activity: Activity) -> None:
    activity.put_many(
        [record(f"s{number:04}", tags="few" if number < 1_000 else "") for number in range(1_001)]
    )
    catalogue = loaded(activity)
    page = catalogue.search(CatalogueQuery(limit=10))
    assert (len(page.keys), page.matched, page.more_match) == (10, 1_000, True)
    page = catalogue.search(CatalogueQuery(limit=10, tag="few"))
    assert (page.matched, page.more_match) == (1_000, False)
    page = catalogue.search(CatalogueQuery(limit=10, tag="few", cursor=page.cursor))
    assert (page.keys[0][1], page.matched, page.more_match) == ("s0010", 1_000, False)


def test_a_cursor_continues_behind_a_schedule_that_is_gone_and_finds_new_ones(activity: Activity) -> None:
    for name in ("a", "b", "d"):
        activity.put(name)
    catalogue = loaded(activity)
    page = catalogue.search(CatalogueQuery(limit=2))
    activity.delete("b")
    activity.put("c")
    catalogue.refresh(activity.store)
    page = catalogue.search(CatalogueQuery(limit=2, cursor=page.cursor))
    assert [name for _, name in page.keys] == ["c", "d"]


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "é",
        "\ud800",
        "AAAA" * 100,
        write_position(("name", "a")),
        write_position(("name", 5, "default")),
        write_position(("-name", "a", "default")),
        write_position(("nonsense", "a", "default")),
        write_position(("updated_at", 5, "a", "default")),
        write_position({"name": 1}),  # type: ignore[arg-type]  # what a tampered cursor may contain
    ],
)
def test_a_cursor_that_no_page_of_this_sort_gave_is_refused(activity: Activity, cursor: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        loaded(activity).search(CatalogueQuery(cursor=cursor))
    assert caught.value.field == "cursor"
    assert "start without one" in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("limit", 0), ("limit", 501), ("limit", True), ("sort", "payload"), ("sort", "-task")],
)
def test_a_query_refuses_unknown_sorts_and_limits_out_of_range(field: str, value: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        CatalogueQuery(**{field: value})
    assert caught.value.field == field


def test_a_refresh_finds_new_changed_and_deleted_schedules(activity: Activity) -> None:
    activity.put("changes", task="old")
    activity.put("goes")
    activity.put("stays")
    catalogue = loaded(activity)
    activity.clock.advance("1s")
    activity.put("changes", task="new")
    activity.delete("goes")
    activity.put("new", "acme")
    catalogue.refresh(activity.store)
    assert names(catalogue) == ["changes", "new", "stays"]
    assert names(catalogue, task="new") == ["changes"]
    assert set(catalogue.take_changes()) == {
        ScheduleChange("updated", "default", "changes"),
        ScheduleChange("deleted", "default", "goes"),
        ScheduleChange("created", "acme", "new"),
    }
    catalogue.refresh(activity.store)
    assert catalogue.take_changes() == []


def test_a_schedule_that_is_created_and_changed_between_two_polls_is_new(activity: Activity) -> None:
    catalogue = loaded(activity)
    activity.put("s")
    catalogue.refresh(activity.store)
    activity.put("s", task="other")
    catalogue.refresh(activity.store)
    assert catalogue.take_changes() == [ScheduleChange("created", "default", "s")]


def test_a_deleted_schedule_that_is_created_again_is_found(activity: Activity) -> None:
    activity.put("s")
    catalogue = loaded(activity)
    activity.delete("s")
    catalogue.refresh(activity.store)
    assert names(catalogue) == []
    activity.put("s", state="active", generation=2)
    catalogue.refresh(activity.store)
    assert names(catalogue) == ["s"]


def test_a_write_with_a_clock_that_is_half_a_minute_behind_is_found(activity: Activity) -> None:
    catalogue = loaded(activity)
    sweep_all(activity, catalogue)
    activity.put("s", updated_at=activity.clock.now - 30_000)
    catalogue.refresh(activity.store)
    assert names(catalogue) == ["s"]


def test_a_refresh_reads_only_the_last_minute_again(activity: Activity) -> None:
    activity.put("s")
    catalogue = loaded(activity)
    read_at = activity.clock.now
    activity.clock.advance("3s")
    activity.store.queries.clear()
    catalogue.refresh(activity.store)
    query = activity.store.queries[0]
    assert isinstance(query, ScheduleQuery)
    assert query.changed_since == read_at - 60_000


def sweep_all(activity: Activity, catalogue: Catalogue) -> None:
    """Let sweeps come to the end of all schedules, so that the next one is due in 5 s."""
    activity.clock.advance("5s")
    catalogue.refresh(activity.store)


def test_sweeps_find_writes_that_left_no_mark(activity: Activity) -> None:
    """An old clock, and a row that was deleted by hand."""
    activity.put_many([record(f"s{number:04}") for number in range(1_100)])
    catalogue = loaded(activity)
    sweep_all(activity, catalogue)
    activity.put("s1050", updated_at=5, task="other")
    activity.put("s0000-new", updated_at=5)
    for name in ("s0001", "s0700", "s1099"):
        del activity.store._schedules["default", name]
    catalogue.refresh(activity.store)
    assert catalogue.take_changes() == []
    for _ in range(4):
        activity.clock.advance("5s")
        catalogue.refresh(activity.store)
    assert set(catalogue.take_changes()) == {
        ScheduleChange("updated", "default", "s1050"),
        ScheduleChange("created", "default", "s0000-new"),
        *(ScheduleChange("deleted", "default", name) for name in ("s0001", "s0700", "s1099")),
    }
    assert len(catalogue) == 1_098


def test_the_end_of_a_timed_pause_is_found_when_it_comes(activity: Activity) -> None:
    """A fire ends the pause, and leaves ``updated_at`` as it was."""
    activity.put("s", next_tick=activity.clock.now + 3_600_000, wake_at=activity.clock.now + 3_600_000)
    activity.put_many([record(f"a{number:04}") for number in range(600)])
    activity.pause("s", activity.clock.now + 600_000)
    catalogue = loaded(activity)
    sweep_all(activity, catalogue)
    assert names(catalogue, state="paused") == ["s"]
    activity.clock.advance("5m")
    catalogue._swept_at = activity.clock.now
    catalogue.refresh(activity.store)
    activity.clock.advance("5m")
    activity.fire()
    assert activity.row("s").state == "active"
    activity.clock.advance("1s")
    catalogue._swept_at = activity.clock.now
    catalogue.refresh(activity.store)
    assert names(catalogue, state="paused") == []
    assert catalogue.take_changes() == [ScheduleChange("updated", "default", "s")]


@pytest.mark.parametrize("late", ["0s", "20s"])
def test_a_schedule_that_fired_its_last_tick_is_found_as_finished(activity: Activity, late: str) -> None:
    tick = activity.clock.now + 600_000
    activity.put("once", trigger="at 2026-03-01T12:10:00Z", next_tick=tick, wake_at=tick)
    catalogue = loaded(activity)
    activity.clock.advance("10m1s")
    for _ in range(3):
        # No node is alive yet.
        catalogue._swept_at = activity.clock.now
        catalogue.refresh(activity.store)
        assert names(catalogue, state="active") == ["once"]
    activity.clock.advance(late)
    activity.fire()
    activity.clock.advance("5s")
    catalogue._swept_at = activity.clock.now
    catalogue.refresh(activity.store)
    assert names(catalogue, state="finished") == ["once"]


def test_a_schedule_is_failing_from_its_failed_run_to_its_next_success(activity: Activity) -> None:
    activity.put("good")
    activity.put("bad")
    activity.put("worse")
    activity.ended("good", failed=False)
    activity.ended("worse", failed=True)
    catalogue = loaded(activity)
    assert names(catalogue, failing=True) == ["worse"]
    sweep_all(activity, catalogue)
    activity.clock.advance("1s")
    activity.ended("bad", failed=True)
    catalogue.refresh(activity.store)
    assert names(catalogue, failing=True) == ["bad", "worse"]
    assert names(catalogue, failing=False) == ["good"]
    activity.clock.advance("1s")
    activity.ended("worse", failed=False)
    catalogue.refresh(activity.store)
    assert names(catalogue, failing=True) == ["bad"]
    assert catalogue.take_changes() == []


def test_a_change_of_a_failing_schedule_keeps_it_failing(activity: Activity) -> None:
    activity.put("s")
    activity.ended("s", failed=True)
    catalogue = loaded(activity)
    activity.put("s", task="other")
    catalogue.refresh(activity.store)
    assert names(catalogue, failing=True, task="other") == ["s"]
    activity.delete("s")
    catalogue.refresh(activity.store)
    assert names(catalogue, failing=True) == []


def test_recoveries_of_many_failing_schedules_are_found_in_turn(activity: Activity) -> None:
    activity.put_many([record(f"s{number:04}") for number in range(1_200)])
    for number in range(1_200):
        activity.ended(f"s{number:04}", failed=True)
    catalogue = loaded(activity)
    assert len(names(catalogue, failing=True, limit=500, text="s00")) == 100
    activity.clock.advance("1m")
    for number in range(1_200):
        activity.ended(f"s{number:04}", failed=False)
    for _ in range(3):
        catalogue._swept_at = activity.clock.now
        catalogue.refresh(activity.store)
    assert names(catalogue, failing=True) == []


def test_late_schedules_are_those_that_should_have_fired_30_s_ago(activity: Activity) -> None:
    now = activity.clock.now
    activity.put("late", wake_at=now - 30_001)
    activity.put("late", "acme", wake_at=now - 100_000)
    activity.put("soon", wake_at=now - 30_000)
    activity.put("asleep")
    activity.put("paused", state="paused", wake_at=now - 100_000)
    catalogue = loaded(activity)
    late = late_keys(activity.store, now)
    assert late == {("default", "late"), ("acme", "late")}
    assert late_keys(activity.store, now, "acme") == {("acme", "late")}
    found = catalogue.search(CatalogueQuery(late=True), late)
    assert (found.keys, found.matched) == ((("acme", "late"), ("default", "late")), 2)
    assert catalogue.search(CatalogueQuery(late=True, tenant="acme"), late).keys == (("acme", "late"),)
    assert catalogue.search(CatalogueQuery(late=True)).keys == ()
    left = catalogue.search(CatalogueQuery(late=False, sort="-name"), late)
    assert left.keys == (("default", "soon"), ("default", "paused"), ("default", "asleep"))
    assert catalogue.search(CatalogueQuery(), late).matched == 5


def test_late_schedules_are_bounded(activity: Activity) -> None:
    activity.put_many([record(f"s{number:04}", wake_at=5) for number in range(MOST_LATE + 10)])
    assert len(late_keys(activity.store, activity.clock.now)) == MOST_LATE


def test_a_refresh_that_fails_changes_nothing_and_is_repeated_whole(activity: Activity) -> None:
    activity.put("s")
    catalogue = loaded(activity)
    activity.put("s", task="other")
    activity.put("new")
    activity.store.unavailable.add("find_runs")
    with pytest.raises(StoreUnavailable):
        catalogue.refresh(activity.store)
    assert names(catalogue, task="work") == ["s"]
    activity.store.unavailable.clear()
    activity.clock.advance("1h")
    catalogue.refresh(activity.store)
    assert names(catalogue, task="other") == ["s"]
    assert names(catalogue) == ["new", "s"]


def test_searches_beside_refreshes_see_whole_snapshots(activity: Activity) -> None:
    """Each refresh gives all schedules another task: no search may find two tasks, or half of them."""
    count = 520
    activity.put_many([record(f"s{number:03}", task="t0") for number in range(count)])
    catalogue = loaded(activity)
    found: list[tuple[int, int]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            snapshot = catalogue._snapshot
            assert snapshot is not None
            tasks = {entry.task for order in snapshot.orders.values() for entry in order}
            found.append((len(tasks), catalogue.search(CatalogueQuery(sort="task", limit=500)).matched))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for round_number in range(1, 4):
        activity.clock.advance("1s")
        for number in range(count):
            activity.put(f"s{number:03}", task=f"t{round_number}")
        catalogue.refresh(activity.store)
    done.set()
    for thread in threads:
        thread.join()
    assert set(found) == {(1, count)}


def test_two_threads_may_refresh_at_once(activity: Activity) -> None:
    activity.put_many([record(f"s{number:03}") for number in range(600)])
    catalogue = Catalogue()
    threads = [threading.Thread(target=catalogue.refresh, args=(activity.store,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(catalogue) == 600
    assert catalogue.take_changes() == []


Keys = st.tuples(st.sampled_from(["t", "u"]), st.sampled_from(["a", "b", "c", "d"]))


@given(
    st.lists(
        st.lists(
            st.tuples(Keys, st.none() | st.tuples(st.sampled_from(["x", "y"]), st.integers(0, 3))), max_size=5
        )
    )
)
def test_snapshots_have_the_same_entries_in_every_order(
    steps: list[list[tuple[tuple[str, str], tuple[str, int] | None]]],
) -> None:
    snapshot: Snapshot = EMPTY
    expected: dict[tuple[str, str], Entry] = {}
    for step in steps:
        changes = {key: None if value is None else entry(key, *value) for key, value in step}
        for key, new in changes.items():
            if new is None:
                expected.pop(key, None)
            else:
                expected[key] = new
        before = {order: list(those) for order, those in snapshot.orders.items()}
        previous, snapshot = snapshot, snapshot.changed(changes)
        assert previous.orders == before
        assert snapshot.entries == expected
        for order, those in snapshot.orders.items():
            assert those == sorted(expected.values(), key=POSITIONS[order])


@given(
    st.lists(st.tuples(Keys, st.tuples(st.sampled_from(["x", "y"]), st.integers(0, 3)))),
    st.sampled_from(["name", "-name", "updated_at", "-updated_at", "task"]),
    st.integers(1, 4),
    st.sampled_from([None, "x"]),
)
def test_pages_have_every_match_once(rows: Any, sort: Any, limit: int, task: str | None) -> None:
    entries = {key: entry(key, *value) for key, value in rows}
    snapshot = EMPTY.changed(entries)
    expected = [each for each in entries.values() if task is None or each.task == task]
    expected.sort(key=POSITIONS[sort.removeprefix("-")], reverse=sort.startswith("-"))
    found: list[tuple[str, str]] = []
    cursor = None
    while True:
        page = search(snapshot, CatalogueQuery(sort=sort, limit=limit, task=task, cursor=cursor))
        found += page.keys
        cursor = page.cursor
        if cursor is None:
            break
    assert found == [each.key for each in expected]


def entry(key: tuple[str, str], task: str, updated_at: int) -> Entry:
    return entry_of(record(key[1], tenant=key[0], task=task, updated_at=updated_at))


def record(name: str, **fields: Any) -> ScheduleRecord:
    given: dict[str, Any] = {"task": "work", "trigger": "every 1h", **fields}
    return ScheduleRecord(name=name, **given)


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "test.db", clock=VirtualClock())
    store.open()
    yield store
    store.close()


def test_the_catalogue_of_a_database_has_its_schedules(sqlite: SqliteStore, catalogue: Catalogue) -> None:
    rows = [record(f"s{number:04}", tags="odd" if number % 2 else "even") for number in range(1_010)]
    sqlite.put_schedules([Write(Planned(row), None) for row in rows])
    catalogue.refresh(sqlite)
    assert catalogue.search(CatalogueQuery(tag="odd", limit=1)).matched == 505
    changed = ScheduleRecord(
        name="s0001", task="other", trigger="every 1h", revision=2, updated_at=sqlite.now(), tags="even"
    )
    sqlite.put_schedules([Write(Planned(changed), rows[1].version)])
    catalogue.refresh(sqlite)
    assert catalogue.search(CatalogueQuery(tag="odd", limit=1)).matched == 504
    assert catalogue.search(CatalogueQuery(task="other")).keys == (("default", "s0001"),)
