"""A server in memory, spoken to in HTTP, under a clock that moves only when told.

Owns: sending one request, and reading what has come so far of a reply or a stream. Must not know:
what replies should say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.testing.core import Exchange, MemoryCore
from logqueue.testing.virtual import VirtualTime

JSON = [(b"content-type", b"application/json")]


class Memory:
    """A server and everybody who talks to it.

    Attributes:
        clock_ahead_ms: How far the server's wall clock is ahead of the time that passes.
        turns: How often the passing time has set the server going.
    """

    def __init__(self) -> None:
        self.clock_ahead_ms = 0
        self.turns = 0
        self.time = VirtualTime()
        self.core = MemoryCore(self.time, 0)
        self._let_the_clock_jump()

    def _let_the_clock_jump(self) -> None:
        clock = self.core._clock
        present, fire = clock.now_ms, self.core.fire

        def count() -> None:
            self.turns += 1
            fire()

        vars(clock)["now_ms"] = lambda: present() + self.clock_ahead_ms
        vars(self.core)["fire"] = count

    def close(self) -> None:
        """End it."""
        self.core.close()

    @property
    def dispatcher(self) -> Dispatcher:
        """The server's dispatcher, between two requests."""
        return self.core._dispatcher

    def wait(self, seconds: float) -> float:
        """Let time pass; what time it is then."""
        self.time.move_to(self.time.now() + seconds)
        return self.time.now()

    def begin(self, method: str, path: str, body: object = None) -> Exchange:
        """Send a request and do not wait for its reply."""
        where, _, query = path.partition("?")
        exchange = Exchange(method, f"/v0/{where}".encode(), query.encode(), JSON)
        self.core.submit(exchange, b"" if body is None else msgspec.json.encode(body))
        return exchange

    def begin_together(self, *wanted: tuple[str, str, object]) -> list[Exchange]:
        """Send requests, each over a connection of its own, that the server reads in one turn of
        its loop."""
        begun: list[Callable[[], object]] = []
        run = self.core._run
        vars(self.core)["_run"] = begun.append
        try:
            exchanges = [self.begin(*one) for one in wanted]
        finally:
            del vars(self.core)["_run"]
        run(lambda: [begin() for begin in begun])
        return exchanges

    def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """The reply to a request that is answered at once and not refused."""
        exchange = self.begin(method, path, body)
        content = exchange.take()
        assert exchange.status in (200, 201), (exchange.status, content)
        answer: dict[str, Any] = msgspec.json.decode(content)
        return answer

    def queue(self, name: str = "q", **config: Any) -> dict[str, Any]:
        """Create or configure a queue."""
        return self.call("PUT", f"topics/{name}", {"type": "queue", **config})

    def append(self, *data: object, topic: str = "q", **options: Any) -> dict[str, Any]:
        """Write records."""
        records = [{"data": item, **options} for item in data]
        return self.call("POST", f"topics/{topic}", {"records": records})

    def claim(self, node: str = "w", topic: str = "q", **options: Any) -> Exchange:
        """Claim, perhaps waiting."""
        return self.begin("POST", f"topics/{topic}/claim", {"node": node, **options})

    def take(self, node: str = "w", topic: str = "q", **options: Any) -> list[dict[str, Any]]:
        """The jobs of a claim that is answered at once."""
        return claimed(self.claim(node, topic, **options))

    def settle(self, verb: str, *seqs: int, node: str = "w", **options: Any) -> dict[str, Any]:
        """Ack, nack, reject or extend jobs of the queue."""
        return self.call("POST", f"topics/q/{verb}", {"node": node, "seqs": seqs, **options})

    def work(self, node: str = "w", jobs_max: int = 1, topic: str = "q") -> Exchange:
        """Open a work stream."""
        stream = self.begin("GET", f"topics/{topic}/work?node={node}&max={jobs_max}")
        assert stream.status == 200
        return stream

    def state(self, topic: str = "q") -> dict[str, Any]:
        """The counters of a queue."""
        found: dict[str, Any] = self.call("GET", f"topics/{topic}")["queue"]
        return found


def claimed(exchange: Exchange) -> list[dict[str, Any]]:
    """The jobs of a claim that has been answered."""
    assert exchange.is_over and exchange.status == 200
    found: list[dict[str, Any]] = msgspec.json.decode(exchange.take())["claimed"]
    return found


def pushed(stream: Exchange) -> list[dict[str, Any]]:
    """The jobs that a stream has brought since the last look."""
    return [
        msgspec.json.decode(line.removeprefix(b"data: "))
        for block in stream.take().split(b"\n\n")
        if b"event: job" in block
        for line in block.split(b"\n")
        if line.startswith(b"data: ")
    ]


def seqs(jobs: list[dict[str, Any]]) -> list[int]:
    """Their seqs."""
    return [job["$seq"] for job in jobs]
