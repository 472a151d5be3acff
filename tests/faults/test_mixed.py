"""A fleet of two versions. Here both are this one: other versions are tried by hand (``mixed.py``)."""

from __future__ import annotations

from pathlib import Path

from tests.faults.grounds import Grounds
from tests.faults.mixed import ROOT, play
from tests.lengths import LONG


@LONG
def test_nodes_of_two_trees_work_side_by_side(tmp_path: Path) -> None:
    grounds = Grounds()
    try:
        with grounds.ground("sqlite", tmp_path) as ground:
            assert play(ground, ROOT, 4).endswith("0 lost, 0 doubled")
    finally:
        grounds.close()
