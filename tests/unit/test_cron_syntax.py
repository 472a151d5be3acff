"""The syntax of cron: what is accepted, what it means, and the one text that every meaning has."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings

from evenbeat import Cron, Every, InvalidTrigger, Trigger, at, cron, every, parse_trigger
from tests.lengths import examples
from tests.unit import strategies

# -- meaning --------------------------------------------------------------------------------------


def read(text: str, **options: Any) -> Cron:
    trigger = cron(text, **options)
    assert isinstance(trigger, Cron)
    return trigger


def ticks(text: str, start: str, count: int) -> list[str]:
    trigger, moment = read(text), datetime.fromisoformat(start).replace(tzinfo=UTC)
    found = []
    for _ in range(count):
        following = trigger.next(moment)
        assert following is not None
        found.append(following.strftime("%Y-%m-%d %H:%M"))
        moment = following
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 * * * *", ["2026-01-01 01:00", "2026-01-01 02:00", "2026-01-01 03:00"]),
        ("*/15 * * * *", ["2026-01-01 00:15", "2026-01-01 00:30", "2026-01-01 00:45"]),
        ("0 9 * * 1", ["2026-01-05 09:00", "2026-01-12 09:00", "2026-01-19 09:00"]),
        ("0 0 1 * *", ["2026-02-01 00:00", "2026-03-01 00:00", "2026-04-01 00:00"]),
        ("0 0 * * 0", ["2026-01-04 00:00", "2026-01-11 00:00", "2026-01-18 00:00"]),
        ("30 2 * * 1-5", ["2026-01-01 02:30", "2026-01-02 02:30", "2026-01-05 02:30"]),
        ("@yearly", ["2027-01-01 00:00", "2028-01-01 00:00", "2029-01-01 00:00"]),
        ("@annually", ["2027-01-01 00:00", "2028-01-01 00:00", "2029-01-01 00:00"]),
        ("@monthly", ["2026-02-01 00:00", "2026-03-01 00:00", "2026-04-01 00:00"]),
        ("@weekly", ["2026-01-04 00:00", "2026-01-11 00:00", "2026-01-18 00:00"]),
        ("@daily", ["2026-01-02 00:00", "2026-01-03 00:00", "2026-01-04 00:00"]),
        ("@midnight", ["2026-01-02 00:00", "2026-01-03 00:00", "2026-01-04 00:00"]),
        ("@hourly", ["2026-01-01 01:00", "2026-01-01 02:00", "2026-01-01 03:00"]),
        ("5/15 * * * *", ["2026-01-01 00:05", "2026-01-01 00:20", "2026-01-01 00:35"]),
        ("10-30/10 * * * *", ["2026-01-01 00:10", "2026-01-01 00:20", "2026-01-01 00:30"]),
        ("0 22-2/2 * * *", ["2026-01-01 02:00", "2026-01-01 22:00", "2026-01-02 00:00"]),
        ("50-10/10 * * * *", ["2026-01-01 00:10", "2026-01-01 00:50", "2026-01-01 01:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00", "2032-02-29 00:00", "2036-02-29 00:00"]),
    ],
)
def test_the_first_ticks_of_2026(text: str, expected: list[str]) -> None:
    assert ticks(text, "2026-01-01 00:00", 3) == expected


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        # 2026: January has 31 days from a Thursday, February 28 from a Sunday, May starts on a Friday.
        ("L * *", ["01-31", "02-28", "03-31", "04-30"]),
        ("L 2 *", ["02-28", "02-28", "02-29", "02-28"]),
        ("L-3 * *", ["01-28", "02-25", "03-28", "04-27"]),
        ("L-0 * *", ["01-31", "02-28", "03-31", "04-30"]),
        ("L-30 * *", ["03-01", "05-01", "07-01", "08-01"]),  # asked after 1 January
        ("LW * *", ["01-30", "02-27", "03-31", "04-30"]),
        ("15W * *", ["01-15", "02-16", "03-16", "04-15"]),  # 15 February and March are Sundays
        ("1W * *", ["02-02", "03-02", "04-01", "05-01"]),  # never into the month before
        ("31W * *", ["01-30", "03-31", "05-29", "07-31"]),  # nor the one after; only months with a 31st
        ("1W 8 *", ["08-03", "08-02", "08-01", "08-01"]),  # Saturday the 1st moves on to Monday
        ("30W 2-3 *", ["03-30", "03-30", "03-30", "03-30"]),
        ("1,L * *", ["01-31", "02-01", "02-28", "03-01"]),
        ("15,LW * *", ["01-15", "01-30", "02-15", "02-27"]),
        ("* * 5#3", ["01-16", "02-20", "03-20", "04-17"]),
        ("* * fri#3", ["01-16", "02-20", "03-20", "04-17"]),
        ("* * 5#5", ["01-30", "05-29", "07-31", "10-30"]),
        ("* * 5L", ["01-30", "02-27", "03-27", "04-24"]),
        ("* * friL", ["01-30", "02-27", "03-27", "04-24"]),
        ("* * 7#1", ["01-04", "02-01", "03-01", "04-05"]),
        ("* * 0#1,6L", ["01-04", "01-31", "02-01", "02-28"]),
        ("* 2 1#5", ["02-29", "02-29", "02-29", "02-29"]),
        # Either will do, unless one of them starts with *.
        ("13 * 5", ["01-02", "01-09", "01-13", "01-16"]),
        ("L * 1#1", ["01-05", "01-31", "02-02", "02-28"]),
        ("*/2 * 1", ["01-05", "01-19", "02-09", "02-23"]),
        ("1-7 * */7", ["01-04", "02-01", "03-01", "04-05"]),
        ("? * 1", ["01-05", "01-12", "01-19", "01-26"]),
        ("13 * ?", ["01-13", "02-13", "03-13", "04-13"]),
        ("13 * *", ["01-13", "02-13", "03-13", "04-13"]),
        ("1-31 * 1", ["01-02", "01-03", "01-04", "01-05"]),  # no star: any date will do
        ("*,13 * 5", ["01-02", "01-09", "01-16", "01-23"]),  # a star in front
        ("13,* * 5", ["01-02", "01-03", "01-04", "01-05"]),  # and one that is not
        # Through the end of a range.
        ("* * fri-mon", ["01-02", "01-03", "01-04", "01-05"]),
        ("* * 6-2/2", ["01-03", "01-05", "01-10", "01-12"]),
        ("* * sat-sun", ["01-03", "01-04", "01-10", "01-11"]),
        ("* * 5-7", ["01-02", "01-03", "01-04", "01-09"]),
        ("30-2 * *", ["01-02", "01-30", "01-31", "02-01"]),
        ("1 nov-feb *", ["02-01", "11-01", "12-01", "01-01"]),
        ("* * 1/2", ["01-02", "01-04", "01-05", "01-07"]),  # to 7, which is Sunday
    ],
)
def test_the_first_days_after_the_first_of_january_2026(days: str, expected: list[str]) -> None:
    assert [tick[5:10] for tick in ticks(f"0 0 {days}", "2026-01-01 00:00", 4)] == expected


def test_seconds_come_first() -> None:
    trigger = read("*/20 30 2 * * *")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    found = list(trigger.between(start, start.replace(day=2)))
    assert [tick.strftime("%H:%M:%S") for tick in found] == ["02:30:00", "02:30:20", "02:30:40"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0 9 * * mon-fri", "0 9 * * 1-5"),
        ("0 9 * * MON-Fri", "0 9 * * 1,2,3,4,5"),
        ("0 9 * * 0", "0 9 * * 7"),
        ("0 9 * * sun", "0 9 * * 7"),
        ("0 9 * * 0-7", "0 9 * * 0-6"),
        ("0 9 * * sat,sun", "0 9 * * 6-7"),
        ("0 9 * * fri-mon", "0 9 * * 5,6,0,1"),
        ("0 9 * * 7-2", "0 9 * * 0-2"),
        ("0 9 * jan-mar *", "0 9 * 1-3 *"),
        ("0 9 * * ?", "0 9 * * *"),
        ("0 9 ? * 1", "0 9 * * 1"),
        ("*/1 */1 */1 */1 */1", "* * * * *"),
        ("0 0 9 * * *", "0 9 * * *"),
        ("  0\t9  * *   * ", "0 9 * * *"),
        ("00 09 01 * *", "0 9 1 * *"),
        ("5/15 * * * *", "5,20,35,50 * * * *"),
        ("5/15 * * * *", "5-59/15 * * * *"),
        ("1,1,2,1 * * * *", "1,2 * * * *"),
        ("* * * * *", "*,5 * * * *"),
        ("0-59/10 30 2 * * *", "*/10 30 2 * * *"),
        ("0 0 1 1-12 *", "0 0 1 * *"),
        ("0 0 l * *", "0 0 L * *"),
        ("0 0 lw,l-0 * *", "0 0 L,LW * *"),
        ("0 0 * * FRIl", "0 0 * * 5L"),
        ("0 0 * * 7#2", "0 0 * * sun#2"),
        ("0 0 *,L * *", "0 0 * * *"),
        ("0 0 * * 5,5#3,5L", "0 0 * * 5"),
        ("@daily", "0 0 * * *"),
        ("@Midnight", "@daily"),
        ("@annually", "@yearly"),
        ("h H * * *", "H H * * *"),
        ("5,H * * * *", "H,5 * * * *"),
        ("H/15,H,H * * * *", "H,h/015 * * * *"),
        ("0 0 * * H,mon", "0 0 * * 1,H"),
    ],
)
def test_equal_meaning_is_an_equal_trigger(one: str, other: str) -> None:
    assert read(one) == read(other)
    assert str(read(one)) == str(read(other))
    assert hash(read(one)) == hash(read(other))
    assert parse_trigger(one) == parse_trigger(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("* 5 * * *", "0-59 5 * * *"),  # a wildcard and a list differ when the clock changes
        ("0 * * * *", "0 0-23 * * *"),
        ("0 0 * * 1", "0 0 1-31 * 1"),  # both must match, or either
        ("H * * * *", "0 * * * *"),
        ("0 9 * * *", "0 9 * * * tz=Europe/Riga"),
        ("0 9 * * *", "0 9 * * * gap=skip"),
        ("0 9 * * *", "0 9 * * * repeat=both"),
        ("0 9 13 * 5", "0 9 13 * 5 days=both"),
        ("0 9 13 * *", "0 9 13 * 0-6 days=both"),  # as with either, 0-6 is not a *
        ("0 9 * * *", "0 9 * * * start=2026-01-01T00:00:00Z"),
        ("0 9 * * *", "0 9 * * * until=2026-01-01T00:00:00Z"),
    ],
)
def test_another_meaning_is_another_trigger(one: str, other: str) -> None:
    assert parse_trigger(one) != parse_trigger(other)
    assert str(parse_trigger(one)) != str(parse_trigger(other))


# -- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0 9 * * mon-fri tz=Europe/Berlin", "0 9 * * 1-5 tz=Europe/Berlin"),
        ("tz=Europe/Berlin 0 9 * * mon-fri", "0 9 * * 1-5 tz=Europe/Berlin"),
        ("@hourly", "0 * * * *"),
        ("0 0,12 1 */2 *", "0 0,12 1 */2 *"),
        ("*/20 */6 * * *", "*/20 */6 * * *"),
        ("0,20,40 0,6,12,18 * * *", "0-40/20 0-18/6 * * *"),
        ("0,30 0 * * * *", "*/30 0 * * * *"),
        ("5 0 * * *", "5 0 * * *"),
        ("0 5 0 * * *", "5 0 * * *"),
        ("1 5 0 * * *", "1 5 0 * * *"),
        ("1,2,3,7,10,13,50 * * * *", "1-3,7-13/3,50 * * * *"),
        ("0 0 15w,l,l-2,lw * fri#2,monl", "0 0 L,L-2,LW,15W * 5#2,1L"),
        ("0 0 ? * ?", "0 0 * * *"),
        ("0 9 * * * gap=shift repeat=first", "0 9 * * *"),
        ("0 9 * * * repeat=both gap=skip", "0 9 * * * gap=skip repeat=both"),
        ("0 * * * * gap=skip repeat=both", "0 * * * *"),
        ("0 * * * * gap=shift", "0 * * * * gap=shift"),
        ("0 0 13 * fri days=both", "0 0 13 * 5 days=both"),
        ("days=both 0 0 13 * fri tz=Asia/Tokyo", "0 0 13 * 5 tz=Asia/Tokyo days=both"),
        ("0 0 13 * fri days=either", "0 0 13 * 5"),
        ("0 0 * * fri days=both", "0 0 * * 5"),  # a * says it already
        ("0 0 13 * ? days=both", "0 0 13 * *"),
        ("0 0 */2 * fri days=both", "0 0 */2 * 5"),
        ("0 0 1-31 * fri days=both", "0 0 1-31 * 5 days=both"),
        ("@monthly days=both", "0 0 1 * *"),
        ("0 0 h * H days=both", "0 0 H * H days=both"),
        ("h H * * *", "H H * * *"),
        ("*/5,h 0 * * *", "*/5,H 0 * * *"),
        (
            "0 9 * * * start=2026-01-01T01:00+01:00 until=2027-01-01 tz=Europe/Berlin",
            "0 9 * * * tz=Europe/Berlin start=2026-01-01T00:00:00Z until=2026-12-31T23:00:00Z",
        ),
        ("every 90s", "every 1m30s"),
        ("EVERY 1h 30m", "every 1h30m"),
        ("@every 1h30m", "every 1h30m"),
        ("@Every 10s start=2026-01-01T00:00:00.500Z", "every 10s start=2026-01-01T00:00:00.500Z"),
        ("at 2026-03-01T09:00+01:00", "at 2026-03-01T08:00:00Z"),
        ("At 2026-03-01 09:00 tz=Europe/Berlin", "at 2026-03-01T08:00:00Z"),
    ],
)
def test_a_text_has_a_canonical_form(text: str, canonical: str) -> None:
    assert str(parse_trigger(text)) == canonical
    assert parse_trigger(canonical) == parse_trigger(text)


@given(trigger=strategies.triggers)
@settings(max_examples=examples(600))
def test_the_text_of_a_trigger_reads_back_as_the_trigger(trigger: Trigger) -> None:
    again = parse_trigger(str(trigger))
    assert again == trigger
    assert hash(again) == hash(trigger)
    assert str(again) == str(trigger)


def test_the_longest_canonical_texts_read_back() -> None:
    # As irregular as sixty bits can be: no three in a row and no pattern.
    values = [n for n in range(60) if n % 3 != 2]
    dates = ",".join(
        ["1,2,4,5,7,8,10,11,13,14", *(f"L-{n}" for n in range(31)), *(f"{n}W" for n in range(1, 32))]
    )
    weekdays = ",".join(f"{day}#{nth}" for day in range(7) for nth in range(1, 6))
    listed = ",".join(map(str, values))
    text = f"{listed} {listed} 0-23 {dates} 1,2,4,5,7 {weekdays}"
    trigger = read(
        text,
        tz="America/Argentina/ComodRivadavia",
        gap="skip",
        repeat="both",
        days="both",
        start="2026-01-01T00:00:00.001Z",
        until="2099-01-01T00:00:00.001Z",
    )
    assert parse_trigger(str(trigger)) == trigger


def test_a_text_with_hashes_that_would_outgrow_the_limit_is_refused() -> None:
    steps = ",".join(f"H/{n}" for n in range(1, 60))
    text = f"{steps} {steps},0/3,1/3 {','.join(f'H/{n}' for n in range(1, 24))},0/3,1/3 * * *"
    assert len(text) < 1000
    with pytest.raises(InvalidTrigger, match="characters long"):
        cron(text)


def test_the_every_macro_is_an_interval() -> None:
    assert cron("@every 10s") == every("10s")
    assert cron("@EVERY  1h30m ") == every("90m")
    start = "2026-03-01 09:00"
    assert cron("@every 1h", tz="Europe/Riga", start=start) == every("1h", start="2026-03-01T09:00+02:00")
    assert isinstance(parse_trigger("@every 5m until=2026-03-01T00:00:00Z"), Every)


# -- H --------------------------------------------------------------------------------------------


def bound(text: str, name: str) -> str:
    return str(read(text).bind(name, 0))


def test_a_hash_stays_visible_until_it_is_bound_to_a_name() -> None:
    trigger = read("H H * * *")
    assert str(trigger) == "H H * * *"
    assert "H" not in str(trigger.bind("report", 0))


def test_the_value_of_a_hash_never_changes() -> None:
    # Stored schedules rely on it: a release that changes these moves everybody's jobs.
    assert bound("H H * * *", "report") == "35 3 * * *"
    assert bound("H H * * *", "backup") == "9 8 * * *"
    assert bound("H/15 * * * *", "report") == "5-50/15 * * * *"
    assert bound("H H H H H", "nightly") == "59 0 22 4 5"


def test_a_bound_trigger_stays_as_it_is() -> None:
    trigger = read("H H * * *", tz="Europe/Riga", repeat="last").bind("report", 0)
    assert trigger.bind("another", 0) is trigger
    assert trigger.zone.key == "Europe/Riga"
    assert trigger.repeat == "last"
    plain = read("0 9 * * *")
    assert plain.bind("report", 5) is plain


def test_hashes_spread_over_the_whole_range_and_stay_in_it() -> None:
    names = [f"job-{n}" for n in range(2000)]
    minutes = [int(bound("H 0 * * *", name).split()[0]) for name in names]
    assert set(minutes) == set(range(60))
    assert max(minutes.count(minute) for minute in range(60)) < 65  # 33 are expected
    assert {int(bound("0 H * * *", name).split()[1]) for name in names} == set(range(24))
    # Days 29 to 31 would leave out a month.
    assert {int(bound("0 0 H * *", name).split()[2]) for name in names} == set(range(1, 29))
    assert {int(bound("0 0 1 H *", name).split()[3]) for name in names} == set(range(1, 13))
    assert {int(bound("0 0 * * H", name).split()[4]) for name in names} == set(range(7))


def test_two_fields_of_a_name_are_hashed_apart() -> None:
    pairs = {bound("H H * * *", f"job-{n}") for n in range(2000)}
    assert len(pairs) > 1000  # of 1440: were they tied, there would be 120


@pytest.mark.parametrize("step", [1, 2, 7, 15, 28, 29, 30, 31])
def test_a_hashed_step_keeps_its_distance_and_its_range(step: int) -> None:
    for n in range(200):
        days = read(f"0 0 H/{step} * *").bind(f"job-{n}", 0).expression.days.dom
        values = [day for day in range(1, 32) if days >> day & 1]
        assert 1 <= values[0] <= min(step, 28)
        assert values[-1] <= 28
        assert values == list(range(values[0], 29, step))


def test_a_hashed_day_exists_in_every_month() -> None:
    for n in range(300):
        assert read("0 0 H/31 2 *").bind(f"job-{n}", 0).next_ms(0) is not None


# -- values ---------------------------------------------------------------------------------------


@given(trigger=strategies.triggers)
@settings(max_examples=examples(200))
def test_triggers_are_values(trigger: Trigger) -> None:
    for twin in (pickle.loads(pickle.dumps(trigger)), copy.copy(trigger), copy.deepcopy(trigger)):  # noqa: S301
        assert twin == trigger
        assert hash(twin) == hash(trigger)
        assert str(twin) == str(trigger)
        assert twin.next_ms(0) == trigger.next_ms(0)
    assert len({trigger, copy.deepcopy(trigger)}) == 1


@pytest.mark.parametrize(
    "trigger", [cron("0 9 * * *"), every("10m"), at("2026-03-01T09:00:00Z")], ids=["cron", "every", "at"]
)
def test_triggers_do_not_change(trigger: Trigger) -> None:
    for field in trigger.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(trigger, field, 0)


def test_triggers_of_different_kinds_differ() -> None:
    moment = "2026-03-01T09:00:00Z"
    kinds: list[Trigger] = [cron("0 9 * * *"), every(0, start=moment), at(moment)]
    assert len(set(kinds)) == 3
