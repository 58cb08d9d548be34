"""Two addresses of one server in memory: at most one is the writer's, as after a takeover.

Owns: what each address answers, and environments of apps that know both. Must not know: the tests.
"""

from __future__ import annotations

from random import Random
from typing import Any

import httpx

from logqueue.client import AsyncClient, Client
from logqueue.testing import MemoryServer
from logqueue.testing.core import HOST
from logqueue.testing.transport import AwaitingTransport, BlockingTransport, verb
from logqueue.worker import App
from logqueue.worker.environment import ONE_TRY
from logqueue.worker.leases import LeaseKeeper

A, B = URLS = ("http://a.test:4000", "http://b.test:4000")


class Doors:
    """Which address leads to the server.

    Attributes:
        writer: The one that does; "" while there is none.
        away: Those that take no connections; the others follow.
        named: What followers believe to be the writer.
    """

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.writer = A
        self.away: set[str] = set()
        self.named = A
        self._passed: list[str] = []

    def passed(self, verb: str) -> int:
        """How many requests of a verb the writer has got."""
        return self._passed.count(verb)

    def attach(self, app: App) -> None:
        """Have an app and its workers know both addresses."""
        self.server.attach(app)
        app.surroundings = _Outside(self)

    def lose(self, url: str) -> None:
        """Kill the server at an address; it leads nowhere from then on."""
        self.away.add(url)
        self.writer = ""
        self.server.restart(kill=True)

    def promote(self, url: str) -> None:
        """The server at an address is the writer from now on."""
        self.writer = self.named = url

    def opened(self, request: httpx.Request) -> httpx.Response | None:
        """The answer at the door; None where it leads to the server.

        Raises:
            httpx.ConnectError: The server there is away.
        """
        url = f"{request.url.scheme}://{request.url.host}:{request.url.port}"
        if url in self.away:
            raise httpx.ConnectError("refused", request=request)
        if url == self.writer:
            request.headers["host"] = HOST
            self._passed.append(verb(request))
            return None
        said = {"code": "not_writer", "message": "a standby", "detail": {"writer": self.named}}
        return httpx.Response(503, json={"error": said}, headers={"retry-after": "1"})


class _Outside:
    """The environment of an app that knows both addresses."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._server = doors.server

    def producer(self) -> Client:
        return self._client("producer")

    def async_producer(self) -> AsyncClient:
        return self._async_client("producer")

    def worker(self, node: str) -> AsyncClient:
        return self._async_client(node, backoff=ONE_TRY, reconnect=ONE_TRY)

    def keeper(self, node: str, timeout_s: float) -> Client:
        return self._client(node, backoff=ONE_TRY)

    def _client(self, node: str, **options: Any) -> Client:
        server = self._server
        inner = BlockingTransport(server._link(node), server._wait)
        return Client(
            URLS,
            node=node,
            transport=_Blocking(self._doors, inner),
            clock=server.now,
            sleep=server.sleep,
            chance=Random(0).random,
            **options,
        )

    def _async_client(self, node: str, **options: Any) -> AsyncClient:
        inner = AwaitingTransport(self._server._link(node))
        return AsyncClient(
            URLS,
            node=node,
            transport=_Awaiting(self._doors, inner),
            clock=self._server.now,
            chance=Random(0).random,
            **options,
        )

    def now(self) -> float:
        return self._server.now()

    def start(self, keeper: LeaseKeeper) -> Any:
        from logqueue.testing.memory import _InMemory

        return _InMemory(self._server).start(keeper)


class _Blocking(httpx.BaseTransport):
    def __init__(self, doors: Doors, inner: httpx.BaseTransport) -> None:
        self._doors = doors
        self._inner = inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._doors.opened(request) or self._inner.handle_request(request)


class _Awaiting(httpx.AsyncBaseTransport):
    def __init__(self, doors: Doors, inner: httpx.AsyncBaseTransport) -> None:
        self._doors = doors
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self._doors.opened(request) or await self._inner.handle_async_request(request)
