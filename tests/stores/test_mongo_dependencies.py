"""Dependencies on MongoDB: a follower whose count can't be read stops no settlement."""

from __future__ import annotations

from evenbeat import Scheduler, every, on_success_of
from evenbeat.rules import attempts
from evenbeat.rules.dependencies import PENDING
from evenbeat.stores.base import Claim
from evenbeat.stores.mongo import MongoStore, schema
from evenbeat.testing import VirtualClock
from tests.stores import on_mongo
from tests.stores.on_mongo import plain

place, clock, make, store = on_mongo.place, on_mongo.clock, on_mongo.make, on_mongo.store


def test_a_success_is_settled_though_the_count_of_its_follower_is_damaged(
    store: MongoStore, clock: VirtualClock
) -> None:
    app = Scheduler(store)
    app.task(name="work")(lambda: None)
    app.schedules.add("load", every("1h"), "work")
    app.schedules.add("report", on_success_of("load"), "work")
    plain(store)[schema.SCHEDULES].update_one({"name": "report"}, {"$set": {"fire_seq": "many"}})
    app.schedules.run_now("load")
    (held,) = store.claim_runs(Claim(worker="w", token="c", limit=1, now=clock.now, lease=60_000)).runs
    assert store.settle_runs([attempts.succeeded(held, None, clock.now, "done")]) == [True]
    assert len(store.find_records(PENDING)) == 1
    assert app.schedules.get("report").damage
