"""Redis Streams over RESP: XADD, XREADGROUP, XACK with XDEL, XREAD for watchers.

Owns: Redis' commands and how its replies are read. Must not know: the other peers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bench.load import Connection, LoadFailed, Read, Script
from bench.loops import Tally
from bench.peers.following import Follower
from bench.peers.peer import Peer, installed_version, join

GROUP = b"workers"
_ID = re.compile(rb"\$\d+\r\n(\d+-\d+)\r\n")
_COUNT = re.compile(rb"\*1\r\n\*2\r\n\$\d+\r\n[^\r]*\r\n\*(\d+)\r\n")
_ENTRY = re.compile(rb"\*2\r\n\$\d+\r\n(\d+-\d+)\r\n\*2\r\n\$1\r\nd\r\n\$\d+\r\n[^\r]*\r\n")


class RedisStreams(Peer):
    """A stream per queue with one consumer group."""

    name = "Redis Streams"
    install = "apt install redis-server"
    settings = "appendonly yes, appendfsync always, save ''"
    client = "RESP, ready-made bytes; ids of replies found by a compiled pattern"
    batch = "100 commands in one write; claims by COUNT 100"

    @classmethod
    def version(cls) -> str:
        """That of redis-server."""
        return installed_version("redis-server", "--version")

    def command(self, port: int) -> Sequence[str | Path]:
        """No configuration file: all settings are here."""
        durable = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
        where = ("--bind", "127.0.0.1", "--port", str(port), "--dir", self.place)
        return ("redis-server", *where, *durable)

    async def prepare(self, connection: Connection, queue: str, follows: bool) -> None:
        """The group makes the stream."""
        make = command(b"XGROUP", b"CREATE", queue.encode(), GROUP, b"0", b"MKSTREAM")
        await connection.call(make, replies(1, b"+OK"))

    def append(
        self, connection: Connection, queue: str, payloads: Sequence[bytes], tally: Tally
    ) -> Script:
        """One XADD per payload."""
        content, read = _adds(queue, payloads), entry_ids(len(payloads))
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
        """XADD, XREADGROUP, then XACK and XDEL, so that a finished job is gone."""
        stream, jobs = queue.encode(), len(payloads)
        added, delivered = entry_ids(jobs), entries(jobs)
        claim = command(
            *(b"XREADGROUP", b"GROUP", GROUP, b"w%d" % id(connection), b"COUNT", b"%d" % jobs),
            *(b"STREAMS", stream, b">"),
        )
        finished = replies(2, b":%d" % jobs)
        content = _adds(queue, payloads)
        while not tally.stopped:
            yield content, added
            ids = yield claim, delivered
            before = len(seen)
            seen.update(ids)
            if len(seen) != before + jobs:
                raise LoadFailed("Redis delivered an entry twice")
            ack = command(b"XACK", stream, GROUP, *ids) + command(b"XDEL", stream, *ids)
            yield ack, finished
            tally.add(jobs)

    async def follow(self, queue: str, followers: Sequence[Follower]) -> None:
        """XREAD BLOCK, again after each reply."""
        stream = queue.encode()

        def read(after: bytes) -> bytes:
            return command(b"XREAD", b"BLOCK", b"0", b"STREAMS", stream, after)

        def answer(data: bytes) -> bytes | None:
            ids = whole_entries(data)
            return read(ids[-1]) if ids else None

        for follower in followers:
            follower.opening, follower.answer = read(b"0"), answer
        await join(self.address, followers)


def command(*words: bytes) -> bytes:
    """One command."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


def _adds(queue: str, payloads: Sequence[bytes]) -> bytes:
    return b"".join(command(b"XADD", queue.encode(), b"*", b"d", one) for one in payloads)


def refuse_errors(data: bytes) -> None:
    """An error reply ends the measurement."""
    if data[:1] == b"-" or b"\r\n-" in data:
        raise LoadFailed(f"Redis refused: {data[:200]!r}")


def replies(count: int, expected: bytes) -> Read:
    """Reads that many equal replies of one line."""
    whole = (expected + b"\r\n") * count

    def read(data: bytes) -> tuple[bytes, int] | None:
        refuse_errors(data)
        if len(data) < len(whole):
            return None
        if data != whole:
            raise LoadFailed(f"Redis answered {data[:200]!r}")
        return data, len(data)

    return read


def entry_ids(count: int) -> Read:
    """Reads the replies to that many XADD."""

    def read(data: bytes) -> tuple[list[bytes], int] | None:
        refuse_errors(data)
        ids = _ID.findall(data)
        return (ids, len(data)) if len(ids) == count else None

    return read


def entries(count: int) -> Read:
    """Reads the ids of a reply of that many entries."""

    def read(data: bytes) -> tuple[list[bytes], int] | None:
        refuse_errors(data)
        if data.startswith((b"*-1", b"$-1")):
            raise LoadFailed("Redis had no entries to deliver")
        ids = whole_entries(data)
        if ids is None:
            return None
        if len(ids) != count:
            raise LoadFailed(f"Redis delivered {len(ids)} entries of at least {count}")
        return ids, len(data)

    return read


def whole_entries(data: bytes) -> list[bytes] | None:
    """The ids in the entries of one stream, None as long as some are missing."""
    announced = _COUNT.match(data)
    if announced is None:
        return None
    ids: list[bytes] = _ENTRY.findall(data)
    return ids if len(ids) == int(announced[1]) else None
