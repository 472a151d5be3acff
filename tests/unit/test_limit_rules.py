"""The rules of limits: buckets against an exact model, claims against an oracle, cohorts of all values."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evenbeat.core.rates import Rate
from evenbeat.core.records import RunRecord
from evenbeat.rules.limits import (
    NO_LIMITS,
    Candidate,
    Limit,
    Limits,
    Usage,
    bucket_record,
    choose,
    cohort_range,
    in_turn,
    limit_record,
    next_start,
    read_bucket,
    read_cohort,
    read_limits,
    share,
)

NOW = 1_000_000
TASK = "default 4 default work"


def cohort(limits: Limits, payload: str = "{}", **fields: Any) -> str | None:
    run = RunRecord(id="r", **{"task": "work", "payload": payload, **fields})
    return limits.cohort(run)


# -- buckets -----------------------------------------------------------------------------------------------


class Store:
    """Keeps the records of buckets as stores do: an expired one counts as missing."""

    def __init__(self, limit: Limit) -> None:
        self.limits = Limits([limit])
        self.records: dict[str, tuple[str, int | None]] = {}

    def usage(self, now: int, running: int = 0) -> Usage:
        bodies = {
            key: body for key, (body, expires) in self.records.items() if expires is None or expires > now
        }
        return Usage(self.limits, {TASK: running}, bodies, now)

    def start(self, now: int, wanted: int) -> int:
        """Start as many of so many runs as the rate allows; return how many did."""
        usage = self.usage(now)
        room = usage.room(TASK)
        assert room is not None
        for _ in range(min(room, wanted)):
            usage.take(TASK)
        for record in usage.spent():
            self.records[record.key] = record.body, record.expires
        return min(room, wanted)


class Model:
    """The bucket of a rate in exact numbers, which never expires."""

    def __init__(self, limit: Limit) -> None:
        assert limit.rate is not None
        self.size = limit.size
        self.speed = Fraction(limit.rate.count, limit.rate.period)
        self.level = Fraction(self.size)
        self.at: int | None = None

    def tokens(self, now: int) -> Fraction:
        passed = 0 if self.at is None else max(0, now - self.at)
        return min(Fraction(self.size), self.level + passed * self.speed)

    def start(self, now: int, wanted: int) -> int:
        tokens = self.tokens(now)
        started = min(int(tokens), wanted)
        if started:
            self.level, self.at = tokens - started, now
        return started


rates = st.builds(
    Limit,
    task=st.just("work"),
    rate=st.builds(Rate, st.integers(1, 50), st.integers(1_000, 90_000)),
    burst=st.none() | st.integers(1, 12),
)
gaps = st.integers(0, 300) | st.integers(0, 100_000)


@given(rates, st.lists(st.tuples(gaps, st.integers(0, 15)), max_size=30))
def test_a_bucket_is_exact(limit: Limit, steps: list[tuple[int, int]]) -> None:
    store, model, now = Store(limit), Model(limit), NOW
    for gap, wanted in steps:
        now += gap
        assert store.usage(now).room(TASK) == int(model.tokens(now))
        assert store.start(now, wanted) == model.start(now, wanted)


@given(rates, st.lists(st.tuples(gaps, st.integers(0, 15)), max_size=30))
def test_in_no_window_do_more_runs_start_than_the_burst_and_the_rate_allow(
    limit: Limit, steps: list[tuple[int, int]]
) -> None:
    assert limit.rate is not None
    store, now = Store(limit), NOW
    starts: list[tuple[int, int]] = []
    for gap, wanted in steps:
        now += gap
        starts.append((now, store.start(now, wanted)))
    for first, (begin, _) in enumerate(starts):
        total = 0
        for end, number in starts[first:]:
            total += number
            assert total <= limit.size + Fraction((end - begin) * limit.rate.count, limit.rate.period)


@given(rates, st.lists(st.tuples(st.integers(-100_000, 100_000), st.integers(0, 15)), max_size=20))
def test_a_clock_that_is_set_back_gives_no_tokens(limit: Limit, steps: list[tuple[int, int]]) -> None:
    assert limit.rate is not None
    store, now, passed, started = Store(limit), 10**9, 0, 0
    for gap, wanted in steps:
        # While the clock goes back, the record stays; after it expired, the bucket was full before.
        before = store.usage(now).room(TASK)
        now += gap
        passed += max(0, gap)
        after = store.usage(now).room(TASK)
        assert before is not None
        assert after is not None
        if gap <= 0:
            assert after <= before
        started += store.start(now, wanted)
        assert started <= limit.size + Fraction(passed * limit.rate.count, limit.rate.period)


@given(rates, st.lists(st.tuples(gaps, st.integers(0, 5_000), st.integers(0, 15)), max_size=30))
@example(Limit(task="work", rate=Rate(100, 1_000), burst=100), [(1, 0, 1), (1, 20, 1)] * 500)
def test_claims_that_read_the_clock_before_the_last_one_gain_no_tokens(
    limit: Limit, steps: list[tuple[int, int, int]]
) -> None:
    assert limit.rate is not None
    store, now, started = Store(limit), NOW, 0
    # By the clock that the first claim has read at the earliest.
    begin = NOW - 5_000
    for gap, age, wanted in steps:
        now += gap
        started += store.start(now - age, wanted)
        assert started <= limit.size + Fraction((now - begin) * limit.rate.count, limit.rate.period)


def test_a_claim_that_was_overtaken_waits_until_the_token_is_there() -> None:
    store = Store(Limit(task="work", rate=Rate(1, 1_000)))
    assert store.start(NOW, 1) == 1
    opens = store.usage(NOW - 300).opens_at(TASK)
    assert opens == NOW + 1_000
    assert store.start(opens - 1, 1) == 0
    assert store.start(opens, 1) == 1


@given(rates, st.integers(1, 60))
def test_starts_at_the_earliest_instant_do_not_drift(limit: Limit, number: int) -> None:
    assert limit.rate is not None
    store, now = Store(limit), NOW
    for at in range(number):
        opens = store.usage(now).opens_at(TASK)
        assert opens is not None
        now = opens
        assert store.start(now, 1) == 1
        late = max(0, at + 1 - limit.size)
        earliest = -(-late * limit.rate.period // limit.rate.count)
        # A bucket for one start is full at a whole millisecond, and keeps no part of the next one.
        assert earliest <= now - NOW <= earliest + (late if limit.size == 1 else 0)


def test_a_bucket_without_a_record_is_full_and_the_record_expires_when_it_is() -> None:
    limit = Limit(task="work", rate=Rate(6, 60_000), burst=4)
    store = Store(limit)
    assert store.start(NOW, 10) == 4
    ((body, expires),) = store.records.values()
    assert expires == NOW + 40_000
    bucket = read_bucket(body)
    assert bucket is not None
    assert (bucket.level, bucket.at, bucket.period) == (0, NOW, 60_000)
    for ago, tokens in ((1, 3), (0, 4)):
        assert store.usage(expires - ago).room(TASK) == tokens
    assert bucket_record("name", limit, bucket).expires == expires
    half = Store(limit)
    half.start(NOW, 1)
    ((_, expires),) = half.records.values()
    assert expires == NOW + 10_000
    assert bucket_record("name", limit, bucket).tenant == "default"


@pytest.mark.parametrize("body", ["", "{}", "[1]", '["a",1,1]', "null"])
def test_a_damaged_bucket_is_a_full_one(body: str) -> None:
    limit = Limit(task="work", rate=Rate(6, 60_000), burst=4)
    assert read_bucket(body) is None
    assert Usage(Limits([limit]), {}, {limit.name: body}, NOW).room(TASK) == 4


def test_a_changed_rate_keeps_the_number_of_starts_in_the_bucket() -> None:
    before = Store(Limit(task="work", rate=Rate(6, 60_000), burst=10))
    before.start(NOW, 7)
    bodies = {key: body for key, (body, _) in before.records.items()}
    for period, burst, left in ((1_000, 10, 3), (3_600_000, 10, 3), (1_000, 2, 2)):
        limits = Limits([Limit(task="work", rate=Rate(1, period), burst=burst)])
        assert Usage(limits, {}, bodies, NOW).room(TASK) == left


def test_the_default_burst_is_what_flows_in_during_50_ms_and_at_least_one() -> None:
    for count, period, size in (
        (1, 1_000, 1),
        (20, 1_000, 1),
        (21, 1_000, 2),
        (1_000, 1_000, 50),
        (3, 86_400_000, 1),
    ):
        assert Limit(task="work", rate=Rate(count, period)).size == size
    assert Limit(task="work", rate=Rate(5, 1_000), burst=7).size == 7
    assert Limit(task="work", concurrency=5).size == 1


def test_a_rate_and_a_concurrency_both_decide_when_a_run_may_start() -> None:
    limit = Limit(task="work", concurrency=3, rate=Rate(60, 60_000), burst=2)
    store = Store(limit)
    assert [store.usage(NOW, running).room(TASK) for running in range(5)] == [2, 2, 1, 0, 0]
    assert store.usage(NOW, 3).opens_at(TASK) is None
    assert store.usage(NOW, 2).opens_at(TASK) == NOW
    assert Store(Limit(task="work", concurrency=3)).usage(NOW, 2).opens_at(TASK) == NOW
    store.start(NOW, 2)
    assert store.usage(NOW, 2).opens_at(TASK) == NOW + 1_000
    assert store.usage(NOW + 1, 2).opens_at(TASK) == NOW + 1_000
    assert store.usage(NOW, 3).opens_at(TASK) is None
    (only,) = store.limits.partitions(TASK)
    assert store.usage(NOW, 2).used(only) == 2
    assert (store.usage(NOW, 2).left(only), store.usage(NOW, 2).opens(only)) == (0, NOW + 1_000)


def test_the_next_start_is_the_earliest_of_the_cohorts_that_need_no_end() -> None:
    limits = Limits([Limit(task="work", concurrency=1), Limit(task="mail", rate=Rate(1, 1_000))])
    mail, other = "default 4 default mail", "default 4 default other"
    usage = Usage(limits, {TASK: 1}, {}, NOW)
    usage.take(mail)
    assert next_start([(TASK, NOW)], usage) is None
    assert next_start([(TASK, NOW), (mail, NOW)], usage) == NOW + 1_000
    assert next_start([(mail, NOW + 5_000)], usage) == NOW + 5_000
    assert next_start([(mail, NOW), (other, NOW + 10)], usage) == NOW + 10
    assert next_start([], usage) is None


# -- the choice of a claim ---------------------------------------------------------------------------------

NAMES = st.sampled_from
limit_lists = st.lists(
    st.builds(
        Limit,
        task=st.none() | NAMES(["a", "b"]),
        queue=st.none() | NAMES(["q", "r"]),
        tenant=st.none() | NAMES(["x", "y"]),
        key=st.none() | NAMES(["k", "l"]),
        concurrency=st.integers(1, 4),
        rate=st.none() | st.just(Rate(1, 60_000)),
        burst=st.integers(1, 4),
    ).filter(lambda limit: limit.name),
    max_size=4,
    unique_by=lambda limit: limit.name,
)
run_lists = st.lists(
    st.builds(
        RunRecord,
        id=st.uuids().map(str),
        task=NAMES(["a", "b"]),
        queue=NAMES(["q", "r"]),
        tenant=NAMES(["x", "y", "z"]),
        priority=st.integers(4, 6),
        run_at=st.integers(0, 3),
        payload=NAMES(["{}", '{"k":1}', '{"k":2,"l":1}', '{"k":1,"l":null}', "null"]),
    ),
    max_size=14,
    unique_by=lambda run: run.id,
)


def counts(limit: Limit, run: RunRecord, other: RunRecord) -> bool:
    """Return whether a limit counts two runs together: compares them field by field."""
    for each in (run, other):
        fields = {"task": each.task, "queue": each.queue, "tenant": each.tenant}
        if any(getattr(limit, name) not in (None, value) for name, value in fields.items()):
            return False
    if limit.key is None:
        return True
    values = [(json.loads(each.payload) or {}).get(limit.key, "missing") for each in (run, other)]
    return bool(values[0] == values[1] != "missing")


def oracle(
    limits: list[Limit], running: list[RunRecord], queued: list[RunRecord], room: int, turn: str
) -> list[str]:
    """Choose one run after the other; count all from scratch each time."""
    chosen: list[RunRecord] = []

    def admits(run: RunRecord) -> bool:
        for limit in limits:
            if not counts(limit, run, run):
                continue
            starts = sum(counts(limit, run, other) for other in chosen)
            held = starts + sum(counts(limit, run, other) for other in running)
            if limit.concurrency is not None and held >= limit.concurrency:
                return False
            if limit.rate is not None and starts >= limit.size:
                return False
        return True

    for priority in sorted({run.priority for run in queued}, reverse=True):
        served: Counter[str] = Counter()
        while len(chosen) < room:
            able = [run for run in queued if run.priority == priority and run not in chosen and admits(run)]
            if not able:
                break
            # The tenant with the fewest runs of this claim, then the first after the turn.
            best = min(
                able, key=lambda run: (served[run.tenant], run.tenant <= turn, run.tenant, run.run_at, run.id)
            )
            served[best.tenant] += 1
            chosen.append(best)
    return [run.id for run in chosen]


@given(limit_lists, run_lists, run_lists, st.integers(0, 10), st.sampled_from(["", "x", "y", "zz"]))
def test_a_claim_takes_what_the_oracle_takes(
    wanted: list[Limit], running: list[RunRecord], queued: list[RunRecord], room: int, turn: str
) -> None:
    limits = Limits(wanted)
    cohorts = Counter(found for run in running if (found := limits.cohort(run)) is not None)
    usage = Usage(limits, cohorts, {}, NOW)
    candidates = [
        Candidate(run.id, run.tenant, run.priority, run.run_at, limits.cohort(run)) for run in queued
    ]
    chosen = [run.id for run in choose(candidates, room, turn, usage)]
    assert len(chosen) <= room
    assert chosen == oracle(wanted, running, queued, room, turn)
    if not wanted:
        assert chosen == [run.id for run in choose(candidates, room, turn)]


@given(limit_lists, run_lists, run_lists)
def test_the_room_of_a_cohort_is_how_many_of_it_a_claim_takes(
    wanted: list[Limit], running: list[RunRecord], queued: list[RunRecord]
) -> None:
    limits = Limits(wanted)
    cohorts = Counter(found for run in running if (found := limits.cohort(run)) is not None)
    for found in {limits.cohort(run) for run in queued} - {None}:
        assert found is not None
        room = Usage(limits, cohorts, {}, NOW).room(found)
        many = [Candidate(f"{at:02}", "x", 5, 0, found) for at in range(20)]
        taken = choose(many, 20, "", Usage(limits, cohorts, {}, NOW))
        assert len(taken) == (20 if room is None else min(20, room))


@given(st.lists(st.text("abc", min_size=1), unique=True), st.text("abc"))
def test_tenants_after_the_turn_come_first(tenants: list[str], turn: str) -> None:
    order = in_turn(tenants, turn)
    assert sorted(order) == sorted(tenants)
    assert order == sorted(tenants, key=lambda tenant: (tenant <= turn, tenant))


def test_without_limits_cohorts_do_not_matter() -> None:
    some = [Candidate(str(at), "x", 5, 0, TASK) for at in range(3)]
    assert choose(some, 9, "") == some
    assert choose(some, 2, "") == some[:2]


def test_tenants_beyond_the_room_get_nothing() -> None:
    some = [Candidate(tenant, tenant, 5, 0) for tenant in "abc"]
    assert choose(some, 2, "") == some[:2]
    assert choose(some, 2, "b") == [some[2], some[0]]


def test_a_share_is_an_equal_part_rounded_up() -> None:
    assert [share(10, tenants) for tenants in (0, 1, 2, 3, 10, 11)] == [10, 10, 5, 4, 1, 1]
    assert share(0, 3) == 0


# -- cohorts -----------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=70)
    | st.sampled_from(["null", "1", "true", "[]", "{}", '"', "\\", "~", "a b", "a=b", "", "é", "x" * 61]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYED = Limits([Limit(task="work", key="customer", concurrency=1)])


def text_of(value: object) -> str:
    found = cohort(KEYED, json.dumps({"customer": value}))
    assert found is not None
    return found


@given(json_values, json_values)
@example([0] * 40, json.dumps([0] * 40, separators=(",", ":")))
@example(10**70, str(10**70))
@example("x" * 61, "x" * 62)
@example("x" * 40 + "a" * 30, "x" * 40 + "b" * 30)
@example(["a b"], '["a_b"]')
@example(1, 1.0)
@example(1, "1")
@example(None, "null")
@example("a b", "a_b~bb37dea5c027f928")
@example("a\x7fb", "a_b")
@example(1, True)
@example(0.0, -0.0)
def test_values_are_equal_if_and_only_if_their_texts_are(one: object, other: object) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (text_of(one) == text_of(other)) is same
    assert text_of(one) == text_of(one)


@given(json_values)
def test_a_cohort_is_one_short_line_that_can_be_read_again(value: object) -> None:
    found = text_of(value)
    assert found.isascii()
    assert found.isprintable()
    assert len(found) < 120
    parts = read_cohort(found)
    assert (parts.queue, parts.priority, parts.tenant, parts.task) == ("default", 5, "default", "work")
    assert list(parts.values) == ["customer"]
    assert found.count(" ") == 4
    assert KEYED.fits(found)
    (partition,) = KEYED.partitions(found)
    assert partition.name == f"task=work key=customer={parts.values['customer']}"


def test_a_secret_part_of_a_long_value_is_only_hashed() -> None:
    assert text_of("x" * 60).endswith(f"customer={'x' * 60}")
    assert "x" * 41 not in text_of("x" * 61)
    assert f"customer={'x' * 40}~" in text_of("x" * 61)


def test_control_characters_are_not_shown() -> None:
    assert text_of("a\x7fb").isprintable()
    assert "customer=a_b~" in text_of("a\x7fb")
    assert "customer=a_b~" in text_of("a b")


def test_a_text_that_looks_like_another_value_is_quoted() -> None:
    assert text_of("1").endswith('customer="1"')
    assert text_of("a~b").endswith('customer="a~b"')
    assert text_of("ab").endswith("customer=ab")


def test_the_order_of_the_names_in_an_object_does_not_matter() -> None:
    assert text_of({"b": 1, "a": [1]}) == text_of({"a": [1], "b": 1})


@pytest.mark.parametrize(
    "payload", ["{}", "[]", "null", '"customer"', '["customer"]', "7", "not json", '{"customer":']
)
def test_a_payload_without_the_field_has_no_value_and_is_not_limited(payload: str) -> None:
    found = cohort(KEYED, payload)
    assert found == f"{TASK} customer"
    assert KEYED.fits(found)
    assert KEYED.partitions(found) == ()
    assert Usage(KEYED, {found: 5}, {}, NOW).room(found) is None


def test_a_payload_that_is_nested_too_deeply_does_not_stop_a_claim() -> None:
    depth = 101
    payload = '{"customer":' + "[" * depth + "]" * depth + "}"
    assert cohort(KEYED, payload) == f"{TASK} customer"


def test_cohorts_sort_by_queue_and_the_highest_priority_first() -> None:
    limits = Limits([Limit(task="work", concurrency=1)])
    texts = [
        cohort(limits, queue=queue, priority=priority) or ""
        for queue in ("a", "a-b", "ab", "b")
        for priority in (9, 8, 5, 0)
    ]
    assert texts[:2] == ["a 0 default work", "a 1 default work"]
    for at, queue in enumerate(("a", "a-b", "ab", "b")):
        first, end = cohort_range(queue)
        inside = sorted(text for text in texts if first <= text < end)
        assert inside == texts[at * 4 : at * 4 + 4]


def test_runs_that_no_limit_can_concern_have_no_cohort() -> None:
    limits = Limits(
        [
            Limit(task="charge", tenant="acme", concurrency=1),
            Limit(tenant="globex", queue="mail", concurrency=1),
            Limit(queue="slow", key="k", concurrency=1),
        ]
    )
    found = (set(limits.tasks), set(limits.tenants), set(limits.queues), limits.any)
    assert found == ({"charge"}, {"globex"}, {"slow"}, False)
    for fields, is_concerned in (
        ({"task": "charge"}, True),
        ({"tenant": "globex"}, True),
        ({"queue": "slow"}, True),
        ({"queue": "mail", "tenant": "acme"}, False),
        ({}, False),
    ):
        assert (cohort(limits, **fields) is not None) is is_concerned
    assert cohort(Limits([Limit(key="k", concurrency=1)])) == f"{TASK} k"
    mixed = Limits([Limit(queue="slow", concurrency=1), Limit(key="k", concurrency=1)])
    assert mixed.any
    assert cohort(mixed) == f"{TASK} k"
    others = Limits([Limit(task="work", concurrency=1), Limit(task="other", key="k", concurrency=1)])
    assert cohort(others) == TASK
    assert not NO_LIMITS
    assert cohort(NO_LIMITS) is None


def test_a_cohort_of_other_limits_does_not_fit() -> None:
    plain, keyed = Limits([Limit(task="work", concurrency=1)]), KEYED
    both = Limits([*keyed, Limit(queue="default", key="area", concurrency=1)])
    with_value = f"{TASK} customer=7"
    assert plain.fits(TASK)
    assert not plain.fits(with_value)
    assert not keyed.fits(TASK)
    assert not both.fits(with_value)
    assert both.fits(f"{TASK} area customer=7")
    assert not both.fits(f"{TASK} customer=7 area")
    assert not keyed.fits("default 4 default other customer=7")
    assert not NO_LIMITS.fits(TASK)
    for damaged in ("", "default", "default x default work", "a b c"):
        assert not plain.fits(damaged)


def test_the_names_of_limits_and_the_buckets_of_cohorts() -> None:
    rated = Limit(task="work", key="customer", rate=Rate(1, 1_000))
    limits = Limits(
        [
            rated,
            Limit(queue="default", tenant="default", rate=Rate(1, 1_000)),
            Limit(task="work", concurrency=1),
        ]
    )
    assert [limit.name for limit in limits] == [
        "task=work key=customer",
        "queue=default tenant=default",
        "task=work",
    ]
    cohorts = [f"{TASK} customer=1", f"{TASK} customer=2", f"{TASK} customer"]
    assert limits.buckets(cohorts) == [
        "task=work key=customer=1",
        "queue=default tenant=default",
        "task=work key=customer=2",
    ]
    assert limits.buckets([]) == []


def test_records_that_cannot_be_read_are_left_out() -> None:
    good = Limit(task="work", queue="q", key="k", concurrency=3, rate=Rate(5, 1_000), burst=2)
    record = limit_record(good, 7)
    assert (record.kind, record.tenant, record.key, record.version) == ("limit", "default", good.name, 7)
    limits = read_limits(["", "{", record.body, '{"concurrency":"x"}'])
    assert list(limits) == [good]
    assert read_limits(["", "{", record.body, '{"concurrency":"x"}']) is limits, "texts are read once"
