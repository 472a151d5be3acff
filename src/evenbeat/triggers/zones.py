"""Time zones as integer arithmetic: for an instant, the window of constant UTC offset around it.

zoneinfo answers one datetime at a time and does not list its transitions, so each zone is probed
once per stretch of about a year, and what was found is kept. Everything here counts in seconds.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from evenbeat.core.instants import FIRST, LAST
from evenbeat.errors import InvalidValue, UnknownZone, shown

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")
# posix/ and right/ are build variants of the database (right/ counts leap seconds).
_NOT_ZONES = ("posix/", "right/", "posixrules", "localtime", "Factory")

_LONGEST_KEY = 64
_SECOND = timedelta(seconds=1)
_FIRST, _LAST = FIRST // 1000, LAST // 1000
_EVER = 1 << 62
# Well past the last change of rules that any zone has announced (Morocco's, to 2087).
SETTLED = 4_102_444_800  # 2100-01-01T00:00:00Z
_SOON = 2_051_222_400  # 2035-01-01T00:00:00Z
_CHUNK_BITS = 25  # 2**25 s: 388 days
# No zone changes its offset twice within a day and back (tests/unit/test_zones.py checks all of them).
_PROBE_STEP = 86_400
# A chunk takes about 1 KB. A node needs a few; a user who asks for every year of every zone must not fill the
# memory.
_MOST_CHUNKS = 128

# No change moves the clock by more than a day: beyond this margin a change has no effect.
CALM_MARGIN = 90_000


class Window(NamedTuple):
    """A window [lo, hi) in UTC seconds with one offset, and the offsets on either side.

    Windows also end at the edges of a probed chunk, unless a transition is near: there ``before`` or
    ``after`` equals ``offset``, and no transition follows within ``CALM_MARGIN``.
    """

    lo: int
    hi: int
    offset: int
    before: int
    after: int

    def counted(self, repeat: str) -> tuple[int, int]:
        """Return the part of the window whose labels count, if only the first or last of two equal labels
        does."""
        begin, end = self.lo, self.hi
        if self.offset < self.before and repeat == "first":
            begin += self.before - self.offset
        if self.after < self.offset and repeat == "last":
            end -= self.offset - self.after
        return begin, end


class Zone:
    """A time zone by its IANA key. There is one object per key: compare by identity."""

    __slots__ = ("_chunks", "calm", "fixed", "info", "key")

    def __init__(self, key: str, info: tzinfo, fixed: int | None) -> None:
        self.key = key
        self.info = info
        self.fixed = fixed
        """The offset in seconds if it never changes, else None."""
        self.calm = (-_EVER, _EVER, fixed) if fixed is not None else (0, 0, 0)
        """The stretch that ``calm_around`` last returned; read and replaced in one piece."""
        self._chunks: dict[int, tuple[Window, ...]] = {}

    def calm_around(self, second: int) -> tuple[int, int, int]:
        """Return (lo, hi, offset) of the window around ``second``, less a margin beside each transition.

        Between lo and hi, wall clock and UTC differ by the offset and nothing else happens. The
        margins themselves are not calm: there, lo and hi may not enclose ``second``.
        """
        calm = self.calm
        if not calm[0] <= second < calm[1]:
            lo, hi, offset, before, after = self.window(second)
            lo += 0 if before == offset else CALM_MARGIN
            hi -= 0 if after == offset else CALM_MARGIN
            self.calm = calm = (lo, hi, offset)
        return calm

    def window(self, second: int) -> Window:
        """Return the window that contains ``second``."""
        index = second >> _CHUNK_BITS
        for window in self._chunks.get(index) or self._probe(index):
            if second < window.hi:
                return window
        raise AssertionError(f"{second} is outside chunk {index}")

    @property
    def keeps_changing(self) -> bool:
        """Return whether the clock still changes in years to come, by the rules of today."""
        return self.fixed is None and any(
            window.hi - window.lo < 1 << _CHUNK_BITS or not window.before == window.offset == window.after
            for window in (self.window(_SOON), self.window(SETTLED))
        )

    def offset(self, second: int) -> int:
        """Return the UTC offset in force at ``second``."""
        return self._delta(second) // _SECOND

    def _delta(self, second: int) -> timedelta:
        if not _FIRST <= second <= _LAST:
            # zoneinfo has no data beyond what datetime can hold: the ends of time keep their offset.
            second = min(max(second, _FIRST), _LAST)
        delta = datetime.fromtimestamp(second, self.info).utcoffset()
        assert delta is not None
        return delta

    def _probe(self, index: int) -> tuple[Window, ...]:
        """Find the transitions of one chunk: about 390 probes of 0.6 us, as long as the chunk is kept.

        Those within a margin on either side count too: what a clock repeats just inside the chunk may
        have begun outside. Beyond, a window ends with the chunk.
        """
        start, end = index << _CHUNK_BITS, (index + 1) << _CHUNK_BITS
        begin, finish = start - CALM_MARGIN, end + CALM_MARGIN
        edges, offsets = [start], [self.offset(begin)]
        old = self._delta(begin)
        for probe in range(begin + _PROBE_STEP, finish + _PROBE_STEP, _PROBE_STEP):
            new = self._delta(probe)
            if new != old:
                edges.append(self._transition(probe - _PROBE_STEP, probe))
                offsets.append(new // _SECOND)
                old = new
        edges.append(end)
        around = [offsets[0], *offsets, offsets[-1]]
        windows = tuple(
            Window(edges[i], edges[i + 1], around[i + 1], around[i], around[i + 2])
            for i in range(len(offsets))
            if edges[i] < end and edges[i + 1] > start
        )
        if len(self._chunks) >= _MOST_CHUNKS:
            self._chunks = {}
        self._chunks[index] = windows
        return windows

    def _transition(self, low: int, high: int) -> int:
        """Return the first second in (low, high] whose offset differs from that at ``low``."""
        old = self.offset(low)
        while high - low > 1:
            middle = (low + high) // 2
            if self.offset(middle) == old:
                low = middle
            else:
                high = middle
        return high

    def __repr__(self) -> str:
        return f"Zone({self.key!r})"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return zone, (self.key,)


_ZONES: dict[str, Zone] = {}


@lru_cache(maxsize=1024)
def zone(key: str) -> Zone:
    """Return the zone of an IANA key; ``UnknownZone`` with the nearest names if there is none."""
    # lru_cache lets two threads make the same zone at once; only one of the two objects may be used.
    return _ZONES.setdefault(key, _find(key))


def find_zone(key: str) -> Zone | None:
    """Return the zone of an IANA key; None if there is none. Does not search for the nearest names, which
    takes milliseconds."""
    found = _ZONES.get(key) or _load(key)
    return None if found is None else _ZONES.setdefault(key, found)


def _find(key: str) -> Zone:
    found = _load(key)
    if found is None:
        raise _unknown(key)
    return found


def _load(key: str) -> Zone | None:
    if key == "UTC":
        return Zone("UTC", UTC, 0)
    if len(key) > _LONGEST_KEY or not _KEY.fullmatch(key) or key.startswith(_NOT_ZONES):
        return None
    try:
        info = ZoneInfo(key)
    except (ZoneInfoNotFoundError, ValueError, FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    # Any other OSError (too many open files, a failing disk) is not about the zone, and is raised.
    # "UTC" has many names (Etc/UTC, Zulu, …); every zone that never changes takes the short path.
    fixed = datetime.fromtimestamp(0, info).utcoffset() if _never_changes(info) else None
    return Zone(key, info, None if fixed is None else fixed // _SECOND)


def read_zone(tz: str | tzinfo, field: str = "tz") -> Zone:
    """Return a zone from its IANA name, a ZoneInfo or ``datetime.UTC``."""
    if isinstance(tz, str):
        return zone(tz)
    if isinstance(tz, ZoneInfo) and tz.key:
        return zone(tz.key)
    if tz is UTC:
        return zone("UTC")
    raise InvalidValue(
        f"{field} {shown(tz)} is not an IANA time zone",
        field=field,
        value=tz,
        hint='give its name, such as "Europe/Berlin" or "UTC"',
    )


def _never_changes(info: ZoneInfo) -> bool:
    # zoneinfo answers utcoffset(None) only for zones with a single, permanent offset.
    return info.utcoffset(None) is not None


@lru_cache(maxsize=1)
def _names() -> tuple[str, ...]:
    # available_timezones reads the header of every file: 10 ms.
    return tuple(sorted(name for name in available_timezones() if not name.startswith(_NOT_ZONES)))


def _unknown(key: str) -> UnknownZone:
    names = _names()
    key = key[:_LONGEST_KEY]
    lowered = key.lower()
    near = [name for name in names if name.lower() == lowered]
    near = near or get_close_matches(key, names, n=3, cutoff=0.6)
    if not near:
        city = {name.rsplit("/", 1)[-1].lower(): name for name in names}
        found = get_close_matches(lowered.replace(" ", "_"), city, n=1, cutoff=0.75)
        near = [city[match] for match in found]
    hint = f"did you mean {' or '.join(near)}?" if near else 'use an IANA name such as "Europe/Berlin"'
    return UnknownZone(f"tz {shown(key)} is not an IANA time zone", field="tz", value=key, hint=hint)
