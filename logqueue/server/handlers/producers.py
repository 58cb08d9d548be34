"""Handlers of the producer routes: stage, commit, abort, look. Transactional appends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from logqueue.api import replies
from logqueue.api.bodies import producers as producer_bodies
from logqueue.core import commands as cmd
from logqueue.core.staging import ProducerState
from logqueue.core.state import State
from logqueue.errors import Forbidden, NotFound, quoted
from logqueue.server.engine.engine import Engine
from logqueue.server.engine.pending import Spent
from logqueue.server.handlers.appends import require_follow_allowed
from logqueue.server.handlers.members import reply_with
from logqueue.server.http.requests import HttpRequest, PendingReply, Reply
from logqueue.server.http.routing import serves
from logqueue.server.service import Service

_OUTSIDE = "this key may not access topics outside its prefixes"


class ProducerRoutes:
    """What a producer needs to append an epoch at a time."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @serves("stage_chunk")
    def stage(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/producers/:producer/epochs/:n/stage`: stage a chunk of an epoch."""
        dispatcher = self._service.require_serving()
        body = request.document
        if body is None:
            body = producer_bodies.read_stage_body(request.body, request.ignore)
        if not request.allows(body.topic):
            raise Forbidden(_OUTSIDE, {"topic": body.topic})
        command = producer_bodies.stage_command(request.name, request.item, body)
        require_follow_allowed(request.key, command.block)
        pending = dispatcher.submit(command, _staged, (request, command))
        return _wait_for_epoch(dispatcher.engine, request.name, pending)

    @serves("commit_epoch")
    def commit(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/producers/:producer/epochs/:n/commit`: make an epoch visible, all at once."""
        dispatcher = self._service.require_serving()
        command = producer_bodies.commit_command(
            request.name, request.item, request.body, request.ignore
        )
        state = dispatcher.engine.state
        producer = state.producers.get(command.producer)
        if producer is not None:
            _require_allowed(request, _touched(state, producer, command.epoch))
        pending = dispatcher.submit(command, _committed, (request, command))
        return _wait_for_epoch(dispatcher.engine, request.name, pending)

    @serves("abort_epoch")
    def abort(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/producers/:producer/epochs/:n/abort`: discard what is staged for an epoch."""
        dispatcher = self._service.require_serving()
        command = producer_bodies.abort_command(request.name, request.item)
        state = dispatcher.engine.state
        producer = state.producers.get(command.producer)
        if producer is not None:
            _require_allowed(request, _touched(state, producer, command.epoch))
        pending = dispatcher.submit(command, _aborted, (request, command))
        return _wait_for_epoch(dispatcher.engine, request.name, pending)

    @serves("get_producer")
    def get(self, request: HttpRequest) -> PendingReply:
        """`GET /v0/producers/:producer`: the last committed epoch, and what waits for a commit."""
        dispatcher = self._service.require_serving()
        engine = dispatcher.engine
        producer = engine.state.producers.get(request.name)
        members = None if producer is None else replies.producer_members(producer)
        pending = dispatcher.hold(members, 0, 0, _shown, request)
        return _wait_for_epoch(engine, request.name, pending)


def _staged(
    context: tuple[HttpRequest, cmd.StageChunk], result: cmd.StageResult, spent: Spent
) -> Reply:
    request, command = context
    return reply_with(request, replies.staged_members(command.producer, command.epoch, result))


def _committed(
    context: tuple[HttpRequest, cmd.CommitEpoch], result: cmd.CommitResult, spent: Spent
) -> Reply:
    request, command = context
    return reply_with(request, replies.committed_members(command.producer, command.epoch, result))


def _aborted(
    context: tuple[HttpRequest, cmd.AbortEpoch], result: cmd.AbortResult, spent: Spent
) -> Reply:
    request, command = context
    return reply_with(request, replies.aborted_members(command.producer, command.epoch, result))


def _shown(request: HttpRequest, members: dict[str, Any] | None, spent: Spent) -> Reply:
    if members is None:
        raise NotFound(
            f"unknown or expired producer {quoted(request.name)}", {"producer": request.name}
        )
    return reply_with(request, members)


def _wait_for_epoch(engine: Engine, name: str, pending: PendingReply) -> PendingReply:
    """Have a reply also wait for what it may say of a producer.

    Producers have no marks of their own: an epoch is as safe as the topics it went to, and one
    without records as all that is in the log so far.
    """
    topics = engine.state.topics
    durable = 0
    producer = engine.state.producers.get(name)
    if producer is not None and producer.committed is not None:
        for topic, _, _ in producer.committed.ranges:
            mark = topics[topic].mark_durable if topic in topics else engine.control_mark
            durable = max(durable, mark)
    pending.also_after(engine.journal.jobs.appended, durable)
    return pending


def _touched(state: State, producer: ProducerState, epoch: int) -> Iterator[str]:
    """The topics that a commit reaches: what it does not append, up to its epoch, it discards; and
    a repeat tells where the epoch went."""
    for number, _, chunk in producer.all_staged():
        if number <= epoch:
            yield state.instances[chunk.topic].name
    if producer.committed is not None and producer.committed.number == epoch:
        for topic, _, _ in producer.committed.ranges:
            yield topic


def _require_allowed(request: HttpRequest, topics: Iterable[str]) -> None:
    """The producer's own name was checked already; so must be the topics that a call reaches.

    Raises:
        Forbidden: One is outside the key's prefixes; it is not named, since the caller did not.
    """
    if request.key is not None and request.key.prefixes and not all(map(request.allows, topics)):
        raise Forbidden(f"{_OUTSIDE}, and this epoch reaches one")
