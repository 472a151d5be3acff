"""The tables, as numbered migrations. Users may read them with plain SQL: instants are milliseconds UTC, so
``datetime(next_tick / 1000, 'unixepoch')`` is a readable time.

STRICT, so that SQLite checks the types of columns. Firing and claiming use partial indexes, which contain
only the rows that they need: a long history makes them neither larger nor slower.

Neither checks nor partial indexes use IN: SQLite makes a table of the list each time a statement runs. With
OR instead, inserting a run takes 10 us instead of 13, settling one 5 us instead of 10.
"""

from __future__ import annotations

KNOWN = 3
"""The version of the schema that this Evenbeat uses."""

META = """
CREATE TABLE IF NOT EXISTS evenbeat_meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID
""".strip()

_SCHEDULES = """
CREATE TABLE evenbeat_schedules (
    tenant         TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    task           TEXT    NOT NULL,
    trigger        TEXT    NOT NULL,
    kind           TEXT    NOT NULL CHECK (kind = 'task' OR kind = 'flow'),
    payload        TEXT    NOT NULL,
    queue          TEXT    NOT NULL,
    priority       INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9),
    description    TEXT    NOT NULL,
    tags           TEXT    NOT NULL,  -- sorted, separated by spaces
    catch_up       TEXT    NOT NULL,  -- JSON
    overlap        TEXT    NOT NULL
                   CHECK (overlap = 'allow' OR overlap = 'skip' OR overlap = 'queue' OR overlap = 'queue_all'
                          OR overlap = 'cancel_running'),
    max_concurrent INTEGER CHECK (max_concurrent > 0),
    spread         INTEGER NOT NULL CHECK (spread >= 0),
    execution      TEXT    NOT NULL,  -- JSON
    managed_by     TEXT    NOT NULL,
    state          TEXT    NOT NULL
                   CHECK (state = 'active' OR state = 'paused' OR state = 'finished' OR state = 'deleted'),
    pause_note     TEXT    NOT NULL,
    paused_until   INTEGER,
    paused_by      TEXT    NOT NULL,
    paused_at      INTEGER,
    declared       TEXT    NOT NULL,  -- JSON: the last declaration in code
    anchor         INTEGER NOT NULL,
    next_tick      INTEGER,           -- the coming tick: everything before it has been dealt with
    moved          INTEGER,           -- the tick that the coming one stands for, if it was moved earlier
    wake_at        INTEGER,           -- when a node reads the row next; NULL: not before it is changed
    last_fire      INTEGER,
    revision       INTEGER NOT NULL,
    fire_seq       INTEGER NOT NULL,
    generation     INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    format         INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT
"""

# "format" is in the index so that rows of a newer format are skipped without reading them.
_SCHEDULES_DUE = """
CREATE INDEX evenbeat_schedules_due ON evenbeat_schedules (wake_at, format) WHERE wake_at IS NOT NULL
"""

# For the web process, which asks each second for changed schedules. Firing does not write "updated_at".
_SCHEDULES_CHANGED = """
CREATE INDEX evenbeat_schedules_changed ON evenbeat_schedules (updated_at)
"""

_RUNS = """
CREATE TABLE evenbeat_runs (
    id               TEXT    NOT NULL PRIMARY KEY,
    tenant           TEXT    NOT NULL,
    schedule         TEXT,
    generation       INTEGER,
    tick             INTEGER,
    cause            TEXT    NOT NULL
                     CHECK (cause = 'tick' OR cause = 'run_now' OR cause = 'backfill' OR cause = 'enqueue'),
    coalesced        INTEGER NOT NULL,
    task             TEXT    NOT NULL,
    kind             TEXT    NOT NULL CHECK (kind = 'task' OR kind = 'flow'),
    payload          TEXT    NOT NULL,
    queue            TEXT    NOT NULL,
    priority         INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9),
    execution        TEXT    NOT NULL,  -- JSON
    state            TEXT    NOT NULL
                     CHECK (state = 'queued' OR state = 'running' OR state = 'succeeded' OR state = 'failed'
                            OR state = 'cancelled'),
    scheduled_at     INTEGER NOT NULL,
    run_at           INTEGER NOT NULL,
    attempt          INTEGER NOT NULL CHECK (attempt >= 0),
    failures         INTEGER NOT NULL,
    crashes          INTEGER NOT NULL,
    worker           TEXT,
    claim            TEXT,
    lease_until      INTEGER,
    cancel_requested INTEGER NOT NULL CHECK (cancel_requested = 0 OR cancel_requested = 1),
    created_at       INTEGER NOT NULL,
    started_at       INTEGER,
    finished_at      INTEGER,
    result           TEXT,
    error            TEXT,
    fired_by         TEXT,
    earlier          TEXT,              -- JSON: the attempts before the present one
    settled          TEXT,
    format           INTEGER NOT NULL
) STRICT
"""

