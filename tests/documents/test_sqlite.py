"""Documents in SQLite: the cases of its texts, types and files, which the contract does not have."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evenbeat.core.instants import FIRST, Instant, from_ms
from evenbeat.documents import SqliteDocuments, time_formats
from evenbeat.documents.base import HELD_AT, Change, DocumentLock, Found
from evenbeat.documents.sqlite import table as sqlite_table
from evenbeat.documents.time_formats import TimeFormat
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.stores.sqlite.session import Session
from evenbeat.testing.clock import VirtualClock
from tests.lengths import some

LOCK = 600_000
PLAIN = "CREATE TABLE reminders (id INTEGER PRIMARY KEY, sleep_until, note)"
NOON: Instant = 1_794_744_000_000  # 2026-11-15T12:00:00Z


class Workplace:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "own.db"
        self.clock = VirtualClock()
        self.clock.now = NOON
        self.opened: list[SqliteDocuments] = []

    def sql(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(text, values).fetchall()

    def add(self, key: object, sleep_until: object, note: object = None) -> None:
        self.sql("INSERT INTO reminders (id, sleep_until, note) VALUES (?, ?, ?)", key, sleep_until, note)

    def documents(self, table: str = "reminders", **options: Any) -> SqliteDocuments:
        documents = SqliteDocuments(self.path, table, **{"clock": self.clock, **options})
        documents.open()
        self.opened.append(documents)
        return documents

    def time(self, key: object) -> Any:
        return self.sql("SELECT sleep_until FROM reminders WHERE id = ?", key)[0][0]

    def refused(self, table: str = "reminders", **options: Any) -> InvalidValue:
        with pytest.raises(InvalidValue) as refusal:
            self.documents(table, **options)
        return refusal.value


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    place = Workplace(tmp_path)
    yield place
    for documents in place.opened:
        documents.close()


def lock_of(found: Found) -> DocumentLock:
    return DocumentLock(found.id, (found.locked_until,))


def replace_writer(documents: SqliteDocuments, session: Session) -> None:
    """Have this session used for writing, instead of the present one."""
    present = documents._connections._take_writer()
    assert present is not None
    present.connection.close()
    documents._connections._keep_writer(session)


def ids(found: Any) -> list[Any]:
    return [one.id for one in found]


# Times


def test_texts_of_all_styles_are_due_and_keep_their_style(place: Workplace) -> None:
    place.sql(PLAIN)
    styles = {
        "2026-11-15 11:59:59": "2026-11-15 12:10:00",
        "2026-11-15 11:59": "2026-11-15 12:10:00",
        "2026-11-15": "2026-11-15 12:10:00",
        "2026-11-15T11:59:59.5": "2026-11-15T12:10:00",
        "2026-11-15T12:00:00Z": "2026-11-15T12:10:00Z",
        "2026-11-15T13:00:00+01:00": "2026-11-15T13:10:00+01:00",
        "2026-11-15 06:30:00.000-05:30": "2026-11-15 06:40:00-05:30",
    }
    for key, text in enumerate(styles):
        place.add(key, text)
    place.add(98, "2026-11-15T13:00:00.001+01:00")
    place.add(99, "2026-11-15 12:00:00.0001")
    documents = place.documents()
    taken = documents.lock_next(LOCK, 100)
    assert sorted(ids(taken.found)) == list(range(len(styles)))
    assert taken.next_due == NOON + 1
    assert [place.time(key) for key in range(len(styles))] == list(styles.values())
    changes = [Change(lock_of(one), NOON + 86_400_123) for one in taken.found]
    assert all(documents.update(changes))
    assert place.time(0) == "2026-11-16 12:00:00.123"
    assert place.time(5) == "2026-11-16T13:00:00.123+01:00"


@pytest.mark.parametrize(
    "value",
    [
        "soon",
        "",
        "12:00:00",
        "2460000.5",
        5,
        2460000.5,
        b"2026",
        "2026-02-30",
        "2026-11-15 24:00:00",
        "now",
        "0000-01-01 00:00:00",
        "2020-01-01 00:00:00 and more",
        "-4713-11-24 12:00:00",
        "\0",
        float("-inf"),
    ],
)
@pytest.mark.parametrize("form", ["text", "seconds", "milliseconds"])
def test_a_row_without_a_valid_time_is_never_due_and_blocks_no_other(
    place: Workplace, value: object, form: TimeFormat, caplog: pytest.LogCaptureFixture
) -> None:
    place.sql(PLAIN)
    # A number is a time where times are numbers.
    place.add(1, "5" if form != "text" and value in (5, 2460000.5) else value)
    with caplog.at_level(logging.WARNING, "evenbeat.documents"):
        documents = place.documents(times=form)
    assert ("a row is never due" in caplog.text) == (value != "")
    place.add(2, time_formats.write(NOON, form))
    place.add(3, time_formats.write(NOON + 5, form))
    taken = documents.lock_next(LOCK, 1)
    assert ids(taken.found) == [2]
    assert documents.lock_next(LOCK, 1) == ([], NOON + 5)


@pytest.mark.parametrize(
    ("value", "form", "advice"),
    [
        (1_794_766_239, "text", 'set times="seconds"'),
        (1_794_766_239.5, "text", 'set times="seconds"'),
        (1_794_766_239_000, "text", 'set times="milliseconds"'),
        (1_794_766_239_000, "seconds", 'set times="milliseconds"'),
        ("2026-11-15 12:00:00", "seconds", 'set times="text"'),
        ("soon", "text", "write it as 2026-03-01T09:00:00Z, or as a number"),
    ],
)
def test_the_warning_of_an_invalid_time_says_what_to_do(
    place: Workplace, value: object, form: TimeFormat, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    place.sql(PLAIN)
    place.add(1, value)
    with caplog.at_level(logging.WARNING, "evenbeat.documents"):
        place.documents(times=form)
    (message,) = caplog.messages
    assert message.endswith(f'is not a time in the format times="{form}"; {advice}')


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-15T11:00:00+0000",
        "2026-11-15T11:00:00+01",
        "2026-11-15T11:00:00,5Z",
        "2026-11-15t11:00:00",
        " 2026-11-15",
        "2026-11-15 11:00+15:00",
    ],
)
def test_a_time_that_sqlite_can_not_read_is_logged(
    place: Workplace, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    place.sql(PLAIN)
    place.add(0, "2026-11-15")
    place.add(1, "soon")
    place.add(2, text)
    with caplog.at_level(logging.WARNING, "evenbeat.documents"):
        documents = place.documents()
    (record,) = caplog.records
    assert f'SQLite does not read "{text}" as a time; write 2026-03-01 09:00:00' in record.getMessage()
    assert record.__dict__["document"] == "2"
    assert ids(documents.lock_next(LOCK, 5).found) == [0]
    instant = time_formats.read(text, "text")
    assert instant is not None
    assert documents.update([Change(DocumentLock(2, (instant,)), NOON)]) == [False]


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-15",
        "2026-11-15 ",
        "2026-11-15 11:00",
        "2026-11-15T11:00:00.5",
        "2026-11-15T11:00:00.500 Z",
        "2026-11-15T11:00:00z",
        "2026-11-15T11:00:00+14:00",
        "2026-11-15T11:00:00 +01:00\n",
        "9999-12-31 23:59:59",
        "2026-11-15t11:00",
        "2026-11-15 11:00+0000",
        "2026-11-15 11:00:00,5",
        "2026-11-15 11:00+14:60",
        "\u00a02026-11-15",
        "2026-11-15\u00a0",
        "2026-11-15 11:00-15:00",
    ],
)
def test_the_times_that_sqlite_reads_are_known(place: Workplace, text: str) -> None:
    ((is_read,),) = place.sql("SELECT julianday(?) IS NOT NULL", text)
    assert bool(sqlite_table._READABLE.fullmatch(text)) == is_read


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("text", "0001-01-01 00:00:00"),
        ("text", "0001-01-01T00:00:00Z"),
        ("text", "0001-01-01"),
        ("seconds", -62_135_596_800),
        ("milliseconds", -62_135_596_800_000),
    ],
)
def test_the_first_day_of_the_calendar_is_due(place: Workplace, form: TimeFormat, value: object) -> None:
    place.sql(PLAIN)
    place.add(1, value)
    documents = place.documents(times=form)
    (found,) = documents.lock_next(LOCK, 5).found
    assert found.sleep_until == FIRST
    assert documents.update([Change(lock_of(found), NOON)]) == [True]


@pytest.mark.parametrize("form", some(("text", "seconds", "milliseconds"), "seconds"))
def test_each_millisecond_is_met_exactly(place: Workplace, form: TimeFormat) -> None:
    """SQLite computes days as floats: a millisecond is some 1e-8 of a day."""
    place.sql(PLAIN)
    with closing(sqlite3.connect(place.path)) as connection, connection:
        rows = [(ms, time_formats.write(NOON + ms, form, "2026-11-15 12:00:00")) for ms in range(1000)]
        if form != "text":
            rows = [(ms, float(time)) for ms, time in rows]
        connection.executemany("INSERT INTO reminders (id, sleep_until) VALUES (?, ?)", rows)
    documents = place.documents(times=form)
    for ms in range(0, 990, 9):
        place.clock.now = NOON + ms
        first = max(0, ms - 8)
        taken = documents.lock_next(LOCK, 1000)
        assert ids(taken.found) == list(range(first, ms + 1))
        assert [one.sleep_until - NOON for one in taken.found] == list(range(first, ms + 1))
        assert taken.next_due == NOON + ms + 1
        assert documents.remove([lock_of(one) for one in taken.found]) == [True] * len(taken.found)


def test_seconds_have_no_fraction_if_it_is_zero(place: Workplace) -> None:
    place.sql("CREATE TABLE reminders (id INTEGER PRIMARY KEY, sleep_until INTEGER, repeat_until INTEGER)")
    place.sql("INSERT INTO reminders VALUES (1, ?, ?)", NOON // 1000, NOON // 1000 + 60)
    documents = place.documents(times="seconds")
    place.clock.now += 123
    (found,) = documents.lock_next(LOCK, 1).found
    assert found.repeat_until == from_ms(NOON + 60_000)
    assert place.time(1) == NOON / 1000 + 600.123
    assert documents.update([Change(lock_of(found), NOON + 5000)]) == [True]
    assert place.time(1) == NOON // 1000 + 5
    assert isinstance(place.time(1), int)
    place.clock.now += 5000
    (found,) = documents.lock_next(LOCK, 1).found
    assert documents.update([Change(lock_of(found), HELD_AT)]) == [True]
    assert documents.lock_next(LOCK, 1) == ([], HELD_AT)


@pytest.mark.parametrize("form", ["text", "seconds", "milliseconds"])
@pytest.mark.parametrize("where", ["", " WHERE sleep_until IS NOT NULL"])
def test_an_index_is_used(place: Workplace, form: TimeFormat, where: str) -> None:
    place.sql(PLAIN)
    indexed = "julianday(sleep_until)" if form == "text" else "sleep_until"
    place.sql(f"CREATE INDEX due ON reminders ({indexed}){where}")
    documents = place.documents(times=form, condition="note = ? OR note IS NULL", parameters=[5])
    asked: list[str] = []
    with documents._connections.read() as session:
        session.connection.set_trace_callback(asked.append)
        replace_writer(documents, session)
        documents.lock_next(LOCK, 1)
        session.connection.set_trace_callback(None)
        plans = [
            row[3]
            for text in asked
            if text.lstrip().startswith("SELECT")
            for row in session.rows("explain", f"EXPLAIN QUERY PLAN {text}")
        ]
    assert len(plans) == 2
    assert all(plan.startswith("SEARCH reminders USING INDEX due (") for plan in plans)


# The table


def test_a_missing_file_is_refused_and_not_created(place: Workplace) -> None:
    assert place.refused().field == "path"
    assert not place.path.exists()
    for path in ("", ":memory:", "a\0b"):
        with pytest.raises(InvalidValue):
            SqliteDocuments(path, "reminders")


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///m.db", "m.db"),
        ("sqlite:////var/m.db?timeout=5", "/var/m.db"),
        ("sqlite+pysqlite:///data/m.db", "data/m.db"),
        ("sqlite://", None),
        ("sqlite://m.db", "m.db"),
    ],
)
def test_a_url_instead_of_a_path_is_refused(url: str, path: str | None) -> None:
    with pytest.raises(InvalidValue) as refusal:
        SqliteDocuments(url, "reminders")
    assert refusal.value.hint == (f"give the path: {path}" if path else "name the file that has the table")


def test_a_value_that_is_not_a_path_is_refused(place: Workplace) -> None:
    with closing(sqlite3.connect(place.path)) as connection:
        for other in (connection, None, 5, b"m.db"):
            with pytest.raises(InvalidValue, match="is not the path of a file"):
                SqliteDocuments(other, "reminders")  # type: ignore[arg-type]  # the subject of the test


def test_a_deleted_file_is_not_created_again(place: Workplace) -> None:
    place.sql(PLAIN)
    documents = place.documents()
    documents.close()
    documents._connections.open()
    place.path.rename(place.path.with_suffix(".old"))
    with pytest.raises(StoreUnavailable):
        documents.lock_next(LOCK, 1)
    assert not place.path.exists()


def test_a_file_that_is_not_a_database_is_unavailable(place: Workplace) -> None:
    place.path.write_bytes(b"hello " * 1000)
    with pytest.raises(StoreUnavailable, match="not an SQLite database"):
        place.documents()


def test_a_missing_table_is_refused_and_the_existing_ones_are_named(place: Workplace) -> None:
    place.sql(PLAIN)
    place.sql("CREATE VIEW soon AS SELECT * FROM reminders")
    error = place.refused("nowhere")
    assert error.field == "table"
    assert "its tables: reminders" in str(error)
    error = place.refused("Soon")
    assert error.field == "table"
    assert "is a view, and can't be written to; name the table" in str(error)
    assert "another database" in str(place.refused("other.reminders"))
    place.documents("main.reminders")


def test_names_match_those_of_the_table_in_any_case(place: Workplace) -> None:
    place.sql("CREATE TABLE Reminders (Id TEXT PRIMARY KEY, Sleep_Until, CRON, Note)")
    place.sql("INSERT INTO reminders VALUES ('a', '2026-11-15', 'every 1m', NULL)")
    documents = place.documents("REMINDERS", key="ID", interval="cron")
    (found,) = documents.lock_next(LOCK, 1).found
    assert (found.id, found.interval) == ("a", "every 1m")
    with pytest.raises(InvalidValue, match="is the key of the row, or when it is due"):
        documents.update([Change(lock_of(found), None, {"SLEEP_UNTIL": "2020-01-01"})])
    assert documents.update([Change(lock_of(found), None, {"NOTE": "x"})]) == [True]
    assert place.sql("SELECT * FROM reminders") == [("a", None, "every 1m", "x")]


def test_a_column_that_was_named_must_exist(place: Workplace) -> None:
    place.sql(PLAIN)
    error = place.refused(interval="cron")
    assert 'reminders has no column "cron" (interval)' in str(error)
    assert "it has id, sleep_until, note" in str(error)
    assert "did you mean note?" in str(place.refused(key="notes"))


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE TABLE reminders (id, sleep_until)",
        "CREATE TABLE reminders (id, part, sleep_until, PRIMARY KEY (id, part)) WITHOUT ROWID",
        "CREATE TABLE reminders (id, sleep_until); CREATE UNIQUE INDEX u ON reminders (id) WHERE id > 5",
        "CREATE TABLE reminders (id, sleep_until); CREATE UNIQUE INDEX u ON reminders (lower(id))",
        "CREATE TABLE reminders (id, part, sleep_until, UNIQUE (id, part))",
    ],
)
def test_a_key_that_is_not_unique_is_refused(place: Workplace, schema: str) -> None:
    for statement in schema.split(";"):
        place.sql(statement)
    error = place.refused()
    assert error.field == "key"
    assert "is not unique" in str(error)


def test_a_unique_column_is_a_key_and_rows_without_a_key_are_ignored(place: Workplace) -> None:
    place.sql("CREATE TABLE reminders (number INTEGER PRIMARY KEY, id UNIQUE, sleep_until, note)")
    for key in (None, None, "x"):
        place.add(key, "2026-11-15")
    assert ids(place.documents().lock_next(LOCK, 1).found) == ["x"]


@pytest.mark.parametrize("key", [5, 2.5, 'it\'s "5"; ?', "5", b"\0\xff", -(2**63)])
@pytest.mark.parametrize("rest", ["", " WITHOUT ROWID"])
def test_keys_of_any_type(place: Workplace, key: object, rest: str) -> None:
    place.sql(f"CREATE TABLE reminders (id PRIMARY KEY, sleep_until, note){rest}")
    place.add(key, "2026-11-15")
    documents = place.documents()
    (found,) = documents.lock_next(LOCK, 1).found
    assert found.id == key
    assert documents.update([Change(lock_of(found), NOON, {"note": "x"})]) == [True]
    (found,) = documents.lock_next(LOCK, 1).found
    assert documents.remove([lock_of(found)]) == [True]


@pytest.mark.parametrize(
    "schema",
    [
        "id TEXT COLLATE NOCASE, sleep_until, note); CREATE UNIQUE INDEX u ON reminders (id COLLATE BINARY",
        "id TEXT COLLATE NOCASE PRIMARY KEY, sleep_until, note",
        "id TEXT COLLATE NOCASE PRIMARY KEY, sleep_until, note) WITHOUT ROWID; SELECT (1",
        "id INTEGER PRIMARY KEY, sleep_until, note",
        "id PRIMARY KEY, sleep_until, note",
    ],
)
def test_a_row_is_found_by_its_exact_key_in_an_index(place: Workplace, schema: str) -> None:
    for statement in f"CREATE TABLE reminders ({schema})".split(";"):
        place.sql(statement)
    keys: list[object] = (
        [1, 2] if "INTEGER" in schema else ["a", "b"] if "NOCASE PRIMARY" in schema else ["a", "A"]
    )
    for key in keys:
        place.add(key, "2026-11-15")
    documents = place.documents()
    asked: list[str] = []
    with documents._connections.read() as session:
        session.connection.set_trace_callback(asked.append)
        replace_writer(documents, session)
        (first, second) = documents.lock_next(LOCK, 2).found
        assert documents.update([Change(lock_of(first), NOON + 1)]) == [True]
        assert documents.remove([lock_of(second)]) == [True]
        session.connection.set_trace_callback(None)
    assert place.sql("SELECT id, sleep_until FROM reminders") == [(first.id, "2026-11-15 12:00:00.001")]
    known = [text for text in asked if "COLLATE BINARY" in text]
    assert len(known) >= 8
    plans = [row[3] for text in known for row in place.sql(f"EXPLAIN QUERY PLAN {text}")]
    assert all(plan.startswith("SEARCH reminders USING ") for plan in plans)


@pytest.mark.parametrize(
    ("declared", "form", "is_strict"),
    [
        ("TEXT", "seconds", False),
        ("VARCHAR(30)", "milliseconds", False),
        ("INTEGER", "seconds", True),
        ("INTEGER", "text", True),
        ("REAL", "text", True),
        ("TEXT", "seconds", True),
    ],
)
def test_a_column_that_can_not_hold_a_lock_is_refused(
    place: Workplace, declared: str, form: TimeFormat, is_strict: bool
) -> None:
    rest = " STRICT" if is_strict else ""
    place.sql(f"CREATE TABLE reminders (id TEXT PRIMARY KEY, sleep_until {declared}){rest}")
    assert place.refused(times=form).field == "times"
    assert place.refused(times="minutes").field == "times"


@pytest.mark.parametrize("declared", ["TEXT NOT NULL", "NOT NULL", "TEXT NOT NULL DEFAULT ''"])
def test_a_column_that_is_not_null_is_refused(place: Workplace, declared: str) -> None:
    place.sql(f"CREATE TABLE reminders (id INTEGER PRIMARY KEY, sleep_until {declared})")
    error = place.refused()
    assert error.field == "sleep_until"
    assert "is NOT NULL, and can't hold the null of a document that is done; " in str(error)
    assert "declared without NOT NULL" in str(error)


@pytest.mark.parametrize(
    ("declared", "form"),
    [("TEXT", "text"), ("ANY", "text"), ("REAL", "seconds"), ("ANY", "seconds"), ("INT", "milliseconds")],
)
def test_strict_tables_work(place: Workplace, declared: str, form: TimeFormat) -> None:
    place.sql(f"CREATE TABLE reminders (id INTEGER PRIMARY KEY, sleep_until {declared}, note TEXT) STRICT")
    place.add(1, time_formats.write(NOON, form))
    documents = place.documents(times=form)
    place.clock.now += 7
    (found,) = documents.lock_next(LOCK, 1).found
    assert documents.update([Change(lock_of(found), NOON + 8)]) == [True]
    assert documents.lock_next(LOCK, 1) == ([], NOON + 8)


@pytest.mark.parametrize("mode", ["delete", "wal", "truncate"])
def test_the_file_is_not_changed(place: Workplace, mode: str) -> None:
    place.sql(f"PRAGMA journal_mode = {mode}")
    place.sql(PLAIN)
    place.add(1, "2026-11-15")
    schema = place.sql("SELECT * FROM sqlite_master")
    documents = place.documents()
    (found,) = documents.lock_next(LOCK, 1).found
    assert documents.update([Change(lock_of(found), None)]) == [True]
    documents.close()
    assert place.sql("SELECT * FROM sqlite_master") == schema
    assert place.sql("PRAGMA journal_mode") == [("delete" if mode == "truncate" else mode,)]


# Values


@pytest.mark.parametrize(
    "fields",
    [
        {"nothing": 1},
        {"note": "never"},
        {"note": None},
        {"note": {"a": 1}},
        {"note": 2**80},
        {"note": "\ud800"},
        {"note": object()},
        {"id": 5},
        {"sleep_until": None},
        {"made": 4},
        {"note": "no"},
    ],
)
def test_a_refused_value_raises_an_error_and_changes_nothing(
    place: Workplace, fields: dict[str, Any]
) -> None:
    place.sql(
        "CREATE TABLE reminders (id INTEGER PRIMARY KEY, sleep_until, note NOT NULL CHECK (note <> 'never'), "
        "made AS (note || '!'))"
    )
    place.sql(
        "CREATE TRIGGER refuse BEFORE UPDATE ON reminders WHEN new.note = 'no' "
        "BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    for key in (1, 2):
        place.add(key, "2026-11-15", "n")
    documents = place.documents()
    first, second = documents.lock_next(LOCK, 2).found
    with pytest.raises(InvalidValue):
        documents.update([Change(lock_of(first), None), Change(lock_of(second), None, fields)])
    assert place.time(1) == place.time(2) == "2026-11-15 12:10:00"
    answers = documents.update([Change(lock_of(first), None), Change(lock_of(second), None, {"note": "y"})])
    assert answers == [True, True]


def test_foreign_keys_are_enforced(place: Workplace) -> None:
    place.sql(PLAIN)
    place.sql("CREATE TABLE parts (reminder REFERENCES reminders ON DELETE CASCADE)")
    place.sql("CREATE TABLE bills (reminder REFERENCES reminders)")
    for key in (1, 2):
        place.add(key, "2026-11-15")
    place.sql("INSERT INTO parts VALUES (1)")
    place.sql("INSERT INTO bills VALUES (2)")
    documents = place.documents()
    first, second = documents.lock_next(LOCK, 2).found
    assert documents.remove([lock_of(first)]) == [True]
    assert place.sql("SELECT * FROM parts") == []
    with pytest.raises(InvalidValue, match="FOREIGN KEY"):
        documents.remove([lock_of(second)])


def test_a_text_that_is_not_utf_8_blocks_no_other_row(place: Workplace) -> None:
    place.sql(PLAIN)
    place.sql(
        "INSERT INTO reminders VALUES (1, '2026-11-15', CAST(x'ff41' AS TEXT)), (2, '2026-11-15', x'ff')"
    )
    found = place.documents().lock_next(LOCK, 2).found
    assert [one.data["note"] for one in found] == ["\ufffdA", b"\xff"]


def test_the_times_of_rows_that_miss_the_condition_are_not_read(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be many of them, and a look holds the write lock."""
    place.sql(PLAIN)
    for key in range(5):
        place.add(key, "2026-11-14" if key % 2 else "2026-11-16", "done")
    place.add(6, "2026-11-15", "new")
    documents = place.documents(condition="note = ?", parameters=["new"])
    read: list[object] = []

    def instant_of(value: object, form: TimeFormat) -> Instant | None:
        read.append(value)
        return time_formats.read(value, form)

    monkeypatch.setattr("evenbeat.documents.sqlite.connections.instant_of", instant_of)
    assert ids(documents.lock_next(LOCK, 2).found) == [6]
    assert set(read) == {"2026-11-15", "2026-11-15 12:10:00"}


