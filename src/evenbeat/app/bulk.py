"""Bulk changes: act on every run, or every schedule, that a filter matches, and report on each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TypeAlias, TypeVar

from evenbeat.core.results import BulkResult, ChangedItem, RefusedItem

MOST_AT_ONCE = 10_000
"""The default ``limit`` of bulk changes."""
_BATCH = 500
_SAMPLE = 5

Row = TypeVar("Row")
Item = TypeVar("Item")

Answers: TypeAlias = list[str | None]
"""Why an item could not be changed; None: it was."""
Pages: TypeAlias = Iterable[tuple[Sequence[Row], bool]]
"""Pages of rows, each with whether more rows follow it."""


def act_on_all(
    pages: Pages[Row],
    act: Callable[[Sequence[Row]], Answers] | None,
    item: Callable[[Row], ChangedItem],
    views: Callable[[Sequence[Row]], Sequence[Item]],
) -> BulkResult[Item]:
    """Call ``act`` with page after page; it returns why it could not change an item. None: only count."""
    matched = 0
    is_last = True
    changed: list[ChangedItem] = []
    refused: list[RefusedItem] = []
    sample: list[Item] = []
    for page, has_more in pages:
        is_last = not has_more
        matched += len(page)
        if room := _SAMPLE - len(sample):
            sample += views(page[:room])
        if act is None:
            continue
        for row, why in zip(page, act(page), strict=True):
            found = item(row)
            if why is None:
                changed.append(found)
            else:
                refused.append(RefusedItem(tenant=found.tenant, id=found.id, why=why))
    return BulkResult(
        matched=matched,
        done=len(changed),
        changed=tuple(changed),
        refused=tuple(refused),
        more=not is_last,
        sample=tuple(sample),
    )


def batches(rows: Iterable[Row], limit: int) -> Iterator[tuple[Sequence[Row], bool]]:
    """Yield up to ``limit`` rows in batches, each with whether another row follows it."""
    rest = iter(rows)
    left = limit
    while batch := list(islice(rest, min(left, _BATCH))):
        left -= len(batch)
        following = next(rest, None)
        yield batch, following is not None
        if following is None:
            return
        rest = chain([following], rest)
