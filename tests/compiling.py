"""Compile modules for several test processes once.

pytest rewrites the assertions of a test module when it imports it, and caches the result, as Python does with
compiled modules. All test processes import the same modules at the same time, so in a new clone, without a
cache, each of them would do all of this work: 17 s for each process. Here each does a share of it first.
"""

from __future__ import annotations

import compileall
import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite  # private, like its functions below: the version of pytest is pinned

ROOT = Path(__file__).parents[1]


def compile_share(config: pytest.Config, share: int, shares: int) -> None:
    """Fill the caches for one of ``shares`` parts of all modules."""
    if sys.dont_write_bytecode:
        return
    # In the order in which modules are imported: no process gets far ahead of what others have compiled.
    for file in sorted((ROOT / "src").rglob("*.py"))[share::shares]:
        compileall.compile_file(file, quiet=2)
    for file in sorted((ROOT / "tests").rglob("*.py"))[share::shares]:
        _rewrite(config, file)


def _rewrite(config: pytest.Config, file: Path) -> None:
    folder = rewrite.get_cache_dir(file)
    cached = folder / f"{file.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(file, cached) is None and rewrite.try_makedirs(folder):
        digest, code = rewrite._rewrite_test(file, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, digest, cached)
