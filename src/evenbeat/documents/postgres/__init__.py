"""Documents in PostgreSQL: the rows of a table."""

from evenbeat.documents.postgres.store import PostgresDocuments

__all__ = ["PostgresDocuments"]
