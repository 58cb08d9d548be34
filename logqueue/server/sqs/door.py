"""The door for clients of SQS: who sends a request, and which action of which queue it names.

Owns: the routes, authentication, counting, refusals. Must not know: what actions do.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from logqueue.api.operations.row import Body
from logqueue.errors import NotAQueue, TopicNotFound
from logqueue.model.scopes import NO_SCOPE
from logqueue.server.engine.pending import Pending
from logqueue.server.http.api import catch_up
from logqueue.server.http.requests import Answer, HttpRequest, Later, Reply
from logqueue.server.http.routing import Route
from logqueue.server.service import Service
from logqueue.server.sqs import moving, queues, receiving, sending, settling
from logqueue.server.sqs.addresses import PATH, Addresses, queue_of_url
from logqueue.server.sqs.bodies import QueueBody, SendBody, read
from logqueue.server.sqs.calls import Action, SqsCall, actions_in
from logqueue.server.sqs.observations import Observations
from logqueue.server.sqs.refusals import (
    INVALID_ACTION,
    MISSING_PARAMETER,
    SERIALIZATION,
    UNSUPPORTED,
    SqsRefusal,
    refuse,
)
from logqueue.server.sqs.signing import authenticate

BODY_BYTES_MAX: Final = 8 << 20
"""A message of 1 MiB may take six times as much as JSON that is all escapes."""
STEP_BYTES: Final = 256 << 10
"""A longer body is read in steps."""
_TARGET: Final = "AmazonSQS."
_JSON: Final = b"application/x-amz-json-1."
_NOT_CARRIED: Final = (_TARGET + "AddPermission", _TARGET + "RemovePermission")
ACTIONS: Final = actions_in(queues, sending, receiving, settling, moving)


def sqs_routes(service: Service) -> list[Route]:
    """The routes of clients of SQS. The path does not matter: the body names the queue."""
    answer = SqsDoor(service).answer
    patterns = ("/", PATH, PATH + "/", PATH + "/*", PATH + "/*/*")
    return [
        Route(
            "POST",
            pattern,
            NO_SCOPE,
            Body.UNCHECKED,
            answer,
            late_key=True,
            body_bytes_max=BODY_BYTES_MAX,
            refuse=refuse,
        )
        for pattern in patterns
    ]


class SqsDoor:
    """Answers requests of SQS clients."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._observations = Observations()

    def answer(self, request: HttpRequest) -> Answer:
        """Any request below /sqs.

        Raises:
            SqsRefusal, LogqueueError: Refused.
        """
        if len(request.body) > STEP_BYTES:
            request.wait()
            return self._answer_large(request, request.body)
        self._authenticate(request)
        action = self._admit(request)
        return self._carry_out(request, action, read(action.body, request.body))

    async def _answer_large(self, request: HttpRequest, content: bytes) -> Later:
        """The same in steps between other requests, one such body at a time."""
        async with self._service.large_bodies:
            request.body = content
            self._authenticate(request)
            await asyncio.sleep(0)
            action = self._admit(request)
            body = read(action.body, content)
            request.body = content = b""
            await asyncio.sleep(0)
            answer = self._carry_out(request, action, body)
        return await _resolved(request, answer)

    def _authenticate(self, request: HttpRequest) -> None:
        """Find the key of a request, and count the request as in progress."""
        service = self._service
        dispatcher = service.require_serving()
        if service.keys:
            key = authenticate(request, service.keys, dispatcher.engine.clock.now_ms())
            request.key = key
            service.enter(key)
            request.is_counted = True

    def _admit(self, request: HttpRequest) -> Action:
        """The action that is asked for, if the caller may ask for it here."""
        action = _action_of(request)
        request.route = f"{PATH} {action.name}"
        if not action.is_read:
            self._service.require_writer()
        if request.key is not None:
            request.key.require(action.scope)
        return action

    def _carry_out(self, request: HttpRequest, action: Action, body: Any) -> Answer:
        service = self._service
        dispatcher = service.require_serving()
        addresses = Addresses(request, service.settings.advertise)
        call = SqsCall(service, request, dispatcher, addresses, self._observations)
        engine = dispatcher.engine
        if (engine.behind or engine.lagging) and isinstance(body, QueueBody | SendBody):
            name = queue_of_url(body.queue_url)
            if engine.is_far_behind(name):
                return self._answer_behind(call, name, action, body)
        try:
            return action.carry_out(call, body)
        except (TopicNotFound, NotAQueue) as refusal:
            return dispatcher.refuse(request.name, refusal)

    async def _answer_behind(self, call: SqsCall, name: str, action: Action, body: Any) -> Later:
        """Let what the queue waits for go first, a little in each turn of the loop."""
        await catch_up(self._service.engine, name)
        return await _resolved(call.request, action.carry_out(call, body))


async def _resolved(request: HttpRequest, answer: Answer) -> Later:
    if isinstance(answer, Reply):
        return answer
    if isinstance(answer, Pending):
        return await request.unless_gone(_when_ready(answer))
    return await answer


async def _when_ready(pending: Pending[Reply]) -> Reply:
    await pending.ready()
    reply = pending.answer()
    reply.on_undelivered = pending.on_undelivered
    return reply


def _action_of(request: HttpRequest) -> Action:
    target = content_type = b""
    for header, value in request.headers:
        if header == b"x-amz-target":
            target = value
        elif header == b"content-type":
            content_type = value
    if not target:
        raise SqsRefusal(
            MISSING_PARAMETER,
            "this server speaks the JSON protocol of SQS only: send a header X-Amz-Target, as "
            "clients of late 2023 and later do",
        )
    name = target.decode("ascii", "replace")
    action = ACTIONS.get(name.removeprefix(_TARGET)) if name.startswith(_TARGET) else None
    if name in _NOT_CARRIED:
        raise SqsRefusal(UNSUPPORTED, "scopes and prefixes of keys decide who may do what here")
    if action is None:
        raise SqsRefusal(INVALID_ACTION, f"the action {name[:80]} is not one of this server")
    if not content_type.lower().startswith(_JSON):
        raise SqsRefusal(
            SERIALIZATION, "send the body as JSON: content-type: application/x-amz-json-1.0"
        )
    return action
