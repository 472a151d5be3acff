"""An estimate of a server's clock that does not ask the server each time."""

from __future__ import annotations

from collections.abc import Callable

from evenbeat.core.clocks import steady_clock
from evenbeat.core.instants import Instant

# How old the last reply may be before the server is asked again: quartz drifts by some 10 us a second.
_LONGEST = 60_000.0


def _steady_ms() -> float:
    return steady_clock() * 1000


class ServerClock:
    """The server's clock: this machine's steady clock plus the difference between the two.

    Each reply with the server's time bounds the difference: the server read its clock after the request was
    sent and before the reply arrived. Of the possible times this clock takes the earliest. So it is behind
    the server's by no more than a reply takes, and ahead of it only after the server's clock was set back,
    until the next reply.
    """

    def __init__(self, ask: Callable[[], Instant], steady: Callable[[], float] = _steady_ms) -> None:
        self._ask = ask
        """Asks the server for its time, and does nothing else."""
        self._steady = steady
        self._ahead: float | None = None
        self._received_at = 0.0

    def now(self) -> Instant:
        ahead = self._ahead
        if ahead is None or self._steady() - self._received_at > _LONGEST:
            sent = self.mark()
            ahead = self.update(self._ask(), sent)
        return int(self._steady() + ahead)

    def mark(self) -> float:
        """Return the moment before a request is sent, for ``update``."""
        return self._steady()

    def update(self, instant: Instant, sent: float) -> float:
        """Note that a reply to the request sent at ``sent`` has arrived, and contains the server's time."""
        self._received_at = self._steady()
        least, most = instant - self._received_at, instant + 1 - sent
        before = self._ahead
        self._ahead = ahead = least if before is None else min(max(before, least), most)
        return ahead

    def forget(self) -> None:
        """Ask again at the next call: another server may answer from now on."""
        self._ahead = None
