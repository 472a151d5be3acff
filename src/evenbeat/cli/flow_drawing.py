"""A flow, or a run of one, drawn in a terminal: a line for each step, and lanes to those that wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from evenbeat.cli.layout import styled
from evenbeat.cli.phrases import printable
from evenbeat.cli.states import STYLES
from evenbeat.core.flows import FlowInfo, FlowRun, FlowStepInfo, FlowStepRun
from evenbeat.observe.flow_edges import drawn_edges, layers
from evenbeat.observe.flow_lanes import MARK, LaneRow, lane_rows
from evenbeat.observe.flow_words import (
    ASCII_SIGNS,
    ASCII_STEP_SIGN,
    NAMED,
    SIGNS,
    STEP_SIGN,
    kind_words,
    problem_words,
    progress_words,
    state_word,
    took_words,
    without_data,
)
from evenbeat.observe.phrases import count, some

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

# A flow with more steps, or wider lanes, is a list.
_MOST_DRAWN, _WIDEST_LANES = 40, 24
_MOST_LISTED = 100
_DEEPEST = 10
# Notes that have less room beside the step are below it.
_LEAST_NOTES = 24
_GAP = 2
# The steps of a long list that are shown before all others.
_FIRST = ("failed", "running", "cancelled")
STEP_STYLES = {**STYLES, "waiting": "dim", "not_run": "dim", "not_needed": "dim"}


class FlowDrawing(NamedTuple):
    """A drawing for rich. ``now`` is for the durations of steps that are running."""

    flow: FlowInfo
    run: FlowRun | None = None
    now: datetime | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        signs = _Signs(ascii_only=options.ascii_only)
        rows = self._lanes(ascii_only=options.ascii_only)
        is_list = rows is None
        if rows is None:
            rows = self._list()
        lanes = 0 if is_list else max(len(row.lanes) for row in rows)
        lines = [self._line(row, lanes, signs) for row in rows]
        widths = [max(part.cell_len for part in column) for column in zip(*filter(None, lines), strict=True)]
        used = sum(width + _GAP for width in widths if width)
        if used - _GAP > options.max_width:
            # A long name has the line for itself; the rest is below it.
            widths, used = [widths[0], *(0 for _ in widths[1:])], options.max_width
        for row, parts in zip(rows, lines, strict=True):
            if row.step is None:
                yield Text(row.lanes, style="dim", no_wrap=True)
                continue
            line = Text(no_wrap=True, overflow="fold")
            for part, width in zip(parts, widths, strict=True):
                if width:
                    line.append(part).append(" " * (width + _GAP - part.cell_len))
            notes = self._notes(self.flow.steps[row.step], is_list=is_list)
            below = [part for part, width in zip(parts, widths, strict=True) if part.plain and not width]
            if below:
                notes = Text("  ").join(filter(None, [*below, notes]))
            yield from _noted(line, used, row.below, lanes + 3, notes, options.max_width, console)
        yield from map(Text, self._left_out(len(rows)) if is_list else ())

    def _line(self, row: LaneRow, lanes: int, signs: _Signs) -> list[Text]:
        """Return the parts of a step's line, each of which begins at the same place in all lines."""
        from rich.text import Text

        if row.step is None:
            return []
        step = self.flow.steps[row.step]
        state = self._state(step)
        before, _, after = row.lanes.partition(MARK)
        first = Text.assemble(
            (before, "dim"),
            (signs.of(state), _style(state)),
            (after.ljust(lanes - len(before) - 1), "dim"),
            f" {printable(step.name, keep='')}",
        )
        if self.run is None:
            return [first, styled((printable("" if step.task == step.name else step.task, keep=""), "dim"))]
        if state is None:
            return [first, Text(), Text()]
        return [first, styled((state_word(state), _style(state))), Text(took_words(state, self.now))]

    def _notes(self, step: FlowStepInfo, *, is_list: bool) -> Text:
        state = self._state(step)
        words = list(kind_words(step, state))
        if is_list and step.after:
            words.append(f"after {some(step.after, NAMED)}")
        elif state is None:
            words.append(without_data(step))
        problem = ""
        if state is not None:
            words += progress_words(state)
            problem = problem_words(state)
        text = "; ".join(filter(None, (", ".join(filter(None, words)), problem)))
        is_error = problem and state is not None and state.state == "failed"
        return styled((printable(text, keep=""), "red" if is_error else "dim"))

    def _state(self, step: FlowStepInfo) -> FlowStepRun | None:
        if self.run is None:
            return None
        return next((each for each in self.run.steps if each.name == step.name), None)

    def _lanes(self, *, ascii_only: bool) -> list[LaneRow] | None:
        """Return the lines of a flow with lanes; None if these would be too many, or too wide."""
        number = len(self.flow.steps)
        if number > _MOST_DRAWN:
            return None
        rows = lane_rows(number, drawn_edges(self.flow), ascii_only=ascii_only)
        return rows if max(len(row.lanes) for row in rows) <= _WIDEST_LANES else None

    def _list(self) -> list[LaneRow]:
        """Return the lines of a long list: all steps that failed or are running, and others, in their order,
        indented by what they wait for."""
        number = len(self.flow.steps)
        states = {} if self.run is None else {step.name: step.state for step in self.run.steps}
        first = [at for at, step in enumerate(self.flow.steps) if states.get(step.name) in _FIRST]
        others = sorted(set(range(number)).difference(first))
        depths = layers(number, drawn_edges(self.flow))
        return [
            LaneRow(at, "  " * min(depths[at], _DEEPEST) + MARK, "")
            for at in sorted([*first, *others][:_MOST_LISTED])
        ]

    def _left_out(self, listed: int) -> Iterator[str]:
        left = len(self.flow.steps) - listed
        if left:
            yield f"and {count(left, 'more step')}; --json lists all"


class _Signs(NamedTuple):
    ascii_only: bool

    def of(self, state: FlowStepRun | None) -> str:
        if state is None:
            return ASCII_STEP_SIGN if self.ascii_only else STEP_SIGN
        return (ASCII_SIGNS if self.ascii_only else SIGNS)[state.state]


def _noted(
    line: Text, used: int, below: str, indent: int, notes: Text, width: int, console: Console
) -> Iterator[Text]:
    """Yield the line of a step with its notes beside it, or below it if there is not enough room."""
    from rich.text import Text

    if not notes.plain:
        line.rstrip()
        yield line
        return
    is_beside = width - used >= min(_LEAST_NOTES, notes.cell_len)
    at = used if is_beside else indent
    parts = list(notes.wrap(console, max(width - at, 10)))
    if is_beside:
        line.append(parts.pop(0))
    line.rstrip()
    yield line
    for part in parts:
        part.rstrip()
        yield Text.assemble((below.ljust(at), "dim"), part, no_wrap=True)


def _style(state: FlowStepRun | None) -> str:
    return "" if state is None else STEP_STYLES[state.state]
