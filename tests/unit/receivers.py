"""Receivers of alerts on loopback: HTTP with and without TLS, SMTP, and one that says what it is told to."""

from __future__ import annotations

import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.message import Message as Mail
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from evenbeat.core.alerts import Message

MARK = "s3cr3tm4rk"
"""Stands for every secret of these tests: no error and no log may have it."""

MESSAGE = Message(
    id="abc123",
    announcement="opened",
    title="Failed: nightly",
    lines=("A run failed.", "Error: ValueError: no such table", "Schedule: nightly"),
    at=datetime(2026, 3, 2, 2, 0, 4, tzinfo=UTC),
    link="https://jobs.example.com/#/runs/default/default%2Fnightly%2F1%2F1772416800000",
    incident="i1",
    rule="on-call",
    condition="failed",
    tenant="default",
    subject_kind="schedule",
    subject="nightly",
    schedule="nightly",
    task="report",
    run="default/nightly/1/1772416800000",
    tick=datetime(2026, 3, 2, 2, 0, tzinfo=UTC),
    failures=1,
    error="ValueError: no such table",
)


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """An HTTP server that keeps the requests, and answers with ``statuses``, the last one again and again."""

    def __init__(self, *statuses: int, headers: dict[str, str] | None = None) -> None:
        self.requests: list[Request] = []
        self.statuses = list(statuses or (200,))
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                receiver.requests.append(Request(self.path, dict(self.headers), body))
                statuses = receiver.statuses
                self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")  # what Slack says, too

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = int(self.server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(20)


@contextmanager
def receiver(*statuses: int, headers: dict[str, str] | None = None) -> Iterator[Receiver]:
    """Start an HTTP server."""
    made = Receiver(*statuses, headers=headers)
    with serving(made.server):
        yield made


@contextmanager
def secure_receiver(certificate: tuple[Path, Path]) -> Iterator[Receiver]:
    """Start an HTTPS server."""
    made = Receiver()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    made.server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that does not trust us
    made.server.socket = context.wrap_socket(
        made.server.socket, server_side=True, do_handshake_on_connect=False
    )
    with serving(made.server):
        yield made


@contextmanager
def talker(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """Start a server that does with each connection what ``talk`` does; yield its port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):  # the client has hung up, as it should
                talk(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    server = Server(("127.0.0.1", 0), Handler)
    with serving(server):
        yield int(server.server_address[1])


class MailReceiver(socketserver.StreamRequestHandler):
    """Speaks enough SMTP to take mails."""

    def handle(self) -> None:
        self.wfile.write(b"220 test\r\n")
        while line := self.rfile.readline().strip().upper():
            if line == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = []
                while (text := self.rfile.readline()) != b".\r\n":
                    lines.append(text)
                self.server.mails.append(b"".join(lines))  # type: ignore[attr-defined]  # of mail_receiver
            if line == b"QUIT":
                self.wfile.write(b"221 bye\r\n")
                return
            self.wfile.write(b"250 OK\r\n")


@contextmanager
def mail_receiver() -> Iterator[tuple[int, list[bytes]]]:
    """Start an SMTP server; yield its port, and the mails that it gets."""
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), MailReceiver)
    server.daemon_threads = True
    mails: list[bytes] = []
    server.mails = mails  # type: ignore[attr-defined]  # for the handler
    with serving(server):
        yield int(server.server_address[1]), mails


def text_of(mail: Mail) -> str:
    """Return the text of the first part of a mail."""
    part = next(part for part in mail.walk() if not part.is_multipart())
    content = part.get_payload(decode=True)
    assert isinstance(content, bytes)
    return content.decode()
