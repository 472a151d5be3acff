"""Guides whose code is several files or needs processes: the code works as shown."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from evenbeat import Scheduler
from evenbeat.app.loading import load_app
from evenbeat.core.records import RunRecord
from tests.lengths import LONG
from tests.servers import free_port

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
SOURCE = HOWTO.parents[1] / "src"
DJANGO = {"DJANGO_SETTINGS_MODULE": "shop.settings"}


def page(name: str) -> str:
    return (HOWTO / name).read_text("utf-8")


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page(name), re.MULTILINE | re.DOTALL)


def command_of(name: str) -> str:
    """Return the command of a page that starts nodes."""
    lines = [line for block in blocks(name, "text") for line in block.splitlines()]
    (command,) = [line for line in lines if line.startswith("$ evenbeat run ")]
    return command


def write_files(name: str, folder: Path) -> list[str]:
    """Write the files of a page: blocks whose first line is a path, as in ``# shop/jobs.py``."""
    written = [write_file(block, folder) for block in blocks(name, "text")]
    return [path for path in written if path is not None]


def write_file(block: str, folder: Path) -> str | None:
    found = re.match(r"# (\w+/\w+\.py)\n", block)
    if found is None:
        return None
    file = folder / found[1]
    file.parent.mkdir(exist_ok=True)
    file.write_text(block)
    return found[1]


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **more}


def run_until_done(command: str, folder: Path, app: Scheduler, run: str, **variables: str) -> str:
    """Start ``evenbeat run …`` as a page shows it; return the state of the run once it is over."""
    words = command.removeprefix("$ ").split()
    assert words[:2] == ["evenbeat", "run"]
    process = subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=environment(**variables),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    deadline = time.monotonic() + 90
    while app.runs.get(run).state in ("queued", "running"):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            return process.communicate()[0]
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    return app.runs.get(run).state


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Yield a folder to import from; remove its modules afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


# -- Django ------------------------------------------------------------------------------------------------


def follow_django(folder: Path) -> Iterator[str]:
    """Write the files of the page in its order, and yield each command in between for the caller to run."""
    for block in blocks("django.md", "text"):
        if write_file(block, folder) is None:
            yield from [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]


