"""The guarded HTTP client: to which addresses it connects, and that nothing keeps it longer than its time."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from evenbeat.alerts.channels.base import DeliveryFailed
from evenbeat.alerts.channels.http import HttpClient
from tests.certificates import self_signed
from tests.unit.receivers import MARK, receiver, secure_receiver, talker

PUBLIC, OTHER_PUBLIC = "93.184.215.14", "2606:4700:4700::1111"
HOST = "hooks.example.com"
ALLOWED = frozenset((HOST,))


class Internet:
    """Resolves names as it is told to, and connects to public addresses as if they were on loopback."""

    def __init__(self, *answers: Sequence[str], dead: Sequence[str] = ()) -> None:
        self._answers = list(answers)
        self._dead = dead
        self.asked: list[str] = []
        self.connected: list[str] = []

    def resolve(self, host: str, _port: int) -> Sequence[str]:
        self.asked.append(host)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def connect(self, address: tuple[str, int], seconds: float) -> socket.socket:
        self.connected.append(address[0])
        if address[0] in self._dead:
            raise OSError(101, "Network is unreachable")
        return socket.create_connection(("127.0.0.1", address[1]), seconds)

    def client(self, allowed: frozenset[str] = frozenset(), seconds: float = 15.0) -> HttpClient:
        return HttpClient(allowed, resolve=self.resolve, connect=self.connect, seconds=seconds)


def url(port: int, path: str = f"/{MARK}?token={MARK}", scheme: str = "http") -> str:
    return f"{scheme}://{HOST}:{port}{path}"


def refusal(client: HttpClient, where: str, **headers: str) -> DeliveryFailed:
    with pytest.raises(DeliveryFailed) as failed:
        client.post(where, b"{}", headers)
    assert MARK not in failed.value.reason
    assert MARK not in repr(failed.value)
    assert failed.value.__cause__ is None
    assert failed.value.__suppress_context__ or failed.value.__context__ is None
    return failed.value


def test_a_request_goes_to_the_resolved_address_with_the_name_in_its_header() -> None:
    internet = Internet([PUBLIC])
    with receiver() as server:
        internet.client().post(url(server.port, "/hook?x=1"), b'{"a":1}', {"Evenbeat-Alert-Id": "7"})
    [request] = server.requests
    assert (request.path, request.body) == ("/hook?x=1", b'{"a":1}')
    assert request.headers["Host"] == f"{HOST}:{server.port}"
    assert request.headers["Evenbeat-Alert-Id"] == "7"
    assert request.headers["User-Agent"].startswith("Evenbeat/")
    assert (internet.asked, internet.connected) == ([HOST], [PUBLIC])


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "::ffff:10.0.0.1"])
def test_a_name_with_a_private_address_is_refused_before_any_connection(address: str) -> None:
    for addresses in ([address], [PUBLIC, address], [address, PUBLIC]):
        internet = Internet(addresses)
        failed = refusal(internet.client(), url(80))
        assert not failed.is_final  # another process may permit it
        assert failed.reason == (
            f"{HOST} is not on the public internet, and the process that sends does not permit it; "
            f"start it with --allow-private-webhooks {HOST}"
        )
        assert internet.connected == []


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "localhost"])
def test_an_address_in_the_url_is_checked_too(host: str) -> None:
    internet = Internet(["127.0.0.1" if host == "localhost" else host.strip("[]")])
    assert "--allow-private-webhooks" in refusal(internet.client(), f"http://{host}:80/").reason
    assert internet.connected == []


def test_a_name_that_turns_private_is_refused_at_the_next_try() -> None:
    internet = Internet([PUBLIC], ["127.0.0.1"])
    client = internet.client()
    with receiver(500) as server:
        assert not refusal(client, url(server.port)).is_final
        assert "not on the public internet" in refusal(client, url(server.port)).reason
    assert len(server.requests) == 1
    assert internet.connected == [PUBLIC]


def test_the_name_is_resolved_once_per_try() -> None:
    internet = Internet([PUBLIC], ["127.0.0.1"])
    with receiver() as server:
        internet.client().post(url(server.port), b"", {})
    assert internet.asked == [HOST]


def test_a_private_address_is_allowed_by_the_exact_name() -> None:
    with receiver() as server:
        Internet(["127.0.0.1"]).client(frozenset(("Hooks.Example.COM.",))).post(url(server.port), b"", {})
        HttpClient(frozenset(("127.0.0.1",))).post(f"{server.url}/", b"", {})
        for other in ("example.com", "x.hooks.example.com", "*", "127.0.0.1"):
            failed = refusal(Internet(["127.0.0.1"]).client(frozenset((other,))), url(server.port))
            assert "not on the public internet" in failed.reason
    assert len(server.requests) == 2


def test_the_next_address_is_tried_if_one_can_not_be_reached() -> None:
    internet = Internet([OTHER_PUBLIC, PUBLIC], dead=[OTHER_PUBLIC])
    with receiver() as server:
        internet.client().post(url(server.port), b"", {})
    assert internet.connected == [OTHER_PUBLIC, PUBLIC]
    nowhere = Internet([OTHER_PUBLIC, PUBLIC], dead=[OTHER_PUBLIC, PUBLIC])
    failed = refusal(nowhere.client(), url(80))
    assert (failed.reason, failed.is_final) == (f"{HOST} can't be reached: Network is unreachable", False)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with receiver() as private, receiver(status, headers={"Location": f"{private.url}/in"}) as server:
        failed = refusal(Internet([PUBLIC]).client(), url(server.port))
    assert failed.reason == f"{HOST}:{server.port} answered {status}; redirects are not followed"
    assert not failed.is_final
    assert private.requests == []


@pytest.mark.parametrize(
    ("status", "is_final"),
    [
        (400, True),
        (404, True),
        (410, True),
        (408, False),
        (425, False),
        (429, False),
        (500, False),
        (503, False),
    ],
)
def test_only_an_answer_that_says_never_is_final(status: int, is_final: bool) -> None:
    with receiver(status) as server:
        failed = refusal(Internet([PUBLIC]).client(), url(server.port))
    assert (failed.reason, failed.is_final) == (f"{HOST}:{server.port} answered {status}", is_final)


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_every_status_of_success_is_accepted(status: int) -> None:
    with receiver(status) as server:
        Internet([PUBLIC]).client().post(url(server.port), b"", {})


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as proxy, receiver() as server:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        Internet([PUBLIC]).client().post(url(server.port), b"", {})
    assert (len(server.requests), proxy.requests) == (1, [])


def read_head(connection: socket.socket) -> None:
    got = b""
    while b"\r\n\r\n" not in got:
        data = connection.recv(4096)
        if not data:
            return
        got += data


def drip(connection: socket.socket, answer: bytes, stop: threading.Event) -> None:
    """Send an answer slowly enough to never end."""
    for byte in answer:
        connection.sendall(bytes((byte,)))
        if stop.wait(0.02):
            return


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_receiver_that_drips_does_not_hold_a_try_longer_than_its_time(scheme: str) -> None:
    stop = threading.Event()

    def talk(connection: socket.socket) -> None:
        if scheme == "http":
            read_head(connection)
            drip(connection, b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000, stop)
        else:  # the first record of a handshake
            drip(connection, b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc" + bytes(0x3FFC), stop)

    with talker(talk) as port:
        failed = refusal(Internet([PUBLIC]).client(seconds=0.3), url(port, scheme=scheme))
        stop.set()
    assert (failed.reason, failed.is_final) == (f"{HOST}:{port} did not answer within 0.3 s", False)


def test_a_receiver_that_says_nothing_does_not_hold_a_try_longer_than_its_time() -> None:
    stop = threading.Event()
    for scheme in ("http", "https"):
        with talker(lambda _: (stop.wait(60), None)[1]) as port:
            failed = refusal(Internet([PUBLIC]).client(seconds=0.3), url(port, scheme=scheme))
            stop.set()
        assert failed.reason == f"{HOST}:{port} did not answer within 0.3 s"
        stop.clear()


def test_a_receiver_that_never_reads_does_not_hold_a_try_longer_than_its_time() -> None:
    stop = threading.Event()
    with talker(lambda _: (stop.wait(60), None)[1]) as port:
        with pytest.raises(DeliveryFailed, match="did not answer"):
            Internet([PUBLIC]).client(seconds=0.3).post(url(port), b"x" * 50_000_000, {})
        stop.set()


def test_a_body_that_drips_does_not_undo_the_status() -> None:
    stop = threading.Event()

    def talk(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        drip(connection, b"x" * 100_000, stop)

    with talker(talk) as port:
        Internet([PUBLIC]).client(seconds=0.3).post(url(port), b"", {})
        stop.set()


def test_a_large_answer_is_not_read_to_its_end() -> None:
    sent = []

    def talk(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with suppress(OSError):
            for _ in range(1_000):
                connection.sendall(b"x" * 100_000)
                sent.append(1)

    with talker(talk) as port:
        Internet([PUBLIC]).client().post(url(port), b"", {})
    assert len(sent) < 1_000


@pytest.mark.parametrize(
    "answer", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 abc\r\n\r\n", b"\r\n" * 10, b"\xff" * 70_000]
)
def test_an_answer_that_is_not_http_is_a_failure(answer: bytes) -> None:
    def talk(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(answer)

    with talker(talk) as port:
        failed = refusal(Internet([PUBLIC]).client(), url(port))
    assert not failed.is_final
    assert "did not answer in HTTP" in failed.reason or "it closed the connection" in failed.reason


def test_an_early_answer_of_100_is_not_the_answer() -> None:
    def talk(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")

    with talker(talk) as port:
        assert refusal(Internet([PUBLIC]).client(), url(port)).reason.endswith("answered 503")


def test_a_slow_resolver_does_not_hold_a_try_longer_than_its_time() -> None:
    stop = threading.Event()

    def resolve(_host: str, _port: int) -> Sequence[str]:
        stop.wait(60)
        return [PUBLIC]

    failed = refusal(HttpClient(resolve=resolve, seconds=0.2), url(80))
    stop.set()
    assert failed.reason == f"{HOST} was not resolved within 0.2 s"


def test_a_name_without_an_address_is_a_failure_that_may_pass() -> None:
    def resolve(_host: str, _port: int) -> Sequence[str]:
        raise socket.gaierror(-2, f"{MARK}")

    failed = refusal(HttpClient(resolve=resolve), url(80))
    assert (failed.reason, failed.is_final) == (f"{HOST} has no address", False)


def test_a_connection_that_is_refused_is_a_failure_that_may_pass() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    failed = refusal(Internet([PUBLIC]).client(), url(port))
    assert (failed.reason, failed.is_final) == (f"{HOST}:{port} can't be reached: Connection refused", False)


def test_a_header_can_not_bring_another_one() -> None:
    internet = Internet([PUBLIC])
    assert refusal(internet.client(), url(80), **{"X-Id": f"1\r\nX-Other: {MARK}"}).is_final
    assert refusal(internet.client(), url(80), **{"X-Id": "ä"}).is_final
    assert internet.asked == []


@pytest.mark.parametrize(
    "bad", [f"ftp://{HOST}/{MARK}", f"https://{MARK}@{HOST}/", f"http://{HOST}/{MARK}\r\nX: y"]
)
def test_a_url_that_is_not_usable_is_final(bad: str) -> None:
    assert refusal(Internet([PUBLIC]).client(), bad).is_final


def test_tls_checks_the_certificate_of_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = self_signed(tmp_path, "right", hosts=(HOST,))
    wrong = self_signed(tmp_path, "wrong", hosts=("other.example.com",), addresses=(PUBLIC, "127.0.0.1"))
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(right[0].read_bytes() + wrong[0].read_bytes())
    with secure_receiver(right) as server, secure_receiver(wrong) as other:
        untrusting = Internet([PUBLIC]).client()
        failed = refusal(untrusting, url(server.port, scheme="https"))
        assert failed.reason.startswith(f"the certificate of {HOST}:{server.port} is refused: self")
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        client = Internet([PUBLIC]).client()
        client.post(url(server.port, "/in", "https"), b"x" * 100_000, {})
        failed = refusal(client, url(other.port, scheme="https"))
        assert "Hostname mismatch" in failed.reason
        # A private address that is allowed by name still has to prove its name.
        failed = refusal(Internet(["127.0.0.1"]).client(ALLOWED), url(other.port, scheme="https"))
        assert "Hostname mismatch" in failed.reason
    assert [(request.path, len(request.body)) for request in server.requests] == [("/in", 100_000)]
    assert other.requests == []


def test_a_server_without_tls_is_named() -> None:
    with receiver() as server:
        failed = refusal(Internet([PUBLIC]).client(), url(server.port, scheme="https"))
    assert failed.reason.startswith(f"TLS with {HOST}:{server.port} failed")


def test_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with receiver() as server, caplog.at_level(logging.DEBUG):
        Internet([PUBLIC]).client().post(url(server.port), b"", {"X-Token": MARK})
    assert MARK not in caplog.text
