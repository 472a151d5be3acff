"""Triggers with calendars, compared with a reference that looks at each tick and each day by itself."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbeat import Calendared, InvalidTrigger, InvalidValue, at, cron, every, parse_trigger
from evenbeat.core.instants import from_ms, to_ms
from evenbeat.triggers.calendar_moves import MOST_DAYS_MOVED
from evenbeat.triggers.calendar_texts import read_days, read_weekly
from evenbeat.triggers.calendared import Removed
from evenbeat.triggers.time_sets import EPOCH_ORDINAL, TimeSet, days_within
from evenbeat.triggers.zones import zone
from tests.lengths import is_short

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Pacific/Apia",
)
WEEK_TEXTS = (
    "mon-fri",
    "mon-fri 09:00-17:00",
    "sat,sun",
    "fri-mon 22:00-06:00",
    "sun 20:00-04:00",
    "tue 00:00-24:00",
    "sun 02:00-03:00",
    "mon-sun 00:00-12:00",
)
# Around changes of the clock, and the day that Samoa left out (2011-12-30).
PLACES = (
    datetime(2026, 3, 27, tzinfo=UTC),
    datetime(2026, 10, 23, tzinfo=UTC),
    datetime(2026, 3, 6, tzinfo=UTC),
    datetime(2024, 2, 26, tzinfo=UTC),
    datetime(2011, 12, 27, tzinfo=UTC),
    datetime(2026, 12, 22, tzinfo=UTC),
    datetime(2017, 10, 13, tzinfo=UTC),
)


# -- the reference -----------------------------------------------------------------------------------------


def has(times: TimeSet, instant: int, own: str) -> bool:
    local = from_ms(instant, ZoneInfo(times.tz or own))
    day = local.date()
    number, yearly = day.toordinal() - EPOCH_ORDINAL, (day.month, day.day)
    if number in times.without or yearly in times.without_yearly:
        return False
    of_week = day.weekday() * 86_400 + local.hour * 3600 + local.minute * 60 + local.second
    return (
        number in times.days
        or yearly in times.yearly
        or any(start <= of_week < end for start, end in times.weekly)
        or any(start <= instant // 1000 < end for start, end in times.spans)
    )


def admits(trigger: Calendared, sets: dict[str, TimeSet], instant: int, own: str) -> bool:
    inside = all(has(sets[name], instant, own) for name in trigger.only)
    return inside and not any(has(sets[name], instant, own) for name in trigger.skip)


def image(trigger: Calendared, sets: dict[str, TimeSet], tick: int, own: str) -> int | None:
    if admits(trigger, sets, tick, own):
        return tick
    if trigger.move == "skip":
        return None
    step = 1 if trigger.move == "next" else -1
    label = datetime(1970, 1, 1) + timedelta(seconds=trigger.bare.label_of(tick))  # type: ignore[union-attr]
    for days in range(1, MOST_DAYS_MOVED + 1):
        there = to_ms(instant_of(label + timedelta(days=days * step), own))
        if admits(trigger, sets, there, own):
            return there
    return None


def instant_of(label: datetime, own: str) -> datetime:
    """Return when the clock first shows a time, or the first moment after the gap that contains it."""
    info = ZoneInfo(own)
    guess = label.replace(tzinfo=info).astimezone(UTC)
    if guess.astimezone(info).replace(tzinfo=None) == label:
        return guess
    # A gap: go back to where the clock showed less, and forward to the change.
    second = label.replace(tzinfo=UTC) - timedelta(hours=26)
    while second.astimezone(info).replace(tzinfo=None) < label:
        second += timedelta(minutes=15)
    return second


def expected(trigger: Calendared, sets: dict[str, TimeSet], start: int, end: int, own: str) -> list[int]:
    reach = 34 * 86_400_000 if trigger.move != "skip" else 0
    bare = trigger.bare.between_ms(start - reach, end + reach)
    images = {image(trigger, sets, tick, own) for tick in bare}
    return sorted(tick for tick in images if tick is not None and start <= tick < end)


# -- strategies --------------------------------------------------------------------------------------------


@st.composite
def time_sets(draw: st.DrawFn, around: datetime) -> TimeSet:
    day = around.date().toordinal() - EPOCH_ORDINAL
    second = int(around.timestamp())
    near = st.integers(day - 3, day + 12)
    named = near.map(lambda each: date.fromordinal(each + EPOCH_ORDINAL)).map(
        lambda each: (each.month, each.day)
    )

    def some(values: st.SearchStrategy[object], most: int) -> tuple[object, ...]:
        return tuple(sorted(set(draw(st.lists(values, max_size=most)))))  # type: ignore[type-var]

    starts = draw(st.lists(st.integers(second, second + 8 * 86_400), max_size=2, unique=True))
    spans = [(start, start + 5_400) for start in sorted(starts)]
    if len(spans) == 2 and spans[1][0] <= spans[0][1]:
        spans = spans[:1]
    return TimeSet(
        tz=draw(st.sampled_from(("", "", "Europe/Berlin", "Asia/Tokyo"))),
        days=some(near, 3),  # type: ignore[arg-type]
        yearly=some(named, 2),  # type: ignore[arg-type]
        weekly=read_weekly(draw(st.lists(st.sampled_from(WEEK_TEXTS), max_size=2))),
        spans=tuple(spans),
        without=some(near, 2),  # type: ignore[arg-type]
        without_yearly=some(named, 1),  # type: ignore[arg-type]
    )


CRONS = (
    "0 9 * * *",
    "30 2 * * *",
    "0 0 * * *",
    "0 8,17 * * *",
    "15 2,3 * * sun",
    "0 12 29 2 *",
    "59 23 * * *",
)
OFTEN = ("*/30 * * * *", "5 * * * *", "0 9-17 * * mon-fri")


@st.composite
def cases(draw: st.DrawFn) -> tuple[Calendared, dict[str, TimeSet], datetime, str]:
    around = draw(st.sampled_from(PLACES))
    own = draw(st.sampled_from(ZONES))
    move = draw(st.sampled_from(("skip", "next", "previous")))
    skip = draw(st.sampled_from((None, "a", "a,b")))
    only = draw(st.sampled_from((None, "c"))) if skip else "c"
    if move == "skip" and draw(st.booleans()):
        period = draw(st.sampled_from(("7h", "25m", "90s", "1d")))
        text, own = f"every {period} start=2010-01-01T00:00:00Z", "UTC"
    else:
        text = f"{draw(st.sampled_from(CRONS if move != 'skip' else CRONS + OFTEN))} tz={own}"
    text += "".join(f" {key}={value}" for key, value in (("skip", skip), ("only", only)) if value)
    trigger = parse_trigger(text if move == "skip" else f"{text} move={move}")
    assert isinstance(trigger, Calendared)
    sets = {name: draw(time_sets(around)) for name in trigger.names}
    return trigger.with_calendars(sets), sets, around, own


@settings(max_examples=8 if is_short() else 60, deadline=None)
@given(cases())
def test_ticks_are_those_of_the_reference(case: tuple[Calendared, dict[str, TimeSet], datetime, str]) -> None:
    trigger, sets, around, own = case
    start, end = to_ms(around), to_ms(around + timedelta(days=10))
    wanted = expected(trigger, sets, start, end, own)
    assert list(trigger.between_ms(start, end)) == wanted
    assert trigger.count_ms(start, end) == len(wanted)
    backwards = []
    tick = trigger.prev_ms(end)
    while tick is not None and tick >= start:
        backwards.append(tick)
        tick = trigger.prev_ms(tick)
    assert backwards[::-1] == wanted


@settings(max_examples=20, deadline=None)
@given(cases())
def test_removed_ticks_are_the_bare_ones_that_are_refused(
    case: tuple[Calendared, dict[str, TimeSet], datetime, str],
) -> None:
    trigger, sets, around, own = case
    start, end = to_ms(around), to_ms(around + timedelta(days=10))
    gone = [tick for tick in trigger.bare.between_ms(start, end) if not admits(trigger, sets, tick, own)]
    found = trigger.removed_ms(start, end)
    assert sum(row.count for row in found) == len(gone)
    # Each range has removed ticks only, and no two ranges could be one.
    listed = [list(trigger.bare.between_ms(row.first, row.last + 1)) for row in found]
    assert [tick for ticks in listed for tick in ticks] == gone
    assert [row.count for row in found] == [len(ticks) for ticks in listed]
    assert [row.moved_to for row in found for _ in range(row.count)] == [
        image(trigger, sets, tick, own) for tick in gone
    ]
    for before, after in pairwise(found):
        is_apart = trigger.bare.next_ms(before.last) != after.first
        assert is_apart or before.moved_to != after.moved_to
    for tick in gone[:5]:
        assert trigger.removes(tick)
        assert trigger.refusing(tick)
    for row in found:
        parts = list(trigger.refusals(row))
        ticks = [list(trigger.bare.between_ms(part.first, part.last + 1)) for part, _ in parts]
        assert [tick for each in ticks for tick in each] == list(
            trigger.bare.between_ms(row.first, row.last + 1)
        )
        assert [part.count for part, _ in parts] == [len(each) for each in ticks]
        assert {part.moved_to for part, _ in parts} == {row.moved_to}
        for each, (_, names) in zip(ticks, parts, strict=True):
            assert {trigger.refusing(tick) for tick in each} == {names}


@given(cases())
@settings(max_examples=25, deadline=None)
def test_the_text_of_a_trigger_is_read_back(
    case: tuple[Calendared, dict[str, TimeSet], datetime, str],
) -> None:
    trigger, sets, _, _ = case
    again = parse_trigger(str(trigger))
    assert isinstance(again, Calendared)
    assert again.with_calendars(sets) == trigger
    assert hash(again.with_calendars(sets)) == hash(trigger)


@given(st.sampled_from(ZONES), st.sampled_from(PLACES), st.data())
@settings(max_examples=25, deadline=None)
def test_days_of_a_range_are_those_of_the_reference(own: str, around: datetime, data: st.DataObject) -> None:
    times = data.draw(time_sets(around))
    first = around.date().toordinal() - EPOCH_ORDINAL
    found = dict(days_within(times, zone(times.tz or own), first, first + 6))
    local = ZoneInfo(times.tz or own)
    begin = to_ms(around - timedelta(days=1))
    seen = set()
    for instant in range(begin, begin + 9 * 86_400_000, 300_000):
        day = from_ms(instant, local).date().toordinal() - EPOCH_ORDINAL
        if first <= day <= first + 6 and has(times, instant, own):
            seen.add(day)
    assert seen <= set(found)


# -- examples ----------------------------------------------------------------------------------------------


def local(trigger: Calendared, start: str, days: int) -> list[str]:
    begin = datetime.fromisoformat(start).replace(tzinfo=trigger.tzinfo)
    return [tick.strftime("%a %d %H:%M") for tick in trigger.between(begin, begin + timedelta(days=days))]


def calendared(text: str, **days: list[str]) -> Calendared:
    trigger = parse_trigger(text)
    assert isinstance(trigger, Calendared)
    contents = {}
    for name, each in days.items():
        found = read_days(each, "days")
        contents[name] = TimeSet(days=found.days, yearly=found.yearly)
    return trigger.with_calendars(contents)


def test_business_days_need_no_contents() -> None:
    trigger = cron("0 9 * * *", tz="America/New_York", only="business-days")
    assert isinstance(trigger, Calendared)
    assert local(trigger, "2026-11-20", 5) == ["Fri 20 09:00", "Mon 23 09:00", "Tue 24 09:00"]


def test_a_tick_moves_to_the_next_or_the_previous_free_day() -> None:
    text = "0 9 1 * * tz=Europe/Berlin skip=off,weekends"
    # 1 January 2027 is a Friday.
    assert local(calendared(f"{text} move=next", off=["01-01"]), "2026-12-20", 20) == ["Mon 04 09:00"]
    assert local(calendared(f"{text} move=previous", off=["01-01"]), "2026-12-20", 20) == ["Thu 31 09:00"]
    assert local(calendared(text, off=["01-01"]), "2026-12-20", 20) == []


def test_ticks_that_move_onto_each_other_are_one() -> None:
    trigger = calendared("0 9 * * * skip=weekends move=next")
    assert local(trigger, "2026-11-20", 4) == ["Fri 20 09:00", "Mon 23 09:00"]
    monday = to_ms(datetime(2026, 11, 23, 9, tzinfo=UTC))
    saturday = to_ms(datetime(2026, 11, 21, 9, tzinfo=UTC))
    assert trigger.removed_ms(saturday - 1, monday + 1) == [
        Removed(saturday, saturday + 86_400_000, 2, monday)
    ]


def test_a_tick_whose_next_free_day_is_too_far_away_is_removed() -> None:
    trigger = calendared("0 9 1 * * skip=off move=next", off=["2026-12-01..2027-01-15"])
    # 1 January moves to the 16th; 1 December would have to move by 46 days.
    assert local(trigger, "2026-11-15", 65) == ["Sat 16 09:00"]


def test_a_time_in_the_gap_moves_to_its_own_time_of_another_day() -> None:
    # On 29 March 2026 02:30 does not exist in Berlin; the tick would be at 03:00.
    trigger = calendared("30 2 * * * tz=Europe/Berlin skip=off move=next", off=["2026-03-29"])
    assert local(trigger, "2026-03-28", 4) == ["Sat 28 02:30", "Mon 30 02:30", "Tue 31 02:30"]
    onto = calendared("30 2 28 3 * tz=Europe/Berlin skip=off move=next", off=["2026-03-28"])
    assert local(onto, "2026-03-28", 4) == ["Sun 29 03:00"]
    assert onto.note(to_ms(datetime(2026, 3, 29, 1, tzinfo=UTC))) == "moved from 2026-03-28: off"


def test_an_interval_keeps_its_phase_through_what_is_skipped() -> None:
    trigger = every("9h", start="2026-11-20T00:00:00Z", skip="weekends")
    assert isinstance(trigger, Calendared)
    friday = ["Fri 20 00:00", "Fri 20 09:00", "Fri 20 18:00"]
    assert local(trigger, "2026-11-20", 4) == [*friday, "Mon 23 00:00", "Mon 23 09:00", "Mon 23 18:00"]


def test_words_name_the_calendars() -> None:
    trigger = cron("0 9 * * *", tz="Europe/Berlin", only="business-days", skip="a,b", move="next")
    assert trigger.explain() == (
        "at 09:00 every day (Europe/Berlin), only in business-days, not in a and b, moved to the next free"
        " day instead; a time that the clock skips or repeats runs once"
    )
    assert str(trigger) == "0 9 * * * tz=Europe/Berlin skip=a,b only=business-days move=next"


def test_a_trigger_without_the_contents_of_its_calendars_does_not_tick() -> None:
    trigger = cron("0 9 * * *", skip="us-holidays")
    for call in (trigger.next_ms, trigger.prev_ms):
        with pytest.raises(InvalidTrigger, match="names the calendar us-holidays, whose days are not known"):
            call(0)
    with pytest.raises(InvalidTrigger, match="us-holidays"):
        trigger.count_ms(0, 86_400_000)
    assert isinstance(trigger, Calendared)
    with pytest.raises(InvalidTrigger, match="us-holidays"):
        trigger.with_calendars({"other": TimeSet()})


@pytest.mark.parametrize(
    "trigger", ["0 9 * * * skip=off", "every 1m skip=off", "0 9 * * * skip=off move=next"]
)
def test_a_trigger_without_any_free_time_has_no_tick_and_says_so_soon(trigger: str) -> None:
    bare = parse_trigger(trigger)
    assert isinstance(bare, Calendared)
    never = bare.with_calendars({"off": TimeSet(weekly=((0, 7 * 86_400),))})
    assert never.next_ms(0) is None
    assert never.prev_ms(1_800_000_000_000) is None


@pytest.mark.parametrize(
    ("make", "field", "words"),
    [
        (lambda: cron("0 9 * * *", move="next"), "move", "without a calendar"),
        (lambda: parse_trigger("0 9 * * * skip=a move=later"), "move", "is not one of skip, next, previous"),
        (lambda: every("1h", skip="a", move="next"), "move", "an interval has none"),
        (lambda: cron("@every 1h", skip="a", move="next"), "move", "an interval has none"),
        (lambda: cron("* * * * *", skip="a", move="next"), "move", "at most 24 times a day"),
        (lambda: cron("0 9 * * *", skip=""), "skip", "does not name calendars"),
        (lambda: cron("0 9 * * *", skip=","), "skip", "does not name calendars"),
        (lambda: cron("0 9 * * *", only=["a", ""]), "only", "does not name calendars"),
        (lambda: cron("0 9 * * *", only=[]), "only", "does not name calendars"),
        (lambda: cron("0 9 * * *", skip="a b"), "skip", "does not name calendars"),
        (lambda: cron("0 9 * * *", skip="a", only=["b", "a"]), "only", "both name a"),
        (lambda: cron("0 9 * * *", skip=[f"c{n}" for n in range(11)]), "skip", "more than 10"),
        (lambda: parse_trigger("0 9 * * * skip="), "skip", "does not name calendars"),
        (lambda: parse_trigger("at 2026-12-25T00:00:00Z skip=a"), "skip", "is not known here"),
    ],
)
def test_wrong_options_are_refused_by_name(make: object, field: str, words: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        make()  # type: ignore[operator]
    assert refused.value.field == field
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["2026-13-01"], "is not a day"),
        (["2026-12-25 "], ""),
        (["25.12.2026"], "is not a day"),
        (["2026-12-31..2026-12-24"], "ends before it begins"),
        (["0001-01-01..9999-12-31"], "more than 20,000 days"),
        (["13-01"], "is not a day"),
        (["02-30"], "is not a day"),
        (["12-24..2026-12-26"], "is not a day"),
        ([7], "is not a day"),
        ("2026-12-25", "is not a list"),
        (-1, "is not a list"),
        (["2026-01-01"] * 10_001, "more than 10,000"),
    ],
)
def test_wrong_days_are_refused_with_the_text(texts: object, words: str) -> None:
    if not words:
        assert len(read_days(texts, "days").days) == 1
        return
    with pytest.raises(InvalidValue, match=words) as refused:
        read_days(texts, "days")
    assert refused.value.field == "days"


@pytest.mark.parametrize(
    "text",
    ["", "mon 9-17", "mon 09:00-25:00", "mon 09:00-09:00", "xyz", "mon-", "mon 09:60-10:00", "mon fri 9", 5],
)
def test_wrong_windows_are_refused_with_the_text(text: object) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_weekly([text])
    assert refused.value.field == "weekly"


def test_days_and_windows_are_read() -> None:
    found = read_days(["2026-12-24..2026-12-26", "12-31..01-01", date(2026, 5, 1)], "days")
    assert len(found.days) == 4
    assert found.yearly == ((1, 1), (12, 31))
    assert read_weekly(["mon-fri 09:00-17:00"])[0] == (9 * 3600, 17 * 3600)
    # Over midnight, and over the end of the week.
    assert read_weekly(["sun 22:00-06:00"]) == ((0, 6 * 3600), (6 * 86_400 + 22 * 3600, 7 * 86_400))
    assert read_weekly(["fri-mon"]) == ((0, 86_400), (4 * 86_400, 7 * 86_400))


def test_triggers_without_calendars_are_what_they_were() -> None:
    assert not isinstance(cron("0 9 * * *"), Calendared)
    assert not isinstance(every("1h"), Calendared)
    assert not isinstance(at("2026-12-25T00:00:00Z"), Calendared)
