"""How many jobs one queue's worker may have, and which handler may run.

Owns: the counts. Must not know: jobs, sources.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from logqueue.worker.handlers import Handler


class Slots:
    """Capacity of one queue: handlers at once, and jobs that may wait here for one of them.

    Attributes:
        running_max: Handlers at once: the sum of what they ask for; those that ask for nothing
            share the worker's default.
        jobs_max: Jobs at once, prefetched ones included.
    """

    def __init__(self, handlers: Sequence[Handler], default: int, prefetch: int) -> None:
        named = [h.concurrency for h in handlers if h.concurrency is not None]
        shares_default = len(named) < len(handlers)
        self.running_max = sum(named) + (default if shares_default else 0)
        self.jobs_max = self.running_max + prefetch
        self._running = asyncio.Semaphore(self.running_max)
        self._of_handler = {
            h.name: asyncio.Semaphore(h.concurrency)
            for h in handlers
            if h.concurrency is not None and len(handlers) > 1
        }
        self._taken = 0
        self._freed = asyncio.Event()

    @property
    def free(self) -> int:
        """Jobs that may still be taken."""
        return max(self.jobs_max - self._taken, 0)

    @property
    def taken(self) -> int:
        """Jobs that are here."""
        return self._taken

    def take(self) -> None:
        """A job has come."""
        self._taken += 1

    def give_back(self) -> None:
        """A job has gone."""
        self._taken -= 1
        assert self._taken >= 0
        self._freed.set()

    async def until_free(self) -> int:
        """Wait until a job may be taken; returns how many."""
        while not self.free:
            await self._next_change()
        return self.free

    async def until_empty(self) -> None:
        """Wait until no job is here."""
        while self._taken:
            await self._next_change()

    async def _next_change(self) -> None:
        self._freed.clear()
        await self._freed.wait()

    def turn(self, handler: str) -> _Turn:
        """A context manager that waits until this handler may run."""
        own = self._of_handler.get(handler)
        return _Turn([self._running] if own is None else [own, self._running])


class _Turn:
    """Several semaphores as one."""

    def __init__(self, semaphores: list[asyncio.Semaphore]) -> None:
        self._semaphores = semaphores
        self._acquired: list[asyncio.Semaphore] = []

    async def __aenter__(self) -> None:
        try:
            for semaphore in self._semaphores:
                await semaphore.acquire()
                self._acquired.append(semaphore)
        except BaseException:
            self._release()
            raise

    async def __aexit__(self, *exc: object) -> None:
        self._release()

    def _release(self) -> None:
        for semaphore in self._acquired:
            semaphore.release()
        self._acquired.clear()
