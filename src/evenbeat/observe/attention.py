"""The items of ``Attention``, from the records that the reader has found: which they are, and their words.

Pure. No item names a node: a token of one tenant sees the items, too.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from evenbeat.core.alerts import Delivery
from evenbeat.core.attention import Attention, AttentionItem
from evenbeat.core.explanations import Fact
from evenbeat.core.figures import QuarantineNote
from evenbeat.core.instants import FIRST, LAST, Instant, from_ms
from evenbeat.core.records import RunRecord, ScheduleRecord, Statistics
from evenbeat.observe.backlogs import Backlog, backlog_item
from evenbeat.observe.phrases import command_line, count, some, span
from evenbeat.observe.reasons import lack_reason
from evenbeat.rules.error_groups import error_line
from evenbeat.rules.flow_parts import is_begun
from evenbeat.rules.refusals import is_refusal
from evenbeat.rules.waiting import Taker, takers, why_no_taker
from evenbeat.stores.base import Setting

MOST_ITEMS = 50
MOST_OF_A_KIND = 20
WAITED = 60_000
"""A due run that waits for longer, in ms, waits for a node that is not there."""
OVERTIME = 60_000
"""An attempt may go on for so long, in ms, after its timeout."""
LEASE_OVER = 10_000
"""Nodes look for ended leases every few seconds: so long after its end, in ms, none has looked."""
LONG = 3_600_000
"""A run without a timeout counts as stuck only after so many ms: the default of the condition ``stuck``."""
_TIMES_AS_LONG = 3
_LONGEST_ERROR = 300
_KINDS = (
    "no_ticker",
    "no_node",
    "store_unsafe",
    "late",
    "waiting",
    "stuck",
    "orphaned",
    "failing",
    "quarantined",
    "undelivered",
)
_START = "start a node: evenbeat run"


class Failing(NamedTuple):
    """A schedule whose last run failed."""

    schedule: ScheduleRecord
    statistics: Statistics
    latest: Sequence[RunRecord]
    """A few of its latest runs, the newest first."""


class Served(NamedTuple):
    """Active schedules of one task and queue."""

    tenant: str
    task: str
    queue: str
    number: int
    name: str
    """One of them."""


class Quarantined(NamedTuple):
    """A schedule or a run that nodes can't process."""

    note: QuarantineNote
    is_run: bool


class AttentionFacts(NamedTuple):
    """The facts that the reader found. Each list is bounded; its ``more_…`` says whether it left some out."""

    now: Instant
    has_ticker: bool
    """Whether a live node fires schedules."""
    nodes: Sequence[Taker]
    """The live nodes."""
    active: int
    """How many schedules are active."""
    late: Sequence[ScheduleRecord] = ()
    more_late: bool = False
    waiting: Sequence[RunRecord] = ()
    """Due runs that have waited for over a minute."""
    more_waiting: bool = False
    orphaned: Sequence[RunRecord] = ()
    """Those of ``waiting`` whose schedule is deleted."""
    backlogs: Sequence[Backlog] = ()
    """Runs that have waited for long although live nodes could take them."""
    unserved: Sequence[Served] = ()
    """Active schedules whose task or queue no live node takes."""
    running: Sequence[RunRecord] = ()
    usual: Mapping[str, int] = {}
    """By id of a run: how many ms the longest of the schedule's latest runs took."""
    failing: Sequence[Failing] = ()
    more_failing: int = 0
    quarantined: Sequence[Quarantined] = ()
    undelivered: Sequence[Delivery] = ()
    """Alerts that were given up lately, or are retried for long."""
    settings: Sequence[Setting] = ()
    is_partial: bool = False
    """Whether one of the other searches found more than it read."""


def attention_of(facts: AttentionFacts) -> Attention:
    """Return the items, grouped by cause, the worst first."""
    found: dict[str, list[AttentionItem]] = defaultdict(list)
    for items in (
        _nodes(facts),
        _late(facts),
        (backlog_item(each, facts.now) for each in facts.backlogs),
        _stuck(facts),
        _orphaned(facts),
        _failing(facts),
        _quarantined(facts),
        _undelivered(facts),
        _unsafe(facts),
    ):
        for item in items:
            found[item.kind].append(item)
    more_late = facts.more_late and facts.has_ticker
    left = facts.more_failing + (1 if more_late else 0)
    chosen: list[AttentionItem] = []
    for of_kind in found.values():
        ranked = sorted(of_kind, key=_rank)
        chosen += ranked[:MOST_OF_A_KIND]
        left += len(ranked[MOST_OF_A_KIND:])
    chosen.sort(key=_rank)
    return Attention(
        checked_at=from_ms(facts.now),
        items=tuple(chosen[:MOST_ITEMS]),
        more=left + len(chosen[MOST_ITEMS:]),
        is_exact=not (more_late or facts.more_waiting or facts.is_partial),
    )


