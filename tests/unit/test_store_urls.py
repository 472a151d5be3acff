"""URLs of stores: which store they name, and what of them is shown."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from evenbeat import Scheduler
from evenbeat.cli.root import root
from evenbeat.documents import PostgresDocuments
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.stores.urls import open_url, without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///evenbeat.db", "sqlite:///evenbeat.db"),
        ("memory://", "memory://"),
        ("postgresql://me@db/app", "postgresql://me@db/app"),
        ("postgresql://me:s3cret@db/app?schema=jobs", "postgresql://me:***@db/app?schema=jobs"),
        ("postgresql://me:s3%40cret@a:1,b:2/app", "postgresql://me:***@a:1,b:2/app"),
        (
            "postgresql:///app?user=me&password=s3cret&sslmode=require",
            "postgresql:///app?user=me&password=***&sslmode=require",
        ),
        (
            "postgresql://db/app?listen=postgresql%3A%2F%2Fme%3As3cret%40db%2Fapp",
            "postgresql://db/app?listen=postgresql://me:***@db/app",
        ),
        ("rediss://h/0?ssl_password=KEY", "rediss://h/0?ssl_password=***"),
        ("postgresql://ann:s3c/ret@h/db", "postgresql://ann:***@h/db"),
        ("postgresql://ann:s3cr@et@h/db", "postgresql://ann:***@h/db"),
        ("redis://:s3c?ret@h/0", "redis://:***@h/0"),
        ("redis://:s3c#ret@h/0", "redis://:***@h/0"),
        ("postgresql://db/app?user=me@corp", "postgresql://db/app?user=me@corp"),
        ("redis://:s3cret@host:6379/0", "redis://:***@host:6379/0"),
        (
            "redis+sentinel://me:s3cret@a:1,b:2/jobs/0?sentinel_password=s3cret",
            "redis+sentinel://me:***@a:1,b:2/jobs/0?sentinel_password=***",
        ),
        ("valkeys+cluster://:s3cret@a:1,b:2", "valkeys+cluster://:***@a:1,b:2"),
        ("rediss://me:s3cret@host/0?prefix=jobs", "rediss://me:***@host/0?prefix=jobs"),
        ("mongodb://me:s3cret@a,b/evenbeat?replicaSet=rs0", "mongodb://me:***@a,b/evenbeat?replicaSet=rs0"),
        (
            "mongodb://a/evenbeat?tlsCertificateKeyFilePassword=s3cret",
            "mongodb://a/evenbeat?tlsCertificateKeyFilePassword=***",
        ),
        ("postgresql://me@db/app?passwrd=s3cret&schema=a", "postgresql://me@db/app?passwrd=***&schema=a"),
        ("postgresql://me@db/app?password=s3c&ret", "postgresql://me@db/app?password=***&***"),
        ("postgresql://db/app?listen=host%3Ddb%20password%3Ds3cret", "postgresql://db/app?listen=…"),
        ("postgresql://db/app?listen=off", "postgresql://db/app?listen=off"),
        ("postgresql://bob:s3cret/app", "postgresql://bob:***/app"),
        ("postgresql://[::1]:5432,[::2]/app", "postgresql://[::1]:5432,[::2]/app"),
        ("host=db user=bob password=s3cret dbname=app", "…"),
        ("password=s3cret", "…"),
        ("bob:s3cret@db/app", "***@db/app"),
        ("bob:s3c?ret@db/app", "***@db/app"),
        ("postgresql:bob:s3cret@db/app", "***@db/app"),
        ("bob:s3cret", "bob:***"),
        ("bob:s3cret@db/app?passwrd=s3cret", "***@db/app"),
        ("db/app?s3cret", "db/app?***"),
        ("evenbeat.db", "evenbeat.db"),
        ("sqlite:evenbeat.db", "sqlite:evenbeat.db"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown


@pytest.mark.parametrize("password", ["s3c/ret", "s3c@ret", "s3c?ret", "s3c#ret"])
@pytest.mark.parametrize("scheme", ["postgresql", "redis", "mongodb"])
def test_a_password_that_is_not_percent_encoded_is_refused_and_not_shown(scheme: str, password: str) -> None:
    with pytest.raises(InvalidValue, match="percent-encode") as caught:
        open_url(f"{scheme}://ann:{password}@host/0")
    for part in ("s3c", "ret@", "ret"):
        assert part not in str(caught.value).replace("percent", "")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://:s3cret@h/0?prefx=abc", "prefx"),
        ("redis://:s3cret@h/0?nonsense=1", "nonsense"),
        ("postgresql://me:s3cret@h/db?shema=jobs", "shema"),
    ],
)
def test_an_option_that_nobody_knows_is_named(url: str, says: str) -> None:
    with pytest.raises(InvalidValue, match=says) as caught:
        open_url(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("postgresql://localhost/app", "PostgresStore"),
        ("postgres://localhost/app", "PostgresStore"),
        ("redis://localhost", "RedisStore"),
        ("rediss://localhost", "RedisStore"),
        ("valkey://localhost", "RedisStore"),
        ("redis+sentinel://localhost,other/jobs", "RedisStore"),
        ("valkeys+cluster://localhost,other", "RedisStore"),
        ("mongodb://localhost/evenbeat", "MongoStore"),
        ("sqlite:///evenbeat.db", "SqliteStore"),
        ("memory://", "MemoryStore"),
    ],
)
def test_a_url_names_a_store(url: str, kind: str) -> None:
    # Nothing is connected to before it is opened: there is nobody at these addresses.
    assert type(open_url(url)).__name__ == kind


@pytest.mark.parametrize(
    ("url", "driver", "extra"),
    [
        ("postgresql://h/a", "psycopg", "postgres"),
        ("redis://h", "redis", "redis"),
        ("mongodb://h/a", "pymongo", "mongo"),
        ("mongodb+srv://h/a", "bson", "mongo"),
    ],
)
def test_a_driver_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, driver: str, extra: str
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == driver:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest, **named)

    servers = ("evenbeat.stores.postgres", "evenbeat.stores.redis", "evenbeat.stores.mongo")
    for name in [name for name in sys.modules if name.startswith(servers)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidValue, match=rf"evenbeat\[{extra}\]"):
        open_url(url)


def test_an_unknown_kind_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InvalidValue, match="postgresql://") as caught:
        open_url("mysql://me:s3cret@host/app")
    assert "s3cret" not in str(caught.value)


SECRETIVE = [
    "host=127.0.0.1 port=1 password=s3cret dbname=x",
    "postgresql://u:s3cret#x@127.0.0.1:1/db",
    "postgresql://u:s3cret?x@127.0.0.1:1/db",
    "postgresql://u@127.0.0.1:1/db?password=s3cret",
    "u:s3cret@host/db",
    "postgresql:u:s3cret@host/db",
    "postgresql://u@127.0.0.1:1/db?passwrd=s3cret",
    "postgresql://u:s3cret/db",
    "postgresql://[u:s3cret@host/db",
    "postgresql://127.0.0.1:s3cret/db",
]


@pytest.mark.parametrize("url", SECRETIVE)
def test_whatever_libpq_takes_for_a_password_is_not_shown(url: str) -> None:
    with pytest.raises((StoreUnavailable, InvalidValue)) as caught:
        PostgresDocuments(url, "t").open()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        *SECRETIVE,
        "redis://127.0.0.1:1/0?passwrd=s3cret",
        "redis://u:s3cret/0",
        "mongodb://u:s3cret/x",
        "mongodb://127.0.0.1:1/x?passwrd=s3cret&serverSelectionTimeoutMS=50",
        "u:s3cret@127.0.0.1:27017",
        "sqlite://u:s3cret@host",
        "oracle://u@host/?passwrd=s3cret",
    ],
)
def test_no_command_shows_a_password(url: str) -> None:
    shown = CliRunner().invoke(root, ["config", "show", "--store", url])
    checked = CliRunner().invoke(root, ["doctor", url])
    assert checked.exit_code != 0
    for output_of in (shown, checked):
        assert "s3cret" not in output_of.output
        assert "s3cret" not in output_of.stderr
        assert "s3cret" not in repr(output_of.exception)
    with pytest.raises((StoreUnavailable, InvalidValue)) as caught:
        Scheduler(url).start()
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(caught.value)


def test_options_in_the_url_of_a_file_are_refused() -> None:
    with pytest.raises(InvalidValue, match="the URL of a SQLite file has no options") as refusal:
        open_url("sqlite:///jobs.db?busy_timeout=1")
    assert "busy_timeout" in str(refusal.value)
    store = open_url("sqlite:///jobs%3F.db")
    assert isinstance(store, SqliteStore)
    assert store.path.endswith("/jobs?.db")
