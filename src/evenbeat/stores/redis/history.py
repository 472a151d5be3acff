"""History: runs found and counted, statistics and logs, and their purging."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from evenbeat.core.instants import FIRST, Instant
from evenbeat.core.records import ACTIVE_STATES, FINAL_STATES, LogChunk, RunRecord, RunState, Statistics
from evenbeat.rules.limits import read_cohort
from evenbeat.stores.base import ActiveCounts, EndedRuns, Page, Purged, QueueCounts, RunQuery
from evenbeat.stores.batching import batches
from evenbeat.stores.pages import read_run_cursor, run_page
from evenbeat.stores.queue_counts import added_up
from evenbeat.stores.redis.encoding import instant_text, optional_instant, path_of
from evenbeat.stores.redis.rows import RUN, readable_runs
from evenbeat.stores.redis.session import Session

# How many runs one script reads or deletes: at most 2 ms.
READ_LIMIT = 500
# How many runs a purge that spares some looks at before it returns.
_MOST_LOOKED = 20_000
_RUNNING = frozenset(("running",))
_Group: TypeAlias = tuple[str, str, int, str, str | None]


def find(session: Session, query: RunQuery) -> Page[RunRecord]:
    after = read_run_cursor(query.cursor)
    found = _from_few(session, query, after)
    if found is None:
        found = _from_several(session, query, after)
    if found is None:
        found = _from_index(session, query, after)
    return run_page(found, query.limit)


def _from_few(session: Session, query: RunQuery, after: tuple[Instant, str] | None) -> list[RunRecord] | None:
    """Find runs in an index that contains few runs, however long the history is; None if there is no such
    index."""
    parts: list[list[object]]
    if query.ids is not None:
        ids = list(dict.fromkeys(query.ids))
        parts = [[ids[start : start + READ_LIMIT], False, False] for start in range(0, len(ids), READ_LIMIT)]
    elif query.states is not None and not query.states:
        return []
    elif query.states is not None and _RUNNING.issuperset(query.states) and query.worker is not None:
        parts = [[False, False, query.worker]]
    elif query.states is not None and query.tenant is not None and query.schedule is not None:
        if not ACTIVE_STATES.issuperset(query.states):
            return None
        parts = [[False, f"active:{path_of(query.tenant, query.schedule)}", False]]
    elif query.states is not None and _RUNNING.issuperset(query.states):
        parts = [[False, "leases", False]]
    else:
        return None
    runs: list[RunRecord] = []
    for wanted in parts:
        (rows,) = session.run("get_runs", [*wanted, _fields(query)])
        runs += [run for run in readable_runs(rows) if query.matches(run)]
    runs.sort(key=_order)
    if after is not None:
        runs = [run for run in runs if _order(run) > (-after[0], after[1])]
    return runs


def _from_several(
    session: Session, query: RunQuery, after: tuple[Instant, str] | None
) -> list[RunRecord] | None:
    """Find runs in the indexes of queued, running and lately ended ones; None if these do not contain all
    matches."""
    since = [edge for edge in (query.since, query.finished_since) if edge is not None]
    if not since and not query.retrying:
        return None
    asked = _equal(query)
    indexes: list[tuple[str, str]] = []
    may_be_active = query.finished_since is None
    if may_be_active and query.asks_for(("queued",)):
        indexes += [(index, "-inf") for _, index in _ready(session)]
    if may_be_active and not query.retrying and query.asks_for(("running",)):
        indexes.append(("leases", "-inf"))
    if not query.retrying and query.asks_for(FINAL_STATES):
        indexes.append(("over", str(max(since))))
    chosen: list[tuple[int, str]] = []
    for index, first in indexes:
        for run_id, _, values in _walk(session, index, first, ("created_at", "started_at", *asked)):
            created_at, started_at, *rest = values
            can_match = query.retrying or started_at or index == "over"
            if can_match and rest == list(asked.values()):
                chosen.append((-(optional_instant(created_at) or 0), run_id))
    chosen.sort()
    if after is not None:
        chosen = [position for position in chosen if position > (-after[0], after[1])]
    if query.created_by is not None:
        chosen = [position for position in chosen if -position[0] <= query.created_by]
    runs: list[RunRecord] = []
    for start in range(0, len(chosen), READ_LIMIT):
        ids = [run_id for _, run_id in chosen[start : start + READ_LIMIT]]
        (rows,) = session.run("get_runs", [ids, False, False, _fields(query)])
        runs += filter(query.matches, readable_runs(rows))
        if len(runs) > query.limit:
            break
    return runs


def _fields(query: RunQuery) -> list[str] | bool:
    """Return the fields to read of each run; False for all."""
    return [name for name in RUN if name not in query.without] if query.without else False


def _ready(session: Session) -> list[tuple[str, str]]:
    """Return (queue, index) of each index of queued runs."""
    (found,) = session.run("ready_runs", [])
    return [(queue, index) for queue, index in found]


def _walk(
    session: Session, index: str, first: str, fields: Sequence[str]
) -> Iterator[tuple[str, Instant, list[str | None]]]:
    """Yield (id, score, fields) of the runs of an index, from a score on, several at a time."""
    position: Sequence[object] | None = (first, 0)
    while position is not None:
        position, rows = session.run("walk_runs", [index, *position, READ_LIMIT, fields])
        for run_id, score, values in rows:
            # Empty if the run's key contains another type.
            yield run_id, int(float(score)), values or [None] * len(fields)


def _equal(query: RunQuery) -> dict[str, str]:
    """Return the values that fields of a run's hash must have."""
    asked = {
        "tenant": query.tenant,
        "schedule": query.schedule,
        "task": query.task,
        "queue": query.queue,
        "worker": query.worker,
    }
    return {name: value for name, value in asked.items() if value is not None}


