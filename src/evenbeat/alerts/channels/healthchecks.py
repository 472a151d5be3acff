"""Healthchecks: pings a check when a run ends. The API is that of healthchecks.io and of its own servers."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from evenbeat.alerts.channels.monitors import event_id, is_good, slug
from evenbeat.core.alerts import Message

if TYPE_CHECKING:
    from evenbeat.alerts.channels.http import HttpClient

PLACEHOLDER = "{schedule}"
"""In a ping URL: stands for the slug of the schedule, so that one channel serves all schedules."""
_LONGEST_BODY = 10_000


class Healthchecks:
    """Pings a URL: as it is if a run succeeded, with ``/fail`` if it failed, with ``/log`` to test it."""

    def __init__(self, client: HttpClient, url: str) -> None:
        self._client, self._url = client, url

    def send(self, message: Message) -> None:
        self._client.post(
            ping_url(self._url, message), _body(message), {"Content-Type": "text/plain; charset=utf-8"}
        )


def ping_url(url: str, message: Message) -> str:
    """Return the URL that says what a message says."""
    parts = urlsplit(url.replace(PLACEHOLDER, slug(message)))
    path = parts.path.rstrip("/")
    if message.announcement == "test":
        path += "/log"
    elif not is_good(message):
        path += "/fail"
    query = "&".join(filter(None, (parts.query, f"rid={event_id(message)}")))
    return urlunsplit(parts._replace(path=path, query=query))


def _body(message: Message) -> bytes:
    return "\n".join((message.title, *message.lines)).encode(errors="replace")[:_LONGEST_BODY]
