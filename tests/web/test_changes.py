"""The watch reports what any process changes in the store, once, also if it commits late."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat.core.records import Execution, Record, ScheduleRecord
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim, RunQuery, ScheduleQuery
from evenbeat.web.catalogue import Catalogue
from evenbeat.web.change import Change, coalesced
from evenbeat.web.changes import ChangeWatch
from tests.web.activity import Activity

MANY = Change("run", "many")


class Listeners:
    """A receiver that keeps what it gets: for a client of all tenants, unless a test says otherwise."""

    def __init__(self) -> None:
        self.audiences: dict[str | None, float] = {None: 0.0}
        self.published: list[tuple[int, dict[str | None, Sequence[Change]]]] = []

    def publish(self, instant: int, found: Mapping[str | None, Sequence[Change]]) -> None:
        self.published.append((instant, dict(found)))


class Watched:
    """A watch on a store in memory; the test moves the clocks."""

    def __init__(self) -> None:
        self.activity = Activity()
        self.listeners = Listeners()
        self.seconds = 100.0
        self.watch = ChangeWatch(self.activity.store, Catalogue(), self.listeners, clock=lambda: self.seconds)

    def poll(self, after: str = "1s", **fields: Any) -> list[Change]:
        self.activity.clock.advance(after)
        self.seconds += 1
        return self.watch.step(**fields).get(None, [])


@pytest.fixture
def watched() -> Watched:
    watched = Watched()
    watched.poll()
    return watched


def run(kind: Any, run_id: str, tenant: str = "default", schedule: str | None = None) -> Change:
    return Change("run", kind, tenant, run_id, schedule)


def test_the_first_poll_reports_changes_of_the_last_seconds_and_that_nodes_are_unknown() -> None:
    """A client may have read its page before the first poll."""
    watched = Watched()
    watched.activity.enqueue("old")
    watched.activity.clock.advance("10s")
    watched.activity.enqueue("new")
    assert watched.poll() == [run("queued", "new"), Change("node", "many"), Change("quarantine", "many")]


def test_a_run_is_reported_as_queued_started_and_ended(watched: Watched) -> None:
    watched.activity.enqueue("r", "acme", schedule="s")
    assert watched.poll() == [run("queued", "r", "acme", "s")]
    assert watched.poll() == []
    (claimed,) = watched.activity.claim()
    assert watched.poll() == [run("started", "r", "acme", "s")]
    assert watched.poll() == []
    watched.activity.fail(claimed)
    assert watched.poll() == [run("failed", "r", "acme", "s")]
    for _ in range(20):
        assert watched.poll() == []


def test_a_run_that_lives_between_two_polls_is_reported_once_as_ended(watched: Watched) -> None:
    watched.activity.enqueue("r")
    (claimed,) = watched.activity.claim()
    watched.activity.succeed(claimed)
    assert watched.poll() == [run("succeeded", "r")]
    assert watched.poll() == []


def test_a_run_that_ends_after_hours_is_reported(watched: Watched) -> None:
    watched.activity.enqueue("r")
    (claimed,) = watched.activity.claim()
    watched.poll()
    for _ in range(3):
        assert watched.poll("1h") == []
    watched.activity.succeed(claimed)
    assert watched.poll() == [run("succeeded", "r")]


def test_a_run_that_waited_for_hours_is_reported_when_it_starts(watched: Watched) -> None:
    watched.activity.enqueue("r")
    watched.poll()
    watched.poll("3h")
    watched.activity.claim()
    assert watched.poll() == [run("started", "r")]


def test_a_retry_is_reported_as_queued_and_its_next_attempt_as_started(watched: Watched) -> None:
    watched.activity.enqueue("r", execution=Execution(retries=1))
    (claimed,) = watched.activity.claim()
    watched.poll()
    watched.activity.fail(claimed)
    assert watched.poll() == [run("queued", "r")]
    assert watched.poll("1m") == []
    (claimed,) = watched.activity.claim()
    assert watched.poll() == [run("started", "r")]


def test_a_retry_by_hand_is_reported_before_a_worker_takes_the_run(watched: Watched) -> None:
    """The run was created and ended long ago, and no node is alive."""
    watched.activity.enqueue("r", "acme")
    watched.activity.enqueue("other", "acme")
    for claimed in watched.activity.claim(limit=2):
        watched.activity.fail(claimed)
    watched.poll()
    watched.poll("1h")
    watched.poll("1m")
    watched.activity.retry("r")
    # Its schedule bounds its active runs, so another run was added for it.
    watched.activity.note_audit("other", "retry")
    assert watched.poll() == [run("queued", "r", "acme")]
    assert watched.poll() == []


def test_a_run_that_was_claimed_again_between_two_polls_is_reported_as_started(watched: Watched) -> None:
    watched.activity.enqueue("r")
    (claimed,) = watched.activity.claim()
    watched.poll()
    watched.activity.store.settle_runs([attempts.released(claimed, watched.activity.clock.now, "t")])
    watched.activity.claim()
    assert watched.poll() == [run("started", "r")]


def test_a_cancel_request_and_the_cancelled_run_are_reported(watched: Watched) -> None:
    watched.activity.enqueue("running")
    watched.activity.claim()
    watched.activity.enqueue("waiting")
    watched.poll()
    watched.activity.cancel("running")
    watched.activity.cancel("waiting")
    assert set(watched.poll()) == {run("updated", "running"), run("cancelled", "waiting")}
    assert watched.poll() == []


def test_a_run_that_commits_seconds_late_is_reported_once(watched: Watched) -> None:
    watched.poll("10s")
    watched.activity.enqueue("r", created_at=watched.activity.clock.now - 4_000)
    assert watched.poll() == [run("queued", "r")]
    assert watched.poll() == []


def test_a_run_that_commits_minutes_late_is_reported_when_it_ends(watched: Watched) -> None:
    """A user's transaction stayed open after it had enqueued the run."""
    watched.poll("10m")
    watched.activity.enqueue("r", created_at=watched.activity.clock.now - 300_000)
    assert watched.poll() == []
    (claimed,) = watched.activity.claim()
    watched.activity.succeed(claimed)
    assert watched.poll() == [run("succeeded", "r")]


