"""Shapes that several endpoints share: parameters, and schedules and runs as bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from evenbeat.core.audits import AuditEntry
from evenbeat.core.backfills import Backfill
from evenbeat.core.checks import LABEL_PATTERN, LONGEST_TASK, NAME_PATTERN, TASK_PATTERN
from evenbeat.core.dependencies import LONGEST_AFTER
from evenbeat.core.flows import FlowRun
from evenbeat.core.json_depth import MAX_DEPTH, is_nested_deeper
from evenbeat.core.json_form import json_form
from evenbeat.core.json_text import encode
from evenbeat.core.masking import masked, masked_text
from evenbeat.core.option import Option
from evenbeat.core.quarantine import QuarantinedRow
from evenbeat.core.rates import LONGEST_RATE
from evenbeat.core.results import RecentRun, Run, Schedule, ScheduleStats
from evenbeat.web.access import Principal
from evenbeat.web.bodies import Seconds, body_of

MOST_ITEMS = 500
# JavaScript's numbers, and those of many tools, are exact up to here.
_EXACT = (1 << 53) - 1
# In the place of a value that was stored by other means and can't be shown.
_UNREADABLE = "(not shown: nested too deeply, or not JSON)"

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
OptionalTrigger: TypeAlias = (
    Annotated[
        TriggerText,
        Meta(description="Needed unless the template has one. `0 9 * * mon-fri`, or `@` and a template."),
    ]
    | UnsetType
)


Zone = Annotated[
    str, Meta(min_length=1, max_length=100, description="An IANA name; by default the trigger's zone.")
]


class TenantQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names the tenant; by default that of the token, or of the app."""

    tenant: Label | UnsetType = UNSET


