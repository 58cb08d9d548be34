"""The real server, killed at random moments under load, held to what it told its clients.

`make test-all` kills it more often.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random
from typing import Any

import httpx

from tests.crash.clients import Client, Poller, Producer, Site, Streamer
from tests.crash.history import History
from tests.effort import scaled
from tests.http.process import ServerProcess

SEED = int(os.environ.get("LOGQUEUE_TEST_SEED", "9"))
KILLS = scaled(6, 60)
LIFE_S = (0.05, 0.6)
LEASE_MS = 1500
MAX_DELIVERIES = 3

QUEUES: dict[str, dict[str, Any]] = {
    "fsync": {"durability": "fsync"},
    "disk": {"durability": "disk"},
    "held": {
        "durability": "fsync",
        "leases_durable": True,
        "max_deliveries": MAX_DELIVERIES,
        "dead_letter": "letters",
    },
}


def crew(site: Site, histories: dict[str, History]) -> list[Client]:
    """For each queue two producers, two pollers and a work stream."""
    return [
        kind(site, history, f"{kind.__name__}-{name}-{i}-{SEED}")
        for name, history in histories.items()
        for kind, count in ((Producer, 1), (Poller, 2), (Streamer, 1))
        for i in range(count)
    ]


def put(url: str, name: str, config: dict[str, Any]) -> None:
    reply = httpx.put(
        f"{url}/v0/topics/{name}", json=config, timeout=60, trust_env=False, verify=False
    )
    assert reply.status_code in (200, 201), reply.text


def rest(url: str, name: str) -> list[str]:
    """Data of all live records of a topic."""
    found: list[str] = []
    with httpx.Client(base_url=url, timeout=60, trust_env=False, verify=False) as http:
        while True:
            body = {"node": "drain", "max": 1000, "lease_ms": 600_000}
            reply = http.post(f"/v0/topics/{name}/claim", json=body)
            jobs = reply.json()["claimed"]
            found += [job["data"] for job in jobs]
            count = http.get(f"/v0/topics/{name}").json()["count"]
            if len(found) >= count:
                assert len(found) == count, f"{name}: {count} live, {len(found)} claimed"
                return found
            if not jobs:
                # Others' leases and delays have to run out; that is the server's clock, not ours.
                time.sleep(0.05)


def test_kill_minus_nine(tmp_path: Path) -> None:
    rng = Random(SEED)
    print(f"LOGQUEUE_TEST_SEED={SEED}")
    server = ServerProcess(tmp_path / "data").start()
    site = Site(server)
    histories = {
        name: History(
            name,
            lease_ms=LEASE_MS,
            durable_acks=name != "disk",
            durable_leases="leases_durable" in config,
        )
        for name, config in QUEUES.items()
    }
    put(server.base_url, "letters", {"type": "queue", "durability": "fsync"})
    for name, config in QUEUES.items():
        put(server.base_url, name, {"type": "queue", "lease_ms": LEASE_MS, **config})
    clients = crew(site, histories)
    try:
        for client in clients:
            client.start()
        for _ in range(KILLS):
            time.sleep(rng.uniform(*LIFE_S))
            server.kill()
            site.life += 1
            server.start()
            failed = [c for c in clients if c.failure is not None]
            assert not failed, f"{failed[0].name}: {failed[0].failure!r}"
        time.sleep(0.5)
        site.over.set()
        # Streams wait for a line; the end of the server ends them.
        server.terminate()
        for client in clients:
            client.join(20)
            assert not client.is_alive(), client.name
            assert client.failure is None, f"{client.name}: {client.failure!r}"
        server.start()
        left = {name: rest(server.base_url, name) for name in histories}
        # Last, since draining a queue sends those that were delivered too often there.
        dead = rest(server.base_url, "letters")
        assert len(set(dead)) == len(dead), "a dead letter is there twice"
        for name, history in histories.items():
            assert len(set(left[name])) == len(left[name]), f"{name}: a job is there twice"
            history.account(set(left[name]), set(dead) if name == "held" else set())
            assert history.promised and history.acked
            print(
                f"{name}: {len(history.sent)} sent, {len(history.acked)} acked,"
                f" {len(left[name])} left, most deliveries {max(history.delivered.values())}"
            )
    finally:
        site.over.set()
        server.stop()
