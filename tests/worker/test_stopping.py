"""How a worker stops: in which order, what comes back when, and that nothing is counted twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from logqueue.testing import MemoryServer
from logqueue.worker import AckPolicy, App, Job, Retry, current_job, should_stop
from logqueue.worker.consuming import Counts


def put(server: MemoryServer, *data: Any) -> None:
    """Jobs for a consumer of queue q."""
    server.client.append("q", list(data), config={"type": "queue"})


def stopped_at_work(server: MemoryServer, app: App) -> Counts:
    """Stop a worker five seconds after it has begun with a job."""
    put(server, 1)
    worker = server.start(app)
    server.advance(5.0)
    return server.stop(worker)


def in_flight(server: MemoryServer) -> int:
    """Jobs that are leased now."""
    queue = server.client.topic("q").queue
    assert queue is not None
    return queue.in_flight


@pytest.mark.parametrize("source", ["sse", "poll"])
def test_an_idle_worker_stops_at_once(server: MemoryServer, app: App, source: str) -> None:
    @app.consumer("q")
    async def handle(job: Job) -> None: ...

    worker = server.start(app, source=source)
    server.advance(10.0)
    server.stop(worker)
    assert server.now() < 11.0


@pytest.mark.parametrize("source", ["sse", "poll"])
def test_a_running_handler_may_finish_within_the_grace(
    server: MemoryServer, app: App, source: str
) -> None:
    done: list[float] = []

    @app.consumer("q")
    async def handle(job: Job) -> None:
        await asyncio.sleep(20.0)
        done.append(server.now())

    put(server, 1)
    worker = server.start(app, source=source, grace=25.0)
    server.advance(5.0)
    counts = server.stop(worker)
    assert len(done) == 1
    assert (counts.acked, counts.handed_back) == (1, 0)
    assert server.now() < 21.0, "it does not wait longer than its handlers do"


@pytest.mark.parametrize("source", ["sse", "poll"])
def test_a_stopping_worker_takes_no_more(server: MemoryServer, app: App, source: str) -> None:
    began: list[int] = []

    @app.consumer("q", concurrency=2)
    async def handle(job: Job) -> None:
        began.append(job.seq)
        await asyncio.sleep(10.0)

    put(server, 1)
    worker = server.start(app, source=source)
    server.advance(1.0)
    worker.worker.stop()
    server.advance(1.0)
    put(server, 2)
    server.run_until(lambda: worker.is_over)
    assert worker.counts.acked == 1
    server.advance(1.0)
    (left,) = server.connect("other").claim("q").jobs
    assert began == [1]
    assert left.seq == 2


@pytest.mark.parametrize("source", ["sse", "poll"])
def test_prefetched_jobs_go_back_at_once(server: MemoryServer, app: App, source: str) -> None:
    began: list[int] = []

    @app.consumer("q", concurrency=1)
    async def handle(job: Job) -> None:
        began.append(job.seq)
        await asyncio.sleep(20.0)

    put(server, *range(5))
    worker = server.start(app, source=source, prefetch=3)
    server.advance(1.0)
    assert in_flight(server) == 4
    worker.worker.stop()
    server.advance(0.1)
    assert in_flight(server) == 1, "only the one that runs is still held"
    server.run_until(lambda: worker.is_over)
    assert began == [1]
    assert worker.counts.acked == 1


def test_a_claim_that_waits_for_jobs_ends_with_the_worker(server: MemoryServer, app: App) -> None:
    @app.consumer("q")
    async def handle(job: Job) -> None: ...

    put(server)
    worker = server.start(app, source="poll")
    server.advance(5.0)
    assert server.client.workers("q")[0].waiting == 1
    server.stop(worker)
    assert server.now() == 5.0
    assert server.client.workers("q")[0].waiting == 0


def test_what_is_handed_back_does_not_meet_a_claim_of_its_own(
    server: MemoryServer, app: App
) -> None:
    @app.consumer("q", concurrency=2)
    async def handle(job: Job) -> None:
        await asyncio.sleep(1000.0)

    put(server, 1)
    worker = server.start(app, source="poll")
    server.advance(5.0)
    worker.worker.stop()
    worker.worker.stop()
    server.run_until(lambda: worker.is_over)
    assert server.now() == 5.0
    assert [job.deliveries for job in server.client.claim("q").jobs] == [1]


@pytest.mark.parametrize("source", ["sse", "poll"])
def test_what_is_handed_back_is_not_counted(server: MemoryServer, app: App, source: str) -> None:
    @app.consumer("q", concurrency=1)
    async def handle(job: Job) -> None:
        await asyncio.sleep(1000.0)

    put(server, *range(4))
    worker = server.start(app, source=source, prefetch=3, grace=1.0)
    server.advance(1.0)
    server.stop(worker)
    server.advance(5.0)
    again = server.connect("other").claim("q", max=10).jobs
    assert [(job.seq, job.deliveries) for job in again] == [(1, 1), (2, 1), (3, 1), (4, 1)]


def test_without_prefetch_no_job_is_held_that_does_not_run(server: MemoryServer, app: App) -> None:
    @app.consumer("q", concurrency=2)
    async def handle(job: Job) -> None:
        await asyncio.sleep(1000.0)

    put(server, *range(10))
    for source in ("sse", "poll"):
        server.start(app, source=source)
    server.advance(10.0)
    assert in_flight(server) == 4


def test_handlers_are_told_that_the_end_is_near(server: MemoryServer, app: App) -> None:
    told: list[str] = []

    @app.consumer("q")
    async def on_the_loop(job: Job) -> None:
        while not should_stop():
            await asyncio.sleep(1.0)
        told.append("loop")

    @app.consumer("r")
    def in_a_thread(job: Job) -> None:
        while not should_stop():
            server.sleep(1.0)
        told.append("thread")

    put(server, 1)
    server.client.append("r", [1], config={"type": "queue"})
    worker = server.start(app)
    server.advance(5.0)
    counts = server.stop(worker)
    assert sorted(told) == ["loop", "thread"]
    assert (counts.acked, counts.handed_back) == (0, 2)


POLICIES = [policy for policy in AckPolicy if policy not in (AckPolicy.MANUAL, AckPolicy.ACK_FIRST)]


@pytest.mark.parametrize("source", ["sse", "poll"])
@pytest.mark.parametrize("policy", POLICIES)
def test_returning_after_a_stop_was_seen_hands_the_job_back(
    server: MemoryServer, app: App, policy: AckPolicy, source: str
) -> None:
    @app.task(queue="q", ack_policy=policy)
    async def in_task() -> None:
        while not should_stop():
            await asyncio.sleep(1.0)

    @app.task(queue="q", ack_policy=policy)
    def in_thread() -> None:
        while not should_stop():
            server.sleep(1.0)

    @app.consumer("r", ack_policy=policy)
    async def by_attribute(job: Job) -> None:
        while not job.must_stop:
            await asyncio.sleep(1.0)

    in_task.send()
    in_thread.send()
    server.client.append("r", [1], config={"type": "queue"})
    worker = server.start(app, source=source)
    server.advance(5.0)
    counts = server.stop(worker)
    assert (counts.acked, counts.handed_back) == (0, 3)
    server.advance(5.0)
    again = [job for queue in "qr" for job in server.client.claim(queue, max=9).jobs]
    assert [(job.deliveries, job.last_error) for job in again] == [(1, None)] * 3


def test_a_handler_that_says_done_is_acked_after_a_stop(server: MemoryServer, app: App) -> None:
    @app.task(queue="q")
    async def says_done() -> None:
        while not should_stop():
            await asyncio.sleep(1.0)
        current_job().done()

    @app.task(queue="q")
    def says_done_in_thread() -> None:
        while not should_stop():
            server.sleep(1.0)
        current_job().done()

    @app.consumer("r")
    async def acks(job: Job) -> None:
        while not should_stop():
            await asyncio.sleep(1.0)
        job.ack()

    says_done.send()
    says_done_in_thread.send()
    server.client.append("r", [1], config={"type": "queue"})
    worker = server.start(app)
    server.advance(5.0)
    counts = server.stop(worker)
    assert (counts.acked, counts.handed_back) == (3, 0)


def test_a_handler_that_never_asks_is_acked_after_a_stop(server: MemoryServer, app: App) -> None:
    @app.consumer("q")
    def handle(job: Job) -> None:
        assert not should_stop(), "it runs yet"
        server.sleep(10.0)

    counts = stopped_at_work(server, app)
    assert (counts.acked, counts.handed_back) == (1, 0)


def test_an_error_after_a_stop_was_seen_counts(server: MemoryServer, app: App) -> None:
    @app.consumer("q")
    async def handle(job: Job) -> None:
        while not should_stop():
            await asyncio.sleep(1.0)
        raise ValueError("broken")

    counts = stopped_at_work(server, app)
    assert (counts.nacked, counts.handed_back) == (1, 0)


def test_a_second_stop_skips_the_grace(server: MemoryServer, app: App) -> None:
    @app.consumer("q")
    async def handle(job: Job) -> None:
        await asyncio.sleep(1000.0)

    put(server, 1)
    worker = server.start(app, grace=500.0)
    server.advance(1.0)
    worker.worker.stop()
    server.advance(1.0)
    assert not worker.is_over
    counts = server.stop(worker)
    assert server.now() < 5.0
    assert counts.handed_back == 1


@pytest.mark.parametrize("is_done", [False, True])
def test_a_handler_that_catches_its_cancellation_is_handed_back_unless_done(
    server: MemoryServer, app: App, is_done: bool
) -> None:
    @app.consumer("q")
    async def handle(job: Job) -> None:
        try:
            await asyncio.sleep(1000.0)
        except asyncio.CancelledError:
            if is_done:
                job.done()

    put(server, 1)
    worker = server.start(app, grace=1.0)
    server.advance(1.0)
    counts = server.stop(worker)
    assert (counts.acked, counts.handed_back) == (is_done, not is_done)


@pytest.mark.parametrize("is_done", [False, True])
def test_a_handler_that_catches_its_timeout_has_failed_unless_done(
    server: MemoryServer, app: App, is_done: bool
) -> None:
    @app.consumer("q", timeout=5.0, retry=Retry.none())
    async def handle(job: Job) -> None:
        try:
            await asyncio.sleep(1000.0)
        except asyncio.CancelledError:
            if is_done:
                job.done()

    put(server, 1)
    counts = server.drain(app)
    assert (counts.acked, counts.rejected) == (is_done, not is_done)


def test_an_error_of_a_cancelled_handler_is_the_stops_doing(server: MemoryServer, app: App) -> None:
    @app.consumer("q")
    async def handle(job: Job) -> None:
        try:
            await asyncio.sleep(1000.0)
        finally:
            raise ValueError("cleanup failed")

    put(server, 1)
    worker = server.start(app, grace=1.0)
    server.advance(1.0)
    counts = server.stop(worker)
    assert (counts.nacked, counts.handed_back) == (0, 1)


def test_a_server_that_does_not_answer_does_not_keep_the_worker(
    server: MemoryServer, app: App
) -> None:
    @app.consumer("q")
    async def handle(job: Job) -> None:
        await asyncio.sleep(3.0)

    put(server, 1)
    worker = server.start(app, source="poll", grace=5.0)
    server.advance(1.0)
    server.cut_off(worker)
    server.stop(worker)
    assert server.now() < 20.0


def test_once_ends_when_nothing_is_left(server: MemoryServer, app: App) -> None:
    done: list[int] = []

    @app.consumer("q", concurrency=3)
    async def handle(job: Job) -> None:
        await asyncio.sleep(10.0)
        done.append(job.seq)

    put(server, *range(10))
    worker = server.start(app, once=True)
    server.run_until(lambda: worker.is_over)
    assert sorted(done) == list(range(1, 11))
    assert server.client.topic("q").count == 0


def test_once_waits_for_what_a_rate_allows_soon(server: MemoryServer, app: App) -> None:
    per_group: Mapping[str, Any] = {"mode": "fair", "rate_per_group": {"per_s": 1}}
    app.queue("q", claim_rate={"per_s": 2, "burst": 1}, groups=per_group)
    done: list[str] = []

    @app.task(queue="q")
    async def look(group: str) -> None:
        done.append(group)

    for group in ("a", "a", "a", "b"):
        look.with_options(group=group).send(group)
    worker = server.start(app, once=True)
    server.run_until(lambda: worker.is_over)
    assert sorted(done) == ["a", "a", "a", "b"]


def test_once_works_off_what_its_own_jobs_write_to_other_queues(
    server: MemoryServer, app: App
) -> None:
    done: list[str] = []

    @app.task(queue="first")
    async def first() -> None:
        await asyncio.sleep(10.0)
        done.append("first")
        current_job().done(then=[second.job()])

    @app.task(queue="second")
    async def second() -> None:
        done.append("second")

    first.send()
    worker = server.start(app, once=True)
    server.run_until(lambda: worker.is_over)
    assert done == ["first", "second"]


@pytest.mark.parametrize("policy", POLICIES)
def test_jobs_cancelled_with_their_loop_are_handed_back(
    server: MemoryServer, app: App, policy: AckPolicy
) -> None:
    tasks: list[asyncio.Task[None] | None] = []

    @app.consumer("q", ack_policy=policy)
    async def handle(job: Job) -> None:
        tasks.append(asyncio.current_task())
        await asyncio.sleep(1000.0)

    put(server, 1)
    worker = server.start(app)
    server.advance(1.0)
    (task,) = tasks
    assert task is not None
    # As `asyncio.run` does with everything that is left when it ends.
    task.cancel()
    server.advance(0.2)
    counts = worker.counts
    assert (counts.handed_back, counts.rejected, counts.nacked, counts.acked) == (1, 0, 0, 0)
