"""One request and one reply, as handlers see them.

Owns: reading a body under its limit, headers, query parameters. Must not know: routes, commands.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from logqueue.errors import InvalidRequest, PayloadTooLarge
from logqueue.server.auth import Key

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

T = TypeVar("T")

JSON_TYPE = (b"content-type", b"application/json")


class ClientGone(Exception):
    """The client hung up before its request was complete; there is nobody to answer."""


class Request:
    """What a handler may look at.

    Attributes:
        name: The topic (or router) of the path, percent-decoded; "" where the path has none.
        key: The authenticated key; None in dev mode and on open probes.
        body: The whole body; b"" until the route's body policy has had it read.
        began: `time.perf_counter()` when the request was taken up.
    """

    __slots__ = ("_query", "began", "body", "key", "name", "receive", "scope", "send")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.name = ""
        self.key: Key | None = None
        self.body = b""
        self.began = time.perf_counter()
        self._query: dict[str, str] | None = None

    def header(self, name: bytes) -> bytes | None:
        """The first header of this (lower-case) name."""
        for key, value in self.scope["headers"]:
            if key == name:
                found: bytes = value
                return found
        return None

    @property
    def query(self) -> dict[str, str]:
        """Query parameters, form-decoded; the first occurrence of a name counts.

        Raises:
            InvalidRequest: They are not UTF-8.
        """
        if self._query is None:
            raw: bytes = self.scope["query_string"]
            self._query = {}
            if raw:
                try:
                    text = raw.decode("ascii")
                    pairs = parse_qsl(text, keep_blank_values=True, errors="strict")
                except (UnicodeDecodeError, ValueError) as error:
                    raise InvalidRequest(
                        "the query string can not be decoded: percent-encode it as UTF-8"
                    ) from error
                for name, value in pairs:
                    self._query.setdefault(name, value)
        return self._query

    def flag(self, name: str, default: bool) -> bool:
        """A boolean parameter; anything but true/1/false/0 is the default."""
        if not self.scope["query_string"]:
            return default
        value = self.query.get(name)
        if value in ("true", "1"):
            return True
        return False if value in ("false", "0") else default

    @property
    def total_ms(self) -> float:
        """Time spent on this request so far."""
        return (time.perf_counter() - self.began) * 1000

    def timings(self) -> dict[str, float]:
        """The part of the performance block that every reply has."""
        return {"server_total_ms": self.total_ms}

    async def unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """Await something for the client, and cancel it when the client hangs up.

        Raises:
            ClientGone: It did.
        """
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(self._disconnected())
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientGone
            return task.result()
        finally:
            for pending in (task, gone):
                pending.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)

    async def _disconnected(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def read_body(self, bytes_max: int) -> bytes:
        """Read the body, at most `bytes_max` of it.

        Raises:
            PayloadTooLarge: There is more; found out without reading it where possible.
            ClientGone: The connection broke first.
        """
        declared = self.header(b"content-length")
        if declared is not None and declared.isdigit() and int(declared[:20]) > bytes_max:
            raise PayloadTooLarge(f"the body has {int(declared[:20])} bytes; limit {bytes_max}")
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            if len(body) > bytes_max:
                raise PayloadTooLarge(f"the body is over the limit of {bytes_max} bytes")
            return body
        parts = [body]
        size = len(body)
        while message.get("more_body", False):
            if size > bytes_max:
                raise PayloadTooLarge(f"the body is over the limit of {bytes_max} bytes")
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
        if size > bytes_max:
            raise PayloadTooLarge(f"the body is over the limit of {bytes_max} bytes")
        return b"".join(parts)


class Reply:
    """A complete answer."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self,
        body: bytes,
        status: int = 200,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        content_type: tuple[bytes, bytes] = JSON_TYPE,
    ) -> None:
        self.body = body
        self.status = status
        self.headers = [content_type, (b"content-length", b"%d" % len(body)), *headers]


Handler = Callable[[Request], Awaitable[Reply | None]]
"""Answers a request; None means that it has sent everything itself (a stream)."""
