"""Middleware: the order of layers, and what each shipped one does."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from logqueue.testing import MemoryServer
from logqueue.worker import App, Handle, Job, Message, Middleware, Reject, Retry, Snooze
from logqueue.worker.middleware.ending import ending
from logqueue.worker.middleware.logging import JobLog
from logqueue.worker.middleware.prometheus import PrometheusMetrics
from logqueue.worker.middleware.rate_limit import RateLimit
from logqueue.worker.middleware.tracing import Tracing
from logqueue.worker.outcomes import JobTimeout, RetryLater


def app_with(server: MemoryServer, *layers: Middleware) -> App:
    """An app with a task that does as it is told."""
    app = App(middleware=layers)
    server.attach(app)

    @app.task(queue="q", name="act", retry=Retry.constant(1.0))
    async def act(what: str) -> None:
        from logqueue.worker import current_job

        if what == "fail" and current_job().deliveries == 1:
            raise ValueError("no")

    return app


def send(app: App, what: str) -> Message:
    """Send one call of the task; gives the message as it left."""
    message = Message(queue="q", data={"task": "act", "args": [what], "kwargs": {}})
    app.send(message)
    return message


def test_layers_nest_the_first_one_outermost(server: MemoryServer) -> None:
    said: list[str] = []

    class Layer(Middleware):
        def __init__(self, name: str) -> None:
            self.name = name

        async def handle(self, job: Job, call_next: Handle) -> None:
            said.append(f"into {self.name}")
            await call_next(job)
            said.append(f"out of {self.name}")

    app = app_with(server, Layer("a"), Layer("b"))
    send(app, "nothing")
    server.drain(app)
    assert said == ["into a", "into b", "out of b", "out of a"]


def test_a_layer_may_catch_what_a_handler_raises(server: MemoryServer) -> None:
    class Forgiving(Middleware):
        async def handle(self, job: Job, call_next: Handle) -> None:
            try:
                await call_next(job)
            except ValueError:
                return

    app = app_with(server, Forgiving())
    send(app, "fail")
    assert server.drain(app).nacked == 0


def test_an_error_of_a_layer_is_an_error_of_the_job(server: MemoryServer) -> None:
    class Broken(Middleware):
        async def handle(self, job: Job, call_next: Handle) -> None:
            if job.deliveries == 1:
                raise KeyError("layer")
            await call_next(job)

    app = app_with(server, Broken())
    send(app, "nothing")
    counts = server.drain(app)
    assert (counts.nacked, counts.acked) == (1, 1)


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (None, "returned"),
        (ValueError(), "failed"),
        (JobTimeout(), "timed_out"),
        (RetryLater(1.0), "retry_later"),
        (Snooze(1.0), "snoozed"),
        (Reject(), "rejected"),
        (asyncio.CancelledError(), "cancelled"),
    ],
)
def test_endings_have_words(error: BaseException | None, word: str) -> None:
    assert ending(error) == word


def test_the_job_log_has_a_line_per_run(
    server: MemoryServer, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_with(server, JobLog(clock=server.now))
    send(app, "fail")
    with caplog.at_level(logging.INFO, "logqueue.jobs"):
        server.drain(app)
    lines = [record for record in caplog.records if record.name == "logqueue.jobs"]
    facts = [(r.levelname, r.ending, r.queue, r.seq, r.task, r.deliveries) for r in lines]  # type: ignore[attr-defined]
    assert facts == [
        ("WARNING", "failed", "q", 1, "act", 1),
        ("INFO", "returned", "q", 1, "act", 2),
    ]
    assert lines[1].getMessage() == "act returned: q/1 delivery 2, 0.0 ms"


def test_prometheus_counts_runs_and_sends(server: MemoryServer) -> None:
    registry = CollectorRegistry()
    app = app_with(server, PrometheusMetrics(registry, clock=server.now))
    for what in ("fail", "nothing"):
        send(app, what)
    server.drain(app)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"logqueue_worker_{name}", {"queue": "q", **labels})

    assert value("runs_total", task="act", ending="returned") == 2
    assert value("runs_total", task="act", ending="failed") == 1
    assert value("run_seconds_count", task="act") == 3
    assert value("running", task="act") == 0
    assert value("sent_total") == 2


def test_the_rate_limit_lets_a_burst_through_and_then_so_many_per_second(
    server: MemoryServer,
) -> None:
    began: list[float] = []

    class Note(Middleware):
        async def handle(self, job: Job, call_next: Handle) -> None:
            began.append(round(server.now(), 3))
            await call_next(job)

    app = app_with(server, RateLimit(2.0, burst=3), Note())
    for _ in range(7):
        send(app, "nothing")
    worker = server.start(app)
    server.advance(10.0)
    assert began == [0.0, 0.0, 0.0, 0.5, 1.0, 1.5, 2.0]
    for _ in range(4):
        send(app, "nothing")
    server.advance(10.0)
    assert began[7:] == [10.0, 10.0, 10.0, 10.5], "the bucket was full again"
    server.stop(worker)


def test_the_rate_limit_may_be_for_some_queues_only(server: MemoryServer) -> None:
    app = app_with(server, RateLimit(0.001, queues=["other"]))
    for _ in range(3):
        send(app, "nothing")
    server.drain(app)
    assert server.now() < 1.0


@pytest.mark.parametrize("wrong", [(0.0, 1), (1.0, 0)])
def test_rate_limits_that_make_no_sense_are_refused(wrong: tuple[float, int]) -> None:
    with pytest.raises(ValueError, match="per_second"):
        RateLimit(*wrong)


class _Spans:
    """A provider of tracers that keeps what it is told; the API alone ends no spans anywhere."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, int, int, dict[str, Any]]] = []

    def provider(self) -> Any:
        from opentelemetry import trace

        kept = self.spans

        class Span(trace.NonRecordingSpan):
            def __init__(self, context: trace.SpanContext, facts: dict[str, Any]) -> None:
                super().__init__(context)
                self.facts = facts

            def set_attribute(self, key: str, value: Any) -> None:
                self.facts[key] = value

        class Tracer(trace.Tracer):
            def start_span(  # type: ignore[override]
                self, name: str, context: Any = None, **options: Any
            ) -> trace.Span:
                parent = trace.get_current_span(context).get_span_context()
                facts = dict(options.get("attributes") or {})
                number = len(kept) + 1
                own = trace.SpanContext(
                    parent.trace_id or 7, number, False, trace.TraceFlags(trace.TraceFlags.SAMPLED)
                )
                kept.append((name, parent.span_id, number, facts))
                return Span(own, facts)

            def start_as_current_span(  # type: ignore[override]
                self, name: str, context: Any = None, **options: Any
            ) -> Any:
                return trace.use_span(self.start_span(name, context, **options))

        class Provider(trace.TracerProvider):
            def get_tracer(self, *args: Any, **options: Any) -> trace.Tracer:
                return Tracer()

        return Provider()


def test_a_trace_goes_on_from_the_sender_to_the_handler(server: MemoryServer) -> None:
    pytest.importorskip("opentelemetry")
    spans = _Spans()
    app = app_with(server, Tracing(spans.provider()))
    message = send(app, "nothing")
    server.drain(app)
    sent, done = spans.spans
    assert message.meta["traceparent"] == f"00-{7:032x}-{1:016x}-01"
    assert (sent[0], done[0]) == ("send q", "process act")
    assert done[1] == sent[2], "the run is the child of the send"
    assert done[3]["messaging.message.id"] == "1"
    assert done[3]["logqueue.ending"] == "returned"
