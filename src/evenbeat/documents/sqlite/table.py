"""An SQLite table: the statements on it, and its rows as documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from evenbeat.core.instants import FIRST, LAST, Instant, from_ms
from evenbeat.documents import indexes, time_formats
from evenbeat.documents.base import Change, DocumentLock, Found
from evenbeat.documents.columns import Names, Table, quoted
from evenbeat.documents.time_formats import TimeFormat
from evenbeat.errors import InvalidValue
from evenbeat.stores.sqlite.session import Session

# The first bounds are approximate, on the value that an index may have; the last one is exact. julianday() of
# a text is that of its nearest millisecond, or of the one before: some versions round, some truncate. The
# condition comes before evenbeat_instant(), which is a slow Python function: many due rows may not meet it.
_LOCKABLE = """
SELECT * FROM {table}
WHERE {due} IS NOT NULL AND {indexed} BETWEEN ? AND ? AND {key} IS NOT NULL AND (
    {condition}
) AND evenbeat_instant({due}) <= ?
ORDER BY {indexed} {way} LIMIT ?
"""

_NEXT_DUE = """
SELECT {due} FROM {table}
WHERE {due} IS NOT NULL AND {indexed} BETWEEN ? AND ? AND {key} IS NOT NULL AND (
    {condition}
) AND evenbeat_instant({due}) > ?
ORDER BY {indexed} LIMIT 1
"""

# Compared by the column's collation, and exactly: keys that differ in case may be equal for the column and
# different for its unique index. Whichever collation the index has, it finds the row.
_SET = "UPDATE {table} SET {assignments} WHERE {key} = ? AND {key} = ? COLLATE BINARY"
_GET = "SELECT {due} FROM {table} WHERE {key} = ? AND {key} = ? COLLATE BINARY"
_REMOVE = "DELETE FROM {table} WHERE {key} = ? AND {key} = ? COLLATE BINARY"
_MANY = "SELECT 1 FROM {table} LIMIT 1 OFFSET ?"
_ANY = "SELECT {due} FROM {table} WHERE {due} IS NOT NULL LIMIT 1"

_OWN_PLACES = 4
"""Placeholders of ``_LOCKABLE`` that are not in the condition."""
_MISCOUNTED = re.compile(r"uses ([0-9]+), and there (?:is|are) ([0-9]+) supplied")

# Reads a limited number of rows, since the write lock is held.
_UNREAD = """
SELECT key, due FROM (SELECT {key} AS key, {due} AS due FROM {table} WHERE {due} IS NOT NULL LIMIT ?)
WHERE typeof(due) = 'text' AND julianday(due) IS NULL
"""

# The times that SQLite's own functions read.
_READABLE = re.compile(
    r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?(\s*([Zz]|[+-](0\d|1[0-4]):[0-5]\d))?)?\s*", re.ASCII
)
# Programs in .NET and Go write this day for "no time", and for the earliest one.
_FIRST_DAY = "0001-01-01"

_DAY = 86_400_000
_JULIAN_1970 = 2440587.5
_SLACK = 2


class SqliteTable:
    """Executes statements on a table, each within a transaction that holds the write lock."""

    def __init__(
        self,
        quoted_name: str,
        table: Table,
        names: Names,
        form: TimeFormat,
        condition: str | None,
        parameters: Sequence[Any],
    ) -> None:
        self._table = table
        self._names = names
        self._form = form
        self._parameters = parameters
        due = quoted(names.sleep_until)
        self._words = words = {
            "table": quoted_name,
            "key": quoted(names.key),
            "due": due,
            "indexed": f"julianday({due})" if form == "text" else due,
            "condition": condition or "true",
        }
        self._lockable, self._next_due = _LOCKABLE.format(**words, way=""), _NEXT_DUE.format(**words)
        self._lockable_last = _LOCKABLE.format(**words, way="DESC")
        self._get, self._remove, self._any = (text.format(**words) for text in (_GET, _REMOVE, _ANY))

    def lockable(
        self,
        session: Session,
        now: Instant,
        limit: int,
        without: Sequence[Any] = (),
        *,
        from_end: bool = False,
    ) -> list[dict[str, Any]]:
        """Return due rows, the longest due first; last with ``from_end``."""
        text = self._lockable_last if from_end else self._lockable
        # Rows to leave out are among the first, if they are still there. They are filtered here, not in SQL:
        # a text that is not UTF-8 differs from the text that was read.
        values = [
            self._indexed(FIRST - _DAY),
            self._indexed(now + _SLACK),
            *self._parameters,
            now,
            limit + len(without),
        ]
        rows = [as_dict(row) for row in session.rows("find due rows", text, values)]
        left_out = set(without)
        return [row for row in rows if row[self._names.key] not in left_out][:limit]

    def key(self, row: dict[str, Any]) -> Any:
        return row[self._names.key]

    def lock(self, session: Session, row: dict[str, Any], until: Instant) -> Found:
        """Lock a row. If it does not have the lock afterwards, since a trigger has changed it, leave the row
        as it was and raise ``InvalidValue``."""
        found = self._found(row, until)
        time = time_formats.write(until, self._form, row[self._names.sleep_until])
        session.run("lock a row", "SAVEPOINT evenbeat_lock")
        try:
            written = session.run("lock a row", self._set([self._names.sleep_until]), [time, *[found.id] * 2])
            if written == 0 or not self._holds(session, DocumentLock(found.id, (until,)))[0]:
                raise InvalidValue(
                    "a row does not have the time that was written to it",
                    field="row",
                    value=None,
                    hint="does a trigger change it, or its key? Is that a text that is not UTF-8?",
                )
        except BaseException:
            if session.connection.in_transaction:
                session.run("leave a row", "ROLLBACK TO evenbeat_lock")
                session.run("leave a row", "RELEASE evenbeat_lock")
            raise
        session.run("lock a row", "RELEASE evenbeat_lock")
        return found

    def next_due(self, session: Session, now: Instant) -> Instant | None:
        values = [self._indexed(now - _SLACK), self._indexed(LAST + _SLACK), *self._parameters, now]
        rows = session.rows("find the next due row", self._next_due, values)
        return time_formats.read(rows[0][0], self._form) if rows else None

    def update(self, session: Session, change: Change) -> bool:
        holds, value = self._holds(session, change.lock)
        if not holds:
            return False
        fields = self._table.fields(change.fields, self._names)
        upcoming = change.sleep_until
        time = None if upcoming is None else time_formats.write(upcoming, self._form, value)
        text = self._set([self._names.sleep_until, *fields])
        return session.run("write a row", text, [time, *fields.values(), *[change.lock.id] * 2]) > 0

    def remove(self, session: Session, lock: DocumentLock) -> bool:
        holds, _ = self._holds(session, lock)
        return holds and session.run("remove a row", self._remove, [lock.id] * 2) > 0

    def misses_index(self, session: Session) -> bool:
        """Return whether there are many rows, and no index that finds the due ones."""
        if not session.rows("inspect", _MANY.format(**self._words), [indexes.MANY]):
            return False
        values = [0, 0, *self._parameters, 0, 1]
        plan = session.rows("inspect", f"EXPLAIN QUERY PLAN {self._lockable}", values)
        return str(plan[0][3]).startswith("SCAN") and " INDEX " not in str(plan[0][3])

    @property
    def index(self) -> str:
        """The statement that creates the index."""
        return "CREATE INDEX {table_due} ON {table} ({indexed})".format(
            **self._words, table_due=quoted(f"{self._table.name}_due")
        )

    def any_time(self, session: Session) -> Any:
        rows = session.rows("inspect", self._any)
        return rows[0][0] if rows else None

    def unread_time(self, session: Session) -> tuple[Any, Any] | None:
        """Return the key and the time of a row that is never due because SQLite can't read its time."""
        if self._form != "text":
            return None
        rows = session.rows("inspect", _UNREAD.format(**self._words), [indexes.MANY])
        return next(((key, time) for key, time in rows if _is_time(time)), None)

    def _holds(self, session: Session, lock: DocumentLock) -> tuple[bool, Any]:
        """Return whether a row still has that lock, and its time. No other connection writes meanwhile."""
        rows = session.rows("read a lock", self._get, [lock.id] * 2)
        value = rows[0][0] if rows else None
        return instant_of(value, self._form) in lock.ends, value

    def _set(self, columns: Sequence[str]) -> str:
        return _SET.format(**self._words, assignments=", ".join(f"{quoted(name)} = ?" for name in columns))

    def _indexed(self, instant: Instant) -> float:
        """Return the value of an instant in an index, approximately."""
        if self._form == "text":
            return instant / _DAY + _JULIAN_1970
        return instant / 1000 if self._form == "seconds" else instant

    def _found(self, row: dict[str, Any], until: Instant) -> Found:
        names = self._names
        due = instant_of(row[names.sleep_until], self._form)
        assert due is not None  # the row is due
        repeat_until = None if names.repeat_until is None else row[names.repeat_until]
        if isinstance(repeat_until, int | float):
            # In the format of ``sleep_until``. Any other value stays as it is: ``rules.read`` refuses it.
            instant = instant_of(repeat_until, self._form)
            repeat_until = repeat_until if instant is None else from_ms(instant)
        return Found(
            id=row[names.key],
            sleep_until=due,
            locked_until=until,
            interval=None if names.interval is None else row[names.interval],
            repeat_until=repeat_until,
            auto_remove=None if names.auto_remove is None else row[names.auto_remove],
            data=row,
        )


def instant_of(value: object, form: TimeFormat) -> Instant | None:
    """Return the instant of a value. None for a value that is not a time, for a text in a column of numbers,
    since SQLite sorts texts after them, and for a text that SQLite can't read, since no query finds it. The
    first day of the calendar, which begins before the first instant, counts as that instant."""
    if isinstance(value, str):
        if form != "text" or not _READABLE.fullmatch(value):
            return None
        is_first_day = value.startswith(_FIRST_DAY)
    elif form != "text" and isinstance(value, int | float):
        is_first_day = FIRST - _DAY <= value * (1000 if form == "seconds" else 1) < FIRST
    else:
        return None
    try:
        return time_formats.read(value, form)
    except InvalidValue:
        return FIRST if is_first_day else None


def _is_time(text: str) -> bool:
    try:
        return time_formats.read(text, "text") is not None
    except InvalidValue:
        return False


def count_places(refusal: object) -> int | None:
    """Return how many placeholders the condition has, if SQLite refused it because their number differs from
    that of the parameters; else None."""
    found = _MISCOUNTED.search(str(refusal))
    return None if found is None else int(found[1]) - _OWN_PLACES


def as_dict(row: Any) -> dict[str, Any]:
    return dict(row)
