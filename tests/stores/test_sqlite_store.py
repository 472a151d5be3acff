"""Properties of the SQLite store alone: locks, full disks, damaged files, SQL. tests/contract has the
others."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace

from evenbeat.core.records import Record, RunRecord, ScheduleRecord
from evenbeat.documents import sqlite as documents_sqlite
from evenbeat.errors import EvenbeatError, InvalidValue, SchemaTooNew, StoreUnavailable
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import plan
from evenbeat.stores import rows
from evenbeat.stores import sqlite as stores_sqlite
from evenbeat.stores.base import LARGE_FIELDS, Claim, RunQuery, ScheduleQuery, Write
from evenbeat.stores.sqlite import (
    SqliteStore,
    claim_statements,
    claims,
    history,
    schedules,
    schema,
    schema_sql,
    statements,
)
from evenbeat.stores.sqlite.session import Session
from evenbeat.testing import VirtualClock
from tests.store_calls import (
    WAITER,
    CommandLog,
    Crash,
    add_schedules,
    claim,
    every_call,
    exit_code_of_child,
    schedule_names,
    wait_until_receiving,
)
from tests.stores import on_sqlite

MINUTE = 60_000
clock, path, make, store = on_sqlite.clock, on_sqlite.path, on_sqlite.make, on_sqlite.store


def plain(path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(path, isolation_level=None))


def dump(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return the content of the file."""
    with plain(path) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
            for table in tables
        }


def spoil(path: Path, statement: str) -> None:
    """Write a value that no version of Evenbeat writes."""
    with plain(path) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        assert connection.execute(statement).rowcount >= 1


# Opening and closing.


def test_every_connection_is_durable_and_the_file_has_a_write_ahead_log(store: SqliteStore) -> None:
    def setting(session: Session, name: str) -> object:
        return session.connection.execute(f"PRAGMA {name}").fetchone()[0]

    with store._connections.read() as reader, store._connections.write() as writer:
        for session in (reader, writer):
            assert setting(session, "journal_mode") == "wal"
            assert setting(session, "synchronous") == 2
            assert setting(session, "busy_timeout") == 5000


def test_many_processes_open_a_new_file_at_once(path: Path) -> None:
    code = (
        "import sys; from evenbeat.stores.sqlite import SqliteStore\n"
        "store = SqliteStore(sys.argv[1]); print('ready', flush=True); sys.stdin.readline()\n"
        "store.open(); print(store.count_runs()); store.close()"
    )
    command = [sys.executable, "-c", code, str(path)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    answers = [process.communicate("go\n", timeout=60) for process in started]
    assert [answer[0] for answer in answers] == ["{}\n"] * 6
    assert [process.returncode for process in started] == [0] * 6


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "nowhere" / "evenbeat.db")
    with pytest.raises(StoreUnavailable, match="nowhere does not exist"):
        store.open()
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_not_a_file_is_refused() -> None:
    with pytest.raises(InvalidValue, match="memory"):
        SqliteStore(":memory:")


def test_a_file_that_was_moved_away_does_not_come_back_empty(
    make: Callable[..., SqliteStore], path: Path, tmp_path: Path
) -> None:
    store = make()
    store.close()
    store._connections._opened = True
    path.rename(tmp_path / "elsewhere.db")
    with pytest.raises(StoreUnavailable, match="can't be opened"):
        store.count_runs()
    assert not path.exists()


def test_a_file_that_is_not_a_database_is_reported(path: Path) -> None:
    path.write_text("Dear diary, today I scheduled nothing. " * 200)
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailable, match="not an SQLite database"):
        store.open()


def test_a_damaged_file_is_reported(make: Callable[..., SqliteStore], path: Path) -> None:
    store = make()
    add_schedules(store, *(f"s{at}" for at in range(500)))
    store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    with pytest.raises(StoreUnavailable, match="damaged"):
        schedule_names(make())


