"""Processes that evaluate and send die, or are paused, between any two calls of the store."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from evenbeat.alerts.evaluation import Evaluation
from evenbeat.alerts.open_incidents import OpenIncidents
from evenbeat.alerts.sender import AlertSender
from evenbeat.alerts.waiting import Waiting
from evenbeat.core.alerts import Message
from evenbeat.core.records import Record
from evenbeat.node.signals import stored_rules
from evenbeat.rules.alert_records import LOG, PENDING, SIGNAL, StoredIncident
from evenbeat.rules.incidents import with_deliveries_written
from evenbeat.stores.base import Store
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from tests.alerting import (
    Process,
    Receiver,
    a_run,
    end_run,
    failure,
    incidents,
    log,
    past,
    pending,
    put_rule,
    put_signal,
    signals,
)
from tests.lengths import some
from tests.store_calls import add_schedules

CHANNELS = ("ops", "mail")
SHORT_PAUSE, LONG_PAUSE = "10s", "61s"
"""A pause in which others take a turn, and one in which claims expire, too."""


class Died(BaseException):
    """The process ends here."""


class Failpoint:
    """A store that does something before its nth call, or after it."""

    def __init__(self, store: Store, at: int, act: Callable[[], None], *, is_after: bool = False) -> None:
        self._store = store
        self._at = at
        self._act = act
        self._is_after = is_after
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name in ("now", "wait", "hint"):
            return method

        def call(*args: Any, **options: Any) -> Any:
            self.calls += 1
            is_here = self.calls == self._at
            if is_here and not self._is_after:
                self._act()
            answer = method(*args, **options)
            if is_here and self._is_after:
                self._act()
            return answer

        return call


class Watched(Receiver):
    """A receiver that checks that nothing is sent that the log has."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def send(self, message: Message) -> None:
        assert self._store.get_record(LOG, "default", message.id) is None, "sent though the log has it"
        super().send(message)


