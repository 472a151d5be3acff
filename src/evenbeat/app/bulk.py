"""Bulk changes: act on every run, or every schedule, that a filter matches, and report on each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple, TypeAlias, TypeVar

from evenbeat.core.results import BulkResult, RefusedItem

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


class Key(NamedTuple):
    """The identity of an item: the id of a run, or the name of a schedule."""

    tenant: str
    id: str


def act_on_all(
    pages: Pages[Row],
    act: Callable[[Sequence[Row]], Answers] | None,
    key: Callable[[Row], Key],
    views: Callable[[Sequence[Row]], Sequence[Item]],
) -> BulkResult[Item]:
    """Call ``act`` with page after page; it returns why it could not change an item. None: only count."""
    matched = done = 0
    is_last = True
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
            if why is None:
                done += 1
            else:
                refused.append(RefusedItem(tenant=key(row).tenant, id=key(row).id, why=why))
    return BulkResult(
        matched=matched, done=done, refused=tuple(refused), more=not is_last, sample=tuple(sample)
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
