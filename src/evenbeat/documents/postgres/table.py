"""A table of PostgreSQL that was looked at: its columns, its statements, and its rows as documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from psycopg.types.json import Json, Jsonb

from evenbeat.core.instants import FIRST, LAST, Instant, from_ms, to_ms, to_ms_up
from evenbeat.documents.base import Change, DocumentLock, Found
from evenbeat.documents.columns import Names, Table, not_null, quoted
from evenbeat.errors import InvalidValue, shown
from evenbeat.stores.postgres.session import Statement

FIND_TABLE = """
SELECT class.oid::bigint AS oid, relkind::text AS kind, relname::text AS name, nspname::text AS space
FROM pg_catalog.pg_class AS class JOIN pg_catalog.pg_namespace AS space ON space.oid = relnamespace
WHERE class.oid = to_regclass(%s)
"""

NEAR_TABLES = """
SELECT CASE WHEN pg_catalog.pg_table_is_visible(class.oid) THEN relname ELSE nspname || '.' || relname END
    AS name
FROM pg_catalog.pg_class AS class JOIN pg_catalog.pg_namespace AS space ON space.oid = relnamespace
WHERE lower(relname) = lower(%s) AND relkind IN ('r', 'p', 'v') ORDER BY 1 LIMIT 3
"""

# A domain is compared as the type below it.
FIND_COLUMNS = """
SELECT attname::text AS name, format_type(atttypid, atttypmod) AS type,
    format_type(coalesce(nullif(typbasetype, 0), kind.oid), NULL) AS base,
    CASE typbasetype WHEN 0 THEN atttypmod ELSE typtypmod END AS modifier,
    attnotnull AS is_not_null, typnotnull AS is_not_null_by_type
FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_type AS kind ON kind.oid = atttypid
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""

FIND_UNIQUE = """
SELECT 1 AS found
FROM pg_catalog.pg_index
JOIN pg_catalog.pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
WHERE indrelid = %s AND attname = %s AND indisunique AND indisvalid AND indnkeyatts = 1 AND indpred IS NULL
"""

# By the server's estimate of the rows; views and partitioned tables have none of their own.
FIND_INDEX_MISSED = """
SELECT 1 AS missed FROM pg_catalog.pg_class AS class
WHERE class.oid = %s AND relkind = 'r' AND reltuples > %s AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_index
    JOIN pg_catalog.pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
    WHERE indrelid = class.oid AND attname = %s AND indisvalid
)
"""

# One statement, so that nobody comes between. MATERIALIZED: a subquery that the planner runs again for each
# row would lock more than LIMIT. Who has a row locked is writing to it: SKIP LOCKED; a row that somebody
# wrote to since the statement began is looked at anew before it is taken. Times before the first (-infinity,
# BC) have no datetime. The bounds are on the column as it is: a partial index on what is not null will do.
#
# The key alone finds the row again: IS NOT DISTINCT FROM can't be looked up in an index. By an equal time the
# planner would, and read all rows that are due at the same midnight for each of them.
#
# 100 of 100,000 due among 300,000 rows with that index (PostgreSQL 16, EXPLAIN ANALYZE): 1 ms and 0.1 ms of
# planning, whether all are due at different times or at the same.
#
# What a trigger made of the lock is seen in what is returned; where it kept the row as it was, there is none.
_LOCK = """
WITH due AS MATERIALIZED (
    SELECT * FROM {table}
    WHERE {due} >= %(first)s AND {due} <= %(now)s AND {key} IS NOT NULL AND {chosen} AND (
        {condition}
    )
    ORDER BY {due} LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), locked AS (
    UPDATE {table} AS own SET {due} = %(until)s
    FROM due WHERE own.{key} = due.{key} AND own.{due} IS NOT DISTINCT FROM due.{due}
    RETURNING due.{key} AS key, own.{due} AS ends
)
SELECT due.*, due.{key}::text AS "evenbeat key", lock.ends AS "evenbeat lock"
FROM due LEFT JOIN (SELECT key, max(ends) AS ends FROM locked GROUP BY key) AS lock ON lock.key = due.{key}
"""

# FOR UPDATE: to see whether the role may write to them.
_CANDIDATES = """
SELECT {key}::text AS key FROM {table}
WHERE {due} >= %(first)s AND {due} <= %(now)s AND {key} IS NOT NULL AND {chosen} AND (
    {condition}
)
ORDER BY {due} {way} LIMIT %(limit)s FOR UPDATE SKIP LOCKED
"""

# Which rows: by the texts of their keys, as a key may be of a type that Python has no values for.
_ALL = "true"
_ONE = "{key}::text = %(key)s"
_WITHOUT = "{key}::text <> ALL (%(without)s)"

