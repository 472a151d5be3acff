"""The log of an outage: the first failed request, and then a summary every 10 seconds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from evenbeat.errors import EvenbeatError

SUMMARY_SECONDS = 10.0
"""How often failed requests are logged at most."""

_log = logging.getLogger("evenbeat.web.outages")


class OutageLog:
    """Logs requests that fail because of the store, without a line for each. Any thread may use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failed = 0
        """Requests that failed since the last line."""
        self._logged_at: float | None = None

    def note(self, error: EvenbeatError) -> None:
        """Log a failed request, or count it for the next line if there was one less than 10 seconds ago."""
        with self._lock:
            self._failed += 1
            now = self._clock()
            if self._logged_at is not None and now - self._logged_at < SUMMARY_SECONDS:
                return
            failed, self._failed = self._failed, 0
            self._logged_at = now
        if failed == 1:
            _log.warning("a request failed, the client may repeat it: %s", error, extra={"component": "web"})
        else:
            _log.warning(
                "requests failed, clients may repeat them; the last one: %s",
                error,
                extra={"component": "web", "requests": failed},
            )
