"""Settle a batch of runs, in smaller parts if the store raises: one bad run does not block the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from evenbeat.core.records import Transition
from evenbeat.stores.base import Store
from evenbeat.stores.refusals import in_parts

_log = logging.getLogger("evenbeat.node.settling")


def settle_in_parts(store: Store, transitions: Sequence[Transition], component: str) -> Iterator[list[bool]]:
    """Call ``settle_runs`` and yield its answers, part by part, in the order of the transitions.

    There is one part, unless the store raises: then its halves are tried, and their halves. A transition
    that can't be written alone is logged, and its answer is False. ``StoreUnavailable`` is raised at once:
    the parts that were yielded before are written.
    """
    is_split = False

    def on_split(error: Exception) -> None:
        nonlocal is_split
        is_split = True
        fields = {"component": component, "runs": len(transitions)}
        _log.error("runs can't be written, trying smaller batches", exc_info=error, extra=fields)

    def refuse(transition: Transition, error: Exception) -> bool:
        # The traceback is logged once: the halves mostly fail for the same reason.
        trace = None if is_split else error
        fields = {"component": component, "job_id": transition.run}
        _log.error("a run can't be written: %s", error, exc_info=trace, extra=fields)
        return False

    yield from in_parts(store.settle_runs, transitions, refuse, on_split)
