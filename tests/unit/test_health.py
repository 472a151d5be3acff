"""``evenbeat health``: what a restart could mend fails, and nothing else does."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import evenbeat
from evenbeat import Scheduler, StoreUnavailable
from evenbeat.cli.root import root
from evenbeat.core.records import RunRecord
from evenbeat.documents import MemoryDocuments, Processor
from evenbeat.node.loop import Loop
from evenbeat.observe import status_files
from evenbeat.observe.events import Events
from evenbeat.observe.health import LATE, SILENT, judge
from evenbeat.observe.status_files import (
    LoopStatus,
    NodeStatus,
    Pauses,
    ProcessStatus,
    StatusWriter,
    decode,
    encode,
    identity,
    read_all,
)
from evenbeat.processes.begun import Begun, make_file
from evenbeat.stores.memory import MemoryStore
from evenbeat.supervision.children import Child
from evenbeat.supervision.node_process import Begin
from evenbeat.supervision.supervisor import Supervisor

NOW = 10_000.0
STEPPING = NodeStatus("n", 7, (LoopStatus("ticker", NOW + 20), LoopStatus("worker", NOW)))


def of_node(node: NodeStatus = STEPPING, written: float = NOW, patience: float = SILENT) -> ProcessStatus:
    return ProcessStatus("node", "n", 7, "", written, patience, (), (node,))


def of_supervisor(*nodes: NodeStatus, stepped: float = NOW) -> ProcessStatus:
    return ProcessStatus("supervisor", "s", 6, "", NOW, SILENT, (LoopStatus("supervisor", stepped),), nodes)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own: nodes of other tests are none of ours."""
    folder = tmp_path / "runtime" / "evenbeat"
    folder.parent.mkdir()
    monkeypatch.setattr(status_files, "folders", lambda: (str(folder),))
    return folder


@pytest.fixture
def app() -> Iterator[Scheduler]:
    scheduler = Scheduler("memory://", poll_interval="10ms")
    yield scheduler
    scheduler.stop()
    scheduler.close()


def health(*words: str) -> Result:
    return CliRunner().invoke(root, ["health", *words], prog_name="evenbeat")


# -- the rule ----------------------------------------------------------------------------------------------


def test_a_node_whose_loops_step_is_well() -> None:
    assert judge(of_node(), NOW) == ((), ())
    assert judge(of_supervisor(STEPPING._replace(last_message=NOW)), NOW + 1) == ((), ())


def test_a_loop_that_has_not_stepped_for_two_minutes_is_a_problem() -> None:
    stuck = of_node(NodeStatus("n", 7, (LoopStatus("worker", NOW - LATE - 1),)))
    assert judge(stuck, NOW).problems == ("the worker has not stepped for 2 min",)
    assert judge(of_supervisor(stepped=NOW - LATE - 1), NOW).problems == (
        "the supervisor has not stepped for 2 min",
    )
    assert judge(of_node(NodeStatus("n", 7, (LoopStatus("worker", NOW - LATE),))), NOW).problems == ()


def test_a_process_that_writes_nothing_any_more_is_frozen() -> None:
    assert judge(of_node(), NOW + SILENT).problems == ()
    assert judge(of_node(), NOW + SILENT + 1).problems == (
        "it has given no sign of life for 1 min: it is frozen",
    )
    assert judge(of_node(patience=630), NOW + SILENT + 1).problems == (), "its lease is longer"


def test_a_store_that_is_away_is_reported_and_is_not_a_problem() -> None:
    loops = (LoopStatus("worker", NOW, NOW - 60, "refused"), LoopStatus("ticker", NOW, NOW - 7200, "refused"))
    verdict = judge(of_node(NodeStatus("n", 7, loops)), NOW)
    assert verdict == ((), ("the ticker has failed for 2 h and keeps trying: refused",))


def test_a_node_that_can_not_work_in_its_process_any_more_is_a_problem() -> None:
    assert judge(of_node(NodeStatus("n", 7, broken="files were closed")), NOW).problems == (
        "files were closed",
    )


