"""A flow as an SVG picture: one file without scripts, for light and dark pages. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple
from unicodedata import east_asian_width

from evenbeat.core.flows import FlowInfo, FlowRun, FlowStepInfo, FlowStepRun
from evenbeat.observe.flow_edges import Edge, drawn_edges
from evenbeat.observe.flow_layout import Box, layout
from evenbeat.observe.flow_words import flow_words, kind_words, problem_words, state_line

# The control characters, surrogates and non-characters that XML does not allow.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Pixels: of a character, a line, the space in a box, around the picture, and the frame behind a map.
_CHAR, _LINE, _PADDING, _MARGIN, _BEHIND = 7.3, 17, 10, 16, 4
_LONGEST = 36
_LEGEND = 30

_STYLE = """\
.evenbeat-flow{--ink:#1f2328;--dim:#59636e;--page:#fff;--box:#f6f8fa;--line:#8c959f;--succeeded:#1a7f37;
--failed:#cf222e;--running:#0969da;--cancelled:#9a6700;font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,
"DejaVu Sans Mono",monospace}
@media (prefers-color-scheme:dark){.evenbeat-flow{--ink:#e6edf3;--dim:#9198a1;--page:#0d1117;--box:#161b22;
--line:#6e7681;--succeeded:#3fb950;--failed:#f85149;--running:#4493f8;--cancelled:#d29922}}
.evenbeat-flow text{fill:var(--ink)}
.evenbeat-flow .page{fill:var(--page)}
.evenbeat-flow .box{fill:var(--box);stroke:var(--line);stroke-width:1.25}
.evenbeat-flow .edge{fill:none;stroke:var(--line);stroke-width:1.5}
.evenbeat-flow .head{fill:var(--line)}
.evenbeat-flow .no-data{stroke-dasharray:5 4}
.evenbeat-flow .name{font-weight:600}
.evenbeat-flow .dim{fill:var(--dim)}
.evenbeat-flow .problem{fill:var(--failed)}
"""
_ARROW_HEAD = (
    '<defs><marker id="evenbeat-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
    'markerHeight="7" orient="auto"><path class="head" d="M0 0L8 4L0 8z"/></marker></defs>'
)
_COLOURED = ("succeeded", "failed", "running", "cancelled")
_STATE_STYLE = "".join(
    f".evenbeat-flow .{state} .box{{stroke:var(--{state});stroke-width:2}}"
    f".evenbeat-flow .{state} .state{{fill:var(--{state})}}\n"
    for state in _COLOURED
)


class _Line(NamedTuple):
    text: str
    style: str


def svg(flow: FlowInfo, run: FlowRun | None = None) -> str:
    """Return a flow, or a run of it with the state, duration and error of each step, as an SVG document.

    An edge is solid if the later step gets the result of the earlier one, else dashed. A map has a second
    frame behind it. States have a sign and a word, not only a colour.
    """
    states = {step.name: step for step in run.steps} if run is not None else {}
    texts = [list(_texts(step, states.get(step.name))) for step in flow.steps]
    edges = drawn_edges(flow)
    placed = layout([_size(lines) for lines in texts], edges)
    has_legend = any(not edge.has_data for edge in edges)
    width = round(placed.width + 2 * _MARGIN + _BEHIND, 1)
    if has_legend:
        width = max(width, 420.0)
    height = round(placed.height + 2 * _MARGIN + _BEHIND + (_LEGEND if has_legend else 0), 1)
    words = _text(flow_words(flow, run))
    size = f'width="{width:g}" height="{height:g}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="evenbeat-flow" role="img" aria-label="{words}"',
        f'{size} viewBox="0 0 {width:g} {height:g}">',
        f"<title>{words}</title>",
        f"<style>{_STYLE}{_STATE_STYLE if run is not None else ''}</style>",
        _ARROW_HEAD,
        f'<rect class="page" {size}/>',
        f'<g transform="translate({_MARGIN} {_MARGIN + _BEHIND})">',
        *(_edge(flow, edge, route) for edge, route in zip(edges, placed.routes, strict=True)),
        *(
            part
            for step, lines, box in zip(flow.steps, texts, placed.boxes, strict=True)
            for part in _box(step, states.get(step.name), lines, box)
        ),
        "</g>",
        *(_legend(height - _MARGIN) if has_legend else ()),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _texts(step: FlowStepInfo, run: FlowStepRun | None) -> Iterator[_Line]:
    yield _Line(step.name, "name")
    notes = ", ".join(kind_words(step, run))
    task = "" if step.task == step.name else step.task
    if notes or task:
        yield _Line(", ".join(filter(None, (task, notes))), "dim")
    if run is not None:
        yield _Line(state_line(run), "state")
        if problem := problem_words(run):
            yield _Line(problem, "problem" if run.state == "failed" else "dim")


def _size(lines: Sequence[_Line]) -> tuple[float, float]:
    widest = max(min(_cells(line.text), _LONGEST) for line in lines)
    return round(widest * _CHAR + 2 * _PADDING, 1), len(lines) * _LINE + 2 * _PADDING - 4


def _box(step: FlowStepInfo, run: FlowStepRun | None, lines: Sequence[_Line], box: Box) -> Iterator[str]:
    state = "" if run is None else f" {run.state}"
    whole = "\n".join(line.text for line in lines)
    yield f'<g class="step{state}"><title>{_text(whole)}</title>'
    if step.is_map:
        yield _frame(box._replace(x=box.x + _BEHIND, y=box.y - _BEHIND))
    yield _frame(box)
    for number, line in enumerate(lines):
        y = box.y + _PADDING + (number + 0.72) * _LINE - 2
        place = f'x="{box.x + _PADDING:g}" y="{y:.1f}"'
        yield f'<text class="{line.style}" {place}>{_text(_cut(line.text))}</text>'
    yield "</g>"


def _frame(box: Box) -> str:
    size = f'width="{box.width:g}" height="{box.height:g}"'
    return f'<rect class="box" x="{box.x:g}" y="{box.y:.1f}" {size} rx="6"/>'


def _edge(flow: FlowInfo, edge: Edge, route: Sequence[tuple[float, float]]) -> str:
    path = f"M{route[0][0]:g} {route[0][1]:g}"
    for (x, y), (next_x, next_y) in pairwise(route):
        middle = (x + next_x) / 2
        is_straight = y == next_y
        path += (
            f"L{next_x:g} {next_y:g}"
            if is_straight
            else f"C{middle:g} {y:g} {middle:g} {next_y:g} {next_x:g} {next_y:g}"
        )
    source, target = flow.steps[edge.source].name, flow.steps[edge.target].name
    words = "gets its result" if edge.has_data else "waits for it"
    style = "edge" if edge.has_data else "edge no-data"
    return (
        f'<path class="{style}" marker-end="url(#evenbeat-head)" d="{path}">'
        f"<title>{_text(f'{source} → {target}: {target} {words}')}</title></path>"
    )


def _legend(y: float) -> Iterator[str]:
    """Yield what solid and dashed edges mean."""
    for x, style, words in (
        (_MARGIN, "edge", "gets the result"),
        (_MARGIN + 180, "edge no-data", "only waits"),
    ):
        yield f'<path class="{style}" d="M{x} {y - 4:g}h34"/>'
        yield f'<text class="dim" x="{x + 42}" y="{y:g}">{words}</text>'


def _cut(text: str) -> str:
    """Return the text in one line, and at most as long as a box is wide; the whole one is its title."""
    line = " ".join(text.split())
    if _cells(line) <= _LONGEST:
        return line
    while _cells(line) > _LONGEST - 1:
        line = line[:-1]
    return f"{line}…"


def _cells(text: str) -> int:
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def _text(text: str) -> str:
    """Return a text for XML, in ASCII: whoever writes the document to a file need not name an encoding."""
    clean = escape(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text))
    return clean.encode("ascii", "xmlcharrefreplace").decode()
