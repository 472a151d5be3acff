"""``plan`` and ``apply``: what the code and a file declare, compared with the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenbeat import InvalidValue, Scheduler, acting_as, cron, every
from evenbeat.app import deploying
from evenbeat.core.deploys import DeployPlan, PlanEntry
from evenbeat.core.records import ScheduleState
from evenbeat.node.code_ticker import CodeTicker
from evenbeat.node.fallback import Fallback
from evenbeat.observe.events import Events
from evenbeat.rules.firing import plan as plan_ticks
from evenbeat.stores.base import ScheduleQuery, Write, Written
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock


class Contested(MemoryStore):
    """Counts writes; another call may come right before the next write."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.sizes: list[int] = []
        self.hints = 0
        self.overtake: Callable[[], object] | None = None

    def hint(self) -> None:
        self.hints += 1

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        self.sizes.append(len(writes))
        overtake, self.overtake = self.overtake, None
        if overtake is not None:
            overtake()
        return super().put_schedules(writes)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> Contested:
    return Contested(clock)


def app_on(store: MemoryStore, source: str = "shop", **schedules: str) -> Scheduler:
    """Return an app whose code declares these schedules, by name and trigger."""
    app = Scheduler(store, source=source)
    app.task(name="work")(lambda: None)
    for name, trigger in schedules.items():
        app.declare(name, trigger, "work")
    return app


def actions(plan: DeployPlan) -> dict[str, str]:
    return {entry.name: entry.action for entry in plan.entries}


def only(plan: DeployPlan) -> PlanEntry:
    (entry,) = plan.entries
    return entry


def changed(entry: PlanEntry) -> dict[str, tuple[Any, Any]]:
    return {each.field: (each.before, each.after) for each in entry.changes}


def names(app: Scheduler) -> list[str]:
    return [each.name for each in app.schedules.list(all_tenants=True)]


# -- what a plan says ------------------------------------------------------------------------------------


def test_a_new_schedule_is_added_with_its_options_and_next_ticks(store: Contested) -> None:
    app = app_on(store)
    app.declare("report", cron("0 9 * * *", tz="Europe/Berlin"), "work", retries=3)
    entry = only(app.plan())
    assert (entry.action, entry.managed_by, entry.source) == ("add", "code", "shop")
    assert changed(entry) == {
        "task": (None, "work"),
        "trigger": (None, "0 9 * * * tz=Europe/Berlin"),
        "retries": (None, 3),
        "managed_by": (None, "code:shop"),
    }
    assert entry.ticks_before == ()
    assert len(entry.ticks_after) == 5
    assert {tick.hour for tick in entry.ticks_after} == {9}
    assert names(app) == []  # nothing was written


def test_a_changed_declaration_shows_each_field_and_the_ticks_before_and_after(store: Contested) -> None:
    app_on(store, report="every 10m").apply()
    app = app_on(store, report="every 20m")
    entry = only(app.plan())
    assert entry.action == "change"
    assert changed(entry) == {"trigger": ("every 10m", "every 20m")}
    gaps = [
        {later - tick for tick, later in pairwise(ticks)} for ticks in (entry.ticks_before, entry.ticks_after)
    ]
    assert [gap.pop().total_seconds() for gap in gaps] == [600, 1200]


def test_decorated_tasks_are_planned_as_declared_ones(store: Contested) -> None:
    app = Scheduler(store)

    @app.task(schedule=every("5m"))
    def poll() -> None: ...

    assert actions(app.plan()) == {"poll": "add"}
    app.apply()
    assert app.plan() == replace(app.plan(), entries=(), unchanged=1)
    assert (app.schedules.get("poll").managed_by, app.schedules.get("poll").source) == ("code", "")


def test_a_schedule_that_was_made_by_hand_is_a_conflict_until_it_is_adopted(store: Contested) -> None:
    app = app_on(store, report="every 10m")
    app.schedules.add("report", "every 10m", "work")
    entry = only(app.plan())
    assert (entry.action, entry.why, entry.command) == (
        "conflict",
        "it was made by hand",
        "evenbeat apply --adopt",
    )
    result = app.apply()
    assert result.done == ()
    assert [each.action for each in result.left] == ["conflict"]
    assert app.schedules.get("report").managed_by == "api"
    assert actions(app.plan(adopt=True)) == {"report": "change"}
    assert len(app.apply(adopt=True).done) == 1
    assert (app.schedules.get("report").managed_by, app.schedules.get("report").source) == ("code", "shop")


