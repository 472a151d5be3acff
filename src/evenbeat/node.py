"""A node: the duties of one process, each in its thread, on one store."""

from __future__ import annotations

from evenbeat.node_settings import NodeSettings
from evenbeat.observe.events import Events
from evenbeat.stores.base import Store
from evenbeat.tasks import Tasks


class Node:
    """A ticker, a worker or both, with what keeps them going."""

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        events: Events,
        settings: NodeSettings,
        *,
        ticker: bool,
        worker: bool,
    ) -> None:
        self.is_processing = False

    def start(self) -> None: ...

    def stop(self, drain: int | None = None) -> None: ...

    def hurry(self) -> None: ...
