"""Searches for schedules and runs, their pages, and the selection of ended runs to purge.

Other modules import these names from ``stores.base``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.core.records import ACTIVE_STATES, FINAL_STATES, RunRecord, RunState, ScheduleState
from evenbeat.errors import InvalidValue, shown
from evenbeat.rules.attempts import is_retrying, was_running
from evenbeat.rules.retention import Held

T = TypeVar("T")

LargeField: TypeAlias = Literal["payload", "result", "error"]
"""The fields of a run that may be large: a payload or a result has up to a megabyte or more."""
LARGE_FIELDS: tuple[LargeField, ...] = get_args(LargeField)
VALUES: tuple[LargeField, ...] = ("payload", "result")
LEFT_OUT: dict[LargeField, str | None] = {"payload": "null", "result": None, "error": None}
"""The value of each large field in a run that was read without it."""


def check_limit(limit: int) -> int:
    """Refuse a negative limit: databases read it as "all", as an error or as another number."""
    if not isinstance(limit, int):
        raise InvalidValue(f"limit {shown(limit)} is not a whole number", field="limit", value=limit)
    if limit < 0:
        raise InvalidValue(f"limit {limit} is negative", field="limit", value=limit, hint="give 0 or more")
    return limit


class Page(NamedTuple, Generic[T]):
    """A part of the result, in order. ``cursor`` continues after it; None at the end."""

    items: tuple[T, ...]
    cursor: str | None


class ScheduleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A search for schedules, in the order (tenant, name). Finds deleted ones only if ``states`` names
    them."""

    tenant: str | None = None
    name: str | None = None
    keys: tuple[tuple[str, str], ...] | None = None
    """Only these schedules, by (tenant, name)."""
    states: tuple[ScheduleState, ...] = ("active", "paused", "finished")
    task: str | None = None
    changed_since: Instant | None = None
    """Only schedules whose definition or pause changed at or after this instant. Firing does not count."""
    wakes_before: Instant | None = None
    """Only schedules with a wake-up before this instant: late ones, if the instant is past. Reads these
    alone, however many schedules there are."""
    limit: int = 100
    cursor: str | None = None

    def __post_init__(self) -> None:
        check_limit(self.limit)

    @property
    def unwanted(self) -> list[str]:
        """The states that do not match. The state of a damaged row is none of them, so a search finds the
        row."""
        return [state for state in get_args(ScheduleState) if state not in self.states]


# A node's estimate of the store's clock sets created_at; the clock itself sets started_at.
_CLOCKS_APART = 60_000


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A search for runs, the newest first (created_at, then id)."""

    ids: tuple[str, ...] | None = None
    tenant: str | None = None
    schedule: str | None = None
    task: str | None = None
    queue: str | None = None
    states: tuple[RunState, ...] | None = None
    worker: str | None = None
    """Only runs that this worker holds, and ended runs that it was the last to hold."""
    cancel_requested: bool | None = None
    retrying: bool = False
    """Only queued runs that have failed before."""
    since: Instant | None = None
    """Only runs that were running, or ended, at or after this instant, as ``was_running`` says."""
    until: Instant | None = None
    """Only runs that were running, or ended, before this instant."""
    created_since: Instant | None = None
    """Only runs that were created at or after this instant. Reads no earlier ones."""
    finished_since: Instant | None = None
    """Only runs that ended at or after this instant. Reads these alone, however long the history is."""
    without: tuple[LargeField, ...] = ()
    """Large fields that the caller does not need. The database does not send them, and the runs have the
    values of LEFT_OUT instead. Never write such a run to the store."""
    limit: int = 100
    cursor: str | None = None

    def __post_init__(self) -> None:
        check_limit(self.limit)

    @property
    def created_by(self) -> Instant | None:
        """The upper bound of ``created_at`` for ``until``: a run that was created later was not running
        before ``until``."""
        return None if self.until is None else self.until + _CLOCKS_APART

    @property
    def is_about_active_runs_of_a_schedule(self) -> bool:
        """Whether only active runs of one schedule match. These are few, however long the history is."""
        is_one = self.tenant is not None and self.schedule is not None
        return is_one and bool(self.states) and ACTIVE_STATES.issuperset(self.states or ())

    @property
    def is_about_queued_runs_of_a_queue(self) -> bool:
        """Whether only queued runs of one queue match. Few runs wait, however long the history is."""
        return self.states == ("queued",) and self.queue is not None

    def asks_for(self, states: Iterable[str]) -> bool:
        """Whether runs in any of these states may match."""
        return self.states is None or not frozenset(states).isdisjoint(self.states)

    def matches(self, run: RunRecord) -> bool:
        """Whether a run matches, for stores without an index for the query. Does not compare ids."""
        return (
            (self.tenant is None or run.tenant == self.tenant)
            and (self.schedule is None or run.schedule == self.schedule)
            and (self.task is None or run.task == self.task)
            and (self.queue is None or run.queue == self.queue)
            and (self.states is None or run.state in self.states)
            and (self.worker is None or run.worker == self.worker)
            and (self.cancel_requested is None or run.cancel_requested == self.cancel_requested)
            and (not self.retrying or is_retrying(run))
            and ((self.since is None and self.until is None) or was_running(run, self.since, self.until))
            and (self.created_since is None or run.created_at >= self.created_since)
            and (
                self.finished_since is None
                or (run.finished_at is not None and run.finished_at >= self.finished_since)
            )
        )


class EndedRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Selects ended runs to purge."""

    states: tuple[RunState, ...] = ("succeeded", "failed", "cancelled")
    """Final states."""
    tenant: str | None = None
    spared: tuple[str, ...] = ()
    """Tenants whose runs stay, if no ``tenant`` is given."""
    since: Instant | None = None
    """Only runs that ended at or after this instant. Earlier ones are not read: they were spared before."""
    others: bool = False
    """Whether ledger rows and expired records go, too."""
    held: tuple[Held, ...] = ()
    """Runs that stay although they are selected, because they ended too recently."""

    @property
    def is_every_run(self) -> bool:
        """Whether all ended runs are selected."""
        return len(self.states) == len(FINAL_STATES) and self.tenant is None and not self.spared


EVERYTHING = EndedRuns(others=True)
