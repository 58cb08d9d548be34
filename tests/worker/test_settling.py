"""How settles travel: together, soon, again when a reply is lost, and once."""

from __future__ import annotations

import asyncio
import logging

import pytest

from logqueue.testing import MemoryServer
from logqueue.worker import AckPolicy, App, Job


@pytest.fixture
def acks(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Notes every call."""
    caplog.set_level(logging.INFO, "httpx")
    return caplog


def calls(acks: pytest.LogCaptureFixture, verb: str) -> int:
    """How many calls of a verb were made."""
    return sum(f"/{verb} " in record.getMessage() for record in acks.records)


def worker_with(server: MemoryServer, *seconds: float) -> App:
    """An app whose jobs take so long, and one job that keeps it busy for an hour."""
    app = App()
    server.attach(app)

    @app.consumer("q", concurrency=500)
    async def handle(job: Job) -> None:
        await asyncio.sleep(job.data)

    server.client.append("q", [3600.0, *seconds], config={"type": "queue"})
    return app


def test_a_hundred_leave_at_once_and_the_rest_within_ten_ms(
    server: MemoryServer, acks: pytest.LogCaptureFixture
) -> None:
    server.start(worker_with(server, *[1.0] * 250))
    server.advance(1.0)
    assert calls(acks, "ack") == 2
    assert server.client.topic("q").count == 51
    server.advance(0.0101)
    assert calls(acks, "ack") == 3
    assert server.client.topic("q").count == 1


def test_what_ends_within_ten_ms_leaves_together(
    server: MemoryServer, acks: pytest.LogCaptureFixture
) -> None:
    server.start(worker_with(server, 1.000, 1.003, 1.006, 1.009, 1.020))
    server.advance(1.0101)
    assert (calls(acks, "ack"), server.client.topic("q").count) == (1, 2)


def test_the_last_one_does_not_wait_for_company(
    server: MemoryServer, acks: pytest.LogCaptureFixture
) -> None:
    app = App()
    server.attach(app)

    @app.consumer("q")
    async def handle(job: Job) -> None: ...

    server.client.append("q", [1], config={"type": "queue"})
    server.start(app)
    assert server.client.topic("q").count == 0
    assert server.now() == 0.0


def test_a_lost_reply_to_an_ack_is_no_lost_ack(server: MemoryServer) -> None:
    app = App()
    server.attach(app)
    answers: list[bool] = []

    @app.consumer("q", ack_policy=AckPolicy.MANUAL)
    async def handle(job: Job) -> None:
        answers.append(await job.ack())

    server.client.append("q", [1], config={"type": "queue"})
    server.lose_reply("ack", times=2)
    counts = server.drain(app)
    server.advance(1.0)
    assert answers == [True]
    assert (counts.acked, counts.lost) == (1, 0)


def test_leases_are_kept_while_a_settle_can_not_get_through(server: MemoryServer) -> None:
    app = App()
    server.attach(app)
    runs: list[int] = []

    @app.consumer("q")
    async def handle(job: Job) -> None:
        runs.append(job.deliveries)

    server.client.append("q", [1], config={"type": "queue"})
    server.lose_request("ack", times=60)
    counts = server.drain(app, lease=10.0)
    assert server.now() > 60.0
    assert runs == [1]
    assert counts.acked == 1
