"""``app.limits``: what is checked, what the store keeps, what each limit counts, and what says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from evenbeat import LimitNotFound, Run, RunLimit, Scheduler
from evenbeat.core.instants import from_ms
from evenbeat.core.rates import Rate, read_rate, write_rate
from evenbeat.core.records import Record, RunRecord
from evenbeat.doctor.diagnosis import diagnose
from evenbeat.doctor.findings import Finding
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.rules import attempts
from evenbeat.rules.limit_definitions import MOST_LIMITS, limit_words
from evenbeat.rules.limits import LIMIT, OWNER, Limit, limit_record, read_bucket
from evenbeat.stores.base import Claim
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock, VirtualScheduler, virtual

MINUTE = 60_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def app(clock: VirtualClock) -> Scheduler:
    found = Scheduler(MemoryStore(clock))

    @found.task
    def charge(customer: int = 0, area: str = "") -> None: ...

    return found


tokens = count()


def claim(app: Scheduler, limit: int = 10) -> list[RunRecord]:
    now = app.store.now()
    wanted = Claim(worker="w", token=f"token-{next(tokens)}", limit=limit, now=now, lease=100 * MINUTE)
    return list(app.store.claim_runs(wanted).runs)


def end(app: Scheduler, run: RunRecord) -> None:
    assert app.store.settle_runs([attempts.succeeded(run, None, app.store.now(), f"end-{run.id}")]) == [True]


def add_node(app: Scheduler, **fields: Any) -> None:
    body = {"name": "box-1", "worker": True, "tasks": {"charge": "thread"}, "queues": ["default"], **fields}
    record = Record(kind="node", key="box-1", body=json.dumps(body), expires=app.store.now() + 100 * MINUTE)
    assert app.store.put_record(record)


def enqueue(app: Scheduler, number: int, **payload: Any) -> list[Run]:
    return [app.enqueue("charge", payload or None) for _ in range(number)]


WRONG_RATES: tuple[Any, ...] = (
    *("", "abc", "100", "/m", "100/", "0/m", "-1/m", "1.5/m", "100/0s", "100/-1s", "100/x", "100/minute"),
    *("100/mins", "100/m/s", "1000001/s", f"{2**63}/s", "1/100ms", "1/32d", "1/1y", "٣/m", "1" * 60 + "/m"),
    *(100, 1.5, True),
)


# -- values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("task", {}),
        ("task", {"concurrency": 5}),
        ("task", {"task": "", "concurrency": 5}),
        ("task", {"task": "two words", "concurrency": 5}),
        ("task", {"task": "x" * 201, "concurrency": 5}),
        ("task", {"task": 7, "concurrency": 5}),
        ("queue", {"queue": "a:b", "concurrency": 5}),
        ("tenant", {"tenant": "", "concurrency": 5}),
        *(("key", {"key": key, "concurrency": 5}) for key in ("", "a b", "a.b", "x" * 129, "é", 7, True)),
        ("concurrency", {"task": "charge"}),
        *(
            ("concurrency", {"task": "charge", "concurrency": number})
            for number in (-1, 0, 10_001, 2**63, 1.5, "5", True)
        ),
        *(("rate", {"task": "charge", "rate": rate}) for rate in WRONG_RATES),
        ("burst", {"task": "charge", "concurrency": 1, "burst": 5}),
        *(
            ("burst", {"task": "charge", "rate": "100/m", "burst": number})
            for number in (-1, 0, 2**63, 1_000_001, 1.5, "5")
        ),
        ("burst", {"task": "charge", "rate": "1/d", "burst": 367}),
        ("burst", {"task": "charge", "rate": "2/d", "burst": 733}),
    ],
)
def test_a_limit_that_would_not_do_is_refused(app: Scheduler, field: str, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue) as refused:
        app.limits.set(**values)
    assert refused.value.field == field
    assert refused.value.field in str(refused.value)
    assert app.limits.list() == []
    assert app.audit.list() == []


def test_the_largest_and_the_smallest_values_are_accepted(app: Scheduler) -> None:
    for fields in (
        {"concurrency": 1},
        {"concurrency": 10_000},
        {"rate": "1/d", "burst": 366},
        {"rate": "2/d", "burst": 732},
        {"rate": "1/s", "burst": 1},
        {"rate": "1000000/s", "burst": 1_000_000},
        {"rate": "7/s".ljust(50)},
    ):
        app.limits.set(key="k" * 128, **fields)
    with pytest.raises(InvalidValue, match="rate"):
        app.limits.set(key="k", rate="7/s".ljust(51))


def test_the_error_of_a_rate_says_how_to_write_one() -> None:
    for text, hint in (("100/minute", 'write "100/m"'), ("5 / hours", 'write "5/h"'), ("abc", "10/30s")):
        with pytest.raises(InvalidValue, match="rate") as refused:
            read_rate(text)
        assert hint in str(refused.value)


@pytest.mark.parametrize(
    ("text", "rate", "written"),
    [
        ("100/m", Rate(100, MINUTE), "100/m"),
        ("5/s", Rate(5, 1_000), "5/s"),
        (" 5 / s ", Rate(5, 1_000), "5/s"),
        ("1000/h", Rate(1_000, 60 * MINUTE), "1000/h"),
        ("3/d", Rate(3, 1_440 * MINUTE), "3/d"),
        ("2/w", Rate(2, 7 * 1_440 * MINUTE), "2/7d"),
        ("10/30s", Rate(10, 30_000), "10/30s"),
        ("1/1m30s", Rate(1, 90_000), "1/1m30s"),
        ("7/1500ms", Rate(7, 1_500), "7/1s500ms"),
        ("9/10m", Rate(9, 10 * MINUTE), "9/10m"),
        ("1000000/31d", Rate(1_000_000, 31 * 1_440 * MINUTE), "1000000/31d"),
    ],
)
def test_rates_are_read_and_written(text: str, rate: Rate, written: str) -> None:
    assert read_rate(text) == rate
    assert write_rate(rate) == written
    assert read_rate(written) == rate


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"task": "charge", "concurrency": 5, "rate": Rate(100, MINUTE)},
            "at most 5 runs of charge at once, and 100 a minute",
        ),
        ({"task": "charge", "concurrency": 1}, "at most 1 run of charge at once"),
        ({"queue": "mail", "concurrency": 1_000}, "at most 1,000 runs in queue mail at once"),
        ({"tenant": "acme", "rate": Rate(10, 30_000)}, "at most 10 runs of tenant acme in 30s"),
        ({"key": "customer", "rate": Rate(1, 1_000)}, "at most 1 run a second, for each customer"),
        (
            {"task": "t", "queue": "q", "tenant": "a", "key": "k", "concurrency": 2, "rate": Rate(1, 10_000)},
            "at most 2 runs of t in queue q of tenant a at once, and 1 in 10s, for each k",
        ),
        ({"task": "t", "rate": Rate(3, 86_400_000)}, "at most 3 runs of t a day"),
        ({"task": "t", "rate": Rate(3, 11_000)}, "at most 3 runs of t in 11s"),
    ],
)
def test_limits_are_said_in_words(fields: dict[str, Any], words: str) -> None:
    assert limit_words(Limit(**fields)) == words


# -- set, list, get, remove --------------------------------------------------------------------------------


def test_a_limit_is_set_replaced_read_and_removed(app: Scheduler) -> None:
    made = app.limits.set(task="charge", concurrency=5, rate="100/m", burst=20)
    assert (made.name, made.task, made.queue, made.tenant, made.key) == (
        "task=charge",
        "charge",
        None,
        None,
        None,
    )
    assert (made.concurrency, made.rate, made.burst, made.warnings) == (5, "100/m", 20, ())
    assert (made.running, made.waiting, made.oldest_waiting, made.admits) == (0, 0, None, 5)
    assert (made.values, made.value_count) == ((), 0)
    assert app.limits.list() == [made]
    assert app.limits.get(task="charge") == made
    charge = app.tasks.get("charge")
    replaced = app.limits.set(task=charge, concurrency=3)
    assert (replaced.concurrency, replaced.rate, replaced.burst) == (3, None, None)
    keyed = app.limits.set(task="charge", key="customer", concurrency=1)
    assert app.limits.list() == [replaced, keyed]
    app.limits.remove(task="charge")
    assert app.limits.list() == [keyed]
    for call in (app.limits.get, app.limits.remove):
        with pytest.raises(LimitNotFound, match="did you mean task=charge key=customer") as missing:
            call(task="charge")
        assert missing.value.limit == "task=charge"
    with pytest.raises(LimitNotFound) as missing:
        app.limits.get(queue="zzz")
    assert missing.value.hint is None
    with pytest.raises(InvalidValue, match="task, queue, tenant and key are all missing"):
        app.limits.get()


def test_limits_are_listed_by_their_names(app: Scheduler) -> None:
    for fields in ({"task": "b"}, {"task": "a", "key": "k"}, {"task": "a"}, {"queue": "q", "tenant": "x"}):
        app.limits.set(**fields, concurrency=1)  # type: ignore[arg-type]  # names
    found = [limit.name for limit in app.limits.list()]
    assert found == ["queue=q tenant=x", "task=a", "task=a key=k", "task=b"]
    assert [limit.name for limit in app.limits.list(task="a")] == ["task=a", "task=a key=k"]
    assert [limit.name for limit in app.limits.list(task="a", key="k")] == ["task=a key=k"]
    assert [limit.name for limit in app.limits.list(tenant="x")] == ["queue=q tenant=x"]
    assert app.limits.list(queue="other") == []


def test_the_store_keeps_what_claims_obey(app: Scheduler) -> None:
    app.limits.set(task="charge", concurrency=2)
    (record,) = app.store.find_records(LIMIT, OWNER)
    assert record.body == limit_record(Limit(task="charge", concurrency=2)).body
    enqueue(app, 4)
    assert len(claim(app)) == 2
    app.limits.set(task="charge", concurrency=3)
    assert len(claim(app)) == 1
    app.limits.remove(task="charge")
    assert len(claim(app)) == 1


def test_a_change_wakes_the_workers(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    hints: list[str] = []
    monkeypatch.setattr(app.store, "hint", lambda: hints.append("woken"))
    app.limits.set(task="charge", concurrency=2)
    app.limits.set(task="charge", concurrency=2)
    assert hints == ["woken"], "the second call changes nothing"
    app.limits.set(task="charge", concurrency=3)
    app.limits.remove(task="charge")
    assert hints == ["woken"] * 3


def test_a_task_that_nobody_has_is_a_warning(app: Scheduler) -> None:
    (warning,) = app.limits.set(task="chrge", concurrency=1).warnings
    assert (
        warning.problem
        == "the app does not have the task chrge: there is nothing to limit until a node has it"
    )
    assert warning.hint == "did you mean charge?"
    add_node(app, tasks={"mail": "thread"})
    assert app.limits.set(task="mail", concurrency=1).warnings == ()
    (warning,) = app.limits.set(task="zzz", concurrency=1).warnings
    assert warning.problem.startswith("no live node has the task zzz")
    assert app.limits.list()[0].warnings == ()
    assert app.limits.set(queue="zzz", concurrency=1).warnings == ()


def test_each_change_has_an_entry_in_the_audit(app: Scheduler) -> None:
    app.limits.set(task="charge", concurrency=5, rate="100/m")
    app.limits.set(task="charge", concurrency=5, rate="100/m")
    app.limits.set(task="charge", concurrency=3, rate="100/m")
    app.limits.set(tenant="acme", concurrency=1)
    app.limits.remove(task="charge")
    app.limits.set(tenant="acme", rate="5/s", burst=2)
    app.limits.remove(tenant="acme")
    removed, replaced, *entries = app.audit.list(all_tenants=True)
    assert (removed.action, removed.tenant, removed.before) == ("remove", "acme", {"rate": "5/s", "burst": 2})
    assert (replaced.before, replaced.after) == (
        {"concurrency": 1, "rate": None, "burst": None},
        {"concurrency": None, "rate": "5/s", "burst": 2},
    )
    assert {each.kind for each in entries} == {"limit"}
    found = [(each.action, each.subject, each.tenant, each.before, each.after) for each in entries]
    whole = {"all_tenants": True}
    assert found == [
        ("remove", "task=charge", "default", {"concurrency": 3, "rate": "100/m"} | whole, {}),
        ("set", "tenant=acme", "acme", {}, {"concurrency": 1}),
        ("set", "task=charge", "default", {"concurrency": 5}, {"concurrency": 3} | whole),
        ("set", "task=charge", "default", {}, {"concurrency": 5, "rate": "100/m"} | whole),
    ]
    assert len(app.audit.list(subject="task=charge")) == 3
    assert len(app.audit.list(action="remove")) == 1


def other_write(app: Scheduler, monkeypatch: pytest.MonkeyPatch, method: str, times: int) -> list[int]:
    """Write the limit before each of the first calls of a method, as another process does."""
    store, done = app.store, [0]
    own: Callable[..., bool] = getattr(store, method)

    def after_another(*args: Any) -> bool:
        first = args[0] if isinstance(args[0], str) else args[0].kind
        if first == LIMIT and done[0] < times:
            done[0] += 1
            present = store.get_record(LIMIT, OWNER, "task=charge")
            record = limit_record(Limit(task="charge", concurrency=100 + done[0]), 1_000 + done[0])
            assert MemoryStore.put_record(store, record, None if present is None else present.version)  # type: ignore[arg-type]  # it is one
        return own(*args)

    monkeypatch.setattr(store, method, after_another)
    return done


def test_of_changes_at_the_same_time_none_is_lost(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    done = other_write(app, monkeypatch, "put_record", 3)
    assert app.limits.set(task="charge", concurrency=7).concurrency == 7
    assert done == [3]
    (entry,) = app.audit.list()
    assert (entry.before, entry.after["concurrency"]) == ({"concurrency": 103}, 7)
    done = other_write(app, monkeypatch, "delete_record", 2)
    app.limits.remove(task="charge")
    assert (done, app.limits.list()) == ([2], [])


def test_a_limit_that_keeps_changing_is_given_up(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    other_write(app, monkeypatch, "put_record", 1_000)
    with pytest.raises(StoreUnavailable, match="kept changing"):
        app.limits.set(task="charge", concurrency=7)
    assert app.audit.list() == []
    other_write(app, monkeypatch, "delete_record", 1_000)
    with pytest.raises(StoreUnavailable, match="kept changing"):
        app.limits.remove(task="charge")


def test_the_number_of_limits_is_bounded(app: Scheduler) -> None:
    for at in range(MOST_LIMITS):
        assert app.store.put_record(limit_record(Limit(task=f"t{at}", concurrency=1)))
    with pytest.raises(InvalidValue, match="would be limit 1,001"):
        app.limits.set(task="charge", concurrency=1)
    assert app.limits.set(task="t1", concurrency=2).concurrency == 2


def test_a_limit_that_can_not_be_read_is_replaced_or_removed(app: Scheduler) -> None:
    other = limit_record(Limit(task="mail", concurrency=1)).body
    for body in ("{", '{"task":7}', other):
        for change in ("set", "remove"):
            assert app.store.put_record(Record(kind=LIMIT, key="task=charge", body=body))
            with pytest.raises(LimitNotFound):
                app.limits.get(task="charge")
            if change == "set":
                app.limits.set(task="charge", concurrency=4)
                assert app.limits.get(task="charge").concurrency == 4
            app.limits.remove(task="charge")
            assert app.store.find_records(LIMIT) == []
    assert app.store.put_record(Record(kind=LIMIT, key="tenant=acme", body="{"))
    app.limits.remove(tenant="acme")
    (entry,) = app.audit.list(tenant="acme")
    assert (entry.subject, entry.before, entry.after) == ("tenant=acme", {}, {})


def test_limits_are_set_from_async_code(app: Scheduler) -> None:
    async def story() -> list[RunLimit]:
        await app.limits.aset(task="charge", concurrency=1)
        assert (await app.limits.aget(task="charge")).concurrency == 1
        found = await app.limits.alist()
        await app.limits.aremove(task="charge")
        return found

    assert [limit.name for limit in asyncio.run(story())] == ["task=charge"]
    assert app.limits.list() == []


# -- counts ------------------------------------------------------------------------------------------------


def test_a_limit_counts_what_is_running_and_what_waits(app: Scheduler, clock: VirtualClock) -> None:
    app.limits.set(task="charge", concurrency=2)
    app.limits.set(queue="default", concurrency=100)
    first = app.store.now()
    enqueue(app, 5)
    app.enqueue("charge", delay="1h")
    app.enqueue("other")
    clock.advance("3m")
    waits = app.limits.get(task="charge")
    # Two of the five would be admitted: they wait for a worker.
    assert (waits.running, waits.waiting, waits.admits) == (0, 3, 2)
    held = claim(app)
    queue, task = app.limits.list()
    assert (task.running, task.waiting, task.admits, task.admits_at) == (2, 3, 0, None)
    assert task.oldest_waiting == from_ms(first)
    assert (queue.running, queue.waiting, queue.oldest_waiting, queue.admits) == (3, 0, None, 97)
    end(app, held[0])
    task = app.limits.get(task="charge")
    assert (task.running, task.waiting, task.admits) == (1, 2, 1)


def test_runs_that_no_limit_concerns_do_not_count(app: Scheduler) -> None:
    app.limits.set(task="charge", concurrency=1)
    for task in ("first", "charge", "charge", "last"):
        app.enqueue(task)
    limit = app.limits.get(task="charge")
    assert (limit.running, limit.waiting) == (0, 1)


def test_a_rate_says_when_it_admits_the_next_run(app: Scheduler, clock: VirtualClock) -> None:
    app.limits.set(task="charge", rate="6/m", burst=2)
    enqueue(app, 4)
    assert len(claim(app)) == 2
    start = app.store.now()
    clock.advance("4s")
    limit = app.limits.get(task="charge")
    assert (limit.admits, limit.waiting, limit.admits_at) == (0, 2, from_ms(start + 10_000))
    clock.advance("6s")
    limit = app.limits.get(task="charge")
    assert (limit.admits, limit.waiting, limit.admits_at) == (1, 1, None)


def test_the_busiest_values_of_a_key_are_listed(app: Scheduler) -> None:
    app.limits.set(task="charge", key="customer", concurrency=1)
    app.limits.set(task="charge", key="region", concurrency=100)
    for customer in range(12):
        enqueue(app, 1 + (customer == 7) * 4 + (customer == 3), customer=customer)
    enqueue(app, 2)
    claim(app, 100)
    limit = app.limits.get(task="charge", key="customer")
    assert (limit.running, limit.waiting, limit.value_count, limit.admits) == (12, 5, 12, None)
    found = [(each.value, each.running, each.waiting) for each in limit.values]
    assert found[:3] == [("7", 1, 4), ("3", 1, 1), ("0", 1, 0)]
    assert len(found) == 10
    assert app.limits.get(task="charge", key="region").value_count == 0


def test_values_of_a_key_that_may_be_a_secret_are_masked(app: Scheduler) -> None:
    app.limits.set(key="api_key", concurrency=1)
    for value in ("hunter2", "hunter2", "letmein"):
        app.enqueue("other", {"api_key": value})
    claim(app)
    limit = app.limits.get(key="api_key")
    assert sorted((each.value, each.running, each.waiting) for each in limit.values) == [
        ("***", 1, 0),
        ("***", 1, 1),
    ]


def test_runs_that_were_running_before_the_limit_was_set_count(app: Scheduler) -> None:
    for customer in (1, 1, 2):
        enqueue(app, 1, customer=customer)
    claim(app)
    enqueue(app, 1, customer=1)
    made = app.limits.set(task="charge", key="customer", concurrency=1)
    assert [(each.value, each.running) for each in made.values] == [("1", 2), ("2", 1)]
    assert made.running == 3
    # The waiting run counts once a worker has looked at it.
    assert made.waiting == 0
    assert claim(app) == []
    assert app.limits.get(task="charge", key="customer").waiting == 1
    # Another limit gives the runs other cohorts; the counts stay.
    app.limits.set(task="charge", key="area", concurrency=1)
    assert app.limits.get(task="charge", key="customer").running == 3
    assert app.limits.set(task="charge", concurrency=9).running == 3


def test_running_runs_of_earlier_claims_are_counted_group_by_group(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    for fields in ({}, {"tenant": "acme"}, {"queue": "mail"}, {"priority": 7}):
        app.enqueue("charge", {"customer": 1}, **fields)
    app.enqueue("mail", {"customer": 2})
    app.enqueue("mail")
    now = app.store.now()
    wanted = Claim(worker="w", token="all", limit=9, now=now, lease=MINUTE, queues=("default", "mail"))
    assert len(app.store.claim_runs(wanted).runs) == 6
    made = app.limits.set(key="customer", concurrency=9)
    assert [(each.value, each.running) for each in made.values] == [("1", 4), ("2", 1)]
    whole = app.limits.set(task="mail", concurrency=9)
    assert whole.running == 2
    # Of more runs than are read, the values of the others are not known.
    monkeypatch.setattr("evenbeat.app.limits._MOST_READ", 1)
    assert app.limits.get(task="mail").running == 2
    assert sum(each.running for each in app.limits.get(key="customer").values) in (4, 5)


def test_a_rate_without_active_runs_says_what_it_admits(app: Scheduler) -> None:
    app.limits.set(task="charge", rate="1/m", burst=3)
    enqueue(app, 2)
    for run in claim(app):
        end(app, run)
    limit = app.limits.get(task="charge")
    assert (limit.running, limit.admits) == (0, 1)


def test_many_buckets_are_read_at_once(app: Scheduler) -> None:
    app.limits.set(task="charge", key="customer", rate="1/h")
    for customer in range(15):
        enqueue(app, 2, customer=customer)
    assert len(claim(app, 100)) == 15
    limit = app.limits.get(task="charge", key="customer")
    assert (limit.value_count, limit.waiting) == (15, 15)


def test_the_oldest_of_all_cohorts_and_values_is_the_oldest(app: Scheduler, clock: VirtualClock) -> None:
    app.limits.set(task="charge", concurrency=1)
    app.limits.set(task="charge", key="customer", concurrency=1)
    enqueue(app, 1, customer=1)
    enqueue(app, 1, customer=2)
    claim(app)
    since = []
    for customer, priority in ((2, 9), (1, 4), (3, 7), (2, 1)):
        clock.advance("1m")
        since.append(from_ms(app.store.now()))
        app.enqueue("charge", {"customer": customer}, priority=priority)
    claim(app)
    whole, each = app.limits.list()
    # The second run of the start waits for the slot, with nothing of its own customer before it.
    assert (whole.running, whole.waiting) == (1, 5)
    assert whole.oldest_waiting == since[0] - timedelta(minutes=1)
    assert [(value.value, value.running, value.waiting) for value in each.values] == [
        ("2", 0, 2),
        ("1", 1, 1),
        ("3", 0, 0),
    ]
    assert each.oldest_waiting == since[0] - timedelta(minutes=1)


def test_a_run_with_the_cohort_of_earlier_limits_gets_its_own(app: Scheduler) -> None:
    add_node(app)
    app.limits.set(task="charge", key="customer", concurrency=1)
    first, second = (enqueue(app, 1, customer=7)[0] for _ in range(2))
    claim(app)
    assert app.runs.get(first.id).state == "running"
    app.limits.set(task="charge", key="area", concurrency=1)
    waits = app.runs.why_waiting(second.id)
    assert waits is not None
    assert waits.limit == "task=charge key=customer"
    app.limits.remove(task="charge", key="customer")
    assert app.runs.why(second.id).verdict == "next", "its stored cohort is that of the limit that is gone"


def test_a_new_limit_holds_up_a_run_that_has_another_cohort_yet(app: Scheduler) -> None:
    add_node(app)
    app.limits.set(task="charge", key="customer", concurrency=9)
    second = [app.enqueue("charge", {"customer": customer, "area": "eu"}) for customer in (1, 2)][1]
    claim(app, 1)
    app.limits.set(task="charge", key="area", concurrency=1)
    waits = app.runs.why_waiting(second.id)
    assert waits is not None
    assert waits.limit == "task=charge key=area"


# -- who says so -------------------------------------------------------------------------------------------


def test_why_a_run_waits_names_the_limit(app: Scheduler, clock: VirtualClock) -> None:
    app.limits.set(task="charge", concurrency=1)
    first, second = enqueue(app, 2)
    claim(app)
    assert app.runs.why(second.id).verdict == "no_worker", "a node is missing first of all"
    add_node(app)
    waits = app.runs.why_waiting(second.id)
    assert waits is not None
    assert (waits.reason, waits.limit, waits.until, waits.nodes) == (
        "limited",
        "task=charge",
        None,
        ("box-1",),
    )
    why = app.runs.why(second.id)
    assert why.verdict == "limited"
    assert why.sentence == (
        f"run {second.id} of charge waits for the limit task=charge: 1 of 1 runs is running"
    )
    assert app.runs.why(first.id).verdict == "running"
    app.limits.remove(task="charge")
    waits = app.runs.why_waiting(second.id)
    assert waits is not None
    assert (waits.reason, waits.limit) == ("next", None)


def test_why_a_run_waits_names_the_value_and_the_time(app: Scheduler, clock: VirtualClock) -> None:
    add_node(app)
    app.limits.set(task="charge", key="customer", rate="1/m")
    _, second, third = (enqueue(app, 1, customer=customer)[0] for customer in (7, 7, 8))
    claim(app, 1)
    until = from_ms(app.store.now() + MINUTE)
    waits = app.runs.why_waiting(second.id)
    assert waits is not None
    assert (waits.reason, waits.until) == ("limited", until)
    sentence = app.runs.why(second.id, tz="UTC").sentence
    assert (
        "waits for the limit task=charge key=customer: its rate 1/m admits the next run with customer 7 at"
        in sentence
    )
    other = app.runs.why_waiting(third.id)
    assert other is not None
    assert other.reason == "next"


def test_of_several_limits_the_one_that_opens_last_is_named(app: Scheduler) -> None:
    add_node(app)
    app.limits.set(task="charge", rate="1/m")
    app.limits.set(queue="default", rate="1/h")
    _, second = enqueue(app, 2)
    claim(app)
    waits = app.runs.why_waiting(second.id)
    assert waits is not None
    assert waits.limit == "queue=default"
    app.limits.set(queue="default", rate="2/m")
    waits = app.runs.why_waiting(second.id)
    assert waits is not None
    assert waits.limit == "task=charge"
    app.limits.set(tenant="default", concurrency=1)
    waits = app.runs.why_waiting(second.id)
    assert waits is not None
    assert (waits.limit, waits.until) == ("tenant=default", None)


def limit_findings(app: Scheduler) -> list[Finding]:
    return [each for each in diagnose(app.store, app.store.now()) if each.check == "limits"]


def test_doctor_names_limits_that_can_not_be_read_or_limit_nothing(app: Scheduler) -> None:
    assert limit_findings(app) == []
    app.limits.set(task="charge", concurrency=1)
    app.limits.set(task="chrge", concurrency=1)
    assert limit_findings(app) == [], "no node tells which tasks there are"
    add_node(app)
    (found,) = limit_findings(app)
    assert (found.level, found.facts) == ("warn", {"without_task": ["task=chrge"]})
    assert app.store.put_record(Record(kind=LIMIT, key="task=x", body="{"))
    app.limits.remove(task="chrge")
    (found,) = limit_findings(app)
    assert (found.level, found.details) == ("fail", ("task=x: {",))


def test_doctor_names_limits_for_which_runs_have_waited_for_long(app: Scheduler, clock: VirtualClock) -> None:
    add_node(app)
    app.limits.set(task="charge", concurrency=1)
    enqueue(app, 3)
    claim(app)
    clock.advance("9m")
    assert limit_findings(app) == []
    clock.advance("2m")
    (found,) = limit_findings(app)
    assert (found.level, found.facts) == ("warn", {"slow": [{"limit": "task=charge", "waiting": 2}]})
    assert found.details == ("task=charge: 2 runs, for up to 11 min",)


def test_a_run_that_waits_for_a_limit_does_not_wait_for_a_worker(app: Scheduler, clock: VirtualClock) -> None:
    app.limits.set(task="charge", concurrency=1)
    enqueue(app, 3, customer=7)
    claim(app)
    clock.advance("11m")

    def said() -> tuple[str, list[str]]:
        (queue,) = [each for each in diagnose(app.store, app.store.now()) if each.check == "queue"]
        return queue.level, [item.kind for item in app.attention().items if item.kind != "stuck"]

    assert said() == ("fail", ["no_node"]), "no node could take them"
    app.limits.remove(task="charge")
    app.limits.set(task="charge", key="customer", concurrency=1)
    assert claim(app) == []
    add_node(app)
    # The runs are read without their payloads: their cohorts have the values.
    assert said() == ("ok", [])
    app.limits.remove(task="charge", key="customer")
    assert said() == ("fail", ["waiting"])


def test_metrics_have_what_is_running_and_waiting(app: Scheduler) -> None:
    assert "limit_running{" not in app.metrics()
    app.limits.set(task="charge", concurrency=1)
    enqueue(app, 3)
    claim(app)
    made = app.metrics()
    assert 'evenbeat_limit_running{limit="task=charge"} 1.0' in made
    assert 'evenbeat_limit_waiting{limit="task=charge"} 2.0' in made
    assert "limit_running" not in app.metrics(tenant="acme")
    for at in range(200):
        assert app.store.put_record(limit_record(Limit(task=f"t{at}", concurrency=1)))
    assert "limit_running{" not in app.metrics()


# -- virtual time ------------------------------------------------------------------------------------------


def test_a_rate_holds_in_virtual_time(scheduler: VirtualScheduler) -> None:
    starts: list[timedelta] = []
    noon = scheduler.now

    @scheduler.task
    def charge() -> None:
        starts.append(scheduler.now - noon)

    scheduler.limits.set(task=charge, rate="6/m", burst=2)
    for _ in range(5):
        scheduler.enqueue(charge)
    scheduler.travel("1m")
    assert starts == [timedelta(seconds=after) for after in (0, 0, 10, 20, 30)]


def test_runs_that_wait_for_each_other_all_end_in_virtual_time(scheduler: VirtualScheduler) -> None:
    calls: list[str] = []

    @scheduler.task
    def charge(customer: str) -> None:
        calls.append(customer)
        limit = scheduler.limits.get(task="charge", key="customer")
        assert max(each.running for each in limit.values) == 1

    scheduler.limits.set(task="charge", key="customer", concurrency=1)
    for customer in "aabbc":
        scheduler.enqueue(charge, {"customer": customer})
    scheduler.travel("1m")
    assert sorted(calls) == list("aabbc")
    assert {run.state for run in scheduler.runs.list()} == {"succeeded"}
    assert scheduler.limits.get(task="charge", key="customer").value_count == 0


# -- the page ----------------------------------------------------------------------------------------------


def test_the_time_line_of_the_page_is_true(app: Scheduler, clock: VirtualClock) -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "limits.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if " s | " in line]
    assert len(rows) == 7
    app.limits.set(task="charge", concurrency=2, rate="4/m", burst=3)
    numbers = {run.id: at for at, run in enumerate(enqueue(app, 8), 1)}
    start, held = app.store.now(), dict[int, RunRecord]()
    for at, ends, starts, running, tokens, _ in rows:
        until = start + int(at.removesuffix(" s")) * 1_000 - app.store.now()
        if until:
            clock.advance(timedelta(milliseconds=until - 1))
            assert claim(app) == [], "nothing can start between two rows"
            clock.advance("1ms")
        for number in filter(None, ends.split(", ")):
            run = held.pop(int(number))
            assert run.started_at == app.store.now() - 20_000
            end(app, run)
        taken = {numbers[run.id]: run for run in claim(app)}
        assert ", ".join(map(str, sorted(taken))) == starts
        held |= taken
        assert len(held) == int(running)
        (record,) = app.store.find_records("bucket")
        bucket = read_bucket(record.body)
        assert bucket is not None
        left = bucket.level + (app.store.now() - bucket.at) * 4
        assert round(left / MINUTE, 2) == float(tokens)
    assert set(numbers.values()) - held.keys() == {1, 2, 3, 4, 5, 6}


def test_raising_only_the_burst_fills_no_bucket() -> None:
    with virtual() as world:
        starts: list[timedelta] = []
        began = world.now

        @world.task
        def charge() -> None:
            starts.append(world.now - began)

        seconds = timedelta(seconds=1)
        world.limits.set(task="charge", rate="6/m", burst=3)
        for _ in range(6):
            charge.enqueue()
        world.travel("5s")
        world.limits.set(task="charge", rate="6/m", burst=100)
        world.travel("40s")
        assert starts == [0 * seconds] * 3 + [10 * seconds, 20 * seconds, 30 * seconds]


@pytest.mark.parametrize("quiet", ["1s", "1m"])
def test_a_bucket_is_full_at_its_new_size_once_it_would_be_at_the_old_one(quiet: str) -> None:
    with virtual() as world:
        starts: list[datetime] = []

        @world.task
        def charge() -> None:
            starts.append(world.now)

        world.limits.set(task="charge", rate="6/m", burst=1)
        charge.enqueue()
        began = world.now
        world.travel(quiet)
        world.limits.set(task="charge", rate="6/m", burst=3)
        for _ in range(4):
            charge.enqueue()
        full = max(timedelta(seconds=10), world.now - began)
        world.travel("30s")
        assert [start - began for start in starts[1:]] == [full] * 3 + [full + timedelta(seconds=10)]
