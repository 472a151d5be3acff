"""A changed calendar: each tick of the bare trigger runs once, or is in the ledger once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evenbeat.core.instants import Instant, from_ms, to_ms
from evenbeat.core.records import CatchUp, RunRecord, ScheduleRecord, Skipped
from evenbeat.errors import InvalidTrigger
from evenbeat.rules import changes
from evenbeat.rules.calendars import bare_row, bare_since
from evenbeat.rules.firing import Active, Planned, plan, wakes_on_run_end
from evenbeat.rules.ticks import own_trigger, trigger_of
from evenbeat.testing import virtual
from evenbeat.triggers import Calendared, parse_trigger
from evenbeat.triggers.calendar_copies import CalendarCopies, with_earlier
from evenbeat.triggers.time_sets import DAY, EPOCH_ORDINAL, TimeSet
from tests.lengths import is_short

START = datetime(2026, 3, 1, 12, tzinfo=UTC)  # a Sunday
HOUR = 3_600_000
FIRST_DAY = START.date().toordinal() - EPOCH_ORDINAL


def copies(times: TimeSet) -> str:
    return CalendarCopies.of({"off": times}).text


@dataclass
class History:
    """A schedule over a changing calendar, and all that it left."""

    row: ScheduleRecord
    now: Instant
    active: tuple[Active, ...] = ()
    runs: list[RunRecord] = field(default_factory=list)
    rows: list[Skipped] = field(default_factory=list)
    direct: Counter[Instant] = field(default_factory=Counter)
    """Ticks that ran, or were recorded for another reason than a calendar."""
    replaced: set[Instant] = field(default_factory=set)
    """Ticks that a user moved to an earlier time, and that ran then."""

    def apply(self, planned: Planned | None) -> None:
        if planned is None:
            return
        before = self.row
        if before.moved is not None and (planned.runs or planned.schedule.next_tick != before.next_tick):
            passed = [run.tick for run in planned.runs] + [row.first for row in planned.skipped]
            if before.next_tick in passed:
                self.replaced.add(before.moved)
        for run in planned.runs:
            assert run.tick is not None
            self.direct[run.tick] += 1
        for row in planned.skipped:
            if row.reason != "calendar":
                ticks = list(trigger_of(before).between_ms(row.first, row.last + 1))
                assert row.count == len(set(ticks) | {row.first}), (row, ticks)
                self.direct.update(set(ticks) | {row.first})
        self.runs += planned.runs
        self.rows += planned.skipped
        self.row = planned.schedule

    def fire(self) -> None:
        for _ in range(5_000):
            row = self.row
            if row.state == "deleted" or row.wake_at is None or row.wake_at > self.now:
                return
            self.apply(plan(row, self.now, self.active))
        raise AssertionError("it did not stop")

    def busy(self, is_busy: bool) -> None:
        self.active = (Active("other", "running"),) if is_busy else ()
        if not is_busy and wakes_on_run_end(self.row):
            self.row = replace(self.row, wake_at=self.now)

    def change(self, times: TimeSet) -> None:
        for _ in range(20):
            planned = changes.copy_calendars(self.row, copies(times), self.now, self.active)
            self.apply(planned)
            if planned is None or not planned.unfinished:
                return

    def move(self, tick: Instant) -> None:
        self.apply(changes.reschedule(self.row, tick, self.now, self.active))

    def end(self, text: str) -> None:
        """Go on until nothing of the calendars is left to come."""
        self.now += 80 * 24 * HOUR
        self.fire()
        self.change(TimeSet(weekly=((0, 7 * DAY),)) if "only=" in text else TimeSet())
        self.now += 20 * 24 * HOUR
        self.fire()

    def check(self, end: Instant) -> None:
        """Each tick of the bare trigger until ``end`` has run once, or is in the ledger once."""
        ids = {run.id for run in self.runs}
        assert len(ids) == len(self.runs), "a run was added twice"
        bare = list(own_trigger(bare_row(self.row)).between_ms(to_ms(START) + 1, end + 1))
        removed: Counter[Instant] = Counter()
        stands_for: set[Instant] = set()
        for row in self.rows:
            if row.reason == "calendar":
                inside = [tick for tick in bare if row.first <= tick <= row.last]
                assert row.last > end or row.count == len(inside), (row, inside)
                removed.update(inside)
                if row.run is not None:
                    assert row.run in ids, f"{row} names a run that does not exist"
                    stands_for.add(int(row.run.rpartition("/")[2]))
        for tick in bare:
            times = removed[tick] + self.direct[tick] + (tick in self.replaced)
            if tick in stands_for and removed[tick]:
                times -= self.direct[tick]  # the run there is that of another tick, which moved
            assert times == 1, (
                f"{from_ms(tick)}: removed {removed[tick]}, ran or recorded {self.direct[tick]}, "
                f"replaced {tick in self.replaced}"
            )


def made(text: str, times: TimeSet, overlap: str = "allow") -> History:
    wanted = ScheduleRecord(
        name="beat",
        task="work",
        trigger=text,
        calendars=copies(times),
        overlap=overlap,  # type: ignore[arg-type]
        catch_up=CatchUp("all", limit=10_000),
    )
    now = to_ms(START)
    return History(changes.create(wanted, now).schedule, now)


def started(text: str, times: TimeSet, overlap: str = "allow") -> History:
    try:
        return made(text, times, overlap)
    except InvalidTrigger:  # the calendar leaves it no tick
        reject()


@st.composite
def contents(draw: st.DrawFn) -> TimeSet:
    # Some lie before the creation of the schedule.
    days = draw(st.sets(st.integers(-30, 30), max_size=12))
    weekly = draw(
        st.sampled_from(((), (), ((5 * DAY, 7 * DAY),), ((8 * 3600, 10 * 3600), (2 * DAY, 2 * DAY + 3600))))
    )
    return TimeSet(days=tuple(sorted(FIRST_DAY + day for day in days)), weekly=weekly)


TRIGGERS = ("0 9 * * *", "0 9,17 * * *", "0 9 * * mon,thu", "0 9 1,5,15 * *")
STEPS = ("fire", "change", "change", "change", "busy", "free", "later", "earlier", "pause", "resume")


@st.composite
def stories(draw: st.DrawFn) -> tuple[str, str, TimeSet, list[tuple[int, str, int, TimeSet]]]:
    move = draw(st.sampled_from(("", " move=next", " move=previous")))
    bare = draw(st.sampled_from(TRIGGERS if move else (*TRIGGERS, "every 5h", "every 45m")))
    overlap = draw(st.sampled_from(("allow", "queue_all")))
    story = st.tuples(st.integers(0, 60), st.sampled_from(STEPS), st.integers(1, 90), contents())
    # Not with ticks that move: with only=, one that a user moved earlier may be in the ledger, too.
    kind = "skip" if move else draw(st.sampled_from(("skip", "only")))
    return f"{bare} {kind}=off{move}", overlap, draw(contents()), draw(st.lists(story, max_size=12))


@settings(max_examples=25 if is_short() else 120, deadline=None)
@given(stories())
def test_each_tick_runs_once_or_is_in_the_ledger_once(
    story: tuple[str, str, TimeSet, list[tuple[int, str, int, TimeSet]]],
) -> None:
    text, overlap, first, steps = story
    history = started(text, first, overlap)
    for hours, step, size, times in steps:
        # Never at a tick's own instant, so that a moved tick is not one of the trigger's.
        history.now += hours * HOUR + 1_000
        if step == "fire":
            history.fire()
        elif step == "change":
            history.change(times)
        elif step in ("busy", "free"):
            history.busy(step == "busy")
            history.fire()
        elif step == "pause" and history.row.state == "active":
            history.apply(changes.pause(history.row, history.now))
        elif step == "resume":
            catch_up = size % 2 == 1
            history.apply(changes.resume(history.row, history.now, history.active, catch_up=catch_up))
        elif step in ("later", "earlier"):
            # A move fires what is overdue first. If that was the last tick, moved to an earlier time, a move
            # starts the schedule again, with all ticks of its trigger.
            history.fire()
            if history.row.next_tick is None:
                continue
            by = size * HOUR // 2 + 17_000
            tick = history.row.next_tick + by if step == "later" else history.now + by
            # Users can't move a tick to the past.
            if tick > history.now and (step == "later" or tick < history.row.next_tick):
                history.move(tick)
    history.busy(False)
    if history.row.state == "paused":
        history.apply(changes.resume(history.row, history.now))
    end = history.now + 40 * 24 * HOUR
    history.end(text)
    history.check(end)


class Expected:
    """A second account of a cron whose refused ticks move: hour by hour, by the present content alone."""

    def __init__(self, text: str, times: TimeSet) -> None:
        trigger = parse_trigger(text)
        assert isinstance(trigger, Calendared)
        self.trigger = trigger
        self.is_next = trigger.move == "next"
        self.open = set(trigger.bare.between_ms(to_ms(START) + 1, to_ms(START) + 120 * 24 * HOUR))
        self.ran: list[Instant] = []
        self.change(times, to_ms(START))

    def admits(self, at: Instant) -> bool:
        return not self.trigger.refusing(at)

    def change(self, times: TimeSet, now: Instant) -> None:
        self.trigger = self.trigger.with_calendars({"off": times})
        if self.is_next:
            self.open -= {tick for tick in self.open if tick <= now and self.image(tick, now) is None}

    def image(self, tick: Instant, now: Instant) -> Instant | None:
        """Return when an open tick runs if nothing changes any more."""
        if tick >= now and self.admits(tick):
            return tick
        for days in range(1, 32):
            day = tick + days * 24 * HOUR * (1 if self.is_next else -1)
            if self.admits(day) and not (self.is_next and day < now):
                return day
        return None

    def hour(self, now: Instant) -> None:
        images = {tick: self.image(tick, now) for tick in self.open if abs(tick - now) <= 32 * 24 * HOUR}
        here = {tick for tick, image in images.items() if image == now}
        if here:
            self.ran.append(now)
        gone = {tick for tick, image in images.items() if tick == now and not (self.is_next and image)}
        self.open -= here | gone


@settings(max_examples=8 if is_short() else 40, deadline=None)
@given(
    st.sampled_from(TRIGGERS),
    st.sampled_from((" skip=off", " only=off")),
    st.sampled_from((" move=next", " move=previous")),
    contents(),
    st.lists(st.tuples(st.integers(0, 60), contents()), max_size=4),
)
def test_ticks_run_where_the_present_content_puts_them(
    bare: str, option: str, move: str, first: TimeSet, steps: list[tuple[int, TimeSet]]
) -> None:
    text = bare + option + move
    history, expected = started(text, first), Expected(text, first)
    changed = {}
    hour = 0
    for hours, times in steps:
        hour += hours
        changed[hour] = times
    for passed in range(hour + 40 * 24):
        now = to_ms(START) + passed * HOUR
        if (START.hour + passed) % 24 in (9, 17):
            history.now = now
            history.fire()
            expected.hour(now)
        if passed in changed:
            history.now = now + 1_000
            history.change(changed[passed])
            expected.change(changed[passed], now + 1_000)
    assert [run.tick for run in history.runs] == expected.ran
    end = history.now
    history.end(text)
    history.check(end)


@settings(max_examples=15 if is_short() else 50, deadline=None)
@given(
    st.sampled_from(TRIGGERS),
    st.sampled_from(("next", "previous")),
    st.lists(st.tuples(st.integers(-5, 30), contents()), min_size=1, max_size=4),
)
def test_ticks_of_several_contents_are_where_single_ones_moved(
    bare: str, move: str, changed: list[tuple[int, TimeSet]]
) -> None:
    trigger = parse_trigger(f"{bare} skip=off move={move}")
    assert isinstance(trigger, Calendared)
    found = CalendarCopies.of({"off": changed[0][1]})
    for day, times in sorted(changed[1:], key=lambda each: each[0]):
        until = (FIRST_DAY + day) * DAY + DAY // 2
        found = with_earlier(CalendarCopies.of({"off": times}), found, until=until, since=0, given=None)
    trigger = trigger.resolved(found)
    start, end = at(1), at(60)
    images = (trigger.moved_to(tick) for tick in trigger.bare.between_ms(at(-40), at(100)))
    wanted = sorted({tick for tick in images if tick is not None and start <= tick < end})
    assert list(trigger.between_ms(start, end)) == wanted
    backwards = []
    tick = trigger.prev_ms(end)
    while tick is not None and tick >= start:
        backwards.append(tick)
        tick = trigger.prev_ms(tick)
    assert backwards[::-1] == wanted


# -- examples ----------------------------------------------------------------------------------------------


def off(*days: int) -> TimeSet:
    """Return a calendar with these days of March 2026."""
    return TimeSet(days=tuple(FIRST_DAY + day - 1 for day in days))


def at(day: int, hour: int = 12) -> Instant:
    return to_ms(datetime(2026, 3, 1, hour, tzinfo=UTC) + timedelta(days=day - 1))


def ran(history: History) -> list[str]:
    return [f"{from_ms(run.tick or 0):%d %H:%M}" for run in history.runs]


def ledger(history: History) -> list[tuple[str, int, str | None]]:
    rows = [row for row in history.rows if row.reason == "calendar"]
    return [
        (f"{from_ms(row.first):%d}", row.count, row.run and f"{from_ms(int(row.run.split('/')[-1])):%d}")
        for row in rows
    ]


def travel(history: History, until: Instant) -> None:
    while history.now < until:
        history.now += HOUR
        history.fire()


def test_a_tick_that_ran_on_the_previous_day_does_not_run_again() -> None:
    history = made("0 9 * * mon skip=off move=previous", off(9))
    travel(history, at(8))
    assert ran(history) == ["02 09:00", "08 09:00"]
    history.change(off())
    travel(history, at(17))
    assert ran(history) == ["02 09:00", "08 09:00", "16 09:00"]
    assert ledger(history) == [("09", 1, "08")]


def test_a_tick_that_waits_for_the_next_day_runs_after_a_change() -> None:
    history = made("0 9 * * mon skip=off move=next", off(2, 3, 4))
    travel(history, at(3))
    history.change(off())
    travel(history, at(10))
    assert ran(history) == ["04 09:00", "09 09:00"]
    assert ledger(history) == [("02", 1, "04")]


def test_a_tick_that_ran_does_not_move_to_the_next_day() -> None:
    history = made("0 9 * * mon skip=off move=next", off())
    travel(history, at(2))
    assert ran(history) == ["02 09:00"]
    history.change(off(2))
    travel(history, at(10))
    assert ran(history) == ["02 09:00", "09 09:00"]


def test_a_tick_whose_earlier_day_has_passed_is_recorded_and_does_not_run() -> None:
    history = made("0 9 * * wed skip=off move=previous", off())
    travel(history, at(3))
    history.change(off(3, 4))
    travel(history, at(12))
    assert ran(history) == ["11 09:00"]
    assert ledger(history) == [("04", 1, None)]


def test_a_day_before_the_creation_is_not_one_on_which_a_tick_ran_ahead() -> None:
    history = made("0 9 * * * skip=off move=previous", off(2, 3))
    history.change(off(20))
    travel(history, at(4))
    assert ran(history) == ["02 09:00", "03 09:00", "04 09:00"]
    assert ledger(history) == []


def test_a_day_before_a_new_trigger_is_not_one_on_which_a_tick_ran_ahead() -> None:
    history = made("0 8 * * * skip=off move=previous", off(5))
    travel(history, at(5, 6))
    trigger = {"trigger": "0 9 * * * skip=off move=previous"}
    history.apply(changes.change(history.row, trigger, history.now, calendars=copies(off(5))))
    history.change(off(20))
    travel(history, at(6))
    assert ran(history) == ["02 08:00", "03 08:00", "04 08:00", "05 09:00", "06 09:00"]


def test_a_tick_before_the_creation_does_not_move_to_a_later_day() -> None:
    history = made("0 9 * * sat skip=off move=next", TimeSet(days=(FIRST_DAY - 1, FIRST_DAY)))
    assert history.row.next_tick == at(7, 9)
    trigger = own_trigger(history.row)
    assert trigger.prev_ms(at(7, 9)) is None
    assert list(trigger.between_ms(at(-30), at(8))) == [at(7, 9)]
    history.change(off(20))
    travel(history, at(8))
    assert ran(history) == ["07 09:00"]


def test_a_tick_before_a_new_trigger_does_not_move_to_a_later_day() -> None:
    history = made("0 8 * * * skip=off move=next", off(3, 4))
    travel(history, at(3))
    trigger = {"trigger": "0 9 * * tue skip=off move=next"}
    history.apply(changes.change(history.row, trigger, history.now, calendars=copies(off(3, 4))))
    travel(history, at(11))
    assert ran(history) == ["02 08:00", "10 09:00"]


@pytest.mark.parametrize("admits", [True, False])
def test_a_waiting_tick_stays_whatever_the_calendar_says_then(admits: bool) -> None:
    history = made("0 9 * * * skip=off", off(3), "queue_all")
    history.busy(True)
    travel(history, at(4))
    assert ran(history) == []
    history.change(off(5) if admits else off(2, 4, 5))
    history.busy(False)
    history.fire()
    travel(history, at(7))
    # 3 March was removed when it came: it does not appear in the past.
    assert ran(history) == ["02 09:00", "04 09:00", "06 09:00", "07 09:00"]
    assert ledger(history) == [("03", 1, None), ("05", 1, None)]
    assert [row.reason for row in history.rows] == ["calendar", "calendar"]


def test_a_next_tick_that_a_user_moved_to_a_later_time_stays() -> None:
    history = made("0 9 * * * skip=off", off())
    history.move(at(5, 15))
    history.change(off(6))
    assert history.row.next_tick == at(5, 15)
    travel(history, at(8))
    assert ran(history) == ["05 15:00", "07 09:00", "08 09:00"]
    assert [(row.reason, row.count) for row in history.rows] == [("rescheduled", 4), ("calendar", 1)]


def test_ticks_that_are_removed_while_the_schedule_is_finished_are_recorded() -> None:
    history = made("0 9 * * * skip=off", off())
    history.change(TimeSet(weekly=((0, 7 * DAY),)))
    assert history.row.state == "finished"
    travel(history, at(4))
    history.change(off())
    travel(history, at(5))
    assert ran(history) == ["05 09:00"]
    assert ledger(history) == [("02", 3, None)]


def test_a_change_of_the_calendar_leaves_the_ticks_of_a_pause_to_the_resume() -> None:
    history = made("0 9 * * * skip=off", off(3))
    history.apply(changes.pause(history.row, history.now))
    travel(history, at(4))
    history.change(off(2, 5))
    travel(history, at(6))
    history.apply(changes.resume(history.row, history.now, catch_up=True))
    history.fire()
    assert ran(history) == ["02 09:00", "04 09:00", "06 09:00"]
    assert ledger(history) == [("03", 1, None), ("05", 1, None)]


def test_a_row_does_not_grow_without_end_when_the_calendar_changes_in_a_pause() -> None:
    history = made("0 9 * * * skip=off", off(3))
    history.apply(changes.pause(history.row, history.now))
    sizes = []
    for day in range(4, 100):
        travel(history, at(day))
        history.change(off(day + 1))
        sizes.append(len(history.row.calendars))
    assert max(sizes) == max(sizes[:40])
    history.apply(changes.resume(history.row, history.now, catch_up=True))
    end = history.now
    history.end(history.row.trigger)
    history.check(end)


def test_a_pause_of_a_schedule_that_a_calendar_finished_holds() -> None:
    history = made("0 9 * * * skip=off", off())
    history.change(TimeSet(weekly=((0, 7 * DAY),)))
    history.apply(changes.pause(history.row, history.now, "stop"))
    assert (history.row.state, history.row.pause_note) == ("paused", "stop")
    travel(history, at(4))
    history.change(off())
    travel(history, at(6))
    assert (history.row.state, ran(history)) == ("paused", [])
    history.apply(changes.resume(history.row, history.now))
    travel(history, at(8))
    assert ran(history) == ["07 09:00", "08 09:00"]
    assert [(row.reason, row.count) for row in history.rows] == [("calendar", 3), ("paused", 2)]


def test_a_pause_of_a_schedule_that_its_own_trigger_finished_does_not_count() -> None:
    history = made("0 9 * * * until=2026-03-03T00:00 skip=off", off())
    travel(history, at(4))
    assert history.row.state == "finished"
    history.apply(changes.pause(history.row, history.now))
    assert history.row.state == "finished"


def test_removed_ticks_have_a_row_for_each_stretch() -> None:
    history = made("0 9 * * * skip=off", off(3, 4, 6))
    history.now = at(8)
    history.fire()
    assert ran(history) == ["02 09:00", "05 09:00", "07 09:00", "08 09:00"]
    assert ledger(history) == [("03", 2, None), ("06", 1, None)]


def test_a_row_keeps_earlier_contents_only_as_long_as_ticks_depend_on_them() -> None:
    history = made("0 9 * * * skip=off", off(1))
    for day in range(2, 30):
        travel(history, at(day))
        history.change(off(day + 1))
    assert len(history.row.calendars) < 100
    assert bare_since(history.row) == to_ms(START)
    moving = made("0 9 * * * skip=off move=next", off(1))
    sizes = []
    for day in range(2, 100):
        travel(moving, at(day))
        moving.change(off(day + 1))
        sizes.append(len(moving.row.calendars))
    assert max(sizes) == max(sizes[:40])
    assert all(before <= after for before, after in pairwise(run.tick or 0 for run in moving.runs))


@pytest.mark.parametrize("ends", ["delete", "change"])
def test_a_tick_that_waits_for_a_free_day_is_recorded_when_its_trigger_ends(ends: str) -> None:
    history = made("0 9 * * mon skip=off move=next", off(2, 3, 4))
    travel(history, at(3))
    if ends == "delete":
        history.apply(changes.delete(history.row, history.now))
    else:
        history.apply(changes.change(history.row, {"trigger": "0 9 * * mon"}, history.now, calendars=""))
    travel(history, at(10))
    assert ledger(history) == [("02", 1, None)]
    assert ran(history) == ([] if ends == "delete" else ["09 09:00"])


def test_a_last_tick_that_ran_earlier_does_not_run_again_when_the_calendar_changes() -> None:
    with virtual(now="2026-03-01T12:00:00Z") as app:
        app.task(name="work")(lambda: None)
        app.calendars.set("on", days=["2026-03-02"])
        app.schedules.add("beat", "0 9 * * * only=on", "work")
        app.schedules.reschedule("beat", "2026-03-01T13:00:00Z")
        app.travel("2h")
        app.calendars.set("on", days=["2026-03-02", "2026-03-04"])
        app.travel("5d")
        ticks = [f"{run.tick:%d %H:%M}" for run in app.runs.list(schedule="beat") if run.tick]
        assert ticks == ["04 09:00", "01 13:00"]


def test_a_last_tick_that_ran_earlier_is_not_removed_when_no_day_is_left() -> None:
    day = FIRST_DAY + 3
    history = started("0 9 * * * only=off", TimeSet(days=(day,)))
    tick = history.row.next_tick
    assert tick == (day * DAY + 9 * 3600) * 1000
    history.move(history.now + HOUR)
    history.now += 2 * HOUR
    history.fire()
    assert ([run.tick for run in history.runs], history.row.state) == ([to_ms(START) + HOUR], "finished")
    # No day is left, then another one, both before the day of the tick.
    for days in ((), (day + 30,), (), (day + 40,)):
        history.now += HOUR
        history.change(TimeSet(days=days))
        history.fire()
    assert history.row.next_tick == ((day + 40) * DAY + 9 * 3600) * 1000
    history.now = history.row.next_tick
    history.fire()
    assert [run.tick for run in history.runs[1:]] == [history.now]
    recorded = [at for row in history.rows for at in range(row.first, row.last + 1, 24 * HOUR)]
    assert len(recorded) == len(set(recorded)) == sum(row.count for row in history.rows)
    assert tick not in recorded
    bare = set(range(to_ms(START) + 21 * HOUR, history.now, 24 * HOUR))
    assert set(recorded) == bare - {tick}


@pytest.mark.parametrize("days", [(), (20,)])
def test_ticks_before_a_last_one_that_ran_earlier_are_recorded_once(days: tuple[int, ...]) -> None:
    history = started("0 9 * * * only=off", off(3))
    history.now += 2 * HOUR
    history.move(history.now + HOUR)
    # After the second, whose tick was recorded with the run, and before the third, whose tick has run.
    history.now = at(2, 10)
    history.fire()
    assert ledger(history) == [("02", 1, None)]
    history.change(off(*days))
    assert ledger(history) == [("02", 1, None)]
    history.end("only=")
    history.check(at(30))


def test_removed_ticks_are_recorded_once_if_a_tick_is_moved_earlier_twice() -> None:
    history = started("0 9 * * * skip=off", off(2))
    history.move(history.now + HOUR)
    history.move(history.now + 2 * HOUR)
    history.now += 3 * HOUR
    history.fire()
    assert (ran(history), ledger(history)) == (["01 14:00"], [("02", 1, None)])
    history.end("skip=")
    history.check(at(30))
