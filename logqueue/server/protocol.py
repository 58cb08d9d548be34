"""One HTTP/1.1 connection: uvicorn's, with a short cut, bounds and this server's error replies.

Owns: which way a request goes (the short cut is for small complete ones); the time a client may
take to send its request head, and that head's size; where endless replies and WebSockets are
written to. Must not know: routes, what a body says. Everything unusual (large or chunked bodies,
pipelining, HTTP/1.0, refusals before the body) goes uvicorn's way through the same `HttpApi`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from logqueue.errors import InvalidRequest, LogqueueError
from logqueue.server.byte_stream import ByteStream
from logqueue.server.http import HttpApi, error_reply
from logqueue.server.requests import EVENT_STREAM, Request
from logqueue.server.shortcut import Shortcut, encode_reply
from logqueue.server.websocket import WebSocket, is_offered

HEAD_SECONDS_MAX = 60.0
HEAD_BYTES_MAX = 64 << 10
SHORT_BODY_BYTES_MAX = 1 << 20
BACKLOG_BYTES_MAX = 256 << 10


class LogqueueHttpProtocol(HttpToolsProtocol):
    """One connection."""

    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _in_head = False
    _backlog = b""
    _running: RequestResponseCycle | Shortcut | None = None
    _idle_timer: asyncio.TimerHandle | None = None
    _idle_since = 0.0
    _short: Shortcut | None = None
    _stream: ByteStream | None = None

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
        if self._stream is not None:
            self._stream.lose()
        super().connection_lost(exc)
        # Requests know their connection. Left so, each connection would be work for the garbage
        # collector.
        self.cycle = None  # type: ignore[assignment]
        self._idle_timer = self._running = self._short = None

    def pause_writing(self) -> None:
        """The client reads too slowly for what is written to it."""
        super().pause_writing()
        if self._stream is not None:
            self._stream.pause(True)

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        if self._stream is not None:
            self._stream.pause(False)

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
            rest = data[upgrade.args[0] :]
            if not self._become_websocket(rest):
                self._ignore_upgrade(rest)
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

    def _become_websocket(self, rest: bytes) -> bool:
        """Go on as a WebSocket, if that is what the request is for.

        Returns:
            False when it is a request like any other.
        """
        if self._is_answering() or not is_offered(self.headers):
            return False
        url = httptools.parse_url(self.url)
        method = self.parser.get_method().decode("ascii")
        request = Request(method, url.path, url.query or b"", self.headers, _never)
        api = self.api
        try:
            upgrade = api.upgrade(request)
        except Exception as error:
            reply = api.refuse(request, error)
            api.leave(request, reply.status)
            self.transport.write(encode_reply(reply, keep_alive=False))
            self.transport.close()
            return True
        api.leave(request, 0 if upgrade is None else 101)
        if upgrade is None:
            return False
        handshake, begin = upgrade
        self.transport.write(handshake)
        self._hand_over(begin, partial(api.service.leave_stream, request.key), rest)
        return True

    def _hand_over(
        self, begin: Callable[[WebSocket], object], leave: Callable[[], None], rest: bytes
    ) -> None:
        """Leave the connection to a WebSocket, and what has come behind the handshake too."""
        connections = self.connections

        def over() -> None:
            connections.discard(socket)
            leave()

        bytes_max = self.api.service.settings.max_body_bytes
        socket = WebSocket(self.transport, self.loop, bytes_max, over)
        connections.discard(self)
        connections.add(socket)  # type: ignore[arg-type]
        self._stop_head_timer()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self.transport.set_protocol(socket)
        # Parser and connection know each other.
        self.parser = None  # type: ignore[assignment]
        if self.flow.write_paused:
            socket.pause_writing()
        begin(socket)
        if rest:
            socket.data_received(rest)

    def _is_answering(self) -> bool:
        """Whether a whole request waits for its reply."""
        running = self._running
        if running is None or running.response_complete:
            return False
        return running.is_whole if isinstance(running, Shortcut) else not running.more_body

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
        # The application's only, so that an endless reply can be written straight from here.
        super()._start_asgi_task(cycle, partial(self.api, connection=self))

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
        if self.pipeline or not isinstance(self._running, Shortcut):
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1
        if self._backlog and not self._is_answering() and not self.transport.is_closing():
            data, self._backlog = self._backlog, b""
            self.flow.resume_reading()
            self._feed(data)

    # -- endless replies -------------------------------------------------------------------------

    def open_stream(self, over: Callable[[], None]) -> ByteStream:
        """Begin the endless reply to the request that is answered now: see `Connection`."""
        running = self._running
        assert running is not None and self._stream is None
        is_chunked = isinstance(running, Shortcut) or running.scope["http_version"] == "1.1"
        head = [b"HTTP/1.1 200 OK\r\n", *[b"%b: %b\r\n" % header for header in EVENT_STREAM]]
        if is_chunked:
            head.append(b"transfer-encoding: chunked\r\n")
        if not running.keep_alive:
            head.append(b"connection: close\r\n")
        self.transport.write(b"".join((*head, b"\r\n")))
        if not isinstance(running, Shortcut):
            running.response_started = True

        def close() -> None:
            self._stream = None
            running.response_complete = True
            over()
            if not running.disconnected:
                if not running.keep_alive:
                    self.transport.close()
                self.on_response_complete()

        stream = ByteStream(self.transport, is_chunked=is_chunked, over=close)
        stream.is_paused = self.flow.write_paused
        self._stream = stream
        if self.transport.is_closing():
            self.loop.call_soon(stream.lose)
        return stream

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

    def _shortcut(self) -> Shortcut | None:
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
        short = Shortcut(self, parser.should_keep_alive())
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
        if route.bulk:
            self.api.leave(request, 0)
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
        self.transport.write(encode_reply(error_reply(InvalidRequest(message)), keep_alive=False))
        self.transport.close()


async def _never() -> None:
    await asyncio.get_running_loop().create_future()
