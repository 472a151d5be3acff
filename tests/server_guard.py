"""Ends the servers of a test process that was killed before it could stop them.

The guard is a separate process. It reads lines from its input: ``guard PID FOLDER`` when a server has
started, ``guard 0 FOLDER`` for a folder without a process, ``release 0 FOLDER`` when either is gone. The
input ends when the test process ends, even if it is killed. The guard then kills the remaining servers and
removes the remaining folders.
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
    _tell(f"guard {pid} {folder}")


def guard_folder(folder: Path) -> None:
    """Have the folder removed once this process has ended."""
    _tell(f"guard 0 {folder}")


def release(folder: Path) -> None:
    """Stop guarding this folder: its server has ended."""
    _tell(f"release 0 {folder}")


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
        verb, pid, folder = line.rstrip("\n").split(" ", 2)
        if verb == "guard":
            servers[folder] = int(pid)
        else:
            servers.pop(folder, None)
    for folder, pid in servers.items():
        with suppress(ProcessLookupError, PermissionError):
            if pid:
                os.killpg(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
