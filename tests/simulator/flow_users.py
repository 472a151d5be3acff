"""Users of flows: they start, cancel and resume flows, cancel single steps, and retry steps."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from random import Random
from typing import cast

from msgspec.structs import replace

from evenbeat.app.backfills import Backfills, make_backfill
from evenbeat.app.flows import resume_flow
from evenbeat.app.run_changes import is_stopping
from evenbeat.app.schedules.backfilling import backfill_of
from evenbeat.app.session import AppSession
from evenbeat.core.instants import Instant
from evenbeat.core.records import ACTIVE_STATES, Execution, Kind, RunRecord, ScheduleRecord
from evenbeat.errors import InvalidValue, RunRefused
from evenbeat.node.flows import End, FlowSettling
from evenbeat.record_errors import BackfillNotFound
from evenbeat.rules import attempts
from evenbeat.rules.backfills import OPEN
from evenbeat.rules.dependencies import is_on_success
from evenbeat.rules.limits import Limit
from evenbeat.stores.base import EndedRuns, RunQuery, Store
from tests.simulator.flow_oracle import Again, place_of
from tests.simulator.flow_plans import INNER, OUTER, STEP_TASKS, random_arguments
from tests.simulator.users import User, random_schedule

MOST_TICKS = 8
"""The most ticks of a backfill in a simulation."""
REUSED = "reused"
"""How the tenants begin whose ids come again."""


class _Session:
    """The part of an app's session that resuming a flow and backfills need."""

    def __init__(self, user: FlowUser) -> None:
        self._user = user

    def store(self) -> Store:
        return cast(Store, self._user.store)

    def tenant_of(self, _: str | None) -> str:
        return "default"

    def row(self, _: str, name: str) -> ScheduleRecord | None:
        return self._user.read(name)


class FlowUser(User):
    """A user whose schedules start flows."""

    def _anything(self, name: str) -> None:
        if self.node.simulation.options.limits and self.random.random() < 0.15:
            self._set_limit()
            return
        if self.node.simulation.options.backfills and self.random.random() < 0.2:
            self._backfill(name) if self.random.random() < 0.8 else self._cancel_backfill()
            return
        chance = self.random.random()
        if chance < 0.25:
            self._start_flow()
        elif chance < 0.65:
            self._act_on_flow()
        else:
            super()._anything(name)

    def _new_schedule(self, name: str, now: Instant) -> ScheduleRecord:
        random = self.random
        wanted = random_schedule(random, name, now)
        return replace(
            wanted,
            task=random.choice(OUTER),
            kind=self._kind(),
            payload=self._new_payload(self.node.token()),
            overlap=random.choice(("skip", "queue", "cancel_running", "allow")),
            max_concurrent=random.choice((None, 1, 2)),
            execution=_execution(random),
        )

    def _new_payload(self, token: str) -> str:
        return json.dumps(random_arguments(self.random, token))

    def _new_limit(self) -> Limit:
        return random_flow_limit(self.random)

    def _kind(self) -> Kind:
        """Return what a flow is stored as. A process without the code, such as the command line, does not
        know that it is one."""
        is_unknown = self.node.simulation.options.limits and self.random.random() < 0.5
        return "task" if is_unknown else "flow"

    def _start_flow(self) -> None:
        random, now, token = self.random, self.store.now(), self.node.token()
        run = RunRecord(
            id=f"flow-{token}",
            task=random.choice(OUTER),
            kind=self._kind(),
            payload=self._new_payload(token),
            run_at=now,
            scheduled_at=now,
            created_at=now,
            execution=_execution(random),
        )
        self._repeat(lambda: self.store.add_runs([run]))

    def _backfill(self, name: str) -> None:
        """Backfill the last seconds of a schedule, as ``app.schedules`` does."""
        row, random = self._read(name), self.random
        if row is None or row.state == "deleted" or is_on_success(row) or row.trigger.startswith("at "):
            return
        seconds, most = random.choice((4, 9, 20)), random.choice((1, 1, 2, 3))
        with suppress(InvalidValue):
            wanted = backfill_of(row, f"{seconds}s", "1s", self.store.now())
            if wanted.total <= MOST_TICKS:
                wanted = replace(wanted, max_concurrent=most, order=random.choice(("oldest", "newest")))
                make_backfill(cast(AppSession, _Session(self)), row.tenant, self.node.token(), wanted)

    def _cancel_backfill(self) -> None:
        found = self._repeat(lambda: self.store.find_records(OPEN))
        if found:
            key = self.random.choice(found).key
            with suppress(BackfillNotFound):
                Backfills(cast(AppSession, _Session(self))).cancel(key)

    def _act_on_flow(self) -> None:
        random = self.random
        runs = self._repeat(lambda: self.store.find_runs(RunQuery(limit=200))).items
        flows = [
            run
            for run in runs
            if run.task in OUTER and place_of(run.id) is None and not run.tenant.startswith(REUSED)
        ]
        if not flows:
            return
        flow = random.choice(flows)
        steps = [run for run in runs if run.id.startswith((f"{flow.id}~", f"{flow.id}."))]
        if flow.state in ACTIVE_STATES and random.random() < 0.6:
            active = [run for run in steps if run.state in ACTIVE_STATES]
            self._cancel(random.choice(active) if active and random.random() < 0.5 else flow)
        elif random.random() < 0.6:
            self._run_again(Again(flow.id, None))
        else:
            names = [step.name for step in self.node.simulation.catalogue.plans[flow.task].steps]
            self._run_again(Again(flow.id, random.choice(names)))

    def _cancel_or_retry(self, name: str) -> None:
        self._act_on_flow()

    def _cancel(self, run: RunRecord) -> None:
        """Cancel a run as ``app.runs`` does."""
        settling = FlowSettling(cast(Store, self.store), "app", new_token=self.node.token)
        for _ in range(4):
            transition = attempts.cancel(run, self.store.now(), self.node.token())
            if transition is None or is_stopping(run):
                return
            if settling.settle([End(run, transition)], self.store.now()).answers[0]:
                return
            run = self._one(run.id)

    def _run_again(self, again: Again) -> None:
        """Resume a flow, or retry a step of it, as ``app.flows`` does."""
        run = self._one(again.flow)
        wishes = self.node.simulation.oracle.flows.again
        wishes[self.node.name] = again
        try:
            with suppress(RunRefused):
                resume_flow(cast(AppSession, _Session(self)), run, again.step)
        finally:
            wishes.pop(self.node.name)

    def _one(self, run_id: str) -> RunRecord:
        return self._repeat(lambda: self.store.find_runs(RunQuery(ids=(run_id,)))).items[0]

    def read(self, name: str) -> ScheduleRecord | None:
        return self._read(name)


