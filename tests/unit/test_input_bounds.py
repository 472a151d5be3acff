"""The largest inputs that docs/security.md names: the bound is accepted, and what lies beyond is refused.

No test here looks at a clock: sizes, refusals and counted steps prove the bounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from evenbeat import InvalidTrigger, InvalidValue, parse_trigger
from evenbeat.app.calendar_sources import Sources, compile_calendar
from evenbeat.core.backfills import MOST_TICKS
from evenbeat.core.calendars import LONGEST_ICS, YEARS_AHEAD
from evenbeat.core.dependencies import LONGEST_AFTER, MOST_PREDECESSORS, parse_after
from evenbeat.core.json_depth import TooDeep, decode
from evenbeat.core.json_text import to_json
from evenbeat.core.rates import LONGEST_RATE
from evenbeat.core.records import LONGEST_PAYLOAD
from evenbeat.triggers import zones as zones_module
from evenbeat.triggers.calendar_events import LONGEST_EVENT, STEPS_A_ZONE, read_events
from evenbeat.triggers.calendar_texts import MOST_DAYS, MOST_NAMED, MOST_TEXTS
from evenbeat.triggers.calendared import _MOST_STRETCHES
from evenbeat.triggers.expression import LONGEST_TEXT
from evenbeat.triggers.recurrences import MOST_STEPS, MOST_VALUES, Steps, TooManySteps
from evenbeat.web.binding import LONGEST_BODY

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
TODAY = date(2026, 3, 1)


def rows() -> dict[str, str]:
    """Return the bounds of the table, by input."""
    section = PAGE.read_text(encoding="utf-8").partition("## The largest inputs")[2].partition("\n## ")[0]
    return {
        found[1].strip("`"): found[2] for found in re.finditer(r"^\| ([^|]+) \| ([^|]+) \|", section, re.M)
    }


def test_the_table_has_the_bounds_of_the_code() -> None:
    table = rows()
    wanted = {
        "body of a request, as JSON": (LONGEST_BODY, 100),
        "payload": (LONGEST_PAYLOAD,),
        "trigger": (LONGEST_TEXT,),
        "ticks of a trigger with calendars": (_MOST_STRETCHES,),
        "days` and `without` of a calendar": (MOST_TEXTS, MOST_NAMED, MOST_DAYS),
        "ics`: the file": (LONGEST_ICS, MOST_DAYS, YEARS_AHEAD),
        "ics`: lines and repetitions": (MOST_STEPS,),
        "ics`: a list of a rule": (MOST_VALUES,),
        "ics`: one event": (LONGEST_EVENT.days,),
        "ics`: time zones": (STEPS_A_ZONE,),
        "after": (LONGEST_AFTER, MOST_PREDECESSORS),
        "rates, durations, times": (LONGEST_RATE, 50, 100),
        "ticks of a backfill": (MOST_TICKS,),
    }
    for name, numbers in wanted.items():
        found = [int(each.replace(",", "")) for each in re.findall(r"\d[\d,]*", table[name])]
        assert found[: len(numbers)] == list(numbers), name


def calendar(**given: object) -> Callable[[], object]:
    return lambda: compile_calendar(Sources(**given), TODAY)  # type: ignore[arg-type]


def file(*events: str) -> str:
    return "".join(
        (
            "BEGIN:VCALENDAR\n",
            *(f"BEGIN:VEVENT\n{event}\nEND:VEVENT\n" for event in events),
            "END:VCALENDAR\n",
        )
    )


DAY = "DTSTART;VALUE=DATE:20260301"
RANGE = "1970-01-01..2024-10-03"


@pytest.mark.parametrize(
    ("accepted", "refused"),
    [
        (lambda: decode("[" * 100 + "]" * 100), lambda: decode("[" * 101 + "]" * 101)),
        (lambda: to_json("x" * (LONGEST_PAYLOAD - 2)), lambda: to_json("x" * LONGEST_PAYLOAD)),
        (
            lambda: parse_trigger("0 0 * * " + "1," * 495 + "1"),
            lambda: parse_trigger("0 0 * * " + "1," * 500 + "1"),
        ),
        (lambda: parse_trigger("0 0 29 2 *"), lambda: parse_trigger("0 0 30 2 *")),
        (calendar(days=[RANGE] * 5), calendar(days=[RANGE] * 6)),
        (calendar(days=["01-01..12-31"] * 273), calendar(days=["01-01..12-31"] * 274)),
        (calendar(days=[RANGE]), calendar(days=["1970-01-01..2024-10-04"])),
        (calendar(ics=file(*[DAY] * 17_000)), calendar(ics=" " * (LONGEST_ICS + 1))),
        (
            calendar(
                ics=file(
                    f"{DAY}\nRDATE:"
                    + ",".join(f"2026{n // 28 % 12 + 1:02}{n % 28 + 1:02}" for n in range(300))
                )
            ),
            calendar(ics=file(f"{DAY}\nDURATION:P3000D\nRRULE:FREQ=DAILY;COUNT=7")),
        ),
        (calendar(ics=file(f"{DAY}\nDURATION:P3660D")), calendar(ics=file(f"{DAY}\nDURATION:P3661D"))),
        (calendar(ics=file(f"{DAY}\nRRULE:FREQ=DAILY")), calendar(ics=file(f"{DAY}\nRRULE:FREQ=HOURLY"))),
        (
            lambda: parse_after(", ".join(f"n{n}" for n in range(20)) + " within 1h"),
            lambda: parse_after(", ".join(f"n{n}" for n in range(21)) + " within 1h"),
        ),
    ],
)
def test_a_bound_is_accepted_and_more_is_refused(
    accepted: Callable[[], object], refused: Callable[[], object]
) -> None:
    accepted()
    with pytest.raises((InvalidValue, InvalidTrigger, TooDeep)):
        refused()


def test_finding_zones_counts_and_looks_for_no_similar_names(monkeypatch: pytest.MonkeyPatch) -> None:
    # The nearest names take milliseconds, and the file does not show them.
    monkeypatch.setattr(zones_module, "_unknown", lambda key: pytest.fail(f"looks for names like {key}"))

    def work(zones: int) -> int:
        steps = Steps()
        events = [f"DTSTART;TZID=x{n}/Europe/Berlin:20260301T090000" for n in range(zones)]
        assert len(list(read_events(file(*events), "UTC", TODAY, TODAY, steps))) == zones
        return steps.taken

    # The first and last line, and for each event three lines and one parameter.
    assert work(3) == 2 + 3 * (4 + STEPS_A_ZONE)
    with pytest.raises(TooManySteps):
        work(MOST_STEPS // STEPS_A_ZONE)
