# ruff: noqa: E501 (tables read better unbroken)
"""What a change of the clock does to cron: tables reasoned by hand, each read forwards and backwards.

New York   2026-03-08  02:00 -0500 becomes 03:00 -0400    2026-11-01  02:00 -0400 becomes 01:00 -0500
Riga       2026-03-29  03:00 +0200 becomes 04:00 +0300    2026-10-25  04:00 +0300 becomes 03:00 +0200
Lord Howe  2026-10-04  02:00 +1030 becomes 02:30 +1100    2026-04-05  02:00 +1100 becomes 01:30 +1030
Santiago   2026-09-06  00:00 -0400 becomes 01:00 -0300    2026-04-05  00:00 -0300 becomes 04-04 23:00 -0400
Amman      2021-03-26  00:00 +0200 becomes 01:00 +0300    2021-10-29  01:00 +0300 becomes 00:00 +0200
Casablanca 2026-03-22  02:00 +0000 becomes 03:00 +0100    2026-02-15  03:00 +0100 becomes 02:00 +0000
Apia       2011-12-30  00:00 -1000 becomes 12-31 00:00 +1400: there was no 30 December
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from evenbeat import Cron, InvalidTrigger, parse_trigger

ZONES = {
    "New York": "America/New_York",
    "Riga": "Europe/Riga",
    "Lord Howe": "Australia/Lord_Howe",
    "Santiago": "America/Santiago",
    "Amman": "Asia/Amman",
    "Casablanca": "Africa/Casablanca",
    "Apia": "Pacific/Apia",
}

GAPS = """
# a fixed time in the gap runs once, right after it, and at its own time the next day
30 2 * * *          | New York   | 2026-03-07 03:00 -0500 | 03-08 03:00 -0400, 03-09 02:30 -0400
30 2 * * * gap=shift| New York   | 2026-03-07 03:00 -0500 | 03-08 03:00 -0400, 03-09 02:30 -0400
30 2 * * * gap=skip | New York   | 2026-03-07 03:00 -0500 | 03-09 02:30 -0400, 03-10 02:30 -0400
# the gap's first minute is in it, its end is not
0 2 * * *           | New York   | 2026-03-07 03:00 -0500 | 03-08 03:00 -0400, 03-09 02:00 -0400
0 3 * * *           | New York   | 2026-03-07 03:00 -0500 | 03-08 03:00 -0400, 03-09 03:00 -0400
59 1 * * *          | New York   | 2026-03-07 03:00 -0500 | 03-08 01:59 -0500, 03-09 01:59 -0400
# several in one gap run once, and a time at its end joins them
0,15,45 2 * * *     | New York   | 2026-03-07 03:00 -0500 | 03-08 03:00 -0400, 03-09 02:00 -0400
0-59 2 * * *        | New York   | 2026-03-07 03:00 -0500 | 03-08 03:00 -0400, 03-09 02:00 -0400
30 1-3 * * *        | New York   | 2026-03-08 00:00 -0500 | 03-08 01:30 -0500, 03-08 03:00 -0400, 03-08 03:30 -0400
0 2,3 * * *         | New York   | 2026-03-08 00:00 -0500 | 03-08 03:00 -0400, 03-09 02:00 -0400
0,30 2,3 * * * gap=skip | New York | 2026-03-08 00:00 -0500 | 03-08 03:00 -0400, 03-08 03:30 -0400, 03-09 02:00 -0400
# asked at the very second before, at and after the transition
30 2 * * *          | New York   | 2026-03-08 01:59:59 -0500 | 03-08 03:00 -0400
30 2 * * *          | New York   | 2026-03-08 03:00 -0400 | 03-09 02:30 -0400
30 2 * * *          | New York   | 2026-03-08 03:00:01 -0400 | 03-09 02:30 -0400
# a wildcard in hour or minute follows real time: what is skipped is gone
*/30 * * * *        | New York   | 2026-03-08 01:00 -0500 | 03-08 01:30 -0500, 03-08 03:00 -0400, 03-08 03:30 -0400
15 * * * *          | New York   | 2026-03-08 00:30 -0500 | 03-08 01:15 -0500, 03-08 03:15 -0400
0 */2 * * *         | New York   | 2026-03-07 23:00 -0500 | 03-08 00:00 -0500, 03-08 04:00 -0400
*/20 2 * * *        | New York   | 2026-03-07 03:00 -0500 | 03-09 02:00 -0400, 03-09 02:20 -0400
*/20 2 * * * gap=shift | New York | 2026-03-07 03:00 -0500 | 03-08 03:00 -0400, 03-09 02:00 -0400
0 0-23/2 * * *      | New York   | 2026-03-07 23:00 -0500 | 03-08 00:00 -0500, 03-08 03:00 -0400, 03-08 04:00 -0400
# a wildcard in the seconds alone is none
* 30 2 * * *        | New York   | 2026-03-07 03:00 -0500 | 03-08 03:00 -0400, 03-09 02:30 -0400, 03-09 02:30:01 -0400
*/20 30 2 * * * gap=skip | New York | 2026-03-07 03:00 -0500 | 03-09 02:30 -0400, 03-09 02:30:20 -0400
10 30 2 * * *       | New York   | 2026-03-07 03:00 -0500 | 03-08 03:00 -0400, 03-09 02:30:10 -0400
* * 2 * * *         | New York   | 2026-03-07 03:00 -0500 | 03-09 02:00 -0400, 03-09 02:00:01 -0400
# only the days that match: this gap is on a Sunday
30 2 * * 1-5        | New York   | 2026-03-06 03:00 -0500 | 03-09 02:30 -0400
30 2 * * sun        | New York   | 2026-03-06 03:00 -0500 | 03-08 03:00 -0400, 03-15 02:30 -0400
30 2 8 3 *          | New York   | 2026-01-01 00:00 -0500 | 03-08 03:00 -0400, 03-08 02:30 -0500
30 3 * * *          | Riga       | 2026-03-28 12:00 +0200 | 03-29 04:00 +0300, 03-30 03:30 +0300
30 3 * * * gap=skip | Riga       | 2026-03-28 12:00 +0200 | 03-30 03:30 +0300
30 2 * * *          | Casablanca | 2026-03-21 12:00 +0000 | 03-22 03:00 +0100, 03-23 02:30 +0100
15 2 * * * gap=skip | Casablanca | 2026-03-21 12:00 +0000 | 03-23 02:15 +0100
# half an hour
15 2 * * *          | Lord Howe  | 2026-10-03 12:00 +1030 | 10-04 02:30 +1100, 10-05 02:15 +1100
30 2 * * *          | Lord Howe  | 2026-10-03 12:00 +1030 | 10-04 02:30 +1100, 10-05 02:30 +1100
15,45 2 * * *       | Lord Howe  | 2026-10-03 12:00 +1030 | 10-04 02:30 +1100, 10-04 02:45 +1100, 10-05 02:15 +1100
15,45 2 * * * gap=skip | Lord Howe | 2026-10-03 12:00 +1030 | 10-04 02:45 +1100, 10-05 02:15 +1100
*/15 * * * *        | Lord Howe  | 2026-10-04 01:30 +1030 | 10-04 01:45 +1030, 10-04 02:30 +1100, 10-04 02:45 +1100
* 8 * * *           | Lord Howe  | 2026-10-03 12:00 +1030 | 10-04 08:00 +1100, 10-04 08:01 +1100
# midnight itself is skipped
0 0 * * *           | Santiago   | 2026-09-05 12:00 -0400 | 09-06 01:00 -0300, 09-07 00:00 -0300
0 0 * * * gap=skip  | Santiago   | 2026-09-05 12:00 -0400 | 09-07 00:00 -0300
0 0 * * sun         | Santiago   | 2026-09-05 12:00 -0400 | 09-06 01:00 -0300, 09-13 00:00 -0300
0 0 * * sat         | Santiago   | 2026-09-05 12:00 -0400 | 09-12 00:00 -0300
* * * * sun         | Santiago   | 2026-09-05 12:00 -0400 | 09-06 01:00 -0300, 09-06 01:01 -0300
@daily              | Amman      | 2021-03-25 12:00 +0200 | 03-26 01:00 +0300, 03-27 00:00 +0300
@hourly             | Amman      | 2021-03-25 22:30 +0200 | 03-25 23:00 +0200, 03-26 01:00 +0300
30 0 26 3 *         | Amman      | 2021-03-01 00:00 +0200 | 03-26 01:00 +0300
# a whole day is skipped, the last Friday of the year
0 12 * * *          | Apia       | 2011-12-29 00:00 -1000 | 12-29 12:00 -1000, 12-31 00:00 +1400, 12-31 12:00 +1400
0 12 * * * gap=skip | Apia       | 2011-12-29 00:00 -1000 | 12-29 12:00 -1000, 12-31 12:00 +1400
0 12 30 * *         | Apia       | 2011-12-01 00:00 -1000 | 12-31 00:00 +1400, 01-30 12:00 +1400
0 12 30 * * gap=skip| Apia       | 2011-12-01 00:00 -1000 | 01-30 12:00 +1400
0 0 * * fri         | Apia       | 2011-12-29 00:00 -1000 | 12-31 00:00 +1400, 01-06 00:00 +1400
0 */6 * * *         | Apia       | 2011-12-29 12:00 -1000 | 12-29 18:00 -1000, 12-31 00:00 +1400, 12-31 06:00 +1400
0,30 0-23 * * *     | Apia       | 2011-12-29 23:00 -1000 | 12-29 23:30 -1000, 12-31 00:00 +1400, 12-31 00:30 +1400
"""

REPEATS = """
# a fixed time in the repeated hour runs in the first pass, the second, or both
30 1 * * *              | New York | 2026-10-31 12:00 -0400 | 11-01 01:30 -0400, 11-02 01:30 -0500
30 1 * * * repeat=first | New York | 2026-10-31 12:00 -0400 | 11-01 01:30 -0400, 11-02 01:30 -0500
30 1 * * * repeat=last  | New York | 2026-10-31 12:00 -0400 | 11-01 01:30 -0500, 11-02 01:30 -0500
30 1 * * * repeat=both  | New York | 2026-10-31 12:00 -0400 | 11-01 01:30 -0400, 11-01 01:30 -0500, 11-02 01:30 -0500
# its first minute comes twice, its end once
0 1 * * *               | New York | 2026-10-31 12:00 -0400 | 11-01 01:00 -0400, 11-02 01:00 -0500
0 1 * * * repeat=last   | New York | 2026-10-31 12:00 -0400 | 11-01 01:00 -0500, 11-02 01:00 -0500
0 2 * * *               | New York | 2026-10-31 12:00 -0400 | 11-01 02:00 -0500, 11-02 02:00 -0500
59 0 * * * repeat=both  | New York | 2026-10-31 12:00 -0400 | 11-01 00:59 -0400, 11-02 00:59 -0500
# several times
0,30 1,2 * * *          | New York | 2026-10-31 12:00 -0400 | 11-01 01:00 -0400, 11-01 01:30 -0400, 11-01 02:00 -0500, 11-01 02:30 -0500
0,30 1,2 * * * repeat=last | New York | 2026-10-31 12:00 -0400 | 11-01 01:00 -0500, 11-01 01:30 -0500, 11-01 02:00 -0500
0,30 1 * * * repeat=both | New York | 2026-10-31 12:00 -0400 | 11-01 01:00 -0400, 11-01 01:30 -0400, 11-01 01:00 -0500, 11-01 01:30 -0500
# asked between the passes, and in the second
30 1 * * *              | New York | 2026-11-01 01:45 -0400 | 11-02 01:30 -0500
30 1 * * *              | New York | 2026-11-01 01:10 -0500 | 11-02 01:30 -0500
30 1 * * * repeat=last  | New York | 2026-11-01 01:45 -0400 | 11-01 01:30 -0500
30 1 * * * repeat=last  | New York | 2026-11-01 01:10 -0400 | 11-01 01:30 -0500
30 1 * * * repeat=both  | New York | 2026-11-01 01:30 -0400 | 11-01 01:30 -0500
30 1 * * * repeat=both  | New York | 2026-11-01 01:30 -0500 | 11-02 01:30 -0500
# a wildcard in hour or minute follows real time: both passes
*/30 * * * *            | New York | 2026-11-01 00:30 -0400 | 11-01 01:00 -0400, 11-01 01:30 -0400, 11-01 01:00 -0500, 11-01 01:30 -0500, 11-01 02:00 -0500
15 * * * *              | New York | 2026-11-01 00:30 -0400 | 11-01 01:15 -0400, 11-01 01:15 -0500, 11-01 02:15 -0500
*/30 1 * * *            | New York | 2026-11-01 00:30 -0400 | 11-01 01:00 -0400, 11-01 01:30 -0400, 11-01 01:00 -0500, 11-01 01:30 -0500, 11-02 01:00 -0500
*/30 1 * * * repeat=first | New York | 2026-11-01 00:30 -0400 | 11-01 01:00 -0400, 11-01 01:30 -0400, 11-02 01:00 -0500
15 * * * * repeat=last  | New York | 2026-11-01 00:10 -0400 | 11-01 00:15 -0400, 11-01 01:15 -0500, 11-01 02:15 -0500
# seconds
*/30 30 1 * * *         | New York | 2026-11-01 00:30 -0400 | 11-01 01:30 -0400, 11-01 01:30:30 -0400, 11-02 01:30 -0500
*/30 30 1 * * * repeat=last | New York | 2026-11-01 00:30 -0400 | 11-01 01:30 -0500, 11-01 01:30:30 -0500, 11-02 01:30 -0500
# half an hour
45 1 * * *              | Lord Howe  | 2026-04-04 12:00 +1100 | 04-05 01:45 +1100, 04-06 01:45 +1030
45 1 * * * repeat=last  | Lord Howe  | 2026-04-04 12:00 +1100 | 04-05 01:45 +1030, 04-06 01:45 +1030
15,45 1 * * * repeat=both | Lord Howe | 2026-04-04 12:00 +1100 | 04-05 01:15 +1100, 04-05 01:45 +1100, 04-05 01:45 +1030, 04-06 01:15 +1030
0 * * * *               | Lord Howe  | 2026-04-05 00:30 +1100 | 04-05 01:00 +1100, 04-05 02:00 +1030
*/15 * * * *            | Lord Howe  | 2026-04-05 01:30 +1100 | 04-05 01:45 +1100, 04-05 01:30 +1030, 04-05 01:45 +1030, 04-05 02:00 +1030
# the hour before midnight comes twice: both are Saturday
30 23 * * *             | Santiago   | 2026-04-04 12:00 -0300 | 04-04 23:30 -0300, 04-05 23:30 -0400
30 23 * * * repeat=last | Santiago   | 2026-04-04 12:00 -0300 | 04-04 23:30 -0400, 04-05 23:30 -0400
30 23 * * sat repeat=both | Santiago | 2026-04-04 12:00 -0300 | 04-04 23:30 -0300, 04-04 23:30 -0400, 04-11 23:30 -0400
0 0 * * *               | Santiago   | 2026-04-04 12:00 -0300 | 04-05 00:00 -0400, 04-06 00:00 -0400
# midnight comes twice
0 0 * * *               | Amman      | 2021-10-28 12:00 +0300 | 10-29 00:00 +0300, 10-30 00:00 +0200
0 0 * * * repeat=both   | Amman      | 2021-10-28 12:00 +0300 | 10-29 00:00 +0300, 10-29 00:00 +0200, 10-30 00:00 +0200
@daily repeat=last      | Amman      | 2021-10-28 12:00 +0300 | 10-29 00:00 +0200, 10-30 00:00 +0200
# Ramadan begins
30 2 * * *              | Casablanca | 2026-02-14 12:00 +0100 | 02-15 02:30 +0100, 02-16 02:30 +0000
30 2 * * * repeat=last  | Casablanca | 2026-02-14 12:00 +0100 | 02-15 02:30 +0000, 02-16 02:30 +0000
@hourly                 | Casablanca | 2026-02-15 01:30 +0100 | 02-15 02:00 +0100, 02-15 02:00 +0000, 02-15 03:00 +0000
30 3 * * *              | Riga       | 2026-10-24 12:00 +0300 | 10-25 03:30 +0300, 10-26 03:30 +0200
30 3 * * * repeat=last  | Riga       | 2026-10-24 12:00 +0300 | 10-25 03:30 +0200, 10-26 03:30 +0200
"""


def rows(table: str) -> list[tuple[str, str, str, list[str]]]:
    found = []
    for line in table.strip().splitlines():
        if not line.startswith("#"):
            text, city, start, ticks = (cell.strip() for cell in line.split("|"))
            found.append((text, city, start, [tick.strip() for tick in ticks.split(",")]))
    return found


def written(tick: datetime | None) -> str:
    assert tick is not None
    return tick.strftime("%m-%d %H:%M:%S %z" if tick.second else "%m-%d %H:%M %z")


def moment(text: str, zone: ZoneInfo) -> datetime:
    form = "%Y-%m-%d %H:%M:%S %z" if text.count(":") == 2 else "%Y-%m-%d %H:%M %z"
    return datetime.strptime(text, form).astimezone(zone)


def read(text: str, city: str) -> Cron:
    trigger = parse_trigger(f"{text} tz={ZONES[city]}")
    assert isinstance(trigger, Cron)
    return trigger


@pytest.mark.parametrize(("text", "city", "start", "ticks"), [*rows(GAPS), *rows(REPEATS)])
def test_a_change_of_the_clock_gives_these_ticks(text: str, city: str, start: str, ticks: list[str]) -> None:
    trigger = read(text, city)
    begin = at = moment(start, ZoneInfo(ZONES[city]))
    found: list[datetime] = []
    while len(found) < len(ticks):
        following = trigger.next(at)
        assert following is not None
        found.append(following)
        at = following
    assert [written(tick) for tick in found] == ticks
    within = [tick.timestamp() for tick in trigger.between(begin, found[-1])]
    assert [tick for tick in within if tick != begin.timestamp()] == [tick.timestamp() for tick in found[:-1]]
    backwards = [found[-1]]
    while (before := trigger.prev(backwards[-1])) is not None and before.timestamp() > begin.timestamp():
        backwards.append(before)
    assert [written(tick) for tick in reversed(backwards)] == ticks


def test_nothing_happens_to_a_zone_without_changes() -> None:
    for key in ("UTC", "Etc/GMT+5", "Asia/Kolkata"):
        for options in ("", "gap=skip", "repeat=both", "repeat=last gap=shift"):
            trigger = parse_trigger(f"30 2 * * * tz={key} {options}")
            begin = datetime(2026, 3, 1, tzinfo=ZoneInfo(key))
            found = list(trigger.between(begin, datetime(2026, 12, 1, tzinfo=ZoneInfo(key))))
            assert {tick.strftime("%H:%M") for tick in found} == {"02:30"}
            assert len(found) == 275


@pytest.mark.parametrize(
    ("text", "city", "tick", "note"),
    [
        (
            "30 2 * * *",
            "New York",
            "2026-03-08 03:00 -0400",
            "02:30 does not exist on this day: the clock goes from 02:00 to 03:00",
        ),
        (
            "15 2 * * *",
            "Lord Howe",
            "2026-10-04 02:30 +1100",
            "02:15 does not exist on this day: the clock goes from 02:00 to 02:30",
        ),
        (
            "0 0 * * *",
            "Santiago",
            "2026-09-06 01:00 -0300",
            "00:00 does not exist on this day: the clock goes from 00:00 to 01:00",
        ),
        ("30 1 * * *", "New York", "2026-11-01 01:30 -0400", "01:30 comes twice on this day: first pass"),
        (
            "30 1 * * * repeat=last",
            "New York",
            "2026-11-01 01:30 -0500",
            "01:30 comes twice on this day: second pass",
        ),
        ("0 3 * * *", "New York", "2026-03-08 03:00 -0400", None),
        ("*/30 * * * *", "New York", "2026-03-08 03:00 -0400", None),
        ("0 2,3 * * * gap=skip", "New York", "2026-03-08 03:00 -0400", None),
        ("0 2 * * *", "New York", "2026-11-01 02:00 -0500", None),
        ("0 2 * * *", "New York", "2026-06-01 02:00 -0400", None),
    ],
)
def test_a_note_says_what_the_change_did_to_a_tick(text: str, city: str, tick: str, note: str | None) -> None:
    trigger = read(text, city)
    at = moment(tick, ZoneInfo(ZONES[city]))
    assert at in list(trigger.between(at, at.replace(year=at.year + 1)))[:1]
    assert trigger.note(int(at.timestamp()) * 1000) == note


def test_a_time_that_the_clock_always_skips_is_refused_with_gap_skip() -> None:
    with pytest.raises(InvalidTrigger) as refused:
        parse_trigger("30 2 * 3 sun#2 tz=America/New_York gap=skip")
    assert str(refused.value) == (
        '"30 2 * 3 sun#2 tz=America/New_York gap=skip" never matches in America/New_York with gap="skip": the clock always skips '
        'that time; use gap="shift" to run right after the gap'
    )
    assert refused.value.field == "gap"
