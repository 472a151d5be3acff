"""``evenbeat run`` with real processes that are killed, frozen and stuck, and every tick accounted for.

Real time, because signals, leases and deadlines of processes are the subject. Nothing is asserted about
speed: what must not wait for a lease is shown with a lease that is longer than the test's patience.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evenbeat.core.records import Execution, RunRecord
from evenbeat.stores.base import RunQuery
from evenbeat.stores.sqlite import SqliteStore
from tests.faults import supervised_jobs
from tests.faults.fleet import check_ticks
from tests.living import is_alive

APP = str(Path(supervised_jobs.__file__).resolve())
PATIENCE = 180.0
LONG = "10m"

# As evenbeat run, and what it waits for is shorter.
IMPATIENT = """
import sys
from evenbeat.supervision import supervisor
from evenbeat.app.loading import load_app
from evenbeat.observe import logs
from evenbeat.supervision.node_process import Begin

supervisor.GRACE = supervisor.LAST_ACTS = 1.0
logs.configure("json")
begin = Begin(app=sys.argv[1], options={"drain_timeout": sys.argv[2]}, stuck=1.0, log_format="json")
sys.exit(supervisor.Supervisor(load_app(sys.argv[1]), begin).run())
"""


class Supervised:
    """``evenbeat run`` in a folder, with its log and its runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "supervisor.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.store = SqliteStore(folder / "evenbeat.db")
        self.store.open()

    def start(self, *options: str, **environment: str) -> None:
        self._start("-m", "evenbeat", "run", APP, "--log-format", "json", *options, **environment)
        count = int(options[options.index("--processes") + 1]) if "--processes" in options else 1
        self.until(lambda: len(self.up()) == count and self.beats())

    def start_impatient(self, drain: str = "1s") -> None:
        self._start("-c", IMPATIENT, APP, drain)
        self.until(lambda: self.up() and self.beats())

    def _start(self, *words: str, **environment: str) -> None:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *words],
                cwd=self.folder,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **environment},
            )

    def enqueue(self, task: str, name: str, **fields: Any) -> None:
        now = self.store.now()
        self.store.add_runs([RunRecord(id=name, task=task, run_at=now, created_at=now, **fields)])
        self.store.hint()

    def beats(self) -> tuple[RunRecord, ...]:
        """Return the runs of all ticks that fired."""
        page = self.store.find_runs(RunQuery(schedule="beat", limit=10_000))
        assert page.cursor is None
        return page.items

    def run(self, name: str) -> RunRecord:
        return self.store.find_runs(RunQuery(ids=(name,))).items[0]

    def logged(self, message: str) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines()
        records = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [record for record in records if record["msg"].startswith(message)]

    def up(self) -> list[int]:
        """Return the pids of all processes that were ever up."""
        return [record["pid"] for record in self.logged("a process is up")]

    def pid(self, name: str, time: int = 1) -> int:
        """Wait until a run has begun so many times; return the pid of that process."""
        file = self.folder / f"{name}.{time}"
        self.until(file.exists)
        return int(file.read_text())

    def begun(self, name: str) -> int:
        """Return how many times a run has begun."""
        return len(list(self.folder.glob(f"{name}.*")))

    def go(self) -> None:
        """Let waiting jobs end."""
        (self.folder / "go").touch()

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"it did not come true; the log:\n{self.log.read_text()}"
            time.sleep(0.05)

    def until_state(self, name: str, state: str) -> RunRecord:
        self.until(lambda: self.run(name).state == state)
        return self.run(name)

    def wait(self) -> int:
        assert self.process is not None
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end; the log:\n{self.log.read_text()}") from None

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def check_ticks(self) -> None:
        """Check that every tick became one run or has a row in the ledger, and that no run is held."""
        check_ticks(self.store, "beat")
        assert {run.state for run in self.beats()} <= {"succeeded", "queued"}
        assert not self.store.find_runs(RunQuery(states=("running",))).items

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self.store.close()
        # The children notice. None of them may outlive its test.
        for pid in self.up() if self.log.exists() else []:
            if is_alive(pid):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    with closing(Supervised(tmp_path)) as made:
        yield made


