"""Which tests are left out of ``make test``: those marked ``long``. ``make test-all`` runs all of them.

Some tests of each kind stay in ``make test``: the first seeds, some faults on each store, one of the two ways
in which threads share a store.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

LONG = pytest.mark.long
_is_short = False


def configure(config: pytest.Config) -> None:
    """Learn from the options whether long tests are left out. Call it before test modules are imported."""
    global _is_short
    _is_short = config.option.markexpr == "not long"


def is_short() -> bool:
    """Return whether long tests are left out."""
    return _is_short


def examples(count: int) -> int:
    """Return how many examples a property is tried with: a fifth of them where long tests are left out."""
    return max(100, count // 5) if _is_short else count


def chunks(seeds: range, *, in_test: int = 1) -> list[ParameterSet]:
    """Return the first seed of each chunk as a parameter. All but the first ``in_test`` chunks are long."""
    return [
        pytest.param(first, id=f"from_{first}", marks=() if at < in_test else LONG)
        for at, first in enumerate(seeds)
    ]


def some(names: Iterable[str], *in_test: str) -> list[ParameterSet]:
    """Return the names as parameters. All but those ``in_test`` are long."""
    return [pytest.param(name, marks=() if name in in_test else LONG) for name in names]
