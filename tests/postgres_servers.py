"""What stands around a PostgreSQL server: standbys that replicate from it, and a PgBouncer before it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
from pathlib import Path
from typing import Literal

from tests.certificates import self_signed
from tests.missing import Unavailable
from tests.servers import Postgres, Server

PoolMode = Literal["session", "transaction", "statement"]


class Standby(Postgres):
    """A copy of a running server that follows it, until it is promoted."""

    name = "postgres_standby"

    def __init__(self, primary: Postgres, settings: dict[str, str] | None = None) -> None:
        super().__init__(settings)
        self._primary = primary

    def start(self) -> None:
        data = self.folder / "data"
        if not data.exists():
            self._launch(
                [
                    str(self._bin / "pg_basebackup"),
                    "--pgdata",
                    str(data),
                    "--host",
                    "127.0.0.1",
                    "--port",
                    str(self._primary.port),
                    "--username",
                    "evenbeat",
                    "--checkpoint",
                    "fast",
                    "--wal-method",
                    "stream",
                    "--write-recovery-conf",
                    "--no-sync",
                    "--no-password",
                ]
            )
            assert self._process is not None
            if self._process.wait(60) != 0:
                raise Unavailable(f"pg_basebackup failed: {self._last_words()}")
        super().start()

    def promote(self) -> None:
        """Make it take writes; answers once it does."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            ((done,),) = connection.execute("SELECT pg_promote(true, 60)").fetchall()
        assert done, self._last_words()


class Pair(Server):
    """A server and its standby, under one URL: the standby takes over, and gets a standby of its own.

    Synchronous: a commit is answered when both have it. Else it is answered at once, and the standby may lack
    the last ones.
    """

    name = "postgres_pair"

    def __init__(self, *, is_synchronous: bool) -> None:
        self._settings = {"synchronous_standby_names": "*" if is_synchronous else ""}
        self.primary = Postgres(self._settings)
        self.standby: Postgres | None = None
        self._ports = [self.primary.port]

    def url_at(self, port: int) -> str:
        raise NotImplementedError

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        return f"postgresql://evenbeat@{hosts}/postgres?target_session_attrs=read-write"

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _ready(self) -> None:
        if not self._senders():
            raise Unavailable("the standby does not follow yet")

    def start(self) -> None:
        self.primary.start()
        self._follow(Standby(self.primary, self._settings))
        self._ports = [self.primary.port, self._follower.port]

    def stop(self) -> None:
        for member in (self.primary, self.standby):
            if member is not None:
                member.stop()

    @property
    def _follower(self) -> Standby:
        assert isinstance(self.standby, Standby)
        return self.standby

    def _follow(self, standby: Standby) -> None:
        self.standby = standby
        standby.start()
        self._process = standby._process
        self._await(self._ready)

    def _senders(self) -> list[int]:
        """The processes of the primary that send to a standby."""
        import psycopg

        with psycopg.connect(self.primary.url, autocommit=True) as connection:
            sending = "SELECT pid FROM pg_stat_replication WHERE state = 'streaming'"
            return [pid for (pid,) in connection.execute(sending)]

    def fail_over(self, behind: float) -> None:
        """The primary is replaced by its standby, which is behind by so many seconds."""
        senders = self._senders()
        for sender in senders:
            os.kill(sender, signal.SIGSTOP)
        time.sleep(behind)
        self.primary.kill()
        for sender in senders:
            os.kill(sender, signal.SIGKILL)
        old, self.primary = self.primary, self._follower
        old.stop()
        self._follower.promote()
        successor = Standby(self.primary, self._settings)
        successor.port = old.port
        self._follow(successor)

    def _last_words(self) -> str:
        return self._follower._last_words()


