"""The clock of a server, known here without asking each time."""

from __future__ import annotations

from collections.abc import Callable

from evenbeat.core.clocks import steady_clock
from evenbeat.core.instants import Instant

# A clock that was not heard of for so long is asked: quartz drifts by some 10 us a second.
_LONGEST = 60_000.0


def _steady_ms() -> float:
    return steady_clock() * 1000


class ServerClock:
    """What the server's clock says now: this machine's steady time, plus what the server is ahead of it.

    Each reply that tells the server's time bounds the difference: the server read its clock after the request
    was sent and before the reply came. Within these bounds the earliest time is taken, so that this clock is
    behind the server's by no more than a reply takes, and ahead of it only until a server whose clock was set
    back is heard of again.
    """

    def __init__(self, ask: Callable[[], Instant], steady: Callable[[], float] = _steady_ms) -> None:
        self._ask = ask
        """Asks the server, and nothing else."""
        self._steady = steady
        self._ahead: float | None = None
        self._heard = 0.0

    def now(self) -> Instant:
        ahead = self._ahead
        if ahead is None or self._steady() - self._heard > _LONGEST:
            sent = self.mark()
            ahead = self.heard(self._ask(), sent)
        return int(self._steady() + ahead)

    def mark(self) -> float:
        """To be taken before a request is sent, for ``heard``."""
        return self._steady()

    def heard(self, instant: Instant, sent: float) -> float:
        """A reply has come to what was sent then, and the server's clock was at ``instant`` in between."""
        self._heard = self._steady()
        least, most = instant - self._heard, instant + 1 - sent
        before = self._ahead
        self._ahead = ahead = least if before is None else min(max(before, least), most)
        return ahead

    def forget(self) -> None:
        """Ask again: another server may answer from now on."""
        self._ahead = None
