"""Processes that apply a deploy die between any two calls of the store; repeating ``apply`` completes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evenbeat import Scheduler
from evenbeat.app import deploying
from evenbeat.stores.base import Store
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock


class Died(BaseException):
    """The process ends here."""


class Dying:
    """A store whose process dies before, or after, its nth call."""

    def __init__(self, store: Store, at: int, *, is_after: bool) -> None:
        self._store = store
        self._at = at
        self._is_after = is_after
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Any] = getattr(self._store, name)
        if name in ("now", "wait", "hint"):
            return method

        def call(*args: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self._at and not self._is_after:
                raise Died
            answer = method(*args, **options)
            if self.calls == self._at:
                raise Died
            return answer

        return call


def app_on(store: Any, *, is_new: bool) -> Scheduler:
    app = Scheduler(store, source="shop")
    app.task(name="work")(lambda: None)
    for number in range(4):
        app.declare(f"kept{number}", "every 2h" if is_new else "every 1h", "work", overlap="skip")
    for number in range(3):
        app.declare(f"new{number}" if is_new else f"old{number}", "every 1h", "work")
    return app


def prepared(clock: VirtualClock) -> MemoryStore:
    store = MemoryStore(clock)
    app_on(store, is_new=False).apply()
    Scheduler(store).schedules.add("mine", "every 1h", "work")
    clock.advance("90m")  # overdue ticks fire in the same step as the change
    return store


def state(store: MemoryStore) -> tuple[Any, ...]:
    app = Scheduler(store)
    schedules = [(each.name, each.trigger, each.managed_by, each.source) for each in app.schedules.list()]
    runs = sorted((run.schedule, run.tick) for run in app.runs.list(limit=100))
    entries = sorted((each.subject, each.action) for each in app.audit.list(limit=100))
    return schedules, runs, entries


def test_apply_that_dies_anywhere_is_completed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploying, "ONE_STEP", 4)  # so that there is a death between two steps, too
    clock = VirtualClock()
    begin = clock.now
    whole = prepared(clock)
    counted = Dying(whole, 0, is_after=False)
    app_on(counted, is_new=True).apply(prune=True)
    expected = state(whole)
    assert counted.calls > 4
    for at in range(1, counted.calls + 1):
        for is_after in (False, True):
            clock = VirtualClock(begin)
            store = prepared(clock)
            with pytest.raises(Died):
                app_on(Dying(store, at, is_after=is_after), is_new=True).apply(prune=True)
            app_on(store, is_new=True).apply(prune=True)
            assert state(store) == expected
            assert app_on(store, is_new=True).plan(prune=True).entries == ()


def test_a_death_leaves_each_schedule_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    store = prepared(VirtualClock())
    before = state(store)[0]
    # Before the write nothing has changed; after it, everything has.
    counted = Dying(store, 0, is_after=False)
    plan = app_on(counted, is_new=True).plan(prune=True)
    assert state(store)[0] == before
    written = app_on(store, is_new=True).apply(plan, prune=True)
    assert len(written.done) == 10
    assert "mine" in [name for name, *_ in state(store)[0]]
