"""The SQL statements of claims. See ``statements`` for the conventions.

The index ``runs_claimable`` has the columns queue, cohort, priority, tenant, run_at, id, task and format. A
*loose scan* reads the first entry of a range, then the first entry after that range, and so on (a recursive
query with LATERAL and LIMIT 1): it costs one seek for each tenant or cohort, however many runs they have.
ORDER BY names the cohort although it is NULL or given: otherwise the planner does not see that the index has
the order.
"""

from __future__ import annotations

from typing import NamedTuple

from evenbeat.stores.postgres.statements import CLOCK, RUN_COLUMNS, SERVERS_CLOCK, listed, rows_of
from evenbeat.stores.rows import RUN

_DUE = f"least(CAST(%(now)s AS bigint), {CLOCK})"
_FREE = "state = 'queued' AND cohort IS NULL AND format <= %(format)s"


class Conditions(NamedTuple):
    """The conditions of a claim of runs without a cohort. Each combination of them is a statement: with OR,
    one statement for all would not use the index."""

    of_tasks: bool = False
    """Only %(tasks)s."""
    between_tasks: bool = False
    """Only tasks between %(after_tasks)s and %(before_tasks)s, two lists of names: those between limited
    tasks. The index compares the task of an entry with a range without reading the row; with a list of names
    it reads the row. Passing over 50,000 limited runs reads 471 pages for each range, and 2,257 with a
    list."""
    without_tenants: bool = False
    """Not %(without_tenants)s. A loose scan finds these tenants, and passes over them."""

    def tenant(self, name: str) -> str:
        return f" AND {name} <> ALL (CAST(%(without_tenants)s AS text[]))" if self.without_tenants else ""

    def runs(self, columns: str, where: str, order: str, limit: str, *, lock: bool = False) -> str:
        """Return a query for queued runs without a cohort. With ranges of tasks, it may lock as many runs of
        each range."""
        tasks = " AND task = ANY (CAST(%(tasks)s AS text[]))" if self.of_tasks else ""
        ranges = " AND task > between.low AND task < between.high" if self.between_tasks else ""
        query = f"""
        SELECT {columns} FROM evenbeat.runs
        WHERE {_FREE}{tasks}{ranges} AND {where}
        ORDER BY cohort, {order} LIMIT {limit}{" FOR UPDATE SKIP LOCKED" if lock else ""}"""
        if not self.between_tasks:
            return query
        return f"""
        SELECT part.*
        FROM unnest(CAST(%(after_tasks)s AS text[]), CAST(%(before_tasks)s AS text[])) AS between (low, high)
        CROSS JOIN LATERAL ({query}) AS part
        ORDER BY {order} LIMIT {limit}"""


def _groups(conditions: Conditions) -> str:
    """Return an expression for the groups that have runs: an array of [queue, priority, tenant, run_at of the
    first run].

    Of each priority of a queue, it has the tenants up to the first one with a due run and the next one after
    it: a claim asks for the others when it needs them. With one tenant it takes one seek for each priority
    that has runs, and one more. 1,000 tenants with 50 runs each read 10 pages if the first one has a due run,
    and 3,360 if none has.
    """
    after = """queue = present.queue AND (priority, tenant) > (
            CASE WHEN present.follows THEN present.priority + 1 ELSE present.priority END,
            CASE WHEN present.follows THEN '' ELSE present.tenant END
          )"""
    first = conditions.runs("priority, tenant, run_at", after, "priority, tenant, run_at", "1")
    return f"""(
    WITH RECURSIVE present (queue, priority, tenant, run_at, is_due, follows) AS (
        SELECT queue, CAST(-1 AS smallint), '' COLLATE "C", CAST(0 AS bigint), FALSE, FALSE
        FROM unnest(CAST(%(queues)s AS text[])) AS wanted (queue)
        UNION ALL
        SELECT present.queue, next.*, next.run_at <= {_DUE}{conditions.tenant("next.tenant")},
            present.is_due AND next.priority = present.priority
        FROM present
        CROSS JOIN LATERAL (
            {first}
        ) AS next
    )
    SELECT json_agg(json_build_array(queue, priority, tenant, run_at)) FROM present WHERE priority >= 0
)"""


