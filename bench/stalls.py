"""How long a writer waits while the log is tidied below it.

Owns: the rows of the stall. A large backlog lies in the oldest segments; others write and delete
without a break, until the log is mostly garbage and the backlog is moved to its end, segment by
segment. One lone writer is timed from before to after, so that both are seen in one run.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import perf_counter

import uvloop

from bench.load import (
    Connection,
    all_of,
    append_request,
    connect,
    expect_count,
    fill,
    job,
    queue_request,
    request,
)
from bench.machine import Spread
from bench.rows import Row, Target
from bench.session import Session
from logqueue.demo.server import DemoServer

BACKLOG = "bench.still"
CHURN = "bench.churn"
LONE = "bench.lone"
CHURN_RECORDS = 1000
STALL_MAX_MS = 50.0
TIDIED_MAX_S = 60.0
POLL_S = 0.02


def tidy_stall(session: Session) -> list[Row]:
    """Longest and 99th percentile wait of the lone writer, with tidying and before it."""
    jobs = session.scale.backlog_jobs
    target = Target(STALL_MAX_MS, at_most=True)
    what = f"append of 1 among {jobs:,} live jobs and churn"
    rows = [
        Row("tidy-stall", f"{what}, while tidying: longest", "ms", target),
        Row("tidy-stall-p99", f"{what}, while tidying: p99", "ms"),
        Row("untidied-stall", f"{what}, before tidying: longest", "ms"),
        Row("untidied-p99", f"{what}, before tidying: p99", "ms"),
    ]
    for _ in range(session.scale.repeats):
        with session.server() as server:
            quiet, tidied, dropped = uvloop.run(_run(session, server))
        after, before = Spread.of(tidied), Spread.of(quiet)
        values = (max(tidied) * 1000, after.p99_ms, max(quiet) * 1000, before.p99_ms)
        for row, value in zip(rows, values, strict=True):
            row.values.append(value)
        rows[0].notes.append(f"{dropped} segments dropped, {len(tidied):,} appends")
        session.tell(
            f"  tidy-stall: max {values[0]:.1f} ms, p99 {values[1]:.2f} ms ({rows[0].notes[-1]}); "
            f"before it max {values[2]:.1f} ms, p99 {values[3]:.2f} ms"
        )
    return rows


class Churn:
    """One connection that appends and deletes, over and over."""

    def __init__(self) -> None:
        self.stopped = False
        records = [job(n) for n in range(CHURN_RECORDS)]
        self._append = append_request(CHURN, records, "?return_seqs=false")
        self._delete = request("POST", f"/v0/topics/{CHURN}/delete", b'{"before_seq":999999999}')
        self._appended = False

    def start(self, connection: Connection) -> asyncio.Future[None]:
        """Go on until stopped."""
        return connection.drive(self._append, self._step)

    def _step(self, body: bytes) -> bytes | None:
        self._appended = not self._appended
        if self._appended:
            expect_count(body, CHURN_RECORDS)
            return self._delete
        return None if self.stopped else self._append


class LoneWriter:
    """One connection that appends one record at a time and notes how long each took."""

    def __init__(self) -> None:
        self.stopped = False
        self.took: list[float] = []
        self._append = append_request(LONE, [job(1)])
        self._sent = 0.0

    def start(self, connection: Connection) -> asyncio.Future[None]:
        """Go on until stopped."""
        self._sent = perf_counter()
        return connection.drive(self._append, self._step)

    def take(self) -> list[float]:
        """What was noted since the last call, in seconds."""
        took, self.took = self.took, []
        return took

    def _step(self, body: bytes) -> bytes | None:
        now = perf_counter()
        expect_count(body, 1)
        self.took.append(now - self._sent)
        self._sent = now
        return None if self.stopped else self._append


async def _run(session: Session, server: DemoServer) -> tuple[list[float], list[float], int]:
    scale = session.scale
    made = await connect(server.address, 2)
    for topic in (BACKLOG, LONE):
        await made[0].call(queue_request(topic))
    # Of a class that waits for no sync: what makes garbage should make it fast.
    await made[1].call(request("PUT", f"/v0/topics/{CHURN}", b'{"durability":"disk"}'))
    await fill(server.address, BACKLOG, scale.backlog_jobs, 100, connections=8)
    writer, churn = LoneWriter(), Churn()
    loops = [writer.start(made[0]), churn.start(made[1])]
    await asyncio.sleep(scale.warmup_s)
    writer.take()
    await asyncio.sleep(scale.seconds)
    quiet = writer.take()
    first, began = _oldest(server), perf_counter()
    # The backlog has filled the segments before the one in use; all of them are to be tidied.
    wanted = scale.tidied_segments
    while _oldest(server) < first + wanted and perf_counter() - began < TIDIED_MAX_S:
        await asyncio.sleep(POLL_S)
    await asyncio.sleep(scale.seconds)
    writer.stopped = churn.stopped = True
    await all_of(loops)
    for one in made:
        one.close()
    return quiet, writer.take(), _oldest(server) - first


def _oldest(server: DemoServer) -> int:
    """Id of the oldest segment of the jobs log."""
    return min(int(path.stem) for path in Path(server.data_dir, "jobs").glob("*.wal"))
