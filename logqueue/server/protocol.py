"""One HTTP/1.1 connection: uvicorn's, with a short cut, bounds and this server's error replies.

Owns: the short cut for small complete requests, which are answered without a task or ASGI messages
of their own; the time a client may take to send its request head, and that head's size. Must not
know: routes, what a body says. Everything unusual (streams, large or chunked bodies, pipelining,
HTTP/1.0, upgrades, refusals before the body) goes uvicorn's way through the same `HttpApi`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from logqueue import replies
from logqueue.errors import InvalidRequest, LogqueueError
from logqueue.server.http import HttpApi
from logqueue.server.requests import ClientGone, Held, Reply, Request
from logqueue.server.routing import Route

HEAD_SECONDS_MAX = 60.0
HEAD_BYTES_MAX = 64 << 10
SHORT_BODY_BYTES_MAX = 1 << 20
BACKLOG_BYTES_MAX = 256 << 10

_STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}


class LogqueueHttpProtocol(HttpToolsProtocol):
    """One connection."""

    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _in_head = False
    _backlog = b""
    _running: RequestResponseCycle | _Shortcut | None = None
    _idle_timer: asyncio.TimerHandle | None = None
    _idle_since = 0.0
    _short: _Shortcut | None = None

    @property
    def api(self) -> HttpApi:
        """The application behind this connection."""
        api: HttpApi = self.config.app.api  # type: ignore[union-attr]
        return api

    # -- uvicorn's callbacks ---------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """A client has connected; its first request head is awaited."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._start_idle_timer(self.timeout_keep_alive)
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: whoever is still being answered learns of it."""
        self._stop_head_timer()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        short = self._short
        if short is not None and not short.is_whole:
            self.api.leave(short.request, 0)
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more. A reply that the log holds back still goes out; one that may
        be long in coming does not, since most who send this have hung up altogether."""
        if self._short is None or not self._short.is_held:
            return False
        self._short.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        """Bytes have come. While a request is answered they wait; reading goes on, since that is
        how a client that hangs up is noticed."""
        if self._backlog or self._is_answering():
            self._backlog += data
            if len(self._backlog) > BACKLOG_BYTES_MAX:
                self.flow.pause_reading()
            return
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        """Parse bytes. A head that is not whole yet is bounded in time and size."""
        self._unset_keepalive_if_required()
        was_in_head = self._in_head
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            self._refuse("the bytes sent are no HTTP/1.1 request")
            return
        if self._in_head:
            self._head_bytes += len(data) if was_in_head else 0
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse(f"the request head is over {HEAD_BYTES_MAX} bytes")
            elif self._head_timer is None:
                self._start_head_timer()

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Take a request that offers another protocol for the HTTP/1.1 request that it is too.

        The parser stops behind the head of such a request, so the head is parsed once more
        without the offer, and what follows it is framed as usual.
        """
        offer = (b"upgrade", b"http2-settings", b"connection")
        head = [b"%b %b HTTP/1.1\r\n" % (self.parser.get_method(), self.url)]
        head += [b"%b: %b\r\n" % header for header in self.headers if header[0] not in offer]
        self.parser = httptools.HttpRequestParser(self)
        self._feed(b"".join((*head, b"\r\n", rest)))

    def _is_answering(self) -> bool:
        """Whether a whole request waits for its reply."""
        running = self._running
        if running is None or running.response_complete:
            return False
        return running.is_whole if isinstance(running, _Shortcut) else not running.more_body

    def on_message_begin(self) -> None:
        """The first byte of a request. What ASGI needs is built only when it is needed."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._in_head = True

    def on_headers_complete(self) -> None:
        """The head is whole: take the short cut, or uvicorn's way."""
        self._in_head = False
        self._stop_head_timer()
        if self.parser.should_upgrade():
            return
        short = self._shortcut()
        if short is not None:
            self._short = self._running = short
            self.cycle = short  # type: ignore[assignment]
            return
        self._short = None
        url, headers, expect = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expect
        self.headers.extend(headers)
        super().on_headers_complete()
        if self.pipeline:
            # Paused by uvicorn; but see `data_received`.
            self.flow.resume_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if self.parser.should_upgrade():
            return
        if self._short is not None:
            self._short.parts.append(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self.parser.should_upgrade():
            return
        if self._short is not None:
            self._short.answer()
        else:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """A request is answered; the connection is free for what comes next."""
        self._idle_since = self.loop.time()
        if self.pipeline or not isinstance(self._running, _Shortcut):
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1
        if self._backlog and not self._is_answering() and not self.transport.is_closing():
            data, self._backlog = self._backlog, b""
            self.flow.resume_reading()
            self._feed(data)

    # -- inside ----------------------------------------------------------------------------------

    def _start_idle_timer(self, delay_s: float) -> None:
        self._idle_timer = self.loop.call_later(delay_s, self._close_if_idle)

    def _close_if_idle(self) -> None:
        """Close a connection that was kept alive for nothing. One timer looks now and then, since
        a timer for each request would cost as much as the request's parsing."""
        cycle = self.cycle
        idle_s = self.loop.time() - self._idle_since
        if cycle is not None and not cycle.response_complete:
            idle_s = 0.0
        if idle_s < self.timeout_keep_alive:
            self._start_idle_timer(self.timeout_keep_alive - idle_s)
        elif not self.transport.is_closing():
            self.transport.close()

    def _shortcut(self) -> _Shortcut | None:
        parser = self.parser
        method = parser.get_method().decode("ascii")
        busy = self.cycle is not None and not self.cycle.response_complete
        if (
            busy
            or self.flow.write_paused
            or self.expect_100_continue
            or method == "HEAD"
            or parser.get_http_version() != "1.1"
        ):
            return None
        url = httptools.parse_url(self.url)
        short = _Shortcut(self, parser.should_keep_alive())
        request = Request(method, url.path, url.query or b"", self.headers, short.gone)
        declared = request.declared_bytes()
        if declared is None:
            if request.header(b"transfer-encoding") is not None:
                return None
        elif declared > min(SHORT_BODY_BYTES_MAX, self.api.service.settings.max_body_bytes):
            return None
        try:
            route = self.api.admit(request)
        except LogqueueError:
            # Cold, and the body is not even looked at: the general way will find the same.
            self.api.leave(request, 0)
            return None
        if route.stream is not None:
            return None
        short.request, short.route = request, route
        return short

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS_MAX, self._give_up_on_head)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        self._head_bytes = 0

    def _give_up_on_head(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self._refuse(f"the request head took longer than {HEAD_SECONDS_MAX:.0f} s")

    def _refuse(self, message: str) -> None:
        """Answer bytes that are no request, and hang up; but not before who is still waiting."""
        running = self._running
        if running is not None and self._is_answering():
            running.keep_alive = False
            return
        body = replies.encode_error(InvalidRequest(message))
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body)
        )
        self.transport.close()


