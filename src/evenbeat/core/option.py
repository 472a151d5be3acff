"""The description of an option, and how a value is read by its kind and bounds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Literal, TypeAlias

import msgspec

from evenbeat.core.checks import check_label, check_name, check_one_of, check_text, check_whole, read_priority
from evenbeat.core.dependencies import read_after
from evenbeat.core.durations import read_duration, write_duration
from evenbeat.core.rates import Rate, read_rate
from evenbeat.errors import InvalidValue, shown

OptionKind: TypeAlias = Literal[
    "count",
    "duration",
    "choice",
    "label",
    "labels",
    "hosts",
    "tags",
    "priority",
    "text",
    "url",
    "web_url",
    "flag",
    "rate",
    "after",
]


_LONGEST_URL = 1_000
_WEB_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")
_HOST = re.compile(r"[A-Za-z0-9:._-]{1,253}")


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one option."""

    name: str
    kind: OptionKind
    help: str
    """Sentences for people. Backticks mark code, which the command line shows without them."""
    default: Any = None
    """The value that the reader would return: durations in milliseconds."""
    low: int = 0
    """The lowest count, or the shortest duration in milliseconds."""
    high: int | None = None
    """The highest count, the longest duration in milliseconds, the most characters of a text, or the
    most tags."""
    choices: tuple[str, ...] = ()
    is_optional: bool = False
    """Whether None is a value, which stands for no limit."""
    default_words: str | None = None
    """The default for people, where its value differs from machine to machine."""

    def read(self, value: Any) -> Any:
        """Return the value as it is kept: a duration in milliseconds, a priority as a number.

        Raises ``InvalidValue`` for a value of another type or out of bounds.
        """
        if value is None and self.is_optional:
            return None
        return _READERS[self.kind](self, value)

    @property
    def shown_default(self) -> str:
        """The default as a user would write it; ``none`` where there is none."""
        if self.default_words is not None:
            return self.default_words
        if self.default is None:
            return "none"
        if self.kind == "duration":
            return write_duration(self.default)
        return ", ".join(self.default) or "none" if isinstance(self.default, tuple) else str(self.default)


def _read_count(option: Option, value: Any) -> int:
    check_whole(option.name, value, option.low, option.high)
    assert isinstance(value, int)
    return value


def _read_duration(option: Option, value: Any) -> int:
    ms = read_duration(value, option.name)
    if ms < option.low:
        raise _out_of_bounds(option, value, f"shorter than {write_duration(option.low)}")
    if option.high is not None and ms > option.high:
        raise _out_of_bounds(option, value, f"longer than {write_duration(option.high)}")
    return ms


def _out_of_bounds(option: Option, value: Any, problem: str) -> InvalidValue:
    quoted = str(value) if isinstance(value, timedelta) else shown(value)
    return InvalidValue(f"{option.name} {quoted} is {problem}", field=option.name, value=value)


def _read_choice(option: Option, value: Any) -> str:
    check_one_of(option.name, value, option.choices)
    assert isinstance(value, str)
    return value


def _read_label(option: Option, value: Any) -> str:
    check_label(value, option.name)
    assert isinstance(value, str)
    return value


def _read_labels(option: Option, value: Any) -> tuple[str, ...]:
    if not isinstance(value, Iterable):
        raise InvalidValue(
            f"{option.name} {shown(value)} are not names",
            field=option.name,
            value=value,
            hint='write ["default", "mail"]',
        )
    labels = (value,) if isinstance(value, str) else tuple(value)
    for label in labels:
        check_label(label, option.name.removesuffix("s"))
    if not labels:
        raise InvalidValue(
            f"{option.name} is empty", field=option.name, value=value, hint='write ["default"]'
        )
    return labels


def _read_hosts(option: Option, value: Any) -> tuple[str, ...]:
    hosts = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else None
    if hosts is None:
        raise InvalidValue(
            f"{option.name} {shown(value)} is not a list of host names",
            field=option.name,
            value=value,
            hint='write ["hooks.internal"]',
        )
    for host in hosts:
        if not (isinstance(host, str) and _HOST.fullmatch(host)):
            raise InvalidValue(
                f"{option.name} {shown(host)} is not the name or address of a host",
                field=option.name,
                value=host,
                hint="write it without a scheme, a port or a path: hooks.internal",
            )
    return tuple(host.lower() for host in hosts)


def _read_web_url(option: Option, value: Any) -> str:
    check_text(option.name, value, _LONGEST_URL)
    if not _WEB_URL.fullmatch(value):
        raise InvalidValue(
            f"{option.name} {shown(value)} is not the URL of a web site",
            field=option.name,
            value=value,
            hint="write it like https://jobs.example.com",
        )
    assert isinstance(value, str)
    return value.rstrip("/")


def _read_tags(option: Option, value: Any) -> str:
    """Return tags as they are kept: sorted, separated by spaces."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidValue(
            f"{option.name} {shown(value)} are not a list of words",
            field=option.name,
            value=value,
            hint='write ["billing", "team:ops"]',
        )
    tags = sorted(set(value), key=str)
    for tag in tags:
        check_name(tag, "tag")
    if option.high is not None and len(tags) > option.high:
        raise InvalidValue(
            f"{option.name} has {len(tags)} words",
            field=option.name,
            value=value,
            hint=f"at most {option.high}",
        )
    return " ".join(tags)


def _read_priority(_: Option, value: Any) -> int:
    return read_priority(value)


def _read_text(option: Option, value: Any) -> str:
    check_text(option.name, value, option.high)
    assert isinstance(value, str)
    return value


def _read_flag(option: Option, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(
            f"{option.name} {shown(value)} is not True or False", field=option.name, value=value
        )
    return value


def _read_rate(option: Option, value: Any) -> Rate:
    return read_rate(value, option.name)


def _read_after(option: Option, value: Any) -> str:
    return read_after(value, option.name)


_READERS: dict[OptionKind, Callable[[Option, Any], Any]] = {
    "count": _read_count,
    "duration": _read_duration,
    "choice": _read_choice,
    "label": _read_label,
    "labels": _read_labels,
    "hosts": _read_hosts,
    "tags": _read_tags,
    "priority": _read_priority,
    "text": _read_text,
    "url": _read_text,
    "web_url": _read_web_url,
    "flag": _read_flag,
    "rate": _read_rate,
    "after": _read_after,
}
