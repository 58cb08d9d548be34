"""How a room of WebSockets fares in which everybody writes and everybody reads all of it.

Owns: the rows room-p50 and room-p99. Every reader must get every record once, in order, and every
write its ack, or there is nothing to report.
"""

from __future__ import annotations

import asyncio
from array import array
from functools import partial
from time import perf_counter
from typing import cast

import uvloop

from bench.load import GIVE_UP_S, HEAD_END, LoadFailed, connect, queue_request
from bench.machine import Spread
from bench.pacing import Arrivals, Lag, send_steadily, stamped
from bench.rows import Row, Target
from bench.session import CpuWatch, Session
from logqueue.demo.server import DemoServer

TOPIC = "bench.room"
MEMBERS = 30
WRITES_PER_S = 50
P50_MS_MAX = 6.0

_OPENING = (
    b"GET /v0/ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class Member(asyncio.Protocol):
    """One socket that follows the room and writes to it.

    Attributes:
        acked: Writes that were acked.
    """

    def __init__(self, arrivals: Arrivals) -> None:
        self.arrivals = arrivals
        self.acked = 0
        self.failure: Exception | None = None
        self.caught_up = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._partial = b""
        self._opened = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the upgrade, and follow the room behind it."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(_OPENING)
        self._transport.write(_message(b'{"op":"subscribe","topic":"%b"}' % TOPIC.encode()))

    def connection_lost(self, exc: Exception | None) -> None:
        """Sockets end only when we end them."""
        if self._transport is not None:
            self.failure = LoadFailed(f"a socket ended ({exc!r})")

    def data_received(self, data: bytes) -> None:
        """Frames, whole or in parts."""
        data = self._partial + data
        if not self._opened:
            end = data.find(HEAD_END)
            if end < 0:
                self._partial = data
                return
            if data[9:12] != b"101":
                self.failure = LoadFailed(f"no socket: {data[:300]!r}")
                return
            self._opened = True
            data = data[end + 4 :]
        at = 0
        while (place := _payload(data, at)) is not None:
            start, at = place
            self._take(data[start:at])
        self._partial = data[at:]

    def write(self, lag: Lag, due: float) -> None:
        """Publish one record."""
        assert self._transport is not None
        lag.late_s.append(perf_counter() - due)
        text = b'{"op":"publish","topic":"%b","records":[{"data":%b}]}'
        self._transport.write(_message(text % (TOPIC.encode(), stamped())))

    def close(self) -> None:
        """Hang up."""
        assert self._transport is not None
        transport, self._transport = self._transport, None
        transport.abort()

    def _take(self, message: bytes) -> None:
        if message.startswith(b'{"op":"record"'):
            wrong = self.arrivals.take(message)
            if wrong:
                self.failure = LoadFailed(wrong)
        elif message.startswith(b'{"op":"ack"'):
            self.acked += 1
        elif message.startswith(b'{"op":"caught_up"'):
            if not self.caught_up.done():
                self.caught_up.set_result(None)
        elif not message.startswith(b'{"op":"subscribed"'):
            self.failure = LoadFailed(f"not expected: {message[:300]!r}")


def _message(text: bytes) -> bytes:
    """A text frame of a client. Its mask is all zeros, which leaves the text as it is."""
    size = len(text)
    length = bytes([128 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return b"\x81" + length + bytes(4) + text


def _payload(data: bytes, at: int) -> tuple[int, int] | None:
    """Where the payload of the frame at a place begins and ends; None unless it is all there."""
    if len(data) < at + 2:
        return None
    size, start = data[at + 1], at + 2
    if size >= 126:
        width = 2 if size == 126 else 8
        size, start = int.from_bytes(data[start : start + width], "big"), start + width
    return (start, start + size) if len(data) >= start + size else None


def room(session: Session) -> list[Row]:
    """Publish to delivery among sockets of which each reads what all write."""
    what = f"room: publish to delivery, {MEMBERS} sockets write {WRITES_PER_S}/s each, all read all"
    rows = [
        Row("room-p50", f"{what}, p50", "ms", Target(P50_MS_MAX, at_most=True)),
        Row("room-p99", f"{what}, p99", "ms"),
    ]
    for _ in range(session.scale.repeats):
        with session.server() as server:
            spread, note = uvloop.run(_room(server, session))
        for row, value in zip(rows, (spread.p50_ms, spread.p99_ms), strict=True):
            row.values.append(value)
        rows[0].notes.append(note)
        session.tell(f"  room: p50 {spread.p50_ms:.2f}, p99 {spread.p99_ms:.2f} ms ({note})")
    return rows


async def _room(server: DemoServer, session: Session) -> tuple[Spread, str]:
    host, _, port = server.address.rpartition(":")
    loop = asyncio.get_running_loop()
    (calls,) = await connect(server.address, 1)
    await calls.call(queue_request(TOPIC))
    calls.close()
    latencies = array("d")
    known: dict[bytes, list[tuple[int, int]]] = {}
    members = []
    for _ in range(MEMBERS):
        make = partial(Member, Arrivals(latencies, known))
        members.append((await loop.create_connection(make, host, int(port)))[1])
    async with asyncio.timeout(GIVE_UP_S):
        await asyncio.gather(*[member.caught_up for member in members])
    rate = MEMBERS * WRITES_PER_S
    records = max(int(session.scale.stream_latency_s * rate), MEMBERS)
    lag, watch, line = Lag(), CpuWatch(server), iter(range(records))
    await send_steadily(records, rate, lambda due: members[next(line) % MEMBERS].write(lag, due))
    async with asyncio.timeout(GIVE_UP_S):
        while any(member.arrivals.seen < records for member in members):
            for member in members:
                if member.failure is not None:
                    raise member.failure
            await asyncio.sleep(0.005)
    note = f"{watch.note()}, {lag.note()}"
    await asyncio.sleep(0.05)
    if sum(member.acked for member in members) != records:
        raise LoadFailed(f"{sum(member.acked for member in members)} of {records} writes acked")
    for member in members:
        member.close()
    return Spread.of(list(latencies)), note
