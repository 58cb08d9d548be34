"""The server in memory: the real engine, journal and HTTP layer on a simulated disk.

Owns: the thread that the server lives in, its loop, which runs only while it is called
of it or something is due, and how one request gets in and its answer out. Must not know: httpx,
workers.

A caller waits until the server has nothing left to do: an answer that can be given now has
been given then. What takes longer (a claim that waits, a stream) is answered in a later call, made
by the thread that lets time pass or changes the queue.

What the server does in the background, it does here between two steps of time: routers copy as
usual, and it compacts at most once a virtual second, only when something was asked or is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from random import Random
from typing import Any, TypeVar

import httptools

from logqueue.server.engine.background import TIDY_INTERVAL_S
from logqueue.server.http.connection import HttpConnection
from logqueue.server.http.heartbeat import Heartbeat
from logqueue.server.runtime import Runtime
from logqueue.server.service import Phase
from logqueue.server.settings import Settings
from logqueue.testing.virtual import VirtualLoop, VirtualTime
from wal.testing.simfs import SimFileSystem

T = TypeVar("T")

HOST = "logqueue.test"
EPOCH_MS = 1_700_000_000_000
SEGMENT_BYTES = 2 << 20

DAY_MS = 86_400_000
"""Under virtual time no step is slow, so slow steps are not looked for."""

STALL_RETRY_S = 1.0
"""Longer than on the real server, since every look costs a turn. What makes room in between (a
claim, a delete, an eviction) is noticed at once."""


class Exchange:
    """One request and what comes back. Filled in the server's thread, read in any.

    Attributes:
        method: That of the request.
        status: 0 until the head of the reply is there.
        headers: Those of the reply.
        is_over: The whole reply is there, or the connection broke.
        is_broken: The connection broke.
        is_silent: Nothing more will be heard, and the server does not know.
        on_change: Called in the server's thread whenever more has come.
    """

    def __init__(
        self, method: str, raw_path: bytes, query: bytes, headers: list[tuple[bytes, bytes]]
    ) -> None:
        self.method = method
        self._target = raw_path + (b"?" + query if query else b"")
        self._sent_headers = headers
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.is_over = False
        self.is_broken = False
        self.is_silent = False
        self.on_change: Callable[[], None] = _nothing
        self._parts: list[bytes] = []

    def wire(self, body: bytes) -> bytes:
        """The request as bytes."""
        headers = [*self._sent_headers]
        names = {name for name, _ in headers}
        if b"host" not in names:
            headers.append((b"host", HOST.encode()))
        if body and not names & {b"content-length", b"transfer-encoding"}:
            headers.append((b"content-length", b"%d" % len(body)))
        fields = b"".join([b"%b: %b\r\n" % field for field in headers])
        line = b"%b %b HTTP/1.1\r\n" % (self.method.encode(), self._target)
        return line + fields + b"\r\n" + body

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
        """Drop all further output silently."""
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
    """The server's loop. Nothing here listens for heartbeats, and each would cost a turn.

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
        """As usual, and counted."""
        self.in_threads += 1
        future = asyncio.SelectorEventLoop.run_in_executor(self, executor, func, *args)
        future.add_done_callback(self._returned)
        return future

    def _returned(self, future: asyncio.Future[Any]) -> None:
        self.in_threads -= 1

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, **options: Any
    ) -> asyncio.TimerHandle:
        """As usual, but for heartbeats."""
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


