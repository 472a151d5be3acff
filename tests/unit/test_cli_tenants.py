"""``evenbeat tenants``: list, show, quota, purge."""

from __future__ import annotations

from typing import Any

import pytest

from evenbeat import Scheduler
from evenbeat.cli import progress
from evenbeat.cli.commands.tenants import purge
from tests.unit import cli_store
from tests.unit.cli_store import Clock, answered, claim, failed, printed, run, succeed
from tests.unit.test_cli_figures import Fed

# Fixtures: a store in this folder, and a clock that stands still on a Monday at 08:00 UTC.
app, clock = cli_store.app, cli_store.clock


def fill(app: Scheduler) -> None:
    for name in ("one", "two"):
        app.schedules.add(name, "every 1h", "works", tenant="acme")
    app.schedules.pause("two", tenant="acme")
    app.schedules.add("one", "every 1h", "works", tenant="beta")
    app.enqueue_many(["works"] * 3, tenant="acme")
    app.enqueue("works", tenant="acme", delay="1h")


def test_tenants_are_listed_with_counts_and_quotas(app: Scheduler, clock: Clock) -> None:
    assert printed("tenants", "list").startswith("no tenants: there are no schedules, no runs and no quotas")
    fill(app)
    node = Fed(app, clock)
    node.starts(3, tenant="beta")
    node.passes()
    app.tenants.set_quota("acme", schedules=100, queued_runs=4)
    assert [line.split() for line in printed("tenants", "list").splitlines()[2:]] == [
        ["acme", "2/100", "1", "4/4", "3"],
        ["beta", "1", "3"],
    ]
    document = answered("tenants", "list", "--limit", "1")
    assert [tenant["name"] for tenant in document["tenants"]] == ["acme"]
    assert document["tenants"][0]["quota"] == {"schedules": 100, "queued_runs": 4}
    assert "0 is not in the range" in failed("tenants", "list", "--limit", "0", code=2)


def test_a_tenant_is_shown(app: Scheduler, clock: Clock) -> None:
    fill(app)
    for held in claim(app)[:2]:
        succeed(app, held)
    app.enqueue("works", tenant="acme")
    app.tenants.set_quota("acme", queued_runs=4)
    clock.pass_(60_000)
    assert printed("tenants", "show", "acme").splitlines() == [
        "acme",
        "  schedules    2 (1 active, 1 paused)",
        "  next fire    09:00",
        "  queued runs  2 (1 due, 1 later), of at most 4",
        "  oldest due   1 min ago",
        "  running      1",
        "  ended runs   2 succeeded",
        "  in 24 hours  0 attempts started, 0 runs succeeded, 0 failed",
    ]
    assert answered("tenants", "show", "acme")["ended"] == {"cancelled": 0, "failed": 0, "succeeded": 2}
    assert failed("tenants", "show", "nobody").splitlines() == [
        'error: there is no tenant "nobody": it has no schedules, no runs and no quota',
        "hint: 'evenbeat tenants list' shows the tenants",
    ]
    assert 'name "a.b"' in failed("tenants", "show", "a.b", code=2)


def test_a_quota_is_set_and_removed(app: Scheduler) -> None:
    said = printed("tenants", "quota", "acme", "--schedules", "100", "--queued-runs", "10000")
    assert said == "acme may have at most 100 schedules and at most 10,000 queued runs\n"
    said = printed("tenants", "quota", "acme", "--queued-runs", "0")
    assert said == "acme may have any number of schedules and at most 0 queued runs\n"
    assert 'tenant "acme" has 0 queued runs, and its quota is 0' in failed(
        "runs", "enqueue", "works", "--tenant", "acme"
    )
    document = answered("tenants", "quota", "acme", "--schedules", "5")
    assert document == {"tenant": "acme", "quota": {"schedules": 5, "queued_runs": None}}
    assert printed("tenants", "quota", "acme", "--remove") == "removed the quota of acme\n"
    assert 'tenant "acme" has no quota' in failed("tenants", "quota", "acme", "--remove")
    entries = app.audit.list(tenant="acme")
    assert [(entry.action, entry.via) for entry in entries] == [("remove", "cli")] + [("set", "cli")] * 3


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "give --schedules, --queued-runs or both, or --remove"),
        (("--remove", "--schedules", "1"), "--remove goes without --schedules and --queued-runs"),
        (("--schedules", "-1"), "--schedules -1 is not a whole number of 0 to 1,000,000,000"),
        (("--queued-runs", str(2**63)), f"--queued-runs {2**63} is not a whole number of 0 to 1,000,000,000"),
        (("--schedules", "many"), "'many' is not a valid integer"),
    ],
)
def test_a_wrong_quota_is_refused(app: Scheduler, words: tuple[str, ...], problem: str) -> None:
    assert problem in failed("tenants", "quota", "acme", *words, code=2)
    assert app.tenants.list() == []


