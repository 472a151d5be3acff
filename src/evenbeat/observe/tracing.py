"""OpenTelemetry: a span for each attempt, linked to the span that enqueued its run.

No other module uses OpenTelemetry, and this one uses its API alone: the program chooses the SDK. A program
that traces has imported the API and set a tracer provider. Evenbeat never imports the API first, so that a
program without tracing pays for one test of ``sys.modules``: 0.1 us for each run that is enqueued, and for
each attempt. If the API is imported and no provider is set, this takes 2 us, most of it in the API, which
reads the environment. A span with the SDK takes 45 us. (All measured on a busy machine.)
"""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING

from evenbeat import __version__
from evenbeat.core.instants import write_instant
from evenbeat.core.records import AttemptOutcome, RunRecord

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Tracer, TracerProvider

_API = "opentelemetry.trace"
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")

_log = logging.getLogger("evenbeat.observe.tracing")
_known: tuple[TracerProvider, Tracer] | None = None
"""The provider that was last seen, and our tracer of it. Making a tracer takes longer than a span."""
_has_failed = False


def traceparent() -> str | None:
    """Return the W3C ``traceparent`` of the current span, to store with the runs that it enqueues; None if
    there is no span, or no tracer provider."""
    if _API not in sys.modules:
        return None
    try:
        if _tracer() is None:
            return None
        from opentelemetry import trace

        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return None
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    except Exception as error:
        _report(error)
        return None


def start_span(run: RunRecord, began_at: int | None = None) -> AttemptSpan | None:
    """Start the span of an attempt, and make it the current one; None without a tracer provider.

    Call it in the thread or coroutine that executes the function. ``began_at`` is the start in nanoseconds
    since 1970, if it was earlier.
    """
    if _API not in sys.modules:
        return None
    try:
        tracer = _tracer()
        return None if tracer is None else AttemptSpan(tracer, run, began_at)
    except Exception as error:
        _report(error)
        return None


class AttemptSpan:
    """The span of an attempt: the current one from now until ``end``.

    It is the root of a trace of its own, with a link to the span that enqueued the run. As its child, it
    would keep the trace of a short request open for hours, through delays and retries.
    """

    def __init__(self, tracer: Tracer, run: RunRecord, began_at: int | None) -> None:
        from opentelemetry import context, trace

        # An empty context, as in a thread or process of a worker: no span is the parent.
        nothing = context.Context()
        self._span = tracer.start_span(
            f"evenbeat.run {run.task}",
            nothing,
            trace.SpanKind.CONSUMER,
            attributes={name: value for name, value in _attributes(run).items() if value is not None},
            links=_links(run.trace),
            start_time=began_at,
        )
        self._token = context.attach(trace.set_span_in_context(self._span, nothing))

    def end(
        self, outcome: AttemptOutcome, error: str | None = None, exception: BaseException | None = None
    ) -> None:
        """End the span, in the thread or coroutine that started it. An ``error`` sets its status."""
        try:
            from opentelemetry import context, trace

            context.detach(self._token)
            self._span.set_attribute("evenbeat.outcome", outcome)
            if exception is not None:
                self._span.record_exception(exception)
            if error is not None:
                status = trace.Status(trace.StatusCode.ERROR, error.partition("\n")[0])
                self._span.set_status(status)
            self._span.end()
        except Exception as failure:
            _report(failure)


def _tracer() -> Tracer | None:
    """Return the tracer of the program's provider; None if it has set none, or one that records nothing."""
    global _known
    get_provider = getattr(sys.modules[_API], "get_tracer_provider", None)
    if get_provider is None:
        return None  # another thread is just importing the module
    provider = get_provider()
    known = _known
    if known is None or known[0] is not provider:
        from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider

        if isinstance(provider, (ProxyTracerProvider, NoOpTracerProvider)):
            return None
        _known = known = (provider, provider.get_tracer("evenbeat", __version__))
    return known[1]


def _attributes(run: RunRecord) -> dict[str, str | int | None]:
    return {
        "evenbeat.run.id": run.id,
        "evenbeat.task": run.task,
        "evenbeat.schedule": run.schedule,
        "evenbeat.tenant": run.tenant,
        "evenbeat.tick": None if run.tick is None else write_instant(run.tick),
        "evenbeat.attempt": run.attempt,
        "evenbeat.queue": run.queue,
        "evenbeat.node": run.worker,
    }


def _links(parent: str | None) -> tuple[Link, ...]:
    """Return the link to the span that enqueued a run; none if the stored text is not a ``traceparent``."""
    found = None if parent is None else _TRACEPARENT.fullmatch(parent)
    if found is None:
        return ()
    from opentelemetry import trace

    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    return (trace.Link(trace.SpanContext(trace_id, span_id, True, trace.TraceFlags(flags))),)


def _report(error: Exception) -> None:
    """Log the first failure of the program's tracing, which must never fail a run."""
    global _has_failed
    if not _has_failed:
        _has_failed = True
        _log.warning("a span could not be recorded, the runs go on: %s", error, exc_info=error)
