"""Ends the servers of a test process that was killed before it could stop them.

The guard is a process of its own. It reads lines from its input: ``PID FOLDER`` when a server was started,
``0 FOLDER`` when it was stopped. The input ends when the test process ends, also when it is killed. The
guard then kills the servers that are left, and removes their folders.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

_lock = threading.Lock()
_guard: subprocess.Popen[str] | None = None
_owner = 0


def guard(pid: int, folder: Path) -> None:
    """Have the process group ``pid`` killed, and the folder removed, once this process has ended."""
    _tell(f"{pid} {folder}")


def release(folder: Path) -> None:
    """Stop guarding this folder: its server has ended."""
    _tell(f"0 {folder}")


def _tell(line: str) -> None:
    global _guard, _owner
    with _lock:
        if _guard is None or _owner != os.getpid():
            # A session of its own: Ctrl-C in a terminal is for the tests.
            _guard = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
            _owner = os.getpid()
            atexit.register(end)
        assert _guard.stdin is not None
        _guard.stdin.write(line + "\n")
        _guard.stdin.flush()


def end() -> None:
    """End the guard of this process, which kills the servers that are left."""
    global _guard
    with _lock:
        if _guard is not None and _owner == os.getpid():
            assert _guard.stdin is not None
            _guard.stdin.close()
            _guard.wait(60)
        _guard = None


def main() -> None:
    servers: dict[str, int] = {}
    for line in sys.stdin:
        pid, _, folder = line.rstrip("\n").partition(" ")
        if int(pid):
            servers[folder] = int(pid)
        else:
            servers.pop(folder, None)
    for folder, pid in servers.items():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