def test_a_silent_process_is_a_problem_unless_a_job_may_keep_its_interpreter() -> None:
    silent = STEPPING._replace(last_message=NOW - SILENT - 5)
    assert judge(of_supervisor(silent), NOW).problems == (
        "process 7: it has given no sign of life for 1 min",
    )
    busy = STEPPING._replace(last_message=NOW - 2 * LATE, executing=True)
    late = tuple(loop._replace(due=NOW - 2 * LATE) for loop in busy.loops)
    assert judge(of_supervisor(busy._replace(loops=late)), NOW) == (
        (),
        ("process 7: a job has kept the interpreter to itself for 4 min",),
    )


def test_a_process_that_starts_is_not_a_problem_however_long_it_takes() -> None:
    starting = NodeStatus("n", 7, up=False, last_message=NOW - 3600)
    assert judge(of_supervisor(starting), NOW) == ((), ("process 7: it is starting",))


def test_a_process_that_was_paused_as_a_whole_is_not_late() -> None:
    pauses = Pauses(longest=15)
    assert [pauses.check(now) for now in (0.0, 5.0, 20.0)] == [float("-inf")] * 3
    assert [pauses.check(now) for now in (35.1, 40.0)] == [35.1, 35.1]


# -- files -------------------------------------------------------------------------------------------------


def test_a_status_is_read_as_it_was_written_and_half_a_status_is_not_read() -> None:
    many = of_supervisor(*(STEPPING._replace(pid=pid) for pid in range(200)))
    for status in (of_node(), many):
        content = encode(status)
        assert len(content) % 4096 == 0
        assert decode(content) == status
    assert decode(encode(of_node())[:60] + encode(of_node(written=9.0))[60:]) is None
    assert decode(b"") is None


def test_the_file_of_a_process_that_was_killed_is_passed_over_and_removed(place: Path) -> None:
    place.mkdir(mode=0o700)
    dead = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mine = identity(dead.pid) or ""
    (place / "1").write_bytes(encode(of_node()._replace(pid=dead.pid, identity=mine)))
    # A process that has the number of another one by now, and one of another container.
    (place / "2").write_bytes(encode(of_node()._replace(pid=os.getpid(), identity=mine)))
    (place / "3").write_bytes(encode(of_node()._replace(pid=os.getpid(), identity="pid:[1] 5")))
    (place / "4").write_bytes(b"not a status")
    assert [status.pid for status in read_all()] == [dead.pid]
    assert dead.stdin is not None
    dead.stdin.close()
    dead.wait()
    assert list(read_all()) == []
    writer = StatusWriter("node", "n", SILENT, lambda: ((), (STEPPING,)))
    writer.start()
    (status,) = read_all()
    assert (status.pid, status.nodes[0].loops[0].name) == (os.getpid(), "ticker")
    assert sorted(path.name for path in place.iterdir() if len(path.name) == 1) == ["3", "4"]
    (own,) = (path for path in place.iterdir() if len(path.name) > 1)
    assert (own.stat().st_mode & 0o777, place.stat().st_mode & 0o777) == (0o600, 0o700)
    writer.stop()
    assert list(read_all()) == []


