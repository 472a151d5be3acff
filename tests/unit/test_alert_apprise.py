"""Mail and chat by apprise, to real receivers on loopback: texts stay texts, and secrets stay secret."""

from __future__ import annotations

import builtins
import email
import email.policy
import json
import logging
import re
import socket
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from email.header import decode_header, make_header
from pathlib import Path
from typing import Any

import pytest
from apprise import Apprise
from apprise.plugins.discord import NotifyDiscord
from apprise.plugins.slack import NotifySlack
from apprise.plugins.telegram import NotifyTelegram
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenbeat.alerts.channels.addresses import BadAddress
from evenbeat.alerts.channels.apprise import SERVICES, AppriseChannel, check_url, inert, scheme_of
from evenbeat.alerts.channels.base import DeliveryFailed
from evenbeat.alerts.channels.http import HttpClient
from tests.unit.receivers import MARK, MESSAGE, Receiver, mail_receiver, receiver, talker, text_of

LOCAL = HttpClient(frozenset(("127.0.0.1", "localhost")))
HOSTILE = "<script>alert(1)</script> @everyone <!channel> [safe](http://evil.example) `rm` **b**"
HOSTILE += "\r\nBcc: all@example.com\n\x00\x1b[2J\u202e {{7*7}} ${HOME} {0.__class__} %s :smile: &lt;b&gt;"
MESSAGE_FROM_HELL = replace(MESSAGE, title=f"Failed: {HOSTILE}", lines=(f"Error: {HOSTILE}", "Last line"))


@contextmanager
def chat(
    monkeypatch: pytest.MonkeyPatch, service: type, attribute: str, path: str = ""
) -> Iterator[Receiver]:
    """Let a service of apprise, whose address is fixed, talk to a receiver on loopback."""
    with receiver() as server:
        monkeypatch.setattr(service, attribute, f"{server.url}{path}")
        yield server


def assert_harmless(text: str) -> None:
    assert "<" not in re.sub(r"&lt;|</?(?:br|b|html|body|p|pre|h1)\b[^>]*>", "", text).replace(
        "<!DOCTYPE", ""
    )
    assert "@everyone" not in text
    assert "](" not in text.replace("\\", "")
    assert "`" not in text
    assert not any(unicodedata.category(char) == "Cc" and char not in "\r\n" for char in text)
    assert "49" not in text
    assert "smile" in text


def test_a_message_reaches_a_json_receiver_as_text() -> None:
    with receiver() as server:
        AppriseChannel(LOCAL, f"json://user:{MARK}@127.0.0.1:{server.port}/path").send(MESSAGE)
    [request] = server.requests
    document = json.loads(request.body)
    assert request.path == "/path"
    assert (document["title"], document["type"]) == ("Failed: nightly", "failure")
    assert document["message"] == "A run failed.\nError: ValueError: no such table\nSchedule: nightly"


def test_a_message_arrives_as_mail() -> None:
    with mail_receiver() as (port, mails):
        url = f"mailto://127.0.0.1:{port}?from=jobs@example.com&to=ops@example.com&mode=insecure"
        AppriseChannel(LOCAL, url).send(MESSAGE)
        AppriseChannel(LOCAL, f"{url}&format=text").send(MESSAGE)
    html, plain = (email.message_from_bytes(mail) for mail in mails)
    assert html["Subject"] == plain["Subject"] == "Failed: nightly"
    assert "ops@example.com" in html["To"]
    assert "Error: ValueError: no such table" in text_of(plain)
    assert "A run failed.<br" in text_of(html) or "A run failed." in text_of(html)


def test_a_hostile_message_does_no_harm_in_mail() -> None:
    with mail_receiver() as (port, mails):
        url = f"mailto://127.0.0.1:{port}?from=jobs@example.com&to=ops@example.com&mode=insecure"
        AppriseChannel(LOCAL, url).send(MESSAGE_FROM_HELL)
        AppriseChannel(LOCAL, f"{url}&format=markdown").send(MESSAGE_FROM_HELL)
    assert len(mails) == 2
    for each in mails:
        mail = email.message_from_bytes(each)
        assert mail["Bcc"] is None
        assert_harmless(str(make_header(decode_header(mail["Subject"]))))
        for part in mail.walk():
            if not part.is_multipart():
                content = part.get_payload(decode=True)
                assert isinstance(content, bytes)
                assert_harmless(content.decode())


