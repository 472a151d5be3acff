"""Documents in Redis or Valkey."""

from evenbeat.documents.redis.documents import RedisDocuments

__all__ = ["RedisDocuments"]
