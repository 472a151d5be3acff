"""The lines of keys and headings in a TOML text, for errors that name the place: tomllib has none."""

from __future__ import annotations

import re


def key_line(text: str, table: str, key: str) -> int | None:
    """Return the line of a key that is written in the usual way: bare, under the heading of its table."""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        if heading := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            current = heading[1].replace('"', "")
        elif current == table and re.match(rf"\s*{re.escape(key)}\s*=", line):
            return number
    return None


def heading_line(text: str, table: str) -> int | None:
    """Return the line of the heading of a table."""
    for number, line in enumerate(text.splitlines(), 1):
        heading = re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line)
        if heading is not None and heading[1].replace('"', "") == table:
            return number
    return None