class ZoneQuery(TenantQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names the tenant, and the zone of the times in the sentences of the answer."""

    tz: Zone | UnsetType = UNSET

    @property
    def zone(self) -> str | None:
        return None if self.tz is UNSET else self.tz


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
        "rate": Annotated[str, Meta(min_length=1, max_length=LONGEST_RATE)],
        "after": Annotated[str, Meta(max_length=LONGEST_AFTER)],
    }
    kind = Literal[option.choices] if option.kind == "choice" else kinds[option.kind]
    return Annotated[kind | None if option.is_optional else kind, Meta(description=words)]


SCHEDULE = body_of(
    Schedule,
    payload_text=str | None,
    stats=body_of(ScheduleStats),
    recent=Annotated[
        list[body_of(RecentRun)] | None,  # type: ignore[misc]  # made at run time
        Meta(description="Its last runs, the oldest first; null unless the query asks for them."),
    ],
)
RUN = body_of(
    Run, payload_text=str | None, result_text=str | None, lateness=Seconds | None, duration=Seconds | None
)
FLOW_RUN = body_of(FlowRun, payload_text=str | None, result_text=str | None)

# What users wrote about a schedule, and what went wrong with it.
_TEXTS = ("description", "pause_note", "words", "last_error", "damage")


def schedule_body(
    principal: Principal, schedule: Schedule, stats: ScheduleStats, recent: Sequence[RecentRun] | None = None
) -> msgspec.Raw:
    """Return a schedule as SCHEDULE describes it, masked for viewers.

    It is encoded here, once: ``json_form`` would convert a dictionary again with its page.
    """
    body = _values(principal, schedule, "payload")
    edited = {name: _visible(principal, name, value) for name, value in schedule.edited.items()}
    texts = {name: with_masked_texts(principal, body[name]) for name in _TEXTS}
    if principal.tenant is not None:
        # A hint names a task of the nodes, which only tokens for all tenants see.
        body["warnings"] = [{**warning, "hint": None} for warning in body["warnings"]]
    figures = with_masked_texts(principal, stats)
    runs = None if recent is None else [json_form(run) for run in recent]
    whole = {**body, **texts, "edited": _exact(edited), "stats": figures, "recent": runs}
    return msgspec.Raw(msgspec.json.encode(whole))


def run_body(principal: Principal, run: Run) -> msgspec.Raw:
    """Return a run as RUN describes it, masked for viewers."""
    body = _values(principal, run, "payload", "result")
    errors = {name: with_masked_texts(principal, body[name]) for name in ("error", "attempts", "progress")}
    spans = {"lateness": json_form(run.lateness), "duration": json_form(run.duration)}
    return msgspec.Raw(msgspec.json.encode({**body, **errors, **spans}))


def flow_run_body(principal: Principal, run: FlowRun) -> msgspec.Raw:
    """Return a run of a flow as FLOW_RUN describes it, masked for viewers."""
    body = _values(principal, run, "payload", "result")
    texts = {name: with_masked_texts(principal, body[name]) for name in ("error", "steps")}
    return msgspec.Raw(msgspec.json.encode({**body, **texts}))


def backfill_body(principal: Principal, backfill: Backfill) -> dict[str, Any]:
    """Return a backfill with its payload as text, too, masked for viewers."""
    body = _values(principal, backfill, "payload")
    return {**body, "note": with_masked_texts(principal, body["note"])}


def quarantined_body(principal: Principal, row: QuarantinedRow) -> dict[str, Any]:
    """Return a quarantined row, masked for viewers."""
    fields = {name: _visible(principal, name, value) for name, value in row.fields.items()}
    body: dict[str, Any] = with_masked_texts(principal, msgspec.structs.replace(row, fields={}))
    return {**body, "fields": _exact(fields)}


def entry_body(entry: AuditEntry) -> dict[str, Any]:
    """Return an entry of the audit. Its values were masked when it was written."""
    body: dict[str, Any] = json_form(entry)
    return {**body, "before": _exact(body["before"]), "after": _exact(body["after"])}


def with_masked_texts(principal: Principal, result: object) -> Any:
    """Return a result as JSON. For viewers, the secrets in all of its texts are masked."""
    return _with_masked_texts(json_form(result)) if principal.role == "viewer" else json_form(result)


def _with_masked_texts(value: Any) -> Any:
    if isinstance(value, str):
        return masked_text(value)
    if isinstance(value, dict):
        return {name: _with_masked_texts(each) for name, each in value.items()}
    return [_with_masked_texts(each) for each in value] if isinstance(value, list) else value


def _values(principal: Principal, record: Schedule | Run | FlowRun | Backfill, *names: str) -> dict[str, Any]:
    """Return the body of a record, with these values masked for viewers, and as text if their numbers would
    lose digits."""
    body: dict[str, Any] = json_form(msgspec.structs.replace(record, **dict.fromkeys(names)))
    for name in names:
        body[f"{name}_text"] = None
        body |= _exact({name: _visible(principal, name, getattr(record, name))})
    return body


def _exact(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values; one whose numbers would lose digits is None, and ``{name}_text`` is its JSON."""
    exact: dict[str, Any] = {}
    for name, value in values.items():
        is_exact = _is_exact(value)
        exact[name] = value if is_exact else None
        if not is_exact:
            exact[f"{name}_text"] = encode(value)
    return exact


def _visible(principal: Principal, name: str, value: Any) -> Any:
    """Return a payload, a result or an option as JSON, masked for viewers."""
    try:
        # A result is converted by the annotation of its task: it may be of a class of the user's.
        plain = msgspec.to_builtins(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _UNREADABLE
    if is_nested_deeper(plain, MAX_DEPTH):
        return _UNREADABLE
    return masked({name: plain})[name] if principal.role == "viewer" else plain


def option_value(principal: Principal, name: str, value: Any) -> Any:
    """Return the value of an option as JSON, masked for viewers; as text if its numbers would lose digits."""
    plain = _visible(principal, name, value)
    return plain if _is_exact(plain) else encode(plain)


def _is_exact(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_exact, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_exact, value))
    return not (isinstance(value, int) and abs(value) > _EXACT)
