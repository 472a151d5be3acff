"""The statements, each with its reason. They name the default schema, ``evenbeat``; see ``Place.own``.

Batches travel as one JSON text (``json_to_recordset``): 500 runs of 31 columns take 16 us each so, indexes
and all, where arrays (``unnest``) take 40 and jsonb 22. Lists are compared by ``= ANY (ARRAY(SELECT …))``,
never by a join: the planner expects a few values then and looks them up in the index, whatever it knows of
the table.

Locks are taken in one order by everybody: schedules by (tenant, name), then runs by id, then rows that are
new, then statistics. What may be skipped is skipped (SKIP LOCKED), so nobody waits in a circle.
"""

from __future__ import annotations

from evenbeat.stores.rows import FIRED_FIELDS, RUN, SCHEDULE, SKIPPED, STATISTICS

_NUMBERS = frozenset(
    (
        "priority",
        "max_concurrent",
        "spread",
        "paused_until",
        "paused_at",
        "anchor",
        "next_tick",
        "moved",
        "wake_at",
        "last_fire",
        "revision",
        "fire_seq",
        "generation",
        "created_at",
        "updated_at",
        "format",
        "tick",
        "coalesced",
        "scheduled_at",
        "run_at",
        "attempt",
        "failures",
        "crashes",
        "lease_until",
        "started_at",
        "finished_at",
        "first",
        "last",
        "count",
        "recorded_at",
        "run_count",
        "success_count",
        "failure_count",
        "last_run",
        "last_success",
        "last_failure",
        "seq",
        "at",
    )
)
_FLAGS = frozenset(("cancel_requested", "is_gate"))

SCHEDULE_COLUMNS = ", ".join(SCHEDULE)
RUN_COLUMNS = ", ".join(RUN)


def rows_of(columns: tuple[str, ...], placeholder: str = "%(rows)s") -> str:
    """A JSON array of objects as a table."""
    kinds = ("bigint" if name in _NUMBERS else "boolean" if name in _FLAGS else "text" for name in columns)
    fields = ", ".join(f"{name} {kind}" for name, kind in zip(columns, kinds, strict=True))
    return f"json_to_recordset(CAST(CAST({placeholder} AS text) AS json)) AS wanted ({fields})"


def listed(placeholder: str) -> str:
    """Any of a JSON array of texts."""
    return f"ANY (ARRAY(SELECT json_array_elements_text(CAST(%({placeholder})s AS json))))"


# -- Transactions ------------------------------------------------------------------------------------------

# The server's clock, at which its transaction began, unless another one stands in for it.
_SERVERS_CLOCK = "CAST(floor(extract(epoch FROM now()) * 1000) AS bigint)"
CLOCK = f"coalesce(CAST(%(clock)s AS bigint), {_SERVERS_CLOCK})"

GET_CLOCK = f"SELECT {_SERVERS_CLOCK}"

# Whatever a role or a database has for its default.
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
COMMIT = "COMMIT"

# A commit that was acknowledged survives a crash of the server; a role or database with remote_apply, which
# is more than that, keeps it. That no standby has it comes as a warning, which a role may have switched off.
DURABLE = """
    set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true),
    set_config('client_min_messages', 'warning', true)
""".strip()

# One statement for all: 20 us, and what it sets ends with the transaction. Tables that grow and shrink by the
# minute are never what the planner believes: it is kept from reading all of one, or all that is due, to sort
# it.
SETTINGS = f"""
SELECT
    {CLOCK}, {_SERVERS_CLOCK}, {DURABLE},
    set_config('lock_timeout', %(lock_timeout)s, true),
    set_config('statement_timeout', %(statement_timeout)s, true),
    set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, true),
    set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)
"""

# A hint is no promise: it waits for no disk.
NOTIFY = """
SELECT set_config('synchronous_commit', 'off', true), pg_notify(%(channel)s, %(sender)s)
"""

# -- Firing ------------------------------------------------------------------------------------------------

_NEXT_WAKE = """
SELECT wake_at FROM evenbeat.schedules WHERE wake_at IS NOT NULL AND format <= %(format)s
ORDER BY wake_at LIMIT 1
"""

# What a pass with nothing due costs: one entry of the index, and no lock.
LOOK = f"SELECT ({_NEXT_WAKE}), {_SERVERS_CLOCK}"
NEXT_WAKE = _NEXT_WAKE

# What was declared may be long, and no fire needs it.
SELECT_DUE = f"""
SELECT {", ".join("''" if name == "declared" else name for name in SCHEDULE)} FROM evenbeat.schedules
WHERE wake_at <= least(CAST(%(now)s AS bigint), {CLOCK}) AND format <= %(format)s
ORDER BY wake_at LIMIT %(limit)s
FOR UPDATE SKIP LOCKED
"""

# After the schedules are locked: a run that ends from here on waits for them to wake its own.
SELECT_ACTIVE = f"""
SELECT run.tenant, run.schedule, run.id, run.state, run.cancel_requested
FROM {rows_of(("tenant", "name"))}
CROSS JOIN LATERAL (
    SELECT * FROM evenbeat.runs AS found
    WHERE found.tenant = wanted.tenant AND found.schedule = wanted.name
      AND found.schedule IS NOT NULL AND found.state IN ('queued', 'running')
    OFFSET 0
) AS run
ORDER BY run.created_at, run.id
"""

