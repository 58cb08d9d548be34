"""PostgreSQL over its wire protocol: a table of jobs, claimed with FOR UPDATE SKIP LOCKED.

Owns: its statements, and the few messages of the protocol that they need. Must not know: the other
peers.
"""

from __future__ import annotations

import glob
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.load import Connection, LoadFailed, Script, connect
from bench.loops import Tally
from bench.peers.peer import Peer, installed_version, is_root

PROTOCOL_3 = 196608
DEBIAN_PROGRAMS = "/usr/lib/postgresql/*/bin/"
OWNER = "postgres"
_HEADER = struct.Struct(">cI")
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")

INSERT = "INSERT INTO {queue} (payload) SELECT unnest($1::text[])"
CLAIM = """
WITH next AS MATERIALIZED (
  SELECT id FROM {queue} WHERE leased_until < now() ORDER BY id LIMIT $1::int
  FOR UPDATE SKIP LOCKED)
UPDATE {queue} SET leased_until = now() + interval '60 s', node = $2::text
FROM next WHERE {queue}.id = next.id RETURNING {queue}.id, payload
"""
DELETE = "DELETE FROM {queue} WHERE id = ANY($1::bigint[])"


class Result(NamedTuple):
    """What a statement returned: the columns of each row, and its tag, such as `DELETE 3`."""

    rows: list[list[bytes]]
    tag: bytes


class PostgreSQL(Peer):
    """A table per queue."""

    name = "PostgreSQL"
    install = "apt install postgresql"
    settings = "synchronous_commit = on, fsync = on; FOR UPDATE SKIP LOCKED"
    client = "its wire protocol, prepared statements; rows parsed in Python"
    batch = "one statement with an array"
    lacks = "it has no log to follow: NOTIFY has no positions to resume from"

    @classmethod
    def version(cls) -> str:
        """That of the server."""
        return installed_version(_program("postgres"), "--version").partition(" ")[0]

    def command(self, port: int) -> Sequence[str | Path]:
        """Make the cluster, then serve it."""
        if is_root():  # the server refuses to run as root
            shutil.chown(self.place, OWNER)
        data = self.place / "data"
        made = subprocess.run(
            [str(_program("initdb")), "-D", str(data), "-U", OWNER, "--auth=trust", "-E", "UTF8"],
            user=self.user(),
            cwd=self.place,
            capture_output=True,
            check=False,
        )
        if made.returncode:
            raise LoadFailed(f"initdb: {made.stderr.decode(errors='replace').strip()[-300:]}")
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "200",
            "synchronous_commit": "on",
            "fsync": "on",
            "autovacuum_naptime": "5s",
        }
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return (str(_program("postgres")), "-D", data, "-p", str(port), *flags)

    def user(self) -> str | None:
        """The package's user, for root."""
        return OWNER if is_root() else None

    def accepts(self, port: int) -> bool:
        """The port opens before recovery has ended; the log says when it has."""
        return b"ready to accept connections" in self._log.read_bytes()

    async def connect(self, count: int) -> list[Connection]:
        """Sessions of the only role, which needs no password."""
        made = await connect(self.address, count)
        words = b"user\0%s\0database\0postgres\0\0" % OWNER.encode()
        for one in made:
            await one.call(struct.pack(">ii", len(words) + 8, PROTOCOL_3) + words, read_result)
        return made

    async def prepare(self, connection: Connection, queue: str, follows: bool) -> None:
        """A table with the index that claims use: its primary key."""
        table = (
            f"CREATE TABLE {queue} (id bigserial PRIMARY KEY, payload text NOT NULL,"
            " leased_until timestamptz NOT NULL DEFAULT '-infinity', node text)"
        )
        await connection.call(message(b"Q", table.encode() + b"\0"), read_result)

    def append(
        self, connection: Connection, queue: str, payloads: Sequence[bytes], tally: Tally
    ) -> Script:
        """One INSERT, its own transaction."""
        yield _prepare(b"insert", INSERT, queue), read_result
        content = _execute(b"insert", _array(payloads))
        while not tally.stopped:
            _expect((yield content, read_result), b"INSERT 0 %d" % len(payloads))
            tally.add(len(payloads))

    def cycle(
        self,
        connection: Connection,
        queue: str,
        payloads: Sequence[bytes],
        tally: Tally,
        seen: set[bytes],
    ) -> Script:
        """INSERT, UPDATE … RETURNING, DELETE: a transaction each."""
        jobs = len(payloads)
        for name, statement in ((b"insert", INSERT), (b"claim", CLAIM), (b"delete", DELETE)):
            yield _prepare(name, statement, queue), read_result
        content = _execute(b"insert", _array(payloads))
        node = b"w%d" % id(connection)
        claim = _execute(b"claim", b"%d" % jobs, node)
        while not tally.stopped:
            _expect((yield content, read_result), b"INSERT 0 %d" % jobs)
            ids: list[bytes] = []
            while len(ids) < jobs:  # rows that others hold at this moment are skipped
                found = yield _claim_of(claim, jobs, node, ids), read_result
                ids += [row[0] for row in found.rows]
            before = len(seen)
            seen.update(ids)
            if len(seen) != before + jobs:
                raise LoadFailed("PostgreSQL delivered a job twice")
            _expect((yield _execute(b"delete", _array(ids)), read_result), b"DELETE %d" % jobs)
            tally.add(jobs)


