"""Checks of a store and its nodes.

Everything here uses the protocol of stores alone, so it works with every database. ``now`` is the store's
time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any, Literal, TypeAlias

import msgspec

from evenbeat.app.alerts import reports
from evenbeat.app.limits import read_limit_record, read_usage
from evenbeat.app.repairs import Duplicate, duplicates, is_asleep, lost_runs
from evenbeat.app.templates import lagging
from evenbeat.core.alerts import Delivery
from evenbeat.core.instants import Instant, write_instant
from evenbeat.core.json_form import json_form
from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.errors import EvenbeatError
from evenbeat.node.presence import LiveNode, live_nodes
from evenbeat.node.self_check import latest_check
from evenbeat.observe.backlogs import LONG_WAIT
from evenbeat.observe.limit_usage import LimitUsage
from evenbeat.observe.missing_tasks import missing_tasks
from evenbeat.observe.phrases import count, span
from evenbeat.observe.reasons import lack_reason
from evenbeat.rules.calendar_records import KIND as CALENDAR
from evenbeat.rules.calendar_records import named_calendars, read_calendar
from evenbeat.rules.dependencies import broken, unlisted
from evenbeat.rules.limits import LIMIT, OWNER
from evenbeat.rules.templates import TEMPLATE
from evenbeat.rules.waiting import takers, why_no_taker
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, ScheduleQuery, Setting, Store
from evenbeat.stores.pages import every_run, every_schedule
from evenbeat.triggers.calendar_texts import write_day
from evenbeat.triggers.time_sets import BUILT_IN

LATE = 60_000
"""Milliseconds. A schedule or run that is due for longer waits for a node that is not there."""
_CLOCKS_APART = 2_000
_PAGE = 500
# Days.
_RENEW_BEFORE = 90
# Milliseconds: nodes check once a minute.
_CHECK_OLD = 180_000
# The most runs and rows that are read: enough to see a fault, in seconds at most.
_RUNS = 100_000

Level: TypeAlias = Literal["ok", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check. ``warn`` may be intended; ``fail`` is a problem."""

    check: str
    level: Level
    message: str
    hint: str | None = None
    details: tuple[str, ...] = ()
    facts: dict[str, Any] = msgspec.field(default_factory=dict)
    """Details for programs."""


# -- checks ------------------------------------------------------------------------------------------------


def diagnose(store: Store, local: Instant) -> list[Finding]:
    """Return the results of all checks of an open store; ``local`` is the clock of this machine."""
    now = store.now()
    alive = live_nodes(store)
    rows: list[ScheduleRecord] = []
    unread: list[Finding] = []
    try:
        rows = list(every_schedule(store, ScheduleQuery(limit=_PAGE)))
    except EvenbeatError as error:
        unread = [_unread(error)]
    limits = read_usage(store)
    return [
        _clock(now, local, rows),
        _nodes(alive, rows),
        *_from_memory(alive, now),
        *(unread or [_overdue(rows, now)]),
        _waiting(store, alive, now, limits),
        *_tasks(alive, rows),
        *_limits(store, alive, now, limits),
        _expired(store, now),
        *_self_check(store, alive, now),
        _quarantine(store, rows),
        *_deferred(store),
        *_dependencies(rows),
        *_calendars(store, rows, now),
        *_alerts(store),
        *_templates(store, rows),
        _duplicates(store),
    ]


def _calendars(store: Store, rows: list[ScheduleRecord], now: Instant) -> Iterator[Finding]:
    """Yield findings about calendars that end soon, and about schedules whose calendar is gone. Nothing is
    read for schedules without calendars."""
    stored = {(record.tenant, record.key): read_calendar(record) for record in store.find_records(CALENDAR)}
    today = now // 86_400_000
    for (tenant, name), found in sorted(stored.items()):
        if found is None or found.covers_until is None or found.covers_until - today > _RENEW_BEFORE:
            continue
        yield Finding(
            check="calendars",
            level="warn",
            message=f"calendar {name} of tenant {tenant} has holidays and events until "
            f"{write_day(found.covers_until)} only",
            hint=f"set it again to renew it: evenbeat calendars set {name} … --tenant {tenant}",
            facts={"calendar": name, "tenant": tenant, "covers_until": write_day(found.covers_until)},
        )
    for row in rows:
        for name in named_calendars(row.trigger) if row.calendars else ():
            if name not in BUILT_IN and (row.tenant, name) not in stored:
                yield Finding(
                    check="calendars",
                    level="warn",
                    message=f"calendar {name} is gone: schedule {row.name} goes on with its copy",
                    hint=f"set the calendar again, or change the trigger of {row.name}",
                    facts={"calendar": name, "tenant": row.tenant, "schedule": row.name},
                )


