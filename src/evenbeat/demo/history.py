"""The demo's history: a week of a small shop and of its customer acme, written before the first start.

It happens in memory, by the real rules, and is then written to the store with a handful of calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import get_args

from evenbeat.app.acting import Via, acting_as
from evenbeat.app.scheduler import Scheduler
from evenbeat.core.instants import Instant, from_ms
from evenbeat.core.records import RunRecord, ScheduleState, Statistics, Transition
from evenbeat.demo.on_call import CHANNEL, CHANNEL_VARIABLE
from evenbeat.demo.past import Contents, Past, PastClock, PastStore
from evenbeat.demo.shop import add_tasks
from evenbeat.demo.shop_runs import DAY, HOUR, MINUTE, ShopRuns
from evenbeat.demo.shop_schedules import (
    CLOSED,
    CLOSED_DAYS,
    DECORATED,
    DEPLOYER,
    OLD_IMPORT,
    SCHEDULES,
    ZONE,
    ShopSchedule,
    clock_change_schedule,
    one_shot_schedule,
)
from evenbeat.rules.firing import Planned
from evenbeat.stores.base import RunQuery, ScheduleQuery, Store, Write
from evenbeat.triggers.zones import read_zone

WEEK = 7 * DAY
RETENTION = "45d"
"""How long the demo keeps runs: the night of the last clock change stays to be seen."""
_FARTHEST_CHANGE = 40 * DAY
# In both, half past two comes twice in autumn and not at all in spring.
_CHANGING_ZONES = (ZONE, "Australia/Sydney")
_CARLA = "carla@shop.example"


def is_empty(store: Store) -> bool:
    """Return whether a store has never had a schedule or a run."""
    schedules = store.find_schedules(ScheduleQuery(states=get_args(ScheduleState), limit=1))
    return not schedules.items and not store.find_runs(RunQuery(limit=1)).items


def write_history(store: Store) -> int:
    """Write a week of history that ends now; return the number of runs. The store must be open and empty."""
    contents = make_history(store.now())
    _write(store, contents)
    return len(contents.runs)


def make_history(end: Instant) -> Contents:
    """Return the week before ``end``. The same end gives the same history, apart from random ids."""
    zone, changed_at = _last_clock_change(end)
    start = end - WEEK - end % HOUR
    first = start if changed_at is None else min(start, changed_at - 36 * HOUR)
    clock = PastClock(first)
    store = PastStore(clock)
    app = Scheduler("memory://")
    add_tasks(app)
    with _quiet(), app.stand_in(store) as declarations:
        past = Past(
            app,
            store,
            clock,
            ShopRuns(end),
            end=end,
            outage=(end - 2 * DAY, end - 2 * DAY + HOUR),
            is_channel_broken=lambda _: False,
        )
        people = _People(app, past, end)
        people.create(first, clock_change_schedule(zone))
        for name in DECORATED:
            task = app.tasks.get(name)
            assert task is not None
            people.do(start, DEPLOYER, partial(declarations.declare_task, task), "python")
        people.do(start, "ana@shop.example", partial(app.calendars.set, CLOSED, days=CLOSED_DAYS))
        for schedule in (*SCHEDULES, OLD_IMPORT):
            people.create(start, schedule)
        people.create(end - 5 * DAY, one_shot_schedule(end - 4 * DAY - end % HOUR))
        people.set_up_alerts(start)
        people.live_through_the_week()
        past.go()
        contents = store.contents()
    return contents._replace(records=[*contents.records, *past.figures.values()])


@contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing: what happened long ago is not news."""
    log = logging.getLogger("evenbeat")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


