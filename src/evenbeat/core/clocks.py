"""The clocks of this machine: the wall clock, and a steady clock for measuring durations."""

from __future__ import annotations

import time

from evenbeat.core.instants import Instant


def steady_clock() -> float:
    """Return seconds, for leases and timeouts, by a clock that is never set and that a suspend does not stop.

    CLOCK_MONOTONIC stands still while a machine is suspended: a lease would seem valid long after it expired.
    Systems without CLOCK_BOOTTIME, which only Linux has, offer nothing better.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e9
    return time.monotonic()


def wall_clock() -> Instant:
    """Return the time of this machine, which stores without a clock of their own use."""
    return time.time_ns() // 1_000_000
