"""HTTP/2 on a connection without a socket: the `h2` package as its client."""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    InformationalResponseReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

from logqueue.api.operations.row import Body
from logqueue.model.scopes import NO_SCOPE
from logqueue.server.app import http_api, routes
from logqueue.server.http import http2
from logqueue.server.http.api import HttpApi
from logqueue.server.http.asgi import AsgiHandler
from logqueue.server.http.requests import Handler, Reply
from logqueue.server.http.routing import Route, RouteTable
from logqueue.server.metrics import Metrics
from logqueue.server.service import Service
from logqueue.server.settings import Settings
from tests.server.lines import Line, turns

JSON = [(b"content-type", b"application/json")]
PING = struct.pack(">I", 8)[1:] + b"\x06\x00\x00\x00\x00\x00" + bytes(8)
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
ENHANCE_YOUR_CALM = 11


class Client:
    """A client on one line."""

    def __init__(self, api: HttpApi, window: int = 65535) -> None:
        self.line = Line(api)
        self.frames = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self.frames.initiate_connection()
        if window != 65535:
            self.frames.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.acks = True
        self.heads: dict[int, dict[bytes, bytes]] = {}
        self.bodies: dict[int, bytearray] = defaultdict(bytearray)
        self.ended: set[int] = set()
        self.resets: dict[int, int] = {}
        self.informed: list[int] = []
        self.goaway: int | None = None
        self.flush()

    def flush(self) -> None:
        """Send, and take what comes for it."""
        while True:
            data = self.frames.data_to_send()
            if data:
                self.line.send(data)
            if not self.line.is_read or not self.line.written:
                break
            self._take(self.line.read())

    def _take(self, data: bytes) -> None:
        for event in self.frames.receive_data(data):
            self._note(event)

    def _note(self, event: Event) -> None:
        if isinstance(event, ResponseReceived):
            self.heads[event.stream_id] = dict(event.headers)
        elif isinstance(event, InformationalResponseReceived):
            self.informed.append(event.stream_id)
        elif isinstance(event, DataReceived):
            self.bodies[event.stream_id] += event.data
            if self.acks:
                with suppress(ProtocolError):
                    self.frames.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id
                    )
        elif isinstance(event, StreamEnded):
            self.ended.add(event.stream_id)
        elif isinstance(event, StreamReset):
            self.resets[event.stream_id] = int(event.error_code or 0)
        elif isinstance(event, ConnectionTerminated):
            self.goaway = int(event.error_code or 0)

    def begin(
        self,
        method: bytes = b"GET",
        path: bytes = b"/v0/health",
        *more: tuple[bytes, bytes],
        ends: bool = True,
    ) -> int:
        """Send a head."""
        stream = self.frames.get_next_available_stream_id()
        fields = [(b":method", method), (b":scheme", b"http"), (b":path", path)]
        fields += [(b":authority", b"localhost"), *more]
        self.frames.send_headers(stream, fields, end_stream=ends)
        self.flush()
        return stream

    def post(self, path: bytes, body: bytes) -> int:
        """Send a request with a body, as the windows allow."""
        stream = self.begin(b"POST", path, *JSON, ends=False)
        self.upload(stream, body)
        return stream

    def upload(self, stream: int, body: bytes, *, ends: bool = True) -> None:
        """Send a body."""
        while body:
            size = min(self.frames.local_flow_control_window(stream), 16384)
            assert size > 0, "the server does not open the window"
            self.frames.send_data(stream, body[:size])
            self.flush()
            body = body[size:]
        if ends:
            self.frames.end_stream(stream)
            self.flush()

    def status(self, stream: int) -> int:
        """Of a reply that is complete."""
        assert stream in self.ended
        return int(self.heads[stream][b":status"])


def echo(request: Any) -> Reply:
    """The length of the body, or as many bytes as the query says."""
    size = int(request.query.get("size", "0"))
    return Reply(b"z" * size if size else b"%d" % len(request.body))


