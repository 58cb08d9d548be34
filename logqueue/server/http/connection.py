"""One HTTP/1.1 connection: requests in order, replies in the same order.

Owns: what a connection does with the bytes that come, how long a client may take to send a request,
which requests are executed before earlier ones are answered, where endless replies and WebSockets
are written to. Must not know: routes, what a body says, how a reply is made.

A request is begun when all before it are answered, with one exception: a request of a short
operation (`Operation.pipelined`) whose head is known follows earlier ones as soon as those have had
their effects, and while nothing but the log holds their replies. So pipelined writes share a sync,
and a client observes what it would if they were taken one by one. All that is due to a client at a
time is written at once.

Every step of the event loop is bounded: a body in many chunks or many requests in one packet are
taken a part at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
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
from logqueue.server.http.head_memo import KNOWN_HEAD_BYTES_MAX, KnownHead
from logqueue.server.http.http2 import PREFACE, Http2Connection
from logqueue.server.http.pace import ADVICE, GRACE_S, Pace
from logqueue.server.http.requests import Fields, Reply
from logqueue.server.http.websocket import WebSocket, is_offered

KEEP_ALIVE_S = 75.0
"""A connection without a request is closed after so long."""
HEAD_SECONDS_MAX = 60.0
BACKLOG_BYTES_MAX = 256 << 10
REQUESTS_PER_STEP = 64
BYTES_PER_STEP = 64 << 10
"""Behind so many bytes of requests a step ends: decoding them is what takes time."""
PIPELINED_MAX = 128
"""So many requests of one connection are in progress at most."""
PIPELINED_BYTES = 2 << 10
"""What a request costs that waits for the log behind another one of its connection."""
JOINED_BYTES_MAX = 64 << 10
"""Replies are written together up to about this length."""
DELIVERED_BYTES_MAX = 1 << 20
"""So much of what is due is written in one step."""
NEVER = 1 << 62
"""More bytes than any backlog has."""

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
        # Requests that are begun and not answered yet, in order; the last may not be whole.
        self._line: deque[HttpExchange] = deque()
        self._body: IncomingBody | None = None
        self._head = b""
        self._backlog = bytearray()
        # Only with so many bytes more does the backlog hold a request that may be begun.
        self._missing_bytes = 0
        # What is written at the end of this step; None outside of one.
        self._joined: list[bytes] | None = None
        self._joined_bytes = self._sent_bytes = 0
        self._is_delivering = False
        self._is_going_on = False
        self._is_lingering = False
        self._saw_end = False
        self._begun = 0
        self._is_reading = True
        self._is_write_paused = False
        self._drained: asyncio.Future[None] | None = None
        self._share = MemoryShare(self.api.service.memory)
        self._key: Key | None = None
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
        """The connection is gone: requests still being answered are notified."""
        self._connections.discard(self)
        self._stop_timers()
        line, self._line = self._line, deque()
        for running in line:
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
        self.note_memory(is_forced=True)
        if self._stream is not None:
            self._stream.pause(True)

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._is_write_paused = False
        self._reply_bytes = 0
        self.api.service.memory.flow(self)
        self.note_memory(is_forced=True)
        if self._stall_timer is not None and not self.transport.is_closing():
            self._stall_timer.cancel()
            self._stall_timer = None
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if self._stream is not None:
            self._stream.pause(False)
        else:
            self._deliver_soon()

    def eof_received(self) -> bool:
        """The client sends no more. A reply that waits for the log is still sent; one that may
        be long in coming does not, since most who send this have hung up altogether."""
        line = self._line
        self._saw_end = True
        if line and line[-1].is_whole:
            self.api.decide_now()
            if self._line:
                return self._line[0].is_held
            return bool(self._backlog)
        if self._body is not None or self._head:
            self._refuse(InvalidRequest("the connection was shut before the request was complete"))
            return True
        return bool(self._backlog)

    def data_received(self, data: bytes) -> None:
        """Bytes have come. While a request is answered they wait; reading continues, since that is
        how a client that hangs up is noticed."""
        if self._is_lingering:
            return
        if self._backlog or ((self._line or self._is_write_paused) and self._is_busy):
            self._wait(data)
            if self._may_go_on():
                self._go_on_soon()
        else:
            self._feed(data)

    def shutdown(self) -> None:
        """The server stops: close now, or behind the reply that is due."""
        if self._line and not self._is_lingering:
            self._line[-1].keep_alive = False
        else:
            self.transport.close()

    # -- input -----------------------------------------------------------------------------------

    @property
    def _is_busy(self) -> bool:
        """Whether no request may be begun: a whole one waits for its reply and nothing may follow
        it, or the replies wait for their reader."""
        if self._is_write_paused:
            return True
        line = self._line
        if not line or not line[-1].is_whole:
            return False
        return len(line) >= PIPELINED_MAX or not line[-1].may_be_followed

    def _wait(self, data: bytes) -> None:
        """Keep bytes for later; too many stop the reading. Without memory for them the connection
        ends behind the reply that is due, or a refusal of the request that they complete."""
        self._backlog += data
        try:
            self.note_memory()
        except Throttled as refusal:
            self._backlog.clear()
            if self._line and not self._line[-1].is_whole:
                self._refuse(refusal)
                return
            self._is_lingering = True
            if self._line:
                self._line[-1].keep_alive = False
            else:
                self._end()
            return
        if len(self._backlog) > BACKLOG_BYTES_MAX and self._is_reading:
            self._is_reading = False
            self.transport.pause_reading()

    def _may_go_on(self) -> bool:
        """Whether something of the backlog may be taken now."""
        if not self._backlog or self._is_busy:
            return False
        return not self._line or len(self._backlog) >= self._missing_bytes

    def _go_on_soon(self) -> None:
        if not self._is_going_on:
            self._is_going_on = True
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Take up what has waited."""
        self._is_going_on = False
        if self._is_busy or self._is_lingering or self.transport.is_closing():
            return
        if self._line and self._line[-1].is_whole and self.api.has_enough:
            self._go_on_soon()
            return
        data = bytes(self._backlog)
        self._backlog.clear()
        self._missing_bytes = 0
        if not self._is_reading:
            self._is_reading = True
            self.transport.resume_reading()
        if data:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        """Take bytes, up to the first request that must wait."""
        at = 0
        self._joined = []
        try:
            for _ in range(REQUESTS_PER_STEP):
                body, before = self._body, at
                at = self._take(data, at)
                if self._successor is not None:
                    self._flush()
                    if at < len(data):
                        self._successor.data_received(data[at:] if at else data)
                    return
                if at == len(data) or at == before or self._is_lingering or self._is_busy:
                    break
                if at >= BYTES_PER_STEP:
                    break
                if body is not None and body is self._body:
                    # It had its share of this step.
                    break
            if self._line and self._line[0].due is not None:
                self._deliver_due()
        except LogqueueError as refusal:
            self._refuse(refusal)
        except Exception:
            self._fail()
            return
        if self._joined:
            self._flush()
        self._joined = None
        if at < len(data) and not self._is_lingering:
            self._wait(data[at:] if at else data)
            if self._may_go_on():
                self._go_on_soon()
        elif self._saw_end:
            self._close_behind_the_last()
        if self._head or self._body is not None or self._share.size or len(self._line) > 1:
            self._note_unfinished()
        if self._slow_timer is not None or self._head or self._body is not None:
            self._watch_reading()

    def _fail(self) -> None:
        """Break off a connection on which the server failed."""
        # Without what was sent: it may hold a key.
        logger.exception("a connection failed")
        self._joined = None
        self.transport.abort()

    def _take(self, data: bytes, at: int) -> int:
        """Take bytes for the request that comes now; returns where those begin that were not taken.

        Raises:
            InvalidRequest: This is not an HTTP/1.1 request.
        """
        if self._body is not None:
            return len(data) - len(self._take_body(self._body, data[at:] if at else data))
        if not self._head:
            if self._line and self.api.has_enough:
                # What waits is decided first, a step in each turn of the loop.
                self._missing_bytes = 0
                return at
            found = self.api.heads.find(data, at, self.api.service.keys)
            if self._line and (found is None or not self._may_follow(found, data, at)):
                if self._line[0].due is not None:
                    self._deliver_due()
                if self._line:
                    self._missing_bytes = _missing(found, data, at)
                    return at
            if found is not None:
                return self._begin_known(found, data)
        return len(data) - len(self._take_head(data[at:] if at else data))

    def _take_body(self, body: IncomingBody, data: bytes) -> bytes:
        running = self._line[-1]
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
            self._become_http2(data)
            return b""
        end = data.find(b"\r\n\r\n", max(before - 3, 0))
        if end < 0 or end > HEAD_BYTES_MAX:
            if len(data) > HEAD_BYTES_MAX:
                raise InvalidRequest(f"the request head is over {HEAD_BYTES_MAX} bytes")
            if len(data) < 8192 or before < 8192:
                require_beginning(data)
            self._head = data
            return b""
        self._head = b""
        text = data[: end + 4]
        head = parse_head(text)
        if head.body_bytes > 0:
            begin, stop = end + 4, end + 4 + head.body_bytes
            self._begin(head, text, data[begin:stop] if stop <= len(data) else None)
            return data[stop:] if self._body is None else data[begin:]
        self._begin(head, text, b"" if not head.body_bytes else None)
        return data[end + 4 :]

    def _begin(self, head: RequestHead, text: bytes, content: bytes | None) -> None:
        """Begin a request: its head is whole, and so is the body unless `content` is None."""
        running = HttpExchange(self, head.keep_alive, head.is_http_11)
        self._line.append(running)
        self._begun += 1
        try:
            limit = running.admit(head)
            request = running.request
            self._key = request.key
            self.api.heads.keep(text, head, request, running.route, limit, self.api.service.keys)
            if running.route.socket is not None and self._becomes_websocket(head, running):
                return
        except Exception as error:
            running.refusal = self.api.refuse(running.request, error)
            limit = -1
            if head.method == "CONNECT":
                running.keep_alive = False
        if content is not None:
            running.answer(content if limit >= 0 else b"")
        else:
            self._await_body(running, head.body_bytes, limit, head.expects_continue)

    def _may_follow(self, found: tuple[KnownHead, int, int], data: bytes, at: int) -> bool:
        """Whether a request may be begun behind those that are not answered yet.

        They count as one in progress together, so they need to have one key.
        """
        known, begin, size = found
        key, first = known.key, self._line[0]
        held = PIPELINED_BYTES * len(self._line) + len(data) - at - self._share.size
        return (
            known.route.pipelined
            and begin + size <= len(data)
            and not first.is_complete
            and key is first.request.key
            and (key is None or first.request.is_counted)
            and self._is_observed_by(known)
            and self.api.service.memory.has_room("" if key is None else key.id, held)
        )

    def _is_observed_by(self, known: KnownHead) -> bool:
        """See to it that a request that is begun now observes all before it; False when it would
        not. A request not decided yet came after those that are, in the order of decisions."""
        for running in reversed(self._line):
            if running.pending is not None:
                return running.precedes(known)
        return True

    def _begin_known(self, found: tuple[KnownHead, int, int], data: bytes) -> int:
        """Begin a request whose head is known; returns where the bytes begin that are not taken."""
        known, begin, size = found
        running = HttpExchange(self, True)
        is_first = not self._line
        self._line.append(running)
        self._begun += 1
        self._key = known.key
        limit = known.body_bytes_max
        try:
            running.admit_known(known, size, is_counted=is_first)
        except LogqueueError as refusal:
            running.refusal = self.api.refuse(running.request, refusal)
            limit = -1
        stop = begin + size
        if stop <= len(data):
            running.answer(data[begin:stop] if limit >= 0 else b"")
            return stop
        self._await_body(running, size, limit, expects_continue=False)
        return begin

    def _await_body(
        self, running: HttpExchange, body_bytes: int, limit: int, expects_continue: bool
    ) -> None:
        """The rest of a body is still to come; a `limit` of -1 is for one that is not read."""
        is_kept = limit >= 0
        if not is_kept:
            limit = IGNORED_BODY_BYTES_MAX
            if body_bytes > limit or expects_continue:
                self._answer_and_linger(running)
                return
        if expects_continue:
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._body = IncomingBody(body_bytes, limit, is_kept=is_kept)

    def _answer_and_linger(self, running: HttpExchange) -> None:
        """Answer a request whose body is not wanted, and end the connection behind the reply."""
        self._body = None
        running.keep_alive = False
        self._is_lingering = True
        running.answer(b"")

    def _refuse(self, refusal: LogqueueError) -> None:
        """Answer bytes that are not a request, and hang up."""
        line, self._line = self._line, deque()
        for running in line:
            if not running.is_complete:
                self.api.leave(running.request, refusal.status)
                running.lose()
        self._body = None
        self._head = b""
        self._is_lingering = True
        if not self.transport.is_closing():
            self._write(encode_reply(error_reply(refusal), keep_alive=False))
            self._end()

    # -- memory ----------------------------------------------------------------------------------

    def note_memory(self, *, is_forced: bool = False) -> None:
        """See `ReplyWriter`."""
        size = len(self._head) + len(self._backlog) + self._reply_bytes
        for running in self._line:
            size += running.held_bytes
        size += PIPELINED_BYTES * max(len(self._line) - 1, 0)
        body = self._body
        if body is not None:
            size += body.held
        self._share.belong(self._key.id if self._key is not None else "")
        self._share.resize(size, is_forced=is_forced)

    def _note_unfinished(self) -> None:
        """Enter a request that is not whole; without room it is refused."""
        try:
            self.note_memory()
        except Throttled as refusal:
            if not self._is_busy and not (self._line and self._line[-1].is_whole):
                self._refuse(refusal)
            self.note_memory(is_forced=True)

    def _drop(self) -> None:
        """Memory is short, and this client does not read."""
        self._free_memory()
        self.transport.abort()

    def _free_memory(self) -> None:
        self._reply_bytes = 0
        self._share.release()
        self.api.service.memory.flow(self)

    # -- output ----------------------------------------------------------------------------------

    def write_reply(self, exchange: HttpExchange, reply: Reply, is_head: bool) -> bool:
        """See `ReplyWriter`."""
        if self.transport.is_closing():
            return False
        self._write(encode_reply(reply, exchange.keep_alive, is_head=is_head))
        return True

    def write_head(self, exchange: HttpExchange, status: int, fields: Fields) -> None:
        """See `ReplyWriter`."""
        if not self.transport.is_closing():
            self._write(encode_head(status, fields, exchange.keep_alive))

    def write_part(self, part: bytes | memoryview) -> None:
        """See `ReplyWriter`."""
        self.transport.write(part)

    def on_response_complete(self, exchange: HttpExchange) -> None:
        """See `ReplyWriter`: the connection is free for what comes next."""
        line = self._line
        line.popleft()
        if line:
            # It was counted for all of them.
            if line[0].request.key is not None and not line[0].request.is_counted:
                line[0].count()
        elif self._share.size:
            self.note_memory(is_forced=True)
        self._idle_since = self.loop.time()
        if not exchange.keep_alive:
            self._end()
        elif self._joined is None and (line or self._backlog or self._saw_end):
            self._go_on_behind_replies()

    def reply_due(self, exchange: HttpExchange) -> None:
        """See `ReplyWriter`. Replies leave in the order of requests; those of one step together."""
        if self._joined is not None:
            return
        if len(self._line) == 1 and not self._is_write_paused:
            exchange.deliver()
        else:
            self._deliver_soon()

    def _deliver_soon(self) -> None:
        if not self._is_delivering:
            self._is_delivering = True
            self.loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        """Send what is due, in one write."""
        self._is_delivering = False
        self._joined = []
        try:
            self._deliver_due()
        except Exception:
            self._fail()
            return
        self._flush()
        self._joined = None
        if self._share.size:
            self.note_memory(is_forced=True)
        self._go_on_behind_replies()

    def _deliver_due(self) -> None:
        limit = self._sent_bytes + DELIVERED_BYTES_MAX
        while self._line and self._line[0].due is not None and not self._is_write_paused:
            if self._sent_bytes >= limit:
                self._deliver_soon()
                break
            self._line[0].deliver()

    def _go_on_behind_replies(self) -> None:
        """Some replies are sent: take up what has waited for that."""
        if self._line and self._line[0].due is not None:
            self._deliver_soon()
        if self._may_go_on():
            self._go_on_soon()
        if self._saw_end and (self._line or not self._backlog):
            self._close_behind_the_last()

    def _write(self, wire: bytes) -> None:
        """Send bytes, together with others of this step if there are any."""
        self._sent_bytes += len(wire)
        if self._joined is None:
            self._writing_bytes = len(wire)
            self.transport.write(wire)
            self._writing_bytes = 0
            return
        self._joined.append(wire)
        self._joined_bytes += len(wire)
        if self._joined_bytes >= JOINED_BYTES_MAX:
            self._flush()

    def _flush(self) -> None:
        """Send what waits for the end of this step."""
        parts = self._joined
        if parts:
            self._joined, self._joined_bytes = [], 0
            if not self.transport.is_closing():
                wire = parts[0] if len(parts) == 1 else b"".join(parts)
                self._writing_bytes = len(wire)
                self.transport.write(wire)
                self._writing_bytes = 0

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
        self._flush()
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
        if not self._is_lingering and (not self._line or not self._line[0].is_held):
            self._close()

    def _end(self) -> None:
        """Close behind what is written; wait a little for a client that is still sending."""
        self._flush()
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
        self._flush()
        self._is_lingering = True
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._watch_writing()

    # -- other protocols -------------------------------------------------------------------------

    def _become_http2(self, data: bytes) -> None:
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
        self._successor.data_received(data)

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
        self._line.clear()
        running.end(101)
        handshake, begin = upgrade
        self._flush()
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
        if not self._line and not self._head and not self._backlog:
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
            self._slow_timer = self.loop.call_later(GRACE_S, self._check_reading)

    def _check_reading(self) -> None:
        """Abort a request that comes too slowly."""
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
        self._slow_timer = self.loop.call_later(GRACE_S, self._check_reading)

    def _watch_writing(self) -> None:
        if self._stall_timer is None:
            pending = self.transport.get_write_buffer_size()
            self._stall_timer = self.loop.call_later(WRITE_STALL_S, self._check_writing, pending)

    def _check_writing(self, before: int) -> None:
        """Disconnect a client that does not read its reply. A stream may rest: nothing more is
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


def _missing(found: tuple[KnownHead, int, int] | None, data: bytes, at: int) -> int:
    """How many bytes it takes from a place on before a request there may follow others; more than
    there can be when it never may."""
    if found is not None:
        known, begin, size = found
        is_short = begin + size > len(data)
        return begin + size - at if is_short and known.route.pipelined else NEVER
    sent = len(data) - at
    is_short = sent < KNOWN_HEAD_BYTES_MAX and data.find(b"\r\n\r\n", at) < 0
    return sent + 1 if is_short else NEVER


def encode_head(status: int, fields: Fields, keep_alive: bool) -> bytes:
    """The head of a reply in HTTP/1.1."""
    return b"%b%b%b\r\n" % (
        _STATUS_LINES[status],
        _encode_fields(fields),
        b"" if keep_alive else b"connection: close\r\n",
    )


def _encode_fields(fields: Fields) -> bytes:
    return b"".join([b"%b: %b\r\n" % field for field in fields])


def encode_reply(reply: Reply, keep_alive: bool, *, is_head: bool = False) -> bytes:
    """A complete reply in HTTP/1.1; without its body for a HEAD request."""
    return b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b%b\r\n%b" % (
        _STATUS_LINES[reply.status],
        reply.content_type[1],
        len(reply.body),
        _encode_fields(reply.extra_headers) if reply.extra_headers else b"",
        b"" if keep_alive else b"connection: close\r\n",
        b"" if is_head else reply.body,
    )