class World:
    """A store, a receiver, and a story: three failures in a row, then a success."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.receiver = Watched(self.store)
        put_rule(self.store, "failed", "failing:3", to=CHANNELS)
        add_schedules(self.store, "s", trigger="every 1h")
        self.number = 0

    def process(self, store: Any = None, name: str = "one") -> Process:
        return Process(self.store if store is None else store, self.receiver, name)

    def end(self, error: str | None) -> None:
        self.clock.advance("1s")
        self.number += 1
        end_run(self.store, a_run(f"run-{self.number}"), error)

    def fail(self) -> None:
        for _ in range(3):
            self.end("boom")

    def settle(self) -> None:
        """Another process does what is left to do."""
        for _ in range(3):
            self.clock.advance(LONG_PAUSE)
            assert self.process(name="heir").turn()

    def check(self) -> None:
        """Each announcement has one id, arrived, and is in the log; nothing is left over."""
        assert sorted(Counter(message.announcement for message in self.unique()).items()) == [
            ("escalated", 2),
            ("opened", 2),
            ("recovered", 2),
        ]
        assert len({message.incident for message in self.receiver.messages}) == 1
        assert (incidents(self.store), signals(self.store), pending(self.store)) == ([], [], [])
        (over,) = past(self.store)
        assert (over.failures, over.announced) == (3, ("opened", "escalated", "recovered"))
        assert Counter(each.state for each in log(self.store)) == {"sent": 6}

    def unique(self) -> list[Message]:
        return list({message.id: message for message in self.receiver.messages}.values())


def story(world: World, process: Process) -> Iterator[None]:
    """What happens, and the turns of a process: after each of them, others may have one."""
    world.fail()
    world.clock.advance("5s")
    process.turn()
    yield
    world.end(None)
    world.clock.advance("5s")
    process.turn()


def calls_of(story_of: Callable[[World, Process], Iterator[None]]) -> int:
    """How many calls of the store a whole story makes."""
    world = World()
    counted = Failpoint(world.store, -1, lambda: None)
    for _ in story_of(world, world.process(counted)):
        pass
    return counted.calls


CALLS = calls_of(story)


def die() -> None:
    raise Died


def play_death(at: int, is_after: bool) -> World:
    """The first process dies at a call; what happens to the job goes on."""
    world = World()
    process = world.process(Failpoint(world.store, at, die, is_after=is_after))
    try:
        for _ in story(world, process):
            pass
    except Died:
        if world.number == 3:
            world.clock.advance(LONG_PAUSE)
            world.process(name="heir").turn()
            world.end(None)
    world.settle()
    return world


@pytest.mark.parametrize("is_after", [False, True])
def test_a_death_between_any_two_calls_loses_and_doubles_nothing(is_after: bool) -> None:
    assert CALLS > 60
    for at in range(1, CALLS + 1):
        world = play_death(at, is_after)
        world.check()
        # A message is sent again only if the process died before it could write the log.
        assert len(world.receiver.messages) <= 7


def play_pause(at: int, length: str, acts: Sequence[str]) -> World:
    """The first process is paused before a call, while another one does the acts, and then goes on."""
    world = World()

    def others() -> None:
        world.clock.advance(length)
        other = world.process(name="other")
        for act in acts:
            if act == "turn":
                other.turn()
                world.clock.advance("5s")
            elif world.number == 3:
                world.end(None)

    process = world.process(Failpoint(world.store, at, others))
    for _ in story(world, process):
        if world.number == 4:
            break  # the success was in the pause
    world.settle()
    return world


@pytest.mark.parametrize("length", some([SHORT_PAUSE, LONG_PAUSE], SHORT_PAUSE))
@pytest.mark.parametrize("acts", ["turn", "turn success turn", "turn turn success turn"])
def test_a_process_that_is_paused_while_others_go_on_doubles_nothing(length: str, acts: str) -> None:
    for at in range(1, CALLS + 1):
        world = play_pause(at, length, acts.split())
        assert len(world.unique()) == 6, f"paused before call {at}"
        assert len({message.incident for message in world.unique()}) == 1
        assert (incidents(world.store), signals(world.store), pending(world.store)) == ([], [], [])
        (over,) = past(world.store)
        assert over.failures == 3


def test_processes_that_see_different_first_failures_open_one_incident() -> None:
    """A transaction that began earlier may commit later: the second process sees an earlier failure."""
    for at in range(1, 40):
        world = World()

        def others(world: World = world) -> None:
            put_signal(world.store, failure(world.clock.now - 3_600_000, "earlier"))
            world.clock.advance(SHORT_PAUSE)
            world.process(name="other").turn()

        world.end("boom")
        world.clock.advance("5s")
        world.process(Failpoint(world.store, at, others)).turn()
        world.settle()
        assert [message.announcement for message in world.unique()] == ["opened", "opened"], f"at call {at}"
        (incident,) = incidents(world.store)
        assert incident.failures <= 2


def test_two_senders_send_a_delivery_once() -> None:
    assert _sent_by_two(World()) == 2


def _sent_by_two(world: World) -> int:
    """One sender has read what waits, and claims it while another one is sending it."""
    world.end("boom")
    watch = world.process().watch
    watch.use(stored_rules(world.store))
    watch.step(world.clock.now)
    reached, go_on = threading.Event(), threading.Event()

    class Slow(Failpoint):
        def __getattr__(self, name: str) -> Any:
            if name == "put_record" and not reached.is_set():
                reached.set()
                assert go_on.wait(10)
            return getattr(self._store, name)

    slow = world.process(Slow(world.store, 0, die), "slow")
    thread = threading.Thread(target=lambda: slow.sender.step(world.clock.now))
    sent: list[str] = []

    class Both(Receiver):
        def send(self, message: Message) -> None:
            sent.append(message.id)
            go_on.set()
            if threading.current_thread() is not thread:
                thread.join(10)

    both = Both()
    slow.sender._open_channel = both.open
    quick = AlertSender(world.store, both.open, name="quick")
    thread.start()
    assert reached.wait(10)
    for _ in range(2):
        quick.step(world.clock.now)
    go_on.set()
    thread.join(10)
    return len(sent)


# -- mutants -------------------------------------------------------------------------------------------------


def caught() -> bool:
    """Whether the tests above find a fault."""
    try:
        for at in range(1, CALLS + 10):
            for is_after in (False, True):
                play_death(at, is_after).check()
    except AssertionError:
        return True
    return False


def test_noting_announcements_before_their_deliveries_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = OpenIncidents.announce

    def announce(self: OpenIncidents, incident: StoredIncident, *rest: Any) -> None:
        if incident.owed and incident.closed_at is None:
            self.put(with_deliveries_written(incident))
            key = next(key for key, (_, each) in self._stored.items() if each.id == incident.id)
            self._stored[key] = self._stored[key][0], incident
        whole(self, incident, *rest)

    monkeypatch.setattr(OpenIncidents, "announce", announce)
    assert caught()


def test_deleting_signals_first_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Evaluation._take_batch

    def take_batch(self: Evaluation, records: Sequence[Record]) -> bool:
        for record in records:
            self._store.delete_record(SIGNAL, record.tenant, record.key, record.version)
        return whole(self, records)

    monkeypatch.setattr(Evaluation, "_take_batch", take_batch)
    assert caught()


def test_sending_without_a_look_at_the_log_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def claim(self: AlertSender, claimed: Waiting, now: int) -> Waiting | None:
        return self._put(claimed.record, claimed.delivery)

    monkeypatch.setattr(AlertSender, "_claim", claim)
    assert caught()


def test_claiming_without_compare_and_set_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless(MemoryStore):
        def put_record(self, record: Record, expect: int | None = None) -> bool:
            if record.kind == PENDING and expect is not None:
                present = self.get_record(record.kind, record.tenant, record.key)
                expect = None if present is None else present.version
            return super().put_record(record, expect)

    monkeypatch.setattr("tests.unit.test_alert_deaths.MemoryStore", Careless)
    assert _sent_by_two(World()) > 2


def test_an_incident_without_compare_and_set_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless(MemoryStore):
        def put_record(self, record: Record, expect: int | None = None) -> bool:
            present = self.get_record(record.kind, record.tenant, record.key)
            if record.kind == "alert_incident":
                expect = None if present is None else present.version
            return super().put_record(record, expect)

    monkeypatch.setattr("tests.unit.test_alert_deaths.MemoryStore", Careless)
    with pytest.raises(AssertionError, match="at call"):
        test_processes_that_see_different_first_failures_open_one_incident()
