"""Figures as a page: docs/benchmarks.md is made from the last run and nothing else."""

from __future__ import annotations

from bench.measure import Report, Row

TITLES = {
    "cron": "Cron",
    "planning": "Planning many schedules",
    "timeline": "Timeline",
    "sqlite": "SQLite",
    "stores": "Stores",
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
    "startup": "Median of 11 new processes.",
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
