"""The benchmark of flows works, and its section gets into the page of the benchmarks."""

from __future__ import annotations

import pytest
from bench import flows
from bench.databases import StoreName
from bench.flow_app import QUICK
from bench.measure import Report, Row
from bench.report import TITLES, with_sections

from tests.lengths import some

_PAGE = """# Benchmarks

Introduction.

**Goals: 9 met, 9 missed.** A remark.

## Cron

Old.

|  | Evenbeat | goal |  |
| --- | --- | --- | --- |
| next | 1.00 us | < 2 us | met |
| parse | 3.00 us | < 2 us | **missed** |

## Purging

Last.
"""
_MACHINE = {"cpu": "a CPU", "cores": "2", "python": "3.11", "system": "Linux"}


@pytest.mark.parametrize("store", some(("memory", "SQLite"), "memory"))
def test_small_flows_are_measured(store: StoreName) -> None:
    rows = flows.run(QUICK, store, with_peers=False)
    titles = [row.name for row in rows]
    assert len(set(titles)) == len(titles) == (10 if store == "memory" else 11)
    assert all(row.ours > 0 and row.name.startswith(f"{store}: ") for row in rows)
    assert [row.goal for row in rows if row.unit == "x"] == ["≤ 2x", "≤ 2x"]


def test_a_new_section_goes_to_the_end_and_an_old_one_is_replaced() -> None:
    report = Report(
        "2026-11-18", _MACHINE, {"evenbeat": "1"}, [Row("flows", "a", "x", 1.0, goal="1", met=True)]
    )
    added = with_sections(_PAGE, {"flows": report})
    assert added.startswith(
        "# Benchmarks\n\nIntroduction.\n\n**Goals: 2 met, 1 missed.** A remark.\n\n## Cron\n"
    )
    assert added.endswith("| a | 1.00 x | 1 | met |\n")
    assert (
        "Last.\n\n## Flows\n\nMeasured 2026-11-18; a CPU, 2 cores, Linux, Python 3.11; evenbeat 1. " in added
    )
    report = Report("2026-11-19", _MACHINE, {}, [Row("flows", "b", "x", 3.0, goal="2", met=False)])
    again = with_sections(added, {"flows": report})
    assert again.count("## Flows") == 1
    assert "**Goals: 1 met, 2 missed.**" in again
    assert "| a |" not in again
    assert with_sections(_PAGE, {}) == _PAGE.replace("9 met, 9", "1 met, 1")
    assert TITLES["flows"] == "Flows"