def test_a_start_that_commits_late_is_reported(watched: Watched) -> None:
    watched.activity.enqueue("r")
    watched.poll("1m")
    watched.poll("1m")
    (claimed,) = watched.activity.claim()
    late = replace(claimed, started_at=watched.activity.clock.now - 30_000)
    watched.activity.store._store(late)
    assert watched.poll() == [run("started", "r")]


def test_an_end_that_commits_minutes_late_is_reported_if_the_run_was_seen_running(watched: Watched) -> None:
    watched.activity.enqueue("r")
    (claimed,) = watched.activity.claim()
    watched.poll()
    end = watched.activity.clock.now
    watched.poll("10m")
    watched.activity.succeed(claimed, at=end)
    assert watched.poll() == [run("succeeded", "r")]
    assert watched.poll() == []


def test_ends_that_workers_record_after_an_outage_are_reported(watched: Watched) -> None:
    watched.activity.enqueue("short")
    watched.poll()
    (claimed,) = watched.activity.claim()
    end = watched.activity.clock.now
    watched.activity.store.unavailable.add("find_runs")
    assert watched.poll() == [Change("store", "unavailable")]
    assert watched.poll("1m") == []
    watched.activity.store.unavailable.clear()
    assert watched.poll("1m") == [run("started", "short"), Change("store", "back")]
    # The worker could not reach the store, either. The watch does not know the run by this time.
    watched.watch._runs[None]._running = frozenset()
    watched.activity.succeed(claimed, at=end)
    assert watched.poll() == [run("succeeded", "short")]
    assert watched.poll("20s") == []


def test_more_runs_than_a_poll_reads_are_reported_as_many(watched: Watched) -> None:
    for number in range(501):
        watched.activity.enqueue(f"r{number}")
    assert watched.poll() == [MANY]
    assert watched.poll("10s") == []
    claimed = watched.activity.claim(limit=501)
    assert MANY in watched.poll()
    for each in claimed:
        watched.activity.succeed(each)
    assert MANY in watched.poll()
    assert [change for change in watched.poll("10s") if change.subject == "run"] == []


def test_500_runs_in_each_of_many_seconds_are_all_named(watched: Watched) -> None:
    """The overlap shrinks under load before changes are left out."""
    for second in range(3):
        for number in range(499):
            watched.activity.enqueue(f"r{second}-{number}")
        for each in watched.activity.claim(limit=499):
            watched.activity.succeed(each)
        found = [change for change in watched.poll() if change.subject == "run"]
        assert {change.id for change in found} == {f"r{second}-{number}" for number in range(499)}
        assert {change.kind for change in found} == {"succeeded"}


