"""``rediss://``: connections over TLS. The server of the wheel has no TLS, so a proxy in front of it ends
TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from evenbeat.core.records import RunRecord
from evenbeat.documents import RedisDocuments
from evenbeat.errors import StoreUnavailable
from evenbeat.stores.redis import RedisStore
from tests.certificates import self_signed


class Terminator:
    """Accepts connections over TLS and forwards their content."""

    def __init__(self, target: tuple[str, int], certificate: Path, key: Path) -> None:
        self._target = target
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._go(self._accept)

    def _go(self, work: object, *words: object) -> None:
        thread = threading.Thread(target=work, args=words, daemon=True)  # type: ignore[arg-type]  # any callable
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            try:
                near = self._context.wrap_socket(plain, server_side=True)
            except OSError:  # a client that does not trust us
                plain.close()
                continue
            far = socket.create_connection(self._target)
            self._open += [near, far]
            self._go(self._pass, near, far)
            self._go(self._pass, far, near)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for end in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(20)
        for end in (self._listener, *self._open):
            end.close()


@pytest.fixture
def secure(valkey: str, tmp_path: Path) -> Iterator[str]:
    """The URL over TLS, without the certificate to trust."""
    parts = urlsplit(valkey)
    assert parts.hostname is not None
    made, key = self_signed(tmp_path, "server", addresses=("127.0.0.1",))
    terminator = Terminator((parts.hostname, parts.port or 6379), made, key)
    yield parts._replace(scheme="rediss", netloc=f"127.0.0.1:{terminator.port}").geturl()
    terminator.close()


def test_a_store_and_documents_work_over_tls(secure: str, tmp_path: Path) -> None:
    url = f"{secure}&ssl_ca_certs={tmp_path / 'server.pem'}"
    with closing(RedisStore(url)) as store, closing(RedisStore(url)) as other:
        store.open()
        other.open()
        large = '"' + "x" * 200_000 + '"'  # more than one record of TLS
        assert store.add_runs([RunRecord(id="a", task="work", payload=large)]) == [True]
        assert store.count_runs() == {"queued": 1}
        assert store.wait(0) is False
        for _ in range(20):  # also those that lie decrypted in the driver's buffer are noticed
            other.hint()
        assert store.wait(60) is True
        while store.wait(0):
            pass
        other.hint()
        assert store.wait(60) is True
    with closing(RedisDocuments(url.replace("rediss", "valkeys"), "tls:order:*")) as documents:
        documents.open()
        assert documents.lock_next(1000, 1).found == []


def test_a_server_with_an_untrusted_certificate_is_refused(secure: str, tmp_path: Path) -> None:
    self_signed(tmp_path, "other", addresses=("127.0.0.1",))
    for url in (secure, f"{secure}&ssl_ca_certs={tmp_path / 'other.pem'}"):
        with closing(RedisStore(url)) as store, pytest.raises(StoreUnavailable, match=r"(?i)certificate"):
            store.open()
