"""``evenbeat schedules list`` and ``show``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from evenbeat import Scheduler
from evenbeat.cli import output
from tests.unit import cli_store
from tests.unit.cli_store import HOUR, MINUTE, Clock, answered, claim, fail, fire, printed, succeed

app, clock = cli_store.app, cli_store.clock


# -- schedules list ------------------------------------------------------------------------------------------


def test_schedules_are_listed_with_state_next_run_trigger_task_and_last_result(
    app: Scheduler, clock: Clock
) -> None:
    app.schedules.add("digest", "0 9 * * mon-fri", "send_digest")
    app.schedules.add("cleanup", "every 10m", "clean")
    app.schedules.pause("cleanup", "migration")
    app.schedules.run_now("digest")
    (held,) = claim(app)
    succeed(app, held)
    clock.pass_(5 * MINUTE)

    assert printed("schedules", "list").splitlines() == [
        "name     state              next run             trigger      task         last run",
        "─" * 87,
        "cleanup  paused: migration                       every 10m    clean",
        "digest   active             09:00     in 55 min  0 9 * * 1-5  send_digest  ok 5 min ago",
    ]


def test_near_dates_are_short(app: Scheduler) -> None:
    for name, when in (("a", "2026-03-02T09:00Z"), ("b", "2026-03-04T09:00:30Z"), ("c", "2026-04-02T09:00Z")):
        app.schedules.add(name, f"at {when}", "t")

    rows = printed("schedules", "list").splitlines()[2:]
    assert [row.partition("active")[2].partition("at ")[0].strip() for row in rows] == [
        "09:00             in 1 h",
        "Wed 09:00:30      in 2 d 1 h",
        "2026-04-02 09:00  in 31 d 1 h",
    ]


def test_dates_are_those_of_the_local_zone(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    app.schedules.add("a", "0 9 * * *", "t")
    monkeypatch.setenv("TZ", "Asia/Tokyo")

    assert "  18:00     in 1 h" in printed("schedules", "list")
    assert "Mon 2026-03-02 18:00 +09:00" in printed("schedules", "show", "a")


def test_a_pause_with_an_end_says_until_when(app: Scheduler) -> None:
    app.schedules.add("a", "* * * * *", "t")
    app.schedules.pause("a", "tax rates", until="2026-03-02T12:00Z")

    assert "paused until 12:00: tax rates" in printed("schedules", "list")


def test_an_overdue_schedule_is_seen_to_be(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "@hourly", "t")
    clock.pass_(2 * HOUR)

    assert "09:00     1 h ago" in printed("schedules", "list")


@pytest.mark.parametrize(
    ("end", "words"), [("succeeded", "ok 2 min ago"), ("failed", "failed 2 min ago"), ("", "cancelled 2 min")]
)
def test_the_last_result_is_shown(app: Scheduler, clock: Clock, end: str, words: str) -> None:
    app.schedules.add("a", "@daily", "t")
    made = app.schedules.run_now("a")
    if end:
        (held,) = claim(app)
        succeed(app, held) if end == "succeeded" else fail(app, held, "no")
    else:
        app.runs.cancel(made.id)
    clock.pass_(2 * MINUTE)

    assert words in printed("schedules", "list")


def test_lists_are_narrowed_and_belong_to_a_tenant(app: Scheduler) -> None:
    app.schedules.add("a", "@daily", "t")
    app.schedules.add("b", "@daily", "u")
    app.schedules.add("c", "@daily", "t", tenant="acme")
    app.schedules.pause("b")

    def names(*args: str) -> list[str]:
        return [row["name"] for row in answered("schedules", "list", *args)["schedules"]]

    assert names() == ["a", "b"]
    assert names("--state", "paused") == names("--task", "u") == ["b"]
    assert names("--limit", "1") == ["a"]
    assert names("--tenant", "acme") == ["c"]
    assert names("--all-tenants") == ["c", "a", "b"]
    assert "tenant   name" in printed("schedules", "list", "--all-tenants")


def test_an_empty_list_has_a_hint(app: Scheduler) -> None:
    assert printed("schedules", "list") == "no schedules yet: evenbeat schedules add --help\n"
    assert printed("schedules", "list", "--state", "paused") == "no such schedules\n"
    assert printed("runs", "list") == "no runs\n"
    assert printed("runs", "list", "--state", "failed") == "no such runs\n"


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 140])
def test_a_list_fits_any_terminal(app: Scheduler, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    app.schedules.add("weekly-digest-for-all-customers", "0 8 * * mon tz=Europe/Berlin", "send_the_digest")
    app.schedules.add("a", "@daily", "t")
    app.schedules.pause("a", "because of a long story that does not end soon")
    monkeypatch.setenv("COLUMNS", str(columns))

    lines = printed("schedules", "list").splitlines()
    assert max(map(len, lines)) <= columns
    assert any("in 6 d 23 h" in line for line in lines)
    assert columns < 80 or any("weekly-digest-for-all-customers" in line for line in lines)


def titles(*args: str) -> list[str]:
    return [word.strip() for word in printed(*args).splitlines()[0].split("  ") if word.strip()]


def test_the_columns_of_a_narrow_table_have_titles(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    app.schedules.add("weekly-digest-for-all-customers", "0 8 * * mon tz=Europe/Berlin", "send_the_digest")
    app.schedules.run_now("weekly-digest-for-all-customers")
    held = claim(app)[0]
    succeed(app, held)
    app.schedules.run_now("weekly-digest-for-all-customers")
    claim(app)

    monkeypatch.setenv("COLUMNS", "80")
    assert titles("schedules", "list") == ["name", "state", "next", "trigger", "last run"]
    assert titles("runs", "list") == ["run", "state", "task", "due", "took"]
    monkeypatch.setenv("COLUMNS", "70")
    assert titles("runs", "list") == ["run", "state", "task", "due"]


def test_the_list_as_json_has_the_definition_and_the_history(app: Scheduler) -> None:
    app.schedules.add("a", "0 9 * * * tz=Europe/Berlin", "t", {"team": "ops"}, timeout="5m")

    (row,) = answered("schedules", "list")["schedules"]
    assert (row["next_run"], row["payload"]) == ("2026-03-03T08:00:00Z", {"team": "ops"})
    assert (row["timeout"], row["stats"]["run_count"]) == (300, 0)


# -- schedules show ------------------------------------------------------------------------------------------


def test_all_about_a_schedule_is_shown(app: Scheduler, clock: Clock) -> None:
    app.schedules.add(
        "digest",
        "0 9 * * mon-fri",
        "send_digest",
        {"team": "ops"},
        description="For everybody.",
        retries=3,
        timeout="5m",
        catch_up="skip",
        overlap="queue",
        max_concurrent=2,
        spread="1m",
        on_crash="fail",
    )
    made = app.schedules.run_now("digest")
    (held,) = claim(app)
    clock.pass_(1_500)
    fail(app, replace(held, failures=3), "Traceback (most recent call last):\n  …\nOSError: no \x1b[31mroute")
    app.schedules.reschedule("digest", "2026-03-04T10:00Z")

    text = printed("schedules", "show", "digest")
    for line in (
        "digest",
        "At 09:00, Monday to Friday (UTC)",
        "state    active",
        "about    For everybody.",
        "task     send_digest",
        "trigger  0 9 * * 1-5",
        'payload  {"team": "ops"}',
        "policy   catch-up skip (later than 1m), overlap queue, at most 2 runs at once, spread over 1m",
        "(fires 1.5 s after each tick)",
        "runs     queue default, priority 5 (normal), 3 retries after 10s, doubled, timeout 5m,",
        "created  Mon 2026-03-02 08:00 +00:00, by hand",
        "1  Wed 2026-03-04 10:00:01 +00:00  2 d 2 h",
        "2  Thu 2026-03-05 09:00:01 +00:00  3 d 1 h",
        "history  1 run: 0 succeeded, 1 failed",
        "         last failure Mon 2026-03-02 08:00:01 +00:00, now",
        "         OSError: no �[31mroute",
        f"{made.id}  failed  08:00  0 ms  1.5 s",
        "09:00 to Wed 09:00      3  passed over when the next run was moved",
    ):
        assert line in text


def test_a_trigger_is_shown_as_the_name_resolves_it(app: Scheduler) -> None:
    app.schedules.add("nightly-report", "H 3 * * *", "t")

    assert "At 03:18 every day (UTC)" in printed("schedules", "show", "nightly-report")


def test_a_schedule_that_code_declared_says_so(app: Scheduler) -> None:
    app.schedules.declare("a", "@daily", "t")
    assert "created  Mon 2026-03-02 08:00 +00:00, by code" in printed("schedules", "show", "a")
    assert app.schedules.get("a").declared


def test_a_cancelled_retry_took_no_time_and_is_in_the_history(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "@daily", "t", retries=1)
    made = app.schedules.run_now("a")
    (held,) = claim(app)
    fail(app, held, "no")
    clock.pass_(450)
    app.runs.cancel(made.id)

    assert app.runs.get(made.id).duration is None
    assert "took" not in printed("runs", "show", made.id).partition("#")[0]
    assert "history  1 run: 0 succeeded, 0 failed, 1 cancelled" in printed("schedules", "show", "a")


def test_a_tick_that_waits_for_a_run_to_end_says_so(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "@hourly", "t", overlap="queue")
    app.schedules.run_now("a")
    (held,) = claim(app, lease=2 * HOUR)
    clock.pass_(HOUR)
    assert "09:00     now" in printed("schedules", "list")
    fire(app)
    clock.pass_(1_000)

    assert "09:00     waits for a run to end" in printed("schedules", "list")
    shown = printed("schedules", "show", "a")
    assert "waits    for a run to end, with the tick of Mon 2026-03-02 09:00 +00:00" in shown
    assert app.schedules.get("a").is_waiting
    succeed(app, held)
    fire(app)
    assert not app.schedules.get("a").is_waiting
    assert "waits" not in printed("schedules", "list")


def test_a_schedule_that_never_ran_has_no_history(app: Scheduler) -> None:
    app.schedules.add("a", "every 10m", "t", tenant="acme")

    text = printed("schedules", "show", "a", "--tenant", "acme")
    assert "history  no run has ended yet\n" in text
    assert "by hand, for tenant acme" in text


def test_every_reason_for_a_skipped_tick_has_words(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "* * * * *", "t")
    clock.pass_(10 * MINUTE)
    fire(app)
    app.schedules.pause("a")
    clock.pass_(3 * MINUTE)
    app.schedules.resume("a")

    skipped = answered("schedules", "show", "a")["skipped"]
    assert [(row["reason"], row["count"]) for row in skipped] == [("paused", 3), ("coalesced", 9)]
    assert [row["why"] for row in skipped] == [
        "the schedule was paused",
        "missed; a later run stands for them (catch-up latest)",
    ]


def test_show_has_a_character_for_each_of_the_last_runs(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "* * * * *", "t", overlap="allow")
    for end in (succeed, succeed, None, lambda app, run: fail(app, run, "no"), succeed, succeed):
        assert "last " not in printed("schedules", "show", "a").replace("last success", "").replace(
            "last failure", ""
        )
        clock.pass_(MINUTE)
        fire(app)
        for run in claim(app)[:1]:
            if end is not None:
                end(app, run)

    assert "last 6   ||>x||" in printed("schedules", "show", "a")
    states = [run["state"] for run in answered("schedules", "show", "a")["recent"]]
    assert states == ["succeeded", "succeeded", "running", "failed", "succeeded", "succeeded"]


def test_show_as_json_has_the_coming_ticks(app: Scheduler) -> None:
    app.schedules.add("a", "@daily", "t")

    document = answered("schedules", "show", "a")
    assert document["next"][:2] == ["2026-03-03T00:00:00Z", "2026-03-04T00:00:00Z"]
    assert document["explain"] == "at 00:00 every day (UTC)"


# -- JSON ----------------------------------------------------------------------------------------------------


def test_json_has_no_character_that_could_rewrite_the_terminal(app: Scheduler) -> None:
    text = "\x00\x1b[2J\x7f\x85\x9b31m\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ufeff\U000e0001"
    text += " naïve 漢 😀"
    app.schedules.add("a", "* * * * *", "t", {"text": text}, description="ok \u202e\x9b")
    out = printed("schedules", "show", "a", "--json")
    assert [char for char in out if not char.isprintable() and char != "\n"] == []
    assert "naïve 漢 😀" in out
    assert r"\u009b31m" in out
    document = json.loads(out)
    assert document["schedule"]["payload"]["text"] == text
    assert document["schedule"]["description"] == "ok \u202e\x9b"


def test_every_command_prints_json_in_the_same_way() -> None:
    folder = Path(output.__file__).parent
    places = [
        f"{path.relative_to(folder)}: {line.strip()}"
        for path in sorted(folder.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if "echo(json.dumps" in line or ("json.dumps(" in line and "indent" in line)
    ]
    assert places == ["output.py: text = json.dumps(document, indent=2, ensure_ascii=False)"]
