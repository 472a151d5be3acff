"""The catalogue of 100,000 schedules: reading it, refreshing it, and the first page of each filter."""

from __future__ import annotations

import resource
import time
from typing import Any

from msgspec.structs import replace

from bench.measure import Row, percentile, samples
from bench.processes import scratch
from evenbeat.core.records import ScheduleRecord, ScheduleState
from evenbeat.rules import changes
from evenbeat.rules.firing import Planned
from evenbeat.stores.base import ScheduleQuery, Store, Write
from evenbeat.stores.urls import open_url
from evenbeat.web.catalogue import Catalogue, late_keys
from evenbeat.web.search import CatalogueQuery

SCHEDULES = 100_000
CALLS = 300
GOAL = 50

_BATCH = 2_000
_HOUR = 3_600_000
_WORDS = ["invoice", "report", "backup", "mail", "order", "customer", "export", "import", "cache", "index"]

# Each finds few or no schedules, or those at the end of the order, so that all entries are compared.
QUERIES: dict[str, dict[str, Any]] = {
    "no filter": {},
    "text, no match": {"text": "zzz"},
    "text, few matches": {"text": "needle"},
    "state": {"state": "paused"},
    "task": {"task": "task-77"},
    "tag": {"tag": "rare"},
    "tenant": {"tenant": "tenant-9"},
    "failing": {"failing": True},
    "late": {"late": True},
    "all together": {
        "text": "o",
        "state": "active",
        "queue": "default",
        "managed_by": "api",
        "tag": "rare",
        "sort": "-updated_at",
    },
}


def run() -> list[Row]:
    with scratch() as folder:
        store = open_url(f"sqlite:///{folder / 'bench.db'}")
        store.open()
        fill(store, SCHEDULES)
        rows = measure(store)
        store.close()
    return rows


def fill(store: Store, count: int, *, first: int = 0) -> None:
    """Add schedules of ten tenants, with texts like those of users; ``first`` is the number of the first."""
    now = store.now()
    for start in range(first, first + count, _BATCH):
        wanted = [_schedule(number) for number in range(start, min(start + _BATCH, first + count))]
        rows = [changes.create(schedule, now).schedule for schedule in wanted]
        # Long ago: a refresh reads the changes of the last minute again.
        store.put_schedules([Write(Planned(replace(row, updated_at=now - _HOUR)), None) for row in rows])


def _schedule(number: int) -> ScheduleRecord:
    state: ScheduleState = "paused" if number % 1_000 == 999 else "active"
    words = " ".join(_WORDS[(number * 7 + place * place) % 10] for place in range(10))
    return ScheduleRecord(
        tenant=f"tenant-{number % 10}",
        name=f"{_WORDS[number * 7 % 10]}-{number:06}",
        task=f"task-{number % 100}",
        trigger=f"{number % 60} {number // 60 % 24} * * *",
        description=f"{words} needle" if number % 5_000 == 0 else words,
        tags="nightly rare" if number % 2_000 == 0 else "nightly",
        state=state,
    )


def measure(store: Store) -> list[Row]:
    catalogue = Catalogue()
    memory, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    catalogue.refresh(store)
    load = (time.perf_counter() - begin) * 1000
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
    assert len(catalogue) == SCHEDULES
    rows = [
        Row("web", f"catalogue: first reading of {SCHEDULES:,} schedules", "ms", load),
        Row("web", f"catalogue: memory at most while it reads {SCHEDULES:,} schedules", "MB", grown),
        _row("catalogue: a refresh without changes", [_timed(catalogue, store) for _ in range(30)]),
        _row("catalogue: a refresh after one change", [_changed(catalogue, store) for _ in range(30)]),
    ]
    rows += [_search(catalogue, store, name, query) for name, query in QUERIES.items()]
    return rows


def _search(catalogue: Catalogue, store: Store, name: str, query: dict[str, Any]) -> Row:
    def first_page() -> None:
        late = late_keys(store, store.now()) if "late" in query else frozenset[tuple[str, str]]()
        page = catalogue.search(CatalogueQuery(limit=50, **query), late)
        store.find_schedules(ScheduleQuery(keys=page.keys, limit=50))

    taken = samples(first_page, CALLS)
    return _row(f"first page of {SCHEDULES:,} schedules, {name}", [each * 1000 for each in taken], GOAL)


def _timed(catalogue: Catalogue, store: Store) -> float:
    begin = time.perf_counter()
    catalogue.refresh(store)
    return (time.perf_counter() - begin) * 1000


def _changed(catalogue: Catalogue, store: Store) -> float:
    (before,) = store.find_schedules(ScheduleQuery(tenant="tenant-0", limit=1)).items
    now = store.now()
    after = replace(before, revision=before.revision + 1, updated_at=now, description=f"changed at {now}")
    store.put_schedules([Write(Planned(after), before.version)])
    return _timed(catalogue, store)


def _row(name: str, taken: list[float], goal: float | None = None) -> Row:
    ordered = sorted(taken)
    p50, p95, p99 = (percentile(ordered, share) for share in (0.5, 0.95, 0.99))
    target, met = ("", None) if goal is None else (f"p99 < {goal} ms", p99 < goal)
    return Row("web", name, "ms", p50, {}, target, met, p95, p99)


if __name__ == "__main__":
    for row in run():
        print(f"{row.name}: {row.ours:.2f} {row.unit}, p99 {row.p99 or row.ours:.2f} {row.goal} {row.met}")
