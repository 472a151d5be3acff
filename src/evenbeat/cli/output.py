"""The output of commands: a JSON document for programs, or text for people."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

# Wide enough that nothing is ever wrapped: readers of a pipe want whole lines.
_UNBOUNDED = 10_000

json_option = click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object.")


def answer(
    document: Mapping[str, Any], people: Callable[[], Iterable[RenderableType]], *, as_json: bool
) -> None:
    """Print the document as JSON, or the text that ``people`` returns. Only the text imports rich."""
    text = json_text(document) if as_json else _render(people())
    # Rendering has decided about colours; color=True keeps click from deciding again.
    click.echo(text, color=True)


def json_text(document: Mapping[str, Any]) -> str:
    """Return the document as JSON. Control characters, those that change the direction of text, and others
    that can't be seen are escaped: they could rewrite the terminal."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def show_before_asking(parts: Iterable[RenderableType]) -> None:
    """Print the subject of a question on stderr; stdout is for the answer of the command alone."""
    click.echo(_render(parts), color=True, err=True)


def _render(parts: Iterable[RenderableType]) -> str:
    """Render as wide as the terminal or COLUMNS, unbounded in a pipe; without colours if NO_COLOR is set."""
    from rich.console import Console

    page = _Page()
    console = Console(
        file=page,
        width=None if page.isatty() or os.environ.get("COLUMNS") else _UNBOUNDED,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        highlight=False,
        markup=False,
        emoji=False,
    )
    for part in parts:
        console.print(part)
    # rich pads lines with spaces, which get in the way of selecting, diffing and documenting.
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines())


class _Page(io.StringIO):
    """Text in memory that rich takes for stdout, so that writing it, and a broken pipe, stay with us."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return sys.stdout.encoding or "utf-8"

    def isatty(self) -> bool:
        return sys.stdout.isatty()
