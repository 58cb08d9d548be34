"""What one WebSocket client is written, counted: answers of one turn leave together, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from logqueue.errors import Throttled
from logqueue.server.handlers.socket_session import OUTBOX_MAX, SocketSession
from tests.server.memory import Memory


class Socket:
    """A connection that notes each write."""

    listener: SocketSession

    def __init__(self) -> None:
        self.is_paused = False
        self.writes: list[list[dict[str, Any]]] = []
        self.reads = True
        self.held: list[int] = []
        self.bytes_max = 1 << 30

    def send(self, framed: bytes) -> None:
        """See WebSocket."""
        found, at = [], 0
        while at < len(framed):
            size, begin = framed[at + 1], at + 2
            if size == 126:
                size, begin = int.from_bytes(framed[at + 2 : at + 4], "big"), at + 4
            at = begin + size
            found.append(json.loads(framed[begin:at]))
        self.writes.append(found)

    def read(self, is_wanted: bool) -> None:
        """See WebSocket."""
        self.reads = is_wanted

    def hold(self, size: int) -> None:
        """See WebSocket."""
        if size > self.bytes_max:
            raise Throttled("no room", {})
        self.held.append(size)

    def close(self, code: int, reason: str) -> None:
        """See WebSocket."""
        self.listener.socket_lost()


class Client:
    """A socket, and what it has to say in one turn of the loop."""

    def __init__(self, memory: Memory) -> None:
        self.core = memory.core
        self.socket = Socket()
        make = SocketSession
        socket = cast(Any, self.socket)
        self.session = self.core._run(lambda: make(self.core._service, None, socket))

    def say(self, *messages: dict[str, Any]) -> list[list[dict[str, Any]]]:
        """Say it; what was written then, by write."""
        texts = [json.dumps(message).encode() for message in messages]
        self.socket.writes = []

        def receive() -> None:
            for text in texts:
                self.session.message_received(text)

        self.core._run(receive)
        return self.socket.writes


@pytest.fixture
def memory() -> Iterator[Memory]:
    """A server with a queue whose writes are synced."""
    server = Memory()
    server.queue(durability="fsync")
    yield server
    server.close()


def publish(number: int) -> dict[str, Any]:
    """A write of one record."""
    return {"op": "publish", "topic": "q", "records": [{"data": number}], "request_id": number}


def test_acks_of_one_turn_leave_in_one_write(memory: Memory) -> None:
    jobs = memory.dispatcher.engine.journal.jobs
    client = Client(memory)
    frames, syncs = jobs.appended, jobs.stats.syncs
    (acks,) = client.say(*[publish(n) for n in range(OUTBOX_MAX)])
    assert [ack["request_id"] for ack in acks] == [*range(OUTBOX_MAX)]
    assert (jobs.appended, jobs.stats.syncs) == (frames + 1, syncs + 1)


def test_what_is_over_the_bound_of_a_turn_waits_for_the_next(memory: Memory) -> None:
    client = Client(memory)
    writes = client.say(*[publish(n) for n in range(2 * OUTBOX_MAX + 1)])
    assert [len(acks) for acks in writes] == [OUTBOX_MAX, OUTBOX_MAX, 1]
    assert [ack["request_id"] for acks in writes for ack in acks] == [*range(2 * OUTBOX_MAX + 1)]
    assert client.socket.reads


def test_an_answer_keeps_its_place_behind_acks_that_wait_for_the_log(memory: Memory) -> None:
    client = Client(memory)
    writes = client.say(publish(1), {"op": "ping", "request_id": 2}, publish(3), publish(4))
    assert [said["request_id"] for write in writes for said in write] == [1, 2, 3, 4]
    assert len(writes) == 1


def test_the_ack_of_a_write_comes_before_its_record_to_the_writer(memory: Memory) -> None:
    client, other = Client(memory), Client(memory)
    for follower in (client, other):
        follower.say({"op": "subscribe", "topic": "q"})
    other.socket.writes = []
    client.say(publish(1), publish(2))
    ops = [message["op"] for write in client.socket.writes for message in write]
    assert ops == ["ack", "ack", "record", "caught_up"]
    (only,) = other.socket.writes
    assert [message["op"] for message in only] == ["record", "caught_up"]


def padded(number: int, size: int) -> dict[str, Any]:
    return {**publish(number), "records": [{"data": "x" * size}]}


def test_publishes_are_in_the_books_until_they_are_answered(memory: Memory) -> None:
    client = Client(memory)
    client.say(*(padded(n, 3000) for n in range(3)))
    held = client.socket.held
    # The first alone is not worth an entry.
    assert [size // 3000 for size in held[:2]] == [2, 3]
    assert held[-1] == 0, "all are answered"
    client.socket.held = []
    client.say(publish(3), {"op": "ping", "request_id": 4})
    assert client.socket.held == []


def test_a_socket_without_room_for_its_publishes_is_closed(memory: Memory) -> None:
    client = Client(memory)
    client.socket.bytes_max = 10_000
    writes = client.say(*(padded(n, 3000) for n in range(5)))
    answers = [answer for write in writes for answer in write]
    assert [answer["op"] for answer in answers] == ["ack"] * 4 + ["error"], "in their order"
    assert answers[-1]["code"] == "throttled"