def outlook(conditions: Conditions) -> str:
    """Return what a claim needs to know first, in one statement: an idle worker learns with one read when to
    claim again.

    The columns are the server's clock, whether the claim holds runs already, the limits, whether runs with a
    cohort wait in its queues, and the groups. It takes 0.5 ms, most of it for planning the subqueries:
    0.06 ms for the limits, 0.06 ms for the cohorts. Simpler conditions save 0.02 ms at most.
    """
    return f"""
SELECT
    {SERVERS_CLOCK},
    EXISTS (
        SELECT 1 FROM evenbeat.runs WHERE state = 'running' AND worker = %(worker)s AND claim = %(token)s
    ),
    ARRAY(
        SELECT body FROM evenbeat.records
        WHERE kind = 'limit' AND tenant = 'default' AND (expires IS NULL OR expires > {CLOCK})
        ORDER BY key
    ),
    EXISTS (
        SELECT 1 FROM evenbeat.runs
        WHERE state = 'queued' AND queue = ANY (CAST(%(queues)s AS text[])) AND cohort > ''
          AND format <= %(format)s
    ),
    {_groups(conditions)}
"""


def groups(conditions: Conditions) -> str:
    return f"SELECT {_groups(conditions)}"


# A repeated claim waits here until the first try, whose reply was lost, has ended, and then finds its runs.
# The second lock is shared by all claims, and waits until a limit that is being set is committed: the claim
# then reads it. See LOCK_LIMITS.
LOCK_CLAIM = """
SELECT pg_advisory_xact_lock(hashtextextended(%(token)s, 0)),
    pg_advisory_xact_lock_shared(hashtextextended('"evenbeat" limits', 0))
"""

# Before a limit is written: waits until the claims that have not read it are committed. Otherwise a claim
# that has read it would not count their runs. Claims wait meanwhile, so the wait is short: if a claim is
# frozen, setting the limit fails.
LOCK_LIMITS = """
SELECT set_config('lock_timeout', '1000', true),
    pg_advisory_xact_lock(hashtextextended('"evenbeat" limits', 0))
"""

_OF_TENANT = f"queue = %(queue)s AND priority = %(priority)s AND run_at <= {_DUE} AND tenant = "


def claimable(conditions: Conditions) -> str:
    """Return the due runs of one queue, priority and tenant: one range of the index, which ends at "now"."""
    return conditions.runs(RUN_COLUMNS, f"{_OF_TENANT}%(tenant)s", "run_at, id", "%(limit)s", lock=True)


def claimable_in_turn(conditions: Conditions) -> str:
    """Return due runs of one queue and priority: an equal share for each tenant, of the first tenants after
    %(turn)s, and the share.

    Two loose scans, of the tenants after %(turn)s and of the others. Each ends after %(limit)s tenants with
    due runs. A claim of 100 runs among 50,000 of 1,000 tenants reads 940 pages; of one tenant, 153.
    """

    def first(start: str) -> str:
        where = f"queue = %(queue)s AND priority = %(priority)s AND tenant > {start}"
        return conditions.runs("tenant, run_at", where, "tenant, run_at", "1")

    size = "(SELECT size FROM share)"
    runs = conditions.runs(RUN_COLUMNS, f"{_OF_TENANT}served.tenant", "run_at, id", size, lock=True)
    is_due = f"CASE WHEN {{0}}.run_at <= {_DUE}{conditions.tenant('{0}.tenant')} THEN 1 ELSE 0 END"
    return f"""
WITH RECURSIVE present (is_before, tenant, run_at, is_due, found) AS (
    SELECT is_before, first.*, {is_due.format("first")}, {is_due.format("first")}
    FROM (VALUES (FALSE, CAST(%(turn)s AS text)), (TRUE, '')) AS part (is_before, start)
    CROSS JOIN LATERAL ({first("part.start")}) AS first
    WHERE NOT is_before OR first.tenant <= %(turn)s
    UNION ALL
    SELECT is_before, next.*, {is_due.format("next")}, found + {is_due.format("next")}
    FROM present
    CROSS JOIN LATERAL ({first("present.tenant")}) AS next
    WHERE found < %(limit)s AND (NOT is_before OR next.tenant <= %(turn)s)
), served AS MATERIALIZED (
    SELECT tenant FROM present WHERE is_due = 1 ORDER BY is_before, tenant LIMIT %(limit)s
), share (size) AS MATERIALIZED (
    SELECT (%(limit)s + count(*) - 1) / greatest(1, count(*)) FROM served
)
SELECT run.*, {size} FROM served
CROSS JOIN LATERAL ({runs}) AS run
"""


