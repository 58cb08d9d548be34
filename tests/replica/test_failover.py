"""Real servers that take over from each other, and what their client was promised."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Self

import httpx
import pytest

from tests.effort import scaled
from tests.replica.cluster import Cluster, Rememberer
from tests.replica.s3_servers import BUCKET, GATEWAY, Gateway, gateway_server

SYNC = {"REPLICA_MODE": "sync", "REPLICA_TIMEOUT_MS": "2000"}
FAILOVERS = scaled(3, 32)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway | None]:
    """A real S3 server, when there is one."""
    if not os.environ.get(GATEWAY):
        yield None
        return
    with gateway_server(tmp_path_factory.mktemp("failover")) as server:
        yield server


def place(tmp_path: Path, gateway: Gateway | None) -> tuple[str, dict[str, str]]:
    """Where the replica of a test is, and what servers need to reach it."""
    if gateway is None:
        return (tmp_path / "replica").as_uri(), {}
    return f"s3://{BUCKET}/{tmp_path.name}", gateway.s3.environment()


class Watching:
    """Follows a topic until its stream ends.

    Attributes:
        lines: What came.
    """

    def __init__(self, base: str, topic: str) -> None:
        self.lines: list[str] = []
        session = httpx.post(
            f"{base}/v0/watch", json={"topics": {topic: {"from_seq": 0}}}, trust_env=False
        ).json()
        self._url = base + session["stream_url"]
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        """Open the stream, and wait for its first event."""
        self._thread.start()
        assert self._has_begun.wait(60.0)
        return self

    def __exit__(self, *exc: object) -> None:
        """Wait for its end."""
        self._thread.join()

    def _run(self) -> None:
        with httpx.stream("GET", self._url, timeout=60.0, trust_env=False) as reply:
            for line in reply.iter_lines():
                self.lines.append(line)
                if line.startswith("event: record"):
                    self._has_begun.set()


def test_nothing_that_was_promised_is_lost(
    tmp_path: Path, gateway: Gateway | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kills, servers that sleep longer than their heartbeat, takeovers by plan; of a real store
    also restarts."""
    url, environment = place(tmp_path, gateway)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    rng = Random(7)
    kinds = ["kill", "freeze", "hand_over"]
    with Cluster(tmp_path, url, ("a", "b"), SYNC) as cluster:
        with Rememberer(cluster) as client:
            for number in range(FAILOVERS):
                writer = cluster.await_role("writer")
                kind = kinds[number] if number < len(kinds) else rng.choice(kinds)
                if gateway is not None and number % 4 == 3:
                    gateway.kill()
                    gateway.start()
                # By itself it takes some seconds.
                force = number == 1 or number % 3 == 2
                if kind == "kill":
                    cluster.kill(writer, force=force)
                elif kind == "freeze":
                    cluster.freeze(writer, force=force)
                else:
                    standby = cluster.servers[cluster.await_role("standby", writer)]
                    with Watching(standby.base_url, "q") as watching:
                        cluster.hand_over(writer)
                    assert "event: record" in watching.lines
                    assert '"not_ready"' in watching.lines[-2]
        client.check()


def test_a_planned_takeover_loses_nothing_that_no_replica_has(tmp_path: Path) -> None:
    """In async mode, with a lag of an hour."""
    url = (tmp_path / "replica").as_uri()
    with Cluster(tmp_path, url, ("a", "b"), {"REPLICA_LAG_MS": "3600000"}) as cluster:
        with Rememberer(cluster) as client:
            writer = cluster.await_role("writer")
            standby = cluster.await_role("standby", writer)
            base = cluster.servers[standby].base_url
            refusal = httpx.post(f"{base}/v0/topics/q/claim", json={"node": "n"}, trust_env=False)
            assert refusal.status_code == 503
            assert refusal.json()["error"]["code"] == "not_writer"
            named = refusal.json()["error"]["detail"]["writer"]
            assert named == cluster.servers[writer].base_url
            read = httpx.get(f"{base}/v0/topics", trust_env=False)
            assert read.status_code == 200
            assert int(read.headers["logqueue-behind-ms"]) >= 0
            cluster.hand_over(writer)
        client.check()


@pytest.mark.slow
def test_of_two_standbys_one_takes_over(tmp_path: Path) -> None:
    """The other one follows the new writer."""
    url = (tmp_path / "replica").as_uri()
    with Cluster(tmp_path, url, ("a", "b", "c"), SYNC) as cluster:
        with Rememberer(cluster) as client:
            for _ in range(3):
                writer = cluster.await_role("writer")
                cluster.kill(writer)
                roles = sorted(cluster.status(name).get("role", "") for name in cluster.servers)
                assert roles == ["standby", "standby", "writer"]
        client.check()
