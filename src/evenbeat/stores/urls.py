"""Creation of a store from a URL. A driver is imported when a URL needs it."""

from __future__ import annotations

import os
import re
import select
from importlib import import_module
from urllib.parse import unquote, urlsplit

from evenbeat.errors import InvalidValue, shown
from evenbeat.stores.base import Store


def open_url(url: str) -> Store:
    """Create the store that a URL names. It is not opened yet.

    ``sqlite:///evenbeat.db`` is a file in the working directory, ``sqlite:////var/lib/evenbeat.db`` one by
    its absolute path; ``memory://`` ends with the process. ``postgresql://``, ``redis://``,
    ``redis+sentinel://``, ``redis+cluster://``, ``valkey://`` (likewise) and ``mongodb://`` are servers;
    docs/stores describes their URLs.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme in _SERVERS:
        return _server(url, *_SERVERS[parts.scheme])
    if parts.scheme == "sqlite":
        from evenbeat.stores.sqlite import SqliteStore

        path = unquote(parts.path)[1:]
        if parts.netloc or not path:
            raise InvalidValue(
                f"store {shown(without_password(url))} names no file",
                field="store",
                value=without_password(url),
                hint="write sqlite:///evenbeat.db, with three slashes, or sqlite:////an/absolute/path.db",
            )
        if parts.query:
            raise InvalidValue(
                f"store {shown(without_password(url))}: the URL of a SQLite file has no options",
                field="store",
                value=without_password(url),
                hint="give options in code: Scheduler(SqliteStore(path, busy_timeout=1)); a question mark in "
                "the name of the file is %3F",
            )
        return SqliteStore(os.path.expanduser(path))
    if parts.scheme == "memory":
        from evenbeat.stores.memory import MemoryStore

        return MemoryStore()
    raise InvalidValue(
        f"store {shown(without_password(url))} is not a URL of a known kind",
        field="store",
        value=without_password(url),
        hint="write sqlite:///…, postgresql://user:password@host/database, redis://…, valkey://…, "
        "mongodb://… or memory://",
    )


_POSTGRES = ("evenbeat.stores.postgres", "PostgresStore", ("psycopg",), "postgres")
_REDIS = ("evenbeat.stores.redis", "RedisStore", ("redis",), "redis")
_MONGO = ("evenbeat.stores.mongo", "MongoStore", ("pymongo", "bson"), "mongo")
_SERVERS = {
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    **{
        f"{name}{way}": _REDIS
        for name in ("redis", "rediss", "valkey", "valkeys")
        for way in ("", "+sentinel", "+cluster")
    },
    "mongodb": _MONGO,
    "mongodb+srv": _MONGO,
}


def _server(url: str, module: str, name: str, driver: tuple[str, ...], extra: str) -> Store:
    _check_escaped(url)
    _check_ports(url)
    if extra == "postgres" and not hasattr(select, "poll"):
        raise InvalidValue(
            f"store {shown(without_password(url))} can't be used on this system, which has no select.poll",
            field="store",
            value=without_password(url),
            hint="on Windows use another store, or the Windows Subsystem for Linux",
        )
    try:
        kind = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in driver:
            raise
        raise InvalidValue(
            f"store {shown(without_password(url))} needs {driver[0]}, which is not installed",
            field="store",
            value=without_password(url),
            hint=f"pip install 'evenbeat[{extra}]'",
        ) from None
    store: Store = kind(url)
    return store


def _check_escaped(url: str) -> None:
    """Refuse a password with an unescaped / or @, which divides the URL in the wrong place."""
    user = _user(url.partition("://")[2])
    if user is not None and any(character in user for character in "/?#@"):
        raise InvalidValue(
            f"store {shown(without_password(url))} has a user or a password with one of / ? # @ in it",
            field="store",
            value=without_password(url),
            hint="percent-encode them: / is %2F, ? is %3F, # is %23, @ is %40",
        )


def _check_ports(url: str) -> None:
    """Refuse a port that is not a number: a driver would quote it, and it may be a password."""
    hosts = re.split("[/?#]", url.partition("://")[2], maxsplit=1)[0].rpartition("@")[2]
    if _with_ports(hosts) != hosts:
        visible = without_password(url)
        raise InvalidValue(
            f"store {shown(visible)} has a port that is not a number",
            field="store",
            value=visible,
            hint="write user:password@host:port, or leave the port out",
        )


_HARMLESS = frozenset(
    (
        "schema",
        "listen",
        "prefix",
        "user",
        "host",
        "hostaddr",
        "port",
        "dbname",
        "db",
        "application_name",
        "connect_timeout",
        "target_session_attrs",
        "load_balance_hosts",
        "sslmode",
        "sslrootcert",
        "sslcert",
        "sslkey",
        "gssencmode",
        "replicaset",
        "authsource",
        "authmechanism",
        "directconnection",
        "tls",
        "tlscafile",
        "tlscertificatekeyfile",
        "readpreference",
        "retrywrites",
        "w",
        "appname",
        "protocol",
        "ssl_cert_reqs",
        "ssl_ca_certs",
        "ssl_certfile",
        "ssl_keyfile",
        "ssl_check_hostname",
    )
)
"""Options whose values are shown. The value of any other option may be a password under a misspelt name."""

_HIDDEN = "***"


def without_password(url: str) -> str:
    """Return the URL for logs and messages, as the user wrote it: a URL that is put together again may
    differ.

    A text that is not a URL may contain a password anywhere: little of it is shown.
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        return _without_scheme(url)
    if (user := _user(rest)) is not None:
        name, colon, _ = user.partition(":")
        before, rest = f"{name}{':' + _HIDDEN if colon else ''}@", rest[len(user) + 1 :]
    else:
        before = ""
    place, question, query = rest.partition("?")
    hosts, slash, path = place.partition("/")
    options = "&".join(map(_without_secret, query.split("&")))
    return f"{scheme}{mark}{before}{_with_ports(hosts)}{slash}{path}{question}{options}"


