"""Arguments and results keep their types: converted by annotations, or refused when they are enqueued."""

from __future__ import annotations

import enum
import functools
import inspect
import os
import signal
import subprocess
import sys
import time as time_module
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest

from evenbeat import InvalidValue, RunContext, Scheduler
from evenbeat.core import records
from evenbeat.core.json_text import from_json, to_json
from evenbeat.tasks import conversion
from evenbeat.tasks.conversion import find_change
from evenbeat.tasks.task import Task
from evenbeat.testing import virtual


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 8


@dataclass
class Line:
    article: str
    price: Decimal
    at: datetime | None = None


@dataclass(eq=False)
class Bag:
    """Two of the same content are not equal."""

    lines: list[Line] = field(default_factory=list)


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Renamed(msgspec.Struct, rename="camel", tag_field="kind", tag="renamed"):
    first_name: str


class Pair(NamedTuple):
    left: date
    right: date


class Options(TypedDict):
    since: date


BERLIN = ZoneInfo("Europe/Berlin")
MORNING = datetime(2026, 3, 1, 9, 30, 0, 123456, tzinfo=UTC)

# (annotation, value): what a function with the annotation gets is the value.
KEPT: list[tuple[Any, Any]] = [
    (Decimal, Decimal("9.90")),
    (datetime, MORNING),
    (datetime, datetime(2026, 3, 1, 9, 30)),
    (datetime, datetime(2026, 3, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))),
    (date, date(2026, 3, 1)),
    (time, time(9, 30)),
    (timedelta, timedelta(days=-1, microseconds=1)),
    (UUID, UUID(int=7)),
    (bytes, b"\0\xff"),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (Line, Line("tea", Decimal("1.20"), MORNING)),
    (Point, Point(1, 2)),
    (Renamed, Renamed("Ann")),
    (Pair, Pair(date(2026, 1, 1), date(2026, 2, 1))),
    (Options, {"since": date(2026, 1, 1)}),
    (list[Line], [Line("tea", Decimal(1)), Line("milk", Decimal(2))]),
    (dict[int, Decimal], {1: Decimal("0.10")}),
    (dict[UUID, date], {UUID(int=1): date(2026, 1, 1)}),
    (set[int], {1, 2}),
    (set[int | str], {1, "a"}),
    (frozenset[str], frozenset(("a",))),
    (tuple[int, Decimal], (1, Decimal(2))),
    (Optional[datetime], None),  # noqa: UP045
    (datetime | None, MORNING),
    (int | str | None, "5"),
    (Literal["a", "b"], "b"),
    (Annotated[int, msgspec.Meta(ge=0)], 3),
    (float, 0.1),
    (int, 2**80),
    (Mapping[str, date], {"a": date(2026, 1, 1)}),
    (dict[str, object], {"a": [1, None, {"b": 1.5}]}),
    (Any, {"a": [1, None, True, "x", 1.5]}),
]


def shown(value: object) -> str:
    """Return the text of a parameter, which is the same in every process: sets have no order."""
    return str(sorted(value, key=str)) if isinstance(value, set) else str(value)


def task_of(annotation: Any, result: Any = None) -> Task[..., Any]:
    def function(value: object) -> object:
        return value

    function.__annotations__ = {"value": annotation, "return": annotation if result is None else result}
    return Task(function, "keep")


def arrived(task: Task[..., Any], value: object) -> Any:
    """What the function gets for a value that is enqueued."""
    record = records.RunRecord(id="r", task="keep", payload=task.write({"value": value}))
    return task.arguments(record.payload, RunContext(record))["value"]


@pytest.mark.parametrize(("annotation", "value"), KEPT, ids=shown)
def test_an_argument_arrives_as_it_was_given(annotation: Any, value: object) -> None:
    task = task_of(annotation)
    got = arrived(task, value)
    assert got == value
    assert type(got) is type(value)
    assert task.bind(value).payload == {"value": value}


@pytest.mark.parametrize(("annotation", "value"), KEPT, ids=shown)
def test_a_result_comes_back_as_it_was_returned(annotation: Any, value: object) -> None:
    task = task_of(annotation)
    text, changed = task.write_result(value)
    assert changed is None
    assert task.read_result(text) == value
    assert type(task.read_result(text)) is type(value)