def claimable_of_tenants(conditions: Conditions) -> str:
    """Return due runs of some tenants of one queue and priority: for each as many as its ``room``, and
    that."""
    runs = conditions.runs(RUN_COLUMNS, f"{_OF_TENANT}wanted.tenant", "run_at, id", "wanted.room", lock=True)
    return f"""
SELECT run.*, wanted.room FROM {rows_of(("tenant", "room"))}
CROSS JOIN LATERAL ({runs}) AS run
"""


# 20 us a run in batches of 500, together with the reads before it; 39 us in batches of 100.
CLAIM = f"""
UPDATE evenbeat.runs
SET state = 'running', attempt = attempt + 1, worker = %(worker)s, claim = %(token)s,
    lease_until = %(lease_until)s, started_at = %(started_at)s
WHERE id = {listed("ids")}
"""

SELECT_CLAIMED = f"""
SELECT {RUN_COLUMNS} FROM evenbeat.runs
WHERE state = 'running' AND worker = %(worker)s AND claim = %(token)s
ORDER BY priority DESC, run_at, id
"""

# -- Limited runs ------------------------------------------------------------------------------------------

# One claim of limited runs at a time. A claim that does not get the lock takes unlimited runs only. The
# server ends the session of a claim that is frozen while it has the lock.
LOCK_LIMITED = """
SELECT pg_try_advisory_xact_lock(hashtextextended('"evenbeat" limited claims', 0)),
    set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, true)
"""

# Runs after LOCK_LIMITED, so it sees the runs of all claims before this one. Reads all running runs.
COUNT_RUNNING = """
SELECT cohort, count(*) FROM evenbeat.runs WHERE state = 'running' AND cohort IS NOT NULL GROUP BY cohort
"""

# The columns on which a cohort depends. Only limits with a key need the payload, which may be large.
_COHORT_SOURCE = """id, queue, priority, tenant, task,
    CASE WHEN %(has_keys)s THEN payload ELSE 'null' END AS payload, kind, run_at"""

# Like Limits.may_concern: the runs that started before a limit was set.
SELECT_RUNNING = f"""
SELECT {_COHORT_SOURCE} FROM evenbeat.runs
WHERE state = 'running' AND cohort IS NULL AND (
    %(any)s OR task = ANY (CAST(%(limited_tasks)s AS text[]))
    OR tenant = ANY (CAST(%(limited_tenants)s AS text[])) OR queue = ANY (CAST(%(limited_queues)s AS text[]))
)
"""
SELECT_RUNNING_OF_COHORTS = f"""
SELECT {_COHORT_SOURCE} FROM evenbeat.runs WHERE state = 'running' AND cohort = {listed("cohorts")}
"""

# The cohorts with queued runs, each with its first run. One seek for each cohort: 1,000 cohorts of 50 runs
# read 3,372 pages.
SELECT_COHORTS = """
WITH RECURSIVE present (queue, cohort, run_at, id, tenant, priority) AS (
    SELECT queue, '' COLLATE "C", CAST(0 AS bigint), '' COLLATE "C", '' COLLATE "C", CAST(0 AS smallint)
    FROM unnest(CAST(%(queues)s AS text[])) AS wanted (queue)
    UNION ALL
    SELECT present.queue, next.* FROM present
    CROSS JOIN LATERAL (
        SELECT cohort, run_at, id, tenant, priority FROM evenbeat.runs
        WHERE state = 'queued' AND queue = present.queue AND cohort > present.cohort AND format <= %(format)s
        ORDER BY cohort, priority, tenant, run_at, id LIMIT 1
    ) AS next
)
SELECT * FROM present WHERE cohort > ''
"""


