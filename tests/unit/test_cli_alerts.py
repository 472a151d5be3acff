"""``evenbeat alerts``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import Scheduler
from evenbeat.cli.commands.alerts import test as test_command
from evenbeat.core.instants import from_ms
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record
from evenbeat.rules.alert_records import ALL, INCIDENT, LOG, OWN, PAST, PENDING, StoredIncident, read_body
from evenbeat.rules.alert_records import StoredDelivery as Stored
from tests.unit import cli_store
from tests.unit.cli_store import HOUR, MINUTE, Clock, answered, failed, printed, run
from tests.unit.sleeping import replace_sleep
from tests.unit.test_alerts_app import HOOK, SECRET, delivered, key_of

app, clock = cli_store.app, cli_store.clock


@pytest.fixture(autouse=True)
def _never_wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_command, "_WAIT", 0.05)
    monkeypatch.setattr(test_command, "_LOOK_EVERY", 0.01)


@pytest.fixture
def ready(app: Scheduler) -> Scheduler:
    app.alerts.channels.add("ops", "webhook", HOOK, secret=SECRET)
    app.alerts.channels.add("pager", "webhook", HOOK, all_tenants=True)
    return app


def open_incident(app: Scheduler, key: str, **fields: Any) -> None:
    now = app.store.now()
    given: dict[str, Any] = {
        "id": key,
        "rule": "failures",
        "scope": OWN,
        "condition": "failing:3",
        "subject_kind": "schedule",
        "subject": "nightly",
        "schedule": "nightly",
        "opened_at": now - 2 * HOUR,
        "changed_at": now,
        "reason": "3 runs have failed in a row",
        "tenant": "default",
        "failures": 3,
        "run": "default/nightly/1/7",
        "error": "KeyError: 'NO'",
        "last_success": now - 26 * HOUR,
        "announced": ("opened", "escalated"),
        **fields,
    }
    body = StoredIncident(**given)
    kind = INCIDENT if body.closed_at is None else PAST
    app.store.put_record(Record(kind=kind, key=key, body=encode(body), tenant=body.tenant or "default"))


def test_rules_are_added_listed_changed_muted_and_deleted(ready: Scheduler) -> None:
    assert printed("alerts", "add", "failures", "--on", "failed", "--on", "failing:3", "--to", "ops") == (
        "added failures: failed, failing:3 of all schedules of tenant default to ops\n"
        "to see whether it arrives: evenbeat alerts test ops\n"
    )
    assert printed("alerts", "mute", "failures", "--until", "2h") == (
        "muted failures until Mon 2026-03-02 10:00 +00:00, in 2 h\n"
    )
    assert printed("alerts", "list").splitlines() == [
        "rule      state              on                 covers  to",
        "───────────────────────────────────────────────────────────",
        "failures  muted until 10:00  failed, failing:3  all     ops",
    ]
    assert printed("alerts", "unmute", "failures") == "unmuted failures\n"
    assert printed("alerts", "unmute", "failures") == "failures was not muted\n"
    assert printed("alerts", "update", "failures", "--on", "failed", "--tag", "billing").splitlines() == [
        "updated failures",
        "  on: failed, failing:3 → failed",
        "  tag: none → billing",
    ]
    assert printed("alerts", "update", "failures", "--no-tag", "--no-recovery").splitlines() == [
        "updated failures",
        "  tag: billing → none",
        "  recovery: true → false",
    ]
    assert printed("alerts", "update", "failures", "--on", "failed").startswith("nothing changed")
    assert answered("alerts", "list")["rules"][0] == {
        "name": "failures",
        "tenant": "default",
        "on": ["failed"],
        "to": ["ops"],
        "schedule": None,
        "tag": None,
        "recovery": False,
        "muted_until": None,
        "managed_by": "api",
        "revision": 5,
        "open": 0,
    }
    assert printed("alerts", "delete", "failures") == "deleted failures\n"
    entry = ready.audit.list(subject="failures")[0]
    assert (entry.action, entry.via) == ("delete", "cli")


def test_a_store_without_rules_says_what_to_do(app: Scheduler) -> None:
    assert printed("alerts", "list").startswith("no alert rules yet: evenbeat alerts channels add --help")
    assert printed("alerts", "open").startswith("nobody looks: there are no alert rules yet")
    assert printed("alerts", "log") == "nothing has been announced in 30 days\n"
    assert printed("alerts", "channels", "list").startswith("no alert channels yet")
    assert printed("alerts", "windows", "list").startswith("no maintenance windows")


def test_rules_of_other_tenants_are_counted(ready: Scheduler) -> None:
    printed("alerts", "add", "machines", "--on", "queue", "--to", "pager", "--all-tenants")
    assert printed("alerts", "list") == "1 rule of other tenants, or for all of them: --all-tenants\n"
    assert printed("alerts", "list", "--all-tenants").splitlines()[2].split() == [
        *("all", "machines", "ok", "queue:1000", "all", "tenants", "pager")
    ]
    assert "covers    all tenants" in printed("alerts", "show", "machines", "--all-tenants")
    assert (
        failed("alerts", "show", "machines")
        == 'error: there is no alert rule "machines" of tenant "default"\n'
    )


def test_a_service_that_is_not_a_kind_of_channel_names_the_one_that_sends_to_it(ready: Scheduler) -> None:
    assert failed("alerts", "channels", "add", "chat", "slack", HOOK, code=2) == (
        'error: kind "slack" is not one of webhook, apprise, sentry, healthchecks; '
        "mail, chats and phones are of the kind apprise\n"
    )


def test_wrong_values_name_their_flags(ready: Scheduler) -> None:
    assert failed("alerts", "add", "r", "--on", "queue", "--to", "ops", code=2) == (
        'error: --on "queue:1000" is about machines that all tenants share; '
        "make it a rule of all tenants: --all-tenants\n"
    )
    assert failed("alerts", "add", "r", "--on", "failed", "--to", "opz", code=2) == (
        'error: --to "opz" is not an alert channel of tenant "default"; did you mean ops?\n'
    )
    assert "missing option '--to'" in failed("alerts", "add", "r", "--on", "failed", code=2).lower()
    assert "give what to change" in failed("alerts", "update", "r", code=2)
    assert "exclude each other" in failed("alerts", "update", "r", "--tag", "x", "--no-tag", code=2)
    assert "exists already" in failed("alerts", "channels", "add", "ops", "webhook", HOOK)
    assert failed("alerts", "mute", "r", "--until", "soon", code=2).startswith(
        'error: --until "soon" is neither'
    )


def test_a_rule_for_a_schedule_that_does_not_exist_is_created_with_a_warning(ready: Scheduler) -> None:
    ready.schedules.add("nightly", "@daily", "work")
    words = printed("alerts", "add", "r", "--on", "failed", "--to", "ops", "--schedule", "nihgtly")
    assert "warning: there is no schedule nihgtly yet: did you mean nightly?\n" in words
    assert "warning" not in printed("alerts", "update", "r", "--schedule", "nightly")


def test_what_the_code_declares_is_named(ready: Scheduler) -> None:
    ready.alerts.declare_rule("r", on="failed", to="ops")
    ready.alerts.declare()
    assert "declared  by the code: edits by hand last until the next node starts" in printed(
        "alerts", "show", "r"
    )
    changed = printed("alerts", "update", "r", "--on", "missed")
    assert changed.endswith("the code declares it: the next node that starts undoes the edit\n")
    assert printed("alerts", "delete", "r").endswith(
        "the code declares it: the next node that starts creates it again\n"
    )


def test_open_incidents_are_shown_with_reason_and_remedy(ready: Scheduler) -> None:
    ready.alerts.rules.add("failures", on="failing:3", to="ops")
    assert printed("alerts", "open") == "nothing is wrong\n"
    open_incident(ready, "a")
    queue: dict[str, Any] = {"condition": "queue:1000", "subject_kind": "queue", "subject": "mail"}
    open_incident(ready, "b", tenant=None, scope=ALL, rule="m", **queue)
    assert printed("alerts", "open").splitlines() == [
        "schedule nightly: 3 runs have failed in a row",
        "  since    Mon 2026-03-02 06:00 +00:00, 2 h ago",
        "  error    KeyError: 'NO'",
        "  last ok  Sun 2026-03-01 06:00 +00:00, 1 d 2 h ago",
        "  rule     failures (failing:3), announced, escalated",
        "  remedy   evenbeat why default/nightly/1/7",
        "",
        "1 more of other tenants or shared machines: --all-tenants",
    ]
    open_incident(ready, "c", tenant="acme", run="acme/nightly/1/7")
    everywhere = printed("alerts", "open", "--all-tenants")
    assert "remedy   evenbeat why acme/nightly/1/7 --tenant acme" in everywhere
    assert "schedule nightly of tenant default: 3 runs" in everywhere
    assert "remedy   evenbeat queues" in everywhere
    assert "there are more: --limit 5" in printed("alerts", "open", "--all-tenants", "--limit", "1")
    document = answered("alerts", "open")
    assert (document["more"], document["incidents"][0]["remedy"]) == (
        False,
        "evenbeat why default/nightly/1/7",
    )
    assert printed("alerts", "list").splitlines()[2].split()[1:3] == ["1", "open"]
    assert "1 open" in printed("alerts", "show", "failures")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"muted_by": "paused"}, "not announced: the schedule is paused"),
        ({"muted_by": "muted"}, "not announced: the rule is muted"),
        ({"muted_by": "move"}, "not announced: window move"),
        ({"announced": ()}, "not announced"),
        ({"condition": "stuck:1h", "subject_kind": "run", "subject": "r1", "run": "r1"}, "runs cancel r1"),
        ({"condition": "no_node:1m"}, "remedy   start a node: evenbeat run APP"),
        ({"condition": "late:5m", "run": None}, "remedy   evenbeat why nightly"),
        ({"condition": "late:5m", "subject_kind": "task", "schedule": None, "run": "r1"}, "evenbeat why r1"),
        ({"condition": "node_lost", "subject_kind": "node", "subject": "box"}, "remedy   evenbeat nodes"),
        (
            {"condition": "store_unsafe", "subject_kind": "store", "reason": "fsync is off"},
            "store: fsync is off",
        ),
    ],
)
def test_each_kind_of_incident_has_its_words(ready: Scheduler, fields: dict[str, Any], words: str) -> None:
    open_incident(ready, "a", **fields)
    assert words in printed("alerts", "open")


@pytest.mark.parametrize(
    ("kind", "state", "words"),
    [
        (PENDING, "pending", "not sent yet to ops: 503"),
        (LOG, "failed", "given up to ops: 503"),
        (LOG, "sent", ""),
    ],
)
def test_an_announcement_that_did_not_arrive_is_shown(
    ready: Scheduler, clock: Clock, kind: str, state: str, words: str
) -> None:
    ready.alerts.rules.add("failures", on="failing:3", to="ops")
    open_incident(ready, "a")
    key = key_of(ready.store.now(), 1)
    error = None if state == "sent" else "503"
    body = delivered(clock, key, tries=1, state=state, error=error)  # type: ignore[arg-type]  # both have a now
    body = replace(body, message=replace(body.message, incident="a"))
    ready.store.put_record(Record(kind=kind, key=key, body=encode(body)))
    for command in (("alerts", "open"), ("alerts", "show", "failures")):
        shown = [line.split(maxsplit=1)[1] for line in printed(*command).splitlines() if "  unsent" in line]
        assert shown == ([words] if words else [])


def test_what_is_over_is_shown_without_a_remedy(ready: Scheduler) -> None:
    ready.alerts.rules.add("failures", on="failing:3", to="ops")
    assert printed("alerts", "open", "--past") == "nothing has been wrong in 30 days\n"
    now = ready.store.now()
    open_incident(ready, key_of(now - HOUR, 1), closed_at=now - HOUR)
    text = printed("alerts", "open", "--past")
    assert "  until    Mon 2026-03-02 07:00 +00:00, 1 h ago" in text
    assert "remedy" not in text


def test_channels_are_listed_without_secrets(ready: Scheduler) -> None:
    added = printed("alerts", "channels", "add", "team", "webhook", "env:EVENBEAT_SECRET_TEAM")
    assert added.splitlines() == [
        "added team: webhook, env:EVENBEAT_SECRET_TEAM",
        "to see whether it works: evenbeat alerts test team",
    ]
    ready.alerts.rules.add("failures", on="failed", to=["ops"])
    assert printed("alerts", "channels", "list").splitlines() == [
        "channel  kind     address                    rules",
        "─────────────────────────────────────────────────────",
        "ops      webhook  https://hooks.example.com  failures",
        "team     webhook  env:EVENBEAT_SECRET_TEAM   none",
        "1 channel of other tenants, or of all of them: --all-tenants",
    ]
    assert "marker" not in printed("alerts", "channels", "list", "--all-tenants", "--json")
    assert printed("alerts", "channels", "update", "ops", "--url", "https://b.example.com/marker").endswith(
        "updated ops: webhook, https://b.example.com\n"
    )
    assert printed("alerts", "channels", "update", "ops", "--no-secret").startswith("updated ops")
    assert printed("alerts", "channels", "update", "ops", "--no-secret").startswith("nothing changed")
    assert "give what to change" in failed("alerts", "channels", "update", "ops", code=2)
    assert "exclude" in failed(
        "alerts", "channels", "update", "ops", "--secret", SECRET, "--no-secret", code=2
    )
    assert "is used by the rules failures" in failed("alerts", "channels", "delete", "ops")
    assert printed("alerts", "channels", "delete", "team") == "deleted channel team\n"


def test_windows_are_added_listed_and_deleted(ready: Scheduler, clock: Clock) -> None:
    assert printed("alerts", "windows", "add", "disks", "--until", "10:00", "--note", "new disks") == (
        "added disks: alerts of tenant default are muted\nuntil Mon 2026-03-02 10:00 +00:00, in 2 h\n"
    )
    printed("alerts", "windows", "add", "later", "--starts", "+3h", "--until", "+4h", "--tag", "billing")
    lines = [line.split() for line in printed("alerts", "windows", "list").splitlines()]
    assert lines[2][:5] == ["disks", "open", "08:00", "10:00", "all"]
    assert lines[3][:8] == ["later", "to", "come", "11:00", "12:00", "tag", "billing", lines[3][7]]
    assert len(answered("alerts", "windows", "list")["windows"]) == 2
    assert printed("alerts", "windows", "delete", "later") == "deleted window later\n"
    clock.pass_(2 * HOUR)
    assert printed("alerts", "windows", "list").startswith("no maintenance windows")


def test_the_log_shows_what_arrived(ready: Scheduler, clock: Clock) -> None:
    now = ready.store.now()
    for number in range(3):
        key = key_of(now - number * MINUTE, number)
        body = delivered(clock, key, tries=1, last_try_at=now, created_at=now - number * MINUTE, state="sent")  # type: ignore[arg-type]  # both have a now
        if number == 1:
            body = delivered(clock, key, tries=3, last_try_at=now, next_at=now + 5000, error="503")  # type: ignore[arg-type]  # both have a now
        kind = LOG if body.state == "sent" else PENDING
        ready.store.put_record(Record(kind=kind, key=key, body=encode(body)))
    lines = printed("alerts", "log").splitlines()
    assert lines[0].split() == ["when", "channel", "state", "tries", "rule", "message", "error"]
    assert lines[2].split()[:4] == ["08:00", "ops", "sent", "1"]
    assert lines[3].split()[:4] == ["08:00", "ops", "pending", "3"]
    assert printed("alerts", "log", "--limit", "1").endswith("there are more: --limit 5\n")
    one = printed("alerts", "log", key_of(now - MINUTE, 1))
    assert [" ".join(line.split()) for line in one.splitlines()] == [
        "message Failed: nightly",
        "channel ops",
        "rule late",
        "state pending",
        "written Mon 2026-03-02 08:00 +00:00, now",
        "last try Mon 2026-03-02 08:00 +00:00, now; 3 tries",
        "next try Mon 2026-03-02 08:00:05 +00:00, in 5 s",
        "error 503",
    ]
    assert "there is no alert delivery" in failed("alerts", "log", "x")


def settle(app: Scheduler, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Change the delivery as a sender would, while the command waits."""

    def sleep(_seconds: float) -> None:
        (record,) = app.store.find_records(PENDING)
        body = read_body(record, Stored)
        assert body is not None
        done = Record(
            kind=LOG if fields.get("state", "pending") != "pending" else PENDING,
            tenant=record.tenant,
            key=record.key,
            body=encode(replace(body, tries=1, **fields)),
            version=record.version + 1,
        )
        app.store.put_record(done, record.version if done.kind == PENDING else None)
        if done.kind == LOG:
            app.store.delete_record(PENDING, record.tenant, record.key, record.version)

    monkeypatch.setattr(test_command, "_WAIT", 20.0)
    replace_sleep(monkeypatch, sleep)


