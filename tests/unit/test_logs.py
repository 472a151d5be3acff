"""Logs by standard logging: a constant message and fields, as JSON for programs, as text for people."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import traceback
from collections.abc import Iterator

import pytest

from evenbeat import Event, Scheduler
from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.node.ticker import Ticker
from evenbeat.observe.events import Events
from evenbeat.observe.logs import (
    JsonFormatter,
    RunFields,
    TextFormatter,
    configure,
    run_fields,
    start_new_line,
)
from evenbeat.rules import changes
from evenbeat.stores.base import Write
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock, virtual


def record(message: str, **fields: object) -> logging.LogRecord:
    return logging.getLogger("evenbeat.node.ticker").makeRecord(
        "evenbeat.node.ticker", logging.INFO, "f", 1, message, (), None, extra=fields
    )


def test_a_fired_tick_is_logged_with_the_fields_that_programs_look_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    wanted = ScheduleRecord(name="digest", task="send", trigger="every 1m", priority=8)
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
        "priority_name": "high",
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
    line = json.loads(JsonFormatter().format(failed))
    assert (line["error"], line["traceback"]) == ("ValueError: no", "ValueError: no")
    assert TextFormatter().format(failed).endswith("ValueError: no")


def test_people_read_the_fields_after_the_message_and_not_those_that_are_empty() -> None:
    fields = run_fields(RunRecord(id="r1", task="send"))
    text = TextFormatter().format(record("fired", **fields))
    assert "INFO    fired" in text
    assert "job_name=send job_id=r1" in text
    assert "schedule_id" not in text


def test_the_coloured_copy_of_a_message_of_uvicorn_is_left_out() -> None:
    text = TextFormatter().format(record("Started server", color_message="Started \x1b[36mserver\x1b[0m"))
    assert text.endswith("Started server")


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_program_says_where_its_logs_go(form: str) -> None:
    root = logging.getLogger()
    handlers, level, stream = root.handlers[:], root.level, io.StringIO()
    try:
        configure("json" if form == "json" else "text", "WARNING", stream)
        logging.getLogger("evenbeat.node.worker").warning("a run failed", extra={"job_id": "r1"})
        logging.getLogger("evenbeat.node.worker").info("not logged")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    logged = stream.getvalue().splitlines()
    assert len(logged) == 1
    assert json.loads(logged[0])["job_id"] == "r1" if form == "json" else "job_id=r1" in logged[0]


def test_the_exception_that_ends_a_thread_is_one_line_of_the_log() -> None:
    root = logging.getLogger()
    handlers, stream = root.handlers[:], io.StringIO()
    try:
        configure("json", "WARNING", stream)
        for target in (lambda: 1 // 0, sys.exit):
            thread = threading.Thread(target=target, name="counting")
            thread.start()
            thread.join()
    finally:
        root.handlers[:] = handlers
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert line["thread_name"] == "counting"
    assert line["error"].startswith("ZeroDivisionError")
    assert "1 // 0" in line["traceback"]


def test_an_exception_that_python_ignores_is_one_line_of_the_log() -> None:
    class Divided:
        def __del__(self) -> None:
            1 // 0  # noqa: B018  # it raises

    root = logging.getLogger()
    handlers, stream = root.handlers[:], io.StringIO()
    try:
        configure("json", "WARNING", stream)
        Divided()
    finally:
        root.handlers[:] = handlers
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert "Divided.__del__" in line["where"]
    assert line["error"].startswith("ZeroDivisionError")
    assert "1 // 0" in line["traceback"]


def test_a_record_does_not_follow_on_the_unfinished_line_of_another_process() -> None:
    root = logging.getLogger()
    handlers, stream = root.handlers[:], io.StringIO()
    try:
        configure("json", "WARNING", stream)
        stream.write("half a li")
        start_new_line()
        root.warning("a process has ended")
    finally:
        root.handlers[:] = handlers
    half, line = stream.getvalue().splitlines()
    assert half == "half a li"
    assert json.loads(line)["msg"] == "a process has ended"


# -- for error trackers --------------------------------------------------------------------------------------


class Seen(logging.Handler):
    """The records that a handler gets, and their lines of JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.lines: list[dict[str, object]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(JsonFormatter().format(record)))
        self.records.append(record)


