"""A flow as a Mermaid flowchart, for pages that draw it: README files, wikis. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evenbeat.core.flows import FlowInfo, FlowRun, FlowStepInfo, FlowStepRun
from evenbeat.observe.flow_edges import drawn_edges
from evenbeat.observe.flow_words import flow_words, kind_words, state_line

# All others may mean something in Mermaid, in Markdown or in HTML.
_UNSAFE = re.compile(r"[^A-Za-z0-9_.,:/()~@=+ -]")
_COLOURS = {"succeeded": "#1a7f37", "failed": "#cf222e", "running": "#0969da", "cancelled": "#9a6700"}


def mermaid(flow: FlowInfo, run: FlowRun | None = None) -> str:
    """Return a flow, or a run of it with the state of each step, as the text of a flowchart.

    An edge without data is dotted; a map has a double frame, a flow within the flow a rounded one.
    """
    return "\n".join(_lines(flow, run)) + "\n"


def _lines(flow: FlowInfo, run: FlowRun | None) -> Iterator[str]:
    states = {step.name: step for step in run.steps} if run is not None else {}
    yield "flowchart LR"
    yield f"    %% {_escaped(flow_words(flow, run))}"
    for at, step in enumerate(flow.steps):
        yield f"    s{at}{_shape(step, _label(step, states.get(step.name)))}"
    for source, target, has_data in drawn_edges(flow):
        yield f"    s{source} {'-->' if has_data else '-.->'} s{target}"
    for state, colour in _COLOURS.items():
        of_state = [
            f"s{at}"
            for at, step in enumerate(flow.steps)
            if step.name in states and states[step.name].state == state
        ]
        if of_state:
            yield f"    classDef {state} stroke:{colour},stroke-width:2px"
            yield f"    class {','.join(of_state)} {state}"


def _label(step: FlowStepInfo, run: FlowStepRun | None) -> str:
    lines = [step.name]
    if step.task != step.name:
        lines.append(step.task)
    lines.append(", ".join(kind_words(step, run)))
    if run is not None:
        lines.append(state_line(run))
    return "<br/>".join(_escaped(line) for line in lines if line)


def _shape(step: FlowStepInfo, label: str) -> str:
    if step.is_map:
        return f'[["{label}"]]'
    return f'("{label}")' if step.kind == "flow" else f'["{label}"]'


def _escaped(text: str) -> str:
    """Return a text with an entity of Mermaid for each character that is not plain."""
    return _UNSAFE.sub(lambda found: f"#{ord(found[0])};", text)
