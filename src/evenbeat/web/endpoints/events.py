"""Events: a stream of what changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from evenbeat.web.access import Principal
from evenbeat.web.endpoint import Call, endpoint
from evenbeat.web.limits import Limit
from evenbeat.web.shapes import TenantsQuery
from evenbeat.web.streams import sse


@endpoint("GET", "/events", role="viewer", scope="tenant", query=TenantsQuery, answer=None, is_stream=True)
def events(call: Call[TenantsQuery, Any]) -> object:
    """Stream what changes, as Server-Sent Events: kinds and ids, at most one message a second.

    The event `changes` has the data `{"changes": [{"subject", "kind", "tenant", "id", "schedule", "flow"}]}`;
    the API answers what a subject is like now. A client that reconnects sends the header Last-Event-ID, and
    gets the changes in between; the event `reset` says that these are not known: read everything again. The
    stream ends when the token is revoked or expires, when the session ends, and when the server stops. A
    token may have 50 streams (429), a server 1,000, or half as many as it may open files (503).
    """
    call.state.watch()
    subscription = call.state.hub.subscription(
        call.tenant, lambda: call.state.still_admits(call.principal), call.last_event_id
    )
    return _EventStream(sse(subscription), call.state.streams, call.principal)


class _EventStream(StreamingResponse):
    """The answer that streams events. It counts from its first byte until the client has left."""

    def __init__(self, parts: AsyncIterator[bytes], limit: Limit, principal: Principal) -> None:
        super().__init__(
            parts,
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
        self._limit = limit
        self._principal = principal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._limit.counted(self._principal):
            await super().__call__(scope, receive, send)
