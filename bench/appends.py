"""How many records can be appended per second, in large requests and one by one.

Owns: the rows append-100, append-100-lean and append-1.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

import uvloop

from bench.load import (
    LoadFailed,
    all_of,
    append_request,
    connect,
    decode_state,
    expect_count,
    job,
    queue_request,
    request,
)
from bench.rows import Row, Target
from bench.session import CpuWatch, Session
from logqueue.demo.server import DemoServer

TOPIC = "bench.append"
PREBUILT = 64


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
    """One record per request over 128 connections."""
    row = Row(
        "append-1",
        "append, 1 per request, 128 connections",
        "records/s",
        Target(20_000, at_most=False),
    )
    for _ in range(session.scale.repeats):
        _repeat(session, row, per_request=1, connections=128, query="")
    return [row]


def _repeat(session: Session, row: Row, per_request: int, connections: int, query: str) -> None:
    bodies = [
        append_request(TOPIC, [job(n * per_request + k) for k in range(per_request)], query)
        for n in range(PREBUILT)
    ]
    with session.server() as server:
        rate, note = uvloop.run(_append(server, bodies, per_request, connections, session))
    row.values.append(rate)
    row.notes.append(note)
    session.tell(f"  {row.name}: {rate:,.0f} {row.unit} ({note})")


async def _append(
    server: DemoServer,
    bodies: list[bytes],
    per_request: int,
    connections: int,
    session: Session,
) -> tuple[float, str]:
    made = await connect(server.address, connections)
    await made[0].call(queue_request(TOPIC))
    replies, stopped = 0, False

    def step(body: bytes) -> bytes | None:
        nonlocal replies
        expect_count(body, per_request)
        replies += 1
        return None if stopped else bodies[replies % PREBUILT]

    loops = [one.drive(bodies[n % PREBUILT], step) for n, one in enumerate(made)]
    await asyncio.sleep(session.scale.warmup_s)
    watch, before, began = CpuWatch(server), replies, perf_counter()
    await asyncio.sleep(session.scale.seconds)
    rate = (replies - before) * per_request / (perf_counter() - began)
    note = watch.note()
    stopped = True
    await all_of(loops)
    state = decode_state(await made[0].call(request("GET", f"/v0/topics/{TOPIC}")))
    if state.count != replies * per_request or state.head_seq != state.count:
        raise LoadFailed(f"{replies * per_request} records acked, state says {state}")
    for one in made:
        one.close()
    return rate, note
