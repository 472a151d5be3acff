"""The store's own clock is set back: the server's, or, with SQLite, that of the one host.

Ticks that were dealt with are not due again: schedules wait until the clock has caught up. What is new goes
by the new time, at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from evenbeat.core.records import CatchUp, RunRecord, ScheduleRecord
from evenbeat.rules import changes
from evenbeat.stores.base import Write
from tests import servers
from tests.faults.fleet import Fleet, fleet, opened, prepare, wait_until
from tests.faults.mongo_clock import MongoClock
from tests.faults.scene import Ground, Outcome, Scene, end, faketime, next_completion
from tests.isolation import own_place

HOUR_MS = 3_600_000
# Seconds in which nothing fires, once the nodes have noticed.
QUIET = 1.5


@contextmanager
def with_a_clock(store: str, folder: Path) -> Iterator[Ground]:
    """A ground whose clock is set by a file."""
    if store == "sqlite":
        ground = Ground(f"sqlite:///{folder / 'evenbeat.db'}", folder)
        set_clock(ground, 0)
        yield ground
        return
    server = servers.KINDS[store]()
    bare = Ground("", folder, server)
    with ExitStack() as stack:
        stack.callback(server.stop)
        set_clock(bare, 0)
        port = server.port
        if isinstance(server, servers.Mongo):
            server.start()
            proxy = MongoClock(server.port, _clock_file(bare))
            stack.callback(proxy.close)
            port = proxy.port
        else:
            server.environment = _faked(bare)
            server.start()
            if isinstance(server, servers.Valkey):
                stack.callback(server.kill)  # under libfaketime it does not notice a signal for many seconds
        yield Ground(stack.enter_context(own_place(server.url_at(port))), folder, server)


def set_clock(ground: Ground, seconds: int) -> None:
    """Set the store's clock to this machine's, plus so many seconds."""
    new = _clock_file(ground).with_suffix(".new")
    new.write_text(f"{seconds:+}s\n")
    new.chmod(0o644)
    new.rename(_clock_file(ground))  # in one step, so that no process reads half a line


def _clock_file(ground: Ground) -> Path:
    return (ground.folder if ground.server is None else ground.server.folder) / "clock"


def _faked(ground: Ground) -> dict[str, str]:
    return {**faketime(), "FAKETIME_TIMESTAMP_FILE": str(_clock_file(ground))}


def set_back(ground: Ground, faults: int) -> Outcome:
    """Back by an hour and forward again, then back by three seconds, which the clock catches up on."""
    prepare(ground.url, ground.schedules)
    longest = 0.0
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(3):
            nodes.start(environment=_faked(ground) if ground.server is None else {})
        nodes.await_ready()
        for at in range(faults):
            next_completion(nodes)
            set_clock(ground, -3600)
            _await_quiet(nodes)
            _work_by_the_new_time(ground, nodes, at)
            before = _fired(nodes)
            time.sleep(QUIET)
            assert _fired(nodes) == before, "a tick was fired before its time by the store's clock"
            set_clock(ground, 0)
            longest = max(longest, next_completion(nodes))
            set_clock(ground, -3)
            next_completion(nodes)
            _await_tick(nodes)
            set_clock(ground, 0)
        return end(ground, nodes, 2 * faults, longest)


def _await_tick(nodes: Fleet) -> None:
    before = _fired(nodes)
    wait_until(lambda: _fired(nodes) > before, "schedules did not go on")


def _await_quiet(nodes: Fleet) -> None:
    """Until no tick fires any more: nodes hear of a server's new time with its next replies."""

    def is_quiet() -> bool:
        before = _fired(nodes)
        time.sleep(QUIET)
        return _fired(nodes) == before

    wait_until(is_quiet, "ticks that are an hour ahead were fired")


def _fired(nodes: Fleet) -> int:
    return sum(1 for report in nodes.reports() if report["what"] == "ran" and "/s" in report["run"])


def _work_by_the_new_time(ground: Ground, nodes: Fleet, at: int) -> None:
    """What is asked for now runs now, and a schedule that is made now ticks."""
    with opened(ground.url) as store:
        now = store.now() - (HOUR_MS if ground.server is None else 0)
        assert abs(now + HOUR_MS - time.time() * 1000) < HOUR_MS / 2, "the clock was not set back"
        run = RunRecord(id=f"by-hand-{at}", task="work", scheduled_at=now, run_at=now, created_at=now)
        store.add_runs([run])
        schedule = ScheduleRecord(
            name=f"new-{at}", task="work", trigger="every 100ms", catch_up=CatchUp("latest")
        )
        assert store.put_schedules([Write(changes.create(schedule, now), None)])[0].accepted
        store.hint()

    def ran(beginning: str) -> bool:
        return any(
            report["what"] == "done accepted" and report["run"].startswith(beginning)
            for report in nodes.reports()
        )

    wait_until(lambda: ran(f"by-hand-{at}"), "a run that was asked for did not run")
    wait_until(lambda: ran(f"default/new-{at}/"), "a schedule that was made did not tick")


WHAT = "3 nodes; the store's clock set back by 1 h and forward again, then back by 3 s"
SCENES = (
    Scene("clock set back", set_back, WHAT, 1, 3, ("sqlite", "postgres", "valkey"), with_a_clock),
    # MongoDB takes two minutes and more to catch up on the ticks of an hour.
    Scene("clock set back", set_back, WHAT, 0, 3, ("mongo",), with_a_clock),
)
