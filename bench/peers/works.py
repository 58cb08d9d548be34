"""The work that every peer does: appends, whole cycles, delivery to watchers.

Owns: the works, and how one of them is measured on a peer that runs. Must not know: any protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

import uvloop

from bench.load import GIVE_UP_S, Connection, LoadFailed, Script, all_of, job
from bench.loops import Tally
from bench.machine import Spread
from bench.peers.following import Follower
from bench.peers.peer import Peer

RECORDS_PER_S = 200
BATCH = 100
FIRST_S_MAX = 60.0
"""A first result may take longer than the window: some peers sync each of 800 jobs by itself."""


@dataclass(frozen=True)
class Size:
    """How long a work is measured."""

    warmup_s: float
    seconds: float


@dataclass(frozen=True)
class Measured:
    """One work on one peer.

    Attributes:
        value: In the unit of the work.
        cpu_us: Processor time of the server per record or job, in microseconds.
        load: Cores that the generator kept busy: near 1, and it is the limit.
    """

    value: float
    cpu_us: float
    load: float


@dataclass(frozen=True)
class Work:
    """One line of the table.

    Attributes:
        more_is_better: Rates, not delays.
        follows: It needs a log that watchers can follow.
    """

    name: str
    what: str
    unit: str
    more_is_better: bool
    follows: bool
    run: Callable[[Peer, str, Size], Coroutine[Any, Any, Measured]]


class Meter:
    """Processor time of both sides from now on."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._server_s = peer.cpu_s()
        self._load_s = process_time()
        self._began = perf_counter()

    def measured(self, units: int, value: float | None = None) -> Measured:
        """What it came to for so many records or jobs; their rate unless a value is given."""
        took = perf_counter() - self._began
        server_us = (self._peer.cpu_s() - self._server_s) * 1e6
        load = (process_time() - self._load_s) / took
        rate = units / took if value is None else value
        return Measured(rate, server_us / max(units, 1), load)


async def _steady(
    peer: Peer, connections: int, script: Callable[[Connection, Tally], Script], size: Size
) -> Measured:
    """What closed loops finish per second, once they are warm."""
    made, tally = await peer.connect(connections), Tally()
    loops = [one.run(script(one, tally)) for one in made]
    try:
        await _unless_failed(loops, size.warmup_s)
        meter, before = Meter(peer), tally.units
        until = perf_counter() + FIRST_S_MAX
        await _unless_failed(loops, size.seconds)
        while tally.units == before:
            if perf_counter() > until:
                raise LoadFailed(f"nothing was finished in {FIRST_S_MAX:.0f} s")
            await _unless_failed(loops, size.seconds)
        measured = meter.measured(tally.units - before)
        tally.stopped = True
        await all_of(loops)
    finally:
        for loop in loops:
            loop.cancel()
        for one in made:
            one.close()
    return measured


