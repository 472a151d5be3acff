"""Real processes on every store, killed, frozen, cut off and with wrong clocks: no tick is lost or doubled.

The quick form; ``make faults`` is the full one. Real time, because real signals and leases are the subject.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evenbeat.stores.base import RunQuery
from tests import servers
from tests.faults import chaos
from tests.faults.chaos import Ground, Scene
from tests.faults.fleet import check, drain, fleet, opened, prepare, wait_until
from tests.faults.grounds import STORES, ground, own_server

# How often something goes wrong in the quick form, and in how many stores it can.
EVERYWHERE: dict[str, tuple[Scene, int]] = {
    "kills": (chaos.kills, 12),
    "failpoints": (chaos.failpoints, 1),
    "takeovers": (chaos.takeovers, 1),
}
ON_SERVERS: dict[str, tuple[Scene, int]] = {
    "network": (chaos.network, 1),
    "server_kills": (chaos.server_kills, 1),
    "clocks": (chaos.clocks, 1),
}
SERVERS = tuple(servers.KINDS)

# Fleets on a machine that does something else besides take their time.
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[servers.Server | None]:
    """A server of one's own, which may be harmed."""
    try:
        with own_server(request.param) as found:
            yield found
    except servers.Unavailable as error:
        servers.note_missing(request.param, str(error))
        pytest.skip(f"no {request.param}: {error}")


@pytest.fixture
def place(server: servers.Server | None, tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path, server) as made:
        yield made


@pytest.mark.parametrize("server", STORES, indirect=True)
@pytest.mark.parametrize("scene", EVERYWHERE)
def test_nodes_that_die_and_freeze_lose_and_double_nothing(place: Ground, scene: str) -> None:
    play, faults = EVERYWHERE[scene]
    outcome = play(place, faults)
    assert outcome.faults >= faults
    assert outcome.account.completions > 0


@pytest.mark.parametrize("server", SERVERS, indirect=True)
@pytest.mark.parametrize("scene", ON_SERVERS)
def test_networks_servers_and_clocks_that_fail_lose_and_double_nothing(place: Ground, scene: str) -> None:
    play, faults = ON_SERVERS[scene]
    outcome = play(place, faults)
    assert outcome.faults >= faults
    assert outcome.account.ticks > 1000


@pytest.mark.parametrize("server", STORES, indirect=True)
@pytest.mark.parametrize(("kind", "says"), [("unfenced", "completed twice"), ("unchecked", "doubled")])
def test_a_store_that_is_broken_on_purpose_is_caught(place: Ground, kind: str, says: str) -> None:
    caught = chaos.is_caught(place, kind)
    assert caught is not None
    assert says in caught


@pytest.mark.parametrize("server", STORES, indirect=True)
def test_a_run_that_vanishes_is_noticed(place: Ground) -> None:
    prepare(place.url, chaos.SCHEDULES)
    with fleet(place.url, place.folder) as nodes:
        nodes.start()
        nodes.await_ready()
        wait_until(lambda: len(nodes.reports()) > 100, "nothing happened")
        drain(place.url)
        nodes.stop()
    assert check(place.url, nodes.reports()).runs > 0
    with opened(place.url) as store:
        oldest = store.find_runs(RunQuery(limit=10_000)).items[-1]
        assert oldest.finished_at is not None
        while store.purge(oldest.finished_at + 1, 1):
            pass
    with pytest.raises(AssertionError, match="lost"):
        check(place.url, nodes.reports())
