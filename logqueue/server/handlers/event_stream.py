"""One stream of a watch session: events written to its connection.

Owns: the frames of a stream, its ids, heartbeats, its end. Must not know: what is read, or when.
"""

from __future__ import annotations

from logqueue.api import frames
from logqueue.api.frames import StreamEvent
from logqueue.core.topic import Topic
from logqueue.errors import LogqueueError, ShuttingDown
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.engine.subscribers import Subscriber, Subscription
from logqueue.server.engine.watch_sessions import ReaderSession, WatchSessions
from logqueue.server.http.byte_stream import ByteStream
from logqueue.server.http.heartbeat import Heartbeat


class EventStream(Subscriber):
    """A subscriber served by server-sent events."""

    masks_first_loss = True

    def __init__(
        self,
        session: ReaderSession,
        sessions: WatchSessions,
        dispatcher: Dispatcher,
        body: ByteStream,
    ) -> None:
        """Open a stream: it follows the session's topics, as they are now, from now on."""
        super().__init__()
        self.key = session.key
        self._session = session
        self._sessions = sessions
        self._dispatcher = dispatcher
        self._body: ByteStream | None = body
        # A frame's id holds the cursors of all topics; only with one topic can it be shared.
        self._form = None
        if len(session.cursors) == 1:
            self._form = "sse" if body.is_chunked else "sse without chunks"
        self._heartbeat = Heartbeat(dispatcher.loop, session.heartbeat_s, self._beat)
        body.writer = self
        body.write(body.frame(frames.RETRY))
        sessions.opened(session)
        topics: dict[str, Topic] = dispatcher.engine.state.topics
        subscriptions = dispatcher.subscriptions
        subscriptions.open(self)
        for name, cursor in session.cursors.items():
            subscriptions.add(Subscription(self, name, topics.get(name), cursor, session.options))
        if not session.cursors:
            self.run_out()

    # -- subscriber interface --------------------------------------------------------------------

    @property
    def can_take(self) -> bool:
        """See Subscriber."""
        return self._body is not None and not self._body.is_paused

    @property
    def shared_form(self) -> str | None:
        """See Subscriber."""
        return self._form

    def encode(self, subscription: Subscription, events: list[StreamEvent]) -> bytes:
        """See Subscriber."""
        cursors = self._cursors()
        parts: list[bytes] = []
        for event in events:
            cursors[subscription.name] = event.cursor
            parts.append(frames.encode_sse(event, frames.encode_cursors(cursors)))
        assert self._body is not None
        return self._body.frame(b"".join(parts))

    def deliver(self, wire: bytes, at: float) -> None:
        """See Subscriber."""
        if self._body is not None:
            self._body.write(wire)
            self._heartbeat.sent(at)

    def run_out(self) -> None:
        """See Subscriber: a stream ends with the last of its topics."""
        body = self._body
        if body is not None:
            self._close()
            body.end()

    def end(self, error: LogqueueError) -> None:
        """See Subscriber."""
        # What is held was not sent: the id must not include it.
        self._dispatcher.subscriptions.close(self)
        if self._body is not None:
            event_id = frames.encode_cursors(self._cursors())
            code = frames.SHUTTING_DOWN if isinstance(error, ShuttingDown) else error.code
            last = frames.encode_sse_error(code, error.message, event_id)
            self._body.write(self._body.frame(last))
        self.run_out()

    # -- writer interface ------------------------------------------------------------------------

    def stream_drained(self) -> None:
        """See StreamWriter."""
        self._dispatcher.subscriptions.resume(self)

    def stream_lost(self) -> None:
        """See StreamWriter."""
        self._close()

    def _beat(self) -> None:
        if self._body is not None and not self._body.is_paused:
            self._body.write(self._body.frame(frames.HEARTBEAT))

    def _cursors(self) -> dict[str, int]:
        return {name: cursor.seq for name, cursor in self._session.cursors.items()}

    def _close(self) -> None:
        self._body = None
        self._heartbeat.stop()
        self._dispatcher.subscriptions.close(self)
        self._sessions.closed(self._session)
