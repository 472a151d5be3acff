"""The diagnosis: its findings, on any store, and the limits of repair."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import Scheduler, acting_as
from evenbeat.app.repairs import Duplicate, duplicates, repair
from evenbeat.core.records import Record, RunRecord, ScheduleRecord, Skipped
from evenbeat.doctor.diagnosis import diagnose
from evenbeat.doctor.findings import Finding
from evenbeat.rules import attempts, changes
from evenbeat.rules.alert_records import INCIDENT, PENDING
from evenbeat.rules.firing import Planned, plan
from evenbeat.stores.base import Claim, RunQuery, ScheduleQuery, Store, Write
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from tests.unit.test_alerts_app import delivered, incident, key_of, put

MINUTE = 60_000
START = 1_772_438_400_000


class Here:
    """A store in memory and its clock."""

    def __init__(self) -> None:
        self.now = START
        self.store = MemoryStore(clock=lambda: self.now)
        self.store.open()

    def add(self, name: str = "a", **options: Any) -> None:
        wanted = ScheduleRecord(name=name, task="t", trigger="* * * * *", **options)
        self.store.put_schedules([Write(changes.create(wanted, self.now), None)])

    def fire(self) -> None:
        self.store.fire_due(self.now, 100, plan)

    def findings(self, local: int | None = None) -> dict[str, Finding]:
        return {finding.check: finding for finding in diagnose(self.store, local or self.now)}

    def runs(self) -> list[RunRecord]:
        return list(self.store.find_runs(RunQuery()).items)


@pytest.fixture
def here() -> Here:
    return Here()


def mended(store: Store) -> list[tuple[str, str]]:
    """Repair the store; return (kind, subject) of what was mended."""
    findings = repair(store, dry_run=False).findings
    return [(each.kind, each.subject) for each in findings if each.outcome == "mended"]


def test_a_store_that_works_has_no_findings_but_the_missing_node(here: Here) -> None:
    here.add()
    for _ in range(5):
        here.now += MINUTE
        here.fire()
        wanted = Claim(worker="w", token=str(here.now), limit=9, now=here.now, lease=9)
        for run in here.store.claim_runs(wanted).runs:
            assert here.store.settle_runs([ended(run, here.now)]) == [True]

    levels = {check: finding.level for check, finding in here.findings().items()}
    assert {check for check, level in levels.items() if level != "ok"} == {"nodes"}
    assert duplicates(here.store) == ([], 5)


def ended(run: RunRecord, now: int) -> Any:
    return attempts.succeeded(run, None, now, f"end-{run.id}")


@pytest.mark.parametrize(
    ("ahead", "level", "words"),
    [
        (0, "ok", "agree"),
        (1_500, "ok", "agree"),
        (5_000, "warn", "5 s ahead of this machine's"),
        (-3 * MINUTE, "warn", "3 min behind this machine's"),
    ],
)
def test_clocks_that_differ_are_a_warning(here: Here, ahead: int, level: str, words: str) -> None:
    found = here.findings(local=here.now - ahead)["clock"]

    assert found.level == level
    assert words in found.message


def test_a_schedule_that_sleeps_for_ever_is_found_without_a_note(here: Here) -> None:
    here.add()
    here.now += MINUTE

    def broken(*_: object) -> Any:
        raise ValueError("no")

    here.store.fire_due(here.now, 10, broken)
    (note,) = here.store.find_records("quarantine")
    here.store.delete_record("quarantine", note.tenant, note.key, note.version)

    found = here.findings()["quarantine"]
    assert (found.level, found.details) == ("fail", ("a: active, but it has no next wake-up",))


def test_repair_wakes_schedules_that_can_be_planned(here: Here) -> None:
    for name in ("healthy", "broken"):
        here.add(name)
    here.now += MINUTE

    def out_of_files(*_: object) -> Any:
        raise OSError(24, "Too many open files")

    # As a node did that took any error for the row's fault.
    here.store.fire_due(here.now, 10, out_of_files)
    (row,) = here.store.find_schedules(ScheduleQuery(name="broken")).items
    spoiled = replace(row, trigger="61 * * * *", revision=row.revision + 1)
    here.store.put_schedules([Write(Planned(spoiled), row.version)])
    assert len(here.store.find_records("quarantine")) == 2

    assert mended(here.store) == [("asleep", "healthy")]
    assert [note.key for note in here.store.find_records("quarantine")] == ["broken"]
    here.fire()
    assert [run.schedule for run in here.runs()] == ["healthy"]
    assert mended(here.store) == []


def test_alerts_that_can_not_be_sent_and_open_incidents_are_a_warning(here: Here) -> None:
    assert "alerts" not in here.findings()
    clock = VirtualClock(here.now)
    waiting, failing = key_of(here.now, 1), key_of(here.now, 2)
    put(here.store, PENDING, waiting, delivered(clock, waiting))
    assert "alerts" not in here.findings(), "it is being sent"
    put(here.store, PENDING, failing, delivered(clock, failing, tries=1, error="connection refused"))
    found = here.findings()["alerts"]
    assert (found.level, found.details) == ("warn", ("ops: connection refused",))
    assert found.message == "1 alert could not be sent: evenbeat alerts log --all-tenants"
    put(here.store, INCIDENT, "a", incident(clock, tenant="acme"), "acme")
    found = here.findings()["alerts"]
    assert found.message.endswith("; 1 incident is open")
    assert (found.hint, found.details[1]) == (
        "evenbeat alerts open --all-tenants",
        "schedule nightly: a run failed",
    )


def test_deferred_schedules_are_a_warning(here: Here) -> None:
    assert "deferred" not in here.findings()
    here.store.put_record(Record(kind="deferred", key="a", body="Too many open files"))

    found = here.findings()["deferred"]
    assert (found.level, found.details) == ("warn", ("a: Too many open files",))
    assert "1 schedule was deferred" in found.message


def test_many_details_are_cut(here: Here) -> None:
    for number in range(15):
        here.add(f"job-{number:02}")
    here.now += 5 * MINUTE

    found = here.findings()["schedules"]
    assert len(found.details) == 11
    assert found.details[-1] == "and 5 more"
    assert len(found.facts["schedules"]) == 15


def test_a_new_generation_may_name_its_ticks_again(here: Here) -> None:
    here.add()
    here.now += MINUTE
    here.fire()
    (run,) = here.runs()
    here.store.add_runs([replace(run, id="default/a/2/x", generation=2)])
    here.store.add_runs([replace(run, id="backfill", cause="backfill")])

    assert duplicates(here.store)[0] == []


def test_repair_leaves_a_run_whose_worker_heartbeats_again(here: Here) -> None:
    here.add()
    here.now += MINUTE
    here.fire()
    here.store.claim_runs(Claim(worker="w", token="c", limit=1, now=here.now, lease=1_000))
    assert mended(here.store) == []
    here.now += MINUTE
    (run,) = here.runs()
    assert mended(here.store) == [("lost", run.id)]
    assert mended(here.store) == []


def test_every_repair_has_an_entry_in_the_audit(here: Here) -> None:
    app = Scheduler(here.store)
    here.add("lost", priority=9)
    for name in ("twice", "asleep"):
        here.add(name)
    here.now += MINUTE
    (row,) = here.store.find_schedules(ScheduleQuery(name="asleep")).items
    asleep = replace(row, wake_at=None, revision=row.revision + 1)
    here.store.put_schedules([Write(Planned(asleep), row.version)])
    here.fire()
    runs = {run.schedule: run for run in here.runs()}
    here.store.add_runs([replace(runs["twice"], id="again", created_at=here.now + 1)])
    claim = Claim(worker="w", token="c", limit=1, now=here.now, lease=1_000)
    (held,) = here.store.claim_runs(claim).runs
    assert held.schedule == "lost"
    here.now += MINUTE
    with acting_as("anna"):
        done = mended(here.store)
    assert done == [("duplicate", "again"), ("lost", held.id), ("asleep", "asleep")]

    entries = {entry.subject: entry for entry in app.audit.list()}
    assert {(entry.actor, entry.action) for entry in entries.values()} == {("anna", "repair")}
    assert entries.keys() == {held.id, "again", "asleep"}
    assert entries[held.id].before == {"state": "running", "worker": "w"}
    assert entries[held.id].after == {"state": "queued", "worker": None}
    assert (entries["again"].before, entries["again"].after) == ({"state": "queued"}, {"state": "cancelled"})
    assert entries["asleep"].before == {"wake_at": None}
    assert "repaired by anna" in [fact.text for fact in app.runs.why("again").evidence]
    # Without a change there is no entry.
    repair(here.store, dry_run=False)
    assert len(app.audit.list()) == 3


@pytest.mark.parametrize(
    ("states", "recorded", "surplus"),
    [
        (["queued", "queued"], False, ["1"]),
        (["queued", "running"], False, ["0"]),
        (["succeeded", "queued", "queued"], False, ["1", "2"]),
        (["cancelled", "queued"], False, []),
        (["succeeded", "running"], False, []),
        (["queued"], True, ["0"]),
        (["running"], True, []),
    ],
)
def test_surplus_runs_can_be_stopped_without_losing_the_tick(
    states: list[Any], recorded: bool, surplus: list[str]
) -> None:
    runs = tuple(
        RunRecord(id=str(number), task="t", state=state, created_at=number)
        for number, state in enumerate(states)
    )
    row = Skipped(
        tenant="default",
        schedule="a",
        generation=1,
        first=0,
        last=0,
        count=1,
        reason="coalesced",
        recorded_at=0,
    )
    found = Duplicate("default", "a", 1, 0, runs, row if recorded else None)

    assert [run.id for run in found.surplus()] == surplus


@pytest.mark.parametrize(
    ("states", "recorded", "repaired"),
    [
        (["succeeded", "cancelled"], False, True),
        (["cancelled", "cancelled", "queued"], False, True),
        (["cancelled"], True, True),
        (["succeeded", "succeeded", "cancelled"], False, False),
        (["succeeded", "cancelled"], True, False),
        (["queued", "queued"], False, False),
    ],
)
def test_a_duplicate_is_repaired_when_its_tick_is_settled_once(
    states: list[Any], recorded: bool, repaired: bool
) -> None:
    runs = tuple(RunRecord(id=str(number), task="t", state=state) for number, state in enumerate(states))
    row = Skipped(
        tenant="default", schedule="a", generation=1, first=0, last=0, count=1, reason="late", recorded_at=0
    )
    assert Duplicate("default", "a", 1, 0, runs, row if recorded else None).is_repaired is repaired


def test_a_duplicate_that_ran_twice_stays_a_failure(here: Here) -> None:
    here.add()
    here.now += MINUTE
    here.fire()
    (run,) = here.runs()
    here.store.add_runs([replace(run, id="again")])
    claimed = here.store.claim_runs(Claim(worker="w", token="c", limit=9, now=here.now, lease=9)).runs
    here.store.settle_runs([ended(run, here.now) for run in claimed])
    assert mended(here.store) == []

    found = here.findings()["duplicates"]
    assert (found.level, found.hint) == (
        "fail",
        "report it, please: Evenbeat promises that this can't happen",
    )
    assert [tick["repaired"] for tick in found.facts["ticks"]] == [False]
