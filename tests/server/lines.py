"""Connections without sockets: the client's end as a buffer, on a real event loop.

Owns: one connection, what was written to it, how fast it is read. Must not know: what is said.
"""

from __future__ import annotations

import asyncio
from typing import Any

from logqueue.server.http.api import HttpApi
from logqueue.server.http.connection import HttpConnection

HIGH_WATER = 64 << 10


class Line(asyncio.Transport):
    """The client's end of one connection.

    Attributes:
        written: What the server wrote and no test has taken yet.
        writes: How often it wrote.
        is_read: False lets written bytes pile up, as for a client that does not read.
        wants_more: Whether the server wants more bytes.
    """

    def __init__(self, api: HttpApi) -> None:
        super().__init__()
        self.written = bytearray()
        self.writes = 0
        self.is_read = True
        self.wants_more = True
        self.is_closed = self.is_aborted = False
        self.connections: set[Any] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._protocol: asyncio.BaseProtocol = HttpConnection(
            api, asyncio.get_running_loop(), self.connections, self.tasks
        )
        self._protocol.connection_made(self)
        self._unread = 0
        self._is_paused = False

    def send(self, data: bytes) -> None:
        """The client sends bytes."""
        assert isinstance(self._protocol, asyncio.Protocol)
        self._protocol.data_received(data)

    def read(self) -> bytes:
        """Take what has come, and go on reading."""
        self.is_read = True
        self._unread = 0
        if self._is_paused:
            self._is_paused = False
            self._protocol.resume_writing()
        taken = bytes(self.written)
        self.written.clear()
        return taken

    def hang_up(self) -> None:
        """The client is gone."""
        if not self.is_closed:
            self.is_closed = True
            self._protocol.connection_lost(None)

    # -- as a transport --------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """See asyncio.Transport."""
        self.written += data
        self.writes += 1
        if not self.is_read:
            self._unread += len(data)
            if self._unread > HIGH_WATER and not self._is_paused:
                self._is_paused = True
                self._protocol.pause_writing()

    def write_eof(self) -> None:
        """See asyncio.Transport."""

    def close(self) -> None:
        """See asyncio.Transport."""
        self.hang_up()

    def abort(self) -> None:
        """See asyncio.Transport."""
        self.is_aborted = True
        self.hang_up()

    def is_closing(self) -> bool:
        """See asyncio.Transport."""
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        """See asyncio.Transport."""
        return self._unread

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """See asyncio.Transport."""
        self._protocol = protocol

    def pause_reading(self) -> None:
        """See asyncio.Transport."""
        self.wants_more = False

    def resume_reading(self) -> None:
        """See asyncio.Transport."""
        self.wants_more = True


async def turns(count: int = 20) -> None:
    """Let the loop do what is due."""
    for _ in range(count):
        await asyncio.sleep(0)
