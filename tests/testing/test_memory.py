"""The server in memory: how time passes, what breaks on demand, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
import threading
from collections.abc import Awaitable, Callable
from zlib import crc32

import pytest

from logqueue.client import AsyncClient, LostReply, NewRecord
from logqueue.errors import TopicNotFound
from logqueue.testing import MemoryServer
from logqueue.worker import App, Job, Retry, current_job


def test_time_stands_still_until_it_is_told_to_pass(server: MemoryServer) -> None:
    server.client.append("q", [1], config={"type": "queue"})
    assert server.now() == 0.0
    server.advance(1.5)
    assert server.now() == 1.5
    server.client.append("q", [2], create=True)
    first, second = server.client.diff("q").records
    assert second.ts - first.ts == 1500


async def ends_at_once(job: Job) -> None:
    await asyncio.sleep(1000.0)


async def cleans_up(job: Job) -> None:
    try:
        await asyncio.sleep(1000.0)
    finally:
        await asyncio.sleep(5.0)
        print("cleaned up")


async def ignores_a_cancellation(job: Job) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(1000.0)
    await asyncio.sleep(10_000.0)


async def leaves_a_task(job: Job) -> None:
    left = asyncio.create_task(asyncio.sleep(1000.0), name="left behind")
    assert not left.done()


@pytest.mark.parametrize("source", ["sse", "poll"])
@pytest.mark.parametrize(
    "handler", [ends_at_once, cleans_up, ignores_a_cancellation, leaves_a_task]
)
def test_closing_leaves_no_task_pending(
    handler: Callable[[Job], Awaitable[None]],
    source: str,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With streams open, claims waiting and handlers at work; cleanups are run to their end."""
    with MemoryServer() as server:
        app = App()
        server.attach(app)
        app.consumer("q", concurrency=2)(handler)
        server.client.append("q", [1, 2], config={"type": "queue"})
        streams = [iter(server.client.work("q")), server.client.read("q", follow=True)]
        next(streams[1])
        server.start(app, source=source)
        server.advance(1.0)
    del server, app, streams
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
    assert capsys.readouterr().out.count("cleaned up") == (2 if handler is cleans_up else 0)


def test_bulk_reads(server: MemoryServer) -> None:
    client = server.client
    client.append("q", [1], config={"type": "queue"})
    server.advance(2)
    client.append("q", [2], create=True)
    client.claim("q", max=2)
    for log in ("jobs", "leases"):
        (segment,) = client.segments(log)
        data = client.segment(segment.id, stop=segment.bytes)
        assert crc32(data) == segment.crc32 and segment.topics[0].name == "q"
        assert client.segment(segment.id, start=10, stop=20) == data[10:20]
    assert client.seq_at("q", server.now_ms - 1000).seq == 2
    server.restart()
    assert next(segment.id for segment in client.segments()) == "jobs-1"


def test_handlers_sleep_in_virtual_time(server: MemoryServer, app: App) -> None:
    woke: list[tuple[str, int]] = []

    @app.consumer("loop")
    async def on_the_loop(job: Job) -> None:
        await asyncio.sleep(3600.0)
        woke.append(("loop", round(server.now())))

    @app.consumer("thread")
    def in_a_thread(job: Job) -> None:
        server.sleep(1800.0)
        woke.append(("thread", round(server.now())))

    for queue in ("loop", "thread"):
        server.client.append(queue, [1], config={"type": "queue"})
    server.drain(app)
    assert woke == [("thread", 1800), ("loop", 3600)]


def test_time_waits_for_threads_that_work(server: MemoryServer, app: App) -> None:
    go = threading.Event()
    done: list[float] = []

    @app.consumer("q")
    def handle(job: Job) -> None:
        go.wait(20.0)
        done.append(server.now())

    server.client.append("q", [1], config={"type": "queue"})
    server.start(app)
    threading.Timer(0.01, go.set).start()
    server.advance(100.0)
    assert done == [0.0]


def test_a_day_of_backoff_is_drained_and_what_never_ends_is_named(
    server: MemoryServer, app: App
) -> None:
    @app.task(queue="q", retry=Retry.constant(3600.0))
    async def stubborn() -> None:
        if current_job().deliveries < 20:
            raise ValueError("no")

    stubborn.send()
    server.drain(app)
    assert server.now() == pytest.approx(19 * 3600.0, abs=1.0)
    stubborn.with_options(tag="x").send()
    with pytest.raises(TimeoutError, match=r"after 60 virtual seconds jobs are left: {'q': 1}"):
        server.drain(app, limit=60.0)