def is_lost(run: RunRecord, now: Instant) -> bool:
    """Return whether the lease of a running run has ended, and no node took the run over."""
    # A flow that has begun has no worker; its lease says when a node looks at it.
    return run.lease_until is not None and run.lease_until < now - LEASE_OVER and not is_begun(run)


def is_stuck(run: RunRecord, now: Instant, usual: int | None) -> bool:
    """Return whether a running run needs somebody. ``usual`` is how long the longest of the latest runs
    took; None if that is not known."""
    if is_lost(run, now):
        return True
    if run.started_at is None:
        return False
    took = now - run.started_at
    if run.execution.timeout is not None:
        return took > run.execution.timeout + OVERTIME
    return took > max(LONG, _TIMES_AS_LONG * (usual or 0))


def _rank(item: AttentionItem) -> tuple[object, ...]:
    since = "" if item.since is None else item.since.isoformat()
    names = (item.tenant or "", item.schedule or item.task or item.run or "")
    return (item.level != "fail", _KINDS.index(item.kind), since, *names)


# -- nodes -------------------------------------------------------------------------------------------------


def _nodes(facts: AttentionFacts) -> Iterator[AttentionItem]:
    """Yield what is wrong because nodes are missing."""
    has_worker = any(node.worker for node in facts.nodes)
    stranded = [run for run in facts.waiting if not takers(run, facts.nodes)]
    waits = _waiting_words(len(stranded), facts.more_waiting)
    oldest = min((run.run_at for run in stranded), default=None)
    if not facts.has_ticker and facts.active:
        late = _number(len(facts.late), facts.more_late)
        wrong = "no node is running" if not facts.nodes else "no live node fires schedules"
        evidence = [Fact(text=f"{count(facts.active, 'schedule is', 'schedules are')} active")]
        since = min((row.wake_at for row in facts.late if row.wake_at is not None), default=None)
        if since is not None:
            evidence.append(_fact("the longest overdue tick should have fired", since))
        if not has_worker and oldest is not None:
            evidence.append(_fact(f"{waits} for a worker, the oldest since", oldest))
        lost = [run for run in facts.running if is_lost(run, facts.now)] if not facts.nodes else []
        if lost:
            evidence.append(Fact(text=f"{count(len(lost), 'run has', 'runs have')} no live worker"))
        is_one = len(facts.late) == 1 and not facts.more_late
        words = f"{late} schedule{' is' if is_one else 's are'} late" if facts.late else "no tick will fire"
        yield AttentionItem(
            kind="no_ticker",
            level="fail" if facts.late else "warn",
            sentence=_sentence(f"{wrong}: {words}"),
            evidence=tuple(evidence),
            remedy=_START,
            since=_moment(since),
            count=len(facts.late) or facts.active,
        )
        if not has_worker:
            return
    if not has_worker:
        if oldest is not None:
            yield AttentionItem(
                kind="no_node",
                level="fail",
                sentence=_sentence(f"no live node executes runs: {waits}"),
                evidence=(_fact("the oldest is due since", oldest),),
                remedy=_START,
                since=_moment(oldest),
                count=len(stranded),
            )
        elif facts.active:
            yield AttentionItem(
                kind="no_node",
                level="warn",
                sentence="No live node executes runs: the runs of coming ticks will wait.",
                evidence=(Fact(text=f"{count(facts.active, 'schedule is', 'schedules are')} active"),),
                remedy=_START,
                count=facts.active,
            )
        return
    yield from _without_task(facts, stranded)


