"""Workers whose server is lost in the middle of their jobs, and whose standby takes over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from logqueue.testing import MemoryServer
from logqueue.worker import App, Job
from tests.worker.doors import A, B, Doors

SOURCES = pytest.mark.parametrize("source", ["sse", "poll"])


@pytest.fixture
def doors(server: MemoryServer) -> Doors:
    """Two addresses of the server in memory."""
    return Doors(server)


@pytest.fixture
def far_app(doors: Doors) -> App:
    """An app that knows both addresses."""
    app = App()
    doors.attach(app)
    return app


@pytest.fixture
def done(far_app: App) -> list[tuple[int, int]]:
    """Every run that ended, as seq and delivery; each takes ten seconds."""
    runs: list[tuple[int, int]] = []

    @far_app.consumer("q")
    async def handle(job: Job) -> None:
        await asyncio.sleep(10.0)
        runs.append((job.seq, job.deliveries))

    return runs


def put(server: MemoryServer, *data: Any) -> None:
    """Jobs for a consumer of queue q."""
    server.client.ensure_topic("q", type="queue", durable=True, leases_durable=True)
    server.client.append("q", [*data])


@SOURCES
def test_a_job_begun_under_one_writer_is_finished_under_the_next(
    server: MemoryServer, doors: Doors, far_app: App, done: list[tuple[int, int]], source: str
) -> None:
    put(server, 1, 2)
    worker = server.start(far_app, source=source)
    server.advance(5.0)
    doors.lose(A)
    server.advance(15.0)
    assert done == [(1, 1), (2, 1)] and worker.counts.acked == 0, "no server takes the acks"
    doors.promote(B)
    server.advance(3.0)
    assert worker.counts.acked == 2 and server.client.topic("q").count == 0
    put(server, 3)
    server.advance(12.0)
    assert done[2:] == [(3, 1)] and worker.counts.lost == 0, "jobs come from the new writer"


@SOURCES
def test_what_the_new_writer_does_not_know_to_be_leased_is_run_again(
    server: MemoryServer, doors: Doors, far_app: App, done: list[tuple[int, int]], source: str
) -> None:
    put(server, 1)
    worker = server.start(far_app, source=source)
    server.advance(2.0)
    doors.lose(A)
    server.client.nack("q", 1, node=worker.worker.node, count=False)
    doors.promote(B)
    server.run_until(lambda: server.client.topic("q").count == 0, limit=120.0)
    assert done in ([(1, 1)], [(1, 1), (1, 1)]) and worker.counts.acked == 1
    assert worker.counts.lost == 1, "the first run does not count"


@SOURCES
def test_a_writer_that_hands_over_is_followed_at_once(
    server: MemoryServer, doors: Doors, far_app: App, done: list[tuple[int, int]], source: str
) -> None:
    put(server, 1)
    worker = server.start(far_app, source=source)
    server.advance(2.0)
    server.restart()
    doors.promote(B)
    put(server, 2)
    server.advance(11.5)
    assert done == [(1, 1), (2, 1)] and worker.counts.lost == 0


def test_a_standby_is_no_reason_to_give_up_streams(
    server: MemoryServer, doors: Doors, far_app: App, done: list[tuple[int, int]]
) -> None:
    put(server)
    worker = server.start(far_app)
    server.advance(1.0)
    for lost, next_writer in ((A, B), (B, A)):
        doors.lose(lost)
        server.advance(60.0)
        doors.away.clear()
        doors.promote(next_writer)
        server.advance(2.0)
        assert [one.streams for one in server.client.workers("q")] == [1], "each second it is asked"
    assert worker.counts.acked == 0


def test_claims_wait_for_less_long_than_a_takeover_takes(
    server: MemoryServer, doors: Doors, far_app: App, done: list[tuple[int, int]]
) -> None:
    put(server)
    server.start(far_app, source="poll")
    server.advance(60.0)
    assert 12 <= doors.passed("claim") <= 14, "each waits five seconds at the server"


def test_sends_wait_for_the_new_writer(
    server: MemoryServer, doors: Doors, far_app: App, done: list[tuple[int, int]]
) -> None:
    put(server)
    client = far_app.surroundings.producer()
    doors.lose(A)
    doors.named = B
    doors.promote(B)
    assert client.append("q", [1]).seqs == [1]
    client.close()
