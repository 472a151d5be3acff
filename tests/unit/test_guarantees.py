"""docs/guarantees.md: each promise names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evenbeat.testing.contract import StoreContract

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
NAMED = re.findall(r"`(\w+\.py)::(test_\w+)`", PAGE)
FOLDERS = (
    "tests/simulator",
    "src/evenbeat/testing/contract",
    "src/evenbeat/testing",
    "tests/faults",
    "tests/unit",
    "tests/stores",
    "tests/documents",
)


@pytest.mark.parametrize(("file", "test"), NAMED, ids=[name for _, name in NAMED])
def test_a_promise_is_tested(file: str, test: str) -> None:
    found = [path for folder in FOLDERS for path in (ROOT / folder).glob(file)]
    assert any(re.search(rf"def {test}\(", path.read_text()) for path in found)


def test_the_page_names_its_tests() -> None:
    assert len(NAMED) > 20
    assert sum(hasattr(StoreContract, name) for _, name in NAMED) > 12
    assert PAGE.count("::test_") == len(NAMED)
