"""The store on the command line: its options, its settings, and errors about what is missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import click

from evenbeat.app.acting import acting_as, this_user
from evenbeat.app.rows import DID_YOU_MEAN
from evenbeat.app.scheduler import Scheduler
from evenbeat.cli.failures import Failed, warn
from evenbeat.cli.option_flags import setting_override
from evenbeat.cli.phrases import one_line
from evenbeat.config import Origin, Setting, Settings, read_settings
from evenbeat.core.results import Schedule
from evenbeat.errors import (
    AppImportError,
    InvalidValue,
    RunNotFound,
    ScheduleExists,
    ScheduleNotFound,
    StoreUnavailable,
)
from evenbeat.observe.phrases import command_line
from evenbeat.record_errors import BackfillNotFound
from evenbeat.stores.base import Store
from evenbeat.stores.urls import open_url, without_password
from evenbeat.tasks.task import Tasks

_Function = TypeVar("_Function", bound=Callable[..., Any])


class FoundStore(NamedTuple):
    """A store that is not opened yet."""

    store: Store
    where: str
    """Its URL, without a password."""


store_option = setting_override("store")
tenant_option = setting_override("tenant")
all_tenants_option = click.option("--all-tenants", is_flag=True, help="Include all tenants.")


def store_options(function: _Function) -> _Function:
    """Add --store and --tenant, as ``opened`` takes them."""
    return store_option(tenant_option(function))


def settings_here(**flags: Any) -> Settings:
    """Return the settings; warn of variables that look like a mistake."""
    settings = read_settings(flags)
    for warning in settings.warnings:
        warn(warning)
    return settings


def place(origin: Origin) -> str:
    """Return where a setting was set; a file in the working directory without its path."""
    near = origin.file is not None and origin.file.parent == Path.cwd()
    return str(origin._replace(file=Path(origin.file.name)) if near and origin.file else origin)


def find_store(
    settings: Settings, *, create: bool = False, empty: bool = False, is_argument: bool = False
) -> FoundStore:
    """Return the store that the settings name.

    Missing tables are an error, unless ``create`` or, on a server, ``empty`` allows them. ``is_argument``
    means that the URL was given as an argument, not as a flag.
    """
    setting = settings.of("store")
    if _is_of_app(settings):
        return _store_of_app(settings, create=create, empty=empty)
    try:
        store = open_url(setting.value)
    except InvalidValue as error:
        if setting.origin.kind in ("flag", "default"):
            raise
        raise InvalidValue(
            f"{place(setting.origin)}: {error.problem}", field=error.field, value=error.value, hint=error.hint
        ) from error
    if urlsplit(setting.value).scheme == "memory":
        raise Failed(
            "a store in memory is visible only inside its process",
            "name a database with --store or EVENBEAT_STORE",
        )
    if not create:
        has_origin = settings.is_set("store") and not is_argument
        _refuse_missing(store, f", which {place(setting.origin)} names" if has_origin else "", empty)
    return FoundStore(store, setting.shown)


def store_in_force(settings: Settings) -> Setting:
    """Return the setting of the store; if only an app is set, the store of the app's code.

    If the app can't be imported, print a warning; the value is then None.
    """
    if not _is_of_app(settings):
        return settings.of("store")
    from evenbeat.app.loading import load_store

    origin = Origin("app", settings["app"])
    try:
        return Setting("store", load_store(settings["app"])[1], origin)
    except (InvalidValue, AppImportError) as error:
        reason = one_line(error.trace if isinstance(error, AppImportError) else str(error))
        warn(f"the store is that of the app {settings['app']}, which can't be imported: {reason}")
        return Setting("store", None, origin)


def _is_of_app(settings: Settings) -> bool:
    return settings.is_set("app") and not settings.is_set("store")


def _store_of_app(settings: Settings, *, create: bool, empty: bool) -> FoundStore:
    """Return the store of the app's code, for settings that name an app and no store."""
    from evenbeat.app.loading import load_store

    found = FoundStore(*load_store(settings["app"]))
    if not create:
        create_it = f"'evenbeat run {settings['app']}' creates this one when it starts"
        _refuse_missing(found.store, f", which {settings['app']} names", empty, create_it)
    return found


def _refuse_missing(
    store: Store, named: str, empty: bool, create_it: str = "'evenbeat db upgrade' creates this one"
) -> None:
    is_file = hasattr(store, "path")
    missing = _missing(store) if is_file or not empty else None
    if missing is not None:
        raise Failed(
            f"{missing}{named}",
            f"name another one with --store or EVENBEAT_STORE, or its app with EVENBEAT_APP; {create_it}",
        )