def test_a_schedule_of_another_source_is_a_conflict(store: Contested) -> None:
    app_on(store, "shop", report="every 10m").apply()
    other = app_on(store, "mail", report="every 20m")
    assert (only(other.plan()).action, only(other.plan()).why) == ("conflict", "code of shop declares it")
    other.apply()
    assert other.schedules.get("report").trigger == "every 10m"


def test_a_schedule_moves_from_the_code_to_a_file_of_the_same_source(
    store: Contested, tmp_path: Path
) -> None:
    app_on(store, report="every 10m").apply()
    file = tmp_path / "schedules.toml"
    file.write_text('[schedules.report]\ntrigger = "every 10m"\ntask = "work"\n')
    app = app_on(store)
    entry = only(app.plan(file=file))
    assert (entry.action, changed(entry)) == ("change", {"managed_by": ("code:shop", "file:shop")})
    before = app.schedules.get("report").next_run
    app.apply(file=file)
    assert (app.schedules.get("report").managed_by, app.schedules.get("report").next_run) == ("file", before)


def test_a_schedule_that_schedules_declare_wrote_may_move_to_the_code(store: Contested) -> None:
    app = app_on(store, report="every 10m")
    app.schedules.declare("report", "every 10m", "work")
    entry = only(app.plan())
    assert (entry.action, changed(entry)) == ("change", {"managed_by": ("api", "code:shop")})


def test_an_edit_by_hand_is_a_drift_that_stays(store: Contested) -> None:
    app = app_on(store, report="every 10m")
    app.apply()
    app.schedules.update("report", trigger="every 1h", retries=2)
    entry = only(app.plan())
    assert entry.action == "drift"
    assert changed(entry) == {"trigger": ("every 1h", "every 10m"), "retries": (2, 0)}
    assert entry.command == "evenbeat schedules reset report"
    assert app.apply().done == ()
    assert app.schedules.get("report").trigger == "every 1h"


def test_a_changed_declaration_replaces_an_edit_and_says_so(store: Contested) -> None:
    app_on(store, report="every 10m").apply()
    app = app_on(store, report="every 20m")
    app.schedules.update("report", retries=2)
    entry = only(app.plan())
    assert (entry.action, entry.why) == ("change", "replaces edits by hand: retries")
    assert changed(entry) == {"trigger": ("every 10m", "every 20m"), "retries": (2, 0)}


def test_a_schedule_that_is_not_declared_any_more_is_an_orphan_and_is_removed_by_prune(
    store: Contested,
) -> None:
    app_on(store, report="every 10m", old="every 1h").apply()
    app = app_on(store, report="every 10m")
    assert actions(app.plan()) == {"old": "orphan"}
    assert app.plan().to_do == ()
    entry = only(app.plan(prune=True))
    assert (entry.action, len(entry.ticks_before), entry.ticks_after) == ("remove", 5, ())
    assert [each.name for each in app.apply(prune=True).done] == ["old"]
    assert names(app) == ["report"]
    assert [each.action for each in app.schedules.history("old")] == ["delete", "declare"]


def test_apps_with_other_labels_and_schedules_by_hand_are_never_pruned(store: Contested) -> None:
    app_on(store, "mail", digest="every 10m").apply()
    app_on(store, "", unnamed="every 10m").apply()
    app = app_on(store, "shop", report="every 10m")
    app.apply()
    app.schedules.add("mine", "every 1h", "work")
    app.schedules.declare("also_mine", "every 1h", "work")
    assert app.plan(prune=True).entries == ()
    app.apply(prune=True)
    assert names(app) == ["also_mine", "digest", "mine", "report", "unnamed"]


def test_prune_needs_a_label(store: Contested) -> None:
    app = app_on(store, "", report="every 10m")
    with pytest.raises(InvalidValue, match="prune needs a label") as caught:
        app.plan(prune=True)
    assert caught.value.field == "source"
    assert caught.value.hint == "give it one by Scheduler(source=…)"
    assert app.plan().count("add") == 1


def test_a_scheduler_without_code_prunes_nothing_of_the_code(store: Contested) -> None:
    app_on(store, report="every 10m").apply()
    bare = Scheduler(store, source="shop")
    assert bare.plan(prune=True).entries == ()


