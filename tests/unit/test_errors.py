"""Errors: one root, facts as attributes, and copies that keep both."""

from __future__ import annotations

import copy
import pickle

import pytest

from evenbeat import EvenbeatError, InvalidTrigger, InvalidValue, cron
from evenbeat.errors import ScheduleExists, ScheduleNotFound, SchemaTooNew, StoreUnavailable, shown


def refused() -> InvalidTrigger:
    with pytest.raises(InvalidTrigger) as caught:
        cron("61 * * * *")
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        refused(),
        InvalidValue("name is wrong", field="name", value="x", hint="try another"),
        ScheduleExists("acme", "cleanup"),
        ScheduleNotFound("acme", "cleanup"),
        SchemaTooNew(7, 1),
        StoreUnavailable("locked"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_being_copied_and_pickled(error: EvenbeatError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301  # our own, just made
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.__dict__ == error.__dict__


def test_a_hostile_value_is_shown_escaped_and_short() -> None:
    assert shown("\x1b[2J\u202e") == '"\\x1b[2J\\u202e"'
    assert len(shown("x" * 10_000)) < 100
    assert shown(10**5000) == "<int>"
