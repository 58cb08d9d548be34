"""Large replies: made and written in steps, others served in between, all of it in the books."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from logqueue.api.operations.row import Body
from logqueue.api.record_texts import PART_BYTES, RecordTexts, encode_in_parts, shown
from logqueue.core import commands as cmd
from logqueue.core.reading import read
from logqueue.model.scopes import NO_SCOPE
from logqueue.server.app import routes
from logqueue.server.http.api import HttpApi
from logqueue.server.http.exchange import LARGE_REPLY_BYTES, PIECE_BYTES
from logqueue.server.http.requests import PART_BYTES as READ_BYTES
from logqueue.server.http.requests import Download, Reply
from logqueue.server.http.routing import Route, RouteTable
from logqueue.server.long_bodies import REST_EVERY_BYTES, REST_S, LongBodies
from logqueue.server.metrics import Metrics
from logqueue.server.service import Service
from logqueue.server.settings import Settings
from tests.core.world import World, job
from tests.server.lines import Line, turns
from tests.server.memory import Memory

SIZE = 3_000_000
ASK = b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n"
HEALTH = b"GET /v0/health HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Lost:
    """A reply of `SIZE` bytes, and how often it did not reach its client."""

    def __init__(self, **settings: Any) -> None:
        self.count = 0
        self.service = Service(Settings(data_dir=".", **settings))
        metrics = Metrics(self.service)
        own = Route("GET", "/large", NO_SCOPE, Body.IGNORED, self.answer)
        page = Route("GET", "/page", NO_SCOPE, Body.IGNORED, _page)
        download = Route("GET", "/download", NO_SCOPE, Body.IGNORED, _download)
        table = RouteTable([*routes(self.service, metrics), own, page, download])
        self.api = HttpApi(self.service, table, metrics)

    def answer(self, request: object) -> Reply:
        reply = Reply(bytes(SIZE))
        reply.on_undelivered = self._lose
        return reply

    def _lose(self) -> None:
        self.count += 1


def _page(request: Any) -> Any:
    async def make() -> Reply:
        request.hold(SIZE)
        return Reply(bytes(SIZE))

    return request.unless_gone(make())


async def _download(request: Any) -> Download:
    async def read(length: int, offset: int) -> bytes:
        assert length <= READ_BYTES
        return bytes(length)

    return Download(200, (b"content-type", b"x/y"), (), 0, SIZE, read, lambda: None)


class Steps(Line):
    """A client's end that knows which connection wrote how much in which order."""

    order: list[tuple[Steps, int]]

    def __init__(self, api: HttpApi, order: list[tuple[Steps, int]]) -> None:
        self.order = order
        super().__init__(api)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.order.append((self, len(data)))
        super().write(data)


def test_parts_are_written_in_turn_with_others() -> None:
    async def play() -> None:
        api = Lost().api
        order: list[tuple[Steps, int]] = []
        lines = [Steps(api, order) for _ in range(3)]
        small = Steps(api, order)
        for line in lines:
            line.send(ASK)
        await turns(5)
        small.send(HEALTH)
        await turns(600)
        assert max(size for _, size in order) <= PIECE_BYTES
        # Whoever came in between waited for a few parts, not for three replies.
        assert [line for line, _ in order].index(small) < 10
        writers = [lines.index(line) for line, size in order if size == PIECE_BYTES]
        assert writers[:9] == [0, 1, 2] * 3, writers
        for line in lines:
            head, _, body = line.read().partition(b"\r\n\r\n")
            assert re.search(rb"content-length: (\d+)", head)[1] == b"%d" % SIZE  # type: ignore[index]
            assert len(body) == SIZE
            line.send(HEALTH + ASK)
        await turns(600)
        assert all(len(line.read()) > SIZE for line in lines), "the connections go on"
        assert api.service.memory.used == 0

    asyncio.run(play())


def test_a_turn_of_the_loop_writes_one_piece_of_one_download() -> None:
    """However many are downloaded at once: what a short request waits for does not grow."""

    async def play() -> None:
        api = Lost().api
        order: list[tuple[Steps, int]] = []
        lines = [Steps(api, order) for _ in range(8)]
        for line in lines:
            line.send(ASK.replace(b"/large", b"/download"))
        line = Steps(api, order)
        line.send(ASK)
        lines.append(line)
        await turns(1)
        while any(len(line.written) < SIZE for line in lines):
            before = len(order)
            await turns(1)
            # Heads are short.
            assert sum(size for _, size in order[before:] if size > 1000) <= PIECE_BYTES
        pieces = [lines.index(line) for line, size in order if size == PIECE_BYTES]
        assert {*range(9)} == {*pieces[:20]}, "all of them go on, one after the other"

    asyncio.run(play())


