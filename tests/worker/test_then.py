"""Jobs that follow from a job: written in one transaction with its ack, on the server in memory."""

from __future__ import annotations

import asyncio

import pytest

from logqueue.testing import MemoryServer
from logqueue.worker import AckPolicy, App, Job, current_job
from tests.worker import slow_functions
from tests.worker.slow_functions import hand_on, landed


def test_done_with_then_writes_what_follows(server: MemoryServer, app: App) -> None:
    """Steps of an order, each of which ends with the job of the next; middleware sees them."""
    done: list[tuple[str, int]] = []

    @app.task(queue="charges")
    def charge(order: int) -> None:
        done.append(("charge", order))
        current_job().done(then=[ship.job(order), ship.with_options(tag="copy").job(-order)])

    @app.task(queue="parcels")
    async def ship(order: int) -> None:
        done.append(("ship", order))

    charge.send(7)
    server.drain(app)
    assert done == [("charge", 7), ("ship", 7), ("ship", -7)]
    assert server.client.topic("parcels").config.leases_durable


def test_then_of_a_handler_that_fails_after_all_is_not_written(
    server: MemoryServer, app: App
) -> None:
    """Nor is that of one whose lease is lost."""
    attempts: list[int] = []

    @app.task(queue="a")
    async def first() -> None:
        job = current_job()
        attempts.append(job.deliveries)
        job.done(then=[second.job()])
        if job.deliveries == 1:
            raise ValueError
        if job.deliveries == 2:
            server.client.nack("a", job.seq, node=server.client.workers("a")[0].node)

    @app.task(queue="b")
    async def second() -> None:
        """Runs once."""

    first.send()
    server.drain(app)
    assert attempts == [1, 2, 3]
    assert server.client.topic("b").head_seq == 1


def test_ack_by_hand_takes_then(server: MemoryServer, app: App) -> None:
    """Under the manual policy."""

    @app.consumer("q", ack_policy=AckPolicy.MANUAL)
    async def take(job: Job) -> None:
        assert await job.ack(then=[other.job(1)])
        with pytest.raises(RuntimeError, match="settled already"):
            job.done(then=[other.job(2)])

    @app.task(queue="other")
    async def other(n: int) -> None:
        """Runs once."""

    server.client.append("q", [1], config={"type": "queue"})
    server.drain(app)
    assert server.client.topic("other").head_seq == 1


def test_a_process_hands_on_what_follows(logqueue_memory: MemoryServer) -> None:
    """`done` works there, too."""
    logqueue_memory.attach(slow_functions.app)
    hand_on.send(3)
    logqueue_memory.drain(slow_functions.app, concurrency=1)
    assert logqueue_memory.client.topic(landed.queue).head_seq == 1


def test_a_refused_follow_up_keeps_the_job(server: MemoryServer, app: App) -> None:
    """The lease runs out, and the job comes again."""
    runs = 0

    @app.task(queue="q")
    async def step() -> None:
        nonlocal runs
        runs += 1
        data = "x" * (2 << 20) if runs == 1 else "fits"
        current_job().done(then=[big.job(data)])
        await asyncio.sleep(0)

    @app.task(queue="big")
    async def big(data: str) -> None:
        """Runs once."""

    step.send()
    server.drain(app)
    assert runs == 2
    assert server.client.topic("big").head_seq == 1
