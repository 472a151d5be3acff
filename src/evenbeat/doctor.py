"""Checks of a store and its nodes, and repairs of what is safe to repair.

Everything here uses the protocol of stores alone, so it works with every database. ``now`` is the store's
time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from evenbeat.app.alerts import reports
from evenbeat.app.audit import audited
from evenbeat.core.alerts import Delivery
from evenbeat.core.instants import Instant, write_instant
from evenbeat.core.records import RunRecord, ScheduleRecord, Skipped, Transition
from evenbeat.node.presence import LiveNode, live_nodes
from evenbeat.node.settling import settle_in_parts
from evenbeat.observe.phrases import count, span
from evenbeat.observe.reasons import lack_reason
from evenbeat.rules import attempts, auditing
from evenbeat.rules.firing import Planned, plan
from evenbeat.rules.waiting import why_no_taker
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, ScheduleQuery, Setting, Store, Write
from evenbeat.stores.pages import every_run, every_schedule

LATE = 60_000
"""Milliseconds. A schedule or run that is due for longer waits for a node that is not there."""
LEASE_OVER = 10_000
"""Milliseconds after the end of a lease: nodes look for ended leases every few seconds."""
_CLOCKS_APART = 2_000
_PAGE = 500
# The most runs and rows that are read: enough to see a fault, in seconds at most.
_RUNS = 100_000
_LEDGER = 10_000

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


class Duplicate(NamedTuple):
    """A tick that was settled more than once: its runs, and its row of the ledger if there is one."""

    tenant: str
    schedule: str
    generation: int
    tick: Instant
    runs: tuple[RunRecord, ...]
    ledger: Skipped | None

    def surplus(self) -> list[RunRecord]:
        """Return the queued runs that can be cancelled without losing the tick.

        If no run of the tick has begun, and the ledger has no row of it, the oldest run stays.
        """
        queued = sorted(
            (run for run in self.runs if run.state == "queued"), key=lambda run: (run.created_at, run.id)
        )
        others = [run for run in self.runs if run.state not in ("queued", "cancelled")]
        return queued if others or self.ledger is not None else queued[1:]

    @property
    def is_repaired(self) -> bool:
        """Whether the tick is settled once now, because all runs but one were cancelled."""
        kept = sum(run.state != "cancelled" for run in self.runs)
        return kept + (self.ledger is not None) <= 1


# -- checks ------------------------------------------------------------------------------------------------


def diagnose(store: Store, local: Instant) -> list[Finding]:
    """Return the results of all checks of an open store; ``local`` is the clock of this machine."""
    now = store.now()
    rows = list(every_schedule(store, ScheduleQuery(limit=_PAGE)))
    alive = live_nodes(store)
    return [
        _clock(now, local, rows),
        _nodes(alive, rows),
        _overdue(rows, now),
        _waiting(store, alive, now),
        _expired(store, now),
        _quarantine(store, rows),
        *_deferred(store),
        *_alerts(store),
        _duplicates(store),
    ]


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


def expired_runs(store: Store, now: Instant) -> list[RunRecord]:
    """Return running runs whose lease ended a while ago, and that no node has taken over."""
    return list(store.lost_runs(now - LEASE_OVER, _RUNS).runs)


def duplicates(store: Store) -> tuple[list[Duplicate], int]:
    """Return ticks with two runs, or with a run and a row of the ledger; and how many runs were examined."""
    by_tick: dict[tuple[str, str, int, Instant], list[RunRecord]] = defaultdict(list)
    checked = 0
    for run in every_run(store, RunQuery(without=LARGE_FIELDS, limit=_PAGE)):
        checked += 1
        if run.cause == "tick" and run.schedule and run.generation is not None and run.tick is not None:
            by_tick[run.tenant, run.schedule, run.generation, run.tick].append(run)
        if checked >= _RUNS:
            break
    ledgers = {
        (tenant, name): store.find_skipped(tenant, name, _LEDGER)
        for tenant, name in {key[:2] for key in by_tick}
    }
    found = []
    for key, runs in sorted(by_tick.items()):
        row = _recorded(ledgers[key[:2]], key[2], key[3])
        if len(runs) > 1 or row is not None:
            found.append(Duplicate(*key, tuple(runs), row))
    return found, checked


def _recorded(ledger: list[Skipped], generation: int, tick: Instant) -> Skipped | None:
    # Within a generation the watermark only grows, so no run lies within a range of the ledger.
    for row in ledger:
        if row.generation == generation and row.first <= tick <= row.last:
            return row
    return None


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


def _waiting(store: Store, alive: list[LiveNode], now: Instant) -> Finding:
    counts: Counter[tuple[str, str]] = Counter()
    oldest: dict[tuple[str, str], Instant] = {}
    for number, run in enumerate(
        every_run(store, RunQuery(states=("queued",), without=LARGE_FIELDS, limit=_PAGE))
    ):
        if number >= _RUNS:
            break
        if run.run_at < now - LATE:
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


def _why_waiting(task: str, queue: str, alive: list[LiveNode]) -> str:
    nodes = [node.taker for node in alive if node.tasks is not None or not node.worker]
    if not nodes:
        return ""
    if any(node.has(task) and queue in node.queues for node in nodes):
        return "; nodes that have it are busy"
    return f"; {lack_reason(why_no_taker(task, nodes), task, queue)}"


def _expired(store: Store, now: Instant) -> Finding:
    runs = expired_runs(store, now)
    facts = {"runs": [run.id for run in runs]}
    if not runs:
        return Finding(check="leases", level="ok", message="every running run has a live worker", facts=facts)
    return Finding(
        check="leases",
        level="fail",
        facts=facts,
        message=f"{count(len(runs), 'run has', 'runs have')} no live worker, and no node took over",
        hint="start a node, or queue them again: evenbeat doctor --repair",
        details=_some(
            f"{run.id} of {run.worker}, for {span(now - (run.lease_until or now), units=1)}" for run in runs
        ),
    )


def _quarantine(store: Store, rows: list[ScheduleRecord]) -> Finding:
    # A note stays if the row was repaired in the database itself.
    sound = {row.key for row in rows if not row.damage and not _is_asleep(row)}
    notes = [note for note in store.find_records("quarantine") if (note.tenant, note.key) not in sound]
    # Active rows without a next wake-up; their note may be missing.
    noted = {(note.tenant, note.key) for note in notes}
    damaged = [row for row in rows if row.damage and row.key not in noted]
    asleep = [row for row in rows if not row.damage and _is_asleep(row) and row.key not in noted]
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
        hint="evenbeat doctor --repair wakes those that can be planned; declare, update or delete the others",
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
        hint = f"{count(surplus, 'run is', 'runs are')} still queued: evenbeat doctor --repair cancels them"
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


# -- repairs -----------------------------------------------------------------------------------------------


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """What ``repair`` changed."""

    requeued: list[str]
    """Runs without a live worker: queued again, or failed if their policy says so."""
    cancelled: list[str]
    """Runs of ticks that were settled already."""
    woken: list[str]
    """Schedules that had no next wake-up although they can be planned."""


def repair(store: Store) -> Repaired:
    """Repair what needs no judgement; return the changes. Rows that can't be read are left to people.

    Each change has an entry in the audit, written in the same step.
    """
    now = store.now()
    lost = expired_runs(store, now)
    # Applies only if the lease has still ended then: a heartbeat in between keeps the run.
    requeued = _settled(store, [(run, attempts.crashed(run, now, uuid4().hex)) for run in lost], now)
    surplus = [run for one in duplicates(store)[0] for run in one.surplus()]
    wishes = [(run, attempts.cancel(run, now, uuid4().hex)) for run in surplus]
    cancelled = _settled(store, [(run, wish) for run, wish in wishes if wish is not None], now)
    rows = every_schedule(store, ScheduleQuery(limit=_PAGE))
    woken = [row.name for row in rows if _is_asleep(row) and _wake(store, row, now)]
    if requeued or cancelled or woken:
        store.hint()
    return Repaired(requeued=requeued, cancelled=cancelled, woken=woken)


def _settled(store: Store, ends: list[tuple[RunRecord, Transition]], now: Instant) -> list[str]:
    """Settle runs, in parts, so that one that can't be written does not block the others; return the ids of
    those that changed."""
    transitions = [_audited(run, transition, now) for run, transition in ends]
    accepted = chain.from_iterable(settle_in_parts(store, transitions, "doctor"))
    return [run.id for (run, _), done in zip(ends, accepted, strict=True) if done]


def _audited(run: RunRecord, transition: Transition, now: Instant) -> Transition:
    before: dict[str, Any] = {"state": run.state}
    after: dict[str, Any] = {"state": transition.state}
    if run.state == "running":
        before["worker"], after["worker"] = run.worker, None
    return replace(transition, records=audited(auditing.run_change("repair", run, before, after), now))


def _is_asleep(row: ScheduleRecord) -> bool:
    return row.state == "active" and row.wake_at is None


def _wake(store: Store, row: ScheduleRecord, now: Instant) -> bool:
    """Wake a schedule that can be planned here, and delete its quarantine note; return whether it worked."""
    if row.damage or row.next_tick is None:
        return False
    awake = replace(row, wake_at=row.next_tick)
    try:
        plan(awake, now)
    except Exception:
        return False  # a node would quarantine it again
    wake_up = {"wake_at": write_instant(row.next_tick)}
    change = auditing.Change("schedule", row.name, row.tenant, "repair", {"wake_at": None}, wake_up)
    planned = Planned(replace(awake, revision=row.revision + 1), records=audited(change, now))
    written = store.put_schedules([Write(planned, row.version)])[0]
    note = store.get_record("quarantine", row.tenant, row.name)
    if written.accepted and note is not None:
        store.delete_record("quarantine", row.tenant, row.name, note.version)
    return written.accepted


def _node_facts(node: LiveNode) -> dict[str, Any]:
    facts = node._asdict() | {"tasks": sorted(node.tasks or ()), "slots": dict(node.slots)}
    for name in ("started_at", "seen_at"):
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
