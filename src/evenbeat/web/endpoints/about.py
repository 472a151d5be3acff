"""The description of the API itself."""

from __future__ import annotations

from typing import Any

from evenbeat.web.endpoint import Call, endpoint


@endpoint("GET", "/openapi.json", role="viewer", scope="own", answer=dict[str, Any])
def openapi(call: Call[Any, Any]) -> object:
    """Return this description of the API, as OpenAPI 3.1."""
    return call.state.document()
