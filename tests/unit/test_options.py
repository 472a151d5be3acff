"""Options: readers, flags and settings take the types, bounds and defaults of one description."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from types import NoneType
from typing import Any, get_args, get_type_hints

import click
import pytest

from evenbeat import InvalidValue, Scheduler, every
from evenbeat.cli.commands.run import command as run_command
from evenbeat.cli.commands.schedules.add import command as add_command
from evenbeat.cli.commands.schedules.update import command as update_command
from evenbeat.core.checks import check_schedule
from evenbeat.core.dependencies import After
from evenbeat.core.option import Option
from evenbeat.core.options import EXECUTION, NEW_SCHEDULE, NODE, RUN, SCHEDULE, SETTINGS, Options
from evenbeat.core.records import CatchUp, Execution, ScheduleRecord
from evenbeat.node.settings import NodeOptions, NodeSettings
from evenbeat.tasks.options import NewScheduleOptions, RunOptions, ScheduleOptions

EVERY = {**NEW_SCHEDULE, **SETTINGS}
TYPES: dict[str, set[Any]] = {
    "count": {int},
    "duration": {str, timedelta, int, float},
    "label": {str},
    "labels": {Iterable[str]},
    "hosts": {Iterable[str]},
    "tags": {Iterable[str]},
    "priority": {int, str},
    "text": {str},
    "url": {str},
    "web_url": {str},
    "flag": {bool},
    "rate": {str},
    "after": {After, str},
}


@pytest.mark.parametrize(
    ("described", "typed"),
    [(RUN, RunOptions), (SCHEDULE, ScheduleOptions), (NEW_SCHEDULE, NewScheduleOptions), (NODE, NodeOptions)],
)
def test_the_types_for_type_checkers_are_those_of_the_descriptions(described: Options, typed: type) -> None:
    hints = get_type_hints(typed)
    assert list(hints) == list(described)
    for name, option in described.items():
        if option.kind == "choice":
            assert get_args(hints[name]) == option.choices
        else:
            wanted = TYPES[option.kind] | ({NoneType} if option.is_optional else set())
            found = (
                {hints[name]}
                if option.kind in ("labels", "hosts", "tags")
                else set(get_args(hints[name]) or [hints[name]])
            )
            assert found == wanted, name


@pytest.mark.parametrize("option", EVERY.values(), ids=EVERY)
def test_every_option_is_described_in_sentences_and_reads_its_own_default(option: Option) -> None:
    assert option.help[0].isupper() or option.help[0].isdigit()
    assert option.help.endswith(".")
    if option.default is not None or option.is_optional:
        is_duration = option.kind == "duration" and option.default is not None
        written = option.default / 1000 if is_duration else option.default
        if option.kind == "tags":
            written = option.default.split()
        assert option.read(written) == option.default


def test_the_defaults_are_those_of_records_and_nodes() -> None:
    schedule = ScheduleRecord(name="n", task="t", trigger="every 1m")
    late = CatchUp()
    records = {name: getattr(Execution(), name) for name in EXECUTION}
    records |= {"catch_up": late.kind, "grace": late.grace, "catch_up_limit": late.limit}
    records |= {"catch_up_max_age": late.max_age, "catch_up_rate": late.rate}
    records |= {name: getattr(schedule, name) for name in SCHEDULE if name not in records}
    assert {name: option.default for name, option in SCHEDULE.items()} == records
    assert {name: option.default for name, option in NODE.items()} == {
        name: getattr(NodeSettings(), name) for name in NodeSettings.__struct_fields__
    }


@pytest.mark.parametrize("name", ["retries", "max_crashes", "catch_up_limit", "max_concurrent"])
def test_records_refuse_what_options_refuse(name: str) -> None:
    option = SCHEDULE[name]
    assert option.high is not None
    for value in (option.low - 1, option.high + 1):
        with pytest.raises(InvalidValue, match=rf"^{name} {value} is not a whole number of ") as by_option:
            option.read(value)
        fields: dict[str, Any] = {name: value}
        if name in EXECUTION:
            fields = {"execution": Execution(**fields)}
        elif name == "catch_up_limit":
            fields = {"catch_up": CatchUp(limit=value)}
        with pytest.raises(InvalidValue) as by_record:
            check_schedule(ScheduleRecord(name="n", task="t", trigger="every 1m", **fields))
        assert str(by_option.value) == str(by_record.value)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        (NODE["lease"], "10ms", 'lease "10ms" is shorter than 1s'),
        (NODE["lease"], timedelta(0), "lease 0:00:00 is shorter than 1s"),
        (SCHEDULE["spread"], "2d", 'spread "2d" is longer than 1d'),
        (SCHEDULE["timeout"], 0, "timeout 0 is shorter than 1ms"),
        (SCHEDULE["backoff"], None, "backoff None is not a duration"),
        (SCHEDULE["overlap"], "wait", 'overlap "wait" is not one of allow, skip, queue'),
        (SCHEDULE["queue"], "a b", 'queue "a b" is not 1 to 128 letters'),
        (SCHEDULE["priority"], 10, "priority 10 is not one of 0-9"),
        (SCHEDULE["description"], "x" * 1001, "description is 1,001 characters long; at most 1,000"),
        (SCHEDULE["description"], 5, "description 5 is not a text"),
        (SCHEDULE["retries"], True, "retries True is not a whole number of 0 to 1,000"),
        (NEW_SCHEDULE["paused"], 1, "paused 1 is not True or False"),
        (NODE["queues"], [], "queues is empty"),
        (NODE["queues"], 5, "queues 5 are not names"),
        (
            NODE["public_url"],
            "jobs.example.com",
            'public_url "jobs.example.com" is not the URL of a web site',
        ),
        (NODE["public_url"], "http://ann:pw@jobs", 'public_url "http://ann:pw@jobs" is not the URL'),
        (NODE["allow_private_webhooks"], 5, "allow_private_webhooks 5 is not a list of host names"),
        (
            NODE["allow_private_webhooks"],
            ["http://hooks"],
            'allow_private_webhooks "http://hooks" is not the name or address of a host; write it without',
        ),
    ],
)
def test_a_value_out_of_bounds_is_refused_with_them(option: Option, value: object, message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        option.read(value)
    assert str(caught.value).startswith(message)
    assert caught.value.field.startswith(option.name.removesuffix("s"))


def flags(command: click.Command) -> dict[str, click.Option]:
    found = [option for option in command.params if isinstance(option, click.Option)]
    return {option.name: option for option in found}


def test_every_option_of_a_schedule_is_a_flag_of_add_and_update() -> None:
    assert NEW_SCHEDULE.keys() <= flags(add_command).keys()
    assert SCHEDULE.keys() <= flags(update_command).keys()
    for name, option in SCHEDULE.items():
        assert flags(update_command)[name].help == option.help.replace("`", "")


def test_every_option_of_a_node_is_a_flag_of_run_with_its_default() -> None:
    found = flags(run_command)
    assert NODE.keys() <= found.keys()
    assert found["lease"].help == f"{NODE['lease'].help}  [default: 30s]"
    assert (found["process_concurrency"].help or "").endswith("[default: cores]")


class TestOptionsWithoutEffect:
    """``grace`` is for ``skip`` alone, ``catch_up_limit`` has no effect on ``latest``."""

    WRONG: tuple[tuple[dict[str, Any], str], ...] = (
        ({"grace": "5m"}, 'grace "5m" has no effect with catch_up="latest"; add catch_up="skip"'),
        ({"grace": "5m", "catch_up": "all"}, 'grace "5m" has no effect with catch_up="all"'),
        ({"catch_up_limit": 5}, 'catch_up_limit 5 has no effect with catch_up="latest"; add catch_up="all"'),
    )

    @pytest.fixture
    def app(self) -> Scheduler:
        return Scheduler("memory://")

    @pytest.mark.parametrize(("options", "message"), WRONG)
    def test_they_are_refused(self, app: Scheduler, options: dict[str, Any], message: str) -> None:
        for make in (app.schedules.add, app.schedules.declare):
            with pytest.raises(InvalidValue) as caught:
                make("nightly", "@daily", "cleanup", **options)
            assert str(caught.value).startswith(message)
        assert app.schedules.list() == []

    def test_a_decorated_task_refuses_them_at_once(self, app: Scheduler) -> None:
        with pytest.raises(InvalidValue, match="grace"):
            app.task(schedule=every("1h"), grace="5m")
        assert len(app.tasks) == 0

    def test_an_update_is_judged_by_its_result(self, app: Scheduler) -> None:
        app.schedules.add("nightly", "@daily", "cleanup")
        with pytest.raises(InvalidValue, match='grace "5m" has no effect with catch_up="latest"'):
            app.schedules.update("nightly", grace="5m")
        app.schedules.update("nightly", catch_up="skip", grace="5m")
        assert app.schedules.update("nightly", grace="6m").grace == timedelta(minutes=6)
        with pytest.raises(InvalidValue, match='grace "7m" has no effect with catch_up="all"'):
            app.schedules.update("nightly", catch_up="all", grace="7m")
        assert app.schedules.update("nightly", catch_up="all", catch_up_limit=5).catch_up_limit == 5
        assert app.schedules.update("nightly", catch_up="latest").catch_up == "latest"

    def test_a_limit_bounds_the_ticks_within_the_grace_too(self, app: Scheduler) -> None:
        options: NewScheduleOptions = {"catch_up": "skip", "grace": "5m", "catch_up_limit": 5}
        made = app.schedules.add("nightly", "@daily", "cleanup", **options)
        assert (made.grace, made.catch_up_limit) == (timedelta(minutes=5), 5)
