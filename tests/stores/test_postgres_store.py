"""Properties of the PostgreSQL store alone: sessions, poolers, roles, locks, SQL. tests/contract has the
others."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from msgspec.structs import replace
from psycopg.pq import PGconn

from evenbeat.core.records import FORMAT, LogChunk, Record, RunRecord, ScheduleRecord
from evenbeat.errors import EvenbeatError, InvalidValue, SchemaTooNew, StoreUnavailable, TooLarge
from evenbeat.observe.run_logs import chunk_of
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import Active, Planned, plan
from evenbeat.rules.limits import Limit, Limits
from evenbeat.stores import waking
from evenbeat.stores.base import LARGE_FIELDS, Claim, RunQuery, ScheduleQuery, Setting, Write
from evenbeat.stores.postgres import (
    PostgresStore,
    claim_statements,
    connections,
    encoding,
    history,
    joining,
    outlook,
    past_statements,
    runs,
    schedules,
    schema,
    server_checks,
    session,
    statements,
)
from evenbeat.stores.postgres.location import read_location
from evenbeat.stores.postgres.waking import ListenReceiver
from evenbeat.testing import VirtualClock
from tests.conftest import server_url
from tests.isolation import own_place
from tests.store_calls import (
    CommandLog,
    Crash,
    add_schedules,
    claim,
    every_call,
    exit_code_of_child,
    schedule_names,
    wait_until_receiving,
)
from tests.stores import on_postgres
from tests.stores.on_postgres import TABLES, plain, sql

MINUTE = 60_000
a_place, clock, make = on_postgres.a_place, on_postgres.clock, on_postgres.make
options, store = on_postgres.options, on_postgres.store


def dump(store: PostgresStore) -> dict[str, list[Any]]:
    """Return the content of all tables."""
    return {table: sorted(sql(store, f"SELECT * FROM evenbeat.{table}"), key=repr) for table in TABLES}


def spoil(store: PostgresStore, table: str, damage: str, row: str) -> None:
    """Write a value that no version of Evenbeat writes."""
    checks = f"conrelid = 'evenbeat.{table}'::regclass AND contype = 'c'"
    for (name,) in sql(store, f"SELECT conname FROM pg_constraint WHERE {checks}"):
        sql(store, f"ALTER TABLE evenbeat.{table} DROP CONSTRAINT {name}")
    sql(store, f"UPDATE evenbeat.{table} SET {damage} WHERE {row}")


# URLs.


def test_a_url_is_taken_apart_and_shows_no_password() -> None:
    ear = "postgresql://ear:hidden@db2:5432/app"
    url = f"postgres://me:secret@db1:6432/app?sslmode=require&schema=acme&listen={quote(ear, safe='')}"
    store = PostgresStore(url)
    assert store.location.schema == "acme"
    assert store.location.channel == "acme_wake"
    assert "sslmode=require" in store.location.conninfo
    assert "schema" not in store.location.conninfo
    assert store.location.listen is not None
    assert "db2" in store.location.listen
    assert store.location.shown == "postgresql://me:***@db1:6432/app"
    assert PostgresStore("postgresql://db1/app?listen=off").location.listen is None
    assert PostgresStore("postgresql://db1/app", listen="off", schema="x").location.schema == "x"


def test_of_several_hosts_the_one_that_takes_writes_is_used() -> None:
    place = read_location("postgresql://me@a:1,b:2/app", None, None, 5)
    assert "host=a,b" in place.conninfo
    assert "port=1,2" in place.conninfo
    assert "target_session_attrs=read-write" in place.conninfo
    assert (
        "target_session_attrs=any"
        in read_location("postgresql://a,b/app?target_session_attrs=any", None, None, 5).conninfo
    )


@pytest.mark.parametrize("name", ["Acme", "a-b", "pg_own", "", "9lives", 'x"; DROP', "a" * 49])
def test_a_schema_that_is_not_a_plain_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match="schema"):
        PostgresStore(f"postgresql://db/app?schema={quote(name)}" if name else "postgresql://db/app?schema=")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:secret@db:notaport/app",
        "postgresql://me:secret%zz@db/app",
        "postgresql://me:secret@db/app?no_such_option=1",
        "postgresql://db/app?listen=postgresql%3A%2F%2Fme%3Asecret%40db%3Anotaport%2Fapp",
        "postgresql://db/app?password=secret&no_such_option=1",
    ],
)
def test_an_invalid_url_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(EvenbeatError) as caught:
        PostgresStore(url).open()
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None or "secret" not in str(caught.value.__cause__)


def test_a_server_that_is_not_there_is_reported_without_the_password() -> None:
    store = PostgresStore("postgresql://me:secret@127.0.0.1:1/app?connect_timeout=2")
    with pytest.raises(StoreUnavailable, match="is the server running") as caught:
        store.open()
    assert "127.0.0.1:1" in str(caught.value)
    assert "secret" not in str(caught.value)
    with pytest.raises(StoreUnavailable, match="not open"):
        store.count_runs()
    store.hint()  # best effort


def test_two_installations_share_a_database_and_nothing_else() -> None:
    server = server_url("postgres")
    with own_place(server) as one, own_place(server) as two:
        first, second = PostgresStore(one), PostgresStore(two)
        for store in (first, second):
            store.open()
        add_schedules(first, "mine")
        first.add_runs([RunRecord(id="r", task="work")])
        assert schedule_names(second) == []
        assert second.count_runs() == {}
        assert second.add_runs([RunRecord(id="r", task="work")]) == [True]
        assert second.wait(0.3) in (True, False)
        for store in (first, second):
            store.close()


# Opening and closing.


def test_many_processes_and_threads_open_a_new_schema_at_once() -> None:
    code = (
        "import sys, threading; from evenbeat.stores.postgres import PostgresStore\n"
        "stores = [PostgresStore(sys.argv[1], timeout=60) for _ in range(3)]\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "threads = [threading.Thread(target=store.open) for store in stores]\n"
        "[thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
        "print([store.count_runs() for store in stores]); [store.close() for store in stores]"
    )
    with own_place(server_url("postgres")) as url:
        command = [sys.executable, "-c", code, url]
        started = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(4)
        ]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        answers = [process.communicate("go\n", timeout=60) for process in started]
        assert [answer[0] for answer in answers] == ["[{}, {}, {}]\n"] * 4
        assert [process.returncode for process in started] == [0] * 4


def test_a_newer_schema_is_refused() -> None:
    with own_place(server_url("postgres")) as url:
        store = PostgresStore(url)
        store.open()
        store.close()
        sql(store, "UPDATE evenbeat.meta SET value = '99'")
        with pytest.raises(SchemaTooNew) as caught:
            store.open()
        assert (caught.value.found, caught.value.known) == (99, schema.KNOWN)
        assert store.schema().found == 99
        sql(store, "UPDATE evenbeat.meta SET value = 'many'")
        with pytest.raises(StoreUnavailable, match="not a number"):
            store.open()


def test_the_printed_schema_creates_the_same_tables_as_open() -> None:
    server = server_url("postgres")
    question = (
        "SELECT c.relname, c.relkind, c.reloptions, pg_get_indexdef(c.oid) FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{}' AND c.relkind IN ('r', 'i') "
        "ORDER BY c.relname"
    )
    columns = (
        "SELECT table_name, column_name, data_type, is_nullable, collation_name "
        "FROM information_schema.columns WHERE table_schema = '{}' ORDER BY table_name, ordinal_position"
    )
    found = []
    with own_place(server) as by_store, own_place(server) as by_hand:
        first, second = PostgresStore(by_store), PostgresStore(by_hand)
        first.open()
        before = second.schema()
        assert (before.found, before.known) == (0, schema.KNOWN)
        assert first.schema() == (schema.KNOWN, schema.KNOWN, "")
        sql(second, before.script)
        watch = CommandLog()
        opened = PostgresStore(by_hand, on_command=watch)
        opened.open()
        assert watch.seen == [
            "connect",
            "select schema version",
            "select schema version",
            "select settings",
            *["try transaction"] * 3,
        ]
        assert opened.count_runs() == {}
        for store in (first, second):
            name = store.location.schema
            rows = [*sql(store, question.format(name)), *sql(store, columns.format(name))]
            found.append([str(row).replace(name, "S") for row in rows])
        for store in (first, opened):
            store.close()
    assert found[0] == found[1]
    assert len(found[0]) > 80


def test_tables_of_the_first_version_are_upgraded_and_their_rows_stay() -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    with own_place(server_url("postgres")) as url:
        store = PostgresStore(url)
        statements = [schema.CREATE_SCHEMA, schema.META, *schema.MIGRATIONS[1], schema.SET_VERSION.format(1)]
        sql(store, ";".join(statements))
        sql(
            store,
            "INSERT INTO evenbeat.runs (id, tenant, cause, coalesced, task, kind, payload, queue, priority, "
            "execution, state, scheduled_at, run_at, attempt, failures, crashes, cancel_requested, "
            "created_at, format) VALUES ('old', 'default', 'enqueue', 0, 'work', 'task', 'null', 'default', "
            "5, '{}', 'queued', 0, 0, 0, 0, 0, FALSE, 0, 1)",
        )
        assert store.schema().found == 1
        store.open()
        assert store.schema() == (schema.KNOWN, schema.KNOWN, "")
        store.add_runs([RunRecord(id="new", task="work", trace=trace, flow="{}")])
        found = {run.id: (run.trace, run.flow) for run in claim(store)}
        assert found == {"old": (None, None), "new": (trace, "{}")}
        store.close()


def test_an_interrupted_first_opening_leaves_nothing_half_made() -> None:
    with own_place(server_url("postgres")) as url:
        for position in range(20):
            watch = CommandLog(position)
            store = PostgresStore(url, on_command=watch)
            try:
                store.open()
            except Crash:
                last = watch.seen[-1]
                assert store.schema().found == (schema.KNOWN if last == "committed" else 0)
                with plain(store) as connection:
                    connection.execute(f"DROP SCHEMA IF EXISTS {store.location.schema} CASCADE".encode())
            else:
                watch.on = False
                assert store.count_runs() == {}
                store.close()
                break
        else:
            raise AssertionError("it never opened")
        assert position >= 6


# Roles and settings.


@contextmanager
def role(url: str, *settings: str) -> Iterator[str]:
    """Return the URL of a new role with these settings."""
    name = f"role_{os.urandom(4).hex()}"
    with psycopg.connect(server_url("postgres"), autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN".encode())
        for setting in settings:
            admin.execute(f"ALTER ROLE {name} SET {setting}".encode())
        try:
            parts = urlsplit(url)
            yield parts._replace(netloc=f"{name}@{parts.netloc.rpartition('@')[2]}").geturl()
        finally:
            admin.execute(f"DROP OWNED BY {name}".encode())
            admin.execute(f"DROP ROLE {name}".encode())


def granted(store: PostgresStore, url: str) -> None:
    name = urlsplit(url).username
    place = store.location.schema
    sql(store, f"GRANT USAGE ON SCHEMA {place} TO {name}")
    sql(store, f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {place} TO {name}")


def test_a_role_that_may_create_nothing_works_where_the_tables_are(
    make: Callable[..., PostgresStore], url: str, clock: VirtualClock
) -> None:
    with role(url) as theirs:
        granted(make(), theirs)
        store = make(place=theirs)
        add_schedules(store, "a")
        clock.advance("1m")
        assert len(store.fire_due(clock.now, 10, plan).planned) == 1
        (held,) = claim(store)
        assert store.settle_runs([attempts.succeeded(held, None, clock.now, "t")]) == [True]
        store.close()


def test_a_role_without_rights_gets_an_error_that_names_the_grant(url: str) -> None:
    with (
        own_place(server_url("postgres")) as empty,
        role(empty) as theirs,
        pytest.raises(StoreUnavailable, match="grant"),
    ):
        PostgresStore(theirs).open()
    owner = PostgresStore(url)
    owner.open()
    owner.close()
    with role(url) as theirs, pytest.raises(StoreUnavailable, match="grant"):
        PostgresStore(theirs).open()


def test_settings_of_a_role_do_no_harm(
    make: Callable[..., PostgresStore], url: str, clock: VirtualClock
) -> None:
    settings = (
        "default_transaction_isolation = 'serializable'",
        "synchronous_commit = 'off'",
        "search_path = 'nowhere'",
        "timezone = 'Asia/Tokyo'",
        "datestyle = 'German'",
        "default_transaction_deferrable = on",
    )
    with role(url, *settings) as theirs:
        granted(make(), theirs)
        store = make(place=theirs)
        add_schedules(store, "a")
        with store._connections.write(None) as transaction:
            ((isolation, commit, lock_timeout),) = transaction.rows(
                "look",
                "SELECT current_setting('transaction_isolation'), current_setting('synchronous_commit'), "
                "current_setting('lock_timeout')",
            )
        assert (isolation, commit, lock_timeout) == ("read committed", "on", "5s")
        assert abs(transaction.now - time.time() * 1000) < 60_000
        clock.advance("1m")
        assert len(store.fire_due(clock.now, 10, plan).planned) == 1
        store.close()


def test_a_role_with_remote_apply_keeps_it(make: Callable[..., PostgresStore], url: str) -> None:
    with role(url, "synchronous_commit = 'remote_apply'") as theirs:
        granted(make(), theirs)
        store = make(place=theirs)
        with store._connections.write(None) as transaction:
            ((commit,),) = transaction.rows("look", "SELECT current_setting('synchronous_commit')")
        assert commit == "remote_apply"
        store.close()


def test_a_read_only_database_is_refused(make: Callable[..., PostgresStore], url: str) -> None:
    with role(url, "default_transaction_read_only = on") as theirs:
        granted(make(), theirs)
        with pytest.raises(StoreUnavailable, match="accepts no writes"):
            PostgresStore(theirs).open()


def test_a_standby_is_refused(
    make: Callable[..., PostgresStore], monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    settings = server_checks.settings

    def on_a_standby(held: session.Session) -> list[Setting]:
        found = {setting.name: setting for setting in settings(held)}
        assert found["in_recovery"].level == "ok"
        rows = held.rows
        monkeypatch.setattr(held, "rows", lambda *words: [(*row[:2], True, *row[3:]) for row in rows(*words)])
        return settings(held)

    monkeypatch.setattr(server_checks, "settings", on_a_standby)
    with pytest.raises(StoreUnavailable, match="in_recovery is on: a standby accepts no writes"):
        PostgresStore(url).open()


def test_the_settings_that_guarantees_depend_on_are_listed(store: PostgresStore) -> None:
    found = {setting.name: setting for setting in store.server()}
    assert list(found) == [
        "server_version",
        "in_recovery",
        "default_transaction_read_only",
        "server_encoding",
        "fsync",
        "full_page_writes",
        "synchronous_commit",
        "max_connections",
        "clock",
        "transactions",
    ]
    assert found["server_encoding"].value == "UTF8"
    assert all(setting.hint is None for setting in found.values() if setting.level == "ok")
    assert not any(setting.level == "fail" for setting in found.values())


def test_a_setting_that_is_unsafe_is_logged(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unsafe = Setting(name="fsync", value="off", level="warn", hint="a crash may undo it: on")
    monkeypatch.setattr(server_checks, "settings", lambda _: [unsafe])
    with caplog.at_level(logging.WARNING, "evenbeat.store"):
        store.open()
    assert "fsync is off" in caplog.text
    assert ":***" not in caplog.text


# The server's clock.


def test_the_servers_clock_counts_for_everything(make: Callable[..., PostgresStore]) -> None:
    store = make(None)
    now = store.now()
    assert abs(now - time.time() * 1000) < 10_000
    store.add_runs([RunRecord(id="a", task="work", run_at=now - 1)])
    ahead = Claim(worker="w", token="t", limit=1, now=now + 60 * MINUTE, lease=30_000)
    (held,) = store.claim_runs(ahead).runs
    assert held.started_at is not None
    assert abs(held.started_at - now) < 10_000
    assert held.lease_until == held.started_at + 30_000
    assert store.lost_runs(now + 60 * MINUTE, 10).runs == ()
    add_schedules(store, "a")
    assert store.fire_due(now + 60 * MINUTE, 10, plan).planned == ()
    assert store.put_record(Record(kind="k", key="x", body="", expires=now - 1))
    assert store.get_record("k", "default", "x") is None


def test_the_clock_is_not_asked_for_again_and_again(make: Callable[..., PostgresStore]) -> None:
    watch = CommandLog()
    store = make(None, on_command=watch)
    store.now()
    watch.seen.clear()
    before = store.now()
    assert all(store.now() >= before for _ in range(100))
    assert watch.seen == []


# Sessions: lost, killed, pooled.


def test_nothing_outlives_a_transaction_on_its_connection(
    make: Callable[..., PostgresStore], clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool as behind a PgBouncer that pools transactions: each begins on a session without any state."""
    give_back = connections.Connections._give_back

    def discarding(self: connections.Connections, held: session.Session | None) -> None:
        if held is not None and not held.broken:
            held.connection.execute("DISCARD ALL")
        give_back(self, held)

    monkeypatch.setattr(connections.Connections, "_give_back", discarding)
    store = make()
    add_schedules(store, "a", "b")
    clock.advance("1m")
    assert len(store.fire_due(clock.now, 10, plan).planned) == 2
    held = claim(store)
    assert [run.id for run in claim(store)] == [run.id for run in held]
    ends = [attempts.succeeded(run, None, clock.now, f"t-{run.id}") for run in held]
    assert store.settle_runs(ends) == [True, True]
    with plain(store) as connection:
        prepared = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
    assert prepared == (0,)


