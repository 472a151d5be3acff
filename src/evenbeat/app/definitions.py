"""Definitions: what a user says about a schedule, as fields of its record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, cast

from msgspec.structs import replace

from evenbeat.app.acting import current_actor
from evenbeat.app.inheriting import changed_heir, definition_fields, new_heir, read_changes, read_names
from evenbeat.app.session import AppSession
from evenbeat.core.instants import Instant, Moment, read_moment
from evenbeat.core.json_text import from_json
from evenbeat.core.options import NEW_SCHEDULE, SCHEDULE
from evenbeat.core.records import Execution, ScheduleRecord
from evenbeat.core.results import ChangeWarning
from evenbeat.errors import InvalidValue, shown
from evenbeat.node.presence import live_nodes
from evenbeat.rules.dependencies import is_on_success
from evenbeat.rules.inheritance import INHERITABLE
from evenbeat.tasks.flow import refuse_options_of_steps
from evenbeat.tasks.options import NewScheduleOptions, ScheduleOptions, read_schedule_fields, refuse_unknown
from evenbeat.tasks.task import Call, Task
from evenbeat.triggers import Trigger, check_trigger, parse_trigger


class ScheduleChanges(ScheduleOptions, total=False):
    """What ``update`` may change."""

    task: Task[..., Any] | Call | str
    trigger: Trigger | str
    payload: Mapping[str, Any] | None
    template: str | None
    """None: it inherits from no template any more, and its options stay as they are."""
    inherit: Iterable[str]
    """Options that are not its own any more, and get the values of its template."""


CHANGEABLE = (*SCHEDULE, "task", "trigger", "payload", "template", "inherit")


def new_schedule(
    session: AppSession,
    name: str,
    trigger: Trigger | str | None,
    task: Task[..., Any] | Call | str | None,
    payload: Mapping[str, Any] | None,
    tenant: str | None,
    options: NewScheduleOptions,
) -> ScheduleRecord:
    """Return the record of a schedule that is to be created or declared. Its trigger may come from its
    template, which ``@name`` in the place of a trigger names, too."""
    refuse_unknown(options, NEW_SCHEDULE, "a schedule")
    is_paused, note = options.get("paused", False), options.get("note", "")
    if note and not is_paused:
        raise InvalidValue(
            f"note {shown(note)} says why a schedule is paused, and it is not",
            field="note",
            value=note,
            hint="add paused=True, or use description",
        )
    owner = session.tenant_of(tenant)
    trigger, template = read_names(session, owner, trigger, options.get("template"))
    if task is None:
        raise InvalidValue(
            "a schedule has a task", field="task", value=None, hint="give the task that it runs, or its name"
        )
    task_name, text, local = session.call(task, payload)
    fields: dict[str, Any] = {}
    if local is not None and local.kind == "flow":
        refuse_options_of_steps(options)
    if local is not None:
        fields = {"kind": local.kind, "queue": local.queue, "priority": local.priority}
    bare = ScheduleRecord(
        tenant=owner,
        name=name,
        task=task_name,
        trigger="" if trigger is None else str(check_trigger(trigger, "trigger")),
        payload=text,
        state="paused" if is_paused else "active",
        pause_note=note,
        paused_by=current_actor().name if is_paused else "",
        execution=Execution() if local is None else local.execution,
        **fields,
    )
    if template is not None:
        bare = new_heir(session, bare, template, [each for each in INHERITABLE if each in options])
    return replace(bare, **read_schedule_fields(options, bare.execution, bare.catch_up))


def task_warnings(session: AppSession, task: str) -> tuple[ChangeWarning, ...]:
    """Return a warning if tasks are known, of this app or of live nodes, and this task is not one of them."""
    found = unknown_task(session, task)
    if found is None:
        return ()
    lack, hint = found
    return (ChangeWarning(problem=f"{lack}: its runs wait until a node has it", hint=hint),)


def unknown_task(session: AppSession, task: str) -> tuple[str, str | None] | None:
    """Return that a task is not known, in words, and a hint; None if it is known, or no tasks are."""
    own = {each.name for each in session.tasks}
    if task in own:
        return None
    workers = [node for node in live_nodes(session.store()) if node.worker]
    if any(node.taker.has(task) for node in workers) or not (own or workers):
        return None
    known = own.union(*(node.tasks or () for node in workers))
    near = get_close_matches(task, sorted(known), n=1, cutoff=0.6)
    lack = "no live node has" if workers else "the app does not have"
    return f"{lack} the task {task}", f"did you mean {near[0]}?" if near else None


def changed_fields(session: AppSession, row: ScheduleRecord, changed: ScheduleChanges) -> dict[str, Any]:
    """Return the fields of the record that ``update`` changes, with their new values."""
    fields: dict[str, Any] = {}
    changed = cast(ScheduleChanges, read_changes(session, row.tenant, changed))
    if row.template or "template" in changed or "inherit" in changed:
        row = changed_heir(session, row, changed)
        fields |= definition_fields(row)
    if "trigger" in changed:
        fields["trigger"] = str(check_trigger(changed["trigger"], "trigger"))
    if "task" in changed or "payload" in changed:
        task = changed.get("task", row.task)
        has_payload = "payload" in changed or isinstance(task, Call)
        payload = changed.get("payload") if has_payload else from_json(row.payload)
        fields["task"], text, local = session.call(task, payload)
        if local is not None:
            fields["kind"] = local.kind
        if has_payload:
            fields["payload"] = text
    return fields | read_schedule_fields(changed, row.execution, row.catch_up)


def start_of(session: AppSession, start_at: Moment | None, wanted: ScheduleRecord) -> Instant | None:
    """Return ``start_at`` as an instant. A text without an offset is read in the trigger's zone."""
    if start_at is None:
        return None
    if is_on_success(wanted):
        raise InvalidValue(
            f"start_at {shown(str(start_at))} has no effect on a schedule that fires {wanted.trigger}",
            field="start_at",
            value=start_at,
            hint="leave it out, or create the schedule paused and resume it then",
        )
    return read_moment(start_at, "start_at", session.store().now(), parse_trigger(wanted.trigger).tzinfo)
