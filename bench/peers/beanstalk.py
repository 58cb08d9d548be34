"""beanstalkd over its text protocol: put, reserve, delete.

Owns: its commands and how its replies are read. Must not know: the other peers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bench.load import Connection, LoadFailed, Read, Script
from bench.loops import Tally
from bench.peers.peer import Peer, installed_version

_RESERVED = re.compile(rb"RESERVED (\d+) \d+\r\n[^\r]*\r\n")
RESERVE = b"reserve-with-timeout 0\r\n"


class Beanstalkd(Peer):
    """A tube per queue."""

    name = "beanstalkd"
    install = "apt install beanstalkd"
    settings = "-b DIR -f 0: every write of its binlog is synced; reservations are not logged"
    client = "its text protocol, ready-made bytes; ids found by a compiled pattern"
    batch = "100 commands in one write"
    lacks = "it has no log to follow: each job is delivered to one worker"

    @classmethod
    def version(cls) -> str:
        """That of the server."""
        return installed_version("beanstalkd", "-v")

    def command(self, port: int) -> Sequence[str | Path]:
        """Its binlog in the folder of the run."""
        where = ("-l", "127.0.0.1", "-p", str(port))
        return ("beanstalkd", *where, "-b", self.place, "-f", "0")

    async def prepare(self, connection: Connection, queue: str, follows: bool) -> None:
        """Tubes come into being by use."""

    def append(
        self, connection: Connection, queue: str, payloads: Sequence[bytes], tally: Tally
    ) -> Script:
        """One put per payload."""
        yield b"use %s\r\n" % queue.encode(), lines(1, b"USING ")
        content, read = _puts(payloads), lines(len(payloads), b"INSERTED ")
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
        """put, reserve, delete."""
        jobs, tube = len(payloads), queue.encode()
        yield b"use %s\r\n" % tube, lines(1, b"USING ")
        yield b"watch %s\r\nignore default\r\n" % tube, lines(2, b"WATCHING ")
        content, inserted = _puts(payloads), lines(jobs, b"INSERTED ")
        claim, deleted = reserved(jobs), lines(jobs, b"DELETED")
        while not tally.stopped:
            yield content, inserted
            ids = yield RESERVE * jobs, claim
            before = len(seen)
            seen.update(ids)
            if len(seen) != before + jobs:
                raise LoadFailed("beanstalkd delivered a job twice")
            yield b"".join(b"delete %s\r\n" % one for one in ids), deleted
            tally.add(jobs)


def _puts(payloads: Sequence[bytes]) -> bytes:
    return b"".join(b"put 0 0 60 %d\r\n%s\r\n" % (len(one), one) for one in payloads)


def lines(count: int, expected: bytes) -> Read:
    """Reads that many replies of one line, each beginning as expected."""

    def read(data: bytes) -> tuple[bytes, int] | None:
        if data.count(b"\r\n") < count:
            return None
        if data.count(expected) != count:
            raise LoadFailed(f"beanstalkd answered {data[:200]!r}")
        return data, len(data)

    return read


def reserved(count: int) -> Read:
    """Reads the ids of that many reserved jobs."""

    def read(data: bytes) -> tuple[list[bytes], int] | None:
        if b"TIMED_OUT" in data:
            raise LoadFailed("beanstalkd had no job to reserve")
        ids = _RESERVED.findall(data)
        return (ids, len(data)) if len(ids) == count else None

    return read
