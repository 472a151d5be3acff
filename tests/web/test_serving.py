"""The API on a port: a real server, real connections, and real time where a stream or a process must end."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from evenbeat import Scheduler
from evenbeat.supervision.web_process import WebProcess
from evenbeat.web import web_app
from evenbeat.web.serving import CannotListen, WebServer, listen
from tests.faults.fleet import wait_until


@pytest.fixture
def server(app: Scheduler) -> Iterator[WebServer]:
    made = WebServer(web_app(app), listen("127.0.0.1", 0))
    made.start()
    yield made
    made.stop()
    app.close()


class Client:
    """Connections to a server, closed at the end of a test."""

    def __init__(self, server: WebServer) -> None:
        self._host = server.url.removeprefix("http://")
        self._open: list[http.client.HTTPConnection | http.client.HTTPResponse | threading.Thread] = []

    def get(self, path: str, secret: str | None = None) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self._host, timeout=60)
        self._open.append(connection)
        connection.request(
            "GET", path, headers={} if secret is None else {"Authorization": f"Bearer {secret}"}
        )
        response = connection.getresponse()
        self._open.append(response)
        return response

    def follow(self, secret: str) -> threading.Thread:
        """Begin an event stream, and return a thread that reads it to its end."""
        stream = self.get("/api/v1/events", secret)
        assert stream.status == 200
        assert stream.getheader("content-type") == "text/event-stream; charset=utf-8"
        assert stream.getheader("x-accel-buffering") == "no"
        assert stream.getheader("cache-control") == "no-store"
        assert stream.readline().startswith(b": connected")
        reader = threading.Thread(target=stream.read)
        reader.start()
        self._open.append(reader)
        return reader

    def close(self) -> None:
        for each in reversed(self._open):
            if isinstance(each, threading.Thread):
                each.join(30)
            else:
                each.close()


@pytest.fixture
def client(server: WebServer) -> Iterator[Client]:
    made = Client(server)
    yield made
    server.stop()
    made.close()


def test_answers_do_not_wait_for_acknowledgements() -> None:
    with listen("127.0.0.1", 0) as bound:
        assert bound.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_that_is_taken_is_named() -> None:
    with listen("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        with pytest.raises(CannotListen, match=f"can't listen on 127.0.0.1:{port}: Address already in use"):
            listen("127.0.0.1", port)


def test_a_stream_needs_a_token_dagu_cve_2026_31882(client: Client) -> None:
    for secret in (None, "evb_1_wrong"):
        assert client.get("/api/v1/events", secret).status == 401


def test_a_stream_ends_when_its_token_is_revoked(client: Client, app: Scheduler) -> None:
    kept, revoked = app.tokens.create("kept"), app.tokens.create("revoked")
    other, reader = client.follow(kept.secret), client.follow(revoked.secret)
    app.tokens.revoke(revoked.token.id)
    reader.join(30)
    assert not reader.is_alive()
    assert other.is_alive()


def test_a_stop_ends_streams_and_closes_the_port(server: WebServer, client: Client, app: Scheduler) -> None:
    reader = client.follow(app.tokens.create("ann").secret)
    server.stop()
    reader.join(30)
    assert not reader.is_alive()
    with pytest.raises(ConnectionRefusedError):
        client.get("/healthz")


def test_the_command_ends_with_zero_after_a_signal_and_without_its_parent(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    log = tmp_path / "log"
    words = [
        sys.executable,
        "-m",
        "evenbeat",
        "web",
        "--web-port",
        "0",
        "--no-auth",
        "--parent",
        str(reading),
    ]
    environment = os.environ | {"EVENBEAT_STORE": f"sqlite:///{tmp_path / 'jobs.db'}"}
    Scheduler(environment["EVENBEAT_STORE"]).store.close()
    ends = (lambda process: process.send_signal(signal.SIGTERM), lambda _: os.close(writing))
    for end in ends:
        with log.open("wb") as output:
            process = subprocess.Popen(words, env=environment, stderr=output, pass_fds=(reading,))
        wait_until(lambda: b"its API at" in log.read_bytes(), log.read_text, 60)
        place = f"/api/v1, on {environment['EVENBEAT_STORE']}\n"
        assert re.search(rf"http://127.0.0.1:\d+{re.escape(place)}", log.read_text())
        end(process)
        assert process.wait(30) == 0, log.read_text()
    os.close(reading)


def test_a_web_process_that_worked_for_long_is_started_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    api = WebProcess([])
    clock, lengths = [0.0], [0.0, 1.0, 30.0, 31.0, 1.0]
    pauses: list[float] = []

    def run() -> int | None:
        if not lengths:
            return None
        clock[0] += lengths.pop(0)
        return 1

    monkeypatch.setattr("evenbeat.supervision.web_process.time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(api, "_run", run)
    monkeypatch.setattr(api, "_stopping", SimpleNamespace(is_set=lambda: False, wait=pauses.append))
    api._keep()
    assert pauses == [1.0, 2.0, 4.0, 1.0, 2.0]
    for descriptor in api._alive:
        os.close(descriptor)


def test_the_command_refuses_to_serve_without_tokens_to_other_machines(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'jobs.db'}"
    Scheduler(store).store.close()
    words = [sys.executable, "-m", "evenbeat", "web", "--store", store, "--no-auth", "--web-host", "0.0.0.0"]  # noqa: S104  # refused
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert "reachable from other machines" in ended.stderr


def ends(server: WebServer, *parts: bytes) -> bytes:
    """Send parts of a request one by one, then nothing more, and return all that the server sends until it
    closes the connection."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    received = b""
    with (
        socket.create_connection((host, int(port)), timeout=60) as connection,
        contextlib.suppress(ConnectionError),  # it was closed before all parts were sent
    ):
        for part in parts:
            connection.sendall(part)
            if part.endswith(b"\r\n\r\n"):
                received += connection.recv(65_536)
        while more := connection.recv(65_536):
            received += more
    return received


def test_connections_without_a_whole_header_are_closed(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenbeat.web.serving.HEAD_PATIENCE", 0.2)
    probe = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert ends(server) == b""
    assert ends(server, b"GET /healthz HTTP/1.1\r\nHost: local") == b""
    for requests, part in ((1, b"GET /heal"), (2, b"G")):
        # On a busy machine a request may come too late itself.
        answers = (ends(server, *[probe] * requests, part).count(b"200 OK") for _ in range(20))
        assert requests in answers


def test_a_stream_outlives_the_time_for_a_header(
    server: WebServer, client: Client, app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenbeat.web.serving.HEAD_PATIENCE", 1.0)
    reader = client.follow(app.tokens.create("ann").secret)
    assert ends(server) == b"", "as long as a connection without a request takes"
    assert reader.is_alive()


def test_a_body_that_does_not_arrive_is_refused(
    server: WebServer, app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenbeat.web.api.BODY_PATIENCE", 0.2)
    secret = app.tokens.create("ann").secret
    head = (
        "POST /api/v1/preview HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {secret}\r\nContent-Length: 1000\r\n\r\n"
    )
    answer = ends(server, head.encode() + b"{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"body-too-slow" in answer
