"""Checks of runs: waiting ones, tasks without a node, limits, expired leases, duplicates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from evenbeat.app.limits import read_limit_record
from evenbeat.app.repairs import Duplicate, duplicates, lost_runs
from evenbeat.core.instants import Instant, write_instant
from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.doctor.findings import SOME, Finding, some_lines
from evenbeat.doctor.schedules import LATE
from evenbeat.node.presence import LiveNode
from evenbeat.observe.backlogs import LONG_WAIT
from evenbeat.observe.limit_usage import LimitUsage
from evenbeat.observe.missing_tasks import missing_tasks
from evenbeat.observe.phrases import count, span
from evenbeat.observe.reasons import lack_reason
from evenbeat.rules.limits import LIMIT, OWNER
from evenbeat.rules.waiting import takers, why_no_taker
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, Store
from evenbeat.stores.pages import every_run

_PAGE = 500
# The most runs and rows that are read: enough to see a fault, in seconds at most.
_RUNS = 100_000


def waiting_finding(store: Store, alive: list[LiveNode], now: Instant, limits: LimitUsage | None) -> Finding:
    counts: Counter[tuple[str, str]] = Counter()
    oldest: dict[tuple[str, str], Instant] = {}
    for number, run in enumerate(
        every_run(store, RunQuery(states=("queued",), without=LARGE_FIELDS, limit=_PAGE))
    ):
        if number >= _RUNS:
            break
        if run.run_at < now - LATE and not _is_limited(run, alive, limits):
            key = (run.task, run.queue)
            counts[key] += 1
            oldest[key] = min(oldest.get(key, now), run.run_at)
    facts = {"queued": [{"task": task, "queue": queue, "runs": n} for (task, queue), n in counts.items()]}
    if not counts:
        return Finding(check="queue", level="ok", message="no run has waited for over a minute", facts=facts)
    details = []
    for (task, queue), number in counts.most_common():
        why = _why_waiting(task, queue, alive)
        details.append(
            f"{task}: {count(number, 'run')}, for up to {span(now - oldest[task, queue], units=1)}{why}"
        )
    return Finding(
        check="queue",
        level="fail",
        facts=facts,
        message=f"{count(counts.total(), 'run waits', 'runs wait')} for a worker",
        hint="start a node that has these tasks and queues: evenbeat run",
        details=some_lines(details),
    )


def task_findings(alive: list[LiveNode], rows: list[ScheduleRecord]) -> list[Finding]:
    """Return a finding if schedules have a task that no live node has; else nothing."""
    missing = missing_tasks(rows, [node.taker for node in alive if node.worker])
    if not missing:
        return []
    details = []
    for each in missing:
        near = "" if each.near is None else f"; did you mean {each.near}?"
        names = ", ".join(row.name for row in each.schedules[:SOME])
        more = f" and {len(each.schedules) - SOME:,} more" if len(each.schedules) > SOME else ""
        details.append(f"{each.task}, of {names}{more}{near}")
    number = sum(len(each.schedules) for each in missing)
    finding = Finding(
        check="tasks",
        level="warn",
        facts={"tasks": [{"task": e.task, "schedules": [r.name for r in e.schedules]} for e in missing]},
        message=f"{count(number, 'schedule has', 'schedules have')} a task that no live node has",
        hint="renamed: evenbeat schedules update NAME --task NEW, and "
        "evenbeat runs move --task OLD --to NEW; removed: evenbeat schedules delete NAME, or "
        "evenbeat apply --prune",
        details=some_lines(details),
    )
    return [finding]


def _is_limited(run: RunRecord, alive: list[LiveNode], limits: LimitUsage | None) -> bool:
    """Return whether a run that a live node could take waits for a limit."""
    if limits is None or limits.hold(run) is None:
        return False
    return bool(takers(run, [node.taker for node in alive]))


def limit_findings(
    store: Store, alive: list[LiveNode], now: Instant, usage: LimitUsage | None
) -> Iterator[Finding]:
    """Yield what is wrong with limits; nothing if there are none, or all is well."""
    unread = [record for record in store.find_records(LIMIT, OWNER) if read_limit_record(record) is None]
    if unread:
        yield Finding(
            check="limits",
            level="fail",
            facts={"records": [{"key": record.key, "body": record.body} for record in unread]},
            message=f"{count(len(unread), 'limit')} can't be read and may not hold",
            hint="set them again or remove them: evenbeat limits set",
            details=some_lines(f"{record.key}: {record.body}" for record in unread),
        )
    if usage is None:
        return
    workers = [node.taker for node in alive if node.worker]
    useless = [
        limit.name
        for limit in usage.limits
        if workers and limit.task is not None and not any(node.has(limit.task) for node in workers)
    ]
    if useless:
        yield Finding(
            check="limits",
            level="warn",
            facts={"without_task": useless},
            message=f"{count(len(useless), 'limit is', 'limits are')} for tasks that no live node has",
            hint="check the names, or remove them: evenbeat limits remove",
            details=some_lines(useless),
        )
    slow = []
    for limit in usage.limits:
        since = usage.oldest_waiting(limit)
        if since is not None and since < now - LONG_WAIT:
            slow.append((since, limit.name, sum(each.waiting for each in usage.of(limit))))
    if slow:
        yield Finding(
            check="limits",
            level="warn",
            facts={"slow": [{"limit": name, "waiting": number} for _, name, number in sorted(slow)]},
            message=f"runs have waited for long for {count(len(slow), 'limit')}",
            hint="raise the limit, or enqueue less: evenbeat limits list",
            details=some_lines(
                f"{name}: {count(number, 'run')}, for up to {span(now - since, units=1)}"
                for since, name, number in sorted(slow)
            ),
        )


def _why_waiting(task: str, queue: str, alive: list[LiveNode]) -> str:
    nodes = [node.taker for node in alive if node.tasks is not None or not node.worker]
    if not nodes:
        return ""
    if any(node.has(task) and queue in node.queues for node in nodes):
        return "; nodes that have it are busy"
    return f"; {lack_reason(why_no_taker(task, nodes), task, queue)}"


def expired_finding(store: Store, now: Instant) -> Finding:
    runs = lost_runs(store, now)
    facts = {"runs": [run.id for run in runs]}
    if not runs:
        return Finding(check="leases", level="ok", message="every running run has a live worker", facts=facts)
    return Finding(
        check="leases",
        level="fail",
        facts=facts,
        message=f"{count(len(runs), 'run has', 'runs have')} no live worker, and no node took over",
        hint="start a node, or queue them again: evenbeat repair --yes",
        details=some_lines(
            f"{run.id} of {run.worker}, for {span(now - (run.lease_until or now), units=1)}" for run in runs
        ),
    )


def duplicates_finding(store: Store) -> Finding:
    every, checked = duplicates(store)
    found = [one for one in every if not one.is_repaired]
    facts = {
        "runs_checked": checked,
        "ticks": [
            {
                "tenant": one.tenant,
                "schedule": one.schedule,
                "generation": one.generation,
                "tick": write_instant(one.tick),
                "runs": [run.id for run in one.runs],
                "skipped": None if one.ledger is None else one.ledger.reason,
                "repaired": one.is_repaired,
            }
            for one in every
        ],
    }
    if not found:
        message = f"no tick twice in {count(checked, 'run')}"
        if every:
            message += f"; {count(len(every), 'duplicate was', 'duplicates were')} cancelled"
        details = some_lines(_duplicate_words(one) for one in every)
        return Finding(check="duplicates", level="ok", message=message, details=details, facts=facts)
    surplus = sum(len(one.surplus()) for one in found)
    hint = "report it, please: Evenbeat promises that this can't happen"
    if surplus:
        hint = f"{count(surplus, 'run is', 'runs are')} still queued: evenbeat repair --yes cancels them"
    return Finding(
        check="duplicates",
        level="fail",
        facts=facts,
        hint=hint,
        message=f"{count(len(found), 'tick was', 'ticks were')} settled more than once",
        details=some_lines(_duplicate_words(one) for one in found),
    )


def _duplicate_words(one: Duplicate) -> str:
    words = ", ".join(f"{run.id} {run.state}" for run in one.runs)
    return words if one.ledger is None else f"{words}; recorded as skipped: {one.ledger.reason}"
