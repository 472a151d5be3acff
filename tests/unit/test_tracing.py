"""OpenTelemetry: an attempt is a span, linked to the span that enqueued its run. With the real SDK."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from evenbeat import RunContext, Scheduler
from evenbeat.core.clocks import steady_clock
from evenbeat.core.records import Execution, RunRecord
from evenbeat.executors.base import Attempt, Outcome, end_span
from evenbeat.executors.inline import InlineExecutor
from evenbeat.observe import tracing
from evenbeat.stores.base import RunQuery
from evenbeat.tasks.task import Task
from evenbeat.testing import virtual

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Spans(InMemorySpanExporter):
    """The spans that have ended."""

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


def use(monkeypatch: pytest.MonkeyPatch, provider: trace.TracerProvider | None) -> None:
    """Set the tracer provider of this process until the test ends: the API allows that only once."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    monkeypatch.setattr(tracing, "_known", None)
    monkeypatch.setattr(tracing, "_has_failed", False)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    exporter, provider = Spans(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    use(monkeypatch, provider)
    return exporter


@pytest.fixture
def app() -> Scheduler:
    return Scheduler("memory://")


def link_of(span: ReadableSpan) -> tuple[int, int]:
    (link,) = span.links
    assert link.context.is_remote
    return link.context.trace_id, link.context.span_id


def context_of(span: ReadableSpan) -> tuple[int, int]:
    found = span.get_span_context()
    assert found is not None
    return found.trace_id, found.span_id


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("evenbeat."): value for name, value in (span.attributes or {}).items()}


def enqueue_in_span(app: Scheduler, enqueue: Callable[[], Any]) -> Any:
    """Enqueue inside a span, on a real node, and wait for the end."""
    with app:
        with trace.get_tracer("shop").start_as_current_span("request"):
            run = enqueue()
        app.runs.join(run.id, "60s")
    return run


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_attempt_is_a_span_of_its_own_linked_to_the_one_that_enqueued(
    app: Scheduler, spans: Spans, kind: str
) -> None:
    def work() -> None:
        with trace.get_tracer("shop").start_as_current_span("query"):
            pass

    async def work_async() -> None:
        with trace.get_tracer("shop").start_as_current_span("query"):
            await asyncio.sleep(0)

    task: Any = app.task(name="work", queue="default")(work if kind == "def" else work_async)
    run = enqueue_in_span(app, task.enqueue)
    span, request, query = spans.one("evenbeat.run work"), spans.one("request"), spans.one("query")
    assert (span.kind, span.parent, span.status.status_code) == (
        trace.SpanKind.CONSUMER,
        None,
        trace.StatusCode.UNSET,
    )
    assert link_of(span) == context_of(request)
    assert context_of(span)[0] != context_of(request)[0]
    assert query.parent is not None
    assert (query.parent.trace_id, query.parent.span_id) == context_of(span)
    assert attributes(span) == {
        "run.id": run.id,
        "task": "work",
        "tenant": "default",
        "attempt": 1,
        "queue": "default",
        "node": app.runs.get(run.id).worker,
        "outcome": "succeeded",
    }
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "evenbeat"
    assert not trace.get_current_span().get_span_context().is_valid


def test_attempts_that_run_at_once_have_their_own_current_spans(app: Scheduler, spans: Spans) -> None:
    together = threading.Barrier(2)

    @app.task
    def blocking(name: str) -> None:
        together.wait(60)
        with trace.get_tracer("shop").start_as_current_span(name):
            together.wait(60)

    meeting: list[asyncio.Event] = []

    @app.task
    async def waiting(name: str) -> None:
        meeting.append(asyncio.Event())
        if len(meeting) == 2:
            for event in meeting:
                event.set()
        await meeting[["c", "d"].index(name)].wait()
        with trace.get_tracer("shop").start_as_current_span(name):
            await asyncio.sleep(0)

    with app:
        runs = {name: blocking.enqueue(name).id for name in "ab"} | {
            name: waiting.enqueue(name).id for name in "cd"
        }
        for run in runs.values():
            app.runs.join(run, "60s")
    owners = {
        attributes(span)["run.id"]: context_of(span)
        for span in spans.get_finished_spans()
        if span.name.startswith("evenbeat.run")
    }
    for name, run in runs.items():
        parent = spans.one(name).parent
        assert parent is not None
        assert (parent.trace_id, parent.span_id) == owners[run]


