"""The REST API as an ASGI app, and what its process keeps in memory about the store."""
