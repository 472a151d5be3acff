"""Flows on a node: begins them, and ends their steps with what follows.

Every process that ends a run of a flow does so through ``FlowSettling``: workers, reapers, the supervisor,
and the app if a user cancels a run. It also adds the signals for alert rules to ends that have none yet: an
end is announced whoever writes it.
"""

from __future__ import annotations

import logging
import random
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple
from uuid import uuid4

from msgspec.structs import replace

from evenbeat.core.flow_graphs import FlowGraph
from evenbeat.core.instants import Instant
from evenbeat.core.records import FINAL_STATES, Record, RunRecord, Transition
from evenbeat.errors import StoreUnavailable
from evenbeat.node.flow_rows import FlowRows
from evenbeat.node.signals import Signals, stored_rules
from evenbeat.rules import attempts, flows
from evenbeat.rules.alert_records import SIGNAL
from evenbeat.rules.flow_parts import flow_part, is_begun
from evenbeat.stores.base import Store
from evenbeat.stores.decisions import status_of, verdict, with_transition

# How many ends without an answer it remembers: more than a worker repeats at once.
_DOUBTED = 10_000
# How often a change is decided again because another node has changed the flow.
_MOST_ROUNDS = 200
# Seconds: the longest pause before the next try.
_LONGEST_PAUSE = 0.05
_PAGE = 1_000


_log = logging.getLogger("evenbeat.node.flows")


class End(NamedTuple):
    """A transition of a run."""

    run: RunRecord
    transition: Transition


class FlowEnd(NamedTuple):
    """A flow that has ended with one of its steps."""

    run: RunRecord
    """As it was before."""
    transition: Transition


class Settled(NamedTuple):
    """The answers of the store about ends, and the flows and steps that they ended and started."""

    answers: list[bool]
    """Whether the store has accepted each."""
    ended: list[FlowEnd]
    started: list[RunRecord]
    """The runs of steps that were added."""


class Begin(NamedTuple):
    """A flow to begin, with its graph and those of the flows within it."""

    run: RunRecord
    graph: FlowGraph
    records: tuple[Record, ...]


class _Work:
    """The ends and wishes that change one flow, in one try."""

    def __init__(self) -> None:
        self.ends: list[flows.StepEnd] = []
        self.transitions: list[Transition] = []
        self.leaves: list[int] = []
        """The positions of the ends that this answers."""
        self.begin: Begin | None = None
        self.stop: Literal["cancelled", "timeout"] | None = None


class _Unit(NamedTuple):
    """A transition to settle, and which ends it answers."""

    transition: Transition
    leaves: list[int]
    ended: list[FlowEnd]
    rows: list[tuple[RunRecord, Transition]]
    """The flows that it changes."""


def concerns_flow(run: RunRecord, transition: Transition) -> bool:
    """Return whether a transition ends a step of a flow."""
    return run.flow is not None and transition.state in FINAL_STATES and flow_part(run).member is not None