def run_command(command: str, folder: Path) -> str:
    """Run a command of the page in the project's folder; return what it prints."""
    words = command.split()
    words = [sys.executable, *words[1:]] if words[0] == "python" else ["sh", "-c", command]
    done = subprocess.run(
        words,
        cwd=folder,
        env=environment(**DJANGO),
        text=True,
        check=False,
        timeout=120,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@contextmanager
def web_server(command: str, folder: Path) -> Iterator[str]:
    """Start the page's server on a free port; yield its address."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, *command.split()[1:], "--noreload", str(port)],
        cwd=folder,
        env=environment(**DJANGO),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        deadline = time.monotonic() + 90
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            except ConnectionRefusedError:
                assert process.poll() is None, process.communicate()[0]
                assert time.monotonic() < deadline, "the server does not listen"
                time.sleep(0.05)
        yield f"localhost:{port}"
    finally:
        process.kill()
        process.communicate(timeout=60)


def test_the_tests_of_the_page_about_django_are_found_and_leave_the_database_alone(tmp_path: Path) -> None:
    session = follow_django(tmp_path)
    run_command(next(session), tmp_path)
    *_, tests = session
    assert tests == "python -m django test"
    printed = run_command(tests, tmp_path)
    assert "Found 4 test(s)." in printed
    assert "Ran 4 tests" in printed
    assert "Found 4 test(s)." in page("django.md")
    assert not (tmp_path / "shop.sqlite3").exists()


@LONG
def test_the_project_of_the_page_about_django_works_step_by_step(tmp_path: Path) -> None:
    printed, node, host = "", "", ""
    with ExitStack() as stack:
        for command in follow_django(tmp_path):
            match command.split():
                case ["export", setting]:
                    assert setting == "DJANGO_SETTINGS_MODULE=shop.settings"
                case ["evenbeat", "run", _]:
                    node = command
                case ["python", "-m", "django", "runserver"]:
                    host = stack.enter_context(web_server(command, tmp_path))
                case ["curl", "--data", data, address]:
                    request = Request(address.replace("localhost:8000", host), data=data.encode())  # noqa: S310
                    with urlopen(request, timeout=60) as response:  # noqa: S310
                        assert response.status == 201
                case _:
                    printed = run_command(command, tmp_path)
    assert "Ran 4 tests" in printed
    app = Scheduler(f"sqlite:///{tmp_path / 'shop.sqlite3'}")
    state = run_until_done(f"$ {node}", tmp_path, app, "invoice-1", **DJANGO)
    app.close()
    assert state == "succeeded"
    with closing(sqlite3.connect(tmp_path / "shop.sqlite3")) as database:
        assert database.execute("SELECT item, is_invoiced FROM shop_order").fetchall() == [("tea", 1)]


def load_in_a_process(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Load ``plain_app:app`` in a process without Django set up; then log as a node does."""
    (folder / "plain_app.py").write_text('from evenbeat import Scheduler\napp = Scheduler("memory://")\n')
    code = """
import logging
from evenbeat.observe import logs
from evenbeat.app.loading import load_app
logs.configure("text", "INFO")
logging.getLogger("evenbeat.node.node")
print(load_app("plain_app:app").url)
logging.getLogger("evenbeat.node.node").info("started")
"""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_settings_of_django_that_disable_loggers_leave_ours_alone(tmp_path: Path) -> None:
    (tmp_path / "quiet_settings.py").write_text('LOGGING = {"version": 1}\n')
    done = load_in_a_process(tmp_path, DJANGO_SETTINGS_MODULE="quiet_settings")
    assert done.stdout == "memory://\n", done.stderr
    assert "started" in done.stderr


def test_an_error_names_settings_of_django_that_do_not_exist(tmp_path: Path) -> None:
    done = load_in_a_process(tmp_path, DJANGO_SETTINGS_MODULE="nowhere.settings")
    assert (
        "AppImportError: Django, with DJANGO_SETTINGS_MODULE=nowhere.settings, raised when it" in done.stderr
    )


def test_an_app_loads_without_django_installed(loaded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "nowhere.settings")
    monkeypatch.setitem(sys.modules, "django", None)
    (loaded / "plain_app.py").write_text('from evenbeat import Scheduler\napp = Scheduler("memory://")\n')
    assert isinstance(load_app("plain_app:app"), Scheduler)


# -- Celery beat -------------------------------------------------------------------------------------------


def test_the_command_of_the_guide_for_celery_runs_its_example(tmp_path: Path) -> None:
    code = blocks("migrating-from-celery-beat.md", "python")[0]
    assert 'Scheduler("memory://")' in code
    (tmp_path / "shop.py").write_text(code.replace("memory://", "sqlite:///evenbeat.db"))
    command = command_of("migrating-from-celery-beat.md")
    app = Scheduler(f"sqlite:///{tmp_path / 'evenbeat.db'}")
    app.enqueue("cleanup", {"days": 30}, queue="slow", id="slow")
    assert run_until_done(command, tmp_path, app, "slow") == "succeeded"
    app.close()


# -- Several modules ---------------------------------------------------------------------------------------


def test_the_modules_of_the_page_are_one_app(loaded: Path) -> None:
    write_files("several-modules.md", loaded)
    assert len(list(load_app("shop.scheduling:app").tasks)) == 0
    tasks: Any = load_app("shop.jobs:app").tasks
    assert {task.name: task.queue for task in tasks} == {"send_newsletters": "mail", "charge": "default"}
    assert command_of("several-modules.md").endswith(" shop.jobs:app --queues default,mail")


# -- Tracing -----------------------------------------------------------------------------------------------


def test_the_example_of_the_page_about_tracing_links_the_job_to_the_request(tmp_path: Path) -> None:
    assert write_files("tracing.md", tmp_path) == ["shop/jobs.py"]
    program = """
from shop.jobs import app, checkout
with app:
    checkout(17)
    (run,) = app.runs.list()
    app.runs.join(run.id, "60s")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=100
    )
    spans: dict[str, Any] = {}
    text = done.stdout
    while (start := text.find("{\n")) >= 0:
        span, end = json.JSONDecoder().raw_decode(text[start:])
        spans[span["name"]] = span
        text = text[start + end :]
    assert spans.keys() == {"checkout", "evenbeat.run send_receipt", "render receipt"}
    attempt, request = spans["evenbeat.run send_receipt"], spans["checkout"]
    assert attempt["links"][0]["context"]["span_id"] == request["context"]["span_id"]
    assert attempt["context"]["trace_id"] != request["context"]["trace_id"]
    assert spans["render receipt"]["parent_id"] == attempt["context"]["span_id"]
    named = set(re.findall(r"`(evenbeat\.[a-z.]+)`", page("tracing.md")))
    assert attempt["attributes"].keys() == named - {"evenbeat.schedule", "evenbeat.tick", "evenbeat.run"}


# -- Uninstalling ------------------------------------------------------------------------------------------


def statements(language: str, containing: str) -> list[str]:
    (block,) = [block for block in blocks("uninstalling.md", language) if containing in block]
    return [line for line in re.sub(r"--.*", "", block).split(";") if line.strip()]


def test_uninstalling_leaves_no_table_in_a_file_of_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    app = Scheduler(f"sqlite:///{path}")
    app.enqueue("work")
    app.close()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,)
        for statement in statements("sql", "evenbeat_runs"):
            database.execute(statement)
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == []


def test_uninstalling_leaves_no_schema_in_a_database_of_postgres(postgres: str) -> None:
    import psycopg

    from evenbeat.stores.postgres import PostgresStore

    store = PostgresStore(postgres)
    store.open()
    store.close()
    (statement,) = statements("sql", "DROP SCHEMA")
    ours = store.location.schema
    with psycopg.connect(store.location.conninfo, autocommit=True) as connection:
        count = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
        assert connection.execute(count, (ours,)).fetchone() == (1,)
        connection.execute(statement.replace("SCHEMA evenbeat", f"SCHEMA {ours}").encode())
        assert connection.execute(count, (ours,)).fetchone() == (0,)


def test_the_pattern_for_uninstalling_matches_every_key_of_redis(valkey: str) -> None:
    import redis

    from evenbeat.stores.redis import RedisStore

    store = RedisStore(valkey)
    store.open()
    store.add_runs([RunRecord(id="one", task="work")])
    store.close()
    assert "--pattern '{evenbeat}:*'" in page("uninstalling.md")
    place, _, prefix = valkey.partition("?prefix=")
    with redis.Redis.from_url(place.replace("valkey", "redis", 1), decode_responses=True) as client:
        ours = [key for key in client.scan_iter() if prefix in key]
    assert ours
    assert [key for key in ours if not key.startswith(f"{{{prefix}}}:")] == []


def test_the_page_about_uninstalling_names_every_collection_of_mongodb(mongo: str) -> None:
    import pymongo

    from evenbeat.stores.mongo import MongoStore

    store = MongoStore(mongo)
    store.open()
    named = set(re.findall(r'"(\w+)"', blocks("uninstalling.md", "js")[0]))
    with pymongo.MongoClient[Any](mongo) as client:
        assert set(client.get_default_database().list_collection_names()) <= named
    store.close()