def test_more_than_500_running_runs_do_not_repeat_their_starts(watched: Watched) -> None:
    for number in range(600):
        watched.activity.enqueue(f"r{number:03}")
    claimed = watched.activity.claim(limit=600)
    watched.poll()
    assert watched.poll("20s") == [MANY] or watched.poll("20s") == []
    found = []
    for each in claimed[:300]:
        watched.activity.succeed(each)
        found += [change for change in watched.poll("20s") if change.kind == "started"]
    assert found == []


def test_a_poll_at_a_store_at_rest_reads_few_runs(watched: Watched) -> None:
    for number in range(300):
        watched.activity.enqueue(f"r{number}")
    watched.poll("1h")
    watched.activity.store.queries.clear()
    watched.poll()
    limits = [q.limit for q in watched.activity.store.queries if isinstance(q, RunQuery) and q.states is None]
    assert limits == [500, 500]
    queries = [q for q in watched.activity.store.queries if isinstance(q, RunQuery) and q.states is None]
    assert all((q.created_since or q.finished_since) is not None for q in queries)


def test_schedules_are_reported_as_created_updated_and_deleted(watched: Watched) -> None:
    watched.activity.put("s", "acme")
    assert watched.poll() == [Change("schedule", "created", "acme", "s")]
    watched.activity.put("s", "acme", task="other")
    assert watched.poll() == [Change("schedule", "updated", "acme", "s")]
    watched.activity.delete("s", "acme")
    assert watched.poll() == [Change("schedule", "deleted", "acme", "s")]
    assert watched.poll() == []


def test_many_changed_schedules_are_not_named(watched: Watched) -> None:
    for number in range(501):
        watched.activity.put(f"s{number}")
    assert watched.poll() == [Change("schedule", "many")]


def test_nodes_that_join_and_leave_are_reported_within_seconds(watched: Watched) -> None:
    store = watched.activity.store
    now = watched.activity.clock.now
    store.put_record(Record(kind="node", key="n1", body="{}", expires=now + 65_000))
    assert watched.poll("5s") == [Change("node", "joined", None, "n1")]
    store.put_record(Record(kind="node", key="n1", body="{}", version=2, expires=now + 65_000), 1)
    assert watched.poll("5s") == []
    assert watched.poll("2m") == [Change("node", "left", None, "n1")]


def test_quarantine_notes_are_reported(watched: Watched) -> None:
    store = watched.activity.store
    note = Record(kind="quarantine", tenant="acme", key="s", body="{}")
    store.put_record(note)
    assert watched.poll("5s") == [Change("quarantine", "added", "acme", "s")]
    store.delete_record("quarantine", "acme", "s", 1)
    assert watched.poll("5s") == [Change("quarantine", "removed", "acme", "s")]


def test_an_unavailable_store_is_reported_once_and_nothing_is_missed(watched: Watched) -> None:
    watched.activity.store.unavailable.add("now")
    assert watched.poll() == [Change("store", "unavailable")]
    watched.activity.enqueue("r")
    watched.activity.put("s")
    assert watched.poll("1m") == []
    watched.activity.store.unavailable.clear()
    assert set(watched.poll("1m")) == {
        Change("store", "back"),
        run("queued", "r"),
        Change("schedule", "created", "default", "s"),
    }


def test_changes_that_were_found_before_the_store_failed_are_published(watched: Watched) -> None:
    watched.activity.put("s")
    watched.activity.enqueue("r")
    watched.activity.store.unavailable.add("find_records of node")
    found = watched.poll("5s")
    assert found == [
        Change("schedule", "created", "default", "s"),
        run("queued", "r"),
        Change("store", "unavailable"),
    ]
    assert watched.listeners.published[-1][1] == {None: found}
    watched.activity.store.unavailable.clear()
    assert watched.poll() == [Change("store", "back")]


def test_each_poll_publishes_the_instant_of_the_store_even_without_changes(watched: Watched) -> None:
    watched.poll()
    watched.poll()
    now = watched.activity.clock.now
    assert [instant for instant, _ in watched.listeners.published[-2:]] == [now - 1_000, now]