def test_a_newer_schema_is_refused(make: Callable[..., SqliteStore], path: Path) -> None:
    make().close()
    with plain(path) as connection:
        connection.execute("UPDATE evenbeat_meta SET value = '99' WHERE key = 'schema'")
    store = SqliteStore(path)
    with pytest.raises(SchemaTooNew) as caught:
        store.open()
    assert (caught.value.found, caught.value.known) == (99, schema.KNOWN)


def test_the_printed_schema_creates_the_same_tables_as_open(
    make: Callable[..., SqliteStore], tmp_path: Path
) -> None:
    make()
    by_hand = tmp_path / "by-hand.db"
    with plain(by_hand) as connection:
        connection.executescript(schema_sql())
    question = "SELECT name, sql FROM sqlite_master ORDER BY name"
    with plain(by_hand) as one, plain(tmp_path / "evenbeat.db") as other:
        assert one.execute(question).fetchall() == other.execute(question).fetchall()
    opened = SqliteStore(by_hand)
    opened.open()
    assert opened.count_runs() == {}
    opened.close()


def first_version(path: Path) -> None:
    """Create the tables of the first version, with a run."""
    with plain(path) as connection:
        connection.executescript(";".join((schema.META, *schema.MIGRATIONS[1])))
        connection.execute(schema.SET_VERSION, ("1",))
        connection.execute(
            "INSERT INTO evenbeat_runs (id, tenant, cause, coalesced, task, kind, payload, queue, priority, "
            "execution, state, scheduled_at, run_at, attempt, failures, crashes, cancel_requested, "
            "created_at, format) VALUES ('old', 'default', 'enqueue', 0, 'work', 'task', 'null', 'default', "
            "5, '{}', 'queued', 0, 0, 0, 0, 0, 0, 0, 1)"
        )


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_tables_of_the_first_version_are_upgraded_and_their_rows_stay(path: Path) -> None:
    first_version(path)
    store = SqliteStore(path)
    assert store.schema().found == 1
    store.open()
    assert store.schema() == (schema.KNOWN, schema.KNOWN, "")
    store.add_runs([RunRecord(id="new", task="work", trace=TRACE, flow="{}")])
    found = {run.id: (run.trace, run.flow) for run in claim(store)}
    assert found == {"old": (None, None), "new": (TRACE, "{}")}
    store.close()


def test_a_transaction_of_a_user_upgrades_the_tables_that_it_joins(path: Path) -> None:
    first_version(path)
    store = SqliteStore(path)
    with plain(path) as connection:
        connection.execute("BEGIN")
        store.add_runs_within(connection, [RunRecord(id="new", task="work", trace=TRACE, flow="{}")])
        connection.execute("COMMIT")
    store.open()
    found = {run.id: (run.trace, run.flow) for run in claim(store)}
    assert found == {"old": (None, None), "new": (TRACE, "{}")}
    store.close()


def test_the_printed_upgrade_leads_to_the_newest_version(path: Path) -> None:
    first_version(path)
    with plain(path) as connection:
        connection.executescript(SqliteStore(path).schema().script)
    assert SqliteStore(path).schema() == (schema.KNOWN, schema.KNOWN, "")


def test_an_interrupted_first_opening_leaves_nothing_half_made(path: Path) -> None:
    watch = CommandLog()
    whole = SqliteStore(path, on_command=watch)
    whole.open()
    whole.close()
    for position in range(len(watch.seen)):
        for file in path.parent.glob("evenbeat.db*"):
            file.unlink()
        broken = SqliteStore(path, on_command=CommandLog(position))
        with pytest.raises(Crash):
            broken.open()
        broken.close()
        again = SqliteStore(path)
        again.open()
        assert again.count_runs() == {}
        again.close()


# Other holders of the lock, full disks.


