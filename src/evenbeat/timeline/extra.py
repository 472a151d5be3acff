"""numpy, which is an extra: whether it is installed, and the error that names it."""

from __future__ import annotations

from functools import cache


@cache
def has_numpy() -> bool:
    """Return whether numpy can be imported."""
    try:
        import numpy as np  # noqa: F401  # only asks whether it can be imported
    except ImportError:
        return False
    return True


def require_numpy(what: str) -> None:
    """Raise ``ImportError`` with the command that installs numpy, if it is missing; ``what`` needs it."""
    if not has_numpy():
        raise ImportError(
            f"{what} needs numpy, which is not installed; pip install 'evenbeat[timeline]'", name="numpy"
        )
