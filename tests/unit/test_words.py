# ruff: noqa: E501 (tables read better unbroken)
"""Triggers in English: sentences that a person can hold against what was meant."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings

from evenbeat import Cron, InvalidTrigger, Trigger, at, cron, every
from tests.lengths import examples
from tests.unit import strategies

CRON = """
* * * * *                 | every minute
*/5 * * * *               | every 5 minutes
0,30 * * * *              | every 30 minutes
*/7 * * * *               | every 7 minutes from :00 to :56 of every hour
0-10 * * * *              | every minute from :00 to :10 of every hour
0 * * * *                 | every hour, on the hour
15 * * * *                | every hour at :15
7/20 * * * *              | every hour at :07, :27 and :47
1-59/2 * * * *            | every 2 minutes, starting at 00:01
1,2,3,7,10,50 * * * *     | every hour at :01 to :03, :07, :10 and :50
0 9 * * *                 | at 09:00 every day
0 9,17 * * *              | at 09:00 and 17:00 every day
0,15,30,45 9 * * *        | at 09:00, 09:15, 09:30 and 09:45 every day
0 8,10,12,13,15,17 * * *  | at 08:00, 10:00, 12:00, 13:00, 15:00 and 17:00 every day
*/10 9 * * *              | every 10 minutes from 09:00 to 09:50 every day
*/10 9-17 * * *           | every 10 minutes from 09:00 to 17:50 every day
5,35 9-17 * * *           | every 30 minutes from 09:05 to 17:35 every day
*/7 9-17 * * *            | every 7 minutes from :00 to :56 of every hour from 09:00 to 17:59 every day
* 2 * * *                 | every minute from 02:00 to 02:59 every day
0 9-17 * * *              | every hour from 09:00 to 17:00 every day
30 9-17 * * 1-5           | every hour from 09:30 to 17:30, Monday to Friday
0 */2 * * *               | every 2 hours, on the hour
30 */2 * * *              | every 2 hours, starting at 00:30
0 */5 * * *               | every 5 hours from 00:00 to 20:00 every day
23 0-20/2 * * *           | every 2 hours from 00:23 to 20:23 every day
*/15 */6 * * *            | every 15 minutes in the hours 00, 06, 12 and 18 every day
*/20 */2 * * *            | every 20 minutes in every 2nd hour from 00 to 22 every day
5,35 1,4,9,13,20 * * *    | at :05 and :35 in the hours 01, 04, 09, 13 and 20 every day
1,2,3,7,10,13,50 0 * * *  | at 00:01 to 00:03, 00:07, 00:10, 00:13 and 00:50 every day
*/10 22-5 * * *           | every 10 minutes from 22:00 to 05:50 every day
*/10 22-5 * * fri         | every 10 minutes in the hours 00 to 05, 22 and 23 on Fridays
0 9 * * 1-5               | at 09:00, Monday to Friday
0 9 * * mon               | at 09:00 on Mondays
0 9 * * 6,0               | at 09:00 on Saturdays and Sundays
0 9 * * 1,3,5             | at 09:00 on Mondays, Wednesdays and Fridays
0 9 * * fri-mon           | at 09:00, Friday to Monday
*/5 * * * 1-5             | every 5 minutes, Monday to Friday
0 0 1 * *                 | at 00:00 on the 1st of the month
0 0 1,15 * *              | at 00:00 on the 1st and 15th of the month
0 0 1-7,15-21 * *         | at 00:00 on the 1st to 7th and 15th to 21st of the month
0 0 */2 * *               | at 00:00 on every 2nd day from the 1st to the 31st of the month
0 0 3-30/3 * *            | at 00:00 on every 3rd day from the 3rd to the 30th of the month
0 0 L * *                 | at 00:00 on the last day of the month
0 0 L-1 * *               | at 00:00 on the day before the last day of the month
0 0 L-3 * *               | at 00:00 on the 3rd day before the last day of the month
0 0 LW * *                | at 00:00 on the last weekday (Mon-Fri) of the month
0 0 15W * *               | at 00:00 on the weekday (Mon-Fri) nearest to the 15th of the month
0 0 1,L * *               | at 00:00 on the 1st and the last day of the month
0 0 * * 5#3               | at 00:00 on the third Friday of the month
0 0 * * 5L                | at 00:00 on the last Friday of the month
0 0 * * 1#1,3#1           | at 00:00 on the first Monday and the first Wednesday of the month
0 0 * * 1,5L              | at 00:00 on Mondays and the last Friday of the month
0 0 1 1 *                 | at 00:00 on the 1st of January
0 0 29 2 *                | at 00:00 on the 29th of February
0 0 L 2 *                 | at 00:00 on the last day of February
0 0 1 */3 *               | at 00:00 on the 1st of January, April, July and October
0 0,12 1 */2 *            | at 00:00 and 12:00 on the 1st of the month in January, March, May, July, September and November
0 9 15 3-11 *             | at 09:00 on the 15th of the month from March to November
0 0 * 12 *                | at 00:00 every day in December
0 0 * 6-8 *               | at 00:00 every day from June to August
0 0 * nov-feb *           | at 00:00 every day from November to February
*/5 * * 1,7 *             | every 5 minutes in January and July
0 9 * 1,3 1-5             | at 09:00, Monday to Friday in January and March
0 9 * 6 mon#1             | at 09:00 on the first Monday of June
0 0 13 * 5                | at 00:00 on the 13th of the month and also on Fridays
0 0 13 * 1,3,5            | at 00:00 on the 13th of the month and also on Mondays, Wednesdays and Fridays
0 0 1 6 1-5               | at 00:00 on the 1st of June and also Monday to Friday in June
0 0 L * 5#1               | at 00:00 on the last day of the month and also on the first Friday of the month
0 0 */2 * 1               | at 00:00 on Mondays, but only on every 2nd day from the 1st to the 31st of the month
0 0 1-7 * */7             | at 00:00 on Sundays, but only on the 1st to 7th of the month
0 0 1-31 * 1              | at 00:00 every day
@hourly                   | every hour, on the hour
@daily                    | at 00:00 every day
@weekly                   | at 00:00 on Sundays
@monthly                  | at 00:00 on the 1st of the month
@yearly                   | at 00:00 on the 1st of January
* * * * * *               | every second
*/10 * * * * *            | every 10 seconds
30 * * * * *              | every minute at second 30
30 */5 * * * *            | every 5 minutes at second 30
15 30 9 * * *             | at 09:30:15 every day
* 30 2 * * *              | every second from 02:30 to 02:30:59 every day
*/20 30 2 * * *           | at 02:30, 02:30:20 and 02:30:40 every day
* * 9 * * *               | every second from 09:00 to 09:59:59 every day
*/5 * 9-17 * * 1-5        | every 5 seconds from 09:00 to 17:59:55, Monday to Friday
10,20,40 * * * * *        | at seconds 10, 20 and 40 of every minute
10,20,40 1,2,9 * * * *    | at seconds 10, 20 and 40 of the minutes :01, :02 and :09 of every hour
*/10 */5 * * * *          | every 10 seconds of every 5th minute from :00 to :55 of every hour
"""
ROWS = [tuple(cell.strip() for cell in line.split("|")) for line in CRON.strip().splitlines()]


BOTH_DAYS = """
0 0 13 * 5                | at 00:00 on Fridays, but only on the 13th of the month
0 9 1-7 * mon             | at 09:00 on Mondays, but only on the 1st to 7th of the month
0 0 L * 1-5               | at 00:00, Monday to Friday, but only on the last day of the month
0 0 13 1,7 5              | at 00:00 on Fridays, but only on the 13th of January and July
0 0 1-31 * 1              | at 00:00 on Mondays
0 0 13 * 0-6              | at 00:00 on the 13th of the month
0 0 13 * *                | at 00:00 on the 13th of the month
*/5 * 13 * 5              | every 5 minutes on Fridays, but only on the 13th of the month
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [tuple(cell.strip() for cell in line.split("|")) for line in BOTH_DAYS.strip().splitlines()],
)
def test_days_that_must_match_both_fields_in_words(text: str, sentence: str) -> None:
    assert cron(text, days="both").explain() == f"{sentence} (UTC)"


