"""Handlers of the producer routes: stage, commit, look. Transactional appends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from logqueue.api import replies
from logqueue.api.bodies import producers as producer_bodies
from logqueue.core import commands as cmd
from logqueue.core.staging import ProducerState
from logqueue.core.state import State
from logqueue.errors import Forbidden, NotFound, quoted
from logqueue.server.engine.engine import Engine
from logqueue.server.http.requests import HttpRequest, PendingReply, Reply
from logqueue.server.http.routing import serves
from logqueue.server.service import Service

_OUTSIDE = "this key may not touch topics outside its prefixes"


class ProducerRoutes:
    """What a producer needs to append an epoch at a time."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @serves("stage_chunk")
    def stage(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/producers/:producer/epochs/:n/stage`: lay down a chunk, invisible yet."""
        coordinator = self._service.require_serving()
        body = request.document
        if body is None:
            body = producer_bodies.read_stage_body(request.body, request.ignore)
        if not request.allows(body.topic):
            raise Forbidden(_OUTSIDE, {"topic": body.topic})
        command = producer_bodies.stage_command(request.name, request.item, body)

        def finish(reply: cmd.Reply, waited_ms: float) -> Reply:
            assert isinstance(reply, cmd.StageResult)
            members = replies.staged_members(command.producer, command.epoch, reply)
            return Reply(replies.encode({**members, "performance": request.timings()}))

        return _grounded(coordinator.engine, request.name, coordinator.submit(command, finish))

    @serves("commit_epoch")
    def commit(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/producers/:producer/epochs/:n/commit`: make an epoch visible, all at once."""
        coordinator = self._service.require_serving()
        command = producer_bodies.commit_command(
            request.name, request.item, request.body, request.ignore
        )
        state = coordinator.engine.state
        producer = state.producers.get(command.producer)
        if producer is not None:
            _require_allowed(request, _touched(state, producer, command.epoch))

        def finish(reply: cmd.Reply, waited_ms: float) -> Reply:
            assert isinstance(reply, cmd.CommitResult)
            members = replies.committed_members(command.producer, command.epoch, reply)
            return Reply(replies.encode({**members, "performance": request.timings()}))

        return _grounded(coordinator.engine, request.name, coordinator.submit(command, finish))

    @serves("get_producer")
    def get(self, request: HttpRequest) -> PendingReply:
        """`GET /v0/producers/:producer`: the last committed epoch, and what waits for a commit."""
        engine = self._service.require_serving().engine
        name = request.name
        producer = engine.state.producers.get(name)
        members = None if producer is None else replies.producer_members(producer)

        def finish(waited_ms: float) -> Reply:
            if members is None:
                raise NotFound(
                    f"unknown or expired producer {quoted(name)}",
                    {"producer": name},
                )
            return Reply(replies.encode({**members, "performance": request.timings()}))

        return _grounded(engine, name, PendingReply(0, 0, finish))


def _grounded(engine: Engine, name: str, held: PendingReply) -> PendingReply:
    """A reply that also waits for what it may say of a producer.

    Producers have no marks of their own: an epoch is as safe as the topics it went to, and one
    without records as all that is in the log so far.
    """
    topics = engine.state.topics
    durable = held.durable
    producer = engine.state.producers.get(name)
    if producer is not None and producer.committed is not None:
        for topic, _, _ in producer.committed.ranges:
            mark = topics[topic].mark_durable if topic in topics else engine.control_mark
            durable = max(durable, mark)
    return PendingReply(max(held.written, engine.journal.jobs.appended), durable, held.finish)


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
