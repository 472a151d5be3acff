"""Whether a process runs: without ``ps``, which small systems lack."""

from __future__ import annotations

import subprocess
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Return whether a process runs. One that has ended is still listed until its parent notices."""
    return _state(pid) not in ("", "Z")


def _state(pid: int) -> str:
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(pid)], stdout=subprocess.PIPE, text=True, check=False
        )
        return listed.stdout.strip()[:1]
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return text.rpartition(")")[2].split()[0]
