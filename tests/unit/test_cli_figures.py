"""The commands that show figures: stats, failures, nodes, quarantine."""

from __future__ import annotations

from typing import Any

import pytest

from evenbeat import Scheduler
from evenbeat.core.records import Record, RunRecord
from evenbeat.node.counting import Counting
from evenbeat.node.presence import NodeInfo, Presence
from evenbeat.node.rollups import Rollups
from evenbeat.rules.firing import plan
from tests.unit import cli_store
from tests.unit.cli_store import HOUR, MINUTE, Clock, answered, claim, fail, failed, printed

# Fixtures: a store in this folder, and a clock that stands still on a Monday at 08:00 UTC.
app, clock = cli_store.app, cli_store.clock


class Fed:
    """A node that counts what a test says, and writes it a minute later."""

    def __init__(self, app: Scheduler, clock: Clock, name: str = "n1") -> None:
        self.counting = Counting()
        self._duty = Rollups(app.store, self.counting, name)
        self._clock = clock

    def starts(self, count: int = 1, late: int = 0, **fields: Any) -> None:
        now = self._clock.now
        usual = {"task": "works", "attempt": 1, "started_at": now, "scheduled_at": now - late}
        self.counting.count_started([RunRecord(id="r", **{**usual, **fields})] * count, now)

    def passes(self, ms: int = MINUTE) -> None:
        self._clock.pass_(ms)
        self._duty.step(self._clock.now)


def fail_runs(app: Scheduler, *errors: str, **options: Any) -> None:
    for error in errors:
        app.enqueue("works", **options)
        (run,) = claim(app)
        fail(app, run, error)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("stats", "--since", "60d"), '--since "60d" is too long ago'),
        (("stats", "--since", "1d", "--by", "minute"), "kept for 3h; --by hour goes back 40 days"),
        (("forecast", "--from", "2020-01-01"), '--from "2020-01-01" is in the past'),
        (("account", "beat", "--from", "later"), '--from "later" is neither a date and time nor a duration'),
        (("why", "beat", "--at", "later"), '--at "later" is neither a time nor a duration'),
        (("schedules", "add", "x", "@daily", "t", "--retries", "-1"), "--retries -1 is not a whole number"),
        (("tokens", "create", "me", "--expires", "0s"), '--expires "0s" is not longer than 0'),
    ],
)
def test_a_refused_option_is_named_as_it_was_given(
    app: Scheduler, words: tuple[str, ...], problem: str
) -> None:
    app.schedules.add("beat", "every 1h", "works")
    assert problem in failed(*words, code=2)


# -- stats ---------------------------------------------------------------------------------------------------


def test_stats_shows_a_chart_the_lengths_and_the_busiest_tasks_and_schedules(
    app: Scheduler, clock: Clock
) -> None:
    node = Fed(app, clock)
    for _ in range(3):
        node.starts(2, late=5, schedule="good")
        node.starts(1, task="other", tenant="acme")
        node.passes()
    lines = printed("stats", "--since", "10m").splitlines()
    assert lines[:2] == ["6 attempts started, 0 succeeded", "from 07:53 to 08:03 (UTC), by the minute"]
    assert lines[2:4] == ["", "2        ███"]
    assert ["works", "6", "7.8", "ms"] in [line.split() for line in lines]
    assert ["good", "6", "7.8", "ms"] in [line.split() for line in lines]
    assert "other" not in "\n".join(lines)
    everyone = printed("stats", "--all-tenants")
    assert "acme     other" in everyone
    alone = printed("stats", "--schedule", "good")
    assert "task" not in alone
    assert "6 attempts started" in alone

    document = answered("stats", "--since", "10m", "--all-tenants")
    assert (document["by"], document["total"]["started"], len(document["points"])) == ("minute", 9, 10)
    assert document["points"][-1]["at"] == "2026-03-02T08:02:00Z"
    assert document["points"][-1]["nodes"] == 1
    assert document["total"]["lateness"]["count"] == 9
    assert [row["name"] for row in document["tasks"]] == ["works", "other"]


def test_stats_of_days_are_shown_by_the_hour(app: Scheduler, clock: Clock) -> None:
    node = Fed(app, clock)
    for _ in range(30):
        node.starts(1)
        node.passes(HOUR)
    lines = printed("stats", "--since", "40d").splitlines()
    assert lines[0] == "30 attempts started, 0 succeeded"
    assert lines[1].endswith("by the hour")
    assert answered("stats", "--since", "5h")["by"] == "hour"
    assert answered("stats", "--since", "5h", "--until", "3h")["total"]["started"] == 2


def test_stats_says_why_there_is_nothing_to_show(app: Scheduler, clock: Clock) -> None:
    assert printed("stats").splitlines()[-1].startswith("no node has written figures")
    Fed(app, clock).passes()
    node = Fed(app, clock)
    node.counting.count_started([], clock.now)
    node.passes()
    assert printed("stats").splitlines()[-1] == "nothing fired and nothing ran, though nodes were alive"
    assert "figures by the minute are kept for 3h" in failed(
        "stats", "--since", "4h", "--by", "minute", code=2
    )


