"""Workers, in memory and for real: the same handlers, the same ends."""

from __future__ import annotations

import asyncio

import pytest

from logqueue.worker import AckPolicy, Job, Retry, current_job
from tests.testing.conformance.conftest import World


def is_empty(world: World, queue: str) -> bool:
    """Whether every job is done."""
    return world.client.topic(queue).count == 0


@pytest.mark.parametrize("source", ["sse", "poll"])
def test_tasks_run(world: World, queue: str, source: str) -> None:
    app = world.app()
    done: list[tuple[int, str]] = []

    @app.task(queue=queue)
    async def on_the_loop(number: int, text: str) -> None:
        done.append((number, text))

    @app.task(queue=queue)
    def in_a_thread(number: int) -> None:
        done.append((number, "thread"))

    on_the_loop.send(1, text="a")
    in_a_thread.send(2)
    worker = world.start(app, source=source)
    world.until(lambda: is_empty(world, queue))
    counts = world.stop(worker)
    assert sorted(done) == [(1, "a"), (2, "thread")]
    assert counts.acked == 2


def test_an_error_comes_back_and_is_done_then(world: World, queue: str) -> None:
    app = world.app()
    deliveries: list[int] = []

    @app.task(queue=queue, retry=Retry.constant(0.05))
    async def flaky() -> None:
        deliveries.append(current_job().deliveries)
        if len(deliveries) < 3:
            raise ValueError("not yet")

    flaky.send()
    worker = world.start(app)
    world.until(lambda: is_empty(world, queue))
    counts = world.stop(worker)
    assert deliveries == [1, 2, 3]
    assert (counts.nacked, counts.acked) == (2, 1)


@pytest.mark.parametrize("source", ["sse", "poll"])
def test_long_jobs_keep_their_leases(world: World, queue: str, source: str) -> None:
    app = world.app()
    began: list[int] = []

    @app.consumer(queue)
    def handle(job: Job) -> None:
        began.append(job.seq)
        world.sleep(0.6)

    world.client.append(queue, [1, 2], config={"type": "queue"})
    worker = world.start(app, source=source, lease=0.2)
    world.until(lambda: is_empty(world, queue))
    world.stop(worker)
    assert sorted(began) == [1, 2]


@pytest.mark.parametrize("source", ["sse", "poll"])
def test_a_stop_gives_back_what_does_not_finish(world: World, queue: str, source: str) -> None:
    app = world.app()
    began: list[int] = []

    @app.consumer(queue)
    async def handle(job: Job) -> None:
        began.append(job.seq)
        await asyncio.sleep(3600.0)

    world.client.append(queue, [1], config={"type": "queue"})
    worker = world.start(app, source=source, grace=0.1)
    world.until(lambda: len(began) == 1)
    counts = world.stop(worker)
    assert counts.handed_back == 1
    world.until(lambda: world.client.topic(queue).queue.ready == 1)  # type: ignore[union-attr]


def test_settles_by_hand(world: World, queue: str) -> None:
    app = world.app()
    answers: list[bool] = []

    @app.consumer(queue, ack_policy=AckPolicy.MANUAL)
    async def handle(job: Job) -> None:
        verb = job.nack(delay=0.05) if job.deliveries == 1 else job.ack()
        answers.append(await verb)

    world.client.append(queue, [1], config={"type": "queue"})
    worker = world.start(app)
    world.until(lambda: is_empty(world, queue))
    world.stop(worker)
    assert answers == [True, True]


def test_many_jobs(world: World, queue: str) -> None:
    app = world.app()
    done: set[int] = set()

    @app.task(queue=queue, concurrency=20)
    async def note(number: int) -> None:
        done.add(number)

    app.send_many(note.message(number) for number in range(500))
    worker = world.start(app)
    world.until(lambda: is_empty(world, queue))
    assert world.stop(worker).acked == 500
    assert done == set(range(500))
