"""What every store promises of a damaged schedule: it is found, can be written anew, and deleted."""

from __future__ import annotations

from evenbeat.model import Schedule
from evenbeat.rules import changes
from evenbeat.rules.firing import plan
from evenbeat.stores.base import ScheduleQuery, Store, Write


def can_be_found_and_written_anew(
    store: Store, name: str, *, listed: bool = True, paged: bool = True
) -> None:
    """Check it of a schedule that is damaged, and asleep. ``listed``: whether listings have it, too;
    ``paged``: whether it has its place in their order."""
    names = [row.name for row in store.find_schedules(ScheduleQuery()).items]
    assert (name in names) == listed
    if listed and paged:
        # Also where a page ends with it, or begins behind it.
        at = names.index(name)
        page = store.find_schedules(ScheduleQuery(limit=at + 1))
        assert [row.name for row in page.items] == names[: at + 1]
        if names[at + 1 :]:
            rest = store.find_schedules(ScheduleQuery(limit=100, cursor=page.cursor))
            assert [row.name for row in rest.items] == names[at + 1 :]
    row = found(store, name)
    assert row.damage or row.trigger == "every now and then"
    wanted = Schedule(name=name, task="other", trigger="every 1m", payload="7")
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


def found(store: Store, name: str) -> Schedule:
    (row,) = store.find_schedules(ScheduleQuery(tenant="default", name=name)).items
    return row