def safety_findings(settings: list[Setting]) -> Iterator[Finding]:
    """Yield a finding for each setting of the server that is not safe, and one for all the others."""
    for setting in settings:
        if setting.level != "ok":
            yield Finding(
                check="safety",
                level=setting.level,
                message=f"{setting.name} {setting.value}",
                hint=setting.hint,
                facts={setting.name: setting.value},
            )
    fine = [setting for setting in settings if setting.level == "ok"]
    if fine:
        yield Finding(
            check="safety",
            level="ok",
            message=", ".join(f"{setting.name} {setting.value}" for setting in fine),
            facts={setting.name: setting.value for setting in fine},
        )


def _clock(now: Instant, local: Instant, rows: list[ScheduleRecord]) -> Finding:
    apart = now - local
    facts = {"store_ahead": apart / 1000}
    written = max((row.updated_at for row in rows), default=now)
    if written > now + _CLOCKS_APART:
        return Finding(
            check="clock",
            level="fail",
            facts=facts,
            message=f"the store has rows from {span(written - now, units=1)} ahead: its clock went back",
            hint="correct the clock; until then no tick is due that was due before",
        )
    if abs(apart) > _CLOCKS_APART:
        length = span(abs(apart), units=1)
        ahead = "ahead of" if apart > 0 else "behind"
        return Finding(
            check="clock",
            level="warn",
            facts=facts,
            message=f"the store's clock is {length} {ahead} this machine's; the store's is used",
            hint="keep both in step with NTP",
        )
    return Finding(check="clock", level="ok", message="the store and this machine agree", facts=facts)


def _nodes(alive: list[LiveNode], rows: list[ScheduleRecord]) -> Finding:
    facts = {"nodes": [_node_facts(node) for node in alive]}
    if alive:
        details = _some(_node_words(node) for node in alive)
        message = f"{count(len(alive), 'node')} running"
        return Finding(check="nodes", level="ok", message=message, details=details, facts=facts)
    needed = any(row.state == "active" for row in rows)
    return Finding(
        check="nodes",
        level="warn" if needed else "ok",
        message="no node is running" if needed else "no node is running, and there is nothing to fire",
        hint="start one: evenbeat run" if needed else None,
        facts=facts,
    )


def _unread(error: EvenbeatError) -> Finding:
    return Finding(
        check="schedules",
        level="fail",
        message=f"the schedules can't be read: {error}",
        hint="free or restore their table; nodes go on with the schedules of their code meanwhile",
    )


def _from_memory(alive: list[LiveNode], now: Instant) -> list[Finding]:
    """Return a finding for nodes that fire schedules from memory, because of a failure or by choice."""
    failing = [node for node in alive if node.fallback_since is not None]
    findings = []
    if failing:
        since = min(node.fallback_since or now for node in failing)
        findings.append(
            Finding(
                check="fallback",
                level="fail",
                message=f"{count(len(failing), 'node fires', 'nodes fire')} schedules from memory, for "
                f"{span(now - since, units=1)}: their rows can't be read",
                hint="free or restore the table of schedules; nodes go back to it by themselves",
                details=_some(node.key for node in failing),
                facts={"nodes": [node.key for node in failing], "since": write_instant(since)},
            )
        )
    names = sorted({name for node in alive for name in node.code_only})
    if names:
        findings.append(
            Finding(
                check="modes",
                level="ok",
                message=f"{count(len(names), 'schedule is', 'schedules are')} in the code only",
                details=_some(names),
                facts={"code_only": names},
            )
        )
    return findings


