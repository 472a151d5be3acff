"""Write docs/benchmarks.md from the last figures of each suite, and from nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from bench.measure import Report, Row

TITLES = {
    "cron": "Cron",
    "planning": "Planning many schedules",
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
}
INTRODUCTION = (
    "Made by `make bench`, which runs the peers side by side with Evenbeat and writes this page.",
    "README's figures are made from it.",
    "The machine is small and noisy: ratios say more than times, and under 1.6x proves nothing.",
)
_SERVERS = (
    "The servers run on the same two cores and lose nothing that they acknowledged: PostgreSQL as it "
    "comes, Valkey with `appendfsync always`, MongoDB as a replica set of one with its default, journaled "
    "majority."
)
_FIRING = (
    "A tick counts when its run is in the database and its schedule has moved on. Two processes call "
    "`fire_due` as a node's ticker does, until nothing is due; each tick was fired once, which the run "
    "checks. Median of three rounds. APScheduler 3 on its own store for the same server "
    "(SQLAlchemyJobStore with psycopg, RedisJobStore, MongoDBJobStore), 500 due jobs in one pass, with an "
    "executor that only counts; in one process, since two of them would each run all jobs."
)
_CLAIMERS = (
    "The 50 claimers are threads of four processes, each of which opens up to ten connections. A call's "
    "time is that of calls that fired something. While 50 take turns on two cores, a call lasts as long "
    "as 50 batches do, so the size of a batch decides about p99: the goals are those of the size with the "
    "shortest p99 that is fast enough."
)
_OPERATIONS = (
    "One process, one call after the other, in turn with the peers'. “A pass” is one `fire_due` with 100 "
    "schedules due. Taking, extending and letting go of a lock are each a read and a write, so that a "
    "repetition after a lost reply answers the same; redis-py's lock is one command or script each. "
    "APScheduler reads and writes a job in its own job store, without a version to compare."
)
_EXECUTION = (
    "From the call of `enqueue_many` until the store counts all runs as succeeded, which stay there as "
    "history; asked after half of the time that the rest will take, every 50 ms in the end. One process "
    "enqueues, another one works, warm before. Medians of five rounds (three on MongoDB) in which all "
    "take their turns; ratios are medians of the rounds' own. Evenbeat: a node with the default settings, "
    "its tables analyzed once. pgqueuer: asyncpg, uvloop, batches of 100, enqueued in lists of 1,000, all "
    "tables logged (its default), done when its log has all successes; its tables are not analyzed, in "
    "its favour: after an ANALYZE of its empty queue it is several times slower. procrastinate: "
    "`batch_defer` of 1,000, `concurrency=10`, listen/notify, finished jobs kept (its defaults), "
    "analyzed; 500 jobs. huey: on a Valkey of its own without any durability (`appendonly no`), 4 threads "
    "(greenlets were no faster), tasks enqueued one by one, since it has no other way; 3,000 tasks, with "
    "and without keeping results, as above."
)
_PUNCTUALITY = (
    "200 one-shots of each kind at random instants over the same 20 s, handed over in one process and "
    "executed by a node in another, on all three servers at the same time. Late is the clock inside the "
    "function less the instant asked for. Medians of three rounds."
)
_REST = (
    "What a node with the default settings and a `def` task sends in five seconds, on average over a "
    "minute, on a server of its own: PostgreSQL's log (transactions), Valkey's MONITOR (commands, without "
    "those that scripts call), MongoDB's `serverStatus` (commands). Schedules are due in a month or "
    "later."
)
_DOCUMENTS = (
    "Documents of 100 characters that are all due at one instant, until `sleep_until` of the last one is "
    "cleared. Four processes with a processor each, whose handler notes the document; each was handled "
    "once, which the run checks. “4 x 25 at once” is 100 in all. With the index that the docs recommend. "
    "SQLite: one file, WAL, synchronous=FULL. “One document at a time” is what one would write first: 25 "
    "threads in each of the four processes, find-and-update of the next one and an update at its end "
    "(MongoDB), `FOR UPDATE SKIP LOCKED LIMIT 1` and an update at its end (PostgreSQL); fewer documents. "
    "Medians of three rounds."
)
NOTES = {
    "cron": "Aware datetimes in and out, each tick from the one before; time per call. "
    "“Parse” is the whole of `cron(text, tz=…)` with nothing cached.",
    "planning": "“Planned in order” is what a running timeline does every 30 s; triggers are compiled when "
    "a schedule changes. cronsim is timed on 200 schedules and scaled.",
    "timeline": "Arrays in, unless records are named; ticks are whole seconds, each with a schedule of its "
    "own, and records are (tick, id) of 10,000 schedules. “The loop” has 10,000 schedules each minute, "
    "rebuilds every 30 s and asks every second. A query makes "
    "the pairs that it answers; a list of tuples has them already, in ten times the memory. A million ticks "
    "in arbitrary order miss their goal on this processor, whose AVX-512 numpy's sort does not suit (see "
    "[architecture.md](architecture.md#timeline)); what a plan unrolls needs no sort.",
    "sqlite": "A file in the default temporary folder, synchronous=FULL, one process; a batch is a commit.",
    "stores": "APScheduler, the only peer here, has an executor that only counts. On SQLite it fires "
    "500 jobs, each committed by itself; Evenbeat fires 10,000 in commits of 2,000.",
    "execution": "No-op runs a second, from the call of `enqueue_many` until the store counts all of them "
    "as succeeded; asked every 20 ms. One process enqueues, another one runs a node with the default "
    "settings (10 threads, 100 coroutines), started and warm before. A new SQLite file for each round, "
    "synchronous=FULL. huey 3 on an SQLite file beside it: WAL and synchronous=FULL as well "
    "(`fsync=True`; its default is the same here, which the run checks), its consumer with 4 threads (`-w "
    "4 -k thread`) and 60 s of patience for the lock (with its 5 s it lost a result on a busy machine), "
    "tasks enqueued one by one, since it has no other way. “huey” is as it comes otherwise: it keeps "
    "no result that is None, and is done when its queue is empty, though the last four may still be "
    "running. “huey, results kept” records each success, as Evenbeat does (`store_none=True`), and is "
    "done when all results are there.",
    "punctuality": "200 one-shots at random instants over 20 s, all handed over before the first is due. "
    "Late is the clock inside the function less the instant asked for. SQLite, synchronous=FULL, a node "
    "with the default settings; “from another process” hands over in one process and executes in another. "
    "The figures are medians of three rounds. APScheduler 3 keeps its jobs in memory, in the same "
    "process, and writes nothing: a reference. huey, whose tasks come from another process, looks at its "
    "schedule once a second; its consumer has 4 threads, synchronous=FULL.",
    "burst": "10,000 schedules with a daily tick, all at the same instant, on one node with the default "
    "settings (ticker and worker in one process), SQLite, synchronous=FULL. Late is the clock inside the "
    "function less the tick. Of three rounds the one in the middle, by its last start. Every schedule has "
    "one run of that tick, succeeded at its first attempt: the run checks it.",
    "rest": "User and system time of the process of a node (ticker and worker, default settings, a `def` "
    "and an `async def` task) on SQLite, whose 10,000 schedules are due in a month or later. Median of "
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
    machine = last.machine
    versions = ", ".join(f"{name} {version}" for name, version in last.versions.items())
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, Python {machine['python']}"
    rows = [row for report in reports.values() for row in report.rows]
    met, missed = (sum(row.met is which for row in rows) for which in (True, False))
    lines = ["# Benchmarks", "", *INTRODUCTION, "", f"{last.when}; {where}; {versions}.", ""]
    lines.append(f"**Goals: {met} met, {missed} missed.**")
    for suite, report in reports.items():
        older = "" if report.when == last.when else f"Measured {report.when}. "
        lines += ["", f"## {TITLES[suite]}", "", f"{older}{NOTES[suite]}", "", *_table(report.rows)]
        if suite in PICTURES:
            lines += ["", PICTURES[suite]]
    return "\n".join(lines) + "\n"


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
