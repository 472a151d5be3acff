"""Backfills as users see them, in virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import (
    BackfillExists,
    BackfillNotFound,
    InvalidValue,
    RunContext,
    ScheduleNotFound,
    Scheduler,
    at,
    cron,
    every,
)
from evenbeat.app.backfills import MOST_OPEN, Backfills
from evenbeat.core.records import Record
from evenbeat.node.backfills import ABANDONED_AFTER, BUSY_EVERY, IDLE_EVERY, Backfiller
from evenbeat.rules import attempts
from evenbeat.rules.backfills import KIND, KINDS, OPEN, batch_key, batch_range
from evenbeat.stores.base import Claim
from evenbeat.testing import virtual
from evenbeat.testing.virtual import VirtualScheduler

DAY = ("2026-03-01T00:00Z", "2026-03-01T06:00Z")
"""Six hourly ticks, before the virtual clock's 12:00."""


class Jobs:
    """The runs of the task, as it saw them."""

    def __init__(self) -> None:
        self.seen: list[datetime] = []
        self.payloads: list[str] = []
        self.failing: set[int] = set()

    def hours(self) -> list[int]:
        return [tick.hour for tick in self.seen]


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def here(jobs: Jobs) -> Iterator[VirtualScheduler]:
    app = Scheduler("memory://")

    @app.task
    def report(run: RunContext, region: str = "all") -> None:
        if run.cause == "backfill":
            assert run.tick is not None
            jobs.seen.append(run.tick)
            jobs.payloads.append(region)
            assert run.schedule == "hourly"
            if run.tick.hour in jobs.failing:
                raise RuntimeError("boom")

    with virtual(app) as scheduler:
        scheduler.schedules.add("hourly", cron("0 * * * *"), "report")
        yield scheduler


def leftovers(here: VirtualScheduler) -> list[Record]:
    return [record for kind in KINDS[1:] for record in here.store.find_records(kind)]


def test_each_tick_of_the_range_gets_a_run_with_the_tick_and_the_cause(
    here: VirtualScheduler, jobs: Jobs
) -> None:
    made = here.schedules.backfill("hourly", *DAY)
    assert (made.state, made.ticks, made.total, made.active, made.left) == ("running", 6, 6, 1, 5)
    ended = here.run_pending()
    assert jobs.hours() == [0, 1, 2, 3, 4, 5]
    assert [run.cause for run in ended] == ["backfill"] * 6
    assert [run.priority for run in ended] == [2] * 6
    assert ended[0].id == f"default/hourly/backfill/{made.id}/1772323200000"
    over = here.backfills.get(made.id)
    assert (over.state, over.succeeded, over.left, over.active) == ("done", 6, 0, 0)
    assert over.is_over
    assert leftovers(here) == []


def test_the_same_call_again_adds_nothing_and_returns_the_same_backfill(
    here: VirtualScheduler, jobs: Jobs
) -> None:
    first = here.schedules.backfill("hourly", *DAY)
    assert here.schedules.backfill("hourly", *DAY, max_concurrent=5).id == first.id
    # A range with the same ticks.
    assert here.schedules.backfill("hourly", "2026-02-28T23:30Z", "2026-03-01T05:00:01Z").id == first.id
    here.run_pending()
    again = here.schedules.backfill("hourly", *DAY, order="newest")
    here.run_pending()
    assert (again.id, again.state, again.order) == (first.id, "done", "oldest")
    assert len(jobs.seen) == 6


def test_an_id_of_its_own_runs_a_range_again(here: VirtualScheduler, jobs: Jobs) -> None:
    here.schedules.backfill("hourly", *DAY)
    here.schedules.backfill("hourly", *DAY, id="again")
    here.run_pending()
    assert sorted(jobs.hours()) == sorted([0, 1, 2, 3, 4, 5] * 2)


def test_an_id_of_other_work_is_refused(here: VirtualScheduler) -> None:
    here.schedules.backfill("hourly", *DAY, id="mine")
    for start, end, more in ((DAY[0], "2026-03-01T05:00Z", {}), (*DAY, {"payload": {"region": "eu"}})):
        with pytest.raises(BackfillExists, match="mine") as caught:
            here.schedules.backfill("hourly", start, end, id="mine", **more)  # type: ignore[arg-type]
        assert caught.value.backfill == "mine"


