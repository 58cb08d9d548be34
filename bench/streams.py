"""How fast `/work` streams bring jobs: latency at a steady rate, and throughput.

Owns: the rows work-latency and work-throughput. Each stream has one more connection for its acks;
it acks whatever has come in since its last ack was answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from time import perf_counter

import uvloop

from bench.load import (
    GIVE_UP_S,
    Connection,
    Lease,
    LoadFailed,
    WorkStream,
    ack_request,
    append_request,
    connect,
    decode_state,
    expect_acked,
    expect_count,
    fill,
    job,
    open_stream,
    queue_request,
    request,
)
from bench.machine import Spread
from bench.rows import Row, Target
from bench.session import CpuWatch, Session, latency_rows
from logqueue.demo.server import DemoServer

TOPIC = "bench.work"
STREAMS = 8
STREAM_MAX = 100
JOBS_PER_S = 1000
PRODUCERS = 16
TICK_S = 0.001
FILL_REQUEST_JOBS = 100


class Consumer:
    """One stream and the connection that acks its jobs."""

    def __init__(self, group: Consumers, node: str, acks: Connection) -> None:
        self.node = node
        self._group = group
        self._acks = acks
        self._pending: list[Lease] = []
        self._under_way = 0

    def on_jobs(self, jobs: list[Lease]) -> None:
        """Jobs came in."""
        self._group.delivered(jobs)
        self._pending += jobs
        if self._acks.idle:
            self._acks.drive(self._next_ack(), self._acked)

    def _next_ack(self) -> bytes:
        leases, self._pending = self._pending, []
        self._under_way = len(leases)
        return ack_request(TOPIC, self.node, leases)

    def _acked(self, body: bytes) -> bytes | None:
        try:
            expect_acked(body, self._under_way)
        except Exception as failure:
            self._group.failed(failure)
            raise
        self._group.count_acked(self._under_way)
        return self._next_ack() if self._pending else None


class Consumers:
    """All streams together: what was delivered when, and how many are acked."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.acked = 0
        self.acks = 0
        self.arrivals: dict[int, float] = {}
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._seen: set[int] = set()
        self._streams: list[WorkStream] = []

    async def open(self, address: str) -> None:
        """Open all streams."""
        connections = await connect(address, STREAMS)
        for number, acks in enumerate(connections):
            consumer = Consumer(self, f"w{number}", acks)
            path = f"/v0/topics/{TOPIC}/work?node={consumer.node}&max={STREAM_MAX}"
            self._streams.append(await open_stream(address, path, consumer.on_jobs, self.failed))

    def delivered(self, jobs: list[Lease]) -> None:
        """Note the arrival of these jobs; none may come twice."""
        now = perf_counter()
        for lease in jobs:
            self.arrivals[lease.data.n] = now
        before = len(self._seen)
        self._seen.update(lease.seq for lease in jobs)
        if len(self._seen) != before + len(jobs):
            raise LoadFailed("a job was delivered twice")

    def count_acked(self, jobs: int) -> None:
        """So many more are acked."""
        self.acked += jobs
        self.acks += 1
        if self.acked == self.jobs and not self.finished.done():
            self.finished.set_result(None)

    def failed(self, failure: Exception) -> None:
        """Somebody saw something that must not be."""
        if not self.finished.done():
            self.finished.set_exception(failure)

    async def close(self, address: str) -> None:
        """Close all streams and see that the queue is empty."""
        for stream in self._streams:
            stream.close()
        (connection,) = await connect(address, 1)
        state = decode_state(await connection.call(request("GET", f"/v0/topics/{TOPIC}")))
        connection.close()
        if (state.count, state.queue.in_flight, state.head_seq) != (0, 0, self.jobs):
            raise LoadFailed(f"{self.jobs} jobs acked, state says {state}")


class Producer:
    """Appends single jobs at a steady rate, whether or not the server keeps up."""

    def __init__(self, jobs: int, connections: list[Connection], consumers: Consumers) -> None:
        self.sent_at: list[float] = []
        self._jobs = jobs
        self._free = deque(connections)
        self._waiting: deque[int] = deque()
        self._consumers = consumers

    async def run(self) -> None:
        """Send all jobs; a job's clock runs from the tick it is due at, free connection or not."""
        began = perf_counter()
        while len(self.sent_at) < self._jobs:
            now = perf_counter()
            due = min(int((now - began) * JOBS_PER_S) + 1, self._jobs)
            for number in range(len(self.sent_at), due):
                self.sent_at.append(now)
                self._waiting.append(number)
            self._send()
            await asyncio.sleep(TICK_S)

    def _send(self) -> None:
        while self._waiting and self._free:
            connection = self._free.popleft()
            content = append_request(TOPIC, [job(self._waiting.popleft())])
            connection.drive(content, partial(self._sent, connection))

    def _sent(self, connection: Connection, body: bytes) -> bytes | None:
        try:
            expect_count(body, 1)
        except Exception as failure:
            self._consumers.failed(failure)
            raise
        if self._waiting:
            return append_request(TOPIC, [job(self._waiting.popleft())])
        self._free.append(connection)
        return None


def work_latency(session: Session) -> list[Row]:
    """Append to delivery at 1000 jobs per second."""
    what = f"/work: append to delivery, {STREAMS} streams, {JOBS_PER_S} jobs/s"
    return latency_rows(session, "work-latency", what, 10.0, _latency)


def work_throughput(session: Session) -> list[Row]:
    """Jobs acked per second while 8 streams work off a backlog."""
    row = Row(
        "work-throughput",
        "/work throughput, 8 streams, max 100",
        "jobs/s",
        Target(30_000, at_most=False),
    )
    for _ in range(session.scale.repeats):
        with session.server() as server:
            rate, note = uvloop.run(_throughput(server, session))
        row.values.append(rate)
        row.notes.append(note)
        session.tell(f"  {row.name}: {rate:,.0f} {row.unit} ({note})")
    return [row]


async def _latency(server: DemoServer, session: Session) -> tuple[Spread, str]:
    connections = await connect(server.address, PRODUCERS)
    await connections[0].call(queue_request(TOPIC))
    warmup = int(session.scale.warmup_s * JOBS_PER_S)
    jobs = warmup + int(session.scale.stream_latency_s * JOBS_PER_S)
    consumers = Consumers(jobs)
    await consumers.open(server.address)
    producer = Producer(jobs, connections, consumers)
    watch = CpuWatch(server)
    producing = asyncio.create_task(producer.run())
    async with asyncio.timeout(GIVE_UP_S):
        await consumers.finished
    await producing
    note = watch.note()
    await consumers.close(server.address)
    took = [consumers.arrivals[number] - producer.sent_at[number] for number in range(warmup, jobs)]
    return Spread.of(took), note


async def _throughput(server: DemoServer, session: Session) -> tuple[float, str]:
    jobs = session.scale.stream_jobs
    (connection,) = await connect(server.address, 1)
    await connection.call(queue_request(TOPIC))
    connection.close()
    await fill(server.address, TOPIC, jobs, FILL_REQUEST_JOBS, connections=8)
    consumers = Consumers(jobs)
    watch, began = CpuWatch(server), perf_counter()
    await consumers.open(server.address)
    async with asyncio.timeout(GIVE_UP_S):
        await consumers.finished
    rate = jobs / (perf_counter() - began)
    note = f"{watch.note()}, {jobs / consumers.acks:.0f} jobs per ack"
    await consumers.close(server.address)
    return rate, note
