"""Where faults happen: a store of one's own, on a server of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evenbeat.testing.places import own_place
from tests import servers
from tests.faults.chaos import Ground

STORES = ("sqlite", *servers.KINDS)


@contextmanager
def ground(folder: Path, server: servers.Server | None) -> Iterator[Ground]:
    if server is None:
        yield Ground(f"sqlite:///{folder / 'evenbeat.db'}", folder)
        return
    with own_place(server.url) as url:
        yield Ground(url, folder, server)


@contextmanager
def own_server(store: str) -> Iterator[servers.Server | None]:
    """A server that may be harmed; None for SQLite, which has none."""
    if store == "sqlite":
        yield None
        return
    server = servers.started(store)
    try:
        yield server
    finally:
        server.stop()
