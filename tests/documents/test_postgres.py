"""Documents in PostgreSQL: the cases of its tables, types and servers, which the contract does not have."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from evenbeat.core.instants import FIRST, from_ms, to_ms
from evenbeat.documents import PostgresDocuments
from evenbeat.documents.base import HELD_AT, Change, DocumentLock, Found
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.testing.clock import VirtualClock
from tests.servers import free_port

LOCK = 600_000


class Workplace:
    """A schema of its own. ``t`` in statements is the table ``reminders`` there."""

    def __init__(self, url: str) -> None:
        self.url, _, self.schema = url.partition("?schema=")
        self.table = f"{self.schema}.reminders"
        self.connection = psycopg.connect(self.url, autocommit=True)
        self.sql(f"CREATE SCHEMA {self.schema}; SET search_path = {self.schema}")
        self.opened: list[PostgresDocuments] = []
        self.clock = VirtualClock()

    def sql(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(text.encode(), values or None)
        return cursor.fetchall() if cursor.description is not None else []

    def create(self, columns: str = "id int PRIMARY KEY, sleep_until timestamptz, note text") -> None:
        self.sql(f"CREATE TABLE reminders ({columns})")

    def add(self, key: object, sleep_until: object, note: object = None) -> None:
        self.sql("INSERT INTO reminders (id, sleep_until, note) VALUES (%s, %s, %s)", key, sleep_until, note)

    def documents(self, table: str | None = None, **options: Any) -> PostgresDocuments:
        options.setdefault("clock", self.clock)
        documents = PostgresDocuments(self.url, table or self.table, **options)
        documents.open()
        self.opened.append(documents)
        return documents

    def now(self) -> datetime:
        return from_ms(self.clock.now)

    def due(self, key: object) -> Any:
        return self.sql("SELECT sleep_until FROM reminders WHERE id = %s", key)[0][0]

    def refused(self, table: str | None = None, **options: Any) -> InvalidValue:
        with pytest.raises(InvalidValue) as refusal:
            self.documents(table, **options)
        return refusal.value

    def close(self) -> None:
        for documents in self.opened:
            documents.close()
        self.connection.close()


@pytest.fixture
def place(postgres: str) -> Iterator[Workplace]:
    place = Workplace(postgres)
    yield place
    place.close()


def lock_of(found: Found) -> DocumentLock:
    return DocumentLock(found.id, (found.locked_until,))


def ids(found: Any) -> list[Any]:
    return [one.id for one in found]


# The table


def test_a_missing_table_is_refused_and_a_similar_one_is_named(place: Workplace) -> None:
    place.create()
    error = place.refused(f"{place.schema}.Reminders")
    assert error.field == "table"
    assert "did you mean " in str(error)
    assert place.table in str(error)
    assert "create it first" in str(place.refused("nowhere"))


def test_without_a_schema_the_search_path_is_used(place: Workplace) -> None:
    place.create()
    place.add(1, place.now())
    url = f"{place.url}?options=-csearch_path%3D{place.schema}"
    documents = PostgresDocuments(url, "reminders", clock=place.clock)
    documents.open()
    place.opened.append(documents)
    assert ids(documents.lock_next(LOCK, 1).found) == [1]


def test_optional_columns_may_be_missing(place: Workplace) -> None:
    place.create()
    place.add(1, place.now())
    (found,) = place.documents().lock_next(LOCK, 1).found
    assert (found.interval, found.repeat_until, found.auto_remove) == (None, None, None)
    assert dict(found.data) == {"id": 1, "sleep_until": place.now(), "note": None}


@pytest.mark.parametrize(
    "options", [{"key": "nmae"}, {"sleep_until": "due_at"}, {"interval": "cron"}, {"auto_remove": "Note"}]
)
def test_a_column_that_was_named_must_exist(place: Workplace, options: dict[str, str]) -> None:
    place.create()
    error = place.refused(**options)
    ((field, column),) = options.items()
    assert error.field == field
    assert f'{place.table} has no column "{column}" ({field})' in str(error)
    assert "it has id, sleep_until, note" in str(error)


@pytest.mark.parametrize("kind", ["text", "bigint", "date", "timestamptz(0)", "timestamp(2)", "time"])
def test_a_column_that_can_not_hold_a_lock_is_refused(place: Workplace, kind: str) -> None:
    place.create(f"id int PRIMARY KEY, sleep_until {kind}")
    error = place.refused()
    assert error.field == "sleep_until"
    assert "timestamptz" in str(error)


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("timestamptz NOT NULL", 'ALTER TABLE {} ALTER COLUMN "sleep_until" DROP NOT NULL'),
        ("moment", "ALTER DOMAIN moment DROP NOT NULL"),
    ],
)
def test_a_column_that_is_not_null_is_refused(place: Workplace, kind: str, remedy: str) -> None:
    place.sql("CREATE DOMAIN moment AS timestamptz NOT NULL")
    place.create(f"id int PRIMARY KEY, sleep_until {kind}")
    error = place.refused()
    assert error.field == "sleep_until"
    assert "is NOT NULL, and can't hold the null of a document that is done" in str(error)
    hint = str(error.hint)
    assert hint.replace(f"{place.schema}.moment", "moment") == remedy.format(place.table)
    place.sql(hint)
    place.documents()


@pytest.mark.parametrize("kind", ["timestamptz(3)", "timestamp(6)", "moment"])
def test_other_types_of_times_are_accepted(place: Workplace, kind: str) -> None:
    place.sql("CREATE DOMAIN moment AS timestamptz CHECK (value > '1900-01-01')")
    place.create(f"id int PRIMARY KEY, sleep_until {kind}, note text")
    place.add(1, place.now().replace(tzinfo=None))
    documents = place.documents()
    (found,) = documents.lock_next(LOCK, 2).found
    assert documents.update([Change(lock_of(found), place.clock.now + 7)]) == [True]
    assert documents.lock_next(LOCK, 1) == ([], place.clock.now + 7)


@pytest.mark.parametrize(
    "columns",
    [
        "id int, sleep_until timestamptz",
        "id int, part int, sleep_until timestamptz, PRIMARY KEY (id, part)",
        "id int, sleep_until timestamptz, gone bool; CREATE UNIQUE INDEX ON reminders (id) WHERE gone",
        "id int, sleep_until timestamptz; CREATE UNIQUE INDEX ON reminders ((id + 1))",
    ],
)
def test_a_key_that_is_not_unique_is_refused(place: Workplace, columns: str) -> None:
    columns, _, index = columns.partition(";")
    place.create(columns)
    if index:
        place.sql(index)
    error = place.refused()
    assert error.field == "key"
    assert "has no unique index" in str(error)


def test_rows_without_a_key_block_no_other(place: Workplace) -> None:
    place.create("id int UNIQUE, sleep_until timestamptz, note text")
    for key in (None, None, 3):
        place.add(key, place.now())
    documents = place.documents()
    assert ids(documents.lock_next(LOCK, 2).found) == [3]
    assert documents.lock_next(LOCK, 2).next_due == place.clock.now + LOCK


def test_partitioned_tables_and_views_work_with_a_warning(
    place: Workplace, caplog: pytest.LogCaptureFixture
) -> None:
    place.sql(
        "CREATE TABLE reminders (id int, day date, sleep_until timestamptz, note text, "
        "PRIMARY KEY (id, day)) PARTITION BY RANGE (day)"
    )
    for year in (2025, 2026):
        place.sql(
            f"CREATE TABLE r{year} PARTITION OF reminders "
            f"FOR VALUES FROM ('{year}-01-01') TO ('{year + 1}-01-01')"
        )
        place.sql("INSERT INTO reminders VALUES (%s, %s, %s)", year, f"{year}-05-05", place.now())
    place.sql("CREATE VIEW soon AS SELECT id, sleep_until FROM reminders WHERE note IS NULL")
    with caplog.at_level(logging.WARNING, "evenbeat.documents"):
        table, view = place.documents(), place.documents(f"{place.schema}.soon")
    assert [record.args for record in caplog.records] == [("partitioned table",), ("view",)]
    (first,) = table.lock_next(LOCK, 1).found
    (second,) = view.lock_next(LOCK, 5).found
    assert {first.id, second.id} == {2025, 2026}
    assert view.update([Change(lock_of(second), None)]) == [True]
    assert table.remove([lock_of(first), lock_of(second)]) == [True, False]


def test_rows_with_the_same_key_that_are_not_due_are_not_changed(place: Workplace) -> None:
    place.sql(
        "CREATE TABLE reminders (id int, day int, sleep_until timestamptz, note text, PRIMARY KEY (id, day)) "
        "PARTITION BY LIST (day)"
    )
    place.sql("CREATE TABLE all_days PARTITION OF reminders DEFAULT")
    later = from_ms(place.clock.now + 5)
    place.sql("INSERT INTO reminders VALUES (1, 1, %s), (1, 2, NULL), (1, 3, %s)", place.now(), later)
    documents = place.documents()
    (found,) = documents.lock_next(LOCK, 5).found
    assert found.data["day"] == 1
    assert documents.update([Change(lock_of(found), None)]) == [True]
    assert place.sql("SELECT sleep_until FROM reminders ORDER BY day") == [(None,), (None,), (later,)]


def test_relations_whose_rows_can_not_be_locked_are_refused(place: Workplace) -> None:
    place.create()
    place.sql("CREATE MATERIALIZED VIEW frozen AS SELECT * FROM reminders")
    assert "neither a table nor a view" in str(place.refused(f"{place.schema}.frozen"))


def test_a_role_without_the_grants_is_refused_with_a_hint(place: Workplace) -> None:
    place.create()
    role = f"reader_{place.schema}"
    place.sql(f"CREATE ROLE {role} LOGIN")
    try:
        place.sql(f"GRANT USAGE ON SCHEMA {place.schema} TO {role}; GRANT SELECT ON reminders TO {role}")
        documents = PostgresDocuments(place.url.replace("evenbeat@", f"{role}@"), place.table)
        with pytest.raises(InvalidValue, match="grant the role SELECT, UPDATE"):
            documents.open()
    finally:
        place.sql(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "asyncpg"])
def test_the_url_of_sqlalchemy_is_refused(driver: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        PostgresDocuments(f"postgresql+{driver}://me:secret@host/shop", "reminders")
    assert f'drop "+{driver}": postgresql://…' in str(refusal.value)
    assert "secret" not in f"{refusal.value} {refusal.value.value}"


def test_a_value_that_is_not_a_url_is_refused(place: Workplace) -> None:
    for other in (place.connection, None, 5, b"postgresql://host/shop"):
        with pytest.raises(InvalidValue, match="is not a text; give a URL"):
            PostgresDocuments(other, "reminders")  # type: ignore[arg-type]  # the subject of the test


# Times


def test_times_outside_of_python_s_years_block_no_other(place: Workplace) -> None:
    place.create()
    for key, time in enumerate(["-infinity", "0044-03-15 BC", "infinity", "20000-01-01", "2020-01-01Z"]):
        place.add(key, time)
    documents = place.documents()
    taken = documents.lock_next(LOCK, 5)
    assert ids(taken.found) == [4]
    assert taken.next_due == place.clock.now + LOCK
    assert documents.update([Change(lock_of(taken.found[0]), None)]) == [True]
    assert documents.lock_next(LOCK, 5) == ([], None)


def test_values_without_a_python_type_are_read_as_texts(place: Workplace) -> None:
    place.create(
        "id int PRIMARY KEY, sleep_until timestamptz, repeat_until timestamptz, made date, note text, "
        "period daterange, days date[]"
    )
    for key, until, made in ((1, "infinity", "infinity"), (2, "2030-01-01Z", "2020-02-02")):
        place.sql(
            "INSERT INTO reminders VALUES (%s, %s, %s, %s, 'n', '[2020-01-01,infinity)', '{0044-03-15 BC}')",
            key,
            place.now(),
            until,
            made,
        )
    first, second = sorted(place.documents().lock_next(LOCK, 2).found, key=lambda one: int(one.id))
    assert first.repeat_until is None
    assert first.data["repeat_until"] == "infinity"
    assert first.data["made"] == "infinity"
    assert first.data["note"] == "n"
    assert str(second.data["made"]) == "2020-02-02"
    assert second.repeat_until == datetime(2030, 1, 1, tzinfo=UTC)
    assert second.data["days"] == '{"0044-03-15 BC"}'


@pytest.mark.parametrize("style", ["German", "SQL,DMY", "Postgres,MDY"])
@pytest.mark.parametrize("intervals", ["iso_8601", "sql_standard", "postgres_verbose"])
def test_date_and_interval_styles_of_the_session_have_no_effect(
    place: Workplace, style: str, intervals: str
) -> None:
    place.create("id int PRIMARY KEY, sleep_until timestamptz, note interval, day date, local timestamp")
    place.sql(
        "INSERT INTO reminders VALUES (1, %s, '1 day 2:03', '2026-02-03', '2026-02-03 04:05')", place.now()
    )
    options = f"-cDateStyle={style} -cIntervalStyle={intervals}".replace("=", "%3D").replace(" ", "%20")
    documents = PostgresDocuments(f"{place.url}?options={options}", place.table, clock=place.clock)
    place.opened.append(documents)
    documents.open()
    (found,) = documents.lock_next(LOCK, 1).found
    assert dict(found.data) == {
        "id": 1,
        "sleep_until": place.now(),
        "note": timedelta(days=1, hours=2, minutes=3),
        "day": date(2026, 2, 3),
        "local": datetime(2026, 2, 3, 4, 5),
    }
    assert documents.update([Change(lock_of(found), place.clock.now)]) == [True]


@pytest.mark.parametrize("levels", [101, 5000])
def test_json_that_is_too_deep_is_read_as_text(place: Workplace, levels: int) -> None:
    place.create("id int PRIMARY KEY, sleep_until timestamptz, note json")
    deep = "[" * levels + "]" * levels
    place.add(1, place.now(), deep)
    (found,) = place.documents().lock_next(LOCK, 1).found
    assert found.data["note"] == deep


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_the_first_day_of_the_calendar_is_due(place: Workplace, kind: str, zone: str) -> None:
    place.create(f"id int PRIMARY KEY, sleep_until {kind}, note text")
    place.sql("SET TimeZone = 'UTC'")
    place.add(1, "0001-01-01 00:00:00")
    place.add(2, "0001-01-01 23:00:00")
    documents = PostgresDocuments(f"{place.url}?options=-cTimeZone%3D{zone}", place.table, clock=place.clock)
    place.opened.append(documents)
    documents.open()
    found = documents.lock_next(LOCK, 2).found
    assert sorted(ids(found)) == [1, 2]
    assert [one.sleep_until for one in found] == [FIRST, FIRST]
    assert documents.update([Change(lock_of(one), place.clock.now) for one in found]) == [True, True]


@pytest.mark.parametrize("kind", ["jsonb", "int[]", "text[]", "uuid[]"])
def test_a_key_of_json_or_an_array_is_refused(place: Workplace, kind: str) -> None:
    place.create(f"id {kind} PRIMARY KEY, sleep_until timestamptz")
    error = place.refused()
    assert error.field == "key"
    assert f"is of type {kind.replace('int[', 'integer[')}" in str(error)


def test_a_time_between_two_milliseconds_is_not_early(place: Workplace) -> None:
    place.create()
    now = place.clock.now
    place.add(1, place.now().replace(microsecond=1))
    assert now % 1000 == 0
    documents = place.documents()
    assert documents.lock_next(LOCK, 1) == ([], now + 1)
    place.clock.now += 1
    (found,) = documents.lock_next(LOCK, 1).found
    assert found.sleep_until == now


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
def test_the_time_zone_of_the_server_has_no_effect(place: Workplace, kind: str) -> None:
    place.create(f"id int PRIMARY KEY, sleep_until {kind}, made timestamptz DEFAULT now(), note text")
    place.add(1, place.now().replace(tzinfo=None if kind == "timestamp" else UTC))
    place.add(2, from_ms(place.clock.now + 1).replace(tzinfo=None if kind == "timestamp" else UTC))
    documents = PostgresDocuments(
        f"{place.url}?options=-cTimeZone%3DAsia/Kolkata",
        place.table,
        clock=place.clock,
        condition="current_setting('TimeZone') = 'UTC'",
    )
    place.opened.append(documents)
    documents.open()
    taken = documents.lock_next(LOCK, 2)
    assert [(one.id, one.sleep_until) for one in taken.found] == [(1, place.clock.now)]
    assert taken.found[0].data["made"].tzinfo is UTC
    assert taken.next_due == place.clock.now + 1


def test_without_a_clock_it_uses_that_of_the_server(place: Workplace) -> None:
    place.create()
    place.sql("INSERT INTO reminders VALUES (1, clock_timestamp() - interval '1 s')")
    documents = place.documents(clock=None)
    (found,) = documents.lock_next(LOCK, 1).found
    now = documents.now()
    (servers_now,) = place.sql("SELECT clock_timestamp()")[0]
    assert 0 <= to_ms(servers_now) - now < 60_000
    assert place.due(1) == from_ms(found.locked_until)


# Keys and values


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("bigint", 2**62),
        ("smallint", 7),
        ("numeric(30, 2)", Decimal("12345678901234567890.25")),
        ("uuid", uuid.UUID(int=5)),
        ("text", 'it\'s "100%" {}; \\ $1 %s'),
        ("varchar(20)", "x"),
        ("char(10)", "abc       "),
        ("bytea", b"\0\xff"),
        ("mood", "sad"),
        ("date", "0044-03-15 BC"),
        ("timestamptz", datetime(2026, 1, 1, tzinfo=UTC)),
        ("inet", "10.0.0.1"),
    ],
)
def test_keys_of_any_type(place: Workplace, kind: str, key: object) -> None:
    place.sql("CREATE TYPE mood AS ENUM ('sad', 'happy')")
    place.create(f"id {kind} PRIMARY KEY, sleep_until timestamptz, note text")
    place.add(key, place.now())
    documents = place.documents()
    (found,) = documents.lock_next(LOCK, 1).found
    assert documents.update([Change(lock_of(found), place.clock.now)]) == [True]
    (found,) = documents.lock_next(LOCK, 1).found
    assert documents.update([Change(lock_of(found), place.clock.now, {"note": "x"})]) == [True]
    (found,) = documents.lock_next(LOCK, 1).found
    assert documents.remove([lock_of(found)]) == [True]


def test_values_of_all_kinds_are_read_and_written(place: Workplace) -> None:
    place.create(
        "id int PRIMARY KEY, sleep_until timestamptz, note text, a jsonb, b json, tags text[], "
        'price numeric, ok bool, "odd %s ""name""" text'
    )
    place.add(1, place.now())
    documents = place.documents()
    values = {
        "a": {"deep": [1, None, "x"]},
        "b": "text",
        "tags": ["a", "b"],
        "price": Decimal("1.10"),
        "ok": True,
        'odd %s "name"': "%",
    }
    (found,) = documents.lock_next(LOCK, 1).found
    assert documents.update([Change(lock_of(found), place.clock.now, values)]) == [True]
    (found,) = documents.lock_next(LOCK, 1).found
    assert {name: found.data[name] for name in values} == values
    cleared = dict.fromkeys(values)
    assert documents.update([Change(lock_of(found), None, cleared)]) == [True]
    assert place.sql("SELECT a, b, tags, price FROM reminders") == [(None, None, None, None)]


