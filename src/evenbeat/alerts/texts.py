"""The texts of announcements: what somebody reads on a phone at night.

The title says what happened to which job. The lines say it in a sentence, then the error, since when, the
last success and why; the last line is the link. Everything that comes from users or from their programs is
on one line, of bounded length, and with its secrets masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Literal
from urllib.parse import quote

from evenbeat.core.alerts import Announcement, Message, SubjectKind
from evenbeat.core.instants import FIRST, LAST, Instant, from_ms
from evenbeat.core.masking import masked_text
from evenbeat.observe.phrases import measured, span, utc_time
from evenbeat.rules.alert_records import DEFAULT_TENANT, Signal, StoredIncident

LONGEST_TITLE, LONGEST_LINE = 200, 1_000

# Control characters, and those that turn the direction of a text or are not visible.
_NOT_VISIBLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+"
)
_TITLES = {
    "failed": "Failed",
    "failing": "Failing",
    "late": "Late",
    "missed": "Missed",
    "stuck": "Stuck",
    "queue": "Queue is growing",
    "no_node": "No node",
    "node_lost": "Node lost",
    "store_unsafe": "Store is unsafe",
}
_ENDS = {
    "failed": "A run succeeded.",
    "failing": "A run succeeded.",
    "late": "The schedule is on time again.",
    "missed": "A tick fired again.",
    "stuck": "The attempt has ended.",
    "queue": "The queue is no longer growing.",
    "no_node": "A node takes it again.",
    "node_lost": "The node is no longer missing.",
    "store_unsafe": "The settings of the server are safe again.",
}
_FAILURES = ("failed", "failing")
_SMALL_WORDS = ("a", "an", "the", "no", "it", "its", "this", "more")
_OUTCOMES: dict[str, Literal["succeeded", "failed", "cancelled"]] = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "cancelled",
}


def incident_message(
    incident: StoredIncident, announcement: Announcement, delivery: str, link_base: str | None
) -> Message:
    """Return the announcement of an incident: that it began, got worse, or ended."""
    error, why = _line_or_none(incident.error), _line_or_none(incident.why)
    link = _incident_link(incident, announcement, link_base)
    is_over = announcement == "recovered"
    if is_over:
        at = incident.changed_at if incident.closed_at is None else incident.closed_at
    else:
        at = incident.opened_at if announcement == "opened" else incident.changed_at
    lines = [*_incident_lines(incident, is_over, at), link or ""]
    return Message(
        id=delivery,
        announcement=announcement,
        title=_incident_title(incident, announcement),
        lines=tuple(filter(None, lines)),
        at=_moment(at),
        link=link,
        incident=incident.id,
        rule=incident.rule,
        condition=incident.condition,
        tenant=incident.tenant,
        subject_kind=incident.subject_kind,
        subject=incident.subject,
        schedule=incident.schedule,
        task=incident.task,
        run=incident.run,
        tick=None if incident.tick is None else _moment(incident.tick),
        failures=incident.failures or None,
        last_success=None if incident.last_success is None else _moment(incident.last_success),
        error=error,
        why=why,
    )


def run_message(signal: Signal, trigger: str | None, delivery: str, link_base: str | None) -> Message:
    """Return the announcement of a run that ended, for the condition ``runs``."""
    name = signal.schedule or signal.task
    kind: SubjectKind = "task" if signal.schedule is None else "schedule"
    error = _line_or_none(signal.error)
    link = _link(link_base, "runs", signal.tenant, signal.run)
    took = "" if signal.took is None else f" after {measured(signal.took)}"
    lines = [
        f"The run {signal.kind}{took}.",
        "" if error is None else f"Error: {error}",
        *_identity(kind, name, signal.tenant, signal.tick),
        "" if signal.run is None else f"Run: {one_line(signal.run, 400)}",
        link or "",
    ]
    return Message(
        id=delivery,
        announcement="run",
        title=_title(signal.kind.capitalize(), name, signal.tenant),
        lines=tuple(filter(None, lines)),
        at=_moment(signal.at),
        link=link,
        tenant=signal.tenant,
        subject_kind=kind,
        subject=name,
        schedule=signal.schedule,
        task=signal.task,
        run=signal.run,
        tick=None if signal.tick is None else _moment(signal.tick),
        error=error,
        outcome=_OUTCOMES.get(signal.kind),
        duration=None if signal.took is None else timedelta(milliseconds=signal.took),
        trigger=trigger,
    )


def test_message(channel: str, delivery: str, at: Instant) -> Message:
    """Return what ``evenbeat alerts test`` sends."""
    name = one_line(channel, 128)
    return Message(
        id=delivery,
        announcement="test",
        title=_title("Test of channel", name, None),
        lines=(
            f'This is a test: alerts on the channel "{name}" arrive here.',
            f"Sent: {utc_time(at)}",
            "Nothing is wrong.",
        ),
        at=_moment(at),
        link=None,
    )


def one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """Return a text on one line, without control characters and secrets, cut at ``longest`` characters."""
    # Far more than is shown, so that a secret at the edge is masked, but not a text of megabytes.
    line = masked_text(" ".join(_NOT_VISIBLE.sub(" ", text[: longest * 4]).split()))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _line_or_none(text: str | None) -> str | None:
    return (one_line(text) or None) if text else None


def _incident_title(incident: StoredIncident, announcement: Announcement) -> str:
    kind = _kind(incident)
    words = _TITLES.get(kind, kind.capitalize())
    if announcement == "recovered":
        words = "Recovered"
    elif kind in _FAILURES and incident.failures > 1:
        words = f"Failed {incident.failures:,} times in a row"
    elif incident.subject_kind == "store":
        return words
    name = incident.schedule or incident.subject
    if incident.subject_kind == "store":
        name = "the store"
    elif incident.subject_kind == "run" and incident.schedule is None:
        name = incident.task or incident.subject
    return _title(words, name, incident.tenant)


def _kind(incident: StoredIncident) -> str:
    return incident.condition.partition(":")[0]


def _title(words: str, name: str, tenant: str | None) -> str:
    of_tenant = "" if tenant in (None, DEFAULT_TENANT) else f" (tenant {tenant})"
    return one_line(f"{words}: {name}{of_tenant}", LONGEST_TITLE)


def _incident_lines(incident: StoredIncident, is_over: bool, at: Instant) -> Iterator[str]:
    kind = _kind(incident)
    error, why = _line_or_none(incident.error), _line_or_none(incident.why)
    if is_over:
        yield _ENDS.get(kind, "It is over.")
        yield f"Lasted: {_age(at - incident.opened_at)}, since {utc_time(incident.opened_at)}"
        yield f"Before: {one_line(incident.reason)}"
        yield "" if error is None else f"Last error: {error}"
    else:
        yield _sentence(incident.reason)
        yield "" if error is None else f"Error: {error}"
        yield f"Since: {utc_time(incident.opened_at)}"
        if incident.last_success is not None:
            age = _age(at - incident.last_success)
            yield f"Last success: {utc_time(incident.last_success)}, {age} earlier"
        elif kind in _FAILURES:
            yield "Last success: none on record"
        yield "" if why is None else f"Why: {_without(error, why)}"
    subject: SubjectKind = incident.subject_kind if incident.schedule is None else "schedule"
    name = incident.schedule or incident.subject
    first = "First failed " if incident.failures > 1 else ""
    yield from _identity(subject, name, incident.tenant, incident.tick, first)
    if incident.run is not None and subject != "run":
        yield _labelled(f"{first}run", one_line(incident.run, 400))


def _identity(
    kind: SubjectKind, name: str, tenant: str | None, tick: Instant | None, first: str = ""
) -> Iterator[str]:
    """Yield the lines that say which schedule, task, queue or node it is about."""
    if kind != "store":
        of_tenant = "" if tenant in (None, DEFAULT_TENANT) else f" of tenant {tenant}"
        yield _labelled(kind, one_line(f"{name}{of_tenant}"))
    if tick is not None:
        yield _labelled(f"{first}tick", utc_time(tick))


def _labelled(label: str, text: str) -> str:
    return f"{label[0].upper()}{label[1:]}: {text}"


def _sentence(text: str) -> str:
    """Return a text with a dot, and with a capital letter unless it begins with a name."""
    line = one_line(text)
    if line.partition(" ")[0] in _SMALL_WORDS:
        line = line[0].upper() + line[1:]
    return line if not line or line[-1] in ".!?…" else f"{line}."


def _without(error: str | None, why: str) -> str:
    """Return why without the error at its end, which has a line of its own."""
    return why if error is None else why.removesuffix(f": {error}")


def _age(milliseconds: int) -> str:
    """Return a length of time, in whole seconds if it has any."""
    length = max(0, milliseconds)
    return span(length if length < 1000 else length - length % 1000)


def _moment(instant: Instant) -> datetime:
    # An instant that was edited by hand may lie outside the calendar.
    return from_ms(min(max(instant, FIRST), LAST))


def _incident_link(incident: StoredIncident, announcement: Announcement, link_base: str | None) -> str | None:
    # Of several failures, the run is the first, and the last is of more interest.
    if incident.run is not None and announcement != "recovered" and incident.failures < 2:
        return _link(link_base, "runs", incident.tenant or DEFAULT_TENANT, incident.run)
    if incident.schedule is not None:
        return _link(link_base, "schedules", incident.tenant or DEFAULT_TENANT, incident.schedule)
    if incident.subject_kind == "queue":
        return _link(link_base, "queues")
    if incident.subject_kind == "node":
        return _link(link_base, "nodes")
    return None


def _link(link_base: str | None, *page: str | None) -> str | None:
    """Return the URL of a page of the dashboard; None if its address or a part of the page is not known."""
    parts = [quote(part, safe="", errors="replace") for part in page if part is not None]
    if link_base is None or len(parts) < len(page):
        return None
    return f"{link_base.rstrip('/')}/#/{'/'.join(parts)}"
