"""A connection that listens: made, watched and given up without ever blocking its caller."""

from __future__ import annotations

import logging
import select
import time

import psycopg
from psycopg.pq import ConnStatus, ExecStatus, PGconn, PollingStatus
from psycopg.pq.abc import PGconn as Connection

from evenbeat.stores.postgres.connections import disown
from evenbeat.stores.postgres.failures import first_line

_log = logging.getLogger("evenbeat.store")

# How long a hint to oneself may take before it is taken for lost, and the log says so.
_PROOF = 10.0


class Listener:
    """A connection on its way to LISTEN; ``step`` takes it as far as it goes now."""

    def __init__(self, connection: Connection, channel: str, timeout: float, shown: str) -> None:
        self._connection = connection
        self._channel = channel
        self._shown = shown
        self._polling = PollingStatus.WRITING
        self._connected = False
        self._listens = False
        self._deadline = time.monotonic() + timeout
        self._warned = False
        self.ended = False
        self.reason = ""
        """Why it ended."""
        self.wants_proof = False
        """Set once LISTEN has succeeded: somebody should send a hint that this one hears."""
        self.proven = False
        """Whether hints come through."""

    @classmethod
    def start(cls, conninfo: str, channel: str, timeout: float, shown: str) -> Listener | None:
        """Begin to connect; None if that can't even begin (a host without an address, say)."""
        connection = PGconn.connect_start(conninfo.encode())
        if connection.status == ConnStatus.BAD:
            connection.finish()
            return None
        connection.nonblocking = 1
        return cls(connection, channel, timeout, shown)

    def interest(self) -> tuple[int, int]:
        """What to poll for."""
        writes = not self._connected and self._polling == PollingStatus.WRITING
        return self._connection.socket, select.POLLOUT if writes else select.POLLIN

    def step(self) -> list[str]:
        """Go on; the senders of the hints that came. ``ended`` says that it is over."""
        try:
            if not self._connected:
                self._connect()
            if self._connected:
                return self._read()
        except psycopg.Error as error:
            self._end(first_line(error))
        return []

    def _connect(self) -> None:
        poll = select.poll()
        poll.register(*self.interest())
        if poll.poll(0):
            self._polling = PollingStatus(self._connection.connect_poll())
        if self._polling == PollingStatus.OK:
            self._connected = True
            self._connection.send_query(f'LISTEN "{self._channel}"'.encode())
            self._connection.flush()
        elif self._polling == PollingStatus.FAILED:
            self._end(self._connection.error_message.decode(errors="replace").strip())
        elif time.monotonic() >= self._deadline:
            self._end("no answer in time")

    def _read(self) -> list[str]:
        self._connection.consume_input()
        while not self._listens and not self._connection.is_busy():
            result = self._connection.get_result()
            if result is None:
                self._listens = self.wants_proof = True
                self._deadline = time.monotonic() + _PROOF
            elif result.status != ExecStatus.COMMAND_OK:
                self._end(result.error_message.decode(errors="replace").strip())
                return []
        if not self.proven and time.monotonic() >= self._deadline:
            if not self._listens:
                self._end("no answer in time")
                return []
            self._warn()
        senders = []
        while (notice := self._connection.notifies()) is not None:
            senders.append(notice.extra.decode(errors="replace"))
        return senders

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "hints don't come through, so this node looks once a second; behind a PgBouncer that pools "
                "transactions, give the URL of a direct connection as listen=, or say listen=off",
                extra={"component": "store", "store": self._shown},
            )

    def _end(self, reason: str) -> None:
        self.ended = True
        self.reason = " ".join(reason.split())[:200]

    def close(self) -> None:
        self._connection.finish()

    def disown(self) -> None:
        """In the child of a fork: leave the parent's connection alone."""
        disown(self._connection.socket)
        _abandoned.append(self._connection)


# Never finished here: that would say good-bye for the parent, too.
_abandoned: list[Connection] = []
