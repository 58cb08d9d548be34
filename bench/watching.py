"""How watch streams fare: latency, fan-out throughput, and the price of idling.

Owns: the rows watch-hop, watch-latency, watch-fanout, watch-crowd and watch-idle. Every stream must
get every record once, in order, or there is nothing to report.
"""

from __future__ import annotations

import asyncio
from array import array
from functools import partial
from time import perf_counter
from typing import cast

import msgspec
import uvloop

from bench.load import (
    GIVE_UP_S,
    HEAD_END,
    LoadFailed,
    append_request,
    connect,
    expect_count,
    queue_request,
    request,
)
from bench.machine import Spread, cpu_s, rss_bytes
from bench.pacing import Arrivals, Producers, send_steadily, stamped
from bench.rows import Row, Target
from bench.session import CpuWatch, Session, latency_rows
from logqueue.demo.server import DemoServer

TOPIC = "bench.watch"
WATCHERS = 100
RECORDS_PER_S = 1000
PRODUCERS = 16
HOPS_PER_S = 50
HOP_MS_MAX = {1: 0.74, WATCHERS: 2.0}
PER_REQUEST = 100
IDLE_WATCHERS = 1000
CROWD = 1000
CROWD_RECORDS_PER_S = 20
PROBES_PER_S = 100


class Watched(msgspec.Struct):
    """Reply to the creation of a session."""

    stream_url: str


class WatchStream(asyncio.Protocol):
    """One stream; sees that no record is missing or comes twice."""

    def __init__(self, path: str, arrivals: Arrivals) -> None:
        self.failure: Exception | None = None
        self.arrivals = arrivals
        self.caught_up = asyncio.get_running_loop().create_future()
        self._path = path
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
        # The end of a chunk behind it, so that equal frames are equal bytes here.
        end = data.rfind(b"\n\n\r\n") + 4
        if end < 4:
            self._partial = data
            return
        whole, self._partial = data[:end], data[end:]
        if not self.caught_up.done() and b"event: caught-up" in whole:
            self.caught_up.set_result(None)
        wrong = self.arrivals.take(whole)
        if wrong:
            self.failure = LoadFailed(wrong)

    def close(self) -> None:
        """Hang up."""
        assert self._transport is not None
        transport, self._transport = self._transport, None
        transport.abort()


