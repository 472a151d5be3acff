"""The pytest plugin: the fixtures ``scheduler`` and ``evenbeat_app``, the marker ``evenbeat``.

Outside of the package on purpose: pytest imports plugins at every start, and importing anything from
``evenbeat`` imports all of it. So only who asks for a fixture pays.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from datetime import datetime

    from evenbeat import Scheduler
    from evenbeat.testing import VirtualScheduler


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("evenbeat_app", 'the Scheduler of the fixture scheduler, as "package.module:name"')


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
    module, _, name = named.partition(":")
    try:
        app = getattr(importlib.import_module(module), name) if name else None
    except (ImportError, AttributeError) as error:
        raise pytest.UsageError(f"evenbeat_app = {named}: {error}") from error
    if not isinstance(app, Scheduler):
        raise pytest.UsageError(
            f"evenbeat_app = {named} is not a Scheduler; name one like package.module:app"
        )
    return app


@pytest.fixture
def scheduler(request: pytest.FixtureRequest, evenbeat_app: Scheduler) -> Iterator[VirtualScheduler]:
    """``evenbeat_app`` in virtual time; ``@pytest.mark.evenbeat(now=…)`` says when it starts."""
    from evenbeat.testing import virtual

    marker = request.node.get_closest_marker("evenbeat")
    now = None if marker is None else _marked(*marker.args, **marker.kwargs)
    with virtual(evenbeat_app, now=now) as made:
        yield made


def _marked(now: datetime | str) -> datetime | str:
    return now
