"""One WebSocket connection: messages in, frames out, the closing handshake.

Owns: the upgrade of a connection, what is read from it and when reading pauses, pings. The
handshakes are those of the `websockets` package. Must not know: what messages say.

Every step of the event loop is bounded: many frames in one packet are taken a part at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from websockets.datastructures import Headers
from websockets.frames import CloseCode
from websockets.http11 import Request as HandshakeRequest
from websockets.protocol import Protocol as Frames
from websockets.protocol import Side, State
from websockets.server import ServerProtocol

from logqueue.errors import InvalidRequest, Throttled
from logqueue.server.client_memory import MemoryShare
from logqueue.server.http.heartbeat import Heartbeat
from logqueue.server.http.pace import ADVICE, GRACE_S, Pace
from logqueue.server.http.websocket_frames import (
    ControlFrame,
    Event,
    IncomingFrames,
    WebSocketMessage,
)

PING_INTERVAL_S = 20.0
CLOSE_TIMEOUT_S = 10.0

logger = logging.getLogger("logqueue.websocket")


class SocketListener(Protocol):
    """Who understands the messages of a connection."""

    def message_received(self, text: bytes | None) -> None:
        """A whole text message, which is UTF-8; None for a binary one."""
        ...

    def socket_drained(self) -> None:
        """The client has caught up: `WebSocket.is_paused` is over."""
        ...

    def socket_lost(self) -> None:
        """The connection is closed or closing; nothing more can be sent."""
        ...


def is_offered(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request's headers (names in lower case) offer to go on as a WebSocket."""
    return any(
        name == b"upgrade" and value.strip().lower() == b"websocket" for name, value in headers
    )


