"""The guarded HTTP client: posts to a URL that a user named, to addresses of the internet alone.

Each request resolves the name once, checks every address, and connects to an address that it has checked: a
name that resolves to a public address first and to a private one later (DNS rebinding) gains nothing. It
follows no redirect, since the receiver would choose where the next request goes, and uses no proxy.
"""

from __future__ import annotations

import io
import re
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from http.client import HTTPException, HTTPResponse
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeAlias, cast

from evenbeat import __version__
from evenbeat.alerts.channels.addresses import BadAddress, Target, is_public, read_target
from evenbeat.alerts.channels.base import SEND_SECONDS, DeliveryFailed
from evenbeat.core.clocks import steady_clock

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Resolve: TypeAlias = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a name; raises OSError if there are none."""
Connect: TypeAlias = Callable[[tuple[str, int], float], socket.socket]
"""Connects to an address and a port within so many seconds."""

_LONGEST_ANSWER = 1 << 16
"""How many bytes of an answer are read, with its header."""
_CHUNK = 1 << 14
"""How many bytes are sent at once: a record of TLS."""
_MOST_ADDRESSES = 4
_CONNECT_SECONDS = 5.0
"""How long one address may take to connect while there is another one."""
_BODY_SECONDS = 2.0
"""How long the body of an answer is read, whose status is known by then."""
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_RETRIED = frozenset((408, 425, 429))
"""Answers of the 4xx kind that say "later" instead of "never"."""


def system_resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a name, as the system resolves it."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class HttpClient:
    """Posts to URLs. A request takes at most ``seconds`` in all, however slowly the receiver answers.

    ``allow_private`` has the names of hosts, or addresses, that may be in a private network.
    """

    def __init__(
        self,
        allow_private: frozenset[str] = frozenset(),
        *,
        resolve: Resolve = system_resolve,
        connect: Connect = socket.create_connection,
        seconds: float = SEND_SECONDS,
    ) -> None:
        self._allow_private = frozenset(name.lower().strip("[]").removesuffix(".") for name in allow_private)
        self._resolve, self._connect = resolve, connect
        self._seconds = seconds

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        # Made when it is first needed: reading the certificates of the system takes 20 ms.
        return ssl.create_default_context()

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Post a body. Raise ``DeliveryFailed`` unless the receiver answers with a status of 200 to 299."""
        try:
            target = read_target(url)
        except BadAddress as error:
            raise DeliveryFailed(f"the URL is not usable: {error}", is_final=True) from None
        status = self._exchange(target, _request(target, body, headers))
        if 200 <= status < 300:
            return
        if 300 <= status < 400:
            raise DeliveryFailed(f"{target.authority} answered {status}; redirects are not followed")
        is_final = 400 <= status < 500 and status not in _RETRIED
        raise DeliveryFailed(f"{target.authority} answered {status}", is_final=is_final)

    def check_host(self, host: str, port: int) -> None:
        """Refuse a host with an address that is not public; raise ``DeliveryFailed``."""
        self._addresses(host, port, _Deadline(self._seconds))

    def _exchange(self, target: Target, request: bytes) -> int:
        """Send a request, and return the status of the answer."""
        deadline = _Deadline(self._seconds)
        where = target.authority
        try:
            with self._connected(target, deadline) as connection:
                for start in range(0, len(request), _CHUNK):
                    connection.settimeout(deadline.left())
                    connection.sendall(request[start : start + _CHUNK])
                return _read_status(connection, deadline)
        except TimeoutError:
            raise DeliveryFailed(f"{where} did not answer within {self._seconds:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise DeliveryFailed(f"the certificate of {where} is refused: {error.verify_message}") from None
        except ssl.SSLError as error:
            raise DeliveryFailed(f"TLS with {where} failed: {error.reason or 'no reason'}") from None
        except OSError as error:
            why = error.strerror or "it closed the connection"
            raise DeliveryFailed(f"{where} can't be reached: {why}") from None
        except (HTTPException, ValueError):
            raise DeliveryFailed(f"{where} did not answer in HTTP") from None

    def _connected(self, target: Target, deadline: _Deadline) -> socket.socket:
        """Connect to one of the addresses of a name, all of which have been checked."""
        addresses = self._addresses(target.host, target.port, deadline)[:_MOST_ADDRESSES]
        for address in addresses[:-1]:
            seconds = min(deadline.left(), _CONNECT_SECONDS)
            with suppress(OSError):
                plain = self._connect((address, target.port), seconds)
                break
        else:
            plain = self._connect((addresses[-1], target.port), deadline.left())
        if target.scheme == "http":
            return plain
        try:
            plain.settimeout(deadline.left())
            # The name is checked, not the address: the certificate belongs to the name.
            return self._tls.wrap_socket(plain, server_hostname=target.host)
        except BaseException:
            plain.close()
            raise

    def _addresses(self, host: str, port: int, deadline: _Deadline) -> Sequence[str]:
        """Resolve a name, and refuse it if one of its addresses is not public."""
        addresses = self._resolved(host, port, deadline)
        if host not in self._allow_private and not all(map(is_public, addresses)):
            # Not final: another process may have the permission, or this one after a restart.
            raise DeliveryFailed(
                f"{host} is not on the public internet, and the process that sends does not permit it; "
                f"start it with --allow-private-webhooks {host}"
            )
        return addresses

    def _resolved(self, host: str, port: int, deadline: _Deadline) -> Sequence[str]:
        """Resolve a name in a thread of its own, since a system's resolver can't be told when to stop."""
        answers: SimpleQueue[Sequence[str]] = SimpleQueue()

        def work() -> None:
            try:
                answers.put(self._resolve(host, port))
            except (OSError, UnicodeError):
                answers.put(())

        threading.Thread(target=work, name="evenbeat-resolve", daemon=True).start()
        try:
            addresses = answers.get(timeout=deadline.left())
        except Empty:
            raise DeliveryFailed(f"{host} was not resolved within {self._seconds:g} s") from None
        if not addresses:
            raise DeliveryFailed(f"{host} has no address")
        return addresses


class _Deadline:
    """The end of the time that one request may take."""

    def __init__(self, seconds: float) -> None:
        self._end = steady_clock() + seconds

    def left(self) -> float:
        """Return the seconds that are left; raise TimeoutError if there are none."""
        left = self._end - steady_clock()
        if left <= 0:
            raise TimeoutError
        return left


class _Answer(io.RawIOBase):
    """Reads from a connection until the deadline: the timeout of a socket begins anew with each byte."""

    def __init__(self, connection: socket.socket, deadline: _Deadline) -> None:
        self._connection = connection
        self._allowed = _LONGEST_ANSWER
        self.deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if self._allowed == 0:
            return 0  # as if it ended here
        self._connection.settimeout(self.deadline.left())
        got = self._connection.recv_into(buffer, min(memoryview(buffer).nbytes, self._allowed))
        self._allowed -= got
        return got

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return a file of this answer, as a socket does for ``HTTPResponse``."""
        return io.BufferedReader(self)


def _read_status(connection: socket.socket, deadline: _Deadline) -> int:
    """Read an answer, and return its status.

    The body is read, too, but not for long: some servers stop the work of a request when its connection is
    closed.
    """
    stream = _Answer(connection, deadline)
    answer = HTTPResponse(cast(socket.socket, stream), method="POST")  # it only calls makefile
    try:
        answer.begin()
        stream.deadline = _Deadline(min(_BODY_SECONDS, deadline.left()))
        with suppress(HTTPException, OSError):
            answer.read()
        return answer.status
    finally:
        answer.close()


def _request(target: Target, body: bytes, headers: Mapping[str, str]) -> bytes:
    all_headers = {
        "Host": target.authority,
        "User-Agent": f"Evenbeat/{__version__}",
        "Accept": "*/*",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **headers,
    }
    for name, value in all_headers.items():
        if not _HEADER_VALUE.fullmatch(value):
            raise DeliveryFailed(f"the header {name} has a character that headers can't have", is_final=True)
    lines = [f"POST {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in all_headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii") + body