def _claim_of(whole: bytes, jobs: int, node: bytes, ids: list[bytes]) -> bytes:
    """A claim of what is still missing."""
    return whole if not ids else _execute(b"claim", b"%d" % (jobs - len(ids)), node)


def _program(name: str) -> str | None:
    """A program of the server; Debian keeps those of its newest version off the path."""
    return shutil.which(name) or max(glob.glob(DEBIAN_PROGRAMS + name), default=None)


def message(kind: bytes, body: bytes) -> bytes:
    """One message of the protocol."""
    return _HEADER.pack(kind, len(body) + 4) + body


def _prepare(name: bytes, statement: str, queue: str) -> bytes:
    query = statement.format(queue=queue).encode()
    return message(b"P", name + b"\0" + query + b"\0\0\0") + message(b"S", b"")


def _execute(name: bytes, *values: bytes) -> bytes:
    given = b"".join(_INT.pack(len(value)) + value for value in values)
    bind = b"\0" + name + b"\0" + _SHORT.pack(0) + _SHORT.pack(len(values)) + given + _SHORT.pack(0)
    return message(b"B", bind) + message(b"E", b"\0" + _INT.pack(0)) + message(b"S", b"")


def _array(values: Sequence[bytes]) -> bytes:
    quoted = (value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') for value in values)
    return b"{" + b",".join(b'"' + value + b'"' for value in quoted) + b"}"


def _expect(result: Result, tag: bytes) -> None:
    if result.tag != tag:
        raise LoadFailed(f"PostgreSQL answered {result.tag!r}, not {tag!r}")


def read_result(data: bytes) -> tuple[Result, int] | None:
    """All up to the next time that the server is ready for a query."""
    if data[-6:-2] != b"Z\0\0\0" or data[-2] != 5:
        return None
    rows: list[list[bytes]] = []
    tag, at = b"", 0
    while at < len(data):
        kind, length = _HEADER.unpack_from(data, at)
        end = at + 1 + length
        if kind == b"D":
            rows.append([*_columns(data, at + 5)])
        elif kind == b"C":
            tag = data[at + 5 : end - 1]
        elif kind == b"E":
            raise LoadFailed(f"PostgreSQL refused: {data[at + 5 : end]!r}")
        at = end
    return Result(rows, tag), at


def _columns(data: bytes, at: int) -> Iterator[bytes]:
    (count,) = _SHORT.unpack_from(data, at)
    at += 2
    for _ in range(count):
        (length,) = _INT.unpack_from(data, at)
        at += 4
        yield data[at : at + length]
        at += max(length, 0)
