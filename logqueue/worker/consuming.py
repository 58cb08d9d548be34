"""One queue of one worker: jobs come in, are run, and are settled.

Owns: the life of a job in this process, from its lease to its settle. Must not know: where jobs
come from, when the worker stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from logqueue import shapes
from logqueue.client.settling import FollowUp
from logqueue.errors import LogqueueError
from logqueue.worker.calls import WorkerCalls
from logqueue.worker.handlers import Handler, Handlers
from logqueue.worker.job import Job, Settling, enter
from logqueue.worker.leases import Lease, LeaseKeeper
from logqueue.worker.message import Message
from logqueue.worker.middleware import Middleware, nest
from logqueue.worker.outcomes import (
    ACK,
    AckPolicy,
    BadPayload,
    BadResult,
    FollowUps,
    Outcome,
    Reject,
    RetryLater,
    Snooze,
    UnknownTask,
    decide,
    error_text,
    fate,
)
from logqueue.worker.payload import checked_result
from logqueue.worker.processes import Unportable
from logqueue.worker.retry import Retry
from logqueue.worker.running import Running
from logqueue.worker.settling import Settler
from logqueue.worker.slots import Slots

HAND_BACK = Outcome("nack", count=False)
"""For jobs never started, or cut short by a stop: the delivery is not counted."""

PASS_ON = Outcome("nack", 500, count=False)
"""The same while a stream is open, which would push the job straight back to a stopping worker:
it is delayed for a moment, so that another worker gets it."""

CONFIG_AGE_S = 30.0
"""Maximum age of a cached queue config that log lines may use."""

CANCELLED_END_S = 2.0
"""How long a cancelled handler may take to clean up."""

logger = logging.getLogger("logqueue.worker")


@dataclass(slots=True)
class Counts:
    """What a worker did, by how jobs ended here.

    Attributes:
        failed: Jobs whose last run here failed, as queue and seq; None when not collected.
    """

    acked: int = 0
    nacked: int = 0
    rejected: int = 0
    handed_back: int = 0
    lost: int = 0
    failed: set[tuple[str, int]] | None = field(default=None, repr=False)

    @property
    def total(self) -> int:
        """Jobs that came to an end here."""
        return self.acked + self.nacked + self.rejected + self.handed_back + self.lost

    def __str__(self) -> str:
        names = ("acked", "nacked", "rejected", "handed_back", "lost")
        return ", ".join(f"{getattr(self, name)} {name.replace('_', ' ')}" for name in names)

    def note(self, job: Job, outcome: Outcome, counted: bool) -> None:
        """A settle was answered."""
        if self.failed is not None and counted:
            if outcome.verb == "ack":
                self.failed.discard((job.queue, job.seq))
            elif outcome.count:
                self.failed.add((job.queue, job.seq))
        if not counted:
            self.lost += 1
        elif outcome.verb == "ack":
            self.acked += 1
        elif outcome.verb == "reject":
            self.rejected += 1
        elif outcome.count:
            self.nacked += 1
        else:
            self.handed_back += 1


def _is_cancelled_from_outside(error: BaseException) -> bool:
    """Whether this task was cancelled; a handler may also await a cancelled task of its own."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


