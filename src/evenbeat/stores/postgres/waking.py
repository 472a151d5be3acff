"""Hints between processes that share a PostgreSQL schema, by NOTIFY and LISTEN."""

from __future__ import annotations

import contextlib
import logging
import selectors
import time

from psycopg.pq import ConnStatus, ExecStatus, PGconn, PollingStatus
from psycopg.pq.abc import PGconn as Connection

from evenbeat.errors import StoreUnavailable
from evenbeat.stores.postgres import statements as sql
from evenbeat.stores.postgres.connections import Connections, disown
from evenbeat.stores.postgres.location import Location
from evenbeat.stores.waking import POLL_SECONDS, Receiver, Transport

# How long to wait for a connection before a hint is dropped: a lost hint costs latency only.
_SEND_SECONDS = 0.5
# How long a hint to this process itself may take before the log warns that hints do not arrive.
_PROOF_SECONDS = 10.0
# The suffix of the sender's name in such a message. Other receivers ignore the message.
_PROOF = "?"

_log = logging.getLogger("evenbeat.store")


class NotifyTransport(Transport):
    """Sends hints by NOTIFY, over the store's connections."""

    def __init__(self, location: Location, connections: Connections, timeout: float) -> None:
        self.location = location
        self.shown = location.shown
        self.can_receive = location.listen is not None
        self.timeout = timeout
        self._connections = connections

    def send(self, sender: str) -> None:
        self.is_sent(sender)

    def is_sent(self, sender: str) -> bool:
        """Send a hint; return False if the server is unavailable."""
        with contextlib.suppress(StoreUnavailable), self._connections.read(_SEND_SECONDS) as session:
            session.rows("hint", sql.NOTIFY, {"channel": self.location.channel, "sender": sender})
            return True
        return False

    def receiver(self, sender: str) -> ListenReceiver:
        return ListenReceiver(self, sender)


class ListenReceiver(Receiver):
    """A connection that only listens.

    Behind a PgBouncer that pools transactions, LISTEN succeeds, but no hint ever arrives. So a receiver
    counts as connected only after it has received a hint that an ordinary connection sent.
    """

    def __init__(self, transport: NotifyTransport, sender: str) -> None:
        super().__init__()
        self._transport = transport
        self._sender = sender
        self.connection: Connection | None = None

    def connect(self) -> None:
        assert self._transport.location.listen is not None
        # connect_start resolves the host's name, which may take long and cannot be interrupted.
        made = self.connection = PGconn.connect_start(self._transport.location.listen.encode())
        deadline = time.monotonic() + self._transport.timeout
        state = PollingStatus.WRITING
        while state != PollingStatus.OK:
            if made.status == ConnStatus.BAD or state == PollingStatus.FAILED:
                raise StoreUnavailable(_text(made.error_message))
            event = selectors.EVENT_WRITE if state == PollingStatus.WRITING else selectors.EVENT_READ
            self._await(made, event, deadline)
            state = PollingStatus(made.connect_poll())
        made.nonblocking = 1
        self._subscribe(made, deadline)
        self._prove(made)

    def _subscribe(self, made: Connection, deadline: float) -> None:
        made.send_query(f'LISTEN "{self._transport.location.channel}"'.encode())
        made.flush()
        while True:
            while made.is_busy():
                self._await(made, selectors.EVENT_READ, deadline)
                made.consume_input()
            result = made.get_result()
            if result is None:
                return
            if result.status != ExecStatus.COMMAND_OK:
                raise StoreUnavailable(_text(result.error_message))

    def _prove(self, made: Connection) -> None:
        """Send a message to this process itself, and wait until it arrives."""
        proof = f"{self._sender}{_PROOF}"
        warn_at = time.monotonic() + _PROOF_SECONDS
        is_sent = self._transport.is_sent(proof)
        while proof not in self._arrived(made, min(POLL_SECONDS, _PROOF_SECONDS)):
            is_sent = is_sent or self._transport.is_sent(proof)
            if time.monotonic() >= warn_at:
                warn_at = float("inf")
                _log.warning(
                    "hints do not arrive, so this store is polled once a second; behind a PgBouncer that "
                    "pools transactions, set listen= to the URL of a direct connection, or to off",
                    extra={"component": "store", "store": self._transport.shown},
                )

    def receive(self) -> list[str]:
        assert self.connection is not None
        return [sender for sender in self._arrived(self.connection) if not sender.endswith(_PROOF)]

    def _arrived(self, made: Connection, timeout: float | None = None) -> list[str]:
        self.is_ready(made.socket, selectors.EVENT_READ, timeout)
        made.consume_input()
        senders = []
        while (notice := made.notifies()) is not None:
            senders.append(notice.extra.decode(errors="replace"))
        return senders

    def _await(self, made: Connection, event: int, deadline: float) -> None:
        if not self.is_ready(made.socket, event, deadline - time.monotonic()):
            raise StoreUnavailable("the server did not answer in time")

    def disconnect(self) -> None:
        made, self.connection = self.connection, None
        if made is not None:
            made.finish()

    def disown(self) -> None:
        if self.connection is not None:
            disown(self.connection.socket)
            _abandoned.append(self.connection)


def _text(message: bytes) -> str:
    return message.decode(errors="replace").strip()


# Connections inherited from a parent process. This process never closes them: that would close them for the
# parent, too.
_abandoned: list[Connection] = []
