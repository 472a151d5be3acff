"""Loading of Lua scripts, which are files beside the modules that use them. The server knows a script by
its hash."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple


class Script(NamedTuple):
    name: str
    """The name for ``on_command``: the file's name with spaces."""
    text: str
    sha: str


def script(name: str, package: str = "evenbeat.stores.redis") -> Script:
    """Return the script of that name in a package, with the common prelude."""
    return _scripts(package)[name]


@cache
def _scripts(package: str) -> dict[str, Script]:
    """Read all scripts of a package, when the first one is needed.

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
    # Redis identifies scripts by SHA-1; it is not used for security.
    return Script(name.replace("_", " "), text, sha1(text.encode(), usedforsecurity=False).hexdigest())
