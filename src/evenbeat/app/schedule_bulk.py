"""Bulk changes of schedules: the rows of a page are written together, refused ones one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple, Protocol, TypeAlias

from msgspec.structs import replace

from evenbeat.app.bulk import Answers, Pages, Progress, act_on_all, batches
from evenbeat.app.dependencies import check_link, delete_warnings
from evenbeat.app.rows import ScheduleRows, audited_write, concerns_others
from evenbeat.core.audits import AuditAction
from evenbeat.core.instants import Instant
from evenbeat.core.records import ScheduleRecord
from evenbeat.core.results import BulkResult, ChangedItem, Schedule
from evenbeat.errors import EvenbeatError, StoreUnavailable
from evenbeat.rules import auditing
from evenbeat.rules.firing import Planned
from evenbeat.rules.overdue import is_long
from evenbeat.stores.base import Write, Written, check_limit
from evenbeat.stores.refusals import in_parts


class Search(Protocol):
    """Finds the schedules of a bulk change."""

    def pages(self) -> Iterator[list[ScheduleRecord]]: ...
    def matches(self, row: ScheduleRecord) -> bool:
        """Return whether a row that was found still matches."""


Decide: TypeAlias = Callable[[ScheduleRecord, Instant], Planned | None]
"""Plans the change of one schedule; None if nothing is to change. It may refuse by an error."""


class BulkChange(NamedTuple):
    """A change of every schedule that a search finds."""

    rows: ScheduleRows
    search: Search
    action: AuditAction
    decide: Decide

    def run(self, limit: int, *, dry_run: bool, progress: Progress | None = None) -> BulkResult[Schedule]:
        """Change up to ``limit`` schedules; with ``dry_run``, only check which of them could be changed."""
        found = chain.from_iterable(self.search.pages())
        deleted: list[ScheduleRecord] = []

        def pages() -> Pages[ScheduleRecord]:
            for page, has_more in batches(found, check_limit(limit)):
                if self.action == "delete":
                    deleted.extend(page)
                yield page, has_more

        result = act_on_all(
            pages(),
            self._check_page if dry_run else self._change_page,
            lambda row: ChangedItem(tenant=row.tenant, id=row.name),
            self.rows.views,
            dry_run=dry_run,
            progress=progress,
        )
        left = {(item.tenant, item.id) for item in result.refused}
        gone = [row for row in deleted if row.key not in left]
        return replace(result, warnings=delete_warnings(self.rows.session.store(), gone))

    def _check_page(self, page: Sequence[ScheduleRecord]) -> Answers:
        """Return why rows could not be changed; write nothing."""
        now = self.rows.session.store().now()
        return [self._refusal(row, now) for row in page]

    def _refusal(self, row: ScheduleRecord, now: Instant) -> str | None:
        try:
            planned = self.decide(row, now)
            if planned is not None:
                check_link(self.rows.session.store(), planned.schedule, row)
        except StoreUnavailable:
            raise
        except EvenbeatError as error:
            return str(error)
        return None

    def _change_page(self, page: Sequence[ScheduleRecord]) -> Answers:
        """Write the changes of all rows in one call, which is quick: single writes lose against nodes that
        fire a schedule often.

        The others are changed one by one: rows that were refused, that have a long backlog, or that can't be
        changed for a reason.
        """
        store = self.rows.session.store()
        now = store.now()
        describe = partial(auditing.schedule_change, self.action)
        writes: list[tuple[ScheduleRecord, Write]] = []
        for row in page:
            try:
                planned = self.decide(row, now)
            except StoreUnavailable:
                raise
            except EvenbeatError:
                continue
            if planned is None or is_long(planned):
                continue
            if concerns_others(row, planned.schedule):
                continue
            write = audited_write(store, row, planned, now, describe)
            if not write.planned.unfinished:
                writes.append((row, write))
        # One that the database refuses is changed alone below, which says why it can't be.
        wanted = [write for _, write in writes]
        parts = in_parts(store.put_schedules, wanted, lambda *_: Written(False, None)) if wanted else ()
        answers = [answer for part in parts for answer in part]
        done = [row for (row, _), written in zip(writes, answers, strict=True) if written.accepted]
        for row in done:
            self.rows.forget_quarantine(row)
        if done:
            store.hint()
        keys = {row.key for row in done}
        return [None if row.key in keys else self._change_alone(row) for row in page]

    def _change_alone(self, found: ScheduleRecord) -> str | None:
        """Change one schedule; return why it could not be changed."""
        is_begun = False
        try:
            for attempt in self.rows.tries(found.tenant, found.name, self.action):
                row = attempt.existing()
                # The first part of a long change may end the pause by which it matched.
                if not is_begun and not self.search.matches(row):
                    return f"schedule {found.name} has changed, and does not match any more"
                if attempt.write(self.decide(row, attempt.now)):
                    break
                is_begun = not attempt.is_lost
        except StoreUnavailable:
            raise
        except EvenbeatError as error:
            return str(error)
        return None