# Its own fields and no others: where the schedule stands, never what a user said. Two processes fire 20,000
# to 30,000 ticks a second in batches of 500.
ADVANCE_SCHEDULES = f"""
UPDATE evenbeat.schedules AS schedule SET {", ".join(f"{name} = wanted.{name}" for name in FIRED_FIELDS)}
FROM {rows_of(("tenant", "name", *FIRED_FIELDS))}
WHERE schedule.tenant = wanted.tenant AND schedule.name = wanted.name
"""

PUT_TO_SLEEP = f"""
UPDATE evenbeat.schedules AS schedule SET wake_at = NULL
FROM {rows_of(("tenant", "name"))}
WHERE schedule.tenant = wanted.tenant AND schedule.name = wanted.name
"""


def _insert_runs(placeholder: str = "%(rows)s") -> str:
    # In the order of their ids: two that add the same ones wait for each other, in turn.
    return f"""
INSERT INTO evenbeat.runs ({RUN_COLUMNS})
SELECT {RUN_COLUMNS} FROM {rows_of(RUN, placeholder)}
ORDER BY id COLLATE "C"
ON CONFLICT (id) DO NOTHING
RETURNING id
""".strip()


# 16 us a run; 20 with those of schedules, which stand in two indexes more.
INSERT_RUNS = _insert_runs()

# For connections of others: the hint is delivered when, and if, their transaction commits.
INSERTION = f"""
WITH added AS (
{_insert_runs("{}")}
), told AS MATERIALIZED (
SELECT pg_notify('evenbeat_wake', '') FROM added LIMIT 1
)
SELECT added.id FROM added LEFT JOIN told ON TRUE
""".strip()

INSERT_SKIPPED = f"""
INSERT INTO evenbeat.skipped ({", ".join(SKIPPED)}) SELECT {", ".join(SKIPPED)} FROM {rows_of(SKIPPED)}
"""

REQUEST_CANCELS = f"""
UPDATE evenbeat.runs SET cancel_requested = TRUE
WHERE id = ANY (ARRAY(
    SELECT id FROM evenbeat.runs WHERE id = {listed("ids")} AND state IN ('queued', 'running')
    ORDER BY id FOR UPDATE
))
"""

QUARANTINE = f"""
INSERT INTO evenbeat.records AS present (kind, tenant, key, version, body)
SELECT 'quarantine', tenant, key, 1, body FROM {rows_of(("tenant", "key", "body"))}
ORDER BY tenant COLLATE "C", key COLLATE "C"
ON CONFLICT (kind, tenant, key)
DO UPDATE SET version = present.version + 1, body = excluded.body, expires = NULL
"""

# -- Schedules ---------------------------------------------------------------------------------------------

LOCK_SCHEDULES = f"""
SELECT {", ".join(f"schedule.{name}" for name in SCHEDULE)}
FROM {rows_of(("tenant", "name"))}
JOIN evenbeat.schedules AS schedule ON schedule.tenant = wanted.tenant AND schedule.name = wanted.name
ORDER BY schedule.tenant, schedule.name
FOR UPDATE OF schedule
"""

# No ON CONFLICT: who was faster has made the row from which this write must be decided anew.
INSERT_SCHEDULES = f"""
INSERT INTO evenbeat.schedules ({SCHEDULE_COLUMNS})
SELECT {SCHEDULE_COLUMNS} FROM {rows_of(SCHEDULE)}
ORDER BY tenant COLLATE "C", name COLLATE "C"
"""
UPDATE_SCHEDULES = f"""
UPDATE evenbeat.schedules AS schedule SET {", ".join(f"{name} = wanted.{name}" for name in SCHEDULE[2:])}
FROM {rows_of(SCHEDULE)}
WHERE schedule.tenant = wanted.tenant AND schedule.name = wanted.name
"""

SELECT_PRESENT = f"SELECT id FROM evenbeat.runs WHERE id = {listed('ids')}"

# -- Runs --------------------------------------------------------------------------------------------------

_OF_TASKS = "AND task = ANY (CAST(%(tasks)s AS text[]))"


def _outlook(condition: str) -> str:
    return f"""
SELECT
    {_SERVERS_CLOCK},
    EXISTS (
        SELECT 1 FROM evenbeat.runs WHERE state = 'running' AND worker = %(worker)s AND claim = %(token)s
    ),
    ARRAY(
        SELECT min(first.run_at)
        FROM generate_series(9, 0, -1) AS level
        CROSS JOIN unnest(CAST(%(queues)s AS text[])) AS wanted
        LEFT JOIN LATERAL (
            SELECT run_at FROM evenbeat.runs
            WHERE state = 'queued' AND queue = wanted AND priority = level
              AND format <= %(format)s {condition}
            ORDER BY run_at LIMIT 1
        ) AS first ON TRUE
        GROUP BY level ORDER BY level DESC
    )
"""


