"""Rules, incidents and deliveries of alerts in words, and as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from evenbeat.cli.layout import Cell, Column, Fitted, listed, styled
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.phrases import printable
from evenbeat.core.alerts import AlertRule, Delivery, Incident, MaintenanceWindow
from evenbeat.observe.phrases import command_line, count
from evenbeat.rules.alert_records import DEFAULT_TENANT

if TYPE_CHECKING:
    from rich.console import RenderableType

_STATES = {"sent": "green", "pending": "yellow", "failed": "bold red"}


def rule_state(rule: AlertRule, open_incidents: int, local: LocalTime) -> Cell:
    """Return ``ok``, ``2 open`` or ``muted until 18:00``."""
    if rule.muted_until is not None:
        behind = f", {open_incidents} open" if open_incidents else ""
        return f"muted until {local.near(rule.muted_until)}{behind}", "yellow"
    return (f"{open_incidents} open", "bold red") if open_incidents else ("ok", "green")


def covers(item: AlertRule | MaintenanceWindow) -> str:
    """Return which schedules a rule or window is about."""
    if item.schedule is not None:
        return f"schedule {item.schedule}"
    if item.tag is not None:
        return f"tag {item.tag}"
    return "all tenants" if item.tenant is None else "all"


def whose(tenant: str | None) -> str:
    return "all" if tenant is None else tenant


def rule_table(
    rules: Sequence[AlertRule], incidents: Sequence[Incident], local: LocalTime, *, show_tenants: bool
) -> Fitted:
    """Return a table of rules, each with how many of its incidents are open."""
    found = Counter((incident.owner, incident.rule) for incident in incidents)
    return Fitted(
        [
            Column("tenant", [whose(rule.tenant) if show_tenants else "" for rule in rules]),
            Column("rule", [rule.name for rule in rules]),
            Column(
                "state", [rule_state(rule, found[rule.tenant, rule.name], local) for rule in rules], wraps=14
            ),
            Column("on", [", ".join(rule.on) for rule in rules], wraps=16),
            Column("covers", [covers(rule) for rule in rules], drop=1),
            Column("to", [", ".join(rule.to) for rule in rules], wraps=12),
        ]
    )


def unsent_by_incident(deliveries: Sequence[Delivery]) -> dict[str, Delivery]:
    """Return the newest announcement of each incident that has not arrived."""
    unsent = [each for each in reversed(deliveries) if each.state != "sent" and each.error]
    return {each.incident: each for each in unsent if each.incident is not None}


def incident_parts(
    incident: Incident, local: LocalTime, unsent: Mapping[str, Delivery], *, show_tenant: bool
) -> Iterator[RenderableType]:
    """Yield an incident: its subject and reason, and below these what is known and what to do."""
    tenant = f" of tenant {incident.tenant}" if show_tenant and incident.tenant is not None else ""
    subject = "" if incident.subject_kind == "store" else f" {incident.subject}"
    style = "bold red" if incident.closed_at is None else "bold"
    yield styled((printable(f"{incident.subject_kind}{subject}{tenant}: {incident.reason}", keep=""), style))
    yield listed(_facts(incident, local, unsent.get(incident.id)))


def _facts(
    incident: Incident, local: LocalTime, unsent: Delivery | None
) -> Iterator[tuple[str, RenderableType]]:
    yield "  since", f"{local.full(incident.opened_at)}, {local.away(incident.opened_at)}"
    if incident.closed_at is not None:
        yield "  until", f"{local.full(incident.closed_at)}, {local.away(incident.closed_at)}"
    if incident.error:
        yield "  error", printable(incident.error, keep="")
    if incident.last_success is not None:
        yield "  last ok", f"{local.full(incident.last_success)}, {local.away(incident.last_success)}"
    yield "  rule", f"{incident.rule} ({incident.condition}), {_announced(incident)}"
    if unsent is not None:
        state = "given up" if unsent.state == "failed" else "not sent yet"
        yield "  unsent", printable(f"{state} to {unsent.channel}: {unsent.error}", keep="")
    if incident.closed_at is None:
        yield "  remedy", remedy(incident)


def _announced(incident: Incident) -> str:
    if incident.muted_by is not None:
        why = {"paused": "the schedule is paused", "muted": "the rule is muted"}
        return f"not announced: {why.get(incident.muted_by, f'window {incident.muted_by}')}"
    words = [word for word in incident.announced if word != "opened"]
    return "announced" + (f", {', '.join(words)}" if words else "") if incident.announced else "not announced"


def remedy(incident: Incident) -> str:
    """Return the command that helps to find out more, or to end it."""
    kind = incident.condition.partition(":")[0]
    tenant = incident.tenant or DEFAULT_TENANT
    if kind == "stuck" and incident.run is not None:
        return command_line(f"runs cancel {incident.run}", tenant)
    if kind == "no_node":
        return "start a node: evenbeat run APP"
    if kind in ("queue", "node_lost", "store_unsafe"):
        return {"queue": "evenbeat queues", "node_lost": "evenbeat nodes"}.get(kind, "evenbeat doctor")
    # "why" knows schedules and runs: what is late without a schedule is a run of a task.
    is_about_run = kind in ("failed", "failing") or incident.subject_kind != "schedule"
    about = incident.run if is_about_run else None
    return command_line(f"why {about or incident.subject}", tenant)


def delivery_table(found: Sequence[Delivery], local: LocalTime, *, show_tenants: bool) -> Fitted:
    return Fitted(
        [
            Column("when", [local.near(each.created_at) for each in found]),
            Column("tenant", [whose(each.owner) if show_tenants else "" for each in found]),
            Column("channel", [each.channel for each in found]),
            Column("state", [(each.state, _STATES[each.state]) for each in found]),
            Column("tries", [str(each.tries) for each in found], drop=2, justify="right"),
            Column("rule", [each.rule or "" for each in found], drop=1),
            Column("message", [printable(each.title, keep="") for each in found], wraps=22),
            Column("error", [printable(each.error or "", keep="") for each in found], wraps=24),
        ]
    )


def delivery_facts(delivery: Delivery, local: LocalTime) -> Iterator[tuple[str, RenderableType]]:
    """Yield all that is known about one delivery."""
    yield "message", printable(delivery.title, keep="")
    yield "channel", delivery.channel
    if delivery.rule is not None:
        yield "rule", delivery.rule
    yield "state", styled((delivery.state, _STATES[delivery.state]))
    yield "written", f"{local.full(delivery.created_at)}, {local.away(delivery.created_at)}"
    if delivery.last_try_at is not None:
        tries = count(delivery.tries, "try", "tries")
        yield "last try", f"{local.full(delivery.last_try_at)}, {local.away(delivery.last_try_at)}; {tries}"
    if delivery.next_try_at is not None:
        yield "next try", f"{local.full(delivery.next_try_at)}, {local.away(delivery.next_try_at)}"
    if delivery.error:
        yield "error", printable(delivery.error, keep="")
