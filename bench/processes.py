"""Processes that the suites start, look at, and end."""

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
    """A Python process, ended by SIGTERM and given the time to end well; it must."""
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
    """A folder on the disk of the default temporary folder: the same for all contestants."""
    with TemporaryDirectory(prefix="evenbeat-bench-") as folder:
        yield Path(folder)


def until(condition: Callable[[], bool], within: float = 120, every: float = 0.02) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing came of it within {within:g} s")
        time.sleep(every)


def processor_seconds(pid: int) -> float:
    """What all threads of a process have used so far, in user and kernel mode."""
    # After the name, which stands in parentheses and may hold spaces: fields 14 and 15 of proc(5).
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK
