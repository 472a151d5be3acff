"""Bulk changes of schedules by filter, and the filter itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import BulkResult, InvalidValue, Schedule, Scheduler, StoreUnavailable, acting_as, every
from evenbeat.app import bulk, schedule_search
from evenbeat.core.records import ScheduleRecord
from evenbeat.rules import attempts, overdue
from evenbeat.rules.firing import Planned, plan
from evenbeat.stores.base import Claim, Page, ScheduleQuery, Write, Written
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock


class Contested(MemoryStore):
    """Counts writes and hints; another call may come right before the next write."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.sizes: list[int] = []
        self.limits: list[int] = []
        self.hints = 0
        self.overtake: Callable[[], object] | None = None

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        self.sizes.append(len(writes))
        overtake, self.overtake = self.overtake, None
        if overtake is not None:
            overtake()
        return super().put_schedules(writes)

    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        self.limits.append(query.limit)
        return super().find_schedules(query)

    def hint(self) -> None:
        self.hints += 1


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> Contested:
    return Contested(clock)


@pytest.fixture
def app(store: Contested) -> Scheduler:
    app = Scheduler(store)
    for name in ("work", "mail"):
        app.task(name=name)(lambda: None)
    app.schedules.add("bill-eu", every("1h"), "work", tags=["billing", "eu"], queue="slow")
    app.schedules.add("bill-us", every("1h"), "work", tags=["billing"], description="Invoices of the US")
    app.schedules.add("clean", every("1h"), "mail", paused=True)
    app.schedules.add("digest", every("1h"), "mail")
    app.schedules.add("other", every("1h"), "work", tags=["billing"], tenant="acme")
    store.sizes.clear()
    store.hints = 0
    return app


def states(app: Scheduler) -> dict[str, str]:
    return {row.name: row.state for row in app.schedules.list(all_tenants=True)}


def sampled(result: BulkResult[Schedule]) -> list[str]:
    return [row.name for row in result.sample]


QUEUES = ("default", "slow")

# -- the filter ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ({}, ["bill-eu", "bill-us", "clean", "digest"]),
        ({"tag": "billing"}, ["bill-eu", "bill-us"]),
        ({"tag": "bill"}, []),
        ({"tag": "billing", "all_tenants": True}, ["other", "bill-eu", "bill-us"]),
        ({"tag": "billing", "tenant": "acme"}, ["other"]),
        ({"text": "BILL"}, ["bill-eu", "bill-us"]),
        ({"text": "invoices"}, ["bill-us"]),
        ({"text": "MAIL"}, ["clean", "digest"]),  # the task
        ({"text": "billing"}, ["bill-eu", "bill-us"]),  # a tag
        ({"text": "usmail"}, []),  # not across two fields
        ({"text": ""}, ["bill-eu", "bill-us", "clean", "digest"]),
        ({"queue": "slow"}, ["bill-eu"]),
        ({"task": "mail"}, ["clean", "digest"]),
        ({"task": "mail", "state": "paused"}, ["clean"]),
        ({"managed_by": "code"}, []),
        ({"managed_by": "api", "limit": 2}, ["bill-eu", "bill-us"]),
        ({"tag": "billing", "limit": 1}, ["bill-eu"]),
        ({"tag": "billing", "queue": "slow", "text": "eu"}, ["bill-eu"]),
    ],
)
@pytest.mark.parametrize("page", [1, 500])
def test_schedules_are_listed_by_filter(
    app: Scheduler, chosen: dict[str, Any], names: list[str], page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_search, "_PAGE", page)
    assert [row.name for row in app.schedules.list(**chosen)] == names


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ({"names": ["digest", "bill-us", "digest", "unknown"]}, ["bill-us", "digest"]),
        ({"names": []}, []),
        ({"names": None, "tag": "billing"}, ["bill-eu", "bill-us"]),
        ({"names": ["bill-us", "digest", "clean"], "text": "bill"}, ["bill-us"]),
        ({"names": ["other", "digest"], "tenant": "acme"}, ["other"]),
        ({"names": ("clean", "digest")}, ["digest"]),  # clean is paused already
    ],
)
@pytest.mark.parametrize("page", [1, 500])
def test_a_bulk_change_takes_names(
    app: Scheduler, chosen: dict[str, Any], names: list[str], page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_search, "_PAGE", page)
    assert sampled(app.schedules.pause_all(**chosen)) == names
    paused = {row.name for row in app.schedules.list(all_tenants=True) if row.state == "paused"}
    assert paused == {*names, "clean"}


