"""``evenbeat metrics``: what Prometheus would read."""

from __future__ import annotations

import click

from evenbeat.cli.failures import Failed
from evenbeat.cli.option_flags import setting_flags
from evenbeat.cli.store_input import opened, settings_here, store_option


@click.command("metrics")
@click.option("--tenant", metavar="NAME", help="Only what concerns this tenant.")
@setting_flags("metrics_schedules")
@store_option
def command(tenant: str | None, metrics_schedules: int | None, store: str | None) -> None:
    """Print all metrics in the text format of Prometheus.

    'evenbeat web' serves the same at /metrics. On a machine with a node exporter, write the output to a file
    of its textfile collector instead.
    """
    settings = settings_here(metrics_schedules=metrics_schedules)
    with opened(store, None) as app:
        try:
            text = app.metrics(tenant=tenant, schedules=settings["metrics_schedules"])
        except ImportError as error:
            raise Failed(
                f"metrics need {error.name}, which is not installed", "pip install 'evenbeat[metrics]'"
            ) from error
    click.echo(text, nl=False)
