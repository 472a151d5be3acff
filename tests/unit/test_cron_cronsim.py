"""Cron against cronsim 2.8, which follows Debian's cron: thousands of texts, eight zones.

Where the two differ on purpose, the difference has a name and a reason here (and a line in
docs/cron.md), and our answer is checked against the reference instead. Anything else must agree.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError

from evenbeat import Cron, InvalidTrigger, cron
from tests.lengths import examples, some
from tests.unit import reference
from tests.unit.strategies import ZONES

_COMMON = """
* * * * * | */2 * * * * | */5 * * * * | */7 * * * * | */10 * * * * | */15 * * * * | */30 * * * *
0 * * * * | 5 * * * * | 0,30 * * * * | 10-20 * * * * | 7/20 * * * * | 0 */2 * * * | 15 */3 * * *
0 */6 * * * | 0 */12 * * * | 0 0 * * * | 30 0 * * * | 0 1 * * * | 30 1 * * * | 0 2 * * * | 15 2 * * *
30 2 * * * | 45 2 * * * | 0 3 * * * | 0,15,30,45 2 * * * | 0 9 * * * | 0 9 * * 1 | 0 9 * * mon-fri
30 2 * * 1-5 | 0 9-17 * * 1-5 | */10 9-17 * * 1-5 | 0 0 * * 0 | 0 0 * * 7 | 0 0 1 * * | 0 0 1 1 *
0 0 15 * * | 0 0 31 * * | 0 0 1,15 * * | 0 0 */2 * * | 0 0 1-7 * 1 | 0 0 13 * 5 | 0 0 */7 * 1
0 0 29 2 * | 0 0 1 */3 * | 0 0 L * * | 0 0 LW * * | 0 0 * * 5L | 0 0 * * 1#1 | 0 0 * * 2#2,4#4
0 0 * 2 1#5 | 0 12 L 2 * | 59 23 31 12 * | 0 1-5 * * * | 0-59 2 * * * | * 2 * * * | */30 1-3 * * *
0 0-23/2 * * * | 30 0-4 * * sun | 0 0 1 jan,jul * | 0 22 * * 1-5 | 23 0-20/2 * * * | 5 4 * * sun
0 0,12 1 */2 *
"""
COMMON = [text.strip() for line in _COMMON.split("\n") for text in line.split("|") if text.strip()]
YEARS = (2011, 2012, 2018, 2019, 2024, 2025, 2026, 2027)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


# -- texts ----------------------------------------------------------------------------------------


class Texts:
    """Random texts in the syntax that both sides read."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def __iter__(self) -> Iterator[str]:
        while True:
            fields = [
                self.field(0, 59, 60, star=0.15),
                self.field(0, 23, 24, star=0.2),
                self.field(1, 31, 31, star=0.6, special=self.date),
                self.field(1, 12, 12, star=0.7, special=self.month),
                self.field(0, 7, 7, star=0.6, special=self.weekday),
            ]
            if self.random.random() < 0.15:
                fields.insert(0, self.field(0, 59, 60, star=0.2))
            text = " ".join(fields)
            if not steps_over_a_single_value(text):
                yield text

    def field(
        self, low: int, high: int, size: int, *, star: float, special: Callable[[], str] | None = None
    ) -> str:
        if self.random.random() < star:
            return "*"
        items = [
            special() if special and self.random.random() < 0.25 else self.item(low, high, size)
            for _ in range(self.random.choice([1, 1, 1, 2, 3]))
        ]
        return ",".join(items)

    def item(self, low: int, high: int, size: int) -> str:
        first, last = sorted(self.random.randint(low, high) for _ in range(2))
        step = self.random.randint(1, size)
        forms = [f"{first}-{last}", f"*/{step}", f"{first}/{step}", f"{first}-{last}/{step}", "*"]
        return self.random.choice([str(first)] * len(forms) + forms)

    def date(self) -> str:
        return self.random.choice(["L", "LW"])

    def month(self) -> str:
        return self.random.choice(["jan", "Feb", "MAR", "apr-jun", "aug", "oct", "dec"])

    def weekday(self) -> str:
        day = self.random.randint(0, 7)
        return self.random.choice(
            [f"{day}L", f"{day}#{self.random.randint(1, 5)}", "mon", "Fri", "SAT", "sun"]
        )


