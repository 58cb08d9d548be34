"""Who looks at the live feed, and the frames for each.

Owns: viewers, what each of them lacks, and that a slow one gets a fresh full frame instead of all
it has missed. Must not know: what is in a frame, HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from logqueue.api import replies
from logqueue.errors import LogqueueError, ShuttingDown
from logqueue.model.scopes import Scope
from logqueue.server.auth import Key
from logqueue.server.stats.entries import FeedEntry

RETRY = b"retry: 2000\n\n"
HEARTBEAT = b": hb\n\n"
HEARTBEAT_S = 15.0
"""Silence after which a heartbeat comes."""
PIECE_BYTES = 64 << 10
"""A frame is sent in pieces of about this size, with others served in between."""

Frame = Sequence[bytes]


class FrameParts:
    """A frame in the making."""

    def __init__(self, front: bytes) -> None:
        """Begin with what comes before its topics."""
        self._pieces: list[bytes] = []
        self._some = [front]
        self._size = len(front)
        self.has_topics = False

    def add(self, topics: Sequence[bytes]) -> None:
        """Add topics, with commas between."""
        if not topics:
            return
        if self.has_topics:
            self._some.append(b",")
        self._some.append(b",".join(topics))
        self._size += len(self._some[-1])
        self.has_topics = True
        if self._size >= PIECE_BYTES:
            self._cut()

    def end(self, back: bytes) -> Frame:
        """The frame, with what comes behind its topics."""
        self._some.append(back)
        self._cut()
        return self._pieces

    def _cut(self) -> None:
        self._pieces.append(b"".join(self._some))
        self._some, self._size = [], 0


class ViewerGroup:
    """Viewers who may see the same topics.

    Attributes:
        prefixes: Of their keys; empty for all topics.
        shown: The entries they have, by topic instance, as of the last frame.
        names: The names of those topics.
        server: The server's members as of the last frame.
        attention: The sentences of the last frame, encoded.
        is_truncated: Whether there are more topics than one feed shows.
        is_whole: Whether the members above say what there is.
        full: A full frame as of the last frame, behind the key; None until it is made.
    """

    def __init__(self, prefixes: tuple[str, ...]) -> None:
        self.prefixes = prefixes
        self.viewers: set[StatsViewer] = set()
        self.begin_again()

    def begin_again(self) -> None:
        """All that was known is void: every viewer gets a full frame."""
        self.shown: dict[int, FeedEntry] = {}
        self.names: dict[int, str] = {}
        self.server: dict[str, object] = {}
        self.attention = b"[]"
        self.is_truncated = False
        self.is_whole = False
        self.full: Frame | None = None
        for viewer in self.viewers:
            viewer.want_full()

    def allows(self, name: str) -> bool:
        """Whether they may see a topic."""
        return not self.prefixes or name.startswith(self.prefixes)

    def publish(self, change: Frame) -> None:
        """Give each viewer a change, or a full frame to those who have not taken the one before."""
        self.full = None
        for viewer in self.viewers:
            viewer.offer(change)


class StatsViewer:
    """One stream of the feed.

    Attributes:
        group: Those who see the same.
        wants_full: The next frame is a full one.
        key_members: What the full frame says of the key, encoded.
    """

    def __init__(self, group: ViewerGroup, key: Key | None) -> None:
        self.group = group
        self.key = key
        self.key_members = _key_members(key)
        self.wants_full = True
        self._pending: Frame | None = None
        self._last: bytes | None = None
        self._wake = asyncio.Event()
        self._wake.set()

    def offer(self, change: Frame) -> None:
        """A frame for viewers that have all frames before it."""
        if self.wants_full:
            return
        if self._pending is not None:
            self.want_full()
            return
        self._pending = change
        self._wake.set()

    def want_full(self) -> None:
        """What it has is out of date, or was never sent."""
        self._pending = None
        self.wants_full = True
        self._wake.set()

    def end(self, error: LogqueueError) -> None:
        """The server ends the stream: an event that says why is the last."""
        if self._last is None:
            code = "server_shutting_down" if isinstance(error, ShuttingDown) else error.code
            body = replies.encode({"code": code, "message": error.message})
            self._last = b"event: error\ndata: %b\n\n" % body
            self._wake.set()

    async def frames(
        self, full_frame: Callable[[StatsViewer], Awaitable[Frame | None]]
    ) -> AsyncGenerator[bytes, None]:
        """The frames in pieces, and heartbeats; each piece when the one before is taken."""
        yield RETRY
        while self._last is None:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._wake.wait()
            except TimeoutError:
                yield HEARTBEAT
                continue
            self._wake.clear()
            for piece in await self._next(full_frame):
                yield piece
        yield self._last

    async def _next(self, full_frame: Callable[[StatsViewer], Awaitable[Frame | None]]) -> Frame:
        if self._last is not None:
            return ()
        if self.wants_full:
            return await full_frame(self) or ()
        frame, self._pending = self._pending, None
        return frame or ()


def _key_members(key: Key | None) -> bytes:
    if key is None:
        return b"null"
    scopes = [(scope.name or "").lower() for scope in Scope if scope in key.scopes]
    return replies.encode({"scopes": scopes, "prefixes": [*key.prefixes]})
