"""Makes the channel of a stored record, and checks what users write into one."""

from __future__ import annotations

import re
from collections.abc import Mapping

from evenbeat.alerts.channels import apprise
from evenbeat.alerts.channels.addresses import BadAddress, read_target
from evenbeat.alerts.channels.apprise import AppriseChannel
from evenbeat.alerts.channels.base import Channel, DeliveryFailed
from evenbeat.alerts.channels.healthchecks import PLACEHOLDER, Healthchecks
from evenbeat.alerts.channels.sentry import Sentry, read_dsn
from evenbeat.alerts.channels.webhook import Webhook
from evenbeat.core.alerts import CHANNEL_KINDS
from evenbeat.core.masking import MASK
from evenbeat.errors import InvalidValue, shown
from evenbeat.rules.alert_records import StoredChannel

REFERENCE = "env:"
PREFIX = "EVENBEAT_SECRET_"
"""Only variables with this prefix may be named: others may hold what the author of a channel must not see."""
SHORTEST_SECRET, LONGEST_SECRET = 16, 1_000
_VARIABLE = re.compile(rf"{PREFIX}[A-Za-z0-9_]{{1,100}}")


def make_channel(
    stored: StoredChannel, environment: Mapping[str, str], allow_private: frozenset[str]
) -> Channel:
    """Return the channel of a record; raise ``DeliveryFailed`` if it can't be made in this process."""
    # Here, since every process of an app imports this module, and most never send: it takes 20 ms.
    from evenbeat.alerts.channels.http import HttpClient

    client = HttpClient(allow_private)
    url = _resolved(stored.url, environment)
    secret = None if stored.secret is None else _resolved(stored.secret, environment)
    try:
        _check_url(stored.kind, url)
    except BadAddress as error:
        raise DeliveryFailed(f"the URL is not usable: {error}", is_final=True) from None
    if stored.kind == "webhook":
        return Webhook(client, url, secret)
    if stored.kind == "sentry":
        return Sentry(client, read_dsn(url))
    if stored.kind == "healthchecks":
        return Healthchecks(client, url)
    return AppriseChannel(client, url)


def check_channel(kind: str, url: object, secret: object) -> None:
    """Refuse a channel that can't work; ``InvalidValue`` names the field, and never shows what it has."""
    if kind not in CHANNEL_KINDS:
        raise InvalidValue(
            f"kind {shown(kind)} is not one of {', '.join(CHANNEL_KINDS)}",
            field="kind",
            value=kind,
            hint="mail, chats and phones are of the kind apprise",
        )
    if not isinstance(url, str) or not url:
        raise _refused("url", "is not a text", _EXAMPLES[kind])
    if url.startswith(REFERENCE):
        _check_reference("url", url)
    else:
        try:
            _check_url(kind, url)
        except BadAddress as error:
            raise _refused("url", f"of the kind {kind} is refused: {error}", _EXAMPLES[kind]) from None
    if secret is None:
        return
    if kind != "webhook":
        raise _refused("secret", f"is not used by the kind {kind}", "leave it out")
    if not isinstance(secret, str) or not SHORTEST_SECRET <= len(secret) <= LONGEST_SECRET:
        words = f"is not a text of {SHORTEST_SECRET} to {LONGEST_SECRET:,} characters"
        raise _refused("secret", words, 'make one: python -c "import secrets; print(secrets.token_hex())"')
    if secret.startswith(REFERENCE):
        _check_reference("secret", secret)


def shown_address(stored: StoredChannel) -> str:
    """Return what may be shown of a channel's URL: the scheme and the host; of apprise, the scheme alone."""
    if stored.url.startswith(REFERENCE):
        return stored.url if _VARIABLE.fullmatch(stored.url.removeprefix(REFERENCE)) else "…"
    try:
        if stored.kind == "apprise":
            return f"{apprise.scheme_of(stored.url)}://"
        target = read_target(read_dsn(stored.url).url if stored.kind == "sentry" else stored.url)
    except BadAddress:
        return "…"
    return f"{target.scheme}://{target.authority}"


_EXAMPLES = {
    "webhook": "write it like https://example.com/hooks/evenbeat, or env:EVENBEAT_SECRET_NAME",
    "apprise": "write it like slack://…, mailto://…, or env:EVENBEAT_SECRET_NAME",
    "sentry": "copy the DSN of the project, https://…@….ingest.sentry.io/…, or env:EVENBEAT_SECRET_NAME",
    "healthchecks": "copy the ping URL of the check, https://hc-ping.com/…, or env:EVENBEAT_SECRET_NAME",
}


def _check_url(kind: str, url: str) -> None:
    if kind == "apprise":
        apprise.check_url(url)
    elif kind == "sentry":
        read_dsn(url)
    else:
        if kind == "healthchecks":
            url = url.replace(PLACEHOLDER, "schedule")
        if "{" in url or "}" in url:
            raise BadAddress("it has a { or }")
        read_target(url)


def _check_reference(field: str, text: str) -> None:
    if not _VARIABLE.fullmatch(text.removeprefix(REFERENCE)):
        hint = f"write {REFERENCE}{PREFIX}NAME: other variables of a process can't be read"
        raise _refused(field, f"does not name a variable that begins with {PREFIX}", hint)


def _resolved(text: str, environment: Mapping[str, str]) -> str:
    """Return a text, or the value of the variable that it names."""
    if not text.startswith(REFERENCE):
        return text
    name = text.removeprefix(REFERENCE)
    if not _VARIABLE.fullmatch(name):
        raise DeliveryFailed(f"it names a variable that does not begin with {PREFIX}", is_final=True)
    value = environment.get(name)
    if not value:
        # Not final: the next process to try may have it.
        raise DeliveryFailed(f"the variable {name} is not set in the process that sends")
    return value


def _refused(field: str, problem: str, hint: str) -> InvalidValue:
    return InvalidValue(f"{field} {problem}", field=field, value=MASK, hint=hint)
