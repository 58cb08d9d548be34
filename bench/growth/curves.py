"""The measurements of growth: more waiting jobs, more topics, more connections, more readers.

Owns: what is measured at each size, and where a curve stops. Costs are processor time of the server
process, which suffers less from a busy machine than delays do.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import uvloop

from bench.appends import append_script
from bench.load import (
    LoadFailed,
    LoneConnection,
    Script,
    ack_request,
    append_request,
    claim_request,
    connect,
    decode_claimed,
    expect_acked,
    expect_count,
    fill,
    job,
    queue_request,
    read_reply,
)
from bench.loops import Tally, steady
from bench.machine import cpu_s, rss_bytes
from bench.peers.ours import Logqueue
from bench.peers.works import RECORDS_PER_S, Size, watch_latency
from bench.rows import Reading
from bench.session import Session
from bench.spread import make_topics
from logqueue.demo.server import DemoServer

TOPIC = "bench.growth"
BATCH = 100
CONNECTIONS = 8
ROUNDS = 40
SPARE_FILES = 200
FILL_S_MAX = 240.0
DELIVERIES_PER_S = 10_000
"""More readers get fewer records, so that what is measured is no queue before a busy server."""


@dataclass
class Line:
    """One cost over one size.

    Attributes:
        expected: The exponent that the design promises at most: 0 for the same cost at any size.
    """

    name: str
    unit: str
    expected: float
    points: list[tuple[float, float]] = field(default_factory=list)


@dataclass
class Growth:
    """Several costs over one size.

    Attributes:
        stopped: Why it ends before the largest size that was asked for; empty where it does not.
    """

    title: str
    across: str
    lines: list[Line]
    stopped: str = ""

    def add(self, session: Session, size: int, *costs: float) -> None:
        """One size is measured."""
        for line, cost in zip(self.lines, costs, strict=True):
            line.points.append((size, cost))
        said = ", ".join(
            f"{line.name} {cost:.4g} {line.unit}"
            for line, cost in zip(self.lines, costs, strict=True)
        )
        session.tell(f"  {size:,}: {said}")


Measure = Callable[[Session, list[int], float], Growth]


def backlog(session: Session, sizes: list[int], memory_gb_max: float) -> Growth:
    """Requests, memory and restarts while so many jobs wait."""
    costs = [Line(f"{name} of {BATCH}", "µs", 0) for name in ("append", "claim", "ack")]
    memory, ready = Line("memory", "MiB", 1), Line("ready after kill -9", "s", 1)
    growth = Growth("Waiting jobs", "jobs", [*costs, memory, ready])
    for size in sizes:
        began = time.monotonic()
        with session.server() as server:
            empty = rss_bytes(server.pid)
            _call(server, queue_request(TOPIC))
            uvloop.run(fill(server.address, TOPIC, size, BATCH, CONNECTIONS))
            requests_us = _requests(server)
            used = max(rss_bytes(server.pid) - empty, 1)
            server.kill()
            growth.add(session, size, *requests_us, used / 2**20, server.start(FILL_S_MAX))
        took = time.monotonic() - began
        if size == sizes[-1]:
            break
        factor = sizes[sizes.index(size) + 1] / size
        if used * factor > memory_gb_max * 2**30:
            growth.stopped = f"more than {size:,} would take over {memory_gb_max:g} GB of memory"
        elif took * factor > FILL_S_MAX:
            growth.stopped = f"more than {size:,} would take over {FILL_S_MAX:.0f} s"
        if growth.stopped:
            break
    return growth


def _requests(server: DemoServer) -> list[float]:
    """Processor time of an append, a claim and an ack, which leave the backlog as it was."""
    spent = [0.0, 0.0, 0.0]
    connection = LoneConnection(server.address)
    append = append_request(TOPIC, [job(n) for n in range(BATCH)])
    claim = claim_request(TOPIC, "w", BATCH)
    try:
        for number in range(ROUNDS + 1):
            marks = [cpu_s(server.pid)]
            expect_count(connection.call(append)[1], BATCH)
            marks.append(cpu_s(server.pid))
            leases = decode_claimed(connection.call(claim)[1]).claimed
            marks.append(cpu_s(server.pid))
            expect_acked(connection.call(ack_request(TOPIC, "w", leases))[1], BATCH)
            marks.append(cpu_s(server.pid))
            if number:  # the first round warms up
                for place in range(3):
                    spent[place] += (marks[place + 1] - marks[place]) * 1e6 / ROUNDS
    finally:
        connection.close()
    return spent


def topics(session: Session, sizes: list[int], memory_gb_max: float) -> Growth:
    """Appends spread over so many topics, and the memory of these."""
    cost, memory = Line("append", "µs", 0), Line("memory", "MiB", 1)
    growth = Growth("Topics", "topics", [cost, memory])

    async def run(server: DemoServer, size: int) -> tuple[Reading, int]:
        made = await connect(server.address, CONNECTIONS)
        empty = rss_bytes(server.pid)
        names = [f"bench.{number}" for number in range(size)]
        await make_topics(made, names)
        used = max(rss_bytes(server.pid) - empty, 4096)
        tally, line = Tally(), cycle(names)

        def append() -> Script:
            for name in line:
                expect_count((yield append_request(name, [job(0)]), read_reply), 1)
                tally.add(1)
                if tally.stopped:
                    return

        reading = await steady(server, session, tally, [one.run(append()) for one in made])
        for one in made:
            one.close()
        return reading, used

    for size in sizes:
        with session.server() as server:
            reading, used = uvloop.run(run(server, size))
        growth.add(session, size, reading.cpu_us, used / 2**20)
        if used * 10 > memory_gb_max * 2**30:
            growth.stopped = f"more than {size:,} would take over {memory_gb_max:g} GB of memory"
            break
    return growth


def connections(session: Session, sizes: list[int], memory_gb_max: float) -> Growth:
    """Appends of one record over so many connections at once."""
    cost = Line("append", "µs", 0)
    growth = Growth("Connections", "connections", [cost])

    async def run(server: DemoServer, size: int) -> Reading:
        made = await connect(server.address, size)
        await made[0].call(queue_request(TOPIC))
        tally, bodies = Tally(), [append_request(TOPIC, [job(0)])]
        loops = [one.run(append_script(bodies, 1, tally)) for one in made]
        reading = await steady(server, session, tally, loops)
        for one in made:
            one.close()
        return reading

    files = open_files_max()
    for size in sizes:
        if size + SPARE_FILES > files:
            growth.stopped = f"more than {files:,} open files are not allowed here (ulimit -n)"
            break
        with session.server() as server:
            growth.add(session, size, uvloop.run(run(server, size)).cpu_us)
    return growth


def readers(session: Session, sizes: list[int], memory_gb_max: float) -> Growth:
    """Records to so many watchers, at a steady rate."""
    cost, delay = Line("delivery", "µs", 0), Line("append to delivery, p50", "ms", 1)
    growth = Growth("Readers of one topic", "watchers", [cost, delay])
    window = Size(session.scale.warmup_s, session.scale.seconds)
    for size in sizes:
        with _peer(session.place()) as server:
            measured = uvloop.run(_watched(server, size, window))
        growth.add(session, size, measured[0], measured[1])
    return growth


async def _watched(server: Logqueue, watchers: int, window: Size) -> tuple[float, float]:
    (calls,) = await server.connect(1)
    await server.prepare(calls, TOPIC, follows=True)
    calls.close()
    records_per_s = min(RECORDS_PER_S, DELIVERIES_PER_S / watchers)
    measured = await watch_latency(watchers, records_per_s)(server, TOPIC, window)
    return measured.cpu_us, measured.value


@contextmanager
def _peer(place: Path) -> Iterator[Logqueue]:
    server = Logqueue(place)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def open_files_max() -> int:
    """Raise the limit of open files as far as it goes, for servers started later too."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _call(server: DemoServer, content: bytes) -> None:
    connection = LoneConnection(server.address)
    try:
        connection.call(content)
    finally:
        connection.close()


def sizes_to(largest: int, smallest: int = 1) -> list[int]:
    """Powers of ten, and the largest size itself."""
    if largest < smallest:
        raise LoadFailed(f"the largest size must be at least {smallest:,}, not {largest:,}")
    sizes = []
    size = smallest
    while size < largest:
        sizes.append(size)
        size *= 10
    return [*sizes, largest]
