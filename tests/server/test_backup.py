"""Backups that are downloaded: whole, consistent, and over early where they must be."""

from __future__ import annotations

import asyncio
import io
import json
import re
import tarfile
from pathlib import PurePosixPath
from random import Random

import pytest

from logqueue.server import backup as backups
from logqueue.server.http.exchange import PIECE_BYTES
from logqueue.server.runtime import read_state
from logqueue.server.settings import Settings
from tests.portrait import portrait
from tests.server.lines import Line, turns
from tests.server.stepped import Stepped, append, claim, request, statuses
from wal.testing.simfs import SimFileSystem

ASK = request("GET", "/v0/backup")
PAD = b'"%b"' % (b"x" * 20_000)


async def filled() -> Stepped:
    """A server with a queue, jobs under a lease, and several segments."""
    server = Stepped(segment_max_bytes=100_000)
    line = server.connect()
    config = b'{"type":"queue","cap_records":30,"durability":"fsync","leases_durable":true}'
    await server.talk(line, request("PUT", "/v0/topics/q", config))
    for _ in range(40):
        await server.talk(line, append(data=PAD))
    assert statuses(await server.talk(line, append(data=b'"last"'), claim(), claim())) == [200] * 3
    return server


def length_of(reply: bytes) -> int:
    """What a reply says of its length."""
    found = re.search(rb"content-length: (\d+)", reply)
    assert found is not None, reply[:200]
    return int(found[1])


def unpacked(reply: bytes) -> SimFileSystem:
    """The directory that a download becomes."""
    head, _, body = reply.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), reply[:200]
    assert re.search(rb'filename="logqueue-backup-\d{8}T\d{6}Z\.tar"', head)
    assert len(body) == length_of(reply)
    files = SimFileSystem(Random(1))
    for directory in ("jobs", "leases"):
        files.mkdir(directory)
    names = []
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        for entry in archive:
            names.append("/".join(PurePosixPath(entry.name).parts[1:]))
            source = archive.extractfile(entry)
            assert source is not None
            file = files.create(names[-1])
            file.pwrite(source.read(), 0)
            file.close()
    assert names[-1] == "LOGS", "its end is what makes it whole"
    return files


async def downloaded(server: Stepped, line: Line) -> bytes:
    """A whole download, by a client that stops reading after each part."""
    line.is_read = False
    line.send(ASK)
    reply = b""
    while not reply or len(reply.partition(b"\r\n\r\n")[2]) < length_of(reply):
        await turns()
        assert len(line.written) <= 5 * PIECE_BYTES, "no more than a few pieces wait for the client"
        part = line.read()
        line.is_read = False
        assert part, "the download does not go on"
        reply += part
    return reply


def test_what_is_downloaded_starts_as_what_was_there() -> None:
    async def play() -> None:
        server = await filled()
        line = server.connect()
        line.send(ASK)
        await turns(400)
        files = unpacked(line.read())
        expected = portrait(server.runtime.engine.state)
        assert server.runtime.service.backup is None
        await server.stop()

        assert portrait(read_state(Settings(data_dir="."), files)) == expected

    asyncio.run(play())


def test_what_happens_while_it_is_sent_does_not_change_it() -> None:
    """Also when the segments that are sent are dropped meanwhile: compaction waits for nothing."""

    async def play() -> None:
        server = await filled()
        expected = portrait(server.runtime.engine.state)
        slow, line = server.connect(), server.connect()
        slow.is_read = False
        slow.send(ASK)
        await turns(50)
        journal = server.runtime.engine.journal
        oldest = journal.jobs.segments()[0].id
        await server.talk(line, request("DELETE", "/v0/topics/q"))
        for _ in range(3):
            await server.talk(line, append("other", data=PAD))
        for _ in range(3):
            journal.refused_noted = -1
            for _ in server.runtime.engine.tidy():
                await server.rest()
        assert journal.jobs.segments()[0].id > oldest, "segments were dropped"
        state = json.loads(
            (await server.talk(line, request("GET", "/v0/server"))).partition(b"\r\n\r\n")[2]
        )
        assert 0 < state["backup"]["sent_bytes"] < state["backup"]["total_bytes"]
        reply = slow.read()
        while len(reply.partition(b"\r\n\r\n")[2]) < length_of(reply):
            await turns()
            reply += slow.read()
        assert portrait(read_state(Settings(data_dir="."), unpacked(reply))) == expected
        await server.stop()

    asyncio.run(play())


def test_a_slow_client_gets_all_of_it_in_bounded_memory() -> None:
    async def play() -> None:
        server = await filled()
        unpacked(await downloaded(server, server.connect()))
        await server.stop()

    asyncio.run(play())


@pytest.mark.parametrize("end", ["hang_up", "stall", "full_disk"])
def test_a_backup_ends_early(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        server = await filled()
        slow, line = server.connect(), server.connect()
        slow.is_read = False
        if end == "stall":
            monkeypatch.setattr(backups, "STALL_S", 0.0)
        slow.send(ASK)
        await turns(50)
        journal = server.runtime.engine.journal
        if end == "hang_up":
            slow.hang_up()
        elif end == "full_disk":
            assert server.runtime.service.backup is not None
            other = await server.talk(line, ASK)
            assert statuses(other) == [429]
            journal.jobs.stats.refused += 1
        reply = slow.read()
        await turns(50)
        reply += slow.read()
        assert len(reply.partition(b"\r\n\r\n")[2]) < length_of(reply), "it never looks whole"
        assert server.runtime.service.backup is None
        monkeypatch.undo()
        unpacked(await downloaded(server, line))
        await server.stop()

    asyncio.run(play())


def test_who_may_download_one() -> None:
    async def play() -> None:
        server = Stepped("reader:read,narrow:read:mine-,writer:write")
        line = server.connect()
        for key, status in (("reader", 200), ("narrow", 403), ("writer", 403), ("", 401)):
            reply = await server.talk(line, request("GET", "/v0/backup", key=key))
            await turns(100)
            assert statuses(reply + line.read()) == [status], key
        head = await server.talk(line, request("HEAD", "/v0/backup", key="reader"))
        await turns(100)
        assert length_of(head + line.read()) > 0
        assert server.runtime.service.backup is None
        await server.stop()

    asyncio.run(play())