class _ClientEnd(asyncio.Transport):
    """The client's end of one connection, which is the transport of the server's end.

    What the server writes is a reply at once; one connection carries one request.
    """

    def __init__(self, exchange: Exchange, forget: Callable[[], None]) -> None:
        super().__init__()
        self._exchange = exchange
        self._forget = forget
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._server: HttpConnection | None = None

    def connect(self, server: HttpConnection, request: bytes) -> None:
        """Open the connection and send the request."""
        self._server = server
        server.connection_made(self)
        server.data_received(request)

    def close(self) -> None:
        """See asyncio.Transport; also what the client does to hang up."""
        server, self._server = self._server, None
        if server is None:
            return
        self._forget()
        server.connection_lost(None)
        if not self._exchange.is_over:
            self._exchange.end(is_broken=True)

    def abort(self) -> None:
        """See asyncio.Transport."""
        self.close()

    def is_closing(self) -> bool:
        """See asyncio.Transport."""
        return self._server is None

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """See asyncio.Transport."""
        if self._server is not None:
            self._parser.feed_data(data)

    def write_eof(self) -> None:
        """See asyncio.Transport."""

    def get_write_buffer_size(self) -> int:
        """See asyncio.Transport. The client reads at once."""
        return 0

    # -- parser callbacks ------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of the reply."""
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head of the reply."""
        self._exchange.head(self._parser.get_status_code(), self._headers)
        if self._exchange.method == "HEAD":
            self.on_message_complete()

    def on_body(self, part: bytes) -> None:
        """A part of the body, its framing undone."""
        self._exchange.add(part)

    def on_message_complete(self) -> None:
        """The whole reply."""
        self._exchange.end()
        server = self._server
        assert server is not None
        server.loop.call_soon(self.close)


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
        self._tasks: set[asyncio.Task[None]] = set()
        self._open_ends: dict[Exchange, _ClientEnd] = {}
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

        if exchange.method != "GET":
            self._changes += 1

        def begin() -> None:
            end = _ClientEnd(exchange, lambda: self._forget(exchange))
            self._open_ends[exchange] = end
            server = HttpConnection(
                self._api, self._loop, self._service.connections, self._tasks, keep_alive_s=DAY_MS
            )
            self._loop.call_soon(end.connect, server, exchange.wire(body))

        self._run(begin)

    def hang_up(self, exchange: Exchange) -> None:
        """The client closes the connection of a request that is not over."""

        def close() -> None:
            end = self._open_ends.get(exchange)
            if end is not None:
                end.close()

        self._run(close)

    def break_connections(self) -> None:
        """Every connection with an open request breaks, on both sides."""

        self._run(self._break)

    def _break(self) -> None:
        for exchange, end in list(self._open_ends.items()):
            exchange.end(is_broken=True)
            end.close()

    def _forget(self, exchange: Exchange) -> None:
        del self._open_ends[exchange]

    # -- lifecycle -------------------------------------------------------------------------------

    def restart(self, *, kill: bool) -> None:
        """End the server and start it again on the same disk; every connection breaks.

        Args:
            kill: As by SIGKILL, with nothing said or flushed.
        """
        self._run(self._kill if kill else self._shut_down)
        self._run(self._open)

    def close(self) -> None:
        """End the server permanently."""
        self._time.remove(self)
        self.break_connections()
        self._run(self._shut_down)
        self._thread.submit(self._loop.close).result()
        self._thread.shutdown()

    def _open(self) -> None:
        runtime = self._runtime = Runtime(
            # The free space of some real disk is a metric, so the directory is one that is there.
            Settings(data_dir=".", allow_host=(HOST,), segment_max_bytes=SEGMENT_BYTES, sqs=True),
            fs=self._fs,
            clock=self._clock,
            is_stepped=True,
            clock_check_ms=DAY_MS,
            stall_retry_s=STALL_RETRY_S,
        )
        runtime.recover()
        self._api = runtime.api
        self._service = runtime.service

        async def begin() -> None:
            self._dispatcher = runtime.begin()

        self._loop.run_until_complete(begin())

    def _shut_down(self) -> None:
        self._runtime.drain()
        self._rest()
        self._break()
        self._rest()
        self._loop.run_until_complete(self._runtime.stop())

    def _kill(self) -> None:
        # What the dying server does from here on never happened.
        disk = self._fs.kill_clone()
        self._runtime.service.lifecycle.drain()
        self._break()
        self._rest()
        self._loop.run_until_complete(self._runtime.abort())
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
        engine = self._dispatcher.engine
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
            journal = self._dispatcher.engine.journal
            if not journal.jobs.step():
                break
            self._dispatcher.barrier.notify()
        journal.flush_leases()

    def _idle(self, timeout: float | None) -> bool:
        if self._loop.in_threads:
            return True
        self._due = None if timeout is None else self._time.now() + timeout
        self._loop.stop()
        return False