# -- intended differences -------------------------------------------------------------------------


def steps_over_a_single_value(text: str) -> bool:
    """``2-2/18``: cronsim reads ``2/18``, to the end of the range. Debian's cron, and we, read 2."""
    return re.search(r"(?<![\w])(\w+)-\1/", text) is not None


def starts_in_the_second_pass(question: Question) -> bool:
    """Asked during the second pass of a repeated hour, cronsim answers a time of the first: the past."""
    return question.start.fold == 1 and question.theirs.timestamp() <= question.start.timestamp()


def is_a_time_that_does_not_exist(question: Question) -> bool:
    """For wildcards, cronsim answers midnight on a day whose midnight the clock skips."""
    return question.theirs.hour == 0 and not exists(question.theirs)


def has_seconds(question: Question) -> bool:
    """cronsim lets six fields follow real time; for us, fixed times run once, with seconds or without."""
    follower = read(question.text, tz=question.key, gap="skip", repeat="both")
    return len(question.text.split()) == 6 and same(follower.next(question.start), question.theirs)


def steps_hours_across_a_half_hour_change(question: Question) -> bool:
    """cronsim steps 3600 s at a time to find the hour; after a change of 30 minutes it lands mid-hour."""
    change = question.change_before_ours()
    return change is not None and change % HOUR != timedelta(0) and question.ours_is_earlier()


def steps_over_the_hour_after_a_missing_midnight(question: Question) -> bool:
    """Stepping on from a midnight that does not exist, cronsim misses the first hour that does."""
    midnight = question.ours.replace(hour=0, minute=0, second=0, fold=0)
    return not exists(midnight) and question.ours - midnight < 2 * HOUR and question.ours_is_earlier()


DIFFERENCES = (
    starts_in_the_second_pass,
    is_a_time_that_does_not_exist,
    has_seconds,
    steps_hours_across_a_half_hour_change,
    steps_over_the_hour_after_a_missing_midnight,
)


class Question:
    """What was asked, and both answers."""

    def __init__(self, text: str, key: str, start: datetime, theirs: datetime, ours: datetime) -> None:
        self.text, self.key, self.start, self.theirs, self.ours = text, key, start, theirs, ours

    def ours_is_earlier(self) -> bool:
        return self.ours.timestamp() < self.theirs.timestamp()

    def change_before_ours(self) -> timedelta | None:
        """By how much the clock changed during the day before our answer, if it did."""
        now = self.ours.utcoffset()
        before = (self.ours.astimezone(UTC) - DAY).astimezone(self.ours.tzinfo).utcoffset()
        assert now is not None
        assert before is not None
        return None if now == before else abs(now - before)

    def __repr__(self) -> str:
        return f"{self.text} in {self.key} after {self.start}: cronsim {self.theirs}, evenbeat {self.ours}"


def exists(moment: datetime) -> bool:
    return moment.astimezone(UTC).astimezone(moment.tzinfo) == moment


def same(ours: datetime | None, theirs: datetime | None) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    return ours.timestamp() == theirs.timestamp() and ours.utcoffset() == theirs.utcoffset()


def check_difference(question: Question) -> str:
    """The name of the difference; our answer must then be that of the reference."""
    names = [difference.__name__ for difference in DIFFERENCES if difference(question)]
    assert names, f"an unintended difference: {question}"
    ours = int(question.ours.timestamp())
    begin = max(int(question.start.timestamp()) + 1, ours - 36 * 3600)
    assert list(reference.ticks(question.text, question.key, begin, ours + 1)) == [ours], question
    return names[0]


# -- the comparison -------------------------------------------------------------------------------


def read(text: str, **options: Any) -> Cron:
    trigger = cron(text, **options)
    assert isinstance(trigger, Cron)
    return trigger


