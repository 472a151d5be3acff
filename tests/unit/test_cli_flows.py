"""``evenbeat flows``, and flows in ``evenbeat runs``: what is printed, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import click
import pytest
from rich.console import Console

from evenbeat import Scheduler
from evenbeat.app.loading import load_app
from evenbeat.cli import flow_runs, progress
from evenbeat.cli.commands.runs import list as runs_list
from evenbeat.cli.flow_drawing import FlowDrawing
from evenbeat.node.flow_resuming import FlowResuming
from evenbeat.node.flows import Begin, End, FlowSettling
from evenbeat.rules import attempts
from evenbeat.rules.flow_parts import flow_part
from evenbeat.rules.flows import graph_records
from evenbeat.tasks.flow import Flow, all_graphs
from tests.unit import cli_store
from tests.unit.cli_store import Clock, answered, claim, failed, printed, run
from tests.unit.drawn_flows import DIAMOND, EXAMPLE, EXAMPLE_RUN, NOW, flow, flow_run, step
from tests.unit.sleeping import replace_sleep

# Fixtures: a store in this folder, and a clock that stands still on a Monday at 08:00 UTC.
app, clock = cli_store.app, cli_store.clock

APP = """\
from evenbeat import Scheduler

app = Scheduler()

@app.task
def extract(day: str) -> list[int]: ...

@app.task
def clean(part: int) -> int: ...

@app.task
def check() -> None: ...

@app.task
def load(parts: list[int]) -> int: ...

@app.task
def notify() -> None: ...

@app.flow
def nightly(day: str = "yesterday"):
    parts = clean.map(extract.step(day=day))
    done = load.step(parts, after=[check.step()])
    notify.step(run_if="any_failed")
    return done

@app.flow
def weekly():
    notify.step(after=[nightly.step()])
"""
DRAWN = """\
nightly

steps    5
result   that of load
version  {version}

