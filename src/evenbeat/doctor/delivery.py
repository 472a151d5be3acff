"""The check of alerts that could not be delivered."""

from __future__ import annotations

from itertools import chain

from evenbeat.app.alerts import reports
from evenbeat.core.alerts import Delivery
from evenbeat.doctor.findings import Finding, some_lines
from evenbeat.observe.phrases import count
from evenbeat.stores.base import Store

_PAGE = 500


def alert_findings(store: Store) -> list[Finding]:
    """Return a finding if alerts can't be sent, or if alert rules found something wrong; else nothing."""
    unsent = [each for each in reports.deliveries(store, None, _PAGE, None) if _is_unsent(each)]
    wrong = reports.open_incidents(store, None, _PAGE)
    if not unsent and not wrong:
        return []
    messages = []
    if unsent:
        unsent_count = count(len(unsent), "alert")
        messages.append(f"{unsent_count} could not be sent: evenbeat alerts log --all-tenants")
    if wrong:
        messages.append(f"{count(len(wrong), 'incident is', 'incidents are')} open")
    finding = Finding(
        check="alerts",
        level="warn",
        facts={"unsent": [each.id for each in unsent], "open": [each.id for each in wrong]},
        message="; ".join(messages),
        hint="evenbeat alerts open --all-tenants" if wrong else None,
        details=some_lines(
            chain(
                (f"{each.channel}: {each.error}" for each in unsent),
                (f"{each.subject_kind} {each.subject}: {each.reason}" for each in wrong),
            )
        ),
    )
    return [finding]


def _is_unsent(delivery: Delivery) -> bool:
    return delivery.state == "pending" and delivery.error is not None