@pytest.fixture
def seen() -> Iterator[Seen]:
    handler = Seen()
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before)


def fails_inside() -> None:
    raise ValueError("no address")


def test_the_exception_itself_is_in_the_event_and_in_the_log(seen: Seen) -> None:
    app = Scheduler("memory://")
    received: list[Event] = []
    app.on_error(received.append)

    @app.task(retries=1, backoff="1s")
    def bill() -> None:
        fails_inside()

    with virtual(app) as scheduler:
        run = scheduler.enqueue(bill)
        scheduler.travel("1m")

    assert [event.kind for event in received] == ["retrying", "failed"]
    for event in received:
        assert isinstance(event.exception, ValueError)
        assert event.error is not None
        assert event.error.startswith("ValueError: no address\n")
        frames = [frame.name for frame in traceback.extract_tb(event.exception.__traceback__)]
        assert frames == ["bill", "fails_inside"]
    ends = [(record, line) for record, line in zip(seen.records, seen.lines, strict=True) if "error" in line]
    assert [line["level"] for _, line in ends] == ["WARNING", "ERROR"]
    for (record, line), event in zip(ends, received, strict=True):
        assert record.exc_info is not None
        assert record.exc_info[1] is event.exception
        assert (line["job_id"], line["error"]) == (run.id, "ValueError: no address")
        assert str(line["traceback"]).startswith("Traceback (most recent call last)")
        assert "fails_inside" in str(line["traceback"])


def test_where_nothing_was_raised_there_is_no_exception() -> None:
    app = Scheduler("memory://")
    received: list[Event] = []
    app.on_event(received.append)

    @app.task
    def bill() -> int:
        return 1

    with virtual(app) as scheduler:
        scheduler.enqueue(bill)
        scheduler.run_pending()
    assert {event.exception for event in received} == {None}


def test_the_end_of_a_run_is_logged_with_its_duration_and_without_an_empty_error(seen: Seen) -> None:
    app = Scheduler("memory://")

    @app.task
    def bill() -> int:
        return 1

    with virtual(app) as scheduler:
        scheduler.enqueue(bill)
        scheduler.run_pending()
    (line,) = [line for line in seen.lines if line["msg"] == "a run succeeded"]
    assert isinstance(line["duration"], float)
    assert 0 <= line["duration"] < 60
    assert "error" not in line


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_log_lines_of_a_jobs_code_name_its_run(seen: Seen, kind: str) -> None:
    app = Scheduler("memory://")
    log = logging.getLogger("shop")

    @app.task(name="bill")
    def bill() -> None:
        log.info("no address", extra={"customer": 7})
        log.info("mine", extra={"job_id": "of my own"})

    @app.task(name="abill")
    async def abill() -> None:
        bill()

    with app:
        chosen = bill if kind == "thread" else abill
        run = app.runs.join(app.enqueue(chosen, priority=8, tenant="acme").id, "60s", tenant="acme")
        assert run.state == "succeeded"
        log.info("outside")
    logged = {line["msg"]: line for line in seen.lines if line["component"] == "shop"}
    inside = logged["no address"]
    assert (
        inside.items()
        >= {
            "job_id": run.id,
            "job_name": run.task,
            "schedule_id": None,
            "priority": 8,
            "tenant": "acme",
            "attempt": 1,
            "customer": 7,
        }.items()
    )
    assert logged["mine"]["job_id"] == "of my own"
    assert "job_id" not in logged["outside"]


def test_a_filter_names_the_run_for_handlers_and_formatters_of_anybody() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(RunFields())
    handler.setFormatter(logging.Formatter("%(job_id)s %(message)s", defaults={"job_id": "-"}))
    log = logging.getLogger("shop")
    log.addHandler(handler)
    app = Scheduler("memory://")

    @app.task
    def bill() -> None:
        log.warning("inside")

    try:
        with virtual(app) as scheduler:
            run = scheduler.enqueue(bill)
            scheduler.run_pending()
        log.warning("outside")
    finally:
        log.removeHandler(handler)
    assert stream.getvalue() == f"{run.id} inside\n- outside\n"
