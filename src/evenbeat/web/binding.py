"""Binding: query strings and bodies as structs. Refuses values that do not fit, by the field's name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from evenbeat.core.checks import LABEL_PATTERN, LABELS, NAME_PATTERN, NAMES, TASK_PATTERN
from evenbeat.core.json_depth import TOO_DEEP, TooDeep, decode
from evenbeat.core.json_text import encode
from evenbeat.errors import shown
from evenbeat.web.problems import Refused

LONGEST_BODY = 2_000_000
_VISIBLE = r"[^\x00-\x1f\x7f-\x9f]"
ONE_LINE = rf"^{_VISIBLE}*[^\s\x00-\x1f\x7f-\x9f]{_VISIBLE}*$"
S = TypeVar("S", bound=msgspec.Struct)


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query or body of an endpoint that takes none."""


_FIELD = re.compile(r" - at `\$?\.?([^`]*)`$")
_KEY = re.compile(r" - at `key` in `\$\.?([^`]*)`$")
# Of an object whose fields have names that the client chooses, msgspec does not tell the name.
_ANY_NAME = "[...]"
_PART = re.compile(r"\[[^\]]*\]|[^.\[]+")
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_WHOLE = re.compile(r"-?[0-9]{1,18}(\.0+)?")
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
# The most characters of a refused list or object that an answer quotes.
_SHOWN = 80
# What a schema of a type asks for, the keywords of its bounds, and what these count.
_KINDS = {
    "integer": ("a whole number", "minimum", "maximum", ""),
    "number": ("a number", "minimum", "maximum", ""),
    "string": ("a text", "minLength", "maxLength", " characters"),
    "array": ("a list", "minItems", "maxItems", " items"),
    "boolean": ("true or false", "", "", ""),
    "object": ("an object", "", "", ""),
    "null": ("null", "", "", ""),
}
_PATTERNS = {
    NAME_PATTERN: NAMES,
    LABEL_PATTERN: LABELS,
    TASK_PATTERN: "1 to {maxLength} visible characters",
    ONE_LINE: "one line of visible characters",
}


def read_query(pairs: Iterable[tuple[str, str]], kind: type[S]) -> S:
    """Return the parameters of a query string.

    Numbers and booleans are read from their texts. No parameter may be repeated.
    """
    properties = _properties(kind)
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name not in properties:
            raise _invalid(f"there is no parameter {name}", name, text, _nearest(name, properties))
        if name in values:
            raise _invalid(f"the parameter {name} is given twice", name, text)
        values[name] = _value(text, properties[name])
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise _refusal(error, values, kind) from None


def read_body(raw: bytes, content_type: str, kind: type[S], query: type[msgspec.Struct] = Nothing) -> S:
    """Return the body of a request; an empty one counts as an object without fields.

    ``query`` has the parameters of the same request: a refusal says so if one of them is in the body.
    """
    if not raw:
        raw = b"{}"
    elif content_type.partition(";")[0].strip().lower() != "application/json":
        raise Refused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported-media-type",
            f"the body has the Content-Type {shown(content_type)}, not application/json",
            field="Content-Type",
            value=content_type,
            hint="send it with Content-Type: application/json",
        )
    try:
        value = decode(raw)
    except (msgspec.DecodeError, UnicodeError) as error:
        reason = TOO_DEEP if isinstance(error, TooDeep) else f"not JSON: {error}"
        raise Refused(HTTPStatus.BAD_REQUEST, "invalid-json", f"the body is {reason}", field="body") from None
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        pass
    # In JSON, 4.0 is a whole number. Only fields of ours are read that way: a payload stays as it is.
    try:
        return msgspec.convert(_with_whole_numbers(value), kind)
    except msgspec.ValidationError as error:
        raise _refusal(error, value, kind, query) from None


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
    """Return the JSON schema of a field, as ``filter.state``, or of an item of a list, as ``tags[0]``."""
    schemas = _schemas(kind)
    found: dict[str, Any] = schemas[kind.__name__]
    for name in _PART.findall(path):
        if name == _ANY_NAME:
            found = found.get("additionalProperties", {})
        elif name.startswith("["):
            found = found.get("items", {})
        else:
            found = found.get("properties", {}).get(name, {})
        found = schemas.get(found.get("$ref", ""), found)
    return found


