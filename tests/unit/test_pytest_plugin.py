"""The pytest plugin, in test runs of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Each run forgets the modules that it imported first, and a second copy of Evenbeat has types of its own.
from evenbeat import RunContext, Scheduler  # noqa: F401
from evenbeat.testing import virtual  # noqa: F401

JOBS = """
    from evenbeat import Scheduler, RunContext

    app = Scheduler("sqlite:////no/such/folder/evenbeat.db")

    @app.task(schedule="30 2 * * * tz=Europe/Berlin")
    def nightly(run: RunContext):
        return run.scheduled_at.isoformat()
"""


@pytest.fixture(autouse=True)
def strict(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(jobs=JOBS)
    # Without plugins of others that each of these runs would import again.
    options = "--strict-markers --strict-config -p no:doctest -p no:schemathesis -p no:valkey"
    pytester.makeini(f"[pytest]\naddopts = {options}\nfilterwarnings = error\n")


def test_without_an_app_the_fixture_is_a_new_one_for_each_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.parametrize("again", range(2))
        def test_it(scheduler, again):
            assert list(scheduler.tasks) == []

            @scheduler.task(schedule="every 1h")
            def work(): ...

            assert len(scheduler.travel("+1d")) == 24
    """)
    pytester.runpytest_inprocess().assert_outcomes(passed=2)


@pytest.mark.parametrize(
    "name", ["jobs:app", "jobs.py", "jobs.py:app", "jobs.app", "jobs:nightly", "nowhere:app", "jobs:nothing"]
)
def test_the_app_is_named_in_the_configuration(pytester: pytest.Pytester, name: str) -> None:
    pytester.makepyfile("""
        def test_it(scheduler):
            runs = scheduler.travel("2026-03-02T12:00:00Z")
            assert [run.result for run in runs] == ["2026-03-02T01:30:00+00:00"]
    """)
    result = pytester.runpytest_inprocess("-o", f"evenbeat_app={name}")
    if name in ("jobs:app", "jobs.py", "jobs.py:app"):
        result.assert_outcomes(passed=1)
    else:
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines([f"*evenbeat_app = {name}*"])


def test_the_app_is_what_the_fixture_of_its_name_says(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        from jobs import app

        @pytest.fixture
        def evenbeat_app():
            return app

        def test_it(scheduler):
            assert scheduler.app is app
            assert len(scheduler.travel("+7d")) == 7

        def test_it_again(scheduler):
            assert scheduler.finished == []
    """)
    pytester.runpytest_inprocess().assert_outcomes(passed=2)


def test_a_marker_says_when_time_starts(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from datetime import UTC, datetime
        import pytest

        pytestmark = pytest.mark.evenbeat(now="2030-01-01T00:00:00Z")

        def test_module(scheduler):
            assert scheduler.now == datetime(2030, 1, 1, tzinfo=UTC)

        @pytest.mark.evenbeat(now=datetime(2031, 1, 1, tzinfo=UTC))
        def test_closest(scheduler):
            assert scheduler.now.year == 2031

        @pytest.mark.evenbeat(start="2030-01-01T00:00:00Z")
        def test_misspelt(scheduler): ...
    """)
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=2, errors=1)
    pytester.runpytest_inprocess("--markers").stdout.fnmatch_lines(["@pytest.mark.evenbeat(now)*"])


def test_who_does_not_use_it_does_not_import_evenbeat() -> None:
    code = (
        "import sys, pytest; pytest.main(['--version', '-q']); "
        "config = pytest.Config.fromdictargs({}, []); assert config.pluginmanager.hasplugin('evenbeat'); "
        "print(sorted({'evenbeat', 'numpy', 'msgspec'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"
