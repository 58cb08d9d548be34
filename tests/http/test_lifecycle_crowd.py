"""A crowd of waiting workers, streams and deserters on one queue: every job is done, none waits."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.effort import scaled
from tests.http import rawhttp
from tests.http.api import JSON, Api
from tests.http.conftest import ApiFor
from tests.http.expect import ok
from tests.http.process import ServerProcess

JOBS = scaled(200, 400)
WORKERS = 6
DESERTERS = 3
PATIENCE_S = 240.0
"""For a machine that is very busy."""


class Done:
    """The jobs that somebody acked, and whether that is all of them."""

    def __init__(self) -> None:
        self.data: list[Any] = []
        self.all = threading.Event()
        self._lock = threading.Lock()

    def add(self, data: Any) -> None:
        """One more."""
        with self._lock:
            self.data.append(data)
            if len(self.data) >= JOBS:
                self.all.set()


def work(api: Api, queue: str, node: str, done: Done, max_jobs: int) -> None:
    """Claim with patience and ack, until all is done. An empty answer means patience ended."""
    while not done.all.is_set():
        for job in api.claimed(queue, node, max=max_jobs, wait_ms=500, lease_ms=2000):
            if ok(api.ack(queue, [job["$seq"]], node, lease_ids=[job["lease_id"]]))["acked"]:
                done.add(job["data"])


def desert(api: Api, queue: str, done: Done, chance: random.Random) -> None:
    """Claim with patience and hang up at any moment."""
    body = b'{"node":"deserter","wait_ms":30000,"max":3,"lease_ms":200}'
    while not done.all.is_set():
        with rawhttp.Connection(api.address) as connection:
            connection.send(rawhttp.request("POST", f"/v0/topics/{queue}/claim", body, JSON))
            if done.all.wait(chance.random() * 0.01):
                return
            connection.reset()


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"claim_jitter_ms": 5},
        {"max_in_flight": 4},
        {"claim_rate": {"per_s": 1000, "burst": 5}},
        {"durability": "fsync"},
    ],
    ids=str,
)
def test_a_crowd(
    server: ServerProcess, api: Api, api_for: ApiFor, topic: str, config: dict[str, Any]
) -> None:
    """Each job is acked exactly once."""
    api.make_queue(topic, **config)
    done = Done()
    chance = random.Random(7)
    with ThreadPoolExecutor(WORKERS + DESERTERS) as pool:
        crowd = [
            pool.submit(work, api_for(server), topic, f"w{number}", done, 1 + number % 3)
            for number in range(WORKERS)
        ]
        crowd += [
            pool.submit(desert, api, topic, done, random.Random(number))
            for number in range(DESERTERS)
        ]
        written = 0
        while written < JOBS:
            count = min(chance.choice((1, 1, 2, 10)), JOBS - written)
            api.append(topic, *range(written, written + count))
            written += count
        finished = done.all.wait(PATIENCE_S)
        done.all.set()
        for member in crowd:
            member.result(PATIENCE_S)
    assert finished, (len(done.data), api.facts(topic, "ready", "in_flight", "delayed", "count"))
    assert sorted(done.data) == list(range(JOBS))
    assert api.facts(topic, "count", "acked") == (0, JOBS)
