"""The scheduler as an object: what it starts and with what, what it writes in one step, what it hands on."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, get_args

import pytest

from evenbeat import Event, InvalidValue, RunExists, ScheduleNotFound, Scheduler
from evenbeat.app.declarations import Declarations, Declared
from evenbeat.core.instants import Instant, from_ms
from evenbeat.core.records import RunRecord
from evenbeat.node.node import Node
from evenbeat.node.settings import NodeSettings
from evenbeat.observe import run_logs
from evenbeat.observe.events import EventKind
from evenbeat.observe.run_logs import RunLog
from evenbeat.processes import signals
from evenbeat.stores.memory import MemoryStore
from evenbeat.tasks.task import Tasks
from evenbeat.testing import VirtualClock


class Noted(MemoryStore):
    """Notes what is written in one call, and whether it is open."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.batches: list[int] = []
        self.hints = 0
        self.is_open = False

    def open(self) -> None:
        super().open()
        self.is_open = True

    def close(self) -> None:
        self.is_open = False
        super().close()

    def add_runs(self, runs: Sequence[RunRecord], before: Instant | None = None) -> list[bool]:
        self.batches.append(len(runs))
        return super().add_runs(runs, before)

    def hint(self) -> None:
        self.hints += 1
        super().hint()


class Still(Node):
    """A node that starts and stops without doing anything."""

    made: list[Still]
    is_hurried = False
    is_stopped = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # The others join it to the alerts of its process.
        self.options = {key: options[key] for key in ("ticker", "worker", "name")}
        self.made.append(self)

    def start(self) -> None:
        pass

    def hurry(self) -> None:
        self.is_hurried = True

    def stop(self, drain: int | None = None, drained: Callable[[], object] | None = None) -> bool:
        self.is_stopped = True
        if drained is not None:
            drained()
        return True


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> Noted:
    return Noted(clock)


@pytest.fixture
def app(store: Noted) -> Scheduler:
    app = Scheduler(store)
    app.task(name="work")(lambda: None)
    return app


@pytest.fixture
def nodes(app: Scheduler, store: Noted) -> Iterator[list[Still]]:
    """The nodes that the app starts."""
    Still.made = []
    with app.stand_in(store, Still):
        yield Still.made


# -- its attributes ------------------------------------------------------------------------------------------


def test_a_url_is_shown_without_its_password_and_a_store_by_its_kind(store: Noted) -> None:
    assert Scheduler("postgresql://me:secret@db/app").url == "postgresql://me:***@db/app"
    assert Scheduler(store).url == "Noted"


def test_the_tenant_is_the_one_that_was_named(store: Noted) -> None:
    assert (Scheduler(store).tenant, Scheduler(store, tenant="acme").tenant) == ("default", "acme")


def test_hooks_can_be_used_as_decorators(app: Scheduler) -> None:
    def hook(*_: object) -> None: ...

    for decorator in (app.on_start, app.on_stop, app.on_idle, app.on_error, app.on_event):
        assert decorator(hook) is hook


def test_on_error_is_called_for_what_goes_wrong_alone(app: Scheduler) -> None:
    received: list[str] = []
    app.on_error(lambda event: received.append(event.kind))
    for kind in get_args(EventKind):
        app.events.publish(kind, 0)
    wrong = ["failed", "retrying", "lost", "crashed", "quarantined", "store_unavailable"]
    assert sorted(received) == sorted(wrong)


# -- tasks ---------------------------------------------------------------------------------------------------


def test_options_of_a_task_count_for_its_schedule_and_its_processes(app: Scheduler) -> None:
    @app.task(schedule="every 1h", executor="process", overlap="skip", description="the digest")
    def digest() -> None: ...

    assert digest.executor == "process"
    assert app.task(name="plain")(lambda: None).executor == "thread"
    app.declare_tasks()
    made = app.schedules.get("digest")
    assert (made.overlap, made.description, made.managed_by) == ("skip", "the digest", "code")
    with pytest.raises(ScheduleNotFound):
        app.schedules.get("plain")


# -- runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "batches"), [(1, [1]), (999, [999]), (1000, [1000]), (1001, [1000, 1]), (0, [])]
)
def test_many_runs_are_written_a_thousand_at_a_time(
    app: Scheduler, store: Noted, count: int, batches: list[int]
) -> None:
    ids = app.enqueue_many(["work"] * count)
    assert (len(ids), len(set(ids))) == (count, count)
    assert store.batches == batches
    assert store.hints == len(batches)