@pytest.mark.parametrize("busy_timeout", [0, 0.01])
def test_a_frozen_lock_holder_is_reported_and_survived(
    make: Callable[..., SqliteStore], path: Path, busy_timeout: float
) -> None:
    store = make(busy_timeout=busy_timeout)
    add_schedules(store, "a")
    with plain(path) as frozen:
        frozen.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="write lock") as caught:
            add_schedules(store, "b")
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        assert schedule_names(store) == ["a"]  # readers do not wait
    add_schedules(store, "b")
    assert schedule_names(store) == ["a", "b"]


def test_a_call_from_inside_a_transaction_is_refused_and_does_not_hang(
    make: Callable[..., SqliteStore],
) -> None:
    store = make(busy_timeout=0)
    with store._connections.write(), pytest.raises(StoreUnavailable, match="another thread"):
        store.add_runs([])
    assert store.add_runs([RunRecord(id="a", task="work")]) == [True]


@pytest.mark.parametrize("tasks", [None, frozenset(["work"])], ids=["any task", "its tasks"])
def test_the_work_of_a_claim_does_not_grow_with_the_queue(
    store: SqliteStore, clock: VirtualClock, tasks: frozenset[str] | None
) -> None:
    wanted = Claim(worker="w", token="t", limit=10, now=clock.now, lease=MINUTE, tasks=tasks)

    def steps() -> int:
        """Return how many steps of SQLite's machine the question of a claim takes."""
        taken: list[None] = []
        with store._connections.read() as session:
            session.connection.set_progress_handler(lambda: taken.append(None), 1)
            try:
                claims.outlook(session, wanted)
            finally:
                session.connection.set_progress_handler(None, 1)
        return len(taken)

    # Three groups, the runs of which differ in time alone.
    groups = [("a", 5), ("b", 5), ("a", 2)]
    store.add_runs(
        [RunRecord(id=f"{group}", task="work", tenant=group[0], priority=group[1]) for group in groups]
    )
    before = steps()
    store.add_runs(
        [
            RunRecord(id=f"{group} {at}", task="work", tenant=group[0], priority=group[1], run_at=at)
            for group in groups
            for at in range(200)
        ]
    )

    assert steps() <= before + 20


def test_a_claim_with_nothing_due_leaves_the_write_lock_alone(
    make: Callable[..., SqliteStore], clock: VirtualClock, path: Path
) -> None:
    watch = CommandLog()
    store = make(busy_timeout=0, on_command=watch)
    store.add_runs([RunRecord(id="future", task="work", run_at=clock.now + MINUTE)])
    watch.seen.clear()
    with plain(path) as other:
        other.execute("BEGIN IMMEDIATE")
        assert claim(store) == []
        assert watch.seen == ["set up"] * 4 + ["select next due"]
        clock.advance("1m")
        with pytest.raises(StoreUnavailable, match="write lock"):
            claim(store)
    watch.seen.clear()
    assert [held.id for held in claim(store)] == ["future"]
    assert watch.seen == [
        "select next due",
        "begin",
        "select ways",
        "select claimable",
        "claim runs",
        "select taken",
        "select next due",
        "commit",
        "committed",
    ]
    # Nothing is due any more, but the token is known: the repeated claim returns its runs.
    assert [held.id for held in claim(store)] == ["future"]


def test_only_a_change_with_records_executes_a_statement_for_them(
    make: Callable[..., SqliteStore], clock: VirtualClock
) -> None:
    watch = CommandLog()
    store = make(on_command=watch)
    store.add_runs([RunRecord(id=name, task="work", run_at=clock.now) for name in "ab"])
    note = Record(kind="audit", key="1", body="noted")
    names = iter("cd")
    ends = [attempts.succeeded(held, None, clock.now, held.id) for held in claim(store)]

    def put(*records: Record) -> object:
        wanted = ScheduleRecord(name=next(names), task="work", trigger="every 1m")
        return store.put_schedules([Write(changes.create(wanted, clock.now)._replace(records=records), None)])

    def settle(*records: Record) -> object:
        return store.settle_runs([replace(ends.pop(), records=records)])

    def fire(*records: Record) -> object:
        clock.advance("1m")
        return store.fire_due(clock.now, 10, lambda *given: plan(*given)._replace(records=records))

    for change in (put, settle, fire):
        sent: list[list[str]] = []
        for records in ((), (note,)):
            watch.seen.clear()
            change(*records)
            sent.append(watch.seen.copy())
        assert "add records" not in sent[0]
        assert [name for name in sent[1] if name != "add records"] == sent[0]
        assert sent[1].count("add records") == 1


