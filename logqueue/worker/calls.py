"""The calls a worker makes, on top of the client.

Owns: the worker's name, and what is asked for with each call. Must not know: when calls are made,
what jobs are about.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from logqueue import shapes
from logqueue.client import AsyncClient, Client, ConfigFields
from logqueue.client.following import Interrupted
from logqueue.errors import LogqueueError, NotFound
from logqueue.worker.leases import Lease
from logqueue.worker.outcomes import Outcome
from logqueue.worker.schedule import DeclaredSchedule

LIVE_STATES = frozenset(("ready", "delayed", "in_flight", "held"))
"""States of jobs that have not ended."""

WAIT_MS = 20_000
"""How long a claim waits at the server for a job."""

WAIT_SEVERAL_MS = 5000
"""The same where there are several servers: the end of one must be noticed soon."""


class WorkerCalls:
    """Calls of one worker, on its event loop."""

    def __init__(self, client: AsyncClient, node: str, now: Callable[[], float]) -> None:
        self._client = client
        self._node = node
        self._now = now
        self._wait_ms = WAIT_MS if len(client.urls) == 1 else WAIT_SEVERAL_MS
        self._configs: dict[str, tuple[float, shapes.TopicConfig]] = {}

    async def claim(
        self, queue: str, jobs_max: int, lease_ms: int, *, wait: bool = True
    ) -> shapes.Claimed:
        """Lease jobs; with `wait`, the server waits for one when there are none."""
        wait_ms = self._wait_ms if wait else None
        return await self._client.claim(
            queue, node=self._node, max=jobs_max, lease_ms=lease_ms, wait_ms=wait_ms
        )

    def work(
        self, queue: str, jobs_max: int, lease_ms: int
    ) -> AsyncGenerator[shapes.Job | Interrupted, None]:
        """One work stream; it ends with an error."""
        return self._client.work(queue, node=self._node, max=jobs_max, lease_ms=lease_ms)

    async def settle(
        self,
        queue: str,
        outcome: Outcome,
        jobs: list[shapes.Job],
        results: Sequence[Any] | None = None,
    ) -> list[int]:
        """Settle jobs under their leases; gives the seqs that were skipped."""
        client, node = self._client, self._node
        if outcome.then is not None:
            append, key = outcome.then.writes, outcome.then.key
            done = await client.ack(
                queue, jobs, node=node, results=results, append=append, idempotency_key=key
            )
            # A repeat of one that was carried out is not skipped.
            return done.skipped + done.unsure
        if outcome.verb == "ack":
            return (await client.ack(queue, jobs, node=node, results=results)).skipped
        if outcome.verb == "reject":
            return (await client.reject(queue, jobs, node=node, error=outcome.error)).skipped
        settled = await client.nack(
            queue,
            jobs,
            node=node,
            delay_ms=outcome.delay_ms,
            error=outcome.error,
            count=outcome.count,
        )
        return settled.skipped

    async def take_no_more(self, queue: str) -> None:
        """Have this worker's streams get no more jobs."""
        await self._client.nack(queue, [], node=self._node, last=True)

    async def is_gone(self, queue: str, seq: int) -> bool:
        """Whether a queue no longer has a job, whether it keeps what became of it or not."""
        try:
            found = await self._client.job(queue, seq)
        except NotFound:
            return True
        return found.job.state not in LIVE_STATES

    async def extend(
        self, lease: Lease, lease_s: float, progress: float | None = None, note: str | None = None
    ) -> bool:
        """Give one lease a new length, and say how far its job is; False when it is lost."""
        asked_at = self._now()
        reply = await self._client.extend(
            lease.queue,
            lease.job,
            round(lease_s * 1000),
            node=self._node,
            progress=progress,
            note=note,
        )
        if reply.skipped:
            return False
        lease.lease_s = lease_s
        lease.deadline_ms = reply.deadlines.get(lease.job.seq, lease.deadline_ms)
        lease.renewed(asked_at, lease_s)
        return True

    async def config_of(self, queue: str, age_s: float) -> shapes.TopicConfig | None:
        """How a queue is set up, as of `age_s` seconds ago at most; None when that is unknown."""
        known = self._configs.get(queue)
        if known is None or self._now() - known[0] > age_s:
            try:
                state = await self._client.topic(queue, touch=False)
            except LogqueueError:
                return known[1] if known is not None else None
            known = self._configs[queue] = (self._now(), state.config)
        return known[1]

    async def ensure_queue(self, queue: str, config: ConfigFields) -> shapes.TopicEnsured:
        """Create a queue that is missing; an existing one is left as it is and compared."""
        found = await self._client.ensure_topic(queue, **config)
        self._configs[queue] = (self._now(), found.config)
        return found

    async def ensure_schedule(self, schedule: DeclaredSchedule) -> shapes.Schedule:
        """Create a schedule that is missing; an existing one is left as it is and compared."""
        return await self._client.put_schedule(
            schedule.name, schedule.queue, schedule.record(), if_absent=True, **schedule.options()
        )


class Renewals:
    """The keeper's extend calls, over a connection of its own."""

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node

    def extend(self, queue: str, jobs: list[shapes.Job], lease_ms: int) -> shapes.Extended:
        """See Extend."""
        return self._client.extend(queue, jobs, lease_ms, node=self._node)