@pytest.mark.parametrize(("text", "sentence"), ROWS)
def test_cron_in_words(text: str, sentence: str) -> None:
    assert cron(text).explain() == f"{sentence} (UTC)"


@pytest.mark.parametrize(
    ("options", "clause"),
    [
        ({}, "a time that the clock skips or repeats runs once"),
        (
            {"gap": "skip"},
            "a time that the clock skips does not run, one that it repeats runs the first time",
        ),
        (
            {"repeat": "last"},
            "a time that the clock skips runs right after, one that it repeats runs the second time",
        ),
        (
            {"gap": "skip", "repeat": "both"},
            "a time that the clock skips does not run, one that it repeats runs twice",
        ),
    ],
)
def test_the_rule_for_changes_of_the_clock_is_a_clause(options: dict[str, str], clause: str) -> None:
    trigger = cron("30 2 * * *", tz="Europe/Berlin", **options)  # type: ignore[arg-type]
    assert trigger.explain() == f"at 02:30 every day (Europe/Berlin); {clause}"


def test_wildcards_follow_real_time() -> None:
    words = cron("*/5 * * * *", tz="Europe/Berlin").explain()
    assert words == "every 5 minutes (Europe/Berlin); follows real time when the clock changes"


def test_a_zone_without_changes_needs_no_rule() -> None:
    assert cron("0 9 * * *", tz="Etc/GMT-3").explain() == "at 09:00 every day (Etc/GMT-3)"
    # India last changed its clock in 1945.
    assert cron("0 9 * * *", tz="Asia/Kolkata").explain() == "at 09:00 every day (Asia/Kolkata)"


