"""The tables, as numbered migrations, in a schema of their own. Users may read them with plain SQL:
instants are milliseconds UTC, so ``to_timestamp(next_tick / 1000.0)`` is a readable time.

Texts that are compared or sorted have the collation "C": names have the same order on every server and in
every other store, and comparing them costs half as much as with the collation of a language.

Firing and claiming use partial indexes, which contain only the rows that they need: a long history makes them
neither larger nor slower. No index has columns that change while a run is running (its lease, a cancel
request), so a heartbeat updates no index (a HOT update).
"""

from __future__ import annotations

KNOWN = 3
"""The version of the schema that this version of Evenbeat uses."""

META = """
CREATE TABLE IF NOT EXISTS evenbeat.meta (
    key   text PRIMARY KEY,
    value text NOT NULL
)
""".strip()

_SCHEDULES = """
CREATE TABLE evenbeat.schedules (
    tenant         text COLLATE "C" NOT NULL,
    name           text COLLATE "C" NOT NULL,
    task           text     NOT NULL,
    trigger        text     NOT NULL,
    kind           text     NOT NULL CHECK (kind IN ('task', 'flow')),
    payload        text     NOT NULL,
    queue          text     NOT NULL,
    priority       smallint NOT NULL CHECK (priority BETWEEN 0 AND 9),
    description    text     NOT NULL,
    tags           text     NOT NULL,  -- sorted, separated by spaces
    catch_up       text     NOT NULL,  -- JSON
    overlap        text     NOT NULL
                   CHECK (overlap IN ('allow', 'skip', 'queue', 'queue_all', 'cancel_running')),
    max_concurrent bigint   CHECK (max_concurrent > 0),
    spread         bigint   NOT NULL CHECK (spread >= 0),
    execution      text     NOT NULL,  -- JSON
    managed_by     text     NOT NULL,
    state          text     NOT NULL CHECK (state IN ('active', 'paused', 'finished', 'deleted')),
    pause_note     text     NOT NULL,
    paused_until   bigint,
    paused_by      text     NOT NULL,
    paused_at      bigint,
    declared       text     NOT NULL,  -- JSON: the last declaration in code
    anchor         bigint   NOT NULL,
    next_tick      bigint,             -- the coming tick: everything before it has been dealt with
    moved          bigint,             -- the tick that the coming one stands for, if it was moved earlier
    wake_at        bigint,             -- when a node reads the row next; NULL: not before it is changed
    last_fire      bigint,
    revision       bigint   NOT NULL,
    fire_seq       bigint   NOT NULL,
    generation     bigint   NOT NULL,
    created_at     bigint   NOT NULL,
    updated_at     bigint   NOT NULL,
    format         smallint NOT NULL,
    PRIMARY KEY (tenant, name)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000)
"""

# With "format" in the index, a query skips rows of a newer format without reading them.
_SCHEDULES_DUE = """
CREATE INDEX schedules_due ON evenbeat.schedules (wake_at, format) WHERE wake_at IS NOT NULL
"""

_RUNS = """
CREATE TABLE evenbeat.runs (
    id               text COLLATE "C" NOT NULL PRIMARY KEY,
    tenant           text COLLATE "C" NOT NULL,
    schedule         text COLLATE "C",
    generation       bigint,
    tick             bigint,
    cause            text     NOT NULL CHECK (cause IN ('tick', 'run_now', 'backfill', 'enqueue')),
    coalesced        bigint   NOT NULL,
    task             text COLLATE "C" NOT NULL,
    kind             text     NOT NULL CHECK (kind IN ('task', 'flow')),
    payload          text     NOT NULL,
    queue            text COLLATE "C" NOT NULL,
    priority         smallint NOT NULL CHECK (priority BETWEEN 0 AND 9),
    execution        text     NOT NULL,  -- JSON
    state            text     NOT NULL
                     CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
    scheduled_at     bigint   NOT NULL,
    run_at           bigint   NOT NULL,
    attempt          bigint   NOT NULL CHECK (attempt >= 0),
    failures         bigint   NOT NULL,
    crashes          bigint   NOT NULL,
    worker           text COLLATE "C",
    claim            text COLLATE "C",
    lease_until      bigint,
    cancel_requested boolean  NOT NULL,
    created_at       bigint   NOT NULL,
    started_at       bigint,
    finished_at      bigint,
    result           text,
    error            text,
    fired_by         text,
    earlier          text,               -- JSON: the attempts before the present one
    settled          text,
    format           smallint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000)
"""

