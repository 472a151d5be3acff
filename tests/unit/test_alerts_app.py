"""``app.alerts``: rules, channels and windows, incidents and deliveries."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from evenbeat import InvalidValue, Scheduler, acting_as
from evenbeat.core.alerts import MOST_RULES, Message
from evenbeat.core.ids import first_key_of
from evenbeat.core.instants import from_ms, to_ms
from evenbeat.core.records import Record
from evenbeat.errors import StoreUnavailable
from evenbeat.record_errors import AlertChanged, AlertExists, AlertNotFound, ChannelInUse
from evenbeat.rules.alert_records import (
    ALL,
    CHANNEL,
    INCIDENT,
    LOG,
    OWN,
    PAST,
    PENDING,
    RULE,
    WINDOW,
    StoredDelivery,
    StoredIncident,
)
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock, virtual

HOOK = "https://hooks.example.com/services/T0/B0/marker-of-the-path?key=marker-of-the-query"
SECRET = "marker-of-the-secret"
HOUR = 3_600_000


class CountedStore(MemoryStore):
    """Counts hints, and lets a test change a record right before it is written."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.hints = 0
        self.overtake: Any = None

    def hint(self) -> None:
        self.hints += 1
        super().hint()

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        if self.overtake is not None and record.kind == RULE:
            overtake, self.overtake = self.overtake, None
            overtake()
        return super().put_record(record, expect)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> CountedStore:
    return CountedStore(clock)


@pytest.fixture
def app(store: CountedStore) -> Scheduler:
    app = Scheduler(store)
    app.alerts.channels.add("ops", "webhook", HOOK, secret=SECRET)
    return app


def refused(call: Any, *args: Any, **options: Any) -> tuple[str, str]:
    with pytest.raises(InvalidValue) as caught:
        call(*args, **options)
    return caught.value.field, str(caught.value)


# -- rules -------------------------------------------------------------------------------------------------


def test_a_rule_has_its_conditions_in_canonical_form(app: Scheduler) -> None:
    made = app.alerts.rules.add("late", on=["failed", "late:600s", "failing"], to="ops", tag="billing")
    assert made.on == ("failed", "late:10m", "failing:3")
    assert (made.to, made.tag, made.schedule, made.recovery) == (("ops",), "billing", None, True)
    assert (made.tenant, made.managed_by, made.revision, made.muted_until) == ("default", "api", 1, None)
    assert app.alerts.rules.get("late") == made
    assert app.alerts.rules.list() == [made]


def test_a_name_is_taken_once(app: Scheduler) -> None:
    app.alerts.rules.add("late", on="failed", to="ops")
    with pytest.raises(AlertExists, match='alert rule "late" of tenant "default" exists already'):
        app.alerts.rules.add("late", on="failed", to="ops")
    with pytest.raises(AlertExists, match="alert channel"):
        app.alerts.channels.add("ops", "webhook", HOOK)
    app.alerts.windows.add("move", until="2h")
    with pytest.raises(AlertExists, match=r"window .* delete it first"):
        app.alerts.windows.add("move", until="2h")


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"on": "failed,late"}, "on", 'on "failed,late" is not a condition; several conditions are a list'),
        ({"on": "broken"}, "on", 'on "broken" is not a condition; choose from failed, failing'),
        ({"on": "failing:1"}, "on", 'on "failing:1" is not within 2 to 1,000'),
        ({"on": []}, "on", 'on is empty: a rule without conditions announces nothing; write on=["failed"]'),
        ({"on": ["failed"] * 11}, "on", "on has 11 items; at most 10"),
        ({"on": 5}, "on", "on 5 is not a list of texts"),
        ({"on": [5]}, "on", "on [5] is not a list of texts"),
        ({"to": []}, "to", 'to is empty: a rule without channels announces nothing; write to=["ops"]'),
        ({"to": ["a", "b"] * 6}, "to", "to has 12 items; at most 10"),
        ({"to": "opz"}, "to", 'to "opz" is not an alert channel of tenant "default"; did you mean ops?'),
        ({"to": "mail"}, "to", 'to "mail" is not an alert channel of tenant "default"; there are ops'),
        ({"to": "a b"}, "to", 'to "a b" is not 1 to 128 letters'),
        ({"schedule": "a b"}, "schedule", 'schedule "a b" is not 1 to 128 letters'),
        ({"tag": "a b"}, "tag", 'tag "a b" is not 1 to 128 letters'),
        ({"tag": "a", "schedule": "b"}, "tag", 'tag "a" and schedule "b" are both given; choose one'),
        ({"recovery": "yes"}, "recovery", 'recovery "yes" is not True or False'),
        ({"on": "queue"}, "on", 'on "queue:1000" is about machines that all tenants share; make it a rule'),
        ({"name": "a b"}, "name", 'name "a b" is not 1 to 128 letters'),
        ({"tenant": "a b"}, "tenant", 'tenant "a b" is not 1 to 128 letters'),
        ({"tenant": "a", "all_tenants": True}, "tenant", 'tenant "a" and all_tenants are both given'),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(
    app: Scheduler, fields: dict[str, Any], field: str, message: str
) -> None:
    wanted: dict[str, Any] = {"name": "late", "on": "failed", "to": "ops", **fields}
    for call in (app.alerts.rules.add, app.alerts.rules.declare):
        found = refused(call, wanted["name"], **{key: wanted[key] for key in wanted if key != "name"})
        assert found[0] == field
        assert found[1].startswith(message)
    assert app.alerts.rules.list(all_tenants=True) == []


