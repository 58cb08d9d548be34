"""Requests of the real client to the server in memory, and what can go wrong on the way.

Owns: the httpx transports, the links they belong to, faults on demand. Must not know: workers, what
a request is about beyond its path.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NoReturn, Protocol

import httpx

from logqueue.testing.core import Exchange, MemoryCore


class Link:
    """The network between one party and the server.

    Attributes:
        is_cut: Nothing gets through from then on.
        is_dead: The party itself is gone: its calls end as if it had been cancelled.
    """

    def __init__(self, core: MemoryCore, faults: Faults) -> None:
        self.is_cut = False
        self.is_dead = False
        self._core = core
        self._faults = faults
        self._open: set[Exchange] = set()

    def begin(self, request: httpx.Request, body: bytes, on_change: Callable[[], None]) -> Exchange:
        """Send a request; what can be answered now is answered when this returns.

        Raises:
            httpx.TransportError: The link is cut, or a fault was ordered.
        """
        if self.is_dead:
            raise asyncio.CancelledError("the worker of this call has crashed")
        if self.is_cut:
            raise httpx.ConnectError("the link is cut", request=request)
        fault = self._faults.take(request)
        if fault == "request":
            raise httpx.ReadError("the request was lost, as ordered", request=request)
        exchange = Exchange(
            request.method,
            request.url.raw_path.partition(b"?")[0],
            request.url.query,
            [(name.lower(), value) for name, value in request.headers.raw],
        )
        if fault == "reply":
            self._core.submit(exchange, body)
            self._core.hang_up(exchange)
            raise httpx.ReadError("the reply was lost, as ordered", request=request)
        exchange.on_change = on_change
        self._open.add(exchange)
        self._core.submit(exchange, body)
        return exchange

    def end(self, exchange: Exchange) -> None:
        """The party is done with an exchange, complete or not."""
        self._open.discard(exchange)
        if not exchange.is_over:
            exchange.on_change = _nothing
            self._core.hang_up(exchange)

    def cut(self, *, is_noticed: bool = True, is_dead: bool = False) -> None:
        """Let nothing through from now on.

        Args:
            is_noticed: Both sides see their connections end, as when a process is killed; else
                each keeps them open until its timeout, as when a cable is cut.
            is_dead: The party itself is gone.
        """
        self.is_cut = True
        self.is_dead = is_dead
        for exchange in list(self._open):
            if is_noticed:
                self._core.hang_up(exchange)
                exchange.end(is_broken=True)
            else:
                exchange.go_silent()
        self._open.clear()


def _nothing() -> None:
    pass


class Faults:
    """Faults that were ordered and did not happen yet."""

    def __init__(self) -> None:
        self._ordered: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def order(self, kind: str, verb: str, times: int) -> None:
        """Have `times` calls of a verb go wrong: their `request` or their `reply` is lost."""
        with self._lock:
            self._ordered += [(kind, verb)] * times

    def take(self, request: httpx.Request) -> str:
        """The failure injected into this request; "" for none."""
        called = verb(request)
        with self._lock:
            for fault in self._ordered:
                if fault[1] == called:
                    self._ordered.remove(fault)
                    return fault[0]
        return ""


def verb(request: httpx.Request) -> str:
    """What a request does: the last word of its path, `append` for writes, else its method."""
    segments = request.url.path.strip("/").split("/")
    if len(segments) > 3:
        return segments[3]
    return "append" if request.method == "POST" else request.method.lower()


def _broken(request: httpx.Request) -> NoReturn:
    raise httpx.ReadError("the connection broke", request=request)


class _Incoming:
    """A reply whose body is still coming, for either kind of client."""

    def __init__(self, request: httpx.Request, exchange: Exchange, link: Link) -> None:
        self.request = request
        self.exchange = exchange
        self._link = link

    def take(self) -> bytes | None:
        """What has come of the body since the last call; b"" when more is still to come, None
        behind its end.

        Raises:
            httpx.ReadError: The connection broke.
        """
        part = self.exchange.take()
        if part:
            return part
        if self.exchange.is_broken:
            _broken(self.request)
        return None if self.exchange.is_over else b""

    def close(self) -> None:
        """The client is done with it."""
        self._link.end(self.exchange)


# -- blocking clients ------------------------------------------------------------------------------


class Wait(Protocol):
    """Blocks until a condition holds that the server brings about."""

    def __call__(self, is_met: Callable[[], bool], changed: threading.Event) -> None: ...


class BlockingTransport(httpx.BaseTransport):
    """Carries a Client's requests."""

    def __init__(self, link: Link, wait: Wait) -> None:
        self._link = link
        self._wait = wait

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """See httpx."""
        changed = threading.Event()
        exchange = self._link.begin(request, request.read(), changed.set)
        self._wait(lambda: exchange.status != 0 or exchange.is_over, changed)
        if not exchange.status:
            _broken(request)
        body = _BlockingBody(_Incoming(request, exchange, self._link), self._wait, changed)
        return httpx.Response(exchange.status, headers=exchange.headers, stream=body)


class _BlockingBody(httpx.SyncByteStream):
    def __init__(self, incoming: _Incoming, wait: Wait, changed: threading.Event) -> None:
        self._incoming = incoming
        self._wait = wait
        self._changed = changed

    def __iter__(self) -> Iterator[bytes]:
        self._changed.clear()
        while (part := self._incoming.take()) is not None:
            if part:
                yield part
            else:
                self._wait(self._changed.is_set, self._changed)
            self._changed.clear()

    def close(self) -> None:
        self._incoming.close()


# -- asynchronous clients --------------------------------------------------------------------------


class AwaitingTransport(httpx.AsyncBaseTransport):
    """Carries an AsyncClient's requests."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See httpx."""
        body = await request.aread()
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def on_change() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(changed.set)

        exchange = self._link.begin(request, body, on_change)
        timeout_s = request.extensions.get("timeout", {}).get("read")
        try:
            while not exchange.status and not exchange.is_over:
                changed.clear()
                await _next(exchange, changed, timeout_s, request)
        except BaseException:
            self._link.end(exchange)
            raise
        if not exchange.status:
            self._link.end(exchange)
            _broken(request)
        stream = _AwaitingBody(_Incoming(request, exchange, self._link), changed, timeout_s)
        return httpx.Response(exchange.status, headers=exchange.headers, stream=stream)


async def _next(
    exchange: Exchange, changed: asyncio.Event, timeout_s: float | None, request: httpx.Request
) -> None:
    """Wait for more of a reply.

    The server sends no heartbeats here, so that an hour of silence costs nothing; timeouts
    fire only where the link was cut unnoticed.
    """
    await changed.wait()
    if exchange.is_silent:
        await asyncio.sleep(timeout_s or 0.0)
        raise httpx.ReadTimeout(f"silence for {timeout_s} s", request=request)


class _AwaitingBody(httpx.AsyncByteStream):
    def __init__(
        self, incoming: _Incoming, changed: asyncio.Event, timeout_s: float | None
    ) -> None:
        self._incoming = incoming
        self._changed = changed
        self._timeout_s = timeout_s

    async def __aiter__(self) -> AsyncIterator[bytes]:
        incoming = self._incoming
        self._changed.clear()
        while (part := incoming.take()) is not None:
            if part:
                yield part
            else:
                await _next(incoming.exchange, self._changed, self._timeout_s, incoming.request)
            self._changed.clear()

    async def aclose(self) -> None:
        self._incoming.close()
