"""Checks of the server's version, settings and clock, on which the guarantees depend."""

from __future__ import annotations

import time
from typing import Any

from evenbeat.core.instants import Instant
from evenbeat.errors import StoreUnavailable
from evenbeat.stores.base import Setting
from evenbeat.stores.mongo.location import Document, local_time
from evenbeat.stores.mongo.session import Session
from evenbeat.stores.server_clock import ServerClock

_OLDEST = (6, 0)
_CLOCK_OFFSET = 2_000
_NOT_READABLE = "not readable"


def server_time(session: Session) -> Instant:
    return local_time(session.run("ask the time", {"hello": 1}, "admin"))


def settings(session: Session, clock: ServerClock) -> list[Setting]:
    """Return the settings that this user may read."""
    sent = clock.mark()
    hello = session.run("check server", {"hello": 1}, "admin")
    clock.update(local_time(hello), sent)
    deployment = _deployment(hello)
    found = [deployment]
    if deployment.level == "fail":
        return found
    found.append(_version(session.run("check server", {"buildInfo": 1}, "admin")))
    found += _replica_set(_ask(session, {"replSetGetConfig": 1}))
    engine = _ask(session, {"serverStatus": 1, "repl": 0, "metrics": 0, "locks": 0})
    found += _engine(None if engine is None else engine.get("storageEngine"))
    found.append(_clock(clock))
    return found


def _ask(session: Session, command: Document) -> Document | None:
    """Run a command; return None if the server refuses it: Evenbeat does not require the roles of an
    administrator."""
    try:
        return session.run("check server", command, "admin")
    except StoreUnavailable as error:
        if getattr(error.__cause__, "code", None) is None:
            raise
        return None


def _deployment(hello: Document) -> Setting:
    if hello.get("msg") == "isdbgrid":
        return Setting(
            name="replSet",
            value="mongos",
            level="fail",
            hint="sharded clusters are not supported: connect to a replica set, such as that of one shard",
        )
    if "setName" not in hello:
        return Setting(
            name="replSet",
            value="not set",
            level="fail",
            hint="a standalone server has no transactions; start mongod with --replSet rs0 and run "
            "rs.initiate() once: a replica set of one node is enough",
        )
    return Setting(name="replSet", value=str(hello["setName"]))


def _version(build: Document) -> Setting:
    parts = tuple(build.get("versionArray", (0, 0)))[:2]
    is_known = parts >= _OLDEST
    return Setting(
        name="version",
        value=str(build.get("version")),
        level="ok" if is_known else "fail",
        hint=None if is_known else "Evenbeat needs MongoDB 6.0 or later",
    )


def _replica_set(answer: Document | None) -> list[Setting]:
    if answer is None:
        return [Setting(name="writeConcernMajorityJournalDefault", value=_NOT_READABLE)]
    config: dict[str, Any] = answer["config"]
    journals = config.get("writeConcernMajorityJournalDefault", True) is not False
    members = config.get("members", [])
    bearing = [member for member in members if not member.get("arbiterOnly")]
    arbiters = len(members) - len(bearing)
    found = [
        Setting(
            name="writeConcernMajorityJournalDefault",
            value=str(journals).lower(),
            level="ok" if journals else "warn",
            hint=None if journals else "a power cut may lose acknowledged writes: set it to true",
        )
    ]
    hint = None
    if len(bearing) == 1:
        hint = "one node: no other node takes over when it is down"
    elif arbiters and len(bearing) <= len(members) // 2 + 1:
        hint = "with an arbiter, writes stop when a data-bearing member is down: add another one"
    found.append(
        Setting(
            name="members",
            value=str(len(bearing)) + (f" and {arbiters} arbiter" if arbiters else ""),
            level="warn" if arbiters and hint and len(bearing) > 1 else "ok",
            hint=hint,
        )
    )
    return found


def _engine(engine: Document | None) -> list[Setting]:
    if engine is None:
        return [Setting(name="storageEngine", value=_NOT_READABLE)]
    lasts = engine.get("persistent") is not False
    return [
        Setting(
            name="storageEngine",
            value=str(engine.get("name")),
            level="ok" if lasts else "warn",
            hint=None if lasts else "this engine loses all data when the server stops: use wiredTiger",
        )
    ]


def _clock(clock: ServerClock) -> Setting:
    ahead = clock.now() - time.time_ns() // 1_000_000
    is_close = abs(ahead) <= _CLOCK_OFFSET
    return Setting(
        name="localTime",
        value=f"{ahead / 1000:+.3f} s",
        level="ok" if is_close else "warn",
        hint=None
        if is_close
        else "the clocks of the server and of this machine differ, and ticks fire by the server's "
        "clock. Let NTP set both",
    )