def _from_index(session: Session, query: RunQuery, after: tuple[Instant, str] | None) -> list[RunRecord]:
    index = "newest"
    if query.tenant is not None:
        index = f"newest:tenant:{query.tenant}"
        if query.schedule is not None:
            index = f"newest:schedule:{path_of(query.tenant, query.schedule)}"
    equal = _equal(query)
    if query.cancel_requested is not None:
        equal["cancel_requested"] = str(query.cancel_requested).lower()
    created_by = False if query.created_by is None else query.created_by
    states = False if query.states is None else query.states
    runs: list[RunRecord] = []
    position: Sequence[object] | bool = False if after is None else after
    while True:
        # One more than the page holds says whether there is more.
        missing = max(1, min(query.limit + 1 - len(runs), READ_LIMIT))
        last, rows = session.run(
            "find_runs", [index, position, READ_LIMIT, missing, equal, states, created_by, _fields(query)]
        )
        some = [run for run in readable_runs(rows) if query.matches(run)]
        if after is not None:
            # If the run of the cursor was purged, runs before it with the same time are found again.
            some = [run for run in some if _order(run) > (-after[0], after[1])]
        runs += some
        if len(runs) > query.limit or last is None:
            return runs
        if query.created_since is not None and last[0] < query.created_since:
            return runs
        position = last


def _order(run: RunRecord) -> tuple[int, str]:
    return (-run.created_at, run.id)


def count(session: Session, tenant: str | None) -> dict[RunState, int]:
    flat: dict[str, str] = session.execute("count runs", "HGETALL", f"{session.location.base}counts")
    counts: dict[RunState, int] = {}
    for field, number in flat.items():
        owner, _, state = field.partition(" ")
        if (tenant is None or owner == tenant) and int(number):
            known: RunState = state  # type: ignore[assignment]  # as the scripts wrote it
            counts[known] = counts.get(known, 0) + int(number)
    return counts


