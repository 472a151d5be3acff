"""The SQL statements, each with its reason. Costs were measured with bench/sqlite.py on two shared cores.

Lists are sent as one JSON array (``json_each``): SQLite limits the number of parameters, and compiles a
statement again for each number of values in its text. Placeholders have no numbers: Python 3.12 warns of
``?1``.
"""

from __future__ import annotations

from evenbeat.rules.dependencies import FOLLOWER
from evenbeat.stores.rows import FIRED_FIELDS, LOG, RECORD, RUN, SCHEDULE, SKIPPED, STATISTICS, UNFIRED

SCHEDULE_COLUMNS = ", ".join(SCHEDULE)
RUN_COLUMNS = ", ".join(RUN)


def _insert(table: str, columns: tuple[str, ...]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


# -- Firing ------------------------------------------------------------------------------------------------

NEXT_WAKE = """
SELECT wake_at FROM evenbeat_schedules WHERE wake_at IS NOT NULL AND format <= ? ORDER BY wake_at LIMIT 1
"""

# The same for several schedules, if some of them are left out.
NEXT_WAKES = """
SELECT wake_at, tenant, name FROM evenbeat_schedules WHERE wake_at IS NOT NULL AND format <= ?
ORDER BY wake_at LIMIT ?
"""

# 3 us a row. Firing does not need "declared", which may be long, nor what UNFIRED lists beside it.
SELECT_DUE = f"""
SELECT {", ".join("''" if name in UNFIRED else name for name in SCHEDULE)}, rowid
FROM evenbeat_schedules WHERE wake_at <= ? AND format <= ? ORDER BY wake_at LIMIT ?
"""

# CROSS JOIN: SQLite reads the wanted schedules first, whatever the planner estimates for json_each.
SELECT_ACTIVE = """
SELECT run.tenant, run.schedule, run.id, run.state, run.cancel_requested
FROM json_each(?) AS wanted CROSS JOIN evenbeat_runs AS run
WHERE run.tenant = wanted.value ->> 0 AND run.schedule = wanted.value ->> 1
  AND run.schedule IS NOT NULL AND (run.state = 'queued' OR run.state = 'running')
ORDER BY run.rowid
"""

# Writes only the fields of firing, never those that users set. 6 us, most of it for the index.
ADVANCE_SCHEDULE = f"""
UPDATE evenbeat_schedules SET {", ".join(f"{name} = ?" for name in FIRED_FIELDS)} WHERE rowid = ?
"""

PUT_TO_SLEEP = "UPDATE evenbeat_schedules SET wake_at = NULL WHERE rowid = ?"

# 8 us a row, one by one; together 2 us, and 0.3 us more for each column besides the id that differs between
# rows.
INSERT_RUN = f"{_insert('evenbeat_runs', RUN)} ON CONFLICT (id) DO NOTHING"


def insert_runs(expressions: tuple[str, ...], placeholder: str = "?") -> str:
    """Return a statement like INSERT_RUN for the rows of a JSON array."""
    # WHERE TRUE: otherwise SQLite reads ON as that of a join.
    return f"""
INSERT INTO evenbeat_runs ({RUN_COLUMNS})
SELECT {", ".join(expressions)} FROM json_each({placeholder}) AS wanted WHERE TRUE
ON CONFLICT (id) DO NOTHING
"""


INSERT_SKIPPED = _insert("evenbeat_skipped", SKIPPED)

REQUEST_CANCEL = """
UPDATE evenbeat_runs SET cancel_requested = 1 WHERE id = ? AND (state = 'queued' OR state = 'running')
"""

QUARANTINE = """
INSERT INTO evenbeat_records (kind, tenant, key, version, body) VALUES ('quarantine', ?, ?, 1, ?)
ON CONFLICT (kind, tenant, key)
DO UPDATE SET version = version + 1, body = excluded.body, expires = NULL
"""

# -- Schedules ---------------------------------------------------------------------------------------------

SELECT_SCHEDULES = f"""
SELECT {", ".join(f"schedule.{column}" for column in SCHEDULE)}
FROM json_each(?) AS wanted CROSS JOIN evenbeat_schedules AS schedule
WHERE schedule.tenant = wanted.value ->> 0 AND schedule.name = wanted.value ->> 1
"""

PUT_SCHEDULE = f"""
{_insert("evenbeat_schedules", SCHEDULE)}
ON CONFLICT (tenant, name) DO UPDATE SET
{", ".join(f"{column} = excluded.{column}" for column in SCHEDULE[2:])}
"""

# -- Runs --------------------------------------------------------------------------------------------------

SELECT_PRESENT = """
SELECT run.id FROM json_each(?) AS wanted CROSS JOIN evenbeat_runs AS run WHERE run.id = wanted.value
"""

# Reads all running runs: 0.05 ms for each 1,000.
SELECT_LOST = f"""
SELECT {RUN_COLUMNS}, rowid FROM evenbeat_runs INDEXED BY evenbeat_runs_leased
WHERE state = 'running' AND coalesce(lease_until, 0) <= ? ORDER BY coalesce(lease_until, 0), id LIMIT ?
"""
NEXT_LEASE_END = """
SELECT min(coalesce(lease_until, 0)) FROM evenbeat_runs INDEXED BY evenbeat_runs_leased
WHERE state = 'running' AND coalesce(lease_until, 0) > ?
"""

# An unreadable run would stay at the head of its queue for ever.
FAIL_UNREADABLE = """
UPDATE evenbeat_runs
SET state = 'failed', error = ?, finished_at = ?, lease_until = NULL, claim = NULL WHERE rowid = ?
"""

SELECT_STATUS = """
SELECT run.id, run.state, run.attempt, run.settled, run.lease_until, run.cohort, run.claim
FROM json_each(?) AS wanted CROSS JOIN evenbeat_runs AS run WHERE run.id = wanted.value
"""


def update_run(fields: tuple[str, ...]) -> str:
    """Return the statement that sets these fields of a run, by id. 5 us a row."""
    return f"UPDATE evenbeat_runs SET {', '.join(f'{field} = ?' for field in fields)} WHERE id = ?"


def update_runs(fields: tuple[str, ...], expressions: tuple[str, ...]) -> str:
    """Return a statement like ``update_run`` for the rows of a JSON array, which begin with the id. 3.5 us
    a row."""
    values = zip(fields, expressions[1:], strict=True)
    return f"""
UPDATE evenbeat_runs SET {", ".join(f"{field} = {value}" for field, value in values)}
FROM json_each(?) AS wanted WHERE evenbeat_runs.id = {expressions[0]}
"""


# Like decisions.added: counts are summed, and fields that are not given stay unchanged.
COUNT = f"""
{_insert("evenbeat_statistics", STATISTICS)}
ON CONFLICT (tenant, schedule) DO UPDATE SET
    run_count = min(run_count, 9007199254740991) + excluded.run_count,
    success_count = min(success_count, 9007199254740991) + excluded.success_count,
    failure_count = min(failure_count, 9007199254740991) + excluded.failure_count,
    last_run = coalesce(nullif(excluded.last_run, 0), last_run),
    last_success = coalesce(nullif(excluded.last_success, 0), last_success),
    last_failure = coalesce(nullif(excluded.last_failure, 0), last_failure),
    last_error = coalesce(excluded.last_error, last_error)
"""

# Like firing.wakes_on_run_end: a schedule that does not wait is read (1 us) and not written. One that has
# followers is returned, too, and written only if it waits.
_waits = """
    state = 'active' AND wake_at > next_tick AND (overlap <> 'allow' OR max_concurrent IS NOT NULL)
""".strip()
WAKE = f"""
UPDATE evenbeat_schedules SET wake_at = CASE WHEN {_waits} THEN next_tick ELSE wake_at END
WHERE rowid IN (
    SELECT schedule.rowid
    FROM json_each(?) AS wanted CROSS JOIN evenbeat_schedules AS schedule
    WHERE schedule.tenant = wanted.value ->> 0 AND schedule.name = wanted.value ->> 1
      AND (({_waits}) OR schedule.followers <> '')
)
RETURNING tenant, name, followers
"""

# The rows that a success may wake, and their wake-ups.
SELECT_FOLLOWERS = f"""
SELECT {", ".join(f"schedule.{column}" for column in FOLLOWER)}
FROM json_each(?) AS wanted CROSS JOIN evenbeat_schedules AS schedule
WHERE schedule.tenant = wanted.value ->> 0 AND schedule.name = wanted.value ->> 1
"""
WAKE_FOLLOWER = """
UPDATE evenbeat_schedules SET wake_at = ?, fire_seq = fire_seq + ? WHERE tenant = ? AND name = ?
"""

COUNT_FIRE = """
UPDATE evenbeat_schedules SET fire_seq = fire_seq + 1 WHERE tenant = ? AND name = ?
"""

SELECT_REVISIONS = """
SELECT schedule.tenant, schedule.name, schedule.generation, schedule.revision, schedule.fire_seq
FROM json_each(?) AS wanted CROSS JOIN evenbeat_schedules AS schedule
WHERE schedule.tenant = wanted.value ->> 0 AND schedule.name = wanted.value ->> 1
"""

# -- History -----------------------------------------------------------------------------------------------

# Each part is counted in its own index: 1,000,000 finished runs take 0.25 s, however large they are.
COUNT_RUNS = """
SELECT 'queued', sum(part) FROM (
    SELECT count(*) AS part FROM evenbeat_runs INDEXED BY evenbeat_runs_claimable
    WHERE state = 'queued' AND cohort IS NULL AND coalesce(tenant = ?, TRUE)
    UNION ALL
    SELECT count(*) FROM evenbeat_runs INDEXED BY evenbeat_runs_of_cohort
    WHERE state = 'queued' AND cohort IS NOT NULL AND coalesce(tenant = ?, TRUE)
) HAVING sum(part) > 0
UNION ALL
SELECT state, count(*) FROM evenbeat_runs INDEXED BY evenbeat_runs_leased
WHERE state = 'running' AND coalesce(tenant = ?, TRUE) GROUP BY state
UNION ALL
SELECT state, count(*) FROM evenbeat_runs INDEXED BY evenbeat_runs_over
WHERE state <> 'queued' AND state <> 'running' AND coalesce(tenant = ?, TRUE) GROUP BY state
"""


def _queued_of_queues(index: str, condition: str) -> str:
    return f"""
SELECT queue, count(*) FILTER (WHERE run_at <= ?), count(*) FILTER (WHERE run_at > ?),
    count(*) FILTER (WHERE failures > 0), 0, min(run_at) FILTER (WHERE run_at <= ?),
    count(*) FILTER (WHERE run_at BETWEEN ? AND ?), 0
FROM evenbeat_runs INDEXED BY {index} WHERE state = 'queued' AND {condition} GROUP BY queue
""".strip()


# Reads the active runs and those that ended lately: 1 us a run. Each part has its own index; the planner
# would use any index that saves a sort, and read all of the history.
COUNT_QUEUES = f"""
{_queued_of_queues("evenbeat_runs_claimable", "cohort IS NULL")}
UNION ALL
{_queued_of_queues("evenbeat_runs_of_cohort", "cohort IS NOT NULL")}
UNION ALL
SELECT queue, 0, 0, 0, count(*), NULL, count(*) FILTER (WHERE run_at BETWEEN ? AND ?), 0
FROM evenbeat_runs INDEXED BY evenbeat_runs_leased WHERE state = 'running' GROUP BY queue
UNION ALL
SELECT queue, 0, 0, 0, 0, NULL, count(*) FILTER (WHERE run_at BETWEEN ? AND ?), count(*)
FROM evenbeat_runs INDEXED BY evenbeat_runs_over
WHERE state <> 'queued' AND state <> 'running' AND coalesce(finished_at, 0) >= ? GROUP BY queue
"""

# Reads index entries of active runs, and one row for each cohort: 50,000 queued runs take 12 ms.
COUNT_ACTIVE = """
SELECT tenant, queue, priority, task, cohort, sum(due), sum(later), sum(running), min(oldest_due)
FROM (
    SELECT tenant, queue, priority, task, NULL AS cohort, count(*) FILTER (WHERE run_at <= ?) AS due,
        count(*) FILTER (WHERE run_at > ?) AS later, 0 AS running,
        min(run_at) FILTER (WHERE run_at <= ?) AS oldest_due
    FROM evenbeat_runs INDEXED BY evenbeat_runs_claimable
    WHERE state = 'queued' AND cohort IS NULL GROUP BY queue, priority, tenant, task
    UNION ALL
    SELECT run.tenant, run.queue, run.priority, run.task, part.cohort, part.due, part.later, 0,
        part.oldest_due
    FROM (
        SELECT cohort, count(*) FILTER (WHERE run_at <= ?) AS due,
            count(*) FILTER (WHERE run_at > ?) AS later,
            min(run_at) FILTER (WHERE run_at <= ?) AS oldest_due, min(rowid) AS one
        FROM evenbeat_runs INDEXED BY evenbeat_runs_of_cohort
        WHERE state = 'queued' AND cohort IS NOT NULL GROUP BY cohort
    ) AS part CROSS JOIN evenbeat_runs AS run WHERE run.rowid = part.one
    UNION ALL
    SELECT tenant, queue, priority, task, cohort, 0, 0, count(*), NULL
    FROM evenbeat_runs INDEXED BY evenbeat_runs_leased
    WHERE state = 'running' GROUP BY tenant, queue, priority, task, cohort
)
GROUP BY tenant, queue, priority, task, cohort
"""

SELECT_SKIPPED = f"""
SELECT {", ".join(SKIPPED)} FROM evenbeat_skipped WHERE tenant = ? AND schedule = ?
ORDER BY last DESC, first DESC LIMIT ?
"""
SELECT_SKIPPED_WITHIN = f"""
SELECT {", ".join(SKIPPED)} FROM evenbeat_skipped
WHERE tenant = ? AND schedule = ? AND last >= ? AND first < ?
ORDER BY last DESC, first DESC LIMIT ?
"""

SELECT_STATISTICS = f"""
SELECT {", ".join(f"figures.{column}" for column in STATISTICS)}
FROM json_each(?) AS wanted CROSS JOIN evenbeat_statistics AS figures
WHERE figures.tenant = wanted.value ->> 0 AND figures.schedule = wanted.value ->> 1
"""

_is_over = "state <> 'queued' AND state <> 'running'"


def _select_over(index: str, which: str) -> str:
    return f"""
SELECT rowid, id, coalesce(finished_at, 0) FROM evenbeat_runs INDEXED BY {index}
WHERE {_is_over} AND coalesce(finished_at, 0) >= ? AND coalesce(finished_at, 0) < ?{which}
ORDER BY coalesce(finished_at, 0) LIMIT ?
"""


_EXCEPT = " AND state IN (SELECT value FROM json_each(?)) AND tenant NOT IN (SELECT value FROM json_each(?))"
_OF_TENANT = " AND tenant = ? AND state = ?"
# Reads the rows that it passes over.
_HELD = """ AND NOT EXISTS (
    SELECT 1 FROM json_each(?) AS held
    WHERE coalesce(finished_at, 0) >= held.value ->> 1
      AND substr(fired_by, -length(held.value ->> 0)) = held.value ->> 0
)"""
SELECT_OVER = _select_over("evenbeat_runs_over", "")
SELECT_OVER_UNHELD = _select_over("evenbeat_runs_over", _HELD)
# Passes over runs that stay inside the index: 0.1 us each.
SELECT_OVER_EXCEPT = _select_over("evenbeat_runs_over", _EXCEPT)
SELECT_OVER_EXCEPT_UNHELD = _select_over("evenbeat_runs_over", _EXCEPT + _HELD)
SELECT_OVER_OF_TENANT = _select_over("evenbeat_runs_ended", _OF_TENANT)
SELECT_OVER_OF_TENANT_UNHELD = _select_over("evenbeat_runs_ended", _OF_TENANT + _HELD)
# The instants at which the newest runs ended; 0.1 us for each of them.
SELECT_ENDS = f"""
SELECT coalesce(finished_at, 0) FROM evenbeat_runs INDEXED BY evenbeat_runs_over
WHERE {_is_over} AND state IN (SELECT value FROM json_each(?))
ORDER BY coalesce(finished_at, 0) DESC LIMIT 1 OFFSET ?
"""
_SELECT_ENDS_OF_STATE = f"""
SELECT * FROM (
    SELECT coalesce(finished_at, 0) AS ended FROM evenbeat_runs INDEXED BY evenbeat_runs_ended
    WHERE {_is_over} AND tenant = ? AND state = ?
    ORDER BY coalesce(finished_at, 0) DESC LIMIT ?
)
"""
SELECT_ENDS_OF_TENANT = {
    number: " UNION ALL ".join([_SELECT_ENDS_OF_STATE] * number) + " ORDER BY ended DESC LIMIT 1 OFFSET ?"
    for number in (1, 2, 3)
}
DELETE_LOGS = "DELETE FROM evenbeat_logs WHERE run = ?"
DELETE_RUN = "DELETE FROM evenbeat_runs WHERE rowid = ?"
# A run that was retried since it was found stays.
SELECT_STILL_OVER = f"""
SELECT rowid, id FROM evenbeat_runs
WHERE rowid IN (SELECT value FROM json_each(?)) AND {_is_over} AND coalesce(finished_at, 0) < ?
"""
DELETE_SKIPPED = """
DELETE FROM evenbeat_skipped
WHERE rowid IN (SELECT rowid FROM evenbeat_skipped WHERE recorded_at < ? ORDER BY recorded_at LIMIT ?)
"""

# After a refusal: which rows there are, and one of them.
SELECT_OLD_SKIPPED = "SELECT rowid FROM evenbeat_skipped WHERE recorded_at < ? ORDER BY recorded_at LIMIT ?"
DELETE_SKIPPED_ROW = "DELETE FROM evenbeat_skipped WHERE rowid = ?"

# -- Records and logs --------------------------------------------------------------------------------------

SELECT_RECORD = f"""
SELECT {", ".join(RECORD)} FROM evenbeat_records WHERE kind = ? AND tenant = ? AND key = ?
"""
SELECT_RECORDS = f"""
SELECT {", ".join(RECORD)} FROM evenbeat_records
WHERE kind = ? AND (expires IS NULL OR expires > ?) ORDER BY tenant, key LIMIT ?
"""
# 3 us a record of the range, among 100,000 of the kind.
SELECT_RECORDS_OF_TENANT = f"""
SELECT {", ".join(RECORD)} FROM evenbeat_records
WHERE kind = ? AND tenant = ? AND key >= ? AND key < ? AND (expires IS NULL OR expires > ?)
ORDER BY key LIMIT ?
"""
# Walks from each tenant of the kind to the next one in the index, and reads only the range of each. Among
# 100,000 records of 10 tenants, a range of 100 takes 0.3 ms.
SELECT_RECORDS_OF_EACH_TENANT = f"""
WITH RECURSIVE owner (tenant) AS (
    SELECT min(tenant) FROM evenbeat_records WHERE kind = ?
    UNION ALL
    SELECT (SELECT min(tenant) FROM evenbeat_records WHERE kind = ? AND tenant > owner.tenant)
    FROM owner WHERE owner.tenant IS NOT NULL
)
SELECT {", ".join(f"record.{name}" for name in RECORD)}
FROM owner CROSS JOIN evenbeat_records AS record
WHERE record.kind = ? AND record.tenant = owner.tenant AND record.key >= ? AND record.key < ?
  AND (record.expires IS NULL OR record.expires > ?)
ORDER BY record.tenant, record.key LIMIT ?
"""
# An expired record counts as missing.
ADD_RECORD = f"""
{_insert("evenbeat_records", RECORD)}
ON CONFLICT (kind, tenant, key)
DO UPDATE SET version = excluded.version, body = excluded.body, expires = excluded.expires
WHERE expires <= ?
"""
PUT_RECORD = f"""
{_insert("evenbeat_records", RECORD)}
ON CONFLICT (kind, tenant, key)
DO UPDATE SET version = excluded.version, body = excluded.body, expires = excluded.expires
"""
DELETE_EXPIRED = """
DELETE FROM evenbeat_records
WHERE (kind, tenant, key) IN (
    SELECT kind, tenant, key FROM evenbeat_records WHERE expires IS NOT NULL AND expires <= ? LIMIT ?
)
"""
SELECT_EXPIRED = """
SELECT kind, tenant, key FROM evenbeat_records WHERE expires IS NOT NULL AND expires <= ? LIMIT ?
"""
DELETE_SPENT = "DELETE FROM evenbeat_records WHERE kind = ? AND tenant = ? AND key = ?"
DELETE_RECORD = "DELETE FROM evenbeat_records WHERE kind = ? AND tenant = ? AND key = ? AND version = ?"

# Only for runs that exist: chunks of others would stay for ever. A later run of the id is not that run.
INSERT_LOG = f"""
INSERT INTO evenbeat_logs ({", ".join(LOG)}) SELECT {", ".join("?" * len(LOG))}
WHERE EXISTS (SELECT 1 FROM evenbeat_runs WHERE id = ? AND created_at = coalesce(?, created_at))
ON CONFLICT (run, attempt, seq) DO NOTHING
"""
SELECT_LOG = f"SELECT {', '.join(LOG)} FROM evenbeat_logs WHERE run = ? ORDER BY attempt, seq"
