"""The store on SQLite: one file, one host, any number of processes."""

from evenbeat.stores.sqlite.schema import schema_sql
from evenbeat.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore", "schema_sql"]
