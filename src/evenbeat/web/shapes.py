"""Shapes that several endpoints share: parameters, and schedules and runs as bodies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from evenbeat.core.checks import LABEL_PATTERN, LONGEST_TASK, NAME_PATTERN, TASK_PATTERN
from evenbeat.core.json_form import json_form
from evenbeat.core.json_text import encode
from evenbeat.core.masking import masked
from evenbeat.core.option import Option
from evenbeat.core.results import Run, Schedule, ScheduleStats
from evenbeat.web.access import Principal
from evenbeat.web.bodies import Seconds, body_of

MOST_ITEMS = 500
# JavaScript's numbers, and those of many tools, are exact up to here.
_EXACT = (1 << 53) - 1

Name: TypeAlias = Annotated[str, Meta(pattern=NAME_PATTERN, max_length=128)]
Label: TypeAlias = Annotated[str, Meta(pattern=LABEL_PATTERN, max_length=128)]
TaskName: TypeAlias = Annotated[str, Meta(pattern=TASK_PATTERN, min_length=1, max_length=LONGEST_TASK)]
When: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=100, description="RFC 3339, or a duration from now, like 2h.")
]
Since: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=100, description="RFC 3339, or a duration before now, like 2h.")
]
Text: TypeAlias = Annotated[str, Meta(max_length=1000)]
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_ITEMS)]
Cursor: TypeAlias = Annotated[str, Meta(max_length=1000, description="From the page before.")]
Span: TypeAlias = Annotated[float, Meta(ge=0, le=1e10)] | Annotated[str, Meta(max_length=50)]
"""Seconds, or a text like 1h30m."""
TriggerText: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=1000, description="`0 9 * * mon-fri tz=Europe/Berlin`, `every 10m`.")
]


class TenantQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names the tenant; by default that of the token, or of the app."""

    tenant: Label | UnsetType = UNSET


class TenantsQuery(TenantQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names one tenant, or asks for all of them."""

    all_tenants: bool = False


def given(struct: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that the client gave."""
    return {name: value for name in struct.__struct_fields__ if (value := getattr(struct, name)) is not UNSET}


def with_properties(result: msgspec.Struct, *names: str) -> dict[str, Any]:
    """Return a result as a dictionary, with these properties of it."""
    return {**msgspec.structs.asdict(result), **{name: getattr(result, name) for name in names}}


def option_fields(options: Mapping[str, Option]) -> list[tuple[str, Any, Any]]:
    """Return the fields of a body from the descriptions of options. None of them is required."""
    return [(option.name, _option_type(option) | UnsetType, UNSET) for option in options.values()]


def _option_type(option: Option) -> Any:
    words = option.help.replace("`", "")
    kinds: dict[str, Any] = {
        "count": Annotated[int, Meta(ge=option.low, le=option.high or 1 << 53)],
        "duration": Span,
        "label": Label,
        "tags": Annotated[list[Name], Meta(max_length=option.high)],
        "priority": Annotated[int, Meta(ge=0, le=9)] | Literal["low", "normal", "high"],
        "text": Annotated[str, Meta(max_length=option.high or 1000)],
        "flag": bool,
    }
    kind = Literal[option.choices] if option.kind == "choice" else kinds[option.kind]
    return Annotated[kind | None if option.is_optional else kind, Meta(description=words)]


SCHEDULE = body_of(Schedule, payload_text=str | None, stats=body_of(ScheduleStats))
RUN = body_of(
    Run, payload_text=str | None, result_text=str | None, lateness=Seconds | None, duration=Seconds | None
)


def schedule_bodies(
    principal: Principal, schedules: Sequence[Schedule], stats: Iterable[ScheduleStats]
) -> list[dict[str, Any]]:
    """Return schedules as SCHEDULE describes them, masked for viewers."""
    return [
        {**_masked(principal, json_form(each), "payload", "edited"), "stats": json_form(figures)}
        for each, figures in zip(schedules, stats, strict=True)
    ]


def run_body(principal: Principal, run: Run) -> dict[str, Any]:
    """Return a run as RUN describes it, masked for viewers."""
    body = _masked(principal, json_form(run), "payload", "result")
    return {**body, "lateness": json_form(run.lateness), "duration": json_form(run.duration)}


def _masked(principal: Principal, body: dict[str, Any], *names: str) -> dict[str, Any]:
    """Mask the secrets of a body for viewers, and write values as text whose numbers would lose digits."""
    for name in names:
        if principal.role == "viewer":
            body[name] = masked(body[name])
        if name == "edited":
            continue
        is_exact = _is_exact(body[name])
        body[f"{name}_text"] = None if is_exact else encode(body[name])
        if not is_exact:
            body[name] = None
    return body


def _is_exact(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_exact, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_exact, value))
    return not (isinstance(value, int) and abs(value) > _EXACT)
