"""What becomes of schedules that are paused, edited by hand, or damaged, as users and the CLI see it."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from evenbeat import DamagedSchedule, InvalidValue, Scheduler, acting_as, at, cron, every
from evenbeat.cli.root import root
from evenbeat.core.instants import from_ms
from evenbeat.core.records import ScheduleRecord
from evenbeat.node import ticker
from evenbeat.rules import attempts
from evenbeat.rules.firing import Planned
from evenbeat.stores.base import Claim, ScheduleQuery
from evenbeat.stores.memory import MemoryStore
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    """Of the scheduler, and of the commands that open its file."""
    clock = VirtualClock()
    monkeypatch.setattr(time, "time_ns", lambda: clock.now * 1_000_000)
    return clock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "evenbeat.db"


@pytest.fixture
def app(clock: VirtualClock, path: Path) -> Iterator[Scheduler]:
    with closing(Scheduler(SqliteStore(path, clock))) as app:
        app.task(name="work")(lambda value=0: value)
        yield app


def fire(app: Scheduler, name: str | None = None) -> None:
    ticker.Ticker(app.store, app.events, name=name).step(app.store.now())


def spoil(path: Path, change: str, name: str) -> None:
    """Write what no version of Evenbeat would."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(f"UPDATE evenbeat_schedules SET {change} WHERE name = ?", (name,))
    connection.close()


def printed(path: Path, *args: str) -> str:
    result = CliRunner().invoke(root, [*args, "--store", f"sqlite:///{path}"], prog_name="evenbeat")
    assert result.exit_code == 0, result.output
    return result.output


# Paused.


def test_a_pause_starts_nothing_that_is_overdue(app: Scheduler, clock: VirtualClock) -> None:
    app.schedules.add("beat", every("2s"), "work")
    clock.advance("7s")
    app.schedules.pause("beat", "emergency")
    clock.advance("7s")
    fire(app)
    assert app.runs.list() == []
    app.schedules.resume("beat")
    skipped = app.schedules.skipped("beat")
    assert sum(row.count for row in skipped) == 7
    assert {row.reason for row in skipped} == {"paused"}


def test_queued_runs_of_a_paused_schedule_run_unless_they_are_cancelled(
    app: Scheduler, clock: VirtualClock
) -> None:
    for name in ("beat", "other"):
        app.schedules.add(name, every("1m"), "work")
    clock.advance("1m")
    fire(app)
    app.schedules.pause("beat")
    assert [run.state for run in app.runs.list(schedule="beat")] == ["queued"]
    app.schedules.pause("beat", cancel_queued=True)
    assert [run.state for run in app.runs.list(schedule="beat")] == ["cancelled"]
    assert [run.state for run in app.runs.list(schedule="other")] == ["queued"]


def test_a_pause_names_who_and_when(app: Scheduler, clock: VirtualClock) -> None:
    app.schedules.add("beat", every("1m"), "work")
    with acting_as("ann"):
        paused = app.schedules.pause("beat")
    assert (paused.paused, paused.paused_by, paused.paused_at) == (True, "ann", from_ms(clock.now))
    assert "@" in app.schedules.pause("beat").paused_by
    resumed = app.schedules.resume("beat")
    assert (resumed.paused, resumed.paused_by, resumed.paused_at) == (False, "", None)


def test_the_cli_names_the_runs_that_a_pause_leaves_queued(
    app: Scheduler, clock: VirtualClock, path: Path
) -> None:
    app.schedules.add("beat", every("1m"), "work")
    clock.advance("1m")
    fire(app)
    (run,) = app.runs.list()
    lines = printed(path, "schedules", "pause", "beat").splitlines()
    assert lines[1:] == [
        f"1 run is queued and will run: {run.id}",
        "to cancel: evenbeat runs cancel --all --schedule beat --state queued",
    ]
    assert "cancelled 1 queued run" in printed(path, "schedules", "pause", "beat", "--cancel-queued")
    assert [run.state for run in app.runs.list()] == ["cancelled"]
    app.schedules.run_now("beat")
    claim = Claim(worker="w", token="t", limit=1, now=clock.now, lease=60_000)
    assert len(app.store.claim_runs(claim).runs) == 1
    lines = printed(path, "schedules", "pause", "beat").splitlines()
    assert lines[1:] == [
        "1 run is with workers and will go on",
        "to stop: evenbeat runs cancel --all --schedule beat",
    ]
    assert "paused" in printed(path, "schedules", "show", "beat")


