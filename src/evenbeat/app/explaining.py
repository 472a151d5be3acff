"""Why a schedule or a run is as it is: reads what the rules need to explain it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo

from msgspec.structs import replace

from evenbeat.app.audit import Audit
from evenbeat.app.dependencies import dependencies_of, run_before
from evenbeat.app.limits import read_usage
from evenbeat.app.schedule_search import similar_schedules
from evenbeat.app.session import AppSession, virtual_time
from evenbeat.app.tick_records import FIRED_WITHIN, TickRecords
from evenbeat.core.audits import AuditEntry
from evenbeat.core.durations import is_duration
from evenbeat.core.explanations import Fact, Why
from evenbeat.core.instants import Instant, Moment, from_ms, read_date, read_instant, read_moment, to_ms
from evenbeat.core.records import ACTIVE_STATES, RunRecord, ScheduleRecord, Skipped
from evenbeat.errors import InvalidTrigger, InvalidValue, shown
from evenbeat.node.flow_rows import FlowGraphs
from evenbeat.node.presence import live_nodes
from evenbeat.node.pruner import purged_before
from evenbeat.node.rollups import read_rollups
from evenbeat.observe import explanations, run_explanations
from evenbeat.observe.flow_explanations import (
    NAMED,
    FlowFacts,
    OpenStep,
    flow_facts,
    member_facts,
    open_words,
)
from evenbeat.rules import flows
from evenbeat.rules.accounts import is_of_trigger, trigger_since
from evenbeat.rules.asked_ticks import MINUTE, Asked, Place, locate, present_tick, row_for
from evenbeat.rules.dependencies import needs_facts
from evenbeat.rules.firing import may_be_stuck, needs_active
from evenbeat.rules.flow_parts import belongs_to, flow_part
from evenbeat.rules.rollups import KEPT, start_of
from evenbeat.rules.ticks import own_trigger, readable_trigger
from evenbeat.rules.waiting import Waiting, why_waiting
from evenbeat.rules.why import (
    ChangeBehind,
    MinuteNodes,
    NodeMinutes,
    TickFacts,
    change_behind,
    change_behind_run,
    why_run,
    why_tick,
)
from evenbeat.stores.base import LARGE_FIELDS, VALUES, RunQuery, Store
from evenbeat.triggers import Calendared
from evenbeat.triggers.zones import read_zone

_TIME_OF_DAY = re.compile(r"\d\d?:\d\d(:\d\d)?", re.ASCII)
_DAY = timedelta(days=1)
_ACTIVE = 500
# How many entries of the audit are searched for one of a schedule or run, among those of the same name.
# How many elements of a map are looked at.
_PAGE = 500
_NAMESAKES = 20
# The minutes around a tick in which nodes are searched.
_MINUTES_BEFORE, _MINUTES_AFTER = 15 * MINUTE, 30 * MINUTE
# A node that reports a minute so much later could not reach the store.
_CUT_OFF = 90_000


def explain_schedule(
    session: AppSession, name: str, at: Moment | None, tenant: str, tz: str | None = None
) -> Why:
    """Return why the schedule ran, or did not run, at that time; without one, why it is as it is now.

    Times in words are in the zone ``tz``; without one, in that of the trigger.
    """
    zone = None if tz is None else read_zone(tz).info
    store = session.store()
    row = session.row(tenant, name)
    now = store.now()
    if row is None:
        asked = None if at is None else read_asked(at, now, UTC)
        moment = None if asked is None else from_ms(asked.at, zone or UTC)
        nodes = live_nodes(store)
        planners = [node.key for node in nodes if name in node.code_only]
        if planners and tenant == session.tenant:
            return explanations.code_only(tenant, name, planners, moment)
        similar = similar_schedules(store, tenant, name)
        return explanations.no_schedule(tenant, name, similar, moment, has_nodes=bool(nodes))
    row = _with_damage(row)
    trigger = readable_trigger(row)
    asked = None if at is None else read_asked(at, now, UTC if trigger is None else trigger.tzinfo)
    if trigger is None:
        facts = TickFacts(now, row, Place(), asked)
    else:
        names = trigger.names if isinstance(trigger, Calendared) else ()
        if names and asked is not None:
            row = row_for(row, asked, now)
        place = present_tick(row, now) if asked is None else locate(row, asked)
        facts = _read(store, TickFacts(now, row, place, asked, calendars=names))
    start, end = (None, now) if asked is None else (asked.at, asked.until - 1)
    facts = facts._replace(by_hand=TickRecords(store, row).failed_by_hand(start, end))
    finding = why_tick(facts)
    entry = _entry(session, tenant, change_behind(facts, finding))
    return explanations.tick_view(facts, finding, entry, zone)


def explain_run(session: AppSession, run: RunRecord, tz: str | None = None) -> Why:
    """Return why the run is in its state. Times in words are as in ``explain_schedule``."""
    asked = None if tz is None else read_zone(tz).info
    store = session.store()
    row = None if run.schedule is None else session.row(run.tenant, run.schedule)
    trigger = None if row is None else readable_trigger(row)
    waiting = why_it_waits(store, run)
    zone: tzinfo = asked or (UTC if trigger is None else trigger.tzinfo)
    entry = _entry(session, run.tenant, change_behind_run(run))
    before = run_before(store, run)
    finding = why_run(run, waiting)
    flow = _flow(store, run)
    return run_explanations.run_why(run, finding, waiting, store.now(), zone, entry, before, flow)


def _flow(store: Store, run: RunRecord) -> FlowFacts:
    """Return what a flow under way waits for, or which flow a step belongs to."""
    state = flow_part(run).state
    facts = member_facts(run)
    if state is None or run.state != "running":
        return FlowFacts("", tuple(facts))
    graph = FlowGraphs(store).of(run)
    if graph is None:
        text = "the store has no graph of it, or its state was edited by hand"
        return FlowFacts("", (*facts, Fact(text=text)))
    steps: list[OpenStep] = []
    for at, ids in flows.open_runs(run, graph):
        query = RunQuery(ids=tuple(ids[:_PAGE]), states=("queued", "running"), without=VALUES, limit=1)
        runs = store.find_runs(query).items if len(steps) < NAMED else ()
        found = next((each for each in runs if belongs_to(each, run)), None)
        steps.append(
            OpenStep(graph.steps[at].name, found, None if found is None else why_it_waits(store, found))
        )
    return FlowFacts(open_words(steps), (*facts, *flow_facts(run, graph, steps)))


def _entry(session: AppSession, tenant: str, change: ChangeBehind | None) -> AuditEntry | None:
    """Return the entry of the audit for a change by hand; None if there is none."""
    if change is None:
        return None
    since = None if change.since is None else from_ms(change.since)
    until = from_ms(change.until + 1)
    audit = Audit(session)
    for action in change.actions:
        entries = audit.list(
            subject=change.subject, action=action, since=since, until=until, tenant=tenant, limit=_NAMESAKES
        )
        # An alert rule may have the name of a schedule.
        found = next((entry for entry in entries if entry.kind in ("schedule", "run")), None)
        if found is not None:
            return found
    return None


def why_it_waits(store: Store, run: RunRecord) -> Waiting | None:
    """Return why a queued run has not started yet; None if it is not queued."""
    if run.state != "queued":
        return None
    nodes = live_nodes(store)
    takers = [node.taker for node in nodes]
    waiting = why_waiting(run, store.now(), takers, frozenset())
    if waiting is not None and waiting.reason == "next":
        usage = read_usage(store)
        hold = None if usage is None else usage.hold(_with_payload(store, run))
        if hold is not None:
            return why_waiting(run, store.now(), takers, frozenset(), hold)
    if waiting is not None and waiting.reason == "next":
        # One node with room is enough: the others need no query.
        able = [node for node in nodes if node.key in waiting.nodes]
        if all(node.is_busy(store, run.task) for node in able):
            return why_waiting(run, store.now(), takers, frozenset(waiting.nodes))
    return waiting


def _with_payload(store: Store, run: RunRecord) -> RunRecord:
    """Return the run with its payload, which names the values of keys; it may have been read without it."""
    return next(iter(store.find_runs(RunQuery(ids=(run.id,), limit=1)).items), run)


def read_asked(at: Moment, now: Instant, zone: tzinfo) -> Asked:
    """Return the time that a question is about.

    A text without an offset is a wall-clock time in ``zone``, and a time of day the latest one in the past. A
    duration counts back from now, with a plus sign forward. A whole minute stands for all of it, a whole
    second likewise.
    """
    label: datetime | None = None
    if isinstance(at, str) and _TIME_OF_DAY.fullmatch(at.strip()):
        label = _latest(at.strip(), now, zone)
        instant = read_instant(label.isoformat(), "at", zone)
    elif isinstance(at, timedelta) or (isinstance(at, str) and is_duration(at.strip().removeprefix("+"))):
        is_ahead = isinstance(at, str) and at.strip().startswith("+")
        instant = read_moment(at, "at", now, ago=not is_ahead) // MINUTE * MINUTE
    else:
        written = read_date(at) if isinstance(at, str) else None
        if isinstance(at, str) and written is None:
            raise _not_a_time(at)
        instant = read_instant(at, "at", zone)
        label = written if written is not None and written.tzinfo is None else None
    precision = MINUTE if instant % MINUTE == 0 else 1_000 if instant % 1_000 == 0 else 1
    if label is not None and label.second == label.microsecond == 0:
        precision = MINUTE
    return Asked(instant, instant + precision, label)


def _latest(time: str, now: Instant, zone: tzinfo) -> datetime:
    """Return the date and time of the latest such time of day that is not in the future."""
    hour, _, rest = time.partition(":")
    today = from_ms(now, zone).date()
    try:
        found = datetime.fromisoformat(f"{today}T{hour:0>2}:{rest}")
    except ValueError:
        raise _not_a_time(time) from None
    return found if read_instant(found.isoformat(), "at", zone) <= now else found - _DAY


def _not_a_time(text: str) -> InvalidValue:
    return InvalidValue(
        f"at {shown(text)} is neither a time nor a duration",
        field="at",
        value=text,
        hint='write it like "09:00", "2026-03-01T09:00", or "2h" for two hours ago',
    )


def _with_damage(row: ScheduleRecord) -> ScheduleRecord:
    """Return the row, damaged if its trigger can't be read on this machine."""
    try:
        own_trigger(row)
    except InvalidTrigger as error:
        return replace(row, damage=row.damage or str(error))
    return row