def _overdue(rows: list[ScheduleRecord], now: Instant) -> Finding:
    late = sorted(
        (row.wake_at, row.tenant, row.name)
        for row in rows
        if row.wake_at is not None and row.wake_at < now - LATE
    )
    facts = {"schedules": [{"tenant": tenant, "name": name} for _, tenant, name in late]}
    if not late:
        return Finding(
            check="schedules", level="ok", message=f"none of {len(rows):,} is overdue", facts=facts
        )
    return Finding(
        check="schedules",
        level="fail",
        facts=facts,
        message=f"{count(len(late), 'schedule is', 'schedules are')} due and no node fires",
        hint="start a node with a ticker: evenbeat run",
        details=_some(f"{name} for {span(now - since, units=1)}" for since, _, name in late),
    )


def _waiting(store: Store, alive: list[LiveNode], now: Instant, limits: LimitUsage | None) -> Finding:
    counts: Counter[tuple[str, str]] = Counter()
    oldest: dict[tuple[str, str], Instant] = {}
    for number, run in enumerate(
        every_run(store, RunQuery(states=("queued",), without=LARGE_FIELDS, limit=_PAGE))
    ):
        if number >= _RUNS:
            break
        if run.run_at < now - LATE and not _is_limited(run, alive, limits):
            key = (run.task, run.queue)
            counts[key] += 1
            oldest[key] = min(oldest.get(key, now), run.run_at)
    facts = {"queued": [{"task": task, "queue": queue, "runs": n} for (task, queue), n in counts.items()]}
    if not counts:
        return Finding(check="queue", level="ok", message="no run has waited for over a minute", facts=facts)
    details = []
    for (task, queue), number in counts.most_common():
        why = _why_waiting(task, queue, alive)
        details.append(
            f"{task}: {count(number, 'run')}, for up to {span(now - oldest[task, queue], units=1)}{why}"
        )
    return Finding(
        check="queue",
        level="fail",
        facts=facts,
        message=f"{count(counts.total(), 'run waits', 'runs wait')} for a worker",
        hint="start a node that has these tasks and queues: evenbeat run",
        details=_some(details),
    )


def _tasks(alive: list[LiveNode], rows: list[ScheduleRecord]) -> list[Finding]:
    """Return a finding if schedules have a task that no live node has; else nothing."""
    missing = missing_tasks(rows, [node.taker for node in alive if node.worker])
    if not missing:
        return []
    details = []
    for each in missing:
        near = "" if each.near is None else f"; did you mean {each.near}?"
        names = ", ".join(row.name for row in each.schedules[:_SOME])
        more = f" and {len(each.schedules) - _SOME:,} more" if len(each.schedules) > _SOME else ""
        details.append(f"{each.task}, of {names}{more}{near}")
    number = sum(len(each.schedules) for each in missing)
    finding = Finding(
        check="tasks",
        level="warn",
        facts={"tasks": [{"task": e.task, "schedules": [r.name for r in e.schedules]} for e in missing]},
        message=f"{count(number, 'schedule has', 'schedules have')} a task that no live node has",
        hint="renamed: evenbeat schedules update NAME --task NEW, and "
        "evenbeat runs move --task OLD --to NEW; removed: evenbeat schedules delete NAME, or "
        "evenbeat apply --prune",
        details=_some(details),
    )
    return [finding]


def _is_limited(run: RunRecord, alive: list[LiveNode], limits: LimitUsage | None) -> bool:
    """Return whether a run that a live node could take waits for a limit."""
    if limits is None or limits.hold(run) is None:
        return False
    return bool(takers(run, [node.taker for node in alive]))


