"""The options of runs, schedules, nodes and commands, each described once.

Keyword arguments in Python, flags of the command line, settings in variables and files, and the tables in
docs/reference.md all come from these descriptions: name, kind, default, bounds and help.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeAlias, get_args

from evenbeat.core.option import Option
from evenbeat.core.records import (
    LONGEST_DESCRIPTION,
    LONGEST_SPREAD,
    MOST_CAUGHT_UP,
    MOST_CONCURRENT,
    MOST_CRASHES,
    MOST_RETRIES,
    MOST_TAGS,
    CatchUp,
    CatchUpKind,
    Execution,
    OnCrash,
    Overlap,
    ScheduleRecord,
)

Options: TypeAlias = Mapping[str, Option]
"""Descriptions by name, in the order in which they are listed."""


def _by_name(*options: Option) -> dict[str, Option]:
    return {option.name: option for option in options}


_RUNS, _MISSED = Execution(), CatchUp()
_SCHEDULES = ScheduleRecord(name="defaults", task="defaults", trigger="@daily")

EXECUTION: Options = _by_name(
    Option(
        name="retries",
        kind="count",
        default=_RUNS.retries,
        high=MOST_RETRIES,
        help="How many times a failed run is retried.",
    ),
    Option(
        name="backoff",
        kind="duration",
        default=_RUNS.backoff,
        help="The wait before the first retry; it doubles with each retry.",
    ),
    Option(
        name="max_backoff",
        kind="duration",
        default=_RUNS.max_backoff,
        help="The longest wait before a retry.",
    ),
    Option(
        name="timeout",
        kind="duration",
        default=_RUNS.timeout,
        low=1,
        is_optional=True,
        help="An attempt that takes longer is asked to stop, and fails unless it returns all the same.",
    ),
    Option(
        name="on_crash",
        kind="choice",
        default=_RUNS.on_crash,
        choices=get_args(OnCrash),
        help="Whether a run is run again or fails when its worker dies.",
    ),
    Option(
        name="max_crashes",
        kind="count",
        default=_RUNS.max_crashes,
        high=MOST_CRASHES,
        help="How many times at most a run is run again after its worker died.",
    ),
    Option(
        name="expires",
        kind="duration",
        default=_RUNS.expires,
        low=1,
        is_optional=True,
        help="A run that waits longer than this after its planned start is cancelled instead of executed. "
        "Retries count.",
    ),
)

RUN: Options = {
    **EXECUTION,
    **_by_name(
        Option(
            name="queue",
            kind="label",
            default=_SCHEDULES.queue,
            help="The queue in which a run waits for a worker.",
        ),
        Option(
            name="priority",
            kind="priority",
            default=_SCHEDULES.priority,
            help="Runs with a higher priority start first: 0 to 9, or low (2), normal (5), high (8).",
        ),
    ),
}

SCHEDULE: Options = {
    **RUN,
    **_by_name(
        Option(
            name="description",
            kind="text",
            default=_SCHEDULES.description,
            default_words="",
            high=LONGEST_DESCRIPTION,
            help="What the schedule is for.",
        ),
        Option(
            name="tags",
            kind="tags",
            default=_SCHEDULES.tags,
            default_words="none",
            high=MOST_TAGS,
            help="Words by which schedules are found: `billing`, `team:ops`.",
        ),
        Option(
            name="catch_up",
            kind="choice",
            default=_MISSED.kind,
            choices=get_args(CatchUpKind),
            help="Which missed ticks run: only the latest, which stands for all of them; all; or none.",
        ),
        Option(
            name="grace",
            kind="duration",
            default=_MISSED.grace,
            help="Only for `catch_up` skip: ticks that are at most this late still run.",
        ),
        Option(
            name="catch_up_limit",
            kind="count",
            default=_MISSED.limit,
            low=1,
            high=MOST_CAUGHT_UP,
            help="Only for `catch_up` all and skip: at most this many missed ticks run, the newest ones.",
        ),
        Option(
            name="catch_up_max_age",
            kind="duration",
            default=_MISSED.max_age,
            low=1_000,
            is_optional=True,
            help="Only for `catch_up` latest and all: ticks that are later than this do not run.",
        ),
        Option(
            name="catch_up_rate",
            kind="rate",
            default=_MISSED.rate,
            is_optional=True,
            help="Only for `catch_up` all and skip: missed ticks run no faster than this: `10/m`.",
        ),
        Option(
            name="overlap",
            kind="choice",
            default=_SCHEDULES.overlap,
            choices=get_args(Overlap),
            help="What a tick does while the last run is active.",
        ),
        Option(
            name="max_concurrent",
            kind="count",
            default=_SCHEDULES.max_concurrent,
            low=1,
            high=MOST_CONCURRENT,
            is_optional=True,
            help="How many runs of the schedule may be active at once; further ticks wait.",
        ),
        Option(
            name="spread",
            kind="duration",
            default=_SCHEDULES.spread,
            high=LONGEST_SPREAD,
            help="Ticks fire up to this much later, by an amount that depends on the schedule's name alone.",
        ),
        Option(
            name="after",
            kind="after",
            default=_SCHEDULES.after,
            default_words="none",
            is_optional=True,
            help="Schedules that must have succeeded lately before a tick fires: `load within 1h wait 30m`.",
        ),
    ),
}

NEW_SCHEDULE: Options = {
    **SCHEDULE,
    **_by_name(
        Option(
            name="paused",
            kind="flag",
            default=False,
            help="Create the schedule paused: it waits to be resumed.",
        ),
        Option(name="note", kind="text", default="", default_words="", help="Why the schedule is paused."),
        Option(
            name="template",
            kind="label",
            is_optional=True,
            help="The template from which it inherits the options that are not given, such as `workdays`.",
        ),
    ),
}

_MOST_AT_ONCE = 10_000

NODE: Options = _by_name(
    Option(
        name="thread_concurrency",
        kind="count",
        default=10,
        low=1,
        high=_MOST_AT_ONCE,
        help="How many `def` tasks run at once.",
    ),
    Option(
        name="async_concurrency",
        kind="count",
        default=100,
        low=1,
        high=_MOST_AT_ONCE,
        help="How many `async def` tasks run at once. An API that they call gets as many requests at once: "
        "lower it for an API with a limit.",
    ),
    Option(
        name="process_concurrency",
        kind="count",
        default=os.cpu_count() or 1,
        default_words="cores",
        low=1,
        high=_MOST_AT_ONCE,
        help='How many `executor="process"` tasks run at once, each in a process of its own.',
    ),
    Option(
        name="queues",
        kind="labels",
        default=(_SCHEDULES.queue,),
        help="The queues from which the node takes runs.",
    ),
    Option(
        name="lease",
        kind="duration",
        default=30_000,
        low=1_000,
        help="How long a run stays with a worker that stops heartbeating.",
    ),
    Option(
        name="poll_interval",
        kind="duration",
        default=30_000,
        low=10,
        help="How often the node looks for work without a notification.",
    ),
    Option(
        name="drain_timeout",
        kind="duration",
        default=30_000,
        help="How long running tasks may take to end when the node stops.",
    ),
    Option(
        name="retention",
        kind="duration",
        default=30 * 86_400_000,
        low=60_000,
        help="How long finished runs are kept.",
    ),
    Option(
        name="schedule_mode",
        kind="choice",
        default="durable",
        choices=("durable", "code"),
        help="Whether schedules of decorated tasks have a row in the store, or are in the code only. "
        "`durable=True` and `durable=False` of a task override it.",
    ),
    Option(
        name="timeline_period",
        kind="duration",
        default=30_000,
        low=1_000,
        high=3_600_000,
        help="How often a node plans again the schedules that are in the code only.",
    ),
    Option(
        name="timeline_lookahead",
        kind="duration",
        default=3_600_000,
        low=60_000,
        high=7 * 86_400_000,
        help="How far ahead a node plans them.",
    ),
    Option(
        name="public_url",
        kind="web_url",
        is_optional=True,
        help="The URL under which people reach the dashboard: alerts link to it.",
    ),
    Option(
        name="allow_private_webhooks",
        kind="hosts",
        default=(),
        help="Hosts to which alerts may be sent although their addresses are private: `hooks.internal`.",
    ),
)

SETTINGS: Options = {
    **_by_name(
        Option(name="app", kind="text", help="The app to run: `app.py` or `shop.jobs:app`."),
        Option(name="store", kind="url", default="sqlite:///evenbeat.db", help="The store's URL."),
        Option(
            name="tenant",
            kind="label",
            default=_SCHEDULES.tenant,
            help="The tenant whose schedules and runs are meant.",
        ),
        Option(
            name="schedules_file",
            kind="text",
            help="A TOML file that declares schedules, in tables `schedules.NAME`.",
        ),
    ),
    **NODE,
    **_by_name(
        Option(
            name="processes",
            kind="count",
            default=1,
            low=1,
            high=_MOST_AT_ONCE,
            help="How many processes `evenbeat run` supervises, each with a node.",
        ),
        Option(
            name="wait_for_store",
            kind="duration",
            default=60_000,
            help="How long `evenbeat run` waits at its start for a store that does not answer.",
        ),
        Option(
            name="health_port",
            kind="count",
            default=None,
            high=65_535,
            is_optional=True,
            help="The port on which `evenbeat run` answers `/healthz` and `/readyz`; 0 takes a free one, "
            "which it logs.",
        ),
        Option(
            name="health_host",
            kind="text",
            default="127.0.0.1",
            help="The address on which that port is open. `0.0.0.0` opens it to other machines.",
        ),
        Option(
            name="web_host",
            kind="text",
            default="127.0.0.1",
            help="The address on which `evenbeat web` listens. `0.0.0.0` is every address of the machine.",
        ),
        Option(
            name="web_port",
            kind="count",
            default=8787,
            high=65_535,
            help="The port on which `evenbeat web` listens; 0 takes a free one.",
        ),
        Option(
            name="web_hosts",
            kind="text",
            default="",
            default_words="localhost",
            help="Further names under which browsers and clients reach the API, separated by commas: "
            "`jobs.example.com`, with the port unless it is 80 or 443.",
        ),
        Option(
            name="web_proxies",
            kind="text",
            default="",
            default_words="none",
            help="Addresses or networks of proxies whose X-Forwarded-For is believed, separated by commas.",
        ),
        Option(
            name="web_metrics",
            kind="choice",
            default="token",
            choices=("token", "open"),
            help="Whether `GET /metrics` needs a token. `open` shows the figures of all tenants to everybody "
            "who reaches the port.",
        ),
        Option(
            name="metrics_schedules",
            kind="count",
            default=1_000,
            high=100_000,
            help="Up to so many schedules have metrics of their own; with more schedules, none has. 0: "
            "schedules never have metrics of their own.",
        ),
        Option(
            name="log_format",
            kind="choice",
            default="text",
            choices=("text", "json"),
            help="Log lines as text for people, or as a JSON object each.",
        ),
        Option(
            name="log_level",
            kind="choice",
            default="info",
            choices=("debug", "info", "warning", "error", "critical"),
            help="The lowest level that is logged.",
        ),
    ),
}
