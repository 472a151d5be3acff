"""A search for runs in SQL: the part that is the same for PostgreSQL and SQLite."""

from __future__ import annotations

from collections.abc import Sequence

from evenbeat.stores.base import LEFT_OUT, LargeField, RunQuery
from evenbeat.stores.pages import Position
from evenbeat.stores.rows import RUN, Row

ORDER = "ORDER BY run.created_at DESC, run.id"

_ID, _CREATED_AT = RUN.index("id"), RUN.index("created_at")


def columns(without: Sequence[LargeField] = ()) -> str:
    """Return the columns of a run, with constants in the place of those to leave out."""
    constants: dict[str, str] = {}
    for name in without:
        value = LEFT_OUT[name]
        constants[name] = f"CAST({'NULL' if value is None else repr(value)} AS text) AS {name}"
    return ", ".join(constants.get(name) or f"run.{name}" for name in RUN)


def position_after(rows: list[Row], limit: int) -> Position | None:
    """Return the position of the last row; None if there are fewer than ``limit``, so that none follow."""
    return None if len(rows) < limit else (rows[-1][_CREATED_AT], rows[-1][_ID])


def conditions(
    query: RunQuery, after: Position | None, placeholder: str, worker: str | None
) -> tuple[list[str], list[object]]:
    """Return the conditions of a query, apart from that on states, with their values.

    ``worker`` is the query's, as the database holds it.
    """
    where: list[str] = []
    values: list[object] = []
    equal = {
        "tenant": query.tenant,
        "schedule": query.schedule,
        "task": query.task,
        "queue": query.queue,
        "worker": worker,
        "cancel_requested": query.cancel_requested,
    }
    for name, value in equal.items():
        if value is not None:
            where.append(f"run.{name} = {placeholder}")
            values.append(value)
    if query.retrying:
        where.append("run.state = 'queued' AND run.failures > 0")
    if query.since is not None:
        where.append("coalesce(run.started_at, run.finished_at) IS NOT NULL")
        where.append(f"(run.finished_at IS NULL OR run.finished_at >= {placeholder})")
        values.append(query.since)
    if query.created_since is not None:
        where.append(f"run.created_at >= {placeholder}")
        values.append(query.created_since)
    if query.finished_since is not None:
        where.append(f"run.finished_at >= {placeholder}")
        values.append(query.finished_since)
    if query.until is not None:
        # An earlier attempt may have begun in time.
        where.append(f"(coalesce(run.started_at, run.finished_at) < {placeholder} OR run.attempt > 1)")
        where.append(f"run.created_at <= {placeholder}")
        values += [query.until, query.created_by]
    if after is not None:
        created_at, run_id = after
        where.append(
            f"run.created_at <= {placeholder} AND (run.created_at < {placeholder} OR run.id > {placeholder})"
        )
        values += [created_at, created_at, run_id]
    return where, values
