"""The OpenAPI 3.1 document, made from the table of endpoints and the schemas of their structs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from evenbeat import __version__
from evenbeat.core.checks import LONGEST_RUN_ID, LONGEST_TASK, NAME_PATTERN, RUN_ID_PATTERN, TASK_PATTERN
from evenbeat.web.access import CSRF_HEADER
from evenbeat.web.binding import Nothing
from evenbeat.web.endpoint import KEY_PATTERN, LONGEST_KEY, TABLE, Endpoint
from evenbeat.web.problems import MEDIA_TYPE, Problem
from evenbeat.web.sessions import COOKIE

_PARAMETERS: dict[str, dict[str, Any]] = {
    "name": {
        "type": "string",
        "pattern": NAME_PATTERN,
        "maxLength": 128,
        "description": "The name of a schedule, or of an alert rule, channel or window.",
    },
    "id": {
        "type": "string",
        "pattern": RUN_ID_PATTERN,
        "minLength": 1,
        "maxLength": LONGEST_RUN_ID,
        "description": "The id. Slashes in it may be written as they are.",
    },
    "flow": {
        "type": "string",
        "pattern": TASK_PATTERN,
        "minLength": 1,
        "maxLength": LONGEST_TASK,
        "description": "The name of a flow. Slashes in it may be written as they are.",
    },
}
_IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": "The ETag as you last read it: 412 if there was a change since.",
    "schema": {"type": "string"},
}
_IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A text of your own. A repeated request with the same key adds nothing.",
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": KEY_PATTERN},
}
_SCHEMES = {
    "token": {"type": "http", "scheme": "bearer"},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": f"Set by POST /session. Changes also need the header {CSRF_HEADER}: csrf of GET /me.",
    },
}


def document(endpoints: Iterable[Endpoint] = TABLE) -> dict[str, Any]:
    """Return the document."""
    listed = list(endpoints)
    structs = {each.answer for each in listed if each.answer not in (None, str)}
    structs |= {each.body for each in listed if each.body is not Nothing} | {Problem}
    ordered = sorted(structs, key=lambda struct: str(struct.__name__))
    references, components = msgspec.json.schema_components(
        ordered, ref_template="#/components/schemas/{name}"
    )
    schema_of = dict(zip(ordered, references, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in listed:
        paths.setdefault(each.url, {})[each.method.lower()] = _operation(each, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Evenbeat",
            "version": __version__,
            "description": "Schedules, runs and what became of them.",
        },
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SCHEMES},
    }


def _operation(each: Endpoint, schema_of: dict[Any, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": each.summary}
    if each.answer is str:
        answer["content"] = {"text/plain": {"schema": {"type": "string"}}}
    elif each.answer is not None:
        answer["content"] = {"application/json": {"schema": schema_of[each.answer]}}
    if each.has_etag and each.method != "DELETE":
        answer["headers"] = {"ETag": {"schema": {"type": "string"}}}
    problem = {"description": "A problem.", "content": {MEDIA_TYPE: {"schema": schema_of[Problem]}}}
    operation: dict[str, Any] = {
        "operationId": each.handler.__name__,
        "tags": [each.group],
        "summary": each.summary,
        "description": _description(each),
        "parameters": _parameters(each),
        "responses": {str(int(each.status)): answer, "default": problem},
    }
    if each.is_public:
        operation["security"] = []
    if each.body is not Nothing:
        has_required = any(field.required for field in msgspec.structs.fields(each.body))
        operation["requestBody"] = {
            "required": has_required,
            "content": {"application/json": {"schema": schema_of[each.body]}},
        }
    return operation


def _description(each: Endpoint) -> str:
    doc = (each.handler.__doc__ or "").partition("\n")[2]
    rest = re.sub(r"[ \t]*\n[ \t]+", "\n", doc).strip()
    role = "Needs no token." if each.is_public else f"Needs the role {each.role}."
    return f"{rest}\n\n{role}" if rest else role


def _parameters(each: Endpoint) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in re.findall(r"{(\w+)}", each.path):
        schema = {key: value for key, value in _PARAMETERS[name].items() if key != "description"}
        words = _PARAMETERS[name]["description"]
        found.append({"name": name, "in": "path", "required": True, "description": words, "schema": schema})
    _, components = msgspec.json.schema_components([each.query])
    properties: dict[str, Any] = components[each.query.__name__].get("properties", {})
    required = components[each.query.__name__].get("required", [])
    for name, schema in properties.items():
        shown = {key: value for key, value in schema.items() if key != "description"}
        parameter = {"name": name, "in": "query", "required": name in required, "schema": shown}
        if "description" in schema:
            parameter["description"] = schema["description"]
        found.append(parameter)
    if each.has_etag and each.method != "GET" and "{name}" in each.path:
        found.append(_IF_MATCH)
    if each.is_idempotent:
        found.append(_IDEMPOTENCY)
    return found