def test_a_full_disk_is_reported_loses_nothing_and_is_survived(
    store: SqliteStore, clock: VirtualClock, path: Path
) -> None:
    add_schedules(store, *(f"s{at:03}" for at in range(100)))
    clock.advance("1m")
    before = dump(path)
    with store._connections.write() as writer:
        pages = writer.connection.execute("PRAGMA page_count").fetchone()[0]
        writer.connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(StoreUnavailable, match="full"):
        store.fire_due(clock.now, 100, plan)
    assert dump(path) == before
    with store._connections.write() as writer:
        writer.connection.execute("PRAGMA max_page_count = 1000000")
    assert len(store.fire_due(clock.now, 100, plan).planned) == 100
    assert store.count_runs() == {"queued": 100}


def test_a_value_that_sqlite_cannot_store_is_refused_as_invalid(store: SqliteStore) -> None:
    for bad in (
        RunRecord(id="a", task="work", error="\ud800"),
        RunRecord(id="a", task="work", run_at=1 << 70),
        RunRecord(id="a", task="work", priority=77),
        RunRecord(id="\ud800", task="work"),
    ):
        with pytest.raises(InvalidValue):
            store.add_runs([bad])
    assert store.count_runs() == {}


# Forks.


def test_a_childs_commits_outlive_the_parents_closing(store: SqliteStore, path: Path) -> None:
    # A parent that believes to be the last process deletes the log that the child writes to.
    add_schedules(store, "before")
    written, write = os.pipe()
    closed, close = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            add_schedules(store, "child-1")
            os.write(write, b"x")
            os.read(closed, 1)
            add_schedules(store, "child-2")
            code = 0
        finally:
            os._exit(code)
    os.read(written, 1)
    add_schedules(store, "parent")
    store.close()
    os.write(close, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    for end in (written, write, closed, close):
        os.close(end)
    store.open()
    assert schedule_names(store) == ["before", "child-1", "child-2", "parent"]


def test_a_process_whose_files_were_closed_leaves_the_database_alone(store: SqliteStore, path: Path) -> None:
    """SQLite's locks are gone then, and its writes may go into another file: a database lost all its tables
    that way."""

    def close_all() -> None:
        add_schedules(store, "child")
        os.closerange(3, 1024)
        calls: list[Callable[[], object]] = [
            lambda: add_schedules(store, "late"),
            store.count_runs,
            store.open,
        ]
        for call in calls:
            with pytest.raises(StoreUnavailable, match="start a new process"):
                call()
        store.close()

    add_schedules(store, "before")
    assert exit_code_of_child(close_all) == 0
    add_schedules(store, "after")
    assert schedule_names(store) == ["after", "before", "child"]
    with closing(sqlite3.connect(path)) as plain:
        assert plain.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_file_that_is_moved_away_is_noticed_and_used_again_when_it_is_back(
    store: SqliteStore, path: Path
) -> None:
    add_schedules(store, "before")
    path.rename(path.with_suffix(".away"))
    calls = (lambda: add_schedules(store, "lost"), store.count_runs, store.open)
    for call in calls:
        with pytest.raises(StoreUnavailable, match="moved away or deleted while it was open; put it back"):
            call()
    assert not path.exists()  # nor created again, empty
    path.with_suffix(".away").rename(path)
    add_schedules(store, "after")
    assert schedule_names(store) == ["after", "before"]


def test_a_file_that_takes_the_place_of_another_is_left_alone(store: SqliteStore, path: Path) -> None:
    add_schedules(store, "before")
    other, first = path.with_name("other.db"), path.with_name("first.db")
    with closing(SqliteStore(other)) as copy:
        copy.open()
        add_schedules(copy, "restored")
    path.rename(first)
    other.rename(path)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"was replaced by another one .* delete .*-wal and -shm"):
            add_schedules(store, "lost")
    path.rename(other)
    first.rename(path)
    add_schedules(store, "after")
    assert schedule_names(store) == ["after", "before"]


