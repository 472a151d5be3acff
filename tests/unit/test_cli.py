"""The command line: its answers, its failures, and its output for other programs."""

from __future__ import annotations

import inspect
import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from evenbeat import InvalidValue, __version__, parse_trigger
from evenbeat.cli import local
from evenbeat.cli.commands import next as next_command
from evenbeat.cli.root import root

BERLIN = "tz=Europe/Berlin"
ESCAPE = "\x1b["


@pytest.fixture(autouse=True)
def _plain_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def run(*args: str) -> Result:
    # click before 8.2 mixes stderr into stdout by default.
    mixes = "mix_stderr" in inspect.signature(CliRunner).parameters
    options: dict[str, Any] = {"mix_stderr": False} if mixes else {}
    return CliRunner(**options).invoke(root, args, prog_name="evenbeat")


def printed(*args: str) -> str:
    result = run(*args)
    assert (result.exit_code, result.stderr) == (0, ""), result.stderr
    return result.stdout


def answered(*args: str) -> dict[str, Any]:
    document = json.loads(printed(*args, "--json"))
    assert isinstance(document, dict)
    return document


def refused(*args: str) -> str:
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    return result.stderr


def instants(*args: str) -> list[str]:
    return [tick["at"] for tick in answered(*args)["ticks"]]


def process(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "evenbeat", *args]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False, **options)


# -- next ---------------------------------------------------------------------------------------


def test_next_shows_the_trigger_in_words_and_a_table_of_its_ticks() -> None:
    text = printed("next", "0 9 * * mon-fri", "--from", "2026-03-05T10:00", "-n", "3")

    assert text.splitlines() == [
        "At 09:00, Monday to Friday (UTC)",
        "",
        "#  UTC                                in",
        "────────────────────────────────────────",
        "1  Fri 2026-03-06 09:00 +00:00      23 h",
        "2  Mon 2026-03-09 09:00 +00:00  3 d 23 h",
        "3  Tue 2026-03-10 09:00 +00:00  4 d 23 h",
    ]


def test_next_shows_five_ticks_by_default() -> None:
    assert len(instants("next", "@hourly")) == 5
    assert len(instants("next", "@hourly", "-n", "1000")) == 1000


@pytest.mark.parametrize("count", ["0", "-1", "1001", "many"])
def test_next_refuses_an_invalid_count(count: str) -> None:
    assert "'-n' / '--count'" in refused("next", "@hourly", "-n", count)


def test_an_expression_may_come_as_several_arguments_with_options_among_them() -> None:
    quoted = printed("next", f"0 9 * * mon-fri {BERLIN}", "--from", "2026-03-05", "-n", "2")

    assert quoted == printed("next", "0", "9", "*", "*", "mon-fri", BERLIN, "--from", "2026-03-05", "-n", "2")
    assert quoted == printed("next", "0", "9", "--from", "2026-03-05", "*", "*", "-n", "2", "mon-fri", BERLIN)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("@daily", "2026-03-02T00:00:00Z"),
        ("@every 10s", "2026-03-01T12:00:10Z"),
        ("every 10m start=2026-03-01T12:03Z", "2026-03-01T12:03:00Z"),
        ("at 2026-03-01T13:00+01:00 tz=Europe/Berlin", None),
        ("at 2026-03-01 14:00 tz=Europe/Berlin", "2026-03-01T13:00:00Z"),
        ("30 0 9 * * *", "2026-03-02T09:00:30Z"),
        ("0 9 * * * tz=Asia/Tokyo gap=skip until=2026-04-01", "2026-03-02T00:00:00Z"),
        ("0 0 13 * fri", "2026-03-06T00:00:00Z"),
        ("0 0 13 * fri days=both", "2026-03-13T00:00:00Z"),
    ],
)
def test_next_reads_whatever_a_trigger_may_be_written_as(text: str, first: str | None) -> None:
    ticks = instants("next", text, "--from", "2026-03-01T12:00Z")

    assert (ticks[0] if ticks else None) == first


def test_tz_sets_the_zone_of_a_cron() -> None:
    document = answered("next", "0 9 * * *", "--tz", "Europe/Berlin", "--from", "2026-07-01", "-n", "1")

    assert document["trigger"] == "0 9 * * * tz=Europe/Berlin"
    assert document["ticks"][0]["at"] == "2026-07-01T07:00:00Z"


