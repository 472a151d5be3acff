"""Lua scripts beside the modules that use them: readable text, known to the server by its hash."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple


class Script(NamedTuple):
    name: str
    """As it is announced: the file's name with spaces."""
    text: str
    sha: str


def script(name: str, package: str = "evenbeat.stores.redis") -> Script:
    """The script of that name in a package, with what all of them begin with."""
    return _scripts(package)[name]


@cache
def _scripts(package: str) -> dict[str, Script]:
    """All scripts of a package, read together when the first is needed.

    A process that runs out of file descriptors later still has all of them.
    """
    folder = files(package) / "lua"
    texts = {
        path.name.removesuffix(".lua"): path.read_text("utf-8")
        for path in folder.iterdir()
        if path.name.endswith(".lua")
    }
    prelude = texts.pop("prelude")
    return {name: _script(name, f"{prelude}\n{body}") for name, body in texts.items()}


def _script(name: str, text: str) -> Script:
    # How Redis names scripts; nothing is kept safe by it.
    return Script(name.replace("_", " "), text, sha1(text.encode(), usedforsecurity=False).hexdigest())
