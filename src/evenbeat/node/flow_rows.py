"""Graphs of flows, and the rows of flows as a process last read or wrote them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from evenbeat.core.flow_graphs import FlowGraph, decode_graph
from evenbeat.core.records import FINAL_STATES, RunRecord, Transition
from evenbeat.rules import flows
from evenbeat.rules.flow_parts import belongs_to, flow_part
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, Store
from evenbeat.stores.decisions import with_transition

# How many flows a process remembers as it last wrote them: the next end of a step needs no read.
_REMEMBERED = 1_000
_PAGE = 1_000
# Characters of a result that is kept.
_SMALL_RESULT = 10_000


class FlowGraphs:
    """The graphs of flows, read once each: they never change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, FlowGraph] = {}

    def get(self, key: str) -> FlowGraph | None:
        """Return a graph; None if the store does not have it (any more), or it can't be read."""
        if key not in self._known:
            record = self._store.get_record(flows.GRAPH, flows.OWNER, key)
            try:
                graph = None if record is None else decode_graph(record.body)
            except (msgspec.MsgspecError, UnicodeError):
                graph = None  # edited by hand
            if graph is None:
                return None
            self._known[key] = graph
        return self._known[key]

    def of(self, row: RunRecord) -> FlowGraph | None:
        """Return the graph of a flow that has begun; None if there is none that the flow's state fits."""
        state = flow_part(row).state
        graph = None if state is None else self.get(state.graph)
        return None if graph is None or state is None or not state.fits(len(graph.steps)) else graph

    def add(self, graph: FlowGraph) -> None:
        self._known[graph.key] = graph


class FlowRows:
    """Reads flows and the runs of their steps, and remembers the flows that this process has changed.

    A remembered flow may be out of date, since other processes change flows, too. Or it was purged, and
    another flow has its id now. Each write compares the attempt and the claim of the flow, so the store
    refuses a change that was decided on an old one. A step gets its arguments from a remembered flow only if
    it belongs to it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.graphs = FlowGraphs(store)
        self._flows: OrderedDict[str, RunRecord] = OrderedDict()
        self._kept: OrderedDict[str, RunRecord] = OrderedDict()
        """Steps that this process has ended, with their results: these never change. By id: that of a step is
        never given twice."""

    def with_outer(self, works: Iterable[str], known: Mapping[str, RunRecord]) -> dict[str, RunRecord]:
        """Return the flows, and the flows around them."""
        rows = dict(known)
        wanted = [flow_id for flow_id in works if flow_id not in rows]
        while wanted:
            unknown = [flow_id for flow_id in wanted if flow_id not in self._flows]
            found = {run.id: run for run in self.read(unknown)} if unknown else {}
            for flow_id in wanted:
                if (row := self._flows.get(flow_id) or found.get(flow_id)) is not None:
                    rows[flow_id] = row
            members = [flow_part(rows[flow_id]).member for flow_id in wanted if flow_id in rows]
            wanted = [each.flow for each in members if each is not None and each.flow not in rows]
            wanted = list(dict.fromkeys(wanted))
        if known:
            above = [flow_part(row).member for row in known.values()]
            missing = [each.flow for each in above if each is not None and each.flow not in rows]
            if missing:
                rows |= self.with_outer(dict.fromkeys(missing), {})
        return rows

    def remembered(self, step: RunRecord) -> RunRecord | None:
        """Return the flow of a step as this process last wrote it; None if it did not."""
        member = flow_part(step).member
        row = None if member is None else self._flows.get(member.flow)
        return row if row is not None and belongs_to(step, row) else None

    def remember(self, changes: Iterable[tuple[RunRecord, Transition]]) -> None:
        """Take note of changes that the store has applied."""
        for row, transition in changes:
            if transition.state in FINAL_STATES:
                self._flows.pop(row.id, None)
                continue
            self._flows[row.id] = with_transition(row, transition, self._store.now())
            self._flows.move_to_end(row.id)
            if len(self._flows) > _REMEMBERED:
                self._flows.popitem(last=False)

    def keep_result(self, run: RunRecord, transition: Transition) -> None:
        """Take note of a step that the store has ended as succeeded, if its result is small: the next step,
        which mostly runs here, needs no query for it."""
        result = transition.result
        if transition.state == "succeeded" and isinstance(result, str) and len(result) <= _SMALL_RESULT:
            self._kept[run.id] = replace(run, state="succeeded", result=result)
            if len(self._kept) > _REMEMBERED:
                self._kept.popitem(last=False)

    def kept_results(self, ids: Iterable[str]) -> dict[str, RunRecord]:
        """Return those of the runs whose results are kept here."""
        return {run_id: self._kept[run_id] for run_id in ids if run_id in self._kept}

    def forget(self, flow_id: str) -> bool:
        """Forget a flow, which somebody else may have changed; return whether it was remembered."""
        return self._flows.pop(flow_id, None) is not None

    def results(self, flow: RunRecord, ids: Sequence[str]) -> dict[str, str | None]:
        """Return the results of steps of a flow; None for one that has not succeeded."""
        found: dict[str, str | None] = dict.fromkeys(ids)
        found |= {run.id: run.result for run in self.steps(flow, ids) if run.state == "succeeded"}
        return found

    def steps(self, flow: RunRecord, ids: Sequence[str], *, with_results: bool = True) -> list[RunRecord]:
        """Read runs of steps of a flow. A run of somebody else may have such an id: it was there before."""
        runs = self.read(ids, with_results=with_results)
        return [run for run in runs if belongs_to(run, flow)]

    def read(self, ids: Sequence[str], *, with_results: bool = True) -> list[RunRecord]:
        """Return the runs with these ids, as far as they exist."""
        runs: list[RunRecord] = []
        for at in range(0, len(ids), _PAGE):
            part = tuple(ids[at : at + _PAGE])
            without = () if with_results else LARGE_FIELDS
            runs += self._store.find_runs(RunQuery(ids=part, limit=len(part), without=without)).items
        return runs
