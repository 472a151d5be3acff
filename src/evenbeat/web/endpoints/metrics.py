"""Metrics, for Prometheus."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from evenbeat.app.metrics import read_metrics
from evenbeat.web.endpoint import Call, endpoint


@endpoint("GET", "/metrics", role="viewer", scope="own", answer=str, is_at_root=True)
def metrics(call: Call[Any, Any]) -> object:
    """Return all metrics in the text format of Prometheus, or as OpenMetrics if Accept asks for it.

    Its path is `/metrics`, not below `/api/v1`. A token of one tenant sees the figures of that tenant:
    nothing about others, nodes, queues or the store. With the setting `web_metrics = "open"`, it needs no
    token. If there are more schedules than `metrics_schedules`, they have no series of their own.
    """
    bound = call.state.settings.metrics_schedules
    made = read_metrics(call.app.store, tenant=call.tenant, schedules=bound)
    body, content_type = made.encode(call.accept)
    return Response(body, headers={"Content-Type": content_type})