def test_stats_names_skipped_ticks_and_missing_runs(
    app: Scheduler, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenbeat.rules.rollups.MOST_NAMES", 1)
    app.schedules.add("busy", "every 1m", "works")
    clock.pass_(5 * MINUTE)
    node = Fed(app, clock)
    node.counting.count_fired(app.store.fire_due(app.store.now(), 10, plan).planned, clock.now)
    node.starts(1, schedule="another")
    node.passes()
    assert "ticks that did not become runs of their own: 4 coalesced" in printed("stats")
    assert "some runs are missing" in printed("stats", "--schedule", "another")


# -- failures ------------------------------------------------------------------------------------------------


def test_failures_are_grouped_and_one_group_is_retried(app: Scheduler, clock: Clock) -> None:
    assert printed("failures") == "no failed runs since Sun 08:00\n"
    fail_runs(app, "KeyError: 'a'", "KeyError: 'b'", "ValueError: \x1b[2J")
    lines = printed("failures").splitlines()
    assert lines[0] == "3 failed runs since Sun 08:00, 2 errors"
    assert "2  KeyError: '…'" in lines[4]
    assert "\x1b" not in "\n".join(lines)
    document = answered("failures")
    assert [group["count"] for group in document["groups"]] == [2, 1]
    group = document["groups"][0]
    assert lines[-1] == f"evenbeat runs retry --all --error-group {group['id']}"
    assert printed("runs", "retry", "--all", "--error-group", group["id"], "--yes") == "queued 2 runs again\n"
    assert app.runs.count() == {"queued": 2, "failed": 1}
    wrong = failed("runs", "retry", "--all", "--error-group", group["id"], "--yes")
    assert "no failed run is of group" in wrong
    assert "evenbeat failures" in wrong
    assert "with --all" in failed("runs", "retry", "r", "--error-group", "x", code=2)


def test_failures_print_commands_that_name_the_tenant(app: Scheduler) -> None:
    fail_runs(app, "KeyError: 'a'", tenant="acme")
    show, retry = printed("failures", "--tenant", "acme").splitlines()[-2:]
    assert show.endswith("--tenant acme")
    assert printed(*retry.split()[1:], "--yes") == "queued 1 run again\n"
    (run,) = claim(app)
    fail(app, run, "KeyError: 'a'")
    fail_runs(app, "KeyError: 'a'")
    blank, retry = printed("failures", "--all-tenants").splitlines()[-2:]
    assert blank == ""
    assert printed(*retry.split()[1:], "--yes") == "queued 2 runs again\n"


def test_failures_says_that_there_are_more(app: Scheduler, clock: Clock) -> None:
    fail_runs(app, "ValueError: 1", "ValueError: 2")
    assert printed("failures", "--limit", "1").splitlines()[0].endswith("there are more, older ones")
    fail_runs(app, "ValueError: 3", tenant="acme")
    assert answered("failures", "--all-tenants")["count"] == 3
    clock.pass_(25 * HOUR)
    assert answered("failures")["count"] == 0
    assert answered("failures", "--since", "2d")["count"] == 2


# -- nodes, quarantine ------------------------------------------------------------------------------


def test_nodes_are_listed_with_their_duties(
    app: Scheduler, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert printed("nodes") == "no node is running: evenbeat run\n"
    usual: dict[str, Any] = {"host": "h", "pid": 1, "version": "1.0", "started_at": clock.now, "seen_at": 0}
    for name, ticker, worker in (("both", True, True), ("ticks", True, False), ("idle", False, False)):
        slots: dict[Any, int] = {"thread": 10} if worker else {}
        info = NodeInfo(
            name=name, ticker=ticker, worker=worker, tasks={}, queues=["default"], slots=slots, **usual
        )
        Presence(app.store, info, running=lambda: 3).step(clock.now)
    clock.pass_(30_000)
    monkeypatch.setenv("COLUMNS", "80")
    lines = printed("nodes").splitlines()
    assert lines[2].split()[1:7] == ["fires", "and", "executes", "3", "of", "10"]
    assert lines[2].endswith("30 s  30 s ago  1.0")
    assert lines[3].split()[:2] == ["idle", "nothing"]
    assert lines[4].split()[:2] == ["ticks", "fires"]
    assert max(map(len, lines)) <= 80
    assert [node["name"] for node in answered("nodes")["nodes"]] == ["both", "idle", "ticks"]


def test_quarantine_is_listed_with_what_to_do(app: Scheduler, clock: Clock) -> None:
    assert printed("quarantine", "list") == "nodes can process every schedule and every run\n"
    app.store.put_record(Record(kind="deferred", key="late", body="no time zone \x1b[2J"))
    app.store.put_record(Record(kind="quarantine", key="broken", body="bad", tenant="acme"))
    lines = printed("quarantine", "list").splitlines()
    assert lines[2].split()[:2] == ["late", "deferred"]
    assert "\x1b" not in lines[2]
    assert lines[-1].startswith("deferred:  look at the log of the nodes")
    assert "acme" in printed("quarantine", "list", "--all-tenants")
    assert [note["name"] for note in answered("quarantine", "list", "--all-tenants")["notes"]] == [
        "broken",
        "late",
    ]
