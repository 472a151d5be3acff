"""What is refused, with which words and facts, and that nothing but an EvenbeatError ever comes out."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evenbeat import EvenbeatError, InvalidTrigger, InvalidValue, Trigger, at, cron, every, parse_trigger
from evenbeat.core.durations import read_duration
from evenbeat.core.instants import FIRST, LAST, read_instant
from evenbeat.triggers.zones import zone
from tests.lengths import examples
from tests.unit import strategies

# -- words and facts ------------------------------------------------------------------------------

CRON_OPTIONS = "tz, gap, repeat, days, start, until, skip, only, move"
NAMES = "names are sun, mon, tue, wed, thu, fri, sat"
LAST_DAY = "for the last day of a month write L"
FIELDS = 'minute hour day-of-month month day-of-week, e.g. "0 9 * * mon-fri"; seconds may come first'

# text, the message after the text, field, value, position, allowed, hint
BAD_CRON: list[tuple[str, str, str, str, int, str | None, str | None]] = [
    ("61 * * * *", ": minute 61 is out of 0-59", "minute", "61", 0, "0-59", None),
    ("0 24 * * *", ": hour 24 is out of 0-23", "hour", "24", 2, "0-23", "midnight is hour 0"),
    ("0 25 * * *", ": hour 25 is out of 0-23", "hour", "25", 2, "0-23", None),
    ("0 0 0 * *", ": day of month 0 is out of 1-31", "day of month", "0", 4, "1-31", None),
    ("0 0 32 * *", ": day of month 32 is out of 1-31", "day of month", "32", 4, "1-31", None),
    ("0 0 * 13 *", ": month 13 is out of 1-12", "month", "13", 6, "1-12", None),
    ("0 0 * * 8", ": day of week 8 is out of 0-7", "day of week", "8", 8, "0-7", None),
    ("60 0 0 * * *", ": second 60 is out of 0-59", "second", "60", 0, "0-59", None),
    ("0 0 0 * * 9", ": day of week 9 is out of 0-7", "day of week", "9", 10, "0-7", None),
    # The position is that of the item, wherever it stands.
    ("1,2,61 * * * *", ": minute 61 is out of 0-59", "minute", "61", 4, "0-59", None),
    ("  0\t 99  * * *", ": hour 99 is out of 0-23", "hour", "99", 5, "0-23", None),
    ("0 1-5,7-33/2 * * *", ": hour 33 is out of 0-23", "hour", "7-33/2", 6, "0-23", None),
    (
        "99999999999999999999 * * * *",
        ": minute 999999999999… is out of 0-59",
        "minute",
        "99999999999999999999",
        0,
        "0-59",
        None,
    ),
    # Never.
    ("0 0 30 2 *", " never matches: February has no day 30", "day of month", "30", 4, None, LAST_DAY),
    (
        " 0 0 31  2,4,6 *",
        " never matches: February, April and June have no day 31",
        "day of month",
        "31",
        5,
        None,
        LAST_DAY,
    ),
    ("0 0 30,31 feb ?", " never matches: February has no day 30", "day of month", "30,31", 4, None, LAST_DAY),
    ("0 0 0 30W 2 *", " never matches: February has no day 30", "day of month", "30W", 6, None, LAST_DAY),
    (
        "0 0 L-30 2,4 *",
        " never matches: February and April have fewer than 31 days",
        "day of month",
        "L-30",
        4,
        None,
        LAST_DAY,
    ),
    (
        "0 0 LW * */6",
        ' never matches: day of month "LW" and day of week "*/6" never fall together',
        "day of month",
        "LW",
        4,
        None,
        "both must match, as one of them starts with *",
    ),
    # Steps.
    (
        "*/0 * * * *",
        ': minute step 0 in "*/0" would never advance',
        "minute",
        "*/0",
        0,
        "0-59",
        "steps start at 1",
    ),
    (
        "0 H/0 * * *",
        ': hour step 0 in "H/0" would never advance',
        "hour",
        "H/0",
        2,
        "0-23",
        "steps start at 1",
    ),
    ("*/ * * * *", ': minute step "" in "*/" is not a number', "minute", "*/", 0, "0-59", None),
    ("1/2/3 * * * *", ': minute step "2/3" in "1/2/3" is not a number', "minute", "1/2/3", 0, "0-59", None),
    (
        "*/90 * * * *",
        ': minute step 90 in "*/90" is longer than the 60 values there are',
        "minute",
        "*/90",
        0,
        "0-59",
        'for a period of 90m write every("90m")',
    ),
    (
        "0 0 1 */13 *",
        ': month step 13 in "*/13" is longer than the 12 values there are',
        "month",
        "*/13",
        6,
        "1-12",
        None,
    ),
    # Items that say nothing.
    ("1,,2 * * * *", ": minute has an empty item", "minute", "", 2, "0-59", "there is a comma too many"),
    ("0 1, * * *", ": hour has an empty item", "hour", "", 4, "0-23", "there is a comma too many"),
    ("1- * * * *", ': minute "1-" has a part missing', "minute", "1-", 0, "0-59", "write values of 0-59"),
    ("-1 * * * *", ': minute "-1" has a part missing', "minute", "-1", 0, "0-59", "write values of 0-59"),
    (
        "0 0 W * *",
        ': day of month "W" has a part missing',
        "day of month",
        "W",
        4,
        "1-31",
        "write values of 1-31",
    ),
    ("1-2-3 * * * *", ': minute "2-3" is not a number of 0-59', "minute", "1-2-3", 0, "0-59", None),
    ("1.5 * * * *", ': minute "1.5" is not a number of 0-59', "minute", "1.5", 0, "0-59", None),
    ("0 nine * * *", ': hour "nine" is not a number of 0-23', "hour", "nine", 2, "0-23", None),
    ("0 ? * * *", ": hour ? stands only in the day fields", "hour", "?", 2, "0-23", "write * here"),
    ("0 0 ?/2 * *", ': day of month "?" is not a number of 1-31', "day of month", "?/2", 4, "1-31", None),
    # Digits of other scripts, and characters that are none.
    ("٣ * * * *", ': minute "٣" is not a number of 0-59', "minute", "٣", 0, "0-59", None),
    ("１ * * * *", ': minute "１" is not a number of 0-59', "minute", "１", 0, "0-59", None),
    ("² * * * *", ': minute "²" is not a number of 0-59', "minute", "²", 0, "0-59", None),
    ("0 \x00 * * *", ': hour "\\x00" is not a number of 0-23', "hour", "\x00", 2, "0-23", None),
    ("0 \ud800 * * *", ': hour "\\ud800" is not a number of 0-23', "hour", "\ud800", 2, "0-23", None),
    ("0 \x1b[2J * * *", ': hour "\\x1b[2J" is not a number of 0-23', "hour", "\x1b[2J", 2, "0-23", None),
    # Names.
    (
        "0 0 * mai *",
        ': month "mai" is neither 1-12 nor a name',
        "month",
        "mai",
        6,
        "1-12",
        "did you mean may?",
    ),
    (
        "0 0 * January *",
        ': month "January" is neither 1-12 nor a name',
        "month",
        "January",
        6,
        "1-12",
        "did you mean jan?",
    ),
    (
        "0 0 * * Monday",
        ': day of week "Monday" is neither 0-7 nor a name',
        "day of week",
        "Monday",
        8,
        "0-7",
        "did you mean mon?",
    ),
    ("0 0 * * xyz", ': day of week "xyz" is neither 0-7 nor a name', "day of week", "xyz", 8, "0-7", NAMES),
    # Special tokens.
    ("L * * * *", ': minute "L" is not a number of 0-59', "minute", "L", 0, "0-59", None),
    (
        "0 0 * * L",
        ": day of week L needs a weekday here",
        "day of week",
        "L",
        8,
        "0-7",
        "friL is the last Friday of the month, sat plain Saturday",
    ),
    (
        "0 0 L-31 * *",
        ': day of month "L-31" is not L-0 to L-30',
        "day of month",
        "L-31",
        4,
        "1-31",
        'write L-3 for "three days before the last day"',
    ),
    ("0 0 32W * *", ": day of month 32 is out of 1-31", "day of month", "32W", 4, "1-31", None),
    ("0 0 1-5W * *", ': day of month "1-5" is not a number of 1-31', "day of month", "1-5W", 4, "1-31", None),
    ("0 0 L/2 * *", ': day of month "L" is not a number of 1-31', "day of month", "L/2", 4, "1-31", None),
    (
        "0 0 * * 5#6",
        ': day of week "5#6" asks for occurrence "6" of 1-5',
        "day of week",
        "5#6",
        8,
        "0-7",
        "fri#2 is the second Friday",
    ),
    ("0 0 * * 8#1", ": day of week 8 is out of 0-7", "day of week", "8#1", 8, "0-7", None),
    ("H-5 * * * *", ': minute "H-5" is not H or H/15', "minute", "H-5", 0, "0-59", "H takes no range"),
    ("0 H(2-5) * * *", ': hour "H(2-5)" is not H or H/15', "hour", "H(2-5)", 2, "0-23", "H takes no range"),
    # The number of fields.
    ("", " has no fields, cron has 5 or 6", "expression", "", 0, "5 or 6 fields", FIELDS),
    ("* * * *", " has 4 fields, cron has 5 or 6", "expression", "* * * *", 0, "5 or 6 fields", FIELDS),
    ("5", " has 1 field, cron has 5 or 6", "expression", "5", 0, "5 or 6 fields", FIELDS),
    (
        "10m",
        " has 1 field, cron has 5 or 6",
        "expression",
        "10m",
        0,
        "5 or 6 fields",
        'for a period write every("10m")',
    ),
    (
        "* * * * * * *",
        " has 7 fields, cron has 5 or 6",
        "expression",
        "* * * * * * *",
        0,
        "5 or 6 fields",
        "there is no year field: bound the schedule with start and until",
    ),
    # Macros.
    (
        "@reboot",
        " is not a known macro",
        "expression",
        "@reboot",
        0,
        None,
        "a schedule outlives its process, so there is no boot to run at: use at(…)",
    ),
    ("@dayly", " is not a known macro", "expression", "@dayly", 0, None, "did you mean @daily?"),
    (
        "@xyz",
        " is not a known macro",
        "expression",
        "@xyz",
        0,
        None,
        "there are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly and @every 10s",
    ),
    ("@everyday", " is not a known macro", "expression", "@everyday", 0, None, "write @every 10s"),
]


def quoted(text: str) -> str:
    return '"' + repr(text)[1:-1] + '"'


@pytest.mark.parametrize("read", [cron, parse_trigger])
@pytest.mark.parametrize(("text", "problem", "field", "value", "position", "allowed", "hint"), BAD_CRON)
def test_a_bad_cron_text_is_refused_with_the_place_and_the_reason(
    read: Callable[[str], Trigger],
    text: str,
    problem: str,
    field: str,
    value: str,
    position: int,
    allowed: str | None,
    hint: str | None,
) -> None:
    with pytest.raises(InvalidTrigger) as refused:
        read(text)
    error = refused.value
    if hint is not None and read is parse_trigger:
        # The error for a text shows what to write in a text.
        hint = re.sub(r'every\("(\w+)"\)', r"every \1", hint)
    assert str(error) == quoted(text) + problem + (f"; {hint}" if hint else "")
    assert (error.text, error.field, error.value, error.position) == (text, field, value, position)
    assert (error.allowed, error.hint) == (allowed, hint)
    assert text[position : position + len(value)] == value
    assert isinstance(error, InvalidValue)
    assert isinstance(error, ValueError)
    assert error.__suppress_context__ or error.__context__ is None


@pytest.mark.parametrize(
    ("text", "position", "value"),
    [
        ("tz=UTC 61 * * * *", 7, "61"),
        ("0 61 * * * tz=UTC", 2, "61"),
        ("0 gap=skip 61 * * *", 11, "61"),
        ("  tz=UTC   0 0 1,32   * * repeat=last", 17, "32"),
    ],
)
def test_options_do_not_shift_the_position(text: str, position: int, value: str) -> None:
    with pytest.raises(InvalidTrigger) as refused:
        parse_trigger(text)
    assert (refused.value.position, refused.value.value) == (position, value)
    assert text[position:].startswith(value)
    assert refused.value.text[position:].startswith(value)


@pytest.mark.parametrize(
    ("text", "problem", "field", "position"),
    [
        ("0 9 * * * zone=UTC", f': option "zone" is not known here; there are {CRON_OPTIONS}', "zone", 10),
        ("0 9 * * * TZ=UTC", ': option "TZ" is not known here; did you mean tz=?', "TZ", 10),
        ("0 9 * * * stat=x", ': option "stat" is not known here; did you mean start=?', "stat", 10),
        ("0 9 13 * 5 day=both", ': option "day" is not known here; did you mean days=?', "day", 11),
        ("0 9 13 * 5 days=both days=both", " gives days twice; keep one", "days", 21),
        (
            "every 5m days=both",
            ': option "days" is not known here; there are start, until, skip, only, move',
            "days",
            9,
        ),
        ("at 2026-01-01 days=both", ': option "days" is not known here; there are tz', "days", 14),
        (
            "every 5m tz=UTC",
            ': option "tz" is not known here; there are start, until, skip, only, move',
            "tz",
            9,
        ),
        ("at 2026-01-01 until=x", ': option "until" is not known here; there are tz', "until", 14),
        ("0 9 * * * tz=UTC tz=UTC", " gives tz twice; keep one", "tz", 17),
        ("start=x 0 9 * * * art=x", ': option "art" is not known here; did you mean start=?', "art", 18),
        ("0 9 * * * =", f': option "" is not known here; there are {CRON_OPTIONS}', "option", 10),
    ],
)
def test_a_bad_option_is_refused_with_its_place(text: str, problem: str, field: str, position: int) -> None:
    with pytest.raises(InvalidTrigger) as refused:
        parse_trigger(text)
    assert str(refused.value) == quoted(text) + problem
    assert (refused.value.field, refused.value.position) == (field, position)


DATE = 'write it as "2026-03-01T09:00:00Z" or "2026-03-01T09:00:00+01:00"'
OFFSET = 'write "2026-03-01T09:00Z" if UTC is meant, or an offset such as +01:00'
ZONE = 'give one: datetime(…, tzinfo=UTC) or .replace(tzinfo=ZoneInfo("Europe/Berlin"))'
MARS = 'tz "Mars" is not an IANA time zone; use an IANA name such as "Europe/Berlin"'
BERLIN = "did you mean Europe/Berlin or Europe/Belfast or Europe/Helsinki?"
FEBRUARY = "2026-02-01T00:00:00Z"
LENGTH = 'write it like "10s", "5m", "1h30m" or "7d"'


@pytest.mark.parametrize(
    ("call", "message", "field"),
    [
        (lambda: parse_trigger("0 9 * * * tz=Mars"), f'"0 9 * * * tz=Mars": {MARS}', "tz"),
        (lambda: at("2026-01-01", tz="Mars"), MARS, "tz"),
        (lambda: cron("@every 10s", tz="Mars"), MARS, "tz"),
        (
            lambda: cron("0 9 * * *", tz="Europe/Berln"),
            f'tz "Europe/Berln" is not an IANA time zone; {BERLIN}',
            "tz",
        ),
        (
            lambda: parse_trigger("0 9 * * * gap=jump"),
            '"0 9 * * * gap=jump": gap "jump" is not one of shift, skip',
            "gap",
        ),
        (
            lambda: parse_trigger("0 9 * * * repeat=none"),
            '"0 9 * * * repeat=none": repeat "none" is not one of first, last, both',
            "repeat",
        ),
        (
            lambda: parse_trigger("0 9 13 * 5 days=all"),
            '"0 9 13 * 5 days=all": days "all" is not one of either, both',
            "days",
        ),
        (
            lambda: cron("0 9 13 * 5", days=-1),  # type: ignore[arg-type]  # the mistake under test
            "days -1 is not one of either, both",
            "days",
        ),
        (
            lambda: cron("0 9 13 * 5", days=2**63),  # type: ignore[arg-type]  # the mistake under test
            "days 9223372036854775808 is not one of either, both",
            "days",
        ),
        (
            lambda: cron("0 9 13 * 5", days=["both"]),  # type: ignore[arg-type]  # the mistake under test
            "days ['both'] is not one of either, both",
            "days",
        ),
        (
            lambda: cron("@every 10s", days="both"),
            '"@every 10s" is a period: days does not apply; leave it out',
            "days",
        ),
        (
            lambda: parse_trigger("0 0 30 2 fri days=both"),
            (
                '"0 0 30 2 fri days=both" never matches: February has no day 30; '
                "for the last day of a month write L"
            ),
            "day of month",
        ),
        (
            lambda: cron("0 0 8 * fri#1", days="both"),
            (
                '"0 0 8 * fri#1" never matches: day of month "8" and day of week "fri#1" '
                "never fall together; both must match, by days=both"
            ),
            "day of month",
        ),
        (
            lambda: cron("30 2 25-31 3 sun", tz="Europe/Berlin", gap="skip", days="both"),
            (
                '"30 2 25-31 3 sun" never matches in Europe/Berlin with gap="skip": '
                'the clock always skips that time; use gap="shift" to run right after the gap'
            ),
            "gap",
        ),
        (
            lambda: parse_trigger("0 9 * * * start=soon"),
            f'"0 9 * * * start=soon": start "soon" is not a date and time; {DATE}',
            "start",
        ),
        (
            lambda: parse_trigger("0 9 * * * until="),
            f'"0 9 * * * until=": until "" is not a date and time; {DATE}',
            "until",
        ),
        (lambda: parse_trigger("at noon"), f'"at noon": at "noon" is not a date and time; {DATE}', "at"),
        (lambda: parse_trigger("at"), f'"at": at "" is not a date and time; {DATE}', "at"),
        (
            lambda: parse_trigger("every day"),
            f'"every day": every "day" is not a duration; {LENGTH}',
            "every",
        ),
        (lambda: parse_trigger("@every"), '"@every" has no period; write @every 10m', "every"),
        (
            lambda: cron("@every 10s", gap="skip"),
            '"@every 10s" is a period: gap does not apply; leave it out',
            "gap",
        ),
        (
            lambda: cron("@every 10s", repeat="both"),
            '"@every 10s" is a period: repeat does not apply; leave it out',
            "repeat",
        ),
        (
            lambda: cron("0 9 * * *", start="2026-01-02T00:00Z", until="2026-01-02T08:59Z"),
            '"0 9 * * *" has no tick from 2026-01-02T00:00:00Z until 2026-01-02T08:59:00Z; both ends count',
            "until",
        ),
        (
            lambda: every(0),
            'every 0 runs once, but it does not say when; give start, or write at("2026-03-01T09:00:00Z")',
            "start",
        ),
        (lambda: every(-1), f"every -1 is negative; {LENGTH}", "every"),
        (lambda: every("-5m"), 'every "-5m" is not a duration; a duration can\'t be negative', "every"),
        (
            lambda: every("1h", start="2026-02-01T00:00Z", until="2026-01-01T00:00Z"),
            f"until 2026-01-01T00:00:00Z is before start {FEBRUARY}; the first tick would never come",
            "until",
        ),
        (lambda: at(datetime(2026, 3, 1, 9)), f"at 2026-03-01T09:00:00 has no time zone; {ZONE}", "at"),
        (
            lambda: at("2026-03-01T09:00"),
            f'at "2026-03-01T09:00" has no offset and no time zone; {OFFSET}',
            "at",
        ),
        (
            lambda: cron("0 9 * * *", start=datetime(2026, 3, 1)),
            f"start 2026-03-01T00:00:00 has no time zone; {ZONE}",
            "start",
        ),
        (
            lambda: cron("0 9 * * *").next(datetime(2026, 3, 1)),
            f"after 2026-03-01T00:00:00 has no time zone; {ZONE}",
            "after",
        ),
        (lambda: cron("0 9 * * *").next("2026"), 'after "2026" is not a datetime', "after"),  # type: ignore[arg-type]
        (lambda: at(5), "at 5 is neither a datetime nor a text", "at"),  # type: ignore[arg-type]
        (lambda: at("0001-01-01T00:00Z"), 'at "0001-01-01T00:00Z" is outside the years 1 to 9999', "at"),
    ],
)
def test_a_bad_value_is_refused_with_the_reason(call: Callable[[], object], message: str, field: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        call()
    assert str(refused.value) == message
    assert refused.value.field == field


def test_naive_datetimes_are_refused_everywhere() -> None:
    naive, aware = datetime(2026, 3, 1), datetime(2026, 3, 2, tzinfo=UTC)
    triggers: list[Trigger] = [cron("0 9 * * *"), every("1h"), at(aware)]
    for trigger in triggers:
        with pytest.raises(InvalidValue, match="has no time zone"):
            trigger.next(naive)
        with pytest.raises(InvalidValue, match="has no time zone"):
            trigger.prev(naive)
        with pytest.raises(InvalidValue, match="has no time zone"):
            trigger.between(naive, aware)
        with pytest.raises(InvalidValue, match="has no time zone"):
            trigger.between(aware, naive)


# -- hostile input --------------------------------------------------------------------------------

LONG = 10_000_000


@pytest.mark.parametrize(
    "call",
    [
        lambda: cron(",".join(["1"] * 20_000) + " * * * *"),
        lambda: parse_trigger(",".join(["1"] * 20_000) + " * * * *"),
        lambda: cron("1" * LONG + " * * * *"),
        lambda: cron("* " * LONG),
        lambda: cron("\x00" * LONG),
        lambda: cron("@every " + "1" * LONG + "s"),
        lambda: cron("@every" + " " * LONG),
        lambda: cron("0 9 * * *", tz="A" * LONG),
        lambda: cron("0 9 * * *", gap="s" * LONG),  # type: ignore[arg-type]
        lambda: cron("0 9 * * *", start="2" * LONG),
        lambda: cron("0 0 0 0 0 " + "=" * LONG),
        lambda: parse_trigger("a=" * LONG),
        lambda: parse_trigger("0 9 * * * " + "k" * 900 + "=1"),
        lambda: every("1" * LONG),
        lambda: every("1h" * LONG),
        lambda: every(" " * LONG),
        lambda: every(10**5000),
        lambda: every(-(10**5000)),
        lambda: every(2**63),
        lambda: every(1e308),
        lambda: every(float("inf")),
        lambda: every(float("nan")),
        lambda: every(timedelta.max),
        lambda: every(timedelta.min),
        lambda: every("0." + "0" * 90 + "1s"),
        lambda: at("2" * LONG),
        lambda: at("2026-03-01T09:00:00Z" + " " * 200 + "and more"),
        lambda: at("2026-03-01T09:00:00+99:99"),
        lambda: at(datetime.min.replace(tzinfo=UTC)),
        lambda: at(datetime.max.replace(tzinfo=timezone(timedelta(hours=-23)))),
        lambda: every("1h", start=datetime.min.replace(tzinfo=ZoneInfo("Pacific/Apia"))),
        lambda: zone("../../etc/passwd"),
        lambda: zone("\x00"),
        lambda: zone("\ud800"),
        lambda: cron(",".join(["0-59/1"] * 140) + " * * * H-"),
        lambda: cron("0 0 " + "9" * 900 + " * *"),
    ],
)
@pytest.mark.timeout(120)  # it would search for hours
def test_hostile_input_is_refused_without_hanging_and_in_little_memory(call: Callable[[], object]) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(EvenbeatError) as refused:
            call()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The input itself was made before or within: twice its size at most.
    assert peak < 120_000_000
    assert len(str(refused.value)) < 500
    assert str(refused.value).isprintable()
    refused_value = refused.value
    assert not isinstance(refused_value, InvalidValue) or len(str(refused_value.field)) <= 20


@pytest.mark.timeout(120)  # it would search for hours
def test_a_text_that_never_ticks_is_found_out_without_searching_for_ever() -> None:
    with pytest.raises(InvalidTrigger):
        cron("30 2 * 3 sun#2", tz="America/New_York", gap="skip")
    with pytest.raises(InvalidTrigger):
        cron(
            "30 2 8 3 */7",
            tz="America/New_York",
            gap="skip",
            start="2026-03-01T00:00Z",
            until="2030-01-01T00:00Z",
        )


PIECES = st.sampled_from(
    [
        *"*,-/?LWH#=@0123456789 \t:TZ+.",
        *("*/", "L-", "LW", "15W", "5#3", "5L", "mon", "jan", "H/", " * * *", "60", "31", "every ", "at "),
        *("tz=", "gap=", "repeat=", "start=", "until=", "UTC", "Europe/Riga", "skip", "both", "@daily"),
        *("@every ", "10s", "1h30m", "2026-03-01", "T09:00", "\x00", "\ud800", "٣", "İ", "ß", "\x85", " "),
    ]
)
near_texts = st.one_of(
    st.lists(PIECES, max_size=14).map("".join),
    st.lists(st.lists(PIECES, max_size=3).map("".join), min_size=5, max_size=6).map(" ".join),
    st.text(max_size=40),
)


@given(text=near_texts)
@settings(max_examples=examples(2500))
@example("0 0 * * *=")
@example("=")
@example("@")
@example("İ * * * *")
@example("0 0 İw * *")
@example("0 0 * * İl")
@example("0\x1b[2Jm")
def test_any_text_is_a_trigger_or_an_evenbeat_error(text: str) -> None:
    try:
        trigger = parse_trigger(text)
    except EvenbeatError as error:
        check_error(error, text)
        return
    assert parse_trigger(str(trigger)) == trigger
    assert trigger.explain()
    trigger.next_ms(1_780_000_000_000)
    trigger.prev_ms(1_780_000_000_000)
    trigger.bind("name", 1_780_000_000_000)


def check_error(error: EvenbeatError, text: str) -> None:
    assert str(error).isprintable()
    assert isinstance(error, InvalidValue)
    assert error.field
    if isinstance(error, InvalidTrigger):
        assert 0 <= error.position <= len(text)
        if error.field in ("second", "minute", "hour", "day of month", "month", "day of week"):
            assert text[error.position :].startswith(str(error.value))


@given(text=near_texts)
@settings(max_examples=examples(350))
def test_any_text_anywhere_is_a_value_or_an_evenbeat_error(text: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: cron(text),
        lambda: cron("0 9 * * *", tz=text),
        lambda: cron("0 9 * * *", gap=text),  # type: ignore[arg-type]
        lambda: cron("0 9 * * *", repeat=text),  # type: ignore[arg-type]
        lambda: cron("0 9 * * *", start=text),
        lambda: cron("0 9 * * *", until=text, tz="Europe/Riga"),
        lambda: every(text),
        lambda: every("10s", start=text),
        lambda: every("10s", until=text),
        lambda: at(text),
        lambda: at(text, tz="America/Santiago"),
        lambda: at("2026-03-01 09:00", tz=text),
        lambda: read_duration(text, "timeout"),
        lambda: read_instant(text, "moment"),
        lambda: cron("H H * * *").bind(text, 0),
    ]
    for call in calls:
        with suppress(EvenbeatError):
            call()


@given(value=st.one_of(st.integers(), st.floats(), st.timedeltas(), st.booleans(), st.none(), st.binary()))
@settings(max_examples=examples(300))
def test_any_duration_is_milliseconds_or_an_evenbeat_error(value: Any) -> None:
    with suppress(EvenbeatError):
        assert read_duration(value, "every") >= 0


@given(trigger=strategies.triggers, instant=st.integers(-(2**70), 2**70))
@settings(max_examples=examples(400))
def test_any_instant_has_an_answer(trigger: Trigger, instant: int) -> None:
    for moment in (instant, -(2**70), 2**70, FIRST - 1, FIRST, FIRST + 1, LAST - 1, LAST, LAST + 1):
        following, preceding = trigger.next_ms(moment), trigger.prev_ms(moment)
        assert following is None or (following > moment and FIRST <= following <= LAST)
        assert preceding is None or (preceding < moment and FIRST <= preceding <= LAST)
        assert list(trigger.between_ms(moment, moment)) == []


odd_zones = st.one_of(
    st.timezone_keys().map(ZoneInfo),
    st.timedeltas(timedelta(hours=-23, minutes=-59), timedelta(hours=23, minutes=59)).map(timezone),
)


@given(
    trigger=strategies.triggers,
    moment=st.one_of(
        st.datetimes(timezones=odd_zones),
        st.builds(datetime.min.replace, tzinfo=odd_zones),
        st.builds(datetime.max.replace, tzinfo=odd_zones),
    ),
)
@settings(max_examples=examples(400))
def test_any_aware_datetime_has_an_answer(trigger: Trigger, moment: datetime) -> None:
    following, preceding = trigger.next(moment), trigger.prev(moment)
    assert following is None or following - moment > timedelta(0)
    assert preceding is None or moment - preceding > timedelta(0)
    assert list(trigger.between(moment, moment)) == []
