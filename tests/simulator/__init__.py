"""A deterministic simulator: many nodes, one store, every fault, one seed."""

from tests.simulator.backends import (
    Backend,
    DatabaseBackend,
    MakeBackend,
    MemoryBackend,
    WatchedMemory,
    sqlite_backend,
)
from tests.simulator.simulation import WITH_DRIVER, Options, Report, simulate
from tests.simulator.violation import SimulationFailed, Violation

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
