"""Producers and workers that go on over the deaths of their server, and write down what they see.

Owns: the threads and their HTTP calls. Must not know: when the server dies.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from random import Random
from typing import Any

import httpx

from tests.crash.history import Held, History
from tests.http.process import ServerProcess

PAUSE_S = 0.01
"""Between two tries at a server that is gone."""


class Site:
    """Where the server is now.

    Attributes:
        life: How often it was started.
        over: Set when clients should stop.
    """

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.life = 0
        self.over = threading.Event()

    @property
    def url(self) -> str:
        """The queue routes of the present life."""
        return f"{self.server.base_url}/v0/topics/"


class Client(threading.Thread):
    """One client. Its `turn` is repeated until the site closes; what it raises is kept."""

    def __init__(self, site: Site, history: History, seed: str) -> None:
        super().__init__(name=seed, daemon=True)
        self.site = site
        self.history = history
        self.rng = Random(seed)
        self.failure: BaseException | None = None
        self.http = httpx.Client(timeout=60.0, trust_env=False, verify=False)

    def run(self) -> None:
        """See Thread."""
        try:
            while not self.site.over.is_set():
                try:
                    self.turn()
                except httpx.TransportError:
                    self.site.over.wait(PAUSE_S)
        except BaseException as failure:
            self.failure = failure
        finally:
            self.http.close()

    def turn(self) -> None:
        """One round of calls."""
        raise NotImplementedError

    def post(self, path: str, body: object) -> Any:
        """A call; None when the server is not serving."""
        reply = self.http.post(self.site.url + path, json=body)
        if reply.status_code == 503:
            self.site.over.wait(PAUSE_S)
            return None
        assert reply.status_code in (200, 201), (path, reply.status_code, reply.text)
        return reply.json()

    def ack(self, jobs: list[Held]) -> None:
        """Complete jobs."""
        names = [job.job for job in jobs]
        self.history.settling(names)
        body = {"node": self.name, "seqs": [j.seq for j in jobs]}
        body["lease_ids"] = [j.lease for j in jobs]
        reply = self.post(f"{self.history.queue}/ack", body)
        if reply is not None:
            skipped = set(reply["skipped"])
            self.history.settled([job.job for job in jobs if job.seq not in skipped])

    def note(self, life: int, entry: dict[str, Any]) -> Held:
        """A delivered job, written down."""
        held = Held(
            life,
            entry["$seq"],
            entry["data"],
            entry["lease_id"],
            entry["deadline"],
            entry["deliveries"],
        )
        self.history.got(held)
        return held


class Producer(Client):
    """Appends batches, repeating each with its key until it is answered."""

    count = 0

    def turn(self) -> None:
        """See Client."""
        self.count += 1
        jobs = [f"{self.name}-{self.count}-{i}" for i in range(self.rng.randrange(1, 6))]
        body = {
            "records": [{"data": job} for job in jobs],
            "idempotency_key": f"{self.name}-{self.count}",
            "create": False,
        }
        self.history.trying(jobs)
        while not self.site.over.is_set():
            try:
                reply = self.post(self.history.queue, body)
            except httpx.TransportError:
                self.site.over.wait(PAUSE_S)
                continue
            if reply is not None:
                assert reply["count"] == len(jobs)
                self.history.appended(jobs, reply["first_seq"])
                self.site.over.wait(self.rng.random() * 0.01)
                return


class Poller(Client):
    """Claims, then acks most, gives some back and forgets some."""

    def turn(self) -> None:
        """See Client."""
        life = self.site.life
        body = {"node": self.name, "max": self.rng.randrange(1, 9)}
        reply = self.post(f"{self.history.queue}/claim", body)
        if not reply or life != self.site.life:
            return
        jobs = [self.note(life, entry) for entry in reply["claimed"]]
        if not jobs:
            self.site.over.wait(PAUSE_S)
            return
        choice = self.rng.random()
        if choice < 0.8:
            self.ack(jobs)
        elif choice < 0.95:
            self.history.gave_back([job.lease for job in jobs])
            delay = self.rng.choice((0, 50))
            nack = {"node": self.name, "seqs": [j.seq for j in jobs], "delay_ms": delay}
            self.post(f"{self.history.queue}/nack", nack)


class Streamer(Client):
    """Takes jobs from a work stream and acks each."""

    def turn(self) -> None:
        """See Client."""
        life = self.site.life
        url = f"{self.site.url}{self.history.queue}/work?node={self.name}&max=4"
        with self.http.stream("GET", url) as stream:
            if stream.status_code != 200 or life != self.site.life:
                self.site.over.wait(PAUSE_S)
                return
            mine: list[str] = []
            # Kept here: the connection closes when the iterator goes, and from then on others may
            # hold these jobs.
            lines = stream.iter_lines()
            try:
                self.take(life, lines, mine)
            finally:
                self.history.gave_back(mine)

    def take(self, life: int, lines: Iterator[str], mine: list[str]) -> None:
        """Take and ack jobs until one of the two has enough."""
        for line in lines:
            if self.site.over.is_set() or (mine and self.rng.random() < 0.02):
                return
            if line.startswith("data:") and '"$seq"' in line:
                held = self.note(life, json.loads(line[5:]))
                mine.append(held.lease)
                if self.rng.random() < 0.9:
                    self.ack([held])
