"""The server in memory: the real engine, journal and HTTP layer on a disk that is no disk.

Owns: the thread that the server lives in, its loop, which runs only while somebody asks something
of it or something is due, and how one request gets in and its answer out. Must not know: httpx,
workers.

Whoever calls waits until the server has nothing left to do: an answer that can be given now has
been given then. What takes longer (a claim that waits, a stream) is answered in a later call, made
by whoever lets time pass or changes the queue.

What the server does in the background, it does here between two steps of time: routers copy as
ever, and it tidies at most once a virtual second, only when something was asked or is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from random import Random
from typing import Any, TypeVar, cast

from logqueue.core.topic import Topic
from logqueue.errors import ShuttingDown
from logqueue.events import AnyEvent
from logqueue.server.app import routes
from logqueue.server.engine.background import TIDY_INTERVAL_S
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.engine.engine import Engine
from logqueue.server.http.api import HttpApi
from logqueue.server.http.byte_stream import ByteStream
from logqueue.server.http.heartbeat import Heartbeat
from logqueue.server.http.routing import RouteTable
from logqueue.server.metrics import Metrics
from logqueue.server.service import Phase, Service
from logqueue.server.settings import Settings
from logqueue.server.storage.journal import Journal
from logqueue.testing.virtual import VirtualLoop, VirtualTime
from wal.testing.simfs import SimFileSystem

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000
SEGMENT_BYTES = 1 << 20

DAY_MS = 86_400_000
"""Virtual time takes no steps that the loop does not know of, so looking for them is in vain."""

STALL_RETRY_S = 1.0
"""Longer than on the real server, since every look costs a turn. What makes room in between (a
claim, a delete, an eviction) is noticed at once."""


class Exchange:
    """One request and what comes back. Filled in the server's thread, read in any.

    Attributes:
        status: 0 until the head of the reply is there.
        is_over: The whole reply is there, or the connection broke.
        is_broken: The connection broke.
        is_silent: Nothing more will be heard, and the server does not know.
        on_change: Called in the server's thread whenever more has come.
    """

    def __init__(
        self, method: str, raw_path: bytes, query: bytes, headers: list[tuple[bytes, bytes]]
    ) -> None:
        self.scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "raw_path": raw_path,
            "query_string": query,
            "headers": headers,
        }
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.is_over = False
        self.is_broken = False
        self.is_silent = False
        self.on_change: Callable[[], None] = _nothing
        self._parts: list[bytes] = []

    def add(self, part: bytes) -> None:
        """A part of the body has come."""
        self._parts.append(part)
        self.on_change()

    def take(self) -> bytes:
        """What has come since the last call."""
        taken = b""
        while self._parts:
            taken += self._parts.pop(0)
        return taken

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The head of the reply has come."""
        self.status = status
        self.headers = headers

    def go_silent(self) -> None:
        """What comes from now on gets lost, and nobody is told."""
        self.is_silent = True
        self.on_change()
        self.on_change = _nothing

    def end(self, *, is_broken: bool = False) -> None:
        """No more comes."""
        self.is_over = True
        self.is_broken |= is_broken
        self.on_change()


def _nothing() -> None:
    pass


class _QuietLoop(VirtualLoop):
    """The server's loop. Nobody here listens for signs of life, and each would cost a turn.

    Attributes:
        in_threads: Functions that the server has running in threads. It has not come to rest before
            they return.
    """

    def __init__(self, time: VirtualTime) -> None:
        super().__init__(time)
        self.in_threads = 0

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """As ever, and counted."""
        self.in_threads += 1
        future = asyncio.SelectorEventLoop.run_in_executor(self, executor, func, *args)
        future.add_done_callback(self._returned)
        return future

    def _returned(self, future: asyncio.Future[Any]) -> None:
        self.in_threads -= 1

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, **options: Any
    ) -> asyncio.TimerHandle:
        """As ever, but for heartbeats."""
        if isinstance(getattr(callback, "__self__", None), Heartbeat):
            return asyncio.TimerHandle(self.time() + delay, callback, args, self)
        return super().call_later(delay, callback, *args, **options)


class _Clock:
    """The server's clock: virtual time, as ms since the epoch."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time

    def now_ms(self) -> int:
        """See Clock."""
        return EPOCH_MS + int(self._time.now() * 1000 + 1e-6)


class _Wire:
    """One connection, seen from the server."""

    def __init__(self, exchange: Exchange, loop: asyncio.AbstractEventLoop) -> None:
        self.gone = asyncio.Event()
        self.stream: ByteStream | None = None
        self.task: asyncio.Task[None] | None = None
        self._exchange = exchange

    def open_stream(self, over: Callable[[], None]) -> ByteStream:
        """See Connection."""
        self._exchange.head(200, [(b"content-type", b"text/event-stream")])

        def ended() -> None:
            self.stream = None
            self._exchange.end()
            over()

        self.stream = ByteStream(
            cast(asyncio.Transport, _Transport(self._exchange)), is_chunked=False, over=ended
        )
        return self.stream

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """See ASGI."""
        if message["type"] == "http.response.start":
            self._exchange.head(message["status"], list(message["headers"]))
        else:
            self._exchange.add(message.get("body", b""))
            if not message.get("more_body", False):
                self._exchange.end()

    def hang_up(self) -> None:
        """The client is gone."""
        self.gone.set()
        if self.stream is not None:
            self.stream.lose()


class _Transport:
    """Where an endless body is written to."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def write(self, data: bytes) -> None:
        """See asyncio.Transport."""
        self._exchange.add(data)


