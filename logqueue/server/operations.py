"""Handlers of health, readiness and metrics."""

from __future__ import annotations

from logqueue import __version__, replies
from logqueue.server.metrics import CONTENT_TYPE, Metrics
from logqueue.server.requests import Reply, Request
from logqueue.server.service import Service


class OperationRoutes:
    """What supervisors and dashboards ask for."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self._service = service
        self._metrics = metrics

    def health(self, request: Request) -> Reply:
        """`GET /v0/health`: the process is up."""
        uptime_ms = self._service.uptime_ms
        return Reply(
            replies.encode({"status": "ok", "version": __version__, "uptime_ms": uptime_ms})
        )

    def ready(self, request: Request) -> Reply:
        """`GET /v0/ready`: the log is replayed and takes writes."""
        coordinator = self._service.require_ready()
        topics = len(coordinator.engine.state.topics)
        return Reply(
            replies.encode({"status": "ready", "wal_replay_complete": True, "topics": topics})
        )

    def metrics(self, request: Request) -> Reply:
        """`GET /v0/metrics`: Prometheus text, or JSON when asked for."""
        engine = self._service.engine
        if engine is not None:
            for name in list(engine.state.topics):
                engine.look(name)
        if b"application/json" in (request.header(b"accept") or b"").lower():
            return Reply(replies.encode(self._metrics.json()))
        return Reply(self._metrics.text(request.allows), content_type=CONTENT_TYPE)