class Strange:
    pass


@pytest.mark.parametrize(
    "fields",
    [
        {"nothing": 1},
        {"note": "far too long"},
        {"note": None},
        {"number": "many"},
        {"number": 2**80},
        {"number": Strange()},
        {"number": {"a": 1}},
        {"note": "a\0b"},
        {"note": "\ud800"},
        {"note": "never"},
        {"a": Strange()},
        {"a": {"x": float("nan")}},
        {"id": 5},
        {"sleep_until": None},
        {"made": 4},
    ],
)
def test_a_refused_value_raises_an_error_and_changes_nothing(
    place: Workplace, fields: dict[str, Any]
) -> None:
    place.create(
        "id int PRIMARY KEY, sleep_until timestamptz, note varchar(5) NOT NULL, number int, a jsonb, "
        "made int GENERATED ALWAYS AS (number + 1) STORED"
    )
    place.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN IF NEW.note = 'never' THEN RAISE EXCEPTION 'no'; END IF; RETURN NEW; END$$"
    )
    place.sql("CREATE TRIGGER refuse BEFORE UPDATE ON reminders FOR EACH ROW EXECUTE FUNCTION refuse()")
    for key in (1, 2):
        place.add(key, place.now(), "n")
    documents = place.documents()
    first, second = documents.lock_next(LOCK, 2).found
    changes = [Change(lock_of(first), None), Change(lock_of(second), None, fields)]
    with pytest.raises((InvalidValue, TypeError)):  # a TypeError of the JSON encoder
        documents.update(changes)
    assert place.due(first.id) == place.due(second.id) == from_ms(place.clock.now + LOCK)
    assert documents.update([changes[0], Change(lock_of(second), None)]) == [True, True]


