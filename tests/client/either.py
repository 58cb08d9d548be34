"""Runs both clients through the same tests.

Owns: an event loop that turns the awaiting client into one that can be called like the other. Must
not know: routes, servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, Literal, cast

import httpx

from logqueue.client import AsyncClient, Client
from logqueue.client.connecting import Urls

Kind = Literal["blocking", "awaiting"]
KINDS: tuple[Kind, ...] = ("blocking", "awaiting")


class Naps:
    """Stands in for sleeping: remembers for how long, and lets tests act in between."""

    def __init__(self) -> None:
        self.now = 0.0
        self.taken: list[float] = []
        self.then: Callable[[], object] = lambda: None

    def clock(self) -> float:
        """Seconds slept so far."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Sleep no time at all."""
        self.taken.append(seconds)
        self.now += seconds
        self.then()

    async def sleep_async(self, seconds: float) -> None:
        """Sleep no time at all, but let others run."""
        self.sleep(seconds)
        await asyncio.sleep(0)


class Driven:
    """The awaiting client, driven to the end of each call."""

    def __init__(self, client: AsyncClient, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found):
            return found

        def method(*args: Any, **kwargs: Any) -> Any:
            result = found(*args, **kwargs)
            if isinstance(result, AsyncGenerator):
                return self._drive(result)
            return self._loop.run_until_complete(result)

        return method

    def _drive(self, items: AsyncGenerator[Any, None]) -> Generator[Any, None, None]:
        try:
            while True:
                try:
                    yield self._loop.run_until_complete(anext(items))
                except StopAsyncIteration:
                    return
        finally:
            self._loop.run_until_complete(items.aclose())


class Opened:
    """Clients of one kind; all closed at the end."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.naps = Naps()
        self._loop = asyncio.new_event_loop()
        self._open: list[Any] = []

    def __call__(self, url: Urls | None = None, token: str | None = None, **more: Any) -> Client:
        """A client with the same arguments as both have, that never really sleeps."""
        given: dict[str, Any] = {"clock": self.naps.clock, "chance": lambda: 1.0, **more}
        if self.kind == "blocking":
            blocking = Client(url, token, **{"sleep": self.naps.sleep, **given})
            self._open.append(blocking)
            return blocking
        awaiting = AsyncClient(url, token, **{"sleep": self.naps.sleep_async, **given})
        self._open.append(Driven(awaiting, self._loop))
        return cast(Client, self._open[-1])

    def close(self) -> None:
        """Close every client, then the loop."""
        for client in self._open:
            client.close()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class Script(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a stream: bytes in given parts, an exception raised where one stands."""

    def __init__(self, *parts: bytes | Exception) -> None:
        self._parts = parts

    def __iter__(self) -> Generator[bytes, None, None]:
        for part in self._parts:
            if isinstance(part, Exception):
                raise part
            yield part

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        for part in self:
            yield part


def event_stream(*parts: bytes | Exception) -> httpx.Response:
    """The head of an event stream and its body."""
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Script(*parts))
