"""Where a worker's jobs come from: a stream that pushes them, or claims that ask for them.

Owns: opening, failing over, reconnecting, and pausing between tries. Must not know: what is done
with a job once it is taken.

The stream is preferred, for it needs no call per job. When it cannot be kept open twice in a row,
claims take over for a while: something in between may not let streams pass.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from random import Random
from typing import Any, Literal, TypeVar

from logqueue import shapes
from logqueue.client import Unreachable
from logqueue.client.backoff import TAKEOVER_CAP_S
from logqueue.client.following import Interrupted
from logqueue.errors import (
    Forbidden,
    LogqueueError,
    NotAQueue,
    NotReady,
    NotWriter,
    ReplicaUnavailable,
    ShuttingDown,
    TopicNotFound,
    Unauthorized,
)
from logqueue.worker.calls import WorkerCalls
from logqueue.worker.consuming import Consuming
from logqueue.worker.leases import Lease, LeaseKeeper

Kind = Literal["sse", "poll"]

T = TypeVar("T")

PAUSE_S_MIN = 0.1
PAUSE_S_MAX = 5.0
HELD_BACK_S_MAX = 0.5
"""Longest pause between claims while the queue has jobs but delivers none."""

AWAY = (Unreachable, ShuttingDown, NotReady, NotWriter, ReplicaUnavailable)
"""Failures that say nothing about whether streams get through."""

HOLDING_BACK = ("paused", "rate_limited", "max_in_flight", "group_busy")

RATED = ("rate_limited", "group_busy")
RATE_WAIT_MS_MAX = 5000
"""How long a worker that ends with the work waits for what a rate allows next."""

STREAM_FAILURES_MAX = 2
CLAIMS_INSTEAD_S = 30.0
"""How long claims take over before a stream is tried again."""

STREAM_OPEN_S = 15.0
"""A stream that has not failed after so long is open: a connection and a reply take less."""

CLAIM_END_S = 0.5
"""How old a claim may get once the worker stops: its answer may be on the way."""

logger = logging.getLogger("logqueue.worker.source")


class JobSource:
    """Feeds one queue's consuming until stopped."""

    def __init__(
        self,
        consuming: Consuming,
        *,
        calls: WorkerCalls,
        keeper: LeaseKeeper,
        kind: Kind,
        lease_s: float,
        now: Callable[[], float],
        chance: Random,
    ) -> None:
        self._consuming = consuming
        self._queue = consuming.queue
        self._calls = calls
        self._keeper = keeper
        self._kind = kind
        self._lease_s = lease_s
        self._lease_ms = round(lease_s * 1000)
        self._now = now
        self._chance = chance
        self._failures = 0
        self._stream_failures = 0
        self._pushed: set[Lease] = set()
        self._failing_since: float | None = None
        self._stream_began: float | None = None
        self._stopping = asyncio.Event()
        self._not_claiming = asyncio.Event()
        self._not_claiming.set()

    @property
    def failing_s(self) -> float:
        """For how long every call for jobs has failed, in seconds. From any thread."""
        since, began = self._failing_since, self._stream_began
        now = self._now()
        # A stream that was refused would have ended by now.
        if since is None or (began is not None and now - began > STREAM_OPEN_S):
            return 0.0
        return now - since

    def stop(self) -> None:
        """Ask for no more jobs. What a stream still pushes is for the consuming to refuse."""
        self._stopping.set()

    async def claims_ended(self) -> None:
        """Wait, after `stop`, until no claim is under way that could be given a job."""
        await self._not_claiming.wait()

    async def run_once(self) -> None:
        """Claim until the queue has nothing more to give and everything taken is finished."""
        slots = self._consuming.slots
        while not self._stopping.is_set():
            claimed = await self._claim(wait=False)
            if claimed is None:
                return
            if claimed.jobs:
                continue
            wait_ms = claimed.retry_after_ms
            if slots.taken:
                await self._or_stop(slots.until_empty())
            elif claimed.reason in RATED and wait_ms is not None and wait_ms <= RATE_WAIT_MS_MAX:
                await self._pause(self._held_back_pause(claimed))
            else:
                return

    async def run(self) -> None:
        """Feed until `stop`. With a stream open, go on until cancelled.

        Raises:
            Unauthorized, Forbidden: The key does not do.
            NotAQueue: The topic is a log.
        """
        while not self._stopping.is_set():
            try:
                if self._kind == "sse" and self._stream_failures < STREAM_FAILURES_MAX:
                    await self._stream()
                else:
                    await self._claim_for(CLAIMS_INSTEAD_S if self._kind == "sse" else None)
                    self._failures = self._stream_failures = 0
            except (Unauthorized, Forbidden, NotAQueue):
                raise
            except LogqueueError as error:
                self._failures += 1
                if self._failing_since is None:
                    self._failing_since = self._now()
                # While the server is away, claims would get no further than streams do.
                self._stream_failures += not isinstance(error, AWAY)
                self._log(error)
                await self._pause(self._backoff(error))

    def _log(self, error: LogqueueError) -> None:
        if isinstance(error, TopicNotFound):
            logger.info("queue %s does not exist yet", self._queue)
        else:
            what = "connection lost" if isinstance(error, AWAY) else "cannot get jobs"
            logger.info("%s (queue %s), retrying: %s", what, self._queue, error)

    def _backoff(self, error: LogqueueError) -> float:
        longest = min(PAUSE_S_MIN * 2.0 ** min(self._failures, 16), PAUSE_S_MAX)
        if isinstance(error, NotWriter):
            longest = min(longest, TAKEOVER_CAP_S)
        return longest * (0.5 + self._chance.random() / 2) + (error.retry_after_s or 0)

    async def _pause(self, seconds: float) -> None:
        """Wait, unless stopped."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    async def _or_stop(self, work: Coroutine[Any, Any, T], least_s: float = 0.0) -> T | None:
        """Await something, for `least_s` seconds at least; None when stopped first."""
        ends = self._now() + least_s
        task = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and self._now() < ends:
                await asyncio.wait((task,), timeout=ends - self._now())
            return task.result() if task.done() else None
        finally:
            for pending in (task, stopping):
                pending.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)

    # -- push ------------------------------------------------------------------------------------

    async def _stream(self) -> None:
        """Take what one stream brings until it breaks."""
        pushed = self._calls.work(self._queue, self._consuming.slots.jobs_max, self._lease_ms)
        self._consuming.is_pushed = True
        self._stream_began = self._now()
        try:
            async with aclosing(pushed):
                async for item in pushed:
                    # It is open, so streams do pass.
                    self._failures = self._stream_failures = 0
                    self._failing_since = None
                    if isinstance(item, Interrupted):
                        continue
                    self._forget_ended()
                    self._pushed.add(self._consuming.take(item, self._now(), self._lease_s))
        finally:
            self._consuming.is_pushed = False
            if self._stream_began is not None and self._now() - self._stream_began > STREAM_OPEN_S:
                self._failing_since = None
            self._stream_began = None
            # A server that stayed takes back what came over a stream that ended. One that restarted
            # may still know the leases, and then counts them for the next stream. It is asked; what
            # runs continues until it has answered.
            self._forget_ended()
            self._keeper.check(self._pushed)

    def _forget_ended(self) -> None:
        self._pushed = {held for held in self._pushed if not (held.is_lost or held.is_settling)}

    # -- pull ------------------------------------------------------------------------------------

    async def _claim_for(self, seconds: float | None) -> None:
        """Claim whenever there is a free slot."""
        ends = None if seconds is None else self._now() + seconds
        while not self._stopping.is_set() and (ends is None or self._now() < ends):
            claimed = await self._claim(wait=True)
            if claimed is None:
                return
            self._failures = 0
            if claimed.reason in HOLDING_BACK:
                await self._pause(self._held_back_pause(claimed))

    async def _claim(self, *, wait: bool) -> shapes.Claimed | None:
        """Claim for the free slots, once there are any, and take them; None when stopped."""
        free = await self._or_stop(self._consuming.slots.until_free())
        if free is None:
            return None
        asked_at = self._now()
        self._not_claiming.clear()
        try:
            claimed = await self._or_stop(
                self._calls.claim(self._queue, free, self._lease_ms, wait=wait), CLAIM_END_S
            )
            if claimed is not None:
                self._failing_since = None
            for job in claimed.jobs if claimed is not None else ():
                self._consuming.take(job, asked_at, self._lease_s)
        finally:
            self._not_claiming.set()
        return claimed

    def _held_back_pause(self, claimed: shapes.Claimed) -> float:
        known_ms = claimed.retry_after_ms
        longest = HELD_BACK_S_MAX if known_ms is None else min(known_ms / 1000, HELD_BACK_S_MAX)
        return longest * (0.75 + self._chance.random() / 4)