def test_the_runs_of_a_killed_process_are_executed_again_without_waiting_for_the_lease(
    supervised: Supervised,
) -> None:
    supervised.start("--lease", LONG)
    supervised.enqueue("first_hangs", "job")
    pid = supervised.pid("job")
    os.kill(pid, signal.SIGKILL)

    run = supervised.until_state("job", "succeeded")
    assert (supervised.begun("job"), run.crashes, run.failures) == (2, 1, 0)
    assert supervised.pid("job", 2) != pid
    assert supervised.logged("a process has ended")[0]["exit"] == "SIGKILL"
    # A tick's run may have been in the same process.
    assert "job" in {record["job_id"] for record in supervised.logged("the worker of a run died")}
    assert supervised.stop() == 0
    supervised.check_ticks()


def test_a_job_that_ends_its_process_harms_no_run_of_another(supervised: Supervised) -> None:
    supervised.start("--lease", LONG, "--processes", "2", "--thread-concurrency", "2")
    for name in ("a", "b", "c"):  # more than one process has slots for
        supervised.enqueue("wait", name)
    pids = {name: supervised.pid(name) for name in ("a", "b", "c")}
    assert len(set(pids.values())) == 2
    supervised.enqueue("first_exits", "job")

    run = supervised.until_state("job", "succeeded")
    assert (supervised.begun("job"), run.crashes) == (2, 1)
    assert supervised.logged("a process has ended")[0]["exit"] == "7"
    supervised.go()
    for name, pid in pids.items():
        other = supervised.until_state(name, "succeeded")
        died = pid == supervised.pid("job")
        assert (supervised.begun(name), other.crashes) == ((2, 1) if died else (1, 0)), name
    assert supervised.stop() == 0
    supervised.check_ticks()


@pytest.mark.long
def test_the_end_of_a_process_that_dies_in_the_middle_of_a_log_line_is_a_line_of_its_own(
    supervised: Supervised,
) -> None:
    supervised.start("--lease", LONG)
    supervised.enqueue("first_dies_in_a_line", "job")
    supervised.until_state("job", "succeeded")

    assert supervised.logged("a process has ended")[0]["pid"] == supervised.pid("job")
    assert "job" in {record["job_id"] for record in supervised.logged("the worker of a run died")}
    assert supervised.stop() == 0


@pytest.mark.long
@pytest.mark.parametrize("code", [0, 75])
def test_a_job_that_ends_its_process_with_the_code_of_an_orderly_end_has_crashed(
    supervised: Supervised, code: int
) -> None:
    supervised.start("--lease", LONG)
    supervised.enqueue("exits", "job", payload=f'{{"code": {code}}}', execution=Execution(max_crashes=1))

    run = supervised.until_state("job", "failed")
    assert (supervised.begun("job"), run.crashes) == (2, 2)
    assert str(run.error).endswith(f"its process died with exit code {code}")
    assert supervised.stop() == 0
    supervised.check_ticks()


def _poison_and_others(supervised: Supervised, scene: int) -> list[str]:
    """Add a run that ends its process, and others behind it; return the ids of the others."""
    now = supervised.store.now()
    poison = RunRecord(
        id=f"poison-{scene}",
        task="exits",
        run_at=now,
        created_at=now,
        payload='{"code": 7}',
        priority=9,
        execution=Execution(max_crashes=2),
    )
    others = [
        RunRecord(
            id=f"other-{scene}-{at}",
            task="notes",
            run_at=now,
            created_at=now,
            execution=Execution(on_crash="fail"),
        )
        for at in range(20)
    ]
    supervised.store.add_runs([poison, *others])
    supervised.store.hint()
    return [other.id for other in others]


@pytest.mark.long
def test_runs_that_were_only_claimed_are_not_to_blame_when_their_process_dies(supervised: Supervised) -> None:
    supervised.start("--lease", LONG, "--thread-concurrency", "1", SUPERVISED_JOBS="greedy")
    # On a busy machine, the process may claim the first run alone, and dies before it claims others.
    for scene in range(5):
        others = _poison_and_others(supervised, scene)
        run = supervised.until_state(f"poison-{scene}", "failed")
        assert (supervised.begun(f"poison-{scene}"), run.crashes) == (3, 3)
        for other in others:
            run = supervised.until_state(other, "succeeded")
            assert (supervised.begun(other), run.crashes) == (1, 0)
        handed_back = {record["job_id"] for record in supervised.logged("a run was handed back")}
        if handed_back & set(others):
            break
    assert handed_back & set(others)
    assert supervised.stop() == 0
    supervised.check_ticks()


@pytest.mark.long
def test_a_process_that_a_job_forks_can_be_terminated(supervised: Supervised) -> None:
    supervised.start()
    supervised.enqueue("ends_fork", "job")

    assert supervised.until_state("job", "succeeded").result == str(-signal.SIGTERM)
    assert supervised.stop() == 0
    supervised.check_ticks()


