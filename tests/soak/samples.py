"""What a store and a process use now: sizes, connections, memory, descriptors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from evenbeat.stores.base import Store
from tests.faults.scene import Ground

MEASURES = (
    "node memory, MB",
    "node descriptors",
    "connections",
    "data, MB",
    "indexes, MB",
    "log, MB",
    "runs",
)
"""The columns of a sample. Data, indexes and log (the write-ahead log) are those of the store; a store that
can't tell some of them leaves them out. Memory and descriptors are those of the node that uses more."""

_MB = 1 << 20


def of_process(pid: int) -> dict[str, float]:
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = int(status.partition("VmRSS:")[2].split()[0])
    return {
        "node memory, MB": kilobytes / 1024,
        "node descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
    }


def of_store(ground: Ground, store: Store) -> dict[str, float]:
    found = _KINDS[urlsplit(ground.url).scheme](ground)
    return {**found, "runs": sum(store.count_runs().values())}


def _sqlite(ground: Ground) -> dict[str, float]:
    file = Path(ground.url.removeprefix("sqlite:///"))
    log = file.with_name(f"{file.name}-wal")
    return {
        "data, MB": file.stat().st_size / _MB,
        "log, MB": log.stat().st_size / _MB if log.exists() else 0.0,
    }


def _postgres(ground: Ground) -> dict[str, float]:
    import psycopg

    assert ground.server is not None
    schema = parse_qs(urlsplit(ground.url).query)["schema"][0]
    tables = (
        "from pg_class c join pg_namespace n on n.oid = relnamespace where nspname = %s and relkind = 'r'"
    )
    with psycopg.connect(ground.server.url, autocommit=True) as connection:
        row = connection.execute(
            f"select sum(pg_table_size(c.oid)), sum(pg_indexes_size(c.oid)), "
            f"(select sum(size) from pg_ls_waldir()), "
            f"(select count(*) - 1 from pg_stat_activity where backend_type = 'client backend') {tables}",
            (schema,),
        ).fetchone()
    assert row is not None
    data, indexes, log, connections = map(float, row)
    return {
        "data, MB": data / _MB,
        "indexes, MB": indexes / _MB,
        "log, MB": log / _MB,
        "connections": connections,
    }


def _valkey(ground: Ground) -> dict[str, float]:
    import redis

    assert ground.server is not None
    with redis.Redis(port=ground.server.port) as client:
        facts: Mapping[str, float] = client.info()
    return {
        "data, MB": facts["used_memory"] / _MB,
        "log, MB": facts.get("aof_current_size", 0) / _MB,
        "connections": facts["connected_clients"] - 1,
    }


def _mongo(ground: Ground) -> dict[str, float]:
    from pymongo import MongoClient

    assert ground.server is not None
    name = urlsplit(ground.url).path.strip("/")
    with MongoClient[dict[str, object]](ground.server.url) as client:
        sizes = client[name].command("dbStats")
        connections = client.admin.command("serverStatus")["connections"]["current"]
        oplog = client["local"].command("collStats", "oplog.rs")["storageSize"]
    journal = ground.server.folder / "data" / "journal"
    log = sum(file.stat().st_size for file in journal.glob("*")) if journal.exists() else 0
    return {
        "data, MB": sizes["storageSize"] / _MB,
        "indexes, MB": sizes["indexSize"] / _MB,
        "log, MB": (oplog + log) / _MB,
        "connections": connections,
    }


_KINDS: dict[str, Callable[[Ground], dict[str, float]]] = {
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "redis": _valkey,
    "valkey": _valkey,
    "mongodb": _mongo,
}