def test_a_condition_that_never_holds_is_reported(server: MemoryServer) -> None:
    with pytest.raises(TimeoutError, match="after 10 virtual seconds"):
        server.run_until(lambda: False, limit=10.0)
    assert server.now() == 10.0


def test_handlers_may_send(server: MemoryServer, app: App) -> None:
    done: list[int] = []

    @app.task(queue="q")
    async def chain(left: int) -> None:
        done.append(left)
        if left:
            await (chain.send_async if left % 2 else chain.with_options(delay=60.0).send_async)(
                left - 1
            )

    @app.task(queue="q")
    def begin(left: int) -> None:
        chain.send(left)

    begin.send(4)
    server.drain(app)
    assert done == [4, 3, 2, 1, 0]


def test_a_lost_reply_had_its_effect_and_a_lost_request_had_none(server: MemoryServer) -> None:
    client = server.client
    client.append("q", [1, 2], config={"type": "queue"})
    for order, held in ((server.lose_request, 0), (server.lose_reply, 1)):
        order("claim")
        with pytest.raises(LostReply):
            client.claim("q")
        queue = client.topic("q").queue
        assert queue is not None
        assert queue.in_flight == held


def test_faults_come_as_often_as_ordered(server: MemoryServer) -> None:
    client = server.client
    client.append("q", [1], config={"type": "queue"})
    server.lose_request("claim", times=2)
    for _ in range(2):
        with pytest.raises(LostReply):
            client.claim("q")
    assert len(client.claim("q").jobs) == 1


@pytest.mark.parametrize("kill", [True, False])
def test_a_restart_keeps_what_was_promised(server: MemoryServer, kill: bool) -> None:
    client = server.client
    client.append("q", ["kept"], config={"type": "queue", "durability": "fsync"})
    client.append("gone", ["lost"], config={"durability": "ephemeral"})
    server.restart(kill=kill)
    assert [record.data for record in client.diff("q").records] == ["kept"]
    with pytest.raises(TopicNotFound):
        client.claim("nothing")
    assert client.diff("gone").records == []


def test_a_crashed_worker_says_nothing_more(server: MemoryServer, app: App) -> None:
    @app.consumer("q")
    async def handle(job: Job) -> None:
        await asyncio.sleep(10.0)

    server.client.append("q", [1], config={"type": "queue"})
    worker = server.start(app, source="poll", lease=30.0)
    server.advance(1.0)
    server.crash(worker)
    assert worker.is_over
    server.advance(28.0)
    assert server.client.claim("q").jobs == []
    server.advance(2.0)
    assert [job.deliveries for job in server.client.claim("q").jobs] == [2]


def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> list[float]:
        at: list[float] = []
        with MemoryServer(seed=seed) as server:
            app = App()

            @app.task(queue="q", retry=Retry(first=10.0, max_attempts=10))
            async def flaky() -> None:
                at.append(server.now())
                if len(at) < 5:
                    raise ValueError("no")

            server.attach(app)
            flaky.send()
            server.drain(app)
        return at

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_an_app_gets_its_surroundings_back() -> None:
    app = App("http://127.0.0.1:9")
    before = app.surroundings
    with MemoryServer() as server:
        server.attach(app)
        assert app.surroundings is not before
    assert app.surroundings is before


def test_nothing_is_left_behind() -> None:
    before = set(threading.enumerate())
    with MemoryServer() as server:
        app = App()

        @app.consumer("q")
        async def handle(job: Job) -> None:
            await asyncio.sleep(1000.0)

        server.attach(app)
        server.client.append("q", [1], config={"type": "queue"})
        server.start(app)
        server.advance(1.0)
    assert set(threading.enumerate()) == before


def test_it_works_inside_an_event_loop() -> None:
    done: list[int] = []

    async def test() -> None:
        with MemoryServer() as server:
            app = App()

            @app.task(queue="q", retry=Retry.constant(60.0))
            async def note(number: int) -> None:
                if current_job().deliveries == 1:
                    raise ValueError("later")
                done.append(number)

            server.attach(app)
            await note.send_async(1)
            server.drain(app)
            await app.aclose()

    asyncio.run(test())
    assert done == [1]


