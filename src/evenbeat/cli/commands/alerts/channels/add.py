"""``evenbeat alerts channels add``."""

from __future__ import annotations

from typing import Any

import click

from evenbeat.cli.alert_input import for_all_option
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.alerts import CHANNEL_KINDS, ChannelKind
from evenbeat.core.json_form import json_form


class _Kind(click.Choice[str]):
    """The kinds of channels, for completion. The library refuses other kinds, and says what to write."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)


@click.command("add")
@click.argument("name")
@click.argument("kind", type=_Kind(CHANNEL_KINDS), metavar="KIND")
@click.argument("url")
@click.option("--secret", metavar="TEXT", help="The key by which a webhook is signed.")
@for_all_option
@store_options
@json_option
def command(
    name: str,
    kind: ChannelKind,
    url: str,
    secret: str | None,
    all_tenants: bool,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Create an alert channel.

    KIND is webhook, apprise (mail, Slack, Teams, …), sentry or healthchecks. URL and --secret may name a
    variable of the processes that send, env:EVENBEAT_SECRET_NAME: then the store does not have the secret.
    """
    with opened(store, tenant) as app:
        made = app.alerts.channels.add(name, kind, url, secret=secret, all_tenants=all_tenants)

    def people() -> list[str]:
        flag = " --all-tenants" if all_tenants else ""
        return [
            f"added {made.name}: {made.kind}, {made.address}",
            f"to see whether it works: evenbeat alerts test {made.name}{flag}",
        ]

    answer({"channel": json_form(made)}, people, as_json=as_json)
