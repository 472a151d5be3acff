"""Where a setting comes from: EVENBEAT_* > evenbeat.toml > [tool.evenbeat] of pyproject.toml > default."""

from __future__ import annotations

import os

DEFAULT_STORE = "sqlite:///evenbeat.db"


def default_store() -> str:
    """The store's URL, where nobody said one in code."""
    return os.environ.get("EVENBEAT_STORE") or DEFAULT_STORE
