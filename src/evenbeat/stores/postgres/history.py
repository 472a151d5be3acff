"""History: runs found and counted, the ledger, statistics and logs, and their purging."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

from msgspec.structs import replace

from evenbeat.core.ids import lasting_key
from evenbeat.core.instants import FIRST, LAST, Instant
from evenbeat.core.records import FINAL_STATES, LogChunk, RunRecord, RunState, Skipped, Statistics
from evenbeat.errors import RowRefused
from evenbeat.stores.base import ActiveCounts, EndedRuns, Page, Purged, QueueCounts, RunQuery
from evenbeat.stores.pages import Position, fetch_run_page
from evenbeat.stores.postgres import past_statements as sql
from evenbeat.stores.postgres.encoding import is_kept, json_list, json_text, marked, unmarked, unmarked_at
from evenbeat.stores.postgres.runs import FREE_TEXT
from evenbeat.stores.postgres.session import Session, Transaction
from evenbeat.stores.queue_counts import added_up
from evenbeat.stores.refusals import MOST_UNDELETED, delete_in_parts
from evenbeat.stores.rows import LOG, Row, log_row, read_log, read_skipped, read_statistics, readable_runs
from evenbeat.stores.run_search import ORDER, columns, conditions, position_after

_QUEUE = QueueCounts.__struct_fields__
_TEXT, _LAST_ERROR = LOG.index("text"), -1

# How many of the newest runs a search looks at first.
_NEWEST = 1_000
_UNSUCCESSFUL = frozenset(("failed", "cancelled"))

_Part: TypeAlias = tuple[list[str], list[object]]
"""Conditions, and their values."""


def find(session: Session, query: RunQuery) -> Page[RunRecord]:
    if not is_kept(query.tenant, query.schedule, query.task, query.queue):
        return Page((), None)

    def fetch(after: Position | None, limit: int) -> tuple[list[RunRecord], Position | None]:
        rows: list[Row] = []
        if _may_be_frequent(query):
            text, values = newest_statement(query, after)
            rows = session.rows("select newest runs", f"{text} LIMIT %s", [*values, limit])
        if len(rows) < limit:
            text, values = search_statement(query, after, limit)
            rows = session.rows("select runs", f"{text} LIMIT %s", [*values, limit])
        return readable_runs(unmarked_at(rows, FREE_TEXT)), position_after(rows, limit)

    return fetch_run_page(query, fetch)


def _may_be_frequent(query: RunQuery) -> bool:
    """Whether a page may be full of the newest runs, and ``search_statement`` may read many more of them."""
    return _needs_parts(query) or (query.since is not None and not _has_index(query))


def _has_index(query: RunQuery) -> bool:
    """Whether an index finds the runs, however rare they are. The event stream asks for runs that have just
    ended, once a second, and usually finds none."""
    return (
        query.ids is not None
        or query.schedule is not None
        or query.finished_since is not None
        or query.created_since is not None
        or query.retrying
        or query.states == ("running",)
    )


def newest_statement(query: RunQuery, after: Position | None = None) -> tuple[str, list[object]]:
    """Return the text and the values of a search among the newest runs alone. If it finds a page of runs,
    no other runs belong on that page.

    Most searches end here: they read as many runs as the page needs. The others have read 1,000 runs in vain.
    """
    inner, first = conditions(RunQuery(), after, "%s", None)
    if query.until is not None:
        inner.append("run.created_at <= %s")
        first.append(query.created_by)
    where, values = _conditions(query, None)
    newest = f"SELECT {columns(query.without)} FROM evenbeat.runs AS run"
    if inner:
        newest += f" WHERE {' AND '.join(inner)}"
    source = f"SELECT {columns()} FROM ({newest} {ORDER} LIMIT {_NEWEST}) AS run"
    return f"{source} WHERE {' AND '.join(where)} {ORDER}", [*first, *values]


def _conditions(query: RunQuery, after: Position | None) -> _Part:
    where, values = conditions(query, after, "%s", marked(query.worker))
    if query.states is not None:
        # With a subquery, the planner does not know the states, and takes the index of ends: that of
        # unsuccessful runs would be read from end to end, every second, to find none that has just ended.
        wanted = "ARRAY(SELECT unnest(CAST(%s AS text[])))"
        wanted = "CAST(%s AS text[])" if query.finished_since is None else wanted
        where.append(f"run.state = ANY ({wanted})")
        values.append(list(query.states))
    return where, values


def search_statement(
    query: RunQuery, after: Position | None = None, limit: int = 1
) -> tuple[str, list[object]]:
    """Return the text and the values of a search for ``limit`` runs.

    Where few runs can match, they are selected first and then sorted: the planner does not know how few
    runs are running, and would read all of the history in the order of the result to find them.
    """
    if _is_unsuccessful(query) and _needs_parts(query):
        return _unsuccessful(query, after)
    where, values = _conditions(query, after)
    if _needs_parts(query):
        return _in_parts(query, where, values, limit)
    few = _few(query)
    text: list[str] = []
    given: list[object] = []
    for condition, value in few or [([], [])]:
        every = " AND ".join([*condition, *where])
        source = f"SELECT {columns(query.without)} FROM evenbeat.runs AS run"
        text.append(f"{source} WHERE {every}" if every else source)
        given += [*value, *values]
    source = " UNION ALL ".join(text)
    if few:
        # OFFSET 0: the subquery is planned by itself. Unlike a MATERIALIZED one it does not store its rows:
        # the sort keeps as many as the limit.
        source = f"SELECT {columns()} FROM ({source} OFFSET 0) AS run"
    return f"{source} {ORDER}", given


def _few(query: RunQuery) -> list[_Part]:
    """Return conditions, with their values, for which an index contains few runs, however long the history
    is; none if there is no such index. Every matching run fulfils one of them."""
    if query.ids is not None:
        ids = json_list(run for run in dict.fromkeys(query.ids) if is_kept(run))
        return [(["run.id = ANY (ARRAY(SELECT json_array_elements_text(CAST(%s AS json))))"], [ids])]
    if query.finished_since is not None:
        return [_ended_since(query.finished_since)]
    # Written like the condition of a partial index: only then the planner uses that index.
    running: _Part = (["run.state = 'running'"], [])
    queued: _Part = (["run.state = 'queued'"], [])
    if query.states == ("running",):
        return [running]
    if query.is_about_active_runs_of_a_schedule:
        return [(["run.schedule IS NOT NULL AND run.state IN ('queued', 'running')"], [])]
    if query.retrying or query.is_about_queued_runs_of_a_queue:
        return [queued]
    # The index of a schedule's runs has the order of the page, and holds no runs of other schedules.
    if query.since is not None and (query.tenant is None or query.schedule is None):
        over = _ended_since(query.since)
        parts = ((FINAL_STATES, over), (("running",), running), (("queued",), queued))
        return [source for states, source in parts if query.asks_for(states)]
    return []


def _needs_parts(query: RunQuery) -> bool:
    """Whether a search reads ended runs and active ones from different indexes: those of ended runs find a
    tenant, a task or a state that few of millions of runs have."""
    if _has_index(query):
        return False
    is_of_one = query.tenant is not None or query.task is not None
    return _is_unsuccessful(query) or (is_of_one and query.since is None)


def _is_unsuccessful(query: RunQuery) -> bool:
    return bool(query.states) and _UNSUCCESSFUL.issuperset(query.states or ())


def _unsuccessful(query: RunQuery, after: Position | None) -> tuple[str, list[object]]:
    """Return a search for failed or cancelled runs, in the order of their own index.

    Each condition is written once: the planner multiplies the shares of conditions, and would sort all of the
    runs if it expected few.
    """
    where, values = conditions(replace(query, since=None), after, "%s", marked(query.worker))
    states = sorted(set(query.states or ()))
    where.append("run.state IN ('failed', 'cancelled')" if len(states) > 1 else f"run.state = '{states[0]}'")
    if query.since is not None:
        # All of them have this instant, whether they have started or not.
        where.append("run.finished_at >= %s")
        values.append(query.since)
    source = f"SELECT {columns(query.without)} FROM evenbeat.runs AS run"
    return f"{source} WHERE {' AND '.join(where)} {ORDER}", values


def _in_parts(
    query: RunQuery, where: list[str], values: list[object], limit: int
) -> tuple[str, list[object]]:
    source = f"SELECT {columns(query.without)} FROM evenbeat.runs AS run"
    parts: list[str] = []
    given: list[object] = []
    if query.asks_for(FINAL_STATES):
        # Written like the condition of the partial indexes. With a limit of its own, so that the planner
        # chooses an index that has the order of the page.
        every = " AND ".join(["run.state NOT IN ('queued', 'running')", *where])
        parts.append(f"({source} WHERE {every} {ORDER} LIMIT %s)")
        given += [*values, limit]
    for state in ("queued", "running"):
        if query.asks_for((state,)):
            every = " AND ".join([f"run.state = '{state}'", *where])
            parts.append(f"({source} WHERE {every} OFFSET 0)")
            given += values
    return f"SELECT {columns()} FROM ({' UNION ALL '.join(parts)}) AS run {ORDER}", given


def _ended_since(instant: Instant) -> _Part:
    return [sql.ENDED_SINCE.format("%s")], [instant]


def count(session: Session, tenant: str | None) -> dict[RunState, int]:
    if not is_kept(tenant):
        return {}
    return dict(session.rows("count runs", sql.COUNT_RUNS, {"tenant": tenant}))


def count_queues(session: Session, now: Instant, since: Instant) -> list[QueueCounts]:
    rows = session.rows("count queues", sql.COUNT_QUEUES, {"now": now, "since": since})
    return added_up(QueueCounts(**dict(zip(_QUEUE, row, strict=True))) for row in rows)


def count_active(session: Session, now: Instant) -> list[ActiveCounts]:
    rows = session.rows("count active", sql.COUNT_ACTIVE, {"now": now})
    return [ActiveCounts(**dict(zip(ActiveCounts.__struct_fields__, row, strict=True))) for row in rows]


def skipped(
    session: Session, tenant: str, schedule: str, limit: int, since: Instant | None, until: Instant | None
) -> list[Skipped]:
    if not is_kept(tenant, schedule):
        return []
    statement, values = sql.SELECT_SKIPPED, {"tenant": tenant, "schedule": schedule, "limit": limit}
    if since is not None or until is not None:
        statement = sql.SELECT_SKIPPED_WITHIN
        values |= {"since": FIRST if since is None else since, "until": LAST + 1 if until is None else until}
    return [read_skipped(row) for row in session.rows("select skipped", statement, values)]


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
        made = chunk.run_created_at
        key = chunk.run if made is None else lasting_key(chunk.run, made)
        fields = dict(zip(LOG, log_row(chunk), strict=True))
        first.setdefault((key, chunk.attempt, chunk.seq), {**fields, "run": key, "text": marked(chunk.text)})
    if first:
        values = {"rows": json_text(list(first.values())), "runs": json_list({chunk.run for chunk in chunks})}
        transaction.commit("insert logs", [(sql.INSERT_LOGS, values)])


def log(session: Session, run: str) -> list[LogChunk]:
    if not is_kept(run):
        return []
    rows = session.rows("select log", sql.SELECT_LOG, {"run": run})
    return [replace(read_log(row), run=run) for row in unmarked_at(rows, (_TEXT,))]


def purge(
    transaction: Transaction, finished_before: Instant, limit: int, clock: int | None, runs: EndedRuns
) -> Purged:
    """Delete old rows, one kind after the other, up to ``limit`` in total."""
    since = FIRST if runs.since is None else runs.since
    values = {"since": since, "before": finished_before, "clock": clock}
    gone, last = 0, None
    for text, more in _over_statements(runs):
        if gone < limit:
            row = transaction.rows("delete runs", text, {**values, **more, "limit": limit - gone})[0]
            gone, last = gone + row[0], row[1]
    all_runs = gone < limit
    for name, text in (("delete skipped", sql.DELETE_SKIPPED), ("delete records", sql.DELETE_EXPIRED)):
        if runs.others and gone < limit:
            ((number,),) = transaction.rows(name, text, {**values, "limit": limit - gone})
            gone += number
    transaction.commit("commit", [])
    if gone < limit:
        return Purged(gone, finished_before)
    # The runs of a tenant are found state by state, so the next purge begins at the first one again.
    return Purged(gone, FIRST if all_runs or runs.tenant is not None or last is None else last)


def purge_in_parts(
    transaction: Transaction, finished_before: Instant, limit: int, clock: int | None, runs: EndedRuns
) -> Purged:
    """Purge like ``purge``, after the database has refused to delete a row: without such rows."""
    since = FIRST if runs.since is None else runs.since
    values = {"since": since, "before": finished_before, "clock": clock}
    kinds = [
        ("delete runs", sql.SELECT_OVER[text], more, sql.DELETE_RUNS) for text, more in _over_statements(runs)
    ]
    if runs.others:
        kinds.append(("delete skipped", sql.SELECT_OLD_SKIPPED, {}, sql.DELETE_SKIPPED_ROWS))
        kinds.append(("delete records", sql.SELECT_EXPIRED, {}, sql.DELETE_RECORD_ROWS))
    gone = 0
    for name, select, more, text in kinds:
        if gone < limit:
            most = limit - gone + MOST_UNDELETED
            found = [
                row[0] for row in transaction.rows("select old", select, {**values, **more, "limit": most})
            ]
            gone += delete_in_parts(partial(_delete_alone, transaction, name, text), found, limit - gone)
    transaction.commit("commit", [])
    # What is left now may be what can't be deleted: the next round tries it again.
    return Purged(gone, finished_before if gone < limit else FIRST)


def _delete_alone(transaction: Transaction, name: str, text: str, rows: Sequence[str]) -> None:
    """Delete rows; if that is refused, the transaction stays as it was before."""
    try:
        transaction.together(name, [("SAVEPOINT part", ()), (text, {"places": list(rows)})])
    except RowRefused:
        transaction.together(name, [("ROLLBACK TO SAVEPOINT part", ())])
        raise


def _over_statements(runs: EndedRuns) -> list[tuple[str, dict[str, Any]]]:
    if not runs.states:
        return []
    held: dict[str, Any] = {}
    if runs.held:
        held = {"marks": [each.mark for each in runs.held], "edges": [each.before for each in runs.held]}
    if runs.tenant is not None:
        if not is_kept(runs.tenant):
            return []
        text = sql.DELETE_OVER_OF_TENANT_UNHELD if held else sql.DELETE_OVER_OF_TENANT
        return [(text, {"tenant": runs.tenant, "state": state, **held}) for state in runs.states]
    if runs.is_every_run:
        return [(sql.DELETE_OVER_UNHELD if held else sql.DELETE_OVER, held)]
    spared = [tenant for tenant in runs.spared if is_kept(tenant)]
    text = sql.DELETE_OVER_EXCEPT_UNHELD if held else sql.DELETE_OVER_EXCEPT
    return [(text, {"states": list(runs.states), "spared": spared, **held})]


def ended_at(
    session: Session, position: int, tenant: str | None, states: Sequence[RunState]
) -> Instant | None:
    if position < 1 or not states or (tenant is not None and not is_kept(tenant)):
        return None
    values = {"position": position, "tenant": tenant, "states": list(states)}
    text = sql.SELECT_ENDS if tenant is None else sql.SELECT_ENDS_OF_TENANT
    rows = session.rows("select ends", text, values)
    return rows[0][0] if rows else None
