"""Backfills of flows under limits: nodes that advance them wrongly are caught."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.rules import backfills
from evenbeat.rules.backfills import StoredBackfill
from evenbeat.rules.firing import TICKS_A_STEP, Planned
from tests.simulator.backends import MemoryBackend
from tests.simulator.simulation import DEFAULT, simulate, with_backfills
from tests.simulator.violation import SimulationFailed

MOST_SEEDS = 100
# Some mutants go on for ever.
OPTIONS = DEFAULT._replace(limits=True, patience=300)
_reserving, _writing = backfills.reserving, backfills.writing


def reserves_all_ticks(backfill: StoredBackfill, room: int) -> StoredBackfill:
    unbound = _reserving(replace(backfill, max_concurrent=1_000), room)
    return replace(unbound, max_concurrent=backfill.max_concurrent)


def passes_the_first_tick_over(backfill: StoredBackfill, room: int) -> StoredBackfill:
    after = _reserving(backfill, room)
    return replace(after, reserved=after.reserved[1:]) if backfill.cursor is None else after


def leaves_no_proof(
    row: ScheduleRecord, key: str, backfill: StoredBackfill, room: int, now: Instant
) -> Planned:
    return _writing(row, key, backfill, room, now)._replace(records=())


def ignores_the_policies(row: ScheduleRecord, active: int, payload: str | None = None) -> int:
    return TICKS_A_STEP


def waits_for_ever(row: ScheduleRecord, now: Instant) -> str:
    return "it has time"


def counts_nothing(backfill: StoredBackfill, runs: Mapping[Instant, RunRecord]) -> StoredBackfill:
    return backfill


def never_ends(backfill: StoredBackfill, now: Instant) -> StoredBackfill:
    return backfill


def keeps_what_was_reserved(backfill: StoredBackfill) -> StoredBackfill:
    return backfill


MUTANTS: dict[str, tuple[Callable[..., Any], ...]] = {
    "reserving": (reserves_all_ticks, passes_the_first_tick_over),
    "writing": (leaves_no_proof,),
    "policy_room": (ignores_the_policies,),
    "obstacle": (waits_for_ever,),
    "counted": (counts_nothing,),
    "finished": (never_ends,),
    "without_reserved": (keeps_what_was_reserved,),
}


@pytest.mark.parametrize(
    ("name", "mutant"),
    [pytest.param(name, each, id=each.__name__) for name, some in MUTANTS.items() for each in some],
)
def test_a_wrong_backfill_is_caught(monkeypatch: pytest.MonkeyPatch, name: str, mutant: object) -> None:
    monkeypatch.setattr(backfills, name, mutant)
    for seed in range(MOST_SEEDS):
        try:
            simulate(seed, MemoryBackend, with_backfills(OPTIONS, seed))
        except SimulationFailed:
            return
    pytest.fail("no seed has found it")
