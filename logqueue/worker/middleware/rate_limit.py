"""No more runs per second than a third party allows.

Owns: the bucket of tokens. Must not know: other worker processes: the limit is one process's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from logqueue.worker.job import Job
from logqueue.worker.middleware import Handle, Middleware


class RateLimit(Middleware):
    """Lets `per_second` runs begin each second, and up to `burst` at once after a quiet time.

    A job that has to wait keeps its slot and its lease. For a limit over all workers, set
    `claim_rate` on the queue instead.
    """

    def __init__(
        self, per_second: float, burst: int = 1, *, queues: Iterable[str] | None = None
    ) -> None:
        """Limit these queues together; all by default.

        Raises:
            ValueError: `per_second` is not above 0, or `burst` below 1.
        """
        if per_second <= 0 or burst < 1:
            raise ValueError("per_second must be above 0, burst at least 1")
        self._interval_s = 1.0 / per_second
        self._burst_s = self._interval_s * (burst - 1)
        self._queues = None if queues is None else frozenset(queues)
        self._next = float("-inf")

    async def handle(self, job: Job, call_next: Handle) -> None:
        """See Middleware."""
        if self._queues is None or job.queue in self._queues:
            await self._turn()
        await call_next(job)

    async def _turn(self) -> None:
        """Reserve the next free moment, and sleep until then.

        `_next` is when the bucket would be full again for one more: behind now by the burst it
        allows, ahead of it by what is reserved.
        """
        now = asyncio.get_running_loop().time()
        self._next = max(self._next, now - self._burst_s) + self._interval_s
        wait_s = self._next - self._interval_s - now
        if wait_s > 0:
            await asyncio.sleep(wait_s)
