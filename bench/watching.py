"""How watch streams fare: latency at a steady rate, fan-out throughput, and the price of idling.

Owns: the rows watch-latency-p50, watch-latency-p99, watch-fanout, watch-idle-memory and
watch-idle-cpu. Every stream must get every record once, in order, or there is nothing to report.
"""

from __future__ import annotations

import asyncio
import re
from array import array
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import cast

import msgspec
import uvloop

from bench.load import (
    GIVE_UP_S,
    HEAD_END,
    Connection,
    LoadFailed,
    append_request,
    connect,
    expect_count,
    job,
    queue_request,
    request,
)
from bench.machine import Spread, cpu_s, rss_bytes
from bench.rows import Row, Target
from bench.session import CpuWatch, Session, latency_rows
from logqueue.demo.server import DemoServer

TOPIC = "bench.watch"
WATCHERS = 100
RECORDS_PER_S = 1000
PRODUCERS = 16
TICK_S = 0.001
PER_REQUEST = 100
IDLE_WATCHERS = 1000

_SEQS = re.compile(rb'\{"\$seq":(\d+)')


class Watched(msgspec.Struct):
    """Reply to the creation of a session."""

    stream_url: str


class WatchStream(asyncio.Protocol):
    """One stream; counts records and sees that none is missing or comes twice."""

    def __init__(self, path: str, arrived: Callable[[int, int], None]) -> None:
        self.seen = 0
        self.failure: Exception | None = None
        self.caught_up = asyncio.get_running_loop().create_future()
        self._path = path
        self._arrived = arrived
        self._transport: asyncio.Transport | None = None
        self._partial = b""
        self._opened = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(request("GET", self._path))

    def connection_lost(self, exc: Exception | None) -> None:
        """Streams end only when we end them."""
        if self._transport is not None:
            self.failure = LoadFailed(f"a watch stream ended ({exc!r})")

    def data_received(self, data: bytes) -> None:
        """Frames, whole or in parts. Chunk sizes may lie between them; nothing here minds."""
        if self._partial:
            data = self._partial + data
        if not self._opened:
            if HEAD_END not in data:
                self._partial = data
                return
            if data[9:12] != b"200":
                self.failure = LoadFailed(f"no watch stream: {data[:300]!r}")
                return
            self._opened = True
        end = data.rfind(b"\n\n") + 2
        self._partial = data[end:]
        whole = data[:end]
        if not self.caught_up.done() and b"event: caught-up" in whole:
            self.caught_up.set_result(None)
        seqs = _SEQS.findall(whole)
        if seqs:
            first, last = int(seqs[0]), int(seqs[-1])
            if first != self.seen + 1 or last != self.seen + len(seqs):
                self.failure = LoadFailed(f"after {self.seen} came {first} to {last}")
            self.seen = last
            self._arrived(first, last)

    def close(self) -> None:
        """Hang up."""
        assert self._transport is not None
        transport, self._transport = self._transport, None
        transport.abort()