@pytest.mark.parametrize("scheme", ["json", "form", "xml", "mmost", "rocket", "gotify", "ntfy", "apprise"])
def test_a_hostile_message_does_no_harm_in_a_chat_with_a_server_of_its_own(scheme: str) -> None:
    urls = {
        "mmost": "mmost://127.0.0.1:{port}/3ccdd113474722377935511fc85d3dd4",
        "rocket": "rocket://3ccdd113474722377935511fc85d3dd4/x@127.0.0.1:{port}/%23ops?mode=webhook",
        "gotify": "gotify://127.0.0.1:{port}/abcdefghijklmno",
        "ntfy": "ntfy://127.0.0.1:{port}/topic?mode=private",
        "apprise": "apprise://127.0.0.1:{port}/token",
    }
    with receiver() as server:
        url = urls.get(scheme, f"{scheme}://127.0.0.1:{{port}}/").format(port=server.port)
        AppriseChannel(LOCAL, url).send(MESSAGE_FROM_HELL)
    [request] = server.requests
    assert b"script" in request.body
    for bad in (b"<script", b"@everyone", b"%40everyone", b"<!channel", b"%3Cscript", b"\\u003cscript"):
        assert bad not in request.body


def test_a_hostile_message_does_no_harm_in_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    with chat(monkeypatch, NotifySlack, "webhook_url") as server:
        for end in ("", "?blocks=yes", "?format=text"):
            AppriseChannel(LOCAL, f"slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/{end}").send(
                MESSAGE_FROM_HELL
            )
    assert len(server.requests) == 3
    for request in server.requests:
        text = json.dumps(json.loads(request.body), ensure_ascii=False)
        assert "<!channel" not in text
        assert "&lt;!channel" not in text
        assert "@everyone" not in text
        assert "<http" not in text


def test_a_hostile_message_does_no_harm_in_discord(monkeypatch: pytest.MonkeyPatch) -> None:
    with chat(monkeypatch, NotifyDiscord, "notify_url") as server:
        for end in ("", "?format=markdown"):
            AppriseChannel(LOCAL, f"discord://{'1' * 18}/{'a' * 68}/{end}").send(MESSAGE_FROM_HELL)
    assert len(server.requests) >= 2
    for request in server.requests:
        document = json.loads(request.body)
        text = json.dumps(document, ensure_ascii=False)
        assert "@everyone" not in text
        assert "](" not in text.replace("\\", "")
        assert not document.get("allow_mentions", {}).get("parse")


def test_a_hostile_message_does_no_harm_in_telegram(monkeypatch: pytest.MonkeyPatch) -> None:
    with chat(monkeypatch, NotifyTelegram, "notify_url", "/bot") as server:
        for end in ("", "&format=markdown"):
            AppriseChannel(LOCAL, f"tgram://123456789:{'a' * 35}/12315544/?detect=no{end}").send(
                MESSAGE_FROM_HELL
            )
    for request in server.requests:
        assert "<script" not in json.loads(request.body)["text"]
        assert "@everyone" not in json.loads(request.body)["text"]


@given(st.text())
def test_no_text_keeps_what_could_do_harm(text: str) -> None:
    line = inert(text)
    assert not set(line) & set("<>`\r\n\x00\x1b\u202e\u2028")
    assert not re.search(r"@[^\s\u200b]", line)
    assert not re.search(r"\][(\[:]", line)


@given(st.text(alphabet=st.characters(categories=("L", "N", "Zs", "P"), exclude_characters="<>`@[]")))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert inert(text) == text.strip()


def test_the_address_of_a_server_needs_permission() -> None:
    guarded = HttpClient()
    with receiver() as server, mail_receiver() as (port, mails):
        for url in (
            f"json://127.0.0.1:{server.port}/{MARK}",
            f"ntfy://localhost:{server.port}/{MARK}",
            f"mailto://u:{MARK}@127.0.0.1:{port}?from=b@example.com&to=a@example.com",
            f"mailto://u:{MARK}@example.com?smtp=127.0.0.1&to=a@example.com",
        ):
            with pytest.raises(DeliveryFailed, match="--allow-private-webhooks") as failed:
                AppriseChannel(guarded, url).send(MESSAGE)
            assert not failed.value.is_final
            assert MARK not in str(failed.value)
    assert (server.requests, mails) == ([], [])


def test_a_failure_names_the_status_and_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    with receiver(500) as server, caplog.at_level(logging.NOTSET):
        channel = AppriseChannel(LOCAL, f"json://{MARK}:{MARK}@127.0.0.1:{server.port}/{MARK}?+X={MARK}")
        with pytest.raises(DeliveryFailed) as failed:
            channel.send(MESSAGE)
    assert (failed.value.reason, failed.value.is_final) == ("json:// did not take it: it answered 500", False)
    assert MARK not in repr(channel)
    assert MARK not in caplog.text


def test_a_send_logs_no_secret_and_other_uses_of_apprise_log_as_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with receiver() as server, caplog.at_level(logging.NOTSET):
        AppriseChannel(LOCAL, f"json://{MARK}:{MARK}@127.0.0.1:{server.port}/{MARK}?+X={MARK}").send(MESSAGE)
        assert MARK not in caplog.text
        with pytest.raises(BadAddress):
            check_url(f"slack://{MARK}")
        assert MARK not in caplog.text
        Apprise().add("json://127.0.0.1/own")
    assert "Loaded JSON URL" in caplog.text


