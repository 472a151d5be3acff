"""Why a tick did, or did not, become a run, in words: turns what the rules found into ``Why``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

from evenbeat.core.audits import AuditEntry
from evenbeat.core.dependencies import parse_after
from evenbeat.core.explanations import Fact, Verdict, Why
from evenbeat.core.instants import Instant
from evenbeat.core.rates import write_rate
from evenbeat.core.records import RunRecord, ScheduleRecord, Skipped
from evenbeat.observe.ledger_explanations import outage_fact, row_fact, skipped_words, success_fact
from evenbeat.observe.phrases import count, measured, some, span
from evenbeat.observe.run_explanations import Speaker, Words, change_facts, run_facts, run_words
from evenbeat.rules.accounts import trigger_since
from evenbeat.rules.calendars import stopped_by
from evenbeat.rules.dependencies import is_on_success, predecessors, unmet, waits_until
from evenbeat.rules.error_groups import error_line
from evenbeat.rules.firing import catching_up
from evenbeat.rules.refusals import is_refusal
from evenbeat.rules.ticks import next_start, own_trigger, readable_trigger, spread_delay
from evenbeat.rules.why import Finding, TickFacts
from evenbeat.triggers import Calendared, Cron

_MOST_NODES = 3


class Case(NamedTuple):
    """A tick to explain."""

    facts: TickFacts
    finding: Finding
    speaker: Speaker


def no_schedule(
    tenant: str, name: str, similar: Sequence[str], asked: datetime | None = None, *, has_nodes: bool = True
) -> Why:
    """Return the answer about a name of which the store never had a row. Without a live node, a schedule of
    that name may be in the code only."""
    speaker = Speaker(tenant)
    remedy = f"to list the schedules: {speaker.command('schedules list')}"
    if similar:
        remedy = f"did you mean {' or '.join(similar)}?"
    sentence = f'tenant "{tenant}" has no schedule "{name}", and never had one'
    if not has_nodes:
        sentence = (
            f'there is no row of schedule "{name}" of tenant "{tenant}", and never was one; it may be in the '
            "code of nodes only, and no node is alive now"
        )
    return Why(verdict="never_existed", sentence=sentence, remedy=remedy, schedule=name, asked=asked)


def code_only(tenant: str, name: str, nodes: Sequence[str], asked: datetime | None = None) -> Why:
    """Return the answer about a schedule without a row that live nodes plan in memory."""
    runs = Speaker(tenant).command(f"runs list --schedule {name}")
    return Why(
        verdict="code_only",
        sentence=f'schedule "{name}" is in the code only: nodes plan it in memory; the store has only its '
        "runs",
        evidence=(Fact(text=f"planned by {some(nodes, 5)}"),),
        remedy=f"to see its runs: {runs}; to pause, edit or account for it, give it a row: durable=True",
        schedule=name,
        asked=asked,
    )


def tick_view(
    facts: TickFacts, finding: Finding, entry: AuditEntry | None = None, zone: tzinfo | None = None
) -> Why:
    """Return the answer about a tick of a schedule. ``entry`` is the change by hand that led to it. ``zone``
    is the one of the times in words; None: that of the trigger."""
    schedule = facts.schedule
    trigger = readable_trigger(schedule)
    speaker = Speaker(schedule.tenant, zone or (UTC if trigger is None else trigger.tzinfo))
    place = facts.place
    if finding.row is not None:
        words = skipped_words(facts, finding.row, finding.outage, speaker)
    elif finding.verdict in _SCHEDULE:
        words = _SCHEDULE[finding.verdict](Case(facts, finding, speaker))
    else:
        assert finding.run is not None
        words = run_words(finding, finding.run, facts.waiting, facts.now, speaker)
        words.evidence.extend(_clock_facts(Case(facts, finding, speaker)))
    words.evidence.extend(change_facts(entry, speaker))
    if facts.by_hand is not None:
        words = _with_run_by_hand(words, facts.by_hand, speaker)
    if facts.asked is None:
        words.evidence.extend(_coming(schedule, facts.now, speaker))
    run = None if finding.row is None else finding.row.run
    return Why(
        verdict=finding.verdict,
        sentence=words.sentence,
        evidence=tuple(words.evidence),
        remedy=words.remedy,
        schedule=schedule.name,
        asked=None if facts.asked is None else speaker.moment(facts.asked.at),
        tick=None if place.tick is None else speaker.moment(place.tick),
        run=run if finding.run is None else finding.run.id,
        before=None if place.before is None else speaker.moment(place.before),
        after=None if place.after is None else speaker.moment(place.after),
    )


def _with_run_by_hand(words: Words, run: RunRecord, speaker: Speaker) -> Words:
    """Add a failed run that a user started. It has no tick, so no check finds it."""
    error = f": {error_line(run.error)}" if run.error else ""
    words.evidence.append(speaker.fact(f"run {run.id}, started by hand, failed{error}", run.finished_at))
    return words._replace(remedy=words.remedy or speaker.command(f"runs retry {run.id}"))


def _coming(schedule: ScheduleRecord, now: Instant, speaker: Speaker) -> Iterator[Fact]:
    start = None if readable_trigger(schedule) is None else next_start(schedule)
    is_held = schedule.state == "paused" and schedule.paused_until is None
    if start is not None and start > now and not is_held:
        yield speaker.fact("next start", start)


def _tick(case: Case) -> str:
    assert case.facts.place.tick is not None
    return case.speaker.time(case.facts.place.tick)


def _asked(case: Case) -> str:
    if case.facts.asked is None:
        return "now"
    return case.speaker.time(case.facts.asked.at)


def _unreadable(case: Case) -> Words:
    name = case.facts.schedule.name
    return Words(
        f"the stored row of {name} can't be read, so nodes do not fire it: {case.facts.schedule.damage}",
        [],
        f"declare or update {name}, or delete it",
    )


def _not_yet_created(case: Case) -> Words:
    schedule = case.facts.schedule
    evidence = [case.speaker.fact("created", schedule.created_at)]
    if schedule.generation > 1:
        evidence.append(
            case.speaker.fact("an earlier schedule of this name was deleted, or its ticks were moved")
        )
    return Words(f"{schedule.name} was created later, on {case.speaker.time(schedule.created_at)}", evidence)


def _deleted(case: Case) -> Words:
    schedule = case.facts.schedule
    return Words(
        f"{schedule.name} was deleted on {case.speaker.time(schedule.updated_at)}",
        [
            case.speaker.fact("created", schedule.created_at),
            case.speaker.fact("deleted", schedule.updated_at),
        ],
        f"to create it again: {case.speaker.command(f'schedules add {schedule.name} …')}",
    )


def _paused(case: Case) -> Words:
    schedule = case.facts.schedule
    by = f" by {schedule.paused_by}" if schedule.paused_by else ""
    since = "" if schedule.paused_at is None else f" since {case.speaker.time(schedule.paused_at)}"
    until = "" if schedule.paused_until is None else f", until {case.speaker.time(schedule.paused_until)}"
    note = f": {schedule.pause_note}" if schedule.pause_note else ""
    evidence = [case.speaker.fact(f"paused{by}{note}", schedule.paused_at)]
    if schedule.paused_until is not None:
        evidence.append(case.speaker.fact("the pause ends", schedule.paused_until))
    if case.facts.place.tick is None and case.facts.asked is not None:
        evidence.append(case.speaker.fact(f"the trigger has no tick at {_asked(case)}"))
    return Words(
        f"{schedule.name} has been paused{since}{by}{until}{note}",
        evidence,
        case.speaker.command(f"schedules resume {schedule.name}"),
    )


def _finished(case: Case) -> Words:
    schedule = case.facts.schedule
    words = f"{schedule.name} is finished: its trigger ({_rule(schedule)}) has no tick to come"
    evidence = []
    if case.finding.run is not None and case.finding.run.finished_at is not None:
        evidence.append(
            case.speaker.fact(
                f"last run {case.finding.run.id} {case.finding.run.state}", case.finding.run.finished_at
            )
        )
    calendars = stopped_by(schedule, case.facts.now)
    if not calendars:
        return Words(words, evidence)
    has = "calendar" if len(calendars) == 1 else "calendars"
    leave = "leaves" if len(calendars) == 1 else "leave"
    show = case.speaker.command(f"calendars show {calendars[0]}")
    return Words(
        f"{words}: the {has} {' and '.join(calendars)} {leave} none",
        evidence,
        f"{schedule.name} goes on when a change of the calendar or of the trigger gives it a tick: {show}",
    )


def _no_tick(case: Case) -> Words:
    schedule = case.facts.schedule
    words = f"{schedule.name} has no tick at {_asked(case)}: it runs {_rule(schedule)}"
    return Words(words, list(_neighbours(case)))


def _rule(schedule: ScheduleRecord) -> str:
    """Return the trigger in words, without the effect of clock changes."""
    return own_trigger(schedule).explain().partition("; ")[0]


def _neighbours(case: Case) -> Iterator[Fact]:
    if case.facts.place.before is not None:
        yield case.speaker.fact("tick before", case.facts.place.before)
    if case.facts.place.after is not None:
        yield case.speaker.fact("tick after", case.facts.place.after)


def _calendar(case: Case) -> Words:
    trigger, removed = own_trigger(case.facts.schedule), case.facts.place.removed
    assert isinstance(trigger, Calendared)
    assert removed is not None
    names = some(trigger.refusing(removed), _MOST_NODES)
    words = f"the tick of {case.speaker.time(removed)} does not run: the calendar {names} removes it"
    moved_to = trigger.moved_to(removed)
    evidence = [case.speaker.fact(f"the bare trigger has this tick: {trigger.bare}", removed)]
    if moved_to is not None:
        words += f", and it moves to {case.speaker.time(moved_to)}"
    evidence += _neighbours(case)
    return Words(words, evidence, f"to see its days: {case.speaker.command(f'calendars show {names}')}")


def _clock_skipped(case: Case) -> Words:
    schedule, place = case.facts.schedule, case.facts.place
    trigger = own_trigger(schedule)
    assert isinstance(trigger, Cron)
    assert case.facts.asked is not None
    assert case.facts.asked.label is not None
    label = case.facts.asked.label
    words = (
        f"{label:%H:%M} on {label:%Y-%m-%d} does not exist in {trigger.zone.key}: the clock is set forward"
    )
    evidence = [case.speaker.fact("the clock is set forward", case.facts.asked.at)]
    if place.tick is None:
        evidence += _neighbours(case)
        remedy = None
        if trigger.gap == "skip" and not trigger.expression.follows_real_time:
            words += f", and {schedule.name} does not run on this day (gap=skip)"
            remedy = (
                "use gap=shift in the trigger: a time that the clock skips then runs right after the change"
            )
        return Words(words, evidence, remedy)
    words += f"; {schedule.name} runs at {_tick(case)} instead"
    if case.finding.run is not None:
        evidence += run_facts(case.finding.run, case.speaker)
    elif case.facts.row is not None:
        evidence.append(row_fact(case.facts.row, case.speaker))
    return Words(words, evidence)


def _clock_repeated(case: Case) -> Words:
    trigger = own_trigger(case.facts.schedule)
    assert isinstance(trigger, Cron)
    which = {"first": "the first time", "last": "the second time", "both": "both times"}[trigger.repeat]
    words = (
        f"the clock of {trigger.zone.key} is set back and shows this time twice; "
        f"{case.facts.schedule.name} runs {which} (repeat={trigger.repeat}), and not at {_asked(case)}"
    )
    return Words(words, list(_neighbours(case)), "set repeat=both in the trigger to run both times")


def _clock_facts(case: Case) -> Iterator[Fact]:
    """Yield the effect of a clock change on the tick."""
    trigger = readable_trigger(case.facts.schedule)
    if isinstance(trigger, Cron) and case.facts.place.tick is not None:
        note = trigger.bind(case.facts.schedule.name, 0).note(case.facts.place.tick)
        if note is not None:
            yield case.speaker.fact(note, case.facts.place.tick)


def _trigger_unknown(case: Case) -> Words:
    since = trigger_since(case.facts.schedule)
    return Words(
        f"{case.facts.schedule.name} got its present trigger on {case.speaker.time(since)}; "
        f"no record says what an earlier one planned for {_asked(case)}",
        [
            case.speaker.fact("created", case.facts.schedule.created_at),
            case.speaker.fact(f"present trigger: {case.facts.schedule.trigger}", since),
        ],
    )


def _rescheduled(case: Case) -> Words:
    assert case.finding.moved_to is not None
    evidence = [] if case.finding.run is None else list(run_facts(case.finding.run, case.speaker))
    if isinstance(case.facts.moved, Skipped):
        evidence.append(row_fact(case.facts.moved, case.speaker))
    moved_to = case.speaker.time(case.finding.moved_to)
    return Words(f"the tick of {_tick(case)} was moved to {moved_to}", evidence)


def _not_due(case: Case) -> Words:
    schedule, tick = case.facts.schedule, case.facts.place.tick
    assert tick is not None
    delay = spread_delay(schedule)
    start = tick + delay
    words = f"{schedule.name} starts at {case.speaker.time(start)}, in {span(start - case.facts.now)}"
    evidence = [case.speaker.fact("tick", tick)]
    if delay:
        evidence.append(
            case.speaker.fact(f"its share of the spread: {measured(delay)} after each tick", start)
        )
    evidence += _clock_facts(case)
    if schedule.created_at:
        evidence.append(case.speaker.fact("created", schedule.created_at))
    return Words(words, evidence)


def _waits_for_run(case: Case) -> Words:
    schedule, run = case.facts.schedule, case.finding.run
    assert run is not None
    policy = f"overlap={schedule.overlap}"
    if schedule.overlap == "allow":
        policy = f"max_concurrent={schedule.max_concurrent}"
    words = f"the tick of {_tick(case)} waits until run {run.id} has ended ({policy})"
    evidence = [
        case.speaker.fact(f"run {other.id} is {other.state}", other.started_at)
        for other in case.facts.active[:5]
    ]
    return Words(words, evidence, f"to end that run: {case.speaker.command(f'runs cancel {run.id}')}")


def _waits_for_success(case: Case) -> Words:
    schedule, now = case.facts.schedule, case.facts.now
    names = predecessors(schedule.trigger, schedule.after)
    evidence = [success_fact(name, case.facts, case.speaker) for name in names]
    if is_on_success(schedule):
        return Words(
            f"{schedule.name} has no ticks of its own: it fires {schedule.trigger}",
            evidence,
            case.speaker.command(f"why {names[0]}"),
        )
    after = parse_after(schedule.after)
    late = unmet(after, case.facts.last_successes, now)
    words = f"the tick of {_tick(case)} waits for a success of {' and '.join(late)} ({after})"
    until = waits_until(schedule, now)
    if until is not None:
        words += f", until {case.speaker.time(until)}"
    return Words(words, evidence, case.speaker.command(f"why {late[0]}"))


def _catching_up(case: Case) -> Words:
    schedule = case.facts.schedule
    held = catching_up(schedule)
    assert held is not None
    assert schedule.catch_up.rate is not None
    rate = write_rate(schedule.catch_up.rate)
    words = (
        f"{schedule.name} is catching up (catch_up_rate {rate}): {count(held.ticks_left, 'tick')} left, "
        f"next at {case.speaker.time(held.next_at)}"
    )
    evidence = [
        case.speaker.fact("the oldest tick that waits", schedule.next_tick),
        case.speaker.fact("last fired", schedule.last_fire),
    ]
    faster = case.speaker.command(f"schedules update {schedule.name} --catch-up-rate …")
    return Words(words, evidence, f"to catch up faster: {faster}")


def _no_ticker(case: Case) -> Words:
    words = f"the tick of {_tick(case)} has not fired: no live node fires schedules"
    evidence = [
        case.speaker.fact(
            f"due for {span(case.facts.now - (case.facts.place.tick or 0))}", case.facts.place.tick
        )
    ]
    if case.finding.outage is not None:
        evidence.append(outage_fact(case.finding.outage, case.speaker))
    return Words(words, evidence, "start a node: evenbeat run APP")


def _quarantined(case: Case) -> Words:
    name = case.facts.schedule.name
    note = f": {case.facts.quarantined}" if case.facts.quarantined else ""
    words = f"nodes could not plan {name} and do not fire it until it is written again{note}"
    remedy = f"to write it again: {case.speaker.command(f'schedules update {name} …')}"
    return Words(words, list(_due_fact(case)), remedy)


def _deferred(case: Case) -> Words:
    note = case.facts.deferred or ""
    if is_refusal(note):
        upcoming = case.facts.schedule.wake_at
        evidence = list(_due_fact(case))
        if upcoming is not None and upcoming > case.facts.now:
            evidence.append(case.speaker.fact("a node tries it again", upcoming))
        remedy = "fix what the database names (a trigger, a constraint, a key); nodes keep trying"
        return Words(f"{case.facts.schedule.name} does not fire: {note}", evidence, remedy)
    words = (
        f"a node can't plan {case.facts.schedule.name} now, and retries each minute: {case.facts.deferred}"
    )
    remedy = "repair that node, or start one that has what it lacks"
    return Words(words, list(_due_fact(case)), remedy)


def _too_new(case: Case) -> Words:
    schedule = case.facts.schedule
    words = (
        f"a newer version of Evenbeat wrote {schedule.name} (format {schedule.format}): "
        "this one leaves it alone"
    )
    return Words(words, list(_due_fact(case)), "upgrade the nodes")


def _due(case: Case) -> Words:
    late = measured(case.facts.now - (case.facts.place.tick or 0))
    words = f"the tick of {_tick(case)} has been due for {late}, and a node may fire it any moment"
    nodes = some(case.facts.tickers, _MOST_NODES)
    return Words(words, [case.speaker.fact(f"live nodes that fire schedules: {nodes}")])


def _due_fact(case: Case) -> Iterator[Fact]:
    if case.facts.place.tick is not None and case.facts.place.tick <= case.facts.now:
        yield case.speaker.fact("due since", case.facts.place.tick)


def _purged(case: Case) -> Words:
    assert case.facts.purged is not None
    words = (
        f"the records of {_tick(case)} are deleted: nodes keep the history since "
        f"{case.speaker.time(case.facts.purged)}"
    )
    return Words(
        words,
        [case.speaker.fact("history is complete since", case.facts.purged)],
        "to keep more: evenbeat run APP --retention …",
    )


def _missing(case: Case) -> Words:
    name = case.facts.schedule.name
    words = f"the tick of {_tick(case)} left no record: neither a run nor a row of the ledger"
    evidence = list(_neighbours(case))
    if case.facts.schedule.next_tick is not None:
        evidence.append(
            case.speaker.fact("ticks before this one are recorded", case.facts.schedule.next_tick)
        )
    remedy = f"report it, please; to list all such ticks: {case.speaker.command(f'account {name}')}"
    return Words(words, evidence, remedy)


_SCHEDULE: dict[Verdict, Callable[[Case], Words]] = {
    "unreadable": _unreadable,
    "not_yet_created": _not_yet_created,
    "deleted": _deleted,
    "paused": _paused,
    "finished": _finished,
    "no_tick": _no_tick,
    "calendar": _calendar,
    "clock_skipped": _clock_skipped,
    "clock_repeated": _clock_repeated,
    "trigger_unknown": _trigger_unknown,
    "rescheduled": _rescheduled,
    "not_due": _not_due,
    "waits_for_run": _waits_for_run,
    "waits_for_success": _waits_for_success,
    "catching_up": _catching_up,
    "no_ticker": _no_ticker,
    "quarantined": _quarantined,
    "deferred": _deferred,
    "too_new": _too_new,
    "due": _due,
    "purged": _purged,
    "missing": _missing,
}
