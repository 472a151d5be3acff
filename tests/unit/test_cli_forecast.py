"""``evenbeat forecast``."""

from __future__ import annotations

import pytest

from evenbeat import Scheduler
from tests.lengths import LONG
from tests.unit import cli_store
from tests.unit.cli_store import answered, printed

app, clock = cli_store.app, cli_store.clock


def test_the_load_ahead_is_drawn_with_where_schedules_meet(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        app.schedules.add(f"import-{number}", "0 * * * *", "t")
    app.schedules.add("poll", "*/30 * * * *", "t")
    app.schedules.add("off", "* * * * *", "t")
    app.schedules.pause("off")
    monkeypatch.setenv("COLUMNS", "60")

    lines = printed("forecast", "--hours", "4", "--minutes", "15").splitlines()
    assert lines == [
        "31 runs of 9 schedules",
        "in the next 4 hours, up to 9 a minute (UTC)",
        "",
        "9     █   █   █",
        "      █   █   █",
        "      █   █   █",
        "      █   █   █",
        "      █   █   █",
        "0   ▅ █ ▅ █ ▅ █ ▅",
        "  08:00   10:00",
        "",
        "busiest           runs  schedules",
        "─" * 60,
        "09:00 and 2 more     9  import-0, import-1, import-2,",
        "                        import-3, import-4, import-5 and 3",
        "                        more",
        "",
        "quiet:   08:00 to 08:30 (30 min): no runs",
        "quiet:   08:31 to 09:00 (29 min): no runs",
        "quiet:   09:01 to 09:30 (29 min): no runs",
        "spread:  15m for import-0, import-1, import-2, import-3,",
        "         import-4, import-5 and 3 more lowers 09:00 from 9",
        "         to 2 runs a minute",
        "hint:    write H for the minute ('H * * * *'): each schedule",
        "         gets its own minute; or set a spread",
    ]


def test_the_forecast_as_json(app: Scheduler) -> None:
    app.schedules.add("a", "0 * * * *", "t")
    app.schedules.add("b", "0 9 * * *", "t", tenant="acme")

    document = answered("forecast", "--hours", "2", "--minutes", "60", "--all-tenants")
    assert document == {
        "from": "2026-03-02T08:00:00Z",
        "until": "2026-03-02T10:00:00Z",
        "schedules": 2,
        "runs": 2,
        "minutes": 60,
        "bars": [{"at": "2026-03-02T08:00:00Z", "runs": 0}, {"at": "2026-03-02T09:00:00Z", "runs": 2}],
        "busiest": [
            {"runs": 2, "at": ["2026-03-02T09:00:00Z"], "schedules": ["acme/b", "default/a"], "more": 0}
        ],
        "quiet": [
            {"start": "2026-03-02T08:00:00Z", "end": "2026-03-02T09:00:00Z", "runs": 0, "most": 0},
            {"start": "2026-03-02T09:01:00Z", "end": "2026-03-02T10:00:00Z", "runs": 0, "most": 0},
        ],
        "proposals": [],
        "notes": [],
    }
    assert answered("forecast", "--hours", "2")["runs"] == 1


def test_a_pause_that_ends_and_a_moved_run_are_foreseen(app: Scheduler) -> None:
    app.schedules.add("a", "0 * * * *", "t")
    app.schedules.pause("a", until="2026-03-02T10:30Z")
    app.schedules.add("b", "@daily", "t")
    app.schedules.reschedule("b", "2026-03-02T09:07Z")
    app.schedules.add("over", "at 2026-03-02T09:00Z", "t")
    app.schedules.pause("over", until="2026-03-02T10:30Z")

    bars = answered("forecast", "--hours", "5", "--minutes", "60")["bars"]
    assert [bar["runs"] for bar in bars] == [0, 1, 0, 1, 1]


def test_a_forecast_without_runs_is_one_line(app: Scheduler) -> None:
    app.schedules.add("a", "@yearly", "t")

    assert printed("forecast") == "1 active schedule, no runs in the next 24 hours\n"


def test_a_forecast_begins_at_any_time(app: Scheduler) -> None:
    app.schedules.add("a", "0 9 4 * *", "t")

    assert answered("forecast", "--hours", "2", "--from", "2026-03-04 08:00")["runs"] == 1
    words = printed("forecast", "--hours", "2", "--from", "2026-03-03 08:00")
    assert words == "1 active schedule, no runs in 2 hours from Tue 2026-03-03 08:00 +00:00\n"


@pytest.mark.parametrize("columns", [30, *(pytest.param(each, marks=LONG) for each in (60, 100, 200))])
def test_a_forecast_fits_any_terminal(app: Scheduler, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    for number in range(30):
        app.schedules.add(f"import-{number}", "*/5 * * * *", "t")
    monkeypatch.setenv("COLUMNS", str(columns))

    for args in ((), ("--minutes", "1", "--hours", "3"), ("--hours", "744")):
        lines = printed("forecast", *args).splitlines()
        assert max(map(len, lines)) <= columns
