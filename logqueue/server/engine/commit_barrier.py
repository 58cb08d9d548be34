"""Holds replies back until the log has reached what they were computed from.

Owns: who waits for which position of the jobs log. Must not know: commands, HTTP, frames, what
makes a position durable: the disk, or the disk and the replica.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from heapq import heappop, heappush

from logqueue.errors import LogqueueError, StorageReadOnly
from wal import Log, Progress

Release = Callable[[LogqueueError | None], None]

NEVER = 1 << 64
"""Behind every position of a log."""


class CommitBarrier:
    """Waiters by position; opened by the committer's advance, in the event loop.

    Attributes:
        wakes_soon: `wake_log` is sure to be called in this turn of the loop.
    """

    def __init__(
        self,
        log: Log,
        loop: asyncio.AbstractEventLoop,
        progress: Progress | None = None,
        waited_ms: Callable[[int], float] | None = None,
    ) -> None:
        """Nothing waits yet.

        Args:
            log: Is woken when something waits for it.
            loop: Where replies are released.
            progress: How far the log has come; that of the log itself by default.
            waited_ms: For how long a position that is durable only now has waited for the replica,
                in ms; None when nothing waits for one.
        """
        self._log = log
        self._progress = progress or log.progress
        self._waited_ms = waited_ms
        self._loop = loop
        self._written: list[tuple[int, int, Release]] = []
        self._durable: list[tuple[int, int, int, Release]] = []
        # What the heaps begin with, for the committer's thread, which must not look into them.
        self._next_written = self._next_durable = NEVER
        self._ticket = 0
        self._scheduled = False
        self.wakes_soon = False
        self._is_log_wanted = False
        self._opening = False
        # What is refused to those who wait for a position up to this one to be durable.
        self._refused_through = 0
        self._refusal: LogqueueError | None = None

    @property
    def waiting(self) -> int:
        """How many replies are held back now."""
        return len(self._written) + len(self._durable)

    @property
    def held_back(self) -> int:
        """How many replies were held back so far."""
        return self._ticket

    def notify(self) -> None:
        """Tell that the log has advanced or failed. Called from the committer's thread."""
        # A caller that changes the front of the heaps checks the log again after that, so a check
        # without a lock cannot lose a waiter.
        if self._scheduled or not self._may_open():
            return
        self._scheduled = True
        self._loop.call_soon_threadsafe(self._open)

    def _may_open(self) -> bool:
        log = self._progress
        reached = self._next_durable <= log.durable or self._next_written <= log.written
        return reached or log.failure is not None

    def reached(self, written: int, durable: int) -> bool:
        """Whether both positions are reached already."""
        log = self._progress
        return durable <= log.durable and written <= log.written

    def when(self, written: int, durable: int, release: Release, *, is_ahead: bool = False) -> None:
        """Call `release(None)` once both positions are reached, or with the failure.

        At once when they are reached already; otherwise from the event loop.

        Args:
            written, durable: Frame numbers.
            release: Called once.
            is_ahead: Whether it comes before others that are released together with it.
        """
        log = self._progress
        if written > log.written or durable > log.written:
            self._is_log_wanted = True
            if not self.wakes_soon:
                # Once per turn of the loop: everything that arrived in it rides one sync.
                self.wakes_soon = True
                self._loop.call_soon(self.wake_log)
        if durable <= log.durable and written <= log.written:
            if (self._written or self._durable) and not self._opening and self._may_open():
                self._open()  # who waited for it comes first: a stream has its jobs in order
            release(None)
            return
        if self._refusal is not None and self._is_refused(durable):
            release(self._refusal)
            return
        self._ticket += 1
        ticket = self._ticket - NEVER if is_ahead else self._ticket
        if durable > log.durable:
            heappush(self._durable, (durable, ticket, written, release))
            self._next_durable = self._durable[0][0]
        else:
            heappush(self._written, (written, ticket, release))
            self._next_written = self._written[0][0]
        if (durable <= log.durable and written <= log.written) or log.failure is not None:
            self._open()

    def replica_ms(self, durable: int) -> float | None:
        """For how long a position that was just reached has waited for the replica, after the disk
        had it, in ms; None when nothing waits for one."""
        return None if self._waited_ms is None else self._waited_ms(durable)

    async def wait(self, written: int, durable: int) -> float:
        """Wait for both positions; returns for how long, in ms.

        Raises:
            StorageReadOnly: The log has failed and will never get there.
        """
        if self.reached(written, durable):
            return 0.0
        future: asyncio.Future[None] = self._loop.create_future()

        def release(failure: LogqueueError | None) -> None:
            if future.done():
                return
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)

        began = time.perf_counter()
        self.when(written, durable, release)
        await future
        return (time.perf_counter() - began) * 1000

    def refuse_through(self, durable: int, refusal: LogqueueError) -> None:
        """Refuse everything that waits, or will wait, for a position up to this one to be durable.

        Args:
            durable: Frame number. `NEVER` refuses all that waits for anything, for ever.
            refusal: What they get.
        """
        self._refused_through, self._refusal = durable, refusal
        if durable == NEVER:
            self._release_all(refusal)
            return
        refused = []
        while self._durable and self._durable[0][0] <= durable:
            if self._durable[0][0] <= self._progress.durable:
                self._open()
                continue
            refused.append(heappop(self._durable)[3])
        self._next_durable = self._durable[0][0] if self._durable else NEVER
        for release in refused:
            release(refusal)

    def _is_refused(self, durable: int) -> bool:
        through = self._refused_through
        return through == NEVER or self._progress.durable < durable <= through

    def wake_log(self) -> None:
        """Let the log begin with what is waited for, if anything is."""
        self.wakes_soon = False
        if self._is_log_wanted:
            self._is_log_wanted = False
            self._log.wake()

    def _open(self) -> None:
        self._scheduled = False
        self._opening = True
        try:
            while self._written or self._durable:
                log = self._progress
                durable, written = log.durable, log.written
                while self._durable and self._durable[0][0] <= durable:
                    _, ticket, also_written, waiter = heappop(self._durable)
                    # A position that is synced says nothing of a later one that need only be
                    # written.
                    heappush(self._written, (also_written, ticket, waiter))
                while self._written and self._written[0][0] <= written:
                    heappop(self._written)[2](None)
                if log.failure is not None and (self._durable or self._written):
                    self._release_all(StorageReadOnly.because(log.failure))
                self._next_durable = self._durable[0][0] if self._durable else NEVER
                self._next_written = self._written[0][0] if self._written else NEVER
                # While a waiter is between the two heaps, `notify` sees it in neither.
                if not self._may_open():
                    return
        finally:
            self._opening = False

    def _release_all(self, failure: LogqueueError) -> None:
        waiting = [waiter for *_, waiter in self._durable]
        waiting += [waiter for *_, waiter in self._written]
        self._durable.clear()
        self._written.clear()
        for release in waiting:
            release(failure)
