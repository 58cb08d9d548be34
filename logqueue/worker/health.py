"""A worker's metrics and its health, over HTTP on a port of its own.

Owns: the port and its thread, what is measured, when a worker counts as stuck. Must not know: how
jobs are run. It answers from a thread, so that it can say that the event loop does not turn.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TICK_S = 1.0
STUCK_S = 30.0
"""The event loop counts as stuck once it has not turned for so long."""

UNCONNECTED_S = 120.0
"""The worker counts as cut off once it has reached no server for so long."""

PORTS_TRIED = 64
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

logger = logging.getLogger("logqueue.worker.health")


@dataclass(frozen=True, slots=True)
class QueueVitals:
    """One queue of a worker, as of now.

    Attributes:
        running: Jobs that are here.
        failing_s: Seconds for which every call for jobs has failed; 0 while they succeed.
    """

    queue: str
    running: int
    failing_s: float


@dataclass(frozen=True, slots=True)
class Vitals:
    """A worker, as of now.

    Attributes:
        jobs: How many jobs ended here, by outcome.
        abandoned: Threads of timed-out handlers that still run.
        abandoned_max: At this number, thread handlers wait.
    """

    jobs: dict[str, int]
    queues: Sequence[QueueVitals]
    abandoned: int
    abandoned_max: int


class WorkerHealth:
    """Serves `/metrics` and `/live`."""

    def __init__(self, vitals: Callable[[], Vitals], now: Callable[[], float]) -> None:
        self._vitals = vitals
        self._now = now
        self._turned_at = now()

    async def tick(self) -> None:
        """Note again and again that the event loop turns."""
        while True:
            self._turned_at = self._now()
            await asyncio.sleep(TICK_S)

    def problems(self) -> list[str]:
        """Why a supervisor should restart this worker; empty when it lives."""
        found = []
        still_s = self._now() - self._turned_at
        if still_s > STUCK_S:
            found.append(f"the event loop has been blocked for {still_s:.0f} s")
        vitals = self._vitals()
        for queue in vitals.queues:
            if queue.failing_s > UNCONNECTED_S:
                found.append(f"queue {queue.queue} could not be polled for {queue.failing_s:.0f} s")
        if vitals.abandoned >= vitals.abandoned_max:
            found.append(f"{vitals.abandoned} threads of timed-out handlers still run")
        return found

    def metrics(self) -> str:
        """The text that Prometheus scrapes."""
        vitals = self._vitals()
        lines = ["# TYPE logqueue_worker_jobs_total counter"]
        lines += [
            f'logqueue_worker_jobs_total{{outcome="{outcome}"}} {count}'
            for outcome, count in vitals.jobs.items()
        ]
        lines.append("# TYPE logqueue_worker_jobs gauge")
        lines += [
            f'logqueue_worker_jobs{{queue="{queue.queue}"}} {queue.running}'
            for queue in vitals.queues
        ]
        lines.append("# TYPE logqueue_worker_failing_seconds gauge")
        lines += [
            f'logqueue_worker_failing_seconds{{queue="{queue.queue}"}} {queue.failing_s:.3f}'
            for queue in vitals.queues
        ]
        for name, value in (
            ("abandoned_threads", float(vitals.abandoned)),
            ("loop_still_seconds", max(self._now() - self._turned_at, 0.0)),
            ("live", float(not self.problems())),
        ):
            lines += [f"# TYPE logqueue_worker_{name} gauge", f"logqueue_worker_{name} {value:g}"]
        text = "\n".join(lines) + "\n"
        library = sys.modules.get("prometheus_client")
        if library is not None:
            # What middleware and handlers count there belongs to this process, too.
            text += library.generate_latest().decode()
        return text

    def serve(self, host: str, port: int) -> Callable[[], None]:
        """Answer on a port, or the next one that is free; returns what ends that.

        Raises:
            OSError: None of the ports is free.
        """
        server = _bound(host, port, self)
        thread = threading.Thread(target=server.serve_forever, name="logqueue-health", daemon=True)
        thread.start()
        logger.info("metrics and liveness on http://%s:%d", host, server.server_port)

        def stop() -> None:
            server.shutdown()
            server.server_close()

        return stop


def _bound(host: str, port: int, health: WorkerHealth) -> ThreadingHTTPServer:
    class Answers(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._send(200, METRICS_TYPE, health.metrics())
            elif path in ("/live", "/healthz"):
                problems = health.problems()
                self._send(503 if problems else 200, "text/plain", "\n".join(problems) or "ok")
            else:
                self._send(404, "text/plain", "use /metrics or /live")

        def _send(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are not worth a line."""

    # Several processes of one worker are started alike: each takes the next free port.
    for offset in range(PORTS_TRIED):
        try:
            return _HealthServer((host, port + offset if port else 0), Answers)
        except OSError:
            if not port or offset == PORTS_TRIED - 1 or port + offset >= 65_535:
                raise
    raise AssertionError("the loop returns or raises")


class _HealthServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
