"""Statements inside a user's transaction, over the user's own connection.

Libraries are recognised by the names of their classes, so that users need not install them all. Errors of the
user's driver reach the user unchanged: the user's transaction has failed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from evenbeat.core.awaitable import on_the_callers_loop
from evenbeat.errors import InvalidValue, shown

T = TypeVar("T")

Rows: TypeAlias = list[tuple[Any, ...]]
Library: TypeAlias = Literal["psycopg", "sqlalchemy", "django", "sqlite3", "aiosqlite"]


class Statement(NamedTuple):
    """One statement of ``Steps``."""

    text: str
    """Contains ``{}`` where the value belongs, if there is one."""
    value: str | None = None


Steps: TypeAlias = Generator[Statement, Rows, T]
"""A generator that yields statements, is sent their rows, and returns an answer. It does no I/O itself, so it
serves every library, synchronous or not."""
StepsFor: TypeAlias = Callable[[str], Steps[T]]
"""Returns the steps; the argument is the dialect of the connection: ``postgresql``, ``sqlite``, …"""

_PLACES = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric_dollar": "$1"}
"""The placeholder of the first value, by DB-API's name for the style."""


class _Kind(NamedTuple):
    """How to execute statements on one kind of connection."""

    library: Library
    is_async: bool
    execute: Callable[[Any, StepsFor[Any]], Any]


def execute_within(connection: object, steps_for: StepsFor[T]) -> T:
    """Execute steps over the caller's connection, which must be in a transaction."""
    kind = _kind(connection)
    loop = on_the_callers_loop()
    if loop is not None:
        # The calling thread uses the connection: sqlite3 and event loops allow no other.
        answered: T = loop(lambda: kind.execute(connection, steps_for))
        return answered
    if kind.is_async:
        raise InvalidValue(
            f"within {shown(connection)} has to be awaited",
            field="within",
            value=connection,
            hint="write await app.aenqueue(…)",
        )
    answer: T = kind.execute(connection, steps_for)
    return answer


def library_of(connection: object) -> Library:
    """Return the library of a connection. Raises InvalidValue if it is unknown."""
    return _kind(connection).library


def check_dialect(found: str, wanted: str) -> None:
    """Refuse a connection to another kind of database than that of the store."""
    if found != wanted:
        raise InvalidValue(
            f"within is a connection to {found}, and the store is on {wanted}",
            field="within",
            value=found,
            hint="a transaction can't span two databases: enqueue after the commit",
        )


def _kind(connection: object) -> _Kind:
    for base in type(connection).__mro__:
        package, _, rest = base.__module__.partition(".")
        if package == "sqlalchemy" and (
            hasattr(connection, "exec_driver_sql") or hasattr(connection, "connection")
        ):
            is_async = rest.startswith("ext.asyncio")
            return _Kind("sqlalchemy", is_async, _sqlalchemy_async if is_async else _sqlalchemy)
        if package == "psycopg" and hasattr(connection, "cursor"):
            is_async = "Async" in base.__name__
            return _Kind("psycopg", is_async, _psycopg_async if is_async else _psycopg)
        if package == "django" and hasattr(connection, "vendor"):
            return _Kind("django", False, _django)
        if package == "sqlite3" and hasattr(connection, "cursor"):
            return _Kind("sqlite3", False, _sqlite3)
        if package == "aiosqlite":
            return _Kind("aiosqlite", True, _aiosqlite)
    raise InvalidValue(
        f"within {shown(connection)} is not a connection of a known library",
        field="within",
        value=connection,
        hint="give one of psycopg, sqlite3 or Django, or a Session or Connection of SQLAlchemy",
    )


def _check_transaction(is_in_one: bool) -> None:
    """Refuse a connection that commits each statement by itself: it would keep the run after a rollback."""
    if not is_in_one:
        raise InvalidValue(
            "within is a connection that commits each statement at once, outside of any transaction",
            field="within",
            value=None,
            hint="begin a transaction (transaction.atomic(), connection.transaction(), BEGIN), "
            "or take a connection without autocommit; SQLAlchemy: without isolation_level AUTOCOMMIT",
        )


def _execute_all(steps: Steps[T], execute: Callable[[Statement], Rows]) -> T:
    try:
        statement = next(steps)
        while True:
            statement = steps.send(execute(statement))
    except StopIteration as end:
        answer: T = end.value
        return answer


async def _execute_all_async(steps: Steps[T], execute: Callable[[Statement], Awaitable[Rows]]) -> T:
    try:
        statement = next(steps)
        while True:
            statement = steps.send(await execute(statement))
    except StopIteration as end:
        answer: T = end.value
        return answer


def _placed(statement: Statement, place: str) -> tuple[Any, ...]:
    """Return the arguments of ``execute``. Without values, drivers do not interpret the text."""
    if statement.value is None:
        return (statement.text,)
    return statement.text.replace("{}", place), (statement.value,)


