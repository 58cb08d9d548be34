"""What it costs to have many topics, and edges between them.

Owns: the rows router-hop, router-writes, topics-10000 and the single-topic rate beside it.
"""

from __future__ import annotations

import asyncio
from itertools import cycle
from statistics import median
from time import perf_counter

import msgspec
import uvloop

from bench.load import (
    Connection,
    LoadFailed,
    Script,
    all_of,
    append_request,
    connect,
    expect_count,
    job,
    read_reply,
    request,
)
from bench.loops import Tally, steady
from bench.rows import Reading, Row, Target
from bench.session import Session
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
            single, spread = uvloop.run(_spread(server, session))
        one.add(single)
        many.add(spread)
        ratio.values.append(spread.rate / single.rate)
        session.tell(
            f"  topics: one {single.rate:,.0f}, many {spread.rate:,.0f} records/s ({spread.note})"
        )
    return [ratio, one, many]


async def _spread(server: DemoServer, session: Session) -> tuple[Reading, Reading]:
    topics = max(int(TOPICS * min(session.scale.seconds, 1.0)), 50)
    made = await connect(server.address, CONNECTIONS)
    names = [f"bench.{number}" for number in range(topics)]
    await make_topics(made, names)
    records = [job(number) for number in range(PER_REQUEST)]
    single = await _rate(server, made, [append_request(names[0], records)], session)
    spread = await _rate(server, made, [append_request(one, records) for one in names], session)
    for connection in made:
        connection.close()
    return single, spread


async def make_topics(made: list[Connection], names: list[str]) -> None:
    """Make durable logs of these names."""
    left = iter(names)

    def create() -> Script:
        for name in left:
            yield request("PUT", f"/v0/topics/{name}", b'{"durable":true}'), read_reply

    await all_of([one.run(create()) for one in made[: len(names)]])


async def _rate(
    server: DemoServer, made: list[Connection], bodies: list[bytes], session: Session
) -> Reading:
    line, tally = cycle(bodies), Tally()

    def append() -> Script:
        for body in line:
            expect_count((yield body, read_reply), PER_REQUEST)
            tally.add(PER_REQUEST)
            if tally.stopped:
                return

    return await steady(server, session, tally, [one.run(append()) for one in made])