def info(key: str) -> tzinfo:
    return UTC if key == "UTC" else ZoneInfo(key)


def their_next(text: str, start: datetime) -> datetime | None:
    try:
        return next(CronSim(text, start))
    except StopIteration:
        return None


def starts(key: str, source: random.Random, count: int) -> list[datetime]:
    """Moments up to a day from a change of the clock, and a third anywhere in twenty years."""
    changes = [change for year in YEARS for change in reference.transitions(key, year, year)]
    found = []
    for _ in range(count):
        if changes and source.random() < 0.7:
            second = source.choice(changes) + source.randint(-90_000, 90_000)
        else:
            second = source.randint(1_230_000_000, 1_860_000_000)
        found.append(datetime.fromtimestamp(second, info(key)))
    return found


@pytest.mark.parametrize("key", some(ZONES, "UTC", "Australia/Lord_Howe", "Europe/Riga"))
def test_the_next_tick_is_cronsims_or_differs_for_a_named_reason(key: str) -> None:
    source = random.Random(f"next {key}")
    for text in [*COMMON, *islice(Texts(source.randint(0, 1 << 30)), examples(2000))]:
        try:
            trigger = read(text, tz=key)
        except InvalidTrigger as refused:
            check_never_matches(text, refused)
            continue
        for start in starts(key, source, 8 if text in COMMON else 4):
            ours, theirs = trigger.next(start), their_next(text, start)
            if not same(ours, theirs):
                assert ours is not None
                assert theirs is not None
                check_difference(Question(text, key, start, theirs, ours))


