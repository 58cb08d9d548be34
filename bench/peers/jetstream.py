"""NATS JetStream over the NATS protocol: publish, pull and ack with confirmation, push consumers.

Owns: its messages and how its replies are read. Must not know: the other peers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bench.load import Connection, LoadFailed, Read, Script, connect
from bench.loops import Tally
from bench.peers.following import Follower
from bench.peers.peer import Peer, installed_version, join

CONSUMER = "workers"
PULL_NS = 60_000_000_000
_STORED = re.compile(rb'MSG \S+ 1 \d+\r\n\{"stream":"[^"]*", ?"seq":\d+\}\r\n')
_PULLED = re.compile(rb"MSG \S+ 1 (\$JS\.ACK\S+) \d+\r\n[^\r]*\r\n")
_CONFIRMED = re.compile(rb"MSG \S+ 1 0\r\n\r\n")
_REPLY = re.compile(rb"MSG \S+ 1 \d+\r\n(\{.*\})\r\n")
HELLO = b'CONNECT {"verbose":false,"pedantic":false,"headers":false}\r\n'


class JetStream(Peer):
    """A stream per queue, its messages removed when acked."""

    name = "NATS JetStream"
    install = "go install github.com/nats-io/nats-server/v2@latest"
    settings = "file storage, sync_interval: always, 1 replica; acks confirmed"
    client = "the NATS protocol, ready-made bytes; replies found by compiled patterns"
    batch = "100 messages in one write; a pull of 100"

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._inboxes: dict[Connection, bytes] = {}

    @classmethod
    def version(cls) -> str:
        """That of nats-server."""
        return installed_version("nats-server", "--version")

    def command(self, port: int) -> Sequence[str | Path]:
        """A configuration file in the folder of the run."""
        config = self.place / "nats.conf"
        config.write_text(
            f'host: 127.0.0.1\nport: {port}\nping_interval: "1h"\n'
            f'jetstream {{ store_dir: "{self.place}/data", sync_interval: always }}\n'
        )
        return ("nats-server", "-c", config)

    async def connect(self, count: int) -> list[Connection]:
        """Connections with an inbox each."""
        made = await connect(self.address, count)
        for one in made:
            inbox = self._inboxes[one] = b"_INBOX.%d" % len(self._inboxes)
            await one.call(HELLO + b"SUB %s 1\r\nPING\r\n" % inbox, _ready)
        return made

    async def prepare(self, connection: Connection, queue: str, follows: bool) -> None:
        """A work queue and its consumer, or a log."""
        stream = {
            "name": queue,
            "subjects": [queue],
            "storage": "file",
            "retention": "limits" if follows else "workqueue",
        }
        await self._ask(connection, f"STREAM.CREATE.{queue}", stream)
        if not follows:
            consumer = {
                "durable_name": CONSUMER,
                "ack_policy": "explicit",
                "ack_wait": PULL_NS,
                "max_ack_pending": 100_000,
            }
            path = f"CONSUMER.DURABLE.CREATE.{queue}.{CONSUMER}"
            await self._ask(connection, path, {"stream_name": queue, "config": consumer})

    def append(
        self, connection: Connection, queue: str, payloads: Sequence[bytes], tally: Tally
    ) -> Script:
        """One message per payload, each confirmed."""
        inbox = self._inboxes[connection]
        content, read = _publishes(queue, inbox, payloads), matches(_STORED, len(payloads))
        while not tally.stopped:
            yield content, read
            tally.add(len(payloads))

    def cycle(
        self,
        connection: Connection,
        queue: str,
        payloads: Sequence[bytes],
        tally: Tally,
        seen: set[bytes],
    ) -> Script:
        """Publish, pull, ack; the server confirms each ack."""
        inbox, jobs = self._inboxes[connection], len(payloads)
        content, stored = _publishes(queue, inbox, payloads), matches(_STORED, jobs)
        wish = msgspec.json.encode({"batch": jobs, "expires": PULL_NS})
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{queue}.{CONSUMER}"
        pull, pulled = _publish(subject.encode(), inbox, wish), matches(_PULLED, jobs)
        confirmed = matches(_CONFIRMED, jobs)
        while not tally.stopped:
            yield content, stored
            acks = yield pull, pulled
            before = len(seen)
            seen.update(acks)
            if len(seen) != before + jobs:
                raise LoadFailed("JetStream delivered a message twice")
            yield b"".join(_publish(one, inbox, b"+ACK") for one in acks), confirmed
            tally.add(jobs)

    async def follow(self, queue: str, followers: Sequence[Follower]) -> None:
        """A push consumer each, kept in memory, without acks."""
        (calls,) = await self.connect(1)
        for number, follower in enumerate(followers):
            subject = f"follow.{queue}.{number}"
            follower.opening = HELLO + f"SUB {subject} 1\r\n".encode()
        await join(self.address, followers)
        for number in range(len(followers)):
            config = {
                "deliver_subject": f"follow.{queue}.{number}",
                "ack_policy": "none",
                "deliver_policy": "all",
                "mem_storage": True,
                "inactive_threshold": PULL_NS,
            }
            await self._ask(
                calls, f"CONSUMER.CREATE.{queue}", {"stream_name": queue, "config": config}
            )
        calls.close()

    async def _ask(self, connection: Connection, path: str, body: Mapping[str, object]) -> None:
        inbox = self._inboxes[connection]
        content = _publish(f"$JS.API.{path}".encode(), inbox, msgspec.json.encode(body))
        await connection.call(content, matches(_REPLY, 1))


def matches(pattern: re.Pattern[bytes], count: int) -> Read:
    """Reads that many messages; others, such as a ping, do not count."""

    def read(data: bytes) -> tuple[list[bytes], int] | None:
        refuse_errors(data)
        found = pattern.findall(data)
        return (found, len(data)) if len(found) == count else None

    return read


def refuse_errors(data: bytes) -> None:
    """An error of the protocol, or of JetStream, ends the measurement."""
    if b"-ERR" in data or b'"error":' in data:
        raise LoadFailed(f"NATS refused: {data[:300]!r}")


def _ready(data: bytes) -> tuple[bytes, int] | None:
    refuse_errors(data)
    return (data, len(data)) if data.endswith(b"PONG\r\n") else None


def _publish(subject: bytes, inbox: bytes, payload: bytes) -> bytes:
    return b"PUB %s %s %d\r\n%s\r\n" % (subject, inbox, len(payload), payload)


def _publishes(queue: str, inbox: bytes, payloads: Sequence[bytes]) -> bytes:
    return b"".join(_publish(queue.encode(), inbox, one) for one in payloads)
