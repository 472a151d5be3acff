"""The watch and the sender on a store in memory, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat.alerts import open_incidents
from evenbeat.alerts.channels.base import DeliveryFailed
from evenbeat.alerts.evaluation import LOOK_BACK
from evenbeat.alerts.sender import BACKOFF, CLAIMED_FOR
from evenbeat.alerts.waiting import Waiting
from evenbeat.alerts.watch import TURN_EVERY
from evenbeat.core.json_text import encode
from evenbeat.core.records import CatchUp, Record
from evenbeat.node.presence import NodeInfo, Presence
from evenbeat.node.signals import Signals, stored_rules
from evenbeat.node.ticker import Ticker
from evenbeat.observe.events import Events
from evenbeat.rules import attempts, changes
from evenbeat.rules.alert_records import (
    CHANNEL,
    INCIDENT,
    PENDING,
    RULE,
    SIGNAL,
    StoredDelivery,
    StoredWindow,
)
from evenbeat.rules.firing import plan
from evenbeat.stores.base import Claim, ScheduleQuery, Setting, Write
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
    put_window,
    signals,
)
from tests.store_calls import add_schedules


class Bench:
    """A process on a store in memory."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.receiver = Receiver()
        self.process = Process(self.store, self.receiver)
        self.number = 0

    def schedule(self, name: str = "s", **fields: Any) -> None:
        add_schedules(self.store, name, **{"trigger": "every 1h", **fields})

    def run(self, error: str | None = "ValueError: boom", schedule: str | None = "s", **fields: Any) -> str:
        """A run that fails, or succeeds, a second after what was before."""
        self.clock.advance("1s")
        self.number += 1
        end_run(self.store, a_run(f"run-{self.number}", schedule, **fields), error)
        return f"run-{self.number}"

    def turn(self) -> None:
        self.clock.advance("5s")
        assert self.process.turn()

    def change(self, name: str, change: Any) -> None:
        row = self.store.find_schedules(ScheduleQuery(name=name)).items[0]
        (written,) = self.store.put_schedules([Write(change(row, self.clock.now), row.version)])
        assert written.accepted


@pytest.fixture
def bench() -> Bench:
    return Bench()


# -- failures ------------------------------------------------------------------------------------------------


def test_a_failing_job_is_announced_once_escalates_and_recovers(bench: Bench) -> None:
    put_rule(bench.store, "failed", "failing:3")
    bench.schedule()
    bench.run(None)
    first = bench.run()
    bench.turn()
    bench.turn()
    assert bench.receiver.kinds == ["opened"]
    message = bench.receiver.messages[0]
    assert (message.schedule, message.run, message.rule) == ("s", first, "r")
    assert message.error == "ValueError: boom"
    assert message.last_success is not None
    bench.run()
    bench.turn()
    assert bench.receiver.kinds == ["opened"]
    bench.run()
    bench.run()
    bench.turn()
    assert bench.receiver.kinds == ["opened", "escalated"]
    (incident,) = incidents(bench.store)
    assert incident.failures == 4
    bench.run(None)
    bench.turn()
    bench.turn()
    assert bench.receiver.kinds == ["opened", "escalated", "recovered"]
    assert {each.incident for each in bench.receiver.messages} == {incident.id}
    assert (incidents(bench.store), signals(bench.store), pending(bench.store)) == ([], [], [])
    (over,) = past(bench.store)
    assert (over.id, over.announced) == (incident.id, ("opened", "escalated", "recovered"))
    assert [each.state for each in log(bench.store)] == ["sent"] * 3
    # The next failure is another incident.
    bench.run()
    bench.turn()
    assert bench.receiver.kinds[3:] == ["opened"]
    assert len(set(bench.receiver.ids)) == 4


def test_a_failure_that_is_retried_is_not_announced(bench: Bench) -> None:
    put_rule(bench.store, "failed")
    bench.schedule()
    bench.run(execution=replace(a_run("x").execution, retries=1))
    bench.turn()
    assert bench.receiver.messages == []


def test_a_task_without_a_schedule_recovers_with_its_next_success(bench: Bench) -> None:
    put_rule(bench.store, "failed")
    bench.run(schedule=None, generation=None)
    bench.turn()
    bench.run(None, schedule=None, generation=None, task="other", queue="default")
    bench.turn()
    assert bench.receiver.kinds == ["opened"]
    assert bench.receiver.messages[0].task == "work"
    bench.run(None, schedule=None, generation=None)
    bench.turn()
    assert bench.receiver.kinds == ["opened", "recovered"]