def test_the_first_rule_without_channels_says_what_to_do(store: CountedStore) -> None:
    message = refused(Scheduler(store).alerts.rules.add, "late", on="failed", to="ops")[1]
    assert message.endswith("there are none yet: add one first")


def test_conditions_about_shared_machines_are_for_rules_of_all_tenants(app: Scheduler) -> None:
    app.alerts.channels.add("pager", "webhook", HOOK, all_tenants=True)
    made = app.alerts.rules.add("machines", on=["queue", "node_lost"], to="pager", all_tenants=True)
    assert (made.tenant, made.on) == (None, ("queue:1000", "node_lost"))
    message = refused(
        app.alerts.rules.add, "x", on=["failed", "queue:5"], to="pager", tag="a", all_tenants=True
    )
    assert (
        message[1]
        == 'tag "a" never matches "queue:5": it is not about schedules; give queue:5 a rule of its own'
    )
    # A rule of all tenants has channels of its own, also where the default tenant has one of that name.
    assert refused(app.alerts.rules.add, "x", on="failed", to="ops", all_tenants=True)[1].startswith(
        'to "ops" is not an alert channel of all tenants'
    )


def test_a_rule_of_all_tenants_without_any_channel_says_which_it_needs(app: Scheduler) -> None:
    app.alerts.channels.add("tenants-own", "webhook", HOOK)
    assert refused(app.alerts.rules.add, "x", on="failed", to="tenants-own", all_tenants=True)[1] == (
        'to "tenants-own" is not an alert channel of all tenants; '
        "a rule of all tenants has channels of its own: add one with all_tenants=True"
    )


def test_owners_are_kept_apart(app: Scheduler) -> None:
    for owner in ({}, {"tenant": "acme"}, {"all_tenants": True}):
        app.alerts.channels.declare("ops", "webhook", HOOK, **owner)
        app.alerts.rules.add("late", on="failed", to="ops", **owner)
        app.alerts.windows.add("move", until="1h", **owner)
    assert [rule.tenant for rule in app.alerts.rules.list(all_tenants=True)] == [None, "acme", "default"]
    facades: list[tuple[Any, str]] = [
        (app.alerts.rules, "late"),
        (app.alerts.channels, "ops"),
        (app.alerts.windows, "move"),
    ]
    for facade, name in facades:
        assert [each.tenant for each in facade.list()] == ["default"]
        assert [each.tenant for each in facade.list(tenant="acme")] == ["acme"]
        assert {each.tenant for each in facade.list(all_tenants=True)} == {None, "acme", "default"}
        facade.delete(name, tenant="acme")
        assert [each.tenant for each in facade.list()] == ["default"]
    assert app.alerts.rules.get("late", all_tenants=True).tenant is None


def test_an_update_changes_the_given_fields_and_keeps_the_mute(app: Scheduler) -> None:
    app.alerts.rules.add("late", on="failed", to="ops", schedule="nightly")
    muted = app.alerts.rules.mute("late", "2h")
    changed = app.alerts.rules.update("late", on=["failed", "failing:5"], schedule=None)
    assert (changed.on, changed.schedule, changed.to) == (("failed", "failing:5"), None, ("ops",))
    assert (changed.muted_until, changed.revision) == (muted.muted_until, 3)
    assert app.alerts.rules.update("late", on=["failed", "failing:5"]).revision == 3, "nothing changed"
    with pytest.raises(InvalidValue, match="onn"):
        app.alerts.rules.update("late", onn="x")  # type: ignore[call-arg]
    with pytest.raises(InvalidValue, match="did you mean ops"):
        app.alerts.rules.update("late", to="op")