def test_a_failure_and_its_retry_are_two_spans_with_the_same_link(app: Scheduler, spans: Spans) -> None:
    @app.task(retries=1, backoff=0)
    def flaky(run: RunContext) -> str:
        if run.attempt == 1:
            raise ValueError("no\nsuch luck")
        return "ok"

    with virtual(app) as world:
        with trace.get_tracer("shop").start_as_current_span("request"):
            flaky.enqueue()
        world.travel("1m")
    first, second = spans.named("evenbeat.run flaky")
    assert link_of(first) == link_of(second) == context_of(spans.one("request"))
    assert (attributes(first)["attempt"], attributes(first)["outcome"]) == (1, "failed")
    assert first.status.status_code is trace.StatusCode.ERROR
    assert first.status.description == "ValueError: no"
    (event,) = first.events
    assert event.attributes is not None
    assert (event.name, event.attributes["exception.type"]) == ("exception", "ValueError")
    assert "no\nsuch luck" in str(event.attributes["exception.stacktrace"])
    assert (attributes(second)["attempt"], attributes(second)["outcome"]) == (2, "succeeded")
    assert (second.status.status_code, second.events) == (trace.StatusCode.UNSET, ())


def test_a_run_of_a_tick_has_no_link_and_names_its_schedule_and_tick(app: Scheduler, spans: Spans) -> None:
    @app.task
    def work() -> None:
        pass

    with virtual(app) as world, trace.get_tracer("shop").start_as_current_span("around"):
        app.schedules.add("beat", "every 1m", work)
        world.travel("1m")
        current = trace.get_current_span()
        assert current.get_span_context().is_valid
    span = spans.one("evenbeat.run work")
    assert (span.parent, tuple(span.links)) == (None, ())
    assert (attributes(span)["schedule"], attributes(span)["tick"]) == ("beat", "2026-03-01T12:01:00Z")


def test_every_way_to_add_a_run_by_hand_keeps_the_current_span(app: Scheduler, spans: Spans) -> None:
    @app.task
    def work() -> None:
        pass

    with virtual(app), trace.get_tracer("shop").start_as_current_span("request") as request:
        ways: dict[str, Any] = {
            "enqueue": work.enqueue().id,
            "aenqueue": asyncio.run(work.aenqueue()).id,
            "enqueue_many": app.enqueue_many([work, work])[1],
        }
        app.schedules.add("first", "@daily", work, run_now=True)
        ways["run_now"] = app.schedules.run_now("first").id
        app.schedules.run_all(text="first")
        found = app.store.find_runs(RunQuery()).items
        expected = request.get_span_context()
    assert len(found) == 7
    parent = f"00-{expected.trace_id:032x}-{expected.span_id:016x}-{expected.trace_flags:02x}"
    assert {run.trace for run in found} == {parent}
    assert set(ways.values()) <= {run.id for run in found}


@pytest.mark.parametrize("provider", [None, trace.NoOpTracerProvider()], ids=["none", "no-op"])
def test_without_a_provider_nothing_is_recorded_and_the_context_is_left_alone(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch, provider: trace.TracerProvider | None
) -> None:
    use(monkeypatch, provider)
    seen: list[object] = []

    @app.task
    def work() -> None:
        seen.append(baggage.get_baggage("who"))
        seen.append(trace.get_current_span())

    remote = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=True))
    token = context.attach(baggage.set_baggage("who", "anna", trace.set_span_in_context(remote)))
    try:
        with virtual(app) as world:
            work.enqueue()
            world.travel("1s")
            (run,) = app.store.find_runs(RunQuery()).items
    finally:
        context.detach(token)
    assert run.trace is None
    assert seen == ["anna", remote]
    assert tracing.start_span(run) is None


