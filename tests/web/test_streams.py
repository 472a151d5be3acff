"""Streams: each client gets the changes of its tenant, comes back where it left, and ends when it must."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from evenbeat.errors import StoreUnavailable
from evenbeat.web import streams
from evenbeat.web.change import Change
from evenbeat.web.streams import Hub, Subscription, sse


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


class Client:
    """Reads a stream like a browser: events, and the id of the last one."""

    def __init__(self, subscription: Subscription) -> None:
        self.parts = sse(subscription)
        self.last_id: str | None = None
        self.events: list[tuple[str, Any]] = []
        self.comments: list[str] = []

    async def read(self) -> bool:
        """Read what comes next; return False at the end of the stream."""
        part = await anext(self.parts, None)
        if part is None:
            return False
        for block in part.decode().removesuffix("\n\n").split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            self.comments += [line[2:] for line in block.splitlines() if line.startswith(":")]
            self.last_id = fields.get("id", self.last_id)
            if "data" in fields:
                self.events.append((fields["event"], msgspec.json.decode(fields["data"])))
        return True

    def take(self) -> list[tuple[str, Any]]:
        events, self.events = self.events, []
        return events

    def ids(self) -> list[str]:
        """Return the ids of the subjects of all changes since the last call."""
        return [change.get("id") for _, data in self.take() for change in data["changes"]]

    async def leave(self) -> None:
        await self.parts.aclose()  # type: ignore[attr-defined]  # a generator


class Scene:
    """A hub and its clients, in one event loop."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.hub = Hub(self.clock)
        self.instant = 1_772_366_400_000
        self.clients: list[Client] = []

    async def connect(self, tenant: str | None = None, **options: Any) -> Client:
        client = Client(self.hub.subscription(tenant, **options))
        self.clients.append(client)
        await client.read()
        return client

    async def publish(self, *changes: Change) -> None:
        """Publish from another thread, as the watch does."""
        self.instant += 1_000
        self.clock.seconds += 1
        await asyncio.to_thread(self.publish_now, *changes)
        await asyncio.sleep(0)

    def publish_now(self, *changes: Change) -> None:
        """Publish to each audience what it may see."""
        found = {
            tenant: [change for change in changes if change.is_visible_to(tenant)]
            for tenant in self.hub.audiences
        }
        self.hub.publish(self.instant, found)

    async def __aenter__(self) -> Scene:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self.clients:
            await client.leave()
        assert self.hub.clients == 0
        assert self.hub._tasks == ()


def in_loop(test: Callable[[Scene], Awaitable[None]]) -> Callable[[], None]:
    """Run a test in an event loop of its own."""

    async def run() -> None:
        async with Scene() as scene:
            await test(scene)

    def sync() -> None:
        asyncio.run(asyncio.wait_for(run(), 60))

    sync.__name__, sync.__doc__ = test.__name__, test.__doc__
    return sync


def run(run_id: str, tenant: str = "acme", kind: Any = "failed") -> Change:
    return Change("run", kind, tenant, run_id, "s")


@in_loop
async def test_a_client_gets_changes_with_ids_of_the_stores_time(scene: Scene) -> None:
    client = await scene.connect("acme")
    assert client.comments == ["connected"]
    await scene.publish(run("r"), Change("schedule", "created", "acme", "s"))
    await client.read()
    assert client.take() == [
        (
            "changes",
            {
                "changes": [
                    {"subject": "run", "kind": "failed", "tenant": "acme", "id": "r", "schedule": "s"},
                    {"subject": "schedule", "kind": "created", "tenant": "acme", "id": "s"},
                ]
            },
        )
    ]
    assert client.last_id is not None
    assert re.fullmatch(rf"{scene.instant}-[0-9]+", client.last_id)


@in_loop
async def test_two_tenants_never_see_each_others_changes(scene: Scene) -> None:
    acme, other, admin = [await scene.connect(tenant) for tenant in ("acme", "other", None)]
    await scene.publish(run("marker-a", "acme"))
    await scene.publish(run("marker-o", "other"), Change("node", "joined", None, "n1"))
    for client in (acme, other, admin):
        await client.read()
    assert acme.ids() == ["marker-a"]
    assert other.ids() == ["marker-o"]
    assert admin.ids() == ["marker-a", "marker-o", "n1"]
    # And when they come back.
    back = await scene.connect("acme", last_event_id=acme.last_id)
    assert back.ids() == []