def test_without_listeners_the_watch_only_refreshes_the_catalogue(watched: Watched) -> None:
    watched.listeners.audiences = {}
    watched.poll()
    watched.activity.store.queries.clear()
    for _ in range(3):
        assert watched.poll() == []
    assert watched.activity.store.queries == []
    watched.activity.enqueue("r")
    watched.poll()
    assert any(isinstance(query, ScheduleQuery) for query in watched.activity.store.queries)
    about_runs = [query for query in watched.activity.store.queries if isinstance(query, RunQuery)]
    assert [query.states for query in about_runs] == [("failed",)]


def test_a_hint_refreshes_the_catalogue_at_once(watched: Watched) -> None:
    watched.listeners.audiences = {}
    watched.poll()
    watched.activity.store.queries.clear()
    watched.poll()
    assert watched.activity.store.queries == []
    watched.poll(is_hinted=True)
    assert watched.activity.store.queries != []


def test_listeners_that_come_back_get_the_changes_of_the_last_seconds(watched: Watched) -> None:
    watched.listeners.audiences = {}
    watched.poll()
    watched.activity.enqueue("missed")
    watched.poll("10m")
    watched.activity.enqueue("r")
    watched.listeners.audiences = {None: 0.0}
    assert watched.poll() == [run("queued", "r"), Change("node", "many"), Change("quarantine", "many")]


def test_the_thread_publishes_goes_on_after_an_error_and_stops(caplog: pytest.LogCaptureFixture) -> None:
    activity, listeners, catalogue = Activity(), Listeners(), Catalogue()
    refreshed = threading.Event()
    refresh, failures = catalogue.refresh, iter([ValueError("a bug")])

    def broken(store: Any) -> None:
        for failure in failures:
            raise failure
        refresh(store)
        refreshed.set()

    catalogue.refresh = broken  # type: ignore[method-assign]
    watch = ChangeWatch(activity.store, catalogue, listeners)
    activity.put("s")
    watch.start()
    assert refreshed.wait(60)
    watch.stop()
    assert not watch._thread.is_alive()
    assert "a poll for changes failed, retrying" in caplog.text
    assert catalogue.is_loaded


def test_the_last_change_of_a_subject_counts() -> None:
    a, b = run("queued", "a"), run("queued", "b")
    assert coalesced([a, b, run("failed", "a")]) == [b, run("failed", "a")]
    assert coalesced([run("queued", "a", "t"), run("queued", "a", "u")]) != [run("queued", "a", "u")]


@pytest.mark.parametrize(
    ("change", "visible"),
    [
        (Change("schedule", "created", "acme", "s"), True),
        (Change("schedule", "created", "other", "s"), False),
        (Change("run", "failed", "other", "r"), False),
        (Change("quarantine", "added", "other", "s"), False),
        (Change("node", "joined", None, "n"), False),
        (Change("run", "many"), False),
        (Change("run", "many", "acme"), True),
        (Change("store", "unavailable"), True),
    ],
)
def test_a_client_of_a_tenant_sees_its_own_changes_and_those_of_the_store(
    change: Change, visible: bool
) -> None:
    assert change.is_visible_to("acme") is visible
    assert change.is_visible_to(None)


def test_a_slow_refresh_of_the_catalogue_makes_the_next_one_wait(watched: Watched) -> None:
    """A store without an index for changes reads all schedules each time."""
    catalogue = watched.watch._catalogue
    refresh, refreshed = catalogue.refresh, []

    def slow(store: Any) -> None:
        refresh(store)
        watched.seconds += 0.25
        refreshed.append(watched.seconds)

    catalogue.refresh = slow  # type: ignore[method-assign]
    for _ in range(12):
        watched.poll()
    assert [after - before for before, after in pairwise(refreshed)] == [5.25, 5.25]


def test_the_first_reading_of_all_schedules_does_not_make_the_next_refresh_wait() -> None:
    watched = Watched()
    catalogue = watched.watch._catalogue
    refresh = catalogue.refresh

    def slow(store: Any) -> None:
        refresh(store)
        watched.seconds += 10

    catalogue.refresh = slow  # type: ignore[method-assign]
    watched.poll()
    watched.activity.put("s")
    assert Change("schedule", "created", "default", "s") in watched.poll()