def test_a_program_without_opentelemetry_never_imports_it() -> None:
    program = """
import sys
from evenbeat import Scheduler
app = Scheduler("memory://")
@app.task
def work(): return 1
@app.task
async def later(): return 1
with app:
    for task in (work, later):
        assert app.runs.join(task.enqueue().id, "60s").state == "succeeded"
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


def test_a_span_that_is_not_sampled_is_carried_as_such(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, TracerProvider(sampler=ALWAYS_OFF))

    @app.task
    def work() -> bool:
        return trace.get_current_span().is_recording()

    with virtual(app) as world:
        with trace.get_tracer("shop").start_as_current_span("request"):
            run = work.enqueue()
        world.travel("1s")
        (found,) = app.store.find_runs(RunQuery()).items
        assert found.trace is not None
        assert int(found.trace[-2:], 16) & trace.TraceFlags.SAMPLED == 0
        assert app.runs.get(run.id).result is False


@pytest.mark.parametrize("text", ["", "00-1-2-01", TRACE + "-more", TRACE.upper(), "ff" + TRACE[2:]])
def test_a_stored_text_that_is_not_a_traceparent_gives_no_link(spans: Spans, text: str) -> None:
    span = tracing.start_span(RunRecord(id="a", task="work", trace=text))
    assert span is not None
    span.end("succeeded")
    assert tuple(spans.one("evenbeat.run work").links) == ()


# How attempts end.


def attempt(reason: str | None, decided: bool = False) -> Attempt:
    run = RunRecord(id="a", task="work", attempt=1, execution=Execution(timeout=90_000))
    made = Attempt(run, Task(lambda: None, "work"), steady_clock(), 30, lambda _: True)
    if reason is not None:
        made.control.request_cancel(reason)
    made.is_decided = decided
    return made


@pytest.mark.parametrize(
    ("kind", "reason", "decided", "outcome", "error"),
    [
        ("returned", None, False, "succeeded", None),
        ("returned", "timeout", False, "succeeded", None),
        ("returned", "timeout", True, "failed", "timed out after 1m30s"),
        ("raised", None, False, "failed", "Boom"),
        ("unfit", None, False, "failed", "Boom"),
        ("stopped", "cancelled", False, "cancelled", None),
        ("stopped", "timeout", False, "failed", "timed out after 1m30s"),
        ("stopped", "stopping", False, "handed back", None),
        ("returned", "stopping", True, "handed back", None),
        ("stopped", "lost", False, "lost", "Boom"),
        ("returned", "lost", True, "lost", "the attempt was lost"),
        ("died", None, False, "lost", "Boom"),
    ],
)
def test_the_end_of_an_attempt_is_the_outcome_of_its_span(
    spans: Spans, kind: Any, reason: str | None, decided: bool, outcome: str, error: str | None
) -> None:
    ended = attempt(reason, decided)
    span = tracing.start_span(ended.run)
    assert span is not None
    end_span(span, ended, Outcome(kind, error=None if kind == "returned" else "Boom\n\ntraceback"))
    found = spans.one("evenbeat.run work")
    assert attributes(found)["outcome"] == outcome
    assert found.status.description == error
    assert found.status.is_ok is (error is None)


def test_ctrl_c_in_virtual_time_ends_the_span(spans: Spans) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    executor = InlineExecutor()
    executor.start(lambda *_: None)
    stopped = Attempt(
        replace(attempt(None).run), Task(interrupted, "work"), steady_clock(), 30, lambda _: True
    )
    with pytest.raises(KeyboardInterrupt):
        executor.submit([stopped])
    assert attributes(spans.one("evenbeat.run work"))["outcome"] == "cancelled"
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize("where", ["on_start", "on_end"])
def test_an_error_of_the_tracing_fails_no_run_and_is_logged_once(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("no collector")

    provider = TracerProvider()
    provider.add_span_processor(SpanProcessor())
    use(monkeypatch, provider)
    monkeypatch.setattr(SpanProcessor, where, broken)

    @app.task
    def work() -> int:
        return 1

    with caplog.at_level(logging.WARNING, "evenbeat.observe.tracing"), virtual(app) as world:
        runs = [work.enqueue() for _ in range(3)]
        world.travel("1s")
        assert [app.runs.get(run.id).state for run in runs] == ["succeeded"] * 3
    assert [record.getMessage() for record in caplog.records if "tracing" in record.name] == [
        "a span could not be recorded, the runs go on: no collector"
    ]


# Processes of their own.

JOBS = """
import os, signal, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from evenbeat import Scheduler

if "FILE" in os.environ:
    out = open(os.environ["FILE"], "a")
    provider = TracerProvider()
    exporter = ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\\n")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)

app = Scheduler("memory://")

@app.task(executor="process")
def work():
    with trace.get_tracer("shop").start_as_current_span("query"):
        return os.getpid()

@app.task(executor="process", max_crashes=0)
def die():
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_attempt_in_a_process_of_its_own_is_a_span_there(
    tmp_path: Path, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "traced_jobs.py").write_text(JOBS)
    monkeypatch.syspath_prepend(tmp_path)
    jobs = __import__("traced_jobs")
    monkeypatch.setenv("FILE", str(tmp_path / "spans"))  # of the processes alone
    run = enqueue_in_span(jobs.app, jobs.work.enqueue)
    assert jobs.app.runs.get(run.id).result != os.getpid()
    query, span = map(json.loads, (tmp_path / "spans").read_text().splitlines())
    assert (query["name"], span["name"]) == ("query", "evenbeat.run work")
    assert query["parent_id"] == span["context"]["span_id"]
    assert span["parent_id"] is None
    (link,) = span["links"]
    trace_id, span_id = context_of(spans.one("request"))
    assert link["context"]["trace_id"] == f"0x{trace_id:032x}"
    assert link["context"]["span_id"] == f"0x{span_id:016x}"
    assert span["attributes"]["evenbeat.outcome"] == "succeeded"
    # The worker has recorded nothing itself.
    assert spans.named("evenbeat.run work") == []


def test_the_span_of_a_process_that_died_is_recorded_by_its_worker(
    tmp_path: Path, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dying_jobs.py").write_text(JOBS)
    monkeypatch.syspath_prepend(tmp_path)
    jobs = __import__("dying_jobs")
    enqueue_in_span(jobs.app, jobs.die.enqueue)
    span, *more = spans.named("evenbeat.run die")
    assert more == []
    assert link_of(span) == context_of(spans.one("request"))
    assert attributes(span)["outcome"] == "lost"
    assert span.status.description == "the process died with signal SIGKILL"
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.start_time < span.end_time
