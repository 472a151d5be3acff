"""Documents: a collection or table that you already have, as jobs.

The stores of databases are imported when they are first used, and their drivers with them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from evenbeat.documents.base import HELD, Change, DocumentLock, Documents, Fields, Found, Taken
from evenbeat.documents.document import Document
from evenbeat.documents.memory import MemoryDocuments
from evenbeat.documents.processor import Processor
from evenbeat.errors import DocumentLockLost

if TYPE_CHECKING:
    from evenbeat.documents.mongo import MongoDocuments
    from evenbeat.documents.postgres import PostgresDocuments
    from evenbeat.documents.redis import RedisDocuments
    from evenbeat.documents.sqlite import SqliteDocuments

__all__ = [
    "HELD",
    "Change",
    "Document",
    "DocumentLock",
    "DocumentLockLost",
    "Documents",
    "Fields",
    "Found",
    "MemoryDocuments",
    "MongoDocuments",
    "PostgresDocuments",
    "Processor",
    "RedisDocuments",
    "SqliteDocuments",
    "Taken",
]

_LAZY = {
    "MongoDocuments": ("mongo", ("pymongo", "bson")),
    "PostgresDocuments": ("postgres", ("psycopg",)),
    "RedisDocuments": ("redis", ("redis",)),
    "SqliteDocuments": ("sqlite", ()),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, drivers = _LAZY[name]
    try:
        return getattr(importlib.import_module(f"evenbeat.documents.{module}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in drivers:
            raise
        raise ImportError(
            f"{name} needs {drivers[0]}, which is not installed; pip install 'evenbeat[{module}]'"
        ) from None
