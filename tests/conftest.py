"""What all tests share: the same examples on every run, no limit on the time of a single one, and servers."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
from collections.abc import Generator, Iterator

import pytest
from hypothesis import Phase, settings
from xdist.remote import Producer
from xdist.workermanage import WorkerController

from tests import compiling, lengths, missing, server_binaries, server_guard, servers, side_by_side
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
    with missing.skipped_without(name):
        return servers.shared(name).url


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
    """The URL of a database of one's own on a real MongoDB that is not a replica set."""
    with own_place(server_url("mongo_standalone")) as url:
        yield url


def pytest_configure(config: pytest.Config) -> None:
    servers.keep_data_in_memory()
    lengths.configure(config)
    worker = getattr(config, "workerinput", None)
    if worker is None:
        server_binaries.share_copies()
    else:
        compiling.compile_share(config, int(worker["workerid"].removeprefix("gw")), worker["workercount"])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Name the shared server that ended during a test, in the report of this test, and start it again."""
    report = yield
    if ended := servers.restart_ended():
        report.sections.append(("a server of the tests ended by itself", "\n".join(ended)))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    servers.stop_shared()
    output = getattr(session.config, "workeroutput", None)
    if output is not None:  # one of several test processes: the one that started it reports
        output["deaths"] = servers.deaths()
        output["missing"] = {name: (str(error), error.is_required) for name, error in missing.noted().items()}
    elif servers.deaths() or (os.environ.get("CI") and any(e.is_required for e in missing.noted().values())):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController, error: object) -> None:
    """Take over what another test process found to be missing, and which of its servers ended."""
    output = getattr(node, "workeroutput", {})  # one that was killed has none
    for name, (reason, is_required) in output.get("missing", {}).items():
        missing.note(name, missing.Unavailable(reason, is_required=is_required))
    servers.note_deaths(output.get("deaths", ()))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Print what was not tested, after everything else: the last line is the one that people read."""
    server_guard.end()
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    for death in servers.deaths():
        reporter.write_line(f"A SERVER OF THE TESTS ENDED BY ITSELF: {death}", red=True)
    if lacking := missing.noted():
        for name, error in lacking.items():
            reporter.write_line(f"{name} is missing: {error}", red=True)
            if name in servers.KINDS:
                reporter.write_line(f"Or name a server that runs: EVENBEAT_TEST_{name.upper()}_URL", red=True)
        reporter.write_line(f"NOT TESTED here: {', '.join(lacking)}", red=True)


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
