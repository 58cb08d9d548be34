"""One request on a connection, from its head to its reply.

Owns: what happens to a whole request, and the bytes of its reply. Must not know: routes, what a
body says, how a connection is parsed. Most requests are answered at once or when the log is ready,
without a task of their own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol

import msgspec

from logqueue.api.bodies.large import LARGE_BYTES
from logqueue.api.operations.row import Body
from logqueue.errors import LogqueueError, PayloadTooLarge, Throttled
from logqueue.server.engine.pending import Pending
from logqueue.server.http.api import HttpApi
from logqueue.server.http.byte_stream import ByteStream
from logqueue.server.http.head import RequestHead
from logqueue.server.http.head_memo import KnownHead
from logqueue.server.http.requests import (
    BEHIND_HEADER,
    EVENT_STREAM,
    Answer,
    Begin,
    ClientGone,
    Download,
    Fields,
    HttpRequest,
    Later,
    PendingReply,
    Reply,
    StreamedReply,
    read_parts,
)
from logqueue.server.http.routing import Route

WAITING_BYTES = 8 << 10
"""What a request costs that waits, beside its body."""
LARGE_REPLY_BYTES = 256 << 10
"""A longer reply is written in pieces, with others served in between."""
PIECE_BYTES = 64 << 10
"""What a turn of the event loop writes of long replies and downloads: some 20 µs of copying."""
IGNORED_BODY_BYTES_MAX = 1 << 20
"""A body that no one reads is thrown away up to this length; behind a longer one the connection,
or the stream of HTTP/2, ends."""
WRITE_STALL_S = 60.0
"""A client that reads nothing of a complete reply for so long is gone."""
_PAGES = re.compile(rb"/|/docs|/ui(?:/.*)?")
"""Paths of pages for people: they hold no data."""
LINGER_S = 3.0
"""A client may go on sending for so long behind its last reply; closing at once could destroy the
reply on its way."""


class ReplyWriter(Protocol):
    """What carries the reply of one request at a time: an HTTP/1.1 connection, or one stream of an
    HTTP/2 connection.

    Attributes:
        api: What answers requests.
        loop: The event loop.
        tasks: Requests of the server that are being answered by a task.
    """

    api: HttpApi
    loop: asyncio.AbstractEventLoop
    tasks: set[asyncio.Task[None]]

    def write_reply(self, exchange: HttpExchange, reply: Reply, is_head: bool) -> bool:
        """Write a whole reply, without its body for HEAD; False when the client is gone."""
        ...

    def write_head(self, exchange: HttpExchange, status: int, fields: Fields) -> None:
        """Write the head of a reply whose body comes in parts."""
        ...

    def write_part(self, part: bytes | memoryview) -> None:
        """Write a part of the body; see `drained`."""
        ...

    async def drained(self) -> None:
        """Return once the client takes more, or is gone."""
        ...

    def open_stream(
        self, running: HttpExchange, status: int, fields: Fields, over: Callable[[], None]
    ) -> ByteStream:
        """Write the head of an endless reply; `over` is called once, when its body has ended or
        the client is gone."""
        ...

    def on_response_complete(self, exchange: HttpExchange) -> None:
        """The whole reply is written."""
        ...

    def reply_due(self, exchange: HttpExchange) -> None:
        """The reply may leave: call `HttpExchange.deliver` when it is its turn."""
        ...

    def note_memory(self, *, is_forced: bool = False) -> None:
        """Enter in the books what is held for the client now; see `HttpExchange.held_bytes`.

        Raises:
            Throttled: There is no room, unless forced.
        """
        ...


class HttpExchange(msgspec.Struct, eq=False):
    """One request and its reply.

    Attributes:
        writer: What carries the reply.
        request, route: Set once the request is admitted; `request` only until it is answered.
        refusal: The reply to a request that was refused before its body; None otherwise.
        keep_alive: Whether the connection continues after the reply.
        is_http_11: False for a client that knows HTTP/1.0 only.
        pending: The reply while it waits for the log.
        due: The reply, or what it will be made of, once it may leave.
        held_bytes: What a request holds that waits for longer than the log.
        is_whole: The request has come completely, and is being answered.
        is_held: The reply waits for the log, or for running work; it will be sent.
        is_answered: There is a reply, which may still wait for its turn.
        is_complete: The reply is sent, or never will be.
        disconnected: The client is gone.
    """

    writer: ReplyWriter
    keep_alive: bool
    is_http_11: bool = True
    request: HttpRequest = None  # type: ignore[assignment]
    route: Route = None  # type: ignore[assignment]
    refusal: Reply | None = None
    is_whole: bool = False
    is_answered: bool = False
    is_held: bool = False
    is_complete: bool = False
    disconnected: bool = False
    pending: PendingReply | None = None
    due: Reply | PendingReply | None = None
    held_bytes: int = 0
    _gone: asyncio.Future[None] | None = None
    _body_bytes: int = 0

    # Requests hold secrets: they must not get into the log with a traceback.
    __repr__ = object.__repr__

    def admit(self, head: RequestHead) -> int:
        """Begin with the request whose head this is.

        Returns:
            The longest body to keep, in bytes; -1 when it is not read.

        Raises:
            LogqueueError: Refused.
        """
        request = HttpRequest(head.method, head.path, head.query, head.headers, self)
        self.request = request
        api = self.writer.api
        if not head.is_welcome:
            is_page = head.method == "GET" and _PAGES.fullmatch(head.path) is not None
            api.hosts.require(head.host, head.fields, is_page=is_page)
            head.is_welcome = True
        route = self.route = api.admit(request)
        if route.body is Body.IGNORED:
            return -1
        limit = api.body_bytes_max(route)
        if head.body_bytes > limit:
            raise PayloadTooLarge(f"the body is over the limit of {limit} bytes")
        return limit

    def admit_known(self, known: KnownHead, body_bytes: int, is_counted: bool) -> None:
        """The same for a head that was admitted before, whose body is not too long.

        Args:
            known: The head.
            body_bytes: Length of the body.
            is_counted: Whether the request counts as one in progress.

        Raises:
            Throttled: The key has all the requests it may have in progress.
        """
        self.route = known.route
        self.request = HttpRequest(
            known.method,
            known.path,
            known.query,
            known.headers,
            self,
            known.route.pattern,
            known.name,
            known.item,
            known.key,
            known.is_json and body_bytes > 0,
        )
        if is_counted and known.key is not None:
            self.count()

    def count(self) -> None:
        """Count the request as one in progress.

        Raises:
            Throttled: The key has all the requests it may have in progress.
        """
        self.writer.api.service.enter(self.request.key)
        self.request.is_counted = True

    @property
    def may_be_followed(self) -> bool:
        """Whether another request of the same client may be begun before this one is answered: at
        most the log, or the end of this turn, holds its reply."""
        return self.keep_alive and (self.due is not None or self.pending is not None)

    def precedes(self, known: KnownHead) -> bool:
        """See to it that a request that is begun now observes this one.

        Returns:
            False when it would not.
        """
        pending = self.pending
        assert pending is not None
        if not pending.is_decided:
            dispatcher = self.writer.api.service.require_serving()
            is_alike = known.route is self.route and known.name == self.request.name
            if is_alike and dispatcher.decides_soon(pending, known.name):
                return True
            dispatcher.turn.run()
        return pending.is_decided

    def lose(self) -> None:
        """The connection is gone."""
        self.disconnected = True
        if not self.is_whole:
            self.end(0)
        elif self.due is not None:
            self.deliver()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def end(self, status: int) -> None:
        """There is no more to do for the request; 0 for a reply that was never sent."""
        self.writer.api.leave(self.request, status)
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
        size = self._body_bytes
        # Requests without a body wait for short work only, and readers of metrics want to
        # see them just when memory is short.
        self._hold_bytes(WAITING_BYTES + min(2 * size, size + LARGE_BYTES), is_forced=not size)

    def hold(self, size: int) -> None:
        """See `requests.RequestPeer`."""
        if self.disconnected:
            # Its connection has given back what it held, and will not do so again.
            raise ClientGone
        self._hold_bytes(WAITING_BYTES + size)

    def _hold_bytes(self, size: int, *, is_forced: bool = False) -> None:
        before, self.held_bytes = self.held_bytes, size
        try:
            self.writer.note_memory(is_forced=is_forced)
        except Throttled:
            self.held_bytes = before
            raise

    def answer(self, body: bytes) -> None:
        """The request is whole: answer it now, or when its answer may leave."""
        api = self.writer.api
        request = self.request
        answer: Answer | Begin
        self.is_whole = True
        if self.refusal is not None:
            self.reply(self.refusal)
            return
        request.body = body
        self._body_bytes = len(body)
        try:
            if self.route.stream is None:
                answer = api.answer(request, self.route)
            else:
                answer = api.begin(request, self.route)
        except Exception as error:
            self.reply(api.refuse(request, error))
            return
        # What waits keeps only what it needs of the body.
        request.body = b""
        if isinstance(answer, Pending):
            self.is_held = True
            self.pending = answer
            answer.when_ready(self.reply, self._wait_long)
        elif isinstance(answer, Reply):
            self.reply(answer)
        elif callable(answer):
            self._begin(answer)
        else:
            self._answer_in_task(answer)

    def _answer_in_task(self, answer: Coroutine[Any, Any, Later]) -> None:
        # A client that has shut down its sending side still gets its reply.
        self.is_held = not self.request.is_long
        self._spawn(self._await(answer))

    def _wait_long(self, pending: PendingReply) -> None:
        """The answer waits for something that may never come."""
        api = self.writer.api
        self.pending = None
        try:
            answer = api.long_poll(self.request, pending)
        except Exception as error:
            self.reply(api.refuse(self.request, error))
        else:
            self._answer_in_task(answer)

    def _begin(self, begin: Begin) -> None:
        """Begin an endless reply, which continues without this request."""
        fields = (*EVENT_STREAM, *self._behind())
        if self.request.method == "HEAD":
            self.writer.write_head(self, 200, fields)
            self._complete(200)
            return
        service = self.writer.api.service
        over = partial(service.leave_stream, self.request.key)
        del self.request
        begin(self.writer.open_stream(self, 200, fields, over))

    def _behind(self) -> Fields:
        """The header of a standby that says how far it is behind; none on any other server."""
        following = self.writer.api.service.lifecycle.following
        if following is None:
            return ()
        return ((BEHIND_HEADER, b"%d" % following.behind_ms),)

    def reply(self, due: Reply | PendingReply) -> None:
        """The reply may leave, or be made and leave; it does when it is its turn."""
        self.is_held = self.is_answered = True
        self.pending = None
        self.due = due
        if self.disconnected:
            self.deliver()
        else:
            self.writer.reply_due(self)

    async def _await(self, answer: Coroutine[Any, Any, Later]) -> None:
        try:
            try:
                reply = await answer
            except ClientGone:
                return
            except Exception as error:
                reply = self.writer.api.refuse(self.request, error)
            if isinstance(reply, Download):
                await self._send_download(reply)
            elif isinstance(reply, StreamedReply):
                await self._send_streamed(reply)
            else:
                self.reply(reply)
        finally:
            if not self.is_answered and not self.is_complete:
                # The client is gone, or the server stops.
                self.end(0)

    def deliver(self) -> None:
        """Send the reply that is due, if there is still a client to read it."""
        due, self.due = self.due, None
        assert due is not None
        reply = due if isinstance(due, Reply) else self.writer.api.finish(self.request, due)
        if self.request.ignored:
            reply.name_ignored(self.request.ignored)
        if self.writer.api.service.lifecycle.following is not None:
            reply.extra_headers = (*reply.extra_headers, *self._behind())
        is_head = self.request.method == "HEAD"
        is_large = reply.parts is not None or len(reply.body) > LARGE_REPLY_BYTES
        if is_large and not is_head and not self.disconnected:
            try:
                # Room for all of it, or a refusal when unread replies have used it up.
                self._hold_bytes(reply.size)
            except LogqueueError as refusal:
                if reply.on_undelivered is not None:
                    reply.on_undelivered()
                reply = self.writer.api.refuse(self.request, refusal)
            else:
                self.is_held = True
                self._spawn(self._send_large(reply))
                return
        self.end(0 if self.disconnected else reply.status)
        self.is_held = False
        if not self.disconnected and self.writer.write_reply(self, reply, is_head):
            self.writer.on_response_complete(self)
        elif reply.on_undelivered is not None:
            reply.on_undelivered()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        tasks = self.writer.tasks
        task = self.writer.loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _send_large(self, reply: Reply) -> None:
        """Send a large reply part by part, as fast as it is taken."""
        writer = self.writer
        length = (b"content-length", b"%d" % reply.size)
        fields = (reply.content_type, length, *reply.extra_headers)
        is_sent = False
        try:
            writer.api.begin_sending(self.request, reply.status)
            writer.write_head(self, reply.status, fields)
            for part in reply.parts if reply.parts is not None else (reply.body,):
                await self._write_large(part)
                if self.disconnected:
                    return
            is_sent = not self.disconnected
            self._complete(reply.status)
        finally:
            if not is_sent and reply.on_undelivered is not None:
                reply.on_undelivered()
            if not self.is_complete:
                self.end(0)

    async def _write_large(self, part: bytes) -> None:
        """Write a part of a long body: one small piece of one such body in a turn of the loop,
        however many there are, so that short requests wait for one of them at most."""
        writer = self.writer
        view = memoryview(part)
        for start in range(0, len(view), PIECE_BYTES):
            piece = view[start : start + PIECE_BYTES]
            await writer.api.service.long_bodies.turn(len(piece))
            if self.disconnected:
                return
            writer.write_part(piece)
            await writer.drained()

    def _complete(self, status: int) -> None:
        """The whole reply is written, part by part."""
        self.end(0 if self.disconnected else status)
        self.is_held = False
        if not self.disconnected:
            self.writer.on_response_complete(self)

    async def _send_download(self, download: Download) -> None:
        """Send a long answer part by part; the next is read when the connection has taken the last.

        One that cannot be completed ends with the connection, short of its declared length.
        """
        writer = self.writer
        is_head = self.request.method == "HEAD"
        try:
            writer.api.begin_sending(self.request, download.status)
            if not self.disconnected:
                writer.write_head(self, download.status, tuple(download.headers))
            if not is_head:
                async for part in read_parts(download):
                    await self._write_large(part)
                    if self.disconnected:
                        return
            self._complete(download.status)
        except Exception as error:
            self.keep_alive = False
            writer.api.refuse(self.request, error)
            self._complete(500)
        finally:
            download.close()

    async def _send_streamed(self, reply: StreamedReply) -> None:
        """Send an answer of unknown length part by part. One that cannot be completed ends with
        its connection."""
        writer = self.writer
        service = writer.api.service
        fields = (*reply.fields, *self._behind())
        async with aclosing(reply.parts) as parts:
            if self.disconnected:
                return
            if self.request.method == "HEAD":
                writer.write_head(self, reply.status, fields)
                self._complete(reply.status)
                return
            key = self.request.key
            try:
                service.enter_stream(key)
            except LogqueueError as refusal:
                self.reply(writer.api.refuse(self.request, refusal))
                return
            self.end(reply.status)
            over = partial(service.leave_stream, key)
            body = writer.open_stream(self, reply.status, fields, over)
            body.writer = self
            try:
                async for part in parts:
                    body.write(body.frame(part))
                    await writer.drained()
            except BaseException:
                body.abort()
                raise
            body.end()

    def stream_drained(self) -> None:
        """See FrameWriter."""

    def stream_lost(self) -> None:
        """See FrameWriter."""
        self.disconnected = True
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
