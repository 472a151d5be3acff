"""Checks of the server's version, settings and clock, on which the guarantees depend."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from evenbeat.errors import StoreUnavailable
from evenbeat.stores.base import Setting
from evenbeat.stores.redis.session import Session

_OLDEST = {"redis": (6, 2), "valkey": (7, 2)}
# The fraction of maxmemory at which a check warns.
_WARN_AT = 0.9
# How many milliseconds the server's clock may differ from this machine's clock without a warning.
_CLOCK_TOLERANCE = 2_000
_UNREADABLE = "Evenbeat cannot read it: the server does not allow CONFIG"


def settings(session: Session) -> list[Setting]:
    info: dict[str, Any] = session.ask("INFO")
    config = _config(session)
    found = [_version(info), _role(info), _policy(info, config), *_append_only(info, config)]
    checks: list[Callable[[], Setting | None]] = [
        lambda: _memory(info),
        lambda: _replicas(info),
        lambda: _cluster(info, session.location.kind == "cluster"),
        lambda: _clock(session),
    ]
    return [*found, *(setting for check in checks if (setting := check()) is not None)]


def _config(session: Session) -> dict[str, str]:
    """Read settings with CONFIG; return none if the server forbids it, as many hosted servers do."""
    found: dict[str, str] = {}
    for name in ("maxmemory-policy", "appendonly", "appendfsync"):
        with contextlib.suppress(StoreUnavailable):
            found |= session.ask("CONFIG GET", name)
    return found


def _version(info: dict[str, Any]) -> Setting:
    kind = "valkey" if "valkey_version" in info else "redis"
    text = str(info.get(f"{kind}_version", ""))
    parts = text.split(".")
    numbers = tuple(int(part) for part in parts[:2] if part.isdecimal())
    oldest = _OLDEST[kind]
    is_known = len(numbers) == 2
    name = f"{kind}_version"
    if is_known and numbers < oldest:
        hint = f"the scripts need {kind.capitalize()} {oldest[0]}.{oldest[1]} or later"
        return Setting(name=name, value=text, level="fail", hint=hint)
    return Setting(name=name, value=text or "unknown")


def _role(info: dict[str, Any]) -> Setting:
    role = str(info.get("role", "unknown"))
    if role in ("master", "unknown"):
        return Setting(name="role", value=role)
    hint = "a replica accepts no writes, and its data may be outdated: name the primary"
    return Setting(name="role", value=role, level="fail", hint=hint)


def _policy(info: dict[str, Any], config: dict[str, str]) -> Setting:
    name = "maxmemory-policy"
    value = config.get(name) or str(info.get("maxmemory_policy", ""))
    if not value:
        return Setting(name=name, value="unknown", level="warn", hint=f"{_UNREADABLE}; it must be noeviction")
    if value == "noeviction":
        return Setting(name=name, value=value)
    hint = "a server that runs out of memory deletes schedules and runs: set it to noeviction"
    return Setting(name=name, value=value, level="fail", hint=hint)


def _append_only(info: dict[str, Any], config: dict[str, str]) -> list[Setting]:
    enabled = config.get("appendonly") or {"0": "no", "1": "yes"}.get(str(info.get("aof_enabled")), "")
    if enabled == "no":
        hint = "a crash of the server loses all writes since its last snapshot: set it to yes"
        return [Setting(name="appendonly", value=enabled, level="warn", hint=hint)]
    found = Setting(name="appendonly", value=enabled or "unknown")
    if not enabled:
        found = Setting(name="appendonly", value="unknown", level="warn", hint=_UNREADABLE)
    sync = config.get("appendfsync")
    if sync == "always":
        return [found, Setting(name="appendfsync", value=sync)]
    hints = {
        "everysec": "a crash of the machine loses 1 to 2 s of acknowledged writes: set it to always",
        "no": "a crash of the machine loses writes that are not on disk yet, often 30 s: set it to always",
    }
    hint = hints.get(sync or "", f"{_UNREADABLE}; with everysec a crash loses 1 to 2 s, with always nothing")
    return [found, Setting(name="appendfsync", value=sync or "unknown", level="warn", hint=hint)]


def _memory(info: dict[str, Any]) -> Setting | None:
    most, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    if most == 0:
        return None
    value = f"{used / most:.0%} of {most // (1 << 20)} MB"
    if used < _WARN_AT * most:
        return Setting(name="maxmemory", value=value)
    hint = "a server at this limit refuses writes: give it more memory, or keep less history"
    return Setting(name="maxmemory", value=value, level="warn", hint=hint)


def _replicas(info: dict[str, Any]) -> Setting | None:
    number = int(info.get("connected_slaves", 0))
    if number == 0:
        return None
    # Not a warning: a replica is better than none. The hint names the risk that remains.
    hint = "a failover loses writes that have not reached the new primary: some ticks may then fire again"
    return Setting(name="connected_slaves", value=str(number), hint=hint)


def _cluster(info: dict[str, Any], is_followed: bool) -> Setting | None:
    if not int(info.get("cluster_enabled", 0)):
        return None
    if is_followed:
        return Setting(name="cluster_enabled", value="1", hint="all keys are in one slot, on one node")
    hint = "Evenbeat does not follow a move or failover of the slot with its keys: write redis+cluster://"
    return Setting(name="cluster_enabled", value="1", level="warn", hint=hint)


def _clock(session: Session) -> Setting:
    before = time.time_ns() // 1_000_000
    seconds, micros = session.ask("TIME")
    after = time.time_ns() // 1_000_000
    server = int(seconds) * 1000 + int(micros) // 1000
    apart = max(before - server, server - after, 0)
    value = f"{apart} ms from this machine's"
    if apart <= _CLOCK_TOLERANCE:
        return Setting(name="time", value=value)
    hint = "schedules follow the server's clock: let NTP set both"
    return Setting(name="time", value=value, level="warn", hint=hint)
