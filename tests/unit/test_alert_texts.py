"""The texts of alerts: what somebody reads on a phone at night, also if a name or an error is hostile."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenbeat.alerts import texts
from evenbeat.alerts.texts import LONGEST_LINE, LONGEST_TITLE, incident_message, run_message
from evenbeat.core.alerts import CONDITION_KINDS, Announcement, Message
from evenbeat.rules.alert_records import Signal, StoredIncident

TICK = 1_772_416_800_000  # Mon 2026-03-02 02:00 UTC
HOUR, DAY = 3_600_000, 86_400_000
BASE = "https://jobs.example.com/"

FAILED = StoredIncident(
    id="i1",
    rule="on-call",
    scope="own",
    condition="failed",
    subject_kind="schedule",
    subject="nightly",
    opened_at=TICK + 4_210,
    changed_at=TICK + 4_210,
    reason="a run failed",
    tenant="default",
    schedule="nightly",
    task="report",
    run=f"default/nightly/1/{TICK}",
    tick=TICK,
    failures=1,
    last_success=TICK - DAY + 11_000,
    error="OperationalError: connection failed: password=hunter2 is wrong",
    why="the run of 02:00 failed after 3 attempts",
)
ENDED = Signal(
    kind="succeeded",
    at=TICK + 4_210,
    tenant="default",
    schedule="nightly",
    task="report",
    run=f"default/nightly/1/{TICK}",
    tick=TICK,
    took=4_123,
)


def text(message: Message) -> str:
    return "\n".join((message.title, *message.lines))


def test_the_first_failure_says_all_that_one_wants_to_know() -> None:
    message = incident_message(FAILED, "opened", "d1", BASE)
    assert text(message) == (
        "Failed: nightly\n"
        "A run failed.\n"
        "Error: OperationalError: connection failed: password=*** is wrong\n"
        "Since: Mon 2026-03-02 02:00:04 UTC\n"
        "Last success: Sun 2026-03-01 02:00:11 UTC, 23 h 59 min earlier\n"
        "Why: the run of 02:00 failed after 3 attempts\n"
        "Schedule: nightly\n"
        "Tick: Mon 2026-03-02 02:00 UTC\n"
        f"Run: default/nightly/1/{TICK}\n"
        f"https://jobs.example.com/#/runs/default/default%2Fnightly%2F1%2F{TICK}"
    )
    assert (message.id, message.incident, message.rule, message.condition) == (
        "d1",
        "i1",
        "on-call",
        "failed",
    )
    assert (message.schedule, message.task, message.run) == ("nightly", "report", FAILED.run)
    assert message.at == datetime(2026, 3, 2, 2, 0, 4, 210_000, tzinfo=UTC)
    assert message.tick == datetime(2026, 3, 2, 2, tzinfo=UTC)
    assert (message.failures, message.link) == (1, message.lines[-1])
    assert message.error == "OperationalError: connection failed: password=*** is wrong"


def test_an_escalation_says_how_many_failed_in_a_row() -> None:
    incident = replace(
        FAILED, failures=3, changed_at=TICK + 2 * DAY, reason="3 runs have failed in a row", tenant="acme"
    )
    message = incident_message(incident, "escalated", "d1", BASE)
    assert text(message) == (
        "Failed 3 times in a row: nightly (tenant acme)\n"
        "3 runs have failed in a row.\n"
        "Error: OperationalError: connection failed: password=*** is wrong\n"
        "Since: Mon 2026-03-02 02:00:04 UTC\n"
        "Last success: Sun 2026-03-01 02:00:11 UTC, 2 d 23 h earlier\n"
        "Why: the run of 02:00 failed after 3 attempts\n"
        "Schedule: nightly of tenant acme\n"
        "First failed tick: Mon 2026-03-02 02:00 UTC\n"
        f"First failed run: default/nightly/1/{TICK}\n"
        "https://jobs.example.com/#/schedules/acme/nightly"
    )
    assert message.at == datetime(2026, 3, 4, 2, tzinfo=UTC)


def test_a_recovery_says_how_long_it_lasted() -> None:
    incident = replace(
        FAILED, failures=3, reason="3 runs have failed in a row", closed_at=TICK + 3 * DAY + 65_000
    )
    message = incident_message(incident, "recovered", "d1", BASE)
    assert text(message) == (
        "Recovered: nightly\n"
        "A run succeeded.\n"
        "Lasted: 3 d, since Mon 2026-03-02 02:00:04 UTC\n"
        "Before: 3 runs have failed in a row\n"
        "Last error: OperationalError: connection failed: password=*** is wrong\n"
        "Schedule: nightly\n"
        "First failed tick: Mon 2026-03-02 02:00 UTC\n"
        f"First failed run: default/nightly/1/{TICK}\n"
        "https://jobs.example.com/#/schedules/default/nightly"
    )
    assert message.at == datetime(2026, 3, 5, 2, 1, 5, tzinfo=UTC)


def test_the_error_is_said_once() -> None:
    error = "OperationalError: connection failed: password=hunter2 is wrong"
    message = incident_message(
        replace(FAILED, why=f"it failed after 3 attempts: {error}"), "opened", "d1", BASE
    )
    assert "Why: it failed after 3 attempts" in message.lines
    assert (
        message.why
        == "it failed after 3 attempts: OperationalError: connection failed: password=*** is wrong"
    )


def test_lengths_of_time_have_whole_seconds() -> None:
    incident = replace(FAILED, last_success=FAILED.opened_at - 9_876, closed_at=FAILED.opened_at + 50_332)
    opened, ended = (incident_message(incident, kind, "d1", BASE) for kind in ("opened", "recovered"))
    assert "Last success: Mon 2026-03-02 01:59:54 UTC, 9 s earlier" in opened.lines
    assert "Lasted: 50 s, since Mon 2026-03-02 02:00:04 UTC" in ended.lines
    short = incident_message(replace(incident, closed_at=FAILED.opened_at + 332), "recovered", "d1", BASE)
    assert "Lasted: 332 ms, since Mon 2026-03-02 02:00:04 UTC" in short.lines


def test_a_schedule_that_never_succeeded_says_so() -> None:
    message = incident_message(replace(FAILED, last_success=None, why=None, error=None), "opened", "d1", None)
    assert "Last success: none on record" in message.lines
    assert message.link is None
    assert not any("http" in line or "Why" in line or "Error" in line for line in message.lines)


def other(condition: str, **changes: object) -> StoredIncident:
    plain = replace(
        FAILED, failures=0, run=None, tick=None, last_success=None, error=None, why=None, task=None
    )
    return replace(plain, condition=condition, **changes)


@pytest.mark.parametrize(
    ("incident", "title", "first"),
    [
        (other("late:10m", reason="the tick has not fired for 10 min"), "Late: nightly", "The tick has not"),
        (other("missed", reason="2 ticks were skipped"), "Missed: nightly", "2 ticks were skipped."),
        (other("no_node:1m", reason="no node takes it"), "No node: nightly", "No node takes it."),
        (
            other("stuck:1h", subject_kind="run", subject="r1", run="r1", schedule=None, task="report"),
            "Stuck: report",
            "A run failed.",
        ),
        (
            other("queue:1000", subject_kind="queue", subject="mail", schedule=None, tenant=None),
            "Queue is growing: mail",
            "A run failed.",
        ),
        (
            other("node_lost", subject_kind="node", subject="web-1:4121", schedule=None, tenant=None),
            "Node lost: web-1:4121",
            "A run failed.",
        ),
        (
            other(
                "store_unsafe", subject_kind="store", subject="store", schedule=None, reason="fsync is off"
            ),
            "Store is unsafe",
            "fsync is off.",
        ),
    ],
)
def test_every_condition_has_its_words(incident: StoredIncident, title: str, first: str) -> None:
    opened = incident_message(incident, "opened", "d1", BASE)
    assert opened.title == title
    assert opened.lines[0].startswith(first)
    assert "Last success: none on record" not in opened.lines
    ended = incident_message(replace(incident, closed_at=TICK + HOUR), "recovered", "d2", BASE)
    assert ended.title.startswith("Recovered: ")
    assert ended.lines[0] != "It is over."


def test_no_condition_lacks_words() -> None:
    for kind in set(CONDITION_KINDS) - {"runs"}:
        ended = incident_message(other(kind), "recovered", "d", None)
        assert ended.lines[0] != "It is over."
        assert "_" not in incident_message(other(kind), "opened", "d", None).title


def test_a_run_that_ended_says_how_and_after_what_time() -> None:
    message = run_message(ENDED, "0 2 * * *", "d1", BASE)
    assert text(message) == (
        "Succeeded: nightly\n"
        "The run succeeded after 4.1 s.\n"
        "Schedule: nightly\n"
        "Tick: Mon 2026-03-02 02:00 UTC\n"
        f"Run: default/nightly/1/{TICK}\n"
        f"https://jobs.example.com/#/runs/default/default%2Fnightly%2F1%2F{TICK}"
    )
    assert (message.announcement, message.outcome, message.trigger) == ("run", "succeeded", "0 2 * * *")
    assert message.duration == timedelta(milliseconds=4_123)
    assert (message.subject_kind, message.subject) == ("schedule", "nightly")


def test_a_run_without_a_schedule_is_known_by_its_task() -> None:
    signal = replace(ENDED, kind="failed", schedule=None, tick=None, run="abc", took=None, error="boom")
    message = run_message(replace(signal, tenant="acme"), None, "d1", BASE)
    assert text(message) == (
        "Failed: report (tenant acme)\n"
        "The run failed.\n"
        "Error: boom\n"
        "Task: report of tenant acme\n"
        "Run: abc\n"
        "https://jobs.example.com/#/runs/acme/abc"
    )
    assert (message.subject_kind, message.subject, message.outcome) == ("task", "report", "failed")


def test_a_test_says_that_it_is_one() -> None:
    message = texts.test_message("ops", "d1", TICK)
    assert text(message) == (
        "Test of channel: ops\n"
        'This is a test: alerts on the channel "ops" arrive here.\n'
        "Sent: Mon 2026-03-02 02:00 UTC\n"
        "Nothing is wrong."
    )


def assert_readable(message: Message) -> None:
    assert len(message.title) <= LONGEST_TITLE
    for line in (message.title, *message.lines, message.error or "", message.why or ""):
        assert len(line) <= LONGEST_LINE + len("Last success: ") or line == message.link
        assert not any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in line)
        assert not set(line) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\ufeff")


ANNOUNCEMENTS: list[Announcement] = ["opened", "escalated", "recovered"]
HOSTILE = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [
            "<script>alert(1)</script>",
            "@everyone",
            "a\r\nBcc: x@example.com",
            "\x1b[2J\x00",
            "\u202egnp.exe",
            "{0.__class__.__mro__} %s %(x)s ${HOME} {{7*7}} #{1}",
            "\ud800",
            "x" * 5_000,
            "]]>&lt;![CDATA[",
        ]
    ),
)


@given(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, st.sampled_from(ANNOUNCEMENTS))
def test_hostile_texts_stay_texts_on_one_line(
    name: str, tenant: str, error: str, reason: str, why: str, announcement: Announcement
) -> None:
    incident = replace(
        FAILED, schedule=name, subject=name, tenant=tenant, error=error, reason=reason, why=why, run=name
    )
    assert_readable(incident_message(incident, announcement, "d", BASE))
    signal = replace(ENDED, schedule=name, task=name, tenant=tenant, error=error, run=name)
    assert_readable(run_message(signal, None, "d", BASE))
    assert_readable(texts.test_message(name, "d", TICK))


@pytest.mark.parametrize("template", ["{0.__class__}", "%s%n", "${HOME}", "{{7*7}}", "$(id)", "#{1+1}"])
def test_no_text_is_a_template(template: str) -> None:
    """CVE-2020-26238: an error message that was evaluated."""
    incident = replace(FAILED, schedule=template, error=template, reason=template, why=template)
    message = incident_message(incident, "opened", "d", None)
    assert message.title == f"Failed: {template}"
    assert f"Error: {template}" in message.lines
    assert f"Why: {template}" in message.lines


@pytest.mark.parametrize(
    "secret",
    [
        "password=m4rk",
        "https://user:m4rk@db/",
        "Authorization: Bearer m4rk",
        '{"api_key": "m4rk"}',
        "token: m4rk",
    ],
)
def test_secrets_are_masked_wherever_they_stand(secret: str) -> None:
    incident = replace(FAILED, error=f"E: {secret}", reason=f"it said {secret}", why=f"because {secret}")
    for announcement in ANNOUNCEMENTS:
        message = incident_message(incident, announcement, "d", BASE)
        assert "m4rk" not in repr(message)
    assert "m4rk" not in repr(run_message(replace(ENDED, error=secret), None, "d", BASE))


def test_a_long_error_is_cut_and_a_secret_at_the_cut_is_masked() -> None:
    incident = replace(FAILED, error="x" * 990 + " password=m4rk" + "y" * 100_000)
    message = incident_message(incident, "opened", "d", None)
    assert message.error is not None
    assert len(message.error) == LONGEST_LINE
    assert message.error.endswith("…")
    assert "m4rk" not in repr(message)


@given(
    st.text(alphabet=st.characters(codec="utf-8"), min_size=1),
    st.text(st.characters(codec="utf-8"), min_size=1),
)
def test_a_link_leads_to_the_run_whatever_its_name(run: str, tenant: str) -> None:
    link = incident_message(replace(FAILED, run=run, tenant=tenant), "opened", "d", BASE).link
    assert link is not None
    assert link.isascii()
    assert link.isprintable()
    parts = urlsplit(link)
    assert (parts.netloc, parts.path, parts.query) == ("jobs.example.com", "/", "")
    assert [unquote(part) for part in parts.fragment.split("/")] == ["", "runs", tenant, run]


def test_a_name_that_no_database_accepts_does_not_stop_an_alert() -> None:
    message = incident_message(replace(FAILED, run="a\ud800", tenant="b\ud800"), "opened", "d", BASE)
    assert message.link == "https://jobs.example.com/#/runs/b%3F/a%3F"


def test_an_instant_outside_the_calendar_does_not_stop_an_alert() -> None:
    incident = replace(FAILED, tick=10**18, last_success=-(10**18), opened_at=-(10**18))
    assert incident_message(incident, "opened", "d", None).title == "Failed: nightly"
