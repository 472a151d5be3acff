"""A process with a small disk of its own: fleet and server live on it, and the scene fills it up.

    python -m tests.faults.small_disk STORE FOLDER DISK FAULTS [--broken KIND]

The disk is a tmpfs in a mount namespace of this process, which ends with it. Root can create one;
others need a user namespace, which some systems refuse: exit code 77. The outcome is a JSON line on stdout.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests import servers
from tests.faults.fleet import Fleet, fleet, prepare, wait_until
from tests.faults.scene import SCHEDULES, Ground, Outcome, end, next_completion
from tests.isolation import own_place

REFUSED = 77
MEGABYTES = {"sqlite": 48, "postgres": 192, "valkey": 96, "mongo": 640}
# Seconds that the disk stays full.
FULL = 3.0
_CLONE_NEWNS, _CLONE_NEWUSER, _MS_REC, _MS_PRIVATE = 0x20000, 0x10000000, 0x4000, 1 << 18


class SmallMongo(servers.Mongo):
    """A MongoDB with a small journal of operations: by default it takes 5 % of a disk, and at least 1 GB."""

    def _command(self) -> list[str]:
        return [*super()._command(), "--oplogSize", "64"]


def mount_disk(folder: Path, megabytes: int) -> None:
    """Mount a small disk for this process and its children; raise OSError where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()

    def check(answer: int) -> None:
        if answer != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    if user == 0:
        check(libc.unshare(_CLONE_NEWNS))
    else:
        check(libc.unshare(_CLONE_NEWNS | _CLONE_NEWUSER))
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    check(libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None))
    size = f"size={megabytes}m,mode=1777".encode()
    check(libc.mount(b"tmpfs", str(folder).encode(), b"tmpfs", ctypes.c_ulong(0), size))


class Filler:
    """A file that takes all free space."""

    def __init__(self, disk: Path) -> None:
        self._path = disk / "filler"

    def fill(self) -> None:
        """Take the free space, to the last byte."""
        with self._path.open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def give(self, size: int) -> None:
        """Free a little space."""
        os.truncate(self._path, max(0, self._path.stat().st_size - size))

    def clear(self) -> None:
        self._path.unlink()


def play(store: str, disk: Path, folder: Path, faults: int, *options: str) -> Outcome:
    with ExitStack() as stack:
        server = None
        if store == "sqlite":
            url = f"sqlite:///{disk / 'evenbeat.db'}"
        else:
            tempfile.tempdir = str(disk)
            settings = {"max_wal_size": "48MB", "min_wal_size": "32MB"}
            server = (
                SmallMongo()
                if store == "mongo"
                else servers.Postgres(settings)
                if store == "postgres"
                else servers.Valkey()
            )
            stack.callback(server.stop)
            server.start()
            url = stack.enter_context(own_place(server.url))
        ground = Ground(url, folder, server)
        prepare(url, SCHEDULES)
        nodes = stack.enter_context(fleet(url, folder))
        for _ in range(3):
            nodes.start(*options)
        nodes.await_ready()
        longest = 0.0
        for _ in range(faults):
            next_completion(nodes)
            _fill(ground, nodes, Filler(disk))
            longest = max(longest, next_completion(nodes))
        return end(ground, nodes, faults, longest)


def _fill(ground: Ground, nodes: Fleet, filler: Filler) -> None:
    """Let nodes work for a while on a full disk, with a little free space now and then.

    A server that ends is started when there is room again.
    """
    chance = random.Random(5)
    before = len(nodes.errors_of_all())
    until = time.monotonic() + FULL
    while time.monotonic() < until:
        filler.fill()  # also the space that others freed
        time.sleep(0.03)
        filler.give(chance.randint(0, 100_000))
        time.sleep(0.01)
    wait_until(lambda: len(nodes.errors_of_all()) > before, "no node noticed that the disk was full")
    filler.clear()
    if ground.server is not None:
        _revive(ground.server)


def _revive(server: servers.Server) -> None:
    """Restart a server that has ended, as a service manager would."""
    time.sleep(0.5)
    if not server.is_alive:
        server.start()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("folder", type=Path)
    parser.add_argument("disk", type=Path, help="where to mount it: a folder that other users reach")
    parser.add_argument("faults", type=int)
    parser.add_argument("--broken")
    options = parser.parse_args()
    try:
        mount_disk(options.disk, MEGABYTES[options.store])
    except OSError as error:
        sys.stderr.write(f"a small disk can't be had here: {error}\n")
        return REFUSED
    if options.faults == 0:
        return 0
    words = ["--broken", options.broken] if options.broken else []
    try:
        outcome = play(options.store, options.disk, options.folder, options.faults, *words)
    except AssertionError as error:
        sys.stdout.write(json.dumps({"problem": str(error)}) + "\n")
        return 0
    sys.stdout.write(json.dumps({**outcome._asdict(), "account": outcome.account._asdict()}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
