"""Writes ui/src/api/schema.ts, the TypeScript types of the REST API, from the OpenAPI document.

python -m tests.web.ui_schema
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import evenbeat.web.app  # noqa: F401 - importing it fills the table of endpoints
from evenbeat.web.openapi import document

MODULE = Path(__file__).parents[2] / "ui" / "src" / "api" / "schema.ts"
OPERATIONS = "Operations"
_PREFIX = "/api/v1"
_HEAD = """\
// Made from the OpenAPI document by tests/web/ui_schema.py. Do not edit it; write it anew:
//   python -m tests.web.ui_schema
"""
_PLAIN = {"string": "string", "boolean": "boolean", "integer": "number", "number": "number", "null": "null"}
_ANY_OBJECT = "{ [key: string]: unknown }"
_NO_PARAMETERS = "{ [key: string]: never }"


def made_module(described: dict[str, Any] | None = None) -> str:
    """Return the module: a type per schema, and the interface that maps operations to their types."""
    described = document() if described is None else described
    return "\n".join([_HEAD, *_schemas(described["components"]["schemas"]), *_operations(described["paths"])])


def _schemas(schemas: dict[str, Any]) -> Iterator[str]:
    named = {name: _identifier(name) for name in sorted(schemas)}
    taken = [*named.values(), OPERATIONS]
    twice = sorted({name for name in taken if taken.count(name) > 1})
    if twice:
        raise ValueError(f"two types would have the same name in {MODULE.name}: {', '.join(twice)}")
    for name, identifier in named.items():
        schema = schemas[name]
        yield from _comment(schema.get("description"))
        if "properties" in schema:
            yield f"export interface {identifier} {{"
            yield from _fields(schema["properties"], schema.get("required", []))
            yield "}"
        else:
            yield f"export type {identifier} = {_type(schema)};"
        yield ""


def _operations(paths: dict[str, Any]) -> Iterator[str]:
    operations = {
        f"{method.upper()} {path.removeprefix(_PREFIX)}": operation
        for path, methods in paths.items()
        for method, operation in methods.items()
    }
    yield f"export interface {OPERATIONS} {{"
    for name in sorted(operations, key=lambda each: each.split(" ")[::-1]):
        operation = operations[name]
        yield from _comment(operation.get("summary"), "  ")
        yield f"  {_text(name)}: {{"
        yield from _query([each for each in operation["parameters"] if each["in"] == "query"])
        yield f"    body: {_body(operation)};"
        yield f"    answer: {_answer(operation)};"
        yield "  };"
    yield "}"
    yield ""


def _query(parameters: list[dict[str, Any]]) -> Iterator[str]:
    if not parameters:
        yield f"    query: {_NO_PARAMETERS};"
        return
    yield "    query: {"
    for each in parameters:
        yield from _field(each["name"], each["schema"], each["required"], each.get("description"), " " * 6)
    yield "    };"


def _body(operation: dict[str, Any]) -> str:
    if "requestBody" not in operation:
        return "undefined"
    body = operation["requestBody"]
    made = _content(body["content"])
    return made if body["required"] else f"{made} | undefined"


def _answer(operation: dict[str, Any]) -> str:
    answers = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
    return " | ".join(dict.fromkeys(_content(answer.get("content", {})) for answer in answers))


def _content(content: dict[str, Any]) -> str:
    return " | ".join(dict.fromkeys(_type(each["schema"]) for each in content.values())) or "undefined"


def _fields(properties: dict[str, Any], required: list[str]) -> Iterator[str]:
    for name, schema in properties.items():
        yield from _field(name, schema, name in required, _description(schema), "  ")


def _field(
    name: str, schema: dict[str, Any], is_required: bool, words: str | None, indent: str
) -> Iterator[str]:
    yield from _comment(words, indent)
    key = name if name.isidentifier() else _text(name)
    yield f"{indent}{key}{'' if is_required else '?'}: {_type(schema)};"


def _description(schema: dict[str, Any]) -> str | None:
    found = [schema, *schema.get("anyOf", [])]
    return next((each["description"] for each in found if "description" in each), None)


def _comment(words: str | None, indent: str = "") -> Iterator[str]:
    if words:
        short = re.sub(r"\s+", " ", words).strip().replace("*/", "*\\/")
        yield f"{indent}/** {short} */"


def _type(schema: dict[str, Any]) -> str:
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return _union([_type(each) for each in schema[key]])
    if "allOf" in schema:
        return " & ".join(_in_parentheses(_type(each)) for each in schema["allOf"])
    if "$ref" in schema:
        return _identifier(str(schema["$ref"]).rpartition("/")[2])
    if "enum" in schema:
        return _union([_text(value) for value in schema["enum"]])
    if "const" in schema:
        return _text(schema["const"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return _union([_type({**schema, "type": each}) for each in kind])
    if kind == "array":
        return _array(schema)
    if kind == "object":
        return _object(schema)
    return "unknown" if kind is None else _PLAIN[kind]


def _array(schema: dict[str, Any]) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(_type(each) for each in schema['prefixItems'])}]"
    return f"{_in_parentheses(_type(schema.get('items') or {}))}[]"


def _object(schema: dict[str, Any]) -> str:
    if "properties" in schema:
        lines = _fields(schema["properties"], schema.get("required", []))
        return "{ " + " ".join(line.strip() for line in lines) + " }"
    values = schema.get("additionalProperties")
    if values is False:
        return _NO_PARAMETERS
    return f"{{ [key: string]: {_type(values)} }}" if isinstance(values, dict) else _ANY_OBJECT


def _union(types: list[str]) -> str:
    distinct = dict.fromkeys(types)
    return "unknown" if "unknown" in distinct else " | ".join(distinct)


def _in_parentheses(made: str) -> str:
    return f"({made})" if " | " in made or " & " in made else made


def _identifier(name: str) -> str:
    made = re.sub(r"[^A-Za-z0-9_$]+", "_", name).strip("_")
    return f"_{made}" if not made or made[0].isdigit() else made


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    MODULE.parent.mkdir(parents=True, exist_ok=True)
    MODULE.write_text(made_module())