@pytest.mark.long
def test_a_job_that_holds_the_interpreter_for_longer_than_its_lease_keeps_the_lease(
    supervised: Supervised,
) -> None:
    supervised.start("--lease", "2s", "--processes", "2")
    supervised.enqueue("hold", "job", payload='{"seconds": 6}')

    run = supervised.until_state("job", "succeeded")
    assert (supervised.begun("job"), run.crashes) == (1, 0)
    assert supervised.logged("a process does not answer, the supervisor renews its leases")
    assert not supervised.logged("the lease of a run was lost")
    assert supervised.stop() == 0
    supervised.check_ticks()


@pytest.mark.long
def test_a_run_that_times_out_in_a_silent_process_ends_with_the_process(supervised: Supervised) -> None:
    supervised.start_impatient()
    supervised.enqueue("first_hangs", "other")
    pid = supervised.pid("other")
    supervised.enqueue("hold", "job", payload='{"seconds": 600}', execution=Execution(timeout=1000))

    run = supervised.until_state("job", "failed")
    assert run.error == "timed out after 1s, and its process was killed"
    assert (supervised.begun("job"), run.failures, run.crashes) == (1, 1, 0)
    assert supervised.pid("job") == pid
    other = supervised.until_state("other", "succeeded")
    assert (supervised.begun("other"), other.crashes) == (2, 0), "it was handed back, and is not to blame"
    assert supervised.stop() == 0
    supervised.check_ticks()


@pytest.mark.long
def test_a_process_with_a_stuck_thread_is_replaced_and_its_other_jobs_end_normally(
    supervised: Supervised,
) -> None:
    supervised.start_impatient(drain="60s")
    supervised.enqueue("wait", "other")
    supervised.pid("other")
    supervised.enqueue("first_hangs", "stuck", execution=Execution(timeout=500))

    run = supervised.until_state("stuck", "failed")
    assert run.error == "timed out after 500ms"
    supervised.until(lambda: len(supervised.up()) == 2)
    assert is_alive(supervised.pid("other")), "the next one does not wait for its end"
    supervised.go()
    other = supervised.until_state("other", "succeeded")
    assert (supervised.begun("other"), other.crashes) == (1, 0)
    supervised.until(lambda: supervised.logged("a process has ended"))
    assert supervised.logged("a process has ended")[0]["exit"] == "75"
    assert not is_alive(supervised.pid("stuck"))
    assert supervised.stop() == 0
    supervised.check_ticks()


def test_ctrl_c_drains_and_running_jobs_end_normally(supervised: Supervised) -> None:
    supervised.start("--processes", "2", "--drain-timeout", LONG)
    supervised.enqueue("wait", "job")
    supervised.pid("job")
    # A terminal sends it to all processes in the foreground.
    assert supervised.process is not None
    os.killpg(supervised.process.pid, signal.SIGINT)
    supervised.until(lambda: supervised.logged("stopping"))
    supervised.go()

    assert supervised.wait() == 0
    run = supervised.run("job")
    assert (run.state, supervised.begun("job"), run.crashes) == ("succeeded", 1, 0)
    assert {record["exit"] for record in supervised.logged("a process has ended")} == {"0"}
    supervised.check_ticks()


@pytest.mark.long
def test_health_reports_the_supervisor_until_sighup_drains_it(supervised: Supervised) -> None:
    supervised.start("--processes", "2")
    assert supervised.process is not None
    ask = [sys.executable, "-m", "evenbeat", "health", "--json", "--pid", str(supervised.process.pid)]

    def health() -> dict[str, Any]:
        done = subprocess.run(ask, capture_output=True, text=True)
        answer: dict[str, Any] = json.loads(done.stdout)
        assert answer["ok"] is (done.returncode == 0)
        return answer

    supervised.until(lambda: sum(node["up"] for node in health()["processes"][0]["nodes"]) == 2)
    (process,) = health()["processes"]
    assert (process["kind"], process["problems"], process["notes"]) == ("supervisor", [], [])
    assert sorted(node["pid"] for node in process["nodes"]) == sorted(supervised.up())
    supervised.signal(signal.SIGHUP)
    assert supervised.wait() == 0
    assert health() == {"ok": False, "processes": []}