def test_every_bulk_change_takes_names(app: Scheduler) -> None:
    assert app.schedules.run_all(names=["digest"]).done == 1
    assert app.schedules.resume_all(names=["clean"]).done == 1
    assert app.schedules.delete_all(names=["clean", "digest"]).done == 2
    assert states(app) == {"bill-eu": "active", "bill-us": "active", "other": "active"}


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"names": "digest"}, 'names "digest" is a text; give a list of names of schedules'),
        ({"names": ["digest", ".x"]}, 'names ".x"'),
        ({"names": [["digest"]]}, "names ['digest']"),
        ({"names": ["x"] * 1001}, "names has 1,001 names, and at most 1,000 are allowed"),
        ({"names": ["digest"], "all_tenants": True}, "names are names of one tenant's schedules"),
    ],
)
def test_wrong_names_are_refused(app: Scheduler, chosen: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        app.schedules.pause_all(**chosen)
    assert words in str(refused.value)
    assert refused.value.field == "names"
    assert app.schedules.pause_all(names=["x"] * 1000).matched == 0


def end_run(app: Scheduler, name: str, *, fails: bool) -> None:
    """Let a run of the schedule begin and end."""
    run_id = app.schedules.run_now(name).id
    now = app.store.now()
    claim = Claim(worker="w", token=run_id, limit=1, now=now, lease=30_000, tasks=None, queues=QUEUES)
    (run,) = app.store.claim_runs(claim).runs
    ends = attempts.failed(run, "boom", now, "end") if fails else attempts.succeeded(run, None, now, "end")
    assert app.store.settle_runs([ends]) == [True]


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ({"failing": True}, ["bill-us", "digest"]),
        ({"failing": False}, ["bill-eu", "clean", "soon"]),
        ({"failing": True, "task": "work"}, ["bill-us"]),
        ({"late": True}, ["digest", "soon"]),
        ({"late": False}, ["bill-eu", "bill-us", "clean"]),
        ({"late": True, "state": "paused"}, []),
        ({"late": True, "failing": True, "text": "mail"}, ["digest"]),
        ({"late": True, "limit": 1}, ["digest"]),
        ({"late": True, "tenant": "acme"}, []),
    ],
)
def test_lists_and_bulk_changes_find_failing_and_late_schedules(
    app: Scheduler, clock: VirtualClock, chosen: dict[str, Any], names: list[str]
) -> None:
    for name in ("bill-eu", "bill-us", "digest"):
        end_run(app, name, fails=True)
    clock.advance("1s")
    end_run(app, "bill-eu", fails=False)
    app.schedules.reschedule("digest", "1m")
    app.schedules.add("soon", every("1m"), "work")
    app.schedules.pause("clean", until="1m")
    clock.advance("90s")
    assert app.schedules.list(late=True) == []
    clock.advance("1ms")
    assert [row.name for row in app.schedules.list(**chosen)] == names
    if "state" not in chosen and "limit" not in chosen:
        assert sampled(app.schedules.delete_all(dry_run=True, **chosen)) == names


def test_a_late_schedule_that_fires_meanwhile_is_left_alone(
    app: Scheduler, store: Contested, clock: VirtualClock
) -> None:
    app.schedules.reschedule("bill-eu", "59m")
    clock.advance("2h")
    store.overtake = lambda: store.fire_due(clock.now, 1, plan)
    done = app.schedules.pause_all(late=True)
    (refused,) = done.refused
    assert (done.done, refused.id) == (2, "bill-eu")
    assert [(item.tenant, item.id) for item in done.changed] == [
        ("default", "bill-us"),
        ("default", "digest"),
    ]
    assert refused.why == "schedule bill-eu has changed, and does not match any more"


def test_a_search_reads_no_more_rows_than_it_needs(app: Scheduler, store: Contested) -> None:
    def limits(**chosen: Any) -> list[int]:
        store.limits.clear()
        app.schedules.list(**chosen)
        return store.limits

    assert limits(limit=3) == limits(limit=3, task="work") == [3]
    assert limits() == [500]
    # The store can't compare these: a page of few rows might have none that match.
    for chosen in ({"text": "e"}, {"queue": "default"}, {"tag": "billing"}, {"managed_by": "api"}):
        assert limits(limit=1, **chosen) == [500]
    for flag in ("failing", "late"):
        assert limits(limit=1, **{flag: True}) == limits(limit=1, **{flag: False}) == [500]


