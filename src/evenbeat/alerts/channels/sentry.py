"""Sentry Crons: a check-in when a run ends.

An envelope with one item is all that a check-in takes, so it goes through the guarded client, and Sentry's
SDK is not needed. The format: https://develop.sentry.dev/sdk/telemetry/check-ins/.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlunsplit

import msgspec

from evenbeat import __version__
from evenbeat.alerts.channels.addresses import BadAddress, read_target, split_url
from evenbeat.alerts.channels.monitors import event_id, is_good, slug
from evenbeat.core.alerts import Message
from evenbeat.core.clocks import wall_clock
from evenbeat.core.instants import Instant, write_instant
from evenbeat.errors import InvalidTrigger
from evenbeat.triggers import Cron, Every, parse_trigger

if TYPE_CHECKING:
    from evenbeat.alerts.channels.http import HttpClient

_KEY = re.compile(r"[A-Za-z0-9]{1,100}")
_PROJECT = re.compile(r"[A-Za-z0-9_-]{1,100}")
# Fields that every cron has: neither seconds, nor L, W, # and H.
_PLAIN_CRON = re.compile(r"[0-9*,/-]+(?: [0-9*,/-]+){4}")
_UNITS = (("week", 604_800_000), ("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000))
_MARGIN = timedelta(minutes=5)


class Dsn(NamedTuple):
    """The parts of a DSN."""

    url: str
    """Where envelopes are posted."""
    key: str


def read_dsn(text: str) -> Dsn:
    """Return the parts of a DSN, ``https://KEY@HOST/PROJECT``; raise ``BadAddress`` for any other text."""
    parts = split_url(text)
    user, at, host = parts.netloc.rpartition("@")
    key = user.partition(":")[0]  # a secret key behind it is a thing of the past
    folder, _, project = parts.path.rpartition("/")
    if not (at and _KEY.fullmatch(key) and _PROJECT.fullmatch(project)) or parts.query or parts.fragment:
        raise BadAddress("it is not a DSN, https://KEY@HOST/PROJECT")
    url = urlunsplit((parts.scheme, host, f"{folder}/api/{project}/envelope/", "", ""))
    read_target(url)
    return Dsn(url, key)


class Sentry:
    """Checks in with the monitor of a schedule, and creates the monitor if the trigger allows it."""

    def __init__(self, client: HttpClient, dsn: Dsn, *, now: Callable[[], Instant] = wall_clock) -> None:
        self._client, self._dsn, self._now = client, dsn, now

    def send(self, message: Message) -> None:
        auth = f"Sentry sentry_version=7, sentry_client=evenbeat/{__version__}, sentry_key={self._dsn.key}"
        headers = {"Content-Type": "application/x-sentry-envelope", "X-Sentry-Auth": auth}
        self._client.post(self._dsn.url, _envelope(check_in(message), self._now()), headers)


def check_in(message: Message) -> dict[str, Any]:
    """Return the check-in of a message."""
    fields: dict[str, Any] = {
        "check_in_id": event_id(message).hex,
        "monitor_slug": slug(message),
        "status": "ok" if is_good(message) else "error",
    }
    if message.duration is not None:
        fields["duration"] = message.duration.total_seconds()
    schedule = None if message.trigger is None else _schedule(message.trigger, message.schedule or "")
    if schedule is not None:
        # There is one check-in, at the end: without this margin, every long run would count as missed.
        margin = _MARGIN + 2 * (message.duration or timedelta())
        config = {"checkin_margin": math.ceil(margin / timedelta(minutes=1))}
        fields["monitor_config"] = {**schedule, **config}
    return fields


def _schedule(text: str, name: str) -> dict[str, Any] | None:
    """Return a trigger as Sentry writes it; None if it can't: single instants, seconds, an end."""
    try:
        trigger = parse_trigger(text).bind(name, 0)
    except InvalidTrigger:
        return None
    if isinstance(trigger, Cron) and trigger.until is None:
        expression = str(trigger.expression)
        if _PLAIN_CRON.fullmatch(expression):
            return {"schedule": {"type": "crontab", "value": expression}, "timezone": trigger.zone.key}
    if isinstance(trigger, Every) and trigger.until is None:
        for unit, size in _UNITS:
            if trigger.period and trigger.period % size == 0:
                return {"schedule": {"type": "interval", "value": trigger.period // size, "unit": unit}}
    return None


def _envelope(item: dict[str, Any], now: Instant) -> bytes:
    payload = msgspec.json.encode(item)
    header = msgspec.json.encode({"sent_at": write_instant(now)})
    item_header = msgspec.json.encode({"type": "check_in", "length": len(payload)})
    return b"\n".join((header, item_header, payload, b""))
