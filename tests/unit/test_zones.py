"""Zones: the windows found by probing are those of the zone's own data; names, and threads."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import pytest

from evenbeat import InvalidValue, cron
from evenbeat.core.instants import FIRST, LAST
from evenbeat.triggers import zones
from evenbeat.triggers.zones import CALM_MARGIN, Zone, read_zone, zone
from tests.lengths import LONG
from tests.unit import tzif

BEGIN = int(datetime(1970, 1, 1, tzinfo=UTC).timestamp())
END = int(datetime(2037, 12, 31, tzinfo=UTC).timestamp())
NOT_ZONES = {"localtime", "Factory", "posixrules"}
NAMES = sorted(name for name in available_timezones() if name not in NOT_ZONES)


def fresh(key: str) -> Zone:
    """A zone that knows nothing yet, so that tests do not fill the shared ones."""
    return Zone(key, ZoneInfo(key), None)


def changes(place: Zone, begin: int, end: int) -> list[tuple[int, int]]:
    """(second, new offset) of the windows that begin in [begin, end)."""
    found: dict[int, int] = {}
    second = begin
    while second < end:
        window = place.window(second)
        assert window.lo <= second < window.hi
        # A transition near the edge of a chunk is known on both sides of it.
        if window.lo >= begin and window.before != window.offset:
            found[window.lo] = window.offset
        following = place.window(window.hi)
        assert following.offset == window.after
        if window.after != window.offset:
            assert (following.lo, following.before) == (window.hi, window.offset)
        second = window.hi
    return sorted(found.items())


@LONG
def test_the_windows_of_every_zone_are_the_transitions_of_its_data() -> None:
    seen = set()
    for key in NAMES:
        history = tzif.history(tzif.data(key))
        # After its last transition a zone with summer time goes on by the rule in the footer.
        end = END if "," not in history.footer else min(END, history.last or BEGIN)
        expected = [change for change in history.changes if BEGIN <= change[0] < end]
        if (summary := (*expected, history.footer)) in seen:  # another name, or another past, of a zone
            continue
        seen.add(summary)
        assert changes(fresh(key), BEGIN, end) == expected, key
    assert len(seen) > 200


def test_no_zone_changes_twice_within_two_days() -> None:
    # Probing looks once a day, and margins are a day wide. True of all of history.
    for key in NAMES:
        seconds = [second for second, _ in tzif.history(tzif.data(key)).changes]
        gaps = [later - sooner for sooner, later in pairwise(seconds)]
        assert min(gaps, default=CALM_MARGIN * 2) >= 2 * 86_400, key


def test_no_clock_moves_by_more_than_the_margin() -> None:
    for key in NAMES:
        history = tzif.history(tzif.data(key))
        old = history.first
        for _, new in history.changes:
            assert abs(new - old) < CALM_MARGIN, key
            old = new


@pytest.mark.parametrize("year", [2040, 2090, 2300])
@pytest.mark.parametrize(
    "key",
    [
        "America/New_York",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "America/Santiago",
        "Europe/Riga",
        "Antarctica/Troll",
        "America/Nuuk",
        "Africa/Cairo",
        "Asia/Jerusalem",
        "Pacific/Chatham",
        "Asia/Tokyo",
    ],
)
def test_the_years_of_the_footer_are_those_found_hour_by_hour(key: str, year: int) -> None:
    info = ZoneInfo(key)
    begin = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    end = begin + 366 * 86_400
    offsets = [datetime.fromtimestamp(second, info).utcoffset() for second in range(begin, end, 1800)]
    expected = [
        (begin + 1800 * n, new // timedelta(seconds=1))
        for n, (old, new) in enumerate(pairwise(offsets), 1)
        if old is not None and new is not None and old != new
    ]
    assert changes(fresh(key), begin, end) == expected


def test_windows_cover_all_of_time() -> None:
    place = fresh("Europe/Riga")
    for second in (FIRST // 1000, -(10**10), -1, 0, 1, 1 << 25, (1 << 25) - 1, 10**11, LAST // 1000):
        window = place.window(second)
        assert window.lo <= second < window.hi
        assert window.offset == place.offset(second)


def test_a_calm_stretch_has_one_offset_and_stays_away_from_changes() -> None:
    for key in ("America/New_York", "Africa/Casablanca", "Pacific/Apia", "Asia/Manila"):
        place = fresh(key)
        all_changes = [second for second, _ in tzif.history(tzif.data(key)).changes]
        for second in range(1_290_000_000, 1_400_000_000, 777_777):
            lo, hi, offset = place.calm_around(second)
            if lo <= second < hi:
                assert place.offset(lo) == place.offset(hi - 1) == place.offset(second) == offset
                assert not any(lo - CALM_MARGIN < change < hi + CALM_MARGIN for change in all_changes)
            else:
                assert any(abs(change - second) <= CALM_MARGIN for change in all_changes)


@pytest.mark.parametrize(
    ("key", "offset"), [("UTC", 0), ("Etc/UTC", 0), ("Zulu", 0), ("GMT", 0), ("Etc/GMT+5", -18_000)]
)
def test_a_zone_without_changes_is_fixed(key: str, offset: int) -> None:
    place = zone(key)
    assert place.fixed == offset
    assert place.calm[2] == offset
    assert place.calm[0] < FIRST // 1000
    assert place.calm[1] > LAST // 1000
    assert place.offset(1_780_000_000) == offset


def test_a_zone_that_ever_changed_is_not_fixed() -> None:
    for key in ("Europe/Riga", "Asia/Tokyo", "Asia/Kolkata", "America/Phoenix"):
        assert zone(key).fixed is None


# -- names ----------------------------------------------------------------------------------------


def test_every_zone_of_the_database_is_accepted() -> None:
    for name in NAMES:
        assert zone(name).key == name


@pytest.mark.parametrize(
    "key",
    [
        "posix/Europe/Berlin",
        "right/Europe/Berlin",
        "posixrules",
        "localtime",
        "Factory",
        "../Europe/Berlin",
        "Europe/../Europe/Berlin",
        "/etc/localtime",
        "Europe//Berlin",
        "Europe/Berlin/",
        "Europe",
        "Europe/Berlin\n",
        "Europe/Berlin\x00",
        " Europe/Berlin",
        "tzdata.zi",
        "zone.tab",
        "",
        ".",
        "C:\\zoneinfo",
        "\ud800",
        "A" * 1000,
        "Europe/Bérlin",
    ],
)
def test_what_is_not_a_zone_is_refused(key: str) -> None:
    with pytest.raises(InvalidValue, match="is not an IANA time zone") as refused:
        zone(key)
    assert refused.value.field == "tz"


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/etc/localtime",
        "Europe/../UTC",
        "Europe//Berlin",
        "Europe/Berlin/",
        "Europe/Berlin\n",
        "C:\\UTC",
        "zone.tab",
        "Europe/Bérlin",
        "1/2",
        "_a",
        "-a",
        "+VERSION",
        "America/Argentina/Buenos_Aires/Norte",
        "A" * 65,
        "posix/UTC",
    ],
)
def test_what_can_not_be_a_name_is_refused_without_reading_the_disk(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked(name: str) -> ZoneInfo:
        raise AssertionError(f"looked for {name!r}")

    monkeypatch.setattr(zones, "ZoneInfo", looked)
    with pytest.raises(InvalidValue, match="is not an IANA time zone"):
        zone(key)


@pytest.mark.parametrize(
    "key", ["UTC0", "a1_+-", "Etc/GMT+12", "Etc/GMT-14", "A/1", "A/B_/C-1", f"{'A' * 64}"], ids=len
)
def test_what_may_be_a_name_is_searched_for(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def looked(name: str) -> ZoneInfo:
        asked.append(name)
        raise ZoneInfoNotFoundError(name)

    monkeypatch.setattr(zones, "ZoneInfo", looked)
    with pytest.raises(InvalidValue, match="is not an IANA time zone"):
        zones._find(key)
    assert asked == [key]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("Europe/Berlim", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("America/NewYork", "America/New_York"),
        ("Berlin", "Europe/Berlin"),
        ("new york", "America/New_York"),
        ("Tokio", "Asia/Tokyo"),
        ("America/Buenos Aires", "America/Buenos_Aires"),
    ],
)
def test_the_nearest_names_are_suggested(key: str, hint: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        zone(key)
    assert str(refused.value.hint).startswith(f"did you mean {hint}")


def test_no_suggestion_is_refused_itself() -> None:
    for key in ("Localtime", "Factry", "posixrule", "local"):
        with pytest.raises(InvalidValue) as refused:
            zone(key)
        assert not any(name in str(refused.value.hint) for name in NOT_ZONES)


def test_a_zone_is_read_from_a_name_a_zoneinfo_or_utc() -> None:
    berlin = zone("Europe/Berlin")
    assert read_zone("Europe/Berlin") is berlin
    assert read_zone(ZoneInfo("Europe/Berlin")) is berlin
    assert read_zone(ZoneInfo.no_cache("Europe/Berlin")) is berlin
    assert read_zone(UTC) is read_zone(ZoneInfo("UTC")) is read_zone("UTC")


@pytest.mark.parametrize("tz", [timezone(timedelta(hours=1)), None, 5, b"UTC"])
def test_what_has_no_name_is_refused(tz: object) -> None:
    with pytest.raises(InvalidValue, match='give its name, such as "Europe/Berlin" or "UTC"'):
        read_zone(tz)  # type: ignore[arg-type]


# -- one object per zone --------------------------------------------------------------------------


def test_a_pickled_or_copied_zone_is_the_same_object() -> None:
    for key in ("UTC", "Europe/Riga", "Etc/GMT+5"):
        place = zone(key)
        assert pickle.loads(pickle.dumps(place)) is place  # noqa: S301
        assert copy.copy(place) is place
        assert copy.deepcopy(place) is place
        assert repr(place) == f"Zone({key!r})"


def test_a_pickled_trigger_works_in_another_process() -> None:
    trigger = cron("30 2 * * *", tz="America/New_York", repeat="last")
    code = (
        "import pickle, sys; t = pickle.loads(sys.stdin.buffer.read());"
        "sys.stdout.write(f'{t}|{t.next_ms(1772900000000)}')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(trigger), capture_output=True, check=True
    )
    assert done.stdout.decode() == f"{trigger}|{trigger.next_ms(1_772_900_000_000)}"


def test_threads_that_ask_for_a_zone_at_once_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = 8
    together = threading.Barrier(threads)

    def slow(key: str) -> ZoneInfo:
        together.wait(10)  # every thread is past the cache before any zone is made
        return ZoneInfo(key)

    zone.cache_clear()
    monkeypatch.setattr(zones, "_ZONES", {})
    monkeypatch.setattr(zones, "ZoneInfo", slow)
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(zone, ["Europe/Vienna"] * threads))
    assert len({id(place) for place in found}) == 1
    zone.cache_clear()


def test_threads_that_share_a_zone_get_the_ticks_of_one_thread() -> None:
    texts = ["30 2 * * *", "*/20 * * * *", "0 0 1 * *", "59 1 * * sun", "15 2 29 2 *"]
    starts = [1_741_000_000_000 + n * 40_000_000_000 for n in range(40)]

    def answers(tz: str) -> list[int | None]:
        found = []
        for text in texts:
            trigger = cron(text, tz=tz)
            for start in starts:
                found += [trigger.next_ms(start), trigger.prev_ms(start)]
        return found

    keys = ["Pacific/Auckland", "America/Chicago"] * 8
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(answers, keys))
    assert together == [answers(key) for key in keys]
