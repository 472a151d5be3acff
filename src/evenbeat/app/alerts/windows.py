"""``app.alerts.windows``: maintenance windows, in which the alerts of some schedules are muted."""

from __future__ import annotations

from typing import TypeAlias

from evenbeat.app.acting import current_actor
from evenbeat.app.alerts.named import Found, NamedRecords, owner_from
from evenbeat.app.session import AppSession
from evenbeat.core.alerts import MaintenanceWindow
from evenbeat.core.awaitable import twin
from evenbeat.core.instants import Moment, from_ms, read_moment
from evenbeat.rules.alert_definitions import read_window
from evenbeat.rules.alert_records import StoredWindow

# Inside the class, ``list`` is a method.
WindowList: TypeAlias = list[MaintenanceWindow]


class MaintenanceWindows:
    """The maintenance windows of a scheduler; the ``a…`` twins are awaited.

    ``tenant`` defaults to the scheduler's own; ``all_tenants=True`` means windows that cover all tenants.
    """

    def __init__(self, session: AppSession, windows: NamedRecords[StoredWindow]) -> None:
        self._session = session
        self._windows = windows

    def add(
        self,
        name: str,
        *,
        until: Moment,
        starts: Moment | None = None,
        schedule: str | None = None,
        tag: str | None = None,
        note: str = "",
        tenant: str | None = None,
        all_tenants: bool = False,
    ) -> MaintenanceWindow:
        """Mute alerts from ``starts``, by default now, to ``until``; ``AlertExists`` if the name is taken.

        Without ``schedule`` and ``tag``, it mutes all alerts of its owner. What is still wrong at its end is
        announced then. It deletes itself when it is over.
        """
        owner = owner_from(self._session, tenant, all_tenants)
        now = self._session.store().now()
        window = read_window(
            now if starts is None else read_moment(starts, "starts", now),
            read_moment(until, "until", now),
            schedule=schedule,
            tag=tag,
            note=note,
            created_by=current_actor().name,
            now=now,
        )
        return _view(self._windows.create(owner, name, window, expires=window.ends_at))

    def list(self, *, tenant: str | None = None, all_tenants: bool = False) -> list[MaintenanceWindow]:
        """Return the windows of a tenant that are not over, by their start; with ``all_tenants``, of all
        owners."""
        owner = owner_from(self._session, tenant, all_tenants)
        found = self._windows.everywhere() if owner is None else self._windows.of(owner)
        return sorted(map(_view, found), key=lambda window: window.starts_at)

    def delete(self, name: str, *, tenant: str | None = None, all_tenants: bool = False) -> None:
        """End a window before its time: what is wrong now is announced now."""
        self._windows.delete(owner_from(self._session, tenant, all_tenants), name, None)

    aadd = twin(add)
    alist = twin(list)
    adelete = twin(delete)


def _view(found: Found[StoredWindow]) -> MaintenanceWindow:
    window = found.body
    return MaintenanceWindow(
        name=found.name,
        tenant=found.owner,
        starts_at=from_ms(window.starts_at),
        ends_at=from_ms(window.ends_at),
        schedule=window.schedule,
        tag=window.tag,
        note=window.note,
        created_by=window.created_by,
    )