def warn_of_other_store(settings: Settings, app: Scheduler) -> None:
    """Warn if a setting names another store than the code, which overrides it."""
    setting = settings.of("store")
    if settings.is_set("store") and without_password(setting.value) != app.url:
        warn(
            f"the code names the store {app.url}, which overrides {setting.shown} of "
            f"{place(setting.origin)}; write Scheduler() without a store to let the settings decide"
        )


@contextmanager
def opened(
    store: str | None,
    tenant: str | None,
    *,
    create: bool = False,
    tasks: bool = False,
    app_name: str | None = None,
) -> Iterator[Scheduler]:
    """Yield a scheduler on the store that the options and settings name, and close it.

    The audit records changes inside the block under the user of this process, on the command line. With
    ``tasks``, the scheduler has the tasks of the app that ``app_name`` or the settings name, if one does.
    """
    settings = settings_here(store=store, tenant=tenant, app=app_name)
    app = Scheduler(find_store(settings, create=create).store, tenant=settings["tenant"])
    if tasks and settings.is_set("app"):
        from evenbeat.app.loading import load_app

        for task in load_app(settings["app"]).tasks:
            app.tasks.add(task)
    try:
        with acting_as(this_user(), "cli"):
            yield app
    except ScheduleNotFound as error:
        hint = error.hint or ""
        if hint.startswith(DID_YOU_MEAN):
            raise Failed(str(ScheduleNotFound(error.tenant, error.name)), hint) from error
        raise Failed(str(error), _elsewhere(app, error.tenant, error.name)) from error
    except ScheduleExists as error:
        problem = f'schedule "{error.name}" of tenant "{error.tenant}" exists already'
        show = command_line(f"schedules show {error.name}", error.tenant)
        raise Failed(problem, f"'{show}' shows it") from error
    except BackfillNotFound as error:
        problem = f'there is no backfill "{error.backfill}" of tenant "{error.tenant}"'
        raise Failed(
            problem, f"'{command_line('backfills list', app.tenant)}' shows those that there are"
        ) from error
    except RunNotFound as error:
        owner, slash, _ = error.run.partition("/")
        other = slash and owner != app.tenant
        hint = f"'{command_line('runs list', app.tenant)}' shows the newest"
        raise Failed(str(error), f"of tenant {owner}? add --tenant {owner}" if other else hint) from error
    finally:
        app.close()


def options_unknown(tasks: Tasks, task: str) -> Iterator[str]:
    """Yield a line if the task is not among these tasks of the app."""
    if tasks.get(task) is not None:
        return
    if not len(tasks):
        why = "name its app with EVENBEAT_APP"
    else:
        near = get_close_matches(task, [known.name for known in tasks], n=1, cutoff=0.6)
        why = "the app has no such task" + (f": did you mean {near[0]}?" if near else "")
    yield f"the options that the code gives the task are not known here: {why}"


def complete_schedule(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return names of schedules for the shell."""
    return [row.name for row in _schedules_here(ctx) if row.name.startswith(incomplete)]


def complete_tag(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return tags of schedules for the shell."""
    tags = {tag for row in _schedules_here(ctx) for tag in row.tags}
    return sorted(tag for tag in tags if tag.startswith(incomplete))


def _schedules_here(ctx: click.Context) -> list[Schedule]:
    """Return the schedules of the store. After any error there are none: completion never fails."""
    try:
        settings = read_settings({"store": ctx.params.get("store"), "tenant": ctx.params.get("tenant")})
        app = Scheduler(find_store(settings).store, tenant=settings["tenant"])
        try:
            return app.schedules.list()
        finally:
            app.close()
    except Exception:
        return []


def _elsewhere(app: Scheduler, tenant: str, name: str) -> str:
    """Return a hint for a name that is like none of the tenant: the tenant that has it."""
    rows = app.schedules.list(all_tenants=True)
    elsewhere = [row.tenant for row in rows if row.name == name]
    if elsewhere:
        return f"tenant {elsewhere[0]} has one: --tenant {elsewhere[0]}"
    if not any(row.tenant == tenant for row in rows):
        return f"there are no schedules of tenant {tenant}"
    return f"'{command_line('schedules list', tenant)}' shows those that are there"


def _missing(store: Store) -> str | None:
    """Return what is missing in a store, or None. Opening the store would create it, so that comes first."""
    try:
        schema = store.schema()
    except StoreUnavailable:
        return None  # opening it reports why
    if schema.found or not schema.known:
        return None
    path = getattr(store, "path", None)
    if not isinstance(path, str):
        return "there are no Evenbeat tables in the database"
    name = os.path.basename(path) if os.path.dirname(path) == os.getcwd() else path
    return (
        f"there are no Evenbeat tables in {name}" if os.path.exists(path) else f"there is no database {name}"
    )
