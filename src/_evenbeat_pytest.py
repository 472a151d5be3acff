"""The pytest plugin: the fixtures ``scheduler`` and ``evenbeat_app``, the marker ``evenbeat``.

Outside of the package on purpose: pytest imports plugins at every start, and only who asks for a fixture
should pay for importing ``evenbeat``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from evenbeat import Scheduler
    from evenbeat.testing import VirtualScheduler


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("evenbeat_app", "the Scheduler of the fixture scheduler, as in jobs.py or shop.jobs:app")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "evenbeat(now): the virtual time at which the fixture scheduler starts"
    )


@pytest.fixture
def evenbeat_app(pytestconfig: pytest.Config) -> Scheduler:
    """The app that ``scheduler`` puts into virtual time: of the ini option evenbeat_app, else a new one."""
    from evenbeat import Scheduler

    named = pytestconfig.getini("evenbeat_app")
    if not named:
        return Scheduler("memory://")
    from evenbeat.app.loading import load_app
    from evenbeat.errors import EvenbeatError

    root = str(pytestconfig.rootpath)
    if root not in sys.path:
        # As `evenbeat dev` finds it in the folder of the project.
        sys.path.insert(0, root)
    place, _, _ = named.partition(":")
    try:
        return load_app(str(pytestconfig.rootpath / named) if place.endswith(".py") else named)
    except EvenbeatError as error:
        raise pytest.UsageError(f"evenbeat_app = {named}: {error}") from error


@pytest.fixture
def scheduler(request: pytest.FixtureRequest, evenbeat_app: Scheduler) -> Iterator[VirtualScheduler]:
    """``evenbeat_app`` in virtual time; ``@pytest.mark.evenbeat(now=…)`` says when it starts."""
    from evenbeat.testing import virtual

    marker = request.node.get_closest_marker("evenbeat")
    now = None
    if marker is not None:
        if marker.args or set(marker.kwargs) != {"now"}:
            raise pytest.UsageError('the marker is @pytest.mark.evenbeat(now="2026-03-28T12:00:00Z")')
        now = marker.kwargs["now"]
    with virtual(evenbeat_app, now=now) as made:
        yield made
