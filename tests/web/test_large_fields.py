"""Payloads, results and errors of runs are read only where somebody sees them: each may have a megabyte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from evenbeat import Scheduler
from evenbeat.cli.root import root
from evenbeat.core.records import RunRecord
from evenbeat.core.results import BulkResult, Run
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim, Page, RunQuery
from evenbeat.stores.sqlite.store import SqliteStore
from evenbeat.web.catalogue import Catalogue
from evenbeat.web.run_changes import RunChanges, read

RUNS = 12
SAMPLE = 5


class Reads:
    """Counts the large fields of all runs that searches return."""

    def __init__(self) -> None:
        self.payloads = 0
        self.errors = 0

    def count(self, found: Page[RunRecord]) -> Page[RunRecord]:
        self.payloads += sum(run.payload != "null" for run in found.items)
        self.errors += sum(run.error is not None for run in found.items)
        return found

    def of(self, work: Callable[[], object]) -> tuple[int, int]:
        """Return how many payloads and errors were read by this work."""
        self.payloads = self.errors = 0
        work()
        return self.payloads, self.errors


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    reads, find_runs = Reads(), SqliteStore.find_runs

    def counted(store: SqliteStore, query: RunQuery) -> Page[RunRecord]:
        return reads.count(find_runs(store, query))

    monkeypatch.setattr(SqliteStore, "find_runs", counted)
    return reads


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    """An app with failed and queued runs of a schedule."""
    url = f"sqlite:///{tmp_path}/evenbeat.db"
    monkeypatch.setenv("EVENBEAT_STORE", url)
    app = Scheduler(url)
    app.schedules.add("report", "every 1h", "works", payload={"note": "x" * 100})
    for at in range(RUNS):
        app.schedules.run_now("report", payload={"note": "x" * 100, "at": at})
    store = app.store
    held = store.claim_runs(Claim(worker="w", token="t", limit=RUNS // 2, now=store.now(), lease=30_000)).runs
    assert all(
        store.settle_runs(
            [
                attempts.failed(
                    replace(run, execution=replace(run.execution, retries=0)), "Boom: 1", store.now(), run.id
                )
                for run in held
            ]
        )
    )
    yield app
    app.close()


def test_lists_and_polls_read_no_payload_that_they_do_not_show(app: Scheduler, reads: Reads) -> None:
    assert reads.of(lambda: app.runs.list(limit=RUNS)) == (RUNS, RUNS // 2)
    assert reads.of(lambda: app.runs.list(brief=True)) == (0, 0)
    assert reads.of(lambda: app.runs.page(brief=True)) == (0, 0)
    assert reads.of(lambda: app.failures()) == (0, RUNS // 2)
    store = app.store
    assert reads.of(lambda: read(store, None, 0)) == (0, 0)
    incomplete = read(store, None, 0)._replace(has_all_by_hand=False)
    assert reads.of(lambda: RunChanges("default", 0).poll(store, store.now(), incomplete)) == (0, 0)
    catalogue = Catalogue()
    for _ in range(2):  # the second refresh reads failed runs
        assert reads.of(lambda: catalogue.refresh(store)) == (0, 0)
    assert reads.of(lambda: app.schedules.account("report", "1h")) == (0, 0)


def test_a_bulk_change_reads_the_payloads_of_its_sample_alone(app: Scheduler, reads: Reads) -> None:
    def check(act: Callable[..., BulkResult[Run]], *, dry_run: bool) -> None:
        found: list[BulkResult[Run]] = []
        payloads, _ = reads.of(lambda: found.append(act(dry_run=dry_run)))
        (result,) = found
        assert payloads == len(result.sample) == SAMPLE
        assert all(run.payload["note"] for run in result.sample)
        assert (result.matched > SAMPLE, result.refused) == (True, ())

    for dry_run in (True, False):
        check(app.runs.retry_all, dry_run=dry_run)
        check(app.runs.cancel_all, dry_run=dry_run)


@pytest.mark.parametrize(
    "line", ["runs list", "failures", "schedules show report", "schedules pause report", "doctor"]
)
def test_a_command_reads_no_payload_that_it_does_not_show(app: Scheduler, reads: Reads, line: str) -> None:
    def work() -> None:
        result = CliRunner().invoke(root, line.split(), prog_name="evenbeat")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.output

    assert reads.of(work)[0] == 0


def test_a_list_as_json_has_whole_runs(app: Scheduler, reads: Reads) -> None:
    def work() -> None:
        assert CliRunner().invoke(root, ["runs", "list", "--json"]).exit_code == 0

    assert reads.of(work)[0] == RUNS
