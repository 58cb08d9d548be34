"""A backlog that is larger than what the server may hold: memory, a start, claims and reads of cold
data.

Owns: the rows cold-memory, cold-ready, cold-claims and cold-reads. Cold means that the system has
been asked to forget the pages of the segment files, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from bench.load import (
    JOB_BYTES,
    LoadFailed,
    LoneConnection,
    append_request,
    claim_request,
    job,
    queue_request,
    request,
)
from bench.machine import rss_bytes
from bench.rows import Row, Target
from bench.session import Session
from logqueue.demo.server import DemoServer

TOPIC = "bench.cold"
PER_REQUEST = 1000
BYTES = 1000
READ_SHARE = 5
"""One in so many jobs is claimed, and one in so many is read."""


def cold_backlog(session: Session) -> list[Row]:
    """Jobs of 1 KB, appended 1000 per request."""
    jobs = session.scale.backlog_jobs
    what = f"{jobs:,} live jobs of {BYTES} bytes, appended {PER_REQUEST} per request"
    fast = Target(100_000, at_most=False)
    rows = [
        Row("cold-memory", f"memory for {what}", "MiB", Target(100, at_most=True)),
        Row("cold-ready", f"ready after kill -9, {what}", "s", Target(5.0, at_most=True)),
        Row("cold-claims", "claims of 1000 of them, cold, 1 connection", "jobs/s", fast),
        Row("cold-reads", "diffs of 1000 of them, cold, 1 connection", "records/s", fast),
    ]
    for _ in range(session.scale.repeats):
        with session.server() as server:
            empty = rss_bytes(server.pid)
            _fill(server, jobs)
            time.sleep(session.scale.settle_s)
            resident = rss_bytes(server.pid) - empty
            server.kill()
            _forget_pages(server.data_dir)
            ready_s = server.start()
            values = (
                resident / 2**20,
                ready_s,
                _rate(server, jobs // READ_SHARE, _claim),
                _rate(server, jobs // READ_SHARE, _diff_behind(jobs // 2)),
            )
            held = (rss_bytes(server.pid) - empty) / 2**20
        for row, value in zip(rows, values, strict=True):
            row.values.append(value)
        rows[0].notes.append(f"{held:.0f} MiB after a restart, claims and reads")
        session.tell(
            f"  cold: {values[0]:.0f} MiB, ready after {values[1]:.1f} s, "
            f"{values[2]:,.0f} claims/s, {values[3]:,.0f} reads/s"
        )
    return rows


def _fill(server: DemoServer, jobs: int) -> None:
    filler = b"." * (BYTES - JOB_BYTES)
    content = append_request(
        TOPIC, [job(n)[:-2] + filler + b'"}' for n in range(min(PER_REQUEST, jobs))]
    )
    connection = LoneConnection(server.address)
    try:
        connection.call(queue_request(TOPIC))
        for _ in range(0, jobs, PER_REQUEST):
            connection.call(content)
    finally:
        connection.close()


def _claim(place: int) -> bytes:
    return claim_request(TOPIC, "bench", PER_REQUEST)


def _diff_behind(start: int) -> Callable[[int], bytes]:
    def diff(place: int) -> bytes:
        body = b'{"from_seq":%d,"limit":%d,"max_batch_bytes":4194304}'
        return request("POST", f"/v0/topics/{TOPIC}/diff", body % (start + place, PER_REQUEST))

    return diff


def _rate(server: DemoServer, records: int, ask: Callable[[int], bytes]) -> float:
    """How many records per second come, none of whose pages is in memory at first."""
    _forget_pages(server.data_dir)
    connection = LoneConnection(server.address)
    done = 0
    began = time.perf_counter()
    try:
        while done < records:
            found = connection.call(ask(done))[1].count(b'"$seq":')
            if not found:
                raise LoadFailed(f"no record behind the first {done}")
            done += found
    finally:
        connection.close()
    return done / (time.perf_counter() - began)


def _forget_pages(directory: Path) -> None:
    for path in directory.rglob("*.wal*"):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
