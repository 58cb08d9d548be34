"""The HTTP door: the same order of checks and the same error envelope for every route.

Owns: authentication, caps, scopes, body policy, error mapping. Must not know: what any route does,
how bytes travel. The order of checks, first failing wins: 401 key, 429 requests in progress, 403
scope and prefix, 404/405 route, 413 size, 415 type, 400 body; then the handler's own.

All requests come from connections (`connection.py`), also those of the server in memory.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar, cast

from logqueue.api import replies
from logqueue.api.bodies.large import LARGE_BYTES
from logqueue.api.operations.row import Body
from logqueue.errors import (
    Forbidden,
    Internal,
    InvalidRequest,
    LogqueueError,
    MethodNotAllowed,
    NotAQueue,
    NotFound,
    RouterNotFound,
    ScheduleNotFound,
    TopicNotFound,
    Unauthorized,
    UnsupportedMediaType,
)
from logqueue.server.auth import Key, bearer, query_token
from logqueue.server.engine.engine import Engine
from logqueue.server.engine.pending import Pending
from logqueue.server.hosts import HostPolicy
from logqueue.server.http.head_memo import HeadMemo
from logqueue.server.http.requests import (
    Answer,
    Begin,
    ForeignRefusal,
    HttpRequest,
    Later,
    PendingReply,
    Reply,
)
from logqueue.server.http.routing import Match, Route, RouteTable
from logqueue.server.http.websocket import WebSocket, accept
from logqueue.server.metrics import Metrics
from logqueue.server.recent import SLOW_FROM_S
from logqueue.server.service import Service
from logqueue.server.settings import is_loopback

STEP_S = 0.003
_UNCHECKED = (Body.IGNORED, Body.UNCHECKED)

T = TypeVar("T")

logger = logging.getLogger("logqueue.http")

CATCH_UP_TURNS_MAX = 1000
"""Turns of the loop that a read waits for routers: producers may be faster than those are."""


class HttpApi:
    """Admits and answers requests."""

    def __init__(self, service: Service, router: RouteTable, metrics: Metrics) -> None:
        self.service = service
        self.router = router
        self.metrics = metrics
        self.heads = HeadMemo()
        settings = service.settings
        self.hosts = HostPolicy(
            has_keys=settings.asks_for_keys,
            is_loopback=is_loopback(settings.host),
            bound=settings.host,
            allowed=settings.allow_host,
        )

    # -- the stages of a request -----------------------------------------------------------------

    def admit(self, request: HttpRequest) -> Route:
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
            if route is None or not (route.stream or route.socket):
                self.service.enter(key)
                request.is_counted = True
            if route is None or not route.late_key:
                _require_allowed(key, match)
        if route is None:
            raise _no_route(match)
        return route

    def answer(self, request: HttpRequest, route: Route) -> Answer:
        """The checks of the body, then the handler.

        Raises:
            LogqueueError: Refused.
        """
        if not request.is_json and route.body not in _UNCHECKED:
            _require_json(request, route)
        if not route.is_read and self.service.lifecycle.following is not None:
            self.service.require_writer()
        if route.in_steps is not None and len(request.body) > LARGE_BYTES:
            request.wait()
            return self._answer_large(request, route, request.body)
        dispatcher = self.service.lifecycle.dispatcher
        if dispatcher is not None:
            engine = dispatcher.engine
            if (engine.behind or engine.lagging) and engine.is_far_behind(request.name):
                return self._answer_behind(request, route)
        return self._handle(request, route)

    async def _answer_large(self, request: HttpRequest, route: Route, body: bytes) -> Reply:
        """Read a large body in steps between other requests, one such body at a time."""
        assert route.in_steps is not None
        async with self.service.large_bodies:
            steps = route.in_steps(body, request.ignore)
            del body
            request.document = await in_steps(steps)
            await catch_up(self.service.engine, request.name)
            answer = self._handle(request, route)
            request.document = None
        assert isinstance(answer, Pending), "writes are held until they are stored"
        return await self._when_ready(request, answer)

    async def _answer_behind(self, request: HttpRequest, route: Route) -> Later:
        """Let what the topic waits for go first, a little in each turn of the loop."""
        await catch_up(self.service.engine, request.name)
        answer = self._handle(request, route)
        if isinstance(answer, Reply):
            return answer
        if isinstance(answer, Pending):
            self.service.require_serving().turn.run()
            if answer.leave is not None:
                return await self.long_poll(request, answer)
            return await self._when_ready(request, answer)
        return await answer

    def _handle(self, request: HttpRequest, route: Route) -> Answer:
        assert route.handler is not None
        try:
            return route.handler(request)
        except (TopicNotFound, RouterNotFound, ScheduleNotFound, NotAQueue) as refusal:
            return self.service.require_serving().refuse(request.name, refusal)

    def long_poll(self, request: HttpRequest, pending: PendingReply) -> Coroutine[Any, Any, Reply]:
        """Wait for something that may never come; the client, or its key, may go before.

        Raises:
            LogqueueError: It may not wait.
        """
        try:
            return long_poll(self.service, request, self._when_ready(request, pending))
        except LogqueueError:
            pending.cancel()
            raise

    @property
    def has_enough(self) -> bool:
        """Whether so much was submitted in this turn of the loop that nothing more is begun ahead
        of a reply."""
        dispatcher = self.service.lifecycle.dispatcher
        return dispatcher is not None and dispatcher.turn.is_full

    def decide_now(self) -> None:
        """Decide what was submitted in this turn of the loop: what waits must be known now."""
        dispatcher = self.service.lifecycle.dispatcher
        if dispatcher is not None:
            dispatcher.turn.run()

    def refuse(self, request: HttpRequest, error: Exception) -> Reply:
        """The reply to a request that failed."""
        if isinstance(error, LogqueueError):
            # A held refusal and the frames it was raised in know each other, and all that the
            # request sent; full garbage collections are rare here.
            error.__traceback__ = None
        elif not isinstance(error, ForeignRefusal):
            logger.error("%s %s failed", request.method, request.route, exc_info=error)
            error = Internal("the server failed on this request; its log has the details")
        if request.refuse is not None:
            return request.refuse(request, error)
        assert isinstance(error, LogqueueError), "other refusals come from routes that show them"
        if isinstance(error, MethodNotAllowed):
            return error_reply(error, self._allow(request))
        return error_reply(error.hiding(request.allows))

    def finish(self, request: HttpRequest, pending: PendingReply) -> Reply:
        """The reply that may leave now."""
        try:
            reply = pending.answer()
        except Exception as error:
            return self.refuse(request, error)
        reply.on_undelivered = pending.on_undelivered
        return reply

    def leave(self, request: HttpRequest, status: int) -> None:
        """The request is answered, or its client gone (status 0)."""
        if request.is_counted:
            self.service.leave(request.key)
            request.is_counted = False
        if status:
            took_s = time.perf_counter() - request.began
            metrics = self.metrics
            metrics.request(request.method, request.route, status, took_s)
            if took_s >= metrics.notes_from_s:
                metrics.note_request(
                    request.method,
                    request.route,
                    request.name,
                    status,
                    took_s,
                    is_slow=not request.is_long,
                )

    def begin_sending(self, request: HttpRequest, status: int) -> None:
        """A reply of many parts is about to be sent: from now on its client decides how long it
        takes."""
        took_s = time.perf_counter() - request.began
        if took_s >= SLOW_FROM_S and not request.is_long:
            slow = self.metrics.slow_requests
            slow.note(request.method, request.route, request.name, status, took_s)
        request.is_long = True

    def begin(self, request: HttpRequest, route: Route) -> Begin | PendingReply:
        """The checks of an endless reply, and the count of open streams.

        Returns:
            What begins the body, once there is a connection for it; the stream is counted then,
            and `Service.leave_stream` is due at its end.

        Raises:
            LogqueueError: Refused.
        """
        assert route.stream is not None
        if not route.is_read:
            self.service.require_writer()
        try:
            begin = route.stream(request)
        except (TopicNotFound, NotAQueue) as refusal:
            return self.service.require_serving().refuse(request.name, refusal)
        if request.method != "HEAD":
            self.service.enter_stream(request.key)
        return begin

    def body_bytes_max(self, route: Route) -> int:
        """The longest body that a route takes, in bytes."""
        most = self.service.settings.max_body_bytes
        return most if route.in_steps is not None else min(most, route.body_bytes_max)

    def upgrade(
        self, request: HttpRequest, route: Route
    ) -> tuple[bytes, Callable[[WebSocket], object]] | None:
        """The checks of a request that offers to go on as a WebSocket, and the count of streams.

        Returns:
            The bytes that accept it, and what begins to serve the socket; `Service.leave_stream`
            is due at its end. None when the route knows of no WebSockets.

        Raises:
            LogqueueError: Refused.
        """
        if route.socket is None or request.method != "GET":
            return None
        begin = route.socket(request)
        handshake = accept(request.raw_path.decode("ascii"), request.headers)
        self.service.enter_stream(request.key)
        return handshake, begin

    async def _when_ready(self, request: HttpRequest, pending: PendingReply) -> Reply:
        await pending.ready()
        return self.finish(request, pending)

    # -- checks ----------------------------------------------------------------------------------

    def _match(self, request: HttpRequest) -> tuple[Match, InvalidRequest | None]:
        try:
            match = self.router.match(request.method, request.raw_path)
        except InvalidRequest as refusal:
            return Match(None), refusal
        request.name = match.name
        request.item = match.item
        if match.route is not None:
            request.route = match.route.pattern
            request.refuse = match.route.refuse
        return match, None

    def _allow(self, request: HttpRequest) -> tuple[bytes, bytes]:
        """The header that says which methods a path takes."""
        methods = [*self.router.match(request.method, request.raw_path).methods]
        if "GET" in methods:
            methods.append("HEAD")
        return b"allow", ", ".join(methods).encode()

    def _authenticate(self, request: HttpRequest, match: Match) -> Key | None:
        ring = self.service.keys
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
        if key is None and (route is None or not route.late_key):
            raise Unauthorized("missing or unknown API key: send `Authorization: Bearer <key>`")
        return key


def _require_allowed(key: Key, match: Match) -> None:
    key.require(match.scope)
    if match.guarded and not key.allows(match.guarded):
        raise Forbidden("this key may not access names outside its prefixes")


def _no_route(match: Match) -> LogqueueError:
    if match.methods:
        return MethodNotAllowed(f"this path takes {', '.join(match.methods)}")
    return NotFound("there is no such route; the API lives below /v0")


def _require_json(request: HttpRequest, route: Route) -> None:
    if not request.body:
        if route.body is Body.OPTIONAL:
            return
        if route.body is Body.NOT_EMPTY:
            raise InvalidRequest("this call needs a JSON body")
    if not route.takes(request.header(b"content-type")):
        raise UnsupportedMediaType("send the body as JSON: `content-type: application/json`")
    if not request.body:
        raise InvalidRequest("this call needs a JSON body")


def error_reply(refusal: LogqueueError, *headers: tuple[bytes, bytes]) -> Reply:
    """A refusal on the wire."""
    if refusal.retry_after_s is not None:
        headers = (*headers, (b"retry-after", b"%d" % refusal.retry_after_s))
    return Reply(replies.encode_error(refusal), refusal.status, headers)


async def catch_up(engine: Engine | None, topic: str) -> None:
    """Let what a topic waits for go first, a little in each turn of the loop."""
    for _ in range(CATCH_UP_TURNS_MAX):
        if engine is None or not engine.is_far_behind(topic):
            break
        engine.catch_up(topic)
        await asyncio.sleep(0)


def long_poll(
    service: Service, request: HttpRequest, work: Coroutine[Any, Any, T]
) -> Coroutine[Any, Any, T]:
    """Await something that may never come, until the client hangs up or its key is removed.

    Returns:
        What to await. It cancels the work and raises `ClientGone`, or `Unauthorized`.

    Raises:
        Throttled: No memory is left for one more request that waits.
        Unauthorized: The key was removed after the head of the request was read.
    """
    request.is_long = True
    try:
        removed = service.key_removed(request.key)
    except Unauthorized:
        work.close()
        raise
    return request.unless_gone(work, removed)


async def in_steps(steps: Generator[None, None, T]) -> T:
    """The result of work that is done in steps, a few milliseconds at a time between others'."""
    while True:
        until = time.perf_counter() + STEP_S
        while time.perf_counter() < until:
            try:
                next(steps)
            except StopIteration as end:
                return cast(T, end.value)
        await asyncio.sleep(0)
