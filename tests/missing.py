"""Parts that tests need and this machine lacks: servers, a browser, tools.

A test that needs such a part is skipped. The last line of the test run names the part, and in CI the run
fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Unavailable(Exception):
    """A part is missing on this machine. The message names it and says how to get it."""

    def __init__(self, reason: str, *, is_required: bool = True) -> None:
        super().__init__(reason)
        self.is_required = is_required
        """Whether CI must have it."""


_noted: dict[str, Unavailable] = {}


def note(name: str, reason: Unavailable) -> None:
    """Remember that a part is missing, for the report at the end of the run."""
    _noted.setdefault(name, reason)


def noted() -> dict[str, Unavailable]:
    """Return the missing parts by name, in the order in which tests asked for them."""
    return dict(_noted)


@contextmanager
def skipped_without(name: str) -> Iterator[None]:
    """Skip the test, and note what is missing, if the block raises ``Unavailable``."""
    try:
        yield
    except Unavailable as error:
        note(name, error)
        pytest.skip(f"no {name}: {error}")
