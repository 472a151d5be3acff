"""A store whose past is written at once, and whose clock then stands still: the same data on every day."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from playwright.sync_api import Page

from evenbeat import Scheduler
from evenbeat.app.acting import acting_as
from evenbeat.core.durations import Duration, read_duration
from evenbeat.core.instants import Instant, from_ms, to_ms
from evenbeat.core.records import RunRecord
from evenbeat.demo.past import Past, PastClock, PastStore
from evenbeat.demo.shop_runs import Fate, ShopRuns
from evenbeat.node.flows import Begin, End, FlowSettling
from evenbeat.node.presence import NodeInfo, Presence
from evenbeat.rules import attempts
from evenbeat.rules.flow_parts import step_name
from evenbeat.rules.flows import graph_records
from evenbeat.stores.base import Claim
from evenbeat.tasks.flow import Flow, all_graphs

NOW: Instant = to_ms(datetime(2026, 6, 10, 9, 20, tzinfo=UTC))
"""A Wednesday, 11:20 in Berlin, far from a clock change."""


class FixedPast:
    """A scheduler and what happened to it before ``NOW``. ``fate`` says how each attempt ends."""

    def __init__(self, begins: Duration, fate: Callable[[RunRecord, Instant], Fate]) -> None:
        """``begins`` is how long before ``NOW``."""
        self._clock = PastClock(NOW - read_duration(begins, "begins"))
        self.store = PastStore(self._clock)
        self.app = Scheduler(self.store)
        self._past = Past(
            self.app,
            self.store,
            self._clock,
            _Fates(fate),
            end=NOW,
            outage=(0, 0),
            is_channel_broken=lambda now: now > NOW - read_duration("30m", "broken"),
        )

    def add_tasks(self, *names: str) -> None:
        """Register tasks. Their functions are never called."""
        for name in names:
            self.app.task(name=name)(_nothing)

    def do(self, ago: Duration, actor: str, action: Callable[[], object]) -> None:
        """Have somebody do something so long before ``NOW``."""

        def act() -> None:
            with acting_as(actor, "api"):
                action()
            self._past.look()

        self._past.at(NOW - read_duration(ago, "ago"), act)

    def go(self) -> None:
        """Let everything happen."""
        self._past.go()
        for record in self._past.figures.values():
            self.store.put_record(record)

    def run_flow(
        self,
        flow: Flow[..., Any],
        errors: Mapping[str, str],
        *,
        result: str = "null",
        run_id: str | None = None,
    ) -> str:
        """Run a flow that ends at ``NOW``, and return its id. Steps take 1.2 s; those in ``errors`` fail."""
        settling = FlowSettling(self.store, "worker")
        tasks = frozenset((flow.name, *(step.task for step in flow.graph.steps)))
        turns = len(flow.graph.steps) + 1
        self._clock.now = NOW - turns * 1_200
        run_id = self.app.flows.run(flow, id=run_id).id
        for turn in range(turns):
            token = f"{run_id} {turn}"
            claim = Claim(
                worker="ber-1:4117", token=token, limit=100, now=self.store.now(), lease=30_000, tasks=tasks
            )
            claimed = self.store.claim_runs(claim).runs
            self._clock.now += 1_200
            now = self.store.now()
            begins = [
                Begin(run, flow.graph, graph_records(all_graphs(flow)))
                for run in claimed
                if run.kind == "flow"
            ]
            ends: list[End] = []
            for run in claimed:
                error = errors.get(step_name(run) or "")
                if run.kind == "task":
                    transition = (
                        attempts.succeeded(run, result, now, token)
                        if error is None
                        else attempts.failed(run, error, now, token)
                    )
                    ends.append(End(run, transition))
            settling.settle(ends, now, begins)
        self._clock.now = NOW
        return run_id

    def add_node(self, name: str, *, host: str = "ber-1", queues: list[str] | None = None) -> None:
        """Add a node that executes all tasks and has written its record just now."""
        info = NodeInfo(
            name=name,
            host=host,
            pid=4117,
            version="1.0",
            started_at=NOW - 3_600_000,
            seen_at=NOW,
            ticker=True,
            worker=True,
            tasks={task.name: "thread" for task in self.app.tasks},
            queues=["default"] if queues is None else queues,
            slots={"thread": 20},
            running=0,
        )
        Presence(self.store, info).step(NOW)


def ahead(text: Duration) -> datetime:
    return from_ms(NOW + read_duration(text, "ahead"))


def hold_clock(page: Page) -> None:
    """Stop the clock of a page at ``NOW``. It also follows the header Date, which has the real time."""
    page.clock.set_fixed_time(from_ms(NOW))
    page.add_init_script(
        """const get = Headers.prototype.get;
        Headers.prototype.get = function (name) { return name === "Date" ? null : get.call(this, name); };"""
    )


def _nothing(**payload: object) -> None:
    raise AssertionError(payload)


class _Fates(ShopRuns):
    def __init__(self, fate: Callable[[RunRecord, Instant], Fate]) -> None:
        super().__init__(NOW)
        self._fate = fate

    def fate(self, run: RunRecord, now: Instant) -> Fate:
        return self._fate(run, now)