def _read(store: Store, facts: TickFacts) -> TickFacts:
    """Return the facts with what the store says about the tick."""
    row, now = facts.schedule, facts.now
    # Ticks that calendars remove now are not ticks of the trigger; earlier ones are known by their rows.
    is_earlier = facts.asked is not None and facts.asked.until <= trigger_since(row) + 1
    records = TickRecords(store, row, removed=is_earlier or (bool(facts.calendars) and not row.calendars))
    facts = _with_records(records, facts)
    row = facts.schedule
    facts = facts._replace(waiting=None if facts.run is None else why_it_waits(store, facts.run))
    tick = facts.place.tick
    if tick is not None and not facts.has_record and (row.next_tick is None or tick < row.next_tick):
        facts = facts._replace(moved=records.moved_from(tick, now))
    if needs_active(row):
        query = RunQuery(
            tenant=row.tenant,
            schedule=row.name,
            states=tuple(sorted(ACTIVE_STATES)),
            without=LARGE_FIELDS,
            limit=_ACTIVE,
        )
        facts = facts._replace(active=store.find_runs(query).items)
    if needs_facts(row):
        facts = _with_predecessors(store, facts)
    if may_be_stuck(row, now):
        notes = [store.get_record(kind, *row.key) for kind in ("quarantine", "deferred")]
        quarantined, deferred = (None if note is None else note.body for note in notes)
        facts = facts._replace(quarantined=quarantined, deferred=deferred)
    was_missed = facts.row is not None and facts.row.reason in ("coalesced", "late", "limit")
    if tick is not None and (was_missed or (not facts.has_record and tick <= now)):
        facts = facts._replace(minutes=_node_minutes(store, tick, now))
    tickers = tuple(node.key for node in live_nodes(store) if node.ticker)
    return facts._replace(tickers=tickers, purged=purged_before(store, row.tenant))


