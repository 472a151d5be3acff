"""PostgreSQL servers that crash, replicate, and are behind poolers: real processes, real time."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from evenbeat import Scheduler
from evenbeat.cli.root import root
from evenbeat.core.records import RunRecord
from evenbeat.documents import PostgresDocuments
from evenbeat.errors import StoreUnavailable
from evenbeat.stores.postgres import PostgresStore
from tests.certificates import self_signed
from tests.faults.fleet import wait_until
from tests.missing import skipped_without
from tests.postgres_servers import PgBouncer, PoolMode, Standby, TlsFront
from tests.servers import Postgres, Server


@contextmanager
def started(server: Server | TlsFront) -> Iterator[None]:
    try:
        server.start()
        yield
    finally:
        server.stop()


@contextmanager
def running(**settings: str) -> Iterator[Postgres]:
    """A server for one test, which may kill it."""
    with skipped_without("postgres"):
        server = Postgres(settings)
    with started(server):
        yield server


@contextmanager
def pooled(server: Postgres, mode: PoolMode) -> Iterator[PgBouncer]:
    with skipped_without("pgbouncer"):
        pooler = PgBouncer(server, mode)
    with started(pooler):
        yield pooler


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A server that no test kills."""
    with running() as found:
        yield found


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def test_a_document_that_was_locked_is_locked_after_a_crash_of_the_server() -> None:
    # Data that no commit flushes stays unflushed for the whole test.
    with running(synchronous_commit="off", wal_writer_delay="10s") as server:
        execute(
            server.url,
            "SET synchronous_commit = on",
            "CREATE TABLE jobs (id int PRIMARY KEY, sleep_until timestamptz)",
            "INSERT INTO jobs SELECT n, now() FROM generate_series(1, 5) AS n",
        )
        documents = PostgresDocuments(server.url, "jobs")
        documents.open()
        try:
            found = documents.lock_next(600_000, 10).found
            assert len(found) == 5
            server.kill()
            server.start()
            assert documents.lock_next(600_000, 10).found == []
        finally:
            documents.close()


def is_answered(store: PostgresStore, run: str) -> bool:
    try:
        store.add_runs([RunRecord(id=run, task="t", run_at=0)])
    except StoreUnavailable:
        return False
    return True


def test_a_commit_that_no_synchronous_standby_has_is_not_answered_as_done() -> None:
    with running(client_min_messages="error") as server:
        execute(server.url, "CREATE TABLE jobs (id int PRIMARY KEY, sleep_until timestamptz)")
        store, documents = PostgresStore(server.url), PostgresDocuments(server.url, "jobs")
        impatient = PostgresStore(server.url, timeout=0.2, lock_timeout=0.2)
        with closing(store), closing(documents), closing(impatient):
            for opening in (store, documents, impatient):
                opening.open()
            execute(server.url, "INSERT INTO jobs VALUES (1, now())")
            execute(server.url, "ALTER SYSTEM SET synchronous_standby_names = 'away'", RELOAD)
            # Commits wait once the checkpointer has read the setting.
            numbers = itertools.count()
            wait_until(lambda: not is_answered(impatient, f"probe-{next(numbers)}"), "commits do not wait")
            with pytest.raises(StoreUnavailable, match="no answer in time"):
                impatient.add_runs([RunRecord(id="a", task="t", run_at=0)])
            # If an operator cancels the wait, the server returns success with a warning.
            with waits_cancelled(server.url):
                with pytest.raises(StoreUnavailable, match="no synchronous standby has confirmed"):
                    store.add_runs([RunRecord(id="b", task="t", run_at=0)])
                with pytest.raises(StoreUnavailable, match="no synchronous standby has confirmed"):
                    documents.lock_next(600_000, 1)
            execute(server.url, "ALTER SYSTEM RESET synchronous_standby_names", RELOAD)
            # The rows exist: a repetition, as the loops do it, finds its own work.
            assert store.add_runs([RunRecord(id=name, task="t", run_at=0) for name in "abc"]) == [
                False,
                False,
                True,
            ]


def test_large_results_that_end_while_the_server_is_away_are_recorded_when_it_is_back() -> None:
    text = "x" * 700_000
    with running() as server:
        app = Scheduler(PostgresStore(server.url, timeout=1.0, lock_timeout=1.0), async_concurrency=50)
        ready = threading.Semaphore(0)
        loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

        @app.task
        async def produce() -> str:
            if not loops:
                loops.append((asyncio.get_running_loop(), asyncio.Event()))
            ready.release()
            await loops[0][1].wait()
            return text

        app.start()
        try:
            made = app.enqueue_many([("produce", {})] * 50)
            for _ in made:
                assert ready.acquire(timeout=60)
            server.kill()
            # All runs end now, and their ends can't be written.
            loop, is_over = loops[0]
            loop.call_soon_threadsafe(is_over.set)
            time.sleep(0.5)
            server.start()
            for run in made:
                ended = app.runs.join(run, timeout="120s")
                assert (ended.state, ended.attempt) == ("succeeded", 1)
        finally:
            app.stop()
            app.close()