_NEXT_DUE = """
SELECT {due} AS due FROM {table}
WHERE {due} > %(now)s AND {due} <= %(last)s AND {key} IS NOT NULL AND (
    {condition}
)
ORDER BY {due} LIMIT 1
"""

# 100 rows of the same table: 0.6 ms and 0.5 ms of planning.
# A lock that may have two ends is given twice; one of them at most is that of the row.
_UPDATE = """
UPDATE {table} AS own SET {due} = given.upcoming
FROM unnest(%(places)s::int[], %(keys)s::{key_type}[], %(ends)s::{time_type}[], %(upcoming)s::{time_type}[])
    AS given (place, key, ends, upcoming)
WHERE own.{key} = given.key AND own.{due} IS NOT DISTINCT FROM given.ends
RETURNING given.place
"""

_REMOVE = """
DELETE FROM {table} AS own
USING unnest(%(places)s::int[], %(keys)s::{key_type}[], %(ends)s::{time_type}[])
    AS given (place, key, ends)
WHERE own.{key} = given.key AND own.{due} IS NOT DISTINCT FROM given.ends
RETURNING given.place
"""

_UPDATE_FIELDS = """
UPDATE {table} SET {due} = %(upcoming)s, {assignments}
WHERE {key} = %(key)s::{key_type} AND {due} = ANY (%(ends)s::{time_type}[])
RETURNING %(place)s::int AS place
"""

_KEY_SEEN, _LOCK_SEEN = "evenbeat key", "evenbeat lock"

_AWARE = "timestamp with time zone"
_NAIVE = "timestamp without time zone"


class Column(msgspec.Struct, frozen=True):
    name: str
    type: str
    base: str
    """The type below it, without its modifier."""
    modifier: int
    """-1 if there is none."""
    is_not_null: bool
    is_not_null_by_type: bool
    """That of a domain."""


class RowTable:
    """Statements on a table. All take named values, and know times as the column has them."""

    def __init__(
        self, place: str, table: Table, columns: Mapping[str, Column], names: Names, condition: str
    ) -> None:
        self._table = table
        self._columns = columns
        self._names = names
        self._time_type = columns[names.sleep_until].base
        words = self._words = {
            "table": _own(place),
            "key": _own(quoted(names.key)),
            "due": _own(quoted(names.sleep_until)),
            "key_type": _own(columns[names.key].type),
            "time_type": self._time_type,
            "condition": condition,
        }
        self._next_due = _NEXT_DUE.format(**words)
        self._update, self._remove = _UPDATE.format(**words), _REMOVE.format(**words)

    @property
    def _first(self) -> datetime:
        """The first time that Python has, which others write for no time at all: .NET and Go."""
        return datetime.min.replace(tzinfo=UTC) if self._time_type == _AWARE else datetime.min

    # Statements

    def lock(
        self,
        now: Instant,
        until: Instant,
        limit: int,
        parameters: Mapping[str, Any],
        without: Sequence[str] = (),
        key: str | None = None,
    ) -> Statement:
        """``key``: the text of the only one."""
        times = self._moments({"now": now, "until": until})
        values = {"first": self._first, **times, "limit": limit, **parameters}
        return self._chosen(_LOCK, values, without, key)

    def candidates(
        self,
        now: Instant,
        limit: int,
        parameters: Mapping[str, Any],
        without: Sequence[str],
        *,
        from_end: bool,
    ) -> Statement:
        """The longest due first, or last."""
        values = {"first": self._first, "now": self._moment(now), "limit": limit, **parameters}
        return self._chosen(_CANDIDATES, values, without, None, way="DESC" if from_end else "")

    def _chosen(
        self, text: str, values: dict[str, Any], without: Sequence[str], key: str | None, **words: str
    ) -> Statement:
        which = _ONE if key is not None else _WITHOUT if without else _ALL
        statement = text.format(**self._words, chosen=which.format(**self._words), **words)
        return statement, values | {"key": key, "without": list(without)}

    def next_due(self, now: Instant, parameters: Mapping[str, Any]) -> Statement:
        return self._next_due, {**self._moments({"now": now, "last": LAST}), **parameters}

    def updates(self, changes: Sequence[Change]) -> list[Statement]:
        """All changes of the time alone are one statement; those of more are one each."""
        plain = [(place, change) for place, change in enumerate(changes) if not change.fields]
        more = [(place, change) for place, change in enumerate(changes) if change.fields]
        statements = [self._update_fields(place, change) for place, change in more]
        if plain:
            given = [(place, change.lock, change.sleep_until) for place, change in plain]
            statements.append((self._update, self._given(given)))
        return statements

    def removal(self, locks: Sequence[DocumentLock]) -> list[Statement]:
        given = [(place, lock, None) for place, lock in enumerate(locks)]
        return [(self._remove, self._given(given))] if given else []

    def _given(self, items: Sequence[tuple[int, DocumentLock, Instant | None]]) -> dict[str, Any]:
        rows = [
            (place, lock.id, self._moment(end), self._moment(upcoming))
            for place, lock, upcoming in items
            for end in lock.ends
        ]
        places, keys, ends, times = zip(*rows, strict=True)
        return {"places": list(places), "keys": list(keys), "ends": list(ends), "upcoming": list(times)}

    def _update_fields(self, place: int, change: Change) -> Statement:
        fields = self._table.fields(change.fields, self._names)
        assignments = [f"{_own(quoted(name))} = %(field{number})s" for number, name in enumerate(fields)]
        values: dict[str, Any] = {
            f"field{number}": self._value(name, value) for number, (name, value) in enumerate(fields.items())
        }
        values |= {
            "place": place,
            "key": change.lock.id,
            "upcoming": self._moment(change.sleep_until),
            "ends": [self._moment(end) for end in change.lock.ends],
        }
        text = _UPDATE_FIELDS.format(**self._words, assignments=", ".join(assignments))
        return text, values

    def _value(self, name: str, value: Any) -> Any:
        """What JSON can say goes into a column of it as that: as it comes out."""
        if value is None or isinstance(value, Json):  # as Jsonb is, too
            return value
        base = self._columns[name].base
        return Json(value) if base == "json" else Jsonb(value) if base == "jsonb" else value

    def _moments(self, times: Mapping[str, Instant]) -> dict[str, Any]:
        return {name: self._moment(instant) for name, instant in times.items()}

    def _moment(self, instant: Instant | None) -> datetime | None:
        if instant is None:
            return None
        moment = from_ms(instant)
        return moment if self._time_type == _AWARE else moment.replace(tzinfo=None)

    # Rows

    def has_lock(self, row: Mapping[str, Any], until: Instant) -> bool:
        """Whether what was written is what is there."""
        return bool(row[_LOCK_SEEN] == self._moment(until))

    def key(self, row: Mapping[str, Any]) -> str:
        """The text of a key."""
        return str(row[_KEY_SEEN])

    def found(self, row: Mapping[str, Any], locked_until: Instant) -> Found:
        names = self._names
        # psycopg gives times in the time zone of the session, which is the server's.
        data = {name: _in_utc(value) for name, value in row.items() if name not in (_KEY_SEEN, _LOCK_SEEN)}
        repeat_until = None if names.repeat_until is None else data[names.repeat_until]
        return Found(
            id=row[names.key],
            sleep_until=_due(data[names.sleep_until]),
            locked_until=locked_until,
            interval=None if names.interval is None else data[names.interval],
            repeat_until=None if repeat_until == "infinity" else repeat_until,
            auto_remove=None if names.auto_remove is None else data[names.auto_remove],
            data=data,
        )

    def due(self, row: Mapping[str, Any]) -> Instant:
        return to_ms_up(_aware(row["due"]))


