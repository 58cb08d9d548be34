"""One request on a connection, from its head to its reply.

Owns: what happens to a whole request, and the bytes of its reply. Must not know: routes, what a
body says, how a connection is parsed. Most requests are answered at once or when the log is ready,
without a task of their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from logqueue.api.bodies.large import LARGE_BYTES
from logqueue.errors import LogqueueError
from logqueue.server.http.requests import (
    EVENT_STREAM,
    Begin,
    ClientGone,
    Download,
    HttpRequest,
    PendingReply,
    Reply,
    read_parts,
)
from logqueue.server.http.routing import Route

if TYPE_CHECKING:
    from logqueue.server.http.connection import LogqueueHttpProtocol

_STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}

WAITING_BYTES = 8 << 10
"""What a request costs that waits, beside its body."""
LARGE_REPLY_BYTES = 256 << 10


class HttpExchange:
    """One request and its reply.

    Attributes:
        request, route: Set once the request is admitted; `request` only until it is answered.
        refusal: The reply to a request that was refused before its body; None otherwise.
        keep_alive: Whether the connection goes on after the reply.
        is_http_11: False for a client that knows HTTP/1.0 only.
        is_whole: The request has come completely, and is being answered.
        is_held: The reply waits for the log, or for work that goes on; it does go out.
        is_complete: It is answered, or never will be.
        disconnected: The client is gone.
    """

    __slots__ = (
        "_gone", "disconnected", "is_complete", "is_held", "is_http_11", "is_whole", "keep_alive",
        "protocol", "refusal", "request", "route",
    )  # fmt: skip

    request: HttpRequest
    route: Route

    def __init__(
        self, protocol: LogqueueHttpProtocol, keep_alive: bool, is_http_11: bool = True
    ) -> None:
        self.protocol = protocol
        self.keep_alive = keep_alive
        self.is_http_11 = is_http_11
        self.refusal: Reply | None = None
        self.is_whole = False
        self.is_held = False
        self.is_complete = False
        self.disconnected = False
        self._gone: asyncio.Future[None] | None = None

    def lose(self) -> None:
        """The connection is gone."""
        self.disconnected = True
        if not self.is_whole:
            self.end(0)
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def end(self, status: int) -> None:
        """There is no more to do for the request; 0 for a reply that was never sent."""
        self.protocol.api.leave(self.request, status)
        self.is_complete = True
        # The request and this know each other. Left so, every request would be work for the
        # garbage collector, and what it holds would stay: full collections are rare here.
        del self.request

    async def gone(self) -> None:
        """Return once the client has hung up."""
        if not self.disconnected:
            if self._gone is None:
                self._gone = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._gone)

    def wait(self) -> None:
        """See `requests.Client`."""
        size = len(self.request.body)
        # Requests without a body wait for short work only, and whoever looks at metrics wants to
        # see them just when memory is short.
        self.protocol.hold_request(
            WAITING_BYTES + min(2 * size, size + LARGE_BYTES), is_forced=not size
        )

    def answer(self, body: bytes) -> None:
        """The request is whole: answer it now, or when its answer may leave."""
        api = self.protocol.api
        request = self.request
        self.is_whole = True
        if self.refusal is not None:
            self.send(self.refusal)
            return
        request.body = body
        try:
            if self.route.stream is not None:
                self._begin(api.begin(request, self.route))
                return
            answer = api.answer(request, self.route)
        except Exception as error:
            self.send(api.refuse(request, error))
            return
        # What waits keeps only what it needs of the body.
        request.body = b""
        if isinstance(answer, PendingReply):
            self._hold(answer)
        elif isinstance(answer, Reply):
            self.send(answer)
        else:
            # A client that has shut down its sending side still gets its reply.
            self.is_held = not request.is_long
            task = self.protocol.loop.create_task(self._await(answer))
            self.protocol.tasks.add(task)
            task.add_done_callback(self.protocol.tasks.discard)

    def _begin(self, begin: Begin | PendingReply) -> None:
        """Begin an endless reply, which goes on without this request."""
        if isinstance(begin, PendingReply):
            self._hold(begin)
            return
        if self.request.method == "HEAD":
            self._write(encode_head(200, EVENT_STREAM, self.keep_alive), 200)
            return
        service = self.protocol.api.service
        over = partial(service.leave_stream, self.request.key)
        del self.request
        begin(self.protocol.open_stream(over))

    def _hold(self, held: PendingReply) -> None:
        api = self.protocol.api
        began = time.perf_counter()

        def release(failure: LogqueueError | None) -> None:
            if failure is not None:
                self.send(api.refuse(self.request, failure))
            else:
                waited_ms = (time.perf_counter() - began) * 1000
                self.send(api.finish(self.request, held, waited_ms))

        gate = api.service.gate
        assert gate is not None, "an answer was held before there was a log"
        if gate.reached(held.written, held.durable):
            self.send(api.finish(self.request, held, 0.0))
        else:
            self.is_held = True
            gate.when(held.written, held.durable, release)

    async def _await(self, answer: Coroutine[Any, Any, Reply | Download]) -> None:
        try:
            try:
                reply = await answer
            except ClientGone:
                return
            except Exception as error:
                reply = self.protocol.api.refuse(self.request, error)
            if isinstance(reply, Download):
                await self._send_download(reply)
            else:
                self.send(reply)
        finally:
            if not self.is_complete:
                # The client is gone, or the server stops.
                self.end(0)

    def send(self, reply: Reply) -> None:
        """Send the reply, if there is still a client to read it."""
        if self.request.ignored:
            reply.name_ignored(self.request.ignored)
        if len(reply.body) > LARGE_REPLY_BYTES and not self.disconnected:
            reply = self._fitting(reply)
        wire = encode_reply(reply, self.keep_alive, is_head=self.request.method == "HEAD")
        if not self._write(wire, reply.status) and reply.lost is not None:
            reply.lost()

    def _fitting(self, reply: Reply) -> Reply:
        """A large reply, or a refusal when replies that nobody reads have used up the memory."""
        try:
            self.protocol.require_room(self.request, len(reply.body))
        except LogqueueError as refusal:
            if reply.lost is not None:
                reply.lost()
            return self.protocol.api.refuse(self.request, refusal)
        return reply

    def _write(self, wire: bytes, status: int) -> bool:
        """Write the whole reply; returns whether there was a client."""
        protocol = self.protocol
        self.end(0 if self.disconnected else status)
        self.is_held = False
        if self.disconnected or protocol.transport.is_closing():
            return False
        protocol.write_reply(wire)
        protocol.on_response_complete(self)
        return True

    async def _send_download(self, download: Download) -> None:
        """Send a long answer part by part; the next is read when the connection has taken the last.

        One that cannot be completed ends with the connection, short of its declared length.
        """
        protocol = self.protocol
        is_head = self.request.method == "HEAD"
        headers = tuple(download.headers)
        try:
            if not self.disconnected:
                protocol.transport.write(encode_head(download.status, headers, self.keep_alive))
            if not is_head:
                async for part in read_parts(download):
                    if self.disconnected:
                        return
                    protocol.transport.write(part)
                    await protocol.drained()
            self._write(b"", download.status)
        except Exception as error:
            self.keep_alive = False
            protocol.api.refuse(self.request, error)
            self._write(b"", 500)
        finally:
            download.close()


def encode_head(status: int, headers: tuple[tuple[bytes, bytes], ...], keep_alive: bool) -> bytes:
    """The head of a reply as it goes over the wire."""
    return b"%b%b%b\r\n" % (
        _STATUS_LINES[status],
        b"".join([b"%b: %b\r\n" % header for header in headers]),
        b"" if keep_alive else b"connection: close\r\n",
    )


def encode_reply(reply: Reply, keep_alive: bool, *, is_head: bool = False) -> bytes:
    """A complete reply as it goes over the wire; without its body for a HEAD request."""
    return b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b%b\r\n%b" % (
        _STATUS_LINES[reply.status],
        reply.content_type[1],
        len(reply.body),
        b"".join([b"%b: %b\r\n" % header for header in reply.extra_headers]),
        b"" if keep_alive else b"connection: close\r\n",
        b"" if is_head else reply.body,
    )
