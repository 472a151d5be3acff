"""The past: a store in memory, two workers that never were, and a clock that runs through weeks in a second.

The ticker, the rules of attempts, the alerts and the figures are the real ones, so that each account adds up.
Only the functions of the tasks are not called: ``ShopRuns`` says how each attempt ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from random import Random
from typing import NamedTuple

from evenbeat.alerts.channels.base import DeliveryFailed
from evenbeat.alerts.sender import AlertSender
from evenbeat.app.scheduler import Scheduler
from evenbeat.core.alerts import Message
from evenbeat.core.instants import Instant
from evenbeat.core.records import LogChunk, Record, RunRecord, ScheduleRecord, Skipped, Statistics, Transition
from evenbeat.demo.shop_runs import SEED, Fate, ShopRuns, as_result
from evenbeat.executors.base import Attempt, Outcome
from evenbeat.node.attempt_ends import AttemptEnd, decide_end
from evenbeat.node.counting import Counting
from evenbeat.node.rollups import KIND
from evenbeat.node.ticker import Ticker
from evenbeat.observe.events import Events
from evenbeat.observe.run_logs import chunk_of, refusal
from evenbeat.rules import attempts
from evenbeat.rules.alert_records import RULE, TURN
from evenbeat.rules.rollups import KEPT, LENGTH, MINUTE, make_rollup, rollup_key, start_of, write_rollup
from evenbeat.stores.base import Claim
from evenbeat.stores.memory import MemoryStore

WORKERS = ("ber-1:4117", "ber-2:4093")
QUEUES = ("default", "mail", "reports")
_SLOTS = 6
_LEASE = 30_000
_ALERTS_EVERY = 30 * MINUTE


class PastClock:
    """A clock that ``Past`` moves."""

    def __init__(self, now: Instant) -> None:
        self.now = now

    def __call__(self) -> Instant:
        return self.now


class Contents(NamedTuple):
    """Everything that a store has."""

    schedules: list[ScheduleRecord]
    runs: list[RunRecord]
    skipped: list[Skipped]
    statistics: list[Statistics]
    records: list[Record]
    logs: list[LogChunk]


class PastStore(MemoryStore):
    """A store in memory that hands out everything it has."""

    def __init__(self, clock: PastClock) -> None:
        super().__init__(clock)
        self.rule_changes = 0
        """How often an alert rule was written."""

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        self.rule_changes += record.kind == RULE
        return super().put_record(record, expect)

    def contents(self) -> Contents:
        return Contents(
            schedules=list(self._schedules.values()),
            runs=list(self._runs.values()),
            skipped=[row for rows in self._skipped.values() for row in rows],
            statistics=list(self._statistics.values()),
            # A turn of the watch ends with the process that took it.
            records=[record for record in self._records.all() if record.kind != TURN],
            logs=[chunk for chunks in self._logs.values() for chunk in chunks.values()],
        )


class _InHand(NamedTuple):
    """An attempt that has begun and not ended."""

    attempt: Attempt
    fate: Fate
    began: Instant


class Past:
    """Fires, executes, counts and announces what is due, at each instant at which something is."""

    def __init__(
        self,
        app: Scheduler,
        store: PastStore,
        clock: PastClock,
        shop: ShopRuns,
        *,
        end: Instant,
        outage: tuple[Instant, Instant],
        is_channel_broken: Callable[[Instant], bool],
    ) -> None:
        self._app = app
        self._store = store
        self._clock = clock
        self._shop = shop
        self._end = end
        self._outage = outage
        self._chance = Random(SEED)  # noqa: S311  # not a secret
        self._tokens = map("past-{}".format, count())
        self._actions: list[tuple[Instant, int, Callable[[], object]]] = []
        self._order = count()
        self._in_hand: dict[str, _InHand] = {}
        self._silent: set[str] = set()
        """The workers that have lost a lease, until they notice."""
        self._claim_at: Instant | None = None
        self._is_more_due = False
        """Whether runs are due for which no worker had room."""
        self._counting = Counting()
        self.figures: dict[str, Record] = {}
        """The records of figures, by key. Not in the store: searching it would take longer with each."""
        self._hour = start_of("hour", clock.now)
        self._service = app.alert_service()
        self._rules_read = 0
        self._alerts_at = clock.now
        self._ticker = Ticker(
            store,
            Events(),
            self._ask_for_claim,
            name=WORKERS[0],
            counting=self._counting,
            signals=self._service.signals,
        )
        self._sender = AlertSender(
            store, lambda _: _Receiver(lambda: is_channel_broken(clock.now)), name=WORKERS[0]
        )

    def at(self, instant: Instant, action: Callable[[], object]) -> None:
        """Have somebody do something at an instant."""
        heapq.heappush(self._actions, (instant, next(self._order), action))

    def go(self) -> None:
        """Let time pass until ``end``; then the workers hand back what they have in hand."""
        wake: Instant | None = self._clock.now
        while True:
            times = [at for at in (self._after_outage(wake), self._after_outage(self._claim_at)) if at]
            if self._actions:
                times.append(self._actions[0][0])
            if not times or min(times) > self._end:
                break
            now = self._clock.now = max(self._clock.now, min(times))
            self._write_figures(now)
            is_changed = wake is None
            while self._actions and self._actions[0][0] <= now:
                heapq.heappop(self._actions)[2]()
                is_changed = True
            if not self._is_out(now):
                if is_changed or (wake is not None and wake <= now):
                    wake = self._fire(now)
                if self._claim_at is not None and self._claim_at <= now:
                    self._claim(now)
            self._watch(now)
        self._clock.now = self._end
        for held in list(self._in_hand.values()):
            self._record(AttemptEnd(held.attempt, self._release(held), "released"), self._end)
        self._watch(self._end)
        self._write_figures(self._end, is_last=True)

    def look(self) -> None:
        """Have the workers look for runs: somebody may have added one."""
        self._ask_for_claim()

    def cancel(self, run: str) -> None:
        """Have the worker of a run, if one has it, obey a cancel request two seconds from now."""
        held = self._in_hand.get(run)
        if held is not None:
            self.at(self._clock.now + 2_000, lambda: self._obey(held))

    # -- ticks and attempts --------------------------------------------------------------------------------

    def _is_out(self, now: Instant) -> bool:
        return self._outage[0] <= now < self._outage[1]

    def _after_outage(self, at: Instant | None) -> Instant | None:
        return self._outage[1] if at is not None and self._is_out(max(at, self._clock.now)) else at

    def _fire(self, now: Instant) -> Instant | None:
        wake = self._ticker.step(now)
        while wake is not None and wake <= now:
            wake = self._ticker.step(now)
        return wake

    def _ask_for_claim(self, delay: int = 0) -> None:
        """Have the workers claim soon: they learn of a new run some milliseconds later."""
        at = self._clock.now + delay + round(self._chance.lognormvariate(2.5, 0.9))
        self._claim_at = at if self._claim_at is None else min(at, self._claim_at)

    def _claim(self, now: Instant) -> None:
        self._claim_at = None
        tasks = frozenset(task.name for task in self._app.tasks)
        free = dict.fromkeys(WORKERS, _SLOTS)
        for held in self._in_hand.values():
            free[held.attempt.run.worker or ""] -= 1
        self._is_more_due = False
        for worker in sorted(WORKERS, key=lambda name: (-free[name], self._chance.random())):
            if worker in self._silent:
                continue
            claimed = self._store.claim_runs(
                Claim(
                    worker=worker,
                    token=next(self._tokens),
                    limit=free[worker],
                    now=now,
                    lease=_LEASE,
                    tasks=tasks,
                    queues=QUEUES,
                )
            )
            self._counting.count_started(claimed.runs, now)
            for run in claimed.runs:
                self._begin(run, now)
            due = claimed.next_due
            self._is_more_due = due is not None and due <= now
            if not self._is_more_due:
                if due is not None:
                    self._ask_for_claim(due - now)
                return

    def _begin(self, run: RunRecord, now: Instant) -> None:
        task = self._app.tasks.get(run.task)
        assert task is not None
        fate = self._shop.fate(run, now)
        attempt = Attempt(run, task, 0.0, _LEASE / 1000, lambda _: True)
        attempt.began = 0.0
        held = _InHand(attempt, fate, now)
        self._in_hand[run.id] = held
        if fate.kind == "lost":
            self._silent.add(run.worker or "")
            self.at(now + _LEASE + 400, lambda: self._reap(held))
            self.at(now + fate.took, lambda: self._send_late(held))
        else:
            self.at(now + fate.took, lambda: self._finish(held))

    def _finish(self, held: _InHand) -> None:
        if self._in_hand.get(held.attempt.run.id) is not held:
            return  # it was cancelled
        now = self._clock.now
        held.attempt.over = (now - held.began) / 1000
        self._record(decide_end(held.attempt, _outcome(held.fate), now), now)

    def _obey(self, held: _InHand) -> None:
        if self._in_hand.get(held.attempt.run.id) is held:
            now = self._clock.now
            cancelled = attempts.cancelled(held.attempt.run, now, next(self._tokens))
            self._record(AttemptEnd(held.attempt, cancelled, "cancelled"), now)

    def _release(self, held: _InHand) -> Transition:
        return attempts.released(held.attempt.run, self._clock.now, next(self._tokens))

    def _record(self, end: AttemptEnd, now: Instant) -> None:
        run = end.attempt.run
        held = self._in_hand.pop(run.id)
        transition = self._service.signals.with_end(run, end.transition, now, now - held.began)
        answers = self._store.settle_runs([transition])
        self._service.signals.note_written()
        self._counting.count_ended([end], answers, now)
        self._log(held, now)
        if self._is_more_due or isinstance(transition.delay, int):
            self._ask_for_claim(transition.delay if isinstance(transition.delay, int) else 0)

    def _reap(self, held: _InHand) -> None:
        """Take a run from a worker whose lease has expired."""
        now, run = self._clock.now, held.attempt.run
        del self._in_hand[run.id]
        lost = attempts.crashed(run, now, next(self._tokens))
        accepted = self._store.settle_runs([self._service.signals.with_end(run, lost, now)])
        assert accepted == [True]
        self._counting.count_taken_over([(run, lost)], now)
        self._log(held, now)
        self._ask_for_claim()

    def _send_late(self, held: _InHand) -> None:
        """Send the result of an attempt that has lost its lease; the store refuses it."""
        now = self._clock.now
        self._silent.discard(held.attempt.run.worker or "")
        end = decide_end(held.attempt, Outcome("returned", as_result(held.fate)), now)
        answers = self._store.settle_runs([end.transition])
        assert answers == [False]
        self._counting.count_ended([end], answers, now)
        self._store.append_log([refusal(held.attempt.run, now)])

    def _log(self, held: _InHand, now: Instant) -> None:
        lines, run = held.fate.lines, held.attempt.run
        share = (held.fate.took or 1) / (len(lines) or 1)
        times = [held.began + round(share * number) for number in range(len(lines))]
        self._store.append_log(
            [
                chunk_of(run, number, text, at)
                for number, (text, at) in enumerate(zip(lines, times, strict=True), 1)
                if at <= now
            ]
        )

    # -- alerts and figures --------------------------------------------------------------------------------

    def _watch(self, now: Instant) -> None:
        """Evaluate the alert rules if something may have begun or ended, and send what waits."""
        if self._rules_read != self._store.rule_changes:
            self._rules_read = self._store.rule_changes
            self._service.refresh(now)
        if self._service.has_signals or now >= self._alerts_at:
            self._alerts_at = now + _ALERTS_EVERY
            self._service.evaluate(now)
            self._sender.step(now)

    def _write_figures(self, now: Instant, *, is_last: bool = False) -> None:
        """Write the figures of the hours that are over, and of the last minutes."""
        if not is_last and start_of("hour", now) == self._hour:
            return
        self._hour = start_of("hour", now)
        for period in self._counting.take(now, is_last=is_last):
            tallies = period.tallies
            over = period.start + LENGTH[period.by]
            if period.by == "hour" or over > self._end - KEPT["minute"]:
                key = rollup_key(period.by, period.start, WORKERS[0])
                self.figures[key] = Record(
                    kind=KIND,
                    key=key,
                    body=write_rollup(make_rollup(tallies, written_at=min(over, now))),
                    expires=over + KEPT[period.by],
                )
            self._counting.mark_written(period, tallies)


class _Receiver:
    """The receiver of announcements: answers, until it breaks."""

    def __init__(self, is_broken: Callable[[], bool]) -> None:
        self._is_broken = is_broken

    def send(self, message: Message) -> None:
        if self._is_broken():
            raise DeliveryFailed("127.0.0.1 can't be reached: Connection refused")


def _outcome(fate: Fate) -> Outcome:
    if fate.kind == "returned":
        return Outcome("returned", as_result(fate))
    return Outcome("raised", error=fate.error)
