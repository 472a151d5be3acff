"""Why a tick did, or did not, become a run: the checks, their order, and the tick that a time means."""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args

import pytest

from evenbeat.core.explanations import Verdict
from evenbeat.core.instants import read_instant
from evenbeat.core.rates import Rate
from evenbeat.core.records import FORMAT, CatchUp, RunRecord, ScheduleRecord, Skipped
from evenbeat.observe.explanations import tick_view
from evenbeat.rules.asked_ticks import Asked, Place, locate, present_tick
from evenbeat.rules.ticks import spread_delay
from evenbeat.rules.waiting import Waiting
from evenbeat.rules.why import Finding, MinuteNodes, NodeMinutes, Outage, TickFacts, why_run, why_tick
from evenbeat.triggers.zones import read_zone

MINUTE, HOUR = 60_000, 3_600_000
T = read_instant("2026-03-01T12:00:00Z", "T")
"""The tick."""
NOW = T + 10 * MINUTE


def schedule(**fields: Any) -> ScheduleRecord:
    usual = {
        "name": "beat",
        "task": "work",
        "trigger": "0 * * * *",
        "anchor": T - 24 * HOUR,
        "created_at": T - 24 * HOUR,
        "next_tick": T + HOUR,
        "wake_at": T + HOUR,
    }
    return ScheduleRecord(**{**usual, **fields})


def run(**fields: Any) -> RunRecord:
    usual: dict[str, Any] = {"id": "r", "task": "work", "schedule": "beat", "tick": T, "created_at": T}
    return RunRecord(**{**usual, **fields})


def row(reason: Any = "paused", **fields: Any) -> Skipped:
    usual = {"tenant": "default", "schedule": "beat", "generation": 1, "count": 1, "recorded_at": T}
    return Skipped(**{**usual, "first": T, "last": T, "reason": reason, **fields})


def facts(row_: ScheduleRecord | None = None, **fields: Any) -> TickFacts:
    usual: dict[str, Any] = {"place": Place(T, T - HOUR, T + HOUR), "asked": Asked(T, T + MINUTE)}
    return TickFacts(now=NOW, schedule=row_ or schedule(), **{**usual, **fields})


DUE = schedule(next_tick=T, wake_at=T)
PAUSED = schedule(state="paused", paused_at=T - MINUTE, paused_by="ann", pause_note="migration", next_tick=T)
GONE = schedule(state="deleted", next_tick=None, wake_at=None, updated_at=T - 1)
QUEUED = run(run_at=T)