def test_ids_are_as_many_as_calls(app: Scheduler) -> None:
    assert app.enqueue_many(["work", "work"], ids=["a", "b"]) == ["a", "b"]
    with pytest.raises(InvalidValue, match="fewer ids than calls"):
        app.enqueue_many(["work", "work"], ids=["c"])
    with pytest.raises(InvalidValue, match="more ids than calls") as refused:
        app.enqueue_many(["work"], ids=["d", "e"])
    assert "0 of 1 runs were added" in str(refused.value)
    assert sorted(run.id for run in app.runs.list()) == ["a", "b"]


def test_a_run_is_made_when_it_is_enqueued_and_meant_for_when_it_is_due(app: Scheduler, store: Noted) -> None:
    before = store.now()
    run = app.runs.get(app.enqueue("work", delay="1h").id)
    assert from_ms(before) <= run.created_at <= from_ms(store.now())
    assert run.run_at == run.scheduled_at == run.created_at + timedelta(hours=1)


def test_a_run_that_is_there_is_found_among_those_of_other_tenants(app: Scheduler, store: Noted) -> None:
    app.enqueue("work", id="mine")
    app.enqueue_many(["work"] * 3, tenant="acme")
    assert app.enqueue("work", id="mine").id == "mine"
    assert app.runs.count() == {"queued": 1}


def test_of_many_runs_that_are_there_none_may_be_of_another_tenant(
    app: Scheduler, clock: VirtualClock
) -> None:
    # More than a page: the foreign one is the oldest, so the last that would be found.
    ids = [f"run-{number:03}" for number in range(150)]
    app.enqueue("work", id=ids[0], tenant="acme")
    clock.advance("1s")
    app.enqueue_many(["work"] * 149, ids=ids[1:])
    assert app.enqueue_many(["work"] * 149, ids=ids[1:]) == ids[1:]
    with pytest.raises(RunExists, match="run-000"):
        app.enqueue_many(["work"] * 150, ids=ids)


# -- life ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"ticker": False}, {"worker": False}, {"name": "alone"}], ids=lambda options: str(options)
)
def test_a_node_is_started_with_the_given_options(
    app: Scheduler, nodes: list[Still], options: dict[str, Any]
) -> None:
    app.start(**options)
    (node,) = nodes
    assert app.node is node
    assert node.options == {"ticker": True, "worker": True, "name": None, **options}
    app.stop()
    assert node.is_stopped
    assert app.node is None


def test_a_node_finds_the_schedules_of_its_tasks(app: Scheduler, nodes: list[Still]) -> None:
    app.task(name="digest", schedule="every 1h")(lambda: None)
    app.start()
    assert app.schedules.get("digest").task == "digest"


def test_hurry_is_for_the_node_that_runs(app: Scheduler, nodes: list[Still]) -> None:
    app.hurry()
    app.start()
    app.hurry()
    assert nodes[0].is_hurried


