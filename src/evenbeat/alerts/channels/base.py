"""The protocol of a channel, and the error by which it says that a message did not arrive."""

from __future__ import annotations

from typing import Protocol

from evenbeat.core.alerts import Message

SEND_SECONDS = 15.0
"""How long one try to send may take in all."""


class DeliveryFailed(Exception):
    """A try to send failed. ``reason`` has no secrets: users see it in the log of deliveries."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_final = is_final
        """Whether each process would fail at each try: a URL that is not usable, an answer of 404."""


class Channel(Protocol):
    def send(self, message: Message) -> None:
        """Send a message within ``SEND_SECONDS``; raise ``DeliveryFailed`` if it was not accepted."""
