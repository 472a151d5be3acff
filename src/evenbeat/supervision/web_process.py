"""The API beside ``evenbeat run --web``: a process of its own, started again when it ends.

Not a thread of the supervisor, which keeps leases alive and must not wait for requests.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from evenbeat.processes.signals import describe_exit

# Seconds before a process that ended is started again: doubled each time, up to the longest. One that worked
# for longer than that starts again with the first.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
# Seconds that it may take to end by itself.
_STOP_PATIENCE = 12.0

_log = logging.getLogger("evenbeat.supervision.web_process")


class WebProcess:
    """Runs ``evenbeat web`` until ``stop``."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = list(arguments)
        # Nothing is ever written to this pipe: the child reads an end of file when this process is gone.
        self._alive = os.pipe()
        self._stopping = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name="evenbeat-web-process", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the process, and wait for requests that are under way."""
        self._stopping.set()
        with self._lock:
            child = self._child
            if child is not None and child.poll() is None:
                child.terminate()
        self._thread.join(_STOP_PATIENCE)
        if child is not None and child.poll() is None:
            child.kill()
            child.wait()
        for descriptor in self._alive:
            os.close(descriptor)

    def _keep(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            began = time.monotonic()
            code = self._run()
            if code is None or self._stopping.is_set():
                return
            if time.monotonic() - began > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            _log.error(
                "the web process ended (%s) and is started again in %g s",
                describe_exit(code),
                pause,
                extra={"component": "web"},
            )
            self._stopping.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _run(self) -> int | None:
        """Run one process until it ends; return its exit code, or None if it was not started."""
        reading = self._alive[0]
        words = [sys.executable, "-m", "evenbeat", "web", "--parent", str(reading), *self._arguments]
        with self._lock:
            if self._stopping.is_set():
                return None
            # Not in the terminal's process group: Ctrl-C reaches the supervisor, which ends this one last.
            self._child = subprocess.Popen(words, process_group=0, pass_fds=(reading,))  # noqa: S603  # ourselves
        return self._child.wait()