def test_a_paused_schedule_shows_no_ticks_to_come(app: Scheduler, path: Path) -> None:
    app.schedules.add("beat", cron("0 9 * * *"), "work")
    assert "2026-03-02 09:00" in printed(path, "schedules", "show", "beat")
    app.schedules.pause("beat")
    assert "2026-03-02 09:00" not in printed(path, "schedules", "show", "beat")


def test_a_schedule_can_be_made_paused(app: Scheduler, clock: VirtualClock, path: Path) -> None:
    made = app.schedules.add("beat", every("1m"), "work", paused=True, note="not before the launch")
    assert (made.paused, made.pause_note, made.paused_at) == (
        True,
        "not before the launch",
        from_ms(clock.now),
    )
    printed(path, "schedules", "add", "night", "0 3 * * *", "work", "--paused", "--note", "not yet")
    assert app.schedules.get("night").pause_note == "not yet"
    clock.advance("1d")
    fire(app)
    assert app.runs.list() == []
    app.schedules.resume("beat")
    clock.advance("1m")
    fire(app)
    assert len(app.runs.list()) == 1


def test_a_decorated_task_can_be_made_paused_and_stays_as_people_left_it(app: Scheduler) -> None:
    app.task(name="digest", schedule=every("1h"), paused=True, note="not yet")(lambda: None)
    app.declare_tasks()
    assert app.schedules.get("digest").paused
    app.schedules.resume("digest")
    app.declare_tasks()
    assert not app.schedules.get("digest").paused


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"enabled": False}, "did you mean paused=True"),
        ({"timezone": "Europe/Berlin"}, 'did you mean cron("…", tz="Europe/Berlin")'),
        ({"note": "why"}, "add paused=True, or use description"),
    ],
)
def test_what_was_meant_is_said(app: Scheduler, options: dict[str, object], hint: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        app.schedules.add("beat", every("1m"), "work", **options)  # type: ignore[arg-type]  # wrong on purpose
    assert hint in str(refused.value)


# What is known of a schedule.


def test_a_listing_says_the_zone_and_when_it_last_fired_and_ran(app: Scheduler, clock: VirtualClock) -> None:
    made = app.schedules.add("beat", cron("* * * * *", tz="Europe/Berlin"), "work")
    assert (made.timezone, made.last_enqueued_at, made.last_run_at) == ("Europe/Berlin", None, None)
    app.schedules.add("steady", every("1h"), "work")
    clock.advance("1m")
    fire(app)
    fired = from_ms(clock.now)
    (held,) = app.store.claim_runs(Claim(worker="w", token="t", limit=1, now=clock.now, lease=60_000)).runs
    clock.advance("1s")
    app.store.settle_runs([attempts.succeeded(held, None, clock.now, "end")])
    for seen in (app.schedules.get("beat"), app.schedules.list()[0], app.schedules.pause("beat")):
        assert (seen.last_enqueued_at, seen.last_run_at) == (fired, from_ms(clock.now))
    assert app.schedules.get("steady").timezone == "UTC"


def test_a_run_says_which_node_fired_it(app: Scheduler, clock: VirtualClock) -> None:
    app.schedules.add("beat", every("1m"), "work")
    clock.advance("1m")
    fire(app, "node-7")
    assert app.runs.list()[0].fired_by == "node-7"
    assert app.schedules.run_now("beat").fired_by is None


# Edited by hand.


def test_an_edit_by_hand_stays_until_the_code_says_something_else(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore(clock)

    def started(trigger: str) -> Scheduler:
        app = Scheduler(store)
        app.task(name="digest", schedule=trigger)(lambda: None)
        with caplog.at_level(logging.WARNING, "evenbeat"):
            caplog.clear()
            app.declare_tasks()
        return app

    app = started("every 1h")
    assert caplog.records == []
    assert app.schedules.get("digest").edited == {}
    app.schedules.update("digest", trigger="every 5m", priority="high")
    app = started("every 1h")
    seen = app.schedules.get("digest")
    assert (seen.trigger, seen.priority) == ("every 5m", 8)
    assert seen.edited == {"trigger": "every 1h", "priority": 5}
    (record,) = caplog.records
    assert "edited by hand" in record.message
    assert (record.schedule_id, record.code_says) == ("digest", seen.edited)  # type: ignore[attr-defined]
    app = started("every 2h")
    (record,) = caplog.records
    assert "replaced an edit by hand" in record.message
    assert record.replaced == {"trigger": "every 5m", "priority": 8}  # type: ignore[attr-defined]
    assert app.schedules.get("digest").trigger == "every 2h"
    assert app.schedules.get("digest").edited == {}


def test_the_cli_shows_an_edit_and_takes_it_back(app: Scheduler, path: Path) -> None:
    app.schedules.declare("beat", every("1h"), "work", {"value": 1})
    app.schedules.update("beat", trigger=every("5m"), payload={"value": 2})
    shown = printed(path, "schedules", "show", "beat")
    assert 'by hand; the code declares trigger every 1h, payload {"value": 1}' in " ".join(shown.split())
    assert "evenbeat schedules reset beat" in shown
    assert printed(path, "schedules", "reset", "beat").startswith("reset beat (payload, trigger)\nnext run")
    back = app.schedules.get("beat")
    assert (back.trigger, back.payload, back.edited) == ("every 1h", {"value": 1}, {})
    assert "nothing to undo" in printed(path, "schedules", "reset", "beat")


def test_an_edit_is_named_by_the_options_that_people_give(app: Scheduler) -> None:
    app.schedules.declare("beat", every("1h"), "work", retries=2, timeout="90s")
    app.schedules.update(
        "beat", retries=5, timeout=None, catch_up="skip", catch_up_limit=7, grace="2m", spread="1m"
    )
    assert app.schedules.get("beat").edited == {
        "retries": 2,
        "timeout": "1m30s",
        "catch_up": "latest",
        "catch_up_limit": 100,
        "grace": "1m",
        "spread": "0s",
    }


def test_a_pause_that_is_repeated_keeps_its_note(app: Scheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.schedules.pause("beat", "mail is down")
    assert app.schedules.pause("beat", cancel_queued=True).pause_note == "mail is down"
    assert app.schedules.pause("beat", "mail is slow").pause_note == "mail is slow"


def test_a_declaration_under_the_name_of_a_decorated_task_is_refused(app: Scheduler) -> None:
    digest = app.task(name="digest", schedule=every("1h"))(lambda: None)
    with pytest.raises(InvalidValue, match='"digest" is that of a task with a schedule of its own; give'):
        app.schedules.declare("digest", every("5m"), "work")
    app.schedules.declare("digest", every("5m"), digest)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda app: app.task(schedule=timedelta(minutes=5))(print),
            "schedule .* is not a trigger; write ev",
        ),
        (lambda app: app.schedules.add("x", timedelta(minutes=5), "work"), "trigger .* is not a trigger"),
        (lambda app: app.schedules.update("beat", trigger=5), "trigger 5 is not a trigger"),
        (lambda app: app.schedules.update("beat", paused=True), "did you mean schedules.pause"),
        (lambda app: app.task(schedule=every("1h"), start_at="1h")(print), r'mean every\("1h", start=…\)'),
        (lambda app: app.enqueue("work", id=5), "id 5 is not 1 to 400 visible characters"),
        (lambda app: app.enqueue("work", backoff=None), "backoff None is not a duration"),
        (lambda app: app.runs.list(limit="5"), 'limit "5" is not a whole number'),
        (lambda app: app.schedules.list(limit="5"), 'limit "5" is not a whole number'),
        (lambda _: Scheduler(cast(Any, 5)), "store 5 is not a store; give a URL"),
        (lambda app: app.lock("x", ttl="0s").try_acquire(), "ttl .* is zero"),
        (lambda _: at("2026-01-01"), 'write "2026-01-01T00:00Z" if UTC is meant'),
        (lambda app: app.enqueue("pay", {"amount": Decimal("Infinity")}), "JSON can't express"),
        (lambda app: app.enqueue("pay", {"amount": Decimal("NaN")}), "JSON can't express"),
    ],
)
def test_natural_mistakes_are_refused_in_words(
    app: Scheduler, call: Callable[[Any], object], says: str
) -> None:
    @app.task
    def pay(amount: Decimal) -> None: ...

    app.schedules.add("beat", every("1m"), "work")
    with pytest.raises(InvalidValue, match=says):
        call(app)


