"""Check-ins of Sentry and pings of Healthchecks, at a real receiver."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenbeat.alerts.channels.addresses import BadAddress
from evenbeat.alerts.channels.healthchecks import Healthchecks, ping_url
from evenbeat.alerts.channels.http import HttpClient
from evenbeat.alerts.channels.monitors import event_id, slug
from evenbeat.alerts.channels.sentry import Sentry, check_in, read_dsn
from evenbeat.core.alerts import Message
from tests.unit.receivers import MARK, MESSAGE, Request, receiver

LOCAL = HttpClient(frozenset(("127.0.0.1",)))
RUN = replace(
    MESSAGE,
    announcement="run",
    outcome="succeeded",
    duration=timedelta(seconds=4.2),
    trigger="0 2 * * * tz=Europe/Berlin",
    incident=None,
)


def pinged(message: Message, path: str = "/ping/uuid") -> Request:
    with receiver() as server:
        Healthchecks(LOCAL, server.url + path).send(message)
    [request] = server.requests
    return request


def test_a_run_that_succeeded_pings_the_check_with_its_id() -> None:
    request = pinged(RUN)
    parts = urlsplit(request.path)
    assert parts.path == "/ping/uuid"
    [rid] = parse_qs(parts.query)["rid"]
    assert str(uuid.UUID(rid)) == rid
    assert rid == str(event_id(RUN))
    assert request.body.decode().splitlines() == [RUN.title, *RUN.lines]


@pytest.mark.parametrize(
    ("message", "ending"),
    [
        (replace(RUN, outcome="failed"), "/uuid/fail"),
        (replace(RUN, outcome="cancelled"), "/uuid/fail"),
        (MESSAGE, "/uuid/fail"),
        (replace(MESSAGE, announcement="escalated"), "/uuid/fail"),
        (replace(MESSAGE, announcement="recovered"), "/uuid"),
        (replace(MESSAGE, announcement="test"), "/uuid/log"),
    ],
)
def test_the_path_of_a_ping_says_how_it_went(message: Message, ending: str) -> None:
    assert urlsplit(ping_url("https://hc-ping.com/uuid/", message)).path == ending


def test_a_query_is_kept_and_the_schedule_is_put_in() -> None:
    url = ping_url("https://hc-ping.com/key/{schedule}?create=1", replace(RUN, outcome="failed"))
    assert url == f"https://hc-ping.com/key/nightly/fail?create=1&rid={event_id(RUN)}"


def sentry_received(message: Message) -> tuple[Request, list[Any]]:
    with receiver() as server:
        dsn = read_dsn(f"http://{MARK}@127.0.0.1:{server.port}/sub/42")
        Sentry(LOCAL, dsn, now=lambda: 1_772_416_805_000).send(message)
    [request] = server.requests
    return request, [json.loads(line) for line in request.body.decode().splitlines()]


def test_a_run_checks_in_with_the_monitor_of_its_schedule() -> None:
    request, [header, item, payload] = sentry_received(RUN)
    assert request.path == "/sub/api/42/envelope/"
    assert request.headers["Content-Type"] == "application/x-sentry-envelope"
    assert f"sentry_key={MARK}" in request.headers["X-Sentry-Auth"]
    assert request.headers["X-Sentry-Auth"].startswith("Sentry sentry_version=7, sentry_client=evenbeat/")
    assert header == {"sent_at": "2026-03-02T02:00:05Z"}
    assert item == {"type": "check_in", "length": len(request.body.splitlines()[2])}
    assert payload == {
        "check_in_id": event_id(RUN).hex,
        "monitor_slug": "nightly",
        "status": "ok",
        "duration": 4.2,
        "monitor_config": {
            "schedule": {"type": "crontab", "value": "0 2 * * *"},
            "timezone": "Europe/Berlin",
            "checkin_margin": 6,
        },
    }


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (replace(RUN, outcome="failed"), "error"),
        (replace(RUN, outcome="cancelled"), "error"),
        (MESSAGE, "error"),
        (replace(MESSAGE, announcement="recovered"), "ok"),
        (replace(MESSAGE, announcement="test"), "ok"),
    ],
)
def test_the_status_of_a_check_in_says_how_it_went(message: Message, status: str) -> None:
    assert check_in(message)["status"] == status


@pytest.mark.parametrize(
    ("trigger", "schedule"),
    [
        ("every 10m", {"type": "interval", "value": 10, "unit": "minute"}),
        ("every 90m", {"type": "interval", "value": 90, "unit": "minute"}),
        ("every 6h start=2026-01-01T00:00:00Z", {"type": "interval", "value": 6, "unit": "hour"}),
        ("every 2d", {"type": "interval", "value": 2, "unit": "day"}),
        ("every 14d", {"type": "interval", "value": 2, "unit": "week"}),
        ("every 90s", None),
        ("every 6h until=2027-01-01T00:00:00Z", None),
        ("at 2026-03-02T02:00:00Z", None),
        ("*/15 9-17 * * 1-5", {"type": "crontab", "value": "*/15 9-17 * * 1-5"}),
        ("@daily", {"type": "crontab", "value": "0 0 * * *"}),
        ("30 0 2 * * *", None),  # seconds
        ("0 0 L * *", None),
        ("0 0 * * 1#1", None),
        ("0 2 * * * until=2027-01-01T00:00:00Z", None),
        ("not a trigger", None),
        (None, None),
    ],
)
def test_a_trigger_is_sent_if_sentry_can_express_it(trigger: str | None, schedule: Any) -> None:
    config = check_in(replace(RUN, trigger=trigger)).get("monitor_config")
    assert (None if config is None else config["schedule"]) == schedule


def test_a_hashed_minute_is_sent_as_the_schedule_has_it() -> None:
    value = check_in(replace(RUN, trigger="H 2 * * *"))["monitor_config"]["schedule"]["value"]
    assert value.split()[0].isdigit()


def test_the_margin_grows_with_the_length_of_the_run() -> None:
    config = check_in(replace(RUN, duration=timedelta(minutes=30)))["monitor_config"]
    assert config["checkin_margin"] == 65


@pytest.mark.parametrize(
    "dsn",
    [
        "",
        f"https://{MARK}",
        f"https://o1.ingest.sentry.io/{MARK}",
        f"https://{MARK}@/42",
        f"https://{MARK}@o1.ingest.sentry.io/",
        f"https://{MARK}@o1.ingest.sentry.io/42?x={MARK}",
        f"ftp://{MARK}@o1.ingest.sentry.io/42",
        f"https://a@{MARK}@o1.ingest.sentry.io/42",
        f"https://{MARK}\r\n@o1.ingest.sentry.io/42",
        f"https://{MARK}@[::1/42",
        f"https://{MARK}@127.1/42",
    ],
)
def test_a_text_that_is_not_a_dsn_is_refused(dsn: str) -> None:
    with pytest.raises(BadAddress) as refused:
        read_dsn(dsn)
    assert MARK not in str(refused.value)


def test_an_old_dsn_with_a_secret_key_is_read() -> None:
    assert read_dsn("https://abc:def@sentry.example.com/42") == (
        "https://sentry.example.com/api/42/envelope/",
        "abc",
    )


def test_a_run_has_the_same_id_at_each_try_and_in_each_delivery() -> None:
    assert event_id(RUN) == event_id(replace(RUN, id="another", title="other"))
    assert event_id(RUN) != event_id(replace(RUN, run="default/nightly/1/1"))
    assert event_id(RUN) != event_id(replace(RUN, tenant="acme"))
    # The end of an incident must not change the check-in of the run with which it began.
    assert len({event_id(RUN), event_id(MESSAGE), event_id(replace(MESSAGE, id="x"))}) == 3


def test_names_become_slugs_that_are_readable_and_distinct() -> None:
    names = ["nightly", "Nightly", "night.ly", "night-ly", "night:ly", "a" * 50, "a" * 51, "a" * 52, "123"]
    slugs = [slug(replace(RUN, schedule=name)) for name in names]
    slugs.append(slug(replace(RUN, tenant="acme")))
    slugs.append(slug(replace(RUN, schedule="acme-nightly")))
    slugs.append(slug(replace(RUN, schedule=None, subject_kind="task", subject="nightly")))
    assert len(set(slugs)) == len(slugs)
    assert slugs[0] == "nightly"
    assert slugs[1].startswith("nightly-")
    assert slugs[-3].startswith("acme-nightly-")
    assert slug(replace(RUN, announcement="test")) == "evenbeat-test"


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_name_becomes_a_slug(name: str, tenant: str) -> None:
    made = slug(replace(RUN, schedule=name, tenant=tenant))
    assert 0 < len(made) <= 50
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-")
    assert not made.isdigit()