def test_a_mute_ends_by_itself(app: Scheduler, clock: VirtualClock) -> None:
    app.alerts.rules.add("late", on="failed", to="ops")
    assert app.alerts.rules.mute("late", "2h").muted_until == from_ms(clock.now + 2 * HOUR)
    clock.now += 2 * HOUR
    assert app.alerts.rules.get("late").muted_until is None
    app.alerts.rules.mute("late", "2h")
    assert app.alerts.rules.unmute("late").muted_until is None
    for until, message in (("2020-01-01T00:00Z", "is in the past"), ("400d", "more than 366 days ahead")):
        assert message in refused(app.alerts.rules.mute, "late", until)[1]


def test_a_change_of_what_somebody_else_changed_is_refused(app: Scheduler) -> None:
    app.alerts.rules.add("late", on="failed", to="ops")
    app.alerts.rules.update("late", recovery=False)
    calls: list[Any] = [
        lambda: app.alerts.rules.update("late", recovery=True, if_revision=1),
        lambda: app.alerts.rules.mute("late", "1h", if_revision=1),
        lambda: app.alerts.rules.unmute("late", if_revision=1),
        lambda: app.alerts.rules.delete("late", if_revision=1),
        lambda: app.alerts.channels.update("ops", secret=None, if_revision=7),
        lambda: app.alerts.channels.delete("ops", if_revision=7),
    ]
    for call in calls[:-1]:
        with pytest.raises(AlertChanged, match="read it again"):
            call()
    app.alerts.rules.delete("late", if_revision=2)
    with pytest.raises(AlertChanged):
        calls[-1]()
    app.alerts.channels.delete("ops", if_revision=1)


def test_a_change_that_loses_a_race_is_applied_to_what_won(app: Scheduler, store: CountedStore) -> None:
    app.alerts.rules.add("late", on="failed", to="ops")
    store.overtake = lambda: app.alerts.rules.update("late", on="missed")
    made = app.alerts.rules.update("late", recovery=False)
    assert (made.on, made.recovery, made.revision) == (("missed",), False, 3)
    entries = [entry for entry in app.audit.list(subject="late") if entry.action == "update"]
    assert [entry.after for entry in entries] == [{"recovery": False}, {"on": ["missed"]}], (
        "one entry for each"
    )


def test_an_add_that_loses_a_race_is_refused_without_an_entry(app: Scheduler, store: CountedStore) -> None:
    store.overtake = lambda: app.alerts.rules.add("late", on="missed", to="ops")
    with pytest.raises(AlertExists):
        app.alerts.rules.add("late", on="failed", to="ops")
    assert [entry.after["on"] for entry in app.audit.list(subject="late")] == [["missed"]]


def test_a_rule_that_never_stands_still_is_given_up(app: Scheduler, store: CountedStore) -> None:
    app.alerts.rules.add("late", on="failed", to="ops")
    present = store.get_record(RULE, "default", "own/late")
    assert present is not None

    class Moving(CountedStore):
        def put_record(self, record: Record, expect: int | None = None) -> bool:
            return record.kind != RULE and super().put_record(record, expect)

    moving = Moving(VirtualClock())
    moving._records = store._records
    with pytest.raises(StoreUnavailable, match="kept changing"):
        Scheduler(moving).alerts.rules.update("late", recovery=False)


