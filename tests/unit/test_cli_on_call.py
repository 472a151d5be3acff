"""The commands as a person on call uses them: filters, bulk changes, an app that is named."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from evenbeat import Scheduler
from evenbeat.node import stuck_work
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim
from tests.unit import cli_store
from tests.unit.cli_store import (
    HOUR,
    MINUTE,
    Clock,
    answered,
    claim,
    fail,
    failed,
    fire,
    node,
    printed,
    run,
    succeed,
)

app, clock = cli_store.app, cli_store.clock


def ids_of(*args: str) -> list[str]:
    return [run["id"] for run in answered("runs", "list", *args)["runs"]]


def execute(app: Scheduler, clock: Clock, run_id: str, took: int) -> None:
    app.enqueue("t", id=run_id)
    (held,) = claim(app)
    clock.pass_(took)
    succeed(app, held)


@pytest.mark.parametrize(
    ("since", "until", "found"),
    [
        ("07:55", "08:10", ["early"]),
        ("7:55", "8:00:01", ["early"]),
        ("08:30", "08:40", ["long"]),
        ("2026-03-02T08:00", "2026-03-02T08:20Z", ["early"]),
        ("35m", None, ["running"]),
        ("45m", None, ["running", "long"]),
        (None, "1h30m", ["early"]),
        ("23:00", "08:01", ["early"]),
    ],
)
def test_runs_between_two_times_are_listed(
    app: Scheduler, clock: Clock, since: str | None, until: str | None, found: list[str]
) -> None:
    execute(app, clock, "early", 5 * MINUTE)  # from 08:00
    clock.pass_(20 * MINUTE)
    execute(app, clock, "long", 30 * MINUTE)  # from 08:25 to 08:55
    app.enqueue("t", id="running")
    claim(app)
    app.enqueue("t", id="waiting")
    clock.pass_(40 * MINUTE)  # 09:35

    asked = [*(("--since", since) if since else ()), *(("--until", until) if until else ())]
    assert ids_of(*asked) == found


def test_a_time_of_day_is_the_last_one_that_has_come_in_the_local_zone(
    app: Scheduler, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    clock.pass_(14 * HOUR + 50 * MINUTE)  # 23:50 in Berlin
    execute(app, clock, "night", 5 * MINUTE)
    clock.pass_(20 * MINUTE)  # 00:15
    assert ids_of("--since", "23:51", "--until", "00:05") == ["night"]
    assert ids_of("--since", "23:56") == []
    assert ids_of("--since", "00:01") == []
    # An end that has not come yet.
    assert ids_of("--since", "23:51", "--until", "00:30") == ["night"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--since", "soon"), '--since "soon" is neither a time nor a duration'),
        (("--since", "25:00"), '--since "25:00" is neither a time nor a duration'),
        (
            ("--since", "+2h"),
            "--since +2h is in the future, and a past time is needed; write 2h, which counts back",
        ),
        (("--since", "3h", "--until", "+2h"), "--until +2h is in the future"),
        (("--since", "1h", "--until", "2h"), "--until 2h is not after --since 1h"),
        (("--state", "tired"), "'tired' is not one of"),
    ],
)
def test_an_invalid_window_is_refused(app: Scheduler, args: tuple[str, ...], message: str) -> None:
    assert message in failed("runs", "list", *args, code=2)


def test_running_runs_are_listed_with_their_worker_and_for_how_long(app: Scheduler, clock: Clock) -> None:
    app.enqueue("t", id="r")
    claim(app)
    app.enqueue("t", id="waits", queue="slow")
    clock.pass_(185_000)

    lines = printed("runs", "list").splitlines()
    assert lines[0].split() == ["run", "state", "task", "due", "late", "took", "worker"]
    assert lines[2].split() == ["r", "running", "t", "08:00", "0", "ms", "3", "min", "5", "s", "node-1"]
    assert lines[3].split() == ["waits", "queued", "t", "08:00"]
    assert ids_of("--worker", "node-1") == ["r"]
    assert ids_of("--queue", "slow") == ["waits"]


def test_runs_that_wait_for_their_next_attempt_are_asked_for_by_name(app: Scheduler) -> None:
    app.enqueue("t", id="r", retries=2)
    (held,) = claim(app)
    fail(app, held, "no")
    app.enqueue("t", id="new")

    assert ids_of("--state", "retrying") == ["r"]
    assert ids_of("--state", "queued") == ["new", "r"]


def failures(app: Scheduler, count: int) -> None:
    for number in range(count):
        app.enqueue("t", id=f"r{number}")
    for held in claim(app):
        fail(app, held, "no")


def test_all_matching_runs_are_retried_after_a_yes(app: Scheduler, clock: Clock) -> None:
    failures(app, 7)
    app.enqueue("other", id="other")

    assert failed("runs", "retry", "--all", "--task", "t") == (
        "error: nothing was done: 7 runs match\nhint: add --yes to retry them\n"
    )
    assert failed("runs", "retry", "--all", "--json").startswith("error: nothing was done: 7 runs")
    assert len(ids_of("--state", "failed")) == 7
    assert printed("runs", "retry", "--all", "--task", "t", "--since", "1h", "--limit", "2", "--yes") == (
        "queued 2 runs again\nthere are more: run it again, or with a higher --limit\n"
    )
    document = answered("runs", "retry", "--all", "--yes")
    assert (document["matched"], document["done"], document["refused"], document["more"]) == (5, 5, [], False)
    assert ids_of("--state", "failed") == []
    assert printed("runs", "retry", "--all", "--task", "t") == "there are no such runs to retry\n"


def test_runs_that_can_not_be_retried_are_named(app: Scheduler) -> None:
    app.schedules.add("a", "@daily", "t", overlap="skip")
    for name in ("r1", "r2"):
        app.schedules.run_now("a", id=name)
        (held,) = claim(app)
        fail(app, held, "no")

    lines = printed("runs", "retry", "--all", "--schedule", "a", "--yes", code=1).splitlines()
    assert lines[:2] == ["queued 1 run again", "left 1 run alone:"]
    assert "leave no room for another" in lines[2]


def test_all_of_a_choice_are_cancelled(app: Scheduler) -> None:
    app.enqueue("t", id="busy")
    claim(app)
    app.enqueue("t", id="r1")
    app.enqueue("t", id="r2", queue="slow")

    assert "add --yes to cancel them" in failed("runs", "cancel", "--all")
    assert printed("runs", "cancel", "--all", "--queue", "slow", "-y") == (
        "cancelled 1 run; running ones are asked to stop\n"
    )
    assert printed("runs", "cancel", "--all", "-y") == "cancelled 2 runs; running ones are asked to stop\n"
    states = {
        entry["id"]: (entry["state"], entry["cancel_requested"]) for entry in answered("runs", "list")["runs"]
    }
    assert states == {"busy": ("running", True), "r1": ("cancelled", False), "r2": ("cancelled", False)}


@pytest.mark.parametrize("command", ["retry", "cancel"])
def test_a_run_is_named_or_runs_are_chosen(app: Scheduler, command: str) -> None:
    for args in ((), ("r", "--all"), ("r", "--task", "t"), ("r", "--state", "failed")):
        assert run("runs", command, *args).exit_code == 2


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1)])
def test_all_are_shown_and_asked_about_in_a_terminal(app: Scheduler, answer: str, code: int) -> None:
    failures(app, 6)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "evenbeat", "runs", "retry", "--all"]
    child = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.write(ours, answer.encode())
    stdout, stderr = child.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)

    assert child.returncode == code
    assert "r0   failed" in stderr
    assert "and 1 more" in stderr
    assert "retry 6 runs? [y/N]" in stderr
    assert stdout == ("" if code else "queued 6 runs again\n")


def test_a_run_is_enqueued_by_hand(app: Scheduler) -> None:
    words = printed("runs", "enqueue", "mail", "--payload", '{"to": "ops"}', "--id", "m1", "--queue", "slow")
    assert words == (
        "queued a run of mail in queue slow: evenbeat runs show m1\n"
        "the options that the code gives the task are not known here: name its app with EVENBEAT_APP\n"
    )
    found = app.runs.get("m1")
    assert (found.task, found.payload, found.queue, found.state) == ("mail", {"to": "ops"}, "slow", "queued")

    later = printed(
        "runs", "enqueue", "mail", "--at", "+2h", "--id", "m2", "--priority", "9", "--retries", "3"
    )
    assert later.startswith(
        "queued a run of mail in queue default for Mon 2026-03-02 10:00 +00:00, in 2 h: "
        "evenbeat runs show m2\n"
    )
    assert (app.runs.get("m2").priority, app.runs.get("m2").retries) == (9, 3)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    """An app in a file of its own, which the settings name; its database is made."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "shop_app", raising=False)
    (tmp_path / "shop_app.py").write_text(
        "from evenbeat import Scheduler\n"
        "app = Scheduler('sqlite:///shop.db')\n"
        "@app.task(queue='slow', timeout='5m', retries=2, priority='high')\n"
        "def mail(to: str) -> None: ...\n"
    )
    monkeypatch.setenv("EVENBEAT_APP", "shop_app")
    scheduler = Scheduler("sqlite:///shop.db")
    scheduler.store.close()
    return scheduler


