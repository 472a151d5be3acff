"""Cron in a time zone: 09:00 stays 09:00, and a time that the clock skips or repeats runs once.

python examples/time_zones.py
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

from evenbeat import cron

BEFORE_SPRING = datetime(2026, 3, 27, 12, tzinfo=UTC)
BEFORE_AUTUMN = datetime(2026, 10, 23, 12, tzinfo=UTC)

workdays = cron("0 9 * * mon-fri", tz="Europe/Berlin")
nightly = cron("30 2 * * *", tz="Europe/Berlin")
nightly_twice = cron("30 2 * * *", tz="Europe/Berlin", gap="skip", repeat="both")


def main() -> None:
    print(workdays.explain())
    for tick in islice(workdays.between(BEFORE_SPRING, datetime(2027, 1, 1, tzinfo=UTC)), 2):
        print(f"  {tick:%a %Y-%m-%d %H:%M %z}")

    monday = workdays.next(BEFORE_SPRING)
    assert str(monday) == "2026-03-30 09:00:00+02:00"  # the clock changed on Sunday: +01:00 became +02:00

    # On 29 March the clock goes from 02:00 to 03:00. 02:30 does not exist, and the job runs at 03:00.
    spring = list(nightly.between(BEFORE_SPRING, datetime(2026, 3, 30, 12, tzinfo=UTC)))
    assert [f"{tick:%d %H:%M}" for tick in spring] == ["28 02:30", "29 03:00", "30 02:30"]

    # On 25 October 02:30 comes twice, and the job runs the first time.
    autumn = list(nightly.between(BEFORE_AUTUMN, datetime(2026, 10, 25, 12, tzinfo=UTC)))
    assert [str(tick) for tick in autumn] == ["2026-10-24 02:30:00+02:00", "2026-10-25 02:30:00+02:00"]

    # Another policy for both: not at all in spring, twice in autumn.
    assert len(list(nightly_twice.between(BEFORE_SPRING, datetime(2026, 3, 30, 12, tzinfo=UTC)))) == 2
    assert len(list(nightly_twice.between(BEFORE_AUTUMN, datetime(2026, 10, 25, 12, tzinfo=UTC)))) == 3
    print(nightly_twice.explain())


if __name__ == "__main__":
    main()
