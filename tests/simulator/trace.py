"""The trace of a simulation, line by line, formatted only when it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from evenbeat.core.instants import Instant, write_instant
from evenbeat.core.records import RunRecord, ScheduleRecord, Transition, Version
from evenbeat.rules.firing import Planned
from evenbeat.stores.base import Claim, Claimed, Fired, Lost, Page, RunQuery, ScheduleQuery, Write, Written


class Line(NamedTuple):
    at: Instant
    node: str
    command: str
    details: tuple[object, ...]

    def __str__(self) -> str:
        words = " ".join(describe(detail) for detail in self.details)
        return f"{write_instant(self.at)[11:-1]}  {self.node:<9} {self.command:<26} {words}".rstrip()


class Trace:
    """The lines of one simulation."""

    def __init__(self, echo: Callable[[str], None] | None = None) -> None:
        self.lines: list[Line] = []
        self._echo = echo

    def add(self, at: Instant, node: str, command: str, *details: object) -> None:
        line = Line(at, node, command, details)
        self.lines.append(line)
        if self._echo is not None:
            self._echo(str(line))

    def tail(self, count: int, about: str | None = None) -> list[str]:
        """Return the last lines; those that mention ``about``, if it is given."""
        found: list[str] = []
        for line in reversed(self.lines):
            text = str(line)
            if about is None or about in text:
                found.append(text)
                if len(found) == count:
                    break
        return found[::-1]


def describe(value: object) -> str:
    """Describe a record in a few words."""
    match value:
        case str():
            return value
        case RunRecord():
            return f"{value.id}#{value.attempt}:{value.state}"
        case ScheduleRecord():
            return _schedule(value)
        case Planned():
            parts = [_schedule(value.schedule)]
            parts += [f"+run {run.id}" for run in value.runs]
            parts += [
                f"+{row.count} {row.reason} {_time(row.first)}..{_time(row.last)}" for row in value.skipped
            ]
            parts += [f"cancel {run}" for run in value.cancels]
            parts += [f"+record {record.kind} {record.key}" for record in value.records]
            return " ".join(parts)
        case Write():
            expect = "none" if value.expect is None else _version(value.expect)
            return f"[expect {expect}: {describe(value.planned)}]"
        case Written():
            return "accepted" if value.accepted else f"REFUSED, is {describe(value.current)}"
        case Fired():
            return describe(value.planned) if value.planned else "nothing due"
        case Transition():
            state = "" if not isinstance(value.state, str) else f" to {value.state}"
            more = "".join(f" with {describe(end)}" for end in value.ends)
            more += "".join(f" +run {run.id}" for run in value.adds)
            return f"[{value.run}#{value.attempt}{state} token {value.token}{more}]"
        case Claim():
            return f"up to {value.limit}, token {value.token}, now {_time(value.now)}"
        case Claimed():
            later = "" if value.next_due is None else f", next {_time(value.next_due)}"
            return f"{describe(value.runs)}{later}"
        case Lost():
            return describe(value.runs)
        case ScheduleQuery():
            return value.name or "all"
        case RunQuery():
            chosen = value.ids or (value.schedule or "", *(value.states or ()))
            return " ".join(word for word in chosen if word)
        case int() if value > 1 << 32:
            return _time(value)
        case Page():
            return describe(value.items)
        case tuple() | list():
            return ", ".join(describe(item) for item in value) if value else "none"
        case _ if callable(value):
            return "plan"
        case _:
            return repr(value)


def _schedule(schedule: ScheduleRecord) -> str:
    tick = "-" if schedule.next_tick is None else _time(schedule.next_tick)
    wake = "-" if schedule.wake_at is None else _time(schedule.wake_at)
    return f"{schedule.name} v{_version(schedule.version)} {schedule.state} next {tick} wake {wake}"


def _version(version: Version) -> str:
    return f"{version.generation}.{version.revision}.{version.fire_seq}"


def _time(instant: Instant) -> str:
    return write_instant(instant)[11:-1]