# Has the order of claiming. With task and format at the end, a claim skips runs that this node cannot
# execute without reading their rows.
_RUNS_CLAIMABLE = """
CREATE INDEX runs_claimable ON evenbeat.runs (queue, priority DESC, run_at, id, task, format)
    WHERE state = 'queued'
"""

# Running runs by worker: for repeated claims, workers and supervisors. A search for ended leases reads the
# whole index.
_RUNS_RUNNING = """
CREATE INDEX runs_running ON evenbeat.runs (worker, claim) WHERE state = 'running'
"""

_RUNS_ACTIVE = """
CREATE INDEX runs_active ON evenbeat.runs (tenant, schedule)
    WHERE schedule IS NOT NULL AND state IN ('queued', 'running')
"""

_RUNS_NEWEST = """
CREATE INDEX runs_newest ON evenbeat.runs (created_at DESC, id)
"""

# Finds the history of one schedule among millions of runs. Runs without a schedule are not in the index.
_RUNS_OF_SCHEDULE = """
CREATE INDEX runs_of_schedule ON evenbeat.runs (tenant, schedule, created_at DESC, id)
    WHERE schedule IS NOT NULL
"""

# These three cost the server 25 us of processor time and 80 bytes of WAL for each run that is added, claimed
# and settled, beside 88 us and 2,400 bytes without them (batches of 200, plain SQL, on a busy machine).
# Find the history of one tenant or task that few of millions of runs belong to. Partial, so that a run is
# added once, when it ends, and not again with each state. Without the id, which would make them larger: runs
# of the same millisecond are sorted when they are read.
_RUNS_OF_TENANT = """
CREATE INDEX runs_of_tenant ON evenbeat.runs (tenant, created_at DESC)
    WHERE state NOT IN ('queued', 'running')
"""
_RUNS_OF_TASK = """
CREATE INDEX runs_of_task ON evenbeat.runs (task, created_at DESC)
    WHERE state NOT IN ('queued', 'running')
"""

# Failed and cancelled runs are few, and often looked for. The columns after the id let a search pass over
# those that do not match without reading their rows.
_RUNS_UNSUCCESSFUL = """
CREATE INDEX runs_unsuccessful ON evenbeat.runs (created_at DESC, id, state, tenant, task, finished_at)
    WHERE state IN ('failed', 'cancelled')
"""

# With state and tenant in the index, a query counts the history without reading the rows.
_RUNS_OVER = """
CREATE INDEX runs_over ON evenbeat.runs (coalesce(finished_at, 0), state, tenant)
    WHERE state NOT IN ('queued', 'running')
"""

_SKIPPED = """
CREATE TABLE evenbeat.skipped (
    tenant      text COLLATE "C" NOT NULL,
    schedule    text COLLATE "C" NOT NULL,
    generation  bigint NOT NULL,
    first       bigint NOT NULL,
    last        bigint NOT NULL,
    count       bigint NOT NULL,
    reason      text   NOT NULL,
    recorded_at bigint NOT NULL,
    run         text
)
"""

_SKIPPED_NEWEST = """
CREATE INDEX skipped_newest ON evenbeat.skipped (tenant, schedule, last DESC, first DESC)
"""

_SKIPPED_RECORDED = """
CREATE INDEX skipped_recorded ON evenbeat.skipped (recorded_at)
"""

# Every run that ends updates a row, in columns without an index. Free space on the page makes this a HOT
# update.
_STATISTICS = """
CREATE TABLE evenbeat.statistics (
    tenant        text COLLATE "C" NOT NULL,
    schedule      text COLLATE "C" NOT NULL,
    run_count     bigint NOT NULL,
    success_count bigint NOT NULL,
    failure_count bigint NOT NULL,
    last_run      bigint,
    last_success  bigint,
    last_failure  bigint,
    last_error    text,
    PRIMARY KEY (tenant, schedule)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000)
"""

_RECORDS = """
CREATE TABLE evenbeat.records (
    kind    text COLLATE "C" NOT NULL,
    tenant  text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    body    text   NOT NULL,
    expires bigint,
    PRIMARY KEY (kind, tenant, key)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000)
"""

_RECORDS_EXPIRING = """
CREATE INDEX records_expiring ON evenbeat.records (expires) WHERE expires IS NOT NULL
"""

_LOGS = """
CREATE TABLE evenbeat.logs (
    run     text COLLATE "C" NOT NULL,
    attempt bigint NOT NULL,
    seq     bigint NOT NULL,
    text    text   NOT NULL,
    at      bigint NOT NULL,
    PRIMARY KEY (run, attempt, seq)
)
"""

