"""What all calls of ``app.schedules`` share: the rows of schedules, and the rounds of a change."""

from __future__ import annotations

from collections.abc import Iterator

from evenbeat.app.declarations import Declarations
from evenbeat.app.rows import ScheduleRows, Try
from evenbeat.app.session import AppSession
from evenbeat.core.audits import AuditAction
from evenbeat.core.results import Schedule


class ScheduleCalls:
    """The base of the classes that ``Schedules`` consists of. Each has the calls about one concept."""

    def __init__(self, session: AppSession, rows: ScheduleRows, declarations: Declarations) -> None:
        self._session = session
        self._rows = rows
        self._declarations = declarations

    def _tries(
        self, name: str, action: AuditAction, tenant: str | None, if_revision: int | None
    ) -> Iterator[Try]:
        return self._rows.tries(self._session.tenant_of(tenant), name, action, if_revision=if_revision)


def written(view: Schedule | None) -> Schedule:
    """Return the schedule of a write that is complete."""
    assert view is not None
    return view