def test_a_store_that_was_closed_makes_a_file_anew_where_there_is_none(
    store: SqliteStore, path: Path
) -> None:
    add_schedules(store, "before")
    store.close()
    path.unlink()
    store.open()
    assert schedule_names(store) == []


def test_a_fork_inside_a_transaction_leaves_the_child_without_the_store(store: SqliteStore) -> None:
    def write() -> None:
        calls: list[Callable[[], None]] = [lambda: add_schedules(store, "child"), store.open]
        for call in calls:
            try:
                call()
            except StoreUnavailable:
                continue
            os._exit(7)

    with store._connections.write():
        assert exit_code_of_child(write) == 0
    add_schedules(store, "parent")
    assert schedule_names(store) == ["parent"]


# Python 3.12 and later warn of forks beside threads, for reasons like those tested here.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_leaves_its_parents_socket_alone(store: SqliteStore, path: Path) -> None:
    store.wait(0)
    (ours,) = Path(store._sockets.folder).iterdir()

    def work() -> None:
        assert not store._waker.is_receiving
        store.wait(0)
        assert len(list(ours.parent.iterdir())) == 2
        store.close()

    assert exit_code_of_child(work) == 0
    assert list(ours.parent.iterdir()) == [ours]


# Rows that cannot be read.


@pytest.mark.parametrize(
    "damage", ["fire_seq = 9223372036854775807", "revision = -1", f"generation = {1 << 53}"]
)
def test_a_schedule_with_counts_at_their_maximum_does_not_affect_others(
    store: SqliteStore, clock: VirtualClock, path: Path, damage: str
) -> None:
    add_schedules(store, "a", "b")
    spoil(path, f"UPDATE evenbeat_schedules SET {damage} WHERE name = 'a'")
    clock.advance("1m")
    fired = store.fire_due(clock.now, 10, plan)
    assert [planned.schedule.name for planned in fired.planned] == ["b"]
    assert fired.quarantined == (("default", "a"),)


@pytest.mark.parametrize(
    "damage", ["attempt = 9223372036854775807", "failures = -1", "crashes = 9223372036854775807"]
)
def test_a_run_with_counts_at_their_maximum_does_not_affect_others(
    store: SqliteStore, path: Path, damage: str
) -> None:
    store.add_runs([RunRecord(id="a", task="work"), RunRecord(id="b", task="work")])
    spoil(path, f"UPDATE evenbeat_runs SET {damage} WHERE id = 'a'")
    assert [held.id for held in claim(store)] == ["b"]
    assert store.count_runs() == {"running": 1, "failed": 1}


