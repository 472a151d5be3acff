"""Compare-and-set, as the stores that decide in Python share it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat.core.records import Record, RunRecord, ScheduleRecord, Statistics, Transition
from evenbeat.rules.firing import Planned
from evenbeat.stores.batching import batches
from evenbeat.stores.decisions import (
    Budget,
    RunStatus,
    added,
    all_parts,
    changes,
    joint_verdict,
    may_be_repetition,
    parts,
    passes,
    settlement,
    verdict,
    weight,
    with_transition,
)

T = 1_772_366_400_000


def transition(**fields: Any) -> Transition:
    return Transition(
        **{"run": "r", "attempt": 2, "claim": None, "expect": ("running",), "token": "t", **fields}
    )


@pytest.mark.parametrize(
    ("run", "transition", "expected"),
    [
        (RunStatus("running", 2, None, None), transition(), "apply"),
        (RunStatus("running", 2, "other", None), transition(), "apply"),
        (RunStatus("succeeded", 9, "t", None), transition(), "repeat"),
        (RunStatus("running", 3, None, None), transition(), "refuse"),
        (RunStatus("running", 1, None, None), transition(), "refuse"),
        (RunStatus("queued", 2, None, None), transition(), "refuse"),
        (RunStatus("queued", 2, None, None), transition(expect=("running", "queued")), "apply"),
        (RunStatus("running", 2, None, T + 1), transition(lease_ended=True), "refuse"),
        (RunStatus("running", 2, None, T), transition(lease_ended=True), "apply"),
        (RunStatus("running", 2, None, None), transition(lease_ended=True), "apply"),
        (RunStatus("running", 2, None, T + 1), transition(), "apply"),
    ],
)
def test_a_transition_is_applied_repeated_or_refused(
    run: RunStatus, transition: Transition, expected: str
) -> None:
    assert verdict(run, transition, T) == expected


def test_a_budget_is_spent_by_runs_or_by_their_size() -> None:
    def planned(count: int, payload: str) -> Planned:
        schedule = ScheduleRecord(name="s", task="work", trigger="* * * * *", payload=payload)
        return Planned(schedule, tuple(RunRecord(id=str(number), task="work") for number in range(count)))

    def is_spent(*steps: Planned) -> bool:
        budget = Budget()
        for step in steps:
            budget.spend(step)
        return budget.is_spent

    assert not is_spent(planned(1_999, "1"))
    assert is_spent(planned(1_999, "1"), planned(1, "1"))
    large = (planned(3, "x" * 1_000_000), planned(1, "x" * 999_999))
    assert not is_spent(*large)
    assert is_spent(*large, planned(1, "x"))
    noted = planned(0, "x")._replace(records=(Record(kind="signal", key="1", body="x"),))
    assert not is_spent(*large, planned(0, "x"))
    assert is_spent(*large, noted)
    assert not Budget(1, 1).is_spent
    assert Budget(0, 1).is_spent
    assert Budget(1, 0).is_spent


def test_a_write_may_be_a_repetition_even_if_the_row_woke_up_since() -> None:
    row = ScheduleRecord(name="s", task="work", trigger="* * * * *", wake_at=T)
    assert may_be_repetition(row, row)
    assert may_be_repetition(replace(row, wake_at=T + 1), row)
    assert not may_be_repetition(replace(row, revision=2), row)
    assert not may_be_repetition(None, row)


def test_a_transition_sets_what_it_names_and_nothing_else() -> None:
    assert changes(transition(), T) == {"settled": "t"}
    named = transition(
        state="queued",
        failures=1,
        crashes=2,
        worker=None,
        cancel_requested=True,
        result="1",
        error="boom",
        delay=7,
        finished_at=T - 5,
        lease=30,
        renews=True,
    )
    assert changes(named, T) == {
        "state": "queued",
        "failures": 1,
        "crashes": 2,
        "worker": None,
        "cancel_requested": True,
        "result": "1",
        "error": "boom",
        "run_at": T + 7,
        "finished_at": T - 5,
        "lease_until": T + 30,
        "attempt": 3,
        "settled": "t",
    }
    # No clock of a node is ahead of the store's.
    assert changes(transition(finished_at=T + 5), T)["finished_at"] == T
    none = changes(transition(finished_at=None, lease=None, error=None, result=None), T)
    assert none == {"finished_at": None, "lease_until": None, "error": None, "result": None, "settled": "t"}
    run = RunRecord(id="r", task="work", state="running", attempt=2, error="before")
    assert with_transition(run, transition(state="succeeded"), T) == replace(
        run, state="succeeded", settled="t"
    )


def test_statistics_add_up_and_the_latest_counts() -> None:
    before = Statistics(
        tenant="acme",
        schedule="s",
        run_count=10,
        success_count=6,
        failure_count=3,
        last_run=1,
        last_success=2,
        last_failure=3,
        last_error="old",
    )
    more = Statistics(tenant="acme", schedule="s", run_count=1, success_count=1, last_run=7, last_success=8)
    assert added(before, more) == replace(before, run_count=11, success_count=7, last_run=7, last_success=8)
    failure = Statistics(
        tenant="acme", schedule="s", run_count=1, failure_count=1, last_run=9, last_failure=9, last_error=""
    )
    assert added(before, failure) == replace(
        before, run_count=11, failure_count=4, last_run=9, last_failure=9, last_error=""
    )


def test_statistics_without_a_time_keep_the_previous_one() -> None:
    before = Statistics(tenant="acme", schedule="s", last_run=1, last_success=2, last_failure=3)
    more = Statistics(tenant="acme", schedule="s", run_count=1)
    assert added(before, more) == replace(before, run_count=1)


def test_a_repetition_is_accepted_even_if_its_gate_has_closed_since() -> None:
    again = transition(gate=("acme", "s", 1, 1))
    done = settlement([again], {"r": RunStatus("queued", 3, "t", None)}, T, {("acme", "s"): (1, 2, 3)})
    assert (done.answers, done.updates) == ([True], {})


def test_the_weight_of_a_transition_is_its_texts() -> None:
    runs = (RunRecord(id="a", task="work", payload="x" * 5), RunRecord(id="b", task="work", payload="x" * 7))
    assert weight(transition()) == 0
    assert weight(transition(result=None, error=None)) == 0
    assert weight(transition(result="123", error="12", flow="1234")) == 9
    row = weight(transition(adds=runs[:1])) - 5
    assert weight(transition(result="123", error="12", adds=runs)) == 17 + 2 * row
    assert weight(transition(ends=(transition(result="123"), transition(adds=runs)))) == 15 + 4 * row
    assert weight(transition(records=(Record(kind="k", key="key", body="xyz"),))) == 3


def nested() -> Transition:
    """The end of a step, which ends its flow, which changes an outer flow; and the end of another step."""
    inner = transition(run="inner", ends=(transition(run="a"),), state="succeeded")
    return transition(run="outer", ends=(inner, transition(run="b")), flow="{}")


def test_the_parts_of_a_transition_are_its_ends_before_itself() -> None:
    assert [part.run for part in parts(nested())] == ["a", "inner", "b", "outer"]
    assert [part.run for part in all_parts([transition(), nested()])] == ["r", "a", "inner", "b", "outer"]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ({}, "apply"),
        *(({name: "refuse"}, "refuse") for name in ("a", "inner", "b", "outer")),
        *(({name: "repeat"}, "refuse") for name in ("a", "inner", "b", "outer")),
        ({"a": "repeat", "b": "repeat"}, "repeat"),
        ({"a": "repeat", "b": "repeat", "inner": "refuse", "outer": "refuse"}, "repeat"),
        ({"a": "repeat", "b": "refuse", "inner": "repeat", "outer": "repeat"}, "refuse"),
        (dict.fromkeys(("a", "inner", "b", "outer"), "repeat"), "repeat"),
    ],
)
def test_all_parts_apply_or_all_innermost_ends_have_been_applied(
    verdicts: dict[str, Any], expected: str
) -> None:
    assert joint_verdict(nested(), lambda part: verdicts.get(part.run, "apply")) == expected


@pytest.mark.parametrize("decision", ["apply", "repeat"])
def test_two_parts_of_one_run_are_refused(decision: Any) -> None:
    twice = transition(run="outer", ends=(transition(run="a"), transition(run="a", token="u")))
    assert joint_verdict(twice, lambda _: decision) == "refuse"


def test_the_parts_of_a_joint_transition_change_their_runs_or_none_does() -> None:
    statuses = {name: RunStatus("running", 2, None, None) for name in ("a", "inner", "b")}
    refused = settlement([nested()], dict(statuses), T)
    assert (refused.answers, refused.updates) == ([False], {})
    statuses["outer"] = RunStatus("running", 2, None, None)
    done = settlement([nested(), transition(run="b", token="u")], statuses, T)
    assert done.answers == [True, True]
    assert done.updates == {
        "a": {"settled": "t"},
        "inner": {"state": "succeeded", "settled": "t"},
        "b": {"settled": "u"},
        "outer": {"flow": "{}", "settled": "t"},
    }


def test_a_batch_has_a_thousand_of_the_runs_that_its_transitions_end_and_add() -> None:
    end, new = transition(run="step"), RunRecord(id="a", task="work", payload="")
    joint = transition(ends=(end,) * 100, adds=(new,) * 100)
    assert [len(part) for part in batches([joint] * 12, 1_000, weight)] == [5, 5, 2]
    assert [len(part) for part in batches([transition()] * 2_500, 1_000, weight)] == [1_000, 1_000, 500]


def test_a_gate_passes_only_if_the_schedule_is_unchanged() -> None:
    rows = {("acme", "s"): (2, 5, 7)}
    assert passes(transition(), rows)
    assert passes(transition(gate=("acme", "s", 2, 5)), rows)
    assert not passes(transition(gate=("acme", "s", 2, 6)), rows)
    assert not passes(transition(gate=("acme", "s", 3, 5)), rows)
    assert passes(transition(gate=("acme", "s", 2, 5), gate_fires=7), rows)
    assert not passes(transition(gate=("acme", "s", 2, 5), gate_fires=6), rows)
    assert passes(transition(gate=("acme", "gone", 0, 0)), rows)
    assert not passes(transition(gate=("acme", "gone", 2, 5)), rows)
    assert not passes(transition(gate=("other", "s", 2, 5)), rows)


def test_each_transition_of_a_batch_sees_the_ones_before_it() -> None:
    counts = Statistics(tenant="acme", schedule="s", run_count=1, success_count=1, last_run=T)
    more = RunRecord(id="next", task="work")
    first, second, refused = (Record(kind="audit", key=key, body="") for key in "123")
    ended = transition(
        token="u", state="succeeded", counts=counts, wakes=("acme", "s"), adds=(more,), records=(first,)
    )
    batch = [
        transition(lease=30),
        ended,
        ended,
        transition(token="v", state="failed", records=(refused,)),
        transition(run="nobody", records=(refused,)),
        transition(run="other", state="succeeded", counts=counts, wakes=("acme", "s"), records=(second,)),
        transition(run="next", attempt=0, expect=("queued",), state="cancelled", token="w"),
        transition(run="gated", gate=("acme", "s", 1, 1), records=(refused,)),
    ]
    statuses = {name: RunStatus("running", 2, None, None) for name in ("r", "other", "gated")}
    done = settlement(batch, statuses, T, {("acme", "s"): (1, 2, 3)})
    assert done.answers == [True, True, True, False, False, True, True, False]
    assert done.updates == {
        "r": {"lease_until": T + 30, "state": "succeeded", "settled": "u"},
        "other": {"state": "succeeded", "settled": "t"},
        "next": {"state": "cancelled", "settled": "w"},
    }
    assert done.adds == [more]
    assert done.records == [first, second]
    assert done.counts == {("acme", "s"): replace(counts, run_count=2, success_count=2)}
    assert list(done.wakes) == [("acme", "s")]


def test_later_transitions_of_a_batch_compare_with_the_changed_run() -> None:
    back = transition(state="queued", delay=0, lease=None, renews=True)
    claim = transition(token="u", attempt=3, expect=("queued",), lease=50)
    late = transition(token="v", attempt=3, expect=("queued",), lease_ended=True)
    done = settlement([back, claim, late], {"r": RunStatus("running", 2, None, T - 1)}, T)
    assert done.answers == [True, True, False]
    again = settlement([back, back, claim], {"r": RunStatus("running", 2, None, T + 9)}, T)
    assert again.answers == [True, True, True]
    assert again.updates["r"] == {
        "state": "queued",
        "run_at": T,
        "lease_until": T + 50,
        "attempt": 3,
        "settled": "u",
    }


@pytest.mark.parametrize(
    ("status", "change", "frees"),
    [
        (RunStatus("running", 2, None, None, "c"), {"state": "succeeded"}, True),
        (RunStatus("running", 2, None, None, "c"), {"state": "queued"}, True),
        (
            RunStatus("running", 2, None, None, "c"),
            {"state": "succeeded", "token": "refused", "attempt": 1},
            False,
        ),
        (RunStatus("running", 2, None, None, "c"), {"lease": 30}, False),
        (RunStatus("running", 2, None, None, "c"), {"state": "running"}, False),
        (RunStatus("running", 2, None, None), {"state": "succeeded"}, False),
        (RunStatus("queued", 2, None, None, "c"), {"state": "cancelled", "expect": ("queued",)}, False),
        (RunStatus("succeeded", 2, "t", None, "c"), {"state": "succeeded"}, False),
    ],
)
def test_a_run_of_a_cohort_that_stops_running_frees_a_slot(
    status: RunStatus, change: dict[str, Any], frees: bool
) -> None:
    assert settlement([transition(**change)], {"r": status}, T).frees == frees


def test_a_batch_frees_a_slot_if_any_of_its_transitions_does() -> None:
    batch = [transition(lease=30), transition(token="u", state="queued"), transition(token="v", attempt=9)]
    assert settlement(batch, {"r": RunStatus("running", 2, None, None, "c")}, T).frees
