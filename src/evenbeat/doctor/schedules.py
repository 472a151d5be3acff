"""Checks of schedules: overdue, quarantined and deferred ones, and what they name that is gone."""

from __future__ import annotations

from collections.abc import Iterator

from evenbeat.app.repairs import is_asleep
from evenbeat.app.templates import lagging
from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, ScheduleRecord
from evenbeat.doctor.findings import Finding, Level, some_lines
from evenbeat.errors import EvenbeatError
from evenbeat.observe.phrases import count, span
from evenbeat.observe.views import damage_of
from evenbeat.rules.calendar_records import KIND as CALENDAR
from evenbeat.rules.calendar_records import named_calendars, read_calendar
from evenbeat.rules.calendars import stopped_by
from evenbeat.rules.dependencies import broken, unlisted
from evenbeat.rules.refusals import NOTE, is_refusal
from evenbeat.rules.templates import TEMPLATE
from evenbeat.stores.base import Store
from evenbeat.triggers.calendar_texts import write_day
from evenbeat.triggers.time_sets import BUILT_IN

LATE = 60_000
"""Milliseconds. A schedule or run that is due for longer waits for a node that is not there."""
# Days.
_RENEW_BEFORE = 90


def unread_finding(error: EvenbeatError) -> Finding:
    return Finding(
        check="schedules",
        level="fail",
        message=f"the schedules can't be read: {error}",
        hint="free or restore their table; nodes go on with the schedules of their code meanwhile",
    )


def overdue_finding(rows: list[ScheduleRecord], now: Instant) -> Finding:
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
        details=some_lines(f"{name} for {span(now - since, units=1)}" for since, _, name in late),
    )


def quarantine_finding(store: Store, rows: list[ScheduleRecord]) -> Finding:
    damages = {row.key: damage for row in rows if (damage := damage_of(row))}
    # A note stays if the row was repaired in the database itself.
    sound = {row.key for row in rows if row.key not in damages and not is_asleep(row)}
    notes = [note for note in store.find_records("quarantine") if (note.tenant, note.key) not in sound]
    # Active rows without a next wake-up; their note may be missing.
    noted = {(note.tenant, note.key) for note in notes}
    damaged = [row for row in rows if row.key in damages and row.key not in noted]
    asleep = [row for row in rows if row.key not in damages and is_asleep(row) and row.key not in noted]
    facts = {
        "records": [{"tenant": note.tenant, "key": note.key, "note": note.body} for note in notes],
        "damaged": [{"tenant": row.tenant, "name": row.name, "damage": damages[row.key]} for row in damaged],
        "asleep": [{"tenant": row.tenant, "name": row.name} for row in asleep],
    }
    if not notes and not damaged and not asleep:
        return Finding(check="quarantine", level="ok", message="every row could be read", facts=facts)
    details = [f"{note.key}: {note.body}" for note in notes]
    details += [f"{row.name}: {damages[row.key]}" for row in damaged]
    details += [f"{row.name}: active, but it has no next wake-up" for row in asleep]
    return Finding(
        check="quarantine",
        level="fail",
        facts=facts,
        message=f"{count(len(details), 'row', 'rows')} could not be read and do not fire",
        hint="evenbeat repair --yes wakes those that can be planned; declare, update or delete the others",
        details=some_lines(details),
    )


def deferred_findings(store: Store) -> list[Finding]:
    """Return a finding if nodes could not fire schedules, because of the node or of the database."""
    notes = store.find_records(NOTE)
    refused = [note for note in notes if is_refusal(note.body)]
    deferred = [note for note in notes if not is_refusal(note.body)]
    found = []
    if deferred:
        number = count(len(deferred), "schedule was", "schedules were")
        hint = "look at that node's log: time-zone data (pip install -U tzdata), open files, memory"
        found.append(_noted("deferred", "warn", deferred, f"{number} deferred: a node can't plan now", hint))
    if refused:
        number = count(len(refused), "schedule does", "schedules do")
        hint = "fix what the database names (a trigger, a constraint, a key); nodes keep trying"
        words = f"{number} not fire: the database refuses what they write"
        found.append(_noted("refused", "fail", refused, words, hint))
    return found


def _noted(check: str, level: Level, notes: list[Record], message: str, hint: str) -> Finding:
    return Finding(
        check=check,
        level=level,
        facts={"records": [{"tenant": note.tenant, "key": note.key, "note": note.body} for note in notes]},
        message=message,
        hint=hint,
        details=some_lines(f"{note.key}: {note.body}" for note in notes),
    )


def template_findings(store: Store, rows: list[ScheduleRecord]) -> list[Finding]:
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
            details=some_lines(f"{row.name}: {why}" for row, why in behind),
            facts={"schedules": [row.name for row, _ in behind]},
        )
    ]


def dependency_findings(rows: list[ScheduleRecord]) -> Iterator[Finding]:
    """Yield what is wrong with dependencies; nothing if all is well."""
    found = broken(rows)
    gone = [(each.schedule, each.missing) for each in found if each.missing is not None]
    if gone:
        yield Finding(
            check="dependencies",
            level="warn",
            message=f"{count(len(gone), 'dependency is', 'dependencies are')} on schedules that do not exist",
            hint="add them again, or change what waits for them: evenbeat schedules update",
            details=some_lines(f"{row.name} waits for {name}" for row, name in gone),
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
            message=f"{number} all that wait for {'it' if len(deaf) == 1 else 'them'}",
            hint="their successes do not start them: evenbeat repair lists them again",
            details=some_lines(f"{row.name} does not list {', '.join(names)}" for row, names in deaf),
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
            details=some_lines(" -> ".join(cycle) for _, cycle in cycles),
            facts={"cycles": [{"tenant": row.tenant, "cycle": list(cycle)} for row, cycle in cycles]},
        )


def calendar_findings(store: Store, rows: list[ScheduleRecord], now: Instant) -> Iterator[Finding]:
    """Yield findings about calendars that end soon, about schedules whose calendar is gone, and about those
    to which calendars leave no tick. Nothing is read for schedules without calendars."""
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
    stopped = [(row, names) for row in rows if (names := stopped_by(row, now))]
    if stopped:
        number = count(len(stopped), "schedule has", "schedules have")
        yield Finding(
            check="calendars",
            level="warn",
            message=f"{number} no tick to come: calendars leave none",
            hint="change what the calendars contain, or the triggers: evenbeat schedules update",
            details=some_lines(f"{row.name}: {', '.join(names)}" for row, names in stopped),
            facts={
                "stopped": [
                    {"tenant": row.tenant, "schedule": row.name, "calendars": list(names)}
                    for row, names in stopped
                ]
            },
        )
