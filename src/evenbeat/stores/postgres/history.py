"""What is kept about the past: runs found and counted, the ledger, statistics, logs, and their end."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import (
    ACTIVE_STATES,
    FINAL_STATES,
    LogChunk,
    RunRecord,
    RunState,
    Skipped,
    Statistics,
)
from evenbeat.stores.base import Page, QueueCounts, RunQuery
from evenbeat.stores.pages import read_run_cursor, run_cursor
from evenbeat.stores.postgres import past_statements as sql
from evenbeat.stores.postgres.encoding import is_kept, json_list, json_text, marked, unmarked, unmarked_at
from evenbeat.stores.postgres.runs import FREE
from evenbeat.stores.postgres.session import Session, Transaction
from evenbeat.stores.queue_counts import added_up
from evenbeat.stores.rows import LOG, RUN, log_row, read_log, read_skipped, read_statistics, readable_runs

_ID, _CREATED_AT = RUN.index("id"), RUN.index("created_at")
_QUEUE = QueueCounts.__struct_fields__
_COLUMNS = ", ".join(f"run.{name}" for name in RUN)
_TEXT, _LAST_ERROR = LOG.index("text"), -1


def find(session: Session, query: RunQuery) -> Page[RunRecord]:
    after = read_run_cursor(query.cursor)
    if query.states == () or not is_kept(query.tenant, query.schedule, query.task, query.queue):
        return Page((), None)
    found: list[RunRecord] = []
    while True:
        # One more than asked for says whether there is more.
        missing = query.limit + 1 - len(found)
        text, values = question(query, after)
        rows = session.rows("select runs", f"{text} LIMIT %s", [*values, missing])
        # Of attempts before the present one the database knows nothing.
        found += filter(query.matches, readable_runs(unmarked_at(rows, FREE)))
        if len(found) > query.limit or len(rows) < missing:
            break
        # Rows that can't be read were left out: others may stand behind them.
        after = (rows[-1][_CREATED_AT], rows[-1][_ID])
    items = tuple(found[: query.limit])
    return Page(items, run_cursor(items[-1]) if items and len(found) > query.limit else None)


def question(query: RunQuery, after: tuple[Instant, str] | None = None) -> tuple[str, list[object]]:
    """The text and the values of a search.

    Where few runs can be meant, they are gathered first, then sorted: the planner, which knows nothing of how
    many are running, would walk through all of history for them, in the order that is asked for.
    """
    where, values = _conditions(query, after)
    few = _few(query)
    text: list[str] = []
    given: list[object] = []
    for condition, value in few or [([], [])]:
        conditions = " AND ".join([*condition, *where])
        source = f"SELECT {_COLUMNS} FROM evenbeat.runs AS run"
        text.append(f"{source} WHERE {conditions}" if conditions else source)
        given += [*value, *values]
    source = " UNION ALL ".join(text)
    if few:
        # OFFSET 0: planned by itself. Unlike a MATERIALIZED query its rows are not kept: of many, the sort
        # keeps as many as the limit.
        source = f"SELECT {_COLUMNS} FROM ({source} OFFSET 0) AS run"
    return f"{source} ORDER BY run.created_at DESC, run.id", given


def _few(query: RunQuery) -> list[tuple[list[str], list[object]]]:
    """Conditions, with their values, for which an index holds few runs, however long the history is; none if
    there is no such index. Together they hold all that is asked for."""
    if query.ids is not None:
        ids = json_list(run for run in dict.fromkeys(query.ids) if is_kept(run))
        return [(["run.id = ANY (ARRAY(SELECT json_array_elements_text(CAST(%s AS json))))"], [ids])]
    # In these words: only then an index is known to hold all that is asked for.
    running: tuple[list[str], list[object]] = (["run.state = 'running'"], [])
    queued: tuple[list[str], list[object]] = (["run.state = 'queued'"], [])
    is_active = query.states is not None and ACTIVE_STATES.issuperset(query.states)
    if query.states == ("running",):
        return [running]
    if is_active and query.tenant is not None and query.schedule is not None:
        return [(["run.schedule IS NOT NULL AND run.state IN ('queued', 'running')"], [])]
    if query.retrying:
        return [queued]
    if query.since is not None:
        over: tuple[list[str], list[object]] = ([sql.ENDED_SINCE.format("%s")], [query.since])
        parts = ((FINAL_STATES, over), (("running",), running), (("queued",), queued))
        return [source for states, source in parts if query.asks_for(states)]
    return []


def _conditions(query: RunQuery, after: tuple[Instant, str] | None) -> tuple[list[str], list[object]]:
    where: list[str] = []
    values: list[object] = []
    equal = {
        "tenant": query.tenant,
        "schedule": query.schedule,
        "task": query.task,
        "queue": query.queue,
        "worker": marked(query.worker),
        "cancel_requested": query.cancel_requested,
    }
    for name, value in equal.items():
        if value is not None:
            where.append(f"run.{name} = %s")
            values.append(value)
    if query.states is not None:
        where.append("run.state = ANY (CAST(%s AS text[]))")
        values.append(list(query.states))
    if query.retrying:
        where.append("run.state = 'queued' AND run.failures > 0")
    if query.since is not None:
        where.append("coalesce(run.started_at, run.finished_at) IS NOT NULL")
        where.append("(run.finished_at IS NULL OR run.finished_at >= %s)")
        values.append(query.since)
    if query.until is not None:
        # An attempt before the present one may have begun in time.
        where.append("(coalesce(run.started_at, run.finished_at) < %s OR run.attempt > 1)")
        where.append("run.created_at <= %s")
        values += [query.until, query.created_by]
    if after is not None:
        where.append("run.created_at <= %s AND (run.created_at < %s OR run.id > %s)")
        values += [after[0], after[0], after[1]]
    return where, values


def count(session: Session, tenant: str | None) -> dict[RunState, int]:
    if not is_kept(tenant):
        return {}
    return dict(session.rows("count runs", sql.COUNT_RUNS, {"tenant": tenant}))


def count_queues(session: Session, now: Instant, since: Instant) -> list[QueueCounts]:
    rows = session.rows("count queues", sql.COUNT_QUEUES, {"now": now, "since": since})
    return added_up(QueueCounts(**dict(zip(_QUEUE, row, strict=True))) for row in rows)


def skipped(session: Session, tenant: str, schedule: str, limit: int) -> list[Skipped]:
    if not is_kept(tenant, schedule):
        return []
    values = {"tenant": tenant, "schedule": schedule, "limit": limit}
    return [read_skipped(row) for row in session.rows("select skipped", sql.SELECT_SKIPPED, values)]


def statistics(session: Session, keys: Sequence[tuple[str, str]]) -> list[Statistics]:
    asked = [key for key in dict.fromkeys(keys) if is_kept(*key)]
    wanted = json_text([{"tenant": tenant, "schedule": name} for tenant, name in asked])
    rows = session.rows("select statistics", sql.SELECT_STATISTICS, {"rows": wanted})
    found = {(known.tenant, known.schedule): known for known in map(read_statistics, rows)}
    return [_read(found.get(key)) or Statistics(tenant=key[0], schedule=key[1]) for key in keys]


def _read(known: Statistics | None) -> Statistics | None:
    return None if known is None else replace(known, last_error=unmarked(known.last_error))


def append_log(transaction: Transaction, chunks: Sequence[LogChunk]) -> None:
    first: dict[tuple[str, int, int], dict[str, object]] = {}
    for chunk in chunks:
        fields = dict(zip(LOG, log_row(chunk), strict=True))
        first.setdefault((chunk.run, chunk.attempt, chunk.seq), {**fields, "text": marked(chunk.text)})
    if first:
        values = {"rows": json_text(list(first.values())), "runs": json_list({chunk.run for chunk in chunks})}
        transaction.commit("insert logs", [(sql.INSERT_LOGS, values)])


def log(session: Session, run: str) -> list[LogChunk]:
    if not is_kept(run):
        return []
    rows = session.rows("select log", sql.SELECT_LOG, {"run": run})
    return [read_log(row) for row in unmarked_at(rows, (_TEXT,))]


def purge(transaction: Transaction, finished_before: Instant, limit: int, clock: int | None) -> int:
    """Rows of one kind after the other: each statement takes what the one before has left of the limit."""
    gone = 0
    for name, text in (
        ("delete runs", sql.DELETE_OVER),
        ("delete skipped", sql.DELETE_SKIPPED),
        ("delete records", sql.DELETE_EXPIRED),
    ):
        if gone < limit:
            values = {"before": finished_before, "limit": limit - gone, "clock": clock}
            ((number,),) = transaction.rows(name, text, values)
            gone += number
    transaction.commit("commit", [])
    return gone
