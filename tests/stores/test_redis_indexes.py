"""``check_indexes`` of the Redis store: entries that are missing, wrong or too many are found and mended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from evenbeat import Scheduler
from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.rules import changes
from evenbeat.rules.firing import plan
from evenbeat.stores.base import Claim, Write
from evenbeat.stores.redis import RedisStore
from evenbeat.stores.redis.location import read_location
from evenbeat.testing import VirtualClock
from tests.conftest import server_url
from tests.contract.redis_indexes import differences
from tests.isolation import own_place


class Place:
    def __init__(self, url: str) -> None:
        location = read_location(url)
        self.url, self.base = url, location.base
        self.clock = VirtualClock()
        self.store = RedisStore(url, self.clock, timeout=60.0)
        self.store.open()
        self.client = redis.Redis.from_url(location.url, decode_responses=True)


@pytest.fixture
def place() -> Iterator[Place]:
    with own_place(server_url("valkey")) as url:
        place = Place(url)
        now = place.clock.now
        row = ScheduleRecord(name="nightly", task="work", trigger="every 1m")
        place.store.put_schedules([Write(changes.create(row, now), None)])
        place.clock.advance("2m")
        place.store.fire_due(place.clock.now, 10, plan)
        runs = [RunRecord(id=f"r{at}", task="work", run_at=now, created_at=now + at) for at in range(6)]
        runs += [
            RunRecord(id=f"e{at}", task="work", tenant="acme", state="failed", finished_at=now, created_at=at)
            for at in range(4)
        ]
        place.store.add_runs(runs)
        claim = Claim(worker="w", token="t", limit=2, now=place.clock.now, lease=30_000)
        assert len(place.store.claim_runs(claim).runs) == 2
        yield place
        place.client.close()
        place.store.close()


DAMAGES = {
    "a queued run in no index": lambda client, base: client.delete(
        *client.keys(f"{base}ready:*"), *client.keys(f"{base}waiting:*"), f"{base}queues"
    ),
    "no leases": lambda client, base: client.delete(f"{base}leases"),
    "no runs of a worker": lambda client, base: client.delete(f"{base}held:w"),
    "no newest": lambda client, base: client.delete(f"{base}newest", f"{base}newest:schedule:nightly"),
    "another time": lambda client, base: client.zadd(f"{base}over", {"e1": 5}),
    "ended runs of a tenant": lambda client, base: client.delete(f"{base}over:acme:failed"),
    "an entry without a run": lambda client, base: client.zadd(f"{base}leases", {"nobody": 5}),
    "a running run among the ended ones": lambda client, base: client.zadd(
        f"{base}over:acme:failed", {"r5": 5}
    ),
    "an ended run among the active ones": lambda client, base: client.zadd(
        f"{base}active:nightly", {"e1": 5}
    ),
    "an ended run in a queue": lambda client, base: client.zadd(
        f"{base}ready:default:5:acme:work", {"e2": 5}
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_indexes_that_do_not_agree_are_found_and_mended(place: Place, damage: str) -> None:
    assert differences(place.url) == {}
    assert place.store.check_indexes(100, mend=False) == []
    DAMAGES[damage](place.client, place.base)
    assert differences(place.url) != {}
    found = place.store.check_indexes(100, mend=False)
    assert found
    assert sorted(place.store.check_indexes(100, mend=False)) == sorted(found), "a check changes nothing"
    report = Scheduler(place.store).repair(dry_run=False)
    assert {finding.kind for finding in report.findings} == {"index"}
    assert place.store.check_indexes(100, mend=False) == []
    assert differences(place.url) == {}


def test_a_check_finds_no_more_than_its_limit(place: Place) -> None:
    place.client.delete(f"{place.base}newest")
    assert len(place.store.check_indexes(3, mend=False)) == 3
