"""Watch sessions: what a reader follows, and how far each of its streams has come.

Owns: the sessions of a server, their ids and keys, when they expire, and going back to the
cursors that a client brings. Must not know: HTTP, streams, topics' contents.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping

from logqueue.api import frames
from logqueue.errors import InvalidRequest, NotFound, Throttled, Unauthorized
from logqueue.model.limits import WATCH_SESSION_TTL_MS
from logqueue.server.auth import Key
from logqueue.server.client_memory import ClientMemory, MemoryShare
from logqueue.server.engine.subscribers import Cursor, ReadOptions

SESSION_BYTES = 1000
FOLLOWED_BYTES = 400
"""What a session costs, and each topic that it or a socket follows."""
SESSION_TTL_S = WATCH_SESSION_TTL_MS / 1000


class ReaderSession:
    """One reader's set of topics, which never changes, and its cursors, which its streams share.

    Attributes:
        wid: The id that a stream is opened with.
        key: The key that made it, None on a server without keys.
        cursors: By topic, in the order of names.
        heartbeat_s: Silence on a stream after which it gives a heartbeat, in seconds.
        streams: How many are open.
        share: Its part of what is held for clients.
        idle_since: When the last one ended, or the session was made, by the registry's time.
    """

    __slots__ = (
        "cursors", "heartbeat_s", "idle_since", "key", "options", "share", "streams", "wid",
    )  # fmt: skip

    def __init__(
        self, key: Key | None, starts: Mapping[str, int], options: ReadOptions, heartbeat_s: float
    ) -> None:
        self.wid = "wid_" + secrets.token_urlsafe(16)
        self.key = key
        self.cursors = {name: Cursor(starts[name]) for name in sorted(starts)}
        self.options = options
        self.heartbeat_s = heartbeat_s
        self.streams = 0
        self.idle_since = 0.0
        self.share: MemoryShare | None = None

    def rewind(self, event_id: bytes) -> None:
        """Go back to the cursors of a frame that was received; never forward.

        An id that is none of ours is passed over, and so are topics that are not followed.
        """
        try:
            given = frames.decode_cursors(event_id)
        except InvalidRequest:
            return
        for name, seq in given.items():
            cursor = self.cursors.get(name)
            if cursor is not None:
                cursor.seq = min(cursor.seq, seq)

    def require_key(self, key: Key | None) -> None:
        """Check who opens a stream.

        Raises:
            Unauthorized: The caller did not create the session.
        """
        if self.key is not None and (key is None or key.digest != self.key.digest):
            raise Unauthorized("send the key that created this watch session")


class WatchSessions:
    """The sessions of one server. Unused ones are forgotten at the next request."""

    def __init__(self, sessions_max: int, now_s: Callable[[], float], memory: ClientMemory) -> None:
        """An empty registry.

        Args:
            sessions_max: Sessions at most; 0 = unlimited.
            now_s: A monotonic clock, in seconds.
            memory: Where sessions are entered.
        """
        self._sessions_max = sessions_max
        self._now_s = now_s
        self._memory = memory
        self._sessions: dict[str, ReaderSession] = {}
        # Those without a stream, longest idle first.
        self._idle: OrderedDict[str, ReaderSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def forget_expired(self) -> None:
        """Forget sessions that were idle for too long."""
        before = self._now_s() - SESSION_TTL_S
        while self._idle:
            wid, session = next(iter(self._idle.items()))
            if session.idle_since >= before:
                return
            del self._idle[wid], self._sessions[wid]
            if session.share is not None:
                session.share.release()

    def forget_keys_but(self, valid: Collection[Key]) -> None:
        """Forget sessions whose keys are no longer valid; their streams end otherwise."""
        for wid, session in [*self._sessions.items()]:
            if session.key is not None and session.key not in valid:
                del self._sessions[wid]
                self._idle.pop(wid, None)
                if session.share is not None:
                    session.share.release()

    def add(self, session: ReaderSession) -> None:
        """Keep a new session.

        Raises:
            Throttled: The server has all the sessions it may have, or no memory for one more.
        """
        most = self._sessions_max
        if most and len(self._sessions) >= most:
            raise Throttled(
                f"the server already has its maximum of {most} watch sessions; they expire "
                f"{SESSION_TTL_S:.0f} s after their last stream",
                {"limit": "max_watch_sessions", "max": most},
            )
        share = MemoryShare(self._memory, session.key.id if session.key is not None else "")
        share.resize(SESSION_BYTES + len(session.cursors) * FOLLOWED_BYTES + session.options.cost)
        session.share = share
        self._sessions[session.wid] = session
        self._rest(session)

    def find(self, wid: str) -> ReaderSession:
        """A session by its id.

        Raises:
            NotFound: There is none, or it has expired.
        """
        self.forget_expired()
        session = self._sessions.get(wid)
        if session is None:
            raise NotFound(
                "there is no such watch session, or it has expired: create one with POST "
                "/v0/watch, from the cursors you have"
            )
        return session

    def opened(self, session: ReaderSession) -> None:
        """A stream of the session was opened; it cannot expire now."""
        session.streams += 1
        self._idle.pop(session.wid, None)

    def closed(self, session: ReaderSession) -> None:
        """A stream of the session has ended."""
        session.streams -= 1
        assert session.streams >= 0
        if not session.streams and session.wid in self._sessions:
            self._rest(session)

    def _rest(self, session: ReaderSession) -> None:
        session.idle_since = self._now_s()
        self._idle[session.wid] = session
