"""A damaged list of followers: what can be read stays linked, and ``repair`` restores the rest."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from evenbeat import Scheduler, every, on_success_of
from evenbeat.app.repairs import repair
from evenbeat.doctor.diagnosis import diagnose
from evenbeat.stores.damage import Unreadable, salvaged
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("mail report", "mail report"),
        ("mail re\ud800port", "mail"),
        ("mail\ufffd report", "report"),
        (b"mail \xff report", "mail report"),
        (["mail"], ""),
        (7, ""),
        (None, ""),
    ],
)
def test_the_names_that_can_be_read_are_kept(value: Any, kept: str) -> None:
    row = salvaged(("default", "load"), {"followers": value, "trigger": "every 1h"}, Unreadable("damaged"))
    assert (row.followers, row.trigger) == (kept, "every 1h")


def test_repair_lists_the_followers_that_a_damaged_row_has_lost(tmp_path: Path) -> None:
    clock, path = VirtualClock(), tmp_path / "jobs.db"
    store = SqliteStore(path, clock=clock)
    app = Scheduler(store)
    app.task(name="work")(lambda: None)
    app.schedules.add("load", every("1h"), "work")
    app.schedules.add("mail", every("1h"), "work", after="load within 1h")
    app.schedules.add("report", on_success_of("load"), "work")

    def findings() -> list[tuple[str, tuple[str, ...]]]:
        found = diagnose(store, store.now())
        return [(each.message, each.details) for each in found if each.check == "dependencies"]

    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        update = "UPDATE evenbeat_schedules SET followers = CAST(? AS TEXT) WHERE name = 'load'"
        connection.execute(update, (b"mail repo\xff",))
    assert app.schedules.get("load").damage
    app.schedules.update("load", description="written anew")
    assert app.schedules.dependencies("load").followers == ("mail",)
    assert findings() == [("1 schedule does not list all that wait for it", ("load does not list report",))]
    (found,) = repair(store).findings
    assert (found.kind, found.subject, found.mending) == ("unlisted", "load", "lists them again")
    assert found.what == "Schedule load does not list report: its successes do not start or wake them."
    (mended,) = repair(store, dry_run=False).findings
    assert mended.outcome == "mended"
    assert app.schedules.dependencies("load").followers == ("mail", "report")
    assert (repair(store).findings, findings()) == ((), [])
    (entry,) = [each for each in app.audit.list(subject="load") if each.action == "repair"]
    assert (entry.before, entry.after) == ({"followers": ["mail"]}, {"followers": ["mail", "report"]})
    app.close()
    store.close()
