"""What the live feed costs while people look at it.

Owns: the rows stats-stream-busy and stats-stream-idle. Every viewer must get the feed, or there is
nothing to report.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import cast

import uvloop

from bench.load import Connection, LoadFailed, append_request, connect, expect_count, job, request
from bench.machine import cpu_s
from bench.rows import Row, Target
from bench.session import Session
from logqueue.demo.server import DemoServer

TOPICS = 1000
VIEWERS = 20
CONNECTIONS = 4
SHARE_MAX = 0.03
SETTLE_S = 2.5
"""After this long the first frames are out, and each second is like the next."""


class StatsViewer(asyncio.Protocol):
    """Reads the feed, and counts its frames.

    Attributes:
        changes: Frames after the first.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._transport: asyncio.Transport | None = None
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the feed."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(request("GET", "/v0/stats/stream"))

    def data_received(self, data: bytes) -> None:
        """Some of it, perhaps cut within a frame."""
        if len(self._head) < 20:
            self._head += data[:20]
        self.changes += data.count(b"event: change")

    def close(self) -> None:
        """Hang up.

        Raises:
            LoadFailed: The server refused the feed.
        """
        if self._transport is not None:
            self._transport.abort()
        if b" 200 " not in self._head:
            raise LoadFailed(f"no live feed: {self._head!r}")


def live_feed(session: Session) -> list[Row]:
    """Processor time of the feed for 20 viewers of 1000 queues, over that without viewers."""
    what = f"processor time of {VIEWERS} viewers of {TOPICS:,} queues"
    busy, idle = (
        Row("stats-stream-busy", f"{what}, all written to each second", "cores",
            Target(SHARE_MAX, at_most=True)),
        Row("stats-stream-idle", f"{what}, at rest", "cores", Target(SHARE_MAX, at_most=True)),
    )  # fmt: skip
    for _ in range(session.scale.repeats):
        with session.server() as server:
            for row, cores in zip((busy, idle), uvloop.run(_feed(server, session)), strict=True):
                row.values.append(cores)
        session.tell(f"  live feed: busy {busy.values[-1]:.4f}, idle {idle.values[-1]:.4f} cores")
    return [busy, idle]


async def _feed(server: DemoServer, session: Session) -> tuple[float, float]:
    made = await connect(server.address, CONNECTIONS)
    topics = max(int(TOPICS * min(session.scale.seconds, 1.0)), 20)
    names = [f"bench.{number}" for number in range(topics)]
    for name in names:
        await made[0].call(request("PUT", f"/v0/topics/{name}", b'{"type":"queue"}'))
    writing = asyncio.ensure_future(_write_each_second(made, names))
    busy = await _cost(server, session)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    if session.scale.settle_s:
        # Rates are means of 10 seconds: until then they change.
        await asyncio.sleep(12)
    idle = await _cost(server, session)
    for connection in made:
        connection.close()
    return busy, idle


async def _write_each_second(made: list[Connection], names: list[str]) -> None:
    """A record for each queue, spread over each second."""

    async def write(connection: Connection, mine: list[str]) -> None:
        began, done = perf_counter(), 0
        while True:
            for name in mine:
                expect_count(await connection.call(append_request(name, [job(done)])), 1)
                done += 1
                if done % 10 == 0:
                    late_s = perf_counter() - began - done / len(mine)
                    await asyncio.sleep(max(-late_s, 0))

    await asyncio.gather(*(write(one, names[n :: len(made)]) for n, one in enumerate(made)))


async def _cost(server: DemoServer, session: Session) -> float:
    """Cores of the server with viewers, less the mean of those without before and after."""
    seconds = session.scale.seconds * 2
    await asyncio.sleep(session.scale.settle_s)
    before = await _busy(server, seconds)
    viewers = await _open(server.address)
    await asyncio.sleep(SETTLE_S if session.scale.settle_s else 0.2)
    viewed = await _busy(server, seconds)
    for viewer in viewers:
        viewer.close()
    await asyncio.sleep(session.scale.settle_s)
    after = await _busy(server, seconds)
    return max(viewed - (before + after) / 2, 0.0)


async def _open(address: str) -> list[StatsViewer]:
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(StatsViewer, host, int(port)))[1] for _ in range(VIEWERS)]


async def _busy(server: DemoServer, seconds: float) -> float:
    before, began = cpu_s(server.pid), perf_counter()
    await asyncio.sleep(seconds)
    return (cpu_s(server.pid) - before) / (perf_counter() - began)
