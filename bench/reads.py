"""How fast records are read back: whole pages, and looks at the head.

Owns: the rows diff-1000 and diff-head.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

import uvloop

from bench.load import LoadFailed, all_of, connect, fill, queue_request, request
from bench.rows import Row, Target
from bench.session import CpuWatch, Session
from logqueue.demo.server import DemoServer

TOPIC = "bench.read"
PAGE = 1000
PER_REQUEST = 100


def diff_1000(session: Session) -> list[Row]:
    """Whole pages over 4 connections, again and again over the same warm records."""
    row = Row(
        "diff-1000",
        f"diff, limit {PAGE}, warm, 4 connections",
        "records/s",
        Target(1_000_000, at_most=False),
    )
    records = session.scale.read_records
    for _ in range(session.scale.repeats):
        with session.server() as server:
            rate, note = uvloop.run(_pages(server, records, session))
        row.values.append(rate)
        row.notes.append(note)
        session.tell(f"  {row.name}: {rate:,.0f} {row.unit} ({note})")
    return [row]


def diff_head(session: Session) -> list[Row]:
    """Looks at the head, where there is nothing new, over 32 connections."""
    row = Row(
        "diff-head",
        "diff, limit 1 at head, 32 connections",
        "calls/s",
        Target(20_000, at_most=False),
    )
    for _ in range(session.scale.repeats):
        with session.server() as server:
            rate, note = uvloop.run(_head(server, session))
        row.values.append(rate)
        row.notes.append(note)
        session.tell(f"  {row.name}: {rate:,.0f} {row.unit} ({note})")
    return [row]


def diff_request(from_seq: int, limit: int) -> bytes:
    """Read up to `limit` records behind a cursor."""
    body = b'{"from_seq":%d,"limit":%d}' % (from_seq, limit)
    return request("POST", f"/v0/topics/{TOPIC}/diff", body)


class Reader:
    """One closed loop over the pages of the topic, from its start again and again."""

    def __init__(self, records: int) -> None:
        self.records = records
        self.read = 0
        self.stopped = False
        self._at = 0

    def first(self) -> bytes:
        """The first request."""
        return diff_request(0, PAGE)

    def step(self, body: bytes) -> bytes | None:
        """Count a page and ask for the next one."""
        expected = min(self._at + PAGE, self.records)
        if body.find(b'],"next_from_seq":%d,' % expected) < 0:
            raise LoadFailed(f"a page behind {self._at} ends with {body[-300:]!r}")
        if body.count(b'{"$seq":') != expected - self._at:
            raise LoadFailed(f"a page behind {self._at} has not all its records")
        self.read += expected - self._at
        self._at = expected % self.records
        return None if self.stopped else diff_request(self._at, PAGE)


async def _pages(server: DemoServer, records: int, session: Session) -> tuple[float, str]:
    made = await connect(server.address, 4)
    await made[0].call(queue_request(TOPIC))
    await fill(server.address, TOPIC, records, PER_REQUEST, 4)
    readers = [Reader(records) for _ in made]

    def stop() -> None:
        for reader in readers:
            reader.stopped = True

    loops = [
        one.drive(reader.first(), reader.step) for one, reader in zip(made, readers, strict=True)
    ]
    measured = await _measure(
        session, server, lambda: sum(reader.read for reader in readers), stop, loops
    )
    for one in made:
        one.close()
    return measured


async def _head(server: DemoServer, session: Session) -> tuple[float, str]:
    made = await connect(server.address, 32)
    await made[0].call(queue_request(TOPIC))
    await fill(server.address, TOPIC, 1000, PER_REQUEST, 1)
    content = diff_request(1000, 1)
    calls, stopped = 0, False

    def step(body: bytes) -> bytes | None:
        nonlocal calls
        if b'"records":[],"next_from_seq":1000,' not in body:
            raise LoadFailed(f"a look at the head was answered with {body[:200]!r}")
        calls += 1
        return None if stopped else content

    def stop() -> None:
        nonlocal stopped
        stopped = True

    loops = [one.drive(content, step) for one in made]
    measured = await _measure(session, server, lambda: calls, stop, loops)
    for one in made:
        one.close()
    return measured


async def _measure(
    session: Session,
    server: DemoServer,
    count: Callable[[], int],
    stop: Callable[[], None],
    loops: list[asyncio.Future[None]],
) -> tuple[float, str]:
    """Counts per second of loops that are under way, once they are warm."""
    await asyncio.sleep(session.scale.warmup_s)
    watch, before, began = CpuWatch(server), count(), perf_counter()
    await asyncio.sleep(session.scale.seconds)
    rate = (count() - before) / (perf_counter() - began)
    note = watch.note()
    stop()
    await all_of(loops)
    return rate, note