def test_tz_also_places_a_start_without_an_offset() -> None:
    text = "0 9 * * * start=2026-07-01T08:00"

    assert "start=2026-07-01T06:00:00Z" in answered("next", text, "--tz", "Europe/Berlin")["trigger"]


def test_tz_may_repeat_the_zone_of_the_text_but_not_contradict_it() -> None:
    assert answered("next", f"0 9 * * * {BERLIN}", "--tz", "Europe/Berlin")["tz"] == "Europe/Berlin"
    assert refused("next", f"0 9 * * * {BERLIN}", "--tz", "Asia/Tokyo") == (
        "error: --tz Asia/Tokyo contradicts tz=Europe/Berlin in the expression; give the zone once\n"
    )


@pytest.mark.parametrize(
    "text", ["every 1h start=2026-07-01T00:00Z", "start=2026-07-01T00:00Z every 1h", "at 2026-07-01T10:00Z"]
)
def test_tz_only_changes_how_the_dates_of_other_triggers_are_shown(text: str) -> None:
    there = answered("next", text, "--from", "2026-07-01T09:00Z", "--tz", "Asia/Tokyo")
    here = answered("next", text, "--from", "2026-07-01T09:00Z")

    assert [tick["at"] for tick in there["ticks"]] == [tick["at"] for tick in here["ticks"]]
    assert (there["trigger"], there["tz"]) == (here["trigger"], "Asia/Tokyo")
    assert there["ticks"][0]["local"] == "2026-07-01T19:00:00+09:00"


def test_a_date_without_an_offset_is_read_in_the_zone_that_tz_names() -> None:
    ticks = instants("next", "at 2026-07-01 10:00", "--tz", "Europe/Berlin", "--from", "2026-01-01")

    assert ticks == ["2026-07-01T08:00:00Z"]


@pytest.mark.parametrize(
    ("since", "seen"),
    [
        ("2026-07-01T09:00", "2026-07-01T07:00:00Z"),
        ("2026-07-01 09:00:30", "2026-07-01T07:00:30Z"),
        ("2026-07-01", "2026-06-30T22:00:00Z"),
        ("2026-07-01T09:00Z", "2026-07-01T09:00:00Z"),
        ("2026-07-01T09:00-04:00", "2026-07-01T13:00:00Z"),
    ],
)
def test_from_is_in_the_zone_of_the_trigger_unless_it_has_an_offset(since: str, seen: str) -> None:
    assert answered("next", f"0 9 * * * {BERLIN}", "--from", since)["from"] == seen


def test_a_tick_at_from_itself_is_not_a_next_one() -> None:
    assert instants("next", "0 9 * * *", "--from", "2026-07-01T09:00", "-n", "1") == ["2026-07-02T09:00:00Z"]


def test_from_is_now_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_767_225_600.9)

    document = answered("next", "every 1s", "-n", "1")

    assert (document["from"], document["ticks"][0]["at"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z")


def test_a_name_resolves_h() -> None:
    document = answered("next", "H H * * *", "--name", "nightly", "--from", "2026-01-01", "-n", "1")

    assert document["trigger"] == str(parse_trigger("H H * * *").bind("nightly", 0))
    assert "H" not in document["trigger"]
    assert document["notes"] == []


def test_without_a_name_h_stays_open_and_a_note_says_so() -> None:
    args = ("next", "H 3 * * *", "--from", "2026-01-01")

    assert answered(*args)["trigger"] == "H 3 * * *"
    assert "\nnote:  H depends on the schedule's name: give the name" in printed(*args)


def test_a_period_without_a_start_counts_from_from_and_a_note_says_so() -> None:
    args = ("next", "every 10m", "--from", "2026-01-01T00:03", "-n", "2")

    assert instants(*args) == ["2026-01-01T00:13:00Z", "2026-01-01T00:23:00Z"]
    assert answered(*args)["trigger"] == "every 10m start=2026-01-01T00:13:00Z"
    assert printed(*args).endswith(
        "\nnote:  it has no start: the first tick is one period later, as for a new schedule\n"
    )


def test_a_period_with_a_start_needs_no_note() -> None:
    assert "note:" not in printed("next", "every 10m start=2026-01-01T00:00Z")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0 9 * * *", "1  Thu 2026-01-01 09:00 +00:00  9 h\n"),
        ("30 0 9 * * *", "1  Thu 2026-01-01 09:00:30 +00:00  9 h\n"),
        ("every 250ms", "1  Thu 2026-01-01 00:00:00.250 +00:00  250 ms\n"),
        ("every 90s", "1  Thu 2026-01-01 00:01:30 +00:00  1 min 30 s\n"),
        ("at 2026-01-04T03:00Z", "1  Sun 2026-01-04 03:00 +00:00  3 d 3 h\n"),
        ("0 0 29 2 *", "1  Tue 2028-02-29 00:00 +00:00  789 d\n"),
    ],
)
def test_dates_are_as_precise_and_spans_as_coarse_as_they_need_to_be(text: str, shown: str) -> None:
    assert shown in printed("next", text, "--from", "2026-01-01", "-n", "1")


