"""Processes of an older version, once a newer one has upgraded the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from pymongo import MongoClient

from evenbeat.core.records import RunRecord
from evenbeat.errors import SchemaTooNew
from evenbeat.stores.mongo.location import read_location as read_mongo
from evenbeat.stores.postgres import PostgresStore
from evenbeat.stores.redis.location import read_location as read_redis
from evenbeat.stores.urls import open_url
from tests.conftest import server_url
from tests.isolation import own_place


def upgrade_sqlite(url: str) -> None:
    with closing(sqlite3.connect(urlsplit(url).path[1:])) as connection, connection:
        connection.execute("UPDATE evenbeat_meta SET value = '99' WHERE key = 'schema'")


def upgrade_postgres(url: str) -> None:
    place = PostgresStore(url).location
    with psycopg.connect(place.conninfo, autocommit=True) as connection:
        connection.execute(place.own("UPDATE evenbeat.meta SET value = '99'").encode())


def upgrade_valkey(url: str) -> None:
    place = read_redis(url)
    with redis.Redis.from_url(place.url) as client:
        client.hset(place.meta, "schema", "99")


def upgrade_mongo(url: str) -> None:
    client: MongoClient[dict[str, object]] = MongoClient(url)
    with client:
        client[read_mongo(url).database].meta.update_one({"_id": "schema"}, {"$set": {"version": 99}})


UPGRADES: dict[str, Callable[[str], None]] = {
    "sqlite": upgrade_sqlite,
    "postgres": upgrade_postgres,
    "valkey": upgrade_valkey,
    "mongo": upgrade_mongo,
}


@pytest.mark.parametrize("kind", UPGRADES)
def test_an_older_process_goes_on_but_does_not_start(kind: str, tmp_path: Path) -> None:
    file = nullcontext(f"sqlite:///{tmp_path}/evenbeat.db")
    with file if kind == "sqlite" else own_place(server_url(kind)) as url:
        running = open_url(url)
        running.open()
        UPGRADES[kind](url)
        starting = open_url(url)
        with pytest.raises(SchemaTooNew):
            starting.open()
        starting.close()
        # docs/howto/deploying.md says so: stop it before the upgrade.
        assert running.add_runs([RunRecord(id="r", task="work")]) == [True]
        running.close()