def test_a_run_by_hand_gets_the_options_of_its_task_where_the_app_is_known(
    shop: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = ("--payload", '{"to": "ops"}')
    words = printed("runs", "enqueue", "mail", *payload, "--id", "m1", "--retries", "5")
    assert words == "queued a run of mail in queue slow: evenbeat runs show m1\n"
    made = answered("runs", "show", "m1")["run"]
    assert (made["queue"], made["priority_name"]) == ("slow", "high")
    assert (made["timeout"], made["retries"]) == (300, 5)

    added = answered("schedules", "add", "mails", "@daily", "mail", *payload)["schedule"]
    assert (added["queue"], added["retries"]) == ("slow", 2)
    assert "it takes to" in failed("runs", "enqueue", "mail", "--payload", '{"too": "ops"}', code=2)

    # Also where the settings name another store than the code does.
    Scheduler("sqlite:///other.db").store.close()
    monkeypatch.setenv("EVENBEAT_STORE", "sqlite:///other.db")
    assert "in queue slow" in printed("runs", "enqueue", "mail", *payload)


def test_a_task_that_the_app_does_not_have_is_reported(shop: Scheduler) -> None:
    warning = "the options that the code gives the task are not known here: the app has no such task"
    words = printed("runs", "enqueue", "mial", "--id", "m1")
    assert words.endswith(f"{warning}: did you mean mail?\n")
    warning = "warning: the app does not have the task {}: its runs wait until a node has it"
    assert printed("schedules", "add", "a", "@daily", "unlike").endswith(f"{warning.format('unlike')}\n")
    lines = printed("schedules", "add", "b", "@daily", "mial").splitlines()
    assert lines[-1] == f"{warning.format('mial')}; did you mean mail?"


def test_a_task_that_no_live_node_has_is_reported(app: Scheduler) -> None:
    assert "warning" not in printed("schedules", "add", "a", "@daily", "mial")  # no task is known yet
    node(app, tasks={"mail": "thread", "t": "thread"}, queues=["default"])
    warning = "warning: no live node has the task mial: its runs wait until a node has it; did you mean mail?"
    assert printed("schedules", "add", "b", "@daily", "mial").splitlines()[-1] == warning
    assert printed("schedules", "update", "b", "--task", "mail").splitlines()[-1].startswith("next run")
    assert printed("schedules", "update", "b", "--task", "mial").splitlines()[-1] == warning
    (warning,) = answered("schedules", "add", "c", "@daily", "mial")["schedule"]["warnings"]
    assert warning["hint"] == "did you mean mail?"


def test_the_store_of_the_app_is_named_where_it_is_used(shop: Scheduler) -> None:
    assert printed("doctor").splitlines()[0] == "ok  store       sqlite:///shop.db"
    assert answered("doctor")["checks"][0]["message"] == "sqlite:///shop.db"
    assert printed("db", "upgrade") == "sqlite:///shop.db is up to date: schema 3\n"
    lines = [" ".join(line.split()) for line in printed("config", "show").splitlines()]
    assert "store sqlite:///shop.db the code of shop_app" in lines
    assert answered("config", "show")["settings"]["store"] == {
        "value": "sqlite:///shop.db",
        "from": "app",
        "name": "shop_app",
        "file": None,
        "line": None,
    }


def test_settings_are_shown_also_if_the_app_can_not_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "broken_app.py").write_text("1 / 0\n")
    monkeypatch.setenv("EVENBEAT_APP", "broken_app.py")

    result = run("config", "show", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["settings"]["store"]["value"] is None
    assert result.stderr == (
        "warning: the store is that of the app broken_app.py, which can't be imported: "
        "ZeroDivisionError: division by zero\n"
    )
    assert "not known" in run("config", "show").stdout


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_has_no_word_for_is_refused_in_words_of_json(app: Scheduler, word: str) -> None:
    text = failed("runs", "enqueue", "pay", "--payload", f'{{"amount": {word}}}', code=2)
    assert f"is not JSON: it has no {word}; write null or a text instead" in text


def test_enqueueing_an_id_again_says_that_it_is_there(app: Scheduler, clock: Clock) -> None:
    printed("runs", "enqueue", "mail", "--id", "m1")
    clock.pass_(1_000)
    assert printed("runs", "enqueue", "mail", "--id", "m1") == "m1 is there already: queued\n"


def test_a_schedule_is_updated_and_the_differences_are_shown(app: Scheduler) -> None:
    app.schedules.add("a", "every 10m", "t", {"n": 1}, timeout="5m", description="kept")

    assert printed(
        "schedules",
        "update",
        "a",
        "--trigger",
        "every 5m",
        "--overlap",
        "skip",
        "--priority",
        "high",
        "--payload",
        '{"n": 2}',
        "--retries",
        "3",
        "--no-timeout",
    ).splitlines() == [
        "updated a",
        "  trigger: every 10m → every 5m",
        '  payload: {"n": 1} → {"n": 2}',
        "  retries: 0 → 3",
        "  timeout: 5m → none",
        "  priority: 5 → 8",
        "  overlap: allow → skip",
        "next run Mon 2026-03-02 08:05 +00:00, in 5 min",
    ]
    found = app.schedules.get("a")
    assert (found.trigger, found.description, found.timeout) == ("every 5m", "kept", None)
    assert (
        printed("schedules", "update", "a", "--overlap", "skip")
        == "nothing changed: a has these values already\n"
    )
    printed("schedules", "update", "a", "--no-payload", "--task", "u", "--max-concurrent", "2")
    printed("schedules", "update", "a", "--no-max-concurrent")
    found = app.schedules.get("a")
    assert (found.payload, found.task, found.max_concurrent) == (None, "u", None)


def test_an_update_says_that_the_zone_is_another_one(app: Scheduler) -> None:
    app.schedules.add("a", "0 8 * * * tz=Europe/Berlin", "t")

    output = printed("schedules", "update", "a", "--trigger", "30 8 * * 1-5")
    assert "the zone is now UTC, was Europe/Berlin; --tz Europe/Berlin keeps it\n" in output
    output = printed("schedules", "update", "a", "--trigger", "30 8 * * 1-5", "--tz", "Europe/Paris")
    assert "the zone is now Europe/Paris, was UTC\n" in output
    output = printed("schedules", "update", "a", "--trigger", "45 8 * * *", "--tz", "Europe/Paris")
    assert "zone" not in output
    # An interval has no zone.
    assert "zone" not in printed("schedules", "update", "a", "--trigger", "every 5m")


def test_an_update_mentions_the_code_and_a_pause(app: Scheduler) -> None:
    app.task(schedule="every 10m", name="t")(lambda: None)
    app.declare_tasks()
    app.schedules.pause("t")
    assert printed("schedules", "update", "t", "--trigger", "every 5m").splitlines() == [
        "updated t",
        "  trigger: every 10m → every 5m",
        "the edit stays until the definition in the code changes",
        "to undo it: evenbeat schedules reset t",
        "it is paused: evenbeat schedules resume t",
    ]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "give what to change"),
        (("--tz", "UTC"), "--tz goes with --trigger"),
        (("--timeout", "5s", "--no-timeout"), "--timeout and --no-timeout exclude each other"),
        (("--trigger", "every 0s"), "every"),
        (("--grace", "5m"), '--grace "5m" has no effect with --catch-up latest; add --catch-up skip, or'),
        (
            ("--catch-up-limit", "5"),
            "--catch-up-limit 5 has no effect with --catch-up latest; add --catch-up all",
        ),
    ],
)
def test_an_invalid_update_is_refused(app: Scheduler, args: tuple[str, ...], message: str) -> None:
    app.schedules.add("a", "every 10m", "t")
    assert message in failed("schedules", "update", "a", *args, code=2)


