"""Handlers of the server as a whole: its state, and its log level."""

from __future__ import annotations

import msgspec

from logqueue.api import replies
from logqueue.api.bodies.server import LogLevelBody, read_log_level_body
from logqueue.server.handlers.whole_log import require_everything
from logqueue.server.http.requests import Answer, HttpRequest, Reply
from logqueue.server.http.routing import serves
from logqueue.server.metrics import Metrics
from logqueue.server.service import Service
from logqueue.server.shared_totals import SharedTotals
from logqueue.server.status import log_level, server_state


class ServerRoutes:
    """What an operator asks of the server itself."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self._service = service
        self._metrics = metrics
        self._totals = SharedTotals()

    @serves("server")
    def state(self, request: HttpRequest) -> Answer:
        """`GET /v0/server`: everything about the server."""
        require_everything(request.key)
        return request.unless_gone(self._state(request))

    async def _state(self, request: HttpRequest) -> Reply:
        totals = await self._totals.of(self._service.engine)
        return _timed(request, server_state(self._service, self._metrics, totals))

    @serves("put_log_level")
    def put_log_level(self, request: HttpRequest) -> Reply:
        """`PUT /v0/server/log_level`: how much the server logs."""
        require_everything(request.key)
        body: LogLevelBody = read_log_level_body(request.body, request.ignore)
        self._service.verbosity.change(body.level, body.for_ms)
        return _timed(request, log_level(self._service))


def _timed(request: HttpRequest, shape: msgspec.Struct) -> Reply:
    members = msgspec.to_builtins(shape)
    performance = msgspec.Raw(replies.performance(request.began))
    return Reply(replies.encode({**members, "performance": performance}))
