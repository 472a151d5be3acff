"""Runs added inside a transaction of the user's, by the user's own connection: kept with it or gone with it.

The libraries are recognised by their names, so that none of them is imported by who does not use it. Errors
of the user's driver come out as they are: it is the user's transaction that failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from evenbeat.errors import InvalidValue, shown
from evenbeat.stores.base import Insertion
from evenbeat.twins import on_the_callers_loop

Ids: TypeAlias = frozenset[str]

_PLACES = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric_dollar": "$1"}
"""How libraries write the place of the first value, by the name that DB-API has for the style."""


class _Kind(NamedTuple):
    """How a kind of connection is spoken to."""

    is_async: bool
    execute: Callable[[Any, Insertion], Any]


def add_within(connection: object, insertion: Insertion) -> Ids:
    """Execute the statement; the answer is the ids of the runs that are new."""
    kind = _kind(connection)
    if kind is None:
        raise InvalidValue(
            f"within {shown(connection)} is not a connection of a known library", field="within",
            value=connection,
            hint="give one of psycopg, sqlite3 or Django, or a Session or Connection of SQLAlchemy",
        )  # fmt: skip
    loop = on_the_callers_loop()
    if loop is not None:
        # Connections stay in the thread that they are used in, and asynchronous ones on their event loop.
        added: Ids = loop(lambda: kind.execute(connection, insertion))
        return added
    if kind.is_async:
        raise InvalidValue(
            f"within {shown(connection)} has to be awaited", field="within", value=connection,
            hint="write await app.aenqueue(…)",
        )  # fmt: skip
    answer: Ids = kind.execute(connection, insertion)
    return answer


def _kind(connection: object) -> _Kind | None:
    for base in type(connection).__mro__:
        package, _, rest = base.__module__.partition(".")
        if package == "sqlalchemy" and (
            hasattr(connection, "exec_driver_sql") or hasattr(connection, "connection")
        ):
            is_async = rest.startswith("ext.asyncio")
            return _Kind(is_async, _sqlalchemy_async if is_async else _sqlalchemy)
        if package == "psycopg" and hasattr(connection, "cursor"):
            is_async = "Async" in base.__name__
            return _Kind(is_async, _psycopg_async if is_async else _psycopg)
        if package == "django" and hasattr(connection, "vendor"):
            return _Kind(False, _django)
        if package == "sqlite3" and hasattr(connection, "cursor"):
            return _Kind(False, _sqlite3)
        if package == "aiosqlite":
            return _Kind(True, _aiosqlite)
    return None


def _text(insertion: Insertion, dialect: str, place: str) -> str:
    if dialect != insertion.dialect:
        raise InvalidValue(
            f"within is a connection to {dialect}, and the store is on {insertion.dialect}", field="within",
            value=dialect, hint="a transaction can't span two databases: enqueue after the commit",
        )  # fmt: skip
    return insertion.text.format(place)


def _check_transaction(is_in_one: bool) -> None:
    """Refuse a connection that commits each statement by itself: it would keep the run whatever follows."""
    if not is_in_one:
        raise InvalidValue(
            "within is a connection that commits each statement at once, outside of any transaction",
            field="within", value=None,
            hint="begin a transaction (transaction.atomic(), connection.transaction(), BEGIN), "
            "or take a connection without autocommit; SQLAlchemy: without isolation_level AUTOCOMMIT",
        )  # fmt: skip


def _ids(rows: Any) -> Ids:
    return frozenset(row[0] for row in rows)


def _psycopg(connection: Any, insertion: Insertion) -> Ids:
    from psycopg.rows import tuple_row

    _check_transaction(_libpq_joins(connection))
    with connection.cursor(row_factory=tuple_row) as cursor:
        return _ids(cursor.execute(_text(insertion, "postgresql", "%s"), (insertion.value,)).fetchall())


async def _psycopg_async(connection: Any, insertion: Insertion) -> Ids:
    from psycopg.rows import tuple_row

    _check_transaction(_libpq_joins(connection))
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(_text(insertion, "postgresql", "%s"), (insertion.value,))
        return _ids(await cursor.fetchall())


def _libpq_joins(connection: Any) -> bool:
    """Whether a statement of psycopg's is part of a transaction: one that began, or one that it begins."""
    # libpq's number for a session outside of any transaction; psycopg2 has the same.
    return not connection.autocommit or connection.info.transaction_status != 0


def _sqlite_joins(connection: Any) -> bool:
    """Whether an INSERT of sqlite3's or aiosqlite's is part of a transaction: one that began, or one that it
    begins."""
    plain = getattr(connection, "_conn", connection)
    if plain.in_transaction:
        return True
    # Python 3.12: True begins none, whatever the isolation level is; False always has one; -1 is as before.
    return getattr(plain, "autocommit", -1) != 1 and plain.isolation_level is not None


def _sqlalchemy(session: Any, insertion: Insertion) -> Ids:
    # A session has a connection once it is asked for one; a connection is one.
    connection = session if hasattr(session, "exec_driver_sql") else session.connection()
    text = _text(insertion, connection.dialect.name, _PLACES.get(connection.dialect.paramstyle, "%s"))
    _check_transaction(_sqlalchemy_joins(connection))
    return _ids(connection.exec_driver_sql(text, (insertion.value,)).fetchall())


async def _sqlalchemy_async(session: Any, insertion: Insertion) -> Ids:
    connection = session if hasattr(session, "exec_driver_sql") else await session.connection()
    text = _text(insertion, connection.dialect.name, _PLACES.get(connection.dialect.paramstyle, "%s"))
    _check_transaction(_sqlalchemy_joins(connection.sync_connection))
    return _ids((await connection.exec_driver_sql(text, (insertion.value,))).fetchall())


def _sqlalchemy_joins(connection: Any) -> bool:
    """Whether the driver is in a transaction: SQLAlchemy's own begins nothing under AUTOCOMMIT."""
    lent = connection.connection
    driver, adapter = lent.driver_connection, lent.dbapi_connection
    if connection.dialect.name == "sqlite":
        return _sqlite_joins(driver)
    if hasattr(driver, "info"):
        return _libpq_joins(driver)
    if hasattr(driver, "is_in_transaction"):  # asyncpg, which SQLAlchemy's adapter gives the attribute
        return not adapter.autocommit or driver.is_in_transaction()
    return not getattr(adapter, "autocommit", False)


def _django(connection: Any, insertion: Insertion) -> Ids:
    _check_transaction(connection.in_atomic_block or not connection.get_autocommit())
    with connection.cursor() as cursor:
        cursor.execute(_text(insertion, connection.vendor, "%s"), [insertion.value])
        return _ids(cursor.fetchall())


def _sqlite3(connection: Any, insertion: Insertion) -> Ids:
    _check_transaction(_sqlite_joins(connection))
    cursor = connection.cursor()
    cursor.row_factory = None
    return _ids(cursor.execute(_text(insertion, "sqlite", "?"), (insertion.value,)).fetchall())


async def _aiosqlite(connection: Any, insertion: Insertion) -> Ids:
    _check_transaction(_sqlite_joins(connection))
    async with connection.execute(_text(insertion, "sqlite", "?"), (insertion.value,)) as cursor:
        return _ids([tuple(row) for row in await cursor.fetchall()])