class _Shortcut:
    """One request on the short cut. Stands where uvicorn keeps its request cycle, and has the
    members of it that the connection looks at."""

    __slots__ = (
        "_gone", "disconnected", "is_held", "is_whole", "keep_alive", "parts", "protocol",
        "request", "response_complete", "route",
    )  # fmt: skip

    request: Request
    route: Route

    def __init__(self, protocol: LogqueueHttpProtocol, keep_alive: bool) -> None:
        self.protocol = protocol
        self.keep_alive = keep_alive
        self.parts: list[bytes] = []
        self.is_whole = False
        self.is_held = False
        self.response_complete = False
        self.disconnected = False
        self._gone: asyncio.Future[None] | None = None

    @property
    def message_event(self) -> _Shortcut:
        """What the connection sets when it is lost."""
        return self

    def set(self) -> None:
        """See `message_event`."""
        if self.disconnected and self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    async def gone(self) -> None:
        """Return once the client has hung up."""
        if not self.disconnected:
            if self._gone is None:
                self._gone = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._gone)

    def answer(self) -> None:
        """The request is whole: answer it now, or when its answer may leave."""
        api = self.protocol.api
        request = self.request
        self.is_whole = True
        request.body = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        try:
            answer = api.answer(request, self.route)
        except Exception as error:
            self._send(api.refuse(request, error))
            return
        if isinstance(answer, Held):
            self._hold(answer)
        elif isinstance(answer, Reply):
            self._send(answer)
        else:
            task = self.protocol.loop.create_task(self._await(answer))
            self.protocol.tasks.add(task)
            task.add_done_callback(self.protocol.tasks.discard)

    def _hold(self, held: Held) -> None:
        api = self.protocol.api
        began = time.perf_counter()

        def release(failure: LogqueueError | None) -> None:
            if failure is not None:
                self._send(api.refuse(self.request, failure))
            else:
                waited_ms = (time.perf_counter() - began) * 1000
                self._send(api.finish(self.request, held, waited_ms))

        gate = api.service.gate
        assert gate is not None, "an answer was held before there was a log"
        if gate.reached(held.written, held.durable):
            self._send(api.finish(self.request, held, 0.0))
        else:
            self.is_held = True
            gate.when(held.written, held.durable, release)

    async def _await(self, answer: Coroutine[Any, Any, Reply]) -> None:
        api = self.protocol.api
        try:
            reply = await answer
        except ClientGone:
            api.leave(self.request, 0)
            self.response_complete = True
            del self.request
            return
        except Exception as error:
            reply = api.refuse(self.request, error)
        self._send(reply)

    def _send(self, reply: Reply) -> None:
        protocol = self.protocol
        protocol.api.leave(self.request, 0 if self.disconnected else reply.status)
        # Request and short cut know each other. Left so, every request would be work for the
        # garbage collector, and none of its memory would be used again while it is warm.
        del self.request
        self.response_complete = True
        self.is_held = False
        transport = protocol.transport
        if self.disconnected or transport.is_closing():
            return
        transport.write(
            b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b%b\r\n%b"
            % (
                _STATUS_LINES[reply.status],
                reply.content_type[1],
                len(reply.body),
                b"".join([b"%b: %b\r\n" % header for header in reply.extra_headers]),
                b"" if self.keep_alive else b"connection: close\r\n",
                reply.body,
            )
        )
        if not self.keep_alive:
            transport.close()
        protocol.on_response_complete()
