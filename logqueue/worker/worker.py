"""A worker: everything that consumes an app's queues, from its start to its orderly end.

Owns: the parts of one worker and the order in which they stop. Must not know: signals, processes,
which loop it runs on: it takes the one it is started in, and ends nothing but itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import Any

from logqueue.errors import LogqueueError
from logqueue.worker.app import App
from logqueue.worker.calls import Renewals, WorkerCalls
from logqueue.worker.consuming import Consuming, Counts
from logqueue.worker.declaring import ScheduleDeclaring
from logqueue.worker.health import QueueVitals, Vitals, WorkerHealth
from logqueue.worker.leases import LeaseKeeper
from logqueue.worker.running import ABANDONED_MAX, Running
from logqueue.worker.settling import Settler
from logqueue.worker.slots import Slots
from logqueue.worker.sources import JobSource, Kind

CONCURRENCY = 10
GRACE_S = 25.0
LEASE_S = 30.0
MAX_LEASE_S = 43_200.0
FLUSH_S = 5.0
"""How long settles may take at the end, when the server does not answer."""

RETIRE_S = 2.0
"""How long a stopping worker waits for the server to stop its streams."""

KEEPER_TIMEOUT_S_MAX = 10.0

OUTCOMES = ("acked", "nacked", "rejected", "handed_back", "lost")

logger = logging.getLogger("logqueue.worker")


class Worker:
    """Consumes the queues of an app. One run per object.

    Attributes:
        node: The name under which it holds leases.
        counts: What it did so far.
    """

    def __init__(
        self,
        app: App,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int = CONCURRENCY,
        prefetch: int = 0,
        source: Kind = "sse",
        once: bool = False,
        grace: float = GRACE_S,
        lease: float = LEASE_S,
        max_lease: float = MAX_LEASE_S,
        node: str | None = None,
        seed: int | None = None,
        metrics_port: int | None = None,
        metrics_host: str = "127.0.0.1",
    ) -> None:
        """Nothing is connected yet.

        Args:
            app: What to work for.
            queues: Which of its queues; all by default.
            concurrency: Handlers at once per queue, for handlers that name no number themselves.
            prefetch: Jobs per queue that may be leased beyond those that run. They wait here with
                their leases kept, where no other worker can have them.
            source: `sse` has jobs pushed and falls back to claims; `poll` only claims.
            once: End when nothing is left to claim.
            grace: Seconds that running handlers have at the end.
            lease: Seconds of each lease; renewed when a third has passed.
            max_lease: Maximum lease time of a job in seconds, renewals included.
            node: Name of this worker; one of its own by default. Give it no name that another
                worker has.
            seed: For the jitter; by chance by default.
            metrics_port: Where `/metrics` and `/live` answer, or the next free port; 0 for any,
                None for no port.
            metrics_host: The address to bind to.

        Raises:
            ValueError: A queue has no handler, or a bound is violated.
        """
        known = app.handlers.queues()
        self.queues = list(queues) if queues is not None else known
        missing = [queue for queue in self.queues if queue not in known]
        if missing or not self.queues:
            raise ValueError(
                f"no handler for {', '.join(missing) or 'any queue'}; "
                f"the app has: {', '.join(known) or 'none'}"
            )
        if concurrency < 1 or prefetch < 0:
            raise ValueError("concurrency must be at least 1, prefetch at least 0")
        if not 0.1 <= lease <= 86_400 or max_lease < lease or grace < 0:
            raise ValueError(
                "lease is 0.1 to 86400 seconds, max_lease no shorter, grace not negative"
            )
        if metrics_port is not None and not 0 <= metrics_port <= 65_535:
            raise ValueError(f"metrics_port is {metrics_port}; ports go from 0 to 65535")
        self.node = node or f"{socket.gethostname()[:80]}-{os.getpid()}-{secrets.token_hex(3)}"
        self.counts = Counts(failed=set() if once else None)
        self._app = app
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._kind: Kind = "poll" if once else source
        self._once = once
        self._grace_s = grace
        self._lease_s = lease
        self._max_lease_s = max_lease
        self._chance = Random(seed)
        self._metrics_at = None if metrics_port is None else (metrics_host, metrics_port)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()

    # -- control ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """Begin to stop; called again, cut the grace short. From any thread or signal handler."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ask_to_stop)
        else:
            self._stopping.set()

    def _ask_to_stop(self) -> None:
        if self._stopping.is_set():
            self._hurrying.set()
        self._stopping.set()

    async def run(self) -> Counts:
        """Work until stopped, or until there is nothing left where `once` was asked for.

        When cancelled it stops without grace: settles are sent, the rest is handed back.

        Returns:
            What it did.

        Raises:
            Unauthorized, Forbidden: The key does not do.
            NotAQueue: One of the queues is a log.
        """
        self._loop = asyncio.get_running_loop()
        surroundings = self._app.surroundings
        keeper_timeout_s = min(self._lease_s / 3, KEEPER_TIMEOUT_S_MAX)
        async with AsyncExitStack() as stack:
            renewing = surroundings.keeper(self.node, keeper_timeout_s)
            stack.callback(renewing.close)
            client = surroundings.worker(self.node)
            stack.push_async_callback(client.close)
            keeper = LeaseKeeper(
                Renewals(renewing, self.node).extend, surroundings.now, self._max_lease_s
            )
            stack.callback(surroundings.start(keeper))
            running = Running()
            stack.callback(running.close)
            state: Mapping[str, Any] = {}
            if self._app.lifespan is not None:
                made = await stack.enter_async_context(self._app.lifespan(self._app))
                state = made if made is not None else {}
            calls = WorkerCalls(client, self.node, surroundings.now)
            parts = _WorkerRun(self, calls, keeper, running, state)
            if self._metrics_at is not None:
                health = WorkerHealth(parts.vitals, surroundings.now)
                stack.callback(health.serve(*self._metrics_at))
                ticking = asyncio.ensure_future(health.tick())
                stack.callback(ticking.cancel)
            await parts.to_the_end()
        logger.info("worker %s stopped: %s", self.node, self.counts)
        return self.counts