def test_a_tenant_has_a_bounded_number_of_rules(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenbeat.app.alerts.named.MOST_RULES", 2)
    assert MOST_RULES == 500
    for name in ("a", "b"):
        app.alerts.rules.add(name, on="failed", to="ops")
    field, message = refused(app.alerts.rules.add, "c", on="failed", to="ops")
    assert (field, message) == ("name", 'name "c" would be rule 3; at most 2: delete those that nobody needs')


def test_what_does_not_exist_is_an_error_with_the_nearest_name(app: Scheduler) -> None:
    app.alerts.rules.add("nightly", on="failed", to="ops")
    calls: list[Any] = [
        lambda: app.alerts.rules.get("nihgtly"),
        lambda: app.alerts.rules.update("nihgtly", recovery=False),
        lambda: app.alerts.rules.delete("nihgtly"),
        lambda: app.alerts.rules.mute("nihgtly", "1h"),
    ]
    for call in calls:
        with pytest.raises(AlertNotFound, match="did you mean nightly"):
            call()
    others: list[Any] = [
        lambda: app.alerts.channels.get("x"),
        lambda: app.alerts.channels.test("x"),
        lambda: app.alerts.channels.delete("x"),
        lambda: app.alerts.windows.delete("x"),
        lambda: app.alerts.delivery("x"),
        lambda: app.alerts.delivery("0" * 36),
    ]
    for call in others:
        with pytest.raises(AlertNotFound):
            call()


def test_a_damaged_record_counts_as_missing_and_can_be_replaced(app: Scheduler, store: CountedStore) -> None:
    for name in ("a", "b"):
        store.put_record(Record(kind=RULE, key=f"own/{name}", body="{", version=7))
    assert app.alerts.rules.list() == app.alerts.rules.list(all_tenants=True) == []
    with pytest.raises(AlertNotFound):
        app.alerts.rules.get("a")
    app.alerts.rules.add("a", on="failed", to="ops")
    app.alerts.rules.declare("b", on="failed", to="ops")
    assert [rule.name for rule in app.alerts.rules.list()] == ["a", "b"]
    store.put_record(Record(kind=RULE, key="own/c", body="{", version=7))
    app.alerts.rules.delete("c")
    assert store.get_record(RULE, "default", "own/c") is None


# -- channels ----------------------------------------------------------------------------------------------


def test_no_call_and_no_entry_has_a_secret(app: Scheduler, store: CountedStore) -> None:
    app.alerts.channels.update("ops", url=HOOK + "2", secret=SECRET + "2")
    app.alerts.channels.declare("ops", "webhook", HOOK + "3", secret=SECRET + "3")
    app.alerts.channels.test("ops")
    shown = app.alerts.channels.get("ops")
    assert (shown.kind, shown.address, shown.revision) == ("webhook", "https://hooks.example.com", 3)
    app.alerts.channels.delete("ops")
    texts = [
        shown,
        app.alerts.channels.list(),
        app.alerts.deliveries(),
        app.audit.list(),
        store.find_records("audit"),
        store.find_records("audited"),
    ]
    assert "marker" not in str(texts)
    assert "***" in str(app.audit.list())


def test_a_refused_channel_does_not_show_its_secrets(app: Scheduler) -> None:
    for call in (app.alerts.channels.add, app.alerts.channels.declare, app.alerts.declare_channel):
        for kind, url, secret in (
            ("pigeon", HOOK, SECRET),
            ("webhook", "ftp://marker", SECRET),
            ("webhook", HOOK, "marker"),
            ("sentry", HOOK, SECRET),
        ):
            assert "marker" not in refused(call, "new", kind, url, secret=secret)[1]
    assert "marker" not in refused(app.alerts.channels.update, "ops", url="ftp://marker")[1]
    with pytest.raises(InvalidValue, match="urls"):
        app.alerts.channels.update("ops", urls="x")  # type: ignore[call-arg]


def test_a_channel_that_rules_use_stays(app: Scheduler) -> None:
    for number in range(7):
        app.alerts.rules.add(f"r{number}", on="failed", to="ops")
    with pytest.raises(ChannelInUse, match="used by the rules r0, r1, r2, r3, r4 and 2 more") as caught:
        app.alerts.channels.delete("ops")
    assert caught.value.rules == [f"r{number}" for number in range(7)]
    app.alerts.channels.add("ops", "webhook", HOOK, tenant="acme")
    app.alerts.channels.delete("ops", tenant="acme")


def test_a_test_is_a_delivery_that_waits_to_be_sent(app: Scheduler, store: CountedStore) -> None:
    before = store.hints
    made = app.alerts.channels.test("ops")
    assert (made.announcement, made.state, made.channel, made.tries) == ("test", "pending", "ops", 0)
    assert (made.owner, made.tenant, made.incident, made.rule) == ("default", "default", None, None)
    assert app.alerts.deliveries() == [made]
    assert app.alerts.delivery(made.id) == made
    assert store.hints > before
    assert app.alerts.channels.test("ops").id != made.id
    (record, _) = sorted(store.find_records(PENDING), key=lambda each: each.key == made.id, reverse=True)
    body = msgspec.json.decode(record.body, type=StoredDelivery)
    assert (body.scope, body.message.id, body.message.lines[-1]) == (OWN, made.id, "Nothing is wrong.")


# -- windows -----------------------------------------------------------------------------------------------


def test_a_window_deletes_itself(app: Scheduler, clock: VirtualClock, store: CountedStore) -> None:
    with acting_as("anna"):
        later = app.alerts.windows.add("later", until="3h", starts="1h", tag="billing", note="new disks")
    now = app.alerts.windows.add("now", until="2h")
    assert app.alerts.windows.list() == [now, later]
    assert (later.starts_at, later.ends_at) == (from_ms(clock.now + HOUR), from_ms(clock.now + 3 * HOUR))
    assert (later.tag, later.note, later.created_by) == ("billing", "new disks", "anna")
    clock.now += 2 * HOUR
    assert app.alerts.windows.list() == [later]
    clock.now += HOUR
    assert app.alerts.windows.list() == []
    assert store.find_records(WINDOW) == []


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"until": "2020-01-01T00:00Z"}, "until", "is not after the start"),
        ({"until": "2020-01-02T00:00Z", "starts": "2020-01-01T00:00Z"}, "until", "is in the past"),
        ({"until": "2h", "starts": "3h"}, "until", "is not after the start"),
        ({"until": "400d"}, "until", "is more than 366 days ahead"),
        ({"until": "soon"}, "until", 'until "soon" is neither a date and time nor a duration'),
        ({"until": "2h", "note": "x" * 1001}, "note", "note is 1,001 characters long"),
        ({"until": "2h", "tag": "a", "schedule": "b"}, "tag", "are both given"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused(
    app: Scheduler, fields: dict[str, Any], field: str, message: str
) -> None:
    found = refused(app.alerts.windows.add, "move", **fields)
    assert found[0] == field
    assert message in found[1]


# -- the audit ---------------------------------------------------------------------------------------------


def test_every_change_is_recorded_and_hinted(
    app: Scheduler, store: CountedStore, clock: VirtualClock
) -> None:
    calls: list[Any] = [
        lambda: app.alerts.rules.add("r", on="failed", to="ops"),
        lambda: app.alerts.rules.update("r", on="missed"),
        lambda: app.alerts.rules.mute("r", "1h"),
        lambda: app.alerts.rules.unmute("r"),
        lambda: app.alerts.rules.declare("r", on="late:5m", to="ops"),
        lambda: app.alerts.rules.delete("r"),
        lambda: app.alerts.channels.test("ops"),
        lambda: app.alerts.channels.update("ops", secret=None),
        lambda: app.alerts.windows.add("w", until="1h"),
        lambda: app.alerts.windows.delete("w"),
    ]
    with acting_as("anna"):
        for call in calls:
            clock.now += 1
            before = store.hints
            call()
            assert store.hints > before
    found = [(entry.kind, entry.action, entry.before, entry.after) for entry in app.audit.list(actor="anna")]
    end = app.audit.list(action="mute")[0].after["muted_until"]
    assert found[::-1][:6] == [
        ("alert_rule", "add", {}, {"on": ["failed"], "to": ["ops"], "recovery": True, "managed_by": "api"}),
        ("alert_rule", "update", {"on": ["failed"]}, {"on": ["missed"]}),
        ("alert_rule", "mute", {"muted_until": None}, {"muted_until": end}),
        ("alert_rule", "unmute", {"muted_until": end}, {"muted_until": None}),
        ("alert_rule", "declare", {"on": ["missed"]}, {"on": ["late:5m"]}),
        (
            "alert_rule",
            "delete",
            {"on": ["late:5m"], "to": ["ops"], "recovery": True, "managed_by": "api"},
            {},
        ),
    ]
    assert [each[:2] for each in found[::-1][6:]] == [
        ("alert_channel", "test"),
        ("alert_channel", "update"),
        ("alert_window", "add"),
        ("alert_window", "delete"),
    ]


def test_what_is_for_all_tenants_says_so_in_the_audit(app: Scheduler) -> None:
    app.alerts.channels.add("pager", "webhook", HOOK, all_tenants=True)
    app.alerts.channels.update("pager", url=HOOK + "2", all_tenants=True)
    app.alerts.channels.delete("pager", all_tenants=True)
    for entry in app.audit.list(subject="pager"):
        assert (entry.after or entry.before)["all_tenants"] is True


def test_a_rule_with_the_name_of_a_schedule_is_not_its_history(app: Scheduler) -> None:
    app.schedules.add("nightly", "@daily", "work")
    app.alerts.rules.add("nightly", on="failed", to="ops", schedule="nightly")
    app.schedules.pause("nightly", "away")
    app.alerts.rules.mute("nightly", "1h")
    assert [entry.action for entry in app.schedules.history("nightly")] == ["pause", "add"]
    assert {entry.kind for entry in app.audit.list(subject="nightly")} == {"schedule", "alert_rule"}


def test_why_does_not_take_the_entry_of_a_rule_for_that_of_a_schedule(
    app: Scheduler, clock: VirtualClock
) -> None:
    app.schedules.add("nightly", "@daily", "work")
    app.alerts.rules.add("nightly", on="failed", to="ops")
    clock.now += 1
    with acting_as("anna"):
        app.schedules.delete("nightly")
    with acting_as("ben"):
        app.alerts.rules.delete("nightly")
    text = str(app.schedules.why("nightly"))
    assert "anna" in text
    assert "ben" not in text


# -- declarations ------------------------------------------------------------------------------------------


def test_declarations_at_import_do_not_open_the_store() -> None:
    class Closed(MemoryStore):
        def open(self) -> None:
            raise AssertionError("opened")

    app = Scheduler(Closed())
    app.alerts.declare_rule("failures", on=["failed", "failing:3"], to="ops")
    app.alerts.declare_channel("ops", "webhook", HOOK)
    assert refused(app.alerts.declare_rule, "x", on="broken", to="ops")[0] == "on"
    assert refused(app.alerts.declare_rule, "failures", on="failed", to="ops") == (
        "name",
        'name "failures" is that of an alert rule that was declared before; give the second one another name',
    )
    assert refused(app.alerts.declare_channel, "ops", "webhook", HOOK)[0] == "name"


def test_a_node_writes_the_declarations_when_it_starts(store: CountedStore) -> None:
    app = Scheduler(store)
    app.alerts.declare_rule("failures", on="failed", to="ops")
    app.alerts.declare_channel("ops", "webhook", HOOK)
    app.start()
    try:
        (rule,) = app.alerts.rules.list()
        assert (rule.name, rule.managed_by) == ("failures", "code")
        app.alerts.declare_rule("more", on="missed", to="ops")
        assert app.alerts.rules.get("more").managed_by == "code"
    finally:
        app.stop()
    written = [entry for entry in app.audit.list() if entry.action == "declare"]
    app.alerts.rules.mute("failures", "1h")
    app.start()
    app.stop()
    assert [entry for entry in app.audit.list() if entry.action == "declare"] == written, "nothing changed"
    assert app.alerts.rules.get("failures").muted_until is not None
    app.alerts.rules.update("failures", recovery=False)
    app.alerts.declare()
    assert app.alerts.rules.get("failures").recovery


def test_virtual_time_has_its_own_alerts() -> None:
    app = Scheduler("memory://")
    app.alerts.declare_rule("failures", on="failed", to="ops")
    app.alerts.declare_channel("ops", "webhook", HOOK)
    with virtual(app) as scheduler:
        assert scheduler.alerts.rules.get("failures").to == ("ops",)
        muted = app.alerts.rules.mute("failures", "2h")
        scheduler.travel("+2h")
        assert muted.muted_until == scheduler.now
        assert app.alerts.rules.get("failures").muted_until is None
    assert app.alerts.rules.list() == []


def test_rules_are_evaluated_in_virtual_time_and_nothing_is_sent() -> None:
    app = Scheduler("memory://")
    is_mended = False

    @app.task(schedule="0 * * * *")
    def charge() -> None:
        if not is_mended:
            raise RuntimeError("the bank is away")

    app.alerts.declare_channel("ops", "webhook", HOOK)
    app.alerts.declare_rule("failures", on=["failed", "failing:3"], to="ops")
    with virtual(app, now="2026-03-02T00:30Z") as scheduler:
        scheduler.travel("+30m")
        (found,) = scheduler.alerts.incidents()
        assert (found.subject, found.failures, found.opened_at) == ("charge", 1, scheduler.now)
        scheduler.travel("+3h")
        is_mended = True
        scheduler.travel("+30d")
        assert scheduler.alerts.incidents() == []
        sent = scheduler.alerts.deliveries()
        assert [(each.announcement, each.created_at.hour, each.state) for each in reversed(sent)] == [
            ("opened", 1, "pending"),
            ("escalated", 3, "pending"),
            ("recovered", 5, "pending"),
        ]
        # A rule that is added on the way counts from then on; late ticks are found when time stands still.
        scheduler.alerts.rules.add("late", on="late:10m", to="ops")
        scheduler.down_for("2h")
        scheduler.run_pending()
        assert {each.announcement for each in scheduler.alerts.deliveries(limit=2)} == {"opened", "recovered"}
        is_mended = False
        scheduler.alerts.rules.delete("failures")
        scheduler.travel("+1h")
        assert len(scheduler.alerts.deliveries()) == 5


def test_twins_are_awaited(app: Scheduler) -> None:
    async def story() -> None:
        await app.alerts.rules.aadd("late", on="failed", to="ops")
        await app.alerts.rules.amute("late", "1h")
        assert (await app.alerts.rules.alist())[0].muted_until is not None
        assert await app.alerts.aincidents() == []
        assert (await app.alerts.channels.aget("ops")).kind == "webhook"
        assert await app.alerts.windows.alist() == []
        assert await app.alerts.adeliveries() == []

    asyncio.run(story())


# -- incidents and deliveries ------------------------------------------------------------------------------


def incident(clock: VirtualClock, **fields: Any) -> StoredIncident:
    given: dict[str, Any] = {
        "id": "i1",
        "rule": "late",
        "scope": OWN,
        "condition": "failed",
        "subject_kind": "schedule",
        "subject": "nightly",
        "opened_at": clock.now,
        "changed_at": clock.now,
        "reason": "a run failed",
        "tenant": "default",
        "failures": 1,
        "announced": ("opened",),
        **fields,
    }
    return StoredIncident(**given)


def put(store: MemoryStore, kind: str, key: str, body: Any, tenant: str = "default") -> None:
    assert store.put_record(
        Record(kind=kind, key=key, tenant=tenant, body=msgspec.json.encode(body).decode())
    )


def test_open_incidents_are_those_of_a_tenant_s_subjects(
    app: Scheduler, store: CountedStore, clock: VirtualClock
) -> None:
    put(store, INCIDENT, "a", incident(clock))
    put(store, INCIDENT, "b", incident(clock, id="i2", scope=ALL, opened_at=clock.now + 5))
    put(store, INCIDENT, "c", incident(clock, id="i3", scope=ALL, tenant=None, subject_kind="queue"))
    put(store, INCIDENT, "d", incident(clock, id="i4", tenant="acme"), "acme")
    put(store, INCIDENT, "e", incident(clock, id="i5", condition="failing:3", failures=2))
    put(store, INCIDENT, "f", incident(clock, id="i6", closed_at=clock.now))
    store.put_record(Record(kind=INCIDENT, key="g", body="{"))
    found = app.alerts.incidents()
    assert [(each.id, each.owner, each.tenant) for each in found] == [
        ("i2", None, "default"),
        ("i1", "default", "default"),
    ]
    assert [each.id for each in app.alerts.incidents(tenant="acme")] == ["i4"]
    assert [each.id for each in app.alerts.incidents(all_tenants=True)] == ["i2", "i1", "i3", "i4"]
    assert [each.id for each in app.alerts.incidents(limit=1)] == ["i2"]
    (first,) = app.alerts.incidents(limit=1)
    assert (first.reason, first.announced, first.opened_at) == (
        "a run failed",
        ("opened",),
        from_ms(clock.now + 5),
    )


def test_past_incidents_come_newest_first(app: Scheduler, store: CountedStore, clock: VirtualClock) -> None:
    for number in range(6):
        at = clock.now - number * HOUR * 20
        owner = "acme" if number % 2 else "default"
        body = incident(clock, id=f"i{number}", tenant=owner, closed_at=at)
        put(store, PAST, f"{first_key_of(at)}{number:020x}", body, owner)
    assert [each.id for each in app.alerts.incidents(open=False)] == ["i0", "i2", "i4"]
    assert [each.id for each in app.alerts.incidents(open=False, limit=2)] == ["i0", "i2"]
    assert [each.id for each in app.alerts.incidents(open=False, all_tenants=True)] == [
        f"i{n}" for n in range(6)
    ]
    assert [each.id for each in app.alerts.incidents(open=False, all_tenants=True, limit=4)] == [
        f"i{n}" for n in range(4)
    ]


def delivered(clock: VirtualClock, key: str, **fields: Any) -> StoredDelivery:
    tenant = fields.pop("tenant", "default")
    message = Message(
        id=key,
        incident=fields.pop("incident", None),
        announcement="opened",
        title="Failed: nightly",
        lines=(),
        at=from_ms(clock.now),
        link=None,
        tenant=tenant,
        rule="late",
    )
    given: dict[str, Any] = {"channel": "ops", "scope": OWN, "created_at": clock.now, **fields}
    return StoredDelivery(message=message, **given)


def key_of(at: int, number: int) -> str:
    return f"{first_key_of(at)}{number:024x}"


def test_an_incident_says_what_became_of_its_newest_announcement(
    app: Scheduler, store: CountedStore, clock: VirtualClock
) -> None:
    def announce(name: str, ago: int, *states: str) -> None:
        for state in states:
            key = key_of(clock.now - ago, next(numbers))
            kind = PENDING if state == "pending" else LOG
            put(store, kind, key, delivered(clock, key, state=state, incident=name))

    numbers = count(1)
    for number in range(6):
        put(store, INCIDENT, f"k{number}", incident(clock, id=f"i{number}"))
    put(store, INCIDENT, "quiet", incident(clock, id="quiet", announced=(), muted_by="muted"))
    announce("i0", HOUR, "sent", "sent")
    announce("i1", HOUR, "sent", "pending")
    announce("i2", HOUR, "pending", "failed", "sent")
    # The newest announcement counts.
    announce("i3", 2 * HOUR, "failed")
    announce("i3", HOUR, "sent")
    announce("i4", HOUR, "pending")
    announce("i4", 2 * HOUR, "sent")
    found = {each.id: each.delivery for each in app.alerts.incidents()}
    assert found == {
        "i0": "sent",
        "i1": "waiting",
        "i2": "given_up",
        "i3": "sent",
        "i4": "waiting",
        "i5": None,
        "quiet": None,
    }
    over = incident(clock, id="i3", closed_at=clock.now)
    put(store, PAST, f"{first_key_of(clock.now)}i3", over)
    assert [each.delivery for each in app.alerts.incidents(open=False)] == ["sent"]


def test_deliveries_continue_after_a_cursor_waiting_and_sent_ones_in_one_order(
    app: Scheduler, store: CountedStore, clock: VirtualClock
) -> None:
    keys = [key_of(clock.now - number * HOUR, number) for number in range(7)]
    for number, key in enumerate(keys):
        owner = "acme" if number == 3 else "default"
        kind = PENDING if number % 3 == 0 else LOG
        state = "pending" if kind == PENDING else "sent"
        put(store, kind, key, delivered(clock, key, state=state, tries=1, tenant=owner), owner)
    # A sender has written the log, and not yet deleted the pending record.
    put(store, PENDING, keys[1], delivered(clock, keys[1]))
    own = [key for key in keys if key != keys[3]]
    assert [each.id for each in app.alerts.deliveries()] == own
    assert [each.id for each in app.alerts.deliveries(all_tenants=True)] == keys
    assert app.alerts.deliveries()[1].state == "sent"
    for every, wanted in ((False, own), (True, keys)):
        found: list[str] = []
        while page := app.alerts.deliveries(all_tenants=every, limit=2, cursor=found[-1] if found else None):
            assert len(page) <= 2
            found += [each.id for each in page]
        assert found == wanted
    assert app.alerts.deliveries(limit=0) == []
    assert refused(app.alerts.deliveries, cursor="x")[0] == "cursor"
    assert refused(app.alerts.deliveries, limit=-1)[0] == "limit"


def test_a_delivery_of_another_tenant_is_not_found(
    app: Scheduler, store: CountedStore, clock: VirtualClock
) -> None:
    key, shared = key_of(clock.now, 1), key_of(clock.now, 2)
    put(store, LOG, key, delivered(clock, key, tenant="acme"), "acme")
    put(store, LOG, shared, delivered(clock, shared, tenant=None, scope=ALL))
    assert app.alerts.delivery(key, tenant="acme").tenant == "acme"
    assert app.alerts.delivery(key, all_tenants=True).tenant == "acme"
    assert app.alerts.delivery(shared, all_tenants=True).owner is None
    for missing in (key, shared):
        with pytest.raises(AlertNotFound):
            app.alerts.delivery(missing)
    assert app.alerts.deliveries() == []


def test_what_became_of_a_delivery(app: Scheduler, store: CountedStore, clock: VirtualClock) -> None:
    key = key_of(clock.now, 1)
    body = delivered(
        clock, key, tries=2, next_at=clock.now + 5_000, last_try_at=clock.now + 1, error="refused"
    )
    put(store, PENDING, key, body)
    found = app.alerts.delivery(key)
    assert (found.state, found.tries, found.error, found.title) == (
        "pending",
        2,
        "refused",
        "Failed: nightly",
    )
    assert found.next_try_at == from_ms(clock.now + 5_000)
    assert found.last_try_at == from_ms(clock.now + 1)
    put(store, LOG, key, replace(body, state="failed"))
    store.delete_record(PENDING, "default", key, 1)
    over = app.alerts.delivery(key)
    assert (over.state, over.next_try_at) == ("failed", None)
    assert to_ms(over.created_at) == clock.now


def test_channels_are_records_of_their_own(store: CountedStore, app: Scheduler) -> None:
    (record,) = store.find_records(CHANNEL)
    assert (record.tenant, record.key, record.expires) == ("default", "own/ops", None)