CASES: list[tuple[Verdict, TickFacts]] = [
    ("unreadable", facts(schedule(damage="trigger: no"))),
    ("not_yet_created", facts(schedule(created_at=NOW, anchor=NOW))),
    ("deleted", facts(GONE)),
    ("deleted", facts(GONE, asked=None)),
    ("trigger_unknown", facts(schedule(anchor=NOW))),
    ("paused", facts(PAUSED)),
    ("paused", facts(PAUSED, asked=None)),
    ("paused", facts(PAUSED, place=Place())),
    ("paused", facts(row=row("paused"))),
    ("no_tick", facts(place=Place(None, T - HOUR, T + HOUR))),
    ("finished", facts(schedule(state="finished", next_tick=None), asked=None)),
    ("finished", facts(schedule(state="finished", next_tick=None), asked=None, run=run(state="succeeded"))),
    ("failed", facts(schedule(state="finished", next_tick=None), asked=None, run=run(state="failed"))),
    ("coalesced", facts(row=row("coalesced", run="r2"))),
    ("late", facts(row=row("late"))),
    ("limit", facts(row=row("limit"))),
    ("overlap", facts(row=row("overlap"))),
    ("changed", facts(row=row("changed"))),
    ("rescheduled", facts(row=row("rescheduled"))),
    ("rescheduled", facts(moved=run(tick=T - 1))),
    ("rescheduled", facts(moved=row("paused", first=T - 1, last=T - 1))),
    ("rescheduled", facts(schedule(next_tick=T - 1, moved=T))),
    ("deleted", facts(row=row("deleted"))),
    *((state, facts(run=run(state=state, worker="n1"))) for state in ("succeeded", "failed", "cancelled")),
    ("running", facts(run=run(state="running", worker="n1", started_at=T))),
    *(
        (reason, facts(run=QUEUED, waiting=Waiting(reason, NOW + 1, ("n1",))))
        for reason in (
            "later",
            "retry",
            "unfit",
            "no_worker",
            "no_task",
            "no_queue",
            "limited",
            "busy",
            "next",
        )
    ),
    ("not_due", facts(place=Place(T + HOUR), asked=Asked(T + HOUR, T + HOUR + MINUTE))),
    ("too_new", facts(schedule(next_tick=T, format=FORMAT + 1), tickers=("n1",))),
    ("quarantined", facts(schedule(next_tick=T, wake_at=None), tickers=("n1",))),
    ("quarantined", facts(DUE, tickers=("n1",), quarantined="no such zone")),
    ("deferred", facts(DUE, tickers=("n1",), deferred="no such zone")),
    (
        "catching_up",
        facts(
            schedule(
                next_tick=T, last_fire=T, wake_at=T + 6_000, catch_up=CatchUp("all", rate=Rate(10, 60_000))
            ),
            tickers=("n",),
        ),
    ),
    (
        "waits_for_run",
        facts(schedule(next_tick=T, wake_at=T, overlap="queue"), active=(run(id="a"),), tickers=("n",)),
    ),
    ("waits_for_run", facts(schedule(next_tick=T, wake_at=NOW + 1, overlap="queue"), active=(run(id="a"),))),
    ("waits_for_run", facts(schedule(next_tick=T, max_concurrent=1), active=(run(id="a"),), tickers=("n",))),
    ("dependency", facts(row=row("dependency"))),
    ("chain", facts(row=row("chain"))),
    ("waits_for_success", facts(schedule(next_tick=T, wake_at=NOW + 1, after="load within 1h wait 1d"))),
    (
        "waits_for_success",
        facts(
            schedule(next_tick=T, wake_at=NOW + 1, after="load, clean within 1s wait 1d"),
            last_successes={"load": T, "clean": NOW},
            gone=("load",),
        ),
    ),
    (
        "waits_for_success",
        facts(schedule(trigger="on success of load", next_tick=None), place=Place(), asked=None),
    ),
    ("due", facts(schedule(next_tick=T, max_concurrent=2, wake_at=T), active=(run(id="a"),), tickers=("n",))),
    ("no_ticker", facts(schedule(next_tick=T, overlap="queue", wake_at=T), active=(run(id="a"),))),
    ("no_ticker", facts(DUE)),
    ("due", facts(DUE, tickers=("n1",))),
    ("purged", facts(purged=T + 1)),
    ("missing", facts(purged=T)),
    ("missing", facts()),
]


@pytest.mark.parametrize(("verdict", "known"), CASES)
def test_the_first_check_that_applies_gives_the_verdict(verdict: Verdict, known: TickFacts) -> None:
    finding = why_tick(known)
    assert finding.verdict == verdict
    answer = tick_view(known, finding)
    assert answer.verdict == verdict
    assert answer.sentence
    assert answer.sentence == answer.sentence.strip()
    assert "None" not in answer.sentence


def test_every_verdict_is_tried() -> None:
    elsewhere = {"never_existed", "code_only", "clock_skipped", "clock_repeated", "calendar"}
    assert {verdict for verdict, _ in CASES} | elsewhere == set(get_args(Verdict))