def test_a_damaged_row_still_matches_whatever_its_state(app: Scheduler, store: Contested) -> None:
    search = schedule_search.ScheduleSearch(app._session, {}, ("paused",))
    (row,) = store.find_schedules(ScheduleQuery(name="bill-eu")).items
    assert not search.matches(row)
    assert search.matches(replace(row, damage="state: nonsense"))


def test_schedules_of_decorated_tasks_are_managed_by_code(app: Scheduler) -> None:
    app.task(name="nightly", schedule=every("1d"))(lambda: None)
    app.declare_tasks()
    assert [row.name for row in app.schedules.list(managed_by="code")] == ["nightly"]


def test_a_filter_with_a_misspelt_option_is_refused(app: Scheduler) -> None:
    calls = (
        app.schedules.pause_all,
        app.schedules.resume_all,
        app.schedules.run_all,
        app.schedules.delete_all,
    )
    unknown: Any = {"tags": "billing"}
    for call in calls:
        with pytest.raises(InvalidValue, match="has no option tags; did you mean tag"):
            call(**unknown)
        with pytest.raises(InvalidValue, match="limit -1 is negative"):
            call(limit=-1)
        with pytest.raises(InvalidValue, match="deleted"):
            call(state="deleted")  # type: ignore[arg-type]
    for name in ("text", "queue", "tag", "managed_by"):
        not_text: Any = {name: 7}
        with pytest.raises(InvalidValue, match=f"{name} 7 is not a text"):
            app.schedules.list(**not_text)
    for name in ("failing", "late"):
        not_flag: Any = {name: "no"}
        with pytest.raises(InvalidValue, match=f'{name} "no" is not True or False'):
            app.schedules.list(**not_flag)


# -- bulk changes --------------------------------------------------------------------------------------------


def test_all_that_match_are_paused_in_one_write(app: Scheduler, store: Contested) -> None:
    with acting_as("anna"):
        done = app.schedules.pause_all("migration", tag="billing", until="2h")
    assert (done.matched, done.done, done.refused, done.more) == (2, 2, (), False)
    assert sampled(done) == ["bill-eu", "bill-us"]
    assert {row.state for row in done.sample} == {"active"}
    assert (store.sizes, store.hints) == ([2], 1)
    assert states(app) == {
        "bill-eu": "paused",
        "bill-us": "paused",
        "clean": "paused",
        "digest": "active",
        "other": "active",
    }
    paused = app.schedules.get("bill-eu")
    assert (paused.pause_note, paused.paused_by) == ("migration", "anna")
    assert paused.paused_until is not None
    entries = app.audit.list(actor="anna")
    assert {(entry.action, entry.subject) for entry in entries} == {
        ("pause", "bill-eu"),
        ("pause", "bill-us"),
    }


def test_a_dry_run_only_counts(app: Scheduler, store: Contested) -> None:
    before = len(app.audit.list())
    for call in (app.schedules.pause_all, app.schedules.run_all, app.schedules.delete_all):
        found = call(tag="billing", dry_run=True, limit=1)
        assert (found.matched, found.done, found.more, sampled(found)) == (1, 0, True, ["bill-eu"])
    assert (store.sizes, store.hints, len(app.audit.list())) == ([], 0, before)


@pytest.mark.parametrize(("limit", "more"), [(1, True), (2, True), (3, False), (4, False)])
def test_no_more_are_changed_than_the_limit_allows(
    app: Scheduler, limit: int, more: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "_BATCH", 2)
    monkeypatch.setattr(schedule_search, "_PAGE", 2)
    done = app.schedules.pause_all(limit=limit)
    assert (done.matched, done.done, done.more) == (min(limit, 3), min(limit, 3), more)
    names = [name for name in ("bill-eu", "bill-us", "digest") if states(app)[name] == "paused"]
    assert names == ["bill-eu", "bill-us", "digest"][:limit]


