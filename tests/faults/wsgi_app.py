"""A WSGI app with a scheduler inside, for tests of servers that fork. Its database is in the working
directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from evenbeat import Scheduler, every

scheduler = Scheduler("sqlite:///evenbeat.db", lease="2s")


@scheduler.task(schedule=every("100ms"))
def beat() -> int:
    return os.getpid()


def application(_environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {scheduler.is_running}".encode()]


if os.environ.get("WSGI_APP") == "start-when-imported":
    scheduler.start()
