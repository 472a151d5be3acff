"""Webhooks: an announcement as a JSON document, signed with a key that the receiver knows, too.

The shape of the document and the headers are a promise to receivers: docs/howto/alert-channels.md.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from evenbeat.core.alerts import Message
from evenbeat.core.clocks import wall_clock
from evenbeat.core.instants import Instant
from evenbeat.core.json_form import json_form

if TYPE_CHECKING:
    from evenbeat.alerts.channels.http import HttpClient

VERSION = 1
"""Of the shape of the document. New fields may come without a new version."""


class Webhook:
    """Posts announcements to a URL."""

    def __init__(
        self, client: HttpClient, url: str, secret: str | None, *, now: Callable[[], Instant] = wall_clock
    ) -> None:
        self._client, self._url, self._secret, self._now = client, url, secret, now

    def send(self, message: Message) -> None:
        body = document(message)
        timestamp = str(self._now() // 1000)
        headers = {
            "Content-Type": "application/json",
            "Evenbeat-Alert-Id": message.id,
            "Evenbeat-Timestamp": timestamp,
        }
        if self._secret is not None:
            headers["Evenbeat-Signature"] = f"v1={signature(self._secret, timestamp, body)}"
        self._client.post(self._url, body, headers)


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the HMAC-SHA256 of the timestamp, a dot and the body, in hexadecimal digits."""
    return hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def document(message: Message) -> bytes:
    """Return the body of the request. Every field is there, null if it does not apply."""
    fields: dict[str, Any] = {"version": VERSION, **json_form(message)}
    return msgspec.json.encode(fields)
