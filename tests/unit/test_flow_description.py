"""Flows as they are described: the graph, and what is refused when it is registered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evenbeat import Flow, InvalidValue, RunContext, Scheduler, Task, cron
from evenbeat.core.flow_graphs import MOST_ELEMENTS, decode_graph, encode_graph
from evenbeat.core.json_text import from_json


@pytest.fixture
def app() -> Scheduler:
    return Scheduler("memory://")


@pytest.fixture
def work(app: Scheduler) -> Task[..., Any]:
    @app.task
    def work(n: int = 0, more: Any = None) -> int:
        return n

    return work


def edges(flow: Flow[..., Any]) -> dict[str, list[str]]:
    graph = flow.graph
    return {step.name: [graph.steps[at].name for at in step.predecessors] for step in graph.steps}


def test_a_flow_has_the_steps_that_its_function_describes(app: Scheduler) -> None:
    @app.task(queue="io", priority="high", retries=3)
    def extract(day: str) -> list[str]:
        return [day]

    @app.task
    def clean(part: str, factor: int = 1) -> str:
        return part * factor

    @app.task
    def load(parts: list[str], note: str = "") -> int:
        return len(parts)

    @app.task
    def check() -> None: ...

    @app.flow(schedule=cron("0 3 * * *", tz="Europe/Berlin"), timeout="2h")
    def nightly(day: str = "yesterday") -> Any:
        raw = extract.step(day=day)
        parts = clean.map(raw, factor=3)
        loaded = load.step(parts, note=day, after=[check.step()])
        check.step(step_name="alarm", run_if="any_failed")
        check.step(step_name="last", run_if="always", after=[loaded])
        return loaded

    assert isinstance(nightly, Flow)
    assert edges(nightly) == {
        "extract": [],
        "check": [],
        "clean": ["extract"],
        "load": ["check", "clean"],
        "alarm": ["extract", "check", "clean", "load"],
        "last": ["load"],
    }
    extracted, _, cleaned, loaded, alarm, _ = nightly.graph.steps
    assert (extracted.queue, extracted.priority, extracted.execution.retries) == ("io", 8, 3)
    assert from_json(extracted.payload) == {"day": None}
    assert [(each.path, each.source, each.name) for each in extracted.inputs] == [
        (("day",), "parameter", "day")
    ]
    assert (cleaned.element, cleaned.is_map, from_json(cleaned.payload)) == ("part", True, {"factor": 3})
    assert sorted(each.name for each in loaded.inputs) == ["clean", "day"]
    assert alarm.run_if == "any_failed"
    assert nightly.graph.result == "load"
    assert from_json(nightly.graph.defaults) == {"day": "yesterday"}
    assert decode_graph(encode_graph(nightly.graph)) == nightly.graph


def test_the_same_description_has_the_same_key_and_another_one_has_not(
    app: Scheduler, work: Task[..., Any]
) -> None:
    def described(n: int) -> Flow[..., Any]:
        other = Scheduler("memory://")

        @other.flow(name="same")
        def same() -> None:
            work.step(n=n)

        return same

    assert described(1).graph.key == described(1).graph.key != described(2).graph.key


def test_references_may_be_inside_lists_and_objects(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow(p: int = 1) -> None:
        one = work.step(step_name="one")
        work.step(step_name="two", n=2, more={"a": [one, {"b": p}], "c": "text", "$result": "one"})

    two = flow.graph.steps[1]
    assert from_json(two.payload) == {
        "n": 2,
        "more": {"a": [None, {"b": None}], "c": "text", "$result": "one"},
    }
    assert [(each.path, each.source) for each in two.inputs] == [
        (("more", "a", 0), "result"),
        (("more", "a", 1, "b"), "parameter"),
    ]


def test_a_flow_can_be_made_without_a_function(app: Scheduler, work: Task[..., Any]) -> None:
    flow = app.new_flow("made", ["n"], schedule=cron("0 3 * * *"))
    first = flow.add_step("first", work, payload={"n": flow.parameter("n")})
    flow.add_step("each", work, map_over=[1, 2], after=["first"])
    last = flow.add_step("last", work, payload={"more": [first]}, after=["each"])
    flow.set_result(last)
    assert edges(flow) == {"first": [], "each": ["first"], "last": ["first", "each"]}
    assert flow.graph.result == "last"
    assert app.tasks.get("made") is flow
    assert [info.name for info in app.flows.list()] == ["made"]
    info = app.flows.get("made")
    assert [(step.name, step.after, step.inputs, step.is_map) for step in info.steps] == [
        ("first", (), (), False),
        ("each", ("first",), (), True),
        ("last", ("first", "each"), ("first",), False),
    ]


def _no_steps(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> None: ...


def _two_names(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> None:
        work.step()
        work.step()


def _wrong_arguments(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> None:
        work.step(m=1)


def _wrong_type(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> None:
        work.step(n="five")


def _unreachable(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> None:
        work.step(run_if="any_failed")


def _unknown_condition(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> None:
        work.step(run_if="sometimes")  # type: ignore[arg-type]  # that is the point


def _after_unknown(app: Scheduler, work: Task[..., Any]) -> None:
    app.new_flow("made").add_step("a", work, after=["b"])
    app.flows.list()


def _circle(app: Scheduler, work: Task[..., Any]) -> None:
    flow = app.new_flow("made")
    flow.add_step("a", work, after=["b"])
    flow.add_step("b", work, after=["a"])
    app.flows.list()


def _condition_on_a_result(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> None:
        bool(work.step())


def _arithmetic(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow(n: int = 1) -> None:
        work.step(n=n + 1)


def _text_of_a_parameter(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow(n: str = "x") -> None:
        work.step(more=f"report-{n}")


def _loop_over_a_result(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> None:
        list(work.step())


def _map_over_text(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> None:
        work.map("abc")


def _map_over_too_many(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> None:
        work.map(range(MOST_ELEMENTS + 1))


def _returns_a_map(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> Any:
        return work.map([1])


def _returns_a_value(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> int:
        work.step()
        return 5


def _steps_of_another(app: Scheduler, work: Task[..., Any]) -> None:
    kept = []

    @app.flow
    def first() -> None:
        kept.append(work.step())

    @app.flow
    def second() -> None:
        work.step(more=kept[0])


def _coroutine(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    async def flow() -> None:
        work.step()


def _takes_the_run(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow(run: RunContext) -> None:
        work.step()


def _unique(app: Scheduler, work: Task[..., Any]) -> None:
    @app.task(unique="payload")
    def alone() -> None: ...

    @app.flow
    def flow() -> None:
        alone.step()


def _taken_word(app: Scheduler, work: Task[..., Any]) -> None:
    @app.task
    def sort(after: str) -> None: ...

    @app.flow
    def flow() -> None:
        sort.step(after="x")


def _outside(app: Scheduler, work: Task[..., Any]) -> None:
    work.step()


def _called(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> None:
        work.step()

    flow()


def _retries(app: Scheduler, work: Task[..., Any]) -> None:
    app.flow(retries=3)


def _bad_name(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> None:
        work.step(step_name="a~b")


def _calls_a_task(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> None:
        work.map([work(3)])


def _enqueues_a_task(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> None:
        work.enqueue(3)


def _attribute_of_a_parameter(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow(day: str = "x") -> None:
        work.step(more=day.upper())


def _result_of_a_step(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> None:
        work.step(work.step(step_name="a").result)


def _arrow(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> None:
        work.step(step_name="a") >> work.step(step_name="b")


def _scheduled_with_arguments(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow(schedule=cron("0 3 * * *"))
    def flow(day: str) -> None:
        work.step()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (_no_steps, "has no steps"),
        (_two_names, "two steps named work.*step_name"),
        (_wrong_arguments, "unexpected keyword argument 'm'"),
        (_wrong_type, '"five".*int'),
        (_unreachable, "can never run"),
        (_unknown_condition, "sometimes"),
        (_after_unknown, 'step a after "b", which is not a step'),
        (_circle, "wait for each other: a after b after a"),
        (_condition_on_a_result, "result of step work is not known while flow flow is described"),
        (_arithmetic, "parameter n is not known"),
        (_text_of_a_parameter, "parameter n is not known"),
        (_loop_over_a_result, "task.map"),
        (_map_over_text, 'over "abc", which is not a list'),
        (_map_over_too_many, "10,000 are the most"),
        (_returns_a_map, "collect them in a step"),
        (_returns_a_value, "returns 5"),
        (_steps_of_another, "result work of flow first"),
        (_coroutine, "not a plain def"),
        (_takes_the_run, "RunContext"),
        (_unique, "which is unique"),
        (_taken_word, "parameter after"),
        (_outside, "no flow is being described"),
        (_called, "can't be called.*enqueue"),
        (_retries, "retries is an option of tasks"),
        (_bad_name, '"a~b"'),
        (_calls_a_task, r'task "work" is called while flow flow is described.*work.step'),
        (_enqueues_a_task, r'task "work" is enqueued while flow flow is described.*work.step'),
        (_attribute_of_a_parameter, "parameter day is not known"),
        (_result_of_a_step, "the result of step a is not known"),
        (_arrow, "the result of step a is not known"),
        (_scheduled_with_arguments, "gives it no arguments"),
    ],
)
def test_what_is_wrong_is_refused_when_the_flow_is_registered(
    app: Scheduler, work: Task[..., Any], wrong: Callable[[Scheduler, Task[..., Any]], None], words: str
) -> None:
    with pytest.raises(InvalidValue, match=f"(?s){words}"):
        wrong(app, work)


def test_a_flow_that_is_refused_is_not_registered_and_leaves_nothing_behind(
    app: Scheduler, work: Task[..., Any]
) -> None:
    with pytest.raises(InvalidValue):
        _two_names(app, work)
    assert app.tasks.get("flow") is None
    with pytest.raises(InvalidValue, match="no flow is being described"):
        work.step()


def test_a_task_is_not_a_flow(app: Scheduler, work: Task[..., Any]) -> None:
    with pytest.raises(InvalidValue, match='"work" is a task, not a flow'):
        app.flows.run("work")
    with pytest.raises(InvalidValue, match='"nothing" is not registered'):
        app.flows.get("nothing")
