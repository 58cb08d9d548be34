"""The protocol of one WebSocket client: commands, replies, deliveries.

Owns: the commands of one socket, the order of its output, its subscriptions. Must not know: how
frames travel, what is read for subscriptions, or when.

Everything leaves in the order in which it was decided: the ack of a write is placed before the
write can be read, so it always comes before the record.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from functools import partial
from typing import NamedTuple

from websockets.frames import CloseCode

from logqueue.api import frames, replies
from logqueue.api.bodies import feeds as feed_bodies
from logqueue.api.bodies import records as record_bodies
from logqueue.api.bodies.large import LARGE_BYTES, read_packed_message
from logqueue.api.bodies.unknown_members import NAME_CHARS_MAX
from logqueue.api.frames import StreamEvent
from logqueue.core import commands as cmd
from logqueue.errors import (
    Internal,
    InvalidRequest,
    LogqueueError,
    ShuttingDown,
    Throttled,
    TopicNotFound,
)
from logqueue.model.scopes import Scope
from logqueue.server.auth import Key
from logqueue.server.engine.engine import Engine
from logqueue.server.engine.pending import Pending, Spent
from logqueue.server.engine.subscribers import Cursor, Subscriber, Subscription
from logqueue.server.engine.watch_sessions import FOLLOWED_BYTES
from logqueue.server.handlers.appends import (
    append_timings,
    require_config_allowed,
    require_follow_allowed,
)
from logqueue.server.handlers.watch import (
    find_topics,
    marks_of,
    read_options,
    require_topics_allowed,
    starting_place,
)
from logqueue.server.http.api import catch_up, in_steps
from logqueue.server.http.websocket import WebSocket, frame
from logqueue.server.service import Service

OUTBOX_MAX = 16
"""Replies and deliveries that wait to be sent. Commands behind them wait, too."""

MESSAGE_BYTES = 100
"""What a waiting message costs beside its text."""

UNCOUNTED_BYTES = 4096
"""Messages that wait for their answers are in the books of memory from so many bytes on: less is
not worth an entry for each."""

logger = logging.getLogger("logqueue.websocket")


class _Slot:
    """A place in the order of the output; None until its text is known. `cost` is what the message
    that it answers holds meanwhile, in bytes."""

    __slots__ = ("cost", "wire")

    def __init__(self, wire: bytes | None = None) -> None:
        self.wire = wire
        self.cost = 0


class SocketSession(Subscriber):
    """One client of `GET /v0/ws`."""

    def __init__(self, service: Service, key: Key | None, socket: WebSocket) -> None:
        """Begin to serve a socket."""
        super().__init__()
        self._service = service
        self._dispatcher = service.require_serving()
        self.key = key
        self._socket = socket
        self._inbox: deque[bytes | None] = deque()
        self._outbox: deque[_Slot] = deque()
        self._delivery: _Slot | None = None
        self._is_working = False
        self._is_flushing = False
        self._is_ending = False
        self._farewell = "the server is shutting down"
        self._reading: asyncio.Task[None] | None = None
        self._inbox_bytes = self._unanswered_bytes = self._held_bytes = 0
        self._costs: dict[str, int] = {}
        self._followed_bytes = 0
        socket.listener = self
        self._dispatcher.subscriptions.open(self)

    # -- incoming messages -----------------------------------------------------------------------

    def message_received(self, text: bytes | None) -> None:
        """See SocketListener."""
        if not self._is_ending:
            self._inbox.append(text)
            self._work()
            if self._inbox or self._inbox_bytes:
                self._inbox_bytes = sum(len(text or b"") + MESSAGE_BYTES for text in self._inbox)
            self._note_held()

    def _note_held(self) -> None:
        """Enter in the books what waits here; without room for it the socket is closed."""
        try:
            self._hold(self._followed_bytes)
        except Throttled as refusal:
            if not self._is_ending:
                self.end(refusal)

    def _hold(self, followed_bytes: int) -> None:
        size = self._inbox_bytes + followed_bytes
        if self._unanswered_bytes >= UNCOUNTED_BYTES:
            size += self._unanswered_bytes
        if size != self._held_bytes and not self.is_closed:
            self._socket.hold(size)
            self._held_bytes = size

    def socket_drained(self) -> None:
        """See SocketListener."""
        self._work()
        self._dispatcher.subscriptions.resume(self)

    def socket_lost(self) -> None:
        """See SocketListener."""
        self._inbox.clear()
        self._outbox.clear()
        if self._reading is not None:
            self._reading.cancel()
        self._dispatcher.subscriptions.close(self)

    def _work(self) -> None:
        """Execute commands, in order, as long as there is room for what they answer."""
        if self._is_working:
            return
        self._is_working = True
        while self._inbox and self._has_room:
            self._execute(self._inbox.popleft())
        self._is_working = False
        if not self.is_closed:
            if self._inbox_bytes and not self._inbox:
                self._inbox_bytes = 0
                self._note_held()
            self._socket.read(not self._inbox)

    @property
    def _has_room(self) -> bool:
        is_free = self._reading is None and not self._socket.is_paused
        return is_free and len(self._outbox) < OUTBOX_MAX

    def _execute(self, text: bytes | None) -> None:
        slot = _Slot()
        slot.cost = len(text or b"") + MESSAGE_BYTES
        self._unanswered_bytes += slot.cost
        self._outbox.append(slot)
        if text is None:
            advice = "send commands as text messages: JSON, UTF-8"
            self._fill(slot, replies.encode_socket_error(None, "unsupported_message", advice))
            return
        if len(text) > LARGE_BYTES:
            loop = self._dispatcher.loop
            self._reading = loop.create_task(self._execute_large(slot, text), name="large message")
            return
        ignored: list[str] = []
        try:
            message = feed_bodies.read_message(text, ignored.extend)
        except InvalidRequest as refusal:
            self._fill(slot, replies.encode_socket_error(b"null", "invalid_json", refusal.message))
            return
        engine = self._dispatcher.engine
        if (
            isinstance(message, feed_bodies.Publish)
            and (engine.behind or engine.lagging)
            and engine.is_far_behind(message.topic)
        ):
            late = self._execute_late(slot, message, ignored)
            self._reading = self._dispatcher.loop.create_task(late, name="late message")
            return
        self._execute_message(slot, message, ignored)

    async def _execute_late(
        self, slot: _Slot, message: feed_bodies.Publish, ignored: list[str]
    ) -> None:
        """Let what the topic waits for go first; what came behind this message waits, too."""
        await catch_up(self._dispatcher.engine, message.topic)
        self._reading = None
        self._execute_message(slot, message, ignored)
        self._work()

    async def _execute_large(self, slot: _Slot, text: bytes) -> None:
        """Read a large message in steps between other requests; what came behind it waits."""
        ignored: list[str] = []
        try:
            async with self._service.large_bodies:
                message = await in_steps(read_packed_message(text, ignored.extend))
                if isinstance(message, feed_bodies.Publish):
                    await catch_up(self._dispatcher.engine, message.topic)
        except LogqueueError as refusal:
            self._reading = None
            code = "invalid_json" if isinstance(refusal, InvalidRequest) else refusal.code
            self._fill(slot, replies.encode_socket_error(b"null", code, refusal.message))
        else:
            self._reading = None
            self._execute_message(slot, message, ignored)
        self._work()

    def _execute_message(
        self, slot: _Slot, message: feed_bodies.Message, ignored: list[str]
    ) -> None:
        request_id = bytes(message.request_id)
        try:
            answer = self._answer(message, request_id)
        except Exception as error:
            answer = self._refusal(request_id, error)
        if isinstance(answer, Pending):
            answer.when_ready(partial(self._finish, slot, request_id, ignored))
        else:
            self._fill(slot, _naming(ignored, answer))

    def _finish(
        self, slot: _Slot, request_id: bytes, ignored: list[str], pending: Pending[bytes]
    ) -> None:
        """An answer may leave."""
        try:
            text = _naming(ignored, pending.answer())
        except Exception as error:
            text = self._encode_refusal(request_id, error)
        self._fill(slot, text)

    def _encode_refusal(self, request_id: bytes, error: Exception) -> bytes:
        if not isinstance(error, LogqueueError):
            logger.error("a WebSocket command failed", exc_info=error)
            error = Internal("the server failed on this command; its log has the details")
        else:
            # See HttpApi.refuse.
            error.__traceback__ = None
            if self.key is not None:
                error = error.hiding(self.key.allows)
        return replies.encode_socket_error(request_id, error.code, error.message)

    def _refusal(self, request_id: bytes, error: Exception) -> bytes | Pending[bytes]:
        text = self._encode_refusal(request_id, error)
        if isinstance(error, TopicNotFound):
            # The deletion that this was computed from may not be durable yet.
            control_mark = self._dispatcher.engine.control_mark
            return self._dispatcher.hold(text, 0, control_mark, _as_it_is, None)
        return text

    # -- commands --------------------------------------------------------------------------------

    def _answer(self, message: feed_bodies.Message, request_id: bytes) -> bytes | Pending[bytes]:
        if isinstance(message, feed_bodies.Ping):
            return b'{"op":"pong","request_id":%b}' % request_id
        if isinstance(message, feed_bodies.Unsubscribe):
            return self._unsubscribe(message, request_id)
        self._service.require_serving()
        if isinstance(message, feed_bodies.Subscribe):
            return self._subscribe(message, request_id)
        return self._publish(message, request_id)

    def _subscribe(self, message: feed_bodies.Subscribe, request_id: bytes) -> Pending[bytes]:
        self._require(Scope.READ)
        # It begins behind what this socket has published.
        self._dispatcher.turn.run()
        starts = message.starts()
        require_topics_allowed(self.key, starts)
        engine = self._dispatcher.engine
        topics = find_topics(engine, starts, lenient=message.lenient)
        options = read_options(message)
        self._note_followed(dict.fromkeys(topics, FOLLOWED_BYTES + options.cost))
        places = {name: starting_place(topic, starts[name]) for name, topic in topics.items()}
        for name, topic in topics.items():
            cursor = Cursor(places[name]["from_seq"])
            self._dispatcher.subscriptions.add(Subscription(self, name, topic, cursor, options))
        members = replies.encode(places)
        text = b'{"op":"subscribed","request_id":%b,"topics":%b}' % (request_id, members)
        written, durable = marks_of(engine, topics)
        return self._dispatcher.hold(text, written, durable, _as_it_is, None)

    def _unsubscribe(self, message: feed_bodies.Unsubscribe, request_id: bytes) -> bytes:
        names = message.names()
        for name in names:
            subscription = self.subscriptions.get(name)
            if subscription is not None:
                self._costs.pop(name, None)
                self._dispatcher.subscriptions.remove(subscription)
        self._note_followed({})
        members = replies.encode(names)
        return b'{"op":"unsubscribed","request_id":%b,"topics":%b}' % (request_id, members)

    def _note_followed(self, costs: dict[str, int]) -> None:
        """Enter subscriptions in the books.

        Raises:
            Throttled: There is no room for them.
        """
        after = {**self._costs, **costs}
        size = sum(after.values())
        self._hold(size)
        self._costs, self._followed_bytes = after, size

    def _publish(self, message: feed_bodies.Publish, request_id: bytes) -> Pending[bytes]:
        self._require(Scope.WRITE)
        if message.config is not None:
            self._require(Scope.ADMIN)
        require_topics_allowed(self.key, {message.topic: None})
        engine = self._dispatcher.engine
        published = _Published(engine, message, request_id, time.perf_counter())
        if message.config is not None:
            require_config_allowed(self._dispatcher, self.key, message.topic, message.config)
        command = record_bodies.append_command(message.topic, message, None)
        require_follow_allowed(self.key, command.block)
        return self._dispatcher.submit(command, _acked, published)

    def _require(self, scope: Scope) -> None:
        if self.key is not None:
            self.key.require(scope)

    # -- outgoing messages -----------------------------------------------------------------------

    @property
    def can_take(self) -> bool:
        """See Subscriber."""
        return self._has_room and not self._is_ending

    @property
    def shared_form(self) -> str:
        """See Subscriber."""
        return "websocket"

    def encode(self, subscription: Subscription, events: list[StreamEvent]) -> bytes:
        """See Subscriber."""
        return b"".join([frame(frames.encode_message(event)) for event in events])

    def reserve(self) -> None:
        """See Subscriber."""
        self._delivery = _Slot()
        self._outbox.append(self._delivery)

    def deliver(self, wire: bytes, at: float) -> None:
        """See Subscriber."""
        slot, self._delivery = self._delivery, None
        if slot is not None:
            slot.wire = wire
            self._flush()

    def discard(self) -> None:
        """See Subscriber."""
        self.deliver(b"", 0.0)

    def end(self, error: LogqueueError) -> None:
        """See Subscriber: what is decided already is still sent."""
        if not isinstance(error, ShuttingDown):
            self._farewell = error.code
        code = error.code
        if isinstance(error, ShuttingDown):
            code, self._ends_because = frames.SHUTTING_DOWN, "the server is shutting down"
        self._is_ending = True
        self._inbox.clear()
        self._inbox_bytes = 0
        last = replies.encode_socket_error(b"null", code, error.message)
        self._outbox.append(_Slot(frame(last)))
        self._flush()

    def _fill(self, slot: _Slot, text: bytes) -> None:
        slot.wire = frame(text)
        self._unanswered_bytes -= slot.cost
        self._note_held()
        if self._outbox and self._outbox[-1].wire is None:
            # More is to come, likely now: answers of one turn leave in one write.
            if not self._is_flushing:
                self._is_flushing = True
                self._dispatcher.loop.call_soon(self._flush)
            return
        self._flush()

    def _flush(self) -> None:
        """Send what is known, up to the first place of which it is not."""
        self._is_flushing = False
        outbox = self._outbox
        wires: list[bytes] = []
        while outbox and (wire := outbox[0].wire) is not None:
            outbox.popleft()
            if wire:
                wires.append(wire)
        if wires:
            self._socket.send(wires[0] if len(wires) == 1 else b"".join(wires))
        if self.is_closed:
            return
        if self._is_ending:
            if not outbox:
                self._socket.close(CloseCode.GOING_AWAY, self._farewell)
            return
        if self._inbox or self._inbox_bytes:
            self._work()
        if self.news:
            self._dispatcher.subscriptions.resume(self)


class _Published(NamedTuple):
    """A write, and what its ack says beside the result."""

    engine: Engine
    message: feed_bodies.Publish
    request_id: bytes
    began: float


def _acked(write: _Published, result: cmd.AppendResult, spent: Spent) -> bytes:
    message = write.message
    further = append_timings(write.engine, message.topic, result, spent)
    performance = replies.performance(write.began, further)
    return_seqs = message.return_seqs
    return replies.encode_ack(write.request_id, message.topic, result, return_seqs, performance)


def _as_it_is(_: None, text: bytes, spent: Spent) -> bytes:
    return text


def _naming(ignored: list[str], text: bytes) -> bytes:
    """An answer that also names the members of the message which the server ignored."""
    if not ignored:
        return text
    names = [name[:NAME_CHARS_MAX] for name in ignored]
    return b'%b,"ignored":%b}' % (text[:-1], replies.encode(names))