class MemoryCore:
    """A server without a port. Every public method may be called from any thread."""

    def __init__(self, time: VirtualTime, seed: int) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logqueue-memory")
        self._time = time
        self._clock = _Clock(time)
        self._fs = SimFileSystem(Random(seed))
        self._loop = _QuietLoop(time)
        self._loop.ask_before_sleep(self._idle)
        self._due: float | None = None
        self._tidied = -TIDY_INTERVAL_S
        self._changes = 0
        self._wires: dict[Exchange, _Wire] = {}
        self._run(self._open)
        time.add(self)

    def next_due(self) -> float | None:
        """See Clockwork."""
        return self._due

    def fire(self) -> None:
        """See Clockwork."""
        self._run(lambda: None)

    def now_ms(self) -> int:
        """The server's clock."""
        return self._clock.now_ms()

    @property
    def changes(self) -> int:
        """How many requests there were that may have changed something."""
        return self._changes

    # -- requests --------------------------------------------------------------------------------

    def submit(self, exchange: Exchange, body: bytes) -> None:
        """Hand a request in, and let the server do all it can about it now."""

        if exchange.scope["method"] != "GET":
            self._changes += 1

        def begin() -> None:
            wire = self._wires[exchange] = _Wire(exchange, self._loop)
            wire.task = self._loop.create_task(self._answer(exchange, wire, body))

        self._run(begin)

    def hang_up(self, exchange: Exchange) -> None:
        """The client closes the connection of a request that is not over."""

        def close() -> None:
            wire = self._wires.get(exchange)
            if wire is not None:
                wire.hang_up()

        self._run(close)

    def break_connections(self) -> None:
        """Every connection with an open request breaks, on both sides."""

        self._run(self._break)

    def _break(self) -> None:
        for exchange, wire in list(self._wires.items()):
            wire.hang_up()
            exchange.end(is_broken=True)

    async def _answer(self, exchange: Exchange, wire: _Wire, body: bytes) -> None:
        is_read = False

        async def receive() -> MutableMapping[str, Any]:
            nonlocal is_read
            if not is_read:
                is_read = True
                return {"type": "http.request", "body": body, "more_body": False}
            await wire.gone.wait()
            return {"type": "http.disconnect"}

        try:
            await self._api(exchange.scope, receive, wire.send, wire)
        finally:
            del self._wires[exchange]
            if not exchange.is_over:
                exchange.end(is_broken=True)

    # -- life ------------------------------------------------------------------------------------

    def restart(self, *, kill: bool) -> None:
        """End the server and start it again on the same disk; every connection breaks.

        Args:
            kill: As by SIGKILL, with nothing said or flushed.
        """
        self._run(self._kill if kill else self._shut_down)
        self._run(self._open)

    def close(self) -> None:
        """End the server for good."""
        self._time.remove(self)
        self.break_connections()
        self._run(self._shut_down)
        self._thread.submit(self._loop.close).result()
        self._thread.shutdown()

    def _open(self) -> None:
        journal = Journal.open("data", segment_bytes_max=SEGMENT_BYTES, fs=self._fs)
        engine = Engine(journal, self._clock)
        engine.recover()
        service = Service(Settings(data_dir="."))
        metrics = Metrics(service)
        self._api = HttpApi(service, RouteTable(routes(service, metrics)), metrics)
        self._service = service

        async def begin() -> None:
            coordinator = self._coordinator = Dispatcher(engine, clock_check_ms=DAY_MS)

            def note(topic: Topic | None, event: AnyEvent) -> None:
                metrics.event(topic, event)
                coordinator.note(topic, event)

            engine.on_event = note
            engine.on_expired = metrics.leases_expired
            coordinator.start_routers(STALL_RETRY_S)
            service.begin(coordinator)

        self._loop.run_until_complete(begin())

    def _shut_down(self) -> None:
        self._service.drain()
        self._coordinator.end_streams(ShuttingDown("the server is shutting down; connect again"))
        self._rest()
        self._break()
        self._rest()
        self._loop.run_until_complete(self._coordinator.stop())
        self._coordinator.engine.shut_down()

    def _kill(self) -> None:
        # What the dying server does from here on never happened.
        disk = self._fs.kill_clone()
        self._service.drain()
        self._break()
        self._rest()
        self._loop.run_until_complete(self._coordinator.stop())
        journal = self._coordinator.engine.journal
        with suppress(OSError):
            journal.close()
        self._fs = disk

    # -- the server's thread ---------------------------------------------------------------------

    def _run(self, call: Callable[[], T]) -> T:
        """Do something in the server's thread, then let the server come to rest."""

        def run() -> T:
            result = call()
            self._settle()
            return result

        return self._thread.submit(run).result()

    def _settle(self) -> None:
        """Let the server do all it can do now, and find out when it wants to do more."""
        self._rest()
        engine = self._coordinator.engine
        now = self._time.now()
        if now >= self._tidied + TIDY_INTERVAL_S and self._service.phase is Phase.READY:
            self._tidied = now
            for _ in engine.tidy():
                self._rest()
            self._rest()
        topics = engine.state.instances.values()
        expiries = [at for topic in topics if (at := topic.next_expiry()) is not None]
        if expiries:
            due = max((min(expiries) - EPOCH_MS) / 1000, self._tidied + TIDY_INTERVAL_S)
            self._due = due if self._due is None else min(self._due, due)

    def _rest(self) -> None:
        """Run the loop and both logs until neither has anything left to do now."""
        while True:
            self._loop.run_forever()
            journal = self._coordinator.engine.journal
            if not journal.jobs.step():
                break
            self._coordinator.gate.notify()
        journal.flush_leases()

    def _idle(self, timeout: float | None) -> bool:
        if self._loop.in_threads:
            return True
        self._due = None if timeout is None else self._time.now() + timeout
        self._loop.stop()
        return False