def test_paused_ones_can_get_another_note(app: Scheduler) -> None:
    done = app.schedules.pause_all("for good", state="paused")
    assert (done.done, app.schedules.get("clean").pause_note) == (1, "for good")
    with pytest.raises(InvalidValue, match=r"until .* is in the past"):
        app.schedules.pause_all(until="2000-01-01T00:00Z")


def test_all_paused_ones_are_resumed(app: Scheduler, store: Contested) -> None:
    app.schedules.pause("digest")
    store.sizes.clear()
    done = app.schedules.resume_all(task="mail")
    assert (done.matched, done.done, store.sizes) == (2, 2, [2])
    assert set(states(app).values()) == {"active"}
    nothing = app.schedules.resume_all()
    assert (nothing.matched, nothing.more, nothing.sample) == (0, False, ())
    assert [entry.action for entry in app.audit.list(limit=2)] == ["resume", "resume"]


def test_all_active_ones_are_run(app: Scheduler, store: Contested) -> None:
    done = app.schedules.run_all(all_tenants=True)
    assert (done.matched, done.done, store.sizes) == (4, 4, [4])
    assert {run.schedule for run in app.runs.list(all_tenants=True)} == {
        "bill-eu",
        "bill-us",
        "digest",
        "other",
    }
    entries = app.audit.list(action="run_now", all_tenants=True)
    assert {entry.after["run"] for entry in entries} == {run.id for run in app.runs.list(all_tenants=True)}
    assert app.schedules.run_all(state="paused").done == 1


def test_a_schedule_without_room_for_a_run_is_named(app: Scheduler) -> None:
    app.schedules.update("bill-us", overlap="skip")
    app.schedules.run_now("bill-us")
    done = app.schedules.run_all(tag="billing")
    (refused,) = done.refused
    assert (done.done, refused.tenant, refused.id) == (1, "default", "bill-us")
    assert "leave no room for another" in refused.why


def test_all_that_match_are_deleted(app: Scheduler, store: Contested) -> None:
    done = app.schedules.delete_all(text="bill")
    assert (done.matched, done.done, store.sizes) == (2, 2, [2])
    assert sorted(states(app)) == ["clean", "digest", "other"]
    assert app.schedules.delete_all(state="paused").done == 1
    assert sorted(states(app)) == ["digest", "other"]


# -- others write, too ---------------------------------------------------------------------------------------


def test_a_schedule_that_fires_meanwhile_is_paused_all_the_same(
    app: Scheduler, store: Contested, clock: VirtualClock
) -> None:
    clock.advance("1h")
    store.overtake = lambda: MemoryStore.fire_due(store, clock.now, 10, plan)
    done = app.schedules.pause_all(tag="billing")
    assert (done.done, store.sizes) == (2, [2, 1, 1])
    assert states(app)["bill-eu"] == states(app)["bill-us"] == "paused"
    assert len(app.schedules.history("bill-eu")) == len(app.schedules.history("bill-us")) == 2


@pytest.mark.parametrize(
    ("chosen", "changed"),
    [
        ({"tag": "billing"}, {"tags": ["bill"]}),
        ({"task": "work"}, {"task": "mail"}),
        ({"text": "bill", "task": "work", "queue": "default"}, {"queue": "slow"}),
        ({"text": "invoices"}, {"description": "Bills"}),
    ],
)
def test_a_schedule_that_does_not_match_any_more_is_left_alone(
    app: Scheduler, store: Contested, chosen: Any, changed: Any
) -> None:
    others = app.schedules.delete_all(dry_run=True, **chosen).matched - 1
    store.overtake = lambda: app.schedules.update("bill-us", **changed)
    done = app.schedules.delete_all(**chosen)
    (refused,) = done.refused
    assert (done.done, refused.id) == (others, "bill-us")
    assert refused.why == "schedule bill-us has changed, and does not match any more"
    assert store.hints == 1 + bool(others)  # of the other call, and of this one
    assert "bill-us" in states(app)


def test_a_schedule_that_another_person_pauses_meanwhile_keeps_that_note(
    app: Scheduler, store: Contested
) -> None:
    store.overtake = lambda: app.schedules.pause("bill-us", "theirs")
    done = app.schedules.pause_all("ours", tag="billing")
    assert (done.done, [refused.id for refused in done.refused]) == (1, ["bill-us"])
    assert app.schedules.get("bill-us").pause_note == "theirs"


