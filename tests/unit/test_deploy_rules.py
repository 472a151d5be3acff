"""The rules of deploys: what is decided about one schedule, and what a plan shows of it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat.core.records import ScheduleRecord
from evenbeat.rules import changes, deploying
from evenbeat.rules.definitions import definition
from evenbeat.rules.firing import Active

NOW = 1_772_366_400_000
WANTED = ScheduleRecord(name="s", task="t", trigger="every 1h", managed_by="code:shop")


def stored(**fields: Any) -> ScheduleRecord:
    planned = changes.declare(WANTED, NOW, None)
    assert planned is not None
    return replace(planned.schedule, **fields)


def decided(wanted: ScheduleRecord, row: ScheduleRecord) -> tuple[deploying.Decision, int]:
    """Return the decision, and how often active runs were read for it."""
    reads: list[str] = []

    def active_runs(found: ScheduleRecord) -> tuple[Active, ...]:
        reads.append(found.name)
        return ()

    return deploying.decide((wanted, None), row, NOW, active_runs), len(reads)


@pytest.mark.parametrize(
    ("fields", "action", "reads"),
    [
        ({}, "unchanged", 0),
        ({"retries": 1}, "change", 1),
        ({"managed_by": "code"}, "change", 1),
        ({"wake_at": None}, "change", 1),
        ({"wake_at": None, "state": "paused"}, "unchanged", 0),
        ({"damage": "trigger"}, "change", 1),
    ],
)
def test_active_runs_are_read_only_for_a_schedule_that_may_change(
    fields: dict[str, Any], action: str, reads: int
) -> None:
    retries = fields.pop("retries", None)
    row = stored(**fields)
    if retries is not None:
        row = replace(row, declared=definition(replace(WANTED, description="before")), description="before")
    decision, found = decided(WANTED, row)
    assert (decision.action, decision.why, found) == (action, "", reads)


def test_a_schedule_that_moves_to_another_source_gets_its_new_definition_too() -> None:
    decision, _ = decided(replace(WANTED, description="new"), stored(managed_by="code"))
    assert decision.planned is not None
    assert decision.planned.schedule.description == "new"


def test_an_orphan_was_declared_by_one_of_these_owners_and_is_not_deleted() -> None:
    def is_orphan(row: ScheduleRecord) -> bool:
        return deploying.is_orphan(row, frozenset({"code:shop", "api"}), frozenset({("default", "kept")}))

    assert is_orphan(stored())
    assert not is_orphan(stored(state="deleted"))
    assert not is_orphan(stored(name="kept"))
    assert not is_orphan(stored(managed_by="code:other"))
    assert not is_orphan(stored(managed_by="api")), "made by hand, whatever the owners say"


def test_differences_name_the_options_that_a_plan_shows() -> None:
    before, then = stored(), stored(description="new")
    shown = [(each.field, each.before, each.after) for each in deploying.differences(before, then)]
    assert shown == [("description", "", "new")]
    gone = {each.field: (each.before, each.after) for each in deploying.differences(before, None)}
    assert gone == {"task": ("t", None), "trigger": ("every 1h", None), "managed_by": ("code:shop", None)}
    for other in (None, replace(then, state="deleted")):
        assert deploying.differences(before, other) == deploying.differences(before, None)
        new = {each.field: each.after for each in deploying.differences(other, before)}
        assert new == {"task": "t", "trigger": "every 1h", "managed_by": "code:shop"}


def test_a_damaged_declaration_has_no_edits() -> None:
    edited = stored(description="by hand")
    assert list(deploying.edits_of(edited)) == ["description"]
    assert deploying.edits_of(replace(edited, declared="{")) == {}
    assert deploying.edits_of(replace(edited, damage="queue")) == {}


def test_a_token_is_that_of_one_change_of_one_version() -> None:
    row = stored()
    tokens = {
        deploying.token_of("change", WANTED, row),
        deploying.token_of("add", WANTED, row),
        deploying.token_of("change", replace(WANTED, description="x"), row),
        deploying.token_of("change", replace(WANTED, managed_by="file:shop"), row),
        deploying.token_of("change", WANTED, replace(row, revision=9)),
        deploying.token_of("change", WANTED, replace(row, generation=9)),
        deploying.token_of("add", WANTED, None),
        deploying.token_of("remove", None, row),
    }
    assert len(tokens) == 8
    fired = replace(row, fire_seq=9, next_tick=NOW + 1)
    assert deploying.token_of("change", WANTED, fired) == deploying.token_of("change", WANTED, row)
