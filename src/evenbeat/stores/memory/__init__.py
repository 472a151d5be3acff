"""The store in memory: the reference implementation of the contract, for tests and short-lived schedulers."""

from evenbeat.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