class Consuming:
    """Takes jobs of one queue and sees each one to its end.

    Attributes:
        is_refusing: The worker stops: what comes now is handed back.
        is_pushed: A stream is open. Its end releases what came over it, so it stays open until all
            of that is settled.
    """

    def __init__(
        self,
        queue: str,
        *,
        handlers: Handlers,
        slots: Slots,
        layers: list[Middleware],
        calls: WorkerCalls,
        keeper: LeaseKeeper,
        settler: Settler,
        running: Running,
        counts: Counts,
        chance: Random,
        follow_ups: Callable[[Sequence[Message]], list[FollowUp]],
    ) -> None:
        self.queue = queue
        self.slots = slots
        self.is_refusing = False
        self.is_pushed = False
        self.state: Mapping[str, Any] = {}
        self._handlers = handlers
        self._handle = nest(layers, self._run_handler)
        self._calls = calls
        self._keeper = keeper
        self._settler = settler
        self._running = running
        self._counts = counts
        self._chance = chance
        self._follow_ups = follow_ups
        self._jobs: dict[Job, asyncio.Task[None]] = {}
        self._started: set[Job] = set()
        self._unsettled: set[Job] = set()
        self._cancelled: set[Job] = set()
        self._errands: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    # -- intake ----------------------------------------------------------------------------------

    def take(self, wire: shapes.Job, asked_at: float, lease_s: float) -> Lease:
        """A job has been leased to this worker.

        Args:
            wire: As it came.
            asked_at: When it was asked for, or received, by the monotonic clock.
            lease_s: How long it was leased for.
        """
        lease = Lease(self.queue, wire, lease_s, asked_at)
        job = Job(lease, self._settle_soon, self._extend_soon)
        job.state = self.state
        self._keeper.hold(lease)
        if self.is_refusing:
            self._hand_back(job)
            self._settler.hurry()
            return lease

        def lost(reason: str) -> None:
            self._loop.call_soon_threadsafe(self._lost, job, reason)

        lease.on_lost = lost
        self.slots.take()
        task = self._loop.create_task(self._see_through(job))
        self._jobs[job] = task
        task.add_done_callback(lambda _: self._gone(job))
        return lease

    def _gone(self, job: Job) -> None:
        del self._jobs[job]
        self._started.discard(job)
        self._cancelled.discard(job)
        self.slots.give_back()
        if not self._started:
            self._settler.hurry()

    # -- execution -------------------------------------------------------------------------------

    async def _see_through(self, job: Job) -> None:
        error: BaseException | None = None
        handler: Handler | None = None
        try:
            handler = self._handlers.find(job)
            job.task = handler.name if self.queue not in self._handlers.consumers else ""
            async with self.slots.turn(handler.name):
                if job.lease.is_lost or not await self._may_start(handler, job):
                    return
                self._started.add(job)
                enter(job)
                await self._handle(job)
        except KeyboardInterrupt:
            raise
        except BaseException as raised:
            if job in self._cancelled:
                # The canceller settles it.
                return
            if _is_cancelled_from_outside(raised):
                # The event loop is closing; that says nothing about the job.
                self._hand_back(job)
                raise
            error = raised
        self._finish(handler, job, error)

    async def _may_start(self, handler: Handler, job: Job) -> bool:
        if handler.policy is not AckPolicy.ACK_FIRST:
            return True
        answer = self._settle(job, ACK)
        if not self._started:
            self._settler.hurry()
        return await asyncio.shield(answer)

    async def _run_handler(self, job: Job) -> None:
        handler = self._handlers.find(job)
        value = await self._running.run(handler, job)
        if job.result is None and job.task:
            job.result = value
        if job.result is not None and not job.is_settled:
            job.result = await self._kept_result(handler, job)

    async def _kept_result(self, handler: Handler, job: Job) -> Any:
        """The result of a job, where something asks for it.

        Raises:
            BadResult: It cannot be kept.
        """
        if handler.policy in (AckPolicy.ACK_FIRST, AckPolicy.MANUAL):
            return None
        config = await self._calls.config_of(self.queue, CONFIG_AGE_S)
        if not job.lease.job.then and (config is None or config.results is None):
            return None
        if isinstance(job.result, Unportable):
            raise BadResult(job.result.problem)
        return checked_result(job.result)

    def _finish(self, handler: Handler | None, job: Job, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, RetryLater | Snooze | Reject):
            text = "%s failed, attempt %d: %s"
            logger.warning(text, job, job.deliveries, error_text(error), exc_info=error)
        if error is not None:
            job.result = None
        if job.is_settled or job.lease.is_lost:
            return
        policy = handler.policy if handler is not None else AckPolicy.NACK_ON_ERROR
        if job in self._cancelled:
            # It caught the cancellation, which is one more way to see a stop.
            job.stop_seen = True
        if error is None and job.is_cut_short and policy is not AckPolicy.MANUAL:
            logger.info("%s returned early after a stop request: returned to the queue", job)
            self._hand_back(job)
            return
        retry = handler.retry if handler is not None else Retry()
        outcome = decide(policy, retry, error, job.attempts, self._chance)
        if outcome is not None:
            self._settle(job, outcome)
        elif policy is AckPolicy.MANUAL:
            self._unsettled.add(job)

    def _lost(self, job: Job, reason: str) -> None:
        """A lease turned out to be lost: what is buffered is dropped, what runs is cancelled."""
        if job.is_settled:
            return
        self._unsettled.discard(job)
        self._counts.lost += 1
        logger.warning("lease of %s lost: %s", job, reason)
        self._running.ask_to_stop(job)
        self._cancel(job)

    def _cancel(self, job: Job) -> None:
        task = self._jobs.get(job)
        if task is not None:
            self._cancelled.add(job)
            task.cancel()

    # -- settling --------------------------------------------------------------------------------

    def _settle(self, job: Job, outcome: Outcome) -> asyncio.Future[bool]:
        job.is_settled = True
        self._unsettled.discard(job)
        if outcome.verb == "ack" and job.then:
            outcome = replace(outcome, then=FollowUps(self._follow_ups(job.then)))
        result = job.result if outcome.verb == "ack" else None
        answer = self._settler.settle(job.lease, outcome, result)
        answer.add_done_callback(lambda done: self._answered(job, outcome, done.result()))
        return answer

    def _answered(self, job: Job, outcome: Outcome, counted: bool) -> None:
        self._counts.note(job, outcome, counted)
        if counted and outcome.verb != "ack" and outcome.count:
            self._soon(self._log_end(job, outcome))
        if not counted:
            logger.warning(
                "%s of %s came after its lease was lost: nothing was changed", outcome.verb, job
            )

    async def _log_end(self, job: Job, outcome: Outcome) -> None:
        """Log what happens to a job that failed for the last time. A dropped job is
        an error: this line may be its only trace."""
        is_rejected = outcome.verb == "reject"
        config = await self._calls.config_of(self.queue, 0.0 if is_rejected else CONFIG_AGE_S)
        if config is None:
            return
        end = fate(job.deliveries, config, is_rejected)
        if end is None:
            return
        attempts = [config.max_deliveries, self._attempts_max(job)]
        limit = min((n for n in attempts if n), default=job.deliveries)
        logger.log(
            logging.ERROR if end.is_loss else logging.WARNING,
            "%s: attempt %d of %d failed; %s%s",
            job,
            job.deliveries,
            max(limit, job.deliveries),
            end.text,
            f": {outcome.error}" if outcome.error else "",
        )

    def _attempts_max(self, job: Job) -> int | None:
        try:
            return self._handlers.find(job).retry.max_attempts
        except (BadPayload, UnknownTask):
            return None

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    def _settle_soon(self, job: Job, outcome: Outcome) -> Settling:
        """A settle by hand, from the loop or from a handler's thread."""
        settling = Settling()

        def settle() -> None:
            self._settle(job, outcome).add_done_callback(
                lambda done: settling.future.set_result(done.result())
            )
            # A caller may wait for the answer.
            self._settler.hurry()

        self._loop.call_soon_threadsafe(settle)
        return settling

    def _extend_soon(
        self, job: Job, lease_s: float, progress: float | None, note: str | None
    ) -> Settling:
        settling = Settling()

        async def extend() -> None:
            counted = False
            try:
                counted = await self._calls.extend(job.lease, lease_s, progress, note)
            except LogqueueError as error:
                logger.warning("%s could not be extended: %s", job, error)
            finally:
                settling.future.set_result(counted)

        self._loop.call_soon_threadsafe(lambda: self._soon(extend()))
        return settling

    # -- shutdown --------------------------------------------------------------------------------

    def hand_back_unstarted(self) -> None:
        """Jobs that wait for their turn return to the queue, their delivery uncounted."""
        for job in [job for job in self._jobs if job not in self._started]:
            self._cancel(job)
            self._hand_back(job)

    def ask_to_stop(self) -> None:
        """Let handlers know that the end is near."""
        for job in self._jobs:
            self._running.ask_to_stop(job)

    async def cancel_rest(self) -> None:
        """Cancel what runs, and hand back what did not come to an end by itself."""
        rest = dict(self._jobs)
        for job in rest:
            self._cancel(job)
        if rest:
            await asyncio.wait(rest.values(), timeout=CANCELLED_END_S)
        for job in [*rest, *self._unsettled]:
            self._hand_back(job)

    async def errands_done(self) -> None:
        """Wait a moment for what is still to be logged."""
        if self._errands:
            await asyncio.wait(set(self._errands), timeout=CANCELLED_END_S)

    def _hand_back(self, job: Job) -> None:
        if not job.is_settled and not job.lease.is_lost:
            self._settle(job, PASS_ON if self.is_pushed else HAND_BACK)
