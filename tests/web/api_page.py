"""Writes docs/api.md, the reference of the REST API, from the OpenAPI document.

python -m tests.web.api_page
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evenbeat.web.app import ENDPOINTS
from evenbeat.web.endpoint import TABLE, Endpoint
from evenbeat.web.openapi import document

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
_START = "<!-- made from the OpenAPI document by tests/web/api_page.py -->\n"


def made_page(page: str) -> str:
    """Return the page with its reference made anew; the text before it stays."""
    before = page.partition(_START)[0]
    return before + _START + "\n".join(_lines(document())) + "\n"


def _lines(made: dict[str, Any]) -> Iterator[str]:
    schemas = made["components"]["schemas"]
    modules = [module.__name__ for module in ENDPOINTS]
    table = sorted(TABLE, key=lambda each: modules.index(each.handler.__module__))
    for group in dict.fromkeys(each.group for each in table):
        yield ""
        yield f"## {group.capitalize() if group != 'me' else 'The sender'}"
        for each in (each for each in table if each.group == group):
            yield from _endpoint(each, made["paths"][each.url][each.method.lower()], schemas)


def _endpoint(each: Endpoint, operation: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield f"### `{each.method} {each.path}`"
    yield ""
    yield f"{each.summary} " + ("Needs no token." if each.is_public else f"Role: {each.role}.")
    rest = re.sub(r"\s*\n\s*", " ", (each.handler.__doc__ or "").partition("\n")[2]).strip()
    if rest:
        yield ""
        yield rest
    rows = [
        (f"`{one['name']}`", _type(one["schema"], schemas), one.get("description", ""))
        for one in operation["parameters"]
        if one["in"] != "path"
    ]
    if rows:
        yield ""
        yield from _table("parameter", rows)
    if "requestBody" in operation:
        reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        schema = schemas[reference.rpartition("/")[2]]
        required = schema.get("required", [])
        yield ""
        yield from _table(
            "field of the body",
            [
                (
                    f"`{name}`" + (" (required)" if name in required else ""),
                    _type(field, schemas),
                    field.get("description", ""),
                )
                for name, field in schema["properties"].items()
            ],
        )


def _table(title: str, rows: list[tuple[str, str, str]]) -> Iterator[str]:
    yield f"| {title} | takes | |"
    yield "| --- | --- | --- |"
    for row in rows:
        cells = (cell.replace("|", "\\|") for cell in row)
        yield f"| {' | '.join(cells)} |"


def _type(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one, schemas) for one in schema["anyOf"]))
    if "$ref" in schema:
        return "an object: " + ", ".join(f"`{name}`" for name in schemas[_name(schema)]["properties"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "any JSON")
    if kind in ("integer", "number"):
        low, high = schema.get("minimum"), schema.get("maximum")
        words = "whole number" if kind == "integer" else "number"
        return f"{words}, {low:,g} to {high:,g}" if low is not None and high is not None else words
    names = {"string": "text", "boolean": "`true`, `false`", "object": "object", "null": "null"}
    if kind == "array":
        return f"list of {_type(schema.get('items', {}), schemas)}"
    return names.get(str(kind), str(kind))


def _name(schema: dict[str, Any]) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


if __name__ == "__main__":
    PAGE.write_text(made_page(PAGE.read_text()))