async def _unless_failed(loops: list[asyncio.Future[None]], seconds: float) -> None:
    ended, _ = await asyncio.wait(loops, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for one in ended:
        one.result()


def _append(connections: int, batch: int) -> Callable[[Peer, str, Size], Any]:
    async def run(peer: Peer, queue: str, size: Size) -> Measured:
        payloads = [job(n) for n in range(batch)]
        return await _steady(
            peer, connections, lambda one, tally: peer.append(one, queue, payloads, tally), size
        )

    return run


def _cycle(connections: int, batch: int) -> Callable[[Peer, str, Size], Any]:
    async def run(peer: Peer, queue: str, size: Size) -> Measured:
        seen = set[bytes]()
        payloads = [job(n) for n in range(batch)]
        return await _steady(
            peer,
            connections,
            lambda one, tally: peer.cycle(one, queue, payloads, tally, seen),
            size,
        )

    return run


def watch_latency(
    watchers: int, records_per_s: float = RECORDS_PER_S
) -> Callable[[Peer, str, Size], Coroutine[Any, Any, Measured]]:
    """Median milliseconds from an append until each watcher has the record, at a steady rate."""

    async def run(peer: Peer, queue: str, size: Size) -> Measured:
        records = max(int((size.seconds + size.warmup_s) * records_per_s), 20)
        warm = records // 5
        sent_at: list[float] = []
        took: list[float] = []

        def arrived(number: int, now: float) -> None:
            if number >= warm:
                took.append(now - sent_at[number])

        async with _Following(peer, queue, watchers, arrived) as following:
            (writer,) = await peer.connect(1)
            meter, began = Meter(peer), perf_counter()
            for number in range(records):
                await asyncio.sleep(max(began + number / records_per_s - perf_counter(), 0))
                sent_at.append(perf_counter())
                await writer.run(peer.append(writer, queue, [job(number)], Tally(1)))
            await following.seen(records)
            measured = meter.measured(records * watchers, Spread.of(took).p50_ms)
            writer.close()
        return measured

    return run


def _fanout(watchers: int) -> Callable[[Peer, str, Size], Any]:
    async def run(peer: Peer, queue: str, size: Size) -> Measured:
        async with _Following(peer, queue, watchers, lambda number, now: None) as following:
            (writer,) = await peer.connect(1)
            meter, began, records = Meter(peer), perf_counter(), 0
            while perf_counter() - began < size.seconds:
                payloads = [job(records + n) for n in range(BATCH)]
                await writer.run(peer.append(writer, queue, payloads, Tally(BATCH)))
                records += BATCH
            await following.seen(records)
            measured = meter.measured(records * watchers)
            writer.close()
        return measured

    return run


class _Following:
    """Watchers of a log, for as long as a work takes."""

    def __init__(
        self, peer: Peer, queue: str, watchers: int, arrived: Callable[[int, float], None]
    ) -> None:
        self._peer, self._queue = peer, queue
        self._followers = [Follower(arrived) for _ in range(watchers)]

    async def __aenter__(self) -> _Following:
        await self._peer.follow(self._queue, self._followers)
        return self

    async def __aexit__(self, *_error: object) -> None:
        for one in self._followers:
            one.close()

    async def seen(self, records: int) -> None:
        """Wait until every watcher has every record."""
        async with asyncio.timeout(GIVE_UP_S):
            while any(one.seen < records for one in self._followers):
                for one in self._followers:
                    if one.failure is not None:
                        raise one.failure
                await asyncio.sleep(0.002)


def _works() -> list[Work]:
    appends = [
        Work(
            f"append-1-c{n}",
            f"append, 1 per request, {n} connection{'s' * (n > 1)}",
            "records/s",
            True,
            False,
            _append(n, 1),
        )
        for n in (1, 8, 32, 128)
    ]
    return [
        *appends,
        Work(
            "append-100",
            "append, batches of 100, 8 connections",
            "records/s",
            True,
            False,
            _append(8, BATCH),
        ),
        Work(
            "cycle-1",
            "append, claim, ack one at a time, 32 connections",
            "jobs/s",
            True,
            False,
            _cycle(32, 1),
        ),
        Work(
            "cycle-100",
            "append, claim, ack in batches of 100, 8 connections",
            "jobs/s",
            True,
            False,
            _cycle(8, BATCH),
        ),
        Work("watch-1", "append to delivery, 1 watcher, p50", "ms", False, True, watch_latency(1)),
        Work(
            "watch-100",
            "append to delivery, 100 watchers, p50",
            "ms",
            False,
            True,
            watch_latency(100),
        ),
        Work("fanout-100", "deliveries to 100 watchers", "records/s", True, True, _fanout(100)),
    ]


WORKS = _works()


def measure(peer: Peer, work: Work, queue: str, size: Size) -> Measured:
    """One work on a queue, or a log, of its own."""

    async def run() -> Measured:
        (calls,) = await peer.connect(1)
        await peer.prepare(calls, queue, work.follows)
        calls.close()
        return await work.run(peer, queue, size)

    return uvloop.run(run())
