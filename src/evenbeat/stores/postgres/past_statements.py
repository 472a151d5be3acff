"""The SQL statements for history and records. See ``statements`` for the conventions."""

from __future__ import annotations

from evenbeat.stores.postgres.statements import CLOCK, listed, rows_of
from evenbeat.stores.rows import LOG, RECORD, SKIPPED, STATISTICS

# -- History -----------------------------------------------------------------------------------------------

# Each part is counted in its own index, without reading the rows, as far as they were vacuumed.
COUNT_RUNS = """
SELECT state, count(*) FROM evenbeat.runs
WHERE state = 'queued' AND (CAST(%(tenant)s AS text) IS NULL OR tenant = %(tenant)s) GROUP BY state
UNION ALL
SELECT state, count(*) FROM evenbeat.runs
WHERE state = 'running' AND (CAST(%(tenant)s AS text) IS NULL OR tenant = %(tenant)s) GROUP BY state
UNION ALL
SELECT state, count(*) FROM evenbeat.runs
WHERE state NOT IN ('queued', 'running') AND (CAST(%(tenant)s AS text) IS NULL OR tenant = %(tenant)s)
GROUP BY state
"""

# The planner has no statistics of a partial index. It assumes that a range with one open end is a third of
# the table, and reads the whole table; that a closed range is a two-hundredth of it.
# Among 100,000 ended runs, a search for the last 1,000 reads 51 pages (1 ms), one for none 9 pages.
ENDED_SINCE = (
    "state NOT IN ('queued', 'running') AND coalesce(finished_at, 0) BETWEEN {} AND 9007199254740991"
)

# Reads the active runs and those that ended lately, each part from its own index.
COUNT_QUEUES = f"""
SELECT queue, count(*) FILTER (WHERE run_at <= %(now)s), count(*) FILTER (WHERE run_at > %(now)s),
    count(*) FILTER (WHERE failures > 0), 0, min(run_at) FILTER (WHERE run_at <= %(now)s),
    count(*) FILTER (WHERE run_at BETWEEN %(since)s AND %(now)s), 0
FROM evenbeat.runs WHERE state = 'queued' GROUP BY queue
UNION ALL
SELECT queue, 0, 0, 0, count(*), NULL, count(*) FILTER (WHERE run_at BETWEEN %(since)s AND %(now)s), 0
FROM evenbeat.runs WHERE state = 'running' GROUP BY queue
UNION ALL
SELECT queue, 0, 0, 0, 0, NULL, count(*) FILTER (WHERE run_at BETWEEN %(since)s AND %(now)s), count(*)
FROM evenbeat.runs WHERE {ENDED_SINCE.format("%(since)s")} GROUP BY queue
"""

# Reads the active runs alone, those in each state from its own index.
COUNT_ACTIVE = """
SELECT tenant, queue, priority, task, cohort,
    count(*) FILTER (WHERE is_queued AND run_at <= %(now)s),
    count(*) FILTER (WHERE is_queued AND run_at > %(now)s),
    count(*) FILTER (WHERE NOT is_queued),
    min(run_at) FILTER (WHERE is_queued AND run_at <= %(now)s)
FROM (
    SELECT tenant, queue, priority, task, cohort, run_at, TRUE AS is_queued
    FROM evenbeat.runs WHERE state = 'queued'
    UNION ALL
    SELECT tenant, queue, priority, task, cohort, run_at, FALSE
    FROM evenbeat.runs WHERE state = 'running'
) AS active
GROUP BY tenant, queue, priority, task, cohort
"""

SELECT_SKIPPED = f"""
SELECT {", ".join(SKIPPED)} FROM evenbeat.skipped WHERE tenant = %(tenant)s AND schedule = %(schedule)s
ORDER BY last DESC, first DESC LIMIT %(limit)s
"""
SELECT_SKIPPED_WITHIN = f"""
SELECT {", ".join(SKIPPED)} FROM evenbeat.skipped
WHERE tenant = %(tenant)s AND schedule = %(schedule)s AND last >= %(since)s AND first < %(until)s
ORDER BY last DESC, first DESC LIMIT %(limit)s
"""

SELECT_STATISTICS = f"""
SELECT {", ".join(f"figures.{name}" for name in STATISTICS)}
FROM {rows_of(("tenant", "schedule"))}
JOIN evenbeat.statistics AS figures
  ON figures.tenant = wanted.tenant AND figures.schedule = wanted.schedule
"""

_ENDED = "state NOT IN ('queued', 'running')"
_IN_PERIOD = "coalesce(finished_at, 0) >= %(since)s AND coalesce(finished_at, 0) < %(before)s"


def _select_over(which: str) -> str:
    # SKIP LOCKED: two purges at once delete different rows, and neither waits for a settlement.
    return f"""
        SELECT id FROM evenbeat.runs WHERE {_ENDED} AND {_IN_PERIOD}{which}
        ORDER BY coalesce(finished_at, 0) LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED"""