def _limits(store: Store, alive: list[LiveNode], now: Instant, usage: LimitUsage | None) -> Iterator[Finding]:
    """Yield what is wrong with limits; nothing if there are none, or all is well."""
    unread = [record for record in store.find_records(LIMIT, OWNER) if read_limit_record(record) is None]
    if unread:
        yield Finding(
            check="limits",
            level="fail",
            facts={"records": [{"key": record.key, "body": record.body} for record in unread]},
            message=f"{count(len(unread), 'limit')} can't be read and may not hold",
            hint="set them again or remove them: evenbeat limits set",
            details=_some(f"{record.key}: {record.body}" for record in unread),
        )
    if usage is None:
        return
    workers = [node.taker for node in alive if node.worker]
    useless = [
        limit.name
        for limit in usage.limits
        if workers and limit.task is not None and not any(node.has(limit.task) for node in workers)
    ]
    if useless:
        yield Finding(
            check="limits",
            level="warn",
            facts={"without_task": useless},
            message=f"{count(len(useless), 'limit is', 'limits are')} for tasks that no live node has",
            hint="check the names, or remove them: evenbeat limits remove",
            details=_some(useless),
        )
    slow = []
    for limit in usage.limits:
        since = usage.oldest_waiting(limit)
        if since is not None and since < now - LONG_WAIT:
            slow.append((since, limit.name, sum(each.waiting for each in usage.of(limit))))
    if slow:
        yield Finding(
            check="limits",
            level="warn",
            facts={"slow": [{"limit": name, "waiting": number} for _, name, number in sorted(slow)]},
            message=f"runs have waited for long for {count(len(slow), 'limit')}",
            hint="raise the limit, or enqueue less: evenbeat limits list",
            details=_some(
                f"{name}: {count(number, 'run')}, for up to {span(now - since, units=1)}"
                for since, name, number in sorted(slow)
            ),
        )


def _why_waiting(task: str, queue: str, alive: list[LiveNode]) -> str:
    nodes = [node.taker for node in alive if node.tasks is not None or not node.worker]
    if not nodes:
        return ""
    if any(node.has(task) and queue in node.queues for node in nodes):
        return "; nodes that have it are busy"
    return f"; {lack_reason(why_no_taker(task, nodes), task, queue)}"


def _expired(store: Store, now: Instant) -> Finding:
    runs = lost_runs(store, now)
    facts = {"runs": [run.id for run in runs]}
    if not runs:
        return Finding(check="leases", level="ok", message="every running run has a live worker", facts=facts)
    return Finding(
        check="leases",
        level="fail",
        facts=facts,
        message=f"{count(len(runs), 'run has', 'runs have')} no live worker, and no node took over",
        hint="start a node, or queue them again: evenbeat repair --yes",
        details=_some(
            f"{run.id} of {run.worker}, for {span(now - (run.lease_until or now), units=1)}" for run in runs
        ),
    )


def _self_check(store: Store, alive: list[LiveNode], now: Instant) -> list[Finding]:
    """Return what the nodes' own check last found; nothing if no node has made one."""
    last = latest_check(store)
    if last is None:
        return []
    facts = {
        "at": write_instant(last.at),
        "findings": [json_form(each.item) for each in last.findings.values()],
    }
    age = now - last.at
    if age > _CHECK_OLD and alive:
        return [
            Finding(
                check="self-check",
                level="warn",
                message=f"the nodes' last check is {span(age, units=1)} old",
                hint="look at the log of the nodes: they check once a minute",
                facts=facts,
            )
        ]
    if not last.findings or not alive:
        message = "the nodes found nothing wrong" if not last.findings else "no node is running to check"
        return [Finding(check="self-check", level="ok", message=message, facts=facts)]
    return [
        Finding(
            check="self-check",
            level="warn",
            message=f"the nodes found {count(len(last.findings), 'problem')}",
            hint="evenbeat attention --all-tenants",
            details=_some(
                f"{each.item.sentence} (for {span(now - each.since, units=1)})"
                for each in sorted(last.findings.values(), key=lambda each: each.since)
            ),
            facts=facts,
        )
    ]


