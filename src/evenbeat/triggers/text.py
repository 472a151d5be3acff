"""The text of triggers: one line, which people write and stores keep.

``0 9 * * 1-5 tz=Europe/Berlin``, ``every 10m start=2026-01-01T00:00:00Z``, ``at 2026-03-01T08:00:00Z``,
``on success of load``: a rule, then options as ``key=value``.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from evenbeat.errors import InvalidTrigger, InvalidValue, UnknownTriggerZone, UnknownZone, shown
from evenbeat.triggers.at import At, at
from evenbeat.triggers.base import Trigger, check_text
from evenbeat.triggers.calendared import Calendared
from evenbeat.triggers.cron import Cron, cron
from evenbeat.triggers.every import Every, every
from evenbeat.triggers.expression import LONGEST_TEXT, too_long
from evenbeat.triggers.on_success import OnSuccess, on_success_of

_EVERY_CALL = re.compile(r'every\("([^"]*)"\)')
_OPTION = re.compile(r"[^\s=]*=\S*")
_CALENDAR_OPTIONS = ("skip", "only", "move")
CRON_OPTIONS = ("tz", "gap", "repeat", "days", "start", "until", *_CALENDAR_OPTIONS)
_EVERY_OPTIONS = ("start", "until", *_CALENDAR_OPTIONS)
_AT_OPTIONS = ("tz",)


def check_trigger(value: object, field: str) -> object:
    """Refuse a value that is neither a trigger nor a text, such as a timedelta, whose text would pass for a
    cron."""
    if isinstance(value, (Trigger, str)):
        return value
    raise InvalidValue(
        f"{field} {shown(value)} is not a trigger",
        field=field,
        value=value,
        hint='write every("5m"), cron("0 9 * * *") or at("2026-03-01T09:00Z")',
    )


# Rows of a store repeat the same texts: one immutable trigger serves them all. A text takes up to 3 KB.
@lru_cache(maxsize=1 << 14)
def parse_trigger(text: str) -> Cron | Every | At | Calendared | OnSuccess:
    """Return the trigger of a text. ``parse_trigger(str(trigger)) == trigger`` for every trigger."""
    check_text(text)
    if len(text) > LONGEST_TEXT:
        raise too_long(text)
    try:
        return _parse(text)
    except InvalidTrigger as error:
        # The hints are in Python, which does not help with a text.
        raise error.within(text, error.hint and _EVERY_CALL.sub(r"every \1", error.hint)) from None
    except InvalidValue as error:
        kind = UnknownTriggerZone if isinstance(error, UnknownZone) else InvalidTrigger
        raise kind(
            text,
            f": {error.problem}",
            field=error.field,
            value=error.value,
            position=_place(text, error),
            hint=error.hint,
        ) from None


def _parse(text: str) -> Cron | Every | At | Calendared | OnSuccess:
    # Blanks replace the options, so that positions in the rule are positions in the text.
    rule = _OPTION.sub(lambda option: " " * len(option[0]), text).rstrip() if "=" in text else text
    words = rule.split()
    kind = words[0].lower() if words else ""
    if kind == "at":
        return at(" ".join(words[1:]), **_options(text, _AT_OPTIONS))
    if kind in ("every", "@every"):
        if len(words) == 1:
            raise InvalidTrigger(text, " has no period", field="every", value=kind, hint=f"write {kind} 10m")
        found: Every | Calendared = every(" ".join(words[1:]), **_options(text, _EVERY_OPTIONS))
        return found
    if kind == "on":
        return _on_success(text, words)
    return cron(rule, **_options(text, CRON_OPTIONS))


def _on_success(text: str, words: list[str]) -> OnSuccess:
    if len(words) != 4 or [word.lower() for word in words[:3]] != ["on", "success", "of"] or "=" in text:
        raise InvalidTrigger(
            text,
            " is not the success of a schedule",
            field="on_success_of",
            value=text,
            hint="write: on success of load",
        )
    return on_success_of(words[3])


def _place(text: str, error: InvalidValue) -> int:
    """Return the position of the refused value: after ``field=``, or after the first word of the rule."""
    for option in _OPTION.finditer(text):
        if option[0].startswith(f"{error.field}="):
            return option.start() + len(error.field) + 1
    behind = re.match(r"\s*\S+\s+", text)
    return behind.end() if behind else 0


def _options(text: str, known: tuple[str, ...]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for word in _OPTION.finditer(text) if "=" in text else ():
        key, _, value = word[0].partition("=")
        if key not in known:
            near = get_close_matches(key.lower()[:20], known, n=1)
            raise InvalidTrigger(
                text,
                f": option {shown(key)} is not known here",
                field=key[:20] or "option",
                value=value,
                position=word.start(),
                allowed=", ".join(known),
                hint=f"did you mean {near[0]}=?" if near else f"there are {', '.join(known)}",
            )
        if key in options:
            raise InvalidTrigger(
                text, f" gives {key} twice", field=key, value=value, position=word.start(), hint="keep one"
            )
        options[key] = value
    return options