def _value_at(value: Any, path: str) -> Any:
    """Return the value of a field or of an item; None if there is none."""
    for name in _PART.findall(path):
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list):
            value = value[int(name[1:-1])]
        else:
            return None
    return value


def _value(text: str, schema: dict[str, Any]) -> Any:
    """Return the value that a text stands for; the text itself if it does not fit, which is refused later."""
    kind = schema.get("type")
    if kind == "boolean" and text in ("true", "false"):
        return text == "true"
    if kind == "integer" and _WHOLE.fullmatch(text):
        return int(text.partition(".")[0])
    if kind == "number" and _NUMBER.fullmatch(text):
        return float(text)
    return text


def _refusal(
    error: msgspec.ValidationError,
    values: object,
    kind: type[msgspec.Struct],
    query: type[msgspec.Struct] = Nothing,
) -> Refused:
    text = str(error)
    if key := _KEY.search(text):
        return _wrong_key(values, kind, key[1])
    found = _FIELD.search(text)
    path = found[1] if found else ""
    if _ANY_NAME in path:
        schema, path = _schema_at(kind, path), _named(values, kind, path)
    else:
        schema = _schema_at(kind, path)
    within = f"{path}." if path else ""
    if unknown := _UNKNOWN.match(text):
        hint = _nearest(unknown[1], schema.get("properties", {}))
        if unknown[1] in query.__struct_fields__:
            hint = f"it is a parameter: add ?{unknown[1]}=… to the URL"
        return _invalid(f"there is no field {within}{unknown[1]}", f"{within}{unknown[1]}", None, hint)
    if missing := _MISSING.match(text):
        return _invalid(f"the field {within}{missing[1]} is missing", f"{within}{missing[1]}", None)
    value, expected = _value_at(values, path), _expected(schema)
    if not path:
        return _invalid(f"the body is not {expected}", "body", value)
    return _invalid(f"{path} {_json(value)} is not {expected}", path, value)


def _named(values: Any, kind: type[msgspec.Struct], path: str) -> str:
    """Return the path of a refused value with the name that the client chose: ``schedules.nightly.retries``
    for ``schedules[...].retries``."""
    outer, _, rest = path.partition(_ANY_NAME)
    named: dict[str, Any] = _value_at(values, outer)
    for name, value in named.items():
        try:
            msgspec.convert({**values, outer: {name: value}}, kind)
        except msgspec.ValidationError:
            return f"{outer}.{name}{rest}"
    return path


def _wrong_key(values: object, kind: type[msgspec.Struct], path: str) -> Refused:
    """Return the refusal of a name that the client chose."""
    names = _schema_at(kind, path).get("propertyNames", {})
    pattern = names.get("pattern", "")
    name = next((name for name in _value_at(values, path) if not re.search(pattern, name)), "")
    return _invalid(f"the name {_json(name)} in {path} is not {_expected(names)}", path, name)


def _expected(schema: dict[str, Any]) -> str:
    """Return what a JSON schema asks for, in words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_expected, schema["anyOf"])))
    if "enum" in schema:
        return f"one of {_listed(schema['enum'])}"
    if schema.get("pattern") in _PATTERNS:
        return _PATTERNS[schema["pattern"]].format_map(schema)
    words, low, high, unit = _KINDS.get(schema.get("type", ""), ("what the schema asks for", "", "", ""))
    least, most = schema.get(low), schema.get(high)
    if most is None:
        return words if not least else f"{words} of at least {least:,.15g}{unit}"
    bounds = f"{least:,.15g} to" if least is not None else "at most"
    return f"{words} of {bounds} {most:,.15g}{unit}"


def _json(value: object) -> str:
    """Return a refused value as it came: null and true, not None and True."""
    if isinstance(value, str):
        return shown(value)
    text = encode(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _nearest(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"there are: {_listed(known)}"


def _invalid(detail: str, field: str, value: object, hint: str | None = None) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, "invalid-value", detail, field=field, value=value, hint=hint)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(str, names)) or "none"
