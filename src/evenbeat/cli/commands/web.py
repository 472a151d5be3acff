"""``evenbeat web``: the dashboard and the REST API on a port."""

from __future__ import annotations

from typing import Any

import click

from evenbeat.cli.failures import Failed, warn
from evenbeat.cli.option_flags import setting_flags
from evenbeat.cli.store_input import store_options

_ALERTS = ("public_url", "allow_private_webhooks")
# Below this, a handful of people with several open pages each can take all descriptors of the server.
_FEW_DESCRIPTORS = 512


@click.command("web")
@click.argument("app", metavar="[APP]", required=False)
@setting_flags(
    "web_host", "web_port", "web_hosts", "web_proxies", "web_metrics", "metrics_schedules", *_ALERTS
)
@click.option("--no-auth", is_flag=True, help="Ask for no token. Only on a loopback address.")
@click.option("--parent", type=int, hidden=True, help="The descriptor that is closed when the parent ends.")
@store_options
@setting_flags("log_format", "log_level")
def command(
    app: str | None, no_auth: bool, parent: int | None, store: str | None, tenant: str | None, **flags: Any
) -> None:
    """Serve the dashboard and the REST API.

    APP is a file (app.py) or a module (shop.jobs): its tasks check the payloads of requests. Without it, the
    API works on the store that the settings name. Each request needs a token, and so does the login to the
    dashboard: 'evenbeat tokens create NAME' creates one. This process fires and executes nothing: 'evenbeat
    run' does.
    """
    from evenbeat.app.scheduler import Scheduler
    from evenbeat.cli.store_input import find_store, settings_here, warn_of_other_store
    from evenbeat.errors import InvalidValue
    from evenbeat.observe import logs

    if parent is not None:
        from evenbeat.processes.signals import end_with

        end_with(parent)
    settings = settings_here(app=app, store=store, tenant=tenant, **flags)
    logs.configure(settings["log_format"], settings["log_level"].upper())
    serving, web = _modules()
    if settings.is_set("app"):
        from evenbeat.app.loading import load_app

        scheduler = load_app(settings["app"])
        warn_of_other_store(settings, scheduler)
        where = scheduler.url
    else:
        found, where = find_store(settings, empty=True)
        scheduler = Scheduler(found, tenant=settings["tenant"])
    if settings.is_set("schedule_mode"):
        scheduler.declare_mode(settings["schedule_mode"])
    if (file := settings.schedule_file()) is not None:
        scheduler.declare_file(file)
    made = web.web_app(
        scheduler,
        needs_token=not no_auth,
        hosts=_words(settings["web_hosts"]),
        proxies=_words(settings["web_proxies"]),
        open_metrics=settings["web_metrics"] == "open",
        metrics_schedules=settings["metrics_schedules"],
        **{name: settings[name] for name in _ALERTS if settings.is_set(name)},
    )
    host, port = settings["web_host"], settings["web_port"]
    try:
        serving.check_bind(host, made.state.settings)
        bound = serving.listen(host, port)
    except InvalidValue as error:
        raise Failed(error.problem, "leave out --no-auth, or --web-host") from error
    except serving.CannotListen as error:
        raise Failed(str(error), "choose another address with --web-host and --web-port") from error
    server = serving.WebServer(made, bound)
    if not no_auth and not scheduler.tokens.list():
        warn("there are no tokens yet; create one: evenbeat tokens create NAME --role admin")
    _warn_of_few_descriptors()
    click.echo(f"{server.places}, on {where}", err=True)
    try:
        server.run()
    finally:
        scheduler.close()


def _warn_of_few_descriptors() -> None:
    from evenbeat.processes.descriptors import descriptor_limit
    from evenbeat.web.limits import streams_of_all

    limit = descriptor_limit()
    if limit is not None and limit < _FEW_DESCRIPTORS:
        warn(
            f"this process may open {limit:,} files, so it serves at most {streams_of_all(limit):,} open "
            "pages of the dashboard at once; raise the limit with ulimit -n, LimitNOFILE= of systemd, or "
            "--ulimit nofile= of Docker"
        )


def _modules() -> tuple[Any, Any]:
    """Return the modules of the extra ``web``."""
    try:
        import evenbeat.web as web
        from evenbeat.web import serving
    except ModuleNotFoundError as error:
        raise Failed(
            f"the API needs {error.name}, which is not installed", "pip install 'evenbeat[web]'"
        ) from error
    return serving, web


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
