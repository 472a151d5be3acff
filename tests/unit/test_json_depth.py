"""JSON texts of bounded depth."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from evenbeat.core.json_depth import MAX_DEPTH, TooDeep, check_depth, decode, is_nested_deeper


def lists(levels: int) -> str:
    return "[" * levels + "]" * levels


def objects(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.parametrize("nested", [lists, objects])
@pytest.mark.parametrize("as_bytes", [True, False])
def test_a_text_may_be_nested_on_a_hundred_levels(nested: Any, as_bytes: bool) -> None:
    def text(levels: int) -> str | bytes:
        made: str = nested(levels)
        return made.encode() if as_bytes else made

    assert decode(text(MAX_DEPTH)) == msgspec.json.decode(text(MAX_DEPTH))
    for levels in (MAX_DEPTH + 1, 2 * MAX_DEPTH):
        with pytest.raises(TooDeep, match="nested on more than 100 levels"):
            decode(text(levels))


def test_what_no_decoder_can_read_is_too_deep() -> None:
    with pytest.raises(TooDeep, match="nested on more than 100 levels"):
        decode(lists(1_000_000))


def test_a_text_with_many_brackets_is_not_deep() -> None:
    wide = [{"a": [number]} for number in range(MAX_DEPTH)]
    assert decode(msgspec.json.encode(wide)) == wide
    assert decode(msgspec.json.encode(wide).decode()) == wide


def test_brackets_are_counted_before_a_value_is_looked_at() -> None:
    deep = msgspec.json.decode(lists(MAX_DEPTH + 1))
    check_depth("", deep)  # a text with so few brackets can't have that value
    check_depth("[" * (MAX_DEPTH - 1) + "{", deep)
    check_depth(b"[" * (MAX_DEPTH - 1) + b"{", deep)
    for text in ("[" * MAX_DEPTH + "{", b"[" * MAX_DEPTH + b"{"):
        with pytest.raises(TooDeep):
            check_depth(text, deep)


@pytest.mark.parametrize(
    ("value", "levels"),
    [(1, 0), ([], 1), ({}, 1), ((), 1), ([[]], 2), ({"a": [1, {"b": 2}]}, 3), ([1, [2]], 2)],
)
def test_levels_of_a_value(value: object, levels: int) -> None:
    assert not is_nested_deeper(value, levels)
    assert levels == 0 or is_nested_deeper(value, levels - 1)
