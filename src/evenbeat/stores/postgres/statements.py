"""The SQL statements, each with its reason. They name the default schema, ``evenbeat``; see ``Location.own``.

A batch is one JSON text (``json_to_recordset``): 500 runs of 31 columns take 16 us each, with all
indexes; arrays (``unnest``) take 40 us and jsonb 22 us. Statements compare with a list by
``= ANY (ARRAY(SELECT …))``, never by a join: the planner then expects a few values and uses the index,
whatever its statistics of the table are.

Every transaction takes its locks in one order: schedules by (tenant, name), then runs by id, then new rows,
then records, then statistics. Firing, claiming and purging skip locked rows (SKIP LOCKED). So there are no
deadlocks.
"""

from __future__ import annotations

from evenbeat.rules.dependencies import FOLLOWER
from evenbeat.stores.rows import FIRED_FIELDS, RUN, SCHEDULE, SKIPPED, STATISTICS, UNFIRED

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
        "version",
        "expires",
        "room",
    )
)
_FLAGS = frozenset(("cancel_requested", "counts", "is_gate", "succeeds"))

SCHEDULE_COLUMNS = ", ".join(SCHEDULE)
RUN_COLUMNS = ", ".join(RUN)


def rows_of(columns: tuple[str, ...], placeholder: str = "%(rows)s") -> str:
    """Return a table expression for a JSON array of objects."""
    kinds = ("bigint" if name in _NUMBERS else "boolean" if name in _FLAGS else "text" for name in columns)
    fields = ", ".join(f"{name} {kind}" for name, kind in zip(columns, kinds, strict=True))
    return f"json_to_recordset(CAST(CAST({placeholder} AS text) AS json)) AS wanted ({fields})"


def listed(placeholder: str) -> str:
    """Return an ``ANY`` expression over a JSON array of texts."""
    return f"ANY (ARRAY(SELECT json_array_elements_text(CAST(%({placeholder})s AS json))))"


# -- Transactions ------------------------------------------------------------------------------------------

# The time at which the transaction began, by the server's clock; a given ``clock`` overrides it.
SERVERS_CLOCK = "CAST(floor(extract(epoch FROM now()) * 1000) AS bigint)"
CLOCK = f"coalesce(CAST(%(clock)s AS bigint), {SERVERS_CLOCK})"

GET_CLOCK = f"SELECT {SERVERS_CLOCK}"

# Overrides the isolation level and the access mode that a role or a database may set.
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
COMMIT = "COMMIT"

# Makes an acknowledged commit survive a crash of the server. Keeps the stronger remote_apply if the role or
# the database sets it. Turns warnings on, which a role may have switched off: the server warns if no standby
# has the commit.
DURABLE = """
    set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true),
    set_config('client_min_messages', 'warning', true)
""".strip()

# One statement for all settings takes 20 us. They end with the transaction. The planner's statistics are
# wrong for tables that grow and shrink by the minute. Without these settings it might read a whole table, or
# sort all due rows.
SETTINGS = f"""
SELECT
    {CLOCK}, {SERVERS_CLOCK}, {DURABLE},
    set_config('lock_timeout', %(lock_timeout)s, true),
    set_config('statement_timeout', %(statement_timeout)s, true),
    set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, true),
    set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)
"""

# A hint may be lost, so its commit does not wait for the disk.
NOTIFY = """
SELECT set_config('synchronous_commit', 'off', true), pg_notify(%(channel)s, %(sender)s)
"""

# -- Firing ------------------------------------------------------------------------------------------------

_NEXT_WAKE = """
SELECT wake_at FROM evenbeat.schedules WHERE wake_at IS NOT NULL AND format <= %(format)s
ORDER BY wake_at LIMIT 1
"""

# The same for several schedules, if some of them are left out.
NEXT_WAKES = """
SELECT wake_at, tenant, name FROM evenbeat.schedules WHERE wake_at IS NOT NULL AND format <= %(format)s
ORDER BY wake_at LIMIT %(limit)s
"""

# If nothing is due, firing reads one index entry, and takes no lock.
SELECT_NEXT_WAKE = f"SELECT ({_NEXT_WAKE}), {SERVERS_CLOCK}"
NEXT_WAKE = _NEXT_WAKE

# Firing does not need "declared", which may be long, nor what UNFIRED lists beside it.
SELECT_DUE = f"""
SELECT {", ".join("''" if name in UNFIRED else name for name in SCHEDULE)} FROM evenbeat.schedules
WHERE wake_at <= least(CAST(%(now)s AS bigint), {CLOCK}) AND format <= %(format)s
ORDER BY wake_at LIMIT %(limit)s
FOR UPDATE SKIP LOCKED
"""

# Runs after SELECT_DUE has locked the schedules. A run that ends later waits for the lock of its schedule
# before it wakes the schedule.
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

