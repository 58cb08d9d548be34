"""The body of an endless reply, written straight to its connection.

Owns: how bytes of such a body are framed in HTTP/1.1, and when its writer must wait. Synchronous: a
push to a thousand readers must not wake a thousand tasks. Must not know: what the bytes say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class FrameWriter(Protocol):
    """Who fills a stream."""

    def stream_drained(self) -> None:
        """The client has caught up: `is_paused` is over."""
        ...

    def stream_lost(self) -> None:
        """The connection is gone; nothing more can be written."""
        ...


class ByteStream:
    """One endless body.

    Attributes:
        is_chunked: Whether bytes must be framed as chunks; see `frame`.
        is_paused: The client reads more slowly than it is written to. What is written now piles
            up in memory; writers wait for `stream_drained`.
        writer: Called about the connection; None for none.
    """

    __slots__ = ("_over", "_transport", "is_chunked", "is_paused", "writer")

    def __init__(
        self, transport: asyncio.Transport, *, is_chunked: bool, over: Callable[[], None]
    ) -> None:
        """A body whose head is written already.

        Args:
            transport: Takes the bytes.
            is_chunked: False for HTTP/1.0, where the end of the connection ends the body.
            over: Called once, when the body has ended or the connection is gone.
        """
        self._transport: asyncio.Transport | None = transport
        self._over = over
        self.is_chunked = is_chunked
        self.is_paused = False
        self.writer: FrameWriter | None = None

    def frame(self, content: bytes) -> bytes:
        """Content as `write` wants it. Streams of one `is_chunked` may share the result."""
        return chunk(content) if self.is_chunked else content

    def write(self, framed: bytes) -> None:
        """Send framed bytes; without effect once the connection is gone."""
        if self._transport is not None:
            self._transport.write(framed)

    def end(self) -> None:
        """End the body, without a call to the writer."""
        if self._transport is not None:
            if self.is_chunked:
                self._transport.write(b"0\r\n\r\n")
            self._close()

    def abort(self) -> None:
        """Break the body off, and the connection with it, so that it never looks complete."""
        if self._transport is not None:
            self._transport.abort()

    def lose(self) -> None:
        """The connection is gone."""
        if self._transport is not None:
            writer = self.writer
            self._close()
            if writer is not None:
                writer.stream_lost()

    def pause(self, is_paused: bool) -> None:
        """The connection takes no more for now, or takes more again."""
        self.is_paused = is_paused
        if not is_paused and self.writer is not None:
            self.writer.stream_drained()

    def _close(self) -> None:
        # A reference to this stream must not keep the connection's memory.
        self._transport = None
        self.writer = None
        over, self._over = self._over, _nothing
        over()


def chunk(content: bytes) -> bytes:
    """One chunk of HTTP/1.1."""
    return b"%x\r\n%b\r\n" % (len(content), content)


def _nothing() -> None:
    pass