def test_jobs_that_do_not_end_by_the_deadline_are_handed_back(supervised: Supervised) -> None:
    supervised.start("--drain-timeout", "1s", "--lease", LONG)
    supervised.enqueue("first_hangs", "job")
    supervised.pid("job")

    assert supervised.stop() == 0
    run = supervised.run("job")
    assert (run.state, run.crashes, run.failures) == ("queued", 0, 0)
    supervised.check_ticks()


@pytest.mark.long
def test_a_second_signal_hurries(supervised: Supervised) -> None:
    supervised.start("--drain-timeout", LONG, "--lease", LONG)
    supervised.enqueue("first_hangs", "job")
    supervised.pid("job")
    supervised.signal(signal.SIGTERM)
    supervised.until(lambda: supervised.logged("stopping"))
    supervised.signal(signal.SIGTERM)

    assert supervised.wait() == 0
    assert supervised.run("job").state == "queued"
    supervised.check_ticks()


@pytest.mark.long
def test_a_process_that_does_not_stop_is_killed_and_its_runs_are_handed_back(supervised: Supervised) -> None:
    supervised.start_impatient()
    supervised.enqueue("first_hangs", "job")
    os.kill(supervised.pid("job"), signal.SIGSTOP)

    assert supervised.stop() == 0
    assert supervised.logged("a process does not stop and is killed")
    run = supervised.run("job")
    assert (run.state, run.crashes, run.failures) == ("queued", 0, 0)
    assert not is_alive(supervised.pid("job"))
    supervised.check_ticks()


def test_processes_end_by_themselves_when_their_supervisor_is_gone(supervised: Supervised) -> None:
    supervised.start("--processes", "2", "--drain-timeout", "1s")
    supervised.enqueue("first_hangs", "job")
    supervised.enqueue("crunch", "computing")
    pids = {supervised.pid("job"), supervised.pid("computing"), *supervised.up()}
    assert len(pids) == 3
    supervised.signal(signal.SIGKILL)
    supervised.wait()

    supervised.until(lambda: not any(is_alive(pid) for pid in pids))
    assert supervised.run("job").state == "queued"
    supervised.check_ticks()


def test_a_process_task_whose_process_is_killed_counts_a_crash_and_runs_again(supervised: Supervised) -> None:
    supervised.start("--lease", LONG)
    supervised.enqueue("crunch", "job")
    pid = supervised.pid("job")
    assert pid not in supervised.up()
    os.kill(pid, signal.SIGKILL)

    run = supervised.until_state("job", "succeeded")
    assert (supervised.begun("job"), run.crashes, run.failures) == (2, 1, 0)
    assert len(supervised.up()) == 1, "its worker continues"
    assert supervised.stop() == 0
    supervised.check_ticks()


@pytest.mark.long
@pytest.mark.parametrize("task", ["first_closes_files", "first_closes_files_on_the_loop"])
def test_a_process_whose_descriptors_a_job_closed_is_replaced_at_once(
    supervised: Supervised, task: str
) -> None:
    supervised.start("--lease", LONG)
    supervised.enqueue(task, "job")
    run = supervised.until_state("job", "succeeded")
    assert (supervised.begun("job"), run.crashes, run.failures) == (2, 1, 0)
    assert supervised.pid("job", 2) != supervised.pid("job")
    records = supervised.logged("a job closed file descriptors that it had not opened")
    assert [record["pid"] for record in records] == [supervised.pid("job")], supervised.log.read_text()
    assert supervised.stop() == 0
    supervised.check_ticks()


def test_the_supervisor_waits_for_a_database_that_is_unavailable_at_the_start(supervised: Supervised) -> None:
    app = supervised.folder / "late.py"
    app.write_text('from evenbeat import Scheduler\napp = Scheduler("sqlite:///mounted/evenbeat.db")\n')
    supervised._start("-m", "evenbeat", "run", str(app), "--log-format", "json")
    supervised.until(lambda: supervised.logged("the store is unavailable, waiting up to 1m for it"))
    (supervised.folder / "mounted").mkdir()
    supervised.until(supervised.up)
    assert supervised.stop() == 0


@pytest.mark.long
def test_a_process_that_never_starts_is_an_error_and_not_retried_forever(supervised: Supervised) -> None:
    words = ("-m", "evenbeat", "run", APP, "--log-format", "json", "--processes", "2")
    supervised._start(*words, SUPERVISED_JOBS="fail-at-start")

    assert supervised.wait() == 1
    (record,) = supervised.logged("no process could be started: ")
    assert "RuntimeError: only in the process that works" in record["msg"]
