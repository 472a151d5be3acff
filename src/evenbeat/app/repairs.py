"""``app.repair``: finds duplicates, stuck rows and leftovers in a store, and mends what needs no judgement.

Every change is a compare-and-set, so a repair may run beside live nodes: what somebody changed meanwhile is
left alone. The store writes the entry of the audit in the same step, where it can.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from uuid import uuid4

from msgspec.structs import replace

from evenbeat.app.audit import audited, write_audited
from evenbeat.core.explanations import Fact
from evenbeat.core.ids import id_of_key
from evenbeat.core.instants import Instant, from_ms, write_instant
from evenbeat.core.records import Record, RunRecord, ScheduleRecord, Skipped, Transition
from evenbeat.core.repairs import RepairFinding, RepairOutcome, RepairReport
from evenbeat.node.flows import End, FlowSettling
from evenbeat.observe import run_progress
from evenbeat.observe.attention import LEASE_OVER
from evenbeat.observe.phrases import count
from evenbeat.rules import attempts, auditing, changes
from evenbeat.rules.code_only import is_from_memory
from evenbeat.rules.dependencies import Unlisted, is_after_success, is_on_success, unlisted
from evenbeat.rules.firing import Planned, plan
from evenbeat.rules.flow_parts import is_begun
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, ScheduleQuery, Store, Write
from evenbeat.stores.pages import every_run, every_schedule

_PAGE = 500
# The most runs and rows that are read: enough to see a fault, in seconds at most.
_RUNS = 100_000
_LEDGER = 10_000
_INDEXES = 1_000


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


class _Found(NamedTuple):
    """A finding, and the change that mends it: the end of a run, or a write of its own."""

    finding: RepairFinding
    end: tuple[RunRecord, Transition] | None = None
    write: Callable[[], bool] | None = None


def repair(store: Store, *, dry_run: bool = True) -> RepairReport:
    """Find what is wrong in the store and, unless it is a ``dry_run``, mend what needs no judgement."""
    now = store.now()
    repeated, checked = duplicates(store)
    found = [
        *_duplicates(repeated, now),
        *_lost(store, now),
        *_uncancelled(store, now),
        *_asleep(store, now),
        *_unlisted(store, now),
        *_leftovers(store),
    ]
    findings = [each.finding for each in found] if dry_run else _mended(store, found, now)
    indexes = store.check_indexes(_INDEXES, mend=not dry_run)
    findings += [_index(text, "found" if dry_run else "mended") for text in indexes]
    return RepairReport(
        checked_at=from_ms(now),
        dry_run=dry_run,
        findings=tuple(findings),
        is_exact=checked < _RUNS and len(indexes) < _INDEXES,
    )


def _mended(store: Store, found: Sequence[_Found], now: Instant) -> list[RepairFinding]:
    ends = [
        (run, _audited(run, end, now)) for run, end in (each.end for each in found if each.end is not None)
    ]
    answers = FlowSettling(store, "repair").settle([End(*each) for each in ends], now).answers
    done = {run.id: is_done for (run, _), is_done in zip(ends, answers, strict=True)}
    findings = []
    for finding, end, write in found:
        if end is None and write is None:
            findings.append(replace(finding, outcome="left"))
            continue
        is_done = done[end[0].id] if end is not None else write is not None and write()
        findings.append(replace(finding, outcome="mended" if is_done else "changed"))
    if any(finding.outcome == "mended" for finding in findings):
        store.hint()
    return findings


def _audited(run: RunRecord, transition: Transition, now: Instant) -> Transition:
    before: dict[str, object] = {"state": run.state}
    after: dict[str, object] = {"state": transition.state}
    if run.state == "running":
        before["worker"], after["worker"] = run.worker, None
    entry = audited(auditing.run_change("repair", run, before, after), now)
    return replace(transition, records=(*transition.records, *entry))


# -- duplicates --------------------------------------------------------------------------------------------


def duplicates(store: Store) -> tuple[list[Duplicate], int]:
    """Return ticks with two runs, or with a run and a row of the ledger; and how many runs were examined."""
    by_tick: dict[tuple[str, str, int, Instant], list[RunRecord]] = defaultdict(list)
    checked = 0
    for run in every_run(store, RunQuery(without=LARGE_FIELDS, limit=_PAGE)):
        checked += 1
        is_tick = run.cause == "tick" and not is_after_success(run)
        if is_tick and run.schedule and run.generation is not None and run.tick is not None:
            by_tick[run.tenant, run.schedule, run.generation, run.tick].append(run)
        if checked >= _RUNS:
            break
    ledgers = {
        (tenant, name): store.find_skipped(tenant, name, _LEDGER)
        for tenant, name in {key[:2] for key in by_tick}
    }
    found = []
    for key, runs in sorted(by_tick.items()):
        row = None if all(map(is_from_memory, runs)) else _recorded(ledgers[key[:2]], key[2], key[3])
        if len(runs) > 1 or row is not None:
            found.append(Duplicate(*key, tuple(runs), row))
    return found, checked


def _recorded(ledger: list[Skipped], generation: int, tick: Instant) -> Skipped | None:
    # Within a generation the watermark only grows, so no run lies within a range of the ledger; except for
    # ticks that a calendar removed: one that moved may run between others that were removed.
    for row in ledger:
        if row.reason != "calendar" and row.generation == generation and row.first <= tick <= row.last:
            return row
    return None


def _duplicates(repeated: Sequence[Duplicate], now: Instant) -> Iterator[_Found]:
    for one in repeated:
        if one.is_repaired:
            continue
        evidence = [Fact(text=f"run {run.id} is {run.state}", at=from_ms(run.created_at)) for run in one.runs]
        if one.ledger is not None:
            recorded = from_ms(one.ledger.recorded_at)
            evidence.append(Fact(text=f"the ledger has it as skipped: {one.ledger.reason}", at=recorded))
        settled = f"The tick {write_instant(one.tick)} of {one.schedule} was settled {_times(one)}"
        surplus = one.surplus()
        for run in surplus:
            end = attempts.cancel(run, now, uuid4().hex)
            assert end is not None, "a queued run can be cancelled"
            finding = RepairFinding(
                kind="duplicate",
                tenant=one.tenant,
                subject=run.id,
                what=f"{settled}; run {run.id} is one too many.",
                evidence=tuple(evidence),
                mending="cancels this run: it is queued, and has not begun",
            )
            yield _Found(finding, end=(run, end))
        begun = [run for run in one.runs if run.state not in ("queued", "cancelled")]
        if not surplus or len(begun) + (one.ledger is not None) > 1:
            started = count(len(begun), "run has", "runs have")
            words = f"{settled}, and {started} begun."
            yield _Found(
                RepairFinding(
                    kind="duplicate",
                    tenant=one.tenant,
                    subject=one.schedule,
                    what=words,
                    evidence=tuple(evidence),
                    mending=None,
                )
            )


def _times(one: Duplicate) -> str:
    """Return how often a tick was settled, in words."""
    times = sum(run.state != "cancelled" for run in one.runs) + (one.ledger is not None)
    return "twice" if times == 2 else f"{times} times"


# -- stuck rows --------------------------------------------------------------------------------------------


def lost_runs(store: Store, now: Instant) -> list[RunRecord]:
    """Return running runs without a lease, or whose lease ended a while ago: no node has taken them over."""
    query = RunQuery(states=("running",), without=LARGE_FIELDS, limit=_PAGE)
    running = every_run(store, query)
    # No worker holds a flow that has begun. Any node looks at it when its lease has ended.
    return [run for run in running if (run.lease_until or 0) < now - LEASE_OVER and not is_begun(run)]


def _lost(store: Store, now: Instant) -> Iterator[_Found]:
    for run in lost_runs(store, now):
        # Applies only if the lease has still ended then: a heartbeat in between keeps the run.
        end = attempts.crashed(run, now, uuid4().hex)
        if run.lease_until is None:
            what, evidence = "has no lease", Fact(text="a running run has a lease, which its worker renews")
        else:
            what, evidence = "has no live worker", Fact(text="its lease ended", at=from_ms(run.lease_until))
        mending = {
            "queued": "queues it again, as a node would",
            "failed": "sets it to failed: its policy for crashes says so",
            "cancelled": "sets it to cancelled: it was asked to stop",
        }[str(end.state)]
        finding = RepairFinding(
            kind="lost",
            tenant=run.tenant,
            subject=run.id,
            what=f"Run {run.id} is running and {what}, and no node took it over.",
            evidence=(Fact(text=f"worker {run.worker}, attempt {run.attempt}"), evidence),
            mending=mending,
        )
        yield _Found(finding, end=(run, end))


def _uncancelled(store: Store, now: Instant) -> Iterator[_Found]:
    query = RunQuery(states=("queued",), cancel_requested=True, without=LARGE_FIELDS, limit=_PAGE)
    for run in every_run(store, query):
        end = attempts.cancel(run, now, uuid4().hex)
        assert end is not None, "a queued run can be cancelled"
        finding = RepairFinding(
            kind="uncancelled",
            tenant=run.tenant,
            subject=run.id,
            what=f"Run {run.id} was asked to stop, and is still queued.",
            evidence=(Fact(text="it may be claimed", at=from_ms(run.run_at)),),
            mending="cancels it",
        )
        yield _Found(finding, end=(run, end))


def is_asleep(row: ScheduleRecord) -> bool:
    """Return whether no node will ever plan an active schedule."""
    return row.state == "active" and row.wake_at is None and not is_on_success(row)


def planning_problem(row: ScheduleRecord, now: Instant) -> str | None:
    """Return why a node could not plan this schedule; None if it could."""
    if row.damage:
        return row.damage
    if row.next_tick is None:
        return "it has no next tick"
    try:
        plan(replace(row, wake_at=row.next_tick), now)
    except Exception as error:
        return str(error) or repr(error)
    return None


def wake(store: Store, row: ScheduleRecord, now: Instant, action: str) -> bool:
    """Give a schedule that can be planned its wake-up, and delete its quarantine note; return whether the row
    was still the same."""
    assert row.next_tick is not None
    wake_up = {"wake_at": write_instant(row.next_tick)}
    change = auditing.Change("schedule", row.name, row.tenant, action, {"wake_at": None}, wake_up)
    awake = replace(row, wake_at=row.next_tick, revision=row.revision + 1)
    written = store.put_schedules([Write(Planned(awake, records=audited(change, now)), row.version)])[0]
    note = store.get_record("quarantine", row.tenant, row.name)
    if written.accepted and note is not None:
        store.delete_record("quarantine", row.tenant, row.name, note.version)
    return written.accepted


def _asleep(store: Store, now: Instant) -> Iterator[_Found]:
    for row in every_schedule(store, ScheduleQuery(states=("active",), limit=_PAGE)):
        if not is_asleep(row):
            continue
        problem = planning_problem(row, now)
        evidence = []
        if row.next_tick is not None:
            evidence.append(Fact(text="its next tick", at=from_ms(row.next_tick)))
        if problem is not None:
            evidence.append(Fact(text=problem))
        finding = RepairFinding(
            kind="asleep",
            tenant=row.tenant,
            subject=row.name,
            what=f"Schedule {row.name} is active and has no wake-up: no node fires it.",
            evidence=tuple(evidence),
            mending="wakes it; its catch-up policy decides about missed ticks" if problem is None else None,
        )
        yield _Found(finding, write=None if problem is not None else _waker(store, row, now))


def _waker(store: Store, row: ScheduleRecord, now: Instant) -> Callable[[], bool]:
    return lambda: wake(store, row, now, "repair")


# -- unlisted followers ------------------------------------------------------------------------------------


def _unlisted(store: Store, now: Instant) -> Iterator[_Found]:
    for each in unlisted([*every_schedule(store, ScheduleQuery(limit=_PAGE))]):
        row, names = each.leader, ", ".join(each.followers)
        finding = RepairFinding(
            kind="unlisted",
            tenant=row.tenant,
            subject=row.name,
            what=f"Schedule {row.name} does not list {names}: its successes do not start or wake them.",
            evidence=(Fact(text=row.damage),) if row.damage else (),
            mending=None if row.damage else "lists them again",
        )
        yield _Found(finding, write=None if row.damage else _lister(store, each, now))


def _lister(store: Store, found: Unlisted, now: Instant) -> Callable[[], bool]:
    row, names = found.leader, [*found.leader.followers.split(), *found.followers]
    change = auditing.Change(
        "schedule",
        row.name,
        row.tenant,
        "repair",
        {"followers": row.followers.split()},
        {"followers": sorted(names)},
    )

    def write() -> bool:
        planned = Planned(row)
        for name in found.followers:
            planned = changes.add_follower(planned.schedule, name, now) or planned
        planned = planned._replace(records=audited(change, now))
        return store.put_schedules([Write(planned, row.version)])[0].accepted

    return write


# -- leftovers ---------------------------------------------------------------------------------------------


def _leftovers(store: Store) -> Iterator[_Found]:
    """Yield the progress of runs that have ended or do not exist, and notes on schedules that are fine."""
    records = store.find_records(run_progress.KIND, limit=_PAGE)
    ids = tuple(dict.fromkeys(id_of_key(record.key) for record in records))
    query = RunQuery(ids=ids, states=("running",), without=LARGE_FIELDS, limit=max(1, len(ids)))
    running = {run_progress.key_of(run) for run in store.find_runs(query).items} if ids else set()
    for record in records:
        if record.key not in running:
            run_id = id_of_key(record.key)
            words = f"There is a record of the progress of run {run_id}, which is not running."
            yield _leftover(store, record, words)
    notes = store.find_records("quarantine", limit=_PAGE)
    keys = tuple((note.tenant, note.key) for note in notes)
    found = ScheduleQuery(
        keys=keys, states=("active", "paused", "finished", "deleted"), limit=max(1, len(keys))
    )
    rows = {row.key: row for row in store.find_schedules(found).items} if keys else {}
    for note in notes:
        row = rows.get((note.tenant, note.key))
        if row is not None and not row.damage and not is_asleep(row):
            words = f"Schedule {note.key} has a quarantine note, and nothing is wrong with it."
            yield _leftover(store, note, words)


def _leftover(store: Store, record: Record, words: str) -> _Found:
    change = auditing.Change(
        "record", record.key, record.tenant, "repair", {"kind": record.kind, "body": record.body}, {}
    )
    finding = RepairFinding(
        kind="leftover",
        tenant=record.tenant,
        subject=record.key,
        what=words,
        evidence=(Fact(text=f"a record of kind {record.kind}: {record.body[:200]}"),),
        mending="deletes the record",
    )
    return _Found(finding, write=lambda: write_audited(store, change, lambda: _delete(store, record)))


def _delete(store: Store, record: Record) -> bool:
    return store.delete_record(record.kind, record.tenant, record.key, record.version)


def _index(text: str, outcome: RepairOutcome) -> RepairFinding:
    name, _, problem = text.partition(": ")
    return RepairFinding(
        kind="index",
        tenant=None,
        subject=name,
        what=f"The index {name} does not agree with the rows: {problem}.",
        mending="writes the entry of the index again, or deletes it, as the row says",
        outcome=outcome,
    )
