"""``executor="process"`` tasks in real processes.

Real time, because processes that start, end and die are the subject.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from evenbeat.core.clocks import steady_clock
from evenbeat.core.json_text import from_json, to_json
from evenbeat.core.records import RunRecord
from evenbeat.executors import processes
from evenbeat.executors.base import Attempt, Outcome
from evenbeat.executors.messages import Began, Ended, FromChild, IsMine, Key, Line, Logged, Mine, Progressed
from evenbeat.executors.processes import ProcessExecutor
from evenbeat.observe.capture import start_capture, stop_capture
from evenbeat.observe.logs import RunFields
from evenbeat.observe.run_progress import Reported, ReportedProgress
from evenbeat.processes.signals import describe_exit
from evenbeat.tasks.task import Task

JOBS = """
import ctypes, logging, multiprocessing, os, signal, sys, threading, time
from evenbeat import RunContext, Scheduler

app = Scheduler("memory://")

@app.task(executor="process")
def pid(): return os.getpid()

@app.task(executor="process")
def echo(text): return text

@app.task(executor="process")
def fail():
    raise ValueError("no \\ud800 good")

@app.task(executor="process")
def leave(code): os._exit(code)

@app.task(executor="process")
def segfault(): ctypes.string_at(0)

@app.task(executor="process")
def unjson(): return {1, 2} and object()

@app.task(executor="process")
def talk(run: RunContext):
    run.log("a line")
    logging.getLogger("jobs").warning("a %s", "record")
    logging.getLogger("jobs").debug("not asked for")
    print("a print", flush=True)
    return sys.stdin.read()

@app.task(executor="process")
def advance(run: RunContext):
    for number in range(1000):
        run.progress(number, "half", total=1000.5)
    try:
        run.progress(-1)
    except ValueError as error:
        return str(error)

@app.task(executor="process")
def mine(run: RunContext): return [run.holds_lease(), run.attempt, run.attempt]

@app.task(executor="process")
def goes_on(run: RunContext):
    run.raise_if_cancelled()
    return run.holds_lease()

@app.task(executor="process")
def wait(run: RunContext, file):
    open(file, "w").close()
    while True:
        run.raise_if_cancelled()
        time.sleep(0.01)

@app.task(executor="process")
def deaf(file, deafer=False):
    with open(file, "w") as f: f.write(str(os.getpid()))
    try:
        if deafer:
            sum(range(10**12))  # lets no signal handler in
        while True: time.sleep(0.01)
    finally:
        open(file + ".unwound", "w").close()

def made(number):
    @app.task(name=f"made-{number}", executor="process")
    def job(): return number

made(1)

def plain(): return "plain"

@app.task(executor="process")
def forks(how):
    pid = os.fork()
    if pid == 0:
        if how == "raise": raise ValueError("in the fork")
        if how == "exit": sys.exit(7)
        return "of the fork"
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def part(number):
    for _ in range(20): logging.getLogger("part").warning("x" * 20_000)
    return number

@app.task(executor="process")
def pool(run: RunContext):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        total = sum(pool.map(part, range(8)))
    run.log("done")
    return total

@app.task(executor="process")
def ask_forked(run: RunContext):
    pid = os.fork()
    if pid == 0:
        run.log("of the fork")
        os._exit(run.holds_lease())
    return [run.holds_lease(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])]

@app.task(executor="process")
def poll(run: RunContext, file):
    open(file, "w").close()
    while not os.path.exists(file + ".go"): run.raise_if_cancelled()

@app.task(executor="process")
def alarmed(run: RunContext):
    def ring(*_): raise TimeoutError
    signal.signal(signal.SIGALRM, ring)
    broken = 0
    for _ in range(200):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005)
            while True:
                run.log("x" * 200_000)
                run.holds_lease()
        except TimeoutError:
            broken += 1
    return broken

