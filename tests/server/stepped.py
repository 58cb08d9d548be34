"""A server in the loop of a test, whose disk takes a step only when told.

Owns: the server, connections to it, when its log goes on. Must not know: what is said.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any

from logqueue.server.auth import parse_keys
from logqueue.server.http.connection import HttpConnection
from logqueue.server.runtime import Runtime
from logqueue.server.settings import Settings
from tests.clock import ManualClock
from tests.server.lines import Line, turns
from wal.testing.simfs import SimFileSystem

HOST = "localhost"
_VOLATILE = re.compile(
    rb'"performance":\{[^}]*\}|"uptime_ms":[0-9]+|"log_id":"[0-9a-f]+|content-length: [0-9]+\r\n'
)


class Stepped:
    """A server; make it inside a running loop.

    Attributes:
        runtime: The server.
        syncs: How often its jobs log was synced.
    """

    def __init__(self, keys: str = "", *, has_memo: bool = True, **settings: Any) -> None:
        """A server without data.

        Args:
            keys: A key list; "" for a server without keys.
            has_memo: False makes it parse every head.
            settings: Further ones.
        """
        self.clock = ManualClock()
        self.runtime = Runtime(
            Settings(data_dir=".", allow_host=(HOST,), api_keys=parse_keys(keys), **settings),
            fs=SimFileSystem(Random(0)),
            clock=self.clock,
            is_stepped=True,
        )
        self.runtime.recover()
        self.dispatcher = self.runtime.begin()
        self.api = self.runtime.api
        if not has_memo:
            vars(self.api.heads)["find"] = lambda *_: None

    def connect(self) -> Line:
        """A connection."""
        return Line(self.api)

    @property
    def syncs(self) -> int:
        return self.runtime.engine.journal.jobs.stats.syncs

    async def rest(self) -> None:
        """Let the server do all it can, and its disk, too."""
        await turns()
        while self.runtime.engine.journal.jobs.step():
            self.dispatcher.barrier.notify()
            await turns()

    async def talk(self, line: Line, *packets: bytes) -> bytes:
        """Send packets, each when the server has come to rest; what it answers."""
        for packet in packets:
            line.send(packet)
            await self.rest()
        return line.read()

    async def stop(self) -> None:
        """End it."""
        self.runtime.drain()
        await self.rest()
        await self.runtime.stop()


def request(
    method: str, path: str, body: bytes = b"", *fields: bytes, key: str = "", length: bytes = b""
) -> bytes:
    """A request; `length` is what it says of its body, if not the truth."""
    lines = [b"%b %b HTTP/1.1" % (method.encode(), path.encode()), b"host: " + HOST.encode()]
    if key:
        lines.append(b"authorization: Bearer " + key.encode())
    if body:
        lines.append(b"content-type: application/json")
    if body or length:
        lines.append(b"content-length: " + (length or b"%d" % len(body)))
    return b"\r\n".join([*lines, *fields, b"", b""]) + body


def append(topic: str = "q", data: bytes = b"1", **options: Any) -> bytes:
    """A write of one record."""
    return request("POST", f"/v0/topics/{topic}", b'{"records":[{"data":%b}]}' % data, **options)


def claim(topic: str = "q", node: str = "w", **options: Any) -> bytes:
    """A claim of one job."""
    body = b'{"node":"%b","max":1}' % node.encode()
    return request("POST", f"/v0/topics/{topic}/claim", body, **options)


def statuses(replies: bytes) -> list[int]:
    """The statuses of replies."""
    return [int(found) for found in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", replies)]


def steady(replies: bytes) -> bytes:
    """Replies without what differs from run to run."""
    return _VOLATILE.sub(b"", replies)


def begun(line: Line) -> int:
    """How many requests of a connection are in progress."""
    connection = line._protocol
    assert isinstance(connection, HttpConnection)
    return len(connection._line)
