"""The programs of test servers, at a path that the user who runs the servers can reach.

PostgreSQL refuses to run as root, so root's servers run as another user. That user can't enter a folder that
is closed to others, such as root's home directory in a container, nor run the programs of a virtual
environment below it. The programs are then copied to a temporary folder, once per test run.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from tests import server_guard
from tests.missing import Unavailable

_VARIABLE = "EVENBEAT_TEST_BINARIES"
"""Names the folder with the copies; the processes of one test run inherit it."""


def other_user() -> tuple[int, int] | None:
    """Return the user and group that servers run as; None if it is the user of this process."""
    if os.getuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def reachable(folder: Path) -> Path:
    """Return a folder with the same content that the user of the servers can reach: this one, or a copy."""
    if other_user() is None or (_can_enter(folder) and _can_read(folder)):
        return folder
    return _copied(folder)


def libcurl() -> Path | None:
    """Return a folder with libcurl.so.4, which mongod needs; None if the system has it.

    The wheel of pycurl carries it under another name, with the libraries that it needs.
    """
    try:
        ctypes.CDLL("libcurl.so.4")
    except OSError:
        found = importlib.util.find_spec("pycurl")
    else:
        return None
    if found is None or found.origin is None:
        raise Unavailable("mongod needs libcurl.so.4: apt install libcurl4 (Debian, Ubuntu)")
    return _copied(Path(found.origin).parent.parent / "pycurl.libs", {"libcurl-": "libcurl.so.4"})


def _copied(folder: Path, new_names: Mapping[str, str] = MappingProxyType({})) -> Path:
    """Copy a folder for the user of the servers, once; files get a new name by the beginning of their own.

    The copy has the place below the folder of the copies that the folder has below that of all packages:
    programs find the libraries that auditwheel put beside their package by a relative path.
    """
    packages = next(parent for parent in folder.parents if parent.name in ("site-packages", "dist-packages"))
    copy = _folder_of_copies() / folder.relative_to(packages)
    libraries = packages / f"{folder.relative_to(packages).parts[0]}.libs"
    if libraries.is_dir():
        _copied(libraries)
    if not copy.exists():
        # Test processes may copy at the same time: the first rename wins, and the others drop their copies.
        partial = Path(tempfile.mkdtemp(dir=_folder_of_copies()))
        shutil.copytree(folder, partial, dirs_exist_ok=True, symlinks=True)
        for start, name in new_names.items():
            (found,) = partial.glob(f"{start}*")
            found.rename(partial / name)
        _open_to_others(partial)
        _make_open(copy.parent)
        try:
            partial.rename(copy)
        except OSError:
            shutil.rmtree(partial)
    return copy


def share_copies() -> None:
    """Let the test processes that this process starts use the same copies."""
    _folder_of_copies()


def _folder_of_copies() -> Path:
    """Return the folder of the copies. The first process creates it, and its end removes it."""
    if _VARIABLE not in os.environ:
        folder = Path(tempfile.mkdtemp(prefix="evenbeat-binaries-", dir=temporary_folder()))
        folder.chmod(0o755)  # its purpose is that other users can read it
        os.environ[_VARIABLE] = str(folder)
        server_guard.guard_folder(folder)
    return Path(os.environ[_VARIABLE])


def temporary_folder() -> Path:
    """Return the folder for temporary files that the user of the servers can reach."""
    candidates = [tempfile.gettempdir(), "/tmp", "/var/tmp"]  # noqa: S108 - mkdtemp creates folders in it
    for folder in dict.fromkeys(map(Path, candidates)):
        if other_user() is None or (folder.is_dir() and _can_enter(folder)):
            return folder
    raise Unavailable(
        f"{candidates[0]} is closed to other users, and servers must not run as root: set TMPDIR"
    )


def _can_enter(folder: Path) -> bool:
    resolved = folder.resolve()
    return all(path.stat().st_mode & 0o001 for path in (resolved, *resolved.parents))


def _can_read(folder: Path) -> bool:
    """Return whether others can read all files below: with umask 077, an installation closes them."""
    return all(path.stat().st_mode & 0o004 for path in _below(folder))


def _make_open(folder: Path) -> None:
    """Make a folder and its parents, and let others enter them, whatever the umask is."""
    if not folder.exists():
        _make_open(folder.parent)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)


def _open_to_others(folder: Path) -> None:
    for path in (folder, *_below(folder)):
        mode = path.stat().st_mode
        # As chmod go+rX does: others may execute what the owner may.
        path.chmod(mode | 0o044 | (0o011 if mode & 0o100 else 0))


def _below(folder: Path) -> Iterable[Path]:
    return (path for path in folder.rglob("*") if not path.is_symlink())
