"""Alerts: rules, channels and maintenance windows; incidents and deliveries."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from evenbeat.alerts.channels.making import REFERENCE
from evenbeat.core.alerts import (
    LONGEST_NOTE,
    MOST_CHANNELS,
    MOST_CONDITIONS,
    AlertChannel,
    AlertRule,
    ChannelKind,
    Delivery,
    Incident,
    MaintenanceWindow,
)
from evenbeat.core.masking import MASK
from evenbeat.errors import InvalidValue
from evenbeat.record_errors import AlertNotFound
from evenbeat.web import shapes
from evenbeat.web.bodies import body_of, list_of, page_of
from evenbeat.web.endpoint import Call, Reply, endpoint
from evenbeat.web.shapes import Cursor, Limit, Name, TenantsQuery

_OneOf = TypeVar("_OneOf", Incident, Delivery)

Conditions = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=50)]],
    Meta(
        min_length=1,
        max_length=MOST_CONDITIONS,
        description="failed, failing:3, late:10m, missed, stuck:1h, no_node:1m, runs; "
        "for all tenants also queue:1000, node_lost, store_unsafe.",
    ),
]
Channels = Annotated[
    list[Name], Meta(min_length=1, max_length=MOST_CHANNELS, description="Names of channels.")
]
Recovery = Annotated[bool, Meta(description="Whether the end of what was announced is announced, too.")]
Url = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=2000,
        description="Never shown again. env:EVENBEAT_SECRET_NAME names a variable of the sending process.",
    ),
]
Secret = Annotated[
    str, Meta(min_length=16, max_length=1000, description="Of a webhook: the key by which it is signed.")
]

RULE, CHANNEL, WINDOW = body_of(AlertRule), body_of(AlertChannel), body_of(MaintenanceWindow)


# -- rules -------------------------------------------------------------------------------------------------


@endpoint(
    "GET",
    "/alerts/rules",
    role="viewer",
    scope="tenant",
    query=TenantsQuery,
    answer=list_of("AlertRules", RULE),
)
def list_alert_rules(call: Call[TenantsQuery, Any]) -> object:
    """List the alert rules of a tenant; with all_tenants, those of all owners."""
    return {"items": call.app.alerts.rules.list(**call.tenants)}


class NewAlertRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An alert rule to create."""

    name: Name
    on: Conditions
    to: Channels
    schedule: Name | None = None
    tag: Name | None = None
    recovery: Recovery = True


@endpoint(
    "POST",
    "/alerts/rules",
    role="admin",
    scope="tenant",
    query=TenantsQuery,
    body=NewAlertRule,
    answer=RULE,
    status=HTTPStatus.CREATED,
    has_etag=True,
)
def create_alert_rule(call: Call[TenantsQuery, NewAlertRule]) -> object:
    """Create an alert rule; with all_tenants, one that covers all tenants."""
    made = call.app.alerts.rules.add(**shapes.given(call.body), **call.tenants)
    return _with_etag(made, HTTPStatus.CREATED)


@endpoint(
    "GET",
    "/alerts/rules/{name}",
    role="viewer",
    scope="tenant",
    query=TenantsQuery,
    answer=RULE,
    has_etag=True,
)
def get_alert_rule(call: Call[TenantsQuery, Any]) -> object:
    """Return an alert rule. Its ETag is its revision."""
    return _with_etag(call.app.alerts.rules.get(call.path["name"], **call.tenants))


class AlertRuleChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change of an alert rule."""

    on: Conditions | UnsetType = UNSET
    to: Channels | UnsetType = UNSET
    schedule: Name | UnsetType | None = UNSET
    tag: Name | UnsetType | None = UNSET
    recovery: Recovery | UnsetType = UNSET


@endpoint(
    "PATCH",
    "/alerts/rules/{name}",
    role="admin",
    scope="tenant",
    query=TenantsQuery,
    body=AlertRuleChanges,
    answer=RULE,
    has_etag=True,
)
def update_alert_rule(call: Call[TenantsQuery, AlertRuleChanges]) -> object:
    """Change some fields of an alert rule; the others, and its mute, stay."""
    changed = call.app.alerts.rules.update(
        call.path["name"], if_revision=call.if_revision, **shapes.given(call.body), **call.tenants
    )
    return _with_etag(changed)


@endpoint(
    "DELETE",
    "/alerts/rules/{name}",
    role="admin",
    scope="tenant",
    query=TenantsQuery,
    answer=None,
    status=HTTPStatus.NO_CONTENT,
    has_etag=True,
)
def delete_alert_rule(call: Call[TenantsQuery, Any]) -> object:
    """Delete an alert rule: its open incidents end without an announcement."""
    call.app.alerts.rules.delete(call.path["name"], if_revision=call.if_revision, **call.tenants)
    return None


class Mute(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long an alert rule is muted."""

    until: shapes.When


