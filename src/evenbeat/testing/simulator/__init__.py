"""A deterministic simulator: many nodes, one store, every fault, one seed."""

from evenbeat.testing.simulator.backends import (
    Backend,
    DatabaseBackend,
    MakeBackend,
    MemoryBackend,
    WatchedMemory,
    sqlite_backend,
)
from evenbeat.testing.simulator.simulation import WITH_DRIVER, Options, Report, simulate
from evenbeat.testing.simulator.violation import SimulationFailed, Violation

__all__ = [
    "WITH_DRIVER",
    "Backend",
    "DatabaseBackend",
    "MakeBackend",
    "MemoryBackend",
    "Options",
    "Report",
    "SimulationFailed",
    "Violation",
    "WatchedMemory",
    "simulate",
    "sqlite_backend",
]
