"""``evenbeat tokens create``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_option
from evenbeat.core.json_form import json_form
from evenbeat.core.tokens import ROLES, Role

_NEVER = "never"


@click.command("create")
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default="viewer",
    show_default=True,
    help="viewer reads; operator also pauses, runs, retries and cancels; admin may do everything.",
)
@click.option("--tenant", metavar="NAME", help="The only tenant that it may see.  [default: all tenants]")
@click.option(
    "--expires",
    metavar="DURATION",
    default="90d",
    show_default=True,
    help="How long it works: 90d, 12h, or never.",
)
@store_option
@json_option
def command(
    name: str, role: Role, tenant: str | None, expires: str, store: str | None, as_json: bool
) -> None:
    """Create a token, and print its secret once.

    NAME says who or what will use it; audit entries show it. Only a hash of the secret is stored: a lost one
    can't be shown again.
    """
    with opened(store, None) as app:
        made = app.tokens.create(name, role, tenant=tenant, expires=None if expires == _NEVER else expires)
        local = LocalTime.at(app.store.now())

    def people() -> Iterator[str]:
        token = made.token
        ends = "until it is revoked" if token.expires_at is None else f"until {local.full(token.expires_at)}"
        whose = "all tenants" if token.tenant is None else f"tenant {token.tenant}"
        yield f"token {token.id} ({token.role}, {whose}) works {ends}; its secret is shown only now:"
        yield ""
        yield made.secret
        yield ""
        yield "send it as: Authorization: Bearer <secret>"

    answer(json_form(made), people, as_json=as_json)