def _with_predecessors(store: Store, facts: TickFacts) -> TickFacts:
    """Return the facts with the last successes of the schedules that this one waits for."""
    found = dependencies_of(store, facts.schedule).predecessors
    last = {each.name: None if each.last_success is None else to_ms(each.last_success) for each in found}
    gone = tuple(each.name for each in found if each.state in (None, "deleted"))
    return facts._replace(last_successes=last, gone=gone)


def _with_records(records: TickRecords, facts: TickFacts) -> TickFacts:
    """Return the facts with the row of the ledger and the run of the tick."""
    tick, asked, schedule = facts.place.tick, facts.asked, facts.schedule
    if tick is not None:
        ledger = records.ledger(tick, tick + 1)
        if tick > trigger_since(schedule):
            # Older rows are about the ticks of an earlier trigger.
            ledger = [row for row in ledger if is_of_trigger(row, schedule)]
        runs = records.runs_of([tick], [tick] if ledger else ()).get(tick, [])
        facts = _newest(facts, ledger, runs)
    if asked is None or facts.has_record or tick == schedule.next_tick is not None:
        return facts
    if tick is not None and tick > trigger_since(schedule):
        return facts
    # A moved tick, a success of another schedule, or a tick of an earlier trigger: only its records tell when
    # it was.
    inside = range(asked.at, asked.until)
    fired = records.fired_between(asked.at, asked.until + FIRED_WITHIN)
    runs = [run for run in fired if run.tick in inside]
    rows = records.ledger(asked.at, asked.until)
    known = [(at, row) for row in rows for at in (row.first, row.last) if at in inside]
    if rows and not runs and not known:
        # A row of several successes has only the first and the last one.
        known = [(at, rows[0]) for at in records.successes(asked.at, asked.until)]
    found = [run.tick for run in runs] + [at for at, _ in known]
    if found:
        place = facts.place._replace(tick=found[0], clock=None)
        return _newest(facts._replace(place=place), [row for _, row in known[:1]], runs[:1])
    pending = records.pending_success(asked.at, asked.until)
    if pending is None:
        return facts
    coming = pending if schedule.next_tick is None else min(pending, schedule.next_tick)
    return facts._replace(
        place=facts.place._replace(tick=pending), schedule=replace(schedule, next_tick=coming)
    )