def count_queues(session: Session, now: Instant, since: Instant) -> list[QueueCounts]:
    """Count the runs of queues. Reads each run that is active or ended in the period: 500 take 1 ms of the
    server."""
    parts: list[QueueCounts] = []
    for queue, index in _ready(session):
        for _, run_at, (failures,) in _walk(session, index, "-inf", ("failures",)):
            due = run_at <= now
            parts.append(
                QueueCounts(
                    queue=queue,
                    due=int(due),
                    later=int(not due),
                    retrying=int(failures not in (None, "0")),
                    oldest_due=run_at if due else None,
                    came_due=int(since <= run_at <= now),
                )
            )
    for index, first in (("leases", "-inf"), ("over", str(since))):
        for _, _, (named, moment) in _walk(session, index, first, ("queue", "run_at")):
            if named is None:
                continue  # purged meanwhile, or a key of another type
            run_at = optional_instant(moment) or 0
            is_running = index == "leases"
            parts.append(
                QueueCounts(
                    queue=named,
                    running=int(is_running),
                    ended=int(not is_running),
                    came_due=int(since <= run_at <= now),
                )
            )
    return added_up(parts)


def count_active(session: Session, now: Instant) -> list[ActiveCounts]:
    """Count active runs by group. The queued runs of an index are a group, and are not read."""
    counts: dict[_Group, ActiveCounts] = {}
    indexes = [index for _, index in _ready(session)]
    for start in range(0, len(indexes), READ_LIMIT):
        part = indexes[start : start + READ_LIMIT]
        (rows,) = session.run("count_lines", [part, now])
        for index, (due, total, first) in zip(part, rows, strict=True):
            group = _group_of(index)
            if group is not None and total:
                more = _counts(group, due=due, later=total - due, oldest_due=first if due else None)
                counts[group] = _with(counts.get(group), more)
    names = ("tenant", "queue", "priority", "task", "cohort")
    for _, _, (tenant, queue, priority, task, cohort) in _walk(session, "leases", "-inf", names):
        if tenant is not None and queue is not None and task is not None and (priority or "").isdigit():
            group = (tenant, queue, int(priority or 0), task, cohort)
            counts[group] = _with(counts.get(group), _counts(group, running=1))
    return list(counts.values())


def _group_of(index: str) -> _Group | None:
    """Return the group of runs of an index of queued ones; None if its name can't be read."""
    kind, _, name = index.partition(":")
    try:
        if kind.startswith("cohort"):
            parts = read_cohort(name)
            return parts.tenant, parts.queue, parts.priority, parts.task, name
        queue, priority, tenant, task = name.split(":", 3)
        return tenant, queue, int(priority), task, None
    except ValueError:
        return None


def _counts(
    group: _Group, *, due: int = 0, later: int = 0, running: int = 0, oldest_due: Instant | None = None
) -> ActiveCounts:
    tenant, queue, priority, task, cohort = group
    return ActiveCounts(
        tenant=tenant,
        queue=queue,
        priority=priority,
        task=task,
        cohort=cohort,
        due=due,
        later=later,
        running=running,
        oldest_due=oldest_due,
    )


def _with(counts: ActiveCounts | None, more: ActiveCounts) -> ActiveCounts:
    if counts is None:
        return more
    return replace(
        counts,
        due=counts.due + more.due,
        later=counts.later + more.later,
        running=counts.running + more.running,
        oldest_due=min((at for at in (counts.oldest_due, more.oldest_due) if at is not None), default=None),
    )


def statistics(session: Session, keys: Sequence[tuple[str, str]]) -> list[Statistics]:
    found: list[Statistics] = []
    for start in range(0, len(keys), READ_LIMIT):
        part = keys[start : start + READ_LIMIT]
        (rows,) = session.run("statistics", [path_of(*key) for key in part])
        for (tenant, schedule), row in zip(part, rows, strict=True):
            runs, successes, failures, last_run, last_success, last_failure, last_error = row
            found.append(
                Statistics(
                    tenant=tenant,
                    schedule=schedule,
                    run_count=int(runs or 0),
                    success_count=int(successes or 0),
                    failure_count=int(failures or 0),
                    last_run=optional_instant(last_run),
                    last_success=optional_instant(last_success),
                    last_failure=optional_instant(last_failure),
                    last_error=last_error,
                )
            )
    return found