# Like SELECT_ACTIVE, after SELECT_DUE: a success that is settled later waits for the lock of the follower.
SELECT_LAST_SUCCESSES = f"""
SELECT figures.tenant, figures.schedule, figures.last_success
FROM {rows_of(("tenant", "name"))}
JOIN evenbeat.statistics AS figures ON figures.tenant = wanted.tenant AND figures.schedule = wanted.name
"""
SELECT_PENDING = f"""
SELECT wanted.tenant, wanted.name, pending.key, pending.body
FROM {rows_of(("tenant", "name"))}
CROSS JOIN LATERAL (
    SELECT key, body FROM evenbeat.records
    WHERE kind = 'success' AND tenant = wanted.tenant
      AND key >= wanted.name || '/' AND key < wanted.name || '0'
    ORDER BY key LIMIT %(limit)s
) AS pending
"""
# By ctid: a join with a list of unknown length may read the whole table.
DELETE_SPENT = f"""
DELETE FROM evenbeat.records WHERE ctid = ANY (ARRAY(
    SELECT spent.ctid FROM {rows_of(("kind", "tenant", "key"))}
    CROSS JOIN LATERAL (
        SELECT ctid FROM evenbeat.records AS record
        WHERE record.kind = wanted.kind AND record.tenant = wanted.tenant AND record.key = wanted.key
        LIMIT 1
    ) AS spent
))
"""

# Writes only the fields of firing, never those that users set. Two processes fire 20,000 to 30,000 ticks a
# second in batches of 500.
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


def _insert_runs(placeholder: str = "%(rows)s", which: str = "") -> str:
    # Inserts in the order of ids: transactions that add the same runs wait for each other without a deadlock.
    return f"""
INSERT INTO evenbeat.runs ({RUN_COLUMNS})
SELECT {RUN_COLUMNS} FROM {rows_of(RUN, placeholder)}
{which}
ORDER BY id COLLATE "C"
ON CONFLICT (id) DO NOTHING
RETURNING id
""".strip()


# 16 us a run; 20 us for runs of schedules, which are in two more indexes.
INSERT_RUNS = _insert_runs()
# The clock of the moment, not of the beginning of the transaction. The planner evaluates the condition once.
INSERT_RUNS_BEFORE = _insert_runs(
    which="""WHERE CAST(%(before)s AS bigint) > coalesce(
    CAST(%(clock)s AS bigint), CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)
)"""
)

# For users' connections: the server sends the hint when, and if, their transaction commits.
_NOTIFIED = """
notified AS MATERIALIZED (
SELECT pg_notify('evenbeat_wake', '') FROM added LIMIT 1
)
SELECT added.id FROM added LEFT JOIN notified ON TRUE
""".strip()
INSERTION = f"""
WITH added AS (
{_insert_runs("{}")}
), {_NOTIFIED}
""".strip()


