"""Records sent at a steady rate, whether or not the server keeps up: an open loop.

Owns: when a record is due, the time of sending in its payload, how late it was sent. Must not know:
how records travel, or who reads them.

A record's latency runs from the moment it was sent, which its payload says; how long it was due by
then is the lag of the load generator, a figure of its own. A producer that waits for each reply
would lag without bound as soon as a round trip takes longer than the time between two records, and
a reader would pay for that.
"""

from __future__ import annotations

import asyncio
import re
from array import array
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter, perf_counter_ns

from bench.load import JOB_BYTES, Connection, append_request, expect_count
from bench.machine import Spread

TICK_S = 0.001

_STAMPS = re.compile(rb'\{"\$seq":(\d+).*?"at":(\d+)')


def stamped() -> bytes:
    """The JSON of a payload of JOB_BYTES bytes that says when it was made."""
    start = b'{"at":%d,"type":"transcode","src":"s3://uploads/clip.mov","preset":"' % (
        perf_counter_ns()
    )
    return start + b"." * (JOB_BYTES - len(start) - 2) + b'"}'


class Arrivals:
    """What one reader saw: every record once, in order, and how long each was on its way.

    Attributes:
        seen: The last seq.
        latencies: Seconds from sending to arrival; readers may share the array.
    """

    def __init__(self, latencies: array[float], known: dict[bytes, list[tuple[int, int]]]) -> None:
        """A reader that has seen nothing.

        Args:
            latencies: Where to note latencies.
            known: What frames say, shared by readers that are likely to get the very same ones.
        """
        self.seen = 0
        self.latencies = latencies
        self._known = known

    def take(self, frames: bytes) -> str:
        """Note the records of some whole frames; returns what is wrong with them, or nothing."""
        records = self._known.get(frames)
        if records is None:
            if len(self._known) >= 1000:
                self._known.clear()
            records = [(int(seq), int(at)) for seq, at in _STAMPS.findall(frames)]
            self._known[frames] = records
        now = perf_counter_ns()
        for seq, at in records:
            if seq != self.seen + 1:
                return f"after record {self.seen} came {seq}"
            self.seen = seq
            self.latencies.append((now - at) / 1e9)
        return ""


class Lag:
    """How late records were sent."""

    def __init__(self) -> None:
        self.late_s: list[float] = []

    def note(self) -> str:
        """The lag in words."""
        spread = Spread.of(self.late_s)
        return f"sent late by p50 {spread.p50_ms:.2f}, p99 {spread.p99_ms:.2f} ms"


async def send_steadily(count: int, per_s: float, send: Callable[[float], object]) -> None:
    """Call `send` so often, at that rate on average, with the time at which each call was due."""
    began, done = perf_counter(), 0
    while done < count:
        due = min(int((perf_counter() - began) * per_s) + 1, count)
        while done < due:
            send(began + done / per_s)
            done += 1
        await asyncio.sleep(TICK_S)


class Producers:
    """Connections that append single records; each record takes the next one that is free."""

    def __init__(self, topic: str, connections: list[Connection]) -> None:
        self.lag = Lag()
        self._topic = topic
        self._connections = connections
        self._free = deque(connections)
        self._waiting: deque[float] = deque()
        self._failure: Exception | None = None

    def send(self, due: float) -> None:
        """Append a record that is due now, as soon as a connection is free."""
        self._waiting.append(due)
        if self._free:
            connection = self._free.popleft()
            connection.drive(self._next(), partial(self._sent, connection))

    def close(self) -> None:
        """Hang up.

        Raises:
            LoadFailed: A write was not taken.
        """
        for connection in self._connections:
            connection.close()
        if self._failure is not None:
            raise self._failure

    def _next(self) -> bytes:
        self.lag.late_s.append(perf_counter() - self._waiting.popleft())
        return append_request(self._topic, [stamped()])

    def _sent(self, connection: Connection, body: bytes) -> bytes | None:
        try:
            expect_count(body, 1)
        except Exception as failure:
            self._failure = failure
            raise
        if self._waiting:
            return self._next()
        self._free.append(connection)
        return None
