"""The SQL statements of claims, each with its reason. Costs were measured on two shared cores.

Texts that are read and then sent back as a parameter are read as bytes: SQLite stores texts that are not
UTF-8, and a replaced letter would not be found again.
"""

from __future__ import annotations

from evenbeat.stores.sqlite.statements import RUN_COLUMNS

# Written like the conditions of the partial indexes: only then SQLite uses these indexes.
_FREE = "evenbeat_runs INDEXED BY evenbeat_runs_claimable WHERE state = 'queued' AND cohort IS NULL"
_LIMITED = "evenbeat_runs INDEXED BY evenbeat_runs_of_cohort WHERE state = 'queued' AND cohort IS NOT NULL"

_OF_TASKS = "AND +task IN (SELECT value FROM json_each(?))"
_OF_NO_TASKS = "AND +task NOT IN (SELECT value FROM json_each(?))"


_WAYS = f"""
SELECT
    EXISTS (SELECT 1 FROM evenbeat_runs WHERE state = 'running' AND worker = ? AND claim = ?),
    EXISTS (SELECT 1 FROM evenbeat_records WHERE kind = 'limit' AND tenant = 'default')
        OR EXISTS (SELECT 1 FROM {_LIMITED})
""".strip()
# Whether the claim holds runs already, and whether there are limits or cohorts. 2 us.
SELECT_WAYS = _WAYS


def _outlook(condition: str) -> str:
    return f"""
WITH RECURSIVE level (queue, priority) AS (
    SELECT value, (SELECT max(priority) FROM {_FREE} AND queue = wanted.value) FROM json_each(?) AS wanted
    UNION ALL
    SELECT queue, (SELECT max(priority) FROM {_FREE} AND queue = level.queue AND priority < level.priority)
    FROM level WHERE priority IS NOT NULL
),
owner (queue, priority, tenant) AS (
    SELECT queue, priority,
        (SELECT min(tenant) FROM {_FREE} AND queue = level.queue AND priority = level.priority)
    FROM level WHERE priority IS NOT NULL
    UNION ALL
    SELECT queue, priority, (
        SELECT min(tenant) FROM {_FREE}
            AND queue = owner.queue AND priority = owner.priority AND tenant > owner.tenant
    )
    FROM owner WHERE tenant IS NOT NULL
)
{_WAYS}, NULL, NULL
UNION ALL
SELECT queue, priority, CAST(tenant AS BLOB), (
    SELECT run_at FROM {_FREE}
        AND queue = owner.queue AND priority = owner.priority AND tenant = owner.tenant
        AND format <= ? {condition}
    ORDER BY run_at LIMIT 1
)
FROM owner WHERE tenant IS NOT NULL
"""


# The values of SELECT_WAYS; then each queue, priority and tenant that has queued runs without a cohort, and
# when the first of these is due. Goes from each of them to the next one in the index, however many runs they
# have. One read tells an idle worker when to claim again. 16 us with one tenant and priority, 3 us for each
# other one: with an index that begins with run_at it took 11 us, but a flood of one tenant would stand before
# the others. A claim of 10 runs takes 0.4 ms with one tenant or two, 1.4 ms with 100, 6.6 ms with 1,000.
OUTLOOK = _outlook("")
OUTLOOK_OF_TASKS = _outlook(_OF_TASKS)


def _claimable(condition: str) -> str:
    return f"""
SELECT run_at, id, rowid, task FROM {_FREE}
    AND queue = ? AND priority = ? AND tenant = CAST(? AS TEXT) AND run_at <= ? AND format <= ? {condition}
ORDER BY run_at, id LIMIT ? OFFSET ?
"""


# 5 us, and once where a claim used to read each priority: a claim of one run takes 0.20 ms instead of 0.22.
# One range of the index, which ends at "now": runs that are due later are never read. Runs of tasks that this
# node does not have are skipped inside the index.
SELECT_CLAIMABLE = _claimable("")
SELECT_CLAIMABLE_OF_TASKS = _claimable(_OF_TASKS)
# Also skips runs of limited tasks that have no cohort yet. A free run behind 50,000 of them is claimed in
# 15 ms, most of which goes into 1,000 cohorts that the claim gives.
SELECT_CLAIMABLE_BESIDE = _claimable(_OF_NO_TASKS)
SELECT_CLAIMABLE_OF_TASKS_BESIDE = _claimable(f"{_OF_TASKS} {_OF_NO_TASKS}")