class _WorkerRun:
    """The moving parts of one run."""

    def __init__(
        self,
        worker: Worker,
        calls: WorkerCalls,
        keeper: LeaseKeeper,
        running: Running,
        state: Mapping[str, Any],
    ) -> None:
        self._worker = worker
        self._calls = calls
        self._running = running
        self._settler = Settler(calls.settle, calls.is_gone, keeper, worker._chance)
        self._consumings: list[Consuming] = []
        self._sources: list[JobSource] = []
        app = worker._app
        for queue in worker.queues:
            slots = Slots(app.handlers.of_queue(queue), worker._concurrency, worker._prefetch)
            consuming = Consuming(
                queue,
                handlers=app.handlers,
                slots=slots,
                layers=app.middleware,
                calls=calls,
                keeper=keeper,
                settler=self._settler,
                running=running,
                counts=worker.counts,
                chance=worker._chance,
                follow_ups=app.follow_ups,
            )
            consuming.state = state
            self._consumings.append(consuming)
            self._sources.append(
                JobSource(
                    consuming,
                    calls=calls,
                    keeper=keeper,
                    kind=worker._kind,
                    lease_s=worker._lease_s,
                    now=app.surroundings.now,
                    chance=worker._chance,
                )
            )

    def vitals(self) -> Vitals:
        """How the worker is. From any thread."""
        counts = self._worker.counts
        queues = [
            QueueVitals(consuming.queue, consuming.slots.taken, source.failing_s)
            for consuming, source in zip(self._consumings, self._sources, strict=True)
        ]
        jobs = {name: getattr(counts, name) for name in OUTCOMES}
        return Vitals(jobs, queues, self._running.abandoned, ABANDONED_MAX)

    async def to_the_end(self) -> None:
        """Run until stopped or out of work; then stop in order."""
        await self._ensure_queues()
        worker = self._worker
        declaring = await self._declare_schedules()
        logger.info("worker %s consumes %s", worker.node, ", ".join(worker.queues))
        stopping = asyncio.ensure_future(worker._stopping.wait())
        feeding: list[asyncio.Task[None]] = []
        try:
            is_dry = False
            while not is_dry:
                settled = worker.counts.total
                feeding = [
                    asyncio.ensure_future(source.run_once() if worker._once else source.run())
                    for source in self._sources
                ]
                is_over = await self._until_over(feeding, stopping)
                # Jobs of one queue may have written jobs to another that was empty by then.
                is_dry = is_over or not worker._once or worker.counts.total == settled
            await self._wind_down()
        except asyncio.CancelledError:
            await self._cut_short()
            raise
        finally:
            tasks: list[asyncio.Future[Any]] = [*feeding, stopping, *declaring]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._settler.abandon()
        for fed in feeding:
            if not fed.cancelled():
                fed.result()

    async def _ensure_queues(self) -> None:
        app = self._worker._app
        for queue in self._worker.queues:
            try:
                found = await self._calls.ensure_queue(queue, app.config_of(queue))
            except LogqueueError as error:
                # Its source waits for it.
                logger.info("queue %s could not be checked or created: %s", queue, error)
                continue
            if found.created:
                logger.info("queue %s is created", queue)
            for drift in app.drift_of(queue, found):
                logger.warning(
                    "queue %s: %s; nothing was changed: use `logqueue configure %s`, or change the "
                    "app",
                    queue,
                    drift,
                    queue,
                )

    async def _declare_schedules(self) -> list[asyncio.Task[None]]:
        """Declare them; the task that tries again, if anything is left."""
        worker = self._worker
        schedules = worker._app.schedules.values()
        declaring = ScheduleDeclaring(
            self._calls, [one for one in schedules if one.queue in worker.queues]
        )
        if await declaring.try_once() or worker._once:
            return []
        return [asyncio.create_task(declaring.until_done(), name="schedules")]

    @staticmethod
    async def _until_over(
        feeding: Sequence[asyncio.Future[None]], stopping: asyncio.Future[Any]
    ) -> bool:
        """Wait for a stop request, for the first source that fails, or the last that ends.

        Returns:
            Whether it was a stop or a failure.
        """
        pending = set(feeding)
        while pending and not stopping.done():
            done, _ = await asyncio.wait({*pending, stopping}, return_when=asyncio.FIRST_COMPLETED)
            pending -= done
            if any(task in done and task.exception() is not None for task in feeding):
                return True
        return stopping.done()

    async def _wind_down(self) -> None:
        """Settles leave first, then what never began; then what runs has its grace."""
        self._take_no_more()
        await self._settler.flush(FLUSH_S)
        await self._claims_ended()
        await self._streams_retired()
        for consuming in self._consumings:
            consuming.hand_back_unstarted()
            consuming.ask_to_stop()
        self._settler.hurry()
        await self._grace()
        await self._cut_short()

    def _take_no_more(self) -> None:
        for source, consuming in zip(self._sources, self._consumings, strict=True):
            source.stop()
            consuming.is_refusing = True

    async def _claims_ended(self) -> None:
        """Or else what is handed back would come straight back to a claim that waits here."""
        await asyncio.gather(*(source.claims_ended() for source in self._sources))

    async def _streams_retired(self) -> None:
        """Or else every job that is handed back makes room for another one to be pushed."""
        asked = [
            asyncio.ensure_future(self._calls.take_no_more(queue)) for queue in self._worker.queues
        ]
        if asked:
            await asyncio.wait(asked, timeout=RETIRE_S)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    async def _grace(self) -> None:
        worker = self._worker
        empty = asyncio.gather(*(consuming.slots.until_empty() for consuming in self._consumings))
        hurrying = asyncio.ensure_future(worker._hurrying.wait())
        try:
            await asyncio.wait(
                (empty, hurrying), timeout=worker._grace_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            empty.cancel()
            hurrying.cancel()
            await asyncio.gather(empty, hurrying, return_exceptions=True)

    async def _cut_short(self) -> None:
        """Cancel what still runs, hand it back, and see the last settles out."""
        self._take_no_more()
        await self._claims_ended()
        await asyncio.gather(*(consuming.cancel_rest() for consuming in self._consumings))
        is_flushed = await self._settler.flush(FLUSH_S)
        if is_flushed:
            await asyncio.gather(*(consuming.errands_done() for consuming in self._consumings))
        else:
            logger.warning("the server does not answer: some jobs return when leases expire")