def test_my_own_zone_is_a_second_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")

    table = printed("next", f"0 2 * * * {BERLIN}", "--from", "2026-01-01", "-n", "1").splitlines()[-3:]

    assert table[0] == "#  Europe/Berlin                America/New_York              in"
    assert table[2] == "1  Thu 2026-01-01 02:00 +01:00  Wed 2025-12-31 20:00 -05:00  2 h"


@pytest.mark.parametrize(
    ("mine", "zone"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":Europe/Berlin", "Europe/Berlin"),
        ("Etc/UTC", "UTC"),
        ("", "UTC"),
    ],
)
def test_my_own_zone_is_left_out_where_it_says_the_same(
    monkeypatch: pytest.MonkeyPatch, mine: str, zone: str
) -> None:
    monkeypatch.setenv("TZ", mine)

    assert printed("next", "0 2 * * *", "--tz", zone, "-n", "1").count("+0") == 1


@pytest.fixture
def posix_rule(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A zone that has rules but no name, as the C library reads it."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield "CET-1CEST,M3.5.0,M10.5.0/3"
    monkeypatch.undo()
    time.tzset()


def test_a_zone_without_a_name_is_called_local_time(posix_rule: str) -> None:
    document = answered("next", "0 2 * * *", "--from", "2026-07-01", "-n", "1")

    assert document["my_tz"] == "local time"
    assert document["ticks"][0]["mine"] == "2026-07-01T04:00:00+02:00"


def test_the_zone_of_the_system_is_found_by_its_link_or_its_name(tmp_path: Path) -> None:
    assert local._system_zones(tmp_path) == ["UTC"]
    (tmp_path / "timezone").write_text("Asia/Tokyo\n")
    (tmp_path / "localtime").write_bytes(b"a copy")
    assert local._system_zones(tmp_path) == ["Asia/Tokyo"]
    (tmp_path / "localtime").unlink()
    (tmp_path / "localtime").symlink_to("/var/db/timezone/zoneinfo/Europe/Berlin")
    assert local._system_zones(tmp_path) == ["Europe/Berlin", "Asia/Tokyo"]


def test_a_tick_that_the_clock_moved_is_marked_and_the_note_stands_below() -> None:
    lines = printed("next", f"30 2 * * * {BERLIN}", "--from", "2026-03-28", "-n", "3").splitlines()

    assert [line[:2] for line in lines[5:8]] == [" 1", "2*", " 3"]
    assert lines[8:] == ["", "2*  02:30 does not exist on this day: the clock goes from 02:00 to 03:00"]


def test_ticks_of_the_same_repeated_hour_share_a_note() -> None:
    lines = printed("next", f"*/15 * * * * {BERLIN}", "--from", "2026-10-25T01:40", "-n", "10").splitlines()

    assert lines[-2:] == [
        "2-5*  02:00 to 02:45 come twice on this day: first pass",
        "6-9*  02:00 to 02:45 come twice on this day: second pass",
    ]


def test_ticks_of_different_years_do_not_share_a_note() -> None:
    lines = printed("next", f"30 2 * 10 sunL {BERLIN}", "--from", "2026-01-01", "-n", "2").splitlines()

    assert lines[-2:] == [f"{n}*  02:30 comes twice on this day: first pass" for n in (1, 2)]


def test_calm_ticks_have_neither_marks_nor_notes() -> None:
    assert "*" not in printed("next", f"0 9 * * * {BERLIN}", "--from", "2026-01-01")


@pytest.mark.parametrize(
    ("text", "count", "reason"),
    [
        ("0 9 * * * until=2026-01-02T12:00", 2, "no more ticks: it ends at Fri 2026-01-02 12:00 +00:00"),
        ("0 9 * * * until=2025-12-31", 0, "no ticks: it ended at Wed 2025-12-31 00:00 +00:00"),
        (
            "@monthly until=2026-01-10",
            0,
            "no ticks: it ends at Sat 2026-01-10 00:00 +00:00, before the first one",
        ),
        ("every 1d until=2026-01-03T00:00Z", 2, "no more ticks: it ends at Sat 2026-01-03 00:00 +00:00"),
        ("at 2026-01-02T00:00Z", 1, "no more ticks: it runs once"),
        ("every 0s start=2026-01-02T00:00Z", 1, "no more ticks: it runs once"),
        (
            "at 2025-12-31T21:30Z",
            0,
            (
                "no tick after Thu 2026-01-01 00:00 +00:00: the only one was 2 h 30 min before;"
                " a new schedule would run it at once"
            ),
        ),
        (
            "at 2026-01-01T00:00Z",
            0,
            "no tick after Thu 2026-01-01 00:00 +00:00: the only one is at that very moment",
        ),
    ],
)
def test_fewer_ticks_than_asked_for_have_a_reason(text: str, count: int, reason: str) -> None:
    document = answered("next", text, "--from", "2026-01-01T00:00Z")

    assert (len(document["ticks"]), document["notes"][-1]) == (count, reason)
    assert printed("next", text, "--from", "2026-01-01T00:00Z").endswith(f"\nnote:  {reason}\n")


def test_the_last_year_of_the_calendar_is_a_reason_too() -> None:
    document = answered("next", "@yearly", "--from", "9998-06-01")

    assert (len(document["ticks"]), document["notes"]) == (
        1,
        ["no more ticks: the calendar ends with the year 9999"],
    )


def test_json_is_one_object_with_everything_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")

    assert answered("next", f"30 2 * * * {BERLIN}", "--from", "2026-03-28T12:00", "-n", "2") == {
        "trigger": "30 2 * * * tz=Europe/Berlin",
        "explain": parse_trigger(f"30 2 * * * {BERLIN}").explain(),
        "tz": "Europe/Berlin",
        "my_tz": "America/New_York",
        "from": "2026-03-28T11:00:00Z",
        "ticks": [
            {
                "at": "2026-03-29T01:00:00Z",
                "local": "2026-03-29T03:00:00+02:00",
                "mine": "2026-03-28T21:00:00-04:00",
                "in_seconds": 50_400,
                "note": "02:30 does not exist on this day: the clock goes from 02:00 to 03:00",
            },
            {
                "at": "2026-03-30T00:30:00Z",
                "local": "2026-03-30T02:30:00+02:00",
                "mine": "2026-03-29T20:30:00-04:00",
                "in_seconds": 135_000,
                "note": None,
            },
        ],
        "notes": [],
    }


def test_the_dates_in_json_are_read_back_as_the_same_instant() -> None:
    tick = answered("next", "every 250ms", "--from", "2026-01-01", "-n", "1", "--tz", "Asia/Tokyo")["ticks"][
        0
    ]

    seen = {datetime.fromisoformat(tick[key]) for key in ("at", "local", "mine")}
    assert seen == {datetime(2025, 12, 31, 15, 0, 0, 250_000, tzinfo=UTC)}
    assert tick["in_seconds"] == 0.25


# -- explain ------------------------------------------------------------------------------------


def explained(text: str, *args: str) -> list[str]:
    return printed("explain", text, "--from", "2026-01-01", *args).splitlines()


def test_explain_shows_the_rule_the_zone_the_ticks_and_clock_changes() -> None:
    assert explained("30 2 * * *", "--tz", "Europe/Berlin") == [
        "At 02:30 every day (Europe/Berlin)",
        "A time that the clock skips or repeats runs once",
        "",
        "trigger  30 2 * * * tz=Europe/Berlin",
        "zone     Europe/Berlin (+01:00 on 2026-01-01)",
        "clock    Sun 2026-03-29 goes from 02:00 to 03:00",
        "           02:30 does not exist: it runs at 03:00 instead",
        "         Sun 2026-10-25 goes back from 03:00 to 02:00",
        "           02:30 comes twice: it runs the first time only",
        "next     Thu 2026-01-01 02:30 +01:00, in 2 h 30 min",
        "         Fri 2026-01-02 02:30 +01:00, in 1 d 2 h",
        "         Sat 2026-01-03 02:30 +01:00, in 2 d 2 h",
    ]


@pytest.mark.parametrize(
    ("text", "forward", "back"),
    [
        (
            "30 2 * * * gap=skip repeat=both",
            "02:30 does not exist: it does not run on this day",
            "02:30 comes twice: it runs both times",
        ),
        (
            "0,30 2 * * * repeat=last",
            "02:00 to 02:30 do not exist: one tick at 03:00 instead",
            "02:00 to 02:30 come twice: they run the second time only",
        ),
        (
            "*/15 * * * *",
            "02:00 to 02:45 do not exist: after 01:45 comes 03:00",
            "02:00 to 02:45 come twice: they run both times",
        ),
        (
            "0 2,3 * * *",
            "02:00 does not exist: the tick at 03:00 stands for it too",
            "02:00 comes twice: it runs the first time only",
        ),
        (
            "0,30 2 * * * gap=skip",
            "02:00 to 02:30 do not exist: they do not run on this day",
            "02:00 to 02:30 come twice: they run the first time only",
        ),
        ("30 2 * * mon-fri", "no tick falls in there", "no tick falls in there"),
        ("0 3 * * *", "no tick falls in there", "no tick falls in there"),
    ],
)
def test_explain_shows_the_effect_of_each_change(text: str, forward: str, back: str) -> None:
    document = answered("explain", text, "--tz", "Europe/Berlin", "--from", "2026-01-01")

    assert document["clock_changes"] == [
        {"at": "2026-03-29T01:00:00Z", "clock_from": "02:00", "clock_to": "03:00", "effect": forward},
        {"at": "2026-10-25T01:00:00Z", "clock_from": "03:00", "clock_to": "02:00", "effect": back},
    ]


@pytest.mark.parametrize(
    "text",
    [
        "30 2 * * *",
        "30 2 * * * gap=skip repeat=both",
        "30 2 * * * repeat=last",
        "*/20 * * * *",
        "0 2,3 * * *",
    ],
)
def test_the_ticks_have_the_effect_that_explain_shows(text: str) -> None:
    """The words are checked against the library's own ticks, around the same two changes."""
    trigger = parse_trigger(f"{text} {BERLIN}")
    forward, back = answered("explain", text, "--tz", "Europe/Berlin", "--from", "2026-01-01")[
        "clock_changes"
    ]
    gap = [tick.strftime("%H:%M") for tick in day(trigger, "2026-03-29")]
    twice = [tick.strftime("%H:%M%z") for tick in day(trigger, "2026-10-25")]

    if (
        instead := re.search(r"runs at (\S+) instead|the tick at (\S+) stands", forward["effect"])
    ) is not None:
        assert (instead[1] or instead[2]) in gap
    elif "does not run" in forward["effect"]:
        assert gap == []
    else:
        assert re.findall(r"after (\S+) comes (\S+)", forward["effect"]) == [
            pair for pair in pairwise(gap) if pair[0] < "02:00" <= pair[1]
        ]
    passes = {tick[5:] for tick in twice if tick.startswith("02:")}
    assert (
        passes
        == {
            "both times": {"+0200", "+0100"},
            "the first time only": {"+0200"},
            "the second time only": {"+0100"},
        }[re.split(r"runs? ", back["effect"])[1]]
    )


def day(trigger: Any, date: str) -> list[datetime]:
    start = datetime.fromisoformat(f"{date}T00:00").replace(tzinfo=trigger.tzinfo)
    return list(trigger.between(start, start.replace(hour=23, minute=59)))


@pytest.mark.parametrize(
    "zone", ["Australia/Lord_Howe", "America/St_Johns", "Africa/Casablanca", "Europe/Dublin"]
)
def test_explain_finds_the_changes_of_unusual_zones(zone: str) -> None:
    changes = answered("explain", "0 9 * * *", "--tz", zone, "--from", "2026-01-01")["clock_changes"]

    assert len(changes) == 2
    assert changes[0]["clock_from"] != changes[0]["clock_to"]


def test_explain_says_when_a_zone_has_given_up_changing() -> None:
    assert "clock    no change ahead" in explained("0 9 * * *", "--tz", "Asia/Kolkata")


def test_explain_shows_no_change_after_the_end_of_a_trigger() -> None:
    assert "clock    no change before it ends" in explained(f"0 9 * * * {BERLIN} until=2026-02-01")
    later = answered("explain", f"0 9 * * * {BERLIN} start=2028-01-01", "--from", "2026-01-01")
    assert later["clock_changes"][0]["at"].startswith("2028-03-26")


@pytest.mark.parametrize("args", [("0 9 * * *",), ("at 2026-01-02T00:00Z", "--tz", "Europe/Berlin")])
def test_explain_is_silent_about_the_clock_where_it_cannot_matter(args: tuple[str, ...]) -> None:
    assert not any(line.startswith("clock") for line in explained(*args))


def test_explain_says_that_a_period_is_real_time() -> None:
    lines = explained("every 1d", "--tz", "Europe/Berlin")

    assert "clock    counts real time: a change of the clock moves no tick" in lines


def test_explain_shows_the_trigger_that_a_schedule_would_keep() -> None:
    lines = explained("H H * * *", "--name", "nightly")

    assert "trigger  H H * * *" in lines
    assert f"becomes  {parse_trigger('H H * * *').bind('nightly', 0)}" in lines


def test_explain_says_why_there_are_fewer_ticks() -> None:
    assert explained("at 2026-01-02T00:00Z")[-1] == "note     no more ticks: it runs once"


def test_explain_as_json_is_like_next_with_the_changes() -> None:
    args = (f"30 2 * * * {BERLIN}", "--from", "2026-03-28")
    explain, ticks = answered("explain", *args), answered("next", *args, "-n", "3")

    assert explain | ticks == explain
    assert set(explain) - set(ticks) == {"clock_changes"}


# -- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("0 25 * * *", ["error: hour 25 is out of 0-23", "    0 25 * * *", "      ^^"]),
        (
            "0 9 * * mon,wde tz=Asia/Tokyo",
            [
                'error: day of week "wde" is neither 0-7 nor a name',
                "    0 9 * * mon,wde tz=Asia/Tokyo",
                "                ^^^",
                "hint: did you mean wed?",
            ],
        ),
        (
            "tz=Asia/Tokyo 0 24 * * *",
            [
                "error: hour 24 is out of 0-23",
                "    tz=Asia/Tokyo 0 24 * * *",
                "                    ^^",
                "hint: midnight is hour 0",
            ],
        ),
        (
            "0 9 * * * tz=Berlin",
            [
                'error: tz "Berlin" is not an IANA time zone',
                "    0 9 * * * tz=Berlin",
                "                 ^^^^^^",
                "hint: did you mean Europe/Berlin?",
            ],
        ),
        (
            "0 9 * * * gpa=skip",
            [
                'error: option "gpa" is not known here',
                "    0 9 * * * gpa=skip",
                "              ^^^",
                "hint: did you mean gap=?",
            ],
        ),
        (
            "0 0 30 2 *",
            [
                "error: the expression never matches: February has no day 30",
                "    0 0 30 2 *",
                "        ^^",
                "hint: for the last day of a month write L",
            ],
        ),
        (
            "every 10x",
            [
                'error: every "10x" is not a duration',
                "    every 10x",
                "          ^^^",
                'hint: write it like "10s", "5m", "1h30m" or "7d"',
            ],
        ),
        (
            "every 10m start=2026-01-01T09:00",
            [
                'error: start "2026-01-01T09:00" has no offset and no time zone',
                "    every 10m start=2026-01-01T09:00",
                "                    ^^^^^^^^^^^^^^^^",
                'hint: write "2026-01-01T09:00Z" if UTC is meant, or an offset such as +01:00',
            ],
        ),
        (
            "at 2026-01-01T09:00",
            [
                'error: at "2026-01-01T09:00" has no offset and no time zone',
                "    at 2026-01-01T09:00",
                "       ^^^^^^^^^^^^^^^^",
                'hint: write "2026-01-01T09:00Z" if UTC is meant, or an offset such as +01:00',
            ],
        ),
    ],
)
def test_a_refused_expression_is_shown_with_the_place(text: str, lines: list[str]) -> None:
    assert refused("next", text).splitlines() == lines