class FlowSettling:
    """Ends the steps of flows, and changes the flows in the same step of the store.

    Optimistic: it decides on the flow as it last wrote or read it. If another node has changed the flow
    meanwhile, the store refuses all of it, and this reads and decides again.
    """

    def __init__(
        self,
        store: Store,
        component: str,
        *,
        signals: Signals | None = None,
        new_token: Callable[[], str] = lambda: uuid4().hex,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._component = component
        self._known_signals = signals
        """None: read from the store when a run ends. Only nodes know the rules all the time."""
        self._new_token = new_token
        self._pause = pause
        self.rows = FlowRows(store)
        self._unsure: OrderedDict[tuple[str, str], None] = OrderedDict()
        """The runs and tokens of ends that may have been applied: the store did not answer. The oldest are
        forgotten: a reaper does not repeat its ends."""

    # -- ends and beginnings -------------------------------------------------------------------------------

    def settle(self, ends: Sequence[End], now: Instant, begins: Sequence[Begin] = ()) -> Settled:
        """Apply transitions, each with what follows for its flow. Of those of one flow, all are one step.

        ``begins`` are claimed flows to begin; their answers follow those of the ends. A flow that is asked to
        end is stopped: see ``stop``. Transitions of other runs are applied as they are.
        """
        ends = [End(run, self._announced(run, transition, now)) for run, transition in ends]
        try:
            return self._settle(ends, now, list(begins))
        except BaseException:
            # The caller repeats all of them, also those that were accepted before the store went away.
            self._doubt(ends)
            raise

    @property
    def _signals(self) -> Signals:
        if self._known_signals is None:
            self._known_signals = Signals(stored_rules(self._store))
        return self._known_signals

    def _announced(
        self, run: RunRecord, transition: Transition, now: Instant, took: int | None = None
    ) -> Transition:
        """Return the transition with the signal that an end leaves, if it has none yet."""
        if transition.state not in FINAL_STATES or not self._signals:
            return transition
        if any(record.kind == SIGNAL for record in transition.records):
            return transition  # a worker knows how long the attempt took
        return self._signals.with_end(run, transition, now, took)

    def _doubt(self, ends: Sequence[End]) -> None:
        self._unsure.update(dict.fromkeys(map(_identity, ends)))
        while len(self._unsure) > _DOUBTED:
            self._unsure.popitem(last=False)

    def _settle(self, ends: Sequence[End], now: Instant, begins: list[Begin]) -> Settled:
        answers: list[bool | None] = [None] * (len(ends) + len(begins))
        ended: list[FlowEnd] = []
        started: list[RunRecord] = []
        unstopped: dict[str, RunRecord] = {}
        # The store accepts an end that was applied before, and does not apply the change of its flow that was
        # decided now.
        unsure = [key for key in map(_identity, ends) if key in self._unsure] if self._unsure else []
        for turn in range(_MOST_ROUNDS):
            if turn and None in answers:
                self._pause(min(random.random() * 0.002 * turn, _LONGEST_PAUSE))  # noqa: S311 - no secret
            # A refusal mostly means that another node has changed the flow: first, only that is read again.
            if (turn > 1 or unsure) and None in answers:
                self._answer_known(ends, begins, answers)
            left = [at for at, answer in enumerate(answers) if answer is None]
            if not left:
                for at, end in enumerate(ends):
                    if answers[at] and end.transition.cancel_requested is True and is_begun(end.run):
                        unstopped[end.run.id] = end.run
                for flow in unstopped.values():
                    ended += self.stop(flow, "cancelled", now)
                for key in unsure:
                    self._unsure.pop(key, None)
                return Settled([answer is True for answer in answers], ended, started)
            units = self._units(ends, begins, left, now)
            accepted = self._written(units)
            if accepted is None:
                self._doubt(ends)
                return self._settle_halves(ends, begins, answers, now, Settled([], ended, started))
            for unit, is_accepted in zip(units, accepted, strict=True):
                if not is_accepted:
                    self._forget(unit)
                    continue
                for at in unit.leaves:
                    answers[at] = True
                    if at < len(ends) and not unsure:
                        self.rows.keep_result(ends[at].run, ends[at].transition)
                ended += unit.ended
                started += [run for _, each in unit.rows for run in each.adds]
                unstopped |= {row.id: row for row, _ in unit.rows if _is_unstopped(row)}
                if unsure:
                    self._forget(unit)
                else:
                    self.rows.remember(unit.rows)
        raise StoreUnavailable(f"a flow was changed by others {_MOST_ROUNDS} times in a row")

    def _written(self, units: Sequence[_Unit]) -> list[bool] | None:
        """Return which units the store accepts; None if it can't write one of them."""
        try:
            return self._store.settle_runs([unit.transition for unit in units])
        except BaseException as error:
            # Some of it may have been written.
            for unit in units:
                self._forget(unit)
            if isinstance(error, StoreUnavailable) or not isinstance(error, Exception):
                raise
            if sum(len(unit.leaves) for unit in units) <= 1:
                fields = {"component": self._component, "job_id": units[0].transition.run}
                _log.error("the end of a step can't be written: %s", error, exc_info=error, extra=fields)
            return None

    def _settle_halves(
        self,
        ends: Sequence[End],
        begins: Sequence[Begin],
        answers: Sequence[bool | None],
        now: Instant,
        done: Settled,
    ) -> Settled:
        """Settle what has no answer in two halves: one that can't be written must not block the others."""
        left = [at for at, answer in enumerate(answers) if answer is None]
        final = [answer is True for answer in answers]
        for half in (left[: len(left) // 2], left[len(left) // 2 :]) if len(left) > 1 else ():
            some = [at for at in half if at < len(ends)]
            rest = [at for at in half if at >= len(ends)]
            settled = self.settle([ends[at] for at in some], now, [begins[at - len(ends)] for at in rest])
            for at, answer in zip([*some, *rest], settled.answers, strict=True):
                final[at] = answer
            done.ended.extend(settled.ended)
            done.started.extend(settled.started)
        return Settled(final, done.ended, done.started)

    def stop(self, flow: RunRecord, why: Literal["cancelled", "timeout"], now: Instant) -> list[FlowEnd]:
        """Start no further steps of a flow, and cancel those that are queued or running, also in the flows
        within it. It ends when the last one has ended; return those that have ended by now.

        Can be repeated: a process that dies in between leaves the rest to the next one.
        """
        ended: list[FlowEnd] = []
        if (row := self._stopped(flow.id, why, now, ended)) is None:
            return ended
        graph = self.rows.graphs.of(row)
        ids = [run_id for _, found in flows.open_runs(row, graph) for run_id in found] if graph else []
        for at in range(0, len(ids), _PAGE):
            runs = self.rows.steps(row, ids[at : at + _PAGE], with_results=False)
            active = [run for run in runs if run.state not in FINAL_STATES]
            for run in active:
                if is_begun(run):
                    ended += self.stop(run, "cancelled", now)
            wishes = [
                End(run, wish)
                for run in active
                if not is_begun(run) and not (run.state == "running" and run.cancel_requested)
                if (wish := attempts.cancel(run, now, self._new_token())) is not None
            ]
            ended += self.settle(wishes, now).ended if wishes else []
        return ended

    def _stopped(
        self, flow_id: str, why: Literal["cancelled", "timeout"], now: Instant, ended: list[FlowEnd]
    ) -> RunRecord | None:
        """Write that no further step starts; return the flow, or None if it has ended."""
        for _ in range(_MOST_ROUNDS):
            (row, *_) = self.rows.read((flow_id,)) or (None,)
            state = None if row is None else flow_part(row).state
            if row is None or state is None or row.state != "running":
                return None
            if self.rows.graphs.of(row) is None:
                ended += self.give_up(row, now) or ()
                return None
            if state.stop:
                return row
            work = _Work()
            work.stop = why
            (unit,) = self._composed({flow_id: work}, self.rows.with_outer((), {flow_id: row}), now)
            if self._store.settle_runs([unit.transition])[0]:
                ended += unit.ended
                self.rows.forget(flow_id)
                return with_transition(row, unit.rows[0][1], now) if not unit.ended else None
        raise StoreUnavailable(f"flow {flow_id} was changed by others {_MOST_ROUNDS} times in a row")

    def recount(self, flow: RunRecord, now: Instant) -> list[FlowEnd] | None:
        """Go on with a flow that has not counted the ends of some steps; None if it has counted all, or has
        changed meanwhile.

        A safety net. Such a run was ended without its flow: the store set an unreadable row to failed, or
        somebody edited it.
        """
        graph = self.rows.graphs.of(flow)
        if graph is None:
            return self.give_up(flow, now)
        ids = [run_id for _, found in flows.open_runs(flow, graph) for run_id in found]
        rows = {run.id: run for run in self.rows.steps(flow, ids, with_results=False)}
        results: dict[str, str | None] = {}
        while (change := flows.recount(flow, graph, rows, results, now)).missing:
            results |= self.rows.results(flow, change.missing)
        return None if change.is_stale else self._repaired(flow, change, now)

    def give_up(self, flow: RunRecord, now: Instant) -> list[FlowEnd] | None:
        """Fail a flow of which nobody knows how to go on: its graph is gone, or its state was edited by hand.

        None if it has changed meanwhile.
        """
        return self._repaired(flow, flows.unreadable(flow), now)

    def _repaired(self, flow: RunRecord, change: flows.Change, now: Instant) -> list[FlowEnd] | None:
        """Write the change of a flow that no end of a step has caused."""
        unit = self._unit(flow, change, _Work(), (), now)
        member = flow_part(flow).member
        if change.outcome is not None and member is not None:
            work = _Work()
            around = self.rows.with_outer([member.flow], {})
            outer = around.get(member.flow)
            wider = None if outer is None else self._changed(outer, work, [(flow, unit)], now)
            unit = unit if wider is None else wider
        (is_accepted,) = self._store.settle_runs([unit.transition])
        self._forget(unit)
        if not is_accepted:
            return None
        self._store.hint()
        return unit.ended

    # -- one try -------------------------------------------------------------------------------------------

    def _answer_known(self, ends: Sequence[End], begins: list[Begin], answers: list[bool | None]) -> None:
        """Answer those whose runs show that they were applied, or can't be any more. A flow that a user has
        cancelled since it was claimed begins with that wish, and is stopped at once."""
        at_run = {
            (ends[at].run.id if at < len(ends) else begins[at - len(ends)].run.id): at
            for at, answer in enumerate(answers)
            if answer is None
        }
        rows = {run.id: run for run in self.rows.read(tuple(at_run), with_results=False)}
        now = self._store.now()
        for run_id, at in at_run.items():
            row = rows.get(run_id)
            if at >= len(ends):
                begin = begins[at - len(ends)]
                if row is not None and _is_asked_to_end(row, begin.run):
                    asked = replace(begin.run, attempt=row.attempt, cancel_requested=True)
                    begins[at - len(ends)] = begin._replace(run=asked)
                elif (
                    row is None
                    or row.state != "running"
                    or is_begun(row)
                    or (row.attempt, row.claim) != (begin.run.attempt, begin.run.claim)
                ):
                    # Another worker may have begun it, with another graph: this one's was not stored then.
                    answers[at] = row is not None and is_begun(row) and row.claim == begin.run.claim
                continue
            decision = "refuse" if row is None else verdict(status_of(row), ends[at].transition, now)
            if decision != "apply":
                answers[at] = decision == "repeat"

    def _units(
        self, ends: Sequence[End], begins: Sequence[Begin], left: Sequence[int], now: Instant
    ) -> list[_Unit]:
        works: defaultdict[str, _Work] = defaultdict(_Work)
        units: list[_Unit] = []
        for at in left:
            if at >= len(ends):
                begin = begins[at - len(ends)]
                works[begin.run.id].begin = begin
                works[begin.run.id].leaves.append(at)
                continue
            end = ends[at]
            member = flow_part(end.run).member
            if member is None or end.transition.state not in FINAL_STATES:
                units.append(_Unit(end.transition, [at], [], []))
                continue
            work = works[member.flow]
            work.ends.append(_step_end(end.run, end.transition))
            work.transitions.append(end.transition)
            work.leaves.append(at)
        rows = {begin.run.id: begin.run for begin in begins}
        return units + self._composed(works, self.rows.with_outer(works, rows), now)

    def _composed(
        self, works: Mapping[str, _Work], rows: Mapping[str, RunRecord], now: Instant
    ) -> list[_Unit]:
        """Return the transitions of all flows, those of inner flows inside those of the flows around them."""
        units: list[_Unit] = []
        levels: defaultdict[int, dict[str, None]] = defaultdict(dict)
        for flow_id in works:
            levels[_depth(flow_id, rows)][flow_id] = None
        # Inner flows that end, by the flow around them.
        inner: defaultdict[str, list[tuple[RunRecord, _Unit]]] = defaultdict(list)
        for depth in range(max(levels, default=-1), -1, -1):
            for flow_id in levels[depth]:
                work, row = works.get(flow_id) or _Work(), rows.get(flow_id)
                enclosed = inner.pop(flow_id, [])
                unit = None if row is None else self._changed(row, work, enclosed, now)
                if unit is None and self.rows.forget(flow_id):
                    # As this process remembers it, the flow does not wait for them: it may have been resumed.
                    (row, *_) = self.rows.read((flow_id,)) or (None,)
                    unit = None if row is None else self._changed(row, work, enclosed, now)
                if row is None or unit is None:
                    # The flow is gone or over, or does not wait for them any more: they end like other runs.
                    units += [*_apart(work), *(each for _, each in enclosed)]
                elif unit.transition.state in FINAL_STATES and (member := flow_part(row).member) is not None:
                    inner[member.flow].append((row, unit))
                    levels[depth - 1][member.flow] = None
                else:
                    units.append(unit)
        return units

    def _changed(
        self, row: RunRecord, work: _Work, inner: Sequence[tuple[RunRecord, _Unit]], now: Instant
    ) -> _Unit | None:
        """Return the change of one flow; None if nothing that ended concerns it any more."""
        graph = self._graph(row, work)
        if graph is None or row.state != "running":
            return None
        ends = work.ends + [_step_end(run, unit.transition) for run, unit in inner]
        results: dict[str, str | None] = {}
        while True:
            if work.begin is not None:
                change = flows.begin(row, graph, now)
            elif work.stop is not None:
                change = flows.stop(row, graph, work.stop, results, now)
            else:
                change = flows.advance(row, graph, ends, results, now)
            if change.is_stale:
                return None
            if not change.missing:
                break
            results |= self.rows.results(row, change.missing)
        return self._unit(row, change, work, inner, now)

    def _unit(
        self,
        row: RunRecord,
        change: flows.Change,
        work: _Work,
        inner: Sequence[tuple[RunRecord, _Unit]],
        now: Instant,
    ) -> _Unit:
        together = (*work.transitions, *(unit.transition for _, unit in inner))
        token = f"{row.claim}.begun" if work.begin is not None else self._new_token()
        if change.outcome is None:
            transition = flows.going_on(row, change, token, together, now)
        else:
            transition = flows.ending(row, change, token, together, now)
            took = None if row.started_at is None else max(now - row.started_at, 0)
            transition = self._announced(row, transition, now, took)
        if work.begin is not None:
            transition = replace(transition, records=(*transition.records, *work.begin.records))
            if flow_part(row).member is not None:
                # Only now the arguments of a flow within a flow are known.
                transition = replace(transition, payload=row.payload)
        if work.stop == "cancelled":
            transition = replace(transition, cancel_requested=True)
        leaves = work.leaves + [at for _, unit in inner for at in unit.leaves]
        ended = [end for _, unit in inner for end in unit.ended]
        if change.outcome is not None:
            ended.append(FlowEnd(row, transition))
        changed = [each for _, unit in inner for each in unit.rows]
        return _Unit(transition, leaves, ended, [(row, transition), *changed])

    def _forget(self, unit: _Unit) -> None:
        for row, _ in unit.rows:
            self.rows.forget(row.id)

    def _graph(self, row: RunRecord, work: _Work) -> FlowGraph | None:
        if work.begin is not None:
            self.rows.graphs.add(work.begin.graph)
            return work.begin.graph
        return self.rows.graphs.of(row)


def _step_end(run: RunRecord, transition: Transition) -> flows.StepEnd:
    member = flow_part(run).member
    assert member is not None
    assert transition.state in ("succeeded", "failed", "cancelled")
    result = transition.result if isinstance(transition.result, str) else None
    error = transition.error if isinstance(transition.error, str) else None
    return flows.StepEnd(member, run.id, transition.state, result, error)


def _identity(end: End) -> tuple[str, str]:
    return end.run.id, end.transition.token


def _is_unstopped(row: RunRecord) -> bool:
    """Return whether a flow was asked to end, by a process that died before it stopped the flow."""
    state = flow_part(row).state
    return row.cancel_requested and (state is None or not state.stop)


def _is_asked_to_end(row: RunRecord, claimed: RunRecord) -> bool:
    """Return whether a user has cancelled a flow since a worker claimed it, and it has not begun."""
    is_same = row.claim == claimed.claim and row.attempt > claimed.attempt
    return is_same and row.state == "running" and row.cancel_requested and not is_begun(row)


def _apart(work: _Work) -> list[_Unit]:
    """Return the ends of steps without their flow."""
    if work.begin is not None:
        return []
    return [
        _Unit(transition, [at], [], []) for transition, at in zip(work.transitions, work.leaves, strict=True)
    ]


def _depth(flow_id: str, rows: Mapping[str, RunRecord]) -> int:
    around = {flow_id}
    while (row := rows.get(flow_id)) is not None and (member := flow_part(row).member) is not None:
        flow_id = member.flow
        if flow_id in around:
            break  # edited by hand
        around.add(flow_id)
    return len(around) - 1
