"""Limits: one token can't occupy the server, with slow requests or with streams."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from evenbeat import Scheduler
from evenbeat.stores.memory import MemoryStore
from evenbeat.web import limits
from evenbeat.web.access import LOCAL, Principal
from evenbeat.web.limits import Limit
from evenbeat.web.problems import Refused
from tests.web.site import API, Site, assert_problem

ANN, BOB = Principal("ann", "viewer", None, "a"), Principal("bob", "viewer", None, "b")


def test_a_limit_counts_by_token_and_in_all() -> None:
    limit = Limit("streams", 2, 3)
    with ExitStack() as open_ones:
        for who in (ANN, ANN, BOB):
            open_ones.enter_context(limit.counted(who))
        with pytest.raises(Refused) as of_token, limit.counted(ANN):
            pass
        with pytest.raises(Refused) as of_all, limit.counted(BOB):
            pass
        assert limit.used == 3
    assert (of_token.value.problem.status, of_token.value.headers) == (429, {"Retry-After": "1"})
    assert (of_all.value.problem.status, of_all.value.headers) == (503, {"Retry-After": "10"})
    assert limit.used == 0
    with limit.counted(ANN), limit.counted(ANN):
        pass


def test_a_sender_without_a_token_has_no_limit_of_their_own() -> None:
    limit = Limit("requests", 1)
    with limit.counted(LOCAL), limit.counted(LOCAL):
        assert limit.used == 2


@pytest.fixture
def slow(app: Scheduler) -> Iterator[threading.Event]:
    """Make requests for the schedule "slow" wait until the event is set."""
    released = threading.Event()
    find, store = MemoryStore.find_schedules, app.store

    def wait(query: Any) -> Any:
        if query.name == "slow":
            assert released.wait(60)
        assert isinstance(store, MemoryStore)
        return find(store, query)

    store.find_schedules = wait  # type: ignore[method-assign]
    yield released
    released.set()


def test_slow_requests_of_one_token_leave_room_for_others(site: Site, slow: threading.Event) -> None:
    busy, other = site.token("viewer"), site.token("operator")
    site.get("me", secret=busy)
    requests = site.web.state.requests
    with ThreadPoolExecutor(limits.REQUESTS_OF_TOKEN) as pool:
        waiting = [
            pool.submit(site.request, "GET", "schedules/slow", secret=busy)
            for _ in range(limits.REQUESTS_OF_TOKEN)
        ]
        while requests.used < limits.REQUESTS_OF_TOKEN:
            assert not any(each.done() for each in waiting)
            threading.Event().wait(0.01)
        refused = site.request("GET", "me", secret=busy)
        problem = assert_problem(refused, 429, "too-many-requests")
        assert "20 requests" in problem["detail"]
        assert refused.headers["retry-after"] == "1"
        assert site.get("me", secret=other)["role"] == "operator"
        slow.set()
        assert {each.result().status_code for each in waiting} == {404}
    assert requests.used == 0
    assert site.get("me", secret=busy)["role"] == "viewer"


class Stream:
    """A client of the event stream, on the level of ASGI."""

    def __init__(self, site: Site, secret: str) -> None:
        self._site = site
        self._secret = secret
        self._left = asyncio.Event()
        self._started = asyncio.Event()
        self.status = 0
        self.body = b""

    async def open(self) -> None:
        self._task = asyncio.create_task(self._run())
        await asyncio.wait_for(self._started.wait(), 60)

    async def leave(self) -> None:
        self._left.set()
        await asyncio.wait_for(self._task, 60)

    async def _run(self) -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": f"{API}/events",
            "raw_path": f"{API}/events".encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {self._secret}".encode())],
            "client": ("192.0.2.1", 50_000),
            "server": ("localhost", 80),
        }
        await self._site.web(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._started.set()
        else:
            self.body += message.get("body", b"")


def test_a_token_has_a_limited_number_of_streams(site: Site) -> None:
    asyncio.run(asyncio.wait_for(open_and_leave(site), 60))


async def open_and_leave(site: Site) -> None:
    site.web.state.streams = Limit("streams", 2, 3)
    one, other = site.token("viewer"), site.token("operator")
    opened: list[Stream] = []

    async def open_stream(secret: str) -> int:
        opened.append(Stream(site, secret))
        await opened[-1].open()
        return opened[-1].status

    assert [await open_stream(one) for _ in range(3)] == [200, 200, 429]
    assert b"too-many-streams" in opened[-1].body
    assert [await open_stream(other) for _ in range(2)] == [200, 503]
    # A stream that ends makes room, for the token and for others.
    await opened[0].leave()
    assert [await open_stream(one) for _ in range(2)] == [200, 429]
    for each in opened:
        await each.leave()
    assert site.web.state.streams.used == 0
