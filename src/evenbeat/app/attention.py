"""Reads what needs somebody now: a few bounded searches, none of which reads the history."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from evenbeat.app.alerts.reports import undelivered
from evenbeat.app.backlogs import read_backlogs
from evenbeat.app.figures import read_quarantine
from evenbeat.core.attention import Attention
from evenbeat.core.instants import Instant
from evenbeat.core.records import ScheduleRecord
from evenbeat.node.presence import live_nodes
from evenbeat.node.stuck_work import latest_runs, read_stuck_work
from evenbeat.observe.attention import MOST_OF_A_KIND, AttentionFacts, Failing, Served, attention_of
from evenbeat.rules.schedule_filters import Entry, entry_of, is_failing
from evenbeat.rules.waiting import Taker
from evenbeat.stores.base import ScheduleQuery, Setting, Store
from evenbeat.stores.pages import every_schedule

_PAGE = 500
_CHECK_SERVER_EVERY = 300_000


class AttentionReader:
    """Reads what needs somebody now. ``store`` returns the store, open."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._settings: list[Setting] = []
        self._checked_at: Instant | None = None

    def read(self, owner: str | None, entries: Sequence[Entry] | None = None) -> Attention:
        """Return what needs somebody, of one tenant or of all.

        ``entries`` are all schedules, for a caller that has them in memory. Without them, all schedules are
        read from the store: no store has an index of failing ones.
        """
        # Among 100,000 schedules (1,000 of them failing) and 100,000 runs on SQLite, with entries: 20 ms,
        # half of it for the entries, also if 300 due runs wait for a node. 65 ms if no node is alive and all
        # schedules are late, since the store sorts the late ones. Without entries 1.4 s more.
        store = self._store()
        now = store.now()
        if entries is None:
            entries = _read_entries(store, owner)
        elif owner is not None:
            entries = [entry for entry in entries if entry.tenant == owner]
        active = [entry for entry in entries if entry.state == "active"]
        nodes = live_nodes(store)
        takers = [node.taker for node in nodes]
        queues = store.count_queues(now, now)
        work = read_stuck_work(store, owner, now, queues)
        failing, more_failing, has_all_failing = _failing(store, entries)
        unserved = _unserved(active, takers) if any(node.worker for node in nodes) else []
        quarantined = read_quarantine(store, owner, _PAGE)
        facts = AttentionFacts(
            now=now,
            has_ticker=any(node.ticker for node in nodes),
            nodes=takers,
            active=len(active),
            late=work.late,
            more_late=work.more_late,
            waiting=work.waiting,
            more_waiting=work.more_waiting,
            orphaned=work.orphaned,
            backlogs=list(read_backlogs(store, owner, now, queues, nodes)),
            unserved=unserved,
            running=work.running,
            usual=work.usual,
            failing=failing,
            more_failing=more_failing,
            quarantined=quarantined,
            undelivered=undelivered(store, owner, now),
            settings=self._server(store, now),
            is_partial=work.more_running
            or len(unserved) > MOST_OF_A_KIND
            or len(quarantined) >= _PAGE
            or not has_all_failing,
        )
        return attention_of(facts)

    def _server(self, store: Store, now: Instant) -> list[Setting]:
        """Return the settings of the server. They seldom change, and some servers need several queries."""
        with self._lock:
            last = self._checked_at
            if last is None or not last <= now < last + _CHECK_SERVER_EVERY:
                self._settings = store.server()
                self._checked_at = now
            return self._settings


def _read_entries(store: Store, owner: str | None) -> list[Entry]:
    """Read all schedules, as a search for failing ones does: 100,000 of them take 2.4 s on SQLite."""
    found: list[Entry] = []
    left = every_schedule(store, ScheduleQuery(tenant=owner, limit=_PAGE))
    while rows := list(islice(left, _PAGE)):
        failing = {(each.tenant, each.schedule): is_failing(each) for each in store.statistics(_keys(rows))}
        found += [replace(entry_of(row), failing=failing[row.key]) for row in rows]
    return found


def _keys(rows: Iterable[ScheduleRecord]) -> list[tuple[str, str]]:
    return [row.key for row in rows]


def _failing(store: Store, entries: Iterable[Entry]) -> tuple[list[Failing], int, bool]:
    """Return failing schedules that are not paused, those first that failed last; how many others there are;
    and whether this number is exact."""
    suspects = [entry.key for entry in entries if entry.failing and entry.state != "paused"]
    keys = suspects[:_PAGE]
    # The entries of a catalogue may be a second old.
    figures = [each for each in store.statistics(keys) if is_failing(each)] if keys else []
    figures.sort(key=lambda each: each.last_failure or 0, reverse=True)
    shown = figures[:MOST_OF_A_KIND]
    wanted = tuple((each.tenant, each.schedule) for each in shown)
    rows = {}
    if wanted:
        query = ScheduleQuery(keys=wanted, states=("active", "finished"), limit=len(wanted))
        rows = {row.key: row for row in store.find_schedules(query).items}
    found = [
        Failing(rows[each.tenant, each.schedule], each, latest_runs(store, each.tenant, each.schedule))
        for each in shown
        if (each.tenant, each.schedule) in rows
    ]
    return found, len(suspects) - len(keys) + len(figures) - len(shown), len(keys) == len(suspects)


def _unserved(active: Sequence[Entry], nodes: Sequence[Taker]) -> list[Served]:
    """Return active schedules whose task or queue no live worker takes."""
    # A set first: most schedules share their task with others.
    lacking = {
        (task, queue)
        for task, queue in {(entry.task, entry.queue) for entry in active}
        if not any(node.has(task) and queue in node.queues for node in nodes)
    }
    return list(_served(entry for entry in active if (entry.task, entry.queue) in lacking)) if lacking else []


def _served(entries: Iterable[Entry]) -> Iterator[Served]:
    numbers: Counter[tuple[str, str, str]] = Counter()
    names: dict[tuple[str, str, str], str] = {}
    for entry in entries:
        key = (entry.tenant, entry.task, entry.queue)
        numbers[key] += 1
        names.setdefault(key, entry.name)
    for key, number in numbers.most_common(MOST_OF_A_KIND + 1):
        yield Served(*key, number, names[key])