@pytest.mark.parametrize(("annotation", "value"), KEPT, ids=shown)
def test_what_was_written_as_json_is_taken_too(annotation: Any, value: object) -> None:
    """A payload from the command line, or from another program, has texts for what JSON has no word for."""
    as_json = from_json(to_json(value))
    assert arrived(task_of(annotation), as_json) == value


def test_a_set_is_written_the_same_in_every_process() -> None:
    words = [f"word-{number}" for number in range(50)]
    assert task_of(set[str]).write({"value": set(words)}) == to_json({"value": sorted(words)})


def test_a_class_without_equality_is_compared_by_its_fields() -> None:
    bag = Bag([Line("tea", Decimal("1.20"))])
    got = arrived(task_of(Bag), bag)
    assert got is not bag
    assert got.lines == bag.lines
    assert arrived(task_of(dict[str, Bag]), {"a": bag})["a"].lines == bag.lines


@pytest.mark.parametrize("fold", [0, 1])
def test_a_moment_in_the_hour_that_comes_twice_arrives(fold: int) -> None:
    twice = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=fold)
    got = arrived(task_of(datetime), twice)
    assert got.timestamp() == twice.timestamp()
    assert got.utcoffset() == twice.utcoffset()


@pytest.mark.parametrize(
    ("annotation", "value", "problem", "hint"),
    [
        (Decimal, "nine", ' is "nine", and its annotation is Decimal: ', "give what can be read as Decimal"),
        (int, "5", ' is "5", and its annotation is int: Expected `int`, got `str`', "read as int"),
        (int, True, " is True, and its annotation is int", "read as int"),
        (str, 5, " is 5, and its annotation is str", "read as str"),
        (float, Decimal("0.1"), " is Decimal('0.1'), and its annotation is float", "read as float"),
        (date, MORNING, "and its annotation is date: ", "read as date"),
        (Annotated[int, msgspec.Meta(ge=0)], -1, " is -1, ", ">= 0"),
        (
            str,
            Decimal("9.90"),
            " is Decimal('9.90'), which comes back as \"9.90\" by its annotation str",
            "annotate it for Decimal",
        ),
        (str, b"abc", " is b'abc', which comes back as \"YWJj\" by", "annotate it for bytes"),
        (list[str], ["a", MORNING], " holds datetime.datetime(2026, 3, 1", "annotate it for datetime"),
        (Line, {"article": "tea", "price": "1", "tax": 2}, " which comes back as Line(", "what the"),
        (Options, {"since": "2026-01-01", "until": "2026-02-01"}, " which comes back as {'since'", "what"),
        (dict[str, object], {"at": MORNING}, " by its annotation dict[str, object]", "it for datetime"),
        (list[int], {1}, " is {1}, which comes back as [1] by its annotation list[int]", "for set"),
    ],
)
def test_what_an_annotation_makes_something_else_of_is_refused(
    annotation: Any, value: object, problem: str, hint: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        task_of(annotation).bind(value)
    assert str(refused.value).startswith('argument value of task "keep" ')
    assert problem in str(refused.value)
    assert hint in str(refused.value)
    assert refused.value.field == "value"


class Tea(Line):
    pass


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (Decimal("9.90"), " is Decimal('9.90'), which JSON changes to \"9.90\"; annotate it: value: Decimal"),
        (MORNING, 'which JSON changes to "2026-03-01T09:30:00.123456Z"; annotate it: value: datetime'),
        (b"abc", ' which JSON changes to "YWJj"; annotate it: value: bytes'),
        (UUID(int=7), "annotate it: value: UUID"),
        (Colour.RED, 'which JSON changes to "red"; annotate it: value: Colour'),
        (Line("tea", Decimal(1)), "annotate it: value: Line"),
        (Point(1), "which JSON changes to {'x': 1, 'y': 0}; annotate it: value: Point"),
        ({1: "a"}, "is {1: 'a'}, which JSON changes to {'1': 'a'}; annotate it: value: dict[…]"),
        ({1, 2}, "annotate it: value: set[…]"),
        (Pair(date(2026, 1, 1), date(2026, 1, 2)), "annotate it: value: Pair"),
        ({"deep": [{"at": MORNING}]}, " holds datetime.datetime(2026"),
    ],
)
def test_without_an_annotation_what_json_changes_is_refused(value: object, problem: str) -> None:
    app = Scheduler("memory://")

    @app.task
    def free(value):  # type: ignore[no-untyped-def]
        return value

    for call in (
        lambda: free.bind(value),
        lambda: app.enqueue(free, {"value": value}),
        lambda: app.schedules.add("a", "@daily", free, {"value": value}),
        lambda: app.enqueue_many([(free, {"value": value})]),
    ):
        with pytest.raises(InvalidValue) as refused:
            call()
        assert problem in str(refused.value), str(refused.value)
    with pytest.raises(InvalidValue, match="the task is not registered here"):
        app.enqueue("elsewhere", {"value": value})
    assert app.runs.list() == []


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "x", [1, [2]], {"a": {"b": None}}, (1, (2, 3)), []])
def test_json_itself_needs_no_annotation(value: Any) -> None:
    app = Scheduler("memory://")
    run = app.enqueue("elsewhere", {"value": value})
    assert run.payload == {"value": from_json(to_json(value))}


