"""The supervisor's decisions, and how it handles an unavailable store; tests/faults has tests with
processes."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec import UNSET
from msgspec.structs import replace

from evenbeat import Event, InvalidValue, Scheduler, StoreUnavailable
from evenbeat.cli.root import root
from evenbeat.core.records import Execution, RunRecord, Transition
from evenbeat.executors.base import Attempt
from evenbeat.processes.begun import Begun, make_file
from evenbeat.stores.base import Claim, RunQuery
from evenbeat.stores.memory import MemoryStore
from evenbeat.supervision import silent_children
from evenbeat.supervision import supervisor as supervisor_module
from evenbeat.supervision.children import Child, backoff
from evenbeat.supervision.dead_child_runs import DeadChildRuns
from evenbeat.supervision.node_process import Begin, StuckThreads
from evenbeat.supervision.silent_children import is_overdue
from evenbeat.supervision.supervisor import Supervisor
from evenbeat.tasks.task import Task
from tests.unit.sleeping import replace_sleep

RUN = RunRecord(
    id="r", task="t", state="running", attempt=2, claim="c", worker="w", started_at=10_000, lease_until=50_000
)
CLAIMED = RunRecord(id="r", task="t", attempt=1, claim="c")
CRASH = DeadChildRuns("w", "crashed", "its process died with signal SIGKILL")
RELEASE = DeadChildRuns("w", "released", "it did not stop")


# -- decisions ---------------------------------------------------------------------------------------------


def test_the_backoff_between_children_doubles_up_to_half_a_minute() -> None:
    assert [backoff(deaths) for deaths in (1, 2, 3, 6, 7, 1000)] == [0.5, 1, 2, 16, 30, 30]


@pytest.mark.parametrize(
    ("timeout", "now", "overdue"), [(None, 10**9, False), (1_000, 16_000, False), (1_000, 16_001, True)]
)
def test_a_run_is_overdue_when_its_own_worker_had_the_time_to_end_it(
    timeout: int | None, now: int, overdue: bool
) -> None:
    assert is_overdue(replace(RUN, execution=Execution(timeout=timeout)), now) is overdue


def test_a_crash_is_counted_and_does_not_wait_for_the_lease() -> None:
    transition = CRASH.transition(RUN, 20_000)

    assert (transition.state, transition.crashes, transition.attempt) == ("queued", 1, 2)
    assert not transition.lease_ended


def test_a_run_that_must_not_run_twice_fails_when_its_child_crashes() -> None:
    transition = CRASH.transition(replace(RUN, execution=Execution(on_crash="fail")), 20_000)

    assert (transition.state, transition.crashes, transition.lease_ended) == ("failed", 1, False)
    assert transition.error == "worker w was lost during attempt 2: its process died with signal SIGKILL"


def test_a_run_that_is_handed_back_is_not_to_blame() -> None:
    transition = RELEASE.transition(replace(RUN, crashes=1), 20_000)

    assert (transition.state, transition.crashes, transition.failures) == ("queued", UNSET, UNSET)


def test_a_run_that_was_only_claimed_is_not_to_blame_for_a_crash() -> None:
    with make_file(4) as file:
        begun = Begun(file.fileno())
    assert CRASH._replace(begun=begun.snapshot()).transition(RUN, 20_000).crashes is UNSET
    fragile = replace(RUN, execution=Execution(on_crash="fail"))
    assert CRASH._replace(begun=begun.snapshot()).transition(fragile, 20_000).state == "queued"
    begun.add(RUN)

    assert CRASH._replace(begun=begun.snapshot()).transition(RUN, 20_000).crashes == 1
    begun.close()


def test_a_run_that_had_ended_is_to_blame_for_a_crash_only_if_no_function_was_executing() -> None:
    with make_file(4) as file:
        begun = Begun(file.fileno())
    place = begun.add(RUN)
    assert place is not None
    begun.end(place)
    assert CRASH._replace(begun=begun.snapshot()).transition(RUN, 20_000).crashes == 1
    begun.add(replace(RUN, id="other"))
    assert CRASH._replace(begun=begun.snapshot()).transition(RUN, 20_000).crashes is UNSET
    fragile = replace(RUN, execution=Execution(on_crash="fail"))
    assert CRASH._replace(begun=begun.snapshot()).transition(fragile, 20_000).state == "failed", "it did run"
    begun.close()


def test_a_child_that_has_begun_an_attempt_was_up(store: Moody) -> None:
    watching, child = supervisor(store), Silent(0.0)
    child.started, child.up = time.monotonic(), False
    child.begun.add(CLAIMED)
    watching._remove(child)

    assert watching._start_failure() is None


@pytest.mark.parametrize("dead", [CRASH, RELEASE])
def test_a_run_with_a_cancel_request_is_cancelled_when_its_child_ends(dead: DeadChildRuns) -> None:
    assert dead.transition(replace(RUN, cancel_requested=True), 20_000).state == "cancelled"


def test_the_run_because_of_which_a_child_was_killed_has_timed_out() -> None:
    dead = RELEASE._replace(overdue=frozenset([("r", 2, "c")]))
    transition = dead.transition(replace(RUN, execution=Execution(timeout=1_500)), 20_000)

    assert (transition.state, transition.failures) == ("failed", 1)
    assert transition.error == "timed out after 1s500ms, and its process was killed"


def test_a_later_run_of_an_id_is_not_taken_for_the_one_that_its_child_executed() -> None:
    with make_file(4) as file:
        begun = Begun(file.fileno())
    begun.add(RUN)
    later = replace(RUN, claim="c2")
    assert CRASH._replace(begun=begun.snapshot()).transition(later, 20_000).crashes is UNSET
    transition = RELEASE._replace(overdue=frozenset([RUN.attempt_identity])).transition(later, 20_000)
    assert (transition.state, transition.failures) == ("queued", UNSET), "it has not timed out"
    begun.close()


def test_threads_are_stuck_when_they_run_long_after_their_attempt_was_decided() -> None:
    stuck = StuckThreads(30)
    task: Task[..., None] = Task(lambda: None, "t")
    attempt, waiting = (Attempt(RUN, task, 0.0, 30.0, lambda _: True) for _ in range(2))
    waiting.is_decided = True  # handed back before it began
    assert attempt.begin()

    assert stuck.find([attempt, waiting], 100.0) == []
    attempt.is_decided = True
    assert stuck.find([attempt, waiting], 200.0) == []
    assert stuck.find([attempt, waiting], 230.0) == []
    assert stuck.find([attempt, waiting], 230.1) == ["t"]
    attempt.over = 231.0
    assert stuck.find([attempt, waiting], 231.0) == []


# -- a store -----------------------------------------------------------------------------------------------


class Moody(MemoryStore):
    """A store that is unavailable when the test wants it to be."""

    away = False

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        if self.away:
            raise StoreUnavailable("away")
        return super().settle_runs(transitions)


class Silent(Child):
    """A child whose last message came some time ago."""

    def __init__(self, seconds: float) -> None:
        self.name = "w"
        self.last_message = time.monotonic() - seconds
        self.is_renewed = False
        with make_file(4) as file:
            self.begun = Begun(file.fileno())


@pytest.fixture
def store() -> Moody:
    store = Moody()
    store.open()
    now = store.now()
    store.add_runs([RunRecord(id="r", task="t", run_at=now, created_at=now)])
    claim = Claim(worker="w", token="c", limit=1, now=now, lease=10_000)
    assert store.claim_runs(claim).runs
    return store


def supervisor(store: Moody, processes: int = 1) -> Supervisor:
    app = Scheduler(store, lease="30s")
    app.on_event(EVENTS.append)
    return Supervisor(app, Begin(app="app.py"), processes)


def check(watching: Supervisor, child: Child) -> None:
    """Let the supervisor check this child, as its only one."""
    watching._children.slots[0].child = child
    watching._check_runs()


EVENTS: list[Event] = []


def test_runs_that_can_not_be_handed_back_now_are_handed_back_with_the_next_check(store: Moody) -> None:
    EVENTS.clear()
    watching = supervisor(store)
    store.away = True
    watching._hand_back.add(CRASH)
    watching._check_runs()
    assert store.find_runs(RunQuery()).items[0].state == "running"
    assert EVENTS == []
    store.away = False
    watching._check_runs()

    run = store.find_runs(RunQuery()).items[0]
    assert (run.state, run.crashes) == ("queued", 1)
    assert [(event.kind, event.error) for event in EVENTS] == [
        ("crashed", "worker w was lost: its process died with signal SIGKILL")
    ]


@pytest.mark.parametrize(
    ("dead", "counts"),
    [
        (CRASH, (1, 0, 0)),
        (RELEASE, (0, 1, 0)),
        (RELEASE._replace(overdue=frozenset([("r", 1, "c")])), (0, 0, 1)),
    ],
)
def test_the_figures_include_runs_that_a_supervisor_hands_back(
    store: Moody, dead: DeadChildRuns, counts: tuple[int, int, int]
) -> None:
    watching = supervisor(store)
    watching._hand_back.add(dead)
    watching._check_runs()
    watching._stop()
    series = watching._app.statistics("1h", by="hour")
    assert (series.total.crashed, series.total.released, series.total.failed) == counts
    # A supervisor is not a node.
    assert {point.nodes for point in series.points} == {0}


def test_a_supervisor_that_stops_retries_to_hand_back_runs_while_the_store_is_unavailable(
    store: Moody, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watching = supervisor(store)
    store.away = True
    watching._hand_back.add(RELEASE)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        store.away = len(pauses) < 3

    replace_sleep(monkeypatch, pause)
    watching._stop()
    assert len(pauses) == 3
    assert not any("could not be handed back" in message for message in caplog.messages)

    watching = supervisor(store)
    monkeypatch.setattr(supervisor_module, "_STOP_PATIENCE", 0.0)
    watching._hand_back._waiting.append(RELEASE)
    watching._stop()
    assert "runs could not be handed back, their leases have to expire" in caplog.messages


def test_the_supervisor_renews_the_leases_of_a_silent_child_alone(store: Moody) -> None:
    watching = supervisor(store)
    before = store.find_runs(RunQuery()).items[0].lease_until
    assert before is not None
    check(watching, Silent(1.0))
    assert store.find_runs(RunQuery()).items[0].lease_until == before
    check(watching, Silent(5.1))

    after = store.find_runs(RunQuery()).items[0].lease_until
    assert after is not None
    assert after > before + 15_000
    check(watching, Silent(5.1))
    assert store.find_runs(RunQuery()).items[0].lease_until == after, "more than half of it is left"


def test_a_run_that_has_not_begun_in_a_silent_child_is_not_overdue(
    store: Moody, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching, child = supervisor(store), Silent(10.0)
    killed: list[DeadChildRuns] = []
    monkeypatch.setattr(watching, "_kill", lambda _, dead: killed.append(dead))
    monkeypatch.setattr(silent_children, "is_overdue", lambda *_: True)
    check(watching, child)
    assert killed == []
    child.begun.add(CLAIMED)
    check(watching, child)

    assert [dead.overdue for dead in killed] == [frozenset([("r", 1, "c")])]


def test_several_processes_with_a_memory_store_are_refused(store: Moody) -> None:
    with pytest.raises(InvalidValue, match="each process would have a memory store of its own; name a store"):
        supervisor(store, processes=2).run()


# -- the command -------------------------------------------------------------------------------------------


def refused(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> Result:
    monkeypatch.chdir(folder)
    return CliRunner().invoke(root, ["run", *words], prog_name="evenbeat")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "which app? give a file, like app.py"),
        (("nowhere.py",), "there is no file"),
        (("app.py", "--no-ticker", "--no-worker"), "leave nothing to do"),
        (("app.py", "--processes", "0"), "processes 0 is not a whole number of 1 to 10,000"),
        (("app.py", "--lease", "1ms"), 'lease "1ms" is shorter than 1s'),
    ],
)
def test_invalid_arguments_of_the_command_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    result = refused(tmp_path, monkeypatch, *words)

    assert result.exit_code == 2
    assert message in result.output


@pytest.fixture
def signals() -> Iterator[None]:
    """Restore the signal handlers after the test."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


