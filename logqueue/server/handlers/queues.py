"""Handlers of the lease life-cycle: claim, ack, nack, reject, extend."""

from __future__ import annotations

import msgspec

from logqueue.api import replies
from logqueue.api.bodies import queues as queue_bodies
from logqueue.core import commands as cmd
from logqueue.model.config import clamp_lease_ms
from logqueue.model.limits import CLAIM_WAIT_MS_MAX, NACK_DELAY_MS_MAX
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.http.requests import Answer, HttpRequest, PendingReply, Reply
from logqueue.server.http.routing import serves
from logqueue.server.service import Service


class QueueRoutes:
    """The queue half of the API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @serves("claim_jobs")
    def claim(self, request: HttpRequest) -> Answer:
        """`POST /v0/topics/:q/claim`: lease jobs to a worker."""
        coordinator = self._service.require_serving()
        body = queue_bodies.read_claim_body(request.body, request.ignore)
        queue = coordinator.engine.state.queue(request.name)
        claimer = queue_bodies.claimer(body.node, body.max, body.lease_ms)
        coordinator.workers.seen(queue.number, body.node, coordinator.engine.clock.now_ms())
        wait_ms = min(body.wait_ms, CLAIM_WAIT_MS_MAX)

        def finish(reply: cmd.Reply, waited_ms: float) -> Reply:
            assert isinstance(reply, cmd.ClaimResult)
            return _claimed(request, coordinator, claimer, reply.jobs[0], reply, 0.0)

        if not queue.config.claim_jitter_ms:
            held = coordinator.claim_now(queue, claimer, finish, may_wait=wait_ms > 0)
            if held is not None:
                return held
        return self._service.long_poll(request, self._claim_in_cohort(request, claimer, wait_ms))

    async def _claim_in_cohort(
        self, request: HttpRequest, claimer: cmd.Claimer, wait_ms: int
    ) -> Reply:
        """A claim that waits, and that its caller can leave half-way."""
        coordinator = self._service.require_serving()
        jobs, claimed, waited_ms = await coordinator.claim_in_cohort(request.name, claimer, wait_ms)
        return _claimed(request, coordinator, claimer, jobs, claimed, waited_ms)

    @serves("ack_jobs")
    def ack(self, request: HttpRequest) -> Answer:
        """`POST /v0/topics/:q/ack`: complete jobs."""
        coordinator = self._service.require_serving()
        body = queue_bodies.read_ack_body(request.body, request.ignore)
        tokens = queue_bodies.settle_tokens(body)
        topics = coordinator.engine.state.topics

        def finish(reply: cmd.Reply, waited_ms: float) -> Reply:
            assert isinstance(reply, cmd.SettleResult)
            timings = request.timings()
            topic = topics.get(request.name)
            if waited_ms > 0 and topic is not None and topic.config.durable:
                timings["fsync_ms"] = waited_ms
            return Reply(replies.encode_settled(request.name, "acked", reply, timings))

        command = cmd.AckJobs(request.name, body.node, body.seqs, tokens)
        return coordinator.submit_in_portions(command, finish)

    @serves("nack_jobs")
    def nack(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/topics/:q/nack`: give jobs back."""
        coordinator = self._service.require_serving()
        body = queue_bodies.read_nack_body(request.body, request.ignore)
        tokens = queue_bodies.settle_tokens(body)
        queue_bodies.require_error_text(body.error)
        delay_ms = None
        if body.delay_ms is not msgspec.UNSET:
            delay_ms = min(body.delay_ms, NACK_DELAY_MS_MAX)
        if body.last:
            coordinator.retire_streams(request.name, body.node)

        def finish(reply: cmd.Reply, waited_ms: float) -> Reply:
            assert isinstance(reply, cmd.SettleResult)
            return Reply(replies.encode_settled(request.name, "nacked", reply, request.timings()))

        command = cmd.NackJobs(
            request.name, body.node, body.seqs, tokens, delay_ms, body.error, body.count
        )
        return coordinator.submit(command, finish)

    @serves("reject_jobs")
    def reject(self, request: HttpRequest) -> Answer:
        """`POST /v0/topics/:q/reject`: jobs have failed for good."""
        coordinator = self._service.require_serving()
        body: queue_bodies.RejectBody = queue_bodies.read_reject_body(request.body, request.ignore)
        tokens = queue_bodies.settle_tokens(body)
        queue_bodies.require_error_text(body.error)

        def finish(reply: cmd.Reply, waited_ms: float) -> Reply:
            assert isinstance(reply, cmd.SettleResult)
            queue = coordinator.engine.state.topics.get(request.name)
            if reply.settled and queue is not None:
                # The events say which jobs went where, not whose they were.
                now = coordinator.engine.clock.now_ms()
                coordinator.workers.seen(queue.number, body.node, now).worked += 1
            return Reply(replies.encode_settled(request.name, "rejected", reply, request.timings()))

        command = cmd.RejectJobs(request.name, body.node, body.seqs, tokens, body.error)
        return coordinator.submit_in_portions(command, finish)

    @serves("extend_leases")
    def extend(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/topics/:q/extend`: set new deadlines."""
        coordinator = self._service.require_serving()
        body = queue_bodies.read_extend_body(request.body, request.ignore)
        tokens = queue_bodies.settle_tokens(body)
        lease_ms = clamp_lease_ms(body.lease_ms)

        def finish(reply: cmd.Reply, waited_ms: float) -> Reply:
            assert isinstance(reply, cmd.ExtendResult)
            return Reply(replies.encode_extended(request.name, reply, request.timings()))

        command = cmd.ExtendLeases(request.name, body.node, body.seqs, lease_ms, tokens)
        return coordinator.submit(command, finish)


def _claimed(
    request: HttpRequest,
    coordinator: Dispatcher,
    claimer: cmd.Claimer,
    jobs: list[cmd.ClaimedJob],
    claimed: cmd.ClaimResult,
    waited_ms: float,
) -> Reply:
    timings = {"server_total_ms": request.total_ms, "throttle_wait_ms": waited_ms}
    reply = Reply(replies.encode_claimed(request.name, jobs, claimed, timings))
    if jobs:
        reply.lost = lambda: coordinator.hand_back(request.name, claimer.node, jobs)
    return reply