# The keys under which the log of a run may be stored: its id, and its ``lasting_key`` if the id may be given
# again, as those without a slash may. A line that is written while its run is purged may stay behind, as the
# purge does not see it yet. Under the id alone, it would be a line of the next run of that id.
_LOG_KEYS = """unnest(
    CASE WHEN strpos(id, '/') > 0 THEN ARRAY[id] ELSE ARRAY[id, id || '/' || created_at] END
)"""


def _delete_over(which: str) -> str:
    return f"""
WITH gone AS (
    DELETE FROM evenbeat.runs WHERE id = ANY (ARRAY({_select_over(which)}
    ))
    RETURNING id, created_at, coalesce(finished_at, 0) AS ended
), swept AS (
    DELETE FROM evenbeat.logs WHERE run = ANY (ARRAY(SELECT {_LOG_KEYS} FROM gone))
)
SELECT count(*), max(ended) FROM gone
"""


_EXCEPT = " AND state = ANY (%(states)s) AND tenant <> ALL (%(spared)s)"
_OF_TENANT = " AND tenant = %(tenant)s AND state = %(state)s"
# Reads the rows that it passes over.
_HELD = """ AND NOT EXISTS (
            SELECT FROM unnest(CAST(%(marks)s AS text[]), CAST(%(edges)s AS bigint[])) AS held (mark, edge)
            WHERE coalesce(finished_at, 0) >= edge AND right(fired_by, length(mark)) = mark
        )"""
DELETE_OVER = _delete_over("")
DELETE_OVER_UNHELD = _delete_over(_HELD)
# Passes over runs that stay inside the index.
DELETE_OVER_EXCEPT = _delete_over(_EXCEPT)
DELETE_OVER_EXCEPT_UNHELD = _delete_over(_EXCEPT + _HELD)
DELETE_OVER_OF_TENANT = _delete_over(_OF_TENANT)
DELETE_OVER_OF_TENANT_UNHELD = _delete_over(_OF_TENANT + _HELD)
# After a refusal: which rows there are, and some of them.
SELECT_OVER = {
    _delete_over(which): _select_over(which)
    for which in ("", _HELD, _EXCEPT, _EXCEPT + _HELD, _OF_TENANT, _OF_TENANT + _HELD)
}
DELETE_RUNS = f"""
WITH gone AS (DELETE FROM evenbeat.runs WHERE id = ANY (CAST(%(places)s AS text[])) RETURNING id, created_at)
DELETE FROM evenbeat.logs WHERE run = ANY (ARRAY(SELECT {_LOG_KEYS} FROM gone))
"""
# The instants at which the newest runs ended.
SELECT_ENDS = f"""
SELECT coalesce(finished_at, 0) FROM evenbeat.runs WHERE {_ENDED} AND state = ANY (%(states)s)
ORDER BY coalesce(finished_at, 0) DESC LIMIT 1 OFFSET %(position)s - 1
"""
# An index scan for each state, which ends after as many entries as are asked for.
SELECT_ENDS_OF_TENANT = f"""
SELECT ended FROM unnest(CAST(%(states)s AS text[])) AS wanted (state), LATERAL (
    SELECT coalesce(finished_at, 0) AS ended FROM evenbeat.runs
    WHERE {_ENDED} AND tenant = %(tenant)s AND runs.state = wanted.state
    ORDER BY coalesce(finished_at, 0) DESC LIMIT %(position)s
) AS newest
ORDER BY ended DESC LIMIT 1 OFFSET %(position)s - 1
"""
SELECT_OLD_SKIPPED = """
SELECT CAST(ctid AS text) FROM evenbeat.skipped WHERE recorded_at < %(before)s
ORDER BY recorded_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
"""
DELETE_SKIPPED_ROWS = "DELETE FROM evenbeat.skipped WHERE ctid = ANY (CAST(%(places)s AS tid[]))"
SELECT_EXPIRED = f"""
SELECT CAST(ctid AS text) FROM evenbeat.records WHERE expires <= {CLOCK}
ORDER BY expires LIMIT %(limit)s FOR UPDATE SKIP LOCKED
"""
DELETE_RECORD_ROWS = "DELETE FROM evenbeat.records WHERE ctid = ANY (CAST(%(places)s AS tid[]))"
DELETE_SKIPPED = """
WITH gone AS (
    DELETE FROM evenbeat.skipped WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM evenbeat.skipped WHERE recorded_at < %(before)s
        ORDER BY recorded_at LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT count(*) FROM gone
"""
DELETE_EXPIRED = f"""
WITH gone AS (
    DELETE FROM evenbeat.records WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM evenbeat.records WHERE expires <= {CLOCK}
        ORDER BY expires LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT count(*) FROM gone
"""