def test_changes_that_a_refresh_for_a_request_found_are_reported(watched: Watched) -> None:
    watched.activity.put("s")
    watched.watch._catalogue.refresh(watched.activity.store)
    assert watched.poll() == [Change("schedule", "created", "default", "s")]


MOST = 12


def act(activity: Activity, number: int) -> None:
    """Do to a quiet tenant what users and nodes do, a part at each step."""
    match number:
        case 0:
            activity.enqueue("mine", "acme", priority=9)
        case 1:
            activity.put("own", "acme")
            (held,) = activity.claim()
            assert held.id == "mine"
        case 2:
            note = Record(kind="quarantine", tenant="acme", key="own", body="{}")
            activity.store.put_record(note)
            (held,) = activity.store.find_runs(RunQuery(ids=("mine",))).items
            activity.fail(held)
        case 3:
            activity.retry("mine")
        case 4:
            activity.put("own", "acme", description="changed")
            activity.enqueue("second", "acme", created_at=activity.clock.now - 4_000, priority=9)


def busy(activity: Activity, number: int) -> None:
    """Let another tenant change more of everything than a poll names."""
    activity.put_many(
        [
            ScheduleRecord(
                name=f"s{number}-{at}",
                tenant="busy",
                task="work",
                trigger="every 1h",
                created_at=activity.clock.now,
                updated_at=activity.clock.now,
            )
            for at in range(MOST + 1)
        ]
    )
    for at in range(MOST + 1):
        activity.enqueue(f"busy{number}-{at:03}", "busy", queue="busy")
        activity.store.put_record(
            Record(kind="quarantine", tenant="aaa", key=f"q{number}-{at:03}", body="{}")
        )
    claim = Claim(
        worker="w",
        token=f"busy{number}",
        limit=MOST + 1,
        now=activity.clock.now,
        lease=30_000,
        queues=("busy",),
    )
    for each in activity.store.claim_runs(claim).runs:
        if number % 2:  # some go on
            activity.succeed(each)
        activity.note_audit(each.id, "retry")


def stream_of_acme(*, others_are_busy: bool, others_watch: bool) -> list[list[Change]]:
    watched = Watched()
    watched.listeners.audiences = {None: 0.0, "busy": 0.0} if others_watch else {}
    watched.poll()
    watched.poll()
    watched.listeners.audiences["acme"] = 0.0
    found = []
    for number in range(8):
        act(watched.activity, number)
        if others_are_busy:
            busy(watched.activity, number)
        watched.poll("2s")
        found.append(list(watched.listeners.published[-1][1]["acme"]))
    return found


def test_a_tenant_gets_the_same_changes_whatever_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenbeat.web.run_changes.MOST", MOST)
    monkeypatch.setattr("evenbeat.web.changes.MOST_NAMED", MOST)
    alone = stream_of_acme(others_are_busy=False, others_watch=False)
    assert [(change.subject, change.kind) for changes in alone for change in changes] == [
        ("run", "queued"),
        ("quarantine", "many"),
        ("schedule", "created"),
        ("run", "started"),
        ("run", "failed"),
        ("run", "queued"),
        ("quarantine", "added"),
        ("schedule", "updated"),
        ("run", "queued"),
    ]
    assert stream_of_acme(others_are_busy=False, others_watch=True) == alone
    assert stream_of_acme(others_are_busy=True, others_watch=False) == alone
    assert stream_of_acme(others_are_busy=True, others_watch=True) == alone


def test_a_tenant_with_many_changes_of_its_own_gets_many(watched: Watched) -> None:
    watched.listeners.audiences = {None: 0.0, "acme": 0.0, "other": 0.0}
    watched.poll()
    for number in range(501):
        watched.activity.enqueue(f"r{number}", "acme")
    watched.activity.enqueue("r", "other")
    assert watched.poll() == [MANY]
    found = watched.listeners.published[-1][1]
    assert found["acme"] == [Change("run", "many", "acme")]
    assert found["other"] == [run("queued", "r", "other")]


def test_the_first_poll_for_a_tenant_reaches_back_to_its_first_client(watched: Watched) -> None:
    watched.activity.enqueue("before", "acme")
    watched.poll("10s")
    watched.activity.enqueue("after", "acme")
    watched.listeners.audiences = {None: 0.0, "acme": 12.0}
    watched.poll("9s")
    found = watched.listeners.published[-1][1]["acme"]
    assert [change.id for change in found if change.subject == "run"] == ["after"]
