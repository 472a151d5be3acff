"""The page of benchmarks has a title and a note for every suite of ``python -m bench``."""

from __future__ import annotations

import ast
from pathlib import Path

from bench import report

MAIN = Path(report.__file__).with_name("__main__.py")


def suites() -> set[str]:
    """Return the names in SUITES. The module can't be imported here: it needs the libraries of the peers."""
    for node in ast.parse(MAIN.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            (target,) = node.targets
            if isinstance(target, ast.Name) and target.id == "SUITES":
                return {str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)}
    raise AssertionError("SUITES is not a dict display")


def test_every_suite_has_a_title_and_a_note() -> None:
    assert {"limits", "fairness", "purging"} < suites()
    assert set(report.TITLES) == suites()
    assert set(report.NOTES) == suites()
