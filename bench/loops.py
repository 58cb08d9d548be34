"""Closed loops under way: how much they finish per second, and what a request costs the server.

Owns: the window of a measurement, between warming up and the end. Must not know: what is asked.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

from bench.load import all_of
from bench.rows import Reading
from bench.session import CpuWatch, Session
from logqueue.demo.server import DemoServer


class Tally:
    """What all loops of a measurement have finished together.

    Attributes:
        units: What the row counts: records, jobs, calls.
        requests: Requests that were answered.
        stopped: Loops end with their next reply.
    """

    def __init__(self, units_max: int | None = None) -> None:
        """Loops end by themselves where a number of units is given."""
        self.units = 0
        self.requests = 0
        self.stopped = False
        self._units_max = units_max

    def add(self, units: int) -> None:
        """A request was answered that finished so many."""
        self.units += units
        self.requests += 1
        if self.units == self._units_max:
            self.stopped = True


async def steady(
    server: DemoServer, session: Session, tally: Tally, loops: list[asyncio.Future[None]]
) -> Reading:
    """Units per second of loops that are under way, once they are warm; then end them."""
    await asyncio.sleep(session.scale.warmup_s)
    watch, units, requests, began = CpuWatch(server), tally.units, tally.requests, perf_counter()
    await asyncio.sleep(session.scale.seconds)
    rate = (tally.units - units) / (perf_counter() - began)
    reading = Reading(rate, watch.us_per(tally.requests - requests), watch.note())
    tally.stopped = True
    await all_of(loops)
    return reading
