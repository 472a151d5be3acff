"""The arguments of steps: the results of other steps, which a worker reads when it has claimed a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from evenbeat.core.flow_graphs import FlowGraph
from evenbeat.core.records import RunRecord
from evenbeat.node.flow_rows import FlowRows
from evenbeat.rules import flows
from evenbeat.rules.flow_parts import OPEN, are_of_one_flow, belongs_to, flow_part

# The characters of all results that one step gets. A worker holds them in memory, several times.
MOST_CHARACTERS = 32_000_000
# So many results, of a megabyte at most, are read at once; more if those before are small.
_SMALLEST_PART, _LARGEST_PART = 100, 1_000
_SMALL = 10_000


class FlowArguments:
    """Gives claimed runs the results of other steps."""

    def __init__(self, rows: FlowRows) -> None:
        self._rows = rows

    def complete(self, runs: Sequence[RunRecord]) -> list[RunRecord | str]:
        """Return claimed runs with the results of other steps in their payloads; a text that says why not for
        a run that can't have them. Two queries for all of them; one or none if they need no results."""
        needing: dict[str, FlowGraph] = {}
        lost: dict[str, str] = {}
        for run in runs:
            part = flow_part(run)
            if (member := part.member) is None or part.state is not None:
                continue  # a flow that continues after its end has its arguments
            graph = self._rows.graphs.get(member.graph)
            if graph is None or not 0 <= member.step < len(graph.steps):
                lost[run.id] = f"the graph of flow {member.flow} is not in the store, or lacks this step"
            elif any(each.source == "result" for each in graph.steps[member.step].inputs):
                needing[run.id] = graph
        if not needing:
            return [lost.get(run.id, run) for run in runs]
        states = self._ended_before([run for run in runs if run.id in needing])
        wanted: dict[str, dict[str, list[str]]] = {}
        for run in runs:
            member = flow_part(run).member
            row = None if member is None else states.get(member.flow)
            state = None if row is None else flow_part(row).state
            if row is None or state is None or run.id not in needing or not belongs_to(run, row):
                continue
            if state.fits(len(needing[run.id].steps)):
                wanted[run.id] = flows.needed_runs(run, needing[run.id], state)
        results: dict[str, RunRecord] = {}
        for run_id, each in wanted.items():
            if not self._read_into(results, [one for found in each.values() for one in found]):
                lost[run_id] = (
                    f"the results that it gets have more than {MOST_CHARACTERS / 1_000_000:g} million "
                    "characters together: return the places of large data, not the data"
                )
        return [
            lost.get(run.id, run)
            if run.id in lost or run.id not in needing
            else self._completed(run, needing[run.id], wanted.get(run.id), results)
            for run in runs
        ]

    def _read_into(self, known: dict[str, RunRecord], ids: Sequence[str]) -> bool:
        """Read the runs of one step's arguments, a part at a time; False if they are too large together."""
        known |= self._rows.kept_results(ids)
        size = at = 0
        number = _SMALLEST_PART
        while at < len(ids):
            part = ids[at : at + number]
            at += number
            if missing := [one for one in part if one not in known]:
                known |= {run.id: run for run in self._rows.read(missing)}
            size += sum(len(known[one].result or "") for one in part if one in known)
            if size > MOST_CHARACTERS:
                return False
            if size < at * _SMALL:
                number = _LARGEST_PART
        return True

    def _completed(
        self,
        run: RunRecord,
        graph: FlowGraph,
        wanted: Mapping[str, Sequence[str]] | None,
        found: Mapping[str, RunRecord],
    ) -> RunRecord | str:
        member = flow_part(run).member
        assert member is not None
        if wanted is None:
            return f"flow {member.flow} of this step does not exist any more"
        for name, ids in wanted.items():
            gone = [
                run_id for run_id in ids if run_id not in found or not are_of_one_flow(run, found[run_id])
            ]
            if gone:
                return (
                    f"the result of step {name} was deleted, by retention or by hand: {len(gone)} of "
                    f"{len(ids)} runs are gone; run the flow again"
                )
        results = {
            run_id: found[run_id].result if found[run_id].state == "succeeded" else None
            for ids in wanted.values()
            for run_id in ids
        }
        try:
            return replace(run, payload=flows.with_results(run, graph, wanted, results))
        except (ValueError, LookupError, TypeError) as error:
            return f"the results of other steps can't be read, or do not fit the arguments: {error}"

    def _ended_before(self, runs: Sequence[RunRecord]) -> dict[str, RunRecord]:
        """Return the flows of steps. A remembered one will do if the step is open in it: what came before the
        step does not change until it has ended."""
        states: dict[str, RunRecord] = {}
        unknown: dict[str, None] = {}
        for run in runs:
            member = flow_part(run).member
            assert member is not None
            row = self._rows.remembered(run)
            state = None if row is None else flow_part(row).state
            is_open = state is not None and state.letter(member.step) == OPEN
            if row is None or state is None or not is_open or state.round(member.step) != member.round:
                unknown[member.flow] = None
            else:
                states[member.flow] = row
        if unknown:
            states |= {row.id: row for row in self._rows.read(tuple(unknown))}
        return states
