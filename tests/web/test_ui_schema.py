"""The TypeScript types of the API: up to date, and right about what JSON may hold."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.ui_schema import MODULE, made_module


def module_of(schemas: dict[str, Any], paths: dict[str, Any] | None = None) -> str:
    return made_module({"components": {"schemas": schemas}, "paths": paths or {}})


def type_of(schema: dict[str, Any]) -> str:
    (line,) = [line for line in module_of({"Sample": schema}).splitlines() if "type Sample" in line]
    return line.removeprefix("export type Sample = ").removesuffix(";")


def test_the_committed_types_are_those_of_the_api() -> None:
    assert MODULE.read_text() == made_module(), "write them anew: python -m tests.web.ui_schema"


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"type": "string", "format": "date-time"}, "string"),
        ({"type": "integer"}, "number"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string | null"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, "number"),
        ({"anyOf": [{}, {"type": "null"}]}, "unknown"),
        ({"enum": ["a", 'b"', 3, None]}, '"a" | "b\\"" | 3 | null'),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, '("a" | "b")[]'),
        ({"type": "array"}, "unknown[]"),
        ({"type": "array", "prefixItems": [{"type": "string"}, {}], "items": False}, "[string, unknown]"),
        ({"type": "object"}, "{ [key: string]: unknown }"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "{ [key: string]: number }"),
        ({"$ref": "#/components/schemas/Page[int]"}, "Page_int"),
        ({}, "unknown"),
    ],
)
def test_each_kind_of_schema_has_its_type(schema: dict[str, Any], wanted: str) -> None:
    assert type_of(schema) == wanted


def test_a_field_that_may_be_absent_has_a_question_mark() -> None:
    fields = {"id": {"type": "string"}, "retry-after": {"type": "integer", "description": "Seconds,\n*/ so."}}
    made = module_of({"Sample": {"type": "object", "properties": fields, "required": ["id"]}})
    assert 'id: string;\n  /** Seconds, *\\/ so. */\n  "retry-after"?: number;' in made


def test_an_operation_has_its_query_body_and_answer() -> None:
    sample = {"application/json": {"schema": {"$ref": "#/components/schemas/Sample"}}}
    limit = {"name": "limit", "in": "query", "required": False, "schema": {"type": "integer"}}
    operation = {
        "parameters": [limit, {"name": "If-Match", "in": "header"}],
        "requestBody": {"required": False, "content": sample},
        "responses": {"204": {}, "default": {"content": sample}},
    }
    made = module_of({"Sample": {"type": "string"}}, {"/api/v1/things": {"post": operation}})
    assert (
        '  "POST /things": {\n'
        "    query: {\n      limit?: number;\n    };\n"
        "    body: Sample | undefined;\n"
        "    answer: undefined;\n"
        "  };"
    ) in made
    assert "If-Match" not in made


@pytest.mark.parametrize("other", ["Page[int]", "Operations"])
def test_two_types_never_share_a_name(other: str) -> None:
    with pytest.raises(ValueError, match="the same name"):
        module_of({"Page_int": {"type": "string"}, other: {"type": "string"}})
