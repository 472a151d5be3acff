"""Writes batches even if the database refuses some of their rows: one bad row does not stop the others.

``in_parts`` is for any batch that a caller has. ``Refusals`` is for firing, where the store itself chooses
the rows. A batch that the database refuses is fired again in halves, down to the schedule that is refused
alone. That one waits: ``rules.refusals.back_off`` moves its wake-up. If the database refuses even
that write, this process leaves the schedule out for a while. A refused schedule is tried again after all
others, so that it delays none of them. Nothing of this is used before the first refusal.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import ScheduleRecord
from evenbeat.errors import RowRefused, StoreUnavailable, TooLarge
from evenbeat.rules.firing import Planned
from evenbeat.rules.refusals import LONGEST_WAIT, back_off
from evenbeat.stores.base import Claim, Claimed, Fired, PlanFunction
from evenbeat.stores.damage import Key

_log = logging.getLogger("evenbeat.store")

T = TypeVar("T")
A = TypeVar("A")

REFUSALS = (RowRefused, TooLarge)
"""The errors that concern the rows of a write, and not the whole database."""

NOTHING: frozenset[Key] = frozenset()
NO_RUNS: frozenset[str] = frozenset()
# How many steps one call makes after a refusal, before the others have their turn again.
_STEPS = 40
# How many refused schedules a process remembers. It tries others of them together with sound ones.
_MOST_REMEMBERED = 10_000
# For how many ms after the last refusal it remembers them.
_REMEMBERED_FOR = 10 * LONGEST_WAIT
MOST_UNDELETED = 1_000
"""How many rows that can't be deleted a purge passes over."""


def in_parts(
    write: Callable[[Sequence[T]], list[A]],
    items: Sequence[T],
    refuse: Callable[[T, Exception], A],
    on_split: Callable[[Exception], None] = lambda _error: None,
) -> Iterator[list[A]]:
    """Call ``write`` and yield its answers, part by part, in the order of the items.

    There is one part, unless ``write`` raises: then its halves are written, and their halves. ``refuse``
    answers for an item that can't be written alone. ``on_split`` is called once, before the first halves.
    ``StoreUnavailable`` is raised at once: the parts that were yielded before are written.
    """
    try:
        answers = write(items)
    except StoreUnavailable:
        raise
    except Exception as error:
        if len(items) > 1:
            on_split(error)
            middle = len(items) // 2
            for half in (items[:middle], items[middle:]):
                yield from in_parts(write, half, refuse)
            return
        answers = [refuse(items[0], error)] if items else []
    yield answers


def write_each(write: Callable[[Sequence[T]], None], rows: Sequence[T], what: Callable[[T], str]) -> list[T]:
    """Write rows, and return those that the database refuses, which are logged. ``what`` names a row."""
    refused: list[T] = []

    def written(part: Sequence[T]) -> list[None]:
        write(part)
        return [None] * len(part)

    def refuse(row: T, error: Exception) -> None:
        refused.append(row)
        _log.warning("the database refuses to change %s: %s", what(row), error, extra={"component": "store"})

    for _ in in_parts(written, rows, refuse):
        pass
    return refused


def delete_in_parts(delete: Callable[[Sequence[T]], None], found: Sequence[T], limit: int) -> int:
    """Delete up to ``limit`` of the found rows, without those that the database refuses to delete; return how
    many."""
    gone = at = 0
    while at < len(found) and gone < limit:
        some = found[at : at + limit - gone]
        at += len(some)
        gone += len(some) - len(write_each(delete, some, lambda row: f"a row that it should delete ({row})"))
    return gone


class Selection(NamedTuple):
    """Which due schedules a step of firing takes."""

    limit: int
    without: frozenset[Key] = NOTHING
    """Schedules to leave out. They do not count for the next wake-up."""

    @property
    def most_read(self) -> int:
        """How many rows to read to find ``limit`` of them."""
        return self.limit + len(self.without)

    def chosen(self, rows: list[T], key: Callable[[T], Key]) -> list[T]:
        """Return the rows to fire of those that were read."""
        return [row for row in rows if key(row) not in self.without][: self.limit] if self.without else rows


