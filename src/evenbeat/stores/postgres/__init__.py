"""The store on PostgreSQL: a schema of a database, any number of nodes."""

from evenbeat.stores.postgres.schema import schema_sql
from evenbeat.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore", "schema_sql"]
