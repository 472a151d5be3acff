"""The API while the store is unavailable, slow, or can't be written."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from evenbeat import Scheduler, every
from evenbeat.core.records import Record
from evenbeat.errors import StoreUnavailable
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from evenbeat.web.health import health_routes
from evenbeat.web.outages import SUMMARY_SECONDS, OutageLog
from evenbeat.web.settings import WebSettings
from evenbeat.web.state import WebState
from tests.web.site import Site, assert_problem


def test_a_token_works_on_a_store_that_can_not_be_written(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.app.schedules.add("nightly", every("1h"), "work")
    secret = site.token("viewer")

    def refuse(record: Record, expect: int | None = None) -> bool:
        raise StoreUnavailable("the database is read-only")

    monkeypatch.setattr(site.app.store, "put_record", refuse)
    assert site.get("schedules/nightly", secret=secret)["name"] == "nightly"


def test_the_reason_of_an_outage_is_logged_and_not_sent(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise StoreUnavailable('connection to 10.1.2.3 failed: no password for user "ann"')

    monkeypatch.setattr(site.app.store, "get_record", fail)
    # Nobody knows yet whether this token is a right one.
    response = site.request("GET", "me", secret="evb_123_x")
    problem = assert_problem(response, 503, "store-unavailable")
    assert "10.1.2.3" not in str(problem)
    assert response.headers["retry-after"] == "1"
    assert "10.1.2.3" in caplog.text


def test_the_use_of_a_token_is_noted_after_the_clock_was_set_back() -> None:
    clock = VirtualClock()
    app = Scheduler(MemoryStore(clock))
    made = app.tokens.create("ann")
    assert app.tokens.verify(made.secret) is not None
    clock.now -= 3_600_000
    assert app.tokens.verify(made.secret) is not None
    (token,) = app.tokens.list()
    assert token.last_used_at is not None
    assert int(token.last_used_at.timestamp() * 1000) == clock.now


def test_many_probes_share_one_question_to_a_store_that_hangs(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, asked = threading.Event(), []

    def hang(*_: Any) -> None:
        asked.append(1)
        released.wait(60)

    monkeypatch.setattr(app.store, "get_record", hang)
    monkeypatch.setattr("evenbeat.web.health._PATIENCE", 0.05)
    ready = health_routes(WebState(app, WebSettings()))[1].endpoint

    async def probe() -> list[int]:
        return [response.status_code for response in await asyncio.gather(*(ready(None) for _ in range(50)))]

    assert set(asyncio.run(probe())) == {503}
    assert set(asyncio.run(probe())) == {503}
    assert len(asked) == 1
    released.set()


def test_an_outage_is_logged_once_and_then_as_a_summary(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise StoreUnavailable("the disk is full")

    seconds = [100.0]
    site.web.state.outages = OutageLog(lambda: seconds[0])
    site.token("admin")
    site.get("me")
    monkeypatch.setattr(site.app.store, "find_schedules", fail)

    def failing(times: int) -> list[tuple[str, int]]:
        caplog.clear()
        for _ in range(times):
            assert_problem(site.request("GET", "schedules/nightly"), 503, "store-unavailable")
        records = [each for each in caplog.records if each.name == "evenbeat.web.outages"]
        return [(each.message, getattr(each, "requests", 1)) for each in records]

    assert failing(20) == [("a request failed, the client may repeat it: the disk is full", 1)]
    seconds[0] += SUMMARY_SECONDS - 0.1
    assert failing(5) == []
    seconds[0] += 0.1
    summary = "requests failed, clients may repeat them; the last one: the disk is full"
    assert failing(3) == [(summary, 25)]
    seconds[0] += 3600
    assert failing(1) == [(summary, 3)]
