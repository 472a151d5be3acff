"""Conditions of alerts, from text and back: ``failed``, ``failing:3``, ``late:10m``. Pure."""

from __future__ import annotations

from typing import NamedTuple

from evenbeat.core.alerts import CONDITION_KINDS, ConditionKind
from evenbeat.core.durations import read_duration, write_duration
from evenbeat.errors import InvalidValue, shown

_COUNTED: dict[ConditionKind, tuple[int, int, int]] = {
    "failing": (3, 2, 1_000),
    "queue": (1_000, 1, 10_000_000),
}
"""By kind: the default, the lowest and the highest count."""
_DAY = 86_400_000
_TIMED: dict[ConditionKind, tuple[int, int, int]] = {
    "late": (300_000, 5_000, 30 * _DAY),
    "stuck": (3_600_000, 5_000, 365 * _DAY),
    "no_node": (60_000, 5_000, 30 * _DAY),
}
"""By kind: the default, the shortest and the longest duration, in ms."""


class Condition(NamedTuple):
    """A condition of a rule.

    - ``failed``: a run failed for good, after its retries.
    - ``failing``: so many runs failed in a row.
    - ``late``: a tick did not fire, or its run did not start, for so long after its time.
    - ``missed``: a tick was skipped because it came too late, or exceeded the limit of caught-up ticks.
    - ``stuck``: an attempt has been running for so long.
    - ``queue``: so many due runs wait in a queue, and they are not getting fewer.
    - ``no_node``: a due run has waited for so long, and no live node takes its task or queue.
    - ``node_lost``: a node stopped heartbeating, and had not been stopped.
    - ``store_unsafe``: a setting of the server may break a guarantee.
    - ``runs``: a run ended. It opens no incident, and is meant for monitors that expect check-ins.
    """

    kind: ConditionKind
    number: int = 0
    """The count, or the duration in ms; 0 for kinds without one."""

    def __str__(self) -> str:
        if self.kind in _COUNTED:
            return f"{self.kind}:{self.number}"
        return f"{self.kind}:{write_duration(self.number)}" if self.kind in _TIMED else self.kind


def read_condition(text: object, field: str = "on") -> Condition:
    """Read a condition. A count or duration that is left out has its default."""
    kind, colon, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
    if kind not in CONDITION_KINDS:
        known = ", ".join(CONDITION_KINDS)
        hint = f"choose from {known}; some take a bound: failing:3, late:10m, stuck:1h, queue:1000"
        if isinstance(text, str) and "," in text:
            hint = "several conditions are a list; on the command line, repeat --on"
        raise InvalidValue(f"{field} {shown(text)} is not a condition", field=field, value=text, hint=hint)
    bounds = _COUNTED.get(kind) or _TIMED.get(kind)
    if bounds is None:
        if colon:
            raise InvalidValue(
                f"{field} {shown(text)}: {kind} takes no bound", field=field, value=text, hint=f"write {kind}"
            )
        return Condition(kind)
    default, low, high = bounds
    if not colon:
        return Condition(kind, default)
    if kind in _TIMED:
        number = read_duration(rest, field)
        words = f"{write_duration(low)} to {write_duration(high)}"
    else:
        if not (rest.isascii() and rest.isdigit() and len(rest) < 12):
            raise InvalidValue(
                f"{field} {shown(text)}: {shown(rest)} is not a whole number", field=field, value=text
            )
        number = int(rest)
        words = f"{low:,} to {high:,}"
    if not low <= number <= high:
        raise InvalidValue(f"{field} {shown(text)} is not within {words}", field=field, value=text)
    return Condition(kind, number)
