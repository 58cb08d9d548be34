"""A WebSocket client for tests: commands as JSON, replies and deliveries with a deadline.

Owns: one socket, and the messages that came but were not asked for yet. Must not know: what a good
reply is.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping
from itertools import count
from types import TracebackType
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.http import rawhttp
from tests.http.expect import Json, assert_compact

MESSAGE_TIMEOUT_S = 60.0
LARGE = 100_000
"""Characters of a message from which on its form is not looked at any more."""
UPGRADE = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}
DELIVERIES = frozenset({"record", "caught_up", "tombstone", "topic_deleted"})


class Socket:
    """An open WebSocket. Commands get a request id of their own unless they bring one."""

    def __init__(
        self, address: rawhttp.Address, *, key: str | None = None, path: str = "/v0/ws"
    ) -> None:
        headers = {"authorization": f"Bearer {key}"} if key is not None else {}
        host, port = address
        self._raw = socket.create_connection(address, timeout=MESSAGE_TIMEOUT_S)
        opened = connect(
            f"ws://{host}:{port}{path}",
            sock=self._raw,
            additional_headers=headers,
            proxy=None,
            max_size=None,
            open_timeout=MESSAGE_TIMEOUT_S,
            close_timeout=MESSAGE_TIMEOUT_S,
            ping_interval=None,
            legacy=True,
        )
        assert isinstance(opened, ClientConnection)
        self._connection = opened
        self._ids = count(1)
        self._waiting: list[Json] = []

    def __enter__(self) -> Socket:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Say goodbye and close."""
        self._connection.close()

    def reset(self) -> None:
        """Drop the connection with a TCP reset, as a crashed client would."""
        self._raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self._raw.shutdown(socket.SHUT_RD)
        self._raw.close()

    # -- sending ----------------------------------------------------------------------------

    def send(self, message: object) -> None:
        """One message: text and bytes as they are, anything else as JSON."""
        if isinstance(message, str | bytes):
            self._connection.send(message)
        else:
            text = json.dumps(message, separators=(",", ":"), ensure_ascii=False)
            self._connection.send(text)

    def send_parts(self, *parts: str) -> None:
        """One text message in as many fragments."""
        self._connection.send(parts)

    def post(self, op: str, **fields: Any) -> object:
        """Send a command without waiting; returns its request id."""
        request_id = fields.pop("request_id", next(self._ids))
        self.send({"op": op, "request_id": request_id, **fields})
        return request_id

    def call(self, op: str, **fields: Any) -> Json:
        """Send a command and wait for its reply; deliveries that come first are kept."""
        return self.reply_to(self.post(op, **fields))

    def pong(self, payload: bytes = b"x") -> bool:
        """True when the server answers a ping of the protocol in time."""
        return self._connection.ping(payload).wait(MESSAGE_TIMEOUT_S)

    # -- the same, for when only success matters ----------------------------------------------

    def subscribe(self, topic: str | None = None, **fields: Any) -> Json:
        """Subscribe; returns where each topic begins."""
        if topic is not None:
            fields["topic"] = topic
        reply = self.call("subscribe", **fields)
        assert reply["op"] == "subscribed", reply
        found = reply["topics"]
        assert isinstance(found, dict)
        return found

    def unsubscribe(self, *names: str) -> None:
        """End subscriptions."""
        reply = self.call("unsubscribe", topics=list(names))
        assert reply["op"] == "unsubscribed", reply

    def publish(self, topic: str, *data: object, **fields: Any) -> Json:
        """Publish one record per value; returns the ack."""
        records = [{"data": value} for value in data]
        reply = self.call("publish", topic=topic, records=records, **fields)
        assert reply["op"] == "ack", reply
        return reply

    # -- receiving --------------------------------------------------------------------------

    def next_message(self, timeout_s: float = MESSAGE_TIMEOUT_S) -> Json:
        """The next message of any kind, in the order of arrival."""
        if self._waiting:
            return self._waiting.pop(0)
        return self._receive(time.monotonic() + timeout_s)

    def reply_to(self, request_id: object, timeout_s: float = MESSAGE_TIMEOUT_S) -> Json:
        """The next message that is not a delivery; it must answer this request."""
        reply = self._first(lambda message: message["op"] not in DELIVERIES, timeout_s)
        assert reply["request_id"] == request_id, reply
        return reply

    def delivery(self, timeout_s: float = MESSAGE_TIMEOUT_S) -> Json:
        """The next delivery; replies before it are left for later."""
        return self._first(lambda message: message["op"] in DELIVERIES, timeout_s)

    def drain(self, topics: int = 1) -> list[Json]:
        """Deliveries up to the moment when so many topics have said that they are caught up."""
        found: list[Json] = []
        said: set[str] = set()
        while len(said) < topics:
            found.append(self.delivery())
            if found[-1]["op"] == "caught_up":
                said.add(found[-1]["topic"])
        return found

    def receive(self, count: int) -> list[Json]:
        """Deliveries up to the moment when so many records, exactly, have come."""
        found: list[Json] = []
        while len(records_of(found)) < count:
            found.append(self.delivery())
        assert len(records_of(found)) == count, found
        return found

    def quiet(self, for_s: float) -> bool:
        """True when nothing comes for so long."""
        if self._waiting:
            return False
        try:
            self._waiting.append(self._receive(time.monotonic() + for_s))
        except TimeoutError:
            return True
        return False

    def ended(self, timeout_s: float = MESSAGE_TIMEOUT_S) -> bool:
        """True when the server closes in time without another message."""
        try:
            self._connection.recv(timeout_s)
        except ConnectionClosed:
            return True
        except TimeoutError:
            return False
        return False

    def _first(self, wanted: Callable[[Json], bool], timeout_s: float) -> Json:
        for place, message in enumerate(self._waiting):
            if wanted(message):
                return self._waiting.pop(place)
        deadline = time.monotonic() + timeout_s
        while True:
            message = self._receive(deadline)
            if wanted(message):
                return message
            self._waiting.append(message)

    def _receive(self, deadline: float) -> Json:
        text = self._connection.recv(max(deadline - time.monotonic(), 0.001))
        assert isinstance(text, str), f"not a text message: {text!r}"
        if len(text) < LARGE:
            assert_compact(text.encode())
        message = json.loads(text)
        assert isinstance(message, dict) and isinstance(message["op"], str), message
        return message


