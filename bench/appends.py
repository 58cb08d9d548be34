"""How many records can be appended per second, in large requests and one by one.

Owns: the rows append-100, append-100-lean, append-1 at several concurrencies, and append-1
pipelined.
"""

from __future__ import annotations

from itertools import cycle

import uvloop

from bench.load import (
    LoadFailed,
    Script,
    append_request,
    connect,
    decode_state,
    expect_count,
    job,
    queue_request,
    read_replies,
    read_reply,
    request,
)
from bench.loops import Tally, steady
from bench.rows import Reading, Row, Target
from bench.session import Session
from logqueue.demo.server import DemoServer

TOPIC = "bench.append"
PREBUILT = 64
CONNECTIONS = (1, 8, 32, 128)
PIPELINED_CONNECTIONS = 4
DEPTHS = (16, 64)


def append_100(session: Session) -> list[Row]:
    """100 records per request over 8 connections, with and without the seqs in the reply."""
    target = Target(400_000, at_most=False)
    plain = Row("append-100", "append, 100 per request, 8 connections", "records/s", target)
    lean = Row("append-100-lean", "the same with return_seqs=false", "records/s", target)
    for _ in range(session.scale.repeats):
        _repeat(session, plain, per_request=100, connections=8, query="")
        _repeat(session, lean, per_request=100, connections=8, query="?return_seqs=false")
    return [plain, lean]


def append_1(session: Session) -> list[Row]:
    """One record per request, over few connections and many."""
    rows = [
        Row(
            f"append-1-c{connections}",
            f"append, 1 per request, {connections} connection{'s' * (connections > 1)}",
            "records/s",
            Target(30_000, at_most=False) if connections == CONNECTIONS[-1] else None,
        )
        for connections in CONNECTIONS
    ]
    for _ in range(session.scale.repeats):
        for row, connections in zip(rows, CONNECTIONS, strict=True):
            _repeat(session, row, per_request=1, connections=connections, query="")
    return rows


def append_pipelined(session: Session) -> list[Row]:
    """One record per request, so many requests sent at once, over few connections."""
    rows = [
        Row(
            f"append-1-pipelined-{depth}",
            f"append, 1 per request, {PIPELINED_CONNECTIONS} connections, {depth} at once each",
            "records/s",
        )
        for depth in DEPTHS
    ]
    for _ in range(session.scale.repeats):
        for row, depth in zip(rows, DEPTHS, strict=True):
            _repeat(session, row, 1, PIPELINED_CONNECTIONS, query="", depth=depth)
    return rows


def append_bodies(topic: str, per_request: int, query: str = "") -> list[bytes]:
    """Requests that differ in their payloads."""
    return [
        append_request(topic, [job(n * per_request + k) for k in range(per_request)], query)
        for n in range(PREBUILT)
    ]


def append_script(bodies: list[bytes], per_request: int, tally: Tally) -> Script:
    """One connection appending until the tally stops."""
    for body in cycle(bodies):
        expect_count((yield body, read_reply), per_request)
        tally.add(per_request)
        if tally.stopped:
            return


def pipelined_script(bodies: list[bytes], depth: int, tally: Tally) -> Script:
    """The same, so many requests of one record at once."""
    read = read_replies(depth)
    sent = [b"".join((bodies * depth)[n : n + depth]) for n in range(len(bodies))]
    for packet in cycle(sent):
        for body in (yield packet, read):
            expect_count(body, 1)
            tally.add(1)
        if tally.stopped:
            return


def _repeat(
    session: Session, row: Row, per_request: int, connections: int, query: str, depth: int = 1
) -> None:
    with session.server() as server:
        reading = uvloop.run(
            measure_append(server, session, per_request, connections, query, depth)
        )
    row.add(reading)
    session.tell(f"  {row.name}: {reading.rate:,.0f} {row.unit} ({reading.note})")


async def measure_append(
    server: DemoServer,
    session: Session,
    per_request: int,
    connections: int,
    query: str = "",
    depth: int = 1,
) -> Reading:
    """Append to a server for as long as the scale says."""
    made = await connect(server.address, connections)
    await made[0].call(queue_request(TOPIC))
    tally, bodies = Tally(), append_bodies(TOPIC, per_request, query)
    loops = [
        one.run(
            append_script(bodies, per_request, tally)
            if depth == 1
            else pipelined_script(bodies, depth, tally)
        )
        for one in made
    ]
    reading = await steady(server, session, tally, loops)
    state = decode_state(await made[0].call(request("GET", f"/v0/topics/{TOPIC}")))
    if state.count != tally.units or state.head_seq != state.count:
        raise LoadFailed(f"{tally.units} records acked, state says {state}")
    for one in made:
        one.close()
    return reading
