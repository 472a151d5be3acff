"""Dependencies on PostgreSQL: a follower that is created while a success is settled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from evenbeat import Scheduler, every, on_success_of
from evenbeat.core.instants import to_ms
from evenbeat.rules import attempts
from evenbeat.rules.dependencies import PENDING
from evenbeat.stores.base import Claim
from evenbeat.stores.postgres import PostgresStore
from evenbeat.testing import VirtualClock
from tests.stores.on_postgres import a_place, clock, make, options, store

__all__ = ["a_place", "clock", "make", "options", "store"]


@pytest.mark.parametrize(("command", "is_told"), [("lock runs", True), ("settle runs", False)])
def test_only_a_run_that_ended_before_its_follower_existed_may_be_missed(
    make: Callable[..., PostgresStore], store: PostgresStore, clock: VirtualClock, command: str, is_told: bool
) -> None:
    app = Scheduler(store)
    app.task(name="work")(lambda: None)
    app.schedules.add("load", every("1h"), "work")

    def create(name: str) -> None:
        if name == command and not made:
            made.append(name)
            clock.advance("1s")
            app.schedules.add("report", on_success_of("load"), "work")

    made: list[str] = []
    settling = make(on_command=create)
    run = app.schedules.run_now("load")
    claim = Claim(worker="w", token="c", limit=1, now=clock.now, lease=600_000)
    (held,) = store.claim_runs(claim).runs
    assert settling.settle_runs([attempts.succeeded(held, None, clock.now, "done")]) == [True]
    assert made == [command]
    assert len(store.find_records(PENDING)) == is_told
    ended = app.runs.get(run.id).finished_at
    assert ended is not None
    assert to_ms(ended) < to_ms(app.schedules.get("report").created_at)
    # A settlement that begins later tells the follower in any case.
    app.schedules.run_now("load")
    (held,) = store.claim_runs(Claim(worker="w", token="d", limit=1, now=clock.now, lease=600_000)).runs
    assert settling.settle_runs([attempts.succeeded(held, None, clock.now, "again")]) == [True]
    assert len(store.find_records(PENDING)) == is_told + 1
