"""Bulk changes: act on every run, or every schedule, that a filter matches, and report on each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeAlias, TypeVar

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
Progress: TypeAlias = Callable[[BulkResult[Any]], None]
"""Is called with the result of a bulk change so far, again and again."""


def act_on_all(
    pages: Pages[Row],
    act: Callable[[Sequence[Row]], Answers] | None,
    item: Callable[[Row], ChangedItem],
    views: Callable[[Sequence[Row]], Sequence[Item]],
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> BulkResult[Item]:
    """Call ``act`` with page after page; it returns why it could not change an item. None: only count.

    With ``dry_run``, it returns why it could not change an item if it tried. ``progress`` is called with the
    result so far, after each page.
    """
    result: BulkResult[Item] = BulkResult(matched=0, done=0, changed=(), refused=(), more=False, sample=())
    for page, has_more in pages:
        answers: Answers = [None] * len(page) if act is None else act(page)
        is_changed = act is not None and not dry_run
        changed = [item(row) for row, why in zip(page, answers, strict=True) if why is None and is_changed]
        room = _SAMPLE - len(result.sample)
        result = BulkResult(
            matched=result.matched + len(page),
            done=result.done + len(changed),
            changed=(*result.changed, *changed),
            refused=(*result.refused, *_refused(page, answers, item)),
            more=has_more,
            sample=(*result.sample, *(views(page[:room]) if room else ())),
        )
        if progress is not None:
            progress(result)
    return result


def _refused(
    page: Sequence[Row], answers: Answers, item: Callable[[Row], ChangedItem]
) -> Iterator[RefusedItem]:
    for row, why in zip(page, answers, strict=True):
        if why is not None:
            found = item(row)
            yield RefusedItem(tenant=found.tenant, id=found.id, why=why)


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