def unassigned(of_tasks: bool) -> str:
    """Return due runs without a cohort that a limit may concern, the highest priority first.

    An equal part of them from each queue, priority and tenant: a tenant with many runs does not delay the
    others. ``of_tasks``: only %(tasks)s.
    """
    claims = " AND task = ANY (CAST(%(tasks)s AS text[]))" if of_tasks else ""
    source = f"""
        SELECT {_COHORT_SOURCE} FROM evenbeat.runs
        WHERE {_FREE} AND queue = present.queue AND priority = present.priority AND tenant = present.tenant
          AND run_at <= {_DUE}"""
    order = "ORDER BY cohort, run_at, id LIMIT (SELECT size FROM part)"
    return f"""
WITH RECURSIVE present (queue, priority, tenant) AS (
    SELECT wanted.queue, first.* FROM unnest(CAST(%(queues)s AS text[])) AS wanted (queue)
    CROSS JOIN LATERAL (
        SELECT priority, tenant FROM evenbeat.runs WHERE {_FREE} AND queue = wanted.queue
        ORDER BY cohort, priority, tenant LIMIT 1
    ) AS first
    UNION ALL
    SELECT present.queue, next.* FROM present
    CROSS JOIN LATERAL (
        SELECT priority, tenant FROM evenbeat.runs WHERE {_FREE} AND queue = present.queue
          AND (priority, tenant) > (present.priority, present.tenant)
        ORDER BY cohort, priority, tenant LIMIT 1
    ) AS next
), part (size) AS MATERIALIZED (
    SELECT greatest(5, %(most)s / greatest(1, count(*))) FROM present
)
SELECT run.* FROM (
    SELECT *, %(any)s OR tenant = ANY (CAST(%(limited_tenants)s AS text[]))
        OR queue = ANY (CAST(%(limited_queues)s AS text[])) AS is_limited
    FROM present
) AS present
CROSS JOIN LATERAL (
    ({source}{claims} AND present.is_limited {order})
    UNION ALL
    ({source} AND NOT present.is_limited AND task = ANY (CAST(%(limited_tasks)s AS text[])) {order})
) AS run
ORDER BY run.priority DESC, run.run_at, run.id LIMIT %(most)s
"""


SELECT_QUEUED_OF_COHORTS = f"""
SELECT run.* FROM {rows_of(("queue", "cohort"))}
CROSS JOIN LATERAL (
    SELECT {_COHORT_SOURCE} FROM evenbeat.runs
    WHERE state = 'queued' AND queue = wanted.queue AND cohort = wanted.cohort AND format <= %(format)s
    ORDER BY cohort, priority, tenant, run_at, id LIMIT %(most)s
) AS run
ORDER BY run.run_at, run.id LIMIT %(most)s
"""

# Skips runs that another transaction has locked: a later claim gives them their cohort. The fourth word of a
# cohort is its task, and the fifth marks flows: a run that was moved to another task since, or turned out to
# be a flow, is left alone.
GIVE_COHORTS = f"""
UPDATE evenbeat.runs AS run SET cohort = wanted.cohort
FROM {rows_of(("id", "cohort"))}
WHERE run.id = wanted.id AND (wanted.cohort IS NULL OR (
    split_part(wanted.cohort, ' ', 4) = run.task
    AND (split_part(wanted.cohort, ' ', 5) = '=flow') = (run.kind = 'flow')
))
AND run.id = ANY (ARRAY(
    SELECT id FROM evenbeat.runs WHERE id = {listed("ids")} AND state IN ('queued', 'running')
    ORDER BY id FOR UPDATE SKIP LOCKED
))
"""

SELECT_BUCKETS = f"""
SELECT key, body FROM evenbeat.records
WHERE kind = 'bucket' AND tenant = 'default' AND key = {listed("keys")}
  AND (expires IS NULL OR expires > {CLOCK})
"""

# The first due runs of cohorts, as many of each as there is room for, if there is room for more than one.
SELECT_HEADS = f"""
SELECT wanted.cohort, run.id, run.tenant, run.priority, run.run_at
FROM {rows_of(("queue", "cohort", "room"))}
CROSS JOIN LATERAL (
    SELECT id, tenant, priority, run_at FROM evenbeat.runs
    WHERE state = 'queued' AND queue = wanted.queue AND cohort = wanted.cohort AND format <= %(format)s
      AND run_at <= {_DUE}
    ORDER BY cohort, priority, tenant, run_at, id LIMIT wanted.room
) AS run
"""

# Another transaction may have cancelled a run since SELECT_HEADS.
LOCK_HEADS = f"""
SELECT {RUN_COLUMNS} FROM evenbeat.runs
WHERE id = {listed("ids")} AND state = 'queued' AND cohort IS NOT NULL AND run_at <= {_DUE}
ORDER BY id FOR UPDATE SKIP LOCKED
"""

# When the next run of each of these cohorts is due.
SELECT_FIRSTS = f"""
SELECT wanted.cohort, first.run_at
FROM {rows_of(("queue", "cohort"))}
CROSS JOIN LATERAL (
    SELECT run_at FROM evenbeat.runs
    WHERE state = 'queued' AND queue = wanted.queue AND cohort = wanted.cohort AND format <= %(format)s
    ORDER BY cohort, priority, tenant, run_at LIMIT 1
) AS first
"""

COLUMNS = len(RUN)
"""The number of columns of a run, which come first."""
