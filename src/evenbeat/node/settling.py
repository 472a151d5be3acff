"""Settle a batch of runs, in smaller parts if the store raises: one bad run does not block the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from evenbeat.core.records import Transition
from evenbeat.errors import StoreUnavailable
from evenbeat.stores.base import Store

_log = logging.getLogger("evenbeat.node.settling")


def settle_in_parts(store: Store, transitions: Sequence[Transition], component: str) -> Iterator[list[bool]]:
    """Call ``settle_runs`` and yield its answers, part by part, in the order of the transitions.

    There is one part, unless the store raises: then its halves are tried, and their halves. A transition
    that can't be written alone is logged, and its answer is False. ``StoreUnavailable`` is raised at once:
    the parts that were yielded before are written.
    """
    yield from _settle(store, transitions, component, is_whole=True)


def _settle(
    store: Store, transitions: Sequence[Transition], component: str, is_whole: bool
) -> Iterator[list[bool]]:
    try:
        answers = store.settle_runs(transitions)
    except StoreUnavailable:
        raise
    except Exception as error:
        # The traceback is logged once: the halves mostly fail for the same reason.
        trace = error if is_whole else None
        if len(transitions) > 1:
            if is_whole:
                fields = {"component": component, "runs": len(transitions)}
                _log.error("runs can't be written, trying smaller batches", exc_info=trace, extra=fields)
            middle = len(transitions) // 2
            for half in (transitions[:middle], transitions[middle:]):
                yield from _settle(store, half, component, is_whole=False)
            return
        fields = {"component": component, "job_id": transitions[0].run}
        _log.error("a run can't be written: %s", error, exc_info=trace, extra=fields)
        answers = [False]
    yield answers