@pytest.mark.parametrize("command", ["next", "explain"])
def test_an_error_in_the_first_field_is_marked_there(command: str) -> None:
    assert refused(command, "61 * * * *").splitlines()[1:3] == ["    61 * * * *", "    ^^"]


def test_advice_is_given_in_the_words_of_the_command_line() -> None:
    assert "hint: for a period write every 90s\n" in refused("next", "90s")
    assert "hint: for a period of 90m write every 90m\n" in refused("next", "*/90 * * * *")


def test_a_long_expression_is_cut_around_its_error() -> None:
    minutes = ",".join(str(minute) for minute in range(75))

    _, text, carets = refused("next", f"{minutes} * * * *").splitlines()

    assert text[carets.index("^") :].startswith("60,")
    assert (text[4], text[-1]) == ("…", "…")
    assert len(text) < 80


def test_a_long_mistake_is_cut_too() -> None:
    _, text, carets, *_ = refused("next", f"0 9 * * {'x' * 200}").splitlines()

    assert len(text) == len(carets) + 1 < 80


def test_the_caret_finds_its_place_under_wide_characters() -> None:
    _, text, carets, *_ = refused("next", "0 日 * * *").splitlines()

    assert (text, carets) == ("    0 日 * * *", "      ^^")


def test_control_characters_of_an_expression_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in refused("next", "\x1b[31m1 * * * *")


