"""Documents of a MongoDB collection: on a standalone server, on a replica set, or behind mongos."""

from evenbeat.documents.mongo.store import MongoDocuments

__all__ = ["MongoDocuments"]
