"""``app.schedules.why`` and ``app.runs.why``: a scenario for each verdict, over a store in virtual time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import InvalidValue, RunNotFound, Scheduler, UnknownZone, Why, acting_as, at, cron, every
from evenbeat.core.instants import to_ms
from evenbeat.core.records import FORMAT, Record
from evenbeat.node.presence import NodeInfo, Presence
from evenbeat.node.pruner import Pruner
from evenbeat.rules.firing import plan
from evenbeat.rules.rollups import make_rollup, rollup_key, write_rollup
from evenbeat.stores.base import Claim
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock, VirtualScheduler
from evenbeat.testing.clock import START
from evenbeat.testing.virtual_store import VirtualStore

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def nothing() -> None: ...


@pytest.fixture
def app(scheduler: VirtualScheduler) -> VirtualScheduler:
    scheduler.task(name="work")(nothing)

    @scheduler.task(name="flaky", retries=1, backoff="10m")
    def flaky() -> None:
        raise ValueError("no such country")

    return scheduler


def node(app: VirtualScheduler, name: str = "n1", **fields: Any) -> None:
    usual = {"ticker": True, "worker": True, "tasks": {"work": "thread"}, "slots": {"thread": 1}}
    given = {"queues": ["default"], **usual, **fields}
    info = NodeInfo(name=name, host="h", pid=1, version="", started_at=0, seen_at=0, **given)
    Presence(app.store, info).step(app.store.now())


def why(app: VirtualScheduler, minute: float | None = None, **options: Any) -> Why:
    """Ask about the schedule ``beat``, so many minutes after noon, or now."""
    asked = None if minute is None else NOON + minute * MINUTE
    return app.schedules.why("beat", asked, **options)


def texts(answer: Why) -> list[str]:
    return [fact.text for fact in answer.evidence]


def ago(moment: datetime | None) -> float | None:
    """Return the minutes after noon."""
    return None if moment is None else (moment - NOON) / MINUTE


def change(app: VirtualScheduler, **fields: Any) -> None:
    """Write to the row of the schedule as no user can."""
    store = app.store
    assert isinstance(store, VirtualStore)
    key = ("default", "beat")
    store._schedules[key] = replace(store._schedules[key], **fields)


def test_times_in_words_are_in_the_zone_that_was_asked_for(app: VirtualScheduler) -> None:
    app.schedules.add("beat", "0 * * * * tz=Asia/Kolkata", "work")
    with acting_as("ann@ops"):
        app.schedules.pause("beat", until="2h")
    assert why(app).sentence == (
        "beat has been paused since Sun 2026-03-01 17:30 +05:30 by ann@ops, until Sun 2026-03-01 19:30 +05:30"
    )
    berlin = why(app, tz="Europe/Berlin")
    assert berlin.sentence == (
        "beat has been paused since Sun 2026-03-01 13:00 +01:00 by ann@ops, until Sun 2026-03-01 15:00 +01:00"
    )
    ends = next(fact.at for fact in berlin.evidence if fact.text == "the pause ends")
    assert ends is not None
    assert ends.isoformat() == "2026-03-01T15:00:00+01:00"
    assert "12:00 UTC" in why(app, tz="UTC").sentence
    # A time without an offset is one of the trigger's zone in any case.
    assert app.schedules.why("beat", "2026-03-01T18:00", tz="Europe/Berlin").tick == NOON + 30 * MINUTE
    with pytest.raises(UnknownZone):
        why(app, tz="Europe/Berlinn")
    nobody = app.schedules.why("none", NOON, tz="Europe/Berlin")
    assert nobody.asked is not None
    assert nobody.asked.isoformat() == "2026-03-01T13:00:00+01:00"


def test_times_of_a_run_are_in_the_zone_that_was_asked_for(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("20m"), "work")
    app.travel("20m")
    (run,) = app.runs.list(schedule="beat")
    assert "Sun 2026-03-01 12:20 UTC" in app.runs.why(run.id).sentence
    assert "Sun 2026-03-01 17:50 +05:30" in app.runs.why(run.id, tz="Asia/Kolkata").sentence
    with pytest.raises(UnknownZone):
        app.runs.why(run.id, tz="")


# -- the schedule


def test_a_schedule_that_never_existed(app: VirtualScheduler) -> None:
    app.schedules.add("beats", every("1m"), "work")
    app.schedules.add("beat", every("1m"), "work", tenant="acme")
    answer = why(app)
    assert (answer.verdict, answer.remedy) == ("never_existed", "did you mean beats?")
    assert answer.sentence == (
        'there is no row of schedule "beat" of tenant "default", and never was one; it may be in the code of '
        "nodes only, and no node is alive now"
    )
    # The answer does not tell one tenant about another.
    assert "acme" not in repr(answer)
    app.schedules.delete("beats")
    assert why(app, 3).remedy == "to list the schedules: evenbeat schedules list"
    app.store.put_record(Record(kind="node", key="n1", body="{}", version=1))
    assert why(app).sentence == 'tenant "default" has no schedule "beat", and never had one'


def test_a_schedule_that_was_created_later(app: VirtualScheduler) -> None:
    app.travel("10m")
    app.schedules.add("beat", every("1m"), "work")
    answer = why(app, 5)
    assert (answer.verdict, ago(answer.evidence[0].at)) == ("not_yet_created", 10)


def test_a_schedule_that_was_deleted(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.travel("150s")
    app.schedules.delete("beat")
    app.travel("10m")
    for answer in (why(app), why(app, 5)):
        assert answer.verdict == "deleted"
        assert answer.sentence == "beat was deleted on Sun 2026-03-01 12:02:30 UTC"
        assert answer.remedy == "to create it again: evenbeat schedules add beat …"
    assert why(app, 2).verdict == "succeeded"  # what it did before is known


def test_a_tick_that_was_due_when_the_schedule_was_deleted(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.down_for("90s")
    with acting_as("bob"):
        app.schedules.delete("beat")
    answer = why(app, 1)
    assert answer.verdict == "deleted"
    assert texts(answer) == ["recorded as deleted: Sun 2026-03-01 12:01 UTC", "deleted by bob"]
    assert "deleted by bob" in texts(why(app))


def test_a_pause_names_who_paused_it_the_note_and_the_end(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.travel("90s")
    with acting_as("ann@ops"):
        app.schedules.pause("beat", "migration", until="10m")
    app.travel("5m")
    for answer in (why(app), why(app, 3), why(app, 8)):
        assert answer.verdict == "paused"
        assert answer.sentence == (
            "beat has been paused since Sun 2026-03-01 12:01:30 UTC by ann@ops, until "
            "Sun 2026-03-01 12:11:30 UTC: migration"
        )
        assert answer.remedy == "evenbeat schedules resume beat"
    assert why(app, 1).verdict == "succeeded"
    assert why(app, 12).verdict == "not_due"


def test_a_tick_of_a_pause_that_is_over(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    with acting_as("ann"):
        app.schedules.pause("beat", "migration")
    app.travel("150s")
    app.schedules.resume("beat")
    app.travel("10m")
    app.schedules.pause("beat", "another one")
    answer = why(app, 1)
    assert answer.verdict == "paused"
    assert texts(answer) == [
        "recorded as paused: 2 ticks from Sun 2026-03-01 12:01 UTC to Sun 2026-03-01 12:02 UTC",
        "paused by ann: migration",
    ]


def test_ticks_that_were_due_when_the_pause_began_and_a_schedule_that_was_added_paused(
    app: VirtualScheduler,
) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.down_for("90s")
    with acting_as("ann"):
        app.schedules.pause("beat")
    assert "paused by ann" in texts(why(app, 1))
    with acting_as("eve"):
        app.schedules.add("other", every("1m"), "work", paused=True)
    app.travel("90s")
    app.schedules.resume("other")
    assert "added by eve" in texts(app.schedules.why("other", app.now - MINUTE))


def test_a_schedule_that_is_finished(app: VirtualScheduler) -> None:
    app.schedules.add("beat", at("2026-03-01T12:05:00Z"), "work")
    app.travel("10m")
    answer = why(app)
    assert answer.verdict == "finished"
    assert answer.run == app.runs.list()[0].id
    assert why(app, 5).verdict == "succeeded"
    assert why(app, 7).verdict == "no_tick"


def test_a_row_that_cannot_be_read(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    change(app, damage="trigger: 'x'")
    assert why(app).verdict == why(app, 1).verdict == "unreadable"
    change(app, damage="", trigger="* * * * * tz=Mars/Olympus")
    answer = why(app, 1)
    assert answer.verdict == "unreadable"
    assert "Mars/Olympus" in answer.sentence


# -- the trigger


def test_a_time_without_a_tick_names_its_neighbours(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("10m"), "work")
    app.travel("25m")
    answer = why(app, 15)
    assert answer.verdict == "no_tick"
    assert "has no tick at Sun 2026-03-01 12:15 UTC: it runs every 10 minutes" in answer.sentence
    assert (ago(answer.before), ago(answer.after), answer.tick) == (10, 20, None)
    assert ago(answer.asked) == 15


@pytest.mark.evenbeat(now="2026-03-28T12:00:00Z")
def test_a_time_that_the_clock_skips(scheduler: VirtualScheduler) -> None:
    scheduler.task(name="work")(nothing)
    scheduler.schedules.add("beat", cron("30 2 * * *", tz="Europe/Berlin"), "work")
    scheduler.travel("1d")
    answer = scheduler.schedules.why("beat", "2026-03-29 02:30")
    assert answer.verdict == "clock_skipped"
    assert answer.sentence == (
        "02:30 on 2026-03-29 does not exist in Europe/Berlin: the clock is set forward; beat runs at "
        "Sun 2026-03-29 03:00 +02:00 instead"
    )
    assert any("succeeded" in text for text in texts(answer))
    assert answer.run == scheduler.runs.list()[0].id
    ran = scheduler.schedules.why("beat", "2026-03-29 03:00")
    assert ran.verdict == "succeeded"
    assert any("02:30 does not exist on this day" in text for text in texts(ran))


@pytest.mark.evenbeat(now="2026-10-24T12:00:00Z")
def test_a_time_that_the_clock_repeats(scheduler: VirtualScheduler) -> None:
    scheduler.task(name="work")(nothing)
    scheduler.schedules.add("beat", cron("30 2 * * *", tz="Europe/Berlin"), "work")
    scheduler.travel("1d")
    assert scheduler.schedules.why("beat", "2026-10-25 02:30").verdict == "succeeded"
    other = scheduler.schedules.why("beat", "2026-10-25 02:31")
    assert other.sentence.endswith("it runs at 02:30 every day (Europe/Berlin)")
    answer = scheduler.schedules.why("beat", "2026-10-25T02:30+01:00")
    assert answer.verdict == "clock_repeated"


def test_a_time_before_the_trigger_was_given(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("10m"), "work")
    app.travel("25m")
    with acting_as("ann"):
        app.schedules.update("beat", trigger=every("7m"))
    app.travel("1m")
    app.schedules.update("beat", priority=9)
    answer = why(app, 14)
    assert (answer.verdict, ago(answer.evidence[1].at)) == ("trigger_unknown", 25)
    assert texts(answer)[-1] == "changed by ann: trigger every 10m → every 7m"
    # A tick of the earlier trigger is known by its run.
    answer = why(app, 20)
    assert (answer.verdict, ago(answer.tick)) == ("succeeded", 20)


def test_a_skipped_tick_of_an_earlier_trigger_is_known_by_the_ledger(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("10m"), "work")
    app.schedules.pause("beat")
    app.travel("11m")
    app.schedules.update("beat", trigger=every("7m"))
    app.schedules.resume("beat")
    assert why(app, 10).verdict == "paused"


# -- the ledger


def test_missed_ticks_by_each_policy(app: VirtualScheduler) -> None:
    app.schedules.add("latest", every("1m"), "work")
    app.schedules.add("all", every("1m"), "work", catch_up="all", catch_up_limit=2)
    app.schedules.add("skip", every("1m"), "work", catch_up="skip", grace="30s")
    app.down_for("5m")
    app.run_pending()
    answers = {name: app.schedules.why(name, NOON + MINUTE) for name in ("latest", "all", "skip")}
    assert {name: answer.verdict for name, answer in answers.items()} == {
        "latest": "coalesced",
        "all": "limit",
        "skip": "late",
    }
    (run,) = app.runs.list(schedule="latest")
    assert answers["latest"].run == run.id
    assert (
        answers["latest"].remedy == "to run each missed tick: evenbeat schedules update latest --catch-up all"
    )
    assert [answer.remedy is None for answer in answers.values()] == [False] * 3
    stands = app.schedules.why("latest", NOON + 5 * MINUTE)
    assert (stands.verdict, stands.run) == ("succeeded", run.id)
    assert "it stands for 4 earlier ticks, too" in texts(stands)


def test_a_tick_that_met_an_active_run(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "flaky", overlap="skip")
    app.travel("150s")
    answer = why(app, 2)
    assert (answer.verdict, ago(answer.tick)) == ("overlap", 2)


def test_a_waiting_tick_that_a_change_dropped(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "flaky", overlap="queue")
    app.travel("150s")
    app.schedules.update("beat", trigger="*/3 * * * *")
    assert why(app, 2).verdict == "changed"


def test_ticks_that_were_moved(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("10m"), "work")
    with acting_as("ann"):
        app.schedules.reschedule("beat", "25m")
    answer = why(app, 20)
    assert (answer.verdict, answer.run, texts(answer)[-1]) == ("rescheduled", None, "moved by ann")
    assert why(app, 25).verdict == "not_due"
    app.travel("26m")
    assert why(app, 25).verdict == "succeeded"  # also at the time to which it was moved
    app.schedules.reschedule("beat", "1m")
    assert why(app, 30).sentence == (
        "the tick of Sun 2026-03-01 12:30 UTC was moved to Sun 2026-03-01 12:27 UTC"
    )
    app.travel("10m")
    answer = why(app, 30)
    assert (answer.verdict, answer.run) == ("rescheduled", app.runs.list(limit=1)[0].id)
    assert answer.sentence == "the tick of Sun 2026-03-01 12:30 UTC was moved to Sun 2026-03-01 12:27 UTC"
    assert why(app, 27).verdict == "succeeded"


def test_a_tick_that_was_passed_over_may_run_after_all(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("10m"), "work")
    app.schedules.reschedule("beat", "35m")
    app.schedules.reschedule("beat", "20m")  # one of the ticks that were passed over
    app.travel("21m")
    assert [why(app, minute).verdict for minute in (10, 20, 30)] == [
        "rescheduled",
        "succeeded",
        "rescheduled",
    ]


def test_ticks_that_were_passed_over_say_nothing_about_another_trigger(app: VirtualScheduler) -> None:
    app.schedules.add("beat", "*/2 * * * *", "work")
    app.schedules.reschedule("beat", "9m")
    app.travel("1s")
    app.schedules.update("beat", trigger="*/4 * * * *")
    assert why(app, 4).verdict == "not_due"


# -- the run


def test_a_run_that_succeeded(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("10m"), "work")
    app.travel("15m")
    for answer in (why(app), why(app, 10)):
        assert (answer.verdict, answer.remedy, ago(answer.tick)) == ("succeeded", None, 10)
        assert answer.sentence.startswith("the run of beat for Sun 2026-03-01 12:10 UTC succeeded")
    assert [ago(fact.at) for fact in why(app).evidence if fact.text == "next start"] == [20]
    (run,) = app.runs.list()
    assert app.runs.why(run.id).sentence == why(app).sentence
    assert asyncio.run(app.runs.awhy(run.id)) == app.runs.why(run.id)
    assert asyncio.run(app.schedules.awhy("beat")) == why(app)


def test_a_run_that_failed_names_the_error_and_the_attempts(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1h"), "flaky")
    app.travel("65m")
    answer = why(app)
    assert answer.verdict == "retry"
    assert "failed (ValueError: no such country) and waits for its next attempt at" in answer.sentence
    app.travel("20m")
    answer = why(app)
    (run,) = app.runs.list()
    assert (answer.verdict, answer.run, answer.remedy) == ("failed", run.id, f"evenbeat runs retry {run.id}")
    assert answer.sentence.endswith("failed after 2 attempts: ValueError: no such country")
    assert [text for text in texts(answer) if "attempt" in text] == [
        f"attempt {number} on virtual failed: ValueError: no such country" for number in (1, 2)
    ]
    app.runs.retry(run.id)
    app.travel("20m")
    assert why(app).sentence.endswith("failed after 4 attempts: ValueError: no such country")


def test_a_failed_run_that_was_started_by_hand_is_named(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1h"), "work")
    app.travel("61m")
    app.schedules.update("beat", task="flaky", retries=0)
    app.travel("1m")
    by_hand = app.schedules.run_now("beat")
    app.travel("5m")
    failed = f"run {by_hand.id}, started by hand, failed: ValueError: no such country"
    answer = why(app)
    assert (answer.verdict, ago(answer.tick)) == ("succeeded", 60)
    assert texts(answer)[-2:] == [failed, "next start"]
    assert answer.remedy == f"evenbeat runs retry {by_hand.id}"
    # A question about another time is not about that run.
    assert (why(app, 62).verdict, texts(why(app, 62))[-1]) == ("no_tick", failed)
    assert failed not in texts(why(app, 60))
    assert failed not in texts(why(app, 61))
    assert failed not in texts(why(app, 63))
    # The answer names what is wrong with the schedule first.
    app.schedules.pause("beat")
    assert failed in texts(why(app))
    assert why(app).remedy == "evenbeat schedules resume beat"
    app.schedules.update("beat", task="work")
    app.schedules.run_now("beat")
    app.travel("1m")
    assert failed not in texts(why(app))


def test_a_run_that_was_cancelled(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1h"), "flaky")
    app.travel("61m")
    (run,) = app.runs.list()
    with acting_as("ann"):
        app.runs.cancel(run.id)
    for answer in (why(app), app.runs.why(run.id)):
        assert answer.verdict == "cancelled"
        assert "cancelled by ann" in texts(answer)
        assert answer.remedy == f"to run it after all: evenbeat runs retry {run.id}"


def test_a_run_that_is_running(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "elsewhere")
    app.travel("90s")
    claim = Claim(worker="n7", token="t", limit=1, now=app.store.now(), lease=600_000)
    (held,) = app.store.claim_runs(claim).runs
    app.down_for("20s")
    answer = why(app)
    assert (answer.verdict, answer.run) == ("running", held.id)
    assert "has been running for 20.0 s on n7" in answer.sentence


def test_a_queued_run_waits_for_a_node(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1h"), "elsewhere", queue="slow")
    app.travel("1h")
    answer = why(app)
    assert (answer.verdict, answer.remedy) == ("no_worker", "start a node: evenbeat run APP")
    node(app)
    answer = why(app)
    assert (answer.verdict, answer.remedy) == ("no_task", "start a node that has the task elsewhere")
    assert "no live node has the task elsewhere" in answer.sentence
    node(app, "n2", tasks={"elsewhere": "thread"})
    answer = why(app)
    assert (answer.verdict, answer.remedy) == (
        "no_queue",
        "start a node that takes from the queue: evenbeat run APP --queues slow",
    )
    node(app, "n3", tasks={"elsewhere": "thread"}, queues=["slow"])
    answer = why(app)
    assert (answer.verdict, answer.remedy) == ("next", None)
    assert "n3 may take it any moment" in answer.sentence
    app.enqueue("elsewhere", queue="slow")
    claim = Claim(worker="n3", token="t", limit=1, now=app.store.now(), lease=600_000, queues=("slow",))
    (held,) = app.store.claim_runs(claim).runs
    (waits,) = [run.id for run in app.runs.list(state="queued")]
    answer = app.runs.why(waits)
    assert answer.verdict == "busy"
    assert held.id != waits


def test_a_run_that_was_enqueued_for_later(app: VirtualScheduler) -> None:
    run = app.enqueue("work", delay="1h")
    answer = app.runs.why(run.id)
    assert (answer.verdict, answer.schedule, answer.tick) == ("later", None, None)
    assert answer.sentence == f"run {run.id} of work is queued until Sun 2026-03-01 13:00 UTC"


def test_a_run_that_no_node_fits(app: VirtualScheduler) -> None:
    @app.task(name="typed")
    def typed(number: int) -> None: ...

    store = app.store
    assert isinstance(store, VirtualStore)
    run = app.enqueue("typed", {"number": 1})
    store._runs[run.id] = replace(store._runs[run.id], payload='{"other": 1}')
    app.run_pending()
    assert app.runs.why(run.id).verdict == "unfit"


# -- a tick without a run


def test_a_tick_to_come(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1h"), "work", spread="10m")
    delay = app.schedules.get("beat").spread_delay
    for answer in (why(app), why(app, 60)):
        assert (answer.verdict, ago(answer.tick)) == ("not_due", 60)
        assert any("its share of the spread" in text for text in texts(answer))
        assert NOON + 60 * MINUTE + delay in [fact.at for fact in answer.evidence]


def test_a_tick_that_waits_for_a_run(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "flaky", overlap="queue")
    app.travel("150s")
    (run,) = app.runs.list()
    for answer in (why(app), why(app, 2)):
        assert (answer.verdict, answer.run) == ("waits_for_run", run.id)
        assert answer.remedy == f"to end that run: evenbeat runs cancel {run.id}"
        assert "(overlap=queue)" in answer.sentence


def test_a_tick_that_waits_because_of_max_concurrent(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "flaky", max_concurrent=2)
    app.travel("200s")
    answer = why(app)
    assert (answer.verdict, ago(answer.tick)) == ("waits_for_run", 3)
    assert "(max_concurrent=2)" in answer.sentence


def test_a_due_tick_without_a_node(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.down_for("90s")
    node(app, ticker=False)
    answer = why(app)
    assert (answer.verdict, answer.remedy) == ("no_ticker", "start a node: evenbeat run APP")
    assert why(app, 1).verdict == "no_ticker"
    node(app, "n2")
    answer = why(app)
    assert (answer.verdict, texts(answer)) == ("due", ["live nodes that fire schedules: n2"])


def test_a_schedule_that_nodes_cannot_plan(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.down_for("90s")
    node(app)
    note = Record(kind="deferred", key="beat", body="tz Europe/Kyiv is not known")
    assert app.store.put_record(note)
    change(app, wake_at=app.store.now() + 60_000)
    answer = why(app)
    assert (answer.verdict, "Europe/Kyiv" in answer.sentence) == ("deferred", True)
    assert app.store.put_record(replace(note, kind="quarantine", body="payload: no"))
    change(app, wake_at=None)
    answer = why(app, 1)
    assert (answer.verdict, "payload: no" in answer.sentence) == ("quarantined", True)
    change(app, format=FORMAT + 1)
    assert why(app).verdict == "too_new"


def test_a_tick_whose_records_are_purged(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("10m"), "work")
    app.travel("60m")
    Pruner(app.store, retention=to_ms(app.now) - to_ms(NOON + 35 * MINUTE)).step(app.store.now())
    answer = why(app, 20)
    assert (answer.verdict, ago(answer.evidence[0].at)) == ("purged", 35)
    assert why(app, 40).verdict == "succeeded"


def test_a_tick_that_left_no_record(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("10m"), "work")
    app.travel("60m")
    store = app.store
    assert isinstance(store, VirtualStore)
    del store._runs[f"default/beat/1/{to_ms(NOON + 20 * MINUTE)}"]
    answer = why(app, 20)
    assert answer.verdict == "missing"
    assert answer.remedy == "report it, please; to list all such ticks: evenbeat account beat"


# -- the question


@pytest.mark.parametrize(
    ("asked", "minute"),
    [
        ("2026-03-01T12:10:00Z", 10),
        ("2026-03-01T13:10+01:00", 10),
        ("2026-03-01 12:10", 10),
        ("12:10", 10),
        ("12:10:00", 10),
        ("15m", 10),
        (timedelta(minutes=5, seconds=20), 20),
        ("+5m", 30),
        ("12:30", 30 - 24 * 60),  # the latest one in the past
    ],
)
def test_times_are_read_in_every_form(app: VirtualScheduler, asked: Any, minute: float) -> None:
    app.schedules.add("beat", every("10m"), "work")
    app.travel("25m30s")
    answer = app.schedules.why("beat", asked)
    assert ago(answer.asked) == minute


@pytest.mark.parametrize("asked", ["noon", "25:00", datetime(2026, 3, 1), "2026-13-01"])
def test_other_times_are_refused(app: VirtualScheduler, asked: Any) -> None:
    app.schedules.add("beat", every("10m"), "work")
    with pytest.raises(InvalidValue, match="at "):
        app.schedules.why("beat", asked)


def test_a_wall_clock_time_is_one_in_the_zone_of_the_trigger(app: VirtualScheduler) -> None:
    app.schedules.add("beat", cron("0 14 * * *", tz="Europe/Berlin"), "work")
    app.travel("2h")
    answer = app.schedules.why("beat", "14:00")
    assert (answer.verdict, answer.tick) == ("succeeded", NOON + 60 * MINUTE)
    assert "Sun 2026-03-01 14:00 +01:00" in answer.sentence


def test_a_command_names_the_tenant_and_a_run_belongs_to_one(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "flaky", tenant="acme")
    app.travel("12m")
    answer = app.schedules.why("beat", NOON + MINUTE, tenant="acme")
    assert (answer.remedy or "").endswith(" --tenant acme")
    assert answer.run is not None
    assert app.runs.why(answer.run, tenant="acme").verdict == "failed"
    with pytest.raises(RunNotFound):
        app.runs.why(answer.run)


# -- nodes of the past


def missed(**reports: dict[int, float]) -> str:
    """Return why a tick at 12:10 did not run that was fired at 12:25.

    ``reports`` are nodes: the minutes after noon of which they have records, and when they wrote these.
    """
    clock = VirtualClock()
    app = Scheduler(MemoryStore(clock))
    app.schedules.add("beat", every("10m"), "work")
    for node, minutes in reports.items():
        for minute, written in minutes.items():
            figures = make_rollup(
                {}, written_at=START + round(written * 60_000), ticker=node != "worker", worker=True
            )
            key = rollup_key("minute", START + minute * 60_000, node)
            assert app.store.put_record(Record(kind="rollup", key=key, body=write_rollup(figures)))
    clock.advance("25m")
    app.store.fire_due(clock.now, 10, plan)
    clock.advance("15m")
    answer = app.schedules.why("beat", "12:10")
    assert answer.verdict == "coalesced"
    clock.advance("3h")
    assert "alive" not in app.schedules.why("beat", NOON + 10 * MINUTE).sentence  # the records are deleted
    return answer.sentence


def test_a_tick_that_was_missed_because_no_node_was_alive() -> None:
    on_time = {minute: minute + 1.1 for minute in (*range(8), *range(25, 38))}
    given = "no node was alive from Sun 2026-03-01 12:08 UTC until Sun 2026-03-01 12:25 UTC; run "
    assert given in missed(n1=on_time, worker={minute: minute + 1.1 for minute in range(38)})


def test_a_tick_that_was_missed_because_the_store_was_away() -> None:
    reports = {minute: 25 if 8 <= minute <= 22 else minute + 1.1 for minute in range(38)}
    given = "the nodes could not reach the store from Sun 2026-03-01 12:08 UTC until Sun 2026-03-01 12:23 UTC"
    assert given in missed(n1=reports)
    # Another node could reach it.
    assert "reach the store" not in missed(n1=reports, n2={minute: minute + 1.1 for minute in range(38)})


def test_a_tick_that_was_missed_without_any_record_of_nodes() -> None:
    assert "alive" not in missed()