async def open_watchers(address: str, count: int) -> tuple[list[WatchStream], array[float]]:
    """That many sessions with a stream each, all caught up, and the latencies they will see."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    (calls,) = await connect(address, 1)
    content = request("POST", "/v0/watch", msgspec.json.encode({"topics": {TOPIC: {}}}))
    streams = []
    latencies = array("d")
    known: dict[bytes, list[tuple[int, int]]] = {}
    for _ in range(count):
        session = msgspec.json.decode(await calls.call(content), type=Watched)
        make = partial(WatchStream, session.stream_url, Arrivals(latencies, known))
        streams.append((await loop.create_connection(make, host, int(port)))[1])
    async with asyncio.timeout(GIVE_UP_S):
        await asyncio.gather(*[stream.caught_up for stream in streams])
    calls.close()
    return streams, latencies


async def all_seen(streams: list[WatchStream], records: int) -> None:
    """Wait until every stream has every record."""
    async with asyncio.timeout(GIVE_UP_S):
        while any(stream.arrivals.seen < records for stream in streams):
            for stream in streams:
                if stream.failure is not None:
                    raise stream.failure
            await asyncio.sleep(0.005)


def watch_hop(session: Session) -> list[Row]:
    """Append to delivery of single records with pauses between them."""
    rows = []
    for watchers, bound in HOP_MS_MAX.items():
        row = Row(
            f"watch-hop-{watchers}",
            f"watch: append to delivery, {watchers} watchers, {HOPS_PER_S} records/s, p50",
            "ms",
            Target(bound, at_most=True),
        )
        for _ in range(session.scale.repeats):
            with session.server() as server:
                spread, note = uvloop.run(_latency(server, session, watchers, HOPS_PER_S))
            row.values.append(spread.p50_ms)
            row.notes.append(f"p99 {spread.p99_ms:.2f} ms, {note}")
            session.tell(f"  {row.name}: {spread.p50_ms:.2f} ms ({row.notes[-1]})")
        rows.append(row)
    return rows


def watch_latency(session: Session) -> list[Row]:
    """Append to delivery at 1000 records per second, to 100 watchers."""
    what = f"watch: append to delivery, {WATCHERS} watchers, {RECORDS_PER_S} records/s"
    measure = partial(_latency, watchers=WATCHERS, per_s=RECORDS_PER_S)
    return latency_rows(session, "watch-latency", what, 25.0, measure)


async def _latency(
    server: DemoServer, session: Session, watchers: int, per_s: float
) -> tuple[Spread, str]:
    records = max(int(session.scale.stream_latency_s * per_s), 10)
    connections = await connect(server.address, PRODUCERS)
    await connections[0].call(queue_request(TOPIC))
    streams, latencies = await open_watchers(server.address, watchers)
    producers, watch = Producers(TOPIC, connections), CpuWatch(server)
    await send_steadily(records, per_s, producers.send)
    await all_seen(streams, records)
    note = f"{watch.note()}, {producers.lag.note()}"
    producers.close()
    if len(latencies) != records * watchers:
        raise LoadFailed(f"{len(latencies)} deliveries of {records} records to {watchers} watchers")
    for stream in streams:
        stream.close()
    return Spread.of(list(latencies)), note


def watch_crowd(session: Session) -> list[Row]:
    """A thousand watchers of one topic, and somebody else who calls meanwhile."""
    what = f"{CROWD} watchers, {CROWD_RECORDS_PER_S} records/s"
    arrival = Row("watch-crowd-p99", f"watch: append to delivery, {what}, p99", "ms")
    probe = Row(
        "watch-crowd-probe-p99",
        f"a read of another topic meanwhile, {what}, p99",
        "ms",
        Target(10.0, at_most=True),
    )
    for _ in range(session.scale.repeats):
        with session.server() as server:
            spread, probes, note = uvloop.run(_crowd(server, session))
        arrival.values.append(spread.p99_ms)
        probe.values.append(probes.p99_ms)
        probe.notes.append(note)
        session.tell(f"  watch-crowd: {spread}, probes {probes} ({note})")
    return [arrival, probe]


async def _crowd(server: DemoServer, session: Session) -> tuple[Spread, Spread, str]:
    count = max(int(CROWD * min(session.scale.seconds, 1.0)), 20)
    connections = await connect(server.address, 2)
    await connections[0].call(queue_request(TOPIC))
    await connections[0].call(queue_request("bench.probe"))
    streams, latencies = await open_watchers(server.address, count)
    (prober,) = await connect(server.address, 1)
    producers, watch = Producers(TOPIC, connections), CpuWatch(server)
    records = max(int(session.scale.stream_latency_s * CROWD_RECORDS_PER_S), 5)
    sending = asyncio.create_task(send_steadily(records, CROWD_RECORDS_PER_S, producers.send))
    took = []
    while not sending.done():
        began = perf_counter()
        await prober.call(request("GET", "/v0/topics/bench.probe"))
        took.append(perf_counter() - began)
        await asyncio.sleep(1 / PROBES_PER_S)
    await all_seen(streams, records)
    note = f"{watch.note()}, {producers.lag.note()}"
    producers.close()
    prober.close()
    for stream in streams:
        stream.close()
    return Spread.of(list(latencies)), Spread.of(took), note


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
    streams, _ = await open_watchers(server.address, WATCHERS)
    body = append_request(TOPIC, [stamped() for _ in range(PER_REQUEST)])
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
    streams, _ = await open_watchers(server.address, count)
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
