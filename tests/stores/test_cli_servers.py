"""The commands on real servers: checks, upgrades, output and refusals."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner, Result

from evenbeat import Scheduler
from evenbeat.cli.root import root
from evenbeat.core.records import Record
from evenbeat.stores.urls import open_url
from tests import servers
from tests.lengths import some
from tests.missing import skipped_without

SERVERS = ("postgres", "valkey", "mongo")


def evenbeat(*words: str) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(root, list(words))


@pytest.fixture(params=some(SERVERS, "postgres", "valkey"))
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@contextmanager
def valkey_with(**settings: str) -> Iterator[str]:
    with skipped_without("valkey"):
        server = servers.Valkey({name.replace("_", "-"): value for name, value in settings.items()})
        server.start()
    try:
        yield server.url
    finally:
        server.stop()


def test_doctor_checks_a_server_before_tables_exist(url: str) -> None:
    shown = evenbeat("doctor", url)
    assert shown.exit_code == 0, shown.output
    assert "none yet" in shown.output
    assert "safety" in shown.output
    assert "all is well" in shown.output
    assert "no Evenbeat tables" in evenbeat("schedules", "list", "--store", url).output


def test_upgrade_makes_what_doctor_finds(url: str) -> None:
    assert "up to date" not in evenbeat("db", "upgrade", "--sql", "--store", url).output
    newest = open_url(url).schema().known
    assert f"schema {newest}" in evenbeat("db", "upgrade", "--store", url).output
    assert "up to date" in evenbeat("db", "upgrade", "--store", url).output
    shown = evenbeat("doctor", url)
    assert f"{newest}, the newest" in shown.output
    assert "every running run has a live worker" in shown.output


def test_schedules_and_runs_are_seen_and_changed(url: str) -> None:
    app = Scheduler(url)
    app.schedules.add("report", "0 9 * * *", "send", {"team": "ops"})
    app.close()
    for words, expected in (
        (("schedules", "list"), "report"),
        (("schedules", "pause", "report", "--note", "lunch"), "paused report"),
        (("schedules", "resume", "report"), "resumed report"),
        (("schedules", "run", "report"), "queued a run of send"),
        (("schedules", "update", "report", "--retries", "3"), "retries: 0 → 3"),
        (("schedules", "history", "report"), "retries: 0 → 3"),
        (("schedules", "pause", "--all", "--text", "report", "--yes"), "paused 1 schedule"),
        (("audit", "--action", "pause"), "state: active → paused"),
        (("runs", "list"), "queued"),
        (("runs", "enqueue", "send", "--id", "by-hand"), "queued a run of send"),
        (("runs", "show", "by-hand"), "no live node executes runs"),
        (("runs", "cancel", "--all", "--task", "send", "--yes"), "cancelled 2 runs"),
        (("runs", "list", "--since", "1h", "--state", "cancelled"), "by-hand"),
        (("runs", "retry", "--all", "--state", "cancelled", "--since", "1h", "--yes"), "queued 2 runs again"),
        (("queues",), "default    2"),
        (("doctor",), "no tick twice in 2 runs"),
    ):
        shown = evenbeat(*words, "--store", url)
        assert expected in shown.output, shown.output


def test_the_figures_of_a_node_are_seen_by_tenant(url: str) -> None:
    app = Scheduler(url)
    for tenant in ("acme", "acme-2", "default"):
        for name in ("z", "a.b", "Z"):
            app.schedules.add(name, "0 9 * * *", "send", tenant=tenant)

    @app.task
    def send(country: str) -> None:
        if country != "DE":
            raise KeyError(country)

    runs = [send.enqueue(country) for country in ("DE", "NO", "SE")]
    with app:
        for run in runs:
            assert app.runs.join(run.id, "60s").state in ("succeeded", "failed")
        # A node gives its first sign of life after it has started.
        deadline = time.monotonic() + 60
        while not (nodes := app.nodes()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert [node.queues for node in nodes] == [("default",)]
    total = app.statistics("1h", by="hour").total
    assert (total.started, total.succeeded, total.failed) == (3, 1, 2)
    assert app.statistics("1h", by="hour", task="send").total.failed == 2
    assert [tenant.name for tenant in app.tenants.list()] == ["acme", "acme-2", "default"]
    group = app.failures().groups[0].id
    app.store.put_record(Record(kind="quarantine", key="gone", body="bad row"))
    app.store.put_record(Record(kind="quarantine", key="z", body="repaired since"))
    assert [note.name for note in app.quarantine.list()] == ["gone"]
    app.close()
    for words, expected in (
        (("stats", "--by", "hour"), "3 attempts started, 1 succeeded, 2 failed"),
        (("failures",), "2  KeyError: '…'"),
        (("runs", "retry", "--all", "--error-group", group, "--yes"), "queued 2 runs again"),
        (("nodes",), "no node is running"),
        (("tenants", "list"), "acme-2 "),
        (("quarantine", "list"), "bad row"),
    ):
        shown = evenbeat(*words, "--store", url)
        assert expected in shown.output, shown.output


def test_doctor_names_what_would_break_the_promise() -> None:
    with valkey_with(maxmemory_policy="allkeys-lru", appendfsync="everysec") as url:
        shown = evenbeat("doctor", url)
    assert shown.exit_code == 1
    lines = shown.output.splitlines()
    assert any(line.startswith("fail") and "maxmemory-policy allkeys-lru" in line for line in lines)
    assert any(line.startswith("warn") and "appendfsync everysec" in line for line in lines)
    assert any("noeviction" in line for line in lines)


def test_a_server_that_is_not_there_is_reported_without_its_password() -> None:
    port = servers.free_port()
    for url in (f"postgresql://me:s3cret@127.0.0.1:{port}/app", f"redis://:s3cret@127.0.0.1:{port}/0"):
        shown = evenbeat("doctor", url)
        assert shown.exit_code == 1
        assert "s3cret" not in shown.output
        assert str(port) in shown.output
        assert "Traceback" not in shown.output