def test_a_plan_names_tasks_that_nothing_has(store: Contested) -> None:
    app = app_on(store)
    app.declare("report", "every 1h", "wrok")
    (warning,) = app.plan().warnings
    assert warning.problem == (
        "the app does not have the task wrok, of report: its runs wait until a node has it"
    )
    assert warning.hint == "did you mean work?"


def test_a_paused_schedule_stays_paused(store: Contested) -> None:
    app_on(store, report="every 10m").apply()
    app = app_on(store, report="every 20m")
    app.schedules.pause("report")
    app.apply()
    assert (app.schedules.get("report").state, app.schedules.get("report").trigger) == ("paused", "every 20m")


def test_a_deleted_schedule_is_added_again(store: Contested) -> None:
    app = app_on(store, report="every 10m")
    app.apply()
    app.schedules.delete("report")
    entry = only(app.plan())
    assert (entry.action, entry.ticks_before, changed(entry)["trigger"]) == ("add", (), (None, "every 10m"))
    app.apply()
    assert names(app) == ["report"]


def test_a_plan_of_one_tenant_leaves_the_others_out(store: Contested) -> None:
    app = app_on(store, report="every 10m")
    app.declare("theirs", "every 10m", "work", tenant="acme")
    assert actions(app.plan()) == {"report": "add", "theirs": "add"}
    assert actions(app.plan(tenant="acme")) == {"theirs": "add"}
    app.apply()
    gone = app_on(store)
    assert actions(gone.plan(tenant="acme", prune=True)) == {"theirs": "remove"}


# -- applying ------------------------------------------------------------------------------------------------


def test_all_changes_are_one_write(store: Contested) -> None:
    app_on(store, a="every 1h", gone="every 1h").apply()
    app = app_on(store, a="every 2h", b="every 1h", c="every 1h")
    store.sizes.clear()
    result = app.apply(prune=True)
    assert {each.name: each.action for each in result.done} == {
        "a": "change",
        "b": "add",
        "c": "add",
        "gone": "remove",
    }
    assert store.sizes == [4]


def test_repeating_apply_changes_nothing(store: Contested) -> None:
    app = app_on(store, a="every 1h", b="every 2h")
    app.apply()
    before = [(row.revision, row.updated_at) for row in app.schedules.list()]
    store.sizes.clear()
    assert (app.apply().done, app.apply().unchanged) == ((), 2)
    assert store.sizes == []
    assert [(row.revision, row.updated_at) for row in app.schedules.list()] == before


def test_a_schedule_that_changed_since_the_plan_is_refused_and_planned_again(store: Contested) -> None:
    app_on(store, a="every 1h", b="every 1h").apply()
    app = app_on(store, a="every 2h", b="every 2h")
    plan = app.plan()
    app.schedules.update("a", retries=5)
    result = app.apply(plan)
    assert [each.name for each in result.done] == ["b"]
    (refused,) = result.refused
    assert (refused.name, refused.why) == (
        "a",
        "the schedule, or its declaration, has changed since the plan",
    )
    assert refused.entry is not None
    assert refused.entry.why == "replaces edits by hand: retries"
    assert app.schedules.get("a").trigger == "every 1h"
    assert [each.name for each in app.apply().done] == ["a"]


def test_a_declaration_that_changed_since_the_plan_is_refused(store: Contested) -> None:
    plan = app_on(store, a="every 1h").plan()
    result = app_on(store, a="every 2h").apply(plan)
    assert (result.done, [each.name for each in result.refused]) == ((), ["a"])


def test_a_schedule_that_changes_between_the_reading_and_the_write_is_refused(store: Contested) -> None:
    app_on(store, a="every 1h", b="every 1h").apply()
    app = app_on(store, a="every 2h", b="every 2h")
    store.overtake = lambda: app.schedules.update("a", queue="mail")
    result = app.apply()
    assert [each.name for each in result.done] == ["b"]
    assert [each.name for each in result.refused] == ["a"]
    assert (app.schedules.get("a").trigger, app.schedules.get("a").queue) == ("every 1h", "mail")


def test_a_schedule_that_fires_meanwhile_is_applied_all_the_same(
    store: Contested, clock: VirtualClock
) -> None:
    app_on(store, a="every 1h").apply()
    app = app_on(store, a="every 2h")
    plan = app.plan()
    clock.advance("1h")
    store.overtake = lambda: store.fire_due(clock.now, 10, plan_ticks)
    result = app.apply(plan)
    assert [each.name for each in result.done] == ["a"]
    assert len(app.runs.list(schedule="a")) == 1  # fired once, by whoever came first
    assert app.schedules.get("a").trigger == "every 2h"