def test_queues_are_shown_with_their_runs_nodes_and_trend(app: Scheduler, clock: Clock) -> None:
    assert printed("queues") == "no queues: nothing is queued, and no node is running\n"
    node(app, host="box", pid=12, tasks={"t": "thread"}, queues=["default"], slots={"thread": 1})
    app.enqueue("t", queue="slow")
    clock.pass_(12 * MINUTE)
    for _ in range(3):
        app.enqueue("t")
    app.enqueue("t", delay="1h", tenant="acme")
    (first, *_rest) = claim(app)
    succeed(app, first)

    lines = printed("queues").splitlines()
    assert lines[0].split() == ["queue", "due", "oldest", "running", "later", "in", "5", "min", "nodes"]
    assert lines[2].split() == ["default", "0", "2", "1", "3", "due,", "1", "ended", "host-1"]
    assert lines[3].split() == ["slow", "1", "12", "min", "0", "stands", "still", "none"]
    document = answered("queues", "--period", "15m")
    assert document["period"] == 15 * 60
    assert [(queue["name"], queue["came_due"], queue["trend"]) for queue in document["queues"]] == [
        ("default", 3, "empty"),
        ("slow", 1, "stands still"),
    ]


def test_why_a_run_waits_is_shown(app: Scheduler, clock: Clock) -> None:
    def waits(run_id: str) -> str:
        (line,) = [line for line in printed("runs", "show", run_id).splitlines() if line.startswith("waits")]
        return line.removeprefix("waits").strip()

    app.enqueue("t", id="due")
    assert waits("due") == "for a worker: no live node executes runs"
    node(app, tasks={"t": "thread"}, queues=["default"], slots={"thread": 1})
    app.enqueue("t", id="later", delay="1h")
    app.enqueue("t", id="slow", queue="slow")
    app.enqueue("u", id="unknown")
    assert waits("due") == "host-1 may take it any moment"
    assert waits("later") == "until it is due"
    assert waits("slow") == "for a worker: no live node that has the task takes from queue slow"
    assert waits("unknown") == "for a worker: no live node has the task u"
    wanted = Claim(worker="host-1", token="c", limit=1, now=clock.now, lease=30_000)
    (held,) = app.store.claim_runs(wanted).runs
    assert "waits" not in printed("runs", "show", "due")
    app.enqueue("t", id="next")
    assert waits("next") == "for a free slot: host-1 is busy"
    assert answered("runs", "show", "next")["waits"] == {
        "reason": "busy",
        "until": None,
        "nodes": ["host-1"],
        "limit": None,
    }
    fail(app, replace(held, execution=replace(held.execution, retries=1)), "no")
    assert waits("due") == "for its next attempt"
    app.enqueue("u", id="nobody", delay="1h")
    assert waits("nobody") == "until it is due; now no live node could take it"