async def endless(scope: Any, receive: Any, send: Any) -> None:
    """An application that never stops."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"e" * 1000, "more_body": True})


async def patient(request: Any) -> Reply:
    """Waits for ever."""
    await asyncio.Event().wait()
    return Reply(b"")


def wait(request: Any) -> Any:
    """A long poll."""
    request.is_long = True
    return request.unless_gone(patient(request))


def served(**settings: Any) -> HttpApi:
    """An API with some routes of its own."""
    service = Service(Settings(data_dir=".", **settings))
    metrics = Metrics(service)
    rows: list[tuple[str, str, Body, Handler]] = [
        ("POST", "/echo", Body.REQUIRED, echo),
        ("GET", "/echo", Body.IGNORED, echo),
        ("GET", "/wait", Body.IGNORED, wait),
        ("GET", "/endless", Body.IGNORED, AsgiHandler(endless).answer),
    ]
    own = [Route(method, path, NO_SCOPE, body, handler) for method, path, body, handler in rows]
    return HttpApi(service, RouteTable([*routes(service, metrics), *own]), metrics)


def scenario(play: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that runs on a loop."""

    def test() -> None:
        asyncio.run(play())

    test.__doc__ = play.__doc__
    return test


def rest(api: HttpApi, client: Client) -> None:
    """Nothing is left of a connection."""
    client.line.hang_up()
    assert not client.line.connections
    assert (api.service.memory.used, api.service.memory.stalled, api.service.streams) == (0, {}, 0)


@scenario
async def test_requests_beside_each_other() -> None:
    api = served()
    client = Client(api)
    waiting = client.begin(b"GET", b"/wait")
    body = client.post(b"/echo", b"x" * 300_000)
    head = client.begin(b"HEAD", b"/v0/health")
    absent = client.begin(b"GET", b"/v0/nope")
    wrong = client.begin(b"DELETE", b"/v0/health")
    await turns()
    client.flush()
    assert client.bodies[body] == b"300000" and client.status(body) == 200
    assert client.status(head) == 200 and not client.bodies[head]
    assert client.heads[head][b"content-length"] != b"0"
    assert client.status(absent) == 404 and client.bodies[absent].startswith(b'{"error":')
    assert client.status(wrong) == 405 and client.heads[wrong][b"allow"] == b"GET, HEAD"
    assert waiting not in client.heads
    client.frames.reset_stream(waiting, 8)
    client.flush()
    await turns()
    assert not client.line.tasks
    rest(api, client)


@scenario
async def test_the_preface_in_any_pieces() -> None:
    api = served()
    client = Client(api)
    sent = H2Connection(H2Configuration(client_side=True))
    sent.initiate_connection()
    line = Line(api)
    for byte in sent.data_to_send():
        line.send(bytes([byte]))
    assert line.written.startswith(b"\x00\x00") and not line.is_closed
    line.hang_up()
    rest(api, client)
    request = b"GET /v0/health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    wrong = b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"
    for begun in (wrong, b"PRI / HTTP/2.0\r\n\r\n", request + http2.PREFACE):
        line = Line(api)
        line.send(begun)
        assert b"HTTP/1.1 400 " in line.written
        line.hang_up()


@scenario
async def test_a_slow_reader_holds_up_its_stream_only() -> None:
    api = served()
    client = Client(api)
    client.frames.increment_flow_control_window(4_000_000)
    client.acks = False
    slow = client.begin(b"GET", b"/endless")
    large = client.begin(b"GET", b"/echo?size=1000000")
    await turns(500)
    client.flush()
    held = api.service.memory.used
    assert 1_000_000 - 65535 <= held <= 1_200_000
    assert api.service.memory.stalled
    assert len(client.bodies[slow]) == len(client.bodies[large]) == 65535
    small = client.begin()
    assert client.status(small) == 200
    client.frames.increment_flow_control_window(1_000_000, large)
    client.flush()
    await turns()
    client.flush()
    assert client.status(large) == 200 and len(client.bodies[large]) == 1_000_000
    before = len(client.bodies[slow])
    client.frames.increment_flow_control_window(100_000, slow)
    for _ in range(5):
        client.flush()
        await turns(200)
    assert len(client.bodies[slow]) == before + 100_000
    rest(api, client)
    await turns()
    assert not client.line.tasks


