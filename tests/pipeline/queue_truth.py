"""A queue worked on by known workers: the truth that a simulation is held against.

A plain second model, written for this: workers take the lowest job that is ready, as many as they
may at a time, and work them off one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

from logqueue.pipeline.lifecycle.table_kind import TableKind
from logqueue.pipeline.lifecycle.tables import ATTEMPTS, JOBS

START = 1_700_000_000_000
RETRY_MS = 2000


@dataclass(frozen=True)
class Truth:
    """What a queue was like; times in ms.

    Attributes:
        gap, takes: Mean time between arrivals, and of a run; both exponential.
        fails: Share of runs that fail and are retried after `RETRY_MS`.
        batch: Most jobs that a worker claims at a time.
    """

    jobs: int = 3000
    gap: int = 100
    takes: int = 300
    workers: int = 4
    fails: float = 0.0
    batch: int = 1


class TruthHistory(NamedTuple):
    """The tables of it, and its first and last time."""

    jobs: pa.Table
    attempts: pa.Table
    start: int
    end: int


def history(truth: Truth, seed: int = 1) -> TruthHistory:
    """What happened in such a queue."""
    random = Random(seed)
    at, arrived = START, []
    for _ in range(truth.jobs):
        at += int(random.expovariate(1 / truth.gap))
        arrived.append(at)
    events: list[tuple[int, int, int, int]] = [(at, 0, job, 0) for job, at in enumerate(arrived)]
    heapify(events)
    jobs: list[dict[str, Any]] = [
        {"topic": "q", "log_id": "L", "seq": seq, "ready_at": at, "state": "ready", "attempts": 0}
        for seq, at in enumerate(arrived, 1)
    ]
    attempts: list[dict[str, Any]] = []
    ready: dict[int, int] = {}
    waiting: list[int] = []
    free = list(range(truth.workers))
    end = at
    while events:
        now, kind, job, worker = heappop(events)
        end = max(end, now)
        if kind == 0:
            ready[job] = now
            heappush(waiting, job)
        elif kind == 1:
            free.append(worker)
        while waiting and free:
            worker = free.pop(0)
            batch = [heappop(waiting) for _ in range(min(truth.batch, len(waiting)))]
            claimed = ended = now + random.randrange(1, 5)
            for job in batch:
                ended += max(1, int(random.expovariate(1 / truth.takes)))
                ok = random.random() >= truth.fails
                row = jobs[job]
                row["attempts"] += 1
                row.setdefault("first_claim_at", claimed)
                attempts.append(
                    {
                        "topic": "q",
                        "log_id": "L",
                        "job_seq": job + 1,
                        "attempt": row["attempts"],
                        "worker": f"w{worker}",
                        "ready_at": ready[job],
                        "claimed_at": claimed,
                        "ended_at": ended,
                        "outcome": "acked" if ok else "released",
                        "reason": None if ok else "nack",
                    }
                )
                if ok:
                    row |= {"state": "acked", "finished_at": ended}
                else:
                    heappush(events, (ended + RETRY_MS, 0, job, 0))
            heappush(events, (ended, 1, 0, worker))
    return TruthHistory(table(JOBS, jobs), table(ATTEMPTS, attempts), START, end)


def table(kind: TableKind, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as a table; times are ms, what a row does not have is null."""
    columns = []
    for field in kind.arrow():
        values = [row.get(field.name) for row in rows]
        if pa.types.is_timestamp(field.type):
            columns.append(pa.array(values, pa.timestamp("ms", tz="UTC")).cast(field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.table(columns, schema=kind.arrow())