# The order of claiming. Task and format are at the end, so that runs which this node cannot claim are
# skipped inside the index.
_RUNS_CLAIMABLE = """
CREATE INDEX evenbeat_runs_claimable
    ON evenbeat_runs (queue, priority DESC, run_at, id, task, format) WHERE state = 'queued'
"""

# Running runs by worker: for repeated claims, workers and supervisors. A search for ended leases reads all of
# it: 0.05 ms for each 1,000 runs.
_RUNS_LEASED = """
CREATE INDEX evenbeat_runs_leased
    ON evenbeat_runs (worker, claim, lease_until, cancel_requested) WHERE state = 'running'
"""

_RUNS_ACTIVE = """
CREATE INDEX evenbeat_runs_active ON evenbeat_runs (tenant, schedule)
    WHERE schedule IS NOT NULL AND (state = 'queued' OR state = 'running')
"""

_RUNS_NEWEST = """
CREATE INDEX evenbeat_runs_newest ON evenbeat_runs (created_at DESC, id)
"""

# The history of one schedule among millions of runs of others; runs enqueued by hand are not in it.
_RUNS_OF_SCHEDULE = """
CREATE INDEX evenbeat_runs_of_schedule ON evenbeat_runs (tenant, schedule, created_at DESC, id)
    WHERE schedule IS NOT NULL
"""

# State and tenant are in the index so that history is counted without reading the rows.
_RUNS_OVER = """
CREATE INDEX evenbeat_runs_over ON evenbeat_runs (coalesce(finished_at, 0), state, tenant)
    WHERE state <> 'queued' AND state <> 'running'
"""

_SKIPPED = """
CREATE TABLE evenbeat_skipped (
    tenant      TEXT    NOT NULL,
    schedule    TEXT    NOT NULL,
    generation  INTEGER NOT NULL,
    first       INTEGER NOT NULL,
    last        INTEGER NOT NULL,
    count       INTEGER NOT NULL,
    reason      TEXT    NOT NULL,
    recorded_at INTEGER NOT NULL,
    run         TEXT
) STRICT
"""

_SKIPPED_NEWEST = """
CREATE INDEX evenbeat_skipped_newest ON evenbeat_skipped (tenant, schedule, last DESC, first DESC)
"""

_SKIPPED_RECORDED = """
CREATE INDEX evenbeat_skipped_recorded ON evenbeat_skipped (recorded_at)
"""

_STATISTICS = """
CREATE TABLE evenbeat_statistics (
    tenant        TEXT    NOT NULL,
    schedule      TEXT    NOT NULL,
    run_count     INTEGER NOT NULL,
    success_count INTEGER NOT NULL,
    failure_count INTEGER NOT NULL,
    last_run      INTEGER,
    last_success  INTEGER,
    last_failure  INTEGER,
    last_error    TEXT,
    PRIMARY KEY (tenant, schedule)
) STRICT, WITHOUT ROWID
"""

_RECORDS = """
CREATE TABLE evenbeat_records (
    kind    TEXT    NOT NULL,
    tenant  TEXT    NOT NULL,
    key     TEXT    NOT NULL,
    version INTEGER NOT NULL,
    body    TEXT    NOT NULL,
    expires INTEGER,
    PRIMARY KEY (kind, tenant, key)
) STRICT, WITHOUT ROWID
"""

_RECORDS_EXPIRING = """
CREATE INDEX evenbeat_records_expiring ON evenbeat_records (expires) WHERE expires IS NOT NULL
"""

_LOGS = """
CREATE TABLE evenbeat_logs (
    run     TEXT    NOT NULL,
    attempt INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    text    TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (run, attempt, seq)
) STRICT, WITHOUT ROWID
"""

# The W3C traceparent of the span that enqueued a run.
_RUNS_TRACE = """
ALTER TABLE evenbeat_runs ADD COLUMN trace TEXT
"""

_RUNS_COHORT = """
ALTER TABLE evenbeat_runs ADD COLUMN cohort TEXT
"""
_RUNS_UNIQUE_KEY = """
ALTER TABLE evenbeat_runs ADD COLUMN unique_key TEXT
"""
_RUNS_FLOW = """
ALTER TABLE evenbeat_runs ADD COLUMN flow TEXT
"""

