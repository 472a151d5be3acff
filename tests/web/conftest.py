from __future__ import annotations

from collections.abc import Iterator

import pytest

from evenbeat import Scheduler
from evenbeat.stores.memory import MemoryStore
from tests.web.site import Site


@pytest.fixture
def app() -> Scheduler:
    app = Scheduler(MemoryStore())

    @app.task
    def work(team: str = "ops") -> str:
        return team

    return app


@pytest.fixture
def site(app: Scheduler) -> Iterator[Site]:
    made = Site(app)
    yield made
    made.close()
