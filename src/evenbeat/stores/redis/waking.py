"""Hints between processes that share a prefix of Redis or Valkey, by PUBLISH and SUBSCRIBE."""

from __future__ import annotations

import contextlib
import selectors

from evenbeat.errors import StoreUnavailable
from evenbeat.stores.redis.primary import RawConnection
from evenbeat.stores.redis.session import Session
from evenbeat.stores.waking import Receiver, Transport


class ChannelTransport(Transport):
    """Sends hints on the channel of a prefix."""

    def __init__(self, session: Session) -> None:
        self.shown = session.location.shown
        self.session = session
        session.on_leave = self._follow_primary
        self._receiver: ChannelReceiver | None = None

    def send(self, sender: str) -> None:
        with contextlib.suppress(StoreUnavailable):
            self.session.execute("hint", "PUBLISH", self.session.location.channel, sender)

    def receiver(self, sender: str) -> ChannelReceiver:
        self._receiver = ChannelReceiver(self.session)
        return self._receiver

    def _follow_primary(self) -> None:
        """Make the receiver connect to the new primary, to which other processes send their hints now."""
        if self._receiver is not None:
            self._receiver.ring()


class ChannelReceiver(Receiver):
    """A connection that is subscribed to the channel."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._connection: RawConnection | None = None

    def connect(self) -> None:
        made = self._connection = self._session.raw_connection()
        made.connect()
        made.send_command("SUBSCRIBE", self._session.location.channel)
        made.read_response()

    def receive(self) -> list[str]:
        made = self._connection
        assert made is not None
        if not made.can_read(timeout=0):
            self.is_ready(made._sock.fileno(), selectors.EVENT_READ)  # noqa: SLF001 - the driver has no other way
        senders: list[str] = []
        while made.can_read(timeout=0):
            kind, _, sender = made.read_response()
            if kind == "message":
                senders.append(sender)
        return senders

    def disconnect(self) -> None:
        made, self._connection = self._connection, None
        if made is not None:
            with contextlib.suppress(Exception):
                made.disconnect()

    def disown(self) -> None:
        if self._connection is not None:
            _abandoned.append(self._connection)


# Connections of a parent process: kept, since the driver ends a connection, also the parent's, when it is
# dropped.
_abandoned: list[RawConnection] = []
