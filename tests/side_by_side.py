"""How tests are divided among the processes of pytest-xdist, which run side by side.

Each process has servers of its own. The tests of a unit run one after the other, in the same process: the
examples of a document build on each other, and the tests of a class or module share expensive fixtures.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, zip_longest

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# The longest first: a process that gets a long unit at the end keeps all others waiting.
_ORDER = (
    "tests/faults/test_stores.py",
    "tests/faults/",
    "tests/contract/",
    "tests/simulator/",
    "tests/stores/",
    "tests/documents/",
)
# Their tests mostly wait: for leases, timeouts, and servers that start again.
_WAITING = ("tests/faults/", "tests/stores/")
# Their tests take seconds each.
_APART = ("tests/faults/", "tests/simulator/", "tests/documents/test_simulation.py")


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives a unit of tests to each process that has none left."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


def unit(nodeid: str) -> str:
    """Return the name of the unit that a test belongs to."""
    if nodeid.startswith(_APART):
        return nodeid
    if not nodeid.startswith("tests/"):
        return nodeid.partition("::")[0]
    return nodeid.partition("[")[0].rsplit("::", 1)[0]


def places(nodeids: Iterable[str]) -> dict[str, int]:
    """Return the place of each unit in the order of the run.

    Units that mostly wait alternate with units that compute. Processes that wait leave their share of the
    CPU to the others, so all of them waiting at the same time would be a loss.
    """
    units = sorted(dict.fromkeys(map(unit, nodeids)), key=_rank)
    waiting = [name for name in units if name.startswith(_WAITING)]
    computing = [name for name in units if not name.startswith(_WAITING)]
    merged = chain.from_iterable(zip_longest(waiting, computing))
    return {name: place for place, name in enumerate(name for name in merged if name is not None)}


def _rank(nodeid: str) -> int:
    """Return the place of a folder in the order: smaller ones come first."""
    return next((at for at, start in enumerate(_ORDER) if nodeid.startswith(start)), len(_ORDER))
