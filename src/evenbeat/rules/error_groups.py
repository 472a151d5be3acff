"""Groups errors: the line of an error without the values that differ from run to run. Pure."""

from __future__ import annotations

import re
from hashlib import blake2b

_LONGEST = 300
_ANY = "…"
# Quoted values. An apostrophe inside a word is not a quote.
_QUOTED = re.compile(r"""(?<!\w)(['"`])(?:(?!\1).)*\1(?!\w)""")
# A word with a digit: numbers, dates, ids, hex, host names, addresses in memory.
_VARIABLE = re.compile(r"(?<![\w-])[\w-]*\d[\w-]*")
# Parts of one value: 10.0.0.1:5432, 12:30:05, 2026/03/01.
_JOINED = re.compile(rf"{_ANY}(?:[.,:/+]{_ANY})+")
_CLASS = re.compile(r"[A-Za-z_][\w.]*")
_TRACEBACK = "Traceback (most recent call last):"


def error_line(error: str | None) -> str:
    """Return the line that names the error: its first line, or, below a traceback, the line after the last
    frame."""
    lines = [line for line in (error or "").splitlines() if line.strip()]
    if not lines:
        return "no error message"
    if lines[0].strip() != _TRACEBACK:
        return lines[0].strip()
    frames = [at for at, line in enumerate(lines) if line.startswith("  File ")]
    below = lines[frames[-1] + 1 :] if frames else lines[1:]
    return next((line.strip() for line in below if not line.startswith(" ")), lines[-1].strip())


def normalised(line: str) -> str:
    """Replace quoted values, numbers, ids and hexadecimal texts by ``…``."""
    name, colon, rest = line[:_LONGEST].partition(": ")
    if not colon or not _CLASS.fullmatch(name):
        name, colon, rest = "", "", line[:_LONGEST]
    # The name of an exception stays as it is, also with a digit: S3Error, Http404.
    return name + colon + _JOINED.sub(_ANY, _VARIABLE.sub(_ANY, _QUOTED.sub(rf"\1{_ANY}\1", rest)))


def group_id(line: str) -> str:
    """Return a short id of a normalised line."""
    return blake2b(line.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()