# The tenant comes before run_at: a claim goes from each tenant to the next one in the index, however many
# runs each of them has.
_DROP_RUNS_CLAIMABLE = "DROP INDEX evenbeat_runs_claimable"
_RUNS_CLAIMABLE_BY_TENANT = """
CREATE INDEX evenbeat_runs_claimable
    ON evenbeat_runs (queue, priority DESC, tenant, run_at, id, task, format)
    WHERE state = 'queued' AND cohort IS NULL
"""

# Queued runs to which a limit may apply: a claim goes from each cohort to the next one in the index. The
# tenant is there for counting.
_RUNS_OF_COHORT = """
CREATE INDEX evenbeat_runs_of_cohort ON evenbeat_runs (cohort, run_at, id, format, tenant)
    WHERE state = 'queued' AND cohort IS NOT NULL
"""

# With the columns that limits name, so that running runs are counted without reading the rows.
_DROP_RUNS_LEASED = "DROP INDEX evenbeat_runs_leased"
_RUNS_LEASED_WITH_COHORT = """
CREATE INDEX evenbeat_runs_leased ON evenbeat_runs
    (worker, claim, lease_until, cancel_requested, cohort, queue, priority, tenant, task)
    WHERE state = 'running'
"""

# For retention rules: the ended runs of one tenant and state, in the order of their ends.
_RUNS_ENDED = """
CREATE INDEX evenbeat_runs_ended ON evenbeat_runs (tenant, state, coalesce(finished_at, 0))
    WHERE state <> 'queued' AND state <> 'running'
"""

_SCHEDULES_AFTER = """
ALTER TABLE evenbeat_schedules ADD COLUMN after TEXT NOT NULL DEFAULT ''
"""
_SCHEDULES_TEMPLATE = """
ALTER TABLE evenbeat_schedules ADD COLUMN template TEXT NOT NULL DEFAULT ''
"""
_SCHEDULES_CALENDARS = """
ALTER TABLE evenbeat_schedules ADD COLUMN calendars TEXT NOT NULL DEFAULT ''
"""
_SCHEDULES_FOLLOWERS = """
ALTER TABLE evenbeat_schedules ADD COLUMN followers TEXT NOT NULL DEFAULT ''
"""

MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: (
        _SCHEDULES,
        _SCHEDULES_DUE,
        _SCHEDULES_CHANGED,
        _RUNS,
        _RUNS_CLAIMABLE,
        _RUNS_LEASED,
        _RUNS_ACTIVE,
        _RUNS_NEWEST,
        _RUNS_OF_SCHEDULE,
        _RUNS_OVER,
        _SKIPPED,
        _SKIPPED_NEWEST,
        _SKIPPED_RECORDED,
        _STATISTICS,
        _RECORDS,
        _RECORDS_EXPIRING,
        _LOGS,
    ),
    2: (_RUNS_TRACE,),
    3: (
        _RUNS_COHORT,
        _RUNS_UNIQUE_KEY,
        _RUNS_FLOW,
        _DROP_RUNS_CLAIMABLE,
        _RUNS_CLAIMABLE_BY_TENANT,
        _RUNS_OF_COHORT,
        _DROP_RUNS_LEASED,
        _RUNS_LEASED_WITH_COHORT,
        _RUNS_ENDED,
        _SCHEDULES_AFTER,
        _SCHEDULES_TEMPLATE,
        _SCHEDULES_CALENDARS,
        _SCHEDULES_FOLLOWERS,
    ),
}
"""The statements that lead to each version from the one before. A released migration never changes."""

FIND_META = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'evenbeat_meta'"
GET_VERSION = "SELECT value FROM evenbeat_meta WHERE key = 'schema'"
SET_VERSION = "INSERT OR REPLACE INTO evenbeat_meta (key, value) VALUES ('schema', ?)"


def migrations_from(version: int) -> list[tuple[int, tuple[str, ...]]]:
    """Return the migrations that are still to be applied, in order."""
    return [
        (number, tuple(statement.strip() for statement in MIGRATIONS[number]))
        for number in sorted(MIGRATIONS)
        if number > version
    ]


def schema_sql(since: int = 0) -> str:
    """Return the SQL that ``open`` would run on a schema of version ``since``, for administrators who run
    it."""
    statements = [META]
    for number, migration in migrations_from(since):
        statements += [*migration, SET_VERSION.replace("?", f"'{number}'")]
    body = "".join(f"{statement};\n\n" for statement in statements)
    return f"PRAGMA journal_mode = WAL;\n\nBEGIN IMMEDIATE;\n\n{body}COMMIT;\n"