def test_file_names_in_place_of_a_star_are_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.txt").touch()
    monkeypatch.chdir(tmp_path)

    last = refused("next", "0", "9", "notes.txt", "notes.txt", "notes.txt").splitlines()[-1]

    assert last == "hint: the shell put file names in place of *: quote the expression, '0 9 * * *'"


def test_other_refused_values_are_one_line() -> None:
    assert refused("next", "@daily", "--from", "tomorrow") == (
        'error: --from "tomorrow" is not a date and time;'
        ' write it as "2026-03-01T09:00:00Z" or "2026-03-01T09:00:00+01:00"\n'
    )
    assert refused("next", "@daily", "--tz", "Mars") == (
        'error: --tz "Mars" is not an IANA time zone; use an IANA name such as "Europe/Berlin"\n'
    )


def test_a_missing_expression_is_asked_for() -> None:
    assert refused("next") == (
        "error: missing argument 'EXPR'\nhint: 'evenbeat next --help' shows how it is called\n"
    )


def test_any_error_of_the_library_is_a_line_and_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise InvalidValue("the moon is full", field="moon", value="full")

    monkeypatch.setattr(next_command, "explain_input", refuse)

    assert refused("next", "@daily") == "error: the moon is full\n"


def test_a_defect_of_ours_is_not_dressed_up_as_an_error_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(next_command, "explain_input", crash)

    assert isinstance(run("next", "@daily").exception, ZeroDivisionError)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("nxet", "@daily"), "error: no such command 'nxet': did you mean next?\n"),
        (("forcast",), "error: no such command 'forcast': did you mean forecast?\n"),
        (("--vresion",), "error: no such option '--vresion': did you mean --version?\n"),
        (("next", "@daily", "--jsno"), "error: no such option '--jsno': did you mean --json or --store?\n"),
        (("qqq",), "error: no such command 'qqq'\nhint: 'evenbeat --help' shows how it is called\n"),
        (
            ("next", "0", "9", "*", "*", "*", "-x"),
            "error: no such option '-x'\nhint: 'evenbeat next --help' shows how it is called\n",
        ),
    ],
)
def test_typos_are_answered_with_the_nearest_name(args: tuple[str, ...], message: str) -> None:
    assert refused(*args) == message


