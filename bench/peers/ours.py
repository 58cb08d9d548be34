"""logqueue as one of the peers, over plain HTTP like any other client.

Owns: its start and its scripts. Must not know: the other peers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.appends import append_script
from bench.cycle import Delivered, cycle_script
from bench.load import (
    Connection,
    LoadFailed,
    LoneConnection,
    Script,
    append_request,
    queue_request,
    request,
)
from bench.loops import Tally
from bench.peers.following import Follower
from bench.peers.peer import Peer, join
from bench.watching import Watched
from logqueue import __version__


class Logqueue(Peer):
    """This checkout."""

    name = "logqueue"
    install = "make setup"
    settings = "class fsync (the default of a queue)"
    client = "HTTP/1.1, ready-made bytes; replies of claims decoded by msgspec"
    batch = "one request"

    @classmethod
    def version(cls) -> str:
        """This checkout's."""
        return __version__

    def command(self, port: int) -> Sequence[str | Path]:
        """`serve`."""
        serve = (sys.executable, "-m", "logqueue", "serve")
        return (*serve, "--port", str(port), "--data-dir", self.place / "data")

    def accepts(self, port: int) -> bool:
        """The port opens before the log is read; `/v0/ready` says when it has been."""
        if not super().accepts(port):
            return False
        connection = LoneConnection(self.address)
        try:
            connection.call(request("GET", "/v0/ready"))
        except LoadFailed:
            return False
        finally:
            connection.close()
        return True

    async def prepare(self, connection: Connection, queue: str, follows: bool) -> None:
        """A queue, or a log of the same class."""
        as_log = request("PUT", f"/v0/topics/{queue}", b'{"type":"log","durable":true}')
        await connection.call(as_log if follows else queue_request(queue))

    def append(
        self, connection: Connection, queue: str, payloads: Sequence[bytes], tally: Tally
    ) -> Script:
        """One POST each."""
        return append_script([append_request(queue, payloads)], len(payloads), tally)

    def cycle(
        self,
        connection: Connection,
        queue: str,
        payloads: Sequence[bytes],
        tally: Tally,
        seen: set[bytes],
    ) -> Script:
        """Append, claim, ack."""
        return cycle_script(queue, f"w{id(connection)}", len(payloads), tally, Delivered())

    async def follow(self, queue: str, followers: Sequence[Follower]) -> None:
        """A watch session and an SSE stream each."""
        (calls,) = await self.connect(1)
        body = msgspec.json.encode({"topics": {queue: {}}})
        for follower in followers:
            made = await calls.call(request("POST", "/v0/watch", body))
            session = msgspec.json.decode(made, type=Watched)
            follower.opening = request("GET", session.stream_url)
        calls.close()
        await join(self.address, followers)