def _quarantine(store: Store, rows: list[ScheduleRecord]) -> Finding:
    # A note stays if the row was repaired in the database itself.
    sound = {row.key for row in rows if not row.damage and not is_asleep(row)}
    notes = [note for note in store.find_records("quarantine") if (note.tenant, note.key) not in sound]
    # Active rows without a next wake-up; their note may be missing.
    noted = {(note.tenant, note.key) for note in notes}
    damaged = [row for row in rows if row.damage and row.key not in noted]
    asleep = [row for row in rows if not row.damage and is_asleep(row) and row.key not in noted]
    facts = {
        "records": [{"tenant": note.tenant, "key": note.key, "note": note.body} for note in notes],
        "damaged": [{"tenant": row.tenant, "name": row.name, "damage": row.damage} for row in damaged],
        "asleep": [{"tenant": row.tenant, "name": row.name} for row in asleep],
    }
    if not notes and not damaged and not asleep:
        return Finding(check="quarantine", level="ok", message="every row could be read", facts=facts)
    details = [f"{note.key}: {note.body}" for note in notes]
    details += [f"{row.name}: {row.damage}" for row in damaged]
    details += [f"{row.name}: active, but it has no next wake-up" for row in asleep]
    return Finding(
        check="quarantine",
        level="fail",
        facts=facts,
        message=f"{count(len(details), 'row', 'rows')} could not be read and do not fire",
        hint="evenbeat repair --yes wakes those that can be planned; declare, update or delete the others",
        details=_some(details),
    )


def _deferred(store: Store) -> list[Finding]:
    """Return a finding if a node deferred schedules that it could not plan; else nothing."""
    notes = store.find_records("deferred")
    facts = {"records": [{"tenant": note.tenant, "key": note.key, "note": note.body} for note in notes]}
    if not notes:
        return []
    finding = Finding(
        check="deferred",
        level="warn",
        facts=facts,
        message=f"{count(len(notes), 'schedule was', 'schedules were')} deferred: a node can't plan now",
        hint="look at that node's log: time-zone data (pip install -U tzdata), open files, memory",
        details=_some(f"{note.key}: {note.body}" for note in notes),
    )
    return [finding]


def _templates(store: Store, rows: list[ScheduleRecord]) -> list[Finding]:
    """Return the finding about schedules that are not as their templates are now; none without templates."""
    if not any(row.template for row in rows):
        return []
    behind = list(lagging(rows, store.find_records(TEMPLATE)))
    if not behind:
        message = "all schedules are as their templates are"
        return [Finding(check="templates", level="ok", message=message)]
    number = count(len(behind), "schedule is", "schedules are")
    return [
        Finding(
            check="templates",
            level="warn",
            message=f"{number} not as their templates are now",
            hint="set the template again, with the same options: a process may have died in between",
            details=_some(f"{row.name}: {why}" for row, why in behind),
            facts={"schedules": [row.name for row, _ in behind]},
        )
    ]


def _dependencies(rows: list[ScheduleRecord]) -> Iterator[Finding]:
    """Yield what is wrong with dependencies; nothing if all is well."""
    found = broken(rows)
    gone = [(each.schedule, each.missing) for each in found if each.missing is not None]
    if gone:
        yield Finding(
            check="dependencies",
            level="warn",
            message=f"{count(len(gone), 'dependency is', 'dependencies are')} on schedules that do not exist",
            hint="add them again, or change what waits for them: evenbeat schedules update",
            details=_some(f"{row.name} waits for {name}" for row, name in gone),
            facts={
                "missing": [{"tenant": row.tenant, "name": row.name, "waits_for": name} for row, name in gone]
            },
        )
    deaf = unlisted(rows)
    if deaf:
        number = count(len(deaf), "schedule does not list", "schedules do not list")
        yield Finding(
            check="dependencies",
            level="fail",
            message=f"{number} all that wait for it"
            if len(deaf) == 1
            else f"{number} all that wait for them",
            hint="their successes do not start them: evenbeat repair lists them again",
            details=_some(f"{row.name} does not list {', '.join(names)}" for row, names in deaf),
            facts={
                "unlisted": [
                    {"tenant": row.tenant, "name": row.name, "followers": list(names)} for row, names in deaf
                ]
            },
        )
    cycles = [(each.schedule, each.cycle) for each in found if each.cycle]
    if cycles:
        yield Finding(
            check="dependencies",
            level="fail",
            message=f"{count(len(cycles), 'schedule waits for itself', 'schedules wait for themselves')}",
            hint="remove one of the dependencies: evenbeat schedules update",
            details=_some(" -> ".join(cycle) for _, cycle in cycles),
            facts={"cycles": [{"tenant": row.tenant, "cycle": list(cycle)} for row, cycle in cycles]},
        )


