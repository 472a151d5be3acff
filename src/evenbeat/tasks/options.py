"""What users may say about tasks, schedules and runs, and how it is read into the records' policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypedDict

from msgspec.structs import replace

from evenbeat.core.checks import check_execution, check_label, read_priority
from evenbeat.core.durations import Duration, read_duration
from evenbeat.core.records import CatchUp, CatchUpKind, Execution, OnCrash, Overlap
from evenbeat.errors import InvalidValue


class RunOptions(TypedDict, total=False):
    """How a run is executed. What is not said comes from the task."""

    retries: int
    """How many times a failed run is tried again (0)."""
    backoff: Duration
    """The wait before the first retry, doubled with each (10s)."""
    max_backoff: Duration
    """No wait is longer (1h)."""
    timeout: Duration | None
    """An attempt that takes longer is asked to end; it counts as failed unless it returns (none)."""
    on_crash: OnCrash
    """What becomes of a run whose worker died: ``rerun`` or ``fail``."""
    max_crashes: int
    """How many times at most such a run is run again (3)."""
    queue: str
    priority: int | str
    """0 to 9, or low, normal, high: higher first."""


class ScheduleOptions(RunOptions, total=False):
    """The policies of a schedule, and how its runs are executed."""

    description: str
    catch_up: CatchUpKind
    """What becomes of missed ticks: ``latest`` (one run for all), ``all``, ``skip``."""
    grace: Duration
    """With ``catch_up="skip"``: ticks no later than this still run (1m)."""
    catch_up_limit: int
    """With ``catch_up="all"``: no more than this many of the missed ticks run (100)."""
    overlap: Overlap
    """While the last run is active: ``allow``, ``skip``, ``queue``, ``queue_all``, ``cancel_running``."""
    max_concurrent: int | None
    """No more runs of this schedule at once."""
    spread: Duration
    """Ticks fire up to this much later, by an amount that depends on the name alone."""


class NewScheduleOptions(ScheduleOptions, total=False):
    """What may be said of a schedule that is made; of one that is there, ``pause`` and ``resume`` say it."""

    paused: bool
    """Made without ticks to come, until it is resumed."""
    note: str
    """Why it is paused."""


EXECUTION = ("retries", "backoff", "max_backoff", "timeout", "on_crash", "max_crashes")
RUN = (*EXECUTION, "queue", "priority")
SCHEDULE = (*RUN, "description", "catch_up", "grace", "catch_up_limit", "overlap", "max_concurrent", "spread")
NEW_SCHEDULE = (*SCHEDULE, "paused", "note")
_DURATIONS = frozenset(("backoff", "max_backoff", "timeout"))


# What other schedulers call it.
_ELSEWHERE = {
    "max_instances": 'max_concurrent or overlap="skip"',
    "misfire_grace_time": 'grace, with catch_up="skip"',
    "coalesce": 'catch_up="latest"',
    "jitter": "spread",
    "max_retries": "retries",
    "default_retry_delay": "backoff",
    "time_limit": "timeout",
    "countdown": "delay",
    "eta": "at",
    "paused": "schedules.pause(…) or schedules.resume(…)",
    "note": "schedules.pause(…, note=…)",
    "start_at": 'every("1h", start=…)',
    "enabled": "paused=True",
    "disabled": "paused=True",
    "timezone": 'cron("…", tz="Europe/Berlin")',
    "tz": 'cron("…", tz="Europe/Berlin")',
}


def refuse_unknown(options: Iterable[str], known: Sequence[str], what: str) -> None:
    """Type checkers see a misspelt option; people without one are told here."""
    for name in options:
        if name not in known:
            longer = (each for each in known if each.startswith(name))
            near = _ELSEWHERE.get(name) or next(iter(get_close_matches(name, known, n=1)), next(longer, None))
            hint = f"there are {', '.join(known)}" if near is None else f"did you mean {near}?"
            raise InvalidValue(f"{what} has no option {name}", field=name, value=name, hint=hint)


def read_execution(options: Mapping[str, Any], base: Execution) -> Execution:
    """``base`` with what the options say."""
    said: dict[str, Any] = {}
    for name in EXECUTION:
        if name in options:
            value = options[name]
            is_none = value is None and name == "timeout"
            said[name] = read_duration(value, name) if name in _DURATIONS and not is_none else value
    return check_execution(replace(base, **said)) if said else base


def read_catch_up(options: Mapping[str, Any], base: CatchUp) -> CatchUp:
    said: dict[str, Any] = {}
    if "catch_up" in options:
        said["kind"] = options["catch_up"]
    if "grace" in options:
        said["grace"] = read_duration(options["grace"], "grace")
    if "catch_up_limit" in options:
        said["limit"] = options["catch_up_limit"]
    return replace(base, **said) if said else base


def read_run_fields(options: Mapping[str, Any], execution: Execution) -> dict[str, Any]:
    """The fields of a run, or of a schedule, that ``RunOptions`` are about; ``execution`` is the base."""
    fields: dict[str, Any] = {"execution": read_execution(options, execution)}
    if "queue" in options:
        check_label(options["queue"], "queue")
        fields["queue"] = options["queue"]
    if "priority" in options:
        fields["priority"] = read_priority(options["priority"])
    return fields


def read_schedule_fields(
    options: Mapping[str, Any], execution: Execution, catch_up: CatchUp
) -> dict[str, Any]:
    """The fields of a schedule that the options say; ``execution`` and ``catch_up`` are the bases."""
    fields = read_run_fields(options, execution)
    fields["catch_up"] = read_catch_up(options, catch_up)
    for name in ("description", "overlap", "max_concurrent"):
        if name in options:
            fields[name] = options[name]
    if "spread" in options:
        fields["spread"] = read_duration(options["spread"], "spread")
    return fields
