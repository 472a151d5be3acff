"""What a process has begun, as seen by another one."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from uuid import uuid4

import msgspec
import pytest

from evenbeat.core.ids import new_run_id
from evenbeat.core.records import RunRecord
from evenbeat.executors.base import Attempt
from evenbeat.processes import begun
from evenbeat.processes.begun import Begun, Snapshot, make_file
from evenbeat.processes.channel import Channel
from evenbeat.supervision.node_process import Begin, NodeProcess, ToChild
from evenbeat.tasks.task import Task


def pair(places: int) -> tuple[Begun, Begun]:
    """Both sides of one memory."""
    with make_file(places) as file:
        return Begun(file.fileno()), Begun(file.fileno())


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Begun]:
    """This process is watched; the answer is the watcher's side."""
    ours, theirs = pair(4)
    monkeypatch.setattr(begun, "here", ours)
    yield theirs
    ours.close()
    theirs.close()


def claimed(name: str, number: int, claim: str = "c1") -> RunRecord:
    return RunRecord(id=name, task="t", attempt=number, claim=claim)


def attempt(name: str, number: int = 1, claim: str = "c1") -> Attempt:
    task: Task[..., None] = Task(lambda: None, "t")
    return Attempt(claimed(name, number, claim), task, 0.0, 30.0, lambda _: True)


def test_an_attempt_is_recorded_when_it_begins(watched: Begun) -> None:
    one = attempt("r", 2)
    assert not watched.is_used()
    assert watched.snapshot().state(claimed("r", 2)) == "claimed"
    assert not watched.snapshot().is_executing
    assert one.begin()

    assert watched.is_used()
    seen = watched.snapshot()
    assert seen.is_executing
    assert (seen.state(claimed("r", 2)), seen.state(claimed("r", 1)), seen.state(claimed("r2", 2))) == (
        "executing",
        "claimed",
        "claimed",
    )
    one.end()
    assert watched.snapshot().state(claimed("r", 2)) == "ended"
    assert not watched.snapshot().is_executing


def test_a_withdrawn_attempt_is_not_recorded(watched: Begun) -> None:
    one = attempt("r")
    assert one.withdraw()
    assert not one.begin()

    assert watched.snapshot().state(claimed("r", 1)) == "claimed"


def test_an_ended_attempt_stays_until_all_other_places_were_used(watched: Begun) -> None:
    held, ended = attempt("held"), attempt("ended")
    assert held.begin()
    assert ended.begin()
    ended.end()
    for number in range(2):
        other = attempt("other", number)
        assert other.begin()
        other.end()
        assert watched.snapshot().state(claimed("ended", 1)) == "ended", "its end may not be recorded yet"
    for number in range(2, 20):
        other = attempt("other", number)
        assert other.begin()
        other.end()

    assert watched.snapshot().state(claimed("ended", 1)) == "claimed"
    assert watched.snapshot().state(claimed("held", 1)) == "executing"


def test_without_enough_places_any_attempt_may_be_executing(watched: Begun) -> None:
    for number in range(4):
        assert attempt("r", number).begin()
    assert watched.snapshot().state(claimed("x", 1)) == "claimed"
    late = attempt("r", 5)
    assert late.begin()
    late.end()

    assert watched.snapshot().state(claimed("x", 1)) == "executing"


def test_ids_of_any_length_and_kind_are_distinguished(watched: Begun) -> None:
    assert attempt("x" * 500 + "1").begin()
    assert attempt("\ud800").begin()

    assert watched.snapshot().state(claimed("x" * 500 + "1", 1)) == "executing"
    assert watched.snapshot().state(claimed("x" * 500 + "2", 1)) == "claimed"
    assert watched.snapshot().state(claimed("\ud800", 1)) == "executing"


