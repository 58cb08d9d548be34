"""Handlers of the WebSocket route."""

from __future__ import annotations

from collections.abc import Callable

from logqueue.errors import InvalidRequest
from logqueue.server.handlers.socket_session import SocketSession
from logqueue.server.http.requests import HttpRequest, Reply
from logqueue.server.http.routing import serves
from logqueue.server.http.websocket import WebSocket
from logqueue.server.service import Service


class SocketRoutes:
    """The WebSocket half of the API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @serves("websocket", plain=True)
    def refuse(self, request: HttpRequest) -> Reply:
        """`GET /v0/ws` without an offer to upgrade to WebSocket.

        Raises:
            InvalidRequest: Always.
        """
        raise InvalidRequest(
            "this route speaks WebSocket only: send `connection: upgrade` and `upgrade: websocket`"
        )

    @serves("websocket")
    def open(self, request: HttpRequest) -> Callable[[WebSocket], object]:
        """`GET /v0/ws`: serve commands and deliveries over a socket.

        Raises:
            LogqueueError: Refused.
        """
        service, key = self._service, request.key
        service.require_serving()
        return lambda socket: SocketSession(service, key, socket)
