"""Checks of values that users give: each raises ``InvalidValue``, which names the field and the value."""

from __future__ import annotations

import re
from numbers import Integral, Real
from typing import get_args

import msgspec

from evenbeat.core.instants import FIRST, LAST
from evenbeat.core.json_depth import TOO_DEEP, TooDeep, decode
from evenbeat.core.rates import check_rate
from evenbeat.core.records import (
    LONGEST_DESCRIPTION,
    LONGEST_PAYLOAD,
    LONGEST_SPREAD,
    MOST_CAUGHT_UP,
    MOST_CONCURRENT,
    MOST_CRASHES,
    MOST_RETRIES,
    MOST_TAGS,
    PRIORITIES,
    CatchUpKind,
    Execution,
    Kind,
    OnCrash,
    Overlap,
    RunRecord,
    ScheduleRecord,
)
from evenbeat.errors import InvalidValue, shown

NAMES = "1 to 128 letters, digits, _, -, . or : (not . or : first)"
# Not . first: in a URL, "." and ".." are not names but folders.
NAME_PATTERN = "^[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,127}$"
LABELS = "1 to 128 letters, digits, _ or -"
LABEL_PATTERN = "^[A-Za-z0-9_-]{1,128}$"
LONGEST_TASK, LONGEST_RUN_ID = 200, 400
# Neither control characters nor spaces of any kind. Not \s: JSON Schema and Python differ about what that is.
_VISIBLE = r"[^\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]"
TASK_PATTERN = f"^{_VISIBLE}+$"
RUN_ID_PATTERN = TASK_PATTERN
_NAME, _LABEL = re.compile(NAME_PATTERN), re.compile(LABEL_PATTERN)
_TASK = re.compile(f"{_VISIBLE}{{1,{LONGEST_TASK}}}")
_RUN_ID = re.compile(f"{_VISIBLE}{{1,{LONGEST_RUN_ID}}}")
_KINDS, _CATCH_UPS, _OVERLAPS, _ON_CRASH = map(get_args, (Kind, CatchUpKind, Overlap, OnCrash))


def is_name(value: object) -> bool:
    """Return whether a value may be the name of a schedule or a lock."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def check_predecessor(value: object, field: str) -> None:
    """Refuse what is not the name of a schedule; for a task, say what to write instead."""
    if isinstance(value, str):
        check_name(value, field)
        return
    name = getattr(value, "name", None)
    example = name if is_name(name) else "load"
    raise InvalidValue(
        f"{field} {shown(value)} is not the name of a schedule",
        field=field,
        value=value,
        hint=f'write the name as a text: "{example}". A decorated task has a schedule of its own name',
    )


def check_name(value: object, field: str) -> None:
    """Refuse a name of a schedule or a lock that is not valid."""
    if not is_name(value):
        raise InvalidValue(f"{field} {shown(value)} is not {NAMES}", field=field, value=value)


def check_label(value: object, field: str) -> None:
    """Refuse a tenant or queue that is not valid.

    Stricter than names: in the keys of Redis, a : or a / follows a tenant or queue, so they contain neither.
    """
    if not (isinstance(value, str) and _LABEL.fullmatch(value)):
        raise InvalidValue(f"{field} {shown(value)} is not {LABELS}", field=field, value=value)


def check_task(value: object, field: str = "task") -> None:
    """Refuse a name of a task that is not valid."""
    if not (isinstance(value, str) and _TASK.fullmatch(value)):
        hint = "give the name under which the task is registered"
        raise InvalidValue(
            f"{field} {shown(value)} is not 1 to 200 visible characters", field=field, value=value, hint=hint
        )
    check_text(field, value)


def read_priority(value: object) -> int:
    """Return the number of a priority: 0 to 9, or low, normal, high."""
    if isinstance(value, str) and value in PRIORITIES:
        return PRIORITIES[value]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 9:
        return value
    raise InvalidValue(
        f"priority {shown(value)} is not one of 0-9, low, normal, high", field="priority", value=value
    )


def check_schedule(schedule: ScheduleRecord) -> ScheduleRecord:
    """Refuse a schedule that no store should hold, naming the field and the value."""
    check_label(schedule.tenant, "tenant")
    check_name(schedule.name, "name")
    check_label(schedule.queue, "queue")
    check_task(schedule.task)
    read_priority(schedule.priority)
    check_one_of("kind", schedule.kind, _KINDS)
    check_one_of("overlap", schedule.overlap, _OVERLAPS)
    check_one_of("catch_up", schedule.catch_up.kind, _CATCH_UPS)
    check_whole("grace", schedule.catch_up.grace, 0)
    check_whole("catch_up_limit", schedule.catch_up.limit, 1, MOST_CAUGHT_UP)
    if schedule.catch_up.max_age is not None:
        check_whole("catch_up_max_age", schedule.catch_up.max_age, 0)
    if schedule.catch_up.rate is not None:
        check_rate(schedule.catch_up.rate, "catch_up_rate")
    check_whole("spread", schedule.spread, 0, LONGEST_SPREAD)
    if schedule.max_concurrent is not None:
        check_whole("max_concurrent", schedule.max_concurrent, 1, MOST_CONCURRENT)
    check_execution(schedule.execution)
    check_payload(schedule.payload)
    for field in ("pause_note", "paused_by", "managed_by", "after", "template", "calendars", "followers"):
        check_text(field, getattr(schedule, field))
    check_description(schedule.description)
    check_tags(schedule.tags)
    return schedule


def check_description(text: str) -> None:
    """Refuse a description, of a schedule or a lock, that is not a text or is too long."""
    check_text("description", text, LONGEST_DESCRIPTION)


def check_tags(tags: str) -> None:
    """Refuse tags of a schedule's record that are not names, or too many."""
    check_text("tags", tags)
    words = tags.split(" ") if tags else []
    for word in words:
        check_name(word, "tag")
    if len(words) > MOST_TAGS:
        hint = f"at most {MOST_TAGS}"
        raise InvalidValue(f"tags has {len(words)} words", field="tags", value=tags, hint=hint)


