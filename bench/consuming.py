"""How fast a Python worker does jobs that are no work, and how little it does while there are none.

Owns: the rows worker-noop, worker-idle-requests and worker-idle-pickup. The worker is a process of
its own (bench/noop_worker.py), with one task.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from bench.load import GIVE_UP_S, LoadFailed
from bench.machine import Spread
from bench.noop_worker import IDLE_QUEUE, NOOP_QUEUE, Outcome, noop, stamp
from bench.rows import Row, Target
from bench.session import CpuWatch, Session
from logqueue.client import Client
from logqueue.demo.server import DemoServer

POLL_S = 0.02
BETWEEN_S = 0.02


def worker_noop(session: Session) -> list[Row]:
    """Jobs per second of one process with an async task that does nothing."""
    row = Row(
        "worker-noop",
        "worker, no-op async task, one process, acks synced",
        "jobs/s",
        Target(8_000, at_most=False),
    )
    jobs = session.scale.worker_jobs
    for _ in range(session.scale.repeats):
        with session.server() as server, Client(f"http://{server.address}") as client:
            client.put_topic(NOOP_QUEUE, type="queue", durable=True)
            client.append(NOOP_QUEUE, (noop.message().record() for _ in range(jobs)))
            watch = CpuWatch(server)
            with _worker(server, NOOP_QUEUE, jobs) as worker:
                outcome = _outcome(worker)
            row.notes.append(watch.note().partition(",")[0])
            _require_empty(client, NOOP_QUEUE, jobs)
        row.values.append(jobs / outcome.seconds)
        session.tell(f"  {row.name}: {row.values[-1]:,.0f} {row.unit} ({row.notes[-1]})")
    return [row]


def worker_idle(session: Session) -> list[Row]:
    """What an idle worker costs, and how soon it takes up a job that comes."""
    requests = Row(
        "worker-idle-requests",
        "requests of an idle worker, its heartbeat aside",
        "requests/s",
        Target(0.0, at_most=True),
    )
    pickup = Row(
        "worker-idle-pickup",
        "idle worker: append to handler, p99",
        "ms",
        Target(15.0, at_most=True),
    )
    jobs = session.scale.idle_jobs
    for _ in range(session.scale.repeats):
        with session.server() as server, Client(f"http://{server.address}") as client:
            client.put_topic(IDLE_QUEUE, type="queue")
            with _worker(server, IDLE_QUEUE, jobs) as worker:
                _wait_for_stream(client)
                requests.values.append(_requests_per_s(client, session.scale.idle_s))
                for _ in range(jobs):
                    record = stamp.message(time.perf_counter_ns()).record()
                    client.append(IDLE_QUEUE, [record])
                    time.sleep(BETWEEN_S)
                outcome = _outcome(worker)
            _require_empty(client, IDLE_QUEUE, jobs)
        spread = Spread.of(outcome.waits_s)
        pickup.values.append(spread.p99_ms)
        pickup.notes.append(f"p50 {spread.p50_ms:.2f} ms")
        session.tell(
            f"  worker-idle: {requests.values[-1]:.2f} requests/s, pick-up p99 "
            f"{spread.p99_ms:.2f} ms ({pickup.notes[-1]})"
        )
    return [requests, pickup]


@contextmanager
def _worker(server: DemoServer, queue: str, jobs: int) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that ends after so many jobs."""
    command = [sys.executable, "-m", "bench.noop_worker", server.address, queue, str(jobs)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _outcome(worker: subprocess.Popen[bytes]) -> Outcome:
    """What the worker says at its end."""
    try:
        said, _ = worker.communicate(timeout=GIVE_UP_S)
    except subprocess.TimeoutExpired as late:
        raise LoadFailed(f"the worker is not done after {GIVE_UP_S:.0f} s") from late
    if worker.returncode:
        raise LoadFailed(f"the worker ended with status {worker.returncode}")
    return msgspec.json.decode(said, type=Outcome)


def _require_empty(client: Client, queue: str, jobs: int) -> None:
    state = client.topic(queue)
    if (state.count, state.head_seq) != (0, jobs):
        raise LoadFailed(f"{jobs} jobs done, {state.count} of {state.head_seq} are left")


def _wait_for_stream(client: Client) -> None:
    ends = time.monotonic() + GIVE_UP_S
    while _metric(client, "logqueue_sse_connections") < 1:
        if time.monotonic() > ends:
            raise LoadFailed("the worker opened no stream")
        time.sleep(POLL_S)


def _requests_per_s(client: Client, seconds: float) -> float:
    """Requests that the server got meanwhile, our own asking aside."""
    before, began = _metric(client, "logqueue_http_requests_total"), time.perf_counter()
    time.sleep(seconds)
    got = _metric(client, "logqueue_http_requests_total") - before - 1
    return got / (time.perf_counter() - began)


def _metric(client: Client, name: str) -> float:
    """The sum of a metric over all its labels."""
    values = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", client.metrics_text(), re.MULTILINE)
    return sum(map(float, values))
