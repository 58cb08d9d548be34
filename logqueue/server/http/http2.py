"""HTTP/2 with prior knowledge: many requests at a time on one connection.

Owns: the frames of a connection and how many of them one client may send, flow control in both
directions, what waits for a window, how long a client may take. The protocol itself is that of the
`h2` package. Must not know: routes, what a body says, how a reply is made.

A stream is to its request what a connection is in HTTP/1.1: it is held up, accounted for and
aborted alone. Every step of the event loop is bounded: many frames in one packet, or much to send,
are taken a part at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from logqueue.errors import InvalidRequest, LogqueueError, PayloadTooLarge, Throttled
from logqueue.server.client_memory import MemoryShare
from logqueue.server.http.api import HttpApi, error_reply
from logqueue.server.http.byte_stream import ByteStream
from logqueue.server.http.exchange import (
    IGNORED_BODY_BYTES_MAX,
    LINGER_S,
    WRITE_STALL_S,
    HttpExchange,
)
from logqueue.server.http.head import CHUNKED, HEAD_BYTES_MAX, RequestHead, assemble_head
from logqueue.server.http.pace import ADVICE, GRACE_S, Pace
from logqueue.server.http.requests import Fields, Reply

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

STREAMS_MAX = 128
WINDOW_BYTES = 1 << 20
FRAME_BYTES_MAX = 16384
FRAMES_PER_STEP = 64
BYTES_PER_STEP = 256 << 10
BACKLOG_BYTES_MAX = 256 << 10
COPIED_BYTES_MAX = 1 << 20
HIGH_WATER_BYTES = 64 << 10
LOW_WATER_BYTES = 16 << 10
"""A stream is paused while more than the first waits for its reader, until no more than the second
does."""
BLOCK_SECONDS_MAX = 60.0
"""A frame, or the frames of one head, must come whole in this time."""

COUNTED_S = 10.0
RESETS_MAX = 200
"""Streams of one connection that may be reset in `COUNTED_S`, by either side."""
CONTROL_FRAMES_MAX = 1000
"""Frames that ask for work and carry nothing (pings, settings, priorities, empty data) in
`COUNTED_S`."""

_DATA, _HEADERS, _PRIORITY, _SETTINGS, _PING, _GOAWAY, _CONTINUATION = 0, 1, 2, 4, 6, 7, 9
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4

logger = logging.getLogger("logqueue.http")


class Http2Connection(asyncio.Protocol):
    """One connection, from its preface on."""

    def __init__(
        self,
        api: HttpApi,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        connections: set[Any],
        tasks: set[asyncio.Task[None]],
        keep_alive_s: float,
    ) -> None:
        """Take a connection over; its preface is the first that `data_received` gets.

        Args:
            api: What answers requests.
            transport: The connection.
            loop: Its event loop.
            connections: The open connections of the server; this one adds and removes itself.
            tasks: Requests of the server that are being answered by a task.
            keep_alive_s: Seconds after which a connection without a stream is closed.
        """
        self.api = api
        self.loop = loop
        self.tasks = tasks
        self.transport = transport
        self.frames = H2Connection(
            H2Configuration(
                client_side=False, header_encoding=None, validate_outbound_headers=False
            )
        )
        self.streams: dict[int, Http2Stream] = {}
        self.is_write_paused = False
        self._waiting: dict[int, Http2Stream] = {}
        self._connections = connections
        self._keep_alive_s = keep_alive_s
        self._backlog = bytearray()
        self._preface_left = len(PREFACE)
        self._block_bytes = 0
        self._partial_since: float | None = None
        self._counted_since = loop.time()
        self._resets = self._controls = 0
        self._last_stream = 0
        self._is_processing = self._is_going_on = self._is_flushing = False
        self._is_draining = self._is_lingering = self._saw_end = False
        self._is_reading = True
        self._idle_since = loop.time()
        self._unread_before = 0
        self._stalled_s = 0.0
        self._share = MemoryShare(api.service.memory)
        self._linger_timer: asyncio.TimerHandle | None = None
        self._timer = loop.call_later(GRACE_S, self._check_times)
        connections.add(self)
        self._greet()

    def _greet(self) -> None:
        settings = {
            SettingCodes.MAX_CONCURRENT_STREAMS: STREAMS_MAX,
            SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
            SettingCodes.MAX_HEADER_LIST_SIZE: HEAD_BYTES_MAX,
            SettingCodes.MAX_FRAME_SIZE: FRAME_BYTES_MAX,
        }
        self.frames.local_settings = Settings(client=False, initial_values=settings)
        self.frames.initiate_connection()
        self.frames.increment_flow_control_window(WINDOW_BYTES - 65535)
        self.write()

    # -- asyncio protocol ------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: requests still being answered are notified."""
        self._connections.discard(self)
        self._timer.cancel()
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        self._lose_streams()
        self._backlog.clear()
        self._free_memory()

    def eof_received(self) -> bool:
        """The client sends no more. As in HTTP/1.1, replies that the log holds back go out."""
        self._saw_end = True
        for stream in list(self.streams.values()):
            if not stream.is_due:
                stream.lose()
        return bool(self.streams)

    def pause_writing(self) -> None:
        """The client reads too slowly for what is written to it."""
        self.is_write_paused = True
        self.api.service.memory.stall(self, self._drop)
        self._note_memory()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.is_write_paused = False
        self.api.service.memory.flow(self)
        self._flush_soon()
        self._go_on_soon()
        self._note_memory()

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if not self._is_lingering:
            self._backlog += data
            if not self._is_going_on:
                self._process()

    def shutdown(self) -> None:
        """The server stops: no new streams, and the end behind the last one."""
        if not self._is_draining:
            self._is_draining = True
            self._say_goaway(ErrorCodes.NO_ERROR)
        self._close_if_done()

    # -- input -----------------------------------------------------------------------------------

    def _go_on_soon(self) -> None:
        if self._backlog and not self._is_going_on:
            self._is_going_on = True
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_going_on = False
        if not self._is_lingering and not self.transport.is_closing():
            self._process()

    def _process(self) -> None:
        """Take a bounded number of whole frames; the others wait. A client that does not read is
        not listened to either: each ping would have to be answered."""
        if not self.is_write_paused:
            stop, is_limited = self._whole_frames()
            if stop:
                data = bytes(self._backlog[:stop])
                del self._backlog[:stop]
                self._partial_since = None
                self._take(data)
            if self._is_lingering:
                return
            if is_limited:
                self._go_on_soon()
            elif not (self._backlog or self._block_bytes):
                self._partial_since = None
            elif self._partial_since is None:
                self._partial_since = self.loop.time()
        reads = len(self._backlog) <= BACKLOG_BYTES_MAX
        if reads != self._is_reading and not self.transport.is_closing():
            self._is_reading = reads
            if reads:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()
        if len(self._backlog) > FRAME_BYTES_MAX or self._share.size:
            self._note_memory()

    def _whole_frames(self) -> tuple[int, bool]:
        """Where the whole frames for this step end, and whether there are more behind them."""
        data = self._backlog
        if self._preface_left:
            if len(data) < self._preface_left:
                return 0, False
            at, self._preface_left = self._preface_left, 0
        else:
            at = 0
        for _ in range(FRAMES_PER_STEP):
            if at + 9 > len(data):
                return at, False
            size = int.from_bytes(data[at : at + 3], "big")
            if size > FRAME_BYTES_MAX:
                # It is refused as soon as its head is seen.
                return len(data), False
            if at + 9 + size > len(data):
                return at, False
            self._count(data[at + 3], data[at + 4], size)
            if self._is_lingering:
                return 0, False
            at += 9 + size
        return at, at < len(data)

    def _count(self, kind: int, flags: int, size: int) -> None:
        """Bound frames that ask for work and carry nothing, and heads in many frames."""
        if kind in (_HEADERS, _CONTINUATION):
            self._block_bytes = 0 if flags & _END_HEADERS else self._block_bytes + size + 9
            if self._block_bytes > HEAD_BYTES_MAX:
                self._end(ErrorCodes.ENHANCE_YOUR_CALM)
        elif (
            kind in (_PING, _SETTINGS, _PRIORITY)
            or kind > _CONTINUATION
            or (kind == _DATA and not size and not flags & _END_STREAM)
        ):
            self._renew_counts()
            self._controls += 1
            if self._controls > CONTROL_FRAMES_MAX:
                self._end(ErrorCodes.ENHANCE_YOUR_CALM)

    def _count_reset(self) -> None:
        """Bound streams that are opened to be reset: each costs more than it carries."""
        self._renew_counts()
        self._resets += 1
        if self._resets > RESETS_MAX:
            self._end(ErrorCodes.ENHANCE_YOUR_CALM)

    def _renew_counts(self) -> None:
        now = self.loop.time()
        if now - self._counted_since >= COUNTED_S:
            self._counted_since = now
            self._resets = self._controls = 0

    def _take(self, data: bytes) -> None:
        try:
            events = self.frames.receive_data(data)
        except ProtocolError:
            # What was refused, and why, is among the data to send.
            self._end(None)
            return
        except Exception:
            logger.exception("an HTTP/2 connection failed")
            self.transport.abort()
            return
        self._is_processing = True
        # The `h2` package is ahead of these events: what it has closed no longer takes a reply.
        gone = {event.stream_id for event in events if isinstance(event, StreamReset)}
        events.sort(key=lambda event: not isinstance(event, StreamReset | ConnectionTerminated))
        for event in events:
            if self._is_lingering:
                break
            if isinstance(event, StreamReset) or getattr(event, "stream_id", None) not in gone:
                self._handle(event)
        self._is_processing = False
        if self._is_lingering:
            return
        self.write()
        self._flush()
        self._close_if_done()

    def _handle(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            self._begin(event)
        elif isinstance(event, DataReceived):
            self._take_data(event)
        elif isinstance(event, StreamEnded):
            stream = self.streams.get(event.stream_id)
            if stream is not None:
                stream.input_ended()
        elif isinstance(event, StreamReset):
            stream = self.streams.get(event.stream_id)
            if stream is not None:
                stream.lose()
            self._count_reset()
        elif isinstance(event, WindowUpdated | RemoteSettingsChanged):
            self._flush_soon()
        elif isinstance(event, ConnectionTerminated):
            self._lose_streams()
            self._close()

    def _begin(self, event: RequestReceived) -> None:
        stream_id = event.stream_id
        self._last_stream = max(self._last_stream, stream_id)
        if self._is_draining:
            self.reset(stream_id, ErrorCodes.REFUSED_STREAM)
            return
        stream = self.streams[stream_id] = Http2Stream(self, stream_id)
        has_body = event.stream_ended is None
        try:
            head = _head(event.headers, has_body)
        except InvalidRequest as refusal:
            stream.refuse(refusal)
            return
        stream.begin(head, has_body)

    def _take_data(self, event: DataReceived) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is not None and event.data:
            stream.data_received(event.data)
        if event.flow_controlled_length:
            # What is kept is accounted for, so the window is open again at once.
            self.frames.acknowledge_received_data(event.flow_controlled_length, event.stream_id)

    # -- output ----------------------------------------------------------------------------------

    def write(self) -> None:
        """Write the frames that are due."""
        data = self.frames.data_to_send()
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def send_headers(self, stream_id: int, fields: list[tuple[bytes, bytes]], ends: bool) -> None:
        """Begin a reply."""
        self.frames.send_headers(stream_id, fields, end_stream=ends)
        self._write_unless_processing()

    def wants_to_send(self, stream: Http2Stream) -> None:
        """A stream has something to send."""
        self._waiting[stream.stream_id] = stream
        if not self._is_processing and not self._is_flushing:
            self._flush()

    def reset(self, stream_id: int, code: ErrorCodes) -> None:
        """Break a stream off."""
        if not self._is_lingering:
            self.frames.reset_stream(stream_id, code)
            self._write_unless_processing()
            if code is not ErrorCodes.NO_ERROR:
                self._count_reset()

    def forget(self, stream: Http2Stream) -> None:
        """A stream is over."""
        self.streams.pop(stream.stream_id, None)
        self._waiting.pop(stream.stream_id, None)
        self._idle_since = self.loop.time()
        if not self._is_processing:
            self._close_if_done()

    def _write_unless_processing(self) -> None:
        if not self._is_processing:
            self.write()

    def _flush_soon(self) -> None:
        if self._waiting and not self._is_flushing:
            self._is_flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what windows allow: a frame of each stream in turn, so much at a step."""
        self._is_flushing = False
        if self._is_lingering or self.transport.is_closing():
            return
        left = BYTES_PER_STEP
        moved = True
        while moved and left > 0 and not self.is_write_paused:
            moved = False
            for stream in list(self._waiting.values()):
                sent = stream.send_frame()
                moved = moved or sent > 0
                left -= sent
                if left <= 0:
                    break
            self.write()
        if left <= 0 and self._waiting and not self.is_write_paused:
            first = next(iter(self._waiting))
            # The first stream is last the next time.
            self._waiting[first] = self._waiting.pop(first)
            self._flush_soon()
        for stream in list(self.streams.values()):
            stream.adjust()

    # -- close -----------------------------------------------------------------------------------

    def _say_goaway(self, code: ErrorCodes) -> None:
        """Announce the end. The `h2` package would take the connection for closed from here on,
        while streams may still be answered."""
        frame = b"\x00\x00\x08%c\x00\x00\x00\x00\x00" % _GOAWAY
        frame += self._last_stream.to_bytes(4, "big") + int(code).to_bytes(4, "big")
        self.write()
        if not self.transport.is_closing():
            self.transport.write(frame)

    def _end(self, code: ErrorCodes | None) -> None:
        """Break the connection off; None when what is to be said is written already."""
        if self._is_lingering:
            return
        if code is None:
            self.write()
        else:
            self._say_goaway(code)
        self._is_lingering = True
        self._lose_streams()
        self._backlog.clear()
        if self.transport.is_closing():
            return
        self.transport.write_eof()
        if not self._is_reading:
            self._is_reading = True
            self.transport.resume_reading()
        self._linger_timer = self.loop.call_later(LINGER_S, self._close)

    def _close_if_done(self) -> None:
        if not self.streams and (self._is_draining or self._saw_end):
            self.write()
            self._close()

    def _close(self) -> None:
        self._is_lingering = True
        self.transport.close()

    def _lose_streams(self) -> None:
        for stream in list(self.streams.values()):
            stream.lose()

    # -- memory and timeouts ---------------------------------------------------------------------

    def _note_memory(self) -> None:
        """Enter what is held for no single stream. It is bounded, and held already."""
        unsent = self.transport.get_write_buffer_size() if self.is_write_paused else 0
        self._share.resize(len(self._backlog) + unsent, is_forced=True)

    def _drop(self) -> None:
        """Memory is short, and this client does not read."""
        self._free_memory()
        self.transport.abort()

    def _free_memory(self) -> None:
        self._share.release()
        self.api.service.memory.flow(self)

    def _check_times(self) -> None:
        """Abort what takes too long: one timer for all streams."""
        self._timer = self.loop.call_later(GRACE_S, self._check_times)
        now = self.loop.time()
        if self._partial_since is not None and now - self._partial_since >= BLOCK_SECONDS_MAX:
            self._end(ErrorCodes.ENHANCE_YOUR_CALM)
            return
        if not self.streams and now - self._idle_since >= self._keep_alive_s:
            if not self._is_lingering:
                self._say_goaway(ErrorCodes.NO_ERROR)
            self._close()
        for stream in list(self.streams.values()):
            stream.look(now)
        self._check_writing()

    def _check_writing(self) -> None:
        unread = self.transport.get_write_buffer_size()
        is_stalled = unread and unread >= self._unread_before
        self._unread_before = unread
        self._stalled_s = self._stalled_s + GRACE_S if is_stalled else 0.0
        if self._stalled_s <= WRITE_STALL_S:
            return
        may_rest = all(each.is_endless for each in self.streams.values())
        if self.transport.is_closing() or not may_rest:
            self.transport.abort()


class Http2Stream:
    """One request and its reply; see `ReplyWriter`.

    Attributes:
        stream_id: Its number on the connection.
    """

    def __init__(self, connection: Http2Connection, stream_id: int) -> None:
        """A stream whose head has come."""
        self.stream_id = stream_id
        self.api = connection.api
        self.loop = connection.loop
        self.tasks = connection.tasks
        self._connection = connection
        self._running: HttpExchange | None = None
        self._content: bytearray | None = None
        self._limit = 0
        self._received = 0
        self._pace = Pace(connection.loop.time())
        self._is_input_over = False
        self._is_over = False
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._ends = self._has_ended = False
        self._sent_since_look = 0
        self._stalled_s = 0.0
        self._is_paused = False
        self._share = MemoryShare(connection.api.service.memory)
        self._body: ByteStream | None = None
        self._drained: asyncio.Future[None] | None = None

    @property
    def is_due(self) -> bool:
        """A reply is on its way, or held until the log is ready, also for a client that has
        stopped sending."""
        running = self._running
        is_held = running is not None and running.is_whole and running.is_held
        return is_held or (self._ends and not self._is_over)

    @property
    def is_endless(self) -> bool:
        """The reply is a stream of events, which may rest."""
        return self._body is not None

    # -- the request -----------------------------------------------------------------------------

    def begin(self, head: RequestHead, has_body: bool) -> None:
        """Take the head of the request."""
        running = self._running = HttpExchange(self, keep_alive=True)
        try:
            limit = running.admit(head)
        except Exception as error:
            running.refusal = self.api.refuse(running.request, error)
            limit = -1
        key = running.request.key
        self._share.belong(key.id if key is not None else "")
        self._limit = IGNORED_BODY_BYTES_MAX if limit < 0 else limit
        if not has_body:
            return
        if limit >= 0:
            self._content = bytearray()
        elif head.body_bytes > self._limit or head.expects_continue:
            running.answer(b"")
        if limit >= 0 and head.expects_continue:
            self._connection.send_headers(self.stream_id, [(b":status", b"100")], ends=False)

    def refuse(self, refusal: LogqueueError) -> None:
        """Answer a request that is none, or that comes no further."""
        running, self._running = self._running, None
        if running is not None and not running.is_complete:
            self.api.leave(running.request, refusal.status)
            running.lose()
        self._content = None
        self._write_whole(error_reply(refusal), is_head=False)
        self._finish()

    def data_received(self, data: bytes) -> None:
        """A part of the body."""
        running = self._running
        if running is None or running.is_whole:
            return
        self._received += len(data)
        if self._received > self._limit:
            refusal = PayloadTooLarge(f"the body is over the limit of {self._limit} bytes")
            if self._content is not None:
                running.refusal = self.api.refuse(running.request, refusal)
            self._content = None
            running.answer(b"")
            return
        if self._content is not None:
            self._content += data
            try:
                self.note_memory()
            except Throttled as throttled:
                self.refuse(throttled)

    def input_ended(self) -> None:
        """The request is whole."""
        self._is_input_over = True
        running = self._running
        if running is None or running.is_whole:
            return
        content, self._content = self._content, None
        if content is None:
            running.answer(b"")
        elif len(content) <= COPIED_BYTES_MAX:
            running.answer(bytes(content))
        else:
            running.answer(cast(bytes, content))
        if not self._is_over:
            self.note_memory(is_forced=True)

    def lose(self) -> None:
        """The stream is gone: reset, or its connection is."""
        if self._is_over:
            return
        self._close()
        running, self._running = self._running, None
        if running is not None and not running.is_complete:
            running.lose()
        if self._body is not None:
            self._body.lose()

    def look(self, now: float) -> None:
        """Abort a body that comes too slowly, or a reply that is not read."""
        running = self._running
        if running is not None and not running.is_whole:
            is_old = now - self._pace.began_s >= GRACE_S
            if is_old and self._pace.is_too_slow(now, self._received):
                self.refuse(InvalidRequest(f"the request body came too slowly: {ADVICE}"))
            return
        is_stalled = bool(self._unsent_bytes) and not self._sent_since_look
        self._sent_since_look = 0
        self._stalled_s = self._stalled_s + GRACE_S if is_stalled else 0.0
        if self._stalled_s > WRITE_STALL_S and not self.is_endless:
            self.abort()

    # -- the reply, as a ReplyWriter -------------------------------------------------------------

    def write_reply(self, exchange: HttpExchange, reply: Reply, is_head: bool) -> bool:
        """See ReplyWriter."""
        if self._is_over:
            return False
        self._write_whole(reply, is_head)
        return True

    def _write_whole(self, reply: Reply, is_head: bool) -> None:
        length = (b"content-length", b"%d" % len(reply.body))
        self._send_head(reply.status, (reply.content_type, length, *reply.extra_headers))
        if not is_head:
            self._add(reply.body)

    def write_head(self, exchange: HttpExchange, status: int, fields: Fields) -> None:
        """See ReplyWriter."""
        if not self._is_over:
            self._send_head(status, fields)

    def write_part(self, part: bytes | memoryview) -> None:
        """See ReplyWriter."""
        self.write(part)

    async def drained(self) -> None:
        """See ReplyWriter."""
        if self._is_paused and not self._is_over:
            self._drained = self.loop.create_future()
            await self._drained

    def open_stream(
        self, running: HttpExchange, status: int, fields: Fields, over: Callable[[], None]
    ) -> ByteStream:
        """See ReplyWriter."""

        def close() -> None:
            self._body = None
            running.is_complete = True
            over()
            self._finish()

        body = ByteStream(cast(asyncio.Transport, self), is_chunked=False, over=close)
        self._body = body
        if self._is_over:
            self.loop.call_soon(body.lose)
        else:
            self._send_head(status, fields)
        return body

    def on_response_complete(self, exchange: HttpExchange) -> None:
        """See ReplyWriter."""
        self._running = None
        if exchange.keep_alive:
            self._finish()
        else:
            # What was announced could not be completed.
            self.abort()

    def reply_due(self, exchange: HttpExchange) -> None:
        """See ReplyWriter. Replies of different streams do not wait for each other."""
        exchange.deliver()

    # -- flow control ----------------------------------------------------------------------------

    def write(self, data: bytes | memoryview) -> None:
        """Send a part of the body, as the transport of a `ByteStream`."""
        if not self._is_over:
            self._add(data)
            self._connection.wants_to_send(self)

    def abort(self) -> None:
        """Break the stream off."""
        if not self._is_over:
            self._connection.reset(self.stream_id, ErrorCodes.INTERNAL_ERROR)
            self.lose()

    def _send_head(self, status: int, fields: Fields) -> None:
        head = [(b":status", b"%d" % status), *fields]
        self._connection.send_headers(self.stream_id, head, ends=False)

    def _add(self, data: bytes | memoryview) -> None:
        if data:
            self._unsent.append(memoryview(data))
            self._unsent_bytes += len(data)

    def _finish(self) -> None:
        """The reply is complete behind what waits."""
        if not self._is_over:
            self._ends = True
            self._connection.wants_to_send(self)

    def send_frame(self) -> int:
        """Send a frame, if the windows allow any; returns its length with its head."""
        frames = self._connection.frames
        if not self._unsent_bytes:
            self._connection._waiting.pop(self.stream_id, None)
            if self._ends and not self._is_over:
                frames.end_stream(self.stream_id)
                self._ended()
                return 9
            return 0
        size = min(frames.local_flow_control_window(self.stream_id), frames.max_outbound_frame_size)
        size = min(size, FRAME_BYTES_MAX, self._unsent_bytes)
        if size <= 0:
            return 0
        part = b"".join(self._taken(size))
        is_last = self._ends and not self._unsent_bytes
        frames.send_data(self.stream_id, part, end_stream=is_last)
        self._sent_since_look += size
        if is_last:
            self._ended()
        return size + 9

    def _taken(self, size: int) -> Iterator[memoryview]:
        """The first bytes that wait; they wait no longer."""
        self._unsent_bytes -= size
        while size:
            first = self._unsent.popleft()
            if len(first) > size:
                self._unsent.appendleft(first[size:])
                first = first[:size]
            size -= len(first)
            yield first

    def _ended(self) -> None:
        """The whole reply is sent."""
        self._has_ended = True
        if not self._is_input_over:
            # The rest of the request is not wanted.
            self._connection.reset(self.stream_id, ErrorCodes.NO_ERROR)
        self._close()

    def adjust(self) -> None:
        """Pause or resume who fills the stream, and enter what waits in the books."""
        if self._is_over:
            return
        if not self._is_paused and self._unsent_bytes > HIGH_WATER_BYTES:
            self._is_paused = True
            self.api.service.memory.stall(self, self._drop)
            if self._body is not None:
                self._body.pause(True)
        elif self._is_paused and self._unsent_bytes <= LOW_WATER_BYTES:
            self._is_paused = False
            self.api.service.memory.flow(self)
            self._wake()
            if self._body is not None:
                self._body.pause(False)
        if self._share.size or self._unsent_bytes:
            self.note_memory(is_forced=True)

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def note_memory(self, *, is_forced: bool = False) -> None:
        """Enter in the books what this stream holds.

        Raises:
            Throttled: There is no room, unless forced.
        """
        content = 0 if self._content is None else len(self._content)
        # What is unsent is a part of the reply that the request holds already.
        waiting = 0 if self._running is None else self._running.held_bytes
        size = content + max(waiting, self._unsent_bytes)
        self._share.resize(size, is_forced=is_forced)

    def _drop(self) -> None:
        """Memory is short, and this stream is not read."""
        self.abort()

    def _close(self) -> None:
        self._is_over = True
        self._content = None
        self._unsent.clear()
        self._unsent_bytes = 0
        self._share.release()
        self.api.service.memory.flow(self)
        self._wake()
        self._connection.forget(self)


def _head(fields: list[tuple[bytes, bytes]], has_body: bool) -> RequestHead:
    """The head of a request in HTTP/2, held to the rules of HTTP/1.1.

    Raises:
        InvalidRequest: It breaks them.
    """
    pseudo: dict[bytes, bytes] = {}
    others = []
    for name, value in fields:
        if name[:1] == b":":
            pseudo[name] = value
        else:
            others.append((name, value))
    method = pseudo.get(b":method", b"")
    host = pseudo.get(b":authority")
    target = pseudo.get(b":path", host or b"")
    if target[:1] != b"/" and target != b"*" and method != b"CONNECT":
        raise InvalidRequest("the request target must be a path that begins with '/'")
    head = assemble_head(method, target, host, others)
    if has_body and not head.body_bytes and b"content-length" not in head.fields:
        head.body_bytes = CHUNKED
        head.expects_continue = head.fields.get(b"expect", b"").lower() == b"100-continue"
    return head
