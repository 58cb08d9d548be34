"""Traces that continue from the sender of a job to its handler, with OpenTelemetry.

Owns: spans of sends and runs, and the trace context in `meta`. Must not know: exporters. Needs the
package opentelemetry-api, which is loaded when the middleware is made, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from logqueue.worker.job import Job
from logqueue.worker.message import Message
from logqueue.worker.middleware import Handle, Middleware
from logqueue.worker.middleware.ending import ending

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider


class Tracing(Middleware):
    """A producer span per send, a consumer span per run; the second is the child of the first.

    The context travels in `meta` under the keys of the global propagator: `traceparent` and
    `tracestate`, unless that was changed.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """Use this provider of tracers; the global one by default.

        Raises:
            RuntimeError: opentelemetry-api is not installed.
        """
        try:
            from opentelemetry import propagate, trace
        except ImportError as error:
            raise RuntimeError("Tracing needs the package opentelemetry-api") from error
        self._propagate = propagate
        self._trace = trace
        self._tracer = trace.get_tracer("logqueue", tracer_provider=provider)

    def on_send(self, message: Message) -> None:
        """See Middleware."""
        with self._tracer.start_as_current_span(
            f"send {message.queue}",
            kind=self._trace.SpanKind.PRODUCER,
            attributes={
                "messaging.system": "logqueue",
                "messaging.operation.type": "send",
                "messaging.destination.name": message.queue,
            },
        ):
            self._propagate.inject(message.meta)

    async def handle(self, job: Job, call_next: Handle) -> None:
        """See Middleware."""
        carrier = {k: v for k, v in _members(job.meta) if isinstance(v, str)}
        with self._tracer.start_as_current_span(
            f"process {job.task or job.queue}",
            context=self._propagate.extract(carrier),
            kind=self._trace.SpanKind.CONSUMER,
            attributes={
                "messaging.system": "logqueue",
                "messaging.operation.type": "process",
                "messaging.destination.name": job.queue,
                "messaging.message.id": str(job.seq),
                "logqueue.task": job.task,
                "logqueue.deliveries": job.deliveries,
            },
        ) as span:
            raised: BaseException | None = None
            try:
                await call_next(job)
            except BaseException as error:
                raised = error
                raise
            finally:
                span.set_attribute("logqueue.ending", ending(raised))


def _members(meta: Any) -> list[tuple[str, Any]]:
    return list(meta.items()) if isinstance(meta, dict) else []