# -- help ---------------------------------------------------------------------------------------


def test_help_lists_the_commands_in_their_sections() -> None:
    text = printed("--help")

    assert text == printed("-h") == printed()
    assert re.search(r"^When it runs:\n  next +Show the next ticks.*\n  explain ", text, re.MULTILINE)


def test_the_help_in_the_table_is_that_of_the_command() -> None:
    assert root.lazy
    for name, lazy in root.lazy.items():
        command = import_module(lazy.module).command
        assert isinstance(command, click.Command)
        assert (command.name, command.get_short_help_str(limit=200)) == (name, lazy.help)


@pytest.mark.parametrize("command", ["next", "explain"])
def test_each_command_has_help_that_fits_a_terminal(command: str) -> None:
    text = printed(command, "-h")

    assert text == printed(command, "--help")
    assert text.startswith(f"Usage: evenbeat {command} [OPTIONS] EXPR\n")
    assert max(map(len, text.splitlines())) <= 80


def test_the_version_is_printed() -> None:
    assert printed("--version") == f"evenbeat {__version__}\n"


def loaded(*args: str) -> set[str]:
    """The modules that are there after a command."""
    code = (
        "import sys; from evenbeat.cli.root import root\n"
        "root.main(sys.argv[1:], standalone_mode=False)\n"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, *args]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    return set(done.stderr.splitlines())


