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
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from evenbeat.alerts.channels.addresses import LONGEST_URL, BadAddress, read_host
from evenbeat.alerts.channels.base import SEND_SECONDS, DeliveryFailed
from evenbeat.alerts.channels.http import HttpClient
from evenbeat.core.alerts import Message

if TYPE_CHECKING:
    from apprise import NotifyBase

SERVICES = re.compile(
    r"""
    # mail
    mailtos? | ses | sendgrid | mailgun | mailersend | postmark | brevo | resend | smtp2go | sparkpost
    # chat
    | slack | discord | tgram | workflows | gchat | wxteams | webex | mmosts? | rockets? | matrixs? | zulip
    | nctalks? | twist | flock | ryver | signals? | whatsapp | threema | line | dingtalk | feishu | lark
    | wecombot
    # people on call, and their phones
    | pagerduty | opsgenie | pagertree | signl4 | splunk | victorops | spike | ntfys? | gotifys? | pover
    | pbul | prowl | barks? | ifttt | twilio | vonage | nexmo | sinch | msgbird | clicksend | sns
    # other receivers
    | apprises? | jsons? | forms? | xmls?
    """,
    re.VERBOSE,
)
"""The schemes of the services that a channel may use. Each service sends over the network; none runs a
program, or reads or writes anything on this machine."""

_MAIL = re.compile("mailtos?")
_OWN_SERVER = re.compile(
    "(?:mmost|rocket|matrix|nctalk|signal|ntfy|gotify|bark|apprise|json|form|xml)s?|workflows"
)
"""Services whose URL names the server. The others have one address, or make it of a fixed domain."""
_NOT_A_SERVER = ("cloud", "t2bot")
"""Modes of these services in which the URL does not name a server."""

_REFUSED_OPTION = re.compile(
    "template|attach|filename|keyfile|pgp|pgppub|pgpprv|pgpkey|wkd|store|optional|retry|wait"
)
"""Options that read or write files of this machine, hide failures, or outlast the time of a try."""

_SCHEME = re.compile(r"([A-Za-z0-9]{1,20})://")
_STATUS = re.compile(r"error=(\d{3})\b")
_LOGGERS = ("apprise", "urllib3.connectionpool", "urllib3.util.retry", "requests_oauthlib.oauth1_session")
_MOST_WAITING = 8
_sending = threading.local()
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
        if _MAIL.fullmatch(scheme):
            host = getattr(service, "smtp_host", None) or service.host
        elif _OWN_SERVER.fullmatch(scheme) and getattr(service, "mode", None) not in _NOT_A_SERVER:
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

    What a service does with a text depends on the service: some take it as HTML, some as their own kind of
    Markdown, whatever they are told. So nothing is escaped for one of them: the characters that could do
    harm are replaced by look-alikes (``<`` by ``‹``), or followed by a space without width (``@``).
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
    if not url.isprintable() or " " in url or len(url) > LONGEST_URL:
        raise BadAddress(f"it is not a URL of 1 to {LONGEST_URL:,} visible characters")
    if not SERVICES.fullmatch(scheme_of(url)):
        raise BadAddress("its scheme is not one of those that alert-channels.md lists, such as slack://")
    try:
        _library()
    except DeliveryFailed:
        return
    with _quiet():
        _service(url)


def _library() -> Any:
    try:
        import apprise
    except ImportError:
        raise DeliveryFailed(
            'apprise is not installed here: pip install "evenbeat[apprise]"', is_final=True
        ) from None
    return apprise


def _service(url: str) -> NotifyBase:
    """Return the service of a URL; raise ``BadAddress`` if it is not complete, or has an option to refuse."""
    from apprise import Apprise, AppriseAsset
    from apprise.plugins import url_to_dict

    scheme = scheme_of(url)
    if not SERVICES.fullmatch(scheme):
        raise BadAddress("its scheme is not one of those that alert-channels.md lists, such as slack://")
    # As apprise itself reads it: another reader might not see the same options.
    parts: dict[str, Any] | None = url_to_dict(url)  # type: ignore[no-untyped-call]  # of apprise
    if not parts or parts.get("schema") != scheme:
        raise BadAddress(f"apprise can't read it; see apprise's documentation of {scheme}://")
    for option in parts.get("qsd") or ():
        if _REFUSED_OPTION.fullmatch(str(option).lower().lstrip("+-:")):
            raise BadAddress(f"it has the option {option}, which channels may not use")
    asset = AppriseAsset(
        app_id="Evenbeat",
        app_desc="Evenbeat alerts",
        app_url="",
        async_mode=False,
        interpret_emojis=False,
        interpret_escapes=False,
        secure_logging=True,
        storage_mode="memory",
    )
    service = Apprise.instantiate(parts, asset=asset)
    if service is None:
        raise BadAddress(f"apprise can't read it; see apprise's documentation of {scheme}://")
    return service


@contextmanager
def _quiet() -> Iterator[list[str]]:
    """Keep what apprise and its libraries log in this thread out of the logs: it has URLs with their secrets.

    Yields the messages, of which the caller may take facts that are known to be harmless.
    """
    lines: list[str] = []
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_keep)  # adding it again has no effect
    _sending.lines = lines
    try:
        yield lines
    finally:
        _sending.lines = None


def _keep(record: logging.LogRecord) -> bool:
    lines: list[str] | None = getattr(_sending, "lines", None)
    if lines is None:
        return True
    lines.append(record.getMessage())
    return False