def test_a_document_is_returned_as_it_was_before_triggers_changed_it(place: Workplace) -> None:
    place.create("id int PRIMARY KEY, sleep_until timestamptz, note text, version int DEFAULT 0")
    place.sql(
        "CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN NEW.version = OLD.version + 1; RETURN NEW; END$$"
    )
    place.sql("CREATE TRIGGER touch BEFORE UPDATE ON reminders FOR EACH ROW EXECUTE FUNCTION touch()")
    place.add(1, place.now())
    (found,) = place.documents().lock_next(LOCK, 1).found
    assert found.data["version"] == 0


def test_a_row_that_a_foreign_key_refers_to_is_not_removed(place: Workplace) -> None:
    place.create()
    place.sql("CREATE TABLE children (parent int REFERENCES reminders)")
    place.add(1, place.now())
    place.sql("INSERT INTO children VALUES (1)")
    documents = place.documents()
    (found,) = documents.lock_next(LOCK, 1).found
    with pytest.raises(InvalidValue, match="foreign key"):
        documents.remove([lock_of(found)])


def test_columns_that_are_added_later_are_read(place: Workplace) -> None:
    place.create()
    place.add(1, place.now())
    documents = place.documents()
    place.sql("ALTER TABLE reminders ADD extra int DEFAULT 3, DROP note")
    (found,) = documents.lock_next(LOCK, 1).found
    assert found.data["extra"] == 3