def test_time_can_not_pass_within_itself(server: MemoryServer, app: App) -> None:
    said: list[str] = []

    @app.consumer("q")
    async def handle(job: Job) -> None:
        with pytest.raises(RuntimeError, match=r"MemoryServer\.sleep") as refused:
            server.advance(1.0)
        said.append(str(refused.value))

    server.client.append("q", [1], config={"type": "queue"})
    server.drain(app)
    assert len(said) == 1


def test_a_look_in_the_moment_a_delay_ends_strands_no_job(server: MemoryServer, app: App) -> None:
    ran: list[float] = []

    @app.consumer("q")
    async def handle(job: Job) -> None:
        ran.append(server.now())

    server.client.append("q", [1], config={"type": "queue"})
    server.client.nack("q", server.client.claim("q").jobs, delay_ms=60_000)
    server.start(app)
    server.advance(60.0)
    assert server.client.topic("q").count == 1
    server.advance(1.0)
    assert len(ran) == 1


def test_async_clients_work_on_the_loop_they_are_used_on(server: MemoryServer) -> None:
    async def look() -> int:
        app = App()
        server.attach(app)
        client: AsyncClient = app.surroundings.async_producer()
        async with client:
            await client.append("q", [1, 2], create=True)
            return (await client.topic("q")).count

    assert asyncio.run(look()) == 2


# -- what the server does in the background ------------------------------------------------------


def test_routers_copy_by_themselves(server: MemoryServer, app: App) -> None:
    done: list[int] = []

    @app.consumer("q")
    async def handle(job: Job) -> None:
        done.append(job.data)

    server.client.put_topic("q", type="queue")
    server.client.put_router("events->q", "events", "q")
    server.start(app)
    server.client.append("events", [1, 2], create=True)
    server.advance(0.1)
    assert done == [1, 2]


def test_a_router_that_found_no_room_goes_on_when_time_has_made_some(server: MemoryServer) -> None:
    client = server.client
    client.put_topic("narrow", cap_records=1, discard="reject", ttl_ms=60_000)
    client.put_router("wide->narrow", "wide", "narrow")
    client.append("wide", [1, 2], create=True)
    server.advance(59.0)
    assert client.router("wide->narrow").forwarded_total == 1
    server.advance(3.0)
    assert client.router("wide->narrow").forwarded_total == 2


def test_a_stalled_router_goes_on_when_somebody_makes_room(server: MemoryServer) -> None:
    client = server.client
    client.put_topic("narrow", type="queue", cap_records=1, discard="reject")
    client.put_router("wide->narrow", "wide", "narrow")
    client.append("wide", [1, 2], create=True)
    server.advance(600.0)
    client.ack("narrow", client.claim("narrow").jobs)
    assert [job.data for job in client.claim("narrow").jobs] == [2]


def test_records_expire_without_an_access(server: MemoryServer, app: App) -> None:
    mourned: list[tuple[str, float]] = []

    @app.consumer("dead")
    async def mourn(job: Job) -> None:
        mourned.append((job.data, server.now()))

    client = server.client
    client.put_topic(
        "q", type="queue", ttl_ms=7_200_000, dead_letter="dead", on_expire="dead_letter"
    )
    client.append("q", ["topic's", NewRecord("own", ttl_ms=3_600_000)], create=True)
    server.start(app)
    server.advance(86_400.0)
    assert [data for data, _ in mourned] == ["own", "topic's"]
    assert [at for _, at in mourned] == pytest.approx([3600.0, 7200.0], abs=1.1)


def test_the_disk_in_memory_is_tidied(server: MemoryServer) -> None:
    client = server.client
    client.put_topic("short", cap_records=1)
    for _ in range(24):
        client.append("short", ["x" * 1_000_000], create=True)
        server.advance(1.0)
    (size,) = re.findall(r"^logqueue_wal_bytes (\S+)", client.metrics_text(), re.MULTILINE)
    assert float(size) < 14_000_000


def test_a_day_without_work_costs_few_steps(server: MemoryServer, app: App) -> None:
    @app.consumer("q")
    async def handle(job: Job) -> None: ...

    looks: list[float] = []

    def is_over() -> bool:
        looks.append(server.now())
        return server.now() >= 86_400.0

    server.client.append("log", [NewRecord(1, ttl_ms=80_000_000)], create=True)
    server.start(app)
    server.run_until(is_over)
    assert len(looks) < 100
