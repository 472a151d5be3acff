"""What incidents depend on: schedules, their statistics, and the successes of tasks."""

from __future__ import annotations

from collections.abc import Iterable

from evenbeat.alerts.polling import schedules_of
from evenbeat.core.instants import Instant
from evenbeat.core.records import ScheduleRecord, Statistics
from evenbeat.rules.alert_records import StoredIncident
from evenbeat.rules.alert_rules import Subject
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, Store

_OVERLAP = 60_000
"""A run may be recorded so much later, in ms, than the end that it states; and a turn may go on for so long
after it has read the clock."""

_MOST_SUCCESSES = 200


def schedule_keys(incidents: Iterable[StoredIncident]) -> list[tuple[str, str]]:
    """Return (tenant, name) of the schedules of incidents."""
    return [(each.tenant or "", each.schedule) for each in incidents if each.schedule is not None]


class Facts:
    """Schedules and statistics, read at most once in a turn."""

    def __init__(self, store: Store, successes: TaskSuccesses, now: Instant) -> None:
        self._store = store
        self._successes = successes
        self._now = now
        self.rows: dict[tuple[str, str], ScheduleRecord] = {}
        self._statistics: dict[tuple[str, str], Statistics] = {}
        self._asked: set[tuple[str, str]] = set()

    def read(self, keys: Iterable[tuple[str, str]]) -> None:
        """Read schedules, without deleted ones, and their statistics."""
        wanted = sorted(set(keys) - self._asked)
        if not wanted:
            return
        self._asked.update(wanted)
        self.rows |= {row.key: row for row in schedules_of(self._store, wanted)}
        for found in self._store.statistics(wanted):
            self._statistics[found.tenant, found.schedule] = found

    def schedule_of(self, incident: StoredIncident) -> ScheduleRecord | None:
        """Return the schedule of an incident, which ``read`` has read; None if it is deleted."""
        return self.rows.get((incident.tenant or "", incident.schedule or ""))

    def ended_at(self, subject: Subject, family: str, incident: StoredIncident | None) -> Instant | None:
        """Return when the last thing happened that ends an incident: a success, or a fire after a miss.

        None if it lies in the future: the clock was set back, and the incident may be younger.
        """
        ended_at = self._ended_at(subject, family, incident)
        return None if ended_at is not None and ended_at > self._now + _OVERLAP else ended_at

    def successes_between(self, subject: Subject, start: Instant, end: Instant) -> list[Instant]:
        """Return when runs of a subject succeeded between two failures, as far as 200 of the latest say."""
        query = RunQuery(
            tenant=subject.tenant,
            schedule=subject.schedule,
            task=subject.task if subject.schedule is None else None,
            states=("succeeded",),
            finished_since=start,
            without=LARGE_FIELDS,
            limit=_MOST_SUCCESSES,
        )
        ends = (run.finished_at for run in self._store.find_runs(query).items)
        return [at for at in ends if at is not None and start < at < end]

    def _ended_at(self, subject: Subject, family: str, incident: StoredIncident | None) -> Instant | None:
        if subject.kind == "task":
            return None if incident is None else self._successes.find(subject, incident, self._now)
        key = (subject.tenant or "", subject.schedule or "")
        if family == "missed":
            row = self.rows.get(key)
            return None if row is None else row.last_fire
        found = self._statistics.get(key)
        return None if found is None else found.last_success


class TaskSuccesses:
    """Finds out whether runs of a task succeed again. Tasks without a schedule have no statistics."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._none_until: dict[str, Instant] = {}
        """By id of an incident: no run of the task had succeeded until then. A question reads only the runs
        that ended since the last one."""

    def find(self, subject: Subject, incident: StoredIncident, now: Instant) -> Instant | None:
        """Return when a run of the task succeeded after the last failure of an incident."""
        since = max(incident.changed_at + 1, self._none_until.get(incident.id, 0) - _OVERLAP)
        query = RunQuery(
            tenant=subject.tenant,
            task=subject.name,
            states=("succeeded",),
            finished_since=since,
            without=LARGE_FIELDS,
            limit=1,
        )
        found = next((run.finished_at for run in self._store.find_runs(query).items), None)
        if found is None:
            self._none_until[incident.id] = now
        return found

    def forget_all_but(self, incidents: Iterable[StoredIncident]) -> None:
        """Forget incidents that have ended."""
        present = {incident.id for incident in incidents}
        self._none_until = {key: at for key, at in self._none_until.items() if key in present}