class TlsFront:
    """Takes encrypted connections alone, with a certificate that it signed itself, and hands them on to a
    server: that of the wheel is built without TLS.
    """

    def __init__(self, server: Postgres, folder: Path) -> None:
        self._server = server
        self._certificate, key = self_signed(folder, "server", addresses=("127.0.0.1",))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self._certificate, key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)

    @property
    def plain_url(self) -> str:
        return self._server.url_at(self.port)

    @property
    def url(self) -> str:
        return f"{self.plain_url}?sslmode=verify-full&sslrootcert={self._certificate}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(20)
        self._listener.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(asyncio.start_server(self._handle, sock=self._listener))
        self._loop.run_forever()
        for task in (left := asyncio.all_tasks(self._loop)):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
            while (asked := await reader.readexactly(8)) != _WISH_FOR_TLS:
                if asked != _WISH_FOR_GSS:
                    return  # not encrypted
                writer.write(b"N")
            writer.write(b"S")
            await writer.drain()
            await writer.start_tls(self._context)
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server.port)
            with contextlib.closing(server_writer):
                ways = (_pump(reader, server_writer), _pump(server_reader, writer))
                tasks = [asyncio.ensure_future(way) for way in ways]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


_WISH_FOR_TLS = struct.pack("!ii", 8, 80877103)
_WISH_FOR_GSS = struct.pack("!ii", 8, 80877104)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


class PgBouncer(Server):
    """A pooler before a server."""

    name = "pgbouncer"
    stays_on_disk = True  # its program is copied there

    def __init__(self, server: Postgres, pool_mode: PoolMode, settings: dict[str, str] | None = None) -> None:
        found = _found_binary()
        self._server = server
        self._pool_mode = pool_mode
        self._settings = settings or {}
        super().__init__()
        # Beside its data: it refuses to run as root, and another user may not get to a cache of root's.
        self._binary = Path(shutil.copy2(found, self.folder))
        for library in found.parent.glob("lib*.so*"):
            shutil.copy2(library, self.folder)

    def url_at(self, port: int) -> str:
        return self._server.url_at(port)

    def start(self) -> None:
        self._launch(self._command(), {**os.environ, "LD_LIBRARY_PATH": str(self.folder)})
        self._await(self._ready)

    def _command(self) -> list[str]:
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": self._pool_mode,
            "max_client_conn": "500",
            "default_pool_size": "10",
            "server_login_retry": "1",
            **self._settings,
        }
        lines = [f"{name} = {value}" for name, value in settings.items()]
        place = f"* = host=127.0.0.1 port={self._server.port} user=evenbeat"
        configuration = self.folder / "pgbouncer.ini"
        configuration.write_text("\n".join(["[databases]", place, "[pgbouncer]", *lines, ""]))
        return [str(self._binary), str(configuration)]

    def _ready(self) -> None:
        import psycopg

        psycopg.connect(self.url, autocommit=True, connect_timeout=2).close()


_PACKAGES = ("pgbouncer", "libc-ares2", "libcares2", "libevent-2.1-7", "libevent-2.1-7t64")
"""It and its libraries that are not on every machine, by the names of all releases of Debian and Ubuntu."""


def _found_binary() -> Path:
    """The program, as it is installed, or from the distribution's package, unpacked into a cache."""
    installed = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if installed is not None:
        return Path(installed)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evenbeat-tests" / "pgbouncer"
    binary = cache / "pgbouncer"
    if not binary.exists():
        _unpack(cache)
    if not _can_run(binary):
        raise Unavailable(
            "pgbouncer is neither installed nor to be had by apt-get download: apt install pgbouncer",
            is_required=False,
        )
    return binary


def _can_run(binary: Path) -> bool:
    """Whether it is there, and all of its libraries are."""
    try:
        done = subprocess.run(
            [binary, "--version"],
            env={"LD_LIBRARY_PATH": str(binary.parent)},
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0


def _unpack(cache: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return
    cache.mkdir(parents=True, exist_ok=True)
    for package in _PACKAGES:
        subprocess.run(
            ["apt-get", "download", "--quiet", package],
            cwd=cache,
            capture_output=True,
            timeout=60,
            check=False,
        )
    for archive in cache.glob("*.deb"):
        subprocess.run(["dpkg", "-x", archive.name, "unpacked"], cwd=cache, capture_output=True, check=False)
    for library in cache.glob("unpacked/**/lib*.so*"):
        shutil.copy2(library, cache)
    for program in cache.glob("unpacked/usr/sbin/pgbouncer"):
        shutil.copy2(program, cache)
