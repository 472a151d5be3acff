"""The options of tasks, schedules and runs: their types, and the policies that are read from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any, TypedDict

from msgspec.structs import replace

from evenbeat.core.dependencies import After
from evenbeat.core.durations import Duration
from evenbeat.core.options import EXECUTION, SCHEDULE
from evenbeat.core.records import CatchUp, CatchUpKind, Execution, OnCrash, Overlap
from evenbeat.errors import InvalidValue, shown

# The types of the options that core.options describes, for type checkers. A test compares the two.


class RunOptions(TypedDict, total=False):
    """How a run is executed. Options that are not given come from the task."""

    retries: int
    backoff: Duration
    max_backoff: Duration
    timeout: Duration | None
    on_crash: OnCrash
    max_crashes: int
    expires: Duration | None
    queue: str
    priority: int | str


class EnqueuedOptions(TypedDict, total=False):
    """``RunOptions``, where ``expires`` may also be a time."""

    retries: int
    backoff: Duration
    max_backoff: Duration
    timeout: Duration | None
    on_crash: OnCrash
    max_crashes: int
    expires: Duration | datetime | None
    queue: str
    priority: int | str


class ScheduleOptions(RunOptions, total=False):
    """The policies of a schedule, and how its runs are executed."""

    description: str
    tags: Iterable[str]
    catch_up: CatchUpKind
    grace: Duration
    catch_up_limit: int
    catch_up_max_age: Duration | None
    catch_up_rate: str | None
    overlap: Overlap
    max_concurrent: int | None
    spread: Duration
    after: After | str | None


class NewScheduleOptions(ScheduleOptions, total=False):
    """Options of a schedule that is created. To change them later, call ``pause`` and ``resume``."""

    paused: bool
    note: str
    template: str | None


# The names that other schedulers use.
_ELSEWHERE = {
    "max_instances": 'max_concurrent or overlap="skip"',
    "misfire_grace_time": 'grace, with catch_up="skip"',
    "coalesce": 'catch_up="latest"',
    "jitter": "spread",
    "max_retries": "retries",
    "threads": "thread_concurrency",
    "concurrency": "thread_concurrency",
    "max_workers": "thread_concurrency",
    "default_retry_delay": "backoff",
    "time_limit": "timeout",
    "expire": "expires",
    "autoretry_for": "retry_on",
    "dont_autoretry_for": "give_up_on",
    "unique_for": "unique",
    "countdown": "delay",
    "eta": "at",
    "paused": "schedules.pause(…) or schedules.resume(…)",
    "note": "schedules.pause(…, note=…)",
    "start_at": 'every("1h", start=…)',
    "enabled": "paused=True",
    "disabled": "paused=True",
    "labels": "tags",
    "trigger": "@app.task(schedule=…)",
    "cron": '@app.task(schedule=cron("…"))',
    "every": '@app.task(schedule=every("…"))',
    "timezone": 'cron("…", tz="Europe/Berlin")',
    "tz": 'cron("…", tz="Europe/Berlin")',
}


def refuse_unknown(options: Iterable[str], known: Collection[str], what: str) -> None:
    """Refuse a misspelt option with the nearest name; type checkers see it before."""
    for name in options:
        if name not in known:
            longer = (each for each in known if each.startswith(name))
            near = _ELSEWHERE.get(name) or next(iter(get_close_matches(name, known, n=1)), next(longer, None))
            hint = f"there are {', '.join(known)}" if near is None else f"did you mean {near}?"
            raise InvalidValue(f"{what} has no option {name}", field=name, value=name, hint=hint)


def read_execution(options: Mapping[str, Any], base: Execution) -> Execution:
    """Return ``base`` with the options that are given."""
    given = {name: option.read(options[name]) for name, option in EXECUTION.items() if name in options}
    return replace(base, **given) if given else base


def read_catch_up(options: Mapping[str, Any], base: CatchUp) -> CatchUp:
    """Return ``base`` with the options that are given; ``InvalidValue`` for one that has no effect then."""
    names = {
        "catch_up": "kind",
        "grace": "grace",
        "catch_up_limit": "limit",
        "catch_up_max_age": "max_age",
        "catch_up_rate": "rate",
    }
    given = {field: SCHEDULE[name].read(options[name]) for name, field in names.items() if name in options}
    policy = replace(base, **given) if given else base
    if "grace" in options and policy.kind != "skip":
        raise _ignored("grace", options["grace"], policy, 'add catch_up="skip", or leave it out')
    if "catch_up_limit" in options and policy.kind == "latest":
        raise _ignored(
            "catch_up_limit", options["catch_up_limit"], policy, 'add catch_up="all", or leave it out'
        )
    if options.get("catch_up_max_age") is not None and policy.kind == "skip":
        hint = 'with catch_up="skip", grace is the age of the oldest tick that runs'
        raise _ignored("catch_up_max_age", options["catch_up_max_age"], policy, hint)
    if options.get("catch_up_rate") is not None and policy.kind == "latest":
        hint = 'add catch_up="all", or leave it out: one run stands for all missed ticks'
        raise _ignored("catch_up_rate", options["catch_up_rate"], policy, hint)
    return policy


def _ignored(name: str, value: object, policy: CatchUp, hint: str) -> InvalidValue:
    return InvalidValue(
        f'{name} {shown(value)} has no effect with catch_up="{policy.kind}"',
        field=name,
        value=value,
        hint=hint,
    )


def read_run_fields(options: Mapping[str, Any], execution: Execution) -> dict[str, Any]:
    """Return the fields of a run, or of a schedule, that ``RunOptions`` set; ``execution`` is the base."""
    fields: dict[str, Any] = {"execution": read_execution(options, execution)}
    return fields | _read_fields(options, ("queue", "priority"))


def read_schedule_fields(
    options: Mapping[str, Any], execution: Execution, catch_up: CatchUp
) -> dict[str, Any]:
    """Return the fields of a schedule that the options set; ``execution`` and ``catch_up`` are the bases."""
    fields = read_run_fields(options, execution)
    fields["catch_up"] = read_catch_up(options, catch_up)
    if "after" in options:
        fields["after"] = SCHEDULE["after"].read(options["after"]) or ""
    return fields | _read_fields(options, ("description", "tags", "overlap", "max_concurrent", "spread"))


def _read_fields(options: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: SCHEDULE[name].read(options[name]) for name in names if name in options}
