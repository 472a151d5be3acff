"""``resume(catch_up=True)``: the catch-up policy decides about the ticks of a pause."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evenbeat import Scheduler, every
from evenbeat.core.instants import to_ms
from evenbeat.core.records import CatchUp, CatchUpKind, Overlap, ScheduleRecord
from evenbeat.rules import changes
from evenbeat.rules.firing import plan
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


def ledger(app: Scheduler, name: str = "a") -> dict[str, int]:
    found: dict[str, int] = {}
    for row in app.schedules.skipped(name):
        found[row.reason] = found.get(row.reason, 0) + row.count
    return found


@pytest.mark.parametrize(
    ("options", "runs", "skipped", "words"),
    [
        ({}, 1, {"coalesced": 9}, "1 run starts at once for 10 ticks of the pause"),
        ({"catch_up": "all"}, 10, {}, "10 runs start at once for 10 ticks of the pause"),
        (
            {"catch_up": "all", "catch_up_limit": 3},
            3,
            {"limit": 7},
            "3 runs start at once for 3 ticks of the pause; 7 ticks are skipped",
        ),
        (
            {"catch_up": "skip", "grace": "90s"},
            2,
            {"late": 8},
            "2 runs start at once for 2 ticks of the pause",
        ),
    ],
)
def test_the_policy_decides_about_the_ticks_of_the_pause(
    app: Scheduler,
    clock: VirtualClock,
    options: dict[str, Any],
    runs: int,
    skipped: dict[str, int],
    words: str,
) -> None:
    app.schedules.add("a", "* * * * *", "work", **options)
    app.schedules.pause("a")
    clock.advance("10m")
    plain = app.schedules.preview_resume("a")
    assert (plain.runs, plain.skipped) == (0, 10)
    preview = app.schedules.preview_resume("a", catch_up=True)
    assert (preview.missed, preview.runs) == (10, runs)
    assert preview.sentence.startswith(words)
    after = app.schedules.resume("a", catch_up=True)
    assert (after.state, after.pause_note) == ("active", "")
    assert len(app.runs.list()) == runs
    assert ledger(app) == skipped
    assert after.next_run == datetime(2026, 3, 1, 12, 11, tzinfo=UTC)
    # A second resume finds nothing to resume.
    assert app.schedules.resume("a", catch_up=True) == after
    assert len(app.runs.list()) == runs


def test_ticks_that_were_overdue_at_the_pause_stay_skipped(app: Scheduler, clock: VirtualClock) -> None:
    app.schedules.add("a", "* * * * *", "work", catch_up="all")
    clock.advance("5m")
    app.schedules.pause("a")
    clock.advance("2m")
    app.schedules.resume("a", catch_up=True)
    assert ledger(app) == {"paused": 5}
    assert len(app.runs.list()) == 2


def test_a_trigger_that_was_changed_in_the_pause_is_caught_up_from_then(
    app: Scheduler, clock: VirtualClock
) -> None:
    app.schedules.add("a", "* * * * *", "work", catch_up="all")
    app.schedules.pause("a")
    clock.advance("10m")
    app.schedules.update("a", trigger="*/5 * * * *")
    clock.advance("10m")
    app.schedules.resume("a", catch_up=True)
    assert ledger(app) == {"paused": 10}
    assert sorted(run.tick.minute for run in app.runs.list() if run.tick is not None) == [15, 20]


def test_a_pause_whose_end_has_passed_stays_as_it_was(app: Scheduler, clock: VirtualClock) -> None:
    app.schedules.add("a", "* * * * *", "work", catch_up="all")
    app.schedules.pause("a", until="5m")
    clock.advance("7m")
    preview = app.schedules.preview_resume("a", catch_up=True)
    assert "2026-03-01 12:05" in preview.sentence
    app.schedules.resume("a", catch_up=True)
    assert ledger(app) == {"paused": 4}
    assert len(app.runs.list()) == 3


def test_a_pause_without_a_missed_tick_just_ends(app: Scheduler, clock: VirtualClock) -> None:
    app.schedules.add("a", "0 * * * *", "work")
    app.schedules.add("once", "at 2026-03-01T11:00Z", "work", paused=True)
    app.schedules.pause("a")
    clock.advance("1m")
    assert app.schedules.resume("a", catch_up=True).next_run == datetime(2026, 3, 1, 13, tzinfo=UTC)
    # A single instant is missed like any other tick.
    assert app.schedules.resume("once", catch_up=True).state == "finished"
    assert [run.schedule for run in app.runs.list()] == ["once"]


def test_all_that_match_catch_up(app: Scheduler, clock: VirtualClock) -> None:
    for name in ("report-a", "report-b", "other"):
        app.schedules.add(name, every("1m"), "work")
    app.schedules.pause_all()
    clock.advance("3m")
    done = app.schedules.resume_all(catch_up=True, name="report-*")
    assert [each.id for each in done.changed] == ["report-a", "report-b"]
    assert sorted(run.schedule or "" for run in app.runs.list()) == ["report-a", "report-b"]
    app.schedules.resume_all()
    assert ledger(app, "other") == {"paused": 3}


def test_a_long_backlog_is_left_to_the_nodes(app: Scheduler, clock: VirtualClock) -> None:
    app.schedules.add("a", every("1s"), "work", catch_up="all", catch_up_limit=2_000)
    app.schedules.pause("a")
    clock.advance("1000s")
    assert app.schedules.preview_resume("a", catch_up=True).missed == 1_000
    after = app.schedules.resume("a", catch_up=True)
    assert after.state == "active"
    assert 500 <= len(app.runs.list(limit=2_000)) < 1_000


@settings(max_examples=200, deadline=None)
@given(
    kind=st.sampled_from(["latest", "all", "skip"]),
    overlap=st.sampled_from(["allow", "skip", "queue", "queue_all"]),
    limit=st.integers(1, 8),
    grace=st.integers(0, 6 * MINUTE),
    period=st.integers(1, 5),
    missed=st.integers(0, 20 * MINUTE),
    spread=st.sampled_from([0, MINUTE]),
)
def test_each_tick_of_the_pause_fires_at_most_once_and_is_accounted_for(
    kind: CatchUpKind, overlap: Overlap, limit: int, grace: int, period: int, missed: int, spread: int
) -> None:
    row = changes.create(
        ScheduleRecord(
            name="a",
            task="work",
            trigger=f"every {period}m",
            catch_up=CatchUp(kind, grace, limit),
            overlap=overlap,
            spread=spread,
        ),
        NOON,
    ).schedule
    paused = changes.pause(row, NOON).schedule
    now = NOON + missed
    planned = changes.resume(paused, now, catch_up=True)
    assert planned is not None
    runs, skipped = list(planned.runs), list(planned.skipped)
    current = planned.schedule
    # A node plans on until nothing is due; the runs that wait have ended by then.
    for _ in range(100):
        if current.next_tick is None or current.next_tick + spread > now:
            break
        step = plan(replace(current, wake_at=current.next_tick), now)
        runs += step.runs
        skipped += step.skipped
        current = step.schedule
    fired = [run.tick for run in runs if run.tick is not None]
    assert len(fired) == len(set(fired)) == len({run.id for run in runs})
    ticks = list(range(NOON + period * MINUTE, (current.next_tick or 0), period * MINUTE))
    for tick in ticks:
        covers = [row for row in skipped if row.first <= tick <= row.last]
        assert (tick in fired) + len(covers) == 1
    assert len(fired) + sum(row.count for row in skipped) == len(ticks)
    assert not any(row.reason == "paused" for row in skipped)
