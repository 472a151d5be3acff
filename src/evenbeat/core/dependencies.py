"""Dependencies as users write them: ``after("load", within="1h")``, or the text ``load within 1h``."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from evenbeat.core.checks import check_one_of, check_predecessor
from evenbeat.core.durations import UNITS, Duration, read_duration, write_duration
from evenbeat.core.records import ScheduleState
from evenbeat.errors import InvalidValue, shown

Otherwise: TypeAlias = Literal["skip", "run"]
MOST_PREDECESSORS = 20
LONGEST_AFTER = 4_000
SHORTEST_WITHIN, LONGEST_SPAN = UNITS["s"], 366 * UNITS["d"]
AFTER_FORM = 'write after("load", within="1h", wait="30m"), or as text: load within 1h wait 30m'

_WORDS = ("within", "wait", "otherwise")


class After(msgspec.Struct, frozen=True):
    """A tick fires only if each of these schedules has succeeded lately. ``after(…)`` makes it."""

    schedules: tuple[str, ...]
    """The predecessors, of the same tenant, by name."""
    within: int
    """Their last success must not be longer ago than this, in ms."""
    wait: int = 0
    """How long after its planned start a tick waits for them, in ms."""
    otherwise: Otherwise = "skip"
    """Whether a tick that has waited in vain is skipped, or runs nevertheless."""

    def __str__(self) -> str:
        text = f"{', '.join(self.schedules)} within {write_duration(self.within)}"
        if self.wait:
            text += f" wait {write_duration(self.wait)}"
        return text if self.otherwise == "skip" else f"{text} otherwise {self.otherwise}"


class Predecessor(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that another one waits for."""

    name: str
    state: ScheduleState | None
    """None if there is no such schedule any more."""
    last_success: datetime | None
    is_met: bool | None
    """Whether it has succeeded lately enough for a tick to fire now; None for ``on success of``."""


class Dependencies(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule waits for, and what waits for it."""

    schedule: str
    tenant: str
    after: str | None
    """The dependency as text; None if there is none."""
    on_success_of: str | None
    """The schedule each of whose successes fires this one; None if it has ticks of its own."""
    predecessors: tuple[Predecessor, ...]
    followers: tuple[str, ...]
    """The schedules that wait for this one, by name."""
    waits_until: datetime | None
    """Until when a due tick waits for predecessors; None if none waits."""
    pending: int
    """How many successes have not fired yet, up to 1,000; of ``on success of``."""


def after(
    *schedules: str, within: Duration, wait: Duration | None = None, otherwise: Otherwise = "skip"
) -> After:
    """Return the dependency of a schedule on others of its tenant.

    A tick fires only if each of them has succeeded within the last ``within``. Otherwise the tick waits, at
    most ``wait`` after its planned start, and is then skipped, or runs nevertheless (``otherwise="run"``). A
    success wakes the waiting tick at once.
    """
    if not schedules:
        raise InvalidValue("after names no schedule", field="after", value=(), hint=AFTER_FORM)
    if len(schedules) > MOST_PREDECESSORS:
        raise InvalidValue(
            f"after names {len(schedules)} schedules",
            field="after",
            value=len(schedules),
            hint=f"at most {MOST_PREDECESSORS}",
        )
    for name in schedules:
        check_predecessor(name, "after")
    check_one_of("otherwise", otherwise, get_args(Otherwise))
    return After(
        tuple(dict.fromkeys(schedules)),
        _span("within", within, SHORTEST_WITHIN),
        0 if wait is None else _span("wait", wait, 0),
        otherwise,
    )


def _span(field: str, value: Duration, low: int) -> int:
    ms = read_duration(value, field)
    if not low <= ms <= LONGEST_SPAN:
        bound = "shorter than 1s" if ms < low else "longer than 366d"
        raise InvalidValue(f"{field} {shown(value)} is {bound}", field=field, value=value, hint=AFTER_FORM)
    return ms


def read_after(value: object, field: str = "after") -> str:
    """Return a dependency as it is stored: its canonical text, empty for none.

    Takes what ``after(…)`` returns, or the text of one.
    """
    if value is None or value == "":
        return ""
    if isinstance(value, After):
        value = str(value)
    if not isinstance(value, str) or len(value) > LONGEST_AFTER:
        raise InvalidValue(
            f"{field} {shown(value)} is not a dependency", field=field, value=value, hint=AFTER_FORM
        )
    return str(parse_after(value))


# Rows repeat the same texts.
@lru_cache(maxsize=1 << 10)
def parse_after(text: str) -> After:
    """Return the dependency of a text: names with commas, then ``within 1h``, ``wait 30m``,
    ``otherwise run``."""
    words = text.replace(",", " ").split()
    start = next((at for at, word in enumerate(words) if word in _WORDS), len(words))
    names, rest = words[:start], words[start:]
    options: dict[str, Any] = {}
    for at in range(0, len(rest), 2):
        option = rest[at]
        if option not in _WORDS or option in options or at + 1 == len(rest):
            raise _refused(text, f"has {shown(option)} where within, wait or otherwise should follow")
        options[option] = rest[at + 1]
    if not names:
        raise _refused(text, "names no schedule")
    if "within" not in options:
        raise _refused(text, "does not say within which time the schedule must have succeeded")
    return after(*names, **options)


def _refused(text: str, problem: str) -> InvalidValue:
    return InvalidValue(f"after {shown(text)} {problem}", field="after", value=text, hint=AFTER_FORM)
