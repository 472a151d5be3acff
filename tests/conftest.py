"""What all tests share: the same examples on every run, no limit on the time of a single one, and servers."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import Phase, settings
from xdist.remote import Producer
from xdist.workermanage import WorkerController

from tests import lengths, server_guard, servers, side_by_side
from tests.isolation import own_place

# Phase.explain traces every line once an example fails, which takes longer than reading the example.
settings.register_profile(
    "evenbeat",
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.target, Phase.shrink],
)
settings.load_profile("evenbeat")


def server_url(name: str) -> str:
    """The URL of a real server of this kind, shared by all tests; without one the test is skipped."""
    try:
        return servers.shared(name).url
    except servers.Unavailable as error:
        pytest.skip(f"no {name}: {error}")


@pytest.fixture(autouse=True)
def log_settings() -> Iterator[None]:
    """What a test, or a command that it calls, does to logging ends with it."""
    hooks = threading.excepthook, sys.unraisablehook
    loggers = [logging.getLogger(name) for name in (None, "evenbeat", "evenbeat.node.worker")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)
    threading.excepthook, sys.unraisablehook = hooks


@pytest.fixture
def postgres() -> Iterator[str]:
    """The URL of a schema of one's own on a real PostgreSQL."""
    with own_place(server_url("postgres")) as url:
        yield url


@pytest.fixture
def valkey() -> Iterator[str]:
    """The URL of a prefix of one's own on a real Valkey."""
    with own_place(server_url("valkey")) as url:
        yield url


@pytest.fixture
def mongo() -> Iterator[str]:
    """The URL of a database of one's own on a real MongoDB."""
    with own_place(server_url("mongo")) as url:
        yield url


@pytest.fixture
def mongo_standalone() -> Iterator[str]:
    """The URL of a database of one's own on a real MongoDB that is no replica set."""
    with own_place(server_url("mongo_standalone")) as url:
        yield url


def pytest_configure(config: pytest.Config) -> None:
    servers.keep_data_in_memory()
    lengths.configure(config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    servers.stop_shared()
    server_guard.end()
    output = getattr(session.config, "workeroutput", None)
    if output is not None:  # this process is one of several: the one that started it reports
        output["missing"], output["required"] = servers.missing(), sorted(servers.missing_in_ci())
    elif servers.missing_in_ci() and os.environ.get("CI"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController, error: object) -> None:
    """Take over what a test process that runs beside others found to be missing."""
    output = getattr(node, "workeroutput", {})  # one that was killed has none
    for name, reason in output.get("missing", {}).items():
        servers.note_missing(name, servers.Unavailable(reason, is_required=name in output["required"]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> side_by_side.Scheduling:
    return side_by_side.Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        places = side_by_side.places(item.nodeid for item in items)
        items.sort(key=lambda item: places[side_by_side.unit(item.nodeid)])


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exempt modules and tests from garbage collection: they live until the end, and are many."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, reason in servers.missing().items():
        terminalreporter.section(f"NOT TESTED: {name}", sep="!", red=True)
        terminalreporter.line(f"{reason}")
        terminalreporter.line(f"Or name a server that runs: EVENBEAT_TEST_{name.upper()}_URL")
