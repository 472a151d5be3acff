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
from evenbeat.rules.flow_parts import Member, part_text, step_run_id
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


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("kind", ["succeeded", "retrying", "failed"])
def test_a_long_result_or_error_stays_in_its_line(app: Scheduler, width: int, kind: Any) -> None:
    terminal = io.StringIO()
    LiveOutput(app).console = Console(file=terminal, width=width, force_terminal=True, color_system=None)
    run = RunRecord(id="r", task="list_suppliers", attempt=1)
    app.events.publish("started", 0, run=run)
    app.events.publish(
        kind,
        0,
        run=run,
        duration=timedelta(seconds=0.5),
        delay=30_000,
        error="TimeoutError: north.example did not answer within 10 s, nor did south.example",
        result=["north", "south", "east", "west", "north-east", "south-west"],
    )
    first, *others = terminal.getvalue().splitlines()
    assert len(first) == width
    assert first.endswith("  (enqueued)")
    assert "…" in first
    assert len(others) == (kind == "failed")  # the place, and the command that shows the run


def test_a_result_without_room_for_it_is_left_out(app: Scheduler) -> None:
    terminal = io.StringIO()
    LiveOutput(app).console = Console(file=terminal, width=80, force_terminal=True, color_system=None)
    run = RunRecord(id="r", task="list_suppliers", cause="tick", coalesced=12, attempt=1)
    app.events.publish("started", 0, run=run)
    app.events.publish("succeeded", 0, run=run, duration=timedelta(seconds=0.5), result="02:42:10")
    (line,) = terminal.getvalue().splitlines()
    assert line.endswith("took 500 ms  (for 12 earlier ticks, too)")


def test_long_words_go_on_below_themselves(app: Scheduler) -> None:
    terminal = io.StringIO()
    LiveOutput(app).console = Console(file=terminal, width=80, force_terminal=True, color_system=None)
    app.events.publish("skipped", 0, key=("default", "beat"), count=2, reason="coalesced")
    first, second = terminal.getvalue().splitlines()
    assert first.index("2 ticks not run") == second.index("for them (catch-up latest)")


def test_a_step_of_a_flow_is_called_one(app: Scheduler, page: io.StringIO) -> None:
    place = Member("f", "g", 0)
    run = RunRecord(id=step_run_id("f", "s", 1, None), task="work", attempt=1, flow=part_text(place))
    app.events.publish("started", 0, run=run)
    app.events.publish("succeeded", 0, run=run)
    assert page.getvalue().rstrip().endswith("(step)")


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


def test_a_command_stays_on_one_line_however_narrow_the_terminal_is(app: Scheduler) -> None:
    terminal = io.StringIO()
    live = LiveOutput(app)
    live.console = Console(file=terminal, width=40, force_terminal=True, color_system=None)
    command = "/a/long/path/to/evenbeat schedules list --store sqlite:///evenbeat-demo.db"
    live.write_command(command)
    assert terminal.getvalue() == f"  {command}\n"
