"""The clocks of this machine: one that tells the time, and one that only measures it."""

from __future__ import annotations

import time

from evenbeat.core.instants import Instant


def steady_clock() -> float:
    """Return seconds by a clock that nobody sets and no suspend stops: for leases and timeouts.

    CLOCK_MONOTONIC stands still while a machine is suspended: a lease would seem to be held long after it
    ended. Systems without CLOCK_BOOTTIME, which is Linux's, have nothing better.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e9
    return time.monotonic()


def wall_clock() -> Instant:
    """Return the time of this machine: the clock of stores that have none of their own."""
    return time.time_ns() // 1_000_000