class Late(MemoryStore):
    """A store that is unavailable at first."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    def open(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("connection refused")
        super().open()


def waiting(failures: int, patience: int = 60_000) -> Supervisor:
    made = Supervisor(Scheduler(Late(failures)), Begin(app="app.py"), wait_for_store=patience)
    made._pause = lambda seconds: None  # type: ignore[method-assign]  # noqa: ARG005
    return made


def test_the_supervisor_waits_for_an_unavailable_store_and_logs_the_reason_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    assert waiting(5)._await_store()
    assert caplog.messages == [
        "the store is unavailable, waiting up to 1m for it: connection refused",
        "the store is available",
    ]


@pytest.mark.usefixtures("signals")
def test_a_store_that_stays_unavailable_is_an_error_at_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    assert waiting(10**9, patience=0).run() == 1
    (message,) = caplog.messages
    assert message == (
        "the store did not answer within 0s: connection refused; wait longer with --wait-for-store"
    )


@pytest.mark.usefixtures("signals")
def test_a_signal_ends_the_wait_for_a_store() -> None:
    made = waiting(10**9)
    made._pause = lambda seconds: made._on_signal(15, None)  # type: ignore[method-assign]  # noqa: ARG005
    assert made.run() == 0


def test_a_child_that_finds_the_store_unavailable_is_restarted_until_the_deadline(store: Moody) -> None:
    watching, child = supervisor(store), Silent(0.0)
    child.started, child.up, child.failure, child.store_unavailable = time.monotonic(), False, "away", True
    watching._remove(child)
    assert watching._start_failure() is None
    watching._store_deadline = 0.0
    assert watching._start_failure() == "away"
