"""The timeline's snapshots: the nine cases of its specification, and what they leave open.

Every test runs twice: with columns made by numpy, and by Python alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenbeat import InvalidValue, every
from evenbeat.timeline import RebuildPolicy, Snapshot, Timeline

T = 1_772_366_400_000  # 2026-03-01T12:00:00Z


@pytest.fixture(scope="module", params=[True, False], ids=["numpy", "plain"], autouse=True)
def _columns(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("evenbeat.timeline.snapshot.has_numpy", lambda: request.param)
        yield


def test_built_from_nothing_it_answers_nothing() -> None:
    empty: Snapshot[str] = Snapshot.of([])
    assert len(empty) == 0
    assert empty.query(0, T) == []
    assert empty.peek() is None
    assert empty.peek(T) is None


def test_built_from_sorted_ticks_it_keeps_their_order() -> None:
    ticks = [(T, "a"), (T + 1, "b"), (T + 2, "a")]
    assert Snapshot.of(ticks).query(T, T + 3) == ticks


def test_a_query_includes_its_start_and_excludes_its_end() -> None:
    index = Snapshot.of([(T, "a"), (T + 10, "b"), (T + 20, "c")])
    assert index.query(T, T + 20) == [(T, "a"), (T + 10, "b")]
    assert index.query(T + 1, T + 21) == [(T + 10, "b"), (T + 20, "c")]
    assert index.query(T + 10, T + 10) == []
    assert index.count(T, T + 20) == 2


def test_a_window_without_ticks_is_empty() -> None:
    index = Snapshot.of([(T, "a"), (T + 1000, "b")])
    assert index.query(T + 1, T + 1000) == []
    assert index.query(T + 2000, T + 3000) == []
    assert index.query(T + 1, T - 1) == []
    assert index.count(T + 1, T - 1) == 0


def test_a_window_around_everything_gives_everything() -> None:
    ticks = [(T + i, f"s{i:03}") for i in range(500)]
    assert Snapshot.of(ticks).query(-(1 << 70), 1 << 70) == ticks


def test_peek_gives_the_earliest_tick_or_the_earliest_since() -> None:
    index = Snapshot.of([(T + 20, "c"), (T, "a"), (T + 10, "b")])
    assert index.peek() == (T, "a")
    assert index.peek(T) == (T, "a")
    assert index.peek(T + 1) == (T + 10, "b")
    assert index.peek(T + 21) is None


def test_ticks_of_the_same_instant_are_ordered_by_schedule() -> None:
    index = Snapshot.of([(T, "c"), (T, "a"), (T + 1, "a"), (T, "b")])
    assert index.query(T, T + 2) == [(T, "a"), (T, "b"), (T, "c"), (T + 1, "a")]


def run_in_threads(count: int, work: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_many_readers_at_once_see_the_same() -> None:
    index = Snapshot.of([(T + i % 100, f"s{i:04}") for i in range(2000)])
    expected = index.query(T + 10, T + 20)

    def read() -> None:
        for _ in range(200):
            assert index.query(T + 10, T + 20) == expected
            assert index.peek() == (T, "s0000")

    run_in_threads(8, read)


def test_readers_during_swaps_always_see_one_whole_snapshot() -> None:
    # Snapshot number n holds n + 1 ticks at the instant T + n: any mixture of two would show.
    generations = [Snapshot.of([(T + n, f"s{i:02}") for i in range(n + 1)]) for n in range(50)]
    timeline: Timeline[str] = Timeline()
    timeline.swap(generations[0])
    done = threading.Event()

    def write() -> None:
        for _ in range(40):
            for generation in generations:
                timeline.swap(generation)
        done.set()

    def read() -> None:
        while not done.is_set():
            index = timeline.snapshot
            ticks = index.query(0, 2 * T)
            assert len(ticks) == len(index)
            assert {tick for tick, _ in ticks} == {T + len(ticks) - 1}
            assert timeline.query(0, 2 * T)

    writer = threading.Thread(target=write)
    writer.start()
    run_in_threads(4, read)
    writer.join()


def test_a_swap_answers_the_old_snapshot_which_stays_valid() -> None:
    timeline: Timeline[str] = Timeline()
    timeline.swap(Snapshot.of([(T, "old")]))
    old = timeline.swap(Snapshot.of([(T + 1, "new")]))
    assert old.query(0, 2 * T) == [(T, "old")]
    assert timeline.query(0, 2 * T) == [(T + 1, "new")]
    assert timeline.peek() == (T + 1, "new")
    assert len(timeline) == 1


def test_a_snapshot_can_not_be_changed_through_its_arrays() -> None:
    index = Snapshot.of([(T, "a"), (T + 1, "b")])
    with pytest.raises(TypeError, match="read-only"):
        index.times[0] = 0
    with pytest.raises(TypeError, match="read-only"):
        index.owners[0] = 1
    assert not np.asarray(index.times).flags.writeable


def test_building_does_not_change_the_arrays_it_was_given() -> None:
    times, owners = np.array([T + 1, T]), np.array([0, 1])
    Snapshot(times, owners, ["a", "b"])
    assert times.tolist() == [T + 1, T]
    assert owners.tolist() == [0, 1]
    times[0] = owners[0] = 0  # and still theirs to write to


def test_ticks_take_twelve_bytes() -> None:
    index = Snapshot.of([(T + i, "a") for i in range(1000)])
    assert index.nbytes == 12 * len(index)


@given(
    times=st.one_of(
        st.lists(st.integers(0, 3600).map(lambda s: T + s * 1000), max_size=60),
        st.lists(st.integers(T, T + 10_000), max_size=60),
        st.lists(st.integers(-62_135_510_400_000, 253_402_214_399_999), max_size=60),
    ),
    count=st.sampled_from([1, 2, 40, 1 << 20, 1 << 31]),
    data=st.data(),
)
def test_any_ticks_come_out_in_order(times: list[int], count: int, data: st.DataObject) -> None:
    # With numpy, three widths of the packed sort: radix, numpy's, and the lexsort of what does not fit.
    owners = data.draw(st.lists(st.integers(0, count - 1), min_size=len(times), max_size=len(times)))
    index = Snapshot(times, owners, range(count))
    assert index.query(-(1 << 62), 1 << 62) == sorted(zip(times, owners, strict=True))


@pytest.mark.parametrize(
    ("times", "owners", "says"),
    [
        ([T], [0, 0], "not two lists of the same length"),
        ([T], [1], "there are 1 ids"),
        ([T], [-1], "there are 1 ids"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(times: list[int], owners: list[int], says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        Snapshot(times, owners, ["a"])


class TestRebuilding:
    def test_the_first_step_builds_and_the_next_ones_wait_for_the_period(self) -> None:
        timeline: Timeline[str] = Timeline()
        timeline.schedule([("a", every("1m"))])
        assert timeline.step(T)
        assert len(timeline) == 60
        assert not timeline.step(T + 29_999)
        assert timeline.step(T + 30_000)
        assert timeline.snapshot.start == T + 30_000
        assert timeline.snapshot.end == T + 30_000 + 3_600_000

    def test_a_change_is_built_by_the_next_step(self) -> None:
        timeline: Timeline[str] = Timeline()
        timeline.schedule([("a", every("1m"))])
        timeline.step(T)
        timeline.schedule([("a", every("1m")), ("b", every("30s"))])
        assert timeline.step(T + 1)
        assert {schedule for _, schedule in timeline.query(T, T + 60_001)} == {"a", "b"}
        timeline.schedule([])
        assert timeline.step(T + 2)
        assert len(timeline) == 0

    def test_period_and_lookahead_are_settings(self) -> None:
        timeline: Timeline[str] = Timeline(RebuildPolicy(period=1000, lookahead=5000))
        timeline.schedule([("a", every("1s"))])
        timeline.step(T)
        assert len(timeline) == 5
        assert not timeline.step(T + 999)
        assert timeline.step(T + 1000)

    def test_a_clock_that_was_set_back_does_not_hide_ticks(self) -> None:
        timeline: Timeline[str] = Timeline()
        timeline.schedule([("a", every("1m"))])
        timeline.step(T)
        assert timeline.step(T - 60_000)
        assert timeline.peek() == (T - 60_000, "a")

    def test_ticks_since_the_last_read_are_in_the_new_snapshot(self) -> None:
        timeline: Timeline[str] = Timeline()
        timeline.schedule([("a", every("1s"))])
        timeline.step(T)
        timeline.step(T + 31_000, since=T + 29_000)
        assert timeline.peek() == (T + 29_000, "a")

    def test_a_snapshot_cut_by_the_limit_is_renewed_when_it_ends(self) -> None:
        timeline: Timeline[str] = Timeline(RebuildPolicy(period=600_000, limit=120))
        timeline.schedule([("a", every("1s"))])
        timeline.step(T)
        assert timeline.snapshot.end == T + 120_000
        assert len(timeline) == 120
        assert not timeline.step(T + 119_999)
        assert timeline.step(T + 120_000)