def test_a_store_that_goes_away_after_a_refusal_ends_the_call(
    app: Scheduler, store: Contested, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> object:
        raise StoreUnavailable("away")

    def overtake() -> None:
        app.schedules.update("bill-us", retries=1)
        monkeypatch.setattr(MemoryStore, "find_schedules", away)

    store.overtake = overtake
    with pytest.raises(StoreUnavailable):
        app.schedules.pause_all(tag="billing")


def test_a_schedule_that_is_deleted_meanwhile_is_named(app: Scheduler, store: Contested) -> None:
    store.overtake = lambda: app.schedules.delete("bill-us")
    done = app.schedules.pause_all(tag="billing")
    assert (done.done, [refused.id for refused in done.refused]) == (1, ["bill-us"])
    assert [entry.action for entry in app.schedules.history("bill-us")] == ["delete", "add"]


def test_a_schedule_with_a_long_backlog_is_resumed_on_its_own(
    app: Scheduler, store: Contested, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.schedules.add("busy", every("1m"), "work", catch_up="all", catch_up_limit=1_000)
    app.schedules.pause("busy", until="1s")
    monkeypatch.setattr(overdue, "RUNS_A_CHANGE", 10)
    clock.advance("250m")
    store.sizes.clear()
    done = app.schedules.resume_all()
    assert (done.matched, done.done) == (2, 2)
    assert store.sizes == [1, 1]
    assert app.schedules.get("busy").state == "active"
    assert len(app.runs.list(schedule="busy", limit=1_000)) == 100  # nodes add the others
    (entry,) = app.audit.list(subject="busy", action="resume")
    assert (entry.before["state"], entry.after["state"]) == ("paused", "active")
    store.fire_due(clock.now, 10, plan)
    assert len(app.runs.list(schedule="busy", limit=1_000)) > 100


def test_a_damaged_schedule_is_named_and_the_others_change(app: Scheduler, store: Contested) -> None:
    (row,) = store.find_schedules(ScheduleQuery(name="bill-eu")).items
    spoilt = replace(row, damage="payload: not JSON", revision=row.revision + 1)
    assert MemoryStore.put_schedules(store, [Write(Planned(spoilt), row.version)])[0].accepted
    done = app.schedules.pause_all()
    (refused,) = done.refused
    assert (done.done, refused.id, "payload: not JSON" in refused.why) == (2, "bill-eu", True)
    assert store.sizes == [2]


def test_the_note_on_a_row_that_could_not_be_fired_goes_with_the_row(
    app: Scheduler, store: Contested, clock: VirtualClock
) -> None:
    def fail(*_: object) -> Planned:
        raise ValueError("no plan")

    clock.advance("1h")
    assert len(store.fire_due(clock.now, 10, fail).quarantined) == 4
    assert len(store.find_records("quarantine", "default")) == 3
    assert app.schedules.delete_all(tag="billing").done == 2
    assert [note.key for note in store.find_records("quarantine", "default")] == ["digest"]


def test_a_store_that_is_away_ends_the_call(
    app: Scheduler, store: Contested, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> object:
        raise StoreUnavailable("away")

    monkeypatch.setattr(MemoryStore, "find_runs", away)
    app.schedules.update("bill-eu", max_concurrent=None)
    row = store.find_schedules(ScheduleQuery(name="bill-eu")).items[0]
    bounded = replace(row, max_concurrent=3, revision=row.revision + 1)
    assert MemoryStore.put_schedules(store, [Write(Planned(bounded), row.version)])[0].accepted
    with pytest.raises(StoreUnavailable):
        app.schedules.run_all(tag="billing")


def test_bulk_changes_have_awaited_twins(app: Scheduler) -> None:
    async def work() -> list[int]:
        schedules = app.schedules
        return [
            (await schedules.arun_all(tag="billing")).done,
            (await schedules.apause_all(tag="billing")).done,
            (await schedules.aresume_all(tag="billing")).done,
            (await schedules.adelete_all(tag="billing")).done,
        ]

    assert asyncio.run(work()) == [2, 2, 2, 2]


# -- update_all ----------------------------------------------------------------------------------------------


def test_all_that_match_are_updated_and_the_others_stay(app: Scheduler) -> None:
    before = {each.name: each for each in app.schedules.list()}
    dry = app.schedules.update_all({"retries": 3, "queue": "batch"}, tag="billing", dry_run=True)
    assert (dry.matched, dry.done, [each.name for each in dry.sample]) == (2, 0, ["bill-eu", "bill-us"])
    done = app.schedules.update_all({"retries": 3, "queue": "batch"}, tag="billing")
    assert [each.id for each in done.changed] == ["bill-eu", "bill-us"]
    after = {each.name: each for each in app.schedules.list()}
    assert {(after[name].retries, after[name].queue) for name in ("bill-eu", "bill-us")} == {(3, "batch")}
    assert (after["clean"], after["digest"]) == (before["clean"], before["digest"])
    assert app.schedules.get("other", tenant="acme").retries == 0


def test_a_schedule_that_cannot_take_the_changes_stays_whole(app: Scheduler) -> None:
    app.schedules.update("bill-us", catch_up="all")
    done = app.schedules.update_all({"catch_up_limit": 5, "retries": 2}, tag="billing")
    assert [each.id for each in done.changed] == ["bill-us"]
    assert [(each.id, "has no effect" in each.why) for each in done.refused] == [("bill-eu", True)]
    assert app.schedules.get("bill-eu").retries == 0


def test_a_schedule_that_changes_before_its_update_is_matched_again(app: Scheduler, store: Contested) -> None:
    def edit() -> None:
        app.schedules.update("bill-eu", tags=[])
        app.schedules.update("bill-us", priority="high")

    store.overtake = edit
    done = app.schedules.update_all({"retries": 3}, tag="billing")
    assert [each.id for each in done.changed] == ["bill-us"]
    assert [each.why for each in done.refused] == [
        "schedule bill-eu has changed, and does not match any more"
    ]
    after = app.schedules.get("bill-us")
    assert (after.retries, after.priority) == (3, 8)
    assert app.schedules.get("bill-eu").retries == 0


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({}, "changes"),
        (None, "changes"),
        ("retries", "changes"),
        ({"retires": 3}, "retires"),
        ({"paused": True}, "paused"),
        ({"retries": -1}, "retries"),
        ({"retries": 1 << 63}, "retries"),
        ({"trigger": "0 0 31 2 *"}, "day of month"),
    ],
)
def test_changes_that_say_nothing_or_are_unknown_are_refused(app: Scheduler, wanted: Any, field: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        app.schedules.update_all(wanted)
    assert refused.value.field == field


def test_a_bulk_update_fires_nothing_and_can_be_awaited(app: Scheduler) -> None:
    done = asyncio.run(app.schedules.aupdate_all({"trigger": "every 5m"}, managed_by="api"))
    assert done.done == 4
    assert not app.runs.list()


# -- patterns of names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("bill-*", ["bill-eu", "bill-us"]),
        ("bill-?u", ["bill-eu"]),
        ("*-us", ["bill-us"]),
        ("[cd]*", ["clean", "digest"]),
        ("[!b]*", ["clean", "digest"]),
        ("digest", ["digest"]),
        ("Bill-*", []),
        ("bill", []),
        ("*", ["bill-eu", "bill-us", "clean", "digest"]),
    ],
)
def test_schedules_are_chosen_by_a_pattern_of_names(app: Scheduler, pattern: str, names: list[str]) -> None:
    assert [each.name for each in app.schedules.list(name=pattern)] == names
    assert app.schedules.delete_all(name=pattern, dry_run=True).matched == len(names)


def test_a_pattern_with_a_prefix_reads_only_the_names_that_begin_with_it(
    clock: VirtualClock, store: Contested, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_search, "_PAGE", 5)
    app = Scheduler(store)
    for number in range(30):
        app.schedules.add(f"s{number:02}", every("1h"), "work")
    store.limits.clear()
    assert [each.name for each in app.schedules.list(name="s1*")] == [f"s1{digit}" for digit in range(10)]
    assert len(store.limits) == 3
    store.limits.clear()
    assert len(app.schedules.list(name="s17")) == 1
    assert len(store.limits) == 1
    assert len(app.schedules.list(name="s2[0-4]", limit=3)) == 3
    assert len(app.schedules.list(name="s1*", all_tenants=True)) == 10


@pytest.mark.parametrize("pattern", ["", "a b", "%", "a" * 201, 7, "a\n"])
def test_a_pattern_that_no_name_can_match_is_refused(app: Scheduler, pattern: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        app.schedules.list(name=pattern)
    assert refused.value.field == "name"
