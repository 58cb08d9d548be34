"""Sums over all topics for everyone who asks for the state of the server.

Owns: when they are made again. Must not know: what they are used for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from logqueue.server.engine.engine import Engine
from logqueue.server.metrics import Totals
from logqueue.server.scrape import total_up

REST_FACTOR = 20
"""Sums that took a second are good for so many: all who ask cost 5 % of a core at most."""


class SharedTotals:
    """The latest sums: made once for all who ask at the same time, and again when they are old for
    what they cost. On a server with few topics they are of the moment."""

    def __init__(
        self,
        make: Callable[[Engine | None], Coroutine[Any, Any, Totals]] = total_up,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Nothing is summed yet.

        Args:
            make: Makes the sums.
            clock: Seconds.
        """
        self._make = make
        self._clock = clock
        self._lock = asyncio.Lock()
        self._found: tuple[Engine | None, Totals] | None = None
        self._good_until = 0.0

    async def of(self, engine: Engine | None) -> Totals:
        """The sums for an engine."""
        async with self._lock:
            found = self._found
            if found is not None and found[0] is engine and self._clock() < self._good_until:
                return found[1]
            began = self._clock()
            totals = await self._make(engine)
            now = self._clock()
            self._found = engine, totals
            self._good_until = now + REST_FACTOR * (now - began)
            return totals
