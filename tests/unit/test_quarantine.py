"""``app.quarantine``: schedules and runs that nodes can't process are shown, retried or dropped."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import Scheduler
from evenbeat.app.acting import acting_as
from evenbeat.core.records import Record
from evenbeat.record_errors import QuarantineNotFound, QuarantineRefused
from evenbeat.rules.firing import Planned, plan
from evenbeat.stores.base import Claim, ScheduleQuery, Write
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock
from tests.unit.cli_store import answered, failed, printed

HOUR = 3_600_000


class Place:
    """A store on SQLite, and direct access to its rows."""

    def __init__(self, path: Path) -> None:
        self.clock = VirtualClock()
        self.path = path
        self.store = SqliteStore(str(path), clock=self.clock)
        self.app = Scheduler(self.store)

    def swap(self, table: str, column: str, key: str, value: Any) -> Any:
        """Replace a value of a row; return the old one."""
        name = "id" if table == "runs" else "name"
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            select = f"SELECT {column} FROM evenbeat_{table} WHERE {name} = ?"
            ((before,),) = connection.execute(select, (key,)).fetchall()
            connection.execute(f"UPDATE evenbeat_{table} SET {column} = ? WHERE {name} = ?", (value, key))
        return before

    def damage_schedule(self) -> Any:
        """Add a schedule, make it unreadable, and let a node set it aside; return the old value."""
        self.app.schedules.add("nightly", "every 1h", "work", payload={"team": "ops"})
        before = self.swap("schedules", "catch_up", "nightly", "{nonsense")
        self.clock.advance("2h")
        assert self.store.fire_due(self.clock.now, 10, plan).quarantined == (("default", "nightly"),)
        return before

    def damage_run(self) -> Any:
        """Enqueue a run, make it unreadable, and let a node set it to failed; return the old value."""
        self.app.enqueue("work", {"team": "ops"}, id="r")
        before = self.swap("runs", "execution", "r", "{nonsense")
        claim = Claim(worker="w", token="t", limit=1, now=self.clock.now, lease=1000)
        assert self.store.claim_runs(claim).runs == ()
        return before


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path / "evenbeat.db")
    with closing(place.app):
        yield place


def test_a_schedule_shows_what_can_be_read_and_is_woken_once_it_is_mended(place: Place) -> None:
    before = place.damage_schedule()
    app = place.app
    row = app.quarantine.show("nightly")
    assert (row.kind, row.subject, row.name) == ("quarantine", "schedule", "nightly")
    assert row.problem is not None
    assert row.fields["task"] == "work"
    assert row.fields["trigger"] == "every 1h"
    assert row.on_retry == f"It is refused: {row.problem}."
    with pytest.raises(QuarantineRefused, match="stays in quarantine"):
        app.quarantine.retry("nightly")
    assert [note.name for note in app.quarantine.list()] == ["nightly"]

    place.swap("schedules", "catch_up", "nightly", before)
    row = app.quarantine.show("nightly")
    assert row.problem is None
    with acting_as("anna"):
        done = app.quarantine.retry("nightly")
    assert (done.action, done.subject) == ("retry", "schedule")
    assert done.words == row.on_retry
    assert app.quarantine.list() == []
    assert len(place.store.fire_due(place.clock.now, 10, plan).planned) == 1
    (entry,) = app.audit.list(action="retry")
    assert (entry.actor, entry.subject, entry.before) == ("anna", "nightly", {"wake_at": None})
    with pytest.raises(QuarantineNotFound):
        app.quarantine.retry("nightly")


def test_a_trigger_that_makes_no_sense_is_named_in_the_refusal(place: Place) -> None:
    app = place.app
    app.schedules.add("nightly", "every 1h", "work")
    place.swap("schedules", "trigger", "nightly", "when it rains")
    place.clock.advance("2h")
    place.store.fire_due(place.clock.now, 10, plan)
    with pytest.raises(QuarantineRefused, match="when it rains"):
        app.quarantine.retry("nightly")


def test_a_broken_schedule_is_dropped_with_its_note_and_its_runs_stay(place: Place) -> None:
    app = place.app
    app.enqueue("work", id="mine")
    place.damage_schedule()
    with acting_as("anna"):
        done = app.quarantine.drop("nightly")
    assert done.words == "The schedule is deleted, with its note; its runs and their history stay."
    assert app.schedules.list() == []
    assert app.quarantine.list() == []
    assert place.store.find_records("quarantine") == []
    assert [entry.action for entry in app.schedules.history("nightly")][:1] == ["drop"]
    assert app.runs.get("mine").state == "queued"


def test_dropping_a_schedule_that_was_mended_deletes_only_the_note(place: Place) -> None:
    app = place.app
    before = place.damage_schedule()
    place.swap("schedules", "catch_up", "nightly", before)
    app.schedules.update("nightly", description="mended")
    place.store.put_record(Record(kind="quarantine", key="nightly", body="old"))
    assert app.quarantine.show("nightly").on_drop.startswith("Only the note is deleted")
    app.quarantine.drop("nightly")
    assert [row.name for row in app.schedules.list()] == ["nightly"]
    assert place.store.find_records("quarantine") == []


def test_a_run_is_queued_again_once_it_can_be_read(place: Place) -> None:
    before = place.damage_run()
    app = place.app
    row = app.quarantine.show("r")
    assert (row.subject, row.fields, row.on_drop) == (
        "run",
        {},
        "Only the note is deleted; the run stays as it is, until it is purged.",
    )
    with pytest.raises(QuarantineRefused, match="the run can't be read"):
        app.quarantine.retry("r")
    place.swap("runs", "execution", "r", before)
    assert app.quarantine.show("r").fields["state"] == "failed"
    done = app.quarantine.retry("r")
    assert done.words == "The run is queued again, with all its retries, and the note is deleted."
    assert app.runs.get("r").state == "queued"
    assert app.quarantine.list() == []


def test_a_dropped_run_stays_failed(place: Place) -> None:
    before = place.damage_run()
    app = place.app
    app.quarantine.drop("r")
    assert app.quarantine.list() == []
    place.swap("runs", "execution", "r", before)
    assert app.runs.get("r").state == "failed"
    (entry,) = app.runs.history("r")
    assert (entry.action, entry.after) == ("drop", {})


def test_nodes_try_a_deferred_schedule_by_themselves(place: Place) -> None:
    app = place.app
    app.schedules.add("nightly", "every 1h", "work")
    place.store.put_record(Record(kind="deferred", key="nightly", body="no such zone"))
    assert app.quarantine.show("nightly").kind == "deferred"
    with pytest.raises(QuarantineRefused, match="nodes try again by themselves"):
        app.quarantine.drop("nightly")
    app.quarantine.retry("nightly")
    assert place.store.find_records("deferred") == []


def test_a_schedule_that_no_node_has_noted_yet_is_shown(place: Place) -> None:
    app = place.app
    app.schedules.add("nightly", "every 1h", "work")
    (row,) = place.store.find_schedules(ScheduleQuery()).items
    asleep = replace(row, wake_at=None, fire_seq=row.fire_seq + 1)
    place.store.put_schedules([Write(Planned(asleep), row.version)])
    assert app.quarantine.show("nightly").reason == "it is active and has no wake-up"
    app.quarantine.retry("nightly")
    with pytest.raises(QuarantineNotFound):
        app.quarantine.show("nightly")


@pytest.mark.parametrize("name", ["nobody", "", "a b", "x" * 500, "-1"])
def test_what_is_not_in_quarantine_is_refused_by_name(place: Place, name: str) -> None:
    for method in (place.app.quarantine.show, place.app.quarantine.retry, place.app.quarantine.drop):
        with pytest.raises(QuarantineNotFound, match="is in quarantine"):
            method(name)


def test_the_commands(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.damage_schedule()
    before = place.damage_run()
    monkeypatch.setenv("EVENBEAT_STORE", f"sqlite:///{place.path}")
    assert {note["name"] for note in answered("quarantine", "list")["notes"]} == {"nightly", "r"}
    text = printed("quarantine", "show", "nightly")
    assert "schedule:  nightly" in text
    assert "trigger:" in text
    assert answered("quarantine", "show", "r")["fields"] == {}
    assert "stays in quarantine" in failed("quarantine", "retry", "nightly")
    assert "'evenbeat quarantine list' shows what is" in failed("quarantine", "drop", "nobody")
    place.swap("runs", "execution", "r", before)
    assert "The run is queued again" in printed("quarantine", "retry", "r")
    assert answered("quarantine", "drop", "nightly")["action"] == "drop"
    assert printed("quarantine", "list") == "nodes can process every schedule and every run\n"
    assert "Keeps succeeded runs" in printed("retention", "set", "--state", "succeeded", "--keep", "7d")
    assert answered("retention", "list")["rules"][0]["keep"] == 604800
    assert "acme" in printed("retention", "set", "--tenant", "acme", "--most", "10")
    assert "10" in printed("retention", "list")
    assert printed("retention", "remove", "--tenant", "acme") == (
        "removed the rule for ended runs of tenant acme\n"
    )
    assert "there is no retention rule" in failed("retention", "remove", "--tenant", "acme")
    assert "--keep" in failed("retention", "set", code=2)
    assert "--most" in failed("retention", "set", "--most", "0", code=2)
