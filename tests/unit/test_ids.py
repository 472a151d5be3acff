"""Ids of runs made by hand: of their time, in the order of making, and never twice."""

from __future__ import annotations

import pytest

from evenbeat.core import ids
from evenbeat.core.ids import new_run_id

NOW = 1_772_366_400_000


def test_ids_begin_with_their_time_and_grow_within_it() -> None:
    made = [new_run_id(NOW) for _ in range(5_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert {(len(one), int(one[:12], 16)) for one in made} == {(32, NOW)}
    assert new_run_id(NOW + 1) > made[-1]
    assert new_run_id(NOW) not in made


def test_two_processes_that_continue_from_the_same_id_create_different_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new_run_id(NOW)
    forked = ids._last
    first = {new_run_id(NOW) for _ in range(100)}
    monkeypatch.setattr(ids, "_last", forked)
    assert first.isdisjoint(new_run_id(NOW) for _ in range(100))


def test_an_id_starts_over_where_no_larger_one_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_last", (NOW, (1 << 80) - 1))
    assert len(new_run_id(NOW)) == 32