def test_a_purge_without_a_terminal_needs_yes(app: Scheduler) -> None:
    fill(app)
    app.tokens.create("theirs", tenant="acme")
    error = failed("tenants", "purge", "acme")
    assert error.splitlines() == [
        "error: nothing was done: acme has 2 schedules, 4 runs, 1 token",
        "hint: add --yes to delete them",
    ]
    assert app.tenants.get("acme").schedules == 2
    done = printed("tenants", "purge", "acme", "--yes")
    assert done.splitlines()[0] == "deleted of acme: 2 schedules, 4 runs, 1 token"
    assert done.splitlines()[1] == "remains:"
    assert "  audit entries, until 365 days after they were written" in done
    assert [tenant.name for tenant in app.tenants.list()] == ["beta"]
    assert printed("tenants", "purge", "acme", "--yes") == "there is nothing of acme to delete\n"
    assert printed("tenants", "purge", "acme") == "there is nothing of acme to delete\n"


def test_a_purge_that_leaves_something_ends_with_1(app: Scheduler) -> None:
    fill(app)
    held = claim(app)
    assert len(held) == 3
    done = printed("tenants", "purge", "acme", "--yes", code=1)
    assert "3 runs asked to stop: purge again when ended" in done
    document: dict[str, Any] = answered("tenants", "purge", "acme", "--yes", code=1)
    assert (document["stopping"], document["is_complete"]) == (3, False)
    for each in held:
        succeed(app, each)
    assert printed("tenants", "purge", "acme", "--yes", "--limit", "1", code=1).splitlines()[-1] == (
        "there is more: run it again"
    )
    while run("tenants", "purge", "acme", "--yes", "--limit", "1").exit_code:
        pass
    assert [tenant.name for tenant in app.tenants.list()] == ["beta"]


def test_the_default_tenant_needs_a_flag_of_its_own(app: Scheduler) -> None:
    app.schedules.add("one", "every 1h", "works")
    assert "; give --even-default to delete" in failed("tenants", "purge", "default", "--yes", code=2)
    assert app.tenants.get("default").schedules == 1
    said = printed("tenants", "purge", "default", "--yes", "--even-default")
    assert "1 schedule" in said
    assert "tokens, limits, alert and retention rules" in said


def test_a_purge_in_a_terminal_shows_what_is_there_and_asks(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(app)

    class Terminal:
        """The module sys, as it is in a terminal."""

        class stdin:  # noqa: N801  # the name in sys
            isatty = staticmethod(lambda: True)

        class stderr:  # noqa: N801  # the name in sys
            isatty = staticmethod(lambda: True)

    monkeypatch.setattr(purge, "sys", Terminal)
    monkeypatch.setattr(progress, "sys", Terminal)
    refused = run("tenants", "purge", "acme", answers="n\n")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("acme has 2 schedules, 4 runs\nremains:\n  audit entries")
    assert "delete everything of acme? [y/N]" in refused.stderr
    assert app.tenants.get("acme").schedules == 2
    done = run("tenants", "purge", "acme", answers="y\n")
    assert done.exit_code == 0
    assert done.stderr.endswith("\r2 schedules\r2 schedules\r2 schedules, 4 runs\r"), "progress on one line"
    assert done.stdout.startswith("deleted of acme: 2 schedules, 4 runs\n")
    assert [tenant.name for tenant in app.tenants.list()] == ["beta"]
