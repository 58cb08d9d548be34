"""What a worker promises, each promise once, on the server in memory under virtual time.

The same promises are tested on the real server, with real processes, in test_acceptance_process.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from logqueue.testing import MemoryServer
from logqueue.worker import App, Job, Retry, current_job
from tests.worker import slow_functions

LEASE_S = 9.0


def left(server: MemoryServer, queue: str) -> int:
    """Jobs that are still in a queue."""
    return server.client.topic(queue).count


@pytest.mark.parametrize("source", ["sse", "poll"])
@pytest.mark.parametrize("is_noticed", [True, False])
def test_1_a_killed_workers_job_is_started_by_another_within_lease_and_a_second(
    server: MemoryServer, app: App, source: str, is_noticed: bool
) -> None:
    starts: list[tuple[float, int]] = []

    @app.task(queue="q")
    async def forever() -> None:
        starts.append((server.now(), current_job().deliveries))
        await asyncio.sleep(100_000)

    forever.send()
    first = server.start(app, source=source, lease=LEASE_S)
    server.run_until(lambda: len(starts) == 1)
    server.advance(3.1 * LEASE_S)
    server.start(app, source=source, lease=LEASE_S)
    crashed_at = server.now()
    server.crash(first, is_noticed=is_noticed)
    server.run_until(lambda: len(starts) == 2)
    at, deliveries = starts[1]
    assert at <= crashed_at + LEASE_S + 1
    assert deliveries == 2


@pytest.mark.parametrize("source", ["sse", "poll"])
def test_2_a_job_of_five_leases_length_runs_once(
    server: MemoryServer, app: App, source: str
) -> None:
    runs: list[int] = []

    @app.task(queue="q")
    async def long() -> None:
        runs.append(current_job().deliveries)
        await asyncio.sleep(5 * LEASE_S)

    long.send()
    server.start(app, source=source, lease=LEASE_S)
    server.start(app, source=source, lease=LEASE_S)
    server.run_until(lambda: left(server, "q") == 0)
    assert runs == [1]
    assert server.now() >= 5 * LEASE_S


def test_3_a_blocking_call_of_three_leases_length_runs_once_in_a_thread(
    server: MemoryServer, app: App
) -> None:
    runs: list[int] = []

    @app.task(queue="q")
    def blocking() -> None:
        runs.append(current_job().deliveries)
        server.sleep(3 * LEASE_S)

    blocking.send()
    server.start(app, lease=LEASE_S)
    server.start(app, lease=LEASE_S)
    server.run_until(lambda: left(server, "q") == 0)
    assert runs == [1]


def test_3_a_blocking_call_of_three_leases_length_on_the_loop_runs_once(
    server: MemoryServer, app: App
) -> None:
    runs: list[int] = []

    @app.task(queue="q")
    async def blocking() -> None:
        runs.append(current_job().deliveries)
        server.sleep(3 * LEASE_S)

    blocking.send()
    server.start(app, source="poll", lease=LEASE_S)
    server.start(app, source="poll", lease=LEASE_S)
    server.run_until(lambda: left(server, "q") == 0)
    assert runs == [1]


def test_3_a_blocking_call_of_three_leases_length_runs_once_in_a_process(
    server: MemoryServer, tmp_path: Path
) -> None:
    app = slow_functions.app
    server.attach(app)
    slow_functions.hold_until_told.send(str(tmp_path))
    server.start(app, lease=LEASE_S)
    server.start(app, lease=LEASE_S)
    server.advance(3 * LEASE_S, past_threads=True)
    (tmp_path / "go").touch()
    server.run_until(lambda: left(server, "processes") == 0)
    assert [line.split()[1] for line in (tmp_path / "runs").read_text().splitlines()] == ["1"]


@pytest.mark.parametrize("source", ["sse", "poll"])
def test_4_a_stop_stores_finished_acks_and_gives_the_long_job_back(
    server: MemoryServer, app: App, source: str
) -> None:
    grace = 25.0
    started: list[int] = []
    go = asyncio.Event()
    stop_at = 0.0

    @app.consumer("q", concurrency=3)
    async def handle(job: Job) -> None:
        nonlocal stop_at
        started.append(job.seq)
        if job.data == "long":
            await asyncio.sleep(60.0)
            raise AssertionError("it should have been cancelled")
        await go.wait()
        # The settles of both short jobs are still being gathered when the word to stop comes.
        worker.worker.stop()
        stop_at = server.now()

    server.client.append("q", ["long", "short", "short"], config={"type": "queue"})
    worker = server.start(app, source=source, grace=grace, lease=LEASE_S)
    server.run_until(lambda: len(started) == 3)
    go.set()
    server.run_until(lambda: left(server, "q") == 1)
    assert server.now() < stop_at + 1.0, "acks are flushed before the grace begins"
    server.run_until(lambda: worker.is_over)
    back = server.connect("other").claim("q", max=10, wait_ms=3000)
    if not back.jobs:
        server.advance(1.0)
        back = server.connect("other").claim("q", max=10)
    assert [job.data for job in back.jobs] == ["long"]
    assert server.now() <= stop_at + grace + 3.0


@pytest.mark.parametrize("source", ["sse", "poll"])
@pytest.mark.parametrize("verb", ["claim", "work", "ack", "append"])
def test_5_a_lost_reply_loses_doubles_and_strands_nothing(
    server: MemoryServer, app: App, source: str, verb: str
) -> None:
    done: list[int] = []

    @app.task(queue="q")
    async def note(number: int) -> None:
        done.append(number)

    server.client.put_topic("q", type="queue")
    if verb != "append":
        note.send(1)
    server.lose_reply(verb)
    if verb == "append":
        note.send(1)
    note.send(2)
    server.drain(app, source=source, lease=LEASE_S)
    assert sorted(done) == [1, 2]
    assert left(server, "q") == 0


@pytest.mark.parametrize("verb", ["claim", "ack", "append"])
def test_5_a_lost_request_loses_doubles_and_strands_nothing(
    server: MemoryServer, app: App, verb: str
) -> None:
    done: list[int] = []

    @app.task(queue="q")
    async def note(number: int) -> None:
        done.append(number)

    server.lose_request(verb)
    note.send(1)
    server.drain(app, source="poll", lease=LEASE_S)
    assert done == [1]
    assert left(server, "q") == 0


def test_6_one_error_in_a_thousand_jobs_leaves_999_to_finish(
    server: MemoryServer, app: App
) -> None:
    done: set[int] = set()

    @app.task(queue="q", retry=Retry.constant(3600.0))
    async def work(number: int) -> None:
        if number == 500:
            raise ValueError("this one is bad")
        done.add(number)

    app.send_many([work.message(number) for number in range(1000)])
    worker = server.start(app, concurrency=50)
    server.run_until(lambda: left(server, "q") == 1)
    assert done == set(range(1000)) - {500}
    assert worker.counts.acked == 999
    assert worker.counts.nacked == 1
