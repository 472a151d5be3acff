"""``evenbeat schedules backfill`` and ``evenbeat backfills``: what is printed, and what is refused."""

from __future__ import annotations

import sys

import click
import pytest

from evenbeat import Scheduler, cron
from evenbeat.cli import backfill_words, progress
from evenbeat.cli.progress import bar
from evenbeat.core.records import Record
from evenbeat.node.backfills import advance
from evenbeat.rules import attempts
from tests.unit import cli_store
from tests.unit.cli_store import Clock, answered, claim, failed, printed, run
from tests.unit.sleeping import replace_sleep

# Fixtures: a store in this folder, and a clock that stands still on a Monday at 08:00 UTC.
app, clock = cli_store.app, cli_store.clock

RANGE = ("--from", "2026-03-02T00:00Z", "--to", "2026-03-02T04:00Z")


@pytest.fixture(autouse=True)
def hourly(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("hourly", cron("0 * * * *"), "work")


def work(app: Scheduler, error: str | None = None) -> None:
    """End the queued runs, and go on."""
    for held in claim(app):
        now = app.store.now()
        end = attempts.succeeded(held, None, now, held.id) if error is None else None
        app.store.settle_runs([end or attempts.failed(held, error or "", now, held.id)])
    for backfill in app.backfills.list():
        advance(app.store, backfill.tenant, backfill.id, app.store.now())


def test_a_dry_run_lists_the_ticks_and_adds_nothing(app: Scheduler) -> None:
    assert printed("schedules", "backfill", "hourly", *RANGE, "--dry-run").splitlines() == [
        "would add 4 runs of hourly",
        "4 ticks from Mon 2026-03-02 00:00 +00:00 to before Mon 2026-03-02 04:00 +00:00:",
        "  4 no record",
        "",
        "tick                         before     run",
        "───────────────────────────────────────────",
        "Mon 2026-03-02 00:00 +00:00  no record  yes",
        "Mon 2026-03-02 01:00 +00:00  no record  yes",
        "Mon 2026-03-02 02:00 +00:00  no record  yes",
        "Mon 2026-03-02 03:00 +00:00  no record  yes",
        "",
        "nothing was added: leave out --dry-run to add them",
    ]
    assert app.backfills.list() == []


def test_a_backfill_is_made_listed_shown_and_cancelled(app: Scheduler) -> None:
    made = printed("schedules", "backfill", "hourly", *RANGE, "--id", "mine", "--max-concurrent", "2")
    assert made.splitlines() == [
        "backfill mine of hourly: running",
        "[..............................] 0 of 4 runs ended, 2 active",
        "to follow it: evenbeat backfills show mine --wait",
        "to cancel it: evenbeat backfills cancel mine",
    ]
    work(app, "boom")
    heading, _, line = printed("backfills", "list").splitlines()
    assert heading.split() == ["id", "schedule", "state", "ended", "failed", "from", "to"]
    row = "mine  hourly    running    2/4  [######......]       2  2026-03-02 00:00 +00:00"
    assert line == f"{row}  2026-03-02 04:00 +00:00"
    shown = printed("backfills", "show", "mine")
    assert "progress  [###############...............] 2 of 4 runs ended, 2 failed, 2 active" in shown
    assert "failed    default/hourly/backfill/mine/" in shown
    assert printed("backfills", "cancel", "mine") == "cancelled backfill mine of hourly: 0 runs not added\n"
    (found,) = answered("backfills", "list", "--schedule", "hourly")["backfills"]
    assert (found["id"], found["state"], found["cancelled"]) == ("mine", "cancelled", 2)
    app.schedules.add("other", "@daily", "t")
    assert answered("backfills", "list", "--schedule", "other") == {"backfills": []}
    assert answered("backfills", "list", "--all-tenants")["backfills"] == [found]


def test_the_same_range_again_says_that_nothing_is_added(app: Scheduler) -> None:
    command = ("schedules", "backfill", "hourly", *RANGE)
    made = answered(*command)["backfill"]
    assert made["existed_since"] is None
    exists = f"backfill {made['id']} of hourly exists since Mon 2026-03-02 08:00 +00:00"
    dry = printed(*command, "--dry-run", "--newest-first").splitlines()
    assert dry[:2] == [exists, "would add 0 runs of hourly"]
    assert "Mon 2026-03-02 00:00 +00:00  queued now  no" in dry
    assert dry[-1] == "nothing would be added: another --id runs the range again"
    app.backfills.cancel(made["id"])
    again = printed(*command, "--newest-first", "--max-concurrent", "3").splitlines()
    assert again[:3] == [
        f"{exists}: nothing was added",
        "its options stay: oldest first, at most 1 at once; another --id runs the range again",
        f"backfill {made['id']} of hourly: cancelled",
    ]
    assert f"{exists}: nothing was added" in run(*command, "--wait").stdout
    assert "exists" not in printed(*command, "--id", "again")


def test_a_dry_run_refuses_an_id_that_another_backfill_has(app: Scheduler) -> None:
    app.schedules.backfill("hourly", "2026-03-01", "2026-03-02", id="mine")
    words = failed("schedules", "backfill", "hourly", *RANGE, "--id", "mine", "--dry-run")
    assert "about other ticks" in words


def test_without_missing_runs_it_says_that_there_is_nothing_to_add(app: Scheduler) -> None:
    app.schedules.backfill("hourly", "2026-03-02T00:00Z", "2026-03-02T04:00Z", max_concurrent=4)
    work(app)
    app.store.put_record(Record(kind="purged", key="before", body=str(app.store.now())))
    command = ("schedules", "backfill", "hourly", *RANGE, "--missing-only")
    dry = printed(*command, "--dry-run").splitlines()
    assert dry[0] == "would add 0 runs of hourly"
    assert dry[-1] == "there is nothing to add: all 4 ticks have a succeeded run"
    assert not any("may be deleted" in line for line in dry)
    made = printed(*command).splitlines()
    assert made[0] == "there is nothing to add: all 4 ticks have a succeeded run"


def test_a_list_shows_both_ends_of_the_range_in_the_zone_of_the_schedule(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.schedules.add("bank", cron("0 9 * * *", tz="Europe/Berlin"), "work")
    app.schedules.backfill("bank", "2025-10-01", "2025-11-01", id="0123456789abcdef")
    monkeypatch.setenv("COLUMNS", "80")
    lines = printed("backfills", "list").splitlines()
    assert lines[0].split() == ["id", "schedule", "state", "ended", "from", "to"]
    words = [*lines[2].split(), *lines[3].split()]
    assert [words.count(word) for word in ("2025-10-01", "+02:00", "2025-11-01", "+01:00")] == [1, 1, 1, 1]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--from", "2026-03-02", "--to", "2026-03-01"), "; give the earlier time first\n"),
        (("--from", "1d", "--to", "7d"), "; a duration counts back from now: 7d is before 1d\n"),
        (
            ("--from", "2026-02-30", "--to", "now"),
            'error: --from "2026-02-30": there is no such day; a date alone is enough: "2026-03-01"\n',
        ),
        (("--from", "2026-02-01T25:00", "--to", "now"), "there is no such time"),
    ],
)
def test_a_refused_range_is_answered_in_its_own_terms(options: tuple[str, ...], words: str) -> None:
    assert words in failed("schedules", "backfill", "hourly", *options, code=2)


