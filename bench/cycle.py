"""How many jobs per second go all the way: append, claim, ack, in batches of 100.

Owns: the row cycle. Each connection appends 100 jobs, claims 100 (which need not be its own), acks
exactly these, and starts again.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

import uvloop

from bench.load import (
    Connection,
    LoadFailed,
    ack_request,
    all_of,
    append_request,
    claim_request,
    connect,
    decode_claimed,
    decode_state,
    expect_acked,
    expect_count,
    job,
    queue_request,
    request,
)
from bench.rows import Row, Target
from bench.session import CpuWatch, Session
from logqueue.demo.server import DemoServer

TOPIC = "bench.cycle"
BATCH_JOBS = 100
CONNECTIONS = 8


class Meter:
    """What all cycles together have finished."""

    def __init__(self) -> None:
        self.finished = 0
        self.stopped = False
        self.seen: set[int] = set()


class Cycle:
    """One connection going round."""

    def __init__(self, node: str, meter: Meter) -> None:
        self._node = node
        self._meter = meter
        self._append = append_request(TOPIC, [job(n) for n in range(BATCH_JOBS)])
        self._claim = claim_request(TOPIC, node, BATCH_JOBS)
        self._step = self._appended

    def start(self, connection: Connection) -> asyncio.Future[None]:
        """Go round until the meter stops."""
        return connection.drive(self._append, lambda body: self._step(body))

    def _appended(self, body: bytes) -> bytes | None:
        expect_count(body, BATCH_JOBS)
        self._step = self._claimed
        return self._claim

    def _claimed(self, body: bytes) -> bytes | None:
        reply = decode_claimed(body)
        if reply.count != BATCH_JOBS or len(reply.claimed) != BATCH_JOBS:
            raise LoadFailed(f"claimed {reply.count} of at least {BATCH_JOBS} ready jobs")
        before = len(self._meter.seen)
        self._meter.seen.update(lease.seq for lease in reply.claimed)
        if len(self._meter.seen) != before + BATCH_JOBS:
            raise LoadFailed("a job was handed out twice")
        self._step = self._acked
        return ack_request(TOPIC, self._node, reply.claimed)

    def _acked(self, body: bytes) -> bytes | None:
        expect_acked(body, BATCH_JOBS)
        self._meter.finished += BATCH_JOBS
        self._step = self._appended
        return None if self._meter.stopped else self._append


def full_cycle(session: Session) -> list[Row]:
    """Jobs finished per second over 8 connections."""
    row = Row(
        "cycle",
        "append, claim, ack in batches of 100, 8 connections",
        "jobs/s",
        Target(100_000, at_most=False),
    )
    for _ in range(session.scale.repeats):
        with session.server() as server:
            rate, note = uvloop.run(_cycle(server, session))
        row.values.append(rate)
        row.notes.append(note)
        session.tell(f"  {row.name}: {rate:,.0f} {row.unit} ({note})")
    return [row]


async def _cycle(server: DemoServer, session: Session) -> tuple[float, str]:
    made = await connect(server.address, CONNECTIONS)
    await made[0].call(queue_request(TOPIC))
    meter = Meter()
    loops = [Cycle(f"w{n}", meter).start(one) for n, one in enumerate(made)]
    await asyncio.sleep(session.scale.warmup_s)
    watch, before, began = CpuWatch(server), meter.finished, perf_counter()
    await asyncio.sleep(session.scale.seconds)
    rate = (meter.finished - before) / (perf_counter() - began)
    note = watch.note()
    meter.stopped = True
    await all_of(loops)
    state = decode_state(await made[0].call(request("GET", f"/v0/topics/{TOPIC}")))
    left = (state.count, state.queue.ready, state.queue.in_flight)
    if left != (0, 0, 0) or state.head_seq != meter.finished:
        raise LoadFailed(f"{meter.finished} jobs finished, state says {state}")
    for one in made:
        one.close()
    return rate, note