@scenario
async def test_a_client_that_reads_nothing_at_all() -> None:
    api = served()
    client = Client(api, window=1 << 24)
    client.frames.increment_flow_control_window(1 << 24)
    client.flush()
    client.line.is_read = False
    for _ in range(4):
        client.begin(b"GET", b"/echo?size=1000000")
    for _ in range(100):
        client.line.send(PING)
    await turns()
    assert len(client.line.written) < 1_000_000
    assert api.service.memory.used < 4_500_000
    client.line.send(PING * 60_000)
    assert not client.line.wants_more
    client.line.hang_up()
    rest(api, client)


@scenario
async def test_bodies_are_bounded() -> None:
    api = served()
    client = Client(api)
    declared = client.begin(b"POST", b"/echo", *JSON, (b"content-length", b"2000000"), ends=False)
    assert client.status(declared) == 413 and client.resets[declared] == 0
    grown = client.begin(b"POST", b"/echo", *JSON, ends=False)
    for _ in range(70):
        if grown in client.ended:
            break
        client.upload(grown, b"x" * 16384, ends=False)
    assert client.status(grown) == 413 and client.resets[grown] == 0
    ignored = client.begin(b"POST", b"/v0/nope", *JSON, ends=False)
    client.upload(ignored, b"x" * 500_000)
    assert client.status(ignored) == 404 and api.service.memory.used == 0
    expecting = client.begin(b"POST", b"/echo", *JSON, (b"expect", b"100-continue"), ends=False)
    assert client.informed == [expecting]
    client.upload(expecting, b"x" * 10)
    assert client.bodies[expecting] == b"10"
    rest(api, client)


@scenario
async def test_memory_for_clients_counts_streams() -> None:
    api = served(max_client_bytes=400_000)
    client = Client(api)
    streams = [client.begin(b"POST", b"/echo", *JSON, ends=False) for _ in range(3)]
    client.upload(streams[0], b"x" * 190_000, ends=False)
    client.upload(streams[1], b"x" * 190_000, ends=False)
    assert api.service.memory.used == 380_000
    for _ in range(3):
        if streams[2] not in client.ended:
            client.upload(streams[2], b"x" * 16_000, ends=False)
    assert client.status(streams[2]) == 429
    client.upload(streams[0], b"x")
    assert client.bodies[streams[0]] == b"190001" and api.service.memory.used == 190_000
    rest(api, client)


@pytest.mark.parametrize(
    ("field", "status"),
    [
        ((b"x-note", b"a\x01b"), 400),
        ((b"bad name", b"x"), 400),
        ((b"authorization", b"a"), 400),
        ((b"origin", b"http://evil.example"), 403),
        ((b"sec-fetch-site", b"cross-site"), 403),
    ],
)
def test_heads_are_held_to_the_rules_of_http_11(field: tuple[bytes, bytes], status: int) -> None:
    async def play() -> None:
        api = served()
        client = Client(api)
        client.frames.config.validate_outbound_headers = False
        stream = client.begin(b"GET", b"/v0/health", field, (b"authorization", b"b"))
        # Either the request alone is refused, or the connection, by the package.
        assert client.goaway is not None or client.status(stream) == status
        rest(api, client)

    asyncio.run(play())


@scenario
async def test_too_many_headers() -> None:
    api = served()
    client = Client(api)
    many = [(b"x-%d" % number, b"") for number in range(300)]
    assert client.status(client.begin(b"GET", b"/v0/health", *many)) == 400
    rest(api, client)