def test_the_newest_come_first_if_asked(here: VirtualScheduler, jobs: Jobs) -> None:
    here.schedules.backfill("hourly", *DAY, order="newest", max_concurrent=2)
    here.run_pending()
    assert jobs.hours() == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("most", [1, 2, 4, 100])
def test_no_more_are_outstanding_than_allowed(here: VirtualScheduler, most: int) -> None:
    made = here.schedules.backfill("hourly", *DAY, max_concurrent=most)
    assert made.active == min(most, 6) == len(here.runs.list(state="queued"))


def test_many_ticks_are_written_in_parts(here: VirtualScheduler) -> None:
    made = here.schedules.backfill("hourly", "30d", "0s", max_concurrent=250)
    assert (made.total, made.active) == (720, 250)
    assert here.runs.count()["queued"] == 250


def test_a_payload_of_its_own_goes_to_each_run(here: VirtualScheduler, jobs: Jobs) -> None:
    here.schedules.backfill("hourly", *DAY, payload={"region": "eu"})
    here.run_pending()
    assert jobs.payloads == ["eu"] * 6


def test_runs_follow_the_present_options_and_the_trigger_of_the_beginning(
    here: VirtualScheduler, jobs: Jobs
) -> None:
    here.schedules.backfill("hourly", *DAY)
    here.schedules.update("hourly", trigger=cron("30 * * * *"), payload={"region": "us"})
    here.run_pending()
    assert jobs.hours() == [0, 1, 2, 3, 4, 5]
    assert jobs.payloads == ["all", *["us"] * 5]


def test_failed_runs_are_counted_and_named_and_the_rest_goes_on(here: VirtualScheduler, jobs: Jobs) -> None:
    jobs.failing = {2, 4}
    made = here.schedules.backfill("hourly", *DAY)
    here.run_pending()
    over = here.backfills.get(made.id)
    assert (over.state, over.succeeded, over.failed) == ("done", 4, 2)
    assert [here.runs.get(each).state for each in over.failed_runs] == ["failed", "failed"]


# -- the range ----------------------------------------------------------------------------------------------


def test_ticks_before_the_schedule_existed_are_backfilled(here: VirtualScheduler) -> None:
    here.schedules.add("often", every("10m"), "report")
    plan = here.schedules.backfill("often", "2026-02-28T23:00Z", "2026-03-01T00:00Z", dry_run=True).plan
    assert plan is not None
    assert [tick.tick.minute for tick in plan.ticks] == [0, 10, 20, 30, 40, 50]
    assert {tick.state for tick in plan.ticks} == {"none"}


def test_an_interval_with_a_start_has_no_ticks_before_it(here: VirtualScheduler) -> None:
    here.schedules.add("often", every("10m", start="2026-03-01T03:30Z"), "report")
    assert here.schedules.backfill("often", "2026-03-01T03:00Z", "2026-03-01T04:00Z", dry_run=True).ticks == 3


def test_a_single_instant_is_backfilled(here: VirtualScheduler) -> None:
    here.schedules.add("once", at("2026-03-01T11:00Z"), "report")
    assert here.schedules.backfill("once", "2h", "0s", dry_run=True).ticks == 1


def test_a_text_without_an_offset_is_a_time_in_the_zone_of_the_trigger(here: VirtualScheduler) -> None:
    here.schedules.add("local", cron("0 9 * * *", tz="Europe/Berlin"), "report")
    found = here.schedules.backfill("local", "2026-02-01", "2026-02-11", dry_run=True)
    assert found.ticks == 10
    assert found.start == datetime(2026, 1, 31, 23, tzinfo=UTC)


