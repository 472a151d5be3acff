"""Dates and texts as people read them in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from evenbeat.rules.error_groups import error_line

if TYPE_CHECKING:
    from evenbeat.core.results import ChangeWarning


def rfc3339(moment: datetime) -> str:
    """Return the RFC 3339 text with its own offset, and with milliseconds only if there are any."""
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds")


def sentence(words: str) -> str:
    """Return the words with a capital letter."""
    return words[:1].upper() + words[1:]


def printable(text: str, keep: str = "\n\t") -> str:
    """Return the text with control characters replaced, except ``keep``: they could rewrite the terminal."""
    return "".join(
        char if char.isprintable() or char in keep else "\N{REPLACEMENT CHARACTER}" for char in text
    )


def warning_lines(warnings: Iterable[ChangeWarning]) -> Iterator[str]:
    """Yield the warnings that a change came back with."""
    for warning in warnings:
        hint = "" if warning.hint is None else f"; {warning.hint}"
        yield printable(f"warning: {warning.problem}{hint}", keep="")


def one_line(text: str) -> str:
    """Return the first line of a text, or of a Python traceback the line that names the error."""
    return printable(error_line(text), keep="") if text.strip() else ""
