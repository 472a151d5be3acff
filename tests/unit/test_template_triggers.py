"""``@name`` in the place of a trigger: every call and command reads it as the template of that name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evenbeat import InvalidTrigger, InvalidValue, Scheduler, every
from evenbeat.rules.templates import BUILT_IN, template_word
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from evenbeat.triggers.expression import MACROS
from tests.unit.cli_store import app as stored_app
from tests.unit.cli_store import clock, failed, printed

__all__ = ["clock", "stored_app"]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(VirtualClock())


@pytest.fixture
def app(store: MemoryStore) -> Scheduler:
    app = Scheduler(store, source="shop")
    app.task(name="work")(lambda: None)
    app.templates.set("nightly", trigger="0 3 * * *", retries=3)
    return app


@pytest.mark.parametrize(
    "trigger",
    [*MACROS, "@every", "@DAILY", "@every 5m", "@a b", "@", "every 5m", "", "@:a", "workdays", "xt", None],
)
def test_other_texts_are_not_names_of_templates(trigger: str | None) -> None:
    assert template_word(trigger) is None


def test_a_macro_is_not_the_template_of_its_name() -> None:
    assert "hourly" in BUILT_IN
    assert template_word("@hourly") is None
    assert template_word("@workdays") == "workdays"
    assert template_word("@t") == "t"


# -- the code ------------------------------------------------------------------------------------------------


def test_a_decorator_names_a_template(app: Scheduler, store: MemoryStore) -> None:
    other = Scheduler(store)
    other.task(name="invoices", schedule="@workdays", retries=1)(lambda: None)
    other.task(name="digest", schedule="@nightly")(lambda: None)
    other.declare_tasks()
    built_in, own = other.schedules.get("invoices"), other.schedules.get("digest")
    assert (built_in.trigger, built_in.template, built_in.retries) == ("0 9 * * 1-5", "workdays", 1)
    assert (own.trigger, own.template, own.retries) == ("0 3 * * *", "nightly", 3)
    other.declare_tasks()
    assert (other.schedules.get("digest").revision, other.schedules.get("digest").edited) == (
        own.revision,
        {},
    )
    app.templates.set("nightly", trigger="0 4 * * *")
    assert other.schedules.get("digest").trigger == "0 4 * * *"


def test_a_decorator_does_not_open_the_store() -> None:
    app = Scheduler("sqlite:////no/such/folder/evenbeat.db")
    app.task(name="digest", schedule="@nightly")(lambda: None)


def test_a_decorated_task_with_an_unknown_name_is_refused_when_it_is_declared(store: MemoryStore) -> None:
    app = Scheduler(store)
    app.task(name="digest", schedule="@dialy")(lambda: None)
    with pytest.raises(
        InvalidTrigger, match=r'"@dialy" is not a known macro, nor a template; did you mean @daily\?'
    ):
        app.declare_tasks()


@pytest.mark.parametrize(
    "wanted", [{"schedule": "@nightly"}, {"schedule": "@workdays"}, {"template": "nightly"}]
)
def test_a_schedule_in_the_code_only_has_no_template(app: Scheduler, store: MemoryStore, wanted: Any) -> None:
    with pytest.raises(InvalidValue, match="template of schedule digest needs a row"):
        app.task(name="digest", durable=False, **wanted)
    other = Scheduler(store, schedule_mode="code")
    other.task(name="digest", **wanted)(lambda: None)
    with pytest.raises(InvalidValue, match="template of schedule digest needs a row"):
        other.declare_tasks()


def test_a_schedule_by_a_template_may_be_durable(store: MemoryStore, app: Scheduler) -> None:
    other = Scheduler(store, schedule_mode="code")
    other.task(name="digest", template="nightly", durable=True)(lambda: None)
    other.declare_tasks()
    assert other.schedules.get("digest").trigger == "0 3 * * *"


def test_declare_takes_a_template_alone(app: Scheduler) -> None:
    app.declare("a", task="work", template="nightly")
    app.declare("b", "@workdays", "work")
    app.apply()
    assert [each.trigger for each in app.schedules.list()] == ["0 3 * * *", "0 9 * * 1-5"]
    with pytest.raises(InvalidValue, match="a schedule has a task"):
        app.declare("c", "@workdays")


# -- files ---------------------------------------------------------------------------------------------------


def test_a_schedule_of_a_file_may_have_a_template_alone(app: Scheduler, tmp_path: Path) -> None:
    file = tmp_path / "schedules.toml"
    file.write_text('[schedules.a]\ntask = "work"\ntemplate = "nightly"\n')
    (entry,) = app.plan(file=file).entries
    assert {each.field: each.after for each in entry.changes}["trigger"] == "0 3 * * *"
    app.apply(file=file)
    assert app.schedules.get("a").inherited == ("trigger", "retries")
    assert app.plan(file=file).entries == ()
    app.apply(schedules={"b": {"task": "work", "template": "workdays"}})
    assert app.schedules.get("b").trigger == "0 9 * * 1-5"


def test_a_template_of_a_file_must_have_the_trigger(app: Scheduler, tmp_path: Path) -> None:
    file = tmp_path / "schedules.toml"
    app.templates.set("plain", retries=1)
    file.write_text('[schedules.a]\ntask = "work"\ntemplate = "plain"\n')
    with pytest.raises(InvalidValue, match=r'schedules.a in .*:1: template "plain" has no trigger'):
        app.plan(file=file)


# -- update --------------------------------------------------------------------------------------------------


def test_an_update_names_a_template(app: Scheduler) -> None:
    app.schedules.add("a", every("1h"), "work", retries=7, queue="batch")
    made = app.schedules.update("a", trigger="@nightly")
    assert (made.trigger, made.template, made.retries, made.inherited) == (
        "0 3 * * *",
        "nightly",
        7,
        ("trigger",),
    )
    made = app.schedules.update("a", trigger="@nightly", inherit=["retries"], queue="fast")
    assert (made.retries, made.inherited, made.queue) == (3, ("trigger", "retries"), "fast")
    made = app.schedules.update("a", trigger="@workdays")
    assert (made.trigger, made.template, made.retries) == ("0 9 * * 1-5", "workdays", 0)
    assert app.schedules.update("a", trigger="@hourly").trigger == "0 * * * *"


@pytest.mark.parametrize("template", ["workdays", None])
def test_an_update_does_not_name_two_templates(app: Scheduler, template: str | None) -> None:
    app.schedules.add("a", every("1h"), "work")
    with pytest.raises(InvalidValue, match=r'trigger "@nightly" and template .* contradict each other'):
        app.schedules.update("a", trigger="@nightly", template=template)
    assert app.schedules.get("a").template is None


def test_an_update_to_a_template_without_a_trigger_is_refused(app: Scheduler) -> None:
    app.templates.set("plain", retries=1)
    app.schedules.add("a", every("1h"), "work")
    with pytest.raises(InvalidValue, match='template "plain" has no trigger to inherit'):
        app.schedules.update("a", trigger="@plain")


def test_a_bulk_update_names_a_template_of_each_tenant(app: Scheduler) -> None:
    app.templates.set("nightly", trigger="0 5 * * *", tenant="acme")
    for tenant in ("default", "acme"):
        app.schedules.add("a", every("1h"), "work", tenant=tenant)
    done = app.schedules.update_all({"trigger": "@nightly"}, all_tenants=True)
    assert done.done == 2
    assert [each.trigger for each in app.schedules.list(all_tenants=True)] == ["0 5 * * *", "0 3 * * *"]
    with pytest.raises(InvalidTrigger, match=r"did you mean @nightly\?"):
        app.schedules.update_all({"trigger": "@nightlly"})
    refused = app.schedules.update_all({"trigger": "@nightlly"}, all_tenants=True).refused
    assert len(refused) == 2


# -- previews ------------------------------------------------------------------------------------------------


def test_a_template_is_previewed_and_explained(app: Scheduler) -> None:
    assert [each.hour for each in app.schedules.preview("@nightly", 2)] == [3, 3]
    assert app.explain("@nightly").trigger == "0 3 * * *"
    assert app.explain("@workdays", tenant="acme").trigger == "0 9 * * 1-5"
    with pytest.raises(InvalidTrigger, match="nor a template"):
        app.explain("@nightly", tenant="acme")
    with pytest.raises(InvalidValue, match="template @nightly has its own zone"):
        app.explain("@nightly", tz="Europe/Berlin")


def test_a_template_does_not_inherit_from_another(app: Scheduler) -> None:
    for name in ("@workdays", "@nightly"):
        with pytest.raises(InvalidValue, match="templates inherit from no other one"):
            app.templates.set("mine", trigger=name)
    with pytest.raises(InvalidTrigger, match=r"did you mean @weekly\?"):
        app.templates.set("mine", trigger="@weekky")


def test_commands_read_a_template_in_the_place_of_a_trigger(stored_app: Scheduler) -> None:
    stored_app.templates.set("nightly", trigger="0 3 * * * tz=Europe/Berlin")
    assert printed("next", "@nightly").startswith("At 03:00 every day (Europe/Berlin)")
    assert "trigger  0 3 * * * tz=Europe/Berlin" in printed("explain", "@nightly")
    stored_app.schedules.add("a", every("1h"), "t")
    assert "trigger: every 1h → 0 9 * * 1-5" in printed("schedules", "update", "a", "--trigger", "@workdays")
    assert printed("schedules", "update", "--all", "--yes", "--trigger", "@nightly") == "updated 1 schedule\n"
    assert stored_app.schedules.get("a").template == "nightly"
    for command in (["next"], ["explain"], ["schedules", "update", "a", "--trigger"]):
        assert failed(*command, "@nightlly", code=2) == (
            "error: the expression is not a known macro, nor a template\n    @nightlly\n    ^^^^^^^^^\n"
            "hint: did you mean @nightly?\n"
        )
        assert "a template has its own zone" in failed(*command, "@nightly", "--tz", "UTC", code=2)


def test_a_built_in_template_is_explained_without_a_database() -> None:
    assert printed("next", "@workdays").startswith("At 09:00, Monday to Friday (UTC)")
    assert "did you mean @daily?" in failed("next", "@dialy", code=2)
