"""``evenbeat runs``: what it shows and changes."""

from __future__ import annotations

import pytest

from evenbeat import Scheduler
from evenbeat.core.records import LogChunk
from evenbeat.node.progress import store_progress
from evenbeat.observe.run_logs import refusal
from evenbeat.observe.run_progress import ReportedProgress
from evenbeat.rules import attempts
from evenbeat.stores.sqlite import SqliteStore
from tests.unit import cli_store
from tests.unit.cli_store import MINUTE, Clock, answered, claim, fail, failed, fire, printed, run, succeed

app, clock = cli_store.app, cli_store.clock


def test_runs_are_listed_with_their_times(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("digest", "0 8 * * *", "send")
    app.schedules.reschedule("digest", "2026-03-02T08:00Z")
    clock.pass_(1_300)
    fire(app)
    (held,) = claim(app)
    clock.pass_(65_000)
    succeed(app, held)
    clock.pass_(1_000)
    app.enqueue("mail", delay="1h", id="by-hand")

    assert printed("runs", "list").splitlines() == [
        "run                             state      task  due        late       took",
        "─" * 75,
        "by-hand                         queued     mail  09:01:07",
        "default/digest/2/1772438400000  succeeded  send  08:00     1.3 s  1 min 5 s",
    ]


def test_runs_are_narrowed(app: Scheduler) -> None:
    app.schedules.add("a", "@daily", "t")
    app.schedules.run_now("a")
    for number in range(3):
        app.enqueue("u", id=f"u{number}")
    app.runs.cancel("u0")

    def ids(*args: str) -> list[str]:
        return sorted(run["id"] for run in answered("runs", "list", *args)["runs"])

    assert len(ids("--schedule", "a")) == len(ids("--task", "t")) == 1
    assert ids("--task", "u") == ["u0", "u1", "u2"]
    assert ids("--state", "cancelled") == ["u0"]
    assert answered("runs", "list", "--limit", "2")["more"] is True
    assert "there are more: --limit 10" in printed("runs", "list", "--limit", "2")
    assert "did you mean" in failed("runs", "list", "--schedule", "aa")


def test_a_run_is_shown_with_its_timing_and_result(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "* * * * *", "t", tenant="acme")
    clock.pass_(3 * MINUTE + 2_500)
    fire(app)
    (held,) = claim(app)
    clock.pass_(1_200)
    app.store.append_log([LogChunk(run=held.id, attempt=1, seq=0, text="x", at=clock.now)])
    succeed(app, held, '{"sent": 12}')

    assert printed("runs", "show", held.id, "--tenant", "acme").splitlines() == [
        "acme/a/1/1772438580000",
        "",
        "state     succeeded",
        "task      t",
        "schedule  a",
        "          stands for 2 earlier ticks as well",
        "tenant    acme",
        "due       Mon 2026-03-02 08:03 +00:00, 3 s ago",
        "started   Mon 2026-03-02 08:03:02 +00:00, 2.5 s late",
        "ended     Mon 2026-03-02 08:03:03 +00:00",
        "took      1.2 s",
        "attempts  1",
        "worker    node-1",
        "queue     default, priority 5 (normal)",
        "log       1 line: evenbeat runs logs acme/a/1/1772438580000",
        'result    {"sent": 12}',
    ]
    assert failed("runs", "show", held.id).endswith("hint: of tenant acme? add --tenant acme\n")
    document = answered("runs", "show", held.id, "--tenant", "acme")["run"]
    assert (document["lateness"], document["duration"], document["log_lines"]) == (2.5, 1.2, 1)


def test_a_failed_run_is_shown_with_its_traceback(app: Scheduler, clock: Clock) -> None:
    app.enqueue("t", {"team": "ops"}, id="r", retries=1)
    (held,) = claim(app)
    fail(app, held, "first")
    text = printed("runs", "show", "r")
    assert "state     retrying\n" in text
    assert "\nagain     Mon 2026-03-02 08:00:09 +00:00, in 9 s\n" in text
    assert "due" not in text
    clock.pass_(MINUTE)
    (held,) = claim(app)
    fail(app, held, 'Traceback (most recent call last):\n  File "a.py", line 1\nOSError: \x1b[2Jno\n')

    text = printed("runs", "show", "r")
    assert "state     failed\n" in text
    assert 'payload   {"team": "ops"}\n' in text
    assert "attempts  2: 2 failures; up to 1 retry\n" in text
    assert text.endswith('\nTraceback (most recent call last):\n  File "a.py", line 1\nOSError: �[2Jno\n')


def test_the_log_of_a_run_is_shown_by_attempt(app: Scheduler, clock: Clock) -> None:
    app.enqueue("t", id="r")
    assert run("runs", "logs", "r").stderr == "the run has no log\n"
    chunks = [("one\ntwo\n", 1), ("three \x1b[31m", 2)]
    app.store.append_log(
        [LogChunk(run="r", attempt=n, seq=0, text=text, at=clock.now + n) for text, n in chunks]
    )

    assert printed("runs", "logs", "r").splitlines() == [
        "2026-03-02 08:00:00.001  one",
        "2026-03-02 08:00:00.001  two",
        "attempt 2",
        "2026-03-02 08:00:00.002  three �[31m",
    ]
    assert answered("runs", "logs", "r") == {
        "run": "r",
        "state": "queued",
        "lines": [
            {"at": "2026-03-02T08:00:00.001Z", "attempt": 1, "text": "one\ntwo\n"},
            {"at": "2026-03-02T08:00:00.002Z", "attempt": 2, "text": "three \x1b[31m"},
        ],
    }


def test_a_log_is_followed_until_the_run_is_over(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    app.enqueue("t", id="r")
    (held,) = claim(app)
    looks = iter(range(4))

    def meanwhile(_: SqliteStore, timeout: float) -> bool:
        seq = next(looks)
        if seq == 3:
            succeed(app, held)
        app.store.append_log([LogChunk(run="r", attempt=1, seq=seq, text=f"line-{seq}", at=0)])
        return True

    monkeypatch.setattr(SqliteStore, "wait", meanwhile)

    lines = printed("runs", "logs", "r", "--follow").splitlines()
    assert [line.split()[-1] for line in lines] == ["line-0", "line-1", "line-2", "line-3"]
    assert "exclude each other" in failed("runs", "logs", "r", "-f", "--json", code=2)


def test_a_failed_run_is_tried_again(app: Scheduler) -> None:
    app.enqueue("t", id="r")
    (held,) = claim(app)
    fail(app, held, "no")

    assert printed("runs", "retry", "r") == "queued r again\n"
    assert failed("runs", "retry", "r") == (
        "error: run r is queued; only failed and cancelled runs can be retried\n"
    )


def test_a_run_of_a_schedule_with_bounds_is_tried_again_as_a_new_one(app: Scheduler) -> None:
    app.schedules.add("a", "@daily", "t", overlap="skip")
    app.schedules.run_now("a", id="r")
    (held,) = claim(app)
    fail(app, held, "no")

    assert printed("runs", "retry", "r").startswith("queued a new run with the same payload: evenbeat runs")


def test_queued_runs_are_cancelled_and_running_ones_notified(app: Scheduler) -> None:
    for name in ("a", "b"):
        app.enqueue("t", id=name)
    assert printed("runs", "cancel", "a") == "cancelled a\n"
    assert printed("runs", "cancel", "a") == "cancelled a\n"
    (held,) = claim(app)
    assert printed("runs", "cancel", "b").startswith("asked b to stop; its worker node-1 is notified")
    assert "state     stopping" in printed("runs", "show", "b")
    succeed(app, held)
    assert printed("runs", "cancel", "b", code=1) == "b is over already: succeeded\n"


@pytest.mark.parametrize("command", ["show", "logs", "retry", "cancel"])
def test_a_run_that_is_not_there(app: Scheduler, command: str) -> None:
    assert failed("runs", command, "nope") == (
        'error: there is no run "nope"; it never existed, or its history was purged\n'
        "hint: 'evenbeat runs list' shows the newest\n"
    )


def test_a_running_run_shows_its_progress(app: Scheduler, clock: Clock) -> None:
    run_id = app.enqueue("t").id
    (held,) = claim(app)
    assert "progress" not in printed("runs", "show", run_id)
    reported = ReportedProgress(held)
    for value, words in (
        ((4312, "sending", 10_000), "4,312 of 10,000 (43 %), sending, 5 s ago"),
        ((0, "", 0), "0 of 0, 5 s ago"),
        ((2.5, "a\x1b[1mb", None), "2.5, a"),
    ):
        reported.report(*value)
        store_progress(app.store, reported, app.store.now())
        clock.pass_(5_000)
        assert words in " ".join(printed("runs", "show", run_id).split())
    assert "\x1b" not in printed("runs", "show", run_id)
    shown = answered("runs", "show", run_id, "--json")["run"]["progress"]
    assert (shown["done"], shown["total"], shown["at"]) == (2.5, None, "2026-03-02T08:00:10Z")
    succeed(app, held)
    assert "progress at the end 2.5, a" in " ".join(printed("runs", "show", run_id).split())
    assert answered("runs", "show", run_id, "--json")["run"]["progress"]["done"] == 2.5


def test_a_run_shows_when_it_expires_and_its_unique_key(app: Scheduler, clock: Clock) -> None:
    asked = ("runs", "enqueue", "t", "--unique", "order-42", "--expires", "5m", "--payload", '{"a": 1}')
    run_id = answered(*asked)["run"]["id"]
    clock.pass_(1_000)
    assert answered(*asked)["run"]["id"] == run_id
    assert f"{run_id} is there already: queued" in printed(*asked)
    shown = " ".join(printed("runs", "show", run_id).split())
    assert "unique order-42" in shown
    assert "expires Mon 2026-03-02 08:05 +00:00, in 4 min 59 s, unless it has started" in shown
    assert answered("runs", "show", run_id)["run"]["expires_at"] == "2026-03-02T08:05:00Z"
    clock.pass_(5 * MINUTE)
    app.runs.cancel(run_id)
    assert "has expired, and would not be executed" in failed("runs", "retry", run_id)
    assert "is not 1 to 200 printable characters" in failed("runs", "enqueue", "t", "--unique", "", code=2)
    assert "expires 0s is shorter than 1ms" in failed(
        "runs", "enqueue", "t", "--expires", "0s", code=2
    ).replace('"', "")


def test_a_run_shows_that_a_late_result_was_refused(app: Scheduler, clock: Clock) -> None:
    run_id = app.enqueue("t").id
    (first,) = claim(app)
    clock.pass_(MINUTE)
    assert app.store.settle_runs([attempts.crashed(first, app.store.now(), "reaper")]) == [True]
    (second,) = claim(app)
    app.store.append_log([refusal(first, app.store.now())])
    succeed(app, second)
    table = printed("runs", "show", run_id)
    assert "its late result was refused at 08:01" in " ".join(table.split())
    shown = answered("runs", "show", run_id, "--json")["run"]["attempts"]
    assert [each["refused_at"] for each in shown] == ["2026-03-02T08:01:00Z", None]


def test_show_names_what_started_a_run(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("load", "every 1h", "work")
    app.schedules.add("after", "on success of load", "work")
    clock.pass_(60 * MINUTE)
    fire(app)
    (held,) = claim(app)
    succeed(app, held)
    fire(app)
    (found,) = app.runs.list(schedule="after")
    shown = printed("runs", "show", found.id)
    assert f"after     the success of load, run {held.id}, tick Mon 2026-03-02 09:00" in shown
    body = answered("runs", "show", found.id)["run"]
    assert (body["predecessor"], body["predecessor_schedule"]) == (held.id, "load")