def test_what_json_has_no_form_for_is_refused_with_the_name_of_the_argument() -> None:
    with pytest.raises(InvalidValue) as refused:
        task_of(inspect_empty()).bind(Path("/tmp"))  # noqa: S108
    assert str(refused.value) == (
        "argument value of task \"keep\" is PosixPath('/tmp'), not JSON: Encoding objects of type "
        "PosixPath is unsupported; give a text, a number, a list or a dict of them"
    )
    assert refused.value.field == "value"
    with pytest.raises(InvalidValue, match=r"argument value of task .* contains nan.*; write None or a text"):
        task_of(float).bind(float("nan"))


def inspect_empty() -> Any:
    return inspect.Parameter.empty


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        ("Unknown", "name 'Unknown' is not defined"),
        ("list[Unknown]", "name 'Unknown' is not defined"),
        ("not a type", "must be an expression"),
        (Path, "JSON has no form for Path"),
        (dict[str, Path], "JSON has no form for Path"),
        (datetime | str, "`decimal`, `bytes`, `bytearray`)"),
    ],
)
def test_an_annotation_that_can_not_be_used_leaves_json_as_it_is_and_says_why(
    annotation: Any, why: str
) -> None:
    task = task_of(annotation)
    assert arrived(task, {"a": [1, "x"]}) == {"a": [1, "x"]}
    with pytest.raises(InvalidValue) as refused:
        task.bind(MORNING)
    assert "which JSON changes to" in str(refused.value)
    assert why in str(refused.value)
    assert "is not supported" not in str(refused.value)
    assert task.read_result("[1]") == [1]


def test_a_name_that_is_defined_below_the_function_is_found() -> None:
    app = Scheduler("memory://")
    later = app.task(takes_later)
    assert later.bind(Later(1)).payload == {"value": Later(1)}
    with virtual(app) as scheduler:
        scheduler.enqueue(later, {"value": {"number": 2}})
        assert scheduler.run_pending()[0].result == 2


def takes_later(value: Later) -> int:
    assert isinstance(value, Later)
    return value.number


@dataclass
class Later:
    number: int


def test_a_default_of_none_means_that_none_is_meant() -> None:
    def function(team: str = None) -> None:  # type: ignore[assignment]  # noqa: RUF013
        pass

    task: Task[..., Any] = Task(function, "old")
    assert task.bind(team=None).payload == {"team": None}
    with pytest.raises(InvalidValue, match=r"annotation is (Optional\[str\]|str \| None)"):
        task.bind(team=5)


def test_arguments_beyond_the_named_ones_are_converted_by_the_annotation_of_them_all() -> None:
    def function(a: int, **prices: Decimal) -> None:
        pass

    task: Task[..., Any] = Task(function, "priced")
    text = task.write({"a": 1, "tea": Decimal("1.20"), "milk": "0.90"})
    run = RunContext(records.RunRecord(id="r", task="priced", payload=text))
    assert task.arguments(text, run) == {"a": 1, "tea": Decimal("1.20"), "milk": Decimal("0.90")}