def append_log(session: Session, chunks: Sequence[LogChunk]) -> None:
    for part in batches(chunks, READ_LIMIT, lambda chunk: len(chunk.text)):
        rows = [
            [
                chunk.run,
                f"{chunk.attempt}.{chunk.seq}",
                f"{instant_text(chunk.at)} {chunk.text}",
                chunk.run_created_at is not None and instant_text(chunk.run_created_at),
            ]
            for chunk in part
        ]
        session.run("append_log", rows)
        session.committed()


def read_log(session: Session, run: str) -> list[LogChunk]:
    found: dict[str, str] = session.execute("read log", "HGETALL", f"{session.location.base}logs:{run}")
    chunks = []
    for position, line in found.items():
        attempt, _, seq = position.partition(".")
        at, _, text = line.partition(" ")
        try:
            chunks.append(
                LogChunk(run=run, attempt=int(attempt), seq=int(seq), text=text, at=optional_instant(at) or 0)
            )
        except ValueError:
            continue  # not written by Evenbeat
    return sorted(chunks, key=lambda chunk: (chunk.attempt, chunk.seq))


def purge(session: Session, finished_before: Instant, limit: int, runs: EndedRuns) -> Purged:
    """Delete old rows, in scripts of a few milliseconds: the server does nothing else meanwhile."""
    if runs.tenant is None or not runs.held or len(runs.states) < 2:
        return _purge(session, finished_before, limit, runs)
    # Passes over runs in the order of their ends, and the ends of a tenant are kept by state.
    gone = 0
    for state in runs.states:
        purged = _purge(session, finished_before, limit - gone, replace(runs, states=(state,)))
        gone += purged.deleted
        if purged.until < finished_before or gone >= limit:
            return Purged(gone, FIRST)
    return Purged(gone, finished_before)


def _purge(session: Session, finished_before: Instant, limit: int, runs: EndedRuns) -> Purged:
    gone = looked = skip = 0
    since = runs.since
    while gone < limit:
        part = min(limit - gone, READ_LIMIT)
        deleted, last, kept = session.run(
            "purge",
            [
                finished_before,
                False if since is None else since,
                part,
                skip,
                list(runs.states),
                runs.tenant or False,
                list(runs.spared),
                runs.others,
                [[each.mark, each.before] for each in runs.held],
            ],
        )
        session.committed()
        gone += deleted
        looked += part
        if last is None:
            if deleted < part:
                return Purged(gone, finished_before)
        elif int(last) != since:
            since, skip = int(last), kept
            if looked >= _MOST_LOOKED:
                break
        else:
            skip = kept
    return Purged(gone, FIRST if runs.tenant is not None or since is None else since)


def ended_at(
    session: Session, position: int, tenant: str | None, states: Sequence[RunState]
) -> Instant | None:
    """Return when the run at a position ended. Finds the end by halving the time: each step counts the runs
    that ended later, by the indexes of tenants and states alone."""
    if position < 1 or not states:
        return None
    if tenant is None and FINAL_STATES.issubset(states):
        key, at = f"{session.location.base}over", position - 1
        found: list[str] = session.execute("read ends", "ZREVRANGE", key, at, at, "WITHSCORES")
        return int(found[1]) if found else None
    kept = [[owner, state] for owner in _owners(session, tenant) for state in states]
    low, high = 0, session.now() + 1

    def later(instant: Instant) -> int:
        """Count the runs that ended at an instant or later."""
        (number,) = session.run("count_ended", [instant, kept])
        return int(number)

    if later(low) < position:
        return None
    # Runs never end in the future, unless the clock was set back.
    while later(high) >= position:
        low, high = high, high + (high - low) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if later(middle) >= position:
            low = middle
        else:
            high = middle
    return low


def _owners(session: Session, tenant: str | None) -> list[str]:
    """Return a tenant, or all tenants that have runs."""
    if tenant is not None:
        return [tenant]
    fields: list[str] = session.execute("read tenants", "HKEYS", f"{session.location.base}counts")
    return sorted({field.rpartition(" ")[0] for field in fields})