# Rows that can't be locked

REFUSALS = {
    "check": "",
    "skip": "IF old.note = 'bad' THEN RETURN NULL; END IF; RETURN new;",
    "round": "IF old.note = 'bad' THEN new.sleep_until = old.sleep_until; END IF; RETURN new;",
    "raise": "IF old.note = 'bad' THEN RAISE EXCEPTION 'no'; END IF; RETURN new;",
    "own code": "IF old.note = 'bad' THEN RAISE EXCEPTION 'no' USING ERRCODE = 'UX001'; END IF; RETURN new;",
}


def trigger(place: Workplace, text: str, when: str = "UPDATE") -> None:
    place.sql(f"CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {text} END$$")
    place.sql(f"CREATE TRIGGER own BEFORE {when} ON reminders FOR EACH ROW EXECUTE FUNCTION own()")


@pytest.mark.parametrize("how", REFUSALS)
@pytest.mark.parametrize("limit", [1, 2, 10])
def test_unlockable_documents_are_logged_and_block_no_other(
    place: Workplace, how: str, limit: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.create()
    for key in range(3):
        place.add(key, place.now() - timedelta(days=1), "bad")
    for key in (3, 4):
        place.add(key, place.now(), "good")
    if how == "check":
        place.sql(f"ALTER TABLE reminders ADD CHECK (note = 'good' OR sleep_until < '{place.now()}')")
    else:
        trigger(place, REFUSALS[how])
    documents = place.documents()
    taken: list[int] = []
    with caplog.at_level(logging.ERROR, "evenbeat.documents"):
        while len(taken) < 2:
            taken += ids(documents.lock_next(LOCK, limit).found)
    assert taken == [3, 4]
    (record,) = caplog.records
    assert record.getMessage().startswith("documents can't be locked: ")
    assert (record.__dict__["document"], record.__dict__["count"]) == ('"0"', 3)
    assert documents.lock_next(LOCK, limit) == ([], place.clock.now + LOCK)
    monkeypatch.setattr("evenbeat.documents.locking._LEFT_OUT", -1.0)  # a minute later
    with pytest.raises(InvalidValue):
        documents.lock_next(LOCK, limit)
    if how != "check":
        place.sql("DROP TRIGGER own ON reminders")
        assert sorted(ids(documents.lock_next(LOCK, 10).found)) == [0, 1, 2]


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("how", ["raise", "skip"])
def test_more_unlockable_documents_than_are_left_out_block_no_other(
    place: Workplace, how: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenbeat.documents.locking._MOST_LEFT_OUT", 5)
    monkeypatch.setattr("evenbeat.documents.postgres.store._WINDOW", 4)
    place.create()
    trigger(place, REFUSALS[how])
    for key in range(50):
        place.add(key, place.now() - timedelta(days=1), "bad")
    for key in (50, 51):
        place.add(key, place.now(), "good")
    documents = place.documents()
    taken: list[int] = []
    while len(taken) < 2:
        taken += ids(documents.lock_next(LOCK, limit).found)
    assert sorted(taken) == [50, 51]


def test_locked_rows_are_returned_if_the_server_disconnects(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.create()
    for key, note in enumerate(["good", "bad", "good"]):
        place.add(key, place.now() + timedelta(seconds=key - 5), note)
    trigger(place, REFUSALS["raise"])
    documents = place.documents()
    send = documents._transaction

    def cut(statements: Any, *rest: Any, **options: Any) -> Any:
        if statements[0][1].get("key") == "1":
            raise StoreUnavailable("away")
        return send(statements, *rest, **options)

    monkeypatch.setattr(documents, "_transaction", cut)
    assert ids(documents.lock_next(LOCK, 3).found) == [0]
    assert place.due(2) < place.now()

    def cut_later(statements: Any, *rest: Any, **options: Any) -> Any:
        if "last" in statements[0][1]:  # the query for the next due row
            raise StoreUnavailable("away")
        return send(statements, *rest, **options)

    monkeypatch.setattr(documents, "_transaction", cut_later)
    taken = documents.lock_next(LOCK, 3)
    assert (ids(taken.found), taken.next_due) == ([2], place.clock.now)
    with pytest.raises(StoreUnavailable):
        documents.lock_next(LOCK, 3)


def test_a_row_whose_lock_a_trigger_shortens_is_not_returned(place: Workplace) -> None:
    place.create()
    place.add(1, place.now())
    trigger(place, "new.sleep_until = date_trunc('second', new.sleep_until); RETURN new;")
    documents = place.documents()
    with pytest.raises(InvalidValue, match="does a trigger change it"):
        documents.lock_next(LOCK + 1, 1)


@pytest.mark.parametrize("is_removed", [False, True])
@pytest.mark.parametrize("code", ["UX001", "P0001", "42501"])
def test_a_result_that_a_trigger_refuses_does_not_make_the_store_unavailable(
    place: Workplace, is_removed: bool, code: str
) -> None:
    place.create()
    place.add(1, place.now())
    documents = place.documents()
    (found,) = documents.lock_next(LOCK, 1).found
    trigger(place, f"RAISE EXCEPTION 'no' USING ERRCODE = '{code}';", "UPDATE OR DELETE")
    with pytest.raises(InvalidValue, match="refused a row: no"):
        documents.remove([lock_of(found)]) if is_removed else documents.update([Change(lock_of(found), None)])


def test_a_policy_that_refuses_a_row_is_not_taken_for_a_missing_grant(place: Workplace) -> None:
    place.create()
    place.add(1, place.now() - timedelta(days=1), "bad")
    place.add(2, place.now(), "good")
    role = f"{place.schema}_role"
    place.sql(f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {place.schema} TO {role}")
    try:
        place.sql(f"GRANT SELECT, UPDATE, DELETE ON reminders TO {role}")
        place.sql("ALTER TABLE reminders ENABLE ROW LEVEL SECURITY")
        place.sql(
            "CREATE POLICY own ON reminders USING (true) "
            f"WITH CHECK (note = 'good' AND sleep_until < '{place.now() + timedelta(days=1)}')"
        )
        documents = PostgresDocuments(
            place.url.replace("evenbeat@", f"{role}@"), place.table, clock=place.clock
        )
        documents.open()
        place.opened.append(documents)
        (found,) = documents.lock_next(LOCK, 1).found
        assert found.id == 2
        with pytest.raises(InvalidValue, match="row-level security"):
            documents.update([Change(lock_of(found), HELD_AT)])
        place.sql(f"REVOKE UPDATE ON reminders FROM {role}")
        place.sql("UPDATE reminders SET sleep_until = %s", place.now())
        with pytest.raises(StoreUnavailable, match="permission denied"):
            documents.lock_next(LOCK, 1)
        documents.close()
    finally:
        place.sql(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.parametrize("kind", ["bytea", "daterange", "interval", "inet"])
def test_an_unlockable_row_may_have_any_key(place: Workplace, kind: str) -> None:
    values = {"bytea": "\\x00ff", "daterange": "[2020-01-01,)", "interval": "1 day", "inet": "10.0.0.1"}
    place.create(f"id {kind} PRIMARY KEY, sleep_until timestamptz, note text")
    place.add(values[kind], place.now())
    trigger(place, "RETURN NULL;")
    documents = place.documents()
    with pytest.raises(InvalidValue):
        documents.lock_next(LOCK, 1)
    assert documents.lock_next(LOCK, 1) == ([], None)


# The condition


@pytest.mark.parametrize(
    ("condition", "parameters"),
    [
        ("note LIKE '10%'", ()),
        ("note LIKE '10%'", []),
        ("note LIKE %s AND note LIKE '10%%'", ["%0%"]),
        ("note = %s -- as it is", ["100"]),
        ("reminders.note = '100' OR reminders.note = '{}'", ()),
        ("note = ANY (%s)", [["100", "x"]]),
        ("note <> '%s' AND note = %s AND note <> 'it''s %s'", ["100"]),
        ("note = %s AND note <> E'\\'%s' /* 100%s\n'%s */ AND note <> $a$ %s ' $$ $a$ -- it's %s", ["100"]),
        ("note = %s AND note LIKE '%0' AND note LIKE '%%0' AND id % 2 = 0 AND id %% 2 = 0", ["100"]),
        ("note <> '%s' AND note LIKE '1%0' AND id % 2 = 0", ()),
        ("2 %id = 0 AND id > 1", ()),
        ("id IN (SELECT id FROM reminders WHERE note = '100')", ()),
    ],
)
def test_conditions(place: Workplace, condition: str, parameters: list[Any]) -> None:
    place.create()
    place.add(1, place.now(), "20")
    place.add(2, place.now(), "100")
    url = f"{place.url}?options=-csearch_path%3D{place.schema}"
    documents = PostgresDocuments(
        url, "reminders", condition=condition, parameters=parameters, clock=place.clock
    )
    place.opened.append(documents)
    documents.open()
    assert ids(documents.lock_next(LOCK, 5).found) == [2]


@pytest.mark.parametrize(
    ("condition", "parameters"),
    [
        ("", ()),
        ("note =", ()),
        ("nothing = 1", ()),
        ("note = %s", ["a", "b"]),
        ("note = %s", ()),
        ("note", ()),
        (None, ["a"]),
        (5, ()),
        ("note = %s", "a"),
        ("note = %s AND id % 2 = 0 AND (", [5]),
        ("id = %s", ["many"]),
        ("note = %s", [Strange()]),
    ],
)
def test_invalid_conditions_are_refused(place: Workplace, condition: Any, parameters: Any) -> None:
    place.create()
    assert place.refused(condition=condition, parameters=parameters).field in ("condition", "parameters")


@pytest.mark.parametrize(
    ("condition", "parameters", "counts"),
    [
        ("note = %s", (), "1 placeholder for 0 parameters"),
        ("note = %s AND note <> '%s' AND id = %s", (), "2 placeholders for 0 parameters"),
        ("note = %s", ["a", "b"], "1 placeholder for 2 parameters"),
        ("note = '%s'", ["a"], "0 placeholders for 1 parameter"),
        ("id = %s AND id %% 2 = %s", [2], "2 placeholders for 1 parameter"),
    ],
)
def test_placeholders_and_parameters_are_counted(
    place: Workplace, condition: str, parameters: list[Any], counts: str
) -> None:
    place.create()
    error = place.refused(condition=condition, parameters=parameters)
    assert error.problem == f'condition "{condition}" has {counts}'


@pytest.mark.parametrize(
    ("table", "options"),
    [
        ("", {}),
        ("a.b.c", {}),
        ('"open', {}),
        ("a..b", {}),
        (".a", {}),
        (None, {}),
        ('a"b', {}),
        ("a\0", {}),
        ("t", {"key": ""}),
        ("t", {"interval": None}),
        ("t", {"key": "sleep_until"}),
    ],
)
def test_invalid_names_are_refused_at_once(table: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        PostgresDocuments("postgresql://nobody.invalid/x", table, **options)


# Contention


def test_exactly_as_many_as_wanted_are_locked(place: Workplace) -> None:
    place.create()
    place.sql("INSERT INTO reminders SELECT n, %s FROM generate_series(1, 50) AS n", place.now())
    place.sql("ANALYZE reminders")
    documents = place.documents()
    assert len(documents.lock_next(LOCK, 3).found) == 3
    locked = "SELECT count(*) FROM reminders WHERE sleep_until > %s"
    assert place.sql(locked, place.now()) == [(3,)]


def test_a_row_that_a_transaction_has_locked_is_skipped(place: Workplace) -> None:
    place.create()
    for key in (1, 2):
        place.add(key, place.now())
    documents = place.documents()
    with place.connection.transaction():
        place.sql("UPDATE reminders SET note = 'mine' WHERE id = 1")
        assert ids(documents.lock_next(LOCK, 5).found) == [2]
    (found,) = documents.lock_next(LOCK, 5).found
    assert (found.id, found.data["note"]) == (1, "mine")


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_write_to_a_row_that_a_transaction_has_locked_delays_no_other(
    place: Workplace, monkeypatch: pytest.MonkeyPatch, is_removed: bool
) -> None:
    monkeypatch.setattr("evenbeat.documents.postgres.store._LOCK_TIMEOUT", 0.05)
    place.create()
    for key in (1, 2, 3):
        place.add(key, place.now())
    documents = place.documents()
    locks = [lock_of(one) for one in sorted(documents.lock_next(LOCK, 3).found, key=lambda one: int(one.id))]
    write: Callable[[], list[bool | None]] = (
        (lambda: documents.remove(locks))
        if is_removed
        else (lambda: documents.update([Change(lock, None) for lock in locks]))
    )
    with place.connection.transaction():
        place.sql("SELECT 1 FROM reminders WHERE id = 2 FOR UPDATE")
        assert write() == [True, None, True]
        rows = place.sql("SELECT id FROM reminders WHERE sleep_until IS NOT NULL")
        assert rows == [(2,)]
    assert write() == [False, True, False]


# The connection


def test_its_name_and_errors_have_no_password(place: Workplace) -> None:
    place.create()
    documents = place.documents()
    names = place.sql("SELECT application_name FROM pg_stat_activity WHERE datname = current_database()")
    assert ("evenbeat documents",) in names
    assert documents.name == place.table
    assert documents.reserved == {"id", "sleep_until"}
    secret = place.url.replace("evenbeat@", "evenbeat:secret@")
    with pytest.raises(InvalidValue) as refusal:
        PostgresDocuments(secret, "nowhere").open()
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("default", "used"), [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")]
)
def test_answered_writes_survive_a_crash_of_the_server(place: Workplace, default: str, used: str) -> None:
    place.create("id int PRIMARY KEY, sleep_until timestamptz, note text, auto_remove bool DEFAULT false")
    place.add(1, place.now())
    place.sql("CREATE TABLE seen (how text)")
    seen = f"{place.schema}.seen"
    written = f"INSERT INTO {seen} VALUES (current_setting('synchronous_commit'))"
    trigger(place, f"{written}; RETURN coalesce(new, old);", "UPDATE OR DELETE")
    url = f"{place.url}?options=-csynchronous_commit%3D{default}"
    documents = PostgresDocuments(url, place.table, clock=place.clock)
    documents.open()
    place.opened.append(documents)
    (found,) = documents.lock_next(LOCK, 1).found
    until = found.locked_until + LOCK
    assert documents.update([Change(lock_of(found), until)]) == [True]
    assert documents.remove([DocumentLock(found.id, (until,))]) == [True]
    assert place.sql("SELECT how FROM seen") == [(used,)] * 3


def test_a_lost_connection_is_replaced(place: Workplace) -> None:
    place.create()
    place.add(1, place.now())
    documents = place.documents()
    ended = place.sql(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE application_name = 'evenbeat documents' AND query LIKE 'COMMIT%%' AND %s",
        True,
    )
    assert ended == [(True,)]
    for _ in range(2):
        # The driver may notice the end of a connection before it sends something, or only then.
        try:
            assert ids(documents.lock_next(LOCK, 1).found) == [1]
            break
        except StoreUnavailable:
            continue
    assert place.due(1) == from_ms(place.clock.now + LOCK)


def test_a_server_that_is_down_is_unavailable() -> None:
    documents = PostgresDocuments(f"postgresql://me:secret@127.0.0.1:{free_port()}/x", "reminders", timeout=2)
    with pytest.raises(StoreUnavailable) as failure:
        documents.open()
    assert "secret" not in str(failure.value)
    for call in (documents.now, lambda: documents.lock_next(LOCK, 1), lambda: documents.update([])):
        with pytest.raises(StoreUnavailable):
            call()


def test_a_table_that_is_dropped_is_unavailable_until_it_is_back(place: Workplace) -> None:
    place.create()
    place.add(1, place.now())
    documents = place.documents()
    place.sql("ALTER TABLE reminders RENAME TO old")
    with pytest.raises(StoreUnavailable):
        documents.lock_next(LOCK, 1)
    place.sql("ALTER TABLE old RENAME TO reminders")
    assert ids(documents.lock_next(LOCK, 1).found) == [1]


def test_closing_it_for_one_processor_does_not_close_it_for_another(place: Workplace) -> None:
    place.create()
    place.add(1, place.now())
    documents = place.documents()
    documents.open()
    documents.close()
    assert ids(documents.lock_next(LOCK, 1).found) == [1]
    place.sql("ALTER TABLE reminders DROP CONSTRAINT reminders_pkey")
    with pytest.raises(InvalidValue):
        documents.open()
    assert documents.lock_next(LOCK, 1).found == []
    documents.close()
    with pytest.raises(StoreUnavailable):
        documents.lock_next(LOCK, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_child_of_a_fork_has_a_connection_of_its_own(place: Workplace) -> None:
    place.create()
    for key in (1, 2):
        place.add(key, place.now())
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
