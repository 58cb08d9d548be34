"""Handlers of the lease life-cycle: claim, ack, nack, reject, extend."""

from __future__ import annotations

import msgspec

from logqueue.api import replies
from logqueue.api.bodies import queues as queue_bodies
from logqueue.core import commands as cmd
from logqueue.core.topic import Topic
from logqueue.model.config import clamp_lease_ms
from logqueue.model.limits import CLAIM_WAIT_MS_MAX, NACK_DELAY_MS_MAX
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.engine.engine import Engine
from logqueue.server.engine.pending import Spent
from logqueue.server.handlers.appends import require_config_allowed, require_follow_allowed
from logqueue.server.handlers.watch import require_topics_allowed
from logqueue.server.http.requests import HttpRequest, PendingReply, Reply
from logqueue.server.http.routing import serves
from logqueue.server.service import Service


class QueueRoutes:
    """The queue half of the API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @serves("claim_jobs")
    def claim(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/topics/:q/claim`: lease jobs to a worker."""
        dispatcher = self._service.require_serving()
        body = queue_bodies.read_claim_body(request.body, request.ignore)
        dispatcher.engine.state.queue(request.name)
        claimer = queue_bodies.claimer(body.node, body.max, body.lease_ms)
        wait_ms = min(body.wait_ms, CLAIM_WAIT_MS_MAX)
        command = cmd.ClaimJobs(request.name, (claimer,), wait_ms=wait_ms)
        return dispatcher.submit(command, _claimed, request)

    @serves("ack_jobs")
    def ack(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/topics/:q/ack`: complete jobs."""
        dispatcher = self._service.require_serving()
        body = queue_bodies.read_ack_body(request.body, request.ignore)
        tokens = queue_bodies.settle_tokens(body)
        append = self._follow_ups(dispatcher, request, body) if body.append else ()
        given = body.results
        results = None if given is None else queue_bodies.results_of(given, body.seqs)
        command = cmd.AckJobs(request.name, body.node, body.seqs, tokens, results, append)
        return dispatcher.submit(command, _acked, (request, dispatcher.engine, append))

    def _follow_ups(
        self, dispatcher: Dispatcher, request: HttpRequest, body: queue_bodies.AckBody
    ) -> tuple[cmd.Append, ...]:
        """What an ack writes, if its key may write it."""
        require_topics_allowed(request.key, {written.topic: None for written in body.append})
        append = queue_bodies.follow_ups(body)
        for written in append:
            require_follow_allowed(request.key, written.block)
            if written.config is not None:
                topic, config = written.topic, written.config
                require_config_allowed(dispatcher, request.key, topic, config)
        return append

    @serves("nack_jobs")
    def nack(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/topics/:q/nack`: give jobs back."""
        dispatcher = self._service.require_serving()
        body = queue_bodies.read_nack_body(request.body, request.ignore)
        tokens = queue_bodies.settle_tokens(body)
        queue_bodies.require_error_text(body.error)
        delay_ms = None
        if body.delay_ms is not msgspec.UNSET:
            delay_ms = min(body.delay_ms, NACK_DELAY_MS_MAX)
        if body.last:
            dispatcher.retire_streams(request.name, body.node)
        command = cmd.NackJobs(
            request.name, body.node, body.seqs, tokens, delay_ms, body.error, body.count
        )
        return dispatcher.submit(command, _nacked, request)

    @serves("reject_jobs")
    def reject(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/topics/:q/reject`: jobs have failed permanently."""
        dispatcher = self._service.require_serving()
        body: queue_bodies.RejectBody = queue_bodies.read_reject_body(request.body, request.ignore)
        tokens = queue_bodies.settle_tokens(body)
        queue_bodies.require_error_text(body.error)
        command = cmd.RejectJobs(request.name, body.node, body.seqs, tokens, body.error)
        return dispatcher.submit(command, _rejected, request)

    @serves("extend_leases")
    def extend(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/topics/:q/extend`: set new deadlines."""
        dispatcher = self._service.require_serving()
        body = queue_bodies.read_extend_body(request.body, request.ignore)
        tokens = queue_bodies.settle_tokens(body)
        queue_bodies.require_note(body.note)
        lease_ms = clamp_lease_ms(body.lease_ms)
        command = cmd.ExtendLeases(
            request.name, body.node, body.seqs, lease_ms, tokens, body.progress, body.note
        )
        return dispatcher.submit(command, _extended, request)


_AT_ONCE = replies.further_timings(throttle_wait_ms=0)
"""What most claims show: they have not waited."""


def _claimed(request: HttpRequest, result: cmd.ClaimResult, spent: Spent) -> Reply:
    if spent.shown is None:
        spent.shown = _AT_ONCE
        if spent.waited_ms:
            spent.shown = replies.further_timings(throttle_wait_ms=spent.waited_ms)
    performance = replies.performance(request.began, spent.shown)
    return Reply(replies.encode_claimed(request.name, result.jobs[0], result, performance))


def _acked(
    context: tuple[HttpRequest, Engine, tuple[cmd.Append, ...]],
    result: cmd.SettleResult,
    spent: Spent,
) -> Reply:
    request, engine, append = context
    if spent.shown is None:
        topic: Topic | None = engine.state.topics.get(request.name)
        was_synced = spent.held_ms > 0 and topic is not None and topic.config.durable
        timings = spent.held_timings(was_held=was_synced) if was_synced else {}
        spent.shown = replies.further_timings(**timings)
    performance = replies.performance(request.began, spent.shown)
    if result.appended is None:
        return Reply(replies.encode_settled(request.name, "acked", result, performance))
    topics = [written.topic for written in append]
    return Reply(replies.encode_acked(request.name, result, topics, performance))


def _nacked(request: HttpRequest, result: cmd.SettleResult, spent: Spent) -> Reply:
    return Reply(
        replies.encode_settled(request.name, "nacked", result, replies.performance(request.began))
    )


def _rejected(request: HttpRequest, result: cmd.SettleResult, spent: Spent) -> Reply:
    return Reply(
        replies.encode_settled(request.name, "rejected", result, replies.performance(request.began))
    )


def _extended(request: HttpRequest, result: cmd.ExtendResult, spent: Spent) -> Reply:
    return Reply(replies.encode_extended(request.name, result, replies.performance(request.began)))