def test_now_is_the_end_of_a_range() -> None:
    made = answered("schedules", "backfill", "hourly", "--from", "4h", "--to", "now", "--dry-run")["backfill"]
    assert made["end"] == "2026-03-02T08:00:00Z"


def test_without_backfills_the_list_says_how_to_make_one() -> None:
    assert "schedules backfill NAME" in printed("backfills", "list")


def test_the_options_reach_the_backfill(app: Scheduler) -> None:
    options = ("--newest-first", "--priority", "7", "--payload", '{"a": 1}', "--missing-only")
    found = answered("schedules", "backfill", "hourly", *RANGE, *options)["backfill"]
    assert (found["order"], found["priority"], found["payload"]) == ("newest", 7, {"a": 1})
    assert found["missing_only"]
    assert app.backfills.get(found["id"]).order == "newest"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--from", "2026-03-02T00:00Z", "--to", "2026-03-09T00:00Z"), "--to"),
        (("--from", "2026-03-02T02:00Z", "--to", "2026-03-02T01:00Z"), "--to"),
        (("--from", "2026-03-02T02:01Z", "--to", "2026-03-02T02:02Z"), "no tick"),
        (("--from", "soon", "--to", "1h"), "--from"),
        ((*RANGE, "--max-concurrent", "0"), "--max-concurrent"),
        ((*RANGE, "--priority", "urgent"), "--priority"),
        ((*RANGE, "--id", "a b"), "--id"),
    ],
)
def test_bad_values_are_refused_by_their_flag(options: tuple[str, ...], words: str) -> None:
    assert words in failed("schedules", "backfill", "hourly", *options, code=2)


def test_unknown_names_are_refused() -> None:
    assert "nope" in failed("schedules", "backfill", "nope", *RANGE)
    for verb in ("show", "cancel"):
        assert "there is no backfill nope" in failed("backfills", verb, "nope").replace('"', "")


@pytest.mark.parametrize("error", [None, "boom"])
def test_waiting_shows_the_progress_and_answers_by_the_exit_code(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch, error: str | None
) -> None:
    replace_sleep(monkeypatch, lambda _: work(app, error))
    monkeypatch.setattr(progress, "_LINE_EVERY", 0.0)
    result = run("schedules", "backfill", "hourly", *RANGE, "--wait")
    assert result.exit_code == (0 if error is None else 1)
    lines = result.stderr.splitlines()
    assert lines[0] == "[..............................] 0 of 4 runs ended, 1 active"
    assert lines[-1].startswith("[##############################] 4 of 4 runs ended")
    assert ": done" in result.stdout
    again = run("backfills", "show", app.backfills.list()[0].id, "--follow")
    assert again.exit_code == result.exit_code


def test_on_a_terminal_one_line_changes(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, bool]] = []
    replace_sleep(monkeypatch, lambda _: work(app))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "echo", lambda text="", nl=True, **_: said.append((str(text), nl)))
    made = app.schedules.backfill("hourly", "4h", "0s")
    assert backfill_words.follow(app, made).state == "done"
    assert all(text.startswith("\r") and not nl for text, nl in said[:-1])
    assert said[-1] == ("", True)


def test_an_empty_backfill_has_a_full_bar() -> None:
    assert bar(0, 0, 4) == "[####]"
    assert bar(2, 3, 3) == "[##.]"
    assert bar(5, 3, 3) == "[###]", "more runs than were counted before"
