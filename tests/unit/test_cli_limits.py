"""``evenbeat limits``: what is printed, what is refused, and what other commands say about limits."""

from __future__ import annotations

from evenbeat import Scheduler
from tests.unit import cli_store
from tests.unit.cli_store import MINUTE, Clock, answered, claim, failed, node, printed

# Fixtures: a store in this folder, and a clock that stands still on a Monday at 08:00 UTC.
app, clock = cli_store.app, cli_store.clock


def enqueue(app: Scheduler, *customers: int) -> list[str]:
    return [app.enqueue("charge", {"customer": customer}).id for customer in customers]


def test_limits_are_set_listed_shown_and_removed(app: Scheduler, clock: Clock) -> None:
    assert "there are no such limits" in printed("limits", "list")
    made = printed(
        "limits", "set", "--task", "charge", "--concurrency", "2", "--rate", "100/m", "--burst", "20"
    )
    assert made == "set task=charge: at most 2 runs of charge at once, and 100 a minute\n"
    assert printed("limits", "set", "--task", "charge", "--key", "customer", "--concurrency", "1") == (
        "set task=charge key=customer: at most 1 run of charge at once, for each customer\n"
    )
    enqueue(app, 7, 7, 7, 8, 9)
    assert len(claim(app)) == 2
    clock.pass_(3 * MINUTE)
    assert printed("limits", "list").splitlines() == [
        "limit                     at once  rate   running  waiting  oldest  values",
        "──────────────────────────────────────────────────────────────────────────",
        "task=charge                     2  100/m        2        3   3 min",
        "task=charge key=customer        1               2        2   3 min       3",
    ]
    assert printed("limits", "show", "--task", "charge", "--key", "customer").splitlines() == [
        "task=charge key=customer",
        "",
        "allows   at most 1 run of charge at once, for each customer",
        "running  2",
        "waiting  2, the oldest since 08:00",
        "",
        "customer  running  waiting",
        "──────────────────────────",
        "7               1        2",
        "8               1        0",
        "9               0        0",
    ]
    assert printed("limits", "show", "--task", "charge").splitlines() == [
        "task=charge",
        "",
        "allows      at most 2 runs of charge at once, and 100 a minute",
        "burst       20 at once after a quiet time",
        "running     2",
        "waiting     3, the oldest since 08:00",
        "admits now  0",
    ]
    assert printed("limits", "remove", "--task", "charge") == "removed task=charge\n"
    (left,) = answered("limits", "list")["limits"]
    assert (left["name"], left["waiting"], left["value_count"]) == ("task=charge key=customer", 2, 3)
    assert answered("limits", "list", "--task", "other") == {"limits": []}
    assert answered("limits", "remove", "--task", "charge", "--key", "customer") == {
        "removed": "task=charge key=customer"
    }


def test_a_set_limit_says_what_waits_and_warns_of_an_unknown_task(app: Scheduler) -> None:
    enqueue(app, 1, 2, 3)
    claim(app)
    enqueue(app, 4)
    node(app, name="host-1", worker=True, tasks={"charge": "thread"}, queues=["default"])
    assert printed("limits", "set", "--task", "charge", "--concurrency", "1").splitlines() == [
        "set task=charge: at most 1 run of charge at once",
        "3 running, 1 waiting",
    ]
    assert printed("limits", "set", "--task", "chrge", "--rate", "1/h").splitlines()[1] == (
        "warning: no live node has the task chrge: there is nothing to limit until a node has it; "
        "did you mean charge?"
    )
    made = answered("limits", "set", "--queue", "default", "--tenant", "acme", "--rate", "3/d")["limit"]
    assert (made["name"], made["admits"], made["admits_at"]) == ("queue=default tenant=acme", 1, None)


