"""Checks of nodes: clocks, presence, the fallback to memory, and what nodes found themselves."""

from __future__ import annotations

from typing import Any

from evenbeat.core.instants import Instant, write_instant
from evenbeat.core.json_form import json_form
from evenbeat.core.records import ScheduleRecord
from evenbeat.doctor.findings import Finding, some_lines
from evenbeat.node.presence import LiveNode
from evenbeat.node.self_check import latest_check
from evenbeat.observe.phrases import count, span
from evenbeat.stores.base import Store

_CLOCKS_APART = 2_000
# Milliseconds: nodes check once a minute.
_CHECK_OLD = 180_000


def clock_finding(now: Instant, local: Instant, rows: list[ScheduleRecord]) -> Finding:
    apart = now - local
    facts = {"store_ahead": apart / 1000}
    written = max((row.updated_at for row in rows), default=now)
    if written > now + _CLOCKS_APART:
        return Finding(
            check="clock",
            level="fail",
            facts=facts,
            message=f"the store has rows from {span(written - now, units=1)} ahead: its clock went back",
            hint="correct the clock; until then no tick is due that was due before",
        )
    if abs(apart) > _CLOCKS_APART:
        length = span(abs(apart), units=1)
        ahead = "ahead of" if apart > 0 else "behind"
        return Finding(
            check="clock",
            level="warn",
            facts=facts,
            message=f"the store's clock is {length} {ahead} this machine's; the store's is used",
            hint="keep both in step with NTP",
        )
    return Finding(check="clock", level="ok", message="the store and this machine agree", facts=facts)


def nodes_finding(alive: list[LiveNode], rows: list[ScheduleRecord]) -> Finding:
    facts = {"nodes": [_node_facts(node) for node in alive]}
    if alive:
        details = some_lines(_node_words(node) for node in alive)
        message = f"{count(len(alive), 'node')} running"
        return Finding(check="nodes", level="ok", message=message, details=details, facts=facts)
    needed = any(row.state == "active" for row in rows)
    return Finding(
        check="nodes",
        level="warn" if needed else "ok",
        message="no node is running" if needed else "no node is running, and there is nothing to fire",
        hint="start one: evenbeat run" if needed else None,
        facts=facts,
    )


def fallback_findings(alive: list[LiveNode], now: Instant) -> list[Finding]:
    """Return a finding for nodes that fire schedules from memory, because of a failure or by choice."""
    failing = [node for node in alive if node.fallback_since is not None]
    findings = []
    if failing:
        since = min(node.fallback_since or now for node in failing)
        findings.append(
            Finding(
                check="fallback",
                level="fail",
                message=f"{count(len(failing), 'node fires', 'nodes fire')} schedules from memory, for "
                f"{span(now - since, units=1)}: their rows can't be read",
                hint="free or restore the table of schedules; nodes go back to it by themselves",
                details=some_lines(node.key for node in failing),
                facts={"nodes": [node.key for node in failing], "since": write_instant(since)},
            )
        )
    names = sorted({name for node in alive for name in node.code_only})
    if names:
        findings.append(
            Finding(
                check="modes",
                level="ok",
                message=f"{count(len(names), 'schedule is', 'schedules are')} in the code only",
                details=some_lines(names),
                facts={"code_only": names},
            )
        )
    return findings


def self_check_findings(store: Store, alive: list[LiveNode], now: Instant) -> list[Finding]:
    """Return what the nodes' own check last found; nothing if no node has made one."""
    last = latest_check(store)
    if last is None:
        return []
    facts = {
        "at": write_instant(last.at),
        "findings": [json_form(each.item) for each in last.findings.values()],
    }
    age = now - last.at
    if age > _CHECK_OLD and alive:
        return [
            Finding(
                check="self-check",
                level="warn",
                message=f"the nodes' last check is {span(age, units=1)} old",
                hint="look at the log of the nodes: they check once a minute",
                facts=facts,
            )
        ]
    if not last.findings or not alive:
        message = "the nodes found nothing wrong" if not last.findings else "no node is running to check"
        return [Finding(check="self-check", level="ok", message=message, facts=facts)]
    return [
        Finding(
            check="self-check",
            level="warn",
            message=f"the nodes found {count(len(last.findings), 'problem')}",
            hint="evenbeat attention --all-tenants",
            details=some_lines(
                f"{each.item.sentence} (for {span(now - each.since, units=1)})"
                for each in sorted(last.findings.values(), key=lambda each: each.since)
            ),
            facts=facts,
        )
    ]


def _node_facts(node: LiveNode) -> dict[str, Any]:
    facts = node._asdict() | {"tasks": sorted(node.tasks or ()), "slots": dict(node.slots)}
    for name in ("started_at", "seen_at", "fallback_since"):
        facts[name] = None if facts[name] is None else write_instant(facts[name])
    del facts["kinds"]
    return facts


def _node_words(node: LiveNode) -> str:
    where = f"{node.key} on {node.host}, pid {node.pid}" if node.host else node.key
    if not node.worker:
        return f"{where}, ticker only"
    tasks = "" if node.tasks is None else f", {count(len(node.tasks), 'task')}"
    return where + tasks + ("" if node.ticker else ", worker only")