def check_time(column: Column, table: str) -> None:
    """Refuse a column that can't hold a lock, as it is no time or rounds milliseconds away, or no null."""
    if column.base not in (_AWARE, _NAIVE):
        raise InvalidValue(
            f"column {shown(column.name)} of {table} (sleep_until) is of type {column.type}",
            field="sleep_until",
            value=column.name,
            hint="it must be timestamptz, or timestamp in UTC; a view of the table may convert it",
        )
    if 0 <= column.modifier < 3:
        raise InvalidValue(
            f"column {shown(column.name)} of {table} (sleep_until) is {column.type}: no milliseconds",
            field="sleep_until",
            value=column.name,
            hint="a lock needs them: make it timestamptz(3) or finer",
        )
    if column.is_not_null:
        raise not_null(
            table, column.name, f"ALTER TABLE {table} ALTER COLUMN {quoted(column.name)} DROP NOT NULL"
        )
    if column.is_not_null_by_type:
        raise not_null(table, column.name, f"ALTER DOMAIN {column.type} DROP NOT NULL")


def check_key(column: Column, table: str) -> None:
    """Refuse a key that can't be given back: the server would take its value for another type's."""
    if column.base in ("json", "jsonb") or column.base.endswith("[]"):
        raise InvalidValue(
            f"column {shown(column.name)} of {table} (key) is of type {column.type}",
            field="key",
            value=column.name,
            hint="name a unique column of numbers, texts or UUIDs",
        )


def _own(text: str) -> str:
    """A name in a statement: psycopg takes a percent sign for a place."""
    return text.replace("%", "%%")


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _due(value: object) -> Instant:
    """The first day of all, which is before the first instant, is as long due as that. In a time zone west of
    UTC it has no datetime."""
    return max(FIRST, to_ms(_aware(value))) if isinstance(value, datetime) else FIRST


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not None else value