@app.task(executor="process")
def shout():
    def lines():
        for _ in range(20): logging.getLogger("shout").warning("y" * 100_000)
    threads = [threading.Thread(target=lines) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


class Hand:
    """An executor with one slot, and how what it was given ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ends: SimpleQueue[tuple[Attempt, Outcome]] = SimpleQueue()
        self.executor = ProcessExecutor(1)
        self.executor.start(lambda attempt, outcome: self.ends.put((attempt, outcome)))
        self.held: bool | None = True

    def give(self, name: str, payload: dict[str, Any] | None = None, function: Any = None) -> Attempt:
        if function is None:
            function = _named(name)
        run = RunRecord(id=name, task=name, payload=to_json(payload), attempt=3)
        attempt = Attempt(run, Task(function, name), steady_clock(), -1.0, lambda _: self.held)
        self.executor.submit([attempt])
        return attempt

    def outcome(self) -> Outcome:
        try:
            return self.ends.get(timeout=30)[1]
        except Empty:
            raise AssertionError("it did not end") from None

    def result(self, name: str, **payload: Any) -> Any:
        self.give(name, payload or None)
        outcome = self.outcome()
        assert outcome.kind == "returned", outcome
        return from_json(outcome.result or "null")


def _named(name: str) -> Callable[..., Any]:
    """What the worker knows of a function: never called here."""

    def function(**payload: Any) -> None:
        raise AssertionError("called in the worker")

    function.__module__, function.__qualname__ = "cpu_jobs", name
    return function


@pytest.fixture
def hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hand]:
    (tmp_path / "cpu_jobs.py").write_text(JOBS)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Hand(tmp_path)
    yield made
    made.executor.stop()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_process_executes_one_attempt_and_stays_for_the_next(hand: Hand) -> None:
    first = hand.result("pid")

    assert first != os.getpid()
    assert hand.result("echo", text="ä" * 400_000) == "ä" * 400_000
    assert hand.result("pid") == first


def test_a_task_made_by_a_function_is_found_by_its_name_in_the_scheduler(hand: Hand) -> None:
    assert hand.result("made-1") == 1


def test_a_function_that_is_no_task_of_its_module_is_found_by_its_own_name(hand: Hand) -> None:
    hand.give("other-name", None, _named("plain"))

    assert hand.outcome() == Outcome("returned", '"plain"')


def test_what_it_raises_comes_with_its_place(hand: Hand) -> None:
    hand.give("fail")

    kind, _, error, *_ = hand.outcome()
    assert kind == "raised"
    assert error is not None
    assert error.splitlines()[0] == "ValueError: no ? good"
    assert "cpu_jobs.py" in error
    assert "executors" not in error


def test_a_result_that_is_not_json_is_not_kept_and_the_log_says_so(hand: Hand) -> None:
    attempt = hand.give("unjson")

    assert hand.outcome() == Outcome("returned", "null")
    assert "the result is not kept" in attempt.log.take()[0].text


def test_lines_and_log_records_reach_the_log_of_the_run_and_prints_go_to_stderr(
    hand: Hand, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    start_capture()
    caplog.handler.addFilter(named := RunFields())
    try:
        with caplog.at_level(logging.INFO):
            attempt = hand.give("talk")
            assert hand.outcome() == Outcome("returned", '""')
    finally:
        stop_capture()
        caplog.handler.removeFilter(named)

    assert [chunk.text for chunk in attempt.log.take()] == ["a line", "WARNING jobs: a record"]
    (record,) = [record for record in caplog.records if record.name == "jobs"]
    assert (record.levelno, record.getMessage()) == (logging.WARNING, "a record")
    assert (vars(record)["job_id"], vars(record)["attempt"]) == ("talk", 3)
    assert capfd.readouterr() == ("", "a print\n")


def test_progress_reaches_the_worker_in_few_messages_and_the_last_value_always(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[float] = []
    report = ReportedProgress.report

    def counted(self: ReportedProgress, done: float, note: str, total: float | None) -> None:
        received.append(done)
        report(self, done, note, total)

    monkeypatch.setattr(ReportedProgress, "report", counted)
    attempt = hand.give("advance")
    assert from_json(hand.outcome().result or "") == ("done -1 is not a number of 0 to 9,007,199,254,740,992")
    assert attempt.progress.value == Reported(999, "half", 1000.5)
    assert type(attempt.progress.value.done) is int
    assert received[0] == 0
    assert received[-1] == 999
    assert len(received) < 100, "1,000 reports within half a second are a few messages"


def test_whether_it_is_still_ours_is_answered_by_the_worker(hand: Hand) -> None:
    assert hand.result("mine") == [True, 3, 3]
    hand.held = False
    assert hand.result("mine") == [False, 3, 3]


def test_one_that_is_asked_to_end_and_does_has_stopped(hand: Hand, tmp_path: Path) -> None:
    pid = hand.result("pid")
    attempt = hand.give("wait", {"file": str(tmp_path / "begun")})
    until((tmp_path / "begun").exists)
    attempt.control.request_cancel("cancelled")
    hand.executor.interrupt(attempt)

    assert hand.outcome() == Outcome("stopped", error="the run was asked to stop: cancelled")
    assert hand.result("pid") == pid


def test_one_that_does_not_ask_is_unwound(
    hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "PATIENCE", 0.05)
    pid = hand.result("pid")
    attempt = hand.give("deaf", {"file": str(tmp_path / "begun")})
    until((tmp_path / "begun").exists)
    attempt.control.request_cancel("timeout")
    hand.executor.interrupt(attempt)

    assert hand.outcome().kind == "stopped"
    assert (tmp_path / "begun.unwound").exists()
    assert hand.result("pid") == pid


def test_one_that_does_not_listen_at_all_is_killed_and_has_stopped(
    hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "PATIENCE", 0.05)
    monkeypatch.setattr(processes, "OBEDIENCE", 0.05)
    attempt = hand.give("deaf", {"file": str(tmp_path / "begun"), "deafer": True})
    until((tmp_path / "begun").exists)
    attempt.control.request_cancel("timeout")
    hand.executor.interrupt(attempt)

    assert hand.outcome() == Outcome("stopped", error="timeout")
    assert hand.result("echo", text="next") == "next"


def test_a_sigterm_from_elsewhere_is_for_the_worker_to_heed(hand: Hand, tmp_path: Path) -> None:
    attempt = hand.give("wait", {"file": str(tmp_path / "begun")})
    until((tmp_path / "begun").exists)
    (child,) = hand.executor._running.values()
    assert child._process is not None
    child._process.terminate()
    with pytest.raises(Empty):
        hand.ends.get(timeout=0.2)
    attempt.control.request_cancel("stopping")
    hand.executor.interrupt(attempt)

    assert hand.outcome().kind == "stopped"


def test_one_that_is_asked_before_its_process_is_there_stops_as_well(hand: Hand, tmp_path: Path) -> None:
    attempt = hand.give("wait", {"file": str(tmp_path / "begun")})
    attempt.control.request_cancel("stopping")
    hand.executor.interrupt(attempt)

    assert hand.outcome().kind == "stopped"


@pytest.mark.parametrize(
    ("name", "payload", "how"),
    [
        ("leave", {"code": 3}, "exit code 3"),
        ("leave", {"code": 0}, "exit code 0"),
        ("segfault", None, "SIGSEGV"),
    ],
)
def test_a_process_that_dies_by_itself_is_recognised_and_replaced(
    hand: Hand, name: str, payload: dict[str, Any] | None, how: str
) -> None:
    hand.give(name, payload)

    kind, _, error, *_ = hand.outcome()
    assert kind == "died"
    assert error is not None
    assert error.startswith("the process died with ")
    assert error.endswith(how)
    assert hand.result("echo", text="next") == "next"


def test_a_process_that_dies_while_it_has_nothing_to_do_harms_no_run(hand: Hand) -> None:
    pid = hand.result("pid")
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))

    assert hand.result("pid") != pid


def test_a_module_that_can_not_be_loaded_is_an_error_of_the_run(hand: Hand) -> None:
    function = _named("gone")
    function.__module__ = "no_such_module"
    hand.give("gone", None, function)
    outcome = hand.outcome()
    assert outcome.kind == "raised"
    assert str(outcome.error).startswith('task "gone" can\'t be loaded in a process of its own: ')
    assert 'there is no module "no_such_module"' in str(outcome.error)

    hand.give("gone", None, _named("somewhere.<locals>.gone"))
    assert 'executor="process" needs a function at the top level' in str(hand.outcome().error)

    (hand.folder / "bad_jobs.py").write_text("1 / 0\n")
    function.__module__ = "bad_jobs"
    hand.give("gone", None, function)
    assert "ZeroDivisionError" in str(hand.outcome().error)


def test_one_whose_module_is_still_being_loaded_is_unwound(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "PATIENCE", 0.05)
    pid = hand.result("pid")
    (hand.folder / "slow_jobs.py").write_text(
        "import time\nopen(__file__ + '.begun', 'w').close()\nwhile True: time.sleep(0.01)\n"
    )
    function = _named("slow")
    function.__module__ = "slow_jobs"
    attempt = hand.give("slow", None, function)
    until((hand.folder / "slow_jobs.py.begun").exists)
    attempt.control.request_cancel("stopping")
    hand.executor.interrupt(attempt)

    assert hand.outcome() == Outcome("stopped", error="stopping")
    assert hand.result("pid") == pid


def test_stopping_kills_what_runs(hand: Hand, tmp_path: Path) -> None:
    hand.give("deaf", {"file": str(tmp_path / "begun")})
    until(lambda: (tmp_path / "begun").exists() and (tmp_path / "begun").read_text())
    pid = int((tmp_path / "begun").read_text())
    hand.executor.stop()

    assert hand.outcome().kind == "stopped"
    until(lambda: not is_alive(pid))


SCRIPT = """
import os, re, sys, threading, time
from evenbeat import Scheduler

app = Scheduler("sqlite:///" + sys.argv[1] + "/evenbeat.db", poll_interval="100ms")
folder = sys.argv[1]

@app.task(executor="process")
def name(folder):
    with open(folder + "/name", "w") as f: f.write(__name__)

@app.task(executor="process")
def hold(folder):
    with open(folder + "/pid", "w") as f: f.write(str(os.getpid()))
    os.rename(folder + "/pid", folder + "/held")
    re.match(r"(a+)+$", "a" * 60 + "b")  # keeps the interpreter to itself for longer than anybody lives

app.enqueue(name, {"folder": folder}, id="name")
app.enqueue(hold, {"folder": folder}, id="hold")
app.run()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the listening thread notices")
def test_tasks_of_a_script_work_without_a_guard_and_die_with_it_also_while_computing(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    worker = subprocess.Popen([sys.executable, str(tmp_path / "script.py"), str(tmp_path)])
    try:
        until((tmp_path / "held").exists)
        until(lambda: (tmp_path / "name").exists() and (tmp_path / "name").read_text())
        assert (tmp_path / "name").read_text() == "__evenbeat_main__"
        pid = int((tmp_path / "held").read_text())
        assert is_alive(pid)
    finally:
        worker.kill()
        worker.wait(10)
    until(lambda: not is_alive(pid))


@pytest.mark.parametrize(("how", "code"), [("raise", 1), ("exit", 7), ("return", 0)])
def test_how_a_fork_of_a_task_ends_is_not_how_the_run_does(hand: Hand, how: str, code: int) -> None:
    pid = hand.result("pid")

    assert hand.result("forks", how=how) == code
    assert hand.result("pid") == pid


def test_forks_of_a_task_log_to_stderr_and_end_when_they_are_told(
    hand: Hand, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    attempt = hand.give("pool")

    assert hand.outcome() == Outcome("returned", "28")
    assert [chunk.text for chunk in attempt.log.take()] == ["done"]
    assert "part" not in {record.name for record in caplog.records}
    assert capfd.readouterr().err.count("WARNING part: x") == 160


def test_a_task_goes_on_where_nobody_can_say_whether_the_lease_is_held(hand: Hand) -> None:
    hand.held = None
    assert hand.result("goes_on") is False


def test_a_fork_of_a_task_holds_no_lease(hand: Hand, capfd: pytest.CaptureFixture[str]) -> None:
    assert hand.result("ask_forked") == [True, 0]
    assert capfd.readouterr().err == "of the fork\n"


def test_long_lines_of_threads_do_not_meet(hand: Hand, caplog: pytest.LogCaptureFixture) -> None:
    hand.give("shout")

    assert hand.outcome() == Outcome("returned", "null")
    assert caplog.messages.count("y" * 100_000) == 80


def test_a_handler_that_raises_breaks_off_no_message(hand: Hand) -> None:
    assert hand.result("alarmed") == 200
    assert hand.result("echo", text="next") == "next"


def test_a_sigterm_from_elsewhere_while_the_task_asks_holds_it_up_no_further(
    hand: Hand, tmp_path: Path
) -> None:
    hand.give("poll", {"file": str(tmp_path / "begun")})
    until((tmp_path / "begun").exists)
    (child,) = hand.executor._running.values()
    assert child._process is not None
    for _ in range(50):
        child._process.terminate()
        time.sleep(0.002)
    (tmp_path / "begun.go").touch()

    assert hand.outcome() == Outcome("returned", "null")


class Script:
    """A channel on which every message was sent already."""

    def __init__(self, *messages: FromChild) -> None:
        self.messages = list(messages)
        self.sent: list[object] = []

    def send(self, message: object) -> bool:
        self.sent.append(message)
        return True

    def receive(self) -> FromChild:
        return self.messages.pop(0)


@pytest.mark.parametrize(
    "late", [Key("r", 2, "c1"), Key("r", 3, "c1")], ids=["attempt", "earlier run of the id"]
)
def test_messages_about_another_attempt_are_ignored(
    late: Key, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = Key("r", 3, "c2")
    channel = Script(
        Ended(of=late, kind="returned", result="1"),
        Line(late, "late", 0),
        Progressed(late, 1, "late", None),
        IsMine(late, 8),
        Logged(of=late, logger="jobs", level=logging.WARNING, text="late", at=0.0),
        Logged(of=None, logger="jobs", level=logging.WARNING, text="nobody's", at=0.0),
        Began(now),
        IsMine(now, 9),
        Line(now, "in time", 0),
        Ended(of=now, kind="returned", result="2"),
    )
    child = processes.Child()
    monkeypatch.setattr(child, "_ready", lambda: channel)
    run = RunRecord(id="r", task="t", attempt=3, claim="c2")
    attempt = Attempt(run, Task(_named("t"), "t"), 0.0, -1.0, lambda _: True)
    start_capture()
    try:
        assert child.execute(attempt) == Outcome("returned", "2")
    finally:
        stop_capture()
    assert [chunk.text for chunk in attempt.log.take()] == ["in time"]
    assert attempt.progress.value is None
    assert channel.sent[1:] == [Mine(8, held=False), Mine(9, held=True)]
    assert caplog.messages == ["late", "nobody's"]


def test_where_no_thread_can_be_started_to_ask_for_the_end_the_process_is_killed(
    hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = hand.give("wait", {"file": str(tmp_path / "begun")})
    until((tmp_path / "begun").exists)

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    attempt.control.request_cancel("timeout")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        hand.executor.interrupt(attempt)

    assert hand.outcome() == Outcome("stopped", error="timeout")


def test_threads_for_processes_that_can_not_be_started_are_tried_again(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        assert hand.give("pid").withdraw()
    assert hand.result("echo", text="next") == "next"
    assert hand.ends.empty()


def test_exits_are_described_as_people_know_them() -> None:
    assert describe_exit(3) == "exit code 3"
    assert describe_exit(-9) == "signal SIGKILL"
    assert describe_exit(-99) == "signal 99"