def _without_task(facts: AttentionFacts, stranded: Sequence[RunRecord]) -> Iterator[AttentionItem]:
    """Yield tasks that no live worker takes: those of due runs, then those of coming ticks."""
    grouped: dict[tuple[str, str, str], list[RunRecord]] = defaultdict(list)
    for run in stranded:
        grouped[run.tenant, run.task, run.queue].append(run)
    coming = {(each.tenant, each.task, each.queue): each for each in facts.unserved}
    for tenant, task, queue in {**dict.fromkeys(grouped), **dict.fromkeys(coming)}:
        runs = sorted(grouped.get((tenant, task, queue), ()), key=lambda run: run.run_at)
        known = coming.get((tenant, task, queue))
        why = lack_reason(why_no_taker(task, facts.nodes), task, queue)
        evidence = [_fact("the oldest is due since", runs[0].run_at)] if runs else []
        if known is not None:
            others = f" and {known.number - 1:,} more" if known.number > 1 else ""
            evidence.append(Fact(text=f"active schedules of the task: {known.name}{others}"))
        if runs:
            words = _waiting_words(len(runs), facts.more_waiting)
        else:
            assert known is not None
            words = f"the runs of {count(known.number, 'schedule')} will wait"
        yield AttentionItem(
            kind="no_node",
            level="fail" if runs else "warn",
            # Not "{why}: {words}": after the name of a queue such as secret-q, a colon looks like a secret.
            sentence=_sentence(f"{why}, so {words}"),
            evidence=tuple(evidence),
            remedy="start a node that has the task and takes the queue: evenbeat run",
            tenant=tenant,
            schedule=runs[0].schedule if runs else known.name if known is not None else None,
            run=runs[0].id if runs else None,
            task=task,
            since=_moment(runs[0].run_at) if runs else None,
            count=len(runs) or (known.number if known is not None else 0),
        )


# -- schedules and runs ------------------------------------------------------------------------------------


def _late(facts: AttentionFacts) -> Iterator[AttentionItem]:
    if not facts.has_ticker:
        return
    for row in facts.late:
        since = row.wake_at or facts.now
        yield AttentionItem(
            kind="late",
            level="fail",
            sentence=f"{row.name} is late by {span(facts.now - since)}: its tick has not fired.",
            evidence=(
                _fact("the tick", row.next_tick or since),
                _fact("it should have fired", since),
                Fact(text="live nodes fire schedules, and not this one"),
            ),
            remedy=command_line(f"why {row.name}", row.tenant),
            tenant=row.tenant,
            schedule=row.name,
            task=row.task,
            since=_moment(since),
        )


def _stuck(facts: AttentionFacts) -> Iterator[AttentionItem]:
    for run in facts.running:
        usual = facts.usual.get(run.id)
        lost = is_lost(run, facts.now)
        if not is_stuck(run, facts.now, usual) or (lost and not facts.nodes and facts.active):
            continue
        name = run.schedule or run.task
        evidence = [] if run.started_at is None else [_fact(f"attempt {run.attempt} began", run.started_at)]
        took = span(facts.now - (run.started_at or facts.now))
        if lost:
            words = f"a run of {name} has no live worker, and no node took it over"
            evidence.append(_fact("its lease ended", run.lease_until or facts.now))
            remedy = "start a node, or: evenbeat repair --yes"
        else:
            words = f"a run of {name} has been running for {took}"
            if run.execution.timeout is not None:
                words += f", and its timeout is {span(run.execution.timeout)}"
            elif usual is not None:
                words += f", and its latest runs took {span(usual)} at most"
            if run.cancel_requested:
                evidence.append(Fact(text="it was asked to stop"))
            remedy = command_line(f"runs cancel {shlex.quote(run.id)}", run.tenant)
        yield AttentionItem(
            kind="stuck",
            level="fail" if lost else "warn",
            sentence=_sentence(words),
            evidence=tuple(evidence),
            remedy=remedy,
            tenant=run.tenant,
            schedule=run.schedule,
            run=run.id,
            task=run.task,
            since=_moment(run.lease_until if lost else run.started_at),
        )


def _orphaned(facts: AttentionFacts) -> Iterator[AttentionItem]:
    """Yield waiting runs of schedules that are deleted, by schedule."""
    grouped: dict[tuple[str, str], list[RunRecord]] = defaultdict(list)
    for run in facts.orphaned:
        grouped[run.tenant, run.schedule or ""].append(run)
    for (tenant, schedule), runs in grouped.items():
        oldest = min(runs, key=lambda run: run.run_at)
        are = "waits" if len(runs) == 1 else "wait"
        yield AttentionItem(
            kind="orphaned",
            level="warn",
            sentence=f"{count(len(runs), 'run')} of {schedule} {are}, and the schedule is deleted.",
            evidence=(_fact("the oldest is due since", oldest.run_at),),
            remedy=command_line(f"runs cancel --all --state queued --schedule {schedule}", tenant),
            tenant=tenant,
            schedule=schedule,
            run=oldest.id,
            task=oldest.task,
            since=_moment(oldest.run_at),
            count=len(runs),
        )


