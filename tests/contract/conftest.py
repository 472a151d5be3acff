"""One adapter per store, for tests that all stores share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.contract.adapters import ADAPTERS, Adapter

from evenbeat.testing import VirtualClock


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