def test_two_rules_announce_the_same_failure_each_to_its_channels(bench: Bench) -> None:
    put_rule(bench.store, "failed", name="one", to=("ops", "mail"))
    put_rule(bench.store, "failed", name="two", owner=None, to=("boss",))
    put_rule(bench.store, "failed", name="three", owner="acme", to=("acme",))
    put_rule(bench.store, "failed", name="four", tag="nightly", to=("night",))
    bench.schedule(tags="daily")
    bench.run()
    bench.turn()
    assert sorted((each.rule or "") for each in bench.receiver.messages) == ["one", "one", "two"]
    assert len(set(bench.receiver.ids)) == 3


def test_a_rule_by_tag_finds_the_tags_of_the_schedule(bench: Bench) -> None:
    put_rule(bench.store, "failed", tag="nightly")
    bench.schedule(tags="billing nightly")
    bench.schedule("other")
    bench.run()
    bench.run(schedule="other")
    bench.turn()
    assert [each.schedule for each in bench.receiver.messages] == ["s"]
    assert signals(bench.store) == []


def test_failures_before_and_after_a_success_in_one_turn_are_two_incidents(bench: Bench) -> None:
    put_rule(bench.store, "failed")
    bench.schedule()
    bench.run()
    bench.run(None)
    bench.run()
    bench.turn()
    bench.turn()
    assert bench.receiver.kinds == ["opened", "recovered", "opened"]
    assert len({each.incident for each in bench.receiver.messages}) == 2
    assert signals(bench.store) == []


@pytest.mark.parametrize("schedule", ["s", None])
@pytest.mark.parametrize("turns", [0, 1])
def test_failures_with_successes_between_them_are_not_in_a_row_though_one_turn_reads_them(
    bench: Bench, schedule: str | None, turns: int
) -> None:
    put_rule(bench.store, "failing:2")
    bench.schedule()
    for at in range(4):
        bench.run(schedule=schedule)
        if at < turns:
            bench.turn()
        bench.run(None, schedule=schedule)
    bench.turn()
    bench.turn()
    assert bench.receiver.kinds == []
    for error in (None, "boom", "boom", None):
        bench.run(error, schedule=schedule)
    bench.turn()
    assert bench.receiver.kinds == ["opened", "recovered"]


def test_a_success_before_the_clock_was_set_back_ends_no_later_incident(bench: Bench) -> None:
    put_rule(bench.store, "failed")
    bench.schedule()
    bench.run(None)
    bench.clock.now -= 3_600_000
    bench.run()
    bench.turn()
    assert bench.receiver.kinds == ["opened"]
    bench.turn()
    assert bench.receiver.kinds == ["opened"]
    bench.clock.advance("2h")
    bench.run(None)
    bench.turn()
    assert bench.receiver.kinds == ["opened", "recovered"]


def test_a_paused_schedule_is_announced_when_it_is_resumed_and_still_failing(bench: Bench) -> None:
    put_rule(bench.store, "failed")
    bench.schedule()
    bench.change("s", lambda row, now: changes.pause(row, now))
    bench.run()
    bench.turn()
    assert bench.receiver.messages == []
    assert incidents(bench.store)[0].muted_by == "paused"
    bench.change("s", lambda row, now: changes.resume(row, now))
    bench.turn()
    assert bench.receiver.kinds == ["opened"]


def test_a_maintenance_window_and_a_mute_hold_back_and_expire(bench: Bench) -> None:
    now = bench.clock.now
    put_rule(bench.store, "failed", muted_until=now + 120_000)
    put_window(bench.store, "upgrade", StoredWindow(starts_at=now, ends_at=now + 60_000, schedule="s"))
    bench.schedule()
    bench.schedule("other")
    bench.run()
    bench.turn()
    assert incidents(bench.store)[0].muted_by == "muted"
    put_rule(bench.store, "failed", version=2)
    bench.run(schedule="other")
    bench.turn()
    assert [each.schedule for each in bench.receiver.messages] == ["other"]
    assert {each.muted_by for each in incidents(bench.store)} == {"upgrade", None}
    bench.clock.advance("1m")
    bench.turn()
    assert [each.schedule for each in bench.receiver.messages] == ["other", "s"]