def test_a_test_says_that_it_arrived(ready: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(ready, monkeypatch, state="sent")
    assert printed("alerts", "test", "ops") == "sent to ops (webhook, https://hooks.example.com)\n"


def test_a_test_says_why_it_did_not_arrive(ready: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(ready, monkeypatch, state="failed", error="the address is private")
    assert printed("alerts", "test", "pager", "--all-tenants", code=1) == (
        "not sent to pager (webhook, https://hooks.example.com): the address is private\n"
    )


def test_a_test_says_when_it_is_tried_again(ready: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(ready, monkeypatch, error="503 Service Unavailable", next_at=ready.store.now() + MINUTE)
    text = printed("alerts", "test", "ops", code=1)
    assert text.startswith("not sent to ops (webhook, https://hooks.example.com): 503 Service Unavailable\n")
    assert "it is tried again at 08:01: evenbeat alerts log " in text


def test_a_test_that_nobody_sends_says_so(ready: Scheduler) -> None:
    result = run("alerts", "test", "ops")
    assert result.exit_code == 1
    assert "yet: no node is running: evenbeat run APP, or evenbeat web" in result.stdout
    cli_store.node(ready, worker=True)
    assert "yet: no process took it" in run("alerts", "test", "ops").stdout


def test_alerts_of_files_are_refused_with_their_place(tmp_path: Path, app: Scheduler) -> None:
    (tmp_path / "evenbeat.toml").write_text('[alerts.rules.r]\non = "failed"\n')
    assert failed("alerts", "list", code=2) == (
        f"error: alerts.rules.r in {tmp_path}/evenbeat.toml:1 has no to; add the key to\n"
    )


def test_times_are_shown_in_the_local_zone(ready: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    ready.alerts.rules.add("failures", on="failed", to="ops")
    text = printed("alerts", "mute", "failures", "--until", "18:00")
    assert "Mon 2026-03-02 18:00 +01:00" in text
    assert ready.alerts.rules.get("failures").muted_until == from_ms(1_772_438_400_000 + 9 * HOUR)