# The W3C traceparent of the span that enqueued a run. Adding a column without a default writes no row.
_RUNS_TRACE = """
ALTER TABLE evenbeat.runs ADD COLUMN trace text
"""

_RUNS_COHORT = """
ALTER TABLE evenbeat.runs ADD COLUMN cohort text COLLATE "C"
"""
_RUNS_UNIQUE_KEY = """
ALTER TABLE evenbeat.runs ADD COLUMN unique_key text
"""
_RUNS_FLOW = """
ALTER TABLE evenbeat.runs ADD COLUMN flow text
"""

# Replaces the index of version 1, and has the order of claiming. Each queue, priority and tenant is a range,
# so a claim goes from one tenant to the next without reading the runs in between. Runs with a cohort are
# apart from the others, each cohort a range, so a claim passes over those that wait for a limit. With task
# and format at the end, a claim skips runs that this node cannot execute without reading their rows.
_DROP_RUNS_CLAIMABLE = """
DROP INDEX evenbeat.runs_claimable
"""
_RUNS_CLAIMABLE_IN_TURN = """
CREATE INDEX runs_claimable ON evenbeat.runs (queue, cohort, priority, tenant, run_at, id, task, format)
    WHERE state = 'queued'
"""

# For retention rules: the ended runs of one tenant and state, in the order of their ends.
_RUNS_ENDED = """
CREATE INDEX runs_ended ON evenbeat.runs (tenant, state, coalesce(finished_at, 0))
    WHERE state NOT IN ('queued', 'running')
"""

# A column with a constant default writes no row, either.
_SCHEDULES_AFTER = """
ALTER TABLE evenbeat.schedules ADD COLUMN after text NOT NULL DEFAULT ''
"""
_SCHEDULES_TEMPLATE = """
ALTER TABLE evenbeat.schedules ADD COLUMN template text NOT NULL DEFAULT ''
"""
_SCHEDULES_CALENDARS = """
ALTER TABLE evenbeat.schedules ADD COLUMN calendars text NOT NULL DEFAULT ''
"""
_SCHEDULES_FOLLOWERS = """
ALTER TABLE evenbeat.schedules ADD COLUMN followers text NOT NULL DEFAULT ''
"""

MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: (
        _SCHEDULES,
        _SCHEDULES_DUE,
        _RUNS,
        _RUNS_CLAIMABLE,
        _RUNS_RUNNING,
        _RUNS_ACTIVE,
        _RUNS_NEWEST,
        _RUNS_OF_SCHEDULE,
        _RUNS_OF_TENANT,
        _RUNS_OF_TASK,
        _RUNS_UNSUCCESSFUL,
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
        _RUNS_CLAIMABLE_IN_TURN,
        _RUNS_ENDED,
        _SCHEDULES_AFTER,
        _SCHEDULES_TEMPLATE,
        _SCHEDULES_CALENDARS,
        _SCHEDULES_FOLLOWERS,
    ),
}
"""The statements that migrate to each version from the previous one. A released migration never changes."""

FIND_SCHEMA = "SELECT 1 FROM pg_namespace WHERE nspname = %(schema)s"
CREATE_SCHEMA = 'CREATE SCHEMA "evenbeat"'
# Also finds the table if the role may not use the schema: the next query then reports the missing privilege.
FIND_META = """
SELECT EXISTS (
    SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
    WHERE pg_namespace.nspname = %(schema)s AND pg_class.relname = 'meta'
)
"""
GET_VERSION = "SELECT value FROM evenbeat.meta WHERE key = 'schema'"
SET_VERSION = """
INSERT INTO evenbeat.meta (key, value) VALUES ('schema', '{}')
ON CONFLICT (key) DO UPDATE SET value = excluded.value
""".strip()

# Nodes that upgrade at the same time wait for each other. The key is a hash of the schema's name.
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('evenbeat schema ' || %(schema)s, 0))"


def migrations_from(version: int) -> list[str]:
    """Return the statements that migrate from ``version`` to the newest version, in order."""
    statements = [META]
    for number in sorted(MIGRATIONS):
        if number > version:
            statements += [statement.strip() for statement in MIGRATIONS[number]]
            statements.append(SET_VERSION.format(number))
    return statements


def schema_sql(since: int = 0) -> str:
    """Return the SQL that ``open`` would run on a schema of version ``since``, for administrators who run
    it by hand."""
    create = CREATE_SCHEMA.replace("SCHEMA", "SCHEMA IF NOT EXISTS", 1)
    statements = [*([create] if since == 0 else []), *migrations_from(since)]
    body = "".join(f"{statement};\n\n" for statement in statements)
    return f"BEGIN;\n\n{body}COMMIT;\n"
