"""The steady clock of this machine: for leases, timeouts and what the server's clock is measured against."""

from __future__ import annotations

import time


def steady_clock() -> float:
    """Seconds since some moment, by a clock that nobody sets and no suspend stops.

    CLOCK_MONOTONIC stands still while a machine is suspended: a lease would seem to be held long after it
    ended. Systems without CLOCK_BOOTTIME, which is Linux's, have nothing better.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e9
    return time.monotonic()