@endpoint(
    "POST",
    "/alerts/rules/{name}/mute",
    role="operator",
    scope="tenant",
    query=TenantsQuery,
    body=Mute,
    answer=RULE,
    has_etag=True,
)
def mute_alert_rule(call: Call[TenantsQuery, Mute]) -> object:
    """Mute an alert rule until a time. What is still wrong then is announced then."""
    muted = call.app.alerts.rules.mute(
        call.path["name"], call.body.until, if_revision=call.if_revision, **call.tenants
    )
    return _with_etag(muted)


@endpoint(
    "POST",
    "/alerts/rules/{name}/unmute",
    role="operator",
    scope="tenant",
    query=TenantsQuery,
    answer=RULE,
    has_etag=True,
)
def unmute_alert_rule(call: Call[TenantsQuery, Any]) -> object:
    """End the mute of an alert rule: what is wrong now is announced now."""
    return _with_etag(
        call.app.alerts.rules.unmute(call.path["name"], if_revision=call.if_revision, **call.tenants)
    )


# -- channels ----------------------------------------------------------------------------------------------


@endpoint(
    "GET",
    "/alerts/channels",
    role="viewer",
    scope="tenant",
    query=TenantsQuery,
    answer=list_of("AlertChannels", CHANNEL),
)
def list_alert_channels(call: Call[TenantsQuery, Any]) -> object:
    """List the alert channels of a tenant, without their secrets; with all_tenants, those of all owners."""
    return {"items": call.app.alerts.channels.list(**call.tenants)}


class NewAlertChannel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An alert channel to create."""

    name: Name
    kind: ChannelKind
    url: Url
    secret: Secret | None = None


@endpoint(
    "POST",
    "/alerts/channels",
    role="admin",
    scope="tenant",
    query=TenantsQuery,
    body=NewAlertChannel,
    answer=CHANNEL,
    status=HTTPStatus.CREATED,
    has_etag=True,
)
def create_alert_channel(call: Call[TenantsQuery, NewAlertChannel]) -> object:
    """Create an alert channel. No answer has its secrets."""
    _refuse_references(call)
    made = call.app.alerts.channels.add(**shapes.given(call.body), **call.tenants)
    return _with_etag(made, HTTPStatus.CREATED)


@endpoint(
    "GET",
    "/alerts/channels/{name}",
    role="viewer",
    scope="tenant",
    query=TenantsQuery,
    answer=CHANNEL,
    has_etag=True,
)
def get_alert_channel(call: Call[TenantsQuery, Any]) -> object:
    """Return an alert channel, without its secrets. Its ETag is its revision."""
    return _with_etag(call.app.alerts.channels.get(call.path["name"], **call.tenants))


class AlertChannelChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change of an alert channel."""

    kind: ChannelKind | UnsetType = UNSET
    url: Url | UnsetType = UNSET
    secret: Secret | UnsetType | None = UNSET


@endpoint(
    "PATCH",
    "/alerts/channels/{name}",
    role="admin",
    scope="tenant",
    query=TenantsQuery,
    body=AlertChannelChanges,
    answer=CHANNEL,
    has_etag=True,
)
def update_alert_channel(call: Call[TenantsQuery, AlertChannelChanges]) -> object:
    """Change the kind, the URL or the secret of an alert channel."""
    _refuse_references(call)
    changed = call.app.alerts.channels.update(
        call.path["name"], if_revision=call.if_revision, **shapes.given(call.body), **call.tenants
    )
    return _with_etag(changed)


@endpoint(
    "DELETE",
    "/alerts/channels/{name}",
    role="admin",
    scope="tenant",
    query=TenantsQuery,
    answer=None,
    status=HTTPStatus.NO_CONTENT,
    has_etag=True,
)
def delete_alert_channel(call: Call[TenantsQuery, Any]) -> object:
    """Delete an alert channel; 409 names the rules that use it."""
    call.app.alerts.channels.delete(call.path["name"], if_revision=call.if_revision, **call.tenants)
    return None


@endpoint(
    "POST",
    "/alerts/channels/{name}/test",
    role="operator",
    scope="tenant",
    query=TenantsQuery,
    answer=body_of(Delivery),
    status=HTTPStatus.ACCEPTED,
)
def test_alert_channel(call: Call[TenantsQuery, Any]) -> object:
    """Send a test message. The delivery, by its id, says what became of it."""
    return call.app.alerts.channels.test(call.path["name"], **call.tenants)


# -- windows -----------------------------------------------------------------------------------------------


