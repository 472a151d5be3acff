"""Ids of runs made by hand: of their time, in the order of making, and never twice."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from evenbeat.core import ids
from evenbeat.core.ids import (
    first_key_of,
    id_of_key,
    instant_of,
    is_given_once,
    lasting_key,
    made_at_by,
    making_token,
    new_key,
    new_run_id,
    nonce_of,
)
from evenbeat.core.records import Record, RunRecord
from evenbeat.rules import unique_ends
from evenbeat.rules.unique_ends import end_marks

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


def test_only_chosen_ids_can_be_given_again() -> None:
    assert is_given_once("default/report/1/1772366400000", NOW)
    assert is_given_once(new_run_id(NOW), NOW)
    assert not is_given_once(new_run_id(NOW), NOW + 1)
    assert not is_given_once("order-42", NOW)
    assert not is_given_once(new_run_id(NOW) + "0", NOW)
    for run_id in ("order-42", new_run_id(NOW), "default/report/1/1772366400000"):
        key = lasting_key(run_id, NOW)
        assert id_of_key(key) == run_id
        assert (key == run_id) == is_given_once(run_id, NOW)
    assert lasting_key("order-42", NOW) != lasting_key("order-42", NOW + 1)


def test_the_time_of_an_id_is_known_if_it_was_made_here() -> None:
    assert made_at_by(new_run_id(NOW)) == NOW
    for other in ("order-42", "x" * 32, "A" * 32, new_run_id(NOW) + "0", new_run_id(NOW)[1:], ""):
        assert made_at_by(other) is None


def test_ids_that_are_derived_from_a_chosen_one_contain_a_part_of_its_claim() -> None:
    assert nonce_of("order-42", NOW, None) == ""
    assert nonce_of(new_run_id(NOW), NOW, "claim") == ""
    first = nonce_of("order-42", NOW, "claim")
    assert len(first) == 12
    assert first == nonce_of("order-42", NOW, "claim")
    assert first != nonce_of("order-42", NOW, "another claim")
    assert nonce_of("order-42", NOW, "\ud800") != ""


def test_a_chosen_id_has_a_token_of_its_making() -> None:
    assert making_token(new_run_id(NOW), NOW) is None
    tokens = {making_token("order-42", NOW) for _ in range(10)}
    assert len(tokens) == 10
    assert None not in tokens


def test_keys_of_records_sort_the_newest_first_and_tell_their_time() -> None:
    keys = [new_key(NOW + at) for at in (0, 0, 1, 2, 1_000)]
    assert sorted(keys, reverse=True) == keys
    assert [instant_of(key) for key in keys] == [NOW, NOW, NOW + 1, NOW + 2, NOW + 1_000]
    assert new_key(NOW + 1) < first_key_of(NOW) <= new_key(NOW)
    assert first_key_of(-5) == first_key_of(0) == "f" * 12
    assert first_key_of(1 << 60) == "0" * 12


def test_the_end_of_a_unique_run_leaves_a_mark_of_its_making() -> None:
    run = RunRecord(id="order-42", task="work", tenant="acme", created_at=NOW, unique_key="k")
    (mark,) = end_marks(run, NOW + 5)
    assert mark == Record(
        kind=unique_ends.KIND,
        tenant="acme",
        key=f"order-42/{NOW}",
        body="",
        expires=NOW + 5 + unique_ends.KEPT,
    )
    made = replace(run, id=new_run_id(NOW))
    assert [mark.key for mark in end_marks(made, NOW)] == [made.id]
    assert end_marks(replace(run, unique_key=None), NOW) == ()