# A count at its maximum is bounded: reading its own row then fails, not the statement. No RETURNING: a text
# that is not UTF-8 fails the fetch, and a second fetch must not write a second time.
CLAIM = """
UPDATE evenbeat_runs
SET state = 'running', attempt = min(attempt, 9007199254740991) + 1, worker = ?, claim = ?,
    lease_until = ?, started_at = ?
WHERE rowid IN (SELECT value FROM json_each(?))
"""
SELECT_TAKEN = f"""
SELECT {RUN_COLUMNS}, rowid FROM evenbeat_runs WHERE rowid IN (SELECT value FROM json_each(?))
"""

# After a refusal: which runs the statement was about.
SELECT_IDS = "SELECT id FROM evenbeat_runs WHERE rowid IN (SELECT value FROM json_each(?)) ORDER BY rowid"

SELECT_CLAIMED = f"""
SELECT {RUN_COLUMNS} FROM evenbeat_runs WHERE state = 'running' AND worker = ? AND claim = ?
ORDER BY priority DESC, run_at, id
"""

# -- Limits ------------------------------------------------------------------------------------------------

SELECT_LIMITS = """
SELECT body FROM evenbeat_records
WHERE kind = 'limit' AND tenant = 'default' AND (expires IS NULL OR expires > ?) ORDER BY key
"""
SELECT_BUCKETS = """
SELECT record.key, record.body
FROM json_each(?) AS wanted CROSS JOIN evenbeat_records AS record
WHERE record.kind = 'bucket' AND record.tenant = 'default' AND record.key = wanted.value
  AND (record.expires IS NULL OR record.expires > ?)
"""

# Reads the index entries of all running runs, not their rows.
COUNT_RUNNING = """
SELECT cohort, queue, tenant, task, count(*) FROM evenbeat_runs INDEXED BY evenbeat_runs_leased
WHERE state = 'running' GROUP BY cohort, queue, tenant, task
"""
SELECT_RUNNING = """
SELECT rowid, cohort, queue, tenant, task FROM evenbeat_runs INDEXED BY evenbeat_runs_leased
WHERE state = 'running'
"""

# Goes from each cohort to the next one in the index, however many runs wait in each. With 50,000 runs behind
# one limit, a claim that finds no slot takes 0.1 ms, and one that takes 5 runs 0.4 ms. With 1,000 cohorts and
# 20,000 runs, a claim of 10 runs takes 8 to 11 ms, one of 100 runs 11 to 14 ms.
SELECT_WAITING = f"""
WITH RECURSIVE waiting (cohort, top) AS (
    SELECT (
        SELECT min(cohort) FROM {_LIMITED} AND cohort >= wanted.value ->> 0 AND cohort < wanted.value ->> 1
    ), wanted.value ->> 1
    FROM json_each(?) AS wanted
    UNION ALL
    SELECT (SELECT min(cohort) FROM {_LIMITED} AND cohort > waiting.cohort AND cohort < waiting.top), top
    FROM waiting WHERE cohort IS NOT NULL
)
SELECT CAST(cohort AS BLOB), CAST((
    SELECT run_at || ' ' || rowid || ' ' || id FROM {_LIMITED} AND cohort = waiting.cohort AND format <= ?
    ORDER BY run_at, id LIMIT 1
) AS BLOB)
FROM waiting WHERE cohort IS NOT NULL LIMIT ?
"""
SELECT_OF_COHORT = f"""
SELECT run_at, id, rowid FROM {_LIMITED} AND cohort = CAST(? AS TEXT) AND run_at <= ? AND format <= ?
ORDER BY run_at, id LIMIT ?
"""

SELECT_FIRST_OF_COHORT = f"""
SELECT run_at FROM {_LIMITED} AND cohort = CAST(? AS TEXT) AND format <= ? ORDER BY run_at, id LIMIT 1
"""

SELECT_FOR_COHORT = """
SELECT rowid, cohort, queue, priority, tenant, task, payload, kind FROM evenbeat_runs
WHERE rowid IN (SELECT value FROM json_each(?))
"""
SET_COHORT = "UPDATE evenbeat_runs SET cohort = ? WHERE rowid = ?"


def set_cohorts(expressions: tuple[str, ...]) -> str:
    """Return a statement like SET_COHORT for the rows of a JSON array: (rowid, cohort)."""
    return f"""
UPDATE evenbeat_runs SET cohort = {expressions[1]}
FROM json_each(?) AS wanted WHERE evenbeat_runs.rowid = {expressions[0]}
"""