def test_a_run_that_was_handed_back_says_until_when_it_waits_and_for_what(
    app: Scheduler, clock: Clock
) -> None:
    made = app.enqueue("mail", {"to": "ops"})
    node(app, tasks={"mail": "thread"}, queues=["default"], slots={"thread": 1})
    for _ in range(7):
        (held,) = claim(app)
        app.store.settle_runs([attempts.unfit(held, "no such argument", app.store.now(), f"{held.attempt}")])
        clock.pass_(0 if held.attempt == 7 else MINUTE)

    assert (
        "waits     until Mon 2026-03-02 08:07 +00:00, in 1 min, for a node whose code its payload fits"
        in printed("runs", "show", made.id)
    )
    assert answered("runs", "show", made.id)["waits"]["reason"] == "unfit"


def test_how_long_a_run_has_been_running_is_shown(app: Scheduler, clock: Clock) -> None:
    app.enqueue("t", id="r")
    claim(app)
    clock.pass_(61_000)
    assert "took      1 min 1 s so far\n" in printed("runs", "show", "r")


def test_a_spread_schedule_is_late_and_due_by_its_own_time(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("beat", "0 * * * *", "t", spread="20m")
    delay = app.schedules.get("beat").spread_delay
    assert timedelta(0) < delay < timedelta(minutes=20)
    assert (
        answered("schedules", "show", "beat")["next"][0]
        == answered("schedules", "show", "beat")["schedule"]["next_run"]
    )
    clock.now += HOUR + delay // timedelta(milliseconds=1) - 1
    # Not overdue before its own time.
    assert "ago" not in printed("schedules", "list")
    clock.pass_(1)
    fire(app)
    (held,) = claim(app)
    found = answered("runs", "show", held.id)["run"]
    assert found["lateness"] == 0
    assert "late" not in printed("runs", "show", held.id)


def test_ticks_that_waited_for_the_run_before_were_not_missed(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "* * * * *", "t", overlap="queue")
    clock.pass_(MINUTE)
    fire(app)
    (held,) = claim(app, lease=HOUR)
    clock.pass_(2 * MINUTE)
    succeed(app, held)
    fire(app)

    (row,) = answered("schedules", "show", "a")["skipped"]
    assert (row["count"], row["why"]) == (1, "a later run stands for it (overlap queue)")


def test_the_attempts_of_a_run_are_shown_with_worker_and_outcome(app: Scheduler, clock: Clock) -> None:
    app.enqueue("t", id="r", retries=3)
    (held,) = claim(app)
    clock.pass_(2_000)
    fail(app, held, "Traceback (most recent call last):\n  File x\nOSError: no route")
    clock.pass_(MINUTE)
    (held,) = claim(app)
    assert app.store.settle_runs([attempts.released(held, clock.now, "back")]) == [True]
    assert "attempts  2: 1 failure, 1 handed back; up to 3 retries\n" in printed("runs", "show", "r")
    (held,) = claim(app)
    clock.pass_(500)

    lines = printed("runs", "show", "r").splitlines()
    assert "attempts  3: 1 failure, 1 handed back; up to 3 retries" in lines
    assert [line.split() for line in lines[lines.index("") + 1 :] if line[:2].strip().isdigit()] == [
        ["1", "failed", "08:00", "2.0", "s", "node-1", "OSError:", "no", "route"],
        ["2", "handed", "back", "08:01:02", "0", "ms", "node-1"],
    ]
    succeed(app, held)
    assert "3  succeeded    08:01:02  500 ms  node-1" in printed("runs", "show", "r")


def test_one_attempt_needs_no_table(app: Scheduler) -> None:
    app.enqueue("t", id="r")
    (held,) = claim(app)
    succeed(app, held)
    text = printed("runs", "show", "r")
    assert "attempts  1\n" in text
    assert "#" not in text


def test_a_pause_is_shown_with_its_author_and_time(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "@daily", "t")
    app.schedules.pause("a", "migration")
    clock.pass_(HOUR)
    by = app.schedules.get("a").paused_by
    assert by
    text = printed("schedules", "show", "a")
    assert "state    paused: migration\n" in text
    assert f"paused   by {by}, Mon 2026-03-02 08:00 +00:00, 1 h ago\n" in text


def test_attention_lists_what_needs_somebody(app: Scheduler, clock: Clock) -> None:
    assert printed("attention") == "nothing needs attention\n"
    app.schedules.add("a", "every 1h", "t")
    app.schedules.add("b", "every 1h", "t", tenant="acme")
    assert printed("attention") == (
        "No node is running: no tick will fire.\n"
        "          1 schedule is active\n"
        "  remedy  start a node: evenbeat run\n"
    )
    clock.pass_(2 * HOUR)
    assert "No node is running: 2 schedules are late.\n" in printed("attention", "--all-tenants")
    (item,) = answered("attention", "--json", "--tenant", "acme")["items"]
    assert (item["kind"], item["count"], item["since"]) == ("no_ticker", 1, "2026-03-02T09:00:00Z")
    node(app, tasks={"t": "thread"})
    shown = printed("attention", "--all-tenants")
    assert "acme: b is late by 1 h: its tick has not fired.\n" in shown
    assert "evenbeat why b --tenant acme" in shown


def test_attention_says_whether_the_number_of_the_others_is_exact(
    app: Scheduler, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(25):
        app.schedules.add(f"s{number:02}", "every 1h", "t")
    clock.pass_(HOUR + MINUTE)
    node(app, tasks={"t": "thread"})
    assert printed("attention").endswith("\n\nand 5 more\n")
    monkeypatch.setattr(stuck_work, "_PAGE", 22)
    assert printed("attention").endswith("\n\nand at least 3 more\n")


def test_attention_says_that_it_has_not_read_everything(
    app: Scheduler, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stuck_work, "_PAGE", 1)
    app.enqueue_many([("t", None)] * 2)
    clock.pass_(2 * MINUTE)
    assert printed("attention").endswith("\n\nthere may be more: not everything was read\n")
