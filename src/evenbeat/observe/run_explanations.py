"""Why a run is in its state, in words; and the parts that all explanations share."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

from evenbeat.core.audits import AuditEntry
from evenbeat.core.explanations import Fact, Verdict, Why
from evenbeat.core.instants import FIRST, LAST, Instant, from_ms, to_ms
from evenbeat.core.records import ACTIVE_STATES, RunRecord
from evenbeat.observe.flow_explanations import NO_FLOW, FlowFacts
from evenbeat.observe.phrases import command_line, count, date_time, measured, timespec
from evenbeat.observe.reasons import hold_reason, wait_reason
from evenbeat.rules.attempts import (
    EXPIRED,
    NOT_RETRIED,
    asked_again,
    ended_attempts,
    expires_at,
    given_up,
    was_expired,
)
from evenbeat.rules.dependencies import is_after_success, predecessor_run, predecessor_schedule
from evenbeat.rules.error_groups import error_line
from evenbeat.rules.flow_parts import flow_part, is_begun
from evenbeat.rules.waiting import Waiting
from evenbeat.rules.why import Finding

_MOST_ATTEMPTS = 5
_DONE = {
    "pause": "paused",
    "add": "added",
    "declare": "declared",
    "update": "changed",
    "reset": "reset",
    "reschedule": "moved",
    "delete": "deleted",
    "cancel": "cancelled",
    "repair": "repaired",
}


class Words(NamedTuple):
    """The words of an answer."""

    sentence: str
    evidence: list[Fact]
    remedy: str | None = None


class Speaker(NamedTuple):
    """Says instants in the zone of a trigger or of the reader, and commands for a tenant."""

    tenant: str
    zone: tzinfo = UTC

    def time(self, instant: Instant) -> str:
        """Return ``Mon 2026-03-02 09:00 +01:00``, with seconds and milliseconds only if there are any."""
        text = date_time(self.moment(instant), timespec([instant]))
        return f"{text.removesuffix('+00:00')}UTC" if self.zone is UTC else text

    def moment(self, instant: Instant) -> datetime:
        # An instant that was edited by hand may lie outside the calendar.
        return from_ms(min(max(instant, FIRST), LAST), self.zone)

    def fact(self, text: str, at: Instant | None = None) -> Fact:
        return Fact(text=text, at=None if at is None else self.moment(at))

    def command(self, words: str) -> str:
        return command_line(words, self.tenant)


def run_why(
    run: RunRecord,
    finding: Finding,
    waiting: Waiting | None,
    now: Instant,
    zone: tzinfo,
    entry: AuditEntry | None = None,
    before: RunRecord | None = None,
    flow: FlowFacts = NO_FLOW,
) -> Why:
    """Return the answer about a run. ``entry`` is the change by hand that led to its state, ``before`` the
    run whose success started it, ``flow`` what is known of its flow."""
    speaker = Speaker(run.tenant, zone)
    words = run_words(finding, run, waiting, now, speaker, before)
    return Why(
        verdict=finding.verdict,
        sentence=f"{words.sentence}{flow.words}",
        evidence=(*words.evidence, *flow.facts, *change_facts(entry, speaker)),
        remedy=words.remedy,
        schedule=run.schedule,
        tick=None if run.tick is None else speaker.moment(run.tick),
        run=run.id,
    )


def change_facts(entry: AuditEntry | None, speaker: Speaker) -> Iterator[Fact]:
    """Yield who made a change by hand, and when."""
    if entry is None:
        return
    text = f"{_DONE.get(entry.action, entry.action)} by {entry.actor}"
    if "trigger" in entry.after and "trigger" in entry.before:
        text += f": trigger {entry.before['trigger']} → {entry.after['trigger']}"
    if entry.action == "pause" and entry.after.get("pause_note"):
        text += f": {entry.after['pause_note']}"
    yield speaker.fact(text, to_ms(entry.at))


def run_words(
    finding: Finding,
    run: RunRecord,
    waiting: Waiting | None,
    now: Instant,
    speaker: Speaker,
    before: RunRecord | None = None,
) -> Words:
    if run.schedule is not None and run.tick is not None:
        subject = f"the run of {run.schedule} for {speaker.time(run.tick)}"
    else:
        subject = f"run {run.id} of {run.task}"
    evidence = list(run_facts(run, speaker, before))
    if run.state == "queued":
        sentence, remedy = _queued_words(subject, finding.verdict, run, waiting, speaker)
        return Words(sentence, evidence, remedy)
    late = _late(run)
    if run.state == "running":
        since = now - (now if run.started_at is None else run.started_at)
        asked = ", and is asked to stop" if run.cancel_requested else ""
        where = "" if is_begun(run) else f" on {run.worker}"
        return Words(f"{subject} has been running for {measured(since)}{where}{asked}{late}", evidence)
    if run.state == "succeeded":
        return Words(f"{subject} succeeded{_took(run)}{late}", evidence)
    retry = speaker.command(f"runs retry {run.id}")
    if was_expired(run):
        assert run.error is not None
        why = run.error.removeprefix(EXPIRED).strip()
        return Words(
            f"{subject} expired, and was not executed: {why}", evidence, _enqueue_again(run, speaker)
        )
    if flow_part(run).member is not None:
        # A step is run again by its flow, which knows what comes after it.
        member = flow_part(run).member
        assert member is not None
        retry = speaker.command(f"flows resume {member.flow}")
    elif is_begun(run):
        retry = speaker.command(f"flows resume {run.id}")
    if run.state == "cancelled":
        return Words(f"{subject} was cancelled", evidence, f"to run it after all: {retry}")
    if is_begun(run):
        return Words(f"{subject} failed: {error_line(run.error)}", evidence, retry)
    # A retry by hand starts the counts again, and a run keeps only its latest attempts.
    known = sum(attempt.outcome in ("failed", "lost") for attempt in ended_attempts(run))
    attempts = count(max(1, run.failures + run.crashes, known), "attempt")
    gave_up = given_up(run)
    refused = "" if gave_up is None else f"; {NOT_RETRIED}{gave_up}"
    return Words(f"{subject} failed after {attempts}: {error_line(run.error)}{refused}", evidence, retry)


def _enqueue_again(run: RunRecord, speaker: Speaker) -> str | None:
    """Return how to execute a run that has expired after all: a retry would expire, too."""
    if run.schedule is not None:
        return f"to run it after all: {speaker.command(f'schedules run {run.schedule}')}"
    return f"to run it after all: {speaker.command(f'runs enqueue {run.task}')}"


def _queued_words(
    subject: str, verdict: Verdict, run: RunRecord, waiting: Waiting | None, speaker: Speaker
) -> tuple[str, str | None]:
    nodes = () if waiting is None else waiting.nodes
    if verdict == "later":
        asked = asked_again(run)
        because = "" if asked is None else f": {error_line(asked)}"
        return f"{subject} is queued until {speaker.time(run.run_at)}{because}", None
    if verdict == "retry":
        error = f" ({error_line(run.error)})" if run.error else ""
        return f"{subject} failed{error} and waits for its next attempt at {speaker.time(run.run_at)}", None
    if verdict == "unfit":
        sentence = f"{subject} waits for a node whose code its payload fits, until {speaker.time(run.run_at)}"
        return sentence, f"start a node whose {run.task} takes the payload of the run"
    if waiting is not None and waiting.hold is not None:
        opens = None if waiting.until is None else speaker.time(waiting.until)
        return f"{subject} waits {hold_reason(waiting.hold, opens)}", None
    reason = "next" if verdict not in ("no_worker", "no_task", "no_queue", "busy") else verdict
    words = wait_reason(reason, run.task, run.queue, nodes)
    remedies = {
        "no_worker": "start a node: evenbeat run APP",
        "no_task": f"start a node that has the task {run.task}",
        "no_queue": f"start a node that takes from the queue: evenbeat run APP --queues {run.queue}",
        "busy": "start another node, or one with more slots",
    }
    if reason == "next":
        return f"{subject} is due, and {words}", None
    return f"{subject} waits {words}", remedies[reason]


def run_facts(run: RunRecord, speaker: Speaker, before: RunRecord | None = None) -> Iterator[Fact]:
    """Yield what happened to a run. ``before`` is the run whose success started it, if it was read."""
    if is_after_success(run):
        yield _success_fact(run, speaker, before)
    by = f" by {run.fired_by}" if run.fired_by else ""
    how = {"tick": f"fired{by}", "backfill": "added by a backfill"}.get(run.cause, "enqueued")
    yield speaker.fact(how, run.created_at)
    expiry = expires_at(run)
    if expiry is not None and run.state in ACTIVE_STATES:
        yield speaker.fact("expires, unless it has started", expiry)
    if run.unique_key is not None:
        yield speaker.fact(f"unique: {run.unique_key}")
    if run.coalesced:
        yield speaker.fact(f"it stands for {count(run.coalesced, 'earlier tick')}, too")
    ended = ended_attempts(run)
    for attempt in ended[-_MOST_ATTEMPTS:]:
        error = f": {error_line(attempt.error)}" if attempt.error else ""
        on = f" on {attempt.worker}" if attempt.worker else ""
        yield speaker.fact(f"attempt {attempt.number}{on} {attempt.outcome}{error}", attempt.ended_at)
    if is_begun(run):
        yield speaker.fact("it began", run.started_at)
    elif run.state == "running":
        yield speaker.fact(f"attempt {run.attempt} started on {run.worker}", run.started_at)


def _success_fact(run: RunRecord, speaker: Speaker, before: RunRecord | None) -> Fact:
    """Return which success started a run, and which tick it had."""
    name = predecessor_schedule(run) if before is None else before.schedule
    started = "a success of another schedule" if name is None else f"the success of {name}"
    known = predecessor_run(run)
    which = "" if known is None else f", run {known}"
    tick = "" if run.tick is None else f", tick {speaker.time(run.tick)}"
    return speaker.fact(f"started by {started}{which}{tick}", None if before is None else before.finished_at)


def _took(run: RunRecord) -> str:
    if run.started_at is None or run.finished_at is None or (run.worker is None and not is_begun(run)):
        return ""
    return f" in {measured(run.finished_at - run.started_at)}"


def _late(run: RunRecord) -> str:
    """Return how late the first attempt started; nothing if it was retried, or not late."""
    is_first = run.attempt == 1 or is_begun(run)
    if run.started_at is None or not is_first or run.started_at - run.scheduled_at < 1_000:
        return ""
    return f"; it started {measured(run.started_at - run.scheduled_at)} late"
