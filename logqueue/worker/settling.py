"""Settles on their way to the server: gathered, sent together, repeated until they are answered.

Owns: the batches, and telling each job whether its settle counted. Must not know: why a job is
settled the way it is, when a worker stops.

A batch leaves when its first settle is 10 ms old, when it has 100, or at once when nothing else is
running that could add to it. A settle carries its lease id, so repeating it is harmless: what is
no longer ours is skipped and left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple, Protocol

from logqueue import shapes
from logqueue.errors import LogqueueError, NotAQueue, NotFound
from logqueue.worker.leases import Lease, LeaseKeeper
from logqueue.worker.outcomes import Outcome

GATHER_S = 0.010
BATCH_MAX = 100
PAUSE_S_MIN = 0.05
PAUSE_S_MAX = 2.0

logger = logging.getLogger("logqueue.worker.settle")


class SendSettle(Protocol):
    """One settle call; gives the seqs that were skipped. Raises LogqueueError."""

    async def __call__(
        self,
        queue: str,
        outcome: Outcome,
        jobs: list[shapes.Job],
        results: Sequence[Any] | None,
    ) -> list[int]: ...


class AskGone(Protocol):
    """Whether a job is done with, for whatever reason. Raises LogqueueError."""

    async def __call__(self, queue: str, seq: int) -> bool: ...


class _Entry(NamedTuple):
    lease: Lease
    answer: asyncio.Future[bool]
    result: Any


class Settler:
    """Batches by queue and outcome. Belongs to one event loop."""

    def __init__(
        self, send: SendSettle, ask_gone: AskGone, keeper: LeaseKeeper, chance: Random
    ) -> None:
        self._send = send
        self._ask_gone = ask_gone
        self._keeper = keeper
        self._chance = chance
        self._gathering: dict[tuple[str, Outcome], list[_Entry]] = {}
        self._timer: asyncio.Handle | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def settle(self, lease: Lease, outcome: Outcome, result: Any = None) -> asyncio.Future[bool]:
        """Queue a settle; the lease is kept until it is answered.

        Args:
            lease: Of the job.
            outcome: What becomes of it.
            result: What it came to, for an ack: any JSON value, None for none.

        Returns:
            True when it counted, False when the lease was lost.
        """
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        lease.is_settling = True
        batch = self._gathering.setdefault((lease.queue, outcome), [])
        batch.append(_Entry(lease, answer, result))
        if len(batch) >= BATCH_MAX:
            self._dispatch(lease.queue, outcome)
        elif self._timer is None:
            self._timer = loop.call_later(GATHER_S, self.hurry)
        return answer

    def hurry(self) -> None:
        """Send what is gathered now: nothing is running that could add to it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for queue, outcome in list(self._gathering):
            self._dispatch(queue, outcome)

    async def flush(self, timeout_s: float | None = None) -> bool:
        """Send everything and wait for the answers; False when they did not come in time."""
        self.hurry()
        if not self._sending:
            return True
        _, pending = await asyncio.wait(set(self._sending), timeout=timeout_s)
        return not pending

    def abandon(self) -> None:
        """Abandon unanswered settles: their leases expire, and the jobs return."""
        for task in self._sending:
            task.cancel()

    def _dispatch(self, queue: str, outcome: Outcome) -> None:
        entries = self._gathering.pop((queue, outcome))
        task = asyncio.get_running_loop().create_task(self._deliver(queue, outcome, entries))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _deliver(self, queue: str, outcome: Outcome, entries: list[_Entry]) -> None:
        """Send one batch until it is answered, or until none of its leases can be held."""
        jobs = [entry.lease.job for entry in entries]
        has_results = any(entry.result is not None for entry in entries)
        results = [entry.result for entry in entries] if has_results else None
        everything = {job.seq for job in jobs}
        skipped: set[int] | None = None
        pause_s = PAUSE_S_MIN
        is_repeated = False
        try:
            while skipped is None:
                try:
                    skipped = set(await self._send(queue, outcome, jobs, results))
                except (NotFound, NotAQueue):
                    logger.warning("queue %s was deleted, and %d jobs with it", queue, len(jobs))
                    skipped = everything
                except LogqueueError as error:
                    if error.retryable or not error.had_no_effect:
                        logger.info(
                            "%s of %d jobs failed, retrying: %s", outcome.verb, len(jobs), error
                        )
                    else:
                        text = "%s of %d jobs of %s was refused: %s"
                        logger.error(text, outcome.verb, len(jobs), queue, error)
                        skipped = everything
                    is_repeated |= not error.had_no_effect
                if skipped is None:
                    if all(entry.lease.is_lost for entry in entries):
                        skipped = everything
                        break
                    await asyncio.sleep(pause_s * (0.5 + self._chance.random() / 2))
                    pause_s = min(pause_s * 2, PAUSE_S_MAX)
            if is_repeated and skipped:
                skipped -= await self._counted_before(queue, outcome, entries, skipped)
        finally:
            self._conclude(entries, skipped)

    async def _counted_before(
        self, queue: str, outcome: Outcome, entries: list[_Entry], skipped: set[int]
    ) -> set[int]:
        """Of the seqs that a repeat was skipped for, those of which the first try had counted and
        only its reply was lost. An ack's job is gone then; a server that was killed before the
        ack was on its disk still has it."""
        unsure = {lease.job.seq for lease, _, _ in entries if not lease.is_lost} & skipped
        if outcome.verb != "ack":
            return unsure
        gone = set()
        for seq in unsure:
            with suppress(LogqueueError):
                if await self._ask_gone(queue, seq):
                    gone.add(seq)
        return gone

    def _conclude(self, entries: list[_Entry], skipped: set[int] | None) -> None:
        for lease, answer, _ in entries:
            self._keeper.drop(lease)
            if answer.done():
                continue
            if skipped is None:
                answer.set_result(False)
                continue
            answer.set_result(lease.job.seq not in skipped)
