"""``app.alerts``: rules, channels and maintenance windows; incidents and deliveries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from evenbeat.app.alerts import reports
from evenbeat.app.alerts.channels import AlertChannels, address_of, check
from evenbeat.app.alerts.declared import DeclaredAlerts
from evenbeat.app.alerts.named import NamedRecords, owner_from
from evenbeat.app.alerts.rules import AlertRules
from evenbeat.app.alerts.windows import MaintenanceWindows
from evenbeat.app.session import AppSession
from evenbeat.config import DeclaredAlert
from evenbeat.core.alerts import ChannelKind, Delivery, Incident
from evenbeat.core.awaitable import twin
from evenbeat.core.checks import check_name
from evenbeat.errors import InvalidValue
from evenbeat.record_errors import AlertNotFound
from evenbeat.rules.alert_definitions import channel_facts, read_rule, rule_facts, window_facts
from evenbeat.rules.alert_records import CHANNEL, RULE, WINDOW, StoredChannel, StoredRule, StoredWindow
from evenbeat.stores.base import check_limit
from evenbeat.stores.pages import unknown_cursor

_DELIVERY = re.compile(r"[0-9a-f]{36}")


class Alerts:
    """The alerts of a scheduler: what is announced, where, and what became of it."""

    def __init__(self, session: AppSession, is_running: Callable[[], bool]) -> None:
        self._session = session
        self._is_running = is_running
        rules = NamedRecords(session, RULE, StoredRule, rule_facts)
        channels = NamedRecords(
            session, CHANNEL, StoredChannel, lambda body: channel_facts(body, address_of(body))
        )
        self.rules = AlertRules(session, rules, channels)
        self.channels = AlertChannels(session, channels, rules)
        self.windows = MaintenanceWindows(session, NamedRecords(session, WINDOW, StoredWindow, window_facts))
        self._declared = DeclaredAlerts(rules, channels)

    def declare_channel(
        self,
        name: str,
        kind: ChannelKind,
        url: str,
        *,
        secret: str | None = None,
        tenant: str | None = None,
        all_tenants: bool = False,
    ) -> None:
        """Declare a channel in code: a node creates it, or updates it to match, when it starts.

        The values are checked now, and the store is not opened: call it where tasks are defined.
        """
        self._keep_channel(name, kind, url, secret, owner_from(self._session, tenant, all_tenants), "code")
        self._write_if_running()

    def declare_rule(
        self,
        name: str,
        *,
        on: str | Iterable[str],
        to: str | Iterable[str],
        schedule: str | None = None,
        tag: str | None = None,
        recovery: bool = True,
        tenant: str | None = None,
        all_tenants: bool = False,
    ) -> None:
        """Declare a rule in code, as ``declare_channel`` declares a channel."""
        owner = owner_from(self._session, tenant, all_tenants)
        wanted = read_rule(
            on, to, schedule=schedule, tag=tag, recovery=recovery, for_all_tenants=owner is None
        )
        self._keep_rule(owner, name, wanted, "code")
        self._write_if_running()

    def declare_config(self, declarations: Iterable[DeclaredAlert]) -> None:
        """Declare what evenbeat.toml or pyproject.toml declares; it overrides the code.

        ``evenbeat run`` and ``evenbeat dev`` do so. ``InvalidValue`` names the place in the file.
        """
        for each in declarations:
            fields = dict(each.fields)
            try:
                owner = owner_from(
                    self._session, fields.pop("tenant", None), fields.pop("all_tenants", False)
                )
                if each.kind == "channel":
                    self._keep_channel(each.name, owner=owner, managed_by="config", **fields)
                else:
                    rule = read_rule(**fields, for_all_tenants=owner is None)
                    self._keep_rule(owner, each.name, rule, "config")
            except InvalidValue as error:
                raise InvalidValue(
                    f"{each.place}: {error.problem}", field=error.field, value=error.value, hint=error.hint
                ) from None
        self._write_if_running()

    def _keep_channel(
        self,
        name: str,
        kind: ChannelKind,
        url: str,
        secret: str | None = None,
        owner: str | None = None,
        managed_by: str = "code",
    ) -> None:
        check_name(name, "name")
        check(kind, url, secret)
        wanted = StoredChannel(kind=kind, url=url, secret=secret, managed_by=managed_by)
        self._declared.keep_channel(owner, name, wanted)

    def _keep_rule(self, owner: str | None, name: str, wanted: StoredRule, managed_by: str) -> None:
        check_name(name, "name")
        self._declared.keep_rule(owner, name, replace(wanted, managed_by=managed_by))

    def _write_if_running(self) -> None:
        if self._is_running():
            self.declare()

    def declare(self) -> None:
        """Create what was declared, or update it to match. A node does so when it starts."""
        self._declared.write()

    def incidents(
        self,
        *,
        open: bool = True,  # what everybody calls it
        tenant: str | None = None,
        all_tenants: bool = False,
        limit: int = 1000,
    ) -> list[Incident]:
        """Return what is wrong now, the latest first; with ``open=False``, what is over, for 30 days.

        Those about a tenant's schedules and runs, whether its own rules or those of all tenants found them;
        with ``all_tenants``, also those about machines that tenants share.
        """
        owner = owner_from(self._session, tenant, all_tenants)
        read = reports.open_incidents if open else reports.past_incidents
        store = self._session.store()
        return reports.with_delivery(store, owner, read(store, owner, check_limit(limit)))

    def deliveries(
        self,
        *,
        tenant: str | None = None,
        all_tenants: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> list[Delivery]:
        """Return announcements, the newest first: those that wait to be sent, and for 30 days those that were
        sent or given up.

        ``cursor``, the id of the last one of a call before, continues after it.
        """
        owner = owner_from(self._session, tenant, all_tenants)
        if cursor is not None and not _DELIVERY.fullmatch(cursor):
            raise unknown_cursor(cursor)
        check_limit(limit)
        return reports.deliveries(self._session.store(), owner, limit, cursor) if limit else []

    def delivery(self, id: str, *, tenant: str | None = None, all_tenants: bool = False) -> Delivery:
        """Return one announcement, by its id; ``AlertNotFound`` if there is none, or not any more."""
        owner = owner_from(self._session, tenant, all_tenants)
        is_id = _DELIVERY.fullmatch(id) is not None
        found = reports.delivery(self._session.store(), owner, id) if is_id else None
        if found is None:
            raise AlertNotFound("delivery", owner, id)
        return found

    adeclare = twin(declare)
    aincidents = twin(incidents)
    adeliveries = twin(deliveries)
    adelivery = twin(delivery)