def test_help_loads_neither_rich_nor_numpy_nor_any_command() -> None:
    modules = loaded("--help")

    assert "evenbeat.cli.root" in modules
    assert not modules & {"rich", "numpy", "evenbeat.cli.commands"}


def test_an_answer_in_json_does_not_load_rich() -> None:
    modules = loaded("next", "@daily", "--json")

    assert "evenbeat.cli.commands.next" in modules
    assert not modules & {"rich", "numpy", "evenbeat.cli.commands.explain"}


def test_an_answer_for_people_is_where_rich_is_loaded() -> None:
    assert "rich" in loaded("next", "@daily")


# -- terminals, pipes and signals ---------------------------------------------------------------

DATE = re.compile(r"(?:[A-Z][a-z]{2} )?\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)? [+-]\d\d:\d\d")


@pytest.mark.parametrize("text", [f"30 2 * * * {BERLIN}", f"15 30 2 * * * {BERLIN}"])
@pytest.mark.parametrize("columns", [50, 60, 72, 80, 100, 120])
def test_no_width_breaks_a_date(monkeypatch: pytest.MonkeyPatch, text: str, columns: int) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    monkeypatch.setenv("COLUMNS", str(columns))

    lines = printed("next", text, "--from", "2026-03-27", "-n", "12").splitlines()

    rows = [line for line in lines if re.match(r" *\d+[* ] ", line) and "-" in line]
    assert len(rows) == 12
    assert all(DATE.search(row) for row in rows)
    assert max(map(len, lines)) <= columns
    assert not any("…" in line for line in lines)


