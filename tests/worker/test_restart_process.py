"""Running jobs while the real server restarts under them: in order, and by SIGKILL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from logqueue.client import AsyncClient
from logqueue.testing import ServerProcess
from logqueue.worker import App, Job, Worker

WAIT_S = 120.0


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another task does."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_job_runs_once_through_restarts_of_the_server(tmp_path: Path) -> None:
    asyncio.run(run_through_restarts(tmp_path))


async def run_through_restarts(folder: Path) -> None:
    runs: list[tuple[str, int]] = []
    may_end = asyncio.Event()

    def app_of(queue: str, url: str) -> App:
        app = App(url)

        @app.consumer(queue)
        async def handle(job: Job) -> None:
            runs.append((queue, job.deliveries))
            if job.data == "long":
                await may_end.wait()

        return app

    with ServerProcess(folder / "data") as server:
        workers = [
            Worker(app_of("pushed", server.url), source="sse"),
            Worker(app_of("claimed", server.url), source="poll"),
        ]
        tasks = [asyncio.ensure_future(worker.run()) for worker in workers]
        async with AsyncClient(server.url) as client:
            for queue in ("pushed", "claimed"):
                await client.append(
                    queue, ["long"], config={"type": "queue", "leases_durable": True}
                )
            await until(lambda: len(runs) == 2)
            for end in (server.stop, server.kill):
                await asyncio.to_thread(end)
                await asyncio.to_thread(server.start)
                # New jobs come in beside the one that still runs.
                before = len(runs)
                for queue in ("pushed", "claimed"):
                    await client.append(queue, ["short"])
                await until(lambda before=before: len(runs) == before + 2)  # type: ignore[misc]
            may_end.set()
            await until(lambda: all(worker.counts.acked == 3 for worker in workers))
            counts = [(await client.topic(queue)).count for queue in ("pushed", "claimed")]
        for worker in workers:
            worker.stop()
        await asyncio.gather(*tasks)
    assert counts == [0, 0]
    assert sorted(runs) == sorted([("pushed", 1), ("claimed", 1)] * 3), "once each, first delivery"
    for worker in workers:
        told = worker.counts
        assert (told.acked, told.nacked, told.handed_back, told.lost) == (3, 0, 0, 0)
