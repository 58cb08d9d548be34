"""One HTTP/1.1 connection: requests in order, each answered before the next is read.

Owns: what a connection does with the bytes that come, how long a client may take to send a request,
what waits behind a request that is being answered, where endless replies and WebSockets are written
to. Must not know: routes, what a body says, how a reply is made.

Every step of the event loop is bounded: a body in many chunks or many requests in one packet are
taken a part at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from logqueue.errors import InvalidRequest, LogqueueError, PayloadTooLarge, Throttled
from logqueue.server.auth import Key
from logqueue.server.client_memory import MemoryShare
from logqueue.server.http.api import HttpApi, error_reply
from logqueue.server.http.body import IncomingBody
from logqueue.server.http.byte_stream import ByteStream
from logqueue.server.http.exchange import (
    IGNORED_BODY_BYTES_MAX,
    LINGER_S,
    WRITE_STALL_S,
    HttpExchange,
)
from logqueue.server.http.head import HEAD_BYTES_MAX, RequestHead, parse_head, require_beginning
from logqueue.server.http.http2 import PREFACE, Http2Connection
from logqueue.server.http.pace import ADVICE, GRACE_S, Pace
from logqueue.server.http.requests import Fields, Reply
from logqueue.server.http.websocket import WebSocket, is_offered

KEEP_ALIVE_S = 75.0
"""A connection without a request is closed after so long."""
HEAD_SECONDS_MAX = 60.0
HEADS_KEPT = 4
HEAD_KEPT_BYTES_MAX = 600
"""Clients send the same few heads again and again."""
BACKLOG_BYTES_MAX = 256 << 10
REQUESTS_PER_STEP = 32

_STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}

logger = logging.getLogger("logqueue.http")


class HttpConnection(asyncio.Protocol):
    """One connection.

    It knows its transport by the interface of asyncio only: a socket, or a buffer in a test.
    """

    def __init__(
        self,
        api: HttpApi,
        loop: asyncio.AbstractEventLoop,
        connections: set[Any],
        tasks: set[asyncio.Task[None]],
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        """A connection that is not open yet.

        Args:
            api: What answers requests.
            loop: The event loop of the transport.
            connections: The open connections of the server; this one adds and removes itself.
            tasks: Requests of the server that are being answered by a task.
            keep_alive_s: Seconds after which an idle connection is closed.
        """
        self.loop = loop
        self.api = api
        self.tasks = tasks
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self._connections = connections
        self._keep_alive_s = keep_alive_s
        self._running: HttpExchange | None = None
        self._body: IncomingBody | None = None
        self._head = b""
        self._heads: dict[bytes, RequestHead] = {}
        self._backlog = bytearray()
        self._is_feeding = False
        self._is_going_on = False
        self._is_lingering = False
        self._saw_end = False
        self._begun = 0
        self._is_reading = True
        self._is_write_paused = False
        self._drained: asyncio.Future[None] | None = None
        self._share = MemoryShare(self.api.service.memory)
        self._key: Key | None = None
        self._request_bytes = 0
        self._reply_bytes = 0
        self._writing_bytes = 0
        self._stream: ByteStream | None = None
        self._successor: WebSocket | Http2Connection | None = None
        self._idle_since = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._slow_timer: asyncio.TimerHandle | None = None
        self._pace = Pace(0.0)
        self._paced_request = 0
        self._stall_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None

    # -- asyncio protocol ------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """A client has connected; its first request head is awaited."""
        self.transport = transport
        self._connections.add(self)
        self._idle_since = self.loop.time()
        self._idle_timer = self.loop.call_later(self._keep_alive_s, self._close_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: whoever is still being answered learns of it."""
        self._connections.discard(self)
        self._stop_timers()
        running, self._running = self._running, None
        if running is not None and not running.is_complete:
            running.lose()
        if self._stream is not None:
            self._stream.lose()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._body = self._drained = None
        self._backlog.clear()
        self._free_memory()

    def pause_writing(self) -> None:
        """The client reads too slowly for what is written to it."""
        self._is_write_paused = True
        self._watch_writing()
        # A reply of which a part is sent is held as a whole.
        size = self.transport.get_write_buffer_size()
        self._reply_bytes = max(size, self._writing_bytes)
        self.api.service.memory.stall(self, self._drop)
        self._note_memory(is_forced=True)
        if self._stream is not None:
            self._stream.pause(True)

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._is_write_paused = False
        self._reply_bytes = 0
        self.api.service.memory.flow(self)
        self._note_memory(is_forced=True)
        if self._stall_timer is not None and not self.transport.is_closing():
            self._stall_timer.cancel()
            self._stall_timer = None
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if self._stream is not None:
            self._stream.pause(False)
        elif self._backlog:
            self._go_on_soon()

    def eof_received(self) -> bool:
        """The client sends no more. A reply that the log holds back still goes out; one that may
        be long in coming does not, since most who send this have hung up altogether."""
        running = self._running
        self._saw_end = True
        if running is not None and running.is_whole:
            return running.is_held
        if self._body is not None or self._head:
            self._refuse(InvalidRequest("the connection was shut before the request was complete"))
            return True
        return bool(self._backlog)

    def data_received(self, data: bytes) -> None:
        """Bytes have come. While a request is answered they wait; reading goes on, since that is
        how a client that hangs up is noticed."""
        if self._is_lingering:
            return
        if self._backlog or self._is_busy:
            self._wait(data)
        else:
            self._feed(data)

    def shutdown(self) -> None:
        """The server stops: close now, or behind the reply that is due."""
        running = self._running
        if running is None or self._is_lingering:
            self.transport.close()
        else:
            running.keep_alive = False

    # -- input -----------------------------------------------------------------------------------

    @property
    def _is_busy(self) -> bool:
        """Whether a whole request waits for its reply, or the last one for its reader."""
        running = self._running
        return (running is not None and running.is_whole) or self._is_write_paused

    def _wait(self, data: bytes) -> None:
        """Keep bytes for later; too many stop the reading. Without memory for them the connection
        ends behind the reply that is due."""
        self._backlog += data
        try:
            self._note_memory()
        except Throttled:
            self._backlog.clear()
            self._is_lingering = True
            if self._running is not None:
                self._running.keep_alive = False
            else:
                self._end()
            return
        if len(self._backlog) > BACKLOG_BYTES_MAX and self._is_reading:
            self._is_reading = False
            self.transport.pause_reading()

    def _go_on_soon(self) -> None:
        if not self._is_going_on:
            self._is_going_on = True
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Take up what has waited."""
        self._is_going_on = False
        if self._is_busy or self._is_lingering or self.transport.is_closing():
            return
        data = bytes(self._backlog)
        self._backlog.clear()
        if not self._is_reading:
            self._is_reading = True
            self.transport.resume_reading()
        if data:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        """Take bytes, up to the first request that cannot be answered at once."""
        self._is_feeding = True
        try:
            for _ in range(REQUESTS_PER_STEP):
                body = self._body
                data = self._take(data)
                if self._successor is not None:
                    if data:
                        self._successor.data_received(data)
                    return
                if not data or self._is_lingering or self._is_busy:
                    break
                if body is not None and body is self._body:
                    # It had its share of this step.
                    break
        except LogqueueError as refusal:
            self._refuse(refusal)
        except Exception:
            # Without what was sent: it may hold a key.
            logger.exception("a connection failed")
            self.transport.abort()
            return
        finally:
            self._is_feeding = False
        if data and not self._is_lingering:
            self._wait(data)
            if not self._is_busy:
                self._go_on_soon()
        elif self._saw_end:
            self._close_behind_the_last()
        if self._head or self._body is not None or self._share.size:
            self._note_unfinished()
        self._watch_reading()

    def _take(self, data: bytes) -> bytes:
        """Take bytes for the request that comes now; returns those that were not taken.

        Raises:
            InvalidRequest: This is not an HTTP/1.1 request.
        """
        body = self._body
        if body is None:
            return self._take_head(data)
        running = self._running
        assert running is not None
        try:
            rest = body.feed(data)
        except PayloadTooLarge as refusal:
            if body.is_kept:
                running.refusal = self.api.refuse(running.request, refusal)
            self._answer_and_linger(running)
            return b""
        if body.is_whole:
            self._body = None
            running.answer(body.take())
        return rest

    def _take_head(self, data: bytes) -> bytes:
        before = len(self._head)
        if before:
            data = self._head + data
        if data[0] in b"\r\n" and not before:
            # Some clients end a body with a line break too many.
            data = data.lstrip(b"\r\n")
            if not data:
                return b""
        if not self._begun and data[:3] == PREFACE[:3] and PREFACE.startswith(data[:24]):
            if len(data) < len(PREFACE):
                self._head = data
                return b""
            self._become_http2()
            return data
        end = data.find(b"\r\n\r\n", max(before - 3, 0))
        if end < 0 or end > HEAD_BYTES_MAX:
            if len(data) > HEAD_BYTES_MAX:
                raise InvalidRequest(f"the request head is over {HEAD_BYTES_MAX} bytes")
            if len(data) < 8192 or before < 8192:
                require_beginning(data)
            self._head = data
            return b""
        self._head = b""
        head = self._parse(data, end + 4)
        if head.body_bytes > 0:
            begin, stop = end + 4, end + 4 + head.body_bytes
            self._begin(head, data[begin:stop] if stop <= len(data) else None)
            return data[stop:] if self._body is None else data[begin:]
        self._begin(head, b"" if not head.body_bytes else None)
        return data[end + 4 :]

    def _parse(self, data: bytes, stop: int) -> RequestHead:
        """Parse a head, unless it is one that this connection sent before, byte for byte."""
        text = data[:stop]
        head = self._heads.get(text)
        if head is None:
            head = parse_head(text)
            if stop <= HEAD_KEPT_BYTES_MAX:
                if len(self._heads) == HEADS_KEPT:
                    self._heads.clear()
                self._heads[text] = head
        return head

    def _begin(self, head: RequestHead, content: bytes | None) -> None:
        """Begin a request: its head is whole, and so is the body unless `content` is None."""
        running = HttpExchange(self, head.keep_alive, head.is_http_11)
        self._running = running
        self._begun += 1
        try:
            limit = running.admit(head)
            self._key = running.request.key
            if running.route.socket is not None and self._becomes_websocket(head, running):
                return
        except Exception as error:
            running.refusal = self.api.refuse(running.request, error)
            limit = -1
            if head.method == "CONNECT":
                running.keep_alive = False
        is_kept = limit >= 0
        if not is_kept:
            limit = IGNORED_BODY_BYTES_MAX
        if content is not None:
            running.answer(content if is_kept else b"")
            return
        if not is_kept and (head.body_bytes > limit or head.expects_continue):
            self._answer_and_linger(running)
            return
        if head.expects_continue:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._body = IncomingBody(head.body_bytes, limit, is_kept=is_kept)

    def _answer_and_linger(self, running: HttpExchange) -> None:
        """Answer a request whose body is not wanted, and end the connection behind the reply."""
        self._body = None
        running.keep_alive = False
        self._is_lingering = True
        running.answer(b"")

    def _refuse(self, refusal: LogqueueError) -> None:
        """Answer bytes that are not a request, and hang up."""
        running, self._running = self._running, None
        if running is not None and not running.is_complete:
            self.api.leave(running.request, refusal.status)
            running.lose()
        self._body = None
        self._head = b""
        self._is_lingering = True
        if not self.transport.is_closing():
            self.transport.write(encode_reply(error_reply(refusal), keep_alive=False))
            self._end()

    # -- memory ----------------------------------------------------------------------------------

    def _note_memory(self, *, is_forced: bool = False) -> None:
        """Enter in the books what this connection holds.

        Raises:
            Throttled: There is no room, unless forced.
        """
        size = len(self._head) + len(self._backlog) + self._request_bytes + self._reply_bytes
        body = self._body
        if body is not None:
            size += body.held
        self._share.belong(self._key.id if self._key is not None else "")
        self._share.resize(size, is_forced=is_forced)

    def _note_unfinished(self) -> None:
        """Enter a request that is not whole; without room it is refused."""
        try:
            self._note_memory()
        except Throttled as refusal:
            if self._is_busy:
                return
            self._refuse(refusal)
            self._note_memory(is_forced=True)

    def hold_request(self, size: int, *, is_forced: bool) -> None:
        """The request that is answered now will wait, and holds so many bytes.

        Raises:
            Throttled: There is no room, unless forced.
        """
        self._request_bytes = size
        try:
            self._note_memory(is_forced=is_forced)
        except Throttled:
            self._request_bytes = 0
            raise

    def _drop(self) -> None:
        """Memory is short, and this client does not read."""
        self._free_memory()
        self.transport.abort()

    def _free_memory(self) -> None:
        self._request_bytes = self._reply_bytes = 0
        self._share.release()
        self.api.service.memory.flow(self)

    # -- output ----------------------------------------------------------------------------------

    def write_reply(self, exchange: HttpExchange, reply: Reply, is_head: bool) -> bool:
        """See `ReplyWriter`."""
        if self.transport.is_closing():
            return False
        wire = encode_reply(reply, exchange.keep_alive, is_head=is_head)
        self._writing_bytes = len(wire)
        self.transport.write(wire)
        self._writing_bytes = 0
        return True

    def write_head(self, exchange: HttpExchange, status: int, fields: Fields) -> None:
        """See `ReplyWriter`."""
        if not self.transport.is_closing():
            self.transport.write(encode_head(status, fields, exchange.keep_alive))

    def write_part(self, part: bytes | memoryview) -> None:
        """See `ReplyWriter`."""
        self.transport.write(part)

    def on_response_complete(self, exchange: HttpExchange) -> None:
        """See `ReplyWriter`: the connection is free for what comes next."""
        self._running = None
        if self._request_bytes:
            self._request_bytes = 0
            self._note_memory(is_forced=True)
        self._idle_since = self.loop.time()
        if not exchange.keep_alive:
            self._end()
        elif not self._is_feeding:
            if self._backlog:
                self._go_on_soon()
            elif self._saw_end:
                self._end()

    async def drained(self) -> None:
        """See `ReplyWriter`."""
        if self._is_write_paused and not self.transport.is_closing():
            self._drained = self.loop.create_future()
            await self._drained

    def open_stream(
        self, running: HttpExchange, status: int, fields: Fields, over: Callable[[], None]
    ) -> ByteStream:
        """See `ReplyWriter`. The body is chunked; for HTTP/1.0 the connection ends behind it."""
        assert self._stream is None
        framing = ((b"transfer-encoding", b"chunked"),) if running.is_http_11 else ()
        self.transport.write(encode_head(status, (*fields, *framing), running.keep_alive))

        def close() -> None:
            self._stream = None
            running.is_complete = True
            over()
            if not running.disconnected:
                self.on_response_complete(running)

        stream = ByteStream(self.transport, is_chunked=running.is_http_11, over=close)
        stream.is_paused = self._is_write_paused
        self._stream = stream
        if self.transport.is_closing():
            self.loop.call_soon(stream.lose)
        return stream

    def _close_behind_the_last(self) -> None:
        """Close a connection whose client sends no more, once all it sent is answered; see
        `eof_received` for what is not waited for."""
        running = self._running
        if not self._is_lingering and (running is None or not running.is_held):
            self._close()

    def _end(self) -> None:
        """Close behind what is written; wait a little for a client that is still sending."""
        self._backlog.clear()
        self._is_lingering = True
        if self._saw_end or self.transport.is_closing():
            self._close()
            return
        self.transport.write_eof()
        if not self._is_reading:
            self._is_reading = True
            self.transport.resume_reading()
        self._linger_timer = self.loop.call_later(LINGER_S, self._close)

    def _close(self) -> None:
        self._is_lingering = True
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._watch_writing()

    # -- other protocols -------------------------------------------------------------------------

    def _become_http2(self) -> None:
        """Leave the connection to HTTP/2: its preface has come in place of a first request."""
        self._head = b""
        self._stop_timers()
        self._free_memory()
        self._connections.discard(self)
        self._successor = Http2Connection(
            self.api, self.transport, self.loop, self._connections, self.tasks, self._keep_alive_s
        )
        self.transport.set_protocol(self._successor)
        if self._is_write_paused:
            self._successor.pause_writing()

    def _becomes_websocket(self, head: RequestHead, running: HttpExchange) -> bool:
        """Go on as a WebSocket, if that is what the request is for.

        Offers of any other protocol are passed over: such a request is an HTTP/1.1 request too.

        Raises:
            LogqueueError: Refused.
        """
        if head.body_bytes or not head.is_http_11:
            return False
        if not is_offered(head.headers) or not head.says(b"connection", b"upgrade"):
            return False
        request = running.request
        upgrade = self.api.upgrade(request, running.route)
        if upgrade is None:
            return False
        self._running = None
        running.end(101)
        handshake, begin = upgrade
        self.transport.write(handshake)
        self._hand_over(begin, request.key)
        return True

    def _hand_over(self, begin: Callable[[WebSocket], object], key: Key | None) -> None:
        """Leave the connection to a WebSocket."""
        connections = self._connections

        def over() -> None:
            connections.discard(socket)
            self.api.service.leave_stream(key)

        service = self.api.service
        key_id = key.id if key is not None else ""
        share = MemoryShare(service.memory, key_id)
        bytes_max = service.settings.max_body_bytes
        socket = WebSocket(self.transport, self.loop, bytes_max, share, over)
        connections.discard(self)
        connections.add(socket)
        self._stop_timers()
        self._free_memory()
        self.transport.set_protocol(socket)
        if self._is_write_paused:
            socket.pause_writing()
        self._successor = socket
        begin(socket)

    # -- timeouts --------------------------------------------------------------------------------

    def _close_if_idle(self) -> None:
        """Close a connection that was kept alive for nothing. One timer looks now and then, since
        a timer for each request would cost as much as the request's parsing."""
        idle_s = 0.0
        if self._running is None and not self._head and not self._backlog:
            idle_s = self.loop.time() - self._idle_since
        if idle_s < self._keep_alive_s:
            delay_s = self._keep_alive_s - idle_s
            self._idle_timer = self.loop.call_later(delay_s, self._close_if_idle)
        else:
            self._close()

    def _watch_reading(self) -> None:
        """Begin to watch a request that is not whole yet, or stop."""
        is_due = not self._is_lingering and (self._body is not None or bool(self._head))
        is_new = self._paced_request != self._begun
        if self._slow_timer is not None and (is_new or not is_due):
            self._slow_timer.cancel()
            self._slow_timer = None
        if is_due and self._slow_timer is None:
            self._paced_request = self._begun
            self._pace = Pace(self.loop.time())
            self._slow_timer = self.loop.call_later(GRACE_S, self._look_at_reading)

    def _look_at_reading(self) -> None:
        """Give up on a request that comes too slowly."""
        self._slow_timer = None
        if self.transport.is_closing() or self._is_lingering:
            return
        now = self.loop.time()
        body = self._body
        if body is None:
            if now - self._pace.began_s >= HEAD_SECONDS_MAX:
                advice = f"the request head took longer than {HEAD_SECONDS_MAX:.0f} s"
                self._refuse(InvalidRequest(advice))
                return
        elif self._pace.is_too_slow(now, body.received):
            self._refuse(InvalidRequest(f"the request body came too slowly: {ADVICE}"))
            return
        self._slow_timer = self.loop.call_later(GRACE_S, self._look_at_reading)

    def _watch_writing(self) -> None:
        if self._stall_timer is None:
            pending = self.transport.get_write_buffer_size()
            self._stall_timer = self.loop.call_later(WRITE_STALL_S, self._look_at_writing, pending)

    def _look_at_writing(self, before: int) -> None:
        """Give up on a client that does not read its reply. A stream may rest: nothing more is
        written to it until it reads again."""
        self._stall_timer = None
        pending = self.transport.get_write_buffer_size()
        if self._stream is None and pending and pending >= before:
            self.transport.abort()
        elif pending:
            self._watch_writing()

    def _stop_timers(self) -> None:
        for timer in (self._idle_timer, self._slow_timer, self._stall_timer, self._linger_timer):
            if timer is not None:
                timer.cancel()
        self._idle_timer = self._slow_timer = self._stall_timer = self._linger_timer = None


def encode_head(status: int, fields: Fields, keep_alive: bool) -> bytes:
    """The head of a reply in HTTP/1.1."""
    return b"%b%b%b\r\n" % (
        _STATUS_LINES[status],
        b"".join([b"%b: %b\r\n" % header for header in fields]),
        b"" if keep_alive else b"connection: close\r\n",
    )


def encode_reply(reply: Reply, keep_alive: bool, *, is_head: bool = False) -> bytes:
    """A complete reply in HTTP/1.1; without its body for a HEAD request."""
    return b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b%b\r\n%b" % (
        _STATUS_LINES[reply.status],
        reply.content_type[1],
        len(reply.body),
        b"".join([b"%b: %b\r\n" % header for header in reply.extra_headers]),
        b"" if keep_alive else b"connection: close\r\n",
        b"" if is_head else reply.body,
    )
