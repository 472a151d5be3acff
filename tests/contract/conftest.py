"""One adapter per store, for tests that all stores share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.contract.adapters import ADAPTERS, Adapter
from tests.lengths import LONG

from evenbeat.testing import VirtualClock

LARGE = ("test_ten_thousand_runs_go_through_in_one_batch", "test_ten_thousand_schedules_fire_in_batches")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the largest batches to SQLite and PostgreSQL in ``make test``, and drop tests that repeat others,
    or need a refusal that the database of their store does not know.

    A test that takes one ``store`` does the same in a class whose threads share a store as in the other one:
    only those that take ``handles`` differ there.
    """
    for item in items:
        if item.name in LARGE and item.path.stem in ("test_redis", "test_mongo"):
            item.add_marker(LONG)
    dropped = [item for item in items if _is_repeated(item) or _is_impossible(item)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        gone = set(dropped)
        items[:] = [item for item in items if item not in gone]


def _is_repeated(item: pytest.Item) -> bool:
    return (
        isinstance(item, pytest.Function)
        and item.cls is not None
        and item.cls.__name__.endswith("SharedByThreads")
        and "handles" not in inspect.signature(item.function).parameters
    )


def _is_impossible(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or item.cls is None:
        return False
    refusal = getattr(item.function, "refusal", None)
    return refusal is not None and refusal not in item.cls.refusals


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
