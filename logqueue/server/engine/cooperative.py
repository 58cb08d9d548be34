"""Long work in small steps, beside the event loop.

Owns: the one thread that reads whole segments and writes archives, and how much of the processor it
may take from those who answer requests. Must not know: what a step does.

A step is what happens between two yields of a generator. All of them are made in one thread, so
what is only touched in steps needs no locks. Between two turns of a few steps the thread
rests for as long as the turn kept the processor.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")

TURN_S = 0.002
PATIENCE_MAX_S = 0.05


class CooperativeExecutor(Protocol):
    """Makes steps."""

    async def run(self, steps: Generator[None, None, T]) -> T:
        """Make all steps; returns what the generator returns."""
        ...

    async def call(self, work: Callable[[], T]) -> T:
        """Do something that blocks on the disk for a short time; several may do so at once."""
        ...


class _Made(NamedTuple):
    """What became of one turn."""

    took_s: float
    is_over: bool
    result: Any = None


class SteppingThread:
    """The real one."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logqueue-steps")

    async def run(self, steps: Generator[None, None, T]) -> T:
        """See Stepping."""
        loop = asyncio.get_running_loop()
        while True:
            made = await loop.run_in_executor(self._thread, _make, steps)
            if made.is_over:
                result: T = made.result
                return result
            # One interpreter serves this thread and all requests: they get at least half of it.
            await asyncio.sleep(min(made.took_s, PATIENCE_MAX_S))

    async def call(self, work: Callable[[], T]) -> T:
        """See Stepping."""
        return await asyncio.get_running_loop().run_in_executor(None, work)

    def close(self) -> None:
        """Let the step that is being made end, and make no more."""
        self._thread.shutdown(cancel_futures=True)


class InlineExecutor:
    """Makes them where it is called: where the disk is simulated, and no request waits."""

    async def run(self, steps: Generator[None, None, T]) -> T:
        """See Stepping."""
        while True:
            made = _make(steps)
            if made.is_over:
                result: T = made.result
                return result

    async def call(self, work: Callable[[], T]) -> T:
        """See Stepping."""
        return work()


def _make(steps: Generator[None, None, Any]) -> _Made:
    """Make as many steps as fit in a turn, one at least."""
    began, busy = time.perf_counter(), time.thread_time()
    while time.perf_counter() - began < TURN_S:
        try:
            next(steps)
        except StopIteration as end:
            return _Made(0.0, True, end.value)
    # Waiting for the disk blocks no other work.
    return _Made(time.thread_time() - busy, False)
