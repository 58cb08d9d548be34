"""Handlers of background operations: list, look, stop; and the replies of those who start one."""

from __future__ import annotations

from typing import Any

from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.engine.operations import BackgroundOperation
from logqueue.server.handlers.members import reply_with, show_members
from logqueue.server.http.requests import Answer, HttpRequest, PendingReply, Reply
from logqueue.server.http.routing import serves
from logqueue.server.service import Service

WAIT_S = 30.0
"""How long a request waits at most for the operation that it has started."""


class BackgroundRoutes:
    """Those who watch operations."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @serves("list_operations")
    def list(self, request: HttpRequest) -> PendingReply:
        """`GET /v0/operations`: the latest first."""
        dispatcher = self._service.require_serving()
        found = dispatcher.operations.listed(request.allows)
        members = {"operations": [known.members(request.allows) for known in found]}
        written = max((known.written for known in found), default=0)
        durable = max((known.durable for known in found), default=0)
        return dispatcher.hold(members, written, durable, show_members, request)

    @serves("get_operation")
    def get(self, request: HttpRequest) -> PendingReply:
        """`GET /v0/operations/:id`: how far it is."""
        dispatcher = self._service.require_serving()
        return _shown(dispatcher, request, dispatcher.operations.find(request.name, request.allows))

    @serves("stop_operation")
    def stop(self, request: HttpRequest) -> Answer:
        """`DELETE /v0/operations/:id`: it ends before its next step."""
        dispatcher = self._service.require_serving()
        operation = dispatcher.operations.find(request.name, request.allows)
        dispatcher.operations.stop(operation)
        return answer_started(dispatcher, request, operation, waits=True, status=200)


def answer_started(
    dispatcher: Dispatcher,
    request: HttpRequest,
    operation: BackgroundOperation,
    *,
    waits: bool,
    status: int = 202,
) -> Answer:
    """The reply to who has started an operation.

    Args:
        dispatcher: Of this server.
        request: Of the caller.
        operation: As it was started.
        waits: Wait until it is over, for half a minute at most. The operation
            continues when the caller disconnects.
        status: Of the reply while it is running.
    """
    if not waits:
        return reply_with(request, {"operation": operation.members(request.allows)}, status)
    return request.unless_gone(_when_over(dispatcher, request, operation, status))


async def _when_over(
    dispatcher: Dispatcher, request: HttpRequest, operation: BackgroundOperation, status: int
) -> Reply:
    await dispatcher.operations.over(operation, WAIT_S)
    await dispatcher.barrier.wait(operation.written, operation.durable)
    members: dict[str, Any] = {"operation": operation.members(request.allows)}
    return reply_with(request, members, 200 if operation.finished_at else status)


def _shown(
    dispatcher: Dispatcher, request: HttpRequest, operation: BackgroundOperation
) -> PendingReply:
    members = {"operation": operation.members(request.allows)}
    return dispatcher.hold(members, operation.written, operation.durable, show_members, request)