def backends(store: PostgresStore) -> list[int]:
    with store._connections._state:
        return [held.connection.info.backend_pid for held in store._connections._idle]


def test_connections_that_the_server_ended_are_noticed_before_they_are_used(store: PostgresStore) -> None:
    add_schedules(store, "a")
    ended = backends(store)
    with plain(store) as connection:
        for pid in ended:
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    assert schedule_names(store) == ["a"]
    assert not set(backends(store)) & set(ended)


def test_a_connection_that_is_lost_in_the_middle_undoes_everything(
    make: Callable[..., PostgresStore], clock: VirtualClock
) -> None:
    store, other = make(), make()
    add_schedules(store, "a", "b")
    clock.advance("1m")
    before = dump(store)

    def cut(row: ScheduleRecord, now: int, active: tuple[Active, ...]) -> Planned:
        with store._connections._state:
            (held,) = store._connections._in_use
        with plain(other) as connection:
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", (held.connection.info.backend_pid,))
        return plan(row, now, active)

    with pytest.raises(StoreUnavailable):
        store.fire_due(clock.now, 10, cut)
    assert dump(store) == before
    assert len(store.fire_due(clock.now, 10, plan).planned) == 2


def test_a_server_that_is_silent_is_given_up(make: Callable[..., PostgresStore]) -> None:
    store = make()
    with store._connections.read() as held:
        held.patience = 0.2
        with pytest.raises(StoreUnavailable, match="may still take effect"):
            held.rows("sleep", "SELECT pg_sleep(20)")
        assert held.broken
    assert store.count_runs() == {}


