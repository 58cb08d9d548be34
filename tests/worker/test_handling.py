"""What handlers can do and what becomes of their jobs, on the server in memory."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import msgspec
import pytest

from logqueue.shapes import TopicState
from logqueue.testing import MemoryServer
from logqueue.worker import (
    AckPolicy,
    App,
    Job,
    Reject,
    Retry,
    RetryLater,
    Snooze,
    current_job,
    should_stop,
)


def put(server: MemoryServer, *data: Any, dead_letter: str | None = None) -> None:
    """Jobs for a consumer of queue q."""
    server.client.append("q", list(data), config={"type": "queue", "dead_letter": dead_letter})


def state(server: MemoryServer) -> TopicState:
    """The queue, now."""
    return server.client.topic("q")


# -- what a handler sees ---------------------------------------------------------------------------


def test_a_job_says_what_it_is(server: MemoryServer, app: App) -> None:
    seen: list[Job] = []

    @app.task(queue="q")
    async def look() -> None:
        seen.append(current_job())

    look.with_options(tag="t", meta={"a": 1}).send()
    server.drain(app)
    (job,) = seen
    assert (job.queue, job.seq, job.deliveries, job.task) == ("q", 1, 1, "look")
    assert (job.tag, job.meta, job.data["task"]) == ("t", {"a": 1}, "look")
    assert job.ts == server.now_ms - round(server.now() * 1000)
    assert job.deadline > job.ts
    assert job.lease_id.startswith("lease_")


def test_outside_of_a_job_there_is_none() -> None:
    assert not should_stop()
    with pytest.raises(LookupError):
        current_job()


def test_sync_handlers_run_in_threads_with_their_context(server: MemoryServer, app: App) -> None:
    here = threading.get_ident()
    seen: list[tuple[bool, int]] = []

    @app.task(queue="q")
    def look() -> None:
        seen.append((threading.get_ident() == here, current_job().seq))

    look.send()
    server.drain(app)
    assert seen == [(False, 1)]


def test_a_consumer_takes_any_payload(server: MemoryServer, app: App) -> None:
    class Order(msgspec.Struct):
        id: int

    seen: list[Any] = []

    @app.consumer("q")
    async def handle(job: Job) -> None:
        seen.append(job.decode(Order) if isinstance(job.data, dict) else job.data)

    put(server, "text", {"id": 7}, None)
    server.drain(app)
    assert seen == ["text", Order(7), None]


def test_the_lifespan_makes_what_handlers_share(server: MemoryServer) -> None:
    from collections.abc import AsyncIterator
    from contextlib import asynccontextmanager

    said: list[str] = []

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[dict[str, str]]:
        said.append("made")
        yield {"db": "pool"}
        said.append("closed")

    app = App(lifespan=lifespan)

    @app.consumer("q")
    async def handle(job: Job) -> None:
        said.append(job.state["db"])

    server.attach(app)
    put(server, 1)
    server.drain(app)
    assert said == ["made", "pool", "closed"]


# -- how handlers end ------------------------------------------------------------------------------


def test_an_error_is_tried_again_by_the_rule(server: MemoryServer, app: App) -> None:
    runs: list[tuple[int, float]] = []

    @app.task(queue="q", retry=Retry.constant(60.0))
    async def flaky() -> None:
        runs.append((current_job().deliveries, round(server.now())))
        if len(runs) < 3:
            raise OSError("not yet")

    flaky.send()
    server.drain(app)
    assert runs == [(1, 0), (2, 60), (3, 120)]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        StopIteration(),
        SystemExit(3),
        GeneratorExit(),
        TimeoutError(),
        asyncio.CancelledError(),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
def test_no_error_ends_the_worker(
    server: MemoryServer, app: App, error: BaseException, is_async: bool
) -> None:
    done: list[int] = []

    def act(job: Job) -> None:
        if job.deliveries == 1 and job.seq == 1:
            raise error
        done.append(job.seq)

    async def act_async(job: Job) -> None:
        act(job)

    app.consumer("q", retry=Retry.constant(1.0))(act_async if is_async else act)
    put(server, "bad", "good")
    server.drain(app)
    assert sorted(done) == [1, 2]


def test_an_interrupt_that_a_thread_raises_is_an_error_like_others(
    server: MemoryServer, app: App
) -> None:
    done: list[int] = []

    @app.consumer("q", retry=Retry.constant(1.0))
    def act(job: Job) -> None:
        if job.deliveries == 1 and job.seq == 1:
            raise KeyboardInterrupt
        done.append(job.seq)
        if job.seq == 1:
            assert job.last_error == "RuntimeError: the handler raised KeyboardInterrupt"

    put(server, "bad", "good")
    counts = server.drain(app)
    assert sorted(done) == [1, 2]
    assert (counts.acked, counts.nacked) == (2, 1)


def test_a_timeout_is_an_error_that_says_so(server: MemoryServer, app: App) -> None:
    seen: list[tuple[int, float]] = []

    @app.task(queue="q", timeout=10.0, retry=Retry.constant(5.0))
    async def slow() -> None:
        seen.append((current_job().deliveries, round(server.now())))
        await asyncio.sleep(60.0 if len(seen) == 1 else 0.0)

    slow.send()
    counts = server.drain(app)
    assert seen == [(1, 0), (2, 15)]
    assert (counts.nacked, counts.acked) == (1, 1)


def test_a_thread_whose_time_is_up_is_asked_to_stop(server: MemoryServer, app: App) -> None:
    asked: list[bool] = []

    @app.task(queue="q", timeout=10.0, retry=Retry.constant(1000.0))
    def slow() -> None:
        if current_job().deliveries == 1:
            server.sleep(20.0)
            asked.append(should_stop())

    slow.send()
    server.drain(app)
    assert asked == [True]


def test_retry_later_waits_as_long_as_it_says(server: MemoryServer, app: App) -> None:
    runs: list[float] = []

    @app.task(queue="q", retry=Retry.none())
    async def busy() -> None:
        runs.append(round(server.now()))
        if len(runs) == 1:
            raise RetryLater(90.0, "busy")

    busy.send()
    server.drain(app)
    assert runs == [0, 90]


def test_a_snooze_does_not_count(server: MemoryServer, app: App) -> None:
    deliveries: list[int] = []

    @app.task(queue="q")
    async def early() -> None:
        deliveries.append(current_job().deliveries)
        if len(deliveries) < 4:
            raise Snooze(30.0)

    early.send()
    server.drain(app)
    assert deliveries == [1, 1, 1, 1]
    assert server.now() >= 90


@pytest.mark.parametrize("policy", [AckPolicy.NACK_ON_ERROR, AckPolicy.MANUAL])
def test_a_rejected_job_is_dead_lettered(server: MemoryServer, app: App, policy: AckPolicy) -> None:
    @app.consumer("q", ack_policy=policy)
    async def refuse(job: Job) -> None:
        raise Reject("not for us")

    put(server, "bad", dead_letter="dead")
    counts = server.drain(app)
    (letter,) = server.client.diff("dead").records
    assert counts.rejected == 1
    assert letter.meta["$dead_letter_reason"] == "rejected"
    assert letter.meta["$dead_letter_error"] == "not for us"


def test_exhausted_retries_reject(server: MemoryServer, app: App) -> None:
    @app.task(queue="q", retry=Retry.constant(1.0, max_attempts=3))
    async def poison() -> None:
        raise ValueError("always")

    app.queue("q", dead_letter="dead")
    poison.send()
    counts = server.drain(app)
    assert (counts.nacked, counts.rejected) == (2, 1)
    (letter,) = server.client.diff("dead").records
    assert letter.meta["$dead_letter_error"] == "ValueError: always"


def test_the_last_error_is_seen_by_the_next_run(server: MemoryServer, app: App) -> None:
    seen: list[str | None] = []

    @app.task(queue="q", retry=Retry.constant(1.0))
    async def once() -> None:
        seen.append(current_job().last_error)
        if len(seen) == 1:
            raise ValueError("first")

    once.send()
    server.drain(app)
    assert seen == [None, "ValueError: first"]


def test_ack_first_runs_at_most_once(server: MemoryServer, app: App) -> None:
    seen: list[int] = []

    @app.consumer("q", ack_policy=AckPolicy.ACK_FIRST)
    async def handle(job: Job) -> None:
        seen.append(state(server).count)
        raise ValueError("too late to come back")

    put(server, 1)
    server.drain(app)
    assert seen == [0]


def test_ack_first_does_not_run_a_job_whose_ack_came_too_late(
    server: MemoryServer, app: App
) -> None:
    ran: list[int] = []

    @app.consumer("q", ack_policy=AckPolicy.ACK_FIRST)
    async def handle(job: Job) -> None:
        ran.append(job.deliveries)

    put(server, 1)
    server.lose_request("ack", times=1000)
    worker = server.start(app, source="poll", lease=1.0, max_lease=2.0)
    server.advance(4.0)
    server.crash(worker)
    assert ran == []
    assert state(server).count == 1


def test_the_ack_policy_acks_also_what_failed(server: MemoryServer, app: App) -> None:
    @app.consumer("q", ack_policy=AckPolicy.ACK)
    async def handle(job: Job) -> None:
        raise ValueError("never mind")

    put(server, 1)
    assert server.drain(app).acked == 1


# -- by hand ---------------------------------------------------------------------------------------


def test_manual_settles_by_hand_from_the_loop_and_from_a_thread(
    server: MemoryServer, app: App
) -> None:
    answers: list[bool] = []

    @app.consumer("q", ack_policy=AckPolicy.MANUAL)
    async def handle(job: Job) -> None:
        answers.append(await job.ack())

    @app.consumer("r", ack_policy=AckPolicy.MANUAL)
    def handle_in_thread(job: Job) -> None:
        answers.append(job.ack().result(10.0))

    put(server, 1)
    server.client.append("r", [1], config={"type": "queue"})
    assert server.drain(app).acked == 2
    assert answers == [True, True]


def test_manual_keeps_the_lease_until_somebody_settles(server: MemoryServer, app: App) -> None:
    kept: list[Job] = []

    @app.consumer("q", ack_policy=AckPolicy.MANUAL)
    async def handle(job: Job) -> None:
        kept.append(job)

    put(server, 1)
    worker = server.start(app, lease=10.0)
    server.advance(100.0)
    assert [job.deliveries for job in kept] == [1]
    kept[0].ack()
    server.advance(1.0)
    assert state(server).count == 0
    server.stop(worker)


def test_a_settle_by_hand_wins_over_the_policy(server: MemoryServer, app: App) -> None:
    runs: list[int] = []

    @app.consumer("q")
    async def handle(job: Job) -> None:
        runs.append(job.deliveries)
        if job.deliveries == 1:
            assert await job.nack(delay=50.0)

    put(server, 1)
    server.drain(app)
    assert runs == [1, 2]
    assert server.now() >= 50.0


def test_a_job_is_settled_once(server: MemoryServer, app: App) -> None:
    said: list[str] = []

    @app.consumer("q")
    async def handle(job: Job) -> None:
        await job.ack()
        with pytest.raises(RuntimeError, match="settled already") as refused:
            job.nack()
        said.append(str(refused.value))

    put(server, 1)
    server.drain(app)
    assert len(said) == 1


def test_extend_asks_for_more_from_now_on(server: MemoryServer, app: App) -> None:
    deadlines: list[float] = []

    @app.consumer("q")
    async def handle(job: Job) -> None:
        assert await job.extend(300.0)
        deadlines.append((job.deadline - server.now_ms) / 1000)
        await asyncio.sleep(150.0)
        deadlines.append((job.deadline - server.now_ms) / 1000)

    put(server, 1)
    server.drain(app, lease=10.0)
    assert deadlines == [pytest.approx(300.0), pytest.approx(250.0)]


def test_a_stale_settle_is_reported_as_lost_and_changes_nothing(
    server: MemoryServer, app: App
) -> None:
    answers: list[bool] = []

    @app.consumer("q")
    async def handle(job: Job) -> None:
        other = server.connect(worker.worker.node)
        other.nack("q", [job.seq])
        (again,) = other.claim("q").jobs
        answers.append(await job.ack())
        other.ack("q", again)

    put(server, 1)
    worker = server.start(app, source="poll")
    server.run_until(lambda: len(answers) == 1)
    assert answers == [False]
    assert worker.counts.lost == 1


# -- poison ----------------------------------------------------------------------------------------


def test_a_payload_that_is_no_call_does_not_stop_the_others(server: MemoryServer, app: App) -> None:
    done: list[int] = []

    @app.task(queue="q")
    async def fine(number: int) -> None:
        done.append(number)

    put(server, "no call", {"task": "fine", "args": ["no number"]}, {"task": "fine", "args": [1]})
    worker = server.start(app)
    server.advance(1.0)
    assert done == [1]
    assert (worker.counts.acked, worker.counts.rejected) == (1, 2)


def test_an_unknown_task_waits_for_a_worker_that_knows_it(server: MemoryServer, app: App) -> None:
    @app.task(queue="q")
    async def known() -> None: ...

    put(server, {"task": "of_the_next_version"})
    worker = server.start(app)
    server.advance(600.0)
    assert worker.counts.nacked > 3
    assert state(server).count == 1


def test_context_variables_of_the_app_reach_handlers_in_threads(
    server: MemoryServer, app: App
) -> None:
    from logqueue.worker import Handle, Middleware

    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")
    seen: list[str] = []

    class Tenant(Middleware):
        async def handle(self, job: Job, call_next: Handle) -> None:
            tenant.set(job.data)
            await call_next(job)

    app.middleware.append(Tenant())

    @app.consumer("q")
    def handle(job: Job) -> None:
        seen.append(tenant.get())

    put(server, "a", "b")
    server.drain(app)
    assert sorted(seen) == ["a", "b"]