def _newest(facts: TickFacts, ledger: Sequence[Skipped], runs: Sequence[RunRecord]) -> TickFacts:
    """Return the facts with the record of the newest generation: a user may have moved a tick there."""
    row = max(ledger, key=lambda row: row.generation, default=None)
    run = max(runs, key=lambda run: run.generation or 0, default=None)
    if row is not None and run is not None:
        if row.generation > (run.generation or 0):
            run = None
        else:
            row = None
    return facts._replace(row=row, run=run)


def _node_minutes(store: Store, tick: Instant, now: Instant) -> NodeMinutes:
    """Return which nodes fired ticks in the minutes around a tick; empty if that is not known."""
    if virtual_time(store) is not None:
        return NodeMinutes()  # its node writes records only when something is due
    oldest = start_of("minute", now - KEPT["minute"]) + MINUTE
    first = max(start_of("minute", tick - _MINUTES_BEFORE), oldest)
    # Nodes write their records after the end of a minute.
    end = min(tick + _MINUTES_AFTER, start_of("minute", now) - MINUTE)
    if not first <= tick < end:
        return NodeMinutes()
    alive: dict[Instant, set[str]] = {minute: set() for minute in range(first, end, MINUTE)}
    cut_off: dict[Instant, set[str]] = {minute: set() for minute in alive}
    for minute, node, rollup in read_rollups(store, "minute", first, end):
        if minute in alive and rollup.ticker:
            alive[minute].add(node)
            if rollup.written_at > minute + MINUTE + _CUT_OFF:
                cut_off[minute].add(node)
    nodes = (MinuteNodes(frozenset(alive[minute]), frozenset(cut_off[minute])) for minute in alive)
    return NodeMinutes(first, tuple(nodes))