def handshake(
    address: rawhttp.Address, headers: Mapping[str, str] | None = None, path: str = "/v0/ws"
) -> rawhttp.RawReply:
    """The reply to an upgrade request; the connection is dropped after it."""
    return rawhttp.exchange(address, rawhttp.head("GET", path, {**UPGRADE, **(headers or {})}))


def of_kind(messages: list[Json], op: str) -> list[Json]:
    """The messages of one kind."""
    return [message for message in messages if message["op"] == op]


def kinds(messages: list[Json]) -> list[str]:
    """The kinds of the messages, equal neighbours taken together."""
    found: list[str] = []
    for message in messages:
        if found[-1:] != [message["op"]]:
            found.append(message["op"])
    return found


def records_of(messages: list[Json], topic: str | None = None) -> list[Json]:
    """All records of the deliveries, of one topic or of all."""
    return [
        record
        for message in of_kind(messages, "record")
        if topic in (None, message["topic"])
        for record in message["records"]
    ]


def seqs_of(messages: list[Json], topic: str | None = None) -> list[int]:
    """The seqs of all delivered records, in order of arrival."""
    return [record["$seq"] for record in records_of(messages, topic)]


def data_of(messages: list[Json], topic: str | None = None) -> list[Any]:
    """The data of all delivered records, in order of arrival."""
    return [record["data"] for record in records_of(messages, topic)]
