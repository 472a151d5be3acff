"""Explaining a trigger: its words, ticks and clock changes, with bounded work for any text."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from evenbeat import InvalidTrigger, InvalidValue, Scheduler, UnknownTriggerZone, UnknownZone, parse_trigger
from evenbeat.core.instants import read_instant, to_ms
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from evenbeat.triggers import zones
from evenbeat.triggers.zones import Zone, read_zone
from tests.lengths import some

NOW = datetime(2026, 3, 28, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def app() -> Iterator[Scheduler]:
    scheduler = Scheduler(MemoryStore(VirtualClock(to_ms(NOW))))
    yield scheduler
    scheduler.close()


# -- the explanation ---------------------------------------------------------------------------------------


def test_a_cron_is_explained_with_its_ticks_and_clock_changes(app: Scheduler) -> None:
    found = app.explain("30  2 * * 0-6", 2, tz="Europe/Berlin")

    assert (found.kind, found.trigger, found.written) == (
        "cron",
        "30 2 * * 0-6 tz=Europe/Berlin",
        "30 2 * * 0-6 tz=Europe/Berlin",
    )
    assert found.words == parse_trigger("30 2 * * * tz=Europe/Berlin").explain()
    assert (found.zone, found.since, found.until) == ("Europe/Berlin", NOW, None)
    first, second = found.ticks
    assert (first.at.isoformat(), first.away) == ("2026-03-29T03:00:00+02:00", timedelta(hours=13))
    assert first.note == "02:30 does not exist on this day: the clock goes from 02:00 to 03:00"
    assert (second.at.isoformat(), second.note) == ("2026-03-30T02:30:00+02:00", None)
    assert found.notes == ()
    forward, back = found.clock_changes
    assert (forward.at, forward.clock_from, forward.clock_to) == (
        datetime(2026, 3, 29, 1, tzinfo=UTC),
        "02:00",
        "03:00",
    )
    assert (forward.shift, back.shift) == (timedelta(hours=1), timedelta(hours=-1))
    assert forward.effect == "02:30 does not exist: it runs at 03:00 instead"
    assert back.effect == "02:30 comes twice: it runs the first time only"


def test_days_that_must_match_both_fields_are_explained(app: Scheduler) -> None:
    found = app.explain("0 0 13 * fri days=both", 3, since="2026-01-01T00:00Z")
    assert found.trigger == "0 0 13 * 5 days=both"
    assert found.words == "at 00:00 on Fridays, but only on the 13th of the month (UTC)"
    assert [f"{tick.at:%a %d %b}" for tick in found.ticks] == ["Fri 13 Feb", "Fri 13 Mar", "Fri 13 Nov"]


def test_a_name_whose_hash_gives_days_that_never_come_together_is_refused(app: Scheduler) -> None:
    hashed = "0 0 LW * H days=both"  # a last weekday, Mon-Fri: the hash of "c" is a Sunday
    assert app.explain(hashed, 1, name="report").ticks
    with pytest.raises(InvalidTrigger, match="never fall together"):
        app.explain(hashed, 1, name="c")


def test_the_time_to_start_from_is_that_of_the_store_or_the_one_that_is_given(app: Scheduler) -> None:
    assert app.explain("0 * * * *", 1).ticks[0].at == NOW + timedelta(hours=1)
    given = app.explain("0 9 * * *", 1, tz="Europe/Berlin", since="2026-07-01T08:00")
    assert given.since == datetime(2026, 7, 1, 8, tzinfo=BERLIN)
    assert given.ticks[0].away == timedelta(hours=1)
    assert len(app.explain("0 * * * *", since=NOW).ticks) == 10


def test_open_parts_are_fixed_as_for_a_new_schedule(app: Scheduler) -> None:
    period = app.explain("every 10m", 1)
    assert (period.kind, period.written) == ("every", "every 10m")
    assert period.trigger == "every 10m start=2026-03-28T12:10:00Z"
    assert period.notes == ("it has no start: the first tick is one period later, as for a new schedule",)
    hashed = app.explain("H H * * *", 1)
    assert hashed.trigger == hashed.written == "H H * * *"
    assert hashed.notes == ("H depends on the schedule's name: give the name to see its real ticks",)
    named = app.explain("H H * * *", 1, name="nightly")
    assert (named.trigger, named.notes) == (str(parse_trigger("H H * * *").bind("nightly", 0)), ())


def test_a_trigger_with_fewer_ticks_says_why(app: Scheduler) -> None:
    once = app.explain("at 2026-03-29 09:00", tz="Europe/Berlin")
    assert (once.kind, len(once.ticks), once.zone) == ("at", 1, "Europe/Berlin")
    assert once.notes == ("no more ticks: it runs once",)
    ending = app.explain("@daily until=2026-03-30T12:00Z")
    assert (len(ending.ticks), ending.until) == (2, datetime(2026, 3, 30, 12, tzinfo=UTC))
    assert ending.notes == ("no more ticks: it ends at Mon 2026-03-30 12:00 +00:00",)


def test_an_explanation_is_awaited(app: Scheduler) -> None:
    assert asyncio.run(app.aexplain("@hourly", 3)) == app.explain("@hourly", 3)


# -- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "field", "position"),
    [
        ("0 9 * * mon-fry", "day of week", 8),
        ("61 * * * *", "minute", 0),
        ("0 9 * * * tz=Berlin", "tz", 13),
        ("every soon", "every", 6),
        ("x" * 5_000_000, "expression", 0),
    ],
)
def test_a_text_that_is_not_valid_is_refused_with_the_position(
    app: Scheduler, text: str, field: str, position: int
) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        app.explain(text)
    assert (caught.value.field, caught.value.position) == (field, position)


def test_zones_that_are_unknown_or_contradict_each_other_are_refused(app: Scheduler) -> None:
    with pytest.raises(UnknownZone):
        app.explain("@daily", tz="Mars")
    with pytest.raises(UnknownTriggerZone):
        app.explain("@daily tz=Mars")
    with pytest.raises(InvalidValue, match="tz Asia/Tokyo contradicts tz=Europe/Berlin"):
        app.explain("0 9 * * * tz=Europe/Berlin", tz="Asia/Tokyo")
    with pytest.raises(InvalidValue, match='since "soon" is not a date and time'):
        app.explain("@daily", since="soon")
    with pytest.raises(InvalidValue, match="trigger 7 is not a text"):
        app.explain(7)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, -1, 1001, 10**30, True, "5"])
def test_more_than_a_thousand_ticks_are_refused_with_a_hint(app: Scheduler, count: int) -> None:
    for call in (app.explain, app.schedules.preview):
        with pytest.raises(InvalidValue, match="count") as caught:
            call("every 1s", count)
        assert (caught.value.field, caught.value.hint) == (
            "count",
            "ask for the rest with the last tick as since",
        )
    assert len(app.explain("every 1s", 1000).ticks) == len(app.schedules.preview("every 1s", 1000)) == 1000


# -- hostile texts (as the preview that filled the memory of Oban Web 2.12.5) ------------------------------

ALWAYS_SKIPPED = "30 2 * 3 7L tz=Europe/Berlin gap=skip"
HOSTILE = [
    "0 0 29 2 1#5 tz=Europe/Berlin",
    "0 0 29 2 */7 tz=Europe/Berlin",
    "0 0 1 1 * tz=America/New_York",
    "30 2 * 3 7L tz=Europe/Berlin",
    f"{ALWAYS_SKIPPED} until=9999-12-01T00:00:00Z",
    "0 0 L-30,L-29,31W 2,12 1#5 tz=Pacific/Apia",
    "59 59 23 31 12 */7 tz=America/Nuuk start=1850-01-01T00:00:00Z",
    f"{','.join(map(str, range(60)))} {','.join(map(str, range(60)))} * * * * tz=Asia/Gaza",
    "H," * 300 + "H * * * *",
    "every 1ms",
    "* * * * * *",
]


class Probes:
    """Counts the probes of time zones, which are most of the work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        probe = Zone._delta

        def counted(zone: Zone, second: int) -> timedelta:
            self.count += 1
            return probe(zone, second)

        monkeypatch.setattr(Zone, "_delta", counted)
        monkeypatch.setattr(zones, "_ZONES", {})
        zones.zone.cache_clear()
        parse_trigger.cache_clear()


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Probes]:
    yield Probes(monkeypatch)
    monkeypatch.undo()
    zones.zone.cache_clear()
    parse_trigger.cache_clear()


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(
    "since", some(("0001-01-03T00:00Z", "2026-01-01T00:00Z", "9000-01-01T00:00Z"), "2026-01-01T00:00Z")
)
def test_any_trigger_is_explained_with_bounded_work(
    app: Scheduler, probes: Probes, text: str, since: str
) -> None:
    tracemalloc.start()
    try:
        found = app.explain(text, 1000, since=since)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # 250 years of about 430 probes: without a bound, 8,000 years are searched.
    assert probes.count < 250 * 430
    assert most < 5_000_000
    if len(found.ticks) < 1000:
        assert found.notes
    for before, after in zip(found.ticks, found.ticks[1:], strict=False):
        assert before.at < after.at