def test_bounds_are_shown_on_the_clock_of_the_zone() -> None:
    trigger = cron("0 9 * * *", tz="Asia/Tokyo", start="2026-01-01", until="2026-12-31T18:00:00Z")
    assert trigger.explain().startswith(
        "at 09:00 every day (Asia/Tokyo), from 2026-01-01T00:00:00+09:00, until 2027-01-01T03:00:00+09:00"
    )
    utc = cron("0 9 * * *", start="2026-01-01")
    assert utc.explain() == "at 09:00 every day (UTC), from 2026-01-01T00:00:00Z"


def test_a_hash_is_explained_by_an_example_until_it_has_a_name() -> None:
    trigger = cron("H H * * *")
    assert trigger.explain() == "for example at 04:19 every day (UTC); H is chosen by the schedule's name"
    assert trigger.bind("report", 0).explain() == "at 03:35 every day (UTC)"


@pytest.mark.parametrize(
    ("trigger", "sentence"),
    [
        (every("10m", start="2026-01-01T00:00Z"), "every 10 minutes, from 2026-01-01T00:00:00Z"),
        (every("1h", start="2026-01-01T00:00Z"), "every hour, from 2026-01-01T00:00:00Z"),
        (
            every("1d", start="2026-01-01T00:00Z", until="2026-02-01T00:00Z"),
            "every day, from 2026-01-01T00:00:00Z, until 2026-02-01T00:00:00Z",
        ),
        (every("2w"), "every 2 weeks, counted from 1970-01-01T00:00:00Z"),
        (every("90m"), "every 90 minutes, counted from 1970-01-01T00:00:00Z"),
        (every("1h1m1s"), "every 1h1m1s, counted from 1970-01-01T00:00:00Z"),
        (every("1500ms"), "every 1s500ms, counted from 1970-01-01T00:00:00Z"),
        (every("1ms"), "every millisecond, counted from 1970-01-01T00:00:00Z"),
        (every("3650d"), "every 3,650 days, counted from 1970-01-01T00:00:00Z"),
        (
            every("10m", until="2026-02-01T00:00Z"),
            "every 10 minutes, counted from 1970-01-01T00:00:00Z, until 2026-02-01T00:00:00Z",
        ),
        (every(0, start="2026-01-01T00:00Z"), "once, at 2026-01-01T00:00:00Z"),
        (at("2026-03-01T09:00:00+01:00"), "once, at 2026-03-01T08:00:00Z"),
    ],
)
def test_intervals_and_instants_in_words(trigger: Trigger, sentence: str) -> None:
    assert trigger.explain() == sentence


@given(trigger=strategies.triggers)
@settings(max_examples=examples(300))
def test_every_trigger_has_a_sentence_of_one_line(trigger: Trigger) -> None:
    sentence = trigger.explain()
    assert sentence.isprintable()
    assert "  " not in sentence
    assert " ," not in sentence
    assert sentence == sentence.strip()


POOLS = [
    ["0", "0", "0", "*", "30", "*/10", "0-59/7", "5,10", "1-9", "10,20,40"],
    [
        "*",
        "0",
        "15",
        "*/5",
        "*/7",
        "0-10",
        "5,35",
        "1-59/2",
        "3,4,5,9",
        "0-59",
        "7/20",
        "0,1",
        "30-59",
        "*/40",
    ],
    [
        "*",
        "0",
        "9",
        "9-17",
        "*/2",
        "*/5",
        "22-2",
        "1,4,9",
        "0-20/2",
        "0-23",
        "9,17",
        "1-23/2",
        "9-12,14-18",
        "*/12",
    ],
    ["*", "1", "1,15", "1-7", "*/2", "2-30/2", "L", "L-3", "LW", "15W", "1,L", "1-31", "5-9,L,LW", "*/10"],
    ["*", "*", "1", "6-8", "*/3", "*/2", "nov-feb", "3-11", "1,7", "1-12", "1-5,7,9"],
    ["*", "*", "1", "1-5", "6,0", "1,3,5", "5#3", "5L", "fri-mon", "0-6", "1,5L", "1#1,3#1", "*/2", "*/7"],
]


def matches(trigger: Cron) -> tuple[int, ...]:
    """What an expression matches: the times of a day, and the days of a month of every kind."""
    expression = trigger.expression
    days = expression.days
    kinds = [days.pattern(first, length) for first in range(7) for length in (28, 29, 30, 31)]
    return (expression.seconds, expression.minutes, expression.hours, days.months, *kinds)


def test_two_triggers_of_one_sentence_tick_at_the_same_times() -> None:
    source = random.Random(1)
    texts: dict[str, tuple[str, tuple[int, ...]]] = {}
    tries = examples(8_000)
    for _ in range(tries):
        text = " ".join(source.choice(pool) for pool in POOLS)
        try:
            trigger = cron(text)
        except InvalidTrigger:
            continue
        assert isinstance(trigger, Cron)
        other, times = texts.setdefault(trigger.explain(), (text, matches(trigger)))
        assert matches(trigger) == times, f"{text} and {other}: {trigger.explain()}"
    assert len(texts) > tries // 2
