"""Every index of the Redis store, computed from the hashes, to compare with those that the scripts keep."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import redis

from evenbeat.core.records import ACTIVE_STATES, FINAL_STATES, RunRecord
from evenbeat.stores.redis.encoding import member_of, path_of
from evenbeat.stores.redis.location import read_location
from evenbeat.stores.redis.rows import read_run, read_schedule

# Temporary keys, and keys that are not derived from hashes: nothing to compare with.
_NO_INDEX = (
    "meta",
    "firing",
    "logs:",
    "records:",
    "schedule_lock:",
    "skipped",
    "kinds:",
    "expiring",
    "limits",
)


def differences(url: str) -> dict[str, tuple[object, object]]:
    """Return (content, expected content) of each index for which they differ."""
    location = read_location(url)
    with redis.Redis.from_url(location.url, decode_responses=True, protocol=2) as client:
        keys = [key.removeprefix(location.base) for key in client.scan_iter(f"{location.base}*", count=1000)]
        wanted = _wanted(client, location.base, keys)
        found = {
            key: _content(client, location.base + key)
            for key in keys
            if not key.startswith(("runs:", "schedules:", *_NO_INDEX))
        }
    found["counts"] = {name: number for name, number in found.get("counts", {}).items() if number != "0"}
    both = {key: (found.get(key) or {}, wanted.get(key) or {}) for key in found.keys() | wanted.keys()}
    return {key: (held, due) for key, (held, due) in both.items() if held != due}


def _wanted(client: Any, base: str, keys: list[str]) -> dict[str, dict[str, Any]]:
    indexes: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for key in keys:
        if key.startswith("runs:"):
            _run(indexes, read_run(client.hgetall(base + key)))
        elif key.startswith("schedules:") and "revision" in (fields := client.hgetall(base + key)):
            schedule = read_schedule(fields)
            indexes["schedules"][member_of(*schedule.key)] = 0
            indexes["changed"][member_of(*schedule.key)] = schedule.updated_at
            if schedule.wake_at is not None:
                indexes["due"][member_of(*schedule.key)] = schedule.wake_at
    indexes["counts"] = {name: str(number) for name, number in indexes["counts"].items()}
    return indexes


def _run(indexes: defaultdict[str, dict[str, Any]], run: RunRecord) -> None:
    indexes["newest"][run.id] = -run.created_at
    indexes[f"newest:tenant:{run.tenant}"][run.id] = -run.created_at
    state = f"{run.tenant} {run.state}"
    indexes["counts"][state] = indexes["counts"].get(state, 0) + 1
    if run.schedule is not None:
        path = path_of(run.tenant, run.schedule)
        indexes[f"newest:schedule:{path}"][run.id] = -run.created_at
        if run.state in ACTIVE_STATES:
            indexes[f"active:{path}"][run.id] = run.created_at
    if run.state == "queued":
        if run.cohort is None:
            member = f"{run.priority}:{run.tenant}:{run.task}"
            index, first, queues = f"ready:{run.queue}:{member}", f"waiting:{run.queue}", "queues"
        else:
            member, index, first, queues = (
                run.cohort,
                f"cohort:{run.cohort}",
                f"cohorts:{run.queue}",
                "limited",
            )
        indexes[index][run.id] = run.run_at
        indexes[first][member] = min(run.run_at, indexes[first].get(member, run.run_at))
        indexes[queues][f":{run.queue}"] = True
    elif run.state == "running":
        if run.cohort is not None:
            indexes["slots"][run.id] = run.cohort
        indexes["leases"][run.id] = run.lease_until or 0
        if run.worker is not None:
            indexes[f"held:{run.worker}"][run.id] = run.claim or ""
    elif run.state in FINAL_STATES:
        indexes["over"][run.id] = run.finished_at or 0
        indexes[f"over:{run.tenant}:{run.state}"][run.id] = run.finished_at or 0


def _content(client: Any, key: str) -> dict[str, Any]:
    kind = client.type(key)
    if kind == "hash":
        return dict(client.hgetall(key))
    if kind == "set":
        return dict.fromkeys(client.smembers(key), True)
    return {member: int(score) for member, score in client.zrange(key, 0, -1, withscores=True)}