# -- Records and logs --------------------------------------------------------------------------------------

_ALIVE = f"(expires IS NULL OR expires > {CLOCK})"
SELECT_RECORD = f"""
SELECT {", ".join(RECORD)} FROM evenbeat.records
WHERE kind = %(kind)s AND tenant = %(tenant)s AND key = %(key)s AND {_ALIVE}
"""
SELECT_RECORDS = f"""
SELECT {", ".join(RECORD)} FROM evenbeat.records
WHERE kind = %(kind)s AND (CAST(%(tenant)s AS text) IS NULL OR tenant = %(tenant)s)
  AND key >= %(start)s AND (CAST(%(end)s AS text) IS NULL OR key < %(end)s) AND {_ALIVE}
ORDER BY tenant, key LIMIT CAST(%(limit)s AS bigint)
"""
# Walks from each tenant of the kind to the next one in the index, and reads only the range of each. Among
# 100,000 records of 10 tenants, a range of 100 takes 88 pages (0.5 ms).
SELECT_RECORDS_OF_EACH_TENANT = f"""
WITH RECURSIVE owner (tenant) AS (
    (SELECT tenant FROM evenbeat.records WHERE kind = %(kind)s ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (
        SELECT tenant FROM evenbeat.records WHERE kind = %(kind)s AND tenant > owner.tenant
        ORDER BY tenant LIMIT 1
    )
    FROM owner WHERE tenant IS NOT NULL
)
SELECT {", ".join(f"record.{name}" for name in RECORD)}
FROM owner
CROSS JOIN LATERAL (
    SELECT * FROM evenbeat.records
    WHERE kind = %(kind)s AND tenant = owner.tenant
      AND key >= %(start)s AND (CAST(%(end)s AS text) IS NULL OR key < %(end)s) AND {_ALIVE}
    ORDER BY key LIMIT CAST(%(limit)s AS bigint)
) AS record
ORDER BY record.tenant, record.key LIMIT CAST(%(limit)s AS bigint)
"""
# Compare-and-set in one statement: the later of two concurrent writes sees the row of the earlier one.
ADD_RECORD = f"""
INSERT INTO evenbeat.records AS present ({", ".join(RECORD)})
VALUES (%(kind)s, %(tenant)s, %(key)s, %(version)s, %(body)s, CAST(%(expires)s AS bigint))
ON CONFLICT (kind, tenant, key)
DO UPDATE SET version = excluded.version, body = excluded.body, expires = excluded.expires
WHERE present.expires <= {CLOCK}
RETURNING TRUE
"""
# In the order of keys: transactions that add the same records wait for each other without a deadlock.
ADD_RECORDS = f"""
INSERT INTO evenbeat.records AS present ({", ".join(RECORD)})
SELECT {", ".join(RECORD)} FROM {rows_of(RECORD)}
ORDER BY kind COLLATE "C", tenant COLLATE "C", key COLLATE "C"
ON CONFLICT (kind, tenant, key)
DO UPDATE SET version = excluded.version, body = excluded.body, expires = excluded.expires
WHERE present.expires <= %(now)s
"""
# Overwrites, in the same order.
PUT_RECORDS = f"""
INSERT INTO evenbeat.records ({", ".join(RECORD)})
SELECT {", ".join(RECORD)} FROM {rows_of(RECORD)}
ORDER BY kind COLLATE "C", tenant COLLATE "C", key COLLATE "C"
ON CONFLICT (kind, tenant, key)
DO UPDATE SET version = excluded.version, body = excluded.body, expires = excluded.expires
"""
CHANGE_RECORD = f"""
UPDATE evenbeat.records SET version = %(version)s, body = %(body)s, expires = CAST(%(expires)s AS bigint)
WHERE kind = %(kind)s AND tenant = %(tenant)s AND key = %(key)s AND version = %(expect)s AND {_ALIVE}
RETURNING TRUE
"""
DELETE_RECORD = """
DELETE FROM evenbeat.records
WHERE kind = %(kind)s AND tenant = %(tenant)s AND key = %(key)s AND version = %(version)s
RETURNING TRUE
"""

# Of runs that exist: lines of others would stay for ever.
INSERT_LOGS = f"""
INSERT INTO evenbeat.logs ({", ".join(LOG)}) SELECT {", ".join(LOG)} FROM {rows_of(LOG)}
WHERE run = ANY (ARRAY(SELECT {_LOG_KEYS} FROM evenbeat.runs WHERE id = {listed("runs")}))
ORDER BY run COLLATE "C", attempt, seq
ON CONFLICT (run, attempt, seq) DO NOTHING
"""
SELECT_LOG = f"""
SELECT {", ".join(LOG)} FROM evenbeat.logs
WHERE run = ANY (ARRAY(SELECT {_LOG_KEYS} FROM evenbeat.runs WHERE id = %(run)s))
ORDER BY attempt, seq
"""
