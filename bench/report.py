"""Write docs/benchmarks.md from the last figures of each suite, and from nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bench.measure import Report, Row

TITLES = {
    "cron": "Cron",
    "planning": "Planning many schedules",
    "forecast": "Forecast",
    "timeline": "Timeline",
    "sqlite": "SQLite",
    "stores": "Stores",
    "execution": "Execution",
    "punctuality": "Punctuality",
    "burst": "Burst",
    "rest": "At rest",
    "startup": "Start-up",
    "firing": "Firing on servers",
    "operations": "Single operations on servers",
    "servers_execution": "Execution on servers",
    "servers_punctuality": "Punctuality on servers",
    "servers_rest": "At rest on servers",
    "documents": "Documents",
    "web": "REST API",
    "metrics": "Metrics",
    "limits": "Limits",
    "fairness": "Fair tenants",
    "purging": "Purging",
    "flows": "Flows",
}
INTRODUCTION = (
    "`make bench` writes this page. It measures Evenbeat and the other libraries in the same run.",
    "README's figures come from this page.",
    "The machine is small and noisy: ratios say more than times, and a ratio below 1.6x proves nothing.",
)
_SERVERS = (
    "The servers run on the same two cores and lose no acknowledged write: PostgreSQL with its defaults, "
    "Valkey with `appendfsync always`, MongoDB as a replica set of one with its default, journaled majority."
)
_FIRING = (
    "A tick counts when its run is in the database and its schedule has moved on. Two processes call "
    "`fire_due`, as a node's ticker does, until nothing is due. The benchmark checks that each tick fired "
    "once. Median of three rounds. APScheduler 3 uses its own store for the same server "
    "(SQLAlchemyJobStore with psycopg, RedisJobStore, MongoDBJobStore): 500 due jobs in one pass, with an "
    "executor that only counts, in one process, since two processes would each run all jobs."
)
_CLAIMERS = (
    "The 50 claimers are threads of four processes, each of which opens up to ten connections. The time of "
    "a call is measured for calls that fired something. While 50 claimers take turns on two cores, a call "
    "lasts as long as 50 batches do, so the batch size decides about p99. The goals apply to the batch size "
    "with the shortest p99 that is fast enough."
)
_OPERATIONS = (
    "One process makes one call after the other, in turn with the peers. “A pass” is one `fire_due` with 100 "
    "due schedules. Acquiring, extending and releasing a lock is each a read and a write, so that a call "
    "repeated after a lost reply returns the same; for redis-py's lock, each is one command or script. "
    "APScheduler reads and writes a job in its own job store, without comparing a version."
)
_EXECUTION = (
    "Measured from the call of `enqueue_many` until the store counts all runs as succeeded; the runs stay "
    "there as history. The benchmark counts them after half of the time that the rest will take, and every "
    "50 ms in the end. One process enqueues, another one, warmed up, executes. Medians of five rounds "
    "(three on MongoDB) in which all libraries take turns; a ratio is the median of the ratios of each "
    "round. Evenbeat: a node with the default settings, its tables analyzed once. pgqueuer: asyncpg, uvloop, "
    "batches of 100, enqueued in lists of 1,000, all tables logged (its default), done when its log has all "
    "successes. Its tables are not analyzed, which is to its advantage: after an ANALYZE of its empty queue "
    "it is several times slower. procrastinate: `batch_defer` of 1,000, `concurrency=10`, listen/notify, "
    "finished jobs kept (its defaults), analyzed; 500 jobs. huey: on a Valkey of its own without any "
    "durability (`appendonly no`), 4 threads (greenlets were no faster), tasks enqueued one by one, since "
    "it has no other way; 3,000 tasks, with and without keeping results, as above."
)
_PUNCTUALITY = (
    "200 one-shots of each kind at random instants over the same 20 s. One process enqueues them, and a node "
    "in another process executes them, on all three servers at the same time. Lateness is the clock inside "
    "the function minus the instant at which it was due. Medians of three rounds."
)
_REST = (
    "How many commands a node with the default settings and a `def` task sends in five seconds, on average "
    "over a minute, to a server of its own: by PostgreSQL's log (transactions), Valkey's MONITOR (commands, "
    "without those that scripts call), MongoDB's `serverStatus` (commands). The schedules are due in a month "
    "or later."
)
_DOCUMENTS = (
    "Documents of 100 characters that are all due at one instant, until `sleep_until` of the last one is "
    "cleared. Four processes have a processor each, whose handler records the document. The benchmark checks "
    "that each document was processed once. “4 x 25 at once” is 100 in all. With the index that the docs "
    "recommend. SQLite: one file, WAL, synchronous=FULL. “One document at a time” is the obvious first "
    "solution: 25 threads in each of the four processes, with a find-and-update of the next document and an "
    "update at its end (MongoDB), or `FOR UPDATE SKIP LOCKED LIMIT 1` and an update at its end (PostgreSQL); "
    "fewer documents. Medians of three rounds."
)
_FLOWS = (
    "From the call of `enqueue` until the flow's end is seen, which is looked for every 10 ms; one node "
    "with the default settings (10 threads) in another process, on the store in memory in the same one; a "
    "map also on two nodes in two processes. All steps are `def` no-ops. The time from a step's end to "
    "the start of the next is that between the clocks inside the two functions. “Without edges” are as "
    "many runs by `enqueue_many`; a layer has 100 steps, each of which waits for two of the layer before. "
    "Medians of nine chains and as many flows of 1,000 steps (three in each of three rounds, each in a "
    "new store), and of three maps. Celery: chains (immutable signatures) and a chord of 500 on a Valkey "
    "as durable as ours, which is broker and result backend; a worker with `--pool threads -c 10`. "
    "procrastinate has no flows: each task defers the next one, which is not atomic with its end; one "
    "chain in each round, since it now and then waits for its next look, 5 s later. DBOS: a workflow with "
    "100 steps in its own process, each a function call with a checkpoint, which no other process can "
    "execute; as a map, 500 workflows in a queue that is polled every 50 ms (its default is 1 s), "
    "collected by the workflow that enqueued them."
)
NOTES = {
    "flows": f"{_SERVERS} {_FLOWS}",
    "limits": "Runs claimed: 10,000 due runs, claimed and ended in batches of 100 by one client; only the "
    "claims are timed. Keys: a claim of 100 finds its runs among 1,000 keys, of which each admits one run. "
    "Behind: one limited run holds the only slot, 50,000 wait for it, and a node starts 100 runs of another "
    "task, enqueued one by one from another process.",
    "fairness": "50,000 runs of one tenant, which do nothing, are due before a node with default settings "
    "starts. Then another tenant enqueues 100 runs from another process, one every 20 ms; on the store in "
    "memory, from the same process. The percentiles are of the time from due to start of these. Medians of "
    "three rounds, each with and without the flood.",
    "purging": "A pruner deletes runs that ended 40 days ago, in another process, with the batches and rests "
    "of a node. Meanwhile this process adds, claims and ends one run at a time. Waits for a CPU are "
    "subtracted where a row says so.",
    "forecast": "The computing alone, without reading the schedules from a store: counts by the minute, "
    "peaks, quiet windows and proposed spreads.",
    "web": "Requests come over loopback from threads of another process on the same two cores, with a token. "
    "A first page has 50 of 100,000 schedules with their statistics; its p99 is that of the slowest filter. "
    "Rows that begin with “catalogue” or name a filter measure the memory of the web process alone. "
    "Starlette's hello world, served by uvicorn, is the limit of what a request can cost without us.",
    "metrics": "A scrape is `GET /metrics` over loopback, with a token, with the counters of 20 nodes of 100 "
    "tasks each; up to 1,000 schedules have series of their own. One node executes no-ops on SQLite "
    "with and without counting, in turn; medians of the ratios of 25 pairs of rounds.",
    "cron": "Each library takes and returns aware datetimes, and computes each tick from the one before; "
    "time per call. “Parse” is the whole of `cron(text, tz=…)` with nothing cached.",
    "planning": "“Planned in order” is what a running timeline does every 30 s; triggers are compiled when "
    "a schedule changes. cronsim is measured on 200 schedules, and scaled.",
    "timeline": "From arrays, unless a row names records. Ticks are whole seconds, each of another schedule; "
    "records are (tick, id) of 10,000 schedules. “The loop” has 10,000 schedules each minute, "
    "rebuilds every 30 s and queries every second. A query makes "
    "the pairs that it returns; a list of tuples has them already, in ten times the memory. A million ticks "
    "in arbitrary order miss their goal on this processor, since numpy's sort does not suit its AVX-512 (see "
    "[architecture.md](architecture.md#timeline)); ticks that a plan unrolls need no sort.",
    "sqlite": "A file in the default temporary folder, synchronous=FULL, one process; a batch is a commit.",
    "stores": "APScheduler, the only peer here, has an executor that only counts. On SQLite it fires "
    "500 jobs with a commit for each; Evenbeat fires 10,000 in commits of 2,000.",
    "execution": "No-op runs per second, from the call of `enqueue_many` until the store counts all of them "
    "as succeeded; counted every 20 ms. One process enqueues, another one runs a node with the default "
    "settings (10 threads, 100 coroutines), started and warmed up before. A new SQLite file for each round, "
    "synchronous=FULL. huey 3 uses an SQLite file, too: WAL and synchronous=FULL as well "
    "(`fsync=True`; its default is the same here, which the benchmark checks), a consumer with 4 threads "
    "(`-w 4 -k thread`) that waits up to 60 s for the lock (with its 5 s it lost a result on a busy "
    "machine), and tasks enqueued one by one, since it has no other way. “huey” has its defaults "
    "otherwise: it stores no result that is None, and is done when its queue is empty, though the last four "
    "may still be running. “huey, results kept” records each success, as Evenbeat does (`store_none=True`), "
    "and is done when all results are there.",
    "punctuality": "200 one-shots at random instants over 20 s, all enqueued before the first is due. "
    "Lateness is the clock inside the function minus the instant at which it was due. SQLite, "
    "synchronous=FULL, a node with the default settings; “from another process” enqueues in one process and "
    "executes in another. The figures are medians of three rounds. APScheduler 3 keeps its jobs in memory, "
    "in the same process, and writes nothing: a reference. huey, whose tasks come from another process, "
    "reads its schedule once a second; its consumer has 4 threads, synchronous=FULL.",
    "burst": "10,000 schedules with a daily tick, all at the same instant, on one node with the default "
    "settings (ticker and worker in one process), SQLite, synchronous=FULL. Lateness is the clock inside the "
    "function minus the tick. The median of three rounds, by the last start. The benchmark checks that every "
    "schedule has one run of that tick, which succeeded at its first attempt.",
    "rest": "User and system time of the process of a node (ticker and worker, default settings, a `def` "
    "and an `async def` task) on SQLite, with 10,000 schedules that are due in a month or later. Median of "
    "three times 30 s.",
    "startup": "Median of 11 new processes.",
    "firing": f"{_SERVERS} {_FIRING} {_CLAIMERS}",
    "operations": f"{_SERVERS} {_OPERATIONS}",
    "servers_execution": f"{_SERVERS} {_EXECUTION}",
    "servers_punctuality": f"{_SERVERS} {_PUNCTUALITY}",
    "servers_rest": _REST,
    "documents": f"{_SERVERS} {_DOCUMENTS}",
}
PICTURES = {
    "burst": "![How late each of 10,000 runs starts, in the order of their starts](img/burst.svg)",
    "servers_execution": "![No-op runs a second on each server, beside the peers](img/servers-execution.svg)",
}


def page(reports: Mapping[str, Report]) -> str:
    """Return the whole page as Markdown, from the report of each suite."""
    last = max(reports.values(), key=lambda report: report.when)
    rows = [row for report in reports.values() for row in report.rows]
    met, missed = (sum(row.met is which for row in rows) for which in (True, False))
    lines = ["# Benchmarks", "", *INTRODUCTION, "", f"{_circumstances(last)}.", "", _goals(met, missed)]
    for suite, report in reports.items():
        older = "" if report.when == last.when else f"Measured {report.when}. "
        lines += ["", *_section(suite, report, older)]
    return "\n".join(lines) + "\n"


def with_sections(text: str, reports: Mapping[str, Report]) -> str:
    """Return the page with the sections of these suites replaced, or added at its end, and its goals counted
    again. Each such section says when and where it was measured."""
    head, *sections = re.split(r"\n(?=## )", text.rstrip("\n"))
    found = {section.partition("\n")[0].removeprefix("## "): section.rstrip("\n") for section in sections}
    for suite, report in reports.items():
        lines = _section(suite, report, f"Measured {_circumstances(report)}. ")
        found[TITLES[suite]] = "\n".join(lines)
    cells = [line.rpartition(" | ")[2] for section in found.values() for line in section.splitlines()]
    head = _GOALS.sub(_goals(cells.count("met |"), cells.count("**missed** |")), head.rstrip("\n"), count=1)
    return "\n\n".join([head, *found.values()]) + "\n"


_GOALS = re.compile(r"\*\*Goals: \d+ met, \d+ missed\.\*\*")


def _goals(met: int, missed: int) -> str:
    return f"**Goals: {met} met, {missed} missed.**"


def _circumstances(report: Report) -> str:
    machine = report.machine
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, Python {machine['python']}"
    return f"{report.when}; {where}; {versions}"


def _section(suite: str, report: Report, measured: str) -> list[str]:
    lines = [f"## {TITLES[suite]}", "", f"{measured}{NOTES[suite]}", "", *_table(report.rows)]
    return [*lines, "", PICTURES[suite]] if suite in PICTURES else lines


def _table(rows: list[Row]) -> list[str]:
    peers = list(dict.fromkeys(peer for row in rows for peer in row.peers))
    spread = any(row.p95 is not None for row in rows)
    head = ["", "Evenbeat", *(["p95", "p99"] if spread else []), *peers]
    head += (["times the best peer"] if peers else []) + ["goal", ""]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for row in rows:
        cells = [row.name, f"{_number(row.ours)} {row.unit}"]
        if spread:
            cells += [_number(row.p95), _number(row.p99)]
        cells += [_number(row.peers.get(peer)) for peer in peers]
        if peers:
            cells.append(_ratio(row))
        cells += [row.goal, {True: "met", False: "**missed**", None: ""}[row.met]]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _ratio(row: Row) -> str:
    """Return how many times as good as the best peer it is: shorter, smaller, or more per second."""
    if not row.peers:
        return ""
    if row.unit.endswith("/s"):
        return f"{row.ours / max(row.peers.values()):.1f}x"
    return f"{min(row.peers.values()) / row.ours:.1f}x"