def test_a_rate_that_is_used_up_says_when_it_admits_the_next_run(app: Scheduler) -> None:
    app.limits.set(task="charge", rate="1/h")
    enqueue(app, 1, 2)
    claim(app)
    lines = printed("limits", "show", "--task", "charge").splitlines()
    assert lines[-1] == "admits next  Mon 2026-03-02 09:00 +00:00, in 1 h"


def test_more_values_than_fit_are_counted(app: Scheduler) -> None:
    app.limits.set(task="charge", key="customer", concurrency=1)
    enqueue(app, *range(13))
    claim(app)
    assert printed("limits", "show", "--task", "charge", "--key", "customer").splitlines()[-1] == (
        "and 3 more values"
    )


def test_values_that_would_not_do_name_their_flag(app: Scheduler) -> None:
    for flags, error in (
        (("--concurrency", "1"), "error: --task, --queue, --tenant and --key are all missing; "),
        (
            ("--task", "charge"),
            "error: --concurrency and --rate are both missing; give --concurrency 5, --rate 100/m or both",
        ),
        (
            ("--task", "charge", "--concurrency", "0"),
            "error: --concurrency 0 is not a whole number of 1 to 10,000",
        ),
        (("--task", "charge", "--concurrency", "-1"), "error: --concurrency -1 is not a whole number"),
        (("--task", "charge", "--concurrency", str(2**63)), f"error: --concurrency {2**63} is not a whole"),
        (("--task", "charge", "--rate", "0/m"), 'error: --rate "0/m" has a count that is not 1 to'),
        (("--task", "charge", "--rate", "100/0s"), 'error: --rate "100/0s" has a period that is not 1s'),
        (("--task", "charge", "--rate", "abc"), 'error: --rate "abc" is not a rate; write it like "100/m"'),
        (
            ("--task", "charge", "--concurrency", "1", "--burst", "2"),
            "error: --burst 2 is given without a rate; give --rate 100/m, too; to bound the running ones,",
        ),
        (("--key", "a.b", "--concurrency", "1"), 'error: --key "a.b" is not 1 to 128 letters'),
        (("--queue", "a:b", "--concurrency", "1"), 'error: --queue "a:b" is not 1 to 128'),
        (("--concurrency", "five"), "error: invalid value for '--concurrency'"),
    ):
        assert failed("limits", "set", *flags, code=2).startswith(error), flags
    assert app.limits.list() == []


def test_a_limit_that_does_not_exist_gets_the_nearest_name(app: Scheduler) -> None:
    for verb in ("show", "remove"):
        assert failed("limits", verb, "--task", "charge") == (
            "error: there is no limit \"task=charge\"\nhint: 'evenbeat limits list' shows those that exist\n"
        )
    app.limits.set(task="charge", key="customer", concurrency=1)
    assert failed("limits", "show", "--task", "charge") == (
        'error: there is no limit "task=charge"\nhint: did you mean task=charge key=customer?\n'
    )


def test_a_run_shows_the_limit_that_it_waits_for(app: Scheduler, clock: Clock) -> None:
    app.limits.set(task="charge", concurrency=1)
    _, second = enqueue(app, 1, 2)
    claim(app, lease=100 * MINUTE)
    node(app, name="host-1", worker=True, tasks={"charge": "thread"}, queues=["default"])
    assert answered("runs", "show", second)["waits"] == {
        "reason": "limited",
        "until": None,
        "nodes": ["host-1"],
        "limit": "task=charge",
    }
    assert "for the limit task=charge" in printed("runs", "show", second)
    assert "waits for the limit task=charge: 1 of 1 runs is running" in printed("why", second)
    clock.pass_(20 * MINUTE)
    said = printed("doctor")
    assert "runs have waited for long for 1 limit" in said
    assert "wait for a worker" not in said
    app.limits.remove(task="charge")
    app.limits.set(task="charge", rate="1/h")
    app.enqueue("charge", {"customer": 3})
    claim(app)
    _, last = enqueue(app, 4, 5)
    assert "for the limit task=charge, until Mon 2026-03-02 09:20 +00:00" in printed("runs", "show", last)
