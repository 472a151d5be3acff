"""Decisions about incidents: pure, and the same whatever the order and the number of repetitions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenbeat.core.records import Record
from evenbeat.rules.alert_records import Owed, Signal, StoredIncident, StoredWindow, incident_key, past_key
from evenbeat.rules.alert_rules import (
    FAILED,
    Rule,
    RuleIndex,
    Subject,
    Window,
    family_of,
    muted_by,
    read_rules,
)
from evenbeat.rules.incidents import (
    SIGNALS_KEPT,
    Finding,
    closed,
    deliveries_of,
    has_begun,
    take_finding,
    take_signals,
    with_deliveries_written,
)
from tests.alerting import failure, rule

SUBJECT = Subject("schedule", "s", "default", "s", "work", "billing nightly")
BOTH = rule("failed", "failing:3")


def take(
    incident: StoredIncident | None,
    *keyed: tuple[str, Signal],
    by: Rule = BOTH,
    family: str = FAILED,
    ended_at: int | None = None,
    muted: str | None = None,
    now: int = 1_000,
) -> StoredIncident:
    taken = take_signals(incident, by, family, SUBJECT, keyed, ended_at=ended_at, muted_by=muted, now=now)
    assert taken.incident is not None
    return taken.incident


def written(incident: StoredIncident) -> StoredIncident:
    return with_deliveries_written(incident)


def kinds(incident: StoredIncident) -> list[str]:
    return [owed.announcement for owed in incident.owed]


# -- rules ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "covered"),
    [
        ({}, True),
        ({"owner": None}, True),
        ({"owner": "acme"}, False),
        ({"schedule": "s"}, True),
        ({"schedule": "t"}, False),
        ({"tag": "billing"}, True),
        ({"tag": "bill"}, False),
        ({"schedule": "s", "tag": "nightly"}, True),
        ({"schedule": "s", "tag": "daily"}, False),
    ],
)
def test_a_rule_covers_subjects_by_tenant_schedule_and_tag(fields: dict[str, Any], covered: bool) -> None:
    assert rule("failed", **fields).covers(SUBJECT) is covered


def test_a_subject_of_no_tenant_is_covered_by_rules_of_all_tenants_without_a_filter_alone() -> None:
    queue = Subject("queue", "default")
    assert rule("queue", owner=None).covers(queue)
    for fields in ({"owner": "default"}, {"owner": None, "tag": "x"}, {"owner": None, "schedule": "default"}):
        assert not rule("queue", **fields).covers(queue)


def test_rules_that_cannot_be_read_are_left_out() -> None:
    def record(key: str, body: str, tenant: str = "default") -> Record:
        return Record(kind="alert_rule", tenant=tenant, key=key, body=body)

    found = read_rules(
        [
            record("all/a", '{"on": ["failed", "from_the_future:3"], "to": ["ops"]}'),
            record("own/b", '{"on": ["from_the_future"], "to": []}', "acme"),
            record("own/c", "{nonsense", "acme"),
            record("own/d", '{"on": ["late"], "to": ["ops"]}', "acme"),
        ]
    )
    assert [(each.owner, each.name, [str(one) for one in each.conditions]) for each in found] == [
        (None, "a", ["failed"]),
        ("acme", "d", ["late:5m"]),
    ]
    assert [each.key for each in found] == [("default", "all", "a"), ("acme", "own", "d")]


def test_a_rule_is_muted_by_a_pause_a_time_or_a_window() -> None:
    window = Window("default", "upgrade", StoredWindow(starts_at=100, ends_at=200, tag="billing"))
    quiet = rule("failed", muted_until=50)
    paused = SUBJECT._replace(is_paused=True)
    assert muted_by(quiet, SUBJECT, [window], 49) == "muted"
    assert muted_by(quiet, SUBJECT, [window], 50) is None
    assert muted_by(quiet, paused, [window], 60) == "paused"
    assert [muted_by(quiet, SUBJECT, [window], at) for at in (99, 100, 199, 200)] == [
        None,
        "upgrade",
        "upgrade",
        None,
    ]
    assert muted_by(quiet, SUBJECT._replace(tags="nightly"), [window], 150) is None
    assert muted_by(quiet, SUBJECT._replace(tenant="acme"), [window], 150) is None
    everywhere = window._replace(owner=None, body=StoredWindow(starts_at=0, ends_at=200))
    assert muted_by(quiet, Subject("node", "n"), [window], 150) is None
    assert muted_by(quiet, Subject("node", "n"), [everywhere], 150) == "upgrade"


# -- failures ------------------------------------------------------------------------------------------------


def test_the_first_failure_is_announced_and_further_ones_only_count() -> None:
    first = take(None, failure(10, "a"))
    assert (first.failures, first.run, first.opened_at, first.error) == (1, "a", 10, "boom")
    assert first.owed == (Owed("opened", 1, 10),)
    assert first.reason == "a run failed"
    second = take(written(first), failure(20, "b"))
    assert (second.id, second.failures, second.changed_at, second.opened_at) == (first.id, 2, 20, 10)
    assert second.owed == ()
    assert second.announced == ("opened",)
    assert second.reason == "2 runs have failed in a row"


def test_the_third_failure_in_a_row_escalates_once() -> None:
    incident = take(None, failure(1, "a"), failure(2, "b"), failure(3, "c"), failure(4, "d"))
    assert incident.owed == (Owed("opened", 1, 1), Owed("escalated", 2, 3))
    after = written(incident)
    assert after.announced == ("opened", "escalated")
    assert take(after, failure(5, "e")).owed == ()


def test_each_number_of_failures_escalates() -> None:
    more = rule("failed", "failing:3", "failing:5")
    incident = take(None, *(failure(at, f"r{at}") for at in range(1, 7)), by=more)
    assert [(owed.announcement, owed.level) for owed in incident.owed] == [
        ("opened", 1),
        ("escalated", 2),
        ("escalated", 3),
    ]
    ids = [made[0] for made in deliveries_of(incident, more)]
    assert len(set(ids)) == 3
    assert written(incident).announced == ("opened", "escalated", "escalated")


def test_a_rule_without_failed_announces_nothing_before_its_number() -> None:
    third = rule("failing:3")
    second = take(None, failure(1, "a"), failure(2, "b"), by=third)
    assert (second.owed, second.condition, has_begun(second)) == ((), "failing:3", False)
    opened = take(second, failure(3, "c"), by=third)
    assert opened.owed == (Owed("opened", 1, 3),)
    assert has_begun(opened)
    # It ended before it was announced: nobody hears of it.
    assert closed(second, third, 9).owed == ()


def test_a_success_ends_the_incident_and_is_announced_once() -> None:
    incident = written(take(None, failure(10, "a")))
    assert take(incident, ended_at=9).closed_at is None
    assert take(incident, ended_at=10).closed_at is None
    over = take(incident, ended_at=11)
    assert (over.closed_at, over.last_success, over.owed) == (11, 11, (Owed("recovered", 0, 11),))
    assert written(over).announced == ("opened", "recovered")
    assert take(over, ended_at=50) == over


def test_the_end_is_not_announced_where_the_rule_does_not_ask_for_it() -> None:
    silent = rule("failed", recovery=False)
    over = take(written(take(None, failure(10, "a"), by=silent)), by=silent, ended_at=11)
    assert (over.closed_at, over.owed) == (11, ())


def test_a_failure_after_a_success_begins_the_next_incident() -> None:
    incident = written(take(None, failure(10, "a")))
    taken = take_signals(
        incident,
        BOTH,
        FAILED,
        SUBJECT,
        [failure(30, "b"), failure(15, "late")],
        ended_at=20,
        muted_by=None,
        now=40,
    )
    # The failure before the success belongs to the incident that ends.
    assert taken.used == {failure(15, "late")[0]}
    assert taken.incident is not None
    assert (taken.incident.closed_at, taken.incident.failures) == (20, 2)
    following = take(None, failure(30, "b"), ended_at=20)
    assert following.id != incident.id
    assert following.last_success == 20
    assert following.closed_at is None


def test_a_failure_that_is_over_when_it_is_read_is_announced_with_its_end() -> None:
    incident = take(None, failure(10, "a"), ended_at=20)
    assert kinds(incident) == ["opened", "recovered"]
    assert incident.closed_at == 20


def test_a_closed_incident_takes_in_only_what_it_has_counted() -> None:
    over = take(None, failure(10, "a"), ended_at=20)
    taken = take_signals(
        over, BOTH, FAILED, SUBJECT, [failure(10, "a"), failure(30, "b")], ended_at=20, muted_by=None, now=40
    )
    assert taken.incident == over
    assert taken.used == {failure(10, "a")[0]}


def test_a_repeated_signal_counts_once() -> None:
    incident = take(None, failure(1, "a"), failure(2, "b"))
    again = take(written(incident), failure(1, "a"), failure(2, "b"))
    assert again == written(incident)
    many = take(None, *(failure(at, f"r{at}") for at in range(SIGNALS_KEPT + 5)))
    assert many.failures == SIGNALS_KEPT + 5
    assert len(many.signals) == SIGNALS_KEPT


def test_the_error_is_that_of_the_latest_failure() -> None:
    incident = take(None, failure(10, "a"))
    assert take(incident, failure(5, "b", error="old")).error == "boom"
    assert take(incident, failure(15, "c", error="new")).error == "new"


def test_nothing_is_announced_while_muted_and_the_present_state_after_it() -> None:
    quiet = take(None, failure(1, "a"), muted="paused")
    assert (quiet.owed, quiet.muted_by, quiet.announced) == ((), "paused", ())
    loud = take(quiet, now=77)
    assert (loud.owed, loud.muted_by) == ((Owed("opened", 1, 77),), None)
    # Several levels were reached meanwhile: one message says so.
    worse = take(quiet, failure(2, "b"), failure(3, "c"), muted="upgrade")
    assert worse.muted_by == "upgrade"
    told = take(worse, now=77)
    assert told.owed == (Owed("escalated", 2, 77),)
    assert written(told).announced == ("opened", "escalated")


def test_an_incident_that_ends_while_muted_is_never_announced() -> None:
    over = take(take(None, failure(1, "a"), muted="muted"), ended_at=5, muted="muted")
    assert (over.closed_at, over.owed) == (5, ())


def test_the_end_of_an_announced_incident_is_announced_even_while_muted() -> None:
    over = take(written(take(None, failure(1, "a"))), ended_at=5, muted="paused")
    assert kinds(over) == ["recovered"]


def test_an_incident_without_its_rule_ends_silently() -> None:
    over = closed(take(None, failure(1, "a")), None, 9)
    assert (over.closed_at, over.owed) == (9, ())


def test_failed_and_failing_of_a_rule_share_an_incident() -> None:
    incident = take(None, failure(1, "a"), by=rule("failing:3"))
    assert incident_key(incident, family_of("failing:3")) == incident_key(incident, family_of("failed"))
    # The rule was changed meanwhile.
    changed = take(incident, by=rule("failed"))
    assert (changed.condition, kinds(changed)) == ("failed", ["opened"])
    other = replace(incident, subject_kind="task")
    assert incident_key(other, FAILED) != incident_key(incident, FAILED)
    assert past_key(incident).endswith(incident.id)


def test_missed_ticks_count_no_failures_and_end_with_the_next_fire() -> None:
    missed = rule("missed")

    def signal(at: int, count: int, reason: str = "late") -> tuple[str, Signal]:
        body = Signal(kind="missed", at=at, tenant="default", schedule="s", count=count, reason=reason)
        return f"{at:03}", body

    incident = take(None, signal(10, 1), by=missed, family="missed")
    assert (incident.failures, incident.reason) == (
        0,
        "a tick was skipped: found later than the catch-up policy allows",
    )
    assert kinds(incident) == ["opened"]
    more = take(written(incident), signal(20, 5, "limit"), by=missed, family="missed", ended_at=20)
    assert (more.owed, more.closed_at) == ((), None)
    assert more.reason == "5 ticks were skipped: more were missed than the catch-up limit"
    assert kinds(take(more, by=missed, family="missed", ended_at=21)) == ["recovered"]


# -- polled conditions ---------------------------------------------------------------------------------------


def test_a_polled_condition_begins_and_ends_an_incident() -> None:
    late = rule("late:5m")
    finding = Finding(SUBJECT, "the tick has not fired", 100, tick=100)

    def look(
        incident: StoredIncident | None, found: Finding | None, now: int, muted: str | None = None
    ) -> Any:
        return take_finding(incident, late, "late:5m", found, muted_by=muted, now=now)

    assert look(None, None, 500) is None
    incident = look(None, finding, 500)
    assert (incident.opened_at, incident.tick, incident.owed) == (100, 100, (Owed("opened", 1, 500),))
    assert look(written(incident), finding, 600) == written(incident)
    over = look(written(incident), None, 700)
    assert (over.closed_at, over.owed) == (700, (Owed("recovered", 0, 700),))
    assert look(over, finding, 800) == over
    # The next one has another id, though it is about the same tick.
    assert look(None, finding, 900).id != incident.id
    quiet = look(None, finding, 500, "upgrade")
    assert quiet.owed == ()
    assert look(quiet, None, 600).owed == ()
    assert look(quiet, finding, 600).owed == (Owed("opened", 1, 600),)


def test_each_channel_gets_each_announcement_under_an_id_of_its_own() -> None:
    twice = rule("failed", "failing:2", to=("ops", "mail", "ops"))
    incident = take(None, failure(1, "a"), failure(2, "b"), by=twice)
    made = deliveries_of(incident, twice)
    assert [(owed.announcement, channel) for _, owed, channel in made] == [
        ("opened", "ops"),
        ("opened", "mail"),
        ("escalated", "ops"),
        ("escalated", "mail"),
    ]
    assert len({each[0] for each in made}) == 4
    assert made == deliveries_of(incident, twice)


# -- any order -----------------------------------------------------------------------------------------------


@given(st.data())
def test_any_order_and_repetition_of_signals_counts_and_announces_each_once(data: st.DataObject) -> None:
    """Signals come in batches of any size, in any order, some again and again; and between any two writes the
    process may die, so that the next one starts from what was stored."""
    number = data.draw(st.integers(1, 8))
    keyed = [failure(at, f"r{at}") for at in range(1, number + 1)]
    order = data.draw(st.permutations(keyed + data.draw(st.lists(st.sampled_from(keyed), max_size=5))))
    stored: StoredIncident | None = None
    announced: list[str] = []
    at = 0
    while at < len(order):
        size = data.draw(st.integers(1, 4))
        after = take(stored, *order[at : at + size])
        if data.draw(st.booleans()):
            continue  # the process died before the write: the batch comes again
        stored = after
        at += size
        announced += [made[0] for made in deliveries_of(after, BOTH)]
        if not data.draw(st.booleans()):  # otherwise it died before it took note of the deliveries
            stored = written(after)
    assert stored is not None
    levels = 1 + (number >= 3)
    assert stored.failures == number
    assert len(set(announced)) == levels
    assert written(stored).announced == ("opened", "escalated")[:levels]
    assert set(stored.signals) == {key for key, _ in keyed}


def test_an_index_finds_the_rules_that_cover_a_subject_and_compares_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rules = [
        rule("failed", name=f"{owner}-{number}", owner=owner, **fields)
        for owner in (None, "acme", "globex")
        for number, fields in enumerate(
            ({}, {"tag": "a"}, *({"schedule": f"s{each}"} for each in range(100)))
        )
    ]
    index = RuleIndex(rules)
    compared: list[Rule] = []
    covers = Rule.covers

    def counted(rule: Rule, subject: Subject) -> bool:
        compared.append(rule)
        return covers(rule, subject)

    for subject in (
        Subject("schedule", "s7", "acme", "s7", tags="b a"),
        Subject("task", "work", "globex", task="work"),
        Subject("node", "n1"),
    ):
        expected = {each.key for each in rules if each.covers(subject)}
        with monkeypatch.context() as patch:
            patch.setattr(Rule, "covers", counted)
            found = [each.key for each in index.covering(subject)]
        assert (len(found), set(found)) == (len(expected), expected)
    assert len(compared) < 20