def _psycopg(connection: Any, steps_for: StepsFor[T]) -> T:
    from psycopg.rows import tuple_row

    _check_transaction(_libpq_joins(connection))
    with connection.cursor(row_factory=tuple_row) as cursor:

        def execute(statement: Statement) -> Rows:
            cursor.execute(*_placed(statement, "%s"))
            return cursor.fetchall() if cursor.description else []

        return _execute_all(steps_for("postgresql"), execute)


async def _psycopg_async(connection: Any, steps_for: StepsFor[T]) -> T:
    from psycopg.rows import tuple_row

    _check_transaction(_libpq_joins(connection))
    async with connection.cursor(row_factory=tuple_row) as cursor:

        async def execute(statement: Statement) -> Rows:
            await cursor.execute(*_placed(statement, "%s"))
            rows: Rows = await cursor.fetchall() if cursor.description else []
            return rows

        return await _execute_all_async(steps_for("postgresql"), execute)


def _libpq_joins(connection: Any) -> bool:
    """Whether a statement of psycopg is part of a transaction: an open one, or one that it starts."""
    # libpq's number for a session outside of any transaction; psycopg2 has the same.
    return not connection.autocommit or connection.info.transaction_status != 0


def _sqlite_joins(connection: Any) -> bool:
    """Whether an INSERT of sqlite3 or aiosqlite is part of a transaction: an open one, or one that it
    starts."""
    plain = getattr(connection, "_conn", connection)
    if plain.in_transaction:
        return True
    # autocommit, since Python 3.12: True starts no transaction; False always has one; -1 means
    # isolation_level.
    return getattr(plain, "autocommit", -1) != 1 and plain.isolation_level is not None


def unscoped(session: Any) -> Any:
    """Return the present session of SQLAlchemy's ``scoped_session`` (``db.session`` in Flask)."""
    return session() if hasattr(session, "session_factory") else session


def _sqlalchemy(session: Any, steps_for: StepsFor[T]) -> T:
    session = unscoped(session)
    # A Session has a connection() method; a Connection has none.
    connection = session if hasattr(session, "exec_driver_sql") else session.connection()
    steps = steps_for(connection.dialect.name)
    place = _PLACES.get(connection.dialect.paramstyle, "%s")
    _check_transaction(_sqlalchemy_joins(connection))

    def execute(statement: Statement) -> Rows:
        result = connection.exec_driver_sql(*_placed(statement, place))
        return [tuple(row) for row in result.fetchall()] if result.returns_rows else []

    return _execute_all(steps, execute)


async def _sqlalchemy_async(session: Any, steps_for: StepsFor[T]) -> T:
    answer: T = await unscoped(session).run_sync(_sqlalchemy, steps_for)
    return answer


def _sqlalchemy_joins(connection: Any) -> bool:
    """Whether the driver is in a transaction. SQLAlchemy reports one under AUTOCOMMIT, too."""
    lent = connection.connection
    driver, adapter = lent.driver_connection, lent.dbapi_connection
    if connection.dialect.name == "sqlite":
        return _sqlite_joins(driver)
    if hasattr(driver, "info"):
        return _libpq_joins(driver)
    if hasattr(driver, "is_in_transaction"):  # asyncpg, which SQLAlchemy's adapter gives the attribute
        return not adapter.autocommit or driver.is_in_transaction()
    return not getattr(adapter, "autocommit", False)


def _django(connection: Any, steps_for: StepsFor[T]) -> T:
    _check_transaction(connection.in_atomic_block or not connection.get_autocommit())
    with connection.cursor() as cursor:

        def execute(statement: Statement) -> Rows:
            cursor.execute(*_placed(statement, "%s"))
            return cursor.fetchall() if cursor.description else []

        return _execute_all(steps_for(connection.vendor), execute)


def _sqlite3(connection: Any, steps_for: StepsFor[T]) -> T:
    _check_transaction(_sqlite_joins(connection))
    cursor = connection.cursor()
    cursor.row_factory = None

    def execute(statement: Statement) -> Rows:
        rows: Rows = cursor.execute(*_placed(statement, "?")).fetchall()
        return rows

    return _execute_all(steps_for("sqlite"), execute)


async def _aiosqlite(connection: Any, steps_for: StepsFor[T]) -> T:
    # In the connection's own thread: others must not read its autocommit (Python 3.12).
    _check_transaction(await connection._execute(_sqlite_joins, connection))  # noqa: SLF001

    async def execute(statement: Statement) -> Rows:
        async with connection.execute(*_placed(statement, "?")) as cursor:
            return [tuple(row) for row in await cursor.fetchall()]

    return await _execute_all_async(steps_for("sqlite"), execute)
