"""A TCP proxy on loopback with the faults of networks: resets, refusals, black holes, delays, lost
replies."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["pass", "refuse", "blackhole", "delay", "lose replies"]

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards connections to a port of this machine, with the fault of its mode."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._mode: Mode = "pass"
        self.delay = 0.0
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def become(self, mode: Mode) -> None:
        """Set the mode. At the end of a black hole, the connections in it are reset."""
        before, self._mode = self._mode, mode
        if "blackhole" in (before, mode) and mode != "blackhole":
            self.reset()
        if mode == "refuse":
            self.reset()

    def lead_to(self, target: int) -> None:
        """Forward new connections to another port. Open ones stay, as behind a moved address."""
        self._target = target

    def reset(self) -> None:
        """End every connection with RST."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for end in pair:
                _reset(end)

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._mode == "refuse":
                _reset(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                _reset(client)
                continue
            for end in (client, server):
                end.settimeout(None)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.add((client, server))
            for source, sink, is_reply in ((client, server, False), (server, client, True)):
                words = (source, sink, is_reply, (client, server))
                threading.Thread(target=self._pump, args=words, daemon=True).start()

    def _receive(self, source: socket.socket, is_reply: bool) -> bytes:
        """Return the next bytes to forward; none at the end of the connection."""
        return source.recv(1 << 16)

    def _pump(
        self,
        source: socket.socket,
        sink: socket.socket,
        is_reply: bool,
        pair: tuple[socket.socket, socket.socket],
    ) -> None:
        try:
            while data := self._receive(source, is_reply):
                mode = self._mode
                if mode == "lose replies" and is_reply:
                    break
                if mode == "delay":
                    time.sleep(self.delay)
                if mode != "blackhole":
                    sink.sendall(data)
        except OSError:
            pass
        with self._lock:
            self._pairs.discard(pair)
        for end in pair:
            _reset(end)


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        # This wakes a thread that is blocked in recv; close does not.
        end.shutdown(socket.SHUT_RD)
    end.close()