async def open_watchers(
    address: str, count: int, arrived: Callable[[int, int], None]
) -> list[WatchStream]:
    """That many sessions with a stream each, all caught up."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    (calls,) = await connect(address, 1)
    content = request("POST", "/v0/watch", msgspec.json.encode({"topics": {TOPIC: {}}}))
    streams = []
    for _ in range(count):
        session = msgspec.json.decode(await calls.call(content), type=Watched)
        make = partial(WatchStream, session.stream_url, arrived)
        streams.append((await loop.create_connection(make, host, int(port)))[1])
    async with asyncio.timeout(GIVE_UP_S):
        await asyncio.gather(*[stream.caught_up for stream in streams])
    calls.close()
    return streams


async def all_seen(streams: list[WatchStream], records: int) -> None:
    """Wait until every stream has every record."""
    async with asyncio.timeout(GIVE_UP_S):
        while any(stream.seen < records for stream in streams):
            for stream in streams:
                if stream.failure is not None:
                    raise stream.failure
            await asyncio.sleep(0.005)


def watch_latency(session: Session) -> list[Row]:
    """Append to delivery at 1000 records per second, to 100 watchers."""
    what = f"watch: append to delivery, {WATCHERS} watchers, {RECORDS_PER_S} records/s"
    return latency_rows(session, "watch-latency", what, 25.0, _latency)


async def _latency(server: DemoServer, session: Session) -> tuple[Spread, str]:
    records = max(int(session.scale.stream_latency_s * RECORDS_PER_S), 50)
    made = await connect(server.address, PRODUCERS)
    await made[0].call(queue_request(TOPIC))
    sent_at: list[float] = []
    latencies = array("d")

    def arrived(first: int, last: int) -> None:
        now = perf_counter()
        # One producer at a time has the floor, so the n-th record sent has seq n.
        latencies.extend(now - sent_at[seq - 1] for seq in range(first, last + 1))

    streams = await open_watchers(server.address, WATCHERS, arrived)
    watch = CpuWatch(server)
    await _produce(made, records, sent_at)
    await all_seen(streams, records)
    note = watch.note()
    if len(latencies) != records * WATCHERS:
        raise LoadFailed(f"{len(latencies)} deliveries of {records} records to {WATCHERS} watchers")
    for stream in streams:
        stream.close()
    return Spread.of(list(latencies)), note


async def _produce(connections: list[Connection], records: int, sent_at: list[float]) -> None:
    """Single records at a steady rate over one connection, the next only after the last."""
    connection = connections[0]
    began = perf_counter()
    while len(sent_at) < records:
        due = began + len(sent_at) / RECORDS_PER_S
        now = perf_counter()
        if now < due:
            await asyncio.sleep(due - now)
        # The clock of a record runs from when it was due, whether or not the server keeps up.
        sent_at.append(due)
        expect_count(await connection.call(append_request(TOPIC, [job(len(sent_at))])), 1)
    for one in connections:
        one.close()


def watch_fanout(session: Session) -> list[Row]:
    """Deliveries per second to 100 watchers, as fast as one writer's batches get through."""
    row = Row(
        "watch-fanout",
        f"watch: deliveries to {WATCHERS} watchers",
        "records/s",
        Target(150_000, at_most=False),
    )
    for _ in range(session.scale.repeats):
        with session.server() as server:
            rate, note = uvloop.run(_fanout(server, session))
        row.values.append(rate)
        row.notes.append(note)
        session.tell(f"  {row.name}: {rate:,.0f} {row.unit} ({note})")
    return [row]


async def _fanout(server: DemoServer, session: Session) -> tuple[float, str]:
    (writer,) = await connect(server.address, 1)
    await writer.call(queue_request(TOPIC))
    streams = await open_watchers(server.address, WATCHERS, lambda first, last: None)
    body = append_request(TOPIC, [job(n) for n in range(PER_REQUEST)])
    watch, began, records = CpuWatch(server), perf_counter(), 0
    while perf_counter() - began < session.scale.seconds:
        expect_count(await writer.call(body), PER_REQUEST)
        records += PER_REQUEST
    await all_seen(streams, records)
    rate = records * WATCHERS / (perf_counter() - began)
    note = watch.note()
    for stream in streams:
        stream.close()
    writer.close()
    return rate, note


def watch_idle(session: Session) -> list[Row]:
    """What a thousand watchers cost that have nothing to do."""
    memory = Row(
        "watch-idle-memory",
        f"memory per idle watcher, of {IDLE_WATCHERS}",
        "KiB",
        Target(60.0, at_most=True),
    )
    cpu = Row(
        "watch-idle-cpu",
        f"processor time of {IDLE_WATCHERS} idle watchers, over that without them",
        "cores",
        Target(0.02, at_most=True),
    )
    for _ in range(session.scale.repeats):
        with session.server() as server:
            kib, cores = uvloop.run(_idle(server, session))
        memory.values.append(kib)
        cpu.values.append(cores)
        session.tell(f"  watch-idle: {kib:.1f} KiB each, {cores:.3f} cores")
    return [memory, cpu]


async def _idle(server: DemoServer, session: Session) -> tuple[float, float]:
    (writer,) = await connect(server.address, 1)
    await writer.call(queue_request(TOPIC))
    count = max(int(IDLE_WATCHERS * min(session.scale.seconds, 1.0)), 20)
    idle_s = session.scale.seconds * 2
    await asyncio.sleep(session.scale.settle_s)
    alone = await _busy(server, idle_s)
    before = rss_bytes(server.pid)
    streams = await open_watchers(server.address, count, lambda first, last: None)
    await asyncio.sleep(session.scale.settle_s)
    kib = (rss_bytes(server.pid) - before) / count / 1024
    cores = max(await _busy(server, idle_s) - alone, 0.0)
    for stream in streams:
        stream.close()
    writer.close()
    return kib, cores


async def _busy(server: DemoServer, seconds: float) -> float:
    before, began = cpu_s(server.pid), perf_counter()
    await asyncio.sleep(seconds)
    return (cpu_s(server.pid) - before) / (perf_counter() - began)
