"""Templates: what schedules inherit, whose options win, and changes that a death interrupts."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import (
    InvalidTrigger,
    InvalidValue,
    Schedule,
    Scheduler,
    StoreUnavailable,
    TemplateInUse,
    TemplateNotFound,
    every,
)
from evenbeat.app import templates
from evenbeat.core.instants import from_ms
from evenbeat.core.options import SCHEDULE
from evenbeat.core.records import Record, ScheduleRecord
from evenbeat.doctor.diagnosis import diagnose
from evenbeat.rules.definitions import definition, options_of, with_options
from evenbeat.rules.inheritance import (
    INHERITABLE,
    Inheritance,
    declared_inheritance,
    inheritance_of,
    write_inheritance,
)
from evenbeat.rules.templates import (
    BUILT_IN,
    TEMPLATE,
    StoredTemplate,
    inherit,
    inheriting,
    read_template,
    template_record,
)
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from tests.unit.test_alert_deaths import Died, Failpoint


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def app(store: MemoryStore) -> Scheduler:
    app = Scheduler(store)
    app.task(name="work", retries=1)(lambda: None)
    app.templates.set("nightly", trigger="0 3 * * *", retries=3, queue="batch", timeout="1h")
    return app


def options(schedule: Schedule, *names: str) -> list[Any]:
    return [getattr(schedule, name) for name in names]


# -- the rule ------------------------------------------------------------------------------------------------


def test_a_template_may_have_the_options_of_schedules() -> None:
    assert set(INHERITABLE) <= {"trigger", *SCHEDULE}


def test_options_survive_their_way_to_a_template_and_back() -> None:
    row = ScheduleRecord(name="a", task="t", trigger="every 1m", tags="a b", spread=61_001)
    found = options_of(row)
    assert with_options(row, {name: found[name] for name in INHERITABLE}) == row


def test_inheriting_again_changes_nothing() -> None:
    row = ScheduleRecord(name="a", task="t", trigger="every 1m")
    once = inherit(row, "n", {"retries": 3, "grace": "5m", "catch_up": "skip"}, ("trigger",))
    assert inherit(once, "n", {"retries": 3, "grace": "5m", "catch_up": "skip"}) == once


def test_an_option_that_a_template_drops_gets_its_value_without_the_template() -> None:
    row = ScheduleRecord(name="a", task="t", trigger="every 1m", queue="slow")
    heir = inherit(row, "n", {"queue": "batch"}, ("trigger",))
    assert heir.queue == "batch"
    assert inherit(heir, "n", {"retries": 2}).queue == "slow"


def test_a_template_with_every_option_is_read() -> None:
    body = StoredTemplate(options=dict.fromkeys(INHERITABLE))
    assert read_template(template_record("default", "t", body, 1)) == body


def test_a_trigger_that_is_given_back_to_a_template_without_one_stays() -> None:
    row = ScheduleRecord(name="s", task="t", trigger="every 1h")
    owner = inherit(row, "t", {"retries": 1}, ("trigger",))
    assert inherit(owner, "t", {"retries": 1}, ()).trigger == "every 1h"


def test_equal_inheritances_have_equal_texts() -> None:
    one = Inheritance(name="t", own=("queue", "after"), base={"retries": 1, "trigger": None})
    other = Inheritance(name="t", own=("after", "queue"), base={"trigger": None, "retries": 1})
    assert write_inheritance(one) == write_inheritance(other)
    assert inheritance_of(write_inheritance(one)) == replace(one, own=("after", "queue"))
    assert declared_inheritance("") == ""
    assert inheritance_of(declared_inheritance(write_inheritance(one))) == Inheritance(
        name="t", own=("after", "queue")
    )


def test_a_text_that_cannot_be_read_is_no_template() -> None:
    assert inheritance_of("{") is None
    assert inheritance_of("") is None


def test_a_declaration_does_not_change_with_the_template() -> None:
    row = ScheduleRecord(name="a", task="t", trigger="every 1m")
    first = inherit(row, "n", {"queue": "batch"}, ("trigger",))
    then = inherit(first, "n", {"queue": "other", "retries": 9})
    assert definition(first) == definition(then)


# -- add, update ---------------------------------------------------------------------------------------------


def test_own_options_win_over_the_template_and_the_template_over_the_task(app: Scheduler) -> None:
    made = app.schedules.add("a", task="work", template="nightly", queue="fast")
    assert options(made, "trigger", "retries", "queue", "timeout") == [
        "0 3 * * *",
        3,
        "fast",
        timedelta(hours=1),
    ]
    assert made.template == "nightly"
    assert made.inherited == ("trigger", "retries", "timeout")
    own = app.schedules.add("b", every("5m"), "work", template="nightly")
    assert own.trigger == "every 5m"
    assert own.inherited == ("retries", "timeout", "queue")


def test_a_template_may_stand_in_the_place_of_the_trigger(app: Scheduler) -> None:
    assert app.schedules.add("a", "@nightly", "work").template == "nightly"
    built_in = app.schedules.add("b", "@workdays", "work", template="workdays")
    assert (built_in.template, built_in.trigger) == ("workdays", "0 9 * * 1-5")
    macro = app.schedules.add("c", "@hourly", "work")
    assert macro.template is None
    with pytest.raises(InvalidValue, match="contradict each other"):
        app.schedules.add("d", "@nightly", "work", template="workdays")
    with pytest.raises(InvalidTrigger, match="@fortnightly"):
        app.schedules.add("d", "@fortnightly", "work")


def test_an_own_grace_goes_with_an_inherited_policy(app: Scheduler) -> None:
    app.templates.set("strict", catch_up="skip", grace="5m")
    made = app.schedules.add("a", every("1h"), "work", template="strict", grace="1m")
    assert (made.catch_up, made.grace) == ("skip", timedelta(minutes=1))
    with pytest.raises(InvalidValue, match=r"grace .* has no effect"):
        app.schedules.add("b", every("1h"), "work", template="nightly", grace="1m")


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda app: app.schedules.add("a", task="work"), "trigger"),
        (lambda app: app.schedules.add("a", every("1h")), "task"),
        (lambda app: app.schedules.add("a", every("1h"), "work", template="a b"), "template"),
        (lambda app: app.schedules.add("a", every("1h"), "work", template=7), "template"),
        (lambda app: app.templates.set("a b", retries=1), "name"),
        (lambda app: app.templates.set("workdays", retries=1), "name"),
        (lambda app: app.templates.delete("workdays"), "name"),
        (lambda app: app.templates.set("x"), "options"),
        (lambda app: app.templates.set("x", retries=-1), "retries"),
        (lambda app: app.templates.set("x", retries=1 << 63), "retries"),
        (lambda app: app.templates.set("x", spread=0.5e9), "spread"),
        (lambda app: app.templates.set("x", trigger=""), "expression"),
        (lambda app: app.templates.set("x", trigger=5), "trigger"),
        (lambda app: app.templates.set("x", task="work"), "task"),
        (lambda app: app.templates.set("x", retires=1), "retires"),
    ],
)
def test_bad_values_are_refused_by_name(app: Scheduler, call: Any, field: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        call(app)
    assert refused.value.field == field
    assert [each.name for each in app.templates.list() if not each.built_in] == ["nightly"]


def test_a_template_without_a_trigger_does_not_make_a_schedule(app: Scheduler) -> None:
    app.templates.set("plain", retries=2)
    with pytest.raises(InvalidValue, match='template "plain" has no trigger'):
        app.schedules.add("a", task="work", template="plain")


def test_an_unknown_template_names_the_nearest(app: Scheduler) -> None:
    with pytest.raises(TemplateNotFound, match=r"did you mean nightly\?"):
        app.schedules.add("a", task="work", template="nightlly")
    with pytest.raises(TemplateNotFound, match="there are daily-9am"):
        app.templates.get("zzz")
    app.schedules.add("a", every("1h"), "work")
    with pytest.raises(TemplateNotFound):
        app.schedules.update("a", template="zzz")
    with pytest.raises(TemplateNotFound):
        app.templates.delete("zzz")


def test_an_edit_makes_an_option_its_own_until_it_is_given_back(app: Scheduler) -> None:
    app.schedules.add("a", task="work", template="nightly")
    assert app.schedules.update("a", retries=7).inherited == ("trigger", "timeout", "queue")
    app.templates.set("nightly", trigger="0 4 * * *", retries=5)
    assert options(app.schedules.get("a"), "retries", "trigger") == [7, "0 4 * * *"]
    back = app.schedules.update("a", inherit=["retries"])
    assert (back.retries, back.inherited) == (5, ("trigger", "retries"))


def test_what_can_be_inherited_is_checked(app: Scheduler) -> None:
    app.schedules.add("a", every("1h"), "work")
    with pytest.raises(InvalidValue, match="has no template to inherit retries from"):
        app.schedules.update("a", inherit=["retries"])
    app.templates.set("plain", retries=2)
    app.schedules.update("a", template="plain")
    for names, words in (
        (["payload"], "is not an option that schedules inherit"),
        ("retries", "is not a list of options"),
        (["trigger"], "has no trigger to inherit"),
    ):
        with pytest.raises(InvalidValue, match=words) as refused:
            app.schedules.update("a", inherit=names)
        assert refused.value.field == "inherit"
    with pytest.raises(InvalidValue, match="inherited and changed at once"):
        app.schedules.update("a", inherit=["retries"], retries=3)


def test_a_schedule_that_gets_a_template_keeps_what_it_says_itself(app: Scheduler) -> None:
    app.schedules.add("a", every("1h"), "work", queue="fast", retries=0)
    made = app.schedules.update("a", template="nightly")
    assert options(made, "trigger", "queue", "timeout") == ["every 1h", "fast", timedelta(hours=1)]
    whole = app.schedules.update("a", inherit=["trigger", "queue"])
    assert options(whole, "trigger", "queue") == ["0 3 * * *", "batch"]


def test_another_template_replaces_all_that_the_first_gave(app: Scheduler) -> None:
    app.templates.set("mondays", trigger="0 3 * * 1", retries=9)
    app.schedules.add("a", task="work", template="nightly", timeout="5m")
    made = app.schedules.update("a", template="mondays")
    assert options(made, "trigger", "retries", "queue", "timeout") == [
        "0 3 * * 1",
        9,
        "default",
        timedelta(minutes=5),
    ]


def test_without_its_template_a_schedule_keeps_its_options(app: Scheduler) -> None:
    app.schedules.add("a", task="work", template="nightly")
    made = app.schedules.update("a", template=None)
    assert (made.template, made.inherited, made.retries, made.trigger) == (None, (), 3, "0 3 * * *")
    app.templates.delete("nightly")


# -- set, delete ---------------------------------------------------------------------------------------------


def test_a_change_of_a_template_changes_its_schedules_and_fires_nothing(app: Scheduler) -> None:
    for name in ("a", "b"):
        app.schedules.add(name, task="work", template="nightly")
    app.schedules.pause("b")
    app.schedules.add("c", every("1h"), "work")
    before = {each.name: each for each in app.schedules.list()}
    wanted: dict[str, Any] = {"trigger": "0 3 * * *", "retries": 4, "spread": "5m"}
    dry = app.templates.set("nightly", dry_run=True, **wanted)
    assert (dry.schedules, dry.changed, dry.template.revision) == (2, 2, 2)
    assert [each.schedule for each in dry.sample] == ["a", "b"]
    assert dry.sample[0].before == {"retries": 3, "timeout": "1h", "queue": "batch", "spread": "0s"}
    assert dry.sample[0].after == {"retries": 4, "timeout": None, "queue": "default", "spread": "5m"}
    assert {each.name: each for each in app.schedules.list()} == before
    assert app.templates.get("nightly").revision == 1
    done = app.templates.set("nightly", **wanted)
    assert (done.schedules, done.changed, done.refused, done.sample) == (2, 2, (), dry.sample)
    after = {each.name: each for each in app.schedules.list()}
    assert after["c"] == before["c"]
    assert [after[name].retries for name in "ab"] == [4, 4]
    assert after["b"].state == "paused"
    # The same trigger keeps the tick.
    assert after["a"].next_run == before["a"].next_run + after["a"].spread_delay  # type: ignore[operator]
    assert not app.runs.list()


def test_the_same_template_again_writes_nothing(app: Scheduler) -> None:
    app.schedules.add("a", task="work", template="nightly")
    before = app.schedules.get("a")
    again = app.templates.set("nightly", trigger="0 3 * * *", retries=3, queue="batch", timeout="60m")
    assert (again.schedules, again.changed, again.template.revision) == (1, 0, 1)
    assert app.schedules.get("a") == before


def test_a_template_keeps_the_trigger_that_schedules_inherit(app: Scheduler) -> None:
    app.schedules.add("a", task="work", template="nightly")
    app.schedules.add("b", every("1h"), "work", template="nightly")
    for dry_run in (True, False):
        with pytest.raises(InvalidValue, match="has no trigger, and a inherits it") as refused:
            app.templates.set("nightly", retries=1, dry_run=dry_run)
        assert refused.value.field == "trigger"
    assert app.templates.get("nightly").revision == 1
    app.schedules.update("a", trigger=every("2h"))
    assert app.templates.set("nightly", retries=1).changed == 2


def test_a_schedule_keeps_its_trigger_until_the_template_has_one_again() -> None:
    row = ScheduleRecord(
        name="a", task="t", trigger="every 1m", template='{"name":"n","base":{"trigger":null}}'
    )
    without = inherit(row, "n", {"retries": 1})
    assert without.trigger == "every 1m"
    assert inherit(without, "n", {"retries": 1}) == without
    assert inherit(without, "n", {"trigger": "every 2m"}).trigger == "every 2m"


def test_a_used_template_is_not_deleted(app: Scheduler) -> None:
    for number in range(7):
        app.schedules.add(f"s{number}", task="work", template="nightly")
    with pytest.raises(TemplateInUse, match=r"s0, s1, s2, s3, s4 and 2 more") as used:
        app.templates.delete("nightly")
    assert used.value.schedules == [f"s{number}" for number in range(7)]
    app.schedules.delete_all(template="nightly")
    app.templates.delete("nightly")
    assert [each.name for each in app.templates.list()] == list(BUILT_IN)


def test_templates_belong_to_a_tenant(app: Scheduler) -> None:
    with pytest.raises(TemplateNotFound):
        app.schedules.add("a", task="work", template="nightly", tenant="acme")
    app.templates.set("nightly", tenant="acme", trigger="0 5 * * *")
    assert app.schedules.add("a", task="work", template="nightly", tenant="acme").trigger == "0 5 * * *"
    assert app.templates.get("nightly").options["trigger"] == "0 3 * * *"
    assert app.templates.set("nightly", trigger="0 6 * * *").schedules == 0
    app.tenants.purge("acme", dry_run=False)
    assert [each.name for each in app.templates.list(tenant="acme")] == list(BUILT_IN)


def test_the_audit_names_changes_of_templates_and_of_their_schedules(app: Scheduler) -> None:
    app.schedules.add("a", task="work", template="nightly")
    app.templates.set("nightly", trigger="0 3 * * *", retries=8)
    schedule, template = app.audit.list(limit=2)
    assert (template.kind, template.subject, template.action) == ("template", "nightly", "set")
    assert template.before == {"retries": 3, "timeout": "1h", "queue": "batch"}
    assert (schedule.subject, schedule.action, schedule.after["retries"]) == ("a", "update", 8)
    added = app.audit.list(subject="a", action="add")[0]
    assert added.after["template"] == "nightly"


def test_templates_can_be_awaited(app: Scheduler) -> None:
    async def main() -> None:
        await app.templates.aset("x", retries=1)
        assert (await app.templates.aget("x")).options == {"retries": 1}
        assert len(await app.templates.alist()) == 2 + len(BUILT_IN)
        await app.templates.adelete("x")

    asyncio.run(main())


# -- declarations --------------------------------------------------------------------------------------------


def declared(store: MemoryStore, **more: Any) -> Scheduler:
    app = Scheduler(store)
    app.task(name="digest", template="nightly", **more)(lambda: None)
    app.declare_tasks()
    return app


def test_a_decorated_task_inherits(app: Scheduler, store: MemoryStore) -> None:
    made = declared(store, retries=6).schedules.get("digest")
    assert (made.trigger, made.retries, made.queue) == ("0 3 * * *", 6, "batch")
    assert made.managed_by == "code"
    assert made.edited == {}


def test_a_changed_template_is_not_a_changed_declaration(app: Scheduler, store: MemoryStore) -> None:
    declared(store)
    app.schedules.update("digest", retries=9)
    app.templates.set("nightly", trigger="0 4 * * *", retries=5, queue="batch")
    before = app.schedules.get("digest")
    assert before.edited == {"retries": "inherited from nightly"}
    declared(store)
    assert app.schedules.get("digest") == before
    assert (before.retries, before.trigger) == (9, "0 4 * * *")
    reset = app.schedules.reset("digest")
    assert (reset.retries, reset.trigger, reset.edited) == (5, "0 4 * * *", {})
    assert reset.inherited == ("trigger", "retries", "queue")
    app.templates.set("nightly", trigger="0 4 * * *", retries=2)
    assert app.schedules.get("digest").retries == 2


def test_a_declaration_that_drops_its_template_changes_the_schedule(
    app: Scheduler, store: MemoryStore
) -> None:
    declared(store)
    other = Scheduler(store)
    other.task(name="digest", schedule="every 1h")(lambda: None)
    other.declare_tasks()
    made = app.schedules.get("digest")
    assert (made.template, made.trigger, made.retries) == (None, "every 1h", 0)


def test_taking_the_template_away_by_hand_is_an_edit(app: Scheduler, store: MemoryStore) -> None:
    declared(store)
    assert app.schedules.update("digest", template=None).edited == {"template": "nightly"}
    assert app.schedules.reset("digest").template == "nightly"


# -- deaths and races ----------------------------------------------------------------------------------------


def five_heirs(app: Scheduler) -> None:
    for number in range(5):
        app.schedules.add(f"s{number}", task="work", template="nightly")


def die() -> None:
    raise Died


def lagging(app: Scheduler) -> list[str]:
    found = [each for each in diagnose(app.store, app.store.now()) if each.check == "templates"]
    return [] if not found or found[0].level == "ok" else list(found[0].facts["schedules"])


@pytest.mark.parametrize("is_after", [False, True])
def test_a_process_may_die_at_every_call_of_the_store(is_after: bool) -> None:
    for at in range(1, 40):
        store = MemoryStore(VirtualClock())
        app = Scheduler(store)
        app.templates.set("nightly", trigger="0 3 * * *", retries=3)
        five_heirs(app)
        dying = Scheduler(Failpoint(store, at, die, is_after=is_after))
        wanted: dict[str, Any] = {"trigger": "0 3 * * *", "retries": 4}
        try:
            dying.templates.set("nightly", **wanted)
        except Died:
            pass
        else:
            break
        behind = [each.name for each in app.schedules.list() if each.retries == 3]
        is_written = app.templates.get("nightly").options["retries"] == 4
        assert lagging(app) == (behind if is_written else [])
        assert app.templates.set("nightly", **wanted).changed == len(behind)
        assert {each.retries for each in app.schedules.list()} == {4}
        assert lagging(app) == []
    else:
        pytest.fail("it needs more calls than expected")
    assert at > 3


def test_a_schedule_that_changes_meanwhile_gets_both_changes(app: Scheduler, store: MemoryStore) -> None:
    five_heirs(app)

    def edit() -> None:
        app.schedules.update("s1", priority="high")
        app.schedules.update("s2", retries=1)
        app.schedules.update("s3", template=None)
        app.schedules.delete("s4")

    racing = Racing(store, edit)
    done = Scheduler(racing).templates.set("nightly", trigger="0 3 * * *", retries=4)
    assert {each.id for each in done.refused} == {"s3", "s4"}
    found = {each.name: each for each in app.schedules.list()}
    assert [found[name].retries for name in ("s0", "s1", "s2", "s3")] == [4, 4, 1, 3]
    assert found["s1"].priority == 8


class Racing(Failpoint):
    """A store before whose first write of schedules others write."""

    def __init__(self, store: MemoryStore, act: Any) -> None:
        super().__init__(store, 0, act)

    def __getattr__(self, name: str) -> Any:
        method = super().__getattr__(name)
        if name == "put_schedules" and self._act is not None:
            act, self._act = self._act, None  # type: ignore[assignment]
            act()
        return method


def test_a_schedule_that_is_added_while_its_template_changes_follows(
    app: Scheduler, store: MemoryStore
) -> None:
    racing = Racing(store, lambda: app.templates.set("nightly", trigger="0 7 * * *"))
    adding = Scheduler(racing)
    made = adding.schedules.add("a", task="work", template="nightly")
    assert (made.trigger, made.retries) == ("0 7 * * *", 0)
    assert lagging(app) == []


def test_a_schedule_that_is_added_while_its_template_goes_keeps_its_options(
    app: Scheduler, store: MemoryStore
) -> None:
    racing = Racing(store, lambda: app.templates.delete("nightly"))
    made = Scheduler(racing).schedules.add("a", task="work", template="nightly")
    assert (made.template, made.trigger, made.retries) == (None, "0 3 * * *", 3)


def test_a_delete_that_finds_a_late_user_restores_the_template(app: Scheduler, store: MemoryStore) -> None:
    class Late(Racing):
        def __getattr__(self, name: str) -> Any:
            if name == "delete_record" and self._act is not None:
                act, self._act = self._act, None  # type: ignore[assignment]
                act()
            return getattr(self._store, name)

    def add() -> None:
        app.schedules.add("late", task="work", template="nightly")

    with pytest.raises(TemplateInUse, match="late"):
        Scheduler(Late(store, add)).templates.delete("nightly")
    assert app.templates.get("nightly").options["retries"] == 3
    assert lagging(app) == []


def test_two_changes_at_once_leave_no_schedule_behind(app: Scheduler, store: MemoryStore) -> None:
    five_heirs(app)
    racing = Racing(store, lambda: app.templates.set("nightly", trigger="0 3 * * *", retries=6))
    Scheduler(racing).templates.set("nightly", trigger="0 3 * * *", retries=5)
    assert {each.retries for each in app.schedules.list()} == {6}
    assert lagging(app) == []


def test_the_doctor_names_a_missing_template(app: Scheduler, store: MemoryStore) -> None:
    app.schedules.add("a", task="work", template="nightly")
    record = store.get_record(TEMPLATE, "default", "nightly")
    assert record is not None
    store.delete_record(TEMPLATE, "default", "nightly", record.version)
    assert lagging(app) == ["a"]
    (found,) = [each for each in diagnose(store, store.now()) if each.check == "templates"]
    assert found.details == ("a: template nightly is missing",)


def test_a_damaged_template_counts_as_missing(app: Scheduler, store: MemoryStore) -> None:
    store.put_record(Record(kind=TEMPLATE, key="bad", body="{", version=1))
    store.put_record(Record(kind=TEMPLATE, key="odd", body='{"options": {"task": "x"}}', version=1))
    assert "bad" not in [each.name for each in app.templates.list()]
    for name in ("bad", "odd"):
        with pytest.raises(TemplateNotFound):
            app.templates.get(name)
        app.templates.set(name, retries=1)
        assert app.templates.get(name).options == {"retries": 1}


def test_a_damaged_inheritance_is_not_shown(app: Scheduler) -> None:
    made = ScheduleRecord(name="a", task="t", trigger="every 1m", template="{")
    assert options_of(made)["template"] is None
    assert inherit(replace(made, template=""), "n", {}, ()).template == '{"name":"n"}'
    assert Inheritance(name="n").inherited == ()


def test_an_option_that_is_given_back_to_a_template_without_it_gets_its_default(app: Scheduler) -> None:
    app.templates.set("plain", queue="batch")
    app.schedules.add("a", every("1h"), "work", template="plain", spread="5m")
    made = app.schedules.update("a", inherit=["spread"])
    assert (made.spread, made.inherited) == (timedelta(0), ("queue",))
    assert app.schedules.update("a", inherit=["spread"]) == made


def test_options_become_own_once() -> None:
    row = inherit(ScheduleRecord(name="a", task="t", trigger="every 1m"), "n", {"retries": 1}, ("trigger",))
    assert inheriting(row, ["trigger"]) is row
    assert inheriting(replace(row, template=""), ["trigger"]).template == ""
    own = inheritance_of(inheriting(row, ["retries"]).template)
    assert own is not None
    assert own.own == ("retries", "trigger")


# -- what users see ----------------------------------------------------------------------------------------


def test_a_template_tells_its_times_its_revision_and_its_trigger_in_words(
    app: Scheduler, clock: VirtualClock
) -> None:
    first = app.templates.get("nightly")
    assert (first.words, first.revision, first.built_in) == ("at 03:00 every day (UTC)", 1, False)
    assert first.created_at == first.updated_at == from_ms(clock.now)
    clock.advance("1h")
    dry = app.templates.set("nightly", dry_run=True, **first.options).template
    assert dry == first
    assert app.templates.set("nightly", dry_run=True, retries=1).template.revision == 2
    second = app.templates.set("nightly", retries=1).template
    assert (second.words, second.revision, second.created_at) == ("", 2, first.created_at)
    assert second.updated_at == from_ms(clock.now)
    built_in = app.templates.get("workdays")
    assert (built_in.revision, built_in.created_at, built_in.updated_at) == (0, None, None)
    assert built_in.words == "at 09:00, Monday to Friday (UTC)"


def test_a_tenant_has_a_bounded_number_of_templates(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "MOST_TEMPLATES", 2)
    app.templates.set("second", retries=1)
    with pytest.raises(InvalidValue, match=r"would be template 3 of its tenant") as refused:
        app.templates.set("third", retries=1)
    assert refused.value.field == "name"
    assert app.templates.set("second", retries=2).template.revision == 2
    app.templates.set("third", retries=1, tenant="acme")


def test_the_schedules_of_another_tenant_stay(app: Scheduler) -> None:
    app.templates.set("nightly", tenant="acme", trigger="0 5 * * *")
    app.schedules.add("a", task="work", template="nightly", tenant="acme")
    app.schedules.add("a", task="work", template="nightly")
    assert app.templates.set("nightly", tenant="acme", trigger="0 6 * * *").schedules == 1
    assert app.schedules.get("a").trigger == "0 3 * * *"
    assert app.schedules.get("a", tenant="acme").trigger == "0 6 * * *"
    with pytest.raises(TemplateInUse):
        app.templates.delete("nightly", tenant="acme")


def test_the_effects_on_the_first_schedules_are_shown(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templates, "_SAMPLE", 3)
    five_heirs(app)
    done = app.templates.set("nightly", trigger="0 3 * * *", retries=1)
    assert (done.changed, [each.schedule for each in done.sample]) == (5, ["s0", "s1", "s2"])


def test_the_audit_has_the_first_and_the_last_of_a_template(app: Scheduler) -> None:
    app.templates.delete("nightly")
    deleted, made = app.audit.list(subject="nightly")
    whole = {"trigger": "0 3 * * *", "retries": 3, "timeout": "1h", "queue": "batch"}
    assert (made.action, made.before, made.after) == ("set", {}, whole)
    assert (deleted.action, deleted.before, deleted.after) == ("delete", whole, {})


def test_a_template_that_others_keep_changing_is_not_written(app: Scheduler, store: MemoryStore) -> None:
    class Losing(Racing):
        def __getattr__(self, name: str) -> Any:
            if name not in ("put_record", "delete_record"):
                return getattr(self._store, name)

            def lose(*args: Any, **options: Any) -> bool:
                is_template = TEMPLATE in (args[0], getattr(args[0], "kind", None))
                return False if is_template else getattr(self._store, name)(*args, **options)

            return lose

    losing = Scheduler(Losing(store, None))
    for call in (
        lambda: losing.templates.set("nightly", retries=9),
        lambda: losing.templates.delete("nightly"),
    ):
        with pytest.raises(StoreUnavailable, match='template "nightly" kept changing'):
            call()
    assert app.templates.get("nightly").revision == 1
    assert [each.action for each in app.audit.list(subject="nightly")] == ["set"]


def test_schedules_that_lag_are_told_by_what_differs() -> None:
    row = inherit(ScheduleRecord(name="a", task="t", trigger="every 1m"), "n", {"retries": 1}, ("trigger",))

    def found(**options: Any) -> list[str]:
        record = template_record("default", "n", StoredTemplate(options=options), 1)
        others = [replace(row, template=""), replace(row, damage="bad", template='{"name":"gone"}')]
        return [why for _, why in templates.lagging([*others, row], [record])]

    assert found(retries=1) == []
    assert found(retries=2, queue="q") == ["queue, retries: not as template n is now"]
    # It has the same values, and the row does not know yet that the queue is inherited.
    assert found(retries=1, queue="default") == ["options that it inherits: not as template n is now"]
    built_in = inherit(replace(row, template=""), "workdays", {"trigger": "0 0 * * *"}, ())
    assert list(templates.lagging([built_in], [])) == []


def test_a_schedule_that_is_deleted_right_after_it_was_added_stays_deleted(
    app: Scheduler, store: MemoryStore
) -> None:
    class Deleting(Racing):
        def __getattr__(self, name: str) -> Any:
            method = getattr(self._store, name)
            if name != "put_schedules":
                return method

            def write(writes: Any) -> Any:
                answer = method(writes)
                app.schedules.delete("a")
                return answer

            return write

    made = Scheduler(Deleting(store, None)).schedules.add("a", task="work", template="nightly")
    assert made.template == "nightly"
    assert not app.schedules.list()


@pytest.mark.parametrize("names", [5, None, b"retries"])
def test_names_to_inherit_are_a_list(app: Scheduler, names: Any) -> None:
    app.schedules.add("a", task="work", template="nightly")
    with pytest.raises(InvalidValue) as refused:
        app.schedules.update("a", inherit=names)
    assert refused.value.field == "inherit"


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("daily", "@daily is the trigger 0 0 * * *"),
        ("Weekly", "@weekly is the trigger 0 0 * * 0"),
        ("every", "@every is the start of an interval: @every 10m"),
    ],
)
def test_the_name_of_a_macro_is_refused(app: Scheduler, name: str, meaning: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        app.templates.set(name, trigger="0 3 * * *")
    assert refused.value.field == "name"
    assert refused.value.problem == f'name "{name}" can\'t be that of a template: {meaning}'