# Damaged, or stuck.

DAMAGES = {
    "catch_up = '{nonsense'": "catch_up",
    "execution = '[1, 2]'": "execution",
    "trigger = 'every now and then'": "every now and then",
    "trigger = '0 9 * * * tz=Moon/Base'": "Moon/Base",
    "payload = '{'": "payload",
    "updated_at = 9223372036854775807": "outside the calendar",
    "description = ''": "",
    "next_tick = 9223372036854775807, spread = 9": "outside the calendar",
    "priority = 10": "priority 10",
    "payload = CAST(X'224aff22' AS TEXT)": "not UTF-8",
    "declared = '5'": "declared",
    "generation = 9223372036854775807": "counts",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_schedule_is_listed_shown_replaced_and_deleted(
    app: Scheduler, clock: VirtualClock, path: Path, damage: str
) -> None:
    for name in "abcd":
        app.schedules.add(name, every("1m"), "work", {"value": 1})
    for name in "bc":
        spoil(path, damage, name)
    listed = app.schedules.list()
    assert [row.name for row in listed] == ["a", "b", "c", "d"]
    reason = DAMAGES[damage]
    assert [bool(row.damage) for row in listed] == [False, bool(reason), bool(reason), False]
    assert reason in app.schedules.get("b").damage
    table = printed(path, "schedules", "list")
    assert table.count("unreadable") == (2 if reason else 0)
    assert reason in printed(path, "schedules", "show", "b")
    printed(path, "forecast")
    clock.advance("1m")
    fire(app)
    anew = app.schedules.declare("b", every("5m"), "work", {"value": 2})
    assert (anew.damage, anew.last_error, anew.payload) == ("", None, {"value": 2})
    app.schedules.delete("c")
    assert [row.name for row in app.schedules.list()] == ["a", "b", "d"]
    clock.advance("5m")
    fire(app)
    assert {run.schedule for run in app.runs.list(limit=3)} == {"a", "b", "d"}
    assert app.store.get_record("quarantine", "default", "b") is None


def test_text_that_can_not_be_read_must_be_set_anew(app: Scheduler, path: Path) -> None:
    app.schedules.add("beat", every("1m"), "work", {"value": "Jürgen"})
    spoil(path, "payload = CAST(X'7b2276616c7565223a224aff227d' AS TEXT)", "beat")
    with pytest.raises(InvalidValue, match="payload"):
        app.schedules.update("beat", description="mended?")
    mended = app.schedules.update("beat", payload={"value": "Jürgen"})
    assert (mended.damage, mended.payload) == ("", {"value": "Jürgen"})


def test_a_pause_whose_state_can_not_be_read_is_not_ended(app: Scheduler, path: Path) -> None:
    app.schedules.declare("beat", every("1m"), "work")
    with acting_as("eve"):
        app.schedules.pause("beat")
    spoil(path, "state = 'pausd'", "beat")
    assert app.schedules.declare("beat", every("1m"), "work").paused


def test_a_schedule_that_lost_its_next_tick_is_found_and_can_be_mended(
    app: Scheduler, clock: VirtualClock, path: Path
) -> None:
    app.schedules.declare("beat", every("1m"), "work")
    spoil(path, "next_tick = NULL, wake_at = NULL", "beat")
    result = CliRunner().invoke(root, ["doctor", f"sqlite:///{path}"], prog_name="evenbeat")
    assert "it has no next wake-up" in result.output
    app.schedules.declare("beat", every("1m"), "work")
    clock.advance("1m")
    fire(app)
    assert len(app.runs.list()) == 1


def test_a_run_whose_texts_for_people_were_spoilt_runs_all_the_same(app: Scheduler, path: Path) -> None:
    app.enqueue("work", id="a")
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE evenbeat_runs SET fired_by = CAST(X'ff' AS TEXT), earlier = CAST(X'fe' AS TEXT)"
        )
    connection.close()
    assert app.runs.get("a").state == "queued"
    claim = Claim(worker="w", token="t", limit=1, now=app.store.now(), lease=60_000)
    assert [run.id for run in app.store.claim_runs(claim).runs] == ["a"]


