"""Clients that take too long: a connection under a clock that is turned by hand."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from typing import Any
from unittest.mock import Mock

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, Event, ResponseReceived, StreamReset

from logqueue.api import openapi
from logqueue.server.app import http_api
from logqueue.server.http.connection import HttpConnection
from logqueue.server.metrics import Metrics
from logqueue.server.service import Service
from logqueue.server.settings import Settings

HEAD = b"POST /v0/topics/q HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


class Clock:
    """As much of an event loop as a connection asks for."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    def create_task(self, work: Coroutine[Any, Any, None]) -> Mock:
        """Carry out what waits for nothing, at once."""
        with pytest.raises(StopIteration):
            work.send(None)
        task = Mock()
        task.add_done_callback = lambda over: over(task)
        return task

    def call_later(
        self, delay: float, call: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        loop: Any = self
        handle = asyncio.TimerHandle(self.now + delay, call, args, loop)
        self._count += 1
        heapq.heappush(self._timers, (handle.when(), self._count, handle))
        return handle

    def call_soon(self, call: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return self.call_later(0.0, call, *args)

    def create_future(self) -> None:
        raise AssertionError("nothing here waits")

    def turn(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            self.now, _, handle = heapq.heappop(self._timers)
            if not handle.cancelled():
                handle._run()
        self.now = end

    @property
    def pending(self) -> int:
        """Timers that are due one day."""
        return sum(not handle.cancelled() for _, _, handle in self._timers)


class Line:
    """A connection seen from its client."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Clock()
        self.written = b""
        self.unread = 0
        self.is_closed = self.is_aborted = self.is_paused = False
        service = self.service = Service(Settings(**settings))
        loop: Any = self.clock
        self.connections: set[Any] = set()
        api = http_api(service, Metrics(service))
        self.protocol: Any = HttpConnection(api, loop, self.connections, set())
        self.protocol.connection_made(self)

    def write(self, data: bytes) -> None:
        self.written += data

    def write_eof(self) -> None: ...

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            if not self.unread:
                self.protocol.connection_lost(None)

    def abort(self) -> None:
        self.is_aborted = True
        self.unread = 0
        self.is_closed = True
        self.protocol.connection_lost(None)

    def get_write_buffer_size(self) -> int:
        return self.unread

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    @property
    def is_over(self) -> bool:
        """Whether the connection is gone, and nothing is left of it."""
        gone = not self.connections
        assert not gone or (self.clock.pending == 0 and self.service.memory.used == 0)
        return gone


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 1000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"]
)
def test_a_body_that_pauses(framing: bytes) -> None:
    line = Line()
    line.protocol.data_received(HEAD + framing)
    line.protocol.data_received(b"1\r\nx\r\n")
    assert line.service.memory.used > 0 or framing.startswith(b"Trans")
    line.clock.turn(29)
    assert not line.written
    line.clock.turn(32)
    assert line.written.startswith(b"HTTP/1.1 400 ") and b"too slowly" in line.written
    line.clock.turn(5)
    assert line.is_over


def test_a_body_that_drips() -> None:
    """A byte now and then is not enough in the long run."""
    line = Line()
    line.protocol.data_received(HEAD + b"Content-Length: 1000000\r\n\r\n")
    for _ in range(100):
        line.protocol.data_received(b"x")
        line.clock.turn(1)
    assert b"too slowly" in line.written


def test_a_slow_body_that_is_fast_enough() -> None:
    line = Line()
    line.protocol.data_received(HEAD + b"Content-Length: 1000000\r\n\r\n")
    for _ in range(120):
        line.protocol.data_received(b"x" * 5000)
        line.clock.turn(1)
    assert not line.written
    assert line.service.memory.used == 600_000
    line.protocol.connection_lost(None)
    assert line.is_over


def test_a_body_that_no_route_reads_costs_nothing() -> None:
    line = Line()
    head = b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
    line.protocol.data_received(head)
    for _ in range(9):
        line.protocol.data_received(b"x" * 100_000)
        assert line.service.memory.used == 0
    line.protocol.data_received(b"x" * 100_000 + head)
    assert line.written.count(b"HTTP/1.1 200 ") == 1
    line.clock.turn(100)
    assert b"too slowly" in line.written
    assert line.is_over


def test_a_head_that_never_ends() -> None:
    line = Line()
    for _ in range(70):
        line.protocol.data_received(b"G" if not line.clock.now else b"E")
        line.clock.turn(1)
    assert b"took longer than 60 s" in line.written
    line.clock.turn(5)
    assert line.is_over


def test_a_connection_that_says_nothing() -> None:
    line = Line()
    line.clock.turn(80)
    assert not line.written
    assert line.is_over


def test_a_client_that_does_not_read() -> None:
    line = Line()
    line.unread = 100_000
    line.protocol.pause_writing()
    assert line.service.memory.used == 100_000
    line.clock.turn(30)
    line.unread = 90_000
    line.clock.turn(40)
    assert line.service.memory.used
    line.clock.turn(60)
    assert line.is_over


def test_a_client_that_leaves_an_end_unread() -> None:
    """A closed connection does not wait for its reader for ever either."""
    line = Line()
    line.unread = 1000
    line.protocol.data_received(b"GARBAGE\r\n\r\n")
    line.clock.turn(64)
    assert line.is_aborted
    assert line.is_over


@pytest.mark.parametrize("end", ["complete", "hang-up", "refused", "half-closed"])
def test_what_was_held_is_released(end: str) -> None:
    line = Line(max_client_bytes=200_000)
    line.protocol.data_received(HEAD + b"Content-Length: 150000\r\n\r\n" + b"x" * 100_000)
    assert line.service.memory.used == 100_000
    if end == "complete":
        line.protocol.data_received(b"x" * 50_000)
        assert b"503" in line.written
    elif end == "hang-up":
        line.protocol.connection_lost(None)
    elif end == "half-closed":
        assert line.protocol.eof_received()
        assert line.written.startswith(b"HTTP/1.1 400 ")
    else:
        share = line.service.memory
        share.add("", 90_000)
        line.protocol.data_received(b"x" * 20_000)
        assert line.written.startswith(b"HTTP/1.1 429 ")
        assert b"retry-after: 1\r\n" in line.written and b"max_client_bytes" in line.written
        share.add("", -90_000)
    assert line.service.memory.used == 0


def test_input_behind_an_unread_reply_is_bounded() -> None:
    """Pipelining stops where memory does; what was asked before is answered."""
    line = Line(max_client_bytes=300_000)
    line.protocol.pause_writing()
    line.protocol.data_received(b"x" * 200_000)
    assert line.service.memory.used == 200_000
    line.protocol.data_received(b"x" * 200_000)
    assert line.service.memory.used <= 200_000
    line.protocol.data_received(b"x" * 900_000)
    assert line.service.memory.used <= 200_000
    line.protocol.connection_lost(None)
    assert line.is_over


# -- HTTP/2 ----------------------------------------------------------------------------------------


class Http2Line(Line):
    """A connection of HTTP/2 seen from its client."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.client = H2Connection(H2Configuration(client_side=True))
        self.client.initiate_connection()
        self.flush()

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def flush(self) -> None:
        self.protocol.data_received(self.client.data_to_send())

    def begin(self, method: str, path: str, *, ends: bool) -> int:
        stream = self.client.get_next_available_stream_id()
        head = [(":method", method), (":scheme", "http"), (":path", path)]
        head += [(":authority", "localhost"), ("content-type", "application/json")]
        self.client.send_headers(stream, head, end_stream=ends)
        self.flush()
        return stream

    def events(self) -> list[Event]:
        taken, self.written = self.written, b""
        return self.client.receive_data(taken)


def test_an_idle_http2_connection_is_closed() -> None:
    line = Http2Line()
    line.begin("GET", "/v0/health", ends=True)
    line.clock.turn(70)
    assert not line.is_closed
    line.clock.turn(40)
    assert any(isinstance(event, ConnectionTerminated) for event in line.events())
    assert line.is_over


def test_an_http2_body_that_pauses() -> None:
    line = Http2Line()
    slow = line.begin("POST", "/v0/topics/q", ends=False)
    line.client.send_data(slow, b"x" * 1000)
    line.flush()
    assert line.service.memory.used == 1000
    line.clock.turn(29)
    assert not any(isinstance(event, ResponseReceived) for event in line.events())
    line.clock.turn(62)
    found = line.events()
    assert any(isinstance(event, DataReceived) and b"too slowly" in event.data for event in found)
    assert any(isinstance(event, StreamReset) for event in found)
    assert line.service.memory.used == 0 and not line.is_closed
    line.clock.turn(120)
    assert line.is_over


@pytest.mark.parametrize(
    "begun", [b"\x00\x00\x08\x06", b"\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82"]
)
def test_an_http2_frame_that_never_ends(begun: bytes) -> None:
    """A frame in parts, and a head that promises more frames."""
    line = Http2Line()
    line.protocol.data_received(begun)
    line.clock.turn(95)
    assert any(isinstance(event, ConnectionTerminated) for event in line.events())
    line.clock.turn(5)
    assert line.is_over


@pytest.fixture
def description(monkeypatch: pytest.MonkeyPatch) -> None:
    """A description for machines that is sent at once: one that is too long for that is sent piece
    by piece, see test_large_replies.py."""
    monkeypatch.setattr(openapi, "encoded", lambda: b"x" * 200_000)


@pytest.mark.usefixtures("description")
def test_an_http2_reply_that_is_not_read() -> None:
    """Its stream ends; the connection does not."""
    line = Http2Line()
    stream = line.begin("GET", "/v0/openapi.json", ends=True)
    line.events()
    assert line.service.memory.used > 50_000
    line.clock.turn(50)
    assert not any(isinstance(event, StreamReset) for event in line.events())
    line.clock.turn(80)
    resets = [event for event in line.events() if isinstance(event, StreamReset)]
    assert [event.stream_id for event in resets] == [stream]
    assert line.service.memory.used == 0 and not line.is_closed
    line.protocol.connection_lost(None)
    assert line.is_over


@pytest.mark.usefixtures("description")
def test_an_http2_client_whose_socket_is_full() -> None:
    line = Http2Line()
    line.begin("GET", "/v0/openapi.json", ends=True)
    line.unread = 100_000
    line.protocol.pause_writing()
    assert line.service.memory.used > 100_000
    line.clock.turn(200)
    assert line.is_aborted and line.is_over
