"""uvicorn's HTTP/1.1 connection with the bounds and error replies of this server.

Owns: the time a client may take to send its request head, the size of that head, and the answer to
bytes that are no HTTP. Must not know: routes, bodies.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from logqueue import wire
from logqueue.errors import InvalidRequest

HEAD_SECONDS_MAX = 60.0
HEAD_BYTES_MAX = 64 << 10


class LogqueueHttpProtocol(HttpToolsProtocol):
    """One connection."""

    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: Any) -> None:
        """A client has connected; its first request head is awaited."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_SECONDS_MAX, self._give_up_on_head)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes have come; those of an unfinished head are counted."""
        if self._head_timer is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_timer is not None and self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(f"the request head is over {HEAD_BYTES_MAX} bytes")

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS_MAX, self._give_up_on_head)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._stop_head_timer()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no HTTP request, in the usual envelope, and hang up."""
        self._refuse(msg.rstrip(".") + ": the bytes sent are no HTTP/1.1 request")

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        self._head_bytes = 0

    def _give_up_on_head(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self._refuse(f"the request head took longer than {HEAD_SECONDS_MAX:.0f} s")

    def _refuse(self, message: str) -> None:
        body = wire.encode_error(InvalidRequest(message))
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body)
        )
        self.transport.close()
