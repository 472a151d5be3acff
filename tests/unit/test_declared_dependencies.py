"""``plan`` and ``apply`` of schedules that wait for others: both name cycles and unknown names."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from evenbeat import InvalidValue, Scheduler, cron, every, on_success_of
from evenbeat.app.dependencies import refused_dependencies
from evenbeat.core.records import ScheduleRecord
from evenbeat.stores.base import Page, ScheduleQuery
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(VirtualClock())


def app_on(store: MemoryStore, **triggers: str) -> Scheduler:
    app = Scheduler(store, source="shop")
    app.task(name="work")(lambda: None)
    for name, trigger in triggers.items():
        first, _, after = trigger.partition(" after ")
        app.declare(name, first, "work", after=after or None)
    return app


def both(app: Scheduler, *, prune: bool = False) -> dict[str, str]:
    """Return what the plan refuses; ``apply`` refuses the same, for the same reasons."""
    plan = app.plan(prune=prune)
    planned = {entry.name: entry.why for entry in plan.entries if entry.action == "refused"}
    result = app.apply(plan, prune=prune)
    assert {each.name: each.why for each in result.refused} == planned
    assert all(each.entry is not None and each.entry.action == "refused" for each in result.refused)
    return planned


def test_a_cycle_is_named_for_each_of_its_schedules(store: MemoryStore) -> None:
    app = app_on(store, a="on success of b", b="every 1h after a within 1h", c="every 1h")
    hint = "remove one of these dependencies"
    assert both(app) == {
        "a": f'trigger "on success of b" would make a wait for itself: a -> b -> a; {hint}',
        "b": f'after "a within 1h" would make b wait for itself: b -> a -> b; {hint}',
    }
    assert [each.name for each in app.schedules.list()] == ["c"]


def test_an_unknown_predecessor_is_named_with_those_that_wait_for_the_refused_one(store: MemoryStore) -> None:
    app = app_on(store, load="every 1h", mail="on success of report", report="every 1h after lod within 1h")
    assert both(app) == {
        "mail": 'trigger names the schedule "report", which does not exist in tenant default; '
        "report is refused, too",
        "report": 'after names the schedule "lod", which does not exist in tenant default; '
        "add lod before report (with durable=True, if it is in the code only)",
    }
    # Now that load is stored, the nearest name is known.
    assert app.plan().entries[1].why.endswith("did you mean load?")


def test_a_schedule_that_is_stored_already_closes_a_cycle(store: MemoryStore) -> None:
    assert both(app_on(store, load="every 1h", report="on success of load")) == {}
    app = app_on(store, load="on success of mail", report="on success of load", mail="on success of report")
    found = both(app)
    assert set(found) == {"load", "mail"}
    assert "load -> mail -> report -> load" in found["load"]
    assert app.schedules.get("load").trigger == "every 1h"


def test_a_dependency_that_is_turned_round_in_one_deploy_is_no_cycle(store: MemoryStore) -> None:
    assert both(app_on(store, load="every 1h", report="on success of load")) == {}
    app = app_on(store, load="on success of report", report="every 1h")
    assert both(app) == {}
    assert app.schedules.get("load").trigger == "on success of report"


def test_a_schedule_that_the_same_deploy_removes_does_not_exist(store: MemoryStore) -> None:
    assert both(app_on(store, old="every 1h", load="every 1h")) == {}
    found = both(app_on(store, load="every 1h", report="on success of old"), prune=True)
    assert list(found) == ["report"]
    assert 'names the schedule "old", which does not exist' in found["report"]


def test_the_order_of_declarations_does_not_matter(store: MemoryStore) -> None:
    app = app_on(store, z="every 1h", y="on success of z", x="every 1h after y, z within 1h")
    assert both(app) == {}
    assert len(app.schedules.list()) == 3


def test_nothing_is_read_for_schedules_without_new_dependencies() -> None:
    class Unread(MemoryStore):
        def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
            raise AssertionError("read")

    row = ScheduleRecord(name="a", task="work", trigger="on success of b")
    plain = ScheduleRecord(name="b", task="work", trigger="every 1h")
    assert refused_dependencies(Unread(), [(row, row), (plain, None)]) == {}


def test_tasks_in_code_may_stand_in_any_order_and_name_what_is_stored(store: MemoryStore) -> None:
    app = Scheduler(store)
    app.task(name="report", schedule=on_success_of("load"))(lambda: None)
    app.task(name="load", schedule=every("1h"))(lambda: None)
    app.task(name="mail", schedule=cron("0 9 * * *"), after="report within 1d")(lambda: None)
    app.declare_tasks()
    assert len(app.schedules.list()) == 3


@pytest.mark.parametrize("were_linked", [False, True])
def test_of_two_changes_that_would_close_a_cycle_one_is_refused(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, were_linked: bool
) -> None:
    """The other process changes b at each moment of the change of a."""
    calls = 0

    def other_acts_at(at: int) -> bool:
        """Change both; return whether the moment came."""
        nonlocal calls
        app, other = Scheduler(store), Scheduler(store)
        for name in ("a", "b"):
            app.schedules.declare(name, every("1h"), "work")
            app.schedules.update(name, trigger="every 1h")
        if were_linked:
            for name, leader in (("a", "b"), ("b", "a")):
                app.schedules.update(name, trigger=on_success_of(leader))
                app.schedules.update(name, trigger="every 1h")
        calls, accepted = 0, list[str]()

        def act(name: str) -> Any:
            whole = getattr(MemoryStore, name)

            def call(self: MemoryStore, *args: Any, **options: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == at:
                    with contextlib.suppress(InvalidValue):
                        other.schedules.update("b", trigger=on_success_of("a"))
                        accepted.append("b")
                return whole(self, *args, **options)

            return call

        with monkeypatch.context() as patched:
            for name in ("get_record", "find_schedules", "put_schedules"):
                patched.setattr(MemoryStore, name, act(name))
            with contextlib.suppress(InvalidValue):
                app.schedules.update("a", trigger=on_success_of("b"))
                accepted.append("a")
        assert len(accepted) == 1 or calls < at, accepted
        return calls >= at

    assert next(at for at in range(1, 50) if not other_acts_at(at)) > 5
