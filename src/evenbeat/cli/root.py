"""The root command, with the table of all commands."""

from __future__ import annotations

import click

from evenbeat import __version__
from evenbeat.cli.failures import Reporting
from evenbeat.cli.groups import Lazy, LazyGroup


class Root(Reporting, LazyGroup):
    """``evenbeat`` itself."""


@click.group(
    cls=Root,
    sections={
        "Run it": {
            "dev": Lazy(
                "evenbeat.cli.commands.dev", "Run an app here, and restart it when its files change."
            ),
            "run": Lazy("evenbeat.cli.commands.run", "Run an app: fire its schedules, execute its tasks."),
            "web": Lazy("evenbeat.cli.commands.web", "Serve the dashboard and the REST API."),
            "documents": Lazy(
                "evenbeat.cli.commands.documents", "Process documents of a collection or table that you have."
            ),
            "demo": Lazy(
                "evenbeat.cli.commands.demo", "Run jobs of every kind on an SQLite file, and watch."
            ),
        },
        "When it runs": {
            "next": Lazy("evenbeat.cli.commands.next", "Show the next ticks of a trigger."),
            "explain": Lazy(
                "evenbeat.cli.commands.explain", "Explain a trigger in words, with its next ticks."
            ),
            "forecast": Lazy(
                "evenbeat.cli.commands.forecast", "Show the coming load, and which schedules start together."
            ),
            "timeline": Lazy(
                "evenbeat.cli.commands.timeline", "Show when schedules ran and will run, a line for each."
            ),
        },
        "Schedules and runs": {
            "schedules": Lazy("evenbeat.cli.commands.schedules", "List, show, create and change schedules."),
            "runs": Lazy("evenbeat.cli.commands.runs", "List, show, enqueue, retry, cancel and move runs."),
            "flows": Lazy(
                "evenbeat.cli.commands.flows", "List, draw, run and resume flows: graphs of tasks."
            ),
            "backfills": Lazy("evenbeat.cli.commands.backfills", "List, show and cancel backfills."),
            "templates": Lazy(
                "evenbeat.cli.commands.templates",
                "Named sets of options that schedules inherit: list, show, set and delete them.",
            ),
            "calendars": Lazy(
                "evenbeat.cli.commands.calendars",
                "Keep days and times that schedules skip, or run only in: holidays, business hours.",
            ),
            "plan": Lazy(
                "evenbeat.cli.commands.plan", "Show what a deploy would change about the schedules."
            ),
            "apply": Lazy(
                "evenbeat.cli.commands.apply",
                "Make the schedules what the code and a file declare, in one step.",
            ),
            "audit": Lazy(
                "evenbeat.cli.commands.audit",
                "Show who changed which schedule or run, and how it was before.",
            ),
            "queues": Lazy(
                "evenbeat.cli.commands.queues",
                "Show how many runs wait in each queue, and whether it drains.",
            ),
            "limits": Lazy(
                "evenbeat.cli.commands.limits",
                "Limit how many runs are running at once, and how fast they start, over all machines.",
            ),
            "stats": Lazy(
                "evenbeat.cli.commands.stats", "Show how many runs started, failed and were late, over time."
            ),
            "metrics": Lazy(
                "evenbeat.cli.commands.metrics", "Print all metrics in the text format of Prometheus."
            ),
            "failures": Lazy("evenbeat.cli.commands.failures", "Show failed runs, grouped by their error."),
            "tenants": Lazy(
                "evenbeat.cli.commands.tenants", "List, show and purge tenants, and set their quotas."
            ),
            "attention": Lazy(
                "evenbeat.cli.commands.attention",
                "List what needs somebody now: late, failing and stuck jobs, missing nodes.",
            ),
            "why": Lazy(
                "evenbeat.cli.commands.why",
                "Explain why a schedule ran, or did not run, or why a run is in its state.",
            ),
            "alerts": Lazy(
                "evenbeat.cli.commands.alerts",
                "Say what is announced when jobs fail or do not run; show what is wrong now.",
            ),
            "account": Lazy(
                "evenbeat.cli.commands.account",
                "Show what became of each tick of a schedule: it ran, was skipped, or is missing.",
            ),
        },
        "The store and this machine": {
            "health": Lazy(
                "evenbeat.cli.commands.health", "Check the nodes on this host, for containers and services."
            ),
            "nodes": Lazy("evenbeat.cli.commands.nodes", "List the live nodes."),
            "quarantine": Lazy(
                "evenbeat.cli.commands.quarantine",
                "List, show, retry and drop schedules and runs that nodes can't process.",
            ),
            "doctor": Lazy("evenbeat.cli.commands.doctor", "Check the store, and whether nodes work on it."),
            "repair": Lazy("evenbeat.cli.commands.repair", "Find duplicates and stuck rows, and mend them."),
            "retention": Lazy(
                "evenbeat.cli.commands.retention", "Set how long, and how many, ended runs are kept."
            ),
            "tokens": Lazy(
                "evenbeat.cli.commands.tokens", "Create, list and revoke access tokens of the REST API."
            ),
            "db": Lazy("evenbeat.cli.commands.db", "Create or upgrade the tables of the store."),
            "config": Lazy("evenbeat.cli.commands.config", "Show the settings and where they come from."),
            "completion": Lazy(
                "evenbeat.cli.commands.completion", "Print the script that makes a shell complete commands."
            ),
        },
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    options_metavar="",
    epilog="'evenbeat COMMAND --help' shows the options of a command.",
)
@click.version_option(__version__, message="evenbeat %(version)s")
@click.pass_context
def root(ctx: click.Context) -> None:
    """Every tick, exactly once: cron, interval and one-shot jobs on the database you already have."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), color=ctx.color)
