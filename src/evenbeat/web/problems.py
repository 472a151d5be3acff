"""Problems: errors as RFC 9457 documents, which name the field, the value and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from evenbeat.errors import (
    AppImportError,
    DamagedSchedule,
    EvenbeatError,
    InvalidTrigger,
    InvalidValue,
    LockHeld,
    RunExists,
    RunNotFound,
    RunRefused,
    ScheduleChanged,
    ScheduleConflict,
    ScheduleExists,
    ScheduleNotFound,
    ScheduleTooNew,
    SchemaTooNew,
    StoreUnavailable,
    TooLarge,
    shown,
)
from evenbeat.record_errors import (
    AlertChanged,
    AlertExists,
    AlertNotFound,
    BackfillExists,
    BackfillNotFound,
    CalendarInUse,
    CalendarNotFound,
    ChannelInUse,
    LimitNotFound,
    QuarantineNotFound,
    QuarantineRefused,
    QuotaExceeded,
    QuotaNotFound,
    RetentionRuleNotFound,
    TemplateInUse,
    TemplateNotFound,
    TenantNotFound,
    TokenNotFound,
)

MEDIA_TYPE = "application/problem+json"


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of every answer that reports an error."""

    type: str
    """Identifies the kind of problem: ``urn:evenbeat:problem:schedule-not-found``."""
    title: str
    """The kind of problem, for people."""
    status: int
    detail: str
    """What is wrong in this case, with the value, and what to do."""
    field: str | None = None
    """The field, parameter or header that was refused."""
    value: str | None = None
    """The refused value, shortened."""
    hint: str | None = None
    """What to do."""


class Refused(Exception):
    """Ends a request with a problem."""

    def __init__(
        self,
        status: HTTPStatus,
        kind: str,
        detail: str,
        *,
        field: str | None = None,
        value: object = None,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.problem = Problem(
            type=f"urn:evenbeat:problem:{kind}",
            title=kind.replace("-", " ").capitalize().replace(" json", " JSON"),
            status=status,
            detail=detail if hint is None else f"{detail}; {hint}",
            field=field,
            value=None if value is None else _shortened(value),
            hint=hint,
        )
        self.headers = dict(headers or {})


def _shortened(value: object) -> str:
    # JSON has its own quotes.
    return shown(value)[1:-1].replace('\\"', '"') if isinstance(value, str) else shown(value)


# 400 answers a request that does not fit the schema, 422 one that fits it and has a wrong value. After 503
# the client may repeat the request.
_STATUS: tuple[tuple[type[EvenbeatError], HTTPStatus], ...] = (
    (ScheduleNotFound, HTTPStatus.NOT_FOUND),
    (RunNotFound, HTTPStatus.NOT_FOUND),
    (TokenNotFound, HTTPStatus.NOT_FOUND),
    (LimitNotFound, HTTPStatus.NOT_FOUND),
    (BackfillNotFound, HTTPStatus.NOT_FOUND),
    (BackfillExists, HTTPStatus.CONFLICT),
    (AlertNotFound, HTTPStatus.NOT_FOUND),
    (RetentionRuleNotFound, HTTPStatus.NOT_FOUND),
    (CalendarNotFound, HTTPStatus.NOT_FOUND),
    (CalendarInUse, HTTPStatus.CONFLICT),
    (QuarantineNotFound, HTTPStatus.NOT_FOUND),
    (QuarantineRefused, HTTPStatus.CONFLICT),
    (TemplateNotFound, HTTPStatus.NOT_FOUND),
    (TemplateInUse, HTTPStatus.CONFLICT),
    (TenantNotFound, HTTPStatus.NOT_FOUND),
    (QuotaNotFound, HTTPStatus.NOT_FOUND),
    (QuotaExceeded, HTTPStatus.CONFLICT),
    (AlertExists, HTTPStatus.CONFLICT),
    (ChannelInUse, HTTPStatus.CONFLICT),
    (AlertChanged, HTTPStatus.PRECONDITION_FAILED),
    (ScheduleExists, HTTPStatus.CONFLICT),
    (RunExists, HTTPStatus.CONFLICT),
    (RunRefused, HTTPStatus.CONFLICT),
    (ScheduleConflict, HTTPStatus.CONFLICT),
    (ScheduleChanged, HTTPStatus.PRECONDITION_FAILED),
    (DamagedSchedule, HTTPStatus.CONFLICT),
    (ScheduleTooNew, HTTPStatus.CONFLICT),
    (LockHeld, HTTPStatus.CONFLICT),
    (TooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (InvalidValue, HTTPStatus.UNPROCESSABLE_ENTITY),
    (StoreUnavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (SchemaTooNew, HTTPStatus.SERVICE_UNAVAILABLE),
    (AppImportError, HTTPStatus.SERVICE_UNAVAILABLE),
)


OUTAGES = (StoreUnavailable, SchemaTooNew, AppImportError)
"""Errors whose reason is for the log of the server alone."""


def refusal(error: EvenbeatError) -> Refused:
    """Return the answer for an error that a method of the app raised."""
    status = next(
        (status for kind, status in _STATUS if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR
    )
    kind = _kind(type(error).__name__)
    headers = {"Retry-After": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    if isinstance(error, InvalidTrigger):
        return Refused(status, kind, error.problem, field="trigger", value=error.text, hint=error.hint)
    if isinstance(error, InvalidValue):
        return Refused(status, kind, error.problem, field=error.field, value=error.value, hint=error.hint)
    if isinstance(error, ScheduleNotFound):
        return Refused(status, kind, str(error), hint="GET /api/v1/schedules lists the schedules")
    if isinstance(error, RunNotFound):
        return Refused(status, kind, str(error), hint="GET /api/v1/runs lists the runs")
    if isinstance(error, LimitNotFound):
        # The message of the error may name a limit of another tenant.
        problem = f"there is no limit {shown(error.limit)}"
        return Refused(status, kind, problem, hint="GET /api/v1/limits lists the limits")
    if isinstance(error, BackfillNotFound):
        problem = f"there is no backfill {shown(error.backfill)}"
        return Refused(status, kind, problem, hint="GET /api/v1/backfills lists the backfills")
    if isinstance(error, ScheduleExists):
        # The message of the error names methods of Python.
        problem = f"schedule {shown(error.name)} of tenant {shown(error.tenant)} exists already"
        hint = "PATCH its path to change it, or choose another name"
        return Refused(status, kind, problem, field="name", value=error.name, hint=hint)
    if isinstance(error, QuotaExceeded):
        return Refused(status, kind, str(error), field="tenant", value=error.tenant)
    if isinstance(error, AlertExists):
        return Refused(status, kind, str(error), field="name", value=error.name)
    if isinstance(error, OUTAGES):
        # The reason may name hosts, users and files, and the sender may not have shown a token yet.
        return Refused(
            status,
            kind,
            "the store did not answer",
            hint="repeat the request; the log of the server says why",
            headers=headers,
        )
    return Refused(status, kind, str(error), headers=headers)


def _kind(name: str) -> str:
    """Return ``ScheduleNotFound`` as ``schedule-not-found``."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("-")


def unexpected() -> Refused:
    """Return the answer for a defect of the server. Only the log has the traceback."""
    return Refused(
        HTTPStatus.INTERNAL_SERVER_ERROR, "internal-error", "the server failed; its log has the traceback"
    )


def encoded(problem: Problem) -> bytes:
    return msgspec.json.encode(problem)