@in_loop
async def test_ids_do_not_reveal_to_a_tenant_that_another_one_is_active(scene: Scene) -> None:
    """The number grows with each poll, whether or not there are changes."""
    client = await scene.connect("acme")
    numbers = []
    for change in ((), (run("x", "other"),), (), (run("y", "other"),)):
        await scene.publish(*change)
        scene.clock.seconds += streams.HEARTBEAT_SECONDS
        await scene.hub.send_heartbeats()
        await client.read()
        assert client.last_id is not None
        numbers.append(int(client.last_id.split("-")[1]))
    assert [number - numbers[0] for number in numbers] == [0, 1, 2, 3]


@in_loop
async def test_a_frame_is_encoded_once_for_all_clients_of_a_tenant(scene: Scene) -> None:
    subscriptions = [scene.hub.subscription("acme") for _ in range(3)]
    clients = [Client(subscription) for subscription in subscriptions]
    scene.clients += clients
    for client in clients:
        await client.read()
    await scene.publish(run("r"))
    first, second, third = [subscription._frames[0] for subscription in subscriptions]
    assert first is second is third


@in_loop
async def test_a_client_that_comes_back_gets_what_it_missed_in_one_frame(scene: Scene) -> None:
    client = await scene.connect("acme")
    await scene.publish(run("seen"))
    await client.read()
    await client.leave()
    await scene.publish(run("r", kind="queued"))
    await scene.publish(run("other", "other"))
    await scene.publish(run("r", kind="failed"), run("q", kind="queued"))
    client = await scene.connect("acme", last_event_id=client.last_id)
    ((event, data),) = client.take()
    assert event == "changes"
    assert [(change["id"], change["kind"]) for change in data["changes"]] == [
        ("r", "failed"),
        ("q", "queued"),
    ]
    await scene.publish(run("next"))
    await client.read()
    assert client.ids() == ["next"]


@in_loop
async def test_a_client_that_missed_nothing_gets_nothing(scene: Scene) -> None:
    client = await scene.connect("acme")
    await scene.publish(run("r"))
    await client.read()
    await client.leave()
    for _ in range(3):
        await scene.publish()
    client = await scene.connect("acme", last_event_id=client.last_id)
    assert client.take() == []


@in_loop
async def test_a_quiet_client_comes_back_with_the_id_of_its_last_heartbeat(scene: Scene) -> None:
    client = await scene.connect("acme")
    for number in range(streams.MOST_FRAMES + 1):
        scene.publish_now(run(f"r{number}", "other"))
    await asyncio.sleep(0)
    scene.clock.seconds += streams.HEARTBEAT_SECONDS
    await scene.hub.send_heartbeats()
    await client.read()
    await client.leave()
    client = await scene.connect("acme", last_event_id=client.last_id)
    assert client.take() == []


@pytest.mark.parametrize(
    "last_id", ["", "x", "1-2", "-", "5", "1772366400000-99999999999999999999", "１-２", "1-2\n", "9" * 5_000]
)
def test_an_unknown_id_resets_the_client(last_id: str) -> None:
    @in_loop
    async def test(scene: Scene) -> None:
        scene.hub._number = 1_000
        await (await scene.connect("acme")).leave()
        await scene.publish(run("r"))
        client = await scene.connect("acme", last_event_id=last_id)
        assert client.take() == [("reset", {})]
        assert client.last_id == f"{scene.instant}-1001"

    test()


@in_loop
async def test_an_id_that_is_older_than_the_kept_frames_resets_the_client(scene: Scene) -> None:
    client = await scene.connect("acme")
    await scene.publish(run("a"))
    await scene.publish(run("b"))
    scene.clock.seconds += streams.KEPT_SECONDS
    late = await scene.connect("acme", last_event_id=client.last_id)
    assert late.take() == [("reset", {})]


@in_loop
async def test_the_number_of_kept_frames_is_bounded(scene: Scene) -> None:
    client = await scene.connect("acme")
    with patch.object(streams, "MOST_FRAMES", 10):
        for _ in range(11):
            scene.publish_now(run("r"))
        assert len(scene.hub._histories["acme"]._frames) == 10
        back = await scene.connect("acme", last_event_id=client.last_id)
    assert back.take() == [("reset", {})]


