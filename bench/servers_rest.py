"""How many commands a node sends to its server while nothing is due, counted by the server itself.

Each node has a server of its own, so everything that the server counts comes from the node.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import redis
from pymongo import MongoClient
from tests.servers import Mongo, Postgres, Server, Valkey

from bench import apps, databases
from bench.databases import TITLES, Database
from bench.measure import Row
from bench.processes import scratch
from bench.rest import fill

SIZES = (1_000, 100_000)
SECONDS = 60.0
SETTLE = 5.0
PERIOD = 5.0
GOAL = 1.0
# Two commands, which may fall into the measured minute or just outside.
MORE = 0.2

ASKED = ""
"""The key of what has a goal. The others are listed beside it, with what they are."""
STATEMENTS, LISTENING, SIGNS_OF_LIFE = "statements in them", "waits for hints", "the driver's signs of life"

Counts: TypeAlias = Counter[str]

_STATEMENT = re.compile(rb"^xact=(\S+) LOG:  (?:statement|execute [^:]+): ", re.MULTILINE)


def run() -> list[Row]:
    names = databases.present()
    with ExitStack() as stack:
        nodes = {(name, size): _node(stack, name, size) for name in names for size in SIZES}
        time.sleep(SETTLE)
        before = {key: (time.monotonic(), count()) for key, count in nodes.items()}
        time.sleep(SECONDS)
        after = {key: (time.monotonic(), count()) for key, count in nodes.items()}
    rows = []
    for name in names:
        asked = []
        for size in SIZES:
            title, unit = f"{TITLES[name]}: {size:,} schedules", f"in {PERIOD:g} s"
            (begin, early), (end, late) = before[name, size], after[name, size]
            for what, total in late.items():
                sent = (total - early[what]) / (end - begin) * PERIOD
                if what == ASKED:
                    asked.append(sent)
                    # A command of the seconds before or after may fall into the measured time.
                    met = sent <= GOAL + PERIOD / SECONDS
                    rows.append(Row("servers_rest", title, unit, sent, goal=f"≤ {GOAL:g}", met=met))
                else:
                    rows.append(Row("servers_rest", f"{title}, {what}", unit, sent))
        more = asked[-1] - asked[0]
        title = f"{TITLES[name]}: {SIZES[-1]:,} schedules, more than with {SIZES[0]:,}"
        rows.append(Row("servers_rest", title, unit, more, goal=f"≤ {MORE}", met=more <= MORE))
    return rows


def _node(stack: ExitStack, name: Database, size: int) -> Callable[[], Counts]:
    """Start a server with schedules and a node; yield a function that counts the commands it gets."""
    server, count = _SERVERS[name](stack)
    url = urlsplit(server.url)._replace(path="/bench").geturl() if name == "mongo" else server.url
    app = apps.make("def", url)
    fill(app.store, size)
    databases.analyze(url)
    stack.enter_context(apps.node("def", url, stack.enter_context(scratch()) / "bench.starts"))
    assert app.runs.join(app.enqueue("noop").id, "30s").state == "succeeded"
    app.close()
    return count


def _started(stack: ExitStack, server: Server) -> None:
    stack.callback(server.stop)
    server.start()


def _postgres(stack: ExitStack) -> tuple[Server, Callable[[], Counts]]:
    """Count transactions and statements, including BEGIN and COMMIT, in the server's log."""
    server = Postgres({"log_statement": "all", "log_line_prefix": "xact=%v "})
    _started(stack, server)

    def count() -> Counts:
        transactions = _STATEMENT.findall((server.folder / "output").read_bytes())
        return Counter({ASKED: len(set(transactions)), STATEMENTS: len(transactions)})

    return server, count


def _valkey(stack: ExitStack) -> tuple[Server, Callable[[], Counts]]:
    """Count the commands that MONITOR shows, without those that scripts call."""
    server = Valkey()
    _started(stack, server)
    counts = Counter({ASKED: 0, SIGNS_OF_LIFE: 0})

    def watch() -> None:
        # Until the server is stopped.
        with contextlib.suppress(redis.ConnectionError), client.monitor() as monitor:  # type: ignore[no-untyped-call]
            watching.set()
            for seen in monitor.listen():
                if seen["client_type"] != "lua":
                    counts[SIGNS_OF_LIFE if seen["command"].upper().startswith("PING") else ASKED] += 1

    client, watching = redis.Redis.from_url(server.url, socket_timeout=None), threading.Event()
    threading.Thread(target=watch, daemon=True).start()
    assert watching.wait(10)
    return server, counts.copy


def _mongo(stack: ExitStack) -> tuple[Server, Callable[[], Counts]]:
    """Read the server's own totals. getMore is the wait for hints, hello a sign of life of the driver."""
    server = Mongo()
    _started(stack, server)
    apart = {"getMore": LISTENING, "hello": SIGNS_OF_LIFE, "isMaster": SIGNS_OF_LIFE, "ping": SIGNS_OF_LIFE}

    def count() -> Counts:
        with MongoClient[dict[str, Any]](server.url) as client:
            status = client.admin.command("serverStatus")
        counts = Counter({ASKED: 0, LISTENING: 0, SIGNS_OF_LIFE: 0})
        for name, totals in status["metrics"]["commands"].items():
            # One entry is a plain number, the unknown commands; and serverStatus is our own command.
            if isinstance(totals, dict) and "total" in totals and name not in ("serverStatus", "endSessions"):
                counts[apart.get(name, ASKED)] += int(totals["total"])
        return counts

    return server, count


_SERVERS: dict[Database, Callable[[ExitStack], tuple[Server, Callable[[], Counts]]]] = {
    "postgres": _postgres,
    "valkey": _valkey,
    "mongo": _mongo,
}