Attempt: TypeAlias = Callable[[Selection, PlanFunction], Fired]
"""Fires due schedules in one atomic step. Raises FireRefused."""


class FireRefused(Exception):
    """The database refused a step of firing, and wrote nothing. Never leaves the store."""

    def __init__(
        self, rows: Sequence[ScheduleRecord], unreadable: Sequence[Key], error: RowRefused | TooLarge
    ) -> None:
        """``rows`` are the schedules that it planned, ``unreadable`` those that it quarantined."""
        super().__init__(str(error))
        self.rows = [row for row in rows if row.key not in unreadable]
        self.keys = [*(row.key for row in self.rows), *unreadable]
        self.error = error
        self.reason = error.reason if isinstance(error, RowRefused) else str(error)


class Refusals:
    """The schedules that the database has refused to fire, as one store object remembers them."""

    def __init__(self) -> None:
        self._refused: dict[Key, Instant] = {}
        """Until when to leave each of them out; 0 if its wake-up says when to try it again."""
        self._forget_at: Instant = 0
        """When to forget all of them: other nodes may fire them, or users delete them."""

    def fire(self, attempt: Attempt, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        """Fire due schedules in one step; after a refusal, in several. ``now`` is not ahead of the store's
        own clock."""
        size = limit
        if self._refused and now >= self._forget_at:
            self._refused.clear()
        if not self._refused:
            try:
                return attempt(Selection(limit), plan)
            except FireRefused as refusal:
                size = _half(refusal)
        done = _Done()
        try:
            # The sound ones first: they must not wait for the refused ones.
            left = self._fire_parts(attempt, now, Part(limit, size, plan, is_sound=True), done)
            if left > 0:
                self._fire_parts(attempt, now, Part(left, 1, plan, is_sound=False), done)
        except StoreUnavailable:
            if not done.has_any:
                raise
            done.next_wake = now  # what was written is reported, and the next call meets the error
        return done.fired(self.next_wake(done.next_wake, now))

    def left_out(self, now: Instant) -> frozenset[Key]:
        """Return the schedules that this process does not even try now."""
        if not self._refused:
            return NOTHING
        # A copy: another thread may fire, too.
        return frozenset(key for key, until in list(self._refused.items()) if until > now)

    def next_wake(self, found: Instant | None, now: Instant) -> Instant | None:
        """Return when to fire again; ``found`` is the next wake-up without those that are left out."""
        if not self._refused:
            return found
        wakes = [until for until in list(self._refused.values()) if until > now]
        return min(wakes if found is None else [found, *wakes], default=None)

    def _fire_parts(self, attempt: Attempt, now: Instant, part: Part, done: _Done) -> int:
        """Fire parts until nothing is due; return how many schedules this call may still fire."""
        limit, size, plan, is_sound = part
        done.next_wake = now  # unless the last step finds nothing more
        for _ in range(_STEPS):
            without = frozenset(self._refused) if is_sound else self.left_out(now)
            try:
                fired = attempt(Selection(size, without), plan)
            except FireRefused as refusal:
                size = _half(refusal)
                if len(refusal.keys) == 1:
                    self._set_aside(attempt, now, refusal, done)
                    limit -= 1
            else:
                done.add(fired)
                count = len(fired.planned) + len(fired.quarantined)
                for planned in fired.planned:
                    self._refused.pop(planned.schedule.key, None)
                limit, size = limit - count, size * 2
                if count == 0 or fired.next_wake is None or fired.next_wake > now:
                    done.next_wake = fired.next_wake
                    return limit
            size = min(size, limit)
            if limit <= 0:
                break
        return 0

    def _set_aside(self, attempt: Attempt, now: Instant, refusal: FireRefused, done: _Done) -> None:
        """Move the wake-up of a schedule that is refused alone; if that is refused, too, leave it out."""
        (key,) = refusal.keys
        self._forget_at = now + _REMEMBERED_FOR
        for forgotten in list(self._refused)[_MOST_REMEMBERED:]:
            self._refused.pop(forgotten, None)
        waits: list[Planned] = []

        def wait(row: ScheduleRecord, planned_at: Instant, *_rest: object) -> Planned:
            # Other rows stay as they are: another node has written the refused one meanwhile.
            planned = back_off(row, planned_at, refusal.reason) if row.key == key else Planned(row)
            if row.key == key:
                waits.append(planned)
            return planned

        try:
            attempt(Selection(1, frozenset(self._refused) - {key}), wait)
        except FireRefused:
            self._refused[key] = now + LONGEST_WAIT
            if refusal.rows:
                waits = [back_off(refusal.rows[0], now, refusal.reason)]
            done.add(Fired(tuple(waits), None, () if refusal.rows else (key,)))
        else:
            if waits:
                self._refused[key] = 0
            done.add(Fired(tuple(waits[-1:]), None))


class Part(NamedTuple):
    """What to fire in several steps."""

    limit: int
    size: int
    """How many schedules the first step fires."""
    plan: PlanFunction
    is_sound: bool
    """Whether to fire only schedules that were not refused before."""


class _Done:
    """The results of several steps."""

    def __init__(self) -> None:
        self.has_any = False
        self.next_wake: Instant | None = None
        self._planned: list[Planned] = []
        self._quarantined: list[Key] = []
        self._lost: list[Key] = []

    def add(self, fired: Fired) -> None:
        self.has_any = True
        self._planned += fired.planned
        self._quarantined += fired.quarantined
        self._lost += fired.lost

    def fired(self, next_wake: Instant | None) -> Fired:
        return Fired(tuple(self._planned), next_wake, tuple(self._quarantined), tuple(self._lost))


def _half(refusal: FireRefused) -> int:
    return max(1, len(refusal.keys) // 2)


class ClaimRefused(Exception):
    """The database refused to start or to change these runs, and the claim wrote nothing. Never leaves the
    store.

    ``are_chosen``: whether the claim's limit bounds how many they are.
    """

    def __init__(self, ids: Sequence[str], error: RowRefused, *, are_chosen: bool = True) -> None:
        super().__init__(str(error))
        self.ids = list(ids)
        self.are_chosen = are_chosen


class ClaimRefusals:
    """The runs that the database refuses to start, as one store object remembers them: claims leave them out
    for a while, and take the others."""

    def __init__(self) -> None:
        self._left_out: dict[str, Instant] = {}

    def claim(
        self, attempt: Callable[[Claim], Claimed], wanted: Claim, clock: Callable[[], Instant]
    ) -> Claimed:
        """Claim runs; after a refusal in smaller parts, down to the run that is refused alone. ``clock`` is
        the store's own."""
        if not self._left_out:
            with contextlib.suppress(ClaimRefused):
                return attempt(wanted)
        now, size, passed = clock(), wanted.limit, NO_RUNS
        for _ in range(_STEPS):
            without = self.left_out(now)
            request = wanted
            if without or passed or size != wanted.limit:
                request = replace(wanted, limit=size, without=without | passed)
            try:
                claimed = attempt(request)
            except ClaimRefused as refusal:
                middle = max(1, len(refusal.ids) // 2)
                if len(refusal.ids) == 1:
                    fields = {"component": "store", "job_id": refusal.ids[0]}
                    message = "the database refuses to start a run, which is tried again: %s"
                    _log.error(message, refusal, extra=fields)
                    self.leave_out(refusal.ids[0], now)
                elif refusal.are_chosen:
                    size = middle
                else:
                    passed |= frozenset(refusal.ids[middle:])
                continue
            if without:
                waits = [until for until in list(self._left_out.values()) if until > now]
                moments = [moment for moment in (claimed.next_due, *waits) if moment is not None]
                claimed = claimed._replace(next_due=min(moments, default=None))
            return claimed._replace(next_due=now) if passed or size != wanted.limit else claimed
        return Claimed((), now)

    def left_out(self, now: Instant) -> frozenset[str]:
        """Return the runs that this process does not try to start now."""
        if not self._left_out:
            return NO_RUNS
        for run_id, until in list(self._left_out.items()):
            if until <= now:
                self._left_out.pop(run_id, None)
        return frozenset(list(self._left_out))

    def leave_out(self, run_id: str, now: Instant) -> None:
        """Remember a run that is refused alone."""
        for forgotten in list(self._left_out)[_MOST_REMEMBERED:]:
            self._left_out.pop(forgotten, None)
        self._left_out[run_id] = now + LONGEST_WAIT
