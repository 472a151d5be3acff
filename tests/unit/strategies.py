"""Hypothesis strategies: cron texts, and triggers of every kind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import reject
from hypothesis import strategies as st

from evenbeat import At, Cron, Every, InvalidTrigger, InvalidValue, Trigger, at, cron, every
from evenbeat.core.instants import FIRST, LAST, from_ms

ZONES = (
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "America/Santiago",
    "Pacific/Apia",
    "Asia/Amman",
    "Europe/Riga",
    "UTC",
)
GAPS = ("shift", "skip")
REPEATS = ("first", "last", "both")
DAYS = ("either", "both")

_MONTHS = ("jan", "FEB", "Mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "MON", "Tue", "wed", "thu", "fri", "sat")


def _items(low: int, high: int, size: int) -> st.SearchStrategy[str]:
    value = st.integers(low, high).map(str)
    step = st.integers(1, size).map(str)
    span = st.builds("{}-{}".format, value, value)
    return st.one_of(
        value,
        value,
        span,
        st.builds("{}/{}".format, st.one_of(st.just("*"), value, span), step),
        st.just("*"),
    )


def _lists(item: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(item, st.lists(item, min_size=1, max_size=4).map(",".join))


seconds = _lists(_items(0, 59, 60))
minutes = _lists(_items(0, 59, 60))
hours = _lists(_items(0, 23, 24))
months = st.one_of(
    st.just("*"),
    _lists(st.one_of(_items(1, 12, 12), st.sampled_from(_MONTHS))),
    st.builds("{}-{}".format, st.sampled_from(_MONTHS), st.sampled_from(_MONTHS)),
)
dates = st.one_of(
    st.just("*"),
    st.just("?"),
    _lists(
        st.one_of(
            _items(1, 31, 31),
            st.sampled_from(["L", "LW", "l", "lw"]),
            st.integers(0, 30).map("L-{}".format),
            st.integers(1, 31).map("{}W".format),
        )
    ),
)
_weekday = st.one_of(st.integers(0, 7).map(str), st.sampled_from(_WEEKDAYS))
weekdays = st.one_of(
    st.just("*"),
    st.just("?"),
    _lists(
        st.one_of(
            _items(0, 7, 7),
            _weekday,
            st.builds("{}-{}".format, _weekday, _weekday),
            st.builds("{}#{}".format, _weekday, st.integers(1, 5)),
            st.builds("{}L".format, _weekday),
        )
    ),
)

texts = st.one_of(
    st.builds("{} {} {} {} {}".format, minutes, hours, dates, months, weekdays),
    st.builds("{} {} {} {} {} {}".format, seconds, minutes, hours, dates, months, weekdays),
)
"""Cron texts of five or six fields. A few of them never match, and are refused."""

_early = st.sampled_from(["0", "1", "2", "3", "4", "22", "23"])
_early_hours = st.one_of(
    st.just("*"),
    _lists(
        st.one_of(
            _early,
            _early,
            st.builds("{}-{}".format, _early, _early),
            st.sampled_from(["*/2", "*/3", "1/2", "0-23", "*/12", "23-3/2"]),
        )
    ),
)
_most_days = st.one_of(st.just("* * *"), st.builds("{} {} {}".format, dates, months, weekdays))
_few_seconds = st.one_of(
    st.sampled_from(["", "", "* ", "30 ", "*/20 "]),
    st.lists(st.integers(0, 59), max_size=3).map(
        lambda values: ",".join(map(str, values)) + " " if values else ""
    ),
)

night_texts = st.builds("{}{} {} {}".format, _few_seconds, minutes, _early_hours, _most_days)
"""Cron texts that match around the hours at which clocks change, on most days."""


# -- triggers -------------------------------------------------------------------------------------

_hashes = st.sampled_from(["H", "h", "H/2", "H/7", "h/12"])


def _with_hashes(field: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(_hashes, st.builds("{},{}".format, field, _hashes), field)


hashed_texts = st.builds(
    "{} {} {} {} {}".format,
    _with_hashes(minutes),
    _with_hashes(hours),
    _with_hashes(dates),
    _with_hashes(months),
    st.one_of(st.sampled_from(["H", "H/2", "h,mon"]), weekdays),
)

our_time = st.datetimes(datetime(1971, 1, 1), datetime(2069, 1, 1), timezones=st.just(UTC))
instants = st.one_of(
    st.integers(FIRST, LAST), st.integers(0, 3_000_000_000_000), st.sampled_from([FIRST, 0, LAST])
)
"""Milliseconds: of all time, and of our time more often."""


@st.composite
def cron_triggers(draw: st.DrawFn, texts: st.SearchStrategy[str] = texts, bounded: bool = True) -> Cron:
    """Cron with any text, zone and options."""
    start = draw(st.none() | our_time) if bounded else None
    until = draw(st.none() | our_time) if bounded else None
    try:
        trigger = cron(
            draw(texts),
            tz=draw(st.sampled_from(ZONES)),
            gap=draw(st.sampled_from((None, "shift", "skip"))),
            repeat=draw(st.sampled_from((None, "first", "last", "both"))),
            days=draw(st.sampled_from((None, "both"))),
            start=start,
            until=until,
        )
    except InvalidTrigger as refused:
        if "never matches" in str(refused) or "has no tick" in str(refused):
            reject()
        raise
    assert isinstance(trigger, Cron)
    return trigger


periods = st.one_of(
    st.integers(1, 100).map(lambda seconds: timedelta(seconds=seconds)),
    st.timedeltas(timedelta(milliseconds=1), timedelta(days=36_500)).map(
        lambda period: max(period - period % timedelta(milliseconds=1), timedelta(milliseconds=1))
    ),
    st.sampled_from([timedelta(days=1), timedelta(hours=1), timedelta(weeks=1), timedelta(0)]),
)


@st.composite
def every_triggers(draw: st.DrawFn) -> Every:
    moments = instants.map(from_ms)
    try:
        return every(draw(periods), start=draw(st.none() | moments), until=draw(st.none() | moments))
    except InvalidValue as refused:
        if refused.field in ("start", "until"):
            reject()
        raise


at_triggers: st.SearchStrategy[At] = instants.map(from_ms).map(at)

triggers: st.SearchStrategy[Trigger] = st.one_of(
    cron_triggers(), cron_triggers(hashed_texts), every_triggers(), at_triggers
)