def test_a_call_waits_for_locked_rows_no_longer_than_the_lock_timeout(
    make: Callable[..., PostgresStore], clock: VirtualClock
) -> None:
    store = make(lock_timeout=0.01)
    add_schedules(store, "a")
    row = store.find_schedules(ScheduleQuery()).items[0]
    change = changes.pause(row, clock.now)
    assert change is not None
    with plain(store) as frozen:
        frozen.execute("BEGIN")
        frozen.execute(store.location.own("SELECT 1 FROM evenbeat.schedules FOR UPDATE").encode())
        with pytest.raises(StoreUnavailable, match="another transaction holds the rows"):
            store.put_schedules([Write(change, row.version)])
        clock.advance("1m")
        fired = store.fire_due(clock.now, 10, plan)  # firing does not wait
        assert fired.planned == ()
        assert fired.next_wake == clock.now
        frozen.execute("ROLLBACK")
    assert store.put_schedules([Write(change, row.version)])[0].accepted


def test_more_threads_than_connections_take_turns(make: Callable[..., PostgresStore]) -> None:
    store = make(timeout=60)
    results: list[list[bool]] = []

    def work(name: str) -> None:
        results.append(store.add_runs([RunRecord(id=name, task="work")]))

    threads = [threading.Thread(target=work, args=(f"r{at}",)) for at in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[True]] * 30
    assert len(backends(store)) <= connections.LARGEST


def test_a_call_fails_if_all_connections_stay_in_use(make: Callable[..., PostgresStore]) -> None:
    store = make(timeout=0.01)
    held = [store._connections.read() for _ in range(connections.LARGEST)]
    for one in held:
        one.__enter__()
    with pytest.raises(StoreUnavailable, match="connections are in use"):
        store.count_runs()
    store.hint()  # no reason to fail
    for one in held:
        one.__exit__(None, None, None)
    assert store.count_runs() == {}


def test_closing_while_a_connection_is_in_use_closes_it_when_it_is_given_back(store: PostgresStore) -> None:
    with store._connections.read() as held:
        store.close()
        assert held.rows("look", "SELECT 1") == [(1,)]
    assert held.connection.closed


# Idle nodes.


def test_a_pass_with_nothing_due_is_one_question_that_locks_nothing(
    make: Callable[..., PostgresStore], clock: VirtualClock
) -> None:
    watch = CommandLog()
    store = make(on_command=watch)
    add_schedules(store, "a")
    store.add_runs([RunRecord(id="future", task="work", run_at=clock.now + MINUTE)])
    watch.seen.clear()
    assert store.fire_due(clock.now, 10, plan).planned == ()
    assert claim(store) == []
    assert watch.seen == ["select next wake", "select next due"]
    watch.seen.clear()
    clock.advance("1m")
    assert len(store.fire_due(clock.now, 10, plan).planned) == 1
    assert watch.seen == ["select next wake", "select due", "fire", "committed"]
    watch.seen.clear()
    assert len(claim(store)) == 2
    assert watch.seen == ["select next due", "select claimable", "claim runs", "committed"]


