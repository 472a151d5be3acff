"""One turn of the watch: signals and polled conditions become incidents, and incidents become deliveries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from evenbeat.alerts.facts import Facts, schedule_keys
from evenbeat.alerts.open_incidents import OpenIncidents, RuleKey, rule_key
from evenbeat.alerts.polling import POLLED, Findings, Poller, run_subject, schedule_subject
from evenbeat.alerts.turns import TurnBody
from evenbeat.core.alerts import Announcement, Message
from evenbeat.core.ids import first_key_of
from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record
from evenbeat.node.signals import end_key, end_signal
from evenbeat.rules.alert_records import (
    PAST,
    PENDING,
    SIGNAL,
    WINDOW,
    Signal,
    StoredDelivery,
    StoredIncident,
    delivery_id,
    read_body,
)
from evenbeat.rules.alert_rules import (
    FAILED,
    Rule,
    RuleIndex,
    Subject,
    Window,
    family_of,
    muted_by,
    read_windows,
)
from evenbeat.rules.conditions import Condition
from evenbeat.rules.incidents import Finding, closed, take_finding, take_signals
from evenbeat.stores.base import VALUES, RunQuery, Store

BATCH = 200
LOOK_BACK = 360_000
"""For this many ms after a rule was added, failures without a signal count, too. A node reads the rules
within 5 s after a hint, and every 300 s without one (``service.REST``)."""
MOST_LOOKED_BACK = 100
"""How many of them, the newest. An incident remembers more keys than that (``incidents.SIGNALS_KEPT``)."""
_MOST_BATCHES = 50
_LOST_NODE_KEPT = 3_600_000
"""An incident about a lost node ends after so many ms: a node that is started again has another name."""
_FAMILIES = {"failed": FAILED, "missed": "missed"}
"""By kind of signal: the family of the incidents that count it."""
_ENDED = ("failed", "succeeded", "cancelled")
"""The kinds of signals of runs."""

_log = logging.getLogger("evenbeat.alerts.watch")


class Texts(Protocol):
    """The texts of announcements: the module ``alerts/texts.py``."""

    def incident_message(
        self, incident: StoredIncident, announcement: Announcement, delivery: str, link_base: str | None
    ) -> Message: ...

    def run_message(
        self, signal: Signal, trigger: str | None, delivery: str, link_base: str | None
    ) -> Message: ...


class Announcer(NamedTuple):
    """Makes the messages of deliveries."""

    texts: Texts
    link_base: str | None = None
    why: Callable[[StoredIncident], str | None] = lambda _: None
    """Returns the sentence that explains an incident."""

    def incident_message(self, incident: StoredIncident, kind: Announcement, delivery: str) -> Message:
        try:
            why = self.why(incident)
        except Exception:
            # The sentence is a help. An alert without it is better than none.
            _log.debug("an incident can't be explained", exc_info=True, extra={"component": "alerts"})
            why = None
        return self.texts.incident_message(replace(incident, why=why), kind, delivery, self.link_base)


class Evaluation:
    """One turn of the watch. May raise ``TurnLost``; then another process goes on."""

    def __init__(
        self,
        store: Store,
        read_rules: Callable[[], Sequence[Rule]],
        incidents: OpenIncidents,
        facts: Facts,
        poller: Poller,
        announcer: Announcer,
        now: Instant,
    ) -> None:
        self._store = store
        self._read_rules = read_rules
        self._incidents = incidents
        # After the incidents: the rule of each is among them, unless it was deleted.
        self._rules = RuleIndex(self._read_rules())
        self._facts = facts
        self._poller = poller
        self._announcer = announcer
        self._now = now
        self._windows: tuple[Window, ...] = read_windows(store.find_records(WINDOW))

    # -- signals -------------------------------------------------------------------------------------------

    def take_signals(self) -> None:
        """Count the signals that nodes left, in the incidents of the rules that cover them."""
        for _ in range(_MOST_BATCHES):
            records = self._store.find_records(SIGNAL, limit=BATCH)
            if not records:
                return
            # After the signals: a signal that no rule asks for is deleted, and its rule may be a new one.
            self._rules = RuleIndex(self._read_rules())
            if not self._take_batch(records):
                return

    def _take_batch(self, records: Sequence[Record]) -> bool:
        """Return whether there may be more to do: a signal was taken in, or an incident ended."""
        by_key = {(record.tenant, record.key): record for record in records}
        groups: dict[tuple[Subject, str], list[tuple[str, Signal]]] = {}
        done: set[tuple[str, str]] = set()
        read = {key: _signal_of(record) for key, record in by_key.items()}
        known = [signal for signal in read.values() if signal is not None]
        self._facts.read((signal.tenant, signal.schedule) for signal in known if signal.schedule is not None)
        for key, signal in read.items():
            family = None if signal is None else _FAMILIES.get(signal.kind)
            if signal is None or family is None:
                done.add(key)
            else:
                group = groups.setdefault((self._subject_of(signal), family), [])
                group.append((key[1], signal))
            if signal is not None and signal.kind in _ENDED:
                self._announce_run(signal, key[1])
        has_ended = False
        for (subject, family), signals in groups.items():
            used, is_over = self._take_group(subject, family, signals)
            done |= {(signals[0][1].tenant, key) for key in used}
            has_ended = has_ended or is_over
        for key in done:
            self._store.delete_record(SIGNAL, *key, by_key[key].version)
        # After the signals: one that is read again must find its incident, or the record of its end.
        self._announce_all()
        return bool(done) or has_ended

    def _take_group(
        self, subject: Subject, family: str, signals: list[tuple[str, Signal]]
    ) -> tuple[set[str], bool]:
        """Return the keys of the signals to delete, and whether an incident has ended."""
        used = {key for key, _ in signals}
        has_ended = False
        for rule in self._rules.covering(subject):
            if rule.condition_of(family) is None:
                continue
            taken, is_over = self._take_for(rule, subject, family, signals)
            used &= taken
            has_ended = has_ended or is_over
        return used, has_ended

    def _take_for(
        self, rule: Rule, subject: Subject, family: str, signals: list[tuple[str, Signal]]
    ) -> tuple[frozenset[str] | set[str], bool]:
        """Count signals in the incident of one rule. Return the keys that it needs no more, and whether the
        incident has ended."""
        before = self._incidents.get(rule, family, subject)
        ended_at = self._facts.ended_at(subject, family, before)
        taken = take_signals(
            before,
            rule,
            family,
            subject,
            signals,
            ended_at=ended_at,
            earlier_ends=self._earlier_ends(subject, family, before, signals, ended_at),
            muted_by=muted_by(rule, subject, self._windows, self._now),
            now=self._now,
        )
        if taken.incident is None or not self._incidents.put(taken.incident):
            return {key for key, _ in signals}, False
        is_over = taken.incident.closed_at is not None
        return taken.used, is_over and (before is None or before.closed_at is None)

    def look_back(self) -> None:
        """Count failures since a rule was added that left no signal: the nodes did not know the rule yet.

        A failure whose signal was counted has the same key, and is not counted again. Reads nothing unless a
        rule is younger than LOOK_BACK.
        """
        young = [
            rule
            for rule in self._rules.by_key.values()
            if rule.condition_of(FAILED) is not None and self._now - rule.body.created_at < LOOK_BACK
        ]
        for rule in young:
            groups = self._unsignalled(rule)
            for subject, signals in groups.items():
                self._take_for(rule, subject, FAILED, signals)
        if young:
            self._announce_all()

    def _unsignalled(self, rule: Rule) -> dict[Subject, list[tuple[str, Signal]]]:
        """Return the failures since a rule was added, but for those of incidents that have ended."""
        since = rule.body.created_at
        query = RunQuery(
            tenant=rule.owner,
            schedule=rule.body.schedule,
            states=("failed",),
            finished_since=since,
            without=VALUES,
            limit=MOST_LOOKED_BACK,
        )
        runs = self._store.find_runs(query).items
        if not runs:
            return {}
        # By the beginnings of incidents. None is before the rule: the clocks of nodes differ a bit.
        start, end = first_key_of(self._now + LOOK_BACK), first_key_of(since - LOOK_BACK)
        past = self._store.find_records(PAST, rule.owner, start=start, end=end)
        ended = (read_body(record, StoredIncident) for record in past)
        counted = {
            key for each in ended if each is not None and rule_key(each) == rule.key for key in each.signals
        }
        self._facts.read((run.tenant, run.schedule) for run in runs if run.schedule is not None)
        groups: dict[Subject, list[tuple[str, Signal]]] = {}
        for run in runs:
            key = end_key(run, run.attempt)
            signal = end_signal(run, "failed", run.error, run.finished_at or self._now)
            subject = self._subject_of(signal)
            if key not in counted and rule.covers(subject):
                groups.setdefault(subject, []).append((key, signal))
        return groups

    def _earlier_ends(
        self,
        subject: Subject,
        family: str,
        incident: StoredIncident | None,
        signals: list[tuple[str, Signal]],
        ended_at: Instant | None,
    ) -> list[Instant]:
        """Return the successes between the failures of one turn, which then are not in a row.

        The statistics of a schedule have its last success alone. So this asks the store, but only if that
        success comes after the first of several failures: a schedule that fails and succeeds within seconds.
        """
        times = [signal.at for _, signal in signals]
        if incident is not None:
            times.append(incident.changed_at)
        start, end = min(times), max(times)
        is_task = subject.schedule is None
        may_be_any = is_task or (ended_at is not None and ended_at > start)
        if family != FAILED or start == end or not may_be_any:
            return []
        return self._facts.successes_between(subject, start, end)

    def _announce_run(self, signal: Signal, key: str) -> None:
        """Write the deliveries of rules with the condition ``runs``."""
        subject = self._subject_of(signal)
        for rule in self._rules.covering(subject):
            if not rule.of_kind("runs"):
                continue
            if muted_by(rule, subject, self._windows, self._now) is not None:
                continue
            row = self._facts.rows.get((signal.tenant, signal.schedule or ""))
            for channel in dict.fromkeys(rule.body.to):
                delivery = delivery_id(f"{rule.scope}/{rule.name}/{key}", "run", channel, signal.at)
                message = self._announcer.texts.run_message(
                    signal, None if row is None else row.trigger, delivery, self._announcer.link_base
                )
                body = StoredDelivery(
                    message=replace(message, rule=rule.name),
                    channel=channel,
                    scope=rule.scope,
                    created_at=self._now,
                )
                self._store.put_record(
                    Record(kind=PENDING, tenant=signal.tenant, key=delivery, body=encode(body))
                )

    def _subject_of(self, signal: Signal) -> Subject:
        row = None if signal.schedule is None else self._facts.rows.get((signal.tenant, signal.schedule))
        if row is not None:
            return schedule_subject(row)
        return run_subject(signal.tenant, signal.schedule, signal.task)._replace(tags=signal.tags)

    # -- polling -------------------------------------------------------------------------------------------

    def poll(self, before: TurnBody) -> None:
        """Begin, continue and end the incidents of conditions that leave no signal."""
        asked = [(rule, each) for rule in self._rules.by_key.values() for each in rule.of_kind(*POLLED)]
        if not asked:
            return
        conditions = list(dict.fromkeys(condition for _, condition in asked))
        self._poller.begin(self._now, conditions)
        answers = {condition: self._poller.find(condition, before) for condition in conditions}
        present: dict[tuple[RuleKey, str], list[StoredIncident]] = {}
        for incident in self._incidents:
            present.setdefault((rule_key(incident), incident.condition), []).append(incident)
        for rule, condition in asked:
            if (findings := answers[condition]) is not None:
                self._compare(rule, condition, findings, present.get((rule.key, str(condition)), ()))
        self._announce_all()

    def _compare(
        self, rule: Rule, condition: Condition, findings: Findings, incidents: Iterable[StoredIncident]
    ) -> None:
        """Compare the incidents of a rule and a condition with the subjects for which its condition holds."""
        text = str(condition)
        present = {
            (incident.tenant, incident.subject_kind, incident.subject): incident for incident in incidents
        }
        for finding in findings.found:
            subject = finding.subject
            if rule.covers(subject):
                before = present.pop((subject.tenant, subject.kind, subject.name), None)
                muted = muted_by(rule, subject, self._windows, self._now)
                after = take_finding(before, rule, text, finding, muted_by=muted, now=self._now)
                if after is not None:
                    self._incidents.put(after)
        if not findings.is_complete:
            return
        self._facts.read(schedule_keys(present.values()))
        for incident in present.values():
            self._incidents.put(self._continued(incident, rule, condition))

    def _continued(self, incident: StoredIncident, rule: Rule, condition: Condition) -> StoredIncident:
        """Return an incident whose condition was not found: mostly, it has ended."""
        if incident.closed_at is not None:
            return incident
        row = self._facts.schedule_of(incident)
        if incident.schedule is not None and (row is None or row.state == "paused"):
            return closed(incident, None, self._now)  # nobody has solved anything
        if condition.kind == "node_lost":
            if incident.opened_at < self._now - _LOST_NODE_KEPT:
                return closed(incident, None, self._now)
            is_over = any(node.key == incident.subject for node in self._poller.nodes())
        else:
            is_over = condition.kind != "queue" or not self._poller.is_full(
                incident.subject, condition.number
            )
        subject = self._present_subject(incident)
        finding = None if is_over else Finding(subject, incident.reason, incident.opened_at)
        muted = muted_by(rule, subject, self._windows, self._now)
        after = take_finding(incident, rule, str(condition), finding, muted_by=muted, now=self._now)
        return incident if after is None else after

    # -- open incidents ------------------------------------------------------------------------------------

    def review(self) -> None:
        """End incidents of failures and missed ticks that are over, and those whose rule or schedule is gone.

        Announce incidents whose mute is over.
        """
        present = list(self._incidents)
        self._facts.read(schedule_keys(present))
        for incident in present:
            rule = self._rules.by_key.get(rule_key(incident))
            family = family_of(incident.condition)
            subject = self._present_subject(incident)
            is_asked = rule is not None and rule.condition_of(family) is not None and rule.covers(subject)
            is_signalled = family in _FAMILIES.values()
            is_deleted = incident.schedule is not None and self._facts.schedule_of(incident) is None
            if rule is None or not is_asked or (is_signalled and is_deleted):
                self._incidents.put(closed(incident, None, self._now))
            elif is_signalled:
                taken = take_signals(
                    incident,
                    rule,
                    family,
                    subject,
                    (),
                    ended_at=self._facts.ended_at(subject, family, incident),
                    muted_by=muted_by(rule, subject, self._windows, self._now),
                    now=self._now,
                )
                if taken.incident is not None:
                    self._incidents.put(taken.incident)
        self._announce_all()

    def _present_subject(self, incident: StoredIncident) -> Subject:
        row = None if incident.schedule is None else self._facts.schedule_of(incident)
        tags, is_paused = (incident.tags, False) if row is None else (row.tags, row.state == "paused")
        return Subject(
            incident.subject_kind,
            incident.subject,
            incident.tenant,
            incident.schedule,
            incident.task,
            tags,
            is_paused,
        )

    # -- announcing ----------------------------------------------------------------------------------------

    def _announce_all(self) -> None:
        for incident in self._incidents:
            rule = self._rules.by_key.get(rule_key(incident))
            self._incidents.announce(incident, rule, self._announcer.incident_message, self._now)


def _signal_of(record: Record) -> Signal | None:
    """Return the signal of a record; None if it is damaged, or names another tenant than its record."""
    signal = read_body(record, Signal)
    return None if signal is None or signal.tenant != record.tenant else signal