def _without_scheme(text: str) -> str:
    """Hide passwords in a text without a scheme: libpq's ``host=db password=…``, a path, or just a word."""
    place, question, query = text.partition("?")
    if "=" in place or " " in place.strip():
        return "…"
    if (user := _user(text)) is not None:
        return f"{_HIDDEN}{text[len(user) :].partition('?')[0]}"
    name, colon, _ = place.partition(":")
    shown = f"{name}:{_HIDDEN}" if colon and name not in ("sqlite", "memory") else place
    return f"{shown}{question}{_HIDDEN if query else ''}"


def _with_ports(hosts: str) -> str:
    """Return the hosts with their ports. A port that is not a number may be a password without @ and host."""
    shown = []
    for host in hosts.split(","):
        name, colon, port = host.rpartition(":")
        is_port = not colon or port.isdecimal() or not port or host.endswith("]")
        shown.append(host if is_port else f"{name.partition(':')[0]}:{_HIDDEN}")
    return ",".join(shown)


def _user(rest: str) -> str | None:
    """Return the part before the host. A password without percent-encoding may contain any character, so the
    part ends at the last @ that is not in an option."""
    place, _, query = rest.partition("?")
    if "@" in place:
        return place.rpartition("@")[0]
    # A ? in the password: what looks like an option has no = before its @.
    if ":" in place and "@" in query and "=" not in query.partition("@")[0]:
        return rest.rpartition("@")[0]
    return None


def _without_secret(option: str) -> str:
    name, equals, value = option.partition("=")
    if not value:
        # An option without a value may be the rest of a password with a & in it.
        return option if not option or name.lower() in _HARMLESS else f"{_HIDDEN}{equals}"
    # An option may be a URL itself: that of the connection to listen on.
    inner = unquote(value)
    if name.lower() == "listen":
        return f"{name}={without_password(inner)}"
    if name.lower() not in _HARMLESS or "://" in inner:
        return f"{name}={_HIDDEN}"
    return option
