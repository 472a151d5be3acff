"""Successes that are settled without the rows of schedules: nodes that hand them over wrongly are caught."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, ScheduleRecord, Transition
from evenbeat.node import owed_successes
from evenbeat.rules import owed
from evenbeat.rules.owed import HandOver, Key
from evenbeat.stores.base import Store
from tests.simulator.backends import MemoryBackend
from tests.simulator.simulation import DEFAULT, simulate
from tests.simulator.violation import SimulationFailed

OPTIONS = DEFAULT._replace(product=True, dependencies=True)
MOST_SEEDS = 400


def keeps_what_it_handed_over(
    records: Sequence[Record], rows: Mapping[Key, ScheduleRecord], now: Instant
) -> HandOver:
    done = owed.hand_over(records, rows, now)
    return done._replace(plans=tuple(planned._replace(spent=()) for planned in done.plans))


def loses_what_it_hands_over(
    records: Sequence[Record], rows: Mapping[Key, ScheduleRecord], now: Instant
) -> HandOver:
    done = owed.hand_over(records, rows, now)
    return done._replace(plans=tuple(planned._replace(records=()) for planned in done.plans))


def owes_nothing(transition: Transition, now: Instant) -> Transition:
    return replace(owed.without_schedule(transition, now), records=transition.records)


class ReadsRecordsFirst(owed_successes.OwedSuccesses):
    """Does not look whether the records are there after it has read the rows."""

    def __init__(self, store: Store) -> None:
        super().__init__(_Remembering(store))  # type: ignore[arg-type]


class _Remembering:
    """Answers every second search for records with the answer to the one before."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: list[Record] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def find_records(self, kind: str, **only: Any) -> list[Record]:
        known, self._found = self._found, None
        if known:
            return known
        self._found = self._store.find_records(kind, **only)
        return self._found


MUTANTS: dict[str, tuple[Any, ...]] = {
    "hand_over": (keeps_what_it_handed_over, loses_what_it_hands_over),
    "without_schedule": (owes_nothing,),
    "OwedSuccesses": (ReadsRecordsFirst,),
}


@pytest.mark.parametrize(
    ("name", "mutant"),
    [pytest.param(name, each, id=each.__name__) for name, some in MUTANTS.items() for each in some],
)
def test_a_wrong_hand_over_is_caught(monkeypatch: pytest.MonkeyPatch, name: str, mutant: object) -> None:
    monkeypatch.setattr(owed_successes, name, mutant)
    for seed in range(MOST_SEEDS):
        try:
            simulate(seed, MemoryBackend, OPTIONS)
        except SimulationFailed:
            return
    pytest.fail("no seed has found it")
