"""Mail, chat and push by the library apprise (extra ``apprise``).

Names, errors and reasons come from users, and from the programs that fail. In mail and chat they must stay
text: no markup, no link with another text, no mention that wakes everybody up (CVE-2020-26238 is what
happens when such a text is used as a template).
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from evenbeat.alerts.channels.addresses import LONGEST_URL, BadAddress, read_host
from evenbeat.alerts.channels.base import SEND_SECONDS, DeliveryFailed
from evenbeat.core.alerts import Message

if TYPE_CHECKING:
    from apprise import NotifyBase

    from evenbeat.alerts.channels.http import HttpClient


def _words(*texts: str) -> frozenset[str]:
    # Sets, since compiling a regular expression of so many words takes 4 ms at every import.
    return frozenset(word for text in texts for word in text.split())


_OWN_SERVER = _words(
    "mmost mmosts rocket rockets matrix matrixs nctalk nctalks signal signals",
    "ntfy ntfys gotify gotifys bark barks workflows",
    "apprise apprises json jsons form forms xml xmls",
)
"""Services whose URL names the server."""
_MAIL = _words("mailto mailtos")
SERVICES = (
    _OWN_SERVER
    | _MAIL
    | _words(
        "ses sendgrid mailgun mailersend postmark brevo resend smtp2go sparkpost",
        "slack discord tgram gchat wxteams webex zulip twist flock ryver",
        "whatsapp threema line dingtalk feishu lark wecombot",
        "pagerduty opsgenie pagertree signl4 splunk victorops spike",
        "pover pbul prowl ifttt twilio vonage nexmo sinch msgbird clicksend sns",
    )
)
"""The schemes of the services that a channel may use. Each service sends over the network; none runs a
program, or reads or writes anything on this machine."""
_NOT_A_SERVER = ("cloud", "t2bot")
"""Modes of some of these services in which the URL does not name a server."""

_REFUSED_OPTIONS = _words(
    "template attach filename keyfile pgp pgppub pgpprv pgpkey wkd store optional retry wait"
)
"""Options that read or write files of this machine, hide failures, or outlast the time of a try."""

_SCHEME = re.compile(r"([A-Za-z0-9]{1,20})://")
_STATUS = re.compile(r"error=(\d{3})\b")
_LOGGERS = ("apprise", "urllib3.connectionpool", "urllib3.util.retry", "requests_oauthlib.oauth1_session")
_MOST_WAITING = 8
_logged: ContextVar[list[str] | None] = ContextVar("evenbeat_apprise_logged", default=None)
_waiting: set[threading.Thread] = set()


class AppriseChannel:
    """Sends by one URL of apprise."""

    def __init__(self, client: HttpClient, url: str, *, seconds: float = SEND_SECONDS) -> None:
        self._client, self._url, self._seconds = client, url, seconds

    def send(self, message: Message) -> None:
        """Send in a thread of its own: apprise bounds the time of each read, but not of all of them."""
        _waiting.difference_update([thread for thread in _waiting if not thread.is_alive()])
        if len(_waiting) >= _MOST_WAITING:
            raise DeliveryFailed(f"{len(_waiting)} earlier tries to send by apprise have not ended yet")
        results: SimpleQueue[DeliveryFailed | None] = SimpleQueue()

        def work() -> None:
            try:
                self._send(message)
            except DeliveryFailed as error:
                results.put(error)
            except Exception as error:  # of the library; its text may have the URL
                results.put(DeliveryFailed(f"apprise raised {type(error).__name__}"))
            else:
                results.put(None)

        thread = threading.Thread(target=work, name="evenbeat-apprise", daemon=True)
        thread.start()
        try:
            failure = results.get(timeout=self._seconds)
        except Empty:
            _waiting.add(thread)
            raise DeliveryFailed(f"apprise did not end within {self._seconds:g} s") from None
        if failure is not None:
            raise failure

    def _send(self, message: Message) -> None:
        apprise = _library()
        with _quiet() as logged:
            try:
                service = _service(self._url)
            except BadAddress as error:
                raise DeliveryFailed(f"the URL is not usable: {error}", is_final=True) from None
            self._check_server(service)
            sender = apprise.Apprise(asset=service.asset)
            sender.add(service)
            is_sent = sender.notify(
                title=inert(message.title),
                body="\n".join(map(inert, message.lines)),
                notify_type=_TYPES[message.announcement],
                body_format=apprise.NotifyFormat.TEXT,
            )
        if not is_sent:
            status = next((found[1] for line in logged if (found := _STATUS.search(line))), None)
            raise DeliveryFailed(
                f"{scheme_of(self._url)}:// did not take it" + (f": it answered {status}" if status else "")
            )

    def _check_server(self, service: NotifyBase) -> None:
        """Refuse a server that is not public, as for webhooks. Apprise resolves the name once more."""
        scheme = scheme_of(self._url)
        if scheme in _MAIL:
            host = getattr(service, "smtp_host", None) or service.host
        elif scheme in _OWN_SERVER and getattr(service, "mode", None) not in _NOT_A_SERVER:
            host = service.host
        else:
            return
        try:
            self._client.check_host(read_host(str(host)), int(service.port or 443))
        except BadAddress as error:
            raise DeliveryFailed(f"the URL is not usable: {error}", is_final=True) from None


_TYPES = {"opened": "failure", "escalated": "failure", "recovered": "success", "run": "info", "test": "info"}

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_MENTION = re.compile(r"@(?=\S)")
_LINK = re.compile(r"\](?=[(\[:])")
_LOOK_ALIKES = str.maketrans({"<": "‹", ">": "›", "`": "'"})


def inert(text: str) -> str:
    """Return one line that every mail program and chat shows as text.

    Some services read a text as HTML, others as their own kind of Markdown, and many ignore the format that
    the sender names. So this escapes nothing for one of them. It replaces the characters that could do harm
    by look-alikes (``<`` by ``‹``), or adds a space without width (``@``).
    """
    line = _CONTROL.sub(" ", text).translate(_LOOK_ALIKES)
    return _LINK.sub("]\u200b", _MENTION.sub("@\u200b", line)).strip()


def scheme_of(url: str) -> str:
    """Return the scheme of a URL, in lower case; "" if it has none."""
    found = _SCHEME.match(url)
    return "" if found is None else found[1].lower()


def check_url(url: str) -> None:
    """Refuse a URL that no channel may use; raise ``BadAddress``.

    All but the scheme is checked only if the library is installed: the process that sends may be another one.
    """
    _check_text(url)
    try:
        _library()
    except DeliveryFailed:
        return
    with _quiet():
        _service(url)


def _check_text(url: str) -> None:
    if not url.isprintable() or " " in url or not 0 < len(url) <= LONGEST_URL:
        raise BadAddress(f"it is not a URL of 1 to {LONGEST_URL:,} visible characters")
    if scheme_of(url) not in SERVICES:
        raise BadAddress("its scheme is not one of the services that channels may use, such as slack://")


def _library() -> Any:
    try:
        import apprise
    except ImportError:
        # Not final: the next process to try may have it.
        raise DeliveryFailed(
            'apprise is not installed in the process that sends: pip install "evenbeat[apprise]"'
        ) from None
    return apprise


def _service(url: str) -> NotifyBase:
    """Return the service of a URL; raise ``BadAddress`` if it is not complete, or has an option to refuse."""
    from apprise import Apprise, AppriseAsset
    from apprise.plugins import url_to_dict

    _check_text(url)
    scheme = scheme_of(url)
    # As apprise itself reads it: another reader might not see the same options.
    parts: dict[str, Any] | None = url_to_dict(url)  # type: ignore[no-untyped-call]  # of apprise
    if not parts or parts.get("schema") != scheme:
        raise BadAddress(f"apprise can't read it; see apprise's documentation of {scheme}://")
    for option in parts.get("qsd") or ():
        if str(option).lower().lstrip("+-:") in _REFUSED_OPTIONS:
            raise BadAddress(f"it has the option {option}, which channels may not use")
    asset = AppriseAsset(
        app_id="Evenbeat",
        app_desc="Evenbeat alerts",
        app_url="",
        async_mode=False,
        interpret_emojis=False,
        interpret_escapes=False,
        secure_logging=True,
        service_timeout=0,  # with one, it sends in threads of a pool, which the exit of a process waits for
        storage_mode="memory",
    )
    service = Apprise.instantiate(parts, asset=asset)
    if service is None:
        raise BadAddress(f"apprise can't read it; see apprise's documentation of {scheme}://")
    return service


@contextmanager
def _quiet() -> Iterator[list[str]]:
    """Keep what apprise and its libraries log meanwhile out of the logs: it has URLs with their secrets.

    Yields the messages, of which the caller may take facts that are known to be harmless. Apprise sends in
    other threads, which get a copy of this context.
    """
    lines: list[str] = []
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_keep)  # adding it again has no effect
    token = _logged.set(lines)
    try:
        yield lines
    finally:
        _logged.reset(token)


def _keep(record: logging.LogRecord) -> bool:
    lines = _logged.get()
    if lines is None:
        return True
    lines.append(record.getMessage())
    return False