●   extract
│ ● check
● │ clean    map
│ │
●─╯ load     after check
│
●   notify   if any failed
"""


@pytest.fixture(autouse=True)
def code(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    Path("flow_jobs.py").write_text(APP)
    monkeypatch.delitem(sys.modules, "flow_jobs", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("EVENBEAT_APP", "flow_jobs.py")
    monkeypatch.setenv("EVENBEAT_STORE", "sqlite:///evenbeat.db")
    return load_app("flow_jobs.py")


class Node:
    """Executes runs by hand: a call begins the flows, and ends the steps, that are due."""

    def __init__(self, app: Scheduler, code: Scheduler) -> None:
        self.app = app
        self.tasks = code.tasks
        self.results = {"extract": "[1, 2, 3]", "clean": "1", "load": "6"}
        self.errors: dict[str, str] = {}

    def turn(self) -> bool:
        store = self.app.store
        settling = FlowSettling(store, "node-1")
        held = claim(self.app)
        for each in held:
            task = self.tasks.get(each.task)
            if flow_part(each).state is not None:
                again = FlowResuming(settling.rows).go_on(each, store.now())
                assert again is not None
                assert store.settle_runs([again]) == [True]
                continue
            if isinstance(task, Flow):
                begin = Begin(each, task.graph, graph_records(all_graphs(task)))
                assert settling.settle((), store.now(), [begin]).answers == [True]
                continue
            error = self.errors.get(each.task)
            token = f"{each.id}-{each.attempt}"
            end = (
                attempts.succeeded(each, self.results.get(each.task, "null"), store.now(), token)
                if error is None
                else attempts.failed(each, error, store.now(), token)
            )
            assert settling.settle([End(each, end)], store.now()).answers == [True]
        return bool(held)

    def work(self) -> None:
        while self.turn():
            pass


@pytest.fixture
def node(app: Scheduler, code: Scheduler) -> Node:
    return Node(app, code)


def test_flows_are_listed_and_drawn_without_a_store(code: Scheduler) -> None:
    heading, _, *lines = printed("flows", "list").splitlines()
    assert heading.split() == ["flow", "steps", "result", "version"]
    version = code.flows.get("nightly").version
    assert lines[0].split() == [
        "nightly",
        "5",
        *["extract,", "check,", "clean,", "load", "and", "1", "more", "load"],
        version[:8],
    ]
    assert lines[1].startswith("weekly       2  nightly, notify")
    assert printed("flows", "show", "nightly") == DRAWN.format(version=version)
    document = answered("flows", "show", "nightly")["flow"]
    assert [each["name"] for each in document["steps"]] == ["extract", "check", "clean", "load", "notify"]
    assert [each["name"] for each in answered("flows", "list")["flows"]] == ["nightly", "weekly"]
    assert not Path("evenbeat.db").exists()


def test_a_flow_is_drawn_as_mermaid_and_svg() -> None:
    assert printed("flows", "show", "weekly", "--mermaid").splitlines()[0] == "flowchart LR"
    text = printed("flows", "show", "weekly", "--svg")
    assert ET.fromstring(text).tag.endswith("svg")  # noqa: S314  # made here
    assert printed("flows", "show", "weekly", "--svg", "-o", "weekly.svg") == "wrote weekly.svg\n"
    assert Path("weekly.svg").read_text() == text
    assert "can't be written" in failed("flows", "show", "weekly", "--svg", "-o", "no/such/folder.svg")


def test_a_run_is_started_shown_and_resumed(app: Scheduler, node: Node, clock: Clock) -> None:
    assert printed("flows", "run", "nightly", "--id", "n1", "--payload", '{"day": "today"}').splitlines() == [
        "started nightly: n1",
        "to follow it: evenbeat flows show n1 --wait",
    ]
    assert "; no node has begun it" in printed("flows", "show", "n1")
    assert "●─╯ load     after check" in printed("flows", "show", "n1"), "the graph that the app has"
    node.errors["load"] = "ValueError: boom"
    node.turn()
    held = printed("flows", "show", "n1")
    assert "◌   extract  queued" in held
    assert "○─╯ load     waiting" in held
    clock.pass_(1_000)
    node.work()
    shown = printed("flows", "show", "n1").splitlines()
    assert shown[2:5] == [
        "flow     nightly",
        "state    failed",
        "error    step load failed: ValueError: boom",
    ]
    assert "✓ │ clean    succeeded  0 ms  map of 3" in shown
    assert "✗─╯ load     failed     0 ms  ValueError: boom" in shown
    assert "✓   notify   succeeded  0 ms  if any failed" in shown
    assert shown[-1] == "to run again what failed: evenbeat flows resume n1"
    document = answered("flows", "show", "n1")["run"]
    assert (document["state"], document["steps"][3]["error"]) == ("failed", "ValueError: boom")
    assert 's3["load<br/>#10007; failed, 0 ms"]' in printed("flows", "show", "n1", "--mermaid")

    node.errors.clear()
    assert printed("flows", "resume", "n1").splitlines() == [
        "resumed n1: 2 of 5 steps to run",
        "to follow it: evenbeat flows show n1 --wait",
    ]
    node.work()
    shown = printed("flows", "show", "n1").splitlines()
    assert "state    succeeded" in shown
    assert "result   6" in shown
    assert "✓─╯ load     succeeded   0 ms  round 2" in shown
    assert "·   notify   not needed        if any failed; no step before it failed" in shown
    assert "to run again" not in shown[-1]


def test_a_step_is_retried_with_what_came_after_it(node: Node) -> None:
    printed("flows", "run", "nightly", "--id", "n1")
    node.work()
    said = printed("flows", "retry", "n1", "load").splitlines()
    assert said[0] == "step load of n1 runs again, and what came after it"
    assert answered("flows", "show", "n1")["run"]["state"] == "queued"
    words = failed("flows", "retry", "n1", "lod", code=2)
    assert words.startswith('error: flow nightly has no step "lod"; there are: extract, check, clean, load')


def test_a_run_is_cancelled_once(node: Node) -> None:
    printed("flows", "run", "nightly", "--id", "n1")
    node.turn()
    assert printed("flows", "cancel", "n1") == "cancelled n1\n"
    assert printed("flows", "cancel", "n1") == "cancelled n1\n"
    printed("flows", "run", "nightly", "--id", "n2")
    node.work()
    assert printed("flows", "cancel", "n2", code=1) == "n2 is over already: succeeded\n"


def test_running_steps_are_asked_to_stop(app: Scheduler, node: Node) -> None:
    printed("flows", "run", "nightly", "--id", "n1")
    printed("flows", "run", "nightly", "--id", "n2")
    node.turn()
    assert len(claim(app)) == 4
    assert printed("flows", "cancel", "n1") == "asked n1 to stop: 2 running steps left\n"
    assert "state    stopping" in printed("flows", "show", "n1")
    said = "asked n2 to stop; no other step starts, and running ones are asked to stop\n"
    assert printed("runs", "cancel", "n2") == said


@pytest.mark.parametrize("error", [None, "ValueError: boom"])
def test_waiting_shows_the_progress_and_answers_by_the_exit_code(
    node: Node, monkeypatch: pytest.MonkeyPatch, error: str | None
) -> None:
    node.errors = {} if error is None else {"load": error}
    replace_sleep(monkeypatch, lambda _: node.turn())
    monkeypatch.setattr(progress, "_LINE_EVERY", 0.0)
    result = run("flows", "run", "nightly", "--id", "n1", "--wait")
    assert result.exit_code == (0 if error is None else 1)
    lines = result.stderr.splitlines()
    assert lines[:2] == [
        "queued: no node has begun it",
        "[..............................] 0 of 5 steps ended, 2 queued",
    ]
    assert lines[-1] == "[##############################] 5 of 5 steps ended" + (
        "" if error is None else ", 1 failed"
    )
    assert "─╯ load " in result.stdout
    again = run("flows", "show", "n1", "--follow")
    assert (again.exit_code, again.stderr) == (result.exit_code, lines[-1] + "\n")
    if error is not None:
        node.errors.clear()
        resumed = run("flows", "resume", "n1", "--wait")
        assert (resumed.exit_code, "state    succeeded" in resumed.stdout) == (0, True)


def test_on_a_terminal_one_line_changes(app: Scheduler, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, bool]] = []
    printed("flows", "run", "nightly", "--id", "n1")
    node.turn()
    replace_sleep(monkeypatch, lambda _: node.turn())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "echo", lambda text="", nl=True, **_: said.append((str(text), nl)))
    assert flow_runs.follow(app, app.flows.show("n1")).state == "succeeded"
    assert all(text.startswith("\r") and not nl for text, nl in said[:-1])
    assert said[-1] == ("", True)


def test_a_start_later_says_when(app: Scheduler) -> None:
    said = printed("flows", "run", "nightly", "--id", "n1", "--at", "09:30").splitlines()
    assert said[0] == "started nightly: n1, due Mon 2026-03-02 09:30 +00:00"
    assert app.runs.get("n1").kind == "flow"


def test_without_an_app_a_run_is_found_by_its_id(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    printed("flows", "run", "nightly", "--id", "n1")
    node.errors["load"] = "ValueError: boom"
    node.work()
    monkeypatch.delenv("EVENBEAT_APP")
    assert "✗─╯ load " in printed("flows", "show", "n1")
    assert printed("flows", "resume", "n1").startswith("resumed n1")
    assert printed("flows", "cancel", "n1") == "cancelled n1\n"
    for command in (("list",), ("run", "nightly")):
        assert failed("flows", *command).splitlines() == [
            "error: which app? flows are registered by code, which a store does not contain",
            "hint: name the app with --app or EVENBEAT_APP",
        ]
    assert failed("flows", "show", "nightly").splitlines() == [
        "error: there is no run nightly",
        "hint: for a flow, name the app that registers it with --app or EVENBEAT_APP",
    ]
    assert printed("flows", "show", "nightly", "--app", "flow_jobs.py").startswith("nightly\n")
    printed("runs", "enqueue", "nightly", "--id", "n2")
    assert "not a flow" in failed("flows", "show", "n2"), "a node finds out"
    node.work()
    assert answered("runs", "show", "n2")["run"]["kind"] == "flow"


@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        (
            ("show", "nigthly"),
            1,
            "error: there is neither a flow nor a run nigthly\nhint: did you mean nightly?\n",
        ),
        (
            ("show", "x"),
            1,
            "error: there is neither a flow nor a run x\nhint: the app has: nightly, weekly\n",
        ),
        (("show", "load"), 2, "is a task, not a flow; 'evenbeat runs enqueue load' adds a run of it\n"),
        (("show", "acme/n/1/1"), 1, "add --tenant acme"),
        (("show", "nightly", "-o", "f"), 2, "-o goes with --mermaid or --svg"),
        (("show", "nightly", "--svg", "--json"), 2, "--svg and --json are two answers"),
        (("show", "nightly", "--wait"), 2, "--wait goes with the id of a run"),
        (("run", "nigthly"), 2, 'error: flow "nigthly" is not registered; there are: nightly, weekly\n'),
        (("run", "load"), 2, '"load" is a task, not a flow'),
        (("run", "nightly", "--payload", '{"d": 1}'), 2, "unexpected keyword argument 'd'"),
        (("run", "nightly", "--payload", "[]"), 2, "not an object"),
        (("resume", "x"), 1, 'error: there is no run "x"'),
        (("retry", "x", "load"), 1, 'error: there is no run "x"'),
        (("cancel", "x"), 1, 'error: there is no run "x"'),
        (("retry", "x"), 2, "'STEP'"),
    ],
)
def test_what_is_not_there_or_does_not_fit_is_refused(
    app: Scheduler, words: tuple[str, ...], exit_code: int, said: str
) -> None:
    assert said in failed("flows", *words, code=exit_code)


def _step(flow: str, name: str) -> str:
    """Return the id of a step: it has a random part, since the user has chosen that of the flow."""
    (step,) = (step for step in answered("flows", "show", flow)["run"]["steps"] if step["name"] == name)
    found = str(step["run"] or "")
    return found or _step(flow, "check").replace("~check", f"~{name}")


def test_a_step_is_no_flow_and_is_retried_by_its_flow(node: Node) -> None:
    printed("flows", "run", "nightly", "--id", "n1")
    node.errors["load"] = "ValueError: boom"
    node.work()
    load = _step("n1", "load")
    assert "it is a step of n1" in failed("flows", "show", load)
    words = failed("runs", "retry", load)
    assert "'evenbeat flows resume n1'" in words
    assert "'evenbeat flows retry n1 load'" in words
    assert (
        printed("runs", "retry", "n1") == "queued n1 again: what failed runs again, and what came after it\n"
    )
    assert "only a failed or cancelled flow can be resumed" in failed("flows", "resume", "n1")


def test_runs_show_draws_a_flow_and_names_the_place_of_a_step(node: Node) -> None:
    printed("flows", "run", "weekly", "--id", "w1")
    node.errors["load"] = "ValueError: boom"
    node.work()
    inner = _step("w1", "nightly")
    shown = printed("runs", "show", inner).splitlines()
    assert shown[2:5] == ["state    failed", "flow     nightly", "step     nightly, in the flow w1"]
    assert "✗─╯ load     failed     0 ms  ValueError: boom" in shown
    assert shown[-1] == "step load failed: ValueError: boom"
    assert not any(line.startswith("attempts") for line in shown)
    assert "✗ nightly  failed   0 ms  flow; step load failed: ValueError: boom" in printed(
        "runs", "show", "w1"
    )
    assert "within   step nightly of w1" in printed("flows", "show", inner)
    element = printed("runs", "show", f"{inner}~clean~2")
    assert f"step      element 2 of clean, in the flow {inner}" in element
    assert answered("runs", "show", "w1")["flow_run"]["steps"][1]["reason"] == "nightly failed"
    assert answered("runs", "show", f"{inner}~load")["flow_run"] is None


def test_runs_list_has_a_line_for_a_map(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.results["extract"] = str([*range(50)])
    printed("flows", "run", "nightly", "--id", "n1")
    node.work()
    lines = printed("runs", "list").splitlines()[2:]
    names = ("check", "clean", "extract", "load")
    # The line of a map has the id of its step.
    assert sorted(line.split()[0] for line in lines) == ["n1", *(_step("n1", name) for name in names)]
    assert any("clean, 50 elements" in line for line in lines)
    assert any(line.startswith("n1 ") and "nightly, flow" in line for line in lines)
    assert len(answered("runs", "list", "--limit", "100")["runs"]) == 54
    assert len(printed("runs", "list", "--elements", "--limit", "100").splitlines()) == 56
    monkeypatch.setattr(runs_list, "_PAGE", 10)
    assert printed("runs", "list").splitlines()[2:] == lines
    cut = printed("runs", "list", "--limit", "2").splitlines()
    assert len(cut[2:-2]) == 2
    assert cut[-1] == "there are more: --limit 10"


def test_a_map_of_which_elements_differ_shows_how_many(node: Node) -> None:
    node.results["extract"] = str([*range(6)])
    printed("flows", "run", "nightly", "--id", "n1")
    for _ in range(2):
        node.turn()
    held = claim(node.app)
    elements = [each for each in held if each.task == "clean"]
    settling = FlowSettling(node.app.store, "node-1")
    error = attempts.failed(elements[0], "ValueError: boom", node.app.store.now(), "t")
    assert settling.settle([End(elements[0], error)], node.app.store.now()).answers == [True]
    assert "1 failed, 5 running" in printed("runs", "list")
    shown = printed("flows", "show", "n1")
    assert "clean    running" in shown
    assert "map of 6, 1 of 6 elements ended; 1 of 6 elements failed" in shown
    assert [line.split()[0] for line in printed("runs", "list", "--state", "failed").splitlines()[2:]] == [
        elements[0].id
    ], "few elements are listed one by one"


def drawn(drawing: FlowDrawing, *, width: int = 80, ascii_only: bool = False) -> list[str]:
    with open("drawing.txt", "w+", encoding="ascii" if ascii_only else "utf-8") as file:
        Console(file=file, width=width, highlight=False, color_system=None).print(drawing)
        file.seek(0)
        return [line.rstrip() for line in file.read().splitlines()]


def test_the_example_at_80_columns() -> None:
    assert drawn(FlowDrawing(EXAMPLE, EXAMPLE_RUN, NOW)) == [
        "✓   extract    succeeded  1.2 s",
        "│",
        "✓   clean      succeeded  3 min 5 s  map of 10,000",
        "│",
        "✓   summarise  succeeded  1.2 s",
        "│ ✓ check      succeeded  1.2 s",
        "✗─╯ load       failed     230 ms     KeyError: 'customer_id'",
        "│",
        "▶   notify     running    5.0 s      if any failed",
    ]


def test_notes_wrap_beside_the_lanes_or_below_the_step() -> None:
    broken = flow_run(DIAMOND, b={"state": "failed", "error": "ValueError: " + "long " * 8 + "words"})
    assert drawn(FlowDrawing(DIAMOND, broken), width=60)[1:4] == [
        "├─✗ b  failed            ValueError: long long long long",
        "│ │                      long long long long words",
        "✓ │ c  succeeded  1.2 s",
    ]
    assert drawn(FlowDrawing(DIAMOND, broken), width=40)[1:5] == [
        "├─✗ b  failed",
        "│ │   ValueError: long long long long",
        "│ │   long long long long words",
        "✓ │ c  succeeded  1.2 s",
    ]


def test_a_long_name_has_a_line_for_itself() -> None:
    long = flow(step("a" * 64, task="t" * 30), step("b", ["a" * 64]))
    assert drawn(FlowDrawing(long)) == [f"● {'a' * 64}", f"│   {'t' * 30}", "│", "● b"]
    broken = flow_run(long, b={"state": "failed", "error": "boom"})
    assert drawn(FlowDrawing(long, broken)) == [
        f"✓ {'a' * 64}",
        "│   succeeded  1.2 s",
        "│",
        "✗ b",
        "    failed  boom",
    ]


def test_a_terminal_without_unicode_gets_ascii() -> None:
    assert drawn(FlowDrawing(DIAMOND), ascii_only=True) == ["*   a", "+-* b", "* | c", "| |", "*-+ d"]
    assert drawn(FlowDrawing(EXAMPLE, EXAMPLE_RUN, NOW), ascii_only=True)[6].startswith("x-+ load ")


def test_names_of_tasks_are_shown_where_they_differ() -> None:
    named = flow(step("first", task="shop.load"), step("shop", "", kind="flow"))
    assert drawn(FlowDrawing(named)) == ["● first  shop.load", "● shop              flow"]


def test_a_large_flow_is_an_indented_list_that_says_how_much_it_leaves_out() -> None:
    steps = [step("s0"), *(step(f"s{at}", [f"s{at // 2}"]) for at in range(1, 150))]
    lines = drawn(FlowDrawing(flow(*steps)))
    assert [line.split() for line in lines[:3]] == [
        ["●", "s0"],
        ["●", "s1", "after", "s0"],
        ["●", "s2", "after", "s1"],
    ]
    assert [len(line) - len(line.lstrip()) for line in lines[:4]] == [0, 2, 4, 4]
    assert (len(lines), lines[-1]) == (101, "and 50 more steps; --json lists all")
    late = flow_run(flow(*steps), s149={"state": "failed", "error": "boom"})
    lines = drawn(FlowDrawing(flow(*steps), late))
    assert any("✗ s149" in line and line.endswith("after s74; boom") for line in lines), (
        "failed ones come first"
    )
    assert (len(lines), lines[-1]) == (101, "and 50 more steps; --json lists all")


def test_a_step_names_a_few_of_those_that_it_waits_for_without_data() -> None:
    join = flow(*map(step, "abcde"), step("z", "abcde", inputs=("a",)))
    assert drawn(FlowDrawing(join))[-1] == "●─┴─┴─┴─╯ z  after b, c, d and 1 more"


def test_a_flow_with_too_many_lanes_is_a_list() -> None:
    names = [f"s{at}" for at in range(20)]
    wide = flow(*map(step, names), step("last", names))
    assert drawn(FlowDrawing(wide))[-1] == "  ● last  after s0, s1, s2 and 17 more"


def test_what_a_task_writes_can_not_rewrite_the_terminal() -> None:
    broken = flow_run(DIAMOND, b={"state": "failed", "error": "\x1b[2J\x07boom"})
    assert "\x1b" not in "\n".join(drawn(FlowDrawing(DIAMOND, broken)))