class ReusingUser(FlowUser):
    """A user who also starts flows and runs with the same ids again, after purging the earlier ones."""

    def _anything(self, name: str) -> None:
        if self.random.random() < 0.9:
            self._reuse()
        else:
            super()._anything(name)

    def _reuse(self) -> None:
        """Purge the ended runs of a tenant that nobody else uses, and start its flow or run again."""
        random, user = self.random, self.node.name.partition(".")[0]
        is_flow = random.random() < 0.7
        run_id = f"{'order' if is_flow else 'single'}-{user}"
        tenant = f"{REUSED}-{run_id}"
        found = self._runs_of(tenant)
        active = [run for run in found if run.state in ACTIVE_STATES]
        if active:
            if random.random() < 0.1:
                self._cancel(random.choice(active))
            return
        for _ in range(random.choice((1, 10, 10)) if found else 0):
            limit, selected = random.choice((1, 2, 50)), EndedRuns(tenant=tenant)
            self._repeat(partial(self.store.purge, self.store.now(), limit, selected))
        if any(run.id == run_id for run in self._runs_of(tenant)):
            return
        now, token = self.store.now(), self.node.token()
        run = RunRecord(
            id=run_id,
            tenant=tenant,
            # The same flow: its graph fits what a node remembers of the earlier one.
            task=OUTER[int(user[-1])] if is_flow else "value",
            kind="flow" if is_flow else "task",
            payload=self._new_payload(token) if is_flow else "{}",
            run_at=now,
            scheduled_at=now,
            created_at=now,
            claim=token,
            execution=_execution(random),
        )
        self._repeat(lambda: self.store.add_runs([run]))

    def _runs_of(self, tenant: str) -> tuple[RunRecord, ...]:
        return tuple(self._repeat(lambda: self.store.find_runs(RunQuery(tenant=tenant, limit=500))).items)


def _execution(random: Random) -> Execution:
    return Execution(max_crashes=5, timeout=random.choice((None, None, 6_000, 30_000)))


def random_flow_limit(random: Random) -> Limit:
    """Choose a limit of flows, of their steps, or of all runs."""
    concurrency = random.choice((1, 1, 2))
    if random.random() < 0.4:
        return Limit(task=random.choice((*OUTER, *INNER, *STEP_TASKS)), concurrency=concurrency)
    # Steps get these arguments from other steps, too.
    key = random.choice((None, None, "word", "items", "y", "z"))
    if random.random() < 0.5:
        return Limit(queue="default", key=key, concurrency=concurrency)
    return Limit(tenant="default", key=key, concurrency=concurrency)
