"""``evenbeat retention remove``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from evenbeat.cli.failures import Failed
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.retention_input import subject_options
from evenbeat.cli.store_input import opened, store_option
from evenbeat.core.retention import EndedState
from evenbeat.record_errors import RetentionRuleNotFound


@click.command("remove")
@subject_options
@store_option
@json_option
def command(state: EndedState | None, tenant: str | None, store: str | None, as_json: bool) -> None:
    """Delete a retention rule.

    The rule for exactly --tenant and --state; without these, the rule for all tenants and states.
    """
    with opened(store, None) as app:
        try:
            app.retention.remove(state=state, tenant=tenant)
        except RetentionRuleNotFound as error:
            raise Failed(str(error), "'evenbeat retention list' shows those that are there") from error

    def people() -> Iterator[str]:
        runs = "ended runs" if state is None else f"{state} runs"
        yield f"removed the rule for {runs} of {'all tenants' if tenant is None else f'tenant {tenant}'}"

    answer({"removed": {"tenant": tenant, "state": state}}, people, as_json=as_json)