# Rows that can't be locked

REFUSALS = {
    "check": "",
    "ignore": "BEFORE UPDATE ON reminders WHEN old.note = 'bad' BEGIN SELECT RAISE(IGNORE); END",
    "abort": "BEFORE UPDATE ON reminders WHEN old.note = 'bad' BEGIN SELECT RAISE(ABORT, 'no'); END",
    "fail": "BEFORE UPDATE ON reminders WHEN old.note = 'bad' BEGIN SELECT RAISE(FAIL, 'no'); END",
    "round": "AFTER UPDATE ON reminders WHEN old.note = 'bad' "
    "BEGIN UPDATE reminders SET sleep_until = '2026-11-15 12:00' WHERE id = new.id; END",
    "error": "BEFORE UPDATE ON reminders WHEN old.note = 'bad' BEGIN SELECT json('{'); END",
}


@pytest.mark.parametrize("how", REFUSALS)
@pytest.mark.parametrize("limit", [1, 2, 10])
def test_unlockable_documents_are_logged_and_block_no_other(
    place: Workplace, how: str, limit: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = ", CHECK (note = 'good' OR sleep_until <= '2026-11-15 12')" if how == "check" else ""
    place.sql(f"CREATE TABLE reminders (id INTEGER PRIMARY KEY, sleep_until, note{check})")
    for key in range(3):
        place.add(key, "2026-11-14", "bad")
    for key in (3, 4):
        place.add(key, "2026-11-15", "good")
    if REFUSALS[how]:
        place.sql(f"CREATE TRIGGER refuse {REFUSALS[how]}")
    documents = place.documents()
    taken: list[int] = []
    with caplog.at_level(logging.ERROR, "evenbeat.documents"):
        while len(taken) < 2:
            taken += ids(documents.lock_next(LOCK, limit).found)
    assert taken == [3, 4]
    (record,) = caplog.records
    assert record.getMessage().startswith("documents can't be locked: ")
    assert (record.__dict__["document"], record.__dict__["count"]) == ("0", 3)
    assert documents.lock_next(LOCK, limit) == ([], NOON + LOCK)
    assert [place.time(key) for key in range(3)] == ["2026-11-14"] * 3
    monkeypatch.setattr("evenbeat.documents.locking._LEFT_OUT", -1.0)  # a minute later
    with pytest.raises(InvalidValue):
        documents.lock_next(LOCK, limit)
    if REFUSALS[how]:
        place.sql("DROP TRIGGER refuse")
        assert ids(documents.lock_next(LOCK, 10).found) == [0, 1, 2]


@pytest.mark.parametrize("limit", [1, 3])
def test_more_unlockable_documents_than_are_left_out_block_no_other(
    place: Workplace, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenbeat.documents.locking._MOST_LEFT_OUT", 5)
    monkeypatch.setattr("evenbeat.documents.sqlite.store._PASSES", 4)
    place.sql(PLAIN)
    place.sql(f"CREATE TRIGGER refuse {REFUSALS['ignore']}")
    for key in range(50):
        place.add(key, "2026-11-14", "bad")
    for key in (50, 51):
        place.add(key, "2026-11-15", "good")
    documents = place.documents()
    taken: list[int] = []
    while len(taken) < 2:
        taken += ids(documents.lock_next(LOCK, limit).found)
    assert sorted(taken) == [50, 51]


def test_a_row_whose_trigger_rolls_back_is_left_out_afterwards(place: Workplace) -> None:
    place.sql(PLAIN)
    place.add(1, "2026-11-14")
    place.add(2, "2026-11-15", "bad")
    place.sql(
        "CREATE TRIGGER refuse BEFORE UPDATE ON reminders WHEN old.note = 'bad' "
        "BEGIN SELECT RAISE(ROLLBACK, 'no'); END"
    )
    documents = place.documents()
    with pytest.raises(InvalidValue):
        documents.lock_next(LOCK, 5)
    assert ids(documents.lock_next(LOCK, 5).found) == [1]


def test_a_key_that_can_not_be_read_blocks_no_other(place: Workplace) -> None:
    place.sql("CREATE TABLE reminders (id TEXT PRIMARY KEY, sleep_until, note)")
    place.sql("INSERT INTO reminders VALUES (CAST(x'ff' AS TEXT), '2026-11-14', 1), ('a', '2026-11-15', 1)")
    documents = place.documents()
    assert ids(documents.lock_next(LOCK, 1).found) == ["a"]
    assert documents.lock_next(LOCK, 1).found == []


# The condition


@pytest.mark.parametrize(
    ("condition", "parameters"),
    [
        ("note LIKE '10%'", ()),
        ("note = ?", ["100"]),
        ("note = ? -- so", ["100"]),
        ("note <> '{}' AND id=2", []),
        ("reminders.note IN (?, ?)", ["100", "5"]),
        ("id IN (SELECT max(id) FROM reminders)", ()),
    ],
)
def test_conditions(place: Workplace, condition: str, parameters: list[Any]) -> None:
    place.sql(PLAIN)
    place.add(1, "2026-11-15", "20")
    place.add(2, "2026-11-15", "100")
    taken = place.documents(condition=condition, parameters=parameters).lock_next(LOCK, 5)
    assert ids(taken.found) == [2]


@pytest.mark.parametrize(
    ("condition", "parameters"),
    [
        ("", ()),
        ("note =", ()),
        ("nothing = 1", ()),
        ("note = ?", ["a", "b"]),
        ("note = ?", ()),
        (None, ["a"]),
        (5, ()),
        ("note = ?", "a"),
        ("note = ?", [object()]),
        ("true) OR (", ()),
    ],
)
def test_invalid_conditions_are_refused(place: Workplace, condition: Any, parameters: Any) -> None:
    place.sql(PLAIN)
    assert place.refused(condition=condition, parameters=parameters).field in ("condition", "parameters")


@pytest.mark.parametrize(
    ("condition", "parameters", "counts"),
    [
        ("note = ?", (), "1 placeholder for 0 parameters"),
        ("note = ?", ["a", "b"], "1 placeholder for 2 parameters"),
        ("note = '?'", ["a"], "0 placeholders for 1 parameter"),
        ("note IN (?, ?)", [1], "2 placeholders for 1 parameter"),
    ],
)
def test_placeholders_and_parameters_are_counted(
    place: Workplace, condition: str, parameters: list[Any], counts: str
) -> None:
    place.sql(PLAIN)
    error = place.refused(condition=condition, parameters=parameters)
    assert error.problem == f'condition "{condition}" has {counts}'


# The file


def test_a_file_that_others_write_to_is_unavailable_after_a_wait(place: Workplace) -> None:
    place.sql(PLAIN)
    place.add(1, "2026-11-15")
    documents = place.documents(busy_timeout=0.05)
    with closing(sqlite3.connect(place.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="holds the write lock"):
            documents.lock_next(LOCK, 1)
        other.execute("ROLLBACK")
    assert ids(documents.lock_next(LOCK, 1).found) == [1]


def test_calls_before_open_are_refused(place: Workplace) -> None:
    place.sql(PLAIN)
    documents = SqliteDocuments(place.path, "reminders")
    assert documents.name == "reminders"
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="call open"):
            documents.lock_next(LOCK, 1)
        documents.open()
        documents.close()


def test_closing_it_for_one_processor_does_not_close_it_for_another(place: Workplace) -> None:
    place.sql("CREATE TABLE reminders (id INTEGER, sleep_until, note)")
    place.sql("CREATE UNIQUE INDEX only ON reminders (id)")
    place.add(1, "2026-11-15")
    documents = place.documents()
    documents.open()
    documents.close()
    assert ids(documents.lock_next(LOCK, 1).found) == [1]
    place.sql("DROP INDEX only")
    with pytest.raises(InvalidValue):
        documents.open()
    assert documents.lock_next(LOCK, 1).found == []
    documents.close()
    with pytest.raises(StoreUnavailable):
        documents.lock_next(LOCK, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_child_of_a_fork_has_a_connection_of_its_own(place: Workplace) -> None:
    place.sql("PRAGMA journal_mode = WAL")
    place.sql(PLAIN)
    for key in (1, 2):
        place.add(key, "2026-11-15")
    documents = place.documents()
    child = os.fork()
    if child == 0:
        try:
            done = len(documents.lock_next(LOCK, 1).found) == 1
        except BaseException:
            done = False
        os._exit(0 if done else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(documents.lock_next(LOCK, 2).found) == 1


@pytest.mark.parametrize("condition", ["note = ?1", "note = :note", "note = @note", "note = $note"])
def test_placeholders_with_a_name_or_number_are_refused(tmp_path: Path, condition: str) -> None:
    with pytest.raises(
        InvalidValue, match=r"has the placeholder .*; write \? for each parameter, in their order"
    ):
        SqliteDocuments(tmp_path / "a.db", "jobs", condition=condition, parameters=["x"])


def test_a_placeholder_inside_of_a_text_is_not_one(tmp_path: Path) -> None:
    SqliteDocuments(tmp_path / "a.db", "jobs", condition="note <> 'at ?1 or :x' AND \"@a\" = ? -- $b")
