"""``evenbeat tokens revoke``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from evenbeat.cli.failures import Failed
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_option
from evenbeat.record_errors import TokenNotFound


@click.command("revoke")
@click.argument("id")
@store_option
@json_option
def command(id: str, store: str | None, as_json: bool) -> None:  # noqa: A002  # what everybody calls it
    """Revoke a token. Servers refuse it within 5 seconds.

    ID is the one that 'evenbeat tokens list' shows, not the secret.
    """
    with opened(store, None) as app:
        try:
            app.tokens.revoke(id)
        except TokenNotFound as error:
            raise Failed(str(error), "'evenbeat tokens list' shows those that work") from error

    def people() -> Iterator[str]:
        yield f"revoked token {id}"

    answer({"revoked": id}, people, as_json=as_json)
