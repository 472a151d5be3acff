"""Reads the location of the tables from the store's URL. Evenbeat's own options never reach the driver."""

from __future__ import annotations

import math
import re
from difflib import get_close_matches
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from evenbeat.errors import InvalidValue, shown
from evenbeat.stores.urls import without_password

SCHEMA = "evenbeat"
"""The default schema."""

# Names of schemas. Statements quote the name, so it may be a reserved word. With the suffix of the channel it
# has at most the 63 bytes that PostgreSQL allows for a name.
_NAME = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,47}")

_FORM = "write postgresql://user:password@host:5432/database"

# The options that users misspell most, for "did you mean".
_OPTIONS = ("schema", "listen", "password", "user", "sslmode", "sslrootcert", "target_session_attrs")

# Ports, one for each host, separated by commas.
_PORTS = re.compile(r"[\d,]*")

# The system closes a dead connection after 5 + 2 * 2 s, or when the server does not acknowledge sent data.
_KEEPALIVE = {"keepalives": "1", "keepalives_idle": "5", "keepalives_interval": "2", "keepalives_count": "2"}


class Location(NamedTuple):
    """A schema of a database, and how to connect to it."""

    conninfo: str
    listen: str | None
    """How to connect for LISTEN; None if hints are off."""
    schema: str
    shown: str
    """For messages: no password, no options."""

    @property
    def channel(self) -> str:
        """The channel of hints."""
        return f"{self.schema}_wake"

    def own(self, text: str) -> str:
        """Return a statement with this schema and channel instead of the default ones."""
        own = text.replace("evenbeat.", f'"{self.schema}".').replace('"evenbeat"', f'"{self.schema}"')
        return own.replace("evenbeat_wake", self.channel)


def read_location(url: str, schema: str | None, listen: str | None, timeout: float) -> Location:
    """Read a URL. ``schema`` and ``listen`` override the options of the URL."""
    try:
        bare, options = _own_options(url)
    except ValueError:
        raise _not_understood("store", without_password(url)) from None
    schema = schema or options.get("schema", SCHEMA)
    if not _NAME.fullmatch(schema):
        raise InvalidValue(
            f"schema {shown(schema)} is not 1 to 48 lowercase letters, digits or _",
            field="schema",
            value=schema,
            hint="begin with a letter or _, and not with pg_",
        )
    listen = listen or options.get("listen")
    main = _conninfo(bare, timeout, "store")
    if listen == "off":
        listen_conninfo = None
    else:
        listen_url = None if listen is None else _own_options(listen)[0]
        listen_conninfo = main if listen_url is None else _conninfo(listen_url, timeout, "listen")
    return Location(main, listen_conninfo, schema, without_secrets(main))


def without_secrets(conninfo: str) -> str:
    """Return the location for logs and messages. Only libpq knows which part is the password, so it parses
    the text."""
    found = conninfo_to_dict(conninfo)
    user, host, port, name = (str(found.get(key) or "") for key in ("user", "host", "port", "dbname"))
    if not _PORTS.fullmatch(port):
        port = "***"  # libpq takes a password for the port if the @ and the host are missing
    who = f"{user}{':***' if found.get('password') else ''}@" if user else ""
    return f"postgresql://{who}{host}{f':{port}' if port else ''}{f'/{name}' if name else ''}"


def _own_options(url: str) -> tuple[str, dict[str, str]]:
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: value for name, value in pairs if name in ("schema", "listen")}
    rest = [(name, value) for name, value in pairs if name not in ours]
    # libpq does not read a + as a space.
    query = urlencode(rest).replace("+", "%20") if ours else parts.query
    return parts._replace(query=query).geturl(), ours


def _conninfo(url: str, timeout: float, field: str) -> str:
    try:
        found = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    except psycopg.Error as error:
        visible = without_password(url)
        # libpq's message quotes the whole URL with its password, except the message about an unknown option.
        unknown = re.search(r'invalid URI query parameter: "(\w+)"', str(error))
        if unknown is None:
            raise _not_understood(field, visible) from None
        near = get_close_matches(unknown[1], _OPTIONS, n=1, cutoff=0.6)
        raise InvalidValue(
            f"{field} {shown(visible)}: there is no option {unknown[1]}",
            field=field,
            value=visible,
            hint=f"did you mean {near[0]}?" if near else _FORM,
        ) from None
    if not _PORTS.fullmatch(found.get("port", "")):
        # libpq's message would quote the port. It may be the password, if the @ and the host are missing.
        visible = without_password(url)
        raise InvalidValue(
            f"{field} {shown(visible)} has a port that is not a number",
            field=field,
            value=visible,
            hint=_FORM,
        )
    seconds = max(2, math.ceil(timeout))
    defaults = {
        **_KEEPALIVE,
        "connect_timeout": str(seconds),
        "tcp_user_timeout": str(2000 * seconds),
        "application_name": "evenbeat",
    }
    if "," in found.get("host", "") + found.get("hostaddr", ""):
        # Of several hosts, use the one that accepts writes.
        defaults["target_session_attrs"] = "read-write"
    return make_conninfo(**{**defaults, **found, "client_encoding": "UTF8"})


def _not_understood(field: str, visible: str) -> InvalidValue:
    return InvalidValue(
        f"{field} {shown(visible)} is not a URL that PostgreSQL understands",
        field=field,
        value=visible,
        hint=_FORM,
    )