def test_a_schedule_that_fires_meanwhile_is_removed_all_the_same(
    store: Contested, clock: VirtualClock
) -> None:
    app_on(store, old="every 1h").apply()
    app = app_on(store)
    clock.advance("1h")
    store.overtake = lambda: store.fire_due(clock.now, 10, plan_ticks)
    assert [each.name for each in app.apply(prune=True).done] == ["old"]
    assert (names(app), len(app.runs.list())) == ([], 1)


def test_nodes_are_woken_if_something_was_written_and_only_then(store: Contested) -> None:
    app = app_on(store, a="every 1h")
    app.apply()
    assert store.hints == 1
    app.apply()
    assert store.hints == 1


def test_a_schedule_that_another_apply_has_created_meanwhile_is_not_created_twice(store: Contested) -> None:
    first, second = app_on(store, a="every 1h"), app_on(store, a="every 1h")
    store.overtake = first.apply
    result = second.apply()
    assert (result.done, len(result.refused)) == ((), 1)
    assert second.schedules.get("a").revision == 1


def test_a_schedule_that_was_edited_is_not_pruned_by_a_plan_from_before(store: Contested) -> None:
    app_on(store, old="every 1h").apply()
    app = app_on(store)
    plan = app.plan(prune=True)
    app.schedules.update("old", retries=1)
    assert app.apply(plan, prune=True).done == ()
    assert names(app) == ["old"]
    store.overtake = lambda: app.schedules.update("old", retries=2)
    assert app.apply(prune=True).done == ()
    assert [each.name for each in app.apply(prune=True).done] == ["old"]


def test_a_long_backlog_is_written_in_parts(store: Contested, clock: VirtualClock) -> None:
    before = app_on(store)
    before.declare("a", "every 1s", "work", catch_up="all", catch_up_limit=10_000)
    before.apply()
    clock.advance("2h")
    app = app_on(store, a="every 1h")
    result = app.apply(app.plan())
    assert [each.name for each in result.done] == ["a"]
    assert (app.schedules.get("a").trigger, len(app.runs.list(limit=10_000))) == ("every 1h", 7200)


def test_an_overdue_tick_follows_the_policy_under_which_it_came_due(
    store: Contested, clock: VirtualClock
) -> None:
    before = app_on(store)
    before.declare("a", "every 1h", "work", overlap="skip")
    before.apply()
    before.schedules.run_now("a")  # still active when the tick comes
    clock.advance("90m")
    app = app_on(store)
    app.declare("a", "every 2h", "work", overlap="skip")
    app.apply()
    assert len(app.runs.list()) == 1
    assert [each.reason for each in app.schedules.skipped("a")] == ["overlap"]


def test_a_schedule_that_a_newer_version_wrote_is_left_alone(store: Contested) -> None:
    app_on(store, a="every 1h", gone="every 1h").apply()
    for name in ("a", "gone"):
        key = ("default", name)
        store._schedules[key] = replace(store._schedules[key], format=99)
    plan = app_on(store, a="every 2h").plan(prune=True, adopt=True)
    assert {each.name: (each.action, each.why) for each in plan.entries} == dict.fromkeys(
        ("a", "gone"), ("conflict", "a newer version of Evenbeat wrote it")
    )
    assert app_on(store, a="every 2h").apply(prune=True, adopt=True).done == ()


def test_a_damaged_schedule_is_written_anew(store: Contested) -> None:
    app_on(store, a="every 1h").apply()
    key = ("default", "a")
    store._schedules[key] = replace(store._schedules[key], payload="{", damage="payload: broken")
    app = app_on(store, a="every 1h")
    assert actions(app.plan()) == {"a": "change"}
    app.apply()
    assert (app.schedules.get("a").damage, app.plan().entries) == ("", ())


def test_many_changes_are_written_in_steps(store: Contested, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploying, "ONE_STEP", 3)
    app = app_on(store, **{f"s{number}": "every 1h" for number in range(7)})
    assert len(app.apply().done) == 7
    assert store.sizes == [3, 3, 1]


def test_a_quota_refuses_the_schedules_that_are_too_many(store: Contested) -> None:
    app = app_on(store, a="every 1h", b="every 1h", c="every 1h")
    app.tenants.set_quota("default", schedules=2)
    result = app.apply()
    assert len(result.done) == 2
    (refused,) = result.refused
    assert "its quota is 2" in refused.why