def check_texts(**texts: str) -> None:
    """Refuse texts that no database accepts, by the names of their fields."""
    for field, text in texts.items():
        check_text(field, text)


def check_execution(execution: Execution) -> Execution:
    """Refuse options of an execution that are out of range."""
    check_whole("retries", execution.retries, 0, MOST_RETRIES)
    check_whole("backoff", execution.backoff, 0)
    check_whole("max_backoff", execution.max_backoff, 0)
    if execution.timeout is not None:
        check_whole("timeout", execution.timeout, 1)
    check_one_of("on_crash", execution.on_crash, _ON_CRASH)
    check_whole("max_crashes", execution.max_crashes, 0, MOST_CRASHES)
    if execution.expires is not None:
        check_whole("expires", execution.expires, 1)
    return execution


def check_run(run: RunRecord) -> RunRecord:
    """Refuse a run that no store should hold."""
    if not _RUN_ID.fullmatch(run.id if type(run.id) is str else ""):
        raise InvalidValue(f"id {shown(run.id)} is not 1 to 400 visible characters", field="id", value=run.id)
    if "/" in run.id and run.tick is None:
        raise InvalidValue(
            f"id {shown(run.id)} has a /, which only the ids of ticks' runs may have",
            field="id",
            value=run.id,
        )
    check_label(run.tenant, "tenant")
    check_label(run.queue, "queue")
    check_task(run.task)
    read_priority(run.priority)
    check_execution(run.execution)
    check_payload(run.payload)
    check_whole("run_at", run.run_at, FIRST, LAST)
    return run


def check_payload(text: str, field: str = "payload") -> str:
    """Refuse a text that is not JSON, or too long."""
    if not isinstance(text, str):
        raise InvalidValue(
            f"{field} {shown(text)} is not JSON text", field=field, value=text, hint="write it with to_json"
        )
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > LONGEST_PAYLOAD:
        raise InvalidValue(
            f"{field} is {size:,} bytes of JSON, the limit is {LONGEST_PAYLOAD:,}",
            field=field,
            value=text,
            hint="store the data elsewhere and pass a reference to it",
        )
    try:
        decode(text)
    except TooDeep:
        raise InvalidValue(f"{field} is {TOO_DEEP}", field=field, value=text) from None
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidValue(
            f"{field} {shown(text)} is not JSON text: {error}", field=field, value=text
        ) from None
    return text


def check_text(field: str, text: object, longest: int | None = None) -> None:
    """Refuse a value that is not a text, is longer than ``longest``, or that no database accepts."""
    if not isinstance(text, str):
        raise InvalidValue(f"{field} {shown(text)} is not a text", field=field, value=text)
    if longest is not None and len(text) > longest:
        raise InvalidValue(
            f"{field} is {len(text):,} characters long", field=field, value=text, hint=f"at most {longest:,}"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValue(
            f"{field} {shown(text)} has a lone surrogate, which no database accepts", field=field, value=text
        ) from None


def check_amount(field: str, value: object) -> float:
    """Return a number of 0 or more as an int or a float. Refuse other values."""
    most = 1 << 53
    if not isinstance(value, bool) and isinstance(value, Real):
        number = int(value) if isinstance(value, Integral) else float(value)
        if 0 <= number <= most:
            return number
    raise InvalidValue(f"{field} {shown(value)} is not a number of 0 to {most:,}", field=field, value=value)


def check_one_of(field: str, value: object, known: tuple[str, ...]) -> None:
    """Refuse a value that is not one of the known ones."""
    if value not in known:
        raise InvalidValue(
            f"{field} {shown(value)} is not one of {', '.join(known)}", field=field, value=value
        )


def check_flag(field: str, value: object) -> None:
    """Refuse what is not a bool: other values that count as true could not be read back from a store."""
    if not isinstance(value, bool):
        raise InvalidValue(f"{field} {shown(value)} is not True or False", field=field, value=value)


def check_whole(field: str, value: object, low: int, high: int | None = None) -> None:
    """Refuse a value that is not an integer of ``low`` to ``high`` (default: the largest that JSON keeps)."""
    most = 1 << 53 if high is None else high
    if not (isinstance(value, int) and not isinstance(value, bool) and low <= value <= most):
        raise InvalidValue(
            f"{field} {shown(value)} is not a whole number of {low:,} to {most:,}", field=field, value=value
        )