def test_a_change_with_records_takes_as_many_round_trips_as_one_without(
    make: Callable[..., PostgresStore], clock: VirtualClock
) -> None:
    watch = CommandLog()
    store = make(on_command=watch)
    store.add_runs([RunRecord(id=name, task="work", run_at=clock.now) for name in "ab"])
    ends = [attempts.succeeded(held, None, clock.now, held.id) for held in claim(store)]
    note = Record(kind="audit", key="1", body="a\0b")
    for name, records in (("c", ()), ("d", (note,))):
        watch.seen.clear()
        wanted = ScheduleRecord(name=name, task="work", trigger="every 1m")
        made = changes.create(wanted, clock.now)
        store.put_schedules([Write(made._replace(records=records), None)])
        store.settle_runs([replace(ends.pop(), records=records)])
        assert watch.seen == [
            "lock schedules",
            "put schedules",
            "committed",
            "lock runs",
            "settle runs",
            "committed",
        ]
        watch.seen.clear()
        clock.advance("1m")
        store.fire_due(clock.now, 10, lambda *given: plan(*given)._replace(records=records))  # noqa: B023 - called at once
        assert watch.seen == ["select next wake", "select due", "fire", "committed"]
    assert store.find_records("audit") == [note]


def test_records_of_one_call_with_the_same_key_are_added_one_after_the_other(
    store: PostgresStore, clock: VirtualClock
) -> None:
    expired = Record(kind="audit", key="1", body="expired", expires=clock.now)
    first, second = (Record(kind="audit", key="1", body=body) for body in ("first", "second"))
    wanted = ScheduleRecord(name="a", task="work", trigger="every 1m")
    made = changes.create(wanted, clock.now)._replace(records=(expired, first, second))
    assert store.put_schedules([Write(made, None)])[0].accepted
    assert store.find_records("audit") == [first]


# Values.


@pytest.mark.parametrize("text", ["", "a\0b", "\0", "␀", "␛", "␛␀", "\0␀\0␛\0", "naïve 😀 \x1b \x7f \x1f"])
def test_free_text_comes_back_as_it_was(store: PostgresStore, clock: VirtualClock, text: str) -> None:
    assert encoding.unmarked(encoding.marked(text)) == text
    assert "\0" not in (encoding.marked(text) or "")
    store.add_runs([RunRecord(id="a", task="work", error=text, settled=text, claim=text)])
    assert store.find_runs(RunQuery()).items == (
        RunRecord(id="a", task="work", error=text, settled=text, claim=text),
    )
    wanted = Claim(worker=f"w{text}", token=f"t{text}", limit=1, now=clock.now, lease=1000)
    for _ in range(2):
        (held,) = store.claim_runs(wanted).runs
        assert (held.worker, held.claim, held.error) == (f"w{text}", f"t{text}", text)
    assert store.find_runs(RunQuery(worker=f"w{text}")).items == (held,)
    assert store.settle_runs([attempts.failed(held, text, clock.now, f"x{text}")]) == [True]
    assert store.settle_runs([attempts.failed(held, text, clock.now, f"x{text}")]) == [True]
    record = Record(kind="k", key="x", body=text)
    assert store.put_record(record)
    assert store.put_record(record)
    assert store.get_record("k", "default", "x") == record
    chunk = LogChunk(run="a", attempt=1, seq=0, text=text, at=0)
    store.append_log([chunk])
    assert store.read_log("a") == [chunk]
    add_schedules(store, "s", description=text)
    row = store.find_schedules(ScheduleQuery()).items[0]
    assert row.description == text
    paused = changes.pause(row, clock.now, note=text)
    assert paused is not None
    for _ in range(2):
        assert store.put_schedules([Write(paused, row.version)])[0] == (True, paused.schedule)


def test_a_value_that_postgresql_cannot_store_is_refused_as_invalid(store: PostgresStore) -> None:
    for bad in (
        RunRecord(id="a", task="work", error="\ud800"),
        RunRecord(id="a", task="work", run_at=1 << 70),
        RunRecord(id="a", task="work", run_at=1 << 63),
        RunRecord(id="a", task="work", priority=77),
        RunRecord(id="\ud800", task="work"),
        RunRecord(id="a\0b", task="work"),
        RunRecord(id="a", task="work", payload="\0"),
    ):
        with pytest.raises(InvalidValue):
            store.add_runs([bad, RunRecord(id="b", task="work")])
    with pytest.raises(InvalidValue):
        store.claim_runs(Claim(worker="\ud800", token="t", limit=1, now=0, lease=1))
    with pytest.raises(InvalidValue):
        store.find_runs(RunQuery(tenant="\ud800"))
    assert store.count_runs() == {}


# Forks.


# Python 3.12 and later warn of forks beside threads, for reasons like those tested here.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_after_a_fork_parent_and_child_both_work_each_on_connections_of_its_own(
    make: Callable[..., PostgresStore],
) -> None:
    store = make()
    add_schedules(store, "before")
    listening(store)
    ours = backends(store)
    connection = receiver_of(store).connection

    def work() -> None:
        add_schedules(store, "child")
        assert not set(backends(store)) & set(ours)
        assert store._waker._listener is None
        store.wait(0.01)
        store.hint()
        store.close()

    assert exit_code_of_child(work) == 0
    add_schedules(store, "parent")
    assert backends(store) == ours
    assert schedule_names(store) == ["before", "child", "parent"]
    assert store.wait(60) is True
    assert receiver_of(store).connection is connection


def test_a_fork_inside_a_transaction_leaves_it_to_the_parent(store: PostgresStore) -> None:
    def work() -> None:
        add_schedules(store, "child")

    with store._connections.write(0) as transaction:
        transaction.rows("look", "SELECT 1")
        assert exit_code_of_child(work) == 0
        transaction.commit(
            "insert", [(statements.INSERT_RUNS, {"rows": encoding.json_runs([RunRecord(id="a", task="w")])})]
        )
    assert schedule_names(store) == ["child"]
    assert store.count_runs() == {"queued": 1}


# Races.


def test_concurrent_creators_of_the_same_schedules_do_not_deadlock_and_one_of_them_wins(
    make: Callable[..., PostgresStore],
) -> None:
    accepted: list[str] = []
    start = threading.Barrier(6)

    def work(number: int) -> None:
        store = make()
        wanted = [ScheduleRecord(name=f"s{at:02}", task="work", trigger="every 1m") for at in range(20)]
        writes = [Write(changes.create(entry, 1000 + number), None) for entry in wanted]
        start.wait(60)
        answers = store.put_schedules(writes if number % 2 else writes[::-1])
        accepted.extend(answer.current.name for answer in answers if answer.accepted and answer.current)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(accepted) == [f"s{at:02}" for at in range(20)]


