"""Where jobs come from when something breaks: streams, claims, and what is still ours after."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from logqueue.errors import NotAQueue
from logqueue.testing import MemoryServer
from logqueue.worker import App, Job


@pytest.fixture
def server(logqueue_memory: MemoryServer) -> MemoryServer:
    return logqueue_memory


@pytest.fixture
def app(server: MemoryServer) -> App:
    app = App()
    server.attach(app)
    return app


@pytest.fixture
def done(app: App) -> list[tuple[int, int]]:
    """Every run that ended, as seq and delivery; each takes ten seconds."""
    runs: list[tuple[int, int]] = []

    @app.consumer("q")
    async def handle(job: Job) -> None:
        await asyncio.sleep(10.0)
        runs.append((job.seq, job.deliveries))

    return runs


def put(server: MemoryServer, *data: Any) -> None:
    """Jobs for a consumer of queue q."""
    server.client.append("q", list(data), config={"type": "queue"})


def test_claims_take_over_when_streams_can_not_be_opened(
    server: MemoryServer, app: App, done: list[tuple[int, int]]
) -> None:
    server.lose_request("work", times=2)
    put(server, 1)
    server.start(app)
    server.advance(15.0)
    assert done == [(1, 1)]


def test_a_stream_is_tried_again_after_a_while(
    server: MemoryServer, app: App, done: list[tuple[int, int]]
) -> None:
    server.client.put_topic("q", type="queue")
    server.lose_request("work", times=2)
    server.start(app)
    server.advance(60.0)
    server.lose_request("claim", times=1000)
    put(server, 1)
    server.advance(15.0)
    assert done == [(1, 1)]


def test_a_claim_that_waits_has_the_job_at_once(
    server: MemoryServer, app: App, done: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    put(server)
    server.start(app, source="poll")
    caplog.set_level(logging.INFO, "httpx")
    server.advance(3600.0)
    claims = sum("/claim " in record.getMessage() for record in caplog.records)
    assert claims == 180, "each waits twenty seconds at the server"
    put(server, 1)
    server.advance(10.0)
    assert done == [(1, 1)]


@pytest.mark.parametrize("source", ["sse", "poll"])
def test_a_paused_queue_is_taken_up_again(
    server: MemoryServer, app: App, done: list[tuple[int, int]], source: str
) -> None:
    put(server, 1)
    server.client.pause("q")
    server.start(app, source=source)
    server.advance(600.0)
    assert done == []
    server.client.resume("q")
    server.advance(10.5)
    assert done == [(1, 1)]


def test_jobs_of_a_broken_stream_are_dropped_and_run_by_who_gets_them(
    server: MemoryServer, app: App, done: list[tuple[int, int]]
) -> None:
    put(server, 1)
    worker = server.start(app)
    server.advance(5.0)
    server.break_connections()
    server.advance(4.0)
    assert worker.counts.lost == 1, "the first run was cancelled: the server took the job back"
    server.advance(15.0)
    assert done == [(1, 2)]


def test_claimed_jobs_outlive_a_break(
    server: MemoryServer, app: App, done: list[tuple[int, int]]
) -> None:
    put(server, 1)
    worker = server.start(app, source="poll")
    server.advance(5.0)
    server.break_connections()
    server.advance(15.0)
    assert done == [(1, 1)]
    assert worker.counts.lost == 0


@pytest.mark.parametrize("source", ["sse", "poll"])
@pytest.mark.parametrize("kill", [True, False])
def test_a_worker_outlives_a_restart_of_the_server(
    server: MemoryServer, app: App, done: list[tuple[int, int]], source: str, kill: bool
) -> None:
    put(server, 1)
    server.start(app, source=source)
    server.advance(1.0)
    server.restart(kill=kill)
    put(server, 2)
    server.run_until(lambda: server.client.topic("q").count == 0, limit=120.0)
    assert len({seq for seq, _ in done}) == 2


@pytest.mark.parametrize("source", ["sse", "poll"])
@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_long_outage_loses_nothing(
    server: MemoryServer, app: App, done: list[tuple[int, int]], source: str, is_noticed: bool
) -> None:
    put(server, 1)
    worker = server.start(app, source=source, lease=30.0)
    server.advance(5.0)
    server.cut_off(worker, is_noticed=is_noticed)
    server.advance(600.0)
    put(server, 2)
    server.reconnect(worker)
    server.run_until(lambda: server.client.topic("q").count == 0, limit=120.0)
    assert (2, 1) in done


@pytest.mark.parametrize("source", ["sse", "poll"])
def test_a_queue_that_is_not_there_is_created_as_the_app_says(
    server: MemoryServer, app: App, done: list[tuple[int, int]], source: str
) -> None:
    app.queue("q", max_deliveries=7)
    server.start(app, source=source)
    config = server.client.topic("q").config
    assert (config.type, config.max_deliveries) == ("queue", 7)


def test_a_queue_that_is_there_is_left_as_it_is(
    server: MemoryServer, app: App, done: list[tuple[int, int]]
) -> None:
    server.client.put_topic("q", type="queue", max_deliveries=3)
    app.queue("q", max_deliveries=7)
    server.start(app)
    assert server.client.topic("q").config.max_deliveries == 3


def test_a_queue_may_be_deleted_under_a_worker_and_come_back(
    server: MemoryServer, app: App, done: list[tuple[int, int]]
) -> None:
    put(server, 1)
    worker = server.start(app)
    server.advance(1.0)
    server.client.drop_topic("q")
    server.advance(60.0)
    assert done == [], "the run was cancelled: its queue is gone"
    put(server, 1)
    server.advance(60.0)
    assert done == [(1, 1)]
    assert worker.counts.lost == 1


def test_a_log_is_no_queue(server: MemoryServer, app: App, done: list[tuple[int, int]]) -> None:
    server.client.put_topic("q", type="log")
    worker = server.start(app)
    server.run_until(lambda: worker.is_over, limit=60.0)
    assert worker.task is not None
    with pytest.raises(NotAQueue):
        worker.task.result()


def test_a_lease_is_held_for_max_lease_and_no_longer(server: MemoryServer, app: App) -> None:
    began: list[tuple[float, int]] = []

    @app.consumer("long")
    async def handle(job: Job) -> None:
        began.append((server.now(), job.deliveries))
        await asyncio.sleep(10_000.0)

    server.client.append("long", [1], config={"type": "queue"})
    server.start(app, source="poll", lease=30.0, max_lease=100.0)
    server.advance(150.0)
    assert [deliveries for _, deliveries in began] == [1, 2]
    assert 100.0 <= began[1][0] <= 102.0


def test_slots_of_tasks_that_name_their_concurrency_are_their_own(
    server: MemoryServer, app: App
) -> None:
    running = {"one": 0, "many": 0}
    most = {"one": 0, "many": 0}

    async def count(name: str) -> None:
        running[name] += 1
        most[name] = max(most[name], running[name])
        await asyncio.sleep(1.0)
        running[name] -= 1

    @app.task(queue="mixed", concurrency=1)
    async def one() -> None:
        await count("one")

    @app.task(queue="mixed", concurrency=4)
    async def many() -> None:
        await count("many")

    app.send_many([one.message() for _ in range(5)] + [many.message() for _ in range(20)])
    server.drain(app)
    assert most == {"one": 1, "many": 4}
