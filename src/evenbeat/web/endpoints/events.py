"""Events: a stream of what changed."""

from __future__ import annotations

from typing import Any

from starlette.responses import StreamingResponse

from evenbeat.web.endpoint import Call, endpoint
from evenbeat.web.shapes import TenantsQuery
from evenbeat.web.streams import sse


@endpoint("GET", "/events", role="viewer", scope="tenant", query=TenantsQuery, answer=None)
def events(call: Call[TenantsQuery, Any]) -> object:
    """Stream what changes, as Server-Sent Events: kinds and ids, at most one message a second.

    The event `changes` has the data `{"changes": [{"subject", "kind", "tenant", "id", "schedule"}, …]}`; the
    API answers what a subject is like now. A client that reconnects sends the header Last-Event-ID, and gets
    the changes in between; the event `reset` says that these are not known: read everything again. The stream
    ends when the token is revoked or expires, and when the server stops.
    """
    call.state.watch()
    subscription = call.state.hub.subscription(
        call.tenant, lambda: call.state.gate.is_valid(call.principal), call.last_event_id
    )
    return StreamingResponse(
        sse(subscription),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