def test_the_audit_names_who_applied(store: Contested) -> None:
    app = app_on(store, a="every 1h")
    with acting_as("ci", "api"):
        app.apply()
    (entry,) = app.schedules.history("a")
    assert (entry.actor, entry.action) == ("ci", "declare")


def test_apply_refuses_what_is_not_a_plan(store: Contested) -> None:
    with pytest.raises(InvalidValue, match="plan 7 is not a plan"):
        app_on(store).apply(7)  # type: ignore[arg-type]


def test_the_async_twins_do_the_same(store: Contested) -> None:
    app = app_on(store, a="every 1h")

    async def deploy() -> int:
        plan = await app.aplan()
        return len((await app.aapply(plan)).done)

    assert asyncio.run(deploy()) == 1


@given(st.data())
def test_prune_removes_only_what_its_own_source_declared(data: st.DataObject) -> None:
    store = MemoryStore(VirtualClock())
    pool = [f"s{number}" for number in range(6)]
    by_hand = data.draw(st.sets(st.sampled_from(pool), max_size=3))
    hand = Scheduler(store)
    for name in by_hand:
        hand.schedules.add(name, "every 1h", "work")
    owned: dict[str, str] = {}
    for _ in range(data.draw(st.integers(1, 6))):
        source = data.draw(st.sampled_from(("shop", "mail")))
        wanted = data.draw(st.sets(st.sampled_from(pool)))
        app = app_on(
            store, source, **dict.fromkeys(sorted(wanted), data.draw(st.sampled_from(("@daily", "@hourly"))))
        )
        app.apply(prune=True)
        for name in wanted - by_hand:
            owned.setdefault(name, source)
        owned = {name: by for name, by in owned.items() if by != source or name in wanted}
        found = {each.name: each.source for each in hand.schedules.list()}
        assert found == owned | dict.fromkeys(by_hand, "")


# -- nodes ---------------------------------------------------------------------------------------------------


def test_a_node_declares_what_app_declare_declares(store: Contested) -> None:
    app = app_on(store, report="every 10m")
    app.declare_tasks()
    assert (app.schedules.get("report").managed_by, app.schedules.get("report").source) == ("code", "shop")
    assert app.plan().entries == ()


def test_a_node_leaves_a_schedule_alone_that_was_made_by_hand(store: Contested, caplog: Any) -> None:
    app = app_on(store, report="every 10m")
    app.schedules.add("report", "every 1h", "work")
    app.declare_tasks()
    assert app.schedules.get("report").trigger == "every 1h"
    assert "to take it over: evenbeat apply --adopt" in caplog.text


def test_a_node_writes_the_label_of_an_app_that_had_none(store: Contested) -> None:
    def deploy(source: str) -> Scheduler:
        app = Scheduler(store, source=source)
        app.task(name="poll", schedule=every("5m"))(lambda: None)
        app.declare_tasks()
        return app

    deploy("")
    app = deploy("shop")
    app.schedules.update("poll", retries=2)
    assert (app.schedules.get("poll").source, app.schedules.get("poll").retries) == ("shop", 2)
    deploy("mail")
    assert app.schedules.get("poll").source == "shop"


def test_the_code_cannot_declare_a_name_twice(store: Contested) -> None:
    app = app_on(store, report="every 10m")
    with pytest.raises(
        InvalidValue, match='name "report" is that of a schedule that the code declares already'
    ):
        app.declare("report", "every 1h", "work")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"retries": -1}, "retries -1"),
        ({"max_concurrent": 0}, "max_concurrent 0"),
        ({"retries": 2**63}, f"retries {2**63}"),
        ({"wrong": 1}, "has no option wrong"),
        ({"tenant": "a b"}, 'tenant "a b"'),
    ],
)
def test_wrong_values_are_refused_when_they_are_declared(
    store: Contested, options: Any, problem: str
) -> None:
    with pytest.raises(InvalidValue, match=problem):
        app_on(store).declare("report", "every 1h", "work", **options)


def test_a_wrong_label_is_refused(store: Contested) -> None:
    with pytest.raises(InvalidValue, match='source "a:b"'):
        Scheduler(store, source="a:b")
    with pytest.raises(InvalidValue, match='source "a b"'):
        app_on(store).plan(schedules={}, source="a b")


