"""Start, watch and stop the processes of the suites."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
_PATIENCE = 40
_TICK = os.sysconf("SC_CLK_TCK")


@contextmanager
def process(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a Python process; stop it by SIGTERM, and fail if it does not exit with 0."""
    child = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.DEVNULL,
    )
    try:
        yield child
        child.terminate()
        assert child.wait(_PATIENCE) == 0, f"{arguments} ended with {child.returncode}"
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a folder on the disk of the default temporary folder: the same for all libraries."""
    with TemporaryDirectory(prefix="evenbeat-bench-") as folder:
        yield Path(folder)


def until(condition: Callable[[], bool], within: float = 120, every: float = 0.02) -> None:
    """Wait until a condition that another process fulfils is true."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing came of it within {within:g} s")
        time.sleep(every)


def processor_seconds(pid: int) -> float:
    """Return the seconds that all threads of a process have used so far, in user and kernel mode."""
    # Fields 14 and 15 of proc(5), counted after the name, which is in parentheses and may have spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK
