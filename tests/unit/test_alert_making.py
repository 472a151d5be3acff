"""Channels from their records: what is refused, what a process reads from its environment, what is shown."""

from __future__ import annotations

import json

import pytest

from evenbeat.alerts.channels.base import DeliveryFailed
from evenbeat.alerts.channels.making import check_channel, make_channel, shown_address
from evenbeat.core.alerts import CHANNEL_KINDS, ChannelKind
from evenbeat.errors import InvalidValue
from evenbeat.rules.alert_records import StoredChannel
from tests.unit.receivers import MARK, MESSAGE, receiver

LOCAL = frozenset(("127.0.0.1",))
GOOD: dict[ChannelKind, str] = {
    "webhook": "https://hooks.example.com/{mark}?token={mark}",
    "apprise": "json://user:{mark}@hooks.example.com/{mark}",
    "sentry": "https://{mark}@o1.ingest.sentry.io/42",
    "healthchecks": "https://hc-ping.com/{mark}/{{schedule}}?create=1",
}


def good(kind: ChannelKind) -> str:
    return GOOD[kind].format(mark=MARK)


def refusal(kind: str, url: object, secret: object = None) -> InvalidValue:
    with pytest.raises(InvalidValue) as refused:
        check_channel(kind, url, secret)
    error = refused.value
    assert MARK not in f"{error} {error!r} {error.problem} {error.hint} {error.value!r} {vars(error)}"
    assert error.__suppress_context__ or error.__context__ is None
    return error


@pytest.mark.parametrize("kind", CHANNEL_KINDS)
def test_a_channel_of_each_kind_is_accepted(kind: ChannelKind) -> None:
    check_channel(kind, good(kind), f"{MARK}-and-more" if kind == "webhook" else None)
    check_channel(kind, "env:EVENBEAT_SECRET_URL", "env:EVENBEAT_SECRET_KEY" if kind == "webhook" else None)


@pytest.mark.parametrize("kind", CHANNEL_KINDS)
@pytest.mark.parametrize(
    "url",
    [
        None,
        7,
        "",
        MARK,
        f"ftp://{MARK}/",
        f"https://{MARK}:{MARK}@hooks.example.com:x/",
        f"https://{MARK}@{MARK}\n.com/{MARK}",
        f"syslog://{MARK}",
        f"env:{MARK}",
        f"env:EVENBEAT_SECRET_{MARK} ",
        "env:EVENBEAT_SECRET_",
        "env:HOME",
        "env:AWS_SECRET_ACCESS_KEY",
        "env:evenbeat_secret_x",
    ],
)
def test_a_url_that_can_not_work_is_refused_without_being_shown(kind: ChannelKind, url: object) -> None:
    assert refusal(kind, url).field == "url"


def test_a_private_address_is_refused_when_it_is_used_and_not_when_it_is_written() -> None:
    check_channel("webhook", "http://127.0.0.1:1/", None)  # the process that sends may allow it
    channel = make_channel(StoredChannel(kind="webhook", url="http://127.0.0.1:1/"), {}, frozenset())
    with pytest.raises(DeliveryFailed, match="not on the public internet"):
        channel.send(MESSAGE)


def test_only_healthchecks_has_a_place_for_the_schedule() -> None:
    assert refusal("webhook", f"https://hooks.example.com/{MARK}/{{schedule}}").field == "url"
    assert refusal("healthchecks", f"https://hc-ping.com/{MARK}/{{tenant}}").field == "url"


@pytest.mark.parametrize(
    "secret", ["", MARK, MARK * 200, 7, "env:HOME_IS_NOT_A_SECRET", f"env:{MARK}_and_more"]
)
def test_a_secret_that_can_not_work_is_refused_without_being_shown(secret: object) -> None:
    assert refusal("webhook", good("webhook"), secret).field == "secret"


def test_a_secret_belongs_to_webhooks_alone() -> None:
    for kind in ("apprise", "sentry", "healthchecks"):
        assert refusal(kind, GOOD[kind].format(mark=MARK), f"{MARK}-and-more").field == "secret"


def test_an_unknown_kind_is_refused() -> None:
    assert refusal("telegram", "https://example.com/").field == "kind"


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("webhook", "https://hooks.example.com"),
        ("apprise", "json://"),
        ("sentry", "https://o1.ingest.sentry.io"),
        ("healthchecks", "https://hc-ping.com"),
    ],
)
def test_the_shown_address_has_no_secret(kind: ChannelKind, shown: str) -> None:
    assert shown_address(StoredChannel(kind=kind, url=good(kind))) == shown


@pytest.mark.parametrize("kind", CHANNEL_KINDS)
def test_of_a_damaged_url_nothing_is_shown(kind: ChannelKind) -> None:
    for url in ("", MARK, f"https://{MARK}@", f"env:{MARK}"):
        assert MARK not in shown_address(StoredChannel(kind=kind, url=url))
    assert shown_address(StoredChannel(kind=kind, url="env:EVENBEAT_SECRET_X")) == "env:EVENBEAT_SECRET_X"


def test_the_process_that_sends_reads_the_secrets() -> None:
    stored = StoredChannel(kind="webhook", url="env:EVENBEAT_SECRET_HOOK", secret="env:EVENBEAT_SECRET_KEY")
    with receiver() as server:
        environment = {"EVENBEAT_SECRET_HOOK": f"{server.url}/{MARK}", "EVENBEAT_SECRET_KEY": MARK * 2}
        make_channel(stored, environment, LOCAL).send(MESSAGE)
    [request] = server.requests
    assert request.path == f"/{MARK}"
    assert request.headers["Evenbeat-Signature"].startswith("v1=")


def test_a_variable_that_is_not_set_is_named_and_may_be_set_elsewhere() -> None:
    stored = StoredChannel(kind="webhook", url="env:EVENBEAT_SECRET_HOOK")
    for environment in ({}, {"EVENBEAT_SECRET_HOOK": ""}):
        with pytest.raises(DeliveryFailed, match="EVENBEAT_SECRET_HOOK is not set") as failed:
            make_channel(stored, environment, LOCAL)
        assert not failed.value.is_final


def test_no_other_variable_is_read() -> None:
    environment = {"AWS_SECRET_ACCESS_KEY": f"https://example.com/{MARK}", "HOME": f"https://{MARK}/"}
    for name in environment:
        for stored in (
            StoredChannel(kind="webhook", url=f"env:{name}"),
            StoredChannel(kind="webhook", url="https://example.com/", secret=f"env:{name}"),
        ):
            with pytest.raises(DeliveryFailed, match="EVENBEAT_SECRET_") as failed:
                make_channel(stored, environment, LOCAL)
            assert failed.value.is_final
            assert MARK not in str(failed.value)


@pytest.mark.parametrize("kind", CHANNEL_KINDS)
def test_a_stored_url_that_is_damaged_is_final_and_not_shown(kind: ChannelKind) -> None:
    for stored, environment in (
        (StoredChannel(kind=kind, url=MARK), {}),
        (StoredChannel(kind=kind, url="env:EVENBEAT_SECRET_X"), {"EVENBEAT_SECRET_X": f"ftp://{MARK}\n"}),
    ):
        with pytest.raises(DeliveryFailed) as failed:
            make_channel(stored, environment, LOCAL)
        assert failed.value.is_final
        assert MARK not in str(failed.value)


@pytest.mark.parametrize("kind", CHANNEL_KINDS)
def test_each_kind_is_sent_and_its_repr_has_no_secret(kind: ChannelKind) -> None:
    with receiver() as server:
        url = {
            "webhook": f"{server.url}/{MARK}",
            "apprise": f"json://127.0.0.1:{server.port}/{MARK}",
            "sentry": f"http://{MARK}@127.0.0.1:{server.port}/42",
            "healthchecks": f"{server.url}/{MARK}/{{schedule}}",
        }[kind]
        stored = StoredChannel(kind=kind, url=url, secret=MARK * 2)
        channel = make_channel(stored, {}, LOCAL)
        channel.send(MESSAGE)
    [request] = server.requests
    assert MARK not in f"{channel!r} {stored!r} {stored}"
    run = json.dumps(MESSAGE.run)[1:-1]
    assert kind in ("apprise", "sentry") or run in request.body.decode() or "rid=" in request.path
