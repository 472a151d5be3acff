"""Planning many schedules at once gives the same ticks as each trigger alone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from evenbeat import At, Cron, Every, InvalidTrigger, InvalidValue, Trigger, at, cron, every, parse_trigger
from evenbeat.timeline import Plan
from tests.lengths import examples

HOUR = 3_600_000
DAY = 24 * HOUR

ZONES = (
    "UTC",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "America/Santiago",
    "Pacific/Apia",
    "Asia/Amman",
    "Europe/Riga",
    "Asia/Kathmandu",
)


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


# Clock changes of the zones above, an ordinary hour, a leap day, and Monrovia out of step until 1972.
WINDOWS = [
    ms("2026-03-08 05:00"),
    ms("2026-11-01 04:30"),
    ms("2026-04-04 14:00"),
    ms("2026-10-03 14:15"),
    ms("2026-02-15 01:00"),
    ms("2026-03-22 01:00"),
    ms("2026-09-06 03:00"),
    ms("2011-12-30 09:00"),
    ms("2022-02-24 21:30"),
    ms("2026-03-29 00:20"),
    ms("2026-10-25 00:00"),
    ms("2026-07-01 12:00"),
    ms("2028-02-28 23:30"),
    ms("1972-01-06 22:30"),
]


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high).map(str)
    return st.one_of(
        st.just("*"),
        number,
        st.lists(number, min_size=2, max_size=4).map(",".join),
        st.tuples(number, number).map("-".join),
        st.integers(2, high).map(lambda n: f"*/{n}"),
    )


@st.composite
def crons(draw: st.DrawFn) -> Trigger:
    fields = [draw(field(0, 59)), draw(field(0, 23))]
    fields.append(draw(st.one_of(st.just("*"), field(1, 28), st.sampled_from(["L", "L-3", "15W", "LW"]))))
    fields.append(draw(st.one_of(st.just("*"), field(1, 12))))
    fields.append(draw(st.one_of(st.just("*"), field(0, 6), st.sampled_from(["0#2", "5L", "1#1,6"]))))
    if draw(st.integers(0, 3)) == 0:
        fields.insert(0, draw(field(0, 59)))
    options = ["tz=" + draw(st.sampled_from([*ZONES, "Africa/Monrovia"]))]
    if draw(st.booleans()):
        options.append("repeat=" + draw(st.sampled_from(["first", "last", "both"])))
        options.append("gap=shift")
    if draw(st.booleans()):
        options.append("days=both")
    if draw(st.integers(0, 5)) == 0:
        start = draw(st.sampled_from(WINDOWS)) + draw(st.integers(-HOUR, 3 * HOUR))
        options.append(f"start={datetime.fromtimestamp(start // 1000, UTC).isoformat()}")
    try:
        return parse_trigger(" ".join(fields + options))
    except InvalidTrigger:  # 15W on a Saturday, say, never comes
        return reject()


@st.composite
def intervals(draw: st.DrawFn) -> Trigger:
    start = draw(st.one_of(st.none(), st.sampled_from(WINDOWS).flatmap(around)))
    until = draw(st.one_of(st.none(), st.sampled_from(WINDOWS).flatmap(around)))
    period = draw(st.sampled_from([1000, 7000, 59_999, 60_000, 90_000, 3_600_000, 86_400_000, 0]))
    if period == 0 and start is None:
        start = WINDOWS[0]
    if until is not None and start is not None and until < start:
        until = None
    return Every(period, start, until)


def around(instant: int) -> st.SearchStrategy[int]:
    return st.integers(instant - HOUR, instant + 3 * HOUR)


single = st.sampled_from(WINDOWS).flatmap(around).map(At)


@settings(max_examples=examples(400), deadline=None)
@given(
    triggers=st.lists(st.one_of(crons(), crons(), crons(), intervals(), single), max_size=12),
    start=st.sampled_from(WINDOWS).flatmap(around),
    length=st.one_of(st.integers(0, 2 * HOUR), st.just(HOUR)),
)
def test_a_plan_has_the_ticks_of_its_triggers(triggers: list[Trigger], start: int, length: int) -> None:
    schedules = [(f"s{i:02}", trigger) for i, trigger in enumerate(triggers)]
    expected = sorted(
        (tick, name) for name, trigger in schedules for tick in trigger.between_ms(start, start + length)
    )
    plan = Plan(reversed(schedules))
    assert plan.unroll(start, start + length).query(-(1 << 62), 1 << 62) == expected
    first, step, counts = plan.histogram(start, start + length)
    alone = [0] * len(counts)
    for trigger in triggers:
        for tick in trigger.between_ms(first, first + step * len(counts)):
            alone[(tick - first) // step] += 1
    assert counts.tolist() == alone


def test_ten_thousand_schedules_come_out_in_order_without_a_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_sort(*_: object) -> None:
        raise AssertionError("sorted")

    monkeypatch.setattr("evenbeat.timeline.numpy_columns._sorted", no_sort)
    texts = ["* * * * *", "*/5 * * * * tz=Asia/Kolkata", "0 9 * * mon-fri tz=Europe/Berlin"]
    plan = Plan((i, parse_trigger(texts[i % 3])) for i in range(10_000))
    ticks = plan.unroll(ms("2026-03-02 08:00"), ms("2026-03-02 09:00"))
    assert len(ticks) == 3334 * 60 + 3333 * 12 + 3333
    pairs = list(zip(ticks.times.tolist(), ticks.owners.tolist(), strict=True))
    assert pairs == sorted(pairs)


def test_a_histogram_counts_in_buckets_of_minutes() -> None:
    plan = Plan([("a", cron("*/15 * * * *")), ("b", cron("0 * * * *")), ("c", every("1s"))])
    start, step, counts = plan.histogram(ms("2026-03-02 08:00"), ms("2026-03-02 10:30"), minutes=60)
    assert start == ms("2026-03-02 08:00")
    assert step == HOUR
    # The last bucket is counted to the end of the window only.
    assert counts.tolist() == [4 + 1 + 3600, 4 + 1 + 3600, 2 + 1 + 1800]


def test_a_limit_cuts_the_window_to_whole_minutes_but_never_to_nothing() -> None:
    start = ms("2026-03-02 08:00")
    plan = Plan([("a", cron("* * * * * *"))])
    assert plan.unroll(start, start + DAY, limit=150).end == start + 120_000
    assert len(plan.unroll(start, start + DAY, limit=150)) == 120
    assert plan.unroll(start, start + DAY, limit=10).end == start + 60_000
    assert plan.unroll(start, start + HOUR, limit=3600).end == start + HOUR


def test_the_ends_of_time_are_not_an_error() -> None:
    plan = Plan([("a", cron("0 0 1 1 *")), ("b", every("7d")), ("c", at("2026-01-01T00:00:00Z"))])
    assert len(plan.unroll(1 << 62, 1 << 63)) == 0
    assert len(plan.unroll(-(1 << 63), -(1 << 62))) == 0
    assert len(plan.histogram(5, -5).counts) == 0


def test_a_value_that_is_not_a_trigger_is_refused() -> None:
    with pytest.raises(InvalidValue, match='"\\* \\* \\* \\* \\*" is not a trigger'):
        Plan([("a", "* * * * *")])  # type: ignore[list-item]  # the mistake under test


def test_equal_triggers_are_compiled_once() -> None:
    plan = Plan((i, cron("*/5 * * * *")) for i in range(1000))
    assert len(plan._table) == 1
    assert isinstance(cron("*/5 * * * *"), Cron)