def test_an_attempt_of_an_earlier_run_of_the_id_is_another_one(watched: Begun) -> None:
    # The earlier run was purged while its function went on, and the process claimed a later one of its id.
    assert attempt("r", 1, "c1").begin()

    assert watched.snapshot().state(claimed("r", 1, "c2")) == "claimed"
    assert watched.snapshot().state(claimed("r", 1, "c1")) == "executing"


def test_the_record_of_an_id_that_is_given_once_needs_no_hash() -> None:
    now = 1_772_366_400_000
    for run_id in (new_run_id(now), "default/nightly/1/1772366400000"):
        run = RunRecord(id=run_id, task="t", attempt=1_000, claim=uuid4().hex, created_at=now)
        assert begun._key(run).rstrip(b"\0").endswith(f"/{run_id}".encode())


def test_nothing_is_recorded_without_a_supervisor() -> None:
    assert Snapshot().state(claimed("r", 1)) == "executing"
    one = attempt("r")
    assert one.begin()
    one.end()


class Exited(BaseException):
    """The process would have ended here."""


@pytest.fixture
def robbed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Begun]:
    """A job has closed the descriptors of this process; the answer is the supervisor's side."""

    def leave(code: int) -> None:
        raise Exited(code)

    ours, theirs = pair(4)
    ours.watch_descriptors()
    assert ours._probe is not None
    os.close(ours._probe._number)
    monkeypatch.setattr(begun, "here", ours)
    monkeypatch.setattr(os, "_exit", leave)
    yield theirs
    ours.close()
    theirs.close()


def node_process() -> NodeProcess:
    """A node process whose socket to the supervisor is closed."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader, writer = (io.FileIO(os.dup(ours.fileno()), mode) for mode in ("rb", "wb"))
    channel: Channel[ToChild] = Channel(reader, writer, msgspec.json.Decoder(ToChild))
    channel.close()
    return NodeProcess(channel, Begin(app="app"))


@pytest.mark.parametrize(
    "step",
    [
        lambda ours: ours.end(64),
        lambda ours: ours.leave(),
        lambda _: node_process()._beat(),
        lambda _: node_process()._listen(),
    ],
    ids=["end", "leave", "beat", "listen"],
)
def test_a_process_without_its_descriptors_ends_and_the_supervisor_knows_why(
    robbed: Begun, step: Callable[[Begun], object]
) -> None:
    assert begun.here is not None
    assert not robbed.has_lost_descriptors()
    with pytest.raises(Exited, match=str(begun.LOST_DESCRIPTORS)):
        step(begun.here)
    assert robbed.has_lost_descriptors()
    assert not robbed.has_left()
    assert robbed.snapshot().state(claimed("r", 1)) == "claimed"


def test_the_descriptors_are_checked_when_the_supervisor_seems_to_be_gone(
    robbed: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job closes them after the check and before the message."""
    seen: list[str] = []

    def check(self: Begun) -> None:
        seen.append("check")

    def send(self: Channel[ToChild], message: msgspec.Struct) -> bool:
        seen.append("send")
        return False

    monkeypatch.setattr(Begun, "check_descriptors", check)
    monkeypatch.setattr(Channel, "send", send)
    node_process()._beat()
    assert seen == ["check", "send", "check"]


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="passed on as nodes do it on Linux")
def test_the_records_outlive_a_killed_process() -> None:
    code = """
import os, signal, sys
from evenbeat.core.records import RunRecord
from evenbeat.processes.begun import Begun
begun = Begun(int(sys.argv[1]))
begun.add(RunRecord(id="r", task="t", attempt=7, claim="c1"))
begun.leave()
os.kill(os.getpid(), signal.SIGKILL)
"""
    with make_file(8) as file:
        watching = Begun(file.fileno())
        assert not watching.has_left()
        words = [sys.executable, "-c", code, str(file.fileno())]
        done = subprocess.run(words, pass_fds=(file.fileno(),), timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert watching.snapshot().state(claimed("r", 7)) == "executing"
    assert watching.has_left()
    watching.close()
