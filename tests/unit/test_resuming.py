"""What a resume would do: the same rule as the resume itself, without writing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import DamagedSchedule, ResumePreview, ScheduleNotFound, Scheduler, UnknownZone
from evenbeat.core.instants import to_ms
from evenbeat.core.records import ScheduleRecord
from evenbeat.stores.base import Page, ScheduleQuery
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock

MINUTE = 60_000
NOON = to_ms(datetime(2026, 3, 1, 12, tzinfo=UTC))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOON)


@pytest.fixture
def app(clock: VirtualClock) -> Scheduler:
    app = Scheduler(MemoryStore(clock))
    app.task(name="work")(lambda: None)
    return app


def numbers(preview: ResumePreview) -> tuple[int, int, int, int]:
    assert preview.missed == preview.runs + preview.coalesced + preview.skipped
    return preview.missed, preview.runs, preview.coalesced, preview.skipped


def test_times_are_in_the_zone_that_was_asked_for(app: Scheduler) -> None:
    app.schedules.add("a", "0 14 * * *", "work", paused=True)
    assert app.schedules.preview_resume("a").sentence.endswith("at Sun 2026-03-01 14:00 +00:00.")
    found = app.schedules.preview_resume("a", tz="Europe/Berlin")
    assert found.sentence.endswith("it fires next at Sun 2026-03-01 15:00 +01:00.")
    assert found.next_run is not None
    assert found.next_run.isoformat() == "2026-03-01T15:00:00+01:00"
    with pytest.raises(UnknownZone):
        app.schedules.preview_resume("a", tz="Mars")


def compared_with_resume(app: Scheduler, name: str = "a") -> ResumePreview:
    """Preview, resume, and check that the resume did what the preview says."""
    preview = app.schedules.preview_resume(name)
    before = {run.id for run in app.runs.list(schedule=name)}
    ledger = len(app.schedules.skipped(name))
    assert app.schedules.preview_resume(name) == preview, "the preview has changed something"
    after = app.schedules.resume(name)
    rows = app.schedules.skipped(name)
    new = rows[: len(rows) - ledger]
    assert len({run.id for run in app.runs.list(schedule=name)} - before) == preview.runs
    assert sum(row.count for row in new if row.reason == "coalesced") == preview.coalesced
    assert sum(row.count for row in new if row.reason != "coalesced") == preview.skipped
    assert after.next_run == preview.next_run
    return preview


def test_the_ticks_of_a_pause_are_skipped(app: Scheduler, clock: VirtualClock) -> None:
    app.schedules.add("a", "*/5 * * * * tz=Europe/Berlin", "work")
    app.schedules.pause("a")
    assert app.schedules.preview_resume("a").sentence == (
        "No tick was missed in the pause; it fires next at Sun 2026-03-01 13:05 +01:00."
    )
    clock.now += 5 * MINUTE
    preview = app.schedules.preview_resume("a")
    assert preview.sentence == (
        "The tick of the pause is skipped; it fires next at Sun 2026-03-01 13:10 +01:00."
    )
    clock.now += 55 * MINUTE
    preview = compared_with_resume(app)
    assert numbers(preview) == (12, 0, 0, 12)
    assert str(preview.next_run) == "2026-03-01 14:05:00+01:00"
    assert preview.sentence == (
        "The 12 ticks of the pause are skipped; it fires next at Sun 2026-03-01 14:05 +01:00."
    )


@pytest.mark.parametrize(
    ("options", "expected", "words"),
    [
        (
            {},
            (15, 1, 4, 10),
            "1 run starts at once for 5 ticks since the pause ended at Sun 2026-03-01 12:10",
        ),
        ({"catch_up": "all"}, (15, 5, 0, 10), "5 runs start at once for 5 ticks since the pause ended"),
        (
            {"catch_up": "all", "catch_up_limit": 2},
            (15, 2, 0, 13),
            "3 ticks are skipped: more were missed than the catch-up limit",
        ),
        (
            {"catch_up": "skip", "grace": "90s"},
            (15, 2, 0, 13),
            "3 ticks are skipped: found later than the catch-up policy allows",
        ),
    ],
)
def test_after_the_end_of_a_pause_the_catch_up_policy_decides(
    app: Scheduler,
    clock: VirtualClock,
    options: dict[str, Any],
    expected: tuple[int, int, int, int],
    words: str,
) -> None:
    app.schedules.add("a", "* * * * *", "work", **options)
    app.schedules.pause("a", until="10m30s")
    clock.now += 15 * MINUTE + 30_000
    preview = compared_with_resume(app)
    assert numbers(preview) == expected
    assert preview.sentence.startswith("The 10 ticks of the pause are skipped; ")
    assert words in preview.sentence
    assert preview.sentence.endswith("; it fires next at Sun 2026-03-01 12:16 +00:00.")


def test_ticks_that_wait_for_a_node_are_missed_and_in_no_other_number(
    app: Scheduler, clock: VirtualClock
) -> None:
    app.schedules.add("a", "* * * * *", "work", overlap="queue_all")
    app.schedules.run_now("a")
    app.schedules.pause("a", until="10m30s")
    clock.now += 15 * MINUTE + 30_000
    preview = app.schedules.preview_resume("a")
    assert (preview.missed, preview.runs, preview.coalesced, preview.skipped) == (15, 0, 0, 10)
    assert preview.sentence == (
        "The 10 ticks of the pause are skipped; 5 due ticks wait for a node, which goes by the catch-up and "
        "overlap policies."
    )
    assert app.schedules.resume("a").next_run == preview.next_run


def test_a_schedule_that_is_not_paused_says_so(app: Scheduler, clock: VirtualClock) -> None:
    app.schedules.add("a", "every 1h", "work")
    clock.now += 3 * 60 * MINUTE  # overdue: that is not the business of a resume
    preview = app.schedules.preview_resume("a")
    assert numbers(preview) == (0, 0, 0, 0)
    assert preview.sentence == (
        "A resume does nothing: the schedule is active; it fires next at Sun 2026-03-01 13:00 +00:00."
    )
    assert asyncio.run(app.schedules.apreview_resume("a")) == preview


def test_the_last_tick_may_be_one_of_the_pause(app: Scheduler, clock: VirtualClock) -> None:
    app.schedules.add("a", "at 2026-03-01T12:30:00Z", "work")
    app.schedules.pause("a")
    clock.now += 60 * MINUTE
    preview = compared_with_resume(app)
    assert (preview.missed, preview.skipped, preview.next_run) == (1, 1, None)
    assert preview.sentence == "The tick of the pause is skipped; it has no tick to come."


def test_the_spread_counts(app: Scheduler) -> None:
    app.schedules.add("a", "0 * * * *", "work", spread="30m", paused=True)
    preview = compared_with_resume(app)
    assert preview.next_run == app.schedules.get("a").next_run
    assert preview.next_run is not None
    assert preview.next_run.minute, "the share of the spread of this name is not 0"


def test_the_tenant_counts_and_an_unknown_name_is_an_error(app: Scheduler) -> None:
    app.schedules.add("a", "every 1h", "work", tenant="acme", paused=True)
    assert app.schedules.preview_resume("a", tenant="acme").missed == 0
    with pytest.raises(ScheduleNotFound):
        app.schedules.preview_resume("a")
    app.schedules.delete("a", tenant="acme")
    with pytest.raises(ScheduleNotFound):
        app.schedules.preview_resume("a", tenant="acme")


class Damaged(MemoryStore):
    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        page = super().find_schedules(query)
        return page._replace(items=tuple(replace(row, damage="trigger: gone") for row in page.items))


def test_a_damaged_row_is_refused_as_the_resume_refuses_it(clock: VirtualClock) -> None:
    app = Scheduler(Damaged(clock))
    app.schedules.add("a", "every 1h", "work", paused=True)
    for call in (app.schedules.preview_resume, app.schedules.resume):
        with pytest.raises(DamagedSchedule):
            call("a")
