"""Checks of a damaged schedule: every store finds it, and it can be replaced and deleted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evenbeat.core.records import ScheduleRecord
from evenbeat.rules import changes
from evenbeat.rules.firing import plan
from evenbeat.stores.base import ScheduleQuery, Store, Write
from evenbeat.testing import VirtualClock


def can_be_found_and_written_anew(
    store: Store, name: str, *, listed: bool = True, paged: bool = True
) -> None:
    """Check a damaged schedule that sleeps. ``listed``: whether listings contain it; ``paged``: whether it
    has its position in their order."""
    names = [row.name for row in store.find_schedules(ScheduleQuery()).items]
    assert (name in names) == listed
    if listed and paged:
        # Also if a page ends with it, or begins after it.
        at = names.index(name)
        page = store.find_schedules(ScheduleQuery(limit=at + 1))
        assert [row.name for row in page.items] == names[: at + 1]
        if names[at + 1 :]:
            rest = store.find_schedules(ScheduleQuery(limit=100, cursor=page.cursor))
            assert [row.name for row in rest.items] == names[at + 1 :]
    row = found(store, name)
    assert row.damage or row.trigger == "every now and then"
    wanted = ScheduleRecord(name=name, task="other", trigger="every 1m", payload="7")
    planned = changes.declare(wanted, store.now(), row)
    assert planned is not None
    assert store.put_schedules([Write(planned, row.version)])[0].accepted
    sound = found(store, name)
    assert sound == planned.schedule
    assert (sound.damage, sound.task, sound.payload) == ("", "other", "7")
    assert plan(sound, sound.next_tick or 0).runs


def can_be_deleted(store: Store, name: str) -> None:
    row = found(store, name)
    assert row.damage or row.trigger == "every now and then"
    assert store.put_schedules([Write(changes.delete(row, store.now()), row.version)])[0].accepted
    assert name not in [row.name for row in store.find_schedules(ScheduleQuery()).items]


def found(store: Store, name: str) -> ScheduleRecord:
    (row,) = store.find_schedules(ScheduleQuery(tenant="default", name=name)).items
    return row


def sweep(
    store: Store,
    clock: VirtualClock,
    fields: Sequence[str],
    values: Sequence[object],
    spoil: Callable[[str, str, object], None],
) -> None:
    """Set each field of a schedule to each of these values, and check that its neighbours fire, and that it
    can be listed, replaced and deleted. ``spoil`` is called with a name, a field and a value."""
    for field in fields:
        for at, value in enumerate(values):
            what = f"{field} = {value!r}"
            good, bad, gone = (f"{word}-{field.replace('_', '-')}-{at}" for word in ("good", "bad", "gone"))
            for name in (good, bad, gone):
                made = changes.declare(
                    ScheduleRecord(name=name, task="work", trigger="every 1m"), store.now(), None
                )
                assert made is not None
                assert store.put_schedules([Write(made, None)])[0].accepted
            for name in (bad, gone):
                spoil(name, field, value)
            clock.advance("1m")
            fired = [planned.schedule.name for planned in store.fire_due(clock.now, 10, plan).planned]
            assert good in fired, what
            clock.advance("1m")
            fired = [planned.schedule.name for planned in store.fire_due(clock.now, 10, plan).planned]
            assert good in fired, what
            for name, wish in ((bad, "declare"), (gone, "delete")):
                row = found(store, name)
                wanted = ScheduleRecord(name=name, task="other", trigger="every 5m", payload="7")
                planned = (
                    changes.delete(row, store.now())
                    if wish == "delete"
                    else changes.declare(wanted, store.now(), row)
                )
                assert planned is not None, what
                assert store.put_schedules([Write(planned, row.version)])[0].accepted, what
            assert found(store, bad).damage == "", what
            for name in (good, bad):
                row = found(store, name)
                assert store.put_schedules([Write(changes.delete(row, store.now()), row.version)])[0].accepted
            left = store.find_schedules(ScheduleQuery()).items
            assert left == (), what
