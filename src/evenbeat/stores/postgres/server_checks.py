"""Checks of the server's version, settings and clock, on which the guarantees depend."""

from __future__ import annotations

import time
from typing import Literal

from evenbeat.errors import StoreUnavailable
from evenbeat.stores.base import Setting
from evenbeat.stores.postgres.connections import LARGEST
from evenbeat.stores.postgres.session import Session

OLDEST = 14
"""The oldest version that is tested. Older ones are out of support, or will be soon."""

_SELECT_SETTINGS = """
SELECT
    current_setting('server_version_num'), current_setting('server_version'),
    pg_is_in_recovery(), current_setting('default_transaction_read_only'),
    current_setting('server_encoding'), current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), current_setting('max_connections'),
    CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)
"""

Level = Literal["ok", "warn", "fail"]
_CRASH = "a crash of the server's machine may damage the database or lose commits"


def settings(session: Session) -> list[Setting]:
    """Return the settings, each with the possible consequence and the setting that avoids it."""
    asked = time.time()
    (found,) = session.rows("select settings", _SELECT_SETTINGS)
    number, version, standby, read_only, encoding, fsync, pages, commit, connections, clock = found
    answered = time.time()
    # The server read its clock between the two moments.
    ahead = clock - (asked + answered) * 500
    apart = max(0.0, abs(ahead) - (answered - asked) * 500)
    return [
        _setting(
            "server_version",
            version,
            "ok" if int(number) >= OLDEST * 10_000 else "warn",
            f"Evenbeat is tested with PostgreSQL {OLDEST} and newer: upgrade",
        ),
        _setting(
            "in_recovery",
            "on" if standby else "off",
            "fail" if standby else "ok",
            "a standby accepts no writes: name the primary",
        ),
        _setting(
            "default_transaction_read_only",
            read_only,
            "fail" if read_only == "on" else "ok",
            "the database accepts no writes: off",
        ),
        _setting(
            "server_encoding",
            encoding,
            "ok" if encoding == "UTF8" else "fail",
            "not every text can be stored: create the database with ENCODING 'UTF8'",
        ),
        _setting("fsync", fsync, "ok" if fsync == "on" else "warn", f"{_CRASH}: on"),
        _setting("full_page_writes", pages, "ok" if pages == "on" else "warn", f"{_CRASH}: on"),
        # Never a problem: each transaction of the store switches it on.
        _setting("synchronous_commit", commit if commit == "remote_apply" else "on"),
        _setting(
            "max_connections",
            connections,
            "ok" if int(connections) > 2 * LARGEST else "warn",
            f"a process may take {LARGEST + 1}: raise it, or put a PgBouncer in between",
        ),
        _setting(
            "clock",
            f"{ahead / 1000:+.1f} s from this machine's",
            "ok" if apart <= 2000 else "warn",
            "the server's clock counts, and logs of this machine will not agree with it: "
            "synchronise both (NTP)",
        ),
        _transactions(session),
    ]


def _transactions(session: Session) -> Setting:
    """Check that all statements of a transaction reach one session. The last check: a pooler that refuses
    ends the connection."""
    try:
        session.rows("try transaction", "BEGIN")
        sessions = {session.rows("try transaction", "SELECT pg_backend_pid()")[0] for _ in range(2)}
    except StoreUnavailable as error:
        # PgBouncer's: transaction blocks not allowed in statement pooling mode.
        if getattr(error.__cause__, "sqlstate", None) != "08P01":
            raise
        sessions = set()
    finally:
        session.roll_back()
    is_one = len(sessions) == 1
    return _setting(
        "transactions",
        "possible" if is_one else "not possible",
        "ok" if is_one else "fail",
        "the pooler gives each statement another session: set pool_mode = transaction (or session), "
        "or name the server itself",
    )


def _setting(name: str, value: str, level: Level = "ok", hint: str | None = None) -> Setting:
    return Setting(name=name, value=value, level=level, hint=None if level == "ok" else hint)