@dataclass
class Filter:
    names: set[str]


def test_an_edit_stays_also_where_the_payload_holds_sets(clock: VirtualClock) -> None:
    texts = set()
    for words in (["a", "b", "c"], ["c", "b", "a"]):
        app = Scheduler(MemoryStore(clock))

        @app.task
        def select(filters: dict[str, set[str]], one: Filter) -> None: ...

        # The order in which a set is filled may decide the order in which it is read.
        names = set[str]()
        for word in words * 20:
            names |= {word, word * 9}
        app.schedules.declare("pick", every("1h"), select, {"filters": {"x": names}, "one": Filter(names)})
        (row,) = app.store.find_schedules(ScheduleQuery()).items
        texts.add(row.payload)
    names_sorted = '["a","aaaaaaaaa","b","bbbbbbbbb","c","ccccccccc"]'
    assert texts == {f'{{"filters":{{"x":{names_sorted}}},"one":{{"names":{names_sorted}}}}}'}


def test_an_update_replaces_what_can_not_be_read(app: Scheduler, path: Path) -> None:
    app.schedules.add("beat", every("1m"), "work", retries=3, priority=9)
    spoil(path, "execution = '?'", "beat")
    with pytest.raises(DamagedSchedule, match="execution"):
        app.schedules.pause("beat")
    updated = app.schedules.update("beat", retries=2)
    assert (updated.damage, updated.retries, updated.priority) == ("", 2, 9)