def until_somebody_waits(store: PostgresStore) -> None:
    """Wait until a transaction waits for a row of this schema that another one has locked."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
    deadline = time.monotonic() + 60
    with plain(store) as connection:
        while connection.execute(waiting, (f"%{store.location.schema}%",)).fetchone() == (0,):
            assert time.monotonic() < deadline
            time.sleep(0.001)


def test_a_run_that_ends_while_its_schedule_is_fired_wakes_it(
    make: Callable[..., PostgresStore], clock: VirtualClock
) -> None:
    firing, settling = make(), make()
    add_schedules(firing, "single", overlap="queue")
    clock.advance("1m")
    firing.fire_due(clock.now, 10, plan)
    (held,) = claim(firing)
    clock.advance("1m")
    done = attempts.succeeded(held, None, clock.now, "t")
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.extend(settling.settle_runs([done])))

    def ends_meanwhile(row: ScheduleRecord, now: int, active: tuple[Active, ...]) -> Planned:
        # The other store settles between the reads and the writes of this fire: it has to wait.
        thread.start()
        until_somebody_waits(firing)
        return plan(row, now, active)

    (planned,) = firing.fire_due(clock.now, 10, ends_meanwhile).planned
    assert planned.runs == ()
    thread.join(60)
    assert answers == [True]
    (planned,) = firing.fire_due(clock.now, 10, plan).planned
    assert len(planned.runs) == 1


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_run_that_is_tried_once_more_while_its_schedule_is_fired_waits_for_that(
    make: Callable[..., PostgresStore], clock: VirtualClock, is_changed: bool
) -> None:
    firing, retrying = make(), make()
    add_schedules(firing, "single")
    clock.advance("1m")
    firing.fire_due(clock.now, 10, plan)
    (held,) = claim(firing)
    firing.settle_runs([attempts.failed(held, "boom", clock.now, "t")])
    (over,) = firing.find_runs(RunQuery()).items
    (row,) = firing.find_schedules(ScheduleQuery()).items
    wish = attempts.retried(over, "again", row)
    assert wish is not None
    if is_changed:
        # From now on it matters to the schedule which runs are active.
        change = changes.change(row, {"overlap": "skip"}, clock.now)
        assert change is not None
        assert firing.put_schedules([Write(change, row.version)])[0].accepted
    clock.advance("1m")
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.append(f"retried {retrying.settle_runs([wish])}"))

    def meanwhile(row: ScheduleRecord, now: int, active: tuple[Active, ...]) -> Planned:
        assert active == ()
        thread.start()
        until_somebody_waits(firing)
        seen.append("planned")
        return plan(row, now, active)

    (planned,) = firing.fire_due(clock.now, 10, meanwhile).planned
    thread.join(60)
    assert len(planned.runs) == 1
    assert seen == ["planned", f"retried [{not is_changed}]"]


@pytest.mark.parametrize("policy", [{}, {"spread": 30_000}])
def test_a_run_ends_beside_the_fire_of_a_schedule_that_never_waits(
    make: Callable[..., PostgresStore], clock: VirtualClock, policy: dict[str, Any]
) -> None:
    firing, settling = make(), make(lock_timeout=0.2)
    add_schedules(firing, "free", **policy)
    clock.advance("2m")
    firing.fire_due(clock.now, 10, plan)
    clock.advance("30s")
    (held,) = claim(firing)
    clock.advance("1m")
    answers: list[bool] = []

    def ends_meanwhile(row: ScheduleRecord, now: int, active: tuple[Active, ...]) -> Planned:
        # A settlement that waited for this fire would be a deadlock.
        answers.extend(settling.settle_runs([attempts.succeeded(held, None, now, "t")]))
        return plan(row, now, active)

    (planned,) = firing.fire_due(clock.now, 10, ends_meanwhile).planned
    assert answers == [True]
    (row,) = firing.find_schedules(ScheduleQuery()).items
    assert row == planned.schedule


def test_a_claim_that_is_repeated_while_the_first_try_is_under_way_takes_no_second_set(
    make: Callable[..., PostgresStore],
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def slow(name: str) -> None:
        if name == "claim runs":
            reached.set()
            go_on.wait(60)

    first, second = make(on_command=slow), make()
    first.add_runs([RunRecord(id=f"r{at}", task="work") for at in range(6)])
    answers: dict[str, list[RunRecord]] = {}
    one = threading.Thread(target=lambda: answers.update(first=claim(first, "same", 3)))
    two = threading.Thread(target=lambda: answers.update(second=claim(second, "same", 3)))
    one.start()
    assert reached.wait(60)
    two.start()
    go_on.set()
    one.join()
    two.join()
    assert answers["first"] == answers["second"]
    assert second.count_runs() == {"running": 3, "queued": 3}


def test_two_that_fire_at_once_take_different_rows(
    make: Callable[..., PostgresStore], clock: VirtualClock
) -> None:
    first, second = make(), make()
    add_schedules(first, *(f"s{at}" for at in range(10)))
    clock.advance("1m")
    inner: list[Planned] = []

    def meanwhile(row: ScheduleRecord, now: int, active: tuple[Active, ...]) -> Planned:
        if not inner:
            inner.extend(second.fire_due(clock.now, 10, plan).planned)
        return plan(row, now, active)

    outer = first.fire_due(clock.now, 5, meanwhile).planned
    assert len(outer) == len(inner) == 5
    assert len({planned.schedule.name for planned in [*outer, *inner]}) == 10


def test_settlers_and_firers_do_not_wait_in_a_circle(
    make: Callable[..., PostgresStore], clock: VirtualClock
) -> None:
    store = make()
    many = [f"s{at}" for at in range(8)]
    add_schedules(store, *many, overlap="cancel_running")
    errors: list[Exception] = []
    stop = threading.Event()
    counter = iter(range(1_000_000))

    def guarded(work: Callable[[PostgresStore], object]) -> None:
        own = make()
        try:
            while not stop.is_set():
                work(own)
        except Exception as error:
            errors.append(error)
            stop.set()

    def work(own: PostgresStore) -> None:
        held = claim(own, f"c{next(counter)}", 8)
        ends = [attempts.succeeded(run, None, own.now(), f"t{run.id}{run.attempt}") for run in held]
        own.settle_runs(ends[::-1])

    jobs: list[Callable[[PostgresStore], object]] = [
        work,
        work,
        lambda own: own.fire_due(own.now(), 5, plan),
        lambda own: own.fire_due(own.now(), 8, plan),
    ]
    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for _ in range(40):
        clock.advance("1m")
        time.sleep(0.02)
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []


def test_writes_of_one_schedule_in_one_batch_are_seen_by_the_next(
    store: PostgresStore, clock: VirtualClock
) -> None:
    made = changes.create(ScheduleRecord(name="a", task="work", trigger="every 1m"), clock.now)
    triggered = changes.run_now(made.schedule, "by-hand", clock.now)
    assert triggered is not None
    paused = changes.pause(triggered.schedule, clock.now)
    assert paused is not None
    writes = [
        Write(made, None),
        Write(triggered, made.schedule.version),
        Write(triggered, made.schedule.version),
        Write(paused, triggered.schedule.version),
        Write(made, None),
    ]
    assert [answer.accepted for answer in store.put_schedules(writes)] == [True, True, True, True, False]
    assert store.find_schedules(ScheduleQuery()).items == (paused.schedule,)
    assert store.count_runs() == {"queued": 1}


# Rows that cannot be read.


@pytest.fixture
def alone(clock: VirtualClock) -> Iterator[PostgresStore]:
    """A store in a schema of its own, whose constraints a test may drop."""
    with own_place(server_url("postgres")) as url:
        store = PostgresStore(url, clock)
        store.open()
        yield store
        store.close()


def test_an_unreadable_running_run_ends_with_its_lease_and_wakes_its_schedule(
    alone: PostgresStore, clock: VirtualClock
) -> None:
    add_schedules(alone, "waiting", overlap="queue")
    clock.advance("1m")
    alone.fire_due(clock.now, 10, plan)
    alone.add_runs([RunRecord(id=name, task="work") for name in "abc"])
    assert len(claim(alone)) == 4
    spoil(alone, "runs", "execution = 'x'", "id <> 'a'")
    spoil(alone, "runs", f"format = {FORMAT + 1}", "id = 'c'")
    clock.advance("1m")
    alone.fire_due(clock.now - 40_000, 10, plan)
    (planned,) = alone.fire_due(clock.now, 10, plan).planned
    assert planned.runs == ()
    tick = planned.schedule.next_tick
    # Some leases have ended, and one was renewed meanwhile.
    spoil(alone, "runs", f"lease_until = {clock.now + 1000}", "id = 'b'")
    found = alone.lost_runs(clock.now, 10)
    assert [run.id for run in found.runs] == ["a"]
    (note,) = alone.find_records("quarantine")
    assert note.key.startswith("default/waiting/")
    assert alone.count_runs() == {"running": 3, "failed": 1}
    # The tick that waited for it is woken.
    (row,) = alone.find_schedules(ScheduleQuery()).items
    assert row.wake_at == tick
    clock.advance("2s")
    alone.lost_runs(clock.now, 10)
    assert [note.key for note in alone.find_records("quarantine")] == ["b", note.key]
    # A row of a newer format is left to nodes that can read it.
    assert alone.count_runs() == {"running": 2, "failed": 2}
    before = dump(alone)
    alone.lost_runs(clock.now, 10)
    assert dump(alone) == before


def test_an_unreadable_run_that_was_renewed_after_it_was_read_stays(
    alone: PostgresStore, clock: VirtualClock
) -> None:
    alone.add_runs([RunRecord(id="a", task="work")])
    claim(alone)
    spoil(alone, "runs", "execution = 'x'", "TRUE")
    clock.advance("1m")
    with alone._connections.read() as looking:
        _, to_quarantine = runs.lost(looking, clock.now, 10, clock.now)
    assert len(to_quarantine) == 1
    spoil(alone, "runs", f"lease_until = {clock.now + 1000}", "TRUE")
    with alone._write() as transaction:
        runs.fail_unreadable(transaction, to_quarantine)
    assert alone.count_runs() == {"running": 1}
    assert alone.find_records("quarantine") == []


# What is too large.

REFUSALS = {
    "54000": "a limit",
    "53200": "out of memory",
    "57014": "canceling statement due to statement timeout",
    "XX000": "invalid memory alloc request size 1073741824",
}


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refusal_because_of_size_is_distinguished_from_a_server_that_is_away(
    alone: PostgresStore, clock: VirtualClock, code: str
) -> None:
    alone.add_runs([RunRecord(id=name, task="work") for name in ("small", "large")])
    large, small = claim(alone)
    raised = f"RAISE EXCEPTION USING ERRCODE = '{code}', MESSAGE = '{REFUSALS[code]}'"
    sql(
        alone,
        f"CREATE FUNCTION evenbeat.refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {raised}; END$$;"
        "CREATE TRIGGER refuse BEFORE UPDATE ON evenbeat.runs FOR EACH ROW "
        "EXECUTE FUNCTION evenbeat.refuse()",
    )
    with pytest.raises(TooLarge, match=REFUSALS[code]):
        alone.settle_runs([attempts.succeeded(large, f'"{"x" * 2_000_000}"', clock.now, "t")])
    expected = InvalidValue if code == "54000" else StoreUnavailable
    with pytest.raises(expected, match=REFUSALS[code]):
        alone.settle_runs([attempts.succeeded(small, '"x"', clock.now, "t")])
    sql(alone, "DROP TRIGGER refuse ON evenbeat.runs")
    assert alone.settle_runs([attempts.succeeded(large, '"x"', clock.now, "t")]) == [True]


def test_large_ends_are_written_in_steps_that_a_server_takes(
    store: PostgresStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [RunRecord(id=f"r{at:02}", task="work", payload=f'"{"p" * 700_000}"') for at in range(15)]
    sizes: list[int] = []
    together = session.Session.together

    def measured(self: session.Session, name: str, statements: Any) -> Any:
        sizes.append(session._size(statements))
        return together(self, name, statements)

    monkeypatch.setattr(session.Session, "together", measured)
    assert store.add_runs(wanted) == [True] * 15
    held = claim(store, limit=15)
    ends = [attempts.succeeded(run, f'"{"r" * 700_000}"', clock.now, run.id) for run in held]
    assert store.settle_runs(ends) == [True] * 15
    assert max(sizes) < 5_000_000
    assert sum(sizes) > 20_000_000


# Waking up.


def listening(store: PostgresStore) -> PostgresStore:
    store.wait(0)
    wait_until_receiving(store)
    store.wait(0)
    return store


def receiver_of(store: PostgresStore) -> ListenReceiver:
    assert store._waker._listener is not None
    receiver = store._waker._listener.receiver
    assert isinstance(receiver, ListenReceiver)
    return receiver


def test_a_connection_for_hints_that_the_server_ended_is_replaced_and_ends_one_wait(
    make: Callable[..., PostgresStore],
) -> None:
    store, other = listening(make()), make()
    first = receiver_of(store).connection
    assert first is not None
    with plain(store) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", (first.backend_pid,))
    assert store.wait(60) is True  # hints may have been lost meanwhile
    listening(store)
    assert receiver_of(store).connection is not first
    other.hint()
    assert store.wait(60) is True


@pytest.mark.parametrize("listen", ["off", "nowhere", "elsewhere"])
def test_a_wait_is_short_and_returns_true_while_hints_do_not_arrive(
    make: Callable[..., PostgresStore], monkeypatch: pytest.MonkeyPatch, caplog: Any, listen: str
) -> None:
    monkeypatch.setattr(waking, "POLL_SECONDS", 0.05)
    monkeypatch.setattr("evenbeat.stores.postgres.waking._PROOF_SECONDS", 0.1)
    urls = {
        "off": "off",
        "nowhere": "postgresql://evenbeat@127.0.0.1:1/postgres",
        # NOTIFY does not cross databases, just as it does not pass through a pooler.
        "elsewhere": urlsplit(server_url("postgres"))._replace(path="/template1", query="").geturl(),
    }
    messages = {"off": "", "nowhere": "cannot receive hints", "elsewhere": "hints do not arrive"}
    store = make(listen=urls[listen])
    assert [store.wait(60) for _ in range(5)] == [True] * 5
    deadline = time.monotonic() + 60
    while messages[listen] not in caplog.text:
        assert time.monotonic() < deadline
        assert store.wait(60) is True
    store.hint()
    store.close()
    assert caplog.text.count("hints") == (1 if messages[listen] else 0)


def test_a_slow_name_look_up_delays_neither_hints_nor_waits(
    make: Callable[..., PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks_up, go_on = threading.Event(), threading.Event()
    connect_start = PGconn.connect_start

    def slow(conninfo: bytes) -> Any:
        looks_up.set()
        go_on.wait(60)
        return connect_start(conninfo)

    store = make()
    monkeypatch.setattr("evenbeat.stores.postgres.waking.PGconn", SimpleNamespace(connect_start=slow))
    woken: list[bool] = []
    waiter = threading.Thread(target=lambda: woken.append(store.wait(60)))
    hinter = threading.Thread(target=store.hint)
    waiter.start()
    assert looks_up.wait(60)
    hinter.start()
    try:
        for thread in (hinter, waiter):
            thread.join(20)
            assert not thread.is_alive()
        assert woken == [True]
    finally:
        go_on.set()
        hinter.join()
        waiter.join()
    # Hints that may have been missed until now end one wait.
    wait_until_receiving(store)


def test_closing_ends_a_wait_and_leaves_no_connection_behind(store: PostgresStore) -> None:
    listening(store)
    thread = threading.Thread(target=store.wait, args=(60,))
    thread.start()
    store.close()
    thread.join(60)
    assert not thread.is_alive()
    # The server learns of it a moment later.
    question = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE %s"
    deadline = time.monotonic() + 60
    with plain(store) as connection:
        while connection.execute(question, (f"LISTEN%{store.location.channel}%",)).fetchone() != (0,):
            assert time.monotonic() < deadline
            time.sleep(0.001)


# Transactions of others.


def test_runs_are_added_in_the_callers_transaction_which_hints_when_it_commits(
    make: Callable[..., PostgresStore],
) -> None:
    store, waiting = make(), listening(make())
    store.add_runs([RunRecord(id="old", task="work")])
    wanted = [
        RunRecord(id="old", task="other"),
        RunRecord(id="new", task="work", error="a\0b", trace="00-1-2-01", flow='"\u2400"'),
        RunRecord(id="new", task="x"),
    ]
    text, value = next(joining.adding(store.location, wanted)("postgresql"))
    assert value is not None
    assert text.count("{}") == 1
    assert "%" not in text
    assert re.findall(r"(?<![:\w\\]):(\w+)(?!:)", text) == []  # what SQLAlchemy takes for a value
    with psycopg.connect(store.location.conninfo) as theirs:
        assert [run.task for run in store.add_runs_within(theirs, wanted)] == ["work", "work", "x"]
        assert store.count_runs() == {"queued": 1}
        assert waiting.wait(0.05) is False
        theirs.rollback()
        store.add_runs_within(theirs, wanted)
        theirs.commit()
        assert waiting.wait(60) is True
        assert [run.task for run in store.add_runs_within(theirs, wanted)] == ["work", "work", "work"]
    (found,) = store.find_runs(RunQuery(ids=("new",))).items
    assert (found.task, found.error, found.trace, found.flow) == ("work", "a\0b", "00-1-2-01", '"\u2400"')


def test_a_connection_to_a_database_without_our_tables_is_named(alone: PostgresStore) -> None:
    sql(alone, "DROP TABLE evenbeat.runs CASCADE")
    with (
        psycopg.connect(alone.location.conninfo) as theirs,
        pytest.raises(psycopg.errors.UndefinedTable) as caught,
    ):
        alone.add_runs_within(theirs, [RunRecord(id="one", task="work")])
    (note,) = caught.value.__notes__
    assert "without the tables of the store" in note
    assert "evenbeat.testing.virtual(app)" in note


# Plain SQL.


def test_plain_sql_reads_due_schedules_and_finished_runs(store: PostgresStore) -> None:
    add_schedules(store, "report", trigger="0 9 * * *", payload='{"team":"ops"}')
    question = (
        "SELECT tenant, name, task, trigger, state, "
        "to_char(to_timestamp(next_tick / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), "
        "payload::json ->> 'team', catch_up::json ->> 'kind' FROM evenbeat.schedules"
    )
    assert sql(store, question) == [
        ("default", "report", "work", "0 9 * * *", "active", "2026-03-02 09:00", "ops", "latest")
    ]
    with pytest.raises(psycopg.errors.CheckViolation):
        sql(store, "UPDATE evenbeat.schedules SET state = 'dreaming'")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        sql(store, "UPDATE evenbeat.schedules SET next_tick = 'tomorrow'")


# When the last hundredth of the history of ``filled`` begins.
_LATELY = 19_800
# After the wake-ups of all its schedules, as if the statistics were of an hour ago.
_LATE = VirtualClock().now + 3_600_000


def hot_statements() -> dict[str, tuple[str, Any]]:
    """Return all statements that run in a loop, or for each batch of one, with values."""
    searches = {
        "runs by id": RunQuery(ids=("a",)),
        "runs of a worker": RunQuery(worker="w", states=("running",)),
        "runs to be stopped": RunQuery(worker="w", states=("running",), cancel_requested=True),
        "active runs of a schedule": RunQuery(tenant="t", schedule="s", states=("queued", "running")),
        "history of a schedule": RunQuery(tenant="t", schedule="s"),
        "newest runs": RunQuery(),
        "runs of a window": RunQuery(since=_LATELY, until=_LATELY + 60_000),
        "runs of a task": RunQuery(task="rare"),
        "runs of a tenant": RunQuery(tenant="rare"),
        "cancelled runs": RunQuery(states=("cancelled",)),
        "unsuccessful runs": RunQuery(states=("failed", "cancelled")),
        "failed runs of a window": RunQuery(states=("failed",), since=_LATELY, until=_LATELY + 1),
        "lately failed runs of a schedule": RunQuery(
            tenant="t", schedule="s", states=("failed",), since=_LATELY
        ),
        "runs that wait for a retry": RunQuery(retrying=True),
        "ended runs": RunQuery(finished_since=_LATELY),
        "new runs of a tenant": RunQuery(tenant="t", created_since=_LATELY),
        "ended runs that failed": RunQuery(states=("failed",), finished_since=_LATELY),
    }
    found: dict[str, tuple[str, Any]] = {}
    for name, query in searches.items():
        text, values = history.search_statement(query, limit=101)
        found[name] = (f"{text} LIMIT %s", [*values, 101])
    text, values = history.newest_statement(RunQuery(tenant="t", since=1, until=_LATELY), (1, "a"))
    found["a search among the newest runs"] = (f"{text} LIMIT %s", [*values, 101])
    text, values = history.search_statement(RunQuery(), (1, "a"))
    found["runs after a cursor"] = (f"{text} LIMIT %s", [*values, 101])
    for name, wanted in {
        "schedules after a cursor": ScheduleQuery(tenant="t"),
        "schedules by key": ScheduleQuery(keys=(("t", "a"), ("t", "b"))),
        "late schedules": ScheduleQuery(tenant="t", wakes_before=_LATE),
    }.items():
        text, values = schedules.search_statement(wanted, ("t", "a"))
        found[name] = (f"{text} LIMIT %s", [*values, 101])
    given: dict[str, Any] = {
        "rows": "[]",
        "ids": '["a"]',
        "clock": None,
        "now": 1,
        "format": 1,
        "limit": 100,
        "queue": "default",
        "priority": 5,
        "tasks": ["work"],
        "worker": "w",
        "token": "t",
        "queues": ["default"],
        "run": "a",
        "ended_by": 1,
        "before": 1,
        "kind": "k",
        "tenant": "t",
        "schedule": "s",
        "key": "x",
        "version": 1,
        "lease_until": 1,
        "started_at": 1,
        "body": "",
        "expires": 1,
        "expect": 1,
        "since": _LATELY,
        "until": _LATELY + 1,
        "start": "a",
        "end": "b",
        "states": ["succeeded", "failed"],
        "state": "succeeded",
        "spared": ["acme"],
        "marks": ["/code", "/memory"],
        "edges": [_LATELY, 1],
        "position": 10,
    }
    claims = Claim(worker="w", token="t", limit=10, now=1, lease=1, tasks=frozenset({"work", "other"}))
    limits = Limits([Limit(task="work", key="k", concurrency=1), Limit(tenant="t", concurrency=1)])
    for name, of_claim in {
        "": outlook.scope(replace(claims, tasks=None), None),
        " of tasks": outlook.scope(claims, None),
        " beside limits": outlook.scope(claims, None, limits),
    }.items():
        options = {**given, **of_claim.values}
        found[f"outlook{name}"] = (claim_statements.outlook(of_claim.conditions), options)
        found[f"groups{name}"] = (claim_statements.groups(of_claim.conditions), options)
        found[f"select claimable{name}"] = (claim_statements.claimable(of_claim.conditions), options)
        found[f"in turn{name}"] = (claim_statements.claimable_in_turn(of_claim.conditions), options)
        found[f"of tenants{name}"] = (claim_statements.claimable_of_tenants(of_claim.conditions), options)
    given |= outlook.scope(claims, None).values | {
        "has_keys": True,
        "any": False,
        "limited_tasks": ["work"],
        "limited_tenants": [],
        "limited_queues": [],
        "most": 500,
        "cohorts": '["default 4 default work"]',
        "keys": '["task=work"]',
        "idle_timeout": "1",
        "places": [],
        "marks": [],
        "edges": [],
    }
    found["unassigned"] = (claim_statements.unassigned(True), given)
    found["settle"] = (statements.update_runs(("state", "error", "settled")), given)
    for name, text in {**vars(past_statements), **vars(statements), **vars(claim_statements)}.items():
        if (
            name.isupper()
            and isinstance(text, str)
            and text.lstrip().startswith(("SELECT", "UPDATE", "WITH", "DEL"))
        ):
            if name not in ("NOTIFY", "INSERTION", "SETTINGS", "LOCK_CLAIM", "LOCK_LIMITS", "LOCK_LIMITED"):
                found[name.lower().replace("_", " ")] = (text, given)
    return found


@pytest.fixture(scope="module")
def filled() -> Iterator[PostgresStore]:
    """Tables with a history, and statistics of them."""
    with own_place(server_url("postgres")) as url:
        store = PostgresStore(url, VirtualClock(), timeout=60)
        store.open()
        add_schedules(store, *(f"s{at}" for at in range(3000)))
        past = [
            RunRecord(
                id=f"r{at}",
                task="work",
                state="succeeded",
                created_at=at,
                finished_at=at,
                schedule=f"s{at % 50}" if at % 2 else None,
            )
            for at in range(20_000)
        ]
        now = [
            RunRecord(
                id=f"q{at}",
                task="work",
                state=("queued", "running")[at % 2],
                worker="w",
                claim="c",
                run_at=at,
            )
            for at in range(200)
        ]
        store.add_runs([*past, *now])
        rows = "generate_series(1, 2000) AS n"
        record = f"SELECT 'k', 't' || n % 10, 'key' || n, 1, '', NULL FROM {rows}"
        sql(store, f"INSERT INTO evenbeat.records {record}")
        sql(store, "ANALYZE evenbeat.runs, evenbeat.schedules, evenbeat.records")
        yield store
        store.close()


@pytest.mark.parametrize("name", hot_statements())
def test_no_statement_reads_a_whole_table(filled: PostgresStore, name: str) -> None:
    text, values = hot_statements()[name]
    with plain(filled) as connection:
        if "FOR UPDATE" in text or "UPDATE evenbeat" in text or text in vars(claim_statements).values():
            # As in every transaction that writes.
            connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        lines = connection.execute(f"EXPLAIN {filled.location.own(text)}".encode(), values).fetchall()
    steps = [line[0] for line in lines]
    scans = [step for step in steps if re.search(r"Seq Scan on (runs|schedules|records)\b", step)]
    assert scans == [], steps
    expected = {
        "runs of a worker": "runs_running",
        "runs to be stopped": "runs_running",
        "select lost": "runs_running",
        "active runs of a schedule": "runs_active",
        "history of a schedule": "runs_of_schedule",
        "lately failed runs of a schedule": "runs_of_schedule",
        "newest runs": "runs_newest",
        "runs after a cursor": "runs_newest",
        "look": "schedules_due",
        "select due": "schedules_due",
        "outlook": "runs_claimable",
        "groups": "runs_claimable",
        "select claimable": "runs_claimable",
        "in turn": "runs_claimable",
        "of tenants": "runs_claimable",
        "outlook of tasks": "runs_claimable",
        "groups of tasks": "runs_claimable",
        "select claimable of tasks": "runs_claimable",
        "in turn of tasks": "runs_claimable",
        "of tenants of tasks": "runs_claimable",
        "outlook beside limits": "runs_claimable",
        "groups beside limits": "runs_claimable",
        "select claimable beside limits": "runs_claimable",
        "in turn beside limits": "runs_claimable",
        "of tenants beside limits": "runs_claimable",
        "unassigned": "runs_claimable",
        "select cohorts": "runs_claimable",
        "select heads": "runs_claimable",
        "select firsts": "runs_claimable",
        "select queued of cohorts": "runs_claimable",
        "count running": "runs_running",
        "select running": "runs_running",
        "select buckets": "records_pkey",
        "runs of a window": "runs_over",
        "failed runs of a window": "runs_unsuccessful",
        "runs of a task": "runs_of_task",
        "runs of a tenant": "runs_of_tenant",
        "cancelled runs": "runs_unsuccessful",
        "unsuccessful runs": "runs_unsuccessful",
        "a search among the newest runs": "runs_newest",
        "count queues": "runs_over",
        "delete over": "runs_over",
        "delete over except": "runs_over",
        "delete over of tenant": "runs_ended",
        "select ends": "runs_over",
        "select ends of tenant": "runs_ended",
        "select active": "runs_active",
        "settle": "runs_pkey",
        "ended runs": "runs_over",
        "ended runs that failed": "runs_over",
        "schedules by key": "schedules_pkey",
        "late schedules": "schedules_due",
        "select records": "records_pkey",
        "select records of each tenant": "records_pkey",
    }
    if name in expected:
        assert any(expected[name] in step for step in steps), steps
    if name in ("select due", "look", "newest runs", "select claimable", "history of a schedule"):
        assert not any("Sort" in step for step in steps), steps


def test_no_error_of_the_driver_reaches_the_caller(alone: PostgresStore) -> None:
    for table in TABLES:
        sql(alone, f"DROP TABLE evenbeat.{table}")
    for call in every_call(alone).values():
        with pytest.raises(EvenbeatError, match="does not exist"):
            call()


@pytest.mark.parametrize("query", [RunQuery(), RunQuery(ids=("a",)), RunQuery(since=1)], ids=str)
def test_fields_that_a_search_leaves_out_are_not_sent(query: RunQuery) -> None:
    whole, _ = history.search_statement(query)
    brief, _ = history.search_statement(replace(query, without=LARGE_FIELDS))
    table = "FROM evenbeat.runs"
    for name in LARGE_FIELDS:
        # A subquery around the table has a column of that name, too.
        assert any(f"run.{name}" in part for part in whole.split(table)[:-1])
        assert all(f"run.{name}" not in part.rpartition("SELECT")[2] for part in brief.split(table)[:-1])


def test_a_line_that_a_purge_did_not_see_is_not_in_the_log_of_a_later_run_of_its_id(
    store: PostgresStore, clock: VirtualClock
) -> None:
    # The purge began before the line was committed, and deleted the run after that.
    earlier = RunRecord(id="a", task="work", attempt=1, created_at=clock.now)
    later = RunRecord(id="a", task="work", attempt=1, created_at=clock.now + 2)
    store.add_runs([earlier])
    store.append_log([chunk_of(earlier, 1, "old", clock.now)])
    sql(store, "DELETE FROM evenbeat.runs WHERE id = 'a'")
    assert store.read_log("a") == []
    store.add_runs([later])
    assert store.read_log("a") == []
    store.append_log([chunk_of(later, 1, "own", clock.now)])
    assert [(line.run, line.text) for line in store.read_log("a")] == [("a", "own")]
