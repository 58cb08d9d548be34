"""The door for clients of SQS: who sends a request, and which action of which queue it names.

Owns: the routes, authentication, counting, refusals. Must not know: what actions do.
"""

from __future__ import annotations

from typing import Any, Final

from logqueue.api.operations.row import Body
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
    SqsRefusal,
    refuse,
)
from logqueue.server.sqs.signing import authenticate

BODY_BYTES_MAX: Final = 8 << 20
"""A message of 1 MiB may take six times as much as JSON that is all escapes."""
_TARGET: Final = "AmazonSQS."
_JSON: Final = b"application/x-amz-json-1."
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
        service = self._service
        dispatcher = service.require_serving()
        if service.keys:
            now = dispatcher.engine.clock.now_ms()
            key = authenticate(request, service.keys, now)
            request.key = key
            service.enter(key)
            request.is_counted = True
        action = _action_of(request)
        request.route = f"{PATH} {action.name}"
        if not action.is_read:
            service.require_writer()
        if request.key is not None:
            request.key.require(action.scope)
        body = read(action.body, request.body)
        advertised = service.settings.advertise
        call = SqsCall(
            service, request, dispatcher, Addresses(request, advertised), self._observations
        )
        engine = dispatcher.engine
        if (engine.behind or engine.lagging) and isinstance(body, QueueBody | SendBody):
            name = queue_of_url(body.queue_url)
            if engine.is_far_behind(name):
                return self._answer_behind(call, name, action, body)
        return action.carry_out(call, body)

    async def _answer_behind(self, call: SqsCall, name: str, action: Action, body: Any) -> Later:
        """Let what the queue waits for go first, a little in each turn of the loop."""
        await catch_up(self._service.engine, name)
        answer = action.carry_out(call, body)
        if isinstance(answer, Reply):
            return answer
        if isinstance(answer, Pending):
            return await call.request.unless_gone(_when_ready(answer))
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
    if action is None:
        raise SqsRefusal(INVALID_ACTION, f"the action {name[:80]} is not one of this server")
    if not content_type.lower().startswith(_JSON):
        raise SqsRefusal(
            SERIALIZATION, "send the body as JSON: content-type: application/x-amz-json-1.0"
        )
    return action
