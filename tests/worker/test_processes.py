"""Handlers in processes: what they can do, and what happens when they end badly."""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from logqueue import shapes
from logqueue.testing import MemoryServer
from logqueue.worker import App, Job, Worker
from logqueue.worker.leases import Lease
from logqueue.worker.outcomes import JobTimeout
from logqueue.worker.running import Running
from tests.worker import slow_functions
from tests.worker.slow_functions import die_once, fail_oddly, hold_until_told, stop_when_asked


@pytest.fixture
def server(logqueue_memory: MemoryServer) -> Iterator[MemoryServer]:
    logqueue_memory.attach(slow_functions.app)
    yield logqueue_memory


def until(there: Callable[[], bool]) -> None:
    """Wait for a child to do something; it runs in real time."""
    import time

    ends = time.monotonic() + 20.0
    while not there():
        assert time.monotonic() < ends, "the child did not do it"
        time.sleep(0.002)


def is_alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_child_runs_one_call_after_the_other(server: MemoryServer, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    for _ in range(3):
        hold_until_told.send(str(tmp_path))
    server.drain(slow_functions.app, concurrency=1)
    runs = [line.split() for line in (tmp_path / "runs").read_text().splitlines()]
    assert [seq for seq, _, _ in runs] == ["1", "2", "3"]
    pids = {pid for _, _, pid in runs}
    assert len(pids) == 1
    assert str(os.getpid()) not in pids


def test_a_child_that_dies_is_an_error_of_its_job_only(
    server: MemoryServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    die_once.send(str(tmp_path))
    counts = server.drain(slow_functions.app)
    assert (tmp_path / "survived").exists()
    assert (counts.nacked, counts.acked) == (1, 1)
    assert "ended with status 7" in caplog.text


def test_an_error_that_can_not_travel_is_told_in_words(
    server: MemoryServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fail_oddly.send(str(tmp_path))
    server.drain(slow_functions.app)
    assert (tmp_path / "survived").exists()
    # Not its text: other tests may have had the handler's format changed.
    [record] = [record for record in caplog.records if record.exc_info]
    assert record.exc_info is not None
    told = "".join(traceback.format_exception(record.exc_info[1]))
    assert "Local: odd" in told and "in the handler's process" in told


@pytest.mark.parametrize("is_done", [False, True])
def test_a_child_that_returns_when_asked_hands_back_unless_done(
    server: MemoryServer, tmp_path: Path, is_done: bool
) -> None:
    stop_when_asked.send(str(tmp_path), is_done)
    worker = server.start(slow_functions.app)
    until((tmp_path / "runs").exists)
    counts = server.stop(worker)
    assert (tmp_path / "asked").exists()
    assert (counts.acked, counts.handed_back) == (is_done, not is_done)


def test_a_child_that_does_not_finish_is_ended(server: MemoryServer, tmp_path: Path) -> None:
    hold_until_told.send(str(tmp_path))
    worker = server.start(slow_functions.app, grace=5.0)
    runs = tmp_path / "runs"
    until(lambda: runs.exists() and runs.read_text().endswith("\n"))
    pid = int(runs.read_text().split()[2])
    worker.worker.stop()
    server.advance(10.0, past_threads=True)
    server.run_until(lambda: worker.is_over)
    assert worker.counts.handed_back == 1
    until(lambda: not is_alive(pid))


def test_the_start_of_a_process_is_no_part_of_the_timeout() -> None:
    async def run(running: Running, seconds: float) -> None:
        wire = shapes.Job(
            seq=1,
            lease_id="lease_1",
            deadline=0,
            ts=0,
            deliveries=1,
            data={"task": "run_for", "args": [seconds]},
        )
        job = Job(Lease("processes", wire, 30.0, 0.0))
        await running.run(slow_functions.app.handlers.find(job), job)

    with closing(Running()) as running:
        asyncio.run(run(running, 0.0))
    with closing(Running()) as running, pytest.raises(JobTimeout, match=r"longer than 0\.05 s"):
        asyncio.run(run(running, 30.0))


def test_a_function_that_can_not_be_imported_is_refused() -> None:
    app = App()

    def local() -> None: ...

    with pytest.raises(ValueError, match="top of a module"):
        app.task(run_in="process")(local)


def test_async_functions_stay_on_the_loop() -> None:
    app = App()

    async def wait() -> None: ...

    with pytest.raises(ValueError, match="runs on the loop"):
        app.task(run_in="thread")(wait)


def test_a_worker_needs_something_to_do() -> None:
    with pytest.raises(ValueError, match="no handler for any queue"):
        Worker(App())
