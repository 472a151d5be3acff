"""The lines of ``evenbeat dev``: the line of each event."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console

from evenbeat import Scheduler
from evenbeat.cli.live import LiveOutput
from evenbeat.core.records import RunRecord
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock


@pytest.fixture
def page() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def app(page: io.StringIO) -> Iterator[Scheduler]:
    app = Scheduler(MemoryStore(VirtualClock()))
    LiveOutput(app).console = Console(file=page, width=200)
    yield app
    app.close()


@pytest.mark.parametrize(
    ("count", "reason", "line"),
    [
        (1, "coalesced", "1 tick not run: missed; a later run stands for it (catch-up latest)"),
        (2, "coalesced", "2 ticks not run: missed; a later run stands for them (catch-up latest)"),
        (1, "paused", "1 tick not run: the schedule was paused"),
    ],
)
def test_skipped_ticks_are_counted_in_words(
    app: Scheduler, page: io.StringIO, count: int, reason: Any, line: str
) -> None:
    app.events.publish("skipped", 0, key=("default", "beat"), count=count, reason=reason)
    assert page.getvalue().rstrip().endswith(line)


@pytest.mark.parametrize(
    ("coalesced", "line"), [(1, "(for 1 earlier tick, too)"), (2, "(for 2 earlier ticks, too)")]
)
def test_a_run_says_how_many_ticks_it_stands_for(
    app: Scheduler, page: io.StringIO, coalesced: int, line: str
) -> None:
    run = RunRecord(id="r", task="work", schedule="beat", cause="tick", coalesced=coalesced, attempt=1)
    app.events.publish("started", 0, run=run)
    app.events.publish("succeeded", 0, run=run, duration=timedelta(seconds=0.1))
    assert line in page.getvalue()


def test_the_next_ticks_are_shown_also_if_there_are_none(app: Scheduler, page: io.StringIO) -> None:
    live = LiveOutput(app)
    live.console = Console(file=page, width=200)
    app.schedules.add("nightly", "@daily", "work", paused=True)
    live.console.print(live._status())
    assert "next     the jobs have not started yet" in page.getvalue()
    app.start()
    try:
        live.console.print(live._status())
        assert "next     no tick to come" in page.getvalue()
    finally:
        app.stop()
