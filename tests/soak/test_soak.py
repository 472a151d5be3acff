"""The soak test itself, for a few seconds: it counts every tick once, and draws what it sampled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.soak.picture import drawn

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_a_short_soak_loses_and_doubles_nothing() -> None:
    words = ["-m", "tests.soak", "sqlite", "--minutes", "0.08", "--rate", "20"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cells = [cell.strip() for cell in done.stdout.splitlines()[-1].split("|")[1:]]
    assert cells[0] == "sqlite"
    assert int(cells[1]) > 0
    assert cells[2:4] == ["0", "0"]
    assert "node memory, MB" in done.stdout


def test_the_picture_has_a_line_for_each_store_that_was_sampled() -> None:
    panels = [
        ("memory, MB", {"sqlite": [(0.0, 50.0), (1.0, 51.0)], "mongo": [(0.0, 70.0), (1.0, 70.0)]}),
        ("connections", {"sqlite": [], "mongo": [(0.0, 12.0), (1.0, 13.0)]}),
    ]
    root = ET.fromstring(drawn("One minute", panels, ["sqlite", "mongo"], 1.0))  # noqa: S314  # our own
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert [line.get("class") for line in lines] == ["s0", "s1", "s1"]
    heights = [float(point.split(",")[1]) for point in (lines[0].get("points") or "").split()]
    assert heights[0] > heights[1]  # more is higher
