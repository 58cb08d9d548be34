"""How many jobs per second go all the way: append, claim, ack; and claims and acks by themselves.

Owns: the rows cycle, cycle-1, claim-1 and ack-1. A connection of a cycle appends its jobs, claims
as many (which need not be its own), acks exactly these, and starts again.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import uvloop

from bench.load import (
    Connection,
    Lease,
    LoadFailed,
    Script,
    ack_request,
    all_of,
    append_request,
    claim_request,
    connect,
    decode_claimed,
    decode_state,
    expect_acked,
    expect_count,
    fill,
    job,
    queue_request,
    read_reply,
    request,
)
from bench.loops import Tally, steady
from bench.rows import Reading, Row, Target
from bench.session import CpuWatch, Session
from logqueue.demo.server import DemoServer

TOPIC = "bench.cycle"
BATCH_JOBS = 100
FEW = 8
MANY = 32
JOBS_PER_S = 20_000


class Delivered:
    """The jobs that were handed out, each once."""

    def __init__(self) -> None:
        self._seqs: set[int] = set()

    def take(self, body: bytes, jobs: int) -> list[Lease]:
        """The leases in the reply to a claim; exactly so many, and none seen before."""
        leases = decode_claimed(body).claimed
        before = len(self._seqs)
        self._seqs.update(lease.seq for lease in leases)
        if len(leases) != jobs:
            raise LoadFailed(f"claimed {len(leases)} of at least {jobs} ready jobs")
        if len(self._seqs) != before + jobs:
            raise LoadFailed("a job was handed out twice")
        return leases


def cycle_script(topic: str, node: str, batch: int, tally: Tally, delivered: Delivered) -> Script:
    """One connection going round until the tally stops."""
    append = append_request(topic, [job(n) for n in range(batch)])
    claim = claim_request(topic, node, batch)
    while not tally.stopped:
        expect_count((yield append, read_reply), batch)
        tally.add(0)
        leases = delivered.take((yield claim, read_reply), batch)
        tally.add(0)
        expect_acked((yield ack_request(topic, node, leases), read_reply), batch)
        tally.add(batch)


def full_cycle(session: Session) -> list[Row]:
    """Jobs finished per second, in batches and one at a time."""
    target = Target(100_000, at_most=False)
    rows = [
        Row("cycle", f"append, claim, ack in batches of 100, {FEW} connections", "jobs/s", target),
        Row("cycle-1", f"append, claim, ack one job at a time, {MANY} connections", "jobs/s"),
    ]
    sizes = ((BATCH_JOBS, FEW), (1, MANY))
    for _ in range(session.scale.repeats):
        for row, (batch, connections) in zip(rows, sizes, strict=True):
            with session.server() as server:
                reading = uvloop.run(_cycle(server, session, batch, connections))
            _record(session, row, reading)
    return rows


def singles(session: Session) -> list[Row]:
    """Claims of one job, then acks of one job, over many connections."""
    rows = [
        Row("claim-1", f"claim, 1 per request, {MANY} connections", "jobs/s"),
        Row("ack-1", f"ack, 1 per request, {MANY} connections", "jobs/s"),
    ]
    for _ in range(session.scale.repeats):
        with session.server() as server:
            readings = uvloop.run(_singles(server, session))
        for row, reading in zip(rows, readings, strict=True):
            _record(session, row, reading)
    return rows


def _record(session: Session, row: Row, reading: Reading) -> None:
    row.add(reading)
    session.tell(f"  {row.name}: {reading.rate:,.0f} {row.unit} ({reading.note})")


async def _cycle(server: DemoServer, session: Session, batch: int, connections: int) -> Reading:
    made = await connect(server.address, connections)
    await made[0].call(queue_request(TOPIC))
    tally, delivered = Tally(), Delivered()
    loops = [
        one.run(cycle_script(TOPIC, f"w{n}", batch, tally, delivered)) for n, one in enumerate(made)
    ]
    reading = await steady(server, session, tally, loops)
    await _expect_empty(made[0], tally.units)
    for one in made:
        one.close()
    return reading


async def _singles(server: DemoServer, session: Session) -> list[Reading]:
    """As many jobs as take about as long as the window of another measurement."""
    jobs = int(session.scale.seconds * JOBS_PER_S) // BATCH_JOBS * BATCH_JOBS
    made = await connect(server.address, MANY)
    await made[0].call(queue_request(TOPIC))
    await fill(server.address, TOPIC, jobs, BATCH_JOBS, FEW)
    delivered, leases = Delivered(), list[Lease]()
    left = iter(range(jobs))
    claiming = [_claims(left, delivered, leases) for _ in range(MANY)]
    claims = await _timed(server, made, claiming, jobs)
    order = iter(leases)
    acks = await _timed(server, made, [_acks(order) for _ in range(MANY)], jobs)
    await _expect_empty(made[0], jobs)
    for one in made:
        one.close()
    return [claims, acks]


def _claims(left: Iterator[int], delivered: Delivered, leases: list[Lease]) -> Script:
    claim = claim_request(TOPIC, "w", 1)
    for _ in left:
        leases += delivered.take((yield claim, read_reply), 1)


def _acks(leases: Iterator[Lease]) -> Script:
    for lease in leases:
        expect_acked((yield ack_request(TOPIC, "w", [lease]), read_reply), 1)


async def _timed(
    server: DemoServer, made: list[Connection], scripts: list[Script], jobs: int
) -> Reading:
    watch, began = CpuWatch(server), perf_counter()
    await all_of([one.run(script) for one, script in zip(made, scripts, strict=True)])
    return Reading(jobs / (perf_counter() - began), watch.us_per(jobs), watch.note())


async def _expect_empty(connection: Connection, jobs: int) -> None:
    state = decode_state(await connection.call(request("GET", f"/v0/topics/{TOPIC}")))
    left = (state.count, state.queue.ready, state.queue.in_flight)
    if left != (0, 0, 0) or state.head_seq != jobs:
        raise LoadFailed(f"{jobs} jobs finished, state says {state}")
