"""Where jobs come from when something breaks: streams, claims, and what is still ours after."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from logqueue.errors import NotAQueue
from logqueue.testing import MemoryServer
from logqueue.worker import App, Job, check_queues


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
def test_running_jobs_outlive_a_restart_of_the_server(
    server: MemoryServer, app: App, done: list[tuple[int, int]], source: str, kill: bool
) -> None:
    worker = server.start(app, source=source)
    server.client.append("q", [1, 2])
    server.advance(1.0)
    server.restart(kill=kill)
    server.client.append("q", [3])
    server.run_until(lambda: server.client.topic("q").count == 0, limit=120.0)
    assert [deliveries for _, deliveries in done] == [1, 1, 1]
    assert len({seq for seq, _ in done}) == 3
    assert (worker.counts.acked, worker.counts.lost, worker.counts.handed_back) == (3, 0, 0)


@pytest.mark.parametrize("source", ["sse", "poll"])
@pytest.mark.parametrize("kill", [True, False])
def test_without_durable_leases_a_restart_hands_running_jobs_out_again(
    server: MemoryServer, app: App, done: list[tuple[int, int]], source: str, kill: bool
) -> None:
    put(server, 1)
    server.start(app, source=source)
    server.advance(1.0)
    server.restart(kill=kill)
    put(server, 2)
    server.run_until(lambda: server.client.topic("q").count == 0, limit=120.0)
    assert len({seq for seq, _ in done}) == 2


def test_a_worker_takes_no_more_than_its_slots_after_a_restart(
    server: MemoryServer, app: App
) -> None:
    began: list[int] = []

    @app.consumer("q", concurrency=2)
    async def handle(job: Job) -> None:
        began.append(job.seq)
        await asyncio.sleep(60.0 if job.seq == 1 else 5.0)

    worker = server.start(app)
    server.client.append("q", [1, 2, 3, 4, 5, 6])
    server.advance(1.5)
    server.restart(kill=True)
    for _ in range(40):
        server.advance(1.0)
        queue = server.client.topic("q").queue
        assert queue is not None and queue.in_flight <= 2, "no job waits here for a slot"
    assert sorted(began) == [1, 2, 3, 4, 5, 6]
    server.run_until(lambda: server.client.topic("q").count == 0, limit=120.0)
    assert (worker.counts.acked, worker.counts.lost) == (6, 0)
    assert server.client.workers("q")[0].streams == 1, "jobs are pushed, as before"


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


def test_a_queue_that_is_there_is_left_as_it_is_with_a_warning_per_difference(
    server: MemoryServer,
    app: App,
    done: list[tuple[int, int]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.client.put_topic("q", type="queue", max_deliveries=3, dead_letter="q.dead")
    server.client.pause("q")
    before = server.client.topic("q").config
    app.queue("q", max_deliveries=7, dead_letter="q.dead", retry_backoff={"kind": "linear"})
    server.start(app)
    assert server.client.topic("q").config == before
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 2
    assert "queue q: max_deliveries is 3, the app declares 7; nothing was changed" in warnings[0]
    assert "queue q: retry_backoff is null, the app declares {" in warnings[1]
    assert [line.partition(",")[0] for line in check_queues(app)] == [
        "queue q: max_deliveries is 3",
        "queue q: retry_backoff is null",
    ]


def test_checking_declared_queues_creates_none(server: MemoryServer, app: App) -> None:
    app.queue("absent", max_deliveries=7)
    assert check_queues(app) == []
    assert [*server.client.topics()] == []
    server.client.put_topic("absent")
    assert check_queues(app) == ["queue absent: it exists as a log"]


def test_queues_of_the_library_have_durable_leases_unless_declared_otherwise(
    server: MemoryServer, app: App, done: list[tuple[int, int]]
) -> None:
    app.queue("plain", leases_durable=False)
    app.queue("passing", durability="ephemeral")

    for queue in ("by-send", "plain", "passing"):

        @app.task(queue=queue, name=queue)
        def task() -> None: ...

        task.send()
    server.start(app)
    configs = {
        entry.topic: server.client.topic(entry.topic).config for entry in server.client.topics()
    }
    assert {name: config.leases_durable for name, config in configs.items()} == {
        "q": True, "by-send": True, "plain": False, "passing": False,
    }  # fmt: skip


def test_a_declaration_that_makes_no_sense_is_refused(app: App) -> None:
    with pytest.raises(TypeError, match="'max_delivery': did you mean max_deliveries"):
        app.queue("q", max_delivery=3)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="type must be queue"):
        app.queue("q", type="log")


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
