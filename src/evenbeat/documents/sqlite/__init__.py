"""Documents in SQLite: the rows of a table."""

from evenbeat.documents.sqlite.store import SqliteDocuments

__all__ = ["SqliteDocuments"]
