"""The words of ``evenbeat templates``: options, and what a change of them changes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from evenbeat.cli.layout import indented
from evenbeat.cli.phrases import printable
from evenbeat.core.templates import TemplateEffect

if TYPE_CHECKING:
    from rich.console import RenderableType


def option_words(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield ``retries 3``."""
    for name, value in options.items():
        yield f"{name} {value_words(value)}"


def value_words(value: Any) -> str:
    """Return the value of an option in words."""
    if value is None:
        return "none"
    return printable(value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False))


def effect_lines(effect: TemplateEffect) -> Iterator[RenderableType]:
    """Yield ``report: retries 0 → 3``."""
    changes = (
        f"{name} {value_words(effect.before[name])} → {value_words(value)}"
        for name, value in effect.after.items()
    )
    yield indented(f"{effect.schedule}: {', '.join(changes) or 'what it would have without the template'}")
