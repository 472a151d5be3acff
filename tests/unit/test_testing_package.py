"""evenbeat.testing is usable without pytest; the contracts, which need it, are imported when first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import evenbeat.testing

CODE = """
import sys
sys.modules["pytest"] = None
import evenbeat.testing
evenbeat.testing.virtual
try:
    evenbeat.testing.StoreContract
except ImportError:
    print("needs pytest")
"""


def test_virtual_time_needs_no_pytest_and_contracts_do() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout == "needs pytest\n"


def test_every_public_name_is_there_and_no_other() -> None:
    assert all(getattr(evenbeat.testing, name) for name in evenbeat.testing.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Simulator'"):
        _ = evenbeat.testing.Simulator
