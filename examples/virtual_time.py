"""Test your jobs in virtual time: a month of them in milliseconds, without a database.

python examples/virtual_time.py
"""

from __future__ import annotations

from datetime import timedelta

from evenbeat import RunContext, Scheduler, cron
from evenbeat.testing import VirtualScheduler, virtual

app = Scheduler("sqlite:///shop.db")  # not touched by the tests


@app.task(schedule=cron("0 9 * * mon-fri", tz="Europe/Berlin"), retries=2, backoff="10m")
def digest(run: RunContext, team: str = "all") -> str:
    if run.tick is not None and run.tick.day == 13 and run.failures == 0:
        raise ConnectionError("the mail server is away")
    return f"digest for {team}"


def test_the_digest_is_sent_on_each_workday(scheduler: VirtualScheduler) -> None:
    runs = scheduler.travel("30d")  # from Sunday, 1 March 2026, 12:00 UTC
    assert len(runs) == 22
    assert all(run.state == "succeeded" for run in runs)
    (retried,) = [run for run in runs if run.failures]
    assert retried.finished_at is not None
    assert timedelta(minutes=9) <= retried.finished_at - retried.scheduled_at <= timedelta(minutes=10)


def test_no_node_ran_over_the_weekend(scheduler: VirtualScheduler) -> None:
    scheduler.down_for("36h")  # until Tuesday, 00:00 UTC: Monday's digest was missed
    (late,) = scheduler.run_pending()
    assert late.tick is not None
    assert f"{late.tick:%a}" == "Mon"


def main() -> None:
    for test in (test_the_digest_is_sent_on_each_workday, test_no_node_ran_over_the_weekend):
        with virtual(app) as scheduler:  # with pytest: ask for the fixture `scheduler`
            test(scheduler)
        print(f"{test.__name__}: passed")


if __name__ == "__main__":
    main()
