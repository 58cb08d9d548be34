"""Handlers of health, readiness, metrics and the description of the API."""

from __future__ import annotations

from logqueue.api import openapi, replies
from logqueue.server.http.requests import Answer, HttpRequest, Reply
from logqueue.server.http.routing import serves
from logqueue.server.metrics import Metrics
from logqueue.server.scrape import content_type, scrape, total_up
from logqueue.server.service import Service
from logqueue.version import __version__


class OperationRoutes:
    """What supervisors and dashboards ask for."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self._service = service
        self._metrics = metrics

    @serves("health")
    def health(self, request: HttpRequest) -> Reply:
        """`GET /v0/health`: the process is up."""
        uptime_ms = self._service.uptime_ms
        return Reply(
            replies.encode({"status": "ok", "version": __version__, "uptime_ms": uptime_ms})
        )

    @serves("healthz")
    def healthz(self, request: HttpRequest) -> Reply:
        """`GET /healthz`: the same."""
        return self.health(request)

    @serves("ready")
    def ready(self, request: HttpRequest) -> Reply:
        """`GET /v0/ready`: the log is replayed and takes writes."""
        dispatcher = self._service.require_ready()
        topics = len(dispatcher.engine.state.topics)
        ready: dict[str, object] = {
            "status": "ready",
            "wal_replay_complete": True,
            "topics": topics,
        }
        following = self._service.lifecycle.following
        if following is not None:
            ready["status"] = "standby"
            ready["replica"] = {
                "state": following.status()["state"],
                "lag_ms": following.behind_ms,
            }
        replication = self._service.replication
        if replication is not None:
            ready["replica"] = {"state": replication.state(), "lag_ms": replication.writer.lag_ms}
        return Reply(replies.encode(ready))

    @serves("readyz")
    def readyz(self, request: HttpRequest) -> Reply:
        """`GET /readyz`: the same."""
        return self.ready(request)

    @serves("openapi")
    def openapi(self, request: HttpRequest) -> Answer:
        """`GET /v0/openapi.json`: the API described for machines."""
        return self._describe()

    async def _describe(self) -> Reply:
        """The description is made when it is first asked for, which takes a tenth of a second."""
        return Reply(await self._service.stepping.call(openapi.encoded))

    @serves("metrics")
    def metrics(self, request: HttpRequest) -> Answer:
        """`GET /v0/metrics`: Prometheus or OpenMetrics text, or JSON when asked for."""
        return request.unless_gone(self._scrape(request))

    async def _scrape(self, request: HttpRequest) -> Reply:
        """In steps, so that no request waits for the scrape of a hundred thousand topics."""
        engine = self._service.engine
        accept = (request.header(b"accept") or b"").lower()
        if b"application/json" in accept:
            totals = await total_up(engine)
            return Reply(replies.encode(self._metrics.json(totals)))
        openmetrics = b"application/openmetrics-text" in accept
        topics_max = self._service.settings.metrics_topics_max
        text = await scrape(self._metrics, engine, request.key, topics_max, openmetrics=openmetrics)
        return Reply(text, content_type=content_type(openmetrics))