def insertion_before(before: int, clock: int | None) -> str:
    """Return a statement like INSERTION that adds nothing from ``before`` on: its only row is NULL then.

    It reads the clock once: if the insertion and the answer did so each, they might differ. The numbers are
    in the text, since a statement for users' connections has one value.
    """
    now = (
        "CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)" if clock is None else int(clock)
    )
    return f"""
WITH moment AS MATERIALIZED (
SELECT {int(before)} > {now} AS is_early
), added AS (
{_insert_runs("{}", "WHERE (SELECT is_early FROM moment)")}
), {_NOTIFIED}
UNION ALL SELECT NULL FROM moment WHERE NOT is_early
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

# No ON CONFLICT: if another transaction has inserted the row, the store reads that row and decides again.
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

# A search reads these schedules alone, and then sorts them. OFFSET 0: conditions of the search do not change
# the plan. 4 pages a schedule, among 100,000.
SCHEDULES_BY_KEY = f"""
(
    SELECT found.* FROM {rows_of(("tenant", "name"), "%s")}
    CROSS JOIN LATERAL (
        SELECT * FROM evenbeat.schedules AS schedule
        WHERE schedule.tenant = wanted.tenant AND schedule.name = wanted.name
        OFFSET 0
    ) AS found
) AS schedules
""".strip()

# The planner's statistics are outdated as soon as schedules fire: they say that all wake-ups are past. It
# does not know the values of a subquery, and assumes that a closed range is a two-hundredth of the table.
# With such statistics, 100 late ones among 100,000 take 91 pages (0.8 ms).
SCHEDULES_BY_WAKE_UP = """
(
    SELECT * FROM evenbeat.schedules
    WHERE wake_at BETWEEN (SELECT CAST('-9223372036854775808' AS bigint)) AND (SELECT CAST(%s AS bigint))
    OFFSET 0
) AS schedules
""".strip()

SELECT_PRESENT = f"SELECT id FROM evenbeat.runs WHERE id = {listed('ids')}"

# -- Runs --------------------------------------------------------------------------------------------------

# An unreadable run would stay at the head of its queue forever.
FAIL_UNREADABLE = f"""
UPDATE evenbeat.runs AS run
SET state = 'failed', error = wanted.error, finished_at = wanted.finished_at, lease_until = NULL, claim = NULL
FROM {rows_of(("id", "error", "finished_at"))}
WHERE run.id = wanted.id
"""

# Reads all running runs, and nothing of the history.
SELECT_LOST = f"""
SELECT {RUN_COLUMNS} FROM evenbeat.runs
WHERE state = 'running' AND coalesce(lease_until, 0) <= least(CAST(%(ended_by)s AS bigint), {CLOCK})
ORDER BY coalesce(lease_until, 0), id LIMIT %(limit)s
"""
NEXT_LEASE_END = f"""
SELECT min(coalesce(lease_until, 0)) FROM evenbeat.runs
WHERE state = 'running' AND coalesce(lease_until, 0) > least(CAST(%(ended_by)s AS bigint), {CLOCK})
"""

# The first statement of a settlement. A fire locks its schedule, and then adds runs or requests their
# cancelling. A settlement that ends a run for which a schedule may wait, or makes a run active again, waits
# for that lock. Otherwise the settlement would not wake the schedule, or the fire would add a run beside one
# that it did not see. The statement reads a schedule that never waits, which takes 3 us, and does not lock
# it: its runs can end while it fires. It locks the followers of a schedule whose run succeeds, too, in the
# same order: a second statement would lock them out of order, and could deadlock. It does not lock the list
# of followers, so that runs of a schedule without any end while it fires: a follower that is created after
# this statement has read the list, and before the commit, is not told. The run had ended before that: see
# test_postgres_dependencies.
LOCK_GATES = f"""
WITH named AS MATERIALIZED (
    SELECT wanted.tenant, wanted.name,
        CASE WHEN wanted.succeeds THEN present.followers ELSE '' END AS followers,
        wanted.is_gate OR present.overlap <> 'allow' OR present.max_concurrent IS NOT NULL AS is_gate
    FROM {rows_of(("tenant", "name", "is_gate", "succeeds"))}
    JOIN evenbeat.schedules AS present ON present.tenant = wanted.tenant AND present.name = wanted.name
), gate AS MATERIALIZED (
    SELECT tenant, name, CAST(NULL AS text) AS leader FROM named WHERE is_gate
    UNION ALL
    SELECT tenant, follower.name, named.name
    FROM named CROSS JOIN LATERAL unnest(string_to_array(followers, ' ')) AS follower (name)
    WHERE followers <> ''
)
SELECT schedule.tenant, schedule.name, schedule.generation, schedule.revision, schedule.fire_seq, gate.leader,
    {", ".join(f"schedule.{name}" for name in FOLLOWER)}
FROM gate
JOIN evenbeat.schedules AS schedule ON schedule.tenant = gate.tenant AND schedule.name = gate.name
ORDER BY schedule.tenant, schedule.name
FOR UPDATE OF schedule
"""

# LOCK_GATES came before.
COUNT_FIRES = f"""
UPDATE evenbeat.schedules AS schedule SET fire_seq = fire_seq + 1
FROM {rows_of(("tenant", "name"))}
WHERE schedule.tenant = wanted.tenant AND schedule.name = wanted.name
"""

# LOCK_GATES came before.
WAKE_FOLLOWERS = f"""
UPDATE evenbeat.schedules AS schedule
SET wake_at = wanted.wake_at, fire_seq = fire_seq + CASE WHEN wanted.counts THEN 1 ELSE 0 END
FROM {rows_of(("tenant", "name", "wake_at", "counts"))}
WHERE schedule.tenant = wanted.tenant AND schedule.name = wanted.name
"""

LOCK_RUNS = f"""
SELECT id, state, attempt, settled, lease_until, cohort, claim
FROM evenbeat.runs WHERE id = {listed("ids")}
ORDER BY id FOR UPDATE
"""


def update_runs(fields: tuple[str, ...]) -> str:
    """Return the statement that sets these fields of runs, by id. Settling takes 18 us a run in batches of
    500."""
    return f"""
UPDATE evenbeat.runs AS run SET {", ".join(f"{name} = wanted.{name}" for name in fields)}
FROM {rows_of(("id", *fields))}
WHERE run.id = wanted.id
"""


# Like decisions.added: counts are summed, and fields that are not given stay unchanged.
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

# Like firing.waits. LOCK_GATES came before, so no other transaction has locked the row.
WAKE = f"""
UPDATE evenbeat.schedules AS schedule SET wake_at = next_tick
FROM {rows_of(("tenant", "name"))}
WHERE schedule.tenant = wanted.tenant AND schedule.name = wanted.name AND state = 'active'
  AND wake_at > next_tick AND (overlap <> 'allow' OR max_concurrent IS NOT NULL)
"""
