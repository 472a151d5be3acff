"""Dependencies of schedules: their text, their rules, and how the app checks, links and shows them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenbeat import (
    InvalidTrigger,
    InvalidValue,
    OnSuccess,
    RunContext,
    Scheduler,
    after,
    cron,
    every,
    on_success_of,
    parse_trigger,
)
from evenbeat.app.repairs import duplicates
from evenbeat.core.dependencies import LONGEST_SPAN, After, parse_after, read_after
from evenbeat.core.instants import to_ms
from evenbeat.core.records import CatchUp, RunRecord, ScheduleRecord
from evenbeat.doctor.diagnosis import diagnose
from evenbeat.rules import changes
from evenbeat.rules.dependencies import (
    MOST_SUCCESSES,
    NO_FACTS,
    Facts,
    Pending,
    Success,
    choose,
    cycle_through,
    facts_of,
    needs_facts,
    predecessor_run,
    success_run,
    successes_before,
)
from evenbeat.rules.firing import WAIT_CHECK, plan
from evenbeat.stores.base import ScheduleQuery, Write
from evenbeat.testing import VirtualScheduler, virtual

MINUTE = 60_000
HOUR = 60 * MINUTE
NOW = 1_772_366_400_000


# -- texts ---------------------------------------------------------------------------------------------------


def test_a_dependency_has_one_canonical_text() -> None:
    assert str(after("load", within="60m")) == "load within 1h"
    text = "load, clean within 45m wait 20m otherwise run"
    assert str(parse_after("load,clean  wait 20m otherwise run within 45m")) == text
    assert after("load", "clean", "load", within="45m", wait="20m", otherwise="run") == parse_after(text)
    assert read_after(None) == read_after("") == ""
    assert read_after(after("load", within=90)) == "load within 1m30s"


names = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,20}", fullmatch=True).filter(
    lambda name: name not in ("within", "wait", "otherwise")
)


@given(
    st.lists(names, min_size=1, max_size=20, unique=True),
    st.integers(1_000, LONGEST_SPAN),
    st.integers(0, LONGEST_SPAN),
    st.sampled_from(["skip", "run"]),
)
def test_the_text_of_a_dependency_reads_back(
    schedules: list[str], within: int, wait: int, otherwise: Any
) -> None:
    wanted = After(tuple(schedules), within, wait, otherwise)
    assert parse_after(str(wanted)) == wanted
    assert read_after(wanted) == str(wanted)


@pytest.mark.parametrize(
    ("given", "field", "problem"),
    [
        ("", None, None),
        ("load", "after", "does not say within which time"),
        ("within 1h", "after", "names no schedule"),
        ("load within", "after", "where within, wait or otherwise should follow"),
        ("load within 1h within 2h", "after", "where within, wait or otherwise should follow"),
        ("load within 1h soon", "after", "where within, wait or otherwise should follow"),
        ("a b/c within 1h", "after", "b/c"),
        ("load within -1h", "within", "-1h"),
        ("load within 0s", "within", "shorter than 1s"),
        ("load within 400d", "within", "longer than 366d"),
        ("load within 9223372036854775808d", "within", "9223372036854775808"),
        ("load within 1h wait -1s", "wait", "-1s"),
        ("load within 1h wait 367d", "wait", "longer than 366d"),
        ("load within 1h otherwise wait", "otherwise", "wait"),
        (" ".join(f"s{at}" for at in range(21)) + " within 1h", "after", "21 schedules"),
        (7, "after", "is not a dependency"),
        (["load"], "after", "is not a dependency"),
        ("x" * 5_000, "after", "is not a dependency"),
    ],
)
def test_bad_dependencies_are_refused_by_field(given: Any, field: str | None, problem: str | None) -> None:
    if field is None:
        assert read_after(given) == ""
        return
    with pytest.raises(InvalidValue) as refused:
        read_after(given)
    assert refused.value.field == field
    assert problem is not None
    assert problem in str(refused.value)


def test_a_trigger_on_success_has_a_text_and_no_ticks() -> None:
    trigger = on_success_of("load")
    assert parse_trigger(str(trigger)) == trigger == OnSuccess("load")
    assert parse_trigger("On  Success OF load") == trigger
    assert (trigger.next_ms(0), trigger.prev_ms(NOW), trigger.count_ms(0, NOW)) == (None, None, 0)
    assert trigger.explain() == "after each success of load"


@pytest.mark.parametrize(
    "text", ["on success of", "on success of a b", "on load", "on success of a tz=UTC", "on"]
)
def test_bad_triggers_on_success_are_refused(text: str) -> None:
    with pytest.raises(InvalidTrigger) as refused:
        parse_trigger(text)
    assert "on success of load" in str(refused.value)


def test_the_name_in_a_trigger_on_success_is_checked() -> None:
    with pytest.raises(InvalidValue, match="a/b"):
        on_success_of("a/b")
    with pytest.raises(InvalidTrigger, match="a/b"):
        parse_trigger("on success of a/b")


# -- rules ---------------------------------------------------------------------------------------------------


def row(trigger: str = "on success of load", **fields: Any) -> ScheduleRecord:
    wanted = ScheduleRecord(name="report", task="work", trigger=trigger, **fields)
    return changes.create(wanted, NOW - HOUR).schedule


def pending(*at: int, **fields: Any) -> Facts:
    found = [
        Pending(f"report/r{index}", Success(f"r{index}", each - 5, each, **{"generation": 1, **fields}))
        for index, each in enumerate(at)
    ]
    return Facts(pending=tuple(found))


def test_only_rows_with_dependencies_need_facts() -> None:
    assert needs_facts(row())
    assert needs_facts(row("every 1m", after="load within 1h"))
    assert not needs_facts(row("every 1m"))


def test_a_plan_without_facts_never_fires() -> None:
    due = replace(row("every 1h", after="load within 1h"), next_tick=NOW, wake_at=NOW)
    planned = plan(due, NOW)
    assert (planned.runs, planned.skipped, planned.schedule.next_tick) == ((), (), NOW)
    assert planned.schedule.wake_at == NOW + 1
    again = plan(row(), NOW)
    assert (again.runs, again.schedule.wake_at) == ((), NOW)


def test_successes_fire_oldest_first_and_the_rest_later() -> None:
    facts = pending(*range(NOW - 150, NOW))
    planned = plan(row(), NOW, (), facts)
    assert [run.scheduled_at for run in planned.runs] == list(range(NOW - 150, NOW - 50))
    assert len(planned.spent) == 100
    assert planned.schedule.wake_at == NOW
    large = plan(row(payload='"' + "x" * 900_000 + '"'), NOW, (), facts)
    assert len(large.runs) == 4


def test_a_waiting_success_is_shown_as_the_next_tick() -> None:
    from evenbeat.rules.firing import Active, is_waiting, wakes_on_run_end

    planned = plan(row(overlap="queue"), NOW, (Active("run", "running"),), pending(NOW - 10))
    assert (planned.schedule.next_tick, planned.schedule.wake_at) == (NOW - 10, NOW + WAIT_CHECK)
    assert is_waiting(planned.schedule)
    assert wakes_on_run_end(planned.schedule)
    cancelling = plan(row(overlap="cancel_running"), NOW, (Active("run", "running"),), pending(NOW - 10))
    assert cancelling.cancels == ("run",)


def test_a_wait_ends_at_the_deadline_and_counts_from_the_planned_start() -> None:
    due = replace(row("every 1h", after="load within 1m wait 10s"), next_tick=NOW, wake_at=NOW)
    facts = facts_of({"load": NOW - 2 * MINUTE}, ())
    assert plan(due, NOW, (), facts).schedule.wake_at == NOW + 10_000
    late = plan(due, NOW + 10_000, (), facts)
    assert [(skipped.reason, skipped.first) for skipped in late.skipped] == [("dependency", NOW)]
    assert late.schedule.next_tick == NOW + HOUR
    assert len(plan(due, NOW + 10_000, (), facts_of({"load": NOW}, ())).runs) == 1


def test_a_tick_that_waited_is_not_late() -> None:
    policy = CatchUp("skip", grace=1_000)
    fields = {"after": "load within 1h wait 30m", "catch_up": policy}
    due = replace(row("every 1h", **fields), next_tick=NOW, wake_at=NOW)
    met = facts_of({"load": NOW + 20 * MINUTE}, ())
    assert len(plan(due, NOW + 20 * MINUTE, (), met).runs) == 1
    assert [each.reason for each in plan(due, NOW + 40 * MINUTE, (), met).skipped] == ["late"]


def test_a_row_that_was_edited_by_hand_does_not_fire() -> None:
    from evenbeat.core.records import Record

    facts = facts_of({}, [Record(kind="success", key="report/x", body="{")])
    planned = plan(row(), NOW, (), facts)
    assert planned.runs == ()
    assert planned.spent == (("success", "default", "report/x"),)


def test_every_change_plans_a_schedule_on_success_again() -> None:
    # A change may overwrite the wake-up of a success that is settled meanwhile.
    made = row()
    changed = changes.change(made, {"description": "x"}, NOW)
    paused = changes.pause(made, NOW, until=NOW + HOUR)
    resumed = changes.resume(paused.schedule, NOW)
    run = changes.run_now(made, "by-hand", NOW)
    linked = changes.add_follower(made, "mail", NOW)
    assert changed is not None
    assert resumed is not None
    assert run is not None
    assert linked is not None
    for planned in (changed, paused, resumed, run, linked, changes.delete(made, NOW)):
        assert planned.schedule.wake_at == NOW
        assert planned.schedule.next_tick is None
    assert paused.schedule.state == "paused"
    assert resumed.schedule.state == "active"
    assert changes.add_follower(linked.schedule, "mail", NOW) is None
    assert linked.schedule.followers == "mail"


def test_a_new_trigger_on_success_begins_a_generation() -> None:
    made = row("every 1h")
    changed = changes.change(made, {"trigger": "on success of load"}, NOW)
    assert changed is not None
    assert (changed.schedule.state, changed.schedule.next_tick) == ("active", None)
    assert changed.schedule.generation == made.generation + 1
    back = changes.change(changed.schedule, {"trigger": "every 1h"}, NOW)
    assert back is not None
    assert back.schedule.next_tick == NOW + HOUR
    assert back.schedule.state == "active"


def test_a_follower_of_a_waiting_schedule_does_not_put_it_to_sleep() -> None:
    waiting = replace(row("every 1h", overlap="queue"), next_tick=NOW, wake_at=NOW + WAIT_CHECK)
    planned = changes.add_follower(waiting, "mail", NOW)
    assert planned is not None
    assert planned.schedule.wake_at == NOW
    asleep = replace(waiting, wake_at=None)  # quarantined
    planned = changes.add_follower(asleep, "mail", NOW)
    assert planned is not None
    assert planned.schedule.wake_at is None


def test_ids_contain_the_run_that_succeeded_or_its_hash() -> None:
    made = row()

    def id_after(run: str) -> RunRecord:
        return success_run(made, Success(run, None, NOW), NOW)

    assert id_after("default/load/1/5").id == "default/report/1/after/load/1/5"
    for run in ("default/load/1/5", "by-hand", "other/x/1/2", "/odd", "~odd"):
        assert predecessor_run(id_after(run)) == run
    long = "x" * 400
    assert id_after(long).id != id_after("y" * 400).id
    assert len(id_after(long).id) <= 400
    assert predecessor_run(id_after(long)) is None
    assert predecessor_run(RunRecord(id="a", task="t")) is None


def test_ids_tell_how_many_successes_led_to_a_run() -> None:
    made = {name: replace(row(), name=name) for name in ("report", "after")}
    for first in ("default/load/1/5", "by-hand", "default/by-hand", "other/x/1/after/y/1/5", "x" * 400):
        run, names = first, ("report", "after")
        assert successes_before(run, "default") == 0
        hashes = 0
        for number in range(1, 1_200):
            found = success_run(made[names[number % 2]], Success(run, None, NOW), NOW)
            assert successes_before(found.id, "default") == number
            hashes += predecessor_run(found) is None
            run = found.id
        assert hashes > 10
    for odd in ("~5", "~.5", "~x.5", "~\u0665.5", "~-5.5"):
        assert successes_before(f"default/a/1/after/{odd}", "default") == 1


def test_a_success_that_a_thousand_led_to_starts_nothing() -> None:
    made = row(trigger="on success of load")
    ids = [f"default/load/1/after/~{number}.x" for number in (MOST_SUCCESSES - 1, MOST_SUCCESSES)]
    pending = [Pending(f"report/{run}", Success(run, None, NOW, generation=1)) for run in ids]
    chosen = choose(made, pending, 10, 10)
    assert chosen.fires == (pending[0],)
    assert chosen.drops == (("chain", (pending[1],)),)
    assert chosen.left == ()


def test_cycles_are_found_through_others() -> None:
    graph = {"b": ("c", "d"), "c": ("e",), "e": ("a",), "d": ()}

    def leads_to(some: list[str]) -> dict[str, tuple[str, ...]]:
        return {name: graph[name] for name in some if name in graph}

    assert cycle_through("a", ("b",), leads_to) == ("a", "b", "c", "e", "a")
    assert cycle_through("a", ("a",), leads_to) == ("a", "a")
    assert cycle_through("x", ("b",), leads_to) is None


def test_no_facts_is_no_row_of_a_store() -> None:
    assert facts_of({}, ()) is not NO_FACTS


# -- the app -------------------------------------------------------------------------------------------------


@pytest.fixture
def time() -> Iterator[VirtualScheduler]:
    app = Scheduler("memory://")
    app.task(name="load")(lambda: None)
    app.task(name="work")(_result)
    with virtual(app) as time:
        time.schedules.add("load", every("1h"), "load")
        yield time


def _result(run: RunContext) -> str | None:
    return run.predecessor


def test_a_run_knows_its_predecessor(time: VirtualScheduler) -> None:
    time.schedules.add("report", on_success_of("load"), "work")
    time.schedules.add("mail", on_success_of("report"), "work")
    time.travel("1h")
    (load,) = time.app.runs.list(schedule="load")
    (report,) = time.app.runs.list(schedule="report")
    (mail,) = time.app.runs.list(schedule="mail")
    assert (report.tick, report.predecessor, report.result) == (load.tick, load.id, load.id)
    assert (mail.tick, mail.predecessor, mail.result) == (load.tick, report.id, report.id)
    assert load.predecessor is None


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"trigger": "on success of lod"},
            'schedule "lod", which does not exist in tenant default; did you mean load?',
        ),
        ({"trigger": every("1h"), "after": "load, nobody within 1h"}, 'names the schedule "nobody"'),
        ({"trigger": "on success of report"}, "report -> report"),
        ({"trigger": every("1h"), "after": "report within 1h"}, "report -> report"),
        (
            {"trigger": on_success_of("load"), "after": "load within 1h"},
            "has no effect on a schedule that fires",
        ),
    ],
)
def test_dependencies_that_can_not_be_are_refused(
    time: VirtualScheduler, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        time.schedules.add("report", task="work", **fields)
    assert problem in str(refused.value)
    assert refused.value.field in ("trigger", "after")
    assert [each.name for each in time.schedules.list()] == ["load"]


def test_cycles_are_refused_however_they_come_about(time: VirtualScheduler) -> None:
    schedules = time.schedules
    schedules.add("report", on_success_of("load"), "work")
    schedules.add("mail", every("1h"), "work", after=after("report", within="1h"))
    for change in ({"trigger": on_success_of("mail")}, {"after": "mail within 1h"}):
        with pytest.raises(InvalidValue, match="load -> mail -> report -> load"):
            schedules.update("load", **change)
    assert schedules.get("load").after is None
    assert schedules.dependencies("mail").followers == ()


def test_other_tenants_do_not_count(time: VirtualScheduler) -> None:
    with pytest.raises(InvalidValue, match="tenant acme"):
        time.schedules.add("report", on_success_of("load"), "work", tenant="acme")


def test_dependencies_are_shown_and_end(time: VirtualScheduler) -> None:
    schedules = time.schedules
    schedules.add("report", on_success_of("load"), "work")
    schedules.add("digest", cron("30 * * * *"), "work", after="load, report within 20m wait 10m")
    shown = schedules.dependencies("digest")
    assert shown.after == "load, report within 20m wait 10m"
    assert [(each.name, each.state, each.is_met) for each in shown.predecessors] == [
        ("load", "active", False),
        ("report", "active", False),
    ]
    assert schedules.dependencies("load").followers == ("digest", "report")
    time.travel("31m")
    waiting = schedules.dependencies("digest")
    assert waiting.waits_until is not None
    assert f"{waiting.waits_until:%H:%M}" == "12:40"
    assert schedules.get("digest").is_waiting
    why = schedules.why("digest")
    assert why.verdict == "waits_for_success"
    assert "waits for a success of load and report" in why.sentence
    assert "until Sun 2026-03-01 12:40 UTC" in why.sentence
    assert [fact.text for fact in why.evidence] == ["load has never succeeded", "report has never succeeded"]
    time.travel("10m")
    assert schedules.why("digest", "12:30").verdict == "dependency"
    assert schedules.account("digest").skipped == {"dependency": 1}
    schedules.update("digest", after=None)
    assert schedules.dependencies("digest").predecessors == ()
    assert schedules.dependencies("load").followers == ("report",)
    schedules.delete("report")
    assert schedules.dependencies("load").followers == ()


def test_why_names_a_predecessor_that_is_gone(time: VirtualScheduler) -> None:
    time.schedules.add("report", on_success_of("load"), "work")
    time.travel("1h")
    time.schedules.delete("load")
    why = time.schedules.why("report")
    assert why.verdict == "waits_for_success"
    assert [fact.text for fact in why.evidence] == ["load does not exist any more; its last success"]
    assert time.schedules.dependencies("report").predecessors[0].state == "deleted"


def test_the_account_of_a_schedule_on_success_counts_successes(time: VirtualScheduler) -> None:
    time.schedules.add("report", on_success_of("load"), "work")
    time.travel("2h")
    time.schedules.pause("report")
    time.travel("1h")
    account = time.schedules.account("report")
    assert (account.expected, account.ran, account.skipped) == (3, 2, {"paused": 1})
    assert account.adds_up
    assert time.schedules.preview("report") == []
    assert time.schedules.next_run("report") is None
    with pytest.raises(InvalidValue, match="has no tick to move"):
        time.schedules.reschedule("report", "1h")


def test_a_success_after_the_pause_fires_again(time: VirtualScheduler) -> None:
    time.schedules.add("report", on_success_of("load"), "work", paused=True)
    time.travel("1h")
    shown = time.schedules.preview_resume("report")
    assert shown.sentence == "It fires with the next success of load; those in the pause do not run."
    time.schedules.resume("report")
    time.travel("1h")
    assert len(time.app.runs.list(schedule="report")) == 1
    assert [row.reason for row in time.schedules.skipped("report")] == ["paused"]


def test_tasks_are_declared_after_those_that_they_depend_on() -> None:
    app = Scheduler("memory://")
    app.task(name="z", schedule=on_success_of("m"))(lambda: None)
    app.task(name="m", schedule=every("1h"), after="a within 1h")(lambda: None)
    app.task(name="a", schedule=every("1h"))(lambda: None)
    app.declare_tasks()
    assert [each.name for each in app.schedules.list()] == ["a", "m", "z"]
    assert app.schedules.dependencies("a").followers == ("m",)
    app.declare_tasks()  # nothing changes
    assert {each.revision for each in app.schedules.list() if each.name == "z"} == {1}


def test_a_cycle_of_tasks_is_refused_when_they_are_declared() -> None:
    app = Scheduler("memory://")
    app.task(name="a", schedule=on_success_of("b"))(lambda: None)
    app.task(name="b", schedule=on_success_of("a"))(lambda: None)
    app.task(name="c", schedule=every("1h"))(lambda: None)
    with pytest.raises(InvalidValue, match="would make a wait for itself: a -> b -> a"):
        app.declare_tasks()
    assert app.schedules.list() == []


def test_the_awaited_twin_returns_the_same(time: VirtualScheduler) -> None:
    time.schedules.add("report", on_success_of("load"), "work")
    found = asyncio.run(time.schedules.adependencies("report"))
    assert found == time.schedules.dependencies("report")


def test_two_schedules_that_follow_at_once_are_both_linked() -> None:
    app = Scheduler("memory://")
    app.task(name="work")(lambda: None)
    app.schedules.add("load", every("1h"), "work")
    names = [f"report-{at}" for at in range(8)]
    threads = [
        threading.Thread(target=app.schedules.add, args=(name, on_success_of("load"), "work"))
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert app.schedules.dependencies("load").followers == tuple(names)
    app.close()


def test_doctor_names_predecessors_that_are_gone_and_cycles(time: VirtualScheduler) -> None:
    schedules, store = time.schedules, time.app.store
    schedules.add("report", on_success_of("load"), "work")
    schedules.add("mail", every("1h"), "work", after="load, report within 1h")

    def found() -> dict[str, tuple[str, tuple[str, ...]]]:
        findings = [each for each in diagnose(store, store.now()) if each.check == "dependencies"]
        return {each.level: (each.message, each.details) for each in findings}

    assert found() == {}
    schedules.delete("load")
    words = "2 dependencies are on schedules that do not exist"
    assert found() == {"warn": (words, ("mail waits for load", "report waits for load"))}
    schedules.add("load", every("1h"), "load")
    row = time.app.store.find_schedules(ScheduleQuery(tenant="default", name="load")).items[0]
    # Two processes that write at the same moment may close a cycle.
    changed = changes.change(row, {"after": "mail within 1h"}, store.now())
    assert changed is not None
    assert store.put_schedules([Write(changed, row.version)])[0].accepted
    level, (message, details) = next(iter(found().items()))
    assert (level, message) == ("fail", "3 schedules wait for themselves")
    assert "load -> mail -> load" in details


def test_runs_after_successes_of_the_same_tick_are_no_duplicates(time: VirtualScheduler) -> None:
    time.schedules.add("report", on_success_of("load"), "work")
    time.travel("1h")
    store = time.app.store
    (load,) = time.app.runs.list(schedule="load")
    success = Success("backfilled", to_ms(load.tick or time.now), store.now())
    again = success_run(replace(row(), generation=1), success, store.now())
    store.add_runs([again])
    assert len({run.tick for run in time.app.runs.list(schedule="report")}) == 1
    assert duplicates(store)[0] == []


def test_a_backfill_starts_followers_and_satisfies_after(time: VirtualScheduler) -> None:
    schedules, runs = time.schedules, time.app.runs
    schedules.update("load", trigger=cron("0 0 1 1 *"))  # no tick of its own
    schedules.add("report", on_success_of("load"), "work")
    schedules.add("digest", cron("*/10 * * * *"), "work", after="load within 1h")
    time.travel("15m")
    assert schedules.account("digest").skipped == {"dependency": 1}
    schedules.backfill("load", "2024-01-01T00:00Z", "2026-01-02T00:00Z")
    time.travel("10m")
    backfilled = {run.id: run.tick for run in runs.list(schedule="load")}
    assert len(backfilled) == 3
    assert {run.predecessor: run.tick for run in runs.list(schedule="report")} == backfilled
    assert {run.predecessor_schedule for run in runs.list(schedule="report")} == {"load"}
    assert [run.state for run in runs.list(schedule="digest")] == ["succeeded"]


def test_a_task_instead_of_a_name_is_refused_with_what_to_write() -> None:
    app = Scheduler("memory://")
    load: Any = app.task(name="load")(lambda: None)
    with pytest.raises(InvalidValue) as refused:
        on_success_of(load)
    assert refused.value.field == "on_success_of"
    assert "is not the name of a schedule" in str(refused.value)
    assert 'write the name as a text: "load"' in str(refused.value)
    with pytest.raises(InvalidValue, match='write the name as a text: "load"'):
        after(load, within="1h")
    nothing: Any = 7
    with pytest.raises(InvalidValue, match="7 is not the name of a schedule"):
        on_success_of(nothing)
