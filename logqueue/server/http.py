"""The HTTP door: the same order of checks and the same error envelope for every route.

Owns: authentication, caps, scopes, body policy, error mapping and the sending of replies. Must not
know: what any route does. The order of checks, first failing wins: 401 key, 429 requests in
progress, 403 scope and prefix, 404/405 route, 413 size, 415 type, 400 body; then the handler's own.
"""

from __future__ import annotations

import asyncio
import logging

from logqueue import wire
from logqueue.errors import (
    Forbidden,
    Internal,
    InvalidRequest,
    LogqueueError,
    MethodNotAllowed,
    NotFound,
    Unauthorized,
    UnsupportedMediaType,
)
from logqueue.server.auth import Key, bearer, query_token
from logqueue.server.metrics import Metrics
from logqueue.server.requests import ClientGone, Receive, Reply, Request, Scope, Send
from logqueue.server.routing import NO_SCOPE, Body, Match, Route, Router
from logqueue.server.service import Service

logger = logging.getLogger("logqueue.http")


class HttpApi:
    """An ASGI application for the `http` scope."""

    def __init__(self, service: Service, router: Router, metrics: Metrics) -> None:
        self.service = service
        self.router = router
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever happens."""
        request = Request(scope, receive, send)
        pattern = "unknown"
        reply: Reply | None = None
        try:
            match, refusal = self._match(request)
            if match.route is not None:
                pattern = match.route.pattern
            self._authenticate(request, match)
            if refusal is not None:
                raise refusal
            reply = await self._answer(request, match)
        except LogqueueError as refusal:
            reply = error_reply(refusal)
        except ClientGone:
            return
        except asyncio.CancelledError:
            raise
        except Exception:
            logger.exception("%s %s failed", scope["method"], pattern)
            reply = error_reply(
                Internal("the server failed on this request; its log has the details")
            )
        if reply is not None:
            self.metrics.request(scope["method"], pattern, reply.status, request.total_ms)
            await _send(request, reply)

    def _match(self, request: Request) -> tuple[Match, InvalidRequest | None]:
        scope = request.scope
        try:
            match = self.router.match(scope["method"], scope["raw_path"])
        except InvalidRequest as refusal:
            return Match(None, "", NO_SCOPE, ()), refusal
        request.name = match.name
        return match, None

    def _authenticate(self, request: Request, match: Match) -> None:
        ring = self.service.settings.api_keys
        if not ring:
            return
        route = match.route
        if route is not None and route.probe and not self.service.settings.probe_auth:
            return
        secret = bearer(request.header(b"authorization"))
        if route is not None and route.stream and request.header(b"authorization") is None:
            secret = query_token(request.scope["query_string"])
        request.key = ring.authenticate(secret)
        if request.key is None:
            raise Unauthorized("send a key this server knows: `Authorization: Bearer <key>`")

    async def _answer(self, request: Request, match: Match) -> Reply | None:
        route = match.route
        key = request.key
        if key is None or (route is not None and route.stream):
            return await self._handle(request, match)
        self.service.enter(key)
        try:
            return await self._handle(request, match)
        finally:
            self.service.leave(key)

    async def _handle(self, request: Request, match: Match) -> Reply | None:
        if request.key is not None:
            _require_allowed(request.key, match)
        route = match.route
        if route is None:
            raise _no_route(match)
        if route.body is not Body.IGNORED:
            request.body = await request.read_body(self.service.settings.max_body_bytes)
            _require_json(request, route)
        return await route.handler(request)


def _require_allowed(key: Key, match: Match) -> None:
    if not key.has(match.scope):
        raise Forbidden("this key lacks a scope that the call needs")
    if match.name and not key.allows(match.name):
        raise Forbidden("this key may not touch names outside its prefixes")


def _no_route(match: Match) -> LogqueueError:
    if match.methods:
        return MethodNotAllowed(f"this path takes {', '.join(match.methods)}")
    return NotFound("there is no such route; the API lives below /v0")


def _require_json(request: Request, route: Route) -> None:
    if not request.body:
        if route.body is Body.OPTIONAL:
            return
        if route.body is Body.NOT_EMPTY:
            raise InvalidRequest("this call needs a JSON body")
    declared = request.header(b"content-type")
    if declared is None or not declared.lstrip().lower().startswith(b"application/json"):
        raise UnsupportedMediaType("send the body as JSON: `content-type: application/json`")
    if not request.body:
        raise InvalidRequest("this call needs a JSON body")


def error_reply(refusal: LogqueueError) -> Reply:
    """A refusal on the wire."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if refusal.retry_after_s is not None:
        headers = ((b"retry-after", b"%d" % refusal.retry_after_s),)
    return Reply(wire.encode_error(refusal), refusal.status, headers)


async def _send(request: Request, reply: Reply) -> None:
    await request.send(
        {"type": "http.response.start", "status": reply.status, "headers": reply.headers}
    )
    await request.send({"type": "http.response.body", "body": reply.body})
