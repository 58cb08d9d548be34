"""Message move tasks: dead letters go back, in the background.

Owns: how they are named, and what SQS calls their states. Must not know: how letters are moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from logqueue.core import commands as cmd
from logqueue.core.queue_topic import QueueTopic
from logqueue.errors import Forbidden, NotFound
from logqueue.model import limits
from logqueue.model.scopes import Scope
from logqueue.server.engine.letter_operations import redrive_steps
from logqueue.server.engine.operations import BackgroundOperation
from logqueue.server.http.requests import Answer, Reply
from logqueue.server.sqs.addresses import queue_of_arn
from logqueue.server.sqs.bodies import CancelMoveBody, ListMovesBody, StartMoveBody, number
from logqueue.server.sqs.calls import SqsCall, action, reply
from logqueue.server.sqs.queues import NAMES_PER_STEP
from logqueue.server.sqs.refusals import (
    INVALID_PARAMETER,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED,
    SqsRefusal,
)

ACTION: Final = "redrive"
PER_S_MAX: Final = 500
RESULTS_MAX: Final = 10
_STATES: Final[Mapping[str, str]] = {
    "running": "RUNNING",
    "done": "COMPLETED",
    "failed": "FAILED",
    "cancelled": "CANCELLED",
}


@action("StartMessageMoveTask", StartMoveBody, Scope.WRITE)
def start(call: SqsCall, body: StartMoveBody) -> Answer:
    """Move the messages of a dead-letter queue to where they came from, or to another queue."""
    rate = number(
        "MaxNumberOfMessagesPerSecond", body.max_number_of_messages_per_second, 1, PER_S_MAX
    )
    source = _queue(call, body.source_arn, "SourceArn")
    target = None
    if body.destination_arn is not None:
        target = _queue(call, body.destination_arn, "DestinationArn").name
        call.request.name = source.name
        if target == source.name:
            raise SqsRefusal(INVALID_PARAMETER, "source and destination must be two queues")
    if any(known.state == "running" for known in _moves(call, source.name)):
        raise SqsRefusal(
            UNSUPPORTED, "there is already a task running: only one per source queue at a time"
        )
    return call.request.unless_gone(_start(call, source, target, rate or 0))


async def _start(call: SqsCall, source: QueueTopic, target: str | None, rate: int) -> Reply:
    if not await _is_dead_letter_queue(call, source.name):
        raise SqsRefusal(
            INVALID_PARAMETER, "the source queue must be the dead-letter queue of another queue"
        )
    request = call.request
    check = None
    if request.key is not None and request.key.prefixes:
        check = partial(_require_origin_allowed, call)
    command = cmd.Redrive(source.name, to=target, limit=limits.U32_MAX, check_target=check)
    engine = call.dispatcher.engine
    # What is wrong with it is said now.
    engine.execute(cmd.RedriveLetters(source.name, (), command))
    steps_of = partial(redrive_steps, engine, command)
    operation = call.dispatcher.operations.start(ACTION, source.name, steps_of, rate_per_s=rate)
    call.observations.note_move(operation.id, target)
    return reply({"TaskHandle": operation.id})


async def _is_dead_letter_queue(call: SqsCall, name: str) -> bool:
    topics = [*call.dispatcher.engine.state.topics.values()]
    for begin in range(0, len(topics), NAMES_PER_STEP):
        if any(t.config.dead_letter == name for t in topics[begin : begin + NAMES_PER_STEP]):
            return True
        await asyncio.sleep(0)
    return False


def _require_origin_allowed(call: SqsCall, target: str) -> None:
    if not call.request.allows(target):
        raise Forbidden(
            "this key may not move messages to queues outside its prefixes, and one came from there"
        )


@action("ListMessageMoveTasks", ListMovesBody, Scope.READ, is_read=True)
def list_tasks(call: SqsCall, body: ListMovesBody) -> Answer:
    """The latest tasks of a source, the latest first."""
    limit = number("MaxResults", body.max_results, 1, RESULTS_MAX) or 1
    source = _queue(call, body.source_arn, "SourceArn")
    return reply(
        {"Results": [_members(call, known) for known in _moves(call, source.name)[:limit]]}
    )


def _members(call: SqsCall, operation: BackgroundOperation) -> dict[str, Any]:
    is_running = operation.state == "running"
    state = "CANCELLING" if is_running and operation.is_stopping else _STATES[operation.state]
    members: dict[str, Any] = {
        "Status": state,
        "SourceArn": call.addresses.arn(operation.topic),
        "ApproximateNumberOfMessagesMoved": operation.changed,
        "ApproximateNumberOfMessagesToMove": operation.total,
        "StartedTimestamp": operation.started_at,
    }
    target = call.observations.moves.get(operation.id)
    if target is not None:
        members["DestinationArn"] = call.addresses.arn(target)
    if is_running:
        members["TaskHandle"] = operation.id
    if operation.rate_per_s:
        members["MaxNumberOfMessagesPerSecond"] = operation.rate_per_s
    if operation.error is not None:
        members["FailureReason"] = operation.error.hiding(call.request.allows).message
    return members


@action("CancelMessageMoveTask", CancelMoveBody, Scope.WRITE)
def cancel(call: SqsCall, body: CancelMoveBody) -> Answer:
    """Stop a task; what it has moved stays where it is."""
    operations = call.dispatcher.operations
    try:
        operation = operations.find(body.task_handle, call.request.allows)
    except NotFound:
        raise SqsRefusal(RESOURCE_NOT_FOUND, "there is no such task") from None
    if operation.action != ACTION or operation.dry_run:
        raise SqsRefusal(RESOURCE_NOT_FOUND, "there is no such task")
    if operation.state != "running":
        raise SqsRefusal(UNSUPPORTED, "only a running task can be cancelled")
    operations.stop(operation)
    return reply({"ApproximateNumberOfMessagesMoved": operation.changed})


def _moves(call: SqsCall, source: str) -> list[BackgroundOperation]:
    known = call.dispatcher.operations.listed(call.request.allows)
    return [one for one in known if (one.action, one.topic) == (ACTION, source)]


def _queue(call: SqsCall, arn: str, parameter: str) -> QueueTopic:
    try:
        return call.queue(queue_of_arn(arn, parameter))
    except NotFound:
        raise SqsRefusal(
            RESOURCE_NOT_FOUND, "the resource that you specified for the ARN does not exist"
        ) from None