def _alerts(store: Store) -> list[Finding]:
    """Return a finding if alerts can't be sent, or if alert rules found something wrong; else nothing."""
    unsent = [each for each in reports.deliveries(store, None, _PAGE, None) if _is_unsent(each)]
    wrong = reports.open_incidents(store, None, _PAGE)
    if not unsent and not wrong:
        return []
    messages = []
    if unsent:
        unsent_count = count(len(unsent), "alert")
        messages.append(f"{unsent_count} could not be sent: evenbeat alerts log --all-tenants")
    if wrong:
        messages.append(f"{count(len(wrong), 'incident is', 'incidents are')} open")
    finding = Finding(
        check="alerts",
        level="warn",
        facts={"unsent": [each.id for each in unsent], "open": [each.id for each in wrong]},
        message="; ".join(messages),
        hint="evenbeat alerts open --all-tenants" if wrong else None,
        details=_some(
            chain(
                (f"{each.channel}: {each.error}" for each in unsent),
                (f"{each.subject_kind} {each.subject}: {each.reason}" for each in wrong),
            )
        ),
    )
    return [finding]


def _is_unsent(delivery: Delivery) -> bool:
    return delivery.state == "pending" and delivery.error is not None


def _duplicates(store: Store) -> Finding:
    every, checked = duplicates(store)
    found = [one for one in every if not one.is_repaired]
    facts = {
        "runs_checked": checked,
        "ticks": [
            {
                "tenant": one.tenant,
                "schedule": one.schedule,
                "generation": one.generation,
                "tick": write_instant(one.tick),
                "runs": [run.id for run in one.runs],
                "skipped": None if one.ledger is None else one.ledger.reason,
                "repaired": one.is_repaired,
            }
            for one in every
        ],
    }
    if not found:
        message = f"no tick twice in {count(checked, 'run')}"
        if every:
            message += f"; {count(len(every), 'duplicate was', 'duplicates were')} cancelled"
        details = _some(_duplicate_words(one) for one in every)
        return Finding(check="duplicates", level="ok", message=message, details=details, facts=facts)
    surplus = sum(len(one.surplus()) for one in found)
    hint = "report it, please: Evenbeat promises that this can't happen"
    if surplus:
        hint = f"{count(surplus, 'run is', 'runs are')} still queued: evenbeat repair --yes cancels them"
    return Finding(
        check="duplicates",
        level="fail",
        facts=facts,
        hint=hint,
        message=f"{count(len(found), 'tick was', 'ticks were')} settled more than once",
        details=_some(_duplicate_words(one) for one in found),
    )


def _duplicate_words(one: Duplicate) -> str:
    words = ", ".join(f"{run.id} {run.state}" for run in one.runs)
    return words if one.ledger is None else f"{words}; recorded as skipped: {one.ledger.reason}"


def _node_facts(node: LiveNode) -> dict[str, Any]:
    facts = node._asdict() | {"tasks": sorted(node.tasks or ()), "slots": dict(node.slots)}
    for name in ("started_at", "seen_at", "fallback_since"):
        facts[name] = None if facts[name] is None else write_instant(facts[name])
    del facts["kinds"]
    return facts


def _node_words(node: LiveNode) -> str:
    where = f"{node.key} on {node.host}, pid {node.pid}" if node.host else node.key
    if not node.worker:
        return f"{where}, ticker only"
    tasks = "" if node.tasks is None else f", {count(len(node.tasks), 'task')}"
    return where + tasks + ("" if node.ticker else ", worker only")


_SOME = 10


def _some(lines: Any) -> tuple[str, ...]:
    every = list(lines)
    more = [f"and {len(every) - _SOME:,} more"] if len(every) > _SOME else []
    return (*every[:_SOME], *more)
