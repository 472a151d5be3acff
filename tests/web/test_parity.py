"""Python, the command line and the REST API offer the same verbs, with the same parameters.

A method, a command or an endpoint that is in no row of VERBS, and not among the exceptions, fails here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args, get_type_hints, is_typeddict

import click
import msgspec
import pytest

import evenbeat.doctor.diagnosis
from evenbeat import Scheduler
from evenbeat.app.alerts.alerts import Alerts
from evenbeat.app.alerts.channels import AlertChannels
from evenbeat.app.alerts.rules import AlertRules
from evenbeat.app.alerts.windows import MaintenanceWindows
from evenbeat.app.audit import Audit
from evenbeat.app.backfills import Backfills
from evenbeat.app.calendars import Calendars
from evenbeat.app.flows import Flows
from evenbeat.app.limits import RunLimits
from evenbeat.app.quarantine import Quarantine
from evenbeat.app.retention import Retention
from evenbeat.app.runs import Runs
from evenbeat.app.schedules.schedules import Schedules
from evenbeat.app.templates import Templates
from evenbeat.app.tenants import Tenants
from evenbeat.app.tokens import Tokens
from evenbeat.cli.root import root
from evenbeat.core.options import RUN
from evenbeat.web.app import ENDPOINTS
from evenbeat.web.endpoint import TABLE, Endpoint


class Verb(NamedTuple):
    """One verb, in its three forms."""

    python: str
    cli: str
    rest: str


VERBS = (
    Verb("schedules.list", "schedules list", "GET /schedules"),
    Verb("schedules.add", "schedules add", "POST /schedules"),
    Verb("schedules.get", "schedules show", "GET /schedules/{name}"),
    Verb("schedules.update", "schedules update", "PATCH /schedules/{name}"),
    Verb("schedules.delete", "schedules delete", "DELETE /schedules/{name}"),
    Verb("schedules.pause", "schedules pause", "POST /schedules/{name}/pause"),
    Verb("schedules.resume", "schedules resume", "POST /schedules/{name}/resume"),
    Verb("schedules.preview_resume", "schedules resume", "GET /schedules/{name}/resume"),
    Verb("schedules.reset", "schedules reset", "POST /schedules/{name}/reset"),
    Verb("schedules.reschedule", "schedules reschedule", "POST /schedules/{name}/reschedule"),
    Verb("schedules.run_now", "schedules run", "POST /schedules/{name}/run"),
    Verb("schedules.backfill", "schedules backfill", "POST /schedules/{name}/backfill"),
    Verb("backfills.list", "backfills list", "GET /backfills"),
    Verb("backfills.get", "backfills show", "GET /backfills/{id}"),
    Verb("backfills.cancel", "backfills cancel", "POST /backfills/{id}/cancel"),
    Verb("schedules.pause_all", "schedules pause", "POST /bulk/schedules"),
    Verb("schedules.resume_all", "schedules resume", "POST /bulk/schedules"),
    Verb("schedules.run_all", "schedules run", "POST /bulk/schedules"),
    Verb("schedules.update_all", "schedules update", "POST /bulk/schedules"),
    Verb("schedules.delete_all", "schedules delete", "POST /bulk/schedules"),
    Verb("schedules.next_run", "schedules show", "GET /schedules/{name}"),
    Verb("schedules.preview", "schedules show", "GET /schedules/{name}/ticks"),
    Verb("schedules.calendars", "schedules show", "GET /schedules/{name}/calendars"),
    Verb("schedules.dependencies", "schedules show", "GET /schedules/{name}/dependencies"),
    Verb("schedules.skipped", "schedules show", "GET /schedules/{name}/skipped"),
    Verb("schedules.stats", "schedules show", "GET /schedules/{name}/stats"),
    Verb("schedules.recent", "schedules show", "GET /schedules"),
    Verb("schedules.recent", "schedules show", "GET /schedules/{name}"),
    Verb("schedules.history", "schedules history", "GET /schedules/{name}/history"),
    Verb("schedules.why", "why", "GET /schedules/{name}/why"),
    Verb("schedules.account", "account", "GET /schedules/{name}/account"),
    Verb("schedules.cells", "schedules cells", "GET /schedules/{name}/cells"),
    Verb("flows.list", "flows list", "GET /flows"),
    Verb("flows.get", "flows show", "GET /flows/{flow}"),
    Verb("flows.run", "flows run", "POST /flows/{flow}/run"),
    Verb("flows.show", "flows show", "GET /flow-runs/{id}"),
    Verb("flows.resume", "flows resume", "POST /flow-runs/{id}/resume"),
    Verb("flows.retry", "flows retry", "POST /flow-runs/{id}/retry"),
    Verb("flows.cancel", "flows cancel", "POST /flow-runs/{id}/cancel"),
    Verb("runs.list", "runs list", "GET /runs"),
    Verb("runs.page", "runs list", "GET /runs"),
    Verb("runs.get", "runs show", "GET /runs/{id}"),
    Verb("runs.logs", "runs logs", "GET /runs/{id}/logs"),
    Verb("runs.retry", "runs retry", "POST /runs/{id}/retry"),
    Verb("runs.cancel", "runs cancel", "POST /runs/{id}/cancel"),
    Verb("runs.retry_all", "runs retry", "POST /bulk/runs"),
    Verb("runs.cancel_all", "runs cancel", "POST /bulk/runs"),
    Verb("runs.move", "runs move", "POST /runs/move"),
    Verb("plan", "plan", "GET /plan"),
    Verb("plan", "plan", "POST /plan"),
    Verb("apply", "apply", "POST /apply"),
    Verb("runs.history", "runs history", "GET /runs/{id}/history"),
    Verb("runs.why", "why", "GET /runs/{id}/why"),
    Verb("runs.why_waiting", "why", "GET /runs/{id}/why"),
    Verb("enqueue", "runs enqueue", "POST /runs"),
    Verb("explain", "explain", "POST /preview"),
    Verb("explain", "next", "POST /preview"),
    Verb("forecast", "forecast", "GET /forecast"),
    Verb("timeline", "timeline", "GET /timeline"),
    Verb("nodes", "nodes", "GET /nodes"),
    Verb("queues", "queues", "GET /queues"),
    Verb("tenants.list", "tenants list", "GET /tenants"),
    Verb("tenants.get", "tenants show", "GET /tenants/{name}"),
    Verb("tenants.set_quota", "tenants quota", "POST /tenants/{name}/quota"),
    Verb("tenants.remove_quota", "tenants quota", "DELETE /tenants/{name}/quota"),
    Verb("tenants.purge", "tenants purge", "POST /tenants/{name}/purge"),
    Verb("quarantine.list", "quarantine list", "GET /quarantine"),
    Verb("quarantine.show", "quarantine show", "GET /quarantine/{id}"),
    Verb("quarantine.retry", "quarantine retry", "POST /quarantine/{id}/retry"),
    Verb("quarantine.drop", "quarantine drop", "DELETE /quarantine/{id}"),
    Verb("retention.list", "retention list", "GET /retention"),
    Verb("retention.set", "retention set", "POST /retention"),
    Verb("retention.remove", "retention remove", "DELETE /retention"),
    Verb("repair", "repair", "POST /repair"),
    Verb("attention", "attention", "GET /attention"),
    Verb("statistics", "stats", "GET /statistics"),
    Verb("failures", "failures", "GET /failures"),
    Verb("metrics", "metrics", "GET /metrics"),
    Verb("audit.list", "audit", "GET /audit"),
    Verb("audit.page", "audit", "GET /audit"),
    Verb("tokens.create", "tokens create", "POST /tokens"),
    Verb("tokens.list", "tokens list", "GET /tokens"),
    Verb("tokens.revoke", "tokens revoke", "DELETE /tokens/{id}"),
    Verb("limits.list", "limits list", "GET /limits"),
    Verb("limits.get", "limits show", "GET /limits"),
    Verb("limits.set", "limits set", "POST /limits"),
    Verb("limits.remove", "limits remove", "DELETE /limits"),
    Verb("templates.list", "templates list", "GET /templates"),
    Verb("templates.get", "templates show", "GET /templates/{name}"),
    Verb("templates.set", "templates set", "POST /templates"),
    Verb("templates.delete", "templates delete", "DELETE /templates/{name}"),
    Verb("calendars.list", "calendars list", "GET /calendars"),
    Verb("calendars.get", "calendars show", "GET /calendars/{name}"),
    Verb("calendars.set", "calendars set", "POST /calendars/{name}"),
    Verb("calendars.delete", "calendars delete", "DELETE /calendars/{name}"),
    Verb("calendars.preview", "calendars show", "GET /calendars/{name}/days"),
    Verb("alerts.rules.list", "alerts list", "GET /alerts/rules"),
    Verb("alerts.rules.add", "alerts add", "POST /alerts/rules"),
    Verb("alerts.rules.get", "alerts show", "GET /alerts/rules/{name}"),
    Verb("alerts.rules.update", "alerts update", "PATCH /alerts/rules/{name}"),
    Verb("alerts.rules.delete", "alerts delete", "DELETE /alerts/rules/{name}"),
    Verb("alerts.rules.mute", "alerts mute", "POST /alerts/rules/{name}/mute"),
    Verb("alerts.rules.unmute", "alerts unmute", "POST /alerts/rules/{name}/unmute"),
    Verb("alerts.channels.list", "alerts channels list", "GET /alerts/channels"),
    Verb("alerts.channels.add", "alerts channels add", "POST /alerts/channels"),
    Verb("alerts.channels.get", "alerts channels list", "GET /alerts/channels/{name}"),
    Verb("alerts.channels.update", "alerts channels update", "PATCH /alerts/channels/{name}"),
    Verb("alerts.channels.delete", "alerts channels delete", "DELETE /alerts/channels/{name}"),
    Verb("alerts.channels.test", "alerts test", "POST /alerts/channels/{name}/test"),
    Verb("alerts.windows.list", "alerts windows list", "GET /alerts/windows"),
    Verb("alerts.windows.add", "alerts windows add", "POST /alerts/windows"),
    Verb("alerts.windows.delete", "alerts windows delete", "DELETE /alerts/windows/{name}"),
    Verb("alerts.incidents", "alerts open", "GET /alerts/incidents"),
    Verb("alerts.deliveries", "alerts log", "GET /alerts/deliveries"),
    Verb("alerts.delivery", "alerts log", "GET /alerts/deliveries/{id}"),
    Verb("evenbeat.doctor.diagnosis.diagnose", "doctor", "GET /doctor"),
)

_PROGRAM = "runs or describes the program itself"
_STATE = "the state of this process"
ONLY_PYTHON = {
    "start": _PROGRAM,
    "stop": _PROGRAM,
    "run": _PROGRAM,
    "close": _PROGRAM,
    "hurry": _PROGRAM,
    "task": _PROGRAM,
    "flow": _PROGRAM,
    "new_flow": _PROGRAM,
    "declare_tasks": _PROGRAM,
    "declare": "declares what the code says",
    "declare_mode": "sets what plan and apply do; a variable or a file sets it for commands and nodes",
    "declare_file": "declares what a file says; plan and apply take one, too",
    "node_settings": _PROGRAM,
    "before": _PROGRAM,
    "after": _PROGRAM,
    "on_error": _PROGRAM,
    "on_event": f"{_PROGRAM}; GET /events streams changes to other programs",
    "on_idle": _PROGRAM,
    "on_start": _PROGRAM,
    "on_stop": _PROGRAM,
    "stand_in": "replaces the store in tests",
    "events": _STATE,
    "is_idle": _STATE,
    "is_processing": _STATE,
    "is_running": _STATE,
    "node": _STATE,
    "store": _STATE,
    "tasks": _STATE,
    "tenant": _STATE,
    "lock": "a lock ends with the process that holds it",
    "enqueue_many": "a batch, so that one commit adds many runs; a client sends POST /runs for each",
    "schedules.declare": "declares what the code says; POST and PATCH make the same changes by hand",
    "timeline_of": "reads the lanes of a list, which has keys already",
    "schedules.get_with_stats": "reads a batch for lists, which have rows already",
    "runs.join": "waits in the caller's process; others poll the run or follow the events",
    "runs.count": "counts history; statistics and queues answer without that",
    "alert_service": _PROGRAM,
    "alerts.declare": _PROGRAM,
    "alerts.declare_channel": "declares what the code says",
    "alerts.declare_rule": "declares what the code says",
    "alerts.declare_config": "declares what evenbeat.toml says",
    "alerts.rules.declare": "declares what the code says; POST and PATCH make the same changes by hand",
    "alerts.channels.declare": "declares what the code says; POST and PATCH make the same changes by hand",
    "tokens.verify": "checks a secret that came with a request",
    "tokens.use": "checks the token of a session",
    "tokens.works": "checks the token of an open stream",
}
ONLY_CLI = {
    "dev": "runs a program here",
    "run": "runs a program here",
    "web": "serves the API",
    "documents run": "runs a program here",
    "demo": "runs a program here",
    "health": "checks processes of this host; over HTTP, /healthz and /readyz do",
    "db upgrade": "changes the tables before a program starts",
    "config show": "shows the settings of this shell",
    "completion": "sets up this shell",
}
ONLY_REST = {
    "GET /openapi.json": "describes the API",
    "GET /me": "says what a token may do; a shell has no token",
    "POST /session": "for browsers, which must not keep a token",
    "DELETE /session": "for browsers, which must not keep a token",
    "GET /events": "Python has on_event; the live output of 'dev' and 'runs logs --follow' show changes",
}

SHELL = {
    "store": "the API has one store",
    "as_json": "the API always answers JSON",
    "yes": "confirms; over REST, dry_run is false",
    "every": "chooses bulk; over REST, a path of its own does",
}
# A parameter that has another name in a shell or over HTTP.
CLI_NAMES = {
    "run_id": "id",
    "backfill_id": "id",
    "when": "at",
    "expr": "trigger",
    "metrics_schedules": "schedules",
}
CLI_NAMES |= {"name_pattern": "name", "of_task": "task", "in_queue": "queue", "from_template": "template"}
# Python's name of an id or name that the path has.
PATH_NAMES = {"{name}": "name", "{id}": "id", "{flow}": "flow"}

_CURSOR = "the command prints as much as --limit says"
_REVISION = "guards a change of what was read before; the command changes what is there now"
NOT_IN_CLI = {
    "* if_revision": _REVISION,
    "* cursor": _CURSOR,
    "* dry_run": "without --yes, the command counts, shows a sample and asks",
    "* brief": "the table is brief, and --json has whole runs",
    "* names": "a shell names one schedule, or chooses by filters",
    "* ids": "a shell names one run, or chooses by filters and --error-group",
    "plan schedules": "a shell names a file",
    "apply schedules": "a shell names a file",
    "apply plan": "the command applies the plan that it has shown",
    "schedules.update_all changes": "a flag for each of them",
    "schedules.run_now id": "makes a repeated call add nothing; a person sees whether it worked",
    "schedules.backfill order": "--newest-first",
    "schedules.preview schedule": "the argument NAME",
    "schedules.preview count": "'schedules show' has room for a few ticks; 'next' takes --count",
    "schedules.preview since": "'schedules show' starts now; 'next' takes --from",
    "schedules.skipped limit": "'schedules show' has room for a few",
    "schedules.stats schedules": "the argument NAME",
    "schedules.recent schedules": "the argument NAME",
    "schedules.recent limit": "'schedules show' has a line of 60",
    "schedules.why name": "the argument of 'why' is a name or an id",
    "runs.why id": "the argument of 'why' is a name or an id",
    "schedules.why tz": "evidence is in local time",
    "runs.why tz": "evidence is in local time",
    "schedules.preview_resume tz": "in the trigger's zone, as 'schedules show'",
    "runs.why_waiting id": "the argument of 'why' is a name or an id",
    "tenants.list name": "a shell sees all tenants; 'tenants show' takes a name",
    "* progress": "the command shows it on the terminal",
    "enqueue delay": "--at takes a duration, too",
    "enqueue within": "a transaction of the calling program",
    **{f"flows.run {name}": "the code of the flow declares it; 'runs enqueue' takes it" for name in RUN},
    "flows.run flow": "the argument NAME",
    "flows.run delay": "--at takes a duration, too",
    "flows.show id": "the argument of 'flows show' is a name or an id",
    "forecast by": "the command chooses minutes, or hours for a range that is too long for them",
    "evenbeat.doctor.diagnosis.diagnose local": "the clock of this machine",
    "explain count": "'explain' shows three ticks; 'next' takes --count",
    "alerts.channels.get name": "'channels list' shows all of a channel",
    "alerts.incidents open": "'alerts open' shows what is open, --past what is over",
}
NOT_IN_REST = {
    "flows.get name": "the flow in the path",
    "plan file": "a client sends the schedules themselves",
    "plan source": "GET /plan has the label of the server's app; POST /plan takes one",
    "plan schedules": "POST /plan takes them",
    "apply file": "a client sends the schedules themselves",
    "schedules.preview schedule": "the name in the path",
    "schedules.preview since": "POST /preview takes it, for any trigger",
    "schedules.stats schedules": "the name in the path",
    "schedules.recent schedules": "the schedules of the page, or the name in the path",
    "schedules.recent limit": "the parameter recent, which is 0 by default",
    "runs.list ids": "GET /runs/{id} reads one",
    "runs.page ids": "GET /runs/{id} reads one",
    "tenants.list name": "the tenant of the token",
    "* progress": "each request changes or deletes a part, and says how much",
    "metrics tenant": "the tenant of the token",
    "metrics schedules": "the setting metrics_schedules of the server",
    "enqueue within": "a transaction of the calling program",
    "evenbeat.doctor.diagnosis.diagnose local": "the clock of the server's machine",
}
MORE_IN_CLI = {
    "* tz": "a part of the trigger's text",
    "plan app": "over REST, the server's own app",
    "apply app": "over REST, the server's own app",
    "schedules update no_payload": "null over REST, None in Python",
    "schedules update no_template": "null over REST, None in Python",
    "schedules update no_timeout": "null over REST, None in Python",
    "schedules update no_max_concurrent": "null over REST, None in Python",
    "schedules backfill newest_first": "the order newest",
    "schedules backfill wait": "follows the progress; over REST, GET /backfills/{id} has it",
    "backfills show wait": "follows the progress; over REST, GET /backfills/{id} has it",
    "* app_name": "names the app that has the flows; over REST, the server's own app",
    "flows run name": "Python calls it flow",
    "flows run wait": "follows the run; over REST, the events say when it changes",
    "flows resume wait": "follows the run; over REST, the events say when it changes",
    "flows retry wait": "follows the run; over REST, the events say when it changes",
    "flows show wait": "follows the run; over REST, the events say when it changes",
    "flows show picture": "draws it; over REST, the graph is data",
    "flows show output": "the file of the picture",
    "runs list elements": "elements of a map share a line of the table; over REST, a list has whole runs",
    "runs logs follow": "reads the log again and again; over REST, the events say when",
    "runs retry error_group": "GET /failures has the group, and POST /bulk/runs takes its ids",
    "why subject": "a name or an id",
    "tenants quota remove": "chooses the method",
    "alerts update no_schedule": "null over REST, None in Python",
    "alerts update no_tag": "null over REST, None in Python",
    "alerts channels update no_secret": "null over REST, None in Python",
    "alerts open past": "open=false",
    "forecast minutes": "the length of a bar on the terminal",
    "doctor url": "the store, as with --store",
}
_CATALOGUE = "the server's catalogue of schedules answers it; a store would have to read all of them"
MORE_IN_REST = {
    "GET /schedules sort": _CATALOGUE,
    "GET /schedules cursor": _CATALOGUE,
    "GET /timeline cursor": _CATALOGUE,
    "GET /plan all_tenants": "in Python, tenant=None stands for all tenants",
    "POST /plan all_tenants": "in Python, tenant=None stands for all tenants",
    "POST /apply all_tenants": "in Python, tenant=None stands for all tenants",
    "GET /schedules recent": "the limit of schedules.recent",
    "GET /schedules/{name} recent": "the limit of schedules.recent",
    "GET /schedules/{name} deleted": "schedules.get_with_stats has deleted ones, too",
    "POST /schedules id": "a repeated create with the same Idempotency-Key succeeds; in Python it is refused",
    "POST /schedules if_revision": "the answer has the ETag",
    "GET /schedules/{name} if_revision": "the answer has the ETag",
    "POST /alerts/rules if_revision": "the answer has the ETag",
    "GET /alerts/rules/{name} if_revision": "the answer has the ETag",
    "POST /alerts/channels if_revision": "the answer has the ETag",
    "GET /alerts/channels/{name} if_revision": "the answer has the ETag",
    "GET /flows tenant": "the tenant whose last runs it has",
    "GET /flows all_tenants": "the tenants whose last runs it has",
    "GET /flows recent": "the last runs of each flow, for lists",
    "GET /flows/{flow} tenant": "a token of one tenant sees the flows that its tenant has runs of",
    "POST /bulk/schedules action": "chooses the method",
    "POST /bulk/runs action": "chooses the method",
}
# The server's catalogue leaves deleted schedules out.
ONLY_FLAGS = {("GET /schedules", "state"): {"deleted"}, ("GET /timeline", "state"): {"deleted"}}

_FACADES: dict[str, type] = {
    "": Scheduler,
    "schedules.": Schedules,
    "backfills.": Backfills,
    "runs.": Runs,
    "flows.": Flows,
    "tenants.": Tenants,
    "tokens.": Tokens,
    "limits.": RunLimits,
    "templates.": Templates,
    "calendars.": Calendars,
    "audit.": Audit,
    "quarantine.": Quarantine,
    "retention.": Retention,
    "alerts.": Alerts,
    "alerts.rules.": AlertRules,
    "alerts.channels.": AlertChannels,
    "alerts.windows.": MaintenanceWindows,
}


def methods() -> Iterator[str]:
    """Yield the public members of the façade, without the twins for async code."""
    for prefix, facade in _FACADES.items():
        for name in dir(facade):
            is_twin = name.startswith("a") and hasattr(facade, name[1:])
            if not name.startswith("_") and not is_twin:
                yield f"{prefix}{name}"


def method(name: str) -> Any:
    if name.startswith("evenbeat."):
        return getattr(evenbeat.doctor.diagnosis, name.rpartition(".")[2])
    prefix, dot, own = name.rpartition(".")
    return getattr(_FACADES[prefix + dot], own)


def python_parameters(name: str) -> set[str]:
    """Return the parameters of a method, with those of its keyword options."""
    function = inspect.unwrap(method(name))
    found = set()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            found |= _options(function, parameter.name)
        else:
            found.add(parameter.name)
    return found - {"self", "store"}


def _options(function: Any, name: str) -> set[str]:
    """Return the names of ``**options: Unpack[Options]``."""
    hint = eval(function.__annotations__[name], function.__globals__)  # noqa: S307  # our own annotation
    (options,) = get_args(hint)
    assert is_typeddict(options)
    return {*options.__required_keys__, *options.__optional_keys__}


def commands(group: click.Group = root, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield all commands with their names, those of groups, too."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands())
_SERVED = {module.__name__ for module in ENDPOINTS}
ROUTES = {f"{each.method} {each.path}": each for each in TABLE if each.handler.__module__ in _SERVED}


def cli_parameters(command: click.Command) -> set[str]:
    names = {CLI_NAMES.get(each.name or "", each.name or "") for each in command.params}
    return names - SHELL.keys()


def rest_parameters(route: Endpoint) -> set[str]:
    """Return the fields of the query, the body and its filter, the path, and what headers say."""
    found = {*route.query.__struct_fields__, *route.body.__struct_fields__}
    if "filter" in found:
        found.remove("filter")
        found |= set(get_type_hints(route.body)["filter"].__struct_fields__)
    found |= {own for part, own in PATH_NAMES.items() if part in route.path}
    if route.has_etag:
        found.add("if_revision")
    if route.is_idempotent:
        found.add("id")
    return found


def changes_of(route: Endpoint) -> set[str]:
    """Return the fields of the changes in the body of a bulk update; a shell has a flag for each."""
    if "changes" not in route.body.__struct_fields__:
        return set()
    changes = get_args(get_type_hints(route.body)["changes"])[0]
    return set(changes.__struct_fields__)


def listed(exceptions: dict[str, str], subject: str, name: str) -> bool:
    return f"{subject} {name}" in exceptions or f"* {name}" in exceptions


def missing() -> Iterator[tuple[str, str]]:
    """Yield each parameter that another form of its verb lacks, with the exceptions that may list it."""
    for verb in VERBS:
        wanted = python_parameters(verb.python)
        for name in sorted(wanted - cli_parameters(COMMANDS[verb.cli])):
            yield "NOT_IN_CLI", f"{verb.python} {name}"
        for name in sorted(wanted - rest_parameters(ROUTES[verb.rest])):
            yield "NOT_IN_REST", f"{verb.python} {name}"
    for cli in {verb.cli: None for verb in VERBS}:
        known = set().union(*(python_parameters(verb.python) for verb in VERBS if verb.cli == cli))
        for name in sorted(cli_parameters(COMMANDS[cli]) - known):
            yield "MORE_IN_CLI", f"{cli} {name}"
    for rest in {verb.rest: None for verb in VERBS}:
        known = set().union(*(python_parameters(verb.python) for verb in VERBS if verb.rest == rest))
        known |= {own for part, own in PATH_NAMES.items() if part in rest}
        for name in sorted(rest_parameters(ROUTES[rest]) - known):
            yield "MORE_IN_REST", f"{rest} {name}"


def choices_in_cli() -> dict[tuple[str, str], set[str]]:
    """Return the choices of flags, by endpoint and parameter; those of all commands of the endpoint."""
    found: dict[tuple[str, str], set[str]] = {}
    for verb in VERBS:
        for parameter in COMMANDS[verb.cli].params:
            name = str(parameter.name)
            route = ROUTES[verb.rest]
            names = rest_parameters(route) | changes_of(route)
            if isinstance(parameter.type, click.Choice) and name in names:
                found.setdefault((verb.rest, name), set()).update(parameter.type.choices)
    return found


def choices_in_rest() -> dict[tuple[str, str], set[str]]:
    """Return the choices of fields that are flags, too, by endpoint and parameter."""
    found = {}
    for rest, route in ROUTES.items():
        flags = set().union(*(cli_parameters(COMMANDS[verb.cli]) for verb in VERBS if verb.rest == rest))
        _, schemas = msgspec.json.schema_components([route.query, route.body])
        for schema in schemas.values():
            for name, field in schema.get("properties", {}).items():
                if "enum" in field and name in flags:
                    found[rest, name] = set(field["enum"])
    return found


PARAMETERS = {
    "NOT_IN_CLI": NOT_IN_CLI,
    "NOT_IN_REST": NOT_IN_REST,
    "MORE_IN_CLI": MORE_IN_CLI,
    "MORE_IN_REST": MORE_IN_REST,
}


def test_every_method_has_a_command_and_an_endpoint() -> None:
    known = {verb.python for verb in VERBS if not verb.python.startswith("evenbeat.")}
    assert set(methods()) == known | ONLY_PYTHON.keys()
    assert not known & ONLY_PYTHON.keys()


def test_every_command_has_a_method_and_an_endpoint() -> None:
    known = {verb.cli for verb in VERBS}
    assert COMMANDS.keys() == known | ONLY_CLI.keys()
    assert not known & ONLY_CLI.keys()


def test_every_endpoint_has_a_method_and_a_command() -> None:
    known = {verb.rest for verb in VERBS}
    assert ROUTES.keys() == known | ONLY_REST.keys()
    assert not known & ONLY_REST.keys()


def test_the_three_forms_of_a_verb_take_the_same_parameters() -> None:
    unlisted = [
        f"{kind}: {subject}"
        for kind, subject in missing()
        if not listed(PARAMETERS[kind], *subject.rsplit(" ", 1))
    ]
    assert unlisted == []


def test_flags_and_fields_offer_the_same_choices() -> None:
    flags, fields = choices_in_cli(), choices_in_rest()
    assert flags == {key: choices | ONLY_FLAGS.get(key, set()) for key, choices in fields.items()}
    assert not any(fields[key] & choices for key, choices in ONLY_FLAGS.items()), "no longer an exception"


@pytest.mark.parametrize("kind", PARAMETERS)
def test_no_exception_is_left_that_nothing_needs(kind: str) -> None:
    found = {subject for each, subject in missing() if each == kind}
    needed = found | {f"* {subject.rpartition(' ')[2]}" for subject in found}
    assert sorted(PARAMETERS[kind].keys() - needed) == []