def accept(path: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The reply that makes a WebSocket of a connection, as bytes.

    Raises:
        InvalidRequest: The handshake is not one of RFC 6455.
    """
    sent = Headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)
    protocol = ServerProtocol(logger=logger)
    response = protocol.accept(HandshakeRequest(path, sent))
    failure, protocol.handshake_exc = protocol.handshake_exc, None
    protocol.parser.close()
    if failure is not None:
        raise InvalidRequest(f"this is not a WebSocket handshake: {failure}")
    return response.serialize()


def frame(text: bytes) -> bytes:
    """A text message as sent; sockets may share the result."""
    size = len(text)
    if size < 126:
        return b"\x81%c%b" % (size, text)
    if size < 1 << 16:
        return b"\x81\x7e%b%b" % (size.to_bytes(2, "big"), text)
    return b"\x81\x7f%b%b" % (size.to_bytes(8, "big"), text)


class WebSocket(asyncio.Protocol):
    """A connection after its upgrade.

    Attributes:
        is_paused: The client reads more slowly than it is written to; writers wait for
            `socket_drained`.
        listener: Gets the messages; None once the socket closes.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        bytes_max: int,
        share: MemoryShare,
        over: Callable[[], None],
    ) -> None:
        """Take a connection over. Nothing is read before `set_protocol` hands it bytes.

        Args:
            transport: The connection, upgraded.
            loop: Its event loop.
            bytes_max: The longest message that is taken.
            share: Where what is held for this client is entered.
            over: Called once, when the connection is gone.
        """
        self.listener: SocketListener | None = None
        self.is_paused = False
        self._transport = transport
        self._loop = loop
        self._over = over
        self._frames = Frames(Side.SERVER, state=State.OPEN, logger=logger)
        self._incoming = IncomingFrames(bytes_max)
        self._backlog = b""
        self._is_going_on = False
        self._share = share
        self._held_elsewhere = 0
        self._reply_bytes = 0
        self._received = 0
        self._pace: Pace | None = None
        self._reads = self._is_reading_wanted = True
        self._pinged = False
        self._heartbeat = Heartbeat(loop, PING_INTERVAL_S, self._ping_if_silent)
        self._close_timer: asyncio.TimerHandle | None = None
        self._slow_timer: asyncio.TimerHandle | None = None

    # -- sending ---------------------------------------------------------------------------------

    def send(self, framed: bytes) -> None:
        """Send what `frame` made; without effect once the socket closes."""
        if self.listener is not None:
            self._transport.write(framed)

    def close(self, code: CloseCode, reason: str) -> None:
        """Begin the closing handshake; the listener is notified, and nothing more is sent."""
        if self.listener is not None:
            self._frames.send_close(code, reason)
            self._flush()
            self._end()

    def read(self, is_wanted: bool) -> None:
        """Pause or resume the reading of messages."""
        self._is_reading_wanted = is_wanted
        self._adjust_reading()

    @property
    def _may_read(self) -> bool:
        """A client that does not read is not read from: even a ping would be answered."""
        return self._is_reading_wanted and not self.is_paused

    def _adjust_reading(self) -> None:
        """Pause or resume the transport; what has arrived already is handled first."""
        if self._backlog and self._may_read and not self._is_going_on:
            self._is_going_on = True
            self._loop.call_soon(self._go_on)
        reads = self._may_read and not self._backlog
        if reads != self._reads and not self._transport.is_closing():
            self._reads = reads
            if reads:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def shutdown(self) -> None:
        """The server stops: close what is still open."""
        self._transport.close()

    # -- asyncio protocol ------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self._backlog:
            self._backlog += data
        else:
            self._feed(data)

    def _go_on(self) -> None:
        """Take up what has waited."""
        self._is_going_on = False
        if self._backlog and self._may_read and not self._transport.is_closing():
            data, self._backlog = self._backlog, b""
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        """Take a bounded number of frames; the others wait."""
        self._pinged = False
        self._heartbeat.sent(self._loop.time())
        events, self._backlog = self._incoming.feed(data)
        for event in events:
            self._take(event)
        self._flush()
        if self._frames.state is not State.OPEN:
            self._end()
        else:
            self._watch_message(len(data) - len(self._backlog))
        self._adjust_reading()

    def hold(self, size: int) -> None:
        """The listener holds so many bytes for this client from now on.

        Raises:
            Throttled: There is no room for more.
        """
        before, self._held_elsewhere = self._held_elsewhere, size
        try:
            self._note_memory()
        except Throttled:
            self._held_elsewhere = before
            raise

    def _note_memory(self, *, is_forced: bool = False) -> None:
        size = self._incoming.held + len(self._backlog)
        size += self._held_elsewhere + self._reply_bytes
        self._share.resize(size, is_forced=is_forced)

    def _watch_message(self, received: int) -> None:
        """Bound a message that is not whole yet: in memory, and in time."""
        if self._incoming.is_between:
            self._received = 0
            self._pace = None
        if self._incoming.is_between and not self._backlog:
            if self._share.size != self._held_elsewhere:
                self._note_memory(is_forced=True)
            return
        self._received += received
        try:
            self._note_memory()
        except Throttled:
            self.close(CloseCode.TRY_AGAIN_LATER, "no memory left for this message")
            return
        if self._pace is None and not self._incoming.is_between:
            self._pace = Pace(self._loop.time())
            if self._slow_timer is None:
                self._slow_timer = self._loop.call_later(GRACE_S, self._check_message)

    def _check_message(self) -> None:
        """Close on a message that comes too slowly."""
        self._slow_timer = None
        if self._pace is None or self.listener is None:
            return
        now = self._loop.time()
        if now - self._pace.began_s < GRACE_S:
            delay_s = GRACE_S - (now - self._pace.began_s)
            self._slow_timer = self._loop.call_later(delay_s, self._check_message)
        elif self._reads and self._pace.is_too_slow(now, self._received):
            self.close(CloseCode.POLICY_VIOLATION, f"the message came too slowly: {ADVICE}")
        else:
            self._slow_timer = self._loop.call_later(GRACE_S, self._check_message)

    def eof_received(self) -> bool:
        """The client has gone without a closing handshake."""
        return False

    def pause_writing(self) -> None:
        """The client reads too slowly for what is written to it."""
        self.is_paused = True
        self._reply_bytes = self._transport.get_write_buffer_size()
        self._share.memory.stall(self, self._drop)
        self._note_memory(is_forced=True)
        self.read(self._is_reading_wanted)

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.is_paused = False
        self._reply_bytes = 0
        self._share.memory.flow(self)
        self._note_memory(is_forced=True)
        self.read(self._is_reading_wanted)
        if self.listener is not None:
            self.listener.socket_drained()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._backlog = b""
        self._end()
        self._free_memory()
        if self._close_timer is not None:
            self._close_timer.cancel()
        # The parser and its connection know each other, and an error knows both; full garbage
        # collections are rare here.
        self._frames.parser.close()
        self._frames.parser_exc = None
        over, self._over = self._over, _nothing
        over()

    # -- internals -------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        if isinstance(event, WebSocketMessage):
            if self.listener is not None:
                self.listener.message_received(event.text)
        elif isinstance(event, ControlFrame):
            # It answers by itself.
            self._frames.receive_data(event.data)
            self._frames.events_received()
        elif event.code is CloseCode.INVALID_DATA:
            self.close(event.code, event.reason)
        else:
            self._frames.fail(event.code, event.reason)

    def _flush(self) -> None:
        """Send what the protocol itself has to say."""
        for data in self._frames.data_to_send():
            if not self._transport.is_closing():
                if data:
                    self._transport.write(data)
                else:
                    # Both sides have said goodbye.
                    self._transport.close()

    def _end(self) -> None:
        """The socket closes, from whichever side."""
        listener, self.listener = self.listener, None
        if listener is None:
            return
        self._heartbeat.stop()
        self._incoming.discard()
        if self._slow_timer is not None:
            self._slow_timer.cancel()
        self.read(True)
        if not self._transport.is_closing():
            self._close_timer = self._loop.call_later(CLOSE_TIMEOUT_S, self._transport.abort)
        listener.socket_lost()

    def _drop(self) -> None:
        """Memory is short, and this client does not read."""
        self._free_memory()
        self._transport.abort()

    def _free_memory(self) -> None:
        self._held_elsewhere = self._reply_bytes = 0
        self._share.release()
        self._share.memory.flow(self)

    def _ping_if_silent(self) -> None:
        """Ping a client that was silent for a while; disconnect it if it does not answer."""
        if not self._reads:
            return
        if self._pinged:
            self.close(CloseCode.INTERNAL_ERROR, "ping timeout")
            return
        self._pinged = True
        self._frames.send_ping(b"")
        self._flush()


def _nothing() -> None:
    pass
