"""Figures about handlers for Prometheus.

Owns: the metrics and their labels. Must not know: how they are scraped: mount
`prometheus_client.start_http_server` or your own.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from logqueue.extras import explained
from logqueue.worker.job import Job
from logqueue.worker.message import Message
from logqueue.worker.middleware import Handle, Middleware
from logqueue.worker.middleware.ending import ending

with explained("PrometheusMetrics", "metrics"):
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1800.0)


class PrometheusMetrics(Middleware):
    """Counts runs, their time, and sends. Labels: `queue`, `task`, and `ending` for runs."""

    def __init__(
        self,
        registry: CollectorRegistry = REGISTRY,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Register the metrics; one object per registry. `clock` gives seconds."""
        self._clock = clock
        self._runs = Counter(
            "logqueue_worker_runs",
            "Handler runs by outcome.",
            ("queue", "task", "ending"),
            registry=registry,
        )
        self._seconds = Histogram(
            "logqueue_worker_run_seconds",
            "Duration of handler runs.",
            ("queue", "task"),
            buckets=SECONDS,
            registry=registry,
        )
        self._running = Gauge(
            "logqueue_worker_running",
            "Handlers running now.",
            ("queue", "task"),
            registry=registry,
        )
        self._sent = Counter(
            "logqueue_worker_sent",
            "Jobs sent, counted before they leave.",
            ("queue",),
            registry=registry,
        )

    async def handle(self, job: Job, call_next: Handle) -> None:
        """See Middleware."""
        began = self._clock()
        running = self._running.labels(job.queue, job.task)
        running.inc()
        raised: BaseException | None = None
        try:
            await call_next(job)
        except BaseException as error:
            raised = error
            raise
        finally:
            running.dec()
            self._runs.labels(job.queue, job.task, ending(raised)).inc()
            self._seconds.labels(job.queue, job.task).observe(self._clock() - began)

    def on_send(self, message: Message) -> None:
        """See Middleware."""
        self._sent.labels(message.queue).inc()