def test_a_result_that_json_changes_is_kept_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    app = Scheduler("memory://")

    @app.task(name="total-of-a-test")
    def total():  # type: ignore[no-untyped-def]
        return Decimal("9.90")

    with virtual(app) as scheduler:
        runs = [scheduler.enqueue(total) for _ in range(3)]
        assert [run.result for run in scheduler.run_pending()] == ["9.90"] * 3
        for run in runs:
            (line,) = scheduler.runs.logs(run.id)
            assert line.text == (
                "WARNING evenbeat: the result is Decimal('9.90'), which comes back as \"9.90\"; "
                "annotate it: -> Decimal"
            )
    # Once for the task: whoever reads the logs of the node needs no more.
    warnings = [
        record for record in caplog.records if "JSON changes the result of a task" in record.getMessage()
    ]
    assert len(warnings) == 1


def test_a_result_that_is_too_long_is_called_a_result() -> None:
    app = Scheduler("memory://")

    @app.task
    def long() -> str:
        return "x" * 2_000_000

    with virtual(app) as scheduler:
        run = scheduler.enqueue(long)
        (ended,) = scheduler.run_pending()
        assert (ended.state, ended.result) == ("succeeded", None)
        (line,) = scheduler.runs.logs(run.id)
        assert "the result is not kept: result is 2,000,002 bytes of JSON" in line.text


def test_a_result_of_an_older_version_is_shown_as_json() -> None:
    assert task_of(int, result=Line).read_result('"of old"') == "of old"


EXECUTORS = """
import sys
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID
from evenbeat import RunContext, Scheduler

app = Scheduler("sqlite:///" + sys.argv[1])

@dataclass
class Order:
    id: UUID
    at: datetime

def check(order, amount):
    assert type(order) is Order and type(order.id) is UUID and type(order.at) is datetime, order
    assert type(amount) is Decimal, amount
    return [order]

@app.task
def in_thread(order: Order, amount: Decimal) -> list[Order]: return check(order, amount)

@app.task
async def in_loop(run: RunContext | None, order: Order, amount: Decimal) -> list[Order]:
    assert run is not None
    return check(order, amount)

@app.task(executor="process")
def in_process(order: Order, amount: Decimal) -> list[Order]: return check(order, amount)

if __name__ == "__main__":
    order = Order(UUID(int=1), datetime(2026, 3, 1))
    results = []
    app.on_event(lambda event: results.append(event.result) if event.kind == "succeeded" else None)
    with app:
        for task in (in_thread, in_loop, in_process):
            run = app.runs.join(app.enqueue(task.bind(order=order, amount=Decimal("9.90"))).id, "60s")
            assert run.result == [order], (run.error, run.result, app.runs.logs(run.id))
            assert run.payload["amount"] == "9.90"
    assert results == [[order]] * 3
    print("all")
"""


def test_threads_coroutines_and_processes_get_typed_arguments(tmp_path: Path) -> None:
    script = tmp_path / "typed_jobs.py"
    script.write_text(EXECUTORS)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "jobs.db")], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("all\n", 0), done.stderr


def test_a_payload_of_another_version_of_the_code_is_unfit() -> None:
    app = Scheduler("memory://")

    @app.task
    def pay(amount: Decimal) -> str:
        return f"{amount:.2f}"

    with virtual(app) as scheduler:
        run = scheduler.enqueue("pay", {"amount": "9.90"})
        old = Scheduler(scheduler.store)  # does not have the task, so that it may say anything
        refused = old.enqueue("pay", {"amount": {"cents": 990}}, retries=1, backoff="1s")
        scheduler.run_pending()
        assert scheduler.runs.get(run.id).result == "9.90"
        waiting = scheduler.runs.get(refused.id)
        assert (waiting.state, waiting.failures) == ("queued", 0)
        assert waiting.error is not None
        assert waiting.error.startswith(
            "InvalidValue: argument amount of task \"pay\" is {'cents': 990}, and "
        )
        scheduler.travel("1h")
        ended = scheduler.runs.get(refused.id)
        assert (ended.state, ended.failures, ended.attempt) == ("failed", 2, 12)