def test_a_receiver_that_can_not_be_reached_is_a_failure_that_may_pass(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    with caplog.at_level(logging.NOTSET):
        for url in (
            f"json://127.0.0.1:{port}/{MARK}",
            f"mailto://u:{MARK}@127.0.0.1:{port}?from=b@example.com&to=a@example.com",
        ):
            with pytest.raises(DeliveryFailed, match=":// did not take it") as failed:
                AppriseChannel(LOCAL, url).send(MESSAGE)
            assert not failed.value.is_final
            assert MARK not in str(failed.value)
    assert MARK not in caplog.text


def test_a_receiver_that_drips_does_not_hold_a_try_longer_than_its_time() -> None:
    stop = threading.Event()
    before = set(threading.enumerate())

    def talk(connection: socket.socket) -> None:
        connection.recv(100_000)
        for byte in b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000:
            connection.sendall(bytes((byte,)))
            if stop.wait(0.02):
                return

    with talker(talk) as port:
        channel = AppriseChannel(LOCAL, f"json://127.0.0.1:{port}/", seconds=0.1)
        for _ in range(8):
            with pytest.raises(DeliveryFailed, match=r"apprise did not end within 0\.1 s"):
                channel.send(MESSAGE)
        # The exit of a process waits for the threads of pools, daemons or not.
        assert not any("ThreadPool" in thread.name for thread in set(threading.enumerate()) - before)
        with pytest.raises(DeliveryFailed, match="8 earlier tries"):
            channel.send(MESSAGE)
        stop.set()
    for thread in threading.enumerate():
        if thread.name == "evenbeat-apprise":
            thread.join(60)
    with receiver() as server:
        AppriseChannel(LOCAL, f"json://127.0.0.1:{server.port}/").send(MESSAGE)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "url",
    [
        f"syslog://{MARK}",
        f"dbus://{MARK}",
        f"windows://{MARK}",
        f"macosx://{MARK}",
        f"gnome://{MARK}",
        f"blink1://{MARK}",
        f"rsyslog://{MARK}",
        f"vapid://{MARK}",
        f"fcm://{MARK}",
        f"file://{MARK}",
        f"https://hooks.slack.com/services/{MARK}",
        f"{MARK}",
        f"slack://{MARK}",
        f"json://127.0.0.1/ {MARK}",
        f"json://127.0.0.1/\n{MARK}",
        f"json://127.0.0.1/{MARK}" + "x" * 2_000,
        f"slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?template=/etc/{MARK}",
        f"slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?templ%61te=/etc/{MARK}",
        f"slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?x=y;template=/etc/{MARK}",
        f"slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?TEMPLATE=/etc/{MARK}",
        f"discord://{'1' * 18}/{'a' * 68}/?template=/etc/{MARK}",
        f"mailto://127.0.0.1?to=a@example.com&pgp=sign&pgpprv=/etc/{MARK}",
        f"ntfy://127.0.0.1/topic?attach=file:///etc/{MARK}",
        f"json://127.0.0.1/?optional=yes&x={MARK}",
    ],
)
def test_a_url_that_is_not_of_the_network_or_reads_files_is_refused(url: str) -> None:
    with pytest.raises(BadAddress) as refused:
        check_url(url)
    assert MARK not in str(refused.value)
    with pytest.raises(DeliveryFailed) as failed:
        AppriseChannel(LOCAL, url).send(MESSAGE)
    assert failed.value.is_final
    assert MARK not in str(failed.value)


def test_every_service_that_the_docs_list_exists_and_no_other_is_allowed() -> None:
    page = (Path(__file__).parents[2] / "docs/howto/alert-channels.md").read_text()
    section = page.split("### Services", 1)[1].split("\n\nOthers are refused", 1)[0]
    listed = set(re.findall(r"`([a-z0-9]+)://`", section))
    assert listed
    known: set[str] = set()
    for service in Apprise().details()["schemas"]:
        known |= {*(service["protocols"] or ()), *(service["secure_protocols"] or ())}
    assert listed == SERVICES
    assert listed <= known


def test_the_scheme_of_a_url_is_all_that_is_shown_of_it() -> None:
    assert scheme_of(f"Slack://{MARK}") == "slack"
    assert scheme_of(MARK) == ""


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "apprise" or name.startswith("apprise."):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DeliveryFailed, match=r'pip install "evenbeat\[apprise\]"') as failed:
        AppriseChannel(LOCAL, "json://127.0.0.1/").send(MESSAGE)
    assert not failed.value.is_final
    check_url("slack://not-complete")  # another process may have the library, and will say so
    with pytest.raises(BadAddress):
        check_url("syslog://")
