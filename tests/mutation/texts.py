"""Mutants inside texts of other languages: SQL in strings, Lua in files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

Change: TypeAlias = tuple[int, int, str]
"""From, to, and the replacement."""

_SQL = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|WHERE|CREATE TABLE|ORDER BY)\b")
_SQL_SWAPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(?<![<>=!-])<=(?!=)", ("<", ">")),
    (r"(?<![<>=!-])>=(?!=)", (">", "<")),
    (r"(?<![<>=!-])<(?![=>@])", ("<=", ">=")),
    (r"(?<![<>=!-])>(?![=>])", (">=", "<=")),
    (r"(?<=\s)<>(?=\s)", ("=",)),
    (r"(?<=\s)=(?=\s)", ("<>",)),
    (r"\bIS NOT NULL\b", ("IS NULL",)),
    (r"\bIS NULL\b", ("IS NOT NULL",)),
    (r"\bIS NOT DISTINCT FROM\b", ("IS DISTINCT FROM",)),
    (r"\bleast\(", ("greatest(",)),
    (r"\bgreatest\(", ("least(",)),
    (r"\bmin\(", ("max(",)),
    (r"\bmax\(", ("min(",)),
    (r"\bNOT IN\b", ("IN",)),
    (r"(?<!NOT )\bIN \(", ("NOT IN (",)),
    (r"\bNOT EXISTS\b", ("EXISTS",)),
    (r"(?<!NOT )\bEXISTS \(", ("NOT EXISTS (",)),
    (r" DESC\b", ("",)),
    (r"\bORDER BY ([\w.]+)(?=[,\s])(?! DESC)", (r"ORDER BY \1 DESC",)),
    (r"(?<=\s)\+(?=\s)", ("-",)),
    (r"(?<=\s)-(?=\s)", ("+",)),
    (r"(?<=\s)OR(?=\s)", ("AND",)),
    (r"(?<=\s)AND(?=\s)", ("OR",)),
    (r"\bTRUE\b", ("FALSE",)),
    (r"\bFALSE\b", ("TRUE",)),
    (r"\bUNION ALL\b", ("UNION",)),
    (r" FOR (NO KEY )?UPDATE\b( OF \w+)?( SKIP LOCKED)?", ("",)),
    (r" SKIP LOCKED\b", ("",)),
    (r"\bDO NOTHING\b", ("DO UPDATE SET id = NULL",)),
    (r"(?<![\w.$'%])\d+(?![\w.'])", ("+1",)),
    (r"'(\w+)'", (r"'\1XX'",)),
)
_LUA_SWAPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"<=", ("<", ">")),
    (r">=", (">", "<")),
    (r"<(?!=)", ("<=", ">=")),
    (r">(?!=)", (">=", "<=")),
    (r"==", ("~=",)),
    (r"~=", ("==",)),
    (r"(?<=\s)and(?=\s)", ("or",)),
    (r"(?<=\s)or(?=\s)", ("and",)),
    (r"\bnot ", ("",)),
    (r"(?<=\s)\+(?=\s)", ("-",)),
    (r"(?<=\s)-(?=\s)", ("+",)),
    (r"\bmath\.min\b", ("math.max",)),
    (r"\bmath\.max\b", ("math.min",)),
    (r"\btrue\b", ("false",)),
    (r"\bfalse\b", ("true",)),
    (r"(?<![\w.'\"$])\d+(?![\w.'\"])", ("+1",)),
    (r"(?<=['\"])([a-z_]+)(?=['\"])", (r"\1XX",)),
    (
        r"^\s*(?!local\b|return\b|end\b|if\b|for\b|else|while\b|function\b|--)[\w.:\[\]]+\(.*\)\s*$",
        ("do end",),
    ),
    (r"^\s*(?!local\b)[\w.\[\]]+ = .*$", ("do end",)),
)


def is_sql(text: str) -> bool:
    return _SQL.search(text) is not None


def sql_changes(text: str) -> Iterator[Change]:
    """Yield changes of a string literal, as it is written in the source."""
    holes = [match.span() for match in re.finditer(r"\{[^{}]*\}", text)]
    yield from _swaps(text, _SQL_SWAPS, holes)
    for match in re.finditer(r"\s+AND\s+", text):
        until = _condition_end(text, match.end())
        if until > match.end() and not _between(text, match.start()):
            yield match.start(), until, " "
    for match in re.finditer(r"\bWHERE\s+", text):
        until = _condition_end(text, match.end())
        following = re.match(r"\s+AND\s+", text[until:])
        if following:
            yield match.end(), until + following.end(), ""


def lua_changes(line: str) -> Iterator[Change]:
    code = line.split("--", 1)[0].rstrip("\n")
    yield from _swaps(code, _LUA_SWAPS, [])


def shown(text: str, at: int, until: int, new: str) -> str:
    """Return the change with a little of the text around it."""
    before, after = text[max(0, at - 30) : at], text[until : until + 30]
    shown_new = f"{before}⟦{text[at:until]} → {new}⟧{after}"
    return " ".join(shown_new.split())


def _swaps(
    text: str, swaps: tuple[tuple[str, tuple[str, ...]], ...], holes: list[tuple[int, int]]
) -> Iterator[Change]:
    for pattern, news in swaps:
        for match in re.finditer(pattern, text, re.MULTILINE):
            at, until = match.span()
            if any(start < until and at < end for start, end in holes):
                continue
            for new in news:
                made = str(int(match[0]) + 1) if new == "+1" else match.expand(new)
                yield at, until, made


def _between(text: str, at: int) -> bool:
    return re.search(r"\bBETWEEN\s+\S+$", text[:at]) is not None


def _condition_end(text: str, at: int) -> int:
    """Return the end of a condition that begins here: the next AND, OR, clause or bracket of its depth."""
    depth = 0
    words = re.compile(r"\s+(AND|OR|ORDER|LIMIT|GROUP|RETURNING|FOR|ON|UNION|THEN|END)\b|;|\n\s*\n|\"\"\"")
    while at < len(text):
        if depth == 0 and words.match(text, at):
            return at
        if text[at] == "(":
            depth += 1
        elif text[at] == ")":
            if depth == 0:
                return at
            depth -= 1
        elif depth == 0 and text[at] == '"':
            return at
        at += 1
    return at
