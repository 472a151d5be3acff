"""Friday the 13th: a cron whose day of month and day of week must both match.

python examples/both_days.py
"""

from __future__ import annotations

from datetime import UTC, datetime

from evenbeat import cron, parse_trigger

YEAR = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)

either = cron("0 0 13 * fri")
both = cron("0 0 13 * fri", days="both")


def main() -> None:
    print(either.explain())
    print(f"  {len(list(either.between(*YEAR)))} times in 2026")  # 52 Fridays, and nine 13ths on other days

    print(both.explain())
    fridays = [f"{tick:%a %d %b}" for tick in both.between(*YEAR)]
    for day in fridays:
        print(f"  {day}")
    assert fridays == ["Fri 13 Feb", "Fri 13 Mar", "Fri 13 Nov"]

    assert parse_trigger("0 0 13 * fri days=both") == both


if __name__ == "__main__":
    main()
