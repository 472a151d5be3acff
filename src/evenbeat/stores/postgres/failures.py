"""Translation of driver errors into messages for users: what happened, where, and what to do."""

from __future__ import annotations

import psycopg

from evenbeat.errors import EvenbeatError, RowRefused, StoreUnavailable, TooLarge

_ADVICE = {
    "08006": "the connection was lost",
    "08P01": "a pooler must keep transactions together: pool_mode = transaction",
    "25006": "the server is a standby or read-only; name the one that takes writes",
    "25P03": "the transaction was left open for too long",
    "28000": "check the user and how the server lets it in (pg_hba.conf)",
    "28P01": "check the user and the password",
    "3D000": "there is no such database; create it first",
    "3F000": "there is no such schema (any more); open the store again, or run what `evenbeat db` shows",
    "40001": "another transaction was faster; try again",
    "40P01": "another transaction was faster; try again",
    "42501": "the role may not do that; grant it the schema and its tables, or have them made for it",
    "42P01": "the tables are not there (any more); open the store again",
    "53100": "the disk of the server is full; make room and try again",
    "53200": "the server is out of memory",
    "53300": "the server has no connection left; raise max_connections or put a PgBouncer in between",
    "55P03": "another transaction holds the rows; try again",
    "57014": "it took too long and was stopped; try again",
    "57P01": "the server is stopping, or an administrator ended the connection",
    "57P02": "the server crashed and comes back",
    "57P03": "the server is starting, or stopping",
}
_NO_ANSWER = "is the server running, and can it be reached from here?"
_IN_WORDS = {
    "password authentication failed": _ADVICE["28P01"],
    "no password supplied": "the server requires a password: write it in the URL, or in PGPASSWORD",
    "no pg_hba.conf entry": _ADVICE["28000"],
    "role ": "the server has no such user; create it, or name another one",
    "database ": _ADVICE["3D000"],
    "too many clients": _ADVICE["53300"],
    "remaining connection slots": _ADVICE["53300"],
    "certificate verify failed": "the server's certificate is not signed by the one that sslrootcert names",
    "root certificate file": "name the certificate that signed the server's: sslrootcert=/a/path.pem",
    "does not match host name": "write the host as it stands in the server's certificate",
    "does not support SSL": "the server has no TLS; leave sslmode out of the URL, or switch it on there",
    "invalid port number": "a port is 1 to 65535",
    "invalid integer value": "one of the options of the URL is not a number",
}


# Classes of codes: of a trigger's own errors (RAISE, other languages), and of views with a check.
_OF_VALUES = ("09", "21", "22", "23", "27", "2F", "38", "39", "44", "P0")
# Classes that say nothing about a row, wherever they come from: connections, transactions that may be
# repeated, locks, resources, shutdown, the system.
_OF_SERVER = ("", "08", "25", "28", "3D", "3F", "40", "53", "55", "57", "58", "XX")


class TimedOut(psycopg.OperationalError):
    """The server did not answer in time. It may still execute the statements."""


class Unreplicated(psycopg.OperationalError):
    """The primary has committed, but perhaps no standby has the commit: a failover may undo it."""


# From this many characters on, an error that may have the size as its cause counts as TooLarge.
_LARGE = 1_000_000
# A limit of the server, no memory, too slow; of internal errors, only the text says that it is the size.
_SIZES = ("54000", "53200", "57014")
_SIZE_IN_WORDS = ("invalid memory alloc request size", "out of memory", "Cannot enlarge")


def translated(shown: str, error: Exception, size: int = 0) -> EvenbeatError:
    """Return the error to raise for an error of the driver. ``size``: how many characters were sent."""
    if isinstance(error, (UnicodeEncodeError, OverflowError)):
        return RowRefused(str(error), "PostgreSQL cannot store a value")
    assert isinstance(error, psycopg.Error)
    if size > _LARGE and _is_of_size(error):
        return TooLarge(f"{shown}: {first_line(error)}; {size:,} characters were sent at once")
    if isinstance(error, psycopg.DataError) or error.sqlstate == "54000":
        return RowRefused(first_line(error), "PostgreSQL cannot store a value")
    if _is_about_values(error):
        return RowRefused(first_line(error))
    if isinstance(error, TimedOut | Unreplicated):
        return StoreUnavailable(f"{shown}: {error}; what was sent may still take effect")
    advice = _connecting(str(error)) if error.sqlstate is None else _ADVICE.get(error.sqlstate)
    return StoreUnavailable(f"{shown}: {first_line(error)}" + (f" ({advice})" if advice else ""))


def _is_about_values(error: psycopg.Error) -> bool:
    """Return whether the server refuses the values of a row: by a constraint, or by a trigger."""
    code = error.sqlstate or ""
    if code[:2] in _OF_VALUES or isinstance(error, psycopg.IntegrityError):
        return True
    # The code of a policy of row-level security is the one of a missing privilege.
    if code == "42501":
        return error.diag.source_function == "ExecWithCheckOptions"
    # A trigger may raise any code, and may itself be broken. No statement of ours calls a function that has a
    # context.
    return code[:2] not in _OF_SERVER and "function" in (error.diag.context or "")


def _is_of_size(error: psycopg.Error) -> bool:
    return error.sqlstate in _SIZES or any(words in str(error) for words in _SIZE_IN_WORDS)


def _connecting(text: str) -> str:
    """Return advice for an error of connecting: libpq has no codes for these, only the server's text."""
    for words, advice in _IN_WORDS.items():
        if words in text:
            return advice
    return _NO_ANSWER


def first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