@endpoint(
    "GET",
    "/alerts/windows",
    role="viewer",
    scope="tenant",
    query=TenantsQuery,
    answer=list_of("MaintenanceWindows", WINDOW),
)
def list_windows(call: Call[TenantsQuery, Any]) -> object:
    """List the maintenance windows that are not over, by their start."""
    windows = call.app.alerts.windows.list(**call.tenants)
    return {"items": shapes.with_masked_texts(call.principal, windows)}


class NewWindow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A maintenance window to add."""

    name: Name
    until: shapes.When
    starts: shapes.When | UnsetType = UNSET
    schedule: Name | None = None
    tag: Name | None = None
    note: Annotated[str, Meta(max_length=LONGEST_NOTE)] = ""


@endpoint(
    "POST",
    "/alerts/windows",
    role="operator",
    scope="tenant",
    query=TenantsQuery,
    body=NewWindow,
    answer=WINDOW,
    status=HTTPStatus.CREATED,
)
def add_window(call: Call[TenantsQuery, NewWindow]) -> object:
    """Mute the alerts of some schedules, or of all, from now or another time until a time."""
    return call.app.alerts.windows.add(**shapes.given(call.body), **call.tenants)


@endpoint(
    "DELETE",
    "/alerts/windows/{name}",
    role="operator",
    scope="tenant",
    query=TenantsQuery,
    answer=None,
    status=HTTPStatus.NO_CONTENT,
)
def delete_window(call: Call[TenantsQuery, Any]) -> object:
    """End a maintenance window before its time."""
    call.app.alerts.windows.delete(call.path["name"], **call.tenants)
    return None


# -- incidents and deliveries ------------------------------------------------------------------------------


class IncidentsQuery(TenantsQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    open: Annotated[bool, Meta(description="What is wrong now; false: what is over, for 30 days.")] = True
    limit: Limit = 100


@endpoint(
    "GET",
    "/alerts/incidents",
    role="viewer",
    scope="tenant",
    query=IncidentsQuery,
    answer=list_of("Incidents", body_of(Incident)),
)
def list_incidents(call: Call[IncidentsQuery, Any]) -> object:
    """List what alert rules have found wrong, the latest first.

    A token of one tenant sees what the rules of its tenant found.
    """
    found = call.app.alerts.incidents(open=call.query.open, limit=call.query.limit, **call.tenants)
    return {"items": shapes.with_masked_texts(call.principal, _visible(call, found))}


class DeliveriesQuery(TenantsQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Limit = 100
    cursor: Cursor | UnsetType = UNSET


@endpoint(
    "GET",
    "/alerts/deliveries",
    role="viewer",
    scope="tenant",
    query=DeliveriesQuery,
    answer=page_of("Deliveries", body_of(Delivery)),
)
def list_deliveries(call: Call[DeliveriesQuery, Any]) -> object:
    """List announcements, the newest first: waiting, sent, or given up. They are kept for 30 days.

    A token of one tenant sees the announcements on channels of its tenant, and a page may have fewer of them
    than the limit.
    """
    cursor = None if call.query.cursor is UNSET else call.query.cursor
    found = call.app.alerts.deliveries(limit=call.query.limit, cursor=cursor, **call.tenants)
    more = found[-1].id if len(found) == call.query.limit else None
    return {"items": shapes.with_masked_texts(call.principal, _visible(call, found)), "cursor": more}


@endpoint(
    "GET",
    "/alerts/deliveries/{id}",
    role="viewer",
    scope="tenant",
    query=TenantsQuery,
    answer=body_of(Delivery),
)
def get_delivery(call: Call[TenantsQuery, Any]) -> object:
    """Return one announcement, by its id."""
    found = call.app.alerts.delivery(call.path["id"], **call.tenants)
    if not _visible(call, [found]):
        raise AlertNotFound("delivery", call.tenant, call.path["id"])
    return shapes.with_masked_texts(call.principal, found)


def _refuse_references(call: Call[Any, Any]) -> None:
    """Refuse variables in a channel of a token with a tenant: tenants share them, so the secret of another
    tenant would sign or receive its messages."""
    if call.principal.tenant is None:
        return
    for field, text in (("url", call.body.url), ("secret", call.body.secret)):
        if isinstance(text, str) and text.startswith(REFERENCE):
            raise InvalidValue(
                f"{field} names a variable of the processes that send, which tenants share",
                field=field,
                value=MASK,
                hint="write the value itself, or use a token without a tenant",
            )


def _visible(call: Call[Any, Any], found: list[_OneOf]) -> list[_OneOf]:
    """Return those of the sender's own rules: a tenant does not see the rules that cover all tenants."""
    return [each for each in found if call.principal.tenant is None or each.owner == call.principal.tenant]


def _with_etag(item: AlertRule | AlertChannel, status: HTTPStatus = HTTPStatus.OK) -> Reply:
    return Reply(item, status, {"ETag": f'"{item.revision}"'})