def test_a_preview_ends_after_a_hundred_years_and_says_so(app: Scheduler) -> None:
    found = app.explain("@yearly", 1000)
    assert (len(found.ticks), found.notes) == (101, ("more ticks follow: only those of 100 years are shown",))
    assert len(app.schedules.preview("@yearly", 1000)) == 101
    later = app.explain("@yearly start=2500-01-01T00:00:00Z", 3)
    assert [tick.at.year for tick in later.ticks] == [2500, 2501, 2502], "counted from the first tick"


def test_a_time_that_the_clock_always_skips_has_no_tick_however_far_one_looks(probes: Probes) -> None:
    trigger = parse_trigger(f"{ALWAYS_SKIPPED} until=9999-12-01T00:00:00Z")

    assert trigger.next_ms(read_instant("2026-01-01T00:00Z", "since")) is None
    before = trigger.prev_ms(read_instant("9999-01-01T00:00Z", "before"))
    assert before == read_instant("1980-03-30T01:30Z", "the year before the rule of today")
    assert probes.count < 350 * 430


@pytest.mark.parametrize("year", range(2100, 9990, 397))
def test_the_rarest_day_is_found_within_the_bound(year: int) -> None:
    """29 February on each weekday, at a time that no clock skips, in a zone with clock changes."""
    since = read_instant(f"{year}-03-01T00:00Z", "since")
    for weekday in range(7):
        zoned = parse_trigger(f"0 12 29 2 {weekday} tz=Europe/Berlin gap=skip")
        plain = parse_trigger(f"0 12 29 2 {weekday}")
        ours, utc = zoned.next_ms(since), plain.next_ms(since)
        assert (ours is None) == (utc is None)
        assert ours is None or utc is None or ours == utc - 3_600_000


def test_a_zone_keeps_a_bounded_number_of_years() -> None:
    place = Zone("Europe/Berlin", BERLIN, None)
    for year in range(1, 9999, 7):
        second = int(datetime(year, 6, 1, tzinfo=UTC).timestamp())
        assert place.window(second).offset == read_zone("Europe/Berlin").offset(second)
        assert len(place._chunks) <= 128
