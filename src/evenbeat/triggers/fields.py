"""One field of a cron expression: text to bitset and bitset to canonical text."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from evenbeat.errors import shown
from evenbeat.triggers.days import ALL_DAYS, ALL_MONTHS, ALL_WEEKDAYS, FINAL, LAST, NEAR, bits

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class Field(NamedTuple):
    name: str
    low: int
    high: int
    """The highest number that is allowed: for the day of the week 7, which is Sunday, too."""
    full: int
    names: dict[str, int]
    unit: str
    """The unit of ``every`` to suggest for a step that is too large for this field."""

    @property
    def allowed(self) -> str:
        return f"{self.low}-{self.high}"

    @property
    def size(self) -> int:
        return self.full.bit_count()


SECOND = Field("second", 0, 59, (1 << 60) - 1, {}, "s")
MINUTE = Field("minute", 0, 59, (1 << 60) - 1, {}, "m")
HOUR = Field("hour", 0, 23, (1 << 24) - 1, {}, "h")
DOM = Field("day of month", 1, 31, ALL_DAYS, {}, "d")
MONTH = Field("month", 1, 12, ALL_MONTHS, {name: i for i, name in enumerate(MONTHS, 1)}, "")
DOW = Field("day of week", 0, 7, ALL_WEEKDAYS, {name: i for i, name in enumerate(WEEKDAYS)}, "")
FIELDS = (SECOND, MINUTE, HOUR, DOM, MONTH, DOW)

# A 7-bit week times this is that week as each occurrence in a month, and as the last one.
_EVERY_WEEK = sum(1 << 7 * nth for nth in range(1, 7))
_NUMBER = re.compile(r"[0-9]+")
_NAMES_HASH = re.compile(r"(?:^|,)h(?:$|[,/])", re.IGNORECASE)


class FieldProblem(Exception):
    """A problem of an item; the caller finds its place in the whole text."""

    def __init__(self, field: Field, item: str, problem: str, hint: str | None = None) -> None:
        super().__init__(problem)
        self.field = field
        self.item = item
        self.problem = problem
        self.hint = hint
        self.offset = 0
        """The position of the item in the field's text."""


def read_field(field: Field, text: str, name: str = "") -> int:
    """Return the bitset of a field. ``H`` is hashed from ``name``."""
    mask = offset = 0
    for item in text.split(","):
        try:
            mask |= _read_item(field, item, name)
        except FieldProblem as problem:
            problem.offset = offset
            raise
        offset += len(item) + 1
    return mask if mask <= field.full else _without_repetition(field, mask)


def _without_repetition(field: Field, mask: int) -> int:
    """Drop the special tokens that plain values include: ``*,L`` is ``*``, ``5,5#3`` is ``5``."""
    plain = mask & field.full
    if field is DOM:
        return plain if plain == ALL_DAYS else mask
    return mask & ~(plain * _EVERY_WEEK)


def is_hashed(text: str) -> bool:
    """Return whether a field's text has an ``H`` (and not only a ``thu``)."""
    return _NAMES_HASH.search(text) is not None


def _read_item(field: Field, item: str, name: str) -> int:
    span, slash, step_text = item.partition("/")
    step = _read_step(field, item, step_text) if slash else 1
    if span == "*" or (item == "?" and field in (DOM, DOW)):
        return _stepped(field, field.low, _last_value(field), step)
    if span in ("H", "h"):
        return _hashed(field, step if slash else None, name)
    special = _read_special(field, item) if field in (DOM, DOW) else None
    if special is not None:
        return special
    first, dash, last = span.partition("-")
    low = _read_value(field, item, first)
    if dash:
        return _stepped(field, low, _read_value(field, item, last), step)
    return _stepped(field, low, field.high if slash else low, step)


def _read_value(field: Field, item: str, text: str) -> int:
    if not _NUMBER.fullmatch(text):
        named = field.names.get(text.lower())
        if named is None:
            raise _not_a_value(field, item, text)
        return named
    value = int(text) if len(text) < 10 else 10**9
    if not field.low <= value <= field.high:
        hint = "midnight is hour 0" if field is HOUR and value == 24 else None
        raise FieldProblem(field, item, f"{_short(text)} is out of {field.allowed}", hint)
    return value


