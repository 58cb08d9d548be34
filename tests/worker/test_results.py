"""Results and progress of tasks, on the server in memory."""

from __future__ import annotations

import asyncio
import json
import pickle
from dataclasses import dataclass
from typing import Any

import pytest

from logqueue import JobFailed, JobHandle, ResultGone
from logqueue.testing import MemoryServer
from logqueue.worker import AckPolicy, App, Job, Reject, current_job
from tests.worker import slow_functions
from tests.worker.slow_functions import doubled


@dataclass
class Sum:
    """Something JSON can hold."""

    total: int


@pytest.fixture
def keeping(app: App) -> App:
    """An app whose queue keeps results."""
    app.queue("q", results={})
    return app


def test_what_a_task_returns_is_its_result(server: MemoryServer, keeping: App) -> None:
    """Whatever JSON can hold; nothing is None."""

    @keeping.task(queue="q")
    async def add(a: int, b: int) -> Sum:
        return Sum(a + b)

    @keeping.task(queue="q")
    def nothing() -> None:
        """Returns nothing."""

    first, second = add.send(1, 2), nothing.send()
    assert first.status().state == "ready"
    with pytest.raises(TimeoutError, match="q/1 has not ended"):
        first.result(timeout=0.001)
    server.drain(keeping)
    assert first.result(timeout=30) == Sum(3)
    assert second.result(timeout=30) is None
    status = first.status()
    assert (status.state, status.result) == ("done", {"total": 3})
    assert keeping.results([second, first], timeout=30) == [None, Sum(3)]
    assert keeping.handle("q", 1).result() == {"total": 3}


def test_a_handle_is_a_seq(server: MemoryServer, keeping: App) -> None:
    """It goes wherever the number went."""

    @keeping.task(queue="q")
    def echo(n: int) -> int:
        return n

    handle = echo.send(1)
    assert isinstance(handle, int) and handle == 1 and f"{handle}" == "1"
    assert json.dumps({"seq": handle}) == '{"seq": 1}'
    copied: Any = pickle.loads(pickle.dumps(handle))
    assert copied == 1 and type(copied) is int
    assert server.client.job("q", handle).job.seq == 1
    follower = echo.send(handle)
    server.drain(keeping)
    assert follower.result() == 1
    assert keeping.handle("q", 1).result() == 1


def test_results_that_are_not_there(server: MemoryServer, keeping: App) -> None:
    """The error says what became of the job."""

    @keeping.task(queue="q")
    def fail(how: str) -> object:
        if how == "reject":
            raise Reject("no such user")
        return object() if how == "odd" else "x" * 70_000

    handles = [fail.send(how) for how in ("reject", "odd", "large")]
    cancelled = fail.with_options(delay=60.0).send("late")
    server.client.cancel("q", cancelled)
    server.drain(keeping)
    found = keeping.results([*handles, cancelled], timeout=30, return_exceptions=True)
    errors = [str(error) for error in found]
    assert errors[0] == "job q/1 is dead: no such user"
    assert "BadResult: the result is not JSON" in errors[1]
    assert "BadResult: the result has 70002 bytes" in errors[2]
    assert errors[3] == "job q/4 is cancelled"
    with pytest.raises(JobFailed) as failed:
        handles[0].result()
    assert (failed.value.state, failed.value.error) == ("dead", "no such user")
    server.client.patch_topic("q", results=None)
    with pytest.raises(ResultGone, match="q/1"):
        handles[0].result(timeout=5)


def test_a_queue_without_results_takes_any_value(server: MemoryServer, app: App) -> None:
    """As ever: what a task returns is of no interest."""

    @app.task(queue="plain")
    def odd() -> object:
        return object()

    handle = odd.send()
    server.drain(app)
    assert server.client.topic("plain").queue is not None
    with pytest.raises(ResultGone):
        handle.result(timeout=5)


def test_results_by_hand(server: MemoryServer, keeping: App) -> None:
    """`done` and `ack` take one, too."""

    @keeping.task(queue="q")
    async def by_done() -> str:
        current_job().done(result="given")
        return "returned"

    handle = by_done.send()
    keeping.queue("m", results={})

    @keeping.consumer("m", ack_policy=AckPolicy.MANUAL)
    async def take(job: Job) -> None:
        assert await job.ack(result={"n": job.data})

    server.client.append("m", [5], config={"type": "queue", "results": {}})
    server.drain(keeping)
    assert handle.result(timeout=5) == "given"
    assert keeping.handle("m", 1).result(timeout=5) == {"n": 5}


def test_a_process_returns_a_result(logqueue_memory: MemoryServer) -> None:
    """Through its pipe."""
    logqueue_memory.attach(slow_functions.app)
    handle = doubled.send(21)
    logqueue_memory.drain(slow_functions.app, concurrency=1)
    assert handle.result(timeout=5) == 42


def test_progress(server: MemoryServer, app: App) -> None:
    """Seen while the job runs."""
    seen: list[tuple[float | None, str | None]] = []

    @app.task(queue="p")
    async def work() -> None:
        job = current_job()
        for bad in (-0.1, 1.1):
            with pytest.raises(ValueError, match="between 0 and 1"):
                job.progress(bad)
        with pytest.raises(ValueError, match="256 bytes"):
            job.progress(0.5, "x" * 257)
        assert await job.progress(0.5, "half")
        view = server.client.job("p", job.seq).job
        seen.append((view.progress, view.note))
        assert await job.progress(0.75)
        view = server.client.job("p", job.seq).job
        seen.append((view.progress, view.note))

    work.send()
    server.drain(app)
    assert seen == [(0.5, "half"), (0.75, "half")]


def test_awaiting_handles(server: MemoryServer, keeping: App) -> None:
    """On an event loop."""

    @keeping.task(queue="q")
    async def add(a: int, b: int) -> int:
        return a + b

    async def produce() -> list[JobHandle[Any]]:
        return [await add.send_async(n, n) for n in range(3)]

    handles = asyncio.run(produce())
    server.drain(keeping)

    async def collect() -> None:
        assert await handles[1] == 2
        assert (await handles[1].status_async()).state == "done"
        assert await keeping.results_async(handles, timeout=5) == [0, 2, 4]

    asyncio.run(collect())


def test_one_request_for_many(server: MemoryServer, keeping: App) -> None:
    """Of jobs in one queue."""

    @keeping.task(queue="q")
    def one() -> int:
        return 1

    handles = keeping.send_many([one.message() for _ in range(50)])
    server.drain(keeping)
    calls: list[int] = []
    client = keeping._producer()
    ask = client.job_statuses

    def counted(queue: str, seqs: Any, **options: Any) -> Any:
        calls.append(len([*seqs]))
        return ask(queue, seqs, **options)

    client.job_statuses = counted  # type: ignore[method-assign]
    assert keeping.results(handles, timeout=5) == [1] * 50
    assert calls == [50]
