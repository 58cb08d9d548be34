"""SQS spoken to a server in memory, whose clock moves only when told.

Owns: one action as an HTTP request, and its reply. Must not know: what replies should say.
"""

from __future__ import annotations

from typing import Any

import msgspec

from logqueue.testing.core import Exchange
from tests.server.memory import Memory

URL = "http://anywhere/sqs/000000000000/"


class Refused(Exception):
    """An error of SQS.

    Attributes:
        code: Its name in the query protocol.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message


class SqsMemory(Memory):
    """A server in memory with queues of SQS."""

    def begin_action(self, action: str, body: bytes, path: bytes = b"/sqs") -> Exchange:
        """Send a request and do not wait for its reply."""
        headers = [
            (b"content-type", b"application/x-amz-json-1.0"),
            (b"x-amz-target", b"AmazonSQS." + action.encode()),
        ]
        exchange = Exchange("POST", path, b"", headers)
        self.core.submit(exchange, body)
        return exchange

    def act(self, action: str, queue: str | None = None, **members: Any) -> dict[str, Any]:
        """The reply to an action that is answered at once.

        Raises:
            Refused: An error.
        """
        if queue is not None:
            members["QueueUrl"] = URL + queue
        return taken(self.begin_action(action, msgspec.json.encode(members)))

    def create(self, name: str = "q", **attributes: str) -> None:
        """Create a queue."""
        self.act("CreateQueue", QueueName=name, Attributes=attributes)

    def send(self, body: str, queue: str = "q", **members: Any) -> dict[str, Any]:
        """Send one message."""
        return self.act("SendMessage", queue, MessageBody=body, **members)

    def receive(self, queue: str = "q", **members: Any) -> list[dict[str, Any]]:
        """Receive as many messages as there are, ten at most."""
        members = {"MaxNumberOfMessages": 10, "AttributeNames": ["All"], **members}
        found: list[dict[str, Any]] = self.act("ReceiveMessage", queue, **members).get(
            "Messages", []
        )
        return found


def taken(exchange: Exchange) -> dict[str, Any]:
    """The reply that has come.

    Raises:
        Refused: It is an error.
    """
    assert exchange.is_over, "not answered yet"
    body: dict[str, Any] = msgspec.json.decode(exchange.take())
    if exchange.status != 200:
        headers = dict(exchange.headers)
        code = headers[b"x-amzn-query-error"].decode().partition(";")[0]
        raise Refused(exchange.status, code, body["message"])
    return body