def test_an_incident_ends_silently_with_its_rule_or_its_schedule(bench: Bench) -> None:
    put_rule(bench.store, "failed", name="one")
    put_rule(bench.store, "failed", name="two", schedule="other")
    bench.schedule()
    bench.schedule("other")
    bench.run()
    bench.run(schedule="other")
    bench.turn()
    assert len(bench.receiver.messages) == 3
    assert bench.store.delete_record(RULE, "default", "own/one", 1)
    bench.turn()
    assert {each.rule for each in incidents(bench.store)} == {"two"}
    bench.change("other", lambda row, now: changes.delete(row, now))
    bench.turn()
    assert incidents(bench.store) == []
    assert len(bench.receiver.messages) == 3
    assert len(past(bench.store)) == 3


def test_incidents_end_when_the_last_rule_is_deleted_and_then_nothing_is_read(bench: Bench) -> None:
    put_rule(bench.store, "failed")
    bench.schedule()
    bench.run()
    bench.turn()
    assert bench.store.delete_record(RULE, "default", "own/r", 1)
    bench.turn()
    assert incidents(bench.store) == []
    bench.clock.advance("5s")
    assert not bench.process.turn()


def test_a_rule_has_a_bounded_number_of_open_incidents(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(open_incidents, "MOST_OPEN", 3)
    put_rule(bench.store, "failed")
    for number in range(5):
        bench.schedule(f"s{number}")
        bench.run(schedule=f"s{number}")
    bench.turn()
    assert len(bench.receiver.messages) == len(incidents(bench.store)) == 3
    assert signals(bench.store) == []
    assert [each.message for each in caplog.records if each.levelname == "ERROR"] == [
        "a rule has too many open incidents; further ones are not announced"
    ]


def test_more_signals_than_one_batch_are_counted_in_one_turn(bench: Bench) -> None:
    put_rule(bench.store, "failed", "failing:500")
    bench.schedule()
    for number in range(501):
        put_signal(bench.store, failure(bench.clock.now + number, f"r{number}"))
    bench.turn()
    assert incidents(bench.store)[0].failures == 501
    assert bench.receiver.kinds == ["opened", "escalated"]


def test_damaged_records_do_not_stop_the_watch(bench: Bench) -> None:
    put_rule(bench.store, "failed")
    bench.schedule()
    for kind in (SIGNAL, INCIDENT, PENDING):
        bench.store.put_record(Record(kind=kind, key="0", body="{nonsense"))
    bench.store.put_record(Record(kind=SIGNAL, key="1", body='{"kind":"odd","at":1,"tenant":"default"}'))
    bench.store.put_record(Record(kind="alert_turn", key="turn", body="{nonsense", version=7))
    bench.run()
    bench.turn()
    assert bench.receiver.kinds == ["opened"]
    assert bench.store.find_records(SIGNAL) == bench.store.find_records(PENDING) == []
    assert len(bench.store.find_records(INCIDENT)) == 1


def test_the_message_has_the_sentence_of_why_and_goes_without_it_if_that_fails(bench: Bench) -> None:
    def why(incident: Any) -> str:
        if incident.schedule == "other":
            raise RuntimeError("no")
        return "because of the moon"

    put_rule(bench.store, "failed")
    bench.schedule()
    bench.schedule("other")
    bench.run()
    bench.run(schedule="other")
    bench.process = Process(bench.store, bench.receiver, why=why, link_base="https://evenbeat.example")
    bench.turn()
    told = {each.schedule: each for each in bench.receiver.messages}
    assert (told["s"].why, told["other"].why) == ("because of the moon", None)
    assert (told["s"].link or "").startswith("https://evenbeat.example/")


# -- runs ----------------------------------------------------------------------------------------------------


def test_a_rule_with_runs_announces_every_end_and_opens_no_incident(bench: Bench) -> None:
    put_rule(bench.store, "runs", schedule="s")
    bench.schedule()
    ids = [bench.run(None), bench.run(), bench.run(None, schedule="other")]
    bench.turn()
    bench.turn()
    assert [(each.run, each.outcome) for each in bench.receiver.messages] == [
        (ids[0], "succeeded"),
        (ids[1], "failed"),
    ]
    assert bench.receiver.messages[0].trigger == "every 1h"
    assert bench.receiver.messages[0].rule == "r"
    assert (incidents(bench.store), signals(bench.store)) == ([], [])


# -- missed and late -----------------------------------------------------------------------------------------


def test_missed_ticks_leave_a_signal_in_the_step_that_skips_them(bench: Bench) -> None:
    put_rule(bench.store, "missed")
    bench.schedule(trigger="every 1m", catch_up=CatchUp("skip", grace=30_000))
    bench.schedule("calm", trigger="every 1m")
    bench.clock.advance("10m")
    ticker = Ticker(bench.store, Events(), signals=Signals(stored_rules(bench.store)))
    bench.clock.advance("31s")
    ticker.step(bench.clock.now)
    (signal,) = signals(bench.store)
    assert (signal.schedule, signal.count, signal.reason) == ("s", 10, "late")
    bench.turn()
    assert bench.receiver.kinds == ["opened"]
    bench.clock.advance("25s")
    ticker.step(bench.clock.now)
    bench.turn()
    assert bench.receiver.kinds == ["opened", "recovered"]


def test_a_schedule_that_nobody_fires_is_late_within_its_threshold(bench: Bench) -> None:
    put_rule(bench.store, "late:5m")
    bench.schedule(trigger="every 1h")
    bench.schedule("paused", trigger="every 1h")
    bench.change("paused", lambda row, now: changes.pause(row, now))
    bench.clock.advance("1h")
    bench.turn()
    assert bench.receiver.messages == []
    bench.clock.advance("4m55s")
    bench.turn()
    assert [(each.schedule, each.condition) for each in bench.receiver.messages] == [("s", "late:5m")]
    [late] = bench.receiver.messages
    assert late.lines[0] == f"The tick of {late.tick:%a %Y-%m-%d %H:%M} UTC has not fired."
    bench.turn()
    # It fires, and no worker takes the run: it is still late.
    bench.store.fire_due(bench.clock.now, 10, plan)
    bench.turn()
    assert bench.receiver.kinds == ["opened"]
    claim = Claim(worker="w", token="c", limit=10, now=bench.clock.now, lease=30_000)
    assert len(bench.store.claim_runs(claim).runs) == 1
    bench.turn()
    assert bench.receiver.kinds == ["opened", "recovered"]


def test_a_late_schedule_that_is_paused_does_not_recover(bench: Bench) -> None:
    put_rule(bench.store, "late:5m")
    bench.schedule(trigger="every 1h")
    bench.clock.advance("1h10m")
    bench.turn()
    bench.change("s", lambda row, now: changes.pause(row, now))
    bench.turn()
    assert bench.receiver.kinds == ["opened"]
    assert incidents(bench.store) == []


def test_runs_that_no_node_takes_are_reported_by_task(bench: Bench) -> None:
    put_rule(bench.store, "no_node:1m", "late:10m")
    now = bench.clock.now
    bench.store.add_runs([a_run(name, None, generation=None, run_at=now) for name in "xy"])
    bench.clock.advance("1m1s")
    bench.turn()
    (message,) = bench.receiver.messages
    assert (message.subject_kind, message.subject) == ("task", "work")
    assert incidents(bench.store)[0].reason == "no live node executes runs"
    node(bench)
    bench.turn()
    assert bench.receiver.kinds == ["opened", "recovered"]


def test_a_long_backlog_is_read_in_part_and_ends_no_incident(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evenbeat.alerts import polling

    put_rule(bench.store, "late:1m")
    bench.store.add_runs([a_run("old", None, generation=None, task="rare", created_at=bench.clock.now)])
    bench.clock.advance("61s")
    bench.turn()
    assert [each.task for each in bench.receiver.messages] == ["rare"]
    monkeypatch.setattr(polling, "_MOST_ROWS", 5)
    now = bench.clock.now
    fresh = [a_run(f"n{at}", None, generation=None, run_at=now, created_at=now) for at in range(20)]
    bench.store.add_runs(fresh)
    bench.turn()
    assert [each.task for each in bench.receiver.messages] == ["rare"]
    assert len(incidents(bench.store)) == 1


# -- runs that are stuck, queues, nodes, the store -----------------------------------------------------------


def test_a_run_that_takes_too_long_is_stuck_until_it_ends(bench: Bench) -> None:
    put_rule(bench.store, "stuck:1h", tag="nightly")
    bench.schedule(tags="nightly")
    bench.store.add_runs([a_run("x"), a_run("y", "other")])
    held = bench.store.claim_runs(
        Claim(worker="w", token="c", limit=2, now=bench.clock.now, lease=86_400_000)
    ).runs
    bench.clock.advance("59m")
    bench.turn()
    assert bench.receiver.messages == []
    bench.clock.advance("1m")
    bench.turn()
    assert [(each.subject_kind, each.run) for each in bench.receiver.messages] == [("run", "x")]
    from evenbeat.rules import attempts

    bench.store.settle_runs([attempts.succeeded(run, None, bench.clock.now, run.id) for run in held])
    bench.turn()
    assert bench.receiver.kinds == ["opened", "recovered"]


def test_a_stuck_run_of_a_deleted_schedule_is_announced_once(bench: Bench) -> None:
    put_rule(bench.store, "stuck:1h")
    bench.store.add_runs([a_run("x", "gone")])
    bench.store.claim_runs(Claim(worker="w", token="c", limit=2, now=bench.clock.now, lease=86_400_000))
    bench.clock.advance("2h")
    for _ in range(3):
        bench.turn()
    assert bench.receiver.kinds == ["opened"]


def test_a_queue_that_does_not_get_shorter_is_reported_until_it_is_short(bench: Bench) -> None:
    put_rule(bench.store, "queue:3", owner=None)
    bench.store.add_runs([a_run(f"x{at}", None, generation=None, run_at=bench.clock.now) for at in range(4)])
    bench.turn()
    assert [(each.subject_kind, each.subject) for each in bench.receiver.messages] == [("queue", "default")]
    end_run(bench.store, a_run("x0", None, generation=None), None)
    bench.clock.advance("2m")
    bench.turn()
    assert bench.receiver.kinds == ["opened"]
    end_run(bench.store, a_run("x1", None, generation=None), None)
    bench.turn()
    assert bench.receiver.kinds == ["opened", "recovered"]


def node(bench: Bench, name: str = "n1") -> Presence:
    info = NodeInfo(
        name=name,
        host="h",
        pid=1,
        version="",
        started_at=0,
        seen_at=0,
        ticker=True,
        worker=True,
        tasks={"work": "thread"},
        queues=["default"],
        slots={"thread": 1},
    )
    presence = Presence(bench.store, info)
    presence.step(bench.clock.now)
    return presence


def test_a_node_that_stops_heartbeating_is_lost_and_one_that_leaves_is_not(bench: Bench) -> None:
    put_rule(bench.store, "node_lost", owner=None)
    dead, stopped, alive = (node(bench, name) for name in ("dead", "stopped", "alive"))
    bench.turn()
    stopped.leave()
    for _ in range(16):
        alive.step(bench.clock.now)
        bench.turn()
    assert [(each.subject_kind, each.subject) for each in bench.receiver.messages] == [("node", "dead")]
    # It was suspended, and is back.
    dead.step(bench.clock.now)
    bench.turn()
    assert bench.receiver.kinds == ["opened", "recovered"]


def test_a_lost_node_that_never_comes_back_ends_silently(bench: Bench) -> None:
    put_rule(bench.store, "node_lost", owner=None)
    node(bench, "dead")
    for _ in range(16):
        bench.turn()
    bench.clock.advance("1h")
    bench.turn()
    assert (bench.receiver.kinds, incidents(bench.store)) == (["opened"], [])


def test_nodes_that_vanish_while_nobody_watches_are_not_reported(bench: Bench) -> None:
    put_rule(bench.store, "node_lost", owner=None)
    node(bench, "before")
    bench.turn()
    bench.clock.advance("8h")
    bench.turn()
    bench.turn()
    assert bench.receiver.messages == []


def test_an_unsafe_store_is_reported_until_it_is_safe(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    settings = [
        Setting(name="fsync", value="off", level="warn", hint="turn it on"),
        Setting(name="v", value="1"),
    ]

    def server() -> list[Setting]:
        asked.append(bench.clock.now)
        return settings

    monkeypatch.setattr(bench.store, "server", server)
    put_rule(bench.store, "store_unsafe", owner=None)
    bench.turn()
    bench.turn()
    assert bench.receiver.kinds == ["opened"]
    assert incidents(bench.store)[0].reason == "fsync is off: turn it on"
    assert len(asked) == 1
    settings.pop(0)
    bench.clock.advance("5m")
    bench.turn()
    assert bench.receiver.kinds == ["opened", "recovered"]
    assert len(asked) == 2


# -- turns ---------------------------------------------------------------------------------------------------


def test_processes_take_turns(bench: Bench) -> None:
    put_rule(bench.store, "failed")
    other = Process(bench.store, bench.receiver, "two")
    assert bench.process.turn()
    assert not other.turn()
    assert other.watch.step(bench.clock.now).again == bench.clock.now + TURN_EVERY
    bench.clock.advance("5s")
    assert other.turn()
    assert not bench.process.turn()
    # A process that has just left a signal waits for a second.
    bench.clock.advance("999ms")
    assert not other.watch.step(bench.clock.now, is_urgent=True).took_turn
    bench.clock.advance("1ms")
    assert other.watch.step(bench.clock.now, is_urgent=True).took_turn
    # The store's clock was set back.
    assert bench.process.turn(bench.clock.now - 3_600_000)


def test_a_turn_that_took_too_long_opens_nothing(bench: Bench) -> None:
    times = iter([0.0, 31.0])
    put_rule(bench.store, "failed")
    bench.schedule()
    bench.run()
    slow = Process(bench.store, bench.receiver, clock=lambda: next(times))
    assert slow.turn()
    assert incidents(bench.store) == []
    bench.turn()
    assert bench.receiver.kinds == ["opened"]


def test_without_rules_a_step_reads_nothing(bench: Bench) -> None:
    process = bench.process
    assert process.watch.step(bench.clock.now).again is None
    process.watch._store = None  # type: ignore[assignment]  # any call would fail
    assert process.watch.step(bench.clock.now).again is None


# -- sending -------------------------------------------------------------------------------------------------


def test_a_failed_try_is_repeated_with_backoff_under_the_same_id(bench: Bench) -> None:
    put_rule(bench.store, "failed")
    bench.schedule()
    bench.run()
    bench.receiver.failures = [DeliveryFailed("503"), DeliveryFailed("504")]
    bench.turn()
    (waiting,) = pending(bench.store)
    assert (waiting.tries, waiting.error, waiting.next_at) == (1, "503", bench.clock.now + BACKOFF[0])
    bench.clock.advance("4999ms")
    bench.process.sender.step(bench.clock.now)
    assert pending(bench.store)[0].tries == 1
    bench.turn()
    assert pending(bench.store)[0].next_at == bench.clock.now + BACKOFF[1]
    bench.clock.advance("30s")
    bench.turn()
    assert len(bench.receiver.messages) == 1
    (done,) = log(bench.store)
    assert (done.state, done.tries, done.error) == ("sent", 3, None)


def test_a_delivery_is_given_up_after_a_day_and_at_once_if_it_never_can_arrive(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    put_rule(bench.store, "failed", to=("ops", "bad"))
    bench.schedule()
    bench.run()
    bench.receiver.failures = [DeliveryFailed("refused", is_final=True)] + [DeliveryFailed("503")] * 100
    for _ in range(60):
        bench.turn()
        bench.clock.advance("30m")
    done = log(bench.store)
    assert sorted((each.state, each.error) for each in done) == [("failed", "503"), ("failed", "refused")]
    tries = {each.error: each.tries for each in done}
    assert tries["refused"] == 1
    assert 20 < tries["503"] < 40
    assert pending(bench.store) == []
    errors = [each for each in caplog.records if each.levelname == "ERROR"]
    assert [each.msg for each in errors] == ["an alert could not be sent and is given up: %s"] * 2


def test_the_announcement_of_a_run_is_given_up_after_an_hour(bench: Bench) -> None:
    put_rule(bench.store, "runs")
    bench.schedule()
    bench.run(None)
    bench.receiver.failures = [DeliveryFailed("503")] * 100
    for _ in range(13):
        bench.turn()
        bench.clock.advance("10m")
    assert [each.state for each in log(bench.store)] == ["failed"]


def test_a_later_announcement_of_an_incident_waits_for_an_earlier_one(bench: Bench) -> None:
    put_rule(bench.store, "failed")
    bench.schedule()
    bench.schedule("other")
    bench.run()
    bench.receiver.failures = [DeliveryFailed("503")]
    bench.turn()
    bench.run(None)
    bench.run(schedule="other")
    now = bench.clock.now
    bench.process.watch.step(now + TURN_EVERY)
    bench.process.sender.step(now + 1_000)
    assert [(each.schedule, each.announcement) for each in bench.receiver.messages] == [("other", "opened")]
    bench.clock.advance("1m")
    bench.turn()
    assert bench.receiver.kinds == ["opened", "opened", "recovered"]


def test_a_delivery_without_its_channel_is_given_up(bench: Bench) -> None:
    put_rule(bench.store, "failed")
    bench.schedule()
    bench.run()
    assert bench.store.delete_record(CHANNEL, "default", "own/ops", 1)
    bench.turn()
    assert [(each.state, each.error) for each in log(bench.store)] == [
        ("failed", "the channel does not exist")
    ]


def test_a_channel_that_breaks_shows_no_secret_and_is_tried_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Receiver):
        def send(self, message: Any) -> None:
            raise ValueError("https://user:hunter2@receiver.example")

    put_rule(bench.store, "failed")
    bench.schedule()
    bench.run()
    bench.process = Process(bench.store, Broken())
    bench.turn()
    error = pending(bench.store)[0].error
    assert error is not None
    assert error.startswith("ValueError in the channel, at tests.unit.test_alert_watch:")
    assert "hunter2" not in error + caplog.text


def test_a_claimed_delivery_is_left_alone_until_the_claim_expires(bench: Bench) -> None:
    put_rule(bench.store, "failed")
    bench.schedule()
    bench.run()
    bench.process.watch.use(stored_rules(bench.store))
    bench.process.watch.step(bench.clock.now)
    (record,) = bench.store.find_records(PENDING)
    (waiting,) = pending(bench.store)
    claimed = replace(waiting, claimed_by="dead", claimed_until=bench.clock.now + CLAIMED_FOR)
    assert bench.store.put_record(replace(record, body=encode(claimed), version=99), record.version)
    bench.process.sender.step(bench.clock.now + CLAIMED_FOR - 1)
    assert bench.receiver.messages == []
    bench.process.sender.step(bench.clock.now + CLAIMED_FOR)
    assert bench.receiver.kinds == ["opened"]


def test_one_channel_that_does_not_answer_delays_no_other(bench: Bench) -> None:
    put_rule(bench.store, "failed", to=("slow", "quick"))
    for number in range(6):
        bench.schedule(f"s{number}")
        bench.run(schedule=f"s{number}")
    started: list[Any] = []
    sender = bench.process.sender
    sender._start = started.append
    bench.turn()
    # One send to each channel is under way; the others wait for these.
    assert len(started) == 2
    quick = next(each for each in started if "quick" in repr(each))
    started.remove(quick)
    quick()
    sender.step(bench.clock.now)
    assert len(bench.receiver.messages) == 6
    assert len(started) == 1


def test_a_sender_whose_store_breaks_goes_on_with_the_next_delivery(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_rule(bench.store, "failed", to=("one", "two"))
    bench.schedule()
    bench.run()
    get, broken = bench.store.get_record, [True]

    def get_record(kind: str, *key: str) -> Any:
        if kind == CHANNEL and broken and broken.pop():
            raise ValueError("a column can't be read")
        return get(kind, *key)

    monkeypatch.setattr(bench.store, "get_record", get_record)
    bench.turn()
    assert len(bench.receiver.messages) == 1
    bench.clock.advance(CLAIMED_FOR)
    bench.turn()
    assert len(bench.receiver.messages) == 2


@pytest.mark.parametrize("set_back", ["retry", "claim"])
def test_a_delivery_is_sent_though_the_clock_was_set_back(bench: Bench, set_back: str) -> None:
    put_rule(bench.store, "failed")
    bench.schedule()
    bench.run()
    bench.receiver.failures = [DeliveryFailed("503")]
    bench.turn()
    if set_back == "claim":
        (record,) = bench.store.find_records(PENDING)
        bench.process.sender._claim(Waiting(record, pending(bench.store)[0]), bench.clock.now)
    bench.process.sender.step(bench.clock.now + 1_000)
    assert bench.receiver.messages == []
    bench.process.sender.step(bench.clock.now - 3_600_000)
    assert bench.receiver.kinds == ["opened"]


def test_tries_are_reported_for_metrics(bench: Bench) -> None:
    seen: list[tuple[str, str]] = []
    put_rule(bench.store, "failed")
    bench.schedule()
    bench.run()
    bench.receiver.failures = [DeliveryFailed("503")]
    bench.process.sender._on_sent = lambda kind, outcome: seen.append((kind, outcome))
    bench.turn()
    bench.turn()
    assert seen == [("webhook", "retried"), ("webhook", "sent")]


def test_a_test_message_is_sent_without_any_rule(bench: Bench) -> None:
    from evenbeat.alerts import texts

    put_rule(bench.store, "failed")
    assert bench.store.delete_record(RULE, "default", "own/r", 1)
    message = texts.test_message("ops", "t1", bench.clock.now)
    body = StoredDelivery(message=message, channel="ops", scope="own", created_at=bench.clock.now)
    bench.store.put_record(Record(kind=PENDING, key="t1", body=encode(body)))
    assert bench.process.sender.step(bench.clock.now)
    assert bench.receiver.kinds == ["test"]
    assert not bench.process.sender.step(bench.clock.now)


def fail_unsignalled(bench: Bench, name: str, schedule: str | None = "s", **fields: Any) -> None:
    """A run that fails on a node that does not know the rules yet."""
    bench.clock.advance("1s")
    end_run(bench.store, a_run(name, schedule, **fields), "ValueError: boom", is_signalled=False)


def fail_ahead(bench: Bench, name: str, *, is_flow: bool = False) -> None:
    """A run that fails on a node whose clock is ahead: the store says an earlier end than the signal."""
    bench.clock.advance("1s")
    bench.store.add_runs([a_run(name)])
    claim = Claim(worker="w", token=name, limit=1, now=bench.clock.now, lease=30_000)
    (held,) = bench.store.claim_runs(claim).runs
    ahead = bench.clock.now + 3
    end = replace(attempts.failed(held, "boom", ahead, "end"), renews=is_flow)
    assert bench.store.settle_runs([Signals(stored_rules(bench.store)).with_end(held, end, ahead)]) == [True]


def test_a_failure_that_no_node_signals_yet_is_announced_once_after_the_rule_was_added() -> None:
    bench = Bench()
    bench.schedule("s")
    bench.schedule("t")
    fail_unsignalled(bench, "before")
    bench.clock.advance("1s")
    put_rule(bench.store, "failed", schedule="s", created_at=bench.clock.now)
    fail_unsignalled(bench, "first")
    fail_unsignalled(bench, "of another schedule", "t")
    fail_unsignalled(bench, "of another tenant", "s", tenant="acme")
    for _ in range(80):
        bench.clock.advance(f"{TURN_EVERY}ms")
        bench.process.turn()
    assert bench.receiver.kinds == ["opened"]
    assert [(each.run, each.failures) for each in incidents(bench.store)] == [("first", 1)]


@pytest.mark.parametrize("is_flow", [False, True])
def test_a_failure_counts_once_with_its_signal_though_the_clocks_differ(is_flow: bool) -> None:
    bench = Bench()
    bench.schedule("s")
    put_rule(bench.store, "failing:2", created_at=bench.clock.now)
    fail_ahead(bench, "x", is_flow=is_flow)
    for _ in range(3):
        bench.clock.advance(f"{TURN_EVERY}ms")
        bench.process.turn()
    assert [each.failures for each in incidents(bench.store)] == [1]
    assert bench.receiver.kinds == []
    fail_unsignalled(bench, "y")
    bench.clock.advance(f"{TURN_EVERY}ms")
    bench.process.turn()
    assert bench.receiver.kinds == ["opened"]


@pytest.mark.parametrize("fail", [fail_unsignalled, fail_ahead])
def test_a_failure_of_an_incident_that_has_ended_is_not_announced_again(
    fail: Callable[[Bench, str], None],
) -> None:
    bench = Bench()
    bench.schedule("s")
    put_rule(bench.store, "failed", created_at=bench.clock.now)
    fail(bench, "first")
    bench.run(None)
    for _ in range(20):
        bench.clock.advance(f"{TURN_EVERY}ms")
        bench.process.turn()
    assert bench.receiver.kinds == ["opened", "recovered"]
    assert len(past(bench.store)) == 1


def test_only_a_young_rule_about_failures_reads_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.schedule("s")
    asked: list[object] = []
    find = bench.store.find_runs

    def counted(query: Any) -> Any:
        asked.append(query)
        return find(query)

    monkeypatch.setattr(bench.store, "find_runs", counted)
    put_rule(bench.store, "missed", name="missed", created_at=bench.clock.now)
    put_rule(bench.store, "failed", created_at=bench.clock.now - LOOK_BACK)
    bench.process.turn()
    assert asked == []
    put_rule(bench.store, "failed", name="young", created_at=bench.clock.now)
    bench.clock.advance(f"{TURN_EVERY}ms")
    bench.process.turn()
    assert len(asked) == 1