def _failing(facts: AttentionFacts) -> Iterator[AttentionItem]:
    for row, figures, latest in facts.failing:
        ended = [run for run in latest if run.state in ("succeeded", "failed")]
        failed = []
        for run in ended:
            if run.state != "failed":
                break
            failed.append(run)
        number = max(1, len(failed))
        # Runs before the ones that were read may have failed, too.
        at_least = " or more" if failed and len(failed) == len(ended) < figures.failure_count else ""
        last = "last run" if number == 1 else f"last {number:,} runs{at_least}"
        error = error_line(figures.last_error)[:_LONGEST_ERROR]
        since = (failed[-1].finished_at if failed else None) or figures.last_failure
        evidence = [_fact(error, figures.last_failure or facts.now)]
        if figures.last_success is None:
            evidence.append(Fact(text="it has never succeeded"))
        else:
            evidence.append(_fact("it last succeeded", figures.last_success))
        run_id = failed[0].id if failed else None
        help_ = f"runs show {shlex.quote(run_id)}" if run_id else f"failures --schedule {row.name}"
        yield AttentionItem(
            kind="failing",
            level="fail",
            sentence=f"{row.name} is failing: its {last} failed.",
            evidence=tuple(evidence),
            remedy=command_line(help_, row.tenant),
            tenant=row.tenant,
            schedule=row.name,
            run=run_id,
            task=row.task,
            since=_moment(since),
            count=number,
        )


def _quarantined(facts: AttentionFacts) -> Iterator[AttentionItem]:
    for note, is_run in facts.quarantined:
        what = "run" if is_run else "schedule"
        words = "is deferred: a node could not plan it, and tries again"
        if note.kind == "quarantine":
            words = "is quarantined: nodes can't read it"
        elif is_refusal(note.reason):
            words = "does not fire: the database refuses its run, and nodes try again"
        yield AttentionItem(
            kind="quarantined",
            level="fail" if note.kind == "quarantine" or is_refusal(note.reason) else "warn",
            sentence=_sentence(f"{what} {note.name} {words}"),
            evidence=(Fact(text=note.reason),),
            remedy=note.remedy,
            tenant=note.tenant,
            schedule=None if is_run else note.name,
            run=note.name if is_run else None,
        )


def _undelivered(facts: AttentionFacts) -> Iterator[AttentionItem]:
    """Yield one item for each owner of channels."""
    by_owner: dict[str | None, dict[str, list[Delivery]]] = defaultdict(lambda: defaultdict(list))
    for each in facts.undelivered:
        by_owner[each.owner][each.channel].append(each)
    for owner, channels in by_owner.items():
        every = [each for of_channel in channels.values() for each in of_channel]
        failed = f"{count(len(every), 'alert')} could not be delivered"
        yield AttentionItem(
            kind="undelivered",
            level="warn",
            sentence=_sentence(f"{failed} on {count(len(channels), 'channel')}: {some(sorted(channels), 3)}"),
            evidence=tuple(_channel_fact(*each) for each in sorted(channels.items())[:MOST_OF_A_KIND]),
            remedy="evenbeat alerts log --all-tenants"
            if owner is None
            else command_line("alerts log", owner),
            tenant=owner,
            since=min(each.created_at for each in every),
            count=len(every),
        )


def _channel_fact(channel: str, deliveries: Sequence[Delivery]) -> Fact:
    last = max(deliveries, key=_last_try)
    given_up = sum(each.state == "failed" for each in deliveries)
    retried = len(deliveries) - given_up
    numbers = [f"{given_up:,} given up"] * (given_up > 0) + [f"{retried:,} retried"] * (retried > 0)
    text = f"channel {channel}, {' and '.join(numbers)}; {last.error}"
    return Fact(text=text[:_LONGEST_ERROR], at=_last_try(last))


def _last_try(delivery: Delivery) -> datetime:
    return delivery.last_try_at or delivery.created_at


def _unsafe(facts: AttentionFacts) -> Iterator[AttentionItem]:
    for setting in facts.settings:
        if setting.level != "ok":
            yield AttentionItem(
                kind="store_unsafe",
                level=setting.level,
                sentence=f"The store is not safe: {setting.name} is {setting.value}.",
                evidence=() if setting.hint is None else (Fact(text=setting.hint),),
                remedy="change the setting of the server; evenbeat doctor checks it",
            )


def _waiting_words(number: int, more: bool) -> str:
    if more:
        return f"{number:,} due runs or more wait"
    return count(number, "due run waits", "due runs wait")


def _number(number: int, more: bool) -> str:
    return f"{number:,}{' or more' if more else ''}"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _fact(text: str, at: Instant) -> Fact:
    return Fact(text=text, at=_moment(at))


def _moment(at: Instant | None) -> datetime | None:
    return None if at is None else from_ms(min(max(at, FIRST), LAST))
