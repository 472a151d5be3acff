"""Patterns of keys: ``order:*``, as Redis matches them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from evenbeat.documents.time_formats import TimeFormat
from evenbeat.errors import InvalidValue, shown

# The parts of a pattern: a class, an escaped character, or any other character.
_PART = re.compile(r"\[(\^?)((?:\\.|[^\]]-.|[^\]])*)\]?|\\(.)|(.)", re.DOTALL)


def check(pattern: object) -> str:
    """Refuse a value that is not a pattern."""
    if isinstance(pattern, str) and pattern:
        return pattern
    raise InvalidValue(
        f"pattern {shown(pattern)} is not a pattern of keys",
        field="pattern",
        value=pattern,
        hint='write it like "order:*"',
    )


def index_key(pattern: str, sleep_until: str, condition: Mapping[str, str], times: TimeFormat) -> str:
    """Return the key of the index. Stores that differ in the pattern, the field, the condition or the format
    of times have different indexes. The index has the hash tag of the pattern, if there is one.

    No two keys are equal: read from the end, the parts contain no ``:``, those with ``=`` are the conditions,
    and the rest is the pattern, as it is.
    """
    terms = [f"{_quoted(name)}={_quoted(condition[name])}" for name in sorted(condition)]
    last = "due" if times == "text" else f"due-{times}"
    return ":".join(["evenbeat", pattern, _quoted(sleep_until), *terms, last])


def hash_tag(key: str) -> str | None:
    """Return the part of a key, or of all keys of a pattern, that decides their slot in a cluster; None if
    there is no such part."""
    _, brace, rest = key.partition("{")
    tag, closing, _ = rest.partition("}")
    return tag if brace and closing and tag and not re.search(r"[*?\[\\]", tag) else None


def _quoted(part: str) -> str:
    return re.sub("[%:=]", lambda found: f"%{ord(found[0]):02X}", part)


def matcher(pattern: str) -> re.Pattern[str]:
    """Return the pattern as a regular expression for whole keys."""
    return re.compile("".join(_translated(part) for part in _PART.finditer(pattern)), re.DOTALL)


def _translated(part: re.Match[str]) -> str:
    negation, members, escaped, plain = part.groups()
    if members is not None:
        return _one_of(negation, members)
    if escaped is not None:
        return re.escape(escaped)
    return {"*": ".*", "?": "."}.get(plain, re.escape(plain))


def _one_of(negation: str, members: str) -> str:
    found = re.findall(r"\\(.)|(.)-(.)|(.)", members, re.DOTALL)
    if not found:
        return "." if negation else "(?!)"
    texts = []
    for escaped, first, last, plain in found:
        low, high = sorted((first, last))
        texts.append(f"{re.escape(low)}-{re.escape(high)}" if first else re.escape(escaped or plain))
    return f"[{negation}{''.join(texts)}]"
