"""The options ``skip``, ``only`` and ``move`` of a trigger: read, and put around it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from evenbeat.core.checks import is_name
from evenbeat.errors import InvalidValue, shown
from evenbeat.triggers.calendar_copies import built_in_copies
from evenbeat.triggers.calendar_moves import MOST_TIMES, MOVES, Move
from evenbeat.triggers.calendared import Calendared

if TYPE_CHECKING:
    from evenbeat.triggers.cron import Cron
    from evenbeat.triggers.every import Every

MOST_NAMES = 10


def with_calendars(bare: Cron | Every, skip: object, only: object, move: object) -> Cron | Every | Calendared:
    """Return the trigger with these calendars; itself if none is given."""
    if skip is None and only is None and move is None:
        return bare
    skipped = () if skip is None else _names("skip", skip)
    admitted = () if only is None else _names("only", only)
    wanted = _move(bare, move, skipped + admitted)
    both = sorted(set(skipped) & set(admitted))
    if both:
        raise InvalidValue(
            f"skip and only both name {both[0]}: no tick is left",
            field="only",
            value=both[0],
            hint="name it once",
        )
    if not skipped and not admitted:
        return bare
    found = Calendared(bare, skipped, admitted, wanted)
    copies = built_in_copies(found.names)
    return found if copies is None else found.resolved(copies)


def _names(field: str, value: object) -> tuple[str, ...]:
    """Return the names of calendars: one, several with commas, or a list of them."""
    parts: list[object] = []
    if isinstance(value, str):
        parts = list(value.split(","))
    elif isinstance(value, Iterable):
        parts = list(value)
    for part in parts or [value]:
        if not is_name(part):
            raise InvalidValue(
                f"{field} {shown(value)} does not name calendars",
                field=field,
                value=value,
                hint=f'write {field}="business-days", or several with commas',
            )
    names = tuple(sorted({str(part) for part in parts}))
    if len(names) > MOST_NAMES:
        raise InvalidValue(
            f"{field} names {len(names)} calendars, more than {MOST_NAMES}",
            field=field,
            value=value,
            hint="put their days into one calendar",
        )
    return names


def _move(bare: Cron | Every, move: object, names: tuple[str, ...]) -> Move:
    if move is None:
        return "skip"
    if move not in MOVES:
        raise InvalidValue(f"move {shown(move)} is not one of {', '.join(MOVES)}", field="move", value=move)
    wanted: Move = move
    if not names:
        raise InvalidValue(
            f"move {shown(move)} is given without a calendar",
            field="move",
            value=move,
            hint='name the days that it moves away from: skip="us-holidays" or only="business-days"',
        )
    expression = getattr(bare, "expression", None)
    if wanted == "skip":
        return wanted
    if expression is None:
        raise InvalidValue(
            f"move {shown(move)} is for times of a day, and an interval has none",
            field="move",
            value=move,
            hint='leave it out, or write cron("0 9 * * *", …)',
        )
    if expression.times_a_day > MOST_TIMES:
        raise InvalidValue(
            f"move {shown(move)} is for at most {MOST_TIMES} times a day, and this cron has "
            f"{expression.times_a_day:,}",
            field="move",
            value=move,
            hint="leave it out: the next day has ticks at these times anyway",
        )
    return wanted
