"""What commands about backfills, plans, moves and templates say about wrong values: by their own flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from evenbeat import InvalidValue, Scheduler, every
from tests.unit.cli_store import app, clock, failed, printed

__all__ = ["app", "clock"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ("follow", "--from", "7d", "--to", "1d"),
            "schedule follow has no ticks to backfill: it fires on success of load; backfill load: each",
        ),
        (
            ("later", "--from", "7d", "--to", "1d"),
            "; its only tick, at 2026-12-01T09:00:00Z, fires by itself",
        ),
        (
            ("past", "--from", "7d", "--to", "1d"),
            "; its only tick is at 2020-12-01T09:00:00Z: give a range that has it",
        ),
        (("load", "--from", "30m", "--to", "1m"), "; its trigger is every 1h: give a longer range"),
        (
            ("load", "--from", "1d", "--to", "7d"),
            '--from and --to are not in order: "1d" is not before "7d"; a duration counts back from now',
        ),
        (("load", "--from", "1d", "--to", "2027-02-01"), '--to "2027-02-01" is in the future'),
        (("load", "--from", "100000d", "--to", "1d"), '--from "100000d" is longer than 100 years'),
        (("load", "--from", "-1d", "--to", "1d"), '--from "-1d" is neither a date and time nor a duration'),
        (("load", "--from", "1d", "--to", "0s", "--id", ""), '--id "" is not 1 to 64 letters'),
        (("load", "--from", "1d", "--to", "0s", "--id", "a" * 65), "is not 1 to 64 letters"),
        (("load", "--from", "1d", "--to", "0s", "--max-concurrent", "0"), "--max-concurrent 0 is not"),
    ],
)
def test_a_backfill_is_refused_by_its_flags(app: Scheduler, args: tuple[str, ...], words: str) -> None:
    app.schedules.add("load", every("1h"), "t")
    app.schedules.add("follow", "on success of load", "t")
    app.schedules.add("later", "at 2026-12-01T09:00Z", "t")
    app.schedules.add("past", "at 2020-12-01T09:00Z", "t")
    assert words in failed("schedules", "backfill", *args, code=2)


def test_the_only_tick_of_a_schedule_can_be_backfilled(app: Scheduler) -> None:
    app.schedules.add("past", "at 2020-12-01T09:00Z", "t")
    assert app.schedules.backfill("past", "2020-12-01", "2020-12-02").ticks == 1
    with pytest.raises(InvalidValue, match="its only tick is at"):
        app.schedules.backfill("past", "2020-12-01", "2020-12-01T09:00:00Z")


def test_a_backfill_that_is_not_there_is_answered_with_a_command(app: Scheduler) -> None:
    app.schedules.add("load", every("1h"), "t")
    for command in ("show", "cancel"):
        assert failed("backfills", command, "nosuch") == (
            'error: there is no backfill "nosuch" of tenant "default"\n'
            "hint: 'evenbeat backfills list' shows those that there are\n"
        )
    assert "did you mean load?" in failed("backfills", "list", "--schedule", "laod")
    assert printed("backfills", "list", "--schedule", "load") == (
        "there are no backfills of load; 'evenbeat schedules backfill load --from --to' makes one\n"
    )
    assert "there are no backfills; " in printed("backfills", "list")


def test_a_move_is_refused_by_its_flags(app: Scheduler) -> None:
    for name in ("bad name!", ""):
        assert f'--to "{name}" is not 1 to 200' in failed("runs", "move", "--task", "a", "--to", name, code=2)
        assert f'--task "{name}" is not 1 to' in failed("runs", "move", "--task", name, "--to", "a", code=2)
    assert printed("runs", "move", "--task", "a", "--to", "b", "--queue", "q") == (
        "no queued run of queue q has the task a\n"
    )


def test_a_pattern_is_refused_by_its_flag_and_a_name_by_itself(app: Scheduler) -> None:
    app.schedules.add("load", every("1h"), "t")
    assert '--name "" is not a pattern of names' in failed(
        "schedules", "update", "--all", "--name", "", "--retries", "5", code=2
    )
    assert failed("schedules", "pause", "bad name!", code=2).startswith('error: name "bad name!" is not 1 to')
    assert 'there is no schedule "bad name!"' in failed("schedules", "show", "bad name!")


def test_a_plan_says_what_to_name(app: Scheduler, tmp_path: Path) -> None:
    assert "nothing is declared: name an app, or a file" in printed("plan")
    (tmp_path / "s.toml").write_text('[schedules.a]\ntask = "t"\ntrigger = "@daily"\n')
    refused = failed("plan", "--file", "s.toml", "--prune", code=2)
    assert refused.startswith("error: --prune needs a label of the file that declares schedules")
    assert 'give it one by source = "shop" in the file, or --source shop' in refused
    assert printed("apply", "--file", "s.toml", "--yes") == "added 1\n"
    assert "nothing is declared" not in printed("plan", "--file", "s.toml")


def test_a_built_in_template_cannot_be_deleted(app: Scheduler) -> None:
    assert "nobody can change it" in failed("templates", "delete", "workdays", code=2)
    assert "choose another name" in failed("templates", "set", "workdays", "--retries", "1", code=2)


def test_runs_of_a_schedule_without_a_row_are_listed(app: Scheduler) -> None:
    app.schedules.add("gone", every("1h"), "t")
    app.schedules.run_now("gone")
    app.schedules.delete("gone")
    assert "queued" in printed("runs", "list", "--schedule", "gone")
    assert "there is no row of schedule" in failed("runs", "list", "--schedule", "nosuch")
