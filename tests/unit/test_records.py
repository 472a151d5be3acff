"""Records: JSON texts, and clear errors for bad input (cases 33 to 36)."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from evenbeat.core.checks import check_execution, check_run, read_priority
from evenbeat.core.json_text import from_json, read_definition, to_json
from evenbeat.core.records import Execution, RunRecord
from evenbeat.errors import InvalidValue


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        None,
        0,
        2**63 - 1,
        -(2**63),
        1.5,
        "",
        "\0",
        "‮ right to left",
        "😀",
        {"a": [1, {"b": None}]},
        nested(99),  # 100 with the innermost
    ],
)
def test_a_json_value_is_read_back(value: Any) -> None:
    assert from_json(to_json(value)) == value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("\ud800", "payload is not JSON"),
        (nested(100), "payload is nested on more than 100 levels"),
        (nested(10_000), "payload is nested on more than 100 levels"),
        (object(), "payload is not JSON"),
        ({1, 2}.__iter__(), "payload is not JSON"),
        (
            "x" * 1_000_000,
            "payload is 1,000,002 bytes of JSON, the limit is 1,000,000; store the data elsewhere",
        ),
        ("x" * 10_000_000, "the limit is 1,000,000"),
    ],
)
def test_a_value_that_json_can_not_express_is_refused(value: Any, says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        to_json(value)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"id": ""}, 'id "" is not 1 to 400 visible characters'),
        ({"id": "a b"}, 'id "a b" is not'),
        ({"id": "x" * 401}, "is not 1 to 400"),
        ({"tenant": "a/b"}, 'tenant "a/b" is not'),
        ({"queue": ""}, 'queue "" is not'),
        ({"priority": 2**63}, "priority 9223372036854775808 is not"),
        ({"run_at": 2**63}, "run_at 9223372036854775808 is not a whole number"),
        ({"task": "\n"}, "task"),
    ],
)
def test_a_run_that_no_store_should_hold_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        check_run(RunRecord(**{"id": "r", "task": "work", **fields}))


@pytest.mark.parametrize("retries", [-1, 2**63, 1001, 1.5, True])
def test_retries_out_of_range_are_refused(retries: Any) -> None:
    with pytest.raises(InvalidValue, match="retries"):
        check_execution(Execution(retries=retries))


def test_priorities_have_names() -> None:
    assert [read_priority(name) for name in ("low", "normal", "high", 0, 9)] == [2, 5, 8, 0, 9]
    with pytest.raises(InvalidValue, match='priority "urgent" is not one of 0-9, low, normal, high'):
        read_priority("urgent")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"x": float("nan")}, "contains nan"),
        ({"x": [1.0, {"y": float("inf")}]}, "contains inf"),
        ([(float("-inf"),)], "contains -inf"),
        ({1: "a", "1": "b"}, 'equal in JSON: "1"'),
        ({"deep": [{2: "a", "2": "b"}]}, 'equal in JSON: "2"'),
        ({float("nan"): 1}, "has the key nan"),
    ],
)
def test_a_value_that_the_encoder_would_change_is_refused(value: object, says: str) -> None:
    with pytest.raises(InvalidValue, match=re.escape(says)):
        to_json(value)
    with pytest.raises(InvalidValue, match=r"^result "):
        to_json(value, "result")


def test_numbers_and_keys_that_json_can_express_are_kept() -> None:
    assert from_json(to_json({"x": 1e308, "y": [0.0, -1.5], "z": {1: "a", 2: "b"}})) == {
        "x": 1e308,
        "y": [0.0, -1.5],
        "z": {"1": "a", "2": "b"},
    }


READ_BY_MANY_THREADS = """
import sys, threading
import msgspec
from evenbeat.core.records import ScheduleRecord

sys.setswitchinterval(1e-6)
together = threading.Barrier(16)

def read():
    together.wait()
    msgspec.convert({"name": "a", "task": "t", "trigger": "every 1m", "execution": {}}, ScheduleRecord)

threads = [threading.Thread(target=read) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_records_are_ready_for_many_threads_once_they_are_imported() -> None:
    # Without the preparation, one process in seven died here.
    for _ in range(5):
        subprocess.run([sys.executable, "-c", READ_BY_MANY_THREADS], check=True, timeout=60)


@pytest.mark.parametrize("text", ['{"payload":' + "[" * 100_000 + "]" * 100_000 + "}", "{", "{}"])
def test_a_declared_definition_that_can_not_be_read_is_refused_as_such(text: str) -> None:
    with pytest.raises(InvalidValue, match="the declared definition can't be read"):
        read_definition(text)
