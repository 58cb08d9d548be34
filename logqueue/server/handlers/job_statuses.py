"""What jobs are or have become, at once or when they have ended.

Owns: the wait for ends, and the reply about many jobs. Must not know: how ends are kept, the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from logqueue.api import replies
from logqueue.api.bodies import jobs as job_bodies
from logqueue.core.job_status import job_status
from logqueue.model import limits
from logqueue.server.http.api import long_poll
from logqueue.server.http.requests import Answer, HttpRequest, Reply
from logqueue.server.http.routing import serves
from logqueue.server.service import Service

SHOWN_PER_STEP = 200


class JobStatusRoutes:
    """Those who wait for jobs."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @serves("get_job_statuses")
    def statuses(self, request: HttpRequest) -> Answer:
        """`POST /v0/topics/:q/jobs/status`: what many jobs are or have become."""
        dispatcher = self._service.require_serving()
        body = job_bodies.read_status_body(request.body, request.ignore)
        dispatcher.engine.state.queue(request.name)
        if body.wait_ms:
            return long_poll(self._service, request, self._when_ended(request, body))
        return request.unless_gone(self._show(request, body.seqs))

    async def _when_ended(self, request: HttpRequest, body: job_bodies.JobStatusBody) -> Reply:
        await wait_for_ends(
            self._service, request.name, body.seqs, body.wait_ms, any_is_enough=body.until == "any"
        )
        return await self._show(request, body.seqs)

    async def _show(self, request: HttpRequest, seqs: Sequence[int]) -> Reply:
        dispatcher = self._service.require_serving()
        shown: list[bytes] = []
        size = 0
        written = durable = 0
        while len(shown) < len(seqs) and (size < limits.STATUS_BYTES_MAX or not shown):
            now = dispatcher.engine.clock.now_ms()
            topic = dispatcher.engine.queue_now(request.name, now)
            for seq in seqs[len(shown) : len(shown) + SHOWN_PER_STEP]:
                shown.append(replies.job_status_member(seq, job_status(topic, seq, now), now))
                size += len(shown[-1])
                if size >= limits.STATUS_BYTES_MAX:
                    break
            written, durable = max(written, topic.mark_written), max(durable, topic.mark_durable)
            await asyncio.sleep(0)
            dispatcher = self._service.require_serving()
        await dispatcher.barrier.wait(written, durable)
        performance = replies.performance(request.began)
        rest = seqs[len(shown) :]
        return Reply(replies.encode_job_statuses(request.name, shown, rest, performance))


async def wait_for_ends(
    service: Service, name: str, seqs: Sequence[int], wait_ms: int, *, any_is_enough: bool = False
) -> None:
    """Return once all of some jobs have ended, or any of them, or the time is up. A job that has
    never been counts as ended.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue, or no longer.
        ShuttingDown: The server stops.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    left = [*reversed(seqs)]
    while left:
        dispatcher = service.require_serving()
        topic = dispatcher.engine.queue_now(name)
        # For all of them: the ends of the others are of no interest before that of the first.
        while not any_is_enough and left and not topic.holds(left[-1]):
            left.pop()
        some = left if any_is_enough else left[-1:]
        left_s = deadline - loop.time()
        if not some or not all(map(topic.holds, some)) or left_s <= 0:
            return
        ended = dispatcher.waiting_reads.next_end(topic.number, some)
        try:
            await asyncio.wait((ended,), timeout=left_s)
        finally:
            ended.cancel()
