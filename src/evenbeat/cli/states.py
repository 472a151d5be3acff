"""States, results and reasons in words and colours."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from evenbeat.cli.layout import Cell
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.phrases import one_line
from evenbeat.core.instants import to_ms
from evenbeat.core.records import AttemptOutcome, RunState
from evenbeat.core.results import RecentRun, Run, RunWait, Schedule, ScheduleStats, SkippedTicks
from evenbeat.observe.phrases import count, measured
from evenbeat.observe.reasons import skip_reason, wait_reason
from evenbeat.rules.calendars import bare_trigger
from evenbeat.triggers import Cron, Trigger, parse_trigger

if TYPE_CHECKING:
    from rich.text import Text

STYLES = {
    "active": "green",
    "paused": "yellow",
    "finished": "dim",
    "deleted": "dim",
    "queued": "cyan",
    "running": "blue",
    "succeeded": "green",
    "failed": "bold red",
    "cancelled": "yellow",
}

MARKS: dict[RunState, str] = {
    "queued": ".",
    "running": ">",
    "succeeded": "|",
    "failed": "x",
    "cancelled": "-",
}

OUTCOMES: dict[AttemptOutcome, str] = {
    "succeeded": STYLES["succeeded"],
    "failed": STYLES["failed"],
    "cancelled": STYLES["cancelled"],
    "lost": STYLES["failed"],
    "handed back": STYLES["cancelled"],
}


def priority_words(item: Schedule | Run) -> str:
    """Return ``8 (high)``, or ``7``, which has no name."""
    return f"{item.priority}" + ("" if item.priority_name is None else f" ({item.priority_name})")


def schedule_state(schedule: Schedule, local: LocalTime) -> Cell:
    """Return ``paused until Tue 09:00: migration``."""
    if schedule.damage:
        return "unreadable", STYLES["failed"]
    words: str = schedule.state
    if schedule.state == "paused":
        if schedule.paused_until is not None:
            words += f" until {local.near(schedule.paused_until)}"
        if schedule.pause_note:
            words += f": {one_line(schedule.pause_note)}"
    elif schedule.last_error:
        return "stuck", STYLES["failed"]
    return words, STYLES[schedule.state]


def run_state(run: Run) -> Cell:
    if run.state == "running" and run.cancel_requested:
        return "stopping", STYLES["cancelled"]
    if run.is_retrying:
        return "retrying", STYLES["cancelled"]
    return run.state, STYLES[run.state]


def recent_strip(runs: Iterable[RecentRun]) -> Text:
    """Return a character for each run, by its state."""
    from rich.text import Text

    strip = Text(no_wrap=True)
    for run in runs:
        strip.append(MARKS[run.state], style=STYLES[run.state])
    return strip


def next_run(schedule: Schedule, local: LocalTime) -> tuple[Cell, Cell]:
    """Return when it runs next, and how far away that is; both empty without a next run."""
    moment = schedule.next_run
    waits = schedule.state == "paused" and schedule.paused_until is None
    if moment is None or waits or schedule.damage:
        return "", ""
    if schedule.paused_until is not None and schedule.paused_until > moment:
        return "", ""  # its next tick is known when the pause ends
    if schedule.is_waiting:
        return local.near(moment), ("waits for a run to end", "yellow")
    if schedule.catch_up_at is not None:
        left = count(schedule.catch_up_left, "tick")
        return local.near(schedule.catch_up_at), (f"catching up, {left} left", "yellow")
    overdue = local.away(moment).endswith("ago")
    return local.near(moment), (local.away(moment), "yellow" if overdue else "cyan")


def last_result(history: ScheduleStats, local: LocalTime) -> Cell:
    """Return ``ok 3 min ago``."""
    if history.last_run is None:
        return ""
    if history.last_run == history.last_failure:
        word, style = "failed", STYLES["failed"]
    elif history.last_run == history.last_success:
        word, style = "ok", STYLES["succeeded"]
    else:
        word, style = "cancelled", STYLES["cancelled"]
    return f"{word} {local.ago(history.last_run)}", style


def lateness(run: Run) -> Cell:
    """Return how late the run started; a second or more is coloured."""
    # Not known of a run that was retried.
    if run.lateness is None:
        return ""
    return measured(run.lateness), "yellow" if run.lateness >= timedelta(seconds=1) else ""


def elapsed(since: datetime, local: LocalTime) -> timedelta:
    """Return the time since a moment."""
    return timedelta(milliseconds=max(0, local.now - to_ms(since)))


def duration(run: Run, local: LocalTime) -> Cell:
    """Return how long the latest attempt took, or has been running."""
    if run.state == "running" and run.started_at is not None:
        return measured(elapsed(run.started_at, local)), STYLES["running"]
    return "" if run.duration is None else measured(run.duration)


def reason(row: SkippedTicks, schedule: Schedule) -> str:
    """Return why the ticks of a row of the ledger did not run."""
    return skip_reason(row.reason, row.count, schedule.overlap)


def waiting(run: Run, wait: RunWait, local: LocalTime) -> str:
    """Return why a queued run has not started yet."""
    words = wait_reason(wait.reason, run.task, run.queue, wait.nodes)
    if wait.limit is not None:
        words = f"{words} {wait.limit}" + ("" if wait.until is None else f", until {local.full(wait.until)}")
    if wait.reason == "unfit" and wait.until is not None:
        words = f"until {local.full(wait.until)}, {local.away(wait.until)}, {words}"
    if wait.until is not None and not wait.nodes:
        words += "; now no live node could take it"
    return words


def bound(schedule: Schedule) -> Trigger:
    """Return the trigger of a schedule, with ``H`` resolved by the schedule's name."""
    trigger = parse_trigger(schedule.trigger)
    is_cron = isinstance(bare_trigger(trigger), Cron)
    return trigger.bind(schedule.name, 0) if is_cron else trigger