@in_loop
async def test_the_number_of_kept_changes_is_bounded(scene: Scene) -> None:
    client = await scene.connect("acme")
    changes = [run(f"r{number}") for number in range(300)]
    for _ in range(streams.MOST_CHANGES // 300 + 2):
        scene.publish_now(*changes)
    history = scene.hub._histories["acme"]
    assert history._kept_changes == sum(len(frame.changes) for frame in history._frames)
    assert history._kept_changes == streams.MOST_CHANGES // 300 * 300
    assert (await scene.connect("acme", last_event_id=client.last_id)).take() == [("reset", {})]


@in_loop
async def test_a_tenant_can_come_back_however_busy_others_are(scene: Scene) -> None:
    client, _ = await scene.connect("acme"), await scene.connect(None)
    await client.leave()
    await scene.publish(run("mine"))
    for _ in range(50):
        scene.publish_now(*(run(f"r{number}", "other") for number in range(500)))
    back = await scene.connect("acme", last_event_id=client.last_id)
    assert back.ids() == ["mine"]


@in_loop
async def test_a_client_that_missed_too_much_is_reset(scene: Scene) -> None:
    client = await scene.connect("acme")
    await scene.publish(*(run(f"r{number}") for number in range(streams.MOST_RESUMED)))
    assert len((await scene.connect("acme", last_event_id=client.last_id)).ids()) == streams.MOST_RESUMED
    await scene.publish(run("one more"))
    back = await scene.connect("acme", last_event_id=client.last_id)
    assert back.take() == [("reset", {})]


@in_loop
async def test_ids_from_before_a_time_without_watch_are_reset(scene: Scene) -> None:
    client = await scene.connect("acme")
    await scene.connect("other")
    await client.leave()
    scene.clock.seconds += streams._LINGER_SECONDS - 1
    assert scene.hub.audiences.keys() == {"acme", "other"}
    scene.clock.seconds += 1
    # Whether somebody of another tenant is there makes no difference.
    assert scene.hub.audiences.keys() == {"other"}
    back = await scene.connect("acme", last_event_id=client.last_id)
    assert back.take() == [("reset", {})]
    await scene.publish(run("r"))
    again = await scene.connect("acme", last_event_id=back.last_id)
    assert again.ids() == ["r"]


@in_loop
async def test_a_frame_under_way_when_a_client_comes_back_is_not_sent_twice(scene: Scene) -> None:
    client = await scene.connect("acme")
    scene.publish_now(run("r"))  # delivered when the loop goes on
    back = await scene.connect("acme", last_event_id=client.last_id)
    assert back.ids() == ["r"]
    await scene.publish(run("q"))
    await back.read()
    assert back.ids() == ["q"]


@in_loop
async def test_a_slow_client_is_reset_and_goes_on(scene: Scene) -> None:
    slow, quick = await scene.connect("acme"), await scene.connect("acme")
    for number in range(streams.MOST_WAITING):
        await scene.publish(run(f"r{number}"))
        await quick.read()
    subscription = next(iter(scene.hub._subscriptions))
    assert subscription.waiting == streams.MOST_WAITING
    await scene.publish(run("too many"))
    await scene.publish(run("after"))
    await slow.read()
    assert [event for event, _ in slow.events] == ["reset", "changes"]
    assert slow.events[1][1]["changes"][0]["id"] == "after"
    await quick.read()
    assert len(quick.ids()) == streams.MOST_WAITING + 2
    await scene.publish(run("later"))
    slow.take()
    await slow.read()
    assert slow.ids() == ["later"]


@in_loop
async def test_frames_that_waited_are_read_at_once(scene: Scene) -> None:
    client = await scene.connect("acme")
    await scene.publish(run("a"))
    await scene.publish(run("b"))
    await client.read()
    assert client.ids() == ["a", "b"]


@in_loop
async def test_a_client_that_got_nothing_for_15_s_gets_a_heartbeat(scene: Scene) -> None:
    quiet, busy = await scene.connect("acme"), await scene.connect("other")
    scene.clock.seconds += streams.HEARTBEAT_SECONDS - 1
    await scene.publish(run("r", "other"))
    await busy.read()
    await scene.hub.send_heartbeats()
    await quiet.read()
    assert quiet.comments == ["connected", "heartbeat"]
    assert quiet.take() == []
    assert [subscription.waiting for subscription in scene.hub._subscriptions] == [0, 0]
    await scene.hub.send_heartbeats()
    assert [subscription.waiting for subscription in scene.hub._subscriptions] == [0, 0]


@in_loop
async def test_a_stream_ends_when_its_token_is_revoked(scene: Scene) -> None:
    allowed = {"a": True, "b": True}
    revoked = await scene.connect("acme", is_allowed=lambda: allowed["a"])
    valid = await scene.connect("acme", is_allowed=lambda: allowed["b"])
    await scene.hub.end_forbidden()
    assert scene.hub.clients == 2
    allowed["a"] = False
    await scene.publish(run("secret"))
    await scene.hub.end_forbidden()
    assert not await revoked.read()
    assert revoked.take() == []
    await valid.read()
    assert valid.ids() == ["secret"]
    assert scene.hub.clients == 1


@in_loop
async def test_tokens_are_checked_by_the_hub_itself_in_a_thread(scene: Scene) -> None:
    threads = []

    def is_allowed() -> bool:
        threads.append(threading.current_thread())
        return False

    with patch.object(streams, "CHECK_SECONDS", 0.01):
        client = await scene.connect("acme", is_allowed=is_allowed)
    assert not await client.read()
    assert threads[0] is not threading.main_thread()


@in_loop
async def test_a_stream_goes_on_while_its_token_cannot_be_checked(scene: Scene) -> None:
    def away() -> bool:
        raise StoreUnavailable("the store did not answer")

    client = await scene.connect("acme", is_allowed=away)
    await scene.hub.end_forbidden()
    await scene.publish(run("r"))
    assert await client.read()


@in_loop
async def test_a_stream_ends_if_the_check_of_its_token_breaks(scene: Scene) -> None:
    def broken() -> bool:
        raise ValueError("a bug")

    client = await scene.connect("acme", is_allowed=broken)
    await scene.hub.end_forbidden()
    assert not await client.read()


@in_loop
async def test_streams_end_when_the_server_stops(scene: Scene) -> None:
    client, other = await scene.connect("acme"), await scene.connect(None)
    await asyncio.to_thread(scene.hub.close)
    assert not await client.read()
    assert not await other.read()
    assert scene.hub.clients == 0
    late = Client(scene.hub.subscription("acme"))
    assert not await late.read()
    scene.publish_now(run("r"))


@in_loop
async def test_a_client_that_leaves_while_it_waits_is_removed(scene: Scene) -> None:
    client = await scene.connect("acme")
    reading = asyncio.create_task(client.read())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert scene.hub.clients == 0


def test_a_subscription_that_is_never_read_is_not_a_client() -> None:
    hub = Hub()
    parts: AsyncIterator[bytes] = sse(hub.subscription("acme"))
    assert hub.clients == 0
    assert hub.audiences == {}
    del parts


@in_loop
async def test_the_watch_goes_on_for_a_minute_after_the_last_client(scene: Scene) -> None:
    watched = [bool(scene.hub.audiences)]
    client = await scene.connect("acme")
    scene.clock.seconds += 3_600
    watched.append(bool(scene.hub.audiences))
    await client.leave()
    for seconds in (59, 1):
        scene.clock.seconds += seconds
        watched.append(bool(scene.hub.audiences))
    assert watched == [False, True, True, False]


def test_a_hub_serves_another_event_loop_after_the_first_is_closed() -> None:
    hub = Hub()

    async def first() -> AsyncIterator[bytes]:
        parts = sse(hub.subscription("acme"))
        await anext(parts)
        return parts

    async def second() -> None:
        client = Client(hub.subscription("acme"))
        await client.read()
        hub.publish(1, {"acme": [run("r")]})
        await client.read()
        assert client.ids() == ["r"]
        await client.leave()

    asyncio.run(first())
    hub.publish(1, {"acme": [run("lost")]})
    asyncio.run(second())
    assert hub.clients == 0


@in_loop
async def test_a_name_with_line_breaks_stays_inside_its_frame(scene: Scene) -> None:
    client = await scene.connect(None)
    await scene.publish(Change("quarantine", "added", "acme", "a\n\nevent: reset\r\ndata: {}"))
    await client.read()
    ((event, data),) = client.take()
    assert event == "changes"
    assert data["changes"][0]["id"] == "a\n\nevent: reset\r\ndata: {}"


@in_loop
async def test_heartbeats_do_not_pile_up_for_a_slow_client(scene: Scene) -> None:
    await scene.connect("acme")
    await scene.publish(run("r"))
    scene.clock.seconds += 60
    await scene.hub.send_heartbeats()
    assert [subscription.waiting for subscription in scene.hub._subscriptions] == [1]