@pytest.mark.parametrize(
    ("start", "end", "options", "field", "words"),
    [
        ("2026-03-01T06:00Z", "2026-03-01T00:00Z", {}, "end", "start and end are not in order"),
        ("2026-03-01T06:00Z", "2026-03-01T06:00Z", {}, "end", "start and end are not in order"),
        ("2026-03-01T06:00Z", "2026-03-02T00:00Z", {}, "end", "in the future"),
        ("2026-03-01T06:10Z", "2026-03-01T06:20Z", {}, "start", "no tick"),
        ("2006-03-01T06:10Z", "2026-03-01T06:20Z", {}, "start", "more than 100,000"),
        ("yesterday", "0s", {}, "start", "yesterday"),
        (*DAY, {"max_concurrent": 0}, "max_concurrent", "0"),
        (*DAY, {"max_concurrent": -1}, "max_concurrent", "-1"),
        (*DAY, {"max_concurrent": 2**63}, "max_concurrent", str(2**63)),
        (*DAY, {"max_concurrent": 1_001}, "max_concurrent", "1001"),
        (*DAY, {"order": "random"}, "order", "random"),
        (*DAY, {"priority": "urgent"}, "priority", "urgent"),
        (*DAY, {"priority": 10}, "priority", "10"),
        (*DAY, {"id": "a/b"}, "id", "a/b"),
        (*DAY, {"id": ""}, "id", "id"),
        (*DAY, {"id": "a" * 65}, "id", "64"),
        (*DAY, {"payload": [1]}, "payload", "payload"),
    ],
)
def test_bad_values_are_refused_by_their_field(
    here: VirtualScheduler, start: str, end: str, options: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(InvalidValue, match=words) as caught:
        here.schedules.backfill("hourly", start, end, **options)
    assert caught.value.field == field
    assert here.backfills.list() == []
    assert leftovers(here) == []


def test_an_unknown_schedule_and_an_unknown_backfill_are_named(here: VirtualScheduler) -> None:
    with pytest.raises(ScheduleNotFound):
        here.schedules.backfill("nightly", *DAY)
    for call in (here.backfills.get, here.backfills.cancel):
        with pytest.raises(BackfillNotFound, match="nope"):
            call("nope")


def test_a_tenant_has_a_bounded_number_of_open_backfills(here: VirtualScheduler) -> None:
    for number in range(MOST_OPEN):
        here.store.put_record(Record(kind=OPEN, key=f"b{number:03}", body="0"))
    with pytest.raises(InvalidValue, match="100 backfills"):
        here.schedules.backfill("hourly", *DAY)


# -- the dry run --------------------------------------------------------------------------------------------


def test_a_dry_run_writes_nothing_and_says_what_became_of_each_tick(
    here: VirtualScheduler, jobs: Jobs
) -> None:
    here.travel("2h")  # 13:00 and 14:00 ran
    here.schedules.pause("hourly")
    here.travel("2h")
    here.schedules.resume("hourly")  # 15:00 and 16:00 were skipped
    here.travel("1h")
    before = here.backfills.list(), leftovers(here), len(here.audit.list())
    found = here.schedules.backfill("hourly", "2026-03-01T11:00Z", "2026-03-01T17:00Z", dry_run=True)
    assert (here.backfills.list(), leftovers(here), len(here.audit.list())) == before
    assert (found.state, found.total, found.created_at) == ("dry_run", 6, None)
    assert found.plan is not None
    assert [(tick.tick.hour, tick.state, tick.reason) for tick in found.plan.ticks] == [
        (11, "none", None),
        (12, "none", None),
        (13, "succeeded", None),
        (14, "succeeded", None),
        (15, "skipped", "paused"),
        (16, "skipped", "paused"),
    ]
    assert found.plan.states == {"none": 2, "succeeded": 2, "skipped": 2}
    assert found.plan.ticks[2].run == "default/hourly/1/1772370000000"
    assert all(tick.is_made for tick in found.plan.ticks)
    assert jobs.seen == []


def test_a_dry_run_lists_the_first_200_ticks_in_order(here: VirtualScheduler) -> None:
    plan = here.schedules.backfill("hourly", "10d", "0s", order="newest", dry_run=True).plan
    assert plan is not None
    assert (len(plan.ticks), plan.more) == (200, 40)
    assert plan.ticks[0].tick > plan.ticks[1].tick


def test_the_same_backfill_again_says_since_when_it_exists(here: VirtualScheduler) -> None:
    made = here.schedules.backfill("hourly", "4h", "0s")
    dry = here.schedules.backfill("hourly", "4h", "0s", max_concurrent=3, dry_run=True)
    again = here.schedules.backfill("hourly", "4h", "0s", max_concurrent=3)
    assert (made.existed_since, dry.existed_since, again.existed_since) == (
        None,
        made.created_at,
        made.created_at,
    )
    assert (dry.id, dry.total, again.max_concurrent) == (made.id, 0, 1)
    assert dry.plan is not None
    assert not any(tick.is_made for tick in dry.plan.ticks)
    other = here.schedules.backfill("hourly", "4h", "0s", id="again", dry_run=True)
    assert (other.existed_since, other.total) == (None, 4)


def test_ticks_before_the_horizon_of_the_retention_are_unknown(here: VirtualScheduler) -> None:
    here.travel("3h")
    here.store.put_record(Record(kind="purged", key="before", body=str(round(here.now.timestamp()) * 1000)))
    here.store.purge(round(here.now.timestamp()) * 1000, 100)
    horizon = here.now
    here.down_for("3h")
    plan = here.schedules.backfill("hourly", "2026-03-01T13:00Z", "2026-03-01T18:00Z", dry_run=True).plan
    assert plan is not None
    assert (plan.states, plan.unknown_before) == ({"unknown": 2, "succeeded": 1, "none": 2}, horizon)
    later = here.schedules.backfill("hourly", "2026-03-01T15:00Z", "2026-03-01T18:00Z", dry_run=True).plan
    assert later is not None
    assert (later.states, later.unknown_before) == ({"succeeded": 1, "none": 2}, None)


def test_the_best_run_of_a_tick_counts(here: VirtualScheduler, jobs: Jobs) -> None:
    """A succeeded run before a failed one, and any run before a skipped tick."""
    here.schedules.pause("hourly")
    here.travel("2h")
    here.schedules.resume("hourly")  # 13:00 and 14:00 were skipped
    here.travel("2h30m")  # 15:00 and 16:00 succeeded
    jobs.failing = {13, 15}
    made = here.schedules.backfill("hourly", "2026-03-01T13:00Z", "2026-03-01T16:30Z")
    here.run_pending()
    plan = here.schedules.backfill("hourly", "2026-03-01T12:00Z", "2026-03-01T16:30Z", dry_run=True).plan
    assert plan is not None
    assert [(tick.tick.hour, tick.state, tick.reason) for tick in plan.ticks] == [
        (12, "none", None),
        (13, "failed", None),
        (14, "succeeded", None),
        (15, "succeeded", None),
        (16, "succeeded", None),
    ]
    assert plan.ticks[1].run == f"default/hourly/backfill/{made.id}/1772370000000"
    assert plan.ticks[3].run == "default/hourly/1/1772377200000"


def test_only_ticks_without_a_succeeded_run_are_made_if_asked(here: VirtualScheduler, jobs: Jobs) -> None:
    jobs.failing = {1}
    here.schedules.backfill("hourly", DAY[0], "2026-03-01T03:00Z")  # 0 and 2 succeed, 1 fails
    here.run_pending()
    jobs.failing, jobs.seen = set(), []
    for order in ("oldest", "newest"):
        found = here.schedules.backfill("hourly", *DAY, missing_only=True, order=order, dry_run=True)
        assert (found.ticks, found.total) == (6, 4)
        assert found.plan is not None
        assert {tick.tick.hour for tick in found.plan.ticks if not tick.is_made} == {0, 2}
    made = here.schedules.backfill("hourly", *DAY, missing_only=True, order="newest", max_concurrent=2)
    here.run_pending()
    assert jobs.hours() == [5, 4, 3, 1]
    assert here.backfills.get(made.id).succeeded == 4


def test_a_backfill_of_nothing_missing_is_done_at_once(here: VirtualScheduler) -> None:
    here.schedules.backfill("hourly", *DAY)
    here.run_pending()
    assert here.schedules.backfill("hourly", *DAY, missing_only=True).state == "done"
    assert leftovers(here) == []


# -- cancel, pause, delete ----------------------------------------------------------------------------------


def test_cancelling_stops_it_as_a_whole(here: VirtualScheduler, jobs: Jobs) -> None:
    made = here.schedules.backfill("hourly", *DAY, max_concurrent=2)
    over = here.backfills.cancel(made.id)
    assert (over.state, over.cancelled, over.left, over.active) == ("cancelled", 2, 4, 0)
    here.travel("2h")
    assert jobs.seen == []
    assert {run.state for run in here.runs.list() if run.cause == "backfill"} == {"cancelled"}
    assert here.backfills.cancel(made.id) == over
    assert here.schedules.backfill("hourly", *DAY) == replace(over, existed_since=made.created_at)
    assert leftovers(here) == []


def test_cancelling_one_that_is_done_changes_nothing(here: VirtualScheduler) -> None:
    made = here.schedules.backfill("hourly", *DAY)
    here.run_pending()
    over = here.backfills.get(made.id)
    assert here.backfills.cancel(made.id) == over
    assert (over.state, here.audit.list(subject=made.id)) == ("done", [])


def test_a_running_run_is_asked_to_stop_and_a_second_cancel_adds_nothing(here: VirtualScheduler) -> None:
    made = here.schedules.backfill("hourly", *DAY)
    claim = Claim(worker="w", token="c", limit=1, now=here.store.now(), lease=30_000)
    (held,) = here.store.claim_runs(claim).runs
    for _ in range(2):
        assert here.backfills.cancel(made.id).state == "cancelling"
    assert here.runs.get(held.id).cancel_requested
    assert len(here.audit.list(subject=made.id)) == 1
    here.store.settle_runs([attempts.cancelled(held, here.store.now(), "t")])
    here.run_pending()
    over = here.backfills.get(made.id)
    assert (over.state, over.cancelled, over.left) == ("cancelled", 1, 5)


def test_a_pause_holds_it_until_the_schedule_is_resumed(here: VirtualScheduler, jobs: Jobs) -> None:
    here.schedules.pause("hourly")
    made = here.schedules.backfill("hourly", *DAY)
    here.travel("1h")
    assert jobs.seen == []
    assert here.backfills.get(made.id).waits_for == "the schedule is paused"
    here.schedules.resume("hourly")
    here.travel("1h")
    assert len(jobs.seen) == 6
    assert here.backfills.get(made.id).waits_for is None


def test_deleting_the_schedule_ends_it(here: VirtualScheduler, jobs: Jobs) -> None:
    made = here.schedules.backfill("hourly", *DAY)
    here.schedules.delete("hourly")
    # A schedule of the same name is another one.
    here.down_for("1s")
    here.schedules.add("hourly", cron("0 * * * *"), "report")
    Backfiller(here.store).step(here.store.now())
    over = here.backfills.get(made.id)
    assert (over.state, over.note) == ("cancelled", "schedule hourly was deleted")
    here.travel("10m")
    assert jobs.seen == []
    assert leftovers(here) == []


def test_a_finished_schedule_is_backfilled(here: VirtualScheduler) -> None:
    here.schedules.add("once", at("2026-03-01T11:00Z"), "report")
    here.run_pending()
    assert here.schedules.get("once").state == "finished"
    made = here.schedules.backfill("once", "2h", "0s", id="x")
    assert made.active == 1
    here.run_pending()
    assert here.schedules.get("once").state == "finished"
    assert len([run for run in here.runs.list(schedule="once") if run.cause == "backfill"]) == 1


# -- policies and quotas ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [{"overlap": "queue"}, {"overlap": "skip"}, {"max_concurrent": 1}])
def test_a_schedule_that_bounds_its_runs_gets_one_at_a_time(
    here: VirtualScheduler, jobs: Jobs, policy: dict[str, Any]
) -> None:
    here.schedules.update("hourly", **policy)
    made = here.schedules.backfill("hourly", *DAY, max_concurrent=5)
    assert (made.active, len(here.runs.list(state="queued"))) == (1, 1)
    here.run_pending()
    assert jobs.hours() == [0, 1, 2, 3, 4, 5]
    assert here.backfills.get(made.id).state == "done"


def test_it_waits_while_another_run_is_active_and_a_due_tick_goes_first(here: VirtualScheduler) -> None:
    here.schedules.update("hourly", overlap="queue")
    other = here.schedules.run_now("hourly")
    made = here.schedules.backfill("hourly", *DAY)
    assert made.active == 0
    assert made.waits_for is not None
    assert "leave no room" in made.waits_for
    here.down_for("1h")  # a tick is due by now
    here.runs.cancel(other.id)
    Backfiller(here.store).step(here.store.now())
    waits = here.backfills.get(made.id).waits_for
    assert waits is not None
    assert "goes first" in waits
    here.travel("10s")
    assert here.backfills.get(made.id).state == "done"


def test_the_quota_of_queued_runs_is_respected(here: VirtualScheduler) -> None:
    here.tenants.set_quota("default", queued_runs=2)
    made = here.schedules.backfill("hourly", *DAY, max_concurrent=5)
    assert (made.active, here.runs.count()["queued"]) == (2, 2)
    here.travel("1m")
    assert here.backfills.get(made.id).state == "done"
    for _ in range(2):
        here.enqueue("report", delay="1d")
    waits = here.schedules.backfill("hourly", *DAY, id="again")
    assert (waits.active, waits.waits_for) == (0, "the tenant's quota of queued runs is used up")


# -- what others see ----------------------------------------------------------------------------------------


def test_its_runs_are_not_taken_for_ticks(here: VirtualScheduler, jobs: Jobs) -> None:
    here.travel("3h")
    before = here.schedules.account("hourly")
    here.schedules.backfill("hourly", "2026-03-01T10:00Z", "2026-03-01T15:00Z")
    here.run_pending()
    assert len(jobs.seen) == 5
    assert here.schedules.account("hourly") == before
    assert here.repair().findings == ()
    cells = here.schedules.cells("hourly", "12h", "1h").cells
    assert sum(cell.fired for cell in cells) == 3
    assert sum(cell.succeeded for cell in cells) == 8
    assert here.schedules.why("hourly", "2026-03-01T14:00Z").run == "default/hourly/1/1772373600000"
    lane = here.timeline("12h", "1h").lanes[0]
    assert sum(cell.fired for cell in lane.cells) == 3
    assert here.schedules.stats("hourly").run_count == 8
    assert not here.schedules.get("hourly").is_waiting


def test_the_audit_has_the_backfill_and_its_cancellation(here: VirtualScheduler) -> None:
    made = here.schedules.backfill("hourly", *DAY, payload={"region": "eu"})
    here.schedules.backfill("hourly", *DAY, payload={"region": "eu"})
    here.backfills.cancel(made.id)
    here.backfills.cancel(made.id)
    (entry,) = [each for each in here.schedules.history("hourly") if each.action == "backfill"]
    assert entry.after == {
        "backfill": made.id,
        "start": "2026-03-01T00:00:00Z",
        "end": "2026-03-01T06:00:00Z",
        "runs": 6,
        "max_concurrent": 1,
        "payload": {"region": "eu"},
    }
    (cancel,) = here.audit.list(subject=made.id)
    assert (cancel.kind, cancel.action, cancel.after["schedule"]) == ("backfill", "cancel", "hourly")


def test_lists_are_by_tenant_and_schedule_the_newest_first(here: VirtualScheduler) -> None:
    here.schedules.add("other", cron("0 * * * *"), "report")
    here.schedules.add("hourly", cron("0 * * * *"), "report", tenant="acme")
    here.schedules.backfill("other", *DAY, id="one")
    here.travel("1m")
    here.schedules.backfill("hourly", *DAY, id="two")
    here.schedules.backfill("hourly", *DAY, id="three", tenant="acme")
    assert [each.id for each in here.backfills.list()] == ["two", "one"]
    assert [each.id for each in here.backfills.list(schedule="other")] == ["one"]
    assert [each.id for each in here.backfills.list(limit=1)] == ["two"]
    for limit in (0, -1, 501, 2**63):
        with pytest.raises(InvalidValue, match="limit"):
            here.backfills.list(limit=limit)
    assert {each.id for each in here.backfills.list(all_tenants=True)} == {"one", "two", "three"}
    with pytest.raises(BackfillNotFound):
        here.backfills.get("three")
    assert here.backfills.get("three", tenant="acme").tenant == "acme"


def test_a_purge_of_a_tenant_takes_its_backfills(here: VirtualScheduler) -> None:
    here.schedules.add("hourly", cron("0 * * * *"), "report", tenant="acme")
    here.schedules.backfill("hourly", *DAY, tenant="acme")
    here.tenants.purge("acme")
    assert here.backfills.list(tenant="acme") == []


# -- the duty -----------------------------------------------------------------------------------------------


def test_a_node_looks_seldom_while_there_is_none(here: VirtualScheduler) -> None:
    duty = Backfiller(here.store)
    assert duty.step(1_000) == 1_000 + IDLE_EVERY
    here.schedules.backfill("hourly", *DAY)
    now = here.store.now()
    assert duty.step(now) == now + BUSY_EVERY


def test_a_step_leaves_time_for_the_other_duties(here: VirtualScheduler) -> None:
    for number in range(12):
        here.schedules.backfill("hourly", *DAY, id=f"b{number}")
    duty, now = Backfiller(here.store), here.store.now()
    assert duty.step(now) == now, "ten of twelve"
    assert duty.step(now) == now + BUSY_EVERY
    here.run_pending()
    assert {each.state for each in here.backfills.list()} == {"done"}


def test_one_that_waits_does_not_slow_down_virtual_time(here: VirtualScheduler) -> None:
    here.schedules.pause("hourly")
    here.schedules.backfill("hourly", *DAY)
    steps = 0
    find = here.store.find_records

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal steps
        steps += args[0] == OPEN
        return find(*args, **options)

    here.store.find_records = counted  # type: ignore[method-assign]
    here.travel("30d")
    assert steps < 10


def test_a_record_that_cannot_be_read_stops_no_other(here: VirtualScheduler, jobs: Jobs) -> None:
    here.store.put_record(Record(kind=OPEN, key="a", body=str(here.store.now())))
    here.store.put_record(Record(kind=KIND, key="a", body="{"))
    made = here.schedules.backfill("hourly", *DAY)
    here.travel("1m")
    Backfiller(here.store).step(here.store.now() + ABANDONED_AFTER)
    assert len(leftovers(here)) == 1, "a newer version may be able to read it"
    assert here.backfills.get(made.id).state == "done"
    assert [each.id for each in here.backfills.list()] == [made.id]


def test_a_trigger_that_this_machine_cannot_read_stops_no_other(
    here: VirtualScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    here.schedules.pause("hourly")
    here.schedules.backfill("hourly", *DAY, id="a")
    other = here.schedules.backfill("hourly", *DAY, id="b")
    record = here.store.get_record(KIND, "default", "a")
    assert record is not None
    body = record.body.replace("0 * * * *", "0 * * * * tz=Mars/Base")
    assert here.store.put_record(replace(record, body=body, version=7), record.version)
    here.schedules.resume("hourly")
    duty = Backfiller(here.store)
    assert duty.step(here.store.now()) == here.store.now() + BUSY_EVERY
    assert "can't be advanced here" in caplog.text
    here.run_pending()
    assert here.backfills.get(other.id).state == "done"
    assert here.backfills.get("a").start.tzinfo == UTC


def test_a_note_without_a_backfill_is_deleted_later(here: VirtualScheduler) -> None:
    here.store.put_record(Record(kind=OPEN, key="a", body=str(here.store.now())))
    duty = Backfiller(here.store)
    assert duty.step(here.store.now() + ABANDONED_AFTER - 1)
    assert len(leftovers(here)) == 1
    duty.step(here.store.now() + ABANDONED_AFTER)
    assert leftovers(here) == []


def test_one_that_is_over_is_kept_for_90_days(here: VirtualScheduler) -> None:
    made = here.schedules.backfill("hourly", *DAY)
    here.run_pending()
    here.down_for(timedelta(days=89))
    assert here.backfills.get(made.id).state == "done"
    here.down_for(timedelta(days=2))
    with pytest.raises(BackfillNotFound):
        here.backfills.get(made.id)


def test_the_keys_of_batches_are_those_of_one_backfill() -> None:
    start, end = batch_range("a")
    assert start <= batch_key("a", 1) < end
    assert not start <= batch_key("a-", 1) < end
    assert not start <= batch_key("a0", 1) < end


def test_the_twins_are_awaited(here: VirtualScheduler) -> None:
    async def use() -> list[str]:
        made = await here.schedules.abackfill("hourly", *DAY)
        assert await here.backfills.aget(made.id) == made
        await here.backfills.acancel(made.id)
        return [each.state for each in await here.backfills.alist()]

    assert asyncio.run(use()) == ["cancelled"]
    assert isinstance(here.backfills, Backfills)


def test_a_node_goes_on_as_soon_as_a_run_has_ended() -> None:
    """Without the wake-up of the duty, each run would wait for two seconds."""
    app = Scheduler("memory://")
    done = threading.Event()
    seen: list[datetime | None] = []

    @app.task
    def report(run: RunContext) -> None:
        seen.append(run.tick)
        if len(seen) == 40:
            done.set()

    app.schedules.add("hourly", cron("0 * * * *"), report)
    with app:
        app.schedules.backfill("hourly", "2026-01-01T00:00Z", "2026-01-02T16:00Z")
        assert done.wait(30)
    assert len(set(seen)) == len(seen) == 40
    assert seen == sorted(seen, key=str)
    app.close()


def test_days_that_a_calendar_leaves_out_are_not_backfilled(here: VirtualScheduler) -> None:
    here.calendars.set("holidays", days=["2026-02-27"])
    here.schedules.add("daily", "0 9 * * * skip=holidays", "report")
    made = here.schedules.backfill("daily", "2026-02-26", "2026-03-01", dry_run=True)
    assert made.plan is not None
    assert [f"{each.tick:%d}" for each in made.plan.ticks] == ["26", "28"]
