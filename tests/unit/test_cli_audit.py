"""``evenbeat audit``, the histories, tags, and changes of many schedules at once."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from evenbeat import Scheduler, acting_as, every
from evenbeat.app.acting import this_user
from evenbeat.cli import store_input
from evenbeat.cli.root import root
from evenbeat.core.records import Record
from tests.unit.cli_store import answered, failed, printed, run

MONDAY = 1_772_438_400_000


class Clock:
    """The clock of this machine, which is that of SQLite: Monday, 2026-03-02, 08:00 UTC."""

    now = MONDAY


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Clock:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", *(key for key in os.environ if "EVENBEAT" in key)):
        monkeypatch.delenv(name, raising=False)
    found = Clock()
    monkeypatch.setattr(time, "time_ns", lambda: found.now * 1_000_000)
    return found


@pytest.fixture
def app(clock: Clock, tmp_path: Path) -> Iterator[Scheduler]:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/evenbeat.db")
    with acting_as("anna", "api"):
        scheduler.schedules.add("bill-eu", every("1h"), "work", tags=["billing", "eu"])
        clock.now += 60_000
        scheduler.schedules.add("bill-us", every("1h"), "work", tags=["billing"], description="Invoices")
        clock.now += 60_000
        scheduler.schedules.add("digest", every("1h"), "mail", queue="slow")
    clock.now += 60_000
    yield scheduler
    scheduler.close()


def subjects(*args: str) -> list[str]:
    return [entry["subject"] for entry in answered("audit", *args)["entries"]]


# -- audit ---------------------------------------------------------------------------------------------------


def test_the_audit_says_who_changed_what(app: Scheduler) -> None:
    with acting_as("ben"):
        app.schedules.update("digest", retries=3, timeout="5m", payload={"password": "hunter2"})
    lines = [" ".join(line.split()) for line in printed("audit").splitlines()]
    assert lines[0] == "when who via action subject change"
    changes = 'payload: none → {"password": "***"}, retries: 0 → 3, timeout: none → 5m'
    assert lines[2] == f"08:03 ben python update digest {changes}"
    values = "task mail, trigger every 1h, queue slow, state active, next_run 09:02"
    assert lines[3] == f"08:02 anna api add digest {values}"
    assert len(lines) == 6


@pytest.mark.parametrize("width", [60, 80, 120])
def test_names_and_ids_of_the_audit_are_never_folded(
    app: Scheduler, clock: Clock, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    with acting_as("anna@example.com"):
        app.schedules.pause("digest", "migration of the billing database")
        run_id = app.schedules.run_now("digest").id
        app.runs.cancel(run_id)
    clock.now += 30 * 86_400_000  # so that the dates are long
    monkeypatch.setenv("COLUMNS", str(width))
    lines = printed("audit", "--limit", "3").splitlines()
    assert max(map(len, lines)) <= width
    heads = [line for line in lines if "anna@example.com" in line]
    if width == 120:
        assert lines[0].split() == ["when", "who", "action", "subject", "change"]
        assert [line.split()[3] for line in heads] == ["cancel", "run_now", "pause"]
        assert f"run {run_id}" in heads[0]
        return
    assert [line.split()[-1] for line in heads] == ["cancel", "digest", "digest"]
    place = lines.index(heads[0])
    assert lines[place + 1 : place + 3] == [f"  run {run_id}", "  state: queued → cancelled"]
    assert lines[lines.index(heads[2]) + 1].startswith("  state: active → paused, pause_note: none →")


def test_the_audit_is_filtered(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("other", every("1h"), "work", tenant="acme")
    app.schedules.pause("bill-us")
    assert subjects() == ["bill-us", "digest", "bill-us", "bill-eu"]
    assert subjects("--subject", "bill-us") == ["bill-us", "bill-us"]
    assert subjects("--actor", "anna") == ["digest", "bill-us", "bill-eu"]
    assert subjects("--action", "pause") == ["bill-us"]
    assert subjects("--since", "90s") == ["bill-us", "digest"]
    assert subjects("--since", "08:01", "--until", "08:02") == ["bill-us"]
    assert subjects("--tenant", "acme") == ["other"]
    assert sorted(subjects("--all-tenants")) == ["bill-eu", "bill-us", "bill-us", "digest", "other"]
    assert "tenant" in printed("audit", "--all-tenants").splitlines()[0]
    document = answered("audit", "--limit", "2")
    assert (len(document["entries"]), document["more"]) == (2, True)
    assert printed("audit", "--limit", "2").endswith("there are more: --limit 10\n")
    newest = printed("audit", "--limit", "1").splitlines()
    assert "subject" in newest[0], "also where all entries are about the same one"
    assert printed("audit", "--actor", "nobody") == "no such changes\n"
    assert printed("audit", "--tenant", "nobody") == "nobody has changed anything yet\n"
    assert "invalid value for '--action'" in failed("audit", "--action", "pauze", code=2)


def test_the_command_line_acts_as_its_user(app: Scheduler) -> None:
    printed("schedules", "pause", "digest", "--note", "migration")
    printed("schedules", "update", "digest", "--retries", "2")
    printed("runs", "enqueue", "mail", "--id", "by-hand")
    printed("runs", "cancel", "by-hand")
    entries = app.audit.list(actor=this_user())
    assert {entry.via for entry in entries} == {"cli"}
    assert [(entry.action, entry.subject) for entry in entries] == [
        ("cancel", "by-hand"),
        ("enqueue", "by-hand"),
        ("update", "digest"),
        ("pause", "digest"),
    ]
    assert app.schedules.get("digest").paused_by == this_user()


def test_the_history_of_a_schedule_stays_when_it_is_deleted(app: Scheduler) -> None:
    printed("schedules", "delete", "digest")
    document = answered("schedules", "history", "digest")
    assert [entry["action"] for entry in document["entries"]] == ["delete", "add"]
    assert document["entries"][0]["before"]["queue"] == "slow"
    words = printed("schedules", "history", "digest", "--limit", "1")
    assert "subject" not in words.splitlines()[0]
    assert "task mail, trigger every 1h" in words
    assert "did you mean digest" not in failed("schedules", "history", "bill")


def test_the_history_of_a_run(app: Scheduler) -> None:
    app.enqueue("mail", id="r")
    assert printed("runs", "history", "r") == "nobody changed this run by hand\n"
    printed("runs", "cancel", "r")
    words = printed("runs", "history", "r")
    assert "cancel" in words
    assert "state: queued → cancelled" in words
    assert "there is no run" in failed("runs", "history", "nobody")


def test_a_hostile_text_does_not_rewrite_the_terminal(app: Scheduler) -> None:
    with acting_as("eve\x1b[2J"):
        app.schedules.pause("digest", "\x1b[31mgone\n" + "x" * 500)
    words = printed("audit")
    assert "\x1b" not in words
    assert "x" * 100 not in words


@pytest.mark.parametrize("width", [80, 120])
def test_the_audit_fits_the_terminal(app: Scheduler, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = printed("audit").splitlines()
    assert max(map(len, lines)) <= width
    assert "subject" in lines[0]


def test_an_entry_that_can_not_be_read_is_left_out(app: Scheduler) -> None:
    assert app.store.put_record(Record(kind="audit", key="0" * 32, body="{"))
    assert subjects() == ["digest", "bill-us", "bill-eu"]


# -- tags ----------------------------------------------------------------------------------------------------


def test_schedules_are_listed_by_tag_text_queue_and_origin(app: Scheduler) -> None:
    def names(*args: str) -> list[str]:
        return [row["name"] for row in answered("schedules", "list", *args)["schedules"]]

    assert names("--tag", "billing") == ["bill-eu", "bill-us"]
    assert names("--tag", "billing", "--text", "INVOICES") == ["bill-us"]
    assert names("--queue", "slow") == ["digest"]
    assert names("--managed-by", "code") == []
    assert names("--managed-by", "api", "--limit", "1") == ["bill-eu"]
    assert printed("schedules", "list", "--tag", "nope") == "no such schedules\n"
    words = printed("schedules", "list")
    assert "billing, eu" in words


def test_tags_are_a_column_where_there_is_room(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = printed("schedules", "list").splitlines()
    assert "tags" not in lines[0]
    monkeypatch.setenv("COLUMNS", "120")
    assert "tags" in printed("schedules", "list").splitlines()[0]


def test_show_has_the_tags(app: Scheduler) -> None:
    assert "tags     billing, eu\n" in printed("schedules", "show", "bill-eu")
    assert "tags" not in printed("schedules", "show", "digest")
    printed("schedules", "update", "digest", "--tags", "team:ops, billing")
    assert app.schedules.get("digest").tags == ("billing", "team:ops")
    words = printed("schedules", "update", "digest", "--tags", "eu")
    assert 'tags: ["billing", "team:ops"] → ["eu"]' in words


def test_tags_are_completed_from_the_store(app: Scheduler) -> None:
    found = store_input.complete_tag(click.Context(root), click.Option(["--tag"]), "")
    assert found == ["billing", "eu"]
    assert store_input.complete_tag(click.Context(root), click.Option(["--tag"]), "b") == ["billing"]


# -- many at once --------------------------------------------------------------------------------------------


def states(app: Scheduler) -> dict[str, str]:
    return {row.name: row.state for row in app.schedules.list()}


def test_all_that_match_are_paused_and_resumed_after_a_yes(app: Scheduler) -> None:
    assert failed("schedules", "pause", "--all", "--tag", "billing") == (
        "error: nothing was done: 2 schedules match\nhint: add --yes to pause them\n"
    )
    assert failed("schedules", "pause", "--all", "--json").startswith("error: nothing was done: 3 schedules")
    assert set(states(app).values()) == {"active"}
    words = printed("schedules", "pause", "--all", "--tag", "billing", "--note", "n", "--until", "2h", "-y")
    assert words == "paused 2 schedules\n"
    assert states(app) == {"bill-eu": "paused", "bill-us": "paused", "digest": "active"}
    assert app.schedules.get("bill-eu").pause_note == "n"
    document = answered("schedules", "resume", "--all", "--limit", "1", "--yes")
    assert (document["matched"], document["done"], document["more"]) == (1, 1, True)
    assert printed("schedules", "resume", "--all", "-y") == "resumed 1 schedule\n"
    assert printed("schedules", "resume", "--all") == "there are no such schedules to resume\n"


def test_all_that_match_are_run_and_those_without_room_are_named(app: Scheduler) -> None:
    app.schedules.update("bill-us", overlap="skip")
    assert printed("schedules", "run", "--all", "--text", "bill", "-y") == "queued a run of 2 schedules\n"
    lines = printed("schedules", "run", "--all", "--text", "bill", "-y", code=1).splitlines()
    assert lines[:2] == ["queued a run of 1 schedule", "left 1 schedule alone:"]
    assert lines[2].startswith("  bill-us: has 1 active run, and its policies (overlap=skip")


def test_all_that_match_are_deleted(app: Scheduler) -> None:
    assert "add --yes to delete them" in failed("schedules", "delete", "--all")
    assert printed("schedules", "delete", "--all", "--task", "work", "-y") == "deleted 2 schedules\n"
    assert list(states(app)) == ["digest"]


@pytest.mark.parametrize("command", ["pause", "resume", "run", "delete"])
def test_a_schedule_is_named_or_schedules_are_chosen(app: Scheduler, command: str) -> None:
    for args in ((), ("digest", "--all"), ("digest", "--tag", "eu"), ("digest", "--state", "paused")):
        assert run("schedules", command, *args).exit_code == 2
    assert set(states(app).values()) == {"active"}


def test_options_of_one_schedule_do_not_go_with_all(app: Scheduler) -> None:
    assert "goes with the name" in failed("schedules", "pause", "--all", "--cancel-queued", "-y", code=2)
    assert "goes with the name" in failed("schedules", "run", "--all", "--payload", "{}", "-y", code=2)


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1)])
def test_all_are_shown_and_asked_about_in_a_terminal(app: Scheduler, answer: str, code: int) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "evenbeat", "schedules", "pause", "--all"]
    child = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.write(ours, answer.encode())
    stdout, stderr = child.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)

    assert child.returncode == code
    assert "bill-eu" in stderr
    assert "pause 3 schedules? [y/N]" in stderr
    assert stdout == ("" if code else "paused 3 schedules\n")
