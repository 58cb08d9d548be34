"""Handlers of the live feed and of history."""

from __future__ import annotations

from logqueue.errors import InvalidRequest
from logqueue.server.handlers.members import reply_with
from logqueue.server.http.asgi import AsgiHandler
from logqueue.server.http.requests import Answer, HttpRequest, Reply, require_event_stream
from logqueue.server.http.routing import serves
from logqueue.server.pages.event_stream import event_stream
from logqueue.server.service import Service
from logqueue.server.stats.stats import ServerStats

WINDOWS = {"10m": False, "24h": True}


class StatsRoutes:
    """What people look at."""

    def __init__(self, service: Service, stats: ServerStats) -> None:
        self._service = service
        self._stats = stats

    @serves("stats_stream")
    def stream(self, request: HttpRequest) -> Answer:
        """`GET /v0/stats/stream`: what changes, once a second."""
        self._service.require_serving()
        require_event_stream(request)
        # A client that closes its side has hung up.
        request.is_long = True
        return AsgiHandler(event_stream(self._stats.watch(request.key))).answer(request)

    @serves("topic_history")
    def history(self, request: HttpRequest) -> Answer:
        """`GET /v0/topics/:topic/history`: the last 10 minutes, or the last day."""
        dispatcher = self._service.require_serving()
        window = request.query.get("window", "10m")
        if window not in WINDOWS:
            raise InvalidRequest("`window` must be `10m` or `24h`")
        dispatcher.engine.state.topic(request.name)
        return self._history(request, is_long=WINDOWS[window])

    async def _history(self, request: HttpRequest, *, is_long: bool) -> Reply:
        dispatcher = self._service.require_serving()
        topic = dispatcher.engine.topic_now(request.name)
        step_ms, first, series = await self._stats.series(topic, is_long=is_long)
        await dispatcher.barrier.wait(topic.mark_written, topic.mark_durable)
        members = {"topic": topic.name, "step_ms": step_ms, "from": first, "series": series}
        return reply_with(request, members)
