"""One request and one reply, as handlers see them.

Owns: reading a body under its limit, headers, query parameters. Must not know: routes, commands.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Sequence,
)
from typing import Any, Final, NamedTuple, NoReturn, Protocol, TypeVar
from urllib.parse import parse_qsl

import msgspec

from logqueue.api.bodies.unknown_members import header_text
from logqueue.errors import InvalidRequest, NotAcceptable
from logqueue.server.auth import Key
from logqueue.server.engine.pending import Pending
from logqueue.server.http.byte_stream import ByteStream
from logqueue.server.http.websocket import WebSocket

Fields = tuple[tuple[bytes, bytes], ...]
"""Names (in lower case) and values of headers."""

T = TypeVar("T")

PART_BYTES = 512 << 10
"""What is read of a download at once, in a thread; it is written in smaller pieces."""

JSON_TYPE = (b"content-type", b"application/json")
HEADERS_READ: Final = frozenset(
    (
        b"accept", b"authorization", b"content-type", b"idempotency-key", b"if-range",
        b"last-event-id", b"range",
    )
)  # fmt: skip
"""All headers that matter once a request is admitted, except to pages; see `HeadMemo`."""
IGNORED_HEADER = b"logqueue-ignored"
BEHIND_HEADER = b"logqueue-behind-ms"


class ClientGone(Exception):
    """The client hung up before its request was complete; there is no one to answer."""


class ForeignRefusal(Exception):
    """A refusal in the terms of another protocol than the API's: only the `refuse` of the route
    that raises it knows how to show it."""


class RequestPeer(Protocol):
    """Who sent a request, as far as its handler is concerned."""

    async def gone(self) -> None:
        """Return once the client has hung up."""
        ...

    def wait(self) -> None:
        """The request is about to wait for something that may be long in coming.

        Raises:
            Throttled: No memory is left for that.
        """
        ...

    def hold(self, size: int) -> None:
        """The request takes so many bytes until it is answered.

        Raises:
            Throttled: There is no room for them.
        """
        ...


class HttpRequest(msgspec.Struct, eq=False):
    """What a handler may look at.

    Attributes:
        raw_path: The path as sent, percent-encoded.
        route: Pattern of the route, "unknown" until one is found; a bounded set of values.
        name: The topic (or router) of the path, percent-decoded; "" where the path has none.
        item: The one thing of a topic that the path names (a seq, a key), percent-decoded.
        key: The authenticated key; None in dev mode and on open probes.
        document: The body of a route that reads large ones in steps, when it is large.
        ignored: Members of the body that the server does not know.
        is_json: The body is known to be there, with a content type that the route takes.
        body: The whole body; b"" until the route's body policy has had it read.
        began: `time.perf_counter()` when the request was taken up.
        is_long: It waits for something that may never come, or for a client that reads a reply of
            many parts, so the time it takes is not the server's. Where that is known before it is
            answered, a client that closes its side is taken to have hung up. Set by
            `api.long_poll` and `api.begin_sending`.
        refuse: See `Route.refuse`.
    """

    method: str
    raw_path: bytes
    query_string: bytes
    headers: list[tuple[bytes, bytes]]
    _client: RequestPeer
    route: str = "unknown"
    name: str = ""
    item: str = ""
    key: Key | None = None
    is_json: bool = False
    is_counted: bool = False
    is_long: bool = False
    body: bytes = b""
    document: Any = None
    ignored: Sequence[str] = ()
    began: float = msgspec.field(default_factory=time.perf_counter)
    refuse: Refuse | None = None
    _query: dict[str, str] | None = None

    # Requests hold secrets: they must not get into the log with a traceback.
    __repr__ = object.__repr__

    def allows(self, name: str) -> bool:
        """Whether the caller may know and touch the topic or router of this name."""
        return self.key is None or self.key.allows(name)

    def ignore(self, names: Sequence[str]) -> None:
        """Have the reply name members of the body that the server does not know."""
        self.ignored = names

    def header(self, name: bytes) -> bytes | None:
        """The first header of this (lower-case) name."""
        assert name in HEADERS_READ, name
        for key, value in self.headers:
            if key == name:
                return value
        return None

    @property
    def query(self) -> dict[str, str]:
        """Query parameters, form-decoded; the first occurrence of a name counts.

        Raises:
            InvalidRequest: They are not UTF-8.
        """
        if self._query is None:
            raw = self.query_string
            self._query = {}
            if raw:
                try:
                    text = raw.decode("ascii")
                    pairs = parse_qsl(text, keep_blank_values=True, errors="strict")
                except (UnicodeDecodeError, ValueError) as error:
                    raise InvalidRequest(
                        "the query string cannot be decoded: percent-encode it as UTF-8"
                    ) from error
                for name, value in pairs:
                    self._query.setdefault(name, value)
        return self._query

    def flag(self, name: str, default: bool) -> bool:
        """A boolean parameter; anything but true/1/false/0 is the default."""
        if not self.query_string:
            return default
        value = self.query.get(name)
        if value in ("true", "1"):
            return True
        return False if value in ("false", "0") else default

    async def gone(self) -> None:
        """Return once the client has hung up."""
        await self._client.gone()

    def wait(self) -> None:
        """Say that the request is about to wait: see `RequestPeer.wait`."""
        self._client.wait()

    def hold(self, size: int) -> None:
        """Say how many bytes the reply takes while it is made: see `RequestPeer.hold`."""
        self._client.hold(size)

    def unless_gone(
        self, work: Coroutine[Any, Any, T], refused: asyncio.Future[NoReturn] | None = None
    ) -> Coroutine[Any, Any, T]:
        """Await something for the client, and cancel it when the client hangs up.

        Args:
            work: What to await.
            refused: Fails when the request is to be refused before the work is done. Cancelled at
                the end.

        Returns:
            What to await; it raises ClientGone when the client did, and what `refused` failed with.

        Raises:
            Throttled: No memory is left for one more request that waits.
        """
        try:
            self._client.wait()
        except BaseException:
            work.close()
            if refused is not None:
                refused.cancel()
            raise
        return self._unless_gone(work, refused)

    async def _unless_gone(
        self, work: Coroutine[Any, Any, T], refused: asyncio.Future[NoReturn] | None
    ) -> T:
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(self.gone())
        pending: list[asyncio.Future[Any]] = [task, gone]
        if refused is not None:
            pending.append(refused)
        try:
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                if refused is not None and refused.done():
                    refused.result()
                raise ClientGone
            return task.result()
        finally:
            for future in pending:
                future.cancel()
            await asyncio.gather(*pending, return_exceptions=True)


class Reply(msgspec.Struct, eq=False):
    """A complete answer.

    Attributes:
        body: All of it; b"" when it is in parts.
        parts: A body too long for one step, already cut; None otherwise.
        on_undelivered: Called when the client was gone before the answer could be sent; None by
            default.
    """

    body: bytes
    status: int = 200
    extra_headers: Fields = ()
    content_type: tuple[bytes, bytes] = JSON_TYPE
    parts: Sequence[bytes] | None = None
    on_undelivered: Callable[[], None] | None = None

    # Replies hold what clients keep here: that must not get into the log either.
    __repr__ = object.__repr__

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.body) if self.parts is None else sum(map(len, self.parts))

    def name_ignored(self, names: Sequence[str]) -> None:
        """Add the header that names members of the request which the server ignored."""
        self.extra_headers = (*self.extra_headers, (IGNORED_HEADER, header_text(names)))


Refuse = Callable[[HttpRequest, Exception], Reply]
"""Makes the reply to a refused request, of a `LogqueueError` or a `ForeignRefusal`."""


class Download(NamedTuple):
    """An answer too long to be held in memory: read while it is sent, as fast as it is taken.

    Attributes:
        start, stop: Which bytes; `stop` is not among them.
        read: Gives so many bytes from an offset on; fewer only where there are no more.
        close: Called once, at the end, however it ends.
    """

    status: int
    content_type: tuple[bytes, bytes]
    extra_headers: tuple[tuple[bytes, bytes], ...]
    start: int
    stop: int
    read: Callable[[int, int], Awaitable[bytes]]
    close: Callable[[], None]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """All headers."""
        length = (b"content-length", b"%d" % (self.stop - self.start))
        return [self.content_type, length, *self.extra_headers]


async def read_parts(download: Download) -> AsyncIterator[bytes]:
    """The parts of a long answer; each is read when it is asked for.

    Raises:
        OSError: What is read ends before the download does.
    """
    offset = download.start
    while offset < download.stop:
        data = await download.read(min(PART_BYTES, download.stop - offset), offset)
        if not data:
            raise OSError(f"a download ended at byte {offset}, not {download.stop}")
        offset += len(data)
        yield data


class StreamedReply(NamedTuple):
    """An answer of unknown length: sent part by part, as fast as it is taken.

    Attributes:
        parts: The body. Closed at the end, however it ends.
    """

    status: int
    fields: Fields
    parts: AsyncGenerator[bytes, None]


PendingReply = Pending[Reply]
"""A reply that may leave once the jobs log has reached what it was computed from."""

Later = Reply | Download | StreamedReply
Answer = (
    Reply
    | PendingReply
    | Coroutine[Any, Any, Reply]
    | Coroutine[Any, Any, Reply | Download]
    | Coroutine[Any, Any, Reply | StreamedReply]
    | Coroutine[Any, Any, Later]
)
Handler = Callable[[HttpRequest], Answer]
"""Answers a request: at once, when the log is ready, or (rarely) after other waiting. Downloads
come from routes that are `bulk` only, streamed replies from pages."""

Begin = Callable[[ByteStream], None]
StreamHandler = Callable[[HttpRequest], Begin]
"""Checks a request for an endless reply; what it returns is called to begin the body. Must not
change anything yet: the reply may still be refused, or be one without a body."""

EVENT_STREAM: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
"""The headers of every endless reply."""


SocketHandler = Callable[[HttpRequest], Callable[[WebSocket], object]]
"""Checks a request for a WebSocket; what it returns is called to begin, after the upgrade."""


def require_event_stream(request: HttpRequest) -> None:
    """Check the Accept header of a request for an endless reply.

    Raises:
        NotAcceptable: It excludes event streams.
    """
    accept = (request.header(b"accept") or b"").lower()
    if accept and b"text/event-stream" not in accept and b"*/*" not in accept:
        raise NotAcceptable("this route answers with an event stream: accept text/event-stream")