# The first entry of each range that a claim walks through, the highest priority first, and whether it holds
# runs already: 10 seeks per queue, so that an idle worker learns in one read when to come back.
OUTLOOK = _outlook("")
OUTLOOK_OF_TASKS = _outlook(_OF_TASKS)

# A repetition waits here until the first try, whose reply was lost, has ended: it then finds what that took.
LOCK_CLAIM = "SELECT pg_advisory_xact_lock(hashtextextended(%(token)s, 0))"


def _claimable(condition: str) -> str:
    return f"""
SELECT {RUN_COLUMNS} FROM evenbeat.runs
WHERE state = 'queued' AND queue = %(queue)s AND priority = %(priority)s
  AND run_at <= least(CAST(%(now)s AS bigint), {CLOCK}) AND format <= %(format)s {condition}
ORDER BY run_at, id LIMIT %(limit)s
FOR UPDATE SKIP LOCKED
"""


# One range of the index for each queue and priority: it ends at "now", so that runs of the future are never
# read.
SELECT_CLAIMABLE = _claimable("")
SELECT_CLAIMABLE_OF_TASKS = _claimable(_OF_TASKS)

# 20 us a run in batches of 500, with what was looked for before; 39 in batches of 100.
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

# A run that can't be read would stand at the head of its queue for ever.
FAIL_UNREADABLE = f"""
UPDATE evenbeat.runs AS run
SET state = 'failed', error = wanted.error, finished_at = wanted.finished_at, lease_until = NULL, claim = NULL
FROM {rows_of(("id", "error", "finished_at"))}
WHERE run.id = wanted.id
"""

# Walk through all that is running, and nothing of history.
SELECT_LOST = f"""
SELECT {RUN_COLUMNS} FROM evenbeat.runs
WHERE state = 'running' AND coalesce(lease_until, 0) <= least(CAST(%(ended_by)s AS bigint), {CLOCK})
ORDER BY coalesce(lease_until, 0), id LIMIT %(limit)s
"""
NEXT_LEASE_END = f"""
SELECT min(coalesce(lease_until, 0)) FROM evenbeat.runs
WHERE state = 'running' AND coalesce(lease_until, 0) > least(CAST(%(ended_by)s AS bigint), {CLOCK})
"""

# First of all: whoever fires holds its schedule and then adds runs or asks them to stop. Who ends a run that
# a schedule may wait for, or makes one active again, waits until that is written; else the tick would not be
# woken, or fire beside a run that it did not see. A schedule that never waits is looked up, 3 us, and not
# locked: its runs end beside its fires.
LOCK_GATES = f"""
SELECT schedule.tenant, schedule.name, schedule.generation, schedule.revision
FROM {rows_of(("tenant", "name", "is_gate"))}
JOIN evenbeat.schedules AS schedule ON schedule.tenant = wanted.tenant AND schedule.name = wanted.name
WHERE wanted.is_gate OR schedule.overlap <> 'allow' OR schedule.max_concurrent IS NOT NULL
ORDER BY schedule.tenant, schedule.name
FOR UPDATE OF schedule
"""

LOCK_RUNS = f"""
SELECT id, state, attempt, settled, lease_until FROM evenbeat.runs WHERE id = {listed("ids")}
ORDER BY id FOR UPDATE
"""


def update_runs(fields: tuple[str, ...]) -> str:
    """The statement that sets these fields of runs, by id. Settling takes 18 us a run in batches of 500."""
    return f"""
UPDATE evenbeat.runs AS run SET {", ".join(f"{name} = wanted.{name}" for name in fields)}
FROM {rows_of(("id", *fields))}
WHERE run.id = wanted.id
"""


# As decisions.added: counts are summed, and what is not said stays as it was.
COUNT = f"""
INSERT INTO evenbeat.statistics AS known ({", ".join(STATISTICS)})
SELECT {", ".join(STATISTICS)} FROM {rows_of(STATISTICS)}
ORDER BY tenant COLLATE "C", schedule COLLATE "C"
ON CONFLICT (tenant, schedule) DO UPDATE SET
    run_count = least(known.run_count, 9007199254740991) + excluded.run_count,
    success_count = least(known.success_count, 9007199254740991) + excluded.success_count,
    failure_count = least(known.failure_count, 9007199254740991) + excluded.failure_count,
    last_run = coalesce(nullif(excluded.last_run, 0), known.last_run),
    last_success = coalesce(nullif(excluded.last_success, 0), known.last_success),
    last_failure = coalesce(nullif(excluded.last_failure, 0), known.last_failure),
    last_error = coalesce(excluded.last_error, known.last_error)
"""

# As firing.waits. LOCK_GATES came before, so no other transaction has the row in hand.
WAKE = f"""
UPDATE evenbeat.schedules AS schedule SET wake_at = next_tick
FROM {rows_of(("tenant", "name"))}
WHERE schedule.tenant = wanted.tenant AND schedule.name = wanted.name AND state = 'active'
  AND wake_at > next_tick AND (overlap <> 'allow' OR max_concurrent IS NOT NULL)
"""
