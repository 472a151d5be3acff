"""The bodies of answers: structs for the API's schema, made from the results that Python users get.

A body has the fields of its result. Datetimes become RFC 3339 texts and timedeltas seconds, as in
``evenbeat.core.json_form``, so each field is listed once, in its result.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from evenbeat.core.results import BulkResult

Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Seconds = Annotated[float, Meta(description="seconds")]


_bodies: dict[type[msgspec.Struct], type[msgspec.Struct]] = {}
"""The body of each result. A result has one, also where it is a part of another."""


def body_of(result: type[msgspec.Struct], **more: Any) -> type[msgspec.Struct]:
    """Return the struct of a result's JSON form; ``more`` adds fields, by name and type."""
    if result not in _bodies:
        _bodies[result] = _body(result, more)
    assert _bodies[result].__struct_fields__ == (*result.__struct_fields__, *more) or not more
    return _bodies[result]


def _body(result: type[msgspec.Struct], more: dict[str, Any]) -> type[msgspec.Struct]:
    hints = get_type_hints(result, include_extras=True)
    fields = [(name, _json_type(hints[name])) for name in result.__struct_fields__]
    return msgspec.defstruct(result.__name__, [*fields, *more.items()], kw_only=True)


def page_of(name: str, item: Any, **more: Any) -> type[msgspec.Struct]:
    """Return the struct of a page: its items, and the cursor of the next page."""
    fields = [("items", list[item]), ("cursor", str | None), *more.items()]
    return msgspec.defstruct(name, fields, kw_only=True)


def list_of(name: str, item: Any, **more: Any) -> type[msgspec.Struct]:
    """Return the struct of a list that has no pages."""
    return msgspec.defstruct(name, [("items", list[item]), *more.items()], kw_only=True)


def bulk_of(name: str, item: Any, **more: Any) -> type[msgspec.Struct]:
    """Return the struct of a ``BulkResult`` with a sample of such items; ``more`` adds fields."""
    hints = get_type_hints(BulkResult)
    fields = [(field, _json_type(hints[field])) for field in hints if field != "sample"]
    return msgspec.defstruct(name, [*fields, ("sample", list[item]), *more.items()], kw_only=True)


def _json_type(hint: Any) -> Any:
    if hint is datetime:
        return Moment
    if hint is timedelta:
        return Seconds
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Annotated[_json_type(arguments[0]), *arguments[1:]]
    if origin in (Union, types.UnionType):
        return Union[tuple(map(_json_type, arguments))]  # noqa: UP007  # the members are not known here
    if origin in (list, tuple, frozenset):
        return list[_json_type(arguments[0])]  # type: ignore[misc]  # made at run time
    if origin in (dict, Mapping):
        return dict[str, _json_type(arguments[1])]  # type: ignore[misc]  # made at run time
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return body_of(hint)
    assert origin is None or origin is Literal, f"no JSON form of {hint} is known"
    return hint
