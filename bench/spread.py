"""What it costs to have many topics, and edges between them.

Owns: the rows router-hop, router-writes, topics-10000 and the single-topic rate beside it.
"""

from __future__ import annotations

import asyncio
from itertools import count, cycle
from statistics import median
from time import perf_counter

import msgspec
import uvloop

from bench.load import (
    Connection,
    LoadFailed,
    all_of,
    append_request,
    connect,
    expect_count,
    job,
    request,
)
from bench.rows import Row, Target
from bench.session import CpuWatch, Session
from logqueue.demo.server import DemoServer

SOURCE = "bench.source"
DEST = "bench.dest"
HOPS = 500
TOPICS = 10_000
PER_REQUEST = 100
CONNECTIONS = 8


def router_hop(session: Session) -> list[Row]:
    """How much later a record is seen behind a router than in its own topic."""
    hop = Row(
        "router-hop",
        "router: append to a waiting reader of the copy, over the same at the source, p50",
        "ms",
        Target(2.0, at_most=True),
    )
    writes = Row(
        "router-writes",
        "log writes per source append, with the router over without it",
        "x",
        Target(1.2, at_most=True),
    )
    for _ in range(session.scale.repeats):
        with session.server() as server:
            added_ms, ratio = uvloop.run(_hop(server, session))
        hop.values.append(added_ms)
        writes.values.append(ratio)
        session.tell(f"  router-hop: {added_ms:.3f} ms, {ratio:.2f} log writes per append")
    return [hop, writes]


async def _hop(server: DemoServer, session: Session) -> tuple[float, float]:
    writer, reader = await connect(server.address, 2)
    await writer.call(request("PUT", f"/v0/topics/{SOURCE}", b'{"durable":true}'))
    rounds = max(int(HOPS * min(session.scale.seconds, 1.0)), 10)
    at_source, alone = await _rounds(writer, reader, SOURCE, rounds, 0)
    await writer.call(request("PUT", f"/v0/topics/{DEST}", b'{"durable":true}'))
    edge = msgspec.json.encode({"source": SOURCE, "dest": DEST})
    await writer.call(request("PUT", "/v0/routers/bench", edge))
    at_dest, routed = await _rounds(writer, reader, DEST, rounds, 0)
    for connection in (writer, reader):
        connection.close()
    return (at_dest - at_source) * 1000, routed / alone


async def _rounds(
    writer: Connection, reader: Connection, topic: str, rounds: int, cursor: int
) -> tuple[float, float]:
    """Median seconds from an append until a waiting reader has it, and log writes per append."""
    took = []
    before = await _log_writes(writer)
    for number in range(rounds):
        body = msgspec.json.encode({"from_seq": cursor + number, "wait_ms": 30_000})
        arrived: list[float] = []

        def step(reply: bytes, arrived: list[float] = arrived) -> None:
            if b'"records":[{' not in reply:
                raise LoadFailed(f"a waiting reader was answered with {reply[:200]!r}")
            arrived.append(perf_counter())

        waiting = reader.drive(request("POST", f"/v0/topics/{topic}/diff", body), step)
        await asyncio.sleep(0.002)
        began = perf_counter()
        expect_count(await writer.call(append_request(SOURCE, [job(number)])), 1)
        await waiting
        took.append(arrived[0] - began)
    writes = (await _log_writes(writer) - before) / rounds
    return median(took), writes


async def _log_writes(connection: Connection) -> int:
    content = b"GET /v0/metrics HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\n\r\n"
    metrics = msgspec.json.decode(await connection.call(content))
    return int(metrics["wal"]["batches"])


def topics_10000(session: Session) -> list[Row]:
    """Appends spread over ten thousand topics against appends to one, in one run."""
    ratio = Row(
        "topics-10000",
        f"append over {TOPICS:,} topics, 100 per request, over the same to one topic",
        "x",
        Target(0.5, at_most=False),
    )
    one, many = (
        Row("topics-one-rate", "the same to one topic", "records/s"),
        Row("topics-many-rate", f"the same to {TOPICS:,} topics", "records/s"),
    )
    for _ in range(session.scale.repeats):
        with session.server() as server:
            single, spread, note = uvloop.run(_spread(server, session))
        one.values.append(single)
        many.values.append(spread)
        ratio.values.append(spread / single)
        ratio.notes.append(note)
        session.tell(f"  topics: one {single:,.0f}, many {spread:,.0f} records/s ({note})")
    return [ratio, one, many]


async def _spread(server: DemoServer, session: Session) -> tuple[float, float, str]:
    topics = max(int(TOPICS * min(session.scale.seconds, 1.0)), 50)
    made = await connect(server.address, CONNECTIONS)
    names = [f"bench.{number}" for number in range(topics)]
    numbers = count()

    def create(body: bytes) -> bytes | None:
        number = next(numbers)
        if number >= topics:
            return None
        return request("PUT", f"/v0/topics/{names[number]}", b'{"durable":true}')

    first = [create(b"") for _ in made]
    await all_of([c.drive(r, create) for c, r in zip(made, first, strict=True) if r is not None])
    records = [job(number) for number in range(PER_REQUEST)]
    single = await _rate(made, [append_request(names[0], records)], session)
    watch = CpuWatch(server)
    spread = await _rate(made, [append_request(name, records) for name in names], session)
    note = watch.note()
    for connection in made:
        connection.close()
    return single, spread, note


async def _rate(made: list[Connection], bodies: list[bytes], session: Session) -> float:
    replies, stopped = 0, False
    line = cycle(bodies)

    def step(body: bytes) -> bytes | None:
        nonlocal replies
        expect_count(body, PER_REQUEST)
        replies += 1
        return None if stopped else next(line)

    loops = [one.drive(next(line), step) for one in made]
    await asyncio.sleep(session.scale.warmup_s)
    before, began = replies, perf_counter()
    await asyncio.sleep(session.scale.seconds)
    rate = (replies - before) * PER_REQUEST / (perf_counter() - began)
    stopped = True
    await all_of(loops)
    return rate
