"""Documents of a MongoDB collection: on a standalone server or on a replica set."""

from evenbeat.documents.mongo.store import MongoDocuments

__all__ = ["MongoDocuments"]
