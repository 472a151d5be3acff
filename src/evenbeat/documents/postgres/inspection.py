"""Checks of a table when it is opened: that it can be used as documents, and has an index."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import psycopg

from evenbeat.documents import columns, indexes
from evenbeat.documents.columns import Names, Table, quoted
from evenbeat.documents.postgres.conditions import HOW_TO_PLACE, count_places
from evenbeat.documents.postgres.connections import NOT_GRANTED, SYNTAX, rows_of, sqlstate_of
from evenbeat.documents.postgres.table import PostgresTable, TableColumn, check_key, check_time
from evenbeat.errors import InvalidValue, StoreUnavailable, shown
from evenbeat.stores.postgres.failures import first_line
from evenbeat.stores.postgres.session import Session

_KINDS = {"r": "table", "p": "partitioned table", "v": "view"}

_FIND_TABLE = """
SELECT class.oid::bigint AS oid, relkind::text AS kind, relname::text AS name, nspname::text AS space
FROM pg_catalog.pg_class AS class JOIN pg_catalog.pg_namespace AS space ON space.oid = relnamespace
WHERE class.oid = to_regclass(%s)
"""

_NEAR_TABLES = """
SELECT CASE WHEN pg_catalog.pg_table_is_visible(class.oid) THEN relname ELSE nspname || '.' || relname END
    AS name
FROM pg_catalog.pg_class AS class JOIN pg_catalog.pg_namespace AS space ON space.oid = relnamespace
WHERE lower(relname) = lower(%s) AND relkind IN ('r', 'p', 'v') ORDER BY 1 LIMIT 3
"""

# A domain is compared as its base type.
_FIND_COLUMNS = """
SELECT attname::text AS name, format_type(atttypid, atttypmod) AS type,
    format_type(coalesce(nullif(typbasetype, 0), kind.oid), NULL) AS base,
    CASE typbasetype WHEN 0 THEN atttypmod ELSE typtypmod END AS modifier,
    attnotnull AS is_not_null, typnotnull AS is_not_null_by_type
FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_type AS kind ON kind.oid = atttypid
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""

_FIND_UNIQUE = """
SELECT 1 AS found
FROM pg_catalog.pg_index
JOIN pg_catalog.pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
WHERE indrelid = %s AND attname = %s AND indisunique AND indisvalid AND indnkeyatts = 1 AND indpred IS NULL
"""

# By the server's estimate of the rows; views and partitioned tables have no estimate of their own.
_FIND_INDEX_MISSED = """
SELECT 1 AS missed FROM pg_catalog.pg_class AS class
WHERE class.oid = %s AND relkind = 'r' AND reltuples > %s AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_index
    JOIN pg_catalog.pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
    WHERE indrelid = class.oid AND attname = %s AND indisvalid
)
"""

_log = logging.getLogger("evenbeat.documents")


def inspect(session: Session, name: str, server: str, wanted: Names, condition: str) -> PostgresTable:
    """Return the table of that name. ``InvalidValue`` if it can't be used; a warning if it lacks an index.

    ``wanted`` has the names of the columns as the user has given them, ``server`` is named in errors.
    """
    parts = columns.split(name)
    found = rows_of(session, _FIND_TABLE, quoted(*parts))
    if not found:
        raise _no_table(name, server, [row["name"] for row in rows_of(session, _NEAR_TABLES, parts[-1])])
    oid, kind = found[0]["oid"], found[0]["kind"]
    known = {row["name"]: TableColumn(**row) for row in rows_of(session, _FIND_COLUMNS, oid)}
    table = Table(name, known)
    names = table.names(wanted)
    check_time(known[names.sleep_until], name)
    check_key(known[names.key], name)
    _check_kind(name, kind)
    if not rows_of(session, _FIND_UNIQUE, oid, names.key):
        _report_not_unique(name, kind, names.key)
    if rows_of(session, _FIND_INDEX_MISSED, oid, indexes.MANY, names.sleep_until):
        due = quoted(names.sleep_until)
        indexes.warn(name, f"CREATE INDEX CONCURRENTLY ON {name} ({due}) WHERE {due} IS NOT NULL")
    return PostgresTable(quoted(found[0]["space"], found[0]["name"]), table, known, names, condition)


def refusal(
    error: InvalidValue | StoreUnavailable, name: str, condition: str | None, parameters: Mapping[str, object]
) -> Exception:
    """Return the error to raise when the server refuses the first statement on a table: the role may lack a
    grant, or the condition may be wrong."""
    cause = error.__cause__
    why = first_line(cause if isinstance(cause, psycopg.Error) else error)
    if sqlstate_of(error) == NOT_GRANTED:
        return InvalidValue(
            f"{name} can't be read or written: {why}",
            field="table",
            value=name,
            hint="grant the role SELECT, UPDATE and, for rows with auto_remove, DELETE",
        )
    if isinstance(error, StoreUnavailable):
        return error
    places = count_places(condition or "")
    if sqlstate_of(error) == SYNTAX and places and not parameters:
        return columns.miscounted(condition, places, (), HOW_TO_PLACE)
    refused = f"condition {shown(condition)}" if condition else name
    return InvalidValue(
        f"{refused} is refused: {why}", field="condition" if condition else "table", value=condition or name
    )


def _no_table(name: str, server: str, near: Sequence[str]) -> InvalidValue:
    return InvalidValue(
        f"there is no table {name} in {server}",
        field="table",
        value=name,
        hint=f"did you mean {' or '.join(near)}?" if near else "create it first, or name its schema, too",
    )


def _check_kind(name: str, kind: str) -> None:
    if kind not in _KINDS:
        raise InvalidValue(
            f"{name} is neither a table nor a view",
            field="table",
            value=name,
            hint="foreign tables and materialized views can't be locked row by row",
        )


def _report_not_unique(name: str, kind: str, key: str) -> None:
    """Refuse a table whose key is not unique. For a view, and across partitions, the server does not know
    that: only warn the user."""
    if kind == "r":
        raise InvalidValue(
            f"column {shown(key)} of {name} (key) has no unique index",
            field="key",
            value=key,
            hint=f"name the primary key, or CREATE UNIQUE INDEX ON {name} ({quoted(key)})",
        )
    _log.warning(
        "the server can't tell whether the key of this %s is unique; rows that share a key are confused",
        _KINDS[kind],
        extra={"component": "documents", "documents": name},
    )
