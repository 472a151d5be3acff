"""Users: they create, change, pause, move, run and delete schedules, and enqueue runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TypeVar, cast
from zlib import crc32

from msgspec.structs import replace

from evenbeat.app.dependencies import by_waiting_successes
from evenbeat.core.instants import Instant, write_instant
from evenbeat.core.rates import Rate
from evenbeat.core.records import CatchUp, Execution, RunRecord, RunState, ScheduleRecord
from evenbeat.errors import StoreUnavailable
from evenbeat.rules import attempts, changes
from evenbeat.rules.dependencies import is_on_success, predecessors
from evenbeat.rules.firing import Active, Planned
from evenbeat.rules.limits import LIMIT, OWNER, Limit, limit_record
from evenbeat.stores.base import RunQuery, ScheduleQuery, Store, Write
from evenbeat.triggers.calendar_copies import CalendarCopies
from evenbeat.triggers.time_sets import TimeSet, merged
from tests.simulator.backends import ALL_STATES
from tests.simulator.fault_proxy import Intent
from tests.simulator.nodes import Node

T = TypeVar("T")

_ACTIVE: tuple[RunState, ...] = ("queued", "running")
_PATIENCE = 4
"""How often a user repeats a call that was not answered, and reads again after a refusal."""


class Wish:
    """A change that a user wants, independent of the row at that time."""

    def __init__(
        self, kind: str, plan: Callable[[ScheduleRecord, Instant, tuple[Active, ...]], Planned | None]
    ) -> None:
        self.kind = kind
        self.plan = plan
        self.trigger: str | None = None
        self.tick: Instant | None = None


class User:
    """A user, who makes one change after the other."""

    def __init__(self, node: Node, names: tuple[str, ...]) -> None:
        self.node = node
        self.names = names
        self.store = node.store
        self.random = node.random

    def program(self) -> None:
        node = self.node
        try:
            for name in self.names:
                self._do(self._create, name)
            names = self.names
            if node.simulation.options.dependencies:
                names = (*self.names, *FOLLOWS)
                for name in FOLLOWS:
                    self._do(self._create, name)
            while not node.simulation.quiet:
                self._do(self._anything, self.random.choice(names))
                node.simulation.interleaving.sleep(int(self.random.random() * self.node.simulation.leisure))
            node.simulation.interleaving.sleep(1 << 50)
        finally:
            self.store.close()

    def _do(self, what: Callable[[str], None], name: str) -> None:
        # Give up: the user does not learn whether it happened.
        with suppress(StoreUnavailable):
            what(name)

    def _anything(self, name: str) -> None:
        if self.node.simulation.options.limits and self.random.random() < 0.5:
            self._set_limit() if self.random.random() < 0.3 else self._enqueue_limited()
            return
        chance = self.random.random()
        if chance < 0.15:
            self._enqueue()
        elif chance < 0.22:
            self._cancel_or_retry(name)
        else:
            self._change(name)

    def _create(self, name: str) -> None:
        self._change(name)

    def _change(self, name: str) -> None:
        """Read, plan and write; start again if the write is refused."""
        wish: Wish | None = None
        for _ in range(_PATIENCE):
            row = self._read(name)
            # put_schedules cannot check this time: a caller must not plan with a time ahead of the store's.
            now = min(self.node.now(), self.store.now())
            if row is None or row.state == "deleted":
                self._make(name, row, now)
                return
            if wish is None and self.node.simulation.options.calendars:
                wish = self._wish_with_calendars(row, now)
            if wish is None:
                wish = self._wish(row, now)
            active = self._active(name)
            planned = wish.plan(row, now, active)
            if planned is None:
                return
            if self.node.simulation.options.dependencies:
                planned = self._by_waiting_successes(row, planned, now)
            intent = Intent(wish.kind, now, wish.trigger, wish.tick)
            if self._put(Write(planned, row.version), intent):
                return

    def _make(self, name: str, row: ScheduleRecord | None, now: Instant) -> None:
        wanted = self._new_schedule(name, now)
        if self.node.simulation.options.dependencies:
            wanted = dependent(wanted)
            for before in predecessors(wanted.trigger, wanted.after):
                if not self._link(before, name):
                    return
            now = min(self.node.now(), self.store.now())
        if self.node.simulation.options.calendars:
            wanted = with_calendar(self.random, wanted, now)
        planned = changes.create(wanted, now, row)
        self._put(Write(planned, None if row is None else row.version), Intent("create", now, wanted.trigger))

    def _new_schedule(self, name: str, now: Instant) -> ScheduleRecord:
        return random_schedule(self.random, name, now)

    def _new_payload(self, token: str) -> str:
        return f'"{token}"'

    def _link(self, before: str, name: str) -> bool:
        """Add a schedule to the followers of another one, as ``app.schedules`` does before it writes it."""
        for _ in range(_PATIENCE):
            row = self._read(before)
            now = min(self.node.now(), self.store.now())
            if row is None or row.state == "deleted":
                return False
            planned = changes.add_follower(row, name, now)
            if planned is None or self._put(Write(planned, row.version), Intent("link", now)):
                return True
        return False

    def _by_waiting_successes(self, row: ScheduleRecord, planned: Planned, now: Instant) -> Planned:
        """Decide by the successes that have not fired yet, as ``app.schedules`` does."""
        store = cast(Store, self.store)
        return self._repeat(lambda: by_waiting_successes(store, row, planned, now))

    def _put(self, write: Write, intent: Intent) -> bool:
        return self._repeat(lambda: self.store.put(write, intent).accepted)

    def _read(self, name: str) -> ScheduleRecord | None:
        query = ScheduleQuery(tenant="default", name=name, states=ALL_STATES)
        return next(iter(self._repeat(lambda: self.store.find_schedules(query)).items), None)

    def _active(self, name: str) -> tuple[Active, ...]:
        query = RunQuery(tenant="default", schedule=name, states=_ACTIVE)
        runs = self._repeat(lambda: self.store.find_runs(query)).items
        return tuple(Active(run.id, run.state, run.cancel_requested) for run in runs)

    def _wish(self, row: ScheduleRecord, now: Instant) -> Wish:
        random, token = self.random, self.node.token()
        chance = random.random()
        if row.state == "paused" and chance < 0.5:
            # Drawn from the token, so that a seed's other choices stay as they are.
            catch_up = crc32(token.encode()) % 2 == 0
            return Wish(
                "resume", lambda row, now, active: changes.resume(row, now, active, catch_up=catch_up)
            )
        if chance < 0.15 and row.name in REFOLLOWS and is_on_success(row):
            return self._wish_to_follow_another(row)
        is_moved = chance < 0.15 or 0.50 <= chance < 0.70
        if is_moved and (is_on_success(row) or (row.name == "job-0" and row.followers)):
            chance = 0.2  # one has no ticks; the other one has to stay what it is
        if chance < 0.15:
            trigger = random_trigger(random, now)
            wish = Wish("retrigger", lambda row, now, active: retriggered(row, trigger, now, active))
            wish.trigger = trigger
            return wish
        if chance < 0.35:
            wishes: dict[str, object] = {"payload": self._new_payload(token)}
            # Drawn from the token, so that a seed's other choices stay as they are.
            drawn = crc32(token.encode())
            if drawn % 3 == 0:
                wishes["overlap"] = ("allow", "skip", "queue", "queue_all", "cancel_running")[drawn // 3 % 5]
            return Wish("change", lambda row, now, active: changes.change(row, wishes, now, active))
        if chance < 0.50:
            until = random.choice((None, now + random.randint(0, 20_000)))
            return Wish("pause", lambda row, now, _: changes.pause(row, now, "", until))
        if chance < 0.70:
            tick = now + random.randint(-20_000, 30_000)
            if random.random() < 0.3 and row.next_tick is not None:
                tick = row.next_tick
            wish = Wish("reschedule", lambda row, now, active: self._moved(row, tick, now, active))
            wish.tick = tick
            return wish
        if chance < 0.78:
            return Wish("delete", lambda row, now, _: changes.delete(row, now))
        run_id = f"trigger-{token}"
        return Wish("trigger", lambda row, now, active: changes.run_now(row, run_id, now, active))

    def _wish_to_follow_another(self, row: ScheduleRecord) -> Wish:
        first, second = REFOLLOWS[row.name]
        leader = second if predecessors(row.trigger, "") == (first,) else first
        fields = {"trigger": f"on success of {leader}"}
        if not self._link(leader, row.name):
            fields = {"description": leader}
        return Wish("refollow", lambda row, now, active: changes.change(row, fields, now, active))

    def _wish_with_calendars(self, row: ScheduleRecord, now: Instant) -> Wish:
        """Choose a change, often of the calendar. No tick is moved by hand."""
        chance = self.random.random()
        if chance < 0.3 and row.calendars:
            copies = random_calendar(self.random, now)
            return Wish(
                "recalendar", lambda row, now, active: changes.copy_calendars(row, copies, now, active)
            )
        if chance < 0.45:
            wanted = with_calendar(self.random, replace(row, trigger=random_trigger(self.random, now)), now)
            fields = {"trigger": wanted.trigger}
            wish = Wish(
                "retrigger",
                lambda row, now, active: changes.change(row, fields, now, active, wanted.calendars),
            )
            wish.trigger = wanted.trigger
            return wish
        if chance < 0.6:
            until = self.random.choice((None, now + self.random.randint(0, 20_000)))
            return Wish("pause", lambda row, now, _: changes.pause(row, now, "", until))
        if chance < 0.75:
            return Wish("resume", lambda row, now, active: changes.resume(row, now, active))
        if chance < 0.85:
            return Wish("delete", lambda row, now, _: changes.delete(row, now))
        run_id = f"trigger-{self.node.token()}"
        return Wish("trigger", lambda row, now, active: changes.run_now(row, run_id, now, active))

    def _moved(
        self, row: ScheduleRecord, tick: Instant, now: Instant, active: tuple[Active, ...]
    ) -> Planned | None:
        if tick < now and self.node.simulation.options.accounts:
            return None
        return changes.reschedule(row, tick, now, active)

    def _enqueue(self) -> None:
        random, now = self.random, self.store.now()
        runs = [
            RunRecord(
                id=f"enqueued-{self.node.token()}",
                task="task",
                priority=random.randint(0, 9),
                run_at=now + random.choice((0, 0, 2_000)),
                created_at=now,
            )
            for _ in range(random.randint(1, 2))
        ]
        self._repeat(lambda: self.store.add_runs(runs))

    def _enqueue_limited(self) -> None:
        random, now = self.random, self.store.now()
        runs = [
            RunRecord(
                id=f"limited-{self.node.token()}",
                tenant=random.choice(("default", "acme")),
                task=random.choice(("task", "charge")),
                payload=random.choice(('{"customer":1}', '{"customer":2}', "{}")),
                priority=random.choice((5, 5, 8)),
                run_at=now + random.choice((0, 0, 0, 2_000)),
                created_at=now,
                execution=Execution(max_crashes=5, retries=random.choice((0, 1)), backoff=500),
            )
            for _ in range(random.randint(1, 4))
        ]
        self._repeat(lambda: self.store.add_runs(runs))
        # Drawn from the id, so that a seed's other choices stay as they are.
        if crc32(runs[0].id.encode()) % 2 == 0:
            self._move()

    def _move(self) -> None:
        """Move some of the queued runs to the other task, as if it had been renamed."""
        query = RunQuery(states=("queued",), limit=10)
        moves = []
        for run in self._repeat(lambda: self.store.find_runs(query)).items:
            moved = attempts.moved(
                run, "task" if run.task == "charge" else "charge", f"move-{self.node.token()}"
            )
            if moved is not None and run.id.startswith("limited-") and crc32(moved.token.encode()) % 2:
                moves.append(moved)
        if moves:
            self._repeat(lambda: self.store.settle_runs(moves))

    def _set_limit(self) -> None:
        """Set a limit, change it, or remove it."""
        limit = self._new_limit()
        present = self._repeat(lambda: self.store.get_record(LIMIT, OWNER, limit.name))
        if present is None:
            self._repeat(lambda: self.store.put_record(limit_record(limit), None))
        elif self.random.random() < 0.4:
            place = (present.kind, present.tenant, present.key, present.version)
            self._repeat(lambda: self.store.delete_record(*place))
        else:
            changed = limit_record(limit, present.version + 1)
            self._repeat(lambda: self.store.put_record(changed, present.version))

    def _new_limit(self) -> Limit:
        return random_limit(self.random)

    def _cancel_or_retry(self, name: str) -> None:
        found = self._repeat(lambda: self.store.find_runs(RunQuery(schedule=name, limit=10))).items
        if not found:
            return
        run, now, token = self.random.choice(found), self.store.now(), self.node.token()
        transition = attempts.cancel(run, now, token)
        if transition is None:
            transition = attempts.retried(run, token, self._read(name))
        if transition is not None:
            wanted = transition
            self._repeat(lambda: self.store.settle_runs([wanted]))

    def _repeat(self, call: Callable[[], T]) -> T:
        """Repeat a call with the same ids and tokens until it is answered, a limited number of times."""
        for _ in range(_PATIENCE):
            try:
                return call()
            except StoreUnavailable:
                self.node.simulation.interleaving.sleep(int(self.random.random() * 3_000))
        return call()


def retriggered(
    row: ScheduleRecord, trigger: str, now: Instant, active: tuple[Active, ...]
) -> Planned | None:
    return changes.change(row, {"trigger": trigger}, now, active)


def random_schedule(random: Random, name: str, now: Instant) -> ScheduleRecord:
    """Choose policies, in any combination."""
    kind = random.choice(("latest", "latest", "all", "skip"))
    trigger = random_trigger(random, now)
    # Drawn from the trigger, so that a seed's other choices stay as they are.
    drawn = crc32(f"{name} {trigger}".encode())
    return ScheduleRecord(
        name=name,
        task="task",
        trigger=trigger,
        priority=random.choice((2, 5, 8)),
        catch_up=CatchUp(
            kind,  # type: ignore[arg-type]
            grace=random.choice((0, 1_000, 10_000)),
            limit=random.choice((1, 3, 10)),
            max_age=(None, None, 4_000, 15_000)[drawn % 4],
            rate=(None, None, Rate(1, 2_000), Rate(1, 5_000), Rate(3, 1_000))[drawn // 4 % 5],
        ),
        overlap=random.choice(("allow", "allow", "skip", "queue", "queue_all", "cancel_running")),
        max_concurrent=random.choice((None, None, None, 1, 2)),
        spread=random.choice((0, 0, 0, 3_000)),
        execution=Execution(
            retries=random.choice((0, 1, 2)),
            backoff=random.choice((0, 1_000)),
            max_backoff=4_000,
            on_crash=random.choice(("rerun", "rerun", "fail")),
            max_crashes=random.choice((0, 1, 3)),
        ),
    )


FOLLOWS = {"then-0": "job-0", "then-1": "then-0"}
"""Schedules that fire on each success of another one."""

REFOLLOWS = {"then-1": ("then-0", "job-0")}
"""Those that users let follow one schedule, and then the other."""


def dependent(wanted: ScheduleRecord) -> ScheduleRecord:
    """Return the schedule with a dependency: drawn from what it is."""
    if wanted.name in FOLLOWS:
        # Without a spread: runs that start later would keep the simulation from its end.
        return replace(wanted, trigger=f"on success of {FOLLOWS[wanted.name]}", spread=0)
    drawn = crc32(f"{wanted.trigger} {wanted.overlap} {wanted.catch_up}".encode())
    if wanted.name == "job-0" or drawn % 2:
        return wanted
    within = (1, 4, 10)[drawn // 2 % 3]
    wait = (0, 3, 8)[drawn // 6 % 3]
    otherwise = ("skip", "run")[drawn // 18 % 2]
    return replace(wanted, after=f"job-0 within {within}s wait {wait}s otherwise {otherwise}")


def with_calendar(random: Random, wanted: ScheduleRecord, now: Instant) -> ScheduleRecord:
    """Return the schedule with a calendar; a single instant has none."""
    if wanted.trigger.startswith("at "):
        return replace(wanted, trigger="every 3s skip=off", calendars=random_calendar(random, now))
    # Without an end: a trigger that its calendar leaves no tick is refused.
    bare = wanted.trigger.partition(" until=")[0]
    return replace(wanted, trigger=f"{bare} skip=off", calendars=random_calendar(random, now))


def random_calendar(random: Random, now: Instant) -> str:
    """Return the copy of a calendar with some spans of the coming minute."""
    starts = sorted(now // 1000 + random.randint(-10, 60) for _ in range(random.randint(1, 4)))
    spans = merged([(start, start + random.randint(1, 15)) for start in starts])
    return CalendarCopies.of({"off": TimeSet(spans=spans)}).text


def random_limit(random: Random) -> Limit:
    """Choose a limit of one of few names, so that limits are changed and removed, too."""
    named = random.choice(
        (
            Limit(task="charge"),
            Limit(task="charge", key="customer"),
            Limit(tenant="acme"),
            Limit(key="customer"),
        )
    )
    if random.random() < 0.7:
        return replace(named, concurrency=random.choice((1, 1, 2)))
    rate = Rate(random.choice((1, 3)), random.choice((500, 2_000)))
    most = random.choice((None, 1, 2))
    return replace(named, rate=rate, burst=random.choice((None, 2)), concurrency=most)


def random_trigger(random: Random, now: Instant) -> str:
    chance = random.random()
    if chance < 0.35:
        return f"*/{random.choice((2, 5, 7, 15))} * * * * *"
    if chance < 0.80:
        bound = f" until={write_instant(now + 30_000)}" if random.random() < 0.15 else ""
        return f"every {random.choice((2, 3, 5, 10, 25))}s{bound}"
    if chance < 0.9:
        return f"{random.randint(0, 59)} * * * * *"
    return f"at {write_instant(now + random.randint(-5_000, 30_000))}"
