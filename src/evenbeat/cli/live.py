"""Live output of a node: a line per run, and below them the active runs and the next ticks."""

from __future__ import annotations

import logging
import os
import re
import sys
import textwrap
import threading
import time
from datetime import datetime
from typing import TYPE_CHECKING

from evenbeat.core.instants import Instant, to_ms
from evenbeat.core.json_text import to_json
from evenbeat.errors import StoreUnavailable
from evenbeat.observe.events import Event
from evenbeat.observe.phrases import count, measured
from evenbeat.observe.reasons import skip_reason

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

    from evenbeat.app.scheduler import Scheduler
    from evenbeat.core.results import Run

# Milliseconds. A greater lateness is coloured.
_LATE = 1_000
_MOST_NEXT = 4
# Characters. The column of names grows with them, from the first width to the second.
_NAMES, _WIDEST_NAMES = 12, 20
# Characters. In a pipe, and in a wide terminal, results and errors are cut here.
_LONGEST_WORDS = 60
# Characters. With less room, a result is left out, and an error wraps.
_SHORTEST_WORDS = 12
_READ_EVERY = 5.0


class LiveOutput:
    """Shows the events of a scheduler; without a terminal, only the lines of runs."""

    def __init__(self, app: Scheduler) -> None:
        from rich.console import Console

        self._app = app
        self.console: Console = Console(file=sys.stdout, highlight=False, emoji=False, markup=False)
        self._guard = threading.Lock()
        self._started: dict[str, tuple[Instant, float, str]] = {}
        self._next: dict[str, Instant] = {}
        self._read_at = 0.0
        self._counts = dict.fromkeys(("succeeded", "failed", "retrying", "skipped"), 0)
        self._name_width = _NAMES
        self._live: Live | None = None
        self._stopping = False
        app.on_event(self._show)

    def __enter__(self) -> LiveOutput:
        self._show_logs()
        if self.console.is_terminal:
            from rich.live import Live

            self._live = Live(
                console=self.console, get_renderable=self._status, refresh_per_second=5, transient=True
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def _show_logs(self) -> None:
        """Show the log records of tasks between the lines, and of Evenbeat itself only warnings and
        errors."""
        logging.getLogger("evenbeat").setLevel(logging.WARNING)
        # The lines of runs show the same.
        logging.getLogger("evenbeat.node.worker").setLevel(logging.CRITICAL)
        root = logging.getLogger()
        if root.handlers:
            return  # the app has configured its logs itself
        root.setLevel(logging.INFO)
        root.addHandler(_LogLines(self))

    def write(self, text: str, style: str = "dim") -> None:
        from rich.text import Text

        self.console.print(Text(text, style=style), soft_wrap=not self.console.is_terminal)

    def write_command(self, command: str) -> None:
        """Print a command that people paste, without a line break that would cut it in two."""
        from rich.text import Text

        self.console.print(Text(f"  {command}"), soft_wrap=True)

    # -- lines ---------------------------------------------------------------------------------------------

    def _show(self, event: Event) -> None:
        with self._guard:
            line = self._line(event)
        if line is not None:
            # Wrapped between words in a terminal; whole lines in a pipe.
            self.console.print(line, soft_wrap=not self.console.is_terminal)

    def _line(self, event: Event) -> Text | None:
        if event.kind in self._counts:
            self._counts[event.kind] += event.count
        if event.next_run is not None and event.schedule is not None:
            self._next[event.schedule] = to_ms(event.next_run)
        run = event.run
        if event.kind == "started" and run is not None:
            due = run.run_at if run.failures or run.crashes else run.scheduled_at
            late = max(0, to_ms(event.at) - to_ms(due))
            self._started[run.id] = (late, time.monotonic(), run.task)
            return None
        # A warning in the log has the words of "attention".
        if event.kind in ("fired", "idle", "attention") or event.kind.startswith("node_"):
            return None
        if event.kind == "skipped":
            reason = "" if event.reason is None else f": {skip_reason(event.reason, event.count)}"
            words = f"{count(event.count, 'tick')} not run{reason}"
            return self._row(event.at, "○", "yellow", event.schedule or "", words)
        if run is None:
            return self._row(event.at, "!", "bold red", event.kind.replace("_", " "), event.error or "")
        late, began, _ = self._started.pop(run.id, (0, time.monotonic(), run.task))
        return self._ended(event, late, (time.monotonic() - began) * 1000)

    def _ended(self, event: Event, late: int, took: float) -> Text:
        run = event.run
        assert run is not None
        sign, style, what = _ENDS.get(event.kind, ("·", "dim", event.kind))
        coalesced = f"  (for {count(run.coalesced, 'earlier tick')}, too)" if run.coalesced else ""
        cause = _step_or_cause(run)
        suffix = coalesced + cause
        row = self._row(event.at, sign, style, run.schedule or run.task, "", late)
        if event.kind == "succeeded":
            what = f"took {measured(took if event.duration is None else event.duration)}"
            room = self._room(row, f"{what} → {suffix}")
            result = "" if event.result is None else to_json(event.result)
            if result and room >= min(_SHORTEST_WORDS, len(result)):
                what += f" → {_short(result, room)}"
        elif event.kind == "retrying":
            again = f"; again in {measured(event.delay or 0)}"
            room = max(_SHORTEST_WORDS, self._room(row, again + suffix))
            what = f"{_first_line(event.error, room)}{again}"
        elif event.error:
            room = max(_SHORTEST_WORDS, self._room(row, f"{what}: {suffix}"))
            what += f": {_first_line(event.error, room)}"
        row.append(what, style="red" if style == "red" else "")
        row.append(coalesced, style="yellow")
        row.append(cause, style="dim")
        if event.kind in ("failed", "crashed"):
            row.append(f"\n{'':>11}{_where(event.error)}runs show {run.id}", style="dim")
        return row

    def _room(self, row: Text, others: str) -> int:
        """Return how many characters of a result or an error fit into a line with other words."""
        if not self.console.is_terminal:
            return _LONGEST_WORDS
        return min(_LONGEST_WORDS, self.console.width - row.cell_len - len(others))

    def _row(
        self, at: datetime, sign: str, style: str, name: str, words: str, late: int | None = None
    ) -> Text:
        from rich.text import Text

        self._name_width = max(self._name_width, min(len(name), _WIDEST_NAMES))
        row = Text()
        row.append(f"{at.astimezone():%H:%M:%S} ", style="dim")
        row.append(f"{sign} ", style=style)
        row.append(f"{name:<{self._name_width}} ", style="bold")
        lateness = "" if late is None else f"+{measured(late)}"
        row.append(f"{lateness:>9}  ", style="yellow" if late is not None and late >= _LATE else "dim")
        room = self.console.width - row.cell_len
        if self.console.is_terminal and len(words) > room > _SHORTEST_WORDS:
            words = f"\n{'':>{row.cell_len}}".join(textwrap.wrap(words, room))
        row.append(words, style="red" if style == "red" else "")
        return row

    # -- the lines below -----------------------------------------------------------------------------------

    def _status(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        self._read_next_ticks()
        now = int(time.time() * 1000)
        with self._guard:
            running = [
                f"{task} {measured((time.monotonic() - began) * 1000)}"
                for _, began, task in self._started.values()
            ]
            coming = sorted((tick, name) for name, tick in self._next.items() if tick > now)
            counts = dict(self._counts)
        upcoming = [f"{name} in {measured(tick - now)}" for tick, name in coming[:_MOST_NEXT]]
        done = f"{counts['succeeded']:,} succeeded"
        for kind, words in (("retrying", "tried again"), ("failed", "failed"), ("skipped", "skipped")):
            if counts[kind]:
                done += f" · {counts[kind]:,} {words}"
        lines = [
            ("running", " · ".join(running) or "nothing"),
            ("next", " · ".join(upcoming) or self._without_next()),
            ("so far", f"{done}   (Ctrl-C stops)"),
        ]
        rule = Text("─" * min(78, self.console.width), style="dim")
        rows = [Text.assemble((f"{label:<8} ", "dim"), words, overflow="ellipsis") for label, words in lines]
        for row in rows:
            row.no_wrap = True
        return Group(rule, *rows)

    def _without_next(self) -> str:
        # No tick is read before the start: the app may still prepare its store.
        return "no tick to come" if self._app.is_running else "the jobs have not started yet"

    def _read_next_ticks(self) -> None:
        """Read the next ticks from the store, also of schedules that have not fired since the start."""
        if time.monotonic() - self._read_at < _READ_EVERY or not self._app.is_running:
            return
        self._read_at = time.monotonic()
        try:
            found = self._app.schedules.list(all_tenants=True, limit=1_000)
        except StoreUnavailable:
            return  # the node reports it; an error here would end the lines below for good
        with self._guard:
            self._next = {
                schedule.name: int(schedule.next_run.timestamp() * 1000)
                for schedule in found
                if schedule.next_run is not None and schedule.state == "active"
            }


class _LogLines(logging.Handler):
    """Log records as lines of the live output."""

    def __init__(self, live: LiveOutput) -> None:
        super().__init__()
        self._live = live

    def emit(self, record: logging.LogRecord) -> None:
        try:
            at = datetime.fromtimestamp(record.created)
            loud = record.levelno >= logging.WARNING
            words = f"{at:%H:%M:%S}   {record.levelname.lower()} {record.name}: {self.format(record)}"
            self._live.write(words, "yellow" if loud else "dim")
        except Exception:
            self.handleError(record)


_ENDS = {
    "succeeded": ("●", "green", ""),
    "failed": ("✗", "red", "failed"),
    "retrying": ("↻", "yellow", "failed"),
    "cancelled": ("◌", "magenta", "cancelled"),
    "released": ("↩", "yellow", "handed back"),
    "lost": ("✗", "red", "lost to another worker"),
    "crashed": ("✗", "red", "its process died"),
}


def _step_or_cause(run: Run) -> str:
    if run.flow is not None:
        return "  (step)"
    return {"run_now": "  (by hand)", "enqueue": "  (enqueued)"}.get(run.cause, "")


def _where(error: str | None) -> str:
    """Return ``app.py:12 in greet · ``: the last line of the task's own code in a traceback."""
    places = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', error or "")
    if not places:
        return ""
    file, line, function = places[-1]
    return f"{os.path.basename(file)}:{line} in {function} · "


def _first_line(text: str | None, most: int) -> str:
    return _short((text or "").partition("\n")[0], most)


def _short(text: str, most: int) -> str:
    clean = "".join(char if char.isprintable() else "�" for char in text)
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"
