"""The store on Redis or Valkey: hashes that a person can read, one Lua script for each transition."""

from evenbeat.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
