"""What a worker says about jobs that fail, and how it shows that it lives."""

from __future__ import annotations

import asyncio
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from logqueue import shapes
from logqueue.client import ConfigFields
from logqueue.testing import MemoryServer
from logqueue.worker import App, Job, Reject, Retry, running
from logqueue.worker.handlers import Handler
from logqueue.worker.health import STUCK_S, UNCONNECTED_S, QueueVitals, Vitals, WorkerHealth
from logqueue.worker.leases import Lease
from logqueue.worker.outcomes import BadPayload, JobTimeout
from logqueue.worker.payload import Arguments, read_call


def fail(job: Job) -> None:
    raise ValueError("boom")


def reject(job: Job) -> None:
    raise Reject("never")


def reject_by_hand(job: Job) -> None:
    job.reject("never")


LOST = (
    "ERROR job q/1: attempt {} failed; "
    "dropped permanently because the queue has no dead-letter topic: "
)
MOVED = "WARNING job q/1: attempt {} failed; moving to dead-letter topic d: ValueError: boom"


@pytest.mark.parametrize(
    ("handler", "retry", "config", "line"),
    [
        (fail, Retry.constant(1.0, max_attempts=4), {}, LOST.format("4 of 4") + "ValueError: boom"),
        (
            fail,
            Retry.constant(1.0, max_attempts=4),
            {"dead_letter": "d"},
            MOVED.format("4 of 4"),
        ),
        (
            fail,
            Retry.constant(1.0),
            {"dead_letter": "d", "max_deliveries": 3},
            MOVED.format("3 of 3"),
        ),
        (
            fail,
            Retry.constant(1.0),
            {"dead_letter": "d", "max_deliveries": 2, "on_exhausted": "drop"},
            "ERROR job q/1: attempt 2 of 2 failed; dropped permanently: ValueError: boom",
        ),
        (reject, Retry(), {}, LOST.format("1 of 1") + "never"),
        (reject_by_hand, Retry(), {}, LOST.format("1 of 1") + "never"),
        (
            reject,
            Retry(),
            {"on_exhausted": "hold"},
            "WARNING job q/1: attempt 1 of 1 failed; held until an operator releases it: never",
        ),
    ],
)
def test_the_end_of_a_failed_job_is_told_and_a_loss_is_an_error(
    server: MemoryServer,
    app: App,
    caplog: pytest.LogCaptureFixture,
    handler: Callable[[Job], None],
    retry: Retry,
    config: ConfigFields,
    line: str,
) -> None:
    app.queue("q", **config)
    app.consumer("q", retry=retry)(handler)
    server.client.append("q", [1], config={"type": "queue", **config})
    worker = server.start(app)
    server.advance(30.0)
    server.stop(worker)
    said = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
    assert said.count(line) == 1, said
    assert len([one for one in said if ": attempt" in one]) == 1
    assert not [one for one in said if "<Job" in one]


def job(seq: int) -> Job:
    """A job that is never settled."""
    wire = shapes.Job(seq=seq, lease_id="l", deadline=0, ts=0, deliveries=1, data=None)
    return Job(Lease("q", wire, 30.0, 0.0))


def test_given_up_threads_are_counted_and_have_a_bound(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(running, "ABANDONED_MAX", 2)
    may_end = threading.Event()
    began: list[int] = []

    def hang(number: int) -> None:
        began.append(number)
        may_end.wait(120.0)

    def handler(number: int, timeout: float = 0.3) -> Handler:
        return Handler(
            name="hang",
            queue="q",
            function=hang,
            bind=lambda job: ((number,), {}),
            timeout=timeout,
            run_in="thread",
        )

    async def run() -> None:
        with closing(running.Running()) as runs:
            for number in range(2):
                with pytest.raises(JobTimeout):
                    await runs.run(handler(number), job(number))
            assert runs.abandoned == 2
            third = asyncio.ensure_future(runs.run(handler(2, timeout=120.0), job(2)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert began == [0, 1], "it waits for a thread to return"
            may_end.set()
            await third
            while runs.abandoned:
                await asyncio.sleep(0.001)
            assert began == [0, 1, 2]

    asyncio.run(run())
    assert "2 threads of timed-out handlers still run" in caplog.text


# -- health --------------------------------------------------------------------------------------


def test_a_worker_that_is_stuck_cut_off_or_full_of_given_up_threads_says_so() -> None:
    now = 0.0
    failing_s, abandoned = 0.0, 0

    def look() -> Vitals:
        jobs = {"acked": 3, "lost": 1}
        return Vitals(jobs, [QueueVitals("q", 2, failing_s)], abandoned, 5)

    health = WorkerHealth(look, lambda: now)
    assert health.problems() == []
    text = health.metrics()
    for line in (
        'logqueue_worker_jobs_total{outcome="acked"} 3',
        'logqueue_worker_jobs{queue="q"} 2',
        "logqueue_worker_abandoned_threads 0",
        "logqueue_worker_live 1",
    ):
        assert line in text.splitlines()
    now = STUCK_S + 1
    assert "event loop has been blocked for 31 s" in health.problems()[0]
    now, failing_s, abandoned = 0.0, UNCONNECTED_S + 1, 5
    cut_off, full = health.problems()
    assert "queue q could not be polled for 121 s" in cut_off and "5 threads" in full
    assert "logqueue_worker_live 0" in health.metrics().splitlines()


def get(url: str) -> tuple[int, str]:
    """Status and body."""
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_a_worker_answers_on_its_metrics_port(
    server: MemoryServer, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "logqueue.worker.health")
    app.consumer("q")(lambda job: None)
    server.client.append("q", [1, 2], config={"type": "queue"})
    worker = server.start(app, metrics_port=0)
    server.advance(1.0)
    (line,) = [r.getMessage() for r in caplog.records if r.name == "logqueue.worker.health"]
    url = line.rpartition(" ")[2]
    assert get(f"{url}/live") == (200, "ok")
    assert 'logqueue_worker_jobs_total{outcome="acked"} 2' in get(f"{url}/metrics")[1]
    assert get(f"{url}/other")[0] == 404
    server.cut_off(worker)
    server.advance(UNCONNECTED_S * 2)
    status, said = get(f"{url}/live")
    assert status == 503 and "queue q could not be polled" in said
    server.reconnect(worker)
    server.advance(30.0)
    assert get(f"{url}/live") == (200, "ok")
    server.stop(worker)


# -- tasks ---------------------------------------------------------------------------------------


class Model:
    """What pydantic's models look like from outside; the library need not be installed."""

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def model_validate(cls, plain: Any) -> Model:
        if not isinstance(plain, dict) or not isinstance(plain.get("name"), str):
            raise ValueError("name: a text is required")
        return cls(plain["name"])

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        assert mode == "json"
        return {"name": self.name}


def test_paths_and_models_travel(server: MemoryServer, app: App) -> None:
    seen: list[object] = []

    @app.task
    def take(path: Path, model: Model, more: list[Model]) -> None:
        seen.append((path, model.name, [one.name for one in more]))

    message = take.message(Path("/a/b"), Model("ann"), [Model("bob")])
    assert message.data["args"] == ["/a/b", {"name": "ann"}, [{"name": "bob"}]]
    assert (take.name, take.queue) == ("take", "default")
    app.send(message)
    server.drain(app)
    assert seen == [(Path("/a/b"), "ann", ["bob"])]
    arguments = Arguments("take", take.function)
    for wrong in (["/a", {"name": 5}, []], [5, {"name": "x"}, []]):
        with pytest.raises(BadPayload):
            arguments.decode(read_call({"task": "take", "args": wrong}))
