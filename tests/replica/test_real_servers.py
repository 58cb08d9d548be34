"""Real processes over a directory as object store: machines that are lost, zombies, refusals."""

from __future__ import annotations

import shutil
import signal
import socket
import threading
from pathlib import Path
from random import Random

import httpx
import pytest

from logqueue.server.serve import reachable_url
from tests.effort import EFFORT
from tests.http.process import ServerProcess, run_to_end

EXIT_FENCED = 6
EXIT_REPLICA = 7


def server_of(tmp_path: Path, name: str, **settings: str) -> ServerProcess:
    """A server on a directory of its own, with the one replica."""
    given = {"REPLICA": f"file://{tmp_path}/replica", "REPLICA_MODE": "sync", **settings}
    return ServerProcess(tmp_path / name, settings=given)


def client_of(server: ServerProcess, timeout: float = 30.0) -> httpx.Client:
    """A plain client."""
    return httpx.Client(base_url=server.base_url, timeout=timeout, trust_env=False, verify=False)


def make_topic(client: httpx.Client, name: str = "a", **config: object) -> None:
    """A topic whose promises are kept by the replica."""
    made = client.put(f"/v0/topics/{name}", json={"durability": "fsync", **config})
    assert made.status_code in (200, 201), made.text


def write(client: httpx.Client, value: object, topic: str = "a") -> int:
    """Append a record; the status of the reply."""
    return client.post(f"/v0/topics/{topic}", json={"records": [{"data": value}]}).status_code


def records(client: httpx.Client, topic: str = "a") -> list[object]:
    """What a topic holds."""
    page = client.post(f"/v0/topics/{topic}/diff", json={"limit": 1000}).json()
    return [record["data"] for record in page["records"]]


class Writers:
    """Threads that append until the server is gone, and note what was acked."""

    def __init__(self, server: ServerProcess, first: int, count: int = 4) -> None:
        self.acked: list[int] = []
        self._url = server.base_url
        self._next = iter(range(first, first + 10**9))
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=30, trust_env=False, verify=False) as client:
            while True:
                with self._lock:
                    value = next(self._next)
                try:
                    if write(client, value) == 200:
                        self.acked.append(value)
                except httpx.TransportError:
                    return

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def test_timings_and_metrics_show_the_replica(tmp_path: Path) -> None:
    server = server_of(tmp_path, "data").start()
    try:
        with client_of(server) as client:
            make_topic(client)
            body = {"records": [{"data": 1}]}
            written = client.post("/v0/topics/a", json=body).json()["performance"]
            assert written["replica_ms"] > 0
            total = written["wal_append_ms"] + written["fsync_ms"] + written["replica_ms"]
            assert total <= written["server_total_ms"]
            text = client.get("/v0/metrics").text
        figures = dict(
            line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("logqueue_replica")
        )
        assert figures['logqueue_replica_state{state="current"}'] == "1.0"
        assert figures["logqueue_replica_epoch"] == "1.0"
        assert float(figures["logqueue_replica_puts_total"]) >= 2
        assert figures["logqueue_replica_lag_frames"] == "0.0"
        assert figures["logqueue_replica_failures_total"] == "0.0"
    finally:
        server.stop()


def test_nothing_that_was_acked_is_lost_with_the_disk(tmp_path: Path) -> None:
    """A diskless server: killed at any moment, its directory gone."""
    server = server_of(tmp_path, "data").start()
    rng = Random(5)
    acked: list[int] = []
    try:
        with client_of(server) as client:
            make_topic(client)
        for life in range(2 * EFFORT):
            writers = Writers(server, life * 10**6)
            wanted = rng.randrange(5, 40)
            while len(writers.acked) < wanted:
                assert server.running, server.log()
            server.kill()
            writers.join()
            acked += writers.acked
            shutil.rmtree(server.data_dir)
            server.start()
            with client_of(server) as client:
                assert set(acked) <= set(records(client))
                assert client.get("/v0/replica").json()["epoch"] == life + 2
    finally:
        server.stop()


def test_a_stopped_writer_that_wakes_after_a_takeover(tmp_path: Path) -> None:
    old, new = server_of(tmp_path, "old").start(), server_of(tmp_path, "new")
    statuses: list[int] = []

    def ask() -> None:
        with client_of(old) as client:
            try:
                statuses.append(write(client, "of the zombie"))
            except httpx.TransportError:
                statuses.append(0)

    try:
        with client_of(old) as client:
            make_topic(client)
            assert write(client, 1) == 200
            old.send_signal(signal.SIGSTOP)
            new.start()
            with client_of(new) as other:
                assert records(other) == [1]
                assert write(other, 2) == 200
                asking = threading.Thread(target=ask)
                asking.start()
                old.send_signal(signal.SIGCONT)
                asking.join()
                assert statuses in ([503], [0])
                assert old.wait() == EXIT_FENCED
                assert records(other) == [1, 2]
        status, output = run_to_end(["--data-dir", str(old.data_dir), "--port", "0"], old.settings)
        assert status == EXIT_FENCED, output
        assert "is running; nothing was changed: start this one with --standby" in output
    finally:
        old.stop()
        new.stop()


def test_a_fenced_server_says_who_the_writer_is(tmp_path: Path) -> None:
    old = server_of(tmp_path, "old").start()
    new = server_of(tmp_path, "new", ADVERTISE="http://new.example:4000")
    try:
        new.start()
        seen: dict[str, object] = {}
        with client_of(old) as client:
            while True:
                try:
                    reply = client.get("/v0/topics")
                except httpx.TransportError:
                    break
                if reply.status_code == 503:
                    seen = reply.json()["error"]
        assert seen["code"] == "fenced"
        assert seen["detail"] == {"writer": "http://new.example:4000"}
        assert old.wait() == EXIT_FENCED
        assert "left as it is" in old.log()
    finally:
        old.stop()
        new.stop()


@pytest.mark.parametrize(
    ("url", "status", "says"),
    [
        ("file:///dev/null/replica", EXIT_REPLICA, "cannot be reached or used"),
        ("file://relative", 2, "file:///"),
        ("ftp://user:secret@host/x", 2, "use file:///PATH"),
    ],
)
def test_replicas_that_cannot_be_used(tmp_path: Path, url: str, status: int, says: str) -> None:
    found, output = run_to_end(
        ["--data-dir", str(tmp_path / "data"), "--port", "0"], {"REPLICA": url}
    )
    assert found == status, output
    assert says in output
    assert "secret" not in output


def test_an_orderly_stop_ships_everything(tmp_path: Path) -> None:
    server = server_of(tmp_path, "data", REPLICA_MODE="async", REPLICA_LAG_MS="3600000").start()
    try:
        with client_of(server) as client:
            make_topic(client)
            assert [write(client, value) for value in range(10)] == [200] * 10
            assert client.get("/v0/replica").json()["lag_frames"] > 0
            ready = client.get("/v0/ready").json()
            assert ready["replica"]["state"] == "current"
        assert server.terminate() == 0
        shutil.rmtree(server.data_dir)
        server.start()
        with client_of(server) as client:
            assert records(client) == [*range(10)]
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("host", "begins"), [("127.0.0.1", "http://127.0.0.1:"), ("0.0.0.0", ""), ("::", "")]
)
def test_the_address_of_all_interfaces_is_named_to_no_client(host: str, begins: str) -> None:
    """On the client's machine it is another server, for instance the standby that names it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as bound:
        bound.bind((host, 0))
        url = reachable_url(bound)
    assert url.startswith(begins)
    assert bool(url) == bool(begins)
