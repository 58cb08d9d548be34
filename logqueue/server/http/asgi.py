"""An ASGI application as the handler of routes: pages, not the API.

Owns: what a request is in ASGI's `http` scope, and how messages become a reply. Must not know:
which applications there are, how bytes travel.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from logqueue.server.http.requests import ClientGone, Fields, HttpRequest, Reply, StreamedReply

Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]

TEXT_TYPE = (b"content-type", b"text/plain; charset=utf-8")


class AsgiHandler:
    """Answers requests by calling an application."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def answer(self, request: HttpRequest) -> Reply | StreamedReply:
        """Call the application for a request; what it sends in one piece is a `Reply`.

        Raises:
            ClientGone: The client was gone before the reply started.
            Exception: What the application raised before its reply started.
        """
        call = _AsgiCall(request)
        call.start(self._application)
        first = await call.next_message()
        if first is None:
            if call.is_abandoned:
                raise ClientGone
            raise RuntimeError("the application ended without a reply")
        status = first["status"]
        fields = tuple((bytes(name).lower(), bytes(value)) for name, value in first["headers"])
        part = await call.next_message() or {}
        body = part.get("body", b"")
        if part.get("more_body", False):
            return StreamedReply(status, _without_length(fields), call.parts(body))
        await call.finish()
        kind = next((field for field in fields if field[0] == b"content-type"), TEXT_TYPE)
        others = tuple(field for field in _without_length(fields) if field[0] != b"content-type")
        return Reply(body, status, others, kind)


class _AsgiCall:
    """One call of an application, in a task of its own. Each message it sends is taken before the
    next: a reader who is slow slows the application down.

    Attributes:
        is_abandoned: The client hung up.
    """

    def __init__(self, request: HttpRequest) -> None:
        self._scope = _scope(request)
        self._body: bytes | None = request.body
        self._gone = asyncio.ensure_future(request.gone())
        self._messages: asyncio.Queue[Message] = asyncio.Queue(1)
        self._task: asyncio.Future[None] | None = None
        self.is_abandoned = False

    def start(self, application: Application) -> None:
        """Begin the call."""
        self._task = asyncio.ensure_future(application(self._scope, self._receive, self._send))

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await asyncio.shield(self._gone)
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self._messages.put(message)

    async def next_message(self) -> Message | None:
        """What the application sends next; None when it has ended, or the client is gone.

        Raises:
            Exception: What the application raised.
        """
        assert self._task is not None
        getting = asyncio.ensure_future(self._messages.get())
        try:
            await asyncio.wait(
                (getting, self._task, self._gone), return_when=asyncio.FIRST_COMPLETED
            )
            # The queue may have been filled in the same turn in which the application ended.
            await asyncio.sleep(0)
            if self._gone.done():
                self.is_abandoned = True
            elif getting.done():
                return getting.result()
            if self._task.done() and not self.is_abandoned:
                self._gone.cancel()
                self._task.result()
            else:
                await self.finish()
            return None
        finally:
            getting.cancel()

    async def parts(self, first: bytes) -> AsyncGenerator[bytes, None]:
        """The body, part by part; closing this ends the call."""
        try:
            yield first
            while (message := await self.next_message()) is not None:
                if message.get("body"):
                    yield message["body"]
                if not message.get("more_body", False):
                    return
        finally:
            await self.finish()

    async def finish(self) -> None:
        """The reply is complete, or unread: end what still runs."""
        # The task, and the frames of what it was cancelled in, know this call.
        task, self._task = self._task, None
        self._gone.cancel()
        if task is None:
            return
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _scope(request: HttpRequest) -> Message:
    path = request.raw_path
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "root_path": "",
        "query_string": request.query_string,
        "headers": request.headers,
        "client": None,
        "server": None,
        "state": {},
    }


def _without_length(fields: Fields) -> Fields:
    framing = (b"content-length", b"transfer-encoding", b"connection")
    return tuple(field for field in fields if field[0] not in framing)
