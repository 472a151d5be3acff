"""Drawings of flows: lanes in a terminal, Mermaid, SVG."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat.core.flows import FlowInfo, FlowStepInfo
from evenbeat.observe.flow_edges import Edge, drawn_edges
from evenbeat.observe.flow_lanes import MARK, lane_rows
from evenbeat.observe.flow_layout import layout
from evenbeat.observe.flow_mermaid import mermaid
from evenbeat.observe.flow_svg import svg
from evenbeat.observe.flow_words import ASCII_SIGNS, SIGNS
from evenbeat.rules.flow_parts import STEP_STATES
from tests.unit.drawn_flows import DIAMOND, EXAMPLE, EXAMPLE_RUN, flow, flow_run, step

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = (
    "<script>alert(1)</script>",
    '"]; click s0 "javascript:alert(1)"',
    "a\n    b --> c",
    "`**x**`",
    "#quot;",
    "%%{init: {}}%%",
    "a&b]]>",
    "\x00\x1b[2J\ud800\ufffe",
    "…" * 100,
    "漢字" * 30,
)


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314  # made here


@st.composite
def flows(draw: st.DrawFn, most: int = 14) -> FlowInfo:
    steps: list[FlowStepInfo] = []
    for at in range(draw(st.integers(1, most))):
        names = [each.name for each in steps]
        after = draw(st.lists(st.sampled_from(names), unique=True, max_size=4)) if names else []
        inputs = [name for name in after if draw(st.booleans())]
        word = draw(st.sampled_from(["", *HOSTILE]))
        steps.append(
            step(
                f"s{at}{word}",
                after,
                inputs=tuple(inputs),
                is_map=draw(st.booleans()),
                kind=draw(st.sampled_from(["task", "flow"])),
                run_if=draw(st.sampled_from(["all_succeeded", "any_failed", "always"])),
            )
        )
    return flow(*steps, name=draw(st.sampled_from(["f", *HOSTILE])))


def before(edges: set[tuple[int, int]], number: int) -> list[set[int]]:
    """Return the steps before each step, directly or not."""
    found: list[set[int]] = [set() for _ in range(number)]
    for at in range(number):
        for source, target in edges:
            if target == at:
                found[at] |= {source} | found[source]
    return found


@given(flows())
def test_every_edge_is_drawn_or_implied_by_those_that_are(drawn: FlowInfo) -> None:
    positions = {each.name: at for at, each in enumerate(drawn.steps)}
    wanted = {(positions[name], at) for at, each in enumerate(drawn.steps) for name in each.after}
    with_data = {(positions[name], at) for at, each in enumerate(drawn.steps) for name in each.inputs}
    edges = drawn_edges(drawn)
    found = {(edge.source, edge.target) for edge in edges}
    assert len(edges) == len(found)
    assert found <= wanted
    assert {(edge.source, edge.target) for edge in edges if edge.has_data} == with_data
    assert before(found, len(positions)) == before(wanted, len(positions))


def traced(number: int, edges: list[Edge], *, ascii_only: bool) -> set[tuple[int, int]]:
    """Return the edges that a reader of the lanes finds."""
    found: set[tuple[int, int]] = set()
    lanes: dict[int, int] = {}
    above = ""
    drawn: list[int] = []
    vertical, horizontal = "|-" if ascii_only else "│─"
    for row in lane_rows(number, edges, ascii_only=ascii_only):
        if row.step is None:
            assert {at for at, char in enumerate(row.lanes) if char == vertical} == set(lanes)
            above = row.lanes
            continue
        drawn.append(row.step)
        own = row.lanes.index(MARK)
        sources = {lanes[own]} if above[own : own + 1] == vertical else set()
        for way in (-1, 1):
            at = own + way
            while 0 <= at < len(row.lanes) and row.lanes[at] != " " and row.lanes[at - way] != " ":
                if row.lanes[at] not in (vertical, horizontal):
                    sources.add(lanes[at])
                elif row.lanes[at] == vertical and row.lanes[at + way : at + way + 1] != horizontal:
                    break  # a lane beside the mark, not crossed by its line
                at += way
        found |= {(source, row.step) for source in sources}
        if row.below[own : own + 1] == vertical:
            lanes[own] = row.step
        above = row.below
        lanes = {at: source for at, source in lanes.items() if above[at : at + 1] == vertical}
    assert drawn == list(range(number))
    return found


@given(flows(), st.booleans())
def test_the_lanes_lead_from_each_step_to_those_that_wait_for_it(drawn: FlowInfo, ascii_only: bool) -> None:
    edges = drawn_edges(drawn)
    wanted = {(edge.source, edge.target) for edge in edges}
    assert traced(len(drawn.steps), edges, ascii_only=ascii_only) == wanted


def lanes_of(drawn: FlowInfo, *, ascii_only: bool = False) -> list[str]:
    rows = lane_rows(len(drawn.steps), drawn_edges(drawn), ascii_only=ascii_only)
    return [
        row.lanes.replace(MARK, "*") + ("" if row.step is None else f" {drawn.steps[row.step].name}")
        for row in rows
    ]


def test_a_diamond_and_the_example_as_lanes() -> None:
    assert lanes_of(DIAMOND) == ["* a", "├─* b", "* │ c", "│ │", "*─╯ d"]
    assert lanes_of(DIAMOND, ascii_only=True) == ["* a", "+-* b", "* | c", "| |", "*-+ d"]
    assert lanes_of(EXAMPLE) == [
        "* extract",
        "│",
        "* clean",
        "│",
        "* summarise",
        "│ * check",
        "*─╯ load",
        "│",
        "* notify",
    ]


def test_a_line_that_crosses_a_lane_leaves_it_whole() -> None:
    fan = flow(step("a"), *(step(name, "a") for name in "bcd"), step("e", "bcd"))
    assert lanes_of(fan) == ["* a", "├─* b", "├─│─* c", "* │ │ d", "│ │ │", "*─┴─╯ e"]


@given(st.data(), flows())
def test_boxes_do_not_overlap_and_edges_go_around_them(data: st.DataObject, drawn: FlowInfo) -> None:
    size = st.tuples(st.integers(10, 300), st.integers(10, 90))
    sizes = [data.draw(size) for _ in drawn.steps]
    edges = drawn_edges(drawn)
    placed = layout(sizes, edges)
    for one, other in combinations(placed.boxes, 2):
        beside = one.x + one.width < other.x or other.x + other.width < one.x
        below = one.y + one.height < other.y or other.y + other.height < one.y
        assert beside or below
    for (width, height), box in zip(sizes, placed.boxes, strict=True):
        assert box.width >= width
        assert box.height == height
        assert box.x >= 0
        assert box.y >= -0.1
        assert box.x + box.width <= placed.width
        assert box.y + box.height <= placed.height + 0.1
    for edge, route in zip(edges, placed.routes, strict=True):
        source, target = placed.boxes[edge.source], placed.boxes[edge.target]
        assert route[0][0] == source.x + source.width < route[-1][0] == target.x
        for (x, y), (next_x, next_y) in zip(route[1::2], route[2::2], strict=False):
            # Within a layer it is level, and outside of all boxes.
            assert y == next_y
            inside = [box for box in placed.boxes if x <= box.x < next_x or box.x == x]
            assert not any(box.y < y < box.y + box.height for box in inside)


@given(flows(), st.data())
def test_an_svg_has_every_step_and_edge_as_text_alone(drawn: FlowInfo, data: st.DataObject) -> None:
    states = {
        each.name: {
            "state": data.draw(st.sampled_from(sorted(SIGNS))),
            "error": data.draw(st.sampled_from(HOSTILE)),
        }
        for each in drawn.steps
    }
    run = data.draw(st.sampled_from([None, flow_run(drawn, **states)]))
    text = svg(drawn, run)
    assert text.isascii()
    assert text == svg(drawn, run)
    root = parsed(text)
    elements = {each.tag.removeprefix(SVG) for each in root.iter()}
    assert elements <= {"svg", "title", "style", "defs", "marker", "path", "rect", "g", "text"}
    assert not any(name.startswith("on") or "href" in name for each in root.iter() for name in each.attrib)
    boxes = [each for each in root.iter(f"{SVG}g") if (each.get("class") or "").startswith("step")]
    assert len(boxes) == len(drawn.steps)
    for each, box in zip(drawn.steps, boxes, strict=True):
        title = box.findtext(f"{SVG}title") or ""
        assert title.startswith(each.name.split("<")[0][:2])
        assert len(box.findall(f"{SVG}rect")) == 1 + each.is_map
        if run is not None:
            assert SIGNS[states[each.name]["state"]] in title
            assert states[each.name]["state"].replace("_", " ") in title
    edges = drawn_edges(drawn)
    paths = [each for each in root.iter(f"{SVG}path") if each.get("marker-end")]
    assert ["no-data" not in (each.get("class") or "") for each in paths] == [edge.has_data for edge in edges]


def test_an_svg_names_what_is_special_about_a_step() -> None:
    root = parsed(svg(EXAMPLE, EXAMPLE_RUN))
    titles = [each.text for each in root.iter(f"{SVG}title")]
    assert "run r1 of flow nightly: failed" in titles
    assert "clean\nmap of 10,000\n✓ succeeded, 3 min 5 s" in titles
    assert "load\n✗ failed, 230 ms\nKeyError: 'customer_id'" in titles
    assert "notify\nif any failed\n▶ running" in titles
    assert "check → load: load waits for it" in titles
    assert "summarise → load: load gets its result" in titles
    assert "@media (prefers-color-scheme:dark)" in svg(EXAMPLE)


def test_a_step_that_always_runs_says_so() -> None:
    drawn = flow(step("a"), step("b", "a", inputs=(), run_if="always"))
    assert '    s1["b<br/>runs always"]' in mermaid(drawn).splitlines()


def test_a_picture_without_edges_has_no_legend() -> None:
    assert "only waits" in svg(EXAMPLE)
    assert "only waits" not in svg(flow(step("alone")))


def test_the_example_as_mermaid() -> None:
    assert mermaid(EXAMPLE).splitlines() == [
        "flowchart LR",
        "    %% flow nightly, 6 steps",
        '    s0["extract"]',
        '    s1[["clean<br/>map"]]',
        '    s2["summarise"]',
        '    s3["check"]',
        '    s4["load"]',
        '    s5["notify<br/>if any failed"]',
        "    s0 --> s1",
        "    s1 --> s2",
        "    s2 --> s4",
        "    s3 -.-> s4",
        "    s4 -.-> s5",
    ]
    of_run = mermaid(EXAMPLE, EXAMPLE_RUN).splitlines()
    assert '    s4["load<br/>#10007; failed, 230 ms"]' in of_run
    assert of_run[-6:] == [
        "    classDef succeeded stroke:#1a7f37,stroke-width:2px",
        "    class s0,s1,s2,s3 succeeded",
        "    classDef failed stroke:#cf222e,stroke-width:2px",
        "    class s4 failed",
        "    classDef running stroke:#0969da,stroke-width:2px",
        "    class s5 running",
    ]


@given(flows())
def test_mermaid_has_every_step_and_edge_and_no_name_ends_its_label(drawn: FlowInfo) -> None:
    head, comment, *lines = mermaid(drawn).splitlines()
    assert head == "flowchart LR"
    assert re.fullmatch(r"    %% flow [\w#;.,:/()~@=+ -]*", comment)
    label = r'"[A-Za-z0-9_.,:/()~@=+ #;-]*(<br/>[A-Za-z0-9_.,:/()~@=+ #;-]*)*"'
    steps, edges = lines[: len(drawn.steps)], lines[len(drawn.steps) :]
    for at, line in enumerate(steps):
        assert re.fullmatch(rf"    s{at}(\[{label}\]|\[\[{label}\]\]|\({label}\))", line)
    arrows = {True: "-->", False: "-.->"}
    assert edges == [
        f"    s{edge.source} {arrows[edge.has_data]} s{edge.target}" for edge in drawn_edges(drawn)
    ]


@pytest.mark.parametrize("signs", [SIGNS, ASCII_SIGNS])
def test_every_state_has_a_sign(signs: dict[str, str]) -> None:
    shown = {"running", "queued", *STEP_STATES.values()} - {"open"}
    assert set(signs) == shown
    assert {len(sign) for sign in signs.values()} == {1}
