"""Handlers of the lease life-cycle: claim, ack, nack, extend."""

from __future__ import annotations

from logqueue import replies, wire
from logqueue.core import commands as cmd
from logqueue.core.config import clamp_lease_ms
from logqueue.core.limits import NACK_DELAY_MS_MAX
from logqueue.server.coordinator import Coordinator
from logqueue.server.requests import Answer, Held, Reply, Request
from logqueue.server.service import Service


class QueueRoutes:
    """The queue half of the API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def claim(self, request: Request) -> Answer:
        """`POST /v0/topics/:q/claim`: lease jobs to a worker."""
        coordinator = self._service.require_serving()
        body = wire.read_claim_body(request.body)
        queue = coordinator.engine.state.queue(request.name)
        claimer = wire.claimer(body.node, body.max, body.lease_ms)
        if queue.config.claim_jitter_ms:
            return _claim_in_cohort(request, coordinator, claimer)

        def finish(reply: cmd.Reply, waited_ms: float) -> Reply:
            assert isinstance(reply, cmd.Claimed)
            return _claimed(request, reply.jobs[0], reply.ready, 0.0)

        return coordinator.submit(cmd.Claim(request.name, (claimer,)), finish)

    def ack(self, request: Request) -> Held:
        """`POST /v0/topics/:q/ack`: complete jobs."""
        coordinator = self._service.require_serving()
        body = wire.read_ack_body(request.body)
        tokens = wire.settle_tokens(body)
        topics = coordinator.engine.state.topics

        def finish(reply: cmd.Reply, waited_ms: float) -> Reply:
            assert isinstance(reply, cmd.Settled)
            timings = request.timings()
            topic = topics.get(request.name)
            if waited_ms > 0 and topic is not None and topic.config.durable:
                timings["fsync_ms"] = waited_ms
            return Reply(replies.encode_settled(request.name, "acked", reply, timings))

        return coordinator.submit(cmd.Ack(request.name, body.node, body.seqs, tokens), finish)

    def nack(self, request: Request) -> Held:
        """`POST /v0/topics/:q/nack`: give jobs back."""
        coordinator = self._service.require_serving()
        body = wire.read_nack_body(request.body)
        tokens = wire.settle_tokens(body)
        delay_ms = min(body.delay_ms, NACK_DELAY_MS_MAX)

        def finish(reply: cmd.Reply, waited_ms: float) -> Reply:
            assert isinstance(reply, cmd.Settled)
            return Reply(replies.encode_settled(request.name, "nacked", reply, request.timings()))

        command = cmd.Nack(request.name, body.node, body.seqs, tokens, delay_ms)
        return coordinator.submit(command, finish)

    def extend(self, request: Request) -> Held:
        """`POST /v0/topics/:q/extend`: set new deadlines."""
        coordinator = self._service.require_serving()
        body = wire.read_extend_body(request.body)
        tokens = wire.settle_tokens(body)
        lease_ms = clamp_lease_ms(body.lease_ms)

        def finish(reply: cmd.Reply, waited_ms: float) -> Reply:
            assert isinstance(reply, cmd.Extended)
            return Reply(replies.encode_extended(request.name, reply, request.timings()))

        command = cmd.Extend(request.name, body.node, body.seqs, lease_ms, tokens)
        return coordinator.submit(command, finish)


async def _claim_in_cohort(
    request: Request, coordinator: Coordinator, claimer: cmd.Claimer
) -> Reply:
    """A claim that waits for its window; the only kind that its caller can leave half-way."""
    jobs, ready, waited_ms = await request.unless_gone(
        coordinator.claim_in_cohort(request.name, claimer)
    )
    return _claimed(request, jobs, ready, waited_ms)


def _claimed(request: Request, jobs: list[cmd.Job], ready: int, waited_ms: float) -> Reply:
    timings = {"server_total_ms": request.total_ms, "throttle_wait_ms": waited_ms}
    return Reply(replies.encode_claimed(request.name, jobs, ready, timings))