def test_both_zones_with_weekdays_and_seconds_fit_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    monkeypatch.setenv("COLUMNS", "80")

    row = printed("next", f"15 30 2 * * * {BERLIN}", "--from", "2026-03-27", "-n", "12").splitlines()[-3]

    assert row == " 12  Tue 2026-04-07 02:30:15 +02:00  Mon 2026-04-06 20:30:15 -04:00    11 d 1 h"


def test_a_pipe_gets_whole_lines_without_colours() -> None:
    minutes = ",".join(str(minute) for minute in range(0, 60, 7))
    text = printed("explain", f"{minutes} 2,5,9,14,20 1,5,9,13,18,27 * * {BERLIN}", "--from", "2026-01-01")

    assert ESCAPE not in text
    assert text.splitlines()[0].endswith("(Europe/Berlin)")
    assert len(text.splitlines()[0]) > 120
    assert not any(line.endswith(" ") for line in text.splitlines())


def on_a_terminal(*args: str, **environment: str) -> str:
    """What a command writes to a terminal."""
    main, other = pty.openpty()
    command = [sys.executable, "-m", "evenbeat", *args]
    variables = {**os.environ, "TERM": "xterm-256color", **environment}
    with subprocess.Popen(command, stdout=other, stderr=other, env=variables) as child:
        os.close(other)
        seen = b""
        try:
            while chunk := os.read(main, 4096):
                seen += chunk
        except OSError:  # Linux: the other end is closed
            pass
        child.wait()
    os.close(main)
    return seen.decode()


@pytest.mark.parametrize("args", [("next", "0 9 * * *"), ("--help",), ("nxet",)])
def test_a_terminal_gets_colours_unless_they_are_not_wanted(args: tuple[str, ...]) -> None:
    assert ESCAPE in on_a_terminal(*args)
    assert ESCAPE not in on_a_terminal(*args, NO_COLOR="1")


def writing_to(output: int, *args: str) -> tuple[int, str]:
    """The exit code and stderr of a command with this stdout, buffered as it is for users."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "evenbeat", *args]
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, env=variables, check=False)
    return done.returncode, done.stderr.decode()


ANSWERS = [("next", "@daily"), ("next", "* * * * *", "-n", "1000"), ("--help",), ("explain", "--help")]


@pytest.mark.parametrize("args", ANSWERS)
def test_a_reader_that_goes_away_ends_the_command_quietly(args: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)

    assert writing_to(writer, *args) == (141, "")

    os.close(writer)


@pytest.mark.parametrize("args", ANSWERS)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
def test_a_full_disk_is_a_line_and_exit_code_1(args: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        result = writing_to(full.fileno(), *args)

    assert result == (1, "error: the output could not be written: No space left on device\n")


def test_ctrl_c_ends_the_command_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(next_command, "explain_input", interrupt)

    result = run("next", "@daily")

    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "\n")


def test_an_output_that_knows_only_ascii_is_served_too() -> None:
    done = process("next", "@daily", env={**os.environ, "PYTHONIOENCODING": "ascii"})

    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.splitlines()[3]) == {"-"}


def test_the_installed_script_is_the_same_command() -> None:
    script = Path(sys.executable).with_name("evenbeat")

    done = subprocess.run([script, "--version"], capture_output=True, encoding="utf-8", check=True)

    assert done.stdout == f"evenbeat {__version__}\n"
