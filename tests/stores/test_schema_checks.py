"""The tables themselves refuse invalid values, also from other programs."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias, get_args

import psycopg
import pytest

from evenbeat.core.records import Cause, Kind, Overlap, RunRecord, RunState, ScheduleRecord, ScheduleState
from evenbeat.rules import changes
from evenbeat.stores.base import Store, Write
from evenbeat.stores.postgres import PostgresStore
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock
from tests.conftest import server_url
from tests.isolation import own_place

Update: TypeAlias = Callable[[str, str, str], None]
"""Table, column, value as SQL."""


def texts(*values: str) -> list[str]:
    return [f"'{value}'" for value in values]


# Table, column, valid values, and the nearest invalid ones.
CHECKS: list[tuple[str, str, Sequence[str], Sequence[str]]] = [
    ("schedules", "kind", texts(*get_args(Kind)), texts("", "tasks", "Task")),
    ("schedules", "priority", ["0", "9"], ["-1", "10", "NULL"]),
    ("schedules", "overlap", texts(*get_args(Overlap)), texts("", "never")),
    ("schedules", "max_concurrent", ["1", "2", "NULL"], ["0", "-1"]),
    ("schedules", "spread", ["0", "1"], ["-1", "NULL"]),
    ("schedules", "state", texts(*get_args(ScheduleState)), texts("", "queued")),
    ("schedules", "trigger", texts("x"), ["NULL"]),
    ("runs", "cause", texts(*get_args(Cause)), texts("", "fate")),
    ("runs", "kind", texts(*get_args(Kind)), texts("", "tasks", "Task")),
    ("runs", "priority", ["0", "9"], ["-1", "10", "NULL"]),
    ("runs", "state", texts(*get_args(RunState)), texts("", "active")),
    ("runs", "attempt", ["0", "1"], ["-1", "NULL"]),
    ("runs", "cancel_requested", ["TRUE", "FALSE"], ["2", "NULL"]),
    ("runs", "task", texts("x"), ["NULL"]),
]


def filled(store: Store) -> None:
    store.open()
    wanted = ScheduleRecord(name="a", task="work", trigger="every 1m")
    store.put_schedules([Write(changes.create(wanted, store.now()), None)])
    store.add_runs([RunRecord(id="a", task="work")])


@contextlib.contextmanager
def on_sqlite(folder: Path) -> Iterator[Update]:
    path = folder / "evenbeat.db"
    with (
        contextlib.closing(SqliteStore(path, VirtualClock())) as store,
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection,
    ):
        filled(store)

        def update(table: str, column: str, value: str) -> None:
            connection.execute(f"UPDATE evenbeat_{table} SET {column} = {value}")

        yield update


@contextlib.contextmanager
def on_postgres(_: Path) -> Iterator[Update]:
    with (
        own_place(server_url("postgres")) as url,
        contextlib.closing(PostgresStore(url, VirtualClock())) as store,
        psycopg.connect(store.location.conninfo, autocommit=True) as connection,
    ):
        filled(store)

        def update(table: str, column: str, value: str) -> None:
            statement = f"UPDATE evenbeat.{table} SET {column} = {value}"
            connection.execute(store.location.own(statement).encode())

        yield update


@pytest.mark.parametrize("place", [on_sqlite, on_postgres])
def test_a_table_accepts_valid_values_and_refuses_invalid_ones(
    place: Callable[[Path], contextlib.AbstractContextManager[Update]], tmp_path: Path
) -> None:
    with place(tmp_path) as update:
        for table, column, allowed, refused in CHECKS:
            for value in allowed:
                update(table, column, value)
            for value in refused:
                assert _is_refused(update, table, column, value), f"{table}.{column} took {value}"


def _is_refused(update: Update, table: str, column: str, value: str) -> bool:
    try:
        update(table, column, value)
    except (sqlite3.IntegrityError, psycopg.Error):
        return True
    return False