@scenario
async def test_a_head_that_grows_when_it_is_unpacked() -> None:
    """A few bytes that stand for megabytes."""
    api = served()
    client = Client(api)
    client.begin(b"GET", b"/v0/health", (b"x-large", b"x" * 4000))
    client.begin(b"GET", b"/v0/health", *[(b"x-large", b"x" * 4000)] * 2000)
    assert client.goaway == ENHANCE_YOUR_CALM
    rest(api, client)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Any frame."""
    head = struct.pack(">I", len(payload))[1:] + bytes((kind, flags))
    return head + struct.pack(">I", stream) + payload


FLOODS = {
    "pings": PING * 1500,
    "settings": SETTINGS * 1500,
    "priorities": frame(2, 0, 1, bytes((0, 0, 0, 0, 1))) * 1500,
    "unknown": frame(77, 0, 0) * 1500,
    "continuations": frame(1, 0, 1, b"\x82") + frame(9, 0, 1) * 8000,
    "large continuations": frame(1, 0, 1, b"\x82") + frame(9, 0, 1, b"\x00" * 16384) * 8,
}


@pytest.mark.parametrize("kind", FLOODS)
def test_floods_end_the_connection(kind: str) -> None:
    async def play() -> None:
        api = served()
        client = Client(api)
        client.line.send(FLOODS[kind])
        await turns(300)
        client.flush()
        # The package has a bound of its own on frames of one head.
        assert client.goaway in (ENHANCE_YOUR_CALM, 1 if kind == "continuations" else None)
        assert len(client.line.written) < 100_000
        rest(api, client)

    asyncio.run(play())


@pytest.mark.parametrize("by", ["client", "server"])
def test_rapid_resets(by: str) -> None:
    """Streams that are opened to be reset, and such as make the server reset them."""

    async def play() -> None:
        api = served()
        client = Client(api)
        asked = 0
        while client.goaway is None and asked < 1000:
            asked += 1
            if by == "client":
                stream = client.begin(b"GET", b"/wait")
                client.frames.reset_stream(stream, 8)
                client.flush()
            else:
                stream = client.begin(b"GET", b"/wait")
                # A window that grows by nothing is an error of this stream.
                client.line.send(frame(8, 0, stream, bytes(4)))
                client.flush()
        await turns()
        assert client.goaway is not None and asked <= http2.RESETS_MAX + 1
        assert not client.line.tasks
        rest(api, client)

    asyncio.run(play())


@scenario
async def test_a_request_and_its_reset_in_one_packet() -> None:
    api = served()
    client = Client(api)
    stream = client.frames.get_next_available_stream_id()
    fields = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/v0/health")]
    client.frames.send_headers(stream, [*fields, (b":authority", b"localhost")], end_stream=True)
    client.frames.reset_stream(stream, 8)
    client.flush()
    assert stream not in client.heads
    assert client.status(client.begin()) == 200
    rest(api, client)


@scenario
async def test_more_streams_than_there_may_be() -> None:
    api = served()
    client = Client(api)
    assert client.frames.remote_settings.max_concurrent_streams == http2.STREAMS_MAX
    for _ in range(http2.STREAMS_MAX):
        client.begin(b"GET", b"/wait")
    await turns()
    assert len(client.line.tasks) == http2.STREAMS_MAX
    last = frame(1, 5, 2 * http2.STREAMS_MAX + 1, b"\x82\x86\x84\x41\x01a")
    client.line.send(last)
    client.flush()
    await turns()
    assert client.goaway is not None and not client.line.tasks
    rest(api, client)


@scenario
async def test_the_server_stops() -> None:
    """What is asked already is answered; what comes after the announcement is not."""
    api = served()
    client = Client(api)
    upload = client.begin(b"POST", b"/echo", *JSON, ends=False)
    (connection,) = client.line.connections
    connection.shutdown()
    goaway = client.line.read()
    assert goaway[3] == 7 and not client.line.is_closing()
    refused = client.begin()
    assert client.resets[refused] == 7
    client.upload(upload, b"xx")
    assert client.bodies[upload] == b"2" and client.line.is_closing()
    rest(api, client)
    idle = Client(api)
    (connection,) = idle.line.connections
    connection.shutdown()
    assert idle.line.is_closing()


@scenario
async def test_a_client_that_stops_sending() -> None:
    api = served()
    client = Client(api)
    waiting = client.begin(b"GET", b"/wait")
    (connection,) = client.line.connections
    assert not connection.eof_received()
    await turns()
    assert waiting not in client.heads and not client.line.tasks
    rest(api, client)


def test_the_whole_api() -> None:
    """Pages stand at the same place."""

    async def play() -> None:
        service = Service(Settings(data_dir="."))
        client = Client(http_api(service, Metrics(service)))
        root = client.begin(b"GET", b"/")
        described = client.begin(b"GET", b"/v0/openapi.json")
        socket = client.begin(b"GET", b"/v0/ws")
        for _ in range(5):
            await turns()
            client.flush()
        assert client.status(root) == 307 and client.status(socket) == 400
        assert "paths" in msgspec.json.decode(bytes(client.bodies[described]))
        client.line.hang_up()

    asyncio.run(play())
