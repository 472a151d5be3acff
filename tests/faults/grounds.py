"""Stores and servers for scenes: each scene gets a store of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests import servers
from tests.faults.scene import Ground, Mutant, Scene
from tests.isolation import own_place


class Grounds:
    """The grounds of scenes. Servers are started when they are first needed, and stopped at the end."""

    def __init__(self) -> None:
        self._servers: dict[str, servers.Server] = {}

    @contextmanager
    def ground(self, store: str, folder: Path, for_scene: Scene | Mutant | None = None) -> Iterator[Ground]:
        """Yield a store for one scene: the scene creates it, or it is a database on one of our servers."""
        with ExitStack() as stack:
            if for_scene is not None and for_scene.ground is not None:
                yield stack.enter_context(for_scene.ground(store, folder))
            elif store == "sqlite":
                yield Ground(f"sqlite:///{folder / 'evenbeat.db'}", folder)
            else:
                server = self.server(store)
                yield Ground(stack.enter_context(own_place(server.url)), folder, server)

    def server(self, store: str) -> servers.Server:
        """Return a server that scenes may kill, shared by the scenes of a store."""
        if store not in self._servers:
            self._servers[store] = servers.started(store)
        return self._servers[store]

    def close(self) -> None:
        while self._servers:
            self._servers.popitem()[1].stop()
