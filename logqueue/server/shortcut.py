"""The short cut: one small complete request, answered without a task or ASGI messages of its own.

Owns: a request between its head and its reply, and the reply's bytes. Must not know: routes, what a
body says, how a connection is parsed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from logqueue.errors import LogqueueError
from logqueue.server.requests import Begin, ClientGone, Download, Held, Reply, Request
from logqueue.server.routing import Route

if TYPE_CHECKING:
    from logqueue.server.protocol import LogqueueHttpProtocol

_STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}


class Shortcut:
    """One request on the short cut. Stands where uvicorn keeps its request cycle, and has the
    members of it that the connection looks at."""

    __slots__ = (
        "_gone", "disconnected", "is_held", "is_whole", "keep_alive", "parts", "protocol",
        "request", "response_complete", "route",
    )  # fmt: skip

    request: Request
    route: Route

    def __init__(self, protocol: LogqueueHttpProtocol, keep_alive: bool) -> None:
        self.protocol = protocol
        self.keep_alive = keep_alive
        self.parts: list[bytes] = []
        self.is_whole = False
        self.is_held = False
        self.response_complete = False
        self.disconnected = False
        self._gone: asyncio.Future[None] | None = None

    @property
    def message_event(self) -> Shortcut:
        """What the connection sets when it is lost."""
        return self

    def set(self) -> None:
        """See `message_event`."""
        if self.disconnected and self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    async def gone(self) -> None:
        """Return once the client has hung up."""
        if not self.disconnected:
            if self._gone is None:
                self._gone = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._gone)

    def answer(self) -> None:
        """The request is whole: answer it now, or when its answer may leave."""
        api = self.protocol.api
        request = self.request
        self.is_whole = True
        request.body = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        try:
            if self.route.stream is not None:
                self._begin(api.begin(request, self.route))
                return
            answer = api.answer(request, self.route)
        except Exception as error:
            self._send(api.refuse(request, error))
            return
        if isinstance(answer, Held):
            self._hold(answer)
        elif isinstance(answer, Reply):
            self._send(answer)
        else:
            task = self.protocol.loop.create_task(self._await(answer))
            self.protocol.tasks.add(task)
            task.add_done_callback(self.protocol.tasks.discard)

    def _begin(self, begin: Begin | Held) -> None:
        """Begin an endless reply, which goes on without this request."""
        if isinstance(begin, Held):
            self._hold(begin)
            return
        service = self.protocol.api.service
        over = partial(service.leave_stream, self.request.key)
        del self.request
        begin(self.protocol.open_stream(over))

    def _hold(self, held: Held) -> None:
        api = self.protocol.api
        began = time.perf_counter()

        def release(failure: LogqueueError | None) -> None:
            if failure is not None:
                self._send(api.refuse(self.request, failure))
            else:
                waited_ms = (time.perf_counter() - began) * 1000
                self._send(api.finish(self.request, held, waited_ms))

        gate = api.service.gate
        assert gate is not None, "an answer was held before there was a log"
        if gate.reached(held.written, held.durable):
            self._send(api.finish(self.request, held, 0.0))
        else:
            self.is_held = True
            gate.when(held.written, held.durable, release)

    async def _await(self, answer: Coroutine[Any, Any, Reply | Download]) -> None:
        api = self.protocol.api
        try:
            reply = await answer
        except ClientGone:
            api.leave(self.request, 0)
            self.response_complete = True
            del self.request
            return
        except Exception as error:
            reply = api.refuse(self.request, error)
        assert isinstance(reply, Reply), "bulk routes do not come this way"
        self._send(reply)

    def _send(self, reply: Reply) -> None:
        protocol = self.protocol
        if self.request.ignored:
            reply.name_ignored(self.request.ignored)
        protocol.api.leave(self.request, 0 if self.disconnected else reply.status)
        # Request and short cut know each other. Left so, every request would be work for the
        # garbage collector, and none of its memory would be used again while it is warm.
        del self.request
        self.response_complete = True
        self.is_held = False
        transport = protocol.transport
        if self.disconnected or transport.is_closing():
            if reply.lost is not None:
                reply.lost()
            return
        transport.write(encode_reply(reply, self.keep_alive))
        if not self.keep_alive:
            transport.close()
        protocol.on_response_complete()


def encode_reply(reply: Reply, keep_alive: bool) -> bytes:
    """A complete reply as it goes over the wire."""
    return b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b%b\r\n%b" % (
        _STATUS_LINES[reply.status],
        reply.content_type[1],
        len(reply.body),
        b"".join([b"%b: %b\r\n" % header for header in reply.extra_headers]),
        b"" if keep_alive else b"connection: close\r\n",
        reply.body,
    )
