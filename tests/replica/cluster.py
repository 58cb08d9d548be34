"""Equal servers that share one replica as real processes, and a client that remembers.

Owns: who runs, who writes, and what the client was promised. Must not know: what goes wrong when.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.http.process import ServerProcess

AUTO_PROMOTE_S = 3
DEADLINE_S = 60.0
FENCED = 6


class Cluster:
    """Servers by name, each of which may become the writer."""

    def __init__(
        self, folder: Path, url: str, names: Sequence[str], settings: Mapping[str, str]
    ) -> None:
        self._flags = [
            "--standby", "--auto-promote", f"{AUTO_PROMOTE_S}s", "--standby-poll-ms", "50",
            "--discard-local",
        ]  # fmt: skip
        self.servers = {
            name: ServerProcess(
                folder / name,
                settings={"REPLICA": url, **settings},
                flags=self._flags if number else [],
            )
            for number, name in enumerate(names)
        }
        self._last = names[-1]
        self.http = httpx.Client(timeout=5.0, trust_env=False)

    def __enter__(self) -> Self:
        """Start all of them; the first one as the writer, so that the others need not wait."""
        for server in self.servers.values():
            server.start()
            server.flags = self._flags
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all of them."""
        for name, server in self.servers.items():
            if error is not None:
                print(f"== {name}\n{server.log()}")
            server.stop()
        self.http.close()

    def status(self, name: str) -> dict[str, Any]:
        """What a server says of the replica; {} while it does not answer."""
        server = self.servers[name]
        if not server.running:
            return {}
        try:
            reply = self.http.get(f"{server.base_url}/v0/replica", timeout=1.0)
            ready = self.http.get(f"{server.base_url}/v0/ready", timeout=1.0)
        except httpx.HTTPError:
            return {}
        status: dict[str, Any] = reply.json()
        status["ready"] = ready.json().get("status", "") if ready.status_code == 200 else ""
        return status

    def await_role(self, role: str, *but: str) -> str:
        """Wait until a server other than some has a role; its name."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            for name in self.servers:
                status = self.status(name) if name not in but else {}
                if status.get("role") == role and status["ready"]:
                    return name
            if role == "standby":
                assert self.servers[self._last].running, f"{self._last} has ended"
            time.sleep(0.02)
        raise AssertionError(f"no {role} in {DEADLINE_S} s")

    # -- what goes wrong -------------------------------------------------------------------------

    def kill(self, name: str, *, force: bool = False) -> None:
        """SIGKILL; it comes back once another server has taken over, by itself or by force."""
        self.servers[name].kill()
        self._take_over(name, force=force)
        self.come_back(name)

    def _take_over(self, name: str, *, force: bool) -> None:
        if force:
            successor = self.await_role("standby", name)
            reply = self.http.post(
                f"{self.servers[successor].base_url}/v0/replica/promote",
                json={"force": True},
                timeout=DEADLINE_S,
            )
            assert reply.status_code == 200, reply.text
        self.await_role("writer", name)

    def freeze(self, name: str, *, force: bool = False) -> None:
        """SIGSTOP for longer than the heartbeat: another one takes over, and this one ends."""
        server = self.servers[name]
        server.send_signal(signal.SIGSTOP)
        try:
            self._take_over(name, force=force)
        finally:
            server.send_signal(signal.SIGCONT)
        assert server.wait(DEADLINE_S) == FENCED
        self.come_back(name)

    def hand_over(self, name: str) -> float:
        """By plan; how long it took, in seconds."""
        successor = self.await_role("standby", name)
        for _ in range(100):
            began = time.monotonic()
            reply = self.http.post(
                f"{self.servers[successor].base_url}/v0/replica/promote", timeout=DEADLINE_S
            )
            took_s = time.monotonic() - began
            if "the replica is away" not in reply.text:
                break
            # Nothing has changed. The writer has not noticed yet that its store is back.
            time.sleep(0.05)
        assert reply.status_code == 200, reply.text
        assert self.servers[name].wait() == 0
        assert self.status(successor)["role"] == "writer"
        self.come_back(name)
        return took_s

    def come_back(self, name: str) -> None:
        """Start it again on its directory: it follows."""
        self._last = name
        self.servers[name].spawn()
        self.servers[name].wait_bound()
        self.await_role("standby", *(other for other in self.servers if other != name))


class Rememberer:
    """Appends jobs, claims and acks them, and knows what it was told."""

    def __init__(self, cluster: Cluster, queue: str = "q") -> None:
        self.cluster = cluster
        self.queue = queue
        self.stored: dict[int, int] = {}
        self.unsure: set[int] = set()
        self.done: set[int] = set()
        self.maybe_done: set[int] = set()
        self.problems: list[str] = []
        self._next = 1
        self._writer = ""
        self._http = httpx.Client(timeout=3.0, trust_env=False)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        """Begin."""
        name = self.cluster.await_role("writer")
        self._writer = self.cluster.servers[name].base_url
        reply = self._http.put(
            f"{self._writer}/v0/topics/{self.queue}", json={"type": "queue", "durable": True}
        )
        assert reply.status_code in (200, 201), reply.text
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """End."""
        self._stop.set()
        self._thread.join()
        self._http.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._append()
                self._work()
            except (httpx.HTTPError, KeyError, ValueError):
                self._look_for_writer()
            time.sleep(0.002)

    def _look_for_writer(self) -> None:
        for server in self.cluster.servers.values():
            try:
                status = self._http.get(f"{server.base_url}/v0/replica", timeout=0.5).json()
                if status["role"] == "writer":
                    self._writer = server.base_url
                    return
            except (httpx.HTTPError, KeyError, ValueError):
                continue

    def _call(self, action: str, body: dict[str, Any]) -> dict[str, Any]:
        path = f"{self._writer}/v0/topics/{self.queue}{action}"
        reply = self._http.post(path, json=body)
        if reply.status_code != 200:
            raise ValueError(reply.text)
        answer: dict[str, Any] = reply.json()
        return answer

    def _append(self) -> None:
        number, self._next = self._next, self._next + 1
        self.unsure.add(number)
        reply = self._call("", {"records": [{"data": number}]})
        seq = reply["first_seq"]
        if seq in self.stored:
            self.problems.append(f"seq {seq} is {self.stored[seq]} and {number}")
        self.stored[seq] = number
        self.unsure.discard(number)

    def _work(self) -> None:
        claimed = self._call("/claim", {"node": "n", "max": 3, "lease_ms": 2000})["claimed"]
        for job in claimed:
            if job["data"] in self.done:
                self.problems.append(f"job {job['data']} came again after its ack")
        if claimed and self._next % 3:
            self.maybe_done |= {job["data"] for job in claimed}
            acked = self._call("/ack", {"node": "n", "seqs": [job["$seq"] for job in claimed]})
            if acked["acked"] == len(claimed):
                self.done |= {job["data"] for job in claimed}

    def check(self) -> None:
        """Compare with what is there. After the end."""
        name = self.cluster.await_role("writer")
        base = self.cluster.servers[name].base_url
        left: dict[int, int] = {}
        from_seq = 0
        while True:
            page = httpx.post(
                f"{base}/v0/topics/{self.queue}/diff",
                json={"from_seq": from_seq, "limit": 1000},
                trust_env=False,
            ).json()
            for record in page["records"]:
                left[record["$seq"]] = record["data"]
            from_seq = page["next_from_seq"]
            if page["caught_up"]:
                break
        assert not self.problems, self.problems
        assert len(set(left.values())) == len(left), "a job is there twice"
        stored = set(self.stored.values())
        assert stored, "nothing was stored"
        lost = stored - self.maybe_done - set(left.values())
        assert not lost, f"jobs that were stored are gone: {sorted(lost)[:20]}"
        back = self.done & set(left.values())
        assert not back, f"jobs that were acked are back: {sorted(back)[:20]}"
        unknown = set(left.values()) - stored - self.unsure
        assert not unknown, f"jobs of which nothing is known: {sorted(unknown)[:20]}"
        for seq, number in self.stored.items():
            assert left.get(seq, number) == number, f"seq {seq} is another job"