# Waking up.


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path leaves room for the name of a socket; those of tmp_path are long."""
    with TemporaryDirectory(prefix="eb-") as folder:
        yield Path(folder)


@pytest.mark.parametrize("long", [False, True], ids=["short path", "long path"])
def test_a_hint_wakes_a_waiter_in_another_process(short: Path, long: bool) -> None:
    folder = short / ("x" * 120) if long else short
    folder.mkdir(exist_ok=True)
    path = folder / "evenbeat.db"
    store = SqliteStore(path)
    store.open()
    assert store._sockets.folder.startswith(str(path)) is not long
    command = [sys.executable, "-c", WAITER, f"sqlite:///{path}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        store.hint()
        assert process.stdout.readline() == "True\n"
        assert process.wait(60) == 0
    store.close()
    assert not os.path.exists(store._sockets.folder)


def test_the_socket_of_a_killed_process_is_removed_by_the_next_hint(store: SqliteStore, path: Path) -> None:
    command = [sys.executable, "-c", WAITER, f"sqlite:///{path}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.kill()
        process.wait(60)
    folder = Path(store._sockets.folder)
    assert len(list(folder.iterdir())) == 1
    store.hint()
    assert list(folder.iterdir()) == []


def test_where_no_socket_can_be_made_a_wait_takes_its_time(store: SqliteStore, path: Path) -> None:
    folder = Path(store._sockets.folder)
    folder.write_text("in the way")
    assert store.wait(0.001) is False
    store.hint()
    folder.unlink()


def test_closing_removes_the_socket_and_its_folder(store: SqliteStore) -> None:
    store.wait(0)
    wait_until_receiving(store)
    assert len(list(Path(store._sockets.folder).iterdir())) == 1
    store.close()
    assert not Path(store._sockets.folder).exists()


# Plain SQL.


def test_plain_sql_reads_due_schedules_and_finished_runs(
    store: SqliteStore, clock: VirtualClock, path: Path
) -> None:
    add_schedules(store, "report", trigger="0 9 * * *", payload='{"team":"ops"}')
    question = (
        "SELECT tenant, name, task, trigger, state, datetime(next_tick / 1000, 'unixepoch'), "
        "payload ->> 'team', catch_up ->> 'kind' FROM evenbeat_schedules"
    )
    with plain(path) as connection:
        assert connection.execute(question).fetchall() == [
            ("default", "report", "work", "0 9 * * *", "active", "2026-03-02 09:00:00", "ops", "latest")
        ]
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("UPDATE evenbeat_schedules SET state = 'dreaming'")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("UPDATE evenbeat_schedules SET next_tick = 'tomorrow'")


_ORDERED = (
    "select claimable",
    "outlook",
    "select waiting",
    "select of cohort",
    "select first of cohort",
    "select records of tenant",
)
_CLAIMABLE = "SEARCH evenbeat_runs USING INDEX evenbeat_runs_claimable (queue=? AND priority=? AND tenant=?"
_OF_COHORT = "SEARCH evenbeat_runs USING INDEX evenbeat_runs_of_cohort (cohort"
_IN_RANGE = "USING PRIMARY KEY (kind=? AND tenant=? AND key>? AND key<?)"
_READS = {
    "ended runs": "SEARCH run USING INDEX evenbeat_runs_over (<expr>>?)",
    "ended runs of a schedule": "SEARCH run USING INDEX evenbeat_runs_over (<expr>>?)",
    "changed schedules": "SEARCH evenbeat_schedules USING INDEX evenbeat_schedules_changed (updated_at>?)",
    "late schedules": "SEARCH evenbeat_schedules USING INDEX evenbeat_schedules_due (wake_at<?)",
    "late schedules of a tenant": "SEARCH evenbeat_schedules USING INDEX evenbeat_schedules_due (wake_at<?)",
    "queued runs of a queue": "SEARCH run USING INDEX evenbeat_runs_claimable (queue=?)",
    "queued runs of a queue with cohorts": "SEARCH run USING INDEX evenbeat_runs_of_cohort "
    "(cohort>? AND cohort<?)",
    "outlook": f"{_CLAIMABLE})",
    "outlook of tasks": f"{_CLAIMABLE})",
    "select claimable": f"{_CLAIMABLE} AND run_at<?)",
    "select claimable of tasks": f"{_CLAIMABLE} AND run_at<?)",
    "select claimable beside": f"{_CLAIMABLE} AND run_at<?)",
    "select claimable of tasks beside": f"{_CLAIMABLE} AND run_at<?)",
    "select waiting": f"{_OF_COHORT}>? AND cohort<?)",
    "select of cohort": f"{_OF_COHORT}=? AND run_at<?)",
    "select first of cohort": f"{_OF_COHORT}=?)",
    "schedules by key": "SEARCH evenbeat_schedules USING INDEX sqlite_autoindex_evenbeat_schedules_1 "
    "(tenant=? AND name=?)",
    "select records of tenant": f"SEARCH evenbeat_records {_IN_RANGE}",
    "select records of each tenant": f"SEARCH record {_IN_RANGE}",
}
"""The step that reads the rows of a search, by the name of its statement."""


def hot_statements() -> dict[str, str]:
    """Return all statements that run in a loop, or for each batch of one."""
    searches = {
        "runs by id": RunQuery(ids=("a",)),
        "runs of a worker": RunQuery(worker="w", states=("running",)),
        "runs to be stopped": RunQuery(worker="w", states=("running",), cancel_requested=True),
        "active runs of a schedule": RunQuery(tenant="t", schedule="s", states=("queued", "running")),
        "history of a schedule": RunQuery(tenant="t", schedule="s"),
        "newest runs": RunQuery(),
        "runs of a window": RunQuery(since=1, until=2, task="t"),
        "failed runs of a window": RunQuery(tenant="t", states=("failed",), since=1, until=2),
        "runs before": RunQuery(until=2),
        "runs that wait for a retry": RunQuery(retrying=True),
        "queued runs of a queue": RunQuery(tenant="t", queue="q", states=("queued",)),
        "ended runs": RunQuery(finished_since=1),
        "new runs of a tenant": RunQuery(tenant="t", created_since=1),
        "ended runs of a schedule": RunQuery(tenant="t", schedule="s", states=("failed",), finished_since=1),
    }
    searches["queued runs of a queue with cohorts"] = searches["queued runs of a queue"]
    found = {name: f"{history.search_statement(query)[0]} LIMIT ?" for name, query in searches.items()}
    for name, wanted in {
        "schedules by key": ScheduleQuery(keys=(("t", "a"),), wakes_before=1),
        "late schedules": ScheduleQuery(wakes_before=1),
        "late schedules of a tenant": ScheduleQuery(tenant="t", wakes_before=1),
    }.items():
        found[name] = f"{schedules.search_statement(wanted, ('t', 'a'))[0]} LIMIT ?"
    changed = schedules.search_statement(ScheduleQuery(changed_since=1))[0]
    found["changed schedules"] = f"{changed} LIMIT ?"
    found["runs after a cursor"] = f"{history.search_statement(RunQuery(), (1, 'a'))[0]} LIMIT ?"
    own = "wanted.value ->> 0"
    found["settle"] = statements.update_run(("state", "error"))
    found["settle many"] = statements.update_runs(("state", "error"), (own, "?", "?"))
    found["insert many"] = statements.insert_runs((own, *"?" * (len(rows.RUN) - 1)))
    found["set cohorts"] = claim_statements.set_cohorts((own, "wanted.value ->> 1"))
    for name, text in (vars(statements) | vars(claim_statements)).items():
        if name.isupper() and isinstance(text, str) and name[0] != "_" and not name.endswith("COLUMNS"):
            found[name.lower().replace("_", " ")] = text
    for number, text in statements.SELECT_ENDS_OF_TENANT.items():
        found[f"select ends of tenant, {number}"] = text
    return found


def test_no_placeholder_has_a_number() -> None:
    """Python 3.12 warns of ``?1``, and other versions do not."""
    for package in (stores_sqlite, documents_sqlite):
        for file in Path(str(package.__file__)).parent.glob("*.py"):
            numbered = re.findall(r"\?\d", file.read_text().replace("``?1``", ""))
            assert numbered == [], file.name


@pytest.mark.parametrize(("name", "statement"), hot_statements().items(), ids=hot_statements())
def test_no_statement_reads_a_whole_table(store: SqliteStore, path: Path, name: str, statement: str) -> None:
    values = [None] * statement.count("?")
    with plain(path) as connection:
        steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    # SQLite 3.50 answers some statements from the index alone.
    steps = [step.replace("COVERING INDEX", "INDEX") for step in steps]
    # The tenants, priorities and cohorts, which a query found one by one, are not tables.
    rows_made = ("SCAN CONSTANT ROW", "SCAN owner", "SCAN level", "SCAN waiting", "SCAN part")
    tables = [step for step in steps if "VIRTUAL TABLE" not in step and step not in rows_made]
    tables = [step for step in tables if not step.startswith("SCAN (subquery")]
    scans = [step for step in tables if step.startswith("SCAN")]
    if name in ("runs of a worker", "runs to be stopped"):
        assert steps[0] == "SEARCH run USING INDEX evenbeat_runs_leased (worker=?)"
    elif name == "active runs of a schedule":
        assert steps[0] == "SEARCH run USING INDEX evenbeat_runs_active (tenant=? AND schedule=?)"
    elif name == "history of a schedule":
        assert steps == ["SEARCH run USING INDEX evenbeat_runs_of_schedule (tenant=? AND schedule=?)"]
    elif name in _READS:
        assert _READS[name] in steps, steps
        assert scans == []
    elif name in ("select lost", "next lease end", "count running", "select running"):
        # Reads running runs, and nothing of the history.
        assert steps[0].endswith("INDEX evenbeat_runs_leased")
    elif name in (
        "runs of a window",
        "failed runs of a window",
        "runs that wait for a retry",
        "count queues",
    ):
        # Reads active runs, and of the history those that ended in the window or later.
        active = ("INDEX evenbeat_runs_leased", "INDEX evenbeat_runs_claimable")
        assert all(step.endswith(active) for step in scans), steps
        ended = [step for step in steps if "evenbeat_runs_over" in step]
        assert all("SEARCH" in step and "(<expr>>?)" in step for step in ended), steps
        assert bool(ended) == (name != "runs that wait for a retry")
        assert bool(scans) == (name != "failed runs of a window")
    elif name == "count active":
        active = ("INDEX evenbeat_runs_leased", "INDEX evenbeat_runs_claimable")
        assert len(scans) == 2
        assert all(step.endswith(active) for step in scans), steps
    elif name.startswith(("select ends of tenant", " select ends of state")):
        assert all(step.startswith("SCAN (subquery") for step in scans), steps
        assert [step for step in steps if "evenbeat_runs_ended (tenant=? AND state=?)" in step], steps
    elif name in ("newest runs", "count runs", "select ends"):
        # Reads in the order of an index up to the limit; counting has to read all entries.
        assert all("USING" in step and "INDEX" in step for step in scans)
    else:
        assert scans == []
    if name in ("select due", "next wake", "newest runs", "runs after a cursor") or name.startswith(_ORDERED):
        assert not any("TEMP B-TREE" in step for step in steps), steps


def test_no_error_of_the_driver_reaches_the_caller(store: SqliteStore, path: Path) -> None:
    with plain(path) as connection:
        for table in ("schedules", "runs", "skipped", "statistics", "records", "logs"):
            connection.execute(f"DROP TABLE evenbeat_{table}")
    for call in every_call(store).values():
        with pytest.raises(EvenbeatError, match="no such table"):
            call()


@pytest.mark.parametrize("query", [RunQuery(), RunQuery(ids=("a",)), RunQuery(since=1)], ids=str)
def test_fields_that_a_search_leaves_out_are_not_read(query: RunQuery) -> None:
    whole, _ = history.search_statement(query)
    brief, _ = history.search_statement(replace(query, without=LARGE_FIELDS))
    for name in LARGE_FIELDS:
        assert f"run.{name}" in whole
        assert f"run.{name}" not in brief