def test_a_schedule_that_can_not_be_fired_says_why_until_it_is(
    app: Scheduler, clock: VirtualClock, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_files(row: ScheduleRecord, now: int, *_: object) -> Planned:
        return Planned(replace(row, wake_at=now + 60_000), deferred="too many open files")

    app.schedules.add("beat", every("1m"), "work")
    clock.advance("1m")
    with monkeypatch.context() as node:
        node.setattr(ticker, "plan_or_defer", out_of_files)
        fire(app)
    stuck = app.schedules.get("beat")
    assert (stuck.last_error, app.schedules.list()[0].last_error) == ("too many open files",) * 2
    assert "too many open files" in printed(path, "schedules", "show", "beat")
    assert "stuck" in printed(path, "schedules", "list")
    clock.advance("2m")
    fire(app)
    assert app.schedules.get("beat").last_error is None


def test_a_run_whose_payload_or_times_were_spoilt_does_not_break_the_listing(
    app: Scheduler, path: Path
) -> None:
    for name in "ab":
        app.enqueue("work", id=name)
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE evenbeat_runs SET payload = '{', run_at = 9223372036854775807 WHERE id = 'a'"
        )
    connection.close()
    assert {run.id: run.payload for run in app.runs.list()} == {"a": "{", "b": None}
    assert app.runs.get("a").run_at > datetime(9999, 1, 1, tzinfo=UTC)
