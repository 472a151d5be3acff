"""Query strings and bodies as structs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest

from evenbeat.web.binding import read_body, read_query
from evenbeat.web.problems import Refused


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str = ""
    on: bool = False
    whole: Annotated[int, msgspec.Meta(ge=-10, le=10)] = 0
    number: float = 0.0
    state: Literal["active", "paused"] = "active"


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    count: int


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    count: int = 0
    payload: Any = None
    part: Part | None = None
    counts: list[int] = []
    parts: dict[str, Part] = {}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("text", "true", "true"),
        ("text", "4", "4"),
        ("on", "true", True),
        ("on", "false", False),
        ("whole", "4", 4),
        ("whole", "-10", -10),
        ("whole", "4.00", 4),
        ("number", "4", 4.0),
        ("number", "-0.25", -0.25),
        ("state", "paused", "paused"),
    ],
)
def test_a_parameter_is_read_from_its_text(name: str, text: str, value: object) -> None:
    found = getattr(read_query([(name, text)], Query), name)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("pairs", "field", "detail"),
    [
        ([("text", "a"), ("text", "b")], "text", "the parameter text is given twice"),
        ([("texts", "a")], "texts", "there is no parameter texts; did you mean text?"),
        ([("on", "1")], "on", 'on "1" is not true or false'),
        ([("whole", "4.5")], "whole", 'whole "4.5" is not a whole number of -10 to 10'),
        ([("whole", "1" * 19)], "whole", f'whole "{"1" * 19}" is not a whole number of -10 to 10'),
        ([("whole", "11")], "whole", "whole 11 is not a whole number of -10 to 10"),
        ([("number", "nan")], "number", 'number "nan" is not a number'),
        ([("number", "1e3")], "number", 'number "1e3" is not a number'),
        ([("state", "gone")], "state", 'state "gone" is not one of active, paused'),
    ],
)
def test_a_parameter_that_does_not_fit_is_named(
    pairs: list[tuple[str, str]], field: str, detail: str
) -> None:
    with pytest.raises(Refused) as refused:
        read_query(pairs, Query)
    problem = refused.value.problem
    assert (problem.status, problem.field, problem.detail) == (400, field, detail)


def test_whole_numbers_are_read_from_fractions_except_in_a_payload() -> None:
    raw = b'{"count": 4.0, "payload": {"count": 4.0}, "part": {"count": 5.0}, "counts": [6.0]}'
    body = read_body(raw, "application/json; charset=utf-8", Body)
    assert (body.count, body.part, body.counts) == (4, Part(5), [6])
    assert type(body.payload["count"]) is float
    assert read_body(b"", "", Body) == Body()


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b'{"counter": 1}', "counter"),
        (b'{"part": {}}', "part.count"),
        (b'{"part": {"count": 4.5}}', "part.count"),
        (b'{"counts": [1, "many"]}', "counts[1]"),
        (b'{"counts": {"a": 1}}', "counts"),
        (b'{"parts": {"a": {"count": 4.5}}}', "parts.a.count"),
        (b'{"count": "many"}', "count"),
        (b"[]", "body"),
        (b"{", "body"),
        (b"[" * 101 + b"]" * 101, "body"),
    ],
)
def test_a_body_that_does_not_fit_names_its_field(raw: bytes, field: str) -> None:
    with pytest.raises(Refused) as refused:
        read_body(raw, "application/json", Body)
    problem = refused.value.problem
    assert (problem.status, problem.field) == (400, field)


def test_a_parameter_in_the_body_is_said_to_be_one() -> None:
    for raw in (b'{"state": "active"}', b'{"part": {"state": "active"}}'):
        with pytest.raises(Refused) as refused:
            read_body(raw, "application/json", Body, Query)
        assert refused.value.problem.hint == "it is a parameter: add ?state=… to the URL"


def test_the_answer_to_a_body_has_the_value_that_does_not_fit() -> None:
    with pytest.raises(Refused) as refused:
        read_body(b'{"counts": [1, "many"]}', "application/json", Body)
    assert refused.value.problem.detail == 'counts[1] "many" is not a whole number'


def test_a_body_that_is_not_declared_as_json_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        read_body(b"{}", "text/plain", Body)
    assert (refused.value.problem.status, refused.value.problem.field) == (415, "Content-Type")
