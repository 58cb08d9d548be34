"""One request of an SQS client, as its action sees it.

Owns: what actions have in common: the queue they are about, whether the caller may touch it, and
how replies are made. Must not know: single actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from logqueue.core.queue_topic import QueueTopic
from logqueue.errors import Forbidden, NotAQueue
from logqueue.model.scopes import Scope
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.http.requests import Answer, HttpRequest, Reply
from logqueue.server.service import Service
from logqueue.server.sqs.addresses import Addresses
from logqueue.server.sqs.observations import Observations
from logqueue.server.sqs.refusals import AMZ_JSON, request_id

F = TypeVar("F", bound=Callable[..., Answer])
_ACTION = "_sqs_action"


class SqsCall(NamedTuple):
    """One request that was authenticated."""

    service: Service
    request: HttpRequest
    dispatcher: Dispatcher
    addresses: Addresses
    observations: Observations

    def require_allowed(self, queue: str) -> None:
        """Check that the caller's key covers a queue.

        Raises:
            Forbidden: It does not.
        """
        if not self.request.allows(queue):
            raise Forbidden("this key may not access queues outside its prefixes")

    def require(self, scope: Scope) -> None:
        """Check that the caller's key has a scope.

        Raises:
            Forbidden: It does not.
        """
        if self.request.key is not None:
            self.request.key.require(scope)

    def queue(self, name: str) -> QueueTopic:
        """A queue as of now, which the caller's key covers.

        Raises:
            Forbidden: The key does not.
            TopicNotFound, NotAQueue: There is no such queue.
        """
        self.require_allowed(name)
        engine = self.dispatcher.engine
        if name not in engine.state.topics:
            # It may be among what was submitted in this turn.
            self.dispatcher.turn.run()
        topic = engine.topic_now(name)
        self.request.name = name
        if not isinstance(topic, QueueTopic):
            raise NotAQueue.named(name)
        return topic

    @property
    def log(self) -> str:
        """What tells the data of this server from others'."""
        return self.dispatcher.engine.journal.jobs.identity.hex()


class Action(NamedTuple):
    """One action.

    Attributes:
        scope: What a key needs for it.
        is_read: It changes nothing, so that a standby answers it.
    """

    name: str
    body: msgspec.json.Decoder[Any]
    scope: Scope
    is_read: bool
    carry_out: Callable[[SqsCall, Any], Answer]


def action(name: str, body: type[Any], scope: Scope, *, is_read: bool = False) -> Callable[[F], F]:
    """Register a function as what carries out an action."""

    def register(carry_out: F) -> F:
        row = Action(name, msgspec.json.Decoder(body), scope, is_read, carry_out)
        setattr(carry_out, _ACTION, row)
        return carry_out

    return register


def actions_in(*modules: Any) -> Mapping[str, Action]:
    """The actions that functions of some modules carry out, by name."""
    rows: dict[str, Action] = {}
    for module in modules:
        for member in vars(module).values():
            row = getattr(member, _ACTION, None)
            if row is not None:
                rows[row.name] = row
    return rows


def reply(members: Mapping[str, Any]) -> Reply:
    """The reply that has these members; those that are None are left out."""
    shown = {name: value for name, value in members.items() if value is not None}
    return Reply(msgspec.json.encode(shown), 200, (request_id(),), AMZ_JSON)
