"""The HTTP door: the same order of checks and the same error envelope for every route.

Owns: authentication, caps, scopes, body policy, error mapping. Must not know: what any route does,
how bytes travel. The order of checks, first failing wins: 401 key, 429 requests in progress, 403
scope and prefix, 404/405 route, 413 size, 415 type, 400 body; then the handler's own.

Requests arrive by one of two ways that share all of this: as ASGI calls, or straight from the
connection (`protocol.py`), which saves a task and a dozen calls for small complete requests.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from logqueue import replies
from logqueue.errors import (
    Forbidden,
    Internal,
    InvalidRequest,
    LogqueueError,
    MethodNotAllowed,
    NotAQueue,
    NotFound,
    TopicNotFound,
    Unauthorized,
    UnsupportedMediaType,
)
from logqueue.server.auth import Key, bearer, query_token
from logqueue.server.metrics import Metrics
from logqueue.server.requests import (
    Answer,
    ClientGone,
    Held,
    Receive,
    Reply,
    Request,
    Scope,
    Send,
    StreamHandler,
    raising,
    read_body,
)
from logqueue.server.routing import NO_SCOPE, Body, Match, Route, Router
from logqueue.server.service import Service

logger = logging.getLogger("logqueue.http")


class HttpApi:
    """Admits and answers requests; also an ASGI application for the `http` scope."""

    def __init__(self, service: Service, router: Router, metrics: Metrics) -> None:
        self.service = service
        self.router = router
        self.metrics = metrics

    # -- the stages of a request -----------------------------------------------------------------

    def admit(self, request: Request) -> Route:
        """The checks before the body, and the count of requests in progress.

        Raises:
            LogqueueError: Not admitted.
        """
        match, undecodable = self._match(request)
        request.key = self._authenticate(request, match)
        if undecodable is not None:
            raise undecodable
        route = match.route
        key = request.key
        if key is not None:
            if route is None or not route.stream:
                self.service.enter(key)
                request.is_counted = True
            _require_allowed(key, match)
        if route is None:
            raise _no_route(match)
        return route

    def answer(self, request: Request, route: Route) -> Answer:
        """The checks of the body, then the handler.

        Raises:
            LogqueueError: Refused.
        """
        if route.body is not Body.IGNORED:
            _require_json(request, route)
        assert route.handler is not None
        try:
            return route.handler(request)
        except (TopicNotFound, NotAQueue) as refusal:
            return self._grounded(request, refusal)

    def _grounded(self, request: Request, refusal: LogqueueError) -> Held:
        """A refusal, held until the deletion or creation that it was computed from is durable."""
        engine = self.service.engine
        assert engine is not None
        topic = engine.state.topics.get(request.name)
        durable = max(engine.dropped_mark, topic.mark_durable if topic is not None else 0)
        return Held(0, durable, raising(refusal))

    def refuse(self, request: Request, error: Exception) -> Reply:
        """The reply to a request that failed."""
        if isinstance(error, LogqueueError):
            return error_reply(error)
        logger.error("%s %s failed", request.method, request.route, exc_info=error)
        return error_reply(Internal("the server failed on this request; its log has the details"))

    def finish(self, request: Request, held: Held, waited_ms: float) -> Reply:
        """The reply of an answer whose position is reached."""
        try:
            return held.finish(waited_ms)
        except Exception as error:
            return self.refuse(request, error)

    def leave(self, request: Request, status: int) -> None:
        """The request is answered, or its client gone (status 0)."""
        if request.is_counted:
            self.service.leave(request.key)
            request.is_counted = False
        if status:
            self.metrics.request(request.method, request.route, status, request.total_ms)

    # -- as an ASGI application ------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever happens."""

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        request = Request(
            scope["method"], scope["raw_path"], scope["query_string"], scope["headers"], gone
        )
        status = 0
        try:
            reply = await self._reply(request, receive, send)
            if reply is not None:
                status = reply.status
                await _send(send, reply)
        except ClientGone:
            pass
        finally:
            self.leave(request, status)

    async def _reply(self, request: Request, receive: Receive, send: Send) -> Reply | None:
        try:
            route = self.admit(request)
            if route.stream is not None:
                return await self._stream(request, route.stream, send)
            if route.body is not Body.IGNORED:
                limit = self.service.settings.max_body_bytes
                request.body = await read_body(request, receive, limit)
            answer = self.answer(request, route)
            if isinstance(answer, Reply):
                return answer
            if isinstance(answer, Held):
                return await self._when_held(request, answer)
            return await answer
        except ClientGone:
            raise
        except Exception as error:
            return self.refuse(request, error)

    async def _when_held(self, request: Request, held: Held) -> Reply:
        gate = self.service.gate
        assert gate is not None, "an answer was held before there was a log"
        waited_ms = await gate.wait(held.written, held.durable)
        return self.finish(request, held, waited_ms)

    async def _stream(self, request: Request, stream: StreamHandler, send: Send) -> Reply | None:
        started = False

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await stream(request, sending)
        except (TopicNotFound, NotAQueue) as refusal:
            return await self._when_held(request, self._grounded(request, refusal))
        except (OSError, RuntimeError) as error:
            if not started:
                raise
            # The transport refuses to send: the client is gone.
            raise ClientGone from error
        return None

    # -- checks ----------------------------------------------------------------------------------

    def _match(self, request: Request) -> tuple[Match, InvalidRequest | None]:
        try:
            match = self.router.match(request.method, request.raw_path)
        except InvalidRequest as refusal:
            return Match(None, "", NO_SCOPE, ()), refusal
        request.name = match.name
        if match.route is not None:
            request.route = match.route.pattern
        return match, None

    def _authenticate(self, request: Request, match: Match) -> Key | None:
        ring = self.service.settings.api_keys
        if not ring:
            return None
        route = match.route
        if route is not None and route.probe and not self.service.settings.probe_auth:
            return None
        header = request.header(b"authorization")
        secret = bearer(header)
        if header is None and route is not None and route.stream is not None:
            secret = query_token(request.query_string)
        key = ring.authenticate(secret)
        if key is None:
            raise Unauthorized("send a key this server knows: `Authorization: Bearer <key>`")
        return key


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
    return Reply(replies.encode_error(refusal), refusal.status, headers)


async def _send(send: Send, reply: Reply) -> None:
    await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
    await send({"type": "http.response.body", "body": reply.body})
