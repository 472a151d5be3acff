"""Figures as a page: docs/benchmarks.md is made from the last run and nothing else."""

from __future__ import annotations

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
}
INTRODUCTION = (
    "Made by `make bench`, which runs the peers side by side with Evenbeat and writes this page.",
    "The machine is small and noisy: ratios say more than times, and under 1.6x proves nothing.",
)
NOTES = {
    "cron": "Aware datetimes in and out, each tick from the one before; time per call. "
    "“Parse” is the whole of `cron(text, tz=…)` with nothing cached.",
    "planning": "“Planned in order” is what a running timeline does every 30 s; triggers are compiled when "
    "a schedule changes. cronsim is timed on 200 schedules and scaled.",
    "timeline": "Arrays in; ticks are whole seconds, each with a schedule of its own. A query makes "
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
}
PICTURES = {
    "burst": "![How late each of 10,000 runs starts, in the order of their starts](img/burst.svg)",
}


def page(report: Report) -> str:
    """The whole page as Markdown."""
    machine = report.machine
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, Python {machine['python']}"
    met, missed = (sum(row.met is which for row in report.rows) for which in (True, False))
    lines = ["# Benchmarks", "", *INTRODUCTION, "", f"{report.when}; {where}; {versions}.", ""]
    lines.append(f"**Goals: {met} met, {missed} missed.**")
    for suite in dict.fromkeys(row.suite for row in report.rows):
        rows = [row for row in report.rows if row.suite == suite]
        lines += ["", f"## {TITLES[suite]}", "", NOTES[suite], "", *_table(rows)]
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
    """How many times as good as the best peer: shorter, smaller, or more a second."""
    if not row.peers:
        return ""
    if row.unit.endswith("/s"):
        return f"{row.ours / max(row.peers.values()):.1f}x"
    return f"{min(row.peers.values()) / row.ours:.1f}x"
