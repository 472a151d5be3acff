"""The store on MongoDB: a replica set, of one node or more."""

from evenbeat.stores.mongo.schema import KNOWN, schema_script
from evenbeat.stores.mongo.store import MongoStore

__all__ = ["KNOWN", "MongoStore", "schema_script"]
