"""Celery's canvas on a Valkey of its own, as durable as Evenbeat's: the peer whose flows most people know.

Broker and result backend are the same server. The worker has ten threads (``--pool threads -c 10``), as a
node of Evenbeat has. With ``--pool solo``, chains and chords were half as fast (noisy machine).
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from celery import Celery, chain, chord

from bench.processes import process

_PLACE, _NOTED = "BENCH_CELERY_PLACE", "BENCH_CELERY_STARTS"
STARTS: list[float] = []


def make(url: str) -> Any:
    app = Celery("bench", broker=url, backend=url)
    app.task(name="mark")(_mark)
    app.task(name="element")(_element)
    app.task(name="join")(_join)
    return app


def _mark() -> None:
    STARTS.append(time.time())


def _element(number: int) -> None:
    pass


def _join(parts: list[None]) -> int:
    return len(parts)


def run_chain(app: Any, steps: int) -> tuple[float, float]:
    """Run a chain without results; return when it was sent, and when its end was seen."""
    begin = time.time()
    chain(*(app.tasks["mark"].si() for _ in range(steps)))().get(timeout=120)
    return begin, time.time()


def run_chord(app: Any, elements: int) -> tuple[float, float]:
    begin = time.time()
    header = [app.tasks["element"].si(number) for number in range(elements)]
    assert chord(header)(app.tasks["join"].s()).get(timeout=120) == elements
    return begin, time.time()


@contextmanager
def worker(url: str, noted: Path, pool: str = "threads") -> Iterator[None]:
    """Start its worker in its own process."""
    options = ("--pool", pool, "-c", "10", "--loglevel", "ERROR", "--without-mingle", "--without-gossip")
    # Without its warning about root, which is the user of many containers.
    environment = {_PLACE: url, _NOTED: str(noted), "PYTHONWARNINGS": "ignore"}
    with process("-m", "celery", "-A", "bench.celery_app:app", "worker", *options, environment=environment):
        yield


def _write(file: Path) -> None:
    file.write_bytes(msgspec.json.encode(STARTS))


if _PLACE in os.environ:
    app = make(os.environ[_PLACE])
    atexit.register(_write, Path(os.environ[_NOTED]))
