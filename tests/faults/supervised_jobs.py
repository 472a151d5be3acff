"""The app of the supervisor's fault tests. Its database and its notes are in the working directory."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path

from evenbeat import Run, Scheduler, every

app = Scheduler("sqlite:///evenbeat.db", poll="200ms")

if "fail-at-start" in os.environ.get("SUPERVISED_JOBS", "") and "supervised" in sys.argv[0]:
    raise RuntimeError("only in the process that works")


def note(run: Run) -> None:
    """Leave the pid in a file that is named after the attempt, whole from its first moment."""
    draft = Path(f"draft-{run.id}.{run.attempt}")
    draft.write_text(str(os.getpid()))
    draft.rename(f"{run.id}.{run.attempt}")


@app.task(schedule=every("100ms"))
def beat() -> None:
    """Something that goes on meanwhile."""


@app.task
def slow(run: Run, seconds: float) -> None:
    note(run)
    time.sleep(seconds)


@app.task
def first_hangs(run: Run) -> None:
    note(run)
    if run.attempt == 1:
        time.sleep(600)


@app.task
def first_exits(run: Run) -> None:
    note(run)
    if run.attempt == 1:
        os._exit(7)


@app.task
def hold(run: Run, seconds: int) -> None:
    """Keep the interpreter to itself: C code that lets nobody else in, as a regular expression may be."""
    note(run)
    ctypes.PyDLL(None).sleep(seconds)


@app.task(cpu=True)
def crunch(run: Run) -> None:
    note(run)
    if run.attempt == 1:
        time.sleep(600)