RELOAD = "SELECT pg_reload_conf()"


@contextmanager
def waits_cancelled(url: str) -> Iterator[None]:
    """Cancels each transaction that waits for a standby, as an operator might."""
    stopping = threading.Event()

    def cancel() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not stopping.wait(0.05):
                connection.execute(
                    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                )

    operator = threading.Thread(target=cancel)
    operator.start()
    try:
        yield
    finally:
        stopping.set()
        operator.join(30)


def test_a_standby_is_refused_until_it_is_promoted() -> None:
    with running(wal_level="replica") as server:
        standby = Standby(server)
        with started(standby):
            with pytest.raises(StoreUnavailable, match="is a standby, which accepts no writes"):
                PostgresStore(standby.url).open()
            # Of several hosts, the client chooses the one that accepts writes.
            for ports in ((standby.port, server.port), (server.port, standby.port)):
                hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
                with closing(PostgresStore(f"postgresql://evenbeat@{hosts}/postgres")) as store:
                    store.open()
                    assert store.server()[1].value == "off"
            server.kill()
            standby.promote()
            with closing(PostgresStore(f"postgresql://evenbeat@{hosts}/postgres")) as store:
                store.open()
                assert store.add_runs([RunRecord(id="a", task="t", run_at=0)]) == [True]


def test_a_pooler_that_pools_statements_is_refused_when_the_store_is_opened(server: Postgres) -> None:
    with pooled(server, "statement") as pooler:
        for is_there in (False, True):
            with pytest.raises(StoreUnavailable, match="pool_mode = transaction"):
                PostgresStore(pooler.url, schema="pooled").open()
            result = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(
                root, ["doctor", f"{pooler.url}?schema=pooled"]
            )
            assert result.exit_code == 1
            assert "transactions not possible" in result.output
            if not is_there:
                with closing(PostgresStore(server.url, schema="pooled")) as store:
                    store.open()


def test_nodes_work_through_a_pooler_that_pools_transactions(server: Postgres) -> None:
    with pooled(server, "transaction") as pooler:
        app = Scheduler(PostgresStore(pooler.url, listen=server.url))
        done: list[int] = []

        @app.task
        def note(number: int) -> None:
            done.append(number)

        app.start()
        try:
            for run in app.enqueue_many([("note", {"number": at}) for at in range(50)]):
                app.runs.join(run, timeout="60s")
        finally:
            app.stop()
            app.close()
        assert sorted(done) == list(range(50))


@pytest.fixture
def encrypted(server: Postgres, tmp_path: Path) -> Iterator[TlsFront]:
    front = TlsFront(server, tmp_path)
    with started(front):
        yield front


def test_connections_are_encrypted_and_certificates_checked(encrypted: TlsFront, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        PostgresStore(f"{encrypted.plain_url}?sslmode=disable").open()
    stranger, _ = self_signed(tmp_path, "stranger", addresses=("127.0.0.1",))
    with pytest.raises(StoreUnavailable, match="not signed by the one that sslrootcert names"):
        PostgresStore(f"{encrypted.plain_url}?sslmode=verify-full&sslrootcert={stranger}").open()
    with pytest.raises(StoreUnavailable, match="name the certificate that signed"):
        PostgresStore(f"{encrypted.plain_url}?sslmode=verify-full&sslrootcert={tmp_path / 'none'}").open()
    elsewhere = encrypted.url.replace("127.0.0.1", "localhost")
    with pytest.raises(StoreUnavailable, match="write the host as it stands in the server's certificate"):
        PostgresStore(elsewhere).open()
    app = Scheduler(encrypted.url)
    done: list[str] = []

    @app.task
    def note(text: str) -> str:
        done.append(text)
        return text

    app.start()
    try:
        # Larger than a record of TLS, in both directions.
        run = app.enqueue("note", {"text": "x" * 100_000})
        assert app.runs.join(run.id, timeout="60s").result == "x" * 100_000
    finally:
        app.stop()
        app.close()
    assert done == ["x" * 100_000]


def test_hints_come_through_an_encrypted_connection(encrypted: TlsFront) -> None:
    store, other = PostgresStore(encrypted.url), PostgresStore(encrypted.url)
    with closing(store), closing(other):
        store.open()
        other.open()
        # Until the listener works, waits end by themselves.
        deadline = time.monotonic() + 60
        while store.wait(3.0):
            assert time.monotonic() < deadline
        hinted: list[bool] = []
        waiter = threading.Thread(target=lambda: hinted.append(store.wait(60)))
        waiter.start()
        while not hinted:
            other.hint()
            waiter.join(0.2)
            assert time.monotonic() < deadline
        waiter.join(10)
        assert hinted == [True]


def test_an_encrypted_connection_is_used_again(encrypted: TlsFront) -> None:
    with closing(PostgresStore(encrypted.url)) as store:
        store.open()
        sessions = set()
        for _ in range(5):
            with store._connections.read() as session:
                sessions.add(session.rows("look", "SELECT pg_backend_pid()")[0])
        assert len(sessions) == 1
