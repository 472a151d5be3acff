"""Log records of a job's code are kept with its run, whatever the program does to logging."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from evenbeat.core.records import RunRecord
from evenbeat.observe.capture import start_capture, stop_capture
from evenbeat.observe.run_logs import RunLog, current_log

_log = logging.getLogger("shop.bills")


@pytest.fixture
def kept() -> Iterator[RunLog]:
    """The log of a run whose code the test is."""
    before = logging.getLogRecordFactory()
    start_capture()
    log = RunLog(RunRecord(id="r", task="bill", attempt=1))
    token = current_log.set(log)
    yield log
    current_log.reset(token)
    stop_capture()
    logging.setLogRecordFactory(before)


def texts(log: RunLog) -> list[str]:
    return [chunk.text for chunk in log.take()]


def test_records_are_kept_with_their_level_and_logger(kept: RunLog) -> None:
    _log.warning("bill %d", 7)
    logging.getLogger("evenbeat.node.worker").warning("ours")
    logging.getLogger().handle(
        logging.makeLogRecord(
            {"name": "shop", "msg": "from a queue", "levelno": logging.WARNING, "levelname": "WARNING"}
        )
    )
    assert texts(kept) == ["WARNING shop.bills: bill 7"]


def test_a_traceback_is_kept_and_left_to_other_formatters(
    kept: RunLog, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        raise ValueError("no such bill")
    except ValueError:
        _log.exception("failed")
    (text,) = texts(kept)
    assert text.startswith("ERROR shop.bills: failed\nTraceback")
    assert text.endswith("ValueError: no such bill")


def test_a_record_with_arguments_that_do_not_fit_is_kept_as_it_was_written(
    kept: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logger = logging.getLogger("shop.quiet")
    monkeypatch.setattr(logger, "propagate", False)
    logger.warning("bill %d", "x")
    assert texts(kept) == ["WARNING shop.quiet: bill %d"]


def test_a_factory_of_the_program_keeps_working(kept: RunLog) -> None:
    ours = logging.getLogRecordFactory()

    def theirs(*args: object, **kwargs: object) -> logging.LogRecord:
        record = ours(*args, **kwargs)
        record.user = "anna"
        return record

    logging.setLogRecordFactory(theirs)
    start_capture()  # a second node
    _log.warning("once")
    assert texts(kept) == ["WARNING shop.bills: once"]
    stop_capture()
    assert logging.getLogRecordFactory() is theirs


def test_the_factory_goes_with_the_last_node(kept: RunLog) -> None:
    stop_capture()
    _log.warning("after")
    assert texts(kept) == []
    start_capture()
    _log.warning("again")
    assert texts(kept) == ["WARNING shop.bills: again"]


_PROGRAM = """
import logging, logging.config, sys
from evenbeat import Scheduler
app = Scheduler("memory://")
log = logging.getLogger("shop")
@app.task
def bill():
    log.warning("billing")
app.start()
if sys.argv[1] == "basicConfig":
    logging.basicConfig(format="THEIRS %(message)s", stream=sys.stdout)
elif sys.argv[1] == "dictConfig":
    logging.config.dictConfig({
        "version": 1, "disable_existing_loggers": False,
        "formatters": {"f": {"format": "THEIRS %(message)s"}},
        "handlers": {"h": {"class": "logging.StreamHandler", "formatter": "f", "stream": "ext://sys.stdout"}},
        "root": {"handlers": ["h"]},
    })
run = app.runs.join(bill.enqueue().id, "60s")
lines = [line.text for line in app.runs.logs(run.id)]
app.stop()
print(run.state, lines, logging.getLogger().handlers == [])
"""


@pytest.mark.parametrize("how", ["none", "basicConfig", "dictConfig"])
def test_logging_may_be_set_up_after_a_node_has_started(how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _PROGRAM, how], capture_output=True, text=True, check=True
    )
    expected = f"succeeded ['WARNING shop: billing'] {how == 'none'}\n"
    assert done.stdout == ("" if how == "none" else "THEIRS billing\n") + expected
