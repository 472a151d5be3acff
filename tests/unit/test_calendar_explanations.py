"""Why a tick of before a change of its calendar did not run."""

from __future__ import annotations

import pytest

from evenbeat.testing import virtual


def test_why_knows_a_tick_that_waits_for_a_free_day_since_before_a_change() -> None:
    with virtual(now="2026-03-22T05:17:00Z") as app:

        @app.task
        def work() -> None: ...

        app.calendars.set("off", days=[f"2026-03-{day}" for day in range(23, 27)])
        app.schedules.add("beat", "0 9 * * * skip=off move=next", "work")
        app.travel("2d")
        app.calendars.set("off", days=[f"2026-03-{day}" for day in range(23, 28)])
        why = app.schedules.why("beat", "2026-03-23T09:00Z")
        assert why.verdict == "calendar"
        assert "moves to Sat 2026-03-28 09:00" in why.sentence
        app.travel("5d")
        assert app.schedules.why("beat", "2026-03-23T09:00Z").verdict == "calendar"


@pytest.mark.parametrize("trigger", ["every 5h skip=off", "17 10,15,20 * * * skip=off"])
def test_why_knows_the_last_tick_that_a_calendar_removed_before_it_changed(trigger: str) -> None:
    with virtual(now="2026-03-22T05:17:00Z") as app:

        @app.task
        def work() -> None: ...

        app.calendars.set("off", weekly=["sun 15:00-16:00"])
        app.schedules.add("beat", trigger, "work")
        # A change in the same minute as the tick of the cron.
        app.travel("12h" if trigger.startswith("every") else "10h 30s")
        app.calendars.set("off", days=["2026-05-01"])
        verdicts = [
            app.schedules.why("beat", f"2026-03-22T{at}Z").verdict for at in ("10:17", "15:17", "20:17")
        ]
        assert verdicts == ["succeeded", "calendar", "not_due"]
