"""What becomes of a document after it was processed: pure, from its fields alone."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat import InvalidTrigger, InvalidValue
from evenbeat.core.instants import from_ms, to_ms
from evenbeat.documents import Found
from evenbeat.documents.base import HELD_AT
from evenbeat.documents.rules import (
    REMOVE,
    Disposition,
    DocumentPlan,
    Policy,
    after_failure,
    after_success,
    is_yes,
    next_start,
    read,
)
from evenbeat.testing.clock import START
from tests.unit.strategies import triggers

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
PLAIN = Policy()


def plan(due: int = START, **fields: Any) -> DocumentPlan:
    return read(Found(fields.pop("id", "a"), due, due + HOUR, **fields))


def success(due: int, now: int, policy: Policy = PLAIN, **fields: Any) -> Disposition:
    return after_success(plan(due, **fields), now, policy)


# One-time, deferred, removed


def test_a_one_time_document_is_done() -> None:
    assert success(START, START + 5) is None


def test_a_deferred_document_is_done_as_well() -> None:
    assert success(START + DAY, START + DAY + 5) is None


def test_a_document_with_auto_remove_is_removed() -> None:
    assert success(START, START + 5, auto_remove=True) == REMOVE


def test_a_recurring_document_is_removed_after_its_last_tick_only() -> None:
    fields: Any = {"interval": "0 * * * *", "repeat_until": from_ms(START + HOUR), "auto_remove": True}
    assert success(START, START + 5, **fields) == START + HOUR
    assert success(START + HOUR, START + HOUR + 5, **fields) == REMOVE


# Recurring


@pytest.mark.parametrize(
    ("interval", "later"),
    [
        ("* * * * *", MINUTE),
        ("* * * * * *", SECOND),
        ("*/20 * * * * *", 20 * SECOND),
        ("every 10m", 10 * MINUTE),
        ("@every 90s", 90 * SECOND),
        ("@hourly", HOUR),
        ("0 9 * * * tz=Europe/Berlin", 20 * HOUR),  # 9:00 there is 8:00Z
        ("30 12 * * *", 30 * MINUTE),
    ],
)
def test_a_recurring_document_is_due_at_its_next_tick(interval: str, later: int) -> None:
    assert success(START, START + 5, interval=interval) == START + later


def test_an_interval_counts_from_when_the_document_was_due() -> None:
    assert success(START + 7, START + 500, interval="every 10m") == START + 7 + 10 * MINUTE


def test_an_interval_with_a_start_counts_from_that() -> None:
    assert success(START + 7, START + 500, interval="every 10m start=2026-01-01T00:01:00Z") == START + MINUTE


def test_hashed_fields_spread_documents_by_their_ids() -> None:
    found = {success(START, START + 5, id=number, interval="H H * * *") for number in range(50)}
    assert len(found) > 40
    assert success(START, START, id="a", interval="H * * * *") == success(
        START, START, id="a", interval="H * * * *"
    )


def test_ids_that_have_no_hash_are_spread_as_well() -> None:
    assert isinstance(success(START, START, id={"region": "eu"}, interval="H H * * *"), int)


def test_a_zone_keeps_its_hour_when_clocks_change() -> None:
    before = 1_774_684_800_000  # 2026-03-28T08:00:00Z, 9:00 in Berlin; summer time begins on the 29th
    assert success(before, before + 5, interval="0 9 * * * tz=Europe/Berlin") == before + DAY - HOUR


def test_a_single_tick_is_an_interval_that_ends() -> None:
    assert success(START, START, interval="at 2026-03-02T12:00:00Z") == START + DAY
    assert success(START + DAY, START + DAY, interval="at 2026-03-02T12:00:00Z") is None


def test_an_interval_may_end_by_itself() -> None:
    assert success(START, START, interval="every 10m until=2026-03-01T12:05:00Z") is None
    assert success(START, START, interval="every 5m until=2026-03-01T12:05:00Z") == START + 5 * MINUTE


@pytest.mark.parametrize("interval", [None, ""])
def test_an_empty_interval_is_no_interval(interval: str | None) -> None:
    assert plan(interval=interval).trigger is None


def test_repeat_until_is_inclusive() -> None:
    fields: Any = {"interval": "0 * * * *", "repeat_until": from_ms(START + HOUR)}
    assert success(START, START + 5, **fields) == START + HOUR
    assert success(START, START + 5, **fields | {"repeat_until": from_ms(START + HOUR - 1)}) is None


def test_repeat_until_ends_an_overdue_document() -> None:
    assert success(START, START + HOUR + 1, interval="* * * * *", repeat_until=from_ms(START + HOUR)) is None


def test_an_overdue_document_is_due_at_the_next_tick_from_now() -> None:
    now = START + 10 * DAY + 2 * SECOND + 3
    upcoming = success(START, now, interval="* * * * * *")
    assert upcoming == START + 10 * DAY + 3 * SECOND
    # Missed ticks are not made up for.
    assert success(upcoming, upcoming + 5, interval="* * * * * *") == upcoming + SECOND


def test_a_tick_that_is_right_now_is_not_missed() -> None:
    assert success(START, START + HOUR, interval="0 * * * *") == START + HOUR


def test_an_overdue_interval_keeps_its_phase() -> None:
    assert success(START + 7, START + 7 + 25 * MINUTE, interval="every 10m") == START + 7 + 30 * MINUTE


def test_reprocess_delay_skips_ticks_that_are_too_near() -> None:
    policy = Policy(reprocess_delay=90 * SECOND)
    assert success(START, START + 5, policy, interval="* * * * *") == START + 2 * MINUTE
    # Counted from when it was due: a delay does not add up.
    assert success(START, START + 5 * MINUTE, policy, interval="* * * * *") == START + 5 * MINUTE
    assert success(START, START, Policy(reprocess_delay=MINUTE), interval="* * * * *") == START + 2 * MINUTE


def test_reprocess_delay_and_repeat_until() -> None:
    policy = Policy(reprocess_delay=HOUR)
    assert success(START, START, policy, interval="* * * * *", repeat_until=from_ms(START + HOUR)) is None


# Failure


def failure(now: int, policy: Policy, **fields: Any) -> Disposition:
    return after_failure(plan(**fields), now, policy)


def test_a_failed_document_is_due_at_its_next_tick() -> None:
    assert failure(START + 5, PLAIN, interval="0 * * * *") == START + HOUR


def test_a_failed_document_without_a_next_tick_is_held() -> None:
    assert failure(START + 5, PLAIN) == HELD_AT
    assert failure(START + 5, PLAIN, auto_remove=True) == HELD_AT
    assert failure(START + 5, PLAIN, interval="0 * * * *", repeat_until=from_ms(START + 1)) == HELD_AT


def test_a_failed_document_is_retried() -> None:
    policy = Policy(on_failure="retry", retry_delay=5000)
    assert failure(START + 7, policy) == START + 5007
    assert failure(START + 7, policy, interval="0 * * * *", repeat_until=from_ms(START + 1)) == START + 5007


def test_a_retry_without_delay_does_not_restore_the_old_time() -> None:
    # It may have been the lock of a processor that is late, and that would take it for its own.
    assert failure(START, Policy(on_failure="retry", retry_delay=0)) == START + 1


def test_on_failure_hold_holds_a_failed_document() -> None:
    assert failure(START, Policy(on_failure="hold"), interval="* * * * *") == HELD_AT


@pytest.mark.parametrize("on_failure", ["reschedule", "retry", "hold"])
@pytest.mark.parametrize("interval", [None, "0 * * * *", "at 2026-03-01T12:00:00Z"])
def test_a_failed_document_is_never_removed(on_failure: Any, interval: str | None) -> None:
    policy = Policy(on_failure=on_failure)
    assert (
        failure(START + DAY, policy, interval=interval, auto_remove=True, repeat_until=from_ms(START))
        != REMOVE
    )


# The fields of a document


@pytest.mark.parametrize(
    "value",
    [
        from_ms(START),
        from_ms(START).replace(tzinfo=None),
        from_ms(START).astimezone(timezone(timedelta(hours=5))),
        "2026-03-01T12:00:00Z",
        "2026-03-01T13:00:00+01:00",
        "2026-03-01 12:00:00",
    ],
)
def test_repeat_until_is_read_in_every_format(value: object) -> None:
    assert plan(repeat_until=value).repeat_until == START


@pytest.mark.parametrize("value", [None, ""])
def test_an_empty_repeat_until_is_no_end(value: object) -> None:
    assert plan(repeat_until=value).repeat_until is None


@pytest.mark.parametrize("value", ["tomorrow", True, 5, START, 1.5, ["x"], "9999-12-31T23:59:59Z"])
def test_an_invalid_repeat_until_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidValue, match="repeat_until") as caught:
        plan(repeat_until=value)
    assert caught.value.field == "repeat_until"


@pytest.mark.parametrize(
    "value", ["61 * * * *", "hourly", "* * *", "every", "every -5m", "0 9 * * * tz=Mars"]
)
def test_an_invalid_interval_is_refused_by_name(value: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        plan(interval=value)
    assert caught.value.text == value


@pytest.mark.parametrize(
    "value", [5, 1.5, True, datetime(2026, 1, 1, tzinfo=UTC), {"every": "5m"}, b"* * * * *"]
)
def test_an_interval_that_is_not_a_text_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidValue, match="is not a text") as caught:
        plan(interval=value)
    assert caught.value.field == "interval"


@pytest.mark.parametrize("value", [True, 1, "true", "yes", "1", "t", " TRUE ", "on"])
def test_values_that_mean_yes(value: object) -> None:
    assert is_yes(value)


@pytest.mark.parametrize(
    "value", [None, False, 0, "", "0", "false", "False", " no ", "f", "n", "off", "null"]
)
def test_values_that_mean_no(value: object) -> None:
    assert not is_yes(value)


@pytest.mark.parametrize("value", ["maybe", "never", "0.0", "2"])
def test_an_auto_remove_that_is_neither_yes_nor_no_is_refused(value: str) -> None:
    with pytest.raises(InvalidValue, match=f'auto_remove "{value}" is neither yes nor no; write "1" or "0"'):
        plan(auto_remove=value)


# Any document

moments = st.integers(START - 400 * DAY, START + 400 * DAY)


@given(triggers, moments, st.integers(0, 30 * DAY), st.integers(0, DAY), st.none() | moments)
def test_the_next_start_is_a_tick_after_the_last_not_before_now_and_within_the_end(
    trigger: Any, due: int, late: int, delay: int, until: int | None
) -> None:
    bound = trigger.bind("a", due)
    now = due + late
    upcoming = next_start(DocumentPlan(due, bound, until), now, delay)
    if upcoming is None:
        # Then there is no such tick.
        tick = bound.next_ms(max(due + delay, now - 1))
        assert tick is None or (until is not None and tick > until)
        return
    assert upcoming > due + delay
    assert upcoming >= now
    assert until is None or upcoming <= until
    assert bound.next_ms(upcoming - 1) == upcoming
    # And no tick was skipped.
    assert bound.count_ms(max(due + delay + 1, now), upcoming) == 0


@given(
    st.sampled_from(
        [None, "* * * * *", "*/7 * * * * *", "every 10m", "H H * * *", "at 2026-03-05T00:00:00Z"]
    ),
    moments,
    st.integers(0, 30 * DAY),
    st.booleans(),
    st.sampled_from(["reschedule", "retry", "hold"]),
    st.booleans(),
)
def test_sleep_until_only_ever_grows(
    interval: str | None, due: int, late: int, remove: bool, on_failure: Any, fails: bool
) -> None:
    """So that no document ever has an old lock again."""
    policy = Policy(on_failure=on_failure, retry_delay=0)
    decide = after_failure if fails else after_success
    disposition = decide(plan(due, interval=interval, auto_remove=remove), due + late, policy)
    assert disposition is None or disposition == REMOVE or disposition > due


def test_an_interval_of_postgresql_is_an_interval() -> None:
    trigger = plan(interval=timedelta(minutes=90)).trigger
    assert trigger is not None
    assert trigger.next_ms(START) == START + 90 * MINUTE


def test_repeat_until_a_date_includes_that_day() -> None:
    until = plan(repeat_until=date(2026, 3, 1)).repeat_until
    assert until == to_ms(datetime(2026, 3, 2, tzinfo=UTC)) - 1


def test_a_document_that_can_not_be_read_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidValue, match="the document can't be read: a date of the year 12000"):
        plan(trouble="a date of the year 12000")