ORDER: list[tuple[Verdict, dict[str, Any]]] = [
    ("coalesced", {"row": row("coalesced")}),
    ("succeeded", {"run": run(state="succeeded")}),
    ("rescheduled", {"moved": run(tick=T - 1)}),
    ("purged", {"purged": T + 1}),
    ("missing", {}),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_earlier_checks_win(first: int) -> None:
    known: dict[str, Any] = {}
    for _, more in ORDER[first:]:
        known |= more
    assert why_tick(facts(**known)).verdict == ORDER[first][0]


def test_a_record_of_the_tick_says_more_than_the_state_of_the_schedule() -> None:
    done = run(state="succeeded")
    for now_so in (GONE, PAUSED, schedule(created_at=NOW), schedule(anchor=NOW)):
        assert why_tick(facts(now_so, run=done)) == Finding("succeeded", done)


def test_a_pause_explains_the_time_within_it_only() -> None:
    later = schedule(state="paused", paused_at=T + MINUTE, next_tick=T + HOUR)
    assert why_tick(facts(later)).verdict == "missing"
    ending = schedule(state="paused", paused_at=T - MINUTE, paused_until=T + HOUR, next_tick=T)
    assert why_tick(facts(ending)).verdict == "paused"
    after = facts(ending, place=Place(T + HOUR), asked=Asked(T + HOUR, T + HOUR + MINUTE))
    assert why_tick(after).verdict == "not_due"
    # Its end has passed, and no node has ended it yet.
    over = schedule(state="paused", paused_at=T - HOUR, paused_until=T - 1, next_tick=T)
    assert why_tick(facts(over)).verdict == "no_ticker"


def test_a_queued_run_has_the_reason_why_it_waits() -> None:
    assert why_run(QUEUED, Waiting("no_task")) == Finding("no_task", QUEUED)
    assert why_run(QUEUED, None).verdict == "next"


# -- nodes of the past


def minutes(*nodes: str) -> NodeMinutes:
    """Each word is a minute: its nodes, those that were cut off from the store in capitals."""
    return NodeMinutes(
        T,
        tuple(
            MinuteNodes(frozenset(word.lower()), frozenset(char.lower() for char in word if char.isupper()))
            for word in nodes
        ),
    )


@pytest.mark.parametrize(
    ("known", "minute", "expected"),
    [
        (minutes(), 0, None),
        (minutes("a", "ab"), 1, None),
        (minutes("a", "", "", "b"), 1, Outage("no_node", T + MINUTE, T + 3 * MINUTE)),
        (minutes("", "a"), 0, Outage("no_node", None, T + MINUTE)),
        (minutes("a", "", ""), 1, Outage("no_node", T + MINUTE, None)),
        # Perhaps no node writes such records.
        (minutes("", ""), 1, None),
        (minutes("a", "A", "AB", "a"), 2, Outage("store_away", T + MINUTE, T + 3 * MINUTE)),
        (minutes("a", "Ab", "a"), 1, None),
        (minutes("a", "A", "", "a"), 1, Outage("store_away", T + MINUTE, T + 2 * MINUTE)),
        (minutes("a"), 1, None),
        (minutes("a"), -1, None),
    ],
)
def test_an_outage_is_known_from_the_nodes_of_each_minute(
    known: NodeMinutes, minute: int, expected: Outage | None
) -> None:
    assert known.outage(T + minute * MINUTE + 5) == expected


@pytest.mark.parametrize("reason", ["coalesced", "late", "limit"])
def test_a_missed_tick_names_the_outage(reason: Any) -> None:
    known = facts(row=row(reason, run="r9"), minutes=minutes("", "", "a"))
    finding = why_tick(known)
    assert finding.outage == Outage("no_node", None, T + 2 * MINUTE)
    answer = tick_view(known, finding)
    assert "no node was alive until Sun 2026-03-01 12:02 UTC" in answer.sentence
    away = facts(row=row(reason, run="r9"), minutes=minutes("A", "a"))
    assert "could not reach the store" in tick_view(away, why_tick(away)).sentence
    paused = facts(row=row("paused"), minutes=minutes(""))
    assert why_tick(paused).outage is None


# -- the tick that a time means


def asked(text: str, zone: str = "UTC", width: int = MINUTE) -> Asked:
    at = read_instant(text, "at", read_zone(zone).info)
    moment = datetime.fromisoformat(text)
    return Asked(at, at + width, moment if moment.tzinfo is None else None)


def instant(text: str) -> int:
    return read_instant(text, "instant")


def test_a_minute_stands_for_the_ticks_in_it() -> None:
    seconds = schedule(trigger="30 0 * * * *")
    assert locate(seconds, asked("2026-03-01T12:00Z")).tick == T + 30_000
    assert locate(seconds, asked("2026-03-01T12:00:00Z", width=1_000)).tick is None
    assert locate(seconds, asked("2026-03-01T12:00:30Z", width=1_000)).tick == T + 30_000


def test_the_ticks_beside_a_time_are_named() -> None:
    assert locate(schedule(), asked("2026-03-01T12:20Z")) == Place(None, T, T + HOUR)
    assert locate(schedule(), asked("2026-03-01T12:00Z")) == Place(T, T - HOUR, T + HOUR)
    # The trigger had no tick before it was given.
    assert locate(schedule(anchor=T), asked("2026-03-01T12:20Z")) == Place(None, None, T + HOUR)


def test_a_time_may_be_the_start_that_the_spread_gives_or_a_moved_tick() -> None:
    spread = schedule(spread=30 * MINUTE)
    start = T + spread_delay(spread)
    assert start > T + MINUTE
    minute = start // MINUTE * MINUTE
    assert locate(spread, Asked(minute, minute + MINUTE)).tick == T
    moved = schedule(next_tick=T + 20 * MINUTE + 5, moved=T + HOUR)
    assert locate(moved, asked("2026-03-01T12:20Z")).tick == T + 20 * MINUTE + 5


BERLIN = {"anchor": 0, "created_at": 0}


@pytest.mark.parametrize(
    ("options", "text", "tick", "clock"),
    [
        # 29 March: the clock goes from 02:00 to 03:00.
        ("", "2026-03-29 02:30", "2026-03-29T03:00+02:00", "skipped"),
        (" gap=skip", "2026-03-29 02:30", None, "skipped"),
        ("", "2026-03-29 02:45", None, "skipped"),
        ("", "2026-03-29T03:30+02:00", None, None),
        ("", "2026-03-28 02:30", "2026-03-28T02:30+01:00", None),
        # 25 October: the clock goes back from 03:00 to 02:00.
        ("", "2026-10-25 02:30", "2026-10-25T02:30+02:00", None),
        (" repeat=last", "2026-10-25 02:30", "2026-10-25T02:30+01:00", None),
        ("", "2026-10-25T02:30+01:00", None, "repeated"),
        (" repeat=last", "2026-10-25T02:30+02:00", None, "repeated"),
        (" repeat=both", "2026-10-25T02:30+01:00", "2026-10-25T02:30+01:00", None),
        ("", "2026-10-25T02:31+01:00", None, None),
    ],
)
def test_a_clock_change_moves_or_drops_a_tick(
    options: str, text: str, tick: str | None, clock: str | None
) -> None:
    berlin = schedule(trigger=f"30 2 * * * tz=Europe/Berlin{options}", **BERLIN)
    place = locate(berlin, asked(text, "Europe/Berlin"))
    assert (place.tick, place.clock) == (None if tick is None else instant(tick), clock)


def test_a_time_that_does_not_exist_is_explained() -> None:
    berlin = schedule(trigger="30 2 * * * tz=Europe/Berlin", next_tick=instant("2026-04-01T00:30Z"), **BERLIN)
    question = asked("2026-03-29 02:30", "Europe/Berlin")
    known = TickFacts(
        now=instant("2026-03-30T00:00Z"), schedule=berlin, place=locate(berlin, question), asked=question
    )
    answer = tick_view(known, why_tick(known))
    assert answer.verdict == "clock_skipped"
    assert answer.sentence == (
        "02:30 on 2026-03-29 does not exist in Europe/Berlin: the clock is set forward; beat runs at "
        "Sun 2026-03-29 03:00 +02:00 instead"
    )
    skip = schedule(trigger="30 2 * * * tz=Europe/Berlin gap=skip", **BERLIN)
    known = known._replace(schedule=skip, place=locate(skip, question))
    answer = tick_view(known, why_tick(known))
    assert "does not run on this day (gap=skip)" in answer.sentence
    assert "gap=shift" in (answer.remedy or "")
    assert [fact.text for fact in answer.evidence] == [
        "the clock is set forward",
        "tick before",
        "tick after",
    ]


def test_a_time_that_comes_twice_is_explained() -> None:
    berlin = schedule(trigger="30 2 * * * tz=Europe/Berlin", **BERLIN)
    question = asked("2026-10-25T02:30+01:00", "Europe/Berlin")
    known = facts(berlin, place=locate(berlin, question), asked=question)
    answer = tick_view(known, why_tick(known))
    assert answer.verdict == "clock_repeated"
    assert "shows this time twice; beat runs the first time (repeat=first)" in answer.sentence


@pytest.mark.parametrize(
    ("row_", "expected"),
    [
        (schedule(), T),  # the last one
        (schedule(next_tick=T, wake_at=T), T),  # due
        (schedule(next_tick=T + HOUR, anchor=T), T + HOUR),  # the first to come
        (schedule(next_tick=None, state="finished"), T),
        (schedule(next_tick=T + 5, moved=T + HOUR), T + 5),  # a moved tick that is due
        (schedule(trigger="at 2026-01-01T00:00:00Z", next_tick=None), instant("2026-01-01T00:00Z")),
    ],
)
def test_the_present_is_explained_by_the_due_tick_or_the_last_one(
    row_: ScheduleRecord, expected: int
) -> None:
    assert present_tick(row_, NOW).tick == expected
