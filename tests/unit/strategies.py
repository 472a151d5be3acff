"""Hypothesis strategies for cron texts, shared by the tests of cron."""

from __future__ import annotations

from hypothesis import strategies as st

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