def _last_clock_change(end: Instant) -> tuple[str, Instant | None]:
    """Return the zone whose clock changed last, and when; None if that is too long ago to be kept."""
    changes: dict[str, Instant] = {}
    for name in _CHANGING_ZONES:
        window = read_zone(name).window(end // 1000)
        if window.before != window.offset:
            changes[name] = window.lo * 1000
    zone = max(changes, key=lambda name: changes[name], default=ZONE)
    changed_at = changes.get(zone)
    return zone, None if changed_at is None or changed_at < end - _FARTHEST_CHANGE else changed_at


class _People:
    """What people did by hand, and programs by the API."""

    def __init__(self, app: Scheduler, past: Past, end: Instant) -> None:
        self._app = app
        self._past = past
        self._end = end

    def create(self, at: Instant, schedule: ShopSchedule) -> None:
        self.do(at, schedule.by, partial(schedule.add_to, self._app))

    def set_up_alerts(self, at: Instant) -> None:
        alerts = self._app.alerts
        ana = "ana@shop.example"
        self.do(at, ana, partial(alerts.channels.add, CHANNEL, "webhook", f"env:{CHANNEL_VARIABLE}"))
        for name, on, tag in (
            ("critical-failed", ["failed"], "critical"),
            ("failing", ["failing:3"], None),
            ("missed-links", ["missed"], "web"),
            ("backups", ["failed", "missed"], "backup"),
        ):
            self.do(at + 1, ana, partial(alerts.rules.add, name, on=on, to=[CHANNEL], tag=tag))

    def live_through_the_week(self) -> None:
        app, schedules, do = self._app, self._app.schedules, self._do_ago
        hour = self._end - self._end % HOUR
        ana, ben, carla, omar = "ana@shop.example", "ben@shop.example", _CARLA, "omar@acme.example"
        do(6 * DAY, ana, partial(app.tokens.create, "grafana", "viewer"))
        do(6 * DAY - HOUR, ana, partial(app.tokens.create, "acme support", "operator", tenant="acme"))
        do(6 * DAY - 2 * HOUR, ana, partial(app.tokens.create, "ci/deploy", "admin", expires="365d"))
        do(
            5 * DAY,
            ben,
            partial(
                schedules.update,
                "purge_sessions",
                trigger="*/20 * * * *",
                description="Deletes sessions that have expired. More often now: the table grows.",
            ),
        )
        do(
            4 * DAY,
            ana,
            partial(schedules.pause, "crm-sync", "the CRM is moved to another server", until="2h"),
        )
        do(4 * DAY - HOUR, omar, partial(schedules.run_now, "charge-accounts", tenant="acme"))
        do(3 * DAY - 14 * HOUR, ben, self._retry_report, "cli")
        do(2 * DAY + 9 * HOUR, ben, partial(schedules.delete, "old-import"), "cli")
        do(44 * HOUR, carla, self._cancel_transcoding)
        do(DAY + 5 * HOUR, ana, partial(schedules.pause_all, "a load test", tag="backup"))
        do(DAY + 4 * HOUR, ana, partial(schedules.resume_all, tag="backup"))
        note = "the mail provider has a fault, ticket 4711"
        until = from_ms(hour + 3 * DAY)
        do(DAY, carla, partial(schedules.pause, "newsletter", note, until=until))
        do(20 * HOUR, omar, partial(schedules.pause, "survey", "waits for the new questions", tenant="acme"))
        do(19 * HOUR, ben, partial(app.alerts.rules.mute, "backups", until=from_ms(hour + 12 * HOUR)))
        window = partial(
            app.alerts.windows.add,
            "database-upgrade",
            starts=from_ms(hour + 6 * HOUR),
            until=from_ms(hour + 8 * HOUR),
            tag="backup",
            note="The database moves to PostgreSQL 19.",
        )
        do(18 * HOUR, carla, window)
        tick = from_ms(hour + 5 * HOUR)
        do(2 * HOUR, ana, partial(schedules.reschedule, "transcode", tick))
        for day in range(1, 7):
            name = ("Zoë", "Ann", "Søren", "田中", "Olu", "Mia")[day - 1]
            welcome = partial(app.enqueue, "welcome.mail", {"name": name})
            do(day * DAY - 40 * MINUTE, "signup@shop.example", welcome)

    def _retry_report(self) -> None:
        failed = self._app.runs.list(schedule="nightly-report", state="failed", limit=1)
        self._app.runs.retry(failed[0].id)

    def _cancel_transcoding(self) -> None:
        """Run the film by hand, and cancel that a minute later."""
        run = self._app.schedules.run_now("transcode", {"film": "winter/take-7.mov"})

        def cancel() -> None:
            self._app.runs.cancel(run.id)
            self._past.cancel(run.id)

        self._do_ago(44 * HOUR - MINUTE, _CARLA, cancel)

    def _do_ago(self, ago: int, actor: str, action: Callable[[], object], via: Via = "api") -> None:
        self.do(self._end - ago, actor, action, via)

    def do(self, at: Instant, actor: str, action: Callable[[], object], via: Via = "api") -> None:
        def act() -> None:
            with acting_as(actor, via):
                action()
            self._past.look()

        self._past.at(at, act)


def _write(store: Store, contents: Contents) -> None:
    """Write everything to a store: the schedules with all that belongs to them in one call."""
    runs: dict[tuple[str, str], list[RunRecord]] = {}
    for run in contents.runs:
        if run.schedule is not None:
            runs.setdefault((run.tenant, run.schedule), []).append(run)
    writes: list[Write] = []
    for number, schedule in enumerate(contents.schedules):
        planned = Planned(
            schedule,
            tuple(runs.get(schedule.key, ())),
            tuple(row for row in contents.skipped if (row.tenant, row.schedule) == schedule.key),
            # Records belong to no schedule; the first one brings them along.
            records=tuple(contents.records) if number == 0 else (),
        )
        writes.append(Write(planned, None))
    written = store.put_schedules(writes)
    assert all(each.accepted for each in written), "the store was not empty"
    store.add_runs([run for run in contents.runs if run.schedule is None])
    store.append_log(contents.logs)
    store.settle_runs([_counts(figures, runs) for figures in contents.statistics])


def _counts(figures: Statistics, runs: dict[tuple[str, str], list[RunRecord]]) -> Transition:
    """Return a transition that adds the statistics of a schedule, and changes nothing else.

    Stores change statistics only together with a run.
    """
    run = runs[figures.tenant, figures.schedule][-1]
    return Transition(
        run=run.id,
        attempt=run.attempt,
        claim=run.claim,
        expect=(run.state,),
        token=f"history-{run.id}",
        counts=figures,
    )
