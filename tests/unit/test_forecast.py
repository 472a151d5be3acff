"""The forecast: counts, peaks with their schedules, quiet windows, and spreads that would lower a peak."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from msgspec.structs import replace

from evenbeat import Forecast, InvalidValue, Scheduler
from evenbeat.app.forecasting import forecast_of
from evenbeat.core.instants import to_ms
from evenbeat.core.records import ScheduleRecord
from evenbeat.rules.ticks import spread_delay
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from evenbeat.timeline import extra
from evenbeat.timeline.quiet import QuietRange, quiet_ranges
from evenbeat.triggers import parse_trigger

START = datetime(2026, 3, 2, 8, tzinfo=UTC)
NOW = to_ms(START) - 30_000
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def app() -> Iterator[Scheduler]:
    scheduler = Scheduler(MemoryStore(VirtualClock(NOW)))
    yield scheduler
    scheduler.close()


def row(name: str, trigger: str, **fields: object) -> ScheduleRecord:
    made = ScheduleRecord(name=name, task="t", trigger=trigger, anchor=NOW)
    first = parse_trigger(trigger).bind(name, NOW).next_ms(NOW)
    return replace(made, next_tick=first, **fields)


# -- counts ------------------------------------------------------------------------------------------------


def test_runs_are_counted_by_the_minute(app: Scheduler) -> None:
    app.schedules.add("a", "*/30 * * * *", "t")
    app.schedules.add("b", "0 9 * * *", "t")
    found = app.forecast(2)

    assert (found.start, found.end, found.by) == (START, START + 2 * HOUR, "minute")
    assert (found.schedules, found.total, len(found.counts)) == (2, 5, 120)
    assert found.mean == 5 / 120
    assert {at: runs for at, runs in enumerate(found.counts) if runs} == {0: 1, 30: 1, 60: 2, 90: 1}
    assert found.notes == ()


def test_runs_are_counted_by_whole_hours_of_which_the_first_is_not_over(app: Scheduler) -> None:
    app.schedules.add("a", "*/15 * * * *", "t")
    found = app.forecast(2, by="hour", since=START + 20 * MINUTE)

    assert (found.start, found.end) == (START, START + 140 * MINUTE)
    assert (found.counts, found.total, found.mean) == ((2, 4, 2), 8, 4.0)


def test_a_forecast_may_start_later(app: Scheduler) -> None:
    app.schedules.add("a", "0 12 * * *", "t")

    assert app.forecast(1, since="3h30m").counts[30:32] == (1, 0)
    assert app.forecast(1, since=START + 4 * HOUR).counts[:2] == (1, 0)


def test_only_schedules_of_the_tenant_that_will_fire_are_counted(app: Scheduler) -> None:
    app.schedules.add("a", "0 * * * *", "t")
    app.schedules.add("a", "0 * * * *", "t", tenant="acme")
    app.schedules.add("off", "0 * * * *", "t", paused=True)

    assert (app.forecast(2).schedules, app.forecast(2).total) == (1, 2)
    assert app.forecast(2, tenant="acme").peaks[0].schedules == ("a",)
    assert app.forecast(2, tenant="nobody").total == 0
    both = app.forecast(2, all_tenants=True)
    assert both.total == 4
    assert both.peaks[0].schedules == ("acme/a", "default/a")


def test_the_forecast_is_awaited(app: Scheduler) -> None:
    app.schedules.add("a", "0 * * * *", "t")

    assert asyncio.run(app.aforecast(2)) == app.forecast(2)


@pytest.mark.parametrize(
    ("hours", "by", "hint"),
    [
        (0, "minute", 'by="minute" allows up to 168'),
        (169, "minute", 'by="hour" allows up to 744'),
        (745, "hour", 'by="hour" allows up to 744'),
        (10**30, "hour", "744"),
        (1.5, "minute", "168"),
        (True, "minute", "168"),
    ],
)
def test_a_range_that_is_too_long_is_refused(app: Scheduler, hours: int, by: str, hint: str) -> None:
    with pytest.raises(InvalidValue, match="hours") as caught:
        app.forecast(hours, by=by)  # type: ignore[arg-type]
    assert caught.value.field == "hours"
    assert hint in (caught.value.hint or "")


def test_other_values_that_make_no_sense_are_refused(app: Scheduler) -> None:
    with pytest.raises(InvalidValue, match='by "day" is not one of minute, hour'):
        app.forecast(by="day")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="is in the past"):
        app.forecast(since=START - 2 * MINUTE)
    assert app.forecast(1, since=START - MINUTE).start == START, "clocks differ a little"
    with pytest.raises(InvalidValue, match="leaves no 744 hours before the year 10000"):
        app.forecast(744, by="hour", since="9999-12-01T00:00:00Z")


def test_the_forecast_names_the_extra_that_it_needs(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "has_numpy", lambda: False)

    with pytest.raises(ImportError, match=r"the forecast needs numpy.*pip install 'evenbeat\[timeline\]'"):
        app.forecast()


def test_a_schedule_that_can_not_be_read_does_not_fire() -> None:
    damaged = row("d", "0 * * * *", damage="trigger is not a text")

    assert forecast_of([damaged, row("a", "0 * * * *")], NOW, 2).schedules == 1


# -- peaks -------------------------------------------------------------------------------------------------


def test_a_peak_names_fifty_schedules_and_counts_the_rest() -> None:
    rows = [row(f"s{n:03}", "0 * * * *") for n in range(120)]
    found = forecast_of(rows, NOW, 3)

    (peak,) = found.peaks
    assert (peak.at, peak.runs) == (START, 120)
    assert peak.minutes == (START, START + HOUR, START + 2 * HOUR)
    assert peak.schedules == tuple(f"s{n:03}" for n in range(50))
    assert peak.more == 70


# -- quiet windows -----------------------------------------------------------------------------------------


def test_quiet_windows_are_the_longest_ranges_without_runs(app: Scheduler) -> None:
    app.schedules.add("a", "0 8,12,13 * * *", "t")
    quiet = app.forecast(12).quiet

    assert [(window.start - START, window.end - START, window.runs, window.most) for window in quiet] == [
        (5 * HOUR + MINUTE, 12 * HOUR, 0, 0),
        (MINUTE, 4 * HOUR, 0, 0),
        (4 * HOUR + MINUTE, 5 * HOUR, 0, 0),
    ]


def test_where_no_range_is_without_runs_the_quietest_is_named(app: Scheduler) -> None:
    app.schedules.add("steady", "* * * * *", "t")
    app.schedules.add("busy", "* 8-11,14-19 * * *", "t")
    (window,) = app.forecast(12).quiet

    assert (window.start, window.end) == (START + 4 * HOUR, START + 6 * HOUR)
    assert (window.runs, window.most) == (120, 1)


@pytest.mark.parametrize("seed", range(20))
def test_a_quiet_range_can_not_be_quieter_or_longer(seed: int) -> None:
    rng = random.Random(seed)
    counts = [rng.choice([0, 0, 0, 1, 2, 9]) for _ in range(rng.randint(1, 80))]
    found = quiet_ranges(np.array(counts, np.int64), 4, 3)

    length = min(4, len(counts))
    level = min(max(counts[at : at + length]) for at in range(len(counts) - length + 1))
    ranges = []
    at = 0
    while at < len(counts):
        end = at
        while end < len(counts) and counts[end] <= level:
            end += 1
        if end - at >= length:
            ranges.append(QuietRange(at, end, sum(counts[at:end]), max(counts[at:end])))
        at = end + 1
    assert found == sorted(ranges, key=lambda one: (one.first - one.end, one.first))[:3]


# -- proposed spreads --------------------------------------------------------------------------------------


def minutes_with(
    rows: list[ScheduleRecord], names: set[str], spread: timedelta, start: datetime, minutes: int
) -> tuple[int, ...]:
    """The runs of each minute from ``start`` on, if these schedules had that spread: counted one by one, with
    the delays of firing."""
    fired: Counter[int] = Counter()
    first = to_ms(start) // 60_000
    for each in rows:
        if each.name in names:
            each = replace(each, spread=spread // timedelta(milliseconds=1))
        trigger = parse_trigger(each.trigger).bind(each.name, NOW)
        delay = spread_delay(each)
        for tick in trigger.between_ms(NOW, (first + minutes) * 60_000):
            fired[(tick + delay) // 60_000] += 1
    return tuple(fired[minute] for minute in range(first, first + minutes))


def peak_with(rows: list[ScheduleRecord], names: set[str], spread: timedelta, at: datetime) -> int:
    """The fullest minute from ``at`` until the spread has passed."""
    return max(minutes_with(rows, names, spread, at, spread // MINUTE + 1))


def test_a_spread_is_proposed_with_the_peak_before_and_after_it() -> None:
    rows = [row(f"import-{n}", "0 * * * *") for n in range(40)]
    rows += [row(f"poll-{n}", "* * * * *") for n in range(3)]
    found = forecast_of(rows, NOW, 24)

    (proposal,) = found.proposals
    assert (proposal.at, proposal.peak_before) == (START, 43)
    assert set(proposal.schedules) == {f"import-{n}" for n in range(40)}
    assert proposal.more == 0
    assert proposal.peak_after < 43 / 2
    assert proposal.peak_after == peak_with(rows, set(proposal.schedules), proposal.spread, proposal.at)


def test_a_proposal_that_is_followed_keeps_its_promise() -> None:
    rows = [row(f"import-{n}", "0 * * * *") for n in range(40)]
    (proposal,) = forecast_of(rows, NOW, 24).proposals
    spread = proposal.spread // timedelta(milliseconds=1)
    after = forecast_of([replace(each, spread=spread) for each in rows], NOW, 24)

    assert max(after.counts[: 60 + 1]) == proposal.peak_after
    assert after.proposals == ()


@pytest.mark.parametrize("seed", range(12))
def test_the_peak_after_a_spread_is_counted_as_firing_would(seed: int) -> None:
    rng = random.Random(seed)
    texts = [
        "0 * * * *",
        "0 9 * * *",
        "*/10 * * * *",
        "0,5 * * * *",
        "30 0 * * * *",
        "every 1h",
        "0 */2 * * *",
    ]
    rows = [row(f"s{n}", rng.choice(texts)) for n in range(60)]
    found = forecast_of(rows, NOW, 6)

    names: set[str] = set()
    for proposal in found.proposals:
        assert proposal.peak_before == found.counts[(proposal.at - found.start) // MINUTE]
        assert proposal.peak_after <= proposal.peak_before * 3 / 4
        chosen = set(proposal.schedules)
        assert proposal.peak_after == peak_with(rows, chosen, proposal.spread, proposal.at)
        assert not chosen & names, "a schedule is proposed once"
        names |= chosen


@pytest.mark.parametrize("seed", range(12))
def test_a_proposal_has_the_minutes_around_the_peak_without_and_with_it(seed: int) -> None:
    rng = random.Random(seed)
    texts = ["0 * * * *", "0 */2 * * *", "57,3 * * * *", "every 1h", "* * * * *", "4 * * * *"]
    rows = [row(f"s{n}", rng.choice(texts)) for n in range(80)]
    found = forecast_of(rows, NOW, 6)

    assert found.proposals
    for proposal in found.proposals:
        spread, minutes = proposal.spread, len(proposal.before)
        assert proposal.start == max(found.start, proposal.at - 5 * MINUTE)
        assert proposal.start + minutes * MINUTE == min(found.end, proposal.at + spread + 6 * MINUTE)
        assert len(proposal.after) == minutes <= 71
        assert proposal.before == minutes_with(rows, set(), spread, proposal.start, minutes)
        chosen = set(proposal.schedules)
        assert proposal.after == minutes_with(rows, chosen, spread, proposal.start, minutes)
        first = (proposal.at - proposal.start) // MINUTE
        assert proposal.before[first] == proposal.peak_before
        assert max(proposal.after[first : first + spread // MINUTE + 1]) == proposal.peak_after


def test_a_proposal_at_an_edge_of_the_forecast_has_no_minutes_outside_of_it() -> None:
    rows = [row(f"s{n}", "0 * * * *") for n in range(20)]
    (first,) = forecast_of(rows, NOW, 1, since=START).proposals
    assert (first.at, first.start) == (START, START)
    later = [row(f"s{n}", "50 * * * *") for n in range(20)]
    (last,) = forecast_of(later, NOW, 1, since=START).proposals
    assert last.start == last.at - 5 * MINUTE
    assert last.start + len(last.after) * MINUTE == START + 60 * MINUTE


def test_no_spread_is_proposed_where_it_would_not_help() -> None:
    steady = [row(f"s{n}", "* * * * *") for n in range(50)]
    assert forecast_of(steady, NOW, 2).proposals == ()
    few = [row(f"s{n}", "0 * * * *") for n in range(4)]
    assert forecast_of(few, NOW, 2).proposals == ()
    spread = [row(f"s{n}", "0 * * * *", spread=1) for n in range(50)]
    assert forecast_of(spread, NOW, 2).proposals == (), "they have one, which somebody chose"


def test_there_are_at_most_twenty_proposals() -> None:
    """Of 47 peaks that a spread would lower."""
    halves = [(hour, minute) for hour in range(24) for minute in (0, 30)]
    rows = [
        row(f"s{hour}-{minute}-{n}", f"{minute} {hour} * * *") for hour, minute in halves for n in range(10)
    ]
    found = forecast_of(rows, NOW, 24)

    assert len(found.peaks) == 48
    assert len(found.proposals) == len({proposal.at for proposal in found.proposals}) == 20


def test_a_forecast_does_not_keep_the_payloads_of_schedules() -> None:
    def rows() -> Iterator[ScheduleRecord]:
        for n in range(200):
            yield row(f"s{n}", "0 * * * *", payload=f'"{n}{"x" * 200_000}"')

    forecast_of([row("warm", "0 * * * *")], NOW, 1)
    tracemalloc.start()
    try:
        assert forecast_of(rows(), NOW, 24).schedules == 200
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 10_000_000, "all payloads are 40 MB"


# -- hostile schedules -------------------------------------------------------------------------------------

HOSTILE = {
    "every 1ms": lambda n: row(f"s{n}", "every 1ms"),
    "every 1ms, spread": lambda n: row(f"s{n}", "every 1ms", spread=3_600_000),
    "other periods": lambda n: row(f"s{n}", f"every {1001 + n}ms"),
    "other periods that begin inside": lambda n: row(
        f"s{n}", f"every {1001 + n}ms start=2026-03-02T10:00:00.{n % 1000:03}Z"
    ),
    "every second": lambda n: row(f"s{n}", "* * * * * *"),
    "every second, spread": lambda n: row(f"s{n}", "* * * * * *", spread=3_600_000),
    "every second, paused for a while": lambda n: row(
        f"s{n}", "* * * * * *", state="paused", paused_until=NOW + 3_600_000 + n
    ),
    "leap days": lambda n: row(f"s{n}", f"{n % 60} {n // 60 % 24} 29 2 1#5 tz=Europe/Berlin"),
}


@pytest.mark.parametrize(
    ("kind", "hours", "by"),
    [
        *((kind, 24, "minute") for kind in HOSTILE),
        ("other periods", 744, "hour"),
        ("every second, spread", 744, "hour"),
    ],
)
def test_hostile_schedules_take_little_memory(kind: str, hours: int, by: str) -> None:
    rows = [HOSTILE[kind](n) for n in range(600)]
    forecast_of(rows[:2], NOW, 1)  # imports and caches
    tracemalloc.start()
    try:
        found: Forecast = forecast_of(rows, NOW, hours, by=by)  # type: ignore[arg-type]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.schedules == 600
    assert most < 80_000_000
    rate = found.total / hours
    if "1ms" in kind:
        assert rate == pytest.approx(600 * 3_600_000, rel=0.05)
