"""Binding: query strings and bodies as structs. What does not fit is refused, with the field's name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from evenbeat.core.json_text import is_nested_deeper
from evenbeat.web.problems import Refused

LONGEST_BODY = 2_000_000
MOST_NESTED = 100
"""How many levels of lists and objects a body may have."""
S = TypeVar("S", bound=msgspec.Struct)


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query or body of an endpoint that takes none."""


_FIELD = re.compile(r" - at `\$?\.?([^`]*)`$")
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_WHOLE = re.compile(r"-?[0-9]{1,18}(\.0+)?")
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")


def read_query(pairs: Iterable[tuple[str, str]], kind: type[S]) -> S:
    """Return the parameters of a query string.

    Numbers and booleans are read from their texts. A parameter may be repeated only if it is a list.
    """
    properties = _properties(kind)
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name not in properties:
            raise _invalid(f"there is no parameter {name}", name, text, f"there are: {_listed(properties)}")
        if properties[name].get("type") == "array":
            values.setdefault(name, []).append(text)
        elif name in values:
            raise _invalid(f"parameter {name} is given twice", name, text)
        else:
            values[name] = _value(name, text, properties[name])
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise _refusal(error, values, kind) from None


def read_body(raw: bytes, content_type: str, kind: type[S]) -> S:
    """Return the body of a request; an empty one counts as an object without fields."""
    if not raw:
        raw = b"{}"
    elif content_type.partition(";")[0].strip().lower() != "application/json":
        raise Refused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported-media-type",
            "the body is not JSON",
            field="Content-Type",
            value=content_type,
            hint="send it with Content-Type: application/json",
        )
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Refused(
            HTTPStatus.BAD_REQUEST, "invalid-json", f"the body is not JSON: {error}", field="body"
        ) from None
    if is_nested_deeper(value, MOST_NESTED):
        raise Refused(
            HTTPStatus.BAD_REQUEST,
            "invalid-json",
            f"the body is nested on more than {MOST_NESTED} levels",
            field="body",
        )
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        pass
    # In JSON, 4.0 is a whole number. Only fields of ours are read that way: a payload stays as it is.
    try:
        return msgspec.convert(_with_whole_numbers(value), kind)
    except msgspec.ValidationError as error:
        raise _refusal(error, value, kind) from None


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: each if name == "payload" else _with_whole_numbers(each) for name, each in value.items()
        }
    if isinstance(value, list):
        return [_with_whole_numbers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@cache
def _schemas(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schemas of a struct and of its parts, by name."""
    return msgspec.json.schema_components([kind], ref_template="{name}")[1]


def _properties(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of each field."""
    properties: dict[str, Any] = _schemas(kind)[kind.__name__]["properties"]
    return properties


def _schema_at(kind: type[msgspec.Struct], path: str) -> dict[str, Any]:
    """Return the JSON schema of a field, as ``filter.state``; an empty one for an item of a list."""
    schemas = _schemas(kind)
    found: dict[str, Any] = schemas[kind.__name__]
    for name in path.split(".") if path else ():
        found = found.get("properties", {}).get(name, {})
        found = schemas.get(found.get("$ref", ""), found)
    return found


def _value(name: str, text: str, schema: dict[str, Any]) -> Any:
    kind = schema.get("type")
    if kind == "boolean":
        if text not in ("true", "false"):
            raise _invalid(f"{name} is not true or false", name, text)
        return text == "true"
    if kind == "integer":
        if not _WHOLE.fullmatch(text):
            raise _invalid(f"{name} is not a whole number", name, text)
        return int(text.partition(".")[0])
    if kind == "number":
        if not _NUMBER.fullmatch(text):
            raise _invalid(f"{name} is not a number", name, text)
        return float(text)
    return text


def _refusal(error: msgspec.ValidationError, values: object, kind: type[msgspec.Struct]) -> Refused:
    text = str(error)
    unknown = _UNKNOWN.match(text)
    found = _FIELD.search(text)
    if unknown:
        fields = _schema_at(kind, found[1] if found else "").get("properties", {})
        return _invalid(f"there is no field {unknown[1]}", unknown[1], None, f"there are: {_listed(fields)}")
    missing = _MISSING.match(text)
    if missing:
        within = f"{found[1]}." if found else ""
        return _invalid(f"the field {within}{missing[1]} is missing", f"{within}{missing[1]}", None)
    field = found[1] if found else "body"
    problem = (text[: found.start()] if found else text).replace("`", "")
    value = values.get(field) if isinstance(values, dict) else None
    choices = _schema_at(kind, field).get("enum") if found else None
    if choices:
        return _invalid(f"{field} is not one of the choices", field, value, f"there are: {_listed(choices)}")
    return _invalid(f"{field}: {problem[0].lower()}{problem[1:]}", field, value)


def _invalid(detail: str, field: str, value: object, hint: str | None = None) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, "invalid-value", detail, field=field, value=value, hint=hint)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(str, names)) or "none"
