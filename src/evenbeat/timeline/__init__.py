"""The timeline: what runs when, as sorted arrays of (tick, schedule) in memory.

A snapshot, and a ``Timeline`` that snapshots are swapped into, need nothing but Python. Planning many
schedules at once and the forecast need numpy, which the extra ``timeline`` installs.
"""

from typing import TYPE_CHECKING, Any

from evenbeat.timeline.extra import require_numpy
from evenbeat.timeline.snapshot import Snapshot
from evenbeat.timeline.timeline import RebuildPolicy, Timeline

if TYPE_CHECKING:
    from evenbeat.timeline.load import Expected, Load
    from evenbeat.timeline.plan import Histogram, Plan

__all__ = ["Expected", "Histogram", "Load", "Plan", "RebuildPolicy", "Snapshot", "Timeline"]

_NEED_NUMPY = {
    "Expected": "evenbeat.timeline.load",
    "Load": "evenbeat.timeline.load",
    "Histogram": "evenbeat.timeline.plan",
    "Plan": "evenbeat.timeline.plan",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _NEED_NUMPY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_numpy(f"{__name__}.{name}")
    found = globals()[name] = getattr(import_module(_NEED_NUMPY[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