def check_never_matches(text: str, refused: InvalidTrigger) -> None:
    """cronsim looks ahead 50 years and then gives up; we refuse the text at once."""
    assert "never matches" in str(refused)
    with suppress(CronSimError):
        assert their_next(text, datetime(2026, 1, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize("key", ZONES)
def test_the_tick_before_is_cronsims_where_no_clock_changes(key: str) -> None:
    # At changes cronsim is no oracle backwards: it never returns from Apia's missing day.
    source = random.Random(f"prev {key}")
    for text in [*COMMON, *islice(Texts(source.randint(0, 1 << 30)), examples(500))]:
        try:
            trigger = read(text, tz=key)
        except InvalidTrigger:
            continue
        for start in starts(key, source, 3):
            ours = trigger.prev(start)
            if ours is not None and is_calm(key, ours - 2 * DAY, start + DAY):
                assert same(ours, next(CronSim(text, start, reverse=True))), (text, key, start)


def is_calm(key: str, begin: datetime, end: datetime) -> bool:
    changes = reference.transitions(key, begin.year, end.year)
    return not any(begin.timestamp() <= change <= end.timestamp() for change in changes)


@pytest.mark.parametrize("key", ZONES)
@pytest.mark.parametrize("text", COMMON)
def test_common_texts_give_cronsims_ticks_over_a_year_of_changes(text: str, key: str) -> None:
    for change in reference.transitions(key, 2026, 2026) or (1_780_000_000,):
        start = datetime.fromtimestamp(change - 30 * 3600, info(key))
        trigger, theirs = read(text, tz=key), CronSim(text, start)
        ours: datetime | None = start
        for answer in islice(theirs, 40):
            assert ours is not None
            question = Question(text, key, ours, answer, trigger.next(ours) or start)
            if not same(question.ours, answer):
                check_difference(question)
                break
            ours = question.ours


# -- the differences, one by one ------------------------------------------------------------------


def moment(text: str, key: str) -> datetime:
    """A wall-clock time with its offset, in the zone."""
    return datetime.fromisoformat(text).astimezone(info(key))


@pytest.mark.parametrize(
    ("difference", "text", "key", "start", "theirs", "ours"),
    [
        (
            starts_in_the_second_pass,
            "30 1 * * *",
            "America/New_York",
            "2026-11-01T01:10:00-05:00",
            "2026-11-01T01:30:00-04:00",
            "2026-11-02T01:30:00-05:00",
        ),
        (
            is_a_time_that_does_not_exist,
            "* * * * sun",
            "America/Santiago",
            "2026-09-05T12:00:00-04:00",
            "2026-09-06T00:00:00-04:00",
            "2026-09-06T01:00:00-03:00",
        ),
        (
            has_seconds,
            "0 30 2 * * *",
            "America/New_York",
            "2026-03-08T00:00:00-05:00",
            "2026-03-09T02:30:00-04:00",
            "2026-03-08T03:00:00-04:00",
        ),
        (
            has_seconds,
            "15 30 1 * * *",
            "America/New_York",
            "2026-11-01T01:30:15-04:00",
            "2026-11-01T01:30:15-05:00",
            "2026-11-02T01:30:15-05:00",
        ),
        (
            steps_hours_across_a_half_hour_change,
            "* 8 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T12:00:00+10:30",
            "2026-10-04T08:30:00+11:00",
            "2026-10-04T08:00:00+11:00",
        ),
        (
            steps_over_the_hour_after_a_missing_midnight,
            "* 1 * * sun",
            "America/Santiago",
            "2026-09-05T12:00:00-04:00",
            "2026-09-13T01:00:00-03:00",
            "2026-09-06T01:00:00-03:00",
        ),
    ],
)
def test_an_intended_difference_is_what_its_name_says(
    difference: Callable[[Question], bool], text: str, key: str, start: str, theirs: str, ours: str
) -> None:
    asked = moment(start, key)
    their_answer, our_answer = their_next(text, asked), read(text, tz=key).next(asked)
    assert their_answer is not None
    assert our_answer is not None
    assert (their_answer.isoformat(), our_answer.isoformat()) == (theirs, ours)
    assert check_difference(Question(text, key, asked, their_answer, our_answer)) == difference.__name__


@pytest.mark.parametrize(
    ("text", "meaning"), [("* 2-2/18 * * *", "* 2 * * *"), ("0 0 * * 1-1/2", "0 0 * * 1")]
)
def test_a_step_over_a_single_value_is_that_value(text: str, meaning: str) -> None:
    assert steps_over_a_single_value(text)
    assert read(text) == read(meaning)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert list(islice(CronSim(text, start), 99)) != list(islice(CronSim(meaning, start), 99))


@pytest.mark.parametrize(
    "text",
    [
        "0 22-2 * * *",
        "0 0 * * fri-mon",
        "0 0 28-3 * *",
        "0 0 * nov-feb *",
        "0 0 L-3 * *",
        "0 0 15W * *",
        "0 0 ? * 1",
        "0 0 1 * ?",
        "H H * * *",
        "H/15 * * * *",
        "0 0 * * friL",
        "@daily",
        "@hourly",
        "@every 10s",
    ],
)
def test_we_read_what_cronsim_refuses(text: str) -> None:
    cron(text)
    with pytest.raises(CronSimError):
        CronSim(text, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    "text",
    [
        "*/90 * * * *",  # a step longer than the range is once an hour, which nobody means
        "0 */48 * * *",
        "0 0 */32 * *",
        "0 0 1 */13 *",
        "0 0 * * */8",
        "0 0 */31 * 6#5",  # the 1st is never the fifth Saturday
        "0 0 LW * */6",  # the last weekday is never a Saturday or Sunday
        "0 0 L/2 * *",  # a step means nothing here
    ],
)
def test_we_refuse_what_cronsim_reads(text: str) -> None:
    CronSim(text, datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidTrigger):
        cron(text)


def test_the_29th_of_february_is_found_across_2100() -> None:
    start = datetime(2096, 3, 1, tzinfo=UTC)
    on_a_sunday = "0 0 29 2 */7"  # every 28 years, but 40 around 2100
    assert read("0 0 29 2 *").next(start) == datetime(2104, 2, 29, tzinfo=UTC)
    for text in ("0 0 29 2 *", on_a_sunday):
        assert read(text).next(start) == their_next(text, start)
