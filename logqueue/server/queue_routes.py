"""Handlers of the lease life-cycle: claim, ack, nack, extend."""

from __future__ import annotations

from logqueue import wire
from logqueue.core import commands as cmd
from logqueue.core.config import clamp_lease_ms
from logqueue.core.limits import NACK_DELAY_MS_MAX
from logqueue.server.requests import Reply, Request
from logqueue.server.service import Service


class QueueRoutes:
    """The queue half of the API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def claim(self, request: Request) -> Reply:
        """`POST /v0/topics/:q/claim`: lease jobs to a worker."""
        coordinator = self._service.require_serving()
        body = wire.read_claim_body(request.body)
        queue = coordinator.engine.state.queue(request.name)
        claimer = wire.claimer(body.node, body.max, body.lease_ms)
        claim = coordinator.claim(request.name, claimer)
        if queue.config.claim_jitter_ms:
            # Only a claim that waits for its window can outlive its caller.
            jobs, ready, waited_ms = await request.unless_gone(claim)
        else:
            jobs, ready, waited_ms = await claim
        timings = {"server_total_ms": request.total_ms, "throttle_wait_ms": waited_ms}
        return Reply(wire.encode_claimed(request.name, jobs, ready, timings))

    async def ack(self, request: Request) -> Reply:
        """`POST /v0/topics/:q/ack`: complete jobs."""
        coordinator = self._service.require_serving()
        body = wire.read_ack_body(request.body)
        tokens = wire.settle_tokens(body)
        answered = await coordinator.execute(cmd.Ack(request.name, body.node, body.seqs, tokens))
        assert isinstance(answered.reply, cmd.Settled)
        timings = request.timings()
        topic = coordinator.engine.state.topics.get(request.name)
        if answered.waited_ms > 0 and topic is not None and topic.config.durable:
            timings["fsync_ms"] = answered.waited_ms
        return Reply(wire.encode_settled(request.name, "acked", answered.reply, timings))

    async def nack(self, request: Request) -> Reply:
        """`POST /v0/topics/:q/nack`: give jobs back."""
        coordinator = self._service.require_serving()
        body = wire.read_nack_body(request.body)
        tokens = wire.settle_tokens(body)
        delay_ms = min(body.delay_ms, NACK_DELAY_MS_MAX)
        answered = await coordinator.execute(
            cmd.Nack(request.name, body.node, body.seqs, tokens, delay_ms)
        )
        assert isinstance(answered.reply, cmd.Settled)
        return Reply(wire.encode_settled(request.name, "nacked", answered.reply, request.timings()))

    async def extend(self, request: Request) -> Reply:
        """`POST /v0/topics/:q/extend`: set new deadlines."""
        coordinator = self._service.require_serving()
        body = wire.read_extend_body(request.body)
        tokens = wire.settle_tokens(body)
        answered = await coordinator.execute(
            cmd.Extend(request.name, body.node, body.seqs, clamp_lease_ms(body.lease_ms), tokens)
        )
        assert isinstance(answered.reply, cmd.Extended)
        return Reply(wire.encode_extended(request.name, answered.reply, request.timings()))