def test_a_folder_that_others_can_write_to_is_not_trusted(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place.mkdir()
    place.chmod(0o777)
    (place / "1").write_bytes(
        encode(of_node()._replace(pid=os.getpid(), identity=identity(os.getpid()) or ""))
    )
    assert list(read_all()) == []
    writer = StatusWriter("node", "n", SILENT, lambda: ((), ()))
    writer.start()
    writer.stop()
    assert [path.name for path in place.iterdir()] == ["1"]
    assert caplog.messages == ["no status file can be written, 'evenbeat health' can't see this node"]


# -- nodes -------------------------------------------------------------------------------------------------


def test_a_node_is_seen_while_it_runs_and_is_gone_when_it_stops(app: Scheduler) -> None:
    nothing = health()
    assert nothing.exit_code == 1
    assert nothing.output.startswith("fail  no node of this user runs here: there is no status file in ")
    app.start()
    seen = health()
    assert (seen.exit_code, seen.output) == (
        0,
        f"ok    node {app.node.name if app.node else ''}, pid {os.getpid()}: 5 loops stepping\n",
    )
    document = json.loads(health("--json", "--pid", str(os.getpid())).output)
    assert (document["ok"], document["processes"][0]["kind"]) == (True, "node")
    assert health("--pid", str(os.getppid())).exit_code == 1
    app.stop()
    assert health().exit_code == 1


def test_without_status_files_the_health_is_not_known_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(status_files, "folders", tuple)
    result = health()
    assert result.exit_code == 0
    assert "their health is not known; set XDG_RUNTIME_DIR" in result.output


def test_a_step_that_does_not_end_makes_its_loop_late() -> None:
    begun, gate = threading.Event(), threading.Event()

    def step(_: int) -> None:
        begun.set()
        assert gate.wait(60)

    loop = Loop("ticker", step, lambda: 0, 30_000, Events())
    loop.start()
    assert begun.wait(30)
    now, status = time.monotonic(), loop.status
    assert status is not None
    assert judge(of_node(NodeStatus("n", 7, (status,)), written=now + 130), now + 130).problems == (
        "the ticker has not stepped for 2 min",
    )
    gate.set()
    while (status := loop.status) is not None and status.due < now + 20:
        time.sleep(0.001)
    assert status is not None
    assert judge(of_node(NodeStatus("n", 7, (status,)), written=now + 130), now + 130).problems == ()
    loop.stop()
    assert loop.status is None, "a loop that stops is not late"
    assert loop.join(30)


def test_a_node_whose_store_went_away_is_well_and_says_why_nothing_happens(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StoreUnavailable("connection refused")

    app.start()
    node = app.node
    assert node is not None
    monkeypatch.setattr(app.store, "fire_due", away)
    deadline = time.monotonic() + 60
    while all(loop.failing_since is None for loop in node.status().loops):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    node._status_writer.write()
    result = health()
    assert result.exit_code == 0
    assert "note  the ticker has failed for " in result.output
    assert "keeps trying: connection refused" in result.output


def test_a_processor_of_documents_is_seen_as_well() -> None:
    with Processor(MemoryDocuments({}), lambda document: None):  # noqa: ARG005
        seen = health()
    assert seen.exit_code == 0
    assert seen.output.endswith(f", pid {os.getpid()}: 1 loop stepping\n")
    assert seen.output.startswith("ok    processor ")
    assert health().exit_code == 1


class Quiet(Child):
    """A child whose last message came some time ago."""

    def __init__(self, silent: float) -> None:
        self.deadline = None
        self.status = STEPPING._replace(last_message=time.monotonic() - silent)
        with make_file(4) as file:
            self.begun = Begun(file.fileno())


def test_a_supervisor_distinguishes_a_frozen_process_from_one_with_a_job_that_keeps_its_interpreter() -> None:
    supervisor = Supervisor(Scheduler(MemoryStore()), Begin(app="app.py"))
    child = Quiet(SILENT + 5)
    supervisor._children.slots[0].child = child
    assert [node.executing for node in supervisor._status()[1]] == [False]
    child.begun.add(RunRecord(id="r", task="t", attempt=1))
    assert [node.executing for node in supervisor._status()[1]] == [True]
    child.deadline = time.monotonic()
    assert supervisor._status()[1] == (), "it leaves, and is killed if it does not"
    child.begun.close()


# -- how quickly it starts ---------------------------------------------------------------------------------


def test_the_command_imports_neither_the_scheduler_nor_what_takes_long() -> None:
    code = """
import sys
sys.argv = ["evenbeat", "health", "--pid", "1"]
from evenbeat.cli import main
try:
    main()
except SystemExit:
    pass
heavy = {"msgspec", "rich", "sqlite3", "asyncio", "tomllib", "evenbeat.app", "evenbeat.core.records"}
print(sorted(heavy & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_public_name_is_found_and_is_what_type_checkers_see() -> None:
    source = Path(evenbeat.__file__).read_text()
    checked = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
    seen = {
        node.module: tuple(alias.name for alias in node.names)
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
    }
    assert seen == evenbeat._MODULES
    assert {"__version__", *(name for names in seen.values() for name in names)} == set(evenbeat.__all__)
    for name in evenbeat.__all__:
        assert getattr(evenbeat, name) is not None
    assert set(evenbeat.__all__) <= set(dir(evenbeat))
    with pytest.raises(AttributeError, match="module 'evenbeat' has no attribute 'crom'"):
        evenbeat.crom  # noqa: B018
