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


@cache
def script(name: str, package: str = "evenbeat.stores.redis") -> Script:
    """The script of that name in a package, with what all of them begin with."""
    folder = files(package) / "lua"
    prelude, body = ((folder / f"{part}.lua").read_text("utf-8") for part in ("prelude", name))
    text = f"{prelude}\n{body}"
    # How Redis names scripts; nothing is kept safe by it.
    return Script(name.replace("_", " "), text, sha1(text.encode(), usedforsecurity=False).hexdigest())