def _app(store: MemoryStore, mode: Any, durable: bool | None) -> Scheduler:
    app = Scheduler(store, source="shop", schedule_mode=mode)
    options: Any = {} if durable is None else {"durable": durable}
    app.task(name="ping", schedule=every("7m"), **options)(lambda: None)
    return app


def _found(store: MemoryStore) -> list[tuple[object, ...]]:
    return [
        (row.state, row.trigger, row.managed_by, row.next_tick, row.generation)
        for row in store.find_schedules(ScheduleQuery(states=get_args(ScheduleState))).items
    ]


class TestModes:
    """A plan says what a node with the same settings does, and ``apply`` does it."""

    BEFORE = ("nothing", "declared", "paused", "edited", "by hand", "deleted", "runs from memory")

    def before(self, kind: str, clock: VirtualClock) -> MemoryStore:
        """Return a store as earlier versions of the code, and users, left it."""
        store = MemoryStore(clock)
        store.open()
        app = _app(store, "durable", None)
        if kind == "by hand":
            app.schedules.add("ping", every("1h"), "ping")
        elif kind == "runs from memory":
            code = CodeTicker(
                store,
                Events(),
                Fallback(store, Events()),
                [_app(store, "code", None)._declared.code_only()[0]],
            )
            for _ in range(4):
                code.step(clock.now)
                clock.advance("5m")
        elif kind != "nothing":
            app.declare_tasks()
        if kind == "paused":
            app.schedules.pause("ping")
        elif kind == "edited":
            app.schedules.update("ping", trigger=every("1h"))
        elif kind == "deleted":
            app.schedules.delete("ping")
        clock.advance("90s")
        return store

    @pytest.mark.parametrize("kind", BEFORE)
    @pytest.mark.parametrize("durable", [None, True, False])
    @pytest.mark.parametrize("mode", ["durable", "code"])
    def test_apply_leaves_what_a_node_leaves(self, mode: Any, durable: bool | None, kind: str) -> None:
        applied, started = (self.before(kind, VirtualClock()) for _ in range(2))
        app = _app(applied, mode, durable)
        plan = app.plan()
        result = app.apply(plan)
        assert not result.refused
        assert [entry.action for entry in result.done] == [entry.action for entry in plan.to_do]
        _app(started, mode, durable).declare_tasks()
        if kind == "by hand" and (durable or (durable is None and mode == "durable")):
            assert plan.entries[0].action == "conflict"  # a node would take it over
            return
        assert _found(applied) == _found(started)
        assert app.plan().to_do == ()

    def test_a_row_that_code_only_nodes_delete_is_removed_without_prune(self) -> None:
        app = _app(self.before("declared", VirtualClock()), "code", None)
        (entry,) = app.plan().entries
        assert (entry.action, entry.why) == ("remove", "it is in the code only")
        assert entry.ticks_before
        assert not entry.ticks_after

    @pytest.mark.parametrize("kind", ["paused", "edited", "by hand"])
    def test_a_row_that_nodes_keep_is_a_conflict_that_names_the_command(self, kind: str) -> None:
        app = _app(self.before(kind, VirtualClock()), "code", None)
        for prune in (False, True):
            (entry,) = app.plan(prune=prune).entries
            assert (entry.action, entry.command) == ("conflict", "evenbeat schedules delete ping")
            assert "nodes fire the row until you delete it" in entry.why
        assert app.apply(prune=True).done == ()

    def test_a_row_that_somebody_pauses_before_the_removal_stays(self, clock: VirtualClock) -> None:
        store = Contested(clock)
        store.open()
        app = _app(store, "durable", None)
        app.declare_tasks()
        code = _app(store, "code", None)
        store.overtake = lambda: app.schedules.pause("ping")
        result = code.apply()
        assert [each.name for each in result.refused] == ["ping"]
        assert app.schedules.get("ping").state == "paused"

    def test_what_a_node_refuses_a_plan_refuses(self) -> None:
        app = Scheduler("memory://", schedule_mode="code")
        app.task(name="ping", schedule=every("7m"), overlap="skip")(lambda: None)
        with pytest.raises(InvalidValue, match="overlap of schedule ping needs a row"):
            app.plan()

    def test_the_mode_of_the_settings_overrides_that_of_the_code(self) -> None:
        app = _app(self.before("nothing", VirtualClock()), "durable", None)
        assert app.plan().count("add") == 1
        app.declare_mode("code")
        assert app.plan().entries == ()
        with pytest.raises(InvalidValue, match="schedule_mode"):
            app.declare_mode("other")  # type: ignore[arg-type]
