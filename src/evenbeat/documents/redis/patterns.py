"""Patterns of keys: ``order:*``, as Redis matches them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from evenbeat.documents.time_formats import TimeFormat
from evenbeat.errors import InvalidValue, shown

# A class, an escaped character, or any character: what a pattern is made of.
_PART = re.compile(r"\[(\^?)((?:\\.|[^\]]-.|[^\]])*)\]?|\\(.)|(.)", re.DOTALL)


def check(pattern: object) -> str:
    """Refuse what can't be a pattern."""
    if isinstance(pattern, str) and pattern:
        return pattern
    raise InvalidValue(
        f"pattern {shown(pattern)} is not a pattern of keys",
        field="pattern",
        value=pattern,
        hint='write it like "order:*"',
    )


def index_key(pattern: str, sleep_until: str, condition: Mapping[str, str], times: TimeFormat) -> str:
    """Where the documents of a pattern are indexed. Whoever is due by another field, under another condition
    or with times of another kind has another index. The hash tag of the pattern, if it has one, is that of
    the index.

    No two are alike: read from its end, the parts are those without ``:``, the conditions are the ones with
    ``=``, and what is left is the pattern, as it is.
    """
    terms = [f"{_quoted(name)}={_quoted(condition[name])}" for name in sorted(condition)]
    last = "due" if times == "text" else f"due-{times}"
    return ":".join(["evenbeat", pattern, _quoted(sleep_until), *terms, last])


def hash_tag(key: str) -> str | None:
    """What decides the slot of a key, or of all keys of a pattern, in a cluster; None where no part of it
    does so for all of them."""
    _, brace, rest = key.partition("{")
    tag, closing, _ = rest.partition("}")
    return tag if brace and closing and tag and not re.search(r"[*?\[\\]", tag) else None


def _quoted(part: str) -> str:
    return re.sub("[%:=]", lambda found: f"%{ord(found[0]):02X}", part)


def matcher(pattern: str) -> re.Pattern[str]:
    """The same as a regular expression, for whole keys."""
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