def _read_step(field: Field, item: str, text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise FieldProblem(field, item, f"step {shown(text)} in {shown(item)} is not a number")
    step = int(text) if len(text) < 10 else 10**9
    if step == 0:
        raise FieldProblem(field, item, f"step 0 in {shown(item)} would never advance", "steps start at 1")
    if step > field.size:
        hint = f'for a period of {step}{field.unit} write every("{step}{field.unit}")' if field.unit else None
        raise FieldProblem(
            field,
            item,
            f"step {_short(text)} in {shown(item)} is longer than the {field.size} values there are",
            hint,
        )
    return step


def _short(number: str) -> str:
    return number if len(number) <= 12 else number[:12] + "…"


def _read_special(field: Field, item: str) -> int | None:
    """Return the token of ``L``, ``L-3``, ``LW``, ``15W`` of a day of month, ``5#3``, ``5L`` of a day of
    week, else None."""
    lowered = item.lower()
    if field is DOM:
        if lowered == "l":
            return 1 << LAST
        if lowered == "lw":
            return 1 << NEAR
        if lowered.startswith("l-"):
            if not _NUMBER.fullmatch(item[2:]) or len(item) > 4 or int(item[2:]) > 30:
                raise FieldProblem(
                    field,
                    item,
                    f"{shown(item)} is not L-0 to L-30",
                    'write L-3 for "three days before the last day"',
                )
            return 1 << LAST + int(item[2:])
        if lowered.endswith("w"):
            return 1 << NEAR + _read_value(field, item, item[:-1])
        return None
    if "#" in item:
        weekday, _, nth = item.partition("#")
        if nth not in ("1", "2", "3", "4", "5"):
            raise FieldProblem(
                field,
                item,
                f"{shown(item)} asks for occurrence {shown(nth)} of 1-5",
                "fri#2 is the second Friday",
            )
        return 1 << 7 * int(nth) + _read_value(field, item, weekday) % 7
    if lowered == "l":
        raise FieldProblem(
            field, item, "L needs a weekday here", "friL is the last Friday of the month, sat plain Saturday"
        )
    if lowered.endswith("l"):
        return 1 << FINAL + _read_value(field, item, item[:-1]) % 7
    return None


def _last_value(field: Field) -> int:
    return 6 if field is DOW else field.high


def _stepped(field: Field, low: int, high: int, step: int) -> int:
    """Return every ``step``-th value from ``low`` to ``high``, through the end of the range if high < low."""
    if high < low:
        high += field.size
    mask = 0
    for value in range(low, high + 1, step):
        if value > field.high or (field is DOW and value > 6):
            value -= field.size
        mask |= 1 << value
    return mask


def _hashed(field: Field, step: int | None, name: str) -> int:
    """Return the values of ``H`` (one) or ``H/n`` (every n-th), which a hash of the name chooses."""
    digest = blake2b(f"{field.name}\0{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    number = int.from_bytes(digest, "big")
    # Days 29 to 31 are missing from some months, so H stays below.
    last = 28 if field is DOM else _last_value(field)
    if step is None:
        return 1 << field.low + number % (last - field.low + 1)
    return _stepped(field, field.low + number % min(step, last - field.low + 1), last, step)


def _not_a_value(field: Field, item: str, text: str) -> FieldProblem:
    if item == "":
        return FieldProblem(field, item, "has an empty item", "there is a comma too many")
    if text == "":
        return FieldProblem(
            field, item, f"{shown(item)} has a part missing", f"write values of {field.allowed}"
        )
    if text[0] in "hH" and field is not MONTH:
        return FieldProblem(
            field, item, f"{shown(item)} is not H or H/{min(field.size, 15)}", "H takes no range"
        )
    if "?" in text and field not in (DOM, DOW):
        return FieldProblem(field, item, "? stands only in the day fields", "write * here")
    if field.names:
        near = get_close_matches(text[:20].lower(), field.names, n=1, cutoff=0.5) if len(text) > 1 else []
        hint = f"did you mean {near[0]}?" if near else f"names are {', '.join(field.names)}"
        return FieldProblem(field, item, f"{shown(text)} is neither {field.allowed} nor a name", hint)
    return FieldProblem(field, item, f"{shown(text)} is not a number of {field.allowed}")


def write_field(field: Field, mask: int, *, star: bool) -> str:
    """Return the canonical text of a bitset: the same for all texts with the same meaning.

    ``star`` says whether the text started with ``*``, which cron gives a meaning of its own.
    """
    plain = mask & field.full
    items = []
    if star:
        # The finest */n inside the mask. A text that started with * has one.
        step = next(
            n
            for n in range(1, field.size + 1)
            if (stepped := _stepped(field, field.low, _last_value(field), n)) & ~plain == 0
        )
        items.append("*" if step == 1 else f"*/{step}")
        plain &= ~stepped
    items += _write_values(bits(plain))
    items += _write_specials(field, mask)
    return ",".join(items)


def write_hashed(field: Field, text: str) -> str:
    """Return the canonical text of a field with an ``H``: the plain part, then the hashed part."""
    items = text.lower().split(",")
    steps = {int(item[2:] or 0) for item in items if is_hashed(item)}
    written = [f"H/{step}" if step else "H" for step in sorted(steps)]
    if plain := [item for item in items if not is_hashed(item)]:
        mask = read_field(field, ",".join(plain))
        written.insert(0, write_field(field, mask, star=text[0] in "*?"))
    return ",".join(written)


def is_stepped(field: Field, mask: int) -> bool:
    """Return whether ``*/n``, of at least two values, has the same values as the mask."""
    return mask in _all_stepped(field.low, field.high)


@lru_cache(maxsize=len(FIELDS))
def _all_stepped(low: int, high: int) -> frozenset[int]:
    field = next(field for field in FIELDS if (field.low, field.high) == (low, high))
    return frozenset(_stepped(field, low, _last_value(field), n) for n in range(1, field.size // 2 + 1))


def _write_values(values: list[int]) -> list[str]:
    """Return values as single numbers, ranges, and ranges with a step: each run of three or more."""
    items = []
    at = 0
    while at < len(values):
        end = at + 1
        if end < len(values):
            step = values[end] - values[at]
            while end + 1 < len(values) and values[end + 1] - values[end] == step:
                end += 1
        if end - at >= 2:
            items.append(f"{values[at]}-{values[end]}" + (f"/{step}" if step > 1 else ""))
            at = end + 1
        else:
            items.append(str(values[at]))
            at += 1
    return items


def _write_specials(field: Field, mask: int) -> list[str]:
    if field is DOM:
        lasts = [f"L-{k}" if k else "L" for k in bits(mask >> LAST & (1 << 31) - 1)]
        return lasts + [f"{d}W" if d else "LW" for d in bits(mask >> NEAR)]
    if field is DOW:
        nths = [f"{bit % 7}#{bit // 7 + 1}" for bit in bits(mask >> 7 & (1 << 35) - 1)]
        return nths + [f"{w}L" for w in bits(mask >> FINAL)]
    return []
