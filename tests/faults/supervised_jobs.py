"""The app of the supervisor's fault tests. Its database and its notes are in the working directory."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import sys
import time
from pathlib import Path

from evenbeat import RunContext, Scheduler, every
from evenbeat.node import lanes

app = Scheduler("sqlite:///evenbeat.db", poll_interval="200ms")

if "fail-at-start" in os.environ.get("SUPERVISED_JOBS", "") and "node_process" in sys.argv[0]:
    raise RuntimeError("only in the process that works")

if "greedy" in os.environ.get("SUPERVISED_JOBS", ""):
    # As if runs had been short so far: the worker claims far more than it can begin.
    lanes.Lane.room = lambda self, now: 50 - len(self.attempts)  # type: ignore[method-assign]  # noqa: ARG005


def begin(run: RunContext) -> int:
    """Return how many times this run has begun, with this one, by the files that it leaves.

    Not its attempt: a run that is claimed and has to wait is handed back and claimed again. The file of each
    time has the pid in it from its first moment.
    """
    draft = Path(f"draft-{run.id}-{os.getpid()}")
    draft.write_text(str(os.getpid()))
    times = 1
    while Path(f"{run.id}.{times}").exists():
        times += 1
    draft.rename(f"{run.id}.{times}")
    return times


@app.task(schedule=every("100ms"))
def beat() -> None:
    """Run all the time, beside the other jobs."""


@app.task
def wait(run: RunContext) -> None:
    """Run until the test creates the file ``go``."""
    begin(run)
    while not Path("go").exists():
        time.sleep(0.05)


@app.task
def first_hangs(run: RunContext) -> None:
    if begin(run) == 1:
        time.sleep(600)


@app.task
def first_exits(run: RunContext) -> None:
    if begin(run) == 1:
        os._exit(7)


@app.task
def first_dies_in_a_line(run: RunContext) -> None:
    if begin(run) == 1:
        os.write(2, b'{"msg": "half a li')
        os._exit(7)


@app.task
def first_closes_files(run: RunContext) -> None:
    if begin(run) == 1:
        os.closerange(3, 4096)


@app.task
async def first_closes_files_on_the_loop(run: RunContext) -> None:
    if begin(run) == 1:
        os.closerange(3, 4096)
        await asyncio.sleep(600)


@app.task
def exits(run: RunContext, code: int) -> None:
    begin(run)
    os._exit(code)


@app.task
def notes(run: RunContext) -> None:
    begin(run)


@app.task
def ends_fork(run: RunContext) -> int | None:
    for _ in range(20):  # also one that is terminated right after its start
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        process.start()
        process.terminate()
        process.join()
    return process.exitcode


@app.task
def hold(run: RunContext, seconds: int) -> None:
    """Hold the interpreter lock in C code, as a long regular expression does."""
    begin(run)
    ctypes.PyDLL(None).sleep(seconds)


@app.task(executor="process")
def crunch(run: RunContext) -> None:
    if begin(run) == 1:
        time.sleep(600)