@pytest.mark.parametrize(
    "options", [{}, {"ticker": False}, {"worker": False}, {"poll_interval": "7s"}], ids=str
)
def test_run_starts_waits_stops_and_closes(
    app: Scheduler, nodes: list[Still], store: Noted, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    seen: list[object] = []

    def wait(hurry: Callable[[], None], over: Callable[[], bool], start: Callable[[], None]) -> None:
        assert over()
        start()
        assert not over()
        hurry()
        seen.append((app.is_running, nodes[0].is_hurried, store.is_open))

    monkeypatch.setattr(signals, "until_signalled", wait)
    monkeypatch.setattr(signals, "check_main_thread", lambda: seen.append("checked"))
    app.run(**options)
    assert seen == ["checked", (True, True, True)]
    given = {key: value for key, value in options.items() if key != "poll_interval"}
    assert nodes[0].options == {"ticker": True, "worker": True, "name": None, **given}
    assert nodes[0].is_stopped
    assert not store.is_open


def test_run_and_start_do_nothing_while_the_module_is_only_imported(
    app: Scheduler, nodes: list[Still], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenbeat.app.lifecycle.is_importing", lambda: True)
    app.run()
    app.start()
    assert nodes == []


def test_as_a_context_manager_it_is_started_stopped_and_closed(
    app: Scheduler, nodes: list[Still], store: Noted
) -> None:
    with app as entered:
        assert entered is app
        assert (app.is_running, store.is_open) == (True, True)
    assert (nodes[0].is_stopped, store.is_open) == (True, False)


def test_as_an_asynchronous_one_too(app: Scheduler, nodes: list[Still], store: Noted) -> None:
    async def live() -> None:
        async with app as entered:
            assert entered is app
            assert (app.is_running, store.is_open) == (True, True)
        assert (nodes[0].is_stopped, store.is_open) == (True, False)

    asyncio.run(live())


def test_the_kind_of_node_is_another_one_only_while_the_store_is(app: Scheduler, store: Noted) -> None:
    Still.made = []
    other = Noted(VirtualClock())
    with app.stand_in(other, Still):
        app.start()
        assert app.store is other
    assert Still.made[0].is_stopped
    assert app.store is store
    app.start()
    try:
        assert type(app.node) is Node
    finally:
        app.stop()


def test_two_who_start_at_once_start_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Scheduler("memory://")
    opened, go = threading.Event(), threading.Event()
    before = Declarations.declare_all

    def slow(declarations: Declarations, tasks: Tasks, settings: NodeSettings) -> Declared:
        opened.set()
        assert go.wait(30)
        return before(declarations, tasks, settings)

    monkeypatch.setattr(Declarations, "declare_all", slow)
    refused: list[Exception] = []

    def start() -> None:
        try:
            app.start()
        except InvalidValue as error:
            refused.append(error)

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert opened.wait(30)
    go.set()
    for thread in threads:
        thread.join(30)
    assert [str(error) for error in refused] == ["the scheduler has been started already; stop() it first"]
    app.stop()


def test_a_stop_says_whether_all_jobs_came_to_their_end() -> None:
    app = Scheduler("memory://")
    begun, go = threading.Event(), threading.Event()

    @app.task
    def waits() -> None:
        begun.set()
        go.wait(60)

    assert app.stop()
    app.start()
    waits.enqueue()
    assert begun.wait(30)
    assert not app.stop("0s")
    assert app.stop()
    go.set()
    app.start()
    assert app.stop()


def within(seconds: float, function: Callable[[], object]) -> None:
    """Call a function in a thread, and fail if it takes too long: it may wait for itself."""
    errors: list[BaseException] = []

    def call() -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it hangs"
    if errors:
        raise errors[0]


def wait_until_stopped(app: Scheduler) -> None:
    deadline = time.monotonic() + 10
    while app.node is not None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert app.node is None


@pytest.mark.parametrize(
    "kind", ["node_started", "started", "succeeded", "idle", "node_stopping", "node_stopped"]
)
@pytest.mark.parametrize("way", ["def", "async def", "async def, astop"])
def test_a_listener_may_stop_the_node(kind: str, way: str) -> None:
    app = Scheduler("memory://", drain_timeout="20s")
    answers: list[bool] = []

    @app.task
    def work() -> None: ...

    def stop(event: Event) -> None:
        if event.kind == kind:
            answers.append(app.stop())

    async def astop(event: Event) -> None:
        if event.kind == kind:
            answers.append(await app.astop() if "astop" in way else app.stop())

    app.on_event(stop if way == "def" else astop)

    def live() -> None:
        work.enqueue()
        app.start()
        if kind in ("node_stopping", "node_stopped"):
            assert app.stop()
        wait_until_stopped(app)

    within(60, live)
    assert answers == [False]


@pytest.mark.parametrize("kind", ["node_started", "node_stopping", "node_stopped"])
def test_a_listener_can_not_start_a_node_that_starts_or_stops(kind: str) -> None:
    app = Scheduler("memory://")
    refused: list[str] = []

    @app.on_event
    def start(event: Event) -> None:
        if event.kind == kind:
            try:
                app.start()
            except InvalidValue as error:
                refused.append(str(error))

    def live() -> None:
        app.start()
        app.stop()

    within(60, live)
    assert len(refused) == 1
    assert "being started or stopped" in refused[0]


@pytest.mark.parametrize("way", ["def", "async def", "async def, astop"])
def test_a_job_that_stops_its_node_comes_to_its_end(way: str) -> None:
    app = Scheduler("memory://", drain_timeout="20s")
    answers: list[bool] = []

    def work() -> str:
        answers.append(app.stop())
        return "done"

    async def awork() -> str:
        answers.append(await app.astop() if "astop" in way else app.stop())
        await asyncio.sleep(0)
        return "done"

    task = app.task(name="work")(work if way == "def" else awork)

    def live() -> None:
        run = app.enqueue(task)
        app.start()
        wait_until_stopped(app)
        assert app.runs.get(run.id).result == "done"

    within(60, live)
    assert answers == [False]


def test_a_signal_handler_may_stop_what_starts_or_stops(
    app: Scheduler, nodes: list[Still], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[bool] = []
    start, stop = Still.start, Still.stop

    def interrupted_start(node: Still) -> None:
        answers.append(app.stop())  # as the handler of a signal that comes now, in the same thread
        start(node)

    def interrupted_stop(node: Still, *args: Any) -> bool:
        answers.append(app.stop())
        return stop(node, *args)

    monkeypatch.setattr(Still, "start", interrupted_start)
    within(60, app.start)
    within(60, lambda: wait_until_stopped(app))
    assert nodes[0].is_stopped
    monkeypatch.setattr(Still, "start", start)
    monkeypatch.setattr(Still, "stop", interrupted_stop)
    app.start()
    within(60, app.stop)
    assert answers == [False, False]


def test_an_interrupted_stop_stops_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())
    app = Scheduler("memory://")
    began, may_end = threading.Event(), threading.Event()
    stopped: list[str] = []
    app.on_stop(lambda: stopped.append("hook"))

    @app.task
    def work() -> None:
        began.set()
        may_end.wait(30)

    wait = Node._wait_until
    interrupts = [KeyboardInterrupt]

    def interrupted(node: Node, *args: Any) -> None:
        if interrupts:
            may_end.set()
            raise interrupts.pop()
        wait(node, *args)

    work.enqueue()
    app.start()
    assert began.wait(30)
    monkeypatch.setattr(Node, "_wait_until", interrupted)
    with pytest.raises(KeyboardInterrupt):
        app.stop()
    assert stopped == ["hook"]
    assert not app.is_running
    assert "evenbeat-worker" not in {thread.name for thread in set(threading.enumerate()) - before}


def test_a_hook_that_exits_leaves_a_scheduler_that_can_be_used_again() -> None:
    before = set(threading.enumerate())
    app = Scheduler("memory://")
    exits = [SystemExit]

    @app.on_stop
    def leave() -> None:
        if exits:
            raise exits.pop()

    app.start()
    with pytest.raises(SystemExit):
        app.stop()
    assert "evenbeat-worker" not in {thread.name for thread in set(threading.enumerate()) - before}
    app.start()
    assert app.stop()
    assert not app.is_running


def test_run_ends_when_a_hook_has_stopped_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Scheduler("memory://")

    @app.on_idle
    def stop() -> None:
        app.stop()

    def wait(hurry: Callable[[], None], over: Callable[[], bool], start: Callable[[], None]) -> None:
        start()
        wait_until_stopped(app)
        assert over()

    monkeypatch.setattr(signals, "until_signalled", wait)
    app.task(name="work")(lambda: None)
    app.enqueue("work")
    assert app.run()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
def test_a_forked_child_starts_a_node_of_its_own() -> None:
    app = Scheduler("memory://")
    begun: list[int] = []

    @app.on_start
    async def begin() -> None:
        begun.append(os.getpid())

    app.start()
    holding, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with app._lifecycle._changing:
            holding.set()
            may_go.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert holding.wait(30)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            within(20, app.start)
            within(20, app.stop)
            code = 0 if begun[1:] == [os.getpid()] else 2
        finally:
            os._exit(code)
    may_go.set()
    holder.join()
    assert os.waitpid(child, 0)[1] == 0
    app.stop()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
def test_a_forked_child_does_not_wait_for_locks_of_its_parents_threads() -> None:
    app = Scheduler("memory://")
    log = RunLog(RunRecord(id="r", task="work", scheduled_at=0, run_at=0))
    holding, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with app._session._opening, run_logs._writing:
            holding.set()
            may_go.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert holding.wait(30)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            within(20, lambda: log.add("a line of the child"))
            within(20, app.runs.count)
            code = 0
        finally:
            os._exit(code)
    may_go.set()
    holder.join()
    assert os.waitpid(child, 0)[1] == 0