@pytest.mark.parametrize("path", [b"/large", b"/download"])
def test_long_bodies_rest_while_the_log_holds_replies_back(
    path: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else those who read the whole log keep all processors from those who wait for the disk."""
    held_back, pauses, sleep = 0, list[float](), asyncio.sleep

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    async def download(api: HttpApi) -> list[float]:
        pauses.clear()
        lines = [Line(api) for _ in range(2)]
        for line in lines:
            line.send(ASK.replace(b"/large", path))
        while any(len(line.written) < SIZE for line in lines):
            await sleep(0)
        return [seconds for seconds in pauses if seconds]

    def more() -> int:
        nonlocal held_back
        held_back += 1
        return held_back

    async def play() -> None:
        lost = Lost()
        monkeypatch.setattr(asyncio, "sleep", pause)
        lost.service.long_bodies = LongBodies(lambda: held_back)
        assert await download(lost.api) == []
        lost.service.long_bodies = LongBodies(more)
        assert await download(lost.api) == [REST_S] * (2 * SIZE // REST_EVERY_BYTES)

    asyncio.run(play())


@pytest.mark.parametrize("how", ["before", "half-way", "read"])
def test_a_large_reply_that_does_not_arrive(how: str) -> None:
    async def play() -> None:
        lost = Lost()
        line = Line(lost.api)
        line.is_read = how == "read"
        line.send(ASK)
        if how != "before":
            await turns(50)
        assert lost.service.memory.used >= SIZE * (how != "read"), "held as a whole"
        line.hang_up()
        await turns(50)
        assert lost.count == (how != "read")
        assert not line.tasks and lost.service.memory.used == 0

    asyncio.run(play())


def test_a_client_that_leaves_before_its_page_is_begun() -> None:
    """The work for it starts a turn of the loop after the request."""

    async def play() -> None:
        lost = Lost()
        line = Line(lost.api)
        line.send(ASK.replace(b"/large", b"/page"))
        line.hang_up()
        await turns(20)
        assert not line.tasks and lost.service.memory.used == 0

    asyncio.run(play())


def test_large_replies_in_flight_are_bounded() -> None:
    async def play() -> None:
        lost = Lost(max_client_bytes=3 * SIZE)
        lines = [Line(lost.api) for _ in range(5)]
        for line in lines:
            line.is_read = False
            line.send(ASK)
        await turns(100)
        refused = [line for line in lines if line.written.startswith(b"HTTP/1.1 429 ")]
        assert len(refused) == lost.count == 2, "no room beside what the others write"
        assert b"retry-after: 1\r\n" in refused[0].written
        assert lost.service.memory.used <= 3 * (SIZE + 2 * LARGE_REPLY_BYTES)
        for line in lines:
            for _ in range(20):
                line.read()
                await turns(10)
        assert lost.service.memory.used == 0

    asyncio.run(play())


def test_a_large_page_is_encoded_in_parts() -> None:
    world = World()
    world.put("log", type="log", durability="ephemeral")
    for size in (1, 200, 1000, 100_000, 400_000, 20, 4000):
        world.write("log", *[job("x" * size, tag="t")] * 25)
        world.write("log", "x" * size)
    topic = world.engine.topic_now("log")
    topic_reads = read(topic, 3, 0, records_max=1000, bytes_max=64 << 20)
    show = shown(tags=True, meta=True)
    parts = [*encode_in_parts(topic_reads.runs, show)]
    assert b"".join(parts) == RecordTexts().join(topic.number, topic_reads.runs, show)
    assert len(parts) > 20
    # The last record may go beyond.
    assert all(len(part) < PART_BYTES + 450_000 for part in parts)
    assert [*encode_in_parts([], show)] == [b""]


def test_a_page_is_what_it_was_when_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records may be deleted, and evicted, before the last part is made."""
    memory = Memory()
    try:
        memory.call("PUT", "topics/log", {"type": "log"})
        for _ in range(4):
            records = [{"data": "x" * 8000}] * 100
            memory.call("POST", "topics/log", {"records": records})
        parts = []

        def encode(*args: Any) -> Any:
            for part in encode_in_parts(*args):
                parts.append(part)
                if len(parts) == 2:
                    memory.core._dispatcher.engine.execute(delete)
                yield part

        delete = cmd.DropTopic("log", False)
        monkeypatch.setattr("logqueue.server.handlers.topics.encode_in_parts", encode)
        body = {"limit": 1000, "max_batch_bytes": 8 << 20}
        page = memory.call("POST", "topics/log/diff", body)
        assert len(parts) > 5
        assert [record["$seq"] for record in page["records"]] == [*range(1, 401)]
        assert page["next_from_seq"] == 400 and page["caught_up"]
    finally:
        memory.close()
