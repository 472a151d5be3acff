"""``evenbeat alerts test``."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click

from evenbeat.app.scheduler import Scheduler
from evenbeat.cli.alert_input import for_all_option
from evenbeat.cli.failures import ExitCode
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.alerts import AlertChannel, Delivery
from evenbeat.core.json_form import json_form

_WAIT = 20.0
_LOOK_EVERY = 0.2


@click.command("test")
@click.argument("name", metavar="CHANNEL")
@for_all_option
@store_options
@json_option
def command(name: str, all_tenants: bool, store: str | None, tenant: str | None, as_json: bool) -> ExitCode:
    """Send a test message, and wait until it arrived, for 20 s at most.

    A node or the web process sends it, as it would send an alert: 'evenbeat run' or 'evenbeat web' must run.
    The exit code is 1 if it did not arrive.
    """
    with opened(store, tenant) as app:
        channel = app.alerts.channels.get(name, all_tenants=all_tenants)
        sent = app.alerts.channels.test(name, all_tenants=all_tenants)
        found = _awaited(app, sent, all_tenants=all_tenants)
        has_nodes = bool(app.nodes())
        local = LocalTime.at(app.store.now())

    answer(
        {"delivery": json_form(found)}, lambda: _outcome(found, channel, has_nodes, local), as_json=as_json
    )
    return ExitCode.OK if found.state == "sent" else ExitCode.FAILED


def _awaited(app: Scheduler, delivery: Delivery, *, all_tenants: bool) -> Delivery:
    """Wait until the delivery is over, or was tried once."""
    end = time.monotonic() + _WAIT
    while delivery.state == "pending" and not delivery.error and time.monotonic() < end:
        time.sleep(_LOOK_EVERY)
        delivery = app.alerts.delivery(delivery.id, all_tenants=all_tenants)
    return delivery


def _outcome(delivery: Delivery, channel: AlertChannel, has_nodes: bool, local: LocalTime) -> Iterator[str]:
    where = f"{channel.name} ({channel.kind}, {channel.address})"
    error = printable(delivery.error or "", keep="")
    if delivery.state == "sent":
        yield f"sent to {where}"
    elif delivery.state == "failed":
        yield f"not sent to {where}: {error}"
    elif delivery.error:
        again = "" if delivery.next_try_at is None else f" at {local.near(delivery.next_try_at)}"
        yield f"not sent to {where}: {error}"
        yield f"it is tried again{again}: evenbeat alerts log {delivery.id}"
    else:
        yield f"not sent to {where} yet: " + (
            "no process took it" if has_nodes else "no node is running: evenbeat run APP, or evenbeat web"
        )
        yield f"to see what becomes of it: evenbeat alerts log {delivery.id}"
