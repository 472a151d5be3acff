"""One adapter per store, for tests that all stores share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.contract.adapters import ADAPTERS, Adapter
from tests.lengths import LONG

from evenbeat.testing import VirtualClock

LARGE = ("test_ten_thousand_runs_go_through_in_one_batch", "test_ten_thousand_schedules_fire_in_batches")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the largest batches to SQLite and PostgreSQL in ``make test``."""
    for item in items:
        if item.name in LARGE and item.path.stem in ("test_redis", "test_mongo"):
            item.add_marker(LONG)


@pytest.fixture(scope="session")
def location_of() -> Iterator[Callable[[str], str]]:
    """Returns the location for a store by its name, created when it is first needed."""
    found: dict[str, str] = {}
    with ExitStack() as stack:

        def location(name: str) -> str:
            if name not in found:
                found[name] = stack.enter_context(ADAPTERS[name].location())
            return found[name]

        yield location


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=ADAPTERS)
def adapter(
    request: pytest.FixtureRequest, location_of: Callable[[str], str], clock: VirtualClock, tmp_path: Path
) -> Iterator[Adapter]:
    """The adapter of a store whose location is empty."""
    kind = ADAPTERS[request.param]
    url = f"sqlite:///{tmp_path / 'evenbeat.db'}" if kind.server is None else location_of(request.param)
    adapter = kind(url, clock)
    adapter.empty()
    yield adapter
    adapter.close()
