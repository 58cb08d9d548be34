"""What a million waiting jobs cost: memory while they wait, and time after a `kill -9`.

Owns: the rows memory and ready, for a backlog that came in requests of 100 and for one that came
job by job.
"""

from __future__ import annotations

import time

import uvloop

from bench.load import LoadFailed, LoneConnection, decode_state, fill, queue_request, request
from bench.machine import rss_bytes
from bench.rows import Row, Target
from bench.session import Session
from logqueue.demo.server import DemoServer

TOPIC = "bench.backlog"


def backlog_100(session: Session) -> list[Row]:
    """The backlog appended 100 per request."""
    return _backlog(session, per_request=100, connections=8)


def backlog_1(session: Session) -> list[Row]:
    """The backlog appended 1 per request."""
    return _backlog(session, per_request=1, connections=128)


def _backlog(session: Session, per_request: int, connections: int) -> list[Row]:
    jobs = session.scale.backlog_jobs
    how = f"appended {per_request} per request"
    memory = Target(150, at_most=True)
    rows = [
        Row(
            f"ready-{per_request}",
            f"ready after kill -9 with {jobs:,} live jobs, {how}",
            "s",
            Target(5.0, at_most=True),
        ),
        Row(f"memory-{per_request}", f"memory per live 100-byte job, {how}", "B", memory),
        Row(f"memory-restarted-{per_request}", "the same after the restart", "B", memory),
    ]
    for _ in range(session.scale.repeats):
        with session.server() as server:
            empty = rss_bytes(server.pid)
            _ask(server, queue_request(TOPIC))
            uvloop.run(fill(server.address, TOPIC, jobs, per_request, connections))
            time.sleep(session.scale.settle_s)
            loaded = rss_bytes(server.pid)
            server.kill()
            ready_s = server.start()
            state = decode_state(_ask(server, request("GET", f"/v0/topics/{TOPIC}")))
            if (state.count, state.queue.ready, state.head_seq) != (jobs, jobs, jobs):
                raise LoadFailed(f"{jobs} jobs before the kill, state after it says {state}")
            time.sleep(session.scale.settle_s)
            restarted = rss_bytes(server.pid)
        values = (ready_s, (loaded - empty) / jobs, (restarted - empty) / jobs)
        for row, value in zip(rows, values, strict=True):
            row.values.append(value)
        rows[1].notes.append(f"empty server {empty / 2**20:.0f} MiB")
        session.tell(
            f"  backlog-{per_request}: ready after {values[0]:.2f} s, {values[1]:.0f} B per job, "
            f"{values[2]:.0f} B after the restart"
        )
    return rows


def _ask(server: DemoServer, content: bytes) -> bytes:
    connection = LoneConnection(server.address)
    try:
        return connection.call(content)[1]
    finally:
        connection.close()
