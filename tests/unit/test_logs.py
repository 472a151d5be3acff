"""Logs by standard logging: a constant message and fields, as JSON for programs, as text for people (R24)."""

from __future__ import annotations

import io
import json
import logging

import pytest

from evenbeat.model import Run, Schedule
from evenbeat.observe.events import Events
from evenbeat.observe.logs import JsonFormatter, TextFormatter, configure, run_fields
from evenbeat.rules import changes
from evenbeat.stores.base import Write
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from evenbeat.ticker import Ticker


def record(message: str, **fields: object) -> logging.LogRecord:
    return logging.getLogger("evenbeat.ticker").makeRecord(
        "evenbeat.ticker", logging.INFO, "f", 1, message, (), None, extra=fields
    )


def test_a_fired_tick_is_logged_with_the_fields_that_programs_look_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    wanted = Schedule(name="digest", task="send", trigger="every 1m", priority=8)
    store.put_schedules([Write(changes.create(wanted, clock.now), None)])
    clock.advance("1m")
    caplog.set_level(logging.INFO, "evenbeat")
    Ticker(store, Events()).step(clock.now)
    line = json.loads(JsonFormatter().format(caplog.records[0]))
    del line["time"]
    assert line == {
        "level": "INFO",
        "msg": "fired",
        "component": "ticker",
        "schedule_id": "digest",
        "job_name": "send",
        "job_id": f"default/digest/1/{clock.now}",
        "priority": 8,
        "next_run": "2026-03-01T12:02:00Z",
        "tenant": "default",
        "attempt": 0,
    }


def test_a_line_of_json_is_one_line_whatever_it_says() -> None:
    text = JsonFormatter().format(record("two\nlines", job_id="a\u2028b", odd=object()))
    assert "\n" not in text
    assert json.loads(text)["msg"] == "two\nlines"


def test_an_error_is_in_the_line() -> None:
    try:
        raise ValueError("no")
    except ValueError as error:
        failed = logging.LogRecord(
            "evenbeat.x", logging.ERROR, "f", 1, "failed", (), (ValueError, error, None)
        )
    assert "ValueError: no" in json.loads(JsonFormatter().format(failed))["error"]
    assert TextFormatter().format(failed).endswith("ValueError: no")


def test_people_read_the_fields_after_the_message_and_not_those_that_are_empty() -> None:
    fields = run_fields(Run(id="r1", task="send"))
    text = TextFormatter().format(record("fired", **fields))
    assert "INFO    fired" in text
    assert "job_name=send job_id=r1" in text
    assert "schedule_id" not in text


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_program_says_where_its_logs_go(form: str) -> None:
    root = logging.getLogger()
    handlers, level, stream = root.handlers[:], root.level, io.StringIO()
    try:
        configure("json" if form == "json" else "text", "WARNING", stream)
        logging.getLogger("evenbeat.worker").warning("a run failed", extra={"job_id": "r1"})
        logging.getLogger("evenbeat.worker").info("not said")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    said = stream.getvalue().splitlines()
    assert len(said) == 1
    assert json.loads(said[0])["job_id"] == "r1" if form == "json" else "job_id=r1" in said[0]