@pytest.mark.parametrize(
    "annotation",
    ["RunContext | None", "Optional[RunContext]", "RunContext", RunContext | None, "evenbeat.RunContext"],
)
def test_the_run_is_recognised_however_it_is_annotated(annotation: Any) -> None:
    def function(run: object, team: str) -> None:
        pass

    function.__annotations__["run"] = annotation
    task: Task[..., Any] = Task(function, "t")
    assert task.wants_run == "run"
    assert task.bind(team="ops").payload == {"team": "ops"}


def test_the_run_is_recognised_where_its_name_is_imported_for_type_checkers_alone() -> None:
    made: dict[str, Any] = {}
    exec("def function(run: 'RunContext | None' = None): pass", made)  # noqa: S102
    assert Task(made["function"], "t").wants_run == "run"


def test_a_decorated_function_has_the_annotations_of_the_one_inside() -> None:
    def log(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def logged(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return logged

    @log
    def pay(amount: Decimal) -> Decimal:
        return amount

    assert arrived_by(Task(pay, "pay"), amount=Decimal(1)) == {"amount": Decimal(1)}


def arrived_by(task: Task[..., Any], **payload: Any) -> dict[str, Any]:
    record = records.RunRecord(id="r", task=task.name, payload=task.write(payload))
    return task.arguments(record.payload, RunContext(record))


def test_a_value_whose_equality_raises_is_compared_by_its_fields() -> None:
    @dataclass
    class Odd:
        number: int

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("no")

    assert find_change(Odd(1), Odd(1)) is None
    assert find_change(Odd(1), Odd(2), allow_json=False) is not None


def test_a_partial_function_has_the_annotations_of_the_whole_one() -> None:
    task: Task[..., Any] = Task(functools.partial(priced, currency="EUR"), "priced")
    assert arrived_by(task, price=Decimal(1)) == {"price": Decimal(1)}


def priced(price: Decimal, currency: str) -> None: ...


@dataclass
class Node:
    number: Decimal
    next: Node | None = None


def test_a_class_may_refer_to_itself() -> None:
    chain = Node(Decimal(1), Node(Decimal(2)))
    assert arrived(task_of(Node), chain) == chain


class Attributes:
    """As attrs marks its classes, which need not be installed here."""

    __attrs_attrs__ = (SimpleNamespace(name="number"),)

    def __init__(self, number: int) -> None:
        self.number = number


def test_classes_of_attrs_are_compared_by_their_fields() -> None:
    assert find_change(Attributes(1), Attributes(1)) is None
    changed = find_change(Attributes(1), Attributes(2), allow_json=False)
    assert changed == (1, 2)
    assert find_change({"number": 1}, Attributes(1)) is None
    assert find_change({"number": MORNING}, Attributes(1)) == (MORNING, 1)


def test_an_offset_that_json_can_not_say_is_refused() -> None:
    long_ago = datetime(1800, 1, 1, tzinfo=BERLIN)  # 53 minutes and 28 seconds ahead of Greenwich
    with pytest.raises(InvalidValue, match="which comes back as datetime"):
        task_of(datetime).bind(long_ago)


def test_all_keys_of_a_dict_have_to_survive() -> None:
    for keys in ({1: "a", "b": "c"}, {"b": "c", 1: "a"}):
        with pytest.raises(InvalidValue, match=r"annotate it: value: dict\[…\]"):
            task_of(inspect_empty()).bind(keys)
    bags = {1: Bag(), 2: Bag()}
    assert list(arrived(task_of(dict[int, Bag]), bags)) == [1, 2]
    assert find_change({1: Bag()}, {2: Bag()}) is not None


@pytest.mark.parametrize(
    ("annotation", "value", "back"),
    [
        (bytes, "YWJj", b"abc"),
        (Line, {"article": "tea", "price": "1"}, Line("tea", Decimal(1))),
        (inspect_empty(), frozenset((1,)), [1]),
    ],
)
def test_a_result_that_is_not_what_its_annotation_says_is_noticed(
    annotation: Any, value: object, back: object
) -> None:
    task = task_of(annotation)
    text, changed = task.write_result(value)
    assert changed is not None
    assert "comes back as" in changed
    assert task.read_result(text) == back


def test_a_frozen_set_without_an_annotation_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"annotate it: value: frozenset\[…\]"):
        task_of(inspect_empty()).bind(frozenset((1,)))


@pytest.mark.parametrize("payload", [{1: "a"}, {"a": 1, 2: "b"}])
def test_names_of_arguments_are_texts(payload: dict[Any, Any]) -> None:
    with pytest.raises(InvalidValue, match="is not an object of named arguments") as refused:
        Scheduler("memory://").enqueue("elsewhere", payload)
    assert (refused.value.field, refused.value.value) == ("payload", payload)


def test_a_stored_payload_that_is_not_an_object_is_refused_and_not_taken_for_one_of_another_version() -> None:
    run = RunContext(records.RunRecord(id="r", task="keep", payload="[1]"))
    with pytest.raises(InvalidValue, match="is not an object of named arguments") as refused:
        task_of(int).arguments("[1]", run)
    assert type(refused.value) is InvalidValue
    assert refused.value.value == [1]
    assert task_of(int).arguments("null", RunContext(records.RunRecord(id="r", task="keep"))) == {}


def test_an_annotation_that_may_be_a_run_or_something_else_is_not_the_run() -> None:
    for annotation in (RunContext | str, "RunContext | str", str | None):
        task = task_of(annotation)
        assert task.wants_run is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_does_not_wait_for_who_made_converters_in_its_parent() -> None:
    with conversion._making:
        child = os.fork()
        if child == 0:
            try:
                task_of(Decimal).bind(Decimal(1))
                os._exit(0)
            finally:
                os._exit(1)
        deadline = time_module.monotonic() + 30
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time_module.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            time_module.sleep(0.005)
    assert ended[1] == 0


@pytest.mark.parametrize(
    ("given", "back"),
    [
        (Colour.RED, MORNING),
        (MORNING, MORNING + timedelta(hours=1)),
        ({"at": MORNING}, [1]),
        ([1, MORNING], {1}),
        ([1, 2], [1]),
        (Tea("tea", Decimal(1)), Line("tea", Decimal(1))),
    ],
)
def test_a_difference_is_found(given: Any, back: Any) -> None:
    assert find_change(given, back) == (given, back)


def test_a_list_that_is_returned_does_not_stand_for_a_set() -> None:
    assert find_change([1], {1}) is None
    assert find_change([1], {1}, allow_json=False) == ([1], {1})


def test_one_wrong_argument_among_right_ones_is_refused() -> None:
    app = Scheduler("memory://")
    with pytest.raises(InvalidValue, match="argument at of task"):
        app.enqueue("elsewhere", {"team": "ops", "at": MORNING})


def test_a_default_of_none_is_not_an_annotation() -> None:
    def function(free=None, unknown: Missing = None) -> None:  # type: ignore[no-untyped-def,name-defined]  # noqa: F821
        pass

    task: Task[..., Any] = Task(function, "old")
    assert task.bind(free={"a": 1}, unknown=None).payload == {"free": {"a": 1}, "unknown": None}
    with pytest.raises(InvalidValue, match="annotate it: free: datetime"):
        task.bind(free=MORNING)
    with pytest.raises(
        InvalidValue, match="annotation \"Missing\" can't be used: name 'Missing' is not defined"
    ):
        task.bind(unknown=MORNING)


def test_arguments_that_are_too_long_together_are_called_the_payload() -> None:
    app = Scheduler("memory://")
    app.task(name="two")(lambda a, b: (a, b))
    half = "x" * 600_000
    with pytest.raises(InvalidValue, match="payload is 1,200,"):
        app.enqueue("two", {"a": half, "b": half})
    with pytest.raises(InvalidValue, match='argument a of task "two" is 1,200,002 bytes'):
        app.enqueue("two", {"a": half * 2, "b": ""})


class Strict(msgspec.Struct):
    value: int

    def __post_init__(self) -> None:
        assert self.value < 5


def test_a_result_that_a_class_of_the_users_refuses_is_given_as_json() -> None:
    app = Scheduler("memory://")

    @app.task
    def make() -> Strict: ...  # type: ignore[empty-body]  # only its annotation counts

    assert app.tasks.read_result("make", '{"value":9}') == {"value": 9}
    assert app.tasks.read_result("make", '{"value":3}') == Strict(3)
