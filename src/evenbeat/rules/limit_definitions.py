"""Limits as users write them: checked, read into records, and said in words. Pure."""

from __future__ import annotations

import re

from evenbeat.core.checks import check_label, check_task, check_whole
from evenbeat.core.durations import UNITS, write_duration
from evenbeat.core.rates import MOST_STARTS, Rate, read_rate, write_rate
from evenbeat.core.records import MOST_CONCURRENT
from evenbeat.errors import InvalidValue, shown
from evenbeat.rules.limits import Limit

MOST_LIMITS = 1_000
"""Every claim reads all limits."""
LONGEST_FILLING = 366 * UNITS["d"]
"""How long an empty bucket may take to be full: until then the store keeps its level."""
KEYS = "1 to 128 letters, digits or _"
KEY_PATTERN = "^[A-Za-z0-9_]{1,128}$"

_KEY = re.compile(KEY_PATTERN)
_PERIODS = {"s": "a second", "m": "a minute", "h": "an hour", "d": "a day"}


def read_names(task: object = None, queue: object = None, tenant: object = None, key: object = None) -> Limit:
    """Return a limit without numbers: its name is the identity that these give."""
    if task is not None:
        check_task(task)
    if queue is not None:
        check_label(queue, "queue")
    if tenant is not None:
        check_label(tenant, "tenant")
    if key is not None and not (isinstance(key, str) and _KEY.fullmatch(key)):
        hint = "name a field of the payload"
        raise InvalidValue(f"key {shown(key)} is not {KEYS}", field="key", value=key, hint=hint)
    names = Limit(task=task, queue=queue, tenant=tenant, key=key)  # type: ignore[arg-type]  # checked
    if not names.name:
        raise InvalidValue(
            "task, queue, tenant and key are all missing",
            field="task",
            value=None,
            hint="give at least one of them: they say which runs to limit",
        )
    return names


def read_limit(names: Limit, concurrency: object = None, rate: object = None, burst: object = None) -> Limit:
    """Return the limit with these names and numbers."""
    if concurrency is None and rate is None:
        raise InvalidValue(
            "concurrency and rate are both missing",
            field="concurrency",
            value=None,
            hint='give concurrency=5, rate="100/m" or both; to end a limit, remove it',
        )
    if concurrency is not None:
        check_whole("concurrency", concurrency, 1, MOST_CONCURRENT)
    read = None if rate is None else read_rate(rate)
    if burst is not None:
        if read is None:
            raise InvalidValue(
                f"burst {shown(burst)} is given without a rate",
                field="burst",
                value=burst,
                hint='give rate="100/m", too; to bound the running ones, give concurrency=5',
            )
        check_whole("burst", burst, 1, MOST_STARTS)
    limit = Limit(
        task=names.task,
        queue=names.queue,
        tenant=names.tenant,
        key=names.key,
        concurrency=concurrency,  # type: ignore[arg-type]  # checked
        rate=read,
        burst=burst,  # type: ignore[arg-type]  # checked
    )
    if read is not None and limit.size * read.period > LONGEST_FILLING * read.count:
        raise InvalidValue(
            f"burst {limit.size:,} at the rate {write_rate(read)} takes over a year to be available again",
            field="burst",
            value=burst,
            hint="give a smaller burst",
        )
    return limit


def limit_words(limit: Limit) -> str:
    """Return a limit in plain English: ``at most 5 runs of charge at once, and 100 a minute``."""
    runs = "run" if (limit.concurrency or (limit.rate and limit.rate.count)) == 1 else "runs"
    for word, name in ((" of", limit.task), (" in queue", limit.queue), (" of tenant", limit.tenant)):
        runs += "" if name is None else f"{word} {name}"
    each = "" if limit.key is None else f", for each {limit.key}"
    if limit.concurrency is None:
        assert limit.rate is not None
        return f"at most {limit.rate.count:,} {runs} {_period_words(limit.rate)}{each}"
    rate = "" if limit.rate is None else f", and {limit.rate.count:,} {_period_words(limit.rate)}"
    return f"at most {limit.concurrency:,} {runs} at once{rate}{each}"


def _period_words(rate: Rate) -> str:
    period = write_duration(rate.period)
    return _PERIODS.get(period.removeprefix("1"), f"in {period}")
